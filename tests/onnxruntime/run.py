# SPDX-License-Identifier: Apache-2.0
"""The plugin execution provider, integrations/onnxruntime, in the real ONNX Runtime.

In:  build/libcytoc_onnxruntime.so with libcytoc.so beside it, onnxruntime and onnx of build/venv; for networks ../shared.
Out: the closing line. Each test is a function test_* of a module test_*.py beside this file; of the node tests every 8th runs,
     --every 1: all.
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

MODULES = ('test_abi', 'test_session', 'test_context', 'test_cache', 'test_networks', 'test_nodes')


def main():
    args = lib.arguments(__doc__, every={'type': int, 'default': 8})
    suite = lib.Suite(args)
    library = os.path.join(args.build, 'libcytoc_onnxruntime.so')
    if args.variant != 'release':
        suite.skip('plugin', 'Python loads release builds')
        suite.done()
    try:
        import onnxruntime
        import plugin
    except ImportError as e:
        suite.skip('plugin', str(e))
        suite.done()
    work = os.path.join(args.build, 'onnxruntime-tests')
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    os.environ['CYTOC_CACHE_DIR'] = os.path.join(work, 'cache')
    onnxruntime.set_default_logger_severity(plugin.SILENT)
    plugin.register(library)
    for name in MODULES:
        module = importlib.import_module(name)
        module.WORK, module.BUILD, module.LIBRARY, module.ARGS, module.SUITE = work, args.build, library, args, suite
        for title, function in inspect.getmembers(module, inspect.isfunction):
            if not title.startswith('test_') or not args.wanted('%s.%s' % (name, title)):
                continue
            try:
                skipped = function()
                if isinstance(skipped, str):
                    suite.skip(title, skipped)
                else:
                    suite.result(title)
            except Exception as e:
                traceback.print_exc()
                suite.result(title, str(e).splitlines()[0] if str(e) else type(e).__name__)
    shutil.rmtree(work, ignore_errors=True)
    suite.done()


if __name__ == '__main__':
    main()
