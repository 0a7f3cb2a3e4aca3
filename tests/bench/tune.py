# SPDX-License-Identifier: Apache-2.0
"""Networks compiled with --tune beside the same without: python tests/bench/tune.py [NETWORK ..].

In:  networks of ../shared/zoo, which get random weights; --options=.., of cytoc, --int8 for example; --seconds: of tuning at
     most, in one go: run it again for the rest. Out: a row each: layers with several candidates, how many of them are faster
     than by estimates, the share that estimates compute within 3 % of the fastest candidate, the same weighed by time, seconds of
     tuning, milliseconds of both libraries and their ratio; then the geometric mean of the ratios. The libraries take turns, a
     process each time, ROUNDS times; every time is a median of medians. --layers leaves the libraries out. Then a row for each
     variant that was measured: on how many layers, on how many it wins by more than 2 %, and what it gains there.
"""
import argparse
import collections
import json
import math
import os
import re
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import lib  # pylint: disable=wrong-import-position
import candidates  # pylint: disable=wrong-import-position

NETWORKS = ('resnet50', 'vit_b_16', 'unet2d_labelfree', 'unet3d_monai', 'mobilenet_v2')
ZOO = os.path.join(lib.SHARED, 'zoo')
NEAR, GAINS = 1.03, 1.02


def run(command):
    code, out, err = lib.run(command, 3600)
    if code:
        sys.exit('%s: %s' % (' '.join(map(str, command)), lib.reason(err, code)))
    return out, err


def options_of(name):
    """Sizes that the network leaves open, fixed at those it is tested at."""
    with open(os.path.join(ZOO, 'index.json'), encoding='utf-8') as f:
        entry = next(e for e in json.load(f)['models'] if e['name'] == name)
    return ['--shape=%s=%s' % (i['name'], 'x'.join(map(str, i['test_shape']))) for i in entry['inputs']]


def measured(path):
    """{layer: {candidate: kilocycles}} of a file of --tune."""
    layers = {}
    with open(path, encoding='utf-8') as f:
        for line in f.read().splitlines()[3:]:
            layer, _, times = line.split('\t')
            layers[layer] = {n: float(t) for n, t in (w.split('=') for w in times.split(' ')) if t != '-'}
    return layers


def milliseconds(args, library):
    """One process: the median of its runs."""
    out = run([args.cyto_run, library, '--random=1', '--random-dims=1', '--threads=%d' % args.threads,
               '--repeat=%d' % args.repeat])[0]
    return float(re.search(r'median ([\d.]+)', out)[1])


def turns(args, libraries):
    """Medians of all."""
    times = [[] for _ in libraries]
    for _ in range(args.rounds):
        for row, library in zip(times, libraries):
            row.append(milliseconds(args, library))
    return [statistics.median(row) for row in times]


def near(layers, chosen):
    """[(ratio to the fastest candidate, weight)] of layers as estimates have them."""
    return [(times[chosen[layer]] / min(times.values()), times[chosen[layer]]) for layer, times in layers.items()
            if chosen.get(layer) in times]


def count_variants(layers, chosen, variants):
    """variants[kind of layer, candidate] += what it gains beside the estimates' choice."""
    for layer, times in layers.items():
        for name, t in times.items():
            if chosen.get(layer) in times and name != chosen[layer]:
                variants[layer.split(' ')[0], name].append(times[chosen[layer]] / t if t == min(times.values()) else 1)


def compare(args, name, variants):
    model = os.path.join(args.folder, name + '.onnx')
    libraries = [os.path.join(args.folder, name + kind) for kind in ('.so', '.tuned.so')]
    options = [*options_of(name), *args.options.split()]
    if not os.path.exists(model):
        run([sys.executable, os.path.join(ZOO, 'materialize.py'), os.path.join(ZOO, name + '.onnx'), model])
    estimated = candidates.layers_of(run([args.cytoc, model, '-o', libraries[0], '--explain=costs', *options])[0])
    chosen = {layer: one for layer, (_, one) in estimated.items()}
    began = time.monotonic()
    said = run([args.cytoc, model, '-o', libraries[1], '--tune=' + args.file, *(
        ['--tune-seconds=%d' % args.seconds] if args.seconds else []), *options])[1]
    seconds = time.monotonic() - began
    layers = {layer: times for layer, times in measured(args.file).items() if layer in chosen}
    ended = re.search(r'ended with (\d+) of (\d+)', said)
    rows = near(layers, chosen)
    count_variants(layers, chosen, variants)
    share = sum(r <= NEAR for r, _ in rows) / max(len(rows), 1)
    weighed = sum(w for r, w in rows if r <= NEAR) / max(sum(w for _, w in rows), 1)
    other = sum(r > 1 for r, _ in rows)
    ms = ('', '', '')
    if not args.layers and not ended:
        plain, tuned = turns(args, libraries)
        ms = ('%.2f' % plain, '%.2f' % tuned, '%.3f' % (plain / tuned))
    print('| %s | %d | %d | %.0f %% | %.0f %% | %.0f | %s | %s | %s |%s' % (
        name, len(rows), other, 100 * share, 100 * weighed, seconds, *ms, ' %s of %s' % ended.groups() if ended else ''), flush=True)
    return float(ms[2]) if ms[2] else None


def print_variants(variants):
    print('| kind | variant | layers | wins | gain: median | most |\n|---|---|---:|---:|---:|---:|')
    for (kind, name), gains in sorted(variants.items()):
        wins = [g for g in gains if g > GAINS]
        print('| %s | %s | %d | %d | %s | %s |' % (kind, name, len(gains), len(wins),
                                                 *(('%.3f' % statistics.median(wins), '%.3f' % max(wins)) if wins else ('-', '-'))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('networks', nargs='*', default=NETWORKS)
    parser.add_argument('--build', default='build')
    parser.add_argument('--options', default='', help='of cytoc, for both')
    parser.add_argument('--seconds', type=int, help='of tuning, at most')
    parser.add_argument('--layers', action='store_true', help='only the times of layers')
    parser.add_argument('--rounds', type=int, default=5, help='processes of each library (default: 5)')
    parser.add_argument('--repeat', type=int, default=10, help='runs in each (default: 10)')
    parser.add_argument('--threads', type=int, default=1)
    args = parser.parse_args()
    args.cytoc, args.cyto_run = (os.path.join(args.build, name) for name in ('cytoc', 'cyto-run'))
    args.folder = os.path.join(args.build, 'tune-bench')
    args.file = os.path.join(args.folder, 'tuning.txt')
    os.makedirs(args.folder, exist_ok=True)
    print('| network | layers | other | within 3 % | of the time | seconds | ms | tuned ms | speed |\n|---|' + 8 * '---:|')
    variants = collections.defaultdict(list)
    ratios = [r for r in (compare(args, name, variants) for name in args.networks) if r]
    if ratios:
        print('\ngeometric mean %.3f\n' % math.exp(statistics.mean(map(math.log, ratios))))
    print_variants(variants)


if __name__ == '__main__':
    main()
