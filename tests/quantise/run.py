"""Quantisation of float models: accuracy on the trained example, all forms of samples, the QDQ files that are written; weights
in half precision.

In:  examples/digits, vit/vit.onnx (trained by vit/train.py on the same pictures), networks made here with fixed random
     numbers. Out: the closing line.

A float library of the same model is what errors are measured against, as signal-to-noise ratio in dB; QDQ files are
judged by ONNX Runtime without its optimisations.
"""
import os
import re
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import lib

# the networks here are too small to gain time by integers
STATIC = ['--int8=static', '--int8-prefer=size']
DIGITS = os.path.join(lib.ROOT, 'examples', 'digits')


def snr(wanted, got):
    wanted, got = np.float64(wanted), np.float64(got)
    return 10 * np.log10((wanted ** 2).sum() / max(((wanted - got) ** 2).sum(), 1e-30))


class Place:
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

class Network:
    """A model built line by line; weights are random with a fixed seed."""

    def __init__(self, seed):
        self.rng, self.nodes, self.weights = np.random.default_rng(seed), [], []

    def weight(self, *shape, scale=None):
        w = self.rng.standard_normal(shape) * (scale or (2 / np.prod(shape[1:])) ** 0.5)
        self.weights.append(numpy_helper.from_array(np.float32(w), 'w%d' % len(self.weights)))
        return self.weights[-1].name

    def constant(self, values):
        self.weights.append(numpy_helper.from_array(np.float32(values), 'w%d' % len(self.weights)))
        return self.weights[-1].name

    def op(self, op, *inputs, **attributes):
        out = 'v%d' % len(self.nodes)
        self.nodes.append(helper.make_node(op, list(inputs), [out], '%s_%d' % (op, len(self.nodes)), **attributes))
        return out

    def conv(self, x, c, o, k=3, **attributes):
        group = attributes.get('group', 1)
        return self.op('Conv', x, self.weight(o, c // group, k, k), self.weight(o, scale=0.1), pads=[k // 2] * 4, **attributes)

    def save(self, path, inputs, outputs, opset=17):
        def port(name, shape):
            return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, 'g', [port(n, s) for n, s in inputs], [port(n, s) for n, s in outputs], self.weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', opset)], ir_version=8), path)
        return path


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


# ---- tests ---------------------------------------------------------------------------------------------------------

def digits(p):
    """(images, labels): every third for calibration, all for testing."""
    data = np.fromfile(os.path.join(DIGITS, 'digits.bin'), np.uint8).reshape(-1, 65)
    return np.float32(data[:, 1:].reshape(-1, 1, 8, 8)) / 16, data[:, 0]


def top1(p, library, images, labels):
    return (p.run(library, images)[0].reshape(len(labels), -1).argmax(1) == labels).mean()


def shifted(images, labels):
    """By up to a pixel in each direction."""
    wide = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return np.concatenate([wide[:, :, y:y + 8, x:x + 8] for y in range(3) for x in range(3)]), np.tile(labels, 9)


def loses(p, model, least, options, pictures=lambda *test: test):
    """Right answers of the static and of the dynamic library: at most 0.5 and 1 % fewer, of `least` layers in integers each."""
    images, labels = digits(p)
    np.savez(p.path('c.npz'), image=images[::3])
    images, labels = pictures(images, labels)
    wanted = top1(p, p.library(model, 'f'), images, labels)
    for name, allowed, more in (('static', 0.005, [*STATIC, '--calibrate=' + p.path('c.npz')]),
                                ('dynamic', 0.01, ['--int8=dynamic', *options])):
        text = p.cytoc(model, '-o', p.path('q.so'), '--explain', *more)
        got, layers = top1(p, p.path('q.so'), images, labels), int(re.search(r'(\d+) of \d+ layers in int8', text).group(1))
        if got < wanted - allowed or layers < least[name]:
            return '%s: %.2f %% right, %.2f %% in float, %d layers in integers' % (name, 100 * got, 100 * wanted, layers)
    return None


def digits_top1(p):
    return loses(p, os.path.join(DIGITS, 'digits.onnx'), {'static': 4, 'dynamic': 0}, [])


def transformer_top1(p):
    """A small vision transformer (vit/train.py): every product with weights in integers, or all that are large enough."""
    return loses(p, os.path.join(HERE, 'vit', 'vit.onnx'), {'static': 10, 'dynamic': 6}, ['--int8-prefer=size'], shifted)


def static_blocks(p):
    """The accuracy of every way to choose ranges, at two batch sizes; the error falls when layers stay in float."""
    model, test = residual(p.path('m.onnx')), samples_of((3, 3, 32, 32), 1, 9)[0]
    np.savez(p.path('c.npz'), x=np.concatenate(samples_of((8, 3, 32, 32), 2)))
    wanted, best = p.run(p.library(model, 'f'), test)[0], 0
    for how, least in (('minmax', 30), ('percentile', 30), ('entropy', 30), ('mse', 30)):
        q = p.library(model, 'q', *STATIC, '--calibrate=' + p.path('c.npz'), '--calibration=' + how)
        got = snr(wanted, p.run(q, test)[0])
        if got < least or got > 60:
            return '%s: %.1f dB' % (how, got)
        best = max(best, got)
    kept = p.library(model, 'q', *STATIC, '--calibrate=' + p.path('c.npz'), '--int8-skip=Conv_[3-6],Gemm')
    return None if snr(wanted, p.run(kept, test)[0]) > best + 1 else 'skipping layers does not help'


def long_tails(p):
    """Values with tails on both sides, and many zeros on one: whichever way ranges are chosen, little is cut off."""
    rng = np.random.default_rng(4)
    for seen, least in ((lambda: rng.laplace(size=(64, 128)), 32), (lambda: np.maximum(rng.laplace(size=(64, 128)) - 1, 0), 28)):
        n = Network(21)
        n.op('MatMul', n.op('Relu', n.op('MatMul', 'x', n.weight(128, 128))), n.weight(128, 64))
        model, test = n.save(p.path('m.onnx'), [('x', ['batch', 128])], [('v2', ['batch', 64])]), np.float32(seen())
        np.savez(p.path('c.npz'), x=np.float32([seen() for _ in range(8)]).reshape(-1, 128))
        wanted = p.run(p.library(model, 'f'), test)[0]
        for how in ('minmax', 'percentile', 'entropy', 'mse'):
            q = p.library(model, 'q', *STATIC, '--calibrate=' + p.path('c.npz'), '--calibration=' + how)
            got = snr(wanted, p.run(q, test)[0])
            if got < least:
                return '%s: %.1f dB' % (how, got)
    return None


def streams_stay_float(p):
    """Sums between products add what was there before it was rounded for a product."""
    model = encoder(p.path('m.onnx'))
    np.savez(p.path('c.npz'), **{k: samples_of(s, 1, 7)[0] for k, s in (('x', (6, 5, 64)), ('y', (6, 5, 96)))})
    text = p.cytoc(model, *STATIC, '--calibrate=' + p.path('c.npz'), '--stop-after=quantise')
    rounded = set(re.findall(r'^ *(%\S+) = dequantize %', text, re.M))
    rounded |= {y for y, x in re.findall(r'^ *(%\S+) = mul (%\S+), @', text, re.M) if x in rounded}  # balanced
    sums = [line for line in re.findall(r'^ *%\S+ = add (.*)', text, re.M) if rounded & set(re.findall(r'%[^ ,]+', line))]
    return 'sums of rounded numbers: %s' % sums if sums or not rounded else None


def whole_blocks_in_integers(p):
    """Pooling and concatenation work on bytes, and so do views."""
    model = residual(p.path('m.onnx'))
    np.savez(p.path('c.npz'), x=samples_of((3, 32, 32), 4))
    text = p.cytoc(model, *STATIC, '--calibrate=' + p.path('c.npz'), '--stop-after=quantise')
    for expression in (r'= pool_max .*: u8', r'= concat .*: u8', r'= reshape .*: u8'):
        if not re.search(expression, text):
            return "nothing like '%s' in the graph" % expression
    return None


def skip_and_limit(p):
    model = residual(p.path('m.onnx'))
    np.savez(p.path('c.npz'), x=samples_of((3, 32, 32), 4))
    options = ['-o', p.path('m.so'), *STATIC, '--calibrate=' + p.path('c.npz'), '--explain']
    table = p.cytoc(model, *options, '--int8-skip=Conv_0,Gemm*')
    if not re.search(r'^Conv_0 .*float: skipped', table, re.M) or not re.search(r'^Gemm.*float: skipped', table, re.M):
        return 'what was skipped is not in float'
    if not re.search(r'^Conv_2 .* [0-9.]+ +int8$', table, re.M):
        return 'no row for Conv_2 with its error'
    table = p.cytoc(model, *options, '--int8-max-error=0.0001%')
    return None if re.search('nothing was quantised', table) else 'no warning although every error is over the limit'


def small_outputs(p):
    """A layer that by itself spoils an output stays in float: here differences of large numbers, which others do not mind."""
    n = Network(15)
    hidden = n.op('Add', n.conv('x', 16, 32, k=1), n.constant(40))
    n.conv(hidden, 32, 24, k=1)
    n.op('Tanh', n.conv(hidden, 32, 16))
    weights = n.weights[-2]
    values = numpy_helper.to_array(weights)
    weights.CopyFrom(numpy_helper.from_array(values - values.mean((1, 2, 3), keepdims=True), weights.name))
    shape = ['batch', None, 12, 12]
    model = n.save(p.path('m.onnx'), [('x', ['batch', 16, 12, 12])], [('v2', shape), ('v4', shape)])
    np.savez(p.path('c.npz'), x=samples_of((16, 12, 12), 8))
    options, x = [*STATIC, '--calibrate=' + p.path('c.npz'), '--explain', '--int8-skip=Conv_0'], samples_of((2, 16, 12, 12), 1)[0]
    table = p.cytoc(model, '-o', p.path('m.so'), *options)
    if not re.search(r"^Conv_3 .* float: alone it changes output 'v4' by [0-9.]+ %$", table, re.M) or '1 of 3 layers in int8' not in table:
        return table[-700:]
    found = [snr(*pair) for pair in zip(p.run(p.library(model, 'f'), x), p.run(p.path('m.so'), x))]
    return None if found[0] > 30 and found[1] > 80 else '%s dB' % found


def slow_layers(p):
    """By default layers that integers make slower stay in float, with the reason; what is dense enough does not."""
    n = Network(9)
    x = n.op('Relu', n.conv('x', 3, 16))             # runs too short to copy
    x = n.op('Relu', n.conv(x, 16, 128, k=1))
    x = n.op('Relu', n.conv(x, 128, 256, k=1))
    n.conv(x, 256, 64)                               # what Winograd multiplies least of
    n.save(p.path('m.onnx'), [('x', [1, 3, 28, 28])], [(n.nodes[-1].output[0], [1, 64, 28, 28])])
    np.savez(p.path('c.npz'), x=samples_of((3, 28, 28), 4))
    options = [p.path('m.onnx'), '-o', p.path('m.so'), '--int8', '--calibrate=' + p.path('c.npz'), '--explain']
    table = p.cytoc(*options, '--target=x86-64-v3')
    if re.findall(r'^(Conv_[046]) .* (int8|float: no gain)$', table, re.M) != [
            ('Conv_0', 'float: no gain'), ('Conv_4', 'int8'), ('Conv_6', 'float: no gain')]:
        return 'not Conv_4 but Conv_0 and Conv_6 in float without VNNI: ' + table[-600:]
    if not re.search(r'estimated 1\.[1-9]', table):
        return 'no estimate of a gain: ' + table[-600:]
    if '4 of 4 layers in int8' not in p.cytoc(*options, '--target=x86-64-v3', '--int8-prefer=size'):
        return '--int8-prefer=size leaves layers in float'
    table = p.cytoc(*options, '--target=sapphirerapids')
    return None if re.search(r'^Conv_6 .* int8$', table, re.M) else 'with VNNI a dense layer stays in float: ' + table[-600:]


def forms_of_samples(p):
    """The same samples give the same library, however they are stored."""
    model, xs, ys = encoder(p.path('m.onnx')), samples_of((1, 7, 64), 3), samples_of((1, 7, 96), 3, 4)
    for i in range(3):
        np.save(p.path('named', '%d' % (i + 9), 'x.npy'), xs[i])
        np.save(p.path('named', '%d' % (i + 9), 'y.npy'), ys[i])
        np.save(p.path('numbered', 's%d' % i, 'in_0_x.npy'), xs[i])
        np.save(p.path('numbered', 's%d' % i, 'out_0_z.npy'), xs[i])
        with open(p.path('numbered', 's%d' % i, 'input_1.pb'), 'wb') as f:
            f.write(numpy_helper.from_array(ys[i], 'y').SerializeToString())
    np.savez(p.path('cut.npz'), x=np.concatenate(xs), y=np.concatenate(ys))
    np.savez(p.path('stacked.npz'), np.stack(xs), np.stack(ys))
    np.savez_compressed(p.path('deflated.npz'), x=np.concatenate(xs), y=np.stack(ys))
    libraries = {}
    for name in ('named', 'numbered', 'cut.npz', 'stacked.npz', 'deflated.npz'):
        with open(p.library(model, 'm', *STATIC, '--calibrate=' + p.path(name)), 'rb') as f:
            libraries[name] = f.read()
    different = [n for n in libraries if libraries[n] != libraries['named']]
    return 'not the same as from named files: %s' % ' '.join(different) if different else None


def one_input_files(p):
    model = residual(p.path('m.onnx'))
    for i, x in enumerate(samples_of((1, 3, 32, 32), 3)):
        np.save(p.path('flat', 'picture-%d.npy' % i), x)
    one = p.cytoc(model, '-o', p.path('m.so'), '--int8', '--int8-prefer=size', '--calibrate=' + p.path('flat'), '--explain')
    return None if re.search(r'^Conv_0 .* int8$', one, re.M) else '--int8 with samples is not static'


def dynamic_rows(p):
    """Rows of very different size keep their own precision; a row of zeros stays one."""
    model = encoder(p.path('m.onnx'))
    x, y = samples_of((2, 5, 64), 1)[0], samples_of((2, 5, 96), 1, 5)[0]
    x[0, 1] *= 1e-4
    y[0, 1] *= 1e-4
    x[1, 2] = y[1, 2] = 0
    wanted = p.run(p.library(model, 'f'), x, y)[0]
    got = p.run(p.library(model, 'q', '--int8'), x, y)[0]
    worst = min(snr(wanted[i, k], got[i, k]) for i in range(2) for k in range(5))
    return None if worst > 20 else 'a row has %.1f dB only' % worst


def recurrences(p):
    """Recurrent weights in 8 bits, by --int8 and --weights=int8, of every cell; none of few weights, or of an odd number
    of units; errors are measured."""
    for op, gates, attributes, hidden in (('LSTM', 4, {'direction': 'bidirectional'}, 64), ('RNN', 1, {}, 128),
                                          ('GRU', 3, {'linear_before_reset': 1}, 80), ('GRU', 3, {'direction': 'reverse'}, 98),
                                          ('GRU', 3, {}, 20), ('LSTM', 4, {}, 75)):
        n, both, kept = Network(3), 2 if 'direction' in attributes and op == 'LSTM' else 1, hidden in (20, 75)
        b = n.constant(0.1 * n.rng.standard_normal((both, 2 * gates * hidden)))
        n.op(op, 'x', n.weight(both, gates * hidden, 24, scale=0.2), n.weight(both, gates * hidden, hidden, scale=hidden ** -0.5),
             b, hidden_size=hidden, **attributes)
        model = n.save(p.path('m.onnx'), [('x', ['length', 'batch', 24])], [('v0', ['length', both, 'batch', hidden])])
        x = samples_of((17, 2, 24), 1)[0]
        wanted = p.run(p.library(model, 'f'), x)[0]
        for form in ('--int8=dynamic', '--weights=int8', '--int8=dynamic --int8-max-error=5%'):
            text = p.cytoc(model, '-o', p.path('q.so'), '--explain', *form.split())
            rows = re.findall(r'^%s_0 .* %d->%d .*?(int8|integers|float: .*)$' % (op, hidden, gates * hidden), text, re.M)
            if [row[:3] == 'int' for row in rows] != ([] if hidden == 75 else [not kept] * both):
                return '%s of %d, %s: rows %s in %s' % (op, hidden, form, rows, text[-900:])
            got = snr(wanted, p.run(p.path('q.so'), x)[0])
            if got < 35:
                return '%s of %d, %s: %.1f dB' % (op, hidden, form, got)
    return None


def dynamic_limit(p):
    """Layers are measured, on random numbers or samples: one whose input has an outlier that its weights ignore is bad."""
    n = Network(11)
    good = n.op('MatMul', 'x', n.weight(64, 96))
    big = n.rng.standard_normal(96) * 0 + 1
    big[5] = 1e4
    n.weights.append(numpy_helper.from_array(np.float32(big), 'big'))
    weights = n.weight(96, 80)
    array = numpy_helper.to_array(n.weights[-1]).copy()
    array[5] = 0
    n.weights[-1] = numpy_helper.from_array(array, weights)
    n.op('MatMul', n.op('Mul', good, 'big'), weights)
    model, x = n.save(p.path('m.onnx'), [('x', ['batch', 64])], [('v2', ['batch', 80])]), samples_of((7, 64), 1)[0]
    np.savez_compressed(p.path('c.npz'), x=samples_of((64,), 9))
    options = [model, '-o', p.path('m.so'), '--int8=dynamic', '--explain']
    for samples in ([], ['--calibrate=' + p.path('c.npz')]):
        table = p.cytoc(*options, '--int8-max-error=5%', *samples)
        good = re.search(r'^Mul_1 .* ([0-9.]+) +int8$', table, re.M)
        if not good or not 0.1 < float(good.group(1)) < 3:
            return 'the row of Mul_1 in: %s' % table[-600:]
        if not re.search(r'^MatMul_2 .* [0-9.]+ +float: its error is over 5 %$', table, re.M):
            return 'the row of MatMul_2 in: %s' % table[-600:]
        if snr(p.run(p.library(model, 'f'), x)[0], p.run(p.path('m.so'), x)[0]) < 30:
            return 'the layer over the limit is not in float'
    if 'nothing was quantised' not in p.cytoc(*options, '--int8-max-error=0.0001%'):
        return 'no warning although every error is over the limit'
    return 'measured without a limit' if re.search(r'[0-9] +int8$', p.cytoc(*options), re.M) else None


def logarithms_stay_float(p):
    """Waves, and the filters behind them, whose powers a logarithm is taken of; no other products, nor those of softplus."""
    n = Network(13)
    bins, t = 65, np.arange(128)
    waves = [n.constant((np.hanning(128) * f(2 * np.pi * np.arange(bins)[:, None] * t / 128))[:, None]) for f in (np.cos, np.sin)]
    parts = [n.op('Conv', 'x', w, strides=[64]) for w in waves]
    power = n.op('Add', *[n.op('Mul', v, v) for v in parts])
    filters = np.maximum(0, 1 - np.abs(np.arange(bins)[:, None] - np.linspace(0, 64, 64)) / 3)
    mel = n.op('MatMul', n.op('Transpose', power, perm=[0, 2, 1]), n.constant(filters))
    log = n.op('Log', n.op('Max', mel, n.constant(1e-10)))
    log = n.op('Softplus', n.op('MatMul', log, n.weight(64, 96)))
    n.op('MatMul', log, n.weight(96, 64))
    model = n.save(p.path('m.onnx'), [('x', ['batch', 1, 8192])], [(n.nodes[-1].output[0], None), ('v7', None)])
    x = (np.sin(np.arange(8192) * 0.3) + 1e-3 * n.rng.standard_normal(8192)).astype(np.float32)[None, None]
    np.savez(p.path('c.npz'), x=x)
    wanted = p.run(p.library(model, 'f'), x)
    for options, layers in ((['--int8=dynamic', '--int8-prefer=size'], 3), ([*STATIC, '--calibrate=' + p.path('c.npz')], 5)):
        text = p.cytoc(model, '-o', p.path('q.so'), '--explain', *options)
        kept = re.findall(r'^(\w+) .* float: its logarithm is taken', text, re.M)
        if sorted(kept) != sorted(['MatMul_6'] + ['Conv_0', 'Conv_1'] * (layers == 5)) or '2 of 5 layers' not in text:
            return '%s: %s in %s' % (options, kept, text[-900:])
        got = [snr(a, b) for a, b in zip(wanted, p.run(p.path('q.so'), x))]
        if got[0] < 25 or got[1] < 80:
            return '%s: %s dB' % (options, got)
    return None


def spectra_stay_float(p):
    """The waves of a Fourier transform are constants but no weights: weak bins beside strong ones keep their precision."""
    n = Network(12)
    window, step = n.constant(np.hanning(512)), numpy_helper.from_array(np.int64(256), 'step')
    n.weights.append(step)
    n.op('STFT', 'x', 'step', window, onesided=1)
    model = n.save(p.path('m.onnx'), [('x', ['batch', 4096, 1])], [('v0', None)])
    x = (np.sin(np.arange(4096) * 0.3) + 1e-4 * n.rng.standard_normal(4096)).astype(np.float32)[None, :, None]
    np.savez_compressed(p.path('c.npz'), x=x)
    wanted = p.run(p.library(model, 'f'), x)[0][:, :, 100:]
    for options in (['--int8'], [*STATIC, '--calibrate=' + p.path('c.npz')], ['--weights=int8']):
        if snr(wanted, p.run(p.library(model, 'q', *options), x)[0][:, :, 100:]) < 80:
            return '%s quantises a transform' % options[0]
    return None


def limit_in_branches(p):
    """Layers in a branch of an If can't be measured: with a limit they stay in float, without one they don't."""
    n = Network(12)
    w = n.weight(64, 96)
    port = helper.make_tensor_value_info
    branches = {name: helper.make_graph(
        [helper.make_node('MatMul', ['x', w], [name + '_m'], name), helper.make_node(op, [name + '_m'], [name + '_y'])], name, [],
        [port(name + '_y', onnx.TensorProto.FLOAT, [5, 96])]) for name, op in (('then', 'Relu'), ('else', 'Neg'))}
    node = helper.make_node('If', ['c'], ['y'], then_branch=branches['then'], else_branch=branches['else'])
    graph = helper.make_graph([node], 'g', [port('x', onnx.TensorProto.FLOAT, [5, 64]), port('c', onnx.TensorProto.BOOL, [])],
                              [port('y', onnx.TensorProto.FLOAT, [5, 96])], n.weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8), p.path('m.onnx'))
    options = [p.path('m.onnx'), '-o', p.path('m.so'), '--int8', '--explain']
    if not re.search('2 of 2 layers in int8', p.cytoc(*options)):
        return 'the branches are not in integers'
    table = p.cytoc(*options, '--int8-max-error=5%')
    return None if len(re.findall('cannot be measured inside control flow', table)) > 1 else table[-600:]


def sizes(p):
    """Weights are stored once, as bytes."""
    n = Network(5)
    n.op('MatMul', n.op('Relu', n.op('MatMul', 'x', n.weight(512, 1024))), n.weight(1024, 512))
    model = n.save(p.path('m.onnx'), [('x', ['batch', 512])], [(n.nodes[-1].output[0], ['batch', 512])])
    weights = {}
    for name, options in (('f', []), ('d', ['--int8=dynamic'])):
        text = p.cytoc(model, '-o', p.path('m.so'), '--stats', *options)
        weights[name] = float(re.search(r'weights ([0-9.]+) MB', text).group(1))
    return None if weights['d'] <= 0.27 * weights['f'] else 'weights: %s' % weights


def weights_only(p):
    """All forms, for one row and for two, at sizes that blocks divide and that they don't."""
    for k in (256, 250):
        n = Network(8)
        x = n.op('Relu', n.op('Add', n.op('MatMul', 'x', n.weight(k, 384)), n.weight(384)))
        n.op('MatMul', x, n.weight(384, 128))
        model = n.save(p.path('m.onnx'), [('x', ['batch', k])], [(n.nodes[-1].output[0], ['batch', 128])])
        x = samples_of((2, k), 1)[0]
        wanted = p.run(p.library(model, 'f'), x)[0]
        for form, least, share in (('int8', 38, 0.30), ('int8,asymmetric', 38, 0.33), ('int8,block=128', 36, 0.28),
                                   ('int4', 15, 0.18), ('int4,asymmetric', 16, 0.20), ('int4,block=0', 12, 0.15)):
            two = p.run(p.library(model, 'q', '--weights=' + form, '--dim', 'batch=2'), x)[0]
            one = p.run(p.library(model, 'q', '--weights=' + form, '--dim', 'batch=1'), x[:1])[0]
            if snr(wanted, two) < least or snr(two[:1], one) < 80:
                return '%s, k %d: %.1f dB, one row like two: %.1f dB' % (form, k, snr(wanted, two), snr(two[:1], one))
            text = p.cytoc(model, '-o', p.path('q.so'), '--stats', '--weights=' + form, '--dim', 'batch=1')
            stored = float(re.search(r'weights ([0-9.]+) MB', text).group(1)) / (4e-6 * 384 * (k + 129))
            if stored > share + (0 if k == 256 else 0.02):
                return '%s, k %d: %.3f of the bytes' % (form, k, stored)
    return None


def weights_refused(p):
    """Products that would be slower stay exactly as they are: many rows, unknown rows, and no product at all."""
    n = Network(9)
    n.op('MatMul', n.op('Relu', n.op('MatMul', 'x', n.weight(256, 128))), n.weight(128, 32))
    model, x = n.save(p.path('m.onnx'), [('x', ['batch', 256])], [('v2', ['batch', 32])]), samples_of((5, 256), 1)[0]
    for dims, expressions in (([], ['changed nothing: of 2 products', 'MatMul_0 .*rows is not known', 'MatMul_2 .*too small']),
                              (['--dim', 'batch=5'], ['changed nothing', 'MatMul_0 .*more than two rows']),
                              (['--dim', 'batch=2'], ['MatMul_0 .* integers', 'MatMul_2 .*float: too small'])):
        text = p.cytoc(model, '-o', p.path('q.so'), '--weights=int4', '--explain', *dims)
        for expression in expressions:
            if not re.search(expression, text):
                return "%s: nothing like '%s' in: %s" % (dims, expression, text[-600:])
        if ('changed nothing' in text) != (dims[1:] != ['batch=2']):
            return '%s: the warning is wrong' % dims
        if dims[1:] != ['batch=2'] and not np.array_equal(p.run(p.library(model, 'f', *dims), x)[0], p.run(p.path('q.so'), x)[0]):
            return '%s: not the results of float' % dims
    n = Network(10)
    n.op('Relu', 'x')
    text = p.cytoc(n.save(p.path('r.onnx'), [('x', [1, 4])], [('v0', [1, 4])]), '-o', p.path('r.so'), '--weights=int8')
    return None if 'no matrix product' in text else 'no warning for a model without products'


def session(path):
    o = onnxruntime.SessionOptions()
    o.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path, o)


def qdq_file(p, make, feeds, calibration):
    model, out = make(p.path('m.onnx')), p.path('m.qdq.onnx')
    np.savez(p.path('c.npz'), **calibration)
    p.cytoc('quantize', model, '-o', out, '--calibrate=' + p.path('c.npz'))
    onnx.checker.check_model(out)
    graph = onnx.load(out).graph
    layers = [n for n in graph.node if n.op_type in ('Conv', 'Gemm') or n.op_type == 'MatMul' and 'weight' in n.input[1]]
    plain = [n.name for n in layers if not all(re.search(r'_dequantized(_\d+)?$', x) for x in n.input[:2])]
    if plain or not layers:
        return 'not quantised: %s' % (plain or 'all')
    wanted, got = session(model).run(None, feeds)[0], session(out).run(None, feeds)[0]
    own = p.run(p.library(out, 'q'), *feeds.values())[0]
    if snr(wanted, got) < 22:
        return 'ONNX Runtime has %.1f dB' % snr(wanted, got)
    return None if snr(got, own) > 35 else 'cytoc and ONNX Runtime agree to %.1f dB only' % snr(got, own)


def qdq_residual(p):
    return qdq_file(p, residual, {'x': samples_of((2, 3, 32, 32), 1, 9)[0]}, {'x': samples_of((3, 32, 32), 16)})


def names_taken(path):
    """residual(), whose values have names like those of what is put in."""
    model = onnx.load(residual(path))
    names = {'v%d' % i: name for i, name in enumerate(('x_scale', 'x_dequantized', 'x_quantized', 'x_scale_weight', 'x_zero_point',
                                                       'x_dequantized_scale', 'x_dequantized_1'))}
    for node in model.graph.node:
        node.input[:] = [names.get(x, x) for x in node.input]
        node.output[:] = [names.get(x, x) for x in node.output]
    onnx.save(model, path)
    return path


def qdq_names(p):
    return qdq_file(p, names_taken, {'x': samples_of((2, 3, 32, 32), 1, 9)[0]}, {'x': samples_of((3, 32, 32), 16)})


def older(path, opset):
    """What changed between operator sets 7 and 13, as the set at hand has it."""
    n = Network(21)

    def ints(*values):
        n.weights.append(numpy_helper.from_array(np.int64(values), 'w%d' % len(n.weights)))
        return n.weights[-1].name

    def moved(since, op, x, **values):
        """Attributes until `since`, then inputs."""
        if opset < since:
            return n.op(op, x, **values)
        return n.op(op, x, *[ints(*np.ravel(v)) if isinstance(v, (int, list)) else n.constant(v) for v in values.values()])
    x = moved(11, 'Pad', 'x', pads=[0, 0, 1, 1, 0, 0, 1, 1])
    x = moved(11, 'Clip', n.conv(x, 3, 16), min=0.0, max=6.0)
    x = n.op('Dropout', x, **({'ratio': 0.3} if opset < 12 else {}))
    scales, half = (np.float32([1, 1, s, s]) for s in (2, 0.5))
    if opset < 9:
        x = n.op('Upsample', x, scales=scales)
    elif opset < 10:
        x = n.op('Upsample', x, n.constant(scales))
    elif opset < 11:
        x = n.op('Resize', n.op('Resize', n.op('Resize', x, n.constant(scales), mode='linear'), n.constant(half)), n.constant(scales))
    else:
        x = n.op('Resize', x, n.constant(np.float32([])), n.constant(scales))
    x = moved(10, 'Slice', n.conv(x, 16, 24), starts=[1, 2], ends=[20, 30], axes=[2, 3])
    x = n.conv(x, 24, 8)
    x = n.op('Mul', x, n.op('Mul', n.op('Softmax', n.op('Mul', x, n.constant(0.3)), axis=2), n.constant(100)))
    x = n.op('BatchNormalization', n.conv(x, 8, 8), *(n.constant(np.float32([v] * 8)) for v in (1, 0.1, 0, 1)),
             **({'spatial': 1} if opset < 9 else {}))
    x = moved(13, 'Squeeze', moved(13, 'ReduceSum', n.op('Relu', x), axes=[2]), axes=[2])
    n.op('LogSoftmax', n.op('Gemm', n.op('Flatten', x), n.weight(224, 10, scale=0.02), n.weight(10)), axis=1)
    return n.save(path, [('x', [1, 3, 16, 16])], [(n.nodes[-1].output[0], [1, 10])], opset)


def qdq_older_operators(p):
    """Models of all sets from 7 on; those of 13 and newer keep their set."""
    for opset in (7, 8, 9, 10, 11, 12, 13):
        why = qdq_file(p, lambda path: older(path, opset), {'x': samples_of((1, 3, 16, 16), 1, 9)[0]},
                       {'x': samples_of((3, 16, 16), 16)})
        if why:
            return 'operator set %d: %s' % (opset, why)
    return None


def qdq_external(p):
    """A model with tensor data in another file: in it comes, and out goes one. What lies outside of its folder is refused."""
    def make(path):
        model = onnx.load(residual(p.path('in_one_file.onnx')))
        embedded = p.path('in', 'm.onnx')
        onnx.save(model, embedded, save_as_external_data=True, location='weights.bin', size_threshold=64)
        return embedded
    x, path = samples_of((2, 3, 32, 32), 1, 9)[0], p.path('m.qdq.onnx')
    why = qdq_file(p, make, {'x': x}, {'x': samples_of((3, 32, 32), 16)})
    if why:
        return why
    if not os.path.exists(path + '.data') or os.path.getsize(path) > 30000:
        return 'the data is not beside the model, which has %d bytes' % os.path.getsize(path)
    outside = session(path).run(None, {'x': x})[0]
    p.cytoc('quantize', p.path('in_one_file.onnx'), '-o', path, '--calibrate=' + p.path('c.npz'))
    if not np.array_equal(outside, session(path).run(None, {'x': x})[0]):
        return 'not the model that one file gives'
    os.remove(path)
    os.remove(path + '.data')
    os.rename(p.path('in', 'weights.bin'), p.path('weights.bin'))
    os.symlink(p.path('weights.bin'), p.path('in', 'weights.bin'))
    code, _, err = lib.run([p.args.cytoc, 'quantize', p.path('in', 'm.onnx'), '-o', path, '--calibrate=' + p.path('c.npz')])
    if code != 1 or 'symbolic link' not in err or os.path.exists(path) or os.path.exists(path + '.data'):
        return 'exit code %d: %s' % (code, err)
    return None


def qdq_encoder(p):
    feeds = {'x': samples_of((2, 5, 64), 1)[0], 'y': samples_of((2, 5, 96), 1, 5)[0]}
    return qdq_file(p, encoder, feeds, {'x': samples_of((1, 7, 64), 4), 'y': samples_of((1, 7, 96), 4, 5)})


def odd_activations(p):
    """Layers that read zeros only, or infinities, stay in float, and it is said; nothing to quantise is a warning."""
    n = Network(6)
    a = n.conv(n.op('Relu', n.op('Neg', n.op('Abs', 'x'))), 3, 8)
    b = n.conv(n.op('Exp', n.op('Mul', 'x', n.weight(1, scale=1e6))), 3, 8)
    n.op('Concat', n.conv('x', 3, 8), a, b, axis=1)
    model = n.save(p.path('m.onnx'), [('x', [1, 3, 8, 8])], [(n.nodes[-1].output[0], [1, 24, 8, 8])])
    np.savez(p.path('c.npz'), x=samples_of((3, 8, 8), 2))
    options = ['-o', p.path('m.so'), '--calibrate=' + p.path('c.npz'), '--int8', '--int8-prefer=size', '--explain']
    text = p.cytoc(model, *options)
    for expression in ('always 0', 'NaN or infinity', "warning: .*'Conv_3'", '1 of 3 layers in int8'):
        if not re.search(expression, text):
            return "nothing like '%s' in: %s" % (expression, text[-600:])
    n = Network(7)
    n.op('Relu', 'x')
    model = n.save(p.path('r.onnx'), [('x', [1, 4])], [(n.nodes[-1].output[0], [1, 4])])
    for option in (['--int8'], options[2:]):
        text = p.cytoc(model, '-o', p.path('r.so'), *option)
        if 'nothing to quantise' not in text or not os.path.exists(p.path('r.so')):
            return 'no warning and library where there is nothing to quantise'
    return None


def half_digits(p):
    """The trained example reads the same, from a library with weights of half the bytes, with inputs of either type."""
    images, labels = digits(p)
    wanted = p.run(p.library(os.path.join(DIGITS, 'digits.onnx'), 'f'), images)[0]
    for option, dtype, least in (('--fp16', np.float16, 60), ('--bf16', None, 40)):
        library = p.library(os.path.join(DIGITS, 'digits.onnx'), 'h', option)
        got = p.run(library, images)[0]
        right = [int((y.argmax(1) == labels).sum()) for y in (wanted, got)]
        if right[0] != right[1] or snr(wanted, got) < least:
            return '%s: %d right instead of %d, %.1f dB' % (option, right[1], right[0], snr(wanted, got))
        if dtype:
            got = p.run(p.library(os.path.join(DIGITS, 'digits.onnx'), 'io', option, '--half-io'), dtype(images))[0]
            if got.dtype != dtype or snr(wanted, got) < least - 5:
                return '%s --half-io: %s, %.1f dB' % (option, got.dtype, snr(wanted, got))
    return None


def half_networks(p):
    """Every kind of product, with sizes known and not; the library is about half as large."""
    n = Network(11)
    x = n.op('Relu', n.conv('x', 16, 64))
    x = n.op('Add', n.op('Relu', n.conv(x, 64, 64, k=1)), n.conv(x, 64, 64, group=64))
    x = n.op('Relu', n.conv(x, 64, 96, group=2, strides=[2, 2]))
    up = n.op('ConvTranspose', x, n.weight(96, 48, 2, 2), kernel_shape=[2, 2], strides=[2, 2])
    n.op('MatMul', n.op('MatMul', up, n.weight(48, 16, 96)), n.op('Transpose', n.weight(80, 96), perm=[1, 0]))
    image = n.save(p.path('image.onnx'), [('x', ['batch', 16, 16, 16])], [(n.nodes[-1].output[0], ['batch', 48, 16, 80])])
    n = Network(13)
    n.op('MatMul', n.op('Relu', 'x'), n.op('Transpose', n.weight(2112, 2048), perm=[1, 0]))  # packed from where it lies in the file
    large = n.save(p.path('large.onnx'), [('x', ['batch', 2048])], [(n.nodes[-1].output[0], ['batch', 2112])])
    for model, feeds in ((large, samples_of((3, 2048), 1)), (image, samples_of((3, 16, 16, 16), 1)),
                         (encoder(p.path('text.onnx')), [samples_of((2, 5, 64), 1)[0], samples_of((2, 5, 96), 1, 5)[0]])):
        wanted = p.run(p.library(model, 'f'), *feeds)[0]
        full = float(re.search(r'weights ([0-9.]+) MB', p.cytoc(model, '-o', p.path('f.so'), '--stats')).group(1))
        for option, least in (('--fp16', 60), ('--bf16', 42)):
            got = p.run(p.library(model, 'h', option), *feeds)[0]
            fixed = p.run(p.library(model, 'x', option, '--dim', '*=1'), *[x[:1] for x in feeds])[0] if len(feeds) == 1 else got
            stored = float(re.search(r'weights ([0-9.]+) MB', p.cytoc(model, '-o', p.path('h.so'), '--stats', option)).group(1))
            if snr(wanted, got) < least or snr(wanted[:len(fixed)], fixed) < least or stored > 0.55 * full:
                return '%s %s: %.1f dB, of known sizes %.1f dB, %.2f MB of %.2f' % (
                    option, model, snr(wanted, got), snr(wanted[:len(fixed)], fixed), stored, full)
    return None


def half_models(p):
    """A model that comes in half precision keeps its weights so, but for the product that takes a normalisation's scale,
    and computes what f32 weights of the same values do."""
    model = onnx.load(encoder(p.path('f.onnx')))
    graph = model.graph
    rounded = [numpy_helper.to_array(w).astype(np.float16) for w in graph.initializer]
    for w, values in zip(graph.initializer, rounded):
        w.CopyFrom(numpy_helper.from_array(values, w.name))
    for port in [*graph.input, *graph.output]:
        port.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    onnx.save(model, p.path('h.onnx'))
    x = [np.float16(samples_of((2, 5, 64), 1)[0]), np.float16(samples_of((2, 5, 96), 1, 5)[0])]
    got = p.run(p.library(p.path('h.onnx'), 'h'), *x)[0]
    wanted = p.run(p.library(p.path('h.onnx'), 'o', '-O0'), *x)[0]
    stored, whole = (float(re.search(r'weights ([0-9.]+) MB', p.cytoc(p.path(m), '-o', p.path('s.so'), '--stats')).group(1))
                     for m in ('h.onnx', 'f.onnx'))
    if stored > 0.7 * whole:
        return '%.2f MB of weights, %.2f in f32' % (stored, whole)
    return None if got.dtype == np.float16 and snr(wanted, got) > 60 else '%s, %.1f dB' % (got.dtype, snr(wanted, got))


def half_pairs(p):
    """vdpbf16ps where the CPU has it, for products and the convolutions that Winograd or a kernel of their own does not do
    faster; nowhere else."""
    n = Network(15)
    x = n.op('Relu', n.conv('x', 16, 64, strides=[2, 2]))
    x = n.op('Relu', n.conv(x, 64, 256, k=1))
    x = n.op('Relu', n.conv(x, 256, 64))  # by Winograd
    x = n.op('Flatten', n.op('GlobalAveragePool', n.conv(n.conv(x, 64, 64, group=64), 64, 64, group=4)))
    n.op('MatMul', x, n.weight(64, 200))
    image = n.save(p.path('image.onnx'), [('x', [1, 16, 56, 56])], [(n.nodes[-1].output[0], [1, 200])])
    text = encoder(p.path('text.onnx'))
    model = onnx.load(text)
    for w in model.graph.initializer:
        bits = (numpy_helper.to_array(w).view(np.uint32) >> 16).astype(np.uint16)
        w.CopyFrom(helper.make_tensor(w.name, onnx.TensorProto.BFLOAT16, bits.shape, bits.tobytes(), raw=True))
    for port in [*model.graph.input, *model.graph.output]:
        port.type.tensor_type.elem_type = onnx.TensorProto.BFLOAT16
    onnx.save(model, p.path('halves.onnx'))
    sizes = ['--dim', 'batch=2', '--dim', 'length=64']
    for target, has in (('cooperlake', True), ('znver4', True), ('graniterapids', True), ('icelake-server', False)):
        for model, options, kinds in ((image, ['--bf16'], {'conv bf16 pairs': 1, 'gemm bf16 pairs': 2}), (image, ['--fp16'], {}),
                                      (image, [], {}), (text, ['--bf16', *sizes], {'gemm bf16 pairs': 5}),
                                      (p.path('halves.onnx'), sizes, {'gemm bf16 pairs': 5})):
            table = p.cytoc(model, '-o', '-', '--emit=asm', '--explain', '--target=' + target, *options)
            found = {k: table.count(k) for k in ('conv bf16 pairs', 'gemm bf16 pairs') if k in table}
            if found != (kinds if has else {}) or ('vdpbf16ps' in table) != bool(has and kinds):
                return '%s %s %s: %s' % (target, os.path.basename(model), ' '.join(options), found)
            if model == image and has and kinds and ('winograd f4x3 bf16' not in table or 'depthwise' not in table):
                return 'Winograd and depthwise convolutions do not stay'
    return None


def smallest(p):
    """Layers of equal shape are one kernel, whatever their zero points. With --int8-prefer=size weights are not cut where parts
    of them would come again: other code, the same sums."""
    n = Network(31)
    x = n.conv('x', 8, 16)
    for _ in range(4):
        x = n.op('LeakyRelu', n.conv(x, 16, 16, k=1), alpha=0.2)
    model = n.save(p.path('m.onnx'), [('x', [1, 8, 20, 20])], [(x, [1, 16, 20, 20])])
    xs = samples_of((1, 8, 20, 20), 6)
    np.savez(p.path('c.npz'), x=np.stack(xs))
    wanted = p.run(p.library(model, 'f'), xs[0])[0]
    text = p.cytoc(model, '-o', p.path('m.so'), *STATIC, '--calibrate=' + p.path('c.npz'), '--int8-skip=Conv_0', '--explain')
    runs = [int(r) for r in re.findall(r'(?m)^m_k\d+_conv +(\d+) ', text)]
    if sorted(runs) != [1, 1, 3]:
        return 'kernels run %s times: %s' % (runs, text)
    good = snr(wanted, p.run(p.path('m.so'), xs[0])[0])
    if good < 30:
        return '%.1f dB' % good
    w = np.random.default_rng(5).integers(-50, 50, (256, 64)).astype(np.int8)
    w[16:18, 3] = 120
    product = helper.make_graph([helper.make_node('MatMulInteger', ['x', 'w'], ['y'], 'product')], 'g',
                                [helper.make_tensor_value_info('x', onnx.TensorProto.UINT8, [40, 256])],
                                [helper.make_tensor_value_info('y', onnx.TensorProto.INT32, [40, 64])],
                                [numpy_helper.from_array(w, 'w')])
    onnx.save(helper.make_model(product, opset_imports=[helper.make_opsetid('', 17)], ir_version=8), p.path('i.onnx'))
    x = np.random.default_rng(6).integers(0, 256, (40, 256)).astype(np.uint8)
    for options, algorithm in (([], 'gemm int8 cut'), (['--int8', '--int8-prefer=size'], 'gemm int8 pairs')):
        if algorithm not in p.cytoc(p.path('i.onnx'), '-o', p.path('i.so'), '--target=x86-64-v3', '--explain', *options):
            return 'no ' + algorithm
        if not np.array_equal(p.run(p.path('i.so'), x)[0], np.int32(x) @ np.int32(w)):
            return algorithm + ' differs'
    return None


def half_overflow(p):
    """A constant beyond f16 is named and stays f32; bf16 takes it."""
    n = Network(12)
    w = n.weight(64, 64)
    big = n.weight(64, 32, scale=1e6)
    n.op('MatMul', n.op('MatMul', 'x', w), big)
    model = n.save(p.path('m.onnx'), [('x', [4, 64])], [(n.nodes[-1].output[0], [4, 32])])
    x = samples_of((4, 64), 1)[0]
    wanted = p.run(p.library(model, 'f'), x)[0]
    text = p.cytoc(model, '-o', p.path('h.so'), '--fp16')
    if not re.search(r"warning: .*'%s' stays in f32.*65504.*--bf16" % big, text) or "'%s'" % w in text:
        return 'not named: ' + text
    if snr(wanted, p.run(p.path('h.so'), x)[0]) < 60:
        return 'f16: %.1f dB' % snr(wanted, p.run(p.path('h.so'), x)[0])
    text = p.cytoc(model, '-o', p.path('h.so'), '--bf16')
    good = snr(wanted, p.run(p.path('h.so'), x)[0])
    return None if good > 42 and 'warning' not in text else 'bf16: %.1f dB, %s' % (good, text)


def half_limit(p):
    """Products that cost more than allowed stay in f32, by measuring: one of weights whose differences count, one whose
    weights are beyond f16, and on tensor cores one whose activations are."""
    n = Network(14)
    a = n.op('MatMul', 'x', n.weight(64, 48))
    near = n.weight(48, 32)
    n.weights[-1].CopyFrom(numpy_helper.from_array(np.float32(1000 + n.rng.standard_normal((48, 32)) / 100), near))
    centred = n.op('Sub', a, n.op('ReduceMean', a, keepdims=1, axes=[1]))
    b = n.op('MatMul', centred, near)
    c = n.op('MatMul', b, n.weight(32, 16, scale=1e6))
    n.op('MatMul', c, n.weight(16, 8))
    model = n.save(p.path('m.onnx'), [('x', ['batch', 64])], [(n.nodes[-1].output[0], ['batch', 8])])
    x = samples_of((8, 64), 1)[0]
    wanted = p.run(p.library(model, 'f'), x)[0]

    def verdicts(*options):
        text = p.cytoc(model, '-o', p.path('h.so'), '--fp16', '--explain', *options)
        return re.findall(r'^MatMul_\d+ .*  (\S.*)$', text, re.M), text
    np.savez(p.path('c.npz'), x=x[None])
    for options in ((), ('--calibrate=' + p.path('c.npz'),)):
        found, text = verdicts('--half-max-error=1%', *options)
        got = snr(wanted, p.run(p.path('h.so'), x)[0])
        if found != ['f16', 'float: its error is over 1 %', 'float: its values are beyond half precision', 'f16'] or \
                '2 of 4 layers in f16' not in text or got < 30:
            return '%.1f dB, %s' % (got, text)
    if snr(wanted, p.run(p.library(model, 'all', '--fp16'), x)[0]) > 10:
        return 'the second product costs nothing'
    found, text = verdicts('--half-max-error=1%', '--target=sm_80', '--emit=graph')
    return None if found[2:] == ['float: its values are beyond half precision'] * 2 else text


TESTS = [half_digits, half_networks, half_models, half_pairs, half_overflow, half_limit, smallest, odd_activations, digits_top1,
         transformer_top1, static_blocks, long_tails, streams_stay_float, whole_blocks_in_integers, skip_and_limit,
         small_outputs, slow_layers, forms_of_samples, one_input_files, dynamic_rows, recurrences, dynamic_limit,
         limit_in_branches, sizes, weights_only, weights_refused, logarithms_stay_float, spectra_stay_float,
         qdq_residual, qdq_names, qdq_older_operators, qdq_external, qdq_encoder]


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    for test in TESTS:
        if not args.wanted(test.__name__):
            continue
        place = Place(args, test.__name__)
        try:
            why = test(place)
        except RuntimeError as e:
            why = str(e)
        suite.result(test.__name__, why)
        place.remove()
    suite.done()


if __name__ == '__main__':
    main()
