# SPDX-License-Identifier: Apache-2.0
"""Configurations: what is completed from the library, what is refused and with which words; batches; instances."""
import json
import os
import queue
import subprocess
import threading
import urllib.request

import numpy as np

import nets
from server import HOST, PATIENCE, Repository, Server, error_of, grpc_client, infer, inputs_of, parameters


def config_of(server, name):
    return json.load(urllib.request.urlopen('http://%s:%d/v2/models/%s/config' % (HOST, server.ports[0], name), timeout=PATIENCE))


def test_completed():
    """Inputs, outputs, types, dims, the batch: from the library."""
    repository = Repository(os.path.join(WORK, 'completed'))
    repository.add('mlp', nets.mlp())
    repository.add('graph', nets.nodes_of_graph())
    repository.add('fixed', nets.fixed())
    repository.add('zero', nets.mlp(), 'max_batch_size: 0\ninput { name: "x" data_type: TYPE_FP32 dims: [ -1, 16 ] }')
    repository.add('sixteen', nets.mlp(), 'max_batch_size: 16')
    repository.add('strings', nets.strings())
    with Server(repository, ARGS.build) as server:
        mlp = config_of(server, 'mlp')
        assert mlp['max_batch_size'] == 4 and 'dynamic_batching' in mlp, mlp
        assert mlp['input'][0]['dims'] == [16] and mlp['input'][0]['data_type'] == 'TYPE_FP32', mlp
        assert mlp['output'][0]['name'] == 'y' and mlp['output'][0]['dims'] == [8], mlp
        assert mlp['instance_group'][0]['kind'] == 'KIND_CPU', mlp
        assert config_of(server, 'graph')['max_batch_size'] == 0
        assert config_of(server, 'graph')['input'][0]['dims'] == [-1, 4]
        assert config_of(server, 'fixed')['max_batch_size'] == 0
        assert config_of(server, 'zero')['max_batch_size'] == 0
        assert config_of(server, 'zero')['output'][0]['dims'] == [-1, 8]
        assert config_of(server, 'sixteen')['max_batch_size'] == 16
        assert config_of(server, 'strings')['input'][0]['data_type'] == 'TYPE_STRING'
        x = nets.weights(3, 4)
        assert np.allclose(infer(server.http(), 'graph', {'x': x}, ['y'])['y'], x + x.sum(), atol=1e-5)


# name: (network, what config.pbtxt has, words of the error)
REFUSED = {
    'unknown_parameter': (nets.mlp, parameters(treads='2'), "there is no parameter 'treads'; did you mean 'threads'?"),
    'bad_threads': (nets.mlp, parameters(threads='many'), "parameter 'threads': expected a number from 0"),
    'bad_int8': (nets.mlp, parameters(int8='dynamik'), 'dynamik'),
    'bad_target': (nets.mlp, parameters(target='x86-64-v9'), 'x86-64-v9'),
    'bad_bf16': (nets.mlp, parameters(bf16='maybe'), "parameter 'bf16': expected 1 or 0, found 'maybe'"),
    'bad_name': (nets.mlp, 'input { name: "xx" data_type: TYPE_FP32 dims: [ 16 ] } max_batch_size: 4', "no input 'xx' (there are 'x')"),
    'bad_type': (nets.mlp, 'input { name: "x" data_type: TYPE_INT8 dims: [ 16 ] } max_batch_size: 4',
                 "input 'x': expected TYPE_FP32, which the library has, found TYPE_INT8"),
    'bad_dims': (nets.mlp, 'input { name: "x" data_type: TYPE_FP32 dims: [ 17 ] } max_batch_size: 4', 'the library has [batch,16], found dims'),
    'fixed_batch': (nets.fixed, 'max_batch_size: 8', 'is no batch: write max_batch_size: 0'),
    'ragged': (nets.lengths, 'max_batch_size: 8 input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true }',
               'allow_ragged_batch is not supported'),
    'no_file': (nets.mlp, 'default_model_filename: "net.onnx"', 'net.onnx is no file'),
    'gpu': (nets.mlp, 'instance_group { kind: KIND_GPU count: 1 gpus: [ 0 ] }', 'GPU'),
    'for_gpu': (nets.mlp, parameters(target='sm_89') + 'instance_group { kind: KIND_CPU }', 'must ask for KIND_GPU'),
    'bad_state': (nets.recurrent, 'sequence_batching { state { input_name: "hh" output_name: "h_out" data_type: TYPE_FP32 dims: [ 16 ] } }'
                                  ' max_batch_size: 4', "no input 'hh' (there are 'x', 'h')"),
    'no_states': (nets.mlp, parameters(sequences='direct'), "no output is a newer one of an input"),
    'batch_input': (nets.mlp, 'max_batch_size: 4 batch_input { kind: BATCH_ELEMENT_COUNT target_name: "n" data_type: TYPE_FP32 '
                              'source_input: "x" }', 'batch_input'),
}


def test_refused():
    """Wrong configurations: an error that says what is wrong; the models beside them are served."""
    repository = Repository(os.path.join(WORK, 'refused'))
    repository.add('good', nets.mlp())
    for name, (network, config, _) in REFUSED.items():
        repository.add(name, network(), config)
    repository.add('empty', b'')
    repository.add('garbage', b'\x08\x07 this is no model' * 50)
    repository.add('truncated', nets.wide()[:100000])
    repository.add('library', b'\x7fELF' + bytes(5000), file='model.so')
    repository.add('named', b'neither library nor model', file='model.so')
    index = {}
    with Server(repository, ARGS.build) as server:
        http = server.http()
        assert np.allclose(infer(http, 'good', {'x': nets.weights(2, 16)}, ['y'])['y'], nets.weights(2, 16) @ nets.W, atol=1e-5)
        for model in http.get_model_repository_index():
            index[model['name']] = model
    wrong = [name for name, model in index.items() if name != 'good' and model.get('state') == 'READY']
    assert not wrong, wrong
    for name, (_, _, words) in REFUSED.items():
        assert words in index[name]['reason'], '%s: %s' % (name, index[name]['reason'])
    for name in ('empty', 'garbage', 'truncated', 'library', 'named'):
        assert 'cytoc' in index[name]['reason'], index[name]
    assert 'no shared library' in index['named']['reason'], index['named']


def test_batches():
    """Many requests of many sizes at once become batches, whose rows are each request's own; other lengths are not mixed up."""
    repository = Repository(os.path.join(WORK, 'batches'))
    repository.add('lengths', nets.lengths(), 'max_batch_size: 32 dynamic_batching { max_queue_delay_microseconds: 20000 }')
    repository.add('strings', nets.strings(), 'max_batch_size: 32 dynamic_batching { max_queue_delay_microseconds: 20000 }')
    wrong = []

    def ask(k):
        random = np.random.RandomState(k)
        client = server.grpc()
        for _ in range(20):
            x = random.standard_normal((random.randint(1, 5), random.randint(1, 3))).astype(np.float32)
            if not np.allclose(infer(client, 'lengths', {'x': x}, ['y'])['y'].reshape(-1), x.sum(1), atol=1e-5):
                wrong.append(x)
            s = np.array([['é%d' % k, 'a' * random.randint(0, 9)]], object)
            if infer(client, 'strings', {'x': s}, ['y'])['y'].tolist() != [[(t + '!').encode() for t in s[0]]]:
                wrong.append(s)

    with Server(repository, ARGS.build) as server:
        threads = [threading.Thread(target=ask, args=(k,)) for k in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        stats = server.http().get_inference_statistics('lengths')['model_stats'][0]
    assert not wrong, wrong[:3]
    assert stats['execution_count'] < 160, 'no batches: %d executions of 160 requests' % stats['execution_count']
    assert any(b['batch_size'] > 4 for b in stats['batch_stats']), stats['batch_stats']


def test_one_of_a_batch():
    """A request that cannot be computed is answered so; those that were in one batch with it are not hurt."""
    repository = Repository(os.path.join(WORK, 'one'))
    repository.add('picky', nets.picky(), 'max_batch_size: 32 dynamic_batching { max_queue_delay_microseconds: 50000 preferred_batch_size: 8 }')
    with Server(repository, ARGS.build) as server:
        client = server.grpc()
        answers = queue.Queue()
        for k in range(8):
            index = np.array([[99 if k == 3 else k]], np.int64)
            client.async_infer('picky', inputs_of(grpc_client, {'i': index}), lambda result, error, k=k: answers.put((k, result, error)))
        seen = {}
        for _ in range(8):
            k, result, error = answers.get(timeout=PATIENCE)
            seen[k] = error.message() if error else result.as_numpy('y')
        stats = server.http().get_inference_statistics('picky')['model_stats'][0]
    assert isinstance(seen[3], str) and 'cytoc' in seen[3], seen[3]
    for k in range(8):
        assert k == 3 or not isinstance(seen[k], str) and np.array_equal(seen[k][0, 0], nets.W[k]), seen
    assert int(stats['inference_stats']['fail']['count']) == 1 and int(stats['inference_stats']['success']['count']) == 7, stats


def test_instances():
    """Several instances share the weights: the library is mapped once, and anonymous memory does not grow by them."""
    repository = Repository(os.path.join(WORK, 'instances'))
    network, memory, maps = nets.wide(1024, 8), [], []
    for count in (1, 6):
        repository.add('wide', network, 'instance_group { count: %d kind: KIND_CPU }' % count)
        with Server(repository, ARGS.build) as server:
            threads = [threading.Thread(target=lambda: infer(server.http(), 'wide', {'x': nets.weights(1, 1024)}, ['y'])) for _ in range(12)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            memory.append(server.memory())
            maps.append(server.maps('model.so'))
            config = config_of(server, 'wide')
            assert config['instance_group'][0]['count'] == count
    assert maps[0] == maps[1] > 0, maps
    # The weights are 32 MiB: six copies would be 160 MiB more.
    assert memory[1] - memory[0] < 32 << 20, memory


def test_symbols():
    """The backend asks the server for no function that is not declared in triton_abi.h."""
    library = os.path.join(ARGS.build, 'backends', 'cytoc', 'libtriton_cytoc.so')
    out = subprocess.run(['nm', '-D', '--undefined-only', library], stdout=subprocess.PIPE, text=True, check=True).stdout
    asked = {line.split()[-1] for line in out.splitlines() if 'TRITON' in line}
    with open('integrations/triton/triton_abi.h') as f:
        declared = f.read()
    assert asked and all(name + ',' in declared for name in asked), asked
    out = subprocess.run(['nm', '-D', '--defined-only', library], stdout=subprocess.PIPE, text=True, check=True).stdout
    shown = {line.split()[-1] for line in out.splitlines() if ' T ' in line}
    assert len(shown) == 8 and all(name.startswith('TRITONBACKEND_') for name in shown), shown


def test_dynamic_output():
    """An output whose shape depends on data."""
    repository = Repository(os.path.join(WORK, 'dynamic'))
    repository.add('nonzero', nets.nonzero())
    x = (nets.weights(5, 4) > 0).astype(np.float32)
    with Server(repository, ARGS.build) as server:
        for client in (server.http(), server.grpc()):
            assert np.array_equal(infer(client, 'nonzero', {'x': x}, ['y'])['y'], np.array(np.nonzero(x)))


def test_wrong_requests():
    """Wrong shapes, types, names: an error, and the server goes on."""
    repository = Repository(os.path.join(WORK, 'requests'))
    repository.add('mlp', nets.mlp())
    repository.add('graph', nets.nodes_of_graph())
    with Server(repository, ARGS.build) as server:
        for client in (server.http(), server.grpc()):
            good = nets.weights(2, 16)
            assert 'shape' in error_of(infer, client, 'mlp', {'x': nets.weights(2, 15)}, ['y'])
            assert 'batch' in error_of(infer, client, 'mlp', {'x': nets.weights(99, 16)}, ['y'])
            assert 'type' in error_of(infer, client, 'mlp', {'x': good.astype(np.float64)}, ['y'])
            assert error_of(infer, client, 'mlp', {'z': good}, ['y'])
            assert error_of(infer, client, 'mlp', {'x': good}, ['z'])
            assert error_of(infer, client, 'mlp', {'x': good, 'z': good}, ['y'])
            assert error_of(infer, client, 'none', {'x': good}, ['y'])
            assert np.allclose(infer(client, 'mlp', {'x': good}, ['y'])['y'], good @ nets.W, atol=1e-5)
            empty = infer(client, 'graph', {'x': np.zeros((0, 4), np.float32)}, ['y'])['y']
            assert empty.shape == (0, 4), empty.shape
