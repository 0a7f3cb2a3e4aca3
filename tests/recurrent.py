"""Recurrent layers whose matrix of recurrence is large, which run as kernels per step, and those with integer weights,
beside ONNX Runtime.

In:  --build DIR, names (regular expressions) to restrict it.
Out: the closing line. A case is a cell with its direction and optional inputs; each is run at one and at two threads, and
     at a sequence length and a batch that are only known when it runs; and with a batch that is known before.
"""
import os
import shutil

import numpy as np
import onnx
from onnx import helper as h

import lib
import network

HIDDEN, WIDTH = 384, 24
GATES = {'LSTM': 4, 'GRU': 3, 'RNN': 1}

# name, operator, attributes, optional inputs: lengths, initial states, peepholes
CASES = [
    ('lstm', 'LSTM', {}, ''),
    ('lstm both lengths', 'LSTM', {'direction': 'bidirectional'}, 'lengths'),
    ('lstm reverse all', 'LSTM', {'direction': 'reverse'}, 'lengths initial peepholes'),
    ('gru after', 'GRU', {'linear_before_reset': 1, 'direction': 'bidirectional'}, 'lengths initial'),
    ('gru before', 'GRU', {'linear_before_reset': 0}, 'initial'),
    ('rnn', 'RNN', {'direction': 'bidirectional'}, 'lengths'),
]


def model(op, attributes, optional, rng, batch_dim='batch'):
    """The model, and what it takes at a length and a batch."""
    both, gates = 2 if attributes.get('direction') == 'bidirectional' else 1, GATES[op]
    hidden = HIDDEN * (2 if op == 'RNN' else 1)

    def constant(name, *dims):
        return onnx.numpy_helper.from_array((rng.standard_normal(dims) / hidden ** 0.5).astype(np.float32), name)
    weights = [constant('w', both, gates * hidden, WIDTH), constant('r', both, gates * hidden, hidden),
               constant('b', both, 2 * gates * hidden)]
    ports = [h.make_tensor_value_info('x', onnx.TensorProto.FLOAT, ['length', batch_dim, WIDTH])]
    inputs = ['x', 'w', 'r', 'b', '', '', '', '']
    if 'lengths' in optional:
        ports.append(h.make_tensor_value_info('lengths', onnx.TensorProto.INT32, [batch_dim]))
        inputs[4] = 'lengths'
    for at, name in ((5, 'h0'), (6, 'c0')):
        if 'initial' in optional and (name == 'h0' or op == 'LSTM'):
            ports.append(h.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [both, batch_dim, hidden]))
            inputs[at] = name
    if 'peepholes' in optional:
        weights.append(constant('p', both, 3 * hidden))
        inputs[7] = 'p'
    while not inputs[-1]:
        inputs.pop()
    outputs = ['y', 'y_h'] + ['y_c'] * (op == 'LSTM')
    node = h.make_node(op, inputs, outputs, hidden_size=hidden, **attributes)
    graph = h.make_graph([node], 'g', ports, [h.make_tensor_value_info(o, onnx.TensorProto.FLOAT, None) for o in outputs],
                         weights)

    def feed(length, batch):
        values = {'x': rng.standard_normal((length, batch, WIDTH)).astype(np.float32)}
        for p in ports[1:]:
            values[p.name] = rng.integers(1, length + 1, batch).astype(np.int32) if p.name == 'lengths' else \
                rng.standard_normal((both, batch, hidden)).astype(np.float32)
        return values
    return h.make_model(graph, opset_imports=[h.make_opsetid('', 17)], ir_version=8), feed


def check(args, folder, case):
    _, op, attributes, optional = case
    for batch_dim, runs in (('batch', ((9, 1, 1), (8, 3, 2))), (5, ((9, 5, 1), (8, 5, 2)))):
        proto, feed = model(op, attributes, optional, np.random.default_rng(3), batch_dim)
        wrong = network.beside_ort(args, folder, proto, [(threads, feed(length, batch)) for length, batch, threads in runs],
                                   1e-5)
        if wrong:
            return wrong
    return None


# name, hidden units (from 362 on: a kernel per step), directions, scales per column, type, zero points (None: of all kinds)
QUANTISED = [
    ('8 bits', 48, 1, False, np.int8, 0),
    ('8 bits both', 130, 2, True, np.int8, 0),
    ('8 bits zeros', 126, 2, True, np.uint8, None),
    ('8 bits odd', 35, 1, False, np.uint8, 128),
    ('8 bits large', 384, 1, True, np.int8, None),
    ('8 bits large zeros', 416, 2, False, np.uint8, 128),
]


def quantised(hidden, both, columns, dtype, zero, rng):
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
    ports = [h.make_tensor_value_info('x', onnx.TensorProto.FLOAT, ['length', 'batch', WIDTH]),
             h.make_tensor_value_info('h0', onnx.TensorProto.FLOAT, [both, 'batch', hidden])]
    outputs = [h.make_tensor_value_info(o, onnx.TensorProto.FLOAT, None) for o in ('y', 'y_h', 'y_c')]
    options = {'hidden_size': hidden, 'direction': 'bidirectional' if both == 2 else 'forward'}

    def proto(op, inputs, domain, constants):
        node = h.make_node(op, inputs, ['y', 'y_h', 'y_c'], domain=domain, **options)
        graph = h.make_graph([node], 'g', ports, outputs,
                             [onnx.numpy_helper.from_array(v, n) for n, v in constants.items()])
        return h.make_model(graph, opset_imports=[h.make_opsetid('', 17), h.make_opsetid('com.microsoft', 1)], ir_version=8)
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
                                                   ((9, 1, 1), (8, 3, 2))], 1e-4, oracle=oracle)
    code, text, _ = lib.run([args.cytoc, os.path.join(folder, 'm.onnx'), '-o', '-', '--emit=loops'])
    pairs = len([line for line in text.splitlines() if line.startswith('constant ') and line.endswith(', pairs')])
    if not why and (code or pairs != (both if hidden % 2 == 0 else 0)):
        return 'weights of %d directions lie in pairs, of %d' % (pairs, both)
    return why


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    folder = os.path.join(args.build, 'recurrent')
    for cases, run in ((CASES, check), (QUANTISED, check_quantised)):
        for case in cases:
            if args.wanted(case[0]):
                os.makedirs(folder, exist_ok=True)
                suite.result(case[0], run(args, folder, case))
                shutil.rmtree(folder)
    suite.done()


if __name__ == '__main__':
    main()
