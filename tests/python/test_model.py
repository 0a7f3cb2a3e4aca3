# SPDX-License-Identifier: Apache-2.0
"""Model: inputs and outputs of all kinds, what does not fit, buffers, threads."""
import os
import subprocess
import sys
import threading
import time

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

import cytoc
from models import DTYPES, equal, linear, model, port, raises, work_model


def test_call_forms():
    m, f = linear()
    net = cytoc.compile(m)
    x = np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)
    for y in (net(x), net(x=x), net.run(None, {'x': x})[0], net.run(['y'], {'x': x})[0]):
        np.testing.assert_allclose(y, f(x), rtol=1e-6)
    assert net.inputs == [('x', 'float32', ('batch', 3), False, False, '', '')], net.inputs
    assert net.outputs[0].shape[1] == 2
    equal(net(np.zeros((0, 3), np.float32)), np.zeros((0, 2), np.float32))


def test_calls_one_after_the_other():
    """What was bound by the call before is bound no more, wherever arrays lie: sizes, layouts, arrays written anew, memory used again."""
    m = model([helper.make_node('Sub', ['a', 'b'], ['d']), helper.make_node('Cast', ['a'], ['c'], to=TensorProto.INT32)],
              [port('a', 'float32', ['n', 3]), port('b', 'float32', ['k'])], [port('d', 'float32', ['n', 3]), port('c', 'int32', ['n', 3])])
    net, rng = cytoc.compile(m), np.random.default_rng(4)
    held, kept = np.empty((2, 3), np.float32), []
    net.run(['d'], {'a': held, 'b': np.zeros(3, np.float32)})  # the other output was never asked for
    for k in range(400):
        a = held if k % 3 == 0 else np.empty((1 + k // 40 % 3, 3), np.float32)
        a[:] = rng.integers(-9, 9, a.shape)
        if k % 7 == 0:
            a = np.asfortranarray(a)
        if k % 11 == 0:
            a.flags.writeable = False
        b = rng.integers(-9, 9, 3 if k % 2 else 1).astype(np.float32)
        if k % 50 == 17:
            with raises(cytoc.InputError, 'sizes 3 and 9'):
                net(a, np.zeros(9, np.float32))
        if k % 50 == 23:
            out = np.empty(a.shape, np.float32)
            net.run(['d'], {'a': a, 'b': b}, out={'d': out})
            equal(out, a - b)
        d, c = net(a, b)
        equal(d, a - b)
        equal(c, a.astype(np.int32))
        kept.append((d, d.copy()))
        if a is held and not a.flags.writeable:
            held = np.empty((2, 3), np.float32)
    for d, copy in kept:
        equal(d, copy)  # an output is the caller's own


def test_several_outputs():
    m = model([helper.make_node('Add', ['a', 'b'], ['s']), helper.make_node('Sub', ['a', 'b'], ['d'])],
              [port('a', 'int32', ['n']), port('b', 'int32', ['n'])], [port('s', 'int32', ['n']), port('d', 'int32', ['n'])])
    net = cytoc.compile(m)
    a, b = np.array([5, 6], np.int32), np.array([1, 2], np.int32)
    s, d = net(a, b)
    equal(s, a + b)
    equal(d, a - b)
    equal(net.run(['d'], {'a': a, 'b': b})[0], a - b)
    equal(net.run(['d', 's'], {'a': a, 'b': b})[1], a + b)


def test_every_dtype():
    for name, number in DTYPES.items():
        if name == 'string':
            continue
        m = model([helper.make_node('Transpose', ['x'], ['y'], perm=[1, 0])], [port('x', name, [2, 3])], [port('y', name, [3, 2])])
        dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
        x = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
        equal(cytoc.compile(m)(x), x.T)


def test_zero_dims_and_scalars():
    m = model([helper.make_node('Add', ['a', 'b'], ['y'])], [port('a', 'float32', []), port('b', 'float32', ['n', 2])],
              [port('y', 'float32', ['n', 2])])
    net = cytoc.compile(m)
    equal(net(np.float32(1.5), np.zeros((3, 2), np.float32)), np.full((3, 2), 1.5, np.float32))
    equal(net(1.5, np.zeros((0, 2), np.float32)), np.zeros((0, 2), np.float32))


def test_arrays_of_other_layouts():
    m, f = linear()
    net = cytoc.compile(m)
    x = np.random.default_rng(2).standard_normal((6, 3)).astype(np.float32)
    want = f(x)
    close = lambda y: np.testing.assert_allclose(y, want, rtol=1e-6)
    close(net(np.asfortranarray(x)))
    close(net(np.repeat(x, 2, axis=0)[::2]))
    close(net(x[::-1])[::-1])
    close(net(x.astype('>f4')))
    frozen = x.copy()
    frozen.flags.writeable = False
    close(net(frozen))
    raw = np.zeros(x.nbytes + 1, np.uint8)
    raw[1:] = x.view(np.uint8).reshape(-1)
    close(net(raw[1:].view(np.float32).reshape(x.shape)))  # not aligned
    close(net(x.tolist()))


def test_what_does_not_fit():
    m, _ = linear()
    net = cytoc.compile(m)
    x = np.zeros((1, 3), np.float32)
    with raises(cytoc.InputError, "input 'x'", 'float32', 'float64'):
        net(x.astype(np.float64))
    with raises(cytoc.InputError, 'expected shape', '[1,4]'):
        net(np.zeros((1, 4), np.float32))
    with raises(cytoc.InputError, "input 'x'"):
        net(np.zeros(3, np.float32))
    with raises(cytoc.InputError, "did you mean 'x'"):
        net.run(None, {'xx': x})
    with raises(cytoc.InputError, 'missing', "'x'"):
        net()
    with raises(cytoc.InputError, '2 inputs given'):
        net(x, x)
    with raises(cytoc.InputError, 'given twice'):
        net(x, x=x)
    with raises(cytoc.InputError, "no output 'z'"):
        net.run(['z'], {'x': x})
    with raises(cytoc.InputError, 'fractions'):
        cytoc.compile(model([helper.make_node('Neg', ['a'], ['b'])], [port('a', 'int32', [1])], [port('b', 'int32', [1])]))([1.5])
    np.testing.assert_array_equal(net(x), [[1, -1]])  # still usable


def test_strings():
    m = model([helper.make_node('StringConcat', ['a', 'b'], ['y'])], [port('a', 'string', ['n']), port('b', 'string', ['n'])],
              [port('y', 'string', ['n'])])
    net = cytoc.compile(m)
    a, b = np.array(['x', 'gr', ''], dtype=object), ['1', 'ün', 'z\0']
    assert net(a, b).tolist() == ['x1', 'grün', 'z\0']
    assert net(np.array(['p', 'q']), np.array([b'r', b's'])).tolist() == ['pr', 'qs']
    with raises(cytoc.InputError, "input 'a'", 'expected strings'):
        net([1, 2], ['a', 'b'])


def test_sequences_and_optionals():
    seq = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [None]))
    m = model([helper.make_node('SequenceInsert', ['s', 'x'], ['t'])],
              [helper.make_value_info('s', seq), port('x', 'float32', ['n'])], [helper.make_value_info('t', seq)])
    net = cytoc.compile(m)
    found = net([np.array([1, 2], np.float32)], np.array([3], np.float32))
    assert [a.tolist() for a in found] == [[1, 2], [3]], found
    assert net.inputs[0].dtype == 'seq(float32)'
    with raises(cytoc.InputError, 'expected a list'):
        net(np.zeros(2, np.float32), np.zeros(1, np.float32))
    opt = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
    m = model([helper.make_node('OptionalHasElement', ['o'], ['y'])], [helper.make_value_info('o', opt)], [port('y', 'bool', [])])
    net = cytoc.compile(m)
    assert not net(None)
    assert net(np.zeros(2, np.float32))


def test_maps():
    m = model([helper.make_node('ZipMap', ['x'], ['z'], domain='ai.onnx.ml', classlabels_strings=['cat', 'dog'])],
              [port('x', 'float32', ['n', 2])],
              [helper.make_value_info('z', helper.make_sequence_type_proto(helper.make_map_type_proto(
                  TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))))])
    found = cytoc.compile(m)(np.array([[0.25, 0.75]], np.float32))
    assert found == [{'cat': 0.25, 'dog': 0.75}], found


class Foreign:
    """A tensor of a framework of which nothing is known but DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack():
    m, f = linear()
    net = cytoc.compile(m)
    x = np.random.default_rng(3).standard_normal((4, 3)).astype(np.float32)
    np.testing.assert_allclose(net(Foreign(x)), f(x), rtol=1e-6)
    np.testing.assert_allclose(net(Foreign(x[::-1])), f(x[::-1]), rtol=1e-6)
    with raises(cytoc.InputError, "input 'x'", 'float64'):
        net(Foreign(x.astype(np.float64)))
    before = sys.getrefcount(x)
    for _ in range(10):
        net(Foreign(x))
    assert sys.getrefcount(x) <= before, 'a tensor is kept'


def test_bindings():
    m, f = linear()
    net = cytoc.compile(m)
    x, y = np.ones((2, 3), np.float32), np.empty((2, 2), np.float32)
    b = net.bind().input('x', x).output('y', y)
    b.run()
    np.testing.assert_allclose(y, f(x))
    x[:] = 2
    b.run()
    np.testing.assert_allclose(y, f(x))
    assert b.get('y') is y
    with raises(cytoc.InputError, 'not dense'):
        b.input('x', np.ones((3, 2), np.float32).T)
    with raises(cytoc.InputError, 'writable'):
        b.output('y', np.empty((2, 2)))
    b.output('y', np.empty((1, 2), np.float32))
    with raises(cytoc.RunError, 'needs 16 bytes'):
        b.run()
    out = np.empty((2, 2), np.float32)
    assert net.run(None, {'x': x}, out={'y': out})[0] is out
    np.testing.assert_allclose(out, f(x))
    with raises(cytoc.InputError, "output 'y'", 'shape'):
        net.run(None, {'x': x}, out={'y': np.empty((3, 2), np.float32)})
    np.testing.assert_allclose(net(x), f(x))


def test_what_outputs_cannot_be_written_to():
    m, f = linear()
    net = cytoc.compile(m)
    x = np.ones((2, 3), np.float32)
    frozen = np.empty((2, 2), np.float32)
    frozen.flags.writeable = False
    for out in (frozen, np.empty((2, 2), '>f4'), np.empty((2, 4), np.float32)[:, ::2], np.empty((2, 2), np.float32, order='F'), [[0, 0], [0, 0]],
                np.zeros(17, np.uint8)[1:].view(np.float32).reshape(2, 2)):
        with raises(cytoc.InputError, "output 'y'", 'writable'):
            net.run(None, {'x': x}, out={'y': out})
        with raises(cytoc.InputError, "output 'y'", 'writable'):
            net.bind().output('y', out)
    np.testing.assert_allclose(net(x), f(x))


def test_scalars_stay_scalars():
    m = model([helper.make_node('Neg', ['a'], ['b'])], [port('a', 'float32', [])], [port('b', 'float32', [])])
    net = cytoc.compile(m)
    for a in (np.float32(2), np.array(2, np.float32), np.array(2, '>f4'), np.array([2, 3], np.float32)[0], 2.0, 2):
        equal(net(a), np.float32(-2))
    with raises(cytoc.InputError, "input 'a'", 'expected shape []'):
        net(np.array([2], np.float32))
    value = cytoc.OrtValue.ortvalue_from_numpy(np.array(2, np.float32))
    assert value.shape() == []


def test_odd_arrays_within_values():
    """Sequences take the same arrays as inputs do."""
    seq = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [None, None]))
    m = model([helper.make_node('SequenceAt', ['s', 'k'], ['y'])], [helper.make_value_info('s', seq), port('k', 'int64', [])],
              [port('y', 'float32', [None, None])])
    net = cytoc.compile(m)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    frozen = x.copy()
    frozen.flags.writeable = False
    for a in (x, x.astype('>f4'), np.asfortranarray(x), np.repeat(x, 2, axis=0)[::2], frozen):
        equal(net([a], np.int64(0)), x)
    equal(net([np.zeros((0, 3), np.float32), x], 0), np.zeros((0, 3), np.float32))
    with raises(cytoc.InputError, "input 's'[0]", 'float64'):
        net([x.astype(np.float64)], 0)
    m = model([helper.make_node('Transpose', ['x'], ['y'], perm=[1, 0])], [port('x', 'int4', ['n', 3])], [port('y', 'int4', [3, 'n'])])
    net = cytoc.compile(m)
    x = np.arange(-6, 6).reshape(4, 3).astype(ml_dtypes.int4)
    for a in (x, np.asfortranarray(x), np.repeat(x, 2, axis=0)[::2], x[:0]):
        equal(net(a), a.T)


def cache_model(nodes, more=(), grow=False):
    """present: past with new rows written (or behind it); y: the sum of them."""
    shape = ['n', 4] if grow else [8, 4]
    return model(nodes + [helper.make_node('ReduceSum', ['present'], ['y'], keepdims=0)],
                 [port('past', 'float32', shape), port('new', 'float32', [1, 4]), *more],
                 [port('present', 'float32', ['m', 4] if grow else shape), port('y', 'float32', [])])


def test_caches_in_place():
    net = cytoc.compile(cache_model([helper.make_node('ScatterND', ['past', 'at', 'new'], ['present'])], [port('at', 'int64', [1, 1])]))
    assert net.outputs[0].shared_input == 'past' and net.outputs[1].shared_input == '', net.outputs
    cache, at, expected = np.zeros((8, 4), np.float32), np.zeros((1, 1), np.int64), np.zeros((8, 4), np.float32)
    new = np.ones((1, 4), np.float32)
    step = net.bind().input('past', cache).input('new', new).input('at', at).output('present', cache)
    for k in range(8):
        at[:], new[:], expected[k] = k, k + 1, k + 1
        step.run()
        np.testing.assert_array_equal(cache, expected)
        assert step.get('y') == expected.sum()
    at[:], new[:], expected[0] = 0, 9, 9
    assert net.run(None, {'past': cache, 'new': new, 'at': at}, out={'present': cache})[0] is cache
    np.testing.assert_array_equal(cache, expected)
    whole = np.zeros((9, 4), np.float32)  # overlapping, at another place
    with raises(cytoc.RunError, 'overlap'):
        net.run(None, {'past': whole[:8], 'new': new, 'at': at}, out={'present': whole[1:]})


def test_caches_that_grow():
    net = cytoc.compile(cache_model([helper.make_node('Concat', ['past', 'new'], ['present'], axis=0)], grow=True))
    assert net.outputs[0].grown_input == 'past', net.outputs
    new = np.ones((1, 4), np.float32)
    steps = net.bind().keep(2).input('past', np.zeros((0, 4), np.float32)).input('new', new)
    rows = []
    for k in range(7):
        new[:] = k
        rows.append(new.copy())
        steps.run()
        assert steps.get('y') == np.concatenate(rows).sum()
    np.testing.assert_array_equal(steps.get('present'), np.concatenate(rows))
    steps.rewind(2).run()
    np.testing.assert_array_equal(steps.get('present'), np.concatenate([*rows[:2], new]))
    with raises(cytoc.InputError):
        steps.rewind(100)
    with raises(cytoc.InputError):
        cytoc.compile(linear()[0]).bind().keep(4)


def test_other_versions():
    """A library of another version of the interface is refused; one that another compiler made works beside ours, with its own runtime."""
    m, f = linear()
    x = np.ones((2, 3), np.float32)
    net = cytoc.compile(m)
    with raises(cytoc.LoadError, 'version'):
        cytoc.load(os.path.join(BUILD, 'tests/rt/rt_bad_abi.so'))
    with open(net.path, 'rb') as f_in:
        text = f_in.read()
    ours = b'cytoc ' + cytoc.version().encode()
    assert ours in text
    other = os.path.join(WORK, 'older.so')
    with open(other, 'wb') as f_out:
        f_out.write(text.replace(ours, b'cytoc 0.0.9'.ljust(len(ours), b'\0')))
    code = """
import ctypes, shutil, sys, numpy, cytoc
from cytoc import _native
a, b = cytoc.load(sys.argv[1]), cytoc.load(sys.argv[2])
compiled_by = lambda m: _native.decoded(_native.runtime().cyto_model_compiler(m._handle))
assert compiled_by(a) != compiled_by(b) == 'cytoc 0.0.9', (compiled_by(a), compiled_by(b))
x = numpy.ones((2, 3), numpy.float32)
for _ in range(20):
    assert numpy.array_equal(a(x), b(x))
shutil.copy(_native.runtime().path, sys.argv[3])  # another runtime in the same process
again = _native._Library(sys.argv[3], _native._RUNTIME)
handle, error = ctypes.c_void_p(), _native.Error()
assert not again.cyto_model_load(sys.argv[1].encode(), ctypes.byref(handle), ctypes.byref(error)), error.message
assert numpy.array_equal(a(x), b(x))
again.cyto_model_unload(handle)
b.close()
print(a(x).tolist())
"""
    done = subprocess.run([sys.executable, '-c', code, net.path, other, os.path.join(WORK, 'runtime.so')], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0 and done.stdout.strip() == str(f(x).tolist()), done.stdout


def test_threads_share_a_model():
    m, f = linear()
    net = cytoc.compile(m, threads=1)
    errors = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(300):
            x = rng.standard_normal((rng.integers(1, 20), 3)).astype(np.float32)
            if not np.allclose(net(x), f(x), rtol=1e-5, atol=1e-6):
                errors.append(seed)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not errors, errors
    assert 1 <= len(net._free) <= 8


def test_other_threads_run_meanwhile():
    net = cytoc.compile(work_model(), threads=1)
    x = np.ones((8192, 512), np.float32)  # a tenth of a second and more
    net(x)
    counts = [0]
    stop = threading.Event()

    def count():
        while not stop.is_set():
            counts[0] += 1
            time.sleep(0.0002)
    t = threading.Thread(target=count)
    t.start()
    time.sleep(0.01)
    before, start = counts[0], time.perf_counter()
    net(x)
    took, made = time.perf_counter() - start, counts[0] - before
    stop.set()
    t.join()
    assert took > 0.02 and made >= 3, 'in %.1f ms another thread ran %d times' % (took * 1e3, made)


def test_fork():
    m, f = linear()
    net = cytoc.compile(m)
    x = np.ones((2, 3), np.float32)
    net(x)
    pid = os.fork()
    if not pid:
        os._exit(0 if np.allclose(net(x), f(x)) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    np.testing.assert_allclose(net(x), f(x))


def test_load_and_save():
    m, f = linear()
    net = cytoc.compile(m, cache=False)
    path = os.path.join(WORK, 'saved.so')
    net.save(path)
    own = net.path
    net.close()
    assert not os.path.exists(own)
    with raises(cytoc.RunError, 'closed'):
        net(np.ones((1, 3), np.float32))
    with cytoc.load(path) as again:
        x = np.ones((1, 3), np.float32)
        np.testing.assert_allclose(again(x), f(x))
        assert again.memory(x=(1, 3))['outputs'] == 8
    with raises(cytoc.LoadError, 'no-such.so'):
        cytoc.load('no-such.so')
    with open(path, 'rb') as whole, open(path + '.cut', 'wb') as cut:
        cut.write(whole.read()[:5000])
    with raises(cytoc.LoadError):
        cytoc.load(path + '.cut')
    with raises(ValueError, 'threads'):
        cytoc.load(path, threads=-1)


def test_metadata_and_repr():
    m, _ = linear()
    helper.set_model_props(m, {'labels': 'a,b'})
    net = cytoc.compile(m)
    assert net.metadata == {'labels': 'a,b'}
    assert 'x: float32[batch, 3]' in repr(net), repr(net)


def test_no_memory_is_kept():
    """What is given is given back: the size of the process stays."""
    code = '''
import resource, numpy as np, cytoc, sys
net = cytoc.load(sys.argv[1], threads=1)
size = lambda: int(open('/proc/self/statm').read().split()[1]) * 4
def runs(n):
    for k in range(n):
        net(np.ones((1 + k % 7, 3), np.float32))
runs(3000)
before = size()
runs(20000)
for _ in range(200):
    cytoc.load(sys.argv[1], threads=1)(np.ones((1, 3), np.float32))
print(size() - before)
'''
    m, _ = linear()
    net = cytoc.compile(m)
    grown = int(subprocess.run([sys.executable, '-c', code, net.path], check=True, stdout=subprocess.PIPE, text=True).stdout)
    assert grown < 3000, 'grown by %d KB' % grown
