# SPDX-License-Identifier: Apache-2.0
"""Packs what tests and measures CUDA on another machine, which has a GPU, Python, numpy and perhaps PyTorch, but neither a
compiler nor a linker nor onnx: all libraries are compiled here.

    make carry                                   # build/carry: a folder to send, archives and run.py
    make carry CARRY='--arch sm_90a --limit-mb 40 --save DIR'

In:  --build DIR with portable/ (`make portable`), tests, tools, ../shared (zoo and models); NVRTC for --arch, and ONNX
     Runtime for what networks should compute. What was compiled stays in build/images and build/carried for the next time.
Out: the folder (--save) with run.py (carried.py) and archives in the order of their importance. Each call of run.py needs some of
     them, of --limit-mb together; what is over that is left out, and said. --mocks takes the mocks of NVIDIA's libraries in the place of NVRTC and of a device:
     for trying it out; --networks and --speed say which (regular expressions).
"""
import glob
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [TESTS, os.path.join(TESTS, 'bench', 'cuda')]
import cuda_cases
import lib

GLIBC = re.compile(r'(ld-linux-x86-64|lib(c|m|dl|rt|pthread|util|resolv))\.so\.\d$')
PROGRAMS = {'cyto-run': 'build', 'device_test': 'build/tests/cuda', 'libcyto.so': 'build/portable'}
SCRIPTS = ['tests/*.py', 'tests/cuda/*.py', 'tests/cuda/carry/*.py', 'tests/cuda/shim/*.py', 'tests/bench/cuda/*.py', 'tools/bench_*.py']
MOCKS = ['tests/cuda/*.h', 'tests/cuda/shim/*.[ch]', 'codegen/cuda/*.cuh', 'build/tests/cuda/mock/*.o',
         'build/tests/cuda/mock/*.so*', 'build/tests/cuda/mock/cudnn/*.so*', 'build/tests/cuda/mock/cublas/*.so*',
         'build/tests/cuda/mock/lib64/*.so*']
# Each kind of layer, number and kernel once, small; networks.txt says what they are.
NETWORKS = ('resnet18$|resnet18_half|mobilenet_v2_fp16|shufflenet|vit_cifar_fp16|blazeface|ppocr|mobilenetv2_qdq|resnet18_int8|'
            'squeezenet_dynamic|unet3d_fp16|unet2d_tf32|edsr_half|bert_toy$|bert_toy_fp16|gpt2_past_fp16|llama_fp16|beam_search|'
            'warpgroups_(half|bf16|int8)|one_row|lstm_tagger$|conformer_tf32|topk_multi|ddpm_unet_fp16|dlrm')


def needed(program):
    """{name: path} of the libraries that a program needs beside glibc's."""
    text = subprocess.run(['ldd', program], capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r'^\s*(\S+) => (\S+)', text, re.M))
    missing = [name for name, path in found.items() if path == 'not']
    if missing:
        sys.exit('%s needs %s, which is not found' % (program, ', '.join(missing)))
    return {name: path for name, path in found.items() if not GLIBC.match(name)}


def glibc_of(program):
    """The version of glibc that it wants at least."""
    with open(program, 'rb') as f:
        versions = re.findall(rb'GLIBC_2\.(\d+)', f.read())
    return max(map(int, versions), default=0)


def matching(patterns):
    return [path for pattern in patterns for path in sorted(glob.glob(pattern)) if os.path.isfile(path)]


# ---- what the archives hold: {name there: path here} ----

def tools(args):
    files, least = {}, 0
    for program, folder in PROGRAMS.items():
        path = os.path.join(args.build, 'portable', program)
        files['%s/%s' % (folder, program)] = path
        least = max(least, glibc_of(path))
        for name, library in needed(path).items():
            files['%s/lib/%s' % (folder, name)] = library
            least = max(least, glibc_of(library))
    print('the programs want glibc 2.%d or newer there' % least)
    files.update((path, path) for path in matching(SCRIPTS + MOCKS * args.mocks))
    files['build/tests/cuda/instructions.npz'] = instructions(args)
    return files


def python(args, script, *arguments, env=None):
    """Runs a script of tests; its words when it fails."""
    code, out, err = lib.run([sys.executable, script, *arguments], 7200, env=env)
    sys.stdout.write(''.join(line + '\n' for line in out.splitlines() if line.startswith(('FAILED', 'skipped'))))
    return lib.reason(err or out, code) if code else None


def instructions(args):
    """What the emulator makes of single instructions, for the architecture."""
    path = os.path.join(args.work, 'instructions.npz')
    env = dict(os.environ, CY_MOCK_CAPABILITY=re.sub(r'\D', '', args.arch), LD_LIBRARY_PATH=os.path.join(args.build, 'tests/cuda/mock'))
    why = python(args, 'tests/cuda/carry/instructions.py', '--record', path, env=env)
    return sys.exit('instructions.py: ' + why) if why else path


def images(args):
    """The kernels of device_test, compiled for the architecture; they stay for the next time."""
    folder, number = os.path.join(args.build, 'images'), re.sub(r'\D', '', args.arch)
    folder += '-mock' if args.mocks else ''
    os.makedirs(folder, exist_ok=True)
    env = dict(os.environ, CUDA_HOME=os.path.join(args.build, 'tests', 'cuda', 'mock')) if args.mocks else None
    code, _, err = lib.run([os.path.join(args.build, 'portable', 'device_test'), '--save', folder, '--arch', number], 3600, env=env)
    if code:
        print('the kernels of device_test are not compiled: %s' % lib.reason(err, code))
        return {}
    return {'build/tests/cuda/images/' + os.path.basename(path): path for path in matching([folder + '/*.cubin'])
            if re.match(r'cases_%s\D' % number, os.path.basename(path))}


def below(folder, there):
    files = {}
    for root, _, found in os.walk(folder):
        inside = os.path.relpath(root, folder)
        files.update((os.path.normpath(os.path.join(there, inside, f)), os.path.join(root, f)) for f in found)
    return files


def networks(args):
    """Libraries with inputs and the outputs that they should have."""
    folder = os.path.join(args.work, 'networks')
    shutil.rmtree(folder, ignore_errors=True)
    device = [] if args.mocks else ['--device', '--target', args.arch]
    why = python(args, 'tests/cuda/networks.py', '--build', args.build, '--prepare', folder, *device, args.networks)
    if why:
        print('not all networks: %s' % why)
    return below(folder, 'build/carried/networks')


def speed(args):
    """Libraries that are measured, and the models that PyTorch is given."""
    folder = os.path.join(args.work, 'speed')
    small = ['--small'] if args.mocks else ['--device']
    why = python(args, 'tests/bench/cuda/cuda.py', '--build', args.build, '--prepare', args.arch, '--work', folder, *small, args.speed)
    if why:
        print('not all that is measured: %s' % why)
    there = os.path.join(args.work, 'stripped')
    shutil.rmtree(there, ignore_errors=True)
    os.makedirs(there)
    files = {}
    for path in matching([folder + '/*']):
        if path.endswith('.onnx'):
            shutil.copy(path, there)
            path = os.path.join(there, os.path.basename(path))
            cuda_cases.strip(path)
        files['build/carried/speed/' + os.path.basename(path)] = path
    return files


# With the calls of run.py that need it: each is sent with its own.
ARCHIVES = [(tools, ('first', 'second')), (images, ('first',)), (networks, ('first',)), (speed, ('second',))]


def pack(files, preset):
    out, how = io.BytesIO(), {'mode': 'w:xz', 'preset': preset} if preset >= 0 else {'mode': 'w'}
    with tarfile.open(fileobj=out, **how) as tar:
        for name, path in sorted(files.items(), key=lambda item: os.path.splitext(item[0])[::-1]):
            tar.add(os.path.realpath(path), name)
    return out.getvalue()


def main():
    args = lib.arguments(__doc__, save={'default': 'build/carry'}, arch={'default': 'sm_90a'},
                         **{'limit-mb': {'type': float, 'default': 40}}, preset={'type': int, 'default': 2, 'help': 'of xz; -1: as it is'},
                         mocks={'action': 'store_true'}, networks={'default': NETWORKS}, speed={'default': ''})
    args.work = os.path.join(args.build, 'carried-mock' if args.mocks else 'carried')
    os.makedirs(args.work, exist_ok=True)
    shutil.rmtree(args.save, ignore_errors=True)
    os.makedirs(args.save)
    shutil.copy(os.path.join(HERE, 'carried.py'), os.path.join(args.save, 'run.py'))
    total = dict.fromkeys(('first', 'second'), 0)
    for number, (function, calls) in enumerate(ARCHIVES):
        if args.names and function.__name__ not in args.names:
            continue
        name = '%d-%s' % (number, function.__name__)
        files = function(args)
        data = pack(files, args.preset) if files else b''
        fits = all(total[call] + len(data) <= args.limit_mb * 2 ** 20 for call in calls)
        if data and fits:
            with open(os.path.join(args.save, name + ('.tar.xz' if args.preset >= 0 else '.tar')), 'wb') as f:
                f.write(data)
            total.update((call, total[call] + len(data)) for call in calls)
        print('%-18s %5d files %6.1f MB, for run.py %s%s' % (name, len(files), len(data) / 2 ** 20, ' and '.join(calls),
                                                             '' if fits else ': left out, over --limit-mb'), flush=True)
    print('%s. There: python3 run.py first (%.1f MB), then python3 run.py second (%.1f MB)' % (
        args.save, *(size / 2 ** 20 for size in total.values())))


if __name__ == '__main__':
    main()
