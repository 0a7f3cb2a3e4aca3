# SPDX-License-Identifier: Apache-2.0
"""The node tests of the ONNX standard through ONNX Runtime with the plugin, against the standard's expected outputs.

Of those that tests/onnx passes (its passing.txt), every 8th in `make check`. All nodes of a model must be taken, but where
left.txt names the test and why. A test of something that ONNX Runtime itself refuses, or whose tensors its Python interface does
not take, is not counted.
"""
import fnmatch
import os

import numpy as np
import onnx
from onnx import numpy_helper
import lib
import plugin

HERE = os.path.dirname(os.path.abspath(__file__))
PACKED = ('float4', 'int4', 'uint4', 'int2', 'uint2')
PROTOS = {'tensor': (onnx.TensorProto, numpy_helper.to_array), 'seq': (onnx.SequenceProto, numpy_helper.to_list),
          'optional': (onnx.OptionalProto, numpy_helper.to_optional), 'map': (onnx.MapProto, numpy_helper.to_dict)}


def load(path, kind):
    make, convert = PROTOS[kind.split('(')[0]]
    proto = make()
    with open(path, 'rb') as f:
        proto.ParseFromString(f.read())
    return convert(proto)


def wrong(got, want, rtol, atol):
    if isinstance(want, (list, tuple)) and not isinstance(want, np.ndarray):
        return None if len(got) == len(want) and not any(wrong(g, w, rtol, atol) for g, w in zip(got, want)) else 'another sequence'
    got, want = np.asarray(got), np.asarray(want)
    if want.dtype.name.startswith('float8') and got.dtype == np.uint8:  # how ONNX Runtime's Python has them
        got = got.view(want.dtype)
    if got.shape != want.shape or got.dtype != want.dtype:
        return '%s %s, not %s %s' % (got.dtype, list(got.shape), want.dtype, list(want.shape))
    if want.dtype.kind in 'bOSU':
        return None if (got == want).all() else 'other values'
    return None if np.allclose(got.astype(np.float64), want.astype(np.float64), rtol, atol, equal_nan=True) else \
        'off by %g' % np.nanmax(np.abs(got.astype(np.float64) - want.astype(np.float64)))


def patterns(name):
    with open(os.path.join(HERE, name), encoding='utf-8') as f:
        return [line.split()[0] for line in f if line.strip() and not line.startswith('#')]


def is_listed(name, listed):
    return any(fnmatch.fnmatchcase(name, p) for p in listed)


def check(row, left_names):
    """(why, nodes taken); why: None when right, False when it does not count."""
    name, folder, number, rtol, atol, _, outputs = row
    data = '%s/test_data_set_%s' % (folder, number)
    try:
        s = plugin.session(folder + '/model.onnx')
    except Exception as e:
        try:
            plugin.reference(folder + '/model.onnx')
        except Exception:
            return False, 0  # not for ONNX Runtime
        return 'no session: %s' % str(e)[:300], 0
    taken = sum(len(g) for g in plugin.groups(s))
    if plugin.left(s) and not is_listed(name, left_names):
        return 'left: %s' % plugin.left(s), taken
    try:
        feeds = {i.name: load('%s/input_%d.pb' % (data, k), i.type) for k, i in enumerate(s.get_inputs())}
        want = [load('%s/output_%d.pb' % (data, k), o.type) for k, o in enumerate(s.get_outputs())]
        got = s.run(None, feeds)
    except Exception as e:
        try:
            plugin.reference(folder + '/model.onnx').run(None, feeds)
        except Exception:
            return False, taken  # types that are not NumPy's
        return 'run: %s' % str(e)[:300], taken
    if 'r' in outputs:
        return None, taken
    if any(np.asarray(v).dtype.name.startswith(PACKED) for v in want if isinstance(v, np.ndarray)):
        return False, taken  # ONNX Runtime's Python hands out their bytes under the tensor's shape
    rtol, atol = max(float(rtol), 1e-3), max(float(atol), 1e-5)
    return next((w for w in (wrong(g, v, rtol, atol) for g, v in zip(got, want)) if w), None), taken


def test_nodes():
    nodes = lib.load_module(os.path.join(lib.ROOT, 'tests', 'onnx', 'run.py'))
    every = ARGS.every
    listing = type('Args', (), {'wanted': staticmethod(lambda name: True)})
    passing = set(patterns('../onnx/passing.txt'))
    rows = [r for r in nodes.load_index(listing) if r[0] in passing]
    left_names, counted, taken = patterns('left.txt'), 0, 0
    for row in rows[::every]:
        why, n = check(row, left_names)
        taken += n
        if why is not False:
            counted += 1
            SUITE.result(row[0], why)
    print('%d of %d node tests, %d nodes taken' % (counted, len(rows[::every]), taken), flush=True)
    assert counted > 0.8 * len(rows[::every]) and taken > counted, (counted, taken)
