# SPDX-License-Identifier: Apache-2.0
"""Products with weights in integers at any number of rows: one library, one copy of the weights."""
import os
import re

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

import lib
from shared import Network, snr

ROWS = ((1, 1), (2, 1), (1, 2), (1, 3), (17, 1), (2, 64), (1, 333))


def unpacked(q, bits):
    return q if bits == 8 else np.stack([q & 15, q >> 4], -1).reshape(*q.shape[:-1], -1)


class Weights:
    """Those of a MatMulNBits: what the node reads, and the floats that they stand for."""

    def __init__(self, rng, k, n, bits, block, zeros):
        count = -(-k // block)  # a last block that is not full has codes that mean nothing
        self.k, self.n, self.bits, self.block = k, n, bits, block
        self.q = rng.integers(0, 256, (n, count, block * bits // 8)).astype(np.uint8)
        self.scale = (rng.random((n, count)) * 0.01 + 0.001).astype(np.float32)
        zero = np.full((n, count), 1 << bits - 1)
        self.zero = rng.integers(0, 256, (n, -(-count * bits // 8))).astype(np.uint8) if zeros else None
        if zeros:
            zero = unpacked(self.zero, bits)[:, :count]
        codes = unpacked(self.q, bits).astype(np.float64)
        self.floats = ((codes - zero[:, :, None]) * self.scale[:, :, None]).reshape(n, -1)[:, :k].T

    def product(self, g, x, **more_attributes):
        more = [g.const(self.zero)] if self.zero is not None else []
        attributes = {'K': self.k, 'N': self.n, 'bits': self.bits, 'block_size': self.block, **more_attributes}
        inputs = [x, g.const(self.q), g.const(self.scale), *more]
        return g.op('MatMulNBits', *inputs, domain='com.microsoft', **attributes)


def compare(p, model, wanted_of, k, options=(), least=100):
    """At all numbers of rows, at -O0, -O3 and for AVX2."""
    for name, more in (('o3', []), ('o0', ['-O0']), ('avx2', ['--target=x86-64-v3'])):
        library = p.library(model, name, *more, *(options if more != ['-O0'] else []))
        for rows in ROWS:
            x = np.random.default_rng(7).standard_normal((*rows, k)).astype(np.float32)
            got, wanted = p.run(library, x)[0], wanted_of(np.float64(x))
            if got.shape != wanted.shape or not snr(wanted, got) > least:
                return '%s, rows %s: %s, %.1f dB' % (name, rows, got.shape, snr(wanted, got))
    return None


def own_bytes(p, model):
    """What a library has besides the runtime, which is several times as large with sanitizers."""
    p.cytoc(model, '-o', p.path('own.o'))
    return os.path.getsize(p.path('own.o'))


def given_rows(p):
    """4 and 8 bits, by 32 and by 128 (stored by 128) and 256 (stored in two), with and without zero points, a last panel that is not
    full, behind it a bias, a function and a sum."""
    for bits, block, zeros, n in ((4, 32, True, 517), (4, 256, False, 520), (8, 128, True, 768), (8, 32, False, 1030)):
        g, k = Network(3), 1024
        w = Weights(g.rng, k, n, bits, block, zeros)
        bias = g.rng.standard_normal(n).astype(np.float32)
        y = g.op('Add', w.product(g, 'x'), g.const(bias))
        y = g.op('Add', g.op('Tanh', y), g.op('Mul', y, g.const(np.float32(0.5))))
        model = g.save(p.path('m.onnx'), [('x', ['batch', 'rows', k])], [(y, ['batch', 'rows', n])])

        def wanted(x):
            y = x @ w.floats + bias
            return np.tanh(y) + y / 2
        why = compare(p, model, wanted, k)
        if why:
            return '%d bits by %d: %s' % (bits, block, why)
        text = p.cytoc(model, '-o', p.path('q.so'), '--explain')
        if 'gemm int%d weights' % bits not in text or ('gemm int4 weights int24 rows' if bits == 4 else 'add_blocks') not in text:
            return 'not both forms: ' + text
        graph = p.cytoc(model, '-o', '-', '--emit=graph', '-O0')
        if len(re.findall('= shr', graph)) != (zeros and bits == 4) or 'u%d[%d,%d]' % (bits, n, k) not in graph:
            return 'weights are unpacked element by element: ' + graph
        expected = k * n * (bits / 8 + (5 if zeros else 4) / min(block, 128)) + 4 * n
        stored = float(re.search(r'weights ([0-9.]+) MB', p.cytoc(model, '-o', p.path('q.so'), '--stats')).group(1)) * 1e6
        if not 0.98 * expected < stored < 1.02 * expected + 6000 or own_bytes(p, model) > stored + 120000:
            return '%d bits by %d: %d bytes of weights, expected %d; %d in all' % (bits, block, stored, expected, own_bytes(p, model))
    return None


def chained(p):
    """Products straight behind each other: what a layer reads is what came of the one before when it was replaced."""
    g, n = Network(4), 512
    y, weights = 'x', []
    for _ in range(8):
        weights.append((g.rng.standard_normal((n, n)) / n ** 0.5).astype(np.float32))
        y = g.op('MatMul', y, g.const(weights[-1]))
    library = p.library(g.save(p.path('m.onnx'), [('x', ['batch', n])], [(y, ['batch', n])]), 'chain', '--int8=dynamic')
    x = g.rng.standard_normal((4, n)).astype(np.float32)
    wanted = np.linalg.multi_dot([np.float64(x), *map(np.float64, weights)])
    ratio = snr(wanted, p.run(library, x)[0])
    return None if 20 < ratio < 100 else '%.1f dB' % ratio


def few_rows(p):
    """One to five rows times 4 bits, in integers as exact as floats: blocks that lanes and groups divide or not, k that no block ends
    with, panels that are not full, one zero point and many, rows of large and small numbers, and what is not finite."""
    cases = ((16, True, 1000, 517), (32, False, 1024, 4160), (64, True, 1088, 576), (128, False, 1280, 4237), (128, True, 2000, 320),
             (256, True, 1024, 260))
    targets = [[], ['--target=x86-64-v3'], ['-O0']]
    for block, zeros, k, n in cases:
        g = Network(9)
        w = Weights(g.rng, k, n, 4, block, zeros)
        model = g.save(p.path('m.onnx'), [('x', ['batch', 'rows', k])], [(w.product(g, 'x'), ['batch', 'rows', n])])
        libraries = [p.library(model, '%d' % i, *t) for i, t in enumerate(targets)]
        wide = p.library(model, 'wide', '--target=x86-64-v4')
        libraries += [wide] * (lib.run([p.args.cyto_run, wide, '--info'])[0] == 0)  # others leave it to tests/emulate
        for rows in ((1, 1), (1, 2), (3, 1), (1, 4), (2, 2), (1, 5)):
            x = np.random.default_rng(7).standard_normal((*rows, k)).astype(np.float32)
            x[..., k // 2:] *= 1e-6
            x[..., 7] = 1000
            wanted = np.float64(x) @ w.floats
            for library in libraries:
                good = snr(wanted, p.run(library, x)[0])
                if not good > 120:
                    return 'blocks of %d, rows %s, %s: %.1f dB' % (block, rows, library, good)
        for tiny in (1e-28, 1e-34, 0):
            x = np.full((1, 1, k), tiny, np.float32)
            worst = max(np.abs(np.float64(p.run(library, x)[0]) - np.float64(x) @ w.floats).max() for library in libraries)
            if worst > max(1e-3 * tiny, 1e-34):
                return 'blocks of %d, numbers of %g: off by %g' % (block, tiny, worst)
        for bad in (np.nan, np.inf):
            x = np.random.default_rng(7).standard_normal((1, 2, k)).astype(np.float32)
            x[0, 1, 5] = bad
            got = p.run(libraries[0], x)[0][0]
            if np.isfinite(got[1]).any() or not np.isfinite(got[0]).all():
                return 'blocks of %d: %g in a row gives %s' % (block, bad, got[:, :4])
        if 'gemm int4 weights int24 rows' not in p.cytoc(model, '-o', p.path('t.so'), '--explain'):
            return 'blocks of %d: no integers' % block
    return None


def dequantised_rows(p):
    """DequantizeLinear by channels, as it lies and turned; read by two products; of a transposed input."""
    g, k, n = Network(4), 640, 768
    q, z = g.rng.integers(-128, 128, (n, k)).astype(np.int8), g.rng.integers(-9, 9, n).astype(np.int8)
    s = (g.rng.random(n) * 0.01 + 0.001).astype(np.float32)
    w = g.op('Transpose', g.op('DequantizeLinear', g.const(q), g.const(s), g.const(z), axis=0), perm=[1, 0])
    v = g.op('DequantizeLinear', g.const(np.ascontiguousarray(q.T)), g.const(s), axis=1)
    turned = g.op('Transpose', g.op('Relu', g.op('Transpose', 'x', perm=[0, 2, 1])), perm=[0, 2, 1])
    y = g.op('Sub', g.op('MatMul', 'x', w), g.op('MatMul', turned, v))
    model = g.save(p.path('m.onnx'), [('x', ['batch', 'rows', k])], [(y, ['batch', 'rows', n])])
    floats = (q.astype(np.float64) - z[:, None]).T * s, q.T.astype(np.float64) * s
    why = compare(p, model, lambda x: x @ floats[0] - np.maximum(x, 0) @ floats[1], k)
    size = own_bytes(p, model)
    return why or (None if size < 2.2 * k * n else '%d bytes' % size)


def spelled_rows(p):
    """What exporters write instead of DequantizeLinear, as torchao has it: by blocks and by channels; in f16 or f32."""
    k, n, block = 512, 640, 32
    rng = np.random.default_rng(8)
    q, z = rng.integers(-8, 8, (n, k)).astype(np.int8), rng.integers(-4, 4, (n, k // block, 1)).astype(np.int8)
    s = (rng.random((n, k // block, 1)) * 0.01 + 0.001).astype(np.float16)
    by_blocks = ((q.reshape(n, -1, block) - z.astype(np.float64)) * s).reshape(n, k)
    by_channels = (q - z[:, 0].astype(np.float64)) * s[:, 0]
    for dtype, least in ((np.float32, 100), (np.float16, 55)):
        g, to = Network(8), helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        cast = lambda v, to: g.op('Cast', v, to=to)
        codes = g.op('Reshape', g.const(q), g.const(np.array([n, k // block, block])))
        codes = cast(g.op('Sub', cast(codes, TensorProto.INT32), cast(g.const(z), TensorProto.INT32)), to)
        w = g.op('Reshape', g.op('Mul', codes, g.const(s.astype(dtype))), g.const(np.array([n, k])))
        v = g.op('Sub', cast(g.const(q), to), g.const(z[:, 0].astype(dtype)))
        v = g.op('Mul', v, g.const(s[:, 0].astype(dtype)))
        turned = [g.op('Transpose', m, perm=[1, 0]) for m in (w, v)]
        x = cast('x', to)
        y = g.op('Add', cast(g.op('MatMul', x, turned[0]), 1), cast(g.op('MatMul', g.op('Neg', x), turned[1]), 1))
        model = g.save(p.path('m.onnx'), [('x', ['batch', 'rows', k])], [(y, ['batch', 'rows', n])])
        why = compare(p, model, lambda x: x @ (by_blocks - by_channels).T, k, least=least)
        if why or own_bytes(p, model) > 1.5 * k * n:
            return '%s: %s, %d bytes' % (dtype.__name__, why, own_bytes(p, model))
    return None


def experts(p):
    """QMoE: the matrices of all experts stay in integers, by channels and by blocks."""
    count, hidden, width = 3, 256, 384
    for block, bits in ((0, 4), (64, 8)):
        g = Network(9)
        constants = []
        for to, depth in ((width, hidden), (hidden, width)):
            shape = (count, to, depth // block) if block else (count, to)
            constants.append(g.const(g.rng.integers(0, 256, (count, to, depth * bits // 8)).astype(np.uint8)))
            constants.append(g.const((g.rng.random(shape) * 0.01 + 0.001).astype(np.float32)))
        y = g.op('QMoE', 'x', 'r', *constants[:2], '', *constants[2:], domain='com.microsoft', k=2, expert_weight_bits=bits,
                 activation_type='silu', **({'block_size': block} if block else {}))
        model = g.save(p.path('m.onnx'), [('x', ['rows', hidden]), ('r', ['rows', count])], [(y, ['rows', hidden])])
        inputs = [np.random.default_rng(7).standard_normal((5, n)).astype(np.float32) for n in (hidden, count)]
        plain, library = p.library(model, 'o0', '-O0'), p.library(model, 'o3')
        good = snr(p.run(plain, *inputs)[0], p.run(library, *inputs)[0])
        text = p.cytoc(model, '-o', p.path('q.so'), '--explain')
        forms = 2 if bits == 4 else 1  # for many rows and for few
        if not good > 100 or len(re.findall('gemm int%d weights' % bits, text)) != 2 * forms:
            return '%d bits: %.1f dB, %s' % (bits, good, text)
    return None


def own_rows(p):
    """Weights that --weights rounds, the rows symbols, or fixed and many; two products in a row."""
    for form, least, share in (('int8', 38, 0.29), ('int8,asymmetric', 38, 0.29), ('int4,block=32', 16, 0.17), ('int4,asymmetric', 15, 0.2)):
        for dims in ([], ['--dim', 'batch=1', '--dim', 'rows=40']):
            g = Network(5)
            a, b = g.rng.standard_normal((384, 640)) / 20, g.rng.standard_normal((640, 250)) / 25
            y = g.op('MatMul', g.op('Relu', g.op('MatMul', 'x', g.constant(a))), g.constant(b))
            model = g.save(p.path('m.onnx'), [('x', ['batch', 'rows', 384])], [(y, ['batch', 'rows', 250])])
            wanted = lambda x: np.maximum(x @ a, 0) @ b
            library = p.library(model, 'q', '--weights=' + form, *dims)
            for rows in ROWS if not dims else ((1, 40),):
                x = np.random.default_rng(7).standard_normal((*rows, 384)).astype(np.float32)
                good = snr(wanted(np.float64(x)), p.run(library, x)[0])
                if not good > least:
                    return '%s %s, rows %s: %.1f dB' % (form, dims, rows, good)
            text = p.cytoc(model, '-o', p.path('q.so'), '--weights=' + form, '--stats', '--explain', *dims)
            stored = float(re.search(r'weights ([0-9.]+) MB', text).group(1)) / (4e-6 * 640 * (384 + 250))
            if stored > share or 'gemm int%s weights' % form[3] not in text:
                return '%s %s: %.3f of the bytes: %s' % (form, dims, stored, text)
    return None


def open_columns(p):
    """Rows of a width that only the weights tell, as exporters leave it behind a Reshape to [batch, rows, -1]."""
    g = Network(5)
    w = g.rng.standard_normal((384, 256)) / 20
    wide = g.op('Concat', g.op('Shape', 'x', end=2), g.const(np.array([-1])), axis=0)
    y = g.op('MatMul', g.op('Reshape', 'x', wide), g.constant(w))
    model = g.save(p.path('m.onnx'), [('x', ['batch', 'rows', 'heads', 'size'])], [(y, ['batch', 'rows', 256])])
    for form, least in (('int8', 38), ('int4', 16)):
        library = p.library(model, 'q', '--weights=' + form)
        x = np.random.default_rng(7).standard_normal((2, 5, 6, 64)).astype(np.float32)
        good = snr(np.float64(x).reshape(2, 5, 384) @ w, p.run(library, x)[0])
        text = p.cytoc(model, '-o', p.path('q.so'), '--weights=' + form, '--explain')
        if not good > least or 'gemm int%s weights' % form[3] not in text:
            return '%s: %.1f dB: %s' % (form, good, text)
    return None


def rounded_rows(p):
    """--bf16 rounds both factors where tiles multiply them, for more than one row, and changes nothing on other CPUs."""
    k, n = 1024, 576
    for bits, options in ((4, []), (8, []), (0, ['--weights=int8,block=64'])):
        g = Network(6)
        w = Weights(g.rng, k, n, bits, 32, True) if bits else g.rng.standard_normal((k, n)).astype(np.float32)
        y = w.product(g, 'x') if bits else g.op('MatMul', 'x', g.constant(w))
        model = g.save(p.path('m.onnx'), [('x', ['batch', 'rows', k])], [(y, ['batch', 'rows', n])])
        library, exact = p.library(model, 'h', '--bf16', *options), p.library(model, 'q', *options)
        tiles = 'bf16 amx' in p.cytoc(model, '-o', p.path('t.so'), '--bf16', '--explain', *options)
        for rows in ROWS:
            x = np.random.default_rng(7).standard_normal((*rows, k)).astype(np.float32)
            good, least = snr(p.run(exact, x)[0], p.run(library, x)[0]), 45 if tiles and rows != (1, 1) else 100
            if not good > least or (least == 45 and good > 60):
                return '%d bits, rows %s: %.1f dB' % (bits, rows, good)
        for target, rounds in (('sapphirerapids', True), ('x86-64-v3', False), ('znver4', False)):
            text = p.cytoc(model, '-o', p.path('t.so'), '--bf16', '--explain', '--target=' + target, *options)
            if not re.search('gemm int%d weights%s' % (bits or 8, ' bf16 amx' if rounds else '  '), text):
                return '%s: %s' % (target, text)
    return None


def integer_rows(p):
    """accuracy_level 4 rounds rows to 8 bits, as ONNX Runtime does; every CPU gives the same bytes. A last block that is not full, a
    last panel that is not, and what is not finite."""
    for bits, block, zeros, k, n in ((4, 32, True, 1000, 517), (8, 64, True, 1024, 576), (8, 128, False, 1024, 576), (4, 256, False, 1024, 320)):
        g = Network(6)
        w = Weights(g.rng, k, n, bits, block, zeros)
        model = g.save(p.path('m.onnx'), [('x', ['batch', 'rows', k])], [(w.product(g, 'x', accuracy_level=4), ['batch', 'rows', n])])
        library, avx2, plain = p.library(model, 'o3'), p.library(model, 'avx2', '--target=x86-64-v3'), p.library(model, 'o0', '-O0')
        session = onnxruntime.InferenceSession(model)
        for rows in ROWS:
            x = np.random.default_rng(7).standard_normal((*rows, k)).astype(np.float32)
            got, same, exact, theirs = (*(p.run(l, x)[0] for l in (library, avx2, plain)), session.run(None, {'x': x})[0])
            if not np.array_equal(got, same) or not 38 < snr(exact, got) < 60 or not snr(theirs, got) > 38:
                return '%d bits by %d, rows %s: %.1f dB, beside AVX2 %.1f, ONNX Runtime %.1f' % (
                    bits, block, rows, snr(exact, got), snr(same, got), snr(theirs, got))
        x[0, 1, 5], x[0, 2, 7], x[0, 3], x[0, 4] = np.nan, np.inf, 0, 1e-40
        got = p.run(library, x)[0][0]
        if np.isfinite(got[1:3]).any() or got[3:5].any() or not np.isfinite(got[5:]).all():
            return 'rows that are not finite, or nothing, give %s' % got[1:6, :4]
        if 'gemm int%d weights int8 rows' % bits not in p.cytoc(model, '-o', p.path('t.so'), '--explain'):
            return 'rows stay in float'
    return None


def own_integer_rows(p):
    """--weights and --int8: products have weights by blocks and rows in 8 bits, but for layers that are to stay in
    float."""
    g = Network(5)
    a, b = g.rng.standard_normal((384, 640)) / 20, g.rng.standard_normal((640, 256)) / 25
    y = g.op('MatMul', g.op('Relu', g.op('MatMul', 'x', g.constant(a))), g.constant(b))
    model = g.save(p.path('m.onnx'), [('x', ['rows', 384])], [(y, ['rows', 256])])
    x = np.random.default_rng(7).standard_normal((9, 384)).astype(np.float32)
    for form, count, more in (('int8', 2, []), ('int4,asymmetric', 2, []), ('int4', 1, ['--int8-skip=' + g.nodes[0].name])):
        alone, both = p.library(model, 'w', '--weights=' + form), p.library(model, 'b', '--weights=' + form, '--int8', *more)
        good = snr(p.run(alone, x)[0], p.run(both, x)[0])
        text = p.cytoc(model, '-o', p.path('t.so'), '--weights=' + form, '--int8', '--explain', *more)
        if not 38 < good < 60 or len(re.findall('gemm int%s weights int8 rows' % form[3], text)) != count:
            return '%s %s: %.1f dB, %s' % (form, more, good, text)
    return None


def given_integer_rows(p):
    """--int8 alone: weights that come in 4 bits stay as they are where few rows meet them, or nobody knows how many, and rows take 8
    bits; not those of 8 bits, those of many rows, and what is to stay in float."""
    k, n, x = 1024, 576, np.random.default_rng(7).standard_normal((5, 1024)).astype(np.float32)
    for bits, more, blocks in ((4, [], True), (4, ['--dim', 'rows=5', '--int8-max-error=2%'], True), (4, ['--dim', 'rows=9'], False),
                               (8, [], False), (4, ['--int8-skip=*'], None)):
        g = Network(4)
        w = Weights(g.rng, k, n, bits, 32, True)
        model = g.save(p.path('m.onnx'), [('x', ['rows', k])], [(w.product(g, 'x'), ['rows', n])])
        library, text = p.path('i.so'), p.cytoc(model, '-o', p.path('i.so'), '--int8', '--explain', *more)
        rounded, listed = 'gemm int4 weights int8 rows' in text, '1 of 1 layers in int8' in text
        if (rounded, listed, '  weights by blocks, rows in 8 bits' in text) != (blocks is True, blocks is not None, blocks is True):
            return '%d bits, %s: %s' % (bits, more, text)
        some = np.resize(x, (9, k)) if 'rows=9' in more else x
        good, least = snr(some @ w.floats, p.run(library, some)[0]), 100 if blocks is None else 38 if blocks else 30
        if not good > least or (least < 100 and good > 60):
            return '%d bits, %s: %.1f dB' % (bits, more, good)
    return None


def given_rows_measured(p):
    """--weights and --int8 with a limit: errors are those of the layers that they were measured of, though 8-bit weights of the model
    itself stay as they are, which --int8 alone makes floats of, and merges with the scale behind them."""
    g, k = Network(6), 512
    q, scale = g.rng.integers(-127, 128, (k, k)).astype(np.int8), (g.rng.random(k) * 0.01).astype(np.float32)
    y = g.op('MatMul', 'x', g.op('DequantizeLinear', g.const(q), g.const(scale), axis=1))
    y = g.conv(g.op('Mul', y, g.constant(g.rng.random(k) + 1)), 16, 64)
    large, weights = np.ones((64, 1, 1)), g.rng.standard_normal((32, 64, 1, 1))
    large[5], weights[:, 5] = 1000, 0
    y = g.op('Conv', g.op('Mul', y, g.constant(large)), g.constant(weights))
    y = g.op('Mul', y, g.constant(g.rng.random((32, 1, 1)) + 1))
    model = g.save(p.path('m.onnx'), [('x', ['batch', 16, 4, k])], [(y, ['batch', 32, 4, k])])
    table = p.cytoc(model, '-o', p.path('m.so'), '--weights=int8', '--int8', '--explain', '--int8-prefer=size', '--int8-max-error=5%')
    told = re.findall(r'^\w+ .* ([0-9.]+) +(int8|float: its error is over 5 %)$', table, re.M)
    return None if [t[1] for t in told] == ['int8', 'float: its error is over 5 %'] else table


def tiled_rows(p):
    """Integers and bf16 with more weights than the second-level cache is given: whole tiles of rows, with few or most of
    a last one, their number known or not."""
    g, k, n = Network(9), 1028, 560
    w = g.rng.standard_normal((k, n)).astype(np.float32)
    g.nodes.append(helper.make_node('MatMul', ['x', g.const(w)], ['y']))
    model = g.save(p.path('m.onnx'), [('x', ['rows', k])], [('y', ['rows', n])])
    for options, algorithm, least in ((['--int8', '--int8-prefer=size'], 'gemm int8', 35), (['--bf16'], 'gemm', 45)):
        for known in (None, 7, 44, 53, 128):
            more = ['--dim', 'rows=%d' % known] if known else []
            library, text = p.path('t.so'), p.cytoc(model, '-o', p.path('t.so'), '--explain', *options, *more)
            if algorithm not in text:
                return '%s, %s rows: %s' % (options[0], known, text)
            for rows in [known] if known else (1, 5, 26, 27, 131):
                x = g.rng.standard_normal((rows, k)).astype(np.float32)
                good = snr(x.astype(np.float64) @ w, p.run(library, x)[0])
                if not good > least:
                    return '%s, %d rows%s: %.1f dB' % (options[0], rows, ', known' if known else '', good)
    return None


TESTS = [given_rows, chained, few_rows, dequantised_rows, spelled_rows, experts, own_rows, open_columns, rounded_rows, integer_rows, own_integer_rows, given_integer_rows,
         given_rows_measured, tiled_rows]
