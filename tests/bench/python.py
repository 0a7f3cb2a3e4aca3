# SPDX-License-Identifier: Apache-2.0
"""What a call costs from Python, beside the same call from C and beside ONNX Runtime's; and torch.compile with our backend, beside
inductor and eager mode.

In:  --build DIR; onnxruntime of build/venv; a Python with PyTorch and torchvision (as tests/torch has it: build/torch-venv, or what
     CYTO_TORCH_PYTHON names). `calls` or `torch`: one of the two tables. --wait: when all is compiled, wait for a line on standard input,
     so that the machine can be made quiet before anything is timed.
Out: the tables; with --update in tests/bench/results/RESULTS-python.md.

PROCESSES processes are started, and each gets all contenders ready (models compiled, caches filled). Then they measure in turns, one
process at a time, and in each process contenders take turns, ROUNDS times; a figure is the median over processes of the medians of these
rounds, a ratio that of the processes' ratios. One thread, batch 1, f32.
"""
import argparse
import ctypes as C
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.dirname(HERE), HERE, os.path.join(ROOT, 'python')]

PROCESSES, ROUNDS = 5, 7


# ---- a call: within a worker ---------------------------------------------------------------------------------------------------

# The calls of cyto.h that Model.__call__ makes for a model with one input and one output.
C_CALLS = """
#include <stdint.h>
#include <time.h>
typedef struct calls {
  int (*bind_input)(void *, int32_t, int32_t, int32_t, const int64_t *, const void *, void *);
  int (*bind_output)(void *, int32_t, void *, uint64_t, void *);
  int (*run)(void *, void *);
} calls;
double seconds_of(const calls *c, void *context, int32_t rank, const int64_t *dims, const void *x, void *y, uint64_t bytes, long n) {
  struct timespec a, b;
  int bad = 0;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
  for (long i = 0; i < n; i++) {
    bad |= c->bind_input(context, 0, 1, rank, dims, x, 0);
    bad |= c->bind_output(context, 0, y, bytes, 0);
    bad |= c->run(context, 0);
  }
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
  return bad ? -1 : (b.tv_sec - a.tv_sec) + (b.tv_nsec - a.tv_nsec) * 1e-9;
}
"""


class CTable(C.Structure):
    _fields_ = [(name, C.c_void_p) for name in ('bind_input', 'bind_output', 'run')]


def timed(call, n, clock=time.thread_time):
    start = clock()
    for _ in range(n):
        call()
    return clock() - start


def call_models():
    """{name: (model, input)}: as little as there can be, and examples/digits."""
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper
    port = lambda name, size: helper.make_tensor_value_info(name, 1, ['batch', size])
    weight = numpy_helper.from_array(np.ones((3, 2), np.float32), 'w')
    tiny = helper.make_model(helper.make_graph([helper.make_node('MatMul', ['x', 'w'], ['y'])], 'tiny', [port('x', 3)], [port('y', 2)], [weight]),
                             opset_imports=[helper.make_opsetid('', 21)], ir_version=10)
    return {'a product of 3x2': (tiny.SerializeToString(), np.ones((1, 3), np.float32)),
            'digits': (onnx.load(os.path.join(ROOT, 'examples/digits/digits.onnx')).SerializeToString(), np.ones((1, 1, 8, 8), np.float32))}


def call_contenders(build, data, x):
    """{name: function of how many calls: seconds}"""
    import numpy as np
    import onnxruntime
    import cytoc
    from cytoc import _model, _native
    library = os.path.join(build, 'bench-calls.so')
    text, native = C.CDLL(library), _native.runtime()
    model = cytoc.compile(data, threads=1)
    context = _model._Context(model)
    table = CTable(*[C.cast(getattr(native, 'cyto_' + name), C.c_void_p) for name, _ in CTable._fields_])
    y = np.empty_like(model(x))
    dims = (C.c_int64 * x.ndim)(*x.shape)
    text.seconds_of.restype = C.c_double
    text.seconds_of.argtypes = [C.c_void_p, C.c_void_p, C.c_int32, C.c_void_p, C.c_void_p, C.c_void_p, C.c_uint64, C.c_long]
    name = model.inputs[0].name
    binding = model.bind().input(name, x).output(model.outputs[0].name, y)
    session = cytoc.InferenceSession(data, threads_option(cytoc))
    theirs = onnxruntime.InferenceSession(data, threads_option(onnxruntime), providers=['CPUExecutionProvider'])
    their_binding = theirs.io_binding()
    their_binding.bind_cpu_input(name, x)
    their_binding.bind_output(model.outputs[0].name)
    np.testing.assert_allclose(theirs.run(None, {name: x})[0], model(x), rtol=1e-4, atol=1e-5)
    return {'C': lambda n: text.seconds_of(C.addressof(table), context.handle, x.ndim, C.addressof(dims), x.ctypes.data, y.ctypes.data, y.nbytes, n),
            'model(x)': lambda n: timed(lambda: model(x), n), 'binding.run()': lambda n: timed(binding.run, n),
            'session.run()': lambda n: timed(lambda: session.run(None, {name: x}), n),
            "ONNX Runtime's session.run()": lambda n: timed(lambda: theirs.run(None, {name: x}), n),
            "ONNX Runtime's run_with_iobinding()": lambda n: timed(lambda: theirs.run_with_iobinding(their_binding), n)}


def threads_option(package):
    options = package.SessionOptions()
    options.intra_op_num_threads = 1
    return options


# ---- networks: within a worker -------------------------------------------------------------------------------------------------

def networks():
    """{name: (module, inputs)}; weights are random."""
    import torch
    import torchvision.models as models
    from torch import nn

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.lstm, self.out = nn.Embedding(5000, 128), nn.LSTM(128, 256, 2, batch_first=True, bidirectional=True), nn.Linear(512, 17)

        def forward(self, words):
            return self.out(self.lstm(self.embed(words))[0])

    class Blocks(nn.Module):
        """A transformer's encoder, written out."""

        def __init__(self, width=256, heads=4, layers=4):
            super().__init__()
            self.heads, self.embed = heads, nn.Embedding(5000, width)
            self.layers = nn.ModuleList(nn.ModuleDict({
                'a': nn.LayerNorm(width), 'qkv': nn.Linear(width, 3 * width), 'o': nn.Linear(width, width), 'b': nn.LayerNorm(width),
                'up': nn.Linear(width, 4 * width), 'down': nn.Linear(4 * width, width)}) for _ in range(layers))

        def forward(self, words):
            x = self.embed(words)
            b, n, w = x.shape
            for layer in self.layers:
                q, k, v = layer['qkv'](layer['a'](x)).view(b, n, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
                y = nn.functional.scaled_dot_product_attention(q, k, v)
                x = x + layer['o'](y.transpose(1, 2).reshape(b, n, w))
                x = x + layer['down'](nn.functional.gelu(layer['up'](layer['b'](x))))
            return x

    class UNet(nn.Module):
        def __init__(self, sizes=(16, 32, 64, 128)):
            super().__init__()
            block = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b),
                                               nn.ReLU())
            self.down = nn.ModuleList(block(a, b) for a, b in zip((1, *sizes), sizes))
            self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(sizes, sizes[1:]))
            self.join = nn.ModuleList(block(2 * a, a) for a in sizes[:-1])
            self.out = nn.Conv2d(sizes[0], 1, 1)

        def forward(self, x):
            kept = []
            for k, block in enumerate(self.down):
                x = block(nn.functional.max_pool2d(x, 2) if k else x)
                kept.append(x)
            for k in reversed(range(len(self.up))):
                x = self.join[k](torch.cat([kept[k], self.up[k](x)], 1))
            return self.out(x)

    torch.manual_seed(0)
    image, words = torch.rand(1, 3, 224, 224), torch.randint(0, 5000, (1, 128))
    vit = models.vision_transformer.VisionTransformer(224, 16, 6, 6, 384, 1536)
    return {'resnet18': (models.resnet18(), (image,)), 'mobilenet_v3_large': (models.mobilenet_v3_large(), (image,)),
            'efficientnet_b0': (models.efficientnet_b0(), (image,)), 'densenet121': (models.densenet121(), (image,)), 'vit (6 layers of 384)': (vit, (image,)),
            'unet (256x256)': (UNet(), (torch.rand(1, 1, 256, 256),)), 'transformer (4 layers of 256)': (Blocks(), (words,)), 'lstm (2 layers of 256)': (Tagger(), (words,))}


def torch_contenders(module, inputs):
    import torch
    module = module.eval()
    calls = {'eager': module}
    for name, backend, options in (('inductor', 'inductor', None), ('cytoc', 'cytoc', {'threads': 1})):
        torch._dynamo.reset()
        calls[name] = torch.compile(module, backend=backend, options=options, dynamic=False)
    want = module(*inputs)
    for name, call in calls.items():
        found = call(*inputs)
        off = ((found - want).abs().max() / want.abs().max()).item()
        if off > 1e-3:
            sys.exit('%s: %s is off by %g' % (type(module).__name__, name, off))
    return {name: lambda n, call=call: timed(lambda: call(*inputs), n, time.perf_counter) for name, call in calls.items()}


# ---- workers -------------------------------------------------------------------------------------------------------------------

def measure(contenders, seconds):
    """{name: median seconds of a call}, in turns."""
    counts, rounds = {}, {name: [] for name in contenders}
    for name, run in contenders.items():
        once = run(1)
        counts[name] = max(1, min(20000, int(seconds / ROUNDS / max(min(once, run(3) / 3), 1e-7))))
    for _ in range(ROUNDS):
        for name, run in contenders.items():
            rounds[name].append(run(counts[name]) / counts[name])
    return {name: statistics.median(times) for name, times in rounds.items()}


def work(what, args):
    """Gets ready, then answers every line with a measurement of the network that it names."""
    if what == 'calls':
        ready = {name: call_contenders(args.build, *given) for name, given in call_models().items()}
    else:
        import logging
        import warnings
        import torch
        import cytoc._dynamo
        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        logging.disable(logging.ERROR)
        warnings.filterwarnings('error', message='.*eager mode.*')
        torch._dynamo.register_backend(cytoc._dynamo.backend, name='cytoc')
        ready = {name: torch_contenders(*given) for name, given in networks().items()}
    print(json.dumps(sorted(ready)), flush=True)
    for line in sys.stdin:
        print(json.dumps(measure(ready[line.strip()], args.seconds)), flush=True)


class Worker:
    def __init__(self, python, what, args):
        self.process = subprocess.Popen([python, os.path.abspath(__file__), '--worker', what, '--build', args.build, '--seconds', str(args.seconds)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(args))
        self.names = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        while line and not line.startswith(('{', '[')):
            line = self.process.stdout.readline()
        return json.loads(line) if line else sys.exit('a worker failed')

    def measure(self, name):
        self.process.stdin.write(name + '\n')
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def environment(args):
    work = os.path.join(args.build, 'bench-python')
    os.makedirs(work, exist_ok=True)
    return dict(os.environ, CYTOC_LIB_DIR=args.build, CYTOC_CACHE_DIR=os.path.join(work, 'cache'), OMP_NUM_THREADS='1',
                TORCHINDUCTOR_CACHE_DIR=os.path.join(work, 'inductor'))


# ---- tables --------------------------------------------------------------------------------------------------------------------

def median(rows, f):
    return statistics.median(f(row) for row in rows)


def calls_table(found):
    table = [['a call, microseconds', *found]]
    for name in next(iter(found.values()))[0]:
        table.append([name] + ['%.2f' % median(rows, lambda r: r[name] * 1e6) for rows in found.values()])
    table.append(['**model(x) above C**'] + ['%.2f' % median(rows, lambda r: (r['model(x)'] - r['C']) * 1e6) for rows in found.values()])
    table.append(["**model(x) beside ONNX Runtime's session.run()**"] +
                 ['%.2fx' % median(rows, lambda r: r["ONNX Runtime's session.run()"] / r['model(x)']) for rows in found.values()])
    return table


def torch_table(found):
    table = [['network', 'eager, ms', 'inductor, ms', 'cytoc, ms', 'cytoc beside eager', 'cytoc beside inductor']]
    for name, rows in found.items():
        table.append([name] + ['%.3f' % median(rows, lambda r: r[c] * 1e3) for c in ('eager', 'inductor', 'cytoc')] +
                     ['%.2fx' % median(rows, lambda r: r[c] / r['cytoc']) for c in ('eager', 'inductor')])
    return table


TABLES = {'calls': (calls_table, 'A call from Python',
                    'Median of %d processes; C is what `model(x)` calls of cyto.h, in a loop in C. Processor time of the calling thread, which does all\n'
                    'the work: what else runs on the machine does not count.' % PROCESSES),
          'torch': (torch_table, 'torch.compile(backend="cytoc")',
                    'Milliseconds a call, random weights, batch 1, one thread, no gradients; medians of %d processes, in which the three '
                    'take turns.' % PROCESSES)}


def versions(python, packages):
    text = 'from importlib.metadata import version; import sys; print(", ".join("%s %s" % (p, version(p)) for p in sys.argv[1:]))'
    return subprocess.run([python, '-c', text, *packages], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def run(what, args):
    import datetime
    import results
    python = sys.executable if what == 'calls' else args.torch
    if what == 'calls':
        with open(os.path.join(args.build, 'bench-calls.c'), 'w', encoding='utf-8') as f:
            f.write(C_CALLS)
        subprocess.run(['cc', '-O2', '-shared', '-fPIC', '-o', os.path.join(args.build, 'bench-calls.so'), f.name], check=True)
    workers = [Worker(python, what, args) for _ in range(PROCESSES)]
    if args.wait:
        print('%s: ready' % what, flush=True)
        sys.stdin.readline()
    found = {name: [] for name in workers[0].names}
    for worker in workers:
        for name in found:
            found[name].append(worker.measure(name))
    for worker in workers:
        worker.close()
    table, _, note = TABLES[what]
    used = versions(python, ('onnxruntime', 'numpy') if what == 'calls' else ('torch', 'torchvision'))
    text = '%s, %s; %s; Python %d.%d.\n\n%s\n\n%s' % (results.cpu_name(os.path.join(args.build, 'cytoc')), datetime.date.today(), used,
                                                     *sys.version_info[:2], note, results.markdown(table(found)))
    print(text, flush=True)
    if args.update:
        results.put_table('python', 'Python and ONNX Runtime', what, TABLES[what][1], text)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('tables', nargs='*', choices=[*TABLES, []], help='all')
    parser.add_argument('--build', default=os.path.join(ROOT, 'build'))
    parser.add_argument('--torch', default=os.environ.get('CYTO_TORCH_PYTHON') or os.path.join(ROOT, 'build/torch-venv/bin/python'))
    parser.add_argument('--seconds', type=float, default=0.5, help='of each contender in each process')
    parser.add_argument('--wait', action='store_true')
    parser.add_argument('--update', action='store_true')
    parser.add_argument('--worker', help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    if args.worker:
        work(args.worker, args)
        return
    for what in args.tables or TABLES:
        run(what, args)


if __name__ == '__main__':
    main()
