# SPDX-License-Identifier: Apache-2.0
"""Runs the test suites, adds up their closing lines, prints the total as the last line.

In:  names of suites (none: all of them), --build DIR, --variant, --update (each suite rewrites what it expects), --only
     PATTERN (a regular expression: programs whose name has it run whole, of others the tests whose names have it). --long: what takes
     long, instead; --since COMMIT: .. behind the rest, of it what the files that changed since then concern.
Out: each suite's own output and time; the programs that took longest, with the time of processors; those that failed, with the end of
     their output; "N passed, N failed, N skipped" over all; exit code 1 when anything failed or a suite ended without its closing line.
"""
import collections
import contextlib
import glob
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import lib

LAST_LINES, SLOWEST = 12, 12
CLOSING = re.compile(r'^(?:\w+: )?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$', re.M)

# name, its program, whether that takes --update, whether it keeps all cores busy. Programs of the others run beside each other,
# whichever suites they belong to; suites without a program of their own are programs of FOLDERS.
SUITES = [
    ('unit', None, False, False),
    ('attention', 'tests/operators/attention.py', False, False),
    ('quantise', 'tests/quantise/run.py', False, False),
    ('accuracy', 'tests/quantise/accuracy.py', False, False),
    ('fused', 'tests/operators/fused.py', False, False),
    ('decoding', 'tests/operators/decoding.py', False, False),
    ('caches', 'tests/operators/caches.py', False, False),
    ('cli', 'tests/cli.py', False, False),
    ('edges', 'tests/operators/edges.py', False, False),
    ('exporters', 'tests/operators/exporters.py', False, False),
    ('bad', 'tests/bad/run.py', False, False),
    ('ml', 'tests/ml/run.py', False, False),
    ('qdq', 'tests/qdq/run.py', False, False),
    ('golden', 'tests/golden.py', True, False),
    ('order', 'tests/order.py', False, False),
    ('circles', 'tests/circles.py', False, False),
    ('sources', 'tests/sources.py', False, False),
    ('docs', 'tests/docs.py', True, False),
    ('python', 'tests/python/run.py', False, False),
    ('onnxruntime-plugin', 'tests/onnxruntime/run.py', False, False),
    ('triton', 'tests/triton/run.py', False, False),
    ('cmake', 'tests/cmake.py', False, False),
    ('torch', 'tests/torch/run.py', False, False),
    ('predict', 'tests/predict/run.py', False, False),
    ('ray', 'tests/ray/run.py', False, False),
    ('spelled', 'tests/operators/spelled.py', False, False),
    ('precision', 'tests/operators/precision.py', False, False),
    ('recurrent', 'tests/operators/recurrent.py', False, False),
    ('costs', 'tests/costs.py', False, False),
    ('candidates', 'tests/candidates.py', False, False),
    ('tune', 'tests/tune.py', False, False),
    ('settings', 'tests/settings.py', False, False),
    ('values', 'tests/operators/values.py', False, False),
    ('verify', 'tests/verify.py', False, False),
    ('bench', 'tests/bench_tool.py', False, False),
    ('trace', 'tests/trace/run.py', False, False),
    ('report', 'tests/report/run.py', False, False),
    ('examples', 'tests/examples.py', False, False),
    ('threads', 'tests/threads/run.py', False, False),
    ('pipeline', 'tests/pipeline/run.py', False, False),
    ('libc', 'tests/libc/run.py', False, False),
    ('windows', 'tests/windows/run.py', False, False),
    ('cuda', None, False, False),
    ('cuda-compiled', 'tests/cuda/compiled.py', False, False),
    ('cuda-float8', 'tests/cuda/float8.py', False, False),
    ('carry', 'tests/cuda/carry/carried_test.py', False, False),
    ('emulate', 'tests/emulate/run.py', False, True),
    ('fuzz', 'tests/fuzz/run.py', False, True),
    ('random', 'tests/random/run.py', False, True),
    ('cuda-nodes', 'tests/cuda/nodes.py', True, True),
    ('cuda-networks', 'tests/cuda/networks.py', False, True),
    ('onnx', 'tests/onnx/run.py', True, True),
    ('sizes', 'tests/onnx/sizes.py', False, True),
    ('models', 'tests/models/run.py', True, True),
    ('exported', 'tests/exported/run.py', True, True),
    ('zoo', 'tests/zoo/run.py', True, True),
]

FOLDERS = {'unit': ('codegen', 'driver', 'passes', 'frontend', 'ir', 'rt'), 'cuda': ('cuda',)}

# What takes long beyond that: the program of a suite or of FOLDERS, with which options (CYTO_CHECK_LONG is set for all), and what it
# tests, a regular expression of paths. `make check-long` runs all of it, CI what the change concerns; without paths: never, as it
# takes hours.
KERNELS = r'codegen/cuda/|codegen/[^/]*$|ir/loop/|tests/cuda/'
LONG = [
    ('sizes', ['--every', '1'], None),
    ('triton', ['--long', 'test_load'], r'integrations/triton/|tests/triton/'),
    ('cuda/nvrtc_test', [], KERNELS),
    ('cuda/kernels_test', [], KERNELS),
    ('emulate', [], r'codegen/cpu/|codegen/[^/]*$|ir/|passes/|runtime/|tests/emulate/'),
]

# What takes longest, and begins first so that no core waits for it in the end: suites, or programs of FOLDERS.
LONGEST = ['quantise', 'cuda/kernels_test', 'accuracy', 'decoding', 'edges', 'cli', 'cuda/nvrtc_test', 'attention', 'fused', 'codegen/contract_test',
           'windows', 'predict', 'exporters', 'onnxruntime-plugin', 'values', 'codegen/int_gemm_test', 'bad', 'verify', 'cuda-float8', 'cuda-compiled',
           'triton', 'python', 'torch', 'ray', 'report']

# What waits for much of its time, for servers, browsers and other processes to start and end: one of these runs beside two others.
WAITING = ['triton', 'python', 'torch', 'ray', 'report']


def run_program(command, show):
    """Hands a program's lines to show(); returns its exit code, counts (None without a closing line), and how many seconds it and
    what it waited for kept a processor busy."""
    p = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors='replace', stdin=subprocess.DEVNULL)
    counts = None
    for line in p.stdout:
        match = CLOSING.match(line.rstrip('\n'))
        if match:
            counts = [int(g or 0) for g in match.groups()]
        else:
            show('  ' + line)
    _, status, used = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)  # or Popen waits again
    return p.returncode, counts, used.ru_utime + used.ru_stime


def show_now(text):
    sys.stdout.write(text)
    sys.stdout.flush()


ENDED = {}  # {name: (seconds, those of processors, failed, the last lines)} of the programs


def counted(command, name, show=show_now):
    start, last = time.time(), collections.deque(maxlen=LAST_LINES)

    def keep(text):
        last.append(text)
        show(text)

    counts, busy = judged(command, name, keep)
    ENDED[name] = (time.time() - start, busy, counts[1], list(last))
    return counts


def judged(command, name, show):
    code, counts, busy = run_program(command, show)
    if counts is None:
        counts = [1, 0, 0] if code == 0 else [0, 1, 0]
    elif code and not counts[1]:
        counts[1] = 1
    if code:
        show('FAILED %s: %s\n' % (name, 'signal %d' % -code if code < 0 else 'exit code %d' % code))
    return counts, busy


def programs(args, folder):
    """Names of the test programs in a folder of build/tests whose source is there, too."""
    names = [os.path.relpath(path, os.path.join(args.build, 'tests'))
             for path in sorted(glob.glob(os.path.join(args.build, 'tests', folder, '*'))) if os.access(path, os.X_OK)]
    return [name for name in names if os.path.exists('tests/%s.c' % name)]


def restriction(args, name):
    """What a program of this name is given, so that it runs what --only asks for."""
    return [args.only] if args.only and not re.search(args.only, name) else []


def commands(args, suite):
    """{name: command} of a suite's programs."""
    name, path, updates, _ = suite
    if path:
        command = [sys.executable, path, '--build', args.build, '--variant', args.variant]
        return {name: command + ['--update'] * (args.update and updates) + restriction(args, name)}
    names = [program for folder in FOLDERS[name] for program in programs(args, folder)]
    return {program: [os.path.join(args.build, 'tests', program)] + restriction(args, program) for program in names}


def changed_since(commit):
    """The files that are not as they were in that commit."""
    return subprocess.run(['git', 'diff', '--name-only', commit], check=True, stdout=subprocess.PIPE, text=True).stdout.split('\n')


def run_long(args, files=None):
    """What takes long, or of it what the files concern; the sum of its counts."""
    os.environ['CYTO_CHECK_LONG'] = '1'
    total, suites = [0, 0, 0], {suite[0]: suite for suite in SUITES}
    for name, options, paths in LONG:
        if files is not None and not (paths and any(re.match(paths, path) for path in files)):
            continue
        folder = next((suite for suite, folders in FOLDERS.items() if name.split('/')[0] in folders), None)
        command = commands(args, suites[folder or name]).get(name)
        if command:
            show_now(heading('%s, long' % name))
            start, counts = time.time(), counted(command + options, name + ', long')
            show_now(closing('%s, long' % name, counts, start, [name + ', long']))
            total = [sum(pair) for pair in zip(total, counts)]
    return total


def heading(name):
    return '== %s\n' % name


def closing(name, counts, start, programs):
    busy = sum(ENDED[program][1] for program in programs)
    return '%s: %d passed, %d failed, %d skipped  (%.0f s, CPU %.0f)\n' % (name, *counts, time.time() - start, busy)


def run_suite(args, suite):
    """Runs a suite of one program, which tells what it does while it does it."""
    start = time.time()
    [(name, command)] = commands(args, suite).items()
    lines = [] if args.only else None  # of those restricted, only what ran something is shown
    if not args.only:
        show_now(heading(name))
    counts = counted(command, name, lines.append if args.only else show_now)
    if args.only and any(counts):
        show_now(heading(name) + ''.join(lines))
    if any(counts) or not args.only:
        show_now(closing(name, counts, start, [name]))
    return counts


class Beside:
    """A suite whose programs run beside others. A program's output stays together, and is shown when it has ended."""

    def __init__(self, args, suite, names):
        self.only, self.name, self.names, self.left = args.only, suite[0], names, len(names)
        self.counts, self.start = [0, 0, 0], None
        self.lock = threading.Lock()

    def run(self, name, command):
        """One of its programs: the suite itself, or one of FOLDERS, which then has a line."""
        lines = [heading(name)] if name == self.name else []
        self.start = self.start or time.time()
        counts = counted(command, name, lines.append)
        if name != self.name:
            lines.append('  %-24s %d passed, %d failed  (%.0f s, CPU %.0f)\n' % (name, counts[0], counts[1], *ENDED[name][:2]))
        with self.lock:
            self.counts = [sum(pair) for pair in zip(self.counts, counts)]
            self.left -= 1
            if self.only and not any(counts):
                lines = []
            if not self.left and (any(self.counts) or not self.only):
                lines.append(closing(self.name, self.counts, self.start, self.names))
        show_now(''.join(lines))


def run_slots(others, waiting):
    """Runs jobs: two of the others at a time, and beside them one of those that wait; two of these when no others are left."""
    def jobs(queues):
        for queue in queues:
            with contextlib.suppress(IndexError):
                while True:
                    yield queue.popleft()

    def slot(queues):
        for beside, *job in jobs(queues):
            beside.run(*job)

    others, waiting = collections.deque(others), collections.deque(waiting)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(slot, [[others, waiting], [others], [waiting]]))


def run_beside(args, suites):
    """Runs the programs of these suites beside each other; the sum of their counts."""
    jobs, all_beside = [], []
    for suite in suites:
        todo = commands(args, suite)
        all_beside.append(Beside(args, suite, todo))
        jobs += [(all_beside[-1], name, command) for name, command in todo.items()]
    jobs.sort(key=lambda job: LONGEST.index(job[1]) if job[1] in LONGEST else len(LONGEST))
    run_slots([job for job in jobs if job[1] not in WAITING], [job for job in jobs if job[1] in WAITING])
    return [sum(column) for column in zip(*(beside.counts for beside in all_beside))]


def chosen(args):
    unknown = set(args.names) - {suite[0] for suite in SUITES}
    if unknown:
        sys.exit('no suite is called %s: there are %s' % (', '.join(sorted(unknown)), ' '.join(suite[0] for suite in SUITES)))
    if args.variant == 'tsan' and not args.names:
        return [suite for suite in SUITES if suite[0] in ('unit', 'threads')]  # what runs threads is the runtime
    return [suite for suite in SUITES if not args.names or suite[0] in args.names]


def summary(args):
    """What a reader of a long log looks for, at its end."""
    slow = sorted(ENDED, key=lambda name: -ENDED[name][0])[:SLOWEST]
    if len(slow) > 1 and not args.only:
        yield 'longest: %s\n' % ', '.join('%s %.0f s (CPU %.0f)' % (name, *ENDED[name][:2]) for name in slow)
        yield 'CPU time of all: %.0f s\n' % sum(ended[1] for ended in ENDED.values())
    for name in (name for name in ENDED if ENDED[name][2]):
        yield 'FAILED %s: %d; its last lines:\n' % (name, ENDED[name][2])
        yield from ENDED[name][3]


def run_suites(args):
    """The counts of all that were asked for."""
    all_counts = []
    for busy, suites in itertools.groupby(chosen(args), lambda suite: suite[3]):
        suites = list(suites)
        alone = busy or (len(suites) == 1 and suites[0][1])
        all_counts += [run_suite(args, suite) for suite in suites] if alone else [run_beside(args, suites)]
    return all_counts


def main():
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in the background of a script: programs would not see those of their tests
        signal.signal(signal.SIGINT, signal.default_int_handler)
    args = lib.arguments(__doc__, only={'default': ''}, long={'action': 'store_true'}, since={'default': ''})
    os.environ.setdefault('VIRTUAL_ENV', sys.prefix)  # NVRTC may be there
    all_counts = [run_long(args)] if args.long else run_suites(args)
    if args.since:
        all_counts.append(run_long(args, changed_since(args.since)))
    total = [sum(column) for column in zip(*all_counts)]
    show_now(''.join(summary(args)))
    print('%d passed, %d failed, %d skipped' % tuple(total), flush=True)
    sys.exit(1 if total[1] else 0)


if __name__ == '__main__':
    main()
