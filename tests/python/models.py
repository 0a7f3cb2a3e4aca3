# SPDX-License-Identifier: Apache-2.0
"""Small models for the tests of the Python package, and what they share."""
import contextlib

import numpy as np
from onnx import TensorProto, helper, numpy_helper

DTYPES = {'float32': TensorProto.FLOAT, 'float64': TensorProto.DOUBLE, 'float16': TensorProto.FLOAT16, 'int8': TensorProto.INT8,
          'int16': TensorProto.INT16, 'int32': TensorProto.INT32, 'int64': TensorProto.INT64, 'uint8': TensorProto.UINT8,
          'uint16': TensorProto.UINT16, 'uint32': TensorProto.UINT32, 'uint64': TensorProto.UINT64, 'bool': TensorProto.BOOL,
          'bfloat16': TensorProto.BFLOAT16, 'float8_e4m3fn': TensorProto.FLOAT8E4M3FN, 'int4': TensorProto.INT4,
          'uint4': TensorProto.UINT4, 'string': TensorProto.STRING}


def port(name, dtype, shape):
    return helper.make_tensor_value_info(name, DTYPES[dtype], shape)


def model(nodes, inputs, outputs, weights=(), opset=21, props=None):
    graph = helper.make_graph(nodes, 'graph', inputs, outputs, [numpy_helper.from_array(a, n) for n, a in dict(weights).items()])
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid('', opset), helper.make_opsetid('ai.onnx.ml', 3)], ir_version=10)
    if props:
        helper.set_model_props(m, props)
    return m


def linear(batch='batch'):
    """y = x w + b, f32[batch,3] to f32[batch,2]"""
    w = np.arange(6, dtype=np.float32).reshape(3, 2)
    b = np.array([1, -1], np.float32)
    m = model([helper.make_node('Gemm', ['x', 'w', 'b'], ['y'])], [port('x', 'float32', [batch, 3])],
              [port('y', 'float32', [batch, 2])], {'w': w, 'b': b})
    return m, lambda x: x @ w + b


def work_model(size=512, layers=8):
    """Something that takes milliseconds."""
    rng = np.random.default_rng(0)
    nodes, weights = [], {}
    for k in range(layers):
        weights['w%d' % k] = (rng.standard_normal((size, size)) / size ** 0.5).astype(np.float32)
        nodes.append(helper.make_node('MatMul', ['x%d' % k, 'w%d' % k], ['x%d' % (k + 1)]))
    return model(nodes, [port('x0', 'float32', ['rows', size])], [port('x%d' % layers, 'float32', ['rows', size])], weights)


@contextlib.contextmanager
def raises(kind, *parts):
    """The block raises `kind`, and its text has all `parts`."""
    try:
        yield
    except kind as e:
        missing = [p for p in parts if p not in str(e)]
        assert not missing, 'the message lacks %s: %s' % (missing, e)
        return
    raise AssertionError('expected %s' % kind.__name__)


def equal(found, expected):
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype, '%s, expected %s' % (found.dtype, expected.dtype)
    assert found.shape == expected.shape, '%s, expected %s' % (found.shape, expected.shape)
    assert (found == expected).all(), '%s, expected %s' % (found, expected)
