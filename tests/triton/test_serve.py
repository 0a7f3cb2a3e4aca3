# SPDX-License-Identifier: Apache-2.0
"""examples/serve: the example's client against its server, MLServer with the Python package, and against Triton with the backend."""
import os
import subprocess
import sys
import time
import urllib.request

import lib
from server import HOST, PATIENCE, Repository, Server, die_with_parent, free_ports

EXAMPLE = os.path.join(lib.ROOT, 'examples', 'serve')
MLSERVER = 'import sys; from mlserver.cli import main; sys.argv[0] = "mlserver"; main()'


def find_python():
    """The Python that has MLServer, or None: made where it is missing."""
    folder = os.path.join(lib.ROOT, 'build', 'serve-venv')
    python = os.path.join(folder, 'bin', 'python')
    ready = [python, '-c', 'import mlserver']
    if os.path.exists(python) and lib.run(ready)[0] == 0:
        return python
    if os.environ.get('CYTO_NO_INSTALL'):
        return None
    lib.run([sys.executable, '-m', 'venv', folder])
    lib.run([python, '-m', 'pip', 'install', '-q', '--disable-pip-version-check', '--no-deps', '-r', os.path.join(EXAMPLE, 'requirements.txt')])
    return python if os.path.exists(python) and lib.run(ready)[0] == 0 else None


def run_client(port):
    code, out, err = lib.run([sys.executable, os.path.join(EXAMPLE, 'client.py'), '%s:%d' % (HOST, port)])
    assert code == 0, err
    assert out.startswith('right: 3'), out


def wait_ready(process, port, log):
    until = time.time() + PATIENCE
    while True:
        assert process.poll() is None and time.time() < until, open(log).read()[-1500:]
        try:
            urllib.request.urlopen('http://%s:%d/v2/models/digits/ready' % (HOST, port), timeout=PATIENCE)
            return
        except OSError:
            time.sleep(0.1)


def test_mlserver():
    """The example as it is."""
    python = find_python()
    if not python:
        return 'MLServer cannot be had'
    ports, log = free_ports(3), os.path.join(WORK, 'mlserver.log')
    env = dict(os.environ, PYTHONPATH=os.path.join(lib.ROOT, 'python'), MLSERVER_HOST=HOST, MLSERVER_HTTP_PORT=str(ports[0]),
               MLSERVER_GRPC_PORT=str(ports[1]), MLSERVER_METRICS_PORT=str(ports[2]), MLSERVER_PARALLEL_WORKERS='0',
               PYTHONDONTWRITEBYTECODE='1')
    with open(log, 'w') as f:
        server = subprocess.Popen([python, '-c', MLSERVER, 'start', '.'], cwd=EXAMPLE, env=env, stdout=f, stderr=f, preexec_fn=die_with_parent)
    try:
        wait_ready(server, ports[0], log)
        run_client(ports[0])
    finally:
        server.terminate()
        server.wait(PATIENCE)


def test_same_client():
    """The same client, asking Triton."""
    repository = Repository(os.path.join(WORK, 'serve'))
    repository.add('digits', os.path.join(lib.ROOT, 'examples', 'digits', 'digits.onnx'))
    with Server(repository, ARGS.build) as server:
        run_client(server.ports[0])
