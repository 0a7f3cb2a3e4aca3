# SPDX-License-Identifier: Apache-2.0
"""ONNX's backend interface: the standard's node tests, run by onnx.backend.test itself."""
import re
import unittest

import numpy as np
import onnx.backend.test
from onnx import helper

from models import linear

EVERY = 12  # of the list of passing names, run by tests/onnx whole


def test_node_tests():
    import cytoc.backend
    with open('tests/onnx/passing.txt', encoding='utf-8') as f:
        names = sorted(line.split()[0] for line in f if line.strip() and not line.startswith('#'))[::EVERY]
    suite = onnx.backend.test.BackendTest(cytoc.backend, __name__)
    for name in names:
        suite.include('^%s_cpu$' % re.escape(name))
    result = unittest.TestResult()
    tests = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromTestCase(case) for case in suite.test_cases.values())
    tests.run(result)
    bad = result.failures + result.errors
    assert not bad, '%d fail, first: %s: %s' % (len(bad), bad[0][0], bad[0][1][-300:])
    ran = result.testsRun - len(result.skipped)
    assert ran >= 0.8 * len(names), '%d ran of %d' % (ran, len(names))


def test_interface():
    import cytoc.backend as backend
    m, f = linear()
    x = np.ones((2, 3), np.float32)
    assert backend.supports_device('CPU') and not backend.supports_device('CUDA')
    np.testing.assert_allclose(backend.run_model(m, [x])[0], f(x))
    y = backend.run_node(helper.make_node('Add', ['a', 'b'], ['c']), [x, x])[0]
    np.testing.assert_allclose(y, x + x)
