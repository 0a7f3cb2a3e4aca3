# SPDX-License-Identifier: Apache-2.0
"""Networks as exporters write them, against ONNX Runtime run beside them, at -O0 and -O3.

In:  NAME.onnx, whose large weights are recipes: a tensor without data and the doc_string "refill KIND MEAN STD", KIND
     being normal or positive. index.json: for each network the exporter, the ranges of its inputs and the values of its
     symbolic dims, one set for each run; `integers`: quantised, by `operators` of integers or `around` those of
     floats, which ONNX Runtime's optimiser had better not change. README.md says how to add a network. passing.txt: the
     names that must pass.
Out: a line for each network; the closing line.

One library serves all sets of dims, at -O3 with one and two threads.
"""
import functools
import json
import os
import re
import sys
import zlib

import numpy as np
import onnx

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import lib
import network


def refill(tensor):
    _, kind, mean, std = tensor.doc_string.split()
    mean, std, draw = float(mean), float(std), np.random.RandomState(zlib.crc32(tensor.name.encode()))
    z = draw.standard_normal(list(tensor.dims))
    values = mean * np.exp(np.clip(std / mean, 0, 1) * z) if kind == 'positive' else mean + std * z
    tensor.raw_data = values.astype(np.float32).tobytes()
    tensor.doc_string = ''


def refill_all(graph):
    for tensor in graph.initializer:
        if tensor.doc_string.startswith('refill '):
            refill(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField('t') and attribute.t.doc_string.startswith('refill '):
                attribute.t.name = node.output[0]
                refill(attribute.t)
            if attribute.HasField('g'):
                refill_all(attribute.g)


def make_input(port, dims, given, draw):
    """given: [low, high] of uniform numbers (integers: low <= n < high), a list of strings to pick from, or None."""
    shape = [d if isinstance(d, int) else dims[d or '?'] for d in port.shape]  # '?': an axis without a name
    if 'string' in port.type:
        return np.array(given, dtype=object)[draw.randint(0, len(given), shape)]
    dtype = np.dtype({'float': 'float32', 'double': 'float64'}.get(port.type[7:-1], port.type[7:-1]))
    if dtype.kind == 'f':
        return (draw.uniform(*given, size=shape) if given else draw.standard_normal(shape)).astype(dtype)
    return draw.randint(*(given or [0, 2]), size=shape).astype(dtype)


def references(entry, model, work):
    integers, found = entry.get('integers'), []
    session = network.ort_session(model, optimised=integers != 'around', exact=integers == 'operators')
    for i, dims in enumerate(entry['dims']):
        inputs, expected = os.path.join(work, 'in%d' % i), os.path.join(work, 'ref%d' % i)
        os.makedirs(inputs)
        feeds = {}
        for k, port in enumerate(session.get_inputs()):
            feeds[port.name] = make_input(port, dims, entry['inputs'].get(port.name), np.random.RandomState(100 * i + k))
            network.save(inputs, 'in_%d_%s' % (k, lib.safe_name(port.name)), port.type, feeds[port.name])
        network.reference(session, feeds, expected)
        found.append((inputs, expected, feeds))
    return found


def float_kernel(table):
    """The line of --explain's table of the first product or convolution that is not one of integers, or None."""
    return next(('in floats: ' + line for line in table.splitlines()
                 if re.search(r'_(conv|matmul)\S* ', line) and ' int8 ' not in line), None)


def test(args, name, work, entry):
    model = os.path.join(work, name + '.onnx')
    proto = onnx.load(os.path.join(HERE, name + '.onnx'))
    refill_all(proto.graph)
    onnx.save(proto, model)
    cases = references(entry, model, work)
    for level, threads in (('-O3', (1, 2)), ('-O0', (1,))):
        library, outputs = os.path.join(work, 'model%s.so' % level), os.path.join(work, 'out')
        said = []
        why = network.compile_model(args, model, library, level, ['-j', '1', *['--explain'] * bool(entry.get('integers'))], said=said)
        if why:
            return why
        why = float_kernel(said[0]) if level == '-O3' and entry.get('integers') else None
        if why:
            return why
        for i, (inputs, expected, feeds) in enumerate(cases):
            for count in threads:
                why = network.execute(args, library, inputs, outputs, count)
                why = why or network.judge(outputs, expected, model, feeds)
                if why:
                    return '%s, %s, %d threads: %s' % (level, json.dumps(entry['dims'][i]), count, why)
    return None


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args, os.path.join(HERE, 'passing.txt'))
    with open(os.path.join(HERE, 'index.json'), encoding='utf-8') as f:
        entries = [(e['name'], e) for e in json.load(f) if args.wanted(e['name'])]
    network.test_each(args, suite, 'exported', entries, functools.partial(test, args))
    suite.done('networks')


if __name__ == '__main__':
    main()
