# SPDX-License-Identifier: Apache-2.0
"""Tensors in the memory of NVIDIA GPUs, for models compiled for them.

In:  tensors of any framework through DLPack (device type 2), and the driver's library, libcuda.so.1, by ctypes.
Out: `Driver`, the few of its functions that are needed, and `DeviceArray`, what a model's outputs are when its inputs lie on the device:
     a dense tensor with __dlpack__ and __cuda_array_interface__, whose memory is given back with the last reference to it.

Order. Who made a tensor is asked, as DLPack wants it, to be ready for the legacy default stream; models run on that stream and are waited
for, so that an output may be used by any stream at once.
"""
from __future__ import annotations

import contextlib
import ctypes as C
import threading
from typing import Any, Dict, Iterator, Optional, Tuple

import numpy as np

from . import _dtypes
from ._dlpack import CUDA, Deleter, DLTensor, Managed
from ._errors import RunError

LEGACY_STREAM = 1  # CU_STREAM_LEGACY, also what DLPack calls it
_OUT_OF_MEMORY = 2
_lock = threading.Lock()
_driver: Optional["Driver"] = None


class Driver:
    """The driver's functions. Each device's primary context is current while one of them runs, as it is in the runtime."""

    def __init__(self) -> None:
        try:
            library = C.CDLL("libcuda.so.1")
        except OSError as e:
            raise RunError("the NVIDIA driver was not found: %s" % e, "no usable device") from None
        u64, ptr, size, i32 = C.c_uint64, C.c_void_p, C.c_size_t, C.c_int32
        for name, arguments in {
                "cuInit": (C.c_uint32,), "cuDeviceGet": (C.POINTER(i32), i32), "cuGetErrorName": (i32, C.POINTER(C.c_char_p)),
                "cuDevicePrimaryCtxRetain": (C.POINTER(ptr), i32), "cuCtxPushCurrent_v2": (ptr,), "cuCtxPopCurrent_v2": (C.POINTER(ptr),),
                "cuMemAlloc_v2": (C.POINTER(u64), size), "cuMemFree_v2": (u64,), "cuStreamSynchronize": (ptr,),
                "cuMemcpyHtoDAsync_v2": (u64, ptr, size, ptr), "cuMemcpyDtoHAsync_v2": (ptr, u64, size, ptr)}.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, i32
        self.library: Any = library
        self.contexts: Dict[int, Any] = {}
        self.check("cuInit", library.cuInit(0))

    def check(self, what: str, code: int) -> None:
        if code:
            name = C.c_char_p()
            self.library.cuGetErrorName(code, C.byref(name))
            raise RunError("%s: %s (%d)" % (what, (name.value or b"unknown error").decode(), code),
                           "out of memory" if code == _OUT_OF_MEMORY else "failure while running")

    @contextlib.contextmanager
    def entered(self, device: int) -> Iterator[Any]:
        """The device's primary context is current; it is kept for as long as the process lives, as frameworks do."""
        with _lock:
            if device not in self.contexts:
                handle, context = C.c_int32(), C.c_void_p()
                self.check("cuDeviceGet", self.library.cuDeviceGet(C.byref(handle), device))
                self.check("cuDevicePrimaryCtxRetain", self.library.cuDevicePrimaryCtxRetain(C.byref(context), handle.value))
                self.contexts[device] = context
        self.check("cuCtxPushCurrent", self.library.cuCtxPushCurrent_v2(self.contexts[device]))
        try:
            yield self.library
        finally:
            self.library.cuCtxPopCurrent_v2(C.byref(C.c_void_p()))

    def wait(self, device: int) -> None:
        """Until what runs have put on the legacy stream is done."""
        with self.entered(device) as library:
            self.check("cuStreamSynchronize", library.cuStreamSynchronize(LEGACY_STREAM))

    def copy(self, device: int, to: int, source: int, size: int, into_device: bool) -> None:
        with self.entered(device) as library:
            copy = library.cuMemcpyHtoDAsync_v2 if into_device else library.cuMemcpyDtoHAsync_v2
            self.check("copying a tensor", copy(to, source, size, LEGACY_STREAM))
            self.check("copying a tensor", library.cuStreamSynchronize(LEGACY_STREAM))


def driver() -> Driver:
    global _driver
    with _lock:
        if _driver is None:
            _driver = Driver()
    return _driver


# ---- tensors -----------------------------------------------------------------------------------------------------------------

class _Export:
    """What a capsule refers to; its reference to itself ends when the consumer calls the deleter."""

    def __init__(self, array: "DeviceArray") -> None:
        rank = len(array.shape)
        code, bits = _dtypes.dlpack_of(array.number)
        self.array, self.shape = array, (C.c_int64 * max(rank, 1))(*array.shape)
        self.managed = Managed(DLTensor(array.address, CUDA, array.device, rank, code, bits, 1, C.cast(self.shape, C.POINTER(C.c_int64)),
                                        None, 0), id(self), _delete)


@Deleter  # type: ignore[untyped-decorator,unused-ignore]
def _delete(address: int) -> None:
    C.pythonapi.Py_DecRef(C.cast(Managed.from_address(address).manager_ctx, C.py_object))


_api = C.pythonapi
_NAME = b"dltensor"
_Destructor = C.PYFUNCTYPE(None, C.c_void_p)
_is_valid = C.PYFUNCTYPE(C.c_int, C.c_void_p, C.c_char_p)(("PyCapsule_IsValid", _api))
_pointer = C.PYFUNCTYPE(C.c_void_p, C.c_void_p, C.c_char_p)(("PyCapsule_GetPointer", _api))
_new = C.PYFUNCTYPE(C.py_object, C.c_void_p, C.c_char_p, _Destructor)(("PyCapsule_New", _api))


@_Destructor  # type: ignore[untyped-decorator,unused-ignore]
def _destroy(capsule: int) -> None:
    if _is_valid(capsule, _NAME):  # nobody has taken it
        _delete(_pointer(capsule, _NAME))


for _kept in (_delete, _destroy):  # consumers may call them while the interpreter goes down
    _api.Py_IncRef(C.py_object(_kept))


class DeviceArray:
    """A dense tensor in the memory of a GPU: `torch.from_dlpack(y)`, `cupy.from_dlpack(y)`, or `y.numpy()` for a copy on the host."""
    __slots__ = ("address", "number", "shape", "device", "nbytes", "_driver", "__weakref__")

    def __init__(self, shape: Tuple[int, ...], number: int, device: int) -> None:
        self.address, self.number, self.shape, self.device = 0, number, tuple(shape), device
        self.nbytes = int(np.prod(shape, dtype=np.int64)) * _dtypes.bits(number) // 8
        self._driver = driver()
        place = C.c_uint64()
        with self._driver.entered(device) as library:
            self._driver.check("no device memory for an output of %d bytes" % self.nbytes,
                               library.cuMemAlloc_v2(C.byref(place), max(self.nbytes, 1)))
        self.address = place.value

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            try:
                with self._driver.entered(self.device) as library:
                    library.cuMemFree_v2(self.address)
            except Exception:  # the interpreter may be going down
                pass

    @property
    def dtype(self) -> str:
        """"float32" """
        return _dtypes.name(self.number)

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy on the host."""
        array: np.ndarray[Any, Any] = np.empty(self.shape, _dtypes.numpy_type(self.number))
        if array.nbytes:
            self._driver.copy(self.device, array.ctypes.data, self.address, array.nbytes, False)
        return array

    def fill(self, array: np.ndarray[Any, Any]) -> "DeviceArray":
        """Copies a dense array of the same size into it."""
        if array.nbytes:
            self._driver.copy(self.device, self.address, array.ctypes.data, array.nbytes, True)
        return self

    def __dlpack__(self, *, stream: Optional[int] = None, max_version: Optional[Tuple[int, int]] = None,
                   dl_device: Optional[Tuple[int, int]] = None, copy: Optional[bool] = None) -> Any:
        if dl_device not in (None, self.__dlpack_device__()) or copy:
            raise BufferError("this tensor stays where it is, on CUDA device %d, and makes no copies" % self.device)
        export = _Export(self)
        _api.Py_IncRef(C.py_object(export))
        return _new(C.addressof(export.managed), _NAME, _destroy)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return CUDA, self.device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        dtype = _dtypes.numpy_type(self.number)
        return {"shape": self.shape, "typestr": dtype.str, "data": (self.address if self.nbytes else 0, False), "version": 3,
                "strides": None, "stream": None}

    def __repr__(self) -> str:
        return "<cytoc.DeviceArray of %s, shape %s, on CUDA device %d>" % (self.dtype, self.shape, self.device)
