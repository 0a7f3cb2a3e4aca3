# SPDX-License-Identifier: Apache-2.0
"""One measured process of cyto-bench for ONNX Runtime: load a model, run it, print one line of numbers.

In:  MODEL THREADS SECONDS SEED [--dim NAME=N] [--shape NAME=AxB] [--range NAME=LO:HI] ...
Out: the line of bench_common.report() on stdout; the inputs are those that bench_child.c makes.

Imports are not part of the load time, nor their memory part of the peak.
"""
import sys
import time

import bench_common

try:
    import onnxruntime as ort
except ImportError:
    sys.exit('onnxruntime is not installed in this Python')

NUMBERS = {'float': 1, 'uint8': 2, 'int8': 3, 'uint16': 4, 'int16': 5, 'int32': 6, 'int64': 7, 'bool': 9, 'float16': 10,
           'double': 11, 'uint32': 12, 'uint64': 13}


def main():
    model, threads, seconds, seed = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    pairs = bench_common.read_pairs(sys.argv[5:])
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    before, start = bench_common.resident_kb(), time.perf_counter()
    session = ort.InferenceSession(model, options, providers=['CPUExecutionProvider'])
    load = time.perf_counter() - start
    feeds = {p.name: bench_common.make(p.name, NUMBERS[p.type[len('tensor('):-1]], p.shape, seed + i, pairs, i)
             for i, p in enumerate(session.get_inputs())}
    start = time.perf_counter()
    session.run(None, feeds)
    first = time.perf_counter() - start
    binding = session.io_binding()
    for name, value in feeds.items():
        binding.bind_cpu_input(name, value)
    for port in session.get_outputs():
        binding.bind_output(port.name)
    times = bench_common.timed(lambda: session.run_with_iobinding(binding), seconds)
    bench_common.report(load, first, times, bench_common.peak_kb() - before)


if __name__ == '__main__':
    main()
