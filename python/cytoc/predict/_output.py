# SPDX-License-Identifier: Apache-2.0
"""The file of an item's result.

In:  Work, rows as they become complete. Out: the file, under a name that begins with '.' and ends with '.partial' until it is whole.
"""
from __future__ import annotations

import os
import shutil
from typing import Any, List, Tuple

from .. import formats
from .._errors import InputError
from ._collect import Rows
from ._items import output_of
from ._job import Job


def partial_of(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, "." + name + ".partial")


class Output:
    """Made with the first rows. path: of the file once it is whole. The argument goes_on: a killed run has left a part of it. The attribute
    goes_on: the next run can go on with it, if this one is killed."""

    def __init__(self, job: Job, first: Rows, goes_on: bool) -> None:
        plan, image = job.plan, job.image
        dtype = plan.after.result_type()
        self.tensor = not first.shape
        self.path = os.path.join(plan.folder, job.item.name + ".npy") if self.tensor else \
            output_of(job.item, plan.folder, plan.format, dtype.kind == "f")
        outer = [job.axes[k] for k in job.outer]
        sizes = [image.shape[k] for k in job.outer]
        self.lead = first.values.shape[:first.values.ndim - len(first.shape)]
        if self.tensor:  # positions, and what the network gave
            self.axes, sizes = "?" * (len(sizes) + len(self.lead)), sizes + list(self.lead)
            self.order = list(range(len(sizes)))
        else:
            if len(self.lead) > 1:
                raise InputError("'%s': the network's result for a tile has %d axes in front of those of space, %s; expected one, of "
                                 "channels" % (job.item, len(self.lead), list(self.lead)))
            letters = outer + ["C"] * len(self.lead) + list(job.space())
            sizes += list(self.lead) + list(first.shape)
            order = "CT" if letters in (["T"], ["C", "T"]) else formats.ORDER  # audio has its channels in front
            self.order = sorted(range(len(letters)), key=lambda k: order.index(letters[k]))
            self.axes = "".join(letters[k] for k in self.order)
        self.places = [tuple(p.values()) for p in job.positions]
        self.partial = partial_of(self.path)
        made = formats.suffix_of(self.path)[0]
        self.goes_on = not self.tensor and made is not None and made.goes_on
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        extra = {**image.extra, "rows": {job.space()[:1]: job.step}}
        try:
            self.writer = formats.create(self.partial, [sizes[k] for k in self.order], dtype, self.axes, _scale(job, first), named=self.path,
                                         extra=extra, goes_on=goes_on)
        except BaseException as e:
            remove(self.partial)
            if isinstance(e, formats.FormatError):  # it knows the temporary name alone
                raise formats.FormatError(str(e).replace(self.partial, self.path)) from None
            raise

    def write(self, rows: Rows) -> None:
        place = self.places[rows.position]
        start: Tuple[int, ...] = place + (0,) * len(self.lead) + rows.start
        part = rows.values.reshape((1,) * len(place) + rows.values.shape).transpose(self.order)
        self.writer.write([start[k] for k in self.order], part)

    def close(self, safe: bool) -> None:
        """Now it has its name. safe: it is on the disk before; else who calls sees to it afterwards."""
        if safe:
            self.writer.sync()
        self.writer.close()
        if safe and os.path.isfile(self.partial):  # some formats are written at the end
            formats.fsync(self.partial)
        if os.path.isdir(self.path) and not os.path.islink(self.path):
            shutil.rmtree(self.path)
        os.replace(self.partial, self.path)
        if safe:
            formats.fsync(os.path.dirname(self.path))

    def abandon(self) -> None:
        self.writer.abandon()
        remove(self.partial)


def _scale(job: Job, first: Rows) -> Any:
    """Voxel sizes of the result: the image's, by how much smaller or larger it is."""
    scale = dict(job.image.scale)
    by = [(job.axes[k], job.image.shape[k], n) for k, n in zip(job.order[1:], first.shape) if k is not None]
    for letter, size, ours in by:
        if letter in scale and size != ours:
            scale[letter] = (scale[letter][0] * size / ours, scale[letter][1])
    return scale


def remove(path: str) -> None:
    """A file or a folder, if it is there."""
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.exists(path):
        os.remove(path)


def leftovers(folder: str) -> List[str]:
    """Files that killed runs have left."""
    return [os.path.join(root, n) for root, folders, files in os.walk(folder) for n in folders + files
            if n.startswith(".") and n.endswith(".partial")]
