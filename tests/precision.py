"""How many digits are right: models of doubles, at -O0 and -O3.

In:  one model, made here.
Out: the closing line. Doubles are compared with ONNX Runtime, or where it has no kernel for them with the onnx package's
evaluator, within 1e-12.
"""
import os
import shutil

import numpy as np
from onnx.reference import ReferenceEvaluator

import graphs
import lib
import network

LEVELS = ('-O0', '-O3')


def doubles():
    """(Graph, {input: array}): operators that have an index or a grid of coordinates to compute, or constants of their own.
    What follows from floats alone, scales say, are numbers that floats and doubles share."""
    g, rng = graphs.Graph(1), np.random.default_rng(2)
    feeds = {'x': rng.standard_normal((1, 2, 6, 7)), 'grid': rng.uniform(-1.4, 1.4, (1, 5, 4, 2)), 'theta': rng.standard_normal((1, 2, 3)),
             'rois': np.array([[0.3, 0.7, 4.9, 3.1], [1.2, 0.1, 5.7, 5.3]]), 'offset': rng.uniform(-1, 1, (1, 8, 5, 6)),
             'rows': rng.standard_normal((3, 5))}
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


def outputs(args, folder, proto, feeds, level):
    """(why there are none, or None; all outputs)."""
    path, library = os.path.join(folder, 'm.onnx'), os.path.join(folder, 'm.so')
    with open(path, 'wb') as f:
        f.write(proto.SerializeToString())
    why = network.compile_model(args, path, library, level, ['--verify'])
    if why:
        return why, None
    code, err = network.run_feeds(args, folder, library, feeds)
    if code:
        return lib.reason(err, code), None
    return None, [network.output_of(folder, k, output.name) for k, output in enumerate(proto.graph.output)]


def main():
    args = lib.arguments(__doc__)
    suite, folder = lib.Suite(args), os.path.join(args.build, 'precision')
    for name, check in (('doubles', check_doubles),):
        for level in LEVELS:
            if args.wanted('%s %s' % (name, level)):
                os.makedirs(folder, exist_ok=True)
                suite.result('%s %s' % (name, level), check(args, folder, level))
                shutil.rmtree(folder)
    suite.done()


if __name__ == '__main__':
    main()
