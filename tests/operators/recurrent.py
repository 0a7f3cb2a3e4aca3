# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers, whose matrix of recurrence is large (they run as kernels per step) or small, and those with integer
weights, beside ONNX Runtime.

In:  --build DIR, names (regular expressions) to restrict it.
Out: the closing line. A case is a cell with its direction and optional inputs; each is run at one and at two threads, and
     at a sequence length and batches that are only known when it runs; and with batches that are known before. What the
     program chooses between when it runs is looked at, too.
"""
import json
import os
import shutil
import sys

import numpy as np
from onnx import helper as h

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, TESTS)
import graphs
import lib
import network

WIDTH = 24
GATES = {'LSTM': 4, 'GRU': 3, 'RNN': 1}
BATCHES = (1, 2, 3, 4, 7, 16, 33)

# name, operator, hidden units, attributes, optional inputs: lengths, initial states, peepholes; branches: how many times
# the program of one direction chooses by the batch, and whether one of its forms is a product
CASES = [
    ('lstm', 'LSTM', 384, {}, '', 4, True),
    ('lstm both lengths', 'LSTM', 384, {'direction': 'bidirectional'}, 'lengths', 4, True),
    ('lstm reverse all', 'LSTM', 384, {'direction': 'reverse'}, 'lengths initial peepholes', 4, True),
    ('lstm narrow panels', 'LSTM', 200, {}, 'lengths', 4, True),
    ('lstm small', 'LSTM', 48, {'direction': 'bidirectional'}, 'lengths initial peepholes', 3, False),
    ('lstm clip', 'LSTM', 100, {'clip': 0.5, 'input_forget': 1}, 'initial', 4, True),
    ('lstm odd', 'LSTM', 21, {'direction': 'bidirectional'}, 'lengths', 3, False),
    ('lstm batch first', 'LSTM', 384, {'direction': 'bidirectional', 'layout': 1}, 'lengths initial', 4, True),
    ('gru after', 'GRU', 384, {'linear_before_reset': 1, 'direction': 'bidirectional'}, 'lengths initial', 4, True),
    ('gru after small', 'GRU', 40, {'linear_before_reset': 1, 'direction': 'reverse'}, 'lengths', 3, False),
    ('gru before', 'GRU', 384, {'linear_before_reset': 0}, 'initial', 3, False),
    ('gru before small', 'GRU', 24, {'linear_before_reset': 0, 'direction': 'bidirectional'}, 'lengths', 3, False),
    ('gru batch first', 'GRU', 50, {'linear_before_reset': 1, 'layout': 1}, 'initial', 3, False),
    ('rnn', 'RNN', 768, {'direction': 'bidirectional'}, 'lengths', 4, True),
    ('rnn small', 'RNN', 30, {'direction': 'reverse'}, 'initial', 3, False),
]


def recurrent_graph(op, hidden, attributes, optional, rng, batch_dim):
    """The graph, and what it takes at a length and a batch. Of layout 1 too: then the graph for ONNX Runtime, which has
    no such layout, transposes around the operator."""
    both, gates = 2 if attributes.get('direction') == 'bidirectional' else 1, GATES[op]
    first = attributes.get('layout', 0)

    def constant(name, *dims):
        return graphs.constant(name, (rng.standard_normal(dims) / hidden ** 0.5).astype(np.float32))
    weights = [constant('w', both, gates * hidden, WIDTH), constant('r', both, gates * hidden, hidden),
               constant('b', both, 2 * gates * hidden)]
    x_dims = [batch_dim, 'length', WIDTH] if first else ['length', batch_dim, WIDTH]
    state_dims = [batch_dim, both, hidden] if first else [both, batch_dim, hidden]
    ports = [graphs.port('x', np.float32, x_dims)]
    inputs = ['x', 'w', 'r', 'b', '', '', '', '']
    if 'lengths' in optional:
        ports.append(graphs.port('lengths', np.int32, [batch_dim]))
        inputs[4] = 'lengths'
    for at, name in ((5, 'h0'), (6, 'c0')):
        if 'initial' in optional and (name == 'h0' or op == 'LSTM'):
            ports.append(graphs.port(name, np.float32, state_dims))
            inputs[at] = name
    if 'peepholes' in optional:
        weights.append(constant('p', both, 3 * hidden))
        inputs[7] = 'p'
    while not inputs[-1]:
        inputs.pop()
    outputs = ['y', 'y_h'] + ['y_c'] * (op == 'LSTM')

    def proto(nodes):
        return graphs.model_of(nodes, ports, [graphs.port(o, np.float32, None) for o in outputs], weights)
    plain = {k: v for k, v in attributes.items() if k != 'layout'}
    swapped = [n + '_t' if n in ('x', 'h0', 'c0') else n for n in inputs]
    around = [h.make_node('Transpose', [n], [n + '_t'], perm=[1, 0, 2]) for n in inputs if n in ('x', 'h0', 'c0')]
    around.append(h.make_node(op, swapped, [o + '_t' for o in outputs], hidden_size=hidden, **plain))
    around += [h.make_node('Transpose', [o + '_t'], [o], perm=[2, 0, 1, 3] if o == 'y' else [1, 0, 2]) for o in outputs]

    def feed(length, batch):
        values = {'x': rng.standard_normal((batch, length, WIDTH) if first else (length, batch, WIDTH)).astype(np.float32)}
        for p in ports[1:]:
            values[p.name] = rng.integers(1, length + 1, batch).astype(np.int32) if p.name == 'lengths' else \
                rng.standard_normal((batch, both, hidden) if first else (both, batch, hidden)).astype(np.float32)
        return values
    return (proto([h.make_node(op, inputs, outputs, hidden_size=hidden, **attributes)]), feed,
            proto(around) if first else None)


def program_of(args, folder):
    """The lines of the program that the model in `folder` becomes, and the bytes of its weights."""
    stats, model = os.path.join(folder, 'stats.json'), os.path.join(folder, 'm.onnx')
    text = lib.run([args.cytoc, model, '-o', '-', '--emit=loops'])[1]
    lib.run([args.cytoc, model, '-o', os.path.join(folder, 'm.so'), '--stats=' + stats])
    with open(stats, encoding='utf-8') as f:
        return text.splitlines(), json.load(f)['weights_bytes']


def forms_wrong(args, folder, proto, both, branches, product):
    """Does the program not choose by the batch, or does it have a matrix twice?"""
    lines, stored = program_of(args, folder)
    found = len([line for line in lines if line.lstrip().startswith('if ')])
    if found != both * branches:
        return '%d branches, of %d' % (found, both * branches)
    if any(line.lstrip().startswith('launch gates(') for line in lines) != product:
        return 'a product of the states and R is %s' % ('missing' if product else 'there')
    sizes = {w.name: 4 * int(np.prod(w.dims)) for w in proto.graph.initializer}
    if stored > sum(sizes.values()) + sizes['r'] // 2:
        return '%d bytes of weights became %d' % (sum(sizes.values()), stored)
    return None


def check(args, folder, case):
    """Batches known only at run time, at both levels; no element at all; and batches that are known before."""
    _, op, hidden, attributes, optional, branches, product = case
    both = 2 if attributes.get('direction') == 'bidirectional' else 1
    proto, feed, oracle = recurrent_graph(op, hidden, attributes, optional, np.random.default_rng(3), 'batch')
    wrong = (network.beside_ort(args, folder, proto, [(1, feed(3, 1)), (2, feed(2, 6))], 1e-5, '-O0', oracle) or
             network.beside_ort(args, folder, proto, [(1 + (batch + n) % 2, feed(9 - n, batch)) for n in range(2)
                                                      for batch in BATCHES], 1e-5, oracle=oracle) or
             forms_wrong(args, folder, proto, both, branches, product))
    if not wrong:
        code, err = network.run_feeds(args, folder, os.path.join(folder, 'm.so'), feed(3, 0), 2)
        wrong = lib.reason(err, code) if code else None
    for batch in (3, 5):
        if not wrong:
            proto, feed, oracle = recurrent_graph(op, hidden, attributes, optional, np.random.default_rng(3), batch)
            wrong = network.beside_ort(args, folder, proto, [(1, feed(9, batch)), (2, feed(8, batch))], 1e-5, oracle=oracle)
    return wrong


# name, hidden units (from 362 on: a kernel per step), directions, scales per column, type, zero points (None: of all kinds)
QUANTISED = [
    ('8 bits', 48, 1, False, np.int8, 0),
    ('8 bits both', 130, 2, True, np.int8, 0),
    ('8 bits zeros', 126, 2, True, np.uint8, None),
    ('8 bits odd', 35, 1, False, np.uint8, 128),
    ('8 bits large', 384, 1, True, np.int8, None),
    ('8 bits large zeros', 416, 2, False, np.uint8, 128),
]


# With --strict, beside DynamicQuantizeLSTM itself: name, hidden units, direction, scales per column, type, zero points,
# lengths and peepholes, attributes, the largest relative difference
STRICT = [
    ('strict', 48, 'forward', False, np.int8, 0, False, False, {}, 1e-6),
    ('strict both', 40, 'bidirectional', True, np.int8, 0, False, False, {}, 1e-6),
    ('strict reverse', 35, 'reverse', False, np.uint8, 128, False, False, {}, 1e-6),
    ('strict unsigned', 100, 'forward', True, np.uint8, 128, False, True, {'clip': 1.5}, 1e-6),
    ('strict lengths', 24, 'forward', False, np.int8, 0, True, True, {'input_forget': 1}, 1e-6),
    ('strict activations', 24, 'forward', False, np.int8, 0, False, False,
     {'activations': ['HardSigmoid', 'Softsign', 'Relu'], 'activation_alpha': [0.3], 'activation_beta': [0.4]}, 1e-6),
    # ONNX Runtime walks a sequence that is shorter than others from its own end, so that other ends of sequences share a range
    ('strict lengths both', 24, 'bidirectional', False, np.int8, 0, True, False, {}, 1e-2),
]


def check_strict(args, folder, case):
    """The state rounded as ONNX Runtime rounds it: what is off comes of sums and activations alone, also after 40 steps."""
    name, hidden, direction, columns, dtype, zero, lengths, peepholes, attributes, limit = case
    both = 2 if direction == 'bidirectional' else 1
    proto, _ = quantised(hidden, both, columns, dtype, zero, np.random.default_rng(5), direction)
    rng, node = np.random.default_rng(9), proto.graph.node[0]
    node.attribute.extend(h.make_attribute(*item) for item in attributes.items())
    if lengths:
        node.input[4] = 'lengths'
        proto.graph.input.append(graphs.port('lengths', np.int32, ['batch']))
    if peepholes:
        node.input[7] = 'p'
        proto.graph.initializer.append(graphs.constant('p', (0.2 * rng.standard_normal((both, 3 * hidden))).astype(np.float32)))

    def feed(length, batch):
        feeds = {'x': rng.standard_normal((length, batch, WIDTH)).astype(np.float32),
                 'h0': (0.5 * rng.standard_normal((both, batch, hidden))).astype(np.float32)}
        if lengths:
            feeds['lengths'] = rng.integers(1, length + 1, batch).astype(np.int32)
            feeds['lengths'][0] = length
        return feeds
    for level in ('-O0', '-O3'):
        cases = [(threads, feed(length, batch)) for length, batch, threads in ((40, 1, 1), (30, 3, 2), (1, 2, 1))]
        why = network.beside_ort(args, folder, proto, cases, limit, level, options=['--strict'])
        if why:
            return '%s: %s' % (level, why)
    return None


def quantised(hidden, both, columns, dtype, zero, rng, direction=None):
    """A DynamicQuantizeLSTM, and the LSTM of the same numbers, which keeps the state in floats."""
    low = np.iinfo(dtype).min
    params, floats = [], []

    def matrix(depth):
        shape = (both, 4 * hidden) if columns else (both,)
        scale = ((0.5 + rng.random(shape)) / 127 / depth ** 0.5).astype(np.float32)
        zeros = (rng.integers(0, 256, shape) + low if zero is None else np.full(shape, zero)).astype(dtype)
        w = (rng.integers(0, 256, (both, depth, 4 * hidden)) + low).astype(dtype)
        spread = (slice(None), None) if columns else (slice(None), None, None)
        params.append((w, scale, zeros))
        floats.append(((w.astype(np.float32) - zeros[spread].astype(np.float32)) * scale[spread]).swapaxes(1, 2))
    matrix(WIDTH)
    matrix(hidden)
    b = (0.1 * rng.standard_normal((both, 8 * hidden))).astype(np.float32)
    ports = [graphs.port('x', np.float32, ['length', 'batch', WIDTH]), graphs.port('h0', np.float32, [both, 'batch', hidden])]
    outputs = [graphs.port(o, np.float32, None) for o in ('y', 'y_h', 'y_c')]
    options = {'hidden_size': hidden, 'direction': direction or ('bidirectional' if both == 2 else 'forward')}

    def proto(op, inputs, domain, constants):
        node = h.make_node(op, inputs, ['y', 'y_h', 'y_c'], domain=domain, **options)
        return graphs.model_of([node], ports, outputs, [graphs.constant(n, v) for n, v in constants.items()])
    (w, ws, wz), (r, rs, rz) = params
    start = ['x', 'w', 'r', 'b', '', 'h0', '']
    return (proto('DynamicQuantizeLSTM', [*start, '', 'ws', 'wz', 'rs', 'rz'], 'com.microsoft',
                  {'w': w, 'r': r, 'b': b, 'ws': ws, 'wz': wz, 'rs': rs, 'rz': rz}),
            proto('LSTM', start, '', {'w': floats[0], 'r': floats[1], 'b': b}))


def check_quantised(args, folder, case):
    """x lies on the grid that it is rounded to, so that what is off comes of the state: 16 bits of it."""
    name, hidden, both, columns, dtype, zero = case
    rng = np.random.default_rng(5)
    proto, oracle = quantised(hidden, both, columns, dtype, zero, rng)

    def feed(length, batch):
        x = rng.integers(-128, 128, (length, batch, WIDTH))
        x[0, 0, :2] = -128, 127
        return {'x': (x / 64).astype(np.float32), 'h0': (3 * rng.standard_normal((both, batch, hidden))).astype(np.float32)}
    why = network.beside_ort(args, folder, proto, [(threads, feed(length, batch)) for length, batch, threads in
                                                   ((9, 1, 1), (7, 2, 1), (8, 3, 2), (6, 4, 1), (5, 7, 2), (4, 16, 1))],
                             1e-4, oracle=oracle)
    pairs = len([line for line in program_of(args, folder)[0] if line.startswith('constant ') and line.endswith(', pairs')])
    if not why and pairs != (both if hidden % 2 == 0 else 0):
        return 'weights of %d directions lie in pairs, of %d' % (pairs, both)
    return why


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    folder = os.path.join(args.build, 'recurrent')
    for cases, run in ((CASES, check), (QUANTISED, check_quantised), (STRICT, check_strict)):
        for case in cases:
            if args.wanted(case[0]):
                os.makedirs(folder, exist_ok=True)
                suite.result(case[0], run(args, folder, case))
                shutil.rmtree(folder)
    suite.done()


if __name__ == '__main__':
    main()
