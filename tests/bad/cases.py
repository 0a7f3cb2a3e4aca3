# SPDX-License-Identifier: Apache-2.0
"""The table of bad inputs, which graph_cases.py, value_cases.py and operator_cases.py fill: one function a case, made
on the fly, nothing binary is committed.

Each function gets an empty folder, writes model.onnx there (and what else it needs) and may return further arguments for
cytoc. The decorator has regular expressions that must all occur in what cytoc prints; the model's file name is always
expected in addition. run.py says what else is checked.
"""
import os

import numpy as np
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

MODEL_CASES = []  # (name, expressions, function)


def case(*expressions):
    def add(function):
        MODEL_CASES.append((function.__name__, expressions, function))
        return function
    return add


def port(name, dims=(2, 3), dtype=T.FLOAT):
    return h.make_tensor_value_info(name, dtype, list(dims))


def save(folder, nodes, inputs=None, outputs=None, initializers=(), opset=17, opsets=None, functions=(), change=None):
    graph = h.make_graph(nodes, 'g', inputs or [port('x')], outputs or [port('y')], list(initializers))
    model = h.make_model(graph, opset_imports=opsets or [h.make_opsetid('', opset)], functions=list(functions),
                         ir_version=8)
    if change:
        change(model)
    with open(os.path.join(folder, 'model.onnx'), 'wb') as f:
        f.write(model.SerializeToString())


def relu(name='r', i='x', o='y'):
    return h.make_node('Relu', [i], [o], name=name)


def good(folder):
    """A small correct model, for what is done to its bytes or around it."""
    w = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), 'w')
    save(folder, [h.make_node('MatMul', ['x', 'w'], ['m'], name='mm'), relu('r', 'm')],
         [port('x', ['batch', 3])], [port('y', ['batch', 4])], [w])


def weighty(folder, floats):
    """As good(), with so many weights."""
    w = numpy_helper.from_array(np.arange(floats, dtype=np.float32), 'w')
    save(folder, [h.make_node('Add', ['x', 'w'], ['y'], name='add')], [port('x', [floats])], [port('y', [floats])], [w])


def good_bytes(folder):
    good(folder)
    with open(os.path.join(folder, 'model.onnx'), 'rb') as f:
        return f.read()


def overwrite(folder, data):
    with open(os.path.join(folder, 'model.onnx'), 'wb') as f:
        f.write(data)
