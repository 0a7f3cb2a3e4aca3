# SPDX-License-Identifier: Apache-2.0
"""Models whose kernels NVRTC must compile to machine code: cytoc refuses kernels that spill or have a stack.

In:  the table below: operators whose windows, lists or branches were or may be more than registers hold, with sizes that
     only the run tells. NVRTC of the active environment (requirements-cuda.txt), or any other that cytoc finds.
Out: the closing line; a line for each model, at -O0 and -O3. Skipped without NVRTC.
"""
import os
import sys

import numpy as np
from onnx import TensorProto
from onnx import helper as h

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
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


def few_columns(args, work):
    """Few output channels and many pixels: rows enough for a large tile, which no other one would have fewer empty columns."""
    path = os.path.join(work, 'm.onnx')
    weights = [graphs.constant('w', np.ones((16, 16, 3, 3), np.float32))]
    model = graphs.model_of([h.make_node('Conv', ['x', 'w'], ['y'], pads=[1, 1, 1, 1])], [graphs.port('x', np.float32, [1, 16, 256, 256])],
                            [graphs.port('y', TensorProto.FLOAT, None)], weights)
    with open(path, 'wb') as f:
        f.write(model.SerializeToString())
    said = []
    why = network.compile_model(args, path, os.path.join(work, 'm.so'), '-O3',
                                ['--target=sm_90a', '--fp16', '--explain', '--cudnn=off'], said=said)
    return why or (None if 'matrix 128x64' in said[0] else 'no tile of 128x64: ' + said[0])


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
    if not missing and args.wanted('few columns'):
        suite.result('few columns', few_columns(args, work))
    suite.done()


if __name__ == '__main__':
    main()
