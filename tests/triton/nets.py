# SPDX-License-Identifier: Apache-2.0
"""Small networks, as bytes of ONNX files, whose results NumPy knows."""
import numpy as np
import onnx
from onnx import TensorProto as T, helper, numpy_helper

SEED = 5


def weights(*shape):
    return np.random.RandomState(SEED).standard_normal(shape).astype(np.float32)


def save(nodes, inputs, outputs, constants=(), opset=17):
    """inputs, outputs: (name, shape[, type]); constants: {name: array}."""
    def info(port):
        return helper.make_tensor_value_info(port[0], port[2] if len(port) > 2 else T.FLOAT, port[1])
    graph = helper.make_graph(nodes, 'net', [info(p) for p in inputs], [info(p) for p in outputs],
                              [numpy_helper.from_array(a, n) for n, a in dict(constants).items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid('', opset)], ir_version=8).SerializeToString()


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


W = weights(16, 8)


def mlp():
    """y[batch, 8] = x[batch, 16] W"""
    return save([node('MatMul', 'x W', 'y')], [('x', ['batch', 16])], [('y', ['batch', 8])], {'W': W})


def fixed():
    return save([node('MatMul', 'x W', 'y')], [('x', [1, 16])], [('y', [1, 8])], {'W': W})


def nodes_of_graph():
    """The first dim is open, and no batch: every row depends on all."""
    return save([node('ReduceSum', 'x', 's', keepdims=1), node('Add', 'x s', 'y')], [('x', ['nodes', 4])], [('y', ['nodes', 4])])


def lengths():
    """Two open dims: sums over the second."""
    return save([node('ReduceSum', 'x axes', 'y', keepdims=0)], [('x', ['batch', 'length'])], [('y', ['batch'])],
                {'axes': np.array([1], np.int64)})


def picky():
    """Gathers by an index, which may be out of range."""
    return save([node('Gather', 'table i', 'y', axis=0)], [('i', ['batch', 1], T.INT64)], [('y', ['batch', 1, 8])], {'table': W})


def nonzero():
    """An output whose shape depends on data."""
    return save([node('NonZero', 'x', 'y')], [('x', ['batch', 4])], [('y', [2, 'n'], T.INT64)])


def recurrent():
    """A state of fixed size: h' = tanh(x + h/2); y = h' W. The first dim is the batch."""
    return save([node('Mul', 'h half', 'a'), node('Add', 'x a', 'b'), node('Tanh', 'b', 'h_out'), node('MatMul', 'h_out W', 'y')],
                [('x', ['batch', 16]), ('h', ['batch', 16])], [('y', ['batch', 8]), ('h_out', ['batch', 16])],
                {'half': np.array(0.5, np.float32), 'W': W})


def recurrent_step(x, h):
    h = np.tanh(x + h / 2)
    return h @ W, h


def cached():
    """A state that grows: all rows so far, and their sum."""
    return save([node('Concat', 'past_rows x', 'present_rows', axis=1), node('ReduceSum', 'present_rows axes', 'y', keepdims=0)],
                [('x', ['batch', 'sequence', 4]), ('past_rows', ['batch', 'past', 4])],
                [('y', ['batch', 4]), ('present_rows', ['batch', 'total', 4])], {'axes': np.array([1], np.int64)})


def controlled():
    """Counts the requests of a sequence: a state, and an input that tells its start."""
    return save([node('Sub', 'one start', 'keep'), node('Mul', 'count keep', 'c'), node('Add', 'c x', 'count_out'),
                 node('Identity', 'count_out', 'total')],
                [('x', ['batch', 1]), ('count', ['batch', 1]), ('start', ['batch', 1])], [('total', ['batch', 1]), ('count_out', ['batch', 1])],
                {'one': np.array(1, np.float32)})


def strings():
    return save([node('StringConcat', 'x end', 'y')], [('x', ['batch', 2], T.STRING)], [('y', ['batch', 2], T.STRING)],
                {'end': np.array(['!'], object)}, opset=20)


def wide(n=512, layers=8):
    """Some millions of weights."""
    nodes, constants = [], {}
    for k in range(layers):
        constants['w%d' % k] = weights(n, n) / np.float32(n ** 0.5)
        nodes.append(node('MatMul', '%s w%d' % ('x' if not k else 'h%d' % k, k), 'm%d' % (k + 1), name='layer%d' % k))
        nodes.append(node('Relu', 'm%d' % (k + 1), 'h%d' % (k + 1)))
    nodes.append(node('Identity', 'h%d' % layers, 'y'))
    return save(nodes, [('x', ['batch', n])], [('y', ['batch', n])], constants)


def check(data):
    onnx.checker.check_model(onnx.load_model_from_string(data))
