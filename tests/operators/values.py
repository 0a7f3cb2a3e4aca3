# SPDX-License-Identifier: Apache-2.0
"""Values that come at run time: what ONNX Runtime refuses is refused with the node's name, never clamped in silence; what
the standard defines is computed.

In:  the table below: for every operator that takes indices, lengths, sizes, axes or steps as tensors, feeds that fit and
     feeds that do not. Each runs at -O0 and -O3, and for CUDA (by mocks of its libraries, tests/cuda).
Out: the closing line. A case passes when feeds that fit give ONNX Runtime's values, feeds that do not end with an error
     that names the node and says what is wrong, where ONNX Runtime has an error, too, and the library still works
     afterwards. Indices once more with --unchecked: no error, and no end by a signal.
"""
import os
import re
import shutil
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto
from onnx import helper as h

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, os.path.join(TESTS, 'cuda')]
import graphs
import lib
import mock
import network

F, I = TensorProto.FLOAT, TensorProto.INT64
f32 = np.float32
BUILDS = (('-O0', False), ('-O3', False), ('-O3', True))  # level; is it for CUDA?
CASES = []
INDEX, LENGTH, AXIS = 'index is out of range', 'length is out of range', 'axis is out of range'


def N(operator, inputs, outputs=('y',), **attributes):
    return h.make_node(operator, list(inputs), list(outputs), name='asked', **attributes)


def real(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(f32)


def ints(*values):
    return np.array(values, np.int64)


def case(name, node, fits, *wrong, says, opset=21, out=F, symbolic=True, unchecked=False, ort=True, constants=()):
    """fits: a feed; wrong: what is different in those that are refused, by `says`. unchecked: --unchecked computes
    something. ort: does ONNX Runtime refuse it, too?"""
    nodes = node if isinstance(node, list) else [node]
    ports = []
    for port, value in fits.items():
        value = np.asarray(value)
        known = not symbolic or value.dtype == np.int64 and value.ndim == 1 and port in 'sn'
        depth = value.ndim - 1 if nodes[-1].op_type == 'GatherND' and port == 'i' else -1  # decides a rank
        ports.append(graphs.port(port, value.dtype, [n if known or i == depth else '%s%d' % (port, i)
                                                     for i, n in enumerate(value.shape)]))
    outputs = [graphs.port(o, out, None) for o in nodes[-1].output if o in 'yz']
    CASES.append((name, graphs.model_of(nodes, ports, outputs, constants, opset=opset), fits, wrong, says, unchecked, ort))


def indices():
    table = real(5, 4)
    for kind in (np.int64, np.int32):
        i = np.array([[0, 4], [-5, 2]], kind)
        wrong = [{'i': i + 1}, {'i': i - 1}, {'i': np.array([[0, 1], [2, np.iinfo(kind).min]], kind)}]
        case('Gather %s' % kind.__name__, N('Gather', 'xi'), {'x': table, 'i': i}, *wrong, says=INDEX, unchecked=True)
        case('GatherElements %s' % kind.__name__, N('GatherElements', 'xi', axis=0), {'x': table, 'i': i}, *wrong, says=INDEX,
             unchecked=True)
    many = np.arange(-500, 500, dtype=np.int64).reshape(50, 20) % 5
    late = many.copy()
    late[49, 19] = 5
    case('Gather of many', N('Gather', 'xi', axis=1), {'x': real(3, 5), 'i': many}, {'i': late}, says=INDEX, unchecked=True)
    pairs = np.array([[0, 3], [-5, -4], [4, 0]])
    case('GatherND', N('GatherND', 'xi'), {'x': table, 'i': pairs}, {'i': pairs + 1}, {'i': pairs - 1},
         {'i': pairs * 2}, says=INDEX, unchecked=True)
    case('GatherND of a batch', N('GatherND', 'xi', batch_dims=1), {'x': table, 'i': pairs[[0, 1, 2, 0, 1], :1] % 4},
         {'i': np.full((5, 1), 4)}, says=INDEX, unchecked=True)
    update = {'x': table, 'i': np.array([[0, 4], [-5, 2]]), 'u': real(2, 2)}
    for how in ('none', 'add'):
        case('ScatterElements %s' % how, N('ScatterElements', 'xiu', axis=0, reduction=how),
             {**update, 'i': np.array([[0, 4], [1, 2]])}, {'i': np.array([[0, 5], [1, 2]])}, {'i': np.array([[0, -6], [1, 2]])},
             says=INDEX, unchecked=True)
        case('ScatterND %s' % how, N('ScatterND', 'xiu', reduction=how), {'x': table, 'i': pairs, 'u': real(3)},
             {'i': pairs + 1}, {'i': pairs - 1}, says=INDEX, unchecked=True)
    case('a window of ScatterND', N('ScatterND', 'xiu'), {'x': table, 'i': np.array([[2], [3]]), 'u': real(2, 4)},
         {'i': np.array([[4], [5]])}, says=INDEX, unchecked=True)
    rois = {'x': real(2, 3, 6, 6), 'r': np.array([[0, 0, 4, 4], [1, 1, 5, 5]], f32), 'i': ints(0, 1)}
    case('RoiAlign', N('RoiAlign', 'xri', output_height=2, output_width=2, sampling_ratio=2), rois, {'i': ints(0, 2)},
         {'i': ints(-1, 0)}, says=INDEX, unchecked=True)
    case('NegativeLogLikelihoodLoss', N('NegativeLogLikelihoodLoss', 'xi', reduction='none'), {'x': real(3, 5), 'i': ints(0, 4, 2)},
         {'i': ints(0, 5, 2)}, says=INDEX, unchecked=True)
    case('indices that are computed', h.make_node('Gather', ['x', 'i'], ['y'], name='asked'),
         {'x': table, 'i': np.array(4)}, {'i': np.array(5)}, {'i': np.array(-6)}, says=INDEX, unchecked=True)


def lengths():
    x = real(4, 2, 3)
    w, r = np.random.default_rng(1).standard_normal((1, 8, 3)).astype(f32), real(1, 8, 2)
    weights = [graphs.constant('w', w), graphs.constant('r', r)]
    case('LSTM', N('LSTM', ['x', 'w', 'r', '', 'l'], hidden_size=2), {'x': x, 'l': np.int32([4, 2])}, {'l': np.int32([5, 2])},
         {'l': np.int32([4, -1])}, says=LENGTH, unchecked=True, constants=weights)
    weights = [graphs.constant('w', w[:, :6]), graphs.constant('r', r[:, :6])]
    case('GRU', N('GRU', ['x', 'w', 'r', '', 'l'], hidden_size=2), {'x': x, 'l': np.int32([4, 2])}, {'l': np.int32([5, 2])},
         says=LENGTH, unchecked=True, constants=weights)
    case('ReverseSequence', N('ReverseSequence', 'xl', time_axis=0, batch_axis=1), {'x': x, 'l': ints(4, 2)}, {'l': ints(5, 2)},
         {'l': ints(4, -1)}, says=LENGTH, unchecked=True)


def tokens():
    """Lengths and positions of attention and its caches."""
    q, k, v, new = real(2, 2, 3, 4), real(2, 2, 5, 4), real(2, 2, 5, 4), {'domain': 'com.microsoft'}
    case('Attention', N('Attention', ['q', 'k', 'v', '', '', '', 'l']), {'q': q, 'k': k, 'v': v, 'l': ints(5, 2)}, {'l': ints(6, 1)},
         {'l': ints(-1, 2)}, says=LENGTH, opset=24, unchecked=True, symbolic=False)
    case('Attention of com.microsoft', N('Attention', 'xwbm', num_heads=2, **new), {'x': real(2, 3, 8), 'm': np.int32([3, 2])},
         {'m': np.int32([-1, 3])}, says='a length in mask_index is below 0', symbolic=False,
         constants=[graphs.constant('w', real(8, 24)), graphs.constant('b', real(24))])
    write = {'x': real(2, 5, 2), 'u': real(2, 2, 2), 'w': ints(0, 3)}
    case('TensorScatter', N('TensorScatter', 'xuw', axis=1), write, {'w': ints(0, 4)}, {'w': ints(-1, 0)}, says=LENGTH, opset=24,
         unchecked=True)
    case('TensorScatter in a circle', N('TensorScatter', 'xuw', axis=1, mode='circular'), {**write, 'w': ints(0, 6)},
         {'w': ints(-1, 0)}, {'w': ints(0, np.iinfo(np.int64).min)}, says='a write index is below 0', opset=24)
    angles = [graphs.constant('c', real(6, 4)), graphs.constant('d', real(6, 4))]
    for name, at, wrong in (('positions', [[0, 1, 5]], ([[0, 1, 6]], [[-1, 0, 1]])), ('an offset', [3], ([4], [-1]))):
        case('RotaryEmbedding, ' + name, N('RotaryEmbedding', 'xpcd', **new), {'x': real(1, 2, 3, 8), 'p': np.array(at)},
             *({'p': np.array(w)} for w in wrong), says=INDEX, unchecked=True, constants=angles, symbolic=False)
    step = {'q': real(1, 2, 16), 'k': real(1, 2, 8), 'v': real(1, 2, 8), 'pk': real(1, 1, 3, 8), 'pv': real(1, 1, 3, 8),
            'l': np.int32([4]), 't': np.array(5, np.int32)}
    node = N('GroupQueryAttention', ['q', 'k', 'v', 'pk', 'pv', 'l', 't'], ['y', 'nk', 'nv'], num_heads=2, kv_num_heads=1, scale=0.3, **new)
    case('GroupQueryAttention', node, step, {'l': np.int32([5])}, {'l': np.int32([-1])}, says=INDEX, unchecked=True)
    case('GroupQueryAttention, all keys', node, step, {'t': np.array(6, np.int32)}, says='total_sequence_length is 6, more than the 5 keys')


def numbers():
    """Numbers that are no sizes."""
    boxes = {'b': abs(real(1, 5, 4)), 'p': real(1, 2, 5), 'm': ints(3), 'i': f32([0.5]), 't': f32([0])}
    case('NonMaxSuppression', N('NonMaxSuppression', 'bpmit'), boxes, *({'i': f32([v])} for v in (1.5, -0.1, np.nan)),
         says='expected an iou_threshold from 0 to 1', out=I)
    resize = N('Resize', ['x', '', 'f'], mode='linear')
    case('Upsample, scales', N('Upsample', 'xf', mode='nearest'), {'x': real(3, 4), 'f': f32([2, 1])},
         *({'f': f32([v, 1])} for v in (0, 0.5, np.nan)), says='expected scales', opset=9)
    case('Resize, scales', resize, {'x': real(3, 4), 'f': f32([2, 0.5])}, *({'f': f32([v, 1])} for v in (0, -0.5, np.nan)),
         says='expected scales above 0')
    mels = {k: np.array(v) for k, v in dict(m=8, l=16, r=8192, a=f32(0), b=f32(4096)).items()}
    case('MelWeightMatrix', N('MelWeightMatrix', 'mlrab'), mels, *({k: np.array(v, mels[k].dtype)} for k, v in (
        ('r', 0), ('r', -8192), ('a', 5000), ('a', -1), ('b', 9000))), says='expected edges from 0 hertz')
    case('STFT', N('STFT', ['x', 'j', '', 'l']), {'x': real(1, 16, 1), 'j': np.array(4), 'l': np.array(8)}, {'j': np.array(0)},
         {'j': np.array(-4)}, says='expected a frame_step of 1 or more|a size would be', symbolic=False)
    case('Dropout', N('Dropout', 'xrt'), {'x': real(4, 3), 'r': np.array(0, f32), 't': np.array(True)},
         *({'r': np.array(v, f32)} for v in (1, 1.5, -1)), says='expected a ratio from 0 to below 1')


def sizes():
    x = real(4, 3)
    case('Expand', N('Expand', 'xs'), {'x': x, 's': ints(1, 3)}, {'s': ints(2, 3)}, says='do not broadcast')
    case('Expand by a size below 0', N('Expand', 'xs'), {'x': real(1, 3), 's': ints(2, 3)}, {'s': ints(-1, 3)}, says='size|broadcast')
    case('Reshape', N('Reshape', 'xs'), {'x': x, 's': ints(2, 6)}, {'s': ints(5, 2)}, {'s': ints(-2, -6)}, says='should be equal|size')
    case('Reshape to a list', N('Reshape', 'xs'), {'x': x, 's': ints(12)}, {'s': ints(6)}, {'s': ints(13)}, {'s': ints(-2)},
         says='the new shape')
    case('Reshape, one left', N('Reshape', 'xs'), {'x': x, 's': ints(-1, 6)}, {'s': ints(-1, 5)}, {'s': ints(-1, -1)},
         says='should be equal|at most one')
    case('Reshape, below -1', N('Reshape', 'xs'), {'x': x, 's': ints(-1, 3)}, {'s': ints(-2, 3)}, {'s': ints(4, -3)},
         {'s': ints(np.iinfo(np.int64).min, 3)}, says='the new shape has an element of -')
    case('Reshape, two left', N('Reshape', 'xs'), {'x': real(1, 6), 's': ints(6, 1)}, {'s': ints(-1, -1)},
         says='at most one element of the new shape may be -1, found 2')
    case('Reshape, two left of three', N('Reshape', 'xs'), {'x': real(1, 6), 's': ints(6, -1, 1)}, {'s': ints(-1, 6, -1)},
         says='at most one element of the new shape may be -1, found 2')
    case('Reshape, kept', N('Reshape', 'xs'), {'x': x, 's': ints(0, 1, -1)}, {'s': ints(4, 3, 0)},
         says='0 .keep. for a dimension that the input does not have')
    case('Reshape of nothing, kept', N('Reshape', 'xs'), {'x': real(0, 3), 's': ints(0, 3, 1)}, {'s': ints(3, 1, 0)},
         says='0 .keep. for a dimension that the input does not have')
    case('Reshape, allowzero', N('Reshape', 'xs', allowzero=1), {'x': real(0, 3), 's': ints(2, 0)}, {'s': ints(-1, 0)},
         {'s': ints(0, -2)}, says='both 0 and -1|an element of -', ort=False)
    case('Reshape of batches', [h.make_node('Concat', ['s', 'c'], ['d'], axis=0), N('Reshape', 'xd')], {'x': x, 's': ints(6)}, {'s': ints(-1)},
         {'s': ints(-3)}, {'s': ints(5)}, says='the new shape|should be equal|a size would be', constants=[graphs.constant('c', [-1])])
    case('Reshape of batches, a size behind', [h.make_node('Concat', ['s', 'c'], ['d'], axis=0), N('Reshape', 'xd')], {'x': x, 's': ints(-1)},
         {'s': ints(-2)}, {'s': ints(3)}, says='the new shape', constants=[graphs.constant('c', [3])],
         ort=False)  # its optimiser makes the first size -1
    case('Reshape, kept, a size behind', [h.make_node('Concat', ['s', 'c'], ['d'], axis=0), N('Reshape', 'xd')], {'x': x, 's': ints(0)},
         {'s': ints(0), 'x': real(6, 2)}, says='the new shape', constants=[graphs.constant('c', [3])],
         ort=False)  # its optimiser makes the first size -1
    case('Tile', N('Tile', 'xs'), {'x': x, 's': ints(2, 0)}, {'s': ints(-1, 1)}, says='a size would be')
    case('ConstantOfShape', N('ConstantOfShape', 's'), {'s': ints(2, 3)}, {'s': ints(-2, 3)}, says='a size would be')
    case('Split', N('Split', 'xs', ['y', 'z'], axis=0), {'x': x, 's': ints(1, 3)}, {'s': ints(1, 2)}, {'s': ints(3, 3)},
         {'s': ints(5, -1)}, says='add up|a size would be|are asked for')
    case('TopK', N('TopK', 'xs', ['y', 'k'], axis=0), {'x': x, 's': ints(4)}, {'s': ints(5)}, {'s': ints(-1)},
         says='are asked for|a size would be')
    case('Range', N('Range', 'abc'), {'a': np.array(0), 'b': np.array(5), 'c': np.array(2)}, {'c': np.array(0)},
         says='the step of a range is 0', out=I)
    case('Resize', N('Resize', ['x', '', '', 's'], mode='linear'), {'x': real(1, 1, 4, 4), 's': ints(1, 1, 2, 2)},
         {'x': real(1, 1, 0, 4)}, says='1 of 0 elements', ort=False)
    pads = {'x': real(4, 3), 's': ints(0, 2, 3, 0)}
    case('Pad by reflection', N('Pad', 'xs', mode='reflect'), pads, {'s': ints(0, 3, 0, 0)}, {'s': ints(0, 0, 4, 0)},
         says='elements are asked for')
    case('Pad of nothing', N('Pad', 'xs', mode='edge'), pads, {'x': real(0, 3)}, says='of 0 elements')
    case('Pad, cropped away', N('Pad', 'xs'), pads, {'s': ints(-3, 0, -2, 0)}, says='a size would be', ort=False)
    case('OneHot', N('OneHot', 'isv'), {'i': ints(0, 7, -1), 's': ints(4), 'v': np.array([0, 1], f32)}, {'s': ints(-1)},
         says='a size would be')


def unused_sizes():
    """Numbers that the output does not hang on at -O3: what the nodes ask of them holds nevertheless."""
    x, row, three = real(4, 3), real(1, 3), graphs.constant('c', [3])
    feed = {'x': x, 'w': row, 's': ints(4)}
    grown = [h.make_node('Concat', ['s', 'c'], ['d'], axis=0), h.make_node('Expand', ['w', 'd'], ['e'])]

    def fixed(name, nodes, *wrong, says, fits=feed, constants=(), **options):
        case('unused: ' + name, nodes, fits, *wrong, says=says, symbolic=False, constants=[three, *constants], **options)

    for operator in ('Add', 'Mul', 'Max', 'Sum', 'Pow'):
        base = {**feed, 'x': abs(x)}
        fixed(operator, [*grown, N(operator, 'xe')], {'s': ints(5)}, {'s': ints(0)}, says='do not broadcast', fits=base)
    fixed('Add of one row', [*grown, N('Add', 'xe')], {'s': ints(2)}, says='do not broadcast', fits={**feed, 's': ints(1)})
    fixed('Where', [*grown, N('Where', ['b', 'x', 'e'])], {'s': ints(5)}, says='do not broadcast',
          constants=[graphs.constant('b', [True])])
    fixed('MatMul of batches', [h.make_node('Concat', ['s', 'k'], ['d'], axis=0), h.make_node('Expand', ['m', 'd'], ['e']),
                                N('MatMul', 'xe')], {'s': ints(3)}, says='do not broadcast',
          fits={'x': real(2, 4, 3), 'm': real(1, 3, 5), 's': ints(2)}, constants=[graphs.constant('k', [3, 5])])
    fixed('Concat', [*grown, N('Concat', 'xe', ['j'], axis=1), h.make_node('Slice', ['j', 'zero', 'c', 'one'], ['y'])],
          {'s': ints(5)}, {'s': ints(1)}, says='should be equal',
          constants=[graphs.constant('zero', [0]), graphs.constant('one', [1])])
    fixed('Reshape', [h.make_node('Concat', ['s', 'c'], ['d'], axis=0), N('Reshape', 'xd', ['r']),
                      h.make_node('Reshape', ['r', 'all'], ['y'])],
          {'s': ints(5)}, {'s': ints(3)}, says='the new shape|should be equal', fits={'x': x, 's': ints(4)},
          constants=[graphs.constant('all', [12])], ort=False)  # its optimiser makes one of both
    fixed('PRelu', [*grown, N('PRelu', 'xe')], {'s': ints(5)}, {'s': ints(2)}, says='elements are asked for|do not broadcast')
    fixed('Gemm', [*grown, N('Gemm', ['x', 'v', 'e'])], {'s': ints(5)}, says='elements are asked for|do not broadcast',
          constants=[graphs.constant('v', real(3, 3))])
    fixed('Gather', [*grown, N('Gather', ['e', 'zero'], ['r']), h.make_node('Add', ['x', 'r'], ['y'])], {'s': ints(0)},
          says=INDEX + '|elements are asked for', constants=[graphs.constant('zero', [0])])
    fixed('Shape', [*grown, N('Add', 'xe', 'a'), h.make_node('Shape', ['a'], ['y'])], {'s': ints(5)}, says='do not broadcast',
          out=I, ort=False)  # its optimiser leaves the addition out
    read = h.make_node('Neg', ['x'], ['y'])  # nobody reads the other one
    fixed('Add that nobody reads', [*grown, N('Add', 'xe', 'a'), read], {'s': ints(5)}, says='do not broadcast')
    fixed('GatherElements that nobody reads', [*grown, h.make_node('Cast', ['e'], ['i'], to=I),
                                               N('GatherElements', 'xi', 'a', axis=1), read],
          {'s': ints(5)}, says='elements are asked for', fits={**feed, 'w': np.zeros((1, 3), f32)})
    fixed('Tile that nobody reads', [h.make_node('Concat', ['s', 'one'], ['d'], axis=0), N('Tile', 'wd', 'a'), read],
          {'s': ints(-1)}, says='a size would be', fits=feed, constants=[graphs.constant('one', [1])])
    fixed('ConstantOfShape that nobody reads', [h.make_node('Concat', ['s', 'c'], ['d'], axis=0),
                                                N('ConstantOfShape', 'd', 'a'), read],
          {'s': ints(-1)}, says='a size would be', fits={'x': x, 's': ints(4)})
    fixed('TopK that nobody reads', [N('TopK', 'xs', 'ab', axis=0), read], {'s': ints(5)}, {'s': ints(-1)},
          says='are asked for|a size would be', fits={'x': x, 's': ints(4)})
    fixed('Resize of nothing that nobody reads', [*grown, N('Resize', ['e', '', '', 'two'], 'a', mode='linear'), read],
          {'s': ints(0)}, says='of 0 elements', constants=[graphs.constant('two', [2, 6])], ort=False)
    unused_in_a_branch(x, row, three)


def unused_in_a_branch(x, row, three):
    """Only the branch that is taken asks."""
    then = h.make_graph([N('Add', 'xe', ['t'])], 'then', [], [graphs.port('t', F, None)])
    other = h.make_graph([h.make_node('Neg', ['x'], ['u'])], 'else', [], [graphs.port('u', F, None)])
    nodes = [h.make_node('Concat', ['s', 'c'], ['d'], axis=0), h.make_node('Expand', ['w', 'd'], ['e']),
             h.make_node('If', ['b'], ['y'], then_branch=then, else_branch=other)]
    for taken, size, wrong in ((True, 4, [{'s': ints(5)}]), (False, 5, [])):
        case('unused: a branch, %s' % taken, nodes, {'x': x, 'w': row, 's': ints(size), 'b': np.array(taken)}, *wrong,
             says='do not broadcast', symbolic=False, constants=[three])


def axes_and_steps():
    x = real(4, 1, 3)
    case('Unsqueeze', N('Unsqueeze', 'xs'), {'x': x, 's': ints(1, -1)}, {'s': ints(5, 0)}, {'s': ints(-6, 0)}, {'s': ints(1, 1)},
         says='an axis is')
    case('Squeeze', N('Squeeze', 'xs'), {'x': x, 's': ints(1)}, {'s': ints(3)}, {'s': ints(-4)}, {'s': ints(0)},
         says='an axis is|should be equal')
    case('CumSum', N('CumSum', 'xs'), {'x': x, 's': np.array(-1)}, {'s': np.array(3)}, {'s': np.array(-4)}, says=AXIS)
    case('ReduceSum', N('ReduceSum', 'xs', keepdims=0), {'x': x, 's': ints(2)}, {'s': ints(3)}, {'s': ints(-4)}, says=AXIS)
    slices = {'x': real(6, 3), 'a': ints(5), 'b': ints(0), 'c': ints(0), 's': ints(-2)}
    case('Slice', N('Slice', 'xabcs'), slices, {'s': ints(0)}, {'c': ints(2)}, says='a step is 0|' + AXIS, symbolic=False)
    twice = {'x': real(6, 3), 'a': ints(5, 0), 'b': ints(0, 2), 'n': ints(1, 0)}
    case('Slice, axes', N('Slice', 'xabn'), twice, {'n': ints(0, 0)}, {'n': ints(-1, 1)}, says='an axis is named', symbolic=False)
    case('Pad, axes', N('Pad', ['x', 's', '', 'n']), {'x': x, 's': ints(1, 2), 'n': ints(-1)}, {'n': ints(3)}, says=AXIS)
    case('Pad, axes twice', N('Pad', ['x', 's', '', 'n']), {'x': x, 's': ints(1, 2, 0, 3), 'n': ints(-1, 0)}, {'n': ints(1, 1)},
         {'n': ints(2, -1)}, says='an axis is named', ort=False)


def expected(node_says, err):
    return "'asked'" in err and re.search(node_says, err)


def refuses(session, feeds):
    quiet = onnxruntime.RunOptions()
    quiet.log_severity_level = 4  # its errors are what is expected
    try:
        session.run(None, feeds, quiet)
    except Exception:
        return True
    return False


def build(args, path, library, level, cuda, options=()):
    """(what is wrong or None, the environment in which the library runs)."""
    env = mock.environment(args) if cuda else None
    more = [*mock.options(args), '--name=model'] if cuda else ['--verify']
    code, _, err = lib.run([args.cytoc, path, '-o', library, level, *more, *options], env=env and mock.compiling(env))
    return ('%s: compile: %s' % (level, lib.reason(err, code)) if code else None), env


def check(args, work, model, fits, wrong, says, unchecked, ort):
    """What is wrong, or None."""
    data = model.SerializeToString()
    path = os.path.join(work, 'm.onnx')
    with open(path, 'wb') as f:
        f.write(data)
    session = network.ort_session(data)
    want = session.run(None, fits)
    for level, cuda in BUILDS:
        library = os.path.join(work, 'm%s%s.so' % (level, cuda))
        why, env = build(args, path, library, level, cuda)
        level += ' for CUDA' * cuda
        if why:
            return why
        for change in (*wrong, {}):  # what fits comes last
            feeds = {**fits, **change}
            code, err = network.run_feeds(args, work, library, feeds, env=env)
            if not change:
                if code:
                    return '%s: refuses what fits: %s' % (level, lib.reason(err, code))
                for i, value in enumerate(want):
                    name = session.get_outputs()[i].name
                    why = lib.difference(name, network.output_of(work, i, name), value, 1e-5)
                    if why:
                        return '%s: %s' % (level, why)
            elif code != 1 or not expected(says, err):
                return '%s, %s: exit code %d, %s' % (level, change, code, err.strip()[:200] or 'no error')
            elif ort and not refuses(session, feeds):
                return 'ONNX Runtime computes something for %s' % change
    for cuda in (False, True) if unchecked else ():
        library = os.path.join(work, 'u.so')
        why, env = build(args, path, library, '-O3', cuda, ['--unchecked'])
        for change in () if why else wrong:
            code, err = network.run_feeds(args, work, library, {**fits, **change}, env=env)
            if code:
                return '--unchecked%s: %s' % (' for CUDA' * cuda, lib.reason(err, code))
        if why:
            return why
    return None


def gather(at):
    return N('Gather', 'xc'), np.array(at)


def pad(axes):
    return N('Pad', ['x', 'p', '', 'c']), ints(*axes)


def upsample(scales):
    return N('Upsample', 'xc', mode='nearest'), f32(scales)


# What is in a constant: node and constant, what the compiler says to it (None: nothing), operator set.
CONSTANTS = {'inside': (gather([0, 4, -5]), None, 21),
             'behind': (gather([0, 5]), 'out of range of an axis of 5 elements', 21),
             'in front': (gather([-6, 0]), 'out of range of an axis of 5 elements', 21),
             'axes of Pad': (pad([1, 0]), None, 21),
             'an axis of Pad twice': (pad([1, -1]), 'axis 1 is named twice', 21),
             'scales of Upsample': (upsample([1, 2]), None, 9),
             'a scale of Upsample below 1': (upsample([1, 0.5]), 'Upsample has scales from 1 on, found 0.5', 9)}


def constants_are_checked(args, suite):
    """Constants are looked at by the compiler."""
    work = os.path.join(args.build, 'values-test', 'constant')
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    for name, ((node, value), says, opset) in CONSTANTS.items():
        if not args.wanted('constant ' + name):
            continue
        model = graphs.model_of([node], [graphs.port('x', f32, [5, 'n'])], [graphs.port('y', F, None)],
                                [graphs.constant('c', value), graphs.constant('p', ints(1, 2, 0, 3))], opset=opset)
        path = os.path.join(work, 'm.onnx')
        with open(path, 'wb') as f:
            f.write(model.SerializeToString())
        why = network.compile_model(args, path, os.path.join(work, 'm.so'), '-O3')
        right = (why is None) if says is None else why and says in why
        suite.result('constant ' + name, None if right else why or 'compiled')


def main():
    args = lib.arguments(__doc__, device=dict(action='store_true'), target=mock.TARGET)
    suite = lib.Suite(args)
    for family in (indices, lengths, tokens, numbers, sizes, unused_sizes, axes_and_steps):
        family()
    constants_are_checked(args, suite)
    for name, *rest in CASES:
        if not args.wanted(name):
            continue
        work = os.path.join(args.build, 'values-test', lib.safe_name(name))
        shutil.rmtree(work, ignore_errors=True)
        os.makedirs(work)
        suite.result(name, check(args, work, *rest))
        shutil.rmtree(work, ignore_errors=True)
    suite.done()


if __name__ == '__main__':
    main()
