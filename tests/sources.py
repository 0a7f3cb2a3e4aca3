# SPDX-License-Identifier: Apache-2.0
"""Rules of the house about files: folders stay small, sources begin alike, what others wrote is named.

In:  the files of the repository, as git lists them, and those that are new. Out: the closing line; a test for each rule. Of what
     suites list without having what they run: that names of no case end them before anything is installed.
"""
import collections
import contextlib
import io
import os
import re
import subprocess
import sys

import lib

FOLDER = 30  # files at most: more are not taken in at a glance
# Folders of data, with what a file is there: runners find cases by their names, and nobody reads such a folder as a whole.
CASES = {'tests/exported': 'a network, as exporters write it', 'tests/passes/attention': 'a graph that the pass gets, with what it makes of it',
         'tests/passes/simplify': 'a graph that the pass gets, with what it makes of it'}
SOURCE = re.compile(r'.*\.(c|h|cpp|hpp|cuh|def|S|py|sh|mk|js|css|ld|toml)|(.*/)?(Makefile|CMakeLists\.txt)')
# Headers that are included where they are wanted, as text.
NO_GUARD = {'codegen/cuda/prelude.cuh', 'codegen/cuda/prelude_matrix.cuh', 'tests/cuda/cases/matrix_cases.h'}
# Suites that run in a Python of their own: what prepares it, and one of their tests.
PYTHONS = {'torch': ('torch_venv.prepare', 'test_export'), 'predict': ('torch_venv.prepare', r'test_tiling\.test_'),
           'ray': ('python_of', 'test_three_nodes'), 'triton': ('find_python', r'test_load\.')}


def listed():
    text = subprocess.run(['git', 'ls-files', '-co', '--exclude-standard'], check=True, stdout=subprocess.PIPE, text=True).stdout
    return sorted(filter(os.path.exists, text.splitlines()))


def read(path):
    with open(path, encoding='utf-8') as f:
        return f.read()


def folder_sizes():
    counts = collections.Counter(os.path.dirname(path) for path in listed())
    large = ['%s has %d files' % pair for pair in sorted(counts.items()) if pair[1] > FOLDER and pair[0] not in CASES]
    gone = sorted(folder for folder in CASES if counts[folder] <= FOLDER)
    if gone:
        large.append('no exception is needed: ' + ' '.join(gone))
    return '%s; %d at most: folders by what files do' % ('; '.join(large), FOLDER) if large else None


def first_lines():
    """A source begins with its licence, behind the line that names its interpreter."""
    wrong = []
    for path in filter(SOURCE.fullmatch, listed()):
        lines = read(path).split('\n')
        if 'SPDX-License-Identifier: ' not in lines[lines[0].startswith('#!')]:
            wrong.append(path)
    return wrong and 'the first line is no SPDX-License-Identifier: ' + ' '.join(wrong) or None


def guards():
    """The guard of a header ends with its name."""
    for path in listed():
        if not re.search(r'\.(h|hpp|cuh)$', path) or path in NO_GUARD:
            continue
        found = re.search(r'^#ifndef (\w+)\n#define \1$', read(path), re.M)
        wanted = re.sub(r'\W', '_', os.path.basename(path)).upper()
        if not found or not ('_' + found.group(1)).endswith('_' + wanted):
            return '%s: guard %s, expected one that ends with %s' % (path, found and found.group(1), wanted)
    return None


def vendored():
    """What setup.py copies from packages of others has a row in THIRD_PARTY.md, and its licence beside it."""
    names = re.findall(r"'([\w.-]+)'\), vendor\)", read('setup.py'))
    for name in names:
        stem = os.path.splitext(name)[0]
        if not re.search(r'^\| %s \|' % re.escape(stem), read('THIRD_PARTY.md'), re.M):
            return 'THIRD_PARTY.md has no row for %s, which is part of wheels' % stem
        if name not in read('python/cytoc/report/NOTICE'):
            return 'python/cytoc/report/NOTICE does not name %s' % name
    return None if names else 'setup.py copies nothing into vendor, or in another way than this test reads'


class Prepares(Exception):
    pass


def prepares(name, *tests):
    """(whether a suite that is asked for these tests prepares its Python, what it prints)"""
    folder = os.path.join(lib.ROOT, 'tests', name)
    module, told, given = lib.load_module(os.path.join(folder, 'run.py')), io.StringIO(), sys.argv
    owner, _, function = PYTHONS[name][0].rpartition('.')
    owner = getattr(module, owner) if owner else module

    def raises(*_):
        raise Prepares

    kept = getattr(owner, function)
    setattr(owner, function, raises)
    sys.argv = [os.path.join(folder, 'run.py'), *tests]
    try:
        with contextlib.redirect_stdout(told):
            module.main()
        return False, told.getvalue()
    except Prepares:
        return True, told.getvalue()
    finally:
        sys.argv = given
        setattr(owner, function, kept)


def names_first():
    """`make check T=NAME` asks suites for names: those that have none end without the packages that their tests import."""
    for name, (_, test) in PYTHONS.items():
        made, text = prepares(name, 'a name of no test')
        if made or text != '0 passed, 0 failed, 0 skipped\n':
            return '%s prepares packages for a name of no test, or says %r' % (name, text)
        if not prepares(name, test)[0] or not prepares(name)[0]:
            return '%s does not find %s' % (name, test)
    return None


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    for test in (folder_sizes, first_lines, guards, vendored, names_first):
        # Other variants leave out the suites that names_first asks.
        if args.wanted(test.__name__) and not (test is names_first and args.variant != 'release'):
            suite.result(test.__name__, test())
    suite.done()


if __name__ == '__main__':
    main()
