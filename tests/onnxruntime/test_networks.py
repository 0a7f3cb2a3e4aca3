# SPDX-License-Identifier: Apache-2.0
"""Real networks of ../shared/models and ../shared/zoo, beside ONNX Runtime without the plugin.

The relative RMS error of each output may be 1e-4, or three times what ONNX Runtime's own levels differ by, up to 1e-3; outputs of
quantised networks may be off by a step, as in tests/models. All nodes must be taken, where nothing is said.
"""
import json
import os
import sys

import numpy as np
import lib
import network
import plugin

# name, in which folder, nodes that are left
NETWORKS = [('light_squeezenet', 'models', 0), ('gtcrn', 'models', 0), ('mobilenetv2_qdq', 'models', 0), ('lstm_as_loop', 'models', 0),
            ('blazeface_short', 'models', 0), ('whisper_dec_past_mha', 'models', 0), ('tree_classifier_25', 'models', 0),
            ('magika_v3_3', 'models', 0), ('dlrm', 'zoo', 0), ('squeezenet1_1', 'zoo', 0), ('nerf_mlp', 'zoo', 0), ('gcn_cora', 'zoo', 0),
            ('lstm_tagger', 'zoo', 0), ('shufflenet_v2_x1_0', 'zoo', 0)]


def stored(name):
    """Model and inputs of ../shared/models."""
    folder = os.path.join(lib.SHARED, 'models', name)
    s = plugin.reference(os.path.join(folder, 'model.onnx'))
    feeds = {}
    for k, i in enumerate(s.get_inputs()):
        path = os.path.join(folder, 'refio', 'in_%d_%s.npy' % (k, lib.safe_name(i.name)))
        feeds[i.name] = np.load(path) if os.path.exists(path) else plugin.random_feeds(s, {})[i.name]
    return os.path.join(folder, 'model.onnx'), s, feeds


def refilled(name):
    """.. of ../shared/zoo."""
    zoo, model = os.path.join(lib.SHARED, 'zoo'), os.path.join(WORK, name + '.onnx')
    code, _, err = lib.run([sys.executable, os.path.join(zoo, 'materialize.py'), os.path.join(zoo, name + '.onnx'), model])
    assert not code, err
    maker = lib.load_module(os.path.join(zoo, 'materialize.py'))
    with open(os.path.join(zoo, 'index.json'), encoding='utf-8') as f:
        [entry] = [e for e in json.load(f)['models'] if e['name'] == name]
    return model, plugin.reference(model), {p['name']: maker.make_input(p, 1, p['test_shape']) for p in entry['inputs']}


def why_not(model, r, feeds, expected_left, quantised):
    s = plugin.session(model)
    left = plugin.left(s)
    if len(left) != expected_left or not plugin.groups(s):
        return 'left are %s' % left
    for k, (got, want) in enumerate(zip(s.run(None, feeds), r.run(None, feeds))):
        step = network.step_of(want) if quantised else 0
        why = network.steps_difference(str(k), got, want, step) if step else lib.difference(str(k), got, want, 1e-4)
        if why and 'RMS' in why:
            plain = network.ort_session(model, optimised=False).run([r.get_outputs()[k].name], feeds)[0]
            why = lib.difference(str(k), got, want, min(1e-3, max(1e-4, 3 * lib.rel_rms(plain, want))))
        if why:
            return why
    return None


def test_networks():
    if not os.path.isdir(os.path.join(lib.SHARED, 'models')):
        return 'there are no networks in %s' % lib.SHARED
    wrong = []
    for name, where, left in NETWORKS:
        model, r, feeds = (stored if where == 'models' else refilled)(name)
        why = why_not(model, r, feeds, left, name.endswith('_qdq'))
        if where == 'zoo':
            os.remove(model)
        print('%-24s %s' % (name, why or 'ok'), flush=True)
        SUITE.result(name, why)
