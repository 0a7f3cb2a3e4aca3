# SPDX-License-Identifier: Apache-2.0
"""What test_cuda.py runs under the mock driver: device.py CASE."""
import ctypes as C
import gc
import os
import runpy
import sys
import types
import warnings

import numpy as np
from onnx import helper

import cytoc
from cytoc import _cuda, _dlpack, _dtypes
from models import linear, model, port, raises


class Foreign:
    """A tensor of a framework of which nothing is known but DLPack, in memory of the device (or, device=None, of the host)."""
    alive = {}  # what capsules refer to, until their deleters are called

    def __init__(self, array, device=0, strides=None):
        self.array, self.device, self.strides = np.asarray(array, order='C'), device, strides
        self.home = cytoc.DeviceArray(self.array.shape, _dtypes.number_of(self.array.dtype), 0).fill(self.array)
        self.streams = []

    def __dlpack_device__(self):
        return (1, 0) if self.device is None else (2, self.device)

    def __dlpack__(self, *, stream=None, max_version=None):
        self.streams.append(stream)
        rank, code = self.array.ndim, _dtypes.dlpack_of(_dtypes.number_of(self.array.dtype))
        shape = (C.c_int64 * max(rank, 1))(*self.array.shape)
        strides = (C.c_int64 * max(rank, 1))(*self.strides) if self.strides else None

        @_dlpack.Deleter
        def done(address):
            del Foreign.alive[address]
        tensor = _dlpack.DLTensor(self.home.address - 16, 2, self.device, rank, *code, 1, C.cast(shape, C.POINTER(C.c_int64)),
                                  C.cast(strides, C.POINTER(C.c_int64)) if strides else None, 16)
        managed = _dlpack.Managed(tensor, None, done)
        Foreign.alive[C.addressof(managed)] = self.home, shape, strides, done, managed
        return _cuda._new(C.addressof(managed), b'dltensor', _destroy)


@_cuda._Destructor
def _destroy(capsule):
    managed = _dlpack.Managed.from_address(_cuda._pointer(capsule, b'dltensor'))
    managed.deleter(C.addressof(managed))


def host(capsule_owner):
    """What a tensor that offers DLPack holds, read the way a consumer does."""
    b = _dlpack.borrow(capsule_owner, 'test', 1)
    assert b.device == 0, b.device
    out = np.empty(b.shape, _dtypes.numpy_type(b.dtype))
    _cuda.driver().copy(0, out.ctypes.data, b.address, out.nbytes, False)
    return out


m, f = linear()
x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)


def calls():
    net = cytoc.compile(m, target='sm_80', cudnn='off', cublaslt='off')
    np.testing.assert_allclose(net(x), f(x), rtol=1e-5)  # the host's
    there = Foreign(x)
    for y in net(there), net(x=there), net.run(None, {'x': there})[0], net.run(['y'], {'x': there})[0]:
        assert isinstance(y, cytoc.DeviceArray) and y.shape == (4, 2) and y.dtype == 'float32' and y.device == 0, y
        np.testing.assert_allclose(host(y), f(x), rtol=1e-5)
        np.testing.assert_allclose(y.numpy(), f(x), rtol=1e-5)
    assert set(there.streams) == {1}, 'the producer is told which stream reads it: %s' % there.streams
    y = net(there)
    again = net(Foreign(np.ones((1, 3), np.float32)))
    np.testing.assert_allclose(again.numpy(), f(np.ones((1, 3), np.float32)), rtol=1e-5)
    np.testing.assert_allclose(y.numpy(), f(x), rtol=1e-5)  # an output is the caller's own
    assert y.__cuda_array_interface__['data'][0] == y.address and y.__cuda_array_interface__['typestr'] == '<f4'
    chained = cytoc.compile(model([helper.make_node('Neg', ['a'], ['b'])], [port('a', 'float32', ['n', 2])],
                                  [port('b', 'float32', ['n', 2])]), target='sm_80')
    np.testing.assert_allclose(chained(y).numpy(), -f(x), rtol=1e-5)
    np.testing.assert_allclose(net(x), f(x), rtol=1e-5)


def misfits():
    net = cytoc.compile(m, target='sm_80', cudnn='off', cublaslt='off')
    with raises(cytoc.InputError, "input 'x'", 'CUDA device 1', 'runs on device 0', 'device=1'):
        net(Foreign(x, device=1))
    with raises(cytoc.InputError, "input 'x'", 'float32', 'float64'):
        net(Foreign(x.astype(np.float64)))
    with raises(cytoc.InputError, '[1,4]'):
        net(Foreign(np.ones((1, 4), np.float32)))
    with raises(cytoc.InputError, 'not dense'):
        net(Foreign(x, strides=(1, 4)))
    add = cytoc.compile(model([helper.make_node('Add', ['a', 'b'], ['c'])], [port('a', 'float32', ['n', 3]), port('b', 'float32', [3])],
                              [port('c', 'float32', ['n', 3])]), target='sm_80')
    with raises(cytoc.InputError, "input 'b'", 'CUDA device 0', "in the host's"):
        add(Foreign(x), np.ones(3, np.float32))
    np.testing.assert_allclose(add(Foreign(x), Foreign(np.ones(3, np.float32))).numpy(), x + 1, rtol=1e-6)
    with raises(cytoc.InputError, "input 'x'", 'CUDA device 0', 'runs on the CPU', "target='cuda'"):
        cytoc.compile(m)(Foreign(x))
    with raises(cytoc.InputError, "output 'y'", 'CUDA device 0'):
        net.run(None, {'x': Foreign(x)}, out={'y': np.empty((4, 2), np.float32)})
    with raises(cytoc.InputError, "output 'y'", 'shape'):
        net.run(None, {'x': Foreign(x)}, out={'y': Foreign(np.empty((3, 2), np.float32))})
    with raises(BufferError, 'stays where it is'):
        net(Foreign(x)).__dlpack__(dl_device=(1, 0))


def buffers():
    net = cytoc.compile(m, target='sm_80', cudnn='off', cublaslt='off')
    inside, outside = Foreign(x), Foreign(np.empty((4, 2), np.float32))
    assert net.run(None, {'x': inside}, out={'y': outside})[0] is outside
    np.testing.assert_allclose(host(outside), f(x), rtol=1e-5)
    outside.home.fill(np.zeros((4, 2), np.float32))
    binding = net.bind().input('x', inside).output('y', outside)
    binding.run()
    assert binding.get('y') is outside
    np.testing.assert_allclose(host(outside), f(x), rtol=1e-5)
    inside.home.fill(2 * x)
    for _ in range(4):  # recorded, and replayed
        binding.run()
    np.testing.assert_allclose(host(outside), f(2 * x), rtol=1e-5)
    there = net.bind().input('x', inside)
    there.run()
    np.testing.assert_allclose(there.get('y').numpy(), f(2 * x), rtol=1e-5)
    here = np.empty((4, 2), np.float32)
    net.bind().input('x', x).output('y', here).run()  # the host's, with the same model
    np.testing.assert_allclose(here, f(x), rtol=1e-5)


def lifetime():
    """Nothing is kept: capsules are given back, and the device has the memory that it had."""
    library = C.CDLL('libcuda.so.1')
    net = cytoc.compile(m, target='sm_80', cudnn='off', cublaslt='off')

    def free():
        gc.collect()
        a, b = C.c_size_t(), C.c_size_t()
        with _cuda.driver().entered(0):
            library.cuMemGetInfo_v2(C.byref(a), C.byref(b))
        return a.value
    there = Foreign(x)
    net(there)
    before = free()
    for _ in range(50):
        y = net(there)
        capsule = y.__dlpack__()
        del y
        del capsule
    assert free() == before and not Foreign.alive, (before - free(), Foreign.alive)
    y = net(there)
    borrowed = _dlpack.borrow(y, 'test', 1)
    del y
    assert free() < before, 'a tensor went away that somebody reads'
    del borrowed
    assert free() == before


def shapes():
    net = cytoc.compile(m, target='sm_80', cudnn='off', cublaslt='off')
    y = net(Foreign(np.zeros((0, 3), np.float32)))
    assert y.shape == (0, 2) and y.numpy().shape == (0, 2)
    scalar = cytoc.compile(model([helper.make_node('Mul', ['a', 'a'], ['b'])], [port('a', 'float32', [])], [port('b', 'float32', [])]),
                           target='sm_80')
    assert scalar(Foreign(np.float32(3))).numpy() == 9
    nonzero = cytoc.compile(model([helper.make_node('NonZero', ['a'], ['b'])], [port('a', 'float32', ['n'])],
                                  [port('b', 'int64', [1, None])]), target='sm_80')
    found = nonzero(Foreign(np.array([0, 2, 0, 3], np.float32)))  # of which the size is known afterwards
    assert isinstance(found, cytoc.DeviceArray) and found.numpy().tolist() == [[1, 3]]
    two = cytoc.compile(model([helper.make_node('Neg', ['a'], ['b']), helper.make_node('Cast', ['a'], ['c'], to=16)],
                              [port('a', 'float32', ['n'])], [port('b', 'float32', ['n']), port('c', 'bfloat16', ['n'])]), target='sm_80')
    b, c = two(Foreign(np.array([1, 2], np.float32)))
    assert b.numpy().tolist() == [-1, -2] and c.dtype == 'bfloat16' and c.numpy().astype('f').tolist() == [1, 2]


def devices():
    """One model over four devices, alone and in a pipeline."""
    C.CDLL('libcuda.so.1').mock_cuda_set_devices(4)
    net = cytoc.compile(m, target='sm_80', cudnn='off', cublaslt='off')
    several = cytoc.load(net.path, devices=[0, 1, 2, 3])
    for rows in 1, 2, 3, 4, 7, 33, 0:
        many = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
        np.testing.assert_allclose(several(many), f(many), rtol=1e-5, atol=1e-6)
    values = np.random.default_rng(5).standard_normal((50, 1, 3)).astype(np.float32)
    found = list(cytoc.Pipeline(cytoc.Run(several, batch=16, wait=0.1, contexts=2), queue=32).run(values))
    np.testing.assert_allclose(np.concatenate(found), f(values.reshape(50, 3)), rtol=1e-5, atol=1e-6)
    with raises(cytoc.RunError, "cyto_options.devices", "host's memory"):
        several(Foreign(x))
    with raises(cytoc.RunError, 'device 7 does not exist'):
        cytoc.load(net.path, devices=[0, 7])(x)
    with raises(ValueError, 'devices', 'different'):
        cytoc.load(net.path, devices=[1, 1])
    with raises(ValueError, 'device_errors', 'again', 'later'):
        cytoc.load(net.path, devices=[1], device_errors='later')
    with raises(cytoc.RunError, 'for the CPU', '--target=cuda'):
        cytoc.load(cytoc.compile(m).path, devices=[0, 1])(x)


def memory():
    """Memory from the device's pool; weights that stay with the host."""
    net = cytoc.compile(m, target='sm_80', cudnn='off', cublaslt='off')
    mock = C.CDLL('libcuda.so.1')
    mock.mock_cuda_set_pools(1)
    pooled = cytoc.load(net.path, device_pool=True)
    before = mock.mock_cuda_pool_allocs()
    np.testing.assert_allclose(pooled(x), f(x), rtol=1e-5)
    assert mock.mock_cuda_pool_allocs() > before
    before = mock.mock_cuda_pool_allocs()
    np.testing.assert_allclose(cytoc.load(net.path)(x), f(x), rtol=1e-5)
    assert mock.mock_cuda_pool_allocs() == before
    wide = model([helper.make_node('MatMul', ['a', 'w'], ['h']), helper.make_node('MatMul', ['h', 'v'], ['b'])],
                 [port('a', 'float32', ['n', 64])], [port('b', 'float32', ['n', 64])],
                 {name: np.random.default_rng(k).standard_normal((64, 64)).astype(np.float32) for k, name in enumerate('wv')})
    net, a = cytoc.compile(wide, target='sm_80', cudnn='off', cublaslt='off'), np.ones((2, 64), np.float32)
    held = {limit: cytoc.load(net.path, device_weights=limit) for limit in (0, 20000)}
    y = {limit: each(a) for limit, each in held.items()}
    np.testing.assert_array_equal(y[0], y[20000])
    used = {limit: each.memory_snapshot() for limit, each in held.items()}
    assert used[0] != used[20000], used
    for bad in -1, 0.5:
        with raises(ValueError, 'device_weights', 'bytes', repr(bad)):
            cytoc.load(net.path, device_weights=bad)
    for name in 'device_pool', 'device_weights':
        with raises(cytoc.RunError, name, 'CPU'):
            cytoc.load(cytoc.compile(m).path, **{name: 1})(x)


def example():
    """examples/cuda/tensors.py with what it uses of PyTorch: tensors go in and come out where they lie."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    digits, seen = os.path.join(root, 'examples', 'digits', 'digits.onnx'), []

    class Scores:
        def __init__(self, y):
            assert isinstance(y, cytoc.DeviceArray), 'the output left the device'
            self.device, self.shape, self.values = 'cuda:%d' % y.device, y.shape, host(y)

        def argmax(self, axis):
            seen.append(self.values)
            return self.values.argmax(axis)

    def rand(*shape, device):
        assert device == 'cuda'
        seen.append(np.random.default_rng(2).random(shape, np.float32))
        return Foreign(seen[-1])
    sys.modules['torch'] = types.ModuleType('torch')
    vars(sys.modules['torch']).update(rand=rand, from_dlpack=Scores,
                                      cuda=types.SimpleNamespace(get_device_capability=lambda: (8, 0)))
    sys.argv = ['tensors.py', digits, '2']
    runpy.run_path(os.path.join(root, 'examples', 'cuda', 'tensors.py'), run_name='__main__')
    images, scores = seen
    np.testing.assert_allclose(scores, cytoc.compile(digits)(images), rtol=1e-4, atol=1e-5)


def no_driver():
    net = cytoc.compile(m, target='sm_80', cudnn='off', cublaslt='off')
    with raises(cytoc.RunError, 'NVIDIA driver was not found'):
        net(x)
    with raises(cytoc.RunError, 'NVIDIA driver was not found'):
        cytoc.DeviceArray((1,), 1, 0)


if __name__ == '__main__':
    warnings.simplefilter('error', cytoc.CompileWarning)
    globals()[sys.argv[1]]()
