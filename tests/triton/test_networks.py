# SPDX-License-Identifier: Apache-2.0
"""Networks in the server, by HTTP and gRPC, beside the same libraries run directly; shared memory."""
import os
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
import tritonclient.utils.shared_memory as shm

import cytoc
import lib
import nets
from server import PATIENCE, Repository, Server, infer, parameters

DIGITS = os.path.join(lib.ROOT, 'examples', 'digits', 'digits.onnx')
# Open dims of a model's inputs, where there are others than batches.
NETWORKS = {'oww_embedding': {}, 'ultraface_slim320_simplified': {}, 'bert_toy': {'max_seq_len_in_batch': 12}, 'string_normalizer': {},
            'silero_vad_v5': {'sr': np.array(16000, np.int64), 'input': np.ones((2, 576), np.float32),
                              'state': np.ones((2, 2, 128), np.float32)},
            'lgbm_classifier_hummingbird': {}, 'topk_multi_output': {'N': 400}, 'fp16_loop': {}, 'sklearn_voting_soft': {}, 'magika_v3_3': {},
            'types_int32_f32_bf16_double': {}, 'sinet_portrait': {}, 'tree_classifier_25': {}}
BY_SERVER = ('digits', 'string_normalizer', 'topk_multi_output', 'tree_classifier_25')


def random_input(info, given, random):
    """An array for an input: what is given for it by name, or small numbers of its shape."""
    if info.name in given:
        return given[info.name]
    shape = [given.get(d, 2) if not isinstance(d, int) else d for d in info.shape]
    dtype = str(np.dtype(info.dtype)) if info.dtype != 'string' else 'string'
    if dtype == 'string':
        return np.array(['Word %d' % k for k in range(int(np.prod(shape)))], object).reshape(shape)
    if dtype == 'bool':
        return random.randint(0, 2, shape).astype(bool)
    if np.dtype(info.dtype).kind in 'iu':
        return random.randint(0, 5, shape).astype(info.dtype)
    return random.standard_normal(shape).astype(info.dtype)


def same(name, got, want):
    want = np.asarray(want)
    if want.dtype.kind in 'OSU':
        got = np.array([x.decode() for x in got.ravel()], object).reshape(got.shape)
    want = want.astype(np.float32) if 'bfloat16' in str(want.dtype) else want
    if got.shape == want.shape + (1,) and want.ndim < 2:  # what is left of a shape without the batch has one dim at least
        got = got.reshape(want.shape)
    assert got.shape == want.shape, '%s: %s, not %s' % (name, got.shape, want.shape)
    assert got.dtype == want.dtype or want.dtype.kind in 'OSU', '%s: %s, not %s' % (name, got.dtype, want.dtype)
    assert np.array_equal(got, want, equal_nan=want.dtype.kind == 'f'), '%s: other values' % name


def shapes(feeds):
    """Triton knows no tensors without dims."""
    return {name: array.reshape(1) if array.shape == () else array for name, array in feeds.items()}


def check_network(name, model, given, clients):
    feeds = {p.name: random_input(p, given, np.random.RandomState(7)) for p in model.inputs}
    served = [p.name for p in model.outputs if not str(p.dtype).startswith(('seq', 'map', 'optional')) and p.shape is not None]
    want = dict(zip(served, model.run(served, feeds)))
    for client in clients:
        got = infer(client, name, shapes(feeds), served)
        for output in served:
            same('%s %s' % (name, output), got[output], want[output])


def test_networks():
    """Networks over HTTP and gRPC, beside direct runs of the same libraries: equal. Some are compiled by the server."""
    models = os.path.join(lib.SHARED, 'models')
    if not os.path.isdir(models):
        return 'there is no %s' % models
    repository = Repository(os.path.join(WORK, 'networks'))
    paths = {'digits': DIGITS, **{name: os.path.join(models, name, 'model.onnx') for name in NETWORKS}}
    with ThreadPoolExecutor(2) as pool:
        libraries = dict(zip(paths, pool.map(cytoc.compile, paths.values())))
    for name, library in libraries.items():
        library.save(os.path.join(WORK, 'network.so'))
        repository.add(name, os.path.join(WORK, 'network.so'), file='model.so')
    for name in BY_SERVER:
        repository.add('by_server_' + name, paths[name])
    with Server(repository, ARGS.build) as server:
        clients = [server.http(), server.grpc()]
        for name, library in libraries.items():
            for served in [name] + ['by_server_' + name] * (name in BY_SERVER):
                check_network(served, library, NETWORKS.get(name, {}), clients)
        assert server.log().count('compiled in') == len(BY_SERVER)
    # Compiled once: the next server finds them.
    with Server(repository, ARGS.build) as server:
        assert server.http().is_model_ready('by_server_digits')
        compiled = server.log().count('compiled in')
        assert compiled == 0, compiled


def test_library():
    """A compiled model.so, with no compiler and no ONNX file; one for another CPU, with the ONNX file beside it."""
    repository = Repository(os.path.join(WORK, 'library'))
    x = nets.weights(3, 16)
    with cytoc.compile(nets.mlp()) as model:
        model.save(os.path.join(WORK, 'mlp.so'))
    repository.add('mlp', os.path.join(WORK, 'mlp.so'), file='model.so')
    repository.add('plain.cytoc', os.path.join(WORK, 'mlp.so'), config=None, file='model.cytoc')
    repository.add('named', os.path.join(WORK, 'mlp.so'), 'default_model_filename: "net.so"', file='net.so')
    cytoc_arm = os.path.join(WORK, 'arm.so')
    with open(os.path.join(WORK, 'mlp.onnx'), 'wb') as f:
        f.write(nets.mlp())
    code, _, err = lib.run([ARGS.cytoc, os.path.join(WORK, 'mlp.onnx'), '--target=aarch64', '-o', cytoc_arm])
    assert code == 0, err
    repository.add('other', cytoc_arm, file='model.so')
    repository.add('other', nets.mlp())
    dll = os.path.join(WORK, 'mlp.dll')
    windows = lib.run([ARGS.cytoc, os.path.join(WORK, 'mlp.onnx'), '--target=x86-64-v3-windows', '-o', dll])[0] == 0  # with MinGW alone
    if windows:
        repository.add('windows', dll, file='model.dll')
        repository.add('windows_and_source', dll, file='model.dll')
        repository.add('windows_and_source', nets.mlp())
    with Server(repository, ARGS.build) as server:
        for name in ('mlp', 'plain.cytoc', 'named', 'other') + ('windows_and_source',) * windows:
            got = infer(server.http(), name, {'x': x}, ['y'])['y']
            assert np.allclose(got, x @ nets.W, atol=1e-5), name
        index = {m['name']: m for m in server.http().get_model_repository_index()}
        assert not windows or 'Windows' in index['windows']['reason'], index['windows']
        assert 'model.onnx is compiled instead' in server.log()


def test_installed():
    """What `make install` writes: the backend finds the compiler from where it is."""
    prefix = os.path.join(WORK, 'installed')
    code, _, err = lib.run(['make', '--no-print-directory', 'install', 'PREFIX=' + prefix],
                           env={k: v for k, v in os.environ.items() if not k.startswith('MAKE') and k != 'MFLAGS'})
    assert code == 0, err
    repository = Repository(os.path.join(WORK, 'installed-models'))
    repository.add('mlp', nets.mlp(), parameters(cache=os.path.join(WORK, 'installed-cache')))
    x = nets.weights(3, 16)
    with Server(repository, ARGS.build, backends=os.path.join(prefix, 'lib', 'tritonserver', 'backends')) as server:
        assert np.allclose(infer(server.http(), 'mlp', {'x': x}, ['y'])['y'], x @ nets.W, atol=1e-5)
        assert server.maps(os.path.join(prefix, 'lib', 'libcytoc.so')) > 0


def test_precision():
    """Parameters for the compiler: int8 and bf16 are further away than f32, and not far; libraries of their own in the cache."""
    repository = Repository(os.path.join(WORK, 'precision'))
    kinds = {'f32': {}, 'int8': {'int8': 'dynamic'}, 'bf16': {'bf16': '1'}}
    for name, options in kinds.items():
        repository.add(name, nets.wide(), parameters(threads='1', cache=os.path.join(WORK, 'own-cache'), **options))
    x = nets.weights(4, 512)
    with Server(repository, ARGS.build) as server:
        got = {name: infer(server.grpc(), name, {'x': x}, ['y'])['y'] for name in kinds}
    assert len(os.listdir(os.path.join(WORK, 'own-cache'))) == 3
    for name in ('int8', 'bf16'):
        error = lib.rel_rms(got[name], got['f32'])
        assert 1e-5 < error < 0.1, '%s: %g' % (name, error)


def test_shared_memory():
    """Inputs and outputs in system shared memory, by HTTP and gRPC."""
    repository = Repository(os.path.join(WORK, 'shm'))
    repository.add('mlp', nets.mlp())
    x = nets.weights(2, 16)
    with Server(repository, ARGS.build) as server:
        for module, client in ((http_client, server.http()), (grpc_client, server.grpc())):
            key = '/cytoc-%s' % uuid.uuid4().hex
            region = shm.create_shared_memory_region('all', key, 256)
            try:
                shm.set_shared_memory_region(region, [x])
                client.register_system_shared_memory('all', key, 256)
                given, wanted = module.InferInput('x', x.shape, 'FP32'), module.InferRequestedOutput('y')
                given.set_shared_memory('all', x.nbytes)
                wanted.set_shared_memory('all', 64, 128)
                client.infer('mlp', [given], outputs=[wanted])
                got = np.array(shm.get_contents_as_numpy(region, np.float32, [2, 8], 128))
                assert np.allclose(got, x @ nets.W, atol=1e-5)
                client.unregister_system_shared_memory('all')
            finally:
                shm.destroy_shared_memory_region(region)


def test_metrics():
    """Triton's counts of requests and executions; with layer_metrics, time by layer."""
    repository = Repository(os.path.join(WORK, 'metrics'))
    repository.add('wide', nets.wide(), parameters(layer_metrics='1'))
    repository.add('plain', nets.mlp())
    with Server(repository, ARGS.build) as server:
        http = server.http()
        sent, runs = 5, {}
        for _ in range(sent):
            infer(http, 'wide', {'x': nets.weights(4, 512)}, ['y'])
            infer(http, 'plain', {'x': nets.weights(4, 16)}, ['y'])
        until = time.time() + PATIENCE
        while max(runs.values(), default=0) < 5 and time.time() < until:
            time.sleep(1.1)  # they are brought up to date every second; a run in that moment is not counted
            all_metrics = server.metrics()
            runs = {k: v for k, v in all_metrics.items() if k.startswith('cytoc_layer_runs')}
            if max(runs.values(), default=0) < 5:
                infer(http, 'wide', {'x': nets.weights(4, 512)}, ['y'])
                sent += 1
        assert len(runs) >= 8 and 5 <= max(runs.values()) <= sent, runs
        assert all('model="wide"' in k for k in runs)
        assert any('layer="layer3"' in k for k in runs), runs
        spent = sum(v for k, v in all_metrics.items() if k.startswith('cytoc_layer_duration_us'))
        told = next(v for k, v in all_metrics.items() if k.startswith('nv_inference_compute_infer_duration_us') and 'wide' in k)
        assert 0 < spent < 4 * told, (spent, told)
        stats = http.get_inference_statistics('plain')['model_stats'][0]
        assert stats['inference_count'] == 20 and stats['execution_count'] == 5, stats
        assert int(stats['inference_stats']['success']['count']) == 5
