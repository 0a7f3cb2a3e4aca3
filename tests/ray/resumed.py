# SPDX-License-Identifier: Apache-2.0
"""A job of Ray Data that goes on by Ray's checkpoints: MODEL FOLDER ADDRESS SECONDS, those of rest in each batch.

In:  FOLDER/in/*.parquet, columns id and x; FOLDER/done, what earlier jobs have computed, as Ray knows it.
Out: FOLDER/out/*.parquet; FOLDER/calls, a line for each batch with its ids.
"""
import sys
import time

import ray
from ray.data.checkpoint import CheckpointConfig

import cytoc.ray


def main():
    model, folder, address, rest = sys.argv[1:]
    ray.init(address, logging_level='error', log_to_driver=False)
    context = ray.data.DataContext.get_current()
    context.checkpoint_config = CheckpointConfig('id', folder + '/done', delete_checkpoint_on_success=False)
    context.target_min_block_size = context.target_max_block_size = 1  # each row is written by itself
    predictor = cytoc.ray.Predictor(model, outputs={'y': 'found'})

    def told(columns):
        found = predictor(columns)
        with open(folder + '/calls', 'a') as f:
            f.write(' '.join(map(str, columns['id'])) + '\n')
        time.sleep(float(rest))
        return found
    data = ray.data.read_parquet(folder + '/in')
    data.map_batches(told, batch_size=4, num_cpus=1, compute=ray.data.TaskPoolStrategy(size=2)).write_parquet(folder + '/out')


if __name__ == '__main__':
    main()
