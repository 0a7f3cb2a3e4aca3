# SPDX-License-Identifier: Apache-2.0
"""Accuracy, size and time of quantised networks beside their float form; writes tests/bench/results/RESULTS-int8.md.

In:  examples/digits and, where present, trained networks of ../shared/models. Inputs are made here: images of slow light
     with edges (1/f noise and rectangles), sounds (voiced pulses in noise), bytes of files that are made up; 16 samples to
     calibrate with and 4 others to judge by. Options of cytoc that follow the names are passed on to static quantisation.
Out: a row per network: signal-to-noise ratio of the outputs or right answers, library sizes, times; the table of
     int8_networks.py, times beside ONNX Runtime.
"""
import argparse
import glob
import os
import re
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import numpy as np

import int8_networks
import lib
import results

CALIBRATE, TEST, REPEAT = 16, 4, 15


def slow(rng, *shape):
    """Noise whose amplitude falls with frequency."""
    f = np.sqrt(sum(np.fft.fftfreq(n).reshape([-1 if i == k else 1 for i in range(len(shape))]) ** 2
                    for k, n in enumerate(shape)))
    f.flat[0] = 1
    return np.fft.ifftn(np.fft.fftn(rng.standard_normal(shape)) / f ** 1.2).real


def image(low, high):
    """Of any number of axes."""
    def make(rng, shape):
        c, *sizes = shape[1:]
        base = slow(rng, *sizes)
        x = np.stack([base + 0.4 * slow(rng, *sizes) for _ in range(c)])
        x = (x - x.mean()) / x.std()
        for _ in range(12):
            first, counts = ([rng.integers(0, n // part) for n in sizes] for part in (1, 2))
            part = x[(slice(None), *(slice(a, a + n) for a, n in zip(first, counts)))]
            part[:] = 0.3 * part + rng.standard_normal((c,) + (1,) * len(sizes))
        x = np.clip(x / 5 + 0.5, 0, 1) * (high - low) + low
        return np.float32(x)[None]
    return make


def sound(rng, shape):
    t = np.arange(shape[-1]) / 16000
    voice = sum(np.sin(2 * np.pi * k * rng.uniform(90, 250) * t + rng.uniform(0, 6)) / k for k in range(1, 12))
    return np.float32((voice * rng.uniform(0.01, 0.2) + rng.standard_normal(len(t)) * rng.uniform(0.001, 0.03)).reshape(shape))


def small(scale):
    return lambda rng, shape: np.float32(rng.standard_normal(shape) * scale)


def always(value, dtype):
    return lambda rng, shape: np.full(shape, value, dtype)


def file_bytes(rng, shape):
    """Beginning and end of a file that is made up: a table, settings, markup, a program, prose, numbers as they lie in memory."""
    words = [''.join(chr(97 + c) for c in rng.integers(0, 26, rng.integers(2, 9))) for _ in range(200)]
    word, number = lambda: words[rng.integers(0, len(words))], lambda: int(rng.integers(0, 10000))
    forms = (lambda: ','.join(str(number()) for _ in range(6)), lambda: '  "%s": {"%s": %d},' % (word(), word(), number()),
             lambda: '<p class="%s">%s</p>' % (word(), word()),
             lambda: 'static int %s(int %s) { return %s + %d; }' % (word(), words[0], words[0], number()),
             lambda: ' '.join(word() for _ in range(12)).capitalize() + '.',
             lambda: np.float32(rng.standard_normal(15)).tobytes().decode('latin-1'))
    form, lines = forms[rng.integers(0, len(forms))], rng.integers(5, 80)
    data, half = '\n'.join(form() for _ in range(lines)).encode('latin-1'), shape[1] // 2
    return np.int32(list(data.ljust(half, b' ')[:half]) + list(data.rjust(half, b' ')[-half:]))[None]


# network: its inputs' shapes and makers, in order
NETWORKS = {
    'yolox_nano': [((1, 3, 416, 416), image(0, 255))],
    'ultraface_rfb320': [((1, 3, 240, 320), image(-1, 1))],
    'ultraface_slim320_simplified': [((1, 3, 240, 320), image(-1, 1))],
    'hand_landmark_lite': [((1, 3, 224, 224), image(0, 1))],
    'face_landmark_mp': [((1, 3, 192, 192), image(0, 1))],
    'vit_cifar_ibp_3_3_8': [((1, 3, 32, 32), image(-2, 2))],
    'silero_vad_v5_ifless': [((1, 576), sound), ((), always(16000, np.int64)), ((2, 1, 128), small(0.3))],
    'magika_v3_3': [((1, 2048), file_bytes)],
    'oww_timer': [((1, 34, 96), small(10))],
}


# networks that read the images of examples/digits
DIGITS = [('digits', 'examples/digits/digits.onnx', False), ('a small vision transformer', 'tests/quantise/vit/vit.onnx', True)]


def snr(wanted, got):
    wanted, got = np.float64(wanted), np.float64(got)
    return 10 * np.log10(max((wanted ** 2).sum(), 1e-30) / max(((wanted - got) ** 2).sum(), 1e-30))


class Bench:
    def __init__(self, args, name, model, inputs):
        self.args, self.model, self.inputs = args, model, inputs
        self.root = os.path.join(args.build, 'int8', name)
        shutil.rmtree(self.root, ignore_errors=True)
        rng = np.random.default_rng(1)
        for i in range(CALIBRATE + TEST):
            folder = os.path.join(self.root, 'calibrate' if i < CALIBRATE else 'test', 's%02d' % i)
            os.makedirs(folder)
            for k, (shape, make) in enumerate(inputs):
                np.save(os.path.join(folder, 'in_%d_.npy' % k), make(rng, shape))

    def library(self, kind, *options):
        path = os.path.join(self.root, kind + '.so')
        code, out, err = lib.run([self.args.cytoc, self.model, '-o', path, '--explain', '--stats', *options])
        if code:
            raise RuntimeError(lib.reason(err, code))
        layers, weights = re.search(r'(\d+) of (\d+) layers in int8', out), re.search(r'(?m)^weights ([0-9.]+) MB', out)
        self.weights = float(weights.group(1)) * 1e6
        return path, os.path.getsize(path), '%s/%s' % layers.groups() if layers else ''

    def outputs(self, library, repeat=0):
        """[sample][output], and the least time in ms."""
        results, times = [], []
        for folder in sorted(glob.glob(os.path.join(self.root, 'test', '*'))):
            out = os.path.join(self.root, 'out')
            shutil.rmtree(out, ignore_errors=True)
            code, text, err = lib.run([self.args.cyto_run, library, '--inputs-dir', folder, '--output-dir', out, '--threads', '1',
                                       *(['--repeat', str(repeat)] if repeat else [])])
            if code:
                raise RuntimeError(lib.reason(err, code))
            results.append([np.load(os.path.join(out, f)) for f in sorted(os.listdir(out))])
            times += [float(m) for m in re.findall(r'runs: min ([0-9.]+) ms', text)]
        return results, min(times) if times else 0

    def row(self, name, extra):
        path, size, _ = self.library('float')
        wanted, time = self.outputs(path, REPEAT)
        cells = [name, '%.2f' % time, '%.2f' % (size / 1e6)]
        static = ['--int8=static', '--calibrate=' + os.path.join(self.root, 'calibrate'), *extra]
        for kind, options in (('static', static), ('dynamic', ['--int8=dynamic'])):
            path, now, layers = self.library(kind, *options)
            if layers.startswith('0/'):
                cells += ['-'] * 4
                continue
            got, fast = self.outputs(path, REPEAT)
            each = [snr(np.concatenate([w[k].ravel() for w in wanted]), np.concatenate([g[k].ravel() for g in got]))
                    for k in range(len(wanted[0]))]
            cells += [layers, ' '.join('%.1f' % x for x in each), '%.2f' % fast, '%.2f' % (now / size)]
        _, now, _ = self.library('smallest', *static, '--int8-prefer=size')
        cells += ['%.2f' % (now / size), '%.2f' % (self.weights / size)]
        shutil.rmtree(self.root, ignore_errors=True)
        return cells


def digits(args, name, path, shifts):
    """Right answers on all 360 images, and layers in integers; every third calibrates. shifts: each comes in nine places, a
    pixel apart: so the vision transformer has learned them."""
    data = np.fromfile(os.path.join(lib.ROOT, 'examples', 'digits', 'digits.bin'), np.uint8).reshape(-1, 65)
    images, labels = np.float32(data[:, 1:].reshape(-1, 1, 8, 8)) / 16, data[:, 0]
    calibrate = images[::3]
    if shifts:
        wide = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
        images = np.concatenate([wide[:, :, y:y + 8, x:x + 8] for y in range(3) for x in range(3)])
        labels = np.tile(labels, 9)
    b = Bench(args, name, os.path.join(lib.ROOT, path), [])
    shutil.rmtree(os.path.join(b.root, 'test'))
    os.makedirs(os.path.join(b.root, 'test', 'all'))
    np.save(os.path.join(b.root, 'test', 'all', 'in_0_.npy'), images)
    np.savez(os.path.join(b.root, 'c.npz'), image=calibrate)
    right = {}
    for kind, options in (('float', []), ('static', ['--int8=static', '--calibrate=' + os.path.join(b.root, 'c.npz')]),
                          ('dynamic', ['--int8=dynamic'])):
        library, _, layers = b.library(kind, *options)
        got, _ = b.outputs(library)
        right[kind] = str(int((got[0][0].reshape(len(labels), -1).argmax(1) == labels).sum())) + (layers and ' (%s)' % layers)
    shutil.rmtree(b.root, ignore_errors=True)
    return '%s, %d test images: %s right.' % (name, len(labels), ', '.join('%s %s' % r for r in right.items()))


HEAD = ['network', 'float ms', 'MB', 'static: layers', 'dB', 'ms', 'size', 'dynamic: layers', 'dB', 'ms', 'size', 'smallest',
        'of it weights']


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('names', nargs='*', help='networks (none: all)')
    parser.add_argument('--build', default='build')
    parser.add_argument('--write', action='store_true', help='write RESULTS-int8.md')
    args, extra = parser.parse_known_args()
    args.build = os.path.abspath(args.build)
    args.cytoc, args.cyto_run = (os.path.join(args.build, n) for n in ('cytoc', 'cyto-run'))
    rows = [HEAD]
    for name, inputs in NETWORKS.items():
        model = os.path.join(lib.SHARED, 'models', name, 'model.onnx')
        if os.path.exists(model) and (not args.names or name in args.names):
            try:
                rows.append(Bench(args, name, model, inputs).row(name, extra))
            except RuntimeError as e:
                rows.append([name, str(e).replace('|', '/')] + [''] * (len(HEAD) - 2))
            print(' | '.join(rows[-1]), flush=True)
    text = '\n'.join(digits(args, *network) for network in DIGITS) if not args.names else ''
    print(text)
    convolutional, products = int8_networks.tables(args, image, extra)
    if not args.write:
        return
    head = ('# Quantised networks\n\n`tests/bench/int8.py --write%s`, one thread. First networks of their own: the least of %d runs; '
            'size: of the\nlibrary, float = 1; dB: signal-to-noise ratio of each output against the float library, on %d samples '
            'other than the\n%d that calibrated; -: nothing is quantised; smallest: with --int8-prefer=size, the library and its '
            'weights alone; where\na model comes in f16, so are the weights of its float library.\n\nThen networks beside ONNX Runtime: '
            'medians of %d processes, contenders taking turns; speed and size: our float library =\n1. Weights of the larger networks '
            'and all samples are random. QDQ: the same network by `cytoc quantize`, which ONNX\nRuntime computes in integers where it '
            'can.\n' %
            (' ' + ' '.join(extra) if extra else '', REPEAT * TEST, TEST, CALIBRATE, int8_networks.ROUNDS))
    results.put_section('int8', head, args.cytoc, '\n\n'.join([results.markdown(rows), text, results.markdown(convolutional),
                                                              results.markdown(products)]))


if __name__ == '__main__':
    main()
