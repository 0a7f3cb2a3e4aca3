# SPDX-License-Identifier: Apache-2.0
"""A decoder as Llama's is exported with a cache that grows (DynamicCache): present = Concat(past, new) along the sequence, keys
and values of few heads repeated, rotary embeddings computed from position_ids, a causal mask and attention_mask. Weights are
random.
"""
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto as T

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import graphs


def decoder(path, layers=2, hidden=32, heads=4, kept=2, wide=48, words=50, dtype=np.float32, seed=3, external=False):
    g = graphs.Graph(seed)
    size, kind = hidden // heads, T.FLOAT16 if dtype == np.float16 else T.FLOAT

    def weight(*dims):
        return g.const((g.rng.standard_normal(dims, np.float32) / np.float32(dims[0] ** 0.5)).astype(dtype))

    def norm(x):
        wide_x = g.op('Cast', x, to=T.FLOAT) if dtype == np.float16 else x
        mean = g.op('ReduceMean', g.op('Pow', wide_x, g.const(np.float32(2))), axes=[-1], keepdims=1)
        y = g.op('Mul', wide_x, g.op('Div', g.const(np.float32(1)), g.op('Sqrt', g.op('Add', mean, g.const(np.float32(1e-5))))))
        y = g.op('Cast', y, to=kind) if dtype == np.float16 else y
        return g.op('Mul', y, g.const(np.ones(hidden, dtype)))

    def split_heads(x, n):
        return g.op('Transpose', g.op('Reshape', x, g.ints(0, 0, n, size)), perm=[0, 2, 1, 3])

    def rotated(x):
        half = g.op('Slice', x, g.ints(0), g.ints(size // 2), g.ints(3)), g.op('Slice', x, g.ints(size // 2), g.ints(size), g.ints(3))
        turned = g.op('Concat', g.op('Neg', half[1]), half[0], axis=3)
        return g.op('Add', g.op('Mul', x, cos), g.op('Mul', turned, sin))

    def dim(x, axis):
        return g.op('Gather', g.op('Shape', x), g.ints(axis), axis=0)

    def repeated(x):
        b, s = dim(x, 0), dim(x, 2)
        x = g.op('Expand', g.op('Unsqueeze', x, g.ints(2)), g.op('Concat', b, g.ints(kept, heads // kept), s, g.ints(size), axis=0))
        return g.op('Reshape', x, g.op('Concat', b, g.ints(heads), s, g.ints(size), axis=0))

    frequencies = g.const(np.float32(10000.0 ** (-np.arange(size // 2) * 2 / size))[None, None])
    angle = g.op('Mul', g.op('Unsqueeze', g.op('Cast', 'position_ids', to=T.FLOAT), g.ints(2)), frequencies)
    angle = g.op('Unsqueeze', g.op('Concat', angle, angle, axis=2), g.ints(1))
    cos, sin = (g.op('Cast', g.op(f, angle), to=kind) for f in ('Cos', 'Sin'))
    total, fresh = dim('attention_mask', 1), dim('input_ids', 1)
    scalar = g.ints()
    keys = g.op('Range', g.const(0, np.int64), g.op('Reshape', total, scalar), g.const(1, np.int64))
    queries = g.op('Range', g.op('Reshape', g.op('Sub', total, fresh), scalar), g.op('Reshape', total, scalar), g.const(1, np.int64))
    causal = g.op('LessOrEqual', g.op('Unsqueeze', keys, g.ints(0)), g.op('Unsqueeze', queries, g.ints(1)))
    present = g.op('Cast', g.op('Unsqueeze', 'attention_mask', g.ints(1, 2)), to=T.BOOL)
    lowest = g.const(np.finfo(dtype).min, dtype)
    mask = g.op('Where', g.op('And', g.op('Unsqueeze', causal, g.ints(0, 1)), present), g.const(0, dtype), lowest)

    x, caches = g.op('Gather', weight(words, hidden), 'input_ids'), []
    for i in range(layers):
        y = norm(x)
        q, k, v = (split_heads(g.op('MatMul', y, weight(hidden, n * size)), n) for n in (heads, kept, kept))
        q, k = rotated(q), rotated(k)
        k = g.op('Concat', 'past_key_values.%d.key' % i, k, axis=2, out='present.%d.key' % i)
        v = g.op('Concat', 'past_key_values.%d.value' % i, v, axis=2, out='present.%d.value' % i)
        caches += ['%d.key' % i, '%d.value' % i]
        s = g.op('Mul', g.op('MatMul', q, g.op('Transpose', repeated(k), perm=[0, 1, 3, 2])), g.const(size ** -0.5, dtype))
        y = g.op('MatMul', g.op('Softmax', g.op('Add', s, mask), axis=3), repeated(v))
        y = g.op('Reshape', g.op('Transpose', y, perm=[0, 2, 1, 3]), g.ints(0, 0, hidden))
        x = g.op('Add', x, g.op('MatMul', y, weight(hidden, hidden)))
        y = norm(x)
        z = g.op('MatMul', y, weight(hidden, wide))
        z = g.op('Mul', g.op('Mul', z, g.op('Sigmoid', z)), g.op('MatMul', y, weight(hidden, wide)))
        x = g.op('Add', x, g.op('MatMul', z, weight(wide, hidden)))
    g.op('MatMul', norm(x), weight(hidden, words), out='logits')
    inputs = [('input_ids', T.INT64, ['batch', 'new']), ('attention_mask', T.INT64, ['batch', 'total']),
              ('position_ids', T.INT64, ['batch', 'new'])]
    inputs += [('past_key_values.' + n, kind, ['batch', kept, 'past', size]) for n in caches]
    outputs = [('logits', kind, ['batch', 'new', words])] + [('present.' + n, kind, ['batch', kept, 'total', size]) for n in caches]
    model = g.model([graphs.port(*p) for p in inputs], [graphs.port(*p) for p in outputs])
    onnx.save(model, path, save_as_external_data=external, location=os.path.basename(path) + '.data')
    return caches
