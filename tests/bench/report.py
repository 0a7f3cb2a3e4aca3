"""Writes README's speed tables and their picture, speed.svg, from the newest figures of each network in RESULTS.md.

In:  RESULTS.md, written by run.py with --against ort, openvino ..; below, ROWS: which networks README shows, and what to
     call them, MACHINES: on which CPUs, where there are figures of all of these, and OTHERS: beside what else.
Out: the lines between README's "speed:begin" and "speed:end", and "others:begin" and "others:end"; tests/bench/speed.svg.
"""
import os
import re

HERE = os.path.dirname(os.path.abspath(__file__))
README = os.path.join(HERE, '..', '..', 'README.md')

# Name in RESULTS.md: what README says beside it.
ROWS = {
    'vgg16': '', 'unet2d_labelfree': 'microscopy, 256x256', 'unet3d_monai': '64x64x64', 'ddpm_unet_cifar': '',
    'edsr_baseline_x2': 'super-resolution', 'resnet18': '', 'resnet50': '', 'fcn_resnet50': '', 'densenet121': '',
    'mobilenet_v2': '', 'efficientnet_b0': '', 'convnext_tiny': '', 'yolov5s_like': '', 'yolox_nano': '',
    'face_landmark_mp': '', 'face_landmarks_mp_fp16': '', 'vit_b_16': '', 'tfswa_unet': 'audio separation',
    'bert_base': '128 tokens', 'gpt2_small': '', 'whisper_tiny_encoder': '', 'lstm_tagger': '',
    'silero_vad_v5_ifless': '', 'gtcrn': 'speech enhancement', 'mobilenetv2_qdq': 'int8',
}

# How RESULTS.md names the CPU: what README says, and the picture.
MACHINES = {'AMD EPYC': ('AMD EPYC (Zen 3)', 'AVX2'),
            'Intel(R) Xeon(R) Processor': ('Intel Xeon (Sapphire Rapids)', 'AVX-512')}

# Besides ONNX Runtime, as RESULTS.md names them: what README says.
OTHERS = {'OpenVINO': 'OpenVINO 2026.4', 'PyTorch eager': 'PyTorch 2.15', 'torch.compile': 'torch.compile'}

BAR, GAP, ROW = 7, 1, 22                 # pixels: height of a bar, space between the two of a row, height of a row
LEFT, SCALE, LONGEST = 190, 105, 4.5     # pixels of names, pixels per 1x, where bars are cut


def newest():
    """{(CPU, network, threads, contender): (our ms, its ms)}, both of one run; later sections replace earlier ones."""
    found, cpu, ours = {}, None, None
    with open(os.path.join(HERE, 'RESULTS.md'), encoding='utf-8') as f:
        for line in f:
            head = re.match(r'(.*), \d+ CPUs?\. `', line)
            cpu = head[1] if head else cpu
            cells = [c.strip() for c in line.strip().strip('|').split('|')]
            if len(cells) == 11 and cells[2].isdigit() and not cells[4].startswith('not '):  # of cyto-bench, ours first
                ours = float(cells[4]) if cells[3] == 'compiled -O3' else ours
                found[cpu, cells[0], int(cells[2]), cells[3]] = ours, float(cells[4])
    return found


def times(found, machines):
    """[(network, note, [[(our ms, ONNX Runtime's ms) at one and at two threads] for each machine])]"""
    return [(name, note, [[found[cpu, name, n, 'ONNX Runtime'] for n in (1, 2)] for cpu in machines])
            for name, note in ROWS.items()]


def number(ms):
    return '%.0f' % ms if ms >= 200 else '%.1f' % ms if ms >= 20 else '%.2f' % ms if ms >= 0.1 else '%.3f' % ms


def table(rows, labels):
    lines = ['| network | ' + ' | '.join('%s, %d thread%s: ms | speed' % (name, n, 's'[:n > 1])
                                        for name, _ in labels for n in (1, 2)) + ' |',
             '|---|' + 4 * len(labels) * '---:|']
    for name, note, machines in rows:
        cells = [name + (' (%s)' % note if note else '')]
        for ours, theirs in sum(machines, []):
            cells += [number(ours), '%.2fx' % (theirs / ours)]
        lines.append('| ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines)


def others(found):
    """Beside other frameworks, one thread: how many times their time is ours."""
    lines = ['| network | CPU | ' + ' | '.join(OTHERS.values()) + ' |', '|---|---|' + len(OTHERS) * '---:|']
    for cpu, (machine, _) in MACHINES.items():
        for name, note in ROWS.items():
            pairs = [found.get((cpu, name, 1, other)) for other in OTHERS]
            if any(pairs):
                lines.append('| %s | %s | %s |' % (name + (' (%s)' % note if note else ''), machine, ' | '.join(
                    '%.2fx' % (pair[1] / pair[0]) if pair else '' for pair in pairs)))
    return '\n'.join(lines)


def bar(y, ratio, style):
    wide = SCALE * min(ratio, LONGEST)
    out = '<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/>' % (style, LEFT, y, wide, BAR)
    return out + '<text x="%.1f" y="%d">%.2f</text>' % (LEFT + wide + 4, y + BAR, ratio)


def picture(rows, labels):
    """Bars of speed over ONNX Runtime's, fastest first."""
    rows = sorted(rows, key=lambda row: -row[2][0][0][1] / row[2][0][0][0])
    high = 52 + ROW * len(rows)
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="760" height="%d" font-family="sans-serif">' % high,
           '<style>text{font-size:9px;fill:#555}.t{font-size:13px;fill:#222}.n{font-size:12px;fill:#222;text-anchor:end}'
           '.a{fill:#2563a8}.b{fill:#8fb8de}.l{stroke:#c0392b;stroke-dasharray:4 3}</style>',
           '<rect width="760" height="%d" fill="#fff"/>' % high,
           '<text class="t" x="12" y="20">Runs per second, ONNX Runtime 1.30 = 1 (batch 1, one thread)</text>']
    for i, ((_, name), style) in enumerate(zip(labels, 'ab')):
        out.append('<rect class="%s" x="%d" y="12" width="10" height="8"/><text class="t" x="%d" y="20">%s</text>' %
                   (style, 500 + 100 * i, 516 + 100 * i, name))
    for i, (name, _, machines) in enumerate(rows):
        y = 40 + ROW * i
        out.append('<text class="n" x="%d" y="%d">%s</text>' % (LEFT - 8, y + 12, name))
        out += [bar(y + k * (BAR + GAP), theirs / ours, style) for k, ((ours, theirs), style) in
                enumerate(zip([pairs[0] for pairs in machines], 'ab'))]
    out.append('<line class="l" x1="%d" y1="32" x2="%d" y2="%d"/>' % (LEFT + SCALE, LEFT + SCALE, high - 12))
    return '\n'.join(out + ['</svg>', ''])


def main():
    found = newest()
    machines = [cpu for cpu in MACHINES if all((cpu, name, 2, 'ONNX Runtime') in found for name in ROWS)]
    rows, labels = times(found, machines), [MACHINES[cpu] for cpu in machines]
    with open(os.path.join(HERE, 'speed.svg'), 'w', encoding='utf-8') as f:
        f.write(picture(rows, labels))
    with open(README, encoding='utf-8') as f:
        text = f.read()
    for mark, lines in ('speed', table(rows, labels)), ('others', others(found)):
        text, count = re.subn(r'(<!-- %s:begin -->\n).*?(<!-- %s:end -->)' % (mark, mark),
                              lambda m, lines=lines: m[1] + lines + '\n' + m[2], text, flags=re.S)
        if count != 1:
            raise SystemExit('README.md: the two lines "%s:begin" and "%s:end" were not found' % (mark, mark))
    with open(README, 'w', encoding='utf-8') as f:
        f.write(text)


if __name__ == '__main__':
    main()
