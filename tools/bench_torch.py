# SPDX-License-Identifier: Apache-2.0
"""One measured process of cyto-bench for PyTorch: make a module of an ONNX model, run it, print one line of numbers.

In:  DEVICE MODE MODEL THREADS SECONDS SEED [--dim NAME=N] [--shape NAME=AxB] [--range NAME=LO:HI] ...; DEVICE: cpu or
     cuda; MODE: eager, compile (torch.compile, max-autotune) or graphed (eager, captured once as a CUDA graph).
Out: the line of bench_common.report() on stdout; the inputs are those that bench_child.c makes. A run
     copies inputs to the device and outputs back, as ours does. peak_kb is memory of the device. THREADS are the CPU's.

What follows from sizes and constants alone is computed once; the rest becomes a torch.fx graph of calls that an author of
a PyTorch model would have written. Images are channels-last.
"""
import sys
import time

import numpy as np

try:
    import torch
    import torch.nn.functional as F
    from torch import fx
except ImportError as problem:
    sys.exit('%s is not installed in this Python' % problem.name)
try:
    import onnx
    from onnx import numpy_helper
except ImportError:
    import bench_onnx as onnx
    from bench_onnx import numpy_helper

import bench_common

OPS = {}


class Value:
    """A tensor of this run and, unless it is always the same, the node that computes it."""

    def __init__(self, tensor, node=None):
        self.tensor, self.node = tensor, node

    def list(self):
        return self.tensor.tolist()


def op(*names):
    def add(function):
        OPS.update((name, function) for name in names)
        return function
    return add


class Builder:
    """Runs a model once and writes down what it called."""

    def __init__(self, device):
        self.device, self.root, self.graph, self.constants = device, torch.nn.Module(), fx.Graph(), {}

    def operand(self, x):
        if not isinstance(x, Value):
            return [self.operand(i) for i in x] if isinstance(x, (list, tuple)) else x
        if x.node is not None:
            return x.node
        if x.tensor not in self.constants:
            name = 'c%d' % len(self.constants)
            self.root.register_buffer(name, x.tensor.to(self.device))
            self.constants[x.tensor] = self.graph.get_attr(name)
        return self.constants[x.tensor]

    def call(self, function, *args, **kw):
        values = [v for a in args for v in (a if isinstance(a, (list, tuple)) else [a]) if isinstance(v, Value)]
        moves = any(v.node is not None for v in values)

        def real(x):
            if isinstance(x, Value):
                return x.tensor.to(self.device) if moves else x.tensor
            return [real(i) for i in x] if isinstance(x, (list, tuple)) else x
        out = function(*[real(a) for a in args], **kw)
        node = self.graph.call_function(function, tuple(self.operand(a) for a in args), kw) if moves else None
        if isinstance(out, tuple):
            return [Value(o, None if node is None else self.graph.call_function(_item, (node, i)))
                    for i, o in enumerate(out)]
        return Value(out, node)


def _item(values, i):
    return values[i]


# ---- operators: (builder, inputs, attributes, outputs wanted) -> a value, or a list of them ----

def simple(name, function):
    OPS[name] = lambda b, x, a, n: b.call(function, *x)


for _name, _function in {
        'Relu': F.relu, 'Sigmoid': torch.sigmoid, 'Tanh': torch.tanh, 'Erf': torch.erf, 'Exp': torch.exp, 'Log': torch.log,
        'Sqrt': torch.sqrt, 'Abs': torch.abs, 'Neg': torch.neg, 'Reciprocal': torch.reciprocal, 'Floor': torch.floor,
        'Sin': torch.sin, 'Cos': torch.cos, 'Not': torch.logical_not, 'HardSwish': F.hardswish, 'Softplus': F.softplus,
        'Add': torch.add, 'Sub': torch.sub, 'Mul': torch.mul, 'Pow': torch.pow, 'MatMul': torch.matmul, 'Where': torch.where,
        'Equal': torch.eq, 'Less': torch.lt, 'Greater': torch.gt, 'LessOrEqual': torch.le, 'GreaterOrEqual': torch.ge,
        'And': torch.logical_and, 'Or': torch.logical_or, 'PRelu': lambda x, s: torch.where(x < 0, x * s, x)}.items():
    simple(_name, _function)
OPS['Identity'] = OPS['Dropout'] = lambda b, x, a, n: x[0]


@op('Div')
def _(b, x, a, n):
    return b.call(torch.div, *x, **({} if x[0].tensor.is_floating_point() else {'rounding_mode': 'trunc'}))


@op('Min', 'Max')
def _(b, x, a, n):
    out = x[0]
    for other in x[1:]:
        out = b.call(torch.minimum if a['op'] == 'Min' else torch.maximum, out, other)
    return out


@op('Clip')
def _(b, x, a, n):
    low, high = [x[i].tensor.item() if len(x) > i and x[i] else a.get(k) for i, k in ((1, 'min'), (2, 'max'))]
    return b.call(torch.clamp, x[0], low, high)


@op('LeakyRelu')
def _(b, x, a, n):
    return b.call(F.leaky_relu, x[0], a.get('alpha', 0.01))


@op('HardSigmoid')
def _(b, x, a, n):
    return b.call(lambda v, s, t: torch.clamp(v * s + t, 0, 1), x[0], a.get('alpha', 0.2), a.get('beta', 0.5))


@op('Gelu')
def _(b, x, a, n):
    return b.call(F.gelu, x[0], approximate=a.get('approximate', 'none'))


def pads_of(b, x, a, fill=0):
    """The input, padded by itself unless the padding is the same on both sides, and that padding."""
    rank = x.tensor.dim() - 2
    pads = a.get('pads', [0] * (2 * rank))
    if a.get('auto_pad', 'NOTSET') not in ('NOTSET', 'VALID'):
        raise NotImplementedError('auto_pad')
    if pads[:rank] == pads[rank:]:
        return x, pads[:rank]
    both = [p for i in reversed(range(rank)) for p in (pads[i], pads[rank + i])]
    return b.call(F.pad, x, both, value=fill), [0] * rank


@op('Conv')
def _(b, x, a, n):
    rank = x[0].tensor.dim() - 2
    data, pad = pads_of(b, x[0], a)
    function = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    return b.call(function, data, x[1], x[2] if len(x) > 2 else None, a.get('strides', [1] * rank), pad,
                  a.get('dilations', [1] * rank), a.get('group', 1))


@op('ConvTranspose')
def _(b, x, a, n):
    rank, pads = x[0].tensor.dim() - 2, a.get('pads')
    if pads and pads[:rank] != pads[rank:]:
        raise NotImplementedError('pads that differ')
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
    return b.call(function, x[0], x[1], x[2] if len(x) > 2 else None, a.get('strides', [1] * rank),
                  pads[:rank] if pads else 0, a.get('output_padding', [0] * rank), a.get('group', 1),
                  a.get('dilations', [1] * rank))


@op('MaxPool')
def _(b, x, a, n):
    rank = x[0].tensor.dim() - 2
    data, pad = pads_of(b, x[0], a, float('-inf'))
    return b.call((F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1], data, a['kernel_shape'],
                  a.get('strides', [1] * rank), pad, a.get('dilations', [1] * rank), bool(a.get('ceil_mode', 0)))


@op('AveragePool')
def _(b, x, a, n):
    rank = x[0].tensor.dim() - 2
    data, pad = pads_of(b, x[0], a)
    return b.call((F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[rank - 1], data, a['kernel_shape'],
                  a.get('strides', [1] * rank), pad, bool(a.get('ceil_mode', 0)), bool(a.get('count_include_pad', 0)))


@op('GlobalAveragePool')
def _(b, x, a, n):
    return b.call(torch.mean, x[0], list(range(2, x[0].tensor.dim())), True)


@op('Gemm')
def _(b, x, a, n):
    if a.get('alpha', 1) != 1 or a.get('beta', 1) != 1:
        raise NotImplementedError('alpha and beta')
    left = b.call(torch.t, x[0]) if a.get('transA') else x[0]
    right = x[1] if a.get('transB') else b.call(torch.t, x[1])
    return b.call(F.linear, left, right, x[2] if len(x) > 2 else None)


@op('Softmax', 'LogSoftmax')
def _(b, x, a, n):
    return b.call(F.softmax if a['op'] == 'Softmax' else F.log_softmax, x[0], a.get('axis', -1))


@op('LayerNormalization')
def _(b, x, a, n):
    shape = list(x[0].tensor.shape[a.get('axis', -1):])
    return b.call(F.layer_norm, x[0], shape, x[1], x[2] if len(x) > 2 else None, a.get('epsilon', 1e-5))


@op('BatchNormalization')
def _(b, x, a, n):
    return b.call(F.batch_norm, x[0], x[3], x[4], x[1], x[2], False, 0.0, a.get('epsilon', 1e-5))


@op('InstanceNormalization')
def _(b, x, a, n):
    return b.call(F.instance_norm, x[0], None, None, x[1], x[2], True, 0.0, a.get('epsilon', 1e-5))


@op('ReduceMean', 'ReduceSum', 'ReduceMax', 'ReduceMin')
def _(b, x, a, n):
    axes = x[1].list() if len(x) > 1 and x[1] else a.get('axes', list(range(x[0].tensor.dim())))
    function = {'ReduceMean': torch.mean, 'ReduceSum': torch.sum, 'ReduceMax': torch.amax, 'ReduceMin': torch.amin}[a['op']]
    return b.call(function, x[0], axes, bool(a.get('keepdims', 1)))


@op('Concat')
def _(b, x, a, n):
    return b.call(torch.cat, list(x), a['axis'])


@op('Split')
def _(b, x, a, n):
    size, axis = x[0].tensor.shape[a.get('axis', 0)], a.get('axis', 0)
    parts = x[1].list() if len(x) > 1 and x[1] else a.get('split', -(-size // n))
    return b.call(torch.split, x[0], parts, axis)


@op('Slice')
def _(b, x, a, n):
    starts, ends = (x[1].list(), x[2].list()) if len(x) > 1 else (a['starts'], a['ends'])
    axes = x[3].list() if len(x) > 3 and x[3] else a.get('axes', list(range(len(starts))))
    steps = x[4].list() if len(x) > 4 else [1] * len(starts)
    out = x[0]
    for start, end, axis, step in zip(starts, ends, axes, steps):
        first, last, step = slice(start, end, step).indices(out.tensor.shape[axis])
        if step < 0:
            raise NotImplementedError('steps backwards')
        index = [slice(None)] * (axis % out.tensor.dim()) + [slice(first, max(first, last), step)]
        out = b.call(_take, out, tuple(index))
    return out


def _take(x, index):
    return x[index]


@op('Reshape')
def _(b, x, a, n):
    shape = [x[0].tensor.shape[i] if d == 0 else d for i, d in enumerate(x[1].list())]
    return b.call(torch.reshape, x[0], shape)


@op('Flatten')
def _(b, x, a, n):
    axis = a.get('axis', 1)
    return b.call(torch.reshape, x[0], [int(np.prod(x[0].tensor.shape[:axis], dtype=np.int64)), -1])


@op('Transpose')
def _(b, x, a, n):
    return b.call(torch.permute, x[0], a.get('perm', list(reversed(range(x[0].tensor.dim())))))


@op('Squeeze', 'Unsqueeze')
def _(b, x, a, n):
    shape = list(x[0].tensor.shape)
    axes = x[1].list() if len(x) > 1 else a.get('axes', [i for i, d in enumerate(shape) if d == 1])
    if a['op'] == 'Squeeze':
        gone = {i % len(shape) for i in axes}
        return b.call(torch.reshape, x[0], [d for i, d in enumerate(shape) if i not in gone])
    rank = len(shape) + len(axes)
    for axis in sorted(i % rank for i in axes):
        shape.insert(axis, 1)
    return b.call(torch.reshape, x[0], shape)


@op('Gather')
def _(b, x, a, n):
    axis, index = a.get('axis', 0), x[1].tensor
    if index.dim() == 0 and x[1].node is None:
        return b.call(torch.select, x[0], axis, int(index) % x[0].tensor.shape[axis])
    shape = x[0].tensor.shape
    out = b.call(torch.index_select, x[0], axis, b.call(torch.reshape, x[1], [-1]))
    axis %= len(shape)
    return b.call(torch.reshape, out, list(shape[:axis]) + list(index.shape) + list(shape[axis + 1:]))


@op('Expand')
def _(b, x, a, n):
    return b.call(torch.broadcast_to, x[0], list(np.broadcast_shapes(tuple(x[0].tensor.shape), tuple(x[1].list()))))


@op('Cast')
def _(b, x, a, n):
    types = {1: torch.float32, 10: torch.float16, 16: torch.bfloat16, 11: torch.float64, 7: torch.int64, 6: torch.int32,
             9: torch.bool, 2: torch.uint8, 3: torch.int8}
    return b.call(_cast, x[0], types[a['to']])


def _cast(x, dtype):
    return x.to(dtype)


@op('Shape')
def _(b, x, a, n):
    return Value(torch.tensor(list(x[0].tensor.shape)[a.get('start', 0):a.get('end', None)]))


@op('Constant')
def _(b, x, a, n):
    value = next(v for k, v in a.items() if k.startswith('value'))
    return Value(torch.from_numpy(numpy_helper.to_array(value).copy()) if hasattr(value, 'dims') else torch.tensor(value))


@op('ConstantOfShape')
def _(b, x, a, n):
    value = numpy_helper.to_array(a['value']) if 'value' in a else np.zeros(1, np.float32)
    return Value(torch.from_numpy(np.full(x[0].list(), value[0], value.dtype)))


@op('Range')
def _(b, x, a, n):
    return Value(torch.arange(*[v.tensor.item() for v in x], dtype=x[0].tensor.dtype))


@op('Pad')
def _(b, x, a, n):
    pads, rank = x[1].list() if len(x) > 1 else a['pads'], x[0].tensor.dim()
    both = [p for i in reversed(range(rank)) for p in (pads[i], pads[rank + i])]
    mode = {'constant': 'constant', 'reflect': 'reflect', 'edge': 'replicate'}[a.get('mode', 'constant')]
    value = {'value': x[2].tensor.item() if len(x) > 2 and x[2] else 0} if mode == 'constant' else {}
    return b.call(F.pad, x[0], both[:4] if mode != 'constant' else both, mode, **value)


@op('Resize')
def _(b, x, a, n):
    rank, shape = x[0].tensor.dim() - 2, x[0].tensor.shape
    if len(x) > 3 and x[3]:
        sizes = x[3].list()[2:]
    else:
        sizes = [int(d * s) for d, s in zip(shape[2:], x[2].list()[2:])]
    mode, how = a.get('mode', 'nearest'), a.get('coordinate_transformation_mode', 'half_pixel')
    if mode == 'nearest' and (how != 'asymmetric' or a.get('nearest_mode', 'round_prefer_floor') != 'floor') and any(
            s % d for s, d in zip(sizes, shape[2:])):
        raise NotImplementedError('nearest by ' + how)
    if mode == 'nearest':
        return b.call(F.interpolate, x[0], sizes)
    if mode != 'linear' or how not in ('align_corners', 'half_pixel', 'pytorch_half_pixel'):
        raise NotImplementedError('%s by %s' % (mode, how))
    return b.call(F.interpolate, x[0], sizes, mode=('linear', 'bilinear', 'trilinear')[rank - 1],
                  align_corners=how == 'align_corners')


# ---- a module of a model ----

def channels_last(tensor):
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def build(model, feeds, device):
    """The fx module, and its inputs on the device."""
    b, values, inputs = Builder(device), {}, []
    for t in model.graph.initializer:
        tensor = torch.from_numpy(numpy_helper.to_array(t).copy())
        values[t.name] = Value(channels_last(tensor) if tensor.dim() == 4 else tensor)
    for name, array in feeds.items():
        tensor = channels_last(torch.from_numpy(array).to(device))
        inputs.append(tensor)
        values[name] = Value(tensor, b.graph.placeholder('x%d' % len(inputs)))
    for node in model.graph.node:
        if node.op_type not in OPS or node.domain not in ('', 'ai.onnx'):
            raise NotImplementedError("operator '%s'" % node.op_type)
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        attributes = {k: v.decode() if isinstance(v, bytes) else v for k, v in attributes.items()}
        attributes['op'] = node.op_type
        arguments = [values[i] if i else None for i in node.input]
        out = OPS[node.op_type](b, arguments, attributes, len(node.output))
        values.update(zip(node.output, out if isinstance(out, list) else [out]))
    b.graph.output(tuple(b.operand(values[o.name]) for o in model.graph.output))
    return fx.GraphModule(b.root.to(device), b.graph).eval(), inputs


def compiled(module, device):
    """By torch.compile. What makes it fastest on a CPU besides is an option of its own: weights as constants."""
    if device == 'cpu':
        import torch._inductor.config
        torch._inductor.config.freezing = True
    return torch.compile(module, mode='max-autotune')


def graphed(module, inputs):
    """One launch of the captured module on fixed memory."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            module(*inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = module(*inputs)

    def launch(*arguments):
        graph.replay()
        return outputs
    return launch


def main():
    device, mode, path = sys.argv[1:4]
    threads, seconds, seed = int(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6])
    if device == 'cuda' and not torch.cuda.is_available():
        sys.exit('this PyTorch (%s) sees no CUDA device' % torch.__version__)
    if device == 'cpu':
        torch.set_num_threads(threads)
    pairs = bench_common.read_pairs(sys.argv[7:])
    model = onnx.load(path)
    feeds = bench_common.feeds_of(model, seed, pairs)
    before, start = bench_common.resident_kb(), time.perf_counter()
    with torch.inference_mode():
        module, inputs = build(model, feeds, device)
        run = compiled(module, device) if mode == 'compile' else module
        load = time.perf_counter() - start
        pinned = device == 'cuda'
        host = [channels_last(torch.from_numpy(a)).pin_memory() if pinned else channels_last(torch.from_numpy(a))
                for a in feeds.values()]
        results = []

        def once():
            for tensor, data in zip(inputs, host):
                tensor.copy_(data, non_blocking=True)
            for i, out in enumerate(run(*inputs)):
                if len(results) == i:
                    results.append(torch.empty(out.shape, dtype=out.dtype, pin_memory=pinned))
                results[i].copy_(out, non_blocking=True)
            if device == 'cuda':
                torch.cuda.synchronize()
        start = time.perf_counter()
        once()
        first = time.perf_counter() - start
        if mode == 'graphed':
            run = graphed(module, inputs)
        for _ in range(3):
            once()
        times = bench_common.timed(once, seconds)
    bench_common.report(load, first, times, torch.cuda.max_memory_allocated() // 1024 if device == 'cuda'
                        else bench_common.peak_kb() - before)


if __name__ == '__main__':
    main()
