"""Recurrent layers whose matrix of recurrence is large, which run as kernels per step, beside ONNX Runtime.

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


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    folder = os.path.join(args.build, 'recurrent')
    for case in CASES:
        if args.wanted(case[0]):
            os.makedirs(folder, exist_ok=True)
            suite.result(case[0], check(args, folder, case))
            shutil.rmtree(folder)
    suite.done()


if __name__ == '__main__':
    main()
