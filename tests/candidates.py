# SPDX-License-Identifier: Apache-2.0
"""Each way of computing a layer gives the layer's results: every candidate that --explain=costs lists is forced by --choice.

In:  small networks of convolutions and products, made here. Out: the closing line. Results are compared with those of -O0,
     within what the algorithm rounds; the table says that what was asked for was taken. Files of choices that are wrong end
     with the line and what to do. The forms of codegen/cpu/forms.def can be switched off.
"""
import os
import re
import shutil

import numpy as np
import onnx

import graphs
import lib
import network

LIMIT = {'winograd': 1e-4, 'strassen': 1e-4}  # relative RMS; others 1e-5
TARGETS = ((), ('--target=x86-64-v3',))


def convolutions():
    """3x3 with sums over channels, of one filter per channel, and strided; sides that no tile divides."""
    g = graphs.Graph(5)
    x = 'x'
    for cin, cout, groups, stride in ((16, 32, 1, 1), (32, 32, 32, 1), (32, 48, 1, 2)):
        w = g.const(g.rng.standard_normal((cout, cin // groups, 3, 3)) / 12, np.float32)
        x = g.op('Relu', g.op('Conv', x, w, kernel_shape=[3, 3], pads=[1] * 4, strides=[stride] * 2, group=groups))
    return g.model([graphs.port('x', np.float32, (1, 16, 29, 31))], [graphs.port(x, np.float32, None)])


def products():
    g = graphs.Graph(6)
    h = g.op('Relu', g.op('MatMul', 'x', g.const(g.rng.standard_normal((320, 512)) / 20, np.float32)))
    h = g.op('MatMul', h, g.const(g.rng.standard_normal((512, 384)) / 20, np.float32))
    return g.model([graphs.port('x', np.float32, (211, 320))], [graphs.port(h, np.float32, None)])


def volumes():
    g = graphs.Graph(7)
    w = g.const(g.rng.standard_normal((32, 16, 3, 3, 3)) / 20, np.float32)
    y = g.op('Conv', 'x', w, kernel_shape=[3, 3, 3], pads=[1] * 6)
    return g.model([graphs.port('x', np.float32, (1, 16, 6, 13, 18))], [graphs.port(y, np.float32, None)])


NETWORKS = {'convolutions': convolutions, 'products': products, 'volumes': volumes}


def layers_of(text):
    """{layer: ({candidate}, the chosen one)} of --explain=costs."""
    layers, layer = {}, None
    for line in text.splitlines():
        found = re.match(r'  ([* ]) \(?([\w-]+)\)? +[\d.]+ kcycles', line)
        if found and layer:
            names, chosen = layers[layer]
            layers[layer] = (names | {found[2]}, found[2] if found[1] == '*' else chosen)
        elif re.match(r'(conv|matmul)', line):
            layer = line.split('  ')[0]
            layers[layer] = (set(), None)
    return layers


def explained(args, folder, options):
    """(layers, why not) of a compilation."""
    model, library = (os.path.join(folder, name) for name in ('m.onnx', 'm.so'))
    code, out, err = lib.run([args.cytoc, model, '-o', library, '--explain=costs', *options])
    return (layers_of(out), None) if not code else ({}, lib.reason(err, code))


def result(args, folder, feeds, name):
    code, err = network.run_feeds(args, folder, os.path.join(folder, 'm.so'), feeds)
    return (None, lib.reason(err, code)) if code else (network.output_of(folder, 0, name), None)


def check_network(args, folder, make, target):
    model = make()
    os.makedirs(folder, exist_ok=True)
    onnx.save(model, os.path.join(folder, 'm.onnx'))
    port = model.graph.input[0]
    shape = [d.dim_value for d in port.type.tensor_type.shape.dim]
    feeds = {port.name: np.random.default_rng(2).standard_normal(shape).astype(np.float32)}
    code, _, err = lib.run([args.cytoc, os.path.join(folder, 'm.onnx'), '-O0', '-o', os.path.join(folder, 'm.so'), *target])
    want, why = result(args, folder, feeds, model.graph.output[0].name) if not code else (None, lib.reason(err, code))
    layers, problem = explained(args, folder, target) if not why else ({}, None)
    if why or problem:
        return why or problem
    if max(len(names) for names, _ in layers.values()) < 2:
        return 'no layer has two candidates: %s' % layers
    for layer, (names, _) in sorted(layers.items()):
        for name in sorted(names):
            why = check_forced(args, folder, target, layer, name, feeds, (model.graph.output[0].name, want))
            if why:
                return '%s, %s: %s' % (layer, name, why)
    return None


def check_forced(args, folder, target, layer, name, feeds, want):
    """want: (output, array)"""
    choice = os.path.join(folder, 'choice.txt')
    with open(choice, 'w', encoding='utf-8') as f:
        f.write('# forced\n%s\t%s\n' % (layer, name))
    layers, why = explained(args, folder, [*target, '--choice=' + choice])
    if why:
        return why
    if layer not in layers or layers[layer][1] != name:
        return 'not taken: %s' % (layers.get(layer),)
    got, why = result(args, folder, feeds, want[0])
    return why or lib.difference(want[0], got, want[1], LIMIT.get(name, 1e-5))


def check_all_of_them(args, folder):
    """'*' is for all layers that have it, and others keep theirs."""
    os.makedirs(folder, exist_ok=True)
    onnx.save(convolutions(), os.path.join(folder, 'm.onnx'))
    choice = os.path.join(folder, 'choice.txt')
    with open(choice, 'w', encoding='utf-8') as f:
        f.write('*\twinograd\n')
    layers, why = explained(args, folder, ['--choice=' + choice])
    if why:
        return why
    wrong = [l for l, (names, chosen) in layers.items() if ('winograd' in names) != (chosen == 'winograd')]
    return 'not winograd: %s' % wrong if wrong or not any(c == 'winograd' for _, c in layers.values()) else None


def forms():
    """Names of codegen/cpu/forms.def."""
    with open(os.path.join('codegen', 'cpu', 'forms.def'), encoding='utf-8') as f:
        return re.findall(r'^FORM\(\w+, "(\w+)"', f.read(), re.M)


def check_without_forms(args, folder, make, target):
    """With all forms switched off, results are those of -O0, and no line of the file is unknown."""
    model = make()
    os.makedirs(folder, exist_ok=True)
    path, library, choice = (os.path.join(folder, name) for name in ('m.onnx', 'm.so', 'choice.txt'))
    onnx.save(model, path)
    with open(choice, 'w', encoding='utf-8') as f:
        f.writelines('*\t-%s\n' % name for name in forms())
    port = model.graph.input[0]
    shape = [d.dim_value for d in port.type.tensor_type.shape.dim]
    feeds = {port.name: np.random.default_rng(2).standard_normal(shape).astype(np.float32)}
    results = []
    for options in (['-O0'], ['--choice=' + choice]):
        code, out, err = lib.run([args.cytoc, path, '-o', library, '--explain=costs', *target, *options])
        got, why = result(args, folder, feeds, model.graph.output[0].name) if not code else (None, lib.reason(err, code))
        if why or err:
            return why or err
        results.append(got)
    wrong = re.search(r'\* (winograd|planar|strassen)', out)
    return wrong.group() if wrong else lib.difference(model.graph.output[0].name, results[1], results[0], 1e-5)


BAD = (('conv 1\n', 1, 'line 1: expected a layer, a tab and the name of a candidate'),
       ('*\tdirect\nx\ta\nx\tb\n', 1, 'line 3: this layer has a candidate already'),
       ('\tdirect\n', 1, 'line 1: expected a layer'),
       ('conv 9->9\tdirect\n', 0, "line 1: no layer 'conv 9->9' that 'direct' could compute"),
       ('*\t-fft\n', 0, "line 1: no layer '\\*' that '-fft' could compute"),
       ('*\tfft\n', 0, "line 1: no layer '\\*' that 'fft' could compute"),
       (None, 1, 'cannot read the file'))


def check_bad(args, folder):
    os.makedirs(folder, exist_ok=True)
    onnx.save(convolutions(), os.path.join(folder, 'm.onnx'))
    choice = os.path.join(folder, 'choice.txt')
    for text, want, message in BAD:
        if text is None:
            os.remove(choice)
        else:
            with open(choice, 'w', encoding='utf-8') as f:
                f.write(text)
        code, _, err = lib.run([args.cytoc, os.path.join(folder, 'm.onnx'), '-o', os.path.join(folder, 'm.so'),
                                '--choice=' + choice])
        if code != want or not re.search(message, err):
            return '%r: exit code %d, %s' % (text, code, err[-300:])
    return None


def main():
    args = lib.arguments(__doc__)
    suite, folder = lib.Suite(args), os.path.join(args.build, 'candidates')
    tests = [('%s %s' % (name, ' '.join(target) or 'native'), check_network, make, target)
             for name, make in NETWORKS.items() for target in TARGETS]
    tests += [('%s %s without forms' % (name, ' '.join(target) or 'native'), check_without_forms, make, target)
              for name, make in NETWORKS.items() for target in TARGETS]
    for name, check, *more in tests + [('all', check_all_of_them), ('bad', check_bad)]:
        if args.wanted(name):
            suite.result(name, check(args, folder, *more))
            shutil.rmtree(folder, ignore_errors=True)
    suite.done()


if __name__ == '__main__':
    main()
