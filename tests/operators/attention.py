# SPDX-License-Identifier: Apache-2.0
"""The attention op in every form that has code of its own, against numpy in double precision; operators of com.microsoft
that become one, against ONNX Runtime.

In:  build/cytoc, build/cyto-run; names to restrict it to. Out: a line for each failure, the closing line.

Each case is a graph in text form with one attention node, compiled as a kernel of its own (-O3), as products and softmax
(f64, of which there is no kernel), eagerly (-O0), with --bf16, which AMX or vdpbf16ps multiplies where the CPU has it,
and for CUDA, behind the shim of tests/cuda. Sizes that are symbols in the graph are set when it runs. The largest error may be 1e-5 of
the largest value, with --fp16 1e-2, with --bf16 3e-2; NaN must stand where the reference has it. The memory of a kernel
of its own grows with the length, not with its square.
"""
import json
import math
import os
import shutil
import sys

import numpy as np
import onnx

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, os.path.join(TESTS, 'cuda')]
import graphs
import lib
import mock
import network

# name: batch, heads of q, of k, rows, keys, size, columns; then options: symbols (sizes left open), scale, softcap, fill,
# causal, past, window, bias and mask (shapes), lengths, hides (rows whose mask, or -inf in whose bias, hides every key; of
# lengths: sequences without keys), zero_hidden (such rows are 0, not NaN), layout 'bshd' (heads behind the sequence, read
# in place), low (all
# scores are near -100: beside those of keys that are not there, they would weigh nothing)
CASES = {
    'plain': (1, 2, 2, 40, 50, 16, 16, {}),
    'one_row': (2, 4, 4, 1, 77, 64, 64, {}),
    'three_rows': (1, 2, 2, 3, 30, 32, 16, {'causal': 1, 'past': 27}),
    'odd_sizes': (2, 3, 3, 17, 29, 20, 13, {}),
    'size_32': (1, 2, 2, 64, 64, 32, 32, {'layout': 'bshd'}),
    'size_80': (1, 2, 2, 33, 300, 80, 80, {'layout': 'bshd'}),
    'size_96': (1, 2, 2, 33, 65, 96, 80, {}),
    'size_160': (1, 2, 2, 19, 50, 160, 150, {}),
    'size_256': (1, 1, 1, 40, 100, 256, 256, {'layout': 'bshd'}),
    'size_1': (1, 2, 2, 9, 9, 1, 1, {}),
    'one_key': (1, 2, 2, 9, 1, 8, 8, {}),
    'low_scores': (1, 2, 2, 23, 197, 64, 64, {'low': True}),
    'low_scores_whole': (1, 2, 2, 40, 192, 64, 64, {'low': True}),
    'many_keys': (1, 1, 1, 50, 3000, 64, 64, {}),
    'keys_by_tiles': (1, 2, 2, 20, 8001, 32, 48, {}),
    'many_keys_causal': (1, 1, 1, 700, 2600, 32, 32, {'causal': 1, 'past': 1900}),
    # blocks of rows that are finished between the products of the next one; values in place, panels side by side
    'blocks': (1, 2, 2, 131, 200, 64, 128, {}),
    'blocks_grouped': (2, 4, 2, 47, 150, 32, 96, {'mask': (2, 1, 47, 150)}),
    'blocks_far': (1, 3, 3, 61, 100, 64, 64, {'layout': 'bshd'}),
    'causal': (1, 2, 2, 100, 100, 16, 16, {'causal': 1}),
    'causal_past': (2, 2, 2, 20, 50, 16, 16, {'causal': 1, 'past': 30}),
    'causal_below': (1, 1, 1, 20, 10, 16, 16, {'causal': 1, 'past': -10}),
    'window': (1, 2, 2, 200, 200, 16, 16, {'causal': 1, 'window': 33}),
    'window_alone': (1, 1, 1, 120, 90, 16, 16, {'window': 20}),
    'scale_below_0': (1, 2, 2, 40, 150, 64, 64, {'scale': -0.3}),
    'softcap': (1, 2, 2, 20, 30, 16, 16, {'softcap': 2.0, 'scale': 0.7}),
    'bias_full': (2, 3, 3, 20, 37, 16, 16, {'bias': (2, 3, 20, 37)}),
    'bias_heads': (2, 3, 3, 49, 49, 32, 32, {'bias': (1, 3, 49, 49), 'layout': 'bshd'}),
    'bias_keys': (2, 3, 3, 20, 37, 16, 16, {'bias': (2, 1, 1, 37)}),
    'mask': (2, 3, 3, 20, 37, 16, 16, {'mask': (2, 1, 20, 37)}),
    'mask_fill': (2, 3, 3, 20, 37, 16, 16, {'mask': (2, 1, 1, 37), 'fill': -3.0}),
    'mask_and_bias': (1, 2, 2, 20, 37, 16, 16, {'mask': (20, 37), 'bias': (37,)}),
    'lengths': (3, 2, 2, 10, 40, 16, 16, {'lengths': True}),
    'lengths_causal': (3, 2, 2, 40, 40, 16, 16, {'lengths': True, 'causal': 1}),
    'hidden_mask': (2, 3, 3, 20, 37, 16, 16, {'mask': (2, 1, 20, 37), 'hides': [0, 7, 19]}),
    'zero_mask': (2, 3, 3, 20, 37, 16, 16, {'mask': (2, 1, 20, 37), 'hides': [0, 7, 19], 'zero_hidden': 1}),
    'zero_bias': (2, 3, 3, 20, 37, 16, 16, {'bias': (2, 3, 20, 37), 'hides': [3, 4], 'zero_hidden': 1}),
    'zero_both': (1, 2, 2, 20, 37, 64, 64, {'mask': (20, 37), 'bias': (1, 1, 20, 37), 'hides': [5], 'softcap': 2.0,
                                            'causal': 1, 'past': 17, 'zero_hidden': 1}),
    'zero_causal_below': (1, 2, 2, 20, 10, 16, 16, {'causal': 1, 'past': -10, 'zero_hidden': 1}),
    'zero_window': (1, 1, 1, 120, 90, 16, 16, {'window': 20, 'zero_hidden': 1}),
    'zero_lengths': (3, 2, 2, 10, 40, 16, 16, {'lengths': True, 'hides': [1], 'zero_hidden': 1}),
    'zero_by_tiles': (1, 2, 2, 20, 8001, 32, 48, {'mask': (20, 8001), 'hides': [2, 19], 'zero_hidden': 1}),
    'zero_blocks': (2, 4, 2, 47, 150, 32, 96, {'mask': (2, 1, 47, 150), 'hides': [0, 1, 2, 3, 46], 'zero_hidden': 1}),
    'zero_one_row': (2, 4, 4, 1, 77, 64, 64, {'mask': (2, 1, 1, 77), 'hides': [0], 'zero_hidden': 1}),
    'zero_symbols': (2, 4, 4, 13, 29, 32, 24, {'symbols': 'bst', 'mask': (2, 1, 13, 29), 'hides': [12], 'zero_hidden': 1}),
    'zero_every_row': (1, 2, 2, 9, 50, 64, 64, {'mask': (9, 50), 'hides': range(9), 'zero_hidden': 1}),
    'gqa': (2, 6, 2, 20, 30, 16, 16, {}),
    'gqa_causal': (2, 6, 2, 30, 30, 16, 16, {'causal': 1}),
    'gqa_one_row': (1, 4, 2, 1, 90, 64, 64, {'causal': 1, 'past': 89, 'layout': 'bshd'}),
    'gqa_bias': (1, 4, 2, 15, 21, 16, 16, {'bias': (1, 4, 15, 21)}),
    'mqa': (2, 5, 1, 20, 30, 16, 16, {'window': 8, 'causal': 1, 'past': 10}),
    'symbols': (2, 4, 4, 45, 61, 32, 32, {'symbols': 'bst'}),
    'symbols_one_row': (2, 4, 4, 1, 61, 32, 32, {'symbols': 'bst'}),
    'symbols_size_80': (2, 4, 4, 45, 61, 80, 80, {'symbols': 'bst', 'layout': 'bshd'}),
    'symbols_few_rows': (2, 4, 4, 3, 61, 80, 80, {'symbols': 'bst', 'layout': 'bshd'}),
    'symbols_causal': (1, 4, 2, 70, 1500, 32, 32, {'symbols': 'bst', 'causal': 1, 'past': 1430}),
    'symbols_mask': (2, 4, 4, 13, 29, 32, 24, {'symbols': 'bst', 'mask': (2, 1, 13, 29)}),
    'symbols_no_keys': (1, 2, 2, 6, 0, 16, 16, {'symbols': 'bst'}),
}


ATTRIBUTES = ('softcap', 'fill', 'causal', 'window', 'zero_hidden')


def reference(q, k, v, scale, o):
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, group, axis=1).astype(np.float64) for x in (k, v))
    s = scale * (q.astype(np.float64) @ k.swapaxes(2, 3))
    if o.get('softcap'):
        s = np.tanh(s / o['softcap']) * o['softcap']
    if 'bias' in o:
        s = s + o['bias_data']
    if 'mask' in o:
        s = np.where(o['mask_data'], s, o.get('fill', -np.inf))
    row, key = np.arange(s.shape[2])[:, None] + o.get('past', 0), np.arange(s.shape[3])[None]
    if o.get('causal'):
        s = np.where(key <= row, s, -np.inf)
    if o.get('window'):
        s = np.where(key > row - o['window'], s, -np.inf)
    if 'lengths' in o:
        s = np.where(key < o['lengths_data'][:, None, None, None], s, -np.inf)
    with np.errstate(invalid='ignore'):
        w = np.exp(s - s.max(axis=3, keepdims=True, initial=-np.inf))
        w = w / np.maximum(w.sum(axis=3, keepdims=True), 0) if s.shape[3] else w
    return np.where(np.isnan(w), 0, w) @ v if o.get('zero_hidden') else w @ v


def type_of(dtype, dims):
    return '%s[%s]' % (dtype, ','.join(map(str, dims)))


def write_case(case, dtype, path):
    """The graph as text; the inputs, and the reference."""
    b, h, g, s, t, d, e, options = case
    o, rng = dict(options), np.random.RandomState(7)
    real = {'f32': np.float32, 'f64': np.float64}[dtype]
    name = {x: x if x in o.get('symbols', '') else str(n) for x, n in (('b', b), ('s', s), ('t', t))}
    scale = o.get('scale', 1 / math.sqrt(d))
    dims = [(name['b'], h, name['s'], d, (b, h, s, d)), (name['b'], g, name['t'], d, (b, g, t, d)),
            (name['b'], g, name['t'], e, (b, g, t, e))]
    params, body, feeds, used, arrays = [], [], {}, [], []
    for label, (*names, sizes) in zip('qkv', dims):
        x = rng.standard_normal(sizes).astype(real)
        if 'low' in o and label != 'v':  # the last term, so that it alone is rounded
            x[..., -1] = 1 if label == 'q' else -800
        arrays.append(x)
        if o.get('layout') == 'bshd':
            params.append('%%%s0: %s' % (label, type_of(dtype, [names[0], names[2], names[1], names[3]])))
            body.append('%%%s = transpose %%%s0 {perm=[0,2,1,3]}' % (label, label))
            feeds[label + '0'] = np.ascontiguousarray(x.swapaxes(1, 2))
        else:
            params.append('%%%s: %s' % (label, type_of(dtype, names)))
            feeds[label] = x
        used.append('%' + label)
    swap = {b: name['b'], s: name['s'], t: name['t']} if 'symbols' in o else {}
    for label, kind in (('bias', dtype), ('mask', 'bool')):
        used.append('%' + label if label in o else '_')
        if label in o:
            data = rng.standard_normal(o[label]).astype(real) if label == 'bias' else rng.rand(*o[label]) < 0.7
            if label == 'mask':
                data[..., 0] = True
            if 'hides' in o and data.shape[-2] > 1 or label == 'mask' and s == 1:
                data[..., list(o.get('hides', [])), :] = False if label == 'mask' else -np.inf
            feeds[label] = o[label + '_data'] = data
            shape = [swap.get(n, n) if n > 1 else n for n in o[label]]
            params.append('%%%s: %s' % (label, type_of(kind, shape)))
    used.append('%len' if 'lengths' in o else '_')
    if 'lengths' in o:
        feeds['len'] = o['lengths_data'] = rng.randint(1, t + 1, b).astype(np.int64)
        feeds['len'][list(o.get('hides', []))] = 0
        params.append('%%len: i64[%s]' % name['b'])
    while used[-1] == '_':
        used.pop()
    attrs = ['scale=%.9g' % scale] + ['%s=%g' % (x, o[x]) for x in ATTRIBUTES if x in o]
    if 'past' in o:
        attrs.append('past=[%s]' % ('t-s' if 'symbols' in o else o['past']))
    body.append('%%y = attention %s {%s}' % (', '.join(used), ', '.join(attrs)))
    with open(path, 'w', encoding='ascii') as f:
        f.write('graph @g(%s) {\n  %s\n  return %%y\n}\n' % (', '.join(params), '\n  '.join(body)))
    return feeds, reference(*arrays, scale, o)


def difference(got, want, share=1e-5):
    if got.shape != want.shape:
        return 'shape %s, not %s' % (got.shape, want.shape)
    if (np.isnan(got) != np.isnan(want)).any():
        return 'NaN elsewhere than expected'
    error = np.abs(np.nan_to_num(got) - np.nan_to_num(want)).max(initial=0)
    limit = share * max(1.0, np.abs(np.nan_to_num(want)).max(initial=0))
    return None if error <= limit else 'off by %.2g, more than %.2g' % (error, limit)


def run_case(args, case, dtype, level, threads, folder, env=None):
    """For each number of threads what is wrong with the library's results, or None."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    graph, library = os.path.join(folder, 'g.txt'), os.path.join(folder, 'g.so')
    feeds, want = write_case(case, dtype, graph)
    code, _, err = lib.run([args.cytoc, graph, '-o', library, '-j', '1', '--verify', *level], env=env)
    share = 3e-2 if '--bf16' in level else 1e-2 if '--fp16' in level else 1e-5

    def run(count):
        if code:
            return 'compile: ' + lib.reason(err, code)
        failed, text = network.run_feeds(args, folder, library, feeds, count, env)
        return 'run: ' + lib.reason(text, failed) if failed else difference(network.output_of(folder, 0, 'y'), want, share)
    return [run(count) for count in threads]


def arena_bytes(args, length, options, folder, env):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    graph, stats = os.path.join(folder, 'g.txt'), os.path.join(folder, 'stats.json')
    write_case((1, 4, 4, length, length, 64, 64, {}), 'f32', graph)
    code, _, err = lib.run([args.cytoc, graph, '-o', os.path.join(folder, 'g.so'), '--stats=' + stats, *options], env=env)
    if code:
        raise RuntimeError(lib.reason(err, code))
    with open(stats, encoding='utf-8') as f:
        return json.load(f)['arena_bytes']


def test_memory(args, options, folder, env):
    """Twice the length takes no more than twice the memory; as products it takes the scores and more."""
    small, large = (arena_bytes(args, n, options, folder, env) for n in (1024, 2048))
    scores = arena_bytes(args, 1024, [*options, '--attention=plain'], folder, env)
    if scores < 4 * 4 * 1024 * 1024:
        return 'written out, it takes %d bytes, less than its scores' % scores
    if large > 2.1 * small or small > scores / 8:
        return '%d bytes at 1024, %d at 2048, %d as products' % (small, large, scores)
    return None


# com.microsoft's operators, against ONNX Runtime.
# GroupQueryAttention: batch, heads, shared heads, rows, tokens of past (0: a prompt) per sequence, size; attributes;
# options
GQA = {
    'gqa_prompt': (2, 6, 2, 9, [0, 0], 16, {}, {}),
    'gqa_decode': (1, 4, 2, 1, [13], 16, {}, {}),
    'gqa_chunk': (1, 4, 2, 5, [13], 16, {}, {}),
    'gqa_ragged': (3, 4, 4, 1, [13, 7, 1], 16, {}, {}),
    'gqa_packed': (1, 4, 2, 7, [0], 16, {}, {'packed': True}),
    'gqa_rotary': (2, 4, 2, 7, [0, 0], 16, {'do_rotary': 1}, {}),
    'gqa_rotary_decode': (2, 4, 2, 1, [9, 4], 32, {'do_rotary': 1, 'rotary_interleaved': 1}, {'packed': True}),
    'gqa_window': (1, 4, 2, 20, [0], 16, {'local_window_size': 6}, {}),
    'gqa_free_prompt': (2, 4, 2, 5, [0, 0], 16, {}, {'free': True}),
    'gqa_free_decode': (2, 4, 2, 1, [13, 7], 16, {}, {'free': True}),
    'gqa_softcap': (1, 4, 2, 9, [0], 16, {'softcap': 1.5, 'scale': 0.9}, {}),
    'gqa_bias': (1, 4, 2, 9, [0], 16, {}, {'bias': True}),
    'gqa_bias_hidden': (1, 4, 2, 9, [0], 16, {}, {'bias': True, 'hides': [4]}),
}


def gqa_model(case, path):
    """A model of one GroupQueryAttention, and its inputs."""
    from onnx import helper
    b, h, g, s, before, d, attributes, options = case
    rng = np.random.RandomState(3)
    past, total = max(before), max(before) + s
    wide, thin = h * d, g * d
    feeds, names = {}, []

    def add(name, array, free=None):
        feeds[name] = array
        names.append(name)
        known = not options.get('free') or free is None
        return graphs.port(name, array.dtype, [n if known or i != free else 'rows of ' + name[:4]
                                               for i, n in enumerate(array.shape)])
    real = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    ports = [add('query', real(b, s, wide + 2 * thin if options.get('packed') else wide))]
    if options.get('packed'):
        names += ['', '']
    else:
        ports += [add('key', real(b, s, thin)), add('value', real(b, s, thin))]
    if past or options.get('free'):
        ports += [add('past_key', real(b, g, past, d), 2), add('past_value', real(b, g, past, d), 2)]
    else:
        names += ['', '']
    ports += [add('seqlens_k', np.array([n + s - 1 for n in before], np.int32)),
              add('total_sequence_length', np.array(total, np.int32))]
    if attributes.get('do_rotary'):
        ports += [add('cos_cache', real(total + 3, d // 2)), add('sin_cache', real(total + 3, d // 2))]
    if options.get('bias'):
        names += [''] * (10 - len(names))
        bias = real(1, h, s, total)
        bias[:, :, list(options.get('hides', []))] = -np.inf
        ports.append(add('attention_bias', bias))
    outputs = [graphs.port(n, np.float32, None) for n in ('y', 'present_key', 'present_value')]
    node = helper.make_node('GroupQueryAttention', names, [o.name for o in outputs], domain='com.microsoft', num_heads=h,
                            kv_num_heads=g, **attributes)
    graphs.save_model(path, [node], ports, outputs)
    return feeds


# Attention of ai.onnx, against the standard's reference: opset; batch, heads, shared heads, rows, keys, size; attributes;
# options: mask (its shape and type), hides (rows of the mask that hide every key), past (keys of the cache), lengths
# (nonpad_kv_seqlen: keys in use)
STANDARD = {
    'ai_hidden_bool': (23, 2, 3, 3, 6, 9, 16, {}, {'mask': ((2, 1, 6, 9), bool), 'hides': [0, 4]}),
    'ai_hidden_added': (23, 2, 3, 3, 6, 9, 16, {}, {'mask': ((2, 3, 6, 9), np.float32), 'hides': [2]}),
    'ai_hidden_causal': (23, 1, 4, 2, 9, 9, 16, {'is_causal': 1}, {'mask': ((9, 9), bool), 'hides': [0, 8]}),
    'ai_hidden_softcap': (23, 1, 2, 2, 6, 9, 16, {'softcap': 1.5}, {'mask': ((6, 9), np.float32), 'hides': [5]}),
    'ai_hidden_past': (24, 2, 4, 2, 3, 4, 16, {'is_causal': 1}, {'mask': ((2, 1, 3, 11), bool), 'hides': [1], 'past': 7}),
    'ai_hidden_weights': (24, 1, 2, 2, 6, 9, 16, {'qk_matmul_output_mode': 3}, {'mask': ((6, 9), bool), 'hides': [1]}),
    'ai_lengths': (24, 3, 4, 2, 2, 12, 16, {}, {'lengths': [12, 5, 0]}),
    'ai_lengths_causal': (24, 3, 4, 2, 3, 12, 16, {'is_causal': 1}, {'lengths': [12, 7, 1]}),
    'ai_lengths_mask': (24, 2, 2, 2, 3, 12, 16, {'is_causal': 1},
                        {'lengths': [9, 4], 'mask': ((2, 1, 3, 10), bool), 'hides': [1]}),
    'ai_left': (25, 1, 2, 2, 12, 12, 16, {'left_window_size': 3}, {}),
    'ai_both': (25, 1, 4, 2, 12, 12, 16, {'left_window_size': 0, 'right_window_size': 2}, {'mask': ((12,), bool)}),
    'ai_right': (25, 2, 2, 2, 5, 12, 16, {'right_window_size': 1}, {'past': 4}),
    'ai_left_causal': (25, 2, 2, 2, 5, 12, 16, {'left_window_size': 2, 'right_window_size': 3, 'is_causal': 1}, {'past': 4}),
    'ai_left_far': (25, 1, 2, 2, 12, 4, 16, {'left_window_size': 2}, {}),
    'ai_left_lengths': (25, 2, 2, 2, 3, 12, 16, {'left_window_size': 2, 'right_window_size': 1}, {'lengths': [11, 3]}),
}
STANDARD_FORMS = (['-O0'], ['-O3'], ['-O3', '--attention=plain'], ['-O3', '--target=x86-64-v3'], ['--bf16'], ['--fp16'],
                  ['--int8'])


def standard_model(case, path):
    """The values go through a product with weights, so that integers have something to multiply."""
    from onnx import helper
    opset, b, h, g, s, t, d, attributes, options = case
    rng, feeds = np.random.RandomState(5), {}
    real = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    feeds.update(q=real(b, h, s, d), k=real(b, g, t, d), v=real(b, g, t, d))
    if 'mask' in options:
        shape, kind = options['mask']
        seen = rng.rand(*shape) < 0.7
        seen[..., 0] = True
        if 'hides' in options:
            seen[..., options['hides'], :] = False
        feeds['m'] = seen if kind is bool else np.where(seen, real(*shape), np.float32(-np.inf))
    if 'past' in options:
        feeds.update(pk=real(b, g, options['past'], d), pv=real(b, g, options['past'], d))
    if 'lengths' in options:
        feeds['n'] = np.array(options['lengths'], np.int64)
    names = [n if n in feeds else '' for n in ('q', 'k', 'w', 'm', 'pk', 'pv', 'n')]
    names[2] = 'w'
    outputs = ['y', *(['a', 'c'] if 'past' in options else [])]
    if 'qk_matmul_output_mode' in attributes:
        outputs += [''] * (3 - len(outputs)) + ['weights']
    while names[-1] == '':
        names.pop()
    nodes = [helper.make_node('MatMul', ['v', 'u'], ['w']), helper.make_node('Attention', names, outputs, **attributes)]
    ports = [graphs.port(n, x.dtype, x.shape) for n, x in feeds.items()]
    graphs.save_model(path, nodes, ports, [graphs.port(o, np.float32, None) for o in outputs if o],
                      [graphs.constant('u', np.linalg.qr(real(d, d))[0].astype(np.float32))], opset=opset)
    return feeds


def run_standard(args, case, options, folder, env=None):
    """None, or how outputs differ from those of the standard's reference."""
    import onnx.reference
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    model, library = os.path.join(folder, 'm.onnx'), os.path.join(folder, 'm.so')
    feeds = standard_model(case, model)
    with np.errstate(all='ignore'):
        want = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
    code, _, err = lib.run([args.cytoc, model, '-o', library, '-j', '1', '--verify', *options], env=env)
    if code:
        return 'compile: ' + lib.reason(err, code)
    code, err = network.run_feeds(args, folder, library, feeds, 1, env)
    if code:
        return 'run: ' + lib.reason(err, code)
    share = 3e-2 if {'--bf16', '--int8'} & set(options) else 1e-2 if '--fp16' in options else 1e-5
    for i, name in enumerate(o for o in onnx.load(model).graph.output):
        if np.isnan(want[i]).any():
            return 'the reference has NaN'
        why = difference(network.output_of(folder, i, name.name), want[i], share)
        if why:
            return '%s: %s' % (name.name, why)
    return None


# QAttention: attributes; options
QATTENTION = {'qattention': ({}, {}), 'qattention_causal': ({'unidirectional': 1}, {}), 'qattention_mask': ({}, {'mask': True})}


def qattention_model(case, path):
    from onnx import helper
    attributes, options = case
    rng, b, s, hidden = np.random.RandomState(4), 2, 7, 32
    feeds = {'x': rng.randint(0, 256, (b, s, hidden)).astype(np.uint8),
             'w': rng.randint(-60, 61, (hidden, 3 * hidden)).astype(np.int8),
             'bias': rng.standard_normal(3 * hidden).astype(np.float32), 'sx': np.array(0.02, np.float32),
             'sw': np.array(0.01, np.float32), 'mask': np.array([[1] * 7, [1] * 4 + [0] * 3], np.int32),
             'zx': np.array(121, np.uint8), 'zw': np.array(0, np.int8)}
    if not options.get('mask'):
        del feeds['mask']
    ports = [graphs.port(n, x.dtype, x.shape) for n, x in feeds.items()]
    names = [n if n in feeds else '' for n in ('x', 'w', 'bias', 'sx', 'sw', 'mask', 'zx', 'zw')]
    node = helper.make_node('QAttention', names, ['y'], domain='com.microsoft', num_heads=4, **attributes)
    graphs.save_model(path, [node], ports, [graphs.port('y', np.float32, None)])
    return feeds


def run_operator(args, build, case, level, folder):
    """None, or how cytoc's outputs differ from ONNX Runtime's."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    model, library = os.path.join(folder, 'm.onnx'), os.path.join(folder, 'm.so')
    feeds = build(case, model)
    session = network.ort_session(model)
    want = session.run(None, feeds)
    why = network.compile_model(args, model, library, level, ['-j', '1', '--verify'])
    if why:
        return why
    code, err = network.run_feeds(args, folder, library, feeds)
    if code:
        return 'run: ' + lib.reason(err, code)
    before = case[4] if build is gqa_model else []
    for i, port in enumerate(session.get_outputs()):
        got = network.output_of(folder, i, port.name)
        if i and got.shape == want[i].shape:  # behind a sequence's own keys nothing is defined
            for row, n in enumerate(before):
                got[row, :, n + case[3]:] = want[i][row, :, n + case[3]:] = 0
        why = difference(got, want[i])
        if why:
            return '%s: %s' % (port.name, why)
    return None


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    folder = os.path.join(args.build, 'attention-test')
    for build, cases in ((gqa_model, GQA), (qattention_model, QATTENTION)):
        for name, case in cases.items():
            for level in ('-O0', '-O3'):
                if args.wanted(name):
                    suite.result('%s, %s' % (name, level), run_operator(args, build, case, level, folder))
    args.device = False
    env = mock.environment(args)
    cuda = ['-O3', *mock.options(args)]
    for name, case in STANDARD.items():
        if args.wanted(name):
            for options in STANDARD_FORMS:
                suite.result('%s, %s' % (name, ' '.join(options)), run_standard(args, case, options, folder))
            for options in (cuda, [*cuda, '--fp16']):
                suite.result('%s on cuda, %s' % (name, ' '.join(options)), run_standard(args, case, options, folder, env))
    for form, options, other in (('memory', [], None), ('memory on cuda', cuda, env), ('memory of halves', cuda + ['--fp16'], env)):
        if args.wanted(form):
            suite.result(form, test_memory(args, options, folder, other))
    for name, case in CASES.items():
        forms = [(('fused', 'fused on 2 threads'), 'f32', ['-O3'], (1, 2), None), (('eager',), 'f32', ['-O0'], (1,), None),
                 (('bf16',), 'f32', ['--bf16'], (2,), None), (('cuda',), 'f32', cuda, (1,), env),
                 (('cuda in halves',), 'f32', cuda + ['--fp16'], (1,), env)]
        if case[3] * case[4] < 100000:
            forms.append((('double',), 'f64', ['-O3'], (1,), None))
        for labels, dtype, level, threads, other in forms if args.wanted(name) else ():
            for label, why in zip(labels, run_case(args, case, dtype, level, threads, folder, other)):
                suite.result('%s, %s' % (name, label), why)
    shutil.rmtree(folder, ignore_errors=True)
    suite.done('attention forms')


if __name__ == '__main__':
    main()
