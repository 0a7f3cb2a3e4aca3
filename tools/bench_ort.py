"""One measured process of cyto-bench for ONNX Runtime: load a model, run it, print one line of numbers.

In:  MODEL THREADS SECONDS SEED [--dim NAME=N] [--shape NAME=AxB] [--range NAME=LO:HI] ...
Out: "load_ms first_ms median_ms min_ms runs peak_kb" on stdout; the inputs are those that bench_child.c makes.

Imports are not part of the load time, nor their memory part of the peak.
"""
import resource
import sys
import time

import numpy as np

try:
    import onnxruntime as ort
except ImportError:
    sys.exit('onnxruntime is not installed in this Python')

TYPES = {'float': np.float32, 'double': np.float64, 'float16': np.float16, 'int64': np.int64, 'int32': np.int32,
         'int16': np.int16, 'int8': np.int8, 'uint8': np.uint8, 'uint16': np.uint16, 'uint32': np.uint32,
         'uint64': np.uint64, 'bool': np.bool_}


def hashed(n, seed):
    """splitmix64 of seed, seed + 1, ...: as in bench_child.c."""
    x = np.arange(n, dtype=np.uint64) + np.uint64((seed + 0x9e3779b97f4a7c15) & (1 << 64) - 1)
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xbf58476d1ce4e5b9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94d049bb133111eb)
    return ((x ^ x >> np.uint64(31)) >> np.uint64(11)).astype(np.float64) * 2.0 ** -53


def make_input(port, seed, pairs):
    dtype = TYPES[port.type[len('tensor('):-1]]
    dims = [d if isinstance(d, int) and d >= 0 else int(pairs.get(('--dim', d), pairs.get(('--dim', '*'), 1))) for d in port.shape]
    if ('--shape', port.name) in pairs:
        dims = [int(d) for d in pairs['--shape', port.name].split('x')]
    real = np.issubdtype(dtype, np.floating)
    low, high = (-1, 1) if real else (0, 2)
    if ('--range', port.name) in pairs:
        low, high = (float(v) for v in pairs['--range', port.name].split(':'))
        high += 0 if real else 1
    values = low + (high - low) * hashed(int(np.prod(dims, dtype=np.int64)), seed)
    return (values if real else np.floor(values)).astype(dtype).reshape(dims)


def resident_kb():
    with open('/proc/self/statm', encoding='ascii') as f:
        return int(f.read().split()[1]) * 4


def main():
    model, threads, seconds, seed = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    rest = sys.argv[5:]
    pairs = {(o, t.rsplit('=', 1)[0]): t.rsplit('=', 1)[1] for o, t in zip(rest[::2], rest[1::2])}
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    before, start = resident_kb(), time.perf_counter()
    session = ort.InferenceSession(model, options, providers=['CPUExecutionProvider'])
    load = time.perf_counter() - start
    feeds = {p.name: make_input(p, seed + i, pairs) for i, p in enumerate(session.get_inputs())}
    start = time.perf_counter()
    session.run(None, feeds)
    first, times = time.perf_counter() - start, []
    binding = session.io_binding()
    for name, value in feeds.items():
        binding.bind_cpu_input(name, value)
    for port in session.get_outputs():
        binding.bind_output(port.name)
    start = time.perf_counter()
    end = start + seconds
    while start < end or len(times) < 3:
        session.run_with_iobinding(binding)
        stop = time.perf_counter()
        times.append(stop - start)
        start = stop
    times.sort()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print('%.6f %.6f %.6f %.6f %d %d' % (load * 1e3, first * 1e3, times[len(times) // 2] * 1e3, times[0] * 1e3,
                                         len(times), peak))


if __name__ == '__main__':
    main()
