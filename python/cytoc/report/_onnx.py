# SPDX-License-Identifier: Apache-2.0
"""The graph of an ONNX file as it came, for drawing: nodes, their tensors, small attributes.

In:  the file. Out: a dict of plain values. Of the protobuf format as much as that needs; weights are skipped, so a file of gigabytes
     takes no memory, and no other package is wanted.
"""
from __future__ import annotations

import mmap
import struct
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

Bytes = Union[bytes, memoryview]
DTYPES = {1: "f32", 2: "u8", 3: "i8", 4: "u16", 5: "i16", 6: "i32", 7: "i64", 8: "string", 9: "bool", 10: "f16", 11: "f64", 12: "u32",
          13: "u64", 14: "c64", 15: "c128", 16: "bf16", 17: "f8e4m3fn", 18: "f8e4m3fnuz", 19: "f8e5m2", 20: "f8e5m2fnuz", 21: "u4",
          22: "i4", 23: "f4e2m1"}
MOST_TEXT = 200


class Malformed(ValueError):
    pass


def _varint(data: Bytes, at: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise Malformed("truncated")
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _fields(data: Bytes) -> Iterator[Tuple[int, Any]]:
    """(number, value) of a message: an int, or the bytes of what has a length."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size, at = _varint(data, at)
        if size is None or at + size > len(data):
            raise Malformed("no protobuf")
        yield tag >> 3, data[at:at + size]
        at += size


def _text(value: Bytes) -> str:
    return bytes(value).decode("utf-8", "replace")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _numbers(value: Any) -> List[int]:
    """A repeated int64, packed or not."""
    if isinstance(value, int):
        return [_signed(value)]
    found, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        found.append(_signed(number))
    return found


def _shape(data: Bytes) -> List[Union[int, str]]:
    dims: List[Union[int, str]] = []
    for number, dim in _fields(data):
        if number == 1:
            size: Union[int, str] = "?"
            for field, value in _fields(dim):
                size = _signed(value) if field == 1 else _text(value) if field == 2 else size
            dims.append(size)
    return dims


def _value_info(data: Bytes) -> Tuple[str, str, Optional[List[Union[int, str]]]]:
    name, dtype, shape = "", "", None
    for number, value in _fields(data):
        if number == 1:
            name = _text(value)
        elif number == 2:
            for kind, tensor in _fields(value):
                if kind != 1:  # a sequence, map or optional value
                    dtype = {4: "sequence", 5: "map", 9: "optional"}.get(kind, dtype)
                    continue
                for field, inner in _fields(tensor):
                    if field == 1:
                        dtype = DTYPES.get(inner, "?")
                    elif field == 2:
                        shape = _shape(inner)
    return name, dtype, shape


def _tensor(data: Bytes) -> Tuple[str, str, List[Union[int, str]]]:
    name, dtype, dims = "", "?", []
    for number, value in _fields(data):
        if number == 1:
            dims += _numbers(value)
        elif number == 2:
            dtype = DTYPES.get(value, "?")
        elif number == 8:
            name = _text(value)
    return name, dtype, dims  # type: ignore[return-value]


def _floats(value: Bytes) -> List[float]:
    return [round(x, 7) for x in struct.unpack("<%df" % (len(value) // 4), bytes(value))]


def _attribute(data: Bytes) -> Tuple[str, Any]:
    name: str = ""
    kept: Any = None
    ints: List[int] = []
    floats: List[float] = []
    texts: List[str] = []
    for number, value in _fields(data):
        if number == 1:
            name = _text(value)
        elif number == 2:
            kept = _floats(value)[0]
        elif number == 3:
            kept = _signed(value)
        elif number == 4:
            kept = _text(value)[:MOST_TEXT]
        elif number == 5:
            _, dtype, dims = _tensor(value)
            kept = "tensor %s %s" % (dtype, dims)
        elif number in (6, 11):
            kept = "graph"
        elif number == 7:
            floats += _floats(value)
        elif number == 8:
            ints += _numbers(value)
        elif number == 9:
            texts.append(_text(value)[:MOST_TEXT])
    many: List[Any] = ints or floats or texts  # type: ignore[assignment]
    return name, kept if kept is not None else many[:32] if many else ""


def _node(data: Bytes) -> Dict[str, Any]:
    node: Dict[str, Any] = {"name": "", "op": "", "in": [], "out": [], "attributes": {}}
    for number, value in _fields(data):
        if number == 1:
            node["in"].append(_text(value))
        elif number == 2:
            node["out"].append(_text(value))
        elif number == 3:
            node["name"] = _text(value)
        elif number == 4:
            node["op"] = _text(value)
        elif number == 5:
            name, kept = _attribute(value)
            node["attributes"][name] = kept
        elif number == 7 and len(value):
            node["domain"] = _text(value)
    return node


def _graph(data: Bytes) -> Dict[str, Any]:
    graph: Dict[str, Any] = {"name": "", "nodes": [], "inputs": [], "outputs": [], "tensors": {}, "weights": {}}
    for number, value in _fields(data):
        if number == 1:
            graph["nodes"].append(_node(value))
        elif number == 2:
            graph["name"] = _text(value)
        elif number == 5:
            name, dtype, dims = _tensor(value)
            graph["weights"][name] = [dtype, dims]
        elif number in (11, 12, 13):
            name, dtype, shape = _value_info(value)
            graph["tensors"][name] = [dtype, shape]
            if number != 13:
                graph["inputs" if number == 11 else "outputs"].append(name)
    graph["inputs"] = [name for name in graph["inputs"] if name not in graph["weights"]]
    return graph


def read(path: str) -> Dict[str, Any]:
    """The graph, with "producer", "opset" and "ir" of the model. Raises Malformed, OSError."""
    model: Dict[str, Any] = {"producer": "", "opset": {}, "ir": 0, "graph": None}
    with open(path, "rb") as f:
        data = memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))  # unmapped with the last view of it
    for number, value in _fields(data):
        if number == 1 and isinstance(value, int):
            model["ir"] = value
        elif number in (2, 3) and not isinstance(value, int):
            model["producer"] = (model["producer"] + " " + _text(value)).strip()
        elif number == 7 and not isinstance(value, int):
            model["graph"] = _graph(value)
        elif number == 8 and not isinstance(value, int):
            fields = dict(_fields(value))
            model["opset"][_text(fields.get(1, b"")) or "ai.onnx"] = fields.get(2, 0)
    if model["graph"] is None:
        raise Malformed("no graph")
    return model
