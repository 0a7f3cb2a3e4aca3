# SPDX-License-Identifier: Apache-2.0
"""What each form of code for CPUs brings: switches those of codegen/cpu/forms.def off, one at a time, and measures.

In:  the corpus of tests/same.py, restricted by regular expressions of names; --targets, CPUs; --options, of cytoc, below;
     --forms, names; --no-times: only where a form is used. Libraries for CPUs that this machine is not run, too, if it can.
Out: a line for each network and form whose code differs without it, with the time without it over the time with it: medians
     of processes that took turns. Then a table, a row a form: on how many networks it is used, its gains; with
     --results=FILE it is put there. What gains less than 2 % everywhere does not earn its place.
"""
import argparse
import collections
import math
import os
import re
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import lib
import same

OPTIONS = {'f32': [], 'int8': ['--int8'], 'int4': ['--weights=int4'], 'bf16': ['--bf16']}
EARNS = 1.02


def forms_of(repository='.'):
    """[(name, what)] of the table."""
    with open(os.path.join(repository, 'codegen', 'cpu', 'forms.def'), encoding='utf-8') as f:
        return re.findall(r'^FORM\(\w+, "(\w+)", "([^"]*)"\)', f.read(), re.M)


def concerns(form, option):
    """Integers' forms where there are integers, others where there are floats."""
    if form.startswith('int_few'):
        return option == 'int4'
    return form.startswith('int_') == (option == 'int8') or form in ('cross', 'lookup')


def choice_without(work, names):
    path = os.path.join(work, 'without.txt')
    with open(path, 'w', encoding='utf-8') as f:
        f.writelines('*\t-%s\n' % name for name in names)
    return '--choice=' + path


def code_of(args, work, model, options):
    """The LLVM IR, or None where it does not compile."""
    path = os.path.join(work, 'm.ll')
    code, _, _ = lib.run([os.path.join(args.build, 'cytoc'), model, '-o', path, '--emit=ll', *options], 900)
    if code:
        return None
    with open(path, 'rb') as f:
        return f.read()


def used_forms(args, work, model, options, names):
    """Those without which the code is another."""
    base = code_of(args, work, model, options)
    if base is None or base == code_of(args, work, model, [*options, choice_without(work, names)]):
        return []
    return [n for n in names if base != code_of(args, work, model, [*options, choice_without(work, [n])])]


def gain_of(args, work, model, options, run_options, form):
    """Time without over time with; None where it does not run."""
    libraries = []
    for side, more in (('with', []), ('without', [choice_without(work, [form])])):
        os.makedirs(os.path.join(work, side), exist_ok=True)
        libraries.append(os.path.join(work, side, 'm.so'))
        if same.compile_one(args.build, model, libraries[-1], [*options, *more]):
            return None
    return same.ratio_of((args.build, args.build), libraries, run_options)


def table(forms, used, gains, targets):
    lines = ['| form | what | used | ' + ' | '.join('gain, %s' % t for t in targets) + ' |',
             '|---|---|---|' + '---|' * len(targets)]
    for name, what in forms:
        cells = []
        for t in targets:
            here = {n: g for (f, target, n), g in gains.items() if f == name and target == t}
            if not here:
                cells.append('-')
                continue
            best = max(here, key=here.get)
            mean = math.exp(sum(map(math.log, here.values())) / len(here))
            cells.append('%.2f to %.2f (%s), mean %.2f of %d' % (min(here.values()), here[best], best, mean, len(here)))
        lines.append('| %s | %s | %s | %s |' % (name, what, ', '.join('%s %d' % (t, used[name, t]) for t in targets if used[name, t]) or 'nowhere',
                                              ' | '.join(cells)))
    return '\n'.join(lines)


def report(args, text):
    print(text)
    if args.results:
        with open(args.results, encoding='utf-8') as f:
            head = f.read().split('\n| form |')[0].rstrip()
        with open(args.results, 'w', encoding='utf-8') as f:
            f.write(head + '\n\n' + text + '\n')


def main():
    args = lib.arguments(__doc__, targets={'default': 'native,haswell'}, options={'default': 'f32,int8'},
                         forms={'default': ''}, times={'action': argparse.BooleanOptionalAction, 'default': True},
                         results={'default': ''})
    forms = [f for f in forms_of() if not args.forms or f[0] in args.forms.split(',')]
    work = os.path.join(args.build, 'forms')
    os.makedirs(work, exist_ok=True)
    used, gains, targets = collections.Counter(), {}, args.targets.split(',')
    for name, get, run_options in same.corpus(args, work):
        if not args.wanted(name):
            continue
        model = get()
        for option in args.options.split(','):
            for target in targets:
                options = [*OPTIONS[option], '--target=' + target]
                for form in used_forms(args, work, model, options, [f for f, _ in forms if concerns(f, option)]):
                    label = name if option == 'f32' else '%s --%s' % (name, option)
                    used[form, target] += 1
                    gain = gain_of(args, work, model, options, run_options, form) if args.times else None
                    if gain:
                        gains[form, target, label] = gain
                    print('%s %s %s: %s' % (form, target, label, '%.3f' % gain if gain else 'used'), flush=True)
        if model.startswith(work):
            os.remove(model)
    report(args, table(forms, used, gains, targets))
    poor = [f for f, _ in forms if not any(g >= EARNS for (form, _, _), g in gains.items() if form == f)]
    if args.times:
        print('less than %d %% everywhere: %s' % (round(100 * (EARNS - 1)), ', '.join(poor) or 'none'))


if __name__ == '__main__':
    main()
