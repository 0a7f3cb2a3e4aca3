# SPDX-License-Identifier: Apache-2.0
"""One item on its way: its image as the network sees it, and its tiles.

In:  an item, the plan of the run. Out: Job.parts(), tiles for the network, each with its Tag.

An image has axes of its own: C goes to the network's channels, the last ones to its spatial axes, and each index of the others, T or Z
it may be, is a position: an image by itself.
"""
from __future__ import annotations

import itertools
import os
import threading
from fractions import Fraction
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from .. import formats, tiling
from .._errors import InputError
from ._items import Item, stamp
from ._network import Network
from ._numbers import After, Before
from ._view import Raw, Ready, Shrunk, View


KEPT = 64  # positions whose levels a job remembers


class Plan(NamedTuple):
    """What all items have in common."""
    network: Network
    tile: Tuple[int, ...]           # 0: the whole axis
    overlap: Any
    blend: str
    sigma: float
    padding: str
    cval: float
    align: int
    before: Before
    after: After
    axes: Optional[str]
    channels: Optional[Tuple[int, ...]]
    boxes: Tuple[Any, ...]
    mask: Optional[str]
    scales: Tuple[Any, ...]
    merge: str
    folder: str
    format: Optional[str]
    memory: int                     # bytes for the rows under work, and for those that are written
    cache: Any                      # None, or a _cache.Cache
    one_tile: bool                  # a position must be one tile: --reuse


class Level(NamedTuple):
    """factor: by how much it is coarser."""
    view: Any
    grid: tiling.Grid
    factor: Tuple[int, ...]


class Tag(NamedTuple):
    """What belongs to a tile: which position and level it is of."""
    position: int
    level: int
    tile: tiling.Tile


class Begin(NamedTuple):
    """Where a run goes on: positions and rows of the result before these are there. zoom: rows of the result by those of the image."""
    position: int = 0
    row: int = 0
    zoom: Fraction = Fraction(1)


class Job:
    """An item that is open. begin: what is there already, of a run that was killed."""

    def __init__(self, item: Item, plan: Plan, begin: Begin = Begin()) -> None:
        self.item, self.plan, self.begin = item, plan, begin
        self.image: Any = formats.open_image(item.path)
        self.mask: Any = None
        self.lock = threading.Lock()
        self.levels: Dict[int, List[Level]] = {}
        self.output: Any = None  # of _output, once there are rows
        self.step = 1            # in how many rows it is written
        self.tiles = 0           # given to the network so far
        self.failed = False      # then what still comes of it is left out
        try:
            self.stamp = stamp(item.path)
            self._map_axes()
            self._use_cache()
            if plan.mask:
                self.mask = formats.open_image(_mask_of(plan.mask, item))
            self.levels_of(0)  # what does not fit is an error now
        except BaseException:
            self.close()
            raise

    def _map_axes(self) -> None:
        """Which axis of the image is which of the network's."""
        image, network, plan = self.image, self.plan.network, self.plan
        axes = plan.axes or image.axes
        if len(axes) != len(image.shape) or len(set(axes)) != len(axes):
            raise InputError("'%s': axes '%s' do not fit its shape %s; say with --axes what they are, such as CZYX" %
                             (self.item, axes, list(image.shape)))
        c = axes.index("C") if "C" in axes else None
        others = [k for k, letter in enumerate(axes) if letter != "C"]
        if len(others) < network.rank:
            raise InputError("'%s': its axes %s of shape %s are too few for the network's input %s" %
                             (self.item, axes, list(image.shape), network.layout))
        split = len(others) - network.rank
        self.axes, self.order, self.outer = axes, [c] + others[split:], others[:split]
        self.positions = [dict(zip(self.outer, place)) for place in itertools.product(*(range(image.shape[k]) for k in self.outer))]
        self._check_channels(image.shape[c] if c is not None else 1)
        if not all(image.shape):
            raise InputError("'%s' has no voxels: its shape is %s" % (self.item, list(image.shape)))

    def _check_channels(self, there: int) -> None:
        plan, wanted = self.plan, self.plan.network.channels
        if plan.channels is not None and max(plan.channels) >= there:
            raise InputError("'%s' has %d channels: --channels names channel %d, counting from 0" % (self.item, there, max(plan.channels)))
        found = len(plan.channels) if plan.channels is not None else there
        if wanted and found != wanted:
            raise InputError("'%s' has %d channels, %s of shape %s; the network's input '%s' has %d%s" % (
                self.item, found, self.axes, list(self.image.shape), plan.network.input.name, wanted,
                ": choose with --channels" if found > wanted else ""))

    def _use_cache(self) -> None:
        """In place of the image, the copy of it that is ready for the network."""
        self.ready: Any = None
        if self.plan.cache is not None:
            self.ready = self.plan.cache.get(self)

    def view(self, position: int) -> Any:
        if self.ready is not None:
            return Ready(self.ready, position)
        view = View(self.image, self.order, self.positions[position], self.plan.channels, self.plan.network.dtype)
        view.constants = self.plan.before.constants(Raw(view))
        return view

    def levels_of(self, position: int) -> List[Level]:
        """The coarsest first; the last has the result's size. Made once for all stages: --normalize may have to read the whole image."""
        with self.lock:
            if position not in self.levels:
                while len(self.levels) >= KEPT:
                    self.levels.pop(next(iter(self.levels)))
                self.levels[position] = self._make_levels(position)
            return self.levels[position]

    def _make_levels(self, position: int) -> List[Level]:
        plan, view, found = self.plan, self.view(position), []
        rank = plan.network.rank
        for scale in plan.scales:
            factor = tiling.per_axis(scale, rank, "--scales")
            level = Shrunk(view, factor) if max(factor) > 1 else view
            shape = level.shape[1:]
            tile = plan.tile if all(plan.network.fixed) else tiling.level_tile(plan.tile, shape, plan.align) if max(factor) > 1 else plan.tile
            boxes = [[(a // f, -(-b // f)) for (a, b), f in zip(box, factor)] for box in plan.boxes]
            grid = tiling.Grid(shape, tile, plan.overlap, boxes=boxes or None, mask=self._mask(position), align=plan.align)
            found.append(Level(level, grid, factor))
        found.sort(key=lambda level: -int(np.prod(level.factor)))
        if plan.one_tile and len(found[-1].grid) != 1:
            raise InputError("--reuse compares whole frames, and '%s' has %d tiles; make --tile 0" % (self.item, len(found[-1].grid)))
        return found

    def _mask(self, position: int) -> Any:
        if self.mask is None:
            return None
        rank, axes = self.plan.network.rank, self.mask.axes
        if "C" in axes:
            raise InputError("'%s': a mask has no channels, found axes %s" % (self.mask.path, axes))
        outer = len(self.mask.shape) - rank
        if outer < 0 or outer and self.mask.shape[:outer] != tuple(self.image.shape[k] for k in self.outer):
            raise InputError("'%s': a mask has the axes of the image without C, or of space alone, found shape %s for an image of %s" %
                             (self.mask.path, list(self.mask.shape), list(self.image.shape)))
        place = tuple(self.positions[position].values()) if outer else ()
        return np.asarray(self.mask[place + (slice(None),) * rank])

    def parts(self) -> Iterator[Tuple[Any, Tag]]:
        """Tiles for the network, in the order of their sums; those before `begin` are done."""
        plan = self.plan
        for position in range(self.begin.position, len(self.positions)):
            levels = self.levels_of(position)
            for k, level in enumerate(levels):
                first = self.first_row(position, k == len(levels) - 1)
                for tile in tiling.needed(level.grid, first, self.begin.zoom) if first else level.grid:
                    if self.failed:
                        return
                    self.tiles += 1
                    part = tiling.read_tile(level.view, tile, padding=plan.padding, cval=plan.cval)
                    yield plan.network.feed(part), Tag(position, k, tile)
        self.image.release()

    def first_row(self, position: int, last_level: bool) -> int:
        """The row of the result from which on it is to be computed."""
        return self.begin.row if last_level and position == self.begin.position else 0

    def is_complete(self) -> bool:
        """Was all of it there, when the run was killed?"""
        if self.begin == Begin() or self.begin.position < len(self.positions) - 1:
            return False
        return not tiling.needed(self.levels_of(self.begin.position)[-1].grid, self.begin.row, self.begin.zoom)

    def space(self) -> str:
        """Letters of the image's axes that the network sees."""
        return "".join(self.axes[k] for k in self.order[1:] if k is not None)

    def close(self) -> None:
        self.image.close()
        if self.mask is not None:
            self.mask.close()
            self.mask = None


def _mask_of(pattern: Optional[str], item: Item) -> str:
    return str(pattern).replace("{name}", item.name).replace("{stem}", os.path.basename(item.name))
