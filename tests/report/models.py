# SPDX-License-Identifier: Apache-2.0
"""Models for reports: those that deserve a kind of advice, those that do not, and large graphs to be drawn."""
import numpy as np

import graphs
from graphs import port

F = np.float32


def weight(g, *shape):
    return g.const((g.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(F))


def conv(path, channels=64, size=56, layers=3, batch=1):
    """Convolutions of many channels: near the floor, split, nothing moved."""
    g = graphs.Graph(1)
    x = 'x'
    for _ in range(layers):
        x = g.op('Relu', g.op('Conv', x, weight(g, channels, channels, 3, 3), pads=[1, 1, 1, 1]))
    g.op('Identity', x, out='y')
    return g.save(path, *([port(n, F, [batch, channels, size, size])] for n in 'xy'))


def few_channels(path):
    """One channel at every second position: below a fifth of the floor on AVX2 and AVX-512, whatever the width of its units."""
    g = graphs.Graph(2)
    g.op('Conv', 'x', weight(g, 1, 64, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2], out='y')
    return g.save(path, [port('x', F, [1, 64, 128, 128])], [port('y', F, [1, 1, 64, 64])])


def short(path):
    g = graphs.Graph(8)
    g.op('Relu', 'x', out='y')
    return g.save(path, [port('x', F, ['n', 4])], [port('y', F, ['n', 4])])


def open_sizes(path):
    """Rows that are short, and of a length that is open."""
    g = graphs.Graph(3)
    x = 'x'
    for _ in range(20):
        x = g.op('Slice', g.op('Softmax', g.op('Concat', x, x, axis=1), axis=1), g.ints(0), g.ints(10), g.ints(1))
    g.op('Identity', x, out='y')
    return g.save(path, [port('x', F, ['batch', 'n'])], [port('y', F, ['batch', 'm'])])


def product(path):
    """A large product: near the floor, split."""
    g = graphs.Graph(11)
    g.op('MatMul', g.op('Relu', 'x'), weight(g, 768, 768), out='y')
    return g.save(path, *([port(n, F, [768, 768])] for n in 'xy'))


def elementwise(path):
    """Nothing that integers could do, nothing to choose by sizes."""
    g = graphs.Graph(4)
    g.op('Exp', g.op('Tanh', 'x'), out='y')
    return g.save(path, *([port(n, F, ['n', 65536])] for n in 'xy'))


def tiny(path):
    """Layers too small for a second thread."""
    g = graphs.Graph(5)
    x = 'x'
    for _ in range(40):
        x = g.op('Tanh', g.op('MatMul', x, weight(g, 48, 48)))
    g.op('Identity', x, out='y')
    return g.save(path, *([port(n, F, [1, 48])] for n in 'xy'))


def transposed(path):
    g = graphs.Graph(6)
    a = g.op('Transpose', 'x', perm=[2, 0, 1])
    b = g.op('Transpose', g.op('Concat', a, a, axis=0), perm=[1, 0, 2])
    g.op('Concat', b, b, axis=2, out='y')
    return g.save(path, [port('x', F, [128, 96, 64])], [port('y', F, [128, 128, 192])])


def sorting(path):
    g = graphs.Graph(7)
    values, _ = g.op('TopK', g.op('Relu', 'x'), g.ints(5000), outputs=2)
    g.op('Neg', values, out='y')
    return g.save(path, [port('x', F, [100000])], [port('y', F, [5000])])


def large_weights(path):
    g = graphs.Graph(8)
    x = 'x'
    for _ in range(3):
        x = g.op('Relu', g.op('MatMul', x, g.const(np.full((2560, 2560), 0.001, F))))
    g.op('Identity', x, out='y')
    return g.save(path, *([port(n, F, [1, 2560])] for n in 'xy'))


def chain(path, layers=1000):
    """A thousand layers; every tenth result is taken up ten layers further on."""
    g = graphs.Graph(9)
    x, kept = 'x', []
    w = [weight(g, 8, 8) for _ in range(7)]
    for k in range(layers):
        x = g.op('MatMul', x, w[k % 7])
        if k % 10 == 9:
            kept.append(x)
            x = g.op('Add', x, kept[-2]) if len(kept) > 1 else x
    g.op('Identity', x, out='y')
    return g.save(path, *([port(n, F, [4, 8])] for n in 'xy'))


def swin(path, dims=(24, 48, 96, 192), depths=(2, 2, 6, 2), window=7, size=112):
    """The graph of swin_t as PyTorch exports it, of a quarter of its channels: patches, windows that are shifted by concatenated
    slices, a bias of positions, masks, patches that are merged."""
    g = graphs.Graph(10)

    def norm(x, n):
        return g.op('LayerNormalization', x, g.const(np.ones(n, F)), g.const(np.zeros(n, F)), axis=-1)

    def linear(x, n, m):
        return g.op('Add', g.op('MatMul', x, weight(g, n, m)), g.const(np.zeros(m, F)))

    def reshape(x, *shape):
        return g.op('Reshape', x, g.ints(*shape))

    def roll(x, by, side):
        for axis in (1, 2):
            cut = by if by > 0 else side + by
            a = g.op('Slice', x, g.ints(cut), g.ints(side), g.ints(axis))
            b = g.op('Slice', x, g.ints(0), g.ints(cut), g.ints(axis))
            x = g.op('Concat', a, b, axis=axis)
        return x

    def attention(x, n, side, shift):
        heads, count = n // 8, side // window
        if shift:
            x = roll(x, shift, side)
        x = g.op('Transpose', reshape(x, 1, count, window, count, window, n), perm=[0, 1, 3, 2, 4, 5])
        qkv = reshape(linear(reshape(x, count * count, window * window, n), n, 3 * n), count * count, window * window, 3, heads, 8)
        parts = g.op('Transpose', qkv, perm=[2, 0, 3, 1, 4])
        q, k, v = (g.op('Gather', parts, g.const(np.int64(i)), axis=0) for i in range(3))
        scores = g.op('MatMul', g.op('Mul', q, g.const(F(8 ** -0.5))), g.op('Transpose', k, perm=[0, 1, 3, 2]))
        scores = g.op('Add', scores, g.const(g.rng.standard_normal((1, heads, window * window, window * window)).astype(F)))
        if shift:
            mask = g.const(np.zeros((1, count * count, 1, window * window, window * window), F))
            scores = reshape(scores, 1, count * count, heads, window * window, window * window)
            scores = reshape(g.op('Add', scores, mask), count * count, heads, window * window, window * window)
        x = g.op('Transpose', g.op('MatMul', g.op('Softmax', scores, axis=-1), v), perm=[0, 2, 1, 3])
        x = linear(reshape(x, count * count, window * window, n), n, n)
        x = g.op('Transpose', reshape(x, 1, count, count, window, window, n), perm=[0, 1, 3, 2, 4, 5])
        x = reshape(x, 1, side, side, n)
        return roll(x, -shift, side) if shift else x

    def gelu(x):
        erf = g.op('Erf', g.op('Div', x, g.const(F(2 ** 0.5))))
        return g.op('Mul', g.op('Mul', x, g.op('Add', erf, g.const(F(1)))), g.const(F(0.5)))

    x = g.op('Conv', 'image', weight(g, dims[0], 3, 2, 2), strides=[2, 2])
    x, side = norm(g.op('Transpose', x, perm=[0, 2, 3, 1]), dims[0]), size // 2
    for stage, (n, depth) in enumerate(zip(dims, depths)):
        for block in range(depth):
            shift = window // 2 if block % 2 and side > window else 0
            x = g.op('Add', x, attention(norm(x, n), n, side, shift))
            x = g.op('Add', x, linear(gelu(linear(norm(x, n), n, 4 * n)), 4 * n, n))
        if stage < 3:
            corners = [g.op('Slice', x, g.ints(i, j), g.ints(side, side), g.ints(1, 2), g.ints(2, 2)) for j in range(2) for i in range(2)]
            x, side = g.op('MatMul', norm(g.op('Concat', *corners, axis=-1), 4 * n), weight(g, 4 * n, 2 * n)), side // 2
    x = g.op('ReduceMean', norm(x, dims[3]), axes=[1, 2], keepdims=0)
    g.op('Add', g.op('MatMul', x, weight(g, dims[3], 1000)), g.const(np.zeros(1000, F)), out='scores')
    return g.save(path, [port('image', F, [1, 3, size, size])], [port('scores', F, [1, 1000])])
