# SPDX-License-Identifier: Apache-2.0
"""What the tests of quantisation share: a folder to compile and run in, networks with fixed random numbers, how far apart
results are.
"""
import os
import shutil

import numpy as np

import graphs
import lib

DIGITS = os.path.join(lib.ROOT, 'examples', 'digits')
STATIC = ['--int8=static', '--int8-prefer=size']  # the networks here are too small to gain time by integers


def snr(wanted, got):
    """Signal-to-noise ratio in dB."""
    wanted, got = np.float64(wanted), np.float64(got)
    return 10 * np.log10((wanted ** 2).sum() / max(((wanted - got) ** 2).sum(), 1e-30))


class Place:
    """A folder of a test, what is compiled and run in it."""

    def __init__(self, args, name):
        self.args, self.root = args, os.path.join(args.build, 'quantise', name)
        shutil.rmtree(self.root, ignore_errors=True)
        os.makedirs(self.root)

    def path(self, *names):
        os.makedirs(os.path.dirname(os.path.join(self.root, *names)), exist_ok=True)
        return os.path.join(self.root, *names)

    def cytoc(self, *arguments):
        code, out, err = lib.run([self.args.cytoc, *arguments])
        if code:
            raise RuntimeError(lib.reason(err, code))
        return out + err

    def library(self, model, name, *options):
        self.cytoc(model, '-o', self.path(name + '.so'), *options)
        return self.path(name + '.so')

    def run(self, library, *inputs):
        for k, x in enumerate(inputs):
            np.save(self.path('in', 'in_%d_.npy' % k), x)
        shutil.rmtree(self.path('out'), ignore_errors=True)
        code, _, err = lib.run([self.args.cyto_run, library, '--inputs-dir', self.path('in'), '--output-dir', self.path('out')])
        if code:
            raise RuntimeError(lib.reason(err, code))
        return [np.load(self.path('out', f)) for f in sorted(os.listdir(self.path('out')))]

    def remove(self):
        shutil.rmtree(self.root, ignore_errors=True)


# ---- networks ------------------------------------------------------------------------------------------------------

class Network(graphs.Graph):
    """Its weights are random, its inputs and outputs floats."""

    def weight(self, *shape, scale=None):
        return self.constant(self.rng.standard_normal(shape) * (scale or (2 / np.prod(shape[1:])) ** 0.5))

    def constant(self, values):
        return self.const(values, np.float32)

    def conv(self, x, c, o, k=3, **attributes):
        group = attributes.get('group', 1)
        return self.op('Conv', x, self.weight(o, c // group, k, k), self.weight(o, scale=0.1), pads=[k // 2] * 4, **attributes)

    def save(self, path, inputs, outputs, opset=17):
        ports = [[graphs.port(name, np.float32, dims) for name, dims in side] for side in (inputs, outputs)]
        return super().save(path, *ports, opset=opset)


def residual(path, opset=17):
    """Strided convolution, a residual block with a projection, pooling, concatenation, a depthwise layer, a classifier."""
    n = Network(1)
    x = n.op('Relu', n.conv('x', 3, 16, strides=[2, 2]))
    y = n.op('Relu', n.conv(x, 16, 24))
    x = n.op('Relu', n.op('Add', n.conv(y, 24, 24), n.conv(x, 16, 24, k=1)))
    a = n.op('MaxPool', x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
    x = n.op('Concat', a, n.op('Relu', n.conv(x, 24, 8)), axis=1)
    g = n.conv(x, 32, 32, group=32)
    x = n.op('Mul', g, n.op('Sigmoid', g))
    x = n.op('Flatten', n.op('GlobalAveragePool', n.conv(x, 32, 40, k=1)))
    n.op('Gemm', x, n.weight(40, 10), n.weight(10))
    return n.save(path, [('x', ['batch', 3, 32, 32])], [(n.nodes[-1].output[0], ['batch', 10])], opset)


def encoder(path):
    """Two inputs, products of computed values, normalisation, gelu."""
    n = Network(2)
    x = n.op('Add', n.op('MatMul', 'x', n.weight(64, 96)), 'y')
    q, k = n.op('MatMul', x, n.weight(96, 96)), n.op('MatMul', x, n.weight(96, 96))
    s = n.op('Softmax', n.op('MatMul', q, n.op('Transpose', k, perm=[0, 2, 1])), axis=-1)
    x = n.op('Add', x, n.op('MatMul', n.op('MatMul', s, x), n.weight(96, 96)))
    x = n.op('LayerNormalization', x, n.weight(96, scale=1), axis=-1)
    h = n.op('MatMul', x, n.weight(96, 256))
    h = n.op('Mul', h, n.op('Sigmoid', h))
    n.op('MatMul', h, n.weight(256, 32))
    return n.save(path, [('x', ['batch', 'length', 64]), ('y', ['batch', 'length', 96])],
                  [(n.nodes[-1].output[0], ['batch', 'length', 32])])


def samples_of(shape, n, seed=3):
    rng = np.random.default_rng(seed)
    return [np.float32(rng.standard_normal(shape)) for _ in range(n)]


def digits():
    """(images, labels) of the example."""
    data = np.fromfile(os.path.join(DIGITS, 'digits.bin'), np.uint8).reshape(-1, 65)
    return np.float32(data[:, 1:].reshape(-1, 1, 8, 8)) / 16, data[:, 0]
