# SPDX-License-Identifier: Apache-2.0
"""InferenceSession: scripts written for ONNX Runtime, unchanged but for the import, beside the real one; and what it refuses."""
import glob
import os
import re
import subprocess
import sys
import warnings

import numpy as np
import onnx

import cytoc
import lib
from models import linear, raises

HERE = os.path.dirname(os.path.abspath(__file__))


def run_script(text, name, model):
    path, result = os.path.join(WORK, name + '.py'), os.path.join(WORK, name + '.npz')
    with open(path, 'w', encoding='utf-8') as f:
        f.write(text)
    done = subprocess.run([sys.executable, path, model, result], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, '%s: %s' % (name, done.stdout)
    with np.load(result) as found:
        return done.stdout, {k: found[k] for k in found.files}


def test_scripts():
    scripts = sorted(glob.glob(os.path.join(HERE, 'scripts', '*.py')))
    assert len(scripts) >= 5
    for script in scripts:
        name = os.path.basename(script)[:-3]
        with open(script, encoding='utf-8') as f:
            text = f.read()
        changed, count = re.subn(r'^import onnxruntime( as \w+)?$', lambda m: 'import cytoc' + (m[1] or ' as onnxruntime'), text,
                                 flags=re.M)
        assert count == 1, name
        model = os.path.join(lib.ROOT, 'examples/digits/digits.onnx')
        want, expected = run_script(text, name + '-ort', model)
        said, found = run_script(changed, name + '-cytoc', model)
        assert expected.keys() == found.keys()
        for key in expected:
            assert expected[key].dtype == found[key].dtype and expected[key].shape == found[key].shape, (name, key)
            np.testing.assert_allclose(found[key], expected[key], rtol=1e-4, atol=1e-6, err_msg='%s %s' % (name, key))
        if name in ('classify', 'ortvalue'):
            assert want.strip() in said, '%s prints %r, not %r' % (name, said, want)


def test_options():
    m, f = linear()
    data = m.SerializeToString()
    options = cytoc.SessionOptions()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        options.enable_profiling = True
        options.add_session_config_entry('session.dynamic_block_base', '4')
        session = cytoc.InferenceSession(data, options, providers=['CUDAExecutionProvider', 'CPUExecutionProvider'])
    said = ' '.join(str(w.message) for w in caught)
    assert 'enable_profiling' in said and 'dynamic_block_base' in said and 'CUDAExecutionProvider' in said, said
    with raises(AttributeError, 'no_such_option'):
        options.no_such_option = 1
    with raises(NotImplementedError, 'custom'):
        options.register_custom_ops_library('x.so')
    assert session.get_inputs()[0].type == 'tensor(float)' and session.get_inputs()[0].shape == ['batch', 3]
    fixed = cytoc.SessionOptions()
    fixed.add_free_dimension_override_by_name('batch', 2)
    fixed.add_session_config_entry('cytoc.O', '1')
    session = cytoc.InferenceSession(data, fixed)
    assert session.get_inputs()[0].shape == [2, 3]
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(session.run(None, {'x': x})[0], f(x))
    with raises(cytoc.InputError, 'cuda'):
        session.io_binding().bind_output('y', 'cuda')
    with raises(cytoc.CompileError, 'banana'):
        wrong = cytoc.SessionOptions()
        wrong.add_session_config_entry('cytoc.target', 'banana')
        cytoc.InferenceSession(data, wrong)


def test_metadata():
    """As the real one reads it from the model's file."""
    import onnxruntime
    m, _ = linear()
    m.producer_name, m.domain, m.model_version, m.doc_string, m.graph.doc_string = 'maker', 'org.example', 7, 'what it is', 'a layer'
    m.metadata_props.add(key='labels', value='a,b')
    path = os.path.join(WORK, 'metadata.onnx')
    onnx.save(m, path)
    want = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider']).get_modelmeta()
    for form in (path, m.SerializeToString()):
        found = cytoc.InferenceSession(form).get_modelmeta()
        for name in 'producer_name', 'domain', 'version', 'description', 'graph_name', 'graph_description', 'custom_metadata_map':
            assert getattr(found, name) == getattr(want, name), (name, getattr(found, name), getattr(want, name))


def test_nothing_is_ignored_in_silence():
    m, f = linear()
    x = {'x': np.ones((2, 3), np.float32)}
    for make, part in ((lambda: cytoc.InferenceSession(m.SerializeToString(), providers=[('CPUExecutionProvider', {'arena': '1'})]), 'options'),
                       (lambda: cytoc.InferenceSession(m.SerializeToString(), provider_options=[{'arena': '1'}]), 'options'),
                       (lambda: cytoc.InferenceSession(m.SerializeToString(), disabled_optimizers=['x']), 'disabled_optimizers'),
                       (lambda: setattr(cytoc.RunOptions(), 'log_severity_level', 1), 'log_severity_level'),
                       (lambda: cytoc.RunOptions().add_run_config_entry('memory.enable', '1'), 'memory.enable')):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter('always')
            make()
        assert any(part in str(w.message) for w in caught), (part, [str(w.message) for w in caught])
    session, options = cytoc.InferenceSession(m.SerializeToString()), cytoc.RunOptions()
    np.testing.assert_allclose(session.run(None, x, options)[0], f(x['x']))
    with raises(AttributeError, 'no_such'):
        options.no_such = 1
    options.terminate = True
    with raises(RuntimeError, 'terminate'):
        session.run(None, x, options)


def test_library_as_session():
    m, f = linear()
    path = os.path.join(WORK, 'session.so')
    cytoc.compile(m).save(path)
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(cytoc.InferenceSession(path).run(['y'], {'x': x})[0], f(x))
