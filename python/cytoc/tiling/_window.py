# SPDX-License-Identifier: Apache-2.0
"""sliding_window(): a network over an image larger than its input, in one call; and the same at several scales.

In:  an image, [leading axes.., spatial axes]; a function of a batch of tiles. Out: the blended result, or its rows to a function.
"""
from __future__ import annotations

from collections import deque
from fractions import Fraction
from typing import Any, Callable, Deque, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np

from .._errors import InputError
from ._blend import Array, Blender, Write
from ._grid import Box, Grid, Tile, per_axis, read_tile

Predictor = Callable[[Array], Any]
MERGING = ("mean", "max")


def zoom_of(result: Sequence[int], tile: Sequence[int]) -> Tuple[Tuple[int, ...], Tuple[Fraction, ...]]:
    """Leading shape of a tile's result, and its size by that of the tile along each axis."""
    rank = len(tile)
    if len(result) < rank or any(n < 1 for n in result[len(result) - rank:]):
        raise InputError("tiling: the network's result for a tile of %s has shape %s, in which these axes are not to be found; "
                         "a network without an output for each voxel takes whole images" % (list(tile), list(result)))
    lead = tuple(result[:len(result) - rank])
    return lead, tuple(Fraction(int(n), int(t)) for n, t in zip(result[len(lead):], tile))


def batches(tiles: Sequence[Tile], size: int) -> Iterator[List[Tile]]:
    for k in range(0, len(tiles), size):
        yield list(tiles[k:k + size])


def sliding_window(image: Any, predictor: Predictor, tile: Any, *, overlap: Any = 0.25, batch: int = 1, mode: str = "constant",
                   sigma_scale: Union[float, Sequence[float]] = 0.125, padding: str = "constant", cval: float = 0.0,
                   boxes: Optional[Sequence[Box]] = None, mask: Any = None, fill: float = 0.0, channels: int = 1, align: int = 1,
                   write: Optional[Write] = None, memory: Optional[int] = None, dtype: Any = np.float32) -> Array:
    """Runs predictor over an image tile by tile, and blends the results, as monai.inferers.sliding_window_inference does.

    image: [leading axes.., spatial axes], `channels` of them leading (1: [C, H, W] or [C, D, H, W]; 0: spatial axes alone, to which tiles
        add one channel); an array, or what is sliced like one. predictor: [n, leading axes.., *tile], of `dtype`, to [n, leading axes.., *size]; n is `batch` or less.
    tile, overlap, boxes, mask, align: see Grid. mode, sigma_scale, fill, memory: see Blender. padding, cval: see read_tile().
    write(row, rows): is given complete rows; then the result is empty. Else the result is float32 [leading axes.., spatial axes].

    A predictor may be a cytoc.Model. What it gives may be smaller or larger than the tile by a constant factor for each axis.
    """
    return windows(image, predictor, np.asarray, 1, tile, overlap=overlap, batch=batch, mode=mode, sigma_scale=sigma_scale, padding=padding, cval=cval,
                   boxes=boxes, mask=mask, fill=fill, channels=channels, align=align, write=write, memory=memory, dtype=dtype)


def windows(image: Any, submit: Callable[[Array], Any], result: Callable[[Any], Array], in_flight: int, tile: Any, *, overlap: Any = 0.25,
            batch: int = 1, mode: str = "constant", sigma_scale: Any = 0.125, padding: str = "constant", cval: float = 0.0, boxes: Any = None,
            mask: Any = None, fill: float = 0.0, channels: int = 1, align: int = 1, write: Optional[Write] = None, memory: Optional[int] = None,
            dtype: Any = np.float32) -> Array:
    """sliding_window() where batches are computed elsewhere: submit(batch) begins one, result(what that gave) has its outcome. in_flight: how
    many are under way at once, at most."""
    if batch < 1:
        raise InputError("batch: expected 1 or more, found %d" % batch)
    grid = Grid(tuple(image.shape[channels:]), tile, overlap, boxes=boxes, mask=mask, align=align)
    if not len(grid):
        raise InputError("region of interest: no tile touches it")
    blender: Optional[Blender] = None
    kept: List[Array] = []
    under_way: Deque[Tuple[List[Tile], Any]] = deque()

    def take() -> None:
        nonlocal blender
        group, begun = under_way.popleft()
        found = result(begun)
        if found.shape[:1] != (len(group),):
            raise InputError("tiling: the network's result has shape %s for %d tiles" % (list(found.shape), len(group)))
        if blender is None:
            lead, zoom = zoom_of(found.shape[1:], grid.tile)
            blender = Blender(grid, lead, write or (lambda row, rows: kept.append(rows)), mode=mode, sigma_scale=sigma_scale, zoom=zoom,
                              fill=fill, memory=memory)
        for t, values in zip(group, found):
            blender.add(t, values)

    for group in batches(list(grid), batch):
        if len(under_way) >= in_flight:
            take()
        stack = np.stack([read_tile(image, t, padding=padding, cval=cval) for t in group]).astype(dtype, copy=False)
        under_way.append((group, submit(stack if channels else stack[:, None])))
    while under_way:
        take()
    assert blender is not None
    blender.finish()
    axis = len(blender.lead)
    return np.concatenate(kept, axis) if kept else np.empty(blender.lead + (0,) + blender.shape[1:], np.float32)


def shrink(image: Array, factor: Sequence[int], channels: int = 1) -> Array:
    """The image by means over blocks of factor voxels along each spatial axis; the last block of an axis may be smaller. float32."""
    found = np.asarray(image, np.float32)
    for axis, f in enumerate(factor, channels):
        if f > 1:
            n = found.shape[axis]
            sums = np.add.reduceat(found, np.arange(0, n, f), axis=axis)
            sizes = np.minimum(f, n - np.arange(0, n, f)).astype(np.float32)
            found = sums / sizes.reshape((-1,) + (1,) * (found.ndim - 1 - axis))
    return found


def stretch(image: Any, shape: Sequence[int], region: Box, channels: int = 1) -> Array:
    """A region of the image stretched to a spatial shape, by linear interpolation between the centres of voxels. float32.

    image: [leading axes.., spatial axes], coarser than shape, an array or what is sliced like one: only what the region needs is read.
    region: (start, stop) of each spatial axis, of the result."""
    lines = [_line(image.shape[axis], n, a, b) for axis, (n, (a, b)) in enumerate(zip(shape, region), channels)]
    found = np.asarray(image[(slice(None),) * channels + tuple(slice(int(low[0]), int(high[-1]) + 1) for low, high, _ in lines)], np.float32)
    for axis, (low, high, part) in enumerate(lines, channels):
        by = part.reshape((-1,) + (1,) * (found.ndim - 1 - axis))
        found = np.take(found, low - low[0], axis) * (1 - by) + np.take(found, high - low[0], axis) * by
    return found


def _line(coarse: int, fine: int, start: int, stop: int) -> Tuple[Array, Array, Array]:
    """For voxels start .. stop of a line stretched from `coarse` to `fine`: the two they lie between, and how near to the second."""
    x = np.clip((np.arange(start, stop) + 0.5) * coarse / fine - 0.5, 0, coarse - 1)
    low = np.floor(x).astype(np.int64)
    return low, np.minimum(low + 1, coarse - 1), (x - low).astype(np.float32)


def pyramid(image: Any, predictor: Predictor, tile: Any, scales: Sequence[Any], *, merge: str = "mean", channels: int = 1,
            write: Optional[Write] = None, **options: Any) -> Array:
    """sliding_window() at several scales of an image, merged to one result of the image's size.

    scales: by how much the image is shrunk, one number or one for each spatial axis: (1, 2, (1, 4, 4)). The window keeps its size, but
    for levels smaller than it, which are taken whole: the network's sizes must be symbols. merge: "mean" or "max" of the scales.
    options: of sliding_window(). The result's size at scale 1 must be the image's, or a constant factor of it.
    """
    if merge not in MERGING:
        raise InputError("merge: expected one of %s, found '%s'" % (", ".join(MERGING), merge))
    rank = len(image.shape) - channels
    levels: List[Array] = []
    for scale in scales:
        factor = (scale,) * rank if np.ndim(scale) == 0 else tuple(scale)
        if len(factor) != rank or min(factor) < 1 or any(int(f) != f for f in factor):
            raise InputError("scales: expected whole numbers of 1 or more, one or %d of them, found %s" % (rank, scale))
        level = shrink(image, factor, channels) if max(factor) > 1 else image
        window = level_tile(per_axis(tile, rank, "tile"), level.shape[channels:], options.get("align", 1))
        levels.append(sliding_window(level, predictor, window, channels=channels, **options))
    shape = max((level.shape for level in levels), key=lambda s: int(np.prod(s)))
    lead = len(shape) - rank
    found = merged([level if level.shape == shape else stretch(level, shape[lead:], [(0, n) for n in shape[lead:]], lead) for level in levels],
                   merge)
    if write:
        write(0, found)
    return found


def level_tile(tile: Sequence[int], shape: Sequence[int], align: int = 1) -> Tuple[int, ...]:
    """The window for a level of a pyramid: no larger than it, but for what makes it a multiple of align."""
    return tuple(min(t, -(-n // align) * align) if t else t for t, n in zip(tile, shape))


def merged(levels: Sequence[Array], merge: str) -> Array:
    """Results of several scales, of one size, made one; the first is written to."""
    found = levels[0] if levels[0].flags.writeable else levels[0].copy()
    for level in levels[1:]:
        (np.maximum if merge == "max" else np.add)(found, level, out=found)
    return found if merge == "max" or len(levels) == 1 else np.multiply(found, np.float32(1 / len(levels)), out=found)
