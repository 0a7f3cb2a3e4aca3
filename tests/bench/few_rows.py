# SPDX-License-Identifier: Apache-2.0
"""Measures one to four rows times weights in 4 bits, for several instruction sets, beside ggml's Q4_0 (llama.cpp).

In:  --build DIR; --ggml DIR: the source of ggml, or llama.cpp's folder of that name; without it, ours alone. --shapes KxN,..,
     --rows, --threads, --rounds, --seconds (of a process), --isas: instruction sets that this CPU has.
Out: a line for each shape, number of rows and threads, and instruction set: milliseconds of a product, medians of processes
     that took turns; with --write this CPU's section of RESULTS-few-rows.md.

ggml is built once for each instruction set in the folder bench-few-rows of --build. Its rows become 8 bits by blocks of 32, as
ours do for "rows in 8 bits"; "exact" rows stay f32. Products come behind each other, each with weights of its own, 100 MB in
all: they come from memory, as those of a language model do.
"""
import os
import shutil
import statistics
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import attention
import lib
import results

BLOCK, BYTES, MOST = 32, 100e6, 12
AVX2 = ['SSE42', 'AVX', 'AVX2', 'BMI2', 'FMA', 'F16C']
# What it is called: our target, ggml's options.
ISAS = {'AVX2': ('x86-64-v3', AVX2), 'AVX-512': ('x86-64-v4', [*AVX2, 'AVX512']),
        'VNNI': ('native', [*AVX2, 'AVX512', 'AVX512_VBMI', 'AVX512_VNNI'])}
HEAD = ['weights', 'rows', 'threads', 'instructions', 'exact: ms', 'rows in 8 bits: ms', 'ggml: ms', 'its time: exact', '8 bits']


def build_ggml(args, isa):
    """The program that measures ggml."""
    folder = os.path.join(args.build, 'bench-few-rows', 'ggml-' + isa)
    program = os.path.join(folder, 'few_rows')
    if os.path.exists(program):
        return program
    options = ['-DGGML_%s=ON' % name for name in ISAS[isa][1]] + ['-DGGML_NATIVE=OFF', '-DBUILD_SHARED_LIBS=OFF', '-DCMAKE_BUILD_TYPE=Release']
    options += ['-DGGML_BUILD_TESTS=OFF', '-DGGML_BUILD_EXAMPLES=OFF']
    quiet = {'check': True, 'stdout': subprocess.DEVNULL}
    subprocess.run(['cmake', '-S', args.ggml, '-B', folder, *options], **quiet)
    subprocess.run(['cmake', '--build', folder, '-j2', '--target', 'ggml', 'ggml-cpu'], **quiet)
    archives = [os.path.join(folder, 'src', 'lib%s.a' % name) for name in ('ggml', 'ggml-cpu', 'ggml-base')]
    subprocess.run(['c++', '-O2', '-std=c++17', '-I', os.path.join(args.ggml, 'include'), os.path.join(HERE, 'few_rows.cpp'), *archives,
                    '-fopenmp', '-lpthread', '-ldl', '-o', program], check=True)
    return program


def write_model(path, k, n, rows, products, level):
    rng, nodes, tensors = np.random.default_rng(0), [], []
    for i in range(products):
        names = ['q%d' % i, 's%d' % i]
        values = (rng.integers(0, 256, (n, k // BLOCK, BLOCK // 2), np.uint8), rng.random((n, k // BLOCK), np.float32) / (n << 4))
        tensors += [numpy_helper.from_array(value, name) for value, name in zip(values, names)]
        nodes.append(helper.make_node('MatMulNBits', ['x', *names], ['y%d' % i], domain='com.microsoft', K=k, N=n, bits=4,
                                      block_size=BLOCK, accuracy_level=level))
    port = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, 'few_rows', [port('x', TensorProto.FLOAT, [rows, k])],
                              [port('y%d' % i, TensorProto.FLOAT, [rows, n]) for i in range(products)], tensors)
    opsets = [helper.make_opsetid('', 21), helper.make_opsetid('com.microsoft', 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


def measure(args, k, n, rows):
    """Rows of the table."""
    folder = os.path.join(args.build, 'bench-few-rows', 'models')
    products = min(MOST, max(2, int(BYTES // (k * n / 2))))
    os.makedirs(folder, exist_ok=True)
    for level in (0, 4):
        write_model(os.path.join(folder, '%d.onnx' % level), k, n, rows, products, level)
    for isa in args.isas.split(','):
        commands = []
        for level in (0, 4):
            library = os.path.join(folder, '%s-%d.so' % (isa, level))
            attention.compile_library(args, os.path.join(folder, '%d.onnx' % level), library, '--target=' + ISAS[isa][0])
            commands.append([os.path.join(args.build, 'cyto-bench'), '--child', library])
        for threads in args.threads.split(','):
            runs = [[*c, threads, str(args.seconds), '1'] for c in commands]
            if args.ggml:
                runs.append([build_ggml(args, isa), *map(str, (k, n, rows, products)), threads, str(args.seconds)])
            times = [[] for _ in runs]
            for _ in range(args.rounds):
                for taken, run in zip(times, runs):
                    words = subprocess.run(run, check=True, capture_output=True, text=True).stdout.split()
                    taken.append(float(words[2]) / products if run[1] == '--child' else float(words[0]))
            ms = [statistics.median(t) for t in times]
            beside = [['%.3f' % ms[2], '%.2fx' % (ms[2] / ms[0]), '%.2fx' % (ms[2] / ms[1])] if args.ggml else 3 * ['-']]
            yield ['%dx%d' % (k, n), str(rows), threads, isa, *('%.3f' % t for t in ms[:2]), *beside[0]]
    shutil.rmtree(folder)


def main():
    args = lib.arguments(__doc__, ggml={'default': None}, shapes={'default': '4096x4096,4096x11008,2048x5632'}, rows={'default': '1'},
                         threads={'default': '1,2'}, isas={'default': ','.join(ISAS)}, rounds={'type': int, 'default': 5},
                         seconds={'type': float, 'default': 0.2}, write={'action': 'store_true'})
    rows = [HEAD]
    print('| %s |' % ' | '.join(HEAD))
    for shape in args.shapes.split(','):
        for count in map(int, args.rows.split(',')):
            for row in measure(args, *map(int, shape.split('x')), count):
                rows.append(row)
                print('| %s |' % ' | '.join(row), flush=True)
    if args.write:
        head = ('# Few rows times weights in 4 bits\n\n`tests/bench/few_rows.py --ggml DIR --write`: milliseconds of a product, weights by '
                'blocks of %d, the mean of some behind each\nother whose weights come from memory; medians of %d processes that took turns. '
                'Exact: as in f32; rows in 8 bits: with `--int8`,\nor `accuracy_level` 4. ggml is the library of llama.cpp: Q4_0, repacked, rows '
                'in 8 bits; its time: over ours.\n' % (BLOCK, args.rounds))
        results.put_section('few-rows', head, args.cytoc, results.markdown(rows))


if __name__ == '__main__':
    main()
