# SPDX-License-Identifier: Apache-2.0
"""Graphs that grow by running: every node is tried out in ONNX Runtime when it is drawn, by itself, and stays if it runs.
So its attributes may be anything, and what the graph computes is known. grown_nodes.py draws, grown_graphs.py makes models.

Every tensor has two values: one as computed, and one of operands shaken by a millionth at each node. How far they are
apart tells how far two correct implementations may be: a node whose result differs by more than a thousandth, or at all
if it is of integers, is left out. Inputs are on a grid of eighths, where sums and products are exact and stay unshaken.

Some graphs are odd: NaN, infinities, -0 and denormal numbers stand among their operands, and integers at the ends of
their types. What cannot be asked of ONNX Runtime then is in grown_rules.py. The sign of a zero that was computed is free:
being shaken flips some, so that what depends on it is left out.
"""
import numpy as np
import onnxruntime
from onnx import helper, numpy_helper

import grown_rules

MOST_ELEMENTS = 6000
LARGE = 1e4
OPSET = 21
FLOATS = (np.float32, np.float32, np.float32, np.float32, np.float64, np.float16)
SIGNED = (np.int64, np.int32, np.int8, np.int16, np.int64)
UNSIGNED = (np.uint8, np.uint32, np.uint64, np.uint16)
# results of operands on a grid are exact, unless they leave it
MOVING = set('''Identity Neg Transpose Reshape Flatten Concat Split Slice Pad Gather GatherElements GatherND Tile Expand
    Trilu DepthToSpace SpaceToDepth ReverseSequence Compress Where Squeeze Unsqueeze TopK CenterCropPad SequenceAt
    '''.split())
EXACT = MOVING | set('''Abs Relu Add Sub Mul Max Min Clip ReduceSum ReduceMax ReduceMin MatMul ScatterElements ScatterND
    Cast CumSum Floor Ceil Round Sign MaxPool Hardmax OneHot EyeLike ConstantOfShape GlobalMaxPool ThresholdedRelu Shrink Mod
    '''.split())


class Refused(Exception):
    """A node that cannot be, or would be of no use."""


class Value:
    """exact: rounding changes nothing in it; by default whatever is not shaken."""
    def __init__(self, name, array, shaken=None, constant=False, exact=None):
        self.name, self.array, self.constant = name, array, constant
        self.shaken = array if shaken is None else shaken
        self.exact = self.steady if exact is None else exact

    dtype = property(lambda self: self.array.dtype)
    shape = property(lambda self: self.array.shape)
    rank = property(lambda self: self.array.ndim)
    size = property(lambda self: self.array.size)
    steady = property(lambda self: self.shaken is self.array)


def same(a, b):
    return np.array_equal(a, b, equal_nan=a.dtype.kind == 'f')


def on_grid(a):
    """Whether sums of such numbers are exact in any order."""
    most = 2 ** (8 if a.dtype == np.float16 else 16)
    a = a[np.isfinite(a)].astype(np.float64) * 64
    return not a.size or np.abs(a).max() < most and np.all(a == np.round(a))


def rms_apart(a, b):
    """Relative RMS difference; infinite where they are not finite in the same places. Each number beyond LARGE counts for
    itself: it would hide all others."""
    a, b = np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
        return np.inf
    large = np.abs(b) >= LARGE
    most = np.max(np.abs(a[finite & large] / b[finite & large] - 1), initial=0)
    a, b = a[finite & ~large], b[finite & ~large]
    rms = np.sqrt(np.mean((a - b) ** 2)) / max(np.sqrt(np.mean(b ** 2)), 1e-3) if b.size else 0
    return float(max(most, rms))


def tolerance(v):
    """The relative RMS error that an output may have."""
    least = {2: 4e-3, 4: 1e-4, 8: 1e-4}[v.dtype.itemsize] if v.dtype.kind == 'f' else 0
    return max(least, 20 * rms_apart(v.shaken, v.array)) if least else 0


def kind_of(dtype):
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def port(value, dims=None):
    return helper.make_tensor_value_info(value.name, kind_of(value.dtype), value.shape if dims is None else dims)


def model_of(graph):
    return helper.make_model(graph, opset_imports=[helper.make_opsetid('', OPSET)], ir_version=10)


def evaluate(nodes, known, results, shaken):
    """Arrays named `results`, of operands {name: Value} as they are and, if `shaken`, as they are shaken."""
    feeds = [{n: v.array for n, v in known.items()}] + ([{n: v.shaken for n, v in known.items()}] if shaken else [])
    if len(nodes) > 1 or captured_by(nodes[0]):
        return session_of(nodes, known, results)(feeds)
    return [by_rules(nodes[0], known, results, feed) for feed in feeds]


def captured_by(node):
    return any(a.HasField('g') for a in node.attribute)


def by_rules(node, known, results, feed):
    """What a node makes of its operands: by the rules, or by ONNX Runtime where these have nothing to say."""
    operands = [feed[name] if name else None for name in node.input]
    found = grown_rules.rule_of(node, operands)
    if found:
        return found
    if grown_rules.is_unclear(node, operands):
        raise Refused('no rule')
    session = session_of([node], known, results)

    def run(values):
        return session([dict(zip(node.input, values))])[0]
    return grown_rules.corrected(node, operands, session([feed])[0], run)


def session_of(nodes, known, results):
    """A function from a list of operands to a list of results."""
    graph = helper.make_graph(nodes, 'g', [port(v, [None] * v.rank) for v in known.values()],
                              [helper.ValueInfoProto(name=n) for n in results])
    model = model_of(graph).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    try:
        session = onnxruntime.InferenceSession(model, options, providers=['CPUExecutionProvider'])
    except Exception as problem:  # its exceptions have no common class
        raise Refused(str(problem)) from problem

    def run(feeds):
        try:
            found = [session.run(None, {n: v for n, v in f.items() if n in known}) for f in feeds]
        except Exception as problem:
            raise Refused(str(problem)) from problem
        if any(not isinstance(v, np.ndarray) or v.dtype.kind not in 'fiub' for values in found for v in values):
            raise Refused('no array')
        return found
    return run


class Graph:
    """outer: the Graph that this one is a body of; it may use its tensors. odd: numbers may be any."""

    def __init__(self, rng, outer=None, odd=False):
        self.rng, self.outer, self.odd = rng, outer, outer.odd if outer else odd
        self.nodes, self.constants, self.inputs, self.fixed, self.pool, self.made = [], [], [], [], [], {}
        self.counter = outer.counter if outer else [0]
        self.depth = outer.depth + 1 if outer else 0

    # ---- drawing

    def integer(self, low, high):
        """low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def chance(self, p):
        return self.rng.random() < p

    def choice(self, items):
        if not len(items):
            raise Refused('none')
        return items[int(self.rng.integers(len(items)))]

    def visible(self):
        return (self.outer.visible() if self.outer else []) + self.pool

    def pick(self, wants=lambda v: True, dtypes=None):
        """One that suits, the newest more often."""
        found = [v for v in self.visible() if (dtypes is None or v.dtype.type in dtypes) and wants(v)]
        if not found:
            raise Refused('none suits')
        return found[max(self.integer(0, len(found) - 1), self.integer(0, len(found) - 1))]

    def floating(self, wants=lambda v: True):
        return self.pick(wants, FLOATS)

    def axis(self, x, end=0):
        """Of x, from either end; end=1: also behind the last one."""
        a = self.integer(0, x.rank - 1 + end)
        return a - x.rank - end if self.chance(0.3) else a

    def some_axes(self, x, least=1):
        count = self.integer(least, x.rank)
        axes = [int(a) for a in self.rng.permutation(x.rank)[:count]]
        return [a - x.rank if self.chance(0.3) else a for a in axes]

    # ---- what a graph is made of

    def name(self, stem):
        self.counter[0] += 1
        return '%s%d' % (stem, self.counter[0])

    def numbers(self, shape, dtype=np.float32):
        dtype = np.dtype(dtype)
        if dtype.kind == 'b':
            return self.rng.random(shape) < 0.5
        if dtype.kind in 'iu':
            info = np.iinfo(dtype)
            low, high = (info.min, info.max) if self.chance(0.2) else (max(info.min, -9), 9)
            values = self.rng.integers(low, high, shape, endpoint=True, dtype=dtype)
            return self.with_odd(np.asarray(values, dtype), [info.min, info.max])
        tiny = float(np.finfo(dtype).smallest_subnormal)
        return self.with_odd(np.asarray(self.rng.integers(-24, 25, shape) / 8, dtype), [
            np.nan, np.nan, np.inf, -np.inf, -0.0, tiny, -tiny])

    def with_odd(self, values, among):
        """In odd graphs, in most arrays: three kinds of numbers in the place of some elements, sometimes of a whole row."""
        if not self.odd or not values.size or self.chance(0.3):
            return values
        kinds = np.asarray(among, values.dtype)[self.rng.integers(0, len(among), 3)]
        hit = self.rng.random(values.shape) < self.choice([0.02, 0.1])
        hit.flat[self.integer(0, values.size - 1)] = True
        if values.ndim and self.chance(0.2):
            hit[tuple(self.integer(0, d - 1) for d in values.shape[:-1])] = True
        return np.where(hit, self.rng.choice(kinds, values.shape), values)

    def constant(self, values, dtype=None):
        value = Value(self.name('c'), np.asarray(values, dtype), constant=True)
        self.constants.append(numpy_helper.from_array(value.array, value.name))
        self.made[value.name] = value
        return value

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def input(self, array):
        value = Value(self.name('x'), array)
        self.inputs.append(value)
        self.made[value.name] = value
        self.pool.append(value)
        return value

    def operand(self, array):
        """A constant, or an input of the model, of fixed size."""
        if self.outer or self.chance(0.7):
            return self.constant(array)
        self.fixed.append(self.input(array))
        return self.fixed[-1]

    def weights(self, shape, dtype=np.float32, scale=None):
        """Of a layer whose sums have 1 / scale^2 terms."""
        values = self.rng.integers(-8, 9, shape) / 8
        values = values if scale is None else values * 2.0 ** np.round(np.log2(scale))
        return self.operand(np.asarray(values, dtype))

    def find(self, name):
        return self.made[name] if name in self.made else self.outer.find(name) if self.outer else None

    def node(self, op, inputs, outputs=1, bodies=(), **attributes):
        """Adds a node that runs; returns its output, or the list of several."""
        names = [self.name('t') for _ in range(outputs)]
        more = {key: body for key, body in bodies}
        node = helper.make_node(op, [i.name if i else '' for i in inputs], names, **attributes, **more)
        known = {i.name: i for i in inputs if i}
        for _, body in bodies:
            known.update(captured(self, body))
        exact = op in EXACT and all(v.exact for v in known.values())
        if self.odd and op not in MOVING:
            known = {n: self.unsteady(v) for n, v in known.items()}
        found = evaluate([node], known, names, not all(v.steady for v in known.values()))
        values = [self.judged(name, runs, exact, op in MOVING) for name, runs in zip(names, zip(*found))]
        self.nodes.append(node)
        self.pool.extend(values)
        self.made.update((v.name, v) for v in values)
        return values[0] if outputs == 1 else values

    def unsteady(self, v):
        """v with its large numbers shaken: what is left of them when they cancel out is decided by rounding."""
        if v.dtype.kind != 'f' or not np.any(np.isfinite(v.array) & (np.abs(v.array) >= LARGE)):
            return v
        with np.errstate(over='ignore', invalid='ignore'):
            noise = 1 + 1e-3 * self.rng.standard_normal(v.shape) * (np.abs(v.shaken) >= LARGE)
            return Value(v.name, v.array, np.asarray(v.shaken * noise, v.dtype), v.constant, v.exact)

    def judged(self, name, runs, exact, moves=False):
        """The Value of a result, unless it is of no use. moves: nothing is computed, zeros keep their signs."""
        plain, shaken = runs[0], runs[-1]
        if plain.size > MOST_ELEMENTS or plain.ndim > 6 or plain.shape != shaken.shape:
            raise Refused('shape')
        if plain.dtype.kind != 'f':
            if not same(plain, shaken):
                raise Refused('decided by rounding')
            return Value(name, plain)
        if self.odd:
            if plain.size and np.isnan(plain).mean() > 0.5:
                raise Refused('hardly a number')
            shaken = np.where((shaken == 0) & (self.rng.random(shaken.shape) < 0.5) & ~moves, -shaken, shaken)
        elif not np.isfinite(shaken).all() or not np.all(np.abs(plain.astype(np.float64)) < LARGE):
            raise Refused('large, or no number')
        if exact and on_grid(plain):
            return Value(name, plain, shaken if self.odd else None, exact=True)
        size = 1e-3 if plain.dtype == np.float16 else 1e-6
        with np.errstate(over='ignore', invalid='ignore'):
            shaken = np.asarray(shaken * (1 + size * self.rng.standard_normal(plain.shape)), plain.dtype)
        if rms_apart(shaken, plain) > (2e-2 if plain.dtype == np.float16 else 1e-3):
            raise Refused('ill-conditioned')
        return Value(name, plain, shaken)


def captured(graph, body):
    """{name: Value} of what a body takes from the graphs around it."""
    inside = {i.name for i in body.input} | {c.name for c in body.initializer}
    inside |= {o for n in body.node for o in n.output}
    used = [o.name for o in body.output]
    found = {}
    for n in body.node:
        used += n.input
        for a in n.attribute:
            if a.HasField('g'):
                found.update((k, v) for k, v in captured(graph, a.g).items() if k not in inside)
    found.update((name, graph.find(name)) for name in used if name and name not in inside)
    return {k: v for k, v in found.items() if v is not None}
