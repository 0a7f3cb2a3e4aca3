# SPDX-License-Identifier: Apache-2.0
"""Requests that are no requests: mutants of valid ones, by HTTP and gRPC. The server lives, and answers what is valid.

Triton 2.51 gets memory for numbers that are JSON before it reads them, as many as the shape tells, and ends where there is not as much:
shapes of such requests are not made huge, those of binary ones are.
"""
import os
import random
import socket

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

import nets
from server import HOST, PATIENCE, Repository, Server, infer

MUTANTS = 5000  # by either protocol
X = nets.weights(2, 16)


def http_requests():
    """(model, JSON, binary part) of valid requests."""
    numbers = b'{"inputs":[{"name":"x","shape":[2,16],"datatype":"FP32","parameters":{"binary_data_size":128}}],"outputs":[{"name":"y"}]}'
    text = b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"BYTES","data":["a","longer text"]}]}'
    plain = b'{"inputs":[{"name":"i","shape":[2,1],"datatype":"INT64","data":[3,5]}]}'
    state = (b'{"parameters":{"sequence_id":9,"sequence_start":true,"sequence_end":false},"inputs":[{"name":"x","shape":[1,1,4],'
             b'"datatype":"FP32","data":[1,2,3,4]}]}')
    lengths = b'\x03\x00\x00\x00abc\x01\x00\x00\x00z'
    binary = b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"BYTES","parameters":{"binary_data_size":%d}}]}' % len(lengths)
    return [('mlp', numbers, X.tobytes()), ('strings', text, b''), ('picky', plain, b''), ('cached', state, b''), ('strings', binary, lengths),
            ('lengths', numbers.replace(b'[2,16]', b'[4,8]'), X.tobytes())]


WORDS = [b'-1', b'0', b'1', b'99999999999', b'9223372036854775807', b'-9223372036854775808', b'1e9', b'null', b'[]', b'{}', b'""', b'true',
         b'"FP32"', b'"BYTES"', b'"INT8"', b'[[', b'\xff', b'\x00']


SMALL = [word for word in WORDS if len(word) < 6 and word != b'1e9']


def mutate(rng, data):
    """One to three changes: bytes, a piece removed or doubled, a number or a word in its place."""
    words = SMALL if b'"data":' in data else WORDS
    data = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        kind, at = rng.randrange(5), rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.randint(1, 8))
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at:end]
        elif kind == 2:
            data[at:at] = data[at:end]
        elif kind == 3:
            digits = [k for k, c in enumerate(data) if chr(c).isdigit()]
            if digits:
                at = rng.choice(digits)
                data[at:at + 1] = rng.choice(words)
        else:
            data[at:end] = rng.choice(words)
    return bytes(data)


class Connection:
    """One that is opened again when the server closes it; it does not wait for whole answers."""

    def __init__(self, port):
        self.port, self.socket = port, None

    def ask(self, model, header, body):
        head = ('POST /v2/models/%s/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n' %
                (model, len(header), len(header) + len(body)))
        try:
            self.socket = self.socket or socket.create_connection((HOST, self.port), timeout=PATIENCE)
            self.socket.sendall(head.encode() + header + body)
            return self.read_answer()
        except ConnectionError:
            self.close()
            return 0

    def read_answer(self):
        answer = b''
        while b'\r\n\r\n' not in answer:
            answer += self.more()
        head, _, rest = answer.partition(b'\r\n\r\n')
        length = int(head.lower().partition(b'content-length:')[2].split(b'\r\n')[0] or 0)
        while len(rest) < length:
            rest += self.more()
        return int(head.split()[1])

    def more(self):
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError
        return data

    def close(self):
        if self.socket:
            self.socket.close()
        self.socket = None


def repository_of(name):
    repository = Repository(os.path.join(WORK, name))
    repository.add('mlp', nets.mlp())
    repository.add('strings', nets.strings())
    repository.add('picky', nets.picky())
    repository.add('lengths', nets.lengths())
    # Sequences that nobody ends would hold others up.
    repository.add('cached', nets.cached(), '''max_batch_size: 4 sequence_batching { max_sequence_idle_microseconds: 100000 state {
        input_name: "past_rows" output_name: "present_rows" data_type: TYPE_FP32 dims: [ -1, 4 ] } }''')
    return repository


def check_alive(server):
    assert server.process.poll() is None, 'the server ended with %s: %s' % (server.process.returncode, server.log()[-1500:])
    assert np.allclose(infer(server.http(), 'mlp', {'x': X}, ['y'])['y'], X @ nets.W, atol=1e-5)


def test_http():
    """Mutants of the JSON and of the binary part."""
    rng, answers = random.Random(1), {}
    with Server(repository_of('fuzz-http'), ARGS.build) as server:
        connection, valid = Connection(server.ports[0]), http_requests()
        for model, header, body in valid:
            assert connection.ask(model, header, body) == 200, (model, header)
        for k in range(MUTANTS):
            model, header, body = valid[k % len(valid)]
            if body and rng.random() < 0.5:
                body = mutate(rng, body)
            else:
                header = mutate(rng, header)
            code = connection.ask(model, header, body)
            answers[code] = answers.get(code, 0) + 1
            if k % 500 == 499:
                check_alive(server)
        connection.close()
        check_alive(server)
    assert answers.get(400, 0) + answers.get(500, 0) > MUTANTS // 3 and answers.get(200, 0), answers
    assert set(answers) <= {0, 200, 400, 404, 500, 503}, answers


def grpc_requests():
    def request(model, name, shape, kind, data, **parameters):
        made = service_pb2.ModelInferRequest(model_name=model, raw_input_contents=[data],
                                             inputs=[service_pb2.ModelInferRequest.InferInputTensor(name=name, shape=shape, datatype=kind)])
        for key, value in parameters.items():
            if isinstance(value, bool):
                made.parameters[key].bool_param = value
            else:
                made.parameters[key].int64_param = value
        return made.SerializeToString()
    return [request('mlp', 'x', [2, 16], 'FP32', X.tobytes()), request('strings', 'x', [1, 2], 'BYTES', b'\x02\x00\x00\x00ab\x01\x00\x00\x00c'),
            request('picky', 'i', [1, 1], 'INT64', (3).to_bytes(8, 'little')),
            request('cached', 'x', [1, 1, 4], 'FP32', X[0, :4].tobytes(), sequence_id=5, sequence_start=True, sequence_end=False)]


def test_grpc():
    """Mutants of the serialized messages."""
    rng, answers = random.Random(2), {}
    with Server(repository_of('fuzz-grpc'), ARGS.build) as server:
        with grpc.insecure_channel('%s:%d' % (HOST, server.ports[1])) as channel:
            call = channel.unary_unary('/inference.GRPCInferenceService/ModelInfer', request_serializer=None, response_deserializer=None)
            valid = grpc_requests()
            for request in valid:
                call(request, timeout=PATIENCE)
            for k in range(MUTANTS):
                try:
                    call(mutate(rng, valid[k % len(valid)]), timeout=PATIENCE)
                    code = 'OK'
                except grpc.RpcError as e:
                    code = e.code().name
                answers[code] = answers.get(code, 0) + 1
                if k % 500 == 499:
                    check_alive(server)
        check_alive(server)
    assert sum(n for code, n in answers.items() if code != 'OK') > MUTANTS // 3, answers
    assert 'DEADLINE_EXCEEDED' not in answers, answers
