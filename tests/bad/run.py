# SPDX-License-Identifier: Apache-2.0
"""Bad input: every case must end in a diagnostic and exit code 1, with nothing left behind.

In:  cases.py and the files that it names; the neg_* of ../shared/models; damaged copies of a good model; wrong use of
     cytoc and cyto-run.
Out: the closing line.

Checked each time: the exit code, no signal and no sanitizer report, expected expressions on stderr, no output file, and
nothing in the folder of temporary files. The folder of the model must hold what it held before.
"""
import glob
import io
import os
import random
import resource
import shutil
import signal
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), *(os.path.join(os.path.dirname(HERE), name) for name in ('onnx', 'operators'))]
import re

import numpy as np
import onnx
from onnx import TensorProto, helper as h

import cases
import graph_cases
import lib
import list_tests
import mutate
import operator_cases
import value_cases

NEGATIVE = {  # what must be said about the shared ones
    'neg_bert_intent_slice_types': ['Slice'],
    'neg_corrupt': ['parse|truncated|protobuf|corrupt|not an ONNX'],
    'neg_custom_op_dll': ['StringUpper'],
    'neg_if_outer_scope_output': ['If|branch|scope'],
    'neg_path_traversal': ['outside|leaves|absolute|\\.\\.'],
    'neg_style_starry_fp16': ['Add'],
    'neg_superres_ortextensions': ['DecodeImage', 'EncodeImage'],
}


class Place:
    """An empty folder for the model, one for the output and one for temporary files."""

    def __init__(self, args, name):
        self.root = os.path.join(args.build, 'bad', name)
        shutil.rmtree(self.root, ignore_errors=True)
        self.model_dir, self.out, self.tmp = (os.path.join(self.root, n) for n in ('model', 'out', 'tmp'))
        for folder in (self.model_dir, self.out, self.tmp):
            os.makedirs(folder)
        self.model = os.path.join(self.model_dir, 'model.onnx')
        self.library = os.path.join(self.out, 'model.so')

    def left(self, before):
        """What lies around that should not; `before`: names in the model's folder."""
        return (os.listdir(self.out) + os.listdir(self.tmp) +
                sorted(set(os.listdir(self.model_dir)) - set(before)))

    def remove(self):
        shutil.rmtree(self.root, ignore_errors=True)


def complaint(code, err, expressions, codes=(1,)):
    """None when a program ended as bad input should end."""
    if re.search('AddressSanitizer|LeakSanitizer|runtime error:', err):
        return lib.reason(err, code)
    if code not in codes:
        return 'ended by %s' % signal.Signals(-code).name if code < 0 else \
            'exit code %d, not %s: %s' % (code, ' or '.join(map(str, codes)), lib.reason(err, code) if err else 'no message')
    for expression in expressions:
        if not re.search(expression, err, re.I):
            return "nothing like '%s' in: %s" % (expression, ' / '.join(err.strip().splitlines()[:3])[:300] or 'no message')
    return None


def compile_bad(args, place, model, extra=(), expressions=(), library=None, codes=(1,), **options):
    before = os.listdir(place.model_dir)
    code, _, err = lib.run([args.cytoc, model, '-o', library or place.library, *extra], timeout=120,
                           env=dict(os.environ, TMPDIR=place.tmp), **options)
    why = complaint(code, err, expressions, codes)
    left = place.left(before)
    return why or ('left behind: %s' % ' '.join(left) if left else None)


def model_cases(args, suite):
    for name, expressions, function in cases.MODEL_CASES:
        if args.wanted(name):
            place = Place(args, name)
            extra = function(place.model_dir) or []
            suite.result(name, compile_bad(args, place, place.model, extra, ['model\\.onnx', *expressions]
                                           if not extra else expressions))
            place.remove()


def negative_cases(args, suite):
    for name, expressions in NEGATIVE.items():
        model = os.path.join(lib.SHARED, 'models', name, 'model.onnx')
        if not args.wanted(name):
            continue
        if not os.path.exists(model):
            suite.skip(name, 'there is no %s' % model)
            continue
        place = Place(args, name)
        suite.result(name, compile_bad(args, place, model, [], expressions))
        place.remove()


def limit_file_size(limit):
    """For a child: files up to `limit` bytes, and the signal for larger ones as a shell leaves it."""
    def prepare():
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    return prepare


def output_cases(args, suite):
    """A good model, but its output cannot be written, or the command line is wrong."""
    def missing_folder(p):
        return dict(library=os.path.join(p.root, 'nosuch', 'model.so'), expressions=['nosuch'])

    def output_is_folder(p):
        os.mkdir(os.path.join(p.model_dir, 'model.so'))
        return dict(library=os.path.join(p.model_dir, 'model.so'), expressions=['model\\.so'])

    def disk_full(p):
        return dict(preexec_fn=limit_file_size(2000), expressions=['.'])

    def disk_full_of_weights(p):
        cases.weighty(p.model_dir, 1 << 20)
        return dict(preexec_fn=limit_file_size(3 << 20), expressions=['cannot write 4.2 MB of weights'])

    def disk_full_of_library(p):
        cases.weighty(p.model_dir, 1 << 20)
        return dict(preexec_fn=limit_file_size((4 << 20) + 30000), expressions=['ld.*failed'])

    def unknown_suffix(p):
        return dict(library=os.path.join(p.out, 'model.exe'), expressions=['exe|suffix|\\.so'], codes=(1, 2))

    def unknown_option(p):
        return dict(extra=['--frobnicate'], expressions=['frobnicate'], codes=(1, 2))

    def bad_level(p):
        return dict(extra=['-O9'], expressions=['-?O9?'], codes=(1, 2))

    def bad_emit(p):
        return dict(extra=['--emit=poem'], expressions=['poem'], codes=(1, 2))

    def two_models(p):
        return dict(extra=[p.model], expressions=['.'], codes=(1, 2))

    def model_missing(p):
        return dict(model=os.path.join(p.model_dir, 'nosuch.onnx'), expressions=['nosuch\\.onnx'])

    def model_is_folder(p):
        return dict(model=p.model_dir, expressions=['.'])

    for function in (missing_folder, output_is_folder, disk_full, disk_full_of_weights, disk_full_of_library, unknown_suffix, unknown_option, bad_level, bad_emit,
                     two_models, model_missing, model_is_folder):
        if args.wanted(function.__name__):
            place = Place(args, function.__name__)
            cases.good(place.model_dir)
            options = function(place)
            suite.result(function.__name__, compile_bad(args, place, options.pop('model', place.model), **options))
            place.remove()


def calibration_cases(args, suite):
    """Wrong samples for a good model, and wrong options about them."""
    good = np.float32([[1, -2, 3]])

    def nothing(d):
        pass

    def put(name, array):
        return lambda d: np.save(os.path.join(d, name), array)

    def archive(**arrays):
        return lambda d: np.savez(os.path.join(d, 'c.npz'), **arrays)

    def sample_folder(*names):
        def write(d):
            os.mkdir(os.path.join(d, 's1'))
            for name in names:
                np.save(os.path.join(d, 's1', name), good)
        return write

    def cut_archive(d):
        archive(x=good)(d)
        path = os.path.join(d, 'c.npz')
        with open(path, 'rb') as f:
            data = f.read()
        with open(path, 'wb') as f:
            f.write(data[:len(data) // 2])

    def damaged_archive(change, compression=zipfile.ZIP_DEFLATED):
        """change(bytes, where the entry's data begins, where the directory begins)"""
        def write(d):
            path = os.path.join(d, 'c.npz')
            array = io.BytesIO()
            np.save(array, np.zeros((900, 3), np.float32))
            with zipfile.ZipFile(path, 'w', compression) as z:
                z.writestr('x.npy', array.getvalue())
            with open(path, 'rb') as f:
                data = bytearray(f.read())
            change(data, 30 + len('x.npy'), data.index(b'PK\1\2'))
            with open(path, 'wb') as f:
                f.write(data)
        return write

    def put_word(field, value):
        def change(data, _, directory):
            data[directory + field:directory + field + 4] = value.to_bytes(4, 'little')
        return change

    def flip(data, start, directory):
        data[(start + directory) // 2] ^= 0x55

    nan = np.float32([[1, np.nan, 3]])
    for name, write, path, extra, expressions in (
            ('no_folder', nothing, 'nosuch', [], ['nosuch']),
            ('empty_folder', nothing, '', [], ['no \\.npy or \\.pb']),
            ('no_tensor', lambda d: open(os.path.join(d, 'readme.md'), 'w').close(), '', [], ['no \\.npy or \\.pb']),
            ('empty_sample', sample_folder(), '', [], ["no file for input 'x'"]),
            ('wrong_name', sample_folder('z.npy'), '', [], ['z\\.npy', 'no input of that name', 'x\\.npy']),
            ('two_files', sample_folder('x.npy', 'in_0_x.npy'), '', [], ["second file for input 'x'"]),
            ('wrong_dims', put('x.npy', np.float32([[1, 2]])), '', [], ['x\\.npy', r'\[\?,3\]', r'\[1,2\]']),
            ('wrong_rank', put('x.npy', np.float32([1, 2, 3])), '', [], ['x\\.npy', r'\[\?,3\]', r'\[3\]']),
            ('wrong_dtype', put('x.npy', np.float64([[1, 2, 3]])), '', [], ['x\\.npy', 'float32', 'float64']),
            ('has_nan', put('x.npy', nan), '', [], ['x\\.npy', "'x'", 'NaN at element 1', 'samples']),
            ('has_infinity', put('x.npy', np.float32([[1, 2, np.inf]])), '', [], ['x\\.npy', "'x' has infinity at element 2"]),
            ('npz_infinity', archive(x=np.float32([[1, 2, 3], [4, 5, -np.inf]])), 'c.npz', [], ['c\\.npz', "array 'x'", '-infinity at element 5']),
            ('npz_name', archive(z=good), 'c.npz', [], ["array 'z'", "'x'"]),
            ('npz_rank', archive(x=np.float32(1)), 'c.npz', [], ["array 'x'", 'rank 0']),
            ('npz_dims', archive(x=np.float32([[1, 2]])), 'c.npz', [], [r'\[1,2\]']),
            ('npz_dtype', archive(x=np.int8([[1, 2, 3]])), 'c.npz', [], ['float32', 'int8']),
            ('npz_empty', archive(x=np.zeros((0, 3), np.float32)), 'c.npz', [], ["array 'x'"]),
            ('npz_no_arrays', archive(), 'c.npz', [], ["no array for input 'x'"]),
            ('npz_method', damaged_archive(lambda *_: None, zipfile.ZIP_LZMA), 'c.npz', [], ['method 14', 'deflate', 'savez']),
            ('npz_stream', damaged_archive(flip), 'c.npz', [], ['c\\.npz', "'x\\.npy'", 'damaged']),
            ('npz_crc', damaged_archive(put_word(16, 1)), 'c.npz', [], ["'x\\.npy'", 'checksum']),
            ('npz_crc_stored', damaged_archive(flip, zipfile.ZIP_STORED), 'c.npz', [], ["'x\\.npy'", 'checksum']),
            ('npz_too_long', damaged_archive(put_word(24, 10929)), 'c.npz', [], ['10929', 'decompressed']),
            ('npz_too_short', damaged_archive(put_word(24, 10927)), 'c.npz', [], ['10927', 'decompressed']),
            ('npz_impossible', damaged_archive(put_word(24, 0xfffffff0)), 'c.npz', [], ['4294967280', 'cannot be']),
            ('npz_zip64', damaged_archive(put_word(24, 0xffffffff)), 'c.npz', [], ['4 GB']),
            ('npz_packed', damaged_archive(put_word(20, 0x7fffffff)), 'c.npz', [], ['does not lie']),
            ('npz_encrypted', damaged_archive(put_word(8, 0x80001)), 'c.npz', [], ['encrypted']),
            ('npz_cut', cut_archive, 'c.npz', [], ['c\\.npz']),
            ('npz_no_archive', put('x.npy', good), 'x.npy', [], ['x\\.npy', 'npz']),
            ('method', put('x.npy', good), '', ['--calibration=median'], ['median', 'percentile']),
            ('max_error', put('x.npy', good), '', ['--int8-max-error=much'], ['much', 'percentage']),
            ('min_snr', put('x.npy', good), '', ['--int8-min-snr=good'], ['good', 'decibels', 'off']),
            ('min_snr_less', put('x.npy', good), '', ['--int8-min-snr=-3'], ['-3', 'decibels']),
            ('min_snr_most', put('x.npy', good), '', ['--int8-min-snr=1000'], ['1000', 'decibels']),
            ('level', put('x.npy', good), '', ['-O0'], ['-O1']),
            ('prefer', put('x.npy', good), '', ['--int8-prefer=both'], ['speed', 'size', 'both']),
            ('mode', put('x.npy', good), '', ['--int8=fast'], ['fast', 'static'])):
        if not args.wanted('calibration_' + name):
            continue
        place = Place(args, 'calibration_' + name)
        samples = os.path.join(place.root, 'samples')
        os.mkdir(samples)
        cases.good(place.model_dir)
        write(samples)
        options = ['--int8=static', '--calibrate=' + os.path.join(samples, path), *extra]
        suite.result('calibration_' + name, compile_bad(args, place, place.model, options, expressions))
        if not extra:
            why = compile_bad(args, place, 'quantize', [place.model, *options[1:]], expressions,
                              library=os.path.join(place.out, 'q.onnx'))
            suite.result('quantize_' + name, why)
        place.remove()


def run_batch(args, listing, place):
    """Exit codes by line, and what went wrong around them."""
    _, out, err = lib.run([args.cytoc, '--batch', listing, '-j', '2'], env=dict(os.environ, TMPDIR=place.tmp))
    return {int(l.split()[0]): int(l.split()[1]) for l in out.splitlines() if re.match(r'\d+ -?\d+ ', l)}, err


def other_types(t):
    """(name, a type that an operator may not expect in place of tensor type t)"""
    element, dims = t.tensor_type.elem_type or 1, [d.dim_value or None for d in t.tensor_type.shape.dim]
    yield 'a map', h.make_map_type_proto(TensorProto.INT64, h.make_tensor_type_proto(TensorProto.FLOAT, []))
    yield 'a sequence', h.make_sequence_type_proto(t)
    yield 'an optional', h.make_optional_type_proto(t)
    yield 'strings', h.make_tensor_type_proto(TensorProto.STRING, dims)
    yield 'one number', h.make_tensor_type_proto(element, [])
    yield 'eight dimensions', h.make_tensor_type_proto(element, [2] * 8)


def other_type_cases(args, suite):
    """Every operator of the standard's node tests with each input as something else: imported, or refused."""
    if not args.wanted('other types'):
        return
    place, names, seen = Place(args, 'types'), [], set()
    listing = os.path.join(place.root, 'list')
    with open(listing, 'w', encoding='utf-8') as f:
        for path in sorted(glob.glob(os.path.join(list_tests.node_folder(), '*', 'model.onnx'))):
            model = onnx.load(path)
            kind = tuple(node.op_type for node in model.graph.node)
            ports = [port for port in model.graph.input if port.type.HasField('tensor_type')]
            for port in ports if kind not in seen else []:
                own = onnx.TypeProto()
                own.CopyFrom(port.type)
                for what, other in other_types(own):
                    port.type.CopyFrom(other)
                    copy = os.path.join(place.model_dir, '%d.onnx' % len(names))
                    onnx.save(model, copy)
                    f.write('\t'.join(['%s/%d.log' % (place.root, len(names)), copy, '--passes=sweep', '--emit=graph', '-o',
                                       '%s/%d.txt' % (place.out, len(names))]) + '\n')
                    names.append('%s: %s for %s' % (os.path.basename(os.path.dirname(path)), what, port.name))
                port.type.CopyFrom(own)
            seen.add(kind)
    ended, err = run_batch(args, listing, place)
    wrong = [name for i, name in enumerate(names) if ended.get(i) not in (0, 1)]
    suite.result('other types (%d)' % len(names), '; '.join(wrong[:5]) + err[-300:] if wrong else None)
    place.remove()


def damaged(args, suite, name, models):
    """Compiles models, (what, bytes), in one batch: any outcome but a crash, and no half output."""
    place, whats = Place(args, name), []
    listing = os.path.join(place.root, 'list')
    with open(listing, 'w', encoding='utf-8') as f:
        for n, (what, data) in enumerate(models):
            with open('%s/%d.onnx' % (place.model_dir, n), 'wb') as m:
                m.write(data)
            f.write('\t'.join(['%s/%d.log' % (place.root, n), '%s/%d.onnx' % (place.model_dir, n), '-o',
                               '%s/%d.so' % (place.out, n), '-O1', '-j', '1']) + '\n')
            whats.append(what)
    ended, err = run_batch(args, listing, place)
    for i, what in enumerate(whats):
        with open('%s/%d.log' % (place.root, i), encoding='utf-8', errors='replace') if i in ended else open(os.devnull) as log:
            text = log.read()
        why = complaint(ended.get(i, 99), text or err, ['error'] if ended.get(i) == 1 else [], (0, 1))
        if not why and 'mistake in cytoc' in text:
            why = lib.reason(text, 1)
        written = glob.glob('%s/%d.*' % (place.out, i))
        if not why and bool(written) != (ended[i] == 0):
            why = 'exit code %d, but files: %s' % (ended[i], written)
        suite.result('%s_%d %s' % (name, i, what), why)
    if os.listdir(place.tmp):
        suite.result(name, 'left behind: %s' % ' '.join(os.listdir(place.tmp)))
    place.remove()


def damaged_cases(args, suite):
    """Truncations and bit flips of a good model; models whose structure is wrong."""
    def flipped():
        place = Place(args, 'good')
        data, rng = bytearray(cases.good_bytes(place.model_dir)), random.Random(5)
        place.remove()
        for n in range(160):
            copy = bytearray(data)
            if n < 60:
                copy = copy[:len(data) * n // 60]
            else:
                for _ in range(rng.randint(1, 4)):
                    copy[rng.randrange(len(copy))] ^= 1 << rng.randrange(8)
            yield '', copy

    if args.wanted('damaged'):
        damaged(args, suite, 'damaged', flipped())
    if args.wanted('mutated'):
        damaged(args, suite, 'mutated', mutate.mutants(400, 9))


def run_cases(args, suite):
    """Wrong inputs for a good library."""
    if not args.wanted('run_'):
        return
    place = Place(args, 'run')
    cases.good(place.model_dir)
    code, _, err = lib.run([args.cytoc, place.model, '-o', place.library])
    if code:
        suite.result('run_cases', 'the good model does not compile: ' + lib.reason(err, code))
        return
    arrays = {'good': np.zeros((2, 3), np.float32), 'rank': np.zeros((2, 3, 1), np.float32),
              'dim': np.zeros((2, 4), np.float32), 'dtype': np.zeros((2, 3), np.int64)}
    for name, array in arrays.items():
        np.save(os.path.join(place.model_dir, name + '.npy'), array)
    with open(os.path.join(place.model_dir, 'good.npy'), 'rb') as f:
        whole = f.read()
    for name, data in (('short', whole[:-5]), ('header', whole[:9]), ('text', b'hello\n')):
        with open(os.path.join(place.model_dir, name + '.npy'), 'wb') as f:
            f.write(data)
    at = lambda name: 'x=' + os.path.join(place.model_dir, name + '.npy')
    for name, library, options, expressions, codes in (
            ('run_good', place.library, ['--input', at('good')], [], (0,)),
            ('run_rank', place.library, ['--input', at('rank')], ['x', 'rank|dim|shape'], (1,)),
            ('run_dim', place.library, ['--input', at('dim')], ['x', '3', '4'], (1,)),
            ('run_dtype', place.library, ['--input', at('dtype')], ["dtype\\.npy': input 'x'", 'int64', 'float'], (1,)),
            ('run_short', place.library, ['--input', at('short')], ['short\\.npy'], (1,)),
            ('run_header', place.library, ['--input', at('header')], ['header\\.npy'], (1,)),
            ('run_text', place.library, ['--input', at('text')], ['text\\.npy'], (1,)),
            ('run_huge_of_nothing', place.library, ['--random', '1', '--shape', 'x=%dx17x0' % 2**62], ['x', 'rank|dim|shape'], (1,)),
            ('run_no_file', place.library, ['--input', at('nosuch')], ['nosuch\\.npy'], (1,)),
            ('run_no_input', place.library, [], ["'?x'?"], (1,)),
            ('run_unknown_input', place.library, ['--input', 'z' + at('good')], ['zx', "it has 'x'"], (1,)),
            ('run_no_library', place.library + '.no', [], ['model\\.so\\.no'], (1,)),
            ('run_not_a_library', place.model, [], ['model\\.onnx'], (1,)),
            ('run_bad_threads', place.library, ['--input', at('good'), '--threads', 'many'], ['many|threads'], (1, 2))):
        code, _, err = lib.run([args.cyto_run, library, *options], timeout=60)
        suite.result(name, complaint(code, err, expressions, codes))
    place.remove()


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    for part in (model_cases, negative_cases, output_cases, calibration_cases, other_type_cases, damaged_cases, run_cases):
        part(args, suite)
    suite.done()


if __name__ == '__main__':
    main()
