# SPDX-License-Identifier: Apache-2.0
"""Copies that have a form of their own, at -O0 and -O3 against onnx's reference: transposes, images made channels-last,
shuffled channels, concatenations of narrow parts and of ever more of the same values, padded channels.

Convolutions of each channel with 1 or 2 make values channels-last without rounding them, so all results are exact.
"""
import os

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import graphs
import network

IMAGE, MATRIX = (2, 3, 16, 26), (72, 64)


class Maker(graphs.Graph):
    def scale(self, x, channels, by, out=None):
        return self.op('Conv', x, self.const(np.full((channels, 1, 1, 1), by, np.float32)), group=channels, out=out)


def focus(m):
    parts = [m.op('Slice', 'image', m.const(np.int64([y, x])), m.const(np.int64([99, 99])),
                  m.const(np.int64([2, 3])), m.const(np.int64([2, 2]))) for x in (0, 1) for y in (0, 1)]
    m.scale(m.op('Concat', *parts, axis=1), 12, 2, 'focus')


def dense(m):
    parts = [m.scale('image', 3, 2)]
    for i in range(3):
        whole = m.op('Concat', *parts, axis=1) if i else parts[0]
        parts.append(m.op('Relu', m.scale(whole, 3 << i, 2)))
    m.scale(m.op('Concat', *parts, axis=1), 24, 1, 'dense')


def shuffle(m, name, groups, channels):
    x = m.scale(m.op('Concat', *['image'] * (channels // 3), axis=1), channels, 2)
    shape = [IMAGE[0], groups, channels // groups, *IMAGE[2:]]
    x = m.op('Transpose', m.op('Reshape', x, m.const(np.int64(shape))), perm=[0, 2, 1, 3, 4])
    m.scale(m.op('Reshape', x, m.const(np.int64([IMAGE[0], channels, *IMAGE[2:]]))), channels, 1, name)


def pad(m):
    x = m.op('Pad', m.scale('image', 3, 2), m.const(np.int64([0, 1, 0, 0, 0, 10, 0, 0])), m.const(np.float32(0.5)))
    m.scale(x, 14, 1, 'padded')


def make_model():
    m = Maker(0)
    focus(m)
    dense(m)
    shuffle(m, 'halves', 2, 18)
    shuffle(m, 'thirds', 3, 24)
    pad(m)
    m.op('Transpose', 'matrix', perm=[1, 0], out='across')
    outputs = [graphs.port(name, np.float32, None) for name in ('focus', 'dense', 'halves', 'thirds', 'padded', 'across')]
    inputs = [graphs.port('image', np.float32, IMAGE), graphs.port('matrix', np.float32, MATRIX)]
    return m.model(inputs, outputs, opset=21)


def test(args):
    work = os.path.join(args.build, 'random', 'copies')
    os.makedirs(work, exist_ok=True)
    path, library = os.path.join(work, 'model.onnx'), os.path.join(work, 'model.so')
    model, rng = make_model(), np.random.default_rng(1)
    onnx.save(model, path)
    feeds = {'image': rng.standard_normal(IMAGE).astype(np.float32), 'matrix': rng.random(MATRIX).astype(np.float32)}
    network.save_inputs(work, feeds)
    wanted = ReferenceEvaluator(model).run(None, feeds)
    for level in ('-O0', '-O3'):
        outputs = os.path.join(work, 'out' + level)
        why = network.compile_model(args, path, library, level, ['--verify'])
        why = why or network.execute(args, library, work, outputs, 2)
        got = network.by_index(outputs)
        for k, port in enumerate(model.graph.output):
            if not why and not np.array_equal(np.load(got[k]), wanted[k]):
                why = '%s: %s differs' % (level, port.name)
        if why:
            return why
    return None
