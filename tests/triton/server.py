# SPDX-License-Identifier: Apache-2.0
"""A server of Triton, started on free ports of 127.0.0.1 and stopped again; folders of models for it.

    repository = Repository(folder)
    repository.add('digits', 'digits.onnx', 'max_batch_size: 8')
    with Server(repository, build) as server:
        server.http().infer('digits', ..)
"""
import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import tritonclient.grpc as grpc_client
import tritonclient.http as http_client

HOST = '127.0.0.1'
PATIENCE = 300  # seconds, for whatever a server or client does: a machine that runs many suites at once may take long
TRITON = os.path.join(sys.prefix, 'lib', 'python%d.%d' % sys.version_info[:2], 'site-packages', 'pytriton', 'tritonserver')


def free_ports(n):
    sockets = [socket.create_server((HOST, 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def python_backend(folder):
    """Makes the backend `python` of Triton's in this folder of backends: what the package has, with the program for this Python."""
    place = os.path.join(folder, 'python')
    shutil.copytree(os.path.join(TRITON, 'backends', 'python'), place)
    stub = os.path.join(TRITON, 'python_backend_stubs', '%d.%d' % sys.version_info[:2], 'triton_python_backend_stub')
    shutil.copy(stub, place)


class Repository:
    """A folder of models."""

    def __init__(self, path):
        self.path = path
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)

    def add(self, name, model, config='', file='model.onnx', backend='cytoc', version=1):
        """model: a path, or bytes. config: what config.pbtxt has besides the backend; None: there is none."""
        folder = os.path.join(self.path, name)
        place = os.path.join(folder, str(version), file)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if isinstance(model, bytes):
            with open(place, 'wb') as f:
                f.write(model)
        else:
            shutil.copy(model, place)
        if config is not None:
            with open(os.path.join(folder, 'config.pbtxt'), 'w') as f:
                f.write('backend: "%s"\n%s\n' % (backend, config))
        return place


def parameters(**values):
    """Text of a configuration."""
    return ''.join('\nparameters { key: "%s" value: { string_value: "%s" } }\n' % item for item in values.items())


def wait_until(function):
    until = time.time() + PATIENCE
    while not function():
        assert time.time() < until, 'it takes more than %d s' % PATIENCE
        time.sleep(0.01)


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Server:
    def __init__(self, repository, build, *options, explicit=False, env=None, ports=None, backends=None):
        self.repository, self.build, self.options, self.env = repository, build, list(options), env
        self.ports = ports or free_ports(3)
        self.backends = backends or os.path.join(build, 'backends')
        self.log_path = repository.path + '.%d.log' % self.ports[0]
        if explicit:
            self.options += ['--model-control-mode=explicit']
        self.process, self.clients = None, []

    def start(self, wait=True):
        http, grpc, metrics = map(str, self.ports)
        command = [os.path.join(TRITON, 'bin', 'tritonserver'), '--model-repository', self.repository.path, '--backend-directory',
                   self.backends, '--exit-on-error', 'false', '--strict-readiness', 'false', '--exit-timeout-secs', '10',
                   '--http-address', HOST, '--grpc-address', HOST, '--metrics-address', HOST, '--http-port', http, '--grpc-port', grpc,
                   '--metrics-port', metrics, '--metrics-interval-ms', '500', *self.options]
        with open(self.log_path, 'ab') as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent,
                                            env={**os.environ, **(self.env or {})})
        if wait:
            self.wait()
        return self

    def wait(self):
        until = time.time() + PATIENCE
        while time.time() < until:
            if self.process.poll() is not None:
                raise RuntimeError('the server ended with %s: %s' % (self.process.returncode, self.log()[-2000:]))
            if self.is_ready():
                return
            time.sleep(0.05)
        raise RuntimeError('the server is not ready after %d s: %s' % (PATIENCE, self.log()[-2000:]))

    def is_ready(self):
        try:
            return urllib.request.urlopen('http://%s:%d/v2/health/ready' % (HOST, self.ports[0]), timeout=2).status == 200
        except OSError:
            return False

    def stop(self):
        for client in self.clients:
            client.close()
        self.clients = []
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
                raise RuntimeError('the server does not end: %s' % self.log()[-2000:]) from None
        return self.process.returncode

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            if self.process:
                self.kill()
            raise

    def __exit__(self, kind, *_):
        code = self.stop()
        if kind is None and code:
            raise RuntimeError('the server ended with %s: %s' % (code, self.log()[-2000:]))

    def log(self):
        with open(self.log_path, errors='replace') as f:
            return f.read()

    def http(self, **options):
        self.clients.append(http_client.InferenceServerClient('%s:%d' % (HOST, self.ports[0]), connection_timeout=PATIENCE,
                                                              network_timeout=PATIENCE, **options))
        return self.clients[-1]

    def grpc(self):
        self.clients.append(grpc_client.InferenceServerClient('%s:%d' % (HOST, self.ports[1])))
        return self.clients[-1]

    def metrics(self):
        """{'name{labels}': value}"""
        text = urllib.request.urlopen('http://%s:%d/metrics' % (HOST, self.ports[2]), timeout=PATIENCE).read().decode()
        return {m.group(1): float(m.group(2)) for m in re.finditer(r'^([^#\s].*) (\S+)$', text, re.M)}

    def memory(self):
        """Bytes that are its own: pages of files that are mapped are left out."""
        with open('/proc/%d/status' % self.process.pid) as f:
            return int(re.search(r'RssAnon:\s+(\d+)', f.read()).group(1)) << 10

    def is_at_rest(self):
        """No thread of it runs or could run."""
        tasks = '/proc/%d/task' % self.process.pid
        try:
            return not any(open('%s/%s/stat' % (tasks, t)).read().rpartition(')')[2].split()[0] == 'R' for t in os.listdir(tasks))
        except OSError:  # a thread that ended meanwhile
            return False

    def unload(self, client, model):
        """Unloads a model, and waits until nothing of it is left.

        Triton 2.51 ends (SIGSEGV) where a model is unloaded before the thread of an instance is back from what made it ready or from its
        last request, and hangs where it is loaded again before it is gone: with any backend, also with one that does nothing."""
        wait_until(self.is_at_rest)
        client.unload_model(model)
        wait_until(lambda: all(m.get('reason') == 'unloaded' for m in client.get_model_repository_index() if m['name'] == model))
        wait_until(self.is_at_rest)

    def threads(self):
        return len(os.listdir('/proc/%d/task' % self.process.pid))

    def maps(self, pattern):
        """How many mappings of files have such a path."""
        with open('/proc/%d/maps' % self.process.pid) as f:
            return sum(1 for line in f if re.search(pattern, line))


# ---- requests --------------------------------------------------------------------------------------------------------------------

TYPES = {'float32': 'FP32', 'float16': 'FP16', 'float64': 'FP64', 'int8': 'INT8', 'uint8': 'UINT8', 'int16': 'INT16', 'uint16': 'UINT16',
         'int32': 'INT32', 'uint32': 'UINT32', 'int64': 'INT64', 'uint64': 'UINT64', 'bool': 'BOOL', 'object': 'BYTES',
         'bfloat16': 'BF16'}


def inputs_of(module, feeds, **binary):
    made = []
    for name, array in feeds.items():
        made.append(module.InferInput(name, array.shape, TYPES[str(array.dtype)]))
        made[-1].set_data_from_numpy(array, **binary)
    return made


def infer(client, model, feeds, names, **options):
    """{name: array} of the outputs. client: of either kind."""
    module = grpc_client if isinstance(client, grpc_client.InferenceServerClient) else http_client
    outputs = [module.InferRequestedOutput(name) for name in names]
    result = client.infer(model, inputs_of(module, feeds), outputs=outputs, **options)
    return {name: result.as_numpy(name) for name in names}


def error_of(function, *args, **options):
    """The text of the error that a call ends with."""
    from tritonclient.utils import InferenceServerException
    try:
        function(*args, **options)
    except InferenceServerException as e:
        return e.message()
    raise AssertionError('no error')
