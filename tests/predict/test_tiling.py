# SPDX-License-Identifier: Apache-2.0
"""cytoc.tiling beside monai.inferers.sliding_window_inference: the same numbers, for all that both can do."""
import pickle
import tracemalloc

import numpy as np
import torch
from monai.inferers import sliding_window_inference

from cytoc import InputError, tiling

LIMIT = 1e-5
# shape of the image (behind the channels), tile, overlap
CASES = [((37, 53), (16, 24), 0.25), ((37, 53), (16, 24), 0.0), ((40, 40), (16, 16), 0.5), ((41, 67), (17, 9), 0.75), ((5, 80), (16, 24), 0.25),
         ((9, 11), (16, 24), 0.5), ((16, 24), (16, 24), 0.25), ((33, 1), (8, 1), 0.25), ((100,), (32,), 0.3), ((50, 60), (0, 20), (0.1, 0.6)),
         ((19, 33, 27), (8, 16, 16), 0.25), ((19, 33, 27), (8, 16, 16), 0.75), ((7, 33, 27), (12, 16, 16), 0.5), ((1, 20, 21), (4, 8, 8), 0.0),
         ((9, 9, 9), (9, 4, 5), (0.0, 0.25, 0.5)), ((6, 7, 8, 9), (4, 4, 4, 4), 0.5)]


def network(x):
    """Depends on where in the tile a voxel is, so that blending shows: two channels of one, or of many."""
    rank = x.ndim - 2
    ramp = sum(np.linspace(0, 1 + a, n, dtype=np.float32).reshape((-1,) + (1,) * (rank - 1 - a)) for a, n in enumerate(x.shape[2:]))
    y = x.sum(1, keepdims=True)
    return np.concatenate((y * ramp, np.abs(y) - ramp), 1)


def torch_network(x):
    return torch.from_numpy(network(x.numpy()))


def image(shape, channels=1, seed=0):
    return np.random.default_rng(seed).standard_normal((channels,) + tuple(shape)).astype(np.float32)


def monai(x, tile, overlap, batch=3, net=torch_network, **options):
    tile = [t or n for t, n in zip(tile, x.shape[1:])]
    return sliding_window_inference(torch.from_numpy(x)[None], tile, batch, net, overlap=overlap, **options)[0].numpy()


def near(got, want, what):
    assert got.shape == want.shape, '%s: shape %s, not %s' % (what, got.shape, want.shape)
    error = float(np.abs(got.astype(np.float64) - want).max())
    assert error <= LIMIT * max(1.0, float(np.abs(want).max())), '%s: differs by %g' % (what, error)


def test_monai():
    for shape, tile, overlap in CASES:
        for mode in tiling.BLENDING:
            x = image(shape, 1 + len(shape) % 2)
            got = tiling.sliding_window(x, network, tile, overlap=overlap, mode=mode, batch=3)
            near(got, monai(x, tile, overlap, mode=mode), (shape, tile, overlap, mode))


def test_no_channels():
    x = image((30, 40))
    near(tiling.sliding_window(x[0], network, 16, channels=0), monai(x, (16, 16), 0.25), 'no channels')


def test_monai_padding():
    for padding in tiling.PADDING:
        for shape, tile in (((13, 30), (16, 16)), ((11, 12), (16, 20)), ((9, 13, 14), (12, 16, 8))):
            if padding == 'constant' or len(shape) < 4:
                x = image(shape)
                cval = 0.5 if padding == 'constant' else 0.0  # the others take no value in PyTorch
                got = tiling.sliding_window(x, network, tile, mode='gaussian', padding=padding, cval=cval)
                near(got, monai(x, tile, 0.25, mode='gaussian', padding_mode=padding, cval=cval), (padding, shape))


def test_monai_sigma():
    x = image((30, 40))
    for sigma in (0.05, 0.125, 0.5, (0.1, 0.3)):
        got = tiling.sliding_window(x, network, (16, 16), overlap=0.5, mode='gaussian', sigma_scale=sigma)
        near(got, monai(x, (16, 16), 0.5, mode='gaussian', sigma_scale=sigma), sigma)


def test_monai_zoom():
    """Networks whose output is larger, or smaller, than their input."""
    def twice(x):
        return np.repeat(np.repeat(network(x), 2, 2), 2, 3)

    def half(x):
        return np.ascontiguousarray(network(x)[:, :, ::2, ::2])
    for net, align in ((twice, 1), (half, 2)):
        for shape in ((32, 48), (40, 56)):
            x = image(shape)
            got = tiling.sliding_window(x, net, (16, 16), overlap=0.5, mode='gaussian', align=align)
            near(got, monai(x, (16, 16), 0.5, mode='gaussian', net=lambda t: torch.from_numpy(net(t.numpy()))), (net, shape))
    odd = tiling.sliding_window(image((33, 47)), half, (16, 16), overlap=0.5, align=2)
    assert odd.shape == (2, 17, 24), odd.shape


def test_any_order():
    """Tiles in another order, pickled on their way, give the same bits; and rows come once, in order, as soon as they can."""
    x = image((23, 30, 31))
    grid = tiling.Grid(x.shape[1:], (8, 16, 16), 0.5)
    assert len(grid) == len(list(grid)) and list(grid)[5] == grid[5]
    results = {t.number: network(tiling.read_tile(x, t)[None])[0] for t in grid}
    found = []
    for order in (list(grid), list(grid)[::-1], [grid[k] for k in np.random.default_rng(1).permutation(len(grid))]):
        rows = []
        blender = tiling.Blender(grid, (2,), lambda row, values: rows.append((row, values)), mode='gaussian')
        for t in order:
            t = pickle.loads(pickle.dumps(t))
            blender.add(t, results[t.number])
            if order[0].number == 0 and order[1].number == 1 and t.number == len(grid) - 1:
                assert rows and rows[-1][0] + rows[-1][1].shape[1] == grid[-1].origin[0], 'rows are not written as they become complete'
        blender.finish()
        assert [r for r, _ in rows] == list(np.cumsum([0] + [v.shape[1] for _, v in rows])[:-1])
        found.append(np.concatenate([v for _, v in rows], 1))
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])
    near(found[0], monai(x, (8, 16, 16), 0.5, mode='gaussian'), 'any order')


def test_go_on():
    """From a row on: the same bits, from the tiles that touch what is left alone."""
    x = image((40, 21))
    grid = tiling.Grid(x.shape[1:], (8, 8), 0.5)

    def rows_from(first):
        rows = []
        blender = tiling.Blender(grid, (2,), lambda row, values: rows.append(values), mode='gaussian', step=4, first=first)
        tiles = tiling.needed(grid, first)
        assert len(blender) == len(tiles)
        for t in tiles:
            blender.add(t, network(tiling.read_tile(x, t)[None])[0])
        blender.finish()
        return np.concatenate(rows, 1), len(tiles)
    whole, all_tiles = rows_from(0)
    assert rows_from(36)[1] < rows_from(16)[1] < all_tiles
    for first in (4, 16, 36):
        part, tiles = rows_from(first)
        assert np.array_equal(part, whole[:, first:]) and tiles <= all_tiles, first


def test_step():
    """Rows come in multiples of `step`."""
    for step in (1, 3, 5, 16, 100):
        rows = []
        x = image((37, 20))
        grid = tiling.Grid((37, 20), (8, 8), 0.5)
        blender = tiling.Blender(grid, (2,), lambda row, v: rows.append((row, v)), step=step)
        for t in grid:
            blender.add(t, network(tiling.read_tile(x, t)[None])[0])
        blender.finish()
        assert all(row % step == 0 for row, _ in rows) and sum(v.shape[1] for _, v in rows) == 37, (step, rows)
        near(np.concatenate([v for _, v in rows], 1), monai(x, (8, 8), 0.5), step)


def test_region():
    x = image((40, 60))
    want = monai(x, (16, 16), 0.25)
    boxes = [((0, 4), (0, 4)), ((30, 35), (50, 60))]
    grid = tiling.Grid((40, 60), (16, 16), 0.25, boxes=boxes)
    assert 0 < len(grid) < len(tiling.Grid((40, 60), (16, 16), 0.25))
    got = tiling.sliding_window(x, network, (16, 16), boxes=boxes, fill=-7)
    for (a, b), (c, d) in boxes:
        near(got[:, a:b, c:d], want[:, a:b, c:d], 'box')
    assert (got[:, 20:24, 20:24] == -7).all()
    mask = np.zeros((4, 6), bool)  # a tenth of the size
    mask[3, 5] = True
    tiles = list(tiling.Grid((40, 60), (16, 16), 0.25, mask=mask))
    assert tiles and all(t.origin[0] + 16 > 30 and t.origin[1] + 16 > 50 for t in tiles), tiles
    full = np.zeros((40, 60), np.uint8)
    full[12, 0] = 1
    assert [t.origin for t in tiling.Grid((40, 60), (16, 16), 0.25, mask=full)] == [(0, 0), (12, 0)]
    fails(lambda: tiling.sliding_window(x, network, (16, 16), mask=np.zeros((40, 60))), 'no tile touches')


def test_in_file():
    """Rows under work that are more than `memory` lie in a file: the numbers are the same, and the memory is not taken."""
    class Image:
        shape, dtype = (1, 20, 500, 500), np.dtype(np.float32)

        def __getitem__(self, key):
            return np.full([k.stop - k.start if k.stop is not None else 1 for k in key], float(sum(k.start or 0 for k in key)), np.float32)

    def run(memory):
        found = []
        tracemalloc.start()
        tiling.sliding_window(Image(), network, (16, 64, 64), mode='gaussian', memory=memory,
                              write=lambda row, rows: found.extend(rows.sum((0, 2, 3), np.float64)))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found, peak
    in_memory, most = run(None)
    in_file, peak = run(8 << 20)
    assert len(in_file) == 20 and np.allclose(in_file, in_memory, rtol=1e-12), 'other numbers'
    assert most > 17 * 500 * 500 * 3 * 4 and peak < 14 << 20, (most, peak)


def test_decide():
    """Labels in place of means: what NumPy makes of these, to the same bits, in memory and in a ring of sums, whatever the order."""
    x = image((23, 70, 300))
    grid = tiling.Grid(x.shape[1:], (8, 32, 64), 0.25, boxes=[((0, 12), (0, 40), (0, 200)), ((3, 23), (50, 70), (100, 300))])
    results = {t.number: network(tiling.read_tile(x, t)[None])[0] for t in grid}

    def run(decide, memory=None, order=1, copy=True):
        rows = []
        blender = tiling.Blender(grid, (2,), lambda row, values: rows.append(values), mode='gaussian', decide=decide, memory=memory, fill=0.5, copy=copy)
        for t in list(grid)[::order]:
            values = results[t.number].copy()
            blender.add(t, values)
            if copy:
                values[:] = np.nan  # it was copied
        blender.finish()
        return np.concatenate(rows, -3), blender
    means, in_memory = run(None)
    ring, in_ring = run(None, memory=1 << 22)
    in_file = run(None, memory=1 << 18)[0]
    assert type(in_memory.rows) is not type(in_ring.rows), 'one way for both'
    assert np.array_equal(means, ring) and np.array_equal(means, in_file)
    assert (means == 0.5).any() and (means != 0.5).any()
    for decide, wanted in (('argmax', means.argmax(0)), (0.25, means > np.float32(0.25)), (None, means)):
        for options in ({}, {'order': -1}, {'copy': False}):
            got, blender = run(decide, **options)
            assert np.array_equal(got, wanted) and blender.decides == (decide is not None), (decide, options)
            assert got.dtype == (np.float32 if decide is None else np.uint8)
    assert not run('argmax', memory=1 << 20)[1].decides


def test_lazy():
    """Of what can be sliced, the tile alone is read."""
    class Image:
        shape, dtype, most = (1, 100, 100), np.dtype(np.float32), 0

        def __getitem__(self, key):
            part = whole[key]
            Image.most = max(Image.most, part.size)
            return part
    whole = image((100, 100))
    near(tiling.sliding_window(Image(), network, (16, 16)), monai(whole, (16, 16), 0.25), 'lazy')
    assert Image.most == 256


def test_pyramid():
    """One scale is a sliding window; of two, each by itself stretched, and merged. A smooth image looks alike at every scale."""
    x = image((50, 70))
    same = tiling.pyramid(x, network, (16, 16), [1])
    near(same, monai(x, (16, 16), 0.25), 'one scale')
    ramp = (np.arange(64, dtype=np.float32)[:, None] + np.arange(96, dtype=np.float32) * 2)[None]

    def identity(batch):
        return batch
    got = tiling.pyramid(ramp, identity, (16, 16), [1, 2, (4, 1)], mode='gaussian')
    near(got[:, 4:-4, 4:-4], ramp[:, 4:-4, 4:-4], 'ramp')
    high = tiling.pyramid(x, identity, (16, 16), [1, 4], merge='max')
    assert (high >= x - 1e-6).all() and (high > x).any()
    fails(lambda: tiling.pyramid(x, identity, 16, [0.5]), 'whole numbers')
    fails(lambda: tiling.pyramid(x, identity, 16, [1], merge='median'), 'expected one of mean, max')


def test_weights():
    assert (tiling.weights((3, 4)) == 1).all()
    w = tiling.weights((64, 64), 'gaussian')
    assert w.min() >= 1e-3 and w[0, 0] == w.min() and abs(w[31, 31] - 1) < 0.02


def fails(function, *words):
    try:
        function()
    except InputError as e:
        assert all(w in str(e) for w in words), str(e)
        return
    raise AssertionError('no error: expected "%s"' % ' '.join(words))


def test_bad():
    x = image((20, 30))
    run = tiling.sliding_window
    fails(lambda: run(x, network, 8, overlap=1), 'overlap', 'less than 1', 'found 1')
    fails(lambda: run(x, network, 8, overlap=25), 'did you mean 0.25?')
    fails(lambda: run(x, network, 8, overlap=-0.1), 'found -0.1')
    fails(lambda: run(x, network, 8, overlap=float('nan')), 'found nan')
    fails(lambda: run(x, network, -3), 'tile', '[-3, -3]')
    fails(lambda: run(x, network, (8, 8, 8)), '2 of them', 'found 3')
    fails(lambda: run(x, network, 8, mode='gauss'), 'gaussian', "found 'gauss'")
    fails(lambda: run(x, network, 64, padding='edge'), 'replicate', "found 'edge'")
    fails(lambda: run(x, network, 8, batch=0), 'batch')
    fails(lambda: run(x, lambda t: t[:1, 0, 0, 0], 8, batch=2), 'result has shape')
    fails(lambda: run(x, lambda t: t.mean((2, 3)), 8), 'whole images')
    fails(lambda: run(np.zeros((1, 0, 5), np.float32), network, 8), 'no voxels')
    fails(lambda: run(x, lambda t: network(t)[:, :, ::3, ::3][:, :, :2, :2], 8), 'align')
    fails(lambda: tiling.Grid((20, 20), 8, boxes=[((0, 5), (7, 7))]), 'start < stop')
    fails(lambda: tiling.Grid((20, 20), 8, mask=np.ones(4)), 'mask has 1 axes')
    grid = tiling.Grid((20, 20), 8)
    blender = tiling.Blender(grid, (2,), lambda row, rows: None)
    fails(lambda: blender.add(grid[0], np.zeros((1, 8, 8))), 'expected [2, 8, 8]')
    fails(blender.finish, 'tiles have no result')
