# SPDX-License-Identifier: Apache-2.0
"""InferenceSession with ONNX Runtime's signatures: scripts that use it run after changing one import.

What has no meaning for a compiled model (execution providers, graph optimisation levels, memory patterns) is accepted with a warning
where that changes no result, and refused where it would.
"""
from __future__ import annotations

import os
import threading
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

import numpy as np

from . import _dtypes
from ._compile import compile as _compile
from ._errors import InputError, warn
from ._model import Model, Tensorinfo, load
from ._source import header_fields

_QUIET = {"enable_profiling", "log_severity_level", "log_verbosity_level", "logid", "enable_cpu_mem_arena", "enable_mem_pattern",
          "enable_mem_reuse", "execution_mode", "execution_order", "graph_optimization_level", "inter_op_num_threads",
          "optimized_model_filepath", "profile_file_prefix", "use_deterministic_compute"}


class GraphOptimizationLevel:
    ORT_DISABLE_ALL, ORT_ENABLE_BASIC, ORT_ENABLE_EXTENDED, ORT_ENABLE_LAYOUT, ORT_ENABLE_ALL = 0, 1, 2, 3, 99


class ExecutionMode:
    ORT_SEQUENTIAL, ORT_PARALLEL = 0, 1


class SessionOptions:
    """`intra_op_num_threads` is used; `add_session_config_entry("cytoc.NAME", VALUE)` gives an option of the compiler. Everything else
    that ONNX Runtime's has is accepted; a warning says when a value has no effect."""

    def __init__(self) -> None:
        self.intra_op_num_threads = 0
        self._entries: Dict[str, str] = {}
        self._dims: Dict[str, int] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _QUIET:
            warn("SessionOptions.%s has no effect in cytoc" % name)
        elif name not in ("intra_op_num_threads", "_entries", "_dims"):
            raise AttributeError("SessionOptions has no '%s'" % name)
        object.__setattr__(self, name, value)

    def add_session_config_entry(self, key: str, value: str) -> None:
        if not key.startswith("cytoc."):
            warn("the session option '%s' has no effect in cytoc" % key)
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        return self._entries[key]

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        self._dims[name] = int(size)

    def register_custom_ops_library(self, path: str) -> None:
        raise NotImplementedError("cytoc has no custom operators; put what '%s' computes into the model as a function" % path)


class RunOptions:
    """Accepted; what is set has no effect, which a warning says, but for `terminate`: it cannot be honoured, and is refused."""

    def __init__(self) -> None:
        for name, value in {"log_severity_level": 2, "log_verbosity_level": 0, "logid": "", "terminate": False}.items():
            object.__setattr__(self, name, value)

    terminate: bool

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("log_severity_level", "log_verbosity_level", "logid", "training_mode", "only_execute_path_to_fetches"):
            warn("RunOptions.%s has no effect in cytoc" % name)
        elif name != "terminate":
            raise AttributeError("RunOptions has no '%s'" % name)
        object.__setattr__(self, name, value)

    def add_run_config_entry(self, key: str, value: str) -> None:
        warn("the run option '%s' has no effect in cytoc" % key)


class NodeArg:
    """An input or output, as ONNX Runtime describes it."""

    def __init__(self, info: Tensorinfo) -> None:
        self.name: str = info.name
        self.shape: List[Any] = [d if isinstance(d, int) else d or None for d in info.shape]
        self.type: str = _ort_type(info.dtype)

    def __repr__(self) -> str:
        return "NodeArg(name=%r, type=%r, shape=%r)" % (self.name, self.type, self.shape)


def _ort_type(dtype: str) -> str:
    if dtype.endswith(")"):
        kind, _, inner = dtype[:-1].partition("(")
        if kind == "map":
            key, _, value = inner.partition(",")
            return "map(%s,%s)" % (key, _ort_type(value))
        return "%s(%s)" % (kind, _ort_type(inner))
    return "tensor(%s)" % {"float32": "float", "float64": "double"}.get(dtype, dtype)


class ModelMetadata:
    """What the ONNX file says about itself; of a compiled library, the graph's name and metadata_props alone."""

    def __init__(self, model: Model, fields: Mapping[str, Any]) -> None:
        self.graph_name = model.name
        self.custom_metadata_map = model.metadata
        self.producer_name: str = fields.get("producer_name", "")
        self.domain: str = fields.get("domain", "")
        self.description: str = fields.get("description", "")
        self.graph_description: str = fields.get("graph_description", "")
        self.version: int = fields.get("version", 0)


class OrtValue:
    """A tensor, or another value, on the CPU."""

    def __init__(self, value: Any) -> None:
        self._value = value

    @staticmethod
    def ortvalue_from_numpy(array: np.ndarray[Any, Any], device_type: str = "cpu", device_id: int = 0) -> "OrtValue":
        if device_type != "cpu":
            raise InputError("OrtValue: cytoc's InferenceSession takes tensors on the CPU, found device '%s'" % device_type)
        return OrtValue(np.asarray(array, order="C"))  # which keeps scalars what they are

    @staticmethod
    def ortvalue_from_shape_and_type(shape: Sequence[int], element_type: Any = np.float32, device_type: str = "cpu",
                                     device_id: int = 0) -> "OrtValue":
        return OrtValue.ortvalue_from_numpy(np.empty(shape, element_type), device_type, device_id)

    def numpy(self) -> Any:
        return self._value

    def shape(self) -> List[int]:
        return list(self._value.shape)

    def data_type(self) -> str:
        return _dtypes.ort_name(_dtypes.number_of(self._value.dtype) or 0)

    def device_name(self) -> str:
        return "cpu"

    def is_tensor(self) -> bool:
        return isinstance(self._value, np.ndarray)

    def update_inplace(self, array: np.ndarray[Any, Any]) -> None:
        np.copyto(self._value, array)

    def data_ptr(self) -> int:
        return int(self._value.ctypes.data)


class IOBinding:
    """Inputs and outputs that are bound once and used by every `run_with_iobinding`."""

    def __init__(self, session: "InferenceSession") -> None:
        self._session = session
        self._inputs: Dict[str, Any] = {}
        self._outputs: Dict[str, Any] = {}  # None: memory is made by the run
        self._results: Dict[str, Any] = {}

    def _on_cpu(self, device: str) -> None:
        if device != "cpu":
            raise InputError("IOBinding: expected memory on the CPU, found device '%s'" % device)

    def bind_cpu_input(self, name: str, array: np.ndarray[Any, Any]) -> None:
        self._inputs[name] = array

    def bind_ortvalue_input(self, name: str, value: OrtValue) -> None:
        self._inputs[name] = value.numpy()

    def bind_input(self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int],
                   buffer_ptr: int) -> None:
        self._on_cpu(device_type)
        self._inputs[name] = _view(buffer_ptr, element_type, shape)

    def bind_output(self, name: str, device_type: str = "cpu", device_id: int = 0, element_type: Any = None,
                    shape: Optional[Sequence[int]] = None, buffer_ptr: Optional[int] = None) -> None:
        self._on_cpu(device_type)
        self._outputs[name] = _view(buffer_ptr, element_type, shape or ()) if buffer_ptr else None

    def bind_ortvalue_output(self, name: str, value: OrtValue) -> None:
        self._outputs[name] = value.numpy()

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        self._outputs.clear()

    def synchronize_inputs(self) -> None:
        """Nothing to wait for on a CPU."""

    def synchronize_outputs(self) -> None:
        """Nothing to wait for on a CPU."""

    def get_outputs(self) -> List[OrtValue]:
        return [OrtValue(self._results[name]) for name in self._outputs]

    def copy_outputs_to_cpu(self) -> List[Any]:
        return [self._results[name] for name in self._outputs]


def _view(address: int, element_type: Any, shape: Sequence[int]) -> np.ndarray[Any, Any]:
    """An array over memory of the caller's."""
    import ctypes
    dtype = np.dtype(element_type)
    count = int(np.prod(shape, dtype=np.int64))
    buffer: Any = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(buffer, dtype, count).reshape(tuple(shape))


class InferenceSession:
    """Compiles a model (a path, its bytes, or a library that cytoc compiled), or takes it from the cache, and runs it."""

    def __init__(self, path_or_bytes: Union[str, bytes, "os.PathLike[str]"], sess_options: Optional[SessionOptions] = None,
                 providers: Optional[Sequence[Any]] = None, provider_options: Optional[Sequence[Mapping[str, Any]]] = None,
                 **kwargs: Any) -> None:
        if kwargs:
            warn("InferenceSession: %s have no effect in cytoc" % ", ".join(kwargs))
        names = [p if isinstance(p, str) else p[0] for p in providers or ()]
        others = [n for n in names if n not in ("CPUExecutionProvider", "CytocExecutionProvider")]
        if others:
            warn("InferenceSession: cytoc computes everything itself, without %s" % ", ".join(others))
        if any(provider_options or ()) or any(p[1] for p in providers or () if not isinstance(p, str)):
            warn("InferenceSession: options of execution providers have no effect in cytoc")
        self._options = sess_options or SessionOptions()
        self._fields: Dict[str, Any] = {}
        options: Dict[str, Any] = {}
        for key, value in self._options._entries.items():
            if key.startswith("cytoc."):
                options[key[len("cytoc."):]] = True if value in ("", "true") else value
        threads = self._options.intra_op_num_threads or None
        if isinstance(path_or_bytes, (str, os.PathLike)) and os.fspath(path_or_bytes).endswith((".so", ".dll")):
            self._model, self._fields = load(os.fspath(path_or_bytes), threads=threads), {}
        else:
            self._fields = header_fields(path_or_bytes)
            self._model = _compile(path_or_bytes, threads=threads, dims=self._options._dims or None, **options)

    def run(self, output_names: Optional[Sequence[str]], input_feed: Mapping[str, Any], run_options: Optional[RunOptions] = None) \
            -> List[Any]:
        if run_options is not None and run_options.terminate:
            raise RuntimeError("RunOptions.terminate: a run cannot be ended early")
        feeds = {name: v.numpy() if isinstance(v, OrtValue) else v for name, v in input_feed.items()}
        return self._model.run(output_names or None, feeds)

    def run_with_ort_values(self, output_names: Optional[Sequence[str]], input_dict_ort_values: Mapping[str, OrtValue],
                            run_options: Optional[RunOptions] = None) -> List[OrtValue]:
        return [OrtValue(x) for x in self.run(output_names, input_dict_ort_values, run_options)]

    def run_async(self, output_names: Optional[Sequence[str]], input_feed: Mapping[str, Any], callback: Any, user_data: Any,
                  run_options: Optional[RunOptions] = None) -> None:
        def work() -> None:
            try:
                results, error = self.run(output_names, input_feed, run_options), ""
            except Exception as e:
                results, error = [], str(e)
            callback(results, user_data, error)
        threading.Thread(target=work, daemon=True).start()

    def io_binding(self) -> IOBinding:
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Optional[RunOptions] = None) -> None:
        names = list(iobinding._outputs)
        given = {name: a for name, a in iobinding._outputs.items() if a is not None}
        iobinding._results = dict(zip(names, self._model.run(names, iobinding._inputs, out=given)))

    def get_inputs(self) -> List[NodeArg]:
        return [NodeArg(info) for info in self._model.inputs]

    def get_outputs(self) -> List[NodeArg]:
        return [NodeArg(info) for info in self._model.outputs]

    def get_overridable_initializers(self) -> List[NodeArg]:
        return []

    def get_modelmeta(self) -> ModelMetadata:
        return ModelMetadata(self._model, self._fields)

    def get_providers(self) -> List[str]:
        return ["CytocExecutionProvider"]

    def get_provider_options(self) -> Dict[str, Dict[str, str]]:
        return {"CytocExecutionProvider": {}}

    def get_session_options(self) -> SessionOptions:
        return self._options

    def set_providers(self, providers: Optional[Sequence[Any]] = None, provider_options: Any = None) -> None:
        warn("set_providers has no effect in cytoc")

    def end_profiling(self) -> str:
        raise NotImplementedError("compile with profile=True and use cyto-run --profile")


def get_available_providers() -> List[str]:
    return ["CytocExecutionProvider"]


def get_device() -> str:
    return "CPU"
