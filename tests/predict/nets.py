# SPDX-License-Identifier: Apache-2.0
"""Small networks of the tests, as ONNX files, and the same in PyTorch for MONAI to run."""
import numpy as np
import onnx
import torch
from monai.inferers import sliding_window_inference
from onnx import TensorProto, helper, numpy_helper


def save(path, nodes, inputs, outputs, weights=()):
    graph = helper.make_graph(nodes, 'net', inputs, outputs, [numpy_helper.from_array(w, n) for n, w in weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8), path)
    return path


def port(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def kernel(inputs, outputs, rank, seed=0):
    return np.random.default_rng(seed).standard_normal((outputs, inputs) + (3,) * rank).astype(np.float32) / 3 ** rank


def conv(path, rank=2, inputs=1, outputs=2, sizes=None, batch='batch', layers=1):
    """A convolution of 3 in each direction and a ReLU, `layers` times; sizes None: open."""
    letters = [sizes[k] if sizes else 'size%d' % k for k in range(rank)]
    nodes, weights, last, count = [], [], 'x', inputs
    for k in range(layers):
        w = kernel(count, outputs, rank, k)
        weights.append(('w%d' % k, w))
        nodes.append(helper.make_node('Conv', [last, 'w%d' % k], ['c%d' % k], pads=[1] * 2 * rank))
        nodes.append(helper.make_node('Relu', ['c%d' % k], ['y' if k == layers - 1 else 'r%d' % k]))
        last, count = 'r%d' % k, outputs
    save(path, nodes, [port('x', [batch, inputs] + letters)], [port('y', [batch, outputs] + letters)], weights)

    def same(x):
        for _, w in weights:
            x = torch.relu([torch.conv1d, torch.conv2d, torch.conv3d][rank - 1](x, torch.from_numpy(w), padding=1))
        return x
    return path, same


def expected(image, same, tile, overlap=0.25, mode='gaussian'):
    """MONAI's result for [C, spatial..]."""
    with torch.no_grad():
        return sliding_window_inference(torch.from_numpy(np.ascontiguousarray(image, np.float32))[None], tile, 4, same, overlap=overlap, mode=mode)[0].numpy()
