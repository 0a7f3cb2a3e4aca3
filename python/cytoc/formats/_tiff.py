# SPDX-License-Identifier: Apache-2.0
"""TIFF and OME-TIFF by tifffile. Of a file that is not compressed, the region is mapped; of others, the strips or tiles that it touches
are decoded."""
from __future__ import annotations

import itertools
import os
import uuid
import threading
from collections import OrderedDict
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np

from ._base import Array, FormatError, Image, MappedWriter, PlainImage, Scale, Writer, library, reserve
from ._whole import check_tiff

KEPT = 64 << 20  # bytes of decoded strips and tiles that an image keeps
_LETTERS = {"S": "C", "I": "Z", "Q": "Z", "Z": "Z", "C": "C", "T": "T", "Y": "Y", "X": "X"}  # tifffile's: ours
_UNITS = {"µm": "micrometer", "um": "micrometer", "nm": "nanometer", "mm": "millimeter", "m": "meter", "s": "second", "ms": "millisecond"}
_SYMBOLS = {"micrometer": "µm", "nanometer": "nm", "millimeter": "mm", "meter": "m", "second": "s", "millisecond": "ms"}


def open_tiff(path: str) -> Image:
    tifffile = library("tifffile", "images", path)
    try:
        f = tifffile.TiffFile(path)
    except tifffile.TiffFileError as e:
        raise FormatError("'%s': not a TIFF file that can be read: %s" % (path, e)) from None
    try:
        check_tiff(path, f)
    except FormatError:
        f.close()
        raise
    if not f.series or not f.series[0].shape or f.pages.first is None:
        f.close()
        raise FormatError("'%s' has no image in it" % path)
    series = f.series[0]
    axes = _axes(path, series)
    scale = _ome_scale(f.ome_metadata or "", path)
    if series.dataoffset is not None and series.keyframe.dtype == series.dtype:
        offset, shape, dtype = series.dataoffset, series.shape, np.dtype(f.byteorder + series.dtype.char)
        f.close()
        return PlainImage(path, offset, shape, dtype, axes, scale)
    return _PagedImage(path, f, series, axes, scale)


def _axes(path: str, series: Any) -> str:
    found = ""
    for letter, size in zip(series.axes, series.shape):
        ours = _LETTERS.get(letter, "")
        if not ours or ours in found:
            left = [c for c in "ZTC" if c not in found and c not in series.axes]
            if not left:
                raise FormatError("'%s': axes '%s' are more than can be told apart" % (path, series.axes))
            ours = left[0]
        found += ours
    return found


def _ome_scale(xml: str, path: str) -> Scale:
    from xml.etree import ElementTree
    scale: Scale = {}
    try:
        pixels = next((e for e in ElementTree.fromstring(xml.encode()).iter() if e.tag.endswith("}Pixels")), None) if xml else None
    except ElementTree.ParseError as e:
        raise FormatError("'%s': its OME metadata are no XML: %s" % (path, e)) from None
    for letter, name in (("X", "PhysicalSizeX"), ("Y", "PhysicalSizeY"), ("Z", "PhysicalSizeZ"), ("T", "TimeIncrement")):
        if pixels is not None and pixels.get(name):
            unit = pixels.get(name + "Unit", "s" if letter == "T" else "µm")
            scale[letter] = (float(pixels.get(name, "1")), _UNITS.get(unit, unit))
    return scale


class _PagedImage(Image):
    """A series whose pages are compressed, or do not lie one behind the other."""

    def __init__(self, path: str, f: Any, series: Any, axes: str, scale: Scale) -> None:
        super().__init__(path, series.shape, series.dtype, axes, scale)
        self.file, self.series = f, series
        self.page_shape: Tuple[int, ...] = tuple(series.keyframe.shape)
        key = series.keyframe
        self.chunks = (1,) * (len(key.chunked) - len(key.chunks)) + tuple(key.chunks)  # planes of samples are chunks, too
        self.lead = self.shape[:self.ndim - len(self.page_shape)]
        self.lock = threading.Lock()
        self.kept: "OrderedDict[Tuple[int, int], Any]" = OrderedDict()
        self.kept_bytes = 0
        if self.shape[len(self.lead):] != self.page_shape:
            raise FormatError("'%s': pages of shape %s do not make an image of %s" % (path, list(self.page_shape), list(self.shape)))

    def read(self, start: Sequence[int], stop: Sequence[int]) -> Array:
        found = np.zeros([b - a for a, b in zip(start, stop)], self.dtype)
        n = len(self.lead)
        for place in itertools.product(*(range(a, b) for a, b in zip(start[:n], stop[:n]))):
            number = int(np.ravel_multi_index(place, self.lead)) if n else 0
            self._page(number, list(start[n:]), list(stop[n:]), found[tuple(p - a for p, a in zip(place, start))])
        return found

    def _page(self, number: int, start: List[int], stop: List[int], out: Array) -> None:
        page = self.series.pages[number]
        if page is None:  # OME: a plane that was not stored
            return
        chunks, counts = self.chunks, page.keyframe.chunked
        lines = [range(a // c, min(-(-b // c), n)) for a, b, c, n in zip(start, stop, chunks, counts)]
        for place in itertools.product(*lines):
            segment = self._segment(number, page, int(np.ravel_multi_index(place, counts)))
            if segment is None:
                continue
            begin = [p * c for p, c in zip(place, chunks)]
            low = [max(a, b) for a, b in zip(start, begin)]
            high = [min(a, b + s) for a, b, s in zip(stop, begin, segment.shape)]
            to = tuple(slice(a - o, b - o) for a, b, o in zip(low, high, start))
            out[to] = segment[tuple(slice(a - o, b - o) for a, b, o in zip(low, high, begin))]

    def _segment(self, number: int, page: Any, index: int) -> Any:
        """A strip or tile, decoded, in the axes of the page; None: it was not stored."""
        with self.lock:
            if (number, index) in self.kept:
                self.kept.move_to_end((number, index))
                return self.kept[number, index]
            key, size = page.keyframe, page.databytecounts[index]
            if not size:
                return None
            handle = self.file.filehandle if page.parent is self.file else page.parent.filehandle
            if handle.closed:
                handle.open()
            handle.seek(page.dataoffsets[index])
            data = handle.read(size)
            if len(data) < size:
                raise FormatError("'%s' is truncated: a part of page %d ends behind the end of the file" % (self.path, number))
            try:
                segment, _, shape = key.decode(data, index, jpegtables=page.jpegtables)
            except Exception as e:  # libraries of codecs raise what they like
                raise FormatError("'%s': page %d cannot be decoded: %s" % (self.path, number, e)) from None
            if segment is None:
                return None
            segment = segment[tuple(slice(0, n) for n in shape)]
            segment = segment.reshape(_page_axes(segment.shape, self.chunks))
            self.kept[number, index] = segment
            self.kept_bytes += segment.nbytes
            while self.kept_bytes > KEPT and len(self.kept) > 1:
                self.kept_bytes -= self.kept.popitem(last=False)[1].nbytes
            return segment

    def close(self) -> None:
        self.file.close()
        self.kept.clear()


def _page_axes(shape: Sequence[int], chunks: Sequence[int]) -> List[int]:
    """tifffile decodes into (depth, height, width, samples); a page lacks some of those that are 1."""
    rank = len(chunks)
    for first in range(len(shape) - rank, -1, -1):
        part, dropped = shape[first:first + rank], tuple(shape[:first]) + tuple(shape[first + rank:])
        if set(dropped) <= {1} and all(n <= c for n, c in zip(part, chunks)):
            return list(part)
    raise ValueError("a strip or tile of shape %s in pages of %s" % (list(shape), list(chunks)))


def create_tiff(path: str, shape: Sequence[int], dtype: Any, axes: str, scale: Scale, extra: Dict[str, Any]) -> Writer:
    """An OME-TIFF that is not compressed, so that its parts may be written in any order."""
    tifffile = library("tifffile", "images", path)
    if extra.get("goes_on"):
        return MappedWriter(path, tifffile.memmap(path, mode="r+").reshape(tuple(shape)), axes)
    shape = tuple(shape)
    dtype = np.dtype(np.uint8) if np.dtype(dtype) == np.bool_ else np.dtype(dtype)
    if dtype in (np.dtype(np.int64), np.dtype(np.uint64), np.dtype(np.float16)):
        raise FormatError("'%s': OME-TIFF has no %s; choose another --dtype or --format" % (path, dtype))
    about = "%s %s %s %s" % (os.path.basename(path), axes, list(shape), dtype)
    metadata: Dict[str, Any] = {"axes": axes, "UUID": str(uuid.uuid5(uuid.NAMESPACE_URL, about))}  # not a random one: same run, same bytes
    for letter, (size, unit) in scale.items():
        name = {"X": "PhysicalSizeX", "Y": "PhysicalSizeY", "Z": "PhysicalSizeZ", "T": "TimeIncrement"}.get(letter)
        if name and letter in axes:
            metadata[name], metadata[name + "Unit"] = size, _SYMBOLS.get(unit, unit)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    with open(path, "wb"):
        pass
    reserve(path, size)  # that it fits is known before tifffile writes it
    array = tifffile.memmap(path, shape=shape, dtype=dtype, ome=True, photometric="minisblack", metadata=metadata, bigtiff=size > 3 << 30,
                            planarconfig=None)
    reserve(path, os.path.getsize(path))
    return MappedWriter(path, array, axes)
