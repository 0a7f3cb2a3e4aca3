"""Runs the test suites one after the other, adds up their closing lines, prints the total as the last line.

In:  names of suites (none: all of them), --build DIR, --variant, --update (each suite rewrites what it expects).
Out: each suite's own output and time; "N passed, N failed, N skipped" over all; exit code 1 when anything failed or a
     suite ended without its closing line.
"""
import glob
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import lib

CLOSING = re.compile(r'^(?:\w+: )?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$', re.M)

# name, the file that must exist for the suite to be there, whether it takes --update
SUITES = [
    ('unit', None, False),
    ('golden', 'tests/golden.py', True),
    ('cli', 'tests/cli.py', False),
    ('bad', 'tests/bad/run.py', False),
    ('attention', 'tests/attention.py', False),
    ('spelled', 'tests/spelled.py', False),
    ('recurrent', 'tests/recurrent.py', False),
    ('ml', 'tests/ml/run.py', False),
    ('edges', 'tests/edges.py', False),
    ('fused', 'tests/fused.py', False),
    ('quantise', 'tests/quantise/run.py', False),
    ('emulate', 'tests/emulate/run.py', False),
    ('examples', 'tests/examples.py', False),
    ('fuzz', 'tests/fuzz/run.py', False),
    ('random', 'tests/random/run.py', False),
    ('cuda', None, False),
    ('cuda-nodes', 'tests/cuda/nodes.py', True),
    ('cuda-networks', 'tests/cuda/networks.py', False),
    ('onnx', 'tests/onnx/run.py', True),
    ('qdq', 'tests/qdq/run.py', False),
    ('models', 'tests/models/run.py', True),
    ('exported', 'tests/exported/run.py', True),
    ('zoo', 'tests/zoo/run.py', True),
]

# suites that are programs by folder of tests/
FOLDERS = {'unit': ('ir', 'frontend', 'passes', 'codegen', 'rt'), 'cuda': ('cuda',)}


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


def unit(args, folders):
    """Runs the programs of these folders, two at a time; each one's output stays together."""
    def job(path):
        name, text = os.path.relpath(path, os.path.join(args.build, 'tests')), []
        counts = counted([path], name, text.append)
        show_now('%s  %-24s %d passed, %d failed\n' % (''.join(text), name, counts[0], counts[1]))
        return counts

    paths = [path for folder in folders for path in sorted(glob.glob(os.path.join(args.build, 'tests', folder, '*')))
             if os.access(path, os.X_OK) and os.path.exists('tests/%s.c' % os.path.relpath(path, os.path.join(args.build, 'tests')))]
    with ThreadPoolExecutor(2) as pool:
        return [sum(column) for column in zip(*pool.map(job, paths), [0, 0, 0])]


def main():
    args = lib.arguments(__doc__)
    os.environ.setdefault('VIRTUAL_ENV', sys.prefix)  # NVRTC may be there
    total = [0, 0, 0]
    for name, path, updates in SUITES:
        if args.names and name not in args.names or path and not os.path.exists(path):
            continue
        if args.variant == 'tsan' and name != 'unit' and not args.names:
            continue  # what runs threads is the runtime, which the unit tests exercise
        print('== %s' % name, flush=True)
        start = time.time()
        if not path:
            counts = unit(args, FOLDERS[name])
        else:
            command = [sys.executable, path, '--build', args.build, '--variant', args.variant]
            counts = counted(command + ['--update'] * (args.update and updates), name)
        print('%s: %d passed, %d failed, %d skipped  (%.0f s)' % (name, *counts, time.time() - start), flush=True)
        total = [a + b for a, b in zip(total, counts)]
    print('%d passed, %d failed, %d skipped' % tuple(total), flush=True)
    sys.exit(1 if total[1] else 0)


if __name__ == '__main__':
    main()
