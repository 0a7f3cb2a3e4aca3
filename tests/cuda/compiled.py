# SPDX-License-Identifier: Apache-2.0
"""Models whose kernels NVRTC must compile to machine code: cytoc refuses kernels that spill or have a stack; and figures that
--explain must show of some.

In:  the table below: operators whose windows, lists or branches were or may be more than registers hold, with sizes that
     only the run tells. NVRTC of the active environment (requirements-cuda.txt), or any other that cytoc finds.
Out: the closing line; a line for each model, at -O0 and -O3. Skipped without NVRTC.
"""
import os
import re
import sys

import numpy as np
from onnx import TensorProto
from onnx import helper as h

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), 'bench', 'cuda')]
import cuda_sass
import graphs
import lib
import network

ARCH = 'sm_89'
LEVELS = ('-O0', '-O3')
CASES = []


def case(name, nodes, ports, constants=(), opset=21):
    CASES.append((name, graphs.model_of(nodes, ports, [graphs.port('y', TensorProto.FLOAT, None)], constants, opset=opset)))


def resizes():
    """Each mode, all sizes unknown, so that all axes may be resized."""
    for rank in (3, 4, 5):
        x, sizes = graphs.port('x', np.float32, ['d%d' % i for i in range(rank)]), graphs.port('s', np.int64, [rank])
        for mode, attributes in (('nearest', {}), ('linear', {}), ('cubic', {}), ('cubic', {'exclude_outside': 1}),
                                 ('linear', {'antialias': 1}), ('cubic', {'antialias': 1}),
                                 ('linear', {'coordinate_transformation_mode': 'tf_crop_and_resize'}),
                                 ('cubic', {'coordinate_transformation_mode': 'tf_crop_and_resize'})):
            crop = 'coordinate_transformation_mode' in attributes
            said = ' '.join(str(v) if k[0] == 'c' else k for k, v in attributes.items())
            case('Resize %s %s, rank %d' % (mode, said, rank),
                 [h.make_node('Resize', ['x', 'r' if crop else '', '', 's'], ['y'], mode=mode, **attributes)],
                 [x, sizes] + [graphs.port('r', np.float32, [2 * rank])] * crop)


def samples():
    for mode in ('nearest', 'linear', 'cubic'):
        for rank in (2, 3) if mode != 'cubic' else (2,):
            case('GridSample %s, %d axes' % (mode, rank), [h.make_node('GridSample', ['x', 'g'], ['y'], mode=mode)],
                 [graphs.port('x', np.float32, ['d%d' % i for i in range(rank + 2)]),
                  graphs.port('g', np.float32, ['d0', *['e%d' % i for i in range(rank)], rank])], opset=20)


def lookups():
    """Checks of indices; and a convolution that cuDNN may compute, beside which the kernel stands that compares results."""
    for kind in (np.int32, np.int64):
        case('Gather %s' % kind.__name__, [h.make_node('Gather', ['x', 'i'], ['y'])],
             [graphs.port('x', np.float32, ['n', 'm']), graphs.port('i', kind, ['a', 'b'])])
    weights = [graphs.constant('w', np.ones((16, 8, 3, 3), np.float32))]
    case('Conv', [h.make_node('Conv', ['x', 'w'], ['y'])], [graphs.port('x', np.float32, ['n', 8, 'h', 'w'])], weights)


def check(args, work, model):
    path = os.path.join(work, 'm.onnx')
    with open(path, 'wb') as f:
        f.write(model.SerializeToString())
    for level in LEVELS:
        why = network.compile_model(args, path, os.path.join(work, 'm.so'), level, ['--target=' + ARCH])
        if why:
            return why
    return None


def explained(args, work, nodes, x, constants, options=('--fp16',)):
    """(why not, what --explain says) of a model on sm_90a."""
    path = os.path.join(work, 'm.onnx')
    model = graphs.model_of(nodes, [x], [graphs.port('y', TensorProto.FLOAT, None)], constants)
    with open(path, 'wb') as f:
        f.write(model.SerializeToString())
    said = []
    why = network.compile_model(args, path, os.path.join(work, 'm.so'), '-O3',
                                ['--target=sm_90a', '--explain', '--cudnn=off', '--cublaslt=off', *options], said=said)
    return why, said[0] if said else ''


def few_columns(args, work):
    """Few output channels and many pixels: rows enough for a large tile, of as many columns as there are; f32 has such, too."""
    for channels, options, tile in ((16, ['--fp16'], 'matrix 128x16'), (32, ['--fp16'], 'matrix 128x32'), (16, [], 'fma 128x16'),
                                    (3, [], 'narrow'), (3, ['--fp16'], 'narrow')):
        weights = [graphs.constant('w', np.ones((channels, 16, 3, 3), np.float32))]
        why, said = explained(args, work, [h.make_node('Conv', ['x', 'w'], ['y'], pads=[1, 1, 1, 1])],
                              graphs.port('x', np.float32, [1, 16, 256, 256]), weights, options)
        if why or tile not in said:
            return why or 'no %s for %d channels: %s' % (tile, channels, said)
    return None


def transposed(args, work):
    """Transposed convolutions multiply no more than 1.3 times what is useful."""
    for channels, filters, size, kernel in ((32, 2, [32] * 3, 3), (64, 16, [16] * 3, 3), (128, 32, [8] * 3, 3), (256, 128, [16] * 2, 2),
                                            (64, 32, [64] * 2, 4)):
        weights = [graphs.constant('w', np.ones([channels, filters] + [kernel] * len(size), np.float32))]
        pads = [(kernel - 1) // 2] * 2 * len(size)
        node = h.make_node('ConvTranspose', ['x', 'w'], ['y'], strides=[2] * len(size), pads=pads, output_padding=[kernel % 2] * len(size))
        why, said = explained(args, work, [node], graphs.port('x', np.float32, [1, channels, *size]), weights)
        found = re.search(r'_conv_transpose .*?\s([\d.]+)\s+[\d.]+\s+[\d.]+ (?:mem|fma).*\n.*multiplies ([\d.]+) MFLOP', said)
        if why or not found or float(found[2]) > 1.3 * float(found[1]):
            return why or '%d -> %d of %s: %s' % (channels, filters, size, said)
    return None


def blocks(args, work):
    """A product of one row has a block for each of the 132 multiprocessors where k allows."""
    for n, k in ((768, 768), (768, 3072), (2304, 768), (4096, 4096), (1000, 768)):
        weights = [graphs.constant('w', np.ones([k, n], np.float32))]
        why, said = explained(args, work, [h.make_node('MatMul', ['x', 'w'], ['y'])], graphs.port('x', np.float32, [1, k]), weights)
        found = re.search(r'gemv.*\n.*?(\d+) blocks, ', said)
        if why or not found or int(found[1]) < 132:
            return why or '%d x %d: %s' % (k, n, said)
    return None


def in_turns(args, work):
    """Warpgroups multiply in turns where ends of tiles take long and a multiprocessor has several, and nowhere else."""
    for rows, function, wanted in ((1024, 'Gelu', True), (128, 'Gelu', False), (1024, 'Relu', False)):
        weights = [graphs.constant('w', np.ones([768, 3072], np.float32))]
        nodes = [h.make_node('MatMul', ['x', 'w'], ['p']), h.make_node(function, ['p'], ['y'])]
        why, said = explained(args, work, nodes, graphs.port('x', np.float32, [rows, 768]), weights)
        if why or 'tma 128x' not in said or ('ping-pong on sm_90a' in said) != wanted:
            return why or '%d rows, %s: %s' % (rows, function, said)
    return None


WAIT, BEGIN = 0x82e, 0x82d  # ACQBULK, PREEXIT
MEMORY = {0x381, 0x981, 0x386, 0x986, 0xfae, 0x94d}  # LDG, STG, LDGSTS; EXIT


def early(args, work):
    """Kernels for sm_90a that may be launched early wait before they touch memory or leave, and then let the next one begin."""
    cubin = os.path.join(work, 'd.cubin')
    why = network.compile_model(args, os.path.join(HERE, 'data', 'decoder.onnx'), cubin, '-O3', ['--target=sm_90a', '--fp16', '--emit=cubin', '--cudnn=off', '--cublaslt=off'])
    if why:
        return why
    for name, words in cuda_sass.sections(cubin).items():
        codes = [low & 0xfff for low, _ in words]
        first = next(i for i, code in enumerate(codes) if code in MEMORY)
        if not name.endswith('_tma') and not (WAIT in codes and codes.index(WAIT) < codes.index(BEGIN) < first):
            return '%s: %s' % (name, ' '.join('%x' % code for code in codes[:first + 1]))
    return None


def main():
    args = lib.arguments(__doc__)
    os.environ.setdefault('VIRTUAL_ENV', sys.prefix)  # NVRTC may be there
    suite = lib.Suite(args)
    for family in (resizes, samples, lookups):
        family()
    work = os.path.join(args.build, 'cuda-compiled')
    os.makedirs(work, exist_ok=True)
    missing = next((why for why in [check(args, work, CASES[0][1])] if why and 'libnvrtc' in why and 'not found' in why), None)
    for name, model in CASES:
        if not args.wanted(name):
            continue
        if missing:
            suite.skip(name, missing)
        else:
            suite.result(name, check(args, work, model))
    for name, figures in (('few columns', few_columns), ('transposed convolutions', transposed), ('blocks of one row', blocks),
                          ('early launches', early), ('warpgroups in turns', in_turns)):
        if not missing and args.wanted(name):
            suite.result(name, figures(args, work))
    suite.done()


if __name__ == '__main__':
    main()
