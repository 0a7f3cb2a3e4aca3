# SPDX-License-Identifier: Apache-2.0
"""Tests written as text graphs: every tests/**/*.txt whose first line starts with "; run:", "; error:" or "; round trip".

Comment lines of the file say what is expected of `cytoc FILE OPTIONS`:
  ; run: OPTIONS         what it is called with (--passes=fuse, --emit=loops ..) besides --verify; it must succeed. Several such
                         lines, several calls; the checks below belong to the nearest one above
  ; check: TEXT          its output has TEXT (blanks count as one), after what the check before it found
  ; check-not: TEXT      its output has no TEXT at all
  ; check-count N: TEXT  its output has TEXT exactly N times
  ; golden               its output is that in FILE's name with .expected for .txt; `make golden` writes it
  ; error: TEXT          (instead of run) reading the file fails, and TEXT stands in the diagnostics
  ; round trip           printing the graph, reading that and printing it again gives the same text
"""
import difflib
import glob
import os
import re
import shlex

import lib


def flat(text):
    return re.sub(r'[ \t]+', ' ', text)


def checked(text, rules, expected_path, update):
    """None, or the first rule that does not hold."""
    at, flat_text = 0, flat(text)
    for kind, want in rules:
        want = flat(want)
        if kind == 'check':
            found = flat_text.find(want, at)
            if found < 0:
                return "no '%s' in the output%s" % (want, '' if want not in flat_text else ' after the checks before it')
            at = found + len(want)
        elif kind == 'check-not' and want in flat_text:
            return "'%s' in the output" % want
        elif kind.startswith('check-count'):
            count = flat_text.count(want)
            if count != int(kind.split()[1]):
                return "%d times '%s' in the output, not %s" % (count, want, kind.split()[1])
        elif kind == 'golden':
            if update:
                with open(expected_path, 'w', encoding='utf-8') as f:
                    f.write(text)
            expected = open(expected_path, encoding='utf-8').read() if os.path.exists(expected_path) else ''
            if expected != text:
                lines = difflib.unified_diff(expected.splitlines(), text.splitlines(), 'expected', 'found', lineterm='', n=0)
                return 'differs from %s: %s' % (os.path.relpath(expected_path, lib.ROOT), ' / '.join(list(lines)[2:7]))
    return None


def parts(path):
    """[(kind, text, rules)]: each run, error or round trip with the rules that belong to it."""
    found = []
    for line in open(path, encoding='utf-8'):
        match = re.match(r'; *(run|error|check|check-not|check-count \d+): *(.*?) *$|; *(golden|round trip) *$', line)
        if not match:
            continue
        kind, text = match.group(1) or match.group(3), match.group(2) or ''
        if kind in ('run', 'error', 'round trip'):
            found.append((kind, text, []))
        elif found:
            found[-1][2].append((kind, text))
    return found


def round_trip(args, path):
    texts, scratch = [], os.path.join(args.build, 'golden.txt')
    for source in (path, scratch):
        code, out, err = lib.run([args.cytoc, source, '--emit=graph', '-O0', '--passes='], timeout=60)
        if code:
            return lib.reason(err, code)
        texts.append(out)
        with open(scratch, 'w', encoding='utf-8') as f:
            f.write(out)
    os.remove(scratch)
    return None if texts[0] == texts[1] else 'printed differently the second time'


def test(args, path, kind, text, rules):
    if kind == 'round trip':
        return round_trip(args, path)
    options = shlex.split(text) + ['--verify'] if kind == 'run' else ['--emit=graph']
    code, out, err = lib.run([args.cytoc, path, *options], timeout=60)
    if kind == 'error':
        if code != 1:
            return 'exit code %d, not 1' % code
        return None if text in err else "no '%s' in: %s" % (text, lib.reason(err, code))
    if code:
        return lib.reason(err, code)
    return checked(out, rules, path[:-len('.txt')] + '.expected', args.update)


def passes():
    """Functions of the passes, from their table; what runs again later is one."""
    with open('passes/passes.def', encoding='utf-8') as f:
        return sorted(set(re.findall(r'^PASS\(\w+, (\w+),', f.read(), re.M)))


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    for name in passes():
        if args.wanted('pass ' + name):
            found = len(glob.glob('tests/passes/%s/*.txt' % name))
            suite.result('pass ' + name, None if found else 'expected graphs in tests/passes/%s, found none' % name)
    for path in sorted(glob.glob('tests/**/*.txt', recursive=True)):
        with open(path, encoding='utf-8', errors='replace') as f:
            if not re.match('; *(run:|error:|round trip)', f.readline()) or not args.wanted(path):
                continue
        for number, (kind, text, rules) in enumerate(parts(path)):
            suite.result('%s %s %s' % (path, kind, text), test(args, path, kind, text, rules))
    suite.done()


if __name__ == '__main__':
    main()
