# SPDX-License-Identifier: Apache-2.0
"""What the tests of the plugin share: sessions with it and without, and which nodes it took."""
import contextlib
import os

import numpy as np
import onnxruntime as ort

NAME = 'cytoc'
ERRORS_ONLY, SILENT = 3, 4


def register(path, name=NAME):
    ort.register_execution_provider_library(name, path)
    return devices()


def devices():
    return [d for d in ort.get_ep_devices() if d.ep_name == NAME]


def session(model, config=None, intra=1, severity=SILENT, **options):
    """A session of `intra` threads with the plugin; options: the provider's; config: the session's entries. model: a path, bytes, or a ModelProto."""
    so = ort.SessionOptions()
    so.intra_op_num_threads, so.log_severity_level = intra, severity
    so.add_session_config_entry('session.record_ep_graph_assignment_info', '1')
    for key, value in (config or {}).items():
        so.add_session_config_entry(key, value)
    so.add_provider_for_devices(devices(), {k: str(v) for k, v in options.items()})
    return ort.InferenceSession(model if isinstance(model, (str, bytes)) else model.SerializeToString(), so)


def reference(model, threads=1):
    """The same without it."""
    so = ort.SessionOptions()
    so.intra_op_num_threads, so.log_severity_level = threads, SILENT
    return ort.InferenceSession(model if isinstance(model, (str, bytes)) else model.SerializeToString(), so,
                                providers=['CPUExecutionProvider'])


def groups(s):
    """[operators] of each group of nodes that the plugin took."""
    return [[n.op_type for n in g.get_nodes()] for g in s.get_provider_graph_assignment_info() if g.ep_name == NAME]


def left(s):
    """Operators of the nodes that it left."""
    return [n.op_type for g in s.get_provider_graph_assignment_info() if g.ep_name != NAME for n in g.get_nodes()]


@contextlib.contextmanager
def raises(kind, text):
    try:
        yield
    except kind as e:
        assert text in str(e), '%r is not in %r' % (text, str(e))
    else:
        raise AssertionError('no error: expected one with %r' % text)


def random_feeds(s, sizes, seed=0):
    """Random inputs; sizes: of symbolic dims."""
    rng, feeds = np.random.default_rng(seed), {}
    kinds = {'tensor(float)': np.float32, 'tensor(double)': np.float64, 'tensor(float16)': np.float16, 'tensor(int64)': np.int64,
             'tensor(int32)': np.int32, 'tensor(bool)': np.bool_, 'tensor(uint8)': np.uint8}
    for i in s.get_inputs():
        shape, dtype = [d if isinstance(d, int) else sizes.get(d, 2) for d in i.shape], np.dtype(kinds[i.type])
        feeds[i.name] = rng.standard_normal(shape).astype(dtype) if dtype.kind == 'f' else rng.integers(0, 2, shape).astype(dtype)
    return feeds


def close(got, want, limit=1e-4):
    import lib
    assert len(got) == len(want)
    for k, (g, w) in enumerate(zip(got, want)):
        why = lib.difference('output %d' % k, np.asarray(g), np.asarray(w), limit)
        assert not why, why


def files(folder):
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []
