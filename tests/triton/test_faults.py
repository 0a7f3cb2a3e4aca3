# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in the life of a server: clients that vanish, kill -9, two servers on one cache, no room for the cache."""
import os
import shutil
import socket

import numpy as np

import cytoc
import nets
from server import HOST, PATIENCE, Repository, Server, infer, parameters, wait_until

X = nets.weights(2, 16)


def works(server, model='mlp'):
    return np.allclose(infer(server.http(), model, {'x': X}, ['y'])['y'], X @ nets.W, atol=1e-5)


def http_request(model, x):
    body = x.tobytes()
    header = b'{"inputs":[{"name":"x","shape":[%d,%d],"datatype":"FP32","parameters":{"binary_data_size":%d}}]}' % (*x.shape, len(body))
    return (b'POST /v2/models/%s/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n' %
            (model.encode(), len(header), len(header) + len(body))) + header + body


def test_clients_vanish():
    """Connections that end in the middle of a request, or before its answer is read. By HTTP: requests of gRPC that are cancelled end
    Triton 2.51 itself now and then (SIGSEGV in a thread of its gRPC service, with nothing of the backend's on the stack)."""
    repository = Repository(os.path.join(WORK, 'vanish'))
    repository.add('mlp', nets.mlp())
    repository.add('wide', nets.wide(1024, 8))
    request, slow = http_request('mlp', X), http_request('wide', nets.weights(4, 1024))
    with Server(repository, ARGS.build) as server:
        for k in range(100):
            with socket.create_connection((HOST, server.ports[0]), timeout=PATIENCE) as s:
                s.sendall(request[:len(request) * k // 99])
        # Whole requests to a model that takes longer, of clients that do not wait for it.
        for k in range(50):
            with socket.create_connection((HOST, server.ports[0]), timeout=PATIENCE) as s:
                s.sendall(slow)
        assert infer(server.http(), 'wide', {'x': nets.weights(4, 1024)}, ['y'])['y'].shape == (4, 1024)
        assert works(server)


def test_kill():
    """kill -9 while models are loaded and run, and while they are compiled; the next server on the same ports works."""
    repository = Repository(os.path.join(WORK, 'kill'))
    repository.add('mlp', nets.mlp())
    first = Server(repository, ARGS.build).start()
    assert works(first)
    first.kill()
    repository.add('wide', nets.wide(1024, 12))
    again = Server(repository, ARGS.build, ports=first.ports).start(wait=False)
    wait_until(lambda: "model 'wide': compiling" in again.log())
    again.kill()
    with Server(repository, ARGS.build, ports=first.ports) as last:
        assert works(last)
        assert infer(last.http(), 'wide', {'x': nets.weights(1, 1024)}, ['y'])['y'].shape == (1, 1024)


def test_two_servers():
    """Two servers that start at once on one cache: each model is compiled by one of them."""
    folder = os.path.join(WORK, 'two-cache')
    servers = []
    for k in range(2):
        repository = Repository(os.path.join(WORK, 'two%d' % k))
        for n in range(3):
            repository.add('wide%d' % n, nets.wide(64 * (n + 1), 4), parameters(cache=folder))
        servers.append(Server(repository, ARGS.build).start(wait=False))
    try:
        for server in servers:
            server.wait()
            for n in range(3):
                x = nets.weights(1, 64 * (n + 1))
                assert infer(server.http(), 'wide%d' % n, {'x': x}, ['y'])['y'].shape == x.shape
        compiled = sum(server.log().count('compiled in') for server in servers)
    finally:
        codes = [server.stop() for server in servers]
    assert compiled == 3 and codes == [0, 0], (compiled, codes)
    assert len(os.listdir(folder)) == 3


def test_cache_cannot_be_used():
    """A cache that cannot be written to: a warning, and the model is served; damaged entries are made anew."""
    repository = Repository(os.path.join(WORK, 'nocache'))
    in_the_way = os.path.join(WORK, 'a-file')
    open(in_the_way, 'w').close()
    repository.add('mlp', nets.mlp(), parameters(cache=os.path.join(in_the_way, 'below')))
    own = os.path.join(WORK, 'damaged')
    repository.add('kept', nets.mlp(), parameters(cache=own))
    with Server(repository, ARGS.build) as server:
        assert works(server) and works(server, 'kept')
        assert 'is not kept' in server.log()
    [entry] = os.listdir(own)
    with open(os.path.join(own, entry, 'model.so'), 'r+b') as f:
        f.truncate(1000)
    with Server(repository, ARGS.build) as server:
        assert works(server, 'kept')
        assert server.log().count("'kept': compiled in") == 1


def test_no_compiler():
    """A backend without libcytoc serves compiled libraries, and says what is missing for others."""
    backends = os.path.join(WORK, 'alone', 'backends')
    os.makedirs(os.path.join(backends, 'cytoc'))
    shutil.copy(os.path.join(ARGS.build, 'backends', 'cytoc', 'libtriton_cytoc.so'), os.path.join(backends, 'cytoc'))
    repository = Repository(os.path.join(WORK, 'alone', 'models'))
    with cytoc.compile(nets.mlp()) as model:
        model.save(os.path.join(WORK, 'alone', 'mlp.so'))
    repository.add('mlp', os.path.join(WORK, 'alone', 'mlp.so'), file='model.so')
    repository.add('source', nets.mlp())
    with Server(repository, ARGS.build, backends=backends) as server:
        assert works(server)
        index = {m['name']: m for m in server.http().get_model_repository_index()}
        assert 'the compiler cannot be opened' in index['source']['reason'], index


def test_client_compiles():
    """A process with a client of gRPC compiles a model: its threads of gRPC do not end the compilation."""
    repository = Repository(os.path.join(WORK, 'client'))
    repository.add('mlp', nets.mlp())
    with Server(repository, ARGS.build) as server:
        client = server.grpc()
        for n in range(5):
            infer(client, 'mlp', {'x': X}, ['y'])
            with cytoc.compile(nets.wide(16 + n, 2), cache=False) as model:
                assert model(nets.weights(1, 16 + n)).shape == (1, 16 + n)
