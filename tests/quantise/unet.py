# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions in integers, as decoders of U-Nets have them."""
import re

import numpy as np
import onnx

from qdq_files import qdq_file
from shared import STATIC, Network, samples_of, snr


def unet(path, uneven=False):
    """Two levels: pixel shuffle without overlap, and by a longer kernel; what was kept comes in by a concatenation or a
    sum. uneven: channels of very different size meet the first one."""
    n = Network(23)
    up = lambda x, c, o, k, **way: n.op('ConvTranspose', x, n.weight(c, o, k, k, scale=c ** -0.5), n.weight(o, scale=0.1),
                                        strides=[2, 2], **way)
    a = n.op('Relu', n.conv('x', 3, 16))
    b = n.op('Relu', n.conv(a, 16, 24, strides=[2, 2]))
    c = n.op('Relu', n.conv(b, 24, 32, strides=[2, 2]))
    if uneven:
        c = n.op('Mul', c, n.constant(np.geomspace(0.05, 5, 32).reshape(1, 32, 1, 1)))
    c = n.op('Concat', b, n.op('Relu', up(c, 32, 24, 2)), axis=1)
    c = n.op('Relu', n.conv(c, 48, 24))
    c = n.op('Relu', n.op('Add', up(c, 24, 16, 3, pads=[1] * 4, output_padding=[1, 1]), a))
    n.conv(c, 16, 4, k=1)
    return n.save(path, [('x', ['batch', 3, 32, 32])], [(n.nodes[-1].output[0], ['batch', 4, 32, 32])])


def upsampler(path):
    """Sizes are symbols: whole places are known all the same."""
    n = Network(29)
    x = n.op('Relu', n.op('ConvTranspose', n.conv('x', 3, 40), n.weight(40, 20, 2, 2, scale=0.15), strides=[2, 2]))
    n.op('ConvTranspose', x, n.weight(20, 16, 3, 3, scale=0.2), strides=[2, 2], pads=[1] * 4, output_padding=[1, 1])
    return n.save(path, [('x', ['batch', 3, 'h', 'w'])], [(n.nodes[-1].output[0], ['batch', 16, None, None])])


def unet_dynamic(p):
    """A scale per image."""
    for make, layers in ((unet, 7), (upsampler, 3)):
        model = make(p.path('m.onnx'))
        text = p.cytoc(model, '-o', p.path('q.so'), '--int8', '--int8-prefer=size', '--explain')
        if '%d of %d layers in int8' % (layers, layers) not in text or 'conv_transpose' in text:
            return text[-900:]
        x = samples_of((3, 3, 32, 32), 1)[0]
        x[1] *= 1e-4
        wanted, got = p.run(p.library(model, 'f'), x)[0], p.run(p.path('q.so'), x)[0]
        worst = min(snr(wanted[i], got[i]) for i in range(3))
        if worst < 30:
            return '%s: an image has %.1f dB only' % (make.__name__, worst)
    return None


def unet_static(p):
    """Bytes throughout; where channels differ in size, weights take the difference."""
    for uneven, least in ((False, 30), (True, 28)):
        model, test = unet(p.path('m.onnx'), uneven), samples_of((2, 3, 32, 32), 1, 9)[0]
        np.savez(p.path('c.npz'), x=samples_of((3, 32, 32), 8))
        options = [*STATIC, '--calibrate=' + p.path('c.npz')]
        text = p.cytoc(model, *options, '--stop-after=requantise_late')
        for expression in (r'= conv .*shuffle=\[2,2\]\} : i32', r'= concat .*: u8'):
            if not re.search(expression, text):
                return "nothing like '%s' in the graph" % expression
        if 'conv_transpose' in text:
            return 'a transposed convolution of floats is left'
        got = snr(p.run(p.library(model, 'f'), test)[0], p.run(p.library(model, 'q', *options), test)[0])
        if got < least:
            return '%s: %.1f dB' % ('uneven' if uneven else 'even', got)
    return None


def unet_qdq(p):
    """A scale per output channel, which is another axis of these weights; errors of the whole are judged, too."""
    why = qdq_file(p, unet, {'x': samples_of((2, 3, 32, 32), 1, 9)[0]}, {'x': samples_of((3, 32, 32), 16)})
    graph = onnx.load(p.path('m.qdq.onnx')).graph
    made = {n.output[0]: n for n in graph.node}
    axes = [made[n.input[1]].attribute[0].i for n in graph.node if n.op_type == 'ConvTranspose']
    if why or axes != [1, 1]:
        return why or 'scales of transposed convolutions along %s' % axes
    text = p.cytoc('quantize', p.path('m.onnx'), '-o', p.path('m.qdq.onnx'), '--calibrate=' + p.path('c.npz'), '--explain')
    return None if re.search('ConvTranspose.* int8', text) else text[-900:]


TESTS = [unet_dynamic, unet_static, unet_qdq]
