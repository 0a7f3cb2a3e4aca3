# SPDX-License-Identifier: Apache-2.0
"""Graphs at the edges of what ONNX allows, beside ONNX Runtime at -O0 and -O3: empty tensors, eight dimensions, sizes
known only at run time, integers that wrap, NaN and infinities, computed weights, loops that run never, often or
backwards, odd names and outputs.

Out: the closing line. Besides: inputs whose shapes do not fit each other are refused when the library runs, and leave the
context usable.
"""
import os
import platform
import shutil
import sys

import numpy as np
import onnx
from onnx import TensorProto
from onnx import helper as h
from onnx import numpy_helper

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, TESTS)
import graphs
import lib
import network

F, I, B, I32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.INT32
f32, inf, nan = np.float32, np.inf, np.nan
N = h.make_node
LEVELS = ('-O0', '-O3')
const = graphs.constant
CASES, REFUSED = [], []


def port(name, value):
    """An input with a symbol of its own for every size; lists of integers, which are shapes and axes, have a known one."""
    value = np.asarray(value)
    known = value.dtype == np.int64 and value.ndim == 1
    return graphs.port(name, value.dtype, [n if known else '%s%d' % (name, i) for i, n in enumerate(value.shape)])


def body(nodes, inputs, outputs, constants=()):
    """A graph inside; ports: (name, type, dims)."""
    return h.make_graph(nodes, 'body', [h.make_tensor_value_info(*p) for p in inputs],
                        [h.make_tensor_value_info(*p) for p in outputs], list(constants))


def model(nodes, feed, outputs, constants, opset):
    """outputs: names with their element types."""
    return graphs.model_of(nodes, [port(n, v) for n, v in feed.items()], [graphs.port(n, t, None) for n, t in outputs.items()],
                           constants, opset=opset)


def case(name, nodes, feeds, outputs=None, constants=(), opset=21, oracle=None, levels=LEVELS):
    """oracle: nodes that ONNX Runtime runs in their place, which would be too inexact there."""
    def of(n):
        return model(n, feeds[0], outputs or {'y': F}, constants, opset)
    CASES.append((name, of(nodes), feeds, oracle and of(oracle), levels))


def op(name, operator, *inputs, out=F, opset=21, **attributes):
    """One node; inputs are fed, None is one left out."""
    feed = {'abc'[i]: np.asarray(x) for i, x in enumerate(inputs) if x is not None}
    case(name, [N(operator, ['abc'[i] if x is not None else '' for i, x in enumerate(inputs)], ['y'], **attributes)], [feed],
         {'y': out}, opset=opset)


def refused(name, message, nodes, feed, good, opset=21):
    """feed: shapes that do not fit each other; good: some that do."""
    REFUSED.append((name, message, model(nodes, feed, {'y': F}, (), opset), feed, good))


def ones(*shape):
    return np.ones(shape, f32)


def empty_tensors():
    op('no depth', 'MatMul', ones(3, 0), ones(0, 4))
    op('no depth, wide', 'MatMul', ones(2, 3, 0), ones(0, 130))
    op('no rows', 'MatMul', ones(0, 3), ones(3, 4))
    case('no depth and more behind it', [N('Gemm', ['a', 'b', 'c'], ['t'], beta=2.0), N('Relu', ['t'], ['y'])],
         [{'a': ones(3, 2), 'b': ones(2, 4), 'c': ones(3, 1)}])
    op('softmax of no rows', 'Softmax', ones(0, 4))
    op('sum of nothing', 'ReduceSum', ones(0, 3), np.array([0]))
    op('gathered nothing', 'Gather', ones(3, 4), np.zeros((0, 2), np.int64))


def known_to_be_empty():
    """The same with sizes that the compiler knows: no plan may divide by them."""
    def fixed(name, nodes, *inputs, constants=(), opset=21):
        feed = {'abc'[i]: x for i, x in enumerate(inputs)}
        ports = [graphs.port(n, x.dtype, x.shape) for n, x in feed.items()]
        proto = graphs.model_of(nodes, ports, [graphs.port('y', F, None)], constants, opset=opset)
        CASES.append((name, proto, [feed], None, LEVELS))

    scores = [N('MatMul', ['a', 'b'], ['s']), N('Softmax', ['s'], ['w']), N('MatMul', ['w', 'c'], ['y'])]
    for rows, keys in ((3, 0), (0, 5)):
        fixed('attention of %d rows and %d keys' % (rows, keys), scores, ones(2, rows, 4), ones(2, 4, keys), ones(2, keys, 8))
    case('reshaped with a constant 0', [N('Split', ['x', 'parts'], ['none', 'all'], axis=3), N('Reshape', ['none', 'shape'], ['y'])],
         [{'x': ones(2, 12, 1, 10)}], constants=[const('parts', np.int64([0, 10])), const('shape', np.int64([2, 12, 1, 0]))])
    weights = [const('w', np.arange(24, dtype=f32).reshape(3, 1, 4, 2, 1))]
    filtered = [N('Conv', ['a', 'w'], ['y'], group=3, pads=[2, 1, 0, 2, 1, 0])]
    fixed('filtered nothing', filtered, ones(0, 3, 4, 5, 6), constants=weights)
    case('filtered as many channels as images', filtered, [{'a': ones(3, 3, 4, 5, 6)}], constants=weights)
    CASES[-1][1].graph.input[0].type.tensor_type.shape.dim[1].dim_param = 'a0'


def shapes():
    x = np.arange(48, dtype=f32).reshape(2, 1, 3, 1, 2, 2, 2, 1)
    op('eight dimensions', 'Transpose', x, perm=[7, 6, 5, 4, 3, 2, 1, 0])
    op('softmax of eight dimensions', 'Softmax', x, axis=2)
    op('batches that broadcast', 'MatMul', np.arange(24, dtype=f32).reshape(2, 1, 3, 4), np.arange(40, dtype=f32).reshape(5, 4, 2))
    op('both broadcast', 'Sub', ones(3, 1), np.arange(4, dtype=f32)[None])
    x = np.arange(24, dtype=f32).reshape(2, 3, 4)
    for sizes in ([0, -1], [-1, 0, 2], [-1]):
        op('reshape %s' % sizes, 'Reshape', x, np.array(sizes))
    op('pads of both signs', 'Pad', x, np.array([-1, 0, 3, 5, -2, 60]))
    y = np.arange(10, dtype=f32)
    case('slices', [N('Slice', ['x', 'from', 'to', 'axis', 'step'], ['y'])],
         [{'x': y, 'from': np.array([a]), 'to': np.array([b]), 'axis': np.array([-1]), 'step': np.array([s])}
          for a, b, s in ((-1, -100, -1), (100, -100, -3), (7, 2, 1), (0, 2 ** 62, 2))])
    case('slice to an end of unknown sign', [N('Shape', ['x'], ['n'], end=1), N('Sub', ['n', 'one'], ['end']),
                                             N('Slice', ['rows', 'null', 'end', 'null'], ['cut']), N('Mul', ['cut', 'x'], ['all']),
                                             N('Softmax', ['all'], ['wide'], axis=1), N('Softmax', ['wide'], ['y'], axis=2)],
         [{'x': np.arange(n * 15, dtype=f32).reshape(n, 1, 3, 5) / 9} for n in (2, 3, 5)],
         constants=[const('one', np.array([1])), const('null', np.array([0])), const('rows', ones(8, 3, 1))])


def broadcasts():
    """Operands with symbols of their own, each of which may be 1 or the size of the output: one library for all of them."""
    rng = np.random.default_rng(7)
    pairs = [((2, 1, 5, 37), (2, 3, 5, 37)), ((2, 3, 5, 37), (1, 1, 1, 37)), ((1, 3, 1, 1), (2, 1, 5, 37)),
             ((2, 3, 5, 1), (2, 3, 5, 37)), ((1, 1, 1, 1), (1, 1, 1, 1)), ((2, 3, 0, 37), (2, 1, 0, 37)),
             ((2, 1, 5, 37), (2, 0, 5, 37)), ((0, 3, 5, 37), (1, 3, 5, 1))]
    for name, nodes, out, draw in (
            ('floats', [N('Add', ['a', 'b'], ['y'])], F, lambda s: rng.standard_normal(s).astype(f32)),
            ('bytes', [N('Equal', ['a', 'b'], ['y'])], B, lambda s: rng.integers(0, 2, s).astype(np.uint8)),
            ('what a mask adds', [N('Cast', ['a'], ['m'], to=F), N('Mul', ['m', 'low'], ['n']), N('Add', ['n', 'b'], ['y'])],
             F, None)):
        feeds = [{'a': draw(a) if draw else rng.integers(0, 2, a), 'b': draw(b) if draw else rng.standard_normal(b).astype(f32)}
                 for a, b in pairs]
        case('broadcasts of ' + name, nodes, feeds, {'y': out}, [const('low', f32(-1e4))])
    for dtype in (np.uint8, np.int64, f32):
        feeds = [{'c': rng.random(a) < 0.5, 'a': rng.integers(0, 99, b).astype(dtype), 'b': rng.integers(0, 99, c).astype(dtype)}
                 for a, b in pairs for c in (a, b)]
        case('selects of %s' % np.dtype(dtype), [N('Where', ['c', 'a', 'b'], ['y'])], feeds,
             {'y': h.np_dtype_to_tensor_dtype(np.dtype(dtype))})
    op('batches, one and none', 'MatMul', ones(0, 2, 3), ones(1, 3, 2))
    for shape in ([0, 3], [1, 3], [4, 1]):
        op('expanded to %s' % shape, 'Expand', ones(1, 3), np.array(shape))
    op('nothing, expanded', 'Expand', ones(0, 3), np.array([1, 3]))
    x = rng.standard_normal((5, 11)).astype(f32)
    case('tiles', [N('Tile', ['x', 'n'], ['y'])], [{'x': x}, {'x': x[:, :1]}, {'x': x[:0]}],
         constants=[const('n', np.array([3, 4]))])
    for scale in (2, 3):
        case('pixels %d times' % scale, [N('Resize', ['x', '', 's'], ['y'], coordinate_transformation_mode='asymmetric',
                                           nearest_mode='floor')],
             [{'x': rng.standard_normal(s).astype(f32)} for s in ((2, 3, 5, 19), (1, 2, 1, 1))],
             constants=[const('s', f32([1, 1, scale, scale]))])
    for name, scale in (('a 300th', 1 / 300), ('0.7310586', 0.7310586)):  # a fraction, and one that only floats tell
        case('samples times ' + name, [N('Resize', ['x', '', 's'], ['y'], mode='linear')],
             [{'x': rng.standard_normal((1, 2, n)).astype(f32)} for n in (600, 1499)], constants=[const('s', f32([1, 1, scale]))])


def numbers():
    odd = np.array([nan, 1, -1, inf, -inf, -0.0, 0.0], f32)
    op('maximum with NaN', 'Max', odd, odd[::-1].copy())
    case('signs, of -0 too', [N('Sign', ['a'], ['s']), N('Reciprocal', ['s'], ['y'])], [{'a': odd}])
    op('below all that has an area cosine', 'Acosh', -np.logspace(0, 38, 39, dtype=f32))
    op('logarithm of sums of infinities', 'ReduceLogSumExp', np.array([[-inf, -inf], [inf, 1], [nan, 1]], f32), np.array([1]))
    case('bounds the wrong way', [N('Clip', ['x', 'low', 'high'], ['y'])], [{'x': odd, 'low': np.array(2, f32), 'high': np.array(-2, f32)}])
    op('largest of ties', 'ArgMax', np.array([[1, 3, 3, 2], [3, 3, 3, 3]], f32), out=I, axis=1, select_last_index=1)
    large = np.array([2 ** 53 + 1, 2 ** 64 - 1, 2 ** 63, 5], np.uint64)
    for operator in ('Div', 'Mod', 'Mul'):
        op('%s of 64 bits without sign' % operator, operator, large, np.array([3, 7, 2, 3], np.uint64), out=TensorProto.UINT64)
    op('remainders of negative numbers', 'Mod', np.array([-7, 7, -7, 7], np.int8), np.array([3, -3, -3, 3], np.int8),
       out=TensorProto.INT8)
    for power in (0.5, -0.5):  # no square root's results for -inf and -0
        case('numbers to the power of %g' % power, [N('Pow', ['a', 'e'], ['p']), N('Reciprocal', ['p'], ['y'])],
             [{'a': np.concatenate([odd, f32([4, -4, 3e-39, 2])])}], {'p': F, 'y': F}, [const('e', f32(power))])
    op('powers of integers', 'Pow', np.array([3, -2, -1, -1, 1, 0, 7, 2, 5, -3]),
       np.array([4, 63, -3, -4, -9, 0, 18, -1, 1, 3]), out=I)
    case('sizes beside the largest integer', [N('Shape', ['x'], ['s']), N('Greater', ['s', 'm'], ['a']), N('Less', ['s', 'm'], ['b']),
                                              N('Concat', ['a', 'b'], ['y'], axis=0)],
         [{'x': np.zeros((2, 3), f32)}], {'y': B}, [const('m', np.array([2 ** 63 - 1]))])
    op('sums that wrap', 'Add', np.array([127, -128], np.int8), np.array([1, -1], np.int8), out=TensorProto.INT8)
    wide = np.array([1 + 2.0 ** -11, 1 + 2.0 ** -11 + 2.0 ** -40, -3e-8, 2.98023223876953e-08, 65519.999999, 65520, 1e300, nan, -inf])
    case('halves where no instruction converts them', [
        N('Cast', ['a'], ['f'], to=F), N('Add', ['f', 'f'], ['g']), N('Cast', ['g'], ['y'], to=TensorProto.FLOAT16),
        N('Cast', ['b'], ['z'], to=TensorProto.FLOAT16)], [{'a': np.array([1.5, -0.0, 6e-8, 3e4, 65504, nan], np.float16), 'b': wide}],
         {'y': TensorProto.FLOAT16, 'z': TensorProto.FLOAT16},
         levels=('--target=x86-64', '--target=x86-64-v2') if platform.machine() == 'x86_64' else LEVELS)
    op('numbers beyond f16', 'Cast', np.array([65519, 65520, 6e-8, 2e-8, nan, inf], f32), out=TensorProto.FLOAT16,
       to=TensorProto.FLOAT16)


def control_flow():
    count = body([N('Add', ['i', 'one'], ['j']), N('Less', ['j', 'most'], ['more']), N('Cast', ['j'], ['f'], to=F),
                  N('Add', ['v', 'f'], ['w']), N('Identity', ['w'], ['s'])],
                 [('i', I, []), ('c', B, []), ('v', F, ['k'])], [('more', B, []), ('w', F, ['k']), ('s', F, ['k'])],
                 [const('one', np.int64(1))])
    for name, first in (('that a condition ends', ''), ('of many turns', 'trips')):
        feeds = [{'trips': np.array(t), 'x': ones(k), 'most': np.array(m)}
                 for t, k, m in ((2 ** 63 - 1, 2, 1000), (300, 3, 9999), (257, 1, 256), (3, 2, 1))]
        case('a loop ' + name, [N('Loop', [first, '', 'x'], ['y', 'all'], body=count)],
             [{n: v for n, v in feed.items() if n != 'trips' or first} for feed in feeds], {'y': F, 'all': F})
    swap = body([N('Identity', ['c'], ['d']), N('Neg', ['v'], ['s'])], [('i', I, []), ('c', B, []), ('v', F, None), ('w', F, None)],
                [('d', B, []), ('w', F, None), ('v', F, None), ('s', F, None)])
    case('sizes of what a loop collects, checked behind it', [
        N('Loop', ['turns', '', 'x', 'x'], ['u', 'v', 'all'], body=swap), N('Add', ['all', 'y0'], ['y']),
        N('Loop', ['many', '', 'z0'], ['last', 'list'], body=count), N('Mul', ['list', 'z1'], ['z'])],
         [{'turns': np.array(3), 'x': ones(2, 4), 'y0': ones(n, 4), 'z0': ones(1), 'z1': ones(m, 1), 'most': np.array(m),
           'many': np.array(9999)} for n, m in ((2, 3), (1, 257))], {'y': F, 'z': F})
    case('elements of a sequence cut by a filled list', [
        N('Cast', ['times'], ['n'], to=I), N('Shape', ['n'], ['k']), N('ConstantOfShape', ['k'], ['each'], value=const('', np.int64([1]))),
        N('SplitToSequence', ['n', 'each'], ['s'], axis=0), N('SequenceAt', ['s', 'which'], ['e']),
        N('Concat', ['two', 'e'], ['to'], axis=0), N('Expand', ['x', 'to'], ['y'])],
         [{'times': np.int32(t), 'which': np.array(i), 'x': np.array(f32(3))} for t, i in (([3, 1, 2], 2), ([4], -1))],
         constants=[const('two', np.int64([2]))])
    double = body([N('Add', ['v', 'v'], ['w']), N('Identity', ['c'], ['d']), N('Neg', ['v'], ['s'])],
                  [('i', I, []), ('c', B, []), ('v', F, [2])], [('d', B, []), ('w', F, [2]), ('s', F, [2])])
    case('a loop of no turns', [N('Loop', ['m', 'c', 'x'], ['y', 'all'], body=double)],
         [{'m': np.array(m), 'c': np.array(c), 'x': ones(2)} for m, c in ((-1, True), (0, True), (5, False), (2, True))],
         {'y': F, 'all': F})
    CASES[-1][1].graph.input[2].type.tensor_type.shape.dim[0].dim_value = 2
    step = body([N('Add', ['state', 'x'], ['sum']), N('Mul', ['sum', 'x'], ['y'])], [('state', F, [2]), ('x', F, [2])],
                [('sum', F, [2]), ('y', F, [2])])
    for back in (0, 1):
        case('a scan, backwards %d' % back, [N('Scan', ['zero', 'x'], ['last', 'y'], body=step, num_scan_inputs=1,
                                               scan_input_directions=[back], scan_output_directions=[1 - back])],
             [{'x': np.arange(2 * n, dtype=f32).reshape(n, 2)} for n in (4, 1)], {'last': F, 'y': F}, [const('zero', np.zeros(2, f32))])
        CASES[-1][1].graph.input[0].type.tensor_type.shape.dim[1].dim_value = 2
    same = body([N('Relu', ['x'], ['t'])], [], [('t', F, None)])
    twice = body([N('Concat', ['x', 'x'], ['e'], axis=0)], [], [('e', F, None)])
    one = body([N('Not', ['c'], ['n']), N('Unsqueeze', ['n', 'zero'], ['t'])], [], [('t', B, None)], [const('zero', np.array([0]))])
    none = body([N('Identity', ['c'], ['e'])], [], [('e', B, None)])
    case('branches of different ranks', [N('If', ['c'], ['y0'], then_branch=one, else_branch=none),
                                         N('If', ['y0'], ['y'], then_branch=same, else_branch=twice)],
         [{'c': np.array(c), 'x': ones(2, 3)} for c in (True, False)])
    anew = body([N('Neg', ['x'], ['neg']), N('And', ['more', 'more'], ['on']), N('Unsqueeze', ['last', 'zero'], ['more_last'])],
                [('i', I, []), ('more', B, []), ('unread', F, None), ('last', F, None)],
                [('on', B, []), ('neg', F, None), ('more_last', F, None)], [const('zero', np.array([0]))])
    case('a loop that makes a carried value anew', [N('Loop', ['m', 'c', 'none', 'none'], ['y', 'l'], body=anew)],
         [{'m': np.array(1), 'c': np.array(True), 'x': ones(2, 3)}], {'y': F}, [const('none', f32(0))])
    keeps = body([N('Unsqueeze', ['v', 'axes'], ['s']), N('ReduceSum', ['s', 'axes'], ['t'], keepdims=0), N('Add', ['v', 't'], ['w']),
                  N('Identity', ['axes'], ['a']), N('Identity', ['a'], ['b']), N('Identity', ['c'], ['d'])],
                 [('i', I, []), ('c', B, []), ('axes', I, [1]), ('v', F, None), ('unread', F, [])],
                 [('d', B, []), ('b', I, [1]), ('w', F, None), ('unread', F, []), ('s', F, None)])
    case('axes that a loop carries unchanged', [N('Loop', ['m', '', 'one', 'x', 'first'], ['l', 'y', 'u', 's'], body=keeps)],
         [{'m': np.array(m), 'x': ones(2, k)} for m, k in ((3, 4), (1, 2))], {'y': F, 'u': F, 'l': I, 's': F},
         [const('one', np.int64([1])), const('first', f32(7))])
    reads = body([
        N('Add', ['at', 'hop'], ['next']), N('Unsqueeze', ['at', 'zero'], ['from1']), N('Unsqueeze', ['next', 'zero'], ['to1']),
        N('Concat', ['from1', 'zero32'], ['from'], axis=0), N('Concat', ['to1', 'zero32'], ['to2'], axis=0),
        N('Cast', ['to2'], ['wide'], to=F), N('Max', ['wide', 'huge'], ['far']), N('Cast', ['far'], ['far32'], to=I32),
        N('Equal', ['far32', 'huge32'], ['whole']), N('Less', ['strides', 'zero32'], ['backwards']),
        N('And', ['whole', 'backwards'], ['flip']), N('Where', ['flip', 'least', 'far32'], ['to']),
        N('Slice', ['table', 'from', 'to', 'axes', 'strides'], ['one']), N('Squeeze', ['one', 'zero'], ['start']),
        N('Add', ['start', 'one32'], ['end']), N('Slice', ['x', 'start', 'end', 'zero32'], ['row']), N('Squeeze', ['row', 'zero'], ['y']),
        N('Identity', ['c'], ['d'])],
        [('i', I, []), ('c', B, []), ('at', I32, [])], [('d', B, []), ('next', I32, []), ('y', F, None)],
        [const('zero', np.array([0])), const('zero32', np.int32([0])), const('one32', np.int32([1])), const('huge', f32([1e9, 1e9])),
         const('huge32', np.int32(10 ** 9)), const('least', np.int32(-10 ** 9)), const('axes', np.int32([0, 1])),
         const('strides', np.int32([10 ** 9, 1]))])
    case('rows that a list within the loop names, as TensorFlow reads them', [N('Loop', ['m', '', 'first'], ['l', 'y'], body=reads)],
         [{'m': np.array(m), 'x': np.arange(15, dtype=f32).reshape(5, 3), 'table': np.int32([[4], [0], [2], [1]]), 'hop': np.array(hop, np.int32),
           'first': np.array(first, np.int32)} for m, first, hop in ((4, 0, 1), (2, 3, -1), (1, 2, 0))], {'y': F, 'l': I32})
    CASES[-1][1].graph.input[2].type.tensor_type.shape.dim[1].dim_value = 1
    case('branches of different sizes', [N('If', ['c'], ['y'], then_branch=same, else_branch=twice)],
         [{'c': np.array(c), 'x': ones(2, 3)} for c in (True, False)])


def shrunk():
    """Antialiased resizing: windows along several axes, to sizes and by scales that are known or not."""
    rng = np.random.default_rng(11)

    def shrink(name, shape, to, known=True, dtype=f32, by=None, symbolic=(), **attributes):
        x = rng.uniform(0, 200, shape).astype(dtype)
        feed = {'x': x} if known else {'x': x, 'to': np.array(to)}
        lists = [const('to', np.array(to, f32 if by else np.int64))] if known else []
        node = N('Resize', ['x', '', 'to'] if by else ['x', '', '', 'to'], ['y'], antialias=1, **attributes)
        real = [N('Cast', ['x'], ['f'], to=F), N('Resize', ['f', '', '', 'to'], ['g'], antialias=1, **attributes),
                N('Round', ['g'], ['r']), N('Cast', ['r'], ['y'], to=TensorProto.UINT8)]  # ONNX Runtime's own rounds twice
        case('shrunk %s' % name, [node], [feed], {'y': h.np_dtype_to_tensor_dtype(np.dtype(dtype))}, lists,
             oracle=real if dtype == np.uint8 else None)
        for axis, n in enumerate(shape):
            if axis not in symbolic:
                CASES[-1][1].graph.input[0].type.tensor_type.shape.dim[axis].dim_value = n

    for mode in ('linear', 'cubic'):
        shrink('%s, rows first' % mode, (2, 3, 70, 90), (2, 3, 7, 9), mode=mode)
        shrink('%s, columns first' % mode, (1, 2, 40, 90), (1, 2, 37, 11), mode=mode, exclude_outside=1)
        shrink('%s, one axis grows' % mode, (1, 2, 33, 40), (1, 2, 50, 13), mode=mode)
        shrink('%s, only rows' % mode, (1, 3, 64, 50), (1, 3, 64, 17), mode=mode)
        shrink('%s, symbolic' % mode, (2, 3, 40, 36), (2, 3, 13, 16), mode=mode, symbolic=(0, 1, 2, 3))
        shrink('%s, to sizes at run time' % mode, (2, 3, 40, 36), (2, 3, 13, 16), known=False, mode=mode)
        shrink('%s, by scales' % mode, (1, 3, 41, 37), (1, 1, 0.3, 0.45), by=True, mode=mode)
        shrink('%s, many channels' % mode, (1, 16, 40, 44), (1, 16, 9, 21), mode=mode)
    shrink('to corners', (1, 2, 40, 44), (1, 2, 9, 21), mode='linear', coordinate_transformation_mode='align_corners')
    shrink('bytes', (1, 3, 40, 44), (1, 3, 9, 21), dtype=np.uint8, mode='linear')
    shrink('with channels last', (1, 40, 44, 3), (1, 9, 21, 3), mode='linear')
    shrink('volumes', (1, 2, 24, 20, 36), (1, 2, 11, 13, 9), mode='linear')


def cubes():
    """Cubic resizing along more axes than two, which ONNX Runtime has not: it does two and then two."""
    rng = np.random.default_rng(12)
    turn = [N('Transpose', ['p'], ['q'], perm=[2, 3, 0, 1])]
    for name, attributes in (('plain', {}), ('without what is outside', {'exclude_outside': 1, 'cubic_coeff_a': -0.5}),
                             ('to corners', {'coordinate_transformation_mode': 'align_corners'})):
        for shape, to in (((3, 4, 6, 5), (5, 6, 9, 11)), ((1, 5, 7, 4), (2, 3, 4, 9)), ((4, 1, 1, 9), (3, 2, 4, 5))):
            def half(x, y, size):
                return N('Resize', [x, '', '', size], [y], mode='cubic', **attributes)
            lists = [const('first', np.array([*shape[:2], *to[2:]])), const('second', np.array([*to[2:], *to[:2]]))]
            oracle = [half('x', 'p', 'first'), *turn, half('q', 'r', 'second'), N('Transpose', ['r'], ['y'], perm=[2, 3, 0, 1])]
            case('cubic along four axes, %s, to %s' % (name, 'x'.join(map(str, to))), [half('x', 'y', 'to')],
                 [{'x': rng.standard_normal(shape).astype(f32), 'to': np.array(to)}], constants=lists, oracle=oracle)


def counting_loops():
    """Loops that a counter ends, and some that only look as if one did."""
    def counting(name, cond, first, begin, given=('',), feeds=((3, 4), (1, 2), (2, 2)), within=False):
        """cond: nodes that make `more` of the next counters; first: nodes that make `go`; begin: of the counters, with their
        steps. within: lists cut by the first one have one element, for all sizes."""
        carried = len(begin)
        steps = [N('Add', ['i%d' % k, 'step%d' % k], ['j%d' % k]) for k in range(carried)]
        loop = body(steps + list(cond) + [
            N('Reshape', ['i0', 'flat'], ['at']), N('Add', ['at', 'one1'], ['to']),
            N('Slice', ['ends', 'at', 'to'], ['row']) if within else N('Gather', ['ends', 'at'], ['row']),
            N('Add', ['row', 'one1'], ['row1']), N('Slice', ['x', 'row', 'row1'], ['part']), N('ReduceSum', ['part'], ['s'], keepdims=0),
            N('Add', ['v', 's'], ['w'])],
            [('t', I, []), ('c', B, [])] + [('i%d' % k, I, []) for k in range(carried)] + [('v', F, [])],
            [('more', B, [])] + [('j%d' % k, I, []) for k in range(carried)] + [('w', F, []), ('s', F, [])])
        case('a loop that counts, ' + name,
             [N('Shape', ['x'], ['sizes']), N('Split', ['sizes'], ['n1', 'm1'], num_outputs=2), N('Squeeze', ['n1'], ['n']),
              N('Squeeze', ['m1'], ['m']), N('Range', ['zero', 'n', 'one'], ['range']), N('Concat', ['range', 'one1'], ['ends'], axis=0), *first,
              N('Loop', [*given, 'go' if first else ''] + ['begin%d' % k for k in range(carried)] + ['sum'],
                ['last%d' % k for k in range(carried)] + ['y', 'all'], body=loop)],
             [{'x': np.arange(n * m, dtype=f32).reshape(n, m) + 1, 'limit': np.array(limit)} for limit in (2, 100) for n, m in feeds],
             {'y': F, 'all': F, 'last0': I},
             [const('zero', np.int64(0)), const('one', np.int64(1)), const('one1', np.int64([1])), const('two', np.int64(2)), const('never', np.int64(2 ** 63 - 1)),
              const('flat', np.int64([-1])), const('sum', f32(0.5))] +
             [const('begin%d' % k, np.int64(b)) for k, (b, _) in enumerate(begin) if b is not None] +
             [const('step%d' % k, np.int64(s)) for k, (_, s) in enumerate(begin)])

    less = [N('Less', ['j0', 'n'], ['more'])]
    counting('up to a size', less, [N('Less', ['zero', 'n'], ['go'])], [(0, 1)], within=True)
    counting('at least one turn', less, [], [(0, 2)])
    counting('up to a size by more than one', [N('LessOrEqual', ['j1', 'n'], ['more'])], [N('LessOrEqual', ['zero', 'n'], ['go'])], [(0, 1), (0, 2)])
    counting('from a size by number of turn', [N('Sub', ['n', 't'], ['left']), N('Greater', ['left', 'two'], ['more'])], [], [(0, 1)])
    counting('backwards from the last', [N('GreaterOrEqual', ['j1', 'zero'], ['more'])],
             [N('Sub', ['n', 'one'], ['end']), N('GreaterOrEqual', ['end', 'zero'], ['go']), N('Identity', ['end'], ['begin1'])],
             [(0, 1), (None, -1)])
    both = [N('Less', ['j0', 'n'], ['p0']), N('Less', ['j1', 'm'], ['p1']), N('And', ['p0', 'p1'], ['both'])]
    start = [N('Less', ['zero', 'n'], ['g0']), N('Less', ['two', 'm'], ['g1']), N('And', ['g0', 'g1'], ['go'])]
    counting('two at once', both + [N('And', ['both', 'c'], ['more'])], start, [(0, 1), (2, 3)], feeds=((3, 12), (3, 6), (2, 9), (1, 3)), within=True)
    counting('and a limit', less, [N('Less', ['zero', 'n'], ['go'])], [(0, 1)], given=('limit',), within=True)
    counting('after another condition', less, [N('Less', ['zero', 'm'], ['g0']), N('Less', ['limit', 'm'], ['g1']), N('And', ['g0', 'g1'], ['go'])],
             [(0, 1)], feeds=((3, 4), (2, 101)))
    counting('and a limit that is none', less, [N('Less', ['zero', 'n'], ['go'])], [(0, 1)], given=('never',), within=True)
    counting('and ends before', [N('Add', ['j0', 'one'], ['k']), N('Less', ['k', 'limit'], ['less']), N('Less', ['j0', 'n'], ['inside']),
                                 N('And', ['less', 'inside'], ['more'])], [N('Less', ['zero', 'n'], ['go'])], [(0, 1)], within=True)


def sequences_from_loops():
    """What scripted models do with lists: filled in a loop, then stacked or joined. Most become scanned outputs."""
    def filling(*nodes, wanted=('q2',), constants=()):
        given = [h.make_tensor_value_info(*p) for p in (('i', I, []), ('c', B, []), ('s', F, ['b', 3]))]
        left = [h.make_tensor_value_info(*p) for p in (('more', B, []), ('sum', F, ['b', 3]))]
        lists = [h.make_tensor_sequence_value_info(n, F, None) for n in ('q', 'r')[:len(wanted)] + wanted]
        start = [N('Gather', ['x', 'i'], ['x_i'], axis=0), N('Add', ['s', 'x_i'], ['sum']), N('ReduceSum', ['x_i'], ['all'], keepdims=0),
                 N('Less', ['all', 'most'], ['more'])]
        return h.make_graph(start + list(nodes), 'body', given + lists[:len(wanted)], left + lists[len(wanted):], list(constants))

    def filled(name, inner, after, outputs=None, count=1):
        begin = [N('SequenceEmpty', [], ['none']), N('Shape', ['x'], ['size'], start=0, end=1), N('Squeeze', ['size'], ['turns']),
                 N('Loop', ['turns', '', 'zero'] + ['none'] * count, ['last'] + ['list', 'other'][:count], body=inner)]
        case('a loop that fills ' + name, begin + after,
             [{'x': np.arange(n * b * 3, dtype=f32).reshape(n, b, 3), 'zero': np.zeros((b, 3), f32), 'most': np.array(most, f32)}
              for n, b, most in ((2, 4, 1e9), (20, 1, 1e9), (18, 2, 70))], outputs or {'last': F, 'y': F})

    append = N('SequenceInsert', ['q', 'sum'], ['q2'])
    for axis, new in ((0, 1), (2, 1), (0, 0), (1, 0)):
        filled('a list, joined along %d%s' % (axis, ', a new axis' * new), filling(append),
               [N('ConcatFromSequence', ['list'], ['y'], axis=axis, new_axis=new)])
    filled('a list that is counted', filling(append), [N('SequenceLength', ['list'], ['y'])], {'y': I})
    filled('two lists', filling(append, N('Exp', ['x_i'], ['e']), N('SequenceInsert', ['r', 'e'], ['r2']), wanted=('q2', 'r2')),
           [N('ConcatFromSequence', ['list'], ['y'], axis=1, new_axis=1), N('ConcatFromSequence', ['other'], ['z'], axis=0)],
           {'y': F, 'z': F}, count=2)
    zero, ends = const('null', np.array([0])), [N('ConcatFromSequence', ['list'], ['y'], axis=1)]
    filled('a list from its end', filling(N('SequenceInsert', ['q', 'sum', 'first'], ['q2']), constants=[const('first', np.int64(0))]), ends)
    filled('a list by what it has', filling(N('SequenceLength', ['q'], ['l']), N('Cast', ['l'], ['f'], to=F), N('Add', ['sum', 'f'], ['t']),
                                            N('SequenceInsert', ['q', 't'], ['q2'])), ends)
    filled('a list with tensors of all sizes', filling(N('Unsqueeze', ['i', 'null'], ['n']), N('Slice', ['sum', 'null', 'n', 'axis'], ['t']),
                                                       N('SequenceInsert', ['q', 't'], ['q2']), constants=[zero, const('axis', np.array([1]))]), ends)
    cut = body([N('SequenceAt', ['parts', 'i'], ['p']), N('Mul', ['v', 'p'], ['w']), N('Identity', ['c'], ['d'])],
               [('i', I, []), ('c', B, []), ('v', F, None)], [('d', B, []), ('w', F, None)])
    for keep in (0, 1):
        case('a loop over a tensor cut up, axis kept %d' % keep,
             [N('SplitToSequence', ['x'], ['parts'], axis=1, keepdims=keep), N('SequenceLength', ['parts'], ['m']),
              N('SequenceAt', ['parts', 'm1'], ['first']), N('Loop', ['m', '', 'first'], ['y'], body=cut),
              N('ConcatFromSequence', ['parts'], ['z'], axis=1, new_axis=1 - keep)],
             [{'x': ones(3, n) * 1.01, 'm1': np.array(-1)} for n in (20, 1)], {'y': F, 'z': F})


def pixels_that_are_no_numbers():
    """They reach what reads them, and nothing else where fast algorithms are off."""
    r = np.random.RandomState(3)
    x = r.randn(1, 16, 20, 24).astype(f32)
    x[0, 3, 7, 9], x[0, 1, 15, 2] = nan, inf
    case('no numbers in pixels, computed weights, transposed', [N('Reshape', ['w', 's'], ['t']),
         N('ConvTranspose', ['x', 't'], ['y'], strides=[2, 2])], [{'x': x, 'w': r.randn(16, 2, 3, 3).astype(f32)}],
         constants=[const('s', np.int64([16, 2, 3, 3]))], levels=('-O0', '--fast-algorithms=off'))
    for name, operator, w, more in (('few channels', 'Conv', r.randn(2, 16, 3, 3), {'pads': [1] * 4}),
                                    ('16 channels', 'Conv', r.randn(16, 16, 3, 3), {'pads': [1] * 4}),
                                    ('groups', 'Conv', r.randn(16, 2, 3, 3), {'group': 8}),
                                    ('groups, transposed', 'ConvTranspose', r.randn(16, 2, 3, 3), {'group': 8}),
                                    ('few channels, transposed', 'ConvTranspose', r.randn(16, 2, 4, 4), {'strides': [2, 2]})):
        shape = const('s', np.int64([1, 16, 20, 24]))
        case('no numbers in pixels, ' + name, [N('Reshape', ['x', 's'], ['t']), N(operator, ['t', 'w'], ['y'], **more)],
             [{'x': x}], constants=[const('w', w.astype(f32)), shape], levels=('-O0', '--fast-algorithms=off'))


def windows():
    case('averages over padding that follows from sizes',
         [N('AveragePool', ['x'], ['u'], kernel_shape=[3, 2], strides=[2, 2], auto_pad='SAME_UPPER'),
          N('AveragePool', ['u'], ['l'], kernel_shape=[2, 3], strides=[1, 2], auto_pad='SAME_LOWER'),
          N('AveragePool', ['l'], ['y'], kernel_shape=[2, 2], auto_pad='SAME_UPPER', count_include_pad=1)],
         [{'x': np.random.RandomState(n).randn(2, 3, n, n + 3).astype(f32)} for n in (11, 8)], {'u': F, 'l': F, 'y': F})

    for dtype, least in ((np.uint8, 0), (np.int8, -128), (f32, -inf)):
        x = np.full((1, 2, 4, 5), least, dtype)
        x[0, 1, 1, 1] = 3
        case('places of the largest of the smallest, %s' % np.dtype(dtype).name,
             [N('MaxPool', ['x'], ['y', 'i'], kernel_shape=[2, 2], strides=[2, 2], pads=[0, 1, 0, 0])], [{'x': x}],
             {'y': h.np_dtype_to_tensor_dtype(np.dtype(dtype)), 'i': I})
    # The largest is NaN where there is one, and its place that of the first; ONNX Runtime skips those that are not the first tap.
    x = np.array([[1, nan, 3, nan, 5, 2, 1, nan], [nan, 1, nan, 9, -inf, inf, 0, -inf]], f32).reshape(2, 1, 8)
    known = [const('largest', f32([nan, nan, nan, inf]).reshape(2, 1, 2)), const('places', np.array([1, 7, 8, 13]).reshape(2, 1, 2))]
    case('places of NaN', [N('MaxPool', ['x'], ['y', 'i'], kernel_shape=[4], strides=[4])], [{'x': x}], {'y': F, 'i': I}, known,
         oracle=[N('Identity', ['largest'], ['y']), N('Identity', ['places'], ['i'])])


def known_and_not(name, nodes, feeds, outputs=None):
    """nodes read x: once with symbols for its sizes, once with those of the first feed."""
    x = feeds[0]['x']
    case(name, nodes, feeds, outputs)
    case(name + ', known', [N('Reshape', ['fed', 'dims'], ['x'])] + nodes, [{'fed': x}], outputs,
         [const('dims', np.array(x.shape))])


def backwards():
    """A row cut from the back whose length, one or more, only the running model knows: broadcast or read backwards."""
    from_34 = [const('s', np.array([34])), const('e', np.array([-2 ** 63])), const('a', np.array([0])), const('t', np.array([-1]))]
    case('backwards beside itself', [N('Unique', ['x'], ['u', 'i'], sorted=1), N('Slice', ['i', 's', 'e', 'a', 't'], ['r']),
                                     N('BitwiseOr', ['r', 'i'], ['y'])],
         [{'x': np.arange(n, dtype=f32)[::-1].copy()} for n in (8, 1, 35)], {'y': I}, from_34)


def beyond_the_end():
    for n in (9, 3):
        op('%d elements by what is said of six' % n, 'Compress', np.arange(n, dtype=f32), np.array([1, 0, 1, 0, 1, 1], bool))
    for kind, x in (('LogSum', np.array([[1, 7, 900], [3, 1, -4], [5, 2, 1]], np.int32)),
                    ('LogSumExp', np.array([[1, 7, 20], [3, 3, 3], [-5, 2, 1]], np.int32))):
        op('integers, ' + kind, 'Reduce' + kind, x, np.array([1]), out=TensorProto.INT32)


def slices_beyond():
    """Backwards from before the first element, by known bounds and by given ones."""
    for start, end, step in ((-9, -9, -2), (-9, -20, -1), (-6, -7, -1), (-9, -2, -2), (-2 ** 63, -2 ** 63, -1), (9, -9, -3)):
        given = {'s': np.array([start]), 'e': np.array([end]), 'a': np.array([0]), 't': np.array([step])}
        nodes = [N('Slice', ['x', *given], ['y'])]
        for n in (5, 0):
            x, name = np.arange(n, dtype=f32), 'from %d to %d by %d of %d' % (start, end, step, n)
            case(name, nodes, [{'x': x, **given}])
            case(name + ', known', nodes, [{'x': x}], constants=[const(k, v) for k, v in given.items()])


def borders():
    """Rows that are cut into borders and what lies between: paddings and pools, of sizes that leave much, little or nothing
    between them."""
    rng = np.random.default_rng(8)

    def images(*dims):
        return [{'x': rng.standard_normal(d).astype(f32)} for d in dims]

    for mode in ('constant', 'reflect', 'edge', 'wrap'):
        pad = N('Pad', ['x', 'p'], ['y'], mode=mode)
        known_and_not('images padded, ' + mode, [N('Constant', [], ['p'], value_ints=[0, 0, 2, 3, 0, 0, 1, 4]), pad],
                      images((2, 3, 7, 21), (1, 2, 3, 5)))
        case('rows padded, ' + mode, [N('Constant', [], ['p'], value_ints=[0, 0, 0, 2, 0, 0, 0, 3]), pad],
             images((2, 3, 7, 21), (1, 2, 3, 5)))
        case('bytes padded, ' + mode, [N('Constant', [], ['p'], value_ints=[0, 0, 1, 2, 0, 0, 1, 1]), pad],
             [{'x': rng.integers(0, 255, (2, 3, 5, 40)).astype(np.uint8)}], {'y': TensorProto.UINT8})
    two = ((2, 3, 9, 41), (1, 2, 18, 18), (1, 1, 3, 4))
    for name, dims, attributes in (
            ('3x3', two, {'kernel_shape': [3, 3], 'pads': [1, 1, 1, 1]}),
            ('every second', two, {'kernel_shape': [3, 3], 'pads': [1, 1, 1, 1], 'strides': [2, 2]}),
            ('5x5', two, {'kernel_shape': [5, 5], 'pads': [2, 2, 2, 2]}),
            ('uneven', two, {'kernel_shape': [2, 4], 'pads': [0, 1, 1, 3], 'strides': [1, 3]}),
            ('dilated', two[:2], {'kernel_shape': [3, 3], 'pads': [2, 2, 2, 2], 'dilations': [2, 2]}),
            ('rounded up', two, {'kernel_shape': [3, 3], 'pads': [0, 0, 1, 1], 'strides': [2, 2], 'ceil_mode': 1}),
            ('1-D', ((2, 3, 100), (1, 2, 3)), {'kernel_shape': [3], 'pads': [1, 1], 'strides': [2]}),
            ('3-D', ((1, 2, 5, 9, 37), (1, 1, 2, 2, 20)), {'kernel_shape': [3, 3, 3], 'pads': [1] * 6, 'strides': [2, 1, 1]}),
            ('3-D halved', ((1, 2, 5, 9, 20), (1, 1, 1, 2, 7)), {'kernel_shape': [3] * 3, 'pads': [1] * 6, 'strides': [2] * 3}),
            ('3-D even', ((1, 2, 4, 5, 9), (1, 1, 1, 1, 4)), {'kernel_shape': [2] * 3, 'pads': [1] * 6, 'strides': [2] * 3})):
        counted = {'count_include_pad': len(name) % 2}
        for operator, more in (('MaxPool', {}), ('AveragePool', counted)):
            known_and_not('%s %s' % (operator, name),
                          [N(operator, ['x'], ['u'], **attributes, **more), N('Relu', ['u'], ['y'])], images(*dims))


def places():
    """Where the greatest and the least of rows and columns are: the first or the last of equal ones."""
    rng = np.random.default_rng(9)
    for name, draw in (('few values', lambda s: rng.integers(-3, 3, s).astype(f32)),
                       ('floats', lambda s: rng.standard_normal(s).astype(f32)), ('integers', lambda s: rng.integers(-9, 9, s)), ('infinities', lambda s: np.full(s, -inf, f32))):
        for axis in (-1, 0):
            ports = [N(op, ['x'], [out], axis=axis, select_last_index=last) for op, last, out in
                     (('ArgMax', 0, 'a'), ('ArgMax', 1, 'b'), ('ArgMin', 0, 'c'), ('ArgMin', 1, 'd'))]
            known_and_not('places of %s along %d' % (name, axis), ports, [{'x': draw((5, 37))}, {'x': draw((40, 3))}],
                          dict.fromkeys('abcd', I))


def crossings():
    """Transposes of sizes that no vector divides, known and not."""
    for dims, perm in (((3, 37, 21), [0, 2, 1]), ((19, 5, 130), [2, 1, 0]), ((2, 16, 33, 9), [0, 2, 3, 1]),
                       ((1, 300, 20), [0, 2, 1]), ((7, 3, 9), [2, 0, 1])):
        for dtype in (f32, np.float16, np.uint8, np.int64):
            x = np.arange(np.prod(dims)).reshape(dims).astype(dtype)
            name, out = 'transposed %s by %s, %s' % (dims, perm, x.dtype), h.np_dtype_to_tensor_dtype(x.dtype)
            op(name, 'Transpose', x, perm=perm, out=out)
            case(name + ', known', [N('Reshape', ['x', 'dims'], ['t']), N('Transpose', ['t'], ['y'], perm=perm)],
                 [{'x': x}], {'y': out}, constants=[const('dims', np.array(dims))])


def computed_weights():
    """Convolutions whose weights the model computes."""
    rng = np.random.default_rng(5)
    for name, x, w, attributes in (('2-D', (2, 6, 9, 11), (16, 6, 3, 3), {'pads': [1, 1, 1, 1]}),
                                   ('strides', (1, 8, 13, 12), (9, 8, 3, 2), {'strides': [2, 3], 'pads': [0, 1, 2, 0]}),
                                   ('groups', (2, 12, 7, 8), (24, 4, 2, 5), {'group': 3, 'pads': [0, 2, 1, 2]}),
                                   ('dilated rows', (1, 5, 12, 9), (8, 5, 3, 3), {'dilations': [3, 1]}),
                                   ('dilated', (1, 5, 12, 9), (8, 5, 3, 3), {'dilations': [3, 2]}),
                                   ('1-D', (3, 4, 50), (10, 4, 9), {'pads': [4, 4], 'strides': [2]}),
                                   ('3-D', (1, 3, 6, 5, 7), (8, 3, 3, 2, 3), {'pads': [1, 0, 1, 1, 1, 1]}),
                                   ('depthwise', (1, 8, 9, 9), (8, 1, 3, 3), {'group': 8})):
        weights = rng.standard_normal(w).astype(f32)
        each = np.linspace(0.5, 2, w[0], dtype=f32).reshape((-1,) + (1,) * (len(w) - 1))
        nodes = [N('Mul', ['w', 's'], ['v']), N('Conv', ['x', 'v', 'b'], ['c'], **attributes), N('Relu', ['c'], ['y'])]
        case('computed weights, ' + name, nodes, [{'x': rng.standard_normal(x).astype(f32), 's': each}],
             constants=[const('w', weights), const('b', rng.standard_normal(w[0]).astype(f32))])
    for name, x, w, attributes in (('2x2', (2, 20, 9, 32), (20, 16, 2, 2), {'strides': [2, 2]}),
                                   ('stride 1', (1, 6, 8, 7), (6, 9, 3, 3), {'pads': [1, 0, 2, 1]}),
                                   ('3x3', (1, 12, 8, 8), (12, 9, 3, 3),
                                    {'strides': [2, 2], 'pads': [1, 1, 1, 1], 'output_padding': [1, 1]}),
                                   ('groups', (2, 12, 7, 8), (12, 5, 4, 3),
                                    {'group': 3, 'strides': [3, 4], 'pads': [4, 0, 2, 1], 'output_padding': [0, 3]}),
                                   ('1-D', (3, 4, 50), (4, 10, 9), {'pads': [4, 4], 'strides': [4]}),
                                   ('3-D', (1, 8, 4, 5, 6), (8, 3, 3, 2, 4),
                                    {'strides': [2, 1, 2], 'pads': [2, 1, 0, 0, 0, 1]}),
                                   ('dilated', (1, 5, 7, 9), (5, 8, 3, 3), {'dilations': [3, 2], 'strides': [1, 2]})):
        weights = rng.standard_normal(w).astype(f32)
        each = np.linspace(0.5, 2, w[0], dtype=f32).reshape((-1,) + (1,) * (len(w) - 1))
        nodes = [N('Mul', ['w', 's'], ['v']), N('ConvTranspose', ['x', 'v', 'b'], ['c'], **attributes),
                 N('Relu', ['c'], ['y'])]
        outputs = w[1] * attributes.get('group', 1)
        case('computed weights, transposed, ' + name, nodes, [{'x': rng.standard_normal(x).astype(f32), 's': each}],
             constants=[const('w', weights), const('b', rng.standard_normal(outputs).astype(f32))])


def constants_by_themselves():
    """Convolutions and products whose operands are one constant: what is packed must stay as it is, too."""
    rng = np.random.default_rng(6)
    for name, operator, shape in (('2-D', 'Conv', (8, 8, 3, 3)), ('1x1', 'Conv', (16, 16, 1, 1)), ('1-D', 'Conv', (24, 24, 5)),
                                  ('product', 'MatMul', (24, 24)), ('batched', 'MatMul', (3, 16, 16))):
        case('a constant by itself, ' + name, [N(operator, ['w', 'w'], ['c']), N('Add', ['c', 'x'], ['y'])],
             [{'x': np.ones(1, f32)}], constants=[const('w', rng.standard_normal(shape).astype(f32))])


def correlations():
    """Convolutions of one input with another, as trackers have them: few outputs per group, between layers and alone."""
    rng = np.random.default_rng(9)

    def real(*dims):
        return rng.standard_normal(dims).astype(f32) / 4

    def fixed(name, nodes, x, w, constants=()):
        proto = graphs.model_of(nodes, [graphs.port('x', F, ['n', x.shape[1], *['s%d' % i for i in range(x.ndim - 2)]]),
                                        graphs.port('w', F, w.shape)], [graphs.port('y', F, None)], constants, opset=21)
        CASES.append((name, proto, [{'x': x, 'w': w}, {'x': np.concatenate([x, x[::-1]], axis=2), 'w': w}], None, LEVELS))

    for name, x, w, attributes in (('one output of a group', (1, 32, 21, 19), (2, 16, 6, 6), {'group': 2}),
                                   ('depthwise', (1, 24, 17, 18), (24, 1, 5, 5), {'group': 24}),
                                   ('of one image', (2, 16, 20, 23), (1, 16, 4, 3), {'pads': [2, 1, 1, 1]}),
                                   ('in steps', (1, 8, 33, 40), (4, 8, 5, 3), {'strides': [2, 3], 'dilations': [1, 2]}),
                                   ('of rows', (1, 16, 90), (4, 8, 7), {'group': 2}),
                                   ('of volumes', (1, 8, 6, 7, 20), (4, 2, 3, 2, 4), {'group': 4}),
                                   ('of short rows', (1, 8, 9, 9), (2, 8, 6, 6), {})):
        fixed('correlation ' + name, [N('Conv', ['x', 'w'], ['y'], **attributes)], real(*x), real(*w))
        layers = [N('Conv', ['x', 'v'], ['a']), N('Relu', ['a'], ['b']),
                  N('Conv', ['b', 'w'], ['c'], **attributes), N('Conv', ['c', 'u'], ['y'])]
        ones_of = (1,) * (len(x) - 2)
        fixed('correlation between layers, ' + name, layers, real(*x), real(*w),
              [const('v', real(x[1], x[1], *ones_of)), const('u', real(12, w[0], *ones_of))])


def deformed():
    """Groups, groups of offsets, and those that cut each other's; with a mask and a bias, or without."""
    rng = np.random.default_rng(10)
    for groups, offset_groups, masked in ((1, 1, True), (1, 2, False), (2, 1, True), (6, 1, False), (2, 4, True), (2, 3, True),
                                          (3, 2, False)):
        feeds = []
        for n, rows, columns in ((2, 9, 8), (1, 7, 12)):
            size = (n, offset_groups * 18, (rows + 1) // 2, columns)
            feeds.append({'x': rng.standard_normal((n, 12, rows, columns)).astype(f32),
                          'o': 2 * rng.standard_normal(size).astype(f32)})
            if masked:
                feeds[-1]['m'] = rng.random((n, offset_groups * 9, *size[2:])).astype(f32)
        weights = [const('w', rng.standard_normal((18, 12 // groups, 3, 3)).astype(f32)),
                   const('b', rng.standard_normal(18).astype(f32))]
        given = ['x', 'w', 'o'] + (['b', 'm'] if masked else [])
        nodes = [N('DeformConv', given, ['y'], group=groups, offset_group=offset_groups, pads=[1, 1, 1, 1], strides=[2, 1])]
        case('deformed, %d groups, %d of offsets' % (groups, offset_groups), nodes, feeds, constants=weights)
        for port_of in CASES[-1][1].graph.input:
            port_of.type.tensor_type.shape.dim[1].dim_value = feeds[0][port_of.name].shape[1]


def regions_without_area():
    """With half pixels they have no samples, unless the model says how many, and without at least a pixel's."""
    regions = np.array([[1, 1, 1, 1], [1, 1, 3, 1], [3, 3, 1, 1], [1, 1, 1, 4], [0.5, 0.5, 4, 5]], f32)
    feed = {'x': np.random.RandomState(6).rand(2, 3, 6, 7).astype(f32), 'r': regions}
    for coordinates in ('half_pixel', 'output_half_pixel'):
        for mode, ratio in (('avg', 0), ('avg', 2), ('max', 0), ('max', 1)):
            if (coordinates, mode, ratio) == ('output_half_pixel', 'max', 0):
                continue  # ONNX Runtime's own: it weighs the corners of a sample before it takes the greatest
            node = N('RoiAlign', ['x', 'r', 'b'], ['y'], mode=mode, sampling_ratio=ratio, output_height=2, output_width=2,
                     coordinate_transformation_mode=coordinates)
            case('regions without area %s %s %d' % (coordinates, mode, ratio), [node], [feed],
                 constants=[const('b', np.array([0, 1, 0, 1, 1]))], opset=16)


def quantised_zeros():
    """The scale of nothing but zeros is 1, and nothing that divides by it is NaN."""
    nodes = [N('DynamicQuantizeLinear', ['x'], ['q', 's', 'z']), N('MatMulInteger', ['q', 'w', 'z'], ['p']),
             N('Cast', ['p'], ['f'], to=F), N('Div', ['f', 's'], ['y'])]
    weights = [const('w', np.arange(12, dtype=np.uint8).reshape(3, 4))]
    case('quantised zeros', nodes, [{'x': np.zeros((2, 3), f32)}, {'x': np.full((2, 3), -0.0, f32)}],
         {'q': TensorProto.UINT8, 's': F, 'z': TensorProto.UINT8, 'y': F}, weights)


def sorted_weights():
    """Constants that the model sorts, adds up and picks from, some with equal elements, too large to fold while building."""
    w = np.random.default_rng(6).integers(-300, 300, (60, 100)).astype(f32) / 8
    for axis in 0, 1:
        for largest, exclusive, reverse in (1, 0, 0), (0, 1, 1):
            n = w.shape[axis]
            nodes = [N('TopK', ['w', 'n'], ['v', 'i'], axis=axis, largest=largest),
                     N('CumSum', ['v', 'axis'], ['s'], exclusive=exclusive, reverse=reverse),
                     N('GatherElements', ['s', 'i'], ['e'], axis=axis), N('Mul', ['e', 'x'], ['y'])]
            case('sorted weights, %d %d' % (axis, largest), nodes, [{'x': np.array([2, 3], f32).reshape(2, 1, 1)}],
                 constants=[const('w', w), const('n', np.array([n])), const('axis', np.array(axis))])


def long_rows():
    """Normalised rows so long that their statistics are made part by part, of data far from zero: channels that lie together
    (behind a convolution) and rows that do, sizes known and not, f32 and sizes that no number of parts divides."""
    rng = np.random.default_rng(6)
    for name, channels, dims in (('3-D', 8, (16, 33, 40)), ('2-D', 16, (144, 127)), ('few', 3, (9, 8, 300)),
                                 ('uneven', 8, (131, 139))):
        weights = rng.standard_normal((channels, 2) + (3,) * len(dims)).astype(f32)
        nodes = [N('Conv', ['x', 'w', 'b'], ['c'], pads=[1] * 2 * len(dims)),
                 N('InstanceNormalization', ['c', 's', 'b'], ['n']), N('Relu', ['n'], ['y'])]
        each = [const('w', weights), const('s', rng.random(channels).astype(f32)),
                const('b', (20 * rng.standard_normal(channels)).astype(f32))]
        x = rng.standard_normal((2, 2) + dims).astype(f32)
        case('long rows, ' + name, nodes, [{'x': x}], constants=each)
        case('long rows, known, ' + name, [N('Reshape', ['x', 'dims'], ['r'])] + [N(nodes[0].op_type, ['r', 'w', 'b'], ['c'],
                                                                                    pads=[1] * 2 * len(dims))] + nodes[1:],
             [{'x': x}], constants=each + [const('dims', np.array(x.shape))])
    nodes = [N('Conv', ['x', 'w'], ['c']), N('Reshape', ['c', 'merged'], ['m']),
             N('InstanceNormalization', ['m', 's', 'b'], ['n']), N('Shape', ['c'], ['dims']), N('Reshape', ['n', 'dims'], ['d']),
             N('Conv', ['d', 'w'], ['y'])]
    constants = [const('w', rng.standard_normal((8, 8, 1, 1)).astype(f32)), const('merged', np.array([0, 8, -1])),
                 const('s', rng.random(8).astype(f32)), const('b', (20 * rng.standard_normal(8)).astype(f32))]
    sizes = ((2, 131, 139), (1, 64, 64), (3, 5, 7), (1, 1, 2049))
    case('long rows, merged', nodes, [{'x': rng.standard_normal((n, 8, high, wide)).astype(f32)} for n, high, wide in sizes],
         constants=constants)
    for channels in (16, 128):
        weights = [const('w', rng.standard_normal((channels, 2, 1)).astype(f32)),
                   const('v', rng.standard_normal((3, channels, 1)).astype(f32)),
                   const('b', (3 * rng.standard_normal(channels)).astype(f32))]
        for length in (3, 19000 // channels):
            nodes = [N('Conv', ['x', 'w', 'b'], ['c']), N('MeanVarianceNormalization', ['c'], ['n'], axes=[1, 2]),
                     N('Conv', ['n', 'v'], ['y'])]
            x = rng.standard_normal((2, 2, length)).astype(f32)
            case('long rows, %d channels in each, %d' % (channels, length), nodes, [{'x': x}], constants=weights)
            case('long rows, %d channels in each, known, %d' % (channels, length),
                 [N('Reshape', ['x', 'dims'], ['r']), N('Conv', ['r', 'w', 'b'], ['c'])] + nodes[1:], [{'x': x}],
                 constants=weights + [const('dims', np.array(x.shape))])
    for length in (1 << 16, 40503):
        nodes = [N('Reshape', ['x', 'dims'], ['r']), N('InstanceNormalization', ['r', 's', 'b'], ['y'])]
        case('long rows of %d' % length, nodes, [{'x': rng.standard_normal((2, length)).astype(f32)}],
             constants=[const('dims', np.array([1, 2, length])), const('s', f32([2, 3])), const('b', f32([0, 1]))])


def tokens():
    """Pixels behind a convolution, whose channels lie together, merged into tokens, split into heads and windows, and
    back."""
    rng = np.random.default_rng(8)
    constants = [const('w', (rng.standard_normal((16, 3, 3, 3)) / 8).astype(f32)), const('u', rng.standard_normal((4, 16, 1, 1)).astype(f32)),
                 const('s', rng.standard_normal(16).astype(f32))]
    ways = {'tokens': [([0, 16, -1], [0, 2, 1])], 'tokens one by one': [([0, 16, 1, -1], [0, 3, 2, 1])],
            'heads': [([0, 4, 4, -1], [0, 1, 3, 2])], 'half the channels': [([0, 2, 8, -1], [0, 3, 1, 2])],
            'rows': [([0, -1, 10], [0, 2, 1])], 'columns split': [([0, 16, -1, 2, 5], [0, 2, 4, 3, 1])],
            'all': [([0, -1], [0, 1])], 'twice': [([0, 4, 4, -1], [0, 3, 1, 2]), ([0, -1, 16], [0, 2, 1])]}
    for name, steps in ways.items():
        for kind, first in (('', []), (', known', [N('Reshape', ['x', 'known'], ['k'])])):
            known = [const('known', np.array([2, 3, 6, 10]))]
            nodes = first + [N('Conv', ['k' if first else 'x', 'w'], ['c'], pads=[1] * 4), N('Relu', ['c'], ['t'])]
            at = 't'
            for i, (dims, perm) in enumerate(steps):
                known.append(const('dims%d' % i, np.array(dims)))
                nodes += [N('Reshape', [at, 'dims%d' % i], ['r%d' % i]), N('Transpose', ['r%d' % i], ['t%d' % i], perm=perm)]
                at = 't%d' % i
            back = [N('Shape', ['c'], ['size']), N('Reshape', [at, 'size'], ['b']), N('Conv', ['b', 'u'], ['z'])]
            feeds = [{'x': rng.standard_normal((n, 3, 6, 10)).astype(f32)} for n in ((2,) if first else (1, 2))]
            case('pixels as ' + name + kind, nodes + [N('Softmax', [at], ['y'], axis=1)] + back, feeds, {'y': F, 'z': F},
                 constants=constants + known)


def transforms():
    """Fourier transforms so long that they are done by factors of their length, and one of a prime length."""
    rng = np.random.default_rng(7)
    for length, parts, attributes in ((512, 1, {'onesided': 1}), (600, 1, {}), (1024, 2, {}), (768, 2, {'inverse': 1}),
                                      (1000, 1, {'onesided': 1}), (2048, 1, {'onesided': 1}), (1021, 1, {'onesided': 1})):
        nodes = [N('Reshape', ['x', 'dims'], ['r']), N('DFT', ['r'], ['y'], axis=1, **attributes)]
        exact = [N('Reshape', ['x', 'dims'], ['r']), N('Cast', ['r'], ['d'], to=TensorProto.DOUBLE),
                 N('DFT', ['d'], ['e'], axis=1, **attributes), N('Cast', ['e'], ['y'], to=F)]
        case('transform of %d, %d %s' % (length, parts, ' '.join(attributes)), nodes,
             [{'x': rng.standard_normal((3, length, parts)).astype(f32)}], opset=19, oracle=exact,
             constants=[const('dims', np.array([3, length, parts]))])


def names():
    odd, long = 'a "b"\n\'c\'/\\', 'x' * 150
    case('odd names', [N('Relu', [odd], ['\u00fc\u2603 %s %n']), N('Add', ['\u00fc\u2603 %s %n', long], ['int'])],
         [{odd: np.array([-1, 2], f32), long: np.array([3], f32)}], {'int': F, '\u00fc\u2603 %s %n': F})
    case('an input, a constant and a copy as outputs', [N('Identity', ['x'], ['y'])], [{'x': np.array([-1, 1], f32)}],
         {'x': F, 'k': F, 'y': F}, [const('k', f32([3, 4]))])
    case('two hundred inputs', [N('Concat', ['i%d' % i for i in range(200)], ['y'], axis=0)],
         [{'i%d' % i: np.full(3, i) for i in range(200)}], {'y': I})


def other_ways():
    """What is computed in another form than it is written in, or nowhere but in place."""
    rng = np.random.default_rng(5)
    x, past = rng.standard_normal((2, 74, 24)).astype(f32), rng.standard_normal((2, 3, 5, 8)).astype(f32)
    w, bias = rng.standard_normal((24, 1)).astype(f32), rng.standard_normal(1).astype(f32)
    case('one column', [N('Reshape', ['x', 'rows'], ['r']), N('MatMul', ['r', 'w'], ['t']), N('Add', ['t', 'bias'], ['s']),
                        N('Relu', ['s'], ['y'])], [{'x': x}, {'x': x[:1, :9]}],
         constants=[const('rows', [-1, 24]), const('w', w), const('bias', bias)])
    case('columns of batches', [N('Reshape', ['a', 'wide'], ['r']), N('Reshape', ['b', 'tall'], ['c']), N('MatMul', ['r', 'c'], ['y'])],
         [{'a': x, 'b': x[:, 0]}], constants=[const('wide', [2, -1, 24]), const('tall', [2, 24, 1])])
    for axis in (0, 1):
        case('joined behind views %d' % axis, [
            N('Exp', ['a'], ['e']), N('Transpose', ['e'], ['t'], perm=[0, 2, 1, 3]), N('Unsqueeze', ['t', 'front'], ['u']),
            N('Sin', ['b'], ['s']), N('Unsqueeze', ['s', 'front'], ['v']), N('Concat', ['u', 'v'], ['y'], axis=axis),
            N('Neg', ['e'], ['z']), N('Identity', ['t'], ['same'])],
            [{'a': past.transpose(0, 2, 1, 3).copy(), 'b': past}], {'y': F, 'z': F, 'same': F}, [const('front', [0])])
    places = [const('first', 0), const('last', 2), const('odd', [1, 3]), const('back', [2, 0]), const('dims', [2, 3, 5, 8])]
    case('known places', [N('Reshape', ['x', 'dims'], ['r'])] + [
        N('Gather', ['r', name], [out], axis=axis)
        for name, out, axis in (('first', 'p', 0), ('last', 'q', 1), ('odd', 's', 2), ('back', 'y', 2))],
        [{'x': past}], {'p': F, 'q': F, 's': F, 'y': F}, places)
    for mode, way in (('nearest', 'asymmetric'), ('nearest', 'half_pixel'), ('linear', 'half_pixel'), ('linear', 'align_corners')):
        case('picture %s %s' % (mode, way), [
            N('Reshape', ['x', 'dims'], ['r']), N('Resize', ['r', '', 'scales'], ['t'], mode=mode, nearest_mode='floor' if
              way == 'asymmetric' else 'round_prefer_floor', coordinate_transformation_mode=way), N('Relu', ['t'], ['y'])],
            [{'x': past}], constants=[const('dims', [1, 10, 4, 6]), const('scales', np.array([1, 1, 3, 2], f32))])


def shapes_that_do_not_fit():
    refused('add', "'#0, Add': sizes 2 and 3 do not broadcast", [N('Add', ['a', 'b'], ['y'])], {'a': ones(2), 'b': ones(3)},
            {'a': ones(1), 'b': ones(3)})
    refused('product', 'sizes 3 and 4 should be equal', [N('MatMul', ['a', 'b'], ['y'], 'dense')], {'a': ones(2, 3), 'b': ones(4, 2)},
            {'a': ones(2, 3), 'b': ones(3, 2)})
    refused('concat', 'sizes 3 and 4 should be equal', [N('Concat', ['a', 'b'], ['y'], axis=0)], {'a': ones(2, 3), 'b': ones(2, 4)},
            {'a': ones(2, 3), 'b': ones(1, 3)})
    refused('reshape', 'sizes 6 and 8 should be equal', [N('Reshape', ['a', 's'], ['y'])], {'a': ones(6), 's': np.array([4, 2])},
            {'a': ones(6), 's': np.array([3, 2])})
    refused('top-k', '5 of 3 elements are asked for', [N('TopK', ['a', 'k'], ['y', 'i'])], {'a': ones(2, 3), 'k': np.array([5])},
            {'a': ones(2, 3), 'k': np.array([3])})
    for look_up in ('Gather', 'GatherElements'):
        refused('%s of nothing' % look_up, '1 of 0 elements are asked for', [N(look_up, ['a', 'i'], ['y'], axis=0)],
                {'a': ones(0, 3), 'i': np.zeros((1, 3), np.int64)}, {'a': ones(0, 3), 'i': np.zeros((0, 3), np.int64)})
    zero = lambda *dims: np.zeros(dims, np.int64)
    into = [N('ScatterElements', ['a', 'i', 'u'], ['y'], axis=1)]
    fit = {'a': ones(2, 3), 'i': zero(1, 4), 'u': ones(1, 4)}
    refused('more rows of indices than of data', '3 of 2 elements are asked for', [N('GatherElements', ['a', 'i'], ['y'], axis=1)],
            {'a': ones(2, 3), 'i': zero(3, 4)}, {'a': ones(2, 3), 'i': zero(1, 4)})
    refused('more rows of updates than of data', '3 of 2 elements are asked for', into, {**fit, 'i': zero(3, 4), 'u': ones(3, 4)}, fit)
    refused('fewer updates than indices', 'sizes 4 and 2 should be equal', into, {**fit, 'u': ones(1, 2)}, fit)
    refused('updates of nothing', '1 of 0 elements are asked for', into, {**fit, 'a': ones(2, 0)},
            {'a': ones(2, 0), 'i': zero(1, 0), 'u': ones(1, 0)})
    tuples = [N('Constant', [], ['last'], value_ints=[2]), N('Unsqueeze', ['i', 'last'], ['t']),
              N('GatherND', ['a', 't'], ['y'], batch_dims=1)]
    fit = {'a': ones(2, 3, 4), 'i': zero(2, 5)}
    refused('other batch of tuples', 'sizes 3 and 2 should be equal', tuples, {**fit, 'i': zero(3, 5)}, fit)
    refused('tuples of nothing', '1 of 0 elements are asked for', tuples, {**fit, 'a': ones(2, 0, 4)},
            {'a': ones(2, 0, 4), 'i': zero(2, 0)})
    refused('places behind the last', '4 of 3 elements are asked for', [
        N('RotaryEmbedding', ['x', 'p', 'c', 's'], ['y'], domain='com.microsoft')],
            {'x': ones(1, 4, 16), 'p': np.array([0]), 'c': ones(3, 8), 's': ones(3, 8)},
            {'x': ones(1, 3, 16), 'p': np.array([0]), 'c': ones(3, 8), 's': ones(3, 8)})
    token = {n: ones(2, 1, 12) for n in 'qkv'}
    for used in (8, -1):
        refused('%d tokens of a cache for 8' % used, '9 of 8 elements are' if used > 0 else '0 of -1 elements are', [
            N('DecoderMaskedMultiHeadAttention', ['q', 'k', 'v', '', '', 'pk', 'pv', 'n'], ['y', 'nk', 'nv'], domain='com.microsoft',
              num_heads=3, past_present_share_buffer=1, scale=0.5)],
                {**token, 'pk': ones(2, 3, 8, 4), 'pv': ones(2, 3, 8, 4), 'n': np.int32([used])},
                {**token, 'pk': ones(2, 3, 8, 4), 'pv': ones(2, 3, 8, 4), 'n': np.int32([7])})
    cell = [N('Constant', [], ['w'], value=const('w', ones(1, 12, 4))), N('Constant', [], ['r'], value=const('r', ones(1, 12, 3))),
            N('LSTM', ['x', 'w', 'r', 'b', 'l', 'h', 'c', 'p'], ['y'], hidden_size=3)]
    fits_cell = {'x': ones(2, 5, 4), 'b': ones(1, 24), 'l': np.full(5, 2, np.int32), 'h': ones(1, 5, 3), 'c': ones(1, 5, 3),
                 'p': ones(1, 9)}
    for what, other, said in (('biases', {'b': ones(1, 12)}, '24 of 12 elements are asked for'),
                              ('lengths', {'l': np.full(3, 2, np.int32)}, 'sizes 3 and 5 should be equal'),
                              ('a state', {'h': ones(1, 1, 3)}, 'sizes 1 and 5 should be equal'),
                              ('cells', {'c': ones(1, 5, 2)}, 'sizes 2 and 3 should be equal'),
                              ('peepholes', {'p': ones(1, 6)}, 'sizes 6 and 9 should be equal')):
        refused('%s of another LSTM' % what, said, cell, {**fits_cell, **other}, fits_cell)
    refused('a grid for another batch', 'sizes 1 and 5 should be equal', [N('GridSample', ['x', 'g'], ['y'])],
            {'x': ones(5, 2, 3, 3), 'g': ones(1, 4, 4, 2)}, {'x': ones(5, 2, 3, 3), 'g': ones(5, 4, 4, 2)})
    heads = {'q': ones(2, 4, 8), 'k': ones(2, 6, 8), 'v': ones(2, 6, 8), 'm': ones(4, 6)}
    scores = [N('Attention', ['q', 'k', 'v', 'm'], ['y'], scale=0.5, q_num_heads=1, kv_num_heads=1)]
    refused('a mask of other rows', 'sizes 2 and 4 do not broadcast', scores, {**heads, 'm': ones(2, 6)}, heads, 23)
    refused('keys of another batch', 'sizes 1 and 2 should be equal', scores,
            {**heads, 'k': ones(1, 6, 8), 'v': ones(1, 6, 8)}, heads, 23)
    best = [N('NonMaxSuppression', ['b', 's', 'k'], ['z']), N('Cast', ['z'], ['y'], to=F)]
    fits_boxes = {'b': ones(1, 3, 4), 's': ones(1, 1, 3), 'k': np.array([2])}
    refused('boxes', 'sizes 4 and 3 should be equal', best, {**fits_boxes, 's': ones(1, 1, 4)}, fits_boxes)
    scatter = [N('ScatterND', ['a', 'i', 'u'], ['y'])]
    fits = {'a': ones(3, 4), 'i': np.array([[2, 1], [0, 3]]), 'u': np.array([5, 6], f32)}
    refused('coordinates', 'sizes 3 and 2 should be equal', scatter, {**fits, 'i': np.zeros((2, 3), np.int64)}, fits)
    product = body([N('MatMul', ['a', 'b'], ['t'], 'dense')], [], [('t', F, None)])
    same = body([N('Relu', ['a'], ['e'])], [], [('e', F, None)])
    yes, no = np.array(True), np.array(False)
    branch = [N('If', ['c'], ['y'], then_branch=product, else_branch=same)]
    refused('product in a branch', "'dense': sizes 3 and 4 should be equal", branch, {'a': ones(2, 3), 'b': ones(4, 2), 'c': yes},
            {'a': ones(2, 3), 'b': ones(3, 2), 'c': yes})
    case('a branch not taken in which sizes do not fit', branch, [{'a': ones(2, 3), 'b': ones(4, 2), 'c': no}])
    twice = body([N('Concat', ['a', 'a'], ['t'], axis=0)], [], [('t', F, None)])
    refused('sum behind branches', 'sizes 4 and 2 do not broadcast',
            [N('If', ['c'], ['more'], then_branch=twice, else_branch=same), N('Add', ['more', 'b'], ['y'])],
            {'a': ones(2, 3), 'b': ones(2, 3), 'c': yes}, {'a': ones(2, 3), 'b': ones(2, 3), 'c': no})
    grow = body([N('Identity', ['c'], ['d']), N('Concat', ['v', 'a'], ['w'], axis=0), N('Add', ['w', 'b'], ['sum'])],
                [('i', I, []), ('c', B, []), ('v', F, None), ('unread', F, None)],
                [('d', B, []), ('w', F, None), ('sum', F, None)])
    refused('sum in the second turn', 'sizes 6 and 4 do not broadcast', [N('Loop', ['m', 'c', 'a', 'b'], ['x', 'y'], body=grow)],
            {'m': np.array(2), 'c': yes, 'a': ones(2), 'b': ones(4)}, {'m': np.array(1), 'c': yes, 'a': ones(2), 'b': ones(4)})


def check_case(args, folder, proto, feeds, oracle, levels):
    runs = [(1, feed) for feed in feeds]
    return next(filter(None, (network.beside_ort(args, folder, proto, runs, 1e-6, level, oracle) for level in levels)), None)


def check_refused(args, folder, message, proto, feed, good):
    """The library that beside_ort leaves refuses `feed`, and so does the one of -O0."""
    why = network.beside_ort(args, folder, proto, [(1, good)], 1e-6)
    path, library = os.path.join(folder, 'm.onnx'), os.path.join(folder, 'm.so')
    for level in ('-O3', '-O0'):
        why = why or (network.compile_model(args, path, library, level) if level == '-O0' else None)
        if why:
            return why
        code, err = network.run_feeds(args, folder, library, feed)
        if code != 1 or message not in err:
            return '%s: exit code %d, %s' % (level, code, err)
    return None


def six_bit_floats(args, folder):
    """Of both kinds, which ONNX Runtime does not have: cast, quantised, stored in a model and in files, beside the standard's
    reference. Files of ONNX pack four of them in three bytes."""
    import ml_dtypes
    import onnx.reference
    x = np.append(8 * np.random.RandomState(0).standard_normal(61), [0, -0.0, 100, -100, 0.06, 0.03, 7.25, 27, nan, inf, -inf])
    x, codes = x.astype(f32), np.arange(13).astype(np.uint8) * 5 % 64
    for kind, dtype in ((TensorProto.FLOAT6E2M3, ml_dtypes.float6_e2m3fn), (TensorProto.FLOAT6E3M2, ml_dtypes.float6_e3m2fn)):
        held = np.linspace(-7, 7, 7).astype(dtype)
        constants = [const('w', held), const('z', np.zeros((), dtype)), const('s', f32(0.7)),
                     h.make_tensor('listed', kind, [7], np.asarray(held, f32))]
        nodes = [N('Cast', ['x'], ['c'], to=kind), N('Cast', ['c'], ['y'], to=F), N('QuantizeLinear', ['x', 's', 'z'], ['q']),
                 N('DequantizeLinear', ['q', 's', 'z'], ['d']), N('Cast', ['w'], ['v'], to=F), N('Cast', ['listed'], ['l'], to=F),
                 N('Cast', ['i'], ['k'], to=TensorProto.FLOAT16)]
        types = {'c': kind, 'y': F, 'q': kind, 'd': F, 'v': F, 'l': F, 'k': TensorProto.FLOAT16}
        proto = h.make_model(h.make_graph(
            nodes, 'six', [h.make_tensor_value_info('x', F, ['n']), h.make_tensor_value_info('i', kind, ['m'])],
            [h.make_tensor_value_info(n, t, None) for n, t in types.items()], constants),
            opset_imports=[h.make_opsetid('', 28)], ir_version=14)
        path, library = os.path.join(folder, 'm.onnx'), os.path.join(folder, 'm.so')
        onnx.save(proto, path)
        want = onnx.reference.ReferenceEvaluator(proto).run(None, {'x': x, 'i': codes.view(dtype)})
        for name, value in (('x', x), ('i', codes.view(dtype))):
            with open(os.path.join(folder, name + '.pb'), 'wb') as f:
                f.write(numpy_helper.from_array(value, name).SerializeToString())
        np.save(os.path.join(folder, 'i.npy'), codes)
        for level in LEVELS:
            why = network.compile_model(args, path, library, level, ['--verify'])
            if why:
                return why
            for form in ('pb', 'npy'):
                code, _, err = lib.run([args.cyto_run, library, '--input', 'x=%s/x.pb' % folder, '--input', 'i=%s/i.%s' % (folder, form),
                                        '--output-dir', folder, '--output-format', form])
                if code:
                    return lib.reason(err, code)
                for k, name in enumerate(types):
                    file = os.path.join(folder, 'out_%d_%s.%s' % (k, name, form))
                    got = np.load(file) if form == 'npy' else numpy_helper.to_array(onnx.load_tensor(file))
                    got = got.view(dtype) if types[name] == kind and form == 'npy' else got
                    if not np.array_equal(got.astype(f32), want[k].astype(f32), equal_nan=True):
                        return '%s of %s, %s: %s, expected %s' % (name, dtype.__name__, level, got, want[k])
    return None


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    folder = os.path.join(args.build, 'edges')
    for group in (empty_tensors, known_to_be_empty, shapes, broadcasts, numbers, windows, borders, backwards, beyond_the_end, slices_beyond, places, crossings,
                  computed_weights, constants_by_themselves, correlations, deformed, regions_without_area, quantised_zeros, sorted_weights, pixels_that_are_no_numbers, long_rows, tokens, transforms, control_flow, counting_loops, shrunk, cubes,
                  sequences_from_loops, names, other_ways, shapes_that_do_not_fit):
        group()
    tests = [(name, lambda rest=rest: check_case(args, folder, *rest)) for name, *rest in CASES]
    tests += [('refused ' + name, lambda rest=rest: check_refused(args, folder, *rest)) for name, *rest in REFUSED]
    tests.append(('six-bit floats', lambda: six_bit_floats(args, folder)))
    for name, test in tests:
        if args.wanted(name):
            os.makedirs(folder, exist_ok=True)
            suite.result(name, test())
            shutil.rmtree(folder)
    suite.done()


if __name__ == '__main__':
    main()
