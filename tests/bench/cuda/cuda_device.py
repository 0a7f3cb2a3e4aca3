# SPDX-License-Identifier: Apache-2.0
"""The driver and compiled models in Python: memory of the device, events, and runs on a stream, by ctypes.

In:  libcuda.so.1 (or a mock of it); libcyto.so, which `make portable` links of the runtime.
Out: Driver, Model. Everything is on device 0 in its primary context, which PyTorch uses, too: both take each other's
     memory and streams.
"""
import ctypes
from ctypes import byref, c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint64, c_ubyte, c_void_p

import numpy as np

MAX_RANK = 12  # CYTO_MAX_RANK


class Error(Exception):
    pass


class Driver:
    """Functions of the driver by their names, checked."""

    def __init__(self):
        try:
            self.library = ctypes.CDLL('libcuda.so.1')
        except OSError as problem:
            raise Error('the NVIDIA driver was not found: %s' % problem)
        self.call('cuInit', 0)
        number, self.context = c_int32(), c_void_p()
        self.call('cuDeviceGet', byref(number), 0)
        self.number = number.value
        self.call('cuDevicePrimaryCtxRetain', byref(self.context), number)
        self.call('cuCtxPushCurrent_v2', self.context)
        self.capability = self.attribute(75) * 10 + self.attribute(76)

    def has(self, name):
        return hasattr(self.library, name)

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code:
            text = c_char_p()
            self.library.cuGetErrorName(code, byref(text))
            raise Error('%s: %s (%d)' % (name, (text.value or b'?').decode(), code))

    def attribute(self, which):
        value = c_int32()
        self.call('cuDeviceGetAttribute', byref(value), which, self.number)
        return value.value

    def name(self):
        text = ctypes.create_string_buffer(100)
        self.call('cuDeviceGetName', text, 100, self.number)
        return text.value.decode()

    def arch(self):
        """What cytoc calls the device."""
        return 'sm_%d%s' % (self.capability, 'a' if self.capability == 90 else '')

    def stream(self):
        stream = c_void_p()
        self.call('cuStreamCreate', byref(stream), 1)
        return stream.value

    def wait(self, stream):
        self.call('cuStreamSynchronize', c_void_p(stream))

    def alloc(self, size):
        at = c_uint64()
        self.call('cuMemAlloc_v2', byref(at), c_size_t(max(size, 1)))
        return at.value

    def free(self, at):
        self.call('cuMemFree_v2', c_uint64(at))

    def load(self, image):
        """The module of an image, which stays."""
        module = c_void_p()
        self.call('cuModuleLoadDataEx', byref(module), image, 0, None, None)
        return module

    def function(self, module, name):
        function = c_void_p()
        self.call('cuModuleGetFunction', byref(function), module, name.encode())
        return function

    def launch(self, function, blocks, threads, words, stream):
        """Parameters are words of 64 bits."""
        values = [c_uint64(w) for w in words]
        at = (c_void_p * len(values))(*[ctypes.cast(ctypes.pointer(v), c_void_p) for v in values])
        self.call('cuLaunchKernel', function, blocks, 1, 1, threads, 1, 1, 0, c_void_p(stream), at, None)

    def upload(self, array):
        """A copy of the array on the device."""
        array = np.ascontiguousarray(array)
        at = self.alloc(array.nbytes)
        self.call('cuMemcpyHtoDAsync_v2', c_uint64(at), array.ctypes.data_as(c_void_p), c_size_t(array.nbytes), None)
        self.wait(None)
        return at

    def download(self, at, size, stream):
        out = np.empty(size, np.uint8)
        self.call('cuMemcpyDtoHAsync_v2', out.ctypes.data_as(c_void_p), c_uint64(at), c_size_t(size), c_void_p(stream))
        self.wait(stream)
        return out

    def fill(self, at, byte, size, stream):
        self.call('cuMemsetD8Async', c_uint64(at), c_ubyte(byte), c_size_t(size), c_void_p(stream))

    def copy(self, to, at, size, stream):
        self.call('cuMemcpyDtoDAsync_v2', c_uint64(to), c_uint64(at), c_size_t(size), c_void_p(stream))

    def timed(self, function, stream):
        """Microseconds between events before and behind what the function puts on the stream."""
        events = [c_void_p(), c_void_p()]
        for event in events:
            self.call('cuEventCreate', byref(event), 0)
        self.call('cuEventRecord', events[0], c_void_p(stream))
        function()
        self.call('cuEventRecord', events[1], c_void_p(stream))
        self.call('cuEventSynchronize', events[1])
        ms = c_float()
        self.call('cuEventElapsedTime', byref(ms), events[0], events[1])
        for event in events:
            self.call('cuEventDestroy_v2', event)
        return ms.value * 1e3


class CytoError(ctypes.Structure):
    _fields_ = [('code', c_int32), ('message', ctypes.c_char * 1024)]


class CytoOptions(ctypes.Structure):
    _fields_ = [('threads', c_int32), ('parallel', c_void_p), ('parallel_user', c_void_p), ('alloc', c_void_p),
                ('release', c_void_p), ('allocator_user', c_void_p), ('device', c_int32), ('device_memory', c_int32),
                ('stream', c_void_p), ('devices', c_void_p), ('device_count', c_int32), ('device_errors', c_int32),
                ('further', c_uint64 * 64)]  # zeros: what is not used here, and what comes later


class CytoTensor(ctypes.Structure):
    _fields_ = [('data', c_void_p), ('bytes', c_uint64), ('dtype', c_int32), ('rank', c_int32),
                ('dims', c_int64 * MAX_RANK)]


class Model:
    """A library whose tensors lie on the device and whose runs go on a stream: run() returns before they have ended."""

    def __init__(self, driver, runtime, library, stream):
        self.driver, self.stream, self.cyto = driver, stream, ctypes.CDLL(runtime)
        self.cyto.cyto_model_output_count.restype = c_int32
        self.error, model, self.context = CytoError(), c_void_p(), c_void_p()
        self.check(self.cyto.cyto_model_load(library.encode(), byref(model), byref(self.error)))
        self.model = model
        options = CytoOptions(device_memory=1, stream=stream)
        self.check(self.cyto.cyto_context_create(model, byref(options), byref(self.context), byref(self.error)))

    def check(self, status):
        if status:
            raise Error(self.error.message.decode(errors='replace'))

    def bind(self, name, onnx_type, shape, at):
        """An input; ONNX's numbers of types are ours."""
        index = self.cyto.cyto_model_find_input(self.model, name.encode())
        dims = (c_int64 * MAX_RANK)(*shape)
        self.check(self.cyto.cyto_bind_input(self.context, index, onnx_type, len(shape), dims, c_void_p(at),
                                             byref(self.error)))

    def bind_outputs(self):
        """[(address, bytes, type, dims)] of memory that all outputs were given, for which all inputs must be bound."""
        self.check(self.cyto.cyto_context_prepare(self.context, byref(self.error)))
        outputs = []
        for i in range(self.cyto.cyto_model_output_count(self.model)):
            out = CytoTensor()
            self.check(self.cyto.cyto_output(self.context, i, byref(out), byref(self.error)))
            outputs.append((self.driver.alloc(out.bytes), out.bytes, out.dtype, list(out.dims[:out.rank])))
        for i, (at, size, _, _) in enumerate(outputs):  # binding one makes the context forget the sizes
            self.check(self.cyto.cyto_bind_output(self.context, i, c_void_p(at), c_uint64(size), byref(self.error)))
        return outputs

    def run(self):
        self.check(self.cyto.cyto_run(self.context, byref(self.error)))

    def about(self):
        text = ctypes.create_string_buffer(1000)
        self.cyto.cyto_context_describe(self.context, text, c_uint64(1000))
        return text.value.decode(errors='replace')
