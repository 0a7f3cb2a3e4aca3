# SPDX-License-Identifier: Apache-2.0
"""What may be given as a model, made into what the compiler takes: a path, or bytes and the folder of their external data."""
from __future__ import annotations

import hashlib
import io
import os
import re
import tempfile
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Sequence, Tuple, Union
from ._errors import CompileError

LARGE = 4096  # bytes of a weight from which on it goes into a file beside a model that is too large for one message


_MODEL_FIELDS = {2: "producer_name", 4: "domain", 5: "version", 6: "description"}  # of ModelProto
_GRAPH, _GRAPH_DOC = 7, 10


def _varint(f: BinaryIO) -> int:
    value = shift = 0
    while True:
        byte = f.read(1)
        if not byte or shift > 63:
            raise EOFError
        value |= (byte[0] & 127) << shift
        shift += 7
        if byte[0] < 128:
            return value


def _fields(f: BinaryIO, end: int) -> Iterator[Tuple[int, Any]]:
    """Number and value of each field of a protobuf message; of texts and messages, place and length."""
    while f.tell() < end:
        tag = _varint(f)
        if tag & 7 == 0:
            yield tag >> 3, _varint(f)
        elif tag & 7 == 2:
            length = _varint(f)
            place = f.tell()
            yield tag >> 3, (place, length)
            f.seek(place + length)
        elif tag & 7 in (1, 5):
            f.seek(8 if tag & 7 == 1 else 4, os.SEEK_CUR)
        else:
            raise EOFError


def header_fields(model: Any) -> Dict[str, Any]:
    """What a ModelProto, a path or its bytes, says of itself besides its graph; as much as can be read."""
    found: Dict[str, Any] = {}
    f: BinaryIO = open(os.fspath(model), "rb") if isinstance(model, (str, os.PathLike)) else io.BytesIO(model)

    def text(place: int, length: int) -> str:
        f.seek(place)
        return f.read(length).decode("utf-8", "replace")
    with f:
        end = f.seek(0, os.SEEK_END)
        f.seek(0)
        try:
            for number, value in _fields(f, end):
                if number in _MODEL_FIELDS:
                    found[_MODEL_FIELDS[number]] = text(*value) if isinstance(value, tuple) else value
                elif number == _GRAPH and isinstance(value, tuple):
                    for inner, place in _fields(f, sum(value)):
                        if inner == _GRAPH_DOC and isinstance(place, tuple):
                            found["graph_description"] = text(*place)
        except EOFError:  # the compiler says what is wrong with it
            pass
    return found


class Source:
    """A model, ready for the compiler. `folder` holds temporary files until the source is dropped."""

    def __init__(self, path: Optional[str] = None, data: Optional[bytes] = None, directory: Optional[str] = None,
                 folder: Optional["tempfile.TemporaryDirectory[str]"] = None) -> None:
        self.path, self.data, self.directory, self.folder = path, data, directory, folder

    def digest(self) -> Any:
        """A hash of the model. External data counts by name, size and time of its files; files of our own, by what is in them."""
        h = hashlib.sha256()
        if self.data is not None:
            h.update(self.data)
        else:
            _hash_file(h, str(self.path))
        for place in external_files(self):
            try:
                stat = os.stat(place)
                if self.folder:
                    _hash_file(h, place)
                else:
                    h.update(("%s %d %d\n" % (os.path.realpath(place), stat.st_size, stat.st_mtime_ns)).encode())
            except OSError:
                h.update(("%s missing\n" % place).encode())
        return h


def _hash_file(h: Any, path: str) -> None:
    with open(path, "rb") as f:
        for block in iter(lambda: f.read(1 << 20), b""):
            h.update(block)


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
    try:
        return Source(data=model.SerializeToString(), directory=os.getcwd())
    except Exception as e:  # protobuf writes messages of less than 2 GB; what it raises depends on its version
        return _large_proto(model, e)


def _large_proto(model: Any, why: BaseException) -> Source:
    """The model with the weights of its main graph in a file of their own. Nothing of it is copied in memory as a whole."""
    folder = tempfile.TemporaryDirectory(prefix="cytoc-")
    light = type(model)()
    with open(os.path.join(folder.name, "model.data"), "wb") as data:
        for field, value in model.ListFields():
            if field.name != "graph":
                _copy_field(light, field.name, value)
        for field, value in model.graph.ListFields():
            if field.name != "initializer":
                _copy_field(light.graph, field.name, value)
        for tensor in model.graph.initializer:
            raw = _raw(tensor)
            if len(raw) >= LARGE:
                there = light.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, data_location=1)
                for key, text in ("location", "model.data"), ("offset", str(data.tell())), ("length", str(len(raw))):
                    there.external_data.add(key=key, value=text)
                data.write(raw)
                data.write(bytes(-len(raw) % LARGE))
            else:
                there = light.graph.initializer.add()
                there.CopyFrom(tensor)
                if raw:
                    there.raw_data, there.data_location = raw, 0
                    there.ClearField("external_data")
    path = os.path.join(folder.name, "model.onnx")
    try:
        text = light.SerializeToString()
    except Exception:
        raise ValueError("the ModelProto cannot be written, even without its weights: %s" % why) from why
    with open(path, "wb") as f:
        f.write(text)
    return Source(path=path, folder=folder)


def _copy_field(to: Any, name: str, value: Any) -> None:
    if hasattr(value, "CopyFrom"):
        getattr(to, name).CopyFrom(value)
    elif hasattr(value, "extend") or hasattr(value, "MergeFrom"):
        getattr(to, name).MergeFrom(value)
    else:
        setattr(to, name, value)


def _raw(tensor: Any) -> bytes:
    """Its bytes, also of external data; none where it has its elements in other fields."""
    if tensor.data_location != 1:
        return tensor.raw_data if tensor.HasField("raw_data") else b""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    with open(entries.get("location", ""), "rb") as f:
        f.seek(int(entries.get("offset", 0)))
        return f.read(int(entries["length"])) if "length" in entries else f.read()


def _onnx_ir(model: Any) -> Source:
    """An onnx_ir.Model, wherever its tensors lie."""
    ir = _needs("onnx_ir", "an onnx_ir model")
    folder = tempfile.TemporaryDirectory(prefix="cytoc-")
    path = os.path.join(folder.name, "model.onnx")
    ir.save(model, path, external_data="model.data")
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
    except Exception as e:  # the exporter raises what it likes
        said = re.sub(r"\x1b\[[0-9;]*m", "", str(e)).strip().splitlines()  # without its colours
        raise CompileError("the module %s cannot be exported to ONNX: %s" % (type(module).__name__, said[0] if said else type(e).__name__),
                           "cannot be exported") from e
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
        return _onnx_ir(model)
    if hasattr(model, "to_model_proto"):  # an onnxscript function
        return _proto(model.to_model_proto())
    if hasattr(model, "model_proto"):  # torch.onnx.ONNXProgram
        return _onnx_ir(model.model)
    if hasattr(model, "forward") and hasattr(model, "state_dict"):
        return _torch(model, args, dynamic_shapes, **names)
    raise TypeError("expected a path, bytes, onnx.ModelProto, onnx_ir or onnxscript model, or torch.nn.Module, found %s" %
                    type(model).__name__)
