# SPDX-License-Identifier: Apache-2.0
"""Tensors of other frameworks, through DLPack: their memory as it lies, without a copy.

In:  any object with __dlpack__, such as PyTorch's, CuPy's and JAX's arrays. Out: `Borrowed`, which keeps that memory alive.
"""
from __future__ import annotations

import ctypes as C
from typing import Any, Optional, Sequence, Tuple

import numpy as np

from . import _dtypes
from ._errors import InputError

CUDA = 2  # kDLCUDA
_MANAGED = 13  # kDLCUDAManaged: memory of both
_HOST = (1, 3, 11)  # kDLCPU, pinned memory


class DLTensor(C.Structure):
    _fields_ = [("data", C.c_void_p), ("device_type", C.c_int32), ("device_id", C.c_int32), ("ndim", C.c_int32),
                ("code", C.c_uint8), ("bits", C.c_uint8), ("lanes", C.c_uint16), ("shape", C.POINTER(C.c_int64)),
                ("strides", C.POINTER(C.c_int64)), ("byte_offset", C.c_uint64)]


Deleter = C.CFUNCTYPE(None, C.c_void_p)


class Managed(C.Structure):
    """DLManagedTensor"""
    _fields_ = [("tensor", DLTensor), ("manager_ctx", C.c_void_p), ("deleter", Deleter)]


class _Versioned(C.Structure):
    """DLManagedTensorVersioned, of DLPack 1"""
    _fields_ = [("major", C.c_uint32), ("minor", C.c_uint32), ("manager_ctx", C.c_void_p), ("deleter", Deleter), ("flags", C.c_uint64),
                ("tensor", DLTensor)]


class Borrowed:
    """A tensor of another framework: where it lies and what it is. Holds what keeps its memory alive."""
    __slots__ = ("address", "dtype", "shape", "contiguous", "device", "keep")

    def __init__(self, address: int, dtype: int, shape: Tuple[int, ...], contiguous: bool, device: Optional[int], keep: Any) -> None:
        self.address, self.dtype, self.shape, self.contiguous, self.keep = address, dtype, shape, contiguous, keep
        self.device = device  # number of the CUDA device; None: the host


_name_of = C.pythonapi.PyCapsule_GetName
_name_of.restype, _name_of.argtypes = C.c_char_p, [C.py_object]
_pointer = C.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = C.c_void_p, [C.py_object, C.c_char_p]


def is_dlpack(x: Any) -> bool:
    return hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray)


def device_of(values: Sequence[Any]) -> Optional[int]:
    """The CUDA device where the first of the tensors lies that lies on one; None: all are on the host."""
    for x in values:
        if x is not None and type(x) is not np.ndarray and hasattr(x, "__dlpack_device__"):
            kind, number = x.__dlpack_device__()
            if int(kind) in (CUDA, _MANAGED):
                return int(number)
    return None


def _capsule(x: Any, where: str, **stream: Any) -> Any:
    try:
        try:
            return x.__dlpack__(**stream)
        except BufferError:  # one that is read-only can say so since DLPack 1 alone
            return x.__dlpack__(max_version=(1, 1), **stream)
    except Exception as e:
        raise InputError("%s: the tensor of type %s cannot be read through DLPack: %s" % (where, type(x).__name__, e)) from e


def borrow(x: Any, where: str, stream: Optional[int] = None) -> Borrowed:
    """What __dlpack__ shows. Tensors that need a gradient are taken without it, as far as the framework tells. stream: the CUDA stream
    that will read a tensor of a device."""
    if getattr(x, "requires_grad", False) and hasattr(x, "detach"):
        x = x.detach()
    capsule = _capsule(x, where, **({} if stream is None else {"stream": stream}))
    name = _name_of(capsule)
    address = _pointer(capsule, name)
    t = _Versioned.from_address(address).tensor if name == b"dltensor_versioned" else DLTensor.from_address(address)
    number = _dtypes.number_of_dlpack(t.code, t.bits) if t.lanes == 1 else None
    if number is None:
        raise InputError("%s: a tensor of type %s has elements of DLPack type %d with %d bits, which no model takes" %
                         (where, type(x).__name__, t.code, t.bits))
    if t.device_type not in _HOST + (CUDA, _MANAGED):
        raise InputError("%s: the tensor is on a device of DLPack type %d; copy it to the CPU" % (where, t.device_type))
    shape = tuple(t.shape[k] for k in range(t.ndim))
    expected, contiguous = 1, True
    for size, k in zip(reversed(shape), range(t.ndim - 1, -1, -1)):
        contiguous = contiguous and (not t.strides or size <= 1 or t.strides[k] == expected)
        expected *= size
    on_device = t.device_type == CUDA or (t.device_type == _MANAGED and stream is not None)
    return Borrowed((t.data or 0) + t.byte_offset, number, shape, contiguous or expected == 0, t.device_id if on_device else None, capsule)
