# SPDX-License-Identifier: Apache-2.0
"""Measures the example and the shared networks by one run of cyto-bench, and puts the figures into RESULTS.md.

In:  --build DIR; names (regular expressions) to restrict it; --threads, --seconds and --against for cyto-bench;
     ../shared/models with the arguments recorded in meta.json, ../shared/zoo refilled with weights at its test shapes.
Out: the table; tests/bench/results/RESULTS.md, this CPU's rows of these networks replaced; build/bench.json.
"""
import glob
import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import lib
import results

OPTION = {'-s': '--shape', '-r': '--range', '-d': '--dim'}
LEAVE_OUT = ('control-flow', 'strings', 'sequence-optional', 'dtypes', 'functions', 'negative', 'external-data', 'graph-shape')


def models(args):
    """[(path, options)]"""
    for path in sorted(glob.glob('examples/*/*.onnx')):
        if args.wanted(os.path.basename(path)):
            yield path, []
    for path in sorted(glob.glob(os.path.join(lib.SHARED, 'models', '*', 'meta.json'))):
        with open(path, encoding='utf-8') as f:
            meta = json.load(f)
        if args.wanted(meta['name']) and meta['kind'] not in LEAVE_OUT:
            recorded = meta.get('ort_args') or []
            options = [word for pair in zip(recorded[::2], recorded[1::2]) if pair[0] in OPTION
                       for word in (OPTION[pair[0]], pair[1])]
            yield os.path.join(os.path.dirname(path), 'model.onnx'), options


def zoo_options(entry):
    """cyto-bench's options for the sizes that a network of the zoo leaves open, and for the values of its inputs."""
    options = []
    for port in entry['inputs']:
        if any(isinstance(d, str) for d in port['shape']):
            options += ['--shape', '%s=%s' % (port['name'], 'x'.join(map(str, port['test_shape'])))]
        if port['gen'] in ('int', 'uniform', 'perm', 'permprefix') and port['lo'] is not None:
            options += ['--range', '%s=%g:%g' % (port['name'], port['lo'], port['hi'])]
    return options


def zoo(args, folder):
    index = os.path.join(lib.SHARED, 'zoo', 'index.json')
    if not os.path.exists(index):
        return
    with open(index, encoding='utf-8') as f:
        entries = json.load(f)['models']
    for entry in entries:
        if not args.wanted(entry['name']):
            continue
        path = os.path.join(folder, entry['file'])
        subprocess.run([sys.executable, os.path.join(lib.SHARED, 'zoo', 'materialize.py'),
                        os.path.join(lib.SHARED, 'zoo', entry['file']), path], check=True)
        yield path, zoo_options(entry)


def main():
    args = lib.arguments(__doc__, threads={'default': '1,2'}, seconds={'default': '0.5'}, against={'default': 'eager,ort'})
    folder = os.path.join(args.build, 'bench')
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    figures = os.path.join(args.build, 'bench.json')
    command = [os.path.join(args.build, 'cyto-bench'), '--threads', args.threads, '--seconds', args.seconds, '--against',
               args.against, '--json', figures, '--random-dims', '1']
    for path, options in list(models(args)) + list(zoo(args, folder)):
        command += [path, *options]
    if os.path.exists(figures):
        os.remove(figures)
    code = subprocess.run(command).returncode
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.exists(figures):  # models that could not be run do not take the others' figures away
        with open(figures, encoding='utf-8') as f:
            results.merge(json.load(f)['results'], os.path.join(args.build, 'cytoc'))
    sys.exit(code)


if __name__ == '__main__':
    main()
