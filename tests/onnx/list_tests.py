# SPDX-License-Identifier: Apache-2.0
"""Lists the ONNX standard's backend tests that the pinned onnx package carries, one row per data set.

Out: the file given as argument, tab-separated: name, folder of the test, number of the data set, rtol, atol, kinds of the
     inputs, kinds of the outputs, one letter each: t tensor, s sequence, o optional, m map; outputs of graphs that draw
     random numbers are r: their types and shapes are what the standard says.

The package has models and data of the kinds simple, pytorch-converted and pytorch-operator as files, and of node tests
the Python code that makes them (as files up to 1.22): node_folder() runs it once and keeps what it makes in
build/onnx-tests. The "real" kind names models that would have to be downloaded and is left out.
"""
import json
import os
import shutil
import sys
import warnings

import numpy as np
import onnx
import onnx.backend.test
from onnx import numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(os.path.dirname(onnx.backend.test.__file__), 'data')
KINDS = ['node', 'simple', 'pytorch-converted', 'pytorch-operator']
LETTER = {'tensor_type': 't', 'sparse_tensor_type': 'p', 'sequence_type': 's', 'optional_type': 'o', 'map_type': 'm'}


RANDOM = {'Bernoulli', 'Multinomial', 'RandomNormal', 'RandomNormalLike', 'RandomUniform', 'RandomUniformLike'}


def letters(values):
    return ''.join(LETTER.get(v.type.WhichOneof('value'), '?') for v in values)


def output_letters(graph):
    drawn = any(node.op_type in RANDOM for node in graph.node)
    return 'r' * len(graph.output) if drawn else letters(graph.output)


def write(path, value, info):
    """A value of a data set, as the standard's own tool stores it."""
    makers = {'map_type': numpy_helper.from_dict, 'sequence_type': numpy_helper.from_list,
              'optional_type': numpy_helper.from_optional}
    if not isinstance(value, onnx.TensorProto):
        value = makers.get(info.type.WhichOneof('value'), numpy_helper.from_array)(value, info.name)
    with open(path, 'wb') as f:
        f.write(value.SerializeToString())


def write_case(folder, case):
    os.makedirs(folder)
    onnx.save(case.model, os.path.join(folder, 'model.onnx'))
    with open(os.path.join(folder, 'data.json'), 'w', encoding='utf-8') as f:
        json.dump({'rtol': case.rtol, 'atol': case.atol}, f)
    for number, (inputs, outputs) in enumerate(case.data_sets):
        to = os.path.join(folder, 'test_data_set_%d' % number)
        os.makedirs(to)
        graph = case.model.graph
        for what, values, infos in (('input', inputs, graph.input), ('output', outputs, graph.output)):
            for i, (value, info) in enumerate(zip(values, infos, strict=True)):
                write(os.path.join(to, '%s_%d.pb' % (what, i)), value, info)


def node_folder():
    """The folder of the node tests, a folder each. Suites that run at the same time may all make it: one's stays."""
    folder = os.path.join(HERE, '..', '..', 'build', 'onnx-tests', 'data-' + onnx.__version__, 'node')
    folder = os.path.normpath(folder)
    if not os.path.isdir(folder):
        from onnx.backend.test.case.node import collect_testcases
        new = '%s.%d' % (folder, os.getpid())
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # NumPy's, of tests that divide by zero on purpose
            np.random.seed(0)
            for case in collect_testcases(None):
                write_case(os.path.join(new, case.name), case)
        try:
            os.rename(new, folder)
        except OSError:
            shutil.rmtree(new)
            if not os.path.isdir(folder):
                raise
    return folder


def rows():
    for kind in KINDS:
        place = node_folder() if kind == 'node' else os.path.join(DATA, kind)
        for name in sorted(os.listdir(place)):
            folder = os.path.join(place, name)
            path = os.path.join(folder, 'model.onnx')
            if not os.path.exists(path):
                continue
            limits = {'rtol': 1e-3, 'atol': 1e-7}
            if os.path.exists(os.path.join(folder, 'data.json')):
                limits.update(json.load(open(os.path.join(folder, 'data.json'))))
            graph = onnx.load(path, load_external_data=False).graph
            constant = {t.name for t in graph.initializer}
            inputs = [v for v in graph.input if v.name not in constant]  # IR version 3 lists weights as inputs, too
            sets = [d for d in os.listdir(folder) if d.startswith('test_data_set_')]
            for number in sorted(int(d.rsplit('_', 1)[1]) for d in sets):
                yield (name, folder, number, limits['rtol'], limits['atol'], letters(inputs), output_letters(graph))


if __name__ == '__main__':
    with open(sys.argv[1] + '.new', 'w', encoding='utf-8') as f:
        for row in rows():
            f.write('\t'.join(map(str, row)) + '\n')
    os.replace(sys.argv[1] + '.new', sys.argv[1])
