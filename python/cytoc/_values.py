# SPDX-License-Identifier: Apache-2.0
"""Values that are no tensors of numbers (strings, sequences, maps, optional values) between Python and the runtime.

Strings are str in and out; arrays of them have dtype object (or NumPy's own string types when given). Sequences are lists, maps dicts,
optional values the value or None.
"""
from __future__ import annotations

import ctypes as C
from typing import Any, Optional

import numpy as np

from . import _dtypes
from ._dlpack import Borrowed
from ._errors import InputError
from ._native import MAP, OPTIONAL, SEQUENCE, TENSOR, String, Tensor, Type_, Value


def type_text(t: Type_) -> str:
    """"seq(map(int64,float32))"""
    if t.kind == TENSOR:
        return _dtypes.name(t.dtype)
    inner = type_text(t.of.contents)
    return {SEQUENCE: "seq(%s)", OPTIONAL: "optional(%s)", MAP: "map(" + _dtypes.name(t.dtype) + ",%s)"}[t.kind] % inner


# ---- in ----------------------------------------------------------------------------------------------------------------------

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
        if array.dtype != wanted and array.dtype.newbyteorder("=") == wanted:
            array = array.astype(wanted)
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
