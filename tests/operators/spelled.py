# SPDX-License-Identifier: Apache-2.0
"""Attention as exporters and by hand spell it out in ONNX: each form becomes one kernel and computes what ONNX Runtime does
without optimisations; near misses are left as they are and compute the same.

In:  the forms below, made here with fixed random numbers. Out: the closing line. Goldens of the pass itself are in
     tests/passes/attention, networks of exporters in tests/exported and ../shared/zoo.
"""
import os
import shutil
import sys

import numpy as np
from onnx import TensorProto as T

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, TESTS)
import graphs
import lib
import network

BATCH, ROWS, HEADS, SIZE = 2, 9, 2, 8
WIDTH = HEADS * SIZE
FORMS = []


class Graph(graphs.Graph):
    def __init__(self):
        super().__init__(5)
        self.ports, self.feeds = [], {}

    def input(self, name, *dims, dtype=np.float32, batch='batch'):
        """The first axis is only known when running."""
        if name not in self.feeds:
            x = self.rng.standard_normal((BATCH, *dims))
            self.feeds[name] = np.float32(x) if dtype == np.float32 else x > -0.5
            if dtype == bool:
                self.feeds[name][..., 0] = True
            self.ports.append(graphs.port(name, dtype, [batch, *dims]))
        return name

    def const(self, values, dtype=np.float32):
        return super().const(values, dtype)

    def weight(self, *dims):
        return self.const(self.rng.standard_normal(dims) / 4)

    def qkv(self):
        return [self.input(name, HEADS, ROWS, SIZE) for name in 'qkv']

    def scores(self, q, k):
        return self.op('Mul', self.op('MatMul', q, self.op('Transpose', k, perm=[0, 1, 3, 2])), self.const(SIZE ** -0.5))

    def finish(self, scores, v):
        return self.op('MatMul', self.op('Softmax', scores, axis=-1), v)


def form(count):
    """How many attentions there are to be found."""
    def add(function):
        FORMS.append((function.__name__, function, count))
        return function
    return add


@form(1)
def einsum(g):
    q, k, v = (g.op('Reshape', g.op('MatMul', g.input('x', ROWS, WIDTH), g.weight(WIDTH, WIDTH)), g.ints(-1, ROWS, HEADS, SIZE)) for _ in 'qkv')
    s = g.op('Mul', g.op('Einsum', q, k, equation='bqhd,bkhd->bhqk'), g.const(SIZE ** -0.5))
    return g.op('Einsum', g.op('Softmax', s, axis=-1), v, equation='bhqk,bkhd->bqhd')


@form(1)
def einsum_of_keys_and_queries(g):
    """As Keras writes it, whose first operand is the keys."""
    q, k, v = (g.op('Einsum', g.input('x', ROWS, WIDTH), g.weight(WIDTH, HEADS, SIZE), equation='abc,cde->abde') for _ in 'qkv')
    s = g.op('Einsum', k, g.op('Mul', q, g.const(SIZE ** -0.5)), equation='aecd,abcd->acbe')
    y = g.op('Einsum', g.op('Softmax', s, axis=-1), v, equation='acbe,aecd->abcd')
    return g.op('Einsum', y, g.weight(HEADS, SIZE, WIDTH), equation='abcd,cde->abe')


@form(1)
def fused_qkv_split(g):
    y = g.op('MatMul', g.input('x', ROWS, WIDTH), g.weight(WIDTH, 3 * WIDTH))
    parts = g.op('Split', y, g.ints(WIDTH, WIDTH, WIDTH), outputs=3, axis=2)
    q, k, v = (g.op('Transpose', g.op('Reshape', t, g.ints(-1, ROWS, HEADS, SIZE)), perm=[0, 2, 1, 3]) for t in parts)
    return g.finish(g.scores(q, k), v)


@form(1)
def fused_qkv_gather(g):
    y = g.op('Reshape', g.op('MatMul', g.input('x', ROWS, WIDTH), g.weight(WIDTH, 3 * WIDTH)), g.ints(-1, ROWS, 3, HEADS, SIZE))
    y = g.op('Transpose', y, perm=[2, 0, 3, 1, 4])
    q, k, v = (g.op('Gather', y, g.const(j, np.int64), axis=0) for j in range(3))
    return g.finish(g.scores(q, k), v)


@form(1)
def fused_qkv_by_heads(g):
    y = g.op('Reshape', g.op('MatMul', g.input('x', ROWS, WIDTH), g.weight(WIDTH, 3 * WIDTH)), g.ints(-1, ROWS, HEADS, 3 * SIZE))
    q, k, v = g.op('Split', g.op('Transpose', y, perm=[0, 2, 1, 3]), g.ints(SIZE, SIZE, SIZE), outputs=3, axis=3)
    return g.finish(g.scores(q, k), v)


@form(1)
def mask_times_a_number(g):
    q, k, v = g.qkv()
    m = g.op('Cast', g.input('m', 1, 1, ROWS, dtype=bool), to=T.FLOAT)
    return g.finish(g.op('Add', g.scores(q, k), g.op('Mul', g.op('Sub', g.const(1), m), g.const(-1e9))), v)


def multiplied(g, ones):
    q, k, v = g.qkv()
    m = g.const(ones[None, None])
    return g.finish(g.op('Sub', g.op('Mul', g.scores(q, k), m), g.op('Mul', g.op('Sub', g.const(1), m), g.const(1e4))), v)


@form(1)
def scores_times_mask(g):
    """GPT-2's first form: a triangle of ones."""
    return multiplied(g, np.tril(np.ones((ROWS, ROWS))))


@form(0)
def scores_times_halves(g):
    return multiplied(g, np.tril(np.ones((ROWS, ROWS))) * 0.5 + 0.5)


@form(1)
def scores_times_sliced_mask(g):
    """The same, the triangle cut to the number of rows, here `batch`, when it runs."""
    q, k, v = rows_of_batch(g)
    m = sliced(g, np.tril(np.ones((4 * BATCH, 4 * BATCH))))
    s = g.op('Mul', g.op('MatMul', q, g.op('Transpose', k, perm=[1, 0])), g.const(SIZE ** -0.5))
    return g.finish(g.op('Sub', g.op('Mul', s, m), g.op('Mul', g.op('Sub', g.const(1), m), g.const(1e4))), v)


def rows_of_batch(g):
    return [g.input(name, SIZE) for name in 'qkv']


def sliced(g, table, dtype=np.float32):
    rows = g.op('Shape', 'q', start=0, end=1)
    return g.op('Slice', g.const(table, dtype), g.ints(0, 0), g.op('Concat', rows, rows, axis=0), g.ints(0, 1))


LOWEST = float(np.finfo(np.float32).min)


@form(1)
def lowest_fill_below_mask(g):
    """As GPT-Neo writes it: a triangle fills with the lowest number, then a mask is added."""
    q, k, v = rows_of_batch(g)
    s = g.op('MatMul', q, g.op('Transpose', k, perm=[1, 0]))
    s = g.op('Where', sliced(g, np.tril(np.ones((4 * BATCH, 4 * BATCH))), bool), s, g.const(LOWEST))
    return g.finish(g.op('Add', s, g.op('Mul', g.input('m', 1), g.const(-3))), v)


@form(1)
def lowest_fill_below_bias(g):
    """The second row sees no key: all its scores are the lowest number and so equal, but for the one of a large bias."""
    q, k, v = g.qkv()
    m = g.input('m', 1, ROWS, ROWS, dtype=bool)
    g.feeds[m][0, :, 1] = False
    bias = np.zeros((ROWS, ROWS))
    bias[1, 3] = -LOWEST / 2
    return g.finish(g.op('Add', g.op('Where', m, g.scores(q, k), g.const(LOWEST)), g.const(bias)), v)


@form(1)
def kept_finite(g):
    """As XGLM writes it: masks may add up to -inf, which a largest with the lowest number makes finite again."""
    q, k, v = g.qkv()
    m = g.op('Mul', g.op('Cast', g.input('m', 1, ROWS, ROWS, dtype=bool), to=T.FLOAT), g.const(LOWEST))
    s = g.op('Add', g.scores(q, k), g.op('Add', m, m))
    return g.finish(g.op('Max', s, g.const(LOWEST)), v)


def cosine(g, *scale):
    """As Swin Transformer v2 writes it: unit vectors, a factor, a bias."""
    q, k, v = (g.op('LpNormalization', t, axis=-1, p=2) if t != 'v' else t for t in g.qkv())
    s = g.op('Mul', g.op('MatMul', q, g.op('Transpose', k, perm=[0, 1, 3, 2])), g.const(np.exp(g.rng.standard_normal(scale))))
    return g.finish(g.op('Add', s, g.weight(HEADS, ROWS, ROWS)), v)


@form(1)
def factor_per_head(g):
    return cosine(g, HEADS, 1, 1)


@form(1)
def factor_per_row(g):
    return cosine(g, ROWS, 1)


@form(0)
def factor_per_key(g):
    return cosine(g, HEADS, 1, ROWS)


@form(0)
def kept_above_a_score(g):
    q, k, v = g.qkv()
    return g.finish(g.op('Max', g.scores(q, k), g.const(-0.5)), v)


@form(1)
def maximum_taken_away(g):
    """As LayoutLMv3 writes it."""
    q, k, v = g.qkv()
    s = g.op('Div', g.scores(q, k), g.const(32))
    s = g.op('Sub', s, g.op('Unsqueeze', g.op('ReduceMax', s, axes=[3], keepdims=0), g.ints(3)))
    return g.finish(g.op('Mul', s, g.const(32)), v)


@form(0)
def maximum_of_columns_taken_away(g):
    q, k, v = g.qkv()
    s = g.scores(q, k)
    return g.finish(g.op('Sub', s, g.op('ReduceMax', s, axes=[2], keepdims=1)), v)


def zeroed(g, instead, low=LOWEST):
    """As DeBERTa's softmax: weights of masked scores are made 0, also of the second row, which sees no key."""
    q, k, v = g.qkv()
    m = g.input('m', 1, ROWS, ROWS, dtype=bool)
    g.feeds[m][0, :, 1] = False
    hide = g.op('Not', m)
    p = g.op('Softmax', g.op('Where', hide, g.const(low), g.scores(q, k)), axis=-1)
    return g.op('MatMul', g.op('Where', hide, g.const(instead), p), v)


@form(1)
def masked_weights_zeroed(g):
    return zeroed(g, 0)


@form(1)
def masked_weights_zeroed_of_ten_thousand(g):
    """As NeMo's conformers write it."""
    return zeroed(g, 0, -1e4)


@form(0)
def masked_weights_zeroed_of_ten(g):
    return zeroed(g, 0, -10)


@form(0)
def masked_weights_not_zero(g):
    return zeroed(g, 0.5)


@form(1)
def mask_of_one_key_when_running(g):
    """Every fourth element of a mask is as long as the keys only by the promise of its size: it is one element here."""
    q, k, v = rows_of_batch(g)
    m = g.op('Slice', g.input('m', 1), g.ints(0), g.ints(1000), g.ints(0), g.ints(4))
    s = g.op('MatMul', q, g.op('Transpose', k, perm=[1, 0]))
    return g.finish(g.op('Add', s, g.op('Transpose', m, perm=[1, 0])), v)


@form(1)
def length_behind_a_convolution(g):
    """Its length is computed once more by the exporter, from the input's, by divisions of what could be negative."""
    x = g.input('x', WIDTH)
    rows = g.op('Div', g.op('Sub', g.op('Shape', x, start=0, end=1), g.ints(2)), g.ints(2))
    dims = g.op('Concat', g.op('Add', rows, g.ints(1)), g.ints(-1, SIZE), axis=0)
    y = g.op('Slice', x, g.ints(1), g.ints(1000), g.ints(0), g.ints(2))
    q, k, v = (g.op('Transpose', g.op('Reshape', g.op('MatMul', y, g.weight(WIDTH, WIDTH)), dims), perm=[1, 0, 2]) for _ in 'qkv')
    return g.finish(g.op('MatMul', q, g.op('Transpose', k, perm=[0, 2, 1])), v)


@form(1)
def length_behind_a_long_convolution(g):
    """The same behind a convolution whose kernel is as long as those of sound."""
    x = g.op('Tile', g.input('x', WIDTH), g.ints(100, 1))
    rows = g.op('Div', g.op('Sub', g.op('Shape', x, start=0, end=1), g.ints(128)), g.ints(64))
    dims = g.op('Concat', g.op('Add', rows, g.ints(1)), g.ints(-1, SIZE), axis=0)
    turned = g.op('Reshape', g.op('Transpose', x, perm=[1, 0]), g.ints(1, WIDTH, -1))
    y = g.op('Conv', turned, g.weight(WIDTH, WIDTH, 128), strides=[64], kernel_shape=[128])
    y = g.op('Transpose', g.op('Reshape', y, g.ints(WIDTH, -1)), perm=[1, 0])
    q, k, v = (g.op('Transpose', g.op('Reshape', g.op('MatMul', y, g.weight(WIDTH, WIDTH)), dims), perm=[1, 0, 2]) for _ in 'qkv')
    return g.finish(g.op('MatMul', q, g.op('Transpose', k, perm=[0, 2, 1])), v)


@form(1)
def softmax_in_steps(g):
    q, k, v = g.qkv()
    s = g.scores(q, k)
    e = g.op('Exp', g.op('Sub', s, g.op('ReduceMax', s, axes=[3], keepdims=1)))
    return g.op('MatMul', g.op('Div', e, g.op('ReduceSum', e, g.ints(3), keepdims=1)), v)


def guarded(g, instead=0.0):
    """The second row of the first picture sees no key."""
    q, k, v = g.qkv()
    m = g.input('m', 1, ROWS, ROWS, dtype=bool)
    g.feeds[m][0, :, 1] = False
    p = g.op('Softmax', g.op('Where', m, g.scores(q, k), g.const(-np.inf)), axis=-1)
    return p, g.op('MatMul', g.op('Where', g.op('IsNaN', p), g.const(instead), p), v)


@form(1)
def rows_without_keys(g):
    return guarded(g)[1]


@form(0)
def rows_without_keys_that_average(g):
    return guarded(g, 1 / ROWS)[1]


@form(0)
def guarded_weights_read(g):
    p, y = guarded(g)
    return g.op('Concat', y, g.op('Where', g.op('IsNaN', p), g.const(1), p), axis=3)


def repeated(g, repeat):
    q, k, v = g.input('q', 2 * HEADS, ROWS, SIZE), *g.qkv()[1:]  # the first call tells the shape of q
    k, v = (g.op('Reshape', repeat(g.op('Unsqueeze', t, g.ints(2))), g.ints(-1, 2 * HEADS, ROWS, SIZE)) for t in (k, v))
    return g.finish(g.scores(q, k), v)


def on_a_grid(g, *added):
    """Rows and keys are those of pictures of 3 x 3 while something is added."""
    q, k, v = g.qkv()
    s = g.op('Reshape', g.scores(q, k), g.const([0, HEADS, 3, 3, 3, 3], np.int64))
    for dims in added:
        s = g.op('Add', s, g.weight(*dims))
    s = g.op('Mul', g.op('Reshape', s, g.const([0, HEADS, ROWS, ROWS], np.int64)), g.const(1.5))
    return g.finish(s, v)


@form(1)
def positions_on_a_grid(g):
    return on_a_grid(g, (3, 3, 3, 1), (HEADS, 3, 3, 1, 3))


@form(1)
def positions_of_grid_rows(g):
    return on_a_grid(g, (HEADS, 3, 1, 3, 1))


def in_a_window(g, taken=1):
    """As MViT v2 adds its positions: in place, to all but the first row and key."""
    q, k, v = g.qkv()
    s = g.scores(q, k)

    def cut(rows, keys):
        starts, ends = zip(rows, keys)
        return g.op('Slice', s, g.ints(*starts), g.ints(*ends), g.ints(2, 3))

    inside = g.op('Add', cut((taken, taken + ROWS - 1), (1, ROWS)), g.weight(HEADS, ROWS - 1, ROWS - 1))
    rows = g.op('Concat', cut((1, ROWS), (0, 1)), inside, axis=3)
    return g.finish(g.op('Mul', g.op('Concat', cut((0, 1), (0, ROWS)), rows, axis=2), g.const(1.5)), v)


@form(1)
def positions_in_a_window(g):
    return in_a_window(g)


@form(0)
def window_of_other_rows(g):
    return in_a_window(g, taken=0)


def softcapped(g, inside, outside):
    q, k, v = g.qkv()
    s, cap = g.scores(q, k), g.const(1.5)
    s = g.op('Add', s, g.weight(HEADS, ROWS, ROWS)) if inside else s
    s = g.op('Mul', g.op('Tanh', g.op('Div', s, cap)), cap)
    return g.finish(g.op('Add', s, g.weight(HEADS, ROWS, ROWS)) if outside else s, v)


@form(1)
def bias_behind_softcap(g):
    return softcapped(g, False, True)


@form(0)
def bias_inside_softcap(g):
    return softcapped(g, True, False)


@form(1)
def heads_by_expand(g):
    g.input('q', 2 * HEADS, ROWS, SIZE)
    dims = g.op('Concat', g.op('Shape', 'q', start=0, end=1), g.ints(HEADS, 2, ROWS, SIZE), axis=0)
    return repeated(g, lambda t: g.op('Expand', t, dims))


@form(1)
def heads_by_tile(g):
    return repeated(g, lambda t: g.op('Tile', t, g.ints(1, 1, 2, 1, 1)))


@form(1)
def values_shared_by_heads(g):
    """As temporal fusion transformers: each head has queries and keys of its own, all have the same values."""
    q, k = g.input('q', HEADS, ROWS, SIZE), g.input('k', HEADS, ROWS, SIZE)
    return g.finish(g.scores(q, k), g.input('v', 1, ROWS, SIZE))


@form(1)
def keys_shared_by_heads(g):
    q, v = g.input('q', HEADS, ROWS, SIZE), g.input('v', HEADS, ROWS, SIZE)
    return g.finish(g.scores(q, g.input('k', 1, ROWS, SIZE)), v)


def sunk(g, scores, v, columns=1, begin=0):
    """As gpt-oss: columns beside the scores, whose weights are dropped."""
    sinks = g.op('Expand', g.weight(1, HEADS, 1, columns), g.op('Concat', g.op('Shape', v, start=0, end=1), g.ints(HEADS, ROWS, columns), axis=0))
    s = g.op('Concat', scores, sinks, axis=-1)
    s = g.op('Sub', s, g.op('ReduceMax', s, axes=[3], keepdims=1))
    return g.op('MatMul', g.op('Slice', g.op('Softmax', s, axis=-1), g.ints(begin), g.ints(begin + ROWS), g.ints(3)), v)


@form(1)
def sink_and_mask(g):
    q, k, v = g.qkv()
    mask = g.op('Where', g.input('m', 1, ROWS, ROWS, dtype=bool), g.const(0), g.const(LOWEST))
    return sunk(g, g.op('Add', g.scores(q, k), mask), v)


@form(1)
def sink_and_bias(g):
    q, k, v = g.qkv()
    return sunk(g, g.op('Add', g.scores(q, k), g.input('b', 1, ROWS, ROWS)), v)


@form(0)
def sink_kept_and_key_dropped(g):
    q, k, v = g.qkv()
    return sunk(g, g.scores(q, k), v, begin=1)


@form(0)
def two_sinks(g):
    q, k, v = g.qkv()
    return sunk(g, g.scores(q, k), v, columns=2)


@form(1)
def keys_of_a_batch_by_another_name(g):
    """As encoders and decoders of Transformers have it whose batches were named apart: the keys' is cut like the queries'."""
    n, keys = g.op('Shape', g.input('x', ROWS, WIDTH), end=1), ROWS + 2
    rows = g.op('Mul', n, g.ints(HEADS))

    def like(t, first, *dims):
        return g.op('Reshape', t, g.op('Concat', first, g.ints(*dims), axis=0))

    def heads(name, *dims):
        t = g.op('MatMul', g.input(name, *dims, batch='batch' if name == 'x' else 'encoded'), g.weight(WIDTH, WIDTH))
        return like(g.op('Transpose', like(t, n, -1, HEADS, SIZE), perm=[0, 2, 1, 3]), rows, -1, SIZE)

    q, k, v = g.op('Mul', heads('x', ROWS, WIDTH), g.const(SIZE ** -0.5)), heads('e', keys, WIDTH), heads('e', keys, WIDTH)
    mask = g.op('Cast', g.input('m', 1, 1, keys, dtype=bool, batch='encoded'), to=T.FLOAT)
    mask = g.op('Mul', g.op('Sub', g.const(1), mask), g.const(LOWEST))
    s = like(g.op('MatMul', q, g.op('Transpose', k, perm=[0, 2, 1])), n, HEADS, ROWS, -1)
    s = g.op('Reshape', g.op('Add', s, mask), g.op('Concat', rows, g.ints(ROWS), g.op('Shape', k, start=1, end=2), axis=0))
    y = g.finish(s, v)
    return like(g.op('Transpose', like(y, n, HEADS, ROWS, SIZE), perm=[0, 2, 1, 3]), n, ROWS, WIDTH)


@form(0)
def softmax_over_queries(g):
    q, k, v = g.qkv()
    return g.op('MatMul', g.op('Softmax', g.scores(q, k), axis=2), v)


def check(args, name, function, count):
    work = os.path.join(args.build, 'spelled', name)
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    model, library, stats, g = os.path.join(work, 'm.onnx'), os.path.join(work, 'm.so'), os.path.join(work, 'm.json'), Graph()
    y = function(g)
    g.save(model, g.ports, [graphs.port(y, np.float32, None)])
    network.save_inputs(os.path.join(work, 'in'), g.feeds)
    want = network.ort_session(model, optimised=False).run(None, g.feeds)[0]
    why = network.compile_model(args, model, library, '-O3', ['-j', '1', '--stats=' + stats])
    why = why or network.execute(args, library, os.path.join(work, 'in'), os.path.join(work, 'out'), 2)
    if why:
        return why
    found = network.attentions(stats)
    if found != count:
        return '%d attentions found, expected %d' % (found, count)
    why = lib.difference('y', np.load(network.by_index(os.path.join(work, 'out'))[0]), want, 1e-5)
    shutil.rmtree(work, ignore_errors=True)
    return why


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    for name, function, count in FORMS:
        if args.wanted(name):
            suite.result(name, check(args, name, function, count))
    suite.done()


if __name__ == '__main__':
    main()
