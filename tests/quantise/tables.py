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


TESTS = [tables_stored, tables_exact, tables_not_finite, tables_left]
