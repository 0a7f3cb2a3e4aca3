# SPDX-License-Identifier: Apache-2.0
"""What the graphs of grown.py are made of: a function for each operator or group of them picks tensors that suit it, draws
its attributes and adds its nodes, or raises Refused.
"""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

from grown import FLOATS, SIGNED, UNSIGNED, Refused, evaluate, kind_of

F32, I64 = np.dtype(np.float32), np.dtype(np.int64)

# ---- element-wise

UNARY = '''Abs Neg Sigmoid Tanh Relu LeakyRelu Softplus Softsign Erf HardSigmoid HardSwish Elu Selu Gelu Mish Sin Cos Atan
    Celu Identity Exp Sqrt Log Reciprocal Sinh Cosh Asinh Tan Floor Ceil Round Sign ThresholdedRelu Shrink Asin Acosh
    Atanh'''.split()


def unary(g):
    x = g.floating()
    g.node(g.choice(UNARY), [x])


def unary_of_integers(g):
    x = g.pick(dtypes=SIGNED + UNSIGNED + (np.bool_,))
    g.node('Not' if x.dtype.kind == 'b' else g.choice(['Abs', 'Neg', 'Sign', 'BitwiseNot', 'Identity']), [x])


def partner(g, x):
    """A tensor or constant that broadcasts with x."""
    fits = [v for v in g.visible() if v.dtype == x.dtype and broadcasts(v.shape, x.shape)]
    if fits and g.chance(0.6):
        return g.choice(fits)
    shape = [1 if g.chance(0.4) else d for d in x.shape][g.integer(0, x.rank):]
    if g.chance(0.1) and x.size < 500:
        shape = [g.integer(1, 3), *[1] * (x.rank - len(shape)), *shape]
    return g.operand(g.numbers(shape, x.dtype))


def broadcasts(a, b):
    return all(m == n or m == 1 or n == 1 for m, n in zip(a[::-1], b[::-1]))


def binary(g):
    x = g.pick()
    y = partner(g, x)
    if x.dtype.kind == 'f':
        op = g.choice(['Add', 'Sub', 'Mul', 'Div', 'Max', 'Min', 'Add', 'Mul', 'Pow', 'PRelu', 'Mean', 'Sum'])
    elif x.dtype.kind == 'b':
        op = g.choice(['And', 'Or', 'Xor', 'Equal'])
    else:
        op = g.choice(['Add', 'Sub', 'Mul', 'Max', 'Min', 'BitwiseAnd', 'BitwiseOr', 'BitwiseXor'])
    inputs = [x, y] if g.chance(0.5) or op == 'PRelu' else [y, x]
    if op in ('Max', 'Min', 'Mean', 'Sum') and g.chance(0.4):
        inputs.append(partner(g, x))
    g.node(op, inputs)


def division(g):
    x = g.pick(dtypes=SIGNED + UNSIGNED)
    divisors = g.rng.integers(1, 12, [1 if g.chance(0.5) else d for d in x.shape])
    if g.odd:
        least = np.iinfo(x.dtype).min
        divisors = np.where(g.rng.random(divisors.shape) < 0.3, g.rng.choice([0, max(least, -1), 1], divisors.shape), divisors)
    elif x.dtype.kind == 'i' and not np.any(x.array == np.iinfo(x.dtype).min):
        divisors = divisors * g.rng.choice([-1, 1], divisors.shape)
    y = g.operand(np.asarray(divisors, x.dtype))
    if g.chance(0.5):
        g.node('Div', [x, y])
    else:
        g.node('Mod', [x, y], fmod=g.integer(0, 1))


def shift(g):
    x = g.pick(dtypes=UNSIGNED)
    amounts = g.rng.integers(0, (10 if g.odd else 8) * x.dtype.itemsize, [1 if g.chance(0.5) else d for d in x.shape])
    g.node('BitShift', [x, g.operand(np.asarray(amounts, x.dtype))], direction=g.choice(['LEFT', 'RIGHT']))


def compare(g):
    x = g.pick(lambda v: v.dtype.kind != 'b')
    g.node(g.choice(['Greater', 'Less', 'LessOrEqual', 'GreaterOrEqual', 'Equal']), [x, partner(g, x)])


def odd_test(g):
    x = g.floating()
    g.node(g.choice(['IsNaN', 'IsInf']), [x])


def where(g):
    x = g.pick()
    masks = [v for v in g.visible() if v.dtype == bool and broadcasts(v.shape, x.shape)]
    mask = g.choice(masks) if masks and g.chance(0.8) else g.operand(g.numbers(x.shape, bool))
    inputs = [x, partner(g, x)]
    g.node('Where', [mask, *inputs[::g.choice([1, -1])]])


def clip(g):
    x = g.pick(lambda v: v.dtype.kind != 'b')
    low, high = sorted([g.integer(0, 5), g.integer(0, 5)])
    g.node('Clip', [x, g.constant(np.array(low, x.dtype)) if g.chance(0.7) else None, g.constant(np.array(high, x.dtype))])


def cast(g):
    x = g.pick()
    to = np.dtype(g.choice(FLOATS + SIGNED + UNSIGNED + (np.bool_,)))
    if x.dtype.kind == 'f' and to.kind in 'iu':
        info = np.iinfo(to)
        if not g.odd and (np.any(x.array < info.min) or np.any(x.array > float(info.max // 2))):
            x = g.node('Clip', [x, g.constant(np.array(0, x.dtype)), g.constant(np.array(100, x.dtype))])
    g.node('Cast', [x], to=kind_of(to))


def narrow(g):
    """Through a type that NumPy lacks, and back."""
    x = g.pick(lambda v: v.dtype == F32 and v.exact)
    kind = g.choice([TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E4M3FNUZ,
                     TensorProto.FLOAT8E5M2FNUZ])
    names = [g.name('t'), g.name('t')]
    nodes = [helper.make_node('Cast', [x.name], names[:1], to=kind),
             helper.make_node('Cast', names[:1], names[1:], to=TensorProto.FLOAT)]
    (found,), = evaluate(nodes, {x.name: x}, names[1:], False)
    value = g.judged(names[1], (found, found), True)
    g.nodes.extend(nodes)
    g.pool.append(value)
    g.made[value.name] = value


# ---- moving elements

def transpose(g):
    x = g.pick(lambda v: v.rank > 1)
    g.node('Transpose', [x], perm=[int(i) for i in g.rng.permutation(x.rank)])


def factors(g, n, most=4):
    shape = []
    while n > 1 and len(shape) < most:
        shape.append(g.choice([d for d in range(1, min(n, 64) + 1) if n % d == 0]))
        n //= shape[-1]
    shape.insert(g.integer(0, len(shape)), n)
    return shape


def reshape(g):
    x = g.pick()
    if x.rank > 1 and g.chance(0.4):  # merges or splits one, keeps the others
        a = g.integer(0, x.rank - 2)
        shape = [0] * a + ([-1] if g.chance(0.5) else factors(g, x.shape[a], 2)) + [*x.shape[a + 2:]]
    else:
        shape = factors(g, x.size) if x.size else [*x.shape]
        if x.size and g.chance(0.4):
            shape[g.integer(0, len(shape) - 1)] = -1
    g.node('Reshape', [x, g.ints(*shape)])


def computed_reshape(g):
    """As exporters write it: sizes read from the tensor's shape."""
    x = g.pick(lambda v: v.rank > 1 and v.size)
    a = g.integer(0, x.rank - 2)
    shape = g.node('Shape', [x])
    before, after = g.node('Slice', [shape, g.ints(0), g.ints(a)]), g.node('Slice', [shape, g.ints(a + 2), g.ints(99)])
    wanted = g.node('Concat', [before, g.ints(-1), after], axis=0)
    y = g.node('Reshape', [x, wanted])
    if g.chance(0.5):
        y = g.node('Tanh' if y.dtype.kind == 'f' else 'Identity', [y])
        g.node('Reshape', [y, shape])


def flatten(g):
    x = g.pick(lambda v: v.rank)
    g.node('Flatten', [x], axis=g.axis(x, 1))


def concat(g):
    x = g.pick(lambda v: v.rank)
    axis = g.axis(x)
    fits = [v for v in g.visible() if v.dtype == x.dtype and v.rank == x.rank and
            all(m == n for i, (m, n) in enumerate(zip(v.shape, x.shape)) if i != axis % x.rank)]
    g.node('Concat', [x] + [g.choice(fits) for _ in range(g.integer(1, 3))], axis=axis)


def split(g):
    x = g.pick(lambda v: v.rank and max(v.shape) > 1)
    axis = g.axis(x)
    size, count = x.shape[axis], g.integer(2, 3)
    if g.chance(0.3):
        g.node('Split', [x], count, axis=axis, num_outputs=count)
        return
    cuts = sorted(g.integer(0, size) for _ in range(count - 1))
    g.node('Split', [x, g.ints(*np.diff([0, *cuts, size]))], count, axis=axis)


def slice_(g):
    x = g.pick(lambda v: v.rank)
    axes = g.some_axes(x)
    rows = []
    for a in axes:
        d, step = x.shape[a], g.choice([1, 1, 2, 3, -1, -1, -2])
        if g.chance(0.3) and step > 0:
            rows.append((g.integer(-d - 1, d), g.integer(-d - 1, d + 2), step))
        elif step > 0:
            rows.append((g.integer(0, d // 2), g.choice([d, 2 ** 63 - 1, -1]), step))
        else:
            rows.append((g.integer(d // 2, d), g.choice([-2 ** 63, -2 ** 63, 0]), step))
    starts, ends, steps = zip(*rows)
    g.node('Slice', [x, g.ints(*starts), g.ints(*ends), g.ints(*axes), g.ints(*steps)])


def pad(g):
    x = g.pick(lambda v: v.rank)
    axes, mode = g.some_axes(x), g.choice(['constant', 'constant', 'edge', 'reflect', 'wrap'])
    low = -1 if g.chance(0.2) and mode == 'constant' else 0
    most = [min(3, d - 1 if mode == 'reflect' else d) for d in (x.shape[a] for a in axes)]
    if min(most) < 0:
        raise Refused('empty')
    pads = [g.integer(low, max(m, low)) for m in most + most]
    value = g.constant(g.numbers((), x.dtype)) if mode == 'constant' and g.chance(0.5) else None
    g.node('Pad', [x, g.ints(*pads), value, g.ints(*axes)], mode=mode)


def places(g, size, shape):
    if not size:
        raise Refused('empty')
    kind = g.choice([np.int64, np.int64, np.int32])
    return g.operand(g.rng.integers(-size, size, shape).astype(kind))


def gather(g):
    x = g.pick(lambda v: v.rank)
    axis = g.axis(x)
    g.node('Gather', [x, places(g, x.shape[axis], g.choice([(), (1,), (3,), (2, 2), (0,)]))], axis=axis)


def gather_elements(g):
    x = g.pick(lambda v: v.rank)
    axis = g.axis(x)
    shape = [g.integer(1, d) if i != axis % x.rank and d and g.chance(0.3) else d for i, d in enumerate(x.shape)]
    g.node('GatherElements', [x, places(g, x.shape[axis], shape)], axis=axis)


def tuples(g, x, batch, depth, *outer):
    """Indices of `depth` axes of x behind `batch` ones."""
    sizes = x.shape[batch:batch + depth]
    if not all(sizes):
        raise Refused('empty')
    found = np.stack([g.rng.integers(-d, d, (*x.shape[:batch], *outer)) for d in sizes], -1)
    return g.operand(found.astype(np.int64))


def gather_nd(g):
    x = g.pick(lambda v: v.rank)
    batch = g.integer(0, min(1, x.rank - 1))
    g.node('GatherND', [x, tuples(g, x, batch, g.integer(1, x.rank - batch), g.integer(1, 4))], batch_dims=batch)


def scatter(g):
    x = g.pick(lambda v: v.rank and v.dtype.kind != 'b' and v.dtype.itemsize > 2 and v.size)
    axis, how = g.axis(x), g.choice(['none', 'add', 'max', 'min', 'mul'])
    shape = [g.integer(1, d) for d in x.shape]
    if how == 'none':  # each place once
        index = np.argsort(g.rng.random([x.shape[axis] if i == axis % x.rank else n for i, n in enumerate(shape)]), axis)
        index = np.take(index, range(shape[axis]), axis).astype(np.int64)
        index = g.operand(index - np.where(g.rng.random(index.shape) < 0.3, x.shape[axis], 0))
    else:
        index = places(g, x.shape[axis], shape)
    g.node('ScatterElements', [x, index, g.operand(g.numbers(shape, x.dtype))], axis=axis, reduction=how)


def scatter_nd(g):
    x = g.pick(lambda v: v.rank and v.dtype.kind != 'b' and v.dtype.itemsize > 2)
    depth, how = g.integer(1, x.rank), g.choice(['none', 'add', 'max', 'min', 'mul'])
    count = g.integer(1, 3) if how != 'none' else 1
    index = tuples(g, x, 0, depth, count)
    g.node('ScatterND', [x, index, g.operand(g.numbers((count, *x.shape[depth:]), x.dtype))], reduction=how)


def tile(g):
    x = g.pick(lambda v: v.rank)
    g.node('Tile', [x, g.ints(*[g.choice([1, 1, 2, 3]) for _ in x.shape])])


def unit_axes(g):
    x = g.pick(lambda v: v.rank < 5)
    ones = [i for i, d in enumerate(x.shape) if d == 1]
    if ones and g.chance(0.5):
        axes = [a for a in ones if g.chance(0.7)] or ones
        g.node('Squeeze', [x, g.ints(*axes)] if g.chance(0.8) else [x])
    else:
        rank = x.rank + g.integer(1, 2)
        axes = [int(a) for a in g.rng.permutation(rank)[:rank - x.rank]]
        g.node('Unsqueeze', [x, g.ints(*[a - rank if g.chance(0.3) else a for a in axes])])


def expand(g):
    x = g.pick()
    shape = [g.integer(1, 4) if d == 1 else g.choice([1, d]) for d in x.shape]
    if g.chance(0.2):
        shape.insert(0, g.integer(1, 3))
    g.node('Expand', [x, g.ints(*shape)])


def expand_like(g):
    x = g.pick()
    y = g.pick(lambda v: broadcasts(v.shape, x.shape))
    g.node('Expand', [x, g.node('Shape', [y])])


def triangle(g):
    x = g.pick(lambda v: v.rank > 1)
    k = [g.constant(np.array(g.integer(-3, 3)))] if g.chance(0.8) else []
    g.node('Trilu', [x, *k], upper=g.integer(0, 1))


def depth_space(g):
    x = g.pick(lambda v: v.rank == 4)
    if g.chance(0.5):
        g.node('DepthToSpace', [x], blocksize=g.choice([2, 3]), mode=g.choice(['DCR', 'CRD']))
    else:
        g.node('SpaceToDepth', [x], blocksize=g.choice([2, 3]))


def reverse_sequence(g):
    x = g.pick(lambda v: v.rank > 1 and v.size)
    time = g.integer(0, 1)
    lengths = g.rng.integers(1, x.shape[time] + 1, x.shape[1 - time])
    g.node('ReverseSequence', [x, g.operand(lengths.astype(np.int64))], time_axis=time, batch_axis=1 - time)


def compress(g):
    x = g.pick(lambda v: v.rank)
    axis = g.axis(x)
    g.node('Compress', [x, g.operand(g.numbers(x.shape[axis], bool))], axis=axis)


def found_where(g):
    x = g.pick(lambda v: v.dtype.kind in 'b' and v.rank)
    g.node('NonZero', [x])


def unique(g):
    x = g.pick(lambda v: v.exact and v.rank and v.dtype in (F32, I64) and v.size)
    g.node('Unique', [x], 4, sorted=1, **({'axis': g.axis(x)} if g.chance(0.5) else {}))


def one_hot(g):
    x = g.pick(dtypes=(np.int64, np.int32))
    depth = g.constant(np.array(g.integer(2, 9)))
    g.node('OneHot', [x, depth, g.operand(np.float32([0.5, -2]))], axis=g.choice([-1, 0, x.rank]))


def sizes(g):
    x = g.pick(lambda v: v.rank)
    if g.chance(0.3):
        y = g.node('Size', [x])
    else:
        y = g.node('Shape', [x], start=g.integer(-x.rank, x.rank - 1), end=g.integer(0, x.rank))
    if g.chance(0.5):
        y = g.node('Cast', [y], to=TensorProto.FLOAT)
        g.node('Mul', [y, g.constant(np.float32(0.125))])


def filled(g):
    x = g.pick(lambda v: v.rank and v.size < 500)
    y = g.node('ConstantOfShape', [g.node('Shape', [x])], value=numpy_helper.from_array(g.numbers((1,), x.dtype)))
    if g.chance(0.7):
        g.node('Sub' if x.dtype.kind != 'b' else 'Or', [x, y])


def counted(g):
    x = g.pick(lambda v: v.rank)
    size = g.node('Gather', [g.node('Shape', [x]), g.constant(np.array(g.axis(x)))], axis=0)
    y = g.node('Range', [g.constant(np.array(0)), size, g.constant(np.array(1))])
    if g.chance(0.5):
        g.node('Cast', [y], to=TensorProto.FLOAT)


def crop_pad(g):
    x = g.pick(lambda v: v.rank)
    axes = g.some_axes(x)
    g.node('CenterCropPad', [x, g.ints(*[g.integer(1, 9) for _ in axes])], axes=axes)


# ---- along axes

def tame(v):
    """Nothing in it whose square wraps: implementations differ."""
    return v.dtype.kind == 'f' or np.abs(v.array.astype(np.float64)).max(initial=0) < 1e4


REDUCE = '''ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp
    ReduceSumSquare ReduceMax ReduceSum ReduceMean'''.split()


def reduce(g):
    x = g.pick(lambda v: v.rank and v.size and tame(v))
    axes, op = g.some_axes(x), g.choice(REDUCE)
    more = [g.ints(*axes)] if g.chance(0.85) else [g.ints()] if g.chance(0.5) else []
    if x.dtype.kind != 'f' and 'Log' in op:
        raise Refused('floats only')
    g.node(op, [x, *more], keepdims=g.integer(0, 1), noop_with_empty_axes=g.integer(0, 1))


def arg(g):
    x = g.pick(lambda v: v.rank and v.size)
    g.node(g.choice(['ArgMax', 'ArgMin']), [x], axis=g.axis(x), keepdims=g.integer(0, 1), select_last_index=g.integer(0, 1))


def top(g):
    x = g.pick(lambda v: v.size and v.rank and v.exact)
    axis = g.axis(x)
    g.node('TopK', [x, g.ints(g.integer(0, x.shape[axis]))], 2, axis=axis, largest=g.integer(0, 1))


def soft(g):
    x = g.floating(lambda v: v.rank)
    g.node(g.choice(['Softmax', 'LogSoftmax', 'Hardmax']), [x], axis=g.axis(x))


def cumulative(g):
    x = g.pick(lambda v: v.rank)
    g.node('CumSum', [x, g.constant(np.array(g.axis(x)))], exclusive=g.integer(0, 1), reverse=g.integer(0, 1))


def norm(g):
    x = g.floating(lambda v: v.rank)
    kind = g.integer(0, 5)
    if kind < 2:
        axis = g.axis(x)
        shape = x.shape[axis:] if axis else x.shape
        inputs = [x, g.weights(shape, x.dtype)] + ([g.weights(shape, x.dtype)] if g.chance(0.5) else [])
        g.node('LayerNormalization', inputs, axis=axis, epsilon=0.01)
    elif kind == 2:
        g.node('LpNormalization', [x], axis=g.axis(x), p=g.integer(1, 2))
    elif x.rank < 3:
        raise Refused('rank')
    elif kind == 3:
        c = x.shape[1]
        g.node('GroupNormalization', [x, g.weights((c,), x.dtype), g.weights((c,), x.dtype)], epsilon=0.01,
               num_groups=g.choice([n for n in range(1, c + 1) if c % n == 0]))
    elif kind == 4:
        c = x.shape[1]
        g.node('InstanceNormalization', [x, g.weights((c,), x.dtype), g.weights((c,), x.dtype)], epsilon=0.01)
    else:
        g.node('LRN', [x], size=g.choice([1, 3, 5]), alpha=0.1, beta=0.75, bias=1.0)


# ---- products, windows

def matmul(g):
    x = g.floating(lambda v: v.rank)
    fits = [v for v in g.visible() if v.dtype == x.dtype and v.rank > 1 and x.rank > 1 and v.shape[-2] == x.shape[-1]]
    if fits and g.chance(0.4):
        y = g.choice(fits)
    else:
        k = x.shape[-1]
        batch = [g.choice([1, d]) for d in x.shape[:-2]][g.integer(0, max(x.rank - 2, 0)):] if g.chance(0.3) else []
        y = g.weights((*batch, k, *([g.integer(1, 20)] if g.chance(0.9) else [])), x.dtype, max(k, 1) ** -0.5)
    z = g.node('MatMul', [x, y])
    if g.chance(0.4) and z.rank:
        g.node('Add', [z, g.weights(z.shape[-1:], x.dtype)])


def gemm(g):
    x = g.floating(lambda v: v.rank == 2)
    a, b = g.integer(0, 1), g.integer(0, 1)
    m, k = x.shape[::-1] if a else x.shape
    n = g.integer(1, 20)
    c = [g.weights(g.choice([(n,), (m, 1), (1, n), (), (1,), (m, n)]), x.dtype)] if g.chance(0.7) else []
    w = g.weights((n, k) if b else (k, n), x.dtype, max(k, 1) ** -0.5)
    g.node('Gemm', [x, w, *c], transA=a, transB=b, alpha=g.choice([1.0, 0.5, -2.0]), beta=g.choice([1.0, 2.0, 0.0]))


def einsum(g):
    x = g.floating(lambda v: 0 < v.rank < 5 and v.size)
    letters = 'abcde'[:x.rank]
    shared = [c for c in letters if g.chance(0.6)]
    sizes = dict(zip(letters, x.shape), z=g.integer(1, 5))
    other = [str(c) for c in g.rng.permutation(shared + ['z'])]
    out = [str(c) for c in g.rng.permutation([*letters, 'z']) if g.chance(0.6)]
    y = g.weights([sizes[c] for c in other], x.dtype, 0.5)
    g.node('Einsum', [x, y], equation='%s,%s->%s' % (letters, ''.join(other), ''.join(out)))


def window(g, x, kernel):
    """Strides, dilations and pads: uneven, or of a named kind."""
    found = {'strides': [g.choice([1, 1, 2, 3]) for _ in kernel], 'dilations': [g.choice([1, 1, 1, 2, 3]) for _ in kernel]}
    if g.chance(0.2):
        found['auto_pad'] = g.choice(['SAME_UPPER', 'SAME_LOWER', 'VALID'])
        found['dilations'] = [1] * len(kernel)
    else:
        found['pads'] = [g.integer(0, max(k - 1, 0)) for k in kernel + kernel]
    return found


def spatial(v):
    return 3 <= v.rank <= 5 and v.size


def conv(g):
    x = g.pick(spatial, (np.float32,))
    kernel = [g.integer(1, min(5, d)) for d in x.shape[2:]]
    c = x.shape[1]
    groups = g.choice([d for d in (1, 1, 2, 3, c) if c % d == 0])
    m = groups * g.integer(1, 5) if groups < c or c == 1 else c * g.integer(1, 2)
    scale = (c // groups * np.prod(kernel)) ** -0.5
    inputs = [x, g.weights((m, c // groups, *kernel), scale=scale)] + ([g.weights((m,))] if g.chance(0.7) else [])
    y = g.node('Conv', inputs, group=groups, kernel_shape=kernel, **window(g, x, kernel))
    if g.chance(0.5):
        follow(g, y)


def follow(g, y):
    """What often stands behind a convolution."""
    how = g.integer(0, 3)
    if how == 0:
        bounds = [g.constant((g.integer(1, 9) * np.ones(y.shape[1]) / 4).astype(np.float32)) for _ in range(4)]
        y = g.node('BatchNormalization', [y, *bounds])
    elif how == 1:
        y = g.node('Mul', [y, g.node('Sigmoid', [y])])
    elif how == 2:
        y = g.node('Add', [y, partner(g, y)])
    g.node(g.choice(['Relu', 'LeakyRelu', 'HardSwish', 'Tanh']), [y])


def conv_transpose(g):
    x = g.pick(spatial, (np.float32,))
    kernel = [g.integer(1, 4) for _ in x.shape[2:]]
    c = x.shape[1]
    groups = g.choice([d for d in (1, 1, 2, c) if c % d == 0])
    more = window(g, x, kernel)
    if 'auto_pad' in more:
        more['strides'] = [min(k, s) for k, s in zip(kernel, more['strides'])]
    if 'pads' in more and g.chance(0.4):
        more['output_padding'] = [g.integer(0, max(s, d) - 1) for s, d in zip(more['strides'], more['dilations'])]
    inputs = [x, g.weights((c, g.integer(1, 4), *kernel), scale=c ** -0.5)]
    if g.chance(0.5):
        inputs.append(g.weights((inputs[1].shape[1] * groups,)))
    g.node('ConvTranspose', inputs, group=groups, kernel_shape=kernel, **more)


def pool(g):
    x = g.pick(spatial, (np.float32, np.float64, np.int8, np.uint8))
    op = g.choice(['AveragePool', 'MaxPool', 'MaxPool', 'LpPool']) if x.dtype.kind == 'f' else 'MaxPool'
    kernel = [g.integer(1, min(4, d)) for d in x.shape[2:]]
    more = window(g, x, kernel)
    n = len(kernel)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, more['dilations'])]
    if 'pads' in more and any(r > d + sum(more['pads'][i::n]) for i, (r, d) in enumerate(zip(reach, x.shape[2:]))):
        raise Refused('no window fits')
    more['ceil_mode'] = g.integer(0, 1) if 'pads' in more else 0
    if op == 'AveragePool':
        more['count_include_pad'] = g.integer(0, 1)
    g.node(op, [x], 2 if op == 'MaxPool' and g.chance(0.2) else 1, kernel_shape=kernel, **more)


def global_pool(g):
    x = g.pick(spatial, (np.float32,))
    g.node(g.choice(['GlobalAveragePool', 'GlobalMaxPool', 'GlobalLpPool']), [x])


def resize(g):
    x = g.pick(lambda v: 2 <= v.rank <= 5 and v.size, (np.float32, np.float32, np.uint8, np.int8, np.int32))
    mode = g.choice(['nearest', 'nearest', 'linear', 'cubic'] if x.dtype.kind == 'f' else ['nearest'])
    if mode != 'nearest' and x.rank != 4 and not (mode == 'linear' and x.rank in (3, 5)):
        raise Refused('rank')
    kept = x.rank - g.integer(1, min(2, x.rank))
    more = {'mode': mode, 'coordinate_transformation_mode': g.choice(
        ['half_pixel', 'asymmetric', 'align_corners', 'pytorch_half_pixel', 'half_pixel_symmetric'])}
    if mode == 'nearest':
        if more['coordinate_transformation_mode'] == 'half_pixel_symmetric':
            raise Refused('decided by rounding')
        more['nearest_mode'] = g.choice(['floor', 'ceil', 'round_prefer_floor', 'round_prefer_ceil'])
    if mode == 'cubic':
        more.update(cubic_coeff_a=g.choice([-0.75, -0.5]), exclude_outside=g.integer(0, 1))
    if g.chance(0.5):
        sizes_of = [*x.shape[:kept], *[g.integer(1, 2 * d + 1) for d in x.shape[kept:]]]
        g.node('Resize', [x, None, None, g.ints(*sizes_of)], **more)
    else:
        scales = [1] * kept + [g.choice([0.5, 2, 1.5, 3, 1, 0.75]) for _ in x.shape[kept:]]
        if 'align' in more['coordinate_transformation_mode'] and any(d * s % 1 for d, s in zip(x.shape, scales)):
            raise Refused('means two things')
        g.node('Resize', [x, None, g.constant(np.float32(scales))], **more)


def grid_sample(g):
    x = g.pick(lambda v: v.rank == 4 and v.size, (np.float32,))
    grid = g.rng.integers(-10, 11, (x.shape[0], g.integer(1, 4), g.integer(1, 4), 2)) / 8 + 0.01
    g.node('GridSample', [x, g.operand(grid.astype(np.float32))], mode=g.choice(['linear', 'nearest', 'cubic']),
           padding_mode=g.choice(['zeros', 'border', 'reflection']), align_corners=g.integer(0, 1))


# ---- integers for numbers

def quantized(g):
    x = g.pick(lambda v: v.exact and v.rank, (np.float32,))
    kind, axis = g.choice([np.uint8, np.int8, np.int16]), g.axis(x)
    shape = x.shape[axis] if g.chance(0.5) else ()
    scale = g.constant(np.float32(2.0) ** -g.rng.integers(2, 6, shape), np.float32)
    zero = g.constant(g.rng.integers(0, 20, shape), kind)
    q = g.node('QuantizeLinear', [x, scale, zero], axis=axis)
    g.node('DequantizeLinear', [q, scale, zero], axis=axis)


def integer_product(g):
    x = g.pick(lambda v: v.rank > 1, (np.uint8, np.int8))
    k, kind = x.shape[-1], g.choice([np.uint8, np.int8])
    w = g.operand(g.numbers((k, g.integer(1, 20)), kind))
    zeros = [g.constant(g.integer(0, 9), x.dtype)] if g.chance(0.6) else []
    if zeros and g.chance(0.5):
        zeros.append(g.constant(g.rng.integers(0, 9, g.choice([(), w.shape[-1:]])), kind))
    g.node('MatMulInteger', [x, w, *zeros])


def integer_conv(g):
    x = g.pick(spatial, (np.uint8,))
    kernel = [g.integer(1, min(3, d)) for d in x.shape[2:]]
    w = g.operand(g.numbers((g.integer(1, 5), x.shape[1], *kernel), np.uint8))
    g.node('ConvInteger', [x, w, g.constant(g.integer(0, 9), np.uint8)], kernel_shape=kernel, **window(g, x, kernel))


# each as often as it is listed
PLAIN = [unary] * 4 + [unary_of_integers] * 2 + [binary] * 8 + [cast] * 4 + [conv, reduce] * 3 + 2 * [
    compare, where, transpose, reshape, concat, slice_, pad, unit_axes, soft, norm, matmul, pool, resize] + [
    division, shift, odd_test, clip, narrow, computed_reshape, flatten, split, gather, gather_elements, gather_nd, scatter,
    scatter_nd, tile, expand, expand_like, triangle, depth_space, reverse_sequence, compress, found_where, unique, one_hot,
    sizes, filled, counted, crop_pad, arg, top, cumulative, gemm, einsum, conv_transpose, global_pool, grid_sample,
    quantized, integer_product, integer_conv]
