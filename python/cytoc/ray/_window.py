# SPDX-License-Identifier: Apache-2.0
"""Tiles of one image on all machines: computed wherever there is room, blended where the image is.

In:  an image, a Predictor. Out: the blended result. Tiles go to tasks, results come back, a bounded number of them at once; a task whose
machine dies is done again by Ray on another. Sums are made in the order of the grid, so that the result is the same, bit for bit, however
many machines there are and whichever of them die.
"""
from __future__ import annotations

from typing import Any, List, Optional

import ray

from .. import tiling
from .._errors import CytocError, InputError
from ._library import Library
from ._predictor import Predictor, _rows

RETRIES = 5  # of a task whose machine has died


def _outputs(library: Library, threads: Optional[int], feeds: Any) -> Any:
    """The outputs for a batch of tiles; or the error, as a value: Ray would log the trace of each that is not asked for."""
    try:
        return _rows(library.open(threads), feeds)
    except CytocError as e:
        return e


_compute = ray.remote(max_retries=RETRIES)(_outputs)


class Remote:
    """A model that runs on the cluster: submit() a batch, and result() gives its outputs.

    num_cpus, num_gpus: of each run. in_flight: runs that are under way or wait, at most (None: twice as many as the cluster
    has room for at once)."""

    def __init__(self, library: Library, *, threads: Optional[int] = None, num_cpus: float = 1, num_gpus: float = 0,
                 in_flight: Optional[int] = None) -> None:
        if in_flight is not None and in_flight < 1:
            raise InputError("in_flight: expected 1 or more, found %d" % in_flight)
        self.library, self.threads = ray.put(library), threads
        self.task = _compute.options(num_cpus=num_cpus, num_gpus=num_gpus, scheduling_strategy="SPREAD")
        there = ray.cluster_resources()
        room = [int(there.get(kind, 0) / wanted) for kind, wanted in (("CPU", num_cpus), ("GPU", num_gpus)) if wanted]
        if room and min(room) < 1:
            raise InputError("the cluster has %g CPUs and %g GPUs: no room for a run with num_cpus=%g, num_gpus=%g" % (
                there.get("CPU", 0), there.get("GPU", 0), num_cpus, num_gpus))
        self.in_flight = in_flight or 2 * max(min(room, default=1), 1)

    def submit(self, feeds: Any) -> Any:
        return self.task.remote(self.library, self.threads, feeds)

    def run(self, feeds: Any) -> List[Any]:
        return result(self.submit(feeds))


def result(reference: Any) -> List[Any]:
    """What submit() referred to; raises what the model complained of."""
    found: Any = ray.get(reference)
    if isinstance(found, CytocError):
        raise found
    outputs: List[Any] = found
    return outputs


def sliding_window(image: Any, predictor: Predictor, tile: Any, *, output: Optional[str] = None, in_flight: Optional[int] = None,
                   num_cpus: float = 1, num_gpus: float = 0, **options: Any) -> Any:
    """cytoc.tiling.sliding_window() whose tiles are computed all over the cluster.

    image: as there, or a reference to it (ray.put()). It is read and blended in the process that calls this, so call it where the image
    is: in a task of its own for each of many volumes. predictor: of a model with one input. output: which of several outputs. in_flight:
    batches of tiles that are under way at once. num_cpus, num_gpus: of each run. options: of cytoc.tiling.sliding_window(): overlap,
    batch, mode, padding, boxes, mask, write, memory, ..

    Raises ray.exceptions.RayError when machines die more often than tasks are done again (5 times).
    """
    if not isinstance(predictor, Predictor):
        raise InputError("sliding_window: expected a cytoc.ray.Predictor, found %s" % type(predictor).__name__)
    if isinstance(image, ray.ObjectRef):
        image = ray.get(image)
    model = predictor.library.open(1)
    if len(model.inputs) != 1:
        raise InputError("sliding_window: expected a model with one input, found %d: %s" % (
            len(model.inputs), ", ".join("'%s'" % i.name for i in model.inputs)))
    names = [o.name for o in model.outputs]
    if output is not None and output not in names:
        raise InputError("output: the model has no '%s'; it has %s" % (output, ", ".join("'%s'" % n for n in names)))
    remote = Remote(predictor.library, threads=predictor.threads, num_cpus=num_cpus, num_gpus=num_gpus, in_flight=in_flight)
    info, number = model.inputs[0], names.index(output) if output else 0
    # after an error tasks end by themselves: ray.cancel() of one that is just ending aborts the driver (Ray 2.60)
    return tiling.windows(image, lambda tiles: remote.submit({info.name: tiles}), lambda reference: result(reference)[number], remote.in_flight, tile,
                          dtype=info.dtype, **options)
