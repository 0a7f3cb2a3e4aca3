# SPDX-License-Identifier: Apache-2.0
"""Results of overlapping tiles become one image: weighted sums, kept only for the rows that are not complete.

In:  a Grid, and the network's result for each of its tiles, in any order.
Out: rows of the result along the first spatial axis, as soon as all tiles that touch them are there, to a function that writes them.

Sums are made in the order of the grid, whichever tile comes first, so that results are the same bit for bit however the tiles were
computed. Tiles wait until all are there that touch a row, and are blended by libcyto then (_tiles.py). Where that takes more than `memory`,
their sums lie in a ring of rows, in memory or in a file. Both round alike. Weights are MONAI's.
"""
from __future__ import annotations

import functools
import tempfile
from fractions import Fraction
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np

from .._errors import InputError
from ._grid import Grid, Tile, per_axis
from ._ring import Sums
from ._tiles import MOST_LABELS, Decide, Labels, Tiles, most_kept, product

Array = np.ndarray[Any, Any]
Write = Callable[[int, Array], Any]
Piece = Tuple[Tuple[int, ...], Array]
LEAST_WEIGHT = 1e-3   # of a Gaussian, as MONAI's
COLUMNS = 256         # pieces of a row have multiples of so many, if they are larger
PIECE = 32 << 20      # bytes of the rows that are written at once, if a row is not larger
BLENDING = ("constant", "gaussian")


def weights(size: Sequence[int], mode: str = "constant", sigma_scale: Union[float, Sequence[float]] = 0.125) -> Array:
    """What each voxel of a tile counts, float32: 1, or a Gaussian of sigma = sigma_scale * size around the tile's centre."""
    lines, least = _lines(tuple(size), mode, per_axis(sigma_scale, len(size), "sigma_scale"), tuple(size))
    return product(lines, least)


@functools.lru_cache(16)
def _lines(size: Tuple[int, ...], mode: str, sigma_scale: Tuple[float, ...], result: Tuple[int, ...]) -> Tuple[List[Array], float]:
    """Weights for results of tiles of a size, by the size of these: those of each axis, whose products count, and the least one."""
    if mode not in BLENDING:
        raise InputError("blend: expected one of %s, found '%s'" % (", ".join(BLENDING), mode))
    lines = []
    for n, scale in zip(size, sigma_scale):
        x = np.arange(n, dtype=np.float32) - np.float32((n - 1) / 2)
        lines.append(np.exp(-x * x / np.float32(2 * (n * scale) ** 2)) if mode == "gaussian" else np.ones(n, np.float32))
    lowest = product([np.min(line, keepdims=True) for line in lines], 0.0)
    for axis, (t, n) in enumerate(zip(size, result)):  # of another size: from the nearest voxels, as MONAI takes them
        lines[axis] = np.ascontiguousarray(lines[axis][(np.arange(n) * 2 + 1) * t // (2 * n)])
        lines[axis].flags.writeable = False
    return lines, max(float(lowest.min()), LEAST_WEIGHT)


class Blender:
    """Adds up tiles, and hands out complete rows.

    grid: whose tiles come. lead: leading shape of a tile's result, (channels,) for most. write(row, rows): is given consecutive rows of
    the result along its first spatial axis, float32 [*lead, n, rest..], which it may keep; None: who calls takes pieces().
    mode, sigma_scale: see weights(). zoom: size of the result by that of the image, one number or one for each axis (1/2: half).
    fill: the value where no tile of the region of interest lies. step: rows are handed out in multiples of so many, but for the last.
    memory: how many bytes the rows under work may take before they go into a file, in `scratch` (None: the system's folder for such).
    first: rows before this one are there already, and neither computed nor written (see needed()).
    decide: hand out uint8 in place of means: "argmax", the channel with the highest one (up to 256 channels; without a channel's axis),
    or a number: 1 where the mean is above it. Where the attribute `decides` is false afterwards, there was no memory for that, and
    means are handed out.
    copy: results are copied by add(); False: who gives them leaves them as they are, and they stay until their rows are handed out.

    add() and finish() are called by one thread at a time.
    """

    def __init__(self, grid: Grid, lead: Sequence[int], write: Optional[Write] = None, *, mode: str = "constant",
                 sigma_scale: Union[float, Sequence[float]] = 0.125, zoom: Any = 1, fill: float = 0.0, step: int = 1,
                 memory: Optional[int] = None, scratch: Optional[str] = None, first: int = 0, split: bool = False, decide: Decide = None,
                 copy: bool = True) -> None:
        rank = len(grid.shape)
        self.grid, self.lead, self.fill, self.step, self.split, self.copy = grid, tuple(lead), fill, max(step, 1), split, copy
        self.write: Write = write or (lambda row, rows: None)
        self.zoom = tuple(Fraction(z).limit_denominator(1 << 16) for z in per_axis(zoom, rank, "zoom"))
        self._plain = all(z == 1 for z in self.zoom)
        self.shape = tuple(-(-n * z.numerator // z.denominator) for n, z in zip(grid.shape, self.zoom))
        self.tile = tuple(_whole(n * z, "tile", n, z) for n, z in zip(grid.tile, self.zoom))
        self.lines, self.least = _lines(grid.tile, mode, per_axis(sigma_scale, rank, "sigma_scale"), self.tile)
        self.written = first
        self._early: Dict[int, Tuple[Tile, Any]] = {}
        self._order = [t.number for t in needed(grid, first, self.zoom[0])] if first else None
        self._next = 0
        self.piece = PIECE if memory is None else min(PIECE, memory // 4)
        self.rows = self._make_rows(memory, scratch, decide, copy)
        self.decides = self.rows.decides

    def _make_rows(self, memory: Optional[int], scratch: Optional[str], decide: Decide, copy: bool) -> Union[Tiles, Sums]:
        """What the rows under work lie in: the fastest there is memory for."""
        starts = [[int(o * z) for o in line] for line, z in zip(self.grid.starts, self.zoom)]
        channels = int(np.prod(self.lead, dtype=np.int64))
        tiles = most_kept(starts, self.tile, self.step) * channels * int(np.prod(self.tile, dtype=np.int64)) * 4
        live = min(self.tile[0] + self.step, self.shape[0]) * int(np.prod(self.shape[1:], dtype=np.int64))
        if decide == "argmax" and (len(self.lead) != 1 or channels > MOST_LABELS):
            decide = None
        labels = 0 if decide is None else 2 * live * (1 if decide == "argmax" else channels)  # and as much again that is being written
        if decide is not None and (memory is None or tiles + labels <= memory):
            return Labels(self.lead, self.lines, self.least, self.fill, decide, copy, self.shape, self._origins(), self.written)
        if memory is None or tiles <= memory:
            return Tiles(self.lead, self.lines, self.least, self.fill, decide, copy)
        sums = (channels + 1) * live * 4
        return Sums(self.lead, min(self.tile[0] + self.step, self.shape[0]), self.shape, product(self.lines, self.least), self.fill, self.written,
                    (scratch or tempfile.gettempdir()) if sums > memory else None)

    def _origins(self) -> Array:
        """Of the tiles that come, in voxels of the result: [tiles, axes]."""
        found = np.array([tile.origin for tile in self.grid], np.int64).reshape(-1, len(self.shape))
        if self._order is not None:
            found = found[self._order]
        for axis, z in enumerate(self.zoom):
            found[:, axis] = found[:, axis] * z.numerator // z.denominator
        return found

    def __len__(self) -> int:
        """How many tiles it waits for, all together."""
        return len(self._order) if self._order is not None else len(self.grid)

    def _index(self, place: int) -> int:
        return self._order[place] if self._order is not None else place

    def add(self, tile: Tile, values: Array) -> None:
        """The result of a tile, [*lead, *tile.size * zoom]; it is not written to."""
        for start, rows in self.pieces(tile, values):
            self.write(start[0], rows)

    def pieces(self, tile: Tile, values: Array) -> Iterator[Piece]:
        """As add(), for who writes himself: what is complete, (where it begins along the spatial axes, its values), one piece after the
        other, all of which have to be taken. With split=True, rows that are large come in several pieces along the second axis."""
        if values.shape != self.lead + self.tile:
            raise InputError("tiling: the result of a tile has shape %s, expected %s" % (list(values.shape), list(self.lead + self.tile)))
        self._early[tile.number] = (tile, values if self._index(self._next) == tile.number or not self.copy else np.array(values))
        while self._next < len(self) and self._index(self._next) in self._early:
            tile, values = self._early.pop(self._index(self._next))
            begin = tile.origin if self._plain else [_whole(o * z, "origin", o, z) for o, z in zip(tile.origin, self.zoom)]
            yield from self._hand_out(max(begin[0], 0))  # rows before this tile's are complete
            self.rows.add(begin, values)
            self._next += 1

    @property
    def complete(self) -> bool:
        """Have all tiles come?"""
        return self._next == len(self)

    def _hand_out(self, ready: int, last: bool = False) -> Iterator[Piece]:
        """Rows up to `ready` are complete."""
        if not last:
            ready -= ready % self.step
        row = max(int(np.prod(self.lead + self.shape[1:], dtype=np.int64)) * 4, 1)
        most = max(self.piece // row // self.step, 1) * self.step
        while self.written < ready:
            stop = min(ready, self.written - self.written % self.step + most)
            for place in self._columns((stop - self.written) * row):
                start = (self.written, *(p.start for p in place))
                yield start, self.rows.piece(start, (stop, *(p.stop for p in place)))
            self.rows.forget(stop)
            self.written = stop

    def _columns(self, size: int) -> List[Tuple[slice, ...]]:
        """Parts along the second axis, for rows of so many bytes."""
        if not self.split or len(self.shape) < 2:
            return [tuple(slice(0, n) for n in self.shape[1:])]
        n = max(self.shape[1] * self.piece // size, 1)
        n = n // COLUMNS * COLUMNS if n > COLUMNS else n
        return [(slice(k, min(k + n, self.shape[1])),) + tuple(slice(0, m) for m in self.shape[2:]) for k in range(0, self.shape[1], n)]

    def finish(self) -> None:
        """Hands out the last rows. InputError if tiles are missing."""
        for start, rows in self.rest():
            self.write(start[0], rows)

    def rest(self) -> Iterator[Piece]:
        """As finish(), for who writes himself."""
        if self._next < len(self):
            raise InputError("tiling: %d of %d tiles have no result" % (len(self) - self._next, len(self)))
        yield from self._hand_out(self.shape[0], True)


def needed(grid: Grid, first: int, zoom: Any = 1) -> List[Tile]:
    """The tiles that touch rows of the result from `first` on: what is left to compute when the rows before are there."""
    return [t for t in grid if (t.origin[0] + t.size[0]) * zoom > first]


def _whole(value: Any, what: str, size: int, zoom: Fraction) -> int:
    if value.denominator != 1:
        raise InputError("tiling: the network's output is %s of its input, which makes no whole number of the %s %d; "
                         "use align=%d (--align %d), or, where the output's axes are in another order than the input's, say which (--output-layout NHWC)" %
                         (zoom, what, size, zoom.denominator, zoom.denominator))
    return int(value)
