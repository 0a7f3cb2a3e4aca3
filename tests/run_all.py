"""Runs the test suites, adds up their closing lines, prints the total as the last line.

In:  names of suites (none: all of them), --build DIR, --variant, --update (each suite rewrites what it expects).
Out: each suite's own output and time; "N passed, N failed, N skipped" over all; exit code 1 when anything failed or a
     suite ended without its closing line.
"""
import glob
import itertools
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import lib

CLOSING = re.compile(r'^(?:\w+: )?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$', re.M)

# name, its program, whether that takes --update, whether it keeps all cores busy. Others run two at a time with their
# neighbours of this table, long ones first.
SUITES = [
    ('unit', None, False, True),
    ('attention', 'tests/attention.py', False, False),
    ('quantise', 'tests/quantise/run.py', False, False),
    ('fused', 'tests/fused.py', False, False),
    ('cli', 'tests/cli.py', False, False),
    ('edges', 'tests/edges.py', False, False),
    ('bad', 'tests/bad/run.py', False, False),
    ('ml', 'tests/ml/run.py', False, False),
    ('qdq', 'tests/qdq/run.py', False, False),
    ('golden', 'tests/golden.py', True, False),
    ('order', 'tests/order.py', False, False),
    ('spelled', 'tests/spelled.py', False, False),
    ('recurrent', 'tests/recurrent.py', False, False),
    ('examples', 'tests/examples.py', False, False),
    ('emulate', 'tests/emulate/run.py', False, True),
    ('fuzz', 'tests/fuzz/run.py', False, True),
    ('random', 'tests/random/run.py', False, True),
    ('cuda', None, False, True),
    ('cuda-nodes', 'tests/cuda/nodes.py', True, True),
    ('cuda-networks', 'tests/cuda/networks.py', False, True),
    ('onnx', 'tests/onnx/run.py', True, True),
    ('models', 'tests/models/run.py', True, True),
    ('exported', 'tests/exported/run.py', True, True),
    ('zoo', 'tests/zoo/run.py', True, True),
]

# suites that are programs by folder of tests/; contract_test of codegen takes longest, and so begins first
FOLDERS = {'unit': ('codegen', 'passes', 'frontend', 'ir', 'rt'), 'cuda': ('cuda',)}


def run_program(command, show):
    """Hands a program's lines to show(); returns its exit code and counts, or None for the counts without a closing line."""
    p = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors='replace', stdin=subprocess.DEVNULL)
    counts = None
    for line in p.stdout:
        match = CLOSING.match(line.rstrip('\n'))
        if match:
            counts = [int(g or 0) for g in match.groups()]
        else:
            show('  ' + line)
    return p.wait(), counts


def show_now(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def counted(command, name, show=show_now):
    code, counts = run_program(command, show)
    if counts is None:
        counts = [1, 0, 0] if code == 0 else [0, 1, 0]
    elif code and not counts[1]:
        counts[1] = 1
    if code:
        show('FAILED %s: %s\n' % (name, 'signal %d' % -code if code < 0 else 'exit code %d' % code))
    return counts


def unit(args, folders, show):
    """Runs the programs of these folders, two at a time; each one's output stays together."""
    def job(path):
        name, text = os.path.relpath(path, os.path.join(args.build, 'tests')), []
        counts = counted([path], name, text.append)
        show('%s  %-24s %d passed, %d failed\n' % (''.join(text), name, counts[0], counts[1]))
        return counts

    paths = [path for folder in folders for path in sorted(glob.glob(os.path.join(args.build, 'tests', folder, '*')))
             if os.access(path, os.X_OK) and os.path.exists('tests/%s.c' % os.path.relpath(path, os.path.join(args.build, 'tests')))]
    with ThreadPoolExecutor(2) as pool:
        return [sum(column) for column in zip(*pool.map(job, paths), [0, 0, 0])]


def run_suite(args, suite, show):
    name, path, updates, _ = suite
    show('== %s\n' % name)
    start = time.time()
    if not path:
        counts = unit(args, FOLDERS[name], show)
    else:
        command = [sys.executable, path, '--build', args.build, '--variant', args.variant]
        counts = counted(command + ['--update'] * (args.update and updates), name, show)
    show('%s: %d passed, %d failed, %d skipped  (%.0f s)\n' % (name, *counts, time.time() - start))
    return counts


def run_beside(args, suite):
    text = []
    counts = run_suite(args, suite, text.append)
    show_now(''.join(text))
    return counts


def chosen(args):
    unknown = set(args.names) - {suite[0] for suite in SUITES}
    if unknown:
        sys.exit('no suite is called %s: there are %s' % (', '.join(sorted(unknown)), ' '.join(suite[0] for suite in SUITES)))
    if args.variant == 'tsan' and not args.names:
        return SUITES[:1]  # what runs threads is the runtime, which the unit tests exercise
    return [suite for suite in SUITES if not args.names or suite[0] in args.names]


def main():
    args = lib.arguments(__doc__)
    os.environ.setdefault('VIRTUAL_ENV', sys.prefix)  # NVRTC may be there
    all_counts = []
    for busy, suites in itertools.groupby(chosen(args), lambda suite: suite[3]):
        suites = list(suites)
        if busy or len(suites) == 1:
            all_counts += [run_suite(args, suite, show_now) for suite in suites]
        else:
            with ThreadPoolExecutor(2) as pool:
                all_counts += pool.map(lambda suite: run_beside(args, suite), suites)
    total = [sum(column) for column in zip(*all_counts)]
    print('%d passed, %d failed, %d skipped' % tuple(total), flush=True)
    sys.exit(1 if total[1] else 0)


if __name__ == '__main__':
    main()
