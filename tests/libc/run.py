# SPDX-License-Identifier: Apache-2.0
"""Libraries under other C libraries than the one that cytoc was built with, and in programs that call setlocale().

versions   for each architecture: which of the C library's functions, in which versions, cytoc names to the linker
library    what a compiled library needs of the C library
musl       host.c and models, compiled and linked by musl-gcc: the bits that they give here
comma      host.c where numbers have a decimal comma: the same bits

Out: the closing line.
"""
import os
import re
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import numpy as np
import onnx

import graphs
import lib
from graphs import port

NEWEST = (2, 17)
ARCHITECTURES = ('x86_64', 'aarch64')
STUBS = ('libm', 'libpthread', 'libdl', 'libc')
NEEDED = {'libc.so.6', 'libm.so.6', 'libpthread.so.0', 'libdl.so.2'}
# Of functions that no older C library has, nor needs models but for the oldest CPUs.
LATER = {'roundeven', 'roundevenf'}
SMALL_LOCALE = {'comma.src': 'LC_NUMERIC\ndecimal_point "<comma>"\nthousands_sep ""\ngrouping -1\nEND LC_NUMERIC\n',
                'comma.map': '<code_set_name> ASCII\n<mb_cur_max> 1\nCHARMAP\n<comma> /x2c COMMA\nEND CHARMAP\n'}


def texts():
    """Numbers to texts and back, by way of other texts."""
    g = graphs.Graph(1)
    longer = g.op('StringConcat', g.op('Cast', 'x', to=onnx.TensorProto.STRING), g.const(np.array('25', object)))
    tenth = g.op('Cast', g.op('StringConcat', longer, g.const(np.array('e-1', object))), to=onnx.TensorProto.DOUBLE)
    g.op('Cast', tenth, to=onnx.TensorProto.FLOAT, out='y')
    return g.model([port('x', np.float32, [9])], [port('y', np.float32, [9])], opset=20)


def mathematics():
    """Functions that have several versions in the C library: double precision, element by element."""
    g = graphs.Graph(2)
    x = g.op('Abs', g.op('Cast', 'x', to=onnx.TensorProto.DOUBLE))
    values = [g.op(kind, x) for kind in ('Exp', 'Sin', 'Cosh', 'Atan', 'Erf', 'Tan', 'Asinh')]
    values += [g.op('Pow', x, g.const(1.7)), g.op('Log', g.op('Add', x, g.const(1.0)))]
    values.append(g.op('Mod', x, g.const(0.3), fmod=1))
    g.op('Cast', g.op('Sum', *values), to=onnx.TensorProto.FLOAT, out='y')
    return g.model([port('x', np.float32, ['n', 40])], [port('y', np.float32, ['n', 40])])


def recurrent():
    g = graphs.Graph(3)
    weight = lambda *shape: g.const(g.rng.standard_normal(shape) * 0.1, np.float32)
    every, _, _ = g.op('LSTM', 'x', weight(1, 256, 24), weight(1, 256, 64), outputs=3, hidden_size=64)
    g.op('MatMul', every, weight(64, 500), out='y')
    return g.model([port('x', np.float32, [20, 4, 24])], [port('y', np.float32, [20, 1, 4, 500])])


NETWORKS = (texts, mathematics, recurrent)


def version(text):
    return tuple(int(n) for n in re.findall(r'\d+', text))


def versions(stub):
    """None, or the names in one of stub.sh's libraries that are too new."""
    code, out, err = lib.run(['nm', '-D', '--defined-only', '--with-symbol-versions', stub])
    names = [line.split()[-1].split('@@') for line in out.splitlines() if '@@' in line]
    new = [name for name, since in names if version(since) > NEWEST and name not in LATER]
    return lib.reason(err, code) if code else '%s: later than %s' % (' '.join(new), NEWEST) if new else None


def needs(library):
    """None, or what a library needs besides NEEDED's."""
    code, out, err = lib.run(['objdump', '-p', library])
    other = set(re.findall(r'NEEDED +(\S+)', out)) - NEEDED
    other |= {v for v in re.findall(r'0x\w+ 0x\w+ \d+ (GLIBC_\S+)', out) if version(v) > NEWEST}
    return lib.reason(err, code) if code else 'needs ' + ' '.join(sorted(other)) if other else None


def same_bits(command, want, **options):
    code, out, err = lib.run(command, **options)
    if code:
        return lib.reason(err, code)
    differing = sum(a != b for a, b in zip(out.split(), want.split()))
    return '%d of %d numbers are not those of here' % (differing, len(want.split())) if out != want else None


def comma_locale(folder):
    """The environment of a process whose numbers are not those of C; None: there is no localedef. Whether the point
    becomes a comma or nothing depends on localedef's character maps."""
    for name, text in SMALL_LOCALE.items():
        with open(os.path.join(folder, name), 'w') as f:
            f.write(text)
    path = os.path.join(folder, 'comma')
    shutil.rmtree(path, ignore_errors=True)
    if shutil.which('localedef'):
        lib.run(['localedef', '-c', '-i', path + '.src', '-f', path + '.map', path])
    environment = {**os.environ, 'LOCPATH': os.path.abspath(folder), 'LC_ALL': '', 'LC_NUMERIC': 'comma'}
    return environment if os.path.exists(os.path.join(path, 'LC_NUMERIC')) else None


class Case:
    """A network, compiled as a shared and as a static library, and what it gives here."""

    def __init__(self, args, folder, network):
        self.name = network.__name__
        self.path = os.path.join(folder, self.name)
        onnx.save(network(), self.path + '.onnx')
        self.failure = None
        for end in ('.so', '.a'):
            code, _, err = lib.run([args.cytoc, self.path + '.onnx', '-o', self.path + end])
            self.failure = self.failure or (lib.reason(err, code) if code else None)
        self.bits = ''

    def run_here(self, host):
        code, self.bits, err = lib.run([host, self.path + '.so'])
        return lib.reason(err, code) if code else None if self.bits else 'no output'


def compile_host(args, folder, compiler, name, *more):
    """The program, or raises RuntimeError."""
    program = os.path.join(folder, name)
    flags = {'asan': ['-fsanitize=address,undefined'], 'tsan': ['-fsanitize=thread']}.get(args.variant, [])
    code, _, err = lib.run([compiler, '-std=gnu11', '-O1', *flags, '-Iruntime', os.path.join(HERE, 'host.c'), *more,
                            '-o', program, '-lm', '-lpthread', '-ldl'])
    if code:
        raise RuntimeError(lib.reason(err, code))
    return program


def musl_case(args, folder, case, library):
    """The model opened by path, and linked into a program that needs nothing at all."""
    try:
        opened = compile_host(args, folder, 'musl-gcc', 'host-musl', library)
        linked = compile_host(args, folder, 'musl-gcc', 'host-musl-' + case.name, '-static', '-DLINKED=' + case.name,
                              case.path + '.a')
    except RuntimeError as e:
        return str(e)
    return same_bits([opened, case.path + '.so'], case.bits) or same_bits([linked], case.bits)


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    folder = os.path.join(args.build, 'libc')
    os.makedirs(folder, exist_ok=True)
    for architecture in ARCHITECTURES:
        for name in STUBS if args.wanted('versions') else ():
            stub = os.path.join(args.build, 'obj', architecture, name + '.stub')
            if os.path.exists(stub):  # cytoc makes no code for an architecture without a C compiler
                suite.result('versions %s %s' % (architecture, name), versions(stub))
    library = os.path.join(args.build, 'libcyto.a')
    here = compile_host(args, folder, os.environ.get('CC', 'cc').split()[-1], 'host', library)
    comma = comma_locale(folder)
    for case in (Case(args, folder, network) for network in NETWORKS if args.wanted(network.__name__)):
        suite.result(case.name, case.failure or case.run_here(here))
        if args.variant == 'release':
            suite.result('library ' + case.name, needs(case.path + '.so'))
        if args.variant != 'release':
            suite.skip('musl ' + case.name, 'sanitizers are not for musl')
        elif not shutil.which('musl-gcc'):
            suite.skip('musl ' + case.name, 'there is no musl-gcc')
        else:
            suite.result('musl ' + case.name, musl_case(args, folder, case, library))
        if comma:
            suite.result('comma ' + case.name, same_bits([here, case.path + '.so', 'odd'], case.bits, env=comma))
        else:
            suite.skip('comma ' + case.name, 'there is no localedef')
    suite.done()


if __name__ == '__main__':
    main()
