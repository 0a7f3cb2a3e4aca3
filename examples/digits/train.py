# SPDX-License-Identifier: Apache-2.0
"""Trains the small convolutional network of this example and writes it as digits.onnx, its test images as digits.bin.

The data set is scikit-learn's digits: 1,797 images of 8x8 pixels, 0..16. Every fifth one is kept for testing. The
network is three 3x3 convolutions and a dense layer, trained by plain stochastic gradient descent with momentum, in
numpy.
digits.bin: one record of 65 bytes per test image: its label, then 64 pixels.
"""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

EPOCHS, BATCH, RATE, MOMENTUM = 30, 32, 0.03, 0.9
rng = np.random.default_rng(1)


def patches(x):
    """[n, c, h, w] -> [n, h, w, c * 9] for a 3x3 window with zero padding."""
    n, c, h, w = x.shape
    p = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    v = np.lib.stride_tricks.sliding_window_view(p, (3, 3), axis=(2, 3))  # n c h w 3 3
    return v.transpose(0, 2, 3, 1, 4, 5).reshape(n, h, w, c * 9)


class Conv:
    def __init__(self, cin, cout):
        self.params = [rng.normal(0, np.sqrt(2 / (cin * 9)), (cout, cin * 9)), np.zeros(cout)]
        self.cin = cin

    def forward(self, x):
        self.cols, self.shape = patches(x), x.shape
        y = self.cols @ self.params[0].T + self.params[1]
        self.mask = y > 0
        return (y * self.mask).transpose(0, 3, 1, 2)

    def backward(self, g):
        g = g.transpose(0, 2, 3, 1) * self.mask
        flat = g.reshape(-1, g.shape[-1])
        self.grads = [flat.T @ self.cols.reshape(flat.shape[0], -1), flat.sum(0)]
        n, c, h, w = self.shape
        d = (g @ self.params[0]).reshape(n, h, w, c, 3, 3)
        out = np.zeros((n, c, h + 2, w + 2))
        for i in range(3):
            for j in range(3):
                out[:, :, i:i + h, j:j + w] += d[..., i, j].transpose(0, 3, 1, 2)
        return out[:, :, 1:-1, 1:-1]


class Pool:
    params = []

    def forward(self, x):
        n, c, h, w = x.shape
        v = x.reshape(n, c, h // 2, 2, w // 2, 2)
        y = v.max((3, 5), keepdims=True)
        self.mask = v == y
        return y.reshape(n, c, h // 2, w // 2)

    def backward(self, g):
        d = self.mask * g[:, :, :, None, :, None]
        n, c, h, _, w, _ = d.shape
        return d.reshape(n, c, h * 2, w * 2)


class Dense:
    def __init__(self, cin, cout):
        self.params = [rng.normal(0, np.sqrt(1 / cin), (cout, cin)), np.zeros(cout)]

    def forward(self, x):
        self.x, self.shape = x.reshape(len(x), -1), x.shape
        return self.x @ self.params[0].T + self.params[1]

    def backward(self, g):
        self.grads = [g.T @ self.x, g.sum(0)]
        return (g @ self.params[0]).reshape(self.shape)


def run(layers, x):
    for layer in layers:
        x = layer.forward(x)
    return x


def train(layers, x, y):
    moving = [[np.zeros_like(p) for p in layer.params] for layer in layers]
    for epoch in range(EPOCHS):
        rate = RATE * 0.5 * (1 + np.cos(np.pi * epoch / EPOCHS))
        order = rng.permutation(len(x))
        for i in range(0, len(x), BATCH):
            at = order[i:i + BATCH]
            z = run(layers, x[at])
            p = np.exp(z - z.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            p[np.arange(len(at)), y[at]] -= 1
            g = p / len(at)
            for layer in reversed(layers):
                g = layer.backward(g)
            for layer, speeds in zip(layers, moving):
                for k, param in enumerate(layer.params):
                    speeds[k] = MOMENTUM * speeds[k] - rate * (layer.grads[k] + 1e-4 * param)
                    param += speeds[k]


def export(layers, path):
    nodes, weights, name, count = [], [], 'image', 0
    for layer in layers:
        out = f't{count}'
        if isinstance(layer, Pool):
            nodes.append(helper.make_node('MaxPool', [name], [out], kernel_shape=[2, 2], strides=[2, 2]))
        else:
            w, b = [p.astype(np.float32) for p in layer.params]
            w = w.reshape(len(w), layer.cin, 3, 3) if isinstance(layer, Conv) else w
            weights += [numpy_helper.from_array(w, f'w{count}'), numpy_helper.from_array(b, f'b{count}')]
            if isinstance(layer, Conv):
                nodes.append(helper.make_node('Conv', [name, f'w{count}', f'b{count}'], [f'c{count}'], pads=[1] * 4))
                nodes.append(helper.make_node('Relu', [f'c{count}'], [out]))
            else:
                nodes.append(helper.make_node('Flatten', [name], [f'f{count}']))
                nodes.append(helper.make_node('Gemm', [f'f{count}', f'w{count}', f'b{count}'], [f'z{count}'], transB=1))
                nodes.append(helper.make_node('Softmax', [f'z{count}'], ['probability'], axis=1))
                out = 'probability'
        name, count = out, count + 1
    graph = helper.make_graph(nodes, 'digits', [helper.make_tensor_value_info('image', TensorProto.FLOAT, ['batch', 1, 8, 8])],
                              [helper.make_tensor_value_info('probability', TensorProto.FLOAT, ['batch', 10])], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def main():
    data = load_digits()
    images, labels = data.images, data.target
    test = np.arange(len(images)) % 5 == 0
    x = (images / 16)[:, None]
    layers = [Conv(1, 32), Conv(32, 32), Pool(), Conv(32, 64), Dense(64 * 16, 10)]
    train(layers, x[~test], labels[~test])
    right = run(layers, x[test]).argmax(1) == labels[test]
    print(f'{right.sum()} of {len(right)} test images right')
    export(layers, 'digits.onnx')
    with open('digits.bin', 'wb') as f:
        for image, label in zip(images[test], labels[test]):
            f.write(bytes([label]) + image.astype(np.uint8).tobytes())


main()
