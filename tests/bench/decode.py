# SPDX-License-Identifier: Apache-2.0
"""Measures steps of a language model whose caches are bound to one piece of memory, and of one whose caches are copied,
beside ONNX Runtime with and without shared memory.

In:  --build DIR; --threads N (1), --rounds N (5): contenders take turns, the least time of all runs counts. The model is made
     here: a decoder of GroupQueryAttention as large as a Llama of 160 million parameters, weights random, caches with room
     for 2,048 tokens.
Out: the table; with --write this CPU's section of RESULTS-decode.md.
"""
import os
import re
import sys
import time

import numpy as np
import onnxruntime
from onnx import TensorProto as T

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import graphs
import lib
import network
import results

LAYERS, HIDDEN, HEADS, KEPT, WIDE, WORDS, ROOM = 12, 768, 12, 4, 3072, 32000, 2048
SIZE = HIDDEN // HEADS
USED, REPEAT = (128, 512, 1024, 2000), 8
CONTENDERS = ('copied', 'shared', 'ONNX Runtime, copied', 'ONNX Runtime, shared')


def decoder(path):
    g = graphs.Graph(1)

    def weight(*dims):
        return g.const(g.rng.standard_normal(dims, np.float32) / np.float32(dims[0] ** 0.5))

    def norm(x):
        return g.op('SimplifiedLayerNormalization', x, g.const(np.ones(HIDDEN, np.float32)), axis=-1, epsilon=1e-5)

    angle = np.arange(ROOM)[:, None] * 10000.0 ** (-np.arange(SIZE // 2) / (SIZE // 2))
    cos, sin = (g.const(f(angle), np.float32) for f in (np.cos, np.sin))
    x, caches = g.op('Gather', weight(WORDS, HIDDEN), 'ids'), []
    for i in range(LAYERS):
        y = norm(x)
        q, k, v = (g.op('MatMul', y, weight(HIDDEN, n * SIZE)) for n in (HEADS, KEPT, KEPT))
        names = ['%s_' + n + '_%d' % i for n in ('key', 'value')]
        y = g.op('GroupQueryAttention', q, k, v, *(n % 'past' for n in names), 'lengths', 'total', cos, sin, outputs=3,
                 domain='com.microsoft', num_heads=HEADS, kv_num_heads=KEPT, do_rotary=1)[0]
        g.nodes[-1].output[1:] = [n % 'present' for n in names]
        caches += names
        x = g.op('Add', x, g.op('MatMul', y, weight(HIDDEN, HIDDEN)))
        y = norm(x)
        z = g.op('MatMul', y, weight(HIDDEN, WIDE))
        z = g.op('Mul', g.op('Mul', z, g.op('Sigmoid', z)), g.op('MatMul', y, weight(HIDDEN, WIDE)))
        x = g.op('Add', x, g.op('MatMul', z, weight(WIDE, HIDDEN)))
    g.op('MatMul', norm(x), weight(HIDDEN, WORDS), out='logits')
    dims = ['batch', KEPT, 'room', SIZE]
    inputs = [('ids', T.INT64, ['batch', 'tokens']), ('lengths', T.INT32, ['batch']), ('total', T.INT32, [])]
    inputs += [(n % 'past', T.FLOAT, dims) for n in caches]
    outputs = [('logits', T.FLOAT, ['batch', 'tokens', WORDS])] + [(n % 'present', T.FLOAT, dims) for n in caches]
    g.save(path, [graphs.port(*p) for p in inputs], [graphs.port(*p) for p in outputs])
    return caches


def ours(args, library, folder, threads, share):
    code, out, err = lib.run([args.cyto_run, library, '--inputs-dir', folder, '--random', '1', '--dim', 'batch=1', '--dim',
                              'room=%d' % ROOM, '--threads', threads, '--repeat', REPEAT, *share], 300)
    found = re.search(r'runs: min ([\d.]+) ms', out)
    if not found:
        sys.exit('cyto-run: ' + lib.reason(err, code))
    return float(found.group(1))


def theirs(session, feeds, caches, share):
    io = session.io_binding()
    for name, value in feeds.items():
        io.bind_cpu_input(name, value)
    for name in caches:
        value = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((1, KEPT, ROOM, SIZE), np.float32))
        io.bind_ortvalue_input(name % 'past', value)
        io.bind_ortvalue_output(name % 'present', value if share else onnxruntime.OrtValue.ortvalue_from_numpy(value.numpy()))
    io.bind_output('logits')
    times = []
    for _ in range(REPEAT + 1):
        start = time.perf_counter()
        session.run_with_iobinding(io)
        times.append(time.perf_counter() - start)
    return min(times[1:]) * 1e3


def measure(args, threads, rounds):
    folder = os.path.join(args.build, 'bench-decode')
    os.makedirs(folder, exist_ok=True)
    model, library = (os.path.join(folder, 'm.' + n) for n in ('onnx', 'so'))
    caches = decoder(model)
    why = network.compile_model(args, model, library, '-O3')
    if why:
        sys.exit(why)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=['CPUExecutionProvider'])
    for used in USED:
        feeds = {'ids': np.int64([[7]]), 'lengths': np.int32([used]), 'total': np.array(used + 1, np.int32)}
        network.save_inputs(folder, feeds)
        times = {c: [] for c in CONTENDERS}
        for _ in range(rounds):
            for c in CONTENDERS:
                shared = 'shared' in c
                times[c].append(theirs(session, feeds, caches, shared) if 'ONNX' in c
                                else ours(args, library, folder, threads, ['--share'] * shared))
        yield used, [min(times[c]) for c in CONTENDERS]


HEAD = """# Steps of a language model

Written by `tests/bench/decode.py`: milliseconds for one more token, behind so many, of a decoder as large as a Llama of 160
million parameters, in f32. Its caches have room for %s tokens; what it gives back is copied, or made in the memory of what it
is given. ONNX Runtime has the same model, its inputs and outputs bound. The contenders took turns in one run.
""" % format(ROOM, ',')


def main():
    args = lib.arguments(__doc__, threads={'type': int, 'default': 1}, rounds={'type': int, 'default': 5}, write={'action': 'store_true'})
    rows = [['tokens so far', 'copied', 'shared', 'speed', 'ONNX Runtime: copied', 'shared', 'beside ours, shared']]
    for used, ms in measure(args, args.threads, args.rounds):
        cells = ['%.1f' % t for t in ms]
        rows.append([str(used), *cells[:2], '%.2fx' % (ms[0] / ms[1]), *cells[2:], '%.2fx' % (ms[3] / ms[1])])
        print('  '.join(rows[-1]), flush=True)
    if args.write:
        results.put_section('decode', HEAD, args.cytoc, '%d thread%s\n\n%s' % (args.threads, 's' * (args.threads > 1), results.markdown(rows)))


if __name__ == '__main__':
    main()
