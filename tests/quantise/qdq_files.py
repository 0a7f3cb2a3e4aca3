# SPDX-License-Identifier: Apache-2.0
"""`cytoc quantize`: the QDQ files it writes, judged by ONNX Runtime without its optimisations, and cytoc reading them
again."""
import os
import re

import numpy as np
import onnx

import lib
import network
import whole
from shared import DIGITS, STATIC, Network, digits, encoder, residual, samples_of, snr


QUICK = ['--int8-min-snr=off', '-O1']


def plain_session(path):
    return network.ort_session(path, optimised=False)


def qdq_file(p, make, feeds, calibration):
    model, out = make(p.path('m.onnx')), p.path('m.qdq.onnx')
    np.savez(p.path('c.npz'), **calibration)
    p.cytoc('quantize', model, '-o', out, '--calibrate=' + p.path('c.npz'), *QUICK)
    onnx.checker.check_model(out)
    graph = onnx.load(out).graph
    layers = [n for n in graph.node if n.op_type in ('Conv', 'ConvTranspose', 'Gemm') or n.op_type == 'MatMul' and 'weight' in n.input[1]]
    plain = [n.name for n in layers if not all(re.search(r'_dequantized(_\d+)?$', x) for x in n.input[:2])]
    if plain or not layers:
        return 'not quantised: %s' % (plain or 'all')
    wanted, got = plain_session(model).run(None, feeds)[0], plain_session(out).run(None, feeds)[0]
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

    def moved(since, op, x, **values):
        """Attributes until `since`, then inputs."""
        if opset < since:
            return n.op(op, x, **values)
        return n.op(op, x, *[n.ints(*np.ravel(v)) if isinstance(v, (int, list)) else n.constant(v) for v in values.values()])
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
    for opset in (7, 9, 10, 11, 12, 13):
        why = qdq_file(p, lambda path: older(path, opset), {'x': samples_of((1, 3, 16, 16), 1, 9)[0]},
                       {'x': samples_of((3, 16, 16), 16)})
        if why:
            return 'operator set %d: %s' % (opset, why)
    return None


def qdq_external(p):
    """A model with tensor data in another file: in it comes, and out goes one. What lies outside of its folder is
    refused."""
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
    outside = plain_session(path).run(None, {'x': x})[0]
    p.cytoc('quantize', p.path('in_one_file.onnx'), '-o', path, '--calibrate=' + p.path('c.npz'), *QUICK)
    if not np.array_equal(outside, plain_session(path).run(None, {'x': x})[0]):
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


def uneven(path):
    """Channels whose ranges differ a thousand times, and weights behind them that make up for it: behind functions that a factor
    passes through, and others; read by several, moved, pooled, of one filter per channel. A product of weights whose rounding
    shifts the mean."""
    n = Network(23)

    def conv(x, c, o, spread, k=3, **attributes):
        """`spread`: of the channels it reads, of those it makes."""
        w = n.rng.standard_normal((o, c // attributes.get('group', 1), k, k)) * (2 / (c * k * k)) ** 0.5
        reads = np.ones(c) if spread[0] is None else spread[0]
        w *= spread[1][:, None, None, None] / (reads[:, None] if w.shape[1] == 1 else reads[None])[..., None, None]
        return n.op('Conv', x, n.constant(w), n.constant(0.1 * n.rng.standard_normal(o) * spread[1]), pads=[k // 2] * 4, **attributes)
    a, b, c = (10 ** n.rng.uniform(-1.5, 1.5, 16) for _ in range(3))
    x = n.op('Relu', conv('x', 3, 16, (None, a)))
    y = conv(x, 16, 16, (a, b))
    y = n.op('Mul', y, n.op('Sigmoid', y))
    z = n.op('LeakyRelu', conv(y, 16, 16, (b, c), group=16))
    y = n.op('MaxPool', n.op('Concat', y, z, axis=1), kernel_shape=[2, 2], strides=[2, 2])
    y = n.op('Relu', conv(y, 32, 24, (np.concatenate([b, c]), np.ones(24)), k=1))
    y = n.op('Flatten', n.op('GlobalAveragePool', y))
    y = n.op('Relu', n.op('Add', n.op('MatMul', y, n.weight(24, 32, scale=0.3)), n.weight(32, scale=0.3)))
    n.op('Gemm', y, n.weight(32, 10, scale=0.3))
    return n.save(path, [('x', ['batch', 3, 16, 16])], [(n.nodes[-1].output[0], ['batch', 10])])


def qdq_as_static(p):
    """What is written loses what --int8=static does, in ONNX Runtime and in cytoc."""
    model, x = uneven(p.path('m.onnx')), samples_of((16, 3, 16, 16), 1, 9)[0]
    np.savez(p.path('c.npz'), x=np.stack(samples_of((3, 16, 16), 24)))
    options = ['--calibrate=' + p.path('c.npz'), '--int8-min-snr=off']
    p.cytoc('quantize', model, '-o', p.path('q.onnx'), *options)
    wanted = plain_session(model).run(None, {'x': x})[0]
    static = snr(wanted, p.run(p.library(model, 's', *STATIC, *options), x)[0])
    for who, got in (('ONNX Runtime', plain_session(p.path('q.onnx')).run(None, {'x': x})[0]),
                     ('cytoc', p.run(p.library(p.path('q.onnx'), 'q'), x)[0])):
        if snr(wanted, got) < max(static - 1.5, 25):
            return '%s has %.1f dB, --int8=static %.1f' % (who, snr(wanted, got), static)
    return None


def qdq_digits(p):
    """The trained example reads as many digits, but for two of 360."""
    model, (images, labels) = os.path.join(DIGITS, 'digits.onnx'), digits()
    np.savez(p.path('c.npz'), image=images[::3])
    p.cytoc('quantize', model, '-o', p.path('q.onnx'), '--calibrate=' + p.path('c.npz'))
    right = [(plain_session(m).run(None, {'image': images})[0].reshape(360, -1).argmax(1) == labels).sum()
             for m in (model, p.path('q.onnx'))]
    return None if right[1] >= right[0] - 2 else '%d of %d that it reads in float' % (right[1], right[0])


def qdq_whole(p):
    """--int8-min-snr holds for what is written: layers stay in float for it, and --explain tells; those that were
    skipped, too."""
    model, xs, before = whole.chaotic(p.path('m.onnx')), samples_of((64,), 24), 7
    np.savez(p.path('c.npz'), x=np.stack(xs))
    wanted = plain_session(model).run(None, {'x': np.stack(xs)})[0]
    for limit in ('off', '28'):
        text = p.cytoc('quantize', model, '-o', p.path('q.onnx'), '--calibrate=' + p.path('c.npz'), '--explain', '--int8-min-snr=' + limit)
        got, layers = plain_session(p.path('q.onnx')).run(None, {'x': np.stack(xs)})[0], whole.in_integers(text)
        ratio = whole.reported(text, 'v11')
        if limit == 'off' and (ratio is not None or snr(wanted, got) > 27):
            return 'the network is no test: %.1f dB' % snr(wanted, got)
        if limit != 'off' and (ratio is None or abs(ratio - snr(wanted, got)) > 0.2 or ratio < float(limit) or 'warning' in text):
            return '%.1f dB: %s' % (snr(wanted, got), text[-900:])
        if not 0 < layers < before or sum(n.op_type == 'QuantizeLinear' for n in onnx.load(p.path('q.onnx')).graph.node) != layers:
            return '--int8-min-snr=%s: %d layers in integers, %d before' % (limit, layers, before)
        before = layers
    n = Network(24)
    x = n.op('MatMul', n.op('Relu', n.op('MatMul', 'x', n.weight(64, 64))), n.constant(np.abs(n.rng.standard_normal((64, 64)))))
    n.op('MatMul', n.op('Log', n.op('Add', x, n.constant(1e-3))), n.weight(64, 8))
    model = n.save(p.path('log.onnx'), [('x', ['batch', 64])], [('v5', ['batch', 8])])
    text = p.cytoc('quantize', model, '-o', p.path('q.onnx'), '--calibrate=' + p.path('c.npz'), '--explain', '--int8-skip=MatMul_0')
    verdicts = re.findall(r'^MatMul.*?(int8|float: .*)$', text, re.M)
    return None if verdicts == ['float: skipped as asked', 'float: its logarithm is taken, which shows small errors', 'int8'] else text[-900:]


TESTS = [qdq_residual, qdq_names, qdq_older_operators, qdq_external, qdq_encoder, qdq_as_static, qdq_digits, qdq_whole]
