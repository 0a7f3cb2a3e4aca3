# SPDX-License-Identifier: Apache-2.0
"""Tiles that wait for their rows, blended by libcyto (cyto_tiles_blend in runtime/cyto_pipeline.h) when these are complete.

In:  results of tiles in the order of their sums. Out: blended rows, or what is decided by them.

A tile is read once, which is what a ring of sums does not do: that is read and written for every tile. It takes more memory: all tiles
that touch a row stay. Labels, which take little of it, are made of a tile as soon as it comes, while it is in the caches.
"""
from __future__ import annotations

import ctypes as C
from typing import Any, List, Optional, Sequence, Tuple, Union

import numpy as np

from .._native import MAX_RANK, Error, check, i32, i64, ptr
from .._pipeline_native import Functions

Array = np.ndarray[Any, Any]
Decide = Union[None, str, float]  # "argmax", or a threshold
_MEANS, _ARGMAX, _ABOVE = range(3)  # cyto_blend_kind
_TILE = np.dtype([("values", np.uint64), ("origin", np.int64, (MAX_RANK,))])
MOST_LABELS = 256


class _Blend(C.Structure):
    _fields_ = [("rank", i32), ("kind", i32), ("lead", i64), ("tile", i64 * MAX_RANK), ("weights", ptr), ("fill", C.c_float),
                ("threshold", C.c_float), ("lines", ptr * MAX_RANK), ("least", C.c_float)]


def product(lines: Sequence[Array], least: float) -> Array:
    """The weights of a tile's voxels, by those of each axis."""
    found = np.ones(tuple(len(line) for line in lines), np.float32)
    for axis, line in enumerate(lines):
        found *= line.reshape((-1,) + (1,) * (len(lines) - 1 - axis))
    return np.maximum(found, least, out=found)


class Tiles:
    """lines, least: the weights along each axis of space, and the least one; lead: a result's axes in front of these. decide: what is
    handed out in place of means, as uint8: None, "argmax" (over the only leading axis), or the number above which a voxel is 1. copy:
    results may change after add()."""

    def __init__(self, lead: Tuple[int, ...], lines: Sequence[Array], least: float, fill: float, decide: Decide, copy: bool) -> None:
        self.lead, self.tile, self.lines, self.copy = lead, tuple(len(line) for line in lines), lines, copy
        self.labels, self.decides = decide == "argmax", decide is not None
        self.kept: List[Tuple[Tuple[int, ...], Array]] = []
        self.blend = Functions().cyto_tiles_blend
        threshold = float(decide) if self.decides and not self.labels else 0.0  # type: ignore[arg-type]
        self.how = _Blend(rank=len(lines), kind=_ARGMAX if self.labels else _ABOVE if self.decides else _MEANS,
                          lead=int(np.prod(lead, dtype=np.int64)), least=least, fill=fill, threshold=threshold)
        self.how.tile[:len(lines)] = self.tile
        self.how.lines[:len(lines)] = [line.ctypes.data for line in lines]

    def add(self, begin: Sequence[int], values: Array) -> None:
        """begin: where the tile lies, in voxels of the result."""
        values = np.array(values, np.float32, order="C") if self.copy else np.ascontiguousarray(values, np.float32)
        self.kept.append((tuple(begin), values))

    def piece(self, start: Sequence[int], stop: Sequence[int]) -> Array:
        region = tuple(b - a for a, b in zip(start, stop))
        out = np.empty(region if self.labels else self.lead + region, np.uint8 if self.decides else np.float32)
        if not out.size:
            return out
        touching = [(o, v) for o, v in self.kept if o[0] < stop[0] and o[0] + self.tile[0] > start[0]]
        table = np.zeros(len(touching), _TILE)
        for row, (origin, values) in zip(table, touching):
            row["values"] = values.ctypes.data
            row["origin"][:len(origin)] = origin
        bounds, error = i64 * len(region), Error()
        check(self.blend(C.byref(self.how), table.ctypes.data, len(touching), bounds(*start), bounds(*stop), out.ctypes.data,
                         C.byref(error)), error)
        return out

    def forget(self, stop: int) -> None:
        """All rows before this one were taken."""
        self.kept = [(o, v) for o, v in self.kept if o[0] + self.tile[0] > stop]


class Labels(Tiles):
    """What is decided, voxel by voxel when the last tile that touches it is there. shape: of the result along the axes of space; origins:
    of all tiles that come, in their order; first: rows before this one are not wanted."""

    def __init__(self, lead: Tuple[int, ...], lines: Sequence[Array], least: float, fill: float, decide: Union[str, float], copy: bool,
                 shape: Sequence[int], origins: Array, first: int) -> None:
        super().__init__(lead, lines, least, fill, decide, copy)
        self.table = np.zeros(len(origins), _TILE)
        self.table["origin"][:, :len(shape)] = origins
        self.rows, self.added, self.taken = np.ascontiguousarray(origins[:, 0]), 0, first
        self.lead_out = () if self.labels else lead
        self.shape, self.base = tuple(shape), first  # row `base` is the buffer's first
        self.empty = int(not self.labels and np.float32(fill) > np.float32(self.how.threshold))
        self.out = np.empty(self.lead_out + (0,) + self.shape[1:], np.uint8)
        self.blend_last = Functions().cyto_tiles_blend_last

    def add(self, begin: Sequence[int], values: Array) -> None:
        super().add(begin, values)
        self._make_room(min(begin[0] + self.tile[0], self.shape[0]))
        self.table[self.added]["values"] = self.kept[-1][1].ctypes.data
        low, high = np.searchsorted(self.rows, begin[0] - self.tile[0], "right"), np.searchsorted(self.rows, begin[0] + self.tile[0])
        near, rank = self.table[low:high], len(self.shape)
        bounds, error = i64 * rank, Error()
        stop = (self.base + self.out.shape[len(self.lead_out)],) + self.shape[1:]
        check(self.blend_last(C.byref(self.how), near.ctypes.data, len(near), self.added - low, bounds(self.base), bounds(*stop),
                              self.out.ctypes.data, C.byref(error)), error)
        self.added += 1

    def _make_room(self, stop: int) -> None:
        """Rows up to `stop` are in the buffer, and those that were not taken stay there."""
        axis = len(self.lead_out)
        if stop <= self.base + self.out.shape[axis]:
            return
        there = self.out[(slice(None),) * axis + (slice(self.taken - self.base, None),)]
        self.out = np.full(self.lead_out + (stop - self.taken,) + self.shape[1:], self.empty, np.uint8)
        self.out[(slice(None),) * axis + (slice(0, there.shape[axis]),)] = there
        self.base = self.taken

    def piece(self, start: Sequence[int], stop: Sequence[int]) -> Array:
        """Of the buffer, which is not written to there any more."""
        self._make_room(stop[0])  # behind the last tile of a region of interest
        inside = (slice(start[0] - self.base, stop[0] - self.base),) + tuple(slice(a, b) for a, b in zip(start[1:], stop[1:]))
        return self.out[(...,) + inside]

    def forget(self, stop: int) -> None:
        super().forget(stop)
        self.taken = stop


def most_kept(starts: Sequence[Sequence[int]], tile: Sequence[int], step: int) -> int:
    """How many tiles of a grid wait at once, at most. starts, tile: along each axis; step: rows are handed out in multiples of it."""
    a_layer = int(np.prod([len(s) for s in starts[1:]], dtype=np.int64))
    layers = max(sum(1 for other in starts[0][:k + 1] if other + tile[0] > at - step + 1) for k, at in enumerate(starts[0]))
    return a_layer * layers
