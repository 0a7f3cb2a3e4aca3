# SPDX-License-Identifier: Apache-2.0
"""The package's annotations, by mypy and pyright, where they are installed."""
import importlib.util
import os
import subprocess
import sys

from lib import ROOT


def test_mypy():
    if not importlib.util.find_spec('mypy'):
        return 'mypy is not installed'
    done = subprocess.run([sys.executable, '-m', 'mypy', '--no-error-summary'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    assert done.returncode == 0, done.stdout[-1500:]


def test_pyright():
    if not importlib.util.find_spec('pyright'):
        return 'pyright is not installed'
    env = dict(os.environ, PYRIGHT_PYTHON_IGNORE_WARNINGS='1', NODE_OPTIONS='--no-warnings')
    done = subprocess.run([sys.executable, '-m', 'pyright', '-p', ROOT, '--pythonpath', sys.executable], env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-1500:]
