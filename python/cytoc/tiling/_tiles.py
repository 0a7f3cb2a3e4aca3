# SPDX-License-Identifier: Apache-2.0
"""Tiles that wait for their rows, blended by libcyto (cyto_tiles_blend in runtime/cyto_pipeline.h) when these are complete.

In:  results of tiles in the order of their sums. Out: blended rows, or what is decided by them.

A tile is read once, which is what a ring of sums does not do: that is read and written for every tile. It takes more memory: all tiles
that touch a row stay.
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
                ("threshold", C.c_float)]


class Tiles:
    """tile: the size of a result along each axis of space; lead: its axes in front of these. decide: what is handed out in place of means,
    as uint8: None, "argmax" (over the only leading axis), or the number above which a voxel is 1. copy: results may change after add()."""

    def __init__(self, lead: Tuple[int, ...], tile: Sequence[int], weights: Array, fill: float, decide: Decide, copy: bool) -> None:
        self.lead, self.tile, self.weights, self.copy = lead, tuple(tile), np.ascontiguousarray(weights), copy
        self.labels, self.decides = decide == "argmax", decide is not None
        self.kept: List[Tuple[Tuple[int, ...], Array]] = []
        self.blend = Functions().cyto_tiles_blend
        threshold = float(decide) if self.decides and not self.labels else 0.0  # type: ignore[arg-type]
        self.how = _Blend(rank=len(tile), kind=_ARGMAX if self.labels else _ABOVE if self.decides else _MEANS,
                          lead=int(np.prod(lead, dtype=np.int64)), weights=self.weights.ctypes.data, fill=fill, threshold=threshold)
        self.how.tile[:len(tile)] = self.tile

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


def most_kept(starts: Sequence[Sequence[int]], tile: Sequence[int], step: int) -> int:
    """How many tiles of a grid wait at once, at most. starts, tile: along each axis; step: rows are handed out in multiples of it."""
    a_layer = int(np.prod([len(s) for s in starts[1:]], dtype=np.int64))
    layers = max(sum(1 for other in starts[0][:k + 1] if other + tile[0] > at - step + 1) for k, at in enumerate(starts[0]))
    return a_layer * layers
