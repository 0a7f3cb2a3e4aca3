# SPDX-License-Identifier: Apache-2.0
"""Models for Windows, compiled here, run by Wine, beside the same models for Linux.

In:  node tests of the standard, models made by other suites, of tests/exported and, where they are, of ../shared/models.
     run_list (run_list.c, for both systems) runs them; host.c of the suite libc, and an example, are linked with a model.
Out: the closing line. `run.py rest 'test_conv.*'` runs some models, and what is tested besides.

Results have to be the bytes that Linux gives, with one and with two threads; where a library calls functions of
mathematics, which are another C library's here, they may have a relative RMS error of 1e-6. Errors have to be the same
texts. Libraries may need what comes with Windows, and objects what both of its C libraries have.

Built with sanitizers, which are not for Windows, the models are only compiled.
"""
import glob
import json
import os
import re
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import onnx.numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), 'onnx')]
import graphs
import lib
import list_tests
import network

libc, exported = (lib.load_module(os.path.join(os.path.dirname(HERE), name, 'run.py')) for name in ('libc', 'exported'))

TOOLS = 'x86_64-w64-mingw32-'
CPU = 'x86-64-v3'  # for both; this one has it
LIMIT = 1e-6
# The standard's node tests by parts of their names: kernels of all kinds, operators of the runtime, control flow, texts.
NODES = re.compile(
    'test_(' + '|'.join([
        'conv_with_strides_padding', 'convtranspose_pads', 'convinteger_with_padding', 'depthtospace_example',
        'averagepool_2d_ceil', 'maxpool_2d_dilations', 'gemm_all_attributes', 'matmul_3d', 'matmulinteger',
        'qlinearmatmul_3D_int8_float32', 'qlinearconv', 'quantizelinear_axis', 'dequantizelinear_int4', 'lstm_defaults',
        'gru_seq_length', 'rnn_seq_length', 'softmax_large_number', 'logsoftmax_axis_1', 'layer_normalization_4d_axis1',
        'batchnorm_example', 'attention_4d_gqa', 'attention_4d_causal', 'rotary_embedding', 'einsum_batch_matmul',
        'reduce_log_sum_exp_default_axes_keepdims_example', 'reduce_l2_keep_dims_random', 'cumsum_2d_axis_1', 'topk',
        'top_k_smallest', 'nonzero_example', 'unique_sorted_with_axis', 'nonmaxsuppression_two_batches', 'scatternd_add',
        'gathernd_example_float32', 'resize_upsample_scales_cubic', 'gridsample_bicubic', 'roialign_aligned_true', 'erf',
        'tan', 'asinh', 'lgamma', 'gelu_default_1', 'mod_mixed_sign_float16', 'pow', 'bitshift_left_uint64', 'dft', 'stft',
        'cast_FLOAT_to_STRING', 'cast_STRING_to_FLOAT', 'castlike_FLOAT_to_STRING', 'cast_FLOAT_to_FLOAT8E4M3FN',
        'cast_DOUBLE_to_FLOAT16', 'string_concat', 'string_split_basic', 'strnormalizer_export_monday_casesensintive_lower',
        'strnormalizer_nostopwords_nochangecase', 'tfidfvectorizer_tf_only_bigrams_skip0', 'regex_full_match_basic',
        'if', 'loop11', 'loop13_seq', 'scan9_sum', 'sequence_insert_at_front', 'det_nd', 'stringnormalizer']) + ')$')
EXPORTED = ('mistral_past', 'conformer', 'deberta', 'nnunet3d', 'ort_qdq', 'torch_pt2e', 'tf_nms')  # transformers, int8, ..
SHARED = ('mobilenetv2_qdq', 'edgetpu_block_qdq_u8', 'blazeface_short', 'silero_vad_v5_ifless', 'bert_toy',
          'gpt2_past_12layer_tiny', 'tree_classifier_25', 'nested_if_loop_4031', 'conv3d_fuse')

DLLS = {'kernel32.dll', 'ucrtbase.dll'}
MATHEMATICS = set('exp exp2 expm1 log log2 log10 log1p pow cbrt hypot erf erfc lgamma tgamma sin cos tan asin acos atan '
                  'atan2 sinh cosh tanh asinh acosh atanh'.split())


# ---- models: (name, path of a model, folder of its inputs or '-', options) ----

def node_tests(work):
    """Those whose inputs are tensors of numbers; texts come from constants here."""
    for name, folder, number, _, _, kinds, _ in list_tests.rows():
        data = os.path.join(folder, 'test_data_set_%d' % number)
        if number or not NODES.match(name) or set(kinds) - {'t'}:
            continue
        model = onnx.load(os.path.join(folder, 'model.onnx'))
        inputs, feeds = os.path.join(work, name, 'in'), {}
        for k, port in enumerate(model.graph.input):
            tensor = onnx.load_tensor(os.path.join(data, 'input_%d.pb' % k))
            if tensor.data_type == onnx.TensorProto.STRING:  # .npy has no such elements
                model.graph.initializer.append(tensor)
                model.graph.initializer[-1].name = port.name
            else:
                feeds[port.name] = onnx.numpy_helper.to_array(tensor)
        for tensor in model.graph.initializer:
            for port in [p for p in model.graph.input if p.name == tensor.name]:
                model.graph.input.remove(port)
        network.save_inputs(inputs, feeds)
        path = os.path.join(work, name, 'm.onnx')
        onnx.save(model, path)
        yield name, path, inputs, []


def letters():
    """Case of letters beyond ASCII, and numbers of all sizes as texts."""
    g = graphs.Graph(1)
    words = np.array(['\u00c4\u00d6 stra\u00dfe', '\u0416\u0443\u043a', '\u03a9mega', '\U00010400', 'ILLNESS', ''], object)
    g.op('StringNormalizer', g.const(words), case_change_action='LOWER', out='low')
    g.op('StringNormalizer', g.const(words), case_change_action='UPPER', out='up')
    g.op('Cast', g.op('Mul', 'x', g.const(np.float32(1.1))), to=onnx.TensorProto.STRING, out='texts')
    doubles = g.const(np.array([0, -0.0, 1e-5, 1e-4, 123456, 1e15, 1e16, 1e17, 1e300, 5e-324, 0.1, 1 / 3, np.inf, -np.inf,
                                np.nan, 100, 1e22], np.float64))
    g.op('Cast', doubles, to=onnx.TensorProto.STRING, out='doubles')
    integers = g.const(np.array([0, -1, 2 ** 63 - 1, -2 ** 63], np.int64))
    g.op('Cast', integers, to=onnx.TensorProto.STRING, out='integers')
    read = g.const(np.array(['1.5e3', ' -7 ', 'inf', '-INF', '0.1', '1e-320', '123456789012345678'], object))
    g.op('Cast', read, to=onnx.TensorProto.DOUBLE, out='numbers')
    text = lambda name, n: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.STRING, [n])
    return g.model([graphs.port('x', np.float32, [200])],
                   [text('low', 6), text('up', 6), text('texts', 200), text('doubles', 17), text('integers', 4),
                    graphs.port('numbers', np.float64, [7])], opset=19)


def halves():
    """For CPUs that convert f16 by functions of the runtime, and large frames."""
    g = graphs.Graph(5)
    half = g.op('Cast', 'x', to=onnx.TensorProto.FLOAT16)
    y = g.op('Add', g.op('Mul', half, half), half)
    g.op('Cast', g.op('Cast', g.op('Cast', y, to=onnx.TensorProto.DOUBLE), to=onnx.TensorProto.FLOAT16),
         to=onnx.TensorProto.FLOAT, out='y')
    return g.model([graphs.port('x', np.float32, ['n', 37])], [graphs.port('y', np.float32, ['n', 37])])


def exported_network(entry, name, folder):
    model, inputs = os.path.join(folder, 'm.onnx'), os.path.join(folder, 'in')
    os.makedirs(inputs)
    graph = onnx.load('tests/exported/%s.onnx' % name)
    exported.refill_all(graph.graph)
    onnx.save(graph, model)
    for k, port in enumerate(network.ort_session(model).get_inputs()):
        value = exported.make_input(port, entry['dims'][0], entry['inputs'].get(port.name), np.random.RandomState(k))
        network.save(inputs, 'in_%d_%s' % (k, lib.safe_name(port.name)), port.type, value)
    return model, inputs


def cases(args, work):
    yield 'digits', 'examples/digits/digits.onnx', '-', []
    for make, options in ((letters, []), (halves, []), (halves, ['--target=x86-64']), *((n, []) for n in libc.NETWORKS)):
        name = make.__name__ + ''.join(o.split('=')[-1] for o in options)
        path = os.path.join(work, name, 'm.onnx')
        os.makedirs(os.path.dirname(path))
        onnx.save(make(), path)
        yield name, path, '-', options
    yield from node_tests(work)
    with open('tests/exported/index.json', encoding='utf-8') as f:
        index = {entry['name']: entry for entry in json.load(f)}
    for name in EXPORTED:
        yield name, *exported_network(index[name], name, os.path.join(work, name)), []
    for name in SHARED:
        folder = os.path.join(lib.SHARED, 'models', name)
        if os.path.isdir(folder):
            yield name, os.path.join(folder, 'model.onnx'), os.path.join(folder, 'refio'), []


# ---- running ----

class Wine:
    def __init__(self, args):
        candidates = [shutil.which('wine64'), shutil.which('wine'), '/usr/lib/wine/wine64']
        self.command = next((c for c in candidates if c and os.path.exists(c)), None)
        prefix = os.path.join(args.build, 'wine')
        self.env = {**os.environ, 'WINEPREFIX': prefix, 'WINEDEBUG': '-all', 'WINEDLLOVERRIDES': 'mscoree,mshtml=',
                    'DISPLAY': ''}

    def run(self, command, **options):
        return lib.run([self.command, *command], env=self.env, **options)

    def start(self):
        """Makes the folder that stands for a machine, once; seconds."""
        start = time.time()
        os.makedirs(self.env['WINEPREFIX'], exist_ok=True)
        code, _, err = self.run(['cmd', '/c', 'exit', '0'], timeout=300)
        if code:
            raise RuntimeError('Wine does not start: ' + lib.reason(err, code))
        return time.time() - start


def run_list(run, lines, path):
    """A line of output for each line, in order, also of those behind one that ends the process."""
    said = []
    while len(said) < len(lines):
        with open(path, 'w') as f:
            f.writelines('\t'.join(map(str, line)) + '\n' for line in lines[len(said):])
        code, out, err = run(path)
        said += [line.rstrip('\r') for line in out.splitlines()]
        if len(said) < len(lines):
            said.append('ended: ' + lib.reason(err, code))
    return said


class Job:
    def __init__(self, args, work, name, model, inputs, options):
        self.args, self.work, self.name, self.model, self.inputs, self.options = args, work, name, model, inputs, options
        self.base = os.path.join(work, name)

    def library(self, windows):
        return os.path.join(self.base, self.name + ('.dll' if windows else '.so'))

    def compile(self):
        os.makedirs(self.base, exist_ok=True)
        cpu = next((o.split('=')[1] for o in self.options if o.startswith('--target=')), CPU)
        for windows in (False, True):
            why = network.compile_model(self.args, self.model, self.library(windows), '-O3',
                                        ['-j', '1', '--target=' + cpu + '-windows' * windows])
            if why:
                return why
        return None

    def lines(self, windows):
        for threads in (1, 2):
            folder = os.path.join(self.base, '%s%d' % ('windows' if windows else 'linux', threads))
            os.makedirs(folder)
            yield self.library(windows), self.inputs, folder, threads, 2

    def imports(self):
        """(set of DLLs, set of functions), in small letters."""
        _, out, _ = lib.run([TOOLS + 'objdump', '-p', self.library(True)])
        return ({d.lower() for d in re.findall(r'DLL Name: (\S+)', out)},
                set(re.findall(r'^\t[0-9a-f]+\s+\d+\s+(\w+)', out, re.M)))

    def judge(self, said):
        """said: what the runs printed, (Linux, Windows) for each number of threads."""
        for linux, windows in said:
            if windows.startswith('ok') != linux.startswith('ok') or (not linux.startswith('ok') and linux != windows):
                return '%s, on Linux %s' % (windows, linux)
        dlls, functions = self.imports()
        if dlls - DLLS:
            return 'needs ' + ' '.join(sorted(dlls - DLLS))
        exact = not {f.rstrip('f') if f.rstrip('f') in MATHEMATICS else f for f in functions} & MATHEMATICS
        for threads in (1, 2):
            for path in glob.glob(os.path.join(self.base, 'linux%d' % threads, '*')):
                other = path.replace('/linux%d/' % threads, '/windows%d/' % threads)
                why = same(other, path, exact)
                if why:
                    return '%s, %d threads: %s' % (os.path.basename(path), threads, why)
        return None


def same(path, expected, exact):
    if not os.path.exists(path):
        return 'not written'
    with open(path, 'rb') as g, open(expected, 'rb') as w:
        if g.read() == w.read():
            return None
    if exact or not path.endswith('.npy'):
        return 'not the same bytes'
    return lib.difference('values', np.load(path), np.load(expected), LIMIT)


# ---- other tests ----

def errors(args, work, wine, suite):
    """What does not load or fit: the text is Linux's where the system has no say."""
    folder = os.path.join(work, 'errors')
    os.makedirs(folder)
    digits = os.path.join(work, 'digits', 'digits')
    with open(digits + '.dll', 'rb') as f:
        whole = f.read()
    for name, data in (('truncated', whole[:len(whole) // 2]), ('text', b'no library'), ('empty', b'')):
        with open(os.path.join(folder, name + '.dll'), 'wb') as f:
            f.write(data)
    shutil.copy(digits + '.dll', os.path.join(folder, '\u00e4\u0416.dll'))
    np.save(os.path.join(folder, 'in_0_image.npy'), np.zeros((1, 1, 8, 9), np.float32))
    os.makedirs(os.path.join(folder, 'dtype'))
    np.save(os.path.join(folder, 'dtype', 'in_0_image.npy'), np.zeros((1, 1, 8, 8), np.float64))
    want = [(os.path.join(folder, 'none.dll'), '-', r'6 .*cannot read the library: No such file or directory'),
            ('none.dll', '-', r"6 '\./none\.dll': cannot read"),
            *((os.path.join(folder, name + '.dll'), '-', r'7 .*cannot load the library: ')
              for name in ('truncated', 'text', 'empty')),
            ('ucrtbase.dll', '-', r'6 '), ('c:/windows/system32/version.dll', '-', r'7 .*not a compiled model'),
            (os.path.join(folder, '\u00e4\u0416.dll'), '-', 'ok')]
    said = run_list(lambda path: wine.run([args.run_list[1], path]), [(l, i, folder, 1, 1) for l, i, _ in want],
                    os.path.join(folder, 'list'))
    for (library, _, pattern), text in zip(want, said):
        suite.result('error ' + os.path.basename(library), None if re.match(pattern, text) else text)
    for name, inputs in (('size', folder), ('type', os.path.join(folder, 'dtype'))):
        said = [run_list(run, [(digits + ending, inputs, folder, 1, 1)], os.path.join(folder, 'list'))
                for ending, run in (('.so', args.linux), ('.dll', args.windows))]
        suite.result('error ' + name, None if said[0] == said[1] and said[0][0][0].isdigit() else '%s, %s' % tuple(said))


def linked(args, work, wine, suite):
    """An example and host.c with models linked into them, by MinGW with either C library; in all static forms."""
    folder = os.path.join(work, 'linked')
    os.makedirs(folder)
    model = os.path.join(folder, 'digits')
    for end in ('.lib', '.a', '.obj', '.o'):
        code, _, err = lib.run([args.cytoc, 'examples/digits/digits.onnx', '-o', model + end, '--target=windows',
                                '--shape=image=1x1x8x8'])
        if code:
            return suite.result('linked', lib.reason(err, code))
    runtime = os.path.join(args.build, 'obj', 'x86_64_windows', 'libcyto.a')
    for one, other in (('.lib', '.a'), ('.obj', '.o')):
        suite.result('form ' + other, same(model + other, model + one, True))
    for objects in ([model + '.lib'], [model + '.obj', runtime]):
        program = objects[0] + '.exe'
        code, _, err = lib.run([TOOLS + 'gcc', '-O2', '-Wall', '-Werror', '-I' + folder, 'examples/linked/main.c', *objects,
                                '-o', program])
        if not code:
            code, out, err = wine.run([program])
        suite.result('linked ' + os.path.basename(objects[0]),
                     lib.reason(err, code) if code else None if 'is a 1' in out else out)
    # Functions that are in one of Windows' C libraries alone would keep objects from being linked with the other.
    _, out, _ = lib.run([TOOLS + 'nm', '-u', runtime])
    own = lib.run([TOOLS + 'nm', runtime])[1]
    wanted = set(re.findall(r' U (?:__imp_)?(\w+)', out)) - set(re.findall(r' T (\w+)', own))
    for name in ('msvcrt', 'ucrtbase'):
        has = set()
        for part in (name, 'kernel32', 'mingwex'):
            path = lib.run([TOOLS + 'gcc', '-print-file-name=lib%s.a' % part])[1].strip()
            has |= set(re.findall(r' [IT] (?:__imp_)?(\w+)', lib.run([TOOLS + 'nm', path])[1]))
        missing = sorted(w for w in wanted - has if not w.startswith(('cyrt_', 'cyto_')))
        suite.result('names of ' + name, 'lacks ' + ' '.join(missing) if missing else None)


def plug_ins(args, work, wine, suite):
    """Two models that know nothing of each other share a pool of threads."""
    folder = os.path.join(work, 'pool')
    os.makedirs(folder)
    g = graphs.Graph(3)
    g.op('MatMul', 'x', g.const(g.rng.standard_normal((256, 256)), np.float32), out='y')
    model, program = os.path.join(folder, 'm.onnx'), os.path.join(folder, 'pool.exe')
    onnx.save(g.model([graphs.port('x', np.float32, [256, 256])], [graphs.port('y', np.float32, [256, 256])]), model)
    libraries = [os.path.join(folder, name + '.dll') for name in 'ab']
    compiled = [network.compile_model(args, model, path, '-O3', ['--target=windows']) for path in libraries]
    code, _, err = lib.run([TOOLS + 'gcc', '-O2', '-Wall', '-Werror', os.path.join(HERE, 'pool.c'), '-o', program])
    if not code:
        code, _, err = wine.run([program, *libraries])
    suite.result('plug-ins', compiled[0] or compiled[1] or (lib.reason(err, code) if code else None))


def locale(args, work, wine, suite):
    """host.c of the suite libc, in a program whose numbers have commas, gives the bits that it gives without."""
    model, program = os.path.join(work, 'texts', 'texts.lib'), os.path.join(work, 'texts', 'host')
    code, _, err = lib.run([args.cytoc, os.path.join(work, 'texts', 'm.onnx'), '-o', model, '--target=windows'])
    said = []
    for name in ('C', 'German_Germany.1252'):
        if not code:
            code, _, err = lib.run([TOOLS + 'gcc', '-O1', '-Iruntime', '-DLINKED=texts', '-DLOCALE="%s"' % name,
                                    'tests/libc/host.c', model, '-o', program + name + '.exe'])
        if not code:
            code, out, err = wine.run([program + name + '.exe', 'linked', *['odd'] * (name != 'C')])
            said.append(out)
    suite.result('locale', lib.reason(err, code) if code else None if said[0] and said[0] == said[1] else 'other bits')


def headers(args, work, suite):
    """All headers, as Microsoft's compiler sees them."""
    clang = next((c for c in ('clang-19', 'clang', 'clang-20', 'clang-18', 'clang-17') if shutil.which(c)), None)
    if not clang:
        return suite.skip('headers', 'there is no clang')
    text = os.path.join(work, 'headers.c')
    with open(text, 'w') as f:
        f.write('#include "cyto.h"\n#include "%s"\n' % os.path.join(work, 'linked', 'digits.h'))
    for language in ('c', 'c++'):
        code, _, err = lib.run([clang, '--target=x86_64-pc-windows-msvc', '-fms-compatibility', '-fms-extensions',
                                '-nostdlibinc', '-ffreestanding', '-fsyntax-only', '-Wall', '-Werror', '-Iruntime',
                                '-x', language, text])
        suite.result('headers ' + language, lib.reason(err, code) if code else None)


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    work = os.path.join(args.build, 'windows')
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    wine, start = Wine(args), time.time()
    args.run_list = [os.path.join(args.build, 'tests', 'windows', 'run_list' + end) for end in ('', '.exe')]
    runs = args.variant == 'release'
    absent = (not shutil.which(TOOLS + 'gcc') and 'no C compiler for it (apt-get install gcc-mingw-w64-x86-64)' or
              runs and not wine.command and 'there is no Wine (apt-get install wine64)')
    if absent:
        suite.skip('windows', absent)
        suite.done()
    args.linux = lambda path: lib.run([args.run_list[0], path])
    args.windows = lambda path: wine.run([args.run_list[1], path])
    if runs:
        print('%.1f s: Wine is ready' % wine.start(), flush=True)
    with ThreadPoolExecutor(2) as pool:
        jobs = [Job(args, work, *case) for case in cases(args, work) if args.wanted(case[0])]
        ready = []
        for job, why in zip(jobs, pool.map(Job.compile, jobs)):
            suite.result(job.name, why) if why else ready.append(job)
    print('%.1f s: %d models are compiled' % (time.time() - start, len(ready)), flush=True)
    if not runs:
        for job in ready:
            suite.result(job.name)
        suite.skip('windows', 'nothing was run: that takes the release build')
        suite.done()
    said = [run_list(run, [line for job in ready for line in job.lines(windows)], os.path.join(work, 'list'))
            for windows, run in ((False, args.linux), (True, args.windows))]
    print('%.1f s: they have run' % (time.time() - start), flush=True)
    for i, job in enumerate(ready):
        suite.result(job.name, job.judge(list(zip(*said))[2 * i:2 * i + 2]))
    if not args.names or 'rest' in args.names:
        errors(args, work, wine, suite)
        linked(args, work, wine, suite)
        plug_ins(args, work, wine, suite)
        locale(args, work, wine, suite)
        headers(args, work, suite)
    print('%.1f s: the rest has' % (time.time() - start), flush=True)
    suite.done()


if __name__ == '__main__':
    main()
