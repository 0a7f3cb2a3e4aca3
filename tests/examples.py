# SPDX-License-Identifier: Apache-2.0
"""Builds and checks every example: `make check` in each folder of examples/ that has a Makefile; and one of them with
what `make install` installs.

Out: the closing line; an example passes when its make does.
"""
import glob
import importlib.util
import os
import re
import shutil
import sys
import tempfile

import lib


def installed(args, prefix):
    """Installs into the empty folder prefix; compiles models and applications by what is there. None, or a reason."""
    variant = {'asan': ['SAN=1'], 'tsan': ['SAN=thread']}.get(args.variant, [])
    library, loaded, embedded, bin, lib_folder = (os.path.join(prefix, name)
                                                  for name in ('digits.so', 'loaded', 'embedded', 'bin', 'lib'))
    environment = {**os.environ, 'PKG_CONFIG_PATH': os.path.join(lib_folder, 'pkgconfig'), 'LD_LIBRARY_PATH': lib_folder}
    archive = os.path.join(lib_folder, 'libcyto.a')
    cc = ['sh', '-ec', 'cc %s "$0" -o "$1" $(pkg-config --cflags $2) $3 $(pkg-config --libs $2)' % compiler_flags(args)]
    digits = ['examples/digits/digits.onnx', 'examples/digits/digits.bin']
    needed = {loaded: ['libcyto.so.0'], embedded: ['libcyto.so.0', 'libcytoc.so.0']}
    for command in (['make', '--no-print-directory', 'install', 'PREFIX=' + prefix, *variant],
                    [os.path.join(bin, 'cytoc'), digits[0], '-o', library],
                    [*cc, 'examples/loaded/main.c', loaded, 'cyto', archive], [loaded, library],
                    [*cc, 'examples/loaded/main.c', loaded, 'cyto', ''], [loaded, library],
                    [*cc, 'examples/embedded/embedded.c', embedded, 'cytoc cyto', ''], [embedded, *digits], *plugin(args, lib_folder)):
        code, out, err = lib.run(command, env=environment)
        if code:
            return lib.reason(err or out, code)
    for program, names in needed.items():
        out = lib.run(['readelf', '-d', program])[1]
        if [name for name in names if '[%s]' % name not in out]:
            return '%s does not need %s' % (program, ' and '.join(names))
    return exports(lib_folder)


def plugin(args, folder):
    """What runs a model by the installed plugin for ONNX Runtime."""
    if args.variant != 'release' or not importlib.util.find_spec('onnxruntime'):
        return []
    library, model = os.path.join(folder, 'libcytoc_onnxruntime.so'), 'examples/digits/digits.onnx'
    return [[sys.executable, 'tests/onnxruntime/scenario.py', 'compile', library, model]]


def exports(folder):
    """What the shared libraries export is declared in their headers, and the other way round. None, or a reason."""
    for name, headers in (('cyto', ('runtime/cyto.h', 'runtime/cyto_pipeline.h')), ('cytoc', ('tools/driver/cytoc.h',))):
        declared = set()
        for header in headers:
            with open(header) as f:
                declared |= set(re.findall(r'_API\s[^;(]*?\b(%s_\w+)\(' % name, f.read()))
        out = lib.run(['nm', '-D', '--defined-only', os.path.join(folder, 'lib%s.so' % name)])[1]
        found = {line.split()[-1] for line in out.splitlines() if line.split()[-2] != 'A'}
        if found != declared or not declared:
            return 'lib%s.so exports other names than %s: %s' % (name, ' and '.join(headers), ' '.join(sorted(found ^ declared)))
    return None


def compiler_flags(args):
    return {'asan': '-fsanitize=address,undefined', 'tsan': '-fsanitize=thread'}.get(args.variant, '')


def on_mocks(args, flags, environment):
    """examples/cuda on the mocks of tests/cuda, which are found and compile kernels from the root of the repository."""
    mock, out = os.path.join(args.build, 'tests', 'cuda', 'mock'), os.path.join(args.build, 'examples', 'cuda')
    program, library = os.path.join(out, 'cuda'), os.path.join(out, 'digits.so')
    environment = {**environment, 'CUDA_HOME': mock, 'CYTO_CUDNN': '', 'CYTO_CUBLASLT': '', 'CY_MOCK_CAPABILITY': '80'}
    code, text, err = lib.run(['make', '--no-print-directory', '-C', 'examples/cuda', program, library, 'BUILD=' + args.build, 'CC=' + flags,
                               'CUDA_LIB=' + mock, 'TARGET=sm_80'], env=environment)
    if not code:
        code, text, err = lib.run([program, library], env={**environment, 'LD_LIBRARY_PATH': mock})
    if code:
        return lib.reason(err or text, code)
    return None if re.search(r"memory by the application's allocator.*image 2: score of 0 is \S+\nthe context took at most [1-9]\d+ bytes",
                             text, re.S) else 'it printed %.500r' % text


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    flags = compiler_flags(args)
    for makefile in sorted(glob.glob('examples/*/Makefile')):
        folder = os.path.dirname(makefile)
        if args.wanted(folder):
            environment = {k: v for k, v in os.environ.items() if not k.startswith('MAKE') and k != 'MFLAGS'}
            cc = '%s %s' % (os.environ.get('CC', 'cc'), flags)
            if folder == 'examples/cuda':
                suite.result(folder, on_mocks(args, cc, environment))
                continue
            code, out, err = lib.run(['make', '--no-print-directory', '-C', folder, 'check', 'BUILD=' + args.build, 'CC=' + cc],
                                     env=environment)
            suite.result(folder, lib.reason(err or out, code) if code else None)
    if args.wanted('install') and not shutil.which('pkg-config'):
        suite.skip('install', 'there is no pkg-config')
    elif args.wanted('install'):
        with tempfile.TemporaryDirectory(prefix='cyto-install-') as prefix:
            suite.result('install', installed(args, prefix))
    suite.done('examples')


if __name__ == '__main__':
    main()
