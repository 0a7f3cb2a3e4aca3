# SPDX-License-Identifier: Apache-2.0
"""The ONNX standard's backend tests, each compiled at -O0 and -O3 and run against the expected outputs.

In:  the tests of the pinned onnx package (list_tests.py), build/cytoc, build/tests/node_run; names to restrict it to.
Out: the closing line; build/onnx-tests/report.txt with every failing name and its reason, the frequent reasons first.

A test passes when it does at both levels. passing.txt holds the names that must pass; see lib.py. Work goes in chunks:
one `cytoc --batch` compiles a chunk, two node_run processes judge it, then its libraries are deleted.
"""
import collections
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import lib

CHUNK = 150
JOBS = dict(type=int, default=2, help='compilations, and processes that run, at a time')
SANITIZED_STEP = 10  # with sanitizers, so slow, every tenth test stands for its neighbours


def load_index(args):
    folder = os.path.join(lib.ROOT, 'build', 'onnx-tests')
    path, maker = os.path.join(folder, 'index.tsv'), os.path.join(HERE, 'list_tests.py')
    newest = max(os.path.getmtime(p) for p in (maker, os.path.join(lib.ROOT, 'tests', 'requirements.txt')))
    if not os.path.exists(path) or os.path.getmtime(path) < newest:
        os.makedirs(folder, exist_ok=True)
        subprocess.run([sys.executable, maker, path], check=True)
    rows = [line.rstrip('\n').split('\t') for line in open(path, encoding='utf-8')]
    return [r for r in rows if args.wanted(r[0])]


def compile_all(args, work, jobs):
    """jobs: (row, level). Returns {(name, level): reason} of those that failed."""
    listing = os.path.join(work, 'list')
    with open(listing, 'w', encoding='utf-8') as f:
        for i, (row, level) in enumerate(jobs):
            f.write('\t'.join(['%s/%d.log' % (work, i), row[1] + '/model.onnx', '-o', '%s/%d.so' % (work, i), level,
                               '-j', '1'] + args.options) + '\n')
    _, out, err = lib.run([args.cytoc, '--batch', listing, '-j', args.jobs], timeout=3600, env=args.cytoc_env)
    status = {}
    for line in out.splitlines():
        match = re.match(r'(\d+) (-?\d+) [\d.]+$', line)
        if match:
            status[int(match.group(1))] = int(match.group(2))
    failed = {}
    for i, (row, level) in enumerate(jobs):
        if status.get(i) != 0 or not os.path.exists('%s/%d.so' % (work, i)):
            log = '%s/%d.log' % (work, i)
            text = open(log, encoding='utf-8', errors='replace').read() if os.path.exists(log) else err
            failed[row[0], level] = 'compile: ' + lib.reason(text.replace(row[1] + '/', ''), status.get(i, 1))
    return failed


def run_all(args, work, jobs, failed):
    """Runs what compiled; adds to `failed`."""
    lines = {}
    for i, (row, level) in enumerate(jobs):
        if (row[0], level) not in failed:
            lines[i] = '\t'.join([str(i), '%s/%d.so' % (work, i), '%s/test_data_set_%s' % (row[1], row[2])] + row[3:7])
    runner = os.path.join(args.build, 'tests', 'node_run')
    parts = []
    for k in range(args.jobs):
        path = '%s/run%d' % (work, k)
        with open(path, 'w', encoding='utf-8') as f:
            f.writelines(l + '\n' for i, l in lines.items() if i % args.jobs == k)
        parts.append(subprocess.Popen([runner, *args.judging], stdin=open(path), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                      env=args.env))
    verdict = {}
    for part in parts:
        for line in part.communicate()[0].decode('utf-8', 'replace').splitlines():
            word, name, *why = line.split(' ', 2)
            verdict[int(name)] = None if word == 'PASS' else 'run: ' + ' '.join(why)
    for i in lines:
        why = verdict.get(i, 'run: no verdict')
        if why:
            failed[jobs[i][0][0], jobs[i][1]] = why


def write_report(reasons, report):
    groups = collections.defaultdict(list)
    for name, why in sorted(reasons.items()):
        groups[re.sub(r"-O\d: |\d+|0x\w+|'[^']*\.onnx'|node '[^']*'", lambda m: '' if m.group()[0] == '-' else '*',
                      why)].append((name, why))
    path = os.path.join(lib.ROOT, 'build', 'onnx-tests', report)
    with open(path, 'w', encoding='utf-8') as f:
        for _, rows in sorted(groups.items(), key=lambda g: -len(g[1])):
            f.writelines('%s\t%s\n' % row for row in rows)
    return path


def judge(args, suite, rows, levels, report='report.txt'):
    """Compiles and runs the rows with args.options in args.env; results go to the suite, reasons to the report."""
    reasons, work = {}, os.path.join(args.build, 'onnx-tests', 'work.%d' % os.getpid())
    for at in range(0, len(rows), CHUNK):
        jobs = [(row, level) for row in rows[at:at + CHUNK] for level in levels]
        shutil.rmtree(work, ignore_errors=True)
        os.makedirs(work)
        failed = compile_all(args, work, jobs)
        run_all(args, work, jobs, failed)
        for row in rows[at:at + CHUNK]:
            why = ['%s: %s' % (level, failed[row[0], level]) for level in levels if (row[0], level) in failed]
            suite.result(row[0], why[0] if why else None)
            if why:
                reasons[row[0]] = why[0]
        print('%d of %d have run' % (min(at + CHUNK, len(rows)), len(rows)), flush=True)
    shutil.rmtree(work, ignore_errors=True)
    print('of %d node tests %d pass; the others and why: %s' %
          (len(rows), suite.passed, os.path.relpath(write_report(reasons, report), lib.ROOT)))
    suite.done('node tests')


def main():
    args = lib.arguments(__doc__, jobs=JOBS)
    args.options, args.env, args.cytoc_env, args.judging = [], None, None, []
    suite = lib.Suite(args, os.path.join(HERE, 'passing.txt'))
    rows = load_index(args)
    if args.variant != 'release' and not args.names:
        rows = rows[::SANITIZED_STEP]
    judge(args, suite, rows, ['-O0', '-O3'] if args.variant == 'release' else ['-O3'])


if __name__ == '__main__':
    main()
