# SPDX-License-Identifier: Apache-2.0
"""The outputs of the whole model: their signal-to-noise ratio, and layers that stay in float for it (--int8-min-snr)."""
import re

import numpy as np
from onnx import TensorProto

import graphs
from shared import STATIC, Network, samples_of, snr


def chaotic(path, large=0):
    """tanh(W x) over and over, where a small difference grows with every layer; no layer by itself does much wrong. At the end
    `large` products that take most of the time and do no harm."""
    n, x, width = Network(17), 'x', 64
    for _ in range(6):
        x = n.op('Tanh', n.op('MatMul', x, n.weight(width, width, scale=3 / width ** 0.5)))
    for _ in range(large):
        x, width = n.op('MatMul', x, n.weight(width, 512, scale=width ** -0.5)), 512
    return n.save(path, [('x', ['batch', 64])], [(x, ['batch', width])])


def reported(text, name):
    """The ratio of an output in the table; None: there is none."""
    found = re.search(r"^output '%s': signal-to-noise ratio (-?[0-9.]+) dB$" % name, text, re.M)
    return float(found.group(1)) if found else None


def in_integers(text):
    return int(re.search(r'^(\d+) of \d+ layers in int8', text, re.M).group(1))


def whole_errors(p):
    """Layers that are all good enough by themselves, and a whole that is not: as few as needed stay in float, whatever the
    limit, until the whole is; the figure in the table is what the library has on these samples, nearly on others."""
    model, xs = chaotic(p.path('m.onnx')), samples_of((64,), 48)
    np.savez(p.path('c.npz'), x=np.stack(xs[:24]))
    options = [model, '-o', p.path('m.so'), *STATIC, '--calibrate=' + p.path('c.npz'), '--explain']
    wanted, before = p.run(p.library(model, 'f'), np.stack(xs))[0], None
    for limit, kept in (('off', 0), ('25', None), ('35dB', None)):
        text = p.cytoc(*options, '--int8-min-snr=' + limit)
        rows = re.findall(r'^MatMul_\d+ .* ([0-9.]+) +(int8|float: for output \'v11\', which had [0-9.]+ dB)$', text, re.M)
        if len(rows) != 6 or any(not 0.1 < float(error) < 3 for error, _ in rows):
            return '--int8-min-snr=%s: rows %s in %s' % (limit, rows, text[-900:])
        got, ratio = p.run(p.path('m.so'), np.stack(xs))[0], reported(text, 'v11')
        seen, others = snr(wanted[:24], got[:24]), snr(wanted[24:], got[24:])
        if limit == 'off':
            if ratio is not None or seen > 24:
                return 'the network is no test: %.1f dB, table %s' % (seen, ratio)
        elif ratio is None or abs(ratio - seen) > 0.1 or seen < float(limit[:2]) or others < float(limit[:2]) - 4:
            return '--int8-min-snr=%s: %s dB in the table, %.1f on the samples, %.1f on others' % (limit, ratio, seen, others)
        layers = in_integers(text)
        if before is not None and not 0 < layers < before or 'warning' in text:
            return '--int8-min-snr=%s: %d layers in integers, before %s: %s' % (limit, layers, before, text[-600:])
        before = layers
    return None


def whole_by_default(p):
    """25 dB are the default where that is cheap; the same bytes each time."""
    model, found = chaotic(p.path('m.onnx'), large=3), []
    np.savez(p.path('c.npz'), x=np.stack(samples_of((64,), 24)))
    options = [model, *STATIC, '--calibrate=' + p.path('c.npz'), '--explain']
    for more in ([], ['-j', '1'], ['--int8-min-snr=off']):
        text = p.cytoc(*options, '-o', p.path('m.so'), *more)
        with open(p.path('m.so'), 'rb') as f:
            found.append((in_integers(text), f.read()))
    if found[0] != found[1]:
        return 'different libraries: %d and %d layers in integers' % (found[0][0], found[1][0])
    return None if 5 <= found[0][0] < found[2][0] == 9 else 'layers in integers: %s' % [layers for layers, _ in found]


def whole_too_dear(p):
    """Where most of the gain would go, nothing changes and a warning says what to do, which then helps. Unless that is below 20 dB:
    then most of the gain goes."""
    for scale, layers in ((1.5, 1), (0.5, 2)):
        why = too_dear(p, scale, layers)
        if why:
            return 'scale %g: %s' % (scale, why)
    return None


def waves(path, scale):
    """Nearly all the time is in a product whose errors show, the more the larger its result is."""
    n = Network(18)
    big = n.op('Sin', n.op('MatMul', 'x', n.weight(256, 256, scale=scale)))
    n.op('Gemm', big, n.weight(256, 16))
    return n.save(path, [('x', ['batch', 256])], [('v2', ['batch', 16])])


def too_dear(p, scale, layers):
    model = waves(p.path('m.onnx'), scale)
    np.savez(p.path('c.npz'), x=np.stack(samples_of((256,), 16)))
    options = [model, '-o', p.path('m.so'), *STATIC, '--calibrate=' + p.path('c.npz'), '--explain']
    text = p.cytoc(*options)
    expected = r"warning: output 'v2' has .* dB .*--int8-min-snr=25" if layers == 2 else r"warning: output 'v2' had a signal-to-noise ratio of 1\d.* dB .* 20 dB hold"
    if not re.search(expected, text) or in_integers(text) != layers:
        return text[-900:]
    text = p.cytoc(*options, '--int8-min-snr=25')
    if 'warning' in text or in_integers(text) != 1 or reported(text, 'v2') < 25:
        return text[-900:]
    text = p.cytoc(*options, '--int8-min-snr=199')
    return None if 'nothing was quantised' in text and "output 'v2': as in float" in text else text[-900:]


def whole_odd_outputs(p):
    """Outputs that tell nothing: integers, always 0, of a size that depends on values; infinities in one that does tell."""
    n = Network(19)
    y = n.op('MatMul', n.op('Relu', n.op('MatMul', 'x', n.weight(64, 64))), n.weight(64, 32))
    n.op('ArgMax', y, axis=1)                                                     # v3
    n.op('Sub', n.op('Abs', y), n.op('Max', y, n.op('Neg', y)))                   # v7: 0
    n.op('Cast', n.op('NonZero', n.op('Relu', y)), to=TensorProto.FLOAT)          # v10
    n.op('Where', n.op('Less', 'x', n.constant(-1.0)), n.constant(-np.inf), 'x')  # v12: as in float
    n.op('Where', n.op('Less', n.op('MatMul', 'x', n.weight(64, 32)), n.constant(-1e9)), y, n.op('Log', n.constant(0.0)))
    ports = [('v2', np.float32, ['batch', 32]), ('v3', np.int64, ['batch', 1]), ('v7', np.float32, ['batch', 32]),
             ('v10', np.float32, [2, None]), ('v12', np.float32, ['batch', 64]), ('v16', np.float32, ['batch', 32])]
    model = p.path('m.onnx')
    graphs.Graph.save(n, model, [graphs.port('x', np.float32, ['batch', 64])], [graphs.port(*port) for port in ports], opset=17)
    np.savez(p.path('c.npz'), x=np.stack(samples_of((64,), 16)))
    text = p.cytoc(model, '-o', p.path('m.so'), *STATIC, '--calibrate=' + p.path('c.npz'), '--explain')
    for expression in (r"'v2': signal-to-noise ratio [34]\d\.\d dB", "'v3': not compared with float: no floats",
                       "'v7': (as in float|not compared with float: always 0 in float)",
                       "'v10': not compared with float: its size follows from values", "'v12': as in float", "'v16': as in float"):
        if not re.search('^output ' + expression + '$', text, re.M):
            return "nothing like '%s' in: %s" % (expression, text[-900:])
    return text if 'warning' in text else None


def whole_dynamic(p):
    """To a limit only if asked for, on random numbers or samples; a recurrence among the layers."""
    n = Network(20)
    x = n.op('Tanh', n.op('MatMul', 'x', n.weight(64, 64, scale=0.4)))
    b = n.constant(0.1 * n.rng.standard_normal((1, 512)))
    n.op('LSTM', x, n.weight(1, 256, 64, scale=0.4), n.weight(1, 256, 64, scale=0.3), b, hidden_size=64)
    x = n.op('Tanh', n.op('MatMul', n.op('Squeeze', 'v2', n.ints(1)), n.weight(64, 64, scale=0.4)))
    model = n.save(p.path('m.onnx'), [('x', ['length', 'batch', 64])], [(x, ['length', 'batch', 64])])
    xs = samples_of((6, 2, 64), 4)
    np.savez(p.path('c.npz'), x=np.stack(xs))
    options = [model, '-o', p.path('m.so'), '--int8=dynamic', '--int8-prefer=size', '--explain']
    text = p.cytoc(*options, '--int8-min-snr=off')
    if 'signal-to-noise' in text:
        return 'measured though nobody asked: ' + text[-600:]
    wanted, layers = p.run(p.library(model, 'f'), xs[0])[0], in_integers(text)
    plain = snr(wanted, p.run(p.path('m.so'), xs[0])[0])
    for more in ([], ['--calibrate=' + p.path('c.npz')]):
        least = int(reported(p.cytoc(*options, '--int8-min-snr=1', *more), x)) + 4
        text = p.cytoc(*options, '--int8-min-snr=%d' % least, *more)
        got, ratio = snr(wanted, p.run(p.path('m.so'), xs[0])[0]), reported(text, x)
        if ratio < least or got < plain + 1.5 or not 0 < in_integers(text) < layers:
            return '%s: %s dB, %.1f before, %.1f now: %s' % (more, ratio, plain, got, text[-900:])
    return None


def recogniser(path, sharp, blocks=3, width=96, classes=37):
    """Reads text as CRNN and SVTR do: convolutions make columns of features, blocks of attention follow. Large queries and keys
    make its softmax sharp, so that small errors of scores count."""
    n = Network(61)
    x = n.op('Relu', n.conv('x', 1, 32, strides=[2, 2]))
    x = n.op('Relu', n.conv(x, 32, 64, strides=[2, 2]))
    x = n.op('Relu', n.conv(x, 64, width, strides=[2, 1]))
    x = n.op('Transpose', n.op('Squeeze', n.op('ReduceMean', x, axes=[2], keepdims=1), n.ints(2)), perm=[0, 2, 1])

    def norm(v):
        return n.op('LayerNormalization', v, n.constant(1 + 0.1 * n.rng.standard_normal(width)), n.weight(width, scale=0.1), axis=-1)

    def layer(v, a, b, scale=1.0):
        return n.op('Add', n.op('MatMul', v, n.weight(a, b, scale=scale * a ** -0.5)), n.weight(b, scale=0.05))
    for _ in range(blocks):
        v = norm(x)
        q, k, m = layer(v, width, width, sharp), layer(v, width, width, sharp), layer(v, width, width)
        s = n.op('Mul', n.op('MatMul', q, n.op('Transpose', k, perm=[0, 2, 1])), n.constant(width ** -0.5))
        x = n.op('Add', x, layer(n.op('MatMul', n.op('Softmax', s, axis=-1), m), width, width))
        h = layer(norm(x), width, 4 * width)
        x = n.op('Add', x, layer(n.op('Mul', h, n.op('Sigmoid', h)), 4 * width, width))
    y = layer(norm(x), width, classes)
    return n.save(path, [('x', ['batch', 1, 32, 128])], [(y, ['batch', None, classes])]), y


def whole_floor(p):
    """The default is given up where it is expensive, but never below 20 dB: layers go back to float whatever that costs, and a warning
    says which layers cost what."""
    model, y = recogniser(p.path('m.onnx'), 6)
    strokes = [np.float32(np.clip(np.cumsum(x, axis=2) / 6, -1, 1)) for x in samples_of((1, 32, 128), 16)]
    np.savez(p.path('c.npz'), x=np.stack(strokes))
    options = [model, '-o', p.path('m.so'), *STATIC, '--calibrate=' + p.path('c.npz'), '--explain']
    before = p.cytoc(*options, '--int8-min-snr=1')
    if not 10 < reported(before, y) < 19:
        return 'the network is no test: ' + before[-600:]
    text = p.cytoc(*options)
    got = snr(p.run(p.library(model, 'f'), np.stack(strokes))[0], p.run(p.path('m.so'), np.stack(strokes))[0])
    told = re.search(r"warning: output '%s' had a signal-to-noise ratio of ([0-9.]+) dB on the samples; at least 20 dB hold .* so (\d+) of "
                     r"\d+ layers are in float for that .*cost it most: ('\w+' [0-9.]+ dB(, )?){3}\. --int8-min-snr=off" % y, text)
    if not told or float(told.group(1)) != reported(before, y) or int(told.group(2)) != in_integers(before) - in_integers(text):
        return text[-1500:]
    if got < 20 or abs(got - reported(text, y)) > 0.2 or not in_integers(text):
        return '%.1f dB: %s' % (got, text[-900:])
    text = p.cytoc(*options, '--int8-min-snr=off')
    return text[-600:] if 'warning' in text or in_integers(text) != in_integers(before) else None


TESTS = [whole_floor, whole_errors, whole_by_default, whole_too_dear, whole_odd_outputs, whole_dynamic]
