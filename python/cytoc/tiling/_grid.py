# SPDX-License-Identifier: Apache-2.0
"""Where tiles lie: the positions of a sliding window over an image of any rank, and the reading of one of them.

In:  the image's spatial shape, the tile's size, the overlap, a region of interest.
Out: a Grid, whose tiles are plain data (they pickle) in the order in which they are added up; read_tile().

Positions are those of MONAI's sliding window: the window moves by int(tile * (1 - overlap)), and the last one is moved back so that it
ends where the image does. An image smaller than the tile is padded on both sides, so that origins may be negative.
"""
from __future__ import annotations

import itertools
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from .._errors import InputError

Box = Sequence[Tuple[int, int]]  # (start, stop) of each spatial axis, in voxels
PADDING = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}  # PyTorch's name: NumPy's


class Tile(NamedTuple):
    """A window. number: its place in the order of adding. origin, size: in voxels of the image; what lies outside of it is padding."""
    number: int
    origin: Tuple[int, ...]
    size: Tuple[int, ...]

    def inside(self, shape: Sequence[int]) -> Tuple[Tuple[int, int], ...]:
        """(start, stop) of each axis of the part that lies in an image of this shape."""
        return tuple((max(o, 0), min(o + n, s)) for o, n, s in zip(self.origin, self.size, shape))


def per_axis(value: Any, rank: int, what: str) -> Tuple[Any, ...]:
    """One value for each axis; a single one stands for all."""
    if np.ndim(value) == 0:
        return (value,) * rank
    if len(value) != rank:
        raise InputError("%s: expected one value, or %d of them, one for each spatial axis, found %d" % (what, rank, len(value)))
    return tuple(value)


def _starts(size: int, tile: int, overlap: float, align: int) -> List[int]:
    """Origins along an axis."""
    padded = -(-max(size, tile) // align) * align
    if padded <= tile:
        return [-((tile - size) // 2 // align * align)] if size < tile else [0]
    step = max(int(tile * (1 - overlap)) // align * align, align)
    count = -(-(padded - tile) // step) + 1
    return [min(k * step, padded - tile) for k in range(count)]


class Grid:
    """The tiles of an image: iterate over it, or take grid[k].

    shape: of the image's spatial axes. tile: size of the window along each (one number for all; 0 or None: the whole axis).
    overlap: part of the tile that it shares with the next one, 0 <= overlap < 1, one for all axes or one each.
    boxes, mask: the region of interest: only tiles that touch a box, or a voxel of the mask that is not 0. A mask may be coarser than
    the image: it is stretched over it. align: origins and sizes are multiples of it, for networks whose output has another size.

    Raises InputError for values that make no grid.
    """

    def __init__(self, shape: Sequence[int], tile: Any, overlap: Any = 0.25, *, boxes: Optional[Sequence[Box]] = None, mask: Any = None,
                 align: Union[int, Sequence[int]] = 1) -> None:
        self.shape = tuple(int(n) for n in shape)
        rank = len(self.shape)
        if not rank or min(self.shape) < 1:
            raise InputError("tiling: the image has no voxels: its shape is %s" % (list(self.shape),))
        sizes = per_axis(tile, rank, "tile")
        self.align = tuple(int(a) for a in per_axis(align, rank, "align"))
        self.tile = tuple(int(t) if t else -(-n // a) * a for t, n, a in zip(sizes, self.shape, self.align))
        self.overlap = tuple(float(o) for o in per_axis(overlap, rank, "overlap"))
        if min(self.tile) < 1:
            raise InputError("tile: expected sizes of 1 or more (0: the whole axis), found %s" % (list(self.tile),))
        for o in self.overlap:
            if not 0 <= o < 1:
                raise InputError("overlap: expected a part of the tile, from 0 to less than 1, found %g%s" %
                                 (o, "; did you mean %g?" % (o / 100) if 2 <= o < 100 else ""))
        for t, a in zip(self.tile, self.align):
            if a < 1 or t % a:
                raise InputError("tile: expected a multiple of %d, found %d" % (a, t))
        self.starts = [_starts(*row) for row in zip(self.shape, self.tile, self.overlap, self.align)]
        self._chosen = None if boxes is None and mask is None else self._touching(boxes, mask)

    def __len__(self) -> int:
        return len(self._chosen) if self._chosen is not None else int(np.prod([len(s) for s in self.starts]))

    def __getitem__(self, index: int) -> Tile:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        if self._chosen is not None:
            return Tile(index, self._chosen[index], self.tile)
        place = np.unravel_index(index, [len(s) for s in self.starts])
        return Tile(index, tuple(s[k] for s, k in zip(self.starts, place)), self.tile)

    def __iter__(self) -> Iterator[Tile]:
        for k, origin in enumerate(self._chosen if self._chosen is not None else itertools.product(*self.starts)):
            yield Tile(k, origin, self.tile)

    def _touching(self, boxes: Optional[Sequence[Box]], mask: Any) -> List[Tuple[int, ...]]:
        """Origins of the tiles that touch the region of interest."""
        for box in boxes or ():
            if len(box) != len(self.shape) or any(a >= b for a, b in box):
                raise InputError("region of interest: expected %d pairs start, stop with start < stop, found %s" %
                                 (len(self.shape), [list(side) for side in box]))
        if mask is not None and len(mask.shape) != len(self.shape):
            raise InputError("region of interest: the mask has %d axes, the image %d" % (len(mask.shape), len(self.shape)))
        found = []
        for origin in itertools.product(*self.starts):
            region = Tile(0, origin, self.tile).inside(self.shape)
            if any(all(a < d and c < b for (a, b), (c, d) in zip(region, box)) for box in boxes or ()) or \
                    mask is not None and bool(np.any(mask[_stretched(region, self.shape, mask.shape)])):
                found.append(origin)
        return found


def _stretched(region: Box, shape: Sequence[int], coarse: Sequence[int]) -> Tuple[slice, ...]:
    """The part of an array of another size that lies over a region."""
    return tuple(slice(a * c // n, max(-(-b * c // n), a * c // n + 1)) for (a, b), n, c in zip(region, shape, coarse))


def read_tile(image: Any, tile: Tile, *, padding: str = "constant", cval: float = 0.0) -> np.ndarray[Any, Any]:
    """The voxels of a tile, [leading axes.., *tile.size], with padding where it reaches beyond the image.

    image: [leading axes.., spatial axes], an array or what can be sliced as one (numpy.memmap, zarr.Array): only the tile is read.
    padding: "constant" (of value cval), "reflect", "replicate" or "circular", as PyTorch's.
    """
    if padding not in PADDING:
        raise InputError("padding: expected one of %s, found '%s'" % (", ".join(PADDING), padding))
    rank = len(tile.size)
    lead = len(image.shape) - rank
    region = tile.inside(image.shape[lead:])
    part = np.asarray(image[(slice(None),) * lead + tuple(slice(a, b) for a, b in region)])
    width = [(0, 0)] * lead + [(a - o, o + n - b) for (a, b), o, n in zip(region, tile.origin, tile.size)]
    if not any(map(any, width)):
        return part
    if padding == "constant":
        return np.pad(part, width, constant_values=cval)
    return np.pad(part, width, mode=PADDING[padding])  # type: ignore[call-overload, no-any-return]
