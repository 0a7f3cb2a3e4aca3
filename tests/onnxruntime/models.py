# SPDX-License-Identifier: Apache-2.0
"""Small models of every kind that the plugin has to tell apart."""
import numpy as np
from onnx import TensorProto, helper

import graphs

F, I, B = np.float32, np.int64, np.bool_


def network():
    """f32[batch,3,16,16] to f32[batch,5]: convolution with weights that are not small, pooling, a product."""
    g = graphs.Graph(1)
    y = g.op('Conv', 'x', g.const(g.rng.standard_normal((32, 3, 3, 3)), F), auto_pad='SAME_UPPER')
    y = g.op('Relu', y)
    y = g.op('Flatten', g.op('GlobalAveragePool', y))
    g.op('Gemm', y, g.const(g.rng.standard_normal((32, 5)), F), g.const(g.rng.standard_normal(5), F), out='y')
    return g.model([graphs.port('x', F, ['batch', 3, 16, 16])], [graphs.port('y', F, ['batch', 5])])


def heavy(size=384):
    """Work enough for several threads."""
    g = graphs.Graph(2)
    y = 'x'
    for k in range(3):
        y = g.op('Tanh', g.op('MatMul', y, g.const(g.rng.standard_normal((size, size)) / size ** 0.5, F)), out='y' if k == 2 else None)
    return g.model([graphs.port('x', F, ['rows', size])], [graphs.port('y', F, ['rows', size])])


def recurrent():
    """Attributes of strings and floats."""
    g = graphs.Graph(3)
    w, r = (g.const(g.rng.standard_normal((1, 4, n)), F) for n in (3, 4))
    g.op('RNN', 'x', w, r, out='y', activations=['LeakyRelu'], activation_alpha=[0.25], hidden_size=4)
    return g.model([graphs.port('x', F, ['steps', 1, 3])], [graphs.port('y', F, ['steps', 1, 1, 4])], opset=14)


def filled():
    """An attribute that is a tensor, one that is a float, one that is a number; an output whose size depends on data."""
    g = graphs.Graph(4)
    ones = g.op('ConstantOfShape', g.op('Shape', 'x'), value=graphs.constant('', np.array([2], F)))
    g.op('NonZero', g.op('LeakyRelu', g.op('Concat', 'x', ones, axis=0), alpha=0.5), out='y')
    return g.model([graphs.port('x', F, ['n', 3])], [graphs.port('y', I, [2, 'm'])])


def branches():
    """Both branches read what is outside, one a constant; the condition is computed."""
    def branch(name, kind, other):
        node = helper.make_node(kind, ['x', other], [name])
        return helper.make_graph([node], name + '_graph', [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)])

    g = graphs.Graph(5)
    c = g.const(g.rng.standard_normal((1, 600)), F)
    total = g.op('ReduceSum', 'x', keepdims=0)
    condition = g.op('Greater', total, g.const(0, F))
    g.op('If', condition, out='y', then_branch=branch('a', 'Add', c), else_branch=branch('b', 'Mul', 'x'))
    return g.model([graphs.port('x', F, ['n', 600])], [graphs.port('y', F, ['n', 600])])


def loop():
    """A body with inputs and a constant of its own, and one of the graph around it."""
    body = helper.make_graph(
        [helper.make_node('Mul', ['s', 'half'], ['m']), helper.make_node('Add', ['m', 'x'], ['s_out']),
         helper.make_node('Identity', ['c'], ['c_out'])], 'body',
        [graphs.port('i', I, []), graphs.port('c', B, []), graphs.port('s', F, ['n', 3])],
        [graphs.port('c_out', B, []), graphs.port('s_out', F, ['n', 3]), graphs.port('m', F, ['n', 3])], [graphs.constant('half', np.full((1, 3), 0.5, F))])
    g = graphs.Graph(10)
    g.nodes.append(helper.make_node('Loop', [g.ints(3), '', 'x'], ['y', 'all'], 'loop', body=body))
    return g.model([graphs.port('x', F, ['n', 3])], [graphs.port('y', F, ['n', 3]), graphs.port('all', F, [3, 'n', 3])])


def with_strings(middle=True):
    """A product, words that ONNX Runtime keeps, another product: two groups around what is left, or beside it."""
    g = graphs.Graph(6)
    first = g.op('MatMul', 'x', g.const(g.rng.standard_normal((4, 4)), F))
    text = g.op('Cast', first if middle else 'x', to=TensorProto.STRING)
    back = g.op('Cast', text, to=TensorProto.FLOAT)
    second = g.op('MatMul', back, g.const(g.rng.standard_normal((4, 4)), F))
    g.op('Add', g.op('Relu', first), second, out='y')
    return g.model([graphs.port('x', F, ['n', 4])], [graphs.port('y', F, ['n', 4])])


def with_sequence():
    g = graphs.Graph(7)
    parts = g.op('SplitToSequence', g.op('Relu', 'x'), axis=0, keepdims=1)
    g.op('Neg', g.op('SequenceAt', parts, g.const(0, I)), out='y')
    return g.model([graphs.port('x', F, [2, 4])], [graphs.port('y', F, [1, 4])])


def with_default():
    """Weights that are a graph input with a value: whoever runs the model may give others."""
    g = graphs.Graph(11)
    w = g.const(g.rng.standard_normal((4, 4)), F)
    g.op('MatMul', 'x', w, out='y')
    return g.model([graphs.port('x', F, ['n', 4]), graphs.port(w, F, [4, 4])], [graphs.port('y', F, ['n', 4])])


def partly(loop=False):
    """Bodies with constants of their own, of which strings keep a part in ONNX Runtime."""
    def words(x, y, name):
        return [helper.make_node('Cast', [x], [name], to=TensorProto.STRING), helper.make_node('Cast', [name], [y], to=TensorProto.FLOAT)]

    def branch(name, kind):
        nodes = [helper.make_node(kind, ['x', name + '_c'], [name + '_t']), *words(name + '_t', name, name + '_s')]
        return helper.make_graph(nodes, name + '_graph', [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)],
                                 [graphs.constant(name + '_c', np.arange(4, dtype=F))])

    g = graphs.Graph(12)
    if loop:
        body = helper.make_graph(
            [helper.make_node('Mul', ['s', 'half'], ['m']), *words('m', 's_out', 'w'), helper.make_node('Identity', ['c'], ['c_out'])],
            'body', [graphs.port('i', I, []), graphs.port('c', B, []), graphs.port('s', F, ['n', 4])],
            [graphs.port('c_out', B, []), graphs.port('s_out', F, ['n', 4])], [graphs.constant('half', np.full(4, 0.5, F))])
        g.nodes.append(helper.make_node('Loop', [g.ints(3), '', 'x'], ['y'], 'loop', body=body))
    else:
        condition = g.op('Greater', g.op('ReduceSum', 'x', keepdims=0), g.const(0, F))
        g.op('If', condition, out='y', then_branch=branch('a', 'Add'), else_branch=branch('b', 'Mul'))
    return g.model([graphs.port('x', F, ['n', 4])], [graphs.port('y', F, ['n', 4])])


def two_inputs():
    """Both have the same symbol."""
    g = graphs.Graph(8)
    g.op('Sub', 'a', 'b', out='y')
    return g.model([graphs.port('a', F, ['n', 2]), graphs.port('b', F, ['n', 2])], [graphs.port('y', F, ['n', 2])])


def refused_by_compiler():
    """A node of an operator that there is, in a form that there is not. What is around it can be compiled."""
    g = graphs.Graph(9)
    y = g.op('Sigmoid', 'x')
    g.op('LinearRegressor', y, out='r', domain='ai.onnx.ml', coefficients=[0.25, 0.5], intercepts=[0.125], post_transform='PROBIT')
    g.op('Exp', y, out='y')
    return g.model([graphs.port('x', F, [3, 2])], [graphs.port('y', F, [3, 2]), graphs.port('r', F, [3, 1])], domains=(('ai.onnx.ml', 1),))


def all_kinds():
    """[(model, sizes)] that use every function of the interface, together."""
    return [(network(), {'batch': 3}), (heavy(), {'rows': 64}), (recurrent(), {'steps': 3}), (filled(), {'n': 2}), (branches(), {'n': 2}), (loop(), {'n': 2}),
            (with_strings(), {'n': 2}), (two_inputs(), {'n': 2}), (refused_by_compiler(), {})]
