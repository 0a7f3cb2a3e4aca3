# SPDX-License-Identifier: Apache-2.0
"""Plain dynamic quantisation: its accuracy is estimated, layers by whose numbers something is chosen stay in float, and what is
still bad is said."""
import logging
import re

import numpy as np
import onnxruntime

from shared import Network, samples_of, snr
from whole import in_integers, reported, waves


def layer(n, x, a, b, scale=None):
    return n.op('Add', n.op('MatMul', x, n.weight(a, b, scale=scale or (2 / a) ** 0.5)), n.weight(b, scale=0.1))


def particles(path, rounds=6, width=64, near=4, sharp=10, coordinates=32):
    """A network of particles: coordinates that it learns, for each particle the nearest ones by them (TopK of distances), and of
    their features the largest differences and means weighted by distance; over and over."""
    n = Network(51)
    x = n.op('Relu', layer(n, 'x', 8, width))
    x = n.op('Relu', layer(n, x, width, width))
    for _ in range(rounds):
        s, f = layer(n, x, width, coordinates, width ** -0.5), layer(n, x, width, width)
        square = n.op('ReduceSum', n.op('Mul', s, s), n.ints(2), keepdims=1)
        inner = n.op('Mul', n.op('MatMul', s, n.op('Transpose', s, perm=[0, 2, 1])), n.constant(2.0))
        distance = n.op('Add', n.op('Sub', square, inner), n.op('Transpose', square, perm=[0, 2, 1]))
        far, index = n.op('TopK', distance, n.ints(near), largest=0, axis=2, outputs=2)
        who = n.op('Unsqueeze', n.op('Reshape', index, n.ints(0, -1)), n.ints(2))
        others = n.op('Reshape', n.op('GatherND', f, who, batch_dims=1), n.ints(0, -1, near, width))
        weights = n.op('Unsqueeze', n.op('Exp', n.op('Mul', far, n.constant(-float(sharp)))), n.ints(3))
        most = n.op('ReduceMax', n.op('Sub', others, n.op('Unsqueeze', f, n.ints(2))), axes=[2], keepdims=0)
        mean = n.op('ReduceMean', n.op('Mul', others, weights), axes=[2], keepdims=0)
        x = n.op('Relu', layer(n, n.op('Concat', x, most, mean, axis=2), 3 * width, width))
    x = n.op('Relu', layer(n, x, width, 2 * width))
    y = layer(n, x, 2 * width, 6)
    return n.save(path, [('x', ['events', 'particles', 8])], [(y, ['events', 'particles', 6])]), y


def theirs(p, model, x):
    """What ONNX Runtime's dynamic quantisation computes."""
    logging.disable(logging.WARNING)
    from onnxruntime.quantization import QuantType, quantize_dynamic
    quantize_dynamic(model, p.path('theirs.onnx'), weight_type=QuantType.QInt8, extra_options={'DefaultTensorType': 1})
    return onnxruntime.InferenceSession(p.path('theirs.onnx')).run(None, {'x': x})[0]


def neighbour_search(p):
    """Choosing neighbours by rounded coordinates makes nearly all of the result wrong; layers in front of it that are found to do
    so stay in float, and those whose own numbers are compared do in any case."""
    model, y = particles(p.path('m.onnx'))
    x = samples_of((2, 128, 8), 1, 1)[0]
    wanted = p.run(p.library(model, 'f'), x)[0]
    careless = p.cytoc(model, '-o', p.path('c.so'), '--int8', '--int8-min-snr=off', '--explain', '--target=native')
    if 'signal-to-noise' in careless or 'TopK' not in careless:
        return careless[-900:]
    text = p.cytoc(model, '-o', p.path('q.so'), '--int8', '--explain')
    before, got, ours = (snr(wanted, v) for v in (p.run(p.path('c.so'), x)[0], theirs(p, model, x), p.run(p.path('q.so'), x)[0]))
    if before > 12:
        return 'the network is no test: %.1f dB' % before
    if ours < 20 or ours < got or reported(text, y) < 20 or not 0 < in_integers(text) < in_integers(careless) or 'warning' in text:
        return '%.1f dB, ONNX Runtime %.1f, careless %.1f: %s' % (ours, got, before, text[-1500:])
    return None


def warns(p):
    """Where layers that help are too expensive, a warning tells what is bad and what to do; it does what it says."""
    model, y = waves(p.path('m.onnx'), 1.5), 'v2'
    xs = samples_of((256,), 8)
    np.savez(p.path('c.npz'), x=np.stack(xs))
    options = [model, '-o', p.path('m.so'), '--int8=dynamic', '--int8-prefer=size', '--explain']
    wanted = p.run(p.library(model, 'f'), np.stack(xs))[0]
    for more, where in ([], 'random inputs'), (['--calibrate=' + p.path('c.npz')], 'the samples'):
        text = p.cytoc(*options, *more)
        found = re.search(r"warning: output '%s' has an estimated signal-to-noise ratio of ([0-9.]+) dB on %s\. Each by itself, these "
                          r"layers cost it most: 'MatMul_0' [0-9.]+ dB, 'Gemm_2' [0-9.]+ dB" % (y, where), text)
        if not found or not 5 < float(found.group(1)) < 20 or '--int8-min-snr=20' not in text:
            return text[-1200:]
        if more and abs(float(found.group(1)) - snr(wanted, p.run(p.path('m.so'), np.stack(xs))[0])) > 0.5:
            return 'estimated %s dB, %.1f it is' % (found.group(1), snr(wanted, p.run(p.path('m.so'), np.stack(xs))[0]))
    text = p.cytoc(*options, '--int8-min-snr=20', '--calibrate=' + p.path('c.npz'))
    if 'warning' in text or snr(wanted, p.run(p.path('m.so'), np.stack(xs))[0]) < 20:
        return text[-1200:]
    text = p.cytoc(*options, '--int8-min-snr=off')
    return text[-600:] if 'warning' in text or 'signal-to-noise' in text else None


def decisions(p):
    """What is compared to choose stays in float, whether rows, boxes or places of what is not zero; not what is chosen from, labels
    at the end, or values without their places. Outputs whose order hangs on it are not compared."""
    n = Network(53)
    x = n.op('Relu', n.op('MatMul', 'x', n.weight(64, 64)))
    scores, features, gate, labels, logits = (n.op('MatMul', n.op(f, x), n.weight(64, 64))  # not all of one value: they would be one
                                              for f in ('Tanh', 'Sin', 'Cos', 'Sqrt', 'Exp'))
    _, best = n.op('TopK', n.op('Sigmoid', scores), n.ints(3), axis=1, outputs=2)
    chosen = n.op('GatherElements', features, best, axis=1)
    where = n.op('Cast', n.op('NonZero', n.op('Greater', gate, n.constant(0.5))), to=1)
    top, _ = n.op('TopK', labels, n.ints(3), axis=1, outputs=2)
    label = n.op('Cast', n.op('ArgMax', logits, axis=1), to=1)
    names = {v: next(m.name for m in n.nodes if v in m.output) for v in (scores, features, gate, labels, logits)}
    model = n.save(p.path('m.onnx'), [('x', [16, 64])], [(chosen, [16, 3]), (where, [2, None]), (top, [16, 3]), (label, [16, 1])])
    text = p.cytoc(model, '-o', p.path('m.so'), '--int8', '--int8-prefer=size', '--explain')
    for v in names:
        row = re.search(r'^%s .*$' % names[v], text, re.M)
        if not row or ('TopK or the like' in row.group(0)) != (v in (scores, gate)):
            return '%s: %s' % (names[v], text[-1500:])
    for v in (chosen, where):
        if "output '%s': not compared with float: small errors change its order" % v not in text:
            return text[-600:]
    return None if reported(text, top) and reported(text, top) > 25 else text[-600:]


def bounded(p):
    """What would take long is not estimated, and --explain says so; nor is what does not run on random numbers."""
    n, x = Network(54), 'x'
    for _ in range(2):
        x = n.op('Relu', n.conv(x, 256, 256))
    model = n.save(p.path('m.onnx'), [('x', [1, 256, 192, 192])], [(x, [1, 256, 192, 192])])
    text = p.cytoc(model, '-o', p.path('m.so'), '--int8', '--explain')
    if 'outputs are not compared with float: it computes for long' not in text or 'warning' in text:
        return text[-600:]
    n = Network(55)
    x = n.op('Add', n.op('MatMul', 'x', n.weight(64, 64)), 'y')
    model = n.save(p.path('o.onnx'), [('x', [16, 64]), ('y', [16, 'columns'])], [(x, [16, 64])])
    text = p.cytoc(model, '-o', p.path('o.so'), '--int8', '--int8-prefer=size', '--explain')  # 64 columns are right by chance
    if not reported(text, x):
        return text[-600:]
    n = Network(56)
    z = n.op('MatMul', n.op('Concat', 'x', 'x', axis=1), n.weight(64, 64))
    x = n.op('Add', z, n.op('Concat', 'y', 'y', 'y', axis=1))  # twice as many rows as thrice as many
    model = n.save(p.path('r.onnx'), [('x', [1, 'rows', 64]), ('y', [1, 'others', 64])], [(x, [1, None, 64])])
    text = p.cytoc(model, '-o', p.path('r.so'), '--int8', '--int8-prefer=size', '--explain')
    return None if 'the model does not run on random numbers' in text and 'error:' not in text else text[-600:]


TESTS = [neighbour_search, warns, decisions, bounded]
