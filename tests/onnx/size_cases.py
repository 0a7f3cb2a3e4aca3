# SPDX-License-Identifier: Apache-2.0
"""What sizes.py runs: node tests' models and small networks with symbolic dims, and the sizes that these are given.

In:  folders of node tests.
Out: node_case() and networks(), the models; make_symbolic(), their open form; shapes_of() and resized(), their inputs.
"""
import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from size_tensors import CODES, DTYPES, Hollow, is_hollow

MOST = 1 << 16            # elements of an input
HUGE = [(1 << 31) + 3, 1 << 40]


# ---- models ----

def is_list(value):
    """Shapes, axes and the like: how many there are decides a rank."""
    return value.dtype.kind in 'iu' and value.ndim == 1 and value.size <= 8 and value.dtype.itemsize == 8


# Which axes (of input i, axis a of a tensor of rank r) are symbols: the first way that can be compiled is taken. Layers
# with weights want to know how many channels there are.
WAYS = [lambda i, a, r: True, lambda i, a, r: a < r - 1, lambda i, a, r: i == 0, lambda i, a, r: i == 0 and a < r - 1,
        lambda i, a, r: i == 0 and a != 1, lambda i, a, r: a == 0]


def free_axes(values, way):
    return [(i, a) for i, v in enumerate(values) if v is not None and not is_list(v) for a in range(v.ndim)
            if way(i, a, v.ndim)]


def make_symbolic(model, values, way):
    """Fresh symbols for the free axes, nothing declared about what follows."""
    graph = model.graph
    constant = {t.name for t in graph.initializer}
    inputs = [v for v in graph.input if v.name not in constant]
    free = set(free_axes(values, way))
    for i, (info, value) in enumerate(zip(inputs, values)):
        if value is None or is_list(value):
            continue
        del info.type.tensor_type.shape.dim[:]
        for axis in range(value.ndim):
            dim = info.type.tensor_type.shape.dim.add()
            if (i, axis) in free:
                dim.dim_param = 's%d_%d' % (i, axis)
            else:
                dim.dim_value = value.shape[axis]
    del graph.value_info[:]
    for info in graph.output:
        rank = len(info.type.tensor_type.shape.dim)
        if info.type.tensor_type.HasField('shape'):
            del info.type.tensor_type.shape.dim[:]
            for axis in range(rank):
                info.type.tensor_type.shape.dim.add().dim_param = 'o%s_%d' % (info.name, axis)
    return inputs


def node_case(row):
    """(model, values) of a node test, or None where it has other things than tensors of numbers."""
    name, folder, number, _, _, ins, outs = row
    if set(ins) - {'t'} or set(outs) - {'t'}:
        return None
    model = onnx.load(os.path.join(folder, 'model.onnx'))
    values = []
    for k in range(len(ins)):
        with open('%s/test_data_set_%s/input_%d.pb' % (folder, number, k), 'rb') as f:
            t = onnx.TensorProto.FromString(f.read())
        if t.data_type not in DTYPES:
            return None
        values.append(numpy_helper.to_array(t))
    if not values or any(v.type.tensor_type.elem_type not in DTYPES for v in model.graph.output):
        return None
    return model, values


def nodes_of(graph):
    """The nodes of a graph and of those within it."""
    for node in graph.node:
        yield node
        for a in node.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                yield from nodes_of(a.g)


def features(model):
    """What a model has: operators, their attributes, and the values of those that are strings."""
    found = set()
    for node in [*nodes_of(model.graph), *(node for f in model.functions for node in f.node)]:
        found.add((node.domain, node.op_type))
        for a in node.attribute:
            found.add((node.domain, node.op_type, a.name, a.s))
    return found


def network(name, nodes_, inputs, outputs, weights=()):
    graph = helper.make_graph(
        nodes_, name, [helper.make_tensor_value_info(k, CODES[v.dtype], v.shape) for k, v in inputs.items()],
        [helper.make_tensor_value_info(k, t, [None] * r) for k, (t, r) in outputs.items()],
        [numpy_helper.from_array(v, k) for k, v in weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 18)], ir_version=8)
    return model, list(inputs.values())


def networks():
    """{name: (model, values)} of what node tests do not have: several layers that read each other's sizes."""
    rng = np.random.default_rng(3)
    N, F, I = helper.make_node, TensorProto.FLOAT, TensorProto.INT64

    def real(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    unet = [N('Conv', ['x', 'w1'], ['a'], pads=[1, 1, 1, 1]), N('Relu', ['a'], ['b']),
            N('MaxPool', ['b'], ['c'], kernel_shape=[2, 2], strides=[2, 2]),
            N('Conv', ['c', 'w2'], ['d'], pads=[1, 1, 1, 1]), N('MaxPool', ['d'], ['e'], kernel_shape=[2, 2], strides=[2, 2]),
            N('Shape', ['c'], ['cs']), N('Slice', ['cs', 'two', 'four'], ['hw']), N('Shape', ['e'], ['es']),
            N('Slice', ['es', 'zero', 'two'], ['nc']), N('Concat', ['nc', 'hw'], ['size'], axis=0),
            N('Resize', ['e', '', '', 'size'], ['f'], mode='linear'), N('Concat', ['f', 'c'], ['g'], axis=1),
            N('ConvTranspose', ['g', 'w3'], ['y'], strides=[2, 2])]
    unet_weights = [('w1', real(8, 3, 3, 3)), ('w2', real(16, 8, 3, 3)), ('w3', real(24, 2, 2, 2)),
                    ('zero', np.array([0])), ('two', np.array([2])), ('four', np.array([4]))]
    head = [N('Gather', ['table', 'ids'], ['a']), N('Add', ['a', 'x'], ['b']),
            N('LayerNormalization', ['b', 'ones'], ['c']), N('MatMul', ['c', 'wq'], ['q']), N('MatMul', ['c', 'wk'], ['k']),
            N('Transpose', ['k'], ['kt'], perm=[0, 2, 1]), N('MatMul', ['q', 'kt'], ['s']), N('Softmax', ['s'], ['p']),
            N('MatMul', ['p', 'c'], ['o']), N('ReduceMean', ['o', 'axis'], ['y'], keepdims=0)]
    head_weights = [('table', real(11, 16)), ('ones', np.ones(16, np.float32)), ('wq', real(16, 16)), ('wk', real(16, 16)),
                    ('axis', np.array([1]))]
    rows = [N('LSTM', ['x', 'w', 'r'], ['h', 'last'], hidden_size=5), N('Squeeze', ['h', 'one'], ['s']),
            N('Pad', ['s', 'pads'], ['t'], mode='reflect'), N('TopK', ['t', 'k'], ['v', 'i'], axis=0),
            N('CumSum', ['v', 'axis'], ['y'])]
    rows_weights = [('w', real(1, 20, 4)), ('r', real(1, 20, 5)), ('one', np.array([1])), ('pads', np.array([2, 0, 0, 1, 0, 0])),
                    ('k', np.array([2])), ('axis', np.array(0))]
    return {
        'network_unet': network('unet', unet, {'x': real(1, 3, 12, 20)}, {'y': (F, 4)}, unet_weights),
        'network_attention': network('attention', head, {'ids': rng.integers(-11, 11, (2, 6)), 'x': real(2, 6, 16)},
                                     {'y': (F, 2)}, head_weights),
        'network_recurrent': network('recurrent', rows, {'x': real(7, 2, 4)}, {'y': (F, 3), 'i': (I, 3), 'last': (F, 3)},
                                     rows_weights),
    }


# ---- sizes ----

def shapes_of(values, way):
    """Lists of shapes, an input each, that the model is run with."""
    base = [None if v is None else list(v.shape) for v in values]
    free = free_axes(values, way)
    groups = {}
    for i, a in free:
        groups.setdefault(base[i][a], []).append((i, a))
    found = [base]

    def vary(axes, size, others=None):
        shapes = [None if s is None else list(s) for s in base]
        for i, a in free:
            if (i, a) in axes:
                shapes[i][a] = size
            elif others is not None:
                shapes[i][a] = others
        found.append(shapes)

    for axes in groups.values():
        for size in (0, 1, 2, 5, 17):
            vary(axes, size)
        vary(axes, HUGE[0], 0)
    for size in (0, 1, 2, 3):
        vary(free, size)
    for axis in free[:8]:
        for size in (0, 1, 2, 7):
            vary([axis], size)
        vary([axis], HUGE[1], 0)
    unique = []
    for shapes in found:
        fits = all(s is None or 0 in s or np.prod(s, dtype=object) <= MOST for s in shapes)
        if fits and shapes not in unique:
            unique.append(shapes)
    return unique


def resized(value, shape):
    if value is None or tuple(shape) == value.shape:
        return value
    if 0 in shape:
        return Hollow(shape, value.dtype) if is_hollow(shape, value.dtype) else np.zeros(shape, value.dtype)
    return np.resize(value, shape) if value.size else np.zeros(shape, value.dtype)
