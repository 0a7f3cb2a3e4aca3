# SPDX-License-Identifier: Apache-2.0
"""Compares what two versions of cytoc make of a fixed corpus: the bytes of the libraries, and where these differ, their speed.

In:  --base COMMIT, which is built in build/same/COMMIT; ../shared/models and ../shared/zoo where present, tests/exported and the
     examples; regular expressions of names restrict it. --modes f32,int8,bf16,int4,cuda; --no-times leaves timing out.
Out: a line for each library that differs or that only one of the versions makes; with times, the ratio now / base, medians
     of five processes that took turns; which libraries neither version makes, and which were not timed, and why; the closing
     line, in which a library passes when its bytes are equal, and is skipped when it differs or neither version makes it. Exit
     code 1 when a library is missing now, one is more than 3 % slower, or the geometric mean of the ratios is over 1.01.

A change that only moves code leaves every byte. `make same BASE=main~3` runs this.
"""
import argparse
import functools
import glob
import json
import math
import os
import re
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import onnx

import lib

MODES = {'f32': [], 'int8': ['--int8'], 'bf16': ['--bf16'], 'int4': ['--weights=int4'], 'cuda': ['--target=sm_89']}
OPTION = {'-s': '--shape', '-d': '--dim'}
ROUNDS, SLOWER, GEOMEAN = 5, 1.03, 1.01


def build_base(args, commit):
    """The folder of the base's programs."""
    sha = subprocess.run(['git', 'rev-parse', '--verify', commit + '^{commit}'], check=True, stdout=subprocess.PIPE,
                         text=True).stdout.strip()
    tree = os.path.join(args.build, 'same', sha[:12])
    if not os.path.exists(os.path.join(tree, 'Makefile')):
        os.makedirs(tree, exist_ok=True)
        archive = subprocess.run(['git', 'archive', sha], check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(['tar', '-x', '-C', tree], input=archive, check=True)
    print('building %s' % sha[:12], flush=True)
    log = os.path.join(tree, 'same.log')
    with open(log, 'w') as f:
        if subprocess.run(['make', '-C', tree, '-j%d' % os.cpu_count(), 'all'], stdout=f, stderr=f).returncode:
            sys.exit('the base does not build: %s' % log)
    return os.path.join(tree, 'build')


def recorded_options(folder):
    """What a network of ../shared/models needs: sizes of its recorded inputs."""
    with open(os.path.join(folder, 'meta.json'), encoding='utf-8') as f:
        words = json.load(f).get('ort_args') or []
    return [w for flag, value in zip(words[::2], words[1::2]) if flag in OPTION for w in (OPTION[flag], value)]


def sizes_of(dims):
    """Options for dims of the index of tests/exported, where '?' are axes without a name."""
    return [w for name, n in dims.items() for w in ('--dim', '%s=%d' % ('*' if name == '?' else name, n))]


def exported(name, work):
    """A network of tests/exported with weights."""
    path = os.path.join(work, name + '.onnx')
    proto = onnx.load('tests/exported/%s.onnx' % name)
    lib.load_module('tests/exported/run.py').refill_all(proto.graph)
    onnx.save(proto, path)
    return path


def corpus(args, work):
    """[(name, function that gives the model's path, options for running it)]"""
    for path in sorted(glob.glob('examples/*/*.onnx')):
        yield os.path.basename(path)[:-5], lambda path=path: path, []
    with open('tests/exported/index.json', encoding='utf-8') as f:
        entries = sorted(json.load(f), key=lambda e: e['name'])
    for entry in entries:
        yield entry['name'], lambda entry=entry: exported(entry['name'], work), sizes_of(entry['dims'][0])
    for folder in sorted(glob.glob(os.path.join(lib.SHARED, 'models', '*', ''))):
        model = os.path.join(folder, 'model.onnx')
        if os.path.exists(model) and os.path.exists(os.path.join(folder, 'meta.json')):
            yield os.path.basename(folder[:-1]), lambda model=model: model, recorded_options(folder)
    index = os.path.join(lib.SHARED, 'zoo', 'index.json')
    if not os.path.exists(index):
        return
    with open(index, encoding='utf-8') as f:
        entries = json.load(f)['models']
    for entry in entries:
        yield entry['name'], lambda entry=entry: refill(entry, work), \
            [w for port in entry['inputs'] if any(isinstance(d, str) for d in port['shape'])
             for w in ('--shape', '%s=%s' % (port['name'], 'x'.join(map(str, port['test_shape']))))]


def refill(entry, work):
    path = os.path.join(work, entry['file'])
    subprocess.run([sys.executable, os.path.join(lib.SHARED, 'zoo', 'materialize.py'),
                    os.path.join(lib.SHARED, 'zoo', entry['file']), path], check=True, stdout=subprocess.DEVNULL)
    return path


def compile_one(folder, model, library, options):
    code, _, err = lib.run([os.path.join(folder, 'cytoc'), model, '-o', library, '-j', '1', *options], 900)
    return None if code == 0 else lib.reason(err, code)


def same_file(a, b):
    return subprocess.run(['cmp', '-s', a, b]).returncode == 0


@functools.cache
def open_sizes(folder):
    """What makes sizes that are left open 1; older versions took them so unasked, and do not know the option."""
    return ['--random-dims', '1'] if '--random-dims' in lib.run([os.path.join(folder, 'cyto-run'), '--help'], 60)[1] else []


def median_ms(folder, library, options, repeat=20):
    """(ms, None), or (None, why it does not run)"""
    code, out, err = lib.run([os.path.join(folder, 'cyto-run'), library, '--random', '1', *open_sizes(folder), '--repeat', str(repeat),
                              '--threads', '1', *options], 900)
    found = re.search(r'median ([0-9.e+-]+) ms', out)
    if code == 0 and found and float(found.group(1)):
        return float(found.group(1)), None
    return None, lib.reason(err, code) if code else 'no time that can be measured'


def ratio_of(folders, libraries, options):
    """(time of now over base, None), or (None, why it does not run on random inputs)"""
    ratios = []
    for _ in range(ROUNDS):
        (base, why), (now, why_now) = (median_ms(f, l, options) for f, l in zip(folders, libraries))
        if why or why_now:
            return None, why or why_now
        ratios.append(now / base)
    return statistics.median(ratios), None


def compare_mode(args, folders, name, model, mode, work):
    """A tuple: name, what differs (None: nothing), the two libraries where both exist and differ, whether it is missing now, why
    neither version makes it."""
    libraries = []
    for side in ('base', 'now'):
        os.makedirs(os.path.join(work, side, mode), exist_ok=True)
        libraries.append(os.path.join(work, side, mode, name + '.so')) # the file's name is part of the library
    whys = [compile_one(f, model, l, MODES[mode]) for f, l in zip(folders, libraries)]
    label = name + '.' + mode
    if whys[0] and whys[1]:
        return label, None, None, False, whys[1]
    if whys[0] or whys[1]:
        return label, ('refused now: %s' % whys[1]) if whys[1] else 'compiled now, refused by the base', None, bool(whys[1]), None
    if same_file(*libraries):
        for l in libraries:
            os.remove(l)
        return label, None, None, False, None
    sizes = [os.path.getsize(l) for l in libraries]
    return label, 'differs, %d bytes, %d before' % (sizes[1], sizes[0]), libraries, False, None


def tell_left_out(title, left_out):
    """left_out: [(name, why)]"""
    if left_out:
        print('%s:' % title)
    for name, why in left_out:
        print('  %s: %s' % (name, why))


class Tally:
    def __init__(self):
        self.equal = self.different = self.worse = 0
        self.ratios, self.unmade, self.untimed = [], [], []

    def take(self, args, folders, options, result):
        """What compare_mode() gives, after which the libraries are gone."""
        label, what, libraries, bad, refused = result
        self.equal += not what and not refused
        self.different += bool(what)
        self.worse += bad
        self.unmade += [(label, refused)] * bool(refused)
        if libraries and args.times and not label.endswith('.cuda'):
            ratio, why = ratio_of(folders, libraries, options)
            self.untimed += [(label, why)] * bool(why)
            if ratio:
                self.ratios.append(ratio)
                self.worse += ratio > SLOWER
                what += ', time %.3f of before' % ratio
        if what:
            print('%s: %s' % (label, what), flush=True)
        for l in libraries or ():
            os.remove(l)

    def close(self):
        tell_left_out('neither version makes', self.unmade)
        tell_left_out('not timed', self.untimed)
        if self.ratios:
            mean = math.exp(sum(map(math.log, self.ratios)) / len(self.ratios))
            self.worse += mean > GEOMEAN
            print('geometric mean of %d ratios: %.4f' % (len(self.ratios), mean))
        print('%d passed, %d failed, %d skipped' % (self.equal, self.worse, self.different + len(self.unmade)))


def main():
    args = lib.arguments(__doc__, base={'required': True}, modes={'default': ','.join(MODES)},
                         times={'action': argparse.BooleanOptionalAction, 'default': True})
    folders = (build_base(args, args.base), args.build)
    work = os.path.join(args.build, 'same', 'work')
    modes = [f for f in args.modes.split(',') if f]
    for f in modes:
        if f not in MODES:
            sys.exit('unknown mode %r: expected some of %s' % (f, ','.join(MODES)))
    os.makedirs(work, exist_ok=True)
    tally = Tally()
    for name, get, options in corpus(args, work):
        if not args.wanted(name):
            continue
        model = get()
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            done = list(pool.map(lambda mode: compare_mode(args, folders, name, model, mode, work), modes))
        for result in done:
            tally.take(args, folders, options, result)
        if model.startswith(work):
            os.remove(model)
    tally.close()
    sys.exit(1 if tally.worse else 0)


if __name__ == '__main__':
    main()
