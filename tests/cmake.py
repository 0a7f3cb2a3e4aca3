# SPDX-License-Identifier: Apache-2.0
"""The CMake package and cyto.hpp, by the real cmake: examples/cmake against an installation, in Debug and Release; what is rebuilt when;
what is refused; cross-compiling; the header alone in C++17, with and without exceptions.

In:  --build DIR; cmake, a C++ compiler; clang++ and the cross compilers, where there are any.
Out: the closing line.
"""
import os
import re
import shutil
import subprocess

import numpy as np

import lib

PROJECT = """cmake_minimum_required(VERSION 3.16)
project(case LANGUAGES C CXX)
find_package(cyto CONFIG REQUIRED)
%s
"""


def run(*command, cwd=None):
    """Exit code and all output."""
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace')
    return done.returncode, done.stdout


def tail(text):
    return ' '.join(text.strip().split())[-300:]


class Place:
    """An installation, and projects that use it."""

    def __init__(self, args):
        self.work = os.path.join(args.build, 'cmake-tests')
        shutil.rmtree(self.work, ignore_errors=True)
        os.makedirs(self.work)
        self.prefix = os.path.join(self.work, 'prefix')
        code, out = run('make', '--no-print-directory', 'install', 'PREFIX=' + self.prefix)
        if code:
            raise SystemExit('make install failed: ' + out)

    def configure(self, source, name, *options):
        return run('cmake', '-S', source, '-B', os.path.join(self.work, name), '-DCMAKE_PREFIX_PATH=' + self.prefix, *options)

    def build(self, name):
        return run('cmake', '--build', os.path.join(self.work, name))

    def project(self, name, text, **files):
        folder = os.path.join(self.work, name + '-source')
        os.makedirs(folder, exist_ok=True)
        shutil.copy('examples/digits/digits.onnx', folder)
        for file, content in {'CMakeLists.txt': PROJECT % text, **files}.items():
            with open(os.path.join(folder, file), 'w', encoding='utf-8') as f:
                f.write(content)
        return folder


MAIN = '#include "net.h"\n#include <stdio.h>\nint main(void) { printf("%p\\n", (void *)net_model()); return 0; }\n'


def example(place, kind):
    code, out = place.configure('examples/cmake', 'example-' + kind, '-DCMAKE_BUILD_TYPE=' + kind)
    if not code:
        code, out = place.build('example-' + kind)
    if code:
        return tail(out)
    code, out = run(os.path.join(place.work, 'example-' + kind, 'digits'))
    digits = re.findall(r'(linked|loaded): a (\d) \(\d+ %\)', out)
    return None if not code and len(digits) == 2 and digits[0][1] == digits[1][1] == '1' else tail(out)


def rebuilds(place):
    """The model is compiled once, and again when it, its options or what it depends on change."""
    text = 'cyto_add_model(net MODEL digits.onnx OPTIONS %s DEPENDS note.txt)\nadd_executable(app main.c)\ntarget_link_libraries(app PRIVATE net)\n'
    folder = place.project('rebuild', text % '-O3', **{'main.c': MAIN, 'note.txt': 'a'})

    def build(expected, what):
        code, out = place.configure(folder, 'rebuild')
        if not code:
            code, out = place.build('rebuild')
        return tail(out) if code else None if ('Compiling model net' in out) == expected else \
            '%s: the model is %scompiled' % (what, 'not ' if expected else '')
    why = build(True, 'first') or build(False, 'again')
    os.utime(os.path.join(folder, 'digits.onnx'))
    why = why or build(True, 'another model') or build(False, 'again')
    place.project('rebuild', text % '-O1')
    why = why or build(True, 'other options') or build(False, 'again')
    os.utime(os.path.join(folder, 'note.txt'))
    return why or build(True, 'another file')


def calibrated(place):
    """INT8 static CALIBRATE samples/: quantised, and compiled again when a sample changes, comes or goes."""
    text = ('cyto_add_model(net MODEL digits.onnx TARGET x86-64-v3 INT8 static CALIBRATE samples/ OPTIONS --int8-prefer=size)\n'
            'cyto_add_model(plain MODEL digits.onnx TARGET x86-64-v3)\nadd_executable(app main.c)\ntarget_link_libraries(app PRIVATE net plain)\n')
    folder = place.project('calibrated', text, **{'main.c': MAIN})
    rng = np.random.default_rng(0)
    os.makedirs(os.path.join(folder, 'samples'))

    def sample(k):
        np.save(os.path.join(folder, 'samples', 'image_%d.npy' % k), rng.random((1, 1, 8, 8), dtype=np.float32))

    def build(expected, what):
        code, out = place.build('calibrated')
        return tail(out) if code else None if ('Compiling model net' in out) == expected else \
            '%s: the model is %scompiled' % (what, 'not ' if expected else '')
    for k in range(3):
        sample(k)
    code, out = place.configure(folder, 'calibrated')
    why = tail(out) if code else build(True, 'first') or build(False, 'again')
    sizes = [os.path.getsize(os.path.join(place.work, 'calibrated', n + '.cyto', n + '.a')) for n in ('net', 'plain')] if not why else (0, 1)
    why = why or (None if sizes[0] != sizes[1] else 'it is not quantised')
    sample(1)
    why = why or build(True, 'another sample') or build(False, 'again')
    sample(3)
    why = why or build(True, 'one sample more') or build(False, 'again')
    os.remove(os.path.join(folder, 'samples', 'image_0.npy'))
    return why or build(True, 'one sample less') or build(False, 'again')


ALLOCATIONS = """
#include <cyto.hpp>
#include "net.h"
#include <cstdio>
#include <cstdlib>
#include <new>
static long made;
extern "C" void *__libc_malloc(std::size_t);
extern "C" void *malloc(std::size_t n) { made++; return __libc_malloc(n); }
int main() {
  cyto::Model model;
  if (!model.open(net_model())) return 2;
  cyto::Context context(model, cyto::Options().threads(1));
  float image[64] = {}, result[10];
  long before = 0;
  for (int k = 0; k < 110; k++) {
    image[k % 64] += 1;
    if (k == 10) before = made;
    context.input("image", cyto::View<const float>(image, {1, 1, 8, 8})).output_to("probability", cyto::View<float>(result, {1, 10}));
    context.run();
    if (context.input("picture", cyto::View<const float>(image, {1, 1, 8, 8}), std::nothrow).code() != CYTO_NOT_FOUND) return 3;
  }
  long during = made - before;
  std::printf("%ld allocations in 100 runs, %ld before\\n", during, before);
  return during || before == 0;
}
"""


def allocations(place):
    """Nothing is allocated on the path of run()."""
    folder = place.project('allocations', 'set(CMAKE_CXX_STANDARD 17)\ncyto_add_model(net MODEL digits.onnx)\nadd_executable(app main.cpp)\n'
                           'target_link_libraries(app PRIVATE net cyto::cyto_static)', **{'main.cpp': ALLOCATIONS})
    code, out = place.configure(folder, 'allocations')
    code, out = (code, out) if code else place.build('allocations')
    code, out = (code, out) if code else run(os.path.join(place.work, 'allocations', 'app'))
    return tail(out) if code else None


def refusals(place):
    for text, part in (('cyto_add_model(net MODEL nowhere.onnx)', "there is no model"), ('cyto_add_model(net)', 'MODEL names'),
                       ('cyto_add_model(net MODEL digits.onnx BANANA)', 'unknown arguments: BANANA'),
                       ('find_package(cyto 9.0 CONFIG REQUIRED)', 'compatible')):
        code, out = place.configure(place.project('refused', text), 'refused')
        if not code or part not in ' '.join(out.split()):
            return '%s: expected an error with %r: %s' % (text, part, tail(out))
    folder = place.project('broken', 'cyto_add_model(net MODEL digits.onnx TARGET banana)\nadd_executable(app main.c)\n'
                           'target_link_libraries(app PRIVATE net)', **{'main.c': MAIN})
    code, out = place.configure(folder, 'broken')
    code, out = (code, out) if code else place.build('broken')
    return None if code and 'banana' in out else 'a wrong TARGET: ' + tail(out)


def static_runtime(place):
    main = '#include <cyto.hpp>\nint main() { cyto::Model m; return m.open("/nowhere.so").code() != CYTO_NOT_FOUND; }\n'
    text = 'set(CMAKE_CXX_STANDARD 17)\nadd_executable(app main.cpp)\ntarget_link_libraries(app PRIVATE cyto::%s)\n'
    for target in ('cyto', 'cyto_static'):
        folder = place.project(target, text % target, **{'main.cpp': main})
        code, out = place.configure(folder, target)
        code, out = (code, out) if code else place.build(target)
        code, out = (code, out) if code else run(os.path.join(place.work, target, 'app'))
        if code:
            return target + ': ' + tail(out)
    return None


def crossed(place):
    """For ARM: models and runtime follow CMAKE_SYSTEM_PROCESSOR."""
    if not shutil.which('aarch64-linux-gnu-gcc'):
        return 'skipped: no compiler for ARM'
    folder = place.project('crossed', 'cyto_add_model(net MODEL digits.onnx)\nadd_executable(app main.c)\n'
                           'target_link_libraries(app PRIVATE net)\nadd_executable(other main.c)\n'
                           'target_link_libraries(other PRIVATE net cyto::cyto_static)', **{'main.c': MAIN})
    code, out = place.configure(folder, 'crossed', '-DCMAKE_SYSTEM_NAME=Linux', '-DCMAKE_SYSTEM_PROCESSOR=aarch64',
                                '-DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc', '-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-gcc',
                                '-DCMAKE_CXX_COMPILER_WORKS=1', '-DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY')
    code, out = (code, out) if code else place.build('crossed')
    if code:
        return tail(out)
    with open(os.path.join(place.work, 'crossed', 'app'), 'rb') as f:
        machine = f.read(20)[18]
    if machine != 183:
        return 'the program is for machine %d, not ARM' % machine
    if shutil.which('qemu-aarch64'):
        code, out = run('qemu-aarch64', '-L', '/usr/aarch64-linux-gnu', os.path.join(place.work, 'crossed', 'app'))
        return tail(out) or 'exit code %d' % code if code else None
    return None


def headers(place):
    """Headers, a generated one too, under strict flags."""
    user = os.path.join(place.work, 'user.cpp')
    with open(user, 'w', encoding='utf-8') as f:
        f.write('#include <cyto.h>\n#include <cyto_abi.h>\n#include <cyto.hpp>\n#include <cytoc.h>\n#include "digits.h"\nint main() { return 0; }\n')
    code, out = run(os.path.join(place.prefix, 'bin', 'cytoc'), 'examples/digits/digits.onnx', '-o', os.path.join(place.work, 'digits.so'))
    if code:
        return tail(out)
    flags = ['-Wall', '-Wextra', '-pedantic-errors', '-Werror', '-fsyntax-only', '-I' + os.path.join(place.prefix, 'include'), user]
    for compiler in filter(shutil.which, ('g++', 'clang++', 'clang++-19')):
        for more in (['-std=c++17'], ['-std=c++20'], ['-std=c++17', '-fno-exceptions', '-DCYTO_NO_EXCEPTIONS']):
            code, out = run(compiler, *more, *flags)
            if code:
                return '%s: %s' % (compiler, tail(out))
    return None


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    cases = {'example_debug': lambda p: example(p, 'Debug'), 'example_release': lambda p: example(p, 'Release'),
             'rebuilds': rebuilds, 'calibrated': calibrated, 'allocations': allocations, 'refusals': refusals, 'runtimes': static_runtime, 'crossed': crossed, 'headers': headers}
    cases = {name: test for name, test in cases.items() if args.wanted(name)}
    missing = next((tool for tool in ('cmake', 'g++') if not shutil.which(tool)), None)
    if cases and (missing or args.variant != 'release'):
        print('skipped: %s' % ('no ' + missing if missing else 'an installation is of release builds'))
        suite.skipped += len(cases)
    elif cases:
        place = Place(args)
        for name, test in cases.items():
            why = test(place)
            if why and why.startswith('skipped'):
                print('%s %s' % (name, why))
                suite.skipped += 1
            else:
                suite.result(name, why)
    suite.done()


if __name__ == '__main__':
    main()
