# SPDX-License-Identifier: Apache-2.0
"""`cytoc report`: pages in a real browser, the advice on them, and what cannot be reported.

In:  networks made here, examples/digits, resnet50 of the zoo where it is; headless Chromium, without which pages are made and not
     looked at.
Out: the closing line. A page is right when the browser has nothing to complain of and asks for nothing, the table sorts, the graphs
     are drawn in under 3 seconds, and what it shows is what was measured.
"""
import json
import os
import re
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), HERE]

import browser
import lib
import models
import numpy as np

DIGITS = 'examples/digits/digits.onnx'
TRIES = 3  # of what hangs on times: other processes may want the core
MOST_MS, MOST_BYTES = 3000, 3000000

# kind of advice: the model that deserves it, what is said then, one that does not
ADVICE = {'floor': (models.few_channels, 'Conv_0 takes .* its output has 1 channel,', models.product),
          'sizes': (models.open_sizes, 'Fix .*`n`', models.elementwise),
          'int8': (models.conv, '`--int8` would take [0-9.e-]+ ms instead of [0-9.e-]+ at [0-9]+ dB', models.elementwise),
          'threads': (models.tiny, '2 threads give .* only', models.product),
          'moves': (models.transposed, 'only moves elements', models.product),
          'runtime': (models.sorting, 'TopK_1', models.product),
          'weights': (models.large_weights, '--weights=int8', models.conv)}

_made = {}


def make(args, work, model, *words, env=None):
    """(page, what is on it, exit code, what was printed)"""
    page, numbers = os.path.join(work, 'r.html'), os.path.join(work, 'r.json')
    code, out, err = lib.run([sys.executable, '-m', 'cytoc', 'report', model, '-o', page, '--json', numbers, *words], env=env or environment(args))
    data = json.load(open(numbers)) if code == 0 else None
    return page, data, code, out + err


def environment(args):
    return dict(os.environ, CYTOC_LIB_DIR=args.build, PYTHONPATH=os.path.join(lib.ROOT, 'python'))


def advice_of(args, work, model, again):
    """{kind: texts} for a model made by a function; measured once for all that ask, unless `again`."""
    if model.__name__ not in _made or again:
        path = model(os.path.join(work, model.__name__ + '.onnx'))
        _, data, code, said = make(args, work, path)
        if code:
            raise RuntimeError('%s: %s' % (model.__name__, said))
        found = _made[model.__name__] = {}
        for a in data['advice']:
            found.setdefault(a['kind'], []).append(a['text'])
    return _made[model.__name__]


def advice(kind):
    deserves, says, other = ADVICE[kind]

    def test(args, work):
        for turn in range(TRIES):
            texts = advice_of(args, work, deserves, turn > 0).get(kind, [])
            why = None if any(re.search(says, t) for t in texts) else '%s: %s' % (deserves.__name__, texts)
            if not why:
                break
        for turn in range(TRIES):
            texts = advice_of(args, work, other, turn > 0).get(kind, [])
            if not texts:
                return why
        return '%s: %s' % (other.__name__, texts)
    return test


# ---- pages ----

ROWS = "[...document.querySelectorAll('#layers tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))"
HEAD = "[...document.querySelectorAll('#layers th')].map((h) => h.textContent)"


def click_head(page, title):
    page.evaluate("[...document.querySelectorAll('#layers th')].find((h) => h.textContent === %s).click()" % json.dumps(title))


def look(page):
    """None, or what the browser does not like."""
    if page.problems or page.evaluate('document.documentElement.dataset.ready') != '1':
        return 'problems: %s' % page.problems
    return None


def shown(args, work):
    """The table sorts and is copied, the graph is searched and clicked, dark and light, on paper."""
    path, data, code, said = make(args, work, DIGITS, '--dim', 'batch=8', '--against', 'ort', '--threads', '2')
    if code:
        return said
    text = open(path, encoding='utf-8').read()
    if re.search(r'(src|href)="(?!data:)', text) or not data['ort'] or data['accuracy']['rows'][0]['snr'] < 60:
        return 'refers to other files, or no ONNX Runtime: %s' % data.get('ort')
    with browser.Browser() as b:
        page = b.open('file://' + path)
        why = look(page)
        if why:
            return why
        rows, head = page.evaluate(ROWS), page.evaluate(HEAD)
        time, position = head.index('time µs'), head.index('#')
        if len(rows) != len(data['program']['steps']) or [r[position] for r in rows] != [str(s['position']) for s in data['program']['steps']]:
            return 'rows: %s' % rows
        number = lambda r: float(r[time].replace(',', ''))
        click_head(page, 'time µs')
        down = [number(r) for r in page.evaluate(ROWS)]
        click_head(page, 'time µs')
        up = [number(r) for r in page.evaluate(ROWS)]
        if down != sorted(map(number, rows), reverse=True) or up != down[::-1] or len(set(up)) < 3:
            return 'sorted: %s, %s' % (down, up)
        click_head(page, 'algorithm')
        names = [r[head.index('algorithm')] for r in page.evaluate(ROWS)]
        if names != sorted(names):
            return 'sorted: %s' % names
        page.evaluate("document.getElementById('csv').click()")
        csv = page.evaluate("document.getElementById('csv').dataset.csv").splitlines()
        if len(csv) != len(rows) + 1 or not csv[0].startswith('#,layer,ops'):
            return 'CSV: %s' % csv[:2]
        page.evaluate("document.querySelectorAll('#layers tbody tr')[0].click()")
        if page.evaluate("document.querySelectorAll('#layers tr.on').length") != 1 or \
                page.evaluate("document.querySelectorAll('#graph .n.on').length") != 1 or 'algorithm' not in page.evaluate(
                    "document.getElementById('details').textContent"):
            return 'a click on a row'
        page.evaluate("s = document.getElementById('search'); s.value = 'softmax'; s.dispatchEvent(new Event('input'))")
        if page.evaluate("[...document.querySelectorAll('#graph .n:not(.faint)')].length") not in (1, 2):
            return 'the search finds %s' % page.evaluate("[...document.querySelectorAll('#graph .n:not(.faint)')].map((e) => e.textContent)")
        before = page.evaluate("document.querySelector('#graph svg').getAttribute('viewBox')")
        page.evaluate("document.getElementById('graph').dispatchEvent(new WheelEvent('wheel', {deltaY: -100, clientX: 300, clientY: 500, cancelable: true}))")
        if before == page.evaluate("document.querySelector('#graph svg').getAttribute('viewBox')"):
            return 'the wheel does not zoom'
        colours = []
        for how in ('time', 'floor', 'none'):
            page.evaluate("c = document.getElementById('colour'); c.value = '%s'; c.dispatchEvent(new Event('change'))" % how)
            colours.append(page.evaluate("[...document.querySelectorAll('#graph rect')].map((r) => r.style.fill).join()"))
        if len(set(colours)) != 3:
            return 'colours: %s' % colours
        page.evaluate("c.value = 'time'; c.dispatchEvent(new Event('change')); document.querySelector('[data-graph=source]').click()")
        filled = page.evaluate("[...document.querySelectorAll('#graph rect')].filter((r) => r.style.fill).length")
        if filled != sum(len(s['nodes']) for s in data['program']['steps']):
            return '%d nodes of the model have the colour of a kernel' % filled
        back = []
        for scheme in ('dark', 'light'):
            page.media(prefers_color_scheme=scheme)
            back.append(page.evaluate('getComputedStyle(document.body).backgroundColor'))
        page.media(media='print')
        hidden = page.evaluate("getComputedStyle(document.querySelector('.tools')).display")
        if back[0] == back[1] or hidden != 'none':
            return 'dark, light %s; on paper %s' % (back, hidden)
        parts = ('roofline', 'timeline', 'memory', 'alive', 'cards', 'advice', 'accuracy')
        missing = [p for p in parts if not page.evaluate("document.getElementById('%s')" % p + " !== null")]
        if missing or page.evaluate("document.querySelectorAll('#timeline rect').length") < len(rows):
            return 'missing: %s' % missing
        return look(page)


def drawn(model, *words):
    """Both graphs of a large model."""
    def test(args, work):
        path, data, code, said = make(args, work, model(os.path.join(work, 'm.onnx')), '--quick', *words)
        if code:
            return said
        if os.path.getsize(path) > MOST_BYTES:
            return '%d bytes' % os.path.getsize(path)
        with browser.Browser() as b:
            page = b.open('file://' + path)
            for name, least in (('computed', len(data['program']['steps'])), ('source', len(data['source']['graph']['nodes']))):
                if name != 'computed':  # that is what the page shows first
                    page.evaluate("document.querySelector('[data-graph=%s]').click()" % name)
                state = page.evaluate("({...document.getElementById('graph').dataset})")
                if state['graph'] != name or int(state['nodes']) < least or int(state['ms']) > MOST_MS:
                    return 'graph: %s' % state
                print('%s, %s: %s boxes in %s ms' % (model.__name__, name, state['nodes'], state['ms']))
            return look(page)
    return test


def resnet50(path):
    code, _, err = lib.run([sys.executable, os.path.join(lib.SHARED, 'zoo', 'materialize.py'), os.path.join(lib.SHARED, 'zoo', 'resnet50.onnx'), path])
    if code:
        raise RuntimeError(lib.reason(err, code))
    return path


def elsewhere(args, work):
    """A model for another CPU: everything but times."""
    path, data, code, said = make(args, work, DIGITS, '--target=aarch64')
    if code and 'aarch64' in said and 'compiler' in said:
        return None  # no code is made for it here
    if code or 'not_run' not in data or 'without times' not in said:
        return said
    with browser.Browser() as b:
        page = b.open('file://' + path)
        note = page.evaluate("document.getElementById('notrun').textContent")
        rows, state = page.evaluate(ROWS), page.evaluate("({...document.getElementById('graph').dataset})")
        times = {r[page.evaluate(HEAD).index('time µs')] for r in rows}
        if 'could not run here' not in note or not times <= {'', '–'} or int(state['nodes']) < len(rows) or \
                page.evaluate("document.getElementById('memory') === null"):
            return '%s, times %s, graph %s' % (note, times, state)
        return look(page)


def quantised(args, work):
    """Errors of layers that were quantised stand in the table."""
    samples = os.path.join(work, 'c.npz')
    np.savez(samples, x=np.random.default_rng(1).standard_normal((2, 64, 56, 56)).astype(np.float32))
    path, data, code, said = make(args, work, models.conv(os.path.join(work, 'm.onnx')), '--quick', '--int8=static', '--calibrate=' + samples)
    if code or not data['quantised']:
        return said or 'no layers'
    if not all(0 < float(layer['error']) < 20 and layer['verdict'] == 'int8' for layer in data['quantised'].values()):
        return 'these layers: %s' % data['quantised']
    with browser.Browser() as b:
        page = b.open('file://' + path)
        head, rows = page.evaluate(HEAD), page.evaluate(ROWS)
        if 'error %' not in head or not any(re.match(r'[\d.]+$', r[head.index('error %')]) for r in rows):
            return 'no errors: %s' % rows
        return look(page)


def strange_names(args, work):
    """Names that look like markup are texts."""
    import onnx
    model = onnx.load(DIGITS)
    evil = '</script><img src=x onerror=alert(1)>"\'`&'
    model.graph.node[0].name = evil
    path = os.path.join(work, 'm.onnx')
    onnx.save(model, path)
    page_path, data, code, said = make(args, work, path, '--quick')
    if code:
        return said
    with browser.Browser() as b:
        page = b.open('file://' + page_path)
        there = page.evaluate("document.querySelectorAll('img').length"), evil in page.evaluate("document.getElementById('layers').textContent")
        return look(page) or (None if there == (0, True) else str(there))


def refused(args, work):
    """One line, exit code 1, no page."""
    cases = [(['no-such.onnx'], 'no such file'), ([DIGITS, '--no-such-option'], 'no-such-option'), ([DIGITS, 'other.onnx'], 'one model'),
             ([DIGITS, '--quick', '-o', os.path.join(work, 'no', 'r.html')], 'cannot write'), ([DIGITS, '--quick', '-o', '/dev/full'], 'No space')]
    for words, says in cases:
        given = words if '-o' in words else words + ['-o', os.path.join(work, 'r.html')]
        code, out, err = lib.run([sys.executable, '-m', 'cytoc', 'report', *given], env=environment(args))
        if code != 1 or says not in err or 'Traceback' in err or os.path.exists(os.path.join(work, 'r.html')):
            return '%s: exit code %d: %s' % (words, code, err)
    bare = {**os.environ, 'PYTHONPATH': '', 'CYTO_PYTHON': '/nowhere/python3'}
    code, _, err = lib.run([args.cytoc, 'report', DIGITS], env=bare)
    if code != 1 or 'pip install' not in err:
        return 'without the package: exit code %d: %s' % (code, err)
    code, out, err = lib.run([args.cytoc, 'report', '--help'], env={**environment(args), 'CYTO_PYTHON': sys.executable})
    return None if code == 0 and '--against' in out else 'by cytoc: exit code %d: %s' % (code, err)


def disturbed(args, work):
    """A recording that another process interrupts is made again, three times at most; then the advice says so."""
    script = """if True:
        import types
        from cytoc.report import _advice, _collect
        class Job:
            folder, n = '.', 0
            def __init__(self, *means): self.means = means
            def run(self, *words):
                self.n += 1
                return {'mean_ms': self.means[self.n - 1], 'kernels': [{}] * 10}
        plain = {'runs': 20, 'median_ms': 1.0}
        for means in ((1.1,), (3.0, 1.2), (3.0, 2.0, 2.5)):
            job = Job(*means)
            result, trace, shaken = _collect.record(job, 'm.so', plain)
            print(result['mean_ms'], trace, shaken, job.n)
        step = {'ops': 'conv', 'algorithm': 'conv direct', 'us': 9.0, 'shape': [1, 64, 8, 8]}
        for shaken in (False, True):
            print(_advice._reason({'program': {'flops_per_cycle': 64}, 'disturbed': shaken}, step))"""
    code, out, err = lib.run([sys.executable, '-c', script], env=environment(args))
    want = ['1.1 ./trace0.json False 1', '1.2 ./trace1.json False 2', '2.0 ./trace1.json True 3', 'no cause shows in what was measured',
            'other processes interrupted the recorded runs, also when they were repeated; measure it again on an idle machine']
    return None if code == 0 and out.splitlines() == want else 'exit code %d: %s%s' % (code, out, err)


def which_python(args, work):
    """One search for the Python of all commands: $CYTO_PYTHON, venv/bin/python beside cytoc or a folder up, python3 of PATH."""
    def python(*below):
        path = os.path.join(work, *below)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w', encoding='utf-8') as f:
            f.write('#!/bin/sh\necho %s\n' % below[0])
        os.chmod(path, 0o755)
        return path
    os.makedirs(os.path.join(work, 'up', 'bin'))
    cytoc = shutil.copy(args.cytoc, os.path.join(work, 'up', 'bin'))
    env = {k: v for k, v in os.environ.items() if k != 'CYTO_PYTHON'}
    env['PATH'] = os.path.dirname(python('path', 'python3')) + ':' + env['PATH']
    said = lambda **more: lib.run([cytoc, 'report', 'x.onnx'], env=dict(env, **more))[1].strip()
    found = [said()]
    python('up', 'venv', 'bin', 'python')
    found.append(said())
    beside = python('up', 'bin', 'venv', 'bin', 'python')
    with open(beside, 'w', encoding='utf-8') as f:
        f.write('#!/bin/sh\necho beside\n')
    found += [said(), said(CYTO_PYTHON=''), said(CYTO_PYTHON=python('given', 'python3'))]
    return None if found == ['path', 'up', 'beside', 'beside', 'given'] else str(found)


def whole_or_not(args, work):
    """A page that cannot be written to its end leaves the one that was there."""
    path = os.path.join(work, 'r.html')
    with open(path, 'w', encoding='utf-8') as f:
        f.write('old')
    script = ('import resource, signal, sys\nfrom cytoc.report import _write\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n'
              'resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n'
              'try:\n  _write(sys.argv[1], "x" * 5000)\nexcept OSError as e:\n  print(e.filename, e.strerror)')
    code, out, err = lib.run([sys.executable, '-c', script, path], env=environment(args))
    with open(path, encoding='utf-8') as f:
        left = f.read()
    names = os.listdir(work)
    os.remove(path)
    return None if code == 0 and out.startswith(path) and left == 'old' and not any(n.endswith('.tmp') for n in names) else \
        'exit code %d, %s%s, left %r, %s' % (code, out, err, left[:20], names)


def short_run(args, work):
    """A run that is hardly more than a call gets no advice."""
    found = advice_of(args, work, models.short, True)
    return None if not found else 'advice: %s' % found


TESTS = {'refused': refused, 'whole or not': whole_or_not, 'disturbed': disturbed,
         'which python': which_python, 'short': short_run, **{'advice ' + kind: advice(kind) for kind in ADVICE}, 'shown': shown, 'elsewhere': elsewhere, 'quantised': quantised,
         'strange names': strange_names, 'chain of 1000': drawn(models.chain), 'swin': drawn(models.swin), 'nothing kept': drawn(models.elementwise), 'resnet50': drawn(resnet50)}
IN_BROWSER = {'shown', 'elsewhere', 'quantised', 'strange names', 'chain of 1000', 'swin', 'nothing kept', 'resnet50'}


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    if args.variant != 'release':
        print('skipped: the package loads release builds')
        print('0 passed, 0 failed, 1 skipped')
        return
    for name, test in TESTS.items():
        if not args.wanted(name):
            continue
        work = os.path.join(args.build, 'report-tests', lib.safe_name(name))
        shutil.rmtree(work, ignore_errors=True)
        os.makedirs(work)
        if name in IN_BROWSER and not browser.find():
            suite.skip(name, 'there is no Chromium')
            continue
        if name == 'resnet50' and not os.path.exists(os.path.join(lib.SHARED, 'zoo', 'resnet50.onnx')):
            suite.skip(name, 'there is no zoo')
            continue
        try:
            why = test(args, work)
        except (RuntimeError, ValueError, KeyError, IndexError, OSError) as e:
            why = '%s: %s' % (type(e).__name__, e)
        suite.result(name, why)
        shutil.rmtree(work, ignore_errors=True)
    suite.done()


if __name__ == '__main__':
    main()
