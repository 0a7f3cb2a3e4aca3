# SPDX-License-Identifier: Apache-2.0
"""Element types: the runtime's numbers, NumPy's types, their names. Types that NumPy lacks come from the package ml_dtypes."""
from __future__ import annotations

from typing import Any, Optional

import numpy as np

STRING, REF = 8, 27
# number: (name, numpy type or None, name in ml_dtypes, bits)
_ROWS = {
    1: ("float32", np.float32, None, 32), 2: ("uint8", np.uint8, None, 8), 3: ("int8", np.int8, None, 8),
    4: ("uint16", np.uint16, None, 16), 5: ("int16", np.int16, None, 16), 6: ("int32", np.int32, None, 32),
    7: ("int64", np.int64, None, 64), 8: ("string", np.object_, None, 128), 9: ("bool", np.bool_, None, 8),
    10: ("float16", np.float16, None, 16), 11: ("float64", np.float64, None, 64), 12: ("uint32", np.uint32, None, 32),
    13: ("uint64", np.uint64, None, 64), 16: ("bfloat16", None, "bfloat16", 16), 17: ("float8e4m3fn", None, "float8_e4m3fn", 8),
    18: ("float8e4m3fnuz", None, "float8_e4m3fnuz", 8), 19: ("float8e5m2", None, "float8_e5m2", 8),
    20: ("float8e5m2fnuz", None, "float8_e5m2fnuz", 8), 21: ("uint4", None, "uint4", 4), 22: ("int4", None, "int4", 4),
    23: ("float4e2m1", None, "float4_e2m1fn", 4), 24: ("float8e8m0", None, "float8_e8m0fnu", 8), 25: ("uint2", None, "uint2", 2),
    26: ("int2", None, "int2", 2), 27: ("float6e2m3", None, "float6_e2m3fn", 8), 28: ("float6e3m2", None, "float6_e3m2fn", 8),
}
_ORT_NAMES = {1: "float", 11: "double"}  # where ONNX Runtime's name is another
_DLPACK = {(0, 8): 3, (0, 16): 5, (0, 32): 6, (0, 64): 7, (1, 8): 2, (1, 16): 4, (1, 32): 12, (1, 64): 13, (2, 16): 10, (2, 32): 1,
           (2, 64): 11, (4, 16): 16, (6, 8): 9, (10, 8): 17, (11, 8): 18, (12, 8): 19, (13, 8): 20,
           (14, 8): 24}  # (code, bits) of DLPack's DLDataType
_cache: dict[int, np.dtype[Any]] = {}


def name(number: int) -> str:
    """"float32", "string", .."""
    return _ROWS[number][0] if number in _ROWS else "unknown"


def ort_name(number: int) -> str:
    """"tensor(float)": what ONNX Runtime calls tensors of it."""
    return "tensor(%s)" % (_ORT_NAMES.get(number) or name(number))


def bits(number: int) -> int:
    return _ROWS[number][3]


def numpy_type(number: int) -> np.dtype[Any]:
    """ImportError, which names the package, where NumPy needs ml_dtypes for it."""
    found = _cache.get(number)
    if found is None:
        title, plain, extra, _ = _ROWS[number]
        if plain is None:
            try:
                import ml_dtypes
            except ImportError:
                raise ImportError("NumPy has no %s: install the package ml_dtypes" % title) from None
            plain = getattr(ml_dtypes, str(extra), None)
            if plain is None:
                raise ImportError("the package ml_dtypes has no %s: install a newer one" % extra)
        found = _cache[number] = np.dtype(plain)
    return found


def number_of(dtype: np.dtype[Any]) -> Optional[int]:
    """The runtime's number of a NumPy type; None: there is none."""
    if dtype.kind in "OUS" or dtype.kind == "T":
        return STRING
    for number, (_, plain, extra, _) in _ROWS.items():
        if (plain is not None and plain is not np.object_ and dtype == plain) or (extra is not None and dtype.name == extra):
            return number
    return None


def number_of_dlpack(code: int, size: int) -> Optional[int]:
    return _DLPACK.get((code, size))


def dlpack_of(number: int) -> tuple[int, int]:
    """The reverse; BufferError: DLPack has no such type."""
    found = next((row for row, n in _DLPACK.items() if n == number), None)
    if found is None:
        raise BufferError("DLPack has no %s" % name(number))
    return found


def pack(array: np.ndarray[Any, Any], number: int) -> np.ndarray[Any, Any]:
    """Elements of 4 or 2 bits, one a byte, as the runtime has them: the first in the low bits."""
    size = bits(number)
    per = 8 // size
    raw = np.ascontiguousarray(array).view(np.uint8).reshape(-1) & ((1 << size) - 1)
    raw = np.concatenate([raw, np.zeros(-raw.size % per, np.uint8)]).reshape(-1, per)
    packed: np.ndarray[Any, Any] = np.bitwise_or.reduce(raw << (np.arange(per, dtype=np.uint8) * size), axis=1)
    return packed.astype(np.uint8)


def unpack(raw: np.ndarray[Any, Any], number: int, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The reverse of pack()."""
    size, count = bits(number), int(np.prod(shape, dtype=np.int64))
    per = 8 // size
    parts = (raw.reshape(-1, 1) >> (np.arange(per, dtype=np.uint8) * size)) & ((1 << size) - 1)
    parts = parts.reshape(-1)[:count].astype(np.uint8)
    if name(number).startswith("float"):
        return parts.view(numpy_type(number)).reshape(shape)
    if name(number).startswith("int"):  # the sign is the highest bit
        return ((parts ^ (1 << (size - 1))).astype(np.int8) - (1 << (size - 1))).astype(numpy_type(number)).reshape(shape)
    return parts.astype(numpy_type(number)).reshape(shape)
