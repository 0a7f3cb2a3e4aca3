# SPDX-License-Identifier: Apache-2.0
"""What ONNX Runtime answers at each size, asked once: every configuration and variant of the build reads it again.

In:  models and files of inputs of sizes.py.
Out: References.of(): for each size "OK" and the outputs, "ERROR why", or "NONE why there is no answer";
     build/onnx-tests/references, a file for each model, which holds for one version of ONNX Runtime, model and data.

It runs in a process of its own, which may crash. A size is given up after SECONDS of this process on a core, whatever else the
machine does.
"""
import hashlib
import importlib.metadata
import io
import os
import pickle
import resource
import select
import signal
import subprocess
import sys
import time
import zlib

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import lib
from size_tensors import read_tensors, write_tensors

MEMORY = 6 << 30
VERSION = 1  # of what is kept


def reference_main():
    """Lines: model, inputs, outputs, names of the inputs. Answers a line each: ok, or why not."""
    import onnxruntime as ort
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ort.set_default_logger_severity(4)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    session, path = None, None
    print('READY', flush=True)
    for line in sys.stdin:
        model, inputs, outputs, names = line.rstrip('\n').split('\t')
        try:
            if model != path:
                session, path, why = None, model, ''
                try:
                    session = ort.InferenceSession(model, options, providers=['CPUExecutionProvider'])
                except Exception as e:
                    why = str(e)
            if session is None:
                print('NONE ' + why.replace('\n', ' ')[:300], flush=True)
                continue
            feeds = {n: v for n, v in zip(names.split(','), read_tensors(inputs)) if v is not None}
            got = session.run(None, feeds)
            write_tensors(outputs, [np.asarray(g) for g in got])
            print('OK', flush=True)
        except Exception as e:
            print('ERROR ' + str(e).replace('\n', ' ')[:300], flush=True)


def seconds_on_a_core(pid):
    with open('/proc/%d/stat' % pid, encoding='utf-8') as f:
        fields = f.read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


class Runtime:
    """Asks that process, and starts another one where it crashes or takes longer than a case may."""
    SECONDS = 5
    PATIENCE = 60  # seconds that may pass, on a core or not

    def __init__(self):
        self.process = None

    def start(self):
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True)
        if self.process.stdout.readline() != 'READY\n':
            sys.exit('ONNX Runtime does not start')

    def line(self):
        """The next line; '' where it ended, None where it takes too long."""
        pid, begin = self.process.pid, time.time()
        used = seconds_on_a_core(pid)
        while not select.select([self.process.stdout], [], [], 1)[0]:
            if seconds_on_a_core(pid) - used > self.SECONDS or time.time() - begin > self.PATIENCE:
                return None
        return self.process.stdout.readline().rstrip('\n')

    def ask(self, *fields):
        if self.process is None:
            self.start()
        try:
            self.process.stdin.write('\t'.join(fields) + '\n')
            self.process.stdin.flush()
            answer = self.line()
        except BrokenPipeError:
            answer = ''
        if not answer:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
            return 'NONE it takes too long' if answer is None else 'NONE it crashed'
        return answer

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()


class References:
    """Answers that are kept: {label of the sizes: (answer, the compressed file of outputs)}."""

    def __init__(self):
        self.runtime, self.asked = Runtime(), 0
        self.folder = os.path.join(lib.ROOT, 'build', 'onnx-tests', 'references')
        self.version = '%d %s' % (VERSION, importlib.metadata.version('onnxruntime'))
        os.makedirs(self.folder, exist_ok=True)

    def digest(self, job):
        digest = hashlib.sha256(self.version.encode())
        with open(job['model'], 'rb') as f:
            digest.update(f.read())
        for value in job['values']:
            digest.update(b'-' if value is None else np.ascontiguousarray(value).tobytes())
        return digest.digest()

    def read(self, path, digest):
        try:
            with open(path, 'rb') as f:
                kept, answers = pickle.load(f)
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):
            return {}
        return answers if kept == digest else {}

    def write(self, path, digest, answers):
        mine = '%s.%d' % (path, os.getpid())
        with open(mine, 'wb') as f:
            pickle.dump((digest, answers), f)
        os.replace(mine, path)

    def ask(self, job, stem):
        self.asked += 1
        answer = self.runtime.ask(job['model'], stem + '.in', stem + '.ref', ','.join(job['inputs']))
        if answer != 'OK':
            return answer, None
        with open(stem + '.ref', 'rb') as f:
            outputs = zlib.compress(f.read(), 1)
        os.remove(stem + '.ref')
        return answer, outputs

    def of(self, job, stems):
        """The answers for a model at sizes; stems: {label: files of the inputs without their ending}."""
        path = os.path.join(self.folder, os.path.basename(job['model']) + '.kept')
        digest = self.digest(job)
        answers = self.read(path, digest)
        missing = {label: self.ask(job, stem) for label, stem in stems.items() if label not in answers}
        answers.update(missing)
        if missing:
            self.write(path, digest, answers)
        return answers


def outputs_of(reference):
    return read_tensors(io.BytesIO(zlib.decompress(reference[1])))


if __name__ == '__main__':
    reference_main()
