"""Makes what is measured on CUDA devices: models and their libraries, in a folder that can be carried to a machine with one.

In:  --build DIR, --save DIR (where), --target (of cytoc; cuda: the common architectures), --size (of the products; 4096);
     names (regular expressions) to restrict it; ../shared/zoo.
Out: NAME.onnx and NAME.so in the folder, cyto-bench, and run.sh, which measures them there and appends the section to
     RESULTS-cuda.md in the folder (or where its argument says): it needs the driver and libjansson, and PyTorch for
     comparisons.

products_N    eight products of N x N matrices of f16 in a row
normalise_N   eight layer normalisations of N rows of N elements of f16 in a row
Both begin with few inputs and end with one number, so that little goes to the device and back. Networks of the zoo are
converted to f16; their inputs and outputs stay f32.
"""
import os
import shutil
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import lib

NETWORKS = [('resnet50', 1), ('resnet50', 16), ('mobilenet_v2', 1), ('bert_base', 1), ('vit_b_16', 1), ('unet3d_monai', 1)]
REPEATS, RANK = 8, 64


def chain(size, path, op):
    """x (size x RANK) makes a matrix of size x size, `op` follows on itself REPEATS times, the mean comes out."""
    rng, nodes, weights = np.random.default_rng(1), [], []

    def weight(name, *shape, scale):
        value = (rng.standard_normal(shape, dtype=np.float32) * scale).astype(np.float16)
        weights.append(numpy_helper.from_array(value, name))
        return name
    nodes.append(helper.make_node('MatMul', ['x', weight('w', RANK, size, scale=RANK ** -0.5)], ['h0']))
    if op == 'MatMul':
        more = [weight('square', size, size, scale=size ** -0.5)]
    else:
        more = [weight('gain', size, scale=1), weight('shift', size, scale=1)]
    for i in range(REPEATS):
        nodes.append(helper.make_node(op, ['h%d' % i, *more], ['h%d' % (i + 1)]))
    nodes.append(helper.make_node('ReduceMean', ['h%d' % REPEATS], ['y'], keepdims=0))
    graph = helper.make_graph(nodes, op, [helper.make_tensor_value_info('x', TensorProto.FLOAT16, [size, RANK])],
                              [helper.make_tensor_value_info('y', TensorProto.FLOAT16, [])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8), path)


def network(name, batch, path):
    """False: there is no such network here."""
    from onnxruntime.transformers.float16 import convert_float_to_float16
    zoo = os.path.join(lib.SHARED, 'zoo')
    if not os.path.exists(os.path.join(zoo, name + '.onnx')):
        return False
    subprocess.run([sys.executable, os.path.join(zoo, 'materialize.py'), os.path.join(zoo, name + '.onnx'), path],
                   check=True, stdout=subprocess.DEVNULL)
    model = onnx.load(path)
    if batch > 1:
        del model.graph.value_info[:]
        for port in [*model.graph.input, *model.graph.output]:
            port.type.tensor_type.shape.dim[0].dim_value = batch
    onnx.save(convert_float_to_float16(model, keep_io_types=True, disable_shape_infer=True), path)
    return True


def carry(args, libraries):
    """What runs there."""
    root = os.path.dirname(os.path.dirname(HERE))
    for folder in ('bin', os.path.join('share', 'cyto')):
        os.makedirs(os.path.join(args.save, folder), exist_ok=True)
    shutil.copy(os.path.join(args.build, 'cyto-bench'), os.path.join(args.save, 'bin'))
    for script in ('bench_torch.py', 'bench_common.py'):
        shutil.copy(os.path.join(root, 'tools', script), os.path.join(args.save, 'share', 'cyto'))
    path = os.path.join(args.save, 'run.sh')
    with open(path, 'w', encoding='utf-8') as f:
        f.write('#!/bin/sh\n# Measures what tests/bench/cuda.py made, on the CUDA device of this machine.\n'
                'results=$(realpath "${1:-$(dirname "$0")/RESULTS-cuda.md}")\ncd "$(dirname "$0")"\n'
                'exec bin/cyto-bench %s --target=cuda --results "$results"\n' % ' '.join(libraries))
    os.chmod(path, 0o755)
    print('measure them by %s' % path)


def main():
    args = lib.arguments(__doc__, save={'default': 'cuda-bench'}, target={'default': 'cuda'},
                         size={'default': 4096, 'type': int})
    os.makedirs(args.save, exist_ok=True)
    work = [('%s_%d' % (name, n), lambda path, n=n, op=op: chain(n, path, op) or True)
            for name, op in (('products', 'MatMul'), ('normalise', 'LayerNormalization')) for n in (args.size, 2 * args.size)]
    work += [(name + ('_batch%d' % batch if batch > 1 else ''), lambda path, name=name, batch=batch: network(name, batch, path))
             for name, batch in NETWORKS]
    libraries, failed = [], 0
    for name, make in work:
        path, library = (os.path.join(args.save, name + ending) for ending in ('.onnx', '.so'))
        if not args.wanted(name) or not make(path):
            continue
        code, _, err = lib.run([args.cytoc, path, '-o', library, '--target=' + args.target], 3600)
        print('%-24s %s' % (name, lib.reason(err, code) if code else 'ok'), flush=True)
        failed |= code != 0
        libraries += [] if code else [name + '.so']
    carry(args, libraries)
    sys.exit(failed)


if __name__ == '__main__':
    main()
