# SPDX-License-Identifier: Apache-2.0
"""Each way of computing a layer gives the layer's results: every candidate that --explain=costs lists is forced by --choice.

In:  small networks, made here: convolutions and products in f32, 16 bits and integers. Out: the closing line.
     Results are compared with those of -O0, within what the algorithm and the precision round; those of a precision that -O0
     does not have, with those of the usual candidates, too. The table says that what was asked for was taken. Every variant of
     codegen/cpu/variants.def that the CPU has must have been a candidate somewhere. Files of choices that are wrong end with
     the line and what to do. The forms of codegen/cpu/forms.def can be switched off.
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


def shapes():
    """Few channels, few outputs, few tiles, long k, and a group for each channel."""
    g = graphs.Graph(8)
    conv = lambda x, cout, cin, k, **more: g.op('Conv', x, g.const(g.rng.standard_normal((cout, cin, k, k)) / (k * cin ** .5),
                                                                   np.float32), kernel_shape=[k, k], pads=[k // 2] * 4, **more)
    h = g.op('Relu', conv('x', 32, 3, 7, strides=[2, 2]))
    few, wide = conv(h, 3, 32, 3), conv('x', 4, 3, 3)
    h = g.op('Relu', conv(h, 64, 32, 1, strides=[4, 4]))
    h = conv(h, 80, 64, 3)
    h = conv(h, 48, 80, 5)
    h = g.op('Reshape', h, g.const(np.array([1, -1]), np.int64))
    many = g.op('MatMul', 'y', g.const(g.rng.standard_normal((3000, 96)) / 50, np.float32))
    y = g.op('Concat', *[g.op('Reshape', v, g.const(np.array([1, -1]), np.int64)) for v in (few, wide, h, many)], axis=1)
    return g.model([graphs.port('x', np.float32, (1, 3, 70, 66)), graphs.port('y', np.float32, (40, 3000))],
                   [graphs.port(y, np.float32, None)])


def pairs():
    """Both factors come at run time: few rows, many, columns that are dense along k."""
    g = graphs.Graph(10)
    flat = g.const(np.array([1, -1]), np.int64)
    results = [g.op('MatMul', 'a', 'b'), g.op('MatMul', 'c', 'd'),
               g.op('MatMul', 'e', g.op('Transpose', 'f', perm=[1, 0]))]
    y = g.op('Concat', *[g.op('Reshape', v, flat) for v in results], axis=1)
    sizes = {'a': (3, 20, 64), 'b': (3, 64, 256), 'c': (200, 300), 'd': (300, 256), 'e': (3, 512), 'f': (160, 512)}
    return g.model([graphs.port(n, np.float32, s) for n, s in sizes.items()], [graphs.port(y, np.float32, None)])


def integers():
    """Exact, at -O0, too: ConvInteger and MatMulInteger, filters of each channel, few columns, and where Winograd's is exact."""
    g = graphs.Graph(12)
    flat, results = g.const(np.array([1, -1]), np.int64), []
    for cin, cout, k, stride, groups, top in ((32, 48, 3, 1, 1, 127), (32, 64, 3, 1, 1, 3), (32, 40, 3, 2, 1, 127),
                                              (32, 64, 1, 1, 1, 127), (32, 32, 3, 1, 32, 127), (32, 4, 3, 1, 1, 127)):
        w = g.const(g.rng.integers(-top, top + 1, (cout, cin // groups, k, k)), np.int8)
        h = g.op('ConvInteger', 'x', w, kernel_shape=[k, k], pads=[k // 2] * 4, strides=[stride] * 2, group=groups)
        results.append(g.op('Reshape', g.op('Cast', h, to=onnx.TensorProto.FLOAT), flat))
    h = g.op('MatMulInteger', 'y', g.const(g.rng.integers(-127, 128, (300, 160)), np.int8))
    results.append(g.op('Reshape', g.op('Cast', h, to=onnx.TensorProto.FLOAT), flat))
    y = g.op('Concat', *results, axis=1)
    return g.model([graphs.port('x', np.uint8, (1, 32, 21, 23)), graphs.port('y', np.uint8, (67, 300))],
                   [graphs.port(y, np.float32, None)])


def upsampled():
    """Channels become positions: taps of zeros."""
    g = graphs.Graph(13)
    h = g.op('Relu', g.op('Conv', 'x', g.const(g.rng.standard_normal((64, 32, 1, 1)) / 6, np.float32), kernel_shape=[1, 1]))
    w = g.const(g.rng.standard_normal((64, 48, 4, 4)) / 20, np.float32)
    y = g.op('ConvTranspose', h, w, kernel_shape=[4, 4], strides=[2, 2], pads=[1] * 4)
    return g.model([graphs.port('x', np.float32, (1, 32, 14, 15))], [graphs.port(y, np.float32, None)])


# What makes them, options, how far results are from -O0's, and from those of the usual candidates.
NETWORKS = {'convolutions': (convolutions, (), None, None), 'products': (products, (), None, None),
            'volumes': (volumes, (), None, None), 'shapes': (shapes, (), None, None), 'pairs': (pairs, (), None, None),
            'integers': (integers, (), 0, None),
            'products bf16': (products, ('--bf16',), 0.02, 1e-5), 'convolutions bf16': (convolutions, ('--bf16',), 0.02, 1e-5),
            'products f16': (products, ('--fp16',), 0.02, 1e-5), 'convolutions f16': (convolutions, ('--fp16',), 0.02, 1e-5),
            'upsampled int8': (upsampled, ('--int8=dynamic', '--int8-prefer=size', '--int8-min-snr=off'), 0.1, 1e-6)}


def layers_of(text):
    """{layer: ({candidate}, the chosen one)} of --explain=costs."""
    layers, layer = {}, None
    for line in text.splitlines():
        found = re.match(r'  ([* ]) \(?([\w-]+)\)? +(?:[\d.]+ kcycles|not estimated)', line)
        if found and layer:
            names, chosen = layers[layer]
            layers[layer] = (names | {found[2]}, found[2] if found[1] == '*' else chosen)
        elif re.match(r'(conv|matmul|attention)', line):
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


def random_feeds(model):
    rng, feeds = np.random.default_rng(2), {}
    for port in model.graph.input:
        shape = [d.dim_value for d in port.type.tensor_type.shape.dim]
        byte = port.type.tensor_type.elem_type == onnx.TensorProto.UINT8
        feeds[port.name] = rng.integers(0, 256, shape, np.uint8) if byte else rng.standard_normal(shape).astype(np.float32)
    return feeds


class Forced:
    """A network whose layers' candidates are forced; `seen` are all that there were."""
    seen = set()

    def __init__(self, args, folder, network, target):
        self.make, options, self.loose, self.close = network
        self.args, self.folder, self.target, self.options = args, folder, list(target), [*target, *options]
        self.model = self.make()
        os.makedirs(folder, exist_ok=True)
        onnx.save(self.model, os.path.join(folder, 'm.onnx'))
        self.feeds, self.output = random_feeds(self.model), self.model.graph.output[0].name

    def result(self):
        return result(self.args, self.folder, self.feeds, self.output)

    def exact(self):
        code, _, err = lib.run([self.args.cytoc, os.path.join(self.folder, 'm.onnx'), '-O0', '-o', os.path.join(self.folder, 'm.so'),
                                *self.target])
        return self.result() if not code else (None, lib.reason(err, code))

    def differs(self, got, names):
        limit = max(LIMIT.get(name.split('-')[0], 1e-5) for name in names) if self.loose is None else self.loose
        return lib.difference(self.output, got, self.want, limit) or (
            self.close and lib.difference(self.output, got, self.usual, self.close))

    def check(self):
        self.want, why = self.exact()
        layers, problem = explained(self.args, self.folder, self.options) if not why else ({}, None)
        if why or problem:
            return why or problem
        self.usual, why = self.result()
        if why:
            return why
        if max((len(names) for names, _ in layers.values()), default=0) < 2:
            return 'no layer has two candidates: %s' % layers
        lists = {layer: sorted(names) for layer, (names, _) in sorted(layers.items())}
        for turn in range(max(map(len, lists.values()))):
            why = self.force({layer: names[turn % len(names)] for layer, names in lists.items()})
            if why:
                return why
        return None

    def force(self, wanted):
        """Each layer by its candidate."""
        choice = os.path.join(self.folder, 'choice.txt')
        with open(choice, 'w', encoding='utf-8') as f:
            f.writelines(['# forced\n', *('%s\t%s\n' % pair for pair in wanted.items())])
        layers, why = explained(self.args, self.folder, [*self.options, '--choice=' + choice])
        if why:
            return why
        for layer, name in wanted.items():
            if layer not in layers or layers[layer][1] != name:
                return '%s, %s: not taken: %s' % (layer, name, layers.get(layer))
        got, why = self.result()
        why = why or self.differs(got, wanted.values())
        Forced.seen |= set(wanted.values())
        return '%s: %s' % (wanted, why) if why else None


def check_network(args, folder, network, target):
    return Forced(args, folder, network, target).check()


def variants():
    """Names of codegen/cpu/variants.def."""
    with open(os.path.join('codegen', 'cpu', 'variants.def'), encoding='utf-8') as f:
        text = f.read()
    return {'%sx%s' % pair for pair in re.findall(r'^TILE\(\w+, \d+, (\d+), (\d+)\)', text, re.M)} | \
        set(re.findall(r'^(?:SET|OFF)\([\w |]+, "(\w+)"', text, re.M))


def check_variants(_args, _folder):
    """No variant is left out, where the CPU has all kinds."""
    left = sorted(variants() - {name.split('-', 1)[1] for name in Forced.seen if '-' in name})
    return 'were no candidates: %s' % left if left else None


def has_all_kinds():
    with open('/proc/cpuinfo', encoding='utf-8') as f:
        flags = f.read()
    return all(n in flags for n in ('avx512_vnni', 'avx512_bf16'))


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


def check_without_forms(args, folder, network, target):
    """With all forms switched off, results are those of -O0, and no line of the file is unknown."""
    model = network[0]()
    os.makedirs(folder, exist_ok=True)
    path, library, choice = (os.path.join(folder, name) for name in ('m.onnx', 'm.so', 'choice.txt'))
    onnx.save(model, path)
    with open(choice, 'w', encoding='utf-8') as f:
        f.writelines('*\t-%s\n' % name for name in forms())
    feeds, results = random_feeds(model), []
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
              for name, make in NETWORKS.items() if not make[1] for target in TARGETS]
    for name, check, *more in tests + [('variants', check_variants), ('all', check_all_of_them), ('bad', check_bad)]:
        if args.wanted(name) and name == 'variants' and not has_all_kinds():
            suite.skip(name, 'this CPU has no vpdpbusd or no bf16')
        elif args.wanted(name):
            suite.result(name, check(args, folder, *more))
            shutil.rmtree(folder, ignore_errors=True)
    suite.done()


if __name__ == '__main__':
    main()
