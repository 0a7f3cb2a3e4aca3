# SPDX-License-Identifier: Apache-2.0
"""A job on the cluster that this process finds: a volume through a network, tile by tile. MODEL VOLUME.npy RESULT.npy

Out: the result, and lines about the nodes; "a third is done" when it is.
"""
import sys
import time

import numpy as np
import ray

import cytoc.ray
from cytoc import tiling
from cytoc.ray import _window
from cytoc.ray._predictor import _rows


@ray.remote(max_retries=5)
def slow(library, threads, feeds):
    """What _window's task does, with time to be killed in, and where it ran."""
    time.sleep(0.05)
    return _rows(library.open(threads), feeds) + [np.frombuffer(ray.get_runtime_context().get_node_id().encode(), np.uint8)]


def alive():
    return sum(node['Alive'] for node in ray.nodes())


def main():
    model, volume, result = sys.argv[1:]
    ray.init('auto', logging_level='error', log_to_driver=False)
    print('nodes alive at first: %d' % alive(), flush=True)
    _window._compute = slow
    where, get, count = set(), ray.get, [0]
    image = np.load(volume)
    total = len(tiling.Grid(image.shape[1:], (8, 24, 24), 0.5))

    def counted(reference, **named):
        found = get(reference, **named)
        if isinstance(found, list) and found[-1].dtype == np.uint8:
            where.add(found[-1].tobytes())
            count[0] += 1
            if count[0] == total // 3:
                print('a third is done', flush=True)
        return found
    ray.get = counted
    found = cytoc.ray.sliding_window(image, cytoc.ray.Predictor(model), (8, 24, 24), overlap=0.5, mode='gaussian')
    np.save(result, found)
    for _ in range(300):  # until the cluster has noticed
        if alive() < 3:
            break
        time.sleep(0.2)
    print('nodes alive at the end: %d; ran on %d nodes' % (alive(), len(where)), flush=True)


if __name__ == '__main__':
    main()
