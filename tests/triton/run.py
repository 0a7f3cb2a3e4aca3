# SPDX-License-Identifier: Apache-2.0
"""The backend for Triton Inference Server, integrations/triton, in the real server, with its real clients.

In:  build/backends/cytoc; build/triton-venv, made from requirements.txt beside this file where it is missing (unless CYTO_NO_INSTALL
     is set); for networks ../shared. --long: clients for a minute (`make check-long`).
Out: the closing line. Each test is a function test_* of a module test_*.py beside this file. Servers listen on 127.0.0.1, on ports that
     were free, and are stopped by the test that started them.
"""
import importlib
import inspect
import os
import shutil
import subprocess
import sys
import time
import traceback
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), HERE]
import lib

MODULES = ('test_networks', 'test_config', 'test_sequences', 'test_faults', 'test_load', 'test_fuzz', 'test_serve',
           'test_kubernetes')
NEEDED = 'import tritonclient.http, tritonclient.grpc, onnx, yaml, kubernetes_validate, importlib.util as u; assert u.find_spec("pytriton")'


def ready(python):
    return os.path.exists(python) and not subprocess.run([python, '-c', NEEDED], stdout=subprocess.DEVNULL,
                                                         stderr=subprocess.DEVNULL).returncode


def install(python, log):
    """None, or why there is no Triton."""
    if os.environ.get('CYTO_NO_INSTALL'):
        return 'CYTO_NO_INSTALL is set'
    folder = os.path.dirname(os.path.dirname(python))
    with open(log, 'w') as f:
        for command in ([sys.executable, '-m', 'venv', folder],
                        [python, '-m', 'pip', 'install', '-q', '--disable-pip-version-check', '--no-deps', '-r',
                         os.path.join(HERE, 'requirements.txt')]):
            if subprocess.run(command, stdout=f, stderr=f).returncode:
                return 'it cannot be installed: %s' % log
    return None if ready(python) else 'it cannot be used: %s' % log


def find_python(args):
    """The Python that has server and clients, or None and why there is none."""
    python = os.path.join(lib.ROOT, 'build/triton-venv/bin/python')
    if args.variant != 'release':
        return None, 'the server loads release builds'
    return python, None if ready(python) else install(python, os.path.join(args.build, 'triton-venv.log'))


def run_module(name, args, suite, work):
    module = importlib.import_module(name)
    module.ARGS, module.WORK = args, work
    for title, function in inspect.getmembers(module, inspect.isfunction):
        if not title.startswith('test_') or not args.wanted('%s.%s' % (name, title)):
            continue
        start = time.time()
        try:
            skipped = function()
            if isinstance(skipped, str):
                suite.skip(title, skipped)
            else:
                suite.result(title)
        except Exception as e:
            traceback.print_exc()
            suite.result(title, str(e).splitlines()[0] if str(e) else type(e).__name__)
        print('%-40s %.1f s' % (title, time.time() - start), flush=True)


def main():
    args = lib.arguments(__doc__, long={'action': 'store_true'})
    if not lib.cases_wanted(args, [os.path.join(HERE, name + '.py') for name in MODULES], qualified=True):
        return lib.none_wanted()
    python, why = find_python(args)
    if why:
        print('skipped: no Triton: %s\n0 passed, 0 failed, 1 skipped' % why)
        return
    if os.path.realpath(sys.prefix) != os.path.realpath(os.path.dirname(os.path.dirname(python))):
        sys.exit(subprocess.run([python, *sys.argv]).returncode)
    work = os.path.join(args.build, 'triton-tests', str(os.getpid()))
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    os.environ.update(CYTOC_CACHE_DIR=os.path.join(work, 'cache'), CYTOC_LIB_DIR=args.build)
    sys.path.insert(0, os.path.join(lib.ROOT, 'python'))
    warnings.simplefilter('ignore')  # of the compiler, about networks
    suite = lib.Suite(args)
    for name in MODULES:
        run_module(name, args, suite, work)
    if not suite.failed:
        shutil.rmtree(work, ignore_errors=True)
    suite.done()


if __name__ == '__main__':
    main()
