# SPDX-License-Identifier: Apache-2.0
"""The C interfaces, runtime/cyto.h and tools/driver/cytoc.h, as ctypes sees them.

In:  the libraries that are part of the package (`_lib`), or those that CYTOC_LIB_DIR names, a build folder for one.
Out: `runtime()` and `compiler()`, loaded when first asked for; structs; `check()`, which makes exceptions of errors.
"""
from __future__ import annotations

import ctypes as C
import os
import threading
from typing import Any, Optional, Type

from ._errors import CytocError, LoadError, RunError

MAX_RANK = 12
i32, i64, u64, ptr, text = C.c_int32, C.c_int64, C.c_uint64, C.c_void_p, C.c_char_p

# cyto_status, by number
STATUSES = ("ok", "invalid argument", "shape mismatch", "dtype mismatch", "out of memory", "buffer too small", "not found",
            "bad library", "unsupported CPU", "index out of range", "not ready", "failure while running", "no usable device",
            "cancelled")
INVALID_ARGUMENT, SHAPE_MISMATCH, DTYPE_MISMATCH, OUT_OF_MEMORY = 1, 2, 3, 4
TENSOR, SEQUENCE, OPTIONAL, MAP = range(4)  # cyto_kind


class Error(C.Structure):
    _fields_ = [("code", i32), ("message", C.c_char * 1024)]


class Type_(C.Structure):
    pass


Type_._fields_ = [("kind", i32), ("dtype", i32), ("of", C.POINTER(Type_))]


class Port(C.Structure):
    _fields_ = [("name", text), ("dtype", i32), ("rank", i32), ("dims", i64 * MAX_RANK), ("dim_names", text * MAX_RANK),
                ("type", C.POINTER(Type_)), ("is_optional", i32), ("is_dynamic", i32), ("shared_input", i32),
                ("grown_input", i32), ("grown_axis", i32), ("reserved", C.c_uint8 * 256)]  # room for fields that later versions append


class String(C.Structure):
    _fields_ = [("text", ptr), ("length", u64)]


class Tensor(C.Structure):
    _fields_ = [("data", ptr), ("bytes", u64), ("dtype", i32), ("rank", i32), ("dims", i64 * MAX_RANK)]


class Value(C.Structure):
    pass


Value._fields_ = [("kind", i32), ("tensor", Tensor), ("items", C.POINTER(Value)), ("count", u64)]


class Allocator(C.Structure):
    _fields_ = [("alloc", ptr), ("release", ptr), ("user", ptr)]


class DeviceAllocator(C.Structure):
    _fields_ = [("alloc", ptr), ("release", ptr), ("user", ptr)]


class Options(C.Structure):
    _fields_ = [("threads", i32), ("parallel", ptr), ("parallel_user", ptr), ("allocator", Allocator), ("device", i32),
                ("device_memory", i32), ("stream", ptr), ("devices", C.POINTER(i32)), ("device_count", i32), ("device_errors", i32),
                ("device_pool", i32), ("device_allocator", DeviceAllocator), ("device_weights", u64), ("reserved", C.c_uint8 * 256)]


class Memory(C.Structure):
    _fields_ = [("weights", u64), ("arena", u64), ("outputs", u64), ("context", u64)]


class MemoryUse(C.Structure):
    _fields_ = [("name", text), ("in_use", u64), ("peak", u64)]


class TunedStruct(C.Structure):
    _fields_ = [("threads", i32), ("contexts", i32), ("batch", i64), ("cpus", i32), ("symbol", C.c_char * 64)]


class TraceSums(C.Structure):
    _fields_ = [("node", text), ("ops", text), ("algorithm", text), ("kernel", text), ("flops", C.c_double), ("bytes", C.c_double),
                ("floor_ns", C.c_double), ("assumed", text), ("position", i64), ("other_sizes", i32), ("runs", i64), ("ns", i64), ("first_runs", i64),
                ("first_ns", i64)]


class Diagnostic(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("severity", C.c_int), ("file", text), ("graph", text), ("node", text), ("op", text),
                ("node_index", i64), ("item", text), ("text", text), ("line", text)]


ExternalFn = C.CFUNCTYPE(C.c_int, ptr, text, u64, u64, C.POINTER(ptr), C.POINTER(u64))
DiagnosticFn = C.CFUNCTYPE(None, ptr, C.POINTER(Diagnostic))
ProgressFn = C.CFUNCTYPE(C.c_int, ptr, text, i64, i64)


class Job(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("model_path", text), ("model", ptr), ("model_size", C.c_size_t), ("model_dir", text),
                ("external", ExternalFn), ("options", C.POINTER(text)), ("option_count", C.c_size_t), ("output_path", text),
                ("ctx", ptr), ("on_diagnostic", DiagnosticFn), ("on_progress", ProgressFn)]


class Result(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("status", C.c_int), ("message", text), ("library", ptr), ("library_size", C.c_size_t),
                ("header", text), ("report", text), ("owner", ptr)]


P = C.POINTER
# name: (result, arguments)
_RUNTIME = {
    "cyto_dtype_name": (text, i32), "cyto_dtype_bits": (i32, i32),
    "cyto_model_load": (i32, text, P(ptr), P(Error)), "cyto_model_unload": (None, ptr),
    "cyto_model_name": (text, ptr), "cyto_model_target": (text, ptr), "cyto_model_compiler": (text, ptr),
    "cyto_model_metadata_count": (i32, ptr), "cyto_model_metadata": (i32, ptr, i32, P(text), P(text)),
    "cyto_model_input_count": (i32, ptr), "cyto_model_output_count": (i32, ptr),
    "cyto_model_input": (i32, ptr, i32, P(Port)), "cyto_model_output": (i32, ptr, i32, P(Port)),
    "cyto_cpu_count": (i32,), "cyto_context_create": (i32, ptr, P(Options), P(ptr), P(Error)),
    "cyto_context_destroy": (None, ptr), "cyto_context_describe": (None, ptr, text, u64),
    "cyto_bind_value": (i32, ptr, i32, P(Value), P(Error)), "cyto_context_prepare": (i32, ptr, P(Error)),
    "cyto_context_keep": (i32, ptr, i64, P(Error)), "cyto_context_rewind": (i32, ptr, i64, P(Error)),
    "cyto_output_value": (i32, ptr, i32, P(Value), P(Error)),
    "cyto_memory_need": (i32, ptr, P(Options), P(P(i64)), P(Memory), P(Error)),
    "cyto_memory_snapshot": (i32, ptr, P(MemoryUse), i32),
    "cyto_tuned_read": (i32, text, ptr, P(TunedStruct), P(Error)),
    "cyto_trace_start": (i32, ptr, i64, P(Error)), "cyto_trace_stop": (i32, ptr, P(Error)),
    "cyto_trace_write": (i32, ptr, text, P(Error)), "cyto_trace_step_count": (i64, ptr),
    "cyto_trace_step": (i32, ptr, i64, P(TraceSums)),
    # on the path of a run, where ctypes converts fastest what is declared as a plain pointer
    "cyto_bind_input": (i32, ptr, i32, i32, i32, ptr, ptr, ptr), "cyto_bind_output": (i32, ptr, i32, ptr, u64, ptr),
    "cyto_run": (i32, ptr, ptr), "cyto_output": (i32, ptr, i32, ptr, ptr),
}
_COMPILER = {
    "cytoc_compile": (i32, P(Job), P(Result)), "cytoc_result_free": (None, P(Result)), "cytoc_status_name": (text, i32),
    "cytoc_version": (text,), "cytoc_native_target": (text,), "cytoc_build_id": (text,),
}
# Calls so short that giving up the interpreter's lock for them would cost more than they do.
_SHORT = {"cyto_bind_input", "cyto_bind_output", "cyto_output"}

_lock = threading.Lock()
_loaded: dict[str, "_Library"] = {}


def library_dir() -> str:
    """Where the package's native files are."""
    return os.environ.get("CYTOC_LIB_DIR") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "_lib")


class _Library:
    """The functions of a shared library, declared."""

    def __init__(self, path: str, table: dict[str, tuple[Any, ...]]) -> None:
        with_gil, without_gil = C.PyDLL(path), C.CDLL(path)
        for name, (result, *arguments) in table.items():
            function = getattr(with_gil if name in _SHORT else without_gil, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        self.path = path

    def __getattr__(self, name: str) -> Any:  # for type checkers: functions are set above
        raise AttributeError(name)


def _open(file: str, table: dict[str, tuple[Any, ...]]) -> _Library:
    with _lock:
        if file not in _loaded:
            path = os.path.join(library_dir(), file)
            try:
                _loaded[file] = _Library(path, table)
            except (OSError, AttributeError) as e:
                raise LoadError("cytoc's native library cannot be used: %s; reinstall the package, or set CYTOC_LIB_DIR to a build "
                                "folder of the same version" % e) from None
        return _loaded[file]


def runtime() -> _Library:
    return _open("libcyto.so", _RUNTIME)


def compiler() -> _Library:
    return _open("libcytoc.so", _COMPILER)


def check(status: int, error: Error, kind: Type[CytocError] = RunError) -> None:
    """Raises `kind` for a status that is not CYTO_OK."""
    if status:
        message = error.message.decode("utf-8", "replace")
        if issubclass(kind, RunError):
            raise kind(message, status_name(status))
        raise kind(message)


def status_name(status: int) -> str:
    return STATUSES[status] if status < len(STATUSES) else "status %d" % status


def decoded(value: Optional[bytes]) -> str:
    return (value or b"").decode("utf-8", "replace")
