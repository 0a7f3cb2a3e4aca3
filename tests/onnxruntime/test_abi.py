# SPDX-License-Identifier: Apache-2.0
"""The numbers of functions in ort_abi.h, by calling each in the real runtime; and runtimes that are too old."""
import os
import subprocess
import sys

import onnx
import onnxruntime as ort
import models
import plugin

HERE = os.path.dirname(os.path.abspath(__file__))
RARE = {'ReleaseOpAttr'}  # after failures that cannot be had here


def scenario(*words, **env):
    return scenario_said(*words, **env)[0]


def scenario_said(*words, **env):
    """What went to stdout, and to stderr."""
    done = subprocess.run([sys.executable, os.path.join(HERE, 'scenario.py'), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, env={**os.environ, 'WORK': WORK, **env})
    assert done.returncode == 0, '%s ended with %d: %s' % (words[0], done.returncode, (done.stderr or done.stdout)[-1500:])
    return done.stdout, done.stderr


def counted():
    path = os.path.join(BUILD, 'tests', 'onnxruntime', 'counted.so')
    return path if os.path.exists(path) else None


def calls(version):
    return {name: (int(since), int(n)) for name, since, n in
            (line.split() for line in scenario('counted', counted(), LIBRARY, version).splitlines())}


def test_every_function_of_this_version():
    if not counted():
        return 'counted.c knows x86-64 only'
    found = calls(ort.__version__)
    newer = {'GetTensorTypeAndShape', 'GetDimensions', 'GetTensorElementType', 'ReleaseTensorTypeAndShapeInfo'}
    assert len(found) > 60
    assert not [n for n, (_, c) in found.items() if not c and n not in RARE], found
    assert newer <= set(found)


def test_every_function_of_the_oldest_version():
    """1.23: what came later must not be called, and what stands in for it is."""
    if not counted():
        return 'counted.c knows x86-64 only'
    found = calls('1.23.2')
    assert not [n for n, (since, c) in found.items() if since > 23 and c], found
    assert not [n for n, (since, c) in found.items() if since <= 23 and not c and n not in RARE], found


def test_older_versions_are_refused():
    if not counted():
        return 'counted.c knows x86-64 only'
    said = scenario('refused', counted(), LIBRARY, '1.22.1')
    assert 'expected ONNX Runtime 1.23 or newer' in said and 'found 1.22.1' in said and '0 devices' in said, said


def test_device():
    found = plugin.devices()
    assert len(found) == 1 and found[0].ep_vendor == 'cytoc' and 'CPU' in str(found[0].device.type), found
    said = subprocess.run([os.path.join(BUILD, 'cytoc'), '--version'], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert found[0].ep_metadata['version'] == said.split()[1], (said, dict(found[0].ep_metadata))


def test_unload_and_reload():
    assert scenario('reload', LIBRARY) == 'ok\n'


def test_python_package_names_it():
    code = 'import cytoc; print(cytoc.ort_plugin())'
    env = dict(os.environ, CYTOC_LIB_DIR=BUILD, PYTHONPATH='python')
    path = subprocess.run([sys.executable, '-c', code], stdout=subprocess.PIPE, text=True, env=env, check=True).stdout.strip()
    assert os.path.samefile(path, LIBRARY)
    env['CYTOC_LIB_DIR'] = WORK
    done = subprocess.run([sys.executable, '-c', code], stderr=subprocess.PIPE, text=True, env=env)
    assert done.returncode and 'LoadError' in done.stderr and 'libcytoc_onnxruntime.so' in done.stderr, done.stderr


def test_registered_under_two_names():
    path = os.path.join(WORK, 'twice.onnx')
    onnx.save(models.two_inputs(), path)
    assert scenario('twice', LIBRARY, path).split() == ['1', '1']
