"""Operators of com.microsoft in f32, which have no node tests of the standard, at -O0 and -O3 beside ONNX Runtime; those
that it has for GPUs only, or computes more roughly, beside what they stand for in operators of the standard.

In:  --build DIR, names (regular expressions) to restrict it.
Out: the closing line.
"""
import os
import shutil

import numpy as np
from onnx import TensorProto
from onnx import helper as h
from onnx import numpy_helper

import lib
import network

F, f32 = TensorProto.FLOAT, np.float32
CASES = []


def model(nodes, feed, constants, outputs):
    ports = [h.make_tensor_value_info(n, h.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in feed.items()]
    graph = h.make_graph(nodes, 'g', ports, [h.make_tensor_value_info(n, t, None) for n, t in outputs.items()],
                         [numpy_helper.from_array(v, n) for n, v in constants.items()])
    return h.make_model(graph, opset_imports=[h.make_opsetid('', 20), h.make_opsetid('com.microsoft', 1)], ir_version=9)


def case(name, operator, inputs, feed, constants=None, outputs=None, meaning=None, **attributes):
    """inputs: names, those of feed change from run to run. meaning: [(operator, inputs, outputs, attributes)] in its place."""
    constants, outputs = {k: np.asarray(v) for k, v in (constants or {}).items()}, outputs or {'y': F}
    node = h.make_node(operator, inputs.split(), list(outputs), domain='com.microsoft', **attributes)
    node.input[:] = ['' if n == '-' else n for n in node.input]
    plain = [h.make_node(op, i.split(), o.split(), **a) for op, i, o, a in meaning or []]
    CASES.append((operator + ' ' + name, model([node], feed, constants, outputs),
                  model(plain, feed, constants, outputs) if meaning else None, feed))


def normal(rng, *dims):
    return rng.standard_normal(dims).astype(f32)


def byte(rng, *dims):
    return rng.integers(0, 255, dims).astype(np.uint8)


def fused(rng):
    for name, given in (('Relu', {}), ('LeakyRelu', {'activation_alpha': 0.3}), ('Elu', {'activation_alpha': 0.7}),
                        ('Softsign', {}), ('HardSigmoid', {'activation_alpha': 0.3, 'activation_beta': 0.4})):
        case(name, 'FusedGemm', 'a b c', {'a': normal(rng, 3, 5)}, {'b': normal(rng, 4, 5), 'c': normal(rng, 4)},
             activation=name, alpha=0.5, transB=1, **given)
    case('clipped', 'FusedConv', 'a w', {'a': normal(rng, 1, 3, 5, 5)}, {'w': normal(rng, 4, 3, 3, 3)}, activation='Clip',
         activation_params=[-0.3, 0.8])
    case('turned', 'TransposeMatMul', 'a b', {'a': normal(rng, 2, 5, 3), 'b': normal(rng, 2, 5, 4)}, transA=1, alpha=0.5)


def same_as_standard(rng):
    for metric in ('euclidean', 'sqeuclidean'):
        case(metric, 'CDist', 'a b', {'a': normal(rng, 3, 5), 'b': normal(rng, 4, 5)}, metric=metric)
    case('', 'ExpandDims', 'a axis', {'a': normal(rng, 3, 5)}, {'axis': np.int32(-1)})
    case('', 'Pad', 'a pads fill', {'a': normal(rng, 3, 5)}, {'pads': [1, 0, 0, 2], 'fill': f32([2])})
    case('', 'GatherND', 'a i', {'a': normal(rng, 3, 5), 'i': np.array([[0, 1], [2, 2]])})
    for mode in ('bilinear', 'bicubic'):
        for padding in ('zeros', 'border', 'reflection'):
            case('%s, %s' % (mode, padding), 'GridSample', 'a g', {'a': normal(rng, 1, 2, 5, 6), 'g': normal(rng, 1, 3, 4, 2)},
                 mode=mode, padding_mode=padding)


def images(rng):
    u8 = {'y': TensorProto.UINT8}
    case('', 'NhwcMaxPool', 'a', {'a': byte(rng, 1, 6, 5, 3)}, outputs=u8, kernel_shape=[2, 2], strides=[2, 1])
    case('channels last', 'QLinearConv', 'a as az w ws wz ys yz b', {'a': byte(rng, 1, 6, 5, 3)},
         {'as': f32(0.02), 'az': np.uint8(120), 'w': rng.integers(-60, 60, (4, 3, 3, 3)).astype(np.int8),
          'ws': rng.uniform(0.01, 0.02, 4).astype(f32), 'wz': np.zeros(4, np.int8), 'ys': f32(0.1), 'yz': np.uint8(100),
          'b': rng.integers(-200, 200, 4).astype(np.int32)}, u8, channels_last=1, pads=[1] * 4)


def group_norms(rng):
    """Channels last or not, with what is added before, 2 sequences of 6 channels in 3 groups."""
    constants = {'gamma': normal(rng, 6), 'beta': normal(rng, 6), 'bias': normal(rng, 6), 'spatial': np.array([1, 2]),
                 'one': np.ones(3, f32), 'zero': np.zeros(3, f32), 'groups': np.array([2, 3, -1]), 'whole': np.array([2, 6, 4, 5])}
    norm = [('Reshape', 'x groups', 'r', {}), ('InstanceNormalization', 'r one zero', 'i', {'epsilon': 1e-5}),
            ('Reshape', 'i whole', 'n', {}), ('Unsqueeze', 'gamma spatial', 'scale', {}), ('Mul', 'n scale', 'm', {}),
            ('Unsqueeze', 'beta spatial', 'shift', {}), ('Add', 'm shift', 'g', {})]
    silu = [('Sigmoid', 'g', 'h', {}), ('Mul', 'g h', 'z', {})]
    enter, leave = {'perm': [0, 3, 1, 2]}, {'perm': [0, 2, 3, 1]}
    case('with SiLU', 'GroupNorm', 'a gamma beta', {'a': normal(rng, 2, 4, 5, 6)}, constants, groups=3, activation=1,
         meaning=[('Transpose', 'a', 'x', enter)] + norm + silu + [('Transpose', 'z', 'y', leave)])
    case('channels first', 'GroupNorm', 'a gamma beta', {'a': normal(rng, 2, 6, 4, 5)}, constants, groups=3, activation=0,
         channels_last=0, meaning=[('Identity', 'a', 'x', {})] + norm + [('Identity', 'g', 'y', {})])
    for dims in ((2, 4, 5, 6), (2, 1, 1, 6), (2, 6)):
        short = [('Unsqueeze', 'skip spatial', 'wide', {})] if len(dims) == 2 else [('Identity', 'skip', 'wide', {})]
        short += [('Add', 'a wide', 'e', {}), ('Add', 'e bias', 'sum', {}), ('Transpose', 'sum', 'x', enter)]
        case('of skip %s' % (dims,), 'SkipGroupNorm', 'a gamma beta skip bias',
             {'a': normal(rng, 2, 4, 5, 6), 'skip': normal(rng, *dims)}, constants, {'y': F, 'sum': F}, groups=3, activation=1,
             meaning=short + norm + silu + [('Transpose', 'z', 'y', leave)])
    tokens = {'a': normal(rng, 2, 5, 6)}
    case('', 'BiasAdd', 'a bias skip', {**tokens, 'skip': normal(rng, 2, 5, 6)}, constants,
         meaning=[('Add', 'a bias', 't', {}), ('Add', 't skip', 'y', {})])
    case('', 'BiasSplitGelu', 'a bias', tokens, constants,
         meaning=[('Add', 'a bias', 't', {}), ('Split', 't', 'l r', {'axis': 2, 'num_outputs': 2}), ('Gelu', 'r', 'e', {}),
                  ('Mul', 'l e', 'y', {})])


def text(rng):
    tables = {'word': byte(rng, 20, 8), 'place': byte(rng, 12, 8), 'part': byte(rng, 2, 8), 'gamma': byte(rng, 8),
              'beta': byte(rng, 8)}
    constants = {**tables, **{'s_' + n: f32(0.01 + 0.003 * i) for i, n in enumerate(tables)},
                 **{'z_' + n: np.uint8(110 + i) for i, n in enumerate(tables)}}
    names = '%s - %s %s' % (' '.join(tables), ' '.join('s_' + n for n in tables), ' '.join('z_' + n for n in tables))
    case('', 'QEmbedLayerNormalization', 'ids parts ' + names, {'ids': rng.integers(0, 20, (2, 6)).astype(np.int32),
         'parts': rng.integers(0, 2, (2, 6)).astype(np.int32)}, constants, {'y': F, 'last': TensorProto.INT32})


def lstms(rng, hidden=6, width=5):
    """ONNX Runtime's rounds the activations besides."""
    for ways, way in ((1, 'forward'), (2, 'bidirectional')):
        for columns in ((), (4 * hidden,)):
            constants = {'zero': np.full((ways, *columns), 3, np.int8), 'b': normal(rng, ways, 8 * hidden),
                         'spread': np.array([1] if columns else [1, 2])}
            meaning = [('Unsqueeze', 'zero spread', 'z3', {}), ('Cast', 'z3', 'z', {'to': F})]
            for n, k in (('w', width), ('r', hidden)):
                constants[n] = rng.integers(-60, 60, (ways, k, 4 * hidden)).astype(np.int8)
                constants['s' + n] = rng.uniform(0.005, 0.02, (ways, *columns)).astype(f32)
                meaning += [('Cast', n, n + '1', {'to': F}), ('Sub', n + '1 z', n + '2', {}),
                            ('Unsqueeze', 's%s spread' % n, n + '3', {}), ('Mul', '%s2 %s3' % (n, n), n + '4', {}),
                            ('Transpose', n + '4', n + '5', {'perm': [0, 2, 1]})]
            given = {'hidden_size': hidden, 'direction': way}
            case('%s, %d scales' % (way, constants['sw'].size), 'DynamicQuantizeLSTM', 'x w r b - - - - sw zero sr zero',
                 {'x': normal(rng, 7, 2, width)}, constants, {'y': F, 'h': F, 'c': F},
                 meaning=meaning + [('LSTM', 'x w5 r5 b', 'y h c', given)], **given)


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    folder = os.path.join(args.build, 'microsoft')
    for seed, group in enumerate((fused, same_as_standard, images, group_norms, text, lstms)):
        group(np.random.default_rng(seed))
    for name, proto, meaning, feed in CASES:
        for level in ('-O0', '-O3'):
            if args.wanted(name):
                why = network.beside_ort(args, folder, proto, [(1, feed)], 1e-5, level, meaning)
                suite.result('%s %s' % (name, level), why)
                shutil.rmtree(folder)
    suite.done()


if __name__ == '__main__':
    main()
