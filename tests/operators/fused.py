# SPDX-License-Identifier: Apache-2.0
"""com.microsoft operators that optimisers write in place of patterns, at -O0 and -O3: beside ONNX Runtime's own kernel of
the operator, or, where only its GPU build has one, beside the pattern.

In:  --build DIR, names (regular expressions) to restrict it.
Out: the closing line.
"""
import os
import shutil
import sys

import numpy as np
from onnx import TensorProto as T
from onnx import helper as h

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, TESTS)
import graphs
import lib
import network

MS = 'com.microsoft'
LAST, FIRST = [0, 3, 1, 2], [0, 2, 3, 1]  # Transpose from channels last to first, and back
rng = np.random.default_rng(11)
CASES = []  # name, model, oracle or None, feed


def real(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def byte(*shape):
    return rng.integers(0, 256, shape).astype(np.uint8)


def node(kind, inputs, outputs, domain='', **attributes):
    return h.make_node(kind, inputs.split(' '), outputs.split(' '), domain=domain, **attributes)


def model(nodes, feed, outputs, constants=None, sizes=None, opset=21):
    """Sizes but the last are symbols, where `sizes` has no others."""
    ports = [graphs.port(name, x.dtype, (sizes or {}).get(name) or
                         ['%s%d' % (name, i) if i + 1 < x.ndim else n for i, n in enumerate(x.shape)])
             for name, x in feed.items()]
    return graphs.model_of(nodes, ports, [graphs.port(n, t, None) for n, t in outputs.items()],
                           [graphs.constant(name, x) for name, x in (constants or {}).items()], opset=opset)


def case(name, kind, inputs, feed, outputs=None, pattern=None, constants=None, sizes=None, opset=None, **attributes):
    """pattern: nodes that mean the same; none: ONNX Runtime has the operator. opset: it is one of ai.onnx's, of that
    set."""
    outputs = outputs or {'y': T.FLOAT}
    fused = model([node(kind, inputs, ' '.join(outputs), '' if opset else MS, **attributes)], feed, outputs, constants, sizes,
                  opset or 21)
    CASES.append((name, fused, model(pattern, feed, outputs, constants, sizes) if pattern else None, feed))


def products():
    feed = {'a': real(5, 7), 'b': real(9, 7), 'c': real(9)}
    for activation, parameters in (('Relu', {}), ('LeakyRelu', {'alpha': 0.2}), ('Elu', {'alpha': 0.7}), ('Sigmoid', {}),
                                   ('HardSigmoid', {'alpha': 0.3, 'beta': 0.4}), ('Tanh', {}), ('Softplus', {}),
                                   ('ThresholdedRelu', {'alpha': 0.5})):
        case('gemm ' + activation, 'FusedGemm', 'a b c', feed, activation=activation, transB=1, alpha=0.5, beta=2.0,
             **{'activation_' + name: value for name, value in parameters.items()})
    feed = {'a': real(5, 7), 'b': real(7, 9), 'c': real(9)}
    case('gemm fast gelu', 'GemmFastGelu', 'a b c', feed,
         pattern=[node('MatMul', 'a b', 't'), node('FastGelu', 't c', 'y', MS)])
    case('transposed product', 'TransposeMatMul', 'a b', {'a': real(2, 7, 5), 'b': real(2, 9, 7)}, transA=1, transB=1,
         alpha=0.25)
    words = [rng.integers(-3000, 3000, dims).astype(np.int16) for dims in ((4, 6), (6, 3))]
    case('integers of 16 bits', 'MatMulInteger16', 'a b', dict(zip('ab', words)), {'y': T.INT32})


def channels_last():
    x, w, bias, skip = real(2, 9, 8, 6), real(10, 3, 3, 3), real(10), real(2, 5, 4, 10)
    shape = {'kernel_shape': [3, 3], 'strides': [2, 2], 'pads': [1, 1, 1, 1], 'group': 2}
    case('conv', 'NhwcConv', 'x w b', {'x': x}, constants={'w': w.transpose(0, 2, 3, 1).copy(), 'b': bias}, pattern=[
        node('Transpose', 'x', 'xt', perm=LAST), node('Transpose', 'w', 'wt', perm=LAST),
        node('Conv', 'xt wt b', 'yt', **shape), node('Transpose', 'yt', 'y', perm=FIRST)], **shape)
    case('conv sum relu', 'NhwcFusedConv', 'x w b z', {'x': x, 'z': skip}, constants={'w': w, 'b': bias}, pattern=[
        node('Transpose', 'x', 'xt', perm=LAST), node('Conv', 'xt w b', 'yt', **shape),
        node('Transpose', 'yt', 't', perm=FIRST), node('Add', 't z', 's'), node('Relu', 's', 'y')], activation='Relu', **shape)
    case('conv clipped', 'FusedConv', 'x w', {'x': real(1, 3, 5, 5)}, constants={'w': real(4, 3, 3, 3)}, activation='Clip',
         activation_params=[-0.3, 0.8])
    case('conv of bytes', 'QLinearConv', 'x sx zx w sw zw sy zy b', {'x': byte(1, 6, 5, 3)}, {'y': T.UINT8}, constants={
        'sx': np.float32(0.02), 'zx': np.uint8(120), 'w': rng.integers(-60, 60, (4, 3, 3, 3)).astype(np.int8),
        'sw': rng.uniform(0.01, 0.02, 4).astype(np.float32), 'zw': np.zeros(4, np.int8), 'sy': np.float32(0.1),
        'zy': np.uint8(100), 'b': rng.integers(-200, 200, 4).astype(np.int32)}, channels_last=1, pads=[1] * 4)
    case('turned conv, pads as an input', 'ConvTransposeWithDynamicPads', 'x w p b', {'x': real(1, 4, 5, 6)}, constants={
        'w': real(4, 3, 3, 3), 'p': np.array([1, 0, 2, 1]), 'b': real(6)}, strides=[2, 2], output_padding=[1, 0], group=2)
    case('max pool', 'NhwcMaxPool', 'x', {'x': byte(2, 7, 9, 5)}, {'y': T.UINT8},
         kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])


def diffusion():
    def normalised(source, groups, last, silu, target):
        middle = [node('GroupNormalization', ('t' if last else source) + ' g b', 'n', num_groups=groups, epsilon=1e-3)]
        nodes = [node('Transpose', source, 't', perm=LAST)] * last + middle + [node('Transpose', 'n', 'm', perm=FIRST)] * last
        end = 'm' if last else 'n'
        return nodes + ([node('Sigmoid', end, 'gate'), node('Mul', end + ' gate', target)] if silu else
                        [node('Identity', end, target)])
    scale = {'g': real(8), 'b': real(8)}
    for last, silu in ((1, 1), (0, 0), (0, 1)):
        x = real(2, 5, 4, 8) if last else real(2, 8, 5, 4)
        case('group norm %d %d' % (last, silu), 'GroupNorm', 'x g b', {'x': x}, constants=scale, groups=4, epsilon=1e-3,
             activation=silu, channels_last=last, pattern=normalised('x', 4, last, silu, 'y'))
    both = {'y': T.FLOAT, 's': T.FLOAT}
    for name, skip in (('picture', real(2, 5, 4, 8)), ('pixel', real(2, 1, 1, 8)), ('flat', real(2, 8))):
        pattern = [node('Unsqueeze', 'k axes', 'k4')] if name == 'flat' else [node('Identity', 'k', 'k4')]
        pattern += [node('Add', 'x k4', 'xk'), node('Add', 'xk c', 's')] + normalised('s', 2, 1, 1, 'y')
        case('skip group norm ' + name, 'SkipGroupNorm', 'x g b k c', {'x': real(2, 5, 4, 8), 'k': skip}, both, pattern,
             {**scale, 'c': real(8), 'axes': np.array([1, 2])}, groups=2, epsilon=1e-3, activation=1)
    case('bias add', 'BiasAdd', 'x b k', {'x': real(2, 6, 8), 'k': real(2, 6, 8)}, constants={'b': real(8)},
         pattern=[node('Add', 'x b', 't'), node('Add', 't k', 'y')])
    case('bias split gelu', 'BiasSplitGelu', 'x b', {'x': real(2, 6, 8)}, constants={'b': real(8)}, pattern=[
        node('Add', 'x b', 't'), node('Split', 't', 'l r', axis=-1, num_outputs=2), node('Gelu', 'r', 'e'),
        node('Mul', 'l e', 'y')])


def relative_buckets(inputs, farthest, both_ways):
    """T5's bias as nodes: inputs are the table as [buckets, heads], number of its buckets 8."""
    buckets = 8 // (2 if both_ways else 1)
    exact = buckets // 2
    numbers = {'one': 1, 'zero': 0, 'buckets': buckets, 'exact': exact, 'most': buckets - 1}
    constants = {k: np.array(v) for k, v in numbers.items()}
    constants.update({'exact_f': np.array(exact, np.float32), 'axis0': np.array([0]), 'axis1': np.array([1]),
                      'factor': np.array((buckets - exact) / np.log(farthest / exact), np.float32)})
    nodes = [node('Range', 'zero rows one', 'i'), node('Range', 'zero columns one', 'j'), node('Unsqueeze', 'i axis1', 'i2'),
             node('Sub', 'j i2', 'away')]
    if both_ways:
        nodes += [node('Greater', 'away zero', 'behind'), node('Where', 'behind buckets zero', 'base'), node('Abs', 'away', 'd')]
    else:
        nodes += [node('Min', 'away zero', 'low'), node('Neg', 'low', 'd'), node('Mul', 'd zero', 'base')]
    nodes += [node('Max', 'd one', 'd1'), node('Cast', 'd1', 'f', to=T.FLOAT), node('Div', 'f exact_f', 'q'), node('Log', 'q', 'l'),
              node('Mul', 'l factor', 'm'), node('Cast', 'm', 'c', to=T.INT64), node('Add', 'c exact', 'e'), node('Min', 'e most', 'far'),
              node('Less', 'd exact', 'near'), node('Where', 'near d far', 'w'), node('Add', 'w base', 'at'),
              node('Gather', inputs, 'g3', axis=0), node('Transpose', 'g3', 'g4', perm=[2, 0, 1]), node('Unsqueeze', 'g4 axis0', 'y')]
    return nodes, constants


def attention():
    case('bias softmax', 'BiasSoftmax', 'x b', {'x': real(2, 3, 4, 5), 'b': real(2, 1, 1, 5)}, axis=3, is_inner_broadcast=1,
         pattern=[node('Add', 'x b', 't'), node('Softmax', 't', 'y', axis=3)])
    table = real(8, 3)
    lengths = {'rows': np.array(19), 'columns': np.array(19)}
    for both_ways in (0, 1):
        nodes, constants = relative_buckets('table at', 16, both_ways)
        turned = np.ascontiguousarray(table.T).reshape(8, 3)  # as the operator wants it
        case('relative position %d' % both_ways, 'RelativePositionBias', 'turned rows columns', lengths, pattern=nodes,
             constants={**constants, 'table': table, 'turned': turned}, max_distance=16, is_bidirectional=both_ways)
    case('gated relative position', 'GatedRelativePositionBias', 'q qb r w b e', {'q': real(2, 5, 12), 'r': real(1, 3, 5, 5)},
         constants={'qb': real(12), 'w': real(4, 8), 'b': real(8), 'e': real(1, 3, 1, 1), 'heads': np.array([0, 0, 3, 4]),
                    'pairs': np.array([0, 0, 0, 2, 4]), 'last': np.array([-1]), 'one': np.array(1, np.float32),
                    'two': np.array(2, np.float32)}, num_heads=3, pattern=[
            node('Add', 'q qb', 'q1'), node('Reshape', 'q1 heads', 'q2'), node('Transpose', 'q2', 'q3', perm=[0, 2, 1, 3]),
            node('MatMul', 'q3 w', 'm'), node('Add', 'm b', 'm1'), node('Reshape', 'm1 pairs', 'm2'),
            node('ReduceSum', 'm2 last', 's', keepdims=0), node('Sigmoid', 's', 'g'), node('Split', 'g', 'gu gr', axis=-1, num_outputs=2),
            node('Mul', 'gr e', 'v'), node('Sub', 'v one', 'v1'), node('Mul', 'gu v1', 'v2'), node('Add', 'v2 two', 'v3'),
            node('Mul', 'v3 r', 'y')])
    outputs = {'y': T.FLOAT, 'present_k': T.FLOAT, 'present_v': T.FLOAT}
    case('batches by other names', 'MultiHeadAttention', 'q k v b   pk pv', {
        'q': real(2, 1, 12), 'k': real(2, 1, 12), 'v': real(2, 1, 12), 'pk': real(2, 3, 6, 4), 'pv': real(2, 3, 6, 4)}, outputs,
         constants={'b': real(36)}, num_heads=3)


def shared_heads(heads=4, kept=2, size=8, batch=2):
    """A prompt and a step of GroupQueryAttention, with what else a softmax may sum and with norms of queries and keys."""
    outputs, counts = {'y': T.FLOAT, 'present_k': T.FLOAT, 'present_v': T.FLOAT}, {'num_heads': heads, 'kv_num_heads': kept}
    for tokens, before in ((5, 0), (1, 6)):
        feed = {'q': real(batch, tokens, heads * size), 'k': real(batch, tokens, kept * size), 'v': real(batch, tokens, kept * size),
                'pk': real(batch, kept, before, size), 'pv': real(batch, kept, before, size)}
        constants = {'lengths': np.full(batch, tokens + before - 1, np.int32), 'total': np.array(tokens + before, np.int32),
                     'sink': real(heads), 'bias': real(1, heads, tokens, tokens + before), 'qn': real(size), 'kn': real(size),
                     'apart': np.array([0, 0, -1, size]), 'packed': np.array([0, 0, -1])}
        for name, inputs, given in (('sink', ' sink', {}), ('smooth', '', {'smooth_softmax': 1}), ('bias and sink', 'bias sink', {}),
                                    ('window and sink', ' sink', {'local_window_size': 3}), ('all keys', '', {'causal': 0})):
            case('shared heads, %s, %d tokens' % (name, tokens), 'GroupQueryAttention', 'q k v pk pv lengths total    ' + inputs, feed,
                 outputs, constants=constants, **counts, **given)
        norms = [step for n in 'qk' for step in (
            node('Reshape', n + ' apart', n + '1'), node('SimplifiedLayerNormalization', '%s1 %sn' % (n, n), n + '2', epsilon=1e-6),
            node('Reshape', n + '2 packed', n + '3'))]
        case('shared heads, norms, %d tokens' % tokens, 'GroupQueryAttention', 'q k v pk pv lengths total        qn kn', feed, outputs,
             norms + [node('GroupQueryAttention', 'q3 k3 v pk pv lengths total', ' '.join(outputs), MS, **counts)], constants, **counts)


def sliding_caches(heads=4, kept=2, size=16, window=4):
    """Caches no longer than the window, and one with room for 3 more, from which 4 keys go at a time."""
    outputs, counts = {'y': T.FLOAT, 'present_k': T.FLOAT, 'present_v': T.FLOAT}, {'num_heads': heads, 'kv_num_heads': kept}

    def feed_of(batch, tokens, capacity):
        return {'q': real(batch, tokens, heads * size), 'k': real(batch, tokens, kept * size), 'v': real(batch, tokens, kept * size),
                'pk': real(batch, kept, capacity, size), 'pv': real(batch, kept, capacity, size)}

    for tokens, before in ((5, 0), (1, 3), (1, 9)):
        constants = {'lengths': np.full(2, tokens + before - 1, np.int32), 'total': np.array(tokens + before, np.int32),
                     'cos': real(16, size // 2), 'sin': real(16, size // 2), 'sink': real(heads)}
        case('sliding cache, %d tokens of %d' % (tokens, before + tokens), 'GroupQueryAttention', 'q k v pk pv lengths total cos sin   sink',
             feed_of(2, tokens, window), outputs, constants=constants, do_rotary=1, local_window_size=window, sliding_window_cache=1,
             **counts)
    for before, there, tokens, stay in ((9, 5, 1, 6), (9, 5, 3, 4), (6, 6, 1, 7), (3, 3, 9, 4)):
        constants = {'lengths': np.array([tokens + before - 1], np.int32), 'total': np.array(tokens + before, np.int32),
                     'lengths2': np.array([tokens + there - 1], np.int32), 'total2': np.array(tokens + there, np.int32),
                     'zero': np.array([0]), 'two': np.array([2]), 'there': np.array([there]), 'end': np.array([tokens + there]),
                     'gone': np.array([tokens + there - stay]), 'pads': np.array([0] * 6 + [7 - stay, 0])}
        pattern = [node('Slice', 'p%s zero there two' % n, 'r' + n) for n in 'kv']
        pattern += [node('GroupQueryAttention', 'q k v rk rv lengths2 total2', 'y all_k all_v', MS, local_window_size=window, **counts)]
        pattern += [step for n in 'kv' for step in (node('Slice', 'all_%s gone end two' % n, 'stay_' + n),
                                                    node('Pad', 'stay_%s pads' % n, 'present_' + n))]
        case('sliding cache with room, %d tokens behind %d' % (tokens, before), 'GroupQueryAttention', 'q k v pk pv lengths total',
             feed_of(1, tokens, 7), outputs, pattern, constants, local_window_size=window, sliding_window_cache=1, **counts)


def experts(tokens=5, hidden=32, width=16, count=4):
    feed = {'x': real(tokens, hidden), 'r': real(tokens, count)}
    for name, wide, given in (('relu', 1, {'k': 1}), ('silu', 1, {'k': 2}), ('gelu', 1, {'k': 2, 'normalize_routing_weights': 1}),
                              ('swiglu', 2, {'k': 2, 'swiglu_fusion': 1, 'activation_alpha': 1.7, 'activation_beta': 1.0,
                                             'swiglu_limit': 0.7})):
        constants = {'w1': real(count, wide * width, hidden), 'b1': real(count, wide * width), 'w2': real(count, hidden, width),
                     'b2': real(count, hidden)}
        case('experts ' + name, 'MoE', 'x r w1 b1 w2 b2', feed, constants=constants, activation_type=name, **given)
    for name, block, inputs in (('', 0, ''), (', zero points', 0, '    z1 z2'), (', blocks', 16, ''), (', weights', 0, '       rw')):
        scales = [(count, n, k // block) if block else (count, n) for n, k in ((width, hidden), (hidden, width))]
        constants = {'w1': byte(count, width, hidden // 2), 'w2': byte(count, hidden, width // 2), 'b1': real(count, width),
                     'b2': real(count, hidden), 's1': abs(real(*scales[0])), 's2': abs(real(*scales[1])),
                     'z1': byte(count, width // 2), 'z2': byte(count, hidden // 2)}
        given = {**feed, 'rw': abs(real(tokens, count))} if 'rw' in inputs else feed
        case('experts of 4 bits' + name, 'QMoE', 'x r w1 s1 b1 w2 s2 b2' + inputs, given, constants=constants,
             activation_type='silu', k=2, **({'block_size': block} if block else {}))
    half = real(2, count, width, hidden)
    for fusion, w1, inputs in ((0, half[0], '  w3'), (2, np.concatenate(half, 1), '')):
        constants = {'w': w1, 'w2': real(count, hidden, width), 'w3': half[1], 'turns': np.stack(half, 2).reshape(count, -1, hidden)}
        case('experts, swiglu %d' % fusion, 'MoE', 'x r w  w2' + inputs, feed, constants=constants, k=2, activation_type='swiglu',
             swiglu_fusion=fusion,
             pattern=[node('MoE', 'x r turns  w2', 'y', MS, k=2, activation_type='swiglu', swiglu_fusion=1)])


def text():
    tables = {'word': byte(20, 8), 'place': byte(12, 8), 'part': byte(2, 8), 'gamma': byte(8), 'beta': byte(8)}
    constants = {**tables, **{'s_' + n: np.float32(0.01 + 0.003 * i) for i, n in enumerate(tables)},
                 **{'z_' + n: np.uint8(110 + i) for i, n in enumerate(tables)}}
    names = '%s  %s %s' % (' '.join(tables), ' '.join('s_' + n for n in tables), ' '.join('z_' + n for n in tables))
    floats = {n: x.astype(np.float32) for n, x in tables.items() if n != 'part'}
    case('embedded without parts', 'EmbedLayerNormalization', 'ids  word place  gamma beta', {
        'ids': rng.integers(0, 20, (2, 6)).astype(np.int32)}, {'y': T.FLOAT, 'last': T.INT32}, constants=floats)
    case('embedded bytes', 'QEmbedLayerNormalization', 'ids parts ' + names, {
        'ids': rng.integers(0, 20, (2, 6)).astype(np.int32), 'parts': rng.integers(0, 2, (2, 6)).astype(np.int32)},
         {'y': T.FLOAT, 'last': T.INT32}, constants=constants)
    words = {'x': np.array([['a cell, divides', 'naïve  x'], ['', '23-times 12']])}
    for name, how in (('words', {'tokenexp': '[a-zA-Z0-9_]+'}), ('long words', {'tokenexp': '\\w\\w+', 'mincharnum': 5}),
                      ('longest', {'tokenexp': 'cel|c?ell, |[0-9]*'}), ('word edges', {'tokenexp': '\\b\\w'}),
                      ('between', {'separators': [' ', '[,-]']}), ('marked', {'separators': ['\\s+'], 'mark': 1}),
                      ('characters', {'separators': [''], 'mark': 1}), ('characters by expression', {'tokenexp': '.'})):
        case('tokens ' + name, 'Tokenizer', 'x', words, {'y': T.STRING}, **{'mark': 0, 'mincharnum': 1, 'pad_value': '#', **how})
    case('no tokens', 'Tokenizer', 'x', words, {'y': T.STRING}, mark=1, mincharnum=1, pad_value='#', tokenexp='Q')


def sisters():
    x = real(3, 5)
    case('pad', 'Pad', 'x pads value', {'x': x}, constants={'pads': np.array([1, 0, 0, 2]), 'value': np.array(1.5, np.float32)})
    case('pad of a row', 'Pad', 'x pads', {'x': x}, constants={'pads': np.array([[0, 2, 1, 0]])}, mode='edge')
    case('range', 'Range', 'a b', {'a': np.array(2, np.float32), 'b': np.array(9, np.float32)})
    case('gathered', 'GatherND', 'x i', {'x': x, 'i': np.array([[0, 1], [2, 2]])})
    for mode in ('bilinear', 'bicubic'):
        for padding in ('zeros', 'border', 'reflection'):
            case('grid %s %s' % (mode, padding), 'GridSample', 'x g', {'x': real(2, 3, 6, 5), 'g': real(2, 4, 4, 2)}, mode=mode,
                 padding_mode=padding)
    case('grid 3d', 'GridSample', 'x g', {'x': real(1, 2, 5, 4, 6), 'g': real(1, 3, 4, 7, 3)},
         mode='linear', opset=20)
    case('a sample', 'SampleOp', 'x', {'x': x})
    case("tensorflow's erfc", 'Erfc', 'x', {'x': x}, opset=17, constants={'one': np.ones(1, np.float32)},
         pattern=[node('Erf', 'x', 'e'), node('Sub', 'one e', 'y')])
    case('new axis', 'ExpandDims', 'x axis', {'x': x}, constants={'axis': np.array(-1, np.int32)})
    for metric in ('euclidean', 'sqeuclidean'):
        case('distances ' + metric, 'CDist', 'a b', {'a': real(4, 7), 'b': real(6, 7)}, metric=metric)


def attentions(heads=3, size=4, tokens=6, batch=2):
    """Attention, MultiHeadAttention and RotaryEmbedding with every way to tell queries, keys, masks and what has gone
    before."""
    width = heads * size
    x, w, b = real(batch, tokens, 10), real(10, 3 * width), real(3 * width)
    seen = np.int32([[1, 1, 1, 1, 0, 0], [1] * tokens])
    weights = {'w': w, 'b': b}
    for name, inputs, more, given in (
            ('plain', 'x w b', {}, {}), ('causal', 'x w b', {}, {'unidirectional': 1}), ('scale', 'x w b', {}, {'scale': 0.3}),
            ('mask', 'x w b m', {'m': seen}, {}), ('mask of rows', 'x w b m', {'m': np.stack([np.tril(np.outer(s, s)) + np.eye(tokens, dtype=np.int32) > 0
                                                                                     for s in seen]).astype(np.int32)}, {}),
            ('lengths', 'x w b m', {'m': np.int32([4, tokens])}, {}),
            ('ends and starts', 'x w b m', {'m': np.int32([4, 6, 1, 2])}, {}),
            ('bias', 'x w b   a', {'a': real(batch, heads, tokens, tokens)}, {}),
            ('mask and bias', 'x w b m  a', {'m': seen, 'a': real(batch, heads, tokens, tokens)}, {'unidirectional': 1})):
        case('attention, ' + name, 'Attention', inputs, {'x': x, **more}, constants=weights, num_heads=heads,
             sizes={'lengths': {'m': ['x0']}, 'ends and starts': {'x': [batch, 'x1', 10]}}.get(name), **given)
    at = np.arange(tokens)
    for ends, starts, causal in (([0, 3], [0, 0], 1), ([3, 5], [3, 2], 0), ([5, 6], [2, 6], 1)):  # who sees no key sees all
        rows = np.stack([np.tile((at >= start) & (at < end), (tokens, 1)) for end, start in zip(ends, starts)])
        rows |= ~(rows & (np.tri(tokens, dtype=bool) if causal else True)).any(-1, keepdims=True)
        case('attention, keys %s to %s, causal %d' % (starts, ends, causal), 'Attention', 'x w b m', {'x': x}, num_heads=heads,
             constants={**weights, 'm': np.int32(ends + (starts if any(starts) else [])), 'rows': rows.astype(np.int32)},
             sizes={'x': [batch, 'x1', 10]}, unidirectional=causal,
             pattern=[node('Attention', 'x w b rows', 'y', MS, num_heads=heads, unidirectional=causal)])
    case('attention, sizes of its own', 'Attention', 'x w b', {'x': x}, constants={'w': real(10, 2 * width + 6), 'b': real(2 * width + 6)},
         num_heads=heads, qkv_hidden_sizes=[width, width, 6])
    case('attention, past', 'Attention', 'x w b  past', {'x': x, 'past': real(2, batch, heads, 5, size)}, {'y': T.FLOAT, 'present': T.FLOAT},
         constants=weights, num_heads=heads, unidirectional=1)
    q, k, v = real(batch, tokens, width), real(batch, 7, width), real(batch, 7, width)
    keys = np.int32([[1, 1, 1, 0, 0, 0, 0], [1] * 7])
    for name, inputs, feed, given in (
            ('apart', 'q k v', {'q': q, 'k': k, 'v': v}, {}), ('bias', 'q k v b', {'q': q, 'k': k, 'v': v, 'b': b}, {}),
            ('scale', 'q k v', {'q': q, 'k': k, 'v': v}, {'scale': 0.7}), ('mask', 'q k v  m', {'q': q, 'k': k, 'v': v, 'm': keys}, {}),
            ('lengths and sums', 'q k v  m', {'q': q, 'k': k, 'v': v, 'm': np.int32([7, 2, 0, 6, 12, 0, 7, 14])}, {}),
            ('scores', 'q k v   a', {'q': q, 'k': k, 'v': v, 'a': real(1, heads, tokens, 7)}, {}),
            ('keys by heads', 'q k v', {'q': q, 'k': real(batch, heads, 7, size), 'v': real(batch, heads, 7, size)}, {}),
            ('causal', 'q q1 q2', {'q': q, 'q1': real(batch, tokens, width), 'q2': real(batch, tokens, width)}, {'unidirectional': 1})):
        case('multi-head attention, ' + name, 'MultiHeadAttention', inputs, feed, num_heads=heads,
             sizes={n: ['q0', heads, 'k2', size] for n in 'kv'} if name == 'keys by heads' else
             {n: [batch, n + '1', width] for n in 'qkv'} if name == 'lengths and sums' else None, **given)
    whole = {'rows': np.array([0, 0, -1]), 'q': q}
    for count, inputs in ((3, 'x'), (2, 'q x')):
        parts = ['x%d' % i for i in range(count)]
        pattern = [node('Split', 'x', ' '.join(i + 's' for i in parts), axis=3, num_outputs=count)]
        pattern += [node('Reshape', i + 's rows', i) for i in parts]
        pattern += [node('MultiHeadAttention', ' '.join(parts if count == 3 else ['q', *parts]), 'y', MS, num_heads=heads)]
        case('multi-head attention, %d packed' % count, 'MultiHeadAttention', inputs, {'x': real(batch, 7, heads, count, size)}, pattern=pattern,
             constants={k: v for k, v in whole.items() if count == 2 or k != 'q'}, sizes={'x': ['x0', 'x1', heads, count, size]},
             num_heads=heads)
    table = {'c': np.cos(real(20, 4)), 's': np.sin(real(20, 4))}
    for interleaved in (0, 1):
        for name, feed, given in (('hidden', {'x': real(batch, tokens, 24)}, {}), ('heads', {'x': real(batch, heads, tokens, 8)}, {}),
                                  ('part', {'x': real(batch, tokens, 36)}, {'rotary_embedding_dim': 8, 'num_heads': heads})):
            for at in (np.int64([3]), rng.integers(0, 20, (batch, tokens))):
                case('rotation %d, %s, %d positions' % (interleaved, name, at.size), 'RotaryEmbedding', 'x p c s', {**feed, 'p': at}, constants=table,
                     interleaved=interleaved, **given)


def cached(heads=2, kept=1, size=16, batch=2):
    """What caches of attention may be: of integers, longer than what is in them, told apart by beams; scores as an
    output."""
    counts, three = {'num_heads': heads, 'kv_num_heads': kept}, {'y': T.FLOAT, 'present_k': T.FLOAT, 'present_v': T.FLOAT}
    lengths = {'lengths': np.int32([4, 2]), 'total': np.array(5, np.int32)}
    step = {'q': real(batch, 1, heads * size), 'k': real(batch, 1, kept * size), 'v': real(batch, 1, kept * size)}
    long = {'pk': real(batch, kept, 9, size), 'pv': real(batch, kept, 9, size)}
    four = {**three, 'scores': T.FLOAT}
    bias = {'bias': real(1, heads, 1, 5)}
    case('bias of a long cache', 'GroupQueryAttention', 'q k v pk pv lengths total    bias', {**step, **long}, three,
         constants={**lengths, **bias}, **counts)
    for kind in (1, 2):
        case('scores as output %d' % kind, 'GroupQueryAttention', 'q k v pk pv lengths total', {**step, **long}, four,
             constants={**lengths, 'lengths': np.int32([4, 4])}, qk_output=kind, **counts)
    rows = {'q': real(batch, 4, heads * size), 'k': real(batch, 4, kept * size), 'v': real(batch, 4, kept * size)}
    case('all keys of a padded prompt', 'GroupQueryAttention', 'q k v   lengths total', rows, three,
         constants={'lengths': np.int32([3, 2]), 'total': np.array(4, np.int32)}, causal=0, **counts)
    for bits, scale in [(bits, scale) for bits in (8, 4) for scale in ((1,), (1, kept, 1, size), (kept * size,))]:
        past = [rng.integers(0, 256, (batch, kept, 4, size * bits // 8)).astype(np.uint8) for _ in 'kv']
        past = {'p' + n: x.view(np.int8) if bits == 8 else x for n, x in zip('kv', past)}
        kind, held = 'PER_TENSOR' if scale == (1,) else 'PER_CHANNEL', T.INT8 if bits == 8 else T.UINT8
        case('cache of %d bits, %s %d' % (bits, kind, len(scale)), 'GroupQueryAttention', 'q k v pk pv lengths total      ks vs', {**step, **past},
             {'y': T.FLOAT, 'present_k': held, 'present_v': held}, k_quant_type=kind, v_quant_type=kind, kv_cache_bit_width=bits,
             constants={'lengths': np.full(batch, 4, np.int32), 'total': np.array(5, np.int32),
                        **{n + 's': rng.uniform(0.3, 0.4, scale).astype(np.float32) * (1 if bits == 4 else 0.1) for n in 'kv'}},
             **counts)
    empty = {'q': real(batch, 1, heads * size), **long}
    case('keys of another layer', 'GroupQueryAttention', 'q k k pk pv lengths total', empty, three,
         constants={'lengths': np.full(batch, 8, np.int32), 'total': np.array(9, np.int32), 'k': real(batch, 0, kept * size)}, **counts)
    width, used = heads * size, {'used': np.int32([3])}
    feed = {'q': real(batch, 1, width), 'k': real(batch, 1, width), 'v': real(batch, 1, width), 'pk': real(batch, heads, 8, size),
            'pv': real(batch, heads, 8, size), 'beams': rng.integers(0, 2, (1, 2, 8)).astype(np.int32)}
    used['count'] = np.int32([2])
    one = node('DecoderMaskedMultiHeadAttention', 'q k v   pk pv used count beams', ' '.join(three), MS, num_heads=heads,
               past_present_share_buffer=1)
    case('beams', 'MultiHeadAttention', 'q k v    pk pv used beams', feed, three, [one], used, num_heads=heads)
    case('one token of beams', 'DecoderMaskedMultiHeadAttention', 'q k v   pk pv used count beams', feed, three, constants=used,
         num_heads=heads, past_present_share_buffer=1)
    feed = {'x': real(batch, 1, 3 * width), 'pk': feed['pk'], 'pv': feed['pv']}
    case('one token', 'DecoderMaskedMultiHeadAttention', 'x     pk pv used', feed, three, constants=used, num_heads=heads,
         past_present_share_buffer=1, pattern=[
             node('Split', 'x', 'q k v', axis=-1, num_outputs=3), node('DecoderMaskedMultiHeadAttention', 'q k v   pk pv used',
                                                                       ' '.join(three), MS, num_heads=heads, past_present_share_buffer=1)])


def windowed(kind, inputs, moving, axis, tokens, slots, dims, **given):
    """A state after each of the last tokens, as nodes: the operator on so many tokens, one behind the other."""
    there = min(slots, tokens)
    constants = {'first': np.array([0]), 'axis': np.array([axis]), 'last': np.array(slots - 1),
                 'none': np.zeros((slots - there, *dims), np.float32), **{'end%d' % t: np.array([t]) for t in range(1, tokens + 1)}}
    nodes = [node('Gather', 's last', 'from', axis=0)]
    for t in range(tokens - there + 1, tokens + 1):
        nodes += [node('Slice', '%s first end%d axis' % (x, t), '%s%d' % (x, t)) for x in moving]
        taken = ['%s%d' % (x, t) if x in moving else 'from' if x == 's' else x for x in inputs.split(' ')]
        nodes += [node(kind, ' '.join(taken), 'y%d s%d' % (t, t), MS, **given), node('Unsqueeze', 's%d first' % t, 'slot%d' % t)]
    slot = ['none'] * (slots > there) + ['slot%d' % t for t in range(tokens - there + 1, tokens + 1)]
    return nodes + [node('Concat', ' '.join(slot), 'state', axis=0), node('Identity', 'y%d' % tokens, 'y')], constants


def recurrences(batch=2, tokens=3):
    """States of com.microsoft's recurrences: of the last tokens, of dilated taps, of channels that lie last."""
    both = {'y': T.FLOAT, 'state': T.FLOAT}
    for name, last, slots, given in (('dilated', 0, 0, {'dilation': 2}), ('last', 1, 0, {'activation': 'silu', 'channels_last': 1}),
                                     ('window', 0, 5, {}), ('all', 1, 2, {'dilation': 2, 'channels_last': 1})):
        before = 2 * given.get('dilation', 1)
        x, dims = (real(batch, tokens, 2, 3), (batch, before, 2, 3)) if last else (real(batch, 6, tokens), (batch, 6, before))
        feed, constants = {'x': x, 's': real(*[slots] * (slots > 0), *dims)}, {'w': real(6, 1, 3), 'b': real(6)}
        pattern, more = windowed('CausalConvWithState', 'x w b s', 'x', 1 if last else 2, tokens, slots, dims, **given) if slots else (None, {})
        case('causal convolution, ' + name, 'CausalConvWithState', 'x w b s', feed, both, pattern, {**constants, **more},
             {n: list(v.shape) for n, v in feed.items()}, **given, **({'state_window': slots} if slots else {}))
    for name, heads, keys, kept, slots in (('more keys than queries', 2, 4, 4, 0), ('more values than keys', 2, 2, 4, 0),
                                           ('window', 4, 2, 2, 2), ('long window', 2, 2, 2, 5)):
        dims, given = (batch, kept, 4, 6), {'q_num_heads': heads, 'kv_num_heads': kept}
        feed = {'q': real(batch, tokens, 4 * heads), 'k': real(batch, tokens, 4 * keys), 'v': real(batch, tokens, 6 * kept),
                's': real(*[slots] * (slots > 0), *dims), 'd': -abs(real(batch, tokens, kept)), 'b': abs(real(batch, tokens, 1))}
        pattern, more = windowed('LinearAttention', 'q k v s d b', 'qkvdb', 1, tokens, slots, dims, **given) if slots else (None, {})
        case('linear attention, ' + name, 'LinearAttention', 'q k v s d b', feed, both, pattern, more,
             {n: list(feed[n].shape) for n in 'sb'}, **given, **({'state_window': slots} if slots else {}))


def gates():
    x = real(2, 3, 8)
    case('gated sum', 'GatedAdd', 'x y g', {'x': x, 'y': real(2, 3, 8), 'g': real(2, 3, 1)}, outputs={'z': T.FLOAT})
    for size in (4, 8):
        case('gated norm of %d' % size, 'GatedRMSNorm', 'x s g', {'x': x, 'g': real(2, 3, 8)}, constants={'s': real(size)})
    case('gates of linear attention', 'LinearAttentionGate', 'x d s b', {'x': 9 * x, 'b': real(2, 3, 8)}, {'y': T.FLOAT, 'beta': T.FLOAT},
         constants={'d': real(8), 's': real(8)})
    case('engram gate', 'EngramGate', 'k q v a b', {'k': real(2, 3, 2, 8), 'q': real(2, 3, 2, 8), 'v': x},
         constants={'a': real(2, 8), 'b': real(2, 8)})
    tables = {'c': np.cos(real(20, 6)), 's': np.sin(real(20, 6))}
    for layout, section in ((0, [1, 2, 3]), (1, [2, 2, 2])):
        case('three positions, layout %d' % layout, 'MRotaryEmbedding', 'x p c s', {
            'x': real(2, 3, 32), 'p': rng.integers(0, 20, (3, 2, 3))}, constants=tables, mrope_section=section, mrope_layout=layout,
             num_heads=2, rotary_embedding_dim=12, interleaved=layout)
    ids = {'x': rng.integers(0, 90, (2, 5)), 'past': rng.integers(0, 90, (2, 2))}
    numbers = {'m': rng.integers(1, 1 << 40, 3), 'n': rng.integers(90, 990, 4)}
    for name, inputs in (('with', 'x m n past'), ('without', 'x m n')):
        case('hashes of neighbours, %s a past' % name, 'NGramHashMapping', inputs, {i: ids[i] for i in inputs.split() if i in ids},
             {'y': T.INT64, 'present': T.INT64}, constants=numbers, pad_id=3, n_head_per_ngram=2, max_ngram_size=3)


def four_bits(rows=24, depth=70):
    x = {'x': real(2, 3, depth)}
    for kind in (0, 1):
        case('codes of 4 bits, %d' % kind, 'MatMulBnb4', 'x w s', x, constants={'w': byte(rows * depth // 2), 's': abs(real(-(-rows * depth // 64)))},
             K=depth, N=rows, block_size=64, quant_type=kind)
    for zero in ({}, {'z': abs(real(rows, 3))}):
        case('rows of any block' + ', zero points' * len(zero), 'MatMulNBits', 'x w s %s g b' % ''.join(zero), x, constants={
            'w': byte(rows, 3, 16), 's': abs(real(rows, 3)), 'g': rng.integers(0, 3, depth).astype(np.int32), 'b': real(rows), **zero},
             K=depth, N=rows, bits=4, block_size=32)
    for rows in (1, 2, 3, 19):  # few of them multiply large weights as they are, more make floats of panels
        for bits, block in ((4, 32), (4, 256), (8, 128), (2, 16)):
            k, columns = 1024, 2048 if rows == 2 else 576
            weights = {'w': byte(columns, k // block, block * bits // 8), 's': abs(real(columns, k // block)) / 64}
            zeros = {'z': byte(columns, -(-(k // block) * bits // 8))}
            for more in (zeros, {}):
                case('%d rows of %d bits by %d' % (rows, bits, block) + ', zero points' * len(more), 'MatMulNBits', 'x w s' + ' z' * len(more),
                     {'x': real(rows, 1, k)}, constants={**weights, **more}, K=k, N=columns, bits=bits, block_size=block)


def early():
    """What com.microsoft and ai.onnx's first sets call by names that mean something else today."""
    case('different ones', 'Unique', 'x', {'x': rng.integers(0, 4, 9).astype(np.float32)}, {'y': T.FLOAT, 'at': T.INT64, 'n': T.INT64})
    for across in (0, 1):
        for normalised in (0, 1):
            case('mean and variance %d %d' % (across, normalised), 'MeanVarianceNormalization', 'x', {'x': real(2, 3, 4, 5)}, opset=8,
                 across_channels=across, normalize_variance=normalised)
    case('norm with its root', 'SimplifiedLayerNormalization', 'x s', {'x': real(2, 3, 8)}, {'y': T.FLOAT, 'root': T.FLOAT},
         constants={'s': real(8)}, opset=17, axis=-1)


def arrays():
    for dtype, size in ((np.float32, 5), (np.float64, 3), (np.float32, 1)):
        case('inverse %d' % size, 'Inverse', 'x', {'x': real(2, 3, size, size, dtype=dtype)[:, :, ::-1]}, {'y': h.np_dtype_to_tensor_dtype(np.dtype(dtype))})
    edges = np.float32([[0.1, 0.2, 0.8, 0.7], [-0.3, 0, 0.9, 1.2], [0.8, 0.6, 0.1, 0.2]])
    for mode, size in (('bilinear', (4, 3)), ('nearest', (5, 4)), ('bilinear', (1, 2))):
        case('pieces %s %d' % (mode, size[0]), 'CropAndResize', 'x e i s', {'x': real(2, 3, 6, 7), 'e': edges, 'i': np.int32([1, 0, 1])},
             constants={'s': np.int32(size)}, mode=mode, extrapolation_value=2.5)
    for axis, size, step in ((-1, 3, 2), (1, 2, 1)):
        case('windows of axis %d' % axis, 'UnfoldTensor', 'x', {'x': real(3, 5, 8)}, dim=axis, size=size, step=step)
    case('some rows', 'DynamicSlice', 'x s e a', {'x': real(5, 6)}, constants={'s': np.array([-3, 1]), 'e': np.array([9, -1]), 'a': np.array([1, 0])},
         opset=9)
    for size in (1, 2, 3, 9):
        case('no %d words again' % size, 'NGramRepeatBlock', 'i s', {'i': rng.integers(0, 3, (2, 7)), 's': real(2, 4)}, ngram_size=size)
    numbers = np.int64([-5, 0, 1 << 40, 7])
    for dtype in (np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64):
        x = abs(numbers) if dtype in (np.uint32, np.uint64) else numbers
        case('hash of %s' % np.dtype(dtype), 'MurmurHash3', 'x', {'x': (x % 99 if dtype == np.int32 else x).astype(dtype)}, {'y': T.INT32},
             positive=0, seed=17)
    case('hash without a sign', 'MurmurHash3', 'x', {'x': np.int32([3, -4])}, {'y': T.UINT32})


def check(args, folder, fused, oracle, feed):
    whys = (network.beside_ort(args, folder, fused, [(1, feed)], 1e-5, level, oracle) for level in ('-O0', '-O3'))
    return next(filter(None, whys), None)


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    folder = os.path.join(args.build, 'fused')
    for group in (products, channels_last, diffusion, attention, shared_heads, sliding_caches, experts, text, sisters, attentions,
                  cached, recurrences, gates, four_bits, early, arrays):
        group()
    for name, *rest in CASES:
        if args.wanted(name):
            suite.result(name, check(args, folder, *rest))
            shutil.rmtree(folder)
    suite.done()


if __name__ == '__main__':
    main()
