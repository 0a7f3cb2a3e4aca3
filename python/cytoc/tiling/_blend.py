# SPDX-License-Identifier: Apache-2.0
"""Results of overlapping tiles become one image: weighted sums, kept only for the rows that are not complete.

In:  a Grid, and the network's result for each of its tiles, in any order.
Out: rows of the result along the first spatial axis, as soon as all tiles that touch them are there, to a function that writes them.

Sums are made in the order of the grid, whichever tile comes first, so that results are the same bit for bit however the tiles were
computed. The rows under work lie in a ring, in memory or, if they are more than `memory`, in a file. Weights are MONAI's.
"""
from __future__ import annotations

import itertools
import os
import tempfile
from fractions import Fraction
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np

from .._errors import InputError
from ._grid import Grid, Tile, per_axis

Array = np.ndarray[Any, Any]
Write = Callable[[int, Array], Any]
Piece = Tuple[Tuple[int, ...], Array]
LEAST_WEIGHT = 1e-3   # of a Gaussian, as MONAI's
BLOCK = 4096          # voxels of a row that lie together in a file
COLUMNS = 256         # pieces of a row have multiples of so many, if they are larger
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
    """Rows under work, row r at r % capacity: [leading axes.., capacity, rest]."""

    def __init__(self, lead: Tuple[int, ...], capacity: int, rest: Tuple[int, ...]) -> None:
        self.capacity, self.lead = capacity, (slice(None),) * len(lead)
        self.rows: Any = np.zeros(lead + (capacity,) + rest, np.float32)

    def _parts(self, start: int, stop: int) -> Iterator[Tuple[slice, slice]]:
        """Rows start .. stop - 1: where they lie, and which of them these are."""
        row = start
        while row < stop:
            place = row % self.capacity
            n = min(stop - row, self.capacity - place)
            yield slice(place, place + n), slice(row - start, row - start + n)
            row += n

    def add(self, start: int, columns: Tuple[slice, ...], values: Array) -> None:
        """Adds values, [leading axes.., rows from start on, columns]."""
        for place, own in self._parts(start, start + values.shape[len(self.lead)]):
            there = self.rows[self.lead + (place,) + columns]
            np.add(there, values[self.lead + (own,)], out=there)

    def take(self, start: int, columns: Tuple[slice, ...], out: Array) -> None:
        """Copies rows from start on into out, once; then forget() has to follow."""
        for place, own in self._parts(start, start + out.shape[len(self.lead)]):
            there = self.rows[self.lead + (place,) + columns]
            out[self.lead + (own,)] = there
            there[...] = 0

    def forget(self, start: int, stop: int) -> None:
        """These rows were taken, all of them."""


class _FileRing(_Ring):
    """The same in a file, of which no page stays in the memory of the process. What lies in one row of a block is together there, so that
    tiles touch few pages: [blocks.., leading axes.., capacity, block]."""

    def __init__(self, lead: Tuple[int, ...], capacity: int, rest: Tuple[int, ...], folder: str) -> None:
        self.capacity, self.lead = capacity, (slice(None),) * len(lead)
        self.side = max(int(BLOCK ** (1 / max(len(rest), 1))), 1)
        blocks = tuple(-(-n // self.side) for n in rest)
        shape = blocks + lead + (capacity,) + (self.side,) * len(rest)
        with tempfile.TemporaryFile(dir=folder, prefix=".cytoc-rows-") as f:
            os.posix_fallocate(f.fileno(), 0, int(np.prod(shape, dtype=np.int64)) * 4)  # a full disk is an error now, and no signal later
            self.blocks: Any = np.memmap(f, np.float32, "r+", shape=shape)
        self.used = np.zeros(blocks + (capacity,), np.bool_)  # other rows of blocks count as zeros, whatever the file has

    def _over(self, columns: Tuple[slice, ...]) -> Iterator[Tuple[Tuple[int, ...], Tuple[slice, ...], Tuple[slice, ...]]]:
        """Blocks over columns: which, the part of it, and which of the columns that is."""
        lines = [range(c.start // self.side, -(-c.stop // self.side)) for c in columns]
        for place in itertools.product(*lines):
            low = [max(c.start, k * self.side) for c, k in zip(columns, place)]
            high = [min(c.stop, (k + 1) * self.side) for c, k in zip(columns, place)]
            inner = tuple(slice(a - k * self.side, b - k * self.side) for a, b, k in zip(low, high, place))
            yield place, inner, tuple(slice(a - c.start, b - c.start) for a, b, c in zip(low, high, columns))

    def add(self, start: int, columns: Tuple[slice, ...], values: Array) -> None:
        for block, inner, part in self._over(columns):
            there, mine = self.blocks[block], values[self.lead + (slice(None),) + part]
            for place, own in self._parts(start, start + mine.shape[len(self.lead)]):
                for row in np.flatnonzero(~self.used[block + (place,)]):
                    there[self.lead + (place.start + row,)] = 0
                self.used[block + (place,)] = True
                rows = there[self.lead + (place,) + inner]
                np.add(rows, mine[self.lead + (own,)], out=rows)
        self._release()

    def take(self, start: int, columns: Tuple[slice, ...], out: Array) -> None:
        for block, inner, part in self._over(columns):
            mine = out[self.lead + (slice(None),) + part]
            for place, own in self._parts(start, start + mine.shape[len(self.lead)]):
                used = self.used[block + (place,)]
                mine[self.lead + (own,)] = self.blocks[block][self.lead + (place,) + inner] if used.any() else 0
                for row in np.flatnonzero(~used):
                    mine[self.lead + (own.start + row,)] = 0
        self._release()

    def forget(self, start: int, stop: int) -> None:
        """These rows were taken, all of them."""
        for place, _ in self._parts(start, stop):
            self.used[..., place] = False

    def _release(self) -> None:
        import mmap
        self.blocks._mmap.madvise(mmap.MADV_DONTNEED)


def _ring(lead: Tuple[int, ...], capacity: int, rest: Tuple[int, ...], folder: Optional[str]) -> _Ring:
    return _Ring(lead, capacity, rest) if folder is None else _FileRing(lead, capacity, rest, folder)


class Blender:
    """Adds up tiles, and hands out complete rows.

    grid: whose tiles come. lead: leading shape of a tile's result, (channels,) for most. write(row, rows): is given consecutive rows of
    the result along its first spatial axis, float32 [*lead, n, rest..], which it may keep; None: who calls takes pieces().
    mode, sigma_scale: see weights(). zoom: size of the result by that of the image, one number or one for each axis (1/2: half).
    fill: the value where no tile of the region of interest lies. step: rows are handed out in multiples of so many, but for the last.
    memory: how many bytes the rows under work may take before they go into a file, in `scratch` (None: the system's folder for such).
    first: rows before this one are there already, and neither computed nor written (see needed()).

    add() and finish() are called by one thread at a time.
    """

    def __init__(self, grid: Grid, lead: Sequence[int], write: Optional[Write] = None, *, mode: str = "constant",
                 sigma_scale: Union[float, Sequence[float]] = 0.125, zoom: Any = 1, fill: float = 0.0, step: int = 1,
                 memory: Optional[int] = None, scratch: Optional[str] = None, first: int = 0, split: bool = False) -> None:
        rank = len(grid.shape)
        self.grid, self.lead, self.fill, self.step, self.split = grid, tuple(lead), fill, max(step, 1), split
        self.write: Write = write or (lambda row, rows: None)
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
        self.sums = _ring(self.lead, live, self.shape[1:], folder)
        self.counts = _ring((), live, self.shape[1:], folder)
        self.scratch: Optional[Array] = None

    def __len__(self) -> int:
        """How many tiles it waits for, all together."""
        return len(self._order) if self._order is not None else len(self.grid)

    def _index(self, place: int) -> int:
        return self._order[place] if self._order is not None else place

    def add(self, tile: Tile, values: Array) -> None:
        """The result of a tile, [*lead, *tile.size * zoom]; it is not written to, and kept until those before it have come."""
        for start, rows in self.pieces(tile, values):
            self.write(start[0], rows)

    def pieces(self, tile: Tile, values: Array) -> Iterator[Piece]:
        """As add(), for who writes himself: what is complete, (where it begins along the axes of space, its values), one piece after the
        other, all of which have to be taken. With split=True, rows that are large come in several pieces along the second axis."""
        if values.shape != self.lead + self.tile:
            raise InputError("tiling: the result of a tile has shape %s, expected %s" % (list(values.shape), list(self.lead + self.tile)))
        self._early[tile.number] = (tile, values)
        while self._next < len(self) and self._index(self._next) in self._early:
            tile, values = self._early.pop(self._index(self._next))
            begin = [_whole(o * z, "origin", o, z) for o, z in zip(tile.origin, self.zoom)]
            yield from self._hand_out(max(begin[0], 0))  # rows before this tile's are complete
            self._sum(begin, values)
            self._next += 1

    @property
    def complete(self) -> bool:
        """Have all tiles come?"""
        return self._next == len(self)

    def _sum(self, begin: Sequence[int], values: Array) -> None:
        region = [(max(o, 0), min(o + n, s)) for o, n, s in zip(begin, self.tile, self.shape)]
        first = max(region[0][0], self.written)  # rows before are there, of a run that was killed
        own = (slice(first - begin[0], region[0][1] - begin[0]),) + tuple(slice(a - o, b - o) for (a, b), o in zip(region[1:], begin[1:]))
        columns = tuple(slice(a, b) for a, b in region[1:])
        if region[0][1] <= first:
            return
        part, by = values[(...,) + own], self.weights[own]
        self.sums.add(first, columns, part if self.plain else self._weighted(part, by))
        self.counts.add(first, columns, by)

    def _weighted(self, part: Array, by: Array) -> Array:
        """part * by, in memory that is used again."""
        if self.scratch is None or self.scratch.size < part.size:
            self.scratch = np.empty(part.size, np.float32)
        product: Array = np.multiply(part, by, out=self.scratch[:part.size].reshape(part.shape))
        return product

    def _hand_out(self, ready: int, last: bool = False) -> Iterator[Piece]:
        """Rows up to `ready` are complete."""
        if not last:
            ready -= ready % self.step
        row = max(int(np.prod(self.lead + self.shape[1:], dtype=np.int64)) * 4, 1)
        most = max(self.piece // row // self.step, 1) * self.step
        while self.written < ready:
            stop = min(ready, self.written - self.written % self.step + most)
            for place in self._columns((stop - self.written) * row):
                yield (self.written, *(p.start for p in place)), self._piece(self.written, stop, place)
            self.sums.forget(self.written, stop)
            self.counts.forget(self.written, stop)
            self.written = stop

    def _columns(self, size: int) -> List[Tuple[slice, ...]]:
        """Parts along the second axis, for rows of so many bytes."""
        if not self.split or len(self.shape) < 2:
            return [tuple(slice(0, n) for n in self.shape[1:])]
        n = max(self.shape[1] * self.piece // size, 1)
        n = n // COLUMNS * COLUMNS if n > COLUMNS else n
        return [(slice(k, min(k + n, self.shape[1])),) + tuple(slice(0, m) for m in self.shape[2:]) for k in range(0, self.shape[1], n)]

    def _piece(self, start: int, stop: int, columns: Tuple[slice, ...]) -> Array:
        """Takes rows out of the ring."""
        piece = np.empty(self.lead + (stop - start,) + tuple(c.stop - c.start for c in columns), np.float32)
        count = np.empty(piece.shape[len(self.lead):], np.float32)
        self.sums.take(start, columns, piece)
        self.counts.take(start, columns, count)
        if count.size and count.min() <= 0:
            empty = count <= 0
            np.divide(piece, np.where(empty, np.float32(1), count), out=piece)
            piece[..., empty] = self.fill
        else:
            np.divide(piece, count, out=piece)
        return piece

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
                         "use align=%d (--align %d), unless the output's axes are in another order than the input's" %
                         (zoom, what, size, zoom.denominator, zoom.denominator))
    return int(value)
