# SPDX-License-Identifier: Apache-2.0
"""Tests and measures CUDA on a machine with a GPU and no build tools: what carry.py packed, and this program, lie in a
folder.

    python3 run.py [PART[:NAME,..] ..] [--seconds N] [--out DIR]

In:  the archives beside this file, unpacked on the first call; Python 3.9 with numpy and onnx, the NVIDIA driver, NVRTC
     (pip's or a toolkit's), ld. onnxruntime for `networks`; PyTorch for comparisons and `profile`.
Out: DIR/results.jsonl, a JSON object a line, written at once (tests/bench/cuda.py --report makes Markdown of it);
     DIR/log.txt, all that was printed; a short table last. Further calls add to them.

Parts run in this order, unless some are named, each under its own limit and all under --seconds. What hangs or crashes
costs its own limit: every kernel (`kernels` goes on behind it), every network, node test and case of `speed` has one.
Names restrict a part: `nodes:test_conv.*`, `networks:resnet`, `speed:attention,resnet50`, `kernels:matmul`.
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
LOAD_SECONDS = 200  # until the first kernel is about to run: where none came compiled, NVRTC compiles all of them
PROFILED = ['resnet50_batch16', 'resnet50_batch1', 'vit_b_16', 'bert_base', 'attention_128_2048$', 'attention_64_2048$',
            'matmul_4096_f16', 'layer_norm', 'softmax', 'transpose']


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

def about(run, names, deadline):
    """What there is."""
    for command in (['nvidia-smi'], ['uname', '-a'], ['ld', '--version'], ['cc', '--version'], ['nvcc', '--version'],
                    [sys.executable, '-c', 'import sys, numpy, onnx; print(sys.version, numpy.__version__, onnx.__version__)'],
                    [sys.executable, '-c', 'import onnxruntime; print(onnxruntime.__version__)'],
                    [os.path.join(run.root, 'build', 'cytoc'), '--version']):
        try:
            p = subprocess.run(command, capture_output=True, text=True, timeout=20, env=run.env)
            run.report.log('$ %s\n%s' % (' '.join(command), (p.stdout + p.stderr)[:4000].rstrip()))
        except (OSError, subprocess.TimeoutExpired) as problem:
            run.report.log('$ %s\n%s' % (' '.join(command), problem))
    found = ', '.join('%s=%s' % (k, run.env[k]) for k in ('CYTO_NVRTC', 'CYTO_CUDNN', 'VIRTUAL_ENV') if k in run.env)
    return found or 'neither NVRTC nor cuDNN was found in Python packages'


def trace_kernels(run, command, start, deadline):
    """One process from kernel `start` on: (the kernel to go on with or None, how many were right, lines of the end)."""
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
                    run.report.failure('kernel', '%d %s' % case, '; '.join(text))
                right += match[1] == 'right'
                start, case, text = int(match[2]) + 1, None, []
    except TimeoutError:
        why = 'the time of this part was over' if time.monotonic() > deadline else 'no end after %d s' % run.kernel_seconds
        lines.p.kill()
    ended = lines.end()
    if case:
        run.report.failure('kernel', '%d %s' % case, '; '.join(text + [why or ended or 'it ended the process']))
        return case[0] + 1, right, text
    return (start if ended == 'exit code 3' else None), right, text + ([why] if why else [])


def kernels(run, names, deadline):
    """Each kernel of kernel_cases.h against the interpreter."""
    program = [os.path.join(run.root, 'build', 'tests', 'cuda', 'device_test')]
    images = os.path.join(run.root, 'build', 'tests', 'cuda', 'images')
    ways = ([['--load', images]] if os.path.isdir(images) else []) + [[]]
    only = ['--only', names[0]] if names else []
    shards = 1 if run.mocks else min(run.jobs, 8)
    for way in ways:
        begun = run.failures()
        commands = [program + way + only + ['--shard', '%d/%d' % (k, shards)] for k in range(shards)]
        with ThreadPoolExecutor(shards) as pool:
            ended = list(pool.map(lambda command: trace_shard(run, command, deadline), commands))
        total, wrong = sum(right for right, _, _ in ended), run.failures() - begun
        run.report.log('\n'.join(text for _, text, _ in ended))
        if total or wrong:
            break
        run.report.failure('kernels', ' '.join(way), ended[0][1])
    return '%d right, %d wrong%s' % (total, wrong, '' if all(whole for _, _, whole in ended) else '; not all ran')


def trace_shard(run, command, deadline):
    """(how many were right, lines of the end, whether all ran)"""
    start, total, text = 0, 0, []
    for _ in range(MOST_RESTARTS):
        start, right, text = trace_kernels(run, command, start, deadline)
        total += right
        if start is None or time.monotonic() > deadline:
            break
    return total, '; '.join(text), start is None


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


def target(run):
    """Options that spare compiling for other architectures than the device's."""
    code = 'import cuda_device; print(cuda_device.Driver().arch())'
    p = subprocess.run([sys.executable, '-c', code], env=dict(run.env, PYTHONPATH=os.path.join(run.root, 'tests', 'bench')),
                       capture_output=True, text=True, timeout=60)
    if p.returncode:
        run.report.log(p.stderr.strip())
    return ['--target', p.stdout.strip()] if p.stdout.startswith('sm_') else []


def networks(run, names, deadline):
    """Small networks beside ONNX Runtime."""
    command = python(run, 'tests/cuda/networks.py', '--jobs', run.jobs, '--limit', 120, *target(run), *names)
    return suite(run, 'networks', command, deadline)


def nodes(run, names, deadline):
    """The ONNX standard's node tests."""
    return suite(run, 'nodes', python(run, 'tests/cuda/nodes.py', '--jobs', run.jobs, *target(run), *names), deadline)


def measure(run, names, deadline, *options):
    small = ['--small', '--round-seconds', '0.01'] if run.mocks else []
    return suite(run, 'speed', python(run, 'tests/bench/cuda.py', '--resume', '--out', run.report.path, '--seconds',
                                      max(5, deadline - time.monotonic() - 10), *options, *small, *names), deadline)


def speed(run, names, deadline):
    """Kernels and networks beside PyTorch."""
    return measure(run, names, deadline)


def profile(run, names, deadline):
    """Kernels of networks beside their floors."""
    return measure(run, names or PROFILED, deadline, '--profile')


PARTS = [  # name, function, limit in seconds
    ('about', about, 60),
    ('kernels', kernels, 240),
    ('nodes', nodes, 200),
    ('networks', networks, 300),
    ('speed', speed, 560),
    ('profile', profile, 300),
]


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
        env.update(CUDA_HOME=folder, LD_LIBRARY_PATH=folder, CYTO_CUDNN='', CY_MOCK_CAPABILITY='80')
        return env
    env.setdefault('VIRTUAL_ENV', sys.prefix)
    for name, pattern in (('CYTO_NVRTC', 'libnvrtc.so.1[23]'), ('CYTO_CUDNN', 'libcudnn.so.9')):
        folder = package_folder(pattern)
        if folder:
            env.setdefault(name, folder)
    return env


class Run:
    def __init__(self, args):
        self.root, self.mocks = os.path.abspath(args.root), args.mocks
        os.makedirs(self.root, exist_ok=True)
        unpack(self.root)
        self.env, self.report = environment(self.root, args.mocks), Report(os.path.abspath(args.out))
        self.jobs = args.jobs or max(1, min(16, os.cpu_count() or 2) - 2)
        self.kernel_seconds = args.kernel_seconds

    def failures(self):
        try:
            with open(self.report.path, encoding='utf-8') as f:
                return sum('"kind": "failure"' in line for line in f)
        except FileNotFoundError:
            return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('parts', nargs='*', metavar='PART')
    parser.add_argument('--seconds', type=float, default=580, help='for all parts')
    parser.add_argument('--out', default=os.path.join(HERE, 'results'))
    parser.add_argument('--root', default=os.path.join(HERE, 'unpacked'), help='where the archives are unpacked')
    parser.add_argument('--jobs', type=int, default=0, help='compilations and tests at a time')
    parser.add_argument('--kernel-seconds', type=float, default=20, help='for a kernel of `kernels`')
    parser.add_argument('--mocks', action='store_true', help='tries it out without a GPU')
    args = parser.parse_args()
    wanted = dict((p.split(':', 1) + [''])[:2] for p in args.parts)
    known = [name for name, _, _ in PARTS]
    if set(wanted) - set(known):
        parser.error('parts are: ' + ' '.join(known))
    end, run = time.monotonic() + args.seconds, Run(args)
    for name, function, limit in PARTS:
        if wanted and name not in wanted:
            continue
        start = time.monotonic()
        run.report.log('== %s' % name)
        if end - start < 5:
            run.report.part(name, 'no time was left', 0)
            continue
        try:
            text = function(run, [n for n in wanted.get(name, '').split(',') if n], min(end, start + limit))
        except Exception as problem:  # a part that cannot be had must not cost the others
            text = '%s: %s' % (type(problem).__name__, problem)
            run.report.failure(name, '', text)
        run.report.part(name, text, time.monotonic() - start)
    shutil.rmtree(os.path.join(run.root, 'build', 'cuda-networks'), ignore_errors=True)
    print('\n'.join(['', *run.report.parts, 'results: %s, %s' % (run.report.path, run.report.log_path)]))


if __name__ == '__main__':
    main()
