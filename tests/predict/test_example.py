# SPDX-License-Identifier: Apache-2.0
"""examples/cells as a job of files: volumes are made, segmented by the command of its README, and compared with the truth."""
import os
import re
import subprocess
import sys

import imageio.v3 as imageio
import lib
import zarr

WORK = BUILD = ''


def test_cells():
    out, example = os.path.join(WORK, 'cells'), os.path.join(lib.ROOT, 'examples/cells')
    script = [sys.executable, os.path.join(example, 'volumes.py')]
    subprocess.run([*script, out + '/volumes', '2', '32x128x128'], check=True)
    with open(os.path.join(example, 'README.md'), encoding='utf-8') as f:
        command = re.search(r'cytoc (predict cells.onnx .*)', f.read()).group(1)
    words = command.replace("'", '').replace('cells.onnx', example + '/cells.onnx').replace('volumes/', out + '/volumes/').replace('found/', out + '/found')
    subprocess.run([os.path.join(BUILD, 'cytoc'), *words.split()], env=dict(os.environ, CYTO_PYTHON=sys.executable), check=True,
                   stderr=subprocess.DEVNULL)
    said = subprocess.run([*script, '--score', out + '/volumes', out + '/found'], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert float(said.split()[-1]) > 0.8, said
    scales = zarr.open_group(out + '/found/seen-0.ome.zarr', mode='r').attrs['multiscales'][0]['datasets'][0]['coordinateTransformations'][0]
    assert scales['scale'][-3:] == [1.0, 0.4, 0.4], scales
    subprocess.run([*script, '--picture', out + '/volumes', out + '/found', out + '/picture.png'], check=True)
    assert imageio.imread(out + '/picture.png').shape == (128, 264, 3)
