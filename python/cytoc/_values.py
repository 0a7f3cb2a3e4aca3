# SPDX-License-Identifier: Apache-2.0
"""Values that are no tensors of numbers (strings, sequences, maps, optional values) between Python and the runtime, and tensors of
other frameworks through DLPack.

Strings are str in and out; arrays of them have dtype object (or NumPy's own string types when given). Sequences are lists, maps dicts,
optional values the value or None.
"""
from __future__ import annotations

import ctypes as C
from typing import Any, Optional

import numpy as np

from . import _dtypes
from ._errors import InputError
from ._native import MAP, OPTIONAL, SEQUENCE, TENSOR, String, Tensor, Type_, Value


def type_text(t: Type_) -> str:
    """"seq(map(int64,float32))"""
    if t.kind == TENSOR:
        return _dtypes.name(t.dtype)
    inner = type_text(t.of.contents)
    return {SEQUENCE: "seq(%s)", OPTIONAL: "optional(%s)", MAP: "map(" + _dtypes.name(t.dtype) + ",%s)"}[t.kind] % inner


# ---- in ----------------------------------------------------------------------------------------------------------------------

class Borrowed:
    """A tensor of another framework: its memory, without a copy. Holds what keeps that memory alive."""
    __slots__ = ("address", "dtype", "shape", "contiguous", "on_host", "keep")

    def __init__(self, address: int, dtype: int, shape: tuple[int, ...], contiguous: bool, on_host: bool, keep: Any) -> None:
        self.address, self.dtype, self.shape, self.contiguous, self.on_host, self.keep = \
            address, dtype, shape, contiguous, on_host, keep


class _DLTensor(C.Structure):
    _fields_ = [("data", C.c_void_p), ("device_type", C.c_int32), ("device_id", C.c_int32), ("ndim", C.c_int32),
                ("code", C.c_uint8), ("bits", C.c_uint8), ("lanes", C.c_uint16), ("shape", C.POINTER(C.c_int64)),
                ("strides", C.POINTER(C.c_int64)), ("byte_offset", C.c_uint64)]


_capsule_pointer = C.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = C.c_void_p, [C.py_object, C.c_char_p]
_HOST = (1, 3, 11, 13)  # kDLCPU, pinned and managed memory
_DEVICE = (2,)          # kDLCUDA


def is_dlpack(x: Any) -> bool:
    return hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray)


def borrow(x: Any, where: str) -> Borrowed:
    """What __dlpack__ shows. Tensors that need a gradient are taken without it, as far as the framework tells."""
    if getattr(x, "requires_grad", False) and hasattr(x, "detach"):
        x = x.detach()
    try:
        capsule = x.__dlpack__()
    except Exception as e:
        raise InputError("%s: the tensor of type %s cannot be read through DLPack: %s" % (where, type(x).__name__, e)) from e
    t = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    number = _dtypes.number_of_dlpack(t.code, t.bits) if t.lanes == 1 else None
    if number is None:
        raise InputError("%s: a tensor of type %s has elements of DLPack type %d with %d bits, which no model takes" %
                         (where, type(x).__name__, t.code, t.bits))
    if t.device_type not in _HOST + _DEVICE:
        raise InputError("%s: the tensor is on a device of DLPack type %d; copy it to the CPU" % (where, t.device_type))
    shape = tuple(t.shape[k] for k in range(t.ndim))
    expected, contiguous = 1, True
    for size, k in zip(reversed(shape), range(t.ndim - 1, -1, -1)):
        contiguous = contiguous and (not t.strides or size <= 1 or t.strides[k] == expected)
        expected *= size
    return Borrowed((t.data or 0) + t.byte_offset, number, shape, contiguous or expected == 0, t.device_type in _HOST, capsule)


def _bytes_of(x: Any, where: str) -> bytes:
    if isinstance(x, str):
        return x.encode("utf-8")
    if isinstance(x, (bytes, bytearray, np.bytes_)):
        return bytes(x)
    raise InputError("%s: expected strings, found %s" % (where, type(x).__name__))


def string_elements(array: np.ndarray[Any, Any], where: str) -> tuple[Any, list[Any]]:
    """An array of cyto_string for the elements of `array`, and what must live as long."""
    texts = [_bytes_of(x, where) for x in array.reshape(-1).tolist()]
    elements = (String * max(len(texts), 1))()
    buffers = [C.create_string_buffer(t, len(t) + 1) for t in texts]
    for k, t in enumerate(texts):
        elements[k].text, elements[k].length = C.addressof(buffers[k]), len(t)
    return elements, [elements, buffers]


def _tensor_in(x: Any, dtype: int, where: str, keep: list[Any]) -> Value:
    v = Value(kind=TENSOR)
    if dtype == _dtypes.STRING:
        array = np.asarray(x, dtype=object)
        elements, held = string_elements(array, where)
        v.tensor.data = C.addressof(elements)
        keep += held
    else:
        wanted = _dtypes.numpy_type(dtype)
        array = np.asarray(x)
        if array.dtype != wanted:
            if not isinstance(x, (int, float, bool, list, tuple)):
                raise InputError("%s: expected %s, found %s" % (where, wanted.name, array.dtype.name))
            array = array.astype(wanted)
        packed = np.ascontiguousarray(array) if _dtypes.bits(dtype) >= 8 else _dtypes.pack(array, dtype)
        v.tensor.data = packed.ctypes.data
        keep.append(packed)
    v.tensor.dtype, v.tensor.rank = dtype, array.ndim
    for k, size in enumerate(array.shape):
        v.tensor.dims[k] = size
    return v


def value_in(x: Any, t: Type_, where: str, keep: list[Any]) -> Value:
    """x as a cyto_value of type t; `keep` gets what must live until the run has ended."""
    if t.kind == TENSOR:
        return _tensor_in(x, t.dtype, where, keep)
    if t.kind == OPTIONAL:
        items = [] if x is None else [value_in(x, t.of.contents, where, keep)]
    elif t.kind == SEQUENCE:
        if not isinstance(x, (list, tuple)):
            raise InputError("%s: expected a list, for %s, found %s" % (where, type_text(t), type(x).__name__))
        items = [value_in(item, t.of.contents, "%s[%d]" % (where, k), keep) for k, item in enumerate(x)]
    else:
        if not isinstance(x, dict):
            raise InputError("%s: expected a dict, for %s, found %s" % (where, type_text(t), type(x).__name__))
        items = [_tensor_in(list(x.keys()), t.dtype, where, keep), _tensor_in(list(x.values()), t.of.contents.dtype, where, keep)]
    v = Value(kind=t.kind, count=len(items))
    if items:
        array = (Value * len(items))(*items)
        keep.append(array)
        v.items = array
    return v


# ---- out ---------------------------------------------------------------------------------------------------------------------

def tensor_out(t: Tensor) -> np.ndarray[Any, Any]:
    """A copy of a tensor that the context owns."""
    shape = tuple(t.dims[k] for k in range(t.rank))
    count = 1
    for size in shape:
        count *= size
    if t.dtype == _dtypes.STRING:
        out = np.empty(count, dtype=object)
        elements = (String * count).from_address(t.data) if count else ()
        for k in range(count):
            out[k] = C.string_at(elements[k].text, elements[k].length).decode("utf-8", "replace")
        return out.reshape(shape)
    size = (count * _dtypes.bits(t.dtype) + 7) // 8
    raw = np.frombuffer(C.string_at(t.data, size), np.uint8) if size else np.empty(0, np.uint8)
    if _dtypes.bits(t.dtype) < 8:
        return _dtypes.unpack(raw, t.dtype, shape)
    typed: np.ndarray[Any, Any] = raw.copy().view(_dtypes.numpy_type(t.dtype))
    return typed.reshape(shape)


def value_out(v: Value) -> Any:
    if v.kind == TENSOR:
        return tensor_out(v.tensor)
    if v.kind == SEQUENCE:
        return [value_out(v.items[k]) for k in range(v.count)]
    if v.kind == OPTIONAL:
        return value_out(v.items[0]) if v.count else None
    keys, values = tensor_out(v.items[0].tensor), tensor_out(v.items[1].tensor)
    return dict(zip(keys.tolist(), values.tolist()))


def describe(x: Any) -> str:
    """What was found in the place of a tensor, for messages: "float64 array of shape (3, 4)"."""
    if isinstance(x, np.ndarray):
        return "%s array of shape %s" % (x.dtype.name, tuple(x.shape))
    if isinstance(x, Borrowed):
        return "%s tensor of shape %s" % (_dtypes.name(x.dtype), x.shape)
    return type(x).__name__


def similar(name: str, known: list[str]) -> Optional[str]:
    """The known name that was probably meant."""
    import difflib
    close = difflib.get_close_matches(name, known, 1)
    return close[0] if close else None
