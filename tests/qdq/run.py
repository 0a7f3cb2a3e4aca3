# SPDX-License-Identifier: Apache-2.0
"""Quantised operators and small quantised networks at -O0 and -O3 against ONNX Runtime.

Operators of com.microsoft have no node tests of the standard; and what pass `quantised` makes of QDQ graphs should be
seen at odd sizes. Integer outputs may be off by one step, on one element in a thousand (`ties` cases: more, their
inputs lie on ties); float ones by a relative RMS error of 1e-4, or by one step of the last quantisation where there is
one. Weights use 7 bits: ONNX Runtime's kernels for CPUs without VNNI saturate with 8.
"""
import os
import shutil
import sys

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import graphs
import lib
import network

CASES = []


class Graph(graphs.Graph):
    """Every input is random."""

    def __init__(self, seed):
        super().__init__(seed)
        self.inputs, self.feeds = [], {}

    def input(self, name, dims, dtype=np.float32, low=0, high=256):
        array = (self.rng.standard_normal(dims) if dtype == np.float32 else self.rng.integers(low, high, dims)).astype(dtype)
        self.inputs.append(graphs.port(name, dtype, list(dims)))
        self.feeds[name] = array
        return name

    def f(self, v):
        return self.const(np.float32(v))

    def u8(self, v):
        return self.const(np.uint8(v))

    def i8(self, v):
        return self.const(np.int8(v))

    def weights(self, dims, low=-64, high=64, dtype=np.int8):
        return self.const(self.rng.integers(low, high, dims).astype(dtype))

    def op(self, kind, inputs, domain='', outputs=1, **attributes):
        return super().op(kind, *inputs, domain=domain, outputs=outputs, **attributes)

    def ms(self, kind, inputs, outputs=1, **attributes):
        return self.op(kind, inputs, 'com.microsoft', outputs, **attributes)

    def dq(self, x, scale, zero=None, **attributes):
        return self.op('DequantizeLinear', [x, scale] + ([zero] if zero else []), **attributes)

    def q(self, x, scale, zero):
        return self.op('QuantizeLinear', [x, scale, zero])

    def save(self, path, outputs, opset=17):
        super().save(path, self.inputs, [graphs.port(o, t, None) for o, t in outputs], opset=opset)


def case(outputs, step=0, opset=17, kernel=None):
    """outputs: the types of what the function returns; kernel: an algorithm that --explain must name."""
    def add(function):
        CASES.append((function.__name__, function, outputs, step, opset, kernel))
        return function
    return add


def binary(g, kind):
    a, b = g.input('a', (2, 3, 17), np.uint8), g.input('b', (3, 1), np.uint8)
    return g.ms(kind, [a, g.f(0.013), g.u8(100), b, g.f(0.021), g.u8(130), g.f(0.05), g.u8(90)])


@case([T.UINT8])
def qlinear_add(g):
    return [binary(g, 'QLinearAdd')]


@case([T.UINT8])
def qlinear_mul(g):
    return [binary(g, 'QLinearMul')]


@case([T.INT8])
def qlinear_add_s8(g):
    a, b = g.input('a', (5, 33), np.int8, -128, 128), g.input('b', (5, 33), np.int8, -128, 128)
    return [g.ms('QLinearAdd', [a, g.f(0.013), g.i8(0), b, g.f(0.021), g.i8(-7), g.f(0.03), g.i8(3)])]


@case([T.UINT8])
def qlinear_sigmoid(g):
    return [g.ms('QLinearSigmoid', [g.input('a', (7, 31), np.uint8), g.f(0.03), g.u8(120), g.f(1 / 256), g.u8(0)])]


@case([T.UINT8])
def qlinear_leaky_relu(g):
    return [g.ms('QLinearLeakyRelu', [g.input('a', (7, 31), np.uint8), g.f(0.031), g.u8(120), g.f(0.023), g.u8(30)], alpha=0.1)]


@case([T.UINT8])
def qlinear_softmax(g):
    return [g.ms('QLinearSoftmax', [g.input('a', (4, 5, 9), np.uint8), g.f(0.031), g.u8(120), g.f(1 / 256), g.u8(0)], axis=-1, opset=13)]


@case([T.UINT8])
def qlinear_average_pool(g):
    return [g.ms('QLinearAveragePool', [g.input('a', (1, 3, 11, 9), np.uint8), g.f(0.031), g.u8(120), g.f(0.023), g.u8(101)],
                 kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])]


@case([T.UINT8])
def qlinear_global_average_pool(g):
    return [g.ms('QLinearGlobalAveragePool', [g.input('a', (2, 7, 9, 5), np.uint8), g.f(0.031), g.u8(120), g.f(0.013), g.u8(101)], channels_last=1)]


@case([T.UINT8])
def qlinear_concat(g):
    a, b = g.input('a', (2, 3, 5), np.uint8), g.input('b', (2, 4, 5), np.uint8)
    return [g.ms('QLinearConcat', [g.f(0.02), g.u8(99), a, g.f(0.013), g.u8(100), b, g.f(0.021), g.u8(130)], axis=1)]


@case([T.UINT8])
def qgemm(g):
    a = g.input('a', (9, 40), np.uint8)
    scale = g.const((0.001 + 0.002 * g.rng.random(13)).astype(np.float32))
    return [g.ms('QGemm', [a, g.f(0.02), g.u8(77), g.weights((13, 40)), scale, g.const(np.zeros(13, np.int8)),
                           g.const(g.rng.integers(-900, 900, 13).astype(np.int32)), g.f(0.07), g.u8(128)], transB=1)]


@case([T.FLOAT])
def qgemm_float(g):
    a = g.input('a', (9, 40), np.uint8)
    return [g.ms('QGemm', [a, g.f(0.02), g.u8(77), g.weights((40, 13)), g.f(0.01), g.i8(0)], alpha=1.0)]


@case([T.FLOAT])
def dynamic_quantize_matmul(g):
    x = g.input('x', (2, 5, 19))
    return [g.ms('DynamicQuantizeMatMul', [x, g.weights((19, 8)), g.const((0.01 + 0.01 * g.rng.random(8)).astype(np.float32)), '',
                                           g.const(g.rng.standard_normal(8).astype(np.float32))])]


@case([T.FLOAT])
def matmul_integer_to_float(g):
    a = g.input('a', (2, 5, 19), np.uint8)
    return [g.ms('MatMulIntegerToFloat', [a, g.weights((19, 8), 64, 192, np.uint8), g.f(0.02), g.const((0.01 + 0.01 * g.rng.random(8)).astype(np.float32)),
                                          g.u8(99), g.u8(128), g.const(g.rng.standard_normal(8).astype(np.float32))])]


@case([T.FLOAT])
def qattention(g):
    x = g.input('x', (2, 6, 32), np.uint8)
    return [g.ms('QAttention', [x, g.weights((32, 96)), g.const(g.rng.standard_normal(96).astype(np.float32)), g.f(0.02), g.f(0.005), '',
                                g.u8(128), g.i8(0)], num_heads=4)]


def lstm(g, directions, scales, **attributes):
    x, hidden, wide = g.input('x', (7, 3, 20)), 12, (directions, 48)
    shape = wide if scales else (directions,)
    w, r = g.weights((directions, 20, 48)), g.weights((directions, hidden, 48))
    zeros = g.const(np.zeros(shape, np.int8))
    ws, rs = (g.const((0.003 + 0.002 * g.rng.random(shape)).astype(np.float32)) for _ in range(2))
    b = g.const((0.1 * g.rng.standard_normal((directions, 96))).astype(np.float32))
    state = [g.const((0.3 * g.rng.standard_normal((directions, 3, hidden))).astype(np.float32)) for _ in range(2)]
    return g.ms('DynamicQuantizeLSTM', [x, w, r, b, '', *state, '', ws, zeros, rs, zeros], 3, hidden_size=hidden, **attributes)


@case([T.FLOAT] * 3, step=0.02)
def dynamic_quantize_lstm(g):
    """ONNX Runtime rounds the state at every step: to 1/256 of its range, which is at most 2."""
    return lstm(g, 1, False)


@case([T.FLOAT] * 3, step=0.02)
def dynamic_quantize_lstm_both_ways(g):
    return lstm(g, 2, True, direction='bidirectional')


@case([T.FLOAT], opset=21)
def gather_block_quantized(g):
    data = g.const(g.rng.integers(0, 256, (40, 64)).astype(np.uint8))
    scales = g.const((0.01 + g.rng.random((40, 4))).astype(np.float32))
    return [g.ms('GatherBlockQuantized', [data, g.input('i', (3, 5), np.int64, 0, 40), scales], gather_axis=0, quantize_axis=1, block_size=16, bits=8)]


@case([T.FLOAT, T.FLOAT], opset=21)
def gather_block_quantized_packed(g):
    """Two elements in a byte, with zero points and without; an odd number of blocks."""
    data, i = g.const(g.rng.integers(0, 256, (40, 40)).astype(np.uint8)), g.input('i', (3, 5), np.int64, 0, 40)
    scales = g.const((0.01 + g.rng.random((40, 5))).astype(np.float32))
    zeros = g.const(g.rng.integers(0, 256, (40, 3)).astype(np.uint8))
    options = {'gather_axis': 0, 'quantize_axis': 1, 'block_size': 16, 'bits': 4}
    return [g.ms('GatherBlockQuantized', [data, i, scales], **options), g.ms('GatherBlockQuantized', [data, i, scales, zeros], **options)]


@case([T.FLOAT, T.FLOAT], opset=21)
def gather_block_quantized_along(g):
    """Gathered along the axis of the blocks, which a single element of the result may have any of."""
    results, i = [], g.input('i', (3, 5), np.int64, -40, 40)
    for axis, dims in ((0, (40, 6)), (1, (2, 40, 3))):
        data = onnx.helper.make_tensor('d%d' % axis, T.INT4, dims, g.rng.integers(-8, 8, dims).ravel().tolist())
        g.constants.append(data)
        blocks = [3 if k == axis else n for k, n in enumerate(dims)]
        scales = g.const((0.01 + g.rng.random(blocks)).astype(np.float32))
        results.append(g.ms('GatherBlockQuantized', [data.name, i, scales], gather_axis=axis, quantize_axis=axis, block_size=16))
    return results


@case([T.UINT8, T.INT8], step=1)
def sigmoid_without_zero_points(g):
    x, y = g.input('x', (3, 17), np.uint8), g.input('y', (3, 17), np.int8, -128, 128)
    return [g.ms('QLinearSigmoid', [x, g.f(0.04), '', g.f(0.0041), '']),
            g.ms('QLinearLeakyRelu', [y, g.f(0.04), '', g.f(0.05), g.i8(7)], alpha=0.2)]


@case([T.FLOAT] * 4)
def matmul_nbits(g):
    """4 and 8 bits, zero points packed, a last block that is not full, a bias."""
    x = g.input('x', (2, 3, 80))
    results = []
    for bits, zeros in ((4, False), (4, True), (8, False), (8, True)):
        b = g.const(g.rng.integers(0, 256, (24, 3, 32 * bits // 8)).astype(np.uint8))
        scales = g.const((0.01 + 0.01 * g.rng.random((24, 3))).astype(np.float32))
        inputs = [x, b, scales] + ([g.const(g.rng.integers(0, 256, (24, (3 * bits + 7) // 8)).astype(np.uint8))] if zeros else [])
        results.append(g.ms('MatMulNBits', inputs, K=80, N=24, bits=bits, block_size=32))
    return results


@case([T.FLOAT] * 5, opset=21, kernel='add_blocks')
def weights_in_integers(g):
    """One row reads the integers themselves: by blocks or channels, as they lie or turned, with and without zero points."""
    k, n, block = 1024, 640, 32
    x = g.input('x', (1, k))
    w, turned = g.weights((k, n), -8, 8), g.weights((n, k), -120, 100)
    scale = lambda *dims: g.const((0.001 + 0.002 * g.rng.random(dims)).astype(np.float32))
    transposed = lambda v: g.op('Transpose', [v], perm=[1, 0])
    return [g.op('MatMul', [x, v]) for v in (
        g.dq(w, scale(k // block, n), g.weights((k // block, n), -8, 8), axis=0, block_size=block),
        transposed(g.dq(turned, scale(n, k // block), axis=1, block_size=block)),
        g.dq(g.weights((k, n), 0, 256, np.uint8), scale(n), g.weights((n,), 0, 256, np.uint8), axis=1),
        transposed(g.dq(turned, scale(n), axis=0)),
        g.dq(g.weights((k, n), 0, 256, np.uint8), g.f(0.002), g.u8(128)))]


def conv(g, x, scale, zero, dims, out, **attributes):
    """A convolution between dequantize and quantize: weights per channel, bias in i32."""
    sw = (0.002 + 0.004 * g.rng.random(dims[0])).astype(np.float32)
    w = g.dq(g.weights(dims), g.const(sw), g.const(np.zeros(dims[0], np.int8)), axis=0)
    b = g.dq(g.const(g.rng.integers(-3000, 3000, dims[0]).astype(np.int32)), g.const((sw * np.float32(scale)).astype(np.float32)),
             g.const(np.zeros(dims[0], np.int32)), axis=0)
    y = g.op('Conv', [g.dq(x, g.f(scale), g.u8(zero)), w, b], **attributes)
    return g.q(g.op('Relu', [y]) if out[1] == 0 else y, g.f(out[0]), g.u8(out[1]))


@case([T.FLOAT], step=0.05, kernel='int8 depthwise')
def qdq_residual_block(g):
    x = g.q(g.input('x', (1, 24, 15, 13)), g.f(0.02), g.u8(128))
    a = conv(g, x, 0.02, 128, (72, 24, 1, 1), (0.03, 0))
    b = conv(g, a, 0.03, 0, (72, 1, 3, 3), (0.04, 0), group=72, pads=[1, 1, 1, 1])
    c = conv(g, b, 0.04, 0, (24, 72, 1, 1), (0.03, 130))
    s = g.op('Add', [g.dq(c, g.f(0.03), g.u8(130)), g.dq(x, g.f(0.02), g.u8(128))])
    return [g.dq(g.q(s, g.f(0.05), g.u8(120)), g.f(0.05), g.u8(120))]


@case([T.UINT8] * 7, kernel='conv int8')
def qdq_windows(g):
    """Few channels and many, whose kernel rows are whole fours of bytes or not; pads on some sides, on all or none; several
    pictures; a row of a picture that is left out between those that are read."""
    found = []
    for dims, weights, attributes in (
            ((2, 3, 31, 30), (32, 3, 7, 7), {'strides': [2, 2], 'pads': [3] * 4}),
            ((1, 3, 32, 32), (16, 3, 6, 6), {'strides': [2, 2], 'pads': [2, 2, 2, 2]}),
            ((3, 64, 7, 9), (40, 64, 3, 3), {'pads': [1] * 4}),
            ((1, 5, 26, 24), (24, 5, 3, 3), {'strides': [2, 1], 'pads': [0, 0, 1, 1]}),
            ((2, 32, 9, 11), (70, 32, 1, 1), {'strides': [2, 2]}),
            ((1, 12, 20, 17), (33, 12, 3, 3), {'pads': [2, 1, 2, 1], 'dilations': [2, 1]}),
            ((2, 16, 10, 12), (64, 16, 3, 3), {})):
        x = g.q(g.input('x%d' % len(found), dims), g.f(0.02), g.u8(128))
        found.append(conv(g, x, 0.02, 128, weights, (0.08, 120), **attributes))
    return found


@case([T.FLOAT, T.FLOAT])
def phases_of_feature_maps(g):
    """Space-to-depth of floats in front of a convolution, in YOLO's order and by thirds."""
    found = []
    for (height, width), parts, weights, attributes in (
            ((2, 2), ((0, 0), (1, 0), (0, 1), (1, 1)), (16, 12, 3, 3), {'pads': [1] * 4}),
            ((1, 3), ((0, 1), (0, 0), (0, 2)), (5, 9, 3, 2), {'pads': [0, 1, 2, 0], 'strides': [1, 2]})):
        x = g.input('x%d' % len(found), (2, 3, 12, 18))
        ends, steps = g.const(np.array([100, 100])), g.const(np.array([height, width]))
        shuffled = [g.op('Slice', [x, g.const(np.array(start)), ends, g.const(np.array([2, 3])), steps]) for start in parts]
        w = g.const(g.rng.standard_normal(weights).astype(np.float32))
        found.append(g.op('Conv', [g.op('Concat', shuffled, axis=1), w], **attributes))
    return found


@case([T.UINT8])
def qdq_pools_and_views(g):
    x = conv(g, g.q(g.input('x', (2, 3, 20, 18)), g.f(0.02), g.u8(128)), 0.02, 128, (19, 3, 5, 3), (0.03, 100), pads=[2, 1, 2, 1], strides=[2, 1])
    p = g.op('MaxPool', [g.dq(x, g.f(0.03), g.u8(100))], kernel_shape=[2, 2], strides=[2, 2])
    r = g.op('Flatten', [g.op('Transpose', [p], perm=[0, 2, 3, 1])])
    return [g.q(r, g.f(0.03), g.u8(100))]


@case([T.UINT8, T.UINT8, T.UINT8])
def qdq_float_kernels(g):
    """Pooling, resizing and softmax read eight bits and write eight bits."""
    x = g.q(g.input('x', (1, 5, 12, 10)), g.f(0.02), g.u8(128))
    d = g.dq(x, g.f(0.02), g.u8(128))
    a = g.op('AveragePool', [d], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    r = g.op('Resize', [d, '', g.const(np.array([1, 1, 2, 2], np.float32))], mode='linear', coordinate_transformation_mode='half_pixel')
    s = g.op('Softmax', [d], axis=1)
    return [g.q(a, g.f(0.013), g.u8(120)), g.q(r, g.f(0.019), g.u8(127)), g.q(s, g.f(1 / 256), g.u8(0))]


@case([T.UINT8, T.UINT8, T.UINT8], kernel='conv int8')
def qdq_transposed_convolutions(g):
    """Weights with a scale per output channel, which is axis 1, or one for all; groups stay in f32 between bytes."""
    x = g.dq(g.q(g.input('x', (2, 6, 7, 5)), g.f(0.02), g.u8(128)), g.f(0.02), g.u8(128))
    sw = (0.002 + 0.004 * g.rng.random(10)).astype(np.float32)
    bias = g.dq(g.const(g.rng.integers(-3000, 3000, 10).astype(np.int32)), g.const((sw * np.float32(0.02)).astype(np.float32)),
                g.const(np.zeros(10, np.int32)), axis=0)
    shuffled = g.dq(g.weights((6, 10, 2, 2)), g.const(sw), g.const(np.zeros(10, np.int8)), axis=1)
    lapped = g.dq(g.weights((6, 10, 4, 3)), g.f(0.003), g.const(np.int8(0)))
    grouped = g.dq(g.weights((6, 4, 3, 3)), g.f(0.004), g.const(np.int8(0)))
    a = g.op('Relu', [g.op('ConvTranspose', [x, shuffled, bias], strides=[2, 2])])
    b = g.op('ConvTranspose', [x, lapped, bias], strides=[2, 1], pads=[1, 1, 1, 1])
    c = g.op('ConvTranspose', [x, grouped], strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1], group=2)
    return [g.q(a, g.f(0.012), g.u8(0)), g.q(b, g.f(0.03), g.u8(128)), g.q(c, g.f(0.02), g.u8(125))]


def transposed(g, x, scale, zero, dims, out, **attributes):
    """A transposed convolution between dequantize and quantize, as conv() above."""
    sw = (0.002 + 0.004 * g.rng.random(dims[1])).astype(np.float32)
    w = g.dq(g.weights(dims), g.const(sw), g.const(np.zeros(dims[1], np.int8)), axis=1)
    b = g.const((20 * scale * g.rng.standard_normal(dims[1])).astype(np.float32))
    y = g.op('ConvTranspose', [g.dq(x, g.f(scale), g.u8(zero)), w, b], **attributes)
    return g.q(g.op('Relu', [y]) if out[1] == 0 else y, g.f(out[0]), g.u8(out[1]))


@case([T.UINT8], kernel='conv int8')
def qdq_decoder(g):
    """As a U-Net has them: a pixel shuffle beside those of the encoder."""
    skip = conv(g, g.q(g.input('skip', (1, 3, 22, 18)), g.f(0.02), g.u8(128)), 0.02, 128, (32, 3, 3, 3), (0.03, 0), pads=[1] * 4)
    x = g.q(g.input('x', (1, 24, 11, 9)), g.f(0.02), g.u8(128))
    up = transposed(g, x, 0.02, 128, (24, 32, 2, 2), (0.03, 0), strides=[2, 2])
    both = g.q(g.op('Concat', [g.dq(up, g.f(0.03), g.u8(0)), g.dq(skip, g.f(0.03), g.u8(0))], axis=1), g.f(0.03), g.u8(0))
    return [conv(g, both, 0.03, 0, (16, 64, 3, 3), (0.2, 120), pads=[1] * 4)]


@case([T.UINT8] * 10, kernel='conv int8')
def qdq_pixel_shuffle(g):
    """Channels that fill vectors, do not, or reach over several; kernels shorter and longer than strides; any number of
    axes; sizes that are no multiple of the stride, and strides that leave most of a kernel empty, stay in f32."""
    found = []
    for dims, size, attributes in (
            ((24, 12, 2, 2), (9, 7), {'strides': [2, 2]}),
            ((16, 40, 2, 2), (5, 33), {'strides': [2, 2]}),
            ((20, 9, 3, 3), (6, 8), {'strides': [2, 2], 'pads': [1] * 4, 'output_padding': [1, 1]}),
            ((12, 16, 4, 4), (6, 8), {'strides': [2, 2], 'pads': [1] * 4}),
            ((12, 10, 1, 3), (6, 8), {'strides': [2, 3], 'output_padding': [1, 0]}),
            ((16, 8, 3, 3, 3), (3, 5, 4), {'strides': [2] * 3, 'pads': [1] * 6, 'output_padding': [1] * 3}),
            ((33, 17, 8), (12,), {'strides': [4], 'pads': [2, 2]}),
            ((12, 24, 5, 5), (6, 8), {'strides': [3, 3], 'pads': [1, 1, 1, 1], 'output_padding': [0, 0]}),
            ((12, 16, 4, 4, 4), (3, 4, 3), {'strides': [2] * 3, 'pads': [1] * 6}),
            ((16, 24, 3, 3), (6, 8), {'strides': [2, 2], 'pads': [1] * 4})):
        x = g.q(g.input('x%d' % len(found), (2, dims[0]) + size), g.f(0.02), g.u8(117))
        found.append(transposed(g, x, 0.02, 117, dims, (0.05, 0 if len(found) % 2 else 100), **attributes))
    return found


@case([T.INT32, T.INT32])
def integer_ops(g):
    """Convolution and product of integers with zero points on both sides, padding standing for the left one."""
    x = g.input('x', (2, 8, 9, 7), np.uint8)
    c = g.op('ConvInteger', [x, g.weights((6, 8, 3, 3), 64, 192, np.uint8), g.u8(131), g.u8(120)], pads=[1, 1, 1, 1], strides=[2, 1])
    a = g.input('a', (3, 11, 30), np.uint8)
    return [c, g.op('MatMulInteger', [a, g.weights((30, 19)), g.u8(7), g.const(g.rng.integers(-9, 9, 19).astype(np.int8))])]


@case([T.UINT8])
def qdq_asymmetric_weights(g):
    x = g.q(g.input('x', (6, 37)), g.f(0.02), g.u8(128))
    w = g.dq(g.weights((37, 21), 20, 148, np.uint8), g.f(0.01), g.u8(90))
    return [g.q(g.op('MatMul', [g.dq(x, g.f(0.02), g.u8(128)), w]), g.f(0.05), g.u8(131))]


@case([T.FLOAT])
def qdq_product_of_activations(g):
    a, b = g.input('a', (2, 3, 9, 20), np.uint8), g.input('b', (2, 3, 20, 11), np.uint8)
    return [g.op('MatMul', [g.dq(a, g.f(0.02), g.u8(128)), g.dq(b, g.f(0.03), g.u8(64))])]


@case([T.FLOAT], opset=21)
def weight_only_blocks(g):
    w = g.dq(g.weights((64, 24), -128, 128), g.const((0.01 + 0.01 * g.rng.random((4, 24))).astype(np.float32)), axis=0, block_size=16)
    return [g.op('MatMul', [g.input('x', (3, 64)), w])]


def typed(g, array, dtype):
    """A constant of a type that numpy lacks, by its values."""
    name = 'c%d' % len(g.constants)
    g.constants.append(h.make_tensor(name, dtype, array.shape, array.ravel().tolist()))
    return name


@case([T.FLOAT] * 4, opset=21)
def weights_of_four_bits(g):
    """By axis with zero points and by blocks, scales of both signs and 0; what is in the product of floats is not
    rounded any more."""
    results, x = [], g.input('x', (3, 64))
    for dtype, low, high in ((T.INT4, -8, 8), (T.UINT4, 0, 16)):
        w = g.rng.integers(low, high, (64, 24))
        for dims, options in (((24,), {'axis': 1}), ((4, 24), {'axis': 0, 'block_size': 16})):
            scale, zero = (0.01 + 0.01 * g.rng.random(dims)) * g.rng.choice([-1, 0, 1], dims, p=[0.45, 0.1, 0.45]), g.rng.integers(low, high, dims)
            results.append(g.op('MatMul', [x, g.op('DequantizeLinear', [typed(g, w, dtype), g.const(scale.astype(np.float32)), typed(g, zero, dtype)], **options)]))
    return results


@case([T.FLOAT, T.UINT8], opset=21, kernel='int8')
def scales_of_both_signs(g):
    """Negative scales of what is dequantised turn the order of its elements round."""
    x = g.input('x', (2, 8, 9, 7), np.uint8)
    scale = g.const((0.01 * g.rng.choice([-1, 1], 12)).astype(np.float32))
    y = g.op('Relu', [g.op('Conv', [g.dq(x, g.f(0.02), g.u8(128)), g.dq(g.weights((12, 8, 3, 3)), scale, axis=0)])])
    least = g.op('MaxPool', [g.dq(x, g.f(-0.02), g.u8(128))], kernel_shape=[3, 3])
    return [least, g.q(y, g.f(0.05), g.u8(3))]


@case([T.FLOAT], opset=21, kernel='int8')
def weights_of_four_bits_from_floats(g):
    """What is quantised in the graph is a constant all the same."""
    scale, zero = g.const((0.1 + 0.1 * g.rng.random(24)).astype(np.float32)), typed(g, np.zeros(24, int), T.INT4)
    w = g.const(g.rng.standard_normal((24, 16, 3, 3)).astype(np.float32))
    w = g.dq(g.op('QuantizeLinear', [w, scale, zero], axis=0), scale, zero, axis=0)
    return [g.op('Conv', [g.dq(g.input('x', (1, 16, 9, 9), np.uint8), g.f(0.02), g.u8(128)), w])]


def half(v):
    return np.asarray(v, np.float16)


@case([T.UINT8], step=1, opset=21, kernel='int8')
def half_precision_scales(g):
    """As engines for GPUs want models of halves: ONNX Runtime rounds what is quantised to half, which we do not."""
    scale = g.const(half(0.01 + 0.01 * g.rng.random(24)))
    w = g.const(half(g.rng.standard_normal((24, 16, 3, 3))))
    w = g.dq(g.op('QuantizeLinear', [w, scale, g.const(np.zeros(24, np.int8))], axis=0), scale, g.const(np.zeros(24, np.int8)), axis=0)
    x = g.dq(g.input('x', (1, 16, 9, 9), np.uint8), g.const(half(0.02)), g.u8(128))
    return [g.q(g.op('Relu', [g.op('Conv', [x, w])]), g.const(half(0.25)), g.u8(0))]


@case([T.UINT8], step=1, opset=21, kernel='int8')
def half_precision_casts(g):
    """As converters to half precision write it that leave quantisation in f32."""
    def halved(x):
        return g.op('Cast', [x], to=T.FLOAT16)
    x = halved(g.dq(g.input('x', (9, 64), np.uint8), g.f(0.02), g.u8(128)))
    w = g.op('Transpose', [halved(g.dq(g.weights((24, 64)), g.const((0.01 + 0.01 * g.rng.random(24)).astype(np.float32)), axis=0))], perm=[1, 0])
    return [g.q(g.op('Cast', [g.op('MatMul', [x, w])], to=T.FLOAT), g.f(0.25), g.u8(128))]


@case([T.UINT8], kernel='int8 depthwise')
def weights_transposed(g):
    """Channels last, as TensorFlow has weights; scales stay with their channels."""
    scale = g.const((0.01 + 0.01 * g.rng.random(24)).astype(np.float32))
    w = g.op('Transpose', [g.dq(g.weights((3, 3, 24, 1)), scale, axis=2)], perm=[2, 3, 0, 1])
    return [g.q(g.op('Conv', [g.dq(g.input('x', (1, 24, 9, 9), np.uint8), g.f(0.02), g.u8(128)), w], group=24), g.f(0.05), g.u8(100))]


@case([T.UINT8] * 3)
def resized(g):
    """To the nearest element, by whole factors and others, bytes are moved; linearly, and cropped, they are not."""
    x, results = g.dq(g.input('x', (1, 5, 7, 9), np.uint8), g.f(0.02), g.u8(128)), []
    for scale, options in ((2, {'mode': 'nearest', 'coordinate_transformation_mode': 'asymmetric', 'nearest_mode': 'floor'}), (1.7, {'mode': 'nearest'}),
                           (2, {'mode': 'linear'})):
        y = g.op('Resize', [x, '', g.const(np.array([1, 1, scale, scale], np.float32))], **options)
        results.append(g.q(y, g.f(0.02), g.u8(128)))
    return results


@case([T.UINT8] * 2)
def joined(g):
    """Scales differ among what is joined: one is that of the result, one is not; the last is quantised to another type."""
    x, y = (g.input(name, (2, n, 7, 5), np.uint8) for name, n in (('x', 5), ('y', 8)))
    both = [g.dq(x, g.f(0.02), g.u8(128)), g.dq(y, g.f(0.031), g.u8(100))]
    z = g.op('Relu', [g.dq(g.input('z', (2, 4, 7, 5), np.int8, -128, 128), g.f(0.02), g.i8(5))])
    z = g.dq(g.q(z, g.f(0.011), g.i8(-120)), g.f(0.011), g.i8(-120))
    return [g.q(g.op('Concat', both, axis=1), g.f(0.031), g.u8(100)), g.q(g.op('Concat', [*both, z], axis=1), g.f(0.04), g.u8(90))]


@case([T.FLOAT] * 2, opset=21)
def sixteen_bits(g):
    """u16 activations and s16 weights, as they are exported where eight bits lose too much; a convolution and a product."""
    results = []
    for kind, dims, wide, options in (('Conv', (2, 5, 9, 7), (6, 5, 3, 3), {'pads': [1, 1, 1, 1]}), ('MatMul', (3, 40), (40, 21), {})):
        x = g.input(kind, dims)
        x = g.dq(g.q(x, g.f(1e-4), g.const(np.uint16(32768))), g.f(1e-4), g.const(np.uint16(32768)))
        w = g.dq(g.weights(wide, -30000, 30000, np.int16), g.f(1e-5), g.const(np.int16(0)))
        y = g.op(kind, [x, w], **options)
        results.append(g.dq(g.q(y, g.f(2e-4), g.const(np.int16(-7))), g.f(2e-4), g.const(np.int16(-7))))
    return results


@case([T.FLOAT] * 2, opset=19)
def weights_of_float8(g):
    results, x = [], g.input('x', (5, 32))
    for dtype in (T.FLOAT8E4M3FN, T.FLOAT8E5M2):
        w = typed(g, g.rng.standard_normal((32, 12)).astype(np.float32), dtype)
        results.append(g.op('MatMul', [x, g.op('DequantizeLinear', [w, g.f(0.25)])]))
    return results


@case([T.FLOAT], opset=17)
def microsoft_rescaling(g):
    """QuantizeLinear and DequantizeLinear of com.microsoft, which ONNX Runtime writes for 16 bits."""
    def back(x, s, z):
        return g.ms('DequantizeLinear', [x, s, z])
    x = g.ms('QuantizeLinear', [g.input('x', (4, 40)), g.f(1e-4), g.const(np.uint16(30000))])
    y = g.op('MatMul', [back(x, g.f(1e-4), g.const(np.uint16(30000))), back(g.weights((40, 12)), g.f(0.01), g.i8(0))])
    return [back(g.ms('QuantizeLinear', [y, g.f(3e-4), g.const(np.uint16(30000))]), g.f(3e-4), g.const(np.uint16(30000)))]


@case([T.UINT8], kernel='gemm int8')
def scales_behind_identity_and_cast(g):
    """Exporters leave such chains around scales and zero points; the product is one of integers all the same."""
    def scale(v):
        return g.op('Identity', [g.op('Cast', [g.op('Identity', [g.const(np.float64(v))])], to=T.FLOAT)])

    def zero(v):
        return g.op('Identity', [g.op('Cast', [g.const(np.int32(v))], to=T.UINT8)])
    x = g.dq(g.q(g.input('x', (6, 40)), scale(0.02), zero(128)), scale(0.02), zero(128))
    w = g.dq(g.weights((40, 24)), scale(0.01), g.i8(0))
    return [g.q(g.op('MatMul', [x, w]), scale(0.05), zero(131))]


@case([T.FLOAT, T.UINT8], step=0.05)
def qdq_few_channels(g):
    """Pixels of 16 and 32 channels go through an epilogue several at a time; some have parts of a concatenation for theirs."""
    x = g.q(g.input('x', (2, 12, 11, 9)), g.f(0.02), g.u8(128))
    a = conv(g, x, 0.02, 128, (16, 12, 3, 3), (0.03, 0), pads=[1, 1, 1, 1])
    b = conv(g, a, 0.03, 0, (32, 16, 1, 1), (0.04, 0))
    c = conv(g, b, 0.04, 0, (32, 1, 3, 3), (0.03, 7), group=32, pads=[1, 1, 1, 1])
    d = conv(g, c, 0.03, 7, (16, 32, 1, 1), (0.03, 130))
    s = g.op('Add', [g.dq(d, g.f(0.03), g.u8(130)), g.dq(a, g.f(0.03), g.u8(0))])
    both = g.op('Concat', [g.dq(conv(g, c, 0.03, 7, (16, 32, 1, 1), (0.05, 120)), g.f(0.05), g.u8(120)),
                           g.dq(conv(g, b, 0.04, 0, (32, 32, 3, 3), (0.05, 120), pads=[1, 1, 1, 1]), g.f(0.05), g.u8(120))], axis=1)
    return [g.dq(g.q(s, g.f(0.05), g.u8(120)), g.f(0.05), g.u8(120)), g.q(both, g.f(0.05), g.u8(120))]


@case([T.FLOAT] * 3, opset=21)
def float8_weights(g):
    """Weights in floats of 8 bits under activations in integers: codes of floats are no integers."""
    def w(dims, dtype):
        return g.const(g.rng.standard_normal(dims).astype(dtype))
    x, y = g.dq(g.input('x', (5, 40), np.uint8), g.f(0.02), g.u8(120)), g.dq(g.input('y', (5, 40), np.int8, -128, 128), g.f(0.02))
    i = g.dq(g.input('i', (1, 8, 9, 7), np.uint8), g.f(0.02), g.u8(120))
    scales = g.const((0.01 + 0.01 * g.rng.random(24)).astype(np.float32))
    return [g.op('MatMul', [x, g.dq(w((40, 24), ml_dtypes.float8_e4m3fn), scales, axis=1)]),
            g.op('MatMul', [y, g.dq(w((40, 24), ml_dtypes.float8_e5m2), g.f(0.03))]),
            g.op('Conv', [i, g.dq(w((24, 8, 3, 3), ml_dtypes.float8_e4m3fn), scales, axis=0)])]


def differs(got, want, step):
    if got.shape != want.shape or got.dtype != want.dtype:
        return '%s%s, not %s%s' % (got.dtype, list(got.shape), want.dtype, list(want.shape))
    if want.dtype.kind in 'iu' or step:
        off = np.abs(got.astype(np.float64) - want.astype(np.float64)) / (step or 1)
        bad = float(np.mean(off > 1.01))
        return None if bad <= 1e-3 else '%.2f %% of the elements are off by more than a step, the worst by %g' % (100 * bad, off.max())
    return lib.difference('output', got, want, 1e-4)


def test(args, name, function, outputs, step, opset, kernel, seed):
    work = os.path.join(args.build, 'quant', name)
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    model, g = os.path.join(work, 'model.onnx'), Graph(seed)
    values = function(g)
    g.save(model, list(zip(values, outputs)), opset)
    network.save_inputs(os.path.join(work, 'in'), g.feeds)
    try:
        want = network.ort_session(model, optimised=False).run(None, g.feeds)
    except Exception as problem:
        return 'ONNX Runtime: ' + str(problem).splitlines()[0]
    for level in ('-O0', '-O3'):
        library, out = os.path.join(work, 'model.so'), os.path.join(work, 'out')
        why = network.compile_model(args, model, library, level, ['-j', '1']) or network.execute(args, library, os.path.join(work, 'in'), out, 2)
        found = {} if why else network.by_index(out)
        for k, value in enumerate(want if not why else []):
            why = why or differs(np.load(found[k]), value, step)
        if why:
            return '%s: %s' % (level, why)
    if kernel and kernel not in lib.run([args.cytoc, model, '-o', library, '--explain'])[1]:
        return 'no kernel %s' % kernel
    shutil.rmtree(work, ignore_errors=True)
    return None


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    for k, (name, *rest) in enumerate(CASES):
        if args.wanted(name):
            suite.result(name, test(args, name, *rest, seed=k))
    suite.done()


if __name__ == '__main__':
    main()
