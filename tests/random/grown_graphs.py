# SPDX-License-Identifier: Apache-2.0
"""Models of random graphs that grown.py grows, with branches, loops and scans in them.

In:  a seed. Out: a model whose inputs have symbols for some sizes, its inputs, and what its outputs should be.
"""
import numpy as np
from onnx import helper

from grown import FLOATS, SIGNED, UNSIGNED, Graph, Refused, Value, kind_of, model_of, port
from grown_nodes import F32, PLAIN


def grow(g, count, tries=None):
    """Adds some `count` nodes. Odd graphs have no bodies: ONNX Runtime runs these whole, not by the rules."""
    target = len(g.nodes) + count
    for _ in range(tries or 8 * count):
        if len(g.nodes) >= target:
            break
        try:
            g.choice(MAKERS if g.depth < 2 and not g.odd else PLAIN)(g)
        except (Refused, IndexError):
            pass


def finish(g, name, inputs, outputs):
    """outputs: Values; each gets a name of its own, because a body's output may not be an input or a captured tensor."""
    renamed = []
    for v in outputs:
        out = Value(g.name('o'), v.array, v.shaken)
        g.nodes.append(helper.make_node('Identity', [v.name], [out.name]))
        renamed.append(out)
    return helper.make_graph(g.nodes, name, [port(v, [None] * v.rank) for v in inputs],
                             [port(v, [None] * v.rank) for v in renamed], g.constants)


def branches(g):
    flags = [v for v in g.visible() if v.dtype == bool and v.size == 1]
    flag = g.choice(flags) if flags and g.chance(0.6) else g.operand(g.numbers((), bool))
    first, second = Graph(g.rng, g), Graph(g.rng, g)
    grow(first, g.integer(1, 4))
    grow(second, g.integer(1, 4))
    a = first.choice(first.pool) if first.pool else g.pick()
    alike = [v for v in second.pool if v.dtype == a.dtype and v.rank == a.rank]
    alike = alike or [v for v in second.visible() if v.dtype == a.dtype and v.shape == a.shape]
    if not alike:
        raise Refused('no such branch')
    sides = finish(first, 'then', [], [a]), finish(second, 'else', [], [g.choice(alike)])
    g.node('If', [flag], bodies=[('then_branch', sides[0]), ('else_branch', sides[1])])


def carried(g, body, starts):
    """The body's values that go into its next turn: alike in type and shape."""
    found = []
    for v in starts:
        alike = [w for w in body.pool if w.dtype == v.dtype and w.shape == v.shape and w is not v]
        found.append(g.choice(alike) if alike else v)
    return found


def own(g, body, v):
    """An input of a body that starts as v. Its later values are not known: floats count as inexact."""
    w = Value(body.name('i'), v.array, v.array if v.dtype.kind != 'f' else v.array.copy(), exact=v.dtype.kind != 'f')
    body.pool.append(w)
    body.made[w.name] = w
    return w


def loop(g):
    starts = [g.pick(lambda v: v.size < 500) for _ in range(g.integer(1, 2))]
    body = Graph(g.rng, g)
    turn = own(g, body, Value('', np.array(0)))
    go = own(g, body, Value('', np.array(True)))
    states = [own(g, body, v) for v in starts]
    grow(body, g.integer(2, 5))
    scans = [g.choice(body.pool) for _ in range(g.integer(0, 2))]
    flags = [v for v in body.pool if v.dtype == bool and v.rank == 0 and v is not go]
    again = g.choice(flags) if flags and g.chance(0.3) else go
    graph = finish(body, 'body', [turn, go, *states], [again, *carried(g, body, states), *scans])
    trips = g.operand(np.array(g.integer(1 if scans else 0, 4)))
    g.node('Loop', [trips, g.operand(np.array(True)) if g.chance(0.2) else None, *starts], len(starts) + len(scans),
           bodies=[('body', graph)])


def scan(g):
    x = g.pick(lambda v: v.rank and v.shape[0] and v.shape[0] < 9)
    start = g.pick(lambda v: v.size < 300)
    body = Graph(g.rng, g)
    state = own(g, body, start)
    row = own(g, body, Value('', x.array[0]))
    grow(body, g.integer(2, 5))
    scans = [g.choice(body.pool) for _ in range(g.integer(1, 2))]
    graph = finish(body, 'body', [state, row], [*carried(g, body, [state]), *scans])
    back = {'scan_input_directions': [g.integer(0, 1)], 'scan_output_directions': [g.integer(0, 1) for _ in scans]}
    g.node('Scan', [start, x], 1 + len(scans), bodies=[('body', graph)], num_scan_inputs=1, **back)


MAKERS = PLAIN + [branches, branches, loop, scan]


def generate(seed, odd=False):
    """(model, {name: array}, outputs as Values) for a seed; the same each time. No outputs: nothing came of it."""
    g = Graph(np.random.default_rng([7, seed]), odd=odd)
    for _ in range(g.integer(1, 3)):
        rank = g.choice([0, 1, 2, 2, 3, 3, 4, 4, 4, 5])
        low = 0 if g.chance(0.04) else 1
        shape = [g.integer(low, 3) if i == 0 else g.integer(low, 12 if rank < 5 else 5) for i in range(rank)]
        g.input(g.numbers(shape, F32 if g.chance(0.7) else g.choice(FLOATS + SIGNED + UNSIGNED + (np.bool_,))))
    grow(g, g.integer(8, 30), 160)
    read = {name for node in g.nodes for name in node.input}
    outputs = [v for v in g.pool if v not in g.inputs and (v.name not in read or g.chance(0.1))]
    fixed, dims = g.chance(0.5), {}
    for v in g.inputs:
        known = [fixed or v in g.fixed or d == 1 or g.chance(0.3) for d in v.shape]
        dims[v.name] = [d if known[i] else '%s_%d' % (v.name, i) for i, d in enumerate(v.shape)]
    model = model_of(helper.make_graph(
        g.nodes, 'grown%d' % seed, [port(v, dims[v.name]) for v in g.inputs],
        [helper.make_tensor_value_info(v.name, kind_of(v.dtype), [None] * v.rank) for v in outputs], g.constants))
    return model, {v.name: v.array for v in g.inputs}, outputs
