# SPDX-License-Identifier: Apache-2.0
"""Files of tensors that guard_run.c reads and writes.

In:  NumPy's arrays, tensors without elements that NumPy thinks too large, None for an absent one.
Out: the same, read from a file.
"""
import struct

import numpy as np
from onnx import TensorProto

DTYPES = {TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64, TensorProto.FLOAT16: np.float16,
          TensorProto.INT8: np.int8, TensorProto.INT16: np.int16, TensorProto.INT32: np.int32,
          TensorProto.INT64: np.int64, TensorProto.UINT8: np.uint8, TensorProto.UINT16: np.uint16,
          TensorProto.UINT32: np.uint32, TensorProto.UINT64: np.uint64, TensorProto.BOOL: np.bool_}
CODES = {np.dtype(v): k for k, v in DTYPES.items()}


class Hollow:
    """A tensor without elements that NumPy thinks too large."""

    def __init__(self, shape, dtype):
        self.shape, self.dtype, self.ndim, self.size = tuple(shape), np.dtype(dtype), len(shape), 0


def is_hollow(shape, dtype):
    return 0 in shape and np.prod([d or 1 for d in shape], dtype=object) * dtype.itemsize >= 1 << 62


def write_tensors(path, arrays):
    with open(path, 'wb') as f:
        f.write(struct.pack('<i', len(arrays)))
        for a in arrays:
            if a is None:
                f.write(struct.pack('<ii', 0, 0))
                continue
            f.write(struct.pack('<ii%dq' % a.ndim, CODES[a.dtype], a.ndim, *a.shape))
            if not isinstance(a, Hollow):
                f.write(np.ascontiguousarray(a).tobytes())


def read_tensor(f):
    code, rank = struct.unpack('<ii', f.read(8))
    if not code:
        return None
    shape, dtype = struct.unpack('<%dq' % rank, f.read(8 * rank)), np.dtype(DTYPES[code])
    if is_hollow(shape, dtype):
        return Hollow(shape, dtype)
    count = 0 if 0 in shape else int(np.prod(shape, dtype=object))
    return np.frombuffer(f.read(count * dtype.itemsize), dtype).reshape(shape)


def read_tensors(path):
    """path: or an open file."""
    if isinstance(path, str):
        with open(path, 'rb') as f:
            return read_tensors(f)
    return [read_tensor(path) for _ in range(struct.unpack('<i', path.read(4))[0])]
