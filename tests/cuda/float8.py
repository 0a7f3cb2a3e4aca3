# SPDX-License-Identifier: Apache-2.0
"""Floats of 8 and 4 bits in CUDA models, without a GPU: models that come quantised in them, weights in blocks of them, and --fp8.

In:  models made here; `args.cytoc`, the mocks of NVRTC and the driver (mock.py).
Out: the closing line.

- QuantizeLinear and DequantizeLinear of float8 around products and convolutions, for architectures that multiply these and for one
  that does not, against ONNX Runtime on the model as it is: what is multiplied is the same, sums are added up in another order.
- NVFP4, MXFP4, MXFP8 and float8 by columns (DequantizeLinear with block_size and without) against the product of the weights as NumPy
  reads them, on CUDA and on this CPU; and how large the library is.
- --fp8, static and dynamic, of small networks: so many decibels beside f32.
- What is refused: other targets, wrong words, options that exclude each other.
With --device the same runs on the machine's device.
"""
import functools
import os
import re
import sys

import ml_dtypes
import numpy as np
from onnx import numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import graphs
import lib
import mock
import network

E4, E5, F4, E8 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e8m0fnu
NATIVE, OTHERS = ('sm_89', 'sm_90a', 'sm_120'), ('sm_80',)
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


class Graph(graphs.Graph):
    def __init__(self, seed, real=np.float32):
        super().__init__(seed)
        self.real = real  # what scales are of

    def narrow(self, values, dtype):
        """A constant of one of ml_dtypes."""
        name = 'c%d' % len(self.constants)
        self.constants.append(numpy_helper.from_array(np.asarray(values).astype(dtype), name))
        return name

    def q(self, x, scale, dtype=E4, **attributes):
        return self.op('QuantizeLinear', x, self.const(scale, self.real), self.narrow(0, dtype), **attributes)

    def dq(self, x, scale, **attributes):
        return self.op('DequantizeLinear', x, scale if isinstance(scale, str) else self.const(scale, self.real), **attributes)

    def rounded(self, x, scale, dtype=E4):
        return self.dq(self.q(x, scale, dtype), scale)

    def weights(self, shape, axis=None, dtype=E4):
        """Dequantised ones, with a scale for each place along the axis."""
        w = self.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        most = 448 if dtype == E4 else 57344
        others = tuple(i for i in range(len(shape)) if i != axis)
        scale = np.abs(w).max() / most if axis is None else np.abs(w).max(others, keepdims=True) / most
        stored = self.narrow(w / scale, dtype)
        return self.dq(stored, scale) if axis is None else self.dq(stored, self.const(scale.reshape(-1), self.real), axis=axis)

    def bias(self, n):
        return self.const(0.1 * self.rng.standard_normal(n), self.real)


# ---- models that come quantised: (model, feeds, products that are native, limit) ----

@case
def products(g):
    """Chained: bias and ReLU go into the kernel that rounds for the next product; a transposed weight; e5m2 by e4m3."""
    x = g.rounded('x', 0.01)
    y = g.op('Relu', g.op('Add', g.op('MatMul', x, g.weights((96, 64), 1)), g.bias(64)))
    y = g.op('Gemm', g.rounded(y, 0.02, E5), g.weights((48, 64), 0), g.bias(48), transB=1)
    return [('x', (70, 96))], [(y, (70, 48))], ('f8e4m3fnf8e4m3fn', 'f8e5m2f8e4m3fn')


@case
def stacked(g):
    """Both factors are computed, in a stack; what is moved in between is moved in 8 bits."""
    heads = g.op('Transpose', g.op('Reshape', g.rounded('x', 0.01), g.ints(40, 3, 64)), perm=[1, 0, 2])
    keys = g.op('Transpose', g.rounded('y', 0.02, E5), perm=[0, 2, 1])
    return [('x', (40, 192)), ('y', (3, 50, 64))], [(g.op('MatMul', heads, keys), (3, 40, 50))], ('f8e4m3fnf8e5m2',)


@case
def convolutions(g):
    """3x3, strided, 1x1; one of groups stays in f32."""
    y = g.op('Relu', g.op('Conv', g.rounded('x', 0.01), g.weights((32, 16, 3, 3), 0), g.bias(32), pads=[1, 1, 1, 1]))
    y = g.op('Conv', g.rounded(y, 0.01), g.weights((40, 32, 1, 1), 0), strides=[2, 2])
    y = g.op('Conv', g.rounded(y, 0.01), g.weights((40, 20, 3, 3), 0), group=2)
    return [('x', (2, 16, 12, 10))], [(y, (2, 40, 4, 3))], ('f8e4m3fnf8e4m3fn',)


@case
def halves(g):
    """A model in f16, as exporters for GPUs write it."""
    g.real = np.float16
    x = g.op('Cast', 'x', to=10)
    y = g.op('MatMul', g.rounded(x, 0.01), g.weights((64, 80), 1))
    y = g.op('MatMul', g.rounded(g.op('Relu', y), 0.01), g.weights((80, 32), 1))
    return [('x', (33, 64))], [(g.op('Cast', y, to=1), (33, 32))], ('f8e4m3fnf8e4m3fn',)


LIMITS = {'halves': 2e-2, 'products': 2e-2, 'convolutions': 2e-2}  # rounding in between falls on the other side of a tie now and then


def compiled(args, work, arch, options=(), name='model'):
    """(error, text of the kernels)."""
    env = mock.compiling(mock.environment(args, arch))
    library, model = os.path.join(work, 'model.so'), os.path.join(work, name + '.onnx')
    code, _, err = lib.run([args.cytoc, model, '-o', library, '-j', '1', *mock.options(args, arch), *options], 300, env=env)
    if code:
        return 'compile: ' + lib.reason(err, code), ''
    code, text, err = lib.run([args.cytoc, model, '--emit=cu', '-o', '-', *mock.options(args, arch), *options], 300, env=env)
    return ('--emit=cu: ' + lib.reason(err, code) if code else None), text


def executed(args, work, arch):
    env = mock.environment(args, arch)
    return network.execute(args, os.path.join(work, 'model.so'), os.path.join(work, 'in'), os.path.join(work, 'out'), '1', 600, env)


def multiplied(text):
    """Types of the matrix instructions of kernels, of narrow floats alone."""
    return set(re.findall(r'#define MMA cy_mma_(f8\w+)', text))


def feeds_of(inputs, rng):
    return {name: rng.standard_normal(dims).astype(np.float32) for name, dims in inputs}


def quantised(args, name, work):
    g = Graph(len(name))
    inputs, outputs, native = CASES[name](g)
    feeds = feeds_of(inputs, np.random.default_rng(3))
    ports = [graphs.port(n, np.float32, dims) for n, dims in inputs]
    model = g.save(os.path.join(work, 'model.onnx'), ports, [graphs.port(n, np.float32, dims) for n, dims in outputs], opset=21)
    network.save_inputs(os.path.join(work, 'in'), feeds)
    network.reference(network.ort_session(model, optimised=False), feeds, os.path.join(work, 'ref'))
    for arch in NATIVE + OTHERS:
        problem, text = compiled(args, work, arch)
        wanted = set(native) if arch in NATIVE else set()
        if not problem and multiplied(text) != wanted:
            problem = 'matrix instructions of %s, not %s' % (sorted(multiplied(text)), sorted(wanted))
        problem = problem or executed(args, work, arch) or network.compare(
            os.path.join(work, 'out'), os.path.join(work, 'ref'), lambda _: LIMITS.get(name, 1e-4))
        if problem:
            return '%s: %s' % (arch, problem)
    return None


# ---- weights in blocks ----

# name: (type, block, type of the scales, options, bytes for each weight at most); *_f16: models in f16
BLOCKS = {
    'nvfp4': (F4, 16, 'two', [], 0.58), 'nvfp4_halves': (F4, 16, 'two', ['--fp16'], 0.58), 'nvfp4_single': (F4, 16, np.float32, [], 0.78),
    'mxfp4': (F4, 32, E8, [], 0.55), 'mxfp4_halves': (F4, 32, E8, ['--bf16'], 0.55), 'mxfp8': (E4, 32, E8, ['--fp16'], 1.06),
    'mxfp8_e5m2': (E5, 32, E8, [], 1.06), 'columns_e4m3': (E4, 0, np.float32, [], 1.03), 'columns_halves': (E4, 0, np.float32, ['--fp16'], 1.03),
    'tensor_e4m3': (E4, 0, 'one', [], 1.03), 'tensor_halves': (E4, 0, 'one', ['--fp16'], 1.03),
    'tensor_e5m2_halves': (E5, 0, 'one', ['--fp16'], 1.03), 'tensor_f16': (E4, 0, 'one', [], 1.03),
    'nvfp4_f16': (F4, 16, 'two', [], 0.58)}
K, N, ROWS = 1024, 1024, (1, 3, 70)
OTHER_BYTES = 256 << 10  # of a library, at most


def block_weights(g, dtype, block, kind):
    """The name of dequantised weights [K, N], and their values."""
    most = {F4: 6, E4: 448, E5: 57344}[dtype]
    w = g.rng.standard_normal((K, N)) / np.sqrt(K)
    groups = w.reshape(K // (block or K), block or K, N)
    scale = np.abs(groups).max(1) / most
    if kind == 'two':  # a scale of e4m3 for each block, and one in f32 for all of these
        over = (scale.max() / 448).astype(g.real).astype(np.float32)
        small = (scale / over).astype(E4)
        name, scale = g.dq(g.narrow(small, E4), over), small.astype(np.float32) * over
    elif kind == E8:
        scale = 2.0 ** np.ceil(np.log2(scale))
        name = g.narrow(scale, E8)
    elif kind == 'one':
        scale = np.full_like(scale, scale.max().astype(g.real))
        name = g.const(scale.max(), g.real)
    else:
        scale = scale.astype(np.float32)
        name = g.const(scale if block else scale[0])
    codes = (groups / scale[:, None]).astype(dtype)
    attributes = dict(axis=0, block_size=block) if block else {} if kind == 'one' else dict(axis=1)
    if kind == E8:
        attributes['output_dtype'] = 1
    stored = g.op('DequantizeLinear', g.narrow(codes.reshape(K, N), dtype), name, **attributes)
    return stored, (codes.astype(np.float32) * scale[:, None].astype(np.float32)).reshape(K, N)


def blocks(args, name, work):
    dtype, block, kind, options, most = BLOCKS[name]
    half = name.endswith('_f16')
    g = Graph(7, np.float16 if half else np.float32)
    w, values = block_weights(g, dtype, block, kind)
    y = g.op('MatMul', g.op('Cast', 'x', to=10) if half else 'x', w)
    y = g.op('Cast', y, to=1) if half else y
    g.save(os.path.join(work, 'model.onnx'), [graphs.port('x', np.float32, ['rows', K])], [graphs.port(y, np.float32, ['rows', N])],
           opset=24 if kind == E8 else 21)
    limit = 2e-2 if options or half else 1e-5
    for arch in ('sm_80', 'sm_90a', 'cpu'):
        if arch == 'cpu' and '--fp16' in options:
            continue
        problem = network.compile_model(args, os.path.join(work, 'model.onnx'), os.path.join(work, 'model.so'), '-O3', options) \
            if arch == 'cpu' else compiled(args, work, arch, options)[0]
        if problem:
            return '%s: %s' % (arch, problem)
        for rows in ROWS:
            x = np.random.default_rng(rows).standard_normal((rows, K)).astype(np.float32)
            network.save_inputs(os.path.join(work, 'in'), {'x': x})
            problem = executed(args, work, arch if arch != 'cpu' else 'sm_80')
            found = {} if problem else network.by_index(os.path.join(work, 'out'))
            problem = problem or lib.difference('%d rows' % rows, np.load(found[0]), x @ values, limit)
            if problem:
                return '%s: %s' % (arch, problem)
        size = os.path.getsize(os.path.join(work, 'model.so'))
        if arch == 'sm_80' and size > most * K * N + OTHER_BYTES:
            return '%s: a library of %d bytes, %.3f for each weight' % (arch, size, size / (K * N))
    return None


# ---- --fp8 ----

def mlp(g):
    y = 'x'
    for k, n in ((96, 128), (128, 160), (160, 64)):
        y = g.op('Add', g.op('MatMul', y, g.const(g.rng.standard_normal((k, n)) / np.sqrt(k), np.float32)), g.bias(n))
        y = g.op('Relu', y) if n != 64 else y
    return (40, 96), y, (40, 64)


def cnn(g):
    def conv(x, *shape, **attributes):
        w = g.const(g.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:])), np.float32)
        return g.op('Conv', x, w, g.bias(shape[0]), **attributes)
    y = g.op('Relu', conv('x', 32, 16, 3, 3, pads=[1, 1, 1, 1]))
    y = g.op('Relu', g.op('Add', conv(y, 32, 32, 3, 3, pads=[1, 1, 1, 1]), y))
    y = g.op('MaxPool', y, kernel_shape=[2, 2], strides=[2, 2])
    y = conv(g.op('Relu', conv(y, 64, 32, 1, 1)), 32, 64, 3, 3, strides=[2, 2])
    return (2, 16, 12, 12), y, (2, 32, 2, 2)


FP8 = {'mlp_dynamic': (mlp, '--fp8'), 'mlp_static': (mlp, '--fp8=static'), 'cnn_dynamic': (cnn, '--fp8=dynamic'),
       'cnn_static': (cnn, '--fp8=static'), 'mlp_static_halves': (mlp, '--fp8=static --fp16')}
DECIBELS = 22


def fp8(args, name, work):
    make, words = FP8[name]
    g = Graph(11)
    dims, y, out = make(g)
    model = g.save(os.path.join(work, 'model.onnx'), [graphs.port('x', np.float32, dims)], [graphs.port(y, np.float32, out)])
    rng = np.random.default_rng(5)
    samples, feeds = rng.standard_normal((4, *dims)).astype(np.float32), feeds_of([('x', dims)], rng)
    np.savez(os.path.join(work, 'samples.npz'), x=samples)
    network.save_inputs(os.path.join(work, 'in'), feeds)
    want = network.ort_session(model).run(None, feeds)[0]
    options = words.split() + (['--calibrate=' + os.path.join(work, 'samples.npz')] if 'static' in words else [])
    for arch in ('sm_89', 'sm_90a'):
        problem, text = compiled(args, work, arch, options)
        if not problem and not multiplied(text):
            problem = 'no kernel multiplies floats of 8 bits'
        problem = problem or executed(args, work, arch)
        if problem:
            return '%s: %s' % (arch, problem)
        got = np.load(network.by_index(os.path.join(work, 'out'))[0])
        decibels = 10 * np.log10((want ** 2).sum() / ((got - want) ** 2).sum())
        if not DECIBELS < decibels < 45:
            return '%s: %.1f dB' % (arch, decibels)
    return None


# ---- what is refused: options, what must be said ----

REFUSED = {'older': (['--fp8', '--target=sm_80'], ['--fp8', 'sm_89', "'sm_80'", '--int8', '--fp16']),
           'among_others': (['--fp8', '--target=cuda'], ["'cuda'", 'older one']),
           'cpu': (['--fp8', '--target=x86-64-v3'], ['sm_89', 'x86-64-v3', '--int8']),
           'word': (['--fp8=fast', '--target=sm_89'], ['--fp8', 'static or dynamic', 'fast']),
           'with_int8': (['--fp8', '--int8', '--target=sm_89'], ['--fp8', '--int8', 'exclude']),
           'with_weights': (['--fp8', '--weights=int4', '--target=sm_89'], ['--fp8', '--weights', 'exclude']),
           'with_accuracy': (['--fp8', '--accuracy=30dB', '--target=sm_89'], ['--accuracy', '--fp8', 'exclude']),
           'no_samples': (['--fp8=static', '--target=sm_89'], ['--fp8=static', '--calibrate']),
           'level': (['--fp8', '-O0', '--target=sm_89'], ['--fp8', '-O1'])}


def refused(args, name, work):
    options, said = REFUSED[name]
    g = Graph(2)
    dims, y, out = mlp(g)
    model = g.save(os.path.join(work, 'model.onnx'), [graphs.port('x', np.float32, dims)], [graphs.port(y, np.float32, out)])
    code, _, err = lib.run([args.cytoc, model, '-o', os.path.join(work, 'model.so'), *options])
    missing = [word for word in said if word not in err]
    return 'exit code %d' % code if code != 1 else '%s is not in: %s' % (missing, err) if missing else None


def test(args, name, work, kind):
    return kind(args, name.split('/')[1], work)


def main():
    args = lib.arguments(__doc__, device=dict(action='store_true'), target=mock.TARGET,
                         jobs=dict(type=int, default=2, help='models at a time'))
    suite = lib.Suite(args)
    rows = [('%s/%s' % (kind.__name__, name), kind) for kind, names in ((quantised, CASES), (blocks, BLOCKS), (fp8, FP8), (refused, REFUSED))
            for name in names]
    network.test_each(args, suite, 'cuda-float8', [r for r in rows if args.wanted(r[0])], functools.partial(test, args), args.jobs)
    suite.done()


if __name__ == '__main__':
    main()
