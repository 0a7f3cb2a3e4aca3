# SPDX-License-Identifier: Apache-2.0
"""Do the files of a folder call each other in circles? Whoever changes one file of a circle has to know all of them.

In:  the objects of the build, by folder. Out: a line for each circle, with the symbols that close it; the closing line: a
     folder passes when what its files call can be put into an order. What a table of functions calls counts as called by
     the table. The case `itself`: a folder of three files is called in order, and is called a circle with one call more.
"""
import glob
import os
import subprocess
import tempfile

import lib

# folder: what in it is left out: what belongs to another system, whose objects lie elsewhere
FOLDERS = {'codegen': (), 'frontend': (), 'ir': (), 'passes': (), 'tools': (), 'runtime': ('runtime/os/os_windows',)}


def symbols(path):
    """(defined, used) external symbols of an object."""
    text = subprocess.run(['nm', '-P', path], check=True, stdout=subprocess.PIPE, text=True).stdout
    rows = [line.split()[:2] for line in text.splitlines() if line]
    return {n for n, kind in rows if kind in 'TDBRVWC'}, {n for n, kind in rows if kind == 'U'}


def circles(edges):
    """Strongly connected components of several nodes, by Tarjan's algorithm. edges: {node: set of nodes}"""
    order, low, stack, found = {}, {}, [], []

    def visit(node):
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in sorted(edges[node]):
            if other not in order:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == order[node]:
            at = stack.index(node)
            part, stack[at:] = stack[at:], []
            found.append(sorted(part))

    for node in sorted(edges):
        if node not in order:
            visit(node)
    return [part for part in found if len(part) > 1]


def object_of(root, path):
    """The object of a source, or None; those that are compiled once more for each architecture lie in its folder, by their name."""
    made = [os.path.join(root, 'obj', path + '.o')] + sorted(glob.glob(os.path.join(root, 'obj', '*', os.path.basename(path) + '.o')))
    return next((one for one in made if os.path.exists(one)), None)


def check(root, folder):
    """Lines about a folder's circles."""
    left_out = FOLDERS.get(folder, ())
    sources = [path for path in glob.glob(os.path.join(folder, '**', '*.c'), recursive=True) if not path.startswith(left_out)]
    found = {path[:-2]: object_of(root, path[:-2]) for path in sources}
    missing = sorted(path for path, made in found.items() if not made)
    if missing:
        yield '%s: not compiled: %s' % (folder, ' '.join(missing))
    objects = {path: symbols(made) for path, made in found.items() if made}
    home = {name: path for path, (defined, _) in objects.items() for name in defined}
    edges = {path: {home[name] for name in used if name in home} - {path} for path, (_, used) in objects.items()}
    for part in circles(edges):
        calls = ['%s -> %s: %s' % (a, b, ' '.join(sorted(n for n in objects[a][1] if home.get(n) == b)))
                 for a in part for b in sorted(edges[a]) if b in part]
        yield '%s: %d files in a circle\n    %s' % (folder, len(part), '\n    '.join(calls))


def circles_of(calls):
    """What check() says of files by name that call each other's functions: {name: names that it calls}."""
    with tempfile.TemporaryDirectory() as folder:
        for name, called in calls.items():
            source = os.path.join(folder, name + '.c')
            with open(source, 'w') as f:
                f.write(''.join('void %s(void);\n' % other for other in called))
                f.write('void %s(void) { %s }\n' % (name, ' '.join(other + '();' for other in called)))
            subprocess.run([*os.environ.get('CC', 'cc').split(), '-c', '-o', source[:-2] + '.o', source], check=True)
        return list(check(folder, folder))


def check_itself():
    """Is a circle found where there is one, and only there? Text of what is wrong, or None."""
    order = circles_of({'top': ('middle', 'bottom'), 'middle': ('bottom',), 'bottom': ()})
    circle = circles_of({'top': ('middle', 'bottom'), 'middle': ('bottom',), 'bottom': ('middle',)})
    if order:
        return 'a circle in files that call in one direction: %s' % order
    if len(circle) != 1 or '2 files in a circle' not in circle[0] or '/top' in circle[0]:
        return 'two files that call each other: %s' % circle
    return None


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    for folder in FOLDERS:
        if args.wanted(folder):
            suite.result(folder, '; '.join(check(args.build, folder)) or None)
    if args.wanted('itself'):
        suite.result('itself', check_itself())
    suite.done()


if __name__ == '__main__':
    main()
