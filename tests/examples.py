"""Builds and checks every example: `make check` in each folder of examples/ that has a Makefile; and one of them with
what `make install` installs.

Out: the closing line; an example passes when its make does.
"""
import glob
import os
import shlex
import shutil
import tempfile

import lib


def installed(args, prefix):
    """Installs into the empty folder prefix; compiles a model and an application by what is there. None, or a reason."""
    variant = {'asan': ['SAN=1'], 'tsan': ['SAN=thread']}.get(args.variant, [])
    library, program, bin = (os.path.join(prefix, name) for name in ('digits.so', 'loaded', 'bin'))
    pkg_config = ['env', 'PKG_CONFIG_PATH=' + os.path.join(prefix, 'lib', 'pkgconfig'), 'pkg-config', '--cflags', '--libs', 'cyto']
    code, out, err = lib.run(['make', '--no-print-directory', 'install', 'PREFIX=' + prefix, *variant])
    if not code:
        code, out, err = lib.run([os.path.join(bin, 'cytoc'), 'examples/digits/digits.onnx', '-o', library])
    if not code:
        code, out, err = lib.run(pkg_config)
    if not code:
        code, out, err = lib.run(['cc', *compiler_flags(args).split(), 'examples/loaded/main.c', '-o', program, *shlex.split(out)])
    if not code:
        code, out, err = lib.run([program, library])
    return lib.reason(err or out, code) if code else None


def compiler_flags(args):
    return {'asan': '-fsanitize=address,undefined', 'tsan': '-fsanitize=thread'}.get(args.variant, '')


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    flags = compiler_flags(args)
    for makefile in sorted(glob.glob('examples/*/Makefile')):
        folder = os.path.dirname(makefile)
        if args.wanted(folder):
            environment = {k: v for k, v in os.environ.items() if not k.startswith('MAKE') and k != 'MFLAGS'}
            code, out, err = lib.run(['make', '--no-print-directory', '-C', folder, 'check', 'BUILD=' + args.build,
                                      'CC=%s %s' % (os.environ.get('CC', 'cc'), flags)], env=environment)
            suite.result(folder, lib.reason(err or out, code) if code else None)
    if args.wanted('install') and not shutil.which('pkg-config'):
        suite.skip('install', 'there is no pkg-config')
    elif args.wanted('install'):
        with tempfile.TemporaryDirectory(prefix='cyto-install-') as prefix:
            suite.result('install', installed(args, prefix))
    suite.done('examples')


if __name__ == '__main__':
    main()
