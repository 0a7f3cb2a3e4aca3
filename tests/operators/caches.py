# SPDX-License-Identifier: Apache-2.0
"""Outputs that are written in the memory of inputs: caches of language models, step after step, with and without it; and
outputs that continue inputs, kept in memory that grows (tests/grown/run_steps.c compares the bytes).

In:  build/cytoc, build/cyto-run; names (regular expressions) to restrict it. Out: a line for each failure, the closing line.

Each model is compiled at -O0 and -O3 and run for some steps, the caches of a step being those that the one before left. What
`cyto-run --share` gives must be the same to the bit, and close to the other level's; `cyto-run --info` must name exactly the
outputs that may share memory. Caches that grow run for CUDA, too (by mocks of its libraries, tests/cuda). Sequences of a batch have lengths of their own.
"""
import os
import re
import shutil
import sys

import numpy as np
from onnx import TensorProto as T
from onnx import helper as h

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, os.path.join(TESTS, 'cuda')]
import graphs
import lib
import mock
import network
from grown import llama

MS = 'com.microsoft'
ROOM, SIZE, STEPS = 16, 8, 4
rng = np.random.default_rng(5)
TRANSPOSED = 'rows of an axis brought to the front'  # shares memory where it is rewritten: not at -O0
CASES = {}  # name: model, first caches by name, {cache: output}, a function from the step to the other inputs


def real(*dims, dtype=np.float32):
    return rng.standard_normal(dims).astype(dtype)


def whole(*dims):
    """Numbers that add up exactly, in whichever order."""
    return rng.integers(-9, 9, dims).astype(np.float32)


def case(name, nodes, given, outputs, past, more, constants=(), opset=17):
    """given: the inputs that are no caches, of a step; outputs: {name: dtype}; past: {name: (first array, its output)}."""
    caches = {n: x for n, (x, _) in past.items()}
    first = {**given(0), **caches}
    ports = [graphs.port(n, x.dtype, [None if n in more else d for d in x.shape]) for n, x in first.items()]
    results = [graphs.port(n, dtype, None) for n, dtype in outputs.items()]
    model = graphs.model_of(nodes, ports, results, [graphs.constant(n, x) for n, x in constants], opset=opset)
    for port in model.graph.input:
        for k, d in enumerate(port.type.tensor_type.shape.dim):
            if not d.HasField('dim_value'):
                d.dim_param = '%s_%d' % (port.name, k)
    CASES[name] = model, caches, {n: out for n, (_, out) in past.items()}, given


def shared_heads(name, lengths, rows=1, dtype=np.float32, bits=0, **attributes):
    """GroupQueryAttention: `lengths` tokens are there at first, `rows` more come with every step."""
    batch, heads, kept = len(lengths), 4, 2
    quantised = {'k_quant_type': 'PER_TENSOR', 'v_quant_type': 'PER_TENSOR', 'kv_cache_bit_width': bits} if bits else {}
    there = np.arange(ROOM)[:, None] < np.array(lengths)[:, None, None, None]  # zeros behind: in a copy they are in any case

    def stored():
        x = rng.integers(-100, 100, (batch, kept, ROOM, SIZE)).astype(np.int8) if bits else real(batch, kept, ROOM, SIZE, dtype=dtype)
        return np.where(there, x, x.dtype.type(0))

    given = [{'q': real(batch, rows, heads * SIZE, dtype=dtype), 'k': real(batch, rows, kept * SIZE, dtype=dtype),
              'v': real(batch, rows, kept * SIZE, dtype=dtype),
              'lengths': np.int32([n + rows * (step + 1) - 1 for n in lengths]),
              'total': np.int32(max(lengths) + rows * (step + 1))} for step in range(STEPS)]
    tables = [(n, f(real(ROOM, SIZE // 2)).astype(dtype)) for n, f in (('cos', np.cos), ('sin', np.sin))]
    scales = [(n, np.float32([0.02])) for n in ('ks', 'vs')] if bits else []
    node = h.make_node('GroupQueryAttention', ['q', 'k', 'v', 'pk', 'pv', 'lengths', 'total', 'cos', 'sin', '', '', '',
                                               *(['ks', 'vs'] if bits else [])], ['y', 'nk', 'nv'], domain=MS, num_heads=heads, kv_num_heads=kept,
                       do_rotary=1, **quantised, **attributes)
    kind = h.np_dtype_to_tensor_dtype(np.dtype(dtype))
    kinds = {'y': kind, 'nk': T.INT8 if bits else kind, 'nv': T.INT8 if bits else kind}
    case(name, [node], given.__getitem__, kinds, {'pk': (stored(), 'nk'), 'pv': (stored(), 'nv')}, ('pk', 'pv'), tables + scales)


def own_heads():
    """MultiHeadAttention with past_sequence_length."""
    batch, heads = 2, 3
    given = [{'q': real(batch, 1, heads * SIZE), 'k': real(batch, 1, heads * SIZE), 'v': real(batch, 1, heads * SIZE),
              'used': np.int32([5 + step])} for step in range(STEPS)]
    node = h.make_node('MultiHeadAttention', ['q', 'k', 'v', '', '', '', 'pk', 'pv', 'used'], ['y', 'nk', 'nv'], domain=MS, num_heads=heads)
    past = {n: (real(batch, heads, ROOM, SIZE), out) for n, out in (('pk', 'nk'), ('pv', 'nv'))}
    case('one length', [node], given.__getitem__, {n: T.FLOAT for n in ('y', 'nk', 'nv')}, past, ())


def written(mode, rows, starts):
    """TensorScatter, read by Attention."""
    batch, heads = len(starts), 2
    given = [{'q': real(batch, heads, rows, SIZE), 'k': real(batch, heads, rows, SIZE), 'v': real(batch, heads, rows, SIZE),
              'at': np.int64([s + step * rows for s in starts])} for step in range(STEPS)]
    nodes = [h.make_node('TensorScatter', ['p' + n, n, 'at'], ['n' + n], axis=2, mode=mode) for n in 'kv']
    nodes += [h.make_node('Add', ['at', 'rows'], ['end']), h.make_node('Min', ['end', 'room'], ['lengths']),
              h.make_node('Attention', ['q', 'nk', 'nv', '', '', '', 'lengths'], ['y'])]
    past = {n: (real(batch, heads, ROOM, SIZE), out) for n, out in (('pk', 'nk'), ('pv', 'nv'))}
    case('scattered, %s' % mode, nodes, given.__getitem__, {n: T.FLOAT for n in ('y', 'nk', 'nv')}, past, (),
         [('rows', np.int64([rows])), ('room', np.int64([ROOM]))], opset=24)


def scattered():
    """Caches of exporters that have no operator for it; and outputs that must not share."""
    given = [{'x': real(2, 3, SIZE), 'at': np.tile(np.int64([[3 + step], [9 - step], [0]]), (2, 1, SIZE)).reshape(2, 3, SIZE)}
             for step in range(STEPS)]
    past = {'p': (real(2, ROOM, SIZE), 'n')}
    elements = h.make_node('ScatterElements', ['p', 'at', 'x'], ['n'], axis=1)
    total = h.make_node('ReduceSum', ['n'], ['y'], keepdims=0)
    case('elements', [elements, total], given.__getitem__, {'n': T.FLOAT, 'y': T.FLOAT}, past, ())
    later = [elements, h.make_node('ReduceSum', ['n'], ['s'], keepdims=0), h.make_node('Mul', ['s', 'p'], ['y'])]
    case('read behind it', later, given.__getitem__, {'n': T.FLOAT, 'y': T.FLOAT}, {'p': (past['p'][0], None)}, ())
    twice = [elements, h.make_node('ScatterElements', ['p', 'at', 'z'], ['y'], axis=1), h.make_node('Neg', ['x'], ['z'])]
    case('written twice', [twice[0], twice[2], twice[1]], given.__getitem__, {'n': T.FLOAT, 'y': T.FLOAT}, {'p': (past['p'][0], 'y')}, ())
    case('changed behind it', [h.make_node('ScatterElements', ['p', 'at', 'x'], ['m'], axis=1), h.make_node('Neg', ['m'], ['n'])],
         given.__getitem__, {'n': T.FLOAT}, {'p': (past['p'][0], None)}, ())
    slots = [{'x': real(3, SIZE), 'at': np.int64([[0, 3 + step], [1, 9 - step], [1, step]])} for step in range(STEPS)]
    turned = [{'x': real(3, 2, 2, SIZE), 'at': np.int64([[3 + step], [9 - step], [0]])} for step in range(STEPS)]
    front = [h.make_node('Transpose', ['p'], ['f'], perm=[2, 0, 1, 3]), h.make_node('ScatterND', ['f', 'at', 'x'], ['g']),
             h.make_node('Transpose', ['g'], ['n'], perm=[1, 2, 0, 3]), h.make_node('MatMul', ['n', 'w'], ['y'])]
    case(TRANSPOSED, front, turned.__getitem__, {'n': T.FLOAT, 'y': T.FLOAT}, {'p': (real(2, 2, ROOM, SIZE), 'n')}, (),
         [('w', real(SIZE, 3))])
    case('places', [h.make_node('ScatterND', ['p', 'at', 'x'], ['n'])], slots.__getitem__, {'n': T.FLOAT}, past, ())


def looped(name, nodes, carried, turns, constants=(), limit=True, axis=None):
    """(name, model, feeds) of a Loop around nodes, from `carried` {name: first array} to next_NAME; without a limit a condition
    ends it. Its scan output is the sum of each turn. axis: along which sizes change, which are else known."""
    def carry(prefix):
        return [graphs.port(prefix + n, x.dtype, [None if k == axis else d for k, d in enumerate(x.shape)]) for n, x in carried.items()]

    nodes = [*nodes, h.make_node('ReduceSum', ['next_' + list(carried)[0]], ['sum'], keepdims=0),
             h.make_node('Add', ['i', 'one'], ['done']), h.make_node('Less', ['done', 'turns'], ['more'])]
    body = h.make_graph(nodes, 'body', [graphs.port('i', np.int64, []), graphs.port('go', np.bool_, []), *carry('')],
                        [graphs.port('more', np.bool_, []), *carry('next_'), graphs.port('sum', np.float32, [])],
                        [graphs.constant('one', np.int64(1)), *(graphs.constant(n, x) for n, x in constants)])
    loop = h.make_node('Loop', ['turns' if limit else '', 'start', *carried], ['out_' + n for n in carried] + ['sums'], body=body)
    model = graphs.model_of([loop], [graphs.port('turns', np.int64, []), *carry('')], [*carry('out_'), graphs.port('sums', np.float32, [None])],
                            [graphs.constant('start', np.bool_(True))])
    return name, model, [{'turns': np.int64(t), **carried} for t in turns]


def loops():
    """Carried values that grow (by more turns than have room at first), grow and are gathered, are written, change places."""
    x, rows = whole(2, 3, 4), whole(2, 2, 4)
    grow = h.make_node('Concat', ['x', 'rows'], ['next_x'], axis=1)
    for limit in (True, False):
        yield looped('grows' + ', no limit' * (not limit), [grow], {'x': x}, (1, 700), [('rows', rows)], limit, 1)
    yield looped('grows, empty at first', [grow], {'x': x[:, :0]}, (1, 3), [('rows', rows)], axis=1)
    reordered = [h.make_node('Concat', ['x', 'rows'], ['longer'], axis=1), h.make_node('Gather', ['longer', 'order'], ['next_x'], axis=0)]
    yield looped('grows and is gathered', reordered, {'x': x}, (1, 2, 700), [('rows', rows), ('order', np.int64([1, 0]))], axis=1)
    both = [grow, h.make_node('Slice', ['next_x', 'one1', 'three', 'one1'], ['next_y'])]
    yield looped('a part of what grows', both, {'x': x, 'y': whole(2, 2, 4)}, (1, 9), [('rows', rows), ('one1', np.int64([1])), ('three', np.int64([3]))], axis=1)
    at = [h.make_node('Reshape', ['i', 'first'], ['place']), h.make_node('TensorScatter', ['x', 'now', 'place'], ['next_x'], axis=1)]
    at += [h.make_node('ReduceSum', ['x', 'axes'], ['seen'], keepdims=1), h.make_node('Add', ['seen', 'rows'], ['now'])]
    at = [at[2], at[3], at[0], at[1]]
    yield looped('written, read before', at, {'x': whole(1, 9, 4)}, (1, 8), [('rows', whole(1, 1, 4)), ('first', np.int64([1])), ('axes', np.int64([1]))])
    spot = [h.make_node('Mul', ['rows', 'two'], ['now']), h.make_node('ScatterElements', ['x', 'at', 'now'], ['next_x'], axis=1)]
    yield looped('written', spot, {'x': whole(1, 9, 4)}, (1, 8), [('rows', whole(1, 1, 4)), ('two', np.float32(2)), ('at', np.int64([[[3, 1, 0, 8]]]))])
    turned = [h.make_node('Compress', ['y', 'keep'], ['next_x'], axis=0), h.make_node('Concat', ['x', 'y'], ['next_y'], axis=0)]
    yield looped('change places', turned, {'x': whole(2, 3), 'y': whole(3, 3)}, (1, 2, 9), [('keep', np.bool_([True, False, True]))], axis=0)
    swapped = [h.make_node('Identity', ['y'], ['next_x']), h.make_node('Concat', ['x', 'y'], ['next_y'], axis=0)]
    yield looped('each other', swapped, {'x': whole(2, 3), 'y': whole(1, 3)}, (1, 2, 9), axis=0)


def saved(folder, model):
    path = os.path.join(folder, 'm.onnx')
    os.makedirs(folder, exist_ok=True)
    with open(path, 'wb') as f:
        f.write(model.SerializeToString())
    return path


def check_loop(args, folder, model, feeds):
    """-O3 beside -O0, whose loops copy what they carry."""
    path, wanted = saved(folder, model), {}
    for level in ('-O0', '-O3'):
        library = os.path.join(folder, 'm%s.so' % level)
        why = network.compile_model(args, path, library, level, ['--verify'])
        for k, feed in enumerate(feeds):
            if why:
                return why
            found, why = steps(args, folder, library, model, {}, {}, lambda step: feed, [], 1)
            if not why and level == '-O3':
                why = compare('-O3, feed %d' % k, found, wanted[k], 0)
            wanted[k] = found
        if why:
            return why
    return None


def steps(args, folder, library, model, caches, follow, given, share, count=STEPS):
    """The outputs of every step, [{name: array}], or why there are none. follow: {cache: the output that is the next}."""
    found = []
    for step in range(count):
        feeds = {p.name: {**given(step), **caches}[p.name] for p in model.graph.input}
        inputs, outputs = (os.path.join(folder, n) for n in ('inputs', 'outputs'))
        shutil.rmtree(inputs, ignore_errors=True)
        network.save_inputs(inputs, feeds)
        shutil.rmtree(outputs, ignore_errors=True)
        code, _, err = lib.run([args.cyto_run, library, '--inputs-dir', inputs, '--output-dir', outputs, *share], 60)
        if code:
            return None, lib.reason(err, code)
        paths = network.by_index(outputs)
        found.append({p.name: np.load(paths[k]) for k, p in enumerate(model.graph.output)})
        caches = {n: found[-1][out] if out else x for (n, x), out in zip(caches.items(), follow.values())}
    return found, None


def compare(name, got, want, limit):
    """Why the outputs of all steps differ, by more than limit of the largest, or None."""
    for step, (g, w) in enumerate(zip(got, want)):
        for n in w:
            a, b = g[n].astype(np.float64), w[n].astype(np.float64)
            if g[n].shape != w[n].shape or not (np.array_equal(g[n], w[n]) if not limit else np.abs(a - b).max() <= limit * np.abs(b).max()):
                return '%s: output %s of step %d differs' % (name, n, step)
    return None


def check(args, folder, name):
    model, caches, follow, given = CASES[name]
    path, found = saved(folder, model), {}
    for level in ('-O0', '-O3'):
        library = os.path.join(folder, 'm%s.so' % level)
        why = network.compile_model(args, path, library, level)
        if why:
            return why
        _, out, _ = lib.run([args.cyto_run, library, '--info'], 60)
        shared = dict(re.findall(r"output \d+ '(\w+)'.* share memory with '(\w+)'", out))
        if shared != {out: n for n, out in follow.items() if out and (level, name) != ('-O0', TRANSPOSED)}:
            return '%s: may share %s' % (level, shared)
        for share in ([], ['--share']):
            found[level, bool(share)], why = steps(args, folder, library, model, caches, follow, given, share)
            if why:
                return '%s %s: %s' % (level, ' '.join(share), why)
        why = compare(level, found[level, True], found[level, False], 0)
        if why:
            return why
    return compare('-O0', found['-O0', False], found['-O3', False], 2e-3 if 'half' in name else 1e-5)


def check_room(args, folder):
    """More tokens than the cache has room for."""
    model, caches, follow, given = CASES['shared heads, ragged']
    library = os.path.join(folder, 'm-O3.so')
    small = {n: x[:, :, :12] for n, x in caches.items()}
    found, why = steps(args, folder, library, model, small, follow, given, ['--share'], 1)
    if why:
        return 'with room: ' + why
    for total, text in ((13, 'share memory'), (14, 'total_sequence_length is 14, more than the 13 keys')):
        late = {**given(STEPS - 1), 'total': np.int32(total), 'lengths': np.int32([total - 1, 5, 1])}
        found, why = steps(args, folder, library, model, small, follow, lambda step: late, ['--share'], 1)
        if not why or text not in why:
            return 'no error of a full cache: %s' % why
    return None


# ---- caches that grow ----

STEPS_GROWN = '3 1 1 r2 1 4 b 1 1 7 1 r0 5 1 1'.split()


def grown(name, nodes, inputs, outputs, continued, constants=()):
    """(name, model, {output: input}) of inputs {name: (dtype, dims)} and outputs {name: dtype}."""
    ports = [graphs.port(n, dtype, dims) for n, (dtype, dims) in inputs.items()]
    return name, graphs.model_of(nodes, ports, [graphs.port(n, dtype, None) for n, dtype in outputs.items()],
                                 [graphs.constant(n, x) for n, x in constants]), continued


def growing():
    f32 = np.float32
    past, more = ('batch', 3, 'past', 4), ('batch', 3, 'new', 4)
    join = h.make_node('Concat', ['p', 'x'], ['n'], axis=2)
    yield grown('grows', [join], {'p': (f32, past), 'x': (f32, more)}, {'n': T.FLOAT}, {'n': 'p'})
    total = h.make_node('ReduceSum', ['n'], ['y'], keepdims=0)
    later = h.make_node('ReduceSum', ['p'], ['z'], keepdims=0)
    yield grown('grows, both read', [join, total, later], {'p': (f32, past), 'x': (f32, more)}, {'n': T.FLOAT, 'y': T.FLOAT, 'z': T.FLOAT}, {'n': 'p'})
    flat = [join, h.make_node('Reshape', ['n', 'flat'], ['y'])]
    yield grown('grows, reshaped', flat, {'p': (f32, past), 'x': (f32, more)}, {'n': T.FLOAT, 'y': T.FLOAT}, {'n': 'p'}, [('flat', np.int64([0, -1]))])
    twice = [h.make_node('Neg', ['x'], ['w']), h.make_node('Concat', ['p', 'x', 'w'], ['n'], axis=0)]
    yield grown('grows along the first axis', twice, {'p': (np.int64, ('past', 5)), 'x': (np.int64, (1, 5))}, {'n': T.INT64}, {'n': 'p'})
    last = [h.make_node('Concat', ['p', 'x'], ['n'], axis=2), h.make_node('Transpose', ['n'], ['t'], perm=[0, 2, 1]),
            h.make_node('Concat', ['r', 't2'], ['m'], axis=1), h.make_node('Transpose', ['x'], ['t2'], perm=[0, 2, 1]), h.make_node('Sub', ['t', 'm'], ['y'])]
    last = [last[0], last[1], last[3], last[2], last[4]]
    yield grown('grow along different axes', last, {'p': (f32, ('batch', 3, 'past')), 'x': (f32, ('batch', 3, 'new')), 'r': (f32, ('batch', 'past', 3))},
                {'n': T.FLOAT, 'm': T.FLOAT, 'y': T.FLOAT}, {'n': 'p', 'm': 'r'})
    fixed = {'p': (f32, (2, 3, 6)), 'x': (f32, (2, 3, 'new'))}
    yield grown('of a fixed size', [h.make_node('Concat', ['p', 'x'], ['n'], axis=2)], fixed, {'n': T.FLOAT}, {})
    yield grown('in front', [h.make_node('Concat', ['x', 'p'], ['n'], axis=2)], {'p': (f32, past), 'x': (f32, (2, 3, 1, 4))}, {'n': T.FLOAT}, {})
    yield grown('changed behind it, growing', [h.make_node('Concat', ['p', 'x'], ['m'], axis=2), h.make_node('Neg', ['m'], ['n'])],
                {'p': (f32, past), 'x': (f32, more)}, {'n': T.FLOAT}, {})
    twins = [join, h.make_node('Concat', ['p', 'n'], ['m'], axis=2)]
    yield grown('two continue one', twins, {'p': (f32, past), 'x': (f32, more)}, {'n': T.FLOAT, 'm': T.FLOAT}, {'n': 'p'})


def check_grown(args, folder, path, continued, steps):
    os.makedirs(folder, exist_ok=True)
    env = mock.environment(args)
    for level, cuda in (('-O0', False), ('-O3', False), ('-O3', True)):
        library = os.path.join(folder, 'm%s.so' % level)
        code, _, err = lib.run([args.cytoc, path, '-o', library, level, '--verify', *(mock.options(args) if cuda else [])],
                               env=mock.compiling(env) if cuda else None)
        level += ' for CUDA' * cuda
        if code:
            return '%s: %s' % (level, lib.reason(err, code))
        _, out, _ = lib.run([args.cyto_run, library, '--info'], 60)
        found = dict(re.findall(r"output \d+ '([\w.]+)'.* continues '([\w.]+)'", out))
        if found != continued:
            return '%s: continues %s' % (level, found)
        for threads in ('1', '2')[:1 if cuda else 2] if found else ():
            program = os.path.join(args.build, 'tests', 'grown', 'run_steps')
            code, _, err = lib.run([program, library, '4', threads, 'batch=2', *steps], 60, env=env if cuda else None)
            if code:
                return '%s, %s threads: %s' % (level, threads, lib.reason(err, code))
    return None


def check_decoder(args, folder, dtype):
    path = os.path.join(folder, 'm.onnx')
    os.makedirs(folder, exist_ok=True)
    caches = llama.decoder(path, dtype=dtype)
    return check_grown(args, folder, path, {'present.' + n: 'past_key_values.' + n for n in caches}, [*STEPS_GROWN, 'x30'])


def main():
    args = lib.arguments(__doc__, device=dict(action='store_true'), target=mock.TARGET)
    suite = lib.Suite(args)
    shared_heads('shared heads, ragged', [9, 4, 0])
    shared_heads('shared heads, several rows', [3, 1], rows=3)
    shared_heads('shared heads, window', [9, 4], local_window_size=4)
    shared_heads('shared heads, half', [9, 4], dtype=np.float16)
    shared_heads('shared heads, 8 bits', [9, 4], bits=8)
    own_heads()
    written('linear', 2, [3, 7, 0])
    written('circular', 3, [12, 2])
    scattered()
    for name in CASES:
        if args.wanted(name):
            folder = os.path.join(args.build, 'caches', re.sub(r'\W+', '_', name))
            suite.result(name, check(args, folder, name))
            if name == 'shared heads, ragged':
                suite.result('a full cache', check_room(args, folder))
    for name, model, feeds in loops():
        if args.wanted(name):
            suite.result(name, check_loop(args, os.path.join(args.build, 'caches', 'loop_' + re.sub(r'\W+', '_', name)), model, feeds))
    for name, model, continued in growing():
        if args.wanted(name):
            folder = os.path.join(args.build, 'caches', re.sub(r'\W+', '_', name))
            suite.result(name, check_grown(args, folder, saved(folder, model), continued, STEPS_GROWN))
    for name, dtype in (('a decoder', np.float32), ('a decoder in halves', np.float16)):
        if args.wanted(name):
            suite.result(name, check_decoder(args, os.path.join(args.build, 'caches', re.sub(r'\W+', '_', name)), dtype))
    suite.done()


if __name__ == '__main__':
    main()
