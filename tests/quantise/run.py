# SPDX-License-Identifier: Apache-2.0
"""Quantisation of float models: accuracy on the trained example, all forms of samples, what stays in float; the QDQ
files that are written (qdq_files.py); weights in half precision (halves.py); products of any number of rows (rows.py);
what libraries store (stored.py, tables.py); the outputs of the whole (whole.py), estimated (estimate.py); models quantised in part (mixed.py).

In:  examples/digits, vit/vit.onnx (trained by vit/train.py on the same images), networks made here with fixed random
     numbers (shared.py). Out: the closing line.

A float library of the same model is what errors are measured against, as signal-to-noise ratio in dB.
"""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import numpy as np
from onnx import helper, numpy_helper

import estimate
import graphs
import halves
import lib
import mixed
import qdq_files
import rows
import stored
import tables
import unet
import whole
from shared import DIGITS, STATIC, Network, Place, digits, encoder, residual, samples_of, snr


def top1(p, library, images, labels):
    return (p.run(library, images)[0].reshape(len(labels), -1).argmax(1) == labels).mean()


def shifted(images, labels):
    """By up to a pixel in each direction."""
    wide = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return np.concatenate([wide[:, :, y:y + 8, x:x + 8] for y in range(3) for x in range(3)]), np.tile(labels, 9)


def loses(p, model, least, options, variants=lambda *test: test):
    """Right answers of the static and of the dynamic library: at most 0.5 and 1 % fewer, of `least` layers in integers each. Every
    third image is for calibration, all are for testing."""
    images, labels = digits()
    np.savez(p.path('c.npz'), image=images[::3])
    images, labels = variants(images, labels)
    wanted = top1(p, p.library(model, 'f'), images, labels)
    for name, allowed, more in (('static', 0.005, [*STATIC, '--calibrate=' + p.path('c.npz')]),
                                ('dynamic', 0.01, ['--int8=dynamic', *options])):
        text = p.cytoc(model, '-o', p.path('q.so'), '--explain', *more)
        got, layers = top1(p, p.path('q.so'), images, labels), int(re.search(r'(\d+) of \d+ layers in int8', text).group(1))
        if got < wanted - allowed or layers < least[name]:
            return '%s: %.2f %% right, %.2f %% in float, %d layers in integers' % (name, 100 * got, 100 * wanted, layers)
    return None


def digits_top1(p):
    return loses(p, os.path.join(DIGITS, 'digits.onnx'), {'static': 4, 'dynamic': 3}, ['--int8-prefer=size'])


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


def room_for_others(p):
    """Few samples of few values: others lie beyond what these had, for which mse leaves room, unlike minmax."""
    rng = np.random.default_rng(6)
    n = Network(22)
    n.op('MatMul', n.op('MatMul', 'x', n.weight(32, 32)), n.weight(32, 64))
    model = n.save(p.path('m.onnx'), [('x', ['batch', 32])], [('v1', ['batch', 64])])
    np.savez(p.path('c.npz'), x=np.float32(rng.laplace(size=(8, 32))))
    test, found = np.float32(rng.laplace(size=(500, 32))), {}
    wanted = p.run(p.library(model, 'f'), test)[0]
    for how in ('minmax', 'mse'):
        q = p.library(model, 'q', *STATIC, '--calibrate=' + p.path('c.npz'), '--calibration=' + how, '--int8-min-snr=off')
        found[how] = snr(wanted, p.run(q, test)[0])
    return None if found['mse'] > found['minmax'] + 3 else 'dB: %s' % found


def rare_channels(p):
    """Channels of a depthwise layer that are little active on the samples: where they are more active they are not cut
    off."""
    rng = np.random.default_rng(7)
    n = Network(23)
    n.conv('x', 16, 16, group=16)
    model = n.save(p.path('m.onnx'), [('x', ['batch', 16, 8, 8])], [('v0', ['batch', 16, 8, 8])])

    def seen(count):
        rare = np.where(np.arange(16) % 2, 1, 0.02 * rng.exponential(size=(count, 16)))
        return np.float32(rng.uniform(-1, 1, (count, 16, 8, 8)) * rare[..., None, None])
    np.savez(p.path('c.npz'), x=seen(16))
    test = seen(100)
    wanted = p.run(p.library(model, 'f'), test)[0]
    got = p.run(p.library(model, 'q', *STATIC, '--calibrate=' + p.path('c.npz')), test)[0]
    found = snr(wanted[:, ::2], got[:, ::2])
    return None if found > 42 else '%.1f dB' % found


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
    """A layer that by itself spoils an output stays in float: here differences of large numbers, which others do not
    mind."""
    n = Network(15)
    hidden = n.op('Add', n.conv('x', 16, 32, k=1), n.constant(40))
    n.conv(hidden, 32, 24, k=1)
    n.op('Tanh', n.conv(hidden, 32, 16))
    weights = n.constants[-2]
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
    n = Network(9)
    n.conv(n.op('Relu', n.conv('x', 64, 64)), 64, 64)  # where Winograd gains least on wide vectors
    n.save(p.path('m.onnx'), [('x', [1, 64, 56, 56])], [(n.nodes[-1].output[0], [1, 64, 56, 56])])
    np.savez(p.path('c.npz'), x=samples_of((64, 56, 56), 2))
    for target, wanted in (('x86-64-v3', 'float: no gain'), ('x86-64-v4', 'float: no gain'), ('icelake-server', 'int8')):
        table = p.cytoc(*options, '--target=' + target)
        if re.findall(r'^Conv_[02] .* (int8|float: no gain)$', table, re.M) != [wanted] * 2:
            return '%s, not %s: %s' % (target, wanted, table[-600:])
    return None


def turned_weights(p):
    """Large ones that the product reads by columns, which float packs without turning them."""
    n = Network(10)
    n.op('Gemm', 'x', n.weight(2100, 2048), transB=1)
    model = n.save(p.path('m.onnx'), [('x', [1, 2048])], [(n.nodes[-1].output[0], [1, 2100])])
    x = samples_of((1, 2048), 1)[0]
    np.savez(p.path('c.npz'), x=np.stack([x] * 2)[:, 0])
    wanted = p.run(p.library(model, 'f'), x)[0]
    for options in (['--int8'], ['--int8', '--calibrate=' + p.path('c.npz')], ['--weights=int8']):
        got = p.run(p.library(model, 'q', *options), x)[0]
        size, good = os.path.getsize(p.path('q.so')), snr(wanted, got)
        if size > 6e6 or good < 35:
            return '%s: %.1f MB, %.1f dB' % (options[0], size / 1e6, good)
    return None


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
        np.save(p.path('flat', 'image-%d.npy' % i), x)
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


def dynamic_images(p):
    """A scale per image: those of very different size keep their own precision, whatever lies beside them in the batch; one
    of zeros stays one, NaN stays where it is. In one, two and three dimensions, symbolic sizes, padding that differs by side;
    strided, dilated, grouped, depthwise, behind a ReLU and not."""
    for sizes, ways in (((50,), ({'pads': [2, 1]}, {'strides': [2]}, {'group': 4})),
                        ((11, 14), ({'pads': [0, 1, 2, 1]}, {'strides': [2, 1], 'pads': [1] * 4}, {'group': 16, 'pads': [1] * 4})),
                        ((6, 8, 11), ({'pads': [1] * 6}, {'dilations': [1, 2, 2]}, {'group': 2}))):
        n, rank = Network(19), len(sizes)
        x = 'x'
        for k, way in enumerate(ways):
            x = n.op('Conv', x, n.weight(16, 16 // way.get('group', 1), *[3] * rank), n.weight(16, scale=0.1), **way)
            x = n.op('Relu', x) if k == 1 else x
        names = ['batch', 16] + ['size%d' % i for i in range(rank)]
        model = n.save(p.path('m.onnx'), [('x', names)], [(x, ['batch', 16] + [None] * rank)])
        x = samples_of((4, 16, *sizes), 1)[0]
        x[1] *= 1e-4
        x[2] = 0
        text = p.cytoc(model, '-o', p.path('q.so'), '--int8', '--int8-prefer=size', '--explain')
        if '3 of 3 layers in int8' not in text:
            return text[-700:]
        wanted, got = p.run(p.library(model, 'f'), x)[0], p.run(p.path('q.so'), x)[0]
        worst = min(snr(wanted[i], got[i]) for i in range(4))
        if worst < 30:
            return '%d dimensions: an image has %.1f dB only' % (rank, worst)
        if not all(np.array_equal(got[i:i + 1], p.run(p.path('q.so'), x[i:i + 1])[0]) for i in range(4)):
            return '%d dimensions: an image depends on those beside it' % rank
        x[3].reshape(-1)[7] = np.nan
        odd = p.run(p.path('q.so'), x)[0]
        if not np.array_equal(odd[:3], got[:3]) or not np.isnan(odd[3]).any():
            return '%d dimensions: NaN does not stay where it is' % rank
    return None


def dynamic_steps(p):
    """What is never negative has 255 steps, not 127: error a quarter in power. What only seems so has not."""
    found = []
    for op, attributes, least in (('Relu', {}, 36), ('Sigmoid', {}, 36), ('LeakyRelu', {'alpha': 0.9}, 30)):
        n = Network(20)
        n.op('Conv', n.op(op, 'x', **attributes), n.weight(32, 64, 1, 1))
        model = n.save(p.path('m.onnx'), [('x', [2, 64, 9, 9])], [('v1', [2, 32, 9, 9])])
        x = np.float32(np.random.default_rng(3).uniform(-1, 1, (2, 64, 9, 9)))
        text = p.cytoc(model, '--int8', '--int8-prefer=size', '--stop-after=quantise')
        if ('u8' in text) != (op != 'LeakyRelu'):
            return '%s: %s' % (op, text[-700:])
        found.append(snr(p.run(p.library(model, 'f'), x)[0], p.run(p.library(model, 'q', '--int8', '--int8-prefer=size'), x)[0]))
        if found[-1] < least:
            return '%s: %.1f dB' % (op, found[-1])
    return None


def dynamic_slow_layers(p):
    """Convolutions that gain less than rounding costs, depthwise ones and those of few channels, stay in float; with VNNI dense
    ones do not."""
    n = Network(22)
    x = n.op('Relu', n.conv('x', 3, 16))
    x = n.op('Relu', n.conv(x, 16, 16, group=16))
    x = n.op('Relu', n.conv(x, 16, 256, k=1))
    x = n.op('Relu', n.conv(x, 256, 256))
    model = n.save(p.path('m.onnx'), [('x', [1, 3, 28, 28])], [(x, [1, 256, 28, 28])])
    for target, dense in (('x86-64-v3', 'float: no gain'), ('icelake-server', 'int8')):
        table = p.cytoc(model, '-o', p.path('m.so'), '--int8', '--explain', '--target=' + target)
        verdicts = dict(re.findall(r'^(Conv_[0246]) .* (int8|float: no gain)$', table, re.M))
        if [verdicts.get(k) for k in ('Conv_2', 'Conv_6')] != ['float: no gain', dense]:
            return '%s: %s' % (target, table[-700:])
    return None


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
    n.constants.append(graphs.constant('big', np.float32(big)))
    weights = n.weight(96, 80)
    array = numpy_helper.to_array(n.constants[-1]).copy()
    array[5] = 0
    n.constants[-1] = numpy_helper.from_array(array, weights)
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
    if re.search(r'[0-9] +int8$', p.cytoc(*options), re.M):
        return 'measured without a limit'
    n = Network(11)
    x = n.op('Mul', n.conv('x', 16, 64), n.constant(big[:64, None, None]))
    weights = n.rng.standard_normal((32, 64, 1, 1))
    weights[:, 5] = 0
    n.op('Conv', x, n.constant(weights))
    model = n.save(p.path('c.onnx'), [('x', ['batch', 16, 12, 12])], [('v2', ['batch', 32, 12, 12])])
    table = p.cytoc(model, '-o', p.path('m.so'), '--int8=dynamic', '--explain', '--int8-prefer=size', '--int8-max-error=5%')
    return None if re.findall(r'^\w+_[012] .* [0-9.]+ +(int8|float: its error is over 5 %)$', table, re.M) == [
        'int8', 'float: its error is over 5 %'] else table[-600:]


def logarithms_stay_float(p):
    """Waves, and the filters behind them, whose powers a logarithm is taken of; no other products, nor those of
    softplus."""
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
    for options in ['--int8=dynamic', '--int8-prefer=size'], [*STATIC, '--calibrate=' + p.path('c.npz')]:
        text = p.cytoc(model, '-o', p.path('q.so'), '--explain', *options)
        kept = re.findall(r'^(\w+) .* float: its logarithm is taken', text, re.M)
        if sorted(kept) != ['Conv_0', 'Conv_1', 'MatMul_6'] or '2 of 5 layers' not in text:
            return '%s: %s in %s' % (options, kept, text[-900:])
        got = [snr(a, b) for a, b in zip(wanted, p.run(p.path('q.so'), x))]
        if got[0] < 25 or got[1] < 80:
            return '%s: %s dB' % (options, got)
    return None


def spectra_stay_float(p):
    """The waves of a Fourier transform are constants but no weights: weak bins beside strong ones keep their precision."""
    n = Network(12)
    window, step = n.constant(np.hanning(512)), graphs.constant('step', np.int64(256))
    n.constants.append(step)
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
    """Layers in a branch of an If can't be measured: with a limit they stay in float, without one they don't, with samples
    neither."""
    port = graphs.port
    for layer, weights, ins, outs in (('MatMul', (64, 96), [5, 64], [5, 96]), ('Conv', (96, 64, 1, 1), [1, 64, 20, 20], [1, 96, 20, 20])):
        n = Network(12)
        w = n.weight(*weights)
        branches = {name: helper.make_graph(
            [helper.make_node(layer, ['x', w], [name + '_m'], name), helper.make_node(op, [name + '_m'], [name + '_y'])], name, [],
            [port(name + '_y', np.float32, outs)]) for name, op in (('then', 'Relu'), ('else', 'Neg'))}
        node = helper.make_node('If', ['c'], ['y'], then_branch=branches['then'], else_branch=branches['else'])
        graphs.save_model(p.path('m.onnx'), [node], [port('x', np.float32, ins), port('c', bool, [])], [port('y', np.float32, outs)],
                          n.constants)
        np.savez(p.path('c.npz'), x=samples_of(ins, 1)[0][None], c=np.array([True]))
        options = [p.path('m.onnx'), '-o', p.path('m.so'), '--explain', '--int8-prefer=size']
        for how in ['--int8'], ['--int8=static', '--calibrate=' + p.path('c.npz')]:
            if not re.search('2 of 2 layers in int8', p.cytoc(*options, *how)):
                return '%s, %s: the branches are not in integers' % (layer, how[0])
        table = p.cytoc(*options, '--int8', '--int8-max-error=5%')
        if len(re.findall('cannot be measured inside control flow', table)) < 2:
            return table[-600:]
    return None


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
            text = p.cytoc(model, '-o', p.path('q.so'), '--stats', '--weights=' + form, '--dim', 'batch=1')
            one = p.run(p.path('q.so'), x[:1])[0]
            if snr(wanted, two) < least or snr(two[:1], one) < 80:
                return '%s, k %d: %.1f dB, one row like two: %.1f dB' % (form, k, snr(wanted, two), snr(two[:1], one))
            stored = float(re.search(r'weights ([0-9.]+) MB', text).group(1)) / (4e-6 * 384 * (k + 129))
            if stored > share + (0 if k == 256 else 0.02):
                return '%s, k %d: %.3f of the bytes' % (form, k, stored)
    return None


def small_products(p):
    """Layers too small to gain time: in float, but where size counts."""
    n = Network(9)
    n.op('MatMul', n.op('Relu', n.op('MatMul', 'x', n.weight(60, 60))), n.weight(60, 60))
    model, x = n.save(p.path('m.onnx'), [('x', ['batch', 60])], [('v2', ['batch', 60])]), samples_of((5, 60), 1)[0]
    if '2 of 2 layers in int8' not in p.cytoc(model, '-o', p.path('q.so'), '--int8', '--int8-prefer=size', '--explain'):
        return '--int8-prefer=size leaves layers in float'
    fast = p.library(model, 'f', '--int8')
    if os.path.getsize(p.path('q.so')) >= os.path.getsize(fast):
        return '--int8-prefer=size makes no smaller library'
    found = snr(p.run(fast, x)[0], p.run(p.path('q.so'), x)[0])
    return None if 30 < found < 100 else '%.1f dB' % found


def weights_refused(p):
    """Products that would be slower stay exactly as they are: of small weights, and none at all."""
    n = Network(9)
    n.op('MatMul', n.op('Relu', n.op('MatMul', 'x', n.weight(128, 96))), n.weight(96, 256))
    model, x = n.save(p.path('m.onnx'), [('x', ['batch', 128])], [('v2', ['batch', 256])]), samples_of((5, 128), 1)[0]
    text = p.cytoc(model, '-o', p.path('q.so'), '--weights=int4', '--explain')
    for expression in ('MatMul_0 .*float: too small', 'MatMul_2 .*integers'):
        if not re.search(expression, text):
            return "nothing like '%s' in: %s" % (expression, text[-600:])
    n = Network(9)
    n.op('MatMul', n.op('Relu', n.op('MatMul', 'x', n.weight(128, 96))), n.weight(96, 64))
    model = n.save(p.path('s.onnx'), [('x', ['batch', 128])], [('v2', ['batch', 64])])
    text = p.cytoc(model, '-o', p.path('q.so'), '--weights=int4', '--explain')
    if 'changed nothing: of 2 products' not in text:
        return 'no warning: ' + text[-600:]
    if not np.array_equal(p.run(p.library(model, 'f'), x)[0], p.run(p.path('q.so'), x)[0]):
        return 'not the results of float'
    n = Network(10)
    n.op('Relu', 'x')
    text = p.cytoc(n.save(p.path('r.onnx'), [('x', [1, 4])], [('v0', [1, 4])]), '-o', p.path('r.so'), '--weights=int8')
    return None if 'no matrix product' in text else 'no warning for a model without products'


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


def smallest(p):
    """Layers of equal shape are one kernel, whatever their zero points. With --int8-prefer=size weights are not split where parts
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
    graphs.save_model(p.path('i.onnx'), [helper.make_node('MatMulInteger', ['x', 'w'], ['y'], 'product')],
                      [graphs.port('x', np.uint8, [40, 256])], [graphs.port('y', np.int32, [40, 64])], [graphs.constant('w', w)])
    x = np.random.default_rng(6).integers(0, 256, (40, 256)).astype(np.uint8)
    for options, algorithm in (([], 'gemm int8 split'), (['--int8', '--int8-prefer=size'], 'gemm int8 dot2')):
        if algorithm not in p.cytoc(p.path('i.onnx'), '-o', p.path('i.so'), '--target=x86-64-v3', '--explain', *options):
            return 'no ' + algorithm
        if not np.array_equal(p.run(p.path('i.so'), x)[0], np.int32(x) @ np.int32(w)):
            return algorithm + ' differs'
    return None


TESTS = [*halves.TESTS, smallest, odd_activations, digits_top1, transformer_top1, static_blocks, long_tails, room_for_others, rare_channels,
         streams_stay_float,
         whole_blocks_in_integers, skip_and_limit, small_outputs, slow_layers, turned_weights, forms_of_samples, one_input_files,
         dynamic_rows, dynamic_images, dynamic_steps, dynamic_slow_layers, recurrences, dynamic_limit, limit_in_branches, sizes, weights_only, weights_refused,
         small_products,
         logarithms_stay_float, spectra_stay_float,
         *mixed.TESTS, *estimate.TESTS, *rows.TESTS, *stored.TESTS, *tables.TESTS, *whole.TESTS, *qdq_files.TESTS, *unet.TESTS]


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
