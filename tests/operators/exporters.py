# SPDX-License-Identifier: Apache-2.0
"""What exporters write, beside ONNX Runtime at -O0 and -O3: outputs with names that nobody uses, branches of an If and squeezed
tensors whose ranks only the rest of the model tells, hundreds of inputs and outputs, one symbol for sizes that differ.

Out: the closing line. Besides: what no part of the model decides is refused by cytoc, and what does not fit is refused when
the library runs; both say what to do.
"""
import os
import re
import shutil
import sys

import numpy as np
from onnx import TensorProto
from onnx import helper as h

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, TESTS)
import graphs
import lib
import network

F, I, B, D = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.DOUBLE
f32 = np.float32
N = h.make_node
const = graphs.constant
LEVELS = ('-O0', '-O3')
CASES, REFUSED, NOT_COMPILED, SYMBOLS = [], [], [], []


def of(nodes, inputs, outputs, constants=(), opset=17, declared=(), functions=(), domains=()):
    """A model of ports: name -> (element type, dims); declared: value_info."""
    imports = (('com.microsoft', 1), ('ai.onnx.ml', 3), *domains)
    proto = graphs.model_of(nodes, [graphs.port(n, *p) for n, p in inputs.items()],
                            [graphs.port(n, *p) for n, p in outputs.items()], constants, opset, imports)
    proto.graph.value_info.extend(graphs.port(n, *p) for n, p in dict(declared).items())
    proto.functions.extend(functions)
    return proto


def case(name, model, *feeds, oracle=None):
    """oracle: the model that ONNX Runtime runs instead, where it refuses this one."""
    CASES.append((name, model, feeds, oracle))


def refused(name, message, model, good, bad):
    """Right with inputs `good`; with `bad` the library says `message`."""
    REFUSED.append((name, message, model, good, bad))


def not_compiled(name, message, model):
    NOT_COMPILED.append((name, message, model))


def inner(nodes, outputs, inputs=(), constants=()):
    """A subgraph; outputs: names, or (name, type, dims)."""
    ports = [h.make_tensor_value_info(*(p if isinstance(p, tuple) else (p, F, None))) for p in outputs]
    return h.make_graph(nodes, 'inner', [h.make_tensor_value_info(*p) for p in inputs], ports, list(constants))


def real(*dims, seed=0):
    return np.random.default_rng(seed).standard_normal(dims).astype(f32)


def unused_outputs():
    """An output that no node, output or subgraph reads is as if it were absent."""
    x, s = real(2, 3, 16), real(2, 3, 16, seed=1)
    io = {'x': (F, ['b', 't', 16]), 's': (F, ['b', 't', 16])}
    gamma, beta = const('g', real(16, seed=2)), const('k', real(16, seed=3))
    for kind, more in (('SkipSimplifiedLayerNormalization', []), ('SkipLayerNormalization', ['k'])):
        nodes = [N(kind, ['x', 's', 'g', *more], ['y', 'mean', 'inv', 'sum'], domain='com.microsoft')]
        case(kind, of(nodes, io, {'y': (F, None), 'sum': (F, None)}, [gamma, beta]), {'x': x, 's': s})
        case(kind + ' in a function', of(
            [N('F', ['x', 's', 'g', 'k'], ['y', 'never', 'sum'], domain='local')], io, {'y': (F, None), 'sum': (F, None)},
            [gamma, beta], domains=[('local', 1)], functions=[h.make_function(
                'local', 'F', ['x', 's', 'g', 'k'], ['y', 'mean', 'sum'], nodes,
                [h.make_opsetid('', 17), h.make_opsetid('com.microsoft', 1)])]), {'x': x, 's': s},
             oracle=of(nodes, io, {'y': (F, None), 'sum': (F, None)}, [gamma, beta]))
    four = [const(n, np.abs(real(3, seed=k)) + 0.5) for k, n in enumerate('abcd')]
    feed = {'x': real(2, 3, 5)}
    image = {'x': (F, ['n', 3, 'l'])}
    plain = [N('BatchNormalization', ['x', 'a', 'b', 'c', 'd'], ['y'])]
    rows = [N('Unsqueeze', [k], ['c' + k], axes=[0, 2]) for k in 'ab']
    trained = [N('ReduceMean', ['x'], ['mean'], axes=[0, 2]), N('Sub', ['x', 'mean'], ['e']), N('Mul', ['e', 'e'], ['ee']),
               N('ReduceMean', ['ee'], ['var'], axes=[0, 2]), N('Add', ['var', 'eps'], ['v']), N('Sqrt', ['v'], ['r']),
               N('Div', ['e', 'r'], ['q']), *rows, N('Mul', ['q', 'ca'], ['p']), N('Add', ['p', 'cb'], ['y'])]
    for opset, count in ((9, 5), (13, 5), (14, 3), (15, 3)):  # before 14, further outputs say that it trains, used or not
        named = [N('BatchNormalization', ['x', 'a', 'b', 'c', 'd'], ['y', 'm', 'v', 'sm', 'sv'][:count])]
        other = of(trained, image, {'y': (F, None)}, [*four, const('eps', f32(1e-5))], 11) if opset < 14 else \
            of(plain, image, {'y': (F, None)}, four, opset)
        case('BatchNormalization %d' % opset, of(named, image, {'y': (F, None)}, four, opset), feed, oracle=other)
    case('Dropout', of([N('Dropout', ['x'], ['y', 'mask'])], image, {'y': (F, None)}), feed)
    case('MaxPool', of([N('MaxPool', ['x'], ['y', 'i'], kernel_shape=[2])], image, {'y': (F, None)}), feed)
    pooled = [N('MaxPool', ['x'], ['y', 'i'], kernel_shape=[2]),
              N('If', ['c'], ['z'], then_branch=inner([N('Cast', ['i'], ['j'], to=F)], ['j']),
                else_branch=inner([N('Identity', ['y'], ['k'])], ['k']))]
    case('an output that only a branch reads', of(pooled, {**image, 'c': (B, [])}, {'z': (F, None)}),
         {**feed, 'c': np.array(True)}, {**feed, 'c': np.array(False)})
    deep = [N('MaxPool', ['x'], ['y', 'i'], kernel_shape=[2]),
            N('If', ['c'], ['z'], then_branch=inner([N('If', ['c'], ['w'], then_branch=inner([N('Cast', ['i'], ['j'], to=F)], ['j']),
                                                     else_branch=inner([N('Identity', ['y'], ['k'])], ['k']))], ['w']),
              else_branch=inner([N('Identity', ['y'], ['l'])], ['l']))]
    case('an output that a branch in a branch reads', of(deep, {**image, 'c': (B, [])}, {'z': (F, None)}),
         {**feed, 'c': np.array(True)})
    odd = [N('If', ['c'], ['y', 'other'], then_branch=inner([N('Neg', ['x'], ['p']), N('Shape', ['x'], ['q'])], ['p', ('q', I, None)]),
             else_branch=inner([N('Relu', ['x'], ['p']), N('ReduceSum', ['x'], ['q'])], ['p', 'q']))]
    right = [N('If', ['c'], ['y'], then_branch=inner([N('Neg', ['x'], ['p'])], ['p']),
               else_branch=inner([N('Relu', ['x'], ['p'])], ['p']))]
    both = {**image, 'c': (B, [])}
    case('a result that branches disagree about', of(odd, both, {'y': (F, None)}), {**feed, 'c': np.array(True)},
         {**feed, 'c': np.array(False)}, oracle=of(right, both, {'y': (F, None)}))
    turn = inner([N('Identity', ['d'], ['e']), N('Add', ['v', 'v'], ['w']), N('Range', ['zero', 'i', 'one'], ['r'])],
                 [('e', B, []), ('w', F, None), ('r', I, None)], [('i', I, []), ('d', B, []), ('v', F, None)],
                 [const('zero', np.int64(0)), const('one', np.int64(1))])
    less = inner(list(turn.node)[:2], [('e', B, []), ('w', F, None)], [('i', I, []), ('d', B, []), ('v', F, None)])
    loops = [[N('Loop', ['m', 'c', 'x'], outs, body=b)] for outs, b in ((['y', 'scan'], turn), (['y'], less))]
    counted = {'m': (I, []), 'c': (B, []), **image}
    case('scans that do not fit together', of(loops[0], counted, {'y': (F, None)}),
         {'m': np.array(3), 'c': np.array(True), **feed}, oracle=of(loops[1], counted, {'y': (F, None)}))
    weights = [const('w', real(1, 12, 5)), const('r', real(1, 12, 3))]
    case('LSTM', of([N('LSTM', ['x', 'w', 'r'], ['y', 'h', 'c'], hidden_size=3)], {'x': (F, ['t', 'n', 5])}, {'h': (F, None)}, weights),
         {'x': real(4, 2, 5)})


def squeezed_if(condition, squeezed, other, swap=False):
    """An If whose branches give a squeezed tensor or the tensor itself, as PyTorch's exporter writes a squeeze of an axis that
    may be 1."""
    then = inner([N('Squeeze', [squeezed, 'axis'], ['q'])], ['q'])
    same = inner([N('Identity', [squeezed], ['p'])], ['p'])
    return N('If', [condition], [other], then_branch=same if swap else then, else_branch=then if swap else same)


def branches():
    """Ranks that differ between branches are decided by what uses the result."""
    one = [const('axis', np.array([2])), const('k', np.array(1)), const('at', np.array(2)), const('front', np.array([0])),
           const('w', real(1, 12, 5)), const('r', real(1, 12, 3))]
    io = {'x': (F, ['b', 5, 't'])}
    x = {'x': real(2, 5, 1)}

    def test(swap):
        return [N('Shape', ['x'], ['dims']), N('Gather', ['dims', 'at'], ['t'], axis=0),
                *([N('Equal', ['t', 'k'], ['c'])] if not swap else [N('Equal', ['t', 'k'], ['e']), N('Not', ['e'], ['c'])])]

    for swap in (False, True):
        which = 'else' if swap else 'then'
        nodes = [*test(swap), squeezed_if('c', 'x', 'u', swap), N('Unsqueeze', ['u', 'front'], ['seq']),
                 N('LSTM', ['seq', 'w', 'r'], ['', 'y'], hidden_size=3)]
        model = of(nodes, io, {'y': (F, None)}, one)
        case('squeezed in the %s branch, for an LSTM' % which, model, x)
        refused('not to be squeezed, for an LSTM, %s' % which, 'a branch of this If that is not valid', model, x, {'x': real(2, 5, 3)})
        kept = [*test(swap), squeezed_if('c', 'x', 'u', swap), N('Conv', ['u', 'v'], ['y'])]
        model = of(kept, io, {'y': (F, None)}, [*one, const('v', real(4, 5, 2))])
        case('not squeezed, for a convolution, %s' % which, model, {'x': real(2, 5, 3)})
        refused('squeezed, for a convolution, %s' % which, 'a branch of this If that is not valid', model, {'x': real(2, 5, 3)}, x)
        decided = [*test(swap), squeezed_if('c', 'x', 'u', swap), N('Relu', ['u'], ['y'])]
        for rank, feed in ((2, x), (3, {'x': real(2, 5, 3)})):
            dims = ['b', 5, 't'][:rank]
            case('the output is declared with rank %d, %s' % (rank, which), of(decided, io, {'y': (F, dims)}, one), feed)
            case('what is in between is declared with rank %d, %s' % (rank, which),
                 of(decided, io, {'y': (F, None)}, one, declared={'u': (F, dims)}), feed)
        not_compiled('nothing decides, %s' % which, 'nothing that follows decides', of(decided, io, {'y': (F, None)}, one))
    for deep in (False, True):  # what uses the first result is in a branch; the other branch does not use it
        seq = [N('Unsqueeze', ['u', 'front'], ['seq']), N('LSTM', ['seq', 'w', 'r'], ['', 'h'], hidden_size=3)]
        again = [N('Shape', ['h'], ['hd']), N('Gather', ['hd', 'first'], ['n'], axis=0), N('Equal', ['n', 'k'], ['a']),
                 N('If', ['a'], ['g'], then_branch=inner([N('Squeeze', ['h', 'front'], ['hs'])], ['hs']),
                   else_branch=inner([N('Identity', ['h'], ['hi'])], ['hi'])), N('MatMul', ['g', 'm'], ['z'])]
        then = inner(seq + (again if deep else []), ['z' if deep else 'h'])
        other = inner([N('Identity', ['zeros'], ['o'])], ['o'])
        nodes = [*test(False), squeezed_if('c', 'x', 'u'), N('If', ['f'], ['y'], then_branch=then, else_branch=other)]
        for swap in (False, True):
            nodes[len(test(False))] = squeezed_if('c' if not swap else 'nc', 'x', 'u', swap)
            more = [N('Not', ['c'], ['nc'])]
            zeros = np.zeros((2, 4) if deep else (1, 2, 3), f32)
            model = of(nodes[:3] + more + nodes[3:], {**io, 'f': (B, [])}, {'y': (F, ['b', 4] if deep else None)},
                       [*one, const('zeros', zeros), const('first', np.array(0)), const('m', real(3, 4))])
            case('used in a branch%s%s' % (', decided again there' if deep else '', ', swapped' if swap else ''), model,
                 {**x, 'f': np.array(True)}, {**x, 'f': np.array(False)})
    rows = [N('If', ['c'], ['u'], then_branch=inner([N('Squeeze', ['x', 'front'], ['q'])], ['q']),
              else_branch=inner([N('Identity', ['x'], ['p'])], ['p']))]
    for rank in (2, 3):
        case('a dimension of 1 in front, declared with rank %d' % rank, of(
            rows + [N('Relu', ['u'], ['y'])], {'x': (F, [1, 5, 't']), 'c': (B, [])}, {'y': (F, [1, 5, 't'][3 - rank:])}, one),
             {'x': real(1, 5, 4), 'c': np.array(rank == 2)})
    case('in front, as a matrix with a bias that has three axes', of(
        rows + [N('Conv', ['u', 'v'], ['y'])], {'x': (F, [1, 5, 't']), 'c': (B, [])}, {'y': (F, None)},
        [*one, const('v', real(4, 5, 2))]), {'x': real(1, 5, 4), 'c': np.array(False)})


def squeezed_without_axes():
    """A declared rank decides what a Squeeze without axes leaves; so does what uses the result."""
    io = {'x': (F, ['b', 1, 'n'])}
    one, two = {'x': real(1, 1, 4)}, {'x': real(3, 1, 4)}
    nodes = [N('Squeeze', ['x'], ['q']), N('Sigmoid', ['q'], ['s']), N('Mul', ['s', 's'], ['y'])]
    for opset in (11, 17):
        of_rank = [of(nodes, io, {'y': (F, dims)}, opset=opset) for dims in ([], ['n'], ['b', 'n'])]
        case('squeezed to a number, %d' % opset, of_rank[0], {'x': real(1, 1, 1)})
        case('squeezed to rank 1, %d' % opset, of_rank[1], one, {'x': real(5, 1, 1)})
        case('squeezed to rank 2, %d' % opset, of_rank[2], two)
        refused('more than fits rank 1, %d' % opset, 'Squeeze\': sizes 12 and 3 should be equal', of_rank[1], one, two)
        refused('more than a number, %d' % opset, 'Squeeze\': sizes 3 and 1 should be equal', of_rank[0], {'x': real(1, 1, 1)},
                {'x': real(3, 1, 1)})
        case('declared in between, %d' % opset, of(nodes, io, {'y': (F, None)}, opset=opset, declared={'q': (F, ['n'])}), one)
    model = of([N('Squeeze', ['x'], ['q']), N('Conv', ['q', 'w'], ['y'])], {'x': (F, ['a', 1, 'b', 3, 't'])}, {'y': (F, None)},
               [const('w', real(4, 3, 2))])
    case('squeezed for a convolution', model, {'x': real(2, 1, 1, 3, 6)}, {'x': real(1, 1, 2, 3, 6)})
    for a, b in (2, 3), (1, 1):
        refused('too %s for a convolution' % ('much' if a > 1 else 'little'), 'should be equal', model, {'x': real(2, 1, 1, 3, 6)},
                {'x': real(a, 1, b, 3, 6)})


def many(count=201):
    """More inputs, outputs, captured and carried values than fit any fixed number."""
    names = ['i%d' % k for k in range(count)]
    feed = {name: 1 + real(2, 3, seed=k) / 9 for k, name in enumerate(names)}
    io, y = {name: (F, ['b', 3]) for name in names}, {'y': (F, None)}
    of_ml = {'domain': 'ai.onnx.ml'}
    case('%d features' % count, of([N('FeatureVectorizer', names, ['y'], inputdimensions=[3] * count, **of_ml)], io, y), feed)
    widths = [1 + k % 5 for k in range(count)]  # columns that are cut off, and zeros where there are none
    case('%d features of other widths' % count, of([N('FeatureVectorizer', names, ['y'], inputdimensions=widths, **of_ml)], io, y),
         feed)
    for kind, attributes in (('Sum', {}), ('Max', {}), ('Min', {}), ('Mean', {}), ('Concat', {'axis': 0}), ('Concat', {'axis': 1}),
                             ('Einsum', {'equation': ','.join(['ab'] * count) + '->ba'})):
        case('%s of %d %s' % (kind, count, attributes.get('axis', '')), of([N(kind, names, ['y'], **attributes)], io, y), feed)
    function = h.make_function('local', 'F', names, ['y'], [N('Sum', names, ['y'])], [h.make_opsetid('', 17)])
    case('a function of %d' % count, of([N('F', names, ['y'], domain='local')], io, y, functions=[function], domains=[('local', 1)]),
         feed)
    outs = ['o%d' % k for k in range(count)]
    x = {'x': real(2 * count, 3)}
    for dims, more in (([2 * count, 3], {}), (['n', 3], {'num_outputs': count})):
        case('split into %d, %s' % (count, dims[0]), of(
            [N('Split', ['x'], outs, axis=0, **more)] + [N('Relu', [o], ['r' + o]) for o in outs] +
            [N('Concat', ['r' + o for o in outs], ['y'], axis=1)], {'x': (F, dims)}, y, opset=18 if more else 17), x)
    case('%d outputs' % count, of([N('Split', ['x'], outs, axis=0)], {'x': (F, [2 * count, 3])}, {o: (F, None) for o in outs}), x)
    case('a sequence of %d' % count, of([N('SequenceConstruct', names, ['s']), N('ConcatFromSequence', ['s'], ['y'], axis=1)], io, y),
         feed)
    branches_of = [inner([N('Sum', names, ['p'])], ['p']), inner([N('Max', names, ['q'])], ['q'])]
    case('branches that read %d values' % count, of([N('If', ['c'], ['y'], then_branch=branches_of[0], else_branch=branches_of[1])],
                                                    {**io, 'c': (B, [])}, y), {**feed, 'c': np.array(True)})
    each = [inner([N(kind, [n], [kind + n]) for n in names], [kind + n for n in names]) for kind in ('Neg', 'Exp')]
    case('branches with %d results' % count, of([N('If', ['c'], outs, then_branch=each[0], else_branch=each[1])],
                                                {**io, 'c': (B, [])}, {o: (F, None) for o in outs}), {**feed, 'c': np.array(False)})
    turn = inner([N('Identity', ['d'], ['e'])] + [N('Add', ['v' + n, n], ['w' + n]) for n in names],
                 [('e', B, []), *['w' + n for n in names]], [('i', I, []), ('d', B, []), *[('v' + n, F, None) for n in names]])
    case('a loop that carries %d' % count, of([N('Loop', ['m', '', *names], outs, body=turn)], {**io, 'm': (I, [])},
                                              {o: (F, None) for o in outs}), {**feed, 'm': np.array(3)})


def channels():
    """Scales and biases have one value for each channel; what says otherwise is refused, with the node's name."""
    x, per = {'x': (F, ['n', 4, 'l'])}, {'x': (F, ['n', 'c', 'l'])}
    out = {'y': (F, None)}
    numbers = {k: const(k, np.abs(real(3, seed=i)) + 0.1) for i, k in enumerate('sbmv')}
    all_four = list(numbers.values())
    norm = {'BatchNormalization': ['s', 'b', 'm', 'v'], 'InstanceNormalization': ['s', 'b']}
    for kind, inputs in norm.items():
        node = [N(kind, ['x', *inputs], ['y'], name='bad_node')]
        for wrong in inputs:
            right = [const(k, np.ones(3 if k == wrong else 4, f32)) for k in inputs]
            not_compiled('%s of another number of %s' % (kind, wrong), "'bad_node' (#0, %s): input" % kind, of(node, x, out, right))
        refused('%s of other channels' % kind, "'bad_node': sizes", of(node, per, out, all_four), {'x': real(2, 3, 5)},
                {'x': real(2, 1, 5)})
    one = {**x, 'x': (F, ['n', 1, 'l'])}
    not_compiled('one channel and three scales', 'one for each channel', of(
        [N('BatchNormalization', ['x', 's', 'b', 'm', 'v'], ['y'])], one, out, all_four))
    for opset, count in ((18, 2), (21, 4)):
        for bad in (1, 2 if count == 4 else 4, 3):
            not_compiled('GroupNormalization %d with %d' % (opset, bad), 'one for each channel', of(
                [N('GroupNormalization', ['x', 's', 'b'], ['y'], num_groups=2)], x, out,
                [const('s', np.ones(bad, f32)), const('b', np.ones(count, f32))], opset))
    for kind, inputs in (('LayerNormalization', 'sb'), ('RMSNormalization', 's')):
        node, opset = [N(kind, ['x', *inputs], ['y'], name='bad_node')], 23
        for wrong in inputs:
            made = [const(k, np.ones(3 if k == wrong else 5, f32)) for k in inputs]
            not_compiled('%s of other %s' % (kind, wrong), 'expected a shape that broadcasts to', of(
                node, {'x': (F, ['n', 5])}, out, made, opset))
            made = [const(k, np.ones((2, 5) if k == wrong else 5, f32)) for k in inputs]
            not_compiled('%s of one row and two of %s' % (kind, wrong), 'expected a shape that broadcasts to', of(
                node, {'x': (F, [1, 5])}, out, made, opset))
        refused('%s of another size' % kind, "'bad_node'", of(
            node, {'x': (F, ['n', 'c'])}, out, [const(k, np.ones(5, f32)) for k in inputs], opset), {'x': real(2, 5)}, {'x': real(2, 1)})
    case('PRelu', of([N('PRelu', ['x', 's'], ['y'])], {'x': (F, ['n', 'c'])}, out, all_four), {'x': real(2, 3)})
    for kind, shape in (('Conv', (6, 4, 2)), ('ConvTranspose', (4, 6, 2))):
        for count in (1, 4):
            not_compiled('%s with %d biases' % (kind, count), 'expected 6 values, one for each channel', of(
                [N(kind, ['x', 'w', 'b'], ['y'])], x, out, [const('w', real(*shape)), const('b', real(count))]))


def signals():
    """A last dimension that says when it runs whether a signal is real or complex."""
    for opset, axis in ((17, None), (20, 1), (20, 0)):
        for attributes in ({}, {'inverse': 1}):
            given = {'axis': 1} if opset < 20 else {}
            nodes = [N('DFT', ['x', '', 'a'] if opset > 17 else ['x'], ['y'], **given, **attributes)]
            case('a transform, %d %s %s' % (opset, axis, attributes), of(
                nodes, {'x': (F, ['n', 't', 'c'])}, {'y': (F, None)}, [const('a', np.int64(axis or 0))], opset),
                {'x': real(2, 8, 1)}, {'x': real(2, 8, 2)}, {'x': real(3, 5, 2)})
    open_axis = of([N('DFT', ['x', '', 'a'], ['y'])], {'x': (F, ['n', 't', 'c']), 'a': (I, [])}, {'y': (F, None)}, opset=20)
    case('a transform of an open axis', open_axis, {'x': real(2, 8, 1), 'a': np.array(1)}, {'x': real(2, 8, 2), 'a': np.array(0)})
    model = of([N('DFT', ['x'], ['y'], axis=1)], {'x': (F, ['n', 't', 'c'])}, {'y': (F, None)}, opset=17)
    for parts in (0, 3):
        refused('a transform of %d parts' % parts, 'DFT', model, {'x': real(2, 8, 1)}, {'x': real(2, 8, parts)})


def scans_of_batches():
    """Scan of opset 8 has a batch axis in front of everything, and may be told how long each element is."""
    step = inner([N('Mul', ['h', 'a'], ['h1']), N('Add', ['h1', 'x'], ['h2']), N('Relu', ['h2'], ['o'])],
                 [('h2', F, [3]), ('o', F, [3])], [('h', F, [3]), ('x', F, [3])], [const('a', f32([0.5, -0.9, 0.3]))])
    for batch in ('b', 2):
        for back in (0, 1):
            for lengths in (False, True):
                node = [N('Scan', ['n' if lengths else '', 'h', 'x'], ['last', 'all'], body=step, num_scan_inputs=1, directions=[back])]
                io = {'h': (F, [batch, 3]), 'x': (F, [batch, 't', 3])}
                feed = {'h': real(2, 3), 'x': real(2, 5, 3, seed=1)}
                if lengths:
                    io, feed = {'n': (I, [batch]), **io}, {'n': np.array([3, 5]), **feed}
                model = of(node, io, {'last': (F, None), 'all': (F, None)}, opset=8)
                more = [{**feed, 'n': np.array([1, 2])}] if lengths else [{'h': real(2, 3), 'x': real(2, 1, 3)}]
                case('batch of %s, backwards %d%s' % (batch, back, ', with lengths' * lengths), model, feed, *more)
                if lengths:
                    for bad in (6, -1):
                        refused('a length of %d, batch of %s, backwards %d' % (bad, batch, back), 'Scan', model, feed,
                                {**feed, 'n': np.array([3, bad])})
    model = of([N('Scan', ['', 'h', 'x'], ['last', 'all'], body=step, num_scan_inputs=1)],
               {'h': (F, ['b', 3]), 'x': (F, ['c', 't', 3])}, {'last': (F, None), 'all': (F, None)}, opset=8)
    refused('batches that differ', 'Scan\': sizes 2 and 3 should be equal', model, {'h': real(2, 3), 'x': real(2, 5, 3)},
            {'h': real(2, 3), 'x': real(3, 5, 3)})


def symbols(name, model, expected, *feeds, dim=None):
    """expected: the dims of the inputs that cyto-run --info prints; dim: a --dim for cytoc."""
    SYMBOLS.append((name, model, expected, feeds, dim))


def one_name():
    """One name on axes whose sizes differ: works where nothing needs them equal."""
    y, both = {'y': (F, None)}, {'y': (F, None), 'z': (F, None)}
    weights = [const('w', real(3, 2))]
    symbols('both axes of an input', of([N('Relu', ['x'], ['y'])], {'x': (F, ['N', 'N'])}, y), ['N,x_dim1'], {'x': real(3, 5)},
            {'x': real(4, 4)})
    model = of([N('MatMul', ['x', 'w'], ['y'])], {'x': (F, ['N', 'N'])}, y, weights)
    symbols('rows and known columns', model, ['N,x_dim1'], {'x': real(7, 3)})
    refused('rows and other columns', 'sizes 4 and 3 should be equal', model, {'x': real(7, 3)}, {'x': real(7, 4)})
    apart = of([N('Relu', ['a'], ['y']), N('Exp', ['b'], ['z'])], {'a': (F, ['N', 4]), 'b': (F, ['N', 3])}, both)
    symbols('inputs that never meet', apart, ['N,4', 'b_dim0,3'], {'a': real(3, 4), 'b': real(5, 3)}, {'a': real(2, 4), 'b': real(2, 3)})
    symbols('inputs that never meet, fixed', apart, ['2,4', '2,3'], {'a': real(2, 4), 'b': real(2, 3)}, dim='N=2')
    io = {'a': (F, ['N', 3]), 'b': (F, ['N', 3])}
    symbols('inputs one behind the other', of([N('Concat', ['a', 'b'], ['y'], axis=0)], io, y), ['N,3', 'b_dim0,3'],
            {'a': real(2, 3), 'b': real(5, 3)})
    symbols('an outer product', of([N('Transpose', ['b'], ['t']), N('MatMul', ['a', 't'], ['y'])], io, y), ['N,3', 'b_dim0,3'],
            {'a': real(2, 3), 'b': real(5, 3)})
    product = [N('MatMul', ['a', 'b'], ['y'])]
    symbols('a product', of(product, {'a': (F, ['N', 'N']), 'b': (F, ['N', 4])}, y), ['N,a_dim1', 'a_dim1,4'],
            {'a': real(2, 5), 'b': real(5, 4)})
    branch = [N('If', ['c'], ['y'], then_branch=inner([N('Neg', ['a'], ['p'])], ['p']), else_branch=inner([N('Relu', ['b'], ['q'])], ['q']))]
    symbols('results of branches', of(branch, {**io, 'c': (B, [])}, y), ['N,3', 'N,3', ''],
            {'a': real(2, 3), 'b': real(2, 3), 'c': np.array(True)})
    test = [N('Shape', ['a'], ['s']), N('Shape', ['b'], ['t']), N('Equal', ['s', 't'], ['e']), N('Cast', ['e'], ['y'], to=F)]
    symbols('sizes that are compared', of(test, io, y), ['N,3', 'N,3'], {'a': real(2, 3), 'b': real(2, 3)})
    through = [N('Add', ['a', 'c'], ['p']), N('Add', ['c', 'b'], ['q']), N('Concat', ['p', 'q'], ['y'], axis=0)]
    symbols('equal by way of another name', of(through, {**io, 'c': (F, ['M', 3])}, y), ['N,3', 'N,3', 'M,3'],
            {n: real(2, 3) for n in 'abc'})
    caches = {n: (F, ['b', 2, 'past', 4]) for n in 'kl'}
    symbols('caches of layers', of([N('Relu', ['k'], ['y']), N('Relu', ['l'], ['z'])], caches, both), ['b,2,past,4'] * 2,
            {n: real(1, 2, 3, 4) for n in 'kl'})
    for kind, axis, said in (('Add', None, 'do not broadcast'), ('Concat', 1, 'should be equal')):
        nodes = [N(kind, ['a', 'b'], ['y'], **({'axis': axis} if axis else {}))]
        model = of(nodes, io, y)
        symbols('%s of equal sizes' % kind, model, ['N,3', 'N,3'], {'a': real(5, 3), 'b': real(5, 3)})
        refused('%s of sizes that differ' % kind, "'b': expected 5 on axis 0 ('N') as on axis 0 of input 'a', found 4; sizes may "
                "differ in a library compiled with --dim 'N=?'", model, {'a': real(5, 3), 'b': real(5, 3)},
                {'a': real(5, 3), 'b': real(4, 3)})
        more = [{'a': real(5, 3), 'b': real(1, 3)}] if kind == 'Add' else []
        for every in 'N', '*':
            symbols('%s, %s apart' % (kind, every), model, ['N,3', 'b_dim0,3'], {'a': real(5, 3), 'b': real(5, 3)}, *more,
                    dim=every + '=?')


def check_symbols(args, folder, proto, expected, feeds, dim):
    path, library = os.path.join(folder, 'm.onnx'), os.path.join(folder, 'm.so')
    with open(path, 'wb') as f:
        f.write(proto.SerializeToString())
    session = network.ort_session(proto.SerializeToString())
    for level in LEVELS:
        why = network.compile_model(args, path, library, level, ['--verify', *(['--dim', dim] if dim else [])])
        if why:
            return why
        _, out, _ = lib.run([args.cyto_run, library, '--info'])
        dims = re.findall(r"^input .*\[(.*)\]", out, re.M)
        if dims != expected:
            return '%s: inputs are %s' % (level, dims)
        for feed in feeds:
            code, err = network.run_feeds(args, folder, library, feed)
            if code:
                return lib.reason(err, code)
            for i, want in enumerate(session.run(None, feed)):
                name = session.get_outputs()[i].name
                why = lib.difference(name, network.output_of(folder, i, name), want, 1e-6)
                if why:
                    return '%s: %s' % (level, why)
    return None


def check_case(args, folder, proto, feeds, oracle):
    runs = [(1, feed) for feed in feeds]
    return next(filter(None, (network.beside_ort(args, folder, proto, runs, 1e-6, level, oracle) for level in LEVELS)), None)


def check_refused(args, folder, message, proto, good, bad):
    why = network.beside_ort(args, folder, proto, [(1, good)], 1e-6)
    if why:
        return why
    code, err = network.run_feeds(args, folder, os.path.join(folder, 'm.so'), bad)
    return None if code == 1 and message in err else 'exit code %d, %s' % (code, err)


def check_not_compiled(args, folder, message, proto):
    path = os.path.join(folder, 'm.onnx')
    with open(path, 'wb') as f:
        f.write(proto.SerializeToString())
    code, _, err = lib.run([args.cytoc, path, '-o', os.path.join(folder, 'm.so')])
    return None if code == 1 and message in err else 'exit code %d, %s' % (code, err)


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    folder = os.path.join(args.build, 'exporters')
    for group in (unused_outputs, branches, squeezed_without_axes, many, channels, signals, scans_of_batches,
                  one_name):
        group()
    tests = [(name, lambda rest=rest: check_case(args, folder, *rest)) for name, *rest in CASES]
    tests += [('refused ' + name, lambda rest=rest: check_refused(args, folder, *rest)) for name, *rest in REFUSED]
    tests += [('symbols of ' + name, lambda rest=rest: check_symbols(args, folder, *rest)) for name, *rest in SYMBOLS]
    tests += [('not compiled ' + name, lambda rest=rest: check_not_compiled(args, folder, *rest)) for name, *rest in NOT_COMPILED]
    for name, test in tests:
        if args.wanted(name):
            os.makedirs(folder, exist_ok=True)
            suite.result(name, test())
            shutil.rmtree(folder)
    suite.done()


if __name__ == '__main__':
    main()
