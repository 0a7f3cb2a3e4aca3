# SPDX-License-Identifier: Apache-2.0
"""The wheel, in an empty virtual environment: what is in it, the example, the command lines; with no program on PATH but `ld`."""
import glob
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile

import numpy as np

import lib


def built():
    """A wheel of the libraries at hand; `make wheel` makes one of portable ones in the same way."""
    folder = os.path.join(WORK, 'dist')
    done = subprocess.run([sys.executable, 'setup.py', '-q', 'build', '-b', os.path.join(WORK, 'wheel'), 'egg_info', '-e', WORK,
                           'bdist_wheel', '-d', folder], cwd=lib.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=dict(os.environ, CYTOC_BUILD=os.path.abspath(BUILD)))
    assert done.returncode == 0, done.stdout[-2000:]
    [wheel] = glob.glob(os.path.join(folder, '*.whl'))
    return wheel


def test_wheel():
    if not importlib.util.find_spec('wheel'):
        return 'the package wheel is not installed'
    wheel = built()
    assert '-py3-none-linux_' in os.path.basename(wheel), wheel
    with zipfile.ZipFile(wheel) as f:
        names = set(f.namelist())
    for file in ('py.typed', '_lib/libcyto.so', '_lib/libcytoc.so', '_lib/libcytoc_onnxruntime.so', '_lib/bin/cytoc', '_lib/bin/cyto-run', '_lib/bin/cyto-bench', '_lib/bin/cyto-compare', '_lib/bin/cyto-tune', '_lib/share/verify_python.py',
                 '_lib/include/cyto.h', '_lib/include/cyto.hpp', '_lib/include/cyto_abi.h', '_lib/include/cytoc.h', '_lib/lib/libcyto.a'):
        assert 'cytoc/' + file in names, file
    place = os.path.join(WORK, 'empty')
    subprocess.run([sys.executable, '-m', 'venv', place], check=True)
    python = os.path.join(place, 'bin', 'python')
    clean = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
    subprocess.run([python, '-m', 'pip', 'install', '-q', '--no-index', '--no-deps', '--no-cache-dir', wheel], check=True, env=clean,
                   stderr=subprocess.DEVNULL)
    # NumPy, its only dependency, as it is here
    with open(glob.glob(os.path.join(place, 'lib', '*', 'site-packages'))[0] + '/numpy.pth', 'w', encoding='utf-8') as f:
        f.write(os.path.dirname(os.path.dirname(np.__file__)) + '\n')
    tools = os.path.join(WORK, 'ld-alone')
    os.makedirs(tools, exist_ok=True)
    os.symlink(os.path.realpath(shutil.which('ld')), os.path.join(tools, 'ld'))
    env = {'PATH': tools, 'HOME': WORK, 'PYTHONNOUSERSITE': '1'}

    def run(*command, **more):
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(env, **more), cwd=WORK)
    example = os.path.join(lib.ROOT, 'examples', 'python', 'quickstart.py')
    done = run(python, example)
    assert done.returncode == 0 and 'saved and loaded: equal' in done.stdout, done.stdout
    done = run(python, example, PATH='/nowhere', CYTOC_CACHE_DIR=os.path.join(WORK, 'other-cache'))
    assert done.returncode and "install the package 'binutils'" in done.stdout, done.stdout
    for tool in 'cytoc', 'cyto-run', 'cyto-bench', 'cyto-compare', 'cyto-tune':
        done = run(os.path.join(place, 'bin', tool), '--version')
        assert done.returncode == 0 and done.stdout.startswith(tool + ' '), done.stdout
    done = run(python, '-m', 'cytoc', os.path.join(lib.ROOT, 'examples/digits/digits.onnx'), '-o', os.path.join(WORK, 'digits.a'), '-j1')
    assert done.returncode and 'ar' in done.stdout, done.stdout  # archives need more than `ld`, and say so
    done = run(python, '-m', 'cytoc', os.path.join(lib.ROOT, 'examples/digits/digits.onnx'), '-o', os.path.join(WORK, 'digits.so'))
    assert done.returncode == 0 and os.path.exists(os.path.join(WORK, 'digits.so')), done.stdout
