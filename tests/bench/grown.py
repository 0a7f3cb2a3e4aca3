# SPDX-License-Identifier: Apache-2.0
"""Measures steps of a language model whose caches grow: kept by the context, and copied as the model says, beside ONNX Runtime,
whose inputs and outputs are bound.

In:  --build DIR; --threads N (1), --rounds N (5): contenders take turns, and the median of their medians counts. The model
     is made here: as large as a Llama of 246 million parameters (tests/grown/llama.py), weights random; it also runs with
     weights in 4 bits.
Out: the table; with --write this CPU's section of RESULTS-grown.md.
"""
import os
import re
import sys
import time

import numpy as np
import onnxruntime

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), 'grown')]
import lib
import llama
import network
import results

KEPT, HEADS, HIDDEN, USED, REPEAT = 4, 16, 1024, (128, 1024), 20
MODES = {'f32': [], 'int4': ['--weights=int4', '--dim', 'batch=1']}


def ours(args, library, used, threads):
    """Milliseconds of a step, kept and copied."""
    program = os.path.join(args.build, 'tests', 'grown', 'run_steps')
    code, out, err = lib.run([program, library, '2048', threads, 'batch=1', used - REPEAT // 2, 'x%d' % REPEAT], 300)
    found = re.search(r'kept ([\d.]+) ms, given ([\d.]+) ms', out)
    if code or not found:
        sys.exit('run_steps: ' + lib.reason(err, code))
    return float(found.group(1)), float(found.group(2))


def theirs(session, caches, used):
    io, times = session.io_binding(), []
    rng = np.random.default_rng(0)
    past = {n: onnxruntime.OrtValue.ortvalue_from_numpy(rng.uniform(-1, 1, (1, KEPT, used, HIDDEN // HEADS)).astype(np.float32)) for n in caches}
    for n in range(used, used + REPEAT):
        io.clear_binding_inputs()
        io.clear_binding_outputs()
        feeds = {'input_ids': np.int64([[7]]), 'attention_mask': np.ones((1, n + 1), np.int64), 'position_ids': np.int64([[n]])}
        for name, value in feeds.items():
            io.bind_cpu_input(name, value)
        for name, value in past.items():
            io.bind_ortvalue_input('past_key_values.' + name, value)
        names = [o.name for o in session.get_outputs()]
        for name in names:
            io.bind_output(name)
        start = time.perf_counter()
        session.run_with_iobinding(io)
        times.append((time.perf_counter() - start) * 1e3)
        given = dict(zip(names, io.get_outputs()))
        past = {name: given['present.' + name] for name in caches}
    return float(np.median(times[2:]))


def measure(args, threads, rounds):
    folder = os.path.join(args.build, 'bench-grown')
    os.makedirs(folder, exist_ok=True)
    model = os.path.join(folder, 'm.onnx')
    caches = llama.decoder(model, 16, HIDDEN, HEADS, KEPT, 2816, 32000, external=True)
    for mode, options in MODES.items():
        why = network.compile_model(args, model, os.path.join(folder, mode + '.so'), '-O3', options)
        if why:
            sys.exit(why)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=['CPUExecutionProvider'])
    for used in USED:
        times = []
        for _ in range(rounds):
            times.append([t for mode in MODES for t in ours(args, os.path.join(folder, mode + '.so'), used, threads)])
            times[-1].append(theirs(session, caches, used))
        yield used, np.median(times, axis=0)


HEAD = """# Steps of a language model whose cache grows

Written by `tests/bench/grown.py`: milliseconds for one more token, behind so many, of a decoder as large as a Llama of 246
million parameters, exported with present = Concat(past, new). It is kept by `cyto_context_keep()`, or copied. ONNX Runtime
has the same model in f32, its inputs and outputs bound. The contenders took turns.
"""


def main():
    args = lib.arguments(__doc__, threads={'type': int, 'default': 1}, rounds={'type': int, 'default': 5}, write={'action': 'store_true'})
    rows = [['tokens so far', 'f32: copied', 'kept', 'speed', 'ONNX Runtime', 'beside ours', 'int4: copied', 'kept', 'speed']]
    for used, (kept, copied, kept4, copied4, ort) in measure(args, args.threads, args.rounds):
        rows.append([str(used), '%.1f' % copied, '%.1f' % kept, '%.2fx' % (copied / kept), '%.1f' % ort, '%.2fx' % (ort / kept),
                     '%.1f' % copied4, '%.1f' % kept4, '%.2fx' % (copied4 / kept4)])
        print('  '.join(rows[-1]), flush=True)
    if args.write:
        results.put_section('grown', HEAD, args.cytoc, '%d thread%s\n\n%s' % (args.threads, 's' * (args.threads > 1), results.markdown(rows)))


if __name__ == '__main__':
    main()
