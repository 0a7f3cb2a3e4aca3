# SPDX-License-Identifier: Apache-2.0
"""The command line of cytoc: each row of the table is one call and what must come of it.

Out: the closing line. Rows say: arguments, the exit code, expressions that its output must have, the files that must
then lie in the folder of outputs (no others may), and a further check of the folder, where there is one.
"""
import fcntl
import filecmp
import io
import json
import os
import pty
import re
import resource
import select
import shlex
import shutil
import signal
import stat
import struct
import subprocess
import termios
import time
import zipfile

import numpy as np
import onnx
from onnx import helper as h

import graphs
import lib
import network

MODEL = os.path.join(lib.ROOT, 'examples', 'digits', 'digits.onnx')


def read(*path):
    with open(os.path.join(*path), encoding='utf-8', errors='replace') as f:
        return f.read()


def json_stats(folder):
    stats = json.loads(read(folder, 's.json'))
    wanted = {'stages_ms', 'passes', 'kernels', 'weights_bytes', 'output_bytes', 'arena_bytes', 'peak_mb'}
    missing = wanted - set(stats)
    return 'no %s in s.json' % ', '.join(sorted(missing)) if missing else \
        None if stats['kernels'] > 0 and stats['weights_bytes'] > 0 else 'kernels or weights are 0 in s.json'


def has(name, *expressions):
    """A check: the file has lines like these."""
    def check(folder):
        text = read(folder, name)
        return next(("nothing like '%s' in %s" % (e, name) for e in expressions if not re.search(e, text, re.M)), None)
    return check


def dumps(folder):
    names = sorted(os.listdir(folder))
    numbered = [n for n in names if re.match(r'\d+-[a-z_0-9]+\.txt$', n)]
    return None if len(numbered) >= 5 else 'only these dumps: %s' % ' '.join(names)


def objects(folder):
    return None if {'m.host.o', 'm.weights.o'} <= set(os.listdir(folder)) else 'only %s' % ' '.join(sorted(os.listdir(folder)))


# name, arguments (%s: the folder of outputs), exit code, expressions, files (None: any), check
ARM_ROWS = [
    ('target cortex-a76', [MODEL, '--target=cortex-a76', '--emit=asm', '-o', '%s/m.s'], 0, [], ['m.s'], has('m.s', r'\tfmla\tv')),
    ('target aarch64 archive', [MODEL, '--target=aarch64', '-o', '%s/m.a'], 0, [], ['m.a', 'm.h'], None),
    ('target aarch64 object', [MODEL, '--target=aarch64', '-o', '%s/m.o'], 0, [], ['m.h', 'm.o'], None),
    ('target ARM with a GPU', [MODEL, '--target=sm_87,aarch64', '--emit=cu', '-o', '%s/m.cu'], 0, [], ['m.cu'], None),
    ('target ARM triple', [MODEL, '--target=aarch64-linux-gnu', '-o', '%s/m.so'], 0, [], ['m.h', 'm.so'], None),
] if shutil.which('aarch64-linux-gnu-gcc') else [  # cytoc is built with what there is
    ('target ARM without a compiler', [MODEL, '--target=aarch64', '-o', '%s/m.so'], 1, ['gcc-aarch64-linux-gnu'], [], None)]

ARM64 = [('arm64', 'aarch64'), ('arm64-linux-gnu', 'aarch64'), ('aarch64-unknown-linux-gnu', 'aarch64')] \
    if shutil.which('aarch64-linux-gnu-gcc') else []

ROWS = [
    ('help', ['--help'], 0, ['usage: cytoc', '--target=T .*sm_75', r'--stats\[=FILE\]'], [], None),
    ('version', ['--version'], 0, [r'cytoc \d+\.\d+', 'x86-64-v3', r'here +native \(\S+\)', r'names +x86-64 .* haswell .* neoverse-v2'], [], None),
    ('so', [MODEL, '-o', '%s/m.so'], 0, [], ['m.h', 'm.so'], has('m.h', r'\bm_run\(')),
    ('a', [MODEL, '-o', '%s/m.a'], 0, [], ['m.a', 'm.h'], None),
    ('o', [MODEL, '-o', '%s/m.o'], 0, [], ['m.h', 'm.o'], None),
    ('h', [MODEL, '-o', '%s/m.h'], 0, [], ['m.h'], None),
    ('s', [MODEL, '-o', '%s/m.s'], 0, [], ['m.s'], has('m.s', r'(?m)^\s*\.text')),
    ('level 0', [MODEL, '-O0', '-o', '%s/m.so'], 0, [], ['m.h', 'm.so'], None),
    ('name', [MODEL, '--name', 'other', '-o', '%s/m.so'], 0, [], ['m.h', 'm.so'], has('m.h', 'other_run')),
    ('save temps', [MODEL, '-o', '%s/m.so', '--save-temps=%s'], 0, [], None, objects),
    ('emit graph', [MODEL, '--emit=graph'], 0, ['graph ', 'conv', 'softmax'], [], None),
    ('emit loops', [MODEL, '--emit=loops'], 0, ['kernel '], [], None),
    *(('emit %s to stdout' % kind, [MODEL, '--emit=' + kind, '-o', '-'], 0, [text], [], None) for kind, text in (
        ('graph', '(?m)^graph @digits'), ('loops', r'\Aprogram digits'), ('ll', '(?m)^define '), ('asm', r'(?m)^\s*\.text'),
        ('h', r'model_run\('))),
    *(('emit %s to stdout' % kind, [MODEL, '--emit=' + kind, '-o', '-'], 1, ["'-o -'.*found '%s'" % kind], [], None) for kind in
      ('so', 'a', 'o', 'cubin', 'graph,loops')),
    ('nothing to emit to stdout', [MODEL, '-o', '-'], 1, ["'-o -'.*found 'no --emit'"], [], None),
    ('emit many', [MODEL, '--emit=graph,loops,ll,asm,h', '-o', '%s/m.so'], 0, [],
     ['m.asm', 'm.graph.txt', 'm.h', 'm.ll', 'm.loops.txt'], has('m.ll', '^define ', 'target triple')),
    ('int8', [MODEL, '--int8', '--int8-skip=Conv', '--explain', '-o', '%s/m.so'], 0, ['layer +shape +MFLOP +float kcyc +int8 kcyc +error', 'float: too small', 'warning: nothing was quantised'], ['m.h', 'm.so'], None),
    ('weights of no type', [MODEL, '--weights=int3', '-o', '%s/m.so'], 1, ['int3', 'int8 or int4'], [], None),
    ('weights without type', [MODEL, '--weights=block=32', '-o', '%s/m.so'], 1, ['int8 or int4'], [], None),
    ('fp16', [MODEL, '--fp16', '--explain', '-o', '%s/m.so'], 0, ['conv (direct|winograd f4x3) f16', 'gemm packed f16'], ['m.h', 'm.so'], None),
    ('bf16 without F16C', [MODEL, '--bf16', '--target=x86-64-v2', '--explain', '-o', '%s/m.so'], 0, ['gemm packed bf16'], ['m.h', 'm.so'], None),
    ('half io', [MODEL, '--bf16', '--half-io', '--emit=graph'], 0, [r'%image: bf16\[', r': bf16\[batch,10\]'], [], None),
    ('half io alone', [MODEL, '--half-io', '-o', '%s/m.so'], 1, ['--half-io', '--fp16'], [], None),
    ('half limit alone', [MODEL, '--half-max-error=1%', '-o', '%s/m.so'], 1, ['--half-max-error', '--fp16'], [], None),
    ('half limit beside int8', [MODEL, '--bf16', '--int8', '--half-max-error=1%', '-o', '%s/m.so'], 1, ['--half-max-error', '--int8'], [], None),
    ('half limit no number', [MODEL, '--fp16', '--half-max-error=few', '-o', '%s/m.so'], 1, ['few', 'percentage'], [], None),
    ('half limit', [MODEL, '--bf16', '--half-max-error=5%', '--explain', '-o', '%s/m.so'], 0, ['bf16 kcyc', 'layers in bf16'], ['m.h', 'm.so'], None),
    ('fp16 and bf16', [MODEL, '--fp16', '--bf16', '-o', '%s/m.so'], 1, ['exclude each other'], [], None),
    ('half limit beside weights', [MODEL, '--bf16', '--half-max-error=1%', '--weights=int4', '-o', '%s/m.so'], 1, ['--half-max-error', '--weights'], [], None),
    ('fp16 at level 0', [MODEL, '--fp16', '-O0', '-o', '%s/m.so'], 1, ['--fp16', '-O1'], [], None),
    ('fp16 without F16C', [MODEL, '--fp16', '--target=x86-64-v2', '-o', '%s/m.so'], 1, ['F16C', 'x86-64-v3', '--bf16'], [], None),
    ('int8 static without samples', [MODEL, '--int8=static', '-o', '%s/m.so'], 1, ['--calibrate'], [], None),
    ('int8 skip without int8', [MODEL, '--int8-skip=x', '-o', '%s/m.so'], 1, ['--int8'], [], None),
    ('quantize without samples', ['quantize', MODEL, '-o', '%s/m.onnx'], 1, ['--calibrate'], [], None),
    ('quantize to a library', ['quantize', MODEL, '-o', '%s/m.so', '--calibrate=x'], 1, ['-o FILE.onnx'], [], None),
    ('emit so and text', [MODEL, '--emit=so,asm', '-o', '%s/m.so'], 0, [], ['m.asm', 'm.h', 'm.so'], has('m.asm', r'\.text')),
    ('dump all', [MODEL, '--dump=all', '--dump-dir=%s', '--stop-after=fold'], 0, ['graph '], None, None),
    ('dump all passes', [MODEL, '--dump=all', '--dump-dir', '%s', '--emit=graph'], 0, [], None, dumps),
    ('dump one', [MODEL, '--dump=fuse', '--dump-dir=%s', '--emit=graph'], 0, [], None,
     lambda d: None if any('fuse' in n for n in os.listdir(d)) else 'no dump of fuse'),
    ('dump unknown', [MODEL, '--dump=nosuch', '--emit=graph'], 1, ['nosuch'], [], None),
    ('passes help', ['--passes=help'], 0, ['fold', 'layout +-O2', r'\nfuse +-O1 [^\n]*\n\Z'], [], None),
    ('passes', [MODEL, '--passes=fold'], 0, ['graph '], [], None),
    ('passes unknown', [MODEL, '--passes=nosuch'], 1, ['nosuch', '--passes=help'], [], None),
    ('stop unknown', [MODEL, '--stop-after=nosuch'], 1, ['nosuch'], [], None),
    ('disable', [MODEL, '--disable=fuse,layout', '-o', '%s/m.so'], 0, [], ['m.h', 'm.so'], None),
    ('disable unknown', [MODEL, '--disable=nosuch', '-o', '%s/m.so'], 1, ['nosuch'], [], None),
    ('verify', [MODEL, '--verify', '-o', '%s/m.so'], 0, [], ['m.h', 'm.so'], None),
    ('explain', [MODEL, '--explain', '-o', '%s/m.so'], 0,
     ['kernel +runs +algorithm +layout +MFLOP +MB +floor us +ops', 'conv (direct|winograd).* conv add max', 'nhwc', 'all launches'],
     ['m.h', 'm.so'], None),
    ('winograd', [MODEL, '--dim', 'batch=1', '--target=x86-64-v3', '--fast-algorithms=auto', '--explain', '-o', '%s/m.so'], 0, ['conv winograd'], ['m.h', 'm.so'], None),
    ('no winograd', [MODEL, '--dim', 'batch=1', '--fast-algorithms=off', '--explain', '-o', '%s/m.so'], 0, ['(?s)\\A(?!.*winograd).*conv direct'], ['m.h', 'm.so'], None),
    ('fast algorithms unknown', [MODEL, '--fast-algorithms=on', '-o', '%s/m.so'], 1, ["auto or off, found 'on'"], [], None),
    ('fast algorithms of a device', [MODEL, '--fast-algorithms=off', '--target=sm_80', '-o', '%s/m.so'], 1, ['for CPUs', '--cudnn=off'], [], None),
    ('profile on a device', [MODEL, '--profile', '--target=sm_80', '--emit=cu', '-o', '%s/m.cu'], 0, [], ['m.cu'], None),
    ('explain blocks', [MODEL, '--explain=json', '--dim', 'batch=1', '-o', '%s/m.so'], 0, ['"blocks": ?"tile [0-9]+x[0-9]+, tasks of [0-9]+'], ['m.h', 'm.so'], None),
    ('explain memory', [MODEL, '--explain=memory', '--dim', 'batch=2', '-o', '%s/m.so'], 0,
     ['weights [0-9.]+ MB', 'arena [0-9.]+ MB', 'at the peak, step', 'bytes alive'], ['m.h', 'm.so'], None),
    ('explain costs', [MODEL, '--explain=costs', '-o', '%s/m.so'], 0,
     ['(?m)^conv 1->32 k3x3 ', r'(?m)^  \* [a-z]+ +[0-9.]+ kcycles\n      tile [0-9]+x[0-9]+, tasks of [0-9]+ ', '-[a-z0-9_]+ +not estimated  by --tune or --choice'], ['m.h', 'm.so'], None),
    ('explain costs of a device', [MODEL, '--explain=costs', '--target=sm_80', '--emit=cu', '-o', '%s/m.cu'], 0,
     ["target 'sm_80.* has no candidates"], ['m.cu'], None),
    ('explain unknown', [MODEL, '--explain=memories', '-o', '%s/m.so'], 1, ["expects memory, costs or json, found 'memories'"], [], None),
    ('stats', [MODEL, '--stats', '-o', '%s/m.so'], 0, ['import', 'fuse', 'weights .* MB', 'peak memory'], ['m.h', 'm.so'], None),
    ('stats file', [MODEL, '--stats=%s/s.json', '-o', '%s/m.so'], 0, [], ['m.h', 'm.so', 's.json'], json_stats),
    ('stats unwritable', [MODEL, '--stats=%s/no/s.json', '-o', '%s/m.so'], 1, ['no/s.json'], None, None),
    ('save temps', [MODEL, '--save-temps=%s', '-o', '%s/m.so'], 0, [], None,
     lambda d: None if any(n.endswith('.o') for n in os.listdir(d)) else 'no object files kept'),
    ('save temps unwritable', [MODEL, '--save-temps=%s/no', '-o', '%s/m.so'], 1, ['/no'], [], None),
    ('verbose', [MODEL, '-v', '-o', '%s/m.so'], 0, ['took'], ['m.h', 'm.so'], None),
    ('dim', [MODEL, '--dim', 'batch=4', '--emit=graph'], 0, [r'f32\[4,'], [], None),
    ('dim unknown', [MODEL, '--dim', 'nosuch=4', '--emit=graph'], 1, ['nosuch', 'batch'], [], None),
    ('dim no number', [MODEL, '--dim', 'batch=four', '--emit=graph'], 1, ['four'], [], None),
    ('dim nearly', [MODEL, '--dim', 'bacth=4', '--emit=graph'], 1, ["found 'bacth'; did you mean 'batch'"], [], None),
    ('shape nearly', [MODEL, '--shape', 'imgae=4x1x8x8', '--emit=graph'], 1, ["did you mean 'image'"], [], None),
    ('option nearly', [MODEL, '--in8=static'], 1, ["unknown option '--in8=static'; did you mean '--int8'"], [], None),
    ('option of old', [MODEL, '--xyzzyx'], 1, [r"(?s)\A(?!.*did you mean).*unknown option '--xyzzyx'"], [], None),
    ('value nearly', [MODEL, '--attention=fusd'], 1, ["expects fused or plain, found 'fusd'; did you mean 'fused'"], [], None),
    ('option of another command', ['quantize', MODEL, '--fp16'], 1, ["'--fp16' is not one of 'cytoc quantize'"], [], None),
    ('help in short', ['-h'], 0, ['usage: cytoc MODEL', 'cytoc quantize MODEL', '--int8-skip'], [], None),
    ('help of quantize', ['quantize', '-h'], 0, [r'(?s)\Ausage: cytoc quantize(?!.*--fp16).*--calibrate'], [], None),
    ('no more options', ['--', '-x.onnx'], 1, [r'-x\.onnx.*No such file'], [], None),
    ('value of a flag', [MODEL, '--fp16=1'], 1, ["'--fp16=1' takes no value"], [], None),
    ('shape wrong rank', [MODEL, '--shape', 'image=1x8', '--emit=graph'], 1, ['image', '1x8|rank|dimension'], [], None),
    ('target v3', [MODEL, '--target=x86-64-v3', '--emit=asm', '-o', '%s/m.s'], 0, [], ['m.s'], has('m.s', '%ymm')),
    ('target v4', [MODEL, '--target=x86-64-v4', '--emit=asm', '-o', '%s/m.s'], 0, [], ['m.s'], has('m.s', '%zmm')),
    ('target znver3', [MODEL, '--target', 'znver3', '-o', '%s/m.so'], 0, [], ['m.h', 'm.so'], None),
    ('target triple', [MODEL, '--target=x86_64-linux-gnu', '-o', '%s/m.so'], 0, [], ['m.h', 'm.so'], None),
    ('target of another architecture', [MODEL, '--target=riscv64-linux-gnu', '-o', '%s/m.so'], 1, ['riscv64', 'not supported'], [], None),
    ('target unknown name', [MODEL, '--target=znver33', '-o', '%s/m.so'], 1, ["unknown target 'znver33'.*did you mean 'znver3'"], [], None),
    *(('target %s' % t, [MODEL, '--target=' + t, '-o', '%s/m.so'], 1, ["target '%s': only Linux with glibc or musl.*expected native" % t], [], None)
      for t in ('aarch64-linux-android', 'x86_64-linux-ohos', 'x86_64-linux-banana', 'aarch64-linux-android21', 'x86_64-apple-darwin',
                'arm64-apple-macos', 'macos', 'x86_64-unknown-freebsd', 'x86_64-', 'x86_64-linux-gnu-x', 'arm64-windows')),
    *(('target %s' % t, [MODEL, '--target=' + t, '--emit=ll', '-o', '%s/m.ll'], 0, [], ['m.ll'], has('m.ll', 'target triple = "' + triple))
      for t, triple in (('amd64', 'x86_64'), ('x64', 'x86_64'), ('x86_64', 'x86_64'), ('x86_64-pc-linux-gnu', 'x86_64'),
                        ('amd64-linux', 'x86_64.*linux'), ('x86_64-linux-musl', 'x86_64.*linux'), *ARM64)),
    ('target unknown', [MODEL, '--target=z80', '-o', '%s/m.so'], 1, ['z80', 'x86-64-v3'], [], None),
    *ARM_ROWS,
    ('level unknown', [MODEL, '-O7', '-o', '%s/m.so'], 1, ['-O', '7'], [], None),
    ('no value', [MODEL, '-o'], 1, ["'-o' needs a value"], [], None),
    ('no model', [], 1, ['no model'], [], None),
]


class Folder:
    """An empty folder of outputs and one of temporary files, which must be empty in the end."""

    def __init__(self, args, name):
        self.root = os.path.join(args.build, 'cli', re.sub(r'\W', '_', name))
        shutil.rmtree(self.root, ignore_errors=True)
        self.out, self.tmp = os.path.join(self.root, 'out'), os.path.join(self.root, 'tmp')
        for folder in (self.out, self.tmp):
            os.makedirs(folder)
        self.env = dict(os.environ, TMPDIR=self.tmp)

    def done(self, why):
        left = os.listdir(self.tmp)
        shutil.rmtree(self.root, ignore_errors=True)
        return why or ('temporary files left: ' + ' '.join(left) if left else None)


def judge(folder, result, want_code, expressions, files, check):
    code, out, err = result
    if code != want_code:
        return 'exit code %d, not %d: %s' % (code, want_code, lib.reason(err, code))
    for expression in expressions:
        if not re.search(expression, out + err):
            return "nothing like '%s' in: %.200s" % (expression, (out + err).strip().replace('\n', ' / '))
    found = sorted(os.listdir(folder.out))
    if files is not None and found != files:
        return 'files %s, not %s' % (' '.join(found) or '(none)', ' '.join(files) or '(none)')
    return check(folder.out) if check else None


def table(args, suite):
    for name, arguments, code, expressions, files, check in ROWS:
        if args.wanted('cli ' + name):
            folder = Folder(args, name)
            command = [args.cytoc] + [a.replace('%s', folder.out) for a in arguments]
            result = lib.run(command, env=folder.env, cwd=folder.root)
            suite.result('cli ' + name, folder.done(judge(folder, result, code, expressions, files, check)))


def text_graph(folder, args):
    """What --emit=graph wrote is a model, too; passes by name run on it."""
    path = os.path.join(folder.out, 'g.txt')
    code, _, err = lib.run([args.cytoc, MODEL, '-O0', '--emit=graph', '-o', path], env=folder.env)
    if code:
        return lib.reason(err, code)
    code, out, err = lib.run([args.cytoc, path, '--passes=fold,cse'], env=folder.env)
    if code or 'graph' not in out:
        return lib.reason(err, code)
    code, _, err = lib.run([args.cytoc, path, '-o', os.path.join(folder.out, 'g.so')], env=folder.env)
    return lib.reason(err, code) if code else None


def same_bytes(folder, args):
    """Equal input gives equal bytes, whatever the number of processes."""
    for kind in ('so', 'a', 'o'):
        data = []
        for jobs in ('1', '2', '5', '1'):
            path = os.path.join(folder.out, 'm.' + kind)
            code, _, err = lib.run([args.cytoc, MODEL, '-o', path, '-j', jobs], env=folder.env)
            if code:
                return lib.reason(err, code)
            with open(path, 'rb') as f:
                data.append(f.read())
        if any(d != data[0] for d in data):
            return 'two compilations to .%s differ' % kind
    return None


def with_commas(folder):
    """What sets a locale that writes numbers with decimal commas; nothing where none can be made."""
    path = os.path.join(folder.root, 'locales')
    os.makedirs(path)
    make = ['localedef', '-i', 'de_DE', '-f', 'UTF-8', os.path.join(path, 'de_DE.UTF-8')]
    if not shutil.which('localedef') or lib.run(make)[0] > 1:
        return {}
    return {'LOCPATH': path, 'LC_ALL': 'de_DE.UTF-8'}


def same_bytes_anywhere(folder, args):
    """.. whatever the surroundings of the process: locale, time zone, addresses, folders, rights, memory, environment."""
    deep = os.path.join(folder.out, *['folder'] * 30)
    os.makedirs(deep)
    bare, limit = {'TMPDIR': folder.tmp}, resource.getrlimit(resource.RLIMIT_STACK)[1]
    much = {'FILLING%d' % k: 'x' * 100000 for k in range(9)}
    other_memory = {'MALLOC_ARENA_MAX': '1', 'MALLOC_MMAP_THRESHOLD_': '4096'}
    ways = {'once more': {}, 'decimal commas': {'env': with_commas(folder)},
            'another time zone': {'env': {'TZ': 'Pacific/Kiritimati'}},
            'no rights of others': {'preexec_fn': lambda: os.umask(0o77)},
            'another folder': {'cwd': '/'}, 'a path from there': {'cwd': folder.out, 'output': 'm.so'},
            'a long path': {'output': os.path.join(deep, 'm.so')}, 'many processes': {'more': ['-j', '7']},
            'dirty memory': {'env': {'MALLOC_PERTURB_': '165'}}, 'other memory': {'env': other_memory},
            'no environment': {'all': bare}, 'a large environment': {'env': much},
            'another stack': {'preexec_fn': lambda: resource.setrlimit(resource.RLIMIT_STACK, (64 << 20, limit))}}
    if shutil.which('setarch') and lib.run(['setarch', '-R', 'true'])[0] == 0:
        ways['known addresses'] = {'before': ['setarch', '-R']}
    for options in ([], ['--int8']):
        first = None
        for way, how in ways.items():
            output = how.get('output', os.path.join(folder.out, 'm.so'))
            command = how.get('before', []) + [args.cytoc, MODEL, '-o', output] + options + how.get('more', [])
            env = how.get('all') or dict(folder.env, **how.get('env', {}))
            code, _, err = lib.run(command, env=env, cwd=how.get('cwd', folder.root), preexec_fn=how.get('preexec_fn'))
            if code:
                return '%s: %s' % (way, lib.reason(err, code))
            path = os.path.join(folder.out, output)
            data = [open(path[:-2] + end, 'rb').read() for end in ('so', 'h')]
            first = first or data
            if data != first:
                return 'other bytes with %s' % way
    return None


def profile(folder, args):
    """cyto-run --profile has a row for every launch of a library compiled for it, and a message for any other. Floors are
    for the sizes that --explain assumes; of others they are in parentheses. The first run, which is cold, is told apart."""
    outputs = []
    for options, batch in ((['--profile'], 3), ([], 3), (['--profile'], 1)):
        path = os.path.join(folder.out, 'm.so')
        code, _, err = lib.run([args.cytoc, MODEL, '-o', path] + options, env=folder.env)
        if code:
            return lib.reason(err, code)
        run = [os.path.join(args.build, 'cyto-run'), path, '--random', '1', '--dim', 'batch=%d' % batch, '--repeat', '4', '--threads', '1',
               '--profile']
        outputs.append(lib.run(run, env=folder.env))
    code, out, err = outputs[0]
    rows = [line.split() for line in out.splitlines() if re.match(r' +4 +\d', line)]
    if code or len(rows) < 4 or 'all launches of a run' not in out or not re.search('conv .*conv add max', out):
        return 'no table: %s' % (lib.reason(err, code) if code else out)
    parts, whole = [float(row[1]) for row in rows[:-1]], float(rows[-1][1])
    if min(parts) <= 0 or abs(sum(parts) - whole) > 0.02 * whole + 0.1:
        return 'the times of the launches are not those of a run: %s, %g' % (parts, whole)
    if abs(sum(float(row[3]) for row in rows[:-1]) - float(rows[-1][3])) > 0.02 * float(rows[-1][3]) + 0.1 or \
            abs(sum(float(row[2]) for row in rows[:-1]) - 100) > 0.5:
        return 'the first run, or the shares: %s' % out
    code, out, err = lib.run(
        [os.path.join(args.build, 'cyto-run'), path, '--random', '1', '--dim', 'batch=1', '--profile'], env=folder.env)
    if code or 'all launches of the first run, which is cold' not in out:
        return 'a single run: %s' % (out + err)
    code, out, err = outputs[0]
    if outputs[1][0] != 1 or 'compile it by cytoc --profile' not in outputs[1][2]:
        return 'without --profile: exit code %d: %s' % outputs[1][::2]
    assumed = [line.split() for line in outputs[2][1].splitlines() if re.match(r' +4 +\d', line)]
    if any(not re.match(r'\([\d.]+\)$', row[4]) or row[5] != '-' for row in rows) or '(floors) are for batch=1' not in out:
        return 'floors at other sizes: %s' % out
    if len(assumed) != len(rows) or not all(float(row[5]) > 0 for row in assumed) or '(floors)' in outputs[2][1]:
        return 'no floors: %s' % outputs[2][1]
    return None


def floors(folder, args):
    """--explain's floors count the operations that algorithms have left to do: Winograd's a quarter of those that the table
    names; two integers at a time then do an eighth."""
    path = os.path.join(folder.out, 'g.txt')
    for dtypes, options, algorithm, times in ((('f32', 'f32', 'f32'), ['--fast-algorithms=off'], 'conv direct', 1),
                                              (('f32', 'f32', 'f32'), ['--fast-algorithms=auto'], 'conv winograd', 4),
                                              (('u8', 'i8', 'i32'), [], 'conv int8 winograd', 8)):
        with open(path, 'w') as f:
            f.write('graph @g(%%x: %s[1,64,56,56]) {\n  @w = const %s[64,64,3,3] data(7)\n  %%c = conv %%x, @w {strides=[1,1], '
                    'pads=[1,1,1,1], dilations=[1,1], group=1} : %s[1,64,56,56]\n  return %%c\n}\n' % dtypes)
        code, out, err = lib.run([args.cytoc, path, '--target=znver5', '--explain', '-o', os.path.join(folder.out, 'g.so')] +
                                 options, env=folder.env)
        if code:
            return lib.reason(err, code)
        peak = re.search(r'one core: ([\d.]+) GHz, (\d+) flop', out)
        row = re.search(algorithm + r'.* ([\d.]+) +[\d.]+ +([\d.]+) fma', out)
        if not row:
            return 'no kernel with %s, or not by its operations: %s' % (algorithm, out)
        found = float(row[1]) * 1e3 / (float(row[2]) * float(peak[1]) * float(peak[2]))
        if abs(found / times - 1) > 0.02:
            return '%s: the floor is that of 1/%.2f of the operations, not 1/%d' % (algorithm, found, times)
    return None


def lines(folder, args):
    """Winograd's tiles are four outputs high and wide: pictures one output high, as lines of text end as, gain nothing."""
    path = os.path.join(folder.out, 'g.txt')
    for height, algorithm in ((1, 'conv direct'), (8, 'conv winograd')):
        with open(path, 'w') as f:
            f.write('sym w\ngraph @g(%%x: f32[1,512,%d,w]) {\n  @w = const f32[64,512,3,3] data(7)\n  %%c = conv %%x, @w {strides=[1,1], '
                    'pads=[1,1,1,1], dilations=[1,1], group=1} : f32[1,64,%d,w]\n  return %%c\n}\n' % (height, height))
        code, out, err = lib.run([args.cytoc, path, '--target=x86-64-v3', '--fast-algorithms=auto', '--explain', '-o',
                                  os.path.join(folder.out, 'g.so')], env=folder.env)
        if code or algorithm not in out:
            return 'no %s at height %d: %s' % (algorithm, height, lib.reason(err, code) if code else out)
    return None


def values_model(path):
    """Strings, a map, a sequence of maps, an optional: in and out."""
    string, real = h.make_tensor_type_proto(onnx.TensorProto.STRING, ['n']), h.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
    row = h.make_map_type_proto(onnx.TensorProto.STRING, real)
    nodes = [h.make_node('StringNormalizer', ['words'], ['upper'], case_change_action='UPPER', stopwords=['stop']),
             h.make_node('DictVectorizer', ['row'], ['dense'], domain='ai.onnx.ml', string_vocabulary=['b', 'a']),
             h.make_node('ZipMap', ['dense'], ['rows'], domain='ai.onnx.ml', classlabels_int64s=[7, 8]),
             h.make_node('Identity', ['maybe'], ['same'])]
    inputs = [h.make_value_info('words', string), h.make_value_info('row', row),
              h.make_value_info('maybe', h.make_optional_type_proto(string))]
    outputs = [h.make_value_info('upper', string), h.make_value_info('dense', h.make_tensor_type_proto(onnx.TensorProto.FLOAT, [1, 2])),
               h.make_value_info('rows', h.make_sequence_type_proto(h.make_map_type_proto(onnx.TensorProto.INT64, real))),
               h.make_value_info('same', h.make_optional_type_proto(string))]
    graphs.save_model(path, nodes, inputs, outputs, opset=18, domains=[('ai.onnx.ml', 3)])


def known_values(folder, args):
    """Sequences and optional values that are known when compiling leave nothing to the runtime, at any level."""
    constants = [graphs.constant('one', np.int64(1)), graphs.constant('minus', np.int64(-1)), graphs.constant('true', np.bool_(True))]
    tensor = [graphs.port(n, np.float32, ['n', 2]) for n in 'xyz']
    sequence = h.make_tensor_sequence_value_info('held', onnx.TensorProto.FLOAT, None)
    more = h.make_tensor_sequence_value_info('more', onnx.TensorProto.FLOAT, None)
    body = h.make_graph([h.make_node('SequenceInsert', ['held', 'g'], ['more']), h.make_node('Identity', ['go'], ['on'])], 'body',
                        [graphs.port('i', np.int64, []), graphs.port('go', bool, []), sequence], [graphs.port('on', bool, []), more])
    nodes = [h.make_node('SequenceConstruct', ['x', 'y'], ['s']), h.make_node('SequenceInsert', ['s', 'x', 'one'], ['i']),
             h.make_node('SequenceErase', ['i', 'minus'], ['e']), h.make_node('SequenceAt', ['e', 'minus'], ['a']),
             h.make_node('SplitToSequence', ['a'], ['p'], axis=1), h.make_node('ConcatFromSequence', ['p'], ['c'], axis=1),
             h.make_node('Optional', ['c'], ['o']), h.make_node('OptionalHasElement', ['o'], ['has']),
             h.make_node('OptionalGetElement', ['o'], ['g']), h.make_node('SequenceLength', ['p'], ['count']),
             h.make_node('SequenceEmpty', [], ['none']), h.make_node('Loop', ['one', 'true', 'none'], ['filled'], body=body),
             h.make_node('SequenceAt', ['filled', 'minus'], ['b']),
             h.make_node('Cast', ['count'], ['f'], to=onnx.TensorProto.FLOAT), h.make_node('Mul', ['b', 'f'], ['z'])]
    model = graphs.save_model(os.path.join(folder.root, 'known.onnx'), nodes, tensor[:2], [tensor[2], graphs.port('has', bool, [])],
                              constants, opset=18)
    for level in ('-O0', '-O3'):
        code, out, err = lib.run([args.cytoc, model, level, '--emit=loops'], env=folder.env)
        if code or 'call ' in out or 'launch' not in out:
            return '%s: %s' % (level, lib.reason(err, code) if code else out)
    return None


GOOD_VALUES = {'words': '{"dtype":"string","shape":[3],"data":["a","stop","\\u00e9\\"\\\\"]}',
               'row': '{"map":[{"dtype":"string","shape":[2],"data":["a","x"]},{"dtype":"float","shape":[2],"data":[1.5,9]}]}',
               'maybe': '{"optional":{"dtype":"string","shape":[1],"data":["kept"]}}'}

# input, its JSON, a message: each replaces a good one.
BAD_VALUES = [('words', '{"dtype":"int64","shape":[1],"data":[1]}', 'expected string, found int64'),
              ('words', '{"dtype":"string","shape":[3],"data":["a"]}', "'data' has not as many elements"),
              ('words', '{"dtype":"string","shape":[1],"data":[1]}', 'an element that is none'),
              ('words', '{"sequence":[]}', 'value of type string'),
              ('row', '{"dtype":"string","shape":[1],"data":["a"]}', r'value of type map\(string,float32\)'),
              ('row', '{"map":[{"dtype":"string","shape":[2],"data":["a","b"]},{"dtype":"float","shape":[1],"data":[1]}]}',
               'lists of one length'),
              ('maybe', '{"optional":{"dtype":"nothing","shape":[],"data":[]}}', "known 'dtype'"),
              ('maybe', '{"optional":', 'no JSON')]


def value_arguments(folder, inputs):
    """What makes cyto-run read these inputs."""
    for name, text in inputs.items():
        with open(os.path.join(folder.root, name + '.json'), 'w', encoding='utf-8') as f:
            f.write(text)
    return ['--input=%s=%s' % (name, os.path.join(folder.root, name + '.json')) for name in inputs]


def values(folder, args):
    """Strings, maps, sequences and optional values as JSON, by cyto-run."""
    model, library = os.path.join(folder.root, 'values.onnx'), os.path.join(folder.root, 'values.so')
    values_model(model)
    code, _, err = lib.run([args.cytoc, model, '-o', library], env=folder.env)
    if code:
        return lib.reason(err, code)
    good = GOOD_VALUES

    def execute(inputs, *more):
        return lib.run([args.cyto_run, library, *more, *value_arguments(folder, inputs)], env=folder.env)

    code, out, err = execute(good, '--output-dir', folder.out, '--repeat', '2')
    if code:
        return lib.reason(err, code)
    want = {'out_0_upper.json': {'dtype': 'string', 'shape': [2], 'data': ['A', '\u00c9"\\']}, 'out_1_dense.npy': None,
            'out_2_rows.json': {'sequence': [{'map': [{'dtype': 'int64', 'shape': [2], 'data': [7, 8]},
                                                      {'dtype': 'float', 'shape': [2], 'data': [0, 1.5]}]}]},
            'out_3_same.json': json.loads(good['maybe'])}
    if sorted(os.listdir(folder.out)) != sorted(want):
        return 'files: ' + ' '.join(os.listdir(folder.out))
    for name, value in want.items():
        if value is not None and json.loads(read(folder.out, name)) != value:
            return '%s: %s' % (name, read(folder.out, name))
    code, out, err = execute(dict(good, maybe='{"optional":null}'))
    if code or not re.search(r"'same' optional\(string\) of 0", out):
        return 'the summary: %s' % (out + err)
    for name, text, message in BAD_VALUES:
        code, out, err = execute(dict(good, **{name: text}))
        if code != 1 or not re.search(message, err) or "'%s'" % name not in err:
            return '%s %s: exit code %d: %s' % (name, text, code, err)
    return None


# arrays of strings as NumPy writes them, and what is said of those that cannot be read
BAD_STRINGS = [(np.array(['a', 'b'], object), 'Python objects .*astype'), (np.array([1.5, 2]), 'expected string, found'),
               (np.array(['2020-01-01'], 'datetime64[D]'), "element type '<M8")]


def strings(folder, args):
    """Strings in .npy: of both kinds, swapped and in Fortran order, empty, with characters of any length; and back."""
    string = h.make_tensor_type_proto(onnx.TensorProto.STRING, ['n', 'm'])
    model, library = os.path.join(folder.root, 's.onnx'), os.path.join(folder.root, 's.so')
    graphs.save_model(model, [h.make_node('Identity', ['x'], ['y'])], [h.make_value_info('x', string)], [h.make_value_info('y', string)],
                      opset=18)
    code, _, err = lib.run([args.cytoc, model, '-o', library], env=folder.env)
    if code:
        return lib.reason(err, code)

    def execute(array, *more):
        path = os.path.join(folder.root, 'x.npy')
        np.save(path, array, allow_pickle=True)
        return lib.run([args.cyto_run, library, '--input', 'x=' + path, '--output-dir', folder.out, *more], env=folder.env)

    words = np.array([['a', '', 'b c'], ['\u00e9\u20ac', '\U0001f600x', 'longest of all']])
    plain = np.array([[b'a', b''], [b'b\0c', b'\xc3\xa9']])
    for array in (words, words.astype(words.dtype.newbyteorder('>')), np.asfortranarray(words), np.array([['', '']]),
                  np.empty((0, 3), 'U4'), plain, np.array([[b'\xff', b'a']])):
        want = array if array.dtype.kind == 'U' else np.char.decode(array, 'utf-8') if b'\xff' not in array else array
        code, _, err = execute(array, '--output-format', 'npy')
        got = None if code else np.load(os.path.join(folder.out, 'out_0_y.npy'))
        if code or got.dtype.kind != want.dtype.kind or got.shape != want.shape or (got != want).any():
            return '%r: %s' % (array, lib.reason(err, code) if code else repr(got))
    code, _, err = execute(words)
    if code or json.loads(read(folder.out, 'out_0_y.json'))['data'] != words.ravel().tolist():
        return 'as JSON: ' + lib.reason(err, code)
    for array, message in BAD_STRINGS:
        code, _, err = execute(array)
        if code != 1 or not re.search(message, err):
            return '%r: exit code %d: %s' % (array, code, err)
    whole = os.path.join(folder.root, 'x.npy')
    np.save(whole, words)
    with open(whole, 'r+b') as f:
        f.truncate(os.path.getsize(whole) - 1)
    code, _, err = lib.run([args.cyto_run, library, '--input', 'x=' + whole], env=folder.env)
    if code != 1 or 'shorter' not in err:
        return 'cut off: exit code %d: %s' % (code, err)
    np.save(whole, np.array([[0xd800, 0x110000]], '<u4').view('<U1'))
    code, _, err = lib.run([args.cyto_run, library, '--input', 'x=' + whole], env=folder.env)
    return None if code == 1 and 'Unicode' in err else 'no character: exit code %d: %s' % (code, err)


def no_linker(folder, args):
    path = os.path.join(folder.out, 'm.so')
    code, _, err = lib.run([args.cytoc, MODEL, '-o', path], env=dict(folder.env, PATH=folder.tmp))
    if code != 1 or not re.search("'ld' was not found.*binutils", err):
        return 'exit code %d: %s' % (code, lib.reason(err, code))
    return 'files: ' + ' '.join(os.listdir(folder.out)) if os.listdir(folder.out) else None


def no_temporary_folder(folder, args):
    code, _, err = lib.run([args.cytoc, MODEL, '-o', os.path.join(folder.out, 'm.so')],
                           env=dict(folder.env, TMPDIR=os.path.join(folder.root, 'nosuch')))
    return None if code == 1 and 'nosuch' in err else 'exit code %d: %s' % (code, lib.reason(err, code))


def left_over(folder):
    """What a compilation left: temporaries, half outputs, and processes, which are known by their TMPDIR."""
    mark = ('TMPDIR=' + folder.tmp).encode()
    left = os.listdir(folder.tmp) + [n for n in os.listdir(folder.out) if n not in ('m.so', 'm.h')]
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open('/proc/%s/environ' % pid, 'rb') as f:
                if mark in f.read().split(b'\0'):
                    left.append('process ' + pid)
        except OSError:
            pass  # ended, or not ours
    return left


def start(folder, args):
    return subprocess.Popen([args.cytoc, MODEL, '-o', os.path.join(folder.out, 'm.so'), '-j4'], env=folder.env,
                            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def interrupted(folder, args):
    """Whenever a signal comes, nothing is left: neither half an output nor temporaries nor processes."""
    began = time.monotonic()
    start(folder, args).communicate()
    whole = time.monotonic() - began
    for step in range(16):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            p = start(folder, args)
            time.sleep(whole * (step + 0.5) / 16)
            p.send_signal(number)
            p.communicate()
            left = left_over(folder)
            if left or p.returncode not in (0, -number):
                return '%s after %d/16 of %.2f s: exit code %d, left: %s' % (number.name, step, whole, p.returncode, ' '.join(left))
    return None


def child_killed(folder, args):
    """A child that dies is an error with a text, whichever it is, and the others end too."""
    killed = 0
    for _ in range(20):
        p = start(folder, args)
        child = None
        while child is None and p.poll() is None:
            try:
                child = next(iter(read('/proc/%d/task/%d/children' % (p.pid, p.pid)).split()), None)
                if child:
                    os.kill(int(child), signal.SIGKILL)
            except OSError:
                child = None  # it ended first
        _, err = p.communicate()
        left = left_over(folder)
        if left or (p.returncode, bool(re.search('error: .*ended by signal 9', err))) not in ((0, False), (1, True)):
            return 'exit code %d, %s; left: %s' % (p.returncode, err, ' '.join(left))
        killed += p.returncode == 1
        if killed == 5:
            return None
    return 'a child was killed in %d of 20 compilations only' % killed


def full_device(folder, args):
    """/dev/full takes no byte; the text outputs go straight there."""
    if not os.path.exists('/dev/full'):
        return None
    with open('/dev/full', 'w') as full:
        p = subprocess.run([args.cytoc, MODEL, '--emit=graph'], stdout=full, stderr=subprocess.PIPE, env=folder.env)
    return None if p.returncode == 1 and p.stderr else 'exit code %d, no diagnostic' % p.returncode


def to_pipe(folder, args):
    """Pipes and devices are written to, not replaced: a library through a pipe equals one in a file, without a header."""
    pipe, path, got = (os.path.join(folder.out, name) for name in ('m.so', 'file/m.so', 'file/got'))
    os.makedirs(os.path.dirname(path))
    os.mkfifo(pipe)
    with open(got, 'wb') as f, subprocess.Popen(['cat', pipe], stdout=f) as cat:
        for output in (pipe, path):
            code, _, err = lib.run([args.cytoc, MODEL, '-o', output], env=folder.env)
            if code:
                cat.kill()
                return lib.reason(err, code)
    same = filecmp.cmp(got, path, shallow=False)
    left = sorted(os.listdir(folder.out))
    return None if same and stat.S_ISFIFO(os.stat(pipe).st_mode) and left == ['file', 'm.so'] else \
        'the same as in a file: %s; left: %s' % (same, ' '.join(left))


# Names of inputs: no C identifiers, words of C and C++, macros, and some that become one identifier.
ODD_NAMES = ['a b', 'a_b', 'a-b', 'a_b_2', '0x', '\u00e9', 'a\nb', '*/ x', '/*', 'x"y', '\\', 'a\\', '??/', '%s', '_', 'none', 'long' * 60, 'int',
             'asm', 'typeof', '_Bool', '_Generic', 'restrict', 'class', 'co_await', 'decltype', 'static_cast', 'typeid', 'wchar_t', 'xor_eq',
             'not', 'char8_t', 'noexcept', '__LINE__', '__int128', '__x', 'linux', 'NULL', 'errno', 'int64_t', 'INT64_MAX', 'INT32_MIN']


def header_of_odd_names(folder, args):
    """The header of a model whose inputs have any names, for C and C++, without a warning."""
    cc = os.environ.get('CC', 'cc').split()
    users = [cc + ['-x', 'c', '-std=' + standard] for standard in ('c11', 'gnu2x')]
    if lib.run(['c++', '--version'])[0] == 0:
        users += [['c++', '-x', 'c++', '-Wno-long-long', '-std=' + standard] for standard in ('c++98', 'c++11', 'c++20')]
    for dims in ['batch', 'int'], [2, 3]:
        nodes = [h.make_node('Sum', ODD_NAMES, ['y y'])]
        model = graphs.save_model(os.path.join(folder.root, 'm.onnx'), nodes, [graphs.port(n, np.float32, dims) for n in ODD_NAMES],
                                  [graphs.port('y y', np.float32, dims)])
        header, user = os.path.join(folder.out, 'm.h'), os.path.join(folder.root, 'user.c')
        code, _, err = lib.run([args.cytoc, model, '-o', header], env=folder.env)
        if code:
            return lib.reason(err, code)
        with open(user, 'w', encoding='utf-8') as f:
            f.write('#include <errno.h>\n#include <stdio.h>\n#include "%s"\nint main(void) { m_inputs in = {0};\n'
                    'return in.a_b != in.a_b_2; }\n' % header)
        for command in users:
            code, _, err = lib.run(command + ['-pedantic', '-Wall', '-Wextra', '-Werror', '-Wno-missing-field-initializers', '-fsyntax-only', user])
            if code:
                return '%s: %s' % (' '.join(command), lib.reason(err, code))
    return None


def zipped(*names):
    data = io.BytesIO()
    with zipfile.ZipFile(data, 'w') as z:
        for name in names:
            z.writestr(name, b'x' * 100)
    return data.getvalue()


GRAPH_DEF = b'\n' + bytes([34]) + b'\n\1x\x12\x0bPlaceholder*\x0f\n\5dtype\x12\2\x30\1' + b'z' * 3
HEADER = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
FOREIGN = [('torch', zipped('m/data.pkl', 'm/data/0'), 'PyTorch.*torch.onnx.export'),
           ('torch of old', b'\x80\2\x8a\n\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.rest', 'PyTorch.*torch.onnx.export'),
           ('torchscript', zipped('m/data.pkl', 'm/code/__torch__.py', 'm/constants.pkl'), 'TorchScript.*torch.onnx.export'),
           ('torch.export', zipped('m/archive_format', 'm/data/weights/a'), 'torch.export.*torch.onnx.export.torch.export.load'),
           ('keras', zipped('metadata.json', 'config.json', 'model.weights.h5'), "Keras.*format='onnx'"),
           ('h5', b'\x89HDF\r\n\x1a\n' + bytes(100), "HDF5.*Keras.*format='onnx'"), ('tflite', b'\x1c\0\0\0TFL3' + bytes(60), 'Lite.*--tflite'),
           ('graph of TensorFlow', GRAPH_DEF, 'TensorFlow graph.*--graphdef'),
           ('SavedModel', b'\x08\1\x12' + bytes([len(GRAPH_DEF)]) + GRAPH_DEF, 'SavedModel.*--saved-model'),
           ('safetensors', len(HEADER).to_bytes(8, 'little') + HEADER + bytes(4), 'safetensors.*no graph.*export'),
           ('gguf', b'GGUF\3\0\0\0' + bytes(50), 'GGUF.*no graph.*export'), ('ort', b'\x1c\0\0\0ORTM' + bytes(60), "ONNX Runtime's own"),
           ('npz', zipped('x.npy'), 'NumPy'), ('pickle', b'\x80\4\x95' + bytes(50), 'pickle.*skl2onnx'),
           ('library', b'\x7fELF' + bytes(60), 'cyto-run'), ('lfs', b'version https://git-lfs\noid sha256:00\n', 'git lfs pull'),
           ('page', b'\n <!DOCTYPE html><html></html>', 'HTML.*download'), ('openvino', b'<?xml version="1.0"?>\n<net name="m">', 'OpenVINO')]


def foreign_files(folder, args):
    """Files of other frameworks are known by what is in them, whatever they are called, and the way to ONNX is named."""
    path = os.path.join(folder.root, 'm.onnx')
    for name, data, expression in FOREIGN:
        with open(path, 'wb') as f:
            f.write(data)
        code, _, err = lib.run([args.cytoc, path, '-o', os.path.join(folder.out, 'm.so')], env=folder.env)
        if code != 1 or len(err.splitlines()) != 1 or not re.search(r'm\.onnx: error: not an ONNX model: .*' + expression, err):
            return '%s: exit code %d: %s' % (name, code, err)
    os.makedirs(os.path.join(folder.root, 'saved'))
    shutil.copy(path, os.path.join(folder.root, 'saved', 'saved_model.pb'))
    code, _, err = lib.run([args.cytoc, os.path.join(folder.root, 'saved')], env=folder.env)
    if code != 1 or not re.search('SavedModel.*--saved-model', err):
        return 'a folder: exit code %d: %s' % (code, err)
    code, _, err = lib.run([args.cyto_run, MODEL, '--random', '1'], env=folder.env)
    return None if code == 1 and re.search(r'an ONNX model.*cytoc \S*digits\.onnx -o', err) else 'cyto-run: exit code %d: %s' % (code, err)


def on_terminal(command, env, width=100):
    """(exit code, what a terminal that is stdout and stderr gets) of a command."""
    pid, fd = pty.fork()
    if pid == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack('HHHH', 24, width, 0, 0))
        os.execve(command[0], command, env)
    out = b''
    while True:
        try:
            data = os.read(fd, 65536)
        except OSError:
            break
        if not data:
            break
        out += data
    os.close(fd)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), out.decode('utf-8', 'replace')


def terminal(folder, args):
    """Progress and colours are for terminals: kernels done of all and the time left after a second, nothing left in the end; none of it
    where stderr is none, no colours with NO_COLOR, neither on a dumb terminal."""
    random, widths, nodes, weights = np.random.default_rng(1), [8 + k * 7 % 89 for k in range(72)], [], []
    for k, (n, m) in enumerate(zip([3] + widths, widths)):
        weights.append(graphs.constant('w%d' % k, random.standard_normal((m, n, 3, 3)).astype(np.float32) / 8))
        nodes += [h.make_node('Conv', ['x' if k == 0 else 'r%d' % k, 'w%d' % k], ['c%d' % k], pads=[1, 1, 1, 1]),
                  h.make_node('Relu', ['c%d' % k], ['r%d' % (k + 1)])]
    model = graphs.save_model(os.path.join(folder.root, 'm.onnx'), nodes, [graphs.port('x', np.float32, [1, 3, 17, 19])],
                              [graphs.port('r72', np.float32, None)], weights)
    np.savez(os.path.join(folder.root, 's.npz'), x=random.standard_normal((200, 3, 17, 19)).astype(np.float32))
    env = {k: v for k, v in folder.env.items() if k != 'NO_COLOR'}
    env['TERM'] = 'xterm'
    compile_model = [args.cytoc, model, '-o', os.path.join(folder.out, 'm.so'), '-j1']
    code, out = on_terminal(compile_model, env)
    kernels = re.findall(r'\r\x1b\[K\x1b\[36mm\.onnx: kernels (\d+) of (\d+), \d+ s(?:, about \d+ s left)?\x1b\[0m\r', out)
    if code or len({k for k, _ in kernels}) < 2 or len({n for _, n in kernels}) != 1 or 's left' not in out or \
            not out.endswith('\r\x1b[K') or '\n' in out or sorted(kernels, key=lambda k: int(k[0])) != kernels:
        return 'no progress: exit code %d, %r' % (code, out[:500])
    code, out = on_terminal(compile_model, env, width=30)
    longest = max(len(re.sub(r'\x1b\[\d*[mK]', '', part)) for part in out.split('\r'))
    if code or not 20 < longest < 30:
        return 'lines of %d characters in a terminal of 30' % longest
    code, out = on_terminal(compile_model, dict(env, NO_COLOR='1'))
    if code or ': kernels ' not in out or re.search(r'\x1b\[\d*m', out):
        return 'with NO_COLOR: exit code %d, %r' % (code, out[:300])
    code, out = on_terminal(compile_model, dict(env, TERM='dumb'))
    if code or out:
        return 'a dumb terminal: exit code %d, %r' % (code, out[:300])
    code, out, err = lib.run(compile_model, env=env)
    if code or out or err:
        return 'no terminal: exit code %d, %r' % (code, out + err)
    code, out = on_terminal(compile_model + ['--explain'], env)
    if code or not re.search(r'\r\x1b\[Ktarget .*\r\n', out):
        return 'a table on the terminal: exit code %d, %r' % (code, out[-300:])
    code, out = on_terminal(compile_model + ['--int8=static', '--int8-min-snr=off', '--calibrate=' + os.path.join(folder.root, 's.npz')], env)
    if code or not re.search(r'm\.onnx: (calibrating|counting|measuring) \d+ of 200, ', out):
        return 'quantisation: exit code %d, %r' % (code, out[:500])
    for more, wanted in (({}, r'\A\x1b\[1mcytoc:\x1b\[0m \x1b\[1;31merror:\x1b\[0m unknown option'), ({'NO_COLOR': '1'}, r'\Acytoc: error: unknown option'),
                         ({'NO_COLOR': ''}, r'\A\x1b\[1mcytoc'), ({'TERM': 'dumb'}, r'\Acytoc: error: ')):
        code, out = on_terminal([args.cytoc, '--xyzzyx'], dict(env, **more))
        if code != 1 or not re.search(wanted, out):
            return 'an error with %s: exit code %d, %r' % (more, code, out)
    code, out = on_terminal([args.cytoc, os.path.join(folder.root, 'no.onnx')], env)
    return None if code == 1 and '\x1b[1;31merror:\x1b[0m' in out else 'an error of a file: exit code %d, %r' % (code, out)


COMPLETIONS = [('cytoc --int8=', '--int8=', ['dynamic', 'static']), ('cytoc --att', '--att', ['--attention']), ('cytoc quan', 'quan', ['quantize']),
               ('cytoc --attention ', '', ['fused', 'plain']), ('cytoc m', 'm', ['m.onnx']), ('cytoc --calibration=m', 'm', ['minmax', 'mse'])]
COMPLETE = """source "$1"; words=($2); [[ $2 == *' ' ]] && words+=('')
COMP_WORDS=(); for w in "${words[@]}"; do
  if [[ $w == --*=* ]]; then COMP_WORDS+=("${w%%=*}" "="); [[ ${w#*=} ]] && COMP_WORDS+=("${w#*=}"); else COMP_WORDS+=("$w"); fi; done
COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _cytoc; printf '%s\\n' "${COMPREPLY[@]}" | sort
"""

# What zsh offers, in a terminal: every list of matches that its completion functions add is written to $FOUND, and a dot behind the last.
ZSHRC = r"""
fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D
compadd() {
  local -a found
  if [[ ${@[1,(i)(-|--)]} != *-(O|A|D)\ * ]]; then
    builtin compadd -A found "$@"
    (( $#found )) && print -rl -- "${found[@]}" >>$FOUND
  fi
  builtin compadd "$@"
}
complete-and-tell() { zle complete-word; print -r -- . >>$FOUND }
zle -N complete-and-tell
bindkey '^I' complete-and-tell
"""


def bash_offers(folder, script, line):
    code, out, err = lib.run(['bash', '-c', COMPLETE, 'x', script, line], env=folder.env, cwd=folder.root)
    return out.split() if not code else err


def fish_offers(folder, script, line):
    code, out, err = lib.run(['fish', '--no-config', '-c', 'source %s; complete -C %s' % (script, shlex.quote(line))], cwd=folder.root,
                             env=dict(folder.env, HOME=folder.root))
    if code or err:
        return err
    return sorted(word.split('\t')[0].rsplit('=', 1)[-1] for word in out.splitlines())


def zsh_offers(folder, script, line):
    place = os.path.join(folder.root, 'zsh')
    os.makedirs(place, exist_ok=True)
    shutil.copy(script, os.path.join(place, '_' + line.split()[0]))
    open(os.path.join(place, 'm.onnx'), 'w').close()
    found = os.path.join(place, 'found')
    open(found, 'w').close()
    with open(os.path.join(place, '.zshrc'), 'w', encoding='utf-8') as f:
        f.write(ZSHRC)
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(place)
        os.execvpe('zsh', ['zsh', '-d', '-i'], dict(folder.env, ZDOTDIR=place, HOME=place, FOUND=found, TERM='dumb'))
    os.write(terminal, line.encode() + b'\t')
    until, words = time.monotonic() + 30, []
    while time.monotonic() < until and words[-1:] != ['.']:
        if select.select([terminal], [], [], 0.05)[0]:
            os.read(terminal, 65536)
        with open(found, encoding='utf-8') as f:
            words = f.read().split()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(terminal)
    return sorted(words[:-1])


def generated_texts(folder, args):
    """Man pages and completion, of every option that --help shows: roff without a warning, scripts that their shells read, completions
    that are right. `make install` puts them in place, `make uninstall` leaves nothing."""
    open(os.path.join(folder.root, 'm.onnx'), 'w').close()
    for tool in 'cytoc', 'cyto-run', 'cyto-bench', 'cyto-compare', 'cyto-tune':
        program, files = os.path.join(args.build, tool), {}
        code, out, err = lib.run([program, '-h'], env=folder.env)
        shown = set(re.findall(r'^  (?:-\w, )?(-[-\w]+)', out, re.M))
        version = lib.run([program, '--version'], env=folder.env)
        if code or '--help' not in shown or version[0] or not re.match(tool + r' \d', version[1]):
            return '%s -h, --version: %s' % (tool, err + version[2])
        for what in 'man', 'bash', 'zsh', 'fish':
            code, out, err = lib.run([program, '--generate=' + what], env=folder.env)
            files[what] = os.path.join(folder.root, tool + '.' + what)
            with open(files[what], 'w', encoding='utf-8') as f:
                f.write(out)
            plain = out.replace('\\-', '-')
            missing = [o for o in shown if not re.search(r'(?<![-\w])%s(?![-\w])' % re.escape(o), plain) and not
                       (what == 'fish' and re.search(r' -[ls] %s ' % re.escape(o.lstrip('-')), plain))]
            if code or err or missing:
                return '%s --generate=%s: exit code %d, without %s %s' % (tool, what, code, ' '.join(missing), err)
        checks = {'man': ['groff', '-man', '-Tutf8', '-ww', '-z'], 'bash': ['bash', '-n'], 'zsh': ['zsh', '-n'], 'fish': ['fish', '-n']}
        for what, command in checks.items():
            code, out, err = lib.run(command + [files[what]], env=folder.env) if shutil.which(command[0]) else (0, '', '')
            if code or out or err:
                return '%s: %s' % (' '.join(command + [files[what]]), out + err)
    for shell, offers in (('bash', bash_offers), ('zsh', zsh_offers), ('fish', fish_offers)):
        for line, _, wanted in COMPLETIONS if shutil.which(shell) else ():
            offered = offers(folder, os.path.join(folder.root, 'cytoc.' + shell), line)
            if offered != wanted:
                return 'completion of %r by %s: %s, expected %s' % (line, shell, offered, wanted)
    if args.variant != 'release':
        return None
    for goal in 'install', 'uninstall':
        code, out, err = lib.run(['make', '-s', goal, 'PREFIX=/usr', 'DESTDIR=' + folder.out, 'B=' + os.path.relpath(args.build, lib.ROOT)],
                                 env=folder.env, cwd=lib.ROOT)
        if code:
            return 'make %s: %s' % (goal, out + err)
        found = {os.path.relpath(os.path.join(where, n), folder.out) for where, _, names in os.walk(folder.out) for n in names}
        wanted = {'usr/share/man/man1/cytoc.1', 'usr/share/bash-completion/completions/cyto-run', 'usr/share/zsh/site-functions/_cyto-bench',
                  'usr/share/fish/vendor_completions.d/cytoc.fish', 'usr/bin/cytoc', 'usr/include/cyto.h'}
        if (goal == 'install' and wanted - found) or (goal == 'uninstall' and found):
            return 'after make %s: %s' % (goal, ' '.join(sorted(wanted - found if goal == 'install' else found)))
    return None


def options_files(folder, args):
    """@FILE stands for the words in it: quotes, comments, files in files."""
    def write(name, text):
        with open(os.path.join(folder.root, name), 'w', encoding='utf-8') as f:
            f.write(text)
        return '@' + os.path.join(folder.root, name)
    inner = write('inner.txt', '--emit=graph # a comment\n')
    good = write('good.txt', "# for the test\n\n'%s' --dim\tbatch=7 %s --name \"a b\\\"c\" -O0" % (MODEL, inner))
    for words, wanted, expression in (([good], 0, r'f32\[7,1,8,8\]'), ([write('empty.txt', ''), MODEL, '--emit=graph'], 0, 'graph @digits'),
                                      (['@' + os.path.join(folder.root, 'no.txt')], 1, r"cannot read the options file '\S*no\.txt': No such file"),
                                      ([write('open.txt', "'a b")], 1, "a quote has no end .*open\\.txt"),
                                      ([write('loop.txt', '@' + os.path.join(folder.root, 'loop.txt'))], 1, 'name each other more than 8 deep'),
                                      ([write('zero.txt', 'a\0b')], 1, 'zero.txt. is no text'), ([write('bad.txt', '--nosuchoption')], 1, "unknown option '--nosuchoption'")):
        code, out, err = lib.run([args.cytoc, *words], env=folder.env, cwd=folder.root)
        if code != wanted or not re.search(expression, out + err):
            return '%s: exit code %d, %s' % (words[0], code, (out + err)[:300])
    code, out, err = lib.run([args.cyto_run, write('run.txt', '--frobnicate')], env=folder.env)
    return None if code == 1 and "unknown option '--frobnicate'" in err else 'cyto-run: ' + err


def missing_file(folder, args):
    """One file that is missing is one line, however many tensors lie in it; two are two."""
    weights = []
    for k in range(50):
        tensor = onnx.TensorProto(name='w%d' % k, data_type=onnx.TensorProto.FLOAT, dims=[4], data_location=onnx.TensorProto.EXTERNAL)
        for key, value in (('location', 'lost.bin' if k < 49 else 'other.bin'), ('offset', str(16 * k)), ('length', '16')):
            tensor.external_data.add(key=key, value=value)
        weights.append(tensor)
    nodes = [h.make_node('Add', ['x' if k == 0 else 'y%d' % k, 'w%d' % k], ['y%d' % (k + 1)]) for k in range(50)]
    model = graphs.save_model(os.path.join(folder.root, 'm.onnx'), nodes, [graphs.port('x', np.float32, [4])],
                              [graphs.port('y50', np.float32, [4])], weights)
    code, _, err = lib.run([args.cytoc, model, '-o', os.path.join(folder.out, 'm.so')], env=folder.env)
    lines = err.splitlines()
    names = [re.search(r'error: .*/(\w+\.bin).*No such file', line) for line in lines]
    return None if code == 1 and [n and n[1] for n in names] == ['lost.bin', 'other.bin'] else 'exit code %d: %s' % (code, err)


HEADER_USER = """#include <stdio.h>
#include "m.h"
#include "n.h"
int main(void) {
  float image[2 * 64] = {0}, probability[20];
  m_inputs in = {image};
  m_outputs out = {probability};
  m_sizes sizes = {2};
  m_options options = {1, 0};
  n_inputs in2 = {image};
  n_outputs out2 = {probability};
  n_sizes sizes2 = {2};
  struct cyrt_context *first = NULL, *second = NULL;
  int bad = m_create(&first, &options, NULL) || !first || m_create(&first, &options, NULL) != 1 || n_create(&second, NULL, NULL);
  for (int i = 0; i < 2 && !bad; i++)
    bad = m_run(&first, &in, &sizes, &out, NULL) || n_run(&second, &in2, &sizes2, &out2, NULL);
  cyto_context_destroy(first);
  cyto_context_destroy(second);
  cyto_context_destroy(NULL);
  return bad;
}
"""


def headers(folder, args):
    """All public headers and a generated one, as C and C++ without extensions, by the compilers that there are; and a program that
    is linked with two models, as its header says."""
    for name in 'mn':
        code, _, err = lib.run([args.cytoc, MODEL, '-o', os.path.join(folder.out, name + '.so')], env=folder.env)
        if code:
            return lib.reason(err, code)
    users = {'c11': ('c', os.environ.get('CC', 'cc').split(), ['clang']), 'c++17': ('c++', ['c++'], ['clang++'])}
    strict = ['-Wall', '-Wextra', '-pedantic-errors', '-Werror', '-I' + os.path.join(lib.ROOT, 'runtime'), '-I' + folder.out]
    for standard, (language, *compilers) in users.items():
        for compiler in compilers:
            if not shutil.which(compiler[0]):
                continue
            for header in ('cyto_abi.h', 'cyto.h', 'cyto_pipeline.h', os.path.join(lib.ROOT, 'tools', 'driver', 'cytoc.h'), 'm.h'):
                user = os.path.join(folder.root, 'user.c')
                with open(user, 'w', encoding='utf-8') as f:  # twice, and beside cyto.h
                    f.write('#include "%s"\n#include "cyto.h"\n#include "%s"\nint main(void) { return 0; }\n' % (header, header))
                code, _, err = lib.run([*compiler, '-x', language, '-std=' + standard, *strict, '-fsyntax-only', user])
                if code:
                    return '%s as %s by %s: %s' % (header, standard, compiler[0], lib.reason(err, code))
    user, program = os.path.join(folder.root, 'user.c'), os.path.join(folder.root, 'user')
    with open(user, 'w', encoding='utf-8') as f:
        f.write(HEADER_USER)
    code, _, err = lib.run([*users['c11'][1], '-std=c11', *strict, user, '-o', program, '-L' + folder.out, '-l:m.so', '-l:n.so',
                            '-Wl,-rpath,' + folder.out])
    code, out, err = (code, '', err) if code else lib.run([program], env=folder.env)
    return 'linked with two models: ' + lib.reason(out + err, code) if code else None


def symbols_of_outputs(folder, args):
    """--info tells the sizes of outputs by the symbols of the inputs, where they are known before running."""
    nodes = [h.make_node('Concat', ['x', 'x', 'one'], ['long'], axis=1), h.make_node('MatMul', ['long', 'w'], ['y']),
             h.make_node('NonZero', ['x'], ['found'])]
    ones = [graphs.constant('one', np.ones((1, 1, 4), np.float32)), graphs.constant('w', np.ones((4, 5), np.float32))]
    model = graphs.save_model(os.path.join(folder.root, 'm.onnx'), nodes, [graphs.port('x', np.float32, [1, 'seq', 4])],
                              [graphs.port('y', np.float32, None), graphs.port('found', np.int64, None)], ones)
    for level in '-O0', '-O3':
        code, _, err = lib.run([args.cytoc, model, level, '-o', os.path.join(folder.out, 'm.so')], env=folder.env)
        code, out, err = (code, '', err) if code else lib.run([args.cyto_run, os.path.join(folder.out, 'm.so'), '--info'], env=folder.env)
        if code or "'y' float32 [1,2*seq+1,5]" not in out or "'found' int64 [3,?] of data-dependent size" not in out:
            return '%s: exit code %d, %s' % (level, code, out + err)
    return None


def no_memory(folder, args):
    """Whichever request for memory fails, a program ends with exit code 1 and a text, or does without; cytoc leaves no files.
    A few hundred places of cytoc's, and all of cyto-run's on a model with strings and sequences."""
    preload = os.path.join(args.build, 'tests', 'failing_alloc.so')
    if args.variant != 'release':
        return None  # sanitizers have an allocator of their own

    def ends(command, at, more, output):
        env = dict(folder.env, LD_PRELOAD=os.path.abspath(preload), CYTO_FAIL_AT=str(at), **more)
        code, _, err = lib.run(command, env=env)
        left = os.listdir(folder.tmp) + (os.listdir(folder.out) if code and output else [])
        if code not in (0, 1) or (code == 1 and not err.strip()) or left:
            return 'request %d of %s: exit code %d, left: %s; %s' % (at, command[0], code, ' '.join(left), err[-200:])
        for name in os.listdir(folder.out) if output else []:
            os.remove(os.path.join(folder.out, name))
        return None

    compile_model = [args.cytoc, MODEL, '-o', os.path.join(folder.out, 'm.so'), '-j2']
    for more in {}, {'CYTO_FAIL_ALL': '1'}:
        at = 1
        while at < 20000:
            why = ends(compile_model, at, more, True)
            if why:
                return why
            at += 1 + at // 8
    model, library = os.path.join(folder.root, 'v.onnx'), os.path.join(folder.root, 'v.so')
    values_model(model)
    code, _, err = lib.run([args.cytoc, model, '-o', library], env=folder.env)
    if code:
        return lib.reason(err, code)
    run_model = [args.cyto_run, library, *value_arguments(folder, GOOD_VALUES), '--output-dir', folder.out]
    return next(filter(None, (ends(run_model, at, more, False) for at in range(1, 120) for more in ({}, {'CYTO_FAIL_ALL': '1'}))), None)


def last_logits(folder, args):
    """The last position alone is the last row of what all positions give; its dims say so; what does not fit is refused."""
    random = np.random.default_rng(2)
    weights = [graphs.constant(n, random.standard_normal(d).astype(np.float32)) for n, d in (('w', (16, 24)), ('b', (24,)), ('v', (24, 40)))]
    nodes = [h.make_node('MatMul', ['x', 'w'], ['t']), h.make_node('Add', ['t', 'b'], ['u']), h.make_node('Relu', ['u'], ['hidden']),
             h.make_node('MatMul', ['hidden', 'v'], ['logits']), h.make_node('ReduceSum', ['x'], ['sum'], keepdims=0)]
    model, library, x = (os.path.join(folder.root, n) for n in ('m.onnx', 'm.so', 'x.npy'))
    graphs.save_model(model, nodes, [graphs.port('x', np.float32, ['batch', 'seq', 16])],
                      [graphs.port('logits', np.float32, None), graphs.port('hidden', np.float32, None), graphs.port('sum', np.float32, None)], weights)
    found = {}
    for level in '-O0', '-O3':
        for options in [], ['--last-logits=logits']:
            code, out, err = lib.run([args.cytoc, model, level, '-o', library, *options], env=folder.env)
            code, info, err = lib.run([args.cyto_run, library, '--info'], env=folder.env) if not code else (code, out, err)
            if code or ("'logits' float32 [batch,1,40]" in info) != bool(options):
                return '%s %s: %s' % (level, options, err + info)
            for rows in (7, 1, 0):
                np.save(x, np.random.default_rng(rows).standard_normal((3, rows, 16)).astype(np.float32))
                code, _, err = lib.run([args.cyto_run, library, '--input', 'x=' + x, '--output-dir', folder.out], env=folder.env)
                if options and not rows:
                    if not code or '1 of 0 elements' not in err:
                        return '%s: no positions: exit code %d, %s' % (level, code, err)
                elif code:
                    return lib.reason(err, code)
                else:
                    found[level, bool(options), rows] = np.load(os.path.join(folder.out, network.by_index(folder.out)[0]))
    for (level, only, rows), y in found.items():
        wanted = found['-O0', False, rows][:, -1:] if only else found['-O0', False, rows]
        if y.shape != wanted.shape or not np.allclose(y, wanted, 1e-5, 1e-5):
            return '%s, %d rows%s: other values' % (level, rows, ', the last one' * only)
    for name, text in (('logit', "did you mean 'logits'"), ('z', "expected one of 'logits', 'hidden', 'sum'"), ('sum', 'rank 2 or more')):
        code, _, err = lib.run([args.cytoc, model, '-o', library, '--last-logits=' + name], env=folder.env)
        if code != 1 or text not in err:
            return '%s: exit code %d, %s' % (name, code, err)
    return None


def sizes_too_large(folder, args):
    """Sizes that come with the data and whose product is more than 64 bits can tell: an error, where memory would else be got
    for what is left of it."""
    node, port = h.make_node, graphs.port
    chains = {'Expand': [node('Expand', ['x', 's'], ['a']), node('NonZero', ['a'], ['b']), node('Shape', ['b'], ['y'])],
              'Tile': [node('Tile', ['xx', 's'], ['a']), node('TopK', ['a', 'k'], ['b', 'y'], axis=1)],
              'ConstantOfShape': [node('ConstantOfShape', ['s'], ['a']), node('CumSum', ['a', 'axis'], ['b']), node('NonZero', ['b'], ['y'])],
              'Resize': [node('Resize', ['xx', '', '', 's'], ['a'], mode='nearest'), node('Softmax', ['a'], ['b'], axis=0),
                         node('NonZero', ['b'], ['y'])],
              'Reshape': [node('Expand', ['x', 's'], ['a']), node('Reshape', ['a', 'all'], ['y'])],
              'Flatten': [node('Expand', ['x', 's'], ['a']), node('Flatten', ['a'], ['b'], axis=2), node('Softmax', ['b'], ['c'], axis=0),
                          node('Concat', ['c', 'c', 'c'], ['d'], axis=0), node('NonZero', ['d'], ['y'])]}
    constants = [graphs.constant('x', np.float32([1])), graphs.constant('xx', np.float32([[1]])), graphs.constant('k', np.int64([1])),
                 graphs.constant('axis', np.int64(0)), graphs.constant('all', np.int64([-1]))]
    model, library, sizes = os.path.join(folder.root, 'm.onnx'), os.path.join(folder.root, 'm.so'), os.path.join(folder.root, 's.npy')
    for name, nodes in chains.items():
        used = {n for k in nodes for n in k.input}
        kind = np.float32 if name == 'Reshape' else np.int64
        graphs.save_model(model, nodes, [port('s', np.int64, [2])], [port('y', kind, None)], [c for c in constants if c.name in used])
        for level in '-O0', '-O3':
            code, _, err = lib.run([args.cytoc, model, level, '-o', library], env=folder.env)
            if code:
                return name + ': ' + lib.reason(err, code)
            for wanted, rows, columns in (0, 2, 3), (1, 1 << 32, 1 << 32), (1, 1 << 31, 1 << 33), (1, (1 << 61) + 1, 4), (1, 3, 0x5555555555555557):
                np.save(sizes, np.int64([rows, columns]))
                code, _, err = lib.run([args.cyto_run, library, '--input', 's=' + sizes], env=folder.env)
                if code != wanted or (wanted and not re.search('no memory for|overflows|impossible shape', err)):
                    return '%s %s of %d x %d: exit code %d: %s' % (name, level, rows, columns, code, err.strip()[-200:])
    return None


def attribute_not_looked_at(folder, args):
    """An attribute of com.microsoft's operators that no importer asks for is named; hints and zeros are not."""
    node = h.make_node('MatMulNBits', ['x', 'w', 's'], ['y'], 'product', domain='com.microsoft', K=32, N=4, bits=4, block_size=16,
                       accuracy_level=4, later=0, newer=1)
    constants = [graphs.constant('w', np.ones((4, 2, 8), np.uint8)), graphs.constant('s', np.ones((4, 2), np.float32))]
    model = graphs.save_model(os.path.join(folder.root, 'm.onnx'), [node], [graphs.port('x', np.float32, [2, 32])],
                              [graphs.port('y', np.float32, [2, 4])], constants)
    code, _, err = lib.run([args.cytoc, model, '-o', os.path.join(folder.out, 'm.so')], env=folder.env)
    named = re.findall(r"warning: .*'product'.*attribute '(\w+)' is not looked at", err)
    return None if code == 0 and named == ['newer'] else 'exit code %d, warnings of %s: %s' % (code, named, err)


def filled_sequence(folder, args):
    """A list that a loop of any length fills and that is stacked is no object when the model runs, so CUDA can have it."""
    body = h.make_graph([h.make_node('Add', ['v', 'x'], ['w']), h.make_node('SequenceInsert', ['q', 'w'], ['r'])], 'body',
                        [graphs.port('i', np.int64, []), graphs.port('c', bool, []), graphs.port('v', np.float32, [3]),
                         h.make_tensor_sequence_value_info('q', onnx.TensorProto.FLOAT, [3])],
                        [graphs.port('c', bool, []), graphs.port('w', np.float32, [3]),
                         h.make_tensor_sequence_value_info('r', onnx.TensorProto.FLOAT, [3])])
    nodes = [h.make_node('SequenceEmpty', [], ['none']), h.make_node('Loop', ['n', '', 'x', 'none'], ['last', 'list'], body=body),
             h.make_node('ConcatFromSequence', ['list'], ['y'], axis=1, new_axis=1)]
    model = graphs.save_model(os.path.join(folder.root, 'm.onnx'), nodes, [graphs.port('x', np.float32, [3]), graphs.port('n', np.int64, [])],
                              [graphs.port('y', np.float32, [3, 'm'])], [])
    code, out, err = lib.run([args.cytoc, model, '--emit=graph', '-o', '-'], env=folder.env)
    return None if code == 0 and '= loop ' in out and 'seq' not in out else lib.reason(err, code) if code else out


def branch_left_out(folder, args):
    """A branch that is wrong for the sizes at hand is left out with a warning; taking it is an error, and the context of
    the other branch is not harmed."""
    port = graphs.port
    branches = [h.make_graph([h.make_node('MatMul', ['x', w], ['z'])], w, [], [port('z', np.float32, [2, 3])])
                for w in ('fits', 'not')]
    node = h.make_node('If', ['c'], ['y'], 'choice', then_branch=branches[0], else_branch=branches[1])
    constants = [graphs.constant(name, np.ones(shape, np.float32)) for name, shape in (('fits', (4, 3)), ('not', (5, 3)))]
    model, library = os.path.join(folder.root, 'm.onnx'), os.path.join(folder.out, 'm.so')
    graphs.save_model(model, [node], [port('x', np.float32, [2, 4]), port('c', bool, [])], [port('y', np.float32, [2, 3])], constants)
    code, _, err = lib.run([args.cytoc, model, '-o', library], env=folder.env)
    if code or not re.search(r"warning: graph 'not': node .*MatMul", err) or "the else branch is left out" not in err:
        return 'exit code %d, %s' % (code, err)
    np.save(os.path.join(folder.root, 'x.npy'), np.ones((2, 4), np.float32))
    for taken, wanted in ((True, 0), (False, 1)):
        np.save(os.path.join(folder.root, 'c.npy'), np.bool_(taken))
        inputs = ['--input=%s=%s.npy' % (n, os.path.join(folder.root, n)) for n in 'xc']
        code, _, err = lib.run([args.cyto_run, library, *inputs, '--output-dir', folder.root])
        if code != wanted or (not taken and "node 'choice': the inputs lead into a branch of this If that is not valid" not in err):
            return 'condition %s: exit code %d, %s' % (taken, code, err)
    return None if (np.load(os.path.join(folder.root, 'out_0_y.npy')) == 4).all() else 'wrong result'


def carried_weights(folder, args):
    """What a loop carries unchanged, as those of TensorFlow carry weights, is as constant in its body as before it."""
    weights = np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32) / 8
    ports = [h.make_tensor_value_info(*p) for p in (
        ('i', onnx.TensorProto.INT64, []), ('c', onnx.TensorProto.BOOL, []), ('w', onnx.TensorProto.FLOAT, [64, 64]),
        ('v', onnx.TensorProto.FLOAT, [40, 64]), ('d', onnx.TensorProto.BOOL, []), ('u', onnx.TensorProto.FLOAT, [64, 64]),
        ('t', onnx.TensorProto.FLOAT, [40, 64]))]
    body = h.make_graph([h.make_node('Transpose', ['w'], ['wt']), h.make_node('MatMul', ['v', 'wt'], ['vw']),
                         h.make_node('Tanh', ['vw'], ['t']), h.make_node('Identity', ['w'], ['u']),
                         h.make_node('Identity', ['c'], ['d'])], 'body', ports[:4], ports[4:])
    model, library = os.path.join(folder.root, 'm.onnx'), os.path.join(folder.out, 'm.so')
    graphs.save_model(model, [h.make_node('Loop', ['turns', '', 'w', 'x'], ['', 'y'], body=body)],
                      [graphs.port('turns', np.int64, []), graphs.port('x', np.float32, [40, 64])],
                      [graphs.port('y', np.float32, [40, 64])], [graphs.constant('w', weights)])
    code, out, err = lib.run([args.cytoc, model, '-o', library, '--explain'], env=folder.env)
    return None if code == 0 and 'gemm packed' in out else 'exit code %d, %s' % (code, out + err)


def fast_products(folder, args):
    """Strassen's algorithm where rows are many, told by --explain; not at -O0, nor with --fast-algorithms=off, nor with
    AVX-512. One library serves few and many rows."""
    depth, columns = 768, 1536
    random = np.random.default_rng(1)
    weights = random.standard_normal((depth, columns)).astype(np.float32)
    model, library = os.path.join(folder.root, 'm.onnx'), os.path.join(folder.out, 'm.so')
    graphs.save_model(model, [h.make_node('MatMul', ['x', 'w'], ['y'])], [graphs.port('x', np.float32, ['rows', depth])],
                      [graphs.port('y', np.float32, ['rows', columns])], [graphs.constant('w', weights)])
    for options, wanted in ((['-O0'], False), (['--fast-algorithms=off'], False), (['--target=x86-64-v4'], False),
                            (['--fast-algorithms=auto'], True), ([], True)):
        code, out, err = lib.run([args.cytoc, model, '-o', library, '--explain', '--target=x86-64-v3', *options],
                                 env=folder.env)
        if code or ('gemm strassen' in out) != wanted:
            return '%s: exit code %d, %s' % (' '.join(options), code, out + err)
    for rows in (5, 95, 96, 300):
        x = random.standard_normal((rows, depth)).astype(np.float32)
        np.save(os.path.join(folder.root, 'x.npy'), x)
        code, _, err = lib.run([args.cyto_run, library, '--input=x=%s' % os.path.join(folder.root, 'x.npy'), '--output-dir',
                                folder.root])
        if code:
            return '%d rows: exit code %d, %s' % (rows, code, err)
        want = x.astype(np.float64) @ weights
        error = np.sqrt(np.mean((np.load(os.path.join(folder.root, 'out_0_y.npy')) - want) ** 2) / np.mean(want ** 2))
        if not error < 3e-6:
            return '%d rows: relative RMS error %.1e' % (rows, error)
    return None


def large_weights(folder, args):
    """Over 1.5 GB: weights beside the library, compiled in the model's size + 200 MB of memory, and a disk too small for
    them. The model's data is a sparse file but for its last row."""
    rows, width = 400000, 1024
    if shutil.disk_usage(folder.root).free < 8 << 30:
        return None
    table = onnx.TensorProto(name='table', data_type=onnx.TensorProto.FLOAT, dims=[rows, width],
                             data_location=onnx.TensorProto.EXTERNAL)
    table.external_data.add(key='location', value='data')
    with open(os.path.join(folder.root, 'data'), 'wb') as f:
        f.seek((rows - 1) * width * 4)
        f.write(np.arange(width, dtype=np.float32).tobytes())
    model, library = os.path.join(folder.root, 'm.onnx'), os.path.join(folder.out, 'm.so')
    graphs.save_model(model, [h.make_node('Gather', ['table', 'i'], ['y'])], [graphs.port('i', np.int64, [2])],
                      [graphs.port('y', np.float32, [2, width])], [table])
    stats = os.path.join(folder.root, 'stats.json')
    code, _, err = lib.run([args.cytoc, model, '-o', library, '--stats=' + stats], env=folder.env)
    if code:
        return lib.reason(err, code)
    peak = json.loads(read(stats))['peak_mb']
    if sorted(os.listdir(folder.out)) != ['m.h', 'm.so', 'm.so.weights'] or \
            (args.variant == 'release' and peak > rows * width * 4e-6 + 200):
        return 'files: %s; peak memory %g MB' % (' '.join(os.listdir(folder.out)), peak)
    np.save(os.path.join(folder.root, 'i.npy'), np.array([rows - 1, 0]))
    code, _, err = lib.run([args.cyto_run, library, '--input', 'i=' + os.path.join(folder.root, 'i.npy'), '--output-dir',
                            folder.root])
    if code or (np.load(os.path.join(folder.root, 'out_0_y.npy')) != [np.arange(width), np.zeros(width)]).any():
        return lib.reason(err, code) if code else 'wrong rows'
    for name in os.listdir(folder.out):
        os.remove(os.path.join(folder.out, name))
    code, _, err = lib.run([args.cytoc, model, '-o', library], env=folder.env,
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30)))
    if code != 1 or 'cannot write 1638.4 MB of weights' not in err or os.listdir(folder.out):
        return 'files up to 1 GB only: exit code %d, files: %s, %s' % (code, os.listdir(folder.out), err)
    return None


def metadata(folder, args):
    """What the file says about the model stays in its library, also through the text form; what it says of nodes does not."""
    model, text, library = (os.path.join(folder.root, name) for name in ('m.onnx', 'm.txt', 'm.so'))
    node = h.make_node('Relu', ['x'], ['y'])
    node.metadata_props.add(key='of a node', value='1')
    proto = graphs.model_of([node], [graphs.port('x', np.float32, [2])], [graphs.port('y', np.float32, [2])])
    h.set_model_props(proto, {'labels': 'cat,"dog"', '\u00e9': ''})
    onnx.save(proto, model)
    code, _, err = lib.run([args.cytoc, model, '--emit=graph', '-o', text], env=folder.env)
    for source in [] if code else [model, text]:
        code, _, err = lib.run([args.cytoc, source, '-o', library], env=folder.env)
        code, out, err = (code, '', err) if code else lib.run([args.cyto_run, library, '--info'], env=folder.env)
        found = [line for line in out.splitlines() if line.startswith('metadata')]
        if not code and found != ['metadata \'labels\': cat,"dog"', "metadata '\u00e9': "]:
            return '%s: %s' % (os.path.basename(source), out)
    return lib.reason(err, code) if code else None


def sums_in_registers(folder, args):
    """Steps of a product that are written one behind the other stay in order: sums and factors do not go to the stack and back,
    whatever order the CPU's model in LLVM would like better."""
    model, code = (os.path.join(folder.root, name) for name in ('m.txt', 'm.s'))
    with open(model, 'w', encoding='utf-8') as f:
        f.write('graph @g(%x: f32[1,4,84,84]) {\n'
                '  @v = const f32[32,4,8,8] data(7)\n  @w = const f32[24,32,1,1] data(8)\n'
                '  %a = conv %x, @v {strides=[4,4], pads=[0,0,0,0], dilations=[1,1], group=1} : f32[1,32,20,20]\n'
                '  %b = conv %a, @w {strides=[1,1], pads=[0,0,0,0], dilations=[1,1], group=1} : f32[1,24,20,20]\n'
                '  return %b\n}\n')
    for target in ('x86-64-v4', 'sapphirerapids', 'znver4', 'znver5'):
        result, _, err = lib.run([args.cytoc, model, '--target=' + target, '--emit=asm', '-o', code], env=folder.env)
        if result:
            return lib.reason(err, result)
        text = read(code)
        stored = len(re.findall(r'(?m)^\s*vmov\w+\s+%zmm\d+, -?\w*\(%r[sb]p\)', text))
        if stored > 4 or text.count('vfmadd') < 200:
            return '%s: %d vectors go to the stack, %d fma' % (target, stored, text.count('vfmadd'))
    return None


def contenders(folder, args):
    """cyto-bench starts a process for each contender that is asked for, in turns, and shows what it prints; one that fails
    leaves a row that says why. A program that writes its arguments down stands for Python."""
    python, calls, rows = (os.path.join(folder.root, name) for name in ('python', 'calls', 'rows.json'))
    with open(python, 'w', encoding='utf-8') as f:
        f.write('#!/bin/sh\necho "$*" >>%s\ncase "$*" in *openvino*) echo "Traceback" >&2; echo "no openvino" >&2; echo >&2; exit 1;; esac\n'
                'echo 1.5 2.5 3.5 0.5 7 4096\n' % calls)
    os.chmod(python, 0o755)
    bench = [os.path.join(args.build, 'cyto-bench'), MODEL, '--seconds', '0.01', '--dim', 'batch=2']
    code, out, err = lib.run(bench + ['--threads', '2', '--against', 'ort,openvino,torch-compile', '--json', rows],
                             env=dict(folder.env, CYTO_PYTHON=python))
    want = [['bench_ort.py', 'digits.onnx', '2'], ['bench_openvino.py', 'digits.onnx', '2'],
            ['bench_torch.py', 'cpu', 'compile', 'digits.onnx', '2']]
    want += [want[0], want[2]] * 4  # five processes of each, but of one that failed
    want = [' '.join(call + ['0.01', '1', '--dim', 'batch=2']) for call in want]
    found = re.sub(r'\S*/', '', read(calls)).splitlines()
    if code or found != want:
        return lib.reason(err, code) if code else 'these calls: ' + '; '.join(found)
    got = {row['contender']: row.get('failure') or row['median']['median_ms'] for row in json.loads(read(rows))['results']}
    del got['compiled -O3']
    if got != {'ONNX Runtime': 3.5, 'OpenVINO': 'not run: no openvino', 'torch.compile': 3.5}:
        return 'these rows: %s' % got
    code, out, err = lib.run(bench + ['--dim', 'bacth=2', '--against', 'ort'], env=dict(folder.env, CYTO_PYTHON=python))
    if 'not compiled' not in out or not re.search(r'ONNX Runtime +3\.5000 +0\.5000 +- ', out):  # a ratio to nothing
        return 'a table without our time: ' + out + err
    code, _, err = lib.run(bench + ['--against', 'ort,tensorflow'])
    return None if code == 2 and "bad value of '--against'" in err else lib.reason(err, code)


def open_sizes(folder, args):
    """Sizes that the model leaves open are given or refused by cyto-run and cyto-bench, and those used are printed; a size behind one
    model holds for that one only, before all for all."""
    library, bench = os.path.join(folder.out, 'm.so'), [os.path.join(args.build, 'cyto-bench'), '--seconds', '0.01', '--against', 'none']
    code, _, err = lib.run([args.cytoc, MODEL, '-o', library], env=folder.env)
    if code:
        return lib.reason(err, code)
    run = [args.cyto_run, library, '--random', '1']
    for command, wanted, text in ((run, 1, r"'image' \[batch,1,8,8\].*'batch' open.*--dim batch=N.*--random-dims"),
                                  (run + ['--dim', 'bacth=2'], 1, "'bacth=2'.*did you mean 'batch'"),
                                  ([args.cytoc, MODEL, '-o', library, '--dim', 'batch=2', '--dim', 'bacth=2'], 1,
                                   r"\('batch'\), found 'bacth'.*did you mean 'batch'"),
                                  (run + ['--shape', 'imgae=2x1x8x8'], 1, "'imgae=.*did you mean 'image'"),
                                  (run + ['--dim', 'batch=x'], 1, "'batch=x'.*number"),
                                  (run + ['--random-dims', '0'], 1, "'--random-dims'.*from 1, found '0'"),
                                  (run + ['--random-dims', '3'], 0, r"input 0 'image' float32 \[3,1,8,8\]"),
                                  (run + ['--dim', '*=2'], 0, r"'image' float32 \[2,1,8,8\]"),
                                  (run + ['--dim', 'batch=4'], 0, r"'image' float32 \[4,1,8,8\]"),
                                  (bench + [MODEL], 1, "not run: input 'image'.*'batch' open"),
                                  (bench + [MODEL, '--random-dims=2'], 0, 'digits: image 2x1x8x8'),
                                  (bench + ['--dim', 'batch=5', MODEL, library, '--dim', 'batch=6'], 0,
                                   '(?s)digits: image 5x1x8x8.*m: image 6x1x8x8'),
                                  (bench + [MODEL, library, '--dim', 'batch=6'], 1, '(?s)m: image 6x1x8x8.*digits .*not run.*open')):
        code, out, err = lib.run(command, env=folder.env)
        if code != wanted or not re.search(text, out + err):
            return '%s: exit code %d, %s' % (' '.join(command[1:]), code, out + err)
    return None


def read_bytes(path):
    """None: there is no such file any more."""
    try:
        with open(path, 'rb') as f:
            return f.read()
    except OSError:
        return None


def neighbour(folder, args):
    """cyto-bench beside a busy process, which is gone when it ends."""
    def busy():
        return {p for p in os.listdir('/proc') if p.isdigit() and b'--neighbour' in (read_bytes('/proc/%s/cmdline' % p) or b'')}

    before = busy()
    code, out, err = lib.run([os.path.join(args.build, 'cyto-bench'), MODEL, '--dim', 'batch=2', '--seconds', '0.02', '--against', 'none', '--threads',
                              '1,2', '--neighbour'], env=folder.env)
    if code or not re.search(r'(?m)^.*digits', out):
        return 'exit code %d: %s' % (code, out + err)
    return 'it is still there' if busy() - before else None


def statistics(folder, args):
    """Statistics of cyto-run and cyto-bench, as text and as JSON: the first run is none of those that they are of."""
    library, path = os.path.join(folder.out, 'm.so'), os.path.join(folder.root, 'r.json')
    code, _, err = lib.run([args.cytoc, MODEL, '-o', library, '--profile'], env=folder.env)
    if code:
        return lib.reason(err, code)
    run = [args.cyto_run, library, '--random', '1', '--dim', 'batch=4', '--repeat', '50', '--profile', '--json']
    code, out, err = lib.run(run + [path], env=folder.env)
    number = r'[\d.]+'
    line = 'first N ms, then 50 runs: min N ms, median N ms, mean N ms, standard deviation N ms, p95 N ms, p99 N ms, N samples/s'
    if code or not re.search('(?m)^' + line.replace('N', number) + '$', out):
        return 'exit code %d: %s' % (code, out + err)
    report = json.loads(read(path))
    sorted_names = ['min_ms', 'median_ms', 'p95_ms', 'p99_ms', 'max_ms']
    times = [report[n] for n in sorted_names]
    if times != sorted(times) or not report['min_ms'] <= report['mean_ms'] <= report['max_ms'] or report['runs'] != 50 or \
            report['first_ms'] <= 0 or report['inputs'] != [{'name': 'image', 'dtype': 'float32', 'shape': [4, 1, 8, 8]}] or \
            report['outputs'][0]['shape'] != [4, 10] or abs(report['samples_per_second'] * report['mean_ms'] / 4000 - 1) > 1e-6 or \
            not report['kernels'] or any(k['runs'] != 50 or k['first_us'] <= 0 for k in report['kernels']):
        return 'these numbers: %s' % report
    code, out, err = lib.run(run + ['-'], env=folder.env)
    if code or json.loads(out)['model'] != report['model']:
        return 'to stdout: exit code %d: %s' % (code, out + err)
    code, _, err = lib.run(run + [os.path.join(folder.root, 'no', 'r.json')], env=folder.env)
    if code != 1 or 'no/r.json' not in err:
        return 'unwritable: exit code %d: %s' % (code, err)
    code, out, err = lib.run([os.path.join(args.build, 'cyto-bench'), MODEL, '--dim', 'batch=4', '--seconds', '0.02', '--against',
                              'eager', '--json', path], env=folder.env)
    rows = json.loads(read(path))['results']
    for row in rows:
        m = row['median']
        if row['shapes'] != 'image 4x1x8x8' or row['samples'] != 4 or not m['min_ms'] <= m['median_ms'] <= m['p95_ms'] <= m['p99_ms'] or \
                m['deviation_ms'] < 0 or abs(row['samples_per_second'] * m['mean_ms'] / 4000 - 1) > 1e-6:
            return 'these numbers: %s' % row
    return None if len(rows) == 2 and 'p99 ms' in out else 'rows: %s' % rows


def sizes_on_disk(folder, args):
    """cyto-bench counts what lies beside a model, once for each file, and what lies beside a library."""
    def weight(name, where, offset):
        tensor = onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=[64], data_location=onnx.TensorProto.EXTERNAL)
        for key, value in (('location', where), ('offset', str(offset)), ('length', '256')):
            tensor.external_data.add(key=key, value=value)
        return tensor
    model, rows = os.path.join(folder.root, 'm.onnx'), os.path.join(folder.root, 'r.json')
    for name, bytes_ in (('a.bin', 40960), ('b.bin', 10240)):
        with open(os.path.join(folder.root, name), 'wb') as f:
            f.write(bytes(bytes_))
    branch = h.make_graph([h.make_node('Add', ['x', 'v'], ['z'])], 'branch', [], [graphs.port('z', np.float32, [64])], [weight('v', 'b.bin', 0)])
    nodes = [h.make_node('Add', ['x', 'a'], ['p']), h.make_node('Add', ['p', 'b'], ['q']),
             h.make_node('If', ['c'], ['r'], then_branch=branch, else_branch=branch), h.make_node('Add', ['q', 'r'], ['y'])]
    graphs.save_model(model, nodes, [graphs.port('x', np.float32, [64]), graphs.port('c', bool, [])], [graphs.port('y', np.float32, [64])],
                      [weight('a', 'a.bin', 0), weight('b', 'a.bin', 256)])
    code, out, err = lib.run([os.path.join(args.build, 'cyto-bench'), model, '--seconds', '0.01', '--against', 'ort', '--json', rows],
                             env=dict(folder.env, CYTO_PYTHON='false'))
    sizes = {r['contender']: r['size_kb'] for r in json.loads(read(rows))['results']}
    want = os.path.getsize(model) / 1024 + 50
    return None if not code and abs(sizes['ONNX Runtime'] - want) < 0.01 else 'exit code %d, %s, wanted %g: %s' % (code, sizes, want, out + err)


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    table(args, suite)
    for test in (text_graph, same_bytes, same_bytes_anywhere, profile, floors, lines, values, strings, known_values, no_linker, no_temporary_folder, interrupted,
                 child_killed, full_device, to_pipe, header_of_odd_names, headers, symbols_of_outputs, missing_file, foreign_files, terminal, generated_texts, options_files, no_memory, sizes_too_large, last_logits, attribute_not_looked_at, filled_sequence, branch_left_out, carried_weights, fast_products, sums_in_registers,
                 large_weights,
                 metadata, contenders, open_sizes, neighbour, statistics, sizes_on_disk):
        name = 'cli ' + test.__name__.replace('_', ' ')
        if args.wanted(name):
            folder = Folder(args, name)
            suite.result(name, folder.done(test(folder, args)))
    suite.done()


if __name__ == '__main__':
    main()
