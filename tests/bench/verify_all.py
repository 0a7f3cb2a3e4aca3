# SPDX-License-Identifier: Apache-2.0
"""`cytoc verify` over all of ../shared/models and ../shared/zoo, in one table.

In:  --build DIR; names (regular expressions) to restrict it; --limit MB: leaves out networks of the zoo above it; --options:
     of compiling, such as --int8 (default: none, f32).
Out: lines as they come; with --write, RESULTS-verify.md, which is written anew after each of them. A network of ../shared/models is verified beside the outputs
     recorded with its inputs and, on random inputs, beside ONNX Runtime; one of the zoo, whose weights are made anew here,
     beside ONNX Runtime at its test shapes. Exit code 1: something is beyond the limits.
"""
import glob
import json
import os
import shlex
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import lib
import results
import run as bench_run

HEAD = '''# Is it right? Every network beside a reference

`tests/bench/verify_all.py --write`: `cytoc verify` (docs/verify.md) of ../shared/models and ../shared/zoo. Of each network, the
output that is worst: greatest difference, signal-to-noise ratio, arg-max or equal elements. "Cannot be said": the reference
refuses the model or its inputs, with its words; models called neg_ are there to be refused by us.

What is beyond, and why:

- gpt2_embed_attn_fused: ONNX Runtime does not follow the specification (tests/models/spec.py); `-O0` and `-O3` agree to 92 dB.
- magika_v3_3: ONNX Runtime's results for a batch differ by 45 dB from its own for one row at a time, which ours equal to 107 dB.
- light_squeezenet: its weights are constants, so that all logits are equal and huge; `-O0` and `-O1` keep them equal, and so does ONNX
  Runtime, but not algorithms that add up in another order for another channel. rw_light_squeezenet of the suite `models` is right.
- attention_past_u8s8: the random size of one for `weight_scale`, which the library takes for one for each column; `--dim C=1` says so.
- ppocr_det, style_candy_old: random inputs in [-1, 1) are no images: outputs of 1e-7 beside 0, and normalisation by tiny variances.
  Recorded inputs agree to 114 and 108 dB; algorithms that round more (`--fast-algorithms=off`) have no part in it.
- fcn_resnet50: rounding of 50 layers with random weights, 72 dB; 79 with `--fast-algorithms=off`, where 80 are asked for.
'''


def compile_options():
    """{name: cytoc's options} of networks that need some: those of tests/models."""
    found = {}
    with open(os.path.join(HERE, '..', 'models', 'expected.txt'), encoding='utf-8') as f:
        for line in f:
            name, *words = line.split('#')[0].split() or ['']
            found[name] = [w for w in words if w != '@spec']
    return found


def models(args):
    """(name, reference, cytoc verify's arguments)"""
    options = compile_options()
    for path in sorted(glob.glob(os.path.join(lib.SHARED, 'models', '*', 'model.onnx'))):
        name, refio = os.path.basename(os.path.dirname(path)), os.path.join(os.path.dirname(path), 'refio')
        if not args.wanted(name):
            continue
        if os.path.isdir(refio):
            yield name, 'recorded', [path, '--inputs', refio, '--against', 'reference', *options.get(name, [])]
        yield name, 'ONNX Runtime', [path, '--against', 'ort', *options.get(name, [])]


def zoo(args, folder):
    """Each network lies in the folder only while it is verified."""
    index = os.path.join(lib.SHARED, 'zoo', 'index.json')
    entries = json.load(open(index, encoding='utf-8'))['models'] if os.path.exists(index) else []
    for entry in entries:
        if not args.wanted(entry['name']):
            continue
        path = os.path.join(folder, entry['file'])
        subprocess.run([sys.executable, os.path.join(lib.SHARED, 'zoo', 'materialize.py'),
                        os.path.join(lib.SHARED, 'zoo', entry['file']), path], check=True)
        if args.limit and os.path.getsize(path) > float(args.limit) * 1e6:
            print('%s: %.0f MB, left out' % (entry['name'], os.path.getsize(path) / 1e6), flush=True)
        else:
            yield entry['name'], 'ONNX Runtime', [path, '--against', 'ort', '--random', '1', *bench_run.zoo_options(entry)]
        os.remove(path)


def verdict(code, report, text):
    if code == 0:
        return 'right'
    if code == 1:
        return '**beyond**' if report else '**fails**: ' + lib.reason(text, code)
    return 'cannot be said: ' + lib.reason(text, code)


def row_of(args, folder, name, reference, words):
    """A row of the table, and whether it is bad."""
    path = os.path.join(folder, 'report.json')
    if os.path.exists(path):
        os.remove(path)
    code, out, err = lib.run([args.cytoc, 'verify', *words, *shlex.split(args.options), '--json', path], 1800)
    report = json.load(open(path, encoding='utf-8')) if os.path.exists(path) else None
    cells = ['', '', '', '']
    if report and report.get('outputs'):
        outputs = report['outputs']
        worst = min(outputs, key=lambda o: (o['right'], o.get('snr_db') if o.get('snr_db') is not None else 1e9))
        snr, top = worst.get('snr_db'), worst.get('top', worst.get('equal'))
        cells = [worst['name'], '%.3g' % worst['largest'] if worst.get('largest') is not None else '',
                 '%.1f' % snr if snr is not None else 'equal', '%.2f %%' % (100 * top) if top is not None else '']
    said = verdict(code, report, out + err)
    print('%s (%s): %s %s' % (name, reference, said, ' '.join(cells[1:])), flush=True)
    return '| %s | %s | %s | %s |' % (name, reference, ' | '.join(cells), said.replace('|', '/').replace(lib.SHARED, '..')), code


def closing(counts):
    return '%d right, %d beyond, %d cannot be said' % (counts[0], counts[1], counts[2])


def write(args, rows, counts):
    what = ' with `%s`' % args.options if args.options else ', f32'
    results.put_section('verify', HEAD, args.cytoc, '%d comparisons%s: %s.\n\n| network | beside | worst output | largest | SNR dB | '
                        'top or equal | |\n|---|---|---|---:|---:|---:|---|\n%s\n' % (len(rows), what, closing(counts), '\n'.join(rows)))


def main():
    args = lib.arguments(__doc__, limit={'default': ''}, options={'default': ''}, write={'action': 'store_true'})
    os.environ.setdefault('CYTO_PYTHON', sys.executable)
    folder = os.path.join(args.build, 'bench', 'verify')
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    rows, counts = [], {0: 0, 1: 0, 2: 0}
    for source in models(args), zoo(args, folder):
        for name, reference, words in source:
            row, code = row_of(args, folder, name, reference, words)
            rows.append(row)
            counts[code if code in counts else 1] += 1
            if args.write:
                write(args, rows, counts)
    shutil.rmtree(folder, ignore_errors=True)
    print(closing(counts))
    sys.exit(1 if counts[1] else 0)


if __name__ == '__main__':
    main()
