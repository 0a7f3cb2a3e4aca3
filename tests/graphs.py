# SPDX-License-Identifier: Apache-2.0
"""ONNX models written line by line: what the suites share that make theirs themselves."""
import numpy as np
import onnx
from onnx import helper as h
from onnx import numpy_helper


def port(name, dtype, dims):
    """An input or output; dtype: NumPy's or ONNX's; dims: None when they are not known."""
    kind = dtype if isinstance(dtype, int) else h.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return h.make_tensor_value_info(name, kind, dims)


def constant(name, values):
    return numpy_helper.from_array(np.asarray(values), name)


def model_of(nodes, inputs, outputs, constants=(), opset=17, domains=(('com.microsoft', 1),)):
    """The ModelProto of ports and constants as above."""
    graph = h.make_graph(nodes, 'g', inputs, outputs, list(constants))
    imports = [h.make_opsetid(domain, version) for domain, version in (('', opset), *domains)]
    return h.make_model(graph, opset_imports=imports, ir_version=10 if opset > 18 else 8)


def save_model(path, *parts, **options):
    """The same as a file; returns its path."""
    onnx.save(model_of(*parts, **options), path)
    return path


class Graph:
    """Collects nodes and constants; random numbers come of a fixed seed. Node k is called TYPE_k, its output vk, or vk_0, vk_1 and
    so on where there are several."""

    def __init__(self, seed):
        self.rng, self.nodes, self.constants = np.random.default_rng(seed), [], []

    def const(self, values, dtype=None):
        self.constants.append(constant('c%d' % len(self.constants), np.asarray(values, dtype)))
        return self.constants[-1].name

    def ints(self, *values):
        return self.const(values, np.int64)

    def op(self, kind, *inputs, out=None, outputs=1, domain='', **attributes):
        """Returns the output's name, which `out` chooses, or the names of several outputs."""
        k = len(self.nodes)
        names = [out or 'v%d' % k] if outputs == 1 else ['v%d_%d' % (k, i) for i in range(outputs)]
        self.nodes.append(h.make_node(kind, list(inputs), names, '%s_%d' % (kind, k), domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def model(self, inputs, outputs, **options):
        return model_of(self.nodes, inputs, outputs, self.constants, **options)

    def save(self, path, inputs, outputs, **options):
        return save_model(path, self.nodes, inputs, outputs, self.constants, **options)
