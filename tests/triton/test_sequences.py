# SPDX-License-Identifier: Apache-2.0
"""Sequences: the state of recurrent and of cached models is kept by the server from one request to the next."""
import os
import threading

import numpy as np

import cytoc
import lib
import nets
from server import Repository, Server, infer, parameters
from test_config import config_of


def steps_of(server, kind, model, xs, sequence, names=('y',), name='x'):
    client = getattr(server, kind)()
    return [infer(client, model, {name: x}, list(names), sequence_id=sequence, sequence_start=k == 0, sequence_end=k == len(xs) - 1)
            for k, x in enumerate(xs)]


def run_together(function, n):
    wrong = []

    def guarded(k):
        try:
            function(k)
        except Exception as e:  # told below
            wrong.append('%d: %s' % (k, e))
    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong[:3]


def test_recurrent():
    """A state of fixed size, found by its names; several sequences at once, by both of Triton's strategies."""
    repository = Repository(os.path.join(WORK, 'recurrent'))
    repository.add('direct', nets.recurrent(), parameters(sequences='direct') + 'instance_group { count: 2 kind: KIND_CPU }')
    repository.add('oldest', nets.recurrent(), 'max_batch_size: 8' + parameters(sequences='oldest'))

    def ask(k):
        xs = [nets.weights(1, 16) * (k + j) / 9 for j in range(12)]
        for model in ('direct', 'oldest'):
            h = np.zeros((1, 16), np.float32)
            for x, got in zip(xs, steps_of(server, 'grpc' if k % 2 else 'http', model, xs, 100 + k)):
                want, h = nets.recurrent_step(x, h)
                assert np.allclose(got['y'], want, atol=1e-4), model

    with Server(repository, ARGS.build) as server:
        config = config_of(server, 'direct')
        states = config['sequence_batching']['state']
        assert [(s['input_name'], s['output_name']) for s in states] == [('h', 'h_out')], states
        assert [p['name'] for p in config['input']] == ['x'] and [p['name'] for p in config['output']] == ['y'], config
        run_together(ask, 8)
        stats = server.http().get_inference_statistics('oldest')['model_stats'][0]
        assert stats['inference_count'] == 96 and stats['execution_count'] <= 96, stats


def test_cached():
    """A state that grows: begins without rows, is as long as the sequence so far; sequences of different lengths at once."""
    repository = Repository(os.path.join(WORK, 'cached'))
    repository.add('cached', nets.cached(), 'max_batch_size: 4' + parameters(sequences='oldest'))
    repository.add('written', nets.cached(), '''max_batch_size: 4 sequence_batching { state {
        input_name: "past_rows" output_name: "present_rows" data_type: TYPE_FP32 dims: [ -1, 4 ] } }''')

    def ask(k):
        xs = [nets.weights(1, 1 + (k + j) % 3, 4) for j in range(4 + k)]
        for model in ('cached', 'written'):
            total = np.zeros((1, 4), np.float32)
            for x, got in zip(xs, steps_of(server, 'grpc', model, xs, 200 + k)):
                total += x.sum(1)
                assert np.allclose(got['y'], total, atol=1e-4), '%s: %s, not %s' % (model, got['y'], total)

    with Server(repository, ARGS.build) as server:
        state = config_of(server, 'cached')['sequence_batching']['state'][0]
        assert state['initial_state'][0]['dims'] in ([0, 4], ['0', '4']), state
        run_together(ask, 6)


def test_controls():
    """An input that Triton makes: the start of a sequence."""
    repository = Repository(os.path.join(WORK, 'controls'))
    repository.add('count', nets.controlled(), '''max_batch_size: 4 sequence_batching {
        state { input_name: "count" output_name: "count_out" data_type: TYPE_FP32 dims: [ 1 ] }
        control_input { name: "start" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } } }''')
    with Server(repository, ARGS.build) as server:
        for sequence in (1, 2):
            got = steps_of(server, 'http', 'count', [np.ones((1, 1), np.float32)] * 5, sequence, ('total',))
            assert [float(g['total'][0, 0]) for g in got] == [1, 2, 3, 4, 5], got


def test_language_model():
    """A small GPT-2 with a cache whose batch is the second dim: token by token, beside the direct run with the cache bound."""
    path = os.path.join(lib.SHARED, 'models', 'gpt2_past_12layer_tiny', 'model.onnx')
    if not os.path.exists(path):
        return 'there is no %s' % path
    repository = Repository(os.path.join(WORK, 'language'))
    repository.add('gpt2', path, parameters(sequences='direct'))
    tokens = [np.array([[t]], np.int64) for t in (3, 1, 4, 1, 5, 9)]
    with Server(repository, ARGS.build) as server, cytoc.compile(path) as model:
        layers = [p.name for p in model.inputs if p.name.startswith('past')]
        assert len(config_of(server, 'gpt2')['sequence_batching']['state']) == len(layers) > 0
        got = steps_of(server, 'http', 'gpt2', tokens, 7, ('last_state',), 'input_ids')
        past = {p.name: np.zeros([0 if d == 'seq_len' else 1 if not isinstance(d, int) else d for d in p.shape], np.float32)
                for p in model.inputs if p.name.startswith('past')}
        for token, answer in zip(tokens, got):
            names = ['last_state'] + [n.replace('past', 'present') for n in layers]
            want = dict(zip(names, model.run(names, {'input_ids': token, **past})))
            past = {n: want[n.replace('past', 'present')] for n in layers}
            assert np.array_equal(answer['last_state'], want['last_state'])
