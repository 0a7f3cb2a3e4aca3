# SPDX-License-Identifier: Apache-2.0
"""One run of a Pipeline: what it hands to libcyto, and what libcyto calls back.

In:  a Pipeline, and the items. Out: Results.

The native side moves a number for each value; `values` has the value. Arrays that go into a model are pointed to by the native item while
`values` keeps them alive; outputs are views of native memory that the array keeps alive. Stages with functions run in threads of Python's,
so that what a thread keeps (threading.local) stays from item to item.
"""
from __future__ import annotations

import atexit
import ctypes as C
import itertools
import os
import threading
import time
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import numpy as np

from . import _dtypes, _pipeline_native as N
from ._dlpack import Borrowed
from ._errors import InputError, PipelineCancelled, PipelineError
from ._model import Model, converted
from ._native import MAX_RANK, Error, Options, Tensor, check, decoded, status_name
from ._pipeline import (NOTHING, Join, Pipeline, Result, Run, Split, Stage, StageStatistics, Statistics, Tagged, advice_on, item_name)

_TICK_NS = 100_000_000  # how often a wait looks for signals, as Ctrl-C
_END_SECONDS = 5.0      # that the interpreter's end waits for functions that are still called
_live: "weakref.WeakSet[PipelineRun]" = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """Before the interpreter goes down: afterwards no thread can call a function of Python's, and waiting for one would not end."""
    for run in list(_live):
        run.end()


class _Value:
    """What `values` has for a number. held: what tensors of the native item point to."""
    __slots__ = ("value", "item", "tagged", "tag", "held")

    def __init__(self, value: Any, item: Any) -> None:
        self.value, self.item = value, item
        self.tagged, self.tag = False, None
        self.held: Optional[List[Any]] = None


class _Memory:
    """Native memory of a model's outputs, for as long as an array looks at it."""
    __slots__ = ("kept", "release")

    def __init__(self, kept: int, release: Callable[[int], None]) -> None:
        self.kept, self.release = kept, release

    def __del__(self) -> None:
        self.release(self.kept)


class _Bytes:
    """Some of it, as NumPy wants to see it."""
    __slots__ = ("__array_interface__", "memory")

    def __init__(self, address: int, size: int, memory: _Memory, shared: bool) -> None:
        self.__array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, shared), "version": 3}
        self.memory = memory


def _array(t: Tensor, memory: _Memory, shared: bool) -> np.ndarray[Any, Any]:
    """shared: other items may have it as well, and it is not to be written to."""
    shape = tuple(t.dims[:t.rank])
    if not t.bytes:
        return np.empty(shape, _dtypes.numpy_type(t.dtype))
    raw = np.asarray(_Bytes(t.data, t.bytes, memory, shared))
    if _dtypes.bits(t.dtype) < 8:
        unpacked: np.ndarray[Any, Any] = _dtypes.unpack(raw, t.dtype, shape)
        return unpacked
    typed: np.ndarray[Any, Any] = raw.view(_dtypes.numpy_type(t.dtype)).reshape(shape)
    return typed


def _tensor(slot: Any, x: Any, held: List[Any]) -> Tensor:
    """x, as the model takes it, as a native tensor."""
    t = Tensor(dtype=slot.kind)
    if x is None and slot.optional:
        return t
    if not slot.direct:
        raise InputError("input '%s': a pipeline runs models of tensors of whole bytes; call the model in a Stage" % slot.name)
    dtype = slot.dtype
    if dtype is None:
        dtype = slot.dtype = _dtypes.numpy_type(slot.kind)
    if not (type(x) is np.ndarray and x.dtype == dtype and x.flags.c_contiguous and x.flags.aligned):
        x = converted(slot, dtype, x)
    if len(x.shape) > MAX_RANK:
        raise InputError("input '%s': %d dimensions are more than a tensor may have, %d" % (slot.name, len(x.shape), MAX_RANK))
    held.append(x)
    size = x.nbytes if not isinstance(x, Borrowed) else int(np.prod(x.shape, dtype=np.int64)) * _dtypes.bits(slot.kind) // 8
    t.data = x.address if isinstance(x, Borrowed) else x.__array_interface__["data"][0]
    t.bytes, t.rank = size, len(x.shape)
    t.dims[:t.rank] = x.shape
    if not t.data or not size:  # tensors of no elements may have no address
        t.data = C.addressof(t)
        held.append(t)
    return t


def _tensors(model: Model, value: Any, held: List[Any]) -> Any:
    """The native tensors of what goes into a model."""
    if isinstance(value, dict):
        values = model._arguments((), value)
    elif len(model._inputs) == 1 and not (isinstance(value, (tuple, list)) and len(value) == 1 and hasattr(value[0], "shape")):
        values = [value]
    elif isinstance(value, (tuple, list)):
        values = model._arguments(tuple(value), {})
    else:
        values = model._arguments((value,), {})
    found = [_tensor(slot, x, held) for slot, x in zip(model._inputs, values)]
    return (Tensor * max(len(found), 1))(*found)


def _bytes_of(name: str) -> bytes:
    """Names of files may hold bytes that are no UTF-8, which Python has as surrogates; other surrogates are no part of any name."""
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return name.encode("utf-8", "backslashreplace")


def _threads_main(main: int, data: int) -> None:
    N.ThreadMain(main)(data)


class PipelineRun:
    """A native pipeline, from its first item to its end."""

    def __init__(self, pipeline: Pipeline, items: Iterable[Any]) -> None:
        self.native = N.Functions()
        self.pipeline, self.items = pipeline, iter(items)
        self.errors: List[PipelineError] = []
        self.values: Dict[int, _Value] = {}
        self.numbers = itertools.count(1)
        self.causes: Dict[int, BaseException] = {}  # by item
        self.collectors: Dict[int, Any] = {}
        self.feeding_error: Optional[BaseException] = None
        self.lock = threading.Lock()
        self.users = 0  # threads that use the handle; the last one destroys it
        self.handle: Optional[int] = None
        self.last_statistics: Optional[Statistics] = None
        self.stages: List[Any] = list(pipeline.stages)
        if isinstance(self.stages[0], Run):
            self.stages.insert(0, Stage(lambda value: value, name="input"))
        self.keep: List[Any] = []  # callbacks and structs
        self.threads: List[threading.Thread] = []
        self.taking = False
        self.pid = os.getpid()

    # -- making

    def struct_of(self, k: int) -> N.StageStruct:
        s, struct = self.stages[k], N.StageStruct()
        name = s.name.encode("utf-8", "replace")
        struct.name, struct.threads, struct.queue = name, s.threads, s.queue or 0
        if isinstance(s, Run):
            self.fill_model(struct, s)
        elif isinstance(s, Join):
            struct.kind = N.JOIN
            struct.add, struct.finish, struct.abandon = N.AddFn(self.add_of(k)), N.FinishFn(self.finish_of(k)), N.AbandonFn(self.abandon)
        elif isinstance(s, Split):
            struct.kind, struct.split = N.SPLIT, N.SplitFn(self.split_of(k))
        else:
            struct.kind, struct.map = N.MAP, N.MapFn(self.map_of(k))
        self.keep.append((struct, name))
        return struct

    def fill_model(self, struct: N.StageStruct, s: Run) -> None:
        options = s.model._options(s.run_threads)
        struct.kind, struct.model, struct.options = N.MODEL, s.model._open(), C.pointer(options)
        struct.batch, struct.wait_ns, struct.reuse, struct.keep_inputs = s.batch or 0, int(s.wait * 1e9), s.reuse or 0, s.keep_inputs
        if callable(s.unless):
            struct.needs = N.NeedsFn(self.needs_of(s.unless))
        elif s.unless is not None:
            struct.sure = s.unless
        self.keep.append(options)

    def start(self) -> None:
        p = self.pipeline
        structs = (N.StageStruct * len(self.stages))(*[self.struct_of(k) for k in range(len(self.stages))])
        options = N.PipelineOptions(queue=p.queue, in_flight=p.in_flight, unordered=not p.ordered,
                                    on_error=N.STOP if p.on_error == "stop" else N.SKIP, release=N.ReleaseFn(self.release),
                                    spawn=N.SpawnFn(self.spawn))
        self.keep.append((structs, options))
        handle, error = C.c_void_p(), Error()
        check(self.native.cyto_pipeline_create(structs, len(structs), C.byref(options), C.byref(handle), C.byref(error)), error, InputError)
        self.handle, self.users = handle.value, 2
        _live.add(self)
        self.threads.append(threading.Thread(target=self.feed, name="cytoc-items", daemon=True))
        self.threads[-1].start()

    def spawn(self, _user: int, main: int, data: int) -> int:
        try:
            thread = threading.Thread(target=_threads_main, args=(main, data), name="cytoc-stage", daemon=True)
            thread.start()
        except RuntimeError:
            return 0
        self.threads.append(thread)
        return 1

    # -- values

    def release(self, _user: int, data: int) -> None:
        self.values.pop(data, None)

    def new_value(self, value: Any, item: Any) -> Tuple[int, _Value]:
        number, found = next(self.numbers), _Value(value, item)
        self.values[number] = found
        return number, found

    def value_of(self, item: N.Item, address: int, k: int) -> Any:
        """What stage k gets (k: as many as there are: what the consumer gets)."""
        v = self.values[item.data]
        if v.value is NOTHING or not item.count or not isinstance(self.stages[k - 1], Run):
            return v.value
        kept = self.native.cyto_tensors_keep(address)
        memory = _Memory(kept, self.native.cyto_tensors_release)
        arrays = [_array(item.tensors[i], memory, self.stages[k - 1].reuse is not None) for i in range(item.count)]
        found: Any = arrays[0] if len(arrays) == 1 else tuple(arrays)
        self.native.cyto_item_set_tensors(address, 0, None)
        v.held = None
        return Tagged(found, v.tag) if v.tagged else found

    def tensors_for(self, v: _Value, k: int) -> Any:
        """Stage k has left v.value: its tensors where a model is next; else None."""
        if k + 1 >= len(self.stages) or not isinstance(self.stages[k + 1], Run) or v.value is NOTHING:
            return None
        value, v.tagged = v.value, isinstance(v.value, Tagged)
        if v.tagged:
            v.tag, value = v.value.tag, v.value.value
        held: List[Any] = []
        found = _tensors(self.stages[k + 1].model, value, held)
        v.held, v.value = held, None
        return found

    def failed(self, number: int, error: int, exception: BaseException) -> int:
        self.causes.setdefault(number, exception)
        name = type(exception).__name__
        try:
            said = str(exception)
        except Exception:  # of classes whose __str__ fails
            said = ""
        text = "%s: %s" % (name, said) if said else name
        found = Error.from_address(error)
        found.code = N.RUNTIME_FAILURE
        found.message = text.encode("utf-8", "replace")[:1000]
        return N.RUNTIME_FAILURE

    # -- callbacks

    def map_of(self, k: int) -> Callable[..., int]:
        function, with_item = self.stages[k].function, self.stages[k].item

        def call(_user: int, address: int, error: int) -> int:
            item = N.Item.from_address(address)
            try:
                v = self.values[item.data]
                value = self.value_of(item, address, k)
                if value is not NOTHING:
                    v.value = None
                    v.value = function(value, v.item) if with_item else function(value)
                self.hand_on(v, address, k)
                return 0
            except BaseException as e:
                return self.failed(item.number, error, e)
        return call

    def hand_on(self, v: _Value, address: int, k: int) -> None:
        tensors = self.tensors_for(v, k)
        if tensors is not None and self.native.cyto_item_set_tensors(address, len(tensors), tensors):
            raise MemoryError("no memory for tensors")

    def emit(self, to: int, value: Any, item: Any, k: int) -> int:
        number, v = self.new_value(value, item)
        try:
            tensors = self.tensors_for(v, k)
        except BaseException:
            del self.values[number]
            raise
        status: int = self.native.cyto_emit(to, number, len(tensors) if tensors is not None else 0, tensors)
        return status

    def split_of(self, k: int) -> Callable[..., int]:
        function, with_item = self.stages[k].function, self.stages[k].item

        def call(_user: int, address: int, to: int, error: int) -> int:
            item = N.Item.from_address(address)
            try:
                v = self.values[item.data]
                value, v.value = self.value_of(item, address, k), None
                if value is NOTHING:
                    v.value = NOTHING
                    return 0
                for part in (function(value, v.item) if with_item else function(value)):
                    status = self.emit(to, part, v.item, k)
                    if status:
                        return status
                return 0
            except BaseException as e:
                return self.failed(item.number, error, e)
        return call

    def collector(self, k: int, state: int, item: Any) -> Any:
        place = C.c_void_p.from_address(state)
        if not place.value:
            made = self.stages[k].make(item)
            place.value = next(self.numbers)
            self.collectors[place.value] = made
        return self.collectors[place.value or 0]

    def add_of(self, k: int) -> Callable[..., int]:
        def call(_user: int, state: int, address: int, to: int, error: int) -> int:
            item = N.Item.from_address(address)
            try:
                v = self.values[item.data]
                value = self.value_of(item, address, k)
                if value is NOTHING:
                    return 0
                for finished in self.collector(k, state, v.item).add(value) or ():
                    status = self.emit(to, finished, v.item, k)
                    if status:
                        return status
                return 0
            except BaseException as e:
                return self.failed(item.number, error, e)
        return call

    def finish_of(self, k: int) -> Callable[..., int]:
        def call(_user: int, state: int, address: int, error: int) -> int:
            item = N.Item.from_address(address)
            try:
                v = self.values[item.data]
                if v.value is not NOTHING:
                    v.value = self.collector(k, state, v.item).finish()
                    self.collectors.pop(C.c_void_p.from_address(state).value or 0, None)
                    C.c_void_p.from_address(state).value = None
                self.hand_on(v, address, k)
                return 0
            except BaseException as e:
                return self.failed(item.number, error, e)
        return call

    def abandon(self, _user: int, state: int) -> None:
        collector = self.collectors.pop(C.c_void_p.from_address(state).value or 0, None)
        end = getattr(collector, "abandon", None)
        if end is not None:
            end()

    def needs_of(self, sure: Callable[[Any], bool]) -> Callable[..., int]:
        def call(_user: int, address: int, error: int) -> int:
            item = N.Item.from_address(address)
            try:
                memory = _Memory(self.native.cyto_tensors_keep(address), self.native.cyto_tensors_release)
                arrays = [_array(item.tensors[i], memory, True) for i in range(item.count)]
                return not sure(arrays[0] if len(arrays) == 1 else tuple(arrays))
            except BaseException as e:
                return -self.failed(item.number, error, e)
        return call

    # -- items in, results out

    def feed(self) -> None:
        error = Error()
        try:
            for item in self.items:
                number, _ = self.new_value(item, item)
                if self.native.cyto_pipeline_put(self.handle, _bytes_of(item_name(item)), number, 0, None, C.byref(error)):
                    self.values.pop(number, None)
                    break
        except BaseException as e:
            self.feeding_error = e
        finally:
            self.native.cyto_pipeline_close(self.handle)
            self.leave()

    def results(self) -> Iterator[Result]:
        self.start()
        try:
            address, error = C.c_void_p(), Error()
            while True:
                self.taking = True
                try:  # Ctrl-C comes out of the call
                    status = self.native.cyto_pipeline_take(self.handle, _TICK_NS, C.byref(address), C.byref(error))
                finally:
                    self.taking = False
                if status == N.NOT_READY:
                    continue
                if status == N.CANCELLED:
                    raise PipelineCancelled("the pipeline was cancelled", "cancelled")
                check(status, error)
                if not address.value:
                    break
                yield self.result(address.value)
            if self.feeding_error is not None:
                raise self.feeding_error
        finally:
            self.cancel()
            self.leave()

    def result(self, address: int) -> Result:
        item = N.Item.from_address(address)
        try:
            v = self.values[item.data]
            if not item.status:
                value = self.value_of(item, address, len(self.stages))
                return Result(item.number, v.item, value, None)
            error = PipelineError(decoded(item.message), item.number, v.item, self.stages[item.stage].name, status_name(item.status))
            error.__cause__ = self.causes.pop(item.number, None)
        finally:
            self.native.cyto_item_free(address)
        self.errors.append(error)
        if self.pipeline.on_error == "stop":
            raise error
        return Result(error.number, error.item, None, error)

    # -- ending

    def cancel(self) -> None:
        with self.lock:
            if self.handle and os.getpid() == self.pid:  # the child of a fork has none of the threads
                self.native.cyto_pipeline_cancel(self.handle)

    def leave(self) -> None:
        """The consumer, or who gives the items, needs the handle no more. The last one ends it: who gives the items may be waiting for
        them, which is no reason for others to wait."""
        with self.lock:
            self.users -= 1
            if self.users == 1:
                self.last_statistics = self.read_statistics()
            if self.users or not self.handle or os.getpid() != self.pid:
                return
            self.last_statistics = self.read_statistics()
            handle, self.handle = self.handle, None
        self.native.cyto_pipeline_destroy(handle)

    def end(self) -> None:
        """The interpreter ends: so do all threads, and then the handle, unless somebody is still using it."""
        self.cancel()
        until = time.monotonic() + _END_SECONDS
        for thread in self.threads:
            thread.join(max(until - time.monotonic(), 0))
        while self.taking and time.monotonic() < until:
            time.sleep(0.01)
        with self.lock:
            if not self.handle or self.taking or os.getpid() != self.pid or any(thread.is_alive() for thread in self.threads):
                return
            self.last_statistics = self.read_statistics()
            handle, self.handle = self.handle, None
        self.native.cyto_pipeline_destroy(handle)

    def statistics(self) -> Statistics:
        with self.lock:
            if self.handle:
                return self.read_statistics()
        return self.last_statistics or Statistics(0.0, 0, 0, 0.0, [], "", advice_on([], -1))

    def read_statistics(self) -> Statistics:
        sums = N.PipelineSums()
        self.native.cyto_pipeline_statistics_get(self.handle, C.byref(sums))
        stages = [self.stage_statistics(k) for k in range(sums.stages)]
        seconds = sums.ns / 1e9
        name = stages[sums.bottleneck].name if sums.bottleneck >= 0 else ""
        return Statistics(seconds, sums.items, sums.failed, sums.items / seconds if seconds else 0.0, stages, name,
                          advice_on(stages, sums.bottleneck))

    def stage_statistics(self, k: int) -> StageStatistics:
        s, stage = N.StageSums(), self.stages[k]
        self.native.cyto_stage_statistics_get(self.handle, k, C.byref(s))
        total = s.busy_ns + s.waiting_in_ns + s.waiting_out_ns
        kind = ("stage", "split", "join", "run")[s.kind]
        return StageStatistics(stage.name, kind, s.threads, s.items, s.failed, s.busy_ns / 1e9, s.waiting_in_ns / 1e9, s.waiting_out_ns / 1e9,
                               s.busy_ns / total if total else 0.0, s.items * s.threads * 1e9 / s.busy_ns if s.busy_ns else 0.0, s.waiting,
                               s.max_waiting, s.batches, s.rows, s.batch, s.short_of_memory, s.reused, s.passed)
