"""Lists the ONNX standard's backend tests that the pinned onnx package carries, one row per data set.

Out: the file given as argument, tab-separated: name, folder of the test, number of the data set, rtol, atol, kinds of the
     inputs, kinds of the outputs, one letter each: t tensor, s sequence, o optional, m map; outputs of graphs that draw
     random numbers are r: their types and shapes are what the standard says.

The package has models and data of all kinds (node, simple, pytorch-converted, pytorch-operator) as files, so nothing
is generated; the "real" kind names models that would have to be downloaded and is left out.
"""
import json
import os
import sys

import onnx
import onnx.backend.test

DATA = os.path.join(os.path.dirname(onnx.backend.test.__file__), 'data')
KINDS = ['node', 'simple', 'pytorch-converted', 'pytorch-operator']
LETTER = {'tensor_type': 't', 'sparse_tensor_type': 'p', 'sequence_type': 's', 'optional_type': 'o', 'map_type': 'm'}


RANDOM = {'Bernoulli', 'Multinomial', 'RandomNormal', 'RandomNormalLike', 'RandomUniform', 'RandomUniformLike'}


def letters(values):
    return ''.join(LETTER.get(v.type.WhichOneof('value'), '?') for v in values)


def output_letters(graph):
    drawn = any(node.op_type in RANDOM for node in graph.node)
    return 'r' * len(graph.output) if drawn else letters(graph.output)


def rows():
    for kind in KINDS:
        for name in sorted(os.listdir(os.path.join(DATA, kind))):
            folder = os.path.join(DATA, kind, name)
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
