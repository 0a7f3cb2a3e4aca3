# SPDX-License-Identifier: Apache-2.0
"""Model: a compiled library, its inputs and outputs, and how it is run.

A context of the runtime belongs to one run at a time; a model keeps those it has made and makes another when all are in use, so that
any number of threads may call it. The interpreter's lock is released while a model computes.

Models for CUDA have contexts of two kinds: those whose tensors lie in the host's memory, and those whose tensors all lie on the device,
which are used where an input does.
"""
from __future__ import annotations

import contextlib
import ctypes as C
import os
import shutil
import warnings
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from . import _dlpack, _dtypes, _values
from ._errors import CytocError, InputError, LoadError, RunError
from ._native import (MAX_RANK, OUT_OF_MEMORY, Error, MemoryUse, Options, Port, Tensor, TraceSums, TunedStruct, Value, check, decoded, runtime)

Dim = Union[int, str]


class Tensorinfo(NamedTuple):
    """An input or output: its name, element type ("float32", or "seq(..)", "map(..)", "optional(..)"), and shape, in which a size that
    the model leaves open is its symbol's name ("" without one)."""
    name: str
    dtype: str
    shape: Tuple[Dim, ...]
    optional: bool = False  # an input that may be left out
    dynamic: bool = False   # an output whose shape depends on data
    shared_input: str = ""  # an output that may be written to the memory of this input: of a cache the new rows alone are written
    grown_input: str = ""   # an output that is this input with new rows behind it: Binding.keep()


class _Slot:
    """What running needs to know of an input or output."""
    __slots__ = ("name", "number", "dtype", "kind", "rank", "is_tensor", "optional", "dynamic", "direct", "type", "info",
                 "static_shape")

    def __init__(self, port: Port, number: int, input_names: List[str]) -> None:
        self.name, self.number, self.kind, self.rank = decoded(port.name), number, port.dtype, port.rank
        self.type = port.type.contents
        self.is_tensor = self.type.kind == 0
        self.optional, self.dynamic = bool(port.is_optional), bool(port.is_dynamic)
        # numbers of whole bytes are written where the caller says
        self.direct = self.is_tensor and port.dtype != _dtypes.STRING and _dtypes.bits(port.dtype) >= 8
        self.dtype: Optional[np.dtype[Any]] = None
        shape = tuple(port.dims[k] if port.dims[k] >= 0 else decoded(port.dim_names[k]) for k in range(port.rank))
        self.static_shape = shape if all(isinstance(d, int) for d in shape) else None
        text = _dtypes.name(port.dtype) if self.is_tensor else _values.type_text(self.type)
        shared, grown = [input_names[k] if 0 <= k < len(input_names) else "" for k in (port.shared_input, port.grown_input)]
        self.info = Tensorinfo(self.name, text, shape, self.optional, self.dynamic, shared, grown)


class _Context:
    """A context of the runtime, and what it was last bound to. on_device: its tensors lie in the memory of the model's CUDA device."""

    def __init__(self, model: "Model", on_device: bool = False) -> None:
        self.model, self.native, self.on_device = model, runtime(), on_device
        self.error = Error()
        self.error_ref = C.addressof(self.error)
        handle = C.c_void_p()
        options = model._options()
        if on_device:
            from ._cuda import LEGACY_STREAM
            options.device_memory, options.stream = 1, LEGACY_STREAM
        check(self.native.cyto_context_create(model._handle, C.byref(options), C.byref(handle), C.byref(self.error)), self.error)
        self.handle = handle.value
        n = len(model._inputs)
        self.shapes: List[Any] = [None] * n           # of what is bound
        self.addresses: List[Optional[int]] = [None] * n  # .. and where it is; None: another value
        self.dims = [(C.c_int64 * MAX_RANK)() for _ in range(n)]
        self.dims_at = [C.addressof(d) for d in self.dims]
        self.out_shapes: Optional[List[Any]] = None   # known for the bound shapes; None: they have to be asked for
        self.tensor = Tensor()
        self.tensor_ref = C.addressof(self.tensor)
        self.out_addresses: List[Optional[int]] = [None] * len(model._outputs)  # where outputs are bound; None: nowhere
        self.run_native, self.bind_input, self.bind_output = (self.native.cyto_run, self.native.cyto_bind_input,
                                                              self.native.cyto_bind_output)
        self.nothing: Any = None  # memory of the device for tensors without elements

    def close(self) -> None:
        if self.handle:
            self.native.cyto_context_destroy(self.handle)
            self.handle = None

    def fail(self, status: int) -> None:
        self.shapes = [None] * len(self.shapes)
        self.addresses = [None] * len(self.addresses)
        self.out_shapes = None
        check(status, self.error, InputError if status in (1, 2, 3) else RunError)

    # -- inputs

    def bind(self, k: int, x: Any, keep: List[Any]) -> None:
        """Binds x, an array, a tensor through DLPack or a Python value, as input k."""
        slot, absent = self.model._inputs[k], x is None
        if absent and slot.optional:
            self.bind_raw(k, slot.kind, None, 0)
            return
        if self.on_device:
            b = self.on_the_device(slot, x)
            keep.append(b)
            self.bind_raw(k, slot.kind, b.shape, b.address)
            return
        if not slot.direct:
            self.bind_value(k, slot, x, keep)
            return
        dtype = slot.dtype
        if dtype is None:
            dtype = slot.dtype = _dtypes.numpy_type(slot.kind)
        if type(x) is np.ndarray and x.dtype == dtype:
            flags = x.flags
            if not (flags.c_contiguous and flags.aligned):
                x = x.copy() if flags.c_contiguous else np.ascontiguousarray(x)
        else:
            x = converted(slot, dtype, x)
            if type(x) is _dlpack.Borrowed:
                keep.append(x)
                self.bind_raw(k, slot.kind, x.shape, x.address)
                return
        keep.append(x)
        self.bind_raw(k, slot.kind, x.shape, x.__array_interface__["data"][0])

    def bind_raw(self, k: int, kind: int, shape: Optional[Tuple[int, ...]], address: int) -> None:
        if shape != self.shapes[k]:
            self.out_shapes = None
            self.shapes[k] = shape
            if shape is not None:
                if len(shape) > MAX_RANK:
                    self.shapes[k] = None
                    raise InputError("input '%s': %d dimensions are more than a tensor may have, %d" %
                                     (self.model._inputs[k].name, len(shape), MAX_RANK))
                self.dims[k][:len(shape)] = list(shape)
        if shape is not None and not address:  # tensors of no elements may have no address
            address = self.empty_address()
        self.addresses[k] = None
        status = self.bind_input(self.handle, k, kind, len(shape or ()), self.dims_at[k], None if shape is None else address,
                                 self.error_ref)
        if status:
            self.fail(status)
        self.addresses[k] = None if shape is None else address

    def on_the_device(self, slot: _Slot, x: Any) -> _dlpack.Borrowed:
        """A tensor of the model's device, borrowed; InputError for everything else."""
        from ._cuda import LEGACY_STREAM
        where, device = "input '%s'" % slot.name, self.model._device
        if not slot.direct or not _dlpack.is_dlpack(x) or _dlpack.device_of([x]) is None:
            raise InputError("%s: expected a tensor in the memory of CUDA device %d, as other inputs are, found %s in the host's" %
                             (where, device, _values.describe(x)))
        b = _dlpack.borrow(x, where, LEGACY_STREAM)
        if b.device != device:
            raise InputError("%s: the tensor is in the memory of CUDA device %s, and the model runs on device %d; copy it, or open the "
                             "model with device=%s" % (where, b.device, device, b.device))
        if b.dtype != slot.kind:
            raise InputError("%s: expected %s, found a %s" % (where, _dtypes.name(slot.kind), _values.describe(b)))
        if b.contiguous:
            return b
        if not hasattr(x, "contiguous"):
            raise InputError("%s: the tensor is not dense; give a dense copy of it" % where)
        return _dlpack.borrow(x.contiguous(), where, LEGACY_STREAM)

    def empty_address(self) -> int:
        if not self.on_device:
            return self.error_ref
        if self.nothing is None:
            from ._cuda import DeviceArray
            self.nothing = DeviceArray((), 2, self.model._device)
        return int(self.nothing.address)

    def bind_value(self, k: int, slot: _Slot, x: Any, keep: List[Any]) -> None:
        where = "input '%s'" % slot.name
        held: List[Any] = []
        value = _values.value_in(x, slot.type, where, held)
        keep.append((value, held))
        self.shapes[k], self.addresses[k], self.out_shapes = None, None, None
        status = self.native.cyto_bind_value(self.handle, k, C.byref(value), C.byref(self.error))
        if status:
            self.fail(status)

    # -- outputs

    def shape_of_output(self, k: int) -> Tuple[int, ...]:
        status = self.native.cyto_output(self.handle, k, self.tensor_ref, self.error_ref)
        if status:
            self.fail(status)
        return tuple(self.tensor.dims[:self.tensor.rank])

    def prepare_outputs(self) -> List[Any]:
        """Shapes of the outputs that are written where we say, None for the others."""
        self.unbind()  # memory for other sizes
        status = self.native.cyto_context_prepare(self.handle, C.byref(self.error))
        if status:
            self.fail(status)
        self.out_shapes = [self.shape_of_output(k) if slot.direct and not slot.dynamic else None
                           for k, slot in enumerate(self.model._outputs)]
        return self.out_shapes

    def new_output(self, slot: _Slot, shape: Tuple[int, ...]) -> Tuple[Any, int, int]:
        """An array for an output, its address and its bytes."""
        if self.on_device:
            from ._cuda import DeviceArray
            there = DeviceArray(shape, slot.kind, self.model._device)
            return there, there.address, there.nbytes
        if slot.dtype is None:
            slot.dtype = _dtypes.numpy_type(slot.kind)
        array: np.ndarray[Any, Any] = np.empty(shape, slot.dtype)
        return array, array.__array_interface__["data"][0], array.nbytes

    def run(self, inputs: Sequence[Any], wanted: Optional[Sequence[int]] = None, given: Optional[Mapping[int, "_Given"]] = None) \
            -> List[Any]:
        """The outputs, in order; None where `wanted` does not name them. given: what outputs shall be written to."""
        keep: List[Any] = []
        for k, x in enumerate(inputs):
            self.bind(k, x, keep)
        shapes = self.out_shapes if self.out_shapes is not None else self.prepare_outputs()
        results = []
        for k, slot in enumerate(self.model._outputs):
            shape, array = shapes[k], None
            if shape is not None and (wanted is None or k in wanted):
                place = given.get(k) if given else None
                if place is None:
                    array, address, size = self.new_output(slot, shape)
                elif place.shape != shape:
                    raise InputError("output '%s': the array given has shape %s, expected %s" % (slot.name, place.shape, shape))
                else:
                    array, address, size = place.array, place.address, place.size
                status = self.bind_output(self.handle, k, address, size, self.error_ref)
                self.out_addresses[k] = address
                if status:
                    self.fail(status)
            elif self.out_addresses[k] is not None:
                self.bind_output(self.handle, k, None, 0, self.error_ref)
                self.out_addresses[k] = None
            results.append(array)
        status = self.run_native(self.handle, self.error_ref)
        if status:
            self.fail(status)
        if self.on_device:
            self.wait()
        for k, slot in enumerate(self.model._outputs):
            if results[k] is None and (wanted is None or k in wanted):
                results[k] = self.fetch(k, slot)
        return results

    def call(self, inputs: Sequence[Any]) -> Any:
        """What run() does for all outputs, where it is often done: dense arrays of the sizes of the run before, in and out. What lies
        where it lay then is bound already. The output, or a tuple of them."""
        handle, error, shapes, addresses = self.handle, self.error_ref, self.out_shapes, self.addresses
        if shapes is None or self.on_device:
            results = self.run(inputs)
            return results[0] if len(results) == 1 else tuple(results)
        for k, slot in enumerate(self.model._inputs):
            x = inputs[k]
            if type(x) is not _ndarray or x.dtype is not slot.dtype or x.shape != self.shapes[k] or not _is_dense(x):
                results = self.run(inputs)
                return results[0] if len(results) == 1 else tuple(results)
            address = _address(x)
            if address != addresses[k]:
                self.bind_raw(k, slot.kind, x.shape, address)
        outputs: List[Any] = []
        for k, slot in enumerate(self.model._outputs):
            shape = shapes[k]
            if shape is None:
                outputs.append(None)
                continue
            if slot.dtype is None:
                slot.dtype = _dtypes.numpy_type(slot.kind)
            y: np.ndarray[Any, Any] = _empty(shape, slot.dtype)
            address = _address(y)
            if address != self.out_addresses[k]:
                status = self.bind_output(handle, k, address, y.nbytes, error)
                if status:
                    self.fail(status)
                self.out_addresses[k] = address
            outputs.append(y)
        status = self.run_native(handle, error)
        if status:
            self.fail(status)
        if len(outputs) == 1 and shapes[0] is not None:
            return outputs[0]
        for k, slot in enumerate(self.model._outputs):
            if outputs[k] is None:
                outputs[k] = self.fetch(k, slot)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def fetch(self, k: int, slot: _Slot) -> Any:
        """A copy of an output that the context owns."""
        value = Value()
        status = self.native.cyto_output_value(self.handle, k, C.byref(value), C.byref(self.error))
        if status:
            self.fail(status)
        found = _values.value_out(value)
        if self.on_device and slot.direct:
            from ._cuda import DeviceArray
            return DeviceArray(found.shape, slot.kind, self.model._device).fill(found)
        return found

    def wait(self) -> None:
        """For what a run has put on the stream."""
        from ._cuda import driver
        driver().wait(self.model._device)

    def memory_snapshot(self) -> Dict[str, Dict[str, int]]:
        uses = (MemoryUse * 16)()
        n = self.native.cyto_memory_snapshot(self.handle, uses, len(uses))
        return {decoded(u.name): {"in_use": u.in_use, "peak": u.peak} for u in uses[:n]}

    def unbind(self) -> None:
        """Forgets memory of the caller's."""
        for k, address in enumerate(self.out_addresses):
            if address is not None:
                self.bind_output(self.handle, k, None, 0, self.error_ref)
                self.out_addresses[k] = None


def converted(slot: _Slot, dtype: np.dtype[Any], x: Any) -> Any:
    """x as a dense array of that type, or borrowed; InputError where that would change its numbers' type."""
    where = "input '%s'" % slot.name
    if _dlpack.is_dlpack(x):
        b = _dlpack.borrow(x, where)
        if b.device is not None:
            raise InputError("%s: the tensor is in the memory of CUDA device %d, and the model runs on the CPU; copy it there, "
                             "x.cpu() in PyTorch, or compile with target='cuda'" % (where, b.device))
        if b.dtype != slot.kind:
            raise InputError("%s: expected %s, found a %s" % (where, dtype.name, _values.describe(b)))
        if b.contiguous:
            return b
        if hasattr(x, "contiguous"):  # PyTorch's
            return _dlpack.borrow(x.contiguous(), where)
        x = np.from_dlpack(x)
    array = np.asarray(x)
    if array.dtype != dtype:
        if array.dtype.newbyteorder("=") == dtype:
            array = array.astype(dtype)
        elif isinstance(x, (int, float, bool, list, tuple)) and array.dtype.kind in "iufb":
            with np.errstate(all="ignore"):
                cast = array.astype(dtype)
            if array.dtype.kind in "iub" and not np.array_equal(cast.astype(array.dtype), array):
                raise InputError("%s: the numbers given do not fit %s" % (where, dtype.name))
            if array.dtype.kind == "f" and dtype.kind in "iub":
                raise InputError("%s: expected %s, found numbers with fractions" % (where, dtype.name))
            array = cast
        else:
            raise InputError("%s: expected %s of shape %s, found a %s; convert it with .astype('%s')" %
                             (where, dtype.name, shape_text(slot.info.shape), _values.describe(array), dtype.name))
    return np.require(array, dtype, ["C", "A"])


_ndarray, _empty, _addressof = np.ndarray, np.empty, C.addressof
_first_byte: Any = C.c_char.from_buffer


def _is_dense(x: np.ndarray[Any, Any]) -> bool:
    flags = x.flags
    return flags.c_contiguous and flags.aligned


def _address(x: np.ndarray[Any, Any]) -> int:
    try:
        return _addressof(_first_byte(x))  # the fastest of many ways
    except (TypeError, ValueError):  # nothing to write to, or no elements
        return int(x.__array_interface__["data"][0])


class Tuned(NamedTuple):
    """What `cyto-tune` has chosen for a model: threads of each run, runs side by side, and the size of the dim `symbol` for each of them (0
    and "": the model fixes it). cpus: of the machine that it was measured on."""
    threads: int
    contexts: int
    batch: int
    cpus: int
    symbol: str


class _Given(NamedTuple):
    """Memory of the caller's for an output, and what it belongs to."""
    array: Any
    address: int
    size: int
    shape: Tuple[int, ...]


def shape_text(shape: Sequence[Dim]) -> str:
    return "[%s]" % ", ".join(str(d) or "?" for d in shape)


class Model:
    """A compiled model, ready to run. Made by `cytoc.load` and `cytoc.compile`.

    Calling it runs it: `model(x)`, `model(a, b)` in the order of the inputs, or `model(image=x)` by their names. The answer is the
    output's array, or a tuple of them in the model's order. Threads may call one model at once.
    """

    def __init__(self, path: str, *, threads: Optional[int] = None, device: int = 0, devices: Optional[Sequence[int]] = None,
                 device_errors: str = "again", device_pool: bool = False, device_weights: int = 0,
                 tuned: Optional[Union[str, "os.PathLike[str]"]] = None, _owned: Optional[str] = None, _elsewhere: bool = False) -> None:
        self._handle: Optional[int] = None
        self.tuned: Optional[Tuned] = None
        self._free: List[_Context] = []
        self._free_on_device: List[_Context] = []
        self._threads, self._device, self._owned = threads or 0, device, _owned
        self._devices = None if devices is None else (C.c_int32 * max(len(devices), 1))(*devices)
        self._device_errors = {"again": 0, "stop": 1}.get(device_errors, -1)
        if self._device_errors < 0:
            raise ValueError("device_errors: expected 'again' or 'stop', found %r" % (device_errors,))
        if device_weights < 0 or device_weights != int(device_weights):
            raise ValueError("device_weights: expected a number of bytes, or 0 for as many as there are, found %r" % (device_weights,))
        self._device_pool, self._device_weights = bool(device_pool), int(device_weights)
        if devices is not None and (not len(devices) or len(set(devices)) < len(devices)):
            raise ValueError("devices: expected different numbers of devices, found %r" % (list(devices),))
        if self._threads < 0:
            raise ValueError("threads: expected a positive number or None, found %r" % threads)
        self.path = os.fspath(path)
        native, error, handle = runtime(), Error(), C.c_void_p()
        self._pid = os.getpid()
        self._inputs: List[_Slot] = []
        self._outputs: List[_Slot] = []
        self._why_closed: CytocError = RunError("the model was closed")
        try:
            check(native.cyto_model_load(os.fsencode(self.path), C.byref(handle), C.byref(error)), error, LoadError)
        except LoadError as e:
            if not _elsewhere:
                raise
            self._why_closed = LoadError("the model is for another machine, where it can be saved to and loaded: %s" % e)
            return
        self._handle = handle.value
        self._inputs = self._slots(native.cyto_model_input_count, native.cyto_model_input, [])
        self._outputs = self._slots(native.cyto_model_output_count, native.cyto_model_output, [slot.name for slot in self._inputs])
        self._for_cuda = self.target.startswith(("sm_", "cuda"))
        if tuned is not None:
            self._take_tuned(os.fspath(tuned))
        self._index = {slot.name: slot.number for slot in self._inputs}

    def _take_tuned(self, path: str) -> None:
        native, error, found = runtime(), Error(), TunedStruct()
        check(native.cyto_tuned_read(os.fsencode(path), self._handle, C.byref(found), C.byref(error)), error, LoadError)
        self.tuned = Tuned(found.threads, found.contexts, found.batch, found.cpus, decoded(found.symbol))
        cpus = native.cyto_cpu_count()
        if cpus != found.cpus:
            warnings.warn("'%s' was measured with %d CPUs, and here are %d: run cyto-tune again" % (path, found.cpus, cpus), stacklevel=4)
        self._threads = self._threads or found.threads

    def _options(self, threads: Optional[int] = None) -> Options:
        """For a context."""
        options = Options(threads=threads or self._threads, device=self._device, device_errors=self._device_errors,
                          device_pool=self._device_pool, device_weights=self._device_weights)
        if self._devices is not None:
            options.devices, options.device_count = C.cast(self._devices, C.POINTER(C.c_int32)), len(self._devices)
        return options

    def _slots(self, count: Any, get: Any, input_names: List[str]) -> List[_Slot]:
        found = []
        for k in range(count(self._handle)):
            port = Port()
            get(self._handle, k, C.byref(port))
            found.append(_Slot(port, k, input_names))
        return found

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # the interpreter may be going down
            pass

    def close(self) -> None:
        """Gives contexts and library back. The model cannot be run afterwards."""
        for free in self._free, self._free_on_device:
            while free:
                free.pop().close()
        if self._handle:
            runtime().cyto_model_unload(self._handle)
            self._handle = None
        if self._owned and os.getpid() == self._pid:
            shutil.rmtree(self._owned, ignore_errors=True)
            self._owned = None

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    # -- what it is

    @property
    def runs_here(self) -> bool:
        """Can this machine open it? A model that was compiled for another, by `target`, can be saved alone."""
        return bool(self._handle)

    @property
    def inputs(self) -> List[Tensorinfo]:
        self._open()
        return [slot.info for slot in self._inputs]

    @property
    def outputs(self) -> List[Tensorinfo]:
        self._open()
        return [slot.info for slot in self._outputs]

    @property
    def name(self) -> str:
        """The name of the ONNX graph."""
        return decoded(runtime().cyto_model_name(self._open()))

    @property
    def target(self) -> str:
        """What the library was compiled for: "x86-64-v3"."""
        return decoded(runtime().cyto_model_target(self._open()))

    @property
    def metadata(self) -> Dict[str, str]:
        """What the ONNX file says about itself (metadata_props)."""
        native, found = runtime(), {}
        for k in range(native.cyto_model_metadata_count(self._open())):
            key, value = C.c_char_p(), C.c_char_p()
            native.cyto_model_metadata(self._handle, k, C.byref(key), C.byref(value))
            found[decoded(key.value)] = decoded(value.value)
        return found

    def __repr__(self) -> str:
        if not self._handle:
            return "<cytoc.Model, %s>" % ("closed" if isinstance(self._why_closed, RunError) else "for another machine")
        ports = ["(%s)" % ", ".join("%s: %s%s" % (p.name, p.dtype, shape_text(p.shape)) for p in side)
                 for side in (self.inputs, self.outputs)]
        return "<cytoc.Model '%s' for %s: %s -> %s>" % (self.name, self.target, *ports)

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Copies the library, and the file of weights that large models have beside it."""
        target = os.fspath(path)
        for ending in (".weights", ""):
            if os.path.exists(self.path + ending):
                new = "%s%s.%d.new" % (target, ending, os.getpid())
                try:  # into place as a whole: what is there may be loaded
                    shutil.copyfile(self.path + ending, new)
                    os.replace(new, target + ending)
                except OSError:
                    if os.path.exists(new):
                        os.remove(new)
                    raise

    # -- running

    def _open(self) -> int:
        if not self._handle:
            raise self._why_closed
        return self._handle

    def _take(self, on_device: bool = False) -> _Context:
        if os.getpid() != self._pid:  # a child has none of the parent's threads, and must not wait for them
            self._free, self._free_on_device, self._pid, self._owned = [], [], os.getpid(), None
        try:
            return (self._free_on_device if on_device else self._free).pop()
        except IndexError:
            self._open()
            return _Context(self, on_device)

    def _give_back(self, context: _Context) -> None:
        (self._free_on_device if context.on_device else self._free).append(context)

    def _lie_on_device(self, values: Sequence[Any]) -> bool:
        """Is there a tensor in the memory of a device? Models for CPUs refuse it where it is bound."""
        return self._for_cuda and _dlpack.device_of(values) is not None

    def _arguments(self, args: Sequence[Any], named: Mapping[str, Any]) -> List[Any]:
        """Values of all inputs, in order; None for optional ones that are not given."""
        n = len(self._inputs)
        if not named and len(args) == n:
            return list(args)
        if len(args) > n:
            raise InputError("%d inputs given, the model has %d: %s" % (len(args), n, ", ".join(self._index)))
        values: List[Any] = list(args) + [None] * (n - len(args))
        for name, x in named.items():
            k = self._index.get(name)
            if k is None:
                meant = _values.similar(name, list(self._index))
                raise InputError("the model has no input '%s'%s; its inputs are %s" %
                                 (name, ": did you mean '%s'?" % meant if meant else "", ", ".join(self._index)))
            if k < len(args):
                raise InputError("input '%s' is given twice" % name)
            values[k] = x
        missing = [s.name for s, x in zip(self._inputs, values) if x is None and not s.optional and s.type.kind != 2]
        if missing:
            raise InputError("inputs are missing: %s" % ", ".join("'%s'" % m for m in missing))
        return values

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Runs the model. Inputs are NumPy arrays, tensors of any framework with DLPack (without a copy where they are dense and on
        the CPU), lists, or Python's strings, lists and dicts for strings, sequences and maps. Their type must be the input's: nothing
        is rounded in silence. Raises InputError for what does not fit, RunError when the run fails."""
        if not self._handle:
            raise self._why_closed
        values = args if not named and len(args) == len(self._inputs) else self._arguments(args, named)
        try:
            context = self._take(True) if self._for_cuda and self._lie_on_device(values) else \
                self._free.pop() if os.getpid() == self._pid else self._take()
        except IndexError:
            context = self._take()
        try:
            return context.call(values)
        finally:
            (self._free_on_device if context.on_device else self._free).append(context)

    def run(self, output_names: Optional[Sequence[str]], feeds: Mapping[str, Any], *,
            out: Optional[Mapping[str, Any]] = None) -> List[Any]:
        """A list of the named outputs (None: all of them). out: arrays, of the right type and shape, that outputs are written to, or
        tensors of the device, where the inputs lie there."""
        self._open()
        if output_names is None and not out:
            values = self._arguments((), feeds)
            context = self._take(self._lie_on_device(values))
            try:
                found = context.call(values)
            finally:
                self._give_back(context)
            return [found] if len(self._outputs) == 1 else list(found)
        names = [s.name for s in self._outputs]
        for name in list(output_names or ()) + list(out or ()):
            if name not in names:
                meant = _values.similar(name, names)
                raise InputError("the model has no output '%s'%s; its outputs are %s" %
                                 (name, ": did you mean '%s'?" % meant if meant else "", ", ".join(names)))
        values = self._arguments((), feeds)
        on_device = self._lie_on_device(values)
        given = {names.index(name): self._writable(self._outputs[names.index(name)], a, on_device) for name, a in (out or {}).items()}
        wanted = None if output_names is None else [names.index(name) for name in output_names]
        context = self._take(on_device)
        try:
            results = context.run(values, wanted, given)
        finally:
            context.unbind()
            self._give_back(context)
        return results if wanted is None else [results[k] for k in wanted]

    def _writable(self, slot: _Slot, array: Any, on_device: bool = False) -> _Given:
        if not slot.direct or slot.dynamic:
            raise InputError("output '%s' cannot be written to memory of yours: its size depends on data, or it is no tensor of "
                             "whole bytes" % slot.name)
        if on_device or (self._for_cuda and _dlpack.device_of([array]) is not None):
            return self._writable_on_device(slot, array)
        if not isinstance(array, np.ndarray) or array.dtype != _dtypes.numpy_type(slot.kind) or \
                not (array.flags.c_contiguous and array.flags.writeable and array.flags.aligned):
            raise InputError("output '%s': expected a dense, writable array of %s" % (slot.name, _dtypes.name(slot.kind)))
        return _Given(array, array.ctypes.data, array.nbytes, array.shape)

    def _writable_on_device(self, slot: _Slot, array: Any) -> _Given:
        from ._cuda import LEGACY_STREAM
        where = "output '%s'" % slot.name
        if not _dlpack.is_dlpack(array):
            raise InputError("%s: expected a tensor in the memory of CUDA device %d, found %s" %
                             (where, self._device, _values.describe(array)))
        b = _dlpack.borrow(array, where, LEGACY_STREAM)
        if b.device != self._device or b.dtype != slot.kind or not b.contiguous:
            raise InputError("%s: expected a dense tensor of %s in the memory of CUDA device %d, found a %s%s" %
                             (where, _dtypes.name(slot.kind), self._device, _values.describe(b), "" if b.contiguous else ", not dense"))
        return _Given(array, b.address, int(np.prod(b.shape, dtype=np.int64)) * _dtypes.bits(slot.kind) // 8, b.shape)

    def bind(self) -> "Binding":
        """A context of your own for buffers that stay: nothing is copied or allocated per run."""
        self._open()
        return Binding(self)

    def memory(self, **shapes: Sequence[int]) -> Dict[str, int]:
        """Bytes that a context needs for these shapes of inputs: "weights", "arena", "outputs", "context"."""
        from ._native import Memory
        native, error, memory = runtime(), Error(), Memory()
        rows = (C.POINTER(C.c_int64) * max(len(self._inputs), 1))()
        held = []
        for name, shape in shapes.items():
            if name not in self._index:
                raise InputError("the model has no input '%s'" % name)
            held.append((C.c_int64 * max(len(shape), 1))(*shape))
            rows[self._index[name]] = C.cast(held[-1], C.POINTER(C.c_int64))
        options = self._options()
        check(native.cyto_memory_need(self._open(), C.byref(options), rows, C.byref(memory), C.byref(error)), error, InputError)
        return {key: getattr(memory, key) for key in ("weights", "arena", "outputs", "context")}


    # -- looking inside

    @contextlib.contextmanager
    def trace(self, path: Optional[Union[str, "os.PathLike[str]"]] = None, *, events: int = 0) -> Iterator["Trace"]:
        """Records what runs within the `with` do, in all threads, and writes it as a file that ui.perfetto.dev and chrome://tracing
        open, also where one of them fails. The model must be compiled with profile=True.

            with model.trace("t.json") as trace:
                model(x)
            print(trace.steps)      # sums: node, algorithm, runs, microseconds, floor ..

        events: how many are kept (0: a million); what is beyond counts in the sums.
        """
        native, error = runtime(), Error()
        check(native.cyto_trace_start(self._open(), events, C.byref(error)), error)
        trace = Trace()
        try:
            yield trace
        finally:
            check(native.cyto_trace_stop(self._open(), C.byref(error)), error)
            trace.steps = self._trace_steps()
            if path is not None:
                check(native.cyto_trace_write(self._open(), os.fsencode(os.fspath(path)), C.byref(error)), error)

    def _trace_steps(self) -> List[Dict[str, Any]]:
        native, found = runtime(), []
        for k in range(native.cyto_trace_step_count(self._open())):
            sums = TraceSums()
            native.cyto_trace_step(self._handle, k, C.byref(sums))
            step: Dict[str, Any] = {key: decoded(getattr(sums, key)) for key in ("node", "ops", "algorithm", "kernel", "assumed")}
            step.update(flops=sums.flops, bytes=sums.bytes, floor_us=sums.floor_ns / 1e3, other_sizes=bool(sums.other_sizes),
                        runs=sums.runs, us=sums.ns / 1e3, first_runs=sums.first_runs, first_us=sums.first_ns / 1e3)
            found.append(step)
        return found

    def memory_snapshot(self) -> List[Dict[str, Dict[str, int]]]:
        """What the model's contexts hold that are not running at the moment: for each {name: {"in_use": bytes, "peak": bytes}}, with
        "weights", "arena", "outputs" .. and, the sum but for weights, "all of the context"."""
        return [context.memory_snapshot() for context in list(self._free)]


class Trace:
    """What `Model.trace` gives: once the `with` is over, `steps` has a dict for each step of the program, in order. `us` and `runs` are
    sums without each context's first run, which is cold and counts in `first_us` and `first_runs`; floor_us is that of one core."""

    def __init__(self) -> None:
        self.steps: List[Dict[str, Any]] = []


class Binding:
    """Inputs and outputs bound to memory that stays, for runs that neither copy nor allocate. For one thread at a time.

        binding = model.bind()
        binding.input("image", image)        # read by every run: write new pixels into the array
        binding.output("logits", logits)
        binding.run()
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._made: Optional[_Context] = None if model._for_cuda else _Context(model)
        self._held: Dict[str, Any] = {}
        self._outputs = {slot.name: slot for slot in model._outputs}

    def _context(self, x: Any = None) -> _Context:
        """Models for CUDA: the first tensor that is bound decides whether all of them lie on the device."""
        if self._made is None:
            self._made = _Context(self._model, self._model._lie_on_device([x]))
        return self._made

    def _slot(self, name: str) -> _Slot:
        slot = self._outputs.get(name)
        if slot is None:
            raise InputError("the model has no output '%s'" % name)
        return slot

    def input(self, name: str, x: Any) -> "Binding":
        """Binds an array or tensor; it must be of the input's type, and dense, so that no copy of it is made."""
        k = self._model._index.get(name)
        if k is None:
            raise InputError("the model has no input '%s'" % name)
        keep: List[Any] = []
        self._context(x).bind(k, x, keep)
        if isinstance(x, np.ndarray) and keep and isinstance(keep[0], np.ndarray) and keep[0] is not x:
            raise InputError("input '%s': the array is not dense; bind numpy.ascontiguousarray(x)" % name)
        self._held["i" + name] = keep
        return self

    def output(self, name: str, array: Any) -> "Binding":
        """Has an output written to `array`, which may be that of the input whose memory it may share (`shared_input` of the model's
        `outputs`): then what is new is all that is written."""
        slot = self._slot(name)
        context = self._context(array)
        place = self._model._writable(slot, array, context.on_device)
        status = context.native.cyto_bind_output(context.handle, slot.number, place.address or context.empty_address(), place.size,
                                                 context.error_ref)
        if status:
            context.fail(status)
        self._held["o" + name] = place
        return self

    def keep(self, room: int) -> "Binding":
        """From now on the binding itself keeps what grows from run to run, the outputs that have a `grown_input`, with room for so many
        rows and more when it is full: they are the next run's inputs without being bound, and only new rows are written."""
        context = self._context()
        check(context.native.cyto_context_keep(context.handle, room, C.byref(context.error)), context.error, InputError)
        return self

    def rewind(self, rows: int) -> "Binding":
        """The next run continues the first `rows` of what is kept: 0 begins anew."""
        context = self._context()
        check(context.native.cyto_context_rewind(context.handle, rows, C.byref(context.error)), context.error, InputError)
        return self

    def run(self) -> None:
        """Computes the outputs from what the bound memory holds now."""
        context = self._context()
        status = context.native.cyto_run(context.handle, context.error_ref)
        if status:
            check(status, context.error)
        if context.on_device:
            context.wait()

    def get(self, name: str) -> Any:
        """The output of the last run: what was bound, or a copy of what the context holds."""
        if "o" + name in self._held:
            return self._held["o" + name].array
        slot = self._slot(name)
        return self._context().fetch(slot.number, slot)

    def memory_snapshot(self) -> Dict[str, Dict[str, int]]:
        """What the context holds: see Model.memory_snapshot."""
        return self._context().memory_snapshot()

    def close(self) -> None:
        if self._made:
            self._made.close()
        self._held.clear()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:
            pass


def load(path: Union[str, "os.PathLike[str]"], *, threads: Optional[int] = None, device: int = 0, devices: Optional[Sequence[int]] = None,
         device_errors: str = "again", device_pool: bool = False, device_weights: int = 0,
         tuned: Optional[Union[str, "os.PathLike[str]"]] = None) -> Model:
    """Opens a library that cytoc compiled. It is code, which runs: open what you trust only.

    threads: how many a run may use (None: all CPUs of this process). device: number of the GPU. devices: of several GPUs, which share the
    batch of each run by their speed; results are in order. device_errors: where one of them fails, the others do its part "again", and it
    gets no more; or the run fails ("stop") with an error that names it. device_pool: memory of contexts comes from the GPU's stream-ordered
    pool (cuMemAllocAsync). device_weights: the most bytes of the GPU that weights take (0: as many as there are); what is more stays with
    the host and is copied in each run. Both of models for CUDA alone. tuned: the file of `cyto-tune`, which says how many threads, where
    `threads` does not; `model.tuned` has all of it, and cytoc.Run takes batch and contexts from there. Raises LoadError for what is
    missing, damaged, of another version, compiled for another CPU, or, of `tuned`, made for another model.
    """
    return Model(os.fspath(path), threads=threads, device=device, devices=devices, device_errors=device_errors, device_pool=device_pool,
                 device_weights=device_weights, tuned=tuned)
