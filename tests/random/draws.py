# SPDX-License-Identifier: Apache-2.0
"""The operators that draw random numbers, judged by their statistics: ONNX Runtime draws others.

Each of 100,000 numbers; a mean is off by more than 0.02 standard deviations once in ten billion times, and the numbers
are the same at every run in any case.
"""
import os

import numpy as np
from onnx import TensorProto, helper

import graphs
import network

SHAPE = (200, 500)


def make_model(path):
    nodes = [
        helper.make_node('RandomUniform', [], ['uniform'], shape=SHAPE, seed=1.0, low=-1.0, high=3.0),
        helper.make_node('RandomUniformLike', ['x'], ['other']),
        helper.make_node('RandomNormal', [], ['normal'], shape=SHAPE, mean=1.0, scale=2.0),
        helper.make_node('RandomNormalLike', ['x'], ['double'], dtype=TensorProto.DOUBLE),
        helper.make_node('Bernoulli', ['x'], ['bernoulli']),
        helper.make_node('Multinomial', ['logits'], ['multinomial'], sample_size=5000),
        helper.make_node('Dropout', ['x', 'ratio', 'training'], ['dropout', 'mask'], seed=7),
    ]
    inputs = [graphs.port('x', np.float32, ['n', SHAPE[1]]), graphs.port('logits', np.float32, [20, 4]),
              graphs.port('ratio', np.float32, []), graphs.port('training', bool, [])]
    outputs = [graphs.port(name, dtype, shape) for name, dtype, shape in (
        ('uniform', np.float32, SHAPE), ('other', np.float32, ['n', 500]), ('normal', np.float32, SHAPE),
        ('double', np.float64, ['n', 500]), ('bernoulli', np.float32, ['n', 500]), ('multinomial', np.int32, [20, 5000]),
        ('dropout', np.float32, ['n', 500]), ('mask', bool, ['n', 500]))]
    graphs.save_model(path, nodes, inputs, outputs, opset=21)


def wrong_moments(name, got, mean, deviation):
    found = got.astype(np.float64)
    if abs(found.mean() - mean) > 0.02 * deviation or abs(found.std() / deviation - 1) > 0.02:
        return '%s: mean %.4g, deviation %.4g, expected %.4g, %.4g' % (name, found.mean(), found.std(), mean, deviation)
    return None


def judge(got):
    flat = {name: array.ravel() for name, array in got.items()}
    shares = np.bincount(flat['multinomial'], minlength=4) / flat['multinomial'].size
    pairs = [('uniform', 'other'), ('uniform', 'normal'), ('normal', 'double'), ('other', 'bernoulli')]
    related = [p for p in pairs if abs(np.corrcoef(flat[p[0]], flat[p[1]])[0, 1]) > 0.02]
    related += [n for n in ('uniform', 'normal') if abs(np.corrcoef(flat[n][1:], flat[n][:-1])[0, 1]) > 0.02]
    return (wrong_moments('uniform', flat['uniform'], 1, 4 / 12 ** 0.5) or
            wrong_moments('normal', flat['normal'], 1, 2) or wrong_moments('double', flat['double'], 0, 1) or
            wrong_moments('bernoulli', flat['bernoulli'], 0.3, 0.21 ** 0.5) or
            wrong_moments('mask', flat['mask'], 0.75, (0.75 * 0.25) ** 0.5) or
            (None if np.allclose(shares, [0.1, 0.2, 0.3, 0.4], atol=0.01) else 'multinomial: shares %s' % shares) or
            (None if np.allclose(flat['dropout'], np.where(flat['mask'], 0.4, 0)) else 'dropout: not x / 0.75 where kept') or
            ('%s: not independent' % related if related else None) or
            (None if flat['uniform'].min() >= -1 and flat['uniform'].max() < 3 else 'uniform: out of range'))


def test(args):
    work = os.path.join(args.build, 'random', 'draws')
    os.makedirs(work, exist_ok=True)
    model, library = os.path.join(work, 'model.onnx'), os.path.join(work, 'model.so')
    make_model(model)
    probabilities = np.tile(np.array([0.1, 0.2, 0.3, 0.4], np.float32), (20, 1))
    network.save_inputs(work, {'x': np.full(SHAPE, 0.3, np.float32), 'logits': np.log(probabilities), 'ratio': np.float32(0.25),
                               'training': np.bool_(True)})
    first = None
    for level in ('-O0', '-O3'):
        why = network.compile_model(args, model, library, level) or network.execute(args, library, work, work + '/out', 2)
        if why:
            return why
        got = {os.path.basename(path).split('_')[2][:-4]: np.load(path)
               for path in network.by_index(os.path.join(work, 'out')).values()}
        why = judge(got)
        if why:
            return '%s: %s' % (level, why)
        exact = ('bernoulli', 'mask')  # what passes through a logarithm may differ in its last bit
        if first and any(not np.array_equal(first[n], got[n]) for n in exact):
            return 'the levels draw different numbers'
        first = got
    return None
