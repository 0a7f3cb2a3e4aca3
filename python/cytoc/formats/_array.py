# SPDX-License-Identifier: Apache-2.0
"""Arrays without a picture's metadata: .npy, mapped, and safetensors (`file.safetensors::name` names one of several tensors)."""
from __future__ import annotations

import os
from typing import Any, Dict, Sequence

import numpy as np

from ._base import ArrayImage, FormatError, Image, MappedWriter, PlainImage, Scale, WholeWriter, Writer, guessed_axes, library, reserve

TENSOR = "result"  # the name of what is written


def open_npy(path: str) -> Image:
    if os.path.getsize(path) == 0:
        raise FormatError("'%s' is empty" % path)
    try:
        array: Any = np.lib.format.open_memmap(path, "r")
    except ValueError as e:
        raise FormatError("'%s': not an array of numbers that can be read: %s" % (path, e)) from None
    if array.dtype.kind not in "biuf":
        raise FormatError("'%s': expected numbers, found dtype %s" % (path, array.dtype))
    if not array.flags.c_contiguous or not array.size:
        return ArrayImage(path, array, guessed_axes(array.shape))
    return PlainImage(path, array.offset, array.shape, array.dtype, guessed_axes(array.shape))


def create_npy(path: str, shape: Sequence[int], dtype: Any, axes: str, scale: Scale, extra: Dict[str, Any]) -> Writer:
    if extra.get("goes_on"):
        return MappedWriter(path, np.load(path, mmap_mode="r+"), axes)
    array: Any = np.lib.format.open_memmap(path, "w+", dtype, tuple(shape))
    reserve(path, os.path.getsize(path))
    return MappedWriter(path, array, axes)


def open_safetensors(path: str) -> Image:
    path, _, name = path.partition("::")
    safetensors = library("safetensors", "volumes", path)
    with safetensors.safe_open(path, framework="np") as f:
        names = sorted(f.keys())
        if not name and len(names) != 1:
            raise FormatError("'%s' has %d tensors: name one, %s::%s" % (path, len(names), path, names[0] if names else "NAME"))
        if name and name not in names:
            raise FormatError("'%s' has no tensor '%s': it has %s" % (path, name, ", ".join(names)))
        return _SafetensorsImage(path, name or names[0], f.get_slice(name or names[0]))


class _SafetensorsImage(Image):
    def __init__(self, path: str, name: str, tensor: Any) -> None:
        shape = tensor.get_shape()
        super().__init__(path, shape, tensor[tuple(slice(0, 0) for _ in shape)].dtype, guessed_axes(shape))
        self.name = name

    def read(self, start: Sequence[int], stop: Sequence[int]) -> Any:
        from safetensors import safe_open
        with safe_open(self.path, framework="np") as f:  # which maps the file, and costs next to nothing
            return f.get_slice(self.name)[tuple(slice(a, b) for a, b in zip(start, stop))]


class _SafetensorsWriter(WholeWriter):
    def close(self) -> None:
        from safetensors.numpy import save
        with open(self.path, "wb") as f:  # whose errors say what is wrong
            f.write(save({TENSOR: self.array}, {"axes": self.axes}))


def create_safetensors(path: str, shape: Sequence[int], dtype: Any, axes: str, scale: Scale, extra: Dict[str, Any]) -> Writer:
    library("safetensors", "volumes", path)
    return _SafetensorsWriter(path, shape, dtype, axes)
