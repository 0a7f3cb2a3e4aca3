# SPDX-License-Identifier: Apache-2.0
"""Tests and measures CUDA on a machine with a GPU and no compiler: what carry.py packed, and this program, lie in a folder.

    python3 run.py first                 is it right? about, kernels, instructions, networks, sanitizer: at most 280 s
    python3 run.py second                is it fast? speed, profile: at most 280 s; again: the cases that are missing
    python3 run.py PART[:NAME,..] ..     [--seconds N] [--out DIR]

In:  the archives beside this file, unpacked on the first call; Python 3.9 with numpy, the NVIDIA driver. PyTorch for
     comparisons and `profile`, cuDNN (pip's, as PyTorch brings it), compute-sanitizer where they are.
Out: DIR/results.jsonl, a JSON object a line, written at once (tests/bench/cuda/cuda.py --report makes Markdown of it);
     DIR/log.txt, all that was printed; a short table last. Further calls add to them.

Parts run in this order, unless some are named, each under its own limit and all under --seconds. What hangs or crashes
costs its own limit: every kernel (`kernels` goes on behind it), every instruction, network and case of `speed` has one.
Names restrict a part: `networks:resnet`, `speed:attention,resnet50`, `kernels:matmul`.
"""
import argparse
import glob
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
CLOSING = re.compile(r'^(\d+) passed, (\d+) failed, (\d+) skipped$')
MOST_RESTARTS = 60
LOAD_SECONDS = 60  # until the first kernel is about to run
CHECKED = ['one_row', 'bert_toy_fp16', 'warpgroups_half', 'squeezenet_dynamic', 'unet3d_fp16']  # by the sanitizer
PROFILED = ['resnet50_batch16', 'vit_b_16', 'bert_base_batch1$', 'unet3d', 'unet2d', 'attention_128_2048$',
            'matmul_4096_f16']


# ---- processes ----

class Lines:
    """A program's lines with its errors among them, as they come; it is ended with all that it started."""

    def __init__(self, command, env, cwd):
        self.p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
                                  errors='replace', env=env, cwd=cwd, start_new_session=True)
        self.queue = queue.Queue()
        threading.Thread(target=self.pump, daemon=True).start()

    def pump(self):
        for line in self.p.stdout:
            self.queue.put(line.rstrip('\n'))
        self.queue.put(None)

    def next(self, seconds):
        """A line; None: there are no more; '' and no line within the time: TimeoutError."""
        try:
            return self.queue.get(timeout=max(0.01, seconds))
        except queue.Empty:
            raise TimeoutError

    def end(self):
        """How it ended, in words; None: well."""
        try:
            code = self.p.wait(5)
        except subprocess.TimeoutExpired:
            code = None
        try:
            os.killpg(self.p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            self.p.wait(20)
        except subprocess.TimeoutExpired:  # the driver does not let go of it
            pass
        return None if code == 0 else 'was ended' if code is None else \
            'signal %d' % -code if code < 0 else 'exit code %d' % code


class Report:
    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        self.path, self.log_path, self.parts = os.path.join(folder, 'results.jsonl'), os.path.join(folder, 'log.txt'), []

    def row(self, **row):
        with open(self.path, 'a', encoding='utf-8') as f:
            f.write(json.dumps(row) + '\n')

    def log(self, text):
        print(text, flush=True)
        with open(self.log_path, 'a', encoding='utf-8') as f:
            f.write(text + '\n')

    def failure(self, part, name, why):
        self.row(kind='failure', case=part, contender=name, why=why[:2000])
        self.log('FAILED %s %s: %s' % (part, name, why))

    def part(self, name, text, seconds):
        self.parts.append('%-10s %6.0f s  %s' % (name, seconds, text))
        self.row(kind='part', name=name, text=text, seconds=round(seconds, 1))


# ---- the parts: each gets (run, names, deadline), and returns what it came to, in words ----

TOOLS = [(['nvidia-smi'], 'nvidia-smi'), (['uname', '-a'], 'uname'), (['ld', '--version'], 'ld'), (['cc', '--version'], 'cc'),
         (['nvcc', '--version'], 'nvcc'), (['compute-sanitizer', '--version'], 'compute-sanitizer')]
PACKAGES = ['numpy', 'torch', 'onnx', 'onnxruntime', 'triton']


def about(run, names, deadline):
    """What there is: a row says which tools and packages, the log what they print."""
    has = {}
    for command, name in TOOLS + [([sys.executable, '-c', 'import %s as m; print(m.__version__, m.__file__)' % p], p) for p in PACKAGES]:
        try:
            p = subprocess.run(command, capture_output=True, text=True, timeout=max(1, min(30, deadline - time.monotonic())), env=run.env)
            has[name] = p.stdout.splitlines()[0][:200] if not p.returncode and p.stdout.strip() else None
            run.report.log('$ %s\n%s' % (' '.join(command), (p.stdout + p.stderr)[:4000].rstrip()))
        except (OSError, subprocess.TimeoutExpired) as problem:
            has[name] = None
            run.report.log('$ %s\n%s' % (' '.join(command), problem))
    run.report.row(kind='has', python=sys.version.split()[0], **has)
    found = ', '.join('%s=%s' % (k, run.env[k]) for k in ('CYTO_CUDNN', 'CYTO_CUBLASLT', 'VIRTUAL_ENV') if run.env.get(k))
    return '%s; missing: %s' % (found or 'cuDNN was not found in Python packages', ' '.join(k for k, v in has.items() if not v) or 'nothing')


def trace_cases(run, part, command, start, deadline):
    """One process from case `start` on: (the case to go on with or None, how many were right, lines of the end)."""
    lines, case, text, right = Lines(command + ['--trace', str(start)], run.env, run.root), None, [], 0
    why = None
    try:
        while True:
            limit = min(deadline - time.monotonic(), run.kernel_seconds if case else max(run.kernel_seconds, LOAD_SECONDS))
            line = lines.next(limit)
            if line is None:
                break
            match = re.match(r'(case|right|wrong) (\d+)(?: (.*))?$', line)
            if not match:
                text.append(line)
                continue
            if match[1] == 'case':
                case, text = (int(match[2]), match[3]), []
            else:
                if match[1] == 'wrong':
                    run.report.failure(part, '%d %s' % case, '; '.join(text))
                right += match[1] == 'right'
                start, case, text = int(match[2]) + 1, None, []
    except TimeoutError:
        why = 'the time of this part was over' if time.monotonic() > deadline else 'no end after %d s' % run.kernel_seconds
        lines.p.kill()
    ended = lines.end()
    if case:
        run.report.failure(part, '%d %s' % case, '; '.join(text + [why or ended or 'it ended the process']))
        return case[0] + 1, right, text
    return (start if ended == 'exit code 3' else None), right, text + ([why] if why else [])


def kernels(run, names, deadline):
    """Each kernel of kernel_cases.h against the interpreter."""
    program = [os.path.join(run.root, 'build', 'tests', 'cuda', 'device_test'), '--load',
               os.path.join(run.root, 'build', 'tests', 'cuda', 'images')] + (['--only', names[0]] if names else [])
    shards = 1 if run.mocks else min(run.jobs, 8)
    commands = [program + ['--shard', '%d/%d' % (k, shards)] for k in range(shards)]
    begun = run.failures()
    with ThreadPoolExecutor(shards) as pool:
        ended = list(pool.map(lambda command: trace_all(run, 'kernel', command, deadline), commands))
    run.report.log('\n'.join(text for _, text, _ in ended))
    return counted(run, sum(right for right, _, _ in ended), begun, all(whole for _, _, whole in ended), ended[0][1])


def counted(run, right, begun, whole, text):
    wrong = run.failures() - begun
    if not right and not wrong:
        raise RuntimeError(text or 'nothing ran')
    return '%d right, %d wrong%s' % (right, wrong, '' if whole else '; not all ran')


def trace_all(run, part, command, deadline):
    """(how many were right, lines of the end, whether all ran)"""
    start, total, text = 0, 0, []
    for _ in range(MOST_RESTARTS):
        start, right, text = trace_cases(run, part, command, start, deadline)
        total += right
        if start is None or time.monotonic() > deadline:
            break
    return total, '; '.join(text), start is None


def instructions(run, names, deadline):
    """Instructions one by one, beside what the emulator of the tests made of them."""
    command = [sys.executable, os.path.join(run.root, 'tests', 'cuda', 'carry', 'instructions.py'), '--against',
               os.path.join(run.root, 'build', 'tests', 'cuda', 'instructions.npz')]
    begun = run.failures()
    right, text, whole = trace_all(run, 'instruction', command, deadline)
    return counted(run, right, begun, whole, text)


def network_folders(run, names):
    return [path for path in sorted(glob.glob(os.path.join(run.root, 'build', 'carried', 'networks', '*')))
            if not names or any(re.search(name, os.path.basename(path)) for name in names)]


def execute(run, folder, out, seconds, wrapper=()):
    """(how it ended, what it printed): 'no end in time', None (well), or words."""
    command = [*wrapper, os.path.join(run.root, 'build', 'cyto-run'), os.path.join(folder, 'model.so'), '--inputs-dir',
               os.path.join(folder, 'in'), '--output-dir', out, '--threads', '1']
    os.makedirs(out, exist_ok=True)
    lines, text = Lines(command, run.env, run.root), []
    end = time.monotonic() + seconds
    try:
        while True:
            line = lines.next(end - time.monotonic())
            if line is None:
                break
            text.append(line)
    except TimeoutError:
        lines.p.kill()
        lines.end()
        return 'no end in time', text
    return lines.end(), text


def network_row(run, folder, deadline):
    """None, or what is wrong."""
    import network
    name, start = os.path.basename(folder), time.monotonic()
    if start > deadline - 1:
        return 'no time was left'
    out = os.path.join(run.root, 'out', name)
    why, text = execute(run, folder, out, min(run.network_seconds, deadline - start))
    with open(os.path.join(folder, 'limit'), encoding='utf-8') as f:
        limit = float(f.read())
    why = '%s: %s' % (why, '; '.join(text)) if why else network.compare(out, os.path.join(folder, 'ref'), lambda output: limit)
    run.report.row(kind='network', name=name, right=why is None, why=why, seconds=round(time.monotonic() - start, 2), limit=limit)
    return why


def networks(run, names, deadline):
    """Small networks beside what ONNX Runtime computed when they were packed."""
    sys.path.insert(0, os.path.join(run.root, 'tests'))
    folders = network_folders(run, names)
    with ThreadPoolExecutor(1 if run.mocks else 4) as pool:
        reasons = list(pool.map(lambda folder: network_row(run, folder, deadline), folders))
    for folder, why in zip(folders, reasons):
        if why:
            run.report.failure('network', os.path.basename(folder), why)
    right = reasons.count(None)
    return '%d right, %d wrong' % (right, len(reasons) - right)


def find_sanitizer(run):
    found = [shutil.which('compute-sanitizer', path=run.env.get('PATH')),
             *sorted(glob.glob('/usr/local/cuda*/bin/compute-sanitizer')), *sorted(glob.glob('/opt/cuda*/bin/compute-sanitizer'))]
    return next(filter(None, found), None)


def sanitizer(run, names, deadline):
    """compute-sanitizer's memcheck and racecheck of some networks."""
    tool = find_sanitizer(run)
    if not tool:
        return 'there is no compute-sanitizer'
    clean, folders = 0, network_folders(run, names or ['^%s$' % name for name in CHECKED])
    for folder in folders:
        for check in ('memcheck', 'racecheck'):
            left = deadline - time.monotonic()
            if left < 2:
                return '%d clean; no time was left' % clean
            why, text = execute(run, folder, os.path.join(run.root, 'out', check), left, [tool, '--tool', check, '--error-exitcode', '9'])
            run.report.row(kind='sanitizer', name=os.path.basename(folder), tool=check, clean=why is None, text=text[-20:])
            clean += why is None
            if why:
                run.report.failure('sanitizer', '%s %s' % (os.path.basename(folder), check), '%s: %s' % (why, '; '.join(text[:12])))
    return '%d clean of %d' % (clean, 2 * len(folders))


def suite(run, part, command, deadline):
    """A program that prints FAILED lines and closes with its counts."""
    lines, closing, last = Lines(command, run.env, run.root), None, ''
    why = ''
    try:
        while True:
            line = lines.next(deadline - time.monotonic())
            if line is None:
                break
            closing = line if CLOSING.match(line) else closing
            match = re.match(r'FAILED (\S+): (.*)', line)
            if match:
                run.report.failure(part, match[1], match[2])
            else:
                run.report.log(line)
                last = line
    except TimeoutError:
        why = 'no end in time; '
        lines.p.kill()
    ended = lines.end()
    return why + (closing or 'the last line was: %s (%s)' % (last, ended))


def python(run, script, *arguments):
    return [sys.executable, os.path.join(run.root, *script.split('/')), '--build', 'build', *([] if run.mocks else ['--device']),
            *map(str, arguments)]


def measure(run, names, deadline, *options):
    small = ['--small', '--round-seconds', '0.01'] if run.mocks else ['--round-seconds', '0.6']
    return suite(run, 'speed', python(run, 'tests/bench/cuda/cuda.py', '--resume', '--ready', '--work', 'build/carried/speed', '--out',
                                      run.report.path, '--limit', 60, '--seconds', max(5, deadline - time.monotonic() - 10), *options,
                                      *small, *names), deadline)


def speed(run, names, deadline):
    """Kernels and networks beside PyTorch."""
    return measure(run, names, deadline)


def profile(run, names, deadline):
    """Kernels of networks beside their floors."""
    return measure(run, names or PROFILED, deadline, '--profile')


PARTS = [  # name, function, limit in seconds, call
    ('about', about, 40, 'first'),
    ('kernels', kernels, 110, 'first'),
    ('instructions', instructions, 30, 'first'),
    ('networks', networks, 80, 'first'),
    ('sanitizer', sanitizer, 60, 'first'),
    ('speed', speed, 235, 'second'),
    ('profile', profile, 60, 'second'),
]
CALL_SECONDS = 280


# ---- all of them ----

def unpack(root):
    for path in sorted(glob.glob(os.path.join(HERE, '*.tar*'))):
        done = os.path.join(root, os.path.basename(path) + '.done')
        if not os.path.exists(done):
            with tarfile.open(path) as tar:
                tar.extractall(root)
            open(done, 'w').close()


def package_folder(pattern):
    """Where Python's packages of NVIDIA have a library."""
    for path in sys.path:
        found = sorted(glob.glob(os.path.join(path, 'nvidia', '*', 'lib', pattern)))
        if found:
            return os.path.dirname(found[-1])
    return None


def environment(root, mocks):
    env = dict(os.environ, CYTO_SHARED=os.path.join(root, 'shared'), XDG_CACHE_HOME=os.path.join(root, 'cache'),
               PYTHONUNBUFFERED='1', TORCHINDUCTOR_CACHE_DIR=os.path.join(root, 'cache', 'inductor'))
    os.makedirs(env['XDG_CACHE_HOME'], exist_ok=True)
    if mocks:
        folder = os.path.join(root, 'build', 'tests', 'cuda', 'mock')
        env.update(LD_LIBRARY_PATH=folder, CYTO_CUDNN='', CYTO_CUBLASLT='', CY_MOCK_CAPABILITY='80', CY_MOCK_CACHE=os.path.join(root, 'cache', 'mock'))
        os.makedirs(env['CY_MOCK_CACHE'], exist_ok=True)
        return env
    env.setdefault('VIRTUAL_ENV', sys.prefix)
    for variable, names in ('CYTO_CUDNN', ['libcudnn.so.9']), ('CYTO_CUBLASLT', ['libcublasLt.so.13', 'libcublasLt.so.12']):
        folder = next(filter(None, map(package_folder, names)), None)
        if folder:
            env.setdefault(variable, folder)
    return env


class Run:
    def __init__(self, args):
        self.root, self.mocks = os.path.abspath(args.root), args.mocks
        os.makedirs(self.root, exist_ok=True)
        unpack(self.root)
        self.env, self.report = environment(self.root, args.mocks), Report(os.path.abspath(args.out))
        self.jobs = args.jobs or max(1, min(16, os.cpu_count() or 2) - 2)
        self.kernel_seconds, self.network_seconds = args.kernel_seconds, args.network_seconds

    def failures(self):
        try:
            with open(self.report.path, encoding='utf-8') as f:
                return sum('"kind": "failure"' in line for line in f)
        except FileNotFoundError:
            return 0


def wanted_parts(parser, words):
    """{part: names}: those that are named, or of calls that are."""
    wanted = {}
    for word in words:
        name, _, names = word.partition(':')
        chosen = [part for part, _, _, call in PARTS if name in (part, call)]
        if not chosen:
            parser.error("'%s' is neither a call (first, second) nor a part: %s" % (name, ' '.join(part for part, *_ in PARTS)))
        wanted.update((part, [n for n in names.split(',') if n]) for part in chosen)
    return wanted


def run_part(run, name, function, names, deadline):
    start = time.monotonic()
    run.report.log('== %s' % name)
    if deadline - start < 3:
        run.report.part(name, 'no time was left', 0)
        return
    try:
        text = function(run, names, deadline)
    except Exception as problem:  # a part that cannot be had must not cost the others
        text = '%s: %s' % (type(problem).__name__, problem)
        run.report.failure(name, '', text)
    run.report.part(name, text, time.monotonic() - start)


def main():
    begun = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('parts', nargs='*', metavar='PART', help='first, second, or parts')
    parser.add_argument('--seconds', type=float, default=CALL_SECONDS, help='for all parts, with unpacking')
    parser.add_argument('--out', default=os.path.join(HERE, 'results'))
    parser.add_argument('--root', default=os.path.join(HERE, 'unpacked'), help='where the archives are unpacked')
    parser.add_argument('--jobs', type=int, default=0, help='tests at a time')
    parser.add_argument('--kernel-seconds', type=float, default=20, help='for a kernel of `kernels`')
    parser.add_argument('--network-seconds', type=float, default=30, help='for one of `networks`')
    parser.add_argument('--mocks', action='store_true', help='tries it out without a GPU')
    args = parser.parse_args()
    wanted = wanted_parts(parser, args.parts or ['first'])
    end, run = begun + args.seconds, Run(args)
    for name, function, limit, _ in PARTS:
        if name in wanted:
            run_part(run, name, function, wanted[name], min(end, time.monotonic() + limit))
    print('\n'.join(['', *run.report.parts, 'results: %s, %s' % (run.report.path, run.report.log_path)]))


if __name__ == '__main__':
    main()
