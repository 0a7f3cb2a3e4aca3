# SPDX-License-Identifier: Apache-2.0
"""A folder of images through a network: what of the network's own speed is left when files are read and written beside it.

In:  --build DIR; unet2d_labelfree of ../shared/zoo; onnxruntime of build/venv; PyTorch of --torch (build/torch-venv, or CYTO_TORCH_PYTHON), whose
     DataLoader reads for ONNX Runtime in one of the contenders; without it that one is left out.
Out: a table; with --update in tests/bench/results/RESULTS-scale.md.

Contenders, which take turns in each of PROCESSES processes, there and back, in an order that turns as well; a figure is the median over
processes, a ratio the median of the processes' ratios. Processor time tells of a machine that others use what the clock does not:
    network    cyto_run() alone in a loop, one image in memory, all CPUs
    pipeline   cytoc.Pipeline: read (.npy, uint16), scale to float32, run, write (.npy, float16)
    one loop   the same functions and model, one after the other, as is written first
    DataLoader torch.utils.data.DataLoader, 2 workers, the same functions; ONNX Runtime, all CPUs; written by the loop; half of the images
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.dirname(HERE), HERE, os.path.join(ROOT, 'python')]

PROCESSES, SIZE, NETWORK = 5, 256, 'unet2d_labelfree'
SHARED = os.environ.get('CYTO_SHARED') or os.path.join(os.path.dirname(ROOT), 'shared')


# ---- the job: within a worker --------------------------------------------------------------------------------------------------

def read(path):
    import numpy as np
    return np.load(path)


def scale(image):
    import numpy as np
    return (image.astype(np.float32) / np.float32(65535))[None, None]


def write(y, path):
    import numpy as np
    np.save(path.replace('.npy', '.out'), y.astype(np.float16))


class Files:
    """For the DataLoader."""

    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, k):
        return scale(read(self.paths[k])), self.paths[k]


def pipeline_of(model):
    import cytoc
    return cytoc.Pipeline(cytoc.Stage(read), cytoc.Stage(scale), cytoc.Run(model), cytoc.Stage(write, item=True))


def contenders(args, paths):
    """{name: a function that does all images}"""
    import cytoc
    import numpy as np
    model = cytoc.load(args.library)
    x = scale(read(paths[0]))
    y = np.empty_like(model(x))
    binding = model.bind().input('image', x).output('prediction', y)

    def loop():
        for path in paths:
            write(model(scale(read(path))), path)

    def run_pipeline():
        p = pipeline_of(model)
        for _ in p.run(paths):
            pass
        run_pipeline.last = p.statistics()
    found = {'network': lambda: [binding.run() for _ in paths], 'pipeline': run_pipeline, 'one loop': loop}
    if args.with_torch:
        found['DataLoader'] = data_loader(args, paths)
    return found


def data_loader(args, paths):
    sys.path.append(args.site)  # onnxruntime is there
    import onnxruntime
    import torch.utils.data
    session = onnxruntime.InferenceSession(args.model, providers=['CPUExecutionProvider'])

    def run():
        loader = torch.utils.data.DataLoader(Files(paths), batch_size=None, num_workers=2, prefetch_factor=4)
        for x, path in loader:
            write(session.run(None, {'image': x if not hasattr(x, 'numpy') else x.numpy()})[0], path)
    return run


def work(args):
    import glob
    paths = sorted(glob.glob(os.path.join(args.images_folder, '*.npy')))
    paths = [p for p in paths if not p.endswith('.out.npy')]
    calls = contenders(args, paths)
    names = list(calls)
    names = names[args.turn % len(names):] + names[:args.turn % len(names)]
    seconds, cpu = {}, {}
    few = paths[:4]
    for name in names:  # warm: files are in the cache, memory is there
        keep, paths[:] = paths[:], few
        calls[name]()
        paths[:] = keep
    every, images = paths[:], {}
    half = len(every) // 2
    # there and back, with half of the images each: what drifts meets all alike; the slowest goes once
    for name, part in [(n, every[:half]) for n in names] + [(n, every[half:]) for n in names[::-1] if n != 'DataLoader']:
        paths[:] = part
        images[name] = images.get(name, 0) + len(part)
        start, used = time.perf_counter(), sum(os.times()[:4])
        calls[name]()
        seconds[name] = seconds.get(name, 0) + time.perf_counter() - start
        cpu[name] = cpu.get(name, 0) + sum(os.times()[:4]) - used
    stages = {s['name']: s['busy'] for s in calls['pipeline'].last.as_dict()['stages']}
    print(json.dumps({'seconds': seconds, 'cpu': cpu, 'busy': stages, 'images': images, 'files': len(every)}))


# ---- the table -----------------------------------------------------------------------------------------------------------------

def make_images(folder, count):
    import numpy as np
    rng = np.random.default_rng(0)
    for k in range(count):
        np.save(os.path.join(folder, '%04d.npy' % k), rng.integers(0, 65536, (SIZE, SIZE), dtype=np.uint16))


def prepare(args):
    """The model with weights, its library, and the images."""
    args.folder = tempfile.mkdtemp(prefix='cyto-pipeline-')
    args.model, args.library = os.path.join(args.folder, 'm.onnx'), os.path.join(args.folder, 'm.so')
    args.images_folder = os.path.join(args.folder, 'images')
    os.makedirs(args.images_folder)
    subprocess.run([sys.executable, os.path.join(SHARED, 'zoo', 'materialize.py'), os.path.join(SHARED, 'zoo', NETWORK + '.onnx'), args.model],
                   check=True, stdout=subprocess.DEVNULL)
    subprocess.run([os.path.join(args.build, 'cytoc'), args.model, '-o', args.library], check=True, stdout=subprocess.DEVNULL)
    make_images(args.images_folder, args.images)


def measured(args, turn):
    with_torch = os.path.exists(args.torch) and not args.no_torch
    command = [args.torch if with_torch else sys.executable, os.path.abspath(__file__), '--worker', '--build', args.build, '--folder', args.folder,
               '--turn', str(turn)] + ['--with-torch'] * with_torch
    env = dict(os.environ, CYTOC_LIB_DIR=args.build)
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env).stdout.splitlines()[-1])


def table(runs):
    rows = [['%d images of 256x256' % runs[0]['files'], 'items/s', 'of the network alone', 'CPU ms an item', 'of the network alone']]
    for name in runs[0]['seconds']:
        def each(r, what, name=name):
            return r[what][name] / r['images'][name]
        rate = statistics.median(1 / each(r, 'seconds') for r in runs)
        ratio = statistics.median(each(r, 'seconds', 'network') / each(r, 'seconds') for r in runs)
        cpu = statistics.median(1e3 * each(r, 'cpu') for r in runs)
        cpu_ratio = statistics.median(each(r, 'cpu') / each(r, 'cpu', 'network') for r in runs)
        rows.append([name, '%.1f' % rate, '%.3f' % ratio, '%.1f' % cpu, '%.3f' % cpu_ratio])
    order = ['network', 'pipeline', 'one loop', 'DataLoader']
    return rows[:1] + sorted(rows[1:], key=lambda row: order.index(row[0]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--build', default=os.path.join(ROOT, 'build'))
    parser.add_argument('--torch', default=os.environ.get('CYTO_TORCH_PYTHON') or os.path.join(ROOT, 'build/torch-venv/bin/python'))
    parser.add_argument('--no-torch', action='store_true', help='without the DataLoader')
    parser.add_argument('--images', type=int, default=200, help='the DataLoader does half of them')
    parser.add_argument('--processes', type=int, default=PROCESSES)
    parser.add_argument('--update', action='store_true')
    for hidden in ('--folder', '--turn'):
        parser.add_argument(hidden, type=int if hidden == '--turn' else str, help=argparse.SUPPRESS)
    for hidden in ('--worker', '--with-torch'):
        parser.add_argument(hidden, action='store_true', help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    if args.worker:
        args.model, args.library = os.path.join(args.folder, 'm.onnx'), os.path.join(args.folder, 'm.so')
        args.images_folder = os.path.join(args.folder, 'images')
        args.site = os.path.join(ROOT, 'build/venv/lib/python%d.%d/site-packages' % sys.version_info[:2])
        work(args)
        return
    import datetime

    import results
    prepare(args)
    try:
        runs = []
        for turn in range(args.processes):
            runs.append(measured(args, turn))
            print('process %d of %d: %s' % (turn + 1, args.processes, ', '.join('%s %.2f s' % pair for pair in runs[-1]['seconds'].items())), flush=True)
    finally:
        shutil.rmtree(args.folder, ignore_errors=True)
    beside = statistics.median((r['busy']['read'] + r['busy']['scale'] + r['busy']['write']) / (r['seconds']['pipeline'] / 2) for r in runs)
    note = ('%s, %d CPUs, %s. Medians of %d processes, in which the contenders take turns. Reading, scaling and writing take %.2f of a core; load average at the end: %.0f.' %
            (results.cpu_name(os.path.join(args.build, 'cytoc')), len(os.sched_getaffinity(0)), datetime.date.today(), len(runs), beside, os.getloadavg()[0]))
    text = '%s\n\n%s' % (note, results.markdown(table(runs)))
    print(text, flush=True)
    if args.update:
        results.put_table('scale', 'From one picture to a warehouse of them', 'pipeline', 'Images through %s' % NETWORK, text)


if __name__ == '__main__':
    main()
