# SPDX-License-Identifier: Apache-2.0
"""cytoc.Pipeline: values, order, back-pressure, errors in every stage, cancelling, batches, parts, frames, two models, real networks."""
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
from onnx import helper

import cytoc
import lib
from cytoc import EarlyExit, Join, Pipeline, Run, Split, Stage, Tagged
from models import linear, model, port, raises

WORK = BUILD = ''
_made = {}


def net(name='linear'):
    """Compiled once."""
    if name not in _made:
        make = {'linear': lambda: linear()[0], 'fixed': lambda: linear(4)[0], 'two': two, 'double': doubling}
        _made[name] = cytoc.compile(make[name]())
    return _made[name]


def two():
    """sum, difference = a + b * c, a - b * c, where c is no part of the batch"""
    nodes = [helper.make_node('Mul', ['b', 'c'], ['d']), helper.make_node('Add', ['a', 'd'], ['sum']), helper.make_node('Sub', ['a', 'd'], ['difference'])]
    rows = lambda n: port(n, 'float32', ['n', 3])
    return model(nodes, [rows('a'), rows('b'), port('c', 'float32', [3])], [rows('sum'), rows('difference')])


def doubling():
    return model([helper.make_node('Add', ['x', 'x'], ['y'])], [port('x', 'float32', ['n', 'w'])], [port('y', 'float32', ['n', 'w'])])


def x_of(k, rows=1):
    return np.full((rows, 3), k, np.float32)


f = linear()[1]


def test_values():
    for form, shape in ((x_of, (1, 2)), (lambda k: x_of(k)[0], (2,)), (lambda k: {'x': x_of(k)}, (1, 2)), (lambda k: (x_of(k),), (1, 2))):
        found = list(Pipeline(Stage(form), Run(net(), batch=4)).run(range(30)))
        assert len(found) == 30
        for k, y in enumerate(found):
            assert y.shape == shape and y.dtype == np.float32
            np.testing.assert_array_equal(y.reshape(1, 2), f(x_of(k)))
    found = list(Pipeline(Run(net(), batch=8)).run(x_of(k, 1 + k % 3) for k in range(20)))  # items of several rows
    for k, y in enumerate(found):
        np.testing.assert_array_equal(y, f(x_of(k, 1 + k % 3)))
    assert list(Pipeline(Stage(lambda k: None)).run(range(3))) == [None] * 3
    assert list(Pipeline(Run(net())).run([])) == []


def test_several_inputs():
    c = np.array([1, 2, 3], np.float32)

    def inputs(k):
        return Tagged((x_of(k), x_of(2 * k), c if k < 10 else c + 1), k)  # which values of c: no batch has both
    for k, t in enumerate(Pipeline(Stage(inputs), Run(net('two'), batch=6)).run(range(20))):
        assert t.tag == k and len(t.value) == 2
        d = x_of(2 * k) * (c if k < 10 else c + 1)
        np.testing.assert_array_equal(t.value[0], x_of(k) + d)
        np.testing.assert_array_equal(t.value[1], x_of(k) - d)


def test_fixed_batch():
    pipeline = Pipeline(Run(net('fixed'), wait=0.2), queue=16)
    for k, y in enumerate(pipeline.run(x_of(k) for k in range(10))):
        np.testing.assert_array_equal(y, f(x_of(k)))
    run = pipeline.statistics().stages[1]
    assert run.batch == 4 and run.rows == 10 and run.batches == 3, run


def test_batch_size_and_time():
    pipeline = Pipeline(Run(net(), batch=5, wait=5, contexts=1), queue=64)
    assert len(list(pipeline.run(x_of(k) for k in range(50)))) == 50
    assert pipeline.statistics().stages[1].batches == 10

    def slowly():
        for k in range(4):
            yield x_of(k)
            time.sleep(0.15)
    pipeline, start = Pipeline(Run(net(), batch=100, wait=0.02, contexts=1)), time.time()
    first = next(pipeline.run(slowly()))
    assert time.time() - start < 5 and first.shape == (1, 2)
    pipeline = Pipeline(Run(net(), batch=100, wait=0.02, contexts=1))
    assert len(list(pipeline.run(slowly()))) == 4
    assert 2 <= pipeline.statistics().stages[1].batches <= 4


def test_order():
    def wait(k):
        time.sleep(k * 7919 % 5 * 0.002)
        return k
    for queue in 1, 4:
        assert list(Pipeline(Stage(wait, threads=4), Stage(wait, threads=2), queue=queue).run(range(60))) == list(range(60))
    found = list(Pipeline(Stage(wait, threads=4), ordered=False).run(range(60)))
    assert sorted(found) == list(range(60)) and found != list(range(60))


def test_back_pressure():
    """The items are asked for only as far as queues and threads have room, however slowly results are taken."""
    asked = []

    def items():
        for k in range(1000):
            asked.append(k)
            yield k
    results = Pipeline(Stage(lambda k: k, queue=2), Stage(lambda k: k), queue=3).run(items())
    next(results)
    time.sleep(0.3)
    assert len(asked) <= 1 + 2 + 1 + 3 + 1 + 3 + 1, len(asked)  # taken; queue, thread; queue, thread; results; the one that waits
    before = len(asked)
    time.sleep(0.2)
    assert len(asked) == before
    results.close()
    live, most = [0], [0]
    lock = threading.Lock()

    def enter(k):
        with lock:
            live[0] += 1
            most[0] = max(most[0], live[0])
        return k

    def leave(k):
        with lock:
            live[0] -= 1
        return k
    list(Pipeline(Stage(enter, threads=3), Stage(leave), in_flight=2).run(range(50)))
    assert most[0] <= 2


def failing_at(stage, at):
    def function(name):
        def call(value, *_):
            k = value.tag if isinstance(value, Tagged) else value
            if name == stage and k == at:
                raise OSError('no %d' % k)
            return Tagged(x_of(k), k) if name == 'prepare' else k
        call.__name__ = name
        return call
    return [Stage(function('read'), threads=2), Stage(function('prepare')), Run(net(), batch=3), Stage(function('write'), item=True)]


def test_errors_in_every_stage():
    for stage in 'read', 'prepare', 'write':
        pipeline = Pipeline(*failing_at(stage, 5), errors='skip')
        assert list(pipeline.run(range(12))) == [k for k in range(12) if k != 5]
        [error] = pipeline.errors
        assert (error.number, error.item, error.stage) == (5, 5, stage) and isinstance(error.__cause__, OSError)
        assert "(number 5), stage '%s': OSError: no 5" % stage in str(error)
        assert pipeline.statistics().failed == 1 and pipeline.statistics().items == 12
        results = Pipeline(*failing_at(stage, 5)).run(range(12))
        found = []
        with raises(cytoc.PipelineError, 'no 5'):
            for value in results:
                found.append(value)
        assert found == list(range(5)), found
    pipeline = Pipeline(Stage(lambda k: x_of(k)), Run(net(), name='net'), errors='skip')
    paths = [r if r.error is None else r.error for r in pipeline.results([0, 1])]
    assert len(paths) == 2
    bad = Pipeline(Stage(lambda k: np.ones((1, 4) if k == 'b.tif' else (1, 3), np.float32), name='read'), Run(net(), name='net', batch=4), errors='skip')
    results = list(bad.results(['a.tif', 'b.tif', 'c.tif']))
    assert [r.item for r in results] == ['a.tif', 'b.tif', 'c.tif'] and [r.error is None for r in results] == [True, False, True]
    assert "item 'b.tif' (number 1), stage 'net': input 'x'" in str(results[1].error), results[1].error
    rank = list(Pipeline(Run(net(), name='net'), errors='skip').results([np.ones((2, 2, 2, 3), np.float32)]))
    assert "item (number 0), stage 'net': input 'x': expected rank 2, or 1 without the batch axis, found 4" in str(rank[0].error), rank
    a, c = np.ones((1, 3), np.float32), np.ones(3, np.float32)
    mixed = list(Pipeline(Run(net('two'), name='net'), errors='skip').results([(a, a[0], c)]))
    assert "input 'b': expected rank 2, with the batch axis as input 'a' is, found 1" in str(mixed[0].error), mixed
    wrong = Pipeline(Stage(lambda k: np.ones((1, 3)), name='read'), Run(net()))
    with raises(cytoc.PipelineError, "stage 'read'", "input 'x'", 'float32', 'float64', 'astype'):
        list(wrong.run([1]))


class Mute(Exception):
    def __str__(self):
        raise ValueError('in __str__')


def test_odd_errors():
    """What raises while its text is made, what is raised by `confident`, names that are none."""
    def fail(_):
        raise Mute
    results = list(Pipeline(Stage(fail, name='s'), errors='skip').results(range(3)))
    assert [str(r.error) for r in results] == ["item (number %d), stage 's': Mute" % k for k in range(3)], results
    assert all(isinstance(r.error.__cause__, Mute) for r in results)

    def confident(y):
        if y.max() > 4:
            raise ValueError('not to be told')
        return True
    results = list(Pipeline(Stage(x_of), *EarlyExit(net('double'), net('double'), confident), errors='skip').results(range(4)))
    assert [r.error is None for r in results] == [True, True, True, False], results
    assert "'run, expensive': ValueError: not to be told" in str(results[3].error) and isinstance(results[3].error.__cause__, ValueError)
    assert list(Pipeline(Stage(lambda k: k)).run(['\ud800', 'a', b'\xff'])) == ['\ud800', 'a', b'\xff']


def test_errors_of_items():
    def items():
        yield 1
        raise LookupError('no more')
    found = []
    with raises(LookupError, 'no more'):
        for value in Pipeline(Stage(lambda k: k)).run(items()):
            found.append(value)
    assert found == [1]


class Sum:
    """Adds parts up; counts those that are open."""
    open = most = abandoned = 0

    def __init__(self, item):
        self.item, self.parts = item, []
        Sum.open += 1
        Sum.most = max(Sum.most, Sum.open)

    def add(self, part):
        self.parts.append((part.tag, float(part.value[0, 0])))

    def finish(self):
        Sum.open -= 1
        return self.item, self.parts

    def abandon(self):
        Sum.open -= 1
        Sum.abandoned += 1


def parts_of(k):
    for i in range(k % 5):
        yield Tagged(x_of(10 * k + i), i)


def test_split_join():
    expected = [(k, [(i, float(f(x_of(10 * k + i))[0, 0])) for i in range(k % 5)]) for k in range(30)]
    Sum.most = 0
    assert list(Pipeline(Split(parts_of), Run(net(), batch=4), Join(Sum)).run(range(30))) == expected
    assert Sum.open == 0 and Sum.most == 1  # with order kept one is open at a time
    found = sorted((k, sorted(parts)) for k, parts in Pipeline(Split(parts_of, threads=2), Run(net(), batch=4), Join(Sum),
                                                              ordered=False).run(range(30)))
    assert found == expected and Sum.open == 0


def test_parts_fail():
    def look(part):
        if part.value[0, 0] == 71:
            raise ValueError('empty tile')
        return part
    Sum.abandoned = 0
    pipeline = Pipeline(Split(parts_of), Stage(look), Run(net(), batch=4), Join(Sum), errors='skip')
    found = [k for k, _ in pipeline.run(range(9))]
    assert found == [0, 1, 2, 3, 4, 5, 6, 8], found
    [error] = pipeline.errors
    assert error.item == 7 and 'ValueError: empty tile' in str(error) and isinstance(error.__cause__, ValueError)
    assert Sum.open == 0

    def truncated(k):
        yield from parts_of(k)
        if k == 3:
            raise EOFError('truncated')
    pipeline = Pipeline(Split(truncated), Run(net(), batch=4), Join(Sum), errors='skip')
    assert [k for k, _ in pipeline.run(range(6))] == [0, 1, 2, 4, 5] and 'EOFError: truncated' in str(pipeline.errors[0])
    assert Sum.open == 0


def test_parts_bounded():
    """Of a value that is split into many parts, a few are in memory."""
    live, most, lock = [0], [0], threading.Lock()

    class Part:
        def __init__(self):
            with lock:
                live[0] += 1
                most[0] = max(most[0], live[0])

        def __del__(self):
            with lock:
                live[0] -= 1

    class Count:
        def __init__(self, item):
            self.n = 0

        def add(self, part):
            self.n += 1
            time.sleep(0.0005)

        def finish(self):
            return self.n
    assert list(Pipeline(Split(lambda k: (Part() for _ in range(300))), Stage(lambda p: p), Join(Count), queue=3).run(range(2))) == [300, 300]
    assert most[0] <= 3 * 2 * 2 + 6, most


def test_join_emits_early():
    class Pairs:
        def __init__(self, item):
            self.waiting = []

        def add(self, part):
            self.waiting.append(part)
            if len(self.waiting) == 2:
                pair, self.waiting = tuple(self.waiting), []
                return [pair]

        def finish(self):
            return cytoc.NOTHING
    pipeline = Pipeline(Split(lambda k: iter(range(k))), Join(Pairs), Stage(lambda pair: sum(pair)))
    assert list(pipeline.run([4, 0, 2])) == [1, 5, 1]
    assert [(r.item, r.value) for r in pipeline.results([4, 0])] == [(4, 1), (4, 5), (4, cytoc.NOTHING), (0, cytoc.NOTHING)]


def test_cancel():
    for slow in range(4):
        def stage(k):
            def call(value):
                if slow == k:
                    time.sleep(0.05)
                return value
            return call
        pipeline = Pipeline(Stage(stage(0)), Split(lambda v: iter([v, v])), Stage(stage(1)), Join(lambda item: Last()), Stage(stage(2)))
        results = pipeline.run(iter(int, 1))  # without end
        next(results)
        threading.Timer(0.1, pipeline.cancel).start()
        with raises(cytoc.PipelineCancelled, 'cancelled'):
            for _ in results:
                if slow == 3:
                    time.sleep(0.02)
    results = Pipeline(Run(net(), batch=1000, wait=60)).run(x_of(k) for k in iter(int, 1))  # while a batch waits
    del results
    gc.collect()


class Last:
    def add(self, part):
        self.last = part

    def finish(self):
        return self.last


def test_leaving_the_loop():
    before = threading.active_count()
    for _ in range(5):
        for k, _value in enumerate(Pipeline(Stage(lambda k: k, threads=3), Stage(lambda k: k)).run(iter(int, 1))):
            if k == 3:
                break
    for _ in range(100):
        gc.collect()
        if threading.active_count() <= before:
            break
        time.sleep(0.05)
    assert threading.active_count() <= before, threading.enumerate()


INTERRUPTED = """
import time, cytoc
print('ready', flush=True)
try:
    for _ in cytoc.Pipeline(cytoc.Stage(lambda k: time.sleep(600 if k else 0))).run(range(2)):
        print('one', flush=True)
except KeyboardInterrupt:
    print('interrupted', flush=True)
    import os
    os._exit(0)
"""


def test_control_c():
    """While results are waited for. The function that sleeps is waited for when the loop ends: the process says before what it got."""
    code = INTERRUPTED.replace('time.sleep(600 if k else 0)', 'time.sleep(1.5 if k else 0)')
    p = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE, text=True)
    try:
        assert p.stdout.readline() == 'ready\n' and p.stdout.readline() == 'one\n'
        p.send_signal(signal.SIGINT)
        assert p.stdout.read() == 'interrupted\n'
        assert p.wait(30) == 0
    finally:
        p.kill()
    endless = "import cytoc\nfor k in cytoc.Pipeline(cytoc.Stage(lambda k: print('one', flush=True), queue=1), cytoc.Split(lambda k: iter(int, 1)), " \
              "cytoc.Join(type('J', (), {'__init__': lambda *_: None, 'add': lambda *_: None}))).run([1]): pass"
    p = subprocess.Popen([sys.executable, '-c', endless], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:  # nobody catches it: the interpreter's end waits for nothing
        assert p.stdout.readline() == 'one\n'
        time.sleep(0.2)
        begun = time.monotonic()
        p.send_signal(signal.SIGINT)
        assert 'KeyboardInterrupt' in p.communicate(timeout=30)[1]
        assert time.monotonic() - begun < 4.5, 'it took %.1f s' % (time.monotonic() - begun)
    finally:
        p.kill()


LEFT = """
import time, cytoc
left = cytoc.Pipeline(cytoc.Stage(lambda k: k, threads=2), cytoc.Split(lambda k: iter(range(3))), cytoc.Stage(lambda k: time.sleep(0.01))).run(iter(int, 1))
next(left)
print('end', flush=True)
"""


def test_interpreter_ends():
    """A run that nobody ended does not keep the process."""
    done = subprocess.run([sys.executable, '-c', LEFT], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == 'end\n', done.stdout


def test_fork():
    """The child has none of the threads, and waits for none."""
    results = Pipeline(Stage(lambda k: k)).run(iter(int, 1))
    next(results)
    child = os.fork()
    if not child:
        results.close()
        os._exit(7)
    for _ in range(300):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        time.sleep(0.1)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert pid and os.WEXITSTATUS(status) == 7
    assert next(results) == 0


def test_thread_locals():
    """A stage's threads stay: what one keeps, it has for the next item."""
    local, made = threading.local(), []

    def call(k):
        if not hasattr(local, 'reader'):
            local.reader = object()
            made.append(k)
        return k
    assert list(Pipeline(Stage(call, threads=2)).run(range(50))) == list(range(50))
    assert len(made) <= 2, made


def test_outputs_live_on():
    run = Pipeline(Run(net('double'), batch=16, wait=1, contexts=1), queue=32).run(np.full((1, 1000), k, np.float32) for k in range(200))
    kept = list(run)
    del run
    gc.collect()
    for k, y in enumerate(kept):
        np.testing.assert_array_equal(y, np.full((1, 1000), 2 * k, np.float32))
    kept[3][:] = 7  # its own
    assert kept[2][0, 0] == 4 and kept[4][0, 0] == 8


def test_reuse():
    frames = [np.full((1, 8), 100 * (k // 10) + (k % 10) * 0.02, np.float32) for k in range(50)]
    pipeline = Pipeline(Run(net('double'), reuse=0.15, batch=4))
    found = list(pipeline.run(frames))
    computed = [100 * (k // 10) + (0.16 if k % 10 >= 8 else 0) for k in range(50)]  # 0.16 is the first that differs by more than 0.15
    np.testing.assert_allclose([y[0, 0] for y in found], 2 * np.array(computed), rtol=1e-5)
    assert pipeline.statistics().stages[1].reused == 40
    with raises(ValueError, 'read-only'):
        found[1][:] = 0


def softmax_model(scale):
    return model([helper.make_node('Mul', ['x', 's'], ['z']), helper.make_node('Softmax', ['z'], ['p'])], [port('x', 'float32', ['n', 4])],
                 [port('p', 'float32', ['n', 4])], {'s': np.array(scale, np.float32)})


def test_early_exit():
    cheap, expensive = cytoc.compile(softmax_model(1)), cytoc.compile(softmax_model(50))
    rng = np.random.default_rng(0)
    items = [rng.standard_normal((1, 4)).astype(np.float32) * (1 + k % 4) for k in range(60)]
    sure = [cheap(x).max() >= 0.8 for x in items]
    assert 10 < sum(sure) < 50
    for confident in 0.8, lambda p: p.max() >= 0.8:
        pipeline = Pipeline(EarlyExit(cheap, expensive, confident, batch=4), Stage(lambda p: p.copy()))
        for x, easy, p in zip(items, sure, pipeline.run(items)):
            np.testing.assert_array_equal(p, cheap(x) if easy else expensive(x))
        stages = pipeline.statistics().stages
        assert stages[2].passed == sum(sure) and stages[2].items == 60 - sum(sure) and stages[1].items == 60


def test_statistics():
    def slow(k):
        time.sleep(0.004)
        return k
    pipeline = Pipeline(Stage(lambda k: k, name='read'), Stage(slow, name='slow'), Stage(lambda k: k, name='write'))
    seen = []
    for k in pipeline.run(range(60)):
        if k == 30:
            seen.append(pipeline.statistics())
    s = pipeline.statistics()
    assert s.bottleneck == 'slow' and 'threads=2' in s.advice and s.items == 60 and s.failed == 0, s
    assert 25 <= seen[0].items <= 36 and seen[0].bottleneck == 'slow'
    assert s.stages[0].waiting_out > s.stages[0].busy and s.stages[2].waiting_in > s.stages[2].busy
    assert json.loads(json.dumps(s.as_dict()))['stages'][1]['name'] == 'slow'
    assert 'slow' in str(s) and 'items/s' in str(s)
    assert abs(s.rate - 60 / s.seconds) < 1e-6 and s.seconds >= 0.24


def test_several_runs_at_once():
    pipeline, wrong = Pipeline(Run(net(), batch=4), Stage(lambda y: float(y[0, 0]))), []

    def work(base):
        found = list(pipeline.run(x_of(base + k) for k in range(40)))
        if found != [float(f(x_of(base + k))[0, 0]) for k in range(40)]:
            wrong.append(base)
    threads = [threading.Thread(target=work, args=(100 * t,)) for t in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_bad():
    text = cytoc.compile(model([helper.make_node('Identity', ['s'], ['t'])], [port('s', 'string', ['n'])], [port('t', 'string', ['n'])]))
    found = cytoc.compile(model([helper.make_node('NonZero', ['a'], ['b'])], [port('a', 'float32', ['n'])], [port('b', 'int64', [1, None])]))
    with raises(ValueError, 'at least one stage'):
        Pipeline()
    with raises(TypeError, 'expected Stage, Split, Run or Join, found function', 'Stage(f)'):
        Pipeline(lambda k: k)
    with raises(ValueError, 'expected a Split before it'):
        Pipeline(Join(Sum))
    with raises(TypeError, 'expected a function'):
        Stage(3)
    with raises(TypeError, 'expected a model'):
        Run('model.so')
    with raises(ValueError, 'threads'):
        Stage(len, threads=0)
    with raises(ValueError, "errors: expected 'stop' or 'skip'"):
        Pipeline(Stage(len), errors='ignore')
    with raises(ValueError, 'batch'):
        Run(net(), batch=0)
    for much in 2**31, 2**40, 2**63, 2**70:  # more than the native side's numbers hold
        for make in (lambda n: Stage(len, threads=n), lambda n: Run(net(), batch=n), lambda n: Pipeline(Stage(len), queue=n),
                     lambda n: Pipeline(Stage(len), in_flight=n)):
            with raises(ValueError, 'at most 2147483647', str(much)):
                make(much)
    for wait in float('inf'), float('nan'), 1e12, -1:
        with raises(ValueError, 'wait: expected a number that is not negative, of at most 1e+09'):
            Run(net(), wait=wait)
    with raises(cytoc.InputError, "stage 'run'", "input 's' is no tensor of numbers"):
        list(Pipeline(Run(text)).run([['a']]))
    with raises(cytoc.InputError, "output 'b' has a size that depends on data", 'batch 1'):
        list(Pipeline(Run(found, batch=2)).run([1]))
    assert [y.tolist() for y in Pipeline(Run(found)).run([np.array([0, 5], np.float32), np.array([1, 0, 2], np.float32)])] == [[[1]], [[0, 2]]]
    closed = cytoc.compile(linear()[0])
    closed.close()
    with raises(cytoc.RunError, 'closed'):
        list(Pipeline(Run(closed)).run([x_of(1)]))


REAL = 'mnist_cntk', 'face_landmark_slim160', 'hand_landmark_lite', 'light_squeezenet', 'ultraface_slim320_simplified'


def test_real_networks():
    """Each with other inputs for every item, through files on disk, against the model called by itself."""
    for name in REAL:
        path = os.path.join(lib.SHARED, 'models', name, 'model.onnx')
        if not os.path.exists(path):
            continue
        real = cytoc.compile(path)
        folder = os.path.join(WORK, name)
        os.makedirs(folder)
        rng, paths = np.random.default_rng(0), []
        for k in range(12):
            feeds = {i.name: rng.random([d if isinstance(d, int) else 1 for d in i.shape]).astype(i.dtype) for i in real.inputs}
            paths.append(os.path.join(folder, '%d.npz' % k))
            np.savez(paths[-1], **feeds)

        def read(path):
            with np.load(path) as z:
                return dict(z)

        def write(y, item):
            np.savez(item + '.out.npz', *(y if isinstance(y, tuple) else (y,)))
            return item
        assert list(Pipeline(Stage(read, threads=2), Run(real), Stage(write, item=True, threads=2)).run(paths)) == paths
        for path in paths:
            expected = real.run(None, read(path))
            with np.load(path + '.out.npz') as z:
                for k, y in enumerate(expected):
                    np.testing.assert_allclose(z['arr_%d' % k], y, rtol=1e-4, atol=1e-5)
