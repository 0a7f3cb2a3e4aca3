# SPDX-License-Identifier: Apache-2.0
"""runtime/cyto_pipeline.h as ctypes sees it."""
from __future__ import annotations

import ctypes as C
from typing import Any

from ._native import Error, Options, P, Tensor, i32, i64, ptr, runtime, text

MAP, SPLIT, JOIN, MODEL = range(4)  # cyto_stage_kind
STOP, SKIP = range(2)               # cyto_on_error
RUNTIME_FAILURE, NOT_READY, CANCELLED = 11, 10, 13

# Pointers to items, errors and states are plain addresses: from_address() is what reads them.
MapFn = C.CFUNCTYPE(i32, ptr, ptr, ptr)
SplitFn = C.CFUNCTYPE(i32, ptr, ptr, ptr, ptr)
AddFn = C.CFUNCTYPE(i32, ptr, ptr, ptr, ptr, ptr)
FinishFn = C.CFUNCTYPE(i32, ptr, ptr, ptr, ptr)
AbandonFn = C.CFUNCTYPE(None, ptr, ptr)
NeedsFn = C.CFUNCTYPE(i32, ptr, ptr, ptr)
ReleaseFn = C.CFUNCTYPE(None, ptr, ptr)
SpawnFn = C.CFUNCTYPE(i32, ptr, ptr, ptr)
ThreadMain = C.CFUNCTYPE(None, ptr)


class Item(C.Structure):
    _fields_ = [("number", i64), ("part", i64), ("name", text), ("data", ptr), ("count", i32), ("input_count", i32), ("tensors", P(Tensor)),
                ("inputs", P(Tensor)), ("status", i32), ("stage", i32), ("message", text)]


class StageStruct(C.Structure):
    _fields_ = [("kind", i32), ("threads", i32), ("queue", i64), ("name", text), ("user", ptr), ("map", MapFn), ("split", SplitFn),
                ("add", AddFn), ("finish", FinishFn), ("abandon", AbandonFn), ("model", ptr), ("options", P(Options)), ("batch", i64),
                ("wait_ns", i64), ("reuse", C.c_double), ("keep_inputs", i32), ("needs", NeedsFn), ("sure", C.c_double)]


class PipelineOptions(C.Structure):
    _fields_ = [("queue", i64), ("in_flight", i64), ("unordered", i32), ("on_error", i32), ("release", ReleaseFn), ("user", ptr),
                ("spawn", SpawnFn)]


class StageSums(C.Structure):
    _fields_ = [("name", text), ("kind", i32), ("threads", i32), ("items", i64), ("failed", i64), ("busy_ns", i64), ("waiting_in_ns", i64),
                ("waiting_out_ns", i64), ("waiting", i64), ("max_waiting", i64), ("batches", i64), ("rows", i64), ("batch", i64),
                ("short_of_memory", i64), ("reused", i64), ("passed", i64)]


class PipelineSums(C.Structure):
    _fields_ = [("items", i64), ("failed", i64), ("ns", i64), ("stages", i32), ("bottleneck", i32)]


# name: (result, arguments), as in _native.py
FUNCTIONS = {
    "cyto_pipeline_create": (i32, P(StageStruct), i32, P(PipelineOptions), P(ptr), P(Error)), "cyto_pipeline_destroy": (None, ptr),
    "cyto_pipeline_put": (i32, ptr, text, ptr, i32, ptr, P(Error)), "cyto_pipeline_close": (None, ptr),
    "cyto_pipeline_take": (i32, ptr, i64, P(ptr), P(Error)), "cyto_pipeline_cancel": (None, ptr),
    "cyto_pipeline_statistics_get": (None, ptr, P(PipelineSums)), "cyto_stage_statistics_get": (i32, ptr, i32, P(StageSums)),
    "cyto_item_set_tensors": (i32, ptr, i32, ptr), "cyto_item_free": (None, ptr), "cyto_tensors_keep": (ptr, ptr),
    "cyto_tensors_release": (None, ptr), "cyto_emit": (i32, ptr, ptr, i32, ptr),
    "cyto_tiles_blend": (i32, ptr, ptr, i64, ptr, ptr, ptr, P(Error)), "cyto_tiles_blend_last": (i32, ptr, ptr, i64, i64, ptr, ptr, ptr, P(Error)),
}
_SHORT = {"cyto_item_set_tensors", "cyto_tensors_keep", "cyto_tensors_release"}
_declared: dict[str, Any] = {}


class Functions:
    """The functions of libcyto.so, declared when first asked for."""

    def __init__(self) -> None:
        if not _declared:
            path = runtime().path
            with_gil, without_gil = C.PyDLL(path), C.CDLL(path)
            found = {}
            for name, (result, *arguments) in FUNCTIONS.items():
                function = getattr(with_gil if name in _SHORT else without_gil, name)
                function.restype, function.argtypes = result, arguments
                found[name] = function
            _declared.update(found)
        self.__dict__.update(_declared)

    def __getattr__(self, name: str) -> Any:  # for type checkers
        raise AttributeError(name)
