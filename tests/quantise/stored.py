# SPDX-License-Identifier: Apache-2.0
"""What libraries are made of: weights packed without much filling, in the bytes that they have, nothing twice. Targets are
named, so that sizes do not depend on the CPU at hand; nothing is run on them."""
import json

import numpy as np

from shared import STATIC, Network, samples_of

TARGETS = ('x86-64-v3', 'icelake-server', 'neoverse-v1')
FILLING = 1200  # bytes: of a few constants up to whole cache lines


def weights_bytes(p, model, *options):
    p.cytoc(model, '-o', p.path('s.o'), '--stats=' + p.path('s.json'), *options)
    with open(p.path('s.json'), encoding='utf-8') as f:
        return json.load(f)['weights_bytes']


def up(n, step):
    return (n + step - 1) // step * step


def narrow_panels(p):
    """Products whose columns fill no panel: filled up to fours, in floats and halves; integers have 4 bytes a column for
    the sum of its weights, which vectors read whole, and two scales."""
    sizes = ((48, 144), (144, 6), (6, 258), (258, 97), (97, 1))
    n, x = Network(31), 'x'
    for k, c in sizes:
        x = n.op('Relu', n.op('MatMul', x, n.weight(k, c)))
    model = n.save(p.path('m.onnx'), [('x', [32, sizes[0][0]])], [(n.nodes[-1].output[0], [32, 1])])
    np.savez(p.path('c.npz'), x=np.concatenate(samples_of((32, sizes[0][0]), 4)))
    for target in TARGETS:
        for option, most in (('-O3', sum(k * up(c, 4) * 4 for k, c in sizes)),
                             ('--fp16', sum(k * up(c, 4) * 2 for k, c in sizes)),
                             ('--int8=static', sum(up(k, 4) * up(c, 4) + 4 * up(c, 16) + 8 * c for k, c in sizes))):
            if option == '--int8=static' and target != 'icelake-server':  # others take dot2, or split weights
                continue
            got = weights_bytes(p, model, '--target=' + target, option,
                                *(['--int8-prefer=size', '--calibrate=' + p.path('c.npz')] if '8' in option else []))
            if got > most + FILLING:
                return '%s %s: %d bytes of weights, at most %d expected' % (target, option, got, most + FILLING)
    return None


def depthwise_once(p):
    """A byte for each weight of a depthwise layer, kernel columns being filled up to fours; and numbers per channel."""
    for k, c in ((3, 48), (5, 128), (3, 40)):
        n = Network(32)
        x = n.op('Relu', n.conv('x', c, c, k=k, group=c))
        n.op('Relu', n.conv(x, c, c, k=k, group=c))
        model = n.save(p.path('m.onnx'), [('x', [1, c, 20, 20])], [(n.nodes[-1].output[0], [1, c, 20, 20])])
        np.savez(p.path('c.npz'), x=np.concatenate(samples_of((1, c, 20, 20), 4)))
        got = weights_bytes(p, model, '--target=icelake-server', *STATIC, '--calibrate=' + p.path('c.npz'))
        most = 2 * up(c, 16) * (k * up(k, 4) + 16) + FILLING
        if got > most:
            return '%dx%d, %d channels: %d bytes of weights, at most %d expected' % (k, k, c, got, most)
    return None


def equal_constants(p):
    """Equal constants share their bytes where no pass has merged them."""
    n, x = Network(33), 'x'
    values = n.rng.standard_normal(2000)
    for k in range(6):
        x = n.op('Add', x, n.constant(values))
    model = n.save(p.path('m.onnx'), [('x', [2, 2000])], [(x, [2, 2000])])
    got = weights_bytes(p, model, '-O0')
    return None if got < 2 * 2000 * 4 else '%d bytes of weights for 6 equal constants of %d' % (got, 2000 * 4)


def shared_numbers(p):
    """The polynomial of an activation in 16 bits has the same coefficients in all kernels: each once in a library."""
    n, x = Network(34), 'x'
    for k, (c, o) in enumerate(((3, 32), (32, 64), (64, 96), (96, 32), (32, 48), (48, 128))):
        y = n.conv(x, c, o, k=3 if k % 2 == 0 else 1)
        x = n.op('Mul', y, n.op('Sigmoid', y))
    model = n.save(p.path('m.onnx'), [('x', [1, 3, 32, 32])], [(x, [1, 128, 32, 32])])
    np.savez(p.path('c.npz'), x=np.concatenate(samples_of((1, 3, 32, 32), 4)))
    p.cytoc(model, '-o', p.path('m.so'), '--target=icelake-server', *STATIC, '--calibrate=' + p.path('c.npz'), '-j', '4')
    with open(p.path('m.so'), 'rb') as f:
        data = f.read()
    counts = [data.count(np.full(32, c, np.int16).tobytes()) for c in (-19717, 4822, 9402, -19491, 19815)]
    return None if max(counts) == 1 else 'coefficients are there %s times' % counts


TESTS = [narrow_panels, depthwise_once, equal_constants, shared_numbers]
