# SPDX-License-Identifier: Apache-2.0
"""Trains the decoder of this example to know text.txt by heart: decode.onnx, and what it should write.

A token is a byte. Two layers of GroupQueryAttention and a gated feed-forward network, as in Llama, only small. Weights are
stored in half precision.

    pip install torch onnx
    python train.py
"""
import numpy as np
import onnx
import torch
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

TOKENS, HIDDEN, HEADS, KEPT, SIZE, WIDE, LAYERS, ROOM = 128, 64, 4, 2, 16, 128, 2, 512
torch.manual_seed(1)
torch.set_num_threads(1)
angle = torch.arange(ROOM)[:, None] * 100.0 ** (-torch.arange(SIZE // 2) / (SIZE // 2))[None]
SHAPES = {'q': (HIDDEN, HEADS * SIZE), 'k': (HIDDEN, KEPT * SIZE), 'v': (HIDDEN, KEPT * SIZE), 'o': (HEADS * SIZE, HIDDEN),
          'gate': (HIDDEN, WIDE), 'up': (HIDDEN, WIDE), 'down': (WIDE, HIDDEN)}


def normalised(x):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)


def turned(x):
    """x [batch, heads, tokens, size], by the positions of its tokens."""
    cos, sin = angle[:x.shape[2]].cos(), angle[:x.shape[2]].sin()
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def scores(w, ids):
    x = w['words'][ids]
    for i in range(LAYERS):
        y = normalised(x)
        q, k, v = ((y @ w['%s%d' % (n, i)]).unflatten(-1, (-1, SIZE)).transpose(1, 2) for n in 'qkv')
        y = torch.nn.functional.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True, enable_gqa=True)
        x = x + y.transpose(1, 2).flatten(2) @ w['o%d' % i]
        y = normalised(x)
        x = x + (torch.nn.functional.silu(y @ w['gate%d' % i]) * (y @ w['up%d' % i])) @ w['down%d' % i]
    return normalised(x) @ w['scores']


def train(ids):
    w = {'words': torch.randn(TOKENS, HIDDEN), 'scores': torch.randn(HIDDEN, TOKENS) / 8}
    for i in range(LAYERS):
        w.update({n + str(i): torch.randn(s) / s[0] ** 0.5 for n, s in SHAPES.items()})
    for p in w.values():
        p.requires_grad_()
    steps, optimiser = 600, torch.optim.Adam(w.values(), lr=4e-3)
    for step in range(steps):
        for group in optimiser.param_groups:
            group['lr'] = 4e-3 * (1 - step / steps) + 1e-5
        loss = torch.nn.functional.cross_entropy(scores(w, ids[None, :-1]).flatten(0, 1), ids[1:])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 50 == 0:
            print(step, loss.item(), flush=True)
    return {n: p.detach().half().numpy() for n, p in w.items()}


def export(w, path):
    nodes, constants = [], []

    def const(name, x):
        constants.append(numpy_helper.from_array(x, name))
        return name

    def op(kind, *inputs, out, domain='', **attributes):
        nodes.append(h.make_node(kind, inputs, [out] if isinstance(out, str) else out, domain=domain, **attributes))
        return out

    def norm(x, out):
        return op('SimplifiedLayerNormalization', x, 'ones', out=out, axis=-1, epsilon=1e-5)

    for name, x in w.items():
        op('Cast', const(name + '_half', x), out=name, to=T.FLOAT)
    const('ones', np.ones(HIDDEN, np.float32))
    const('cos', angle.cos().numpy().astype(np.float32))
    const('sin', angle.sin().numpy().astype(np.float32))
    x, caches = op('Gather', 'words', 'ids', out='x'), []
    for i in map(str, range(LAYERS)):
        y = norm(x, 'n' + i)
        q, k, v = (op('MatMul', y, n + i, out='%s_%s' % (n, i)) for n in 'qkv')
        outs = ['a' + i, 'present_key_' + i, 'present_value_' + i]
        op('GroupQueryAttention', q, k, v, 'past_key_' + i, 'past_value_' + i, 'seqlens_k', 'total_sequence_length', 'cos', 'sin', out=outs,
           domain='com.microsoft', num_heads=HEADS, kv_num_heads=KEPT, do_rotary=1)
        caches += [('key_' + i), ('value_' + i)]
        x = op('Add', x, op('MatMul', outs[0], 'o' + i, out='p' + i), out='r' + i)
        y = norm(x, 'm' + i)
        gate = op('MatMul', y, 'gate' + i, out='g' + i)
        gate = op('Mul', gate, op('Sigmoid', gate, out='s' + i), out='t' + i)
        y = op('Mul', gate, op('MatMul', y, 'up' + i, out='u' + i), out='w' + i)
        x = op('Add', x, op('MatMul', y, 'down' + i, out='d' + i), out='x' + i)
    op('MatMul', norm(x, 'last'), 'scores', out='logits')
    port = h.make_tensor_value_info
    inputs = [port('ids', T.INT64, ['batch', 'tokens']), port('seqlens_k', T.INT32, ['batch']), port('total_sequence_length', T.INT32, [])]
    inputs += [port('past_' + c, T.FLOAT, ['batch', KEPT, 'room', SIZE]) for c in caches]
    outputs = [port('logits', T.FLOAT, ['batch', 'tokens', TOKENS])]
    outputs += [port('present_' + c, T.FLOAT, ['batch', KEPT, 'room', SIZE]) for c in caches]
    graph = h.make_graph(nodes, 'decode', inputs, outputs, constants)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid('', 17), h.make_opsetid('com.microsoft', 1)], ir_version=8), path)


if __name__ == '__main__':
    text = open('text.txt', 'rb').read()
    export(train(torch.tensor(list(text))), 'decode.onnx')
