# SPDX-License-Identifier: Apache-2.0
"""What all formats have in common: an Image is opened and read by regions, a Writer is made for a known shape and filled by regions.

Axes are letters of OME's: T, C, Z, Y, X; audio has C and T. Sizes of voxels are {letter: (size, unit)}.
"""
from __future__ import annotations

import ctypes
import importlib
import itertools
import math
import os
import re
from typing import Any, Dict, Optional, Sequence, Tuple

import numpy as np

from .._errors import CytocError

Array = np.ndarray[Any, Any]
Scale = Dict[str, Tuple[float, str]]
AT_ONCE = 4 << 20  # bytes of a file that are read, and kept, in place of many small parts of them
ORDER = "TCZYX"  # of axes in what is written


class FormatError(CytocError):
    """A file that cannot be read or written: which, why, and what to do."""


def library(name: str, extra: str, path: str) -> Any:
    """The library of a format. FormatError that says which extra of the package has it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise FormatError("'%s' needs the package %s: pip install 'cytoc[%s]'" % (path, name.split(".")[0], extra)) from None


class Image:
    """An image, volume, recording or video: slice it like an array, and that part alone is read where the format allows it.

    path, shape, dtype; axes: a letter for each axis; scale: sizes of voxels, of axes where they are known; extra: what a writer of the
    same format makes use of, such as a NIfTI file's header. at_once: bytes of the file that may be kept in memory where neighbouring
    regions are read one after the other. Threads may read one image at once.
    """

    def __init__(self, path: str, shape: Sequence[int], dtype: Any, axes: str, scale: Optional[Scale] = None,
                 extra: Optional[Dict[str, Any]] = None) -> None:
        self.path, self.shape, self.dtype, self.axes = path, tuple(int(n) for n in shape), np.dtype(dtype), axes
        self.scale, self.extra = dict(scale or {}), dict(extra or {})
        self.ndim, self.at_once = len(self.shape), AT_ONCE
        if len(axes) != self.ndim:
            raise FormatError("'%s': %d axes, '%s', for a shape of %d, %s" % (path, len(axes), axes, self.ndim, list(self.shape)))

    def read(self, start: Sequence[int], stop: Sequence[int]) -> Array:
        """The region from start to before stop, of all axes."""
        raise NotImplementedError

    def __getitem__(self, key: Any) -> Array:
        found = self.shared(key)
        return found if found.flags.writeable else found.copy()

    def shared(self, key: Any) -> Array:
        """As image[key]; it may be part of what the image keeps, and is not to be written to then."""
        parts = list(key) if isinstance(key, tuple) else [key]
        if Ellipsis in parts:
            k = parts.index(Ellipsis)
            parts[k:k + 1] = [slice(None)] * (self.ndim - len(parts) + 1)
        parts += [slice(None)] * (self.ndim - len(parts))
        start, stop, dropped = [], [], []
        for axis, (p, n) in enumerate(zip(parts, self.shape)):
            if isinstance(p, slice):
                a, b, _ = p.indices(n)
            else:
                a, b = int(p) % n, int(p) % n + 1
                dropped.append(axis)
            start.append(a)
            stop.append(max(a, b))
        empty = any(a >= b for a, b in zip(start, stop))
        part = np.empty([b - a for a, b in zip(start, stop)], self.dtype) if empty else self.read(start, stop)
        return np.squeeze(part, tuple(dropped)) if dropped else part

    def close(self) -> None:
        pass

    def release(self) -> None:
        """It is read no more for now: nothing is kept in memory."""

    def __enter__(self) -> "Image":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()


class ArrayImage(Image):
    """An array in memory."""

    def __init__(self, path: str, array: Array, axes: str, scale: Optional[Scale] = None, extra: Optional[Dict[str, Any]] = None) -> None:
        super().__init__(path, array.shape, array.dtype, axes, scale, extra)
        self.array: Optional[Array] = array

    def read(self, start: Sequence[int], stop: Sequence[int]) -> Array:
        if self.array is None:
            raise FormatError("'%s' was closed" % self.path)
        return self.array[tuple(slice(a, b) for a, b in zip(start, stop))]

    def close(self) -> None:
        self.array = None


class PlainImage(Image):
    """An array that lies in a file as it is, in C order from `offset` on. Rows are read, and cut: mapping the file would bring more of it
    into the process. The last rows stay, as the tiles of a layer are cut from the same ones."""

    def __init__(self, path: str, offset: int, shape: Sequence[int], dtype: Any, axes: str, scale: Optional[Scale] = None,
                 extra: Optional[Dict[str, Any]] = None, file: Optional[str] = None) -> None:
        super().__init__(path, shape, dtype, axes, scale, extra)
        self.offset, self.handle = offset, os.open(file or path, os.O_RDONLY)
        self.rows: Optional[Tuple[int, Array]] = None  # the first of the last ones, and these
        self.asked = (-1, 0)                           # rows of the last region that was read without the rest of them
        end, there = offset + math.prod(self.shape) * self.dtype.itemsize, os.fstat(self.handle).st_size
        if end > there:
            self.close()
            raise FormatError("'%s' is truncated: expected %d bytes, found %d" % (path, end, there))

    def read(self, start: Sequence[int], stop: Sequence[int]) -> Array:
        wanted = math.prod(b - a for a, b in zip(start, stop))
        rest = math.prod(self.shape[1:])
        count = (stop[0] - start[0]) * rest
        asked, self.asked = self.asked, (start[0], stop[0])
        again = asked == self.asked or count <= 8 * wanted
        if wanted and (count == wanted or again and count * self.dtype.itemsize <= self.at_once):
            return self._rows(start[0], stop[0] - start[0], rest)[(slice(None),) + tuple(slice(a, b) for a, b in zip(start[1:], stop[1:]))]
        found = np.empty([b - a for a, b in zip(start, stop)], self.dtype)
        lead = max(self.ndim - 2, 0)
        inner = self.shape[lead:]
        columns = slice(start[-1], stop[-1])
        for place in itertools.product(*(range(a, b) for a, b in zip(start[:lead], stop[:lead]))):
            first = int(np.ravel_multi_index(place, self.shape[:lead])) * int(np.prod(inner)) if lead else 0
            out = found[tuple(p - a for p, a in zip(place, start))]
            if self.ndim == 1:
                out[...] = self._bytes(first + start[0], stop[0] - start[0])
            else:
                rows, row = stop[lead] - start[lead], inner[1]
                out[...] = self._bytes(first + start[lead] * row, rows * row).reshape(rows, row)[:, columns]
        return found

    def _rows(self, first: int, count: int, rest: int) -> Array:
        """Rows of `rest` elements, not to be written to."""
        kept = self.rows
        if kept is not None and kept[0] == first and len(kept[1]) == count:
            return kept[1]
        self.rows = kept = None
        found = self._bytes(first * rest, count * rest).reshape((count,) + self.shape[1:])
        found.flags.writeable = False
        self.rows = (first, found) if found.nbytes <= self.at_once else None
        return found

    def _bytes(self, first: int, count: int) -> Array:
        buffer = np.empty(count, self.dtype)
        view, done = memoryview(buffer.view(np.uint8).data), 0
        while done < len(view):
            n = os.preadv(self.handle, [view[done:]], self.offset + first * self.dtype.itemsize + done)
            if n == 0:
                raise FormatError("'%s' became shorter while it was read" % self.path)
            done += n
        return buffer

    def release(self) -> None:
        self.rows = None

    def close(self) -> None:
        self.release()
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1

    def __del__(self) -> None:
        if getattr(self, "handle", -1) >= 0:
            self.close()


def forget(array: Any) -> None:
    """Pages of a mapped file need not stay in the process's memory: the system keeps what is worth it."""
    import mmap
    base = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = getattr(base, "_mmap", None) if isinstance(base, np.memmap) else getattr(base, "base", None)
    if base is not None and hasattr(base, "madvise"):
        base.madvise(mmap.MADV_DONTNEED)


class Writer:
    """A file under way. It is written at `path`, which is a temporary name: see formats.create()."""

    def __init__(self, path: str, shape: Sequence[int], dtype: Any, axes: str) -> None:
        self.path, self.shape, self.dtype, self.axes = path, tuple(int(n) for n in shape), np.dtype(dtype), axes

    def write(self, start: Sequence[int], part: Array) -> None:
        """Puts a part there; start: of all axes."""
        raise NotImplementedError

    def sync(self) -> None:
        """What was written is on the disk when it returns: then it survives a machine that stops."""

    def close(self) -> None:
        """All parts are there; sync() before it, or fsync() of the file behind it, sees to it that they are on the disk."""

    def abandon(self) -> None:
        """Closes without finishing."""


class MappedWriter(Writer):
    """Into a file of known layout, mapped. Its place on the disk is taken beforehand: a full disk is an error, not a signal."""

    def __init__(self, path: str, array: Any, axes: str) -> None:
        super().__init__(path, array.shape, array.dtype, axes)
        self.array: Any = array

    def write(self, start: Sequence[int], part: Array) -> None:
        self.array[tuple(slice(a, a + n) for a, n in zip(start, part.shape))] = part
        forget(self.array)

    def sync(self) -> None:
        self.array.flush()

    def close(self) -> None:
        self.array = None

    def abandon(self) -> None:
        self.array = None


class WholeWriter(Writer):
    """For formats that are written at once: the parts are gathered in memory."""

    def __init__(self, path: str, shape: Sequence[int], dtype: Any, axes: str) -> None:
        super().__init__(path, shape, dtype, axes)
        self.array = np.zeros(self.shape, self.dtype)

    def write(self, start: Sequence[int], part: Array) -> None:
        self.array[tuple(slice(a, a + n) for a, n in zip(start, part.shape))] = part


def reserve(path: str, size: int) -> None:
    """Takes `size` bytes of the disk for a file that is there. OSError: the disk is full, or files may not be so large."""
    with open(path, "r+b") as f:
        os.posix_fallocate(f.fileno(), 0, max(size, 1))


def fsync(path: str) -> None:
    """What was written to a file, or the names in a folder, is on the disk when it returns."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def fsync_below(path: str) -> None:
    """fsync() of a file, or of a folder and all that is in it, and of the folder that has its name."""
    for root, _, files in os.walk(path):
        for name in files:
            fsync(os.path.join(root, name))
        fsync(root)
    if not os.path.isdir(path):
        fsync(path)
    fsync(os.path.dirname(os.path.abspath(path)))


def sync_all(handle: int) -> bool:
    """As fsync(), for all of the file system that an open file lies on, by one call. False: it is not known that all is on the disk. So it is
    before Linux 5.8, which does not report errors, on file systems of FUSE, which are not told, and where a file of others failed."""
    libc = ctypes.CDLL(None, use_errno=True)
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    known = release is not None and tuple(map(int, release.groups())) >= (5, 8) and not _file_system(handle).startswith("fuse")
    return hasattr(libc, "syncfs") and libc.syncfs(handle) == 0 and known


def _file_system(handle: int) -> str:
    """Its type; "fuse": the system does not say."""
    device = os.fstat(handle).st_dev
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as f:
            for line in f:
                mount, _, rest = line.partition(" - ")
                if mount.split()[2] == "%d:%d" % (os.major(device), os.minor(device)):
                    return rest.split()[0]
    except OSError:
        pass
    return "fuse"


def guessed_axes(shape: Sequence[int]) -> str:
    """Of files that do not say it: 'YX', 'ZYX', 'CZYX', 'TCZYX' by rank; the last of 3 axes is C where it has 3 or 4 values."""
    if len(shape) == 3 and shape[-1] in (3, 4) and shape[0] > 4:
        return "YXC"
    return {1: "T", 2: "YX", 3: "ZYX", 4: "CZYX", 5: "TCZYX"}.get(len(shape), "?" * len(shape))
