# SPDX-License-Identifier: Apache-2.0
"""Measures what layers take on the CPU at hand and fits the columns of codegen/cpu/machine.def to it: make calibrate-cpu.

In:  a fixed set of convolutions and products (CONVOLUTIONS, PRODUCTS), compiled once for each candidate that --explain=costs
     lists, by --choice. --networks: files, or names of ../shared/zoo, whose layers are measured, too, to judge by; --write:
     change machine.def.
Out: for each layer the estimates and the measured cycles; the row of CORE that fits best; the share of layers whose chosen
     candidate is within 3 % of the best one, by the estimates as they are and as they are fitted.

Libraries take turns in processes, ROUNDS of each, one thread; a layer's time is that of its kernel, by --trace, and the least
counts, as what else the machine does only adds to it. Fitted are the factors of estimates (plain, winograd, planar), by the
median of measured / estimated of each, and winograd_margin, by the share of layers that it chooses rightly for. What else
machine.def has is left alone.
"""
import argparse
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys

import numpy as np
import onnx

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import graphs  # pylint: disable=wrong-import-position
import lib  # pylint: disable=wrong-import-position

NEAR = 1.03
# What scales the estimate of a candidate; strassen's share of plain has columns of its own.
FACTOR = {'direct': 'plain', 'plain': 'plain', 'winograd': 'winograd', 'planar': 'planar', 'strassen': 'plain'}
MACHINE = 'codegen/cpu/machine.def'
ZOO = os.path.join(lib.SHARED, 'zoo')

# channels in, out, kernel, stride, groups, side
CONVOLUTIONS = [(16, 16, 3, 1, 1, 96), (32, 32, 3, 1, 1, 56), (64, 64, 3, 1, 1, 56), (64, 64, 3, 1, 1, 28), (128, 128, 3, 1, 1, 28),
                (256, 256, 3, 1, 1, 14), (512, 512, 3, 1, 1, 7), (24, 96, 3, 1, 1, 40), (96, 24, 3, 1, 1, 40), (32, 64, 3, 2, 1, 56),
                (3, 32, 3, 2, 1, 112), (3, 64, 7, 2, 1, 112), (16, 16, 5, 1, 1, 48), (48, 48, 3, 1, 1, 24), (192, 192, 3, 1, 1, 12),
                (8, 8, 3, 1, 1, 128)]
PRODUCTS = [(196, 768, 768), (197, 3072, 768), (128, 512, 512), (512, 1024, 512), (49, 2048, 512), (784, 256, 128)]


def fixed_set():
    """All layers in one model, each with an input and an output of its own."""
    g, inputs, outputs = graphs.Graph(1), [], []
    for i, (cin, cout, kernel, stride, groups, side) in enumerate(CONVOLUTIONS):
        w = g.const(g.rng.standard_normal((cout, cin // groups, kernel, kernel)) / kernel / math.sqrt(cin), np.float32)
        y = g.op('Conv', 'image%d' % i, w, kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4, strides=[stride] * 2, group=groups)
        inputs.append(graphs.port('image%d' % i, np.float32, (1, cin, side, side)))
        outputs.append(graphs.port(y, np.float32, None))
    for i, (m, k, n) in enumerate(PRODUCTS):
        y = g.op('MatMul', 'rows%d' % i, g.const(g.rng.standard_normal((k, n)) / math.sqrt(k), np.float32))
        inputs.append(graphs.port('rows%d' % i, np.float32, (m, k)))
        outputs.append(graphs.port(y, np.float32, None))
    return g.model(inputs, outputs)


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit('%s: %s' % (' '.join(map(str, command)), done.stderr[-400:]))
    return done.stdout


def candidates_of(text):
    """{layer: {candidate: (cycles, margin)}}, {kernel: (layer, chosen candidate)} of --explain=costs."""
    found, kernels, layer, kernel = {}, {}, None, None
    for line in text.splitlines():
        row = re.match(r'  ([* ]) \(?(\w+)\)? +([\d.]+) kcycles(?:  x ([\d.]+))?', line)
        if row and layer:
            found[layer][row[2]] = (float(row[3]) * 1e3, float(row[4] or 1))
            if row[1] == '*':
                kernels[kernel] = (layer, row[2])
        elif re.match(r'(conv|matmul|attention)', line):
            layer, kernel = line.split('  ')[:2]
            found[layer] = {}
    return found, kernels


def clock(text):
    return float(re.search(r'one core: ([\d.]+) GHz', text)[1]) * 1e9


def build(args, model, candidate):
    """(library, {kernel: (layer, candidate)}), by that candidate where layers have it."""
    choice, library = os.path.join(args.folder, 'choice.txt'), os.path.join(args.folder, candidate + '.so')
    with open(choice, 'w', encoding='utf-8') as f:
        f.write('*\t%s\n' % candidate)
    text = run([args.cytoc, model, '-o', library, '--profile', '--explain=costs', '--choice=' + choice, *args.options])
    return library, candidates_of(text)[1]


def trace(args, library, kernels, table, hertz):
    """One process: the least time of each kernel's layer by its candidate."""
    result = library + '.json'
    run([args.cyto_run, library, '--random=1', '--random-dims=1', '--threads=1', '--repeat=%d' % args.repeat,
         '--trace=' + result])
    with open(result, encoding='utf-8') as f:
        events = json.load(f)['traceEvents']
    for event in events:
        kernel = event.get('args', {}).get('kernel')
        if kernel in kernels and event['ph'] == 'X':
            layer, candidate = kernels[kernel]
            cycles, least = event['dur'] / 1e6 * hertz, table[layer].get(candidate)
            table[layer][candidate] = min(cycles, least or cycles)


def measure(args, model, hertz):
    """{layer: {candidate: (estimate, margin, measured)}}, in cycles."""
    text = run([args.cytoc, model, '-o', os.path.join(args.folder, 'e.so'), '--explain=costs', *args.options])
    listed = candidates_of(text)[0]
    names = sorted(set().union(*listed.values())) if listed else []
    libraries = []
    for i, name in enumerate(names):
        print('  compiling %d of %d: %s' % (i + 1, len(names), name), flush=True)
        libraries.append(build(args, model, name))
    times = {layer: {} for layer in listed}
    for i in range(args.rounds):
        print('  round %d of %d' % (i + 1, args.rounds), flush=True)
        for library, kernels in libraries:
            trace(args, library, {k: v for k, v in kernels.items() if v[0] in times}, times, hertz)
    return {layer: {c: (*listed[layer][c], measured) for c, measured in row.items() if c in listed[layer]}
            for layer, row in times.items()}


def network(args, name):
    """The model's file, filled up with weights where it is one of the zoo's."""
    if os.path.exists(name):
        return name
    path = os.path.join(args.folder, name + '.onnx')
    run([sys.executable, os.path.join(ZOO, 'materialize.py'), os.path.join(ZOO, name + '.onnx'), path])
    return path


def chosen(row, scale, margin):
    """The candidate with the least estimate, factors being scaled; margin: that of Winograd's."""
    return min(row, key=lambda c: row[c][0] * scale.get(FACTOR.get(c), 1) * (margin if c == 'winograd' else row[c][1]))


def share(table, scale, margin=None):
    """Of the layers with a choice, those whose chosen candidate is near the best."""
    several = [row for row in table.values() if len(row) > 1]
    near = 0
    for row in several:
        least = min(measured for _, _, measured in row.values())
        m = margin if margin is not None else row.get('winograd', (0, 1))[1]
        near += row[chosen(row, scale, m)][2] <= least * NEAR
    return near, len(several)


def verdict(table, scale, margin):
    (before, layers), (after, _) = share(table, {}), share(table, scale, margin)
    return 'the chosen candidate is within %.0f %% of the best in %d of %d layers as it is, in %d as fitted' % (
        (NEAR - 1) * 100, before, layers, after)


def fit(table):
    """({column: factor of what it is now}, Winograd's margin)"""
    ratios = {}
    for row in table.values():
        for c, (estimate, _, measured) in row.items():
            if c in FACTOR and c != 'strassen':
                ratios.setdefault(FACTOR[c], []).append(measured / estimate)
    scale = {column: statistics.median(r) for column, r in ratios.items()}
    margins = [1 + i / 50 for i in range(16)]
    best = max(share(table, scale, m)[0] for m in margins)
    good = [m for m in margins if share(table, scale, m)[0] == best]
    return scale, good[len(good) // 2]  # the middle of what is as good


def column_value(text, core, column):
    """What a core has, by itself or by its bases."""
    while core != 'usual':
        row = re.search(r'CORE\(%s, (\w+),?([^;]*?)\)\n(?=\n|CORE|/\*)' % core, text)
        own = re.search(r'V\(%s, ([\d.]+)\)' % column, row[2])
        if own:
            return float(own[1])
        core = row[1]
    return float(re.search(r'COLUMN\(%s, "[^"]*", ([\d.e]+),' % column, text)[1])


def write(text, core, values):
    row = re.search(r'CORE\(%s, \w+,?[^;]*?\)\n(?=\n|CORE|/\*)' % core, text)
    new = row[0]
    for column, value in values.items():
        item = 'V(%s, %.3g)' % (column, value)
        new, n = re.subn(r'V\(%s, [\d.]+\)' % column, item, new)
        if not n:
            new = new.rstrip()[:-1] + ' ' + item + ')\n'
    return text.replace(row[0], new)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--build', default='build')
    parser.add_argument('--rounds', type=int, default=3, help='processes of each candidate (default: 3)')
    parser.add_argument('--repeat', type=int, default=20, help='runs in each (default: 20)')
    parser.add_argument('--networks', nargs='*', default=[], metavar='NAME', help='files, or names of ../shared/zoo')
    parser.add_argument('--write', action='store_true', help='change the row of machine.def')
    args = parser.parse_args()
    args.cytoc, args.cyto_run = (os.path.join(args.build, name) for name in ('cytoc', 'cyto-run'))
    args.folder = os.path.join(args.build, 'calibrate')
    os.makedirs(args.folder, exist_ok=True)
    args.options = ['--dim=*=1']
    model = os.path.join(args.folder, 'fixed.onnx')
    onnx.save(fixed_set(), model)
    said = run([args.cytoc, model, '-o', os.path.join(args.folder, 'e.so'), '--explain'])
    hertz, cpu = clock(said), re.search(r'^target (?:native )?\(?([\w-]+)', said, re.M)[1]
    table = measure(args, model, hertz)
    for layer, row in table.items():
        print('%-58s %s' % (layer, ', '.join('%s %.0f (estimated %.0f)' % (c, m / 1e3, e / 1e3) for c, (e, _, m) in row.items())))
    with open(MACHINE, encoding='utf-8') as f:
        text = f.read()
    found = re.search(r'^CPU\("%s", .*, (\w+)\)$' % cpu, text, re.M)
    if not found:
        sys.exit('%s has no row for %s: add CPU("%s", ..) and a CORE for it first' % (MACHINE, cpu, cpu))
    core = found[1]
    scale, margin = fit(table)
    values = {column: column_value(text, core, column) * factor for column, factor in scale.items()}
    values['winograd_margin'] = margin
    print('CORE(%s, ..): %s' % (core, ' '.join('V(%s, %.3g)' % item for item in values.items())))
    print('fixed set: ' + verdict(table, scale, margin))
    everything = {}
    for name in args.networks:
        print(name, flush=True)
        here = measure(args, network(args, name), hertz)
        everything.update(here)
        print('  ' + verdict(here, scale, margin), flush=True)
    if everything:
        print('all networks: ' + verdict(everything, scale, margin))
    if args.write:
        with open(MACHINE, 'w', encoding='utf-8') as f:
            f.write(write(text, core, values))
        print('%s is changed: make, and compare with make same' % MACHINE)
    shutil.rmtree(args.folder, ignore_errors=True)


if __name__ == '__main__':
    main()
