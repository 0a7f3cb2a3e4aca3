# SPDX-License-Identifier: Apache-2.0
"""The ONNX standard's node tests as CUDA models, without a GPU: a mock NVRTC, and a mock driver that runs kernels by
the shim.

In:  what tests/onnx/run.py takes, of which the tests on its list of passing names; --every N takes each Nth of them (all,
     with sanitizers each tenth).
Out: the closing line; build/onnx-tests/report-cuda.txt. data/nodes-passing.txt holds the names that must pass; see lib.py.

With a driver and a device (--device) the same tests run on the device: then NVRTC compiles them for real. With --nvrtc it
does so here, too, and its PTX runs (mock.py).
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), 'onnx'))
import lib
import mock
import run


def main():
    args = lib.arguments(__doc__, every=dict(type=int, default=0), device=dict(action='store_true'),
                         nvrtc=dict(action='store_true'), jobs=run.JOBS, target=mock.TARGET)
    args.options = mock.options(args) + ['--name=model']  # equal kernels of different tests are compiled once
    args.judging = ['--halves']  # tensor cores take weights of attention in f16
    args.env = mock.environment(args, nvrtc=args.nvrtc)
    args.cytoc_env = mock.compiling(args.env)
    suite = lib.Suite(args, os.path.join(HERE, 'data', 'nodes-passing.txt'))
    on_cpu = lib.Suite(args, os.path.join(HERE, '..', 'onnx', 'passing.txt')).listed
    rows = [r for r in run.load_index(args) if r[0] in on_cpu]
    every = args.every or (1 if args.variant == 'release' else run.SANITIZED_STEP)
    run.judge(args, suite, rows if args.names else rows[::every], ['-O3'], 'report-cuda.txt')


if __name__ == '__main__':
    main()
