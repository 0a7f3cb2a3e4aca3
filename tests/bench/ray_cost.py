# SPDX-License-Identifier: Apache-2.0
"""What Ray costs on one machine: a volume through a network tile by tile, by cytoc.tiling in one process, by cytoc.Pipeline with two
contexts, and by cytoc.ray with two CPUs.

In:  --build DIR; build/ray-venv of the suite `ray`. Out: a table; with --update in RESULTS-scale.md.
Contenders take turns, medians of --rounds rounds.
"""
import datetime
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), HERE]
import lib

TILE, OVERLAP = (16, 64, 64), 0.25


def network(path, layers, channels):
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    rng, nodes, weights, last, count = np.random.default_rng(0), [], [], 'x', 1
    for k in range(layers):
        width = 2 if k == layers - 1 else channels
        weights.append(numpy_helper.from_array((rng.standard_normal((width, count, 3, 3, 3)) / 27).astype(np.float32), 'w%d' % k))
        nodes += [helper.make_node('Conv', [last, 'w%d' % k], ['c%d' % k], pads=[1] * 6),
                  helper.make_node('Relu', ['c%d' % k], ['y' if k == layers - 1 else 'r%d' % k])]
        last, count = 'r%d' % k, width
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ['batch', c, *TILE]) for n, c in (('x', 1), ('y', 2))]
    onnx.save(helper.make_model(helper.make_graph(nodes, 'net', ports[:1], ports[1:], weights), opset_imports=[helper.make_opsetid('', 17)],
                                ir_version=8), path)


def contenders(path):
    import numpy as np

    import cytoc
    import cytoc.ray
    from cytoc import tiling
    volume = np.random.default_rng(1).standard_normal((1, 64, 256, 256)).astype(np.float32)
    one, predictor = cytoc.compile(path, threads=1), cytoc.ray.Predictor(path, threads=1)
    how = dict(overlap=OVERLAP, mode='gaussian')
    grid = tiling.Grid(volume.shape[1:], TILE, OVERLAP)

    def pipeline():
        class Blend:
            def __init__(self, _):
                self.kept = []
                self.inner = tiling.Blender(grid, (2,), lambda row, rows: self.kept.append(rows), mode='gaussian')

            def add(self, part):
                self.inner.add(part.tag, part.value)

            def finish(self):
                self.inner.finish()
                return np.concatenate(self.kept, 1)
        stages = [cytoc.Split(lambda v: (cytoc.Tagged(tiling.read_tile(v, t), t) for t in grid)),
                  cytoc.Run(one, batch=1, contexts=2, threads=1), cytoc.Join(Blend)]
        return next(iter(cytoc.Pipeline(*stages).run([volume])))
    return len(grid), {'one process, one thread': lambda: tiling.sliding_window(volume, one, TILE, **how),
                       'cytoc.Pipeline, two contexts': pipeline,
                       'cytoc.ray, two CPUs': lambda: cytoc.ray.sliding_window(volume, predictor, TILE, **how)}


def measure(args):
    import ray
    ray.init(num_cpus=2, logging_level='error', include_dashboard=False, log_to_driver=False, object_store_memory=512 << 20)
    path = os.path.join(args.build, 'bench-ray.onnx')
    network(path, int(args.layers), 24)
    tiles, runs = contenders(path)
    times = {name: [] for name in runs}
    reference = None
    for k in range(int(args.rounds) + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            found = run()
            if k:  # the first one warms up
                times[name].append(time.perf_counter() - start)
            reference = found if reference is None else reference
            assert (found == reference).all(), name
    lines = ['| contender | volume of %d tiles, ms | ms a tile | beside cytoc.Pipeline |' % tiles, '|---|---:|---:|---:|']
    base = statistics.median(times['cytoc.Pipeline, two contexts'])
    for name, taken in times.items():
        t = statistics.median(taken)
        lines.append('| %s | %.0f | %.2f | %.2fx |' % (name, t * 1e3, t * 1e3 / tiles, t / base))
    print('\n'.join(lines))
    os.remove(path)
    ray.shutdown()
    if args.update:
        import results
        text = '%s, %s. Medians of %s rounds, in which the contenders take turns; %d tiles of %s, %s layers of 24 channels.\n\n%s' % (
            results.cpu_name(args.cytoc), datetime.date.today(), args.rounds, tiles, 'x'.join(map(str, TILE)), args.layers, '\n'.join(lines))
        results.put_table('scale', 'Many items, many clients, many machines', 'ray', 'What Ray costs on one machine', text)


def main():
    args = lib.arguments(__doc__, rounds={'default': '5'}, layers={'default': '4'}, inside={'action': 'store_true'})
    if args.inside:
        return measure(args)
    env = dict(os.environ, CYTOC_LIB_DIR=args.build, PYTHONPATH=os.path.join(lib.ROOT, 'python'), RAY_USAGE_STATS_ENABLED='0')
    python = os.path.join(lib.ROOT, 'build', 'ray-venv', 'bin', 'python')
    return sys.exit(subprocess.run([python, os.path.abspath(__file__), '--inside', '--build', args.build, '--rounds', args.rounds, '--layers',
                                    args.layers] + ['--update'] * args.update, env=env).returncode)


if __name__ == '__main__':
    main()
