# SPDX-License-Identifier: Apache-2.0
"""Every size on every axis: node tests' models with symbolic dims, run with 0, 1, 2, odd and huge sizes between forbidden
pages, against ONNX Runtime.

In:  the tests that tests/onnx/run.py lists as passing, whose tensors are of NumPy's number types, and small networks
     (size_cases.py); build/cytoc, build/tests/guard_run. --every N takes each Nth (1: all) in place of what `make check` has
     time for, --part K/N the Kth of N parts of those; --only NAME,..: some of the configurations below (f32, eager, f16, int8,
     cuda).
Out: the closing line; build/onnx-tests/sizes-*.txt with every difference; how many cases wanted more memory than there is.

A model is compiled once, with a symbol of its own for every axis of every input (integer lists, as of shapes and axes,
keep their length), and run at many sizes; its values repeat those of the test's data. A case passes when
- no forbidden page is touched (guard_run.c), there is no other signal, and it ends in time,
- the values are ONNX Runtime's, and there is an error where that has one (but for outputs without elements).
sizes-differ.txt says where the second is not so, and why, and what does not end in time; without a reference (ONNX Runtime has
no such kernel, or crashes itself) only the first counts. A model that cannot be compiled like this counts as skipped.

With sanitizers `make check` takes models until each operator, with each of its attributes and each value of those that are
strings, has been there; a case has less memory (guard_run.c) and three times the time. With these, and on the mock of CUDA's
driver, which fills memory and runs one thread after the other, a case with a size of 2^31 or 2^40 that does not end within
HUGE_SECONDS is counted, and is no failure.
"""
import fnmatch
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import lib
import run as nodes

import numpy as np
import onnx

from size_cases import HUGE, WAYS, features, make_symbolic, networks, node_case, resized, shapes_of
from size_reference import References, outputs_of
from size_tensors import Hollow, read_tensors, write_tensors

CHUNK = 60
HUGE_SECONDS = 2
REPORT = r'Sanitizer|: runtime error: '
NO_MEMORY = 'no (device )?memory'
# Of a report the place is enough; stacks of allocations and a long quarantine are most of what the compiler's time would be.
SANITIZERS = {'ASAN_OPTIONS': 'malloc_context_size=2:quarantine_size_mb=16:detect_leaks=0'}


# ---- judging ----

def limit_of(options, dtype):
    if '--int8' in options:
        return 0.3
    return 3e-2 if '--fp16' in options or dtype == np.float16 else 2e-3


def compare(got, want, options):
    """None, or how the outputs differ."""
    if len(got) != len(want):
        return '%d outputs, not %d' % (len(got), len(want))
    for k, (g, w) in enumerate(zip(got, want)):
        if g is None or w is None or g.shape != w.shape:
            return 'output %d: shape %s, not %s' % (k, g is not None and list(g.shape), w is not None and list(w.shape))
        if g.dtype != w.dtype:
            return 'output %d: dtype %s, not %s' % (k, g.dtype, w.dtype)
        if not w.size:
            continue
        if w.dtype.kind != 'f':
            if '--int8' not in options and not np.array_equal(g, w):
                return 'output %d: %d of %d elements differ' % (k, np.sum(g != w), w.size)
        elif '--int8' not in options:
            limit = limit_of(options, w.dtype)
            with np.errstate(all='ignore'):
                size = float(np.sqrt(np.mean(np.square(w.astype(np.float64)))))  # halves: where sums cancel, of what they add up
                slack = limit * max(1, size) if '--fp16' in options and np.isfinite(size) else limit
                close = np.isclose(g.astype(np.float64), w.astype(np.float64), limit, slack, equal_nan=True)
            if not close.all():
                at = int(np.argmin(close.ravel()))
                return 'output %d: [%d] is %.6g, not %.6g' % (k, at, g.ravel()[at], w.ravel()[at])
    return None


def read_differ():
    rows = []
    for line in open(os.path.join(HERE, 'sizes-differ.txt'), encoding='utf-8'):
        if line.strip() and not line.startswith('#'):
            pattern, kind, text = line.rstrip('\n').split(None, 2)
            rows.append((pattern, kind, text))
    return rows


def judge(case, verdict, options):
    """(kind, text) of what is wrong, or None. kinds: fault, value, accepts, refuses."""
    word, *text = verdict.split(' ', 1)
    text = text[0] if text else ''
    reference = case['reference'][0]
    if word not in ('DONE', 'REFUSED'):
        return 'fault', verdict
    if word == 'REFUSED' and re.search(NO_MEMORY, text):  # ONNX Runtime goes other ways, and may do with less
        return None
    if reference.startswith('NONE'):
        return None
    if reference.startswith('ERROR'):
        if word == 'REFUSED' or 'bad_alloc' in reference or 'Failed to allocate' in reference:
            return None
        empty = all(a is None or a.size == 0 for a in read_tensors(case['stem'] + '.out'))
        return None if empty else ('accepts', 'ONNX Runtime: ' + reference[6:])
    if word == 'REFUSED':
        return 'refuses', text
    why = compare(read_tensors(case['stem'] + '.out'), outputs_of(case['reference']), options)
    return ('value', why) if why else None


def log_of(job):
    """What cytoc said of it."""
    path = job['library'] + '.log'
    return open(path, encoding='utf-8', errors='replace').read() if os.path.exists(path) else ''


def compile_chunk(args, suite, work, jobs):
    listing = os.path.join(work, 'list')
    with open(listing, 'w', encoding='utf-8') as f:
        for job in jobs:
            f.write('\t'.join([job['library'] + '.log', job['model'], '-o', job['library'], job['level'], '-j', '1'] + args.options) + '\n')
    code, out, err = lib.run([args.cytoc, '--batch', listing, '-j', args.jobs], timeout=3600, env=args.cytoc_env)
    if code < 0:
        suite.result('cytoc %s' % args.configuration, '%s: ended by signal %d: %s' % (listing, -code, (out + err)[-1000:]))
    for job in jobs:
        said = log_of(job)
        if re.search(REPORT, said):  # of a sanitizer
            suite.result('cytoc %s %s' % (job['name'], args.configuration), lib.reason(said, 1))


def is_huge(label):
    return any(str(size) in label for size in HUGE)


def counts_slow(args):
    return args.cuda or args.variant != 'release'


def is_known(case, bad, differ):
    kind, text = bad
    return (kind != 'fault' or text.startswith('SLOW')) and any(
        fnmatch.fnmatch(case['name'], p) and kind == k and re.search(t, case['label'] + ': ' + text) for p, k, t in differ)


def seconds_of(args, case, differ):
    """What is known not to end, or need not, gets the time in which it could fault."""
    if is_huge(case['label']) and (counts_slow(args) or is_known(case, ('fault', 'SLOW'), differ)):
        return min(HUGE_SECONDS, args.seconds)
    return args.seconds * (1 if args.variant == 'release' else 3)


def run_chunk(args, cases):
    verdicts, parts, differ = {}, [], read_differ()
    for k in range(args.jobs):
        listing = os.path.join(args.build, 'onnx-tests', 'sizes.%d.%d.list' % (os.getpid(), k))  # a pipe would fill up both ways
        with open(listing, 'w', encoding='utf-8') as f:
            f.writelines('%d\t%s\t%s.in\t%s.out\t%d\n' % (i, c['library'], c['stem'], c['stem'], seconds_of(args, c, differ))
                         for i, c in enumerate(cases) if i % args.jobs == k)
        with open(listing, encoding='utf-8') as f:
            p = subprocess.Popen([os.path.join(args.build, 'tests', 'guard_run')], stdin=f, stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, text=True, errors='replace', env=args.env)
        os.remove(listing)
        parts.append(p)
    for p in parts:
        for line in p.stdout:
            word, number, *why = line.rstrip('\n').split(' ', 2)
            verdicts[int(number)] = ' '.join([word] + why)
        p.wait()
    return verdicts


# What is compiled and how: (what it is called, levels, options, for CUDA, every how many of the models, patterns of names of
# which all are taken). `make check` has time for these.
WINDOWS = ['test_resize_*_linear', 'test_resize_*_cubic', 'test_resize_upsample_sizes_nearest', 'test_*_pad', 'test_gridsample',
           'test_gridsample_bicubic', 'test_gather_*', 'test_scatter*', 'test_roialign_*', 'test_maxpool_2d_*',
           'test_averagepool_2d_*', 'test_conv_with*', 'test_convtranspose', 'test_lstm_*', 'test_expand_*', 'test_tile']
PRODUCTS = ['test_matmul_*d', 'test_gemm_all*', 'test_conv_with*', 'test_basic_conv*', 'test_lstm_defaults', 'test_gather_0']
CONFIGURATIONS = [('f32', '-O3', '', False, 24, WINDOWS), ('eager', '-O0', '', False, 48, WINDOWS[:6]),
                  ('f16', '-O3', '--fp16', False, 0, PRODUCTS), ('int8', '-O3', '--int8', False, 0, PRODUCTS),
                  ('cuda', '-O3', '', True, 96, WINDOWS[:6])]


def gather(args, every, always):
    """[(name, model, values)]. every: each how manieth is taken; 0: none but `always`; None: what has something new."""
    passing = lib.Suite(args, os.path.join(HERE, 'passing.txt')).listed
    rows = [r for r in nodes.load_index(args) if r[0] in passing and r[2] == '0']
    taken, seen = [(name, *made) for name, made in networks().items() if args.wanted(name)], set()
    for i, row in enumerate(rows):
        wanted = args.names or every and i % every == 0 or any(fnmatch.fnmatch(row[0], p) for p in always)
        made = node_case(row) if wanted or every is None else None
        if made and (wanted or features(made[0]) - seen):
            seen |= features(made[0])
            taken.append((row[0], *made))
    part, parts = map(int, args.part.split('/'))
    return taken[part - 1::parts]


def nothing_changes(job):
    """Has it no layer that integers could compute? Then f32 has run the same kernels."""
    return 'nothing to quantise' in log_of(job)


def compile_openly(args, suite, work, chunk):
    """The jobs of the models of a chunk, each the first of WAYS that all levels compile, or the last."""
    jobs = []
    for w, way in enumerate(WAYS):
        left, tried = [], []
        for name, model, values in chunk:
            inputs = make_symbolic(model, values, way)
            path = os.path.join(work, '%s.%d.onnx' % (name, w))
            onnx.save(model, path)
            made = [dict(name=name, model=path, level=level, library='%s%s.so' % (path[:-5], level), way=way,
                         inputs=[v.name for v in inputs], values=values) for level in args.level_list]
            tried.append((name, model, values, made))
        compile_chunk(args, suite, work, [job for *_, made in tried for job in made])
        for name, model, values, made in tried:
            if w + 1 < len(WAYS) and not all(os.path.exists(job['library']) for job in made):
                left.append((name, model, values))
            else:
                jobs += made
        chunk = left
        if not chunk:
            break
    return jobs


def cases_of(job, references, stem):
    """The sizes that a library runs at, with what is right there. stem: of the files of inputs and outputs."""
    cases, answers = [], {}
    for shapes in shapes_of(job['values'], job['way']):
        label = ' '.join('x'.join(map(str, s)) if s is not None else '-' for s in shapes)
        arrays = [resized(v, s) for v, s in zip(job['values'], shapes)]
        case = dict(job, stem='%s.%d' % (stem, len(cases)), label=label)
        write_tensors(case['stem'] + '.in', arrays)
        if any(isinstance(a, Hollow) for a in arrays):
            answers[label] = 'NONE not for NumPy', None
        cases.append(case)
    answers.update(references.of(job, {c['label']: c['stem'] for c in cases if c['label'] not in answers}))
    return [dict(case, reference=answers[case['label']]) for case in cases]


class Tally:
    """What comes of the cases of a configuration: results of models, counts, lines of the report."""

    def __init__(self):
        self.ran = self.short = self.slow = self.same = 0
        self.differ, self.report = read_differ(), []

    def leave_out(self, args, suite, job):
        """Is it a model without a library, or one that other configurations run?"""
        if not os.path.exists(job['library']):
            self.report.append('%s\t%s\tnot compiled\t%s' % (job['name'], job['level'], lib.reason(log_of(job), 1)))
            suite.skipped += 1
            return True
        if '--int8' in args.options and nothing_changes(job):
            self.same += 1
            return True
        return False

    def wrong(self, args, case, verdict):
        """None, or what is wrong with it and not known."""
        self.ran += 1
        self.short += verdict.startswith('REFUSED') and bool(re.search(NO_MEMORY, verdict))
        if counts_slow(args) and verdict.startswith('SLOW') and is_huge(case['label']):
            self.slow += 1
            return None
        bad = judge(case, verdict, args.options)
        if not bad:
            return None
        known = is_known(case, bad, self.differ)
        self.report.append('%s\t%s\t%s\t%s%s\t%s' % (case['name'], case['level'], case['label'], bad[0],
                                                   ' (known)' if known else '', bad[1]))
        return None if known else '%s at %s: %s' % (bad[0], case['label'], bad[1])

    def take(self, args, suite, cases, verdicts):
        models = {}
        for i, case in enumerate(cases):
            models.setdefault((case['name'], case['level']), []).append(
                self.wrong(args, case, verdicts.get(i, 'FAULT no verdict')))
        for (name, _), all_ in models.items():
            wrong = [text for text in all_ if text]
            suite.result('%s %s' % (name, args.configuration),
                         '%d of %d: %s' % (len(wrong), len(all_), wrong[0]) if wrong else None)

    def write(self, args, models):
        name = args.configuration + ('-%s' % args.part.replace('/', '-') if args.part != '1/1' else '')
        path = os.path.join(args.build, 'onnx-tests', 'sizes-%s.txt' % name)
        with open(path, 'w', encoding='utf-8') as f:
            f.writelines(line + '\n' for line in sorted(self.report))
        more = ', %d of 2^31 or more did not end in time' % self.slow if self.slow else ''
        more += ', %d models have nothing to quantise and are as in f32' % self.same if self.same else ''
        print('%s: %d models ran at %d sizes in all, %d of these asked for more memory than a case may have%s; differences: %s'
              % (args.configuration, models, self.ran, self.short, more, os.path.relpath(path, lib.ROOT)), flush=True)


def judge_all(args, suite, items):
    work = os.path.join(args.build, 'onnx-tests', 'sizes.%d' % os.getpid())
    tally, references = Tally(), References()
    for start in range(0, len(items), CHUNK):
        shutil.rmtree(work, ignore_errors=True)
        os.makedirs(work)
        jobs = compile_openly(args, suite, work, items[start:start + CHUNK])
        jobs = [job for job in jobs if not tally.leave_out(args, suite, job)]
        cases = [case for i, job in enumerate(jobs) for case in cases_of(job, references, os.path.join(work, 'c%d' % i))]
        tally.take(args, suite, cases, run_chunk(args, cases))
    shutil.rmtree(work, ignore_errors=True)
    references.runtime.close()
    tally.write(args, len(items))


def configure(args, options, cuda):
    args.options, args.env, args.cytoc_env, args.cuda = options.split(), None, {**os.environ, **SANITIZERS}, cuda
    if cuda:
        sys.path.insert(0, os.path.join(os.path.dirname(HERE), 'cuda'))
        import mock
        args.target = mock.TARGET['default']
        args.device = args.nvrtc = False
        args.options += mock.options(args) + ['--name=model']  # equal kernels of different tests are compiled once
        args.env = {**mock.environment(args, nvrtc=False), 'CY_MOCK_GUARD': '1'}
        args.cytoc_env = {**mock.compiling(args.env), **SANITIZERS}


def main():
    args = lib.arguments(__doc__, every=dict(type=int, default=0), only=dict(default=''), part=dict(default='1/1'), seconds=dict(type=int, default=10),
                         jobs=nodes.JOBS)
    suite = lib.Suite(args)
    for name, levels, options, cuda, every, always in CONFIGURATIONS:
        if args.only and name not in args.only.split(','):
            continue
        args.configuration, args.level_list = name, levels.split(',')
        configure(args, options, cuda)
        covering = args.variant != 'release' and name in ('f32', 'eager')
        judge_all(args, suite, gather(args, args.every or (None if covering else every), always))
    suite.done()


if __name__ == '__main__':
    main()
