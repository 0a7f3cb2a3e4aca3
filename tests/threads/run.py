# SPDX-License-Identifier: Apache-2.0
"""Several models in several threads at once, with one pool: run_many.c beside the networks made here; and all of them, and
those whose kernels have the largest frames, in threads with the least stack that cyto.h promises to do with.

Out: the closing line. Under the thread sanitizer (SAN=thread) the program and the runtime in it are watched; generated code
is as it always is, and comes from the release build.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import numpy as np
import onnx
from onnx import helper as h

import graphs
import lib
from graphs import port


def convolutions():
    """A small network of 2-D convolutions with a residual connection."""
    g = graphs.Graph(1)
    weight = lambda *shape: g.const(g.rng.standard_normal(shape) * 0.1, np.float32)
    v = g.op('Relu', g.op('Conv', 'x', weight(16, 3, 3, 3), weight(16), pads=[1, 1, 1, 1]))
    w = g.op('Relu', g.op('Conv', v, weight(16, 16, 3, 3), pads=[1, 1, 1, 1]))
    w = g.op('MaxPool', g.op('Add', v, w), kernel_shape=[2, 2], strides=[2, 2])
    w = g.op('Conv', w, weight(16, 1, 5, 5), pads=[2, 2, 2, 2], group=16)
    g.op('Gemm', g.op('Flatten', g.op('GlobalAveragePool', w)), weight(16, 10), out='y')
    return g.model([port('x', np.float32, [2, 3, 40, 40])], [port('y', np.float32, [2, 10])])


def transformer():
    """Attention of four heads and a layer of products behind it."""
    g = graphs.Graph(2)
    rows, width, heads = 48, 64, 4
    weight = lambda *shape: g.const(g.rng.standard_normal(shape) * 0.1, np.float32)
    split = lambda v: g.op('Transpose', g.op('Reshape', v, g.ints(2, rows, heads, width // heads)), perm=[0, 2, 1, 3])
    q, k, v = (split(g.op('MatMul', 'x', weight(width, width))) for _ in range(3))
    scores = g.op('Mul', g.op('MatMul', q, g.op('Transpose', k, perm=[0, 1, 3, 2])), g.const(0.25, np.float32))
    mixed = g.op('MatMul', g.op('Softmax', scores, axis=-1), v)
    mixed = g.op('Reshape', g.op('Transpose', mixed, perm=[0, 2, 1, 3]), g.ints(2, rows, width))
    mixed = g.op('LayerNormalization', g.op('Add', 'x', mixed), weight(width))
    g.op('MatMul', g.op('Relu', g.op('MatMul', mixed, weight(width, 4 * width))), weight(4 * width, width), out='y')
    return g.model([port('x', np.float32, [2, rows, width])], [port('y', np.float32, [2, rows, width])])


def recurrent():
    """An LSTM, and a Loop that goes on over its last state and collects what it found."""
    g = graphs.Graph(3)
    weight = lambda *shape: g.const(g.rng.standard_normal(shape) * 0.1, np.float32)
    _, state, _ = g.op('LSTM', 'x', weight(1, 128, 24), weight(1, 128, 32), outputs=3, hidden_size=32)
    square = g.const(g.rng.standard_normal((32, 32)) * 0.1, np.float32)
    body = h.make_graph([h.make_node('MatMul', ['s', square], ['m']), h.make_node('Tanh', ['m'], ['t']),
                         h.make_node('Identity', ['c'], ['d']), h.make_node('ReduceSum', ['t'], ['r'], keepdims=0)], 'body',
                        [port('i', np.int64, []), port('c', bool, []), port('s', np.float32, [1, 4, 32])],
                        [port('d', bool, []), port('t', np.float32, [1, 4, 32]), port('r', np.float32, [])])
    g.nodes.append(h.make_node('Loop', [g.const(6, np.int64), '', state], ['y', 'sums'], body=body))
    return g.model([port('x', np.float32, [9, 4, 24])], [port('y', np.float32, [1, 4, 32]), port('sums', np.float32, [6])])


def sequences():
    """Rows that are chosen by the data, as a sequence, and how many were found."""
    nodes = [h.make_node('NonZero', ['flags'], ['where']), h.make_node('Transpose', ['where'], ['at']),
             h.make_node('GatherND', ['x', 'at'], ['rows']), h.make_node('SplitToSequence', ['rows'], ['list'], axis=0, keepdims=0),
             h.make_node('SequenceInsert', ['list', 'first'], ['longer']), h.make_node('SequenceLength', ['longer'], ['n'])]
    return graphs.model_of(nodes, [port('x', np.float32, [30, 20]), port('flags', np.int64, [30]), port('first', np.float32, [20])],
                           [h.make_tensor_sequence_value_info('longer', onnx.TensorProto.FLOAT, None), port('n', np.int64, [])])


def deep():
    """Products of many columns and rows, whose weights kernels widen block by block."""
    g = graphs.Graph(4)
    weight = lambda *shape: g.const(g.rng.standard_normal(shape) * 0.02, np.float32)
    g.op('MatMul', g.op('Relu', g.op('MatMul', 'x', weight(1024, 1536))), weight(1536, 512), out='y')
    return g.model([port('x', np.float32, [80, 1024])], [port('y', np.float32, [80, 512])])


NETWORKS = (convolutions, transformer, recurrent, sequences)
# name, network, options
LARGE_FRAMES = (('convolutions in bytes', convolutions, ['--int8']), ('4-bit weights', deep, ['--weights=int4']),
                ('8-bit weights', deep, ['--weights=int8']), ('bytes', deep, ['--int8']), ('attention in halves', transformer, ['--fp16']))
LEAST_STACK_KB = 64


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    folder = os.path.join(args.build, 'threads')
    os.makedirs(folder, exist_ok=True)
    cytoc = args.cytoc if os.path.exists(args.cytoc) else os.path.join(lib.ROOT, 'build', 'cytoc')
    networks = [(n.__name__, n, []) for n in NETWORKS]
    libraries = []
    for name, network, options in networks + list(LARGE_FRAMES):
        path = os.path.join(folder, name.replace(' ', '_'))
        onnx.save(network(), path + '.onnx')
        code, _, err = lib.run([cytoc, path + '.onnx', '-o', path + '.so', *options])
        if code:
            suite.result(name, lib.reason(err, code))
        libraries.append(path + '.so')
    usual = libraries[:len(networks)]
    rounds = '40' if args.variant == 'release' else '16'
    cases = [('together', rounds, 0, usual)] + [(n, rounds, 0, [l]) for (n, *_), l in zip(networks, usual)]
    if args.variant == 'release':  # sanitizers take more stack
        cases.append(('small stacks', '8', LEAST_STACK_KB, libraries))
    program = os.path.join(args.build, 'tests', 'threads', 'run_many')
    for name, turns, stack, some in cases:
        if args.wanted(name) and all(map(os.path.exists, some)):
            code, _, err = lib.run([program, turns, str(stack), *some])
            suite.result(name, lib.reason(err, code) if code else None)
    suite.done()


if __name__ == '__main__':
    main()
