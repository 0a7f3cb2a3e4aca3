# SPDX-License-Identifier: Apache-2.0
"""Finds the tests of an operator: `make where T=TopK`.

In:  names of ONNX operators (any case) or ops of the IR (as in ir/ops.def); --build DIR.
Out: for each its importer, the node tests on the passing list whose model has it, goldens whose graph has it, test
     programs and lists that name it, and recorded networks with it; at most SHOWN lines a kind, then their number. Exit
     code 1 when a name is in no table, with those that resemble it.
"""
import difflib
import glob
import json
import os
import re
import sys

import onnx
from google.protobuf.message import DecodeError

import lib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'onnx'))
import run as node_tests

SHOWN = 12


def rows(path, pattern):
    with open(path, encoding='utf-8') as f:
        return {m.group(1): 0 for m in re.finditer(pattern, f.read(), re.M)}


def operators(graph):
    for node in graph.node:
        yield node.op_type
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                yield from operators(inner)


def operators_of(path):
    try:
        model = onnx.load(path, load_external_data=False)
    except DecodeError:  # some recorded networks are no models on purpose
        return set()
    return set(operators(model.graph)) | {node.op_type for f in model.functions for node in f.node}


def cached_operators(args, paths):
    """{path: operators of its model}, kept in the build folder: a thousand files take a while to read."""
    cache = os.path.join(args.build, 'operators.json')
    known = json.load(open(cache, encoding='utf-8')) if os.path.exists(cache) else {}
    for path in paths:
        stamp = os.path.getmtime(path)
        if known.get(path, [0])[0] != stamp:
            known[path] = [stamp, sorted(operators_of(path))]
    with open(cache, 'w', encoding='utf-8') as f:
        json.dump(known, f)
    return {path: known[path][1] for path in paths}


def lines_with(pattern, paths):
    """path:line: text, of each line that the pattern is in."""
    for path in sorted(paths):
        with open(path, encoding='utf-8', errors='replace') as f:
            for number, line in enumerate(f, 1):
                if re.search(pattern, line):
                    yield '%s:%d: %s' % (path, number, line.strip()[:90])


def show(kind, found):
    found = list(found)
    if found:
        print('%s (%d)' % (kind, len(found)))
        for line in found[:SHOWN]:
            print('  ' + line)
        if len(found) > SHOWN:
            print('  ..')


def show_onnx(args, name):
    show('importer', lines_with(r'^ONNX_OP\(\w+, "%s"' % name, ['frontend/onnx_ops.def']))
    nodes = {row[0]: row[1] + '/model.onnx' for row in node_tests.load_index(args)}
    networks = {os.path.basename(os.path.dirname(p)): p for p in glob.glob(os.path.join(lib.SHARED, 'models/*/model.onnx'))}
    models = cached_operators(args, [*nodes.values(), *networks.values()])
    show('node tests: make check T=NAME', (n for n, path in sorted(nodes.items()) if name in models[path]))
    show('recorded networks: make check T=NAME', (n for n, path in sorted(networks.items()) if name in models[path]))
    programs = glob.glob('tests/**/*.py', recursive=True) + glob.glob('tests/**/*.c', recursive=True)
    show('programs', lines_with(r"""['"]%s\b""" % name, programs))


def show_ir(name):
    show('row', lines_with(r'^\w*OP\(%s,' % name, ['ir/ops.def', 'ir/elementwise.def']))
    goldens = glob.glob('tests/**/*.txt', recursive=True)
    show('goldens: make check T=NAME', dict.fromkeys(line.split(':')[0] for line in lines_with(r'= %s ' % name, goldens)))
    show('programs', lines_with(r'\bCY_OP_%s\b' % name, glob.glob('tests/**/*.[ch]', recursive=True)))


def main():
    args = lib.arguments(__doc__)
    args.wanted = lambda name: True
    imported = rows('frontend/onnx_ops.def', r'^ONNX_OP\(\w+, "(\w+)"')
    ops = rows('ir/ops.def', r'^\w*OP\((\w+),') | rows('ir/elementwise.def', r'^\w+_OP\((\w+),')
    for name in args.names:
        matches = [n for n in imported if n.lower() == name.lower()]
        for match in matches:
            print('%s, of ONNX' % match)
            show_onnx(args, match)
        if name in ops:
            print('%s, of the IR' % name)
            show_ir(name)
        if not matches and name not in ops:
            near = difflib.get_close_matches(name, [*imported, *ops], 3, 0.5)
            sys.exit("no operator '%s'%s" % (name, near and '; did you mean %s?' % ' or '.join(near)))


if __name__ == '__main__':
    main()
