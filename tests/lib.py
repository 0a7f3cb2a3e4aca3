# SPDX-License-Identifier: Apache-2.0
"""What the test suites written in Python share: where things are, counting, lists of passing names, comparing arrays.

Every suite is a program that prints "N passed, N failed, N skipped" as its last line and exits with 1 when something
failed; tests/run_all.py adds the lines up. A suite takes --build DIR (where cytoc and cyto-run are), --update (rewrite
what it expects) and names to restrict it to.

A list of passing names is a committed text file, one name a line (fields after the name belong to the suite). A name in it
that fails is a failure. A name that is not in it counts as passed when it passes, and then --update adds it, and as
skipped, with its reason in the report, when it does not: so the list may only grow.
"""
import argparse
import importlib.util
import os
import re
import subprocess
import sys

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LONG = bool(os.environ.get('CYTO_CHECK_LONG'))  # everything is wanted, as in `make check-long`
SHARED = os.environ.get('CYTO_SHARED') or os.path.join(os.path.dirname(ROOT), 'shared')


def arguments(description, **extra):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument('names', nargs='*', help='run only tests whose name matches one of these regular expressions')
    parser.add_argument('--build', default='build')
    parser.add_argument('--variant', default='release')
    parser.add_argument('--update', action='store_true', help='rewrite what is expected; lists of names only grow')
    for name, options in extra.items():
        parser.add_argument('--' + name, **options)
    args = parser.parse_args()
    args.build = os.path.abspath(os.path.join(ROOT, args.build))
    args.cytoc = os.path.join(args.build, 'cytoc')
    args.cyto_run = os.path.join(args.build, 'cyto-run')
    args.wanted = lambda name: not args.names or any(re.search(n, name) for n in args.names)
    os.chdir(ROOT)
    return args


class Suite:
    """Counts, and keeps the list of passing names when there is one."""

    def __init__(self, args, passing=None):
        self.args, self.path = args, passing
        self.passed = self.failed = self.skipped = 0
        self.listed, self.newly, self.unsupported = {}, [], []
        if passing and os.path.exists(passing):
            for line in open(passing, encoding='utf-8'):
                if line.strip() and not line.startswith('#'):
                    self.listed[line.split()[0]] = line.rstrip('\n')

    def result(self, name, why=None, row=None):
        """why: None when the test passed, else one line. row: what stands in the list of passing names."""
        if why is None:
            self.passed += 1
            if self.path and name not in self.listed:
                self.newly.append(row or name)
        elif not self.path or name in self.listed:
            self.failed += 1
            print('FAILED %s: %s' % (name, why), flush=True)
        else:
            self.skipped += 1
            self.unsupported.append((name, why))

    def skip(self, name, why):
        self.skipped += 1
        print('skipped %s: %s' % (name, why), flush=True)

    def done(self, what='tests'):
        if self.newly:
            print('%d %s newly pass: %s' % (len(self.newly), what, ' '.join(r.split()[0] for r in self.newly[:20])) +
                  (' ...' if len(self.newly) > 20 else ''))
            if self.args.update:
                self.write_list()
            else:
                print('`make golden` adds them to %s' % os.path.relpath(self.path, ROOT))
        if self.unsupported:
            print('%d %s are not on the list: unsupported, or not right yet' % (len(self.unsupported), what))
        print('%d passed, %d failed, %d skipped' % (self.passed, self.failed, self.skipped), flush=True)
        sys.exit(1 if self.failed else 0)

    def write_list(self):
        rows = dict(self.listed)
        rows.update((r.split()[0], r) for r in self.newly)
        head = []
        if os.path.exists(self.path):
            head = [l for l in open(self.path, encoding='utf-8') if l.startswith('#')]
        with open(self.path, 'w', encoding='utf-8') as f:
            f.writelines(head)
            f.writelines(rows[k] + '\n' for k in sorted(rows))


def run(command, timeout=600, **options):
    """(exit code or minus signal, stdout, stderr) of a command; code 124 after a time-out."""
    try:
        p = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout,
                           stdin=subprocess.DEVNULL, **options)
        return p.returncode, p.stdout.decode('utf-8', 'replace'), p.stderr.decode('utf-8', 'replace')
    except subprocess.TimeoutExpired:
        return 124, '', 'no end after %d s' % timeout


def reason(text, code):
    """The line of a program's error output that says most: the first error, else the first line."""
    lines = [l.strip() for l in text.splitlines() if l.strip()]
    for line in lines:
        if re.search(r'error|ERROR|Sanitizer|internal', line):
            return line[:300]
    if lines:
        return lines[0][:300]
    return 'ended by signal %d' % -code if code < 0 else 'exit code %d without a message' % code


def rel_rms(got, want):
    """Root mean square of the difference over that of the reference; a non-finite element must be the same one."""
    got, want = np.asarray(got, np.float64).ravel(), np.asarray(want, np.float64).ravel()
    odd = ~np.isfinite(want)
    if not np.array_equal(got[odd], want[odd], equal_nan=True) or not np.isfinite(got[~odd]).all():
        return float('inf')
    got, want = got[~odd], want[~odd]
    if not want.size:
        return 0.0
    err, ref = np.sqrt(np.mean((got - want) ** 2)), np.sqrt(np.mean(want ** 2))
    return float(err / ref) if ref else float(err)


def difference(name, got, want, limit):
    """None when `got` is `want` within a relative RMS error of `limit`; else what differs. Integers must be equal, unless
    the limit says that the reference itself wavers."""
    if got.shape != want.shape:
        return '%s: shape %s, not %s' % (name, list(got.shape), list(want.shape))
    if got.dtype != want.dtype:
        return '%s: dtype %s, not %s' % (name, got.dtype, want.dtype)
    if want.dtype.kind in 'bSUO' or want.dtype.kind in 'iu' and limit <= 1e-4:
        wrong = int(np.sum(got != want))
        return '%s: %d of %d elements differ' % (name, wrong, want.size) if wrong else None
    e = rel_rms(got, want)
    return None if e <= limit else '%s: relative RMS error %.3g, limit %.3g' % (name, e, limit)


def cases_wanted(args, paths, qualified=False):
    """Is one of the functions test_* of these sources asked for, by its name or, if qualified, by MODULE.NAME? They are read, not
    imported: what they import may have to be installed first, which takes minutes."""
    for path in paths:
        with open(path, encoding='utf-8') as f:
            names = re.findall(r'^def (test_\w+)\(', f.read(), re.M)
        module = os.path.splitext(os.path.basename(path))[0] + '.' if qualified else ''
        if any(args.wanted(module + name) for name in names):
            return True
    return False


def none_wanted():
    """The closing line of a suite that has no test of the names asked for."""
    print('0 passed, 0 failed, 0 skipped', flush=True)


def load_module(path):
    """A module that is not where Python looks, or whose name another one has."""
    name = os.path.splitext(os.path.relpath(path, ROOT))[0].replace(os.sep, '.')
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def safe_name(name):
    """The form of a tensor's name in a file's name."""
    return re.sub(r'[^A-Za-z0-9._-]', '_', name)
