# SPDX-License-Identifier: Apache-2.0
"""Runs the functions test_* of the modules test_*.py of this folder. run.py starts it in the right Python.

Out: the closing line. A test that returns text is skipped, for that reason.
"""
import glob
import importlib
import inspect
import os
import shutil
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), HERE]
import lib


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    work = os.path.join(args.build, 'predict-tests')
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    for path in sorted(glob.glob(os.path.join(HERE, 'test_*.py'))):
        module = importlib.import_module(os.path.basename(path)[:-3])
        module.WORK, module.BUILD = work, args.build
        for title, function in inspect.getmembers(module, inspect.isfunction):
            if title.startswith('test_') and args.wanted('%s.%s' % (module.__name__, title)):
                run(suite, '%s.%s' % (module.__name__[5:], title[5:]), function)
    suite.done('tests')


def run(suite, name, function):
    try:
        why = function()
        suite.skip(name, why) if why else suite.result(name)
    except Exception as e:
        traceback.print_exc()
        suite.result(name, str(e).splitlines()[0] if str(e) else type(e).__name__)


if __name__ == '__main__':
    main()
