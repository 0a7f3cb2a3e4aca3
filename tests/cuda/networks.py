# SPDX-License-Identifier: Apache-2.0
"""Networks as CUDA models, without a GPU: small ones, and CNNs at reduced size, as they are and in half precision.

In:  data/networks.txt: a name, NETWORK of ../shared/models or ../shared/zoo, or `made` (make()), and what is done with it: a
     size of the first input (1x3x32x32), behind it sizes in constants that change with it (320>32), of
     tables that are cut, too (table:197>10), those of sizes that
     only the run tells (batch=2; else 1), until:TENSOR where it ends, `half` (converted to f16), `cpu` (see below), an
     architecture other than sm_80, has:PATTERN that --explain must show, casts:N kernels at most that
     only cast, launches:N at most, within:E (the relative RMS error allowed), `nvrtc` (NVRTC's PTX runs, see mock.py), options
     for cytoc; --int8=static and --fp8=static are calibrated on the inputs.
Out: the closing line; a line for each network.

Inputs are those that lie beside a network of ../shared/models, else random, as ../shared/zoo/index.json says. The
reference is ONNX Runtime on the network in f32. f16 (and --fp16) results may be a relative RMS error of 2e-2 away, f32
ones 1e-4, with --tf32 5e-3. `cpu`: the reference is the network compiled for a CPU with the same options, 1e-2 away at
most: integer arithmetic is exact, but where floats that were added up in another order are rounded to integers,
results differ by a step.
(--int8-prefer=size goes with it: by default a CPU keeps other layers in float than a GPU.)
With --device the networks run on the machine's device, with --nvrtc all run as NVRTC compiles them: minutes each. With
--prepare DIR nothing runs: a folder for each gets the library, in/, ref/ and how far results may be away (limit).
"""
import functools
import importlib.util
import json
import os
import re
import shutil
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import graphs
import lib
import mock
import network

ZOO = os.path.join(lib.SHARED, 'zoo')
HEADS = 14  # of the network made here
PERIOD = 4099  # elements, a prime number: rows of a weight that repeats differ


def resized(model, size, changes, tables):
    """The first input gets another size; what was inferred from the old one is dropped. changes: {size: new size}, for those that
    the exporter wrote into constants; tables: those to which tables (positions of a transformer) are cut."""
    from onnx import numpy_helper
    shape = model.graph.input[0].type.tensor_type.shape
    for dim, n in zip(shape.dim, size):
        dim.dim_value = n
    constants = list(model.graph.initializer) + [n.attribute[0].t for n in model.graph.node if n.op_type == 'Constant']
    for tensor in constants if changes else ():
        value = numpy_helper.to_array(tensor)
        if value.dtype == np.int64:
            value = np.vectorize(lambda n: changes.get(n, n), otypes=[np.int64])(value)
        value = value[tuple(slice(tables.get(n)) for n in value.shape)]
        tensor.CopyFrom(numpy_helper.from_array(np.array(value), tensor.name))
    del model.graph.value_info[:]
    for port in model.graph.output:
        port.type.tensor_type.ClearField('shape')
    return model


def used(node):
    """Names that a node reads, its bodies included."""
    names = set(node.input)
    for attribute in node.attribute:
        for body in [attribute.g, *attribute.graphs]:
            for inner in body.node:
                names |= used(inner)
    return names


def cut(model, name):
    """The network ends at this tensor; what it does not need is dropped."""
    from onnx import helper
    graph, needed, kept = model.graph, {name}, []
    for node in reversed(graph.node):
        if needed & set(node.output):
            needed |= used(node)
            kept.insert(0, node)
    rest = {'node': kept,
            'initializer': [t for t in graph.initializer if t.name in needed],
            'input': [port for port in graph.input if port.name in needed],
            'output': [helper.make_tensor_value_info(name, 1, None)]}
    for field, values in rest.items():
        del getattr(graph, field)[:]
        getattr(graph, field).extend(values)
    return model


def make(path):
    """A network of few operations and many results, whose products and attention are warpgroups' on sm_90a: attention has heads enough
    for blocks of 64 rows."""
    g = graphs.Graph(7)

    def weight(*shape):
        return g.const(g.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:])), np.float32)
    x = g.op('Relu', g.op('Conv', 'x', weight(64, 16, 3, 3), weight(64), pads=[1, 1, 1, 1]))
    x = g.op('Relu', g.op('Add', g.op('Conv', x, weight(64, 64, 1, 1), weight(64)), x))
    x = g.op('AveragePool', x, kernel_shape=[8, 8], strides=[8, 8])
    rows = g.op('Transpose', g.op('Reshape', x, g.ints(64, 100)), perm=[1, 0])
    q, k, v = (g.op('MatMul', rows, weight(HEADS, 64, 64)) for _ in 'qkv')
    scores = g.op('Mul', g.op('MatMul', q, g.op('Transpose', k, perm=[0, 2, 1])), g.const(0.125, np.float32))
    y = g.op('MatMul', g.op('Softmax', scores, axis=-1), v)
    return g.save(path, [graphs.port('x', np.float32, [1, 16, 80, 80])], [graphs.port(y, np.float32, [HEADS, 100, 64])])


def make_row(path):
    """Products of one row with matrices that lie along n, too narrow for a block on every multiprocessor."""
    g, x = graphs.Graph(8), 'x'
    for k, n in ((300, 216), (216, 77), (77, 1100), (1100, 64)):
        x = g.op('Tanh', g.op('MatMul', x, g.const(g.rng.standard_normal((k, n)) / k ** 0.5, np.float32)))
    return g.save(path, [graphs.port('x', np.float32, [1, 300])], [graphs.port(x, np.float32, [1, 64])])


MADE = {'made': make, 'made_row': make_row}


def source(name, work, until):
    """The network, with weights."""
    import onnx
    path = os.path.join(lib.SHARED, 'models', name, 'model.onnx')
    model = onnx.load(MADE[name](os.path.join(work, 'made.onnx')) if name in MADE else
                      path if os.path.exists(path) else os.path.join(ZOO, name + '.onnx'))
    model = cut(model, until) if until else model
    return zoo().materialize(model) if in_zoo(name) else model


def repeated(model):
    """Large weights repeat their first elements: random numbers would not compress, and what another machine is sent is limited. Rows that
    repeat themselves, as in what is measured (cuda_cases.repeat()), would hide which row was read."""
    from onnx import TensorProto, numpy_helper
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and np.prod(tensor.dims) > PERIOD:
            values = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(np.resize(values.ravel()[:PERIOD], values.shape), tensor.name))
    return model


def in_zoo(name):
    return os.path.exists(os.path.join(ZOO, name + '.onnx'))


@functools.cache
def zoo():
    """The module that fills stripped networks and makes their inputs."""
    spec = importlib.util.spec_from_file_location('materialize', os.path.join(ZOO, 'materialize.py'))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_feed(name, k, port, sizes, is_resized):
    """An input: one that is stored, else random. sizes: {name: size} of those that the network leaves open."""
    dims = [d if isinstance(d, int) and d > 0 else sizes.get(d, 1) for d in port.shape]
    if in_zoo(name):
        with open(os.path.join(ZOO, 'index.json'), encoding='utf-8') as f:
            model = next(m for m in json.load(f)['models'] if m['name'] == name)
        return zoo().make_input(next(row for row in model['inputs'] if row['name'] == port.name), shape=dims)
    stored = os.path.join(lib.SHARED, 'models', name, 'refio', 'in_%d_%s.npy' % (k, lib.safe_name(port.name)))
    if os.path.exists(stored) and not is_resized:
        return np.load(stored)
    return np.random.default_rng(5 + k).standard_normal(dims).astype(np.float32)


def prepare(name, words, work, is_sent):
    """Writes f32.onnx, model.onnx (what is compiled), the inputs and ONNX Runtime's outputs."""
    import onnx
    model = source(name, work, next((w[6:] for w in words if w.startswith('until:')), None))
    model = repeated(model) if is_sent and in_zoo(name) else model
    sizes = [w for w in words if w[0].isdigit()]
    if sizes:
        tables = dict(map(int, w[6:].split('>')) for w in words if w.startswith('table:'))
        changes = dict(map(int, w.split('>')) for w in sizes[1:])
        model = resized(model, [int(n) for n in sizes[0].split('x')], changes | tables, tables)
    plain, compiled = os.path.join(work, 'f32.onnx'), os.path.join(work, 'model.onnx')
    onnx.save(model, plain)
    if 'half' in words:
        from onnxruntime.transformers.float16 import convert_float_to_float16
        model = convert_float_to_float16(model, keep_io_types=True, disable_shape_infer=True)
    onnx.save(model, compiled)
    session = network.ort_session(plain)
    named = {w.split('=')[0]: int(w.split('=')[1]) for w in words if re.fullmatch(r'\w+=\d+', w)}
    feeds = {port.name: make_feed(name, k, port, named, bool(sizes)) for k, port in enumerate(session.get_inputs())}
    network.save_inputs(os.path.join(work, 'in'), feeds)
    network.reference(session, feeds, os.path.join(work, 'ref'))
    return compiled


def run_on_cpu(args, model, work, options):
    """Replaces ref/ by what the network compiled for a CPU computes. None, or why it does not."""
    library = os.path.join(work, 'cpu.so')
    return network.compile_model(args, model, library, '-O3', ['--target=x86-64-v3', *options]) or \
        network.execute(args, library, os.path.join(work, 'in'), os.path.join(work, 'ref'), '1')


def test(args, name, work, words):
    arch = next((w for w in words if w.startswith('sm_')), 'sm_80')
    env = mock.environment(args, arch, args.nvrtc or 'nvrtc' in words)
    library, outputs, inputs = (os.path.join(work, file) for file in ('model.so', 'out', 'in'))
    limit = 2e-2 if {'half', '--fp16', '--bf16'} & set(words) else 1e-2 if 'cpu' in words else 5e-3 if '--tf32' in words else 1e-4
    limit = next((float(w[7:]) for w in words if w.startswith('within:')), limit)
    model = prepare(words[0], words[1:], work, bool(args.prepare))
    options = [w for w in words[1:] if w.startswith('--')]
    if '--int8=static' in options or '--fp8=static' in options:
        options += ['--calibrate=' + inputs]
    problem = run_on_cpu(args, model, work, options) if 'cpu' in words else None
    if problem:
        return 'for a CPU: ' + problem
    code, text, err = lib.run([args.cytoc, model, '-o', library, '-j', '2' if args.device else '1', '--explain', *mock.options(args, arch), *options],
                              args.limit, env=mock.compiling(env))
    if code:
        return 'compile: ' + lib.reason(err, code)
    if args.prepare:
        return keep(os.path.join(args.prepare, name), work, limit)
    lacks = [w[4:] for w in words if w.startswith('has:') and not re.search(w[4:], text)]
    if lacks and not args.device:
        return 'no kernel is ' + lacks[0]
    rows = re.findall(r'^\S+_k\d+_\S+ +(\d+) .* (?:mem|fma)  (.*)$', text, re.M)
    found = {'launches': sum(int(runs) for runs, ops in rows),
             'casts': sum(int(runs) for runs, ops in rows if re.match(r'(reshape )?cast( *$|  )', ops))}
    for what, most in (w.split(':') for w in words if re.fullmatch(r'(casts|launches):\d+', w)):
        if found[what] > int(most) or not rows:
            return '%d %s, expected %s at most' % (found[what], what, most)
    return network.execute(args, library, inputs, outputs, '1', args.limit, env) or \
        network.compare(outputs, os.path.join(work, 'ref'), lambda name: limit)


def keep(folder, work, limit):
    """What another machine needs to run it and to judge the results."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for part in ('model.so', 'in', 'ref'):
        shutil.move(os.path.join(work, part), os.path.join(folder, part))
    with open(os.path.join(folder, 'limit'), 'w', encoding='utf-8') as f:
        f.write('%g\n' % limit)


def main():
    args = lib.arguments(__doc__, prepare=dict(metavar='DIR'), device=dict(action='store_true'), nvrtc=dict(action='store_true'),
                         jobs=dict(type=int, default=2, help='networks at a time'), target=mock.TARGET,
                         limit=dict(type=int, default=600, help='seconds for compiling one, and for running it'))
    suite = lib.Suite(args)
    rows = {}
    for line in open(os.path.join(HERE, 'data', 'networks.txt'), encoding='utf-8'):
        words = line.split()
        if words and words[0] != '#' and args.wanted(words[0]):
            rows[words[0]] = words[1:]
    if not os.path.isdir(os.path.join(lib.SHARED, 'models')):
        suite.skip('cuda networks', 'there are no networks in %s' % lib.SHARED)
        suite.done()
    if not mock.nvrtc_folder():
        for name in [name for name, words in rows.items() if 'nvrtc' in words]:
            suite.skip(name, 'there is no NVRTC 13 in %s' % sys.prefix)
            del rows[name]
    network.test_each(args, suite, 'cuda-networks', rows.items(), functools.partial(test, args), args.jobs)
    suite.done('networks')


if __name__ == '__main__':
    main()
