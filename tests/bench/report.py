# SPDX-License-Identifier: Apache-2.0
"""Writes the speed tables of docs/speed.md and their chart, speed.svg, from the newest figures of each network in RESULTS.md.

In:  RESULTS.md, written by run.py with --against ort, openvino ..; below, ROWS: which networks it shows, and what to
     call them, MACHINES: on which CPUs, where there are figures of all of these, and OTHERS: beside what else.
Out: the lines between its "speed:begin" and "speed:end", and "others:begin" and "others:end"; those of README, which shows
     SHORT_ROWS; tests/bench/speed.svg.
"""
import os
import re

import results

HERE = os.path.dirname(os.path.abspath(__file__))
README = os.path.join(HERE, '..', '..', 'README.md')
PAGE = os.path.join(HERE, '..', '..', 'docs', 'speed.md')

# Name in RESULTS.md: what the page says beside it.
ROWS = {
    'vgg16': '', 'unet2d_labelfree': 'microscopy, 256x256', 'unet3d_monai': '64x64x64', 'ddpm_unet_cifar': '',
    'edsr_baseline_x2': 'super-resolution', 'resnet18': '', 'resnet50': '', 'fcn_resnet50': '', 'densenet121': '',
    'mobilenet_v2': '', 'efficientnet_b0': '', 'convnext_tiny': '', 'yolov5s_like': '', 'yolox_nano': '',
    'face_landmark_mp': '', 'face_landmarks_mp_fp16': '', 'vit_b_16': '', 'tfswa_unet': 'audio separation',
    'bert_base': '128 tokens', 'gpt2_small': '', 'whisper_tiny_encoder': '', 'lstm_tagger': '',
    'silero_vad_v5_ifless': '', 'gtcrn': 'speech enhancement', 'mobilenetv2_qdq': 'int8',
}

# Those that README shows.
SHORT_ROWS = ('resnet50', 'unet2d_labelfree', 'unet3d_monai', 'vit_b_16', 'bert_base', 'tfswa_unet')

# What RESULTS.md has of a CPU's name: what the page says. In the order of columns and bars.
MACHINES = {'znver5': 'AMD Zen 5', 'znver4': 'AMD Zen 4', 'sapphirerapids': 'Intel Sapphire Rapids',
            'znver3': 'AMD Zen 3'}

# Besides ONNX Runtime, as RESULTS.md names them: what the page says.
OTHERS = {'OpenVINO': 'OpenVINO 2026.4', 'PyTorch eager': 'PyTorch 2.15', 'torch.compile': 'torch.compile'}

STYLES = 'abcd'                          # a bar's, for each machine
BAR, GAP, TOP = 7, 1, 56                 # pixels: height of a bar, space between two of a row, height of the head
ROW = len(MACHINES) * (BAR + GAP) + 6    # height of a row
LEFT, SCALE, LONGEST = 190, 105, 4.5     # pixels of names, pixels per 1x, where bars are cut


def newest():
    """{(machine, network, threads, contender): Pair}"""
    return {(re.search(r'\((\w+)\)$', cpu)[1], *rest): pair for (cpu, *rest), pair in results.read().items()}


def times(found, machines):
    """[(network, note, [[Pair at one and at two threads] for each machine])]"""
    return [(name, note, [[found[cpu, name, n, 'ONNX Runtime'] for n in (1, 2)] for cpu in machines])
            for name, note in ROWS.items()]


def number(ms):
    return '%.0f' % ms if ms >= 200 else '%.1f' % ms if ms >= 20 else '%.2f' % ms if ms >= 0.1 else '%.3f' % ms


def table(rows, labels):
    """Two columns for each machine, their figures at one and at two threads."""
    lines = ['| network | ' + ' | '.join('%s: ms | speed' % name for name in labels) + ' |',
             '|---|' + 2 * len(labels) * '---:|']
    for name, note, machines in rows:
        cells = [name + (' (%s)' % note if note else '')]
        for pairs in machines:
            cells += [' / '.join(number(p.ours) for p in pairs), ' / '.join('%.2fx' % (p.its / p.ours) for p in pairs)]
        lines.append('| ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines)


def others(found):
    """Beside other frameworks, one thread: how many times their time is ours."""
    lines = ['| network | CPU | ' + ' | '.join(OTHERS.values()) + ' |', '|---|---|' + len(OTHERS) * '---:|']
    for cpu, machine in MACHINES.items():
        for name, note in ROWS.items():
            pairs = [found.get((cpu, name, 1, other)) for other in OTHERS]
            if any(pairs):
                lines.append('| %s | %s | %s |' % (name + (' (%s)' % note if note else ''), machine, ' | '.join(
                    '%.2fx' % (p.its / p.ours) if p else '' for p in pairs)))
    return '\n'.join(lines)


def bar(y, ratio, style):
    wide = SCALE * min(ratio, LONGEST)
    out = '<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/>' % (style, LEFT, y, wide, BAR)
    return out + '<text x="%.1f" y="%d">%.2f</text>' % (LEFT + wide + 4, y + BAR, ratio)


def chart(rows, labels):
    """Bars of speed over ONNX Runtime's, fastest first."""
    rows = sorted(rows, key=lambda row: -row[2][0][0].its / row[2][0][0].ours)
    high = TOP + 12 + ROW * len(rows)
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="760" height="%d" font-family="sans-serif">' % high,
           '<style>text{font-size:9px;fill:#555}.t{font-size:13px;fill:#222}.n{font-size:12px;fill:#222;text-anchor:end}'
           '.a{fill:#1d4e89}.b{fill:#4a86c0}.c{fill:#8db8df}.d{fill:#c9dff1}.l{stroke:#c0392b;stroke-dasharray:4 3}</style>',
           '<rect width="760" height="%d" fill="#fff"/>' % high,
           '<text class="t" x="12" y="20">Runs per second, ONNX Runtime 1.30 = 1 (batch 1, one thread)</text>']
    for i, (name, style) in enumerate(zip(labels, STYLES)):
        out.append('<rect class="%s" x="%d" y="32" width="10" height="8"/><text class="t" x="%d" y="40">%s</text>' %
                   (style, LEFT + 160 * i, LEFT + 16 + 160 * i, name))
    for i, (name, _, machines) in enumerate(rows):
        y = TOP + ROW * i
        out.append('<text class="n" x="%d" y="%d">%s</text>' % (LEFT - 8, y + ROW // 2, name))
        out += [bar(y + k * (BAR + GAP), pairs[0].its / pairs[0].ours, style)
                for k, (pairs, style) in enumerate(zip(machines, STYLES))]
    out.append('<line class="l" x1="%d" y1="%d" x2="%d" y2="%d"/>' %
               (LEFT + SCALE, TOP - 6, LEFT + SCALE, high - 8))
    return '\n'.join(out + ['</svg>', ''])


def short_table(rows, labels):
    """README's: how many times as fast as ONNX Runtime, on one thread."""
    lines = ['| network | ' + ' | '.join(labels) + ' |', '|---|' + len(labels) * '---:|']
    for name, note, machines in rows:
        if name in SHORT_ROWS:
            lines.append('| %s | %s |' % (name + (' (%s)' % note if note else ''),
                                          ' | '.join('%.2fx' % (p[0].its / p[0].ours) for p in machines)))
    return '\n'.join(lines)


def replace_between(path, tables):
    """Puts each table between the two lines of its name."""
    with open(path, encoding='utf-8') as f:
        text = f.read()
    for mark, lines in tables:
        text, count = re.subn(r'(<!-- %s:begin -->\n).*?(<!-- %s:end -->)' % (mark, mark),
                              lambda m, lines=lines: m[1] + lines + '\n' + m[2], text, flags=re.S)
        if count != 1:
            raise SystemExit('%s: the two lines "%s:begin" and "%s:end" were not found' % (path, mark, mark))
    with open(path, 'w', encoding='utf-8') as f:
        f.write(text)


def main():
    found = newest()
    machines = [cpu for cpu in MACHINES if all((cpu, name, 2, 'ONNX Runtime') in found for name in ROWS)]
    rows, labels = times(found, machines), [MACHINES[cpu] for cpu in machines]
    with open(os.path.join(HERE, 'speed.svg'), 'w', encoding='utf-8') as f:
        f.write(chart(rows, labels))
    replace_between(PAGE, (('speed', table(rows, labels)), ('others', others(found))))
    replace_between(README, [('speed', short_table(rows, labels))])


if __name__ == '__main__':
    main()
