# SPDX-License-Identifier: Apache-2.0
"""Networks that come quantised in part: what is left in float is quantised as in any other model, and what is learnt of a
layer from one form of the graph is used for that layer in the next. Passes rewrite the quantised part by what the target
does (activations in 16-bit integers, for one), so the forms that run on samples must go through the very same."""
import re

import numpy as np

from shared import STATIC, Network, samples_of, snr

CHANNELS, SIZE = 32, 16


def silu(n, x):
    return n.op('Mul', x, n.op('Sigmoid', x))


def gelu(n, x):
    erf = n.op('Erf', n.op('Div', x, n.constant(2 ** 0.5)))
    return n.op('Mul', n.op('Mul', x, n.op('Add', erf, n.constant(1.0))), n.constant(0.5))


ACTIVATIONS = {'silu': silu, 'relu': lambda n, x: n.op('Relu', x), 'gelu': gelu,
               'leaky_relu': lambda n, x: n.op('LeakyRelu', x, alpha=0.1), 'hard_swish': lambda n, x: n.op('HardSwish', x)}


def rounded(n, x, step, zero):
    scale, point = n.constant(step), n.const(zero, np.uint8)
    return n.op('DequantizeLinear', n.op('QuantizeLinear', x, scale, point), scale, point)


def mixed(path, activation, outputs=1):
    """Two 1x1 convolutions in QDQ form with an activation between them, two 3x3 ones in float; with two outputs the sum in the
    middle is one, too. The float ones differ much in range, so that one's numbers would not do for the other."""
    n = Network(41)
    weights = [n.op('DequantizeLinear', n.const(n.rng.integers(-90, 91, (CHANNELS, CHANNELS, 1, 1)), np.int8), n.constant(0.004),
                    n.const(0, np.int8)) for _ in range(2)]
    x = n.op('Conv', rounded(n, 'x', 0.03, 128), weights[0])
    x = n.op('Conv', rounded(n, ACTIVATIONS[activation](n, x), 0.03, 20), weights[1])
    middle = n.op('Relu', n.op('Mul', n.conv(x, CHANNELS, CHANNELS), n.constant(30.0)))
    y = n.conv(middle, CHANNELS, 2 * CHANNELS)
    dims = ['batch', None, SIZE, SIZE]
    return n.save(path, [('x', ['batch', CHANNELS, SIZE, SIZE])], [(y, dims), (x, dims)][:outputs])


def check(p, model, outputs, wanted, xs, name, *options):
    """Both float layers are quantised, and outputs are as good as the table says."""
    text = p.cytoc(model, '-o', p.path('q.so'), '--explain', '--verify', '--calibrate=' + p.path('c.npz'), *options)
    ratios = re.findall(r"^output '\S+': signal-to-noise ratio ([0-9.]+) dB$|^output '\S+': (as in float)$", text, re.M)
    if '2 of 2 layers in' not in text or (len(ratios) != outputs and '--fp16' not in options):
        return '%s: %s' % (name, text[-900:])
    found = [snr(*pair) for pair in zip(wanted, p.run(p.path('q.so'), xs))]
    told = [float(r[0]) for r in ratios if r[0]]
    if min(found) < 30 or (told and abs(min(found) - min(told)) > 1):
        return '%s: %s dB, in the table %s' % (name, found, told)
    return None


def mixed_networks(p):
    """SiLU and five relatives, as integers and as halves, measured or not."""
    xs = np.stack(samples_of((CHANNELS, SIZE, SIZE), 8))
    np.savez(p.path('c.npz'), x=xs[:, None])
    for name, outputs in [(a, 1) for a in ACTIVATIONS] + [('silu', 2)]:
        model = mixed(p.path('m.onnx'), name, outputs)
        wanted = p.run(p.library(model, 'f', '-O0'), xs)
        for options in (STATIC, [*STATIC, '--fast-algorithms=off'], ['--int8=dynamic', '--int8-prefer=size', '--int8-min-snr=20'],
                        ['--fp16', '--half-max-error=1%']):
            why = check(p, model, outputs, wanted, xs, ' '.join([name, *options]), *options)
            if why:
                return why
        for target in ('x86-64-v3', 'icelake-server', 'aarch64', 'sm_89'):  # whose passes differ, here only compiled
            p.cytoc(model, '--emit=graph', '-o', p.path('g.txt'), '--verify', '--target=' + target, *STATIC, '--calibrate=' + p.path('c.npz'))
    return None


def one_import(p):
    """The file is read once, and passes in front of the one that quantises run once."""
    model = mixed(p.path('m.onnx'), 'silu')
    np.savez(p.path('c.npz'), x=np.stack(samples_of((1, CHANNELS, SIZE, SIZE), 2)))
    text = p.cytoc(model, '-o', p.path('m.so'), *STATIC, '--calibrate=' + p.path('c.npz'), '--stats')
    names = re.findall(r'^(\w+) +[0-9.]+$', text, re.M)
    if names != ['import', 'passes', 'calibrate', 'lower', 'so']:
        return 'stages: %s' % names
    text = p.cytoc(model, *STATIC, '--calibrate=' + p.path('c.npz'), '--stop-after=cse')  # nothing to learn yet
    return text[-300:] if 'dequantize' not in text and 'conv' not in text or 'warning' in text else None


TESTS = [mixed_networks, one_import]
