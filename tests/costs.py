# SPDX-License-Identifier: Apache-2.0
"""What compiling costs, and what a library has of a model: weights stored once, time beside plain f32, memory beside the
model's size.

In:  models of the kinds that were expensive, made here, with random numbers.
Out: the closing line. Bytes of weights are held against those of the model, times against those of the same model in f32 on
     the same machine, memory against the model's bytes and that of a small model: no seconds, no figures of one machine.
     Results of the libraries are compared with ONNX Runtime's, within what the option rounds.
"""
import json
import os
import resource
import shutil

import numpy as np
import onnx

import graphs
import lib
import network

MEMORY = 2.5  # times the model's bytes
SLOWER = 2.0  # --bf16 and --fp16, beside f32
ROOM = 1.05   # times the bytes that weights take
SHELL = ['sh', '-c', '"$@"; exit $?', 'sh']  # between both: a process begins with the peak memory of the one that started it

# vocabulary, width: panels of the product that come out even and that don't, one and several blocks of k
SIZES = [(4096, 64), (1003, 40), (331, 1600), (517, 96)]
# options, bytes per weight of the embedding, relative RMS
FORMS = [((), 4, 1e-5), (('--bf16',), 2, 1e-2), (('--fp16',), 2, 1e-3), (('--int8',), 1, 3e-2), (('--weights=int8',), 1, 3e-2),
         (('--weights=int4',), 0.5, 0.3)]


def tied(vocabulary, width, form, ids=np.int64):
    """An embedding, a normalisation with a gain, and the embedding again as output layer."""
    g = graphs.Graph(vocabulary)
    table = g.const(g.rng.standard_normal((vocabulary, width)) / 8, np.float32)
    x = g.op('Gather', table, 'ids')
    gain = g.const(g.rng.uniform(0.5, 1.5, width), np.float32)
    x = g.op('LayerNormalization', x, gain, axis=-1)
    if form == 'matmul':
        g.op('MatMul', x, g.op('Transpose', table, perm=[1, 0]), out='y')
    else:
        g.op('Gemm', g.op('Reshape', x, g.ints(-1, width)), table, transB=1, out='y')
    return g.model([graphs.port('ids', ids, ('batch', 'length'))], [graphs.port('y', np.float32, None)])


def compiled(args, folder, model, options=()):
    """(the library, its --stats, CPU seconds) of a ModelProto; raises what cytoc says."""
    os.makedirs(folder, exist_ok=True)
    path, library, stats = (os.path.join(folder, 'm' + end) for end in ('.onnx', '.so', '.json'))
    onnx.save(model, path)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code, _, err = lib.run([*SHELL, args.cytoc, path, '-o', library, '--stats=' + stats, *options])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if code:
        raise RuntimeError(lib.reason(err, code))
    with open(stats, encoding='utf-8') as f:
        return library, json.load(f), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def differs(args, folder, model, library, feeds, limit):
    code, err = network.run_feeds(args, folder, library, feeds)
    if code:
        return lib.reason(err, code)
    session = network.ort_session(model.SerializeToString())
    for i, want in enumerate(session.run(None, feeds)):
        name = session.get_outputs()[i].name
        why = lib.difference(name, network.output_of(folder, i, name), want, limit)
        if why:
            return why
    return None


def check_tied(args, folder, form, options, size, limit, target=()):
    for vocabulary, width in SIZES:
        ids = np.int32 if width == 96 else np.int64
        model = tied(vocabulary, width, form, ids)
        library, stats, _ = compiled(args, folder, model, (*options, *target))
        scales = vocabulary * 4 * (1 + max(1, -(-width // 32))) if size <= 1 else 0
        padded = (vocabulary + 64) * (width + 64 if size < 4 else width)
        most = padded * size * ROOM + scales + 8 * vocabulary + (16 << 10)
        if stats['weights_bytes'] > most:
            return '%d x %d: %d bytes of weights, at most %d expected' % (vocabulary, width, stats['weights_bytes'], most)
        if stats['stored_more_than_once']:
            return '%d x %d: %s' % (vocabulary, width, stats['stored_more_than_once'])
        rng = np.random.default_rng(3)
        numbers = rng.integers(-vocabulary, vocabulary, (2, 37)).astype(ids)
        numbers[0, :4] = 0, vocabulary - 1, -1, -vocabulary
        for feed in (numbers, numbers[:1, 1:2]):
            why = differs(args, folder, model, library, {'ids': feed}, limit)
            if why:
                return '%d x %d: %s' % (vocabulary, width, why)
    return None


def check_named(args, folder):
    """Weights that one node multiplies and another adds: two forms, which --stats names."""
    g = graphs.Graph(3)
    table = g.const(g.rng.standard_normal((4096, 64)) / 8, np.float32)
    g.op('Add', g.op('MatMul', 'x', table), g.op('ReduceMax', g.op('Mul', table, 'z')), out='y')
    model = g.model([graphs.port('x', np.float32, ('rows', 4096)), graphs.port('z', np.float32, (4096, 64))],
                    [graphs.port('y', np.float32, None)])
    _, stats, _ = compiled(args, folder, model)
    rows = stats['stored_more_than_once']
    if len(rows) != 1 or rows[0]['name'] != 'c0' or rows[0]['times'] != 2 or rows[0]['model_bytes'] != 4096 * 64 * 4:
        return 'stored more than once: %s' % rows
    if rows[0]['library_bytes'] != 2 * 4096 * 64 * 4:
        return 'bytes in the library: %d' % rows[0]['library_bytes']
    code, out, _ = lib.run([args.cytoc, os.path.join(folder, 'm.onnx'), '-o', os.path.join(folder, 'n.so'), '--stats'])
    return None if not code and "'c0' is stored 2 times: 1.05 MB of the model, 2.10 MB" in out else out[-300:]


def integers(kind, zero, each):
    """MatMulInteger with bytes as weights that have a zero point."""
    g = graphs.Graph(5)
    low, high = (0, 256) if kind == np.uint8 else (-128, 128)
    w = g.const(g.rng.integers(low, high, (128, 192)), kind)
    zeros = g.const(g.rng.integers(low, high, 192) if each else zero, kind)
    g.op('MatMulInteger', 'x', w, 'xz', zeros, out='y')
    ports = [graphs.port('x', np.uint8, ('batch', 3, 128)), graphs.port('xz', np.uint8, ())]
    return g.model(ports, [graphs.port('y', np.int32, None)])


def check_zero_points(args, folder):
    """Exact, and in as many bytes as the model has."""
    rng = np.random.default_rng(7)
    for kind, zero, each in ((np.uint8, 115, False), (np.uint8, 0, False), (np.uint8, 255, False), (np.int8, 3, False),
                             (np.int8, -128, False), (np.uint8, 0, True), (np.int8, 0, True)):
        model = integers(kind, zero, each)
        for options in ((), ('--target=x86-64-v3',), ('-O0',)):
            library, stats, _ = compiled(args, folder, model, options)
            if options != ('-O0',) and stats['weights_bytes'] > 128 * 192 * 1.1 + 4096:
                return '%s %s: %d bytes of weights' % (kind.__name__, zero, stats['weights_bytes'])
            for batch in (1, 5):
                x = rng.integers(0, 256, (batch, 3, 128)).astype(np.uint8)
                code, err = network.run_feeds(args, folder, library, {'x': x, 'xz': np.uint8(131)})
                if code:
                    return lib.reason(err, code)
                w = [onnx.numpy_helper.to_array(c).astype(np.int64) for c in model.graph.initializer]
                want = (x.astype(np.int64) - 131) @ (w[0] - w[1])
                if not np.array_equal(network.output_of(folder, 0, 'y'), want):
                    return '%s, zero point %s, %s: other integers' % (kind.__name__, 'each' if each else zero, options)
    return None


def check_recurrent(args, folder):
    """DynamicQuantizeLSTM whose weights have zero points: 8 bits each in the library."""
    g, hidden, width = graphs.Graph(11), 64, 96
    w = g.const(g.rng.integers(0, 256, (2, width, 4 * hidden)), np.uint8)
    r = g.const(g.rng.integers(0, 256, (2, hidden, 4 * hidden)), np.uint8)
    scale, zero = g.const([0.003, 0.004], np.float32), g.const([115, 140], np.uint8)
    bias = g.const(g.rng.standard_normal((2, 8 * hidden)) / 9, np.float32)
    g.op('DynamicQuantizeLSTM', 'x', w, r, bias, '', '', '', '', scale, zero, scale, zero, out='y', domain='com.microsoft',
         hidden_size=hidden, direction='bidirectional')
    model = g.model([graphs.port('x', np.float32, ('time', 1, width))], [graphs.port('y', np.float32, None)])
    weights = 2 * (width + hidden) * 4 * hidden
    library, stats, _ = compiled(args, folder, model)
    if stats['weights_bytes'] > 1.1 * weights + 16384:
        return '%d bytes of weights, %d in the model' % (stats['weights_bytes'], weights)
    feeds = {'x': np.random.default_rng(1).standard_normal((17, 1, width)).astype(np.float32)}
    return differs(args, folder, model, library, feeds, 0.1)


def linear_layers(count, width):
    g, x = graphs.Graph(13), 'x'
    for _ in range(count):
        x = g.op('Tanh', g.op('MatMul', x, g.const(g.rng.standard_normal((width, width)) / width, np.float32)))
    return g.model([graphs.port('x', np.float32, ('rows', width))], [graphs.port(x, np.float32, None)])


def check_time(args, folder):
    """The least CPU time of three: weights are converted about as fast as they are copied."""
    model, least = linear_layers(4, 2048), {}
    for _ in range(3):
        for option in ('', '--bf16', '--fp16'):
            _, _, seconds = compiled(args, folder, model, [option] if option else [])
            least[option] = min(seconds, least.get(option, seconds))
    slow = [o for o in least if least[o] > SLOWER * least['']]
    return 'CPU seconds: %s' % least if slow else None


def codec(layers, channels):
    """Convolutions whose weights come as a direction and a length, as audio codecs have them, and periodic activations."""
    g, x = graphs.Graph(17), 'x'
    for k in range(layers):
        v = g.const(g.rng.standard_normal((channels, channels, 7)) / 90, np.float32)
        norm = g.op('Sqrt', g.op('ReduceSum', g.op('Pow', v, g.const(2, np.float32)), g.ints(1, 2), keepdims=1))
        w = g.op('Mul', g.op('Div', v, norm), g.const(g.rng.uniform(0.5, 1.5, (channels, 1, 1)), np.float32))
        x = g.op('Conv', x, w, kernel_shape=[7], dilations=[3 ** (k % 3)], pads=[3 ** (k % 3 + 1)] * 2)
        alpha = g.const(g.rng.uniform(0.5, 1.5, (1, channels, 1)), np.float32)
        sine = g.op('Pow', g.op('Sin', g.op('Mul', alpha, x)), g.const(2, np.float32))
        x = g.op('Add', x, g.op('Mul', g.op('Reciprocal', alpha), sine))
    return g.model([graphs.port('x', np.float32, (1, channels, 'time'))], [graphs.port(x, np.float32, None)])


def check_memory(args, folder):
    """Peak memory less that of a small model of the same kind; and kernels, of which layers alike share one."""
    small, large = codec(3, 16), codec(9, 640)
    _, few, _ = compiled(args, folder, small)
    _, stats, _ = compiled(args, folder, large)
    took, allowed = stats['peak_mb'] - few['peak_mb'], MEMORY * large.ByteSize() / (1 << 20)
    if took > allowed:
        return '%.0f MB more than a small model, at most %.0f expected' % (took, allowed)
    if stats['kernels'] > few['kernels'] + 3:
        return '%d kernels, a third of the layers has %d' % (stats['kernels'], few['kernels'])
    return None


def main():
    args = lib.arguments(__doc__)
    suite, folder = lib.Suite(args), os.path.join(args.build, 'sizes')
    tests = [('tied %s %s' % (form, ' '.join(options) or 'f32'), check_tied, form, options, size, limit)
             for form in ('matmul', 'gemm') for options, size, limit in FORMS]
    tests.append(('tied gemm f32 x86-64-v3', check_tied, 'gemm', (), 4, 1e-5, ('--target=x86-64-v3',)))
    tests += [('named', check_named), ('zero points', check_zero_points), ('recurrent', check_recurrent)]
    if args.variant == 'release':  # others compare what sanitizers take
        tests += [('time', check_time), ('memory', check_memory)]
    for name, check, *more in tests:
        if not args.wanted(name):
            continue
        try:
            why = check(args, folder, *more)
        except RuntimeError as problem:
            why = str(problem)
        suite.result(name, why)
        shutil.rmtree(folder, ignore_errors=True)
    suite.done()


if __name__ == '__main__':
    main()
