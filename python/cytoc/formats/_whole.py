# SPDX-License-Identifier: Apache-2.0
"""Is a file as long as it says? Where the end of one is missing, the libraries of these formats give what is left, without a word.

In:  paths of files that their libraries have opened. Out: nothing; FormatError: it is truncated.
"""
from __future__ import annotations

import os
import struct
from typing import Any, BinaryIO, Tuple

from ._base import FormatError

OPEN_ENDS = (0, 0xFFFFFFFF)               # sizes in RIFF of what was streamed
OPEN_END = range(0x7FFFE000, 0x80000101)   # .. by sox and arecord
HEADER = 8  # bytes of a part's name and size, which some writers count with the file
PLACES = (273, 279, 324, 325)  # tags: where strips and tiles are, and how long
MATROSKA = b"\x1a\x45\xdf\xa3"
SEGMENT = b"\x18\x53\x80\x67"  # all of a Matroska file behind its header
TAG_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}  # by TIFF's types


def _truncated(path: str, wanted: int, there: int) -> FormatError:
    return FormatError("'%s' is truncated: it says that it has %d bytes, and ends at %d" % (path, wanted, there))


class _Tiff:
    """A tifffile.TiffFile as a chain of pages, each of which says where the next one is."""

    def __init__(self, path: str, f: Any) -> None:
        self.path, self.handle, self.tiff, self.there, self.pages = path, f.filehandle, f.tiff, f.filehandle.size, 0

    def numbers(self, at: int, form: str) -> Tuple[Any, ...]:
        self.handle.seek(at)
        data = self.handle.read(struct.calcsize(form))
        if len(data) < struct.calcsize(form):
            raise FormatError("'%s' is truncated: page %d of it ends behind the end of the file" % (self.path, self.pages))
        return struct.unpack(form, data)

    def check_chain(self) -> None:
        tiff, seen = self.tiff, {0}
        page, = self.numbers(8 if tiff.version == 43 else 4, tiff.offsetformat)
        while page not in seen:
            self.pages += 1
            if page >= self.there:
                raise FormatError("'%s' is truncated: page %d of it begins at byte %d, and the file ends at %d" % (
                    self.path, self.pages, page, self.there))
            tags, = self.numbers(page, tiff.tagnoformat)
            if self.pages == 1:
                self.check_tags(page + tiff.tagnosize, tags)
            seen.add(page)
            page, = self.numbers(page + tiff.tagnosize + tags * tiff.tagsize, tiff.offsetformat)

    def check_tags(self, at: int, count: int) -> None:
        """Values that lie elsewhere, without which nothing can be read: the text of OME, and where the first page's parts are."""
        tiff = self.tiff
        if tiff.is_ndpi:  # whose offsets have their upper half elsewhere
            return
        for k in range(count):
            code, kind = self.numbers(at + k * tiff.tagsize, tiff.tagformat1)
            number, = self.numbers(at + k * tiff.tagsize + 4, tiff.byteorder + tiff.offsetformat[1:])
            size = number * TAG_BYTES.get(kind, 0)
            if code in PLACES + (270,) and size > tiff.tagoffsetthreshold:
                value, = self.numbers(at + k * tiff.tagsize + 4 + tiff.offsetsize, tiff.offsetformat)
                if value + size > self.there:
                    raise FormatError("'%s' is truncated: tag %d of its first page ends at byte %d, and the file at %d" % (
                        self.path, code, value + size, self.there))


def check_tiff(path: str, f: Any) -> None:
    """Of a tifffile.TiffFile."""
    _Tiff(path, f).check_chain()


def _end_of_samples(f: BinaryIO) -> int:
    """Of a WAV file, behind its first 12 bytes: where its part "data" ends; 0: it does not say."""
    while True:
        part = f.read(HEADER)
        size = int.from_bytes(part[4:], "little")
        if len(part) < HEADER or part[:4] == b"data":
            return 0 if len(part) < HEADER or size in OPEN_ENDS or size in OPEN_END else f.tell() + size
        f.seek(size + size % 2, os.SEEK_CUR)


def check_riff(path: str) -> None:
    """WAV, AVI."""
    with open(path, "rb") as f:
        begin, there = f.read(12), os.fstat(f.fileno()).st_size
        if begin[:4] != b"RIFF":
            return
        size = int.from_bytes(begin[4:8], "little")
        end = _end_of_samples(f) if begin[8:] == b"WAVE" else 0 if size in OPEN_ENDS else size
    if end > there:
        raise _truncated(path, end, there)


def _matroska_size(f: BinaryIO) -> int:
    """A number whose first bit that is set tells how many bytes it has; -1: not known."""
    first = f.read(1)
    length = 9 - first[0].bit_length() if first else 9
    if length > 8:
        return -1
    value = int.from_bytes(first + f.read(length - 1), "big") & ((1 << 7 * length) - 1)
    return -1 if value == (1 << 7 * length) - 1 else value


def check_matroska(path: str) -> None:
    """MKV, WebM."""
    with open(path, "rb") as f:
        if f.read(4) != MATROSKA:
            return
        header, there = _matroska_size(f), os.fstat(f.fileno()).st_size
        f.seek(max(header, 0), os.SEEK_CUR)
        if f.read(4) == SEGMENT:
            size = _matroska_size(f)
            if f.tell() + size > there:
                raise _truncated(path, f.tell() + size, there)
