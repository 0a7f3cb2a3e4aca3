# SPDX-License-Identifier: Apache-2.0
"""A folder of volumes, as a microscope would leave it, for `cytoc predict`: OME-TIFF with voxel sizes, made by volume.c.

    python volumes.py FOLDER [COUNT [DEPTHxHEIGHTxWIDTH]]      # FOLDER/seen-0.ome.tif .., and where cells are: FOLDER/truth/0.npy ..
    python volumes.py --score FOLDER RESULTS                   # how well the masks in RESULTS/seen-0.ome.zarr .. fit
    python volumes.py --picture FOLDER RESULTS PICTURE.png     # a plane of the first one, and what was found

Needs tifffile, zarr and, for the picture, imageio: pip install '.[images,volumes]' in cytoc's folder.
"""
import glob
import os
import sys
import tempfile

import numpy as np

OFFSET, GAIN = 2000, 20000  # of the camera: the network was trained on (stored - OFFSET) / GAIN
VOXEL = {'axes': 'ZYX', 'PhysicalSizeX': 0.4, 'PhysicalSizeXUnit': 'µm', 'PhysicalSizeY': 0.4, 'PhysicalSizeYUnit': 'µm', 'PhysicalSizeZ': 1.0,
         'PhysicalSizeZUnit': 'µm'}


def make(folder, count, size):
    import tifffile
    from maker import maker
    os.makedirs(os.path.join(folder, 'truth'), exist_ok=True)
    with tempfile.TemporaryDirectory() as built:
        volume = maker(built)
        for k in range(count):
            seen, cell = volume(size, 5000 + k)
            stored = np.clip(seen * GAIN + OFFSET, 0, 65535).astype(np.uint16)
            tifffile.imwrite(os.path.join(folder, 'seen-%d.ome.tif' % k), stored, ome=True, metadata=VOXEL, photometric='minisblack')
            np.save(os.path.join(folder, 'truth', '%d.npy' % k), cell)


def found(results, k):
    import zarr
    return np.asarray(zarr.open_group(os.path.join(results, 'seen-%d.ome.zarr' % k), mode='r')['0']).reshape(-1)


def score(folder, results):
    """Dice: twice what both mark, by all that they mark."""
    values = []
    for k in range(len(glob.glob(os.path.join(folder, 'truth', '*.npy')))):
        truth = np.load(os.path.join(folder, 'truth', '%d.npy' % k)).reshape(-1) > 0
        mask = found(results, k) > 0
        values.append(2 * (truth & mask).sum() / max(truth.sum() + mask.sum(), 1))
        print('volume %d: Dice %.3f' % (k, values[-1]))
    print('mean Dice %.3f' % np.mean(values))


def edges(mask):
    inner = mask.copy()
    for axis in (0, 1):
        for step in (-1, 1):
            inner &= np.roll(mask, step, axis)
    return mask & ~inner


def picture(folder, results, path):
    """What is seen, and the same with the edges of what was found."""
    import imageio.v3 as imageio
    import tifffile
    seen = tifffile.imread(os.path.join(folder, 'seen-0.ome.tif'))
    mask = found(results, 0).reshape(seen.shape) > 0
    z = len(seen) // 2
    gray = np.clip((seen[z].astype(float) - OFFSET) / GAIN / 1.2, 0, 1) ** 0.8
    size = min(gray.shape + (240,))
    left = np.repeat((gray * 255).astype(np.uint8)[:size, :size, None], 3, 2)
    right = left.copy()
    right[mask[z][:size, :size]] = right[mask[z][:size, :size]] // 2 + np.array([0, 70, 90], np.uint8)
    right[edges(mask[z])[:size, :size]] = (255, 190, 40)
    gap = np.full((size, 8, 3), 255, np.uint8)
    imageio.imwrite(path, np.concatenate((left, gap, right), 1))


def main(words):
    if words[:1] == ['--score'] and len(words) == 3:
        score(*words[1:])
    elif words[:1] == ['--picture'] and len(words) == 4:
        picture(*words[1:])
    elif words and not words[0].startswith('-'):
        size = tuple(map(int, words[2].split('x'))) if len(words) > 2 else (32, 224, 224)
        make(words[0], int(words[1]) if len(words) > 1 else 3, size)
    else:
        sys.exit(__doc__)


if __name__ == '__main__':
    main(sys.argv[1:])
