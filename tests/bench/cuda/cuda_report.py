# SPDX-License-Identifier: Apache-2.0
"""Turns the lines that tests/bench/cuda/cuda.py and tests/cuda/carry/carried.py write into a section of RESULTS-cuda.md.

Figures are those of one run of the program; ratios are a contender's time over cytoc's of the same rounds.
"""
import json
import os
import re

PLACEHOLDER = 'No device has been measured yet.'


def explained(text):
    """{kernel: {'runs', 'algorithm', 'floor_us'}} of what cytoc --explain prints."""
    rows = {}
    for line in text.splitlines():
        match = re.match(r'(\S+)\s+(\d+)\s+(\S.*?)\s{2,}.*?([\d.]+)\s+([\d.]+)\s+([\d.]+) (?:fma|mem)\b', line)
        if match:
            rows[match[1]] = {'runs': int(match[2]), 'algorithm': match[3], 'floor_us': float(match[6])}
    return rows


def read(path):
    """The lines that are whole: the last one may be cut where the program was ended."""
    rows = []
    if not os.path.exists(path):
        return rows
    for line in open(path, encoding='utf-8', errors='replace'):
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def rate(row):
    if not row['us']:  # a mock's clock
        return ''
    if row.get('flop'):
        return '%.0f TFLOP/s' % (row['flop'] / row['us'] / 1e6)
    if row.get('bytes'):
        return '%.0f GB/s' % (row['bytes'] / row['us'] / 1e3)
    return '%.2f us a launch' % (row['us'] / row['launches']) if row.get('launches') else ''


def speed(rows):
    """Lines of the table."""
    lines = ['| case | contender | us, cold | least | rate | ratio | us, by the clock | ratio | error |',
             '|---|---|---:|---:|---:|---:|---:|---:|---:|']
    ours = {(r['case'], r['part']): r for r in rows if r['contender'] == 'cytoc'}
    for r in rows:
        base = ours.get((r['case'], r['part']))
        lines.append('| %s | %s | %.1f | %.1f | %s | %s | %.1f | %s | %s |' % (
            r['case'], r['contender'], r['us'], r['min_us'], rate(r), '%.2f' % (r['us'] / base['us']) if base and base['us'] else '',
            r['wall_us'], '%.2f' % (r['wall_us'] / base['wall_us']) if base and base['wall_us'] else '',
            '' if r['error'] is None else '%.1e' % r['error']))
    return lines


def kernels(rows):
    lines = ['| case | kernel | algorithm | us | floor us | floor % |', '|---|---|---|---:|---:|---:|']
    for r in rows:
        floor = r.get('floor_us', 0) * r.get('runs', 1)
        lines.append('| %s | %s | %s | %.1f | %s | %s |' % (r['case'], r['name'], r.get('algorithm', ''), r['us'], '%.1f' % floor if floor else '',
                                                            '%.0f' % (100 * floor / r['us']) if floor and r['us'] else ''))
    return lines


def section(rows):
    of = {}
    for row in rows:
        of.setdefault(row.get('kind'), []).append(row)
    head = next(iter(of.get('machine', [{}])))
    text = ['## %s, %s' % (head.get('date', 'unknown date'), head.get('device', 'unknown device')), '',
            '%s; %s. Clocks (SM MHz, memory MHz, degrees, watts) at the start: %s.' % (
                head.get('torch', ''), head.get('arch', ''), head.get('clocks', '') or 'not known'), '']
    for part in of.get('part', []):
        text.append('- %s: %s' % (part['name'], part['text']))
    for kind, table, heading in (('speed', speed, 'Speed'), ('kernel', kernels, 'Kernels beside the floors of `--explain`')):
        if of.get(kind):
            text += ['', '### ' + heading, ''] + table(of[kind])
    if of.get('failure'):
        text += ['', '### What did not run, or was wrong', '']
        text += ['- %s: %s' % (' '.join(filter(None, (r.get('case'), r.get('contender')))), r['why'].strip().replace('\n', '; ')[:400])
                 for r in of['failure']]
    return '\n'.join(text) + '\n'


def write(path, results):
    """Adds the section; returns an exit code."""
    rows = read(path)
    if not rows:
        print('%s has no results' % path)
        return 1
    try:
        with open(results, encoding='utf-8') as f:
            lines = [line for line in f if not line.startswith(PLACEHOLDER)]
    except FileNotFoundError:
        lines = ['# Speed on CUDA devices\n']
    with open(results, 'w', encoding='utf-8') as f:
        f.write(''.join(lines).rstrip() + '\n\n' + section(rows))
    return 0
