# SPDX-License-Identifier: Apache-2.0
"""One model, compiled for several instruction sets: AVX2, AVX-512, AVX-512 with VNNI, AMX, AVX-VNNI, and those of ARM.

In:  models made here and by other suites, the examples, and where they are, networks of ../shared/models.
Out: the closing line; a line for each instruction set with its time.

Integer arithmetic has to give the same bytes as with AVX2. Floats, which are added up in another order, may have a
relative RMS error of 1e-4 beside what -O0 computes, or, with options that change precision, beside the same with AVX2
(more where a CPU multiplies bf16 itself).
What the CPU of this machine can run runs on it, the rest in an emulator (machine.py); without one it is skipped. Emulated
CPUs take turns, each has a third of the cases; with CYTO_CHECK_LONG (`make check-long`) all of them.
"""
import glob
import os
import re
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
from onnx import TensorProto as T

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE), *(os.path.join(os.path.dirname(HERE), name) for name in ('random', 'quantise', 'operators'))]
import attention
import generate
import lib
import machine
import network
import shared as quantise

BASE = 'x86-64-v3'
# Bochs's name for such a CPU, and what integers are multiplied by there. Bochs 2.7, Debian's, has the first two, which
# are skipped where they cannot run; the others are for where they can: some CPU's own, or a newer Bochs.
TARGETS = {'x86-64-v4': ('corei7_skylake_x', r'vpmaddwd .*%zmm'),
           'icelake-server': ('corei7_icelake_u', r'vpdpbusd .*%zmm'),
           'sapphirerapids': ('sapphire_rapids', r'tdpbusd '), 'alderlake': ('arrow_lake', r'vpdpbusd .*%ymm'),
           'aarch64': ('aarch64-cortex-a53', r'\tsmlal'), 'cortex-a76': ('aarch64-cortex-a76', r'\tsdot\t'),
           'neoverse-v1': ('aarch64-max', r'\tusdot\t')}
ALWAYS = ('x86-64-v4', 'icelake-server')
EMULATED = 3  # each so manieth case, unless all are wanted
ROUNDED = 8e-3  # where products of bf16 have an instruction they round activations, too, by up to 2^-9 each

NETWORKS = {'mobilenetv2_qdq': True, 'edgetpu_block_qdq_u8': True, 'blazeface_short': False,
            'silero_vad_v5_ifless': False, 'bert_toy': False}  # of ../shared/models, and whether results are exact


qdq = lib.load_module(os.path.join(os.path.dirname(HERE), 'qdq', 'run.py'))

# ---- models: a function: folder -> (path of a model in it, {input: array}), and what is done with it ----

class Case:
    """exact: all CPUs give the same bytes; bytes_only: .. that multiply bytes, others compute in floats."""

    def __init__(self, build, options=(), exact=False, bytes_only=False):
        self.build, self.options, self.exact, self.bytes_only = build, list(options), exact, bytes_only


CASES = {}


def quantised_graph(function, outputs, opset, seed):
    """function adds nodes to a qdq.Graph and returns the names of its outputs, whose types are `outputs`."""
    def build(folder):
        g, path = qdq.Graph(seed), os.path.join(folder, 'model.onnx')
        g.save(path, list(zip(function(g), outputs)), opset)
        return path, g.feeds
    return build


def integers(*outputs):
    def add(function):
        CASES[function.__name__] = Case(quantised_graph(function, outputs, 17, 1), exact=True)
        return function
    return add


def full_range(g, dims, dtype=np.int8):
    """Weights of all 8 bits, extremes next to each other: sums of pairs of products go beyond 16 bits."""
    info = np.iinfo(dtype)
    values = g.rng.integers(info.min, info.max + 1, dims)
    return g.const(np.where(g.rng.random(dims) < 0.3, g.rng.choice([info.min, info.max], dims), values).astype(dtype))


@integers(*[T.INT32] * 6)
def products(g):
    """Every pair of types, sizes that fill no vector; one row."""
    found = []
    for a, b in ((np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8)):
        for m, k, n in ((13, 67, 37), (1, 130, 75)):
            x = g.input('x%d' % len(found), (m, k), a, np.iinfo(a).min, np.iinfo(a).max + 1)
            zero = [g.const(a(3)), g.const(b(5))] if m > 1 else []
            found.append(g.op('MatMulInteger', [x, full_range(g, (k, n), b), *zero]))
    return found


@integers(T.UINT8, T.INT8)
def requantised_products(g):
    found = []
    for kind, zero in ((np.uint8, 131), (np.int8, -7)):
        x = g.input('x%d' % len(found), (2, 21, 64), kind, np.iinfo(kind).min, np.iinfo(kind).max + 1)
        scales = g.const((0.001 + 0.002 * g.rng.random(50)).astype(np.float32))
        found.append(g.op('QLinearMatMul', [x, g.f(0.02), g.const(kind(zero)), full_range(g, (64, 50)), scales,
                                            g.const(np.zeros(50, np.int8)), g.f(0.11), g.const(kind(zero))]))
    return found


@integers(*[T.INT32] * 6)
def convolutions(g):
    found = []
    for kind, (c, o, k), attributes in (
            (np.uint8, (24, 40, 1), {}), (np.int8, (20, 33, 3), {'pads': [1] * 4}),
            (np.uint8, (3, 17, 5), {'strides': [2, 2], 'pads': [2] * 4}),
            (np.uint8, (40, 1, 3), {'group': 40, 'pads': [1] * 4}),
            (np.int8, (24, 6, 3), {'group': 4, 'strides': [2, 1]}), (np.uint8, (16, 19, 3), {'dilations': [2, 2]})):
        group = attributes.get('group', 1)
        x = g.input('x%d' % len(found), (2, c, 11, 13), kind, np.iinfo(kind).min, np.iinfo(kind).max + 1)
        weights = full_range(g, (o * group, c // group, k, k))
        found.append(g.op('ConvInteger', [x, weights, g.const(kind(9))], **attributes))
    return found


# channels, outputs of each, size, kernel, attributes: several blocks of channels, strides, dilations, one to three axes
DEPTHWISE = ((200, 1, (9, 11), (3, 3), {'pads': [1] * 4}), (40, 1, (12, 9), (5, 3), {'strides': [1, 2], 'pads': [2, 1, 0, 1]}),
             (33, 1, (13, 10), (3, 3), {'dilations': [2, 3], 'pads': [2] * 4}), (70, 1, (37,), (9,), {'pads': [4, 4]}),
             (24, 1, (3, 7, 8), (1, 3, 3), {'pads': [0, 1, 1] * 2}), (20, 2, (8, 9), (3, 3), {'pads': [1] * 4}))


@integers(*[T.INT32] * 12)
def depthwise(g):
    found = []
    for kind in (np.uint8, np.int8):
        for c, each, size, kernel, attributes in DEPTHWISE:
            x = g.input('x%d' % len(found), (2, c, *size), kind, np.iinfo(kind).min, np.iinfo(kind).max + 1)
            found.append(g.op('ConvInteger', [x, full_range(g, (c * each, 1, *kernel)), g.const(kind(9))], group=c, **attributes))
    return found


@integers(T.INT32, T.INT32)
def convolutions_of_many_channels(g):
    """3x3, which is worth Winograd's algorithm in 16 bits: small weights allow it, large ones do not."""
    found = []
    for kind, most in ((np.uint8, 60), (np.int8, 128)):
        x = g.input('x%d' % len(found), (1, 128, 29, 30), kind, np.iinfo(kind).min, np.iinfo(kind).max + 1)
        weights = g.const(g.rng.integers(-most, most, (64, 128, 3, 3)).astype(np.int8) if most < 128 else
                          np.full((64, 128, 3, 3), -128, np.int8))
        found.append(g.op('ConvInteger', [x, weights, g.const(kind(9))], pads=[1] * 4))
    return found


@integers(T.UINT8)
def requantised_network(g):
    """1x1, depthwise with stride, grouped, a residual sum, all with zero points."""
    x = g.q(g.input('x', (1, 32, 15, 17)), g.f(0.02), g.u8(128))
    a = qdq.conv(g, x, 0.02, 128, (48, 32, 1, 1), (0.03, 0))
    b = qdq.conv(g, a, 0.03, 0, (48, 1, 5, 5), (0.04, 7), group=48, pads=[2] * 4)
    c = qdq.conv(g, b, 0.04, 7, (48, 12, 3, 3), (0.03, 130), group=4, pads=[1] * 4)
    s = g.q(g.op('Add', [g.dq(c, g.f(0.03), g.u8(130)), g.dq(a, g.f(0.03), g.u8(0))]), g.f(0.05), g.u8(20))
    return [qdq.conv(g, s, 0.05, 20, (30, 48, 3, 3), (0.1, 99), strides=[2, 2])]


# those with a softmax or sums of floats in them
INEXACT = ('qlinear_softmax', 'qattention', 'qdq_float_kernels', 'phases_of_feature_maps', 'weight_only_blocks', 'weights_in_integers')
for seed, (name, function, outputs, _, opset, _) in enumerate(qdq.CASES):
    CASES[name] = Case(quantised_graph(function, outputs, opset, seed), exact=name not in INEXACT)


def perceptron(rows):
    def build(folder):
        n = quantise.Network(4)
        x = n.op('Relu', n.op('MatMul', 'x', n.weight(130, 200)))
        y = n.op('MatMul', x, n.weight(200, 90))
        path = n.save(os.path.join(folder, 'm.onnx'), [('x', [rows, 130])], [(y, [rows, 90])])
        return path, {'x': quantise.samples_of((rows, 130), 1)[0]}
    return build


def integer_rows(rows):
    """A last panel that is not full."""
    def build(folder):
        n = quantise.Network(4)
        y = n.op('MatMul', 'x', n.weight(128, 199))
        return n.save(os.path.join(folder, 'm.onnx'), [('x', [rows, 128])], [(y, [rows, 199])]), {'x': quantise.samples_of((rows, 128), 1)[0]}
    return build


def encoder(folder):
    return quantise.encoder(os.path.join(folder, 'm.onnx')), {
        'x': quantise.samples_of((2, 9, 64), 1)[0], 'y': quantise.samples_of((2, 9, 96), 1, 5)[0]}


def residual(folder):
    path, x = quantise.residual(os.path.join(folder, 'm.onnx')), quantise.samples_of((2, 3, 32, 32), 1)[0]
    np.savez(os.path.join(folder, 'samples.npz'), x=x)
    return path, {'x': x}


def products_of_floats(folder):
    """Rows and columns that fill tiles and vectors, and that do not."""
    n = quantise.Network(9)
    inputs, outputs, feeds = [], [], {}
    for rows in (1, 2, 3, 5, 6, 8, 13, 31):
        x = 'x%d' % rows
        inputs.append((x, [rows, 37]))
        feeds[x] = quantise.samples_of((rows, 37), 1, rows)[0]
        for columns in (1, 7, 16, 31, 50, 64, 97):
            outputs.append((n.op('MatMul', x, n.weight(37, columns)), [rows, columns]))
    return n.save(os.path.join(folder, 'm.onnx'), inputs, outputs), feeds


def convolutions_of_floats(folder):
    """Those that residual() lacks: large kernel and stride, Winograd with odd sizes, dilated, grouped, transposed."""
    n = quantise.Network(8)
    x = n.op('Relu', n.conv('x', 5, 40, k=7, strides=[2, 2]))
    x = n.op('Relu', n.conv(x, 40, 72))
    x = n.op('Add', n.conv(x, 72, 72, group=6), n.conv(x, 72, 72, k=5, group=72))
    y = n.op('ConvTranspose', x, n.weight(72, 20, 4, 4), strides=[2, 2], pads=[1] * 4)
    x = n.op('Conv', x, n.weight(9, 72, 3, 3), dilations=[2, 2])
    inputs, outputs = [('x', [1, 5, 45, 38])], [(x, [1, 9, 19, 15]), (y, [1, 20, 46, 38])]
    return n.save(os.path.join(folder, 'm.onnx'), inputs, outputs), {'x': quantise.samples_of((1, 5, 45, 38), 1)[0]}


def depthwise_of_floats(folder):
    """Each by itself, and with an activation that takes more than the convolution; groups of two inputs and four outputs."""
    n = quantise.Network(6)
    inputs, outputs, feeds = [], [], {}
    for i, (c, each, size, kernel, way) in enumerate((*DEPTHWISE, (10, 2, (5, 6, 7), (3, 2, 3), {'pads': [1] * 6, 'strides': [1, 2, 1]}))):
        x = 'x%d' % i
        inputs.append((x, [2, c, *size]))
        feeds[x] = quantise.samples_of((2, c, *size), 1, i)[0]
        y = n.op('Conv', x, n.weight(c * each, 1, *kernel), n.weight(c * each, scale=0.1), group=c, **way)
        outputs += [(y, None), (n.op('Mul', y, n.op('Erf', n.op('Sigmoid', n.op('Tanh', y)))), None)]
        if c % 2 == 0 and len(size) == 2:
            outputs.append((n.op('Conv', x, n.weight(c * 2, 2, *kernel), group=c // 2, **way), None))
    return n.save(os.path.join(folder, 'm.onnx'), inputs, outputs), feeds


def dynamic_convolutions(folder):
    """Strided from few channels, dense, grouped, depthwise, a residual sum, a dilated one: two images, signed and not."""
    n = quantise.Network(7)
    x = n.op('Relu', n.conv('x', 3, 40, k=5, strides=[2, 2]))
    y = n.op('Relu', n.conv(x, 40, 72))
    x = n.op('Add', n.conv(y, 72, 72, group=6), n.conv(x, 40, 72, k=1))
    x = n.conv(n.op('Relu', n.conv(x, 72, 72, group=72)), 72, 96, k=1)
    x = n.op('Conv', x, n.weight(33, 96, 3, 3), dilations=[2, 2])
    path = n.save(os.path.join(folder, 'm.onnx'), [('x', [2, 3, 37, 30])], [(x, [2, 33, 15, 11])])
    return path, {'x': quantise.samples_of((2, 3, 37, 30), 1)[0]}


for how in ('int8', 'int4', 'int8,asymmetric', 'int4,asymmetric,block=32'):
    CASES['weights_' + how] = Case(perceptron(1), ['--weights=' + how])
    CASES['rows_and_weights_' + how] = Case(integer_rows(7), ['--weights=' + how, '--int8'], exact=True, bytes_only=True)
CASES['few_rows_int4'] = Case(integer_rows(3), ['--weights=int4,block=32'], exact=True, bytes_only=True)
CASES['few_rows_int4,asymmetric'] = Case(integer_rows(1), ['--weights=int4,asymmetric,block=64'], exact=True, bytes_only=True)
CASES['dynamic'] = Case(perceptron(19), ['--int8=dynamic'], exact=True)
CASES['dynamic_convolutions'] = Case(dynamic_convolutions, ['--int8=dynamic', '--int8-prefer=size'], exact=True)
CASES['static'] = Case(residual, [*quantise.STATIC, '--calibrate=FOLDER/samples.npz'], exact=True)
for build in (products_of_floats, convolutions_of_floats, depthwise_of_floats):
    CASES[build.__name__] = Case(build)
for build in (encoder, residual):
    for form in ([], ['--fp16'], ['--bf16']):
        CASES[build.__name__ + ''.join(form)] = Case(build, form)


def random_graph(seed):
    def build(folder):
        model, feeds = generate.generate(seed)
        onnx.save(model, os.path.join(folder, 'm.onnx'))
        return os.path.join(folder, 'm.onnx'), feeds
    return build


for seed in range(20):
    CASES['random%d' % seed] = Case(random_graph(seed))


def attention_form(form):
    def build(folder):
        feeds, _ = attention.write_case(form, 'f32', os.path.join(folder, 'g.txt'))
        return os.path.join(folder, 'g.txt'), feeds
    return build


for name in ('one_row', 'odd_sizes', 'size_256', 'many_keys_causal', 'softcap', 'mask_and_bias', 'gqa_one_row'):
    CASES['attention_' + name] = Case(attention_form(attention.CASES[name]))


def shared_network(name):
    def build(folder):
        place = os.path.join(lib.SHARED, 'models', name)
        inputs = sorted(glob.glob(os.path.join(place, 'refio', 'in_*.npy')))
        feeds = {re.sub(r'.*/in_\d+_|\.npy$', '', path): np.load(path) for path in inputs}
        return os.path.join(place, 'model.onnx'), feeds
    return build


for name, exact in NETWORKS.items():
    if os.path.isdir(os.path.join(lib.SHARED, 'models', name)):
        CASES[name] = Case(shared_network(name), exact=exact)

# ---- running ----

class Job:
    """A case with its folder: the model, its inputs, the reference."""

    def __init__(self, args, name):
        self.args, self.name, self.case, self.work = args, name, CASES[name], os.path.join(args.build, 'emulate', name)
        shutil.rmtree(self.work, ignore_errors=True)
        os.makedirs(self.work)
        self.model, feeds = self.case.build(self.work)
        network.save_inputs(self.folder('in'), feeds)

    def folder(self, name):
        return os.path.join(self.work, name)

    def library(self, target):
        return self.folder(target + '.so')

    def run(self, target):
        return self.library(target), self.folder('in'), self.folder(target)

    def compile(self, target, level='-O3'):
        options = ['-j', '1', '--target=' + target, *[o.replace('FOLDER', self.work) for o in self.case.options]]
        return network.compile_model(self.args, self.model, self.library(target), level, options)

    def prepare(self):
        """All libraries, and the reference. None, or why not."""
        why = self.compile(BASE, '-O3' if self.case.exact or self.case.options else '-O0')
        why = why or network.execute(self.args, self.library(BASE), self.folder('in'), self.folder('reference'), 1)
        for target in self.args.targets:
            if self.runs_on(target):
                why = why or self.compile(target)
        return why

    def multiplies_bf16(self, target):
        return re.search(r'dpbf16ps', machine.instructions(self.library(target))) is not None

    def runs_on(self, target):
        if target == 'aarch64' and self.case.bytes_only:
            return False
        turn = (list(CASES).index(self.name) + list(TARGETS).index(target)) % EMULATED
        return lib.LONG or target in self.args.native or self.name == 'products' or turn == 0

    def judge(self, target):
        if self.name == 'products' and not re.search(TARGETS[target][1], machine.instructions(self.library(target))):
            return 'nothing like %s in its code' % TARGETS[target][1]
        if not self.case.exact:
            limit = ROUNDED if '--bf16' in self.case.options and self.multiplies_bf16(target) else 1e-4
            return network.compare(self.folder(target), self.folder('reference'), lambda name: limit)
        got, want = network.by_index(self.folder(target)), network.by_index(self.folder('reference'))
        for k, path in want.items():
            if k not in got or open(got[k], 'rb').read() != open(path, 'rb').read():
                return '%s: not the bytes that %s gives' % (os.path.basename(path), BASE)
        return None


def run_target(args, target, jobs):
    """Where it ran, and [(job, None or why there are no outputs)]; None for a job that cannot be run."""
    jobs = [j for j in jobs if j.runs_on(target)]
    if not jobs:
        return 'nothing to run', []
    code, _, _ = lib.run([args.cyto_run, jobs[0].library(target), '--info'])
    if code == 0:
        return 'this CPU', [(j, network.execute(args, *j.run(target), 1)) for j in jobs]
    if args.variant != 'release' or TARGETS[target][0] not in machine.models(args):
        return 'nowhere', []
    if not TARGETS[target][0].startswith('aarch64-'):
        jobs = [j for j in jobs if not machine.mistaken(j.library(target))]
    runs = [j.run(target) for j in jobs]
    work = os.path.join(args.build, 'emulate', 'disk-' + target)
    return 'emulated', list(zip(jobs, machine.run(args, TARGETS[target][0], runs, work)))


def runs_here(args, target):
    """Whether this CPU has what libraries for that one ask for: a model of one sum tells."""
    work = os.path.join(args.build, 'emulate', 'probe')
    os.makedirs(work, exist_ok=True)
    model, library = os.path.join(work, 'm.onnx'), os.path.join(work, target + '.so')
    n = quantise.Network(1)
    n.save(model, [('x', [1])], [(n.op('Add', 'x', 'x'), [1])])
    why = network.compile_model(args, model, library, '-O3', ['--target=' + target])
    return not why and lib.run([args.cyto_run, library, '--info'])[0] == 0


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    args.native = [t for t in TARGETS if runs_here(args, t)]
    args.targets = [t for t in TARGETS if t in ALWAYS or TARGETS[t][0] in machine.models(args) or t in args.native]
    with ThreadPoolExecutor(2) as pool:
        names = [name for name in CASES if args.wanted(name)]
        jobs = [Job(args, name) for name in (names if args.variant == 'release' else names[::4])]  # sanitizers are slow
        ready = []
        for job, why in zip(jobs, pool.map(Job.prepare, jobs)):
            if why:
                suite.result(job.name, why)
            else:
                ready.append(job)

        def timed(target):
            start = time.time()
            return target, *run_target(args, target, ready), time.time() - start
        for target, where, ran, seconds in pool.map(timed, args.targets if ready else ()):
            print('%-16s %5.1f s, %s' % (target, seconds, where), flush=True)
            for job, why in ran:
                suite.result('%s, %s' % (job.name, target), why or job.judge(target))
            if where == 'nowhere':
                suite.skip(target, 'this CPU lacks it, and there is no emulator ' +
                           ('(apt-get install bochs bochs-term)' if args.variant == 'release' else 'for sanitizers'))
            elif len(ran) < sum(job.runs_on(target) for job in ready):
                left_out = '%d cases, %s' % (sum(job.runs_on(target) for job in ready) - len(ran), target)
                suite.skip(left_out, 'instructions that the emulator gets wrong')
    if not any(TARGETS[t][0].startswith('aarch64-') for t in args.targets):
        suite.skip('ARM', 'no C compiler or no emulator for it (apt-get install gcc-aarch64-linux-gnu qemu-user)')
    suite.done()


if __name__ == '__main__':
    main()
