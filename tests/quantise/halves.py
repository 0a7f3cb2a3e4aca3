# SPDX-License-Identifier: Apache-2.0
"""Weights in half precision (--fp16, --bf16) of float models, and models that come so, beside f32."""
import os
import re

import numpy as np
import onnx
from onnx import helper, numpy_helper

from shared import DIGITS, Network, digits, encoder, samples_of, snr


def half_digits(p):
    """The trained example reads the same, from a library with weights of half the bytes, with inputs of either type."""
    images, labels = digits()
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
        size = lambda *options: float(re.search(r'weights ([0-9.]+) MB', p.cytoc(
            model, '-o', p.path('s.so'), '--stats', '--target=x86-64-v3', *options)).group(1))  # AMX fills up tiles
        full = size()
        for option, least in (('--fp16', 60), ('--bf16', 42)):
            got = p.run(p.library(model, 'h', option), *feeds)[0]
            fixed = p.run(p.library(model, 'x', option, '--dim', '*=1'), *[x[:1] for x in feeds])[0] if len(feeds) == 1 else got
            stored = size(option)
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
    """vdpbf16ps or AMX where the CPU has it, for products and the convolutions that Winograd or a kernel of their own does not do
    faster; nowhere else."""
    n = Network(15)
    x = n.op('Relu', n.conv('x', 16, 64, strides=[2, 2]))
    x = n.op('Relu', n.conv(x, 64, 256, k=1))
    x = n.op('Relu', n.conv(x, 256, 64))  # by Winograd
    x = n.op('Flatten', n.op('GlobalAveragePool', n.conv(n.conv(x, 64, 64, group=64), 64, 64, group=4)))
    n.op('MatMul', x, n.weight(64, 200))
    image = n.save(p.path('image.onnx'), [('x', [1, 16, 112, 112])], [(n.nodes[-1].output[0], [1, 200])])
    text = encoder(p.path('text.onnx'))
    model = onnx.load(text)
    for w in model.graph.initializer:
        bits = (numpy_helper.to_array(w).view(np.uint32) >> 16).astype(np.uint16)
        w.CopyFrom(helper.make_tensor(w.name, onnx.TensorProto.BFLOAT16, bits.shape, bits.tobytes(), raw=True))
    for port in [*model.graph.input, *model.graph.output]:
        port.type.tensor_type.elem_type = onnx.TensorProto.BFLOAT16
    onnx.save(model, p.path('halves.onnx'))
    sizes = ['--dim', 'batch=2', '--dim', 'length=64']
    for target, way, instruction in (('cooperlake', 'dot2', 'vdpbf16ps'), ('znver4', 'dot2', 'vdpbf16ps'),
                                     ('graniterapids', 'amx', 'tdpbf16ps'), ('icelake-server', None, 'bf16ps')):
        conv, gemm = 'conv bf16 %s' % way, 'gemm bf16 %s' % way
        convs = 2 if way == 'amx' else 1  # Winograd is faster than pairs
        for model, options, kinds in ((image, ['--bf16'], {conv: convs, gemm: 2}), (image, ['--fp16'], {}),
                                      (image, [], {}), (text, ['--bf16', *sizes], {gemm: 5}),
                                      (p.path('halves.onnx'), sizes, {gemm: 5})):
            table = p.cytoc(model, '-o', '-', '--emit=asm', '--explain', '--target=' + target, *options)
            found = {k: table.count(k) for k in (conv, gemm) if k in table}
            if found != (kinds if way else {}) or (instruction in table) != bool(way and kinds):
                return '%s %s %s: %s' % (target, os.path.basename(model), ' '.join(options), found)
            if model == image and way == 'dot2' and kinds and ('winograd f4x3 bf16' not in table or 'depthwise' not in table):
                return 'Winograd and depthwise convolutions do not stay'
            if ('attention bf16 %s' % way in table) != (way is not None and model != image):
                return '%s: attention is not where it is expected' % target
    return None


def half_beside_int8(p):
    """With --int8, what integers leave in float is in half precision; accuracy is that of integers."""
    model, sizes = encoder(p.path('text.onnx')), ['--dim', 'batch=2', '--dim', 'length=64']
    x = samples_of((2, 5, 64), 1)[0], samples_of((2, 5, 96), 1, 5)[0]
    for target, kinds in (('graniterapids', ('gemm int8 amx', 'attention bf16 amx')),
                          ('znver5', ('gemm int8 dot4', 'attention bf16 dot2')), ('x86-64-v3', ('gemm int8', 'attention '))):
        table = p.cytoc(model, '-o', '-', '--emit=asm', '--explain', '--target=' + target, '--int8', '--bf16', *sizes)
        if any(kind not in table for kind in kinds):
            return '%s: no %s' % (target, ' or no '.join(kinds))
    wanted, ints, both = (p.run(p.library(model, name, *options), *x)[0]
                          for name, options in (('f', ()), ('i', ('--int8',)), ('b', ('--int8', '--bf16'))))
    if snr(wanted, both) < min(snr(wanted, ints), 42) - 3:
        return '%.1f dB, with integers alone %.1f' % (snr(wanted, both), snr(wanted, ints))
    return None


def attention_beside_int8(p):
    """--int8 rounds what attention multiplies to bf16 where AMX or vdpbf16ps does that; it is a layer like others, to be
    skipped or measured."""
    model, sizes = encoder(p.path('text.onnx')), ['--dim', 'batch=2', '--dim', 'length=64']
    for target, expected in (('graniterapids', 'amx'), ('znver4', 'dot2'), ('icelake-server', None), ('x86-64-v3', None)):
        table = p.cytoc(model, '-o', '-', '--emit=asm', '--explain', '--target=' + target, '--int8', *sizes)
        rows = re.findall(r'^(\S+) +heads of .* bf16$', table, re.M)
        found = bool(rows), 'attention bf16 %s' % expected in table, 'in int8 or bf16' in table
        if found != (bool(expected),) * 3:
            return '%s: %s' % (target, rows)
        if expected:
            skip = '--int8-skip=' + ','.join(rows)
            table = p.cytoc(model, '-o', '-', '--emit=asm', '--explain', '--target=' + target, '--int8', skip, *sizes)
            if 'attention bf16' in table or 'heads of' not in table or 'float: skipped as asked' not in table:
                return 'not skipped: ' + skip
    short = p.cytoc(model, '-o', '-', '--emit=asm', '--explain', '--target=graniterapids', '--int8', '--dim', 'batch=2',
                    '--dim', 'length=8')
    if 'attention bf16' in short or not re.search('heads of .* float: no gain', short):
        return 'eight rows do not stay in float'
    if 'attention bf16' not in p.cytoc(model, '-o', p.path('n.so'), '--int8', '--explain', *sizes):
        return None
    x = samples_of((2, 64, 64), 1)[0], samples_of((2, 64, 96), 1, 5)[0]
    wanted = p.run(p.library(model, 'f', *sizes), *x)[0]
    ints = p.run(p.library(model, 'i', '--int8', skip, *sizes), *x)[0]
    both = p.run(p.library(model, 'b', '--int8', *sizes), *x)[0]
    table = p.cytoc(model, '-o', p.path('m.so'), '--int8', '--int8-max-error=0.0001%', '--explain', *sizes)
    if not re.search(r'heads of .* float: its error', table):
        return 'not measured: ' + table
    if np.array_equal(ints, both) or snr(wanted, both) < snr(wanted, ints) - 1:
        return '%.1f dB, with attention in f32 %.1f' % (snr(wanted, both), snr(wanted, ints))
    return None


def factors_of_one_product(p):
    """q, k and v that are cut out of one product are rounded once, where it stores them; not if someone reads them in
    f32."""
    for seen in (False, True):
        n = Network(25)
        qkv = n.op('Add', n.op('MatMul', 'x', n.weight(128, 384, scale=0.1)), n.weight(384, scale=0.1))
        qkv = n.op('Transpose', n.op('Reshape', qkv, n.ints(2, 64, 3, 4, 32)), perm=[2, 0, 3, 1, 4])
        q, k, v = (n.op('Squeeze', n.op('Slice', qkv, n.ints(i), n.ints(i + 1), n.ints(0)), n.ints(0)) for i in range(3))
        scores = n.op('Mul', n.op('MatMul', q, n.op('Transpose', k, perm=[0, 1, 3, 2])), n.constant(32 ** -0.5))
        y = n.op('MatMul', n.op('Softmax', scores, axis=-1), v)
        ports = [(y, [2, 4, 64, 32])] + [(v, [2, 4, 64, 32])] * seen
        model = n.save(p.path('m%d.onnx' % seen), [('x', [2, 64, 128])], ports)
        graph = p.cytoc(model, '--stop-after=quantise', '--target=graniterapids', '--int8', '--int8-prefer=size')
        casts = re.findall(r'= cast %\S+ : bf16\[([0-9,]+)\]', graph)
        if casts != (['1,2,4,64,32'] * 2 + ['2,4,64,32'] if seen else ['2,64,384']):
            return 'rounded: %s' % casts
        x = samples_of((2, 64, 128), 1)[0]
        wanted, got = p.run(p.library(model, 'f'), x), p.run(p.library(model, 'i', '--int8', '--int8-prefer=size'), x)
        if min(snr(*pair) for pair in zip(wanted, got)) < 30:
            return '%s dB' % [snr(*pair) for pair in zip(wanted, got)]
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
    n.constants[-1].CopyFrom(numpy_helper.from_array(np.float32(1000 + n.rng.standard_normal((48, 32)) / 100), near))
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


TESTS = [half_digits, half_networks, half_beside_int8, attention_beside_int8, factors_of_one_product, half_models, half_pairs, half_overflow, half_limit]
