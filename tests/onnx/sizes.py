# SPDX-License-Identifier: Apache-2.0
"""Every size on every axis: node tests' models with symbolic dims, run with 0, 1, 2, odd and huge sizes between forbidden
pages, against ONNX Runtime.

In:  the tests that tests/onnx/run.py lists as passing, whose tensors are of NumPy's number types, and the small networks
     below; build/cytoc, build/tests/guard_run. --every N takes each Nth (1: all, as with sanitizers) in place of what
     `make check` has time for, --part K/N the Kth of N parts of those; --only NAME,..: some of the configurations below (f32,
     eager, f16, int8, cuda).
Out: the closing line; build/onnx-tests/sizes-*.txt with every difference; how many cases wanted more memory than there is.

A model is compiled once, with a symbol of its own for every axis of every input (integer lists, as of shapes and axes,
keep their length), and run at many sizes; its values repeat those of the test's data. A case passes when
- no forbidden page is touched (guard_run.c), there is no other signal, and it ends in time,
- the values are ONNX Runtime's, and there is an error where that has one (but for outputs without elements).
sizes-differ.txt says where the second is not so, and why, and what does not end in time; without a reference (ONNX Runtime has
no such kernel, or crashes itself) only the first counts. A model that cannot be compiled like this counts as skipped.

With sanitizers a case has less memory (guard_run.c) and three times the time; with these, and on the mock of CUDA's driver, which
fills memory and runs one thread after the other, one with a size of 2^31 or 2^40 that does not end in time is counted, and is no
failure.
"""
import fnmatch
import os
import re
import resource
import select
import signal
import shutil
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import lib
import run as nodes

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHUNK = 60
MOST = 1 << 16            # elements of an input
HUGE = [(1 << 31) + 3, 1 << 40]
REPORT = r'Sanitizer|: runtime error: '
NO_MEMORY = 'no (device )?memory'
DTYPES = {TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64, TensorProto.FLOAT16: np.float16,
          TensorProto.INT8: np.int8, TensorProto.INT16: np.int16, TensorProto.INT32: np.int32,
          TensorProto.INT64: np.int64, TensorProto.UINT8: np.uint8, TensorProto.UINT16: np.uint16,
          TensorProto.UINT32: np.uint32, TensorProto.UINT64: np.uint64, TensorProto.BOOL: np.bool_}
CODES = {np.dtype(v): k for k, v in DTYPES.items()}


# ---- files of guard_run.c ----

class Hollow:
    """A tensor without elements that NumPy thinks too large."""

    def __init__(self, shape, dtype):
        self.shape, self.dtype, self.ndim, self.size = tuple(shape), np.dtype(dtype), len(shape), 0


def is_hollow(shape, dtype):
    return 0 in shape and np.prod([d or 1 for d in shape], dtype=object) * dtype.itemsize >= 1 << 62


def write_tensors(path, arrays):
    with open(path, 'wb') as f:
        f.write(struct.pack('<i', len(arrays)))
        for a in arrays:
            if a is None:
                f.write(struct.pack('<ii', 0, 0))
                continue
            f.write(struct.pack('<ii%dq' % a.ndim, CODES[a.dtype], a.ndim, *a.shape))
            if not isinstance(a, Hollow):
                f.write(np.ascontiguousarray(a).tobytes())


def read_tensors(path):
    with open(path, 'rb') as f:
        out = []
        for _ in range(struct.unpack('<i', f.read(4))[0]):
            code, rank = struct.unpack('<ii', f.read(8))
            if not code:
                out.append(None)
                continue
            shape = struct.unpack('<%dq' % rank, f.read(8 * rank))
            dtype = np.dtype(DTYPES[code])
            if is_hollow(shape, dtype):
                out.append(Hollow(shape, dtype))
                continue
            count = 0 if 0 in shape else int(np.prod(shape, dtype=object))
            out.append(np.frombuffer(f.read(count * dtype.itemsize), dtype).reshape(shape))
    return out


# ---- models ----

def is_list(value):
    """Shapes, axes and the like: how many there are decides a rank."""
    return value.dtype.kind in 'iu' and value.ndim == 1 and value.size <= 8 and value.dtype.itemsize == 8


# Which axes (of input i, axis a of a tensor of rank r) are symbols: the first way that can be compiled is taken. Layers
# with weights want to know how many channels there are.
WAYS = [lambda i, a, r: True, lambda i, a, r: a < r - 1, lambda i, a, r: i == 0, lambda i, a, r: i == 0 and a < r - 1,
        lambda i, a, r: i == 0 and a != 1, lambda i, a, r: a == 0]


def free_axes(values, way):
    return [(i, a) for i, v in enumerate(values) if v is not None and not is_list(v) for a in range(v.ndim)
            if way(i, a, v.ndim)]


def make_symbolic(model, values, way):
    """Fresh symbols for the free axes, nothing declared about what follows."""
    graph = model.graph
    constant = {t.name for t in graph.initializer}
    inputs = [v for v in graph.input if v.name not in constant]
    free = set(free_axes(values, way))
    for i, (info, value) in enumerate(zip(inputs, values)):
        if value is None or is_list(value):
            continue
        del info.type.tensor_type.shape.dim[:]
        for axis in range(value.ndim):
            dim = info.type.tensor_type.shape.dim.add()
            if (i, axis) in free:
                dim.dim_param = 's%d_%d' % (i, axis)
            else:
                dim.dim_value = value.shape[axis]
    del graph.value_info[:]
    for info in graph.output:
        rank = len(info.type.tensor_type.shape.dim)
        if info.type.tensor_type.HasField('shape'):
            del info.type.tensor_type.shape.dim[:]
            for axis in range(rank):
                info.type.tensor_type.shape.dim.add().dim_param = 'o%s_%d' % (info.name, axis)
    return inputs


def node_case(row):
    """(model, values) of a node test, or None where it has other things than tensors of numbers."""
    name, folder, number, _, _, ins, outs = row
    if set(ins) - {'t'} or set(outs) - {'t'}:
        return None
    model = onnx.load(os.path.join(folder, 'model.onnx'))
    values = []
    for k in range(len(ins)):
        with open('%s/test_data_set_%s/input_%d.pb' % (folder, number, k), 'rb') as f:
            t = onnx.TensorProto.FromString(f.read())
        if t.data_type not in DTYPES:
            return None
        values.append(numpy_helper.to_array(t))
    if not values or any(v.type.tensor_type.elem_type not in DTYPES for v in model.graph.output):
        return None
    return model, values


def network(name, nodes_, inputs, outputs, weights=()):
    graph = helper.make_graph(
        nodes_, name, [helper.make_tensor_value_info(k, CODES[v.dtype], v.shape) for k, v in inputs.items()],
        [helper.make_tensor_value_info(k, t, [None] * r) for k, (t, r) in outputs.items()],
        [numpy_helper.from_array(v, k) for k, v in weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 18)], ir_version=8)
    return model, list(inputs.values())


def networks():
    """{name: (model, values)} of what node tests do not have: several layers that read each other's sizes."""
    rng = np.random.default_rng(3)
    N, F, I = helper.make_node, TensorProto.FLOAT, TensorProto.INT64

    def real(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    unet = [N('Conv', ['x', 'w1'], ['a'], pads=[1, 1, 1, 1]), N('Relu', ['a'], ['b']),
            N('MaxPool', ['b'], ['c'], kernel_shape=[2, 2], strides=[2, 2]),
            N('Conv', ['c', 'w2'], ['d'], pads=[1, 1, 1, 1]), N('MaxPool', ['d'], ['e'], kernel_shape=[2, 2], strides=[2, 2]),
            N('Shape', ['c'], ['cs']), N('Slice', ['cs', 'two', 'four'], ['hw']), N('Shape', ['e'], ['es']),
            N('Slice', ['es', 'zero', 'two'], ['nc']), N('Concat', ['nc', 'hw'], ['size'], axis=0),
            N('Resize', ['e', '', '', 'size'], ['f'], mode='linear'), N('Concat', ['f', 'c'], ['g'], axis=1),
            N('ConvTranspose', ['g', 'w3'], ['y'], strides=[2, 2])]
    unet_weights = [('w1', real(8, 3, 3, 3)), ('w2', real(16, 8, 3, 3)), ('w3', real(24, 2, 2, 2)),
                    ('zero', np.array([0])), ('two', np.array([2])), ('four', np.array([4]))]
    head = [N('Gather', ['table', 'ids'], ['a']), N('Add', ['a', 'x'], ['b']),
            N('LayerNormalization', ['b', 'ones'], ['c']), N('MatMul', ['c', 'wq'], ['q']), N('MatMul', ['c', 'wk'], ['k']),
            N('Transpose', ['k'], ['kt'], perm=[0, 2, 1]), N('MatMul', ['q', 'kt'], ['s']), N('Softmax', ['s'], ['p']),
            N('MatMul', ['p', 'c'], ['o']), N('ReduceMean', ['o', 'axis'], ['y'], keepdims=0)]
    head_weights = [('table', real(11, 16)), ('ones', np.ones(16, np.float32)), ('wq', real(16, 16)), ('wk', real(16, 16)),
                    ('axis', np.array([1]))]
    rows = [N('LSTM', ['x', 'w', 'r'], ['h', 'last'], hidden_size=5), N('Squeeze', ['h', 'one'], ['s']),
            N('Pad', ['s', 'pads'], ['t'], mode='reflect'), N('TopK', ['t', 'k'], ['v', 'i'], axis=0),
            N('CumSum', ['v', 'axis'], ['y'])]
    rows_weights = [('w', real(1, 20, 4)), ('r', real(1, 20, 5)), ('one', np.array([1])), ('pads', np.array([2, 0, 0, 1, 0, 0])),
                    ('k', np.array([2])), ('axis', np.array(0))]
    return {
        'network_unet': network('unet', unet, {'x': real(1, 3, 12, 20)}, {'y': (F, 4)}, unet_weights),
        'network_attention': network('attention', head, {'ids': rng.integers(-11, 11, (2, 6)), 'x': real(2, 6, 16)},
                                     {'y': (F, 2)}, head_weights),
        'network_recurrent': network('recurrent', rows, {'x': real(7, 2, 4)}, {'y': (F, 3), 'i': (I, 3), 'last': (F, 3)},
                                     rows_weights),
    }


# ---- sizes ----

def shapes_of(values, way):
    """Lists of shapes, an input each, that the model is run with."""
    base = [None if v is None else list(v.shape) for v in values]
    free = free_axes(values, way)
    groups = {}
    for i, a in free:
        groups.setdefault(base[i][a], []).append((i, a))
    found = [base]

    def vary(axes, size, others=None):
        shapes = [None if s is None else list(s) for s in base]
        for i, a in free:
            if (i, a) in axes:
                shapes[i][a] = size
            elif others is not None:
                shapes[i][a] = others
        found.append(shapes)

    for axes in groups.values():
        for size in (0, 1, 2, 5, 17):
            vary(axes, size)
        vary(axes, HUGE[0], 0)
    for size in (0, 1, 2, 3):
        vary(free, size)
    for axis in free[:8]:
        for size in (0, 1, 2, 7):
            vary([axis], size)
        vary([axis], HUGE[1], 0)
    unique = []
    for shapes in found:
        fits = all(s is None or 0 in s or np.prod(s, dtype=object) <= MOST for s in shapes)
        if fits and shapes not in unique:
            unique.append(shapes)
    return unique


def resized(value, shape):
    if value is None or tuple(shape) == value.shape:
        return value
    if 0 in shape:
        return Hollow(shape, value.dtype) if is_hollow(shape, value.dtype) else np.zeros(shape, value.dtype)
    return np.resize(value, shape) if value.size else np.zeros(shape, value.dtype)


# ---- ONNX Runtime, in a process of its own: it may crash ----

def reference_main():
    """Lines: model, inputs, outputs, names of the inputs. Answers a line each: ok, or why not."""
    import onnxruntime as ort
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ort.set_default_logger_severity(4)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    session, path = None, None
    for line in sys.stdin:
        model, inputs, outputs, names = line.rstrip('\n').split('\t')
        try:
            if model != path:
                session, path, why = None, model, ''
                try:
                    session = ort.InferenceSession(model, options, providers=['CPUExecutionProvider'])
                except Exception as e:
                    why = str(e)
            if session is None:
                print('NONE ' + why.replace('\n', ' ')[:300], flush=True)
                continue
            feeds = {n: v for n, v in zip(names.split(','), read_tensors(inputs)) if v is not None}
            got = session.run(None, feeds)
            write_tensors(outputs, [np.asarray(g) for g in got])
            print('OK', flush=True)
        except Exception as e:
            print('ERROR ' + str(e).replace('\n', ' ')[:300], flush=True)


class Reference:
    """Asks that process, and starts another one where it crashes or takes longer than a case may."""
    SECONDS = 5

    def __init__(self):
        self.process = None

    def ask(self, *fields):
        if self.process is None:
            self.fresh = True  # it still imports ONNX Runtime
            self.process = subprocess.Popen(['timeout', '600', sys.executable, os.path.abspath(__file__), '--reference'],
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                            text=True, start_new_session=True)
        try:
            self.process.stdin.write('\t'.join(fields) + '\n')
            self.process.stdin.flush()
            ready = select.select([self.process.stdout], [], [], self.SECONDS + 5 * self.fresh)[0]
            answer = self.process.stdout.readline().rstrip('\n') if ready else ''
            self.fresh = False
        except BrokenPipeError:
            answer = ''
        if not answer:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
            return 'NONE it crashed, or takes too long'
        return answer

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()


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


def judge(case, verdict, reference, options):
    """(kind, text) of what is wrong, or None. kinds: fault, value, accepts, refuses."""
    word, *text = verdict.split(' ', 1)
    text = text[0] if text else ''
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
    if case['stem'] is None:
        return None
    why = compare(read_tensors(case['stem'] + '.out'), read_tensors(case['stem'] + '.ref'), options)
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


def run_chunk(args, cases):
    verdicts, parts = {}, []
    runner = [os.path.join(args.build, 'tests', 'guard_run'), str(args.seconds * (1 if args.variant == 'release' else 3))]
    for k in range(args.jobs):
        listing = os.path.join(args.build, 'onnx-tests', 'sizes.%d.%d.list' % (os.getpid(), k))  # a pipe would fill up both ways
        with open(listing, 'w', encoding='utf-8') as f:
            f.writelines('%d\t%s\t%s.in\t%s.out\n' % (i, c['library'], c['stem'], c['stem'])
                         for i, c in enumerate(cases) if i % args.jobs == k)
        with open(listing, encoding='utf-8') as f:
            p = subprocess.Popen(runner, stdin=f, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                 errors='replace', env=args.env)
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
    """[(name, model, values)]"""
    passing = lib.Suite(args, os.path.join(HERE, 'passing.txt')).listed
    rows = [r for r in nodes.load_index(args) if r[0] in passing and r[2] == '0']
    part, parts = map(int, args.part.split('/'))
    rows = rows[part - 1::parts]
    items = [(name, *made) for name, made in networks().items() if args.wanted(name) and part == 1]
    for i, row in enumerate(rows):
        taken = every and i % every == 0 or any(fnmatch.fnmatch(row[0], p) for p in always)
        made = node_case(row) if args.names or taken else None
        if made:
            items.append((row[0], *made))
    return items


def nothing_changes(job):
    """Has it no layer that integers could compute? Then f32 has run the same kernels."""
    return 'nothing to quantise' in log_of(job)


def is_huge(label):
    return any(str(size) in label for size in HUGE)


def judge_all(args, suite, items):
    work = os.path.join(args.build, 'onnx-tests', 'sizes.%d' % os.getpid())
    differ, report, reference = read_differ(), [], Reference()
    for start in range(0, len(items), CHUNK):
        shutil.rmtree(work, ignore_errors=True)
        os.makedirs(work)
        jobs, cases = [], []
        chunk = items[start:start + CHUNK]
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
        answers = {}
        for job in jobs:
            if not os.path.exists(job['library']):
                report.append('%s\t%s\tnot compiled\t%s' % (job['name'], job['level'], lib.reason(log_of(job), 1)))
                suite.skipped += 1
                continue
            if '--int8' in args.options and nothing_changes(job):
                args.same += 1
                continue
            for shapes in shapes_of(job['values'], job['way']):
                label = ' '.join('x'.join(map(str, s)) if s is not None else '-' for s in shapes)
                stem = os.path.join(work, 'c%d' % len(cases))
                arrays = [resized(v, s) for v, s in zip(job['values'], shapes)]
                write_tensors(stem + '.in', arrays)
                key = (job['model'], label)
                if any(isinstance(a, Hollow) for a in arrays):
                    answers[key] = 'NONE not for NumPy', stem
                elif key not in answers:
                    answers[key] = reference.ask(job['model'], stem + '.in', stem + '.ref', ','.join(job['inputs'])), stem
                elif answers[key][0] == 'OK':
                    os.link(answers[key][1] + '.ref', stem + '.ref')
                cases.append(dict(job, stem=stem, label=label, reference=answers[key][0]))
        verdicts, wrong, count = run_chunk(args, cases), {}, {}
        for i, case in enumerate(cases):
            id_ = case['name'], case['level']
            count[id_] = count.get(id_, 0) + 1
            verdict = verdicts.get(i, 'FAULT no verdict')
            bad = judge(case, verdict, case['reference'], args.options)
            args.short += verdict.startswith('REFUSED') and bool(re.search(NO_MEMORY, verdict))
            if (args.cuda or args.variant != 'release') and verdict.startswith('SLOW') and is_huge(case['label']):
                args.slow += 1
            elif bad:
                known = (bad[0] != 'fault' or bad[1].startswith('SLOW')) and any(
                    fnmatch.fnmatch(case['name'], p) and bad[0] == k and re.search(t, case['label'] + ': ' + bad[1])
                    for p, k, t in differ)
                report.append('%s\t%s\t%s\t%s%s\t%s' % (case['name'], case['level'], case['label'], bad[0],
                                                       ' (known)' if known else '', bad[1]))
                if not known:
                    wrong.setdefault(id_, []).append('%s at %s: %s' % (bad[0], case['label'], bad[1]))
        for id_ in count:
            suite.result('%s %s' % (id_[0], args.configuration), '%d of %d: %s' % (len(wrong[id_]), count[id_], wrong[id_][0]) if id_ in wrong else None)
        args.ran += len(cases)
    shutil.rmtree(work, ignore_errors=True)
    reference.close()
    name = args.configuration + ('-%s' % args.part.replace('/', '-') if args.part != '1/1' else '')
    path = os.path.join(lib.ROOT, 'build', 'onnx-tests', 'sizes-%s.txt' % name)
    with open(path, 'w', encoding='utf-8') as f:
        f.writelines(line + '\n' for line in sorted(report))
    more = ', %d of 2^31 or more did not end in time' % args.slow if args.slow else ''
    more += ', %d models have nothing to quantise and are as in f32' % args.same if args.same else ''
    print('%s: %d models ran at %d sizes in all, %d of these asked for more memory than a case may have%s; differences: %s'
          % (args.configuration, len(items), args.ran, args.short, more, os.path.relpath(path, lib.ROOT)), flush=True)


def configure(args, options, cuda):
    args.options, args.env, args.cytoc_env, args.cuda = options.split(), None, None, cuda
    if cuda:
        sys.path.insert(0, os.path.join(os.path.dirname(HERE), 'cuda'))
        import mock
        args.target = mock.TARGET['default']
        args.device = args.nvrtc = False
        args.options += mock.options(args) + ['--name=model']  # equal kernels of different tests are compiled once
        args.env = {**mock.environment(args, nvrtc=False), 'CY_MOCK_GUARD': '1'}
        args.cytoc_env = mock.compiling(args.env)


def main():
    if sys.argv[1:] == ['--reference']:
        return reference_main()
    args = lib.arguments(__doc__, every=dict(type=int, default=0), only=dict(default=''), part=dict(default='1/1'), seconds=dict(type=int, default=10),
                         jobs=nodes.JOBS)
    suite = lib.Suite(args)
    whole = args.every or (1 if args.variant != 'release' else 0)
    for name, levels, options, cuda, every, always in CONFIGURATIONS:
        if args.only and name not in args.only.split(','):
            continue
        args.ran = args.short = args.slow = args.same = 0
        args.configuration, args.level_list = name, levels.split(',')
        configure(args, options, cuda)
        judge_all(args, suite, gather(args, whole or every, always))
    suite.done()


if __name__ == '__main__':
    main()
