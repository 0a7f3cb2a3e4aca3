# SPDX-License-Identifier: Apache-2.0
"""What the contenders of cyto-bench that run in Python share: inputs (those of bench_child.c), timing, the line they print."""
import math
import os
import resource
import sys
import time

import numpy as np

TYPES = {1: np.float32, 11: np.float64, 10: np.float16, 7: np.int64, 6: np.int32, 5: np.int16, 3: np.int8, 2: np.uint8,
         4: np.uint16, 12: np.uint32, 13: np.uint64, 9: np.bool_}  # by the number of ONNX


def read_pairs(words):
    """{(option, name): value} of [--dim NAME=N] [--shape NAME=AxB] [--range NAME=LO:HI] .., and {('--inputs', ''): FOLDER}."""
    return {(o, '') if o == '--inputs' else (o, t.rsplit('=', 1)[0]): t if o == '--inputs' else t.rsplit('=', 1)[1]
            for o, t in zip(words[::2], words[1::2])}


def from_folder(pairs, number):
    """Input of that number from the folder of inputs: in_K_NAME.npy, or a TensorProto. None: it is random."""
    folder = pairs.get(('--inputs', ''))
    names = sorted(os.listdir(folder)) if folder else []
    for name in names:
        path = os.path.join(folder, name)
        if name.startswith('in_%d_' % number) and name.endswith('.npy'):
            return np.load(path)
        if name == 'input_%d.pb' % number or (name.startswith('in_%d_' % number) and name.endswith('.pb')):
            import onnx.numpy_helper
            return onnx.numpy_helper.to_array(onnx.load_tensor(path))
    return None


def port_type(port):
    """Number of the element type, and dims (numbers, or names), of an input of an ONNX model."""
    tensor = port.type.tensor_type
    return tensor.elem_type, [d.dim_value if d.HasField('dim_value') else d.dim_param for d in tensor.shape.dim]


def hashed(n, seed):
    """splitmix64 of seed, seed + 1, ..: uniform in [0, 1)."""
    x = np.arange(n, dtype=np.uint64) + np.uint64((seed + 0x9e3779b97f4a7c15) & (1 << 64) - 1)
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xbf58476d1ce4e5b9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94d049bb133111eb)
    return ((x ^ x >> np.uint64(31)) >> np.uint64(11)).astype(np.float64) * 2.0 ** -53


def sizes(name, dims, pairs):
    """The shape of an input: as given, and what is open and not given is refused, as sizes.c does it."""
    if ('--shape', name) in pairs:
        return [int(d) for d in pairs['--shape', name].split('x') if d]
    given = [d if isinstance(d, int) and d >= 0 else pairs.get(('--dim', d), pairs.get(('--dim', '*'))) for d in dims]
    if None in given:
        sys.exit("input '%s' %s: sizes are open; give --dim or --shape" % (name, list(dims)))
    return [int(d) for d in given]


def make(name, onnx_type, dims, seed, pairs, number):
    """Input `number` of a model: of the folder of inputs, else random."""
    given = from_folder(pairs, number)
    if given is not None:
        return given
    dtype = TYPES[onnx_type]
    dims = sizes(name, dims, pairs)
    real = np.issubdtype(dtype, np.floating)
    low, high = (-1, 1) if real else (0, 2)
    if ('--range', name) in pairs:
        low, high = (float(v) for v in pairs['--range', name].split(':'))
        high += 0 if real else 1
    values = low + (high - low) * hashed(int(np.prod(dims, dtype=np.int64)), seed)
    return (values if real else np.floor(values)).astype(dtype).reshape(dims)


def feeds_of(model, seed, pairs):
    """{name: array} for an ONNX model."""
    given = {t.name for t in model.graph.initializer}
    return {p.name: make(p.name, *port_type(p), seed + i, pairs, i)
            for i, p in enumerate(p for p in model.graph.input if p.name not in given)}


def resident_kb():
    """Memory that this process holds now."""
    with open('/proc/self/statm', encoding='ascii') as f:
        return int(f.read().split()[1]) * 4


def peak_kb():
    """The most that it ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def timed(once, seconds):
    """How long each call of once() took, for so many seconds and three calls at least."""
    times, start = [], time.perf_counter()
    end = start + seconds
    while start < end or len(times) < 3:
        once()
        stop = time.perf_counter()
        times.append(stop - start)
        start = stop
    return times


def report(load, first, times, kb):
    """The line that cyto-bench reads: seconds in milliseconds, the number of runs, memory."""
    times = sorted(t * 1e3 for t in times)
    n, mean = len(times), sum(times) / len(times)
    p95, p99 = (times[math.ceil(part * n) - 1] for part in (0.95, 0.99))
    deviation = math.sqrt(sum((t - mean) ** 2 for t in times) / (n - 1)) if n > 1 else 0
    print('%.6f %.6f %.6f %.6f %d %d %.6f %.6f %.6f %.6f' % (load * 1e3, first * 1e3, times[n // 2], times[0], n, kb, mean,
                                                           p95, p99, deviation))
