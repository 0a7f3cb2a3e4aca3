# SPDX-License-Identifier: Apache-2.0
"""Processes of their own for tests: scenario.py NAME ARGUMENT..; prints what the test asks for.

  counted COUNTED PLUGIN VERSION   sessions that use all of the interface, through counted.c: a line per function with the version
                                   that it is of and how often it was called
  refused COUNTED PLUGIN VERSION   registering where the runtime is too old: the error
  reload PLUGIN                    registered, used, unregistered, three times
  context PLUGIN MODEL             a session of an EPContext model: milliseconds, and whether libcytoc was loaded
  compile PLUGIN MODEL             a session
  calibrated PLUGIN MODEL SAMPLES  a session with int8=static; its warnings go to stderr
  twice PLUGIN MODEL               registered under two names: how many devices there are, and a session
"""
import ctypes
import os
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import numpy as np
import onnxruntime as ort
import plugin


def minor(version):
    return int(version.split('.')[1])


def counted(path, library, version):
    import models
    c = ctypes.CDLL(path)
    c.counted_name.restype = ctypes.c_char_p
    c.counted_set(library.encode(), version.encode(), minor(version))
    plugin.register(path)
    for model, sizes in models.all_kinds():
        s = plugin.session(model, intra=2)
        feeds = plugin.random_feeds(s, sizes)
        plugin.close(s.run(None, feeds), plugin.reference(model).run(None, feeds))
    work = tempfile.mkdtemp(dir=os.environ['WORK'])
    for embed in '01':
        config = {'ep.context_enable': '1', 'ep.context_embed_mode': embed, 'ep.context_file_path': '%s/c%s.onnx' % (work, embed)}
        plugin.session(models.network(), config)
    plugin.session('%s/c0.onnx' % work)
    calls, since, i = ctypes.c_long(), ctypes.c_int(), 0
    while True:
        name = c.counted_name(i, ctypes.byref(calls), ctypes.byref(since))
        if not name:
            break
        print(name.decode(), since.value, calls.value)
        i += 1


def refused(path, library, version):
    c = ctypes.CDLL(path)
    c.counted_set(library.encode(), version.encode(), minor(version))
    try:
        plugin.register(path)
    except Exception as e:
        print(type(e).__name__, e)
    print(len(plugin.devices()), 'devices')


def reload(library):
    import gc
    import models
    for _ in range(3):
        plugin.register(library)
        s = plugin.session(models.network())
        s.run(None, plugin.random_feeds(s, {'batch': 3}))
        assert plugin.groups(s) and not plugin.left(s)
        del s
        gc.collect()
        ort.unregister_execution_provider_library(plugin.NAME)
        assert not plugin.devices()
    print('ok')


def context(library, model):
    plugin.register(library)
    plugin.session(model)  # what is loaded once
    start = time.perf_counter()
    s = plugin.session(model)
    print('%.3f' % (1e3 * (time.perf_counter() - start)))
    with open('/proc/self/maps', encoding='utf-8') as f:
        print('compiler' if 'libcytoc.so' in f.read() else 'alone')
    s.run(None, plugin.random_feeds(s, {'batch': 3}))


def compile(library, model):
    plugin.register(library)
    s = plugin.session(model)
    s.run(None, plugin.random_feeds(s, {'batch': 3}))
    print('ok')


def calibrated(library, model, samples):
    plugin.register(library)
    plugin.session(model, severity=2, int8='static', calibrate=samples)
    print('ok')


def twice(library, model):
    plugin.register(library)
    print(len(plugin.register(library, 'another')), len(plugin.groups(plugin.session(model))))


if __name__ == '__main__':
    ort.set_default_logger_severity(plugin.SILENT)
    globals()[sys.argv[1]](*sys.argv[2:])
