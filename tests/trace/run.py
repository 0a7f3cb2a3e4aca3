# SPDX-License-Identifier: Apache-2.0
"""Recordings of runs: cyto-run --trace, Model.trace of the Python package, cyto_trace_* of C, and what else tells where memory is.

In:  small networks made here; the package as it lies in the repository; CUDA by the mocks of tests/cuda.
Out: the closing line. A recording is right when it is what Chrome's trace format asks for (see check_format), has the nodes of
     the model, nests within each lane, agrees with the times that are measured beside it, and says how runs ended.
"""
import collections
import json
import os
import re
import shutil
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), 'cuda')]
import numpy as np

import graphs
import lib
import mock
from graphs import port

HOST, DEVICE = 1, 2
COUNTED = {'step', 'thread', 'run', 'copy'}


# ---- models ----

def network(path, size=32):
    """Convolutions, a branch that meets again, a product, a softmax: nodes with names."""
    g = graphs.Graph(1)
    weight = lambda *shape: g.const(g.rng.standard_normal(shape) * 0.1, np.float32)
    x = g.op('Conv', 'image', weight(32, 3, 3, 3), pads=[1, 1, 1, 1])
    x = g.op('Relu', x)
    y = g.op('Conv', x, weight(32, 32, 3, 3), pads=[1, 1, 1, 1])
    x = g.op('Add', x, y)
    x = g.op('GlobalAveragePool', x)
    x = g.op('Flatten', x)
    x = g.op('Gemm', x, weight(32, 10))
    g.op('Softmax', x, out='scores')
    return g.save(path, [port('image', np.float32, ['batch', 3, size, size])], [port('scores', np.float32, ['batch', 10])])


def failing(path):
    """Fails in the middle where an index is out of range."""
    g = graphs.Graph(2)
    x = g.op('Relu', 'x')
    x = g.op('MatMul', x, g.const(g.rng.standard_normal((64, 64)), np.float32))
    s = g.op('Reshape', x, 'shape')
    g.op('Softmax', s, out='y')
    return g.save(path, [port('x', np.float32, [16, 64]), port('shape', np.int64, [2])], [port('y', np.float32, [None, None])])


def operators(path):
    """Operators of the runtime, results whose size depends on data, and memory for each run."""
    g = graphs.Graph(3)
    values, _ = g.op('TopK', 'x', g.ints(1000), outputs=2)
    found = g.op('NonZero', g.op('Relu', values))
    g.op('Unique', g.op('Reshape', found, g.ints(-1)), out='y')
    return g.save(path, [port('x', np.float32, [20000])], [port('y', np.int64, [None])])


def compiled(args, work, make, *options, name='m.so'):
    model, library = os.path.join(work, 'm.onnx'), os.path.join(work, name)
    make(model)
    code, out, err = lib.run([args.cytoc, model, '-o', library, *options])
    if code:
        raise RuntimeError(lib.reason(err, code))
    return library


def run(args, *words, env=None):
    return lib.run([args.cyto_run, *words], env=env)


# ---- the format ----

def read(path):
    with open(path, encoding='utf-8') as f:
        return json.load(f, parse_constant=lambda text: (_ for _ in ()).throw(ValueError('number %s' % text)))


def check_fields(event):
    phase = event.get('ph')
    if phase not in ('M', 'X', 'C') or not isinstance(event.get('name'), str) or not isinstance(event.get('pid'), int) or \
            not isinstance(event.get('tid'), int) or not isinstance(event.get('args'), dict):
        return 'fields of %s' % event
    if phase != 'M' and not (isinstance(event.get('ts'), (int, float)) and event['ts'] >= 0):
        return 'no time: %s' % event
    if phase == 'X' and (not (isinstance(event.get('dur'), (int, float)) and event['dur'] >= 0) or event.get('cat') not in COUNTED or
                         not event['name']):
        return 'no complete event: %s' % event
    if phase == 'C' and (not event['args'] or any(not isinstance(v, int) or v < 0 for v in event['args'].values())):
        return 'no counter: %s' % event
    return None


def ns(event):
    """Start and end; times have three digits behind the microseconds."""
    start = round(event['ts'] * 1000)
    return start, start + round(event['dur'] * 1000)


def check_nesting(events):
    """Complete events of a lane: each lies in the one that is open, or behind it."""
    lanes = collections.defaultdict(list)
    for e in events:
        if e['ph'] != 'X':
            continue
        stack, (start, end) = lanes[e['pid'], e['tid']], ns(e)
        while stack and stack[-1] <= start and end > stack[-1]:
            stack.pop()
        if stack and end > stack[-1]:
            return 'reaches out of the event around it: %s' % e
        stack.append(end)
    return None


def check_format(document):
    """None, or what is wrong with a document as Chrome's trace format has it."""
    events = document.get('traceEvents')
    if not isinstance(events, list) or document.get('displayTimeUnit') not in ('ms', 'ns'):
        return 'no document of that format'
    why = next(filter(None, map(check_fields, events)), None) or check_nesting(events)
    if why:
        return why
    times = [e['ts'] for e in events if e['ph'] == 'X']
    if times != sorted(times):
        return 'events are not in the order of their beginning'
    counters = collections.defaultdict(list)
    for e in events:
        if e['ph'] == 'C':
            counters[e['name']].append(e['ts'])
    if any(t != sorted(t) for t in counters.values()):
        return 'a counter goes back in time'
    named = {(e['pid'], e['tid']) for e in events if e['ph'] == 'M' and e['name'] == 'thread_name'}
    unnamed = {(e['pid'], e['tid']) for e in events if e['ph'] == 'X'} - named
    return 'lanes without a name: %s' % unnamed if unnamed else None


def of(document, kind):
    return [e for e in document['traceEvents'] if e['ph'] == 'X' and e['cat'] == kind]


def steps_in(document, run_event):
    start, end = ns(run_event)
    return [e for e in of(document, 'step') if start <= ns(e)[0] and ns(e)[1] <= end]


# ---- cases ----

def recording(args, work):
    """Names, arguments, sums."""
    library, path, numbers = compiled(args, work, network, '--profile', '--dim', 'batch=4'), work + '/t.json', work + '/r.json'
    code, _, err = run(args, library, '--random', '1', '--threads', '1', '--repeat', '9', '--profile', '--trace', path, '--json', numbers)
    if code:
        return lib.reason(err, code)
    d, report = read(path), read(numbers)
    why = check_format(d)
    if why:
        return why
    runs, names = of(d, 'run'), {e['name'] for e in of(d, 'step')}
    if [e['name'] for e in runs] != ['first run (cold)'] + ['run %d' % k for k in range(1, 10)]:
        return 'runs: %s' % [e['name'] for e in runs]
    if not {'Conv_0', 'Conv_2', 'Gemm_6'} <= names:
        return 'nodes: %s' % names
    for e in of(d, 'step'):
        if not e['args'].get('algorithm') or not e['args'].get('ops') or not e['args'].get('kernel'):
            return 'arguments: %s' % e
    conv = [e['args'] for e in of(d, 'step') if e['name'] == 'Conv_2']
    if not all(a['flops'] > 2 * 4 * 32 * 32 * 32 * 32 * 9 * 0.99 and a['bytes'] > 0 and 0 < a['of_floor'] < 2 and
               a['floor_us'] > 0 for a in conv):
        return 'work: %s' % conv[:1]
    for e in runs[1:]:
        inside = steps_in(d, e)
        part = sum(s['dur'] for s in inside) / e['dur']
        if len(inside) != len(report['kernels']) or not 0.6 < part <= 1.0001:
            return '%d steps are %.2f of a run' % (len(inside), part)
    took = sum(e['dur'] for e in runs[1:]) / 9e3
    if not 0.9 < took / report['mean_ms'] < 1.02:
        return 'runs take %.3f ms here, %.3f there' % (took, report['mean_ms'])
    for k in report['kernels']:
        same = [e['dur'] for e in of(d, 'step') if e['args']['kernel'] == k['kernel']]
        if abs(sum(same[1:]) - k['us'] * k['runs']) > 0.01 * sum(same[1:]) + 0.1:
            return 'sums of %s: %g, %g' % (k['kernel'], sum(same[1:]), k['us'] * k['runs'])
    return None if d['otherData']['events_left_out'] == 0 and d['otherData']['weights_bytes'] > 0 else 'otherData: %s' % d['otherData']


def memory(args, work):
    """The counter's peak is the one that --explain=memory tells, the arena's sizes those of the snapshot."""
    model, library, path = os.path.join(work, 'm.onnx'), os.path.join(work, 'm.so'), work + '/t.json'
    network(model)
    code, said, err = lib.run([args.cytoc, model, '-o', library, '--profile', '--dim', 'batch=4', '--explain=memory'])
    if code:
        return lib.reason(err, code)
    peak = re.search(r'at the peak, step (\d+), ([\d.]+) MB are alive', said)
    rows = [int(r) for r in re.findall(r'(?m)^ +\d+ +(\d+)[* ] ', said)]
    alive = [int(r) for r in re.findall(r'(?m)^ +(\d+)  \d+\.\.\d+ ', said)]
    if not peak or not rows or abs(max(rows) / 1e6 - float(peak[2])) > 1e-3 or sum(alive) != max(rows) or alive != sorted(alive)[::-1] or \
            "from 'Conv_2'" not in said or not re.search(r'weights [\d.]+ MB\narena [\d.]+ MB', said):
        return 'explained: %s' % said
    code, out, err = run(args, library, '--random', '1', '--threads', '1', '--trace', path, '--json', work + '/r.json')
    if code:
        return lib.reason(err, code)
    d, uses = read(path), {u['name']: u for u in read(work + '/r.json')['memory']}
    counted = [e['args']['arena'] for e in d['traceEvents'] if e['ph'] == 'C']
    arena = of(d, 'run')[0]['args']['arena_bytes']
    if abs(max(counted) - max(rows)) > 64 * len(rows) or max(counted) > arena or uses['arena']['in_use'] != arena or \
            uses['all of the context']['peak'] < arena + uses['outputs']['in_use'] or uses['weights']['in_use'] != d['otherData']['weights_bytes']:
        return 'peak %d, arena %d, explained %d, snapshot %s' % (max(counted), arena, max(rows), uses)
    return None


def open_sizes(args, work):
    """Sizes left open: their work is known for others, memory follows them."""
    library, path = compiled(args, work, network, '--profile'), work + '/t.json'
    found = []
    for batch in (1, 32):
        code, _, err = run(args, library, '--random', '1', '--dim', 'batch=%d' % batch, '--threads', '1', '--trace', path)
        why = lib.reason(err, code) if code else check_format(read(path))
        if why:
            return why
        d = read(path)
        conv = next(e['args'] for e in of(d, 'step') if e['name'] == 'Conv_2')
        found.append((max(e['args']['arena'] for e in d['traceEvents'] if e['ph'] == 'C'), 'flops' in conv, conv.get('work_is_known_for')))
    (one, known, _), (many, guessed, said) = found
    return None if known and not guessed and said == 'batch=1' and 8 * one < many < 40 * one else str(found)


def threads(args, work):
    """Lanes of the pool's threads, each with its part of a step."""
    library, path = compiled(args, work, lambda p: network(p, 128), '--profile', '--dim', 'batch=2'), work + '/t.json'
    code, _, err = run(args, library, '--random', '1', '--threads', '2', '--repeat', '20', '--trace', path)
    why = lib.reason(err, code) if code else check_format(read(path))
    if why:
        return why
    d = read(path)
    lanes = collections.Counter(e['tid'] for e in of(d, 'thread'))
    caller = {e['tid'] for e in of(d, 'run')}
    if len(lanes) != 2 or len(caller) != 1 or not caller < set(lanes):
        return 'lanes %s, of the caller %s' % (dict(lanes), caller)
    for e in of(d, 'thread'):
        around = [s for s in of(d, 'step') if s['args']['kernel'] == e['args']['kernel'] and ns(s)[0] <= ns(e)[0] and ns(e)[1] <= ns(s)[1]]
        if len(around) != 1:
            return 'a part outside of its step: %s' % e
    return None


def fails(args, work):
    """A run that ends half-way: what it did, where it ended, why."""
    library, path = compiled(args, work, failing, '--profile'), work + '/t.json'
    np.save(work + '/s.npy', np.array([3, 7]))
    code, _, err = run(args, library, '--random', '1', '--input', 'shape=%s/s.npy' % work, '--trace', path)
    if code != 1 or 'Reshape_2' not in err or not os.path.exists(path):
        return 'exit code %d: %s' % (code, err)
    d = read(path)
    why = check_format(d)
    failure = of(d, 'run')[0]['args'].get('failure', '')
    if why or len(of(d, 'run')) != 1 or 'Reshape_2' not in failure or not of(d, 'step') or any(e['name'] == 'Softmax_3' for e in of(d, 'step')):
        return why or 'run %s, steps %s' % (of(d, 'run'), [e['name'] for e in of(d, 'step')])
    return None


def runtime_steps(args, work):
    """Operators of the runtime are steps, too; tensors whose size depends on data are counted."""
    library, path = compiled(args, work, operators, '--profile'), work + '/t.json'
    code, _, err = run(args, library, '--random', '1', '--repeat', '3', '--trace', path)
    why = lib.reason(err, code) if code else check_format(read(path))
    if why:
        return why
    d = read(path)
    called = {e['name'] for e in of(d, 'step') if e['args']['algorithm'] == 'runtime'}
    dynamic = [e['args'].get('of data-dependent size', 0) for e in d['traceEvents'] if e['ph'] == 'C']
    return None if called and max(dynamic) > 0 else 'called %s, bytes %s' % (called, dynamic)


def unwritable(args, work):
    """Full disk, no such folder, a library without --profile."""
    library = compiled(args, work, network, '--profile', '--dim', 'batch=1')
    plain = compiled(args, work, network, '--dim', 'batch=1', name='plain.so')
    for path, words, what in (('/dev/full', library, 'No space left'), (work + '/no/t.json', library, 'No such file'),
                              (work + '/t.json', plain, 'cytoc --profile')):
        code, _, err = run(args, words, '--random', '1', '--trace', path)
        if code != 1 or what not in err or len(err.splitlines()) != 1 or os.path.exists(work + '/t.json'):
            return '%s: exit code %d: %s' % (path, code, err)
    tiny = ['sh', '-c', 'ulimit -f 2; exec "$@"', 'sh', args.cyto_run, library, '--random', '1', '--repeat', '300', '--trace', work + '/t.json']
    code, _, err = lib.run(tiny)
    if code == 0 or os.path.exists(work + '/t.json') and os.path.getsize(work + '/t.json') > 2048:
        return 'a file that may not grow: exit code %d: %s' % (code, err)
    return None


def package(args, work):
    """Model.trace: many threads, sums, a limit of events, a second recording, errors."""
    import cytoc
    library, path = compiled(args, work, network, '--profile', '--dim', 'batch=1'), work + '/t.json'
    x = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)
    with cytoc.load(library, threads=2) as model:
        want = model(x)
        wrong = []

        def work_hard():
            for _ in range(50):
                if not np.array_equal(model(x), want):
                    wrong.append('other results')

        workers = [threading.Thread(target=work_hard) for _ in range(4)]
        with model.trace(path) as trace:
            for w in workers:
                w.start()
            for w in workers:
                w.join()
        d = read(path)
        why = check_format(d) or (wrong and wrong[0])
        if why:
            return why
        contexts = collections.Counter(e['args']['context'] for e in of(d, 'run'))
        if sum(contexts.values()) != 200 or sum(s['runs'] + s['first_runs'] for s in trace.steps) != len(of(d, 'step')):
            return 'runs by context: %s' % contexts
        for e in of(d, 'run'):
            if len(steps_in(d, e)) < len(trace.steps):
                return 'steps are missing in %s' % e
        with model.trace(path, events=1) as trace:
            for _ in range(2000):
                model(x)
        d = read(path)
        kept = sum(len(of(d, kind)) for kind in COUNTED)
        if check_format(d) or kept != 4096 or d['otherData']['events_left_out'] <= 0 or any(s['runs'] + s['first_runs'] != 2000 for s in trace.steps):
            return 'a limit: %d kept, %s' % (kept, d['otherData'])
        try:
            with model.trace(path):
                raise KeyError('of the application')
        except KeyError:
            pass
        try:
            with model.trace(), model.trace():
                pass
            return 'two recordings at once'
        except cytoc.RunError as e:
            if 'already' not in str(e):
                return str(e)
        try:
            with model.trace(work + '/no/t.json'):
                model(x)
            return 'written to nowhere'
        except cytoc.RunError as e:
            if 'No such file' not in str(e):
                return str(e)
        uses = model.memory_snapshot()
        if not uses or any(u['arena']['in_use'] <= 0 or u['all of the context']['peak'] < u['arena']['peak'] for u in uses):
            return 'snapshot: %s' % uses
    return None


def beside(args, work):
    """Runs that begin before a recording, or end behind it, and contexts that end before it is written."""
    import cytoc
    library, path = compiled(args, work, network, '--profile', '--dim', 'batch=1'), work + '/t.json'
    x = np.zeros((1, 3, 32, 32), np.float32)
    with cytoc.load(library, threads=1) as model:
        over = threading.Event()

        def go_on():
            while not over.is_set():
                bound = model.bind()
                bound.input('image', x)
                for _ in range(3):
                    bound.run()
                bound.close()

        workers = [threading.Thread(target=go_on) for _ in range(3)]
        for w in workers:
            w.start()
        try:
            for _ in range(20):
                with model.trace(path) as trace:
                    model(x)
                d = read(path)
                why = check_format(d)
                if why or not of(d, 'run') or sum(s['runs'] + s['first_runs'] for s in trace.steps) != len(of(d, 'step')):
                    return why or 'no runs, or other sums'
        finally:
            over.set()
            for w in workers:
                w.join()
    return None


def linked(args, work):
    """A model that is part of a program."""
    compiled(args, work, network, '--profile', '--dim', 'batch=1', '--name', 'net', name='net.a')
    program, path = work + '/linked', work + '/t.json'
    code, _, err = lib.run(['cc', '-I', os.path.join(lib.ROOT, 'runtime'), os.path.join(HERE, 'linked.c'), work + '/net.a', '-lm', '-lpthread',
                            '-ldl', '-o', program])
    if code:
        return lib.reason(err, code)
    code, out, err = lib.run([program, path])
    if code:
        return lib.reason(err, code)
    d = read(path)
    return check_format(d) or (None if int(out) == len(of(d, 'step')) > 0 and len(of(d, 'run')) == 2 else '%s, %d' % (out, len(of(d, 'step'))))


def leaks(args, work):
    """--repeat says by how much memory grew: not at all, but with an allocator that keeps what it is given back."""
    library = compiled(args, work, operators)
    leaking = work + '/leaking.so'
    code, _, err = lib.run(['cc', '-shared', '-fPIC', '-O1', os.path.join(HERE, 'leaking_alloc.c'), '-o', leaking])
    if code:
        return lib.reason(err, code)
    grown = []
    for env in (None, dict(os.environ, LD_PRELOAD=leaking)):
        code, out, err = run(args, library, '--random', '1', '--threads', '1', '--repeat', '100', '--json', work + '/r.json', env=env)
        said = re.search(r'resident memory [\d.]+ MB, grew by (\d+) kB in 89 runs', out)
        if code or not said:
            return 'exit code %d: %s' % (code, out + err)
        grown.append(int(said[1]))
        if abs(read(work + '/r.json')['resident_growth'] / 1000 - grown[-1]) > 1:
            return 'another number in the report'
    return None if grown[0] < 200 and grown[1] > 2000 else 'grew by %s kB' % grown


def device(args, work):
    """On the mock driver: the stream's lane, copies, ranges of NVTX; runs that are recorded and then replayed otherwise."""
    env = mock.environment(args)
    model, library, path = work + '/m.onnx', work + '/m.so', work + '/t.json'
    network(model)
    code, _, err = lib.run([args.cytoc, model, '-o', library, '--profile', '--dim', 'batch=2', *mock.options(args)], env=mock.compiling(env))
    if code:
        return lib.reason(err, code)
    run_it = [library, '--random', '1', '--repeat', '3', '--trace', path, '--json', work + '/r.json']
    code, _, err = run(args, *run_it, env=env)
    why = lib.reason(err, code) if code else check_format(read(path))
    if why:
        return why
    d = read(path)
    steps, copies = of(d, 'step'), of(d, 'copy')
    bytes_in, bytes_out = 2 * 3 * 32 * 32 * 4, 2 * 10 * 4
    if {(e['pid']) for e in steps + copies} != {DEVICE} or {e['pid'] for e in of(d, 'run')} != {HOST} or len({e['tid'] for e in steps}) != 1:
        return 'lanes: %s' % {(e['pid'], e['tid'], e['cat']) for e in steps + copies}
    if [e['args']['bytes'] for e in copies] != [bytes_in, bytes_out] * 4 or 'Conv_2' not in {e['name'] for e in steps}:
        return 'copies: %s, steps %s' % (copies[:2], {e['name'] for e in steps})
    if any((e['args']['bytes_to_device'], e['args']['bytes_from_device']) != (bytes_in, bytes_out) for e in of(d, 'run')) or \
            not any(e['args'].get('floor_us', 0) > 0 for e in steps):
        return 'runs: %s' % of(d, 'run')[0]
    uses = {u['name'] for u in read(work + '/r.json')['memory']}
    if not {'device: weights', 'device: arena', 'device: inputs and outputs', 'pinned memory'} <= uses:
        return 'snapshot: %s' % uses
    nvtx = work + '/nvtx'
    os.makedirs(nvtx, exist_ok=True)
    code, _, err = lib.run(['cc', '-shared', '-fPIC', os.path.join(HERE, 'mock_nvtx.c'), '-o', nvtx + '/libnvToolsExt.so.1'])
    if code:
        return lib.reason(err, code)
    env.update(LD_LIBRARY_PATH=env['LD_LIBRARY_PATH'] + ':' + nvtx, CY_MOCK_NVTX=nvtx + '/log')
    code, _, err = run(args, library, '--random', '1', '--repeat', '3', env=env)
    if code:
        return lib.reason(err, code)
    log, open_ranges = open(nvtx + '/log').read().splitlines(), 0
    for line in log:
        open_ranges += 1 if line.startswith('> ') else -1
        if open_ranges not in (0, 1):
            return 'ranges: %s' % log
    per_run = len(steps) // 4
    return None if open_ranges == 0 and log.count('> Conv_2') == 4 and len(log) == 2 * 4 * per_run else 'ranges: %s' % log


def cost(args, work):
    """What --profile costs while nothing is recorded, of a network that takes 5 microseconds a run: libraries with and without
    take turns, and the fastest of many runs count. The limit is far above the figure, which is printed: processes differ by one or two percent."""
    model = os.path.join(lib.ROOT, 'examples', 'digits', 'digits.onnx')
    libraries, least = [work + '/with.so', work + '/without.so'], [1e9, 1e9]
    for library, options in zip(libraries, (['--profile'], [])):
        code, _, err = lib.run([args.cytoc, model, '--dim', 'batch=1', '-o', library, *options])
        if code:
            return lib.reason(err, code)
    for _ in range(9):
        for k, library in enumerate(libraries):
            code, out, err = run(args, library, '--random', '1', '--threads', '1', '--repeat', '30000', '--json', '-')
            if code:
                return lib.reason(err, code)
            least[k] = min(least[k], json.loads(out)['min_ms'])
    print('cost: %.2f %% of a run of %.2f us' % (100 * (least[0] / least[1] - 1), 1e3 * least[1]))
    return None if least[0] < 1.05 * least[1] else '%.2f %%' % (100 * (least[0] / least[1] - 1))


CASES = (recording, memory, open_sizes, threads, fails, runtime_steps, unwritable, package, beside, linked, leaks, device, cost)


def main():
    args = lib.arguments(__doc__)
    args.device = False
    suite = lib.Suite(args)
    if args.variant != 'release':
        print('skipped: libraries and the package are those of the release build')
        print('0 passed, 0 failed, 1 skipped')
        return
    os.environ['CYTOC_LIB_DIR'] = args.build
    sys.path.insert(0, os.path.join(lib.ROOT, 'python'))
    for case in CASES:
        if not args.wanted(case.__name__):
            continue
        work = os.path.join(args.build, 'trace-tests', case.__name__)
        shutil.rmtree(work, ignore_errors=True)
        os.makedirs(work)
        try:
            why = case(args, work)
        except (RuntimeError, ValueError, KeyError, StopIteration, IndexError) as e:
            why = '%s: %s' % (type(e).__name__, e)
        suite.result(case.__name__, why)
    suite.done()


if __name__ == '__main__':
    main()
