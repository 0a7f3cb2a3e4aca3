# SPDX-License-Identifier: Apache-2.0
"""What networks ask of a GPU, without one: launches, bytes and products by `cytoc --explain`, instructions of the machine code.
Times that follow from these by a data sheet are modelled, not measured.

In:  networks of ../shared/zoo (names restrict it), --target ARCH (several), --options (of cytoc). NVRTC, as cytoc finds it.
Out: a Markdown table (--append FILE: to a file, too) with a row for each network and architecture:
     launches of a run, those that add shares of k included; those that are only casts; MB that kernels read and write; GFLOP
     that are useful, and that products and convolutions by tiles multiply, empty parts of tiles and taps that hit nothing
     included; instructions in the machine code of all kernels; M executed: warp instructions of a run in millions
     (cuda_sass.py says how they are counted); us: the roofline of each kernel, added up, by the data sheet (useful), and by
     the most of what is multiplied (in f16; types of 8 bits at twice the rate), what moves, and what is executed (one
     instruction a clock for each quarter of a multiprocessor), of an architecture in DEVICES; us, ends: the same, where
     products by tensor maps take as long as the multiprocessor with most tiles has for their products and ends, one after the
     other or, of warpgroups that multiply in turns, side by side (codegen/cuda/matrix/pingpong.c).
     --kernels: a line for each kernel instead: launches, blocks, MFLOP useful and multiplied, warp instructions.
A decoding step is one token behind 128. --converted: networks are converted to f16 beforehand, as ONNX Runtime's tools do it.
"""
import argparse
import importlib.util
import math
import os
import re
import subprocess
import sys
import tempfile

import cuda_sass

HERE = os.path.dirname(os.path.abspath(__file__))
ZOO = os.path.join(os.environ.get('CYTO_SHARED', os.path.join(HERE, '..', '..', '..', '..', 'shared')), 'zoo')
DECODE = ['sequence=1', 'past=128', 'batch=1']
NETWORKS = [('resnet50 b1', 'resnet50', []), ('resnet50 b16', 'resnet50', [], 16), ('vit_b_16', 'vit_b_16', []),
            ('bert_base b1', 'bert_base', ['batch=1', 'sequence=128']), ('bert_base b8', 'bert_base', ['batch=8', 'sequence=128']),
            ('unet2d', 'unet2d_labelfree', ['batch=1']), ('unet3d', 'unet3d_monai', []), ('gpt2 decode', 'gpt2_small', DECODE),
            ('llama decode', 'llama_160m_gqa', [*DECODE, 'total=129']), ('whisper encoder', 'whisper_tiny_encoder', []),
            ('whisper decoder', 'whisper_tiny_decoder', ['batch=1', 'sequence=1']), ('ddpm', 'ddpm_unet_cifar', ['batch=1']),
            ('yolov5s', 'yolov5s_like', [])]
# by data sheets: MFLOP/s in f16 with sums in f32, warp instructions in a microsecond
CLOCK = 1700.0  # of sm_90a, in a microsecond
DEVICES = {'sm_89': (121e6, 58 * 4 * 2040.0), 'sm_90a': (989e6, 132 * 4 * 1700.0)}
ROW = re.compile(r'^(\S+_k\d+_\S+)\s+(\d+)\s+(.*?)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+) (mem|fma)\s+(.*)$')
TOTAL = re.compile(r'^all launches\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)', re.M)


def materialized(name, folder, images=0):
    """The network with weights; images: of its first input, in place of one."""
    import onnx
    path = os.path.join(folder, name + '.onnx')
    if not os.path.exists(path):
        spec = importlib.util.spec_from_file_location('materialize', os.path.join(ZOO, 'materialize.py'))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        model = module.materialize(onnx.load(os.path.join(ZOO, name + '.onnx')))
        if images:
            model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = images
            del model.graph.value_info[:], model.graph.output[0].type.tensor_type.shape.dim[:]
            model = onnx.shape_inference.infer_shapes(model)
        onnx.save(model, path)
    return path


OCCUPANCY = re.compile(r'(\d+) threads per multiprocessor; (\d+) (blocks|tiles)')


def kernels(text):
    """What --explain says of each kernel: (symbol, runs, ops, floor in us, Launch, blocks that add shares)."""
    row = None
    for line in text.splitlines():
        row = ROW.match(line) or row
        found = OCCUPANCY.search(line)
        if row and line.startswith('  ') and found:
            multiplies = re.search(r'multiplies ([\d.]+) MFLOP', line)
            adding = re.search(r'(\d+) blocks? adds? shares', line)
            launch = cuda_sass.Launch(row[3], int(found[2]), int(found[1]), found[3] == 'tiles',
                                      float(multiplies[1]) if multiplies else 0, float(row[4]), float(row[5]) * 1e6)
            yield row[1], int(row[2]), row[8], float(row[6]), launch, int(adding[1]) if adding else 0
            row = None


def adds_shares(symbol, launch, blocks, code):
    """Executed instructions of the kernel that adds shares of k."""
    at = code.get(symbol + '_combine')
    return at.executed(cuda_sass.Launch('adds', blocks, 64, False, 0, 0, launch.bytes)) if at and blocks else 0


def tiles_us(launch, code):
    """Of the multiprocessor that has most tiles, all ends behind its products, or at the same time; 0: there are none."""
    found = re.search(r'tma 128x(\d+)', launch.algorithm)
    if not found or launch.algorithm.startswith('attention'):
        return 0
    columns, rounds = int(found[1]), math.ceil(launch.blocks / 132)
    steps = launch.multiplies * 1e6 / 2 / (launch.blocks * 128 * columns) / depth_of(launch)
    products, end = code.tile_clocks(launch, columns, steps)
    if 'ping-pong' in launch.algorithm:
        return (products + (rounds - 1) * max(products, end) + end) / CLOCK
    return rounds * (products + end) / CLOCK


def depth_of(launch):
    """Elements of k in 128 bytes: twice those of the tiles by cp.async."""
    return 2 * int(re.search(r'\d+x\d+x(\d+)', launch.algorithm)[1])


def explained(text, code, device, show):
    """Figures of one --explain and its machine code."""
    rate, issue = device
    out = dict(launches=0, casts=0, multiplied=0.0, model_us=0.0, ends_us=0.0, executed=0.0, code=sum(map(len, code.values())))
    for symbol, runs, ops, floor, launch, adding in kernels(text):
        name = symbol + '_tma' if launch.tiles and symbol + '_tma' in code else symbol
        executed = code[name].executed(launch) + adds_shares(symbol, launch, adding, code)
        multiplied = launch.multiplies or launch.useful
        out['launches'] += runs * (2 if adding else 1)
        out['casts'] += runs * (ops.split('  ')[0].split()[-1:] == ['cast'] and len(ops.split('  ')[0].split()) == 1)
        out['multiplied'] += runs * multiplied
        out['executed'] += runs * executed
        own_rate = rate * (2 if code[name].multiplies_bytes() else 1)
        most, ends = max(floor, launch.multiplies / own_rate * 1e6, executed / issue), tiles_us(launch, code[name])
        out['model_us'] += runs * most
        out['ends_us'] += runs * max(most, ends)
        if show:
            print('%-40s %3d x %6d blocks %10.3f MFLOP %10.3f multiplied %12.0f executed %6.2f us, %6.2f with ends  %s' % (
                launch.algorithm, runs, launch.blocks, launch.useful, multiplied, executed, most, max(most, ends), ops[:90]))
    total = TOTAL.search(text)
    out['useful'], out['mb'], out['floor_us'] = (float(total[i]) for i in (1, 2, 3))
    return out


def converted(path):
    """The same network in f16."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16
    half = path[:-5] + '.f16.onnx'
    onnx.save(convert_float_to_float16(onnx.load(path), keep_io_types=False), half)
    return half


def measure(args, network, dims, images, arch, folder):
    path = materialized(network, folder, images)
    path = converted(path) if args.converted else path
    cubin = os.path.join(folder, 'k.cubin')
    command = [args.cytoc, path, '-o', cubin, '--emit=cubin', '--target=' + arch, '--cudnn=off', '--cublaslt=off', '--explain', *args.options]
    command += [word for dim in dims for word in ('--dim', dim)]
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if p.returncode:
        return None, p.stderr.strip().splitlines()[-1]
    code = cuda_sass.read(cubin, int(re.search(r'\d+', arch)[0]))
    return explained(p.stdout, code, DEVICES.get(arch, (1e30, 1e30)), args.kernels), None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('names', nargs='*', help='regular expressions: networks (default: all)')
    parser.add_argument('--cytoc', default='build/cytoc')
    parser.add_argument('--target', default='sm_89,sm_90a')
    parser.add_argument('--options', default='--fp16', type=str.split)
    parser.add_argument('--converted', action='store_true')
    parser.add_argument('--kernels', action='store_true', help='a line for each kernel, too')
    parser.add_argument('--append', help='a file that gets the table, too')
    args = parser.parse_args()
    os.environ.setdefault('VIRTUAL_ENV', sys.prefix)
    lines = ['| network | arch | launches | only casts | MB | GFLOP useful | multiplied | instructions | M executed | us, data sheet | us, most '
             '| us, ends |',
             '|---|---|---|---|---|---|---|---|---|---|---|---|']
    print('\n'.join(lines), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, network, dims, *images in NETWORKS:
            if args.names and not any(re.fullmatch(n, name) for n in args.names):
                continue
            for arch in args.target.split(','):
                row, why = measure(args, network, dims, sum(images), arch, folder)
                line = '| %s | %s | ' % (name, arch) + (why if why else '%d | %d | %.1f | %.2f | %.2f | %d | %.2f | %.1f | %.1f | %.1f |' % (
                    row['launches'], row['casts'], row['mb'], row['useful'] / 1e3, row['multiplied'] / 1e3, row['code'], row['executed'] / 1e6,
                    row['floor_us'], row['model_us'], row['ends_us']))
                lines.append(line)
                print(line, flush=True)
            os.remove(os.path.join(folder, network + '.onnx'))
    if args.append:
        with open(args.append, 'a', encoding='utf-8') as f:
            f.write('\n'.join(lines) + '\n')


if __name__ == '__main__':
    main()
