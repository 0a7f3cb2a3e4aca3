# SPDX-License-Identifier: Apache-2.0
"""Models of the standard's node tests with something wrong in their structure: mutants(count, seed) yields (what, bytes).

One to three changes each: attributes, element types, sizes, initializers, edges between nodes, node types, versions. Any
of them may still make a model. run.py says what must come of each.
"""
import glob
import os
import random

import numpy as np
import onnx
from onnx import AttributeProto as A
from onnx import numpy_helper

import list_tests

INTS = [-1, 0, 1, 2, 3, 7, 100, 65537, 2**31, 2**40, 2**62, 2**63 - 1, -2**63]
FLOATS = [0.0, -1.0, float('nan'), float('inf'), 1e38, 1e-45]
TEXTS = [b'', b'\xff\xfe', b'%s%n', b'SAME_UPPER', b'linear', b'i,j->ij', b'...i->']
LARGEST = 60000


def graphs(graph):
    """A graph and those inside."""
    yield graph
    for node in graph.node:
        for a in node.attribute:
            for inner in ([a.g] if a.type == A.GRAPH else []) + list(a.graphs):
                yield from graphs(inner)


def attribute(model, graph, rng):
    a = rng.choice(rng.choice([n for n in graph.node if n.attribute]).attribute)
    field, values = {A.INT: ('i', INTS), A.FLOAT: ('f', FLOATS), A.STRING: ('s', TEXTS), A.INTS: ('ints', INTS),
                     A.FLOATS: ('floats', FLOATS), A.STRINGS: ('strings', TEXTS)}.get(a.type, (None, None))
    if field is None or rng.random() < 0.15:
        a.type = rng.choice([A.INT, A.FLOAT, A.INTS, A.STRING, A.TENSOR, A.GRAPH, 0])
    elif field in ('i', 'f', 's'):
        setattr(a, field, rng.choice(values))
    elif rng.random() < 0.5:
        getattr(a, field)[rng.randrange(len(getattr(a, field)))] = rng.choice(values)
    else:
        getattr(a, field).append(rng.choice(values))


def port(model, graph, rng):
    t = rng.choice(list(graph.input) + list(graph.output)).type.tensor_type
    what = rng.randrange(5)
    if what < 2:
        t.elem_type = rng.randrange(27)
    elif what == 2:
        rng.choice(t.shape.dim).dim_value = rng.choice(INTS)
    elif what == 3:
        rng.choice(t.shape.dim).dim_param = rng.choice(['N', 'M', '', 'a+b'])
    else:
        t.shape.dim.add().dim_value = rng.choice([0, 1, 2])


def constant(model, graph, rng):
    """An initializer damaged, or an input of integers made one of extreme values."""
    lists = [i for i in graph.input if i.type.tensor_type.elem_type == 7 and len(i.type.tensor_type.shape.dim) == 1]
    if lists and rng.random() < 0.6:
        i = rng.choice(lists)
        values = [rng.choice(INTS) for _ in range(min(64, i.type.tensor_type.shape.dim[0].dim_value))]
        graph.initializer.append(numpy_helper.from_array(np.array(values, np.int64), i.name))
        return
    t, what = rng.choice(graph.initializer), rng.randrange(4)
    if what == 0:
        t.data_type = rng.randrange(27)
    elif what == 1:
        t.dims.append(rng.choice(INTS))
    elif what == 2:
        t.raw_data = t.raw_data[:len(t.raw_data) // 2]
    else:
        graph.initializer.remove(t)


def edge(model, graph, rng):
    """An input of a node becomes another value, or is missing."""
    names = [n for g in graphs(model.graph) for part in (g.input, g.initializer) for n in (p.name for p in part)]
    names += [o for g in graphs(model.graph) for n in g.node for o in n.output]
    node = rng.choice(graph.node)
    ends = node.output if rng.random() < 0.15 else node.input
    if rng.random() < 0.2:
        ends.append(rng.choice(names))
    else:
        ends[rng.randrange(len(ends))] = rng.choice(names + [''])


def kind(model, graph, rng):
    rng.choice(graph.node).op_type = rng.choice(KINDS)


def version(model, graph, rng):
    if rng.random() < 0.3:
        model.ir_version = rng.choice([0, -1, 1, 3, 99, 2**62])
    else:
        rng.choice(model.opset_import).version = rng.choice([0, 1, 7, 11, 13, 18, 21, 999, -1, 2**62])


KINDS = sorted({schema.name for schema in onnx.defs.get_all_schemas()})
CHANGES = [attribute] * 4 + [port] * 4 + [constant] * 2 + [edge] * 3 + [kind, version]


def mutants(count, seed):
    rng = random.Random(seed)
    paths = sorted(glob.glob(os.path.join(list_tests.node_folder(), '*', 'model.onnx')))
    paths = [p for p in paths if os.path.getsize(p) < LARGEST]
    while count:
        path = rng.choice(paths)
        model, done = onnx.load(path), []
        for change in rng.choices(CHANGES, k=rng.choice([1, 1, 2, 3])):
            try:
                change(model, rng.choice(list(graphs(model.graph))), rng)
                done.append(change.__name__)
            except (IndexError, ValueError, TypeError):  # nothing there to change
                pass
        if done:
            yield '%s (%s)' % (os.path.basename(os.path.dirname(path)), ', '.join(done)), model.SerializeToString()
            count -= 1
