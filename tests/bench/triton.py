# SPDX-License-Identifier: Apache-2.0
"""Throughput of Triton with our backend, beside ONNX Runtime in Triton's Python backend (its backend for ONNX Runtime is not on PyPI):
the same server, clients and machine.

In:  --build DIR; build/triton-venv, which tests/triton makes, with onnxruntime in it; ../shared. --wait: when all is compiled, wait for a
     line on standard input, so that the machine can be made quiet before anything is timed.
Out: the table; with --update in tests/bench/results/RESULTS-scale.md, between the marks of `triton`.

CLIENTS threads of one process send requests of one row by gRPC, each waiting for its answer. Both servers batch what waits, up to 8 rows,
and have one instance with all threads. In each of ROUNDS rounds the contenders take turns, SECONDS each, in an order that turns round; the
server of the other is stopped meanwhile (SIGSTOP). A figure is the median of rounds, a ratio that of the rounds' ratios.
"""
import argparse
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(ROOT, 'tests', 'triton'), HERE]
import lib

CLIENTS, ROUNDS, SECONDS, BATCH = 8, 7, 3, 8
ORT_PACKAGES = ('numpy==1.26.4', 'onnxruntime==1.32.0', 'flatbuffers==25.12.19', 'packaging==26.4', 'protobuf==7.36.2')
NETWORKS = ('digits', 'mobilenet_v3_large', 'resnet18', 'dlrm')
RESULTS = os.path.join(HERE, 'results', 'RESULTS-scale.md')
BEGIN, END = '<!-- triton:begin -->', '<!-- triton:end -->'
SECTION = """
## Triton

`tests/bench/triton.py --update`: requests per second that %d clients get from Triton 2.51 by gRPC, one row a request, batches of up to %d;
our backend beside ONNX Runtime in Triton's Python backend. Clients and server share two cores.

%s
%s
"""

MODEL_PY = """
import sys
sys.path.insert(0, %r)
import numpy as np
import onnxruntime
import triton_python_backend_utils as pb

class TritonPythonModel:
    def initialize(self, args):
        self.session = onnxruntime.InferenceSession(%r, providers=['CPUExecutionProvider'])
        self.inputs = [x.name for x in self.session.get_inputs()]
        self.outputs = [x.name for x in self.session.get_outputs()]

    def execute(self, requests):
        parts = {n: [pb.get_input_tensor_by_name(r, n).as_numpy() for r in requests] for n in self.inputs}
        rows = np.cumsum([len(x) for x in parts[self.inputs[0]]])[:-1]
        results = self.session.run(self.outputs, {n: np.concatenate(x) if len(x) > 1 else x[0] for n, x in parts.items()})
        split = [np.split(y, rows) for y in results]
        return [pb.InferenceResponse([pb.Tensor(n, y[k]) for n, y in zip(self.outputs, split)]) for k in range(len(requests))]
"""


def find_model(name, work):
    """(path, {input: array of one row})"""
    import numpy as np
    if name == 'digits':
        return os.path.join(ROOT, 'examples', 'digits', 'digits.onnx'), {'image': np.random.rand(1, 1, 8, 8).astype(np.float32)}
    zoo, path, inputs = os.path.join(lib.SHARED, 'zoo'), os.path.join(work, name + '.onnx'), os.path.join(work, name)
    subprocess.run([sys.executable, 'materialize.py', name + '.onnx', path, '--inputs', inputs], cwd=zoo, check=True, stdout=subprocess.DEVNULL)
    feeds = {re.match(r'in_\d+_(.*)\.npy', f).group(1) if f.startswith('in_') else f[:-4]: np.load(os.path.join(inputs, f))[:1]
             for f in sorted(os.listdir(inputs)) if f.endswith('.npy')}
    return path, feeds


def onnxruntime_folder():
    """Where the Python backend's packages are: it was made for NumPy 1, and gives no data with NumPy 2."""
    folder = os.path.join(ROOT, 'build', 'triton-ort')
    if not os.path.isdir(os.path.join(folder, 'onnxruntime')):
        subprocess.run([sys.executable, '-m', 'pip', 'install', '-q', '--no-deps', '--target', folder, *ORT_PACKAGES], check=True)
    return folder


def start_servers(models, work, build):
    import onnx

    from server import TYPES, Repository, Server, python_backend
    site = os.path.join(sys.prefix, 'lib', 'python%d.%d' % sys.version_info[:2], 'site-packages')
    ours, theirs = Repository(os.path.join(work, 'ours')), Repository(os.path.join(work, 'theirs'))
    batching = 'max_batch_size: %d dynamic_batching { } instance_group { count: 1 kind: KIND_CPU }' % BATCH
    for name, (path, feeds) in models.items():
        ours.add(name, path, batching)
        ports = ''
        graph = onnx.load(path, load_external_data=False).graph
        for kind, values in (('input', [v for v in graph.input if v.name in feeds]), ('output', graph.output)):
            for v in values:
                shape = v.type.tensor_type.shape.dim
                dims = ', '.join(str(d.dim_value or -1) for d in shape[1:]) or '1'
                dtype = TYPES[str(onnx.helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type))]
                ports += '\n%s { name: "%s" data_type: TYPE_%s dims: [ %s ] }' % (kind, v.name, dtype, dims)
        theirs.add(name, (MODEL_PY % (onnxruntime_folder(), path)).encode(), batching + ports, file='model.py', backend='python')
    backends = os.path.join(work, 'backends')
    python_backend(backends)
    libraries = {'LD_LIBRARY_PATH': os.path.join(site, 'nvidia_pytriton.libs')}
    servers = {'cytoc': Server(ours, build), 'onnxruntime': Server(theirs, build, backends=backends, env=libraries)}
    for server in servers.values():
        server.start()
    return servers


def rate_of(server, name, feeds):
    """Requests per second."""
    import tritonclient.grpc as client

    from server import HOST, inputs_of
    counts, until = [0] * CLIENTS, time.time() + SECONDS

    def ask(k):
        mine = client.InferenceServerClient('%s:%d' % (HOST, server.ports[1]))
        inputs = inputs_of(client, feeds)
        while time.time() < until:
            mine.infer(name, inputs)
            counts[k] += 1
        mine.close()

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(CLIENTS)]
    begin = time.time()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return sum(counts) / (time.time() - begin)


def check_equal(servers, name, feeds):
    import numpy as np

    from server import grpc_client, inputs_of
    got = []
    for server in servers.values():
        result = server.grpc().infer(name, inputs_of(grpc_client, feeds))
        got.append([result.as_numpy(o.name) for o in result.get_response().outputs])
    for a, b in zip(*got):
        assert lib.rel_rms(np.asarray(a), np.asarray(b)) < 1e-3, name


def measure(servers, models):
    rates = {}
    for name, (_, feeds) in models.items():
        check_equal(servers, name, feeds)
    for server in servers.values():
        server.process.send_signal(signal.SIGSTOP)
    for name, (_, feeds) in models.items():
        rows = []
        for k in range(ROUNDS + 1):  # the first one is not counted
            row = {}
            for who in sorted(servers, reverse=k % 2):
                servers[who].process.send_signal(signal.SIGCONT)
                row[who] = rate_of(servers[who], name, feeds)
                servers[who].process.send_signal(signal.SIGSTOP)
            rows.append(row)
        rates[name] = rows[1:]
        print(name, *('%s %.0f' % (who, statistics.median(r[who] for r in rows[1:])) for who in servers), flush=True)
    for server in servers.values():
        server.process.send_signal(signal.SIGCONT)
    return rates


def table(rates):
    lines = ['| network | cytoc, requests/s | ONNX Runtime, requests/s | ratio |', '|---|---:|---:|---:|']
    for name, rows in rates.items():
        ours, theirs = (statistics.median(r[who] for r in rows) for who in ('cytoc', 'onnxruntime'))
        lines.append('| %s | %.0f | %.0f | %.2fx |' % (name, ours, theirs, statistics.median(r['cytoc'] / r['onnxruntime'] for r in rows)))
    return '\n'.join(lines)


def write(text):
    section = BEGIN + SECTION % (CLIENTS, BATCH, text, END)
    old = open(RESULTS).read() if os.path.exists(RESULTS) else '# Many items, many clients\n\n'
    if BEGIN in old:
        old = old[:old.index(BEGIN)] + section.rstrip('\n') + old[old.index(END) + len(END):]
    else:
        old = old.rstrip('\n') + '\n\n' + section
    with open(RESULTS, 'w') as f:
        f.write(old)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('names', nargs='*', default=list(NETWORKS))
    parser.add_argument('--build', default=os.path.join(ROOT, 'build'))
    parser.add_argument('--update', action='store_true')
    parser.add_argument('--wait', action='store_true')
    args = parser.parse_args()
    python = os.path.join(ROOT, 'build', 'triton-venv', 'bin', 'python')
    if not os.path.exists(python):
        sys.exit('there is no %s: `make check-triton` makes it' % python)
    if os.path.realpath(sys.prefix) != os.path.realpath(os.path.dirname(os.path.dirname(python))):
        sys.exit(subprocess.run([python, *sys.argv]).returncode)
    args.build = os.path.abspath(args.build)
    work = os.path.join(args.build, 'triton-bench')
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    os.environ['CYTOC_CACHE_DIR'] = os.path.join(args.build, 'triton-bench-cache')
    models = {name: find_model(name, work) for name in args.names}
    servers = start_servers(models, work, args.build)
    try:
        if args.wait:
            print('ready', flush=True)
            sys.stdin.readline()
        text = table(measure(servers, models))
    finally:
        for server in servers.values():
            server.process.send_signal(signal.SIGCONT)
            server.stop()
    shutil.rmtree(work, ignore_errors=True)
    print(text)
    if args.update:
        write(text)


if __name__ == '__main__':
    main()
