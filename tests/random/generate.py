# SPDX-License-Identifier: Apache-2.0
"""Random ONNX graphs that are valid by construction, with values that two correct implementations agree on.

In:  a random generator. Out: a ModelProto and its inputs as arrays.

A graph grows node by node. Each maker below picks tensors of the pool that suit it, draws attributes, adds one node and
says the shape of what comes out: so every graph is valid, and a failure of the compiler is the compiler's. Operators
with steps in them (comparisons, rounding, arg max) take `exact` tensors only, those that hold inputs or constants
moved about: elsewhere the last bit would decide. Values stay near one: makers of growing operators scale them.
"""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

MOST_ELEMENTS = 20000
OPSET = 21


class Tensor:
    def __init__(self, name, shape, dtype=np.float32, exact=False):
        self.name, self.shape, self.dtype, self.exact = name, tuple(int(d) for d in shape), np.dtype(dtype), exact

    @property
    def size(self):
        return int(np.prod(self.shape, dtype=np.int64))


class Graph:
    def __init__(self, rng):
        self.rng, self.nodes, self.constants, self.inputs, self.pool = rng, [], [], [], []

    def integer(self, low, high):
        """low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def chance(self, p):
        return self.rng.random() < p

    def choice(self, items):
        return items[int(self.rng.integers(len(items)))]

    def pick(self, wants=lambda t: True, dtype=np.float32, exact=False):
        """One of the pool, the newest more often; raises IndexError when none suits."""
        found = [t for t in self.pool if t.dtype == dtype and (t.exact or not exact) and wants(t)]
        return found[max(self.integer(0, len(found) - 1), self.integer(0, len(found) - 1))] if found else found[0]

    def constant(self, value, name='c'):
        name = '%s%d' % (name, len(self.constants))
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weights(self, *shape, scale=1.0):
        return self.constant((self.rng.standard_normal(shape) * scale).astype(np.float32), 'w')

    def floats(self, shape):
        """Numbers with a few bits, so that many are equal and sums of some are exact."""
        values = self.rng.integers(-16, 17, shape) / 8 if self.chance(0.3) else self.rng.standard_normal(shape)
        return values.astype(np.float32)

    def input(self, shape):
        t = Tensor('x%d' % len(self.inputs), shape, exact=True)
        self.inputs.append((t, self.floats(shape)))
        self.pool.append(t)
        return t

    def given(self, value, name='g'):
        """Like a constant, but known only when the model runs."""
        t = Tensor('%s%d' % (name, len(self.inputs)), value.shape, value.dtype)
        self.inputs.append((t, value))
        return t

    def node(self, op, inputs, shapes, dtype=np.float32, exact=False, **attributes):
        """shapes: of the outputs. Too large ones are refused."""
        if any(np.prod(s, dtype=np.int64) > MOST_ELEMENTS or len(s) > 6 for s in shapes):
            raise IndexError
        names = [i.name if isinstance(i, Tensor) else i for i in inputs]
        out = [Tensor('%s_%d_%d' % (op.lower(), len(self.nodes), k), s, dtype, exact) for k, s in enumerate(shapes)]
        self.nodes.append(helper.make_node(op, names, [t.name for t in out], **attributes))
        self.pool.extend(out)
        return out[0]


# ---- element-wise

SMOOTH = ['Abs', 'Neg', 'Sigmoid', 'Tanh', 'Relu', 'LeakyRelu', 'Softplus', 'Softsign', 'Erf', 'HardSigmoid', 'HardSwish',
          'Elu', 'Selu', 'Gelu', 'Mish', 'Sin', 'Cos', 'Atan', 'Celu', 'Identity']


def unary(g):
    x, op = g.pick(), g.choice(SMOOTH)
    g.node(op, [x], [x.shape], exact=x.exact and op in ('Abs', 'Neg', 'Relu', 'Identity'))


def bounded(g):
    x = g.pick()
    x = g.node('Clip', [x, g.constant(np.float32(-3)), g.constant(np.float32(3))], [x.shape], exact=x.exact)
    if g.chance(0.5):
        g.node('Exp', [x], [x.shape])


def positive(g):
    """Sqrt, Log and Reciprocal of what is at least a half."""
    x = g.pick()
    size = g.node('Abs', [x], [x.shape])
    size = g.node('Add', [size, g.constant(np.float32(0.5))], [x.shape])
    g.node(g.choice(['Sqrt', 'Log', 'Reciprocal']), [size], [x.shape])


def partner(g, x):
    """A tensor or constant that broadcasts with x, and the shape of both together."""
    same = [t for t in g.pool if t.dtype == x.dtype and t.shape == x.shape and t is not x]
    if same and g.chance(0.5):
        return g.choice(same), x.shape
    shape = [1 if g.chance(0.4) else d for d in x.shape][g.integer(0, len(x.shape)):]
    return g.weights(*shape), x.shape


def binary(g):
    x = g.pick()
    y, shape = partner(g, x)
    inputs = [x, y] if g.chance(0.5) else [y, x]
    g.node(g.choice(['Add', 'Sub', 'Mul', 'Max', 'Min', 'Add', 'Mul']), inputs, [shape])


def outer(g):
    """Broadcasting both ways."""
    x = g.pick(lambda t: t.shape and t.size < 200)
    y = g.node('Unsqueeze', [x, g.constant(np.array([0]))], [(1, *x.shape)])
    z = g.node('Unsqueeze', [x, g.constant(np.array([1]))], [(x.shape[0], 1, *x.shape[1:])])
    g.node(g.choice(['Add', 'Mul', 'Sub', 'Max']), [y, z], [(x.shape[0], *x.shape)])


def where(g):
    x = g.pick(exact=True)
    mask = g.node(g.choice(['Greater', 'LessOrEqual', 'Equal']), [x, g.constant(np.float32(0.125))], [x.shape], bool, True)
    if g.chance(0.3):
        mask = g.node('Not', [mask], [x.shape], bool, True)
    same = [t for t in g.pool if t.dtype == np.float32 and t.shape == x.shape]
    g.node('Where', [mask, g.choice(same), g.constant(np.float32(0.25))], [x.shape])


def stepped(g):
    x = g.pick(exact=True)
    g.node(g.choice(['Floor', 'Ceil', 'Round', 'Sign']), [x], [x.shape], exact=True)


def through_integers(g):
    x = g.pick(exact=True)
    kind = g.choice([TensorProto.INT64, TensorProto.INT32, TensorProto.INT8])
    t = helper.tensor_dtype_to_np_dtype(kind)
    y = g.node('Cast', [x], [x.shape], t, True, to=kind)
    y = g.node(g.choice(['Add', 'Mul', 'Sub']), [y, g.constant(np.array(g.integer(1, 3), t))], [x.shape], t, True)
    g.node('Cast', [y], [x.shape], np.float32, True, to=TensorProto.FLOAT)


def quantized(g):
    x = g.pick(exact=True)
    scale, zero = g.constant(np.float32(1 / 16)), g.constant(np.uint8(g.integer(100, 150)))
    q = g.node('QuantizeLinear', [x, scale, zero], [x.shape], np.uint8, True)
    g.node('DequantizeLinear', [q, scale, zero], [x.shape], np.float32, True)


# ---- moving elements

def transpose(g):
    x = g.pick(lambda t: len(t.shape) > 1)
    order = [int(i) for i in g.rng.permutation(len(x.shape))]
    g.node('Transpose', [x], [[x.shape[i] for i in order]], exact=x.exact, perm=order)


def reshape(g):
    x = g.pick()
    shape, left = [], x.size
    while left > 1 and len(shape) < 4:
        factors = [d for d in range(1, min(left, 64) + 1) if left % d == 0]
        shape.append(g.choice(factors))
        left //= shape[-1]
    shape.insert(g.integer(0, len(shape)), left)
    said = list(shape)
    if g.chance(0.3) and 0 not in shape:
        said[g.integer(0, len(said) - 1)] = -1
    g.node('Reshape', [x, g.constant(np.array(said, np.int64))], [shape], exact=x.exact)


def concat(g):
    x = g.pick(lambda t: t.shape)
    axis, parts = g.integer(0, len(x.shape) - 1), [x]
    others = [t for t in g.pool if t.dtype == x.dtype and len(t.shape) == len(x.shape) and
              all(i == axis or a == b for i, (a, b) in enumerate(zip(t.shape, x.shape)))]
    parts += [g.choice(others) for _ in range(g.integer(0, 2))]
    shape = list(x.shape)
    shape[axis] = sum(t.shape[axis] for t in parts)
    g.node('Concat', parts, [shape], exact=all(t.exact for t in parts), axis=axis)


def split(g):
    x = g.pick(lambda t: t.shape and max(t.shape) > 1)
    axis = g.choice([i for i, d in enumerate(x.shape) if d > 1])
    first = g.integer(1, x.shape[axis] - 1)
    shapes = [[part if i == axis else d for i, d in enumerate(x.shape)] for part in (first, x.shape[axis] - first)]
    g.node('Split', [x, g.constant(np.array([first, x.shape[axis] - first]))], shapes, exact=x.exact, axis=axis)


def slice_(g):
    x = g.pick(lambda t: t.shape and t.size > 1)
    starts, ends, steps, shape = [], [], [], []
    for d in x.shape:
        step = g.choice([1, 1, 1, 2, -1, -2, 3])
        a, b = sorted((g.integer(0, d - 1), g.integer(0, d - 1)))
        rows = range(a, b + 1)[::step]
        starts.append(rows[0] - (d if g.chance(0.3) else 0))
        last = rows[0] + len(rows) * step
        ends.append(last if last >= 0 else -d - 1)
        steps.append(step)
        shape.append(len(rows))
    lists = [g.constant(np.array(v, np.int64)) for v in (starts, ends, range(len(shape)), steps)]
    g.node('Slice', [x, *lists], [shape], exact=x.exact)


def pad(g):
    x = g.pick(lambda t: t.shape)
    mode = g.choice(['constant', 'constant', 'edge', 'reflect', 'wrap'])
    most = [min(2, d - 1 if mode == 'reflect' else d) for d in x.shape]
    pads = [g.integer(0, m) for m in most] + [g.integer(0, m) for m in most]
    shape = [d + pads[i] + pads[i + len(x.shape)] for i, d in enumerate(x.shape)]
    value = [g.constant(np.float32(0.5))] if mode == 'constant' and g.chance(0.5) else []
    g.node('Pad', [x, g.constant(np.array(pads, np.int64)), *value], [shape], exact=x.exact, mode=mode)


def gather(g):
    x = g.pick(lambda t: t.shape)
    axis = g.integer(0, len(x.shape) - 1)
    places = g.rng.integers(-x.shape[axis], x.shape[axis], g.choice([(), (3,), (2, 2)]))
    shape = [*x.shape[:axis], *places.shape, *x.shape[axis + 1:]]
    g.node('Gather', [x, g.constant(places.astype(np.int64))], [shape], exact=x.exact, axis=axis)


def gather_elements(g):
    x = g.pick(lambda t: t.shape)
    axis = g.integer(0, len(x.shape) - 1)
    places = g.rng.integers(-x.shape[axis], x.shape[axis], x.shape)
    g.node('GatherElements', [x, g.constant(places.astype(np.int64))], [x.shape], exact=x.exact, axis=axis)


def tile(g):
    x = g.pick(lambda t: t.shape)
    times = [g.integer(1, 2) for _ in x.shape]
    g.node('Tile', [x, g.constant(np.array(times))], [[a * b for a, b in zip(x.shape, times)]], exact=x.exact)


def unit_axes(g):
    x = g.pick(lambda t: len(t.shape) < 5)
    axis = g.integer(0, len(x.shape))
    if 1 in x.shape and g.chance(0.5):
        axis = x.shape.index(1)
        g.node('Squeeze', [x, g.constant(np.array([axis]))], [x.shape[:axis] + x.shape[axis + 1:]], exact=x.exact)
    else:
        g.node('Unsqueeze', [x, g.constant(np.array([axis]))], [x.shape[:axis] + (1,) + x.shape[axis:]], exact=x.exact)


def expand(g):
    x = g.pick(lambda t: 1 in t.shape)
    shape = [g.integer(1, 4) if d == 1 else d for d in x.shape]
    g.node('Expand', [x, g.constant(np.array(shape, np.int64))], [shape], exact=x.exact)


def triangle(g):
    x = g.pick(lambda t: len(t.shape) > 1)
    g.node('Trilu', [x, g.constant(np.array(g.integer(-1, 1)))], [x.shape], exact=x.exact, upper=g.integer(0, 1))


def depth_space(g):
    x = g.pick(lambda t: len(t.shape) == 4 and t.shape[1] % 4 == 0)
    n, c, h, w = x.shape
    g.node('DepthToSpace', [x], [(n, c // 4, h * 2, w * 2)], exact=x.exact, blocksize=2, mode=g.choice(['DCR', 'CRD']))


# ---- along axes

def reduce(g):
    x = g.pick(lambda t: t.shape)
    axes = sorted(int(a) for a in g.rng.choice(len(x.shape), g.integer(1, len(x.shape)), replace=False))
    keep = g.integer(0, 1)
    shape = [1 if i in axes else d for i, d in enumerate(x.shape) if keep or i not in axes]
    op = g.choice(['ReduceMean', 'ReduceMax', 'ReduceMin', 'ReduceMean', 'ReduceL2', 'ReduceLogSumExp'])
    said = [a - len(x.shape) if g.chance(0.3) else a for a in axes]
    g.node(op, [x, g.constant(np.array(said, np.int64))], [shape], keepdims=keep)


def arg(g):
    x = g.pick(lambda t: t.shape, exact=True)
    axis = g.integer(0, len(x.shape) - 1)
    shape = [1 if i == axis else d for i, d in enumerate(x.shape)]
    y = g.node(g.choice(['ArgMax', 'ArgMin']), [x], [shape], np.int64, True, axis=axis, keepdims=1)
    g.node('Cast', [y], [shape], exact=True, to=TensorProto.FLOAT)


def topk(g):
    x = g.pick(lambda t: t.shape, exact=True)
    axis = g.integer(0, len(x.shape) - 1)
    count = g.integer(1, x.shape[axis])
    shape = [count if i == axis else d for i, d in enumerate(x.shape)]
    names = ['top%d_%d' % (len(g.nodes), k) for k in range(2)]
    g.nodes.append(helper.make_node('TopK', [x.name, g.constant(np.array([count]))], names, axis=axis, largest=g.integer(0, 1)))
    g.pool.append(Tensor(names[0], shape, exact=True))


def soft(g):
    x = g.pick(lambda t: t.shape)
    g.node(g.choice(['Softmax', 'LogSoftmax']), [x], [x.shape], axis=g.integer(0, len(x.shape) - 1))


def cumulative(g):
    x = g.pick(lambda t: t.shape and max(t.shape) < 20)
    axis = g.integer(0, len(x.shape) - 1)
    y = g.node('CumSum', [x, g.constant(np.array(axis))], [x.shape], exclusive=g.integer(0, 1), reverse=g.integer(0, 1))
    g.node('Mul', [y, g.constant(np.float32(0.25))], [x.shape])


# ---- products, windows, normalisation

def matmul(g):
    x = g.pick(lambda t: len(t.shape) > 1)
    k, n = x.shape[-1], g.integer(1, 20)
    batch = x.shape[:-2] if g.chance(0.3) else ()
    y = g.node('MatMul', [x, g.weights(*batch, k, n, scale=k ** -0.5)], [(*x.shape[:-1], n)])
    if g.chance(0.5):
        g.node('Add', [y, g.weights(n)], [y.shape])


def self_product(g):
    """A product of two computed matrices, as attention has."""
    x = g.pick(lambda t: len(t.shape) > 1)
    order = [*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2]
    y = g.node('Transpose', [x], [[x.shape[i] for i in order]], perm=order)
    z = g.node('MatMul', [x, y], [(*x.shape[:-1], x.shape[-2])])
    g.node('Mul', [z, g.constant(np.float32(1 / x.shape[-1]))], [z.shape])


def gemm(g):
    x = g.pick(lambda t: len(t.shape) == 2)
    a, b = g.integer(0, 1), g.integer(0, 1)
    m, k = x.shape[::-1] if a else x.shape
    n = g.integer(1, 20)
    c = [g.weights(*g.choice([(n,), (m, 1), (1, n), ()]))] if g.chance(0.7) else []
    w = g.weights(*((n, k) if b else (k, n)), scale=k ** -0.5)
    g.node('Gemm', [x, w, *c], [(m, n)], transA=a, transB=b, alpha=g.choice([1.0, 0.5]), beta=g.choice([1.0, 2.0]))


def window(g, x, dilate=True):
    """Kernel, strides, dilations, pads (begin, end) for each spatial axis, and the length of the output along it."""
    rows = []
    for d in x.shape[2:]:
        k, dilation = g.integer(1, min(3, d)), g.integer(1, 2) if dilate else 1
        reach = (k - 1) * dilation + 1
        begin, end, stride = g.integer(0, k // 2), g.integer(0, k // 2), g.integer(1, 2)
        if reach > d + begin + end:
            dilation, reach = 1, k
        rows.append((k, stride, dilation, begin, end, (d + begin + end - reach) // stride + 1))
    return zip(*rows)


def spatial(t):
    return 3 <= len(t.shape) <= 5 and t.size


def conv(g):
    x = g.pick(spatial)
    kernel, strides, dilations, begin, end, out = window(g, x)
    c = x.shape[1]
    groups = g.choice([d for d in (1, 1, 2, c) if c % d == 0])
    m = groups * g.integer(1, 5) if groups < c or c == 1 else c * g.integer(1, 2)
    fan = c // groups * int(np.prod(kernel))
    inputs = [x, g.weights(m, c // groups, *kernel, scale=fan ** -0.5)] + ([g.weights(m)] if g.chance(0.7) else [])
    y = g.node('Conv', inputs, [(x.shape[0], m, *out)], group=groups, kernel_shape=kernel, strides=strides,
               dilations=dilations, pads=[*begin, *end])
    if g.chance(0.3):
        scale = [g.constant((g.rng.random(m) + 0.5).astype(np.float32)) for _ in range(4)]
        y = g.node('BatchNormalization', [y, *scale], [y.shape])
    if g.chance(0.5):
        g.node(g.choice(['Relu', 'Sigmoid', 'HardSwish']), [y], [y.shape])


def conv_transpose(g):
    x = g.pick(spatial)
    c, m = x.shape[1], g.integer(1, 6)
    kernel, strides = [g.integer(1, 3) for _ in x.shape[2:]], [g.integer(1, 2) for _ in x.shape[2:]]
    out = [(d - 1) * s + k for d, s, k in zip(x.shape[2:], strides, kernel)]
    g.node('ConvTranspose', [x, g.weights(c, m, *kernel, scale=c ** -0.5)], [(x.shape[0], m, *out)], strides=strides,
           kernel_shape=kernel)


def pool(g):
    x = g.pick(spatial)
    kernel, strides, _, begin, end, out = window(g, x, False)
    more = {'count_include_pad': g.integer(0, 1)} if g.chance(0.5) else None
    g.node('AveragePool' if more else 'MaxPool', [x], [(*x.shape[:2], *out)], exact=x.exact and not more,
           kernel_shape=kernel, strides=strides, pads=[*begin, *end], **(more or {}))


def global_pool(g):
    x = g.pick(spatial)
    g.node(g.choice(['GlobalAveragePool', 'GlobalMaxPool']), [x], [(*x.shape[:2], *[1] * (len(x.shape) - 2))])


def layer_norm(g):
    x = g.pick(lambda t: t.shape and t.shape[-1] > 1)
    g.node('LayerNormalization', [x, g.weights(x.shape[-1]), g.weights(x.shape[-1])], [x.shape], epsilon=0.01)


def channel_norm(g):
    x = g.pick(lambda t: spatial(t) and np.prod(t.shape[2:]) > 1)
    c = x.shape[1]
    g.node('InstanceNormalization', [x, g.weights(c), g.weights(c)], [x.shape], epsilon=0.01)


def resize(g):
    x = g.pick(lambda t: len(t.shape) == 4)
    scale = [1, 1, g.choice([1, 2, 0.5]), g.choice([1, 2, 3])]
    out = [int(d * s) for d, s in zip(x.shape, scale)]
    if 0 in out:
        raise IndexError
    whole = all(d * s == o for d, s, o in zip(x.shape, scale, out))  # else align_corners means two things
    mode = g.choice(['nearest', 'linear'])
    coordinates = g.choice(['half_pixel', 'asymmetric', 'align_corners'][:2 + whole] if mode == 'linear' else ['asymmetric'])
    g.node('Resize', [x, '', g.constant(np.array(scale, np.float32))], [out], mode=mode, nearest_mode='floor',
           coordinate_transformation_mode=coordinates)


def regions(g):
    x = g.pick(lambda t: len(t.shape) == 4)
    count, (h, w) = g.integer(1, 4), x.shape[2:]
    corners = np.sort(g.rng.random((count, 2, 2)) * 1.3 - 0.1, axis=1).reshape(count, 4) * [w, h, w, h]
    batch = g.rng.integers(0, x.shape[0], count)
    size = [g.integer(1, 4), g.integer(1, 4)]
    scale = g.choice([1.0, 0.5])
    if g.chance(0.4):
        rois = np.concatenate([batch[:, None], np.round(corners)], axis=1).astype(np.float32)
        g.node('MaxRoiPool', [x, g.given(rois)], [(count, x.shape[1], *size)], pooled_shape=size, spatial_scale=scale)
        return
    rois = corners.astype(np.float32)
    rois = g.given(rois) if g.chance(0.7) else g.constant(rois)
    g.node('RoiAlign', [x, rois, g.constant(batch.astype(np.int64))], [(count, x.shape[1], *size)], output_height=size[0],
           output_width=size[1], sampling_ratio=g.integer(0, 2), spatial_scale=scale, mode='avg',
           coordinate_transformation_mode=g.choice(['half_pixel', 'output_half_pixel']))


def recurrent(g):
    x = g.pick(lambda t: len(t.shape) == 3 and t.shape[0] < 12)
    op, hidden, both = g.choice(['LSTM', 'GRU', 'RNN']), g.integer(1, 9), g.integer(1, 2)
    gates = {'LSTM': 4, 'GRU': 3, 'RNN': 1}[op]
    inputs = [x, g.weights(both, gates * hidden, x.shape[2], scale=0.3), g.weights(both, gates * hidden, hidden, scale=0.3)]
    more = {'linear_before_reset': g.integer(0, 1)} if op == 'GRU' else {}
    if g.chance(0.5):
        inputs.append(g.weights(both, 2 * gates * hidden))
    g.node(op, inputs, [(x.shape[0], both, x.shape[1], hidden)], hidden_size=hidden,
           direction='bidirectional' if both == 2 else g.choice(['forward', 'reverse']), **more)


MAKERS = [unary, unary, unary, bounded, positive, binary, binary, binary, outer, where, stepped, through_integers, quantized,
          transpose, transpose, reshape, reshape, concat, split, slice_, pad, gather, gather_elements, tile, unit_axes,
          expand, triangle, depth_space, reduce, reduce, arg, topk, soft, cumulative, matmul, matmul, self_product, gemm,
          conv, conv, conv, conv_transpose, pool, global_pool, layer_norm, channel_norm, resize, regions, recurrent]


def shape_of_input(g):
    rank = g.choice([1, 2, 3, 3, 4, 4, 4, 5])
    return [g.integer(1, 4) if i == 0 else g.integer(1, 12 if rank < 5 else 6) for i in range(rank)]


def generate(seed):
    """(model, {name: array}) for a seed; the same each time."""
    g = Graph(np.random.default_rng(seed))
    for _ in range(g.integer(1, 3)):
        g.input(shape_of_input(g))
    wanted = g.integer(2, 14)
    for _ in range(200):
        if len(g.nodes) >= wanted:
            break
        try:
            g.choice(MAKERS)(g)
        except IndexError:  # nothing in the pool suits this maker
            pass
    read = {name for node in g.nodes for name in node.input}
    outputs = [t for t in g.pool if t.name not in read and t.dtype == np.float32] or [g.pool[-1]]
    outputs += [t for t in g.pool[len(g.inputs):] if t.name in read and t.dtype == np.float32 and g.chance(0.1)]
    kind = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        g.nodes, 'random%d' % seed,
        [helper.make_tensor_value_info(t.name, kind(t.dtype), t.shape) for t, _ in g.inputs],
        [helper.make_tensor_value_info(t.name, kind(t.dtype), t.shape) for t in outputs], g.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', OPSET)], ir_version=10)
    return model, {t.name: value for t, value in g.inputs}
