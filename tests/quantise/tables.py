# SPDX-License-Identifier: Apache-2.0
"""Large constants that no product multiplies (passes/tables.c): in how many bytes they are stored, and how far that is off.
"""
import re

import numpy as np

import graphs
from shared import Network, snr
from stored import weights_bytes

WORDS, LENGTH, WIDTH = 3000, 256, 64
PLAIN = WORDS * WIDTH + LENGTH * WIDTH + LENGTH * LENGTH + WIDTH * WIDTH  # elements


def text_network(p, outliers=0):
    """Words that are looked up, positions and a mask that are added, a product."""
    n = Network(41)
    words = n.rng.standard_normal((WORDS, WIDTH))
    words[:, 0] *= 1 + outliers
    x = n.op('Add', n.op('Gather', n.constant(words), 'ids', axis=0), n.weight(LENGTH, WIDTH, scale=1))
    scores = n.op('MatMul', x, n.op('Transpose', x, perm=[1, 0]))
    seen = (n.rng.random((LENGTH, LENGTH)) < 0.3) | np.eye(LENGTH, dtype=bool)
    mask = n.constant(np.where(seen, 0, -np.inf))
    y = n.op('MatMul', n.op('MatMul', n.op('Softmax', n.op('Add', scores, mask), axis=-1), x), n.weight(WIDTH, WIDTH))
    graphs.save_model(p.path('m.onnx'), n.nodes, [graphs.port('ids', np.int64, [LENGTH])],
                      [graphs.port(y, np.float32, [LENGTH, WIDTH])], n.constants)
    return p.path('m.onnx'), np.random.default_rng(7).integers(-WORDS, WORDS, LENGTH)


def tables_stored(p):
    """Words in a byte, or two; positions and mask in two; each in what an option asks for, with the error that it costs."""
    model, ids = text_network(p)
    wanted = p.run(p.library(model, 'f', '-O0'), ids)[0]
    words, others, product = WORDS * WIDTH, LENGTH * WIDTH + LENGTH * LENGTH, WIDTH * WIDTH
    scales = 4 * WORDS
    for options, most, least in ((['--int8'], words + scales + 2 * others + product * 4, 30),
                                 (['--int8', '--bf16'], words + scales + 2 * others + product * 4, 30),
                                 (['--weights=int8'], words + scales + 2 * others + product * 4, 30),
                                 (['--weights=int4'], words + scales + 2 * others + product * 4, 30),
                                 (['--fp16'], 2 * PLAIN, 55), (['--bf16'], 2 * PLAIN, 40)):
        got = weights_bytes(p, model, '--target=x86-64-v3', *options)
        near = snr(wanted, p.run(p.library(model, 'q', *options), ids)[0])
        if got > most + 1200 or not least < near < 90:
            return '%s: %d bytes, at most %d expected, %.1f dB' % (options, got, most, near)
    return None


def tables_exact(p):
    """Without options only the mask, whose values are halves, too; without instructions that widen halves nothing is."""
    model, ids = text_network(p)
    plain, mask = 4 * PLAIN, LENGTH * LENGTH
    for target, least, most in (('x86-64-v3', plain - 2 * mask, plain - 2 * mask + 1200), ('x86-64-v2', plain, plain + 1200)):
        got = weights_bytes(p, model, '--target=' + target)
        if not least <= got <= most:
            return '%s: %d bytes, expected %d to %d' % (target, got, least, most)
    with_halves, without = [p.run(p.library(model, 'q', *o), ids)[0] for o in ([], ['--disable=tables'])]
    return None if np.array_equal(with_halves, without) else 'the mask changed: %.1f dB' % snr(without, with_halves)


def tables_not_finite(p):
    """A number that is none has no scale: its table becomes f16, whatever asks for integers."""
    model, ids = text_network(p, np.inf)
    for options in (['--int8'], ['--weights=int8']):
        text = p.cytoc(model, '-o', p.path('q.so'), '--target=x86-64-v3', '--explain', *options)
        if not re.search(r'(?m)^Gather_0 +rows of 64 .*float: weights are not finite$', text):
            return '%s: %s' % (options, text)
    return None


def tables_left(p):
    """By name, and where the error is larger than allowed: rows whose first element is a hundred times the others, which
    halves hold."""
    skipped = ['--int8', '--int8-skip=Gather']
    for outliers, options, verdict, size in ((0, ['--int8'], 'int8', 1), (0, skipped, 'float: skipped as asked', 4),
                                             (0, ['--int8', '--int8-max-error=0.1%'], 'float: its error is over 0.1 %', 2),
                                             (0, ['--int8', '--int8-min-snr=50'], 'float: its error is over 0.1 %', 2),
                                             (100, ['--int8'], 'float: its error is over 2 %', 2)):
        model, ids = text_network(p, outliers)
        text = p.cytoc(model, '-o', p.path('q.so'), '--target=x86-64-v3', '--explain', *options)
        if not re.search(r'(?m)^Gather_0 +rows of 64 .* %s$' % re.escape(verdict), text):
            return '%d %s: no verdict %r: %s' % (outliers, options, verdict, text)
        got = weights_bytes(p, model, '--target=x86-64-v3', *options)
        if not 0 <= got - size * WORDS * WIDTH < 400000:
            return '%d %s: %d bytes' % (outliers, options, got)
    return None


def positions(p, shown):
    """Positions that are added before normalisations and a product, of eight pictures; shown: half of their sum is an output,
    too."""
    n = Network(42)
    x = n.op('Add', 'x', n.weight(LENGTH, WIDTH, scale=1))
    h = n.op('MatMul', n.op('LayerNormalization', x, n.weight(WIDTH, scale=1), axis=-1), n.weight(WIDTH, WIDTH))
    y = n.op('LayerNormalization', n.op('Add', x, h), n.weight(WIDTH, scale=1), axis=-1)
    outputs = [y] + ([n.op('Mul', x, n.constant(0.5))] if shown else [])
    return n.save(p.path('m.onnx'), [('x', [8, LENGTH, WIDTH])], [(o, [8, LENGTH, WIDTH]) for o in outputs])


def tables_added(p):
    """A byte for each number of a position and a scale for each, at hardly an error; two bytes if an output shows them, or
    --int8-skip names the sum."""
    x = np.random.default_rng(8).standard_normal((8, LENGTH, WIDTH)).astype(np.float32)
    for shown, options, size in ((False, [], LENGTH * WIDTH + 4 * LENGTH), (True, [], 2 * LENGTH * WIDTH),
                                 (False, ['--int8-skip=Add'], 2 * LENGTH * WIDTH)):
        model = positions(p, shown)
        options = ['--int8', '--int8-prefer=size', '--target=x86-64-v3', *options]
        wide, got = (weights_bytes(p, model, *options, *more) for more in (['--disable=tables'], []))
        if not 0 <= wide - got - (4 * LENGTH * WIDTH - size) + 256 < 512:
            return 'shown %d, %s: %d bytes, %d without tables' % (shown, options, got, wide)
        wanted = p.run(p.library(model, 'f', '-O0'), x)
        near, before = ([snr(w, y) for w, y in zip(wanted, p.run(p.library(model, 'q', *options[:2], *more), x))]
                        for more in ([], ['--disable=tables']))
        if near[0] < max(38, before[0] - 1.5) or (shown and near[1] < 60):
            return 'shown %d: %s dB, %s without tables' % (shown, near, before)
    return None


def windows(p, images):
    """Windows of 64 places with four heads, whose bias depends on where a key lies relative to its query."""
    n, heads, head = Network(43), 4, 16
    q, k, v = (n.op('Transpose', n.op('Reshape', n.op('MatMul', 'x', n.weight(WIDTH, WIDTH)),
                                      n.const([images, 64, heads, head], np.int64)), perm=perm)
               for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    at = np.stack(np.divmod(np.arange(64), 8))
    away = at[:, :, None] - at[:, None, :] + 7
    bias = n.constant(n.rng.standard_normal((heads, 225))[:, away[0] * 15 + away[1]])
    s = n.op('Add', n.op('Mul', n.op('MatMul', q, k), n.constant(0.25)), bias)
    n.op('MatMul', n.op('Softmax', s, axis=-1), v)
    return n.save(p.path('m.onnx'), [('x', [images, 64, WIDTH])], [(n.nodes[-1].output[0], [images, heads, 64, head])])


def tables_columns(p):
    """Biases by the distance take a number for each, and nothing changes; f16 if every run reads them only once."""
    for images, size in ((8, 4 * 4 * 225 + 64 * 64), (1, 2 * 4 * 64 * 64)):
        model = windows(p, images)
        x = np.random.default_rng(9).standard_normal((images, 64, WIDTH)).astype(np.float32)
        options = ['--int8', '--int8-prefer=size']
        wide, got = (weights_bytes(p, model, *options, '--target=x86-64-v3', *more) for more in (['--disable=tables'], []))
        if not 0 <= wide - got - (4 * 4 * 64 * 64 - size) + 256 < 512:
            return '%d: %d bytes, %d without tables' % (images, got, wide)
        y, without = (p.run(p.library(model, 'q', *options, *more), x)[0] for more in ([], ['--disable=tables']))
        if snr(without, y) < (100 if images == 8 else 55):
            return '%d: %.1f dB' % (images, snr(without, y))
    return None


TESTS = [tables_stored, tables_exact, tables_not_finite, tables_left, tables_added, tables_columns]
