# SPDX-License-Identifier: Apache-2.0
"""Pipeline: a folder of images, an hour of audio, a stream of frames through a model, with no part of the machine waiting.

    pipeline = cytoc.Pipeline(cytoc.Stage(read, threads=2), cytoc.Run(model, batch=8), cytoc.Stage(write))
    for result in pipeline.run(paths):
        ...

Stages are callables of Python, in threads of their own, and models, which run natively; what is between them is runtime/pipeline. This
file has what users write down; _pipeline_run.py runs it. docs/pipeline.md explains.
"""
from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Union

from ._errors import PipelineError
from ._model import Model


class Tagged:
    """A value with something beside it that a model does not see, as its place in the whole: Run gives Tagged(outputs, tag)."""
    __slots__ = ("value", "tag")

    def __init__(self, value: Any, tag: Any) -> None:
        self.value, self.tag = value, tag

    def __repr__(self) -> str:
        return "Tagged(%r, %r)" % (self.value, self.tag)


class _Nothing:
    def __repr__(self) -> str:
        return "cytoc.NOTHING"


NOTHING = _Nothing()  # the value of an item that needs nothing more: stages behind pass it by, Pipeline.run() leaves it out


MOST = 2**31 - 1     # items, rows, threads
MOST_SECONDS = 1e9   # to wait


def _positive(what: str, value: Any, least: int = 1) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST):
        raise ValueError("%s: expected a whole number of at least %d%s, found %r" % (
            what, least, " and at most %d" % MOST if isinstance(value, int) and value > MOST else "", value))


def _callable(what: str, value: Any) -> None:
    if not callable(value):
        raise TypeError("%s: expected a function, found %s" % (what, type(value).__name__))


def _not_negative(what: str, value: Any, most: float = math.inf) -> None:
    if not isinstance(value, (int, float)) or not 0 <= value <= most:
        raise ValueError("%s: expected a number that is not negative%s, found %r" % (
            what, ", of at most %g" % most if most < math.inf else "", value))


def _name(name: Optional[str], function: Any) -> str:
    found = name or getattr(function, "__name__", None) or type(function).__name__
    return "function" if found == "<lambda>" else found


class Stage:
    """A function, called with each value; what it returns goes on. item=True: called with (value, item), item being what was given to
    Pipeline.run(). `threads` of them at once, which is good for what waits (disks, networks) and what gives up the interpreter's lock,
    as NumPy, Pillow and tifffile do. queue: how many items may wait before it (None: as the pipeline says)."""

    def __init__(self, function: Callable[..., Any], *, threads: int = 1, name: Optional[str] = None, queue: Optional[int] = None,
                 item: bool = False) -> None:
        _callable("Stage", function)
        _positive("threads", threads)
        _positive("queue", queue)
        self.function, self.threads, self.queue, self.item, self.name = function, threads, queue, item, _name(name, function)


class Split(Stage):
    """A function from a value to an iterable of parts, each of which goes on by itself. A generator is asked for the next part when there
    is room for it, so that only a few parts are in memory."""


class Join:
    """Puts the parts of a Split together again: make(item) gives a collector, whose add(part) is called for each part and finish() at
    the end; what finish() returns goes on. add() may return a list of values that are finished and go on at once. If a part fails,
    abandon() is called, where the collector has it, and the whole fails."""
    threads = 1

    def __init__(self, make: Callable[[Any], Any], *, name: Optional[str] = None, queue: Optional[int] = None) -> None:
        _callable("Join", make)
        _positive("queue", queue)
        self.make, self.queue, self.name = make, queue, _name(name, make)


class Run:
    """A model, run natively on gathered items.

    Values are what `model(...)` takes: an array, a tuple in the order of the inputs, or a dict by name; with the batch axis, which is the
    first, or without it, and results come likewise: an array, or a tuple where there are several outputs.

    batch: how many rows are run at once at most (None: the size that the model has fixed, or 1); only items of equal shapes go together.
    wait: seconds that the first item of a batch waits for others. contexts: runs at once, which share the weights (None: as many as CPUs
    on up to 4 of them, else 2). threads: of each run (None: one where there are as many contexts as CPUs, else all CPUs). A model loaded
    with `tuned` has values of its own for these where they are None.
    reuse: mean absolute difference of the first input to that of the last computed item, below which that one's results are given
    again, as arrays that cannot be written to. keep_inputs, unless: see EarlyExit.
    """

    def __init__(self, model: Model, *, batch: Optional[int] = None, wait: float = 0.01, contexts: Optional[int] = None,
                 threads: Optional[int] = None, name: Optional[str] = None, queue: Optional[int] = None, reuse: Optional[float] = None,
                 keep_inputs: bool = False, unless: Union[None, float, Callable[[Any], bool]] = None) -> None:
        if not isinstance(model, Model):
            raise TypeError("Run: expected a model of cytoc.load() or cytoc.compile(), found %s" % type(model).__name__)
        for what, value in (("batch", batch), ("contexts", contexts), ("threads", threads), ("queue", queue)):
            _positive(what, value)
        _not_negative("wait", wait, MOST_SECONDS)
        if reuse is not None:
            _not_negative("reuse", reuse)
        if unless is not None and not callable(unless) and (not isinstance(unless, (int, float)) or unless == 0):
            raise ValueError("unless: expected a number other than 0 or a function, found %r" % (unless,))
        if model.tuned is not None:
            contexts, threads = contexts or model.tuned.contexts, threads or (None if contexts else model.tuned.threads)
            batch = batch or model.tuned.batch or None
        self.model, self.batch, self.wait, self.contexts, self.run_threads = model, batch, wait, contexts, threads
        self.name, self.queue, self.reuse, self.keep_inputs, self.unless = name or "run", queue, reuse, keep_inputs, unless

    @property
    def threads(self) -> int:
        return self.contexts or 0


def EarlyExit(cheap: Model, expensive: Model, confident: Union[float, Callable[[Any], bool]] = 0.9, **options: Any) -> Tuple[Run, Run]:
    """Two stages: all items through the cheap model, and those that it is not sure of through the expensive one, with the same inputs.
    confident: the highest value of the cheap model's first output from which on its results are taken; or a function of its results:
    where it raises, the item fails.
    options: those of Run, for both."""
    name = options.pop("name", None) or "run"
    return (Run(cheap, keep_inputs=True, name="%s, cheap" % name, **options),
            Run(expensive, unless=confident, name="%s, expensive" % name, **options))


class Result(NamedTuple):
    """What came of an item: its value, or the error."""
    number: int
    item: Any
    value: Any
    error: Optional[PipelineError]


# ---- statistics ---------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class StageStatistics:
    """What a stage has done: seconds are sums over its threads, longest is the most that has waited in its queue."""
    name: str
    kind: str
    threads: int
    items: int
    failed: int
    busy: float
    waiting_in: float
    waiting_out: float
    utilisation: float  # busy, of the time of its threads: 0 to 1
    rate: float         # items per second of work of all its threads: what it could do alone
    waiting: int
    longest: int
    batches: int = 0
    rows: int = 0
    batch: int = 0
    short_of_memory: int = 0
    reused: int = 0
    passed: int = 0


@dataclass(frozen=True)
class Statistics:
    """What a pipeline has done. str() is a table."""
    seconds: float
    items: int
    failed: int
    rate: float
    stages: List[StageStatistics]
    bottleneck: str
    advice: str

    def as_dict(self) -> Dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = ["%-20s %7s %8s %6s %6s %6s %10s" % ("stage", "threads", "items", "busy", "for in", "out", "items/s")]
        for s in self.stages:
            total = max(s.busy + s.waiting_in + s.waiting_out, 1e-9)
            lines.append("%-20s %7d %8d %5.0f%% %5.0f%% %5.0f%% %10.1f" % (s.name[:20], s.threads, s.items, 100 * s.busy / total,
                                                                        100 * s.waiting_in / total, 100 * s.waiting_out / total, s.rate))
        lines.append("%d items in %.2f s (%.1f items/s), %d failed; %s" % (self.items, self.seconds, self.rate, self.failed, self.advice))
        return "\n".join(lines)


def advice_on(stages: List[StageStatistics], bottleneck: int) -> str:
    """What to change, in a sentence."""
    if bottleneck < 0:
        return "nothing was done yet"
    s = stages[bottleneck]
    if s.kind == "run":
        if s.short_of_memory:
            return "the model is the bottleneck, and memory allows batches of %d only" % s.batch
        if s.utilisation < 0.5:
            return "no stage is busy for half of the time: give the items faster, or take results faster"
        return "the model is the bottleneck: the machine does what it can; int8 or a GPU would make it faster"
    if s.utilisation < 0.5:
        return "no stage is busy for half of the time: give the items faster, or take results faster"
    if s.kind == "join":
        return "'%s' is the bottleneck: make it cheaper, it has one thread" % s.name
    return "'%s' is the bottleneck: give it threads=%d, unless it holds Python's lock" % (s.name, 2 * s.threads)


# ---- the pipeline -------------------------------------------------------------------------------------------------------------

def _flat(stages: Iterable[Any]) -> Iterator[Any]:
    for s in stages:
        if isinstance(s, (tuple, list)):
            yield from _flat(s)
        elif isinstance(s, (Stage, Join, Run)):
            yield s
        else:
            raise TypeError("Pipeline: expected Stage, Split, Run or Join, found %s; Stage(f) makes a stage of a function" %
                            type(s).__name__)


def _check_joins(stages: List[Any]) -> None:
    open_splits = 0
    for s in stages:
        open_splits += isinstance(s, Split)
        if isinstance(s, Join):
            if not open_splits:
                raise ValueError("Join '%s': expected a Split before it, whose parts it puts together" % s.name)
            open_splits -= 1


class Pipeline:
    """Stages that items pass one after the other, each stage in threads of its own.

    queue: how many items may wait before each stage. ordered: results come in the order of the items. errors: "stop" ends the run with
    the first item that fails, after the results before it; "skip" goes on, and `errors` has those that failed. in_flight: items that may
    be under way at most (0: what the queues hold). A pipeline may be run again, also by several threads at once.
    """

    def __init__(self, *stages: Any, queue: int = 4, ordered: bool = True, errors: str = "stop", in_flight: int = 0) -> None:
        self.stages = list(_flat(stages))
        if not self.stages:
            raise ValueError("Pipeline: expected at least one stage")
        _check_joins(self.stages)
        _positive("queue", queue)
        _positive("in_flight", in_flight, 0)
        if errors not in ("stop", "skip"):
            raise ValueError("errors: expected 'stop' or 'skip', found %r" % (errors,))
        self.queue, self.ordered, self.on_error, self.in_flight = queue, ordered, errors, in_flight
        self.errors: List[PipelineError] = []  # of the last run
        self._last: Any = None

    def results(self, items: Iterable[Any]) -> Iterator[Result]:
        """A Result for each item, also for those that failed, and for each part that was split and not joined. Items are taken from the
        iterable, in a thread of its own, as there is room. Leaving the loop ends the run."""
        from ._pipeline_run import PipelineRun
        run = self._last = PipelineRun(self, items)
        self.errors = run.errors
        return run.results()

    def run(self, items: Iterable[Any]) -> Iterator[Any]:
        """The values that come out of the last stage."""
        for result in self.results(items):
            if result.error is None and result.value is not NOTHING:
                yield result.value

    def cancel(self) -> None:
        """Ends the last run, from any thread: its loop raises PipelineCancelled. What has begun is waited for."""
        if self._last is not None:
            self._last.cancel()

    def statistics(self) -> Statistics:
        """Of the last run, also while it goes on."""
        if self._last is None:
            return Statistics(0.0, 0, 0, 0.0, [], "", advice_on([], -1))
        found: Statistics = self._last.statistics()
        return found


def item_name(item: Any) -> str:
    """What messages call an item: its path, where it is one or begins with one."""
    if isinstance(item, (tuple, list)) and item:
        item = item[0]
    return os.fsdecode(os.fspath(item)) if isinstance(item, (str, bytes, os.PathLike)) else ""
