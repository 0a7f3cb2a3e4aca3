# SPDX-License-Identifier: Apache-2.0
"""Sums of tiles in a ring of rows, in memory or in a file: what takes least of it (_tiles.py is faster).

In:  results of tiles in the order of their sums. Out: blended rows, once each.
"""
from __future__ import annotations

import itertools
import os
import tempfile
from typing import Any, Iterator, Optional, Sequence, Tuple

import numpy as np

Array = np.ndarray[Any, Any]
BLOCK = 4096          # voxels of a row that lie together in a file


class Ring:
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


class FileRing(Ring):
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


class Sums:
    """What Tiles does, with a ring of weighted sums and one of the weights' sums. folder: they lie in files there; None: in memory."""
    decides = False

    def __init__(self, lead: Tuple[int, ...], capacity: int, shape: Tuple[int, ...], weights: Array, fill: float, first: int,
                 folder: Optional[str]) -> None:
        self.lead, self.shape, self.weights, self.fill, self.taken = lead, shape, weights, fill, first
        self.sums, self.counts = (Ring(part, capacity, shape[1:]) if folder is None else FileRing(part, capacity, shape[1:], folder)
                                  for part in (lead, ()))
        self.scratch: Optional[Array] = None

    def add(self, begin: Sequence[int], values: Array) -> None:
        region = [(max(o, 0), min(o + n, s)) for o, n, s in zip(begin, self.weights.shape, self.shape)]
        first = max(region[0][0], self.taken)  # rows before are there, of a run that was killed
        if region[0][1] <= first:
            return
        own = (slice(first - begin[0], region[0][1] - begin[0]),) + tuple(slice(a - o, b - o) for (a, b), o in zip(region[1:], begin[1:]))
        columns = tuple(slice(a, b) for a, b in region[1:])
        by = self.weights[own]
        self.sums.add(first, columns, self._weighted(values[(...,) + own], by))
        self.counts.add(first, columns, by)

    def _weighted(self, part: Array, by: Array) -> Array:
        """part * by, in memory that is used again."""
        if self.scratch is None or self.scratch.size < part.size:
            self.scratch = np.empty(part.size, np.float32)
        product: Array = np.multiply(part, by, out=self.scratch[:part.size].reshape(part.shape), dtype=np.float32, casting="same_kind")
        return product

    def piece(self, start: Sequence[int], stop: Sequence[int]) -> Array:
        """Takes rows out of the rings, once."""
        piece = np.empty(self.lead + tuple(b - a for a, b in zip(start, stop)), np.float32)
        count = np.empty(piece.shape[len(self.lead):], np.float32)
        columns = tuple(slice(a, b) for a, b in zip(start[1:], stop[1:]))
        self.sums.take(start[0], columns, piece)
        self.counts.take(start[0], columns, count)
        if count.size and count.min() <= 0:
            empty = count <= 0
            np.divide(piece, np.where(empty, np.float32(1), count), out=piece)
            piece[..., empty] = self.fill
        else:
            np.divide(piece, count, out=piece)
        return piece

    def forget(self, stop: int) -> None:
        """All rows before this one were taken."""
        self.sums.forget(self.taken, stop)
        self.counts.forget(self.taken, stop)
        self.taken = stop
