# SPDX-License-Identifier: Apache-2.0
"""Times of networks in integers and in bf16 beside ONNX Runtime: two tables of RESULTS-int8.md.

In:  networks of ../shared/zoo, which get random weights, and of ../shared/models; what makes their samples (int8.py).
Out: a row per convolutional network: our float library, --int8 without samples, our static one, ONNX Runtime with the
     model and with what `cytoc quantize` makes of it; a row per network of products: our float library, --int8,
     --bf16, both, ONNX Runtime.
     Contenders take turns, a process each time, and every time is a median over ROUNDS processes of the median of
     their runs. One thread. Sizes are those of libraries, the float one's in MB, others relative to that.
"""
import json
import os
import re
import shutil
import statistics
import sys

import numpy as np

import lib
import run as floats

NETWORKS = {'resnet50': (-2, 2), 'densenet121': (-2, 2), 'vgg16': (-2, 2), 'mobilenet_v2': (-2, 2), 'yolox_nano': (0, 255),
            'unet2d_labelfree': (-2, 2), 'unet3d_monai': (-2, 2)}
ROUNDS, SECONDS, SAMPLES = 5, 0.25, 4
PRODUCTS = ('vit_b_16', 'bert_base', 'gpt2_small', 'whisper_tiny_encoder', 'tfswa_unet', 'mlp_mixer_s16')
HEAD = ['network', 'float ms', 'MB', '--int8: layers', 'static: layers', '--int8 ms', 'speed', 'size', 'static ms', 'speed',
        'size', 'ONNX Runtime: float ms', 'speed', 'QDQ ms', 'speed']
PRODUCTS_HEAD = ['network', 'float ms', 'MB', '--int8 ms', 'speed', 'size', '--bf16 ms', 'speed', 'size', '--int8 --bf16 ms',
                 'speed', 'size', 'ONNX Runtime: float ms', 'speed']


def zoo_entry(name):
    path = os.path.join(lib.SHARED, 'zoo', 'index.json')
    if not os.path.exists(path):
        return None
    with open(path, encoding='utf-8') as f:
        return next((e for e in json.load(f)['models'] if e['name'] == name), None)


def run(command):
    code, out, err = lib.run(command)
    if code:
        raise RuntimeError(lib.reason(err, code))
    return out


def value(port, rng):
    """An input of a network of the zoo."""
    low, high, shape = port['lo'], port['hi'], port['test_shape']
    if port['gen'] == 'int':
        return rng.integers(low, high + 1, shape)
    if port['gen'] in ('prefix', 'ones'):
        return np.ones(shape, np.int64)
    return np.float32(rng.uniform(low, high, shape) if port['gen'] == 'uniform' else rng.standard_normal(shape))


class Network:
    def __init__(self, args, name):
        self.args, self.root, self.options = args, os.path.join(args.build, 'int8', name), []
        shutil.rmtree(self.root, ignore_errors=True)
        os.makedirs(self.path('samples'))
        os.makedirs(self.path('inputs'))
        self.entry, self.model = zoo_entry(name), os.path.join(lib.SHARED, 'models', name, 'model.onnx')
        if self.entry:
            zoo, self.model = os.path.join(lib.SHARED, 'zoo'), self.path('model.onnx')
            run([sys.executable, os.path.join(zoo, 'materialize.py'), os.path.join(zoo, self.entry['file']), self.model])
            self.options = floats.zoo_options(self.entry)
        self.shapes = ['--shape=' + word for flag, word in zip(self.options, self.options[1:]) if flag == '--shape']

    def path(self, *names):
        return os.path.join(self.root, *names)

    def add_samples(self, image):
        """To calibrate with; the first is what is run. image: function: generator of random numbers, shape -> sample."""
        rng = np.random.default_rng(1)
        shape = self.entry['inputs'][0]['test_shape'] if self.entry else (1, 3, 416, 416)
        for i in range(SAMPLES):
            np.save(self.path('samples', 's%d.npy' % i), image(rng, shape))
        shutil.copy(self.path('samples', 's0.npy'), self.path('inputs', 'in_0_.npy'))

    def add_inputs(self):
        rng = np.random.default_rng(1)
        for k, port in enumerate(self.entry['inputs']):
            np.save(self.path('inputs', 'in_%d_.npy' % k), value(port, rng))

    def compile(self, name, *options):
        """(library, what cytoc said)"""
        return self.path(name), run([self.args.cytoc, self.model, '-o', self.path(name), '--explain', *self.shapes, *options])

    def ours(self, library):
        def measure(repeat):
            text = run([self.args.cyto_run, library, '--inputs-dir', self.path('inputs'), '--threads', '1', '--repeat', str(repeat)])
            return float(re.search(r'runs: min [0-9.]+ ms, median ([0-9.]+)', text).group(1))
        repeat = max(3, int(SECONDS * 1e3 / max(measure(3), 0.01)))
        return lambda: measure(repeat)

    def theirs(self, model):
        command = [sys.executable, os.path.join(lib.ROOT, 'tools', 'bench_ort.py'), model, '1', str(SECONDS), '1', *self.options]
        return lambda: float(run(command).split()[2])


def cells(name, network, libraries, models, notes=()):
    """A row: the name, the first library's time and size; notes; of the others time, how many times as fast, and size; of
    the models, which ONNX Runtime runs, time and how many times as fast."""
    contenders = [network.ours(library) for library in libraries] + [network.theirs(model) for model in models]
    rounds = [[measure() for measure in contenders] for _ in range(ROUNDS)]
    times = [statistics.median(column) for column in zip(*rounds)]
    sizes = [os.path.getsize(library) for library in libraries]
    found = [name, '%.1f' % times[0], '%.2f' % (sizes[0] / 1e6), *notes]
    for i, time in enumerate(times[1:], 1):
        found += ['%.1f' % time, '%.2f' % (times[0] / time), *('%.3f' % (size / sizes[0]) for size in sizes[i:i + 1])]
    return found


def static_row(args, name, image, extra):
    n = Network(args, name)
    n.add_samples(image)
    calibrate = '--calibrate=' + n.path('samples')
    plain, _ = n.compile('float.so', *(option for option in extra if option.startswith('--target=')))
    made = [n.compile('dynamic.so', '--int8=dynamic', *extra), n.compile('static.so', '--int8=static', calibrate, *extra)]
    run([args.cytoc, 'quantize', n.model, '-o', n.path('qdq.onnx'), calibrate, *n.shapes])
    layers = ['/'.join(re.search(r'(\d+) of (\d+) layers in int8', table).groups()) for _, table in made]
    return cells(name, n, [plain, *(library for library, _ in made)], [n.model, n.path('qdq.onnx')], layers)


def products_row(args, name, extra):
    n = Network(args, name)
    n.add_inputs()
    target = [option for option in extra if option.startswith('--target=')]
    made = [n.compile('%d.so' % i, *target, *option)[0] for i, option in enumerate(([], ['--int8'], ['--bf16'], ['--int8', '--bf16']))]
    return cells(name, n, made, [n.model])


def table(args, head, names, make):
    """Its cells, `head` first; make: function: name -> row."""
    found = [head]
    for name in names:
        there = zoo_entry(name) or os.path.exists(os.path.join(lib.SHARED, 'models', name, 'model.onnx'))
        if there and (not args.names or name in args.names):
            try:
                found.append(make(name))
            except RuntimeError as e:
                found.append([name, str(e).replace('|', '/')] + [''] * (len(head) - 2))
            shutil.rmtree(os.path.join(args.build, 'int8', name), ignore_errors=True)
            print(' | '.join(found[-1]), flush=True)
    return found


def tables(args, image, extra):
    """Of convolutional networks, and of networks of products. image: function: low, high -> what makes a sample."""
    return (table(args, HEAD, NETWORKS, lambda name: static_row(args, name, image(*NETWORKS[name]), extra)),
            table(args, PRODUCTS_HEAD, PRODUCTS, lambda name: products_row(args, name, extra)))
