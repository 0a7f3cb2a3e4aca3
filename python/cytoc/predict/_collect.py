# SPDX-License-Identifier: Apache-2.0
"""Results of tiles become rows of an item's result.

In:  what the network gave for the tiles of a Job, in their order. Out: Work, complete rows, for _output to write.
"""
from __future__ import annotations

import os
import tempfile
from fractions import Fraction
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from .. import formats, tiling
from .._errors import InputError
from ._job import Job, Level, Tag
from ._view import Array


class Rows(NamedTuple):
    """Complete rows of a position's result, [C, rows, rest..] or without C. row: the first of them, -1 where the result has no axes of
    space. shape: of all the result's axes of space. zoom: by the image's, of the first axis."""
    position: int
    row: int
    values: Array
    shape: Tuple[int, ...]
    zoom: Fraction


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
        self.rows: List[Rows] = []

    def add(self, part: Any) -> List[Work]:
        """part: of cytoc.Pipeline, Tagged(result, tag)."""
        tag: Tag = part.tag
        found = self.job.plan.network.result(part.value)
        if self.at != (tag.position, tag.level):
            self._begin(tag, found)
        if self.blender is None:  # a result without axes of space
            self._one_result(tag, found)
        else:
            self.blender.add(tag.tile, found)
            if self.blender.complete:
                self.blender.finish()
                self.blender = None
        rows, self.rows = self.rows, []
        return [Work(self.job, r, False) for r in rows]

    def finish(self) -> Work:
        if self.at is None:
            raise InputError("'%s': no tile touches the region of interest" % self.job.item.path)
        return Work(self.job, None, True)

    def abandon(self) -> None:
        self.blender, self.coarse, self.rows = None, [], []

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
        job.step = max(min(formats.rows_at_once(job.space()), plan.memory // 4 // max(row, 1)), 1)
        write: Callable[[int, Array], None] = self._write_last if last else self._kept(lead + shape, len(lead))
        self.blender = tiling.Blender(grid, lead, write, mode=plan.blend, sigma_scale=plan.sigma, zoom=zoom, step=job.step,
                                      first=job.first_row(tag.position, last), memory=plan.memory, scratch=plan.folder)

    def _one_result(self, tag: Tag, found: Array) -> None:
        grid = self.levels[tag.level].grid
        if len(grid) != 1:
            raise InputError("'%s': the network's result has no axes of space, its shape is %s, so that an image must be one tile; the image "
                             "is %s and the tile %s" % (self.job.item, list(found.shape), list(grid.shape), list(tag.tile.size)))
        if tag.level == len(self.levels) - 1:
            self.rows.append(Rows(tag.position, -1, np.array(found), (), Fraction(1)))

    def _kept(self, shape: Tuple[int, ...], lead: int) -> Callable[[int, Array], None]:
        """Where the rows of a coarser level go until those of the last one come: into a file."""
        with tempfile.TemporaryFile(dir=self.job.plan.folder, prefix=".cytoc-level-") as f:
            os.posix_fallocate(f.fileno(), 0, int(np.prod(shape, dtype=np.int64)) * 4)
            array: Any = np.memmap(f, np.float32, "r+", shape=shape)
        self.coarse.append(array)

        def write(row: int, rows: Array) -> None:
            array[(slice(None),) * lead + (slice(row, row + rows.shape[lead]),)] = rows
            formats.forget(array)
        return write

    def _write_last(self, row: int, rows: Array) -> None:
        assert self.blender is not None and self.at is not None
        lead, shape = len(self.blender.lead), self.blender.shape
        if self.coarse:
            levels: List[Callable[[int, int], Array]] = [lambda start, stop: rows]
            levels += [_stretched(array, shape, lead) for array in self.coarse]
            rows = tiling.merged(levels, (row, row + rows.shape[lead]), self.job.plan.merge)
        self.rows.append(Rows(self.at[0], row, rows, shape, self.blender.zoom[0]))


def _stretched(array: Any, shape: Sequence[int], lead: int) -> Callable[[int, int], Array]:
    """Rows of a coarser level's result at the size of the last one's."""
    def rows(start: int, stop: int) -> Array:
        found = tiling.stretch(array, shape, (start, stop), lead)
        formats.forget(array)
        return found
    return rows
