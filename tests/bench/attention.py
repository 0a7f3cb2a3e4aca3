# SPDX-License-Identifier: Apache-2.0
"""Measures attention alone: fused, as products and softmax, and ONNX Runtime's, interleaved; memory beside time.

In:  --build DIR; --lengths, --heads, --size, --threads, --seconds (of a process), --rounds; --causal.
Out: a table: milliseconds (medians over the rounds of the medians of processes), ratios, scratch memory in kB; with --write
     this CPU's section of RESULTS-attention.md.

ONNX Runtime is given the Attention operator and the composition of products and softmax; the faster one counts. Inputs
are random and the same for all.
"""
import json
import os
import shutil
import statistics
import subprocess
import sys

import onnx
from onnx import TensorProto, helper

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import lib
import results


def save(path, nodes, length, args, extra=()):
    shape = [1, args.heads, length, args.size]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in 'qkvy']
    graph = helper.make_graph(nodes, 'attention', ports[:3], ports[3:], list(extra))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 23)], ir_version=10), path)


def write_models(folder, length, args):
    whole, spelled = os.path.join(folder, 'whole.onnx'), os.path.join(folder, 'spelled.onnx')
    save(whole, [helper.make_node('Attention', ['q', 'k', 'v'], ['y'], is_causal=int(args.causal))], length, args)
    scale = helper.make_tensor('scale', TensorProto.FLOAT, [], [args.size ** -0.5])
    nodes = [helper.make_node('Transpose', ['k'], ['kt'], perm=[0, 1, 3, 2]), helper.make_node('MatMul', ['q', 'kt'], ['s0']),
             helper.make_node('Mul', ['s0', 'scale'], ['s1'])]
    extra = [scale]
    if args.causal:
        hide = [0.0 if j <= i else -1e30 for i in range(length) for j in range(length)]
        extra.append(helper.make_tensor('hide', TensorProto.FLOAT, [length, length], hide))
        nodes.append(helper.make_node('Add', ['s1', 'hide'], ['s2']))
    nodes += [helper.make_node('Softmax', ['s2' if args.causal else 's1'], ['p'], axis=-1),
              helper.make_node('MatMul', ['p', 'v'], ['y'])]
    save(spelled, nodes, length, args, extra)
    return whole, spelled


def compile_library(args, model, out, *options):
    stats = out + '.json'
    subprocess.run([args.cytoc, model, '-o', out, '--stats=' + stats, *options], check=True)
    with open(stats, encoding='utf-8') as f:
        return json.load(f)


def measure(command, args):
    line = subprocess.run([*command, str(args.threads), str(args.seconds), '1'], check=True, stdout=subprocess.PIPE, text=True)
    return float(line.stdout.split()[2])


HEAD = ['length', 'fused: ms', 'as products: ms', 'speed', 'ONNX Runtime: ms', 'speed', 'scratch: kB', 'as products: kB',
        'ratio']


def measure_length(folder, length, args):
    """A row of the table."""
    child = [os.path.join(args.build, 'cyto-bench'), '--child']
    ort = [os.path.join(args.build, 'venv', 'bin', 'python'), os.path.join(lib.ROOT, 'tools', 'bench_ort.py')]
    whole, spelled = write_models(folder, length, args)
    fused, plain = (os.path.join(folder, n) for n in ('fused.so', 'plain.so'))
    memory = [compile_library(args, whole, fused)['arena_bytes'],
              compile_library(args, whole, plain, '--attention=plain')['arena_bytes']]
    commands = [[*child, fused], [*child, plain], [*ort, whole], [*ort, spelled]]
    times = [[] for _ in commands]
    for _ in range(args.rounds):
        for taken, command in zip(times, commands):
            taken.append(measure(command, args))
    ours, products, *theirs = (statistics.median(t) for t in times)
    return ['%d' % length, '%.3g' % ours, '%.3g' % products, '%.2fx' % (products / ours), '%.3g' % min(theirs),
            '%.2fx' % (min(theirs) / ours), *('%.0f' % (m / 1e3) for m in memory), '1/%.0f' % (memory[1] / memory[0])]


def main():
    args = lib.arguments(__doc__, lengths={'default': '256,512,1024,2048'}, heads={'type': int, 'default': 12},
                         size={'type': int, 'default': 64}, threads={'type': int, 'default': 1},
                         seconds={'type': float, 'default': 0.3}, rounds={'type': int, 'default': 5},
                         causal={'action': 'store_true'}, write={'action': 'store_true'})
    folder = os.path.join(args.build, 'bench-attention')
    rows = [HEAD]
    print('| %s |' % ' | '.join(HEAD))
    for length in map(int, args.lengths.split(',')):
        os.makedirs(folder, exist_ok=True)
        rows.append(measure_length(folder, length, args))
        print('| %s |' % ' | '.join(rows[-1]), flush=True)
        shutil.rmtree(folder)
    if args.write:
        head = ('# Attention\n\n`tests/bench/attention.py --write`, %d heads of %d, f32, %d thread%s; medians of %d processes, contenders '
                'taking turns;\nspeed: time over that of the fused kernel.\n' %
                (args.heads, args.size, args.threads, 's' * (args.threads != 1), args.rounds))
        results.put_section('attention', head, args.cytoc, results.markdown(rows))


if __name__ == '__main__':
    main()
