"""GreedySearch, Sampling, BeamSearch and WhisperBeamSearch around small decoders of random weights, token for token beside ONNX
Runtime, at -O0 and -O3.

A library is compiled once, with sizes, numbers of beams and limits as inputs, and run on several of these. ONNX Runtime does
not set what lies behind the last step that it takes; there, padding and zeros are expected.

In:  --build DIR, names (regular expressions) to restrict it.
Out: the closing line.
"""
import os
import shutil

import numpy as np
from onnx import TensorProto as T
from onnx import helper as h

import graphs
import lib
import network

MS = 'com.microsoft'
WORDS, HIDDEN, HEADS, LAYERS, POSITIONS = 24, 16, 2, 2, 64
SIZE = HIDDEN // HEADS
PAD, END = WORDS - 1, 5
CASES = []  # name, model, feeds, options of cytoc


class Decoder(graphs.Graph):
    """Nodes of a transformer; its scores avoid the padding."""

    def weight(self, *dims, scale=1.0):
        return self.const(self.rng.standard_normal(dims) * scale / np.sqrt(dims[0]), np.float32)

    def scores(self, x, out):
        weights = self.rng.standard_normal((HIDDEN, WORDS)) * 1.5
        bias = np.zeros(WORDS)
        bias[PAD] = -40
        bias[END] = 1.5
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


def gpt(seed=1, name='decoder', dtype=T.FLOAT):
    """A decoder that reads the prompt, too."""
    g = Decoder(seed)
    past = [('past_%d' % i, dtype, [2, 'batch', HEADS, 'past', SIZE]) for i in range(LAYERS)]
    present = [('present_%d' % i, dtype, [2, 'batch', HEADS, 'total', SIZE]) for i in range(LAYERS)]
    x = g.op('Add', g.op('Gather', g.weight(WORDS, HIDDEN, scale=5), 'input_ids'), g.op('Gather', g.weight(POSITIONS, HIDDEN, scale=5), 'position_ids'))
    for i in range(LAYERS):
        g.nodes.append(h.make_node('Attention', [g.norm(x), g.weight(HIDDEN, 3 * HIDDEN, scale=2), g.const(np.zeros(3 * HIDDEN), np.float32),
                                                                 'attention_mask', 'past_%d' % i], ['a%d' % i, 'present_%d' % i], domain=MS,
                                                   num_heads=HEADS, unidirectional=1))
        x = g.feed_forward(g.op('Add', x, 'a%d' % i))
    g.scores(g.norm(x), 'logits')
    ids = [(n, T.INT32, ['batch', size]) for n, size in (('input_ids', 'seq'), ('position_ids', 'seq'), ('attention_mask', 'total'))]
    return g.graph(name, ids + past, [('logits', dtype, ['batch', 'seq', WORDS])] + present)


# name, type and rank of the inputs behind the first, of each operator
INPUTS = {
    'GreedySearch': 'max_length min_length repetition_penalty vocab_mask prefix_vocab_mask attention_mask',
    'BeamSearch': 'max_length min_length num_beams num_return_sequences length_penalty repetition_penalty vocab_mask prefix_vocab_mask '
                  'attention_mask decoder_input_ids logits_processor',
}
KINDS = {'length_penalty': np.float32, 'repetition_penalty': np.float32}
DIMS = {'vocab_mask': [WORDS], 'prefix_vocab_mask': ['batch', WORDS], 'attention_mask': ['batch', 'tokens']}


def case(name, kind, feeds, outputs=1, options=(), constants=None, **attributes):
    """feeds: dictionaries of one key set, whose scalars become lists of one."""
    given, constants = feeds[0], constants or {}
    order = ['input_ids'] + INPUTS[kind].split()
    feeds = [{k: (v if isinstance(v, np.ndarray) else np.array([v], KINDS.get(k, np.int32))) for k, v in f.items()} for f in feeds]
    ports = [graphs.port(n, feeds[0][n].dtype, DIMS.get(n, ['batch', 'tokens'] if n == 'input_ids' else [1])) for n in order if n in given]
    inputs = [n if n in given or n in constants else '' for n in order]
    names = ['sequences', 'sequences_scores', 'scores'][:outputs]
    attributes = {'eos_token_id': END, 'pad_token_id': PAD, 'model_type': 0, **attributes}
    node = h.make_node(kind, inputs, names, 'Search', domain=MS, **attributes)
    model = graphs.model_of([node], ports, [graphs.port(n, T.FLOAT if k else T.INT32, None) for k, n in enumerate(names)],
                            [graphs.constant(n, np.array([v], KINDS.get(n, np.int32))) for n, v in constants.items()])
    CASES.append((name, model, feeds, options))


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


def valid_steps(feed, got, prompt):
    """How many steps ONNX Runtime took: where the scores of ours are not all zeros."""
    return int(np.sum(np.any(got != 0, axis=(1, 2, 3))))


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


def check(args, folder, model, feeds, options):
    os.makedirs(folder, exist_ok=True)
    data, path = model.SerializeToString(), os.path.join(folder, 'm.onnx')
    with open(path, 'wb') as f:
        f.write(data)
    session = network.ort_session(data)
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


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    folder = os.path.join(args.build, 'generate')
    for group in (greedy_cases, beam_cases):
        group()
    for name, *rest in CASES:
        if args.wanted(name):
            suite.result(name, check(args, folder, *rest))
            shutil.rmtree(folder)
    suite.done()


if __name__ == '__main__':
    main()
