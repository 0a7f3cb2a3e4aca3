# SPDX-License-Identifier: Apache-2.0
"""Models for CUDA: tensors of the host, and tensors of the device through DLPack, by the mocks of tests/cuda. Device memory is the mock
driver's; a tensor of another framework is a capsule made here by hand.

Each test is a program of its own (tests/python/device_*.py): the mock driver is found through LD_LIBRARY_PATH.
"""
import argparse
import os
import shutil
import subprocess
import sys

import lib
sys.path.insert(0, os.path.join(lib.ROOT, 'tests', 'cuda'))
import mock

CASES = 'calls', 'misfits', 'buffers', 'lifetime', 'shapes', 'devices', 'memory', 'example', 'no_driver'


def program(name):
    args = argparse.Namespace(build=os.path.abspath(BUILD), device=False)
    env = mock.environment(args)
    if name == 'no_driver':
        env['LD_LIBRARY_PATH'] = ''
    return subprocess.run([sys.executable, os.path.join(lib.ROOT, 'tests', 'python', 'device.py'), name], env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_on_device():
    if not os.path.exists(os.path.join(mock.folder(argparse.Namespace(build=BUILD)), 'libcuda.so.1')):
        return 'the mocks of CUDA are not built'
    for name in CASES:
        done = program(name)
        assert done.returncode == 0, '%s: %s' % (name, done.stdout[-1500:])
