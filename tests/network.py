# SPDX-License-Identifier: Apache-2.0
"""Compiling a network, running it through cyto-run and comparing its outputs with ONNX Runtime's: what the models, zoo and
exported suites share, and those that make small models of their own.

Folders of inputs hold in_K_NAME.npy (or .json), folders of outputs out_K_NAME.npy (or .json), K counting from 0; the form
that cyto-run reads with --inputs-dir and writes with --output-dir.
"""
import glob
import json
import os
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

import numpy as np

import lib


def compile_model(args, model, library, level, extra=(), timeout=900, said=None):
    """None, or why there is no library. said: a list that gets what cytoc printed."""
    code, out, err = lib.run([args.cytoc, model, '-o', library, level, *extra], timeout)
    if said is not None:
        said.append(out)
    if code == 0 and os.path.exists(library):
        return None
    return '%s: compile: %s' % (level, lib.reason(err, code))


def save_inputs(folder, feeds):
    """Makes a folder of inputs of {name: array}."""
    os.makedirs(folder, exist_ok=True)
    for k, (name, value) in enumerate(feeds.items()):
        np.save(os.path.join(folder, 'in_%d_%s.npy' % (k, lib.safe_name(name))), value)


def execute(args, library, inputs, outputs, threads, timeout=900, env=None, runner=None):
    """Runs a library on a folder of inputs; `outputs` is emptied first. None, or why there are no outputs. runner: the
    command in the place of cyto-run."""
    shutil.rmtree(outputs, ignore_errors=True)
    os.makedirs(outputs)
    code, _, err = lib.run([*(runner or [args.cyto_run]), library, '--inputs-dir', inputs, '--output-dir', outputs,
                            '--threads', threads], timeout, env=env)
    return None if code == 0 else 'run: ' + lib.reason(err, code)


def by_index(folder):
    """{K: path} of the outputs in a folder."""
    found = {}
    for path in glob.glob(os.path.join(glob.escape(folder), 'out_*')):
        match = re.match(r'out_(\d+)_.*\.(npy|json)$', os.path.basename(path))
        if match:
            found[int(match.group(1))] = path
    return found


def widen(array, dtype):
    """bfloat16 has no numpy type: such files hold the bits as uint16."""
    if dtype == 'bfloat16' and array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array


def json_difference(name, got, want, limit):
    if isinstance(want, dict) and isinstance(got, dict):
        if sorted(got) != sorted(want):
            return '%s: keys %s, not %s' % (name, sorted(got), sorted(want))
        return next(filter(None, (json_difference(name, got[k], want[k], limit) for k in want)), None)
    if isinstance(want, list) and isinstance(got, list):
        if len(got) != len(want):
            return '%s: %d elements, not %d' % (name, len(got), len(want))
        return next(filter(None, (json_difference(name, g, w, limit) for g, w in zip(got, want))), None)
    if isinstance(want, float) and isinstance(got, (int, float)):
        return None if abs(got - want) <= limit * max(1.0, abs(want)) else '%s: %.80r, not %.80r' % (name, got, want)
    return None if got == want else '%s: %.80r, not %.80r' % (name, got, want)


# What rounding an exact result to half precision costs at most, as relative RMS: errors spread evenly over a unit in the
# last place u have RMS u / sqrt(12), and u is largest, relative to its number, just above a power of two.
HALF_ROUNDING = {'float16': 2.0 ** -10 / 12 ** 0.5, 'bfloat16': 2.0 ** -7 / 12 ** 0.5}


def step_of(values):
    """The distance of the grid that a dequantised output lies on; 0 when there is none."""
    if values.dtype != np.float32 or values.size < 64 or not np.all(np.isfinite(values)):
        return 0
    apart = np.diff(np.unique(values.astype(np.float64)))
    step = apart.min() if apart.size else 0
    on_grid = step > 0 and apart.size < 256 and np.all(np.abs(apart / step - np.round(apart / step)) < 1e-2)
    return step if on_grid else 0


def steps_difference(name, got, want, step):
    """Rounding decides between two neighbours: 999 of 1000 elements within a step, all within three."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return lib.difference(name, got, want, 0)
    off = np.abs(got.astype(np.float64) - want) / step
    if np.mean(off > 1.01) <= 1e-3 and off.max() <= 3.01:
        return None
    return '%s: %.2f %% of the elements are off by more than a quantisation step, the worst by %.0f' % (
        name, 100 * np.mean(off > 1.01), off.max())


def compare(outputs, expected, limits, dtypes=(), quantised=False):
    """Both folders; limits: function from a reference file's name to its limit. Float outputs of `quantised` networks that
    lie on a grid are compared by its steps. None, or the first difference."""
    got, want = by_index(outputs), by_index(expected)
    for k, path in sorted(want.items()):
        name = os.path.basename(path)
        if k not in got:
            return '%s: not written' % name
        if path.endswith('.json') != got[k].endswith('.json'):
            return '%s: written as %s' % (name, os.path.basename(got[k]))
        if path.endswith('.json'):
            with open(path, encoding='utf-8') as w, open(got[k], encoding='utf-8') as g:
                why = json_difference(name, json.load(g), json.load(w), limits(name))
        else:
            dtype = dtypes[k] if k < len(dtypes) else ''
            g, w = widen(np.load(got[k]), dtype), widen(np.load(path, allow_pickle=True), dtype)
            step = step_of(w) if quantised else 0
            why = (steps_difference(name, g, w, step) if step else
                   lib.difference(name, g, w, limits(name) + HALF_ROUNDING.get(dtype, 0)))
        if why:
            return why
    return None


def output_of(folder, index, name):
    """What cyto-run wrote; strings are JSON."""
    path = os.path.join(folder, 'out_%d_%s' % (index, lib.safe_name(name)))
    if os.path.exists(path + '.npy'):
        return np.load(path + '.npy')
    with open(path + '.json', encoding='utf-8') as f:
        value = json.load(f)
    return np.array(value['data'], dtype=object).reshape(value['shape'])


def run_feeds(args, folder, library, feeds, threads=1, env=None):
    """(code, stderr) of one run on {name: array}; outputs come into the folder."""
    command = [args.cyto_run, library, '--threads', threads, '--output-dir', folder]
    for k, (name, value) in enumerate(feeds.items()):
        text = value.dtype.kind in 'OU'
        save(folder, 'feed_%d' % k, 'tensor(string)' if text else 'tensor(%s)' % value.dtype, value)
        command += ['--input', '%s=%s' % (name, os.path.join(folder, 'feed_%d.%s' % (k, 'json' if text else 'npy')))]
    code, _, err = lib.run(command, env=env)
    return code, err


def test_each(args, suite, folder, items, test, processes=2):
    """Whole networks, `processes` at a time: test(name, work, *more) of each item (name, *more) says what is wrong, or None.
    work: a folder of its own in build/`folder`, gone afterwards. A line and a result for each."""
    def job(item):
        work, start = os.path.join(args.build, folder, item[0]), time.time()
        shutil.rmtree(work, ignore_errors=True)
        os.makedirs(work)
        try:
            why = test(item[0], work, *item[1:])
        except Exception as problem:  # a fault of one network's data must not end the suite
            why = '%s: %s' % (type(problem).__name__, (str(problem).splitlines() or [''])[0])
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return why, time.time() - start

    with ThreadPoolExecutor(processes) as pool:
        jobs = {pool.submit(job, item): item for item in items}
        for done in as_completed(jobs):
            item, (why, seconds) = jobs[done], done.result()
            print('%-30s %5.1f s  %s' % (item[0], seconds, why or 'ok'), flush=True)
            suite.result(item[0], why, suite.listed.get(item[0]))


# ---- ONNX Runtime beside it ----

def ort_session(model, optimised=True, errors=True, exact=False):
    """model: a path, or bytes; errors: whether it prints those that it also raises; exact: sums of products of 8-bit integers
    must not saturate, as they do where the CPU lacks VNNI (needs `optimised`; does not work for every model)."""
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3 if errors else 4
    options.add_session_config_entry('session.x64quantprecision', '1' if exact else '0')
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model, options, providers=['CPUExecutionProvider'])


def save(folder, name, kind, value):
    """A tensor of numbers as .npy; all else as cyto-run's JSON. kind: ONNX Runtime's, such as
    optional(seq(tensor(float)))."""
    def tensor(dtype, value):
        return {'dtype': dtype, 'shape': list(value.shape), 'data': value.reshape(-1).tolist()}

    def tree(kind, value):
        outer, inner = kind[:-1].split('(', 1)
        if outer == 'optional':
            return {'optional': None if value is None else tree(inner, value)}
        if outer == 'seq':
            return {'sequence': [tree(inner, v) for v in value]}
        if outer == 'map':
            key, inner = inner.split(',', 1)
            return {'map': [tensor(key, np.array(list(value.keys()))),
                            tensor(inner[7:-1], np.array(list(value.values())))]}
        return tensor(inner, value)

    if kind.startswith('tensor(') and kind != 'tensor(string)':
        np.save(os.path.join(folder, name + '.npy'), value)
        return
    with open(os.path.join(folder, name + '.json'), 'w', encoding='utf-8') as f:
        json.dump(tree(kind, value), f)


def reference(session, feeds, folder):
    """Makes a folder of ONNX Runtime's outputs."""
    os.makedirs(folder)
    for k, (port, value) in enumerate(zip(session.get_outputs(), session.run(None, feeds))):
        save(folder, 'out_%d_%s' % (k, lib.safe_name(port.name)), port.type, value)


def noise(model, expected, feeds):
    """How far ONNX Runtime without optimisation is from its own outputs: the largest relative RMS difference."""
    values, want = ort_session(model, optimised=False).run(None, feeds), by_index(expected)
    return max(lib.rel_rms(v, np.load(want[k])) for k, v in enumerate(values)
               if isinstance(v, np.ndarray) and v.dtype.kind == 'f')


def judge(outputs, expected, model, feeds):
    """As compare, at 1e-4; where ONNX Runtime's own levels differ by more than a third of that, three times as much."""
    why = compare(outputs, expected, lambda name: 1e-4)
    if why and 'RMS' in why:
        limit = min(1e-3, max(1e-4, 3 * noise(model, expected, feeds)))
        why = compare(outputs, expected, lambda name: limit)
    return why


def beside_ort(args, folder, model, cases, limit, level='-O3', oracle=None, options=()):
    """A model made here, beside ONNX Runtime, which runs `oracle` instead if there is one: the same in other operators.
    model: the ModelProto; cases: [(threads, {name: array})]. None, or the first difference of an output; floats may differ
    by the relative RMS `limit`."""
    os.makedirs(folder, exist_ok=True)
    data, path, library = model.SerializeToString(), os.path.join(folder, 'm.onnx'), os.path.join(folder, 'm.so')
    with open(path, 'wb') as f:
        f.write(data)
    why = compile_model(args, path, library, level, ['--verify', *options])
    if why:
        return why
    session = ort_session(oracle.SerializeToString() if oracle else data)
    for threads, feeds in cases:
        code, err = run_feeds(args, folder, library, feeds, threads)
        if code:
            return lib.reason(err, code)
        for i, want in enumerate(session.run(None, feeds)):
            name, want = session.get_outputs()[i].name, np.asarray(want)
            why = lib.difference(name, output_of(folder, i, name), want, limit)
            if why:
                return '%s, inputs %s, %d threads' % (why, ' '.join(str(list(x.shape)) for x in feeds.values()), threads)
    return None


def attentions(stats):
    """How many attention nodes a compilation kept for kernels of their own, from what --stats wrote."""
    with open(stats, encoding='utf-8') as f:
        passes = json.load(f)['passes']
    return sum(row['counters'].get('kept whole', 0) for row in passes if row['name'] == 'attention_plain')
