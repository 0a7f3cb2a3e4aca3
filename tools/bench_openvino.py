# SPDX-License-Identifier: Apache-2.0
"""One measured process of cyto-bench for OpenVINO: load a model, run it, print one line of numbers.

In:  MODEL THREADS SECONDS SEED [--dim NAME=N] [--shape NAME=AxB] [--range NAME=LO:HI] ...
Out: the line of bench_common.report() on stdout; the inputs are those that bench_child.c makes.

It computes in f32, as our library does unless asked otherwise, not in the bf16 that it takes by itself where a CPU has
AMX; integers of quantised models stay integers. The sizes at hand are fixed before it compiles.
"""
import sys
import time

import bench_common

try:
    import onnx
    import openvino
except ImportError as problem:
    sys.exit('%s is not installed in this Python' % problem.name)


def main():
    path, threads, seconds, seed = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    feeds = bench_common.feeds_of(onnx.load(path, load_external_data=False), seed, bench_common.read_pairs(sys.argv[5:]))
    before, start = bench_common.resident_kb(), time.perf_counter()
    core = openvino.Core()
    model = core.read_model(path)
    if model.is_dynamic():
        model.reshape({name: openvino.PartialShape(list(value.shape)) for name, value in feeds.items()})
    request = core.compile_model(model, 'CPU', {'INFERENCE_NUM_THREADS': threads, 'NUM_STREAMS': 1,
                                                'PERFORMANCE_HINT': 'LATENCY',
                                                'INFERENCE_PRECISION_HINT': 'f32'}).create_infer_request()
    load = time.perf_counter() - start

    def once():
        request.infer(feeds, share_inputs=True, share_outputs=True)
    start = time.perf_counter()
    once()
    first = time.perf_counter() - start
    times = bench_common.timed(once, seconds)
    bench_common.report(load, first, times, bench_common.peak_kb() - before)


if __name__ == '__main__':
    main()
