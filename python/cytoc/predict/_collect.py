# SPDX-License-Identifier: Apache-2.0
"""Results of tiles become rows of an item's result.

In:  what the network gave for the tiles of a Job, in their order. Out: Work, complete rows, for _output to write.
"""
from __future__ import annotations

import os
import tempfile
from fractions import Fraction
from typing import Any, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from .. import formats, tiling
from .._errors import InputError
from ._job import Job, Level, Tag
from ._view import Array


class Rows(NamedTuple):
    """Complete rows of a position's result, [C, rows, rest..] or without C, or a part of them. start: of it, along the spatial axes, ()
    where the result has none. shape: of all the result's spatial axes. zoom: by the image's, of the first axis. decided: values are
    labels already."""
    position: int
    start: Tuple[int, ...]
    values: Array
    shape: Tuple[int, ...]
    zoom: Fraction
    decided: bool = False

    def complete_to(self) -> Optional[int]:
        """The row up to which all is there with this; None: only a part of its rows is."""
        sizes = self.values.shape[self.values.ndim - len(self.shape):]
        if any(a + n < m for a, n, m in zip(self.start[1:], sizes[1:], self.shape[1:])):
            return None
        return self.start[0] + sizes[0] if sizes else None


class Work(NamedTuple):
    """last: nothing of this job comes behind it."""
    job: Job
    rows: Optional[Rows]
    last: bool


class Collector:
    """Blends the tiles of a job, position after position and level after level, which is how they come."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.at: Optional[Tuple[int, int]] = None  # position and level
        self.blender: Optional[tiling.Blender] = None
        self.levels: List[Level] = []
        self.coarse: List[Any] = []  # results of the levels before the last
        self.kept: Any = None        # of the level under work, if it is not the last

    def add(self, part: Any) -> Iterator[Work]:
        """part: of cytoc.Pipeline, Tagged(result, tag). What is complete, as it is taken."""
        tag: Tag = part.tag
        found = self.job.plan.network.result(part.value)
        if self.at != (tag.position, tag.level):
            self._begin(tag, found)
        blender = self.blender
        if blender is None:  # a result without spatial axes
            yield from self._one_result(tag, found)
            return
        for piece in blender.pieces(tag.tile, found):
            yield from self._hand_on(blender, piece)
        if blender.complete:
            for piece in blender.rest():
                yield from self._hand_on(blender, piece)
            self.blender = None

    def finish(self) -> Work:
        if self.at is None:
            raise InputError("'%s': no tile touches the region of interest" % self.job.item.path)
        return Work(self.job, None, True)

    def abandon(self) -> None:
        self.blender, self.coarse, self.kept = None, [], None

    def _begin(self, tag: Tag, found: Array) -> None:
        """The first tile of a position, or of a level of it."""
        job, plan = self.job, self.job.plan
        if self.at is None or self.at[0] != tag.position:
            self.levels, self.coarse = job.levels_of(tag.position), []
        self.at = (tag.position, tag.level)
        grid, last = self.levels[tag.level].grid, tag.level == len(self.levels) - 1
        try:
            lead, zoom = tiling.zoom_of(found.shape, grid.tile)
        except InputError:
            self.blender = None
            return
        shape = tuple(-(-n * z.numerator // z.denominator) for n, z in zip(grid.shape, zoom))
        row = int(np.prod(lead + shape[1:], dtype=np.int64)) * 4
        job.step = max(min(formats.rows_at_once(job.space(), shape), plan.memory // 4 // max(row, 1)), 1)
        self.kept = None if last else self._file(lead + shape)
        self.blender = tiling.Blender(grid, lead, split=True, mode=plan.blend, sigma_scale=plan.sigma, zoom=zoom, step=job.step,
                                      first=job.first_row(tag.position, last), memory=plan.memory, scratch=plan.folder,
                                      decide=plan.after.decides() if len(self.levels) == 1 else None, copy=False)

    def _one_result(self, tag: Tag, found: Array) -> Iterator[Work]:
        grid = self.levels[tag.level].grid
        if len(grid) != 1:
            raise InputError("'%s': the network's result has no spatial axes, its shape is %s, so that an image must be one tile; the image "
                             "is %s and the tile %s" % (self.job.item, list(found.shape), list(grid.shape), list(tag.tile.size)))
        if tag.level == len(self.levels) - 1:
            yield Work(self.job, Rows(tag.position, (), np.array(found), (), Fraction(1)), False)

    def _file(self, shape: Tuple[int, ...]) -> Any:
        """Where the result of a coarser level stays until the last one comes."""
        with tempfile.TemporaryFile(dir=self.job.plan.folder, prefix=".cytoc-level-") as f:
            os.posix_fallocate(f.fileno(), 0, int(np.prod(shape, dtype=np.int64)) * 4)
            array: Any = np.memmap(f, np.float32, "r+", shape=shape)
        self.coarse.append(array)
        return array

    def _hand_on(self, blender: tiling.Blender, piece: Tuple[Tuple[int, ...], Array]) -> Iterator[Work]:
        start, values = piece
        lead = len(blender.lead)
        region = [(a, a + n) for a, n in zip(start, values.shape[lead:])]
        if self.kept is not None:
            self.kept[(slice(None),) * lead + tuple(slice(a, b) for a, b in region)] = values
            formats.forget(self.kept)
            return
        if self.coarse:
            values = tiling.merged([values] + [tiling.stretch(array, blender.shape, region, lead) for array in self.coarse], self.job.plan.merge)
            for array in self.coarse:
                formats.forget(array)
        assert self.at is not None
        yield Work(self.job, Rows(self.at[0], start, values, blender.shape, blender.zoom[0], blender.decides), False)
