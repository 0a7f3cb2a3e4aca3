# SPDX-License-Identifier: Apache-2.0
"""cyto-tune: what it measures is in its file, the choice follows from that alone, limits are kept, the file is taken by cyto-run,
cyto-bench and Python, and what is interrupted, damaged or of something else is said.

In:  examples/digits and small models that are made here. Out: the closing line.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
from onnx import TensorProto as T
from onnx import helper as h

import graphs
import lib

MODEL = os.path.join(lib.ROOT, 'examples', 'digits', 'digits.onnx')
CASES = []


def case(function):
    CASES.append(function)
    return function


class Tuner:
    """A folder of a test with libraries in it, and calls of cyto-tune there."""

    def __init__(self, args, name):
        self.args, self.folder = args, os.path.join(args.build, 'tests', 'settings', lib.safe_name(name))
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        self.file = self.path('tuned.json')

    def path(self, name):
        return os.path.join(self.folder, name)

    def library(self, model=MODEL, *options, name='m.so'):
        code, _, err = lib.run([self.args.cytoc, model, '-o', self.path(name), *options])
        assert code == 0, err
        return self.path(name)

    def command(self, model, *options, seconds='0.01'):
        return [os.path.join(self.args.build, 'cyto-tune'), model, '-o', self.file, '--seconds', seconds, *options]

    def run(self, model, *options, code=0, **more):
        got, out, err = lib.run(self.command(model, *options), 300, **more)
        assert got == code, 'exit code %s instead of %s: %s%s' % (got, code, out, err)
        return out, err

    def json(self):
        with open(self.file, encoding='utf-8') as f:
            return json.load(f)

    def write(self, content):
        with open(self.file, 'w', encoding='utf-8') as f:
            f.write(content if isinstance(content, str) else json.dumps(content))

    def tool(self, name, *words, code=0):
        got, out, err = lib.run([os.path.join(self.args.build, name), *words], 120)
        assert got == code, '%s: exit code %s instead of %s: %s%s' % (name, got, code, out, err)
        return out, err


def sample(rate, p95, kb):
    return {'runs': 100, 'rate': rate, 'median_ms': p95 / 2, 'p95_ms': p95, 'peak_kb': kb}


def settings(file):
    return [(p['threads'], p['contexts'], p['batch']) for p in file['measured']]


@case
def measured(t):
    """Threads and contexts that the CPUs hold, batches of what is open; the best are measured three times; a second call measures
    nothing and gives the same bytes."""
    library = t.library()
    out, err = t.run(library)
    file, cpus = t.json(), len(os.sched_getaffinity(0))
    assert not err and file['symbol'] == 'batch' and file['cpus'] == cpus and file['model'] == 'digits', file
    found = settings(file)
    assert len(set(found)) == len(found) and all(1 <= a * b <= cpus and c >= 1 for a, b, c in found), found
    assert {(1, 1, 1), (1, cpus, 1), (cpus, 1, 1)} <= set(found) and max(c for _, _, c in found) >= 4, found
    assert sum(len(p['samples']) == 3 for p in file['measured']) >= min(3, len(found)), file
    choice = file['choice']
    assert (choice['threads'], choice['contexts'], choice['batch']) in found and '<- chosen' in out, out
    t.run(library)
    again = t.json()
    assert settings(again)[:len(found)] == found, 'measured again'


@case
def chosen(t):
    """The choice is a function of what was measured and the limits. Sizes are fixed here, so that three settings are all."""
    library = t.library(MODEL, '--dim', 'batch=1')
    t.run(library)
    file, cpus = t.json(), len(os.sched_getaffinity(0))
    assert file['symbol'] == '' and 'batch' not in file['choice'] or file['choice']['batch'] == 0, file
    if cpus != 2:
        file['measured'] = [p for p in file['measured'] if (p['threads'], p['contexts']) in ((1, 1), (1, cpus), (cpus, 1))]
    one, two, wide = [(1, 1, 0), (1, cpus, 0), (cpus, 1, 0)]

    def choose(figures, *options, code=0):
        for reverse in (False, True):
            points = [p for p in file['measured']]
            for p in points:
                p['samples'] = [sample(*figures.get((p['threads'], p['contexts'], p['batch']), (1, 1000, 1e6)))] * 3
            t.write({**file, 'measured': points[::-1] if reverse else points})
            _, err = t.run(library, *options, code=code)
            choice = t.json().get('choice')
            now = choice and (choice['threads'], choice['contexts'], choice['batch'])
            assert not reverse or now == before, 'the order of points matters: %s, %s' % (now, before)
            before = now
        return now, err

    if cpus == 1:
        return
    assert choose({one: (100, 10, 1000), two: (190, 11, 2000), wide: (150, 6, 1100)})[0] == two
    assert choose({one: (100, 10, 1000), two: (101, 11, 2000), wide: (101.5, 6, 1100)})[0] == one, 'within the noise: fewer threads'
    assert choose({one: (100, 10, 1000), two: (190, 11, 2000), wide: (189, 6, 1100)})[0] == wide, 'within the noise: less memory'
    assert choose({one: (100, 10, 1000), two: (190, 11, 2000), wide: (150, 6, 1100)}, '--latency=8ms')[0] == wide
    assert choose({one: (100, 10, 1000), two: (190, 11, 2000), wide: (150, 6, 1100)}, '--memory=1M')[0] == one
    assert choose({one: (100, 10, 1000), two: (190, 11, 2000), wide: (150, 6, 1100)}, '--memory=1.5M', '--latency=10ms')[0] == wide
    none, err = choose({one: (100, 10, 1024), two: (190, 11, 2000), wide: (150, 6, 1100)}, '--latency=2ms', code=1)
    assert none is None and re.search(r'nothing measured is within --latency=2ms. The quickest runs take 6.000 ms .*threads %d, contexts 1.*'
                                      r'least memory is 1.0 MB .threads 1, contexts 1' % cpus, err), err
    _, err = t.tool('cyto-run', library, '--random', '1', '--tuned', t.file, code=1)
    assert 'it has no choice' in err and 'run cyto-tune with others' in err, err


@case
def limits(t):
    """Memory: a run of so many rows does not fit, and is not chosen."""
    model, rng = t.path('m.onnx'), np.random.default_rng(1)
    graphs.save_model(model, [h.make_node('MatMul', ['x', 'w'], ['y'])], [graphs.port('x', np.float32, ['rows', 256])],
                      [graphs.port('y', np.float32, ['rows', 4096])],
                      [h.make_tensor('w', T.FLOAT, [256, 4096], rng.standard_normal(256 * 4096).astype(np.float32))])
    library = t.library(model)
    t.run(library, '--memory=12M')
    choice = t.json()['choice']
    assert choice['memory_mb'] <= 12 and 1 <= choice['batch'] < 700, choice
    _, err = t.run(library, '--memory=1M', code=1)
    assert 'nothing measured is within --throughput --memory=1M' in err and 'the least memory is' in err, err


@case
def sizes(t):
    """What is open besides the batch is to be given; names are checked; --batch chooses another symbol."""
    model = t.path('m.onnx')
    graphs.save_model(model, [h.make_node('Relu', ['x'], ['y'])], [graphs.port('x', np.float32, ['n', 3, 'h'])],
                      [graphs.port('y', np.float32, ['n', 3, 'h'])], [])
    library = t.library(model)
    _, err = t.run(library, code=1)
    assert "the model leaves 'h' open; give --dim h=N" in err, err
    _, err = t.run(library, '--dim', 'heigth=3', code=1)
    assert "no input has a dimension of that name" in err, err
    t.run(library, '--dim', 'h=8')
    assert t.json()['symbol'] == 'n' and t.json()['sizes'] == 'h=8', t.json()
    _, err = t.run(library, '--batch=h', '--dim', 'n=2')
    assert 'is of other sizes of inputs: all of it is measured again' in err and t.json()['symbol'] == 'h', err
    t.run(library, '--shape', 'x=2x3x5')
    assert t.json()['symbol'] == '' and set(b for _, _, b in settings(t.json())) == {0}, t.json()
    _, err = t.run(library, '--batch=q', '--dim', 'h=8', code=1)
    assert "'q=1'" in err, err


@case
def fixed(t):
    """Where files or options fix the batch, it is not varied, so that no samples are counted that are not there; --batch beside them is an error."""
    model, folder, none = t.path('m.onnx'), t.path('in'), t.path('none')
    graphs.save_model(model, [h.make_node('Relu', ['x'], ['y'])], [graphs.port('x', np.float32, ['n', 3, 'h'])],
                      [graphs.port('y', np.float32, ['n', 3, 'h'])], [])
    library = t.library(model)
    os.makedirs(folder)
    os.makedirs(none)
    np.save(os.path.join(folder, 'in_0_x.npy'), np.zeros((5, 3, 4000), np.float32))
    for words, why in ((['--batch=n', '--inputs', folder], "--batch=n varies a size that --inputs fixes, of 'x'"),
                       (['--batch=n', '--dim', 'n=4', '--dim', 'h=8'], "--batch=n varies a size that --dim fixes, of 'n'"),
                       (['--batch=n', '--shape', 'x=1x3x8'], "--batch=n varies a size that --shape fixes, of 'x'"),
                       (['--inputs', t.path('typo')], 'typo\': No such file'), (['--inputs', none], 'has no input of the model: expected in_0_'),
                       (['--dim', 'h=8'] + ['--range', 'x=0:1'] * 80, 'have 405 bytes or more'),
                       (['--dim', 'h=8'] + ['--range', 'x=0:1'] * 65, 'more than 64 of --dim'), (['--dim', 'h=8', '--batch', 'n' * 70], 'has 70 bytes')):
        _, err = t.run(library, *words, code=1)
        assert why in err and not os.path.exists(t.file), (words, err)
    _, err = t.run(model, '--options', '-O2 ' * 250, code=1)
    assert 'a command line of more than 200 words' in err, err
    t.run(library, '--inputs', folder)
    file = t.json()
    assert file['symbol'] == '' and {b for _, _, b in settings(file)} == {0}, file


@case
def other_goals(t):
    """What did not run within one limit of memory is tried again with another, and not with the same."""
    library = t.library(MODEL, '--dim', 'batch=1')
    t.run(library)
    file = t.json()
    for p in file['measured']:
        p.update(samples=[], why='does not run: no memory')
    t.write({**file, 'goal': '--throughput --memory=100M'})
    t.run(library, '--memory=100M', code=1)
    assert not any(p['samples'] for p in t.json()['measured']), 'measured again'
    t.write({**file, 'goal': '--throughput --memory=100M'})
    t.run(library, '--memory=8G')
    assert all(p['samples'] for p in t.json()['measured']), t.json()


def command_of(process):
    try:
        with open('/proc/%s/cmdline' % process, encoding='utf-8', errors='replace') as f:
            return f.read()
    except OSError:
        return ''


@case
def stopped_early(t):
    """SIGTERM and SIGINT while cytoc compiles: it ends, with no process and no folder left."""
    temporary = t.path('tmp')
    os.makedirs(temporary)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with subprocess.Popen(t.command(MODEL), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, 'TMPDIR': temporary}) as p:
            end = time.monotonic() + 60
            while p.poll() is None and time.monotonic() < end and not os.listdir(temporary):
                time.sleep(0.001)
            p.send_signal(number)
            _, err = p.communicate()
        assert p.returncode == 1 and 'interrupted while' in err and not os.path.exists(t.file), (number, p.returncode, err)
        left = [n for n in os.listdir(temporary) if n.startswith('cyto-tune.')]
        assert not left, 'signal %d leaves %s' % (number, left)
        running = [n for n in os.listdir('/proc') if n.isdigit() and temporary in command_of(n)]
        assert not running, 'signal %d leaves cytoc running: %s' % (number, [command_of(n) for n in running])


@case
def interrupted(t):
    """SIGKILL and SIGINT keep what was measured; the next call goes on from there. A limit of time, too."""
    library, known = t.library(), []
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        with subprocess.Popen(t.command(library, seconds='0.1'), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
            end = time.monotonic() + 60
            while p.poll() is None and time.monotonic() < end and not (os.path.exists(t.file) and len(settings(t.json())) > len(known) + 1):
                time.sleep(0.01)
            p.send_signal(number)
            out, err = p.communicate()
        now = settings(t.json())
        assert now[:len(known)] == known and len(now) > len(known), 'lost: %s, %s' % (known, now)
        known = now
        if number != signal.SIGKILL:
            assert p.returncode == 0 and 'the same command goes on from there' in err and '<- chosen' in out, (p.returncode, out, err)
    got, _, err = lib.run(t.command(library, '--tune-seconds=1', seconds='0.4'), 60)
    assert got == 0 and 'is of another --seconds' in err and 'it ended before all was measured' in err and \
        1 <= len(settings(t.json())) <= 6, (got, err, settings(t.json()))


@case
def taken(t):
    """cyto-run, cyto-bench and Python take threads and batch, unless they are given others."""
    library = t.library()
    t.run(library)
    file = t.json()
    file['choice'].update(threads=1, contexts=2, batch=5)
    t.write(file)
    out, _ = t.tool('cyto-run', library, '--random', '1', '--repeat', '2', '--about', '--tuned', t.file)
    assert 'float32 [5,1,8,8]' in out and ', 1 thread' in out, out
    out, _ = t.tool('cyto-run', library, '--random', '1', '--repeat', '2', '--tuned', t.file, '--dim', 'batch=3')
    assert 'float32 [3,1,8,8]' in out, out
    for words in (['--dim', '*=3'], ['--random-dims', '3']):
        out, _ = t.tool('cyto-run', library, '--random', '1', '--repeat', '2', '--tuned', t.file, *words)
        assert 'float32 [3,1,8,8]' in out, (words, out)
        out, _ = t.tool('cyto-bench', library, '--tuned', t.file, '--against', 'none', '--seconds', '0.01', *words)
        assert 'image 3x1x8x8' in out, (words, out)
    for model in (library, MODEL):
        out, _ = t.tool('cyto-bench', model, '--tuned', t.file, '--against', 'none', '--seconds', '0.01')
        assert 'image 5x1x8x8' in out and re.search(r'^\S+ +- +1 +compiled', out, re.M), out
    out, _ = t.tool('cyto-bench', library, '--tuned', t.file, '--against', 'none', '--seconds', '0.01', '--batch', '2', '--threads', '2')
    assert 'image 2x1x8x8' in out and re.search(r'^\S+ +2 +2 +compiled', out, re.M), out
    script = ('import sys, warnings, cytoc\nwarnings.simplefilter("error")\nm = cytoc.load(sys.argv[1], tuned=sys.argv[2])\nr = cytoc.Run(m)\n'
              'print(m.tuned.threads, m.tuned.contexts, m.tuned.batch, m.tuned.symbol, r.batch, r.contexts, r.run_threads)\n'
              'print(cytoc.Run(m, batch=3, contexts=1).batch)\n')
    if t.args.variant == 'release':
        env = {**os.environ, 'CYTOC_LIB_DIR': t.args.build, 'PYTHONPATH': os.path.join(lib.ROOT, 'python')}
        got, out, err = lib.run([sys.executable, '-c', script, library, t.file], 60, env=env)
        assert got == 0 and out == '1 2 5 batch 5 2 1\n3\n', out + err
        t.write({**file, 'cpus': 77})
        got, out, err = lib.run([sys.executable, '-c', script, library, t.file], 60, env=env)
        assert got and 'was measured with 77 CPUs' in err, err
    t.write({**file, 'cpus': 77})
    for words in (['cyto-run', library, '--random', '1'], ['cyto-bench', library, '--against', 'none', '--seconds', '0.01']):
        _, err = t.tool(*words, '--tuned', t.file)
        assert 'was measured with 77 CPUs, and here are' in err and 'run cyto-tune again' in err, err
    t.write({**file, 'model': 'other'})
    _, err = t.tool('cyto-run', library, '--random', '1', '--tuned', t.file, code=1)
    assert "of the model 'other'" in err and 'run cyto-tune with this one' in err, err
    _, err = t.tool('cyto-bench', library, '--against', 'none', '--tuned', t.file, code=2)
    assert "of the model 'other'" in err and 'run cyto-tune with this one' in err, err
    t.write(json.dumps(file)[:-40])
    _, err = t.tool('cyto-run', library, '--random', '1', '--tuned', t.file, code=1)
    assert re.search(r'line 1: expected .*run cyto-tune again', err), err
    _, err = t.tool('cyto-bench', library, '--tuned', t.path('none.json'), code=2)
    assert 'none.json' in err and 'No such file' in err, err


@case
def files(t):
    """Files that are damaged are left alone; those of something else are measured anew, with a word about it."""
    library = t.library()
    t.run(library)
    file = t.json()
    cut = json.dumps(file)[:200]
    for content, why in ((cut, r"line 1: .*; expected a file of cyto-tune: remove it, or name another by -o"), ('[1]', 'this is no file of cyto-tune'),
                         ('{"a": 1}', 'this is no file of cyto-tune'), ({**file, 'measured': [{'threads': 1}]}, "number 1 of 'measured' is damaged")):
        t.write(content)
        with open(t.file, encoding='utf-8') as f:
            before = f.read()
        _, err = t.run(library, code=1)
        with open(t.file, encoding='utf-8') as f:
            assert re.search(why, err) and f.read() == before, err
    for change, why in (({'cyto-tune': 0}, 'another version of cyto-tune'), ({'cpu': 'Z80'}, 'another machine'), ({'cpus': 99}, 'another machine'),
                        ({'library': '0'}, 'another library')):
        t.write({**file, **change, 'measured': file['measured'][:1] * 1})
        _, err = t.run(library)
        assert re.search(why + '.*: all of it is measured again', err) and len(settings(t.json())) > 1, err
    t.write(file)
    t.library(MODEL, '--int8')
    _, err = t.run(library)
    assert 'is of another library' in err, err
    t.file = t.path('none/tuned.json')
    _, err = t.run(library, code=1)
    assert 'cannot write what was measured: No such file' in err, err
    t.file = '/dev/full'
    got, out, err = lib.run(['sh', '-c', 'cd %s && exec %s m.so --seconds 0.01 > /dev/full' % (t.folder, t.command(library)[0])], 120)
    assert got == 1 and 'cannot write to the standard output' in err, (got, out, err)


@case
def models(t):
    """A model is compiled with the options that are given; what is wrong is said by cytoc."""
    t.run(MODEL, '--options', '--int8 --name two', '--dim', 'batch=2')
    assert t.json()['symbol'] == '', t.json()
    for words, code, why in (([MODEL, '--options', '--nonsense'], 1, "unknown option '--nonsense'"), ([MODEL, '--options', '"--int8'], 1, 'a quote has no end'),
                             ([t.path('none.onnx')], 1, 'none.onnx'), ([t.path('none.so')], 1, 'none.so'), ([t.library(), '--options', '--int8'], 1, '--options are of cytoc'),
                             ([], 2, 'expected one model, found 0'), ([MODEL, '--latency=fast'], 2, "'--latency' expects a time such as 20ms or 1.5s, found 'fast'"),
                             ([MODEL, '--memory=much'], 2, "'--memory' expects memory such as 500M or 4G, found 'much'"),
                             ([MODEL, '--latency=2ms', '--throughput'], 2, 'exclude each other'), ([MODEL, '--latencey=2ms'], 2, "did you mean '--latency'")):
        got, _, err = lib.run([os.path.join(t.args.build, 'cyto-tune'), *words, '-o', t.file], 120)
        assert got == code and why in err, (words, got, err)
    assert not [n for n in os.listdir(os.environ.get('TMPDIR') or '/tmp') if n.startswith('cyto-tune.') and
                os.stat(os.path.join(os.environ.get('TMPDIR') or '/tmp', n)).st_mtime > t.began], 'a temporary folder is left'


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    for function in CASES:
        name = 'settings ' + function.__name__.replace('_', ' ')
        if not args.wanted(name):
            continue
        why, tuner = None, Tuner(args, name)
        tuner.began = time.time()
        try:
            function(tuner)
        except AssertionError as e:
            why = str(e) or 'see the test'
        suite.result(name, why)
        shutil.rmtree(tuner.folder, ignore_errors=True)
    suite.done()


if __name__ == '__main__':
    main()
