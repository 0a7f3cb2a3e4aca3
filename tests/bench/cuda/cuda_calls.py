# SPDX-License-Identifier: Apache-2.0
"""What a decoding step asks of the CUDA driver: its calls and launches, counted by the mock driver. No kernel runs.

In:  decoders of ../shared/zoo whose caches grow (names restrict it), --options (of cytoc), --tokens. The mocks of `make tests`.
Out: a Markdown table (--append FILE: to a file, too): launches of kernels in a step, calls of the driver in a step that is launched
     kernel by kernel (the first behind the text), and the most and the median of those behind it, recordings included and not.
The context keeps the caches; the device's primary context is current, as CUDA's runtime has it.
"""
import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile

import cuda_static

sys.path.insert(0, os.path.join(cuda_static.HERE, '..', '..', 'cuda'))
import mock

NETWORKS = ['gpt2_small', 'llama_160m_gqa']
DTYPES = {1: 4, 7: 8, 10: 2}  # f32, i64, f16: bytes of an element
CONTEXT = 40                  # the mock's first device


class Decoder:
    """A library in a context that keeps its caches."""

    def __init__(self, build, library, model):
        self.cyto = ctypes.CDLL(os.path.join(build, 'libcyto.so'))
        self.model, self.context, self.error = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.create_string_buffer(4096)
        self.inputs, self.past, self.data = model.graph.input, 0, {}
        self.check(self.cyto.cyto_model_load(library.encode(), ctypes.byref(self.model), self.error))
        self.check(self.cyto.cyto_context_create(self.model, None, ctypes.byref(self.context), self.error))
        self.check(self.cyto.cyto_context_keep(self.context, ctypes.c_int64(512), self.error))

    def check(self, code):
        if code:
            sys.exit('cuda_calls: %s' % self.error.raw[4:].split(b'\0')[0].decode(errors='replace'))

    def step(self, fresh):
        sizes = {'batch': 1, 'sequence': fresh, 'past': self.past, 'total': self.past + fresh}
        for i, port in enumerate(self.inputs):
            cache = port.name.startswith('past')
            if cache and self.past:
                continue
            kind = port.type.tensor_type
            dims = [sizes[d.dim_param] if d.dim_param else d.dim_value for d in kind.shape.dim]
            data = self.data.setdefault(port.name, ctypes.create_string_buffer(4096 * DTYPES[kind.elem_type]))
            self.check(self.cyto.cyto_bind_input(self.context, i, kind.elem_type, len(dims), (ctypes.c_int64 * len(dims))(*dims),
                                                 None if cache else data, self.error))
        self.check(self.cyto.cyto_run(self.context, self.error))
        self.past += fresh


def measure(args, name, folder):
    import onnx
    path = cuda_static.materialized(name, folder)
    library = os.path.join(folder, name + '.so')
    env = mock.environment(args)
    subprocess.run([args.cytoc, path, '-o', library, '--target=sm_80', *args.options], env=mock.compiling(env), check=True)
    driver = ctypes.CDLL(os.path.join(mock.folder(args), 'libcuda.so.1'))
    driver.cuCtxPushCurrent_v2(ctypes.c_void_p(CONTEXT))
    decoder = Decoder(args.build, library, onnx.load(path, load_external_data=False))
    decoder.step(args.text)
    calls, launches = [], []
    for _ in range(args.tokens + 1):
        before = driver.mock_cuda_calls(), driver.mock_cuda_launches()
        decoder.step(1)
        calls.append(driver.mock_cuda_calls() - before[0])
        launches.append(driver.mock_cuda_launches() - before[1])
    return '| %s | %d | %d | %d | %d |' % (name, launches[-1], calls[0], max(calls[2:]), statistics.median(calls[2:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('names', nargs='*', default=NETWORKS)
    parser.add_argument('--build', default='build')
    parser.add_argument('--options', default='--fp16 --cudnn=off --cublaslt=off', type=str.split)
    parser.add_argument('--text', type=int, default=100, help='words before the first step')
    parser.add_argument('--tokens', type=int, default=20)
    parser.add_argument('--append')
    args = parser.parse_args()
    args.device, args.cytoc = False, os.path.join(args.build, 'cytoc')
    os.environ['CY_MOCK_IDLE'] = '1'
    lines = ['| network | launches | calls, kernel by kernel | calls, most of %d steps | median |' % args.tokens, '|---|---|---|---|---|']
    with tempfile.TemporaryDirectory() as folder:
        lines += [measure(args, name, folder) for name in args.names]
    print('\n'.join(lines))
    if args.append:
        with open(args.append, 'a', encoding='utf-8') as f:
            f.write('\n'.join(lines) + '\n')


if __name__ == '__main__':
    main()
