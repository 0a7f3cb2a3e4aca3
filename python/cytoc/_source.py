# SPDX-License-Identifier: Apache-2.0
"""What may be given as a model, made into what the compiler takes: a path, or bytes and the folder of their external data."""
from __future__ import annotations

import hashlib
import os
import tempfile
from typing import Any, List, Optional, Sequence, Union

PROTO_LIMIT = 2**31 - 1  # bytes that protobuf writes as one message


class Source:
    """A model, ready for the compiler. `folder` holds temporary files until the source is dropped."""

    def __init__(self, path: Optional[str] = None, data: Optional[bytes] = None, directory: Optional[str] = None,
                 folder: Optional["tempfile.TemporaryDirectory[str]"] = None) -> None:
        self.path, self.data, self.directory, self.folder = path, data, directory, folder

    def digest(self) -> Any:
        """A hash of the model. External data counts by name, size and time of its files."""
        h = hashlib.sha256()
        if self.data is not None:
            h.update(self.data)
        else:
            with open(str(self.path), "rb") as f:
                for block in iter(lambda: f.read(1 << 20), b""):
                    h.update(block)
        for place in external_files(self):
            try:
                stat = os.stat(place)
                h.update(("%s %d %d\n" % (os.path.realpath(place), stat.st_size, stat.st_mtime_ns)).encode())
            except OSError:
                h.update(("%s missing\n" % place).encode())
        return h


def external_files(source: Source) -> List[str]:
    """Files beside the model that may hold its external data: those that the text of the model names."""
    directory = source.directory if source.data is not None else os.path.dirname(os.path.abspath(str(source.path)))
    if not directory or not os.path.isdir(directory):
        return []
    if source.data is not None:
        data = source.data
    else:
        with open(str(source.path), "rb") as f:
            data = f.read()
    if b"location" not in data:
        return []
    own = os.path.basename(str(source.path)) if source.path else None
    found = []
    for root, folders, files in os.walk(directory):
        folders[:] = [f for f in folders if not f.startswith(".")]
        if root.count(os.sep) - directory.count(os.sep) > 2:
            folders[:] = []
        for name in files:
            relative = os.path.relpath(os.path.join(root, name), directory)
            if name != own and relative.encode() in data:
                found.append(os.path.join(root, name))
    return sorted(found)


def _needs(package: str, what: str) -> Any:
    import importlib
    try:
        return importlib.import_module(package)
    except ImportError:
        raise ImportError("%s needs the package %s: pip install %s" % (what, package, package)) from None


def _proto(model: Any) -> Source:
    """An onnx.ModelProto; its external data, if it is not loaded, is looked for in the working folder."""
    if model.ByteSize() <= PROTO_LIMIT:
        return Source(data=model.SerializeToString(), directory=os.getcwd())
    onnx = _needs("onnx", "a ModelProto over 2 GB")
    folder = tempfile.TemporaryDirectory(prefix="cytoc-")
    path = os.path.join(folder.name, "model.onnx")
    copy = type(model)()
    copy.CopyFrom(model)
    onnx.save(copy, path, save_as_external_data=True, all_tensors_to_one_file=True, location="model.data")
    return Source(path=path, folder=folder)


def _torch(module: Any, args: Optional[Sequence[Any]], dynamic_shapes: Any, **names: Any) -> Source:
    torch = _needs("torch", "compiling a torch.nn.Module")
    if args is None:
        raise TypeError("compiling a torch.nn.Module needs example inputs: compile(module, args=(x,))")
    _needs("onnxscript", "exporting from PyTorch")
    folder = tempfile.TemporaryDirectory(prefix="cytoc-")
    path = os.path.join(folder.name, "model.onnx")
    training = module.training
    module.eval()
    try:
        torch.onnx.export(module, tuple(args) if isinstance(args, (list, tuple)) else (args,), path, dynamo=True, verbose=False,
                          dynamic_shapes=dynamic_shapes, external_data=True, **names)
    finally:
        module.train(training)
    return Source(path=path, folder=folder)


def source_of(model: Any, args: Optional[Sequence[Any]] = None, dynamic_shapes: Any = None, **names: Any) -> Source:
    if isinstance(model, (str, os.PathLike)):
        path: Union[str, bytes] = os.fspath(model)
        if not os.path.exists(path):
            raise FileNotFoundError("no such model: '%s'" % os.fsdecode(path))
        return Source(path=os.fsdecode(path))
    if isinstance(model, (bytes, bytearray, memoryview)):
        return Source(data=bytes(model))
    if hasattr(model, "SerializeToString") and hasattr(model, "graph"):
        return _proto(model)
    if type(model).__module__.split(".")[0] == "onnx_ir" and hasattr(model, "graph"):
        ir = _needs("onnx_ir", "an onnx_ir model")
        return _proto(ir.to_proto(model))
    if hasattr(model, "to_model_proto"):  # an onnxscript function
        return _proto(model.to_model_proto())
    if hasattr(model, "model_proto"):  # torch.onnx.ONNXProgram
        return _proto(model.model_proto)
    if hasattr(model, "forward") and hasattr(model, "state_dict"):
        return _torch(model, args, dynamic_shapes, **names)
    raise TypeError("expected a path, bytes, onnx.ModelProto, onnx_ir or onnxscript model, or torch.nn.Module, found %s" %
                    type(model).__name__)
