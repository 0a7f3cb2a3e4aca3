# SPDX-License-Identifier: Apache-2.0
"""`cytoc predict` on volumes: what of the network's own speed is left from files to files, tiling and blending included.

In:  --build DIR; unet3d_monai of ../shared/zoo; build/torch-venv with MONAI and the formats (tests/predict/requirements.txt).
Out: a table; with --update in tests/bench/results/RESULTS-scale.md.

Contenders, which take turns in each of PROCESSES processes, in an order that turns as well; a figure is the median over processes, a ratio the
median of the processes' ratios:
    network    cyto_run() alone in a loop, one tile in memory, all CPUs
    at once    the same by a context of one thread for each CPU, which is how the pipeline runs it
    predict    cytoc predict: OME-TIFF (uint8), tiles of 64x64x64 with overlap 0.25, Gaussian blending, argmax, OME-Zarr; from the first file
               until the last result is on the disk (what comes before, as loading the model, is told below the table)
    limit      what `predict` would reach if both CPUs were busy all the time: with the CPU time that the network takes "at once", and what
               `predict` takes besides
    MONAI      (a process of its own, as PyTorch's threads slow down who comes behind; MONAI_VOLUMES of them) tifffile,
               monai.inferers.sliding_window_inference with PyTorch, the same tiles and weights, argmax, zarr; one after the other

Volumes of 4 tiles, where files count most, and with --large of 75.
"""
import argparse
import datetime
import glob
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.dirname(HERE), HERE, os.path.join(ROOT, 'python')]

PROCESSES, NETWORK, TILE, OVERLAP, MONAI_VOLUMES = 5, 'unet3d_monai', (64, 64, 64), 0.25, 5
SMALL, LARGE = (64, 112, 112), (128, 256, 256)
SHARED = os.environ.get('CYTO_SHARED') or os.path.join(os.path.dirname(ROOT), 'shared')


def shape_of(args):
    return LARGE if args.large else SMALL


# ---- within a worker -----------------------------------------------------------------------------------------------------------

def predictor(args, paths):
    from cytoc.predict import predict

    def run():
        folder = tempfile.mkdtemp(dir=args.folder)  # files that were removed just now make it slow to create others
        run.summary = predict([args.library, *paths, '-o', folder, '--overlap', str(OVERLAP), '--normalize', 'unit', '--argmax', '--format', 'zarr'])
        assert run.summary['done'] == len(paths), run.summary['errors']
    return run


def at_once(args, x, runs):
    """So many runs, by a context of one thread for each CPU."""
    import cytoc
    model = cytoc.load(args.library, threads=1)
    bindings = [model.bind().input(model.inputs[0].name, x).output(model.outputs[0].name, model(x)) for _ in os.sched_getaffinity(0)]

    def loop(binding, n):
        for _ in range(n):
            binding.run()

    def run():
        threads = [threading.Thread(target=loop, args=(b, runs // len(bindings))) for b in bindings]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    return run


def monai(paths, folder):
    """The same by MONAI and PyTorch."""
    sys.path.insert(0, os.path.join(SHARED, 'zoo'))
    import numpy as np
    import tifffile
    import torch
    import zarr
    import zoo
    from monai.inferers import sliding_window_inference
    net = zoo.UNet3d().eval()

    def run():
        with torch.no_grad():
            for k, path in enumerate(paths):
                x = torch.from_numpy(tifffile.imread(path).astype(np.float32) / 255)[None, None]
                y = sliding_window_inference(x, TILE, 1, net, overlap=OVERLAP, mode='gaussian')
                shutil.rmtree(folder + '/monai-%d.zarr' % k, ignore_errors=True)
                zarr.save(folder + '/monai-%d.zarr' % k, y[0].argmax(0).numpy().astype(np.uint8))
    return run


def work_monai(args):
    paths = sorted(glob.glob(args.folder + '/in/*.tif'))
    some = paths[:MONAI_VOLUMES]
    monai(paths[:1], args.folder)()
    run = monai(some, args.folder)
    start = time.perf_counter()
    run()
    print(json.dumps((time.perf_counter() - start) * len(paths) / len(some)))


def work(args):
    import cytoc
    from cytoc import tiling
    import numpy as np
    paths = sorted(glob.glob(args.folder + '/in/*.tif'))
    tiles = len(tiling.Grid(shape_of(args), TILE, OVERLAP)) * len(paths)
    model = cytoc.load(args.library)
    x = np.random.default_rng(0).random((1, 1) + TILE, np.float32)
    binding = model.bind().input(model.inputs[0].name, x).output(model.outputs[0].name, model(x))
    calls = {'network': lambda: [binding.run() for _ in range(tiles)], 'at once': at_once(args, x, tiles), 'predict': predictor(args, paths)}
    names = list(calls)[args.turn % len(calls):] + list(calls)[:args.turn % len(calls)]
    binding.run()
    predictor(args, paths[:1])()
    cpu = time.process_time()
    predictor(args, paths[:1])()
    of_one = time.process_time() - cpu
    seconds, spent = {}, {}
    for name in names:
        start, cpu = time.perf_counter(), time.process_time()
        calls[name]()
        seconds[name], spent[name] = time.perf_counter() - start, time.process_time() - cpu
    summary = calls['predict'].summary
    start_up = seconds['predict'] - summary['seconds']
    seconds['predict'] = summary['seconds']
    in_pipeline = (spent['predict'] - of_one) * len(paths) / (len(paths) - 1)  # without the start-up
    besides = in_pipeline - spent['at once']
    seconds['limit'] = in_pipeline / len(os.sched_getaffinity(0))
    print(json.dumps({'seconds': seconds, 'shape': shape_of(args), 'busy': {s['name']: s['busy'] for s in summary['stages']},
                      'volumes': len(paths), 'tiles': tiles, 'start_up': start_up, 'besides': besides}))


# ---- the table -----------------------------------------------------------------------------------------------------------------

def prepare(args):
    """The model with weights, its library, and the volumes."""
    import numpy as np
    args.folder = tempfile.mkdtemp(prefix='cyto-predict-')
    model = args.folder + '/m.onnx'
    os.makedirs(args.folder + '/in')
    venv = os.path.join(ROOT, 'build/venv/bin/python')
    subprocess.run([venv, os.path.join(SHARED, 'zoo', 'materialize.py'), os.path.join(SHARED, 'zoo', NETWORK + '.onnx'), model], check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run([os.path.join(args.build, 'cytoc'), model, '-o', args.folder + '/m.so'], check=True, stdout=subprocess.DEVNULL)
    make = ('import sys, numpy as np, tifffile\nrng = np.random.default_rng(0)\nfor k in range(%d): tifffile.imwrite("%s/in/v%%02d.ome.tif" %% k, '
            'rng.integers(0, 255, %r, np.uint8), ome=True, metadata={"axes": "ZYX"})' % (args.volumes, args.folder, shape_of(args)))
    subprocess.run([args.torch, '-c', make], check=True)


def measured(args, turn):
    env = dict(os.environ, CYTOC_LIB_DIR=args.build)
    command = [args.torch, os.path.abspath(__file__), '--build', args.build, '--folder', args.folder, '--turn', str(turn)] + ['--large'] * args.large

    def worker(which):
        return json.loads(subprocess.run(command + [which], check=True, stdout=subprocess.PIPE, text=True, env=env).stdout.splitlines()[-1])
    found = worker('--worker')
    if not args.no_monai:
        found['seconds']['MONAI'] = worker('--worker-monai')
    return found


def table(runs):
    rows = [['%d volumes of %s, %d tiles' % (runs[0]['volumes'], 'x'.join(map(str, runs[0]['shape'])), runs[0]['tiles']), 'tiles/s', 'volumes/s',
             'of the network alone']]
    for name in [n for n in ('network', 'at once', 'limit', 'predict', 'MONAI') if n in runs[0]['seconds']]:
        rate = statistics.median(r['tiles'] / r['seconds'][name] for r in runs)
        ratio = statistics.median(r['seconds']['network'] / r['seconds'][name] for r in runs)
        rows.append([name, '%.2f' % rate, '%.2f' % (rate * runs[0]['volumes'] / runs[0]['tiles']), '%.3f' % ratio])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--build', default=os.path.join(ROOT, 'build'))
    parser.add_argument('--torch', default=os.environ.get('CYTO_TORCH_PYTHON') or os.path.join(ROOT, 'build/torch-venv/bin/python'))
    parser.add_argument('--volumes', type=int, default=20)
    parser.add_argument('--large', action='store_true', help='volumes of %s in place of %s' % (LARGE, SMALL))
    parser.add_argument('--processes', type=int, default=PROCESSES)
    parser.add_argument('--no-monai', action='store_true', help='without MONAI and PyTorch')
    parser.add_argument('--update', action='store_true')
    parser.add_argument('--folder', help=argparse.SUPPRESS)
    parser.add_argument('--turn', type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument('--worker', action='store_true', help=argparse.SUPPRESS)
    parser.add_argument('--worker-monai', action='store_true', help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    if args.worker_monai:
        work_monai(args)
        return
    if args.worker:
        args.library = args.folder + '/m.so'
        work(args)
        return
    import results
    prepare(args)
    try:
        runs = []
        for turn in range(args.processes):
            runs.append(measured(args, turn))
            print('process %d of %d: %s' % (turn + 1, args.processes, ', '.join('%s %.2f s' % pair for pair in runs[-1]['seconds'].items())), flush=True)
    finally:
        shutil.rmtree(args.folder, ignore_errors=True)
    stages = ', '.join('%s %.2f' % (name, 1e3 * statistics.median(r['busy'][name] / r['tiles'] for r in runs)) for name in runs[0]['busy'])
    text = ('%s, %d CPUs, %s. Medians of %d processes, in which the contenders take turns; load average at the end: %.0f.\n\n%s\n\n'
            '*At once*: a context of one thread for each CPU, which is how the pipeline runs the network. *Limit*: both CPUs busy all the time with '
            'that and with the rest, which takes %.2f ms of CPU time a tile, %.2f of a core: who spends c of two cores besides the network cannot '
            'reach more than 1 - c/2 of it; predict reaches %.2f of this limit. A stage is busy (waiting for the disk and for a CPU included) for so '
            'many ms a tile: %s. Start-up: %.2f s. By process, the network alone, at once and predict took %s s.') % (
        results.cpu_name(os.path.join(args.build, 'cytoc')), len(os.sched_getaffinity(0)), datetime.date.today(), len(runs), os.getloadavg()[0],
        results.markdown(table(runs)), statistics.median(1e3 * r['besides'] / r['tiles'] for r in runs),
        statistics.median(r['besides'] / r['seconds']['predict'] for r in runs),
        statistics.median(r['seconds']['limit'] / r['seconds']['predict'] for r in runs), stages,
        statistics.median(r['start_up'] for r in runs),
        ', '.join(' / '.join('%.2f' % r['seconds'][name] for name in ('network', 'at once', 'predict')) for r in runs))
    print(text, flush=True)
    if args.update:
        results.put_table('scale', 'From one picture to a warehouse of them', 'predict-large' if args.large else 'predict',
                          'Large volumes through %s' % NETWORK if args.large else 'Volumes through %s' % NETWORK, text)


if __name__ == '__main__':
    main()
