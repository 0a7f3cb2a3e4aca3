# SPDX-License-Identifier: Apache-2.0
"""The Python package, python/cytoc, used as its users do: models of all element types and kinds of values, what does not fit, buffers
that stay, threads, fork, the cache, ONNX Runtime's interface, the ONNX backend, types.

In:  the package as it lies in the repository, with the libraries of --build; NumPy, onnx, onnxruntime, ml_dtypes of build/venv.
Out: the closing line. Each test is a function test_* of a module test_*.py beside this file.
"""
import importlib
import inspect
import os
import shutil
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), HERE]
import lib

MODULES = ('test_model', 'test_compile', 'test_session', 'test_backend', 'test_types', 'test_cuda', 'test_wheel')


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    work = os.path.join(args.build, 'python-tests')
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    os.environ.update(CYTOC_LIB_DIR=args.build, CYTOC_CACHE_DIR=os.path.join(work, 'cache'), PYTHONWARNINGS='default',
                      PYTHONPATH=os.path.join(lib.ROOT, 'python'))
    sys.path.insert(0, os.path.join(lib.ROOT, 'python'))
    if args.variant != 'release':
        print('skipped: the package loads release builds')
        print('0 passed, 0 failed, 1 skipped')
        return
    for name in MODULES:
        module = importlib.import_module(name)
        module.WORK, module.BUILD = work, args.build
        for title, function in inspect.getmembers(module, inspect.isfunction):
            if not title.startswith('test_') or not args.wanted('%s.%s' % (name, title)):
                continue
            try:
                skipped = function()
                if isinstance(skipped, str):
                    print('skipped %s: %s' % (title, skipped))
                    suite.skipped += 1
                else:
                    suite.result(title)
            except Exception as e:
                traceback.print_exc()
                suite.result(title, str(e).splitlines()[0] if str(e) else type(e).__name__)
    suite.done('tests')


if __name__ == '__main__':
    main()
