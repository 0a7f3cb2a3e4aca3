# SPDX-License-Identifier: Apache-2.0
"""The run: items through cytoc.Pipeline, from files to files.

In:  the network, a Plan, items, a Journal. Out: files; the summary, a dict that --json writes.

Stages: open (files), read (tiles), run (the network), blend (tiles to rows), after (numbers), write. What an item's stages share is its Job.
"""
from __future__ import annotations

import errno
import os
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import numpy as np

from .._errors import CytocError
from .._pipeline import EarlyExit, Join, Pipeline, Run, Split, Stage, Tagged
from ._collect import Collector, Work
from ._items import Item
from ._job import Begin, Job, Plan
from ._journal import Journal
from ._network import of_sizes
from ._output import Output
from ._progress import ADVICE, Bar

MAX_AT_ONCE = 64 << 20  # bytes of a file whose rows are kept for the tiles beside each other
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Stopped(CytocError):
    """Results cannot be written: it makes no sense to try other items."""


class Full(Stopped):
    """There is no room for them."""


class Machine(NamedTuple):
    """What a run may use. rows: tiles of a run of the network. queue: tiles that wait."""
    rows: int
    workers: Optional[int]
    threads: Optional[int]
    readers: int
    queue: int
    reuse: Optional[float]
    first: Any               # the cheap model of an early exit, or None
    confident: float
    checkpoint: float        # seconds between two entries of the journal for one item
    cluster: Any = None      # a cytoc.ray.Remote: where the network runs; None: here


class Predict:
    """One run."""

    def __init__(self, plan: Plan, machine: Machine, items: Sequence[Item], journal: Journal) -> None:
        self.plan, self.machine, self.journal = plan, machine, journal
        self.items = [item for item in items if not journal.is_done(item)]
        self.skipped = len(items) - len(self.items)
        self.jobs: Dict[Item, Job] = {}
        self.checked: Dict[Item, float] = {}  # when rows of an item were last put down in the journal
        self.done: List[Dict[str, Any]] = []
        self.failed: List[Dict[str, str]] = []
        self.stopped: Optional[Stopped] = None
        self.syncing = 0.0  # seconds, when all items were through
        self.pipeline = Pipeline(*self._stages(), queue=machine.queue, errors="skip", in_flight=machine.readers + 2)

    def _stages(self) -> List[Any]:
        m, plan = self.machine, self.plan
        if m.cluster is not None:
            return self._around([Stage(self._remote, name="run", threads=m.cluster.in_flight, queue=m.queue)])
        how: Dict[str, Any] = {"batch": m.rows, "contexts": m.workers, "threads": m.threads, "name": "run"}
        if m.first is not None:
            runs: Sequence[Any] = EarlyExit(m.first, plan.network.model, m.confident, **how)
        else:
            runs = [Run(plan.network.model, reuse=m.reuse, **how)]
        return self._around(runs)

    def _around(self, runs: Sequence[Any]) -> List[Any]:
        return [Stage(self._open, name="open", queue=1), Split(self._read, name="read", threads=self.machine.readers, queue=1), *runs,
                Join(self._collector, name="blend"), Stage(self._after, name="after", queue=1), Stage(self._write, name="write", queue=1)]

    # -- stages

    def _open(self, item: Item) -> Job:
        job = Job(item, self.plan, self.journal.begin(item) or Begin())
        job.image.at_once = min(max(job.image.at_once, self.plan.memory // (16 * self.machine.readers)), MAX_AT_ONCE)
        if job.is_complete():  # but for its name, which is soon made good
            job.begin = Begin()
        self.jobs[item] = job
        return job

    def _read(self, job: Job) -> Any:
        for part, tag in job.parts():
            yield Tagged(part, tag)

    def _remote(self, tile: Tagged) -> Tagged:
        """What Run does with a tile, on whichever machine of the cluster has room."""
        network, found = self.plan.network, tile.value
        rows = network.batch or 1
        feeds = found if isinstance(found, dict) else {network.input.name: found}
        outputs = self.machine.cluster.run({name: np.repeat(value[None], rows, 0) for name, value in feeds.items()})
        single = [output[0] for output in outputs]
        return Tagged(single[0] if len(single) == 1 else tuple(single), tile.tag)

    def _collector(self, item: Item) -> Collector:
        return Collector(self.jobs[item])

    def _after(self, work: Work) -> Work:
        if work.rows is None or work.rows.decided or work.job.failed:
            return work
        return work._replace(rows=work.rows._replace(values=self.plan.after(work.rows.values)))

    def _write(self, work: Work) -> Any:
        """None, or at the end of an item the path of its result."""
        job, rows = work.job, work.rows
        if job.failed:
            return None
        self._synced(self.journal.sync_due)
        try:
            if rows is not None:
                if job.output is None:
                    job.output = Output(job, rows, job.begin != Begin())
                job.output.write(rows)
                self._checkpoint(job, rows)
            if not work.last:
                return None
            job.output.close(not self.journal.syncs(os.path.dirname(job.output.partial)))
        except BaseException as e:
            job.failed = True
            if isinstance(e, OSError) and e.errno in FULL:
                self._stop(Full("no room for the result of '%s' in '%s': %s" % (job.item, self.plan.folder, e.strerror)))
            raise
        self._synced(lambda: self.journal.add_done(job.item, job.stamp, job.output.path))
        return job.output.path

    def _synced(self, action: Callable[[], None]) -> None:
        """What the journal does. Where the system cannot write results, the run ends."""
        try:
            action()
        except OSError as e:
            kind, what = (Full, "no room for the results") if e.errno in FULL else (Stopped, "the last results cannot be written")
            self._stop(kind("%s in '%s': %s; --resume makes them again" % (what, self.plan.folder, e.strerror)))
            raise

    def _stop(self, why: Stopped) -> None:
        self.stopped = why
        self.pipeline.cancel()

    def _checkpoint(self, job: Job, rows: Any) -> None:
        """What is on the disk for certain, now and then."""
        now = time.monotonic()
        last = self.checked.setdefault(job.item, now)
        end = rows.complete_to()
        if now - last < self.machine.checkpoint or end is None or not job.output.goes_on:
            return
        job.output.writer.sync()
        self.checked[job.item] = now
        self.journal.add_rows(job.item, job.stamp, job.output.partial, rows.position, end, rows.zoom)

    # -- the whole

    def run(self) -> None:
        """Fills done and failed. Full: the disk is. KeyboardInterrupt: what is complete stays, what was begun is gone on with."""
        bar, failed = Bar(self._state), set()  # type: ignore[var-annotated]
        try:
            for result in self.pipeline.results(self.items):
                if result.error is not None:
                    if result.item not in failed:  # each part of it may say so
                        self._fail(result.item, result.error, bar)
                    failed.add(result.item)
                elif result.value is not None:
                    job = self.jobs.pop(result.item)
                    job.close()
                    self.done.append({"item": job.item.path, "output": result.value, "tiles": job.tiles})
            begun = time.monotonic()
            self._synced(self.journal.sync)
            self.syncing = time.monotonic() - begun
        except Exception:
            if self.stopped is None:
                raise
        finally:
            bar.close()
            for job in self.jobs.values():
                if self.stopped and job.output is not None:
                    job.output.abandon()
                job.close()
        if self.stopped:
            raise self.stopped

    def _fail(self, item: Item, error: Any, bar: Bar) -> None:
        cause = error.__cause__ if error.__cause__ is not None else error
        text = str(cause) if isinstance(cause, (CytocError, OSError)) else "%s: %s" % (type(cause).__name__, cause)
        text = text if item.path in text else "'" + item.path + "': " + text
        text += of_sizes(error) if error.__cause__ is None else ""
        job = self.jobs.pop(item, None)
        if self.stopped is None:
            bar.say("cytoc predict: skipped: " + text)
            self.failed.append({"item": item.path, "error": text})
        if job is not None:
            job.failed = True
            if job.output is not None:
                job.output.abandon()
            job.close()

    def _state(self) -> Any:
        statistics = self.pipeline.statistics()
        tiles = sum(s.items for s in statistics.stages if s.name == "run")
        return len(self.done), len(self.failed), len(self.items), tiles, statistics.bottleneck

    def summary(self) -> Dict[str, Any]:
        found = self.pipeline.statistics().as_dict()
        seconds = max(found["seconds"] + self.syncing, 1e-9)
        tiles = sum(d["tiles"] for d in self.done)
        bottleneck = found.get("bottleneck") or ""
        return {"done": len(self.done), "failed": len(self.failed), "skipped": self.skipped, "seconds": seconds,
                "items_per_second": len(self.done) / seconds, "tiles_per_second": tiles / seconds, "tiles": tiles,
                "bottleneck": bottleneck, "advice": ADVICE.get(bottleneck, found.get("advice", "")), "stages": found["stages"],
                "outputs": self.done, "errors": self.failed}
