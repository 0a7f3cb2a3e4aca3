# SPDX-License-Identifier: Apache-2.0
"""cytoc verify and cyto-compare: figures that are known, verdicts, limits, random inputs, the layer that --bisect finds, bad input.

In:  small models that are made here; a fake onnxruntime that is wrong at one layer, through CYTO_PYTHON.
Out: the closing line.
"""
import json
import os
import shutil
import sys

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

import lib

CASES = []
f32 = np.float32


def case(function):
    CASES.append((function.__name__.replace('_', '-'), function))
    return function


def port(name, kind, dims):
    return h.make_tensor_value_info(name, kind, dims)


def save(path, nodes, inputs, outputs, constants=(), opset=17, domains=()):
    graph = h.make_graph(nodes, 'g', inputs, outputs, [numpy_helper.from_array(v, n) for n, v in dict(constants).items()])
    imports = [h.make_opsetid('', opset)] + [h.make_opsetid(d, 1) for d in domains]
    onnx.save(h.make_model(graph, opset_imports=imports, ir_version=8), path)
    return path


def shifted(path, by):
    return save(path, [h.make_node('Add', ['x', 'c'], ['y'])], [port('x', T.FLOAT, [4, 8])], [port('y', T.FLOAT, [4, 8])],
                {'c': np.full(8, by, f32)})


def chain(path, batch='batch'):
    """Five layers; the third adds what it takes away again, so that factors of few bits leave nothing of it."""
    rng, nodes, constants, x = np.random.default_rng(1), [], {'s0': [0], 's1': [8], 'ax': [1]}, 'x'
    constants = {k: np.array(v, np.int64) for k, v in constants.items()}
    for i in range(5):
        w = (rng.standard_normal((16, 16)) / 4).astype(f32)
        if i == 2:
            w[:8] *= 300
            w[8:] = rng.standard_normal((8, 16)) / 4 - w[:8]
            nodes += [h.make_node('Slice', [x, 's0', 's1', 'ax'], ['half']), h.make_node('Concat', ['half', 'half'], ['twice'], axis=1)]
            x = 'twice'
        constants['w%d' % i] = w
        nodes += [h.make_node('MatMul', [x, 'w%d' % i], ['m%d' % i], name='product%d' % i),
                  h.make_node('Tanh', ['m%d' % i], ['y%d' % i], name='tanh%d' % i)]
        x = 'y%d' % i
    return save(path, nodes, [port('x', T.FLOAT, [batch, 16])], [port(x, T.FLOAT, [batch, 16])], constants)


def network(path):
    rng = np.random.default_rng(3)
    nodes = [h.make_node('Conv', ['x', 'k', 'b'], ['c'], pads=[1, 1, 1, 1]), h.make_node('Relu', ['c'], ['r']),
             h.make_node('GlobalAveragePool', ['r'], ['p']), h.make_node('Flatten', ['p'], ['f']),
             h.make_node('MatMul', ['f', 'w'], ['g']), h.make_node('Relu', ['g'], ['q']), h.make_node('MatMul', ['q', 'v'], ['y'])]
    return save(path, nodes, [port('x', T.FLOAT, [2, 16, 24, 24])], [port('y', T.FLOAT, [2, 256])],
                {'k': (rng.standard_normal((64, 16, 3, 3)) / 12).astype(f32), 'b': rng.standard_normal(64).astype(f32),
                 'w': (rng.standard_normal((64, 512)) / 8).astype(f32), 'v': (rng.standard_normal((512, 256)) / 20).astype(f32)})


def verify(test, model, *options, env=None, code=0):
    """(what it printed on stdout and stderr, its JSON or None)"""
    report = os.path.join(test.work, 'report.json')
    if os.path.exists(report):
        os.remove(report)
    got, out, err = lib.run([test.args.cytoc, 'verify', model, '--json', report, '-j', '1', *options], 120, env=env)
    assert got == code, 'exit code %s instead of %s: %s%s' % (got, code, out, err)
    return out + err, json.load(open(report, encoding='utf-8')) if os.path.exists(report) else None


def expect(text, *parts):
    for part in parts:
        assert part in text, 'not said: %r, but: %s' % (part, text[:1500])


def near(is_, wanted):
    assert abs(is_ - wanted) <= 1e-3 * abs(wanted), (is_, wanted)


@case
def references(test):
    for against, name in (('eager', '-O0'), ('ort', 'ONNX Runtime'), ('reference', 'onnx.reference')):
        text, report = verify(test, network(test.file('n.onnx')), '--against', against)
        expect(text, 'beside ' + name, 'right: 1 output of 2 samples; limits of f32')
        assert report['right'] and report['against'] == name and report['outputs'][0]['snr_db'] > 100, report


@case
def figures(test):
    """A library of another model: y = x + 1 beside x + 1.5, and what numpy says of that."""
    library = test.file('other.so')
    other, model = shifted(test.file('other.onnx'), 1), shifted(test.file('m.onnx'), 1.5)
    assert lib.run([test.args.cytoc, other, '-o', library], 60)[0] == 0
    folder = test.file('case')
    os.makedirs(folder)
    x = np.random.default_rng(5).standard_normal((4, 8)).astype(f32)
    y = x + f32(1.5)
    np.save(folder + '/in_0_x.npy', x)
    for options in ((), ('--against=ort',), ('--against=eager',)):  # -O0 as the case has no outputs yet, but once it has
        text, report = verify(test, model, '--library', library, '--inputs', folder, *options, code=1)
        row, z = report['outputs'][0], x + f32(1)
        expect(text, 'BEYOND')
        near(row['largest'], 0.5)
        near(row['rms'], 0.5)
        near(row['relative'], 0.5 / np.abs(y).max())
        near(row['snr_db'], 10 * np.log10((y.astype(float) ** 2).sum() / 8))
        near(row['cosine'], (y * z).sum() / np.sqrt((y * y).sum() * (z * z).sum()))
        assert row['top'] == 1 and not row['right'] and not report['right'], report
    np.save(folder + '/out_0_y.npy', y)
    text, _ = verify(test, model, '--inputs', folder)
    expect(text, 'beside the expected outputs', 'right: 1 output of 1 sample')
    verify(test, model, '--library', library, '--inputs', folder, '--against=reference', code=1)
    y[1, (y[1].argmax() + 1) % 8] = 90  # the arg-max of one row of four moves
    np.save(folder + '/out_0_y.npy', y)
    assert verify(test, model, '--inputs', folder, code=1)[1]['outputs'][0]['top'] == 0.75
    np.save(folder + '/out_0_y.npy', y[:3])
    expect(verify(test, model, '--inputs', folder, code=1)[0], 'shape [4,8] instead of [3,8]')
    y[0, 0] = np.nan
    np.save(folder + '/out_0_y.npy', y)
    expect(verify(test, model, '--inputs', folder, code=1)[0], '1 not finite on one side')


@case
def precisions(test):
    model = network(test.file('n.onnx'))
    for options, name in ((['--fp16'], 'fp16'), (['--bf16'], 'bf16'), (['--int8'], 'int8'), (['--weights=int8'], 'weights of 8 bits'),
                          (['--weights=int4'], 'weights of 4 bits'), (['--fp16', '--half-io'], 'fp16'), (['-O1'], 'f32')):
        for against in ('eager', 'ort'):
            text, report = verify(test, model, '--against', against, *options)
            assert report['limits'] == name, (options, report)
        if name != 'f32':  # and the same limits find that it is no f32
            verify(test, model, '--tolerance=100dB', *options, code=1)


@case
def tolerances(test):
    model = chain(test.file('m.onnx'))
    _, report = verify(test, model, '--fp16', '--tolerance=0.9', '--random=1')
    snr, relative = (report['outputs'][0][k] for k in ('snr_db', 'relative'))
    for tolerance, code in (('%.3fdB' % (snr - 0.1), 0), ('%.3fdB' % (snr + 0.1), 1), ('%.6f' % (relative * 1.01), 0),
                            ('%.6f' % (relative * 0.99), 1), ('%.3fdB,%.6f' % (snr - 0.1, relative * 0.99), 1), ('0.5,99%', 0)):
        verify(test, model, '--fp16', '--random=1', '--tolerance', tolerance, code=code)
    for bad in ('lots', '30db', '-1', '1e-3,x', 'nan'):
        expect(verify(test, model, '--tolerance', bad, code=2)[0], "option '--tolerance' expects some of", bad)


@case
def integers(test):
    """What is exact must be equal: one element of a thousand may differ by default, not more."""
    model = save(test.file('m.onnx'), [h.make_node('Identity', ['x'], ['y'])], [port('x', T.INT64, [1000])], [port('y', T.INT64, [1000])])
    folder = test.file('case')
    os.makedirs(folder)
    x = np.arange(1000)
    for wrong, code in ((0, 0), (1, 0), (2, 1)):
        y = x.copy()
        y[:wrong] += 1
        np.save(folder + '/in_0_x.npy', x)
        np.save(folder + '/out_0_y.npy', y)
        _, report = verify(test, model, '--inputs', folder, code=code)
        near(report['outputs'][0]['equal'], 1 - wrong / 1000)
    verify(test, model, '--inputs', folder, '--tolerance=99%')


@case
def open_sizes(test):
    """A cache and what comes: three sizes, sums of symbols among them."""
    model = save(test.file('m.onnx'), [h.make_node('Concat', ['past', 'now'], ['all'], axis=1), h.make_node('Mul', ['all', 'mask'], ['y'])],
                 [port('past', T.FLOAT, ['batch', 'past_length', 8]), port('now', T.FLOAT, ['batch', 'seq_length', 8]),
                  port('mask', T.FLOAT, ['batch', 'total_length', 1])], [port('y', T.FLOAT, None)])
    text, report = verify(test, model, '--against=ort')
    assert report['samples'] == 3
    expect(text, 'past 1x16x8, now 1x16x8, mask 1x32x1', 'past 2x7x8', 'now 3x32x8')
    expect(verify(test, model, '--dim', 'batch=4', '--random=2')[0], 'now 4x16x8', 'now 4x7x8', 'of 2 samples')
    multiple = save(test.file('r.onnx'), [h.make_node('Reshape', ['x', 's'], ['y'])], [port('x', T.FLOAT, [1, 'n'])],
                    [port('y', T.FLOAT, None)], {'s': np.array([1, 32, -1])})
    text, _ = verify(test, multiple, '--against=ort')  # 16 is refused by both, 32 is taken
    expect(text, 'x 1x32', 'right')


@case
def indices(test):
    """Ids within the table that they look up, through what moves them; without that some would be refused."""
    table, small = np.random.default_rng(2).standard_normal((300, 4)).astype(f32), np.ones((1, 4), f32)
    model = save(test.file('m.onnx'),
                 [h.make_node('Unsqueeze', ['ids', 'a'], ['u']), h.make_node('Cast', ['u'], ['i'], to=T.INT32),
                  h.make_node('Gather', ['table', 'i'], ['g']), h.make_node('Gather', ['small', 'kinds'], ['k']),
                  h.make_node('Add', ['g', 'k'], ['y'])],
                 [port('ids', T.INT64, [16]), port('kinds', T.INT64, [16])], [port('y', T.FLOAT, None), port('ids_out', T.INT64, [16])],
                 {'table': table, 'small': small, 'a': np.array([0])})
    graph = onnx.load(model)
    graph.graph.node.append(h.make_node('Identity', ['ids'], ['ids_out']))
    onnx.save(graph, model)
    _, report = verify(test, model, '--against=ort')
    assert report['right'], report
    first = verify(test, model, '--bisect=' + test.file('b'), '--tolerance=0.1,100%', '--seed=2')[0]
    assert first == verify(test, model, '--seed=2', '--tolerance=0.1,100%')[0]  # the same seed, the same inputs
    expect(verify(test, model, '--range', 'ids=0:400', code=2)[0], 'cannot run the model on random sample 0', '--range')
    verify(test, model, '--range', 'ids=7:9')


def check_reproducer(test, folder, layers, options, env=None):
    model = onnx.load(folder + '/model.onnx')
    onnx.checker.check_model(model)
    names = [n.name for n in model.graph.node if n.op_type != 'Constant']
    assert names == layers, names
    for inputs in ('/test_data_set_0', ''):
        verify(test, folder + '/model.onnx', '--inputs', folder + inputs, *options, env=env, code=1)
    return model


@case
def bisect_precision(test):
    """The layer whose factors do not bear being rounded, and no other."""
    model = chain(test.file('m.onnx'))
    verify(test, model)
    for against in ('eager', 'ort', 'reference'):
        folder = test.file(against)
        text, _ = verify(test, model, '--bf16', '--against', against, '--bisect=' + folder, code=1)
        expect(text, "first layer beyond the limits: MatMul 'product2'", '1 of 12 nodes')
        check_reproducer(test, folder, ['product2'], ['--bf16'])


FAKE = '''
import numpy, onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops.op_tanh import Tanh
from onnx.reference.op_run import OpRun
__version__ = '0'
class SessionOptions: pass
class OrtValue: pass
class BrokenTanh(OpRun):
    op_domain, op_type = '', 'Tanh'
    def _run(self, x):
        y = numpy.tanh(x)
        return ((y + (0.25 if self.onnx_node.name == 'tanh3' else 0)).astype(x.dtype),)
BrokenTanh.__name__ = 'Tanh'
class Port:
    def __init__(self, p): self.name, self.type = p.name, 'tensor(float)'
class InferenceSession:
    def __init__(self, path, *_, **__):
        model = onnx.load(path)
        given = {t.name for t in model.graph.initializer}
        self.ports = [Port(p) for p in model.graph.input if p.name not in given]
        self.inner = ReferenceEvaluator(model, new_ops=[BrokenTanh])
    def get_inputs(self): return self.ports
    def run(self, _, feeds): return self.inner.run(None, feeds)
'''


def fake_python(test, source):
    """CYTO_PYTHON: this Python with a module onnxruntime of ours."""
    folder = test.file('fake')
    os.makedirs(folder, exist_ok=True)
    with open(folder + '/onnxruntime.py', 'w', encoding='utf-8') as f:
        f.write(source)
    return {**os.environ, 'CYTO_PYTHON': sys.executable, 'PYTHONPATH': folder}


@case
def bisect_reference(test):
    """A reference that is wrong at one layer in the middle: that layer, and a model of it that shows it again."""
    env, folder = fake_python(test, FAKE), test.file('b')
    model = chain(test.file('m.onnx'))
    text, _ = verify(test, model, '--against=ort', '--bisect=' + folder, env=env, code=1)
    expect(text, "first layer beyond the limits: Tanh 'tanh3'", '1 of 12 nodes')
    model = check_reproducer(test, folder, ['tanh3'], ['--against=ort'], env)
    assert [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == [1, 16]


@case
def bisect_accumulated(test):
    """Rounding that no layer alone is to blame for: a part of several layers."""
    rng, nodes, constants = np.random.default_rng(7), [], {}
    for i in range(12):
        constants['w%d' % i] = (rng.standard_normal((64, 64)) / 8).astype(f32)
        nodes.append(h.make_node('MatMul', ['x%d' % i, 'w%d' % i], ['x%d' % (i + 1)], name='p%d' % i))
    model = save(test.file('m.onnx'), nodes, [port('x0', T.FLOAT, [4, 64])], [port('x12', T.FLOAT, [4, 64])], constants)
    _, report = verify(test, model, '--bf16', '--tolerance=1dB', '--random=1')
    limit = '--tolerance=%.2fdB' % (report['outputs'][0]['snr_db'] + 3)
    folder = test.file('b')
    text, _ = verify(test, model, '--bf16', limit, '--random=1', '--bisect=' + folder, code=1)
    expect(text, 'first layer beyond the limits: MatMul', 'as the layer alone is within the limits')
    names = [n.name for n in onnx.load(folder + '/model.onnx').graph.node]
    assert 2 <= len(names) < 12, names
    verify(test, folder + '/model.onnx', '--bf16', limit, '--inputs', folder, code=1)


@case
def kinds_of_values(test):
    """Strings, sequences and bodies; bf16 in and out."""
    strings = save(test.file('s.onnx'), [h.make_node('Identity', ['x'], ['y'])], [port('x', T.STRING, [2])], [port('y', T.STRING, [2])])
    folder = test.file('case')
    os.makedirs(folder)
    with open(folder + '/in_0_x.json', 'w', encoding='utf-8') as f:
        f.write('{"dtype":"string","shape":[2],"data":["a","\\u00e4bc"]}')
    for against in ('eager', 'ort', 'reference'):
        verify(test, strings, '--inputs', folder, '--against', against)
    expect(verify(test, strings, code=2)[0], 'only tensors of numbers can be random')
    pair = save(test.file('q.onnx'), [h.make_node('SequenceConstruct', ['x', 'z'], ['y']), h.make_node('SequenceLength', ['y'], ['n'])],
                [port('x', T.FLOAT, [2, 3]), port('z', T.FLOAT, ['k', 3])],
                [h.make_tensor_sequence_value_info('y', T.FLOAT, None), port('n', T.INT64, [])])
    for against in ('eager', 'ort', 'reference'):
        verify(test, pair, '--against', against)
    for kind, against in ((T.BFLOAT16, ('eager', 'ort')), (T.FLOAT16, ('eager', 'ort', 'reference')), (T.DOUBLE, ('ort',))):
        model = save(test.file('h.onnx'), [h.make_node('Identity', ['x'], ['y'])], [port('x', kind, [5, 3])], [port('y', kind, [5, 3])])
        for a in against:
            verify(test, model, '--against', a)
    body = h.make_graph([h.make_node('Mul', ['x', 'w'], ['t'], name='inner')], 'b', [], [port('t', T.FLOAT, [4])])
    other = h.make_graph([h.make_node('Neg', ['x'], ['e'])], 'c', [], [port('e', T.FLOAT, [4])])
    branch = save(test.file('i.onnx'), [h.make_node('If', ['c'], ['y'], name='branch', then_branch=body, else_branch=other)],
                  [port('c', T.BOOL, []), port('x', T.FLOAT, [4])], [port('y', T.FLOAT, [4])], {'w': np.ones(4, f32)})
    verify(test, branch, '--against=ort', '--random=4')


@case
def cuda(test):
    """For CUDA, by the mock driver: against -O0 on the CPU."""
    sys.path.insert(0, 'tests/cuda')
    import mock
    if not os.path.exists(os.path.join(test.args.build, 'tests/cuda/mock/libcuda.so.1')):
        return 'no mock driver in this build'
    args = test.args
    args.device = None
    env = mock.environment(args, 'sm_80', False)
    text, _ = verify(test, chain(test.file('m.onnx'), 3), '--target=sm_80', *[o for o in mock.options(args, 'sm_80') if '--target' not in o],
                     env={**os.environ, **mock.compiling(env), **env})
    expect(text, 'right: 1 output')
    return None


@case
def bad_input(test):
    model = chain(test.file('m.onnx'))
    for options, parts in ((['-o', 'x.so'], ["leave '-o x.so' out"]), (['--inputs', 'nowhere'], ["'nowhere': No such file"]),
                           (['--inputs', test.work, '--random=2'], ['expected one of them']),
                           (['--range', 'y=0:1'], ["'y=0:1': the model has no input"]), (['--range', 'x=2:1'], ['expects INPUT=LO:HI']),
                           (['--against=tf'], ["expects eager, ort or reference, found 'tf'"]), (['--random=0'], ['--random']),
                           (['--library', 'none.so'], ['none.so']), (['--fp16', '--bf16'], ['exclude each other']),
                           (['--target=sm_80'], ['it cannot run here']), (['--emit=h'], ["'--emit' is not one of 'cytoc verify'"])):
        expect(verify(test, model, *options, code=2)[0], *parts)
    expect(verify(test, 'none.onnx', code=2)[0], 'none.onnx')
    with open(test.file('junk.onnx'), 'wb') as f:
        f.write(b'\xff' * 99)
    expect(verify(test, test.file('junk.onnx'), code=2)[0], 'junk.onnx')
    cycle = save(test.file('cycle.onnx'), [h.make_node('Identity', ['b'], ['a']), h.make_node('Identity', ['a'], ['b']),
                                           h.make_node('Gather', ['a', 'i'], ['y'])], [port('i', T.INT64, [3])], [port('y', T.FLOAT, None)])
    expect(verify(test, cycle, code=2)[0], 'the graph has a cycle')
    os.makedirs(test.file('empty'))
    expect(verify(test, model, '--inputs', test.file('empty'), code=2)[0], 'the folder has no .npy or .pb files')
    np.save(test.file('in_0_x.npy'), np.zeros((2, 17), f32))
    expect(verify(test, model, '--inputs', test.work, code=2)[0], 'cannot run the model on')
    os.remove(test.file('in_0_x.npy'))
    assert lib.run([test.args.cytoc, 'verify'], 10)[0] == 2
    library = test.file('m.so')
    assert lib.run([test.args.cytoc, model, '-o', library], 60)[0] == 0
    expect(verify(test, model, '--library', library, '--tolerance=500dB', '--bisect', code=2)[0], 'leave --library out')


@case
def refusals(test):
    """Which node the reference refuses; what is not installed."""
    model = save(test.file('m.onnx'), [h.make_node('Neg', ['x'], ['n'], name='fine'),
                                       h.make_node('BiasGelu', ['n', 'b'], ['y'], name='unknown', domain='com.microsoft')],
                 [port('x', T.FLOAT, [2, 4])], [port('y', T.FLOAT, [2, 4])], {'b': np.ones(4, f32)}, domains=['com.microsoft'])
    verify(test, model, '--against=ort')
    expect(verify(test, model, '--against=reference', code=2)[0], 'onnx.reference', "node BiasGelu 'unknown'")
    wrong = save(test.file('w.onnx'), [h.make_node('Reshape', ['x', 's'], ['y'], name='odd')], [port('x', T.FLOAT, [2, 4]), port('s', T.INT64, [1])],
                 [port('y', T.FLOAT, None)])
    expect(verify(test, wrong, '--range', 's=3:3', '--against=reference', code=2)[0], "node Reshape 'odd'", 's 1', '--inputs=DIR')
    env = fake_python(test, 'raise ImportError("none")')
    expect(verify(test, model, '--against=ort', env=env, code=2)[0], 'the package onnxruntime is not installed', 'pip install')
    env = {**os.environ, 'CYTO_PYTHON': '/nowhere/python'}
    expect(verify(test, model, '--against=ort', env=env, code=2)[0], "cannot run '/nowhere/python'")


@case
def left_out(test):
    """Sizes that the reference refuses are left out where it takes others; what was asked for is not."""
    model = save(test.file('m.onnx'), [h.make_node('Reshape', ['x', 's'], ['y'])], [port('x', T.FLOAT, [1, 'n'])],
                 [port('y', T.FLOAT, [2, 8])], {'s': np.array([2, 8])})
    text, report = verify(test, model, '--against', 'ort')
    expect(text, 'left out, as ONNX Runtime refuses the sizes (x 1x', 'right: 1 output of ')
    assert report['right'] and 1 <= report['samples'] < 3, report
    text, _ = verify(test, model, '--against', 'ort', '--random', '3', code=2)
    expect(text, 'ONNX Runtime cannot run the model on random sample', 'sizes by --dim')


@case
def optional_values(test):
    """ONNX Runtime hands a value out where ours is an optional one that is there."""
    kind = h.make_optional_type_proto(h.make_sequence_type_proto(h.make_tensor_type_proto(T.FLOAT, [3])))
    model = save(test.file('m.onnx'), [h.make_node('SequenceConstruct', ['x', 'x'], ['s']), h.make_node('Optional', ['s'], ['y'])],
                 [port('x', T.FLOAT, [3])], [h.make_value_info('y', kind)], opset=18)
    expect(verify(test, model, '--against', 'ort')[0], 'right: 1 output of 2 samples')
    branches = [h.make_graph([h.make_node('Optional', [], ['e'], type=kind.optional_type.elem_type)], 'absent', [],
                             [h.make_value_info('e', kind)]),
                h.make_graph([h.make_node('SequenceConstruct', ['x'], ['s']), h.make_node('Optional', ['s'], ['f'])], 'there', [],
                             [h.make_value_info('f', kind)])]
    model = save(test.file('n.onnx'), [h.make_node('If', ['c'], ['y'], then_branch=branches[0], else_branch=branches[1])],
                 [port('c', T.BOOL, []), port('x', T.FLOAT, [3])], [h.make_value_info('y', kind)], opset=18)
    for c in (True, False):  # onnx.reference has [None] for a value that is absent
        folder = test.file('in%d' % c)
        os.makedirs(folder)
        np.save(os.path.join(folder, 'in_0_c.npy'), np.array(c))
        np.save(os.path.join(folder, 'in_1_x.npy'), np.ones(3, np.float32))
        expect(verify(test, model, '--inputs', folder, '--against', 'reference')[0], 'right: 1 output of 1 sample')


@case
def many_warnings(test):
    """However many warnings there are, the errors are shown."""
    nodes = [h.make_node('Constant', [], ['c%d' % (i % 30)], value_float=float(i)) for i in range(60)]
    nodes += [h.make_node('Add', ['x', 'c0'], ['z']), h.make_node('Add', ['z', 'b'], ['y'])]
    model = save(test.file('m.onnx'), nodes, [port('x', T.FLOAT, [3])], [port('y', T.FLOAT, [3])], {'b': np.ones(4, f32)})
    text, _ = verify(test, model, code=2)
    expect(text, 'two constants have the name', 'expected shapes that broadcast', 'more not shown')
    assert 20 <= len(text.splitlines()) <= 22, text


@case
def full_disk(test):
    model = chain(test.file('m.onnx'))
    command = '%s verify %s >/dev/full' % (test.args.cytoc, model)
    code, _, err = lib.run(['sh', '-c', command], 60)
    assert code == 2 and 'cannot write to the standard output' in err, (code, err)
    code, _, err = lib.run([test.args.cytoc, 'verify', model, '--json', '/dev/full'], 60)
    assert code == 2 and "cannot write '/dev/full': No space left" in err, (code, err)
    code, _, err = lib.run([test.args.cytoc, 'verify', model], 60, env={**os.environ, 'TMPDIR': test.file('none')})
    assert code == 2 and 'set TMPDIR' in err, (code, err)
    big = save(test.file('b.onnx'), [h.make_node('Neg', ['x'], ['y'])], [port('x', T.FLOAT, [64, 1 << 18])], [port('y', T.FLOAT, None)])
    code, _, err = lib.run(['sh', '-c', 'ulimit -f 40960; exec %s verify %s' % (test.args.cytoc, big)], 60)  # of 512 or 1024 bytes; a library with ASan has 10 MB
    assert code == 2 and 'is the disk full?' in err, (code, err)
    left = [n for n in os.listdir(test.args.tmp) if n.startswith('cytoc-')]
    assert not left, left


def compare(test, a, b, *options, code=0):
    report = test.file('compare.json')
    if os.path.exists(report):
        os.remove(report)
    got, out, err = lib.run([os.path.join(test.args.build, 'cyto-compare'), a, b, '--json', report, *options], 120)
    assert got == code, 'exit code %s instead of %s: %s%s' % (got, code, out, err)
    return out + err, json.load(open(report, encoding='utf-8')) if os.path.exists(report) else None


def library(test, model, name, *options):
    path = test.file(name + '.so')
    code, _, err = lib.run([test.args.cytoc, model, '-o', path, '-j', '1', *options], 120)
    assert code == 0, err
    return path


@case
def two_libraries(test):
    """y = x + 1 beside x + 1.5: the errors that numpy says, for each sample and over all; float beside int8; times in turns."""
    a, b = library(test, shifted(test.file('a.onnx'), 1), 'a'), library(test, shifted(test.file('b.onnx'), 1.5), 'b')
    rng, ys = np.random.default_rng(6), []
    for k in range(3):
        os.makedirs(test.file('s/%d' % k))
        x = rng.standard_normal((4, 8)).astype(f32) * 10 ** k
        np.save(test.file('s/%d/in_0_x.npy' % k), x)
        ys.append((x + f32(1)).astype(float))
    text, report = compare(test, a, b, '--samples', test.file('s'), '--rounds=5')
    row, whole = report['outputs'][0], np.concatenate(ys)
    near(row['snr_db'], 10 * np.log10((whole ** 2).sum() / (0.25 * whole.size)))
    near(row['rms'], 0.5)
    for y, sample in zip(ys, row['samples']):
        near(sample['snr_db'], 10 * np.log10((y ** 2).sum() / 8))
        near(sample['largest'], 0.5)
        assert sample['top'] == 1, sample
    near(report['size'], os.path.getsize(b) / os.path.getsize(a))
    near(report['time'], report['b']['median_ms'] / report['a']['median_ms'])
    assert report['a']['runs'] == report['b']['runs'] == 15, report
    expect(text, 'size: A ', 'time: B takes', 'output of B beside A', 's/2')
    model = network(test.file('n.onnx'))
    float_, small = library(test, model, 'f'), library(test, model, 'i', '--weights=int8')
    _, report = compare(test, float_, small, '--rounds=0')
    assert report['size'] < 0.95 and 25 < report['outputs'][0]['snr_db'] < 80 and 'time' not in report, report
    half = library(test, model, 'h', '--fp16', '--half-io')  # of other widths
    assert 40 < compare(test, float_, half)[1]['outputs'][0]['snr_db'] < 100
    same = compare(test, float_, float_)[1]['outputs'][0]
    assert same['largest'] == 0 and same['snr_db'] is None and same['equal'] == 1, same


@case
def two_that_differ(test):
    """Interfaces that do not fit are told, not compared."""
    a, c = library(test, shifted(test.file('a.onnx'), 1), 'a'), library(test, chain(test.file('c.onnx')), 'c')
    text, report = compare(test, a, c, code=1)
    expect(text, "input 0 is 'x' float32[4,8]", "'x' float32[batch,16]")
    assert report is None
    renamed = save(test.file('r.onnx'), [h.make_node('Neg', ['x'], ['z'])], [port('x', T.FLOAT, [4, 8])], [port('z', T.FLOAT, [4, 8])])
    expect(compare(test, a, library(test, renamed, 'r'), code=1)[0], "output 0 is 'y' float32[4,8]", "'z' float32[4,8]")
    more = save(test.file('m.onnx'), [h.make_node('Neg', ['x'], ['y']), h.make_node('Abs', ['x'], ['u'])], [port('x', T.FLOAT, [4, 8])],
                [port('y', T.FLOAT, [4, 8]), port('u', T.FLOAT, [4, 8])])
    expect(compare(test, a, library(test, more, 'm'), code=1)[0], 'has 1 outputs', 'has 2')
    for words, part in (([a], 'expected two libraries, found 1'), ([a, 'none.so'], 'none.so'), ([a, a, '--samples=none'], "'none': No such file"),
                        ([a, a, '--rounds=x'], '--rounds'), ([a, a, '--range', 'x=2:1'], 'expects INPUT=LO:HI')):
        code, out, err = lib.run([os.path.join(test.args.build, 'cyto-compare'), *words], 60)
        assert code == 1 and part in err, (code, out, err)
    code, _, err = lib.run(['sh', '-c', '%s/cyto-compare %s %s >/dev/full' % (test.args.build, a, a)], 60)
    assert code == 1 and 'cannot write' in err, (code, err)


class Test:
    def __init__(self, args, name):
        self.args, self.work = args, os.path.join(args.build, 'verify', name)
        shutil.rmtree(self.work, ignore_errors=True)
        os.makedirs(self.work)

    def file(self, name):
        return os.path.join(self.work, name)


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    args.tmp = os.path.join(args.build, 'verify', 'tmp')
    shutil.rmtree(args.tmp, ignore_errors=True)
    os.makedirs(args.tmp)
    os.environ['TMPDIR'] = args.tmp
    os.environ['CYTO_PYTHON'] = sys.executable
    for name, function in CASES:
        if not args.wanted(name):
            continue
        test = Test(args, name)
        try:
            skipped = function(test)
        except AssertionError as e:
            suite.result(name, str(e) or "line %d" % e.__traceback__.tb_next.tb_lineno)
            continue
        if skipped:
            suite.skip(name, skipped)
        else:
            suite.result(name)
        shutil.rmtree(test.work, ignore_errors=True)
    suite.done()


if __name__ == '__main__':
    main()
