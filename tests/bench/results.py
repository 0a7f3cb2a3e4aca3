# SPDX-License-Identifier: Apache-2.0
"""What was measured, by CPU: RESULTS.md, which keeps the newest figures of each pair of contenders, and the files of other
benchmarks, RESULTS-*.md, which keep the newest section of each CPU.

In:  these files; rows of cyto-bench's --json, or a section's text.
Out: these files. A row of RESULTS.md is one run of two contenders, ours and another, that took turns: figures of one row
     may be compared, those of two rows may come from different hours.
"""
import collections
import datetime
import os
import re
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, 'results')
PATH = os.path.join(FOLDER, 'RESULTS.md')
COMPILED = 'compiled -O3'

COLUMNS = ['network', 'threads', 'beside', 'ours: ms', 'its ms', 'speed', 'load: ms', 'its ms', 'peak: MB', 'its MB',
           'size: KB', 'its KB', 'date']
HEAD = """# Speed beside other frameworks

Written by `tests/bench/run.py`: the newest figures of each network on each CPU. Milliseconds per run, batch 1; load: until
a model can run; peak: memory of the process; size: of the file. Every figure is the median of five processes, which took
turns with the other contender's in one run; speed: its time over ours.
"""

Pair = collections.namedtuple('Pair', 'ours its load its_load peak its_peak size its_size date')


def cpu_name(cytoc):
    """What the system and LLVM call this CPU."""
    with open('/proc/cpuinfo', encoding='utf-8') as f:
        name = re.search(r'model name\s*: (.*)', f.read())
    version = subprocess.run([cytoc, '--version'], capture_output=True, text=True, check=True).stdout
    return '%s (%s)' % (name[1].strip() if name else 'CPU', re.search(r'native \((\S+)\)', version)[1])


def put_section(name, head, cytoc, text):
    """In RESULTS-name.md, in the place of an older one of this CPU. head: what stands above all sections."""
    path, cpu = os.path.join(FOLDER, 'RESULTS-%s.md' % name), cpu_name(cytoc)
    sections = []
    if os.path.exists(path):
        with open(path, encoding='utf-8') as f:
            sections = re.split(r'^## ', f.read(), flags=re.M)[1:]
    sections = [s for s in sections if not s.startswith(cpu + ',')] + ['%s, %s\n\n%s\n' % (cpu, datetime.date.today(), text)]
    with open(path, 'w', encoding='utf-8') as f:
        f.write('\n## '.join([head, *(s.strip() + '\n' for s in sorted(sections))]))


def put_table(name, title, what, heading, text):
    """In RESULTS-name.md, between the marks of the table `what`; what others have written there stays."""
    path, (begin, end) = os.path.join(FOLDER, 'RESULTS-%s.md' % name), ['<!-- %s:%s -->' % (what, side) for side in ('begin', 'end')]
    old = ''
    if os.path.exists(path):
        with open(path, encoding='utf-8') as f:
            old = f.read()
    if begin not in old:
        old = (old or '# %s\n' % title) + '\n## %s\n\n%s\n%s\n' % (heading, begin, end)
    before, after = old[:old.index(begin) + len(begin)], old[old.index(end):]
    with open(path, 'w', encoding='utf-8') as f:
        f.write(before + '\n' + text + '\n' + after)


def markdown(rows):
    """A table; the first of the rows are headings."""
    lines = ['| %s |' % ' | '.join(row) for row in rows]
    return '\n'.join([lines[0], '|---|' + (len(rows[0]) - 1) * '---:|', *lines[1:]])


def read():
    """{(CPU, network, threads, contender): Pair}"""
    found, cpu = {}, None
    if not os.path.exists(PATH):
        return found
    with open(PATH, encoding='utf-8') as f:
        for line in f:
            if line.startswith('## '):
                cpu = line[3:].strip()
            cells = [c.strip() for c in line.strip().strip('|').split('|')]
            if len(cells) == len(COLUMNS) and cells[1].isdigit():
                numbers = [float(c) for c in cells[3:5] + cells[6:12]]
                found[cpu, cells[0], int(cells[1]), cells[2]] = Pair(*numbers, cells[12])
    return found


def write(found):
    with open(PATH, 'w', encoding='utf-8') as f:
        f.write(HEAD)
        for cpu in sorted({key[0] for key in found}):
            f.write('\n## %s\n\n| %s |\n|---|---:|---|%s\n' % (cpu, ' | '.join(COLUMNS), 9 * '---:|' + '---|'))
            for (where, network, threads, contender), p in sorted(found.items()):
                if where == cpu:
                    f.write('| %s | %d | %s | %.4g | %.4g | %.2fx | %.2f | %.2f | %.1f | %.1f | %.0f | %.0f | %s |\n' %
                            (network, threads, contender, p.ours, p.its, p.its / p.ours, *p[2:]))


def merge(rows, cytoc):
    """Puts rows of cyto-bench's --json in the place of older ones."""
    found, cpu, today = read(), cpu_name(cytoc), str(datetime.date.today())
    measured = {(r['model'], r['threads'], r['contender']): r for r in rows if 'median' in r}
    for (network, threads, contender), its in measured.items():
        ours = measured.get((network, threads, COMPILED))
        if ours and contender != COMPILED:
            pair = [(ours['median'][field], its['median'][field]) for field in ('median_ms', 'load_ms', 'peak_kb')]
            pair[2] = [kb / 1024 for kb in pair[2]]
            found[cpu, network, threads, contender] = Pair(*pair[0], *pair[1], *pair[2], ours['size_kb'], its['size_kb'], today)
    write(found)
