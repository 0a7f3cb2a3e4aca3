# SPDX-License-Identifier: Apache-2.0
"""The side of `cytoc verify` that another framework computes: runs a model on samples.

In:  ort|reference MODEL INPUTS OUTPUTS THREADS. INPUTS: for every sample a number of values and these, in the order of the
     model's inputs (tools/values/value_stream.c says how a value is written).
Out: OUTPUTS: for every sample the same of its outputs, or -1, a length and a text that says which node could not be computed.
     What keeps all samples from running is the last line on stderr, and exit code 1.
"""
import ctypes
import struct
import sys

try:
    import numpy as np
except ImportError:
    sys.exit('the package numpy is not installed in %s: pip install numpy, or set CYTO_PYTHON to a Python that has it' % sys.executable)

KIND_TENSOR, KIND_SEQUENCE, KIND_OPTIONAL, KIND_MAP = range(4)
MAX_RANK = 12
HEAD = struct.Struct('=iiii%dqQQ' % MAX_RANK)
STRING = 8
# of TensorProto.DataType; types that numpy lacks come as ml_dtypes has them, where it is installed
NUMPY = {1: 'float32', 2: 'uint8', 3: 'int8', 4: 'uint16', 5: 'int16', 6: 'int32', 7: 'int64', 9: 'bool', 10: 'float16', 11: 'float64',
         12: 'uint32', 13: 'uint64', 14: 'complex64', 15: 'complex128'}
EXTRA = {16: 'bfloat16', 17: 'float8_e4m3fn', 18: 'float8_e4m3fnuz', 19: 'float8_e5m2', 20: 'float8_e5m2fnuz', 21: 'uint4', 22: 'int4',
         23: 'float4_e2m1fn', 24: 'float8_e8m0fnu', 25: 'uint2', 26: 'int2'}
BITS = {21: 4, 22: 4, 23: 4, 25: 2, 26: 2}


class Typed:
    """A tensor that numpy has no type for: its shape, the type's number, its bytes."""

    def __init__(self, shape, onnx_type, data):
        self.shape, self.onnx_type, self.data = shape, onnx_type, data


def extra_dtype(onnx_type):
    try:
        import ml_dtypes
    except ImportError:
        raise ValueError('values of type %s need the package ml_dtypes: pip install ml_dtypes' % EXTRA[onnx_type])
    return np.dtype(getattr(ml_dtypes, EXTRA[onnx_type]))


def unpack(raw, count, bits):
    """Elements of a few bits, the first in the lowest ones, a byte each."""
    each = 8 // bits
    parts = [raw >> np.uint8(bits * k) & np.uint8((1 << bits) - 1) for k in range(each)]
    return np.stack(parts, -1).reshape(-1)[:count]


def pack(values, bits):
    each = 8 // bits
    padded = np.zeros(-(-values.size // each) * each, np.uint8)
    padded[:values.size] = values.view(np.uint8) & np.uint8((1 << bits) - 1)
    out = np.zeros(padded.size // each, np.uint8)
    for k in range(each):
        out |= padded[k::each] << np.uint8(bits * k)
    return out


def read_tensor(f, onnx_type, dims, size):
    raw = f.read(size)
    if onnx_type == STRING:
        values, at = [], 0
        while at < size:
            length, = struct.unpack_from('=Q', raw, at)
            values.append(raw[at + 8:at + 8 + length].decode('utf-8', 'surrogateescape'))
            at += 8 + length
        return np.array(values, dtype=object).reshape(dims)
    if onnx_type in NUMPY:
        return np.frombuffer(raw, NUMPY[onnx_type]).reshape(dims)
    dtype, data = extra_dtype(onnx_type), np.frombuffer(raw, np.uint8)
    if onnx_type in BITS:
        data = unpack(data, int(np.prod(dims, dtype=np.int64)), BITS[onnx_type])
        if onnx_type in (22, 26):  # signed
            sign = 1 << BITS[onnx_type] - 1
            return ((data.astype(np.int8) ^ sign) - sign).astype(dtype).reshape(dims)
        if onnx_type in (21, 25):
            return data.astype(dtype).reshape(dims)
    return data.view(dtype).reshape(dims)


def read_value(f):
    """None: absent."""
    kind, onnx_type, rank, _, *rest = HEAD.unpack(f.read(HEAD.size))
    dims, size, count = rest[:rank], rest[-2], rest[-1]
    if kind < 0:
        return None
    if kind == KIND_TENSOR:
        return read_tensor(f, onnx_type, dims, size)
    items = [read_value(f) for _ in range(count)]
    if kind == KIND_MAP:
        return dict(zip(items[0].tolist(), items[1].tolist()))
    return items if kind == KIND_SEQUENCE else items[0] if items else None


def type_of(array):
    if array.dtype.kind in 'OUS':
        return STRING
    names = {v: k for k, v in {**NUMPY, **EXTRA}.items()}
    return names[array.dtype.name]


def tensor_bytes(array, onnx_type):
    if onnx_type == STRING:
        texts = [t if isinstance(t, bytes) else str(t).encode('utf-8', 'surrogateescape') for t in array.reshape(-1).tolist()]
        return b''.join(struct.pack('=Q', len(t)) + t for t in texts)
    array = np.ascontiguousarray(array).reshape(-1)
    if onnx_type in BITS:
        whole = array.view(np.uint8) if array.dtype.itemsize == 1 else array.astype(np.int8).view(np.uint8)
        return pack(whole, BITS[onnx_type]).tobytes()
    return array.tobytes()


def write_head(f, kind, onnx_type=0, dims=(), size=0, count=0):
    f.write(HEAD.pack(kind, onnx_type, len(dims), 0, *(list(dims) + [0] * (MAX_RANK - len(dims))), size, count))


def write_value(f, value):
    if value is None:
        write_head(f, KIND_OPTIONAL)
    elif isinstance(value, dict):
        write_head(f, KIND_MAP, count=2)
        keys = list(value)
        write_value(f, np.array(keys, dtype=object if keys and isinstance(keys[0], str) else np.int64))
        values = list(value.values())
        write_value(f, np.array(values, dtype=np.float32) if values and isinstance(values[0], float) else np.array(values))
    elif isinstance(value, (list, tuple)):
        write_head(f, KIND_SEQUENCE, count=len(value))
        for item in value:
            write_value(f, item)
    else:
        if not isinstance(value, Typed):
            array = np.asarray(value)
            value = Typed(array.shape, type_of(array), tensor_bytes(array, type_of(array)))
        write_head(f, KIND_TENSOR, value.onnx_type, value.shape, len(value.data))
        f.write(value.data)


class OnnxRuntime:
    def __init__(self, path, threads):
        try:
            import onnxruntime as ort
        except ImportError:
            sys.exit('the package onnxruntime is not installed in %s: pip install onnxruntime, or set CYTO_PYTHON to a Python that has '
                     'it' % sys.executable)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 4
        self.ort, self.session = ort, ort.InferenceSession(path, options, providers=['CPUExecutionProvider'])
        self.inputs = [(p.name, p.type) for p in self.session.get_inputs()]

    def feed(self, value, wanted):
        if isinstance(value, np.ndarray) and value.dtype.name in EXTRA.values():
            number = type_of(value)
            raw = value.view(np.uint16 if value.dtype.itemsize == 2 else np.uint8)
            return self.ort.OrtValue.ortvalue_from_numpy_with_onnx_type(raw, number)
        return np.ascontiguousarray(fit(value, wanted)) if isinstance(value, np.ndarray) else value

    def run(self, values):
        feeds = {name: self.feed(v, kind) for (name, kind), v in zip(self.inputs, values) if v is not None}
        if not any(isinstance(v, self.ort.OrtValue) for v in feeds.values()):
            try:
                return self.session.run(None, feeds)
            except RuntimeError as e:  # outputs that numpy has no type for
                if 'numpy' not in str(e).lower() and 'type' not in str(e).lower():
                    raise
        feeds = {k: v if isinstance(v, self.ort.OrtValue) else self.ort.OrtValue.ortvalue_from_numpy(v) for k, v in feeds.items()}
        return [self.typed(v) for v in self.session.run_with_ort_values(None, feeds)]

    @staticmethod
    def typed(value):
        number = value.element_type() if value.is_tensor() else 0
        if number not in EXTRA:
            return value.numpy() if value.is_tensor() else [np.asarray(v) for v in value.numpy()]
        raw = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())  # numpy has no such type
        return Typed(tuple(value.shape()), number, raw)


class Reference:
    """onnx.reference; an error says at which node."""

    def __init__(self, path, _threads):
        try:
            import onnx
            from onnx.reference import ReferenceEvaluator
        except ImportError:
            sys.exit('the package onnx is not installed in %s: pip install onnx, or set CYTO_PYTHON to a Python that has it' %
                     sys.executable)
        model = onnx.load(path)
        try:
            self.session = ReferenceEvaluator(model)
        except Exception as e:  # says the operator only, for instance
            sys.exit('%s%s' % (one_line(e), self.which(model, str(e))))
        given = {t.name for t in model.graph.initializer}
        self.inputs = [(p.name, onnx.helper.printable_type(p.type)) for p in model.graph.input if p.name not in given]
        self.outputs = [p.type for p in model.graph.output]

    @staticmethod
    def value(v, kind):
        """What Optional makes is a list of one there: of None, or of the value."""
        listed = kind.HasField('optional_type') and isinstance(v, list) and len(v) == 1
        whole = listed and kind.optional_type.elem_type.HasField('sequence_type') and not (v[0] is None or isinstance(v[0], list))
        return v[0] if listed and not whole else v

    @staticmethod
    def which(model, text):
        for node in model.graph.node:
            if "'%s'" % node.op_type in text:
                return ": node %s '%s'" % (node.op_type, node.name or (node.output[0] if node.output else ''))
        return ''

    def run(self, values):
        feeds = {name: fit(v, kind) if isinstance(v, np.ndarray) else v for (name, kind), v in zip(self.inputs, values) if v is not None}
        try:
            return [self.value(v, kind) for v, kind in zip(self.session.run(None, feeds), self.outputs)]
        except Exception as e:
            trace = e.__traceback__
            while trace:  # the outermost loop over nodes
                node = getattr(trace.tb_frame.f_locals.get('node'), 'onnx_node', None)
                if node is not None:
                    raise ValueError("node %s '%s': %s" % (node.op_type, node.name or node.output[0], one_line(e)))
                trace = trace.tb_next
            raise


def fit(array, wanted):
    """Samples may be narrower or wider floats than the model's (--half-io)."""
    words = {'float16': np.float16, 'float': np.float32, 'FLOAT': np.float32, 'double': np.float64, 'DOUBLE': np.float64,
             'FLOAT16': np.float16}
    inner = wanted[len('tensor('):-1] if wanted.startswith('tensor(') else wanted.split(',')[0]
    real = array.dtype.kind == 'f' or array.dtype.name == 'bfloat16'
    return array.astype(words[inner]) if real and inner in words and array.dtype != words[inner] else array


def one_line(error):
    text = ' '.join(str(error).split()) or type(error).__name__
    return text if len(text) <= 500 else text[:497] + '..'


def main():
    kind, path, inputs, outputs, threads = sys.argv[1:]
    try:
        engine = {'ort': OnnxRuntime, 'reference': Reference}[kind](path, int(threads))
    except Exception as e:
        sys.exit(one_line(e))
    with open(inputs, 'rb') as f, open(outputs, 'wb') as out:
        while count := f.read(8):
            values = [read_value(f) for _ in range(*struct.unpack('=q', count))]
            try:
                results = engine.run(values)
            except Exception as e:
                text = one_line(e).encode('utf-8', 'replace')
                out.write(struct.pack('=qQ', -1, len(text)) + text)
                continue
            out.write(struct.pack('=q', len(results)))
            for value in results:
                write_value(out, value)


if __name__ == '__main__':
    main()
