# SPDX-License-Identifier: Apache-2.0
"""cyto-bench's tables of tasks, comparison with an older run and search for a batch size; bad input of each.

In:  examples/digits and small models that are made here; ONNX Runtime of build/venv as a contender.
Out: the closing line.
"""
import json
import os
import re
import shutil
import signal
import subprocess
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


class Bench:
    """Calls cyto-bench in a folder of a test."""

    def __init__(self, args, name):
        self.args = args
        self.folder = os.path.join(args.build, 'tests', 'bench_tool', lib.safe_name(name))
        os.makedirs(self.folder, exist_ok=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), 'w', encoding='utf-8', newline='') as f:
            f.write(text)
        return self.path(name)

    def run(self, *options, code=0, against='none'):
        got, out, err = lib.run([os.path.join(self.args.build, 'cyto-bench'), '--seconds', '0.01', '--against', against, *options], 300)
        assert got == code, 'exit code %s instead of %s: %s%s' % (got, code, out, err)
        return out, err

    def results(self, *options, **more):
        self.run('--json', self.path('r.json'), *options, **more)
        with open(self.path('r.json'), encoding='utf-8') as f:
            return json.load(f)

    def refused(self, csv, *expected):
        """The table is refused with exit code 2, and these words."""
        _, err = self.run('--tasks', self.write('bad.csv', csv), code=2)
        for words in expected:
            assert re.search(words, err), "no '%s' in: %s" % (words, err)


@case
def tasks(b):
    """A row a task, with options, sizes, threads and a name of its own; quotes and comments as CSV has them."""
    csv = b.write('t.csv', '# what we ship\r\nmodel,name,options,dims,threads,batch\r\n%s,"one, ""plain""",,batch=3,1,\r\n\r\n'
                  '%s,int8,--int8,,2,4\r\n' % (MODEL, MODEL))
    file = b.results('--tasks', csv, against='ort')
    rows = file['results']
    found = [(r['model'], r['contender'], r['threads'], r['batch'], r['shapes'], r.get('options')) for r in rows]
    assert found == [('one, "plain"', 'compiled -O3', 1, 0, 'image 3x1x8x8', None), ('one, "plain"', 'ONNX Runtime', 1, 0, 'image 3x1x8x8', None),
                     ('int8', 'compiled -O3', 2, 4, 'image 4x1x8x8', '--int8'), ('int8', 'ONNX Runtime', 2, 4, 'image 4x1x8x8', '--int8')], found
    about = file['about']
    assert re.match(r'20\d\d-', about['date']) and about['cpu'] and len(about['sources']) == 16 and '--tasks' in about['command'], about
    for r in rows:
        phases = ['load_ms', 'first_ms', 'median_ms', 'peak_kb'] + ['in_ms', 'out_ms'] * (r['contender'] == 'compiled -O3')
        assert all(r['median'][p] >= 0 for p in phases) and (r['contender'] != 'compiled -O3' or r['compile_s'] > 0), r
    assert rows[2]['size_kb'] < rows[0]['size_kb'], 'int8 is as large as floats'


@case
def inputs(b):
    """A folder of inputs takes the place of random ones, for all contenders; what is done with the outputs is a phase, too."""
    model, data = b.path('m.onnx'), b.path('data')
    graphs.save_model(model, [h.make_node('Gather', ['table', 'i'], ['y'])], [graphs.port('i', np.int64, ['n'])],
                      [graphs.port('y', np.float32, ['n'])], [h.make_tensor('table', T.FLOAT, [100], np.arange(100, dtype=np.float32))])
    os.makedirs(data, exist_ok=True)
    np.save(os.path.join(data, 'in_0_i.npy'), np.array([7, 99, 42], np.int64))
    csv = b.write('t.csv', 'model,inputs,post\nm.onnx,data,cp "$CYTO_OUTPUTS"/out_0_y.npy %s\n' % b.path('copy.npy'))
    rows = b.results('--tasks', csv, against='ort')['results']
    assert [r['shapes'] for r in rows] == ['i 3'] * 2 and rows[0]['post_ms'] > 0 and 'post_ms' not in rows[1], rows
    assert np.load(b.path('copy.npy')).tolist() == [7, 99, 42]
    b.write('t.csv', 'model,inputs,post\nm.onnx,data,echo no space left >&2; exit 3\n')
    row = b.results('--tasks', csv, '--skip-failed')['results'][0]
    assert row['failure'] == 'post: no space left', row


@case
def interrupted(b):
    """Signals leave no folder behind, nor a process that would go on writing there."""
    temporary = b.path('tmp')
    shutil.rmtree(temporary, ignore_errors=True)
    os.makedirs(temporary, exist_ok=True)
    command = [os.path.join(b.args.build, 'cyto-bench'), '--seconds', '30', '--against', 'none', '--dim', 'batch=1', MODEL]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        with subprocess.Popen(command, env={**os.environ, 'TMPDIR': temporary}, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as process:
            end = time.monotonic() + 120
            while not any(files for _, _, files in os.walk(temporary)) and process.poll() is None and time.monotonic() < end:
                time.sleep(0.01)
            process.send_signal(number)
            code = process.wait(120)
        time.sleep(0.2)
        assert code == -number, 'exit code %s instead of %s' % (code, -number)
        assert not os.listdir(temporary), 'left behind: %s' % os.listdir(temporary)


@case
def ignored(b):
    """What was ignored before stays so, as under nohup; the child's end is seen where SIGCHLD was."""
    def ignore():
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_IGN)

    command = [os.path.join(b.args.build, 'cyto-bench'), '--seconds', '0.3', '--against', 'none', '--dim', 'batch=1', MODEL]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=ignore) as process:
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGHUP)
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 0 and 'digits' in out, (process.returncode, out)


@case
def failures(b):
    """The first task that fails ends it and is named; --skip-failed goes on, with a row that says why."""
    csv = b.write('t.csv', 'model,name,options,dims\n%s,bad,--nonsense,\n%s,open,,\n%s,good,,batch=1\n' % ((MODEL,) * 3))
    out, err = b.run('--tasks', csv, code=1)
    assert re.search(r"t.csv:2: task 'bad' failed.*--skip-failed", err) and 'good' not in out, out + err
    rows = b.results('--tasks', csv, '--skip-failed')['results']
    assert [r['model'] for r in rows] == ['bad', 'open', 'good'] and "unknown option '--nonsense'" in rows[0]['failure'] and \
        "leaves 'batch' open" in rows[1]['failure'] and 'median' in rows[2], rows


@case
def failures_of_threads(b):
    """Every row that has no times says why, also those of further numbers of threads, which are not tried."""
    _, err = b.run(MODEL, '--threads', '1,2', '--json', b.path('r.json'), code=1, against='eager,ort')
    with open(b.path('r.json'), encoding='utf-8') as f:
        rows = json.load(f)['results']
    assert len(rows) == 6 and all(re.search('open', r.get('failure', '')) for r in rows), rows


@case
def bad_tables(b):
    b.refused('model,dimms\n%s,batch=1\n' % MODEL, "bad.csv:1: no column is called 'dimms'; did you mean 'dims'", 'there are model, ')
    b.refused('name\nx\n', "bad.csv:1: .*'model' among them")
    b.refused('model,model\n%s,%s\n' % (MODEL, MODEL), "'model' stands there twice")
    b.refused('model,dims\n\n%s\n' % MODEL, 'bad.csv:3: expected 2 cells, as in the first line, found 1')
    b.refused('model,dims\n%s,batch=1,9\n' % MODEL, 'bad.csv:2: expected 2 cells.*found 3')
    b.refused('model\nnone.onnx\n', r"bad.csv:2: cannot read the model '.*/none.onnx': No such file")
    b.refused('model,threads\n%s,two\n' % MODEL, "column 'threads': expected a number from 1.*found 'two'")
    b.refused('model,shapes\n%s,3x4\n' % MODEL, "column 'shapes': expected NAME=VALUE.*found '3x4'")
    b.refused('model,options\n%s,"--cpu=\'x"\n' % MODEL, "a quote has no end in the column 'options'")
    b.refused('model,inputs\n%s,nowhere\n' % MODEL, "cannot read the folder of inputs '.*/nowhere'")
    b.refused('model\n"%s\n' % MODEL, 'a quote has no end')
    b.refused('model,name\n,x\n', "bad.csv:2: the column 'model' is empty")
    b.refused('', 'no task')
    b.refused('model\n', 'no task')
    b.refused('model\n\0', 'this is no text')
    csv = b.write('t.csv', 'model,dims\n%s,batch=1\n' % MODEL)
    for options, expected in ((['--tasks', csv, MODEL], "can't be given beside it"), (['--tasks', csv, '--dim', 'batch=2'], "can't be given beside it"),
                              (['--tasks', b.path('none.csv')], "cannot read '.*none.csv': No such file"),
                              (['--batch-search', 'much', MODEL], "'--batch-search': expected memory such as 500M or 2G, found 'much'"),
                              (['--batch-search', '1G', '--batch', '2', MODEL], 'no --batch')):
        _, err = b.run(*options, code=2)
        assert re.search(expected, err), err


@case
def compare(b):
    """Slower by more than the noise of both runs: said, and exit code 1. The older run is made slower or faster by hand."""
    old = b.results('--dim', 'batch=64', MODEL)
    def older(factor, **changes):
        file = json.loads(json.dumps(old))
        for row in file['results']:
            row.update(changes)
            for process in row['processes']:
                process['median_ms'] *= factor
        return b.write('old.json', json.dumps(file))
    for factor, code, said in ((0.05, 1, 'slower'), (20, 0, 'faster')):
        out, _ = b.run('--dim', 'batch=64', MODEL, '--compare', older(factor), code=code)
        assert re.search(r'digits .* %s\n%d of 1 slower' % (said, code), out), out
    out, _ = b.run('--dim', 'batch=64', MODEL, '--compare', older(1, shapes='image 1x1x8x8'))
    assert 'no such row' in out, out
    out, _ = b.run('--dim', 'batch=64', MODEL, '--compare', older(1, processes=[]))
    assert 'failed then' in out, out
    for text, why in (('{"a": 1}', "it has no 'results'"), ('[1, ', 'expected near end of file')):
        _, err = b.run('--dim', 'batch=64', MODEL, '--compare', b.write('old.json', text), code=1)
        assert "no file of cyto-bench --json" in err and re.search(why, err), err


@case
def batch_search(b):
    """Batches grow until one takes more memory than allowed; the best of those below it is named."""
    model = b.path('m.onnx')
    rng = np.random.default_rng(1)
    graphs.save_model(model, [h.make_node('MatMul', ['x', 'w'], ['y'])], [graphs.port('x', np.float32, ['batch', 256])],
                      [graphs.port('y', np.float32, ['batch', 4096])],
                      [h.make_tensor('w', T.FLOAT, [256, 4096], rng.standard_normal(256 * 4096).astype(np.float32))])
    file = b.results(model, '--batch-search', '24M')
    rows = file['results']
    fit = {r['batch']: r for r in rows if 'median' in r}
    beyond = [r for r in rows if 'failure' in r]
    # 4 MB of weights, and 17 kB a row
    assert {1, 2, 4, 8, 16, 32, 64, 128, 256} <= set(fit) and max(fit) < 1300 and beyond and all(r['batch'] > 256 for r in beyond), sorted(fit)
    assert all(r['median']['peak_kb'] <= 24 * 1024 for r in fit.values())
    out, _ = b.run(model, '--batch-search', '24M')
    best = re.search(r'm: best below 24M: batch (\d+), ([\d.]+) samples/s, ([\d.]+) MB', out)
    assert best and int(best[1]) > 1 and float(best[3]) <= 24, out
    out, _ = b.run(model, '--batch-search', '1M', code=1)
    assert 'm: no batch fits into 1M' in out, out


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    for function in CASES:
        name = 'bench ' + function.__name__.replace('_', ' ')
        if not args.wanted(name):
            continue
        why = None
        try:
            function(Bench(args, name))
        except AssertionError as e:
            why = str(e) or 'see the test'
        suite.result(name, why)
    suite.done()


if __name__ == '__main__':
    main()
