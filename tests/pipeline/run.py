# SPDX-License-Identifier: Apache-2.0
"""Pipelines: the C tests (tests/rt/test_pipeline*.c, test_tiles.c), and cytoc.Pipeline as its users have it.

In:  the programs and libraries of --build; NumPy, onnx, onnxruntime of build/venv; networks of ../shared/models.
Out: the closing line. Each Python test is a function test_* of test_python.py. Other builds than the release have the C tests alone.
"""
import importlib
import inspect
import os
import shutil
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), 'python'), HERE]
import lib


def python_tests(args, suite):
    work = os.path.join(args.build, 'pipeline-tests')
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    os.environ.update(CYTOC_LIB_DIR=args.build, CYTOC_CACHE_DIR=os.path.join(work, 'cache'), PYTHONPATH=os.path.join(lib.ROOT, 'python'))
    sys.path.insert(0, os.path.join(lib.ROOT, 'python'))
    module = importlib.import_module('test_python')
    module.WORK, module.BUILD = work, args.build
    for title, function in inspect.getmembers(module, inspect.isfunction):
        if not title.startswith('test_') or not args.wanted(title):
            continue
        try:
            function()
            suite.result(title)
        except Exception as e:
            traceback.print_exc()
            suite.result(title, str(e).splitlines()[0] if str(e) else type(e).__name__)


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    for program in ('test_pipeline', 'test_pipeline_stages', 'test_tiles'):
        if args.wanted(program):
            code, out, err = lib.run([os.path.join(args.build, 'tests', 'rt', program)])
            suite.result(program, lib.reason(err or out, code) if code else None)
    if args.variant == 'release':
        python_tests(args, suite)
    suite.done('tests')


if __name__ == '__main__':
    main()
