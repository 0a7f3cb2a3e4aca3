# SPDX-License-Identifier: Apache-2.0
"""Reads ONNX models where the onnx package is missing: as much of its interface as bench_torch.py and bench_common.py use.

In:  a model's file without external data.
Out: load(), objects with the fields of ONNX's messages, numpy_helper.to_array(), helper.get_attribute_value(). Fields that
     are not in MESSAGES are skipped.
"""
import struct
import types

import numpy as np

# {message: {number of a field: (name, what it is, whether it repeats)}}; what: a message, or int, float, text, bytes
MESSAGES = {
    'Model': {7: ('graph', 'Graph', False)},
    'Graph': {1: ('node', 'Node', True), 5: ('initializer', 'Tensor', True), 11: ('input', 'Port', True),
              12: ('output', 'Port', True)},
    'Node': {1: ('input', 'text', True), 2: ('output', 'text', True), 3: ('name', 'text', False), 4: ('op_type', 'text', False),
             5: ('attribute', 'Attribute', True), 7: ('domain', 'text', False)},
    'Attribute': {1: ('name', 'text', False), 20: ('type', 'int', False), 2: ('f', 'float', False), 3: ('i', 'int', False),
                  4: ('s', 'bytes', False), 5: ('t', 'Tensor', False), 6: ('g', 'Graph', False), 7: ('floats', 'float', True),
                  8: ('ints', 'int', True), 9: ('strings', 'bytes', True)},
    'Tensor': {1: ('dims', 'int', True), 2: ('data_type', 'int', False), 4: ('float_data', 'float', True),
               5: ('int32_data', 'int', True), 7: ('int64_data', 'int', True), 8: ('name', 'text', False),
               9: ('raw_data', 'bytes', False), 12: ('doc_string', 'text', False), 14: ('data_location', 'int', False)},
    'Port': {1: ('name', 'text', False), 2: ('type', 'Type', False)},
    'Type': {1: ('tensor_type', 'TensorType', False)},
    'TensorType': {1: ('elem_type', 'int', False), 2: ('shape', 'Shape', False)},
    'Shape': {1: ('dim', 'Dim', True)},
    'Dim': {1: ('dim_value', 'int', False), 2: ('dim_param', 'text', False)},
}
PLAIN = {'int': 0, 'float': 0.0, 'text': '', 'bytes': b''}
ATTRIBUTES = {1: 'f', 2: 'i', 3: 's', 4: 't', 5: 'g', 6: 'floats', 7: 'ints', 8: 'strings'}
TYPES = {1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64, 9: np.bool_,
         10: np.float16, 11: np.float64, 12: np.uint32, 13: np.uint64}
BFLOAT16 = 16


class Message:
    """Fields by name; those that are not set have the default, as protobuf's do."""

    def __init__(self, kind):
        self.kind, self.present = kind, set()
        for name, what, repeats in MESSAGES[kind].values():
            if repeats or what in PLAIN:
                setattr(self, name, [] if repeats else PLAIN[what])

    def __getattr__(self, name):  # messages that are not set
        for known, what, _ in MESSAGES[self.__dict__['kind']].values():
            if known == name:
                return Message(what)
        raise AttributeError(name)

    def HasField(self, name):
        return name in self.present


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def signed(value):
    return value - (1 << 64) if value >> 63 else value


def fields(data):
    """(number, wire type, value) of each; of lengths the bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 2:
            size, at = varint(data, at)
            if at + size > len(data):
                raise ValueError('the model ends within a field: byte %d of %d' % (at, len(data)))
            value, at = data[at:at + size], at + size
        elif wire in (1, 5):
            value, at = data[at:at + (8 if wire == 1 else 4)], at + (8 if wire == 1 else 4)
        else:
            raise ValueError('not an ONNX model: wire type %d at byte %d' % (wire, at))
        yield key >> 3, wire, value


def values_of(what, wire, value):
    """The elements of a field, which may come packed."""
    if what in MESSAGES:
        return [parse(what, value)]
    if what in ('text', 'bytes'):
        return [bytes(value).decode() if what == 'text' else bytes(value)]
    if what == 'float':
        return list(struct.unpack('<%df' % (len(value) // 4), value))
    if wire == 0:
        return [signed(value)]
    out, at = [], 0
    while at < len(value):
        element, at = varint(value, at)
        out.append(signed(element))
    return out


def parse(kind, data):
    message = Message(kind)
    for number, wire, value in fields(data):
        if number not in MESSAGES[kind]:
            continue
        name, what, repeats = MESSAGES[kind][number]
        found = values_of(what, wire, value)
        message.present.add(name)
        if repeats:
            getattr(message, name).extend(found)
        else:
            setattr(message, name, found[-1])
    return message


def load(path):
    with open(path, 'rb') as f:
        return parse('Model', memoryview(f.read()))


def to_array(tensor):
    if tensor.data_location:
        raise ValueError("'%s' has its data in another file" % tensor.name)
    if tensor.data_type == BFLOAT16:
        bits = np.frombuffer(tensor.raw_data, np.uint16) if tensor.raw_data else np.array(tensor.int32_data, np.uint16)
        return (bits.astype(np.uint32) << 16).view(np.float32).reshape(tensor.dims)
    dtype = TYPES[tensor.data_type]
    if tensor.raw_data:
        return np.frombuffer(tensor.raw_data, dtype).reshape(tensor.dims)
    data = tensor.float_data or tensor.int64_data or tensor.int32_data
    if dtype == np.float16:
        return np.array(data, np.uint16).view(np.float16).reshape(tensor.dims)
    return np.array(data, dtype).reshape(tensor.dims)


def get_attribute_value(attribute):
    return getattr(attribute, ATTRIBUTES[attribute.type])


numpy_helper = types.SimpleNamespace(to_array=to_array)
helper = types.SimpleNamespace(get_attribute_value=get_attribute_value)
