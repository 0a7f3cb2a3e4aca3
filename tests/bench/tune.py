# SPDX-License-Identifier: Apache-2.0
"""Networks compiled with --tune beside the same without: python tests/bench/tune.py [NETWORK ..].

In:  networks of ../shared/zoo, which get random weights. Out: a row each: layers measured and how many of them are faster than
     by estimates, seconds of tuning, milliseconds of both libraries and their ratio; then the geometric mean of the ratios.
     The libraries take turns, a process each time, ROUNDS times; every time is a median of medians.
"""
import argparse
import json
import math
import os
import re
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import lib  # pylint: disable=wrong-import-position

NETWORKS = ('resnet50', 'vit_b_16', 'unet2d_labelfree', 'unet3d_monai', 'mobilenet_v2')
ZOO = os.path.join(lib.SHARED, 'zoo')


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


def milliseconds(args, library):
    """One process: the median of its runs."""
    out = run([args.cyto_run, library, '--random=1', '--random-dims=1', '--threads=%d' % args.threads,
               '--repeat=%d' % args.repeat])[0]
    return float(re.search(r'median ([\d.]+)', out)[1])


def compare(args, name):
    model = os.path.join(args.folder, name + '.onnx')
    libraries = [os.path.join(args.folder, name + kind) for kind in ('.so', '.tuned.so')]
    run([sys.executable, os.path.join(ZOO, 'materialize.py'), os.path.join(ZOO, name + '.onnx'), model])
    run([args.cytoc, model, '-o', libraries[0], *options_of(name)])
    began = time.monotonic()
    said = run([args.cytoc, model, '-o', libraries[1], '--tune=' + args.file, *options_of(name)])[1]
    seconds = time.monotonic() - began
    layers = re.search(r'(\d+) layers measured.*; (\d+) are faster', said)
    times = [[], []]
    for _ in range(args.rounds):
        for row, library in zip(times, libraries):
            row.append(milliseconds(args, library))
    plain, tuned = map(statistics.median, times)
    print('%-18s %6s %6s %8.1f %10.2f %10.2f %7.3f' % (name, *(layers.groups() if layers else ('-', '-')), seconds, plain, tuned,
                                                      plain / tuned), flush=True)
    return plain / tuned


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('networks', nargs='*', default=NETWORKS)
    parser.add_argument('--build', default='build')
    parser.add_argument('--rounds', type=int, default=5, help='processes of each library (default: 5)')
    parser.add_argument('--repeat', type=int, default=10, help='runs in each (default: 10)')
    parser.add_argument('--threads', type=int, default=1)
    args = parser.parse_args()
    args.cytoc, args.cyto_run = (os.path.join(args.build, name) for name in ('cytoc', 'cyto-run'))
    args.folder = os.path.join(args.build, 'tune-bench')
    args.file = os.path.join(args.folder, 'tuning.txt')
    os.makedirs(args.folder, exist_ok=True)
    print('%-18s %6s %6s %8s %10s %10s %7s' % ('network', 'layers', 'other', 'seconds', 'ms', 'tuned ms', 'speed'))
    ratios = [compare(args, name) for name in args.networks]
    print('geometric mean %.3f' % math.exp(statistics.mean(map(math.log, ratios))))


if __name__ == '__main__':
    main()
