# SPDX-License-Identifier: Apache-2.0
"""Measures products with weights in 4 and 8 bits beside f32 weights and beside ONNX Runtime's MatMulNBits, interleaved;
--write: writes tests/bench/results/RESULTS-weights.md.

In:  --build DIR; --rows, --size (of the square matrices), --layers (products behind each other, so that weights come
     from memory as those of a language model do), --threads, --seconds (of a process), --rounds.
Out: a table for 4 and one for 8 bits, a row per number of rows: milliseconds of a product, medians over the rounds of the
     medians of processes, and speed, our f32 weights being 1.

Weights are random, by blocks of 32 with zero points of their own. ONNX Runtime is given MatMulNBits with accuracy_level
0 (f32) and 4 (the rows, too, become 8 bits), and f32 weights; ours take the latter for "rows in 8 bits".
"""
import os
import shutil
import statistics
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import attention
import lib
import results

BLOCK = 32
# What is measured: its name, the model it has, options of cytoc or None for ONNX Runtime.
CONTENDERS = (('f32 weights: ms', 'floats', ()), ('integers: ms', 'level0', ()), ('--bf16: ms', 'level0', ('--bf16',)),
              ('rows in 8 bits: ms', 'level4', ()), ('ONNX Runtime: f32 weights: ms', 'floats', None), ('accuracy_level 0: ms', 'level0', None),
              ('accuracy_level 4: ms', 'level4', None))
HEAD = ['rows', CONTENDERS[0][0]] + [cell for name, _, _ in CONTENDERS[1:] for cell in (name, 'speed')]


def save(path, args, rows, nodes, constants):
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, args.size]) for n in ('x0', 'x%d' % args.layers)]
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, 'weights', ports[:1], ports[1:], tensors)
    opsets = [helper.make_opsetid('', 21), helper.make_opsetid('com.microsoft', 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


def write_models(folder, bits, rows, args):
    """All layers have weights of their own. Returns the paths by name."""
    rng, n, blocks = np.random.default_rng(0), args.size, args.size // BLOCK
    ints, floats, nodes = {}, {}, {'floats': [], 'level0': [], 'level4': []}
    for i in range(args.layers):
        names = ['%s%d' % (kind, i) for kind in 'qsz']
        values = (rng.integers(0, 256, (n, blocks, BLOCK * bits // 8), np.uint8), rng.random((n, blocks), np.float32) / (n << bits),
                  rng.integers(0, 256, (n, blocks * bits // 8), np.uint8))
        ints.update(zip(names, values))
        floats['w%d' % i] = rng.standard_normal((n, n), np.float32) / np.float32(n ** 0.5)
        ends = ['x%d' % i, 'x%d' % (i + 1)]
        nodes['floats'].append(helper.make_node('MatMul', [ends[0], 'w%d' % i], ends[1:]))
        for level in (0, 4):
            nodes['level%d' % level].append(helper.make_node('MatMulNBits', [ends[0], *names], ends[1:], domain='com.microsoft',
                                                             K=n, N=n, bits=bits, block_size=BLOCK, accuracy_level=level))
    paths = {name: os.path.join(folder, name + '.onnx') for name in nodes}
    for name, path in paths.items():
        save(path, args, rows, nodes[name], floats if name == 'floats' else ints)
    return paths


def measure_row(folder, bits, rows, args):
    """Milliseconds of a product, by contender."""
    paths, commands = write_models(folder, bits, rows, args), []
    for i, (_, model, options) in enumerate(CONTENDERS):
        if options is None:
            python = os.path.join(args.build, 'venv', 'bin', 'python')
            commands.append([python, os.path.join(lib.ROOT, 'tools', 'bench_ort.py'), paths[model]])
            continue
        library = os.path.join(folder, '%d.so' % i)
        attention.compile_library(args, paths[model], library, *options)
        commands.append([os.path.join(args.build, 'cyto-bench'), '--child', library])
    times = [[] for _ in commands]
    for _ in range(args.rounds):
        for taken, command in zip(times, commands):
            taken.append(attention.measure(command, args) / args.layers)
    return [statistics.median(t) for t in times]


def table(bits, args):
    folder, lines = os.path.join(args.build, 'bench-weights'), [HEAD]
    for rows in map(int, args.rows.split(',')):
        os.makedirs(folder, exist_ok=True)
        ms = measure_row(folder, bits, rows, args)
        shutil.rmtree(folder)
        cells = [cell for t in ms[1:] for cell in ('%.2f' % t, '%.2f' % (ms[0] / t))]
        lines.append(['%d' % rows, '%.2f' % ms[0], *cells])
        print('%d bits: | %s |' % (bits, ' | '.join(lines[-1])), flush=True)
    return results.markdown(lines)


def main():
    args = lib.arguments(__doc__, rows={'default': '1,4,32,128'}, size={'type': int, 'default': 4096},
                         layers={'type': int, 'default': 4}, threads={'type': int, 'default': 1},
                         seconds={'type': float, 'default': 0.5}, rounds={'type': int, 'default': 5},
                         write={'action': 'store_true'})
    print('| %s |' % ' | '.join(HEAD))
    tables = {bits: table(bits, args) for bits in (4, 8)}
    if not args.write:
        return
    head = ('# Weights in integers\n\n`tests/bench/weights.py --write`, %d thread%s; milliseconds of a product of rows and a %dx%d '
            'matrix,\nthe mean of %d behind each other; medians of %d processes, contenders taking turns; speed: our f32 weights = 1.\n'
            'Weights come by blocks of %d, with zero points; ONNX Runtime computes MatMulNBits with accuracy_level 0 (f32)\n'
            'and 4 (the rows in 8 bits, too), as do ours for "integers" and "rows in 8 bits".\n' %
            (args.threads, 's' * (args.threads != 1), args.size, args.size, args.layers, args.rounds, BLOCK))
    results.put_section('weights', head, os.path.join(args.build, 'cytoc'),
                        '\n\n'.join('### %d bits\n\n%s' % row for row in tables.items()))


if __name__ == '__main__':
    main()
