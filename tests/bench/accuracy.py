# SPDX-License-Identifier: Apache-2.0
"""--accuracy beside the best single precision; writes a table of tests/bench/results/RESULTS-int8.md.

In:  trained networks of ../shared/models with their reference inputs, and inputs like them that int8.py makes; all of them
     calibrate. Out: a row per network: f32, bf16, int8 dynamic and static with every layer that gains in it, those without
     more than the budget of error only; the static one whose layers return to f32 until it holds the budget
     (--int8-min-snr); --accuracy. dB: the least signal-to-noise ratio of an output beside f32, on all these inputs.
     Contenders take turns, a process each time; times are medians over ROUNDS processes of the median of their runs. One
     thread.
"""
import argparse
import os
import re
import shutil
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import numpy as np

import int8
import lib
import results

NETWORKS = ('yolox_nano', 'ultraface_rfb320', 'hand_landmark_lite', 'vit_cifar_ibp_3_3_8', 'magika_v3_3')
ROUNDS, SECONDS, MADE = 5, 0.25, 7
SINGLE = {'f32': [], 'bf16': ['--bf16'], 'int8 dynamic': ['--int8=dynamic', '--int8-min-snr=off'],
          'int8 static': ['--int8=static', '--int8-min-snr=off']}
HEAD = ['network', *(c for name in SINGLE for c in (name + ' ms', 'dB')), 'best single', 'static, kept: ms', 'dB', '--accuracy: ms', 'dB',
        'beside best single', 'layers']


def run(command):
    code, out, err = lib.run(command)
    if code:
        raise RuntimeError(lib.reason(err, code))
    return out + err


class Network:
    def __init__(self, args, name):
        self.args, self.root = args, os.path.join(args.build, 'accuracy', name)
        self.model = os.path.join(lib.SHARED, 'models', name, 'model.onnx')
        self.reference = os.path.join(lib.SHARED, 'models', name, 'refio')
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.reference, self.path('samples', 's0'), ignore=shutil.ignore_patterns('out_*'))
        rng = np.random.default_rng(1)
        for i in range(1, MADE + 1):
            os.makedirs(self.path('samples', 's%d' % i))
            for k, (shape, make) in enumerate(int8.NETWORKS[name]):
                np.save(self.path('samples', 's%d' % i, 'in_%d_.npy' % k), make(rng, shape))

    def path(self, *names):
        return os.path.join(self.root, *names)

    def compile(self, name, options):
        """(library, what cytoc said)"""
        needs = ['--calibrate=' + self.path('samples')] if any('static' in o or 'accuracy' in o for o in options) else []
        path = self.path(name.replace(' ', '_') + '.so')
        return path, run([self.args.cytoc, self.model, '-o', path, *options, *needs])

    def measure(self, library, repeat):
        text = run([self.args.cyto_run, library, '--inputs-dir', self.path('samples', 's0'), '--threads', '1', '--repeat', str(repeat)])
        return float(re.search(r'runs: min [0-9.]+ ms, median ([0-9.]+)', text).group(1))

    def outputs(self, library):
        """Each output of all samples."""
        found, out = [], self.path('out')
        for i in range(MADE + 1):
            shutil.rmtree(out, ignore_errors=True)
            run([self.args.cyto_run, library, '--inputs-dir', self.path('samples', 's%d' % i), '--output-dir', out])
            found.append([np.load(os.path.join(out, f)) for f in sorted(os.listdir(out))])
        return [np.concatenate([x.ravel() for x in each]) for each in zip(*found)]


def least_ratio(wanted, got):
    return min([int8.snr(w, g) for w, g in zip(wanted, got) if w.dtype.kind == 'f'])


def times(network, libraries):
    repeat = [max(3, int(SECONDS * 1e3 / max(network.measure(path, 3), 0.005))) for path in libraries]
    rounds = [[network.measure(path, n) for path, n in zip(libraries, repeat)] for _ in range(ROUNDS)]
    return [statistics.median(column) for column in zip(*rounds)]


def row(args, name):
    n = Network(args, name)
    budget = float(args.budget)
    made = {kind: n.compile(kind, options)[0] for kind, options in SINGLE.items()}
    made['kept'] = n.compile('kept', ['--int8=static', '--int8-min-snr=%g' % budget])[0]
    made['accuracy'], text = n.compile('accuracy', ['--accuracy=%gdB' % budget])
    layers = re.search(r'of layers: (.*)', text).group(1)
    wanted = n.outputs(made['f32'])
    ratio = {kind: least_ratio(wanted, n.outputs(path)) for kind, path in made.items()}
    took = dict(zip(made, times(n, list(made.values()))))
    best = min((kind for kind in SINGLE if kind == 'f32' or ratio[kind] >= budget), key=took.get)
    db = lambda kind: '-' if kind == 'f32' else '%.1f' % ratio[kind] if ratio[kind] < 200 else 'as f32'
    cells = [name, *(c for kind in SINGLE for c in ('%.3f' % took[kind], db(kind))), best, '%.3f' % took['kept'], db('kept'),
             '%.3f' % took['accuracy'], db('accuracy'), '%.2f' % (took[best] / took['accuracy']), layers]
    shutil.rmtree(n.root, ignore_errors=True)
    return cells


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('names', nargs='*', help='networks (none: all)')
    parser.add_argument('--build', default='build')
    parser.add_argument('--budget', default='30', help='dB')
    parser.add_argument('--update', action='store_true', help='write the table of RESULTS-int8.md')
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    args.cytoc, args.cyto_run = (os.path.join(args.build, n) for n in ('cytoc', 'cyto-run'))
    rows = [HEAD]
    for name in NETWORKS:
        if os.path.exists(os.path.join(lib.SHARED, 'models', name, 'model.onnx')) and (not args.names or name in args.names):
            rows.append(row(args, name))
            print(' | '.join(rows[-1]), flush=True)
    if args.update:
        text = ('`tests/bench/accuracy.py --update`, %s, one thread, medians of %d processes that took turns. Each precision with every '
                'layer\nthat gains in it; dB: the least ratio of an output beside f32, on the samples. Best single: '
                'the fastest of\nthese four that holds %s dB. Kept: `--int8=static --int8-min-snr=%s`. Beside best single: its time over '
                'that of `--accuracy=%sdB`.\n\n' % (results.cpu_name(args.cytoc), ROUNDS, *3 * [args.budget]))
        results.put_table('int8', 'Quantised networks', 'accuracy', 'Precision by a budget', text + results.markdown(rows))


if __name__ == '__main__':
    main()
