# SPDX-License-Identifier: Apache-2.0
"""clients.py http|grpc PORT N SECONDS: N clients, each a thread with a connection of its own, ask for models of test_load.py without
rest, once at least, and compare every answer.

Out: the number of requests; exit code 1 with the first error.
"""
import sys
import threading
import time

import numpy as np
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client

import nets
from server import HOST, PATIENCE, infer

kind, port, n, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
counts, wrong = [0] * n, []
wide = nets.weights(3, 512)
expected = {}


def check(client, random):
    x = random.standard_normal((random.randint(1, 5), 16)).astype(np.float32)
    assert np.allclose(infer(client, 'mlp', {'x': x}, ['y'])['y'], x @ nets.W, atol=1e-4), 'mlp'
    y = infer(client, 'wide', {'x': wide}, ['y'])['y']
    assert np.allclose(y, expected.setdefault('wide', y), atol=1e-4), 'wide'


def sequence(client, k, random):
    h = np.zeros((1, 16), np.float32)
    for step in range(3):
        x = random.standard_normal((1, 16)).astype(np.float32)
        got = infer(client, 'state', {'x': x}, ['y'], sequence_id=k + 1 + (1000 if kind == 'grpc' else 0), sequence_start=step == 0,
                    sequence_end=step == 2)['y']
        want, h = nets.recurrent_step(x, h)
        assert np.allclose(got, want, atol=1e-4), 'state'


def run(k):
    module = http_client if kind == 'http' else grpc_client
    random = np.random.RandomState(k)
    limits = {'connection_timeout': PATIENCE, 'network_timeout': PATIENCE} if kind == 'http' else {}
    client = module.InferenceServerClient('%s:%d' % (HOST, port), **limits)
    until = time.time() + seconds
    try:
        while not wrong:
            check(client, random)
            sequence(client, k, random)
            counts[k] += 5
            if time.time() > until:
                break
    except Exception as e:
        wrong.append('%s client %d, request %d: %s' % (kind, k, counts[k], e))
    client.close()


all_threads = [threading.Thread(target=run, args=(k,)) for k in range(n)]
for t in all_threads:
    t.start()
for t in all_threads:
    t.join()
if wrong:
    sys.exit(wrong[0])
print(sum(counts))
