# SPDX-License-Identifier: Apache-2.0
"""cytoc.compile: what may be a model, options, errors, progress, the cache."""
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import onnx
from onnx import helper

import cytoc
import cytoc._cache
from models import linear, model, port, raises, work_model


def test_forms_of_models():
    m, f = linear()
    path = os.path.join(WORK, 'linear.onnx')
    onnx.save(m, path)
    x = np.ones((2, 3), np.float32)
    for form in (path, open(path, 'rb').read(), m):
        np.testing.assert_allclose(cytoc.compile(form)(x), f(x))
    with raises(TypeError, 'expected a path', 'int'):
        cytoc.compile(3)
    with raises(FileNotFoundError, 'nowhere.onnx'):
        cytoc.compile('nowhere.onnx')


def test_external_data():
    m, f = linear()
    folder = os.path.join(WORK, 'external')
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, 'linear.onnx')
    onnx.save(m, path, save_as_external_data=True, size_threshold=0, location='weights.bin')
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(cytoc.compile(path)(x), f(x))
    raw = bytearray(open(os.path.join(folder, 'weights.bin'), 'rb').read())
    raw[:4] = np.float32(100).tobytes()
    time.sleep(0.01)
    open(os.path.join(folder, 'weights.bin'), 'wb').write(raw)  # the cache notices
    assert not np.allclose(cytoc.compile(path)(x), f(x))
    os.remove(os.path.join(folder, 'weights.bin'))
    with raises(cytoc.CompileError, 'weights.bin'):
        cytoc.compile(path)


def test_options():
    m, f = linear()
    x = np.ones((2, 3), np.float32)
    fixed = cytoc.compile(m, dims={'batch': 2}, target='x86-64-v3', O=1)
    assert fixed.inputs[0].shape == (2, 3) and fixed.target == 'x86-64-v3'
    assert cytoc.compile(m, shapes={'x': (None, 3)}).inputs[0].shape[1] == 3
    np.testing.assert_allclose(fixed(x), f(x))
    with raises(cytoc.InputError, '[2,3]'):
        fixed(np.ones((3, 3), np.float32))
    with raises(cytoc.CompileError, 'banana'):
        cytoc.compile(m, target='banana')
    with raises(cytoc.CompileError, 'int9'):
        cytoc.compile(m, int9=True)
    samples = np.random.default_rng(0).standard_normal((4, 8, 64)).astype(np.float32)
    for calibrate in ({'x0': samples}, [{'x0': a} for a in samples], list(samples)):
        quantised = cytoc.compile(work_model(64, 2), int8='static', int8_prefer='size', calibrate=calibrate)
        exact = cytoc.compile(work_model(64, 2))
        error = np.abs(quantised(samples[0]) - exact(samples[0])).max() / np.abs(exact(samples[0])).max()
        assert 0 < error < 0.1, error


def test_diagnostics():
    m = model([helper.make_node('NoSuchOp', ['x'], ['y'], name='bad_node')], [port('x', 'float32', [1])], [port('y', 'float32', [1])])
    try:
        cytoc.compile(m)
        raise AssertionError('compiled')
    except cytoc.CompileError as e:
        assert 'NoSuchOp' in str(e) and e.status == 'invalid model', (str(e), e.status)
        assert e.diagnostics and e.diagnostics[0].severity == 'error'
        assert 'NoSuchOp' in str(e.diagnostics[0])
    with raises(cytoc.CompileError):
        cytoc.compile(b'not a model')


def test_progress():
    m, _ = linear()
    stages = []
    cytoc.compile(m, cache=False, progress=lambda stage, done, total: stages.append((stage, done, total)))
    assert len(stages) >= 3, stages
    assert all(done <= total for _, done, total in stages if total), stages

    class Stop(Exception):
        pass

    def stop(stage, done, total):
        if stage not in ('read', 'export'):
            raise Stop()
    with raises(Stop):
        cytoc.compile(m, cache=False, progress=stop)


def cached():
    base = cytoc.cache_folder()
    return [name for name in os.listdir(base)] if os.path.isdir(base) else []


def fresh_cache(name):
    os.environ['CYTOC_CACHE_DIR'] = os.path.join(WORK, name)
    shutil.rmtree(os.environ['CYTOC_CACHE_DIR'], ignore_errors=True)


def test_cache():
    fresh_cache('cache-a')
    m, f = linear()
    x = np.ones((1, 3), np.float32)
    first = cytoc.compile(m)
    assert len(cached()) == 1 and first.path.startswith(cytoc.cache_folder())
    when = os.stat(first.path).st_ino
    assert os.stat(cytoc.compile(m).path).st_ino == when, 'compiled again'
    assert cytoc.compile(m, O=1).path != first.path
    assert cytoc.compile(m, cache=False).path not in cached()
    np.testing.assert_allclose(first(x), f(x))
    onnx.save(m, os.path.join(WORK, 'cached.onnx'))
    code = 'import sys, numpy, cytoc; net = cytoc.compile(sys.argv[1]); print(net.path, net(numpy.ones((1, 3), "f")).tolist())'
    run = lambda: subprocess.run([sys.executable, '-c', code, os.path.join(WORK, 'cached.onnx')], check=True, text=True,
                                 stdout=subprocess.PIPE).stdout
    said = run()
    path = said.split()[0]
    whole = open(path, 'rb').read()
    for damage in (b'', b'not a library', whole[:-100], whole[:4000] + b'?' + whole[4001:]):
        with open(path + '.damaged', 'wb') as damaged:
            damaged.write(damage)
        os.replace(path + '.damaged', path)
        assert run() == said
        assert open(path, 'rb').read() == whole
    os.remove(os.path.join(os.path.dirname(path), 'ok'))
    assert run() == said


def test_cache_is_limited():
    fresh_cache('cache-b')
    os.environ['CYTOC_CACHE_SIZE'] = '600K'
    try:
        for n in range(1, 6):
            cytoc.compile(linear(n)[0])
            time.sleep(0.02)
        sizes = sum(os.path.getsize(os.path.join(r, f)) for r, _, files in os.walk(cytoc.cache_folder()) for f in files)
        assert 0 < sizes < 800e3, sizes
        os.environ['CYTOC_CACHE_SIZE'] = 'much'
        with raises(ValueError, 'CYTOC_CACHE_SIZE', 'much'):
            cytoc.compile(linear(7)[0])
    finally:
        del os.environ['CYTOC_CACHE_SIZE']


def test_cache_without_permission():
    os.environ['CYTOC_CACHE_DIR'] = '/proc/no-such-place'
    m, f = linear()
    x = np.ones((1, 3), np.float32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        np.testing.assert_allclose(cytoc.compile(m)(x), f(x))
    assert any('CYTOC_CACHE_DIR' in str(w.message) for w in caught), [str(w.message) for w in caught]


CHILD = '''
import sys, numpy as np, cytoc, onnx
net = cytoc.compile(sys.argv[1])
assert net(np.ones((2, 512), np.float32)).shape == (2, 512)
print(net.path)
'''


def test_processes_at_once():
    """Many ask for the same: one compiles. One that is killed in the middle does no harm."""
    fresh_cache('cache-c')
    path = os.path.join(WORK, 'work.onnx')
    onnx.save(work_model(), path)
    killed = subprocess.Popen([sys.executable, '-c', CHILD, path], stdout=subprocess.PIPE)
    time.sleep(0.7)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    killed.stdout.close()
    children = [subprocess.Popen([sys.executable, '-c', CHILD, path], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    paths = {c.communicate()[0] for c in children}
    assert all(c.returncode == 0 for c in children) and len(paths) == 1, paths
    assert not [n for n in os.listdir(os.path.dirname(paths.pop().strip())) if n.startswith('new-')]


def test_two_threads_compile():
    import threading
    fresh_cache('cache-d')
    results, errors = {}, []

    def work(k):
        try:
            m, f = linear(k + 1)
            x = np.ones((k + 1, 3), np.float32)
            results[k] = np.allclose(cytoc.compile(m)(x), f(x))
        except Exception as e:
            errors.append(e)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not errors and all(results[k] for k in range(4)), (errors, results)


def test_warnings():
    m = model([helper.make_node('Squeeze', ['x'], ['y'])], [port('x', 'float32', ['a', 1, 'b'])],
              [helper.make_tensor_value_info('y', onnx.TensorProto.FLOAT, None)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        cytoc.compile(m, cache=False)
    assert any(issubclass(w.category, cytoc.CompileWarning) for w in caught), [str(w.message) for w in caught]


def test_command_line():
    done = subprocess.run([sys.executable, '-m', 'cytoc', '--version'], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0 and done.stdout.startswith('cytoc '), done.stdout
    assert cytoc.version() in done.stdout
