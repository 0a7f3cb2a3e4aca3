# SPDX-License-Identifier: Apache-2.0
"""Models with EPContext nodes: the library embedded, or in a file beside them."""
import os

import numpy as np
import onnx
import onnxruntime as ort
import models
import plugin
import test_abi
from plugin import close, files, left, raises, random_feeds, reference, session


def folder(name):
    path = os.path.join(WORK, name)
    os.makedirs(path)
    return path


def write(path, model, embed, **config):
    session(model, {'ep.context_enable': '1', 'ep.context_file_path': path, 'ep.context_embed_mode': embed, **config})
    return onnx.load(path)


def attributes(node):
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def test_round_trip():
    test_abi.BUILD, test_abi.LIBRARY, test_abi.WORK = BUILD, LIBRARY, WORK
    want = reference(models.network())
    for embed in '01':
        place = folder('context' + embed)
        path = os.path.join(place, 'net.onnx')
        [node] = write(path, models.network(), embed).graph.node
        a = attributes(node)
        assert node.op_type == 'EPContext' and a['source'] == b'cytoc' and a['embed_mode'] == int(embed), a
        if embed == '1':
            assert files(place) == ['net.onnx'] and a['ep_cache_context'].startswith(b'\x7fELF')
        else:
            assert files(place) == ['net.onnx', a['ep_cache_context'].decode()]
        s = session(path)
        for n in (1, 4):
            feeds = random_feeds(want, {'batch': n})
            close(s.run(None, feeds), want.run(None, feeds))
        ms, compiler = test_abi.scenario('context', LIBRARY, path).split()
        assert float(ms) < 100 and compiler == 'alone', (embed, ms, compiler)  # milliseconds; the machine may be busy


def test_groups_and_what_is_between():
    place = folder('context-groups')
    m = write(os.path.join(place, 'net.onnx'), models.with_strings(), '0')
    assert sorted(n.op_type for n in m.graph.node) == ['Cast', 'Cast', 'EPContext', 'EPContext']
    assert len(files(place)) == 3
    feeds = {'x': np.arange(8, dtype=np.float32).reshape(2, 4)}
    close(session(os.path.join(place, 'net.onnx')).run(None, feeds), reference(models.with_strings()).run(None, feeds))


def saved_and_loaded(name, model, rows=(1, 3)):
    """The model that was written."""
    for embed in '01':
        path = os.path.join(folder('%s-%s' % (name, embed)), 'net.onnx')
        made = write(path, model, embed)
        for n in rows:
            feeds = {'x': np.linspace(-1, 2, 4 * n, dtype=np.float32).reshape(n, 4)}
            close(session(path).run(None, feeds), reference(model).run(None, feeds))
    return made


def test_initializer_that_is_an_input():
    saved_and_loaded('context-default', models.with_default())


def test_bodies_that_are_taken_in_parts():
    """ONNX Runtime saves their nodes as they were: their constants belong to them."""
    made = saved_and_loaded('context-if', models.partly())
    assert sorted(n.op_type for n in made.graph.node) == ['EPContext', 'If']
    saved_and_loaded('context-loop', models.partly(loop=True))


def test_model_in_memory():
    place = folder('context-memory')
    write(os.path.join(place, 'a.onnx'), models.network(), '0')
    with open(os.path.join(place, 'a.onnx'), 'rb') as f:
        data = f.read()
    feeds = random_feeds(reference(models.network()), {'batch': 2})
    found = session(data, {'ep.context_file_path': os.path.join(place, 'a.onnx')}).run(None, feeds)
    close(found, reference(models.network()).run(None, feeds))


def changed(path, to, **values):
    m = onnx.load(path)
    for a in m.graph.node[0].attribute:
        if a.name in values:
            a.s = values[a.name]
    onnx.save(m, to)


def test_damaged():
    place = folder('context-damaged')
    path, bad = os.path.join(place, 'net.onnx'), os.path.join(place, 'bad.onnx')
    write(path, models.network(), '1')
    changed(path, bad, ep_cache_context=b'\x7fELF but not a library')
    with raises(Exception, 'compile the model again'):
        session(bad)
    os.remove(path)
    write(path, models.network(), '0')
    for name in (b'../net.so', b'/etc/passwd', b'', b'a/../../b.so'):
        changed(path, bad, ep_cache_context=name)
        with raises(Exception, 'expected a file in the folder of the model'):
            session(bad)
    changed(path, bad, ep_cache_context=b'gone.so')
    with raises(Exception, "its library '%s/gone.so' cannot be read" % place):
        session(bad)
    changed(path, bad, source=b'somebody')
    with raises(Exception, 'EPContext'):  # not ours: nobody has it
        session(bad)


def test_folder_that_cannot_be_written():
    with raises(Exception, 'cannot be written'):
        write(os.path.join(WORK, 'no-such-folder', 'net.onnx'), models.network(), '0')


def test_compatibility():
    place = folder('context-compatible')
    path = os.path.join(place, 'net.onnx')
    m = write(path, models.network(), '1')
    [info] = [p.value for p in m.metadata_props if p.key.startswith('ep_compatibility_info')]
    assert info.startswith('cytoc library, interface '), info
    state = ort.capi.onnxruntime_pybind11_state
    for text, answer in ((info, 'OPTIMAL'), ('cytoc library, interface 1', 'UNSUPPORTED'), ('another', 'NOT_APPLICABLE')):
        found = str(state.get_model_compatibility_for_ep_devices(plugin.devices(), text))
        assert answer in found, (text, found)
