# SPDX-License-Identifier: Apache-2.0
"""Images ready for the network, on a disk: decoded, normalised, as arrays that are mapped. What was not used for longest goes first.

In:  a folder, how many bytes it may have. Out: for a job, its array [positions, C, spatial..].
"""
from __future__ import annotations

import contextlib
import hashlib
import os
from typing import Any, List, Tuple

import numpy as np

from .. import formats
from ..formats import reserve
from ._items import stamp
from ._numbers import BLOCK
from ._output import remove
from ._view import Raw, View

_ENDING = ".cytoc.npy"


class Cache:
    def __init__(self, folder: str, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self.hits = self.misses = 0
        os.makedirs(folder, exist_ok=True)
        self.trim(0)

    def get(self, job: Any) -> Any:
        """The array of a job; None where it would be larger than the cache."""
        path = os.path.join(self.folder, self._key(job) + _ENDING)
        if not os.path.exists(path):
            self.misses += 1
            if not self._make(job, path):
                return None
        else:
            self.hits += 1
        with contextlib.suppress(OSError):  # a folder that may be read alone does as well
            os.utime(path)
        return formats.open_image(path)

    def _key(self, job: Any) -> str:
        plan = job.plan
        about = (os.path.realpath(job.item.path), stamp(job.item.path), job.axes, job.order, plan.before, plan.channels,
                 plan.network.dtype.str)
        return hashlib.sha256(repr(about).encode()).hexdigest()[:32]

    def _make(self, job: Any, path: str) -> bool:
        views = []
        for place in job.positions:
            views.append(View(job.image, job.order, place, job.plan.channels, job.plan.network.dtype))
        shape = (len(views),) + views[0].shape
        size = int(np.prod(shape, dtype=np.int64)) * views[0].dtype.itemsize
        if size > self.limit:
            return False
        self.trim(size)
        new = "%s.%d.new" % (path, os.getpid())
        try:
            array: Any = np.lib.format.open_memmap(new, "w+", views[0].dtype, shape)
            reserve(new, os.path.getsize(new))
            rows = max(BLOCK // max(size // max(shape[0] * shape[2], 1), 1), 1)
            for k, view in enumerate(views):
                view.constants = job.plan.before.constants(Raw(view))
                for row in range(0, shape[2], rows):
                    array[k, :, row:row + rows] = view[:, row:row + rows]
                    formats.forget(array)
            array.flush()
            os.replace(new, path)
        except BaseException:
            remove(new)
            raise
        return True

    def trim(self, coming: int) -> None:
        """Makes room."""
        entries: List[Tuple[float, int, str]] = []
        for name in os.listdir(self.folder):
            if name.endswith(_ENDING):
                with contextlib.suppress(OSError):  # another process removed it
                    stat = os.stat(os.path.join(self.folder, name))
                    entries.append((stat.st_mtime, stat.st_size, os.path.join(self.folder, name)))
        total = coming + sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.limit:
                return
            remove(path)  # who has it mapped goes on
            total -= size
