"""Builds and checks every example: `make check` in each folder of examples/ that has a Makefile.

Out: the closing line; an example passes when its make does.
"""
import glob
import os

import lib


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    flags = {'asan': '-fsanitize=address,undefined', 'tsan': '-fsanitize=thread'}.get(args.variant, '')
    for makefile in sorted(glob.glob('examples/*/Makefile')):
        folder = os.path.dirname(makefile)
        if args.wanted(folder):
            environment = {k: v for k, v in os.environ.items() if not k.startswith('MAKE') and k != 'MFLAGS'}
            code, out, err = lib.run(['make', '--no-print-directory', '-C', folder, 'check', 'BUILD=' + args.build,
                                      'CC=%s %s' % (os.environ.get('CC', 'cc'), flags)], env=environment)
            suite.result(folder, lib.reason(err or out, code) if code else None)
    suite.done('examples')


if __name__ == '__main__':
    main()
