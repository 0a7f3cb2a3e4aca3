# SPDX-License-Identifier: Apache-2.0
"""What networks ask of a GPU, without one: launches, bytes and products by `cytoc --explain`, instructions of the machine code.
Times that follow from these by a data sheet are modelled, not measured.

In:  networks of ../shared/zoo (names restrict it), --target ARCH (several), --options (of cytoc). NVRTC, as cytoc finds it.
Out: a Markdown table (--append FILE: to a file, too) with a row for each network and architecture:
     launches of a run; those that are only casts; MB that kernels read and write; GFLOP that are useful, and that products
     and convolutions by tiles multiply, empty parts of tiles and taps that hit nothing included; instructions in the machine
     code of all kernels, and how many of these are products; us: the roofline of each kernel, added up, by the data sheet
     (useful), and by what is multiplied (in f16; of an architecture in HALF).
A decoding step is one token behind 128.
"""
import argparse
import importlib.util
import os
import re
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ZOO = os.path.join(os.environ.get('CYTO_SHARED', os.path.join(HERE, '..', '..', '..', 'shared')), 'zoo')
DECODE = ['sequence=1', 'past=128', 'batch=1']
NETWORKS = [('resnet50 b1', 'resnet50', []), ('vit_b_16', 'vit_b_16', []),
            ('bert_base b1', 'bert_base', ['batch=1', 'sequence=128']), ('bert_base b8', 'bert_base', ['batch=8', 'sequence=128']),
            ('unet2d', 'unet2d_labelfree', ['batch=1']), ('unet3d', 'unet3d_monai', []), ('gpt2 decode', 'gpt2_small', DECODE),
            ('llama decode', 'llama_160m_gqa', [*DECODE, 'total=129']), ('whisper encoder', 'whisper_tiny_encoder', []),
            ('whisper decoder', 'whisper_tiny_decoder', ['batch=1', 'sequence=1']), ('ddpm', 'ddpm_unet_cifar', ['batch=1']),
            ('yolov5s', 'yolov5s_like', [])]
PRODUCTS = {0x23c, 0x237, 0x27a, 0x9f0, 0x9f1, 0x223, 0x823, 0xa23}  # HMMA, IMMA, QMMA, HGMMA, IGMMA, FFMA
HALF = {'sm_89': 121e6, 'sm_90a': 989e6}  # MFLOP/s by the data sheets that --explain takes: f16 with sums in f32
ROW = re.compile(r'^(\S+_k\d+_\S+)\s+(\d+)\s+(.*?)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+) (mem|fma)\s+(.*)$')
TOTAL = re.compile(r'^all launches\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)', re.M)


def materialized(name, folder):
    """The network with weights."""
    import onnx
    path = os.path.join(folder, name + '.onnx')
    if not os.path.exists(path):
        spec = importlib.util.spec_from_file_location('materialize', os.path.join(ZOO, 'materialize.py'))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        onnx.save(module.materialize(onnx.load(os.path.join(ZOO, name + '.onnx'))), path)
    return path


def instructions(path):
    """(all, products) of a cubin: an ELF file whose code is in sections called .text.KERNEL, 16 bytes an instruction."""
    with open(path, 'rb') as f:
        data = f.read()
    at, size, count, names = struct.unpack_from('<Q10xHHH', data, 40)
    sections = [struct.unpack_from('<IIQQQQ', data, at + i * size) for i in range(count)]
    total = products = 0
    for name, _, _, _, offset, length in sections:
        begin = sections[names][4] + name
        if data[begin:begin + 6] == b'.text.':
            codes = [struct.unpack_from('<H', data, offset + i)[0] & 0xfff for i in range(0, length, 16)]
            total += len(codes)
            products += sum(code in PRODUCTS for code in codes)
    return total, products


def explained(text, rate):
    """Figures of one --explain, whose rows are of one run of a kernel each. rate: of products, MFLOP/s."""
    out = dict(launches=0, casts=0, multiplied=0.0, model_us=0.0)
    runs = useful = floor = 0.0

    def flush(multiplied):
        """The kernel is complete: its floor, or what it multiplies at the rate, whichever is more."""
        out['multiplied'] += runs * (multiplied or useful)
        out['model_us'] += runs * max(floor, multiplied / rate * 1e6)
    for line in text.splitlines():
        row = ROW.match(line)
        if row:
            runs, useful, floor = int(row[2]), float(row[4]), float(row[6])
            out['launches'] += int(row[2])
            out['casts'] += int(row[2]) * (row[8].split('  ')[0].strip() == 'cast')
        elif line.startswith('  ') and 'registers' in line:
            found = re.search(r'multiplies ([\d.]+) MFLOP', line)
            flush(float(found[1]) if found else 0)
    total = TOTAL.search(text)
    out['useful'], out['mb'], out['floor_us'] = (float(total[i]) for i in (1, 2, 3))
    return out


def measure(args, network, dims, arch, folder):
    path = materialized(network, folder)
    cubin = os.path.join(folder, 'k.cubin')
    command = [args.cytoc, path, '-o', cubin, '--emit=cubin', '--target=' + arch, '--cudnn=off', '--explain', *args.options]
    command += [word for dim in dims for word in ('--dim', dim)]
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if p.returncode:
        return None, p.stderr.strip().splitlines()[-1]
    row = explained(p.stdout, HALF.get(arch, 1e30))
    row['code'], row['products'] = instructions(cubin)
    return row, None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('names', nargs='*', help='regular expressions: networks (default: all)')
    parser.add_argument('--cytoc', default='build/cytoc')
    parser.add_argument('--target', default='sm_89,sm_90a')
    parser.add_argument('--options', default='--fp16', type=str.split)
    parser.add_argument('--append', help='a file that gets the table, too')
    args = parser.parse_args()
    os.environ.setdefault('VIRTUAL_ENV', sys.prefix)
    lines = ['| network | arch | launches | only casts | MB | GFLOP useful | multiplied | instructions | products | us, data sheet | us, multiplied |',
             '|---|---|---|---|---|---|---|---|---|---|---|']
    print('\n'.join(lines), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, network, dims in NETWORKS:
            if args.names and not any(re.fullmatch(n, name) for n in args.names):
                continue
            for arch in args.target.split(','):
                row, why = measure(args, network, dims, arch, folder)
                line = '| %s | %s | ' % (name, arch) + (why if why else '%d | %d | %.1f | %.2f | %.2f | %d | %d | %.1f | %.1f |' % (
                    row['launches'], row['casts'], row['mb'], row['useful'] / 1e3, row['multiplied'] / 1e3, row['code'], row['products'],
                    row['floor_us'], row['model_us']))
                lines.append(line)
                print(line, flush=True)
            os.remove(os.path.join(folder, network + '.onnx'))
    if args.append:
        with open(args.append, 'a', encoding='utf-8') as f:
            f.write('\n'.join(lines) + '\n')


if __name__ == '__main__':
    main()
