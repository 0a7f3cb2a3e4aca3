# SPDX-License-Identifier: Apache-2.0
"""Packs what tests and measures CUDA on another machine, which has a GPU and Python, but neither LLVM nor build tools.

    make carry                                   # build/carry: a folder to send, archives and run.py
    make carry CARRY='--arch 90 --limit-mb 40 --save DIR'

In:  --build DIR with portable/ (`make portable`), tests, tools, ../shared (zoo and models), the node tests' data of the
     onnx package; NVRTC for --arch, whose kernels travel compiled.
Out: the folder (--save) with run.py (carried.py) and archives in the order of their importance; what is over
     --limit-mb is left out, and said. --mocks adds the mocks of NVIDIA's libraries, --nodes and --preset make it small:
     for trying it out.
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
sys.path.insert(0, os.path.dirname(HERE))
import lib

GLIBC = re.compile(r'(ld-linux-x86-64|lib(c|m|dl|rt|pthread|util|resolv))\.so\.\d$')
PROGRAMS = {'cytoc': 'build', 'cyto-run': 'build', 'cyto-bench': 'build', 'node_run': 'build/tests',
            'device_test': 'build/tests/cuda', 'libcyto.so': 'build/portable'}
SCRIPTS = ['tests/*.py', 'tests/cuda/*.py', 'tests/cuda/*.txt', 'tests/onnx/*.py', 'tests/onnx/*.txt', 'tests/bench/cuda*.py',
           'tests/requirements.txt', 'tools/bench_*.py']
MOCKS = ['tests/cuda/*.h', 'tests/check.h', 'codegen/cuda/*.cuh', 'build/tests/cuda/mock/*.o', 'build/tests/cuda/mock/*.so*',
         'build/tests/cuda/mock/cudnn/*.so*', 'build/tests/cuda/mock/lib64/*.so*']


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
    return files


def images(args):
    """The kernels of device_test, compiled for the architecture; they stay for the next time."""
    folder = os.path.join(args.build, 'images')
    os.makedirs(folder, exist_ok=True)
    code, _, err = lib.run([os.path.join(args.build, 'portable', 'device_test'), '--save', folder, '--arch', args.arch], 3600)
    if code:
        print('the kernels of device_test are compiled there, not here: %s' % lib.reason(err, code))
        return {}
    return {'build/tests/cuda/images/' + os.path.basename(path): path for path in matching([folder + '/*.cubin'])
            if re.match(r'cases_%s\D' % args.arch, os.path.basename(path))}


def below(folder, there, names=None):
    if not os.path.isdir(folder):
        print('left out: there is no %s' % folder)
        return {}
    files = {}
    for root, _, found in os.walk(folder):
        inside = os.path.relpath(root, folder)
        if names is None or inside.split(os.sep)[0] in names:
            files.update((os.path.normpath(os.path.join(there, inside, f)), os.path.join(root, f)) for f in found)
    return files


def zoo(args):
    return below(os.path.join(lib.SHARED, 'zoo'), 'shared/zoo')


def node_tests(args):
    """The data of the tests that must pass, and their index."""
    sys.path.insert(0, os.path.join(os.path.dirname(HERE), 'onnx'))
    import run
    listed = lib.Suite(args, os.path.join(HERE, 'nodes-passing.txt')).listed
    args.wanted = lambda name: name in listed and re.search(args.nodes, name)
    rows = run.load_index(args)
    files, index = {}, os.path.join(args.save, 'index.tsv')
    with open(index, 'w', encoding='utf-8') as f:
        for row in rows:
            there = 'build/onnx-tests/data/' + '/'.join(row[1].split(os.sep)[-2:])
            files.update(below(row[1], there))
            f.write('\t'.join([row[0], there, *row[2:]]) + '\n')
    files['build/onnx-tests/index.tsv'] = index
    return files


def stored_models(args):
    """Those that networks.txt names."""
    with open(os.path.join(HERE, 'networks.txt'), encoding='utf-8') as f:
        names = {line.split()[1] for line in f if line.strip() and line[0] != '#'}
    files = below(os.path.join(lib.SHARED, 'models'), 'shared/models', names)
    files.setdefault('shared/models/README', os.path.join(HERE, 'networks.txt'))  # the folder is looked for
    return files


ARCHIVES = [tools, images, zoo, node_tests, stored_models]


def pack(files, preset):
    out, how = io.BytesIO(), {'mode': 'w:xz', 'preset': preset} if preset >= 0 else {'mode': 'w'}
    with tarfile.open(fileobj=out, **how) as tar:
        for name, path in sorted(files.items(), key=lambda item: os.path.splitext(item[0])[::-1]):
            tar.add(os.path.realpath(path), name)
    return out.getvalue()


def main():
    args = lib.arguments(__doc__, save={'default': 'build/carry'}, arch={'default': '90'},
                         **{'limit-mb': {'type': float, 'default': 60}}, preset={'type': int, 'default': 6, 'help': 'of xz; -1: as it is'},
                         mocks={'action': 'store_true'}, nodes={'default': '', 'help': 'which node tests'})
    shutil.rmtree(args.save, ignore_errors=True)
    os.makedirs(args.save)
    shutil.copy(os.path.join(HERE, 'carried.py'), os.path.join(args.save, 'run.py'))
    total = 0
    for number, function in enumerate(ARCHIVES):
        if args.names and function.__name__ not in args.names:
            continue
        name = '%d-%s' % (number, function.__name__)
        files = function(args)
        data = pack(files, args.preset) if files else b''
        fits = total + len(data) <= args.limit_mb * 2 ** 20
        if data and fits:
            with open(os.path.join(args.save, name + ('.tar.xz' if args.preset >= 0 else '.tar')), 'wb') as f:
                f.write(data)
            total += len(data)
        print('%-18s %5d files %6.1f MB%s' % (name, len(files), len(data) / 2 ** 20,
                                              '' if fits else ', left out: over --limit-mb'), flush=True)
    if os.path.exists(os.path.join(args.save, 'index.tsv')):
        os.remove(os.path.join(args.save, 'index.tsv'))
    print('%s: %.1f MB. There: python3 run.py' % (args.save, total / 2 ** 20))


if __name__ == '__main__':
    main()
