# SPDX-License-Identifier: Apache-2.0
"""What ONNX Runtime adds to a run when cytoc is its provider.

In:  digits of examples, networks of ../shared/zoo; the release build; onnxruntime of build/venv.
Out: rows of Markdown: microseconds of a run by cytoc's own Python interface with bound buffers, through the plugin with bound
     buffers, and by ONNX Runtime's own CPU provider; what the plugin adds, beside the 3 % + 10 us that it may. --update writes them
     into tests/bench/results/RESULTS-python.md.

The three take turns, ROUNDS times, in one process, behind a pause in which idle threads fall asleep; medians of the rounds, each the
median of the runs of a fifth of a second.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path[:0] = [TESTS, os.path.join(TESTS, 'onnxruntime'), os.path.join(os.path.dirname(TESTS), 'python')]
import lib

NETWORKS = ('dlrm', 'squeezenet1_1', 'mobilenet_v3_large', 'resnet18', 'whisper_tiny_encoder')
ROUNDS, SECONDS, PAUSE = 7, 0.2, 0.03
MARK = '<!-- onnxruntime-plugin:%s -->'


def median_of_block(call):
    times, end = [], time.perf_counter() + SECONDS
    while True:
        start = time.perf_counter()
        call()
        stop = time.perf_counter()
        times.append(stop - start)
        if stop > end:
            return statistics.median(times)


def in_turns(calls):
    """Medians, in microseconds, of what takes turns."""
    rounds = []
    for call in calls:
        call()
    for _ in range(ROUNDS):
        row = []
        for call in calls:
            time.sleep(PAUSE)
            row.append(1e6 * median_of_block(call))
        rounds.append(row)
    return [statistics.median(column) for column in zip(*rounds)]


def by_session(s, feeds, outputs):
    binding = s.io_binding()
    for name, x in feeds.items():
        binding.bind_input(name, 'cpu', 0, x.dtype, x.shape, x.ctypes.data)
    for name, y in outputs.items():
        binding.bind_output(name, 'cpu', 0, y.dtype, y.shape, y.ctypes.data)
    return lambda: s.run_with_iobinding(binding)


def by_model(m, feeds, outputs):
    binding = m.bind()
    for name, x in feeds.items():
        binding.input(name, x)
    for name, y in outputs.items():
        binding.output(name, y)
    return binding.run


def measure(model, feeds, threads):
    import cytoc
    import numpy as np
    import plugin
    taken, plain = plugin.session(model, intra=threads), plugin.reference(model, threads)
    if plugin.left(taken):
        sys.exit('left are %s' % plugin.left(taken))
    values = plain.run(None, feeds)
    outputs = [{o.name: np.empty_like(v) for o, v in zip(plain.get_outputs(), values)} for _ in range(3)]
    own = cytoc.compile(model, threads=threads)
    calls = [by_model(own, feeds, outputs[0]), by_session(taken, feeds, outputs[1]), by_session(plain, feeds, outputs[2])]
    times = in_turns(calls)
    for name, v in outputs[0].items():
        why = lib.difference(name, outputs[1][name], v, 1e-5)
        if why:
            sys.exit(why)
    return times


def digits():
    import numpy as np
    return os.path.join(lib.ROOT, 'examples/digits/digits.onnx'), {'image': np.random.default_rng(0).random((1, 1, 8, 8), np.float32)}


def network_of(name, folder):
    zoo, model = os.path.join(lib.SHARED, 'zoo'), os.path.join(folder, name + '.onnx')
    subprocess.run([sys.executable, os.path.join(zoo, 'materialize.py'), os.path.join(zoo, name + '.onnx'), model], check=True,
                   stdout=subprocess.DEVNULL)
    maker = lib.load_module(os.path.join(zoo, 'materialize.py'))
    with open(os.path.join(zoo, 'index.json'), encoding='utf-8') as f:
        [entry] = [e for e in json.load(f)['models'] if e['name'] == name]
    return model, {p['name']: maker.make_input(p, 1, p['test_shape']) for p in entry['inputs']}


def row_of(name, threads, times):
    own, taken, plain = times
    allowed = 0.03 * own + 10
    return '| %s | %d | %.1f | %.1f | %+.1f | %.1f | %s | %.1f | %.2fx |' % (
        name, threads, own, taken, taken - own, allowed, 'yes' if taken - own <= allowed else 'no', plain, plain / taken)


HEAD = ['| network | threads | cytoc, us | plugin, us | adds, us | may add, us | within | ONNX Runtime, us | plugin beside it |',
        '|---|---:|---:|---:|---:|---:|---|---:|---:|']


def write(rows):
    path = os.path.join(HERE, 'results', 'RESULTS-python.md')
    text = ''
    if os.path.exists(path):
        with open(path, encoding='utf-8') as f:
            text = f.read()
    begin, end = MARK % 'begin', MARK % 'end'
    if begin not in text:
        text += ('\n' if text else '# Python and ONNX Runtime\n\n') + '## The plugin for ONNX Runtime\n\n`tests/bench/onnxruntime_plugin.py ' \
            '--update`: buffers that are bound, batch 1, f32; each row in one process, in turns; medians.\n\n%s\n%s\n' % (begin, end)
    before, after = text[:text.index(begin) + len(begin)], text[text.index(end):]
    with open(path, 'w', encoding='utf-8') as f:
        f.write(before + '\n' + '\n'.join(HEAD + rows) + '\n' + after)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('names', nargs='*')
    parser.add_argument('--build', default=os.path.join(lib.ROOT, 'build'))
    parser.add_argument('--threads', default='1,2')
    parser.add_argument('--update', action='store_true')
    args = parser.parse_args()
    os.environ.setdefault('CYTOC_LIB_DIR', args.build)
    rows = []
    with tempfile.TemporaryDirectory(prefix='cytoc-bench-') as folder:
        os.environ.setdefault('CYTOC_CACHE_DIR', os.path.join(folder, 'cache'))
        import plugin
        plugin.register(os.path.join(args.build, 'libcytoc_onnxruntime.so'))
        for name in args.names or ('digits',) + NETWORKS:
            model, feeds = digits() if name == 'digits' else network_of(name, folder)
            for threads in map(int, args.threads.split(',')):
                rows.append(row_of(name, threads, measure(model, feeds, threads)))
                print(rows[-1], flush=True)
    if args.update:
        write(rows)


if __name__ == '__main__':
    main()
