# SPDX-License-Identifier: Apache-2.0
"""Random graphs at -O0 and -O3 against ONNX Runtime; operators that draw random numbers (draws.py), copies (copies.py).

In:  --first and --count: seeds, one graph each. Two of three are networks in f32 (generate.py), the third is grown node by
     node, of all types, with branches and loops in it (grown_graphs.py); every other one of these is odd: with NaN,
     infinities and the like among its numbers. The defaults are the run of `make check`: fixed, under 40 s. --kind: all
     graphs of one kind.
Out: the closing line. A graph that fails is left in build/random/SEED with its inputs.

The relative RMS error of each output of a network may be 1e-4, or ten times what ONNX Runtime's own levels differ by where
that is larger. Networks whose outputs are not finite, or that ONNX Runtime refuses, are left out. Grown graphs say
themselves how far each of their outputs may be off; integers are equal. Odd ones are compiled without fast algorithms,
which let NaN spread.
"""
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import copies
import draws
import generate
import grown
import grown_graphs
import lib
import network

LEVELS = ('-O0', '-O3')


def network_of(seed):
    """(model, inputs, [(output, its relative RMS error at most)]) of a seed; the last: None when nothing can be judged."""
    model, feeds = generate.generate(seed)
    data = model.SerializeToString()
    try:
        plain, other = (network.ort_session(data, optimised, errors=False).run(None, feeds) for optimised in (False, True))
    except Exception:  # its exceptions have no common class
        return model, feeds, None
    if not all(np.isfinite(v).all() for v in plain):
        return model, feeds, None
    return model, feeds, [(v, max(1e-4, 10 * lib.rel_rms(o, v))) for v, o in zip(plain, other)]


def grown_of(seed, odd=False):
    model, feeds, outputs = grown_graphs.generate(seed, odd)
    return model, feeds, [(v.array, grown.tolerance(v)) for v in outputs] or None


def odd_of(seed):
    return grown_of(seed, True)


KINDS = {'network': network_of, 'grown': grown_of, 'odd': odd_of}
CYCLE = ('network', 'network', 'grown', 'network', 'network', 'odd')  # of seeds


def differs(got, want, limit):
    """Like lib.rel_rms, but an output that is nearly zero everywhere is compared with 1e-3."""
    if want.dtype.kind != 'f' or got.shape != want.shape:
        return lib.difference('output', got, want, 0)
    error = grown.rms_apart(got, want)
    return None if error <= limit else 'relative RMS error %.3g, limit %.3g' % (error, limit)


def test(args, seed):
    """(whether the graph is of use, why it failed or None)."""
    work = os.path.join(args.build, 'random', str(seed))
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    path, why = os.path.join(work, 'model.onnx'), None
    kind = args.kind or CYCLE[seed % len(CYCLE)]
    model, feeds, expected = KINDS[kind](seed)
    options = ['-j', '1', '--verify'] + (['--fast-algorithms=off'] if kind == 'odd' else [])
    onnx.save(model, path)
    network.save_inputs(work, feeds)
    for threads, level in enumerate(LEVELS if expected else (), 1):
        library, outputs = os.path.join(work, 'model.so'), os.path.join(work, 'out' + level)
        why = network.compile_model(args, path, library, level, options)
        why = why or network.execute(args, library, work, outputs, threads)
        got = network.by_index(outputs)
        for k, (want, limit) in enumerate(expected):
            what = differs(np.load(got[k]), want, limit) if not why else None
            why = '%s: output %d: %s' % (level, k, what) if what else why
        if why:
            break
    if not why:
        shutil.rmtree(work)
    return expected is not None, why


def main():
    args = lib.arguments(__doc__, first={'type': int, 'default': 0}, count={'type': int, 'default': 120},
                         kind={'choices': KINDS})
    suite = lib.Suite(args)
    count = args.count // 3 if args.variant != 'release' else args.count
    useless = 0
    with ThreadPoolExecutor(2) as pool:
        seeds = [s for s in range(args.first, args.first + count) if args.wanted('random%d' % s)]
        for seed, (useful, why) in zip(seeds, pool.map(lambda s: test(args, s), seeds)):
            if useful:
                suite.result('random%d' % seed, why)
            useless += not useful
    for name, test_one in (('draws', draws.test), ('copies', copies.test)):
        if not args.first and args.wanted(name):
            suite.result(name, test_one(args))
    if useless:
        print('%d graphs were left out: not finite, or not run by ONNX Runtime' % useless)
    suite.done('random graphs')


if __name__ == '__main__':
    main()
