# SPDX-License-Identifier: Apache-2.0
"""Do builder calls in the compiler's sources leave open in which order their arguments are evaluated (ir/order.h)?

In:  the C sources of the compiler. Out: a line for each call with two arguments that make something, one of which
     should get a name first; the closing line.

It reads text: a maker is a function that returns one of the handles below, or a macro that calls one; calls of macros that
set the order are left out.
"""
import glob
import os
import re

import lib

FOLDERS = ('frontend', 'ir', 'passes', 'codegen')
HANDLES = 'LLVMValueRef|V|cy_expr|cy_val|cy_node|cy_var|cy_local|cy_karg'
# what they return hangs on their arguments alone, whenever they are called
CONSTANTS = {'cy_i64', 'cy_i32', 'cy_splatf', 'cy_zeros', 'splat_i32', 'int_like', 'real_like', 'minus_infinity'}
FUNCTION = re.compile(r'^(static )?(?:inline |const )*(?:%s) \(?(\w+)\)?\(' % HANDLES, re.M)
MACRO = re.compile(r'^#define (\w+)\([^)]*\)((?:\\\n|.)*)', re.M)
CALL = re.compile(r'\b(\w+)\(')
NO_CALLS = {'if', 'for', 'while', 'switch', 'return', 'sizeof', 'defined'}


def read(path):
    """A source without comments and what is in its strings; lines keep their numbers."""
    with open(path, encoding='utf-8') as f:
        text = f.read()
    blank = lambda match: re.sub(r'[^\n]', ' ', match.group())
    return re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)


def arguments(text, at):
    """Those of the call whose parenthesis is open before `at`."""
    found, depth, start = [], 1, at
    while at < len(text):
        depth += (text[at] in '([{') - (text[at] in ')]}')
        if not depth or depth == 1 and text[at] == ',':
            found.append(text[start:at])
            start = at + 1
        if not depth:
            break
        at += 1
    return found


def names(texts):
    """(makers, calls whose order is set) of some sources."""
    makers, ordered = set(), {'CY_LAST_FIRST', 'CY_LAST_FIRST3'}
    macros = [match.groups() for text in texts for match in MACRO.finditer(text)]
    for text in texts:
        makers.update(match.group(2) for match in FUNCTION.finditer(text))
        makers.update(name for name in CALL.findall(text) if name.startswith('LLVMBuild'))
    for _ in range(3):  # macros of macros of macros
        for name, body in macros:
            called = set(CALL.findall(body))
            if called & ordered:
                ordered.add(name)
            if called & (makers | ordered):
                makers.add(name)
    return makers - CONSTANTS, ordered


def check(text, makers, ordered):
    for match in CALL.finditer(text):
        line = text[text.rfind('\n', 0, match.start()) + 1:match.start()]
        if match.group(1) in ordered | NO_CALLS or line.startswith('#define'):
            continue
        making = [a for a in arguments(text, match.end()) if makers & set(CALL.findall(a))]
        if len(making) > 1:
            yield 'line %d: %s(%s): which comes first?' % (
                text.count('\n', 0, match.start()) + 1, match.group(1), ' .. '.join(' '.join(a.split())[:40] for a in making))


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    paths = sorted(path for folder in FOLDERS for path in glob.glob(os.path.join(folder, '**', '*.[ch]'), recursive=True))
    texts = {path: read(path) for path in paths}
    headers = [text for path, text in texts.items() if path.endswith('.h')]
    for path, text in texts.items():
        if args.wanted(path):
            suite.result(path, next(check(text, *names([*headers, text])), None))
    suite.done()


if __name__ == '__main__':
    main()
