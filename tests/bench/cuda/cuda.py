# SPDX-License-Identifier: Apache-2.0
"""Measures compiled models on this machine's CUDA device beside PyTorch, and writes tests/bench/results/RESULTS-cuda.md.

    cuda.py [NAMES] [--out FILE] [--seconds N] [--profile]     measures; FILE gets a JSON object a line, at once
    cuda.py --prepare ARCH [NAMES]                             only writes models and libraries into --work; their
                                                               weights repeat themselves, so that they pack well
    cuda.py --ready [NAMES]                                    measures those: needs neither cytoc nor onnx
    cuda.py --report FILE                                      adds what a FILE has to RESULTS-cuda.md (--results)

In:  --build DIR (cytoc, portable/libcyto.so: `make portable`), the cases of cuda_cases.py, PyTorch where it is
     installed. --small with the mocks of tests/cuda tries it all out without a device.
Out: lines of `kind` "speed" (a contender on a case), "kernel" (--profile: ours beside its floor, and PyTorch's operators
     with the kernels of cuBLAS and cuDNN behind them), "failure". Libraries are compiled side by side, while nothing is
     measured. First all cases are measured beside PyTorch's eager and graphed code, then those of COMPILED beside
     torch.compile. Each is a process of its own, forked where PyTorch is imported already, with a time limit (--limit), so
     that one that hangs costs no other.

Method. Inputs are random and the same for all, in the device's memory, as are the outputs. All contenders of a case run
in one process, on one stream, and take turns; those that PyTorch has to compile come last, beside ours again, so that
what they cost cannot hide the others. `us`: median over the rounds of the time between two events around a run, which
follows on writing 256 MB: neither inputs nor weights are in the second-level cache, and the launch itself is hidden.
`wall_us`: median time from the call until the stream is empty, launched by the host, nothing flushed. Before that each
has run until it is recorded as a CUDA graph (ours on the second run; "torch graph" is PyTorch's eager code captured).
f16 sums in f32 on both sides, TF32 only where the case says so. Clocks are as they were found; they are noted.
"""
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [TESTS, os.path.join(TESTS, 'cuda'), os.path.join(os.path.dirname(TESTS), 'tools')]
import cuda_cases
import cuda_device
import cuda_report
import lib
import mock

FLUSH = 256 << 20  # bytes
COMPILE_SECONDS = 100  # for torch.compile
COMPILED = r'resnet50|vit|bert|unet|gpt2|mobilenet|nerf|softmax|layer_norm|gelu'  # products alone call the same kernels
MODE = 'max-autotune'
DEVICE = os.environ.get('CYTO_TORCH_DEVICE', 'cuda')  # cpu: PyTorch's part is tried out without a device
LEAST_ROUNDS = 7
LEGACY_STREAM = 1  # there runs are not recorded: CUPTI tells the kernels of a graph by themselves only sometimes
FIRST = 10  # cases that are compiled and measured before the rest is compiled


# ---- models ----

def files(args, case):
    """The model and its library."""
    return [os.path.join(args.work, case.name + end) for end in ('.onnx', '.so')]


def compile_case(args, case, arch):
    """None, or why there is no library. Beside it lies what --explain printed."""
    model, library = files(args, case)
    if os.path.exists(library) and (args.ready or os.path.getmtime(library) > os.path.getmtime(args.cytoc)):
        return None
    if args.ready:
        return 'there is no %s' % library
    try:
        why = None if os.path.exists(model) else case.write(model, bool(args.prepare))
    except Exception as problem:
        why = '%s: %s' % (type(problem).__name__, problem)
    if why:
        return why
    command = [args.cytoc, model, '-o', library, '--target=' + arch, '--explain', *case.options]
    code, text, err = lib.run(command, args.limit, env=mock.compiling(args.env))
    with open(library + '.txt', 'w', encoding='utf-8') as f:
        f.write(text)
    return 'compile: ' + lib.reason(err, code) if code else None


# ---- one case, in a process of its own ----

def feeds_of(case, path):
    """[(name, ONNX's type, array)]; bf16 as bits."""
    import bench_common
    if case.network:
        model = load_model(path)
        kinds = {p.name: bench_common.port_type(p)[0] for p in model.graph.input}
        return [(name, kinds[name], array) for name, array in bench_common.feeds_of(model, 1, {}).items()]
    rng, feeds = np.random.default_rng(1), []
    for name, kind, shape in case.inputs:
        block = rng.standard_normal(min(int(np.prod(shape)), 1 << 22), dtype=np.float32) * np.float32(case.scale)
        array = np.resize(block, shape)  # large ones repeat it
        array = (array.view(np.uint32) >> 16).astype(np.uint16) if kind == 'bf16' else array.astype(
            np.float16 if kind == 'f16' else np.float32)
        feeds.append((name, cuda_cases.TYPES[kind], array))
    return feeds


def load_model(path):
    try:
        from onnx import load
    except ImportError:
        from bench_onnx import load
    return cuda_cases.fill(load(path))


class Bench:
    """The contenders of a case, and what was measured of them."""

    def __init__(self, args, case):
        self.args, self.case = args, case
        self.driver = cuda_device.Driver()
        self.torch = import_torch(case)
        self.torch_stream = self.torch.cuda.Stream() if self.torch and DEVICE == 'cuda' else None
        self.stream = self.torch_stream.cuda_stream if self.torch_stream else self.driver.stream()
        self.feeds = feeds_of(case, files(args, case)[0])
        self.tensors = [as_torch(self.torch, kind, array) for _, kind, array in self.feeds] if self.torch else []
        self.at = [t.data_ptr() for t in self.tensors] if self.torch_stream else [
            self.driver.upload(array) for _, _, array in self.feeds]
        self.contenders, self.outputs = {}, {}
        self.flush_bytes = 1 << 12 if args.small else FLUSH
        self.flush = self.driver.alloc(self.flush_bytes) if self.driver.has('cuMemsetD8Async') else None

    def fail(self, contender, problem):
        text = str(problem).strip().splitlines() or ['']
        say({'kind': 'failure', 'case': self.case.name, 'contender': contender,
             'why': ('%s: %s' % (type(problem).__name__, text[0]))[:600]})

    def add_ours(self, variant):
        library = files(self.args, self.case)[1]
        theirs = {name: os.environ.get(name) for name in ('CYTO_CUDNN', 'CYTO_CUBLASLT')}
        if 'own kernels alone' in variant:
            os.environ.update(dict.fromkeys(theirs, ''))
        try:
            model = cuda_device.Model(self.driver, os.path.join(self.args.build, 'portable', 'libcyto.so'), library, self.stream)
        finally:
            for name, value in theirs.items():
                os.environ.pop(name, None)
                os.environ.update({name: value} if value is not None else {})
        for at, (name, kind, array) in zip(self.at, self.feeds):
            model.bind(name, kind, array.shape, at)
        outputs = model.bind_outputs()
        for _ in range(3):  # the first may choose, the second is recorded, the third replays it
            model.run()
            self.driver.wait(self.stream)
        self.contenders[variant], self.outputs[variant] = model.run, outputs[0]
        say({'kind': 'about', 'case': self.case.name, 'contender': variant, 'text': model.about()})

    def add_torch(self, mode):
        """mode: eager, graph, or a mode of torch.compile."""
        torch = self.torch
        import bench_torch
        inputs = self.tensors
        if self.case.network:
            arrays = {name: array for name, _, array in self.feeds}
            module, inputs = bench_torch.build(load_model(files(self.args, self.case)[0]), arrays, DEVICE)
        else:
            def module(*x):
                return self.case.torch(torch, *x)
        run = module
        if mode == 'graph':
            run = bench_torch.graphed(module, inputs)
        elif mode != 'eager':
            run = torch.compile(module, mode=mode)
        for _ in range(5):
            out = run(*inputs)
            synchronize(torch)
        self.outputs['torch ' + mode] = first(out).clone()
        self.contenders['torch ' + mode] = lambda: run(*inputs)

    def rounds(self, names, seconds):
        """{name: (times by events, times by the clock)}; who goes first changes."""
        times, end, k = {name: ([], []) for name in names}, time.monotonic() + seconds, 0
        while names and (time.monotonic() < end or k < LEAST_ROUNDS) and k < 400:
            for name in names[k % len(names):] + names[:k % len(names)]:
                if self.flush:
                    self.driver.fill(self.flush, k & 255, self.flush_bytes, self.stream)
                times[name][0].append(self.driver.timed(self.contenders[name], self.stream))
                self.driver.wait(self.stream)
                start = time.perf_counter()
                self.contenders[name]()
                self.driver.wait(self.stream)
                times[name][1].append((time.perf_counter() - start) * 1e6)
            k += 1
        return times

    def error_of(self, name, base):
        """Relative RMS difference of a contender's first output from PyTorch's eager one's."""
        if base is None or name not in self.outputs:
            return None
        out = self.outputs[name]
        if isinstance(out, tuple):
            got = self.driver.download(out[0], out[1], self.stream)
            got = got.view(np.uint16) if out[2] == cuda_cases.TYPES['bf16'] else got.view(
                np.float16 if out[2] == cuda_cases.TYPES['f16'] else np.float32)
            got = (got.astype(np.uint32) << 16).view(np.float32) if out[2] == cuda_cases.TYPES['bf16'] else got
        else:
            got = out.float().cpu().contiguous().numpy()
        return lib.rel_rms(got, base.float().cpu().contiguous().numpy())

    def measure(self, names, part):
        names = [n for n in names if n in self.contenders]
        base = self.outputs.get('torch eager')
        before = clocks()
        for name, (us, wall) in self.rounds(names, self.args.round_seconds).items():
            say({'kind': 'speed', 'case': self.case.name, 'part': part, 'contender': name, 'us': median(us),
                 'min_us': min(us), 'wall_us': median(wall), 'rounds': len(us), 'error': self.error_of(name, base), 'flop': self.case.flop,
                 'bytes': self.case.bytes, 'launches': self.case.launches, 'flushed': bool(self.flush),
                 'clocks': [before, clocks()]})

    def must_have(self, name):
        """A case without ours has failed, whatever else was measured."""
        if name not in self.contenders:
            raise cuda_device.Error('%s did not run' % name)

    def attempt(self, name, add, *arguments):
        try:
            add(*arguments)
        except Exception as problem:
            self.fail(name, problem)

    def add_copy(self):
        """What the device's memory allows: as many bytes read and written."""
        size = self.case.bytes // 2
        to, at = self.driver.alloc(size), self.driver.alloc(size)
        self.contenders['copy'] = lambda: self.driver.copy(to, at, size, self.stream)


def import_torch(case):
    if not has_torch():
        return None
    import torch
    if DEVICE == 'cuda' and not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = case.tf32
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.set_grad_enabled(False)
    torch.zeros(1, device=DEVICE)
    return torch


def synchronize(torch):
    if DEVICE == 'cuda':
        torch.cuda.synchronize()


def as_torch(torch, kind, array):
    tensor = torch.from_numpy(array.view(np.int16) if kind == cuda_cases.TYPES['bf16'] else array).to(DEVICE)
    return tensor.view(torch.bfloat16) if kind == cuda_cases.TYPES['bf16'] else tensor


def first(out):
    return out[0] if isinstance(out, (tuple, list)) else out


def median(values):
    return sorted(values)[len(values) // 2]


def clocks():
    """MHz of the multiprocessors and of the memory, degrees, watts, as nvidia-smi has them."""
    try:
        p = subprocess.run(['nvidia-smi', '--query-gpu=clocks.sm,clocks.mem,temperature.gpu,power.draw',
                            '--format=csv,noheader,nounits', '-i', '0'], capture_output=True, text=True, timeout=10)
        return p.stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ''


def say(row):
    print(json.dumps(row), flush=True)


def backends(case):
    """PyTorch's ways to do attention, by name."""
    return ['FLASH_ATTENTION', 'CUDNN_ATTENTION'] if case.name.startswith('attention') else []


def add_backend(bench, name):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    torch, case = bench.torch, bench.case
    choice = getattr(SDPBackend, name)

    def run():
        with sdpa_kernel(choice):
            return case.torch(torch, *bench.tensors)
    for _ in range(3):
        out = run()
    synchronize(torch)
    bench.outputs['torch ' + name.lower()] = out.clone()
    bench.contenders['torch ' + name.lower()] = run


def no_end(*_):
    raise TimeoutError('no end after %d s' % COMPILE_SECONDS)


def torch_stream(bench):
    return bench.torch.cuda.stream(bench.torch_stream) if bench.torch_stream else contextlib.nullcontext()


def measure_first(args, case):
    bench = Bench(args, case)
    for variant in case.variants():
        bench.attempt(variant, bench.add_ours, variant)
    if case.bytes and not case.flop and bench.driver.has('cuMemcpyDtoDAsync_v2'):
        bench.attempt('copy', bench.add_copy)
    if not bench.torch:
        bench.measure(list(bench.contenders), 'first')
        return bench.must_have('cytoc')
    with torch_stream(bench):
        for mode in ('eager', 'graph'):
            bench.attempt('torch ' + mode, bench.add_torch, mode)
        for name in backends(case):
            bench.attempt('torch ' + name.lower(), add_backend, bench, name)
        bench.measure(list(bench.contenders), 'first')
    bench.must_have('cytoc')


def measure_compiled(args, case):
    """torch.compile, beside ours again."""
    bench = Bench(args, case)
    if not bench.torch:
        raise cuda_device.Error('there is no PyTorch to compile with')
    with torch_stream(bench):
        signal.signal(signal.SIGALRM, no_end)
        signal.alarm(COMPILE_SECONDS)
        bench.attempt('torch ' + MODE, bench.add_torch, MODE)
        signal.alarm(0)
        bench.attempt('cytoc', bench.add_ours, 'cytoc')
        bench.attempt('torch eager', bench.add_torch, 'eager')
        if 'torch ' + MODE in bench.contenders:
            bench.measure(list(bench.contenders), 'compiled')


PROFILED_RUNS = 10


def profiled(bench, run):
    """torch.profiler's record of some runs."""
    torch = bench.torch
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA], record_shapes=True) as profile:
        for _ in range(PROFILED_RUNS):
            run()
        bench.driver.wait(bench.stream)
        synchronize(torch)
    return profile


def profile_ours(args, case):
    """Mean time of each of our kernels in a run, by CUPTI through PyTorch, beside the floors of --explain."""
    bench = Bench(args, case)
    if not bench.torch:
        raise cuda_device.Error('profiles need PyTorch')
    bench.stream = LEGACY_STREAM
    bench.add_ours('cytoc')
    library, us = files(args, case)[1], {}
    trace = library + '.trace.json'
    profiled(bench, bench.contenders['cytoc']).export_chrome_trace(trace)
    with open(trace, encoding='utf-8') as f:
        for event in json.load(f)['traceEvents']:
            if event.get('cat') in ('kernel', 'gpu_memcpy', 'gpu_memset'):
                us[event['name']] = us.get(event['name'], 0.0) + event['dur'] / PROFILED_RUNS
    with open(library + '.txt', encoding='utf-8') as f:
        floors = cuda_report.explained(f.read())
    for name, time_us in sorted(us.items(), key=lambda row: -row[1]):
        kernel = name[:-4] if name.endswith('_tma') else name  # by tensor maps, in place of the one beside it
        say({'kind': 'kernel', 'case': case.name, 'contender': 'cytoc', 'name': name, 'us': time_us, **floors.get(kernel, {})})


def profile_torch(args, case):
    """The same of PyTorch's eager code: an operator with the shapes of its operands, and the time of its kernels, which are
    cuBLAS's and cuDNN's where it multiplies."""
    bench = Bench(args, case)
    with torch_stream(bench):
        bench.add_torch('eager')
        rows = profiled(bench, bench.contenders['torch eager']).key_averages(group_by_input_shape=True)
    for row in sorted(rows, key=lambda row: -getattr(row, 'self_device_time_total', 0)):
        us = getattr(row, 'self_device_time_total', 0) / PROFILED_RUNS
        if us > 0:
            say({'kind': 'kernel', 'case': case.name, 'contender': 'torch eager', 'name': row.key, 'us': us, 'runs': row.count // PROFILED_RUNS,
                 'algorithm': ' '.join('x'.join(map(str, shape)) for shape in row.input_shapes if shape)})


def profile_case(args, case):
    profile_ours(args, case)
    profile_torch(args, case)


# ---- all of them ----

def last_line(path):
    with open(path, encoding='utf-8', errors='replace') as f:
        return (f.read().strip().splitlines() or [''])[-1][:400]


def forked(args, work):
    """A process that does work() with its output in the file of results."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        for descriptor, path in ((1, args.out), (2, args.out + '.log')):
            os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644), descriptor)
        work()
        code = 0
    except cuda_device.Error as problem:
        say({'kind': 'failure', 'case': args.at, 'contender': '', 'why': str(problem)})
        code = 3
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait_for(pid, seconds):
    """Its status; None: it was still at it, and was ended."""
    end, status = time.monotonic() + seconds, None
    while status is None and time.monotonic() < end:
        found, code = os.waitpid(pid, os.WNOHANG)
        status = code if found else None
        if status is None:
            time.sleep(0.02)
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    for _ in range(1000 if status is None else 0):  # the driver may not let go of it
        if os.waitpid(pid, os.WNOHANG)[0]:
            break
        time.sleep(0.02)
    return status


def measure_apart(args, case, measure):
    """None, or how the process of this case ended."""
    args.at = case.name
    with open(args.out + '.log', 'a', encoding='utf-8') as log:
        log.write('== %s %s\n' % (case.name, measure.__name__))
    limit = max(args.limit, COMPILE_SECONDS + 20) if measure is measure_compiled else args.limit
    status = wait_for(forked(args, lambda: measure(args, case)), min(limit, max(5, args.end - time.monotonic())))
    if status is None:
        return 'no end in time'
    if os.WIFSIGNALED(status):
        return 'ended by signal %d' % os.WTERMSIG(status)
    return 'exit code %d: %s' % (os.WEXITSTATUS(status), last_line(args.out + '.log')) if status else None


def arch_of_device(args):
    code = 'import cuda_device; print(cuda_device.Driver().arch())'
    _, text, err = lib.run([sys.executable, '-c', code], 60, env=dict(args.env, PYTHONPATH=HERE))
    return text.strip() or sys.exit(err.strip() or 'no device')


def measure_all(args, cases):
    arch = arch_of_device(args) if args.device else 'sm_80'
    append(args, {'kind': 'machine', 'date': time.strftime('%Y-%m-%d', time.gmtime()), 'arch': arch, 'clocks': clocks(),
                  'profile': args.profile, **machine(args)})
    torch = has_torch()  # imported here, so that those that are forked have it; they alone may touch the device
    if args.profile:
        return measure_group(args, cases, arch, profile_case, 'kernel', None)
    failed = 0
    for group in (cases[:FIRST], cases[FIRST:]):
        failed += measure_group(args, group, arch, measure_first, 'speed', 'first')
    if torch:
        measure_group(args, [c for c in cases if re.search(COMPILED, c.name)], arch, measure_compiled, 'speed', 'compiled')
    return failed


def has_torch():
    try:
        import torch
        return hasattr(torch, 'Tensor')  # else it is the folder of tests/
    except ImportError:
        return False


def measure_group(args, cases, arch, measure, kind, part):
    """How many failed. What the file of results has already is left out with --resume."""
    done = {row.get('case') for row in cuda_report.read(args.out) if row.get('kind') == kind and row.get('part') == part} \
        if args.resume else ()
    cases, failed = [case for case in cases if case.name not in done], 0
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2)) as pool:
        reasons = list(pool.map(lambda case: compile_case(args, case, arch), cases))
    for case, why in zip(cases, reasons):
        if not why and time.monotonic() > args.end:
            why = 'no time was left'
        why = why or measure_apart(args, case, measure)
        if why:
            append(args, {'kind': 'failure', 'case': case.name, 'contender': part or '', 'why': why})
        failed += bool(why)
        print('%-28s %-10s %s' % (case.name, part or kind, why or 'ok'), flush=True)
    return failed


def prepare(args, cases):
    """Models and libraries; those that cannot be had are named."""
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2)) as pool:
        reasons = list(pool.map(lambda case: compile_case(args, case, args.prepare), cases))
    for case, why in zip(cases, reasons):
        if why:
            print('FAILED %s: %s' % (case.name, why), flush=True)
    return sum(why is not None for why in reasons)


def machine(args):
    code = 'import torch; print("PyTorch", torch.__version__, "cuDNN", torch.backends.cudnn.version())'
    _, text, err = lib.run([sys.executable, '-c', code], 120, env=args.env)
    code, driver, _ = lib.run(['nvidia-smi', '--query-gpu=name,driver_version', '--format=csv,noheader'], 20) \
        if any(os.access(os.path.join(p, 'nvidia-smi'), os.X_OK) for p in os.environ['PATH'].split(':')) else (1, '', '')
    return {'torch': text.strip() or (err.strip().splitlines() or ['no PyTorch'])[-1], 'device': driver.strip() or '?'}


def append(args, row):
    with open(args.out, 'a', encoding='utf-8') as f:
        f.write(json.dumps(row) + '\n')


def main():
    args = lib.arguments(__doc__, out={'default': 'build/cuda-speed.jsonl'}, seconds={'type': float, 'default': 3600},
                         limit={'type': float, 'default': 240}, work={'default': 'build/cuda-speed'},
                         small={'action': 'store_true'}, profile={'action': 'store_true'}, report={}, prepare={'metavar': 'ARCH'},
                         ready={'action': 'store_true', 'help': 'libraries lie in --work already'},
                         resume={'action': 'store_true', 'help': 'without cases that the file has'},
                         device={'action': 'store_true', 'help': 'a device, not the mocks of tests/cuda'},
                         results={'default': os.path.join(os.path.dirname(HERE), 'results', 'RESULTS-cuda.md')},
                         **{'round-seconds': {'type': float, 'default': 1.5}})
    args.end = time.monotonic() + args.seconds
    args.env = mock.environment(args)
    if args.report:
        sys.exit(cuda_report.write(args.report, args.results))
    if args.env.get('LD_LIBRARY_PATH') != os.environ.get('LD_LIBRARY_PATH'):  # read when a process begins
        os.execve(sys.executable, [sys.executable, *sys.argv], args.env)
    args.out, args.work = os.path.abspath(args.out), os.path.abspath(args.work)
    os.makedirs(args.work, exist_ok=True)
    cases = cuda_cases.all_cases(args.small)
    cases = [c for c in cases if args.wanted(c.name)]
    failed = prepare(args, cases) if args.prepare else measure_all(args, cases)
    print('%d passed, %d failed, 0 skipped' % (len(cases) - failed, failed))
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
