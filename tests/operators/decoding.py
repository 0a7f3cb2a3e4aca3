# SPDX-License-Identifier: Apache-2.0
"""GreedySearch, Sampling, BeamSearch and WhisperBeamSearch around small decoders of random weights, token for token beside ONNX
Runtime, at -O0 and -O3.

A library is compiled once, with sizes, numbers of beams and limits as inputs, and run on several of these. ONNX Runtime does
not set what lies behind the last step that it takes; there, padding and zeros are expected.

In:  --build DIR, names (regular expressions) to restrict it.
Out: the closing line.
"""
import os
import shutil
import sys

import numpy as np
from onnx import TensorProto as T
from onnx import helper as h

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, TESTS)
import graphs
import lib
import network

MS = 'com.microsoft'
WORDS, HIDDEN, HEADS, LAYERS, POSITIONS = 24, 16, 2, 2, 64
SIZE = HIDDEN // HEADS
PAD, END = WORDS - 1, 5
FEATURES = 6
CASES = []  # name, model, model for ONNX Runtime or None, feeds, options of cytoc


class Decoder(graphs.Graph):
    """Nodes of a transformer; its scores avoid the padding."""

    def weight(self, *dims, scale=1.0):
        return self.const(self.rng.standard_normal(dims) * scale / np.sqrt(dims[0]), np.float32)

    def scores(self, x, out, less=0):
        weights = self.rng.standard_normal((HIDDEN, WORDS)) * 1.5
        bias = np.zeros(WORDS)
        bias[PAD] = -40
        bias[END] = 1.5
        bias -= less
        return self.op('Add', self.op('MatMul', x, self.const(weights, np.float32)), self.const(bias, np.float32), out=out)

    def norm(self, x):
        return self.op('LayerNormalization', x, self.const(np.ones(HIDDEN), np.float32), axis=-1)

    def feed_forward(self, x):
        y = self.op('Tanh', self.op('MatMul', self.norm(x), self.weight(HIDDEN, 2 * HIDDEN, scale=2)))
        return self.op('Add', x, self.op('MatMul', y, self.weight(2 * HIDDEN, HIDDEN, scale=2)))

    def graph(self, name, inputs, outputs):
        return h.make_graph(self.nodes, name, [graphs.port(*p) for p in inputs], [graphs.port(*p) for p in outputs], self.constants)

    def heads(self, x, weight):
        y = self.op('Reshape', self.op('MatMul', x, weight), self.ints(0, 0, HEADS, SIZE))
        return self.op('Transpose', y, perm=[0, 2, 1, 3])

    def attend(self, q, k, v, bias=None):
        scores = self.op('Mul', self.op('MatMul', q, self.op('Transpose', k, perm=[0, 1, 3, 2])), self.const(SIZE ** -0.5, np.float32))
        p = self.op('Softmax', self.op('Add', scores, bias) if bias else scores, axis=-1)
        y = self.op('Transpose', self.op('MatMul', p, v), perm=[0, 2, 1, 3])
        return self.op('Reshape', y, self.ints(0, 0, HIDDEN))


def gpt(seed=1, name='decoder', dtype=T.FLOAT, less=0):
    """A decoder that reads the prompt, too. less: what is taken from its scores."""
    g = Decoder(seed)
    past = [('past_%d' % i, dtype, [2, 'batch', HEADS, 'past', SIZE]) for i in range(LAYERS)]
    present = [('present_%d' % i, dtype, [2, 'batch', HEADS, 'total', SIZE]) for i in range(LAYERS)]
    x = g.op('Add', g.op('Gather', g.weight(WORDS, HIDDEN, scale=5), 'input_ids'), g.op('Gather', g.weight(POSITIONS, HIDDEN, scale=5), 'position_ids'))
    for i in range(LAYERS):
        g.nodes.append(h.make_node('Attention', [g.norm(x), g.weight(HIDDEN, 3 * HIDDEN, scale=2), g.const(np.zeros(3 * HIDDEN), np.float32),
                                                                 'attention_mask', 'past_%d' % i], ['a%d' % i, 'present_%d' % i], domain=MS,
                                                   num_heads=HEADS, unidirectional=1))
        x = g.feed_forward(g.op('Add', x, 'a%d' % i))
    g.scores(g.norm(x), 'logits', less)
    ids = [(n, T.INT32, ['batch', size]) for n, size in (('input_ids', 'seq'), ('position_ids', 'seq'), ('attention_mask', 'total'))]
    return g.graph(name, ids + past, [('logits', dtype, ['batch', 'seq', WORDS])] + present)


def appended(g, x, weights, layer, i, past=True):
    """Keys and values of x behind those of the past, as outputs present_{key,value}_self_i."""
    out = []
    for which, w in zip(('key', 'value'), weights):
        now = g.heads(x, w)
        name = 'present_%s_self_%d' % (which, layer)
        out.append(g.op('Concat', 'past_%s_self_%d' % (which, i), now, axis=2, out=name) if past else g.op('Identity', now, out=name))
    return out


def text_decoder(g, parts, ids, past, crossed, bias=None, whole=False):
    """The layers of a decoder in g; parts: names of shared weights. crossed: names of keys and values of the source."""
    length = g.op('Gather', g.op('Shape', 'past_key_self_0'), g.ints(2), axis=0) if past and not whole else g.ints(0)
    tokens = g.op('Gather', g.op('Shape', ids), g.ints(1), axis=0)
    at = g.op('Range', *(g.op('Squeeze', n) for n in (length, g.op('Add', length, tokens))), g.const(1, np.int64))
    x = g.op('Add', g.op('Gather', g.const(parts['words'], np.float32), ids), g.op('Gather', g.const(parts['places'], np.float32), at))
    later = g.op('Mul', g.op('Cast', g.op('Less', g.op('Unsqueeze', at, g.ints(1)), g.op('Range', g.const(0, np.int64), g.op(
        'Squeeze', g.op('Add', length, tokens)), g.const(1, np.int64))), to=T.FLOAT), g.const(-1e4, np.float32))
    for i in range(LAYERS):
        w = {k: g.const(v, np.float32) for k, v in parts[i].items()}
        y = g.norm(x)
        keys, values = appended(g, y, (w['k'], w['v']), i, i, past and not whole)
        x = g.op('Add', x, g.op('MatMul', g.attend(g.heads(y, w['q']), keys, values, later), w['o']))
        y = g.attend(g.heads(g.norm(x), w['cq']), *crossed[2 * i:2 * i + 2], bias)
        x = g.op('Add', x, g.op('MatMul', y, w['co']))
    return g.op('Add', g.op('MatMul', g.norm(x), g.const(parts['scores'], np.float32)), g.const(parts['bias'], np.float32), out='logits')


def weights(seed):
    rng = np.random.default_rng(seed)
    parts = {'words': rng.standard_normal((WORDS, HIDDEN)), 'places': rng.standard_normal((POSITIONS, HIDDEN)),
             'scores': rng.standard_normal((HIDDEN, WORDS)) * 1.2, 'bias': np.zeros(WORDS)}
    parts['bias'][PAD], parts['bias'][END] = -40, 1.5
    for i in range(LAYERS):
        parts[i] = {n: rng.standard_normal((HIDDEN, HIDDEN)) * 2 / np.sqrt(HIDDEN) for n in ('q', 'k', 'v', 'o', 'cq', 'ck', 'cv', 'co')}
    return parts


def caches(prefix, which, dims):
    return [('%s_%s_%s_%d' % (prefix, part, which, i), T.FLOAT, dims) for i in range(LAYERS) for part in ('key', 'value')]


def source_bias(g, mask):
    """0 where the source has tokens, else -10000: [batch, 1, 1, tokens]."""
    away = g.op('Sub', g.const(1, np.float32), g.op('Cast', mask, to=T.FLOAT))
    return g.op('Unsqueeze', g.op('Mul', away, g.const(-1e4, np.float32)), g.ints(1, 2))


def encoder_decoder(seed=1, sound=False, late=False, whole=False):
    """(encoder, decoder) of T5 or Whisper. late: the encoder only reads the source. whole: the decoder has no use for the past."""
    parts, g = weights(seed), Decoder(seed)
    if sound:
        x = g.op('Tanh', g.op('MatMul', g.op('Transpose', 'encoder_input_ids', perm=[0, 2, 1]), g.weight(FEATURES, HIDDEN, scale=2)))
        inputs, bias = [('encoder_input_ids', T.FLOAT, ['batch', FEATURES, 'frames'])], None
    else:
        x = g.op('Gather', g.weight(WORDS, HIDDEN, scale=4), 'encoder_input_ids')
        inputs = [(n, T.INT32, ['batch', 'source']) for n in ('encoder_input_ids', 'encoder_attention_mask')]
        bias = None if late else source_bias(g, 'encoder_attention_mask')
    x = g.feed_forward(x)
    crossed = []
    for i in range(LAYERS):
        for which in ('key', 'value'):
            crossed.append('present_%s_cross_%d' % (which, i))
            g.op('Identity', g.heads(x, g.const(parts[i]['c' + which[0]], np.float32)), out=crossed[-1])
    outputs = caches('present', 'cross', ['batch', HEADS, 'source', SIZE])
    if not late:
        inputs.append(('decoder_input_ids', T.INT32, ['batch', 'start']))
        g.op('Identity', x, out='encoder_hidden_states')
        text_decoder(g, parts, 'decoder_input_ids', False, crossed, bias)
        outputs = [('logits', T.FLOAT, ['batch', 'start', WORDS]), ('encoder_hidden_states', T.FLOAT, ['batch', 'source', HIDDEN]),
                   *caches('present', 'self', ['batch', HEADS, 'start', SIZE]), *outputs]
    encoder = g.graph('encoder', inputs, outputs)
    g = Decoder(seed + 1)
    bias = None if sound else source_bias(g, 'encoder_attention_mask')
    text_decoder(g, parts, 'input_ids', True, [n.replace('present', 'past') for n in crossed], bias, whole)
    inputs = [('input_ids', T.INT32, ['batch', 'tokens' if whole else 1])]
    inputs += [] if sound else [('encoder_attention_mask', T.INT32, ['batch', 'source'])]
    inputs += caches('past', 'self', ['batch', HEADS, 'past', SIZE]) + caches('past', 'cross', ['batch', HEADS, 'source', SIZE])
    outputs = [('logits', T.FLOAT, ['batch', 'tokens' if whole else 1, WORDS])] + caches('present', 'self', ['batch', HEADS, 'total', SIZE])
    return {'encoder': encoder, 'decoder': g.graph('decoder', inputs, outputs)}


# name, type and rank of the inputs behind the first, of each operator
INPUTS = {
    'GreedySearch': 'max_length min_length repetition_penalty vocab_mask prefix_vocab_mask attention_mask',
    'Sampling': 'max_length min_length repetition_penalty vocab_mask prefix_vocab_mask attention_mask presence_mask seed',
    'BeamSearch': 'max_length min_length num_beams num_return_sequences length_penalty repetition_penalty vocab_mask prefix_vocab_mask '
                  'attention_mask decoder_input_ids logits_processor',
    'WhisperBeamSearch': 'max_length min_length num_beams num_return_sequences length_penalty repetition_penalty vocab_mask '
                         'prefix_vocab_mask attention_mask decoder_input_ids logits_processor cross_qk_layer_head extra_decoding_ids '
                         'temperature',
}
KINDS = {'length_penalty': np.float32, 'repetition_penalty': np.float32, 'temperature': np.float32}
DIMS = {'vocab_mask': [WORDS], 'prefix_vocab_mask': ['batch', WORDS], 'presence_mask': ['batch', WORDS], 'attention_mask': ['batch', 'tokens'], 'decoder_input_ids': ['batch', 'start']}


def case(name, kind, feeds, outputs=1, options=(), constants=None, oracle=None, **attributes):
    """feeds: dictionaries of one key set, whose scalars become lists of one. oracle: ONNX Runtime's decoder, which gets no
    presence_mask."""
    given, constants = feeds[0], constants or {}
    order = ['input_ids'] + INPUTS[kind].split()
    feeds = [{k: (v if isinstance(v, np.ndarray) else np.array([v], KINDS.get(k, np.int32))) for k, v in f.items()} for f in feeds]
    dims = {**DIMS, 'input_ids': ['batch', FEATURES, 'frames'] if feeds[0]['input_ids'].ndim == 3 else ['batch', 'tokens']}
    ports = [graphs.port(n, feeds[0][n].dtype, dims.get(n, [1])) for n in order if n in given]
    inputs = [n if n in given or n in constants else '' for n in order]
    names = ['sequences', 'sequences_scores', 'scores'][:outputs]
    attributes = {'eos_token_id': END, 'pad_token_id': PAD, 'model_type': 2 if kind == 'WhisperBeamSearch' else 0, **attributes}

    def model(inputs, **attributes):
        return graphs.model_of([h.make_node(kind, inputs, names, 'Search', domain=MS, **attributes)], ports,
                               [graphs.port(n, T.FLOAT if k else T.INT32, None) for k, n in enumerate(names)],
                               [graphs.constant(n, np.array([v], KINDS.get(n, np.int32))) for n, v in constants.items()])

    other = oracle and model([n if n != 'presence_mask' else '' for n in inputs], **{**attributes, 'decoder': oracle})
    CASES.append((name, model(inputs, **attributes), other, feeds, options))


def prompts(batch, tokens, seed=0, padded=0):
    ids = np.random.default_rng(seed).integers(6, WORDS - 1, (batch, tokens)).astype(np.int32)
    for row in range(1, batch):
        ids[row, :min(padded, row)] = PAD
    return ids


def greedy_cases():
    shapes = ((1, 4), (2, 5), (3, 1))
    feeds = [{'input_ids': prompts(b, t, b, 2), 'max_length': t + 14, 'min_length': 0} for b, t in shapes]
    alone = {**feeds[1], 'input_ids': feeds[1]['input_ids'][:1]}  # with seed 2, it ends at once
    for seed in (1, 2, 3):
        case('greedy %d' % seed, 'GreedySearch', feeds + [alone], decoder=gpt(seed))
    case('greedy, penalty', 'GreedySearch', [{**f, 'repetition_penalty': p} for f, p in zip(feeds, (1.5, 3.0, 0.7))], decoder=gpt(1))
    case('greedy, min length', 'GreedySearch', [{**f, 'min_length': 12} for f in feeds], decoder=gpt(2))
    for size in (1, 2, 3):
        case('greedy, no %d again' % size, 'GreedySearch', feeds, decoder=gpt(3), no_repeat_ngram_size=size)
    some = np.arange(WORDS).astype(np.int32) % 3 != 1
    masks = [{**f, 'vocab_mask': some.astype(np.int32), 'prefix_vocab_mask': np.random.default_rng(4).integers(0, 2, (b, WORDS)).astype(np.int32)}
             for f, (b, _) in zip(feeds, shapes)]
    case('greedy, masks', 'GreedySearch', masks, decoder=gpt(1))
    case('greedy, mask of the prompt', 'GreedySearch', [{**f, 'attention_mask': (f['input_ids'] % 5 > 0).astype(np.int32)} for f in feeds], decoder=gpt(1))
    case('greedy, first decoder', 'GreedySearch', feeds, decoder=gpt(1), init_decoder=gpt(7, 'init'))
    case('greedy, fixed sizes', 'GreedySearch', [{'input_ids': feeds[1]['input_ids']}], 1, ['--dim', 'batch=2', '--dim', 'tokens=5'],
         constants={'max_length': 16}, decoder=gpt(2))


def sampling_cases():
    shapes = ((1, 4), (2, 5), (3, 1), (5, 3))
    feeds = [{'input_ids': prompts(b, t, b, 2), 'max_length': t + 14, 'min_length': 0, 'seed': 17 * b} for b, t in shapes]
    case('sampling', 'Sampling', feeds, decoder=gpt(1), top_p=0.9)
    case('sampling, a seed of 0', 'Sampling', [{**f, 'seed': s} for f, s in zip(feeds, (0, 2147483647, 1, 123456789))], decoder=gpt(2), top_p=0.7)
    for custom in (0, 1):
        case('sampling, temperature%s' % (', custom' * custom), 'Sampling', feeds, decoder=gpt(2), top_p=0.6, temperature=1.7,
             min_tokens_to_keep=3, custom=custom)
    # ONNX Runtime takes all of presence_mask from a single score, so it runs a decoder that has less of them.
    present = np.random.default_rng(4).integers(0, 2, (1, WORDS)).astype(np.int32)
    case('sampling, present', 'Sampling', [{**feeds[0], 'presence_mask': present, 'seed': s} for s in (1, 2, 3)], decoder=gpt(1), top_p=0.95,
         presence_penalty=1.2, custom=1, oracle=gpt(1, less=1.2 * present[0]))


def beam_cases():
    shapes = ((1, 4, 4, 2), (2, 5, 3, 1), (3, 1, 2, 2), (2, 3, 1, 1), (4, 2, 4, 4))
    feeds = [{'input_ids': prompts(b, t, b, 2), 'max_length': t + 12, 'min_length': 0, 'num_beams': beams, 'num_return_sequences': r,
              'length_penalty': 1.0, 'repetition_penalty': 1.0} for b, t, beams, r in shapes]
    for seed in (1, 2, 3):
        for early in (0, 1):
            case('beams %d%s' % (seed, ', stopping early' * early), 'BeamSearch', feeds, 3, decoder=gpt(seed), early_stopping=early)
    case('beams, penalties', 'BeamSearch', [{**f, 'length_penalty': l, 'repetition_penalty': r} for f, l, r in zip(
        feeds, (0.5, 2.0, 0.0, -1.0, 1.0), (1.5, 1.0, 2.5, 0.7, 1.2))], 2, decoder=gpt(1))
    case('beams, min length', 'BeamSearch', [{**f, 'min_length': 9} for f in feeds], 2, decoder=gpt(2))
    for size in (1, 2, 3):
        case('beams, no %d again' % size, 'BeamSearch', feeds, 2, decoder=gpt(3), no_repeat_ngram_size=size)


def sources(words=True):
    shapes = ((1, 4, 4, 2), (2, 5, 3, 1), (3, 3, 2, 2), (2, 3, 1, 1))
    feeds = []
    for b, t, beams, r in shapes:
        ids = prompts(b, t, b, 2) if words else np.random.default_rng(b).standard_normal((b, FEATURES, t)).astype(np.float32)
        feeds.append({'input_ids': ids, 'max_length': 13, 'min_length': 0, 'num_beams': beams, 'num_return_sequences': r,
                      'length_penalty': 1.0, 'repetition_penalty': 1.0})
    return feeds


def t5_cases():
    feeds = sources()
    for seed in (1, 2, 3):
        for early in (0, 1):
            case('t5 %d%s' % (seed, ', stopping early' * early), 'BeamSearch', feeds, 3, early_stopping=early, model_type=1,
                 decoder_start_token_id=7, **encoder_decoder(seed))
    case('t5, only the source', 'BeamSearch', feeds, 3, model_type=1, decoder_start_token_id=7, **encoder_decoder(1, late=True))
    case('t5, penalties', 'BeamSearch', [{**f, 'length_penalty': 0.5, 'repetition_penalty': 1.8, 'min_length': 5} for f in feeds], 2,
         model_type=1, decoder_start_token_id=7, no_repeat_ngram_size=2, **encoder_decoder(2))
    case('t5, mask of the source', 'BeamSearch', [{**f, 'attention_mask': (f['input_ids'] % 3 > 0).astype(np.int32)} for f in feeds], 2,
         model_type=1, decoder_start_token_id=7, **encoder_decoder(2))
    case('t5, all tokens each time', 'BeamSearch', feeds, 2, model_type=1, decoder_start_token_id=7, **encoder_decoder(2, whole=True))


def whisper_cases():
    feeds = sources(False)
    starts = [{**f, 'decoder_input_ids': prompts(len(f['input_ids']), 3, 9)} for f in feeds]
    for seed in (1, 2):
        case('whisper %d' % seed, 'BeamSearch', feeds, 3, model_type=2, decoder_start_token_id=7, **encoder_decoder(seed, True))
        case('whisper %d, start' % seed, 'BeamSearch', starts, 3, model_type=2, **encoder_decoder(seed, True))
        case('whisper %d, its operator' % seed, 'WhisperBeamSearch', [{**f, 'temperature': 0.6} for f in starts], 3, **encoder_decoder(seed, True))


def stamp_cases():
    """Tokens from 14 on are time stamps."""
    tokens = {'decoder_start_token_id': 6, 'translate_token_id': 7, 'transcribe_token_id': 8, 'start_of_lm_token_id': 9,
              'no_timestamps_token_id': 13, 'beginning_timestamp_token_id': 14}
    feeds = sources(False)
    starts = [np.array([row[:n] for row in ([6, 8, 14], [6, 7, 16], [6, 8, 10])][:len(f['input_ids'])], np.int32) for f, n in zip(feeds, (3, 2, 3, 3))]
    for seed in (1, 2, 3):
        for on in (1, 0):
            case('whisper, stamps %d %d' % (seed, on), 'WhisperBeamSearch', [
                {**f, 'decoder_input_ids': start, 'logits_processor': on} for f, start in zip(feeds, starts)], 3, **tokens, **encoder_decoder(seed, True))


def compare(names, got, want, feed):
    """What ONNX Runtime leaves unset must be padding or zeros."""
    for name, g, w in zip(names, got, want):
        if g.shape != w.shape:
            return '%s: shape %s, not %s' % (name, list(g.shape), list(w.shape))
        if name == 'scores':
            steps = int(np.sum(np.any(g != 0, axis=(1, 2, 3))))
            g, w = g[:steps], w[:steps]
        if g.ndim == 2 and name == 'sequences':  # of GreedySearch, without hypotheses that would be padded
            start = feed['input_ids'].shape[1]
            ended = np.all(np.cumsum(g[:, start:] == PAD, axis=1) > 0, axis=0)
            length = start + (int(np.argmax(ended)) + 1 if ended.any() else g.shape[1] - start)
            if np.any(g[:, length:] != PAD):
                return '%s: no padding behind the end' % name
            g, w = g[:, :length], w[:, :length]
        why = lib.difference(name, g, w, 1e-5)
        if why:
            return why
    return None


def check(args, folder, model, oracle, feeds, options):
    os.makedirs(folder, exist_ok=True)
    data, path = model.SerializeToString(), os.path.join(folder, 'm.onnx')
    with open(path, 'wb') as f:
        f.write(data)
    session = network.ort_session(oracle.SerializeToString() if oracle else data)
    names = [port.name for port in session.get_outputs()]
    want = [session.run(None, feed) for feed in feeds]
    for level, threads in (('-O0', 1), ('-O3', 2)):
        library = os.path.join(folder, 'm.so')
        why = network.compile_model(args, path, library, level, ['--verify', *options])
        for feed, expected in zip(feeds, want):
            if why:
                return why
            code, err = network.run_feeds(args, folder, library, feed, threads)
            got = [network.output_of(folder, i, n) for i, n in enumerate(names)] if not code else None
            why = lib.reason(err, code) if code else compare(names, got, expected, feed)
            why = why and '%s, prompt %s: %s' % (level, list(feed['input_ids'].shape), why)
        if why:
            return why
    return None


def refusals(args, suite):
    """Inputs that do not fit, in libraries that learn of them when they run."""
    folder = os.path.join(args.build, 'decoding')
    model, library = os.path.join(folder, 'm.onnx'), os.path.join(folder, 'm.so')
    CASES.clear()
    given = {'input_ids': prompts(2, 5, 1), 'max_length': 9, 'num_beams': 2, 'num_return_sequences': 1}
    case('', 'BeamSearch', [{**given, **change} for change in (
        {'max_length': 5}, {'num_return_sequences': 3}, {'num_beams': 0, 'num_return_sequences': 0})], decoder=gpt(1))
    case(' stamps', 'BeamSearch', [{**sources(False)[0], 'logits_processor': 1}], model_type=2, decoder_start_token_id=7,
         **encoder_decoder(1, True))
    for name, proto, _, feeds, _ in CASES:
        os.makedirs(folder, exist_ok=True)
        with open(model, 'wb') as f:
            f.write(proto.SerializeToString())
        broken = network.compile_model(args, model, library, '-O3', ['--verify'])
        for i, feed in enumerate(feeds):
            code, err = network.run_feeds(args, folder, library, feed)
            good = not broken and code == 1 and "node 'Search'" in err
            suite.result('refused%s %d' % (name, i), None if good else broken or 'code %d: %s' % (code, err))
        shutil.rmtree(folder)


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    folder = os.path.join(args.build, 'decoding')
    for group in (greedy_cases, sampling_cases, beam_cases, t5_cases, whisper_cases, stamp_cases):
        group()
    for name, *rest in CASES:
        if args.wanted(name):
            suite.result(name, check(args, folder, *rest))
            shutil.rmtree(folder)
    if args.wanted('refused'):
        refusals(args, suite)
    suite.done()


if __name__ == '__main__':
    main()
