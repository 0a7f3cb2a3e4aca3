# SPDX-License-Identifier: Apache-2.0
"""Trains a small vision transformer and writes it as vit.onnx, in the operators that PyTorch's exporter writes.

The data set is scikit-learn's digits: 1,797 images of 8x8 pixels, 0..16. Every fifth one is kept for testing, as in
examples/digits, whose digits.bin holds those. The network reads patches of 2x2 pixels: 16 tokens and one for the class,
BLOCKS blocks of attention and a GELU perceptron with normalisation in front. Trained by Adam on images shifted by up to
a pixel.

Needs numpy, scikit-learn, autograd and onnx; the trained network is in the repository.
"""
import os

import autograd.numpy as np
import numpy
import onnx
from autograd import value_and_grad
from autograd.scipy.special import erf
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

BLOCKS, WIDTH, HEADS, HIDDEN, TOKENS, CLASSES, EPS = 2, 40, 5, 104, 17, 10, 1e-5
EPOCHS, BATCH, RATE = 200, 64, 3e-3
rng = numpy.random.default_rng(1)


def parameters():
    def dense(n, k):
        return rng.normal(0, 1 / numpy.sqrt(n), (n, k))
    p = {'patch.weight': dense(4, WIDTH), 'patch.bias': numpy.zeros(WIDTH), 'class': rng.normal(0, 0.02, (1, 1, WIDTH)),
         'position': rng.normal(0, 0.02, (1, TOKENS, WIDTH)), 'norm.weight': numpy.ones(WIDTH), 'norm.bias': numpy.zeros(WIDTH),
         'head.weight': dense(WIDTH, CLASSES), 'head.bias': numpy.zeros(CLASSES)}
    for i in range(BLOCKS):
        for name, n, k in (('qkv', WIDTH, 3 * WIDTH), ('proj', WIDTH, WIDTH), ('up', WIDTH, HIDDEN), ('down', HIDDEN, WIDTH)):
            p['%d.%s.weight' % (i, name)] = dense(n, k)
            p['%d.%s.bias' % (i, name)] = numpy.zeros(k)
        for name in ('norm1', 'norm2'):
            p['%d.%s.weight' % (i, name)] = numpy.ones(WIDTH)
            p['%d.%s.bias' % (i, name)] = numpy.zeros(WIDTH)
    return p


def norm(p, name, x):
    d = x - np.mean(x, -1, keepdims=True)
    return d / np.sqrt(np.mean(d * d, -1, keepdims=True) + EPS) * p[name + '.weight'] + p[name + '.bias']


def dense(p, name, x):
    return np.dot(x, p[name + '.weight']) + p[name + '.bias']


def softmax(x):
    e = np.exp(x - np.max(x, -1, keepdims=True))
    return e / np.sum(e, -1, keepdims=True)


def forward(p, images):
    n = len(images)
    patches = np.transpose(np.reshape(images, (n, 4, 2, 4, 2)), (0, 1, 3, 2, 4)).reshape((n, 16, 4))
    x = np.concatenate([p['class'] + np.zeros((n, 1, WIDTH)), dense(p, 'patch', patches)], 1) + p['position']
    for i in range(BLOCKS):
        qkv = np.reshape(dense(p, '%d.qkv' % i, norm(p, '%d.norm1' % i, x)), (n, TOKENS, 3, HEADS, WIDTH // HEADS))
        q, k, v = (np.transpose(qkv[:, :, j], (0, 2, 1, 3)) for j in range(3))
        a = softmax(np.matmul(q, np.transpose(k, (0, 1, 3, 2))) * (WIDTH // HEADS) ** -0.5)
        y = np.reshape(np.transpose(np.matmul(a, v), (0, 2, 1, 3)), (n, TOKENS, WIDTH))
        x = x + dense(p, '%d.proj' % i, y)
        h = dense(p, '%d.up' % i, norm(p, '%d.norm2' % i, x))
        x = x + dense(p, '%d.down' % i, h * 0.5 * (1 + erf(h / np.sqrt(2.0))))
    return dense(p, 'head', norm(p, 'norm', x[:, 0]))


def loss(p, images, labels):
    z = forward(p, images)
    z = z - np.max(z, 1, keepdims=True)
    return np.mean(np.log(np.sum(np.exp(z), 1)) - z[np.arange(len(labels)), labels])


def shifted(images):
    out = numpy.zeros_like(images)
    for i, image in enumerate(images):
        y, x = rng.integers(-1, 2, 2)
        out[i, max(y, 0):8 + min(y, 0), max(x, 0):8 + min(x, 0)] = image[max(-y, 0):8 - max(y, 0), max(-x, 0):8 - max(x, 0)]
    return out


def train(images, labels):
    p, slope = parameters(), value_and_grad(loss)
    mean, square = ({k: numpy.zeros_like(v) for k, v in p.items()} for _ in range(2))
    step, steps = 0, EPOCHS * (len(images) // BATCH)
    for _ in range(EPOCHS):
        order = rng.permutation(len(images))
        for at in range(0, len(images) - BATCH + 1, BATCH):
            pick, step = order[at:at + BATCH], step + 1
            _, g = slope(p, shifted(images[pick]), labels[pick])
            rate = RATE * min(step / 100, 0.5 * (1 + numpy.cos(numpy.pi * step / steps)))
            for k in p:
                mean[k] = 0.9 * mean[k] + 0.1 * g[k]
                square[k] = 0.99 * square[k] + 0.01 * g[k] ** 2
                move = mean[k] / (1 - 0.9 ** step) / (numpy.sqrt(square[k] / (1 - 0.99 ** step)) + 1e-8)
                p[k] = p[k] - rate * (move + 0.05 * p[k] * k.endswith('weight'))
    return p


class Export:
    """Nodes one after the other; every method returns the name of what it computes."""

    def __init__(self, p):
        self.p, self.nodes, self.constants = p, [], {k: v.astype(numpy.float32) for k, v in p.items()}

    def node(self, op, *inputs, **attributes):
        out = 'v%d' % len(self.nodes)
        self.nodes.append(helper.make_node(op, [self.constant(i) if not isinstance(i, str) else i for i in inputs], [out],
                                           name='/%s_%d' % (op, len(self.nodes)), **attributes))
        return out

    def constant(self, value):
        value = numpy.asarray(value, numpy.float32 if isinstance(value, float) else numpy.int64)
        name = 'c_' + '_'.join(str(v).replace('-', 'm') for v in value.ravel())
        self.constants[name] = value
        return name

    def dense(self, name, x):
        return self.node('Add', name + '.bias', self.node('MatMul', x, name + '.weight'))

    def norm(self, name, x):
        return self.node('LayerNormalization', x, name + '.weight', name + '.bias', axis=-1, epsilon=EPS)

    def network(self):
        patches = self.node('Reshape', 'image', [-1, 4, 2, 4, 2])
        patches = self.node('Reshape', self.node('Transpose', patches, perm=[0, 1, 3, 2, 4]), [-1, 16, 4])
        x = self.dense('patch', patches)
        shape = self.node('Concat', self.node('Shape', 'image', start=0, end=1), [1, 1], axis=0)
        x = self.node('Concat', self.node('Expand', 'class', shape), x, axis=1)
        x = self.node('Add', x, 'position')
        for i in range(BLOCKS):
            qkv = self.node('Reshape', self.dense('%d.qkv' % i, self.norm('%d.norm1' % i, x)), [-1, TOKENS, 3, HEADS, WIDTH // HEADS])
            qkv = self.node('Transpose', qkv, perm=[2, 0, 3, 1, 4])
            q, k, v = (self.node('Gather', qkv, j, axis=0) for j in range(3))
            scores = self.node('MatMul', self.node('Mul', q, (WIDTH // HEADS) ** -0.5), self.node('Transpose', k, perm=[0, 1, 3, 2]))
            y = self.node('MatMul', self.node('Softmax', scores, axis=-1), v)
            y = self.node('Reshape', self.node('Transpose', y, perm=[0, 2, 1, 3]), [-1, TOKENS, WIDTH])
            x = self.node('Add', x, self.dense('%d.proj' % i, y))
            h = self.dense('%d.up' % i, self.norm('%d.norm2' % i, x))
            half = self.node('Mul', h, self.node('Add', self.node('Erf', self.node('Div', h, float(numpy.sqrt(2)))), 1.0))
            x = self.node('Add', x, self.dense('%d.down' % i, self.node('Mul', half, 0.5)))
        first = self.norm('norm', self.node('Gather', x, 0, axis=1))
        return self.node('Gemm', first, 'head.weight', 'head.bias')

    def write(self, path):
        self.nodes.append(helper.make_node('Identity', [self.network()], ['logits']))
        graph = helper.make_graph(self.nodes, 'vit', [helper.make_tensor_value_info('image', TensorProto.FLOAT, ['batch', 1, 8, 8])],
                                  [helper.make_tensor_value_info('logits', TensorProto.FLOAT, ['batch', CLASSES])],
                                  [numpy_helper.from_array(v, k) for k, v in self.constants.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, path)


def main():
    data = load_digits()
    images, labels = data.images / 16, data.target
    test = numpy.arange(len(images)) % 5 == 0
    p = train(images[~test], labels[~test])
    right = forward(p, images[test]).argmax(1) == labels[test]
    print('%d of %d test images right' % (right.sum(), len(right)))
    Export(p).write(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'vit.onnx'))


main()
