# SPDX-License-Identifier: Apache-2.0
"""Results of overlapping tiles become one image: weighted sums, kept only for the rows that are not complete.

In:  a Grid, and the network's result for each of its tiles, in any order.
Out: rows of the result along the first spatial axis, as soon as all tiles that touch them are there, to a function that writes them.

Sums are made in the order of the grid, whichever tile comes first, so that results are the same bit for bit however the tiles were
computed. The rows under work lie in a ring, in memory or, if they are more than `memory`, in a file. Weights are MONAI's.
"""
from __future__ import annotations

import os
import tempfile
from fractions import Fraction
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from .._errors import InputError
from ._grid import Grid, Tile, per_axis

Array = np.ndarray[Any, Any]
Write = Callable[[int, Array], Any]
LEAST_WEIGHT = 1e-3   # of a Gaussian, as MONAI's
PIECE = 32 << 20      # bytes of the rows that are written at once, if a row is not larger
BLENDING = ("constant", "gaussian")


def weights(size: Sequence[int], mode: str = "constant", sigma_scale: Union[float, Sequence[float]] = 0.125) -> Array:
    """What each voxel of a tile counts, float32: 1, or a Gaussian of sigma = sigma_scale * size around the tile's centre."""
    if mode not in BLENDING:
        raise InputError("blend: expected one of %s, found '%s'" % (", ".join(BLENDING), mode))
    found = np.ones(tuple(size), np.float32)
    if mode == "constant":
        return found
    for axis, (n, scale) in enumerate(zip(size, per_axis(sigma_scale, len(size), "sigma_scale"))):
        x = np.arange(n, dtype=np.float32) - np.float32((n - 1) / 2)
        line = np.exp(-x * x / np.float32(2 * (n * scale) ** 2))
        found *= line.reshape((-1,) + (1,) * (len(size) - 1 - axis))
    np.maximum(found, max(float(found.min()), LEAST_WEIGHT), out=found)
    return found


def _resized(found: Array, size: Sequence[int]) -> Array:
    """Weights for results of another size, from the nearest voxels, as MONAI takes them."""
    nearest = [(np.arange(n) * 2 + 1) * t // (2 * n) for t, n in zip(found.shape, size)]
    return found if found.shape == tuple(size) else np.ascontiguousarray(found[np.ix_(*nearest)])


class _Ring:
    """Rows under work, row r at r % capacity: [leading axes.., capacity, rest]. In a file if `folder` is given, of which no page stays
    in the memory of the process after an operation."""

    def __init__(self, lead: Tuple[int, ...], capacity: int, rest: Tuple[int, ...], folder: Optional[str]) -> None:
        self.capacity, self.axis, self.file = capacity, len(lead), None
        shape = lead + (capacity,) + rest
        if folder is None:
            self.rows: Any = np.zeros(shape, np.float32)
        else:
            self.file = tempfile.TemporaryFile(dir=folder, prefix=".cytoc-rows-")
            size = int(np.prod(shape, dtype=np.int64)) * 4
            os.posix_fallocate(self.file.fileno(), 0, size)  # a full disk is an error now, and no signal later
            self.rows = np.memmap(self.file, np.float32, "r+", shape=shape)

    def parts(self, start: int, stop: int) -> List[Tuple[Tuple[slice, ...], int, int]]:
        """Where rows start .. stop - 1 lie: index, first row and end, for each part."""
        found = []
        while start < stop:
            place = start % self.capacity
            n = min(stop - start, self.capacity - place)
            found.append(((slice(None),) * self.axis + (slice(place, place + n),), start, start + n))
            start += n
        return found

    def release(self) -> None:
        if self.file is not None:
            import mmap
            self.rows._mmap.madvise(mmap.MADV_DONTNEED)


class Blender:
    """Adds up tiles, and hands out complete rows.

    grid: whose tiles come. lead: leading shape of a tile's result, (channels,) for most. write(row, rows): is given consecutive rows of
    the result along its first spatial axis, float32 [*lead, n, rest..], which it may keep.
    mode, sigma_scale: see weights(). zoom: size of the result by that of the image, one number or one for each axis (1/2: half).
    fill: the value where no tile of the region of interest lies. step: rows are handed out in multiples of so many, but for the last.
    memory: how many bytes the rows under work may take before they go into a file, in `scratch` (None: the system's folder for such).
    first: rows before this one are there already, and neither computed nor written (see needed()).

    add() and finish() are called by one thread at a time.
    """

    def __init__(self, grid: Grid, lead: Sequence[int], write: Write, *, mode: str = "constant",
                 sigma_scale: Union[float, Sequence[float]] = 0.125, zoom: Any = 1, fill: float = 0.0, step: int = 1,
                 memory: Optional[int] = None, scratch: Optional[str] = None, first: int = 0) -> None:
        rank = len(grid.shape)
        self.grid, self.lead, self.write, self.fill, self.step = grid, tuple(lead), write, fill, max(step, 1)
        self.zoom = tuple(Fraction(z).limit_denominator(1 << 16) for z in per_axis(zoom, rank, "zoom"))
        self.shape = tuple(-(-n * z.numerator // z.denominator) for n, z in zip(grid.shape, self.zoom))
        self.tile = tuple(_whole(n * z, "tile", n, z) for n, z in zip(grid.tile, self.zoom))
        self.weights = _resized(weights(grid.tile, mode, sigma_scale), self.tile)
        self.plain = mode == "constant"
        self.written = first
        self._early: Dict[int, Tuple[Tile, Any]] = {}
        self._order = [t.number for t in needed(grid, first, self.zoom[0])] if first else None
        self._next = 0
        live = min(self.tile[0] + self.step, self.shape[0])
        need = (int(np.prod(self.lead, dtype=np.int64)) + 1) * live * int(np.prod(self.shape[1:], dtype=np.int64)) * 4
        folder = (scratch or tempfile.gettempdir()) if memory is not None and need > memory else None
        self.in_file = folder is not None
        self.piece = PIECE if memory is None else min(PIECE, memory // 4)
        self.sums = _Ring(self.lead, live, self.shape[1:], folder)
        self.counts = _Ring((), live, self.shape[1:], folder)
        self.scratch: Optional[Array] = None

    def __len__(self) -> int:
        """How many tiles it waits for, all together."""
        return len(self._order) if self._order is not None else len(self.grid)

    def _index(self, place: int) -> int:
        return self._order[place] if self._order is not None else place

    def add(self, tile: Tile, values: Array) -> None:
        """The result of a tile, [*lead, *tile.size * zoom]; it is not written to, and kept until those before it have come."""
        if values.shape != self.lead + self.tile:
            raise InputError("tiling: the result of a tile has shape %s, expected %s" % (list(values.shape), list(self.lead + self.tile)))
        self._early[tile.number] = (tile, values)
        while self._next < len(self) and self._index(self._next) in self._early:
            self._sum(*self._early.pop(self._index(self._next)))
            self._next += 1

    @property
    def complete(self) -> bool:
        """Have all tiles come?"""
        return self._next == len(self)

    @property
    def waiting(self) -> int:
        """Tiles that came early, and are kept."""
        return len(self._early)

    def _sum(self, tile: Tile, values: Array) -> None:
        begin = [_whole(o * z, "origin", o, z) for o, z in zip(tile.origin, self.zoom)]
        region = [(max(o, 0), min(o + n, s)) for o, n, s in zip(begin, self.tile, self.shape)]
        self._hand_out(region[0][0])  # rows before this tile's are complete
        start, stop = max(region[0][0], self.written), region[0][1]
        rest = tuple(slice(a, b) for a, b in region[1:])
        mine = tuple(slice(a - o, b - o) for (a, b), o in zip(region[1:], begin[1:]))
        for place, a, b in self.sums.parts(start, stop):
            own = (slice(a - begin[0], b - begin[0]),) + mine
            part = values[(...,) + own]
            there = self.sums.rows[place + rest]
            np.add(there, part if self.plain else self._weighted(part, self.weights[own]), out=there)
            there = self.counts.rows[place[self.sums.axis:] + rest]
            np.add(there, self.weights[own], out=there)
        self.sums.release()
        self.counts.release()

    def _weighted(self, part: Array, by: Array) -> Array:
        """part * by, in memory that is used again."""
        if self.scratch is None or self.scratch.size < part.size:
            self.scratch = np.empty(part.size, np.float32)
        product: Array = np.multiply(part, by, out=self.scratch[:part.size].reshape(part.shape))
        return product

    def _hand_out(self, ready: int, last: bool = False) -> None:
        """Rows up to `ready` are complete."""
        if not last:
            ready -= ready % self.step
        row = max(int(np.prod(self.lead + self.shape[1:], dtype=np.int64)) * 4, 1)
        most = max(self.piece // row // self.step, 1) * self.step
        while self.written < ready:
            stop = min(ready, self.written - self.written % self.step + most)
            piece = np.empty(self.lead + (stop - self.written,) + self.shape[1:], np.float32)
            for place, a, b in self.sums.parts(self.written, stop):
                out = piece[(slice(None),) * len(self.lead) + (slice(a - self.written, b - self.written),)]
                count = self.counts.rows[place[self.sums.axis:]]
                if count.size and count.min() <= 0:
                    out[...] = self.fill
                    np.divide(self.sums.rows[place], count, out=out, where=count > 0)
                else:
                    np.divide(self.sums.rows[place], count, out=out)
                self.sums.rows[place] = 0
                count[...] = 0
            self.sums.release()
            self.counts.release()
            self.write(self.written, piece)
            self.written = stop

    def finish(self) -> None:
        """Hands out the last rows. InputError if tiles are missing."""
        if self._next < len(self):
            raise InputError("tiling: %d of %d tiles have no result" % (len(self) - self._next, len(self)))
        self._hand_out(self.shape[0], True)


def needed(grid: Grid, first: int, zoom: Any = 1) -> List[Tile]:
    """The tiles that touch rows of the result from `first` on: what is left to compute when the rows before are there."""
    return [t for t in grid if (t.origin[0] + t.size[0]) * zoom > first]


def _whole(value: Any, what: str, size: int, zoom: Fraction) -> int:
    if value.denominator != 1:
        raise InputError("tiling: the network's output is %s of its input, which makes no whole number of the %s %d; "
                         "make the grid with align=%d" % (zoom, what, size, zoom.denominator))
    return int(value)
