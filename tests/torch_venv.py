# SPDX-License-Identifier: Apache-2.0
"""build/torch-venv: the Python with the real PyTorch, which several suites use, each with requirements of its own.

In:  tests/torch/requirements.txt, and files of further requirements. Out: prepare(), which installs what is missing.
"""
import fcntl
import os
import subprocess
import sys

import lib

TORCH = os.path.join(lib.ROOT, 'tests/torch/requirements.txt')


def _imports(python, modules):
    return os.path.exists(python) and subprocess.run([python, '-c', 'import ' + ', '.join(modules)], stdout=subprocess.DEVNULL,
                                                     stderr=subprocess.DEVNULL).returncode == 0


def _install(python, files, log):
    folder = os.path.dirname(os.path.dirname(python))
    commands = [] if os.path.exists(python) else [[sys.executable, '-m', 'venv', folder]]
    commands += [[python, '-m', 'pip', 'install', '-q', '--disable-pip-version-check', '-r', f] for f in files]
    with open(log, 'w') as f:
        return not any(subprocess.run(command, stdout=f, stderr=f).returncode for command in commands)


def prepare(args, modules, requirements=()):
    """(path of the Python, None), or (path, why it lacks one of the modules). CYTO_TORCH_PYTHON names another Python, which is taken as
    it is; CYTO_NO_INSTALL: nothing is installed."""
    python = os.environ.get('CYTO_TORCH_PYTHON') or os.path.join(lib.ROOT, 'build/torch-venv/bin/python')
    log = os.path.join(args.build, 'torch-venv.log')
    with open(os.path.join(lib.ROOT, 'build/torch-venv.lock'), 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one suite at a time installs
        if _imports(python, modules):
            return python, None
        if os.environ.get('CYTO_NO_INSTALL') or os.environ.get('CYTO_TORCH_PYTHON'):
            return python, '%s lacks one of %s, and nothing is to be installed' % (python, ' '.join(modules))
        if _install(python, [TORCH, *requirements], log) and _imports(python, modules):
            return python, None
    return python, 'they cannot be installed: %s' % log
