"""Times of convolutional networks quantised by --int8=static beside ONNX Runtime: a table of RESULTS-int8.md.

In:  networks of ../shared/zoo, which get random weights, and of ../shared/models; what makes their samples (int8.py).
Out: a row per network: our float library, our static one, ONNX Runtime with the model and with what `cytoc quantize`
     makes of it. Contenders take turns, a process each time, and every figure is a median over ROUNDS processes of the
     median of their runs. One thread.
"""
import json
import os
import re
import shutil
import statistics
import sys

import numpy as np

import lib

NETWORKS = {'resnet50': (-2, 2), 'densenet121': (-2, 2), 'vgg16': (-2, 2), 'mobilenet_v2': (-2, 2), 'yolox_nano': (0, 255)}
ROUNDS, SECONDS, SAMPLES = 5, 0.5, 4
HEAD = ['network', 'float ms', 'static: layers', 'ms', 'speed', 'ONNX Runtime: float ms', 'speed', 'QDQ ms', 'speed']


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


class Network:
    def __init__(self, args, name, picture):
        """picture: function: generator of random numbers, shape -> sample."""
        self.args, self.root, self.options = args, os.path.join(args.build, 'int8', name), []
        shutil.rmtree(self.root, ignore_errors=True)
        os.makedirs(self.path('samples'))
        entry, self.model = zoo_entry(name), os.path.join(lib.SHARED, 'models', name, 'model.onnx')
        if entry:
            self.model, port = self.path('model.onnx'), entry['inputs'][0]
            zoo = os.path.join(lib.SHARED, 'zoo')
            run([sys.executable, os.path.join(zoo, 'materialize.py'), os.path.join(zoo, entry['file']), self.model])
            shape = port['test_shape']
            if shape != port['shape']:
                self.options = ['--shape', port['name'] + '=' + 'x'.join(map(str, shape))]
        else:
            shape = (1, 3, 416, 416)
        rng = np.random.default_rng(1)
        for i in range(SAMPLES):
            np.save(self.path('samples', 's%d.npy' % i), picture(rng, shape))

    def path(self, *names):
        return os.path.join(self.root, *names)

    def compile(self, name, *options):
        """(library, what cytoc said)"""
        return self.path(name), run([self.args.cytoc, self.model, '-o', self.path(name), *self.options, '--explain', *options])

    def ours(self, library):
        def measure(repeat):
            text = run([self.args.cyto_run, library, '--random', '1', '--threads', '1', '--repeat', str(repeat)])
            return float(re.search(r'runs: min [0-9.]+ ms, median ([0-9.]+)', text).group(1))
        repeat = max(3, int(SECONDS * 1e3 / max(measure(3), 0.01)))
        return lambda: measure(repeat)

    def theirs(self, model):
        command = [sys.executable, os.path.join(lib.ROOT, 'tools', 'bench_ort.py'), model, '1', str(SECONDS), '1', *self.options]
        return lambda: float(run(command).split()[2])

    def row(self, name, extra):
        calibrate = '--calibrate=' + self.path('samples')
        target = [option for option in extra if option.startswith('--target=')]
        floats, _ = self.compile('float.so', *target)
        static, table = self.compile('static.so', '--int8=static', calibrate, *extra)
        run([self.args.cytoc, 'quantize', self.model, '-o', self.path('qdq.onnx'), calibrate, *self.options])
        contenders = [self.ours(floats), self.ours(static), self.theirs(self.model), self.theirs(self.path('qdq.onnx'))]
        rounds = [[measure() for measure in contenders] for _ in range(ROUNDS)]
        times = [statistics.median(column) for column in zip(*rounds)]
        cells = [name, '%.1f' % times[0], '/'.join(re.search(r'(\d+) of (\d+) layers in int8', table).groups())]
        for time in times[1:]:
            cells += ['%.1f' % time, '%.2f' % (times[0] / time)]
        shutil.rmtree(self.root, ignore_errors=True)
        return cells


def rows(args, picture, extra):
    """The table's cells, HEAD first. picture: function: low, high -> what makes a sample."""
    found = [HEAD, ['---'] + ['---:'] * (len(HEAD) - 1)]
    for name, (low, high) in NETWORKS.items():
        there = zoo_entry(name) or os.path.exists(os.path.join(lib.SHARED, 'models', name, 'model.onnx'))
        if there and (not args.names or name in args.names):
            try:
                found.append(Network(args, name, picture(low, high)).row(name, extra))
            except RuntimeError as e:
                found.append([name, str(e).replace('|', '/')] + [''] * (len(HEAD) - 2))
            print(' | '.join(found[-1]), flush=True)
    return found
