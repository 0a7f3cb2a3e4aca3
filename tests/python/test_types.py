# SPDX-License-Identifier: Apache-2.0
"""The package's annotations, by mypy, where it is installed."""
import importlib.util
import subprocess
import sys


def test_mypy():
    if not importlib.util.find_spec('mypy'):
        return 'mypy is not installed'
    done = subprocess.run([sys.executable, '-m', 'mypy', '--no-error-summary'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    assert done.returncode == 0, done.stdout[-1500:]
