# SPDX-License-Identifier: Apache-2.0
"""How many digits are right: models of doubles, functions of floats where their results are small, and statistics of long
rows, at -O0 and -O3.

In:  one model of each kind, made here; doubles.
Out: the closing line. Doubles are compared with ONNX Runtime, or where it has no kernel for them with the onnx package's
evaluator, within 1e-12;
functions of floats with NumPy in doubles, element by element, within a number of units in the last place; long rows of
floats, normalised, with NumPy in doubles.
"""
import math
import os
import shutil
import sys

import numpy as np
from onnx import helper as h
from onnx import numpy_helper as nh
from onnx.reference import ReferenceEvaluator

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, TESTS)
import graphs
import lib
import network

LEVELS = ('-O0', '-O3')
ROWS_OFF = 5e-6 # of numbers whose variance is 1


def doubles():
    """(Graph, {input: array}): operators that have an index or a grid of coordinates to compute, or constants of their own.
    What follows from floats alone, scales say, are numbers that floats and doubles share."""
    g, rng = graphs.Graph(1), np.random.default_rng(2)
    feeds = {'x': rng.standard_normal((1, 2, 6, 7)), 'grid': rng.uniform(-1.4, 1.4, (1, 5, 4, 2)),
             'theta': rng.standard_normal((1, 2, 3)), 'rois': np.array([[0.3, 0.7, 4.9, 3.1], [1.2, 0.1, 5.7, 5.3]]),
             'offset': rng.uniform(-1, 1, (1, 8, 5, 6)), 'rows': rng.standard_normal((3, 5))}
    none = g.const([], np.float32)
    for mode in ('linear', 'cubic'):
        g.op('Resize', 'x', '', g.const([1, 1, 2, 0.5], np.float32), mode=mode)
        g.op('Resize', 'x', '', '', g.ints(1, 2, 3, 4), mode='linear', antialias=1)
        g.op('GridSample', 'x', 'grid', mode=mode, padding_mode='reflection')
    g.op('Resize', 'x', none, '', g.ints(1, 2, 9, 5), mode='linear')
    g.op('GridSample', 'x', 'grid', mode='linear', padding_mode='border', align_corners=1)
    g.op('AffineGrid', 'theta', g.ints(1, 1, 5, 6))
    g.op('RoiAlign', 'x', 'rois', g.ints(0, 0), output_height=3, output_width=2, sampling_ratio=2)
    g.op('DeformConv', 'x', g.const(rng.standard_normal((3, 2, 2, 2))), 'offset')
    g.op('Dropout', 'x', g.const(0.0), g.const(True))
    for kind in ('LeakyRelu', 'HardSigmoid', 'Selu'):  # by their defaults, which are floats
        g.op(kind, 'x')
    g.op('BatchNormalization', 'x', *(g.const(rng.uniform(1, 2, 2)) for _ in range(4)))
    g.op('CumSum', 'rows', g.const(1))
    g.op('LogSoftmax', 'rows')
    g.op('ReduceLogSumExp', 'rows')
    return g, feeds


def model_of(g, nodes, feeds):
    ports = [graphs.port(n, v.dtype, v.shape) for n, v in feeds.items()]
    return graphs.model_of(nodes, ports, [graphs.port(n.output[0], np.float64, None) for n in nodes], g.constants, opset=20)


def expected(g, node, feeds):
    proto = model_of(g, [node], {n: v for n, v in feeds.items() if n in node.input})
    try:
        evaluator = network.ort_session(proto.SerializeToString())
    except Exception as problem:
        if 'NOT_IMPLEMENTED' not in str(problem):
            raise
        evaluator = ReferenceEvaluator(proto)
    return np.asarray(evaluator.run(None, {n: feeds[n] for n in node.input if n in feeds})[0])


def check_doubles(args, folder, level):
    g, feeds = doubles()
    why, got = outputs(args, folder, model_of(g, g.nodes, feeds), feeds, level)
    for k, node in enumerate(g.nodes):
        why = why or lib.difference(node.name, got[k], expected(g, node, feeds), 1e-12)
    return why


def outputs(args, folder, proto, feeds, level, *options):
    """(why there are none, or None; all outputs)."""
    path, library = os.path.join(folder, 'm.onnx'), os.path.join(folder, 'm.so')
    with open(path, 'wb') as f:
        f.write(proto.SerializeToString())
    why = network.compile_model(args, path, library, level, ['--verify', *options])
    if why:
        return why, None
    code, err = network.run_feeds(args, folder, library, feeds)
    if code:
        return lib.reason(err, code), None
    return None, [network.output_of(folder, k, output.name) for k, output in enumerate(proto.graph.output)]


def spread(low, high):
    """Numbers of both signs whose magnitudes are spread evenly over the powers of 2 between."""
    x = np.exp(np.linspace(np.log(low), np.log(high), 997)).astype(np.float32)
    return np.concatenate([x, -x])


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def mish(x):
    return x * np.tanh(softplus(x))


ERFC = np.vectorize(math.erfc)
# operator, magnitudes of x, the same in NumPy, most units in the last place
FUNCTIONS = [
    ('Exp', (1e-8, 87), np.exp, 2), ('Tanh', (1e-8, 20), np.tanh, 5), ('Softplus', (1e-8, 85), softplus, 5),
    ('Sigmoid', (1e-8, 85), lambda x: 1 / (1 + np.exp(-x)), 5), ('Mish', (1e-8, 80), mish, 10),
    ('Sinh', (1e-8, 80), np.sinh, 6), ('Asinh', (1e-8, 1e30), np.arcsinh, 6),
    ('Atan', (1e-8, 1e30), np.arctan, 4), ('Sin', (1e-8, 3e38), np.sin, 4), ('Cos', (1e-8, 3e38), np.cos, 4),
    ('Tan', (1e-8, 3e38), np.tan, 5),
    ('Erfc', (1e-8, 9), ERFC, 5)]


def check_functions(args, folder, level):
    nodes = [h.make_node(op, ['x%d' % k], ['y%d' % k]) for k, (op, *_) in enumerate(FUNCTIONS)]
    feeds = {'x%d' % k: spread(*span) for k, (_, span, *_) in enumerate(FUNCTIONS)}
    proto = graphs.model_of(nodes, [graphs.port(n, v.dtype, v.shape) for n, v in feeds.items()],
                            [graphs.port(n.output[0], np.float32, None) for n in nodes], opset=18)
    why, got = outputs(args, folder, proto, feeds, level)
    for k, (op, _, of, most) in enumerate([] if why else FUNCTIONS):
        x = feeds['x%d' % k]
        want = of(x.astype(np.float64))
        off = np.abs(got[k] - want) / np.spacing(np.abs(want).astype(np.float32))
        if not off.max() <= most:
            return '%s: %.3g units in the last place at %r, limit %d' % (op, off.max(), x[off.argmax()], most)
    return why


def check_gelu(args, folder, level):
    """GELU far below 0, where 1 + erf(x) has no digits left: spelled out, and as one operator, with --fast-algorithms=off.
    Rounding the argument of erfc shifts its exponent."""
    nodes = [h.make_node('Div', ['x', 'root'], ['d']), h.make_node('Erf', ['d'], ['e']),
             h.make_node('Add', ['one', 'e'], ['a']),
             h.make_node('Mul', ['x', 'a'], ['m']), h.make_node('Mul', ['m', 'half'], ['spelled']),
             h.make_node('Gelu', ['x'], ['gelu'])]
    constants = [nh.from_array(np.float32(v), n) for n, v in (('root', 2 ** 0.5), ('one', 1), ('half', 0.5))]
    x = spread(1e-8, 12)
    proto = graphs.model_of(nodes, [graphs.port('x', x.dtype, x.shape)],
                            [graphs.port(n, np.float32, None) for n in ('spelled', 'gelu')], constants, opset=20)
    why, got = outputs(args, folder, proto, {'x': x}, level, '--fast-algorithms=off')
    wide = x.astype(np.float64)
    want = wide / 2 * ERFC(-wide / 2 ** 0.5)
    for name, y in zip(('spelled', 'gelu'), [] if why else got):
        off = np.abs(y - want) / np.spacing(np.abs(want).astype(np.float32)) / (6 + np.where(x < 0, wide * wide, 0))
        if not off.max() <= 1:
            return '%s: %r at %r is not %r' % (name, y[off.argmax()], x[off.argmax()], want[off.argmax()])
    return why


def check_rows(args, folder, level):
    """Normalised rows of many floats, where the channels lie together: the sums of a row have no long chain of roundings.
    Sizes that are known have a prime number of columns."""
    rng, w = np.random.default_rng(3), np.eye(16, dtype=np.float32)[..., None]
    nodes = [h.make_node('Conv', ['x', 'w'], ['c']), h.make_node('InstanceNormalization', ['c', 's', 'b'], ['n']),
             h.make_node('Conv', ['n', 'w'], ['y'])]
    each = nh.from_array(np.ones(16, np.float32), 's'), nh.from_array(np.zeros(16, np.float32), 'b')
    constants = [nh.from_array(w, 'w'), *each]
    for size, dim in ((200000, 'n'), (104729, 104729)):
        x = (1 + rng.standard_normal((1, 16, size)) / 10).astype(np.float32)
        ports = [graphs.port('x', np.float32, (1, 16, dim))], [graphs.port('y', np.float32, None)]
        proto = graphs.model_of(nodes, *ports, constants, opset=18)
        why, got = outputs(args, folder, proto, {'x': x}, level)
        if why:
            return why
        d = x.astype(np.float64)
        d -= d.mean(2, keepdims=True)
        off = np.sqrt(np.mean((got[0] - d / np.sqrt((d * d).mean(2, keepdims=True) + 1e-5)) ** 2))
        if not off <= ROWS_OFF:
            return 'rows of %d: off by %.2g, limit %g' % (size, off, ROWS_OFF)
    return None


def main():
    args = lib.arguments(__doc__)
    suite, folder = lib.Suite(args), os.path.join(args.build, 'precision')
    for name, check in (('doubles', check_doubles), ('functions', check_functions), ('gelu', check_gelu),
                        ('rows', check_rows)):
        for level in LEVELS[1:] if check is check_gelu else LEVELS:  # at -O0 nothing is rewritten
            if args.wanted('%s %s' % (name, level)):
                os.makedirs(folder, exist_ok=True)
                suite.result('%s %s' % (name, level), check(args, folder, level))
                shutil.rmtree(folder)
    suite.done()


if __name__ == '__main__':
    main()
