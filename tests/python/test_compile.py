# SPDX-License-Identifier: Apache-2.0
"""cytoc.compile: what may be a model, options, errors, progress, the cache."""
import contextlib
import importlib.util
import io
import os
import re
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


def test_other_machines():
    """What is compiled for another machine can be saved."""
    m, _ = linear()
    for target, ending, magic in (('aarch64', '.so', b'\x7fELF'), ('x86-64-v3-windows', '.dll', b'MZ')):
        for cache in True, False:
            try:
                net = cytoc.compile(m, target=target, cache=cache)
            except cytoc.CompileError as e:
                if 'not built' in str(e) or 'C compiler' in str(e):
                    return 'this cytoc makes no code for %s' % target
                raise
            assert not net.runs_here and 'another machine' in repr(net)
            path = os.path.join(WORK, 'elsewhere' + ending)
            net.save(path)
            with open(path, 'rb') as f:
                assert f.read(len(magic)) == magic
            for use in (lambda: net(np.ones((1, 3), np.float32)), lambda: net.inputs, lambda: net.run(None, {}), net.bind):
                with raises(cytoc.LoadError, 'another machine'):
                    use()
    with raises(cytoc.LoadError):
        cytoc.load(os.path.join(WORK, 'elsewhere.so'))


def test_onnxscript():
    if not importlib.util.find_spec('onnxscript'):
        return 'onnxscript is not installed'
    import onnx_ir
    import scripted
    fresh_cache('cache-ir')
    x = np.linspace(-2, 2, 8, dtype=np.float32)
    np.testing.assert_allclose(cytoc.compile(scripted.twice_selu)(x), scripted.expected(x), rtol=1e-5)
    m, f = linear()
    x = np.ones((2, 3), np.float32)
    ir = onnx_ir.from_proto(m)
    first = cytoc.compile(ir)
    np.testing.assert_allclose(first(x), f(x))
    assert cytoc.compile(ir).path == first.path, 'compiled again'
    folder = os.path.join(WORK, 'ir')
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, 'linear.onnx')
    onnx.save(m, path, save_as_external_data=True, size_threshold=0, location='weights.bin')
    np.testing.assert_allclose(cytoc.compile(onnx_ir.load(path), cache=False)(x), f(x))  # its weights lie in that folder


def memory_available():
    with open('/proc/meminfo', encoding='utf-8') as f:
        return 1024 * int(re.search(r'MemAvailable:\s*(\d+)', f.read())[1])


def test_over_two_gigabytes():
    """A ModelProto that protobuf cannot write: its weights reach the compiler in a file. Some of them lie in external data as it is."""
    rows, columns = 2**15, 2**14 + 128
    if memory_available() < 12e9 or shutil.disk_usage(WORK).free < 12e9:
        return 'it takes 12 GB of memory and of space'
    m = model([helper.make_node('MatMul', ['x', 'w'], ['z']), helper.make_node('Add', ['z', 'b'], ['a']), helper.make_node('Mul', ['a', 'c'], ['y'])],
              [port('x', 'float32', [1, rows])], [port('y', 'float32', [1, columns])], {'b': np.full(columns, 2, np.float32)})
    weight = m.graph.initializer.add(name='w', data_type=1, dims=[rows, columns])
    raw = np.zeros((rows, columns), np.float32)
    raw[7, 5], raw[rows - 1, columns - 1] = 3, 4
    weight.raw_data = raw.tobytes()
    del raw
    outside = m.graph.initializer.add(name='c', data_type=1, dims=[1], data_location=1)
    outside.external_data.add(key='location', value='scale.bin')
    here, folder = os.getcwd(), os.path.join(WORK, 'large')
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    try:
        np.array([10], np.float32).tofile('scale.bin')
        try:
            m.SerializeToString()
            raise AssertionError('it is no model over 2 GB')
        except AssertionError:
            raise
        except Exception:
            pass
        net = cytoc.compile(m, cache=False, target='x86-64-v3')
    finally:
        os.chdir(here)
    del m, weight
    x = np.zeros((1, rows), np.float32)
    x[0, 7], x[0, rows - 1] = 1, 0.5
    y = net(x)
    expected = np.full((1, columns), 20, np.float32)
    expected[0, 5], expected[0, columns - 1] = 50, 40
    np.testing.assert_allclose(y, expected)
    path = os.path.join(folder, 'large.so')
    net.save(path)  # with the file of its weights
    net.close()
    with cytoc.load(path) as again:
        np.testing.assert_allclose(again(x), expected)
    shutil.rmtree(folder)


def test_large_results_in_memory():
    """From memory to memory, weights of more than 1.5 GB: they lie behind the library, which opens from memory and as a file."""
    import ctypes as C
    from cytoc import _native
    rows, width = 400000, 1024
    if memory_available() < 8e9 or shutil.disk_usage(WORK).free < 8e9:
        return 'it takes 8 GB of memory and of space'
    folder = os.path.join(WORK, 'in-memory')
    os.makedirs(folder)
    with open(os.path.join(folder, 'data'), 'wb') as f:  # sparse but for its last row
        f.seek((rows - 1) * width * 4)
        f.write(np.arange(width, dtype=np.float32).tobytes())
    m = model([helper.make_node('Gather', ['table', 'i'], ['y'])], [port('i', 'int64', [2])], [port('y', 'float32', [2, width])])
    table = m.graph.initializer.add(name='table', data_type=1, dims=[rows, width], data_location=1)
    table.external_data.add(key='location', value='data')
    data, native = m.SerializeToString(), _native.compiler()
    job = _native.Job(struct_size=C.sizeof(_native.Job), model=C.cast(C.c_char_p(data), C.c_void_p), model_size=len(data),
                      model_dir=os.fsencode(folder))
    result, net, error = _native.Result(struct_size=C.sizeof(_native.Result)), C.c_void_p(), _native.Error()
    assert not native.cytoc_compile(C.byref(job), C.byref(result)), result.message
    assert result.library_size > rows * width * 4
    load_memory = C.CDLL(_native.runtime().path).cyto_model_load_memory
    load_memory.argtypes = [C.c_void_p, C.c_uint64, C.POINTER(C.c_void_p), C.POINTER(_native.Error)]
    at = np.array([rows - 1, 0])
    expected = np.stack([np.arange(width, dtype=np.float32), np.zeros(width, np.float32)])
    assert load_memory(result.library, result.library_size - 1, C.byref(net), C.byref(error)) and b'weights' in error.message, error.message
    assert not load_memory(result.library, result.library_size, C.byref(net), C.byref(error)), error.message
    path = os.path.join(folder, 'written.so')
    with open(path, 'wb') as f:
        f.write((C.c_char * result.library_size).from_address(result.library))
    native.cytoc_result_free(C.byref(result))
    with cytoc.load(path) as written:
        np.testing.assert_array_equal(written(at), expected)
        written._handle, own = net.value, written._handle  # the same interface, on what was opened from memory
        written._free = []
        np.testing.assert_array_equal(written(at), expected)
        written._free, written._handle = [], own
    _native.runtime().cyto_model_unload(net)
    with open(path, 'r+b') as f:
        f.truncate(os.path.getsize(path) - 65536)
    with raises(cytoc.LoadError, 'weights'):
        cytoc.load(path)
    shutil.rmtree(folder)


def test_reports():
    """What the compiler prints is printed, each time."""
    m, _ = linear()
    for _ in range(2):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            cytoc.compile(m, explain=True)
        assert 'Gemm' in said.getvalue() or 'gemm' in said.getvalue(), said.getvalue()
    with contextlib.redirect_stdout(io.StringIO()) as said:
        cytoc.compile(m)
    assert not said.getvalue()


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


def test_cache_that_cannot_be_written():
    """No permission, and no space: the model is compiled, with a warning; a folder that can be read alone serves what it has."""
    if subprocess.run(['unshare', '-m', 'true'], stderr=subprocess.DEVNULL).returncode:
        return 'file systems cannot be mounted here'
    m, f = linear()
    path, place = os.path.join(WORK, 'unwritable.onnx'), os.path.join(WORK, 'small')
    onnx.save(m, path)
    os.makedirs(place, exist_ok=True)
    code = 'import sys, numpy, cytoc; net = cytoc.compile(sys.argv[1], O=int(sys.argv[2])); print(net.path, net(numpy.ones((1, 3), "f")).tolist())'

    def run(script, level=2):
        done = subprocess.run(['unshare', '-m', 'sh', '-c', 'mount -t tmpfs -o size=%s none "$CYTOC_CACHE_DIR" && ' % script[0] + script[1] +
                               '"$@"', 'sh', sys.executable, '-c', code, path, str(level)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=dict(os.environ, CYTOC_CACHE_DIR=place))
        assert done.returncode == 0 and str(f(np.ones((1, 3), np.float32)).tolist()) in done.stdout, done.stderr
        return done.stdout.startswith(place), done.stderr
    kept, said = run(('100m', ''))
    assert kept and 'CYTOC_CACHE_DIR' not in said, said
    for size in '4k', '32k':  # no room for the folder, for the library
        kept, said = run((size, ''))
        assert not kept and 'CYTOC_CACHE_DIR' in said, (size, kept, said)
    kept, said = run(('100m', 'mount -o remount,ro "$CYTOC_CACHE_DIR" && '))
    assert not kept and 'Read-only' in said, said
    first = '%s -c \'%s\' %s 2 >/dev/null && mount -o remount,ro "$CYTOC_CACHE_DIR" && ' % (sys.executable, code, path)
    kept, said = run(('100m', first))
    assert kept and 'CYTOC_CACHE_DIR' not in said, said


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
    for seconds in 0.4, 0.6, 0.8:
        killed = subprocess.Popen([sys.executable, '-c', CHILD, path], stdout=subprocess.PIPE)
        time.sleep(seconds)
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
    place = os.environ['CYTOC_CACHE_DIR']
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        cytoc.compile(m, cache=False)
        cytoc.compile(m)  # through the cache
        cytoc.InferenceSession(m.SerializeToString(), providers=['CUDAExecutionProvider'])
        cytoc.SessionOptions().add_session_config_entry('other', '1')
        os.environ['CYTOC_CACHE_DIR'] = '/proc/no-such-place'
        cytoc.compile(m, O=1)
    os.environ['CYTOC_CACHE_DIR'] = place
    kinds = [w for w in caught if issubclass(w.category, cytoc.CompileWarning)]
    assert len(kinds) >= 3 and len(caught) >= 6, [str(w.message) for w in caught]
    assert all(w.filename == __file__ for w in caught), [(w.filename, w.lineno) for w in caught]
    assert len({w.lineno for w in caught}) == 5, 'all point to their calls'


def test_cache_at_home():
    """CYTOC_CACHE_DIR as a service or a container has it, where no shell expands it."""
    home, before = os.path.join(WORK, 'home'), {k: os.environ[k] for k in ('HOME', 'CYTOC_CACHE_DIR')}
    os.environ.update(HOME=home, CYTOC_CACHE_DIR='~/models')
    try:
        assert cytoc.cache_folder() == os.path.join(home, 'models')
    finally:
        os.environ.update(before)


def test_command_line():
    done = subprocess.run([sys.executable, '-m', 'cytoc', '--version'], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0 and done.stdout.startswith('cytoc '), done.stdout
    assert cytoc.version() in done.stdout
