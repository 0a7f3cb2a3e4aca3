# SPDX-License-Identifier: Apache-2.0
"""Load: many clients at once, models that come and go; neither errors nor growth of memory."""
import os
import subprocess
import sys

import numpy as np

import nets
from server import PATIENCE, Repository, Server, infer, parameters, wait_until

CLIENTS = 64
HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20


def test_clients():
    """64 clients, half of them by gRPC, for 8 s (--long: a minute): no error, no growth of memory."""
    seconds = 60 if ARGS.long else 8
    repository = Repository(os.path.join(WORK, 'clients'))
    repository.add('mlp', nets.mlp(), 'max_batch_size: 32 dynamic_batching { } instance_group { count: 2 kind: KIND_CPU }')
    repository.add('wide', nets.wide(), 'max_batch_size: 16 dynamic_batching { }')
    repository.add('state', nets.recurrent(), 'max_batch_size: 16' + parameters(sequences='oldest'))
    with Server(repository, ARGS.build) as server:
        # A round that makes all memory that is kept.
        load(server, 2)
        before, threads = server.memory(), server.threads()
        first = load(server, seconds / 2)
        middle = server.memory()
        second = load(server, seconds / 2)
        after = server.memory()
        print('    %d requests, %.0f/s; memory %.0f, %.0f, %.0f MiB' % (first + second, (first + second) / seconds, before / MIB,
                                                                     middle / MIB, after / MIB))
        assert min(first, second) >= 5 * CLIENTS, (first, second)  # each of them once
        assert after - middle < 24 * MIB and after - before < 64 * MIB, (before, middle, after)
        assert server.threads() <= threads + 16, (threads, server.threads())


def load(server, seconds):
    """Runs clients.py, in processes of their own; the number of requests. An error of any of them is one of this."""
    done = 0
    processes = [subprocess.Popen([sys.executable, os.path.join(HERE, 'clients.py'), kind, str(server.ports[kind == 'grpc']), str(CLIENTS // 2),
                                   str(seconds)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for kind in ('http', 'grpc')]
    outputs = [p.communicate(timeout=seconds + PATIENCE)[0] for p in processes]
    for p, out in zip(processes, outputs):
        assert p.returncode == 0, out[-1000:]
        done += int(out.split()[-1])
    return done


def test_load_unload():
    """A model is loaded and unloaded 200 times: nothing of it stays, neither memory nor its file."""
    repository = Repository(os.path.join(WORK, 'unload'))
    repository.add('wide', nets.wide(256, 4), parameters(layer_metrics='1') + 'instance_group { count: 2 kind: KIND_CPU }')
    repository.add('stays', nets.mlp())
    memory = []
    with Server(repository, ARGS.build, explicit=True) as server:
        http = server.http()
        http.load_model('stays')
        x = nets.weights(2, 256)
        for k in range(200):
            http.load_model('wide')
            if k % 10 == 0:
                assert infer(http, 'wide', {'x': x}, ['y'])['y'].shape == (2, 256)
            if k == 1:
                mapped = server.maps('triton-.*model.so')
            server.unload(http, 'wide')
            if k % 50 == 49:
                assert not http.is_model_ready('wide')
                memory.append(server.memory())
        wait_until(lambda: server.maps('triton-.*model.so') < mapped)
        assert not any('model="wide"' in name and name.startswith('cytoc') for name in server.metrics())
        threads = server.threads()
        assert np.allclose(infer(http, 'stays', {'x': nets.weights(2, 16)}, ['y'])['y'], nets.weights(2, 16) @ nets.W, atol=1e-5)
        assert threads < 100, threads
    print('    memory %s MiB' % ', '.join('%.0f' % (m / MIB) for m in memory))
    assert memory[-1] - memory[0] < 16 * MIB, memory
