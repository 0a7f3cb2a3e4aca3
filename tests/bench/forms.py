# SPDX-License-Identifier: Apache-2.0
"""What each form of code for CPUs brings: switches those of codegen/cpu/forms.def off, one at a time, and measures.

In:  the corpus of tests/same.py, restricted by regular expressions of names; --targets, CPUs; --options, of cytoc, below;
     --forms, names; --phase=compile only makes the libraries, each with the form and without it; --phase=measure runs those that
     have not been measured, for --seconds at most, and goes on at the next call: it compiles nothing, so that the machine can be kept
     quiet; --phase=report prints what there is. Without --phase, all of it. Libraries for CPUs that this machine is not run, too, if it can.
Out: a line for each network and form whose code differs without it, with the time without it over the time with it: medians
     of processes that took turns. Then a table, a row a form: on how many networks it is used, its gains; with
     --results=FILE it is put there. What gains less than 2 % everywhere does not earn its place.
"""
import collections
import json
import math
import os
import re
import shutil
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import lib
import same

OPTIONS = {'f32': [], 'int8': ['--int8'], 'int4': ['--weights=int4'], 'bf16': ['--bf16']}
EARNS, ROUNDS, PROCESS_MS = 1.02, 7, 300


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


def compile_sides(args, work, folder, model, options, forms):
    """{form, '' for all of them: library}, of those that compile; nothing where the whole does not."""
    libraries = {}
    for form in ('', *forms):
        path = os.path.join(folder, form or 'with', 'm.so')
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if not same.compile_one(args.build, model, path, [*options, *([choice_without(work, [form])] if form else [])]):
            libraries[form] = path
    return libraries if '' in libraries else {}


def compile_network(args, work, name, model, run_options, forms):
    """Rows of the plan: {label, target, libraries, options}."""
    for option in args.options.split(','):
        for target in args.targets.split(','):
            options = [*OPTIONS[option], '--target=' + target]
            used = used_forms(args, work, model, options, [f for f, _ in forms if concerns(f, option)])
            label = name if option == 'f32' else '%s --%s' % (name, option)
            libraries = compile_sides(args, work, os.path.join(work, '%s.%s.%s' % (name, option, target)), model, options, used) if used else {}
            print('%s %s: %s' % (label, target, ' '.join(used) or '-'), flush=True)
            yield {'label': label, 'target': target, 'libraries': libraries, 'options': run_options}


def compile_all(args, work, forms):
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    plan = []
    for name, get, run_options in same.corpus(args, work):
        if args.wanted(name):
            model = get()
            plan += [row for row in compile_network(args, work, name, model, run_options, forms) if row['libraries']]
            if model.startswith(work):
                os.remove(model)
    store(work, 'plan.json', plan)


def store(work, name, value):
    with open(os.path.join(work, name), 'w', encoding='utf-8') as f:
        json.dump(value, f, indent=1)


def load(work, name, otherwise):
    path = os.path.join(work, name)
    if not os.path.exists(path):
        return otherwise
    with open(path, encoding='utf-8') as f:
        return json.load(f)


def gains_of(args, row):
    """{form: time without over time with} of processes that take turns; nothing where it does not run on random inputs."""
    once, _ = same.median_ms(args.build, row['libraries'][''], row['options'], 2)
    if not once:
        return {}
    repeat = max(3, min(1000, round(PROCESS_MS / once)))
    rounds = [{form: same.median_ms(args.build, library, row['options'], repeat)[0] for form, library in row['libraries'].items()}
              for _ in range(ROUNDS)]
    return {form: statistics.median(times[form] / times[''] for times in rounds) for form in row['libraries']
            if form and all(times[form] for times in rounds)}


def measure(args, work):
    """Whether all of the plan is measured."""
    until = time.time() + float(args.seconds)
    gains = load(work, 'gains.json', {})
    for row in load(work, 'plan.json', []):
        key = row['label'] + ' ' + row['target']
        if key in gains:
            continue
        if time.time() > until:
            print('not all are measured yet: the next is %s' % key)
            return False
        gains[key] = gains_of(args, row)
        store(work, 'gains.json', gains)
        print('%s: %s' % (key, ' '.join('%s %.3f' % pair for pair in gains[key].items()) or 'does not run'), flush=True)
    return True


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


def report(args, work, forms):
    used, gains, measured = collections.Counter(), {}, load(work, 'gains.json', {})
    for row in load(work, 'plan.json', []):
        here = measured.get(row['label'] + ' ' + row['target'], {})
        for form in row['libraries']:
            used[form, row['target']] += 1
            if form in here:
                gains[form, row['target'], row['label']] = here[form]
    text = table(forms, used, gains, args.targets.split(','))
    print(text)
    if args.results:
        with open(args.results, encoding='utf-8') as f:
            head = f.read().split('\n| form |')[0].rstrip()
        with open(args.results, 'w', encoding='utf-8') as f:
            f.write(head + '\n\n' + text + '\n')
    poor = [f for f, _ in forms if not any(g >= EARNS for (form, _, _), g in gains.items() if form == f)]
    print('less than %d %% everywhere: %s' % (round(100 * (EARNS - 1)), ', '.join(poor) or 'none'))


def main():
    args = lib.arguments(__doc__, targets={'default': 'native,haswell'}, options={'default': 'f32,int8'},
                         forms={'default': ''}, phase={'default': '', 'choices': ('', 'compile', 'measure', 'report')},
                         seconds={'default': 'inf'}, results={'default': ''}, work={'default': 'forms'})
    forms = [f for f in forms_of() if not args.forms or f[0] in args.forms.split(',')]
    work = os.path.join(args.build, args.work)
    if args.phase in ('', 'compile'):
        compile_all(args, work, forms)
    if args.phase in ('', 'measure') and not measure(args, work):
        sys.exit(1)
    if args.phase in ('', 'report'):
        report(args, work, forms)


if __name__ == '__main__':
    main()
