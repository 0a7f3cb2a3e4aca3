# SPDX-License-Identifier: Apache-2.0
"""cytoc: compiles ONNX models into native libraries, and runs them.

    import cytoc
    model = cytoc.compile("model.onnx")        # or a ModelProto, or a torch.nn.Module with args=(x,)
    y = model(x)                               # NumPy arrays, or tensors of any framework with DLPack
    model.save("model.so")                     # what an application in C links or loads, and cytoc.load() opens

`cytoc.InferenceSession` has ONNX Runtime's interface; `torch.compile(module, backend="cytoc")` works where torch is installed;
`python -m cytoc` is the command line.
"""
from typing import Any

from ._cache import folder as cache_folder
from ._compile import compile, version
from ._cuda import DeviceArray
from ._errors import (CompileError, CompileWarning, CytocError, Diagnostic, InputError, LoadError, PipelineCancelled, PipelineError,
                      RunError)
from ._model import Binding, Model, Tensorinfo, Trace, Tuned, load
from ._pipeline import (NOTHING, EarlyExit, Join, Pipeline, Result, Run, Split, Stage, StageStatistics, Statistics, Tagged)
from ._session import (ExecutionMode, GraphOptimizationLevel, InferenceSession, IOBinding, NodeArg, OrtValue, RunOptions,
                       SessionOptions, get_available_providers, get_device)

__version__ = "0.2.0.dev0"


def export(module: Any, args: Any, path: Any, **options: Any) -> Model:
    """See cytoc._dynamo.export; needs torch."""
    from ._dynamo import export as run
    return run(module, args, path, **options)


def ort_plugin() -> str:
    """The path of the plugin that makes cytoc an execution provider of ONNX Runtime (1.23 or newer), "cytoc":

        onnxruntime.register_execution_provider_library("cytoc", cytoc.ort_plugin())
        devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name == "cytoc"]
        options.add_provider_for_devices(devices, {"int8": "dynamic"})

    LoadError where the package lacks it."""
    import os

    from ._native import library_dir
    path = os.path.join(library_dir(), "libcytoc_onnxruntime.so")
    if not os.path.exists(path):
        raise LoadError("the plugin for ONNX Runtime is missing: there is no '%s'; reinstall the package, or set CYTOC_LIB_DIR to a build "
                        "folder of the same version" % path)
    return path


__all__ = ["Binding", "CompileError", "CompileWarning", "CytocError", "DeviceArray", "Diagnostic", "EarlyExit", "ExecutionMode",
           "GraphOptimizationLevel", "IOBinding", "InferenceSession", "InputError", "Join", "LoadError", "Model", "NOTHING", "NodeArg",
           "OrtValue", "Pipeline", "PipelineCancelled", "PipelineError", "Result", "Run", "RunError", "RunOptions", "SessionOptions",
           "Split", "Stage", "StageStatistics", "Statistics", "Tagged", "Tensorinfo", "Tuned", "cache_folder", "compile", "export", "get_available_providers", "get_device", "load", "ort_plugin",
           "version"]
