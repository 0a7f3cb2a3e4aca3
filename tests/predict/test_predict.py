# SPDX-License-Identifier: Apache-2.0
"""`cytoc predict` from files to files, beside MONAI's sliding window over the same network in PyTorch."""
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys

import av
import imageio.v3 as imageio
import nets
import nibabel
import numpy as np
import safetensors.numpy
import soundfile
import tifffile
import zarr
from test_formats import numbers, video_of

import cytoc
from cytoc import formats
from cytoc.predict import main

WORK = BUILD = ''
LIMIT = 1e-5


def folder(name):
    path = os.path.join(WORK, 'predict', name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path


def run(*words, code=0):
    """(what was printed, the summary)"""
    said = io.StringIO()
    summary = os.path.join(WORK, 'summary.json')
    with contextlib.suppress(FileNotFoundError):
        os.remove(summary)
    with contextlib.redirect_stderr(said):
        found = main([*map(str, words), '--json', summary])
    assert found == code, 'exit code %s, not %s: %s' % (found, code, said.getvalue())
    return said.getvalue(), json.load(open(summary)) if os.path.exists(summary) else None


def fails(*words, says=()):
    said, _ = run(*words, code=1)
    assert said.startswith('cytoc predict: error: '), said
    for word in says:
        assert word in said, '%s: not in: %s' % (word, said)
    return said


def near(got, want, what=''):
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, '%s: shape %s, not %s' % (what, got.shape, want.shape)
    error = float(np.abs(got.astype(np.float64) - want).max())
    assert error <= LIMIT * max(1.0, float(np.abs(want).max())), '%s: differs by %g' % (what, error)


def test_images():
    """Pictures, TIFF and npy of several sizes and types, one of them smaller than a tile, in one run: each is MONAI's."""
    f = folder('images')
    net, same = nets.conv(f + '/net.onnx')
    a, b, c, d = numbers((50, 61), np.uint8), numbers((40, 90)), numbers((20, 21), np.float32), numbers((64, 64), np.uint8)
    imageio.imwrite(f + '/a.png', a)
    tifffile.imwrite(f + '/b.tif', b)
    np.save(f + '/c.npy', c)
    tifffile.imwrite(f + '/d.ome.tif', d, compression='zlib', ome=True, metadata={'axes': 'YX', 'PhysicalSizeX': 0.5, 'PhysicalSizeXUnit': 'µm'})
    said, summary = run(net, f, '-o', f + '/out', '--tile', '32x32', '--overlap', 0.5, '--exclude', '*.onnx')
    for name, x in (('a.ome.tif', a), ('b.ome.tif', b), ('c.npy', c), ('d.ome.tif', d)):
        got = np.load(f + '/out/' + name) if name.endswith('npy') else tifffile.imread(f + '/out/' + name)
        near(got, nets.expected(x[None], same, (32, 32), 0.5), name)
    assert 'PhysicalSizeX="0.5"' in tifffile.TiffFile(f + '/out/d.ome.tif').ome_metadata
    assert summary['done'] == 4 and summary['failed'] == 0 and summary['bottleneck'] and summary['advice']
    assert {s['name'] for s in summary['stages']} == {'open', 'read', 'run', 'blend', 'after', 'write'}
    assert re.search(r'\n4 done, 0 failed in (\d\.\d|\d\d) s, ', said), said
    assert 'slowest: ' in said and '\r' not in said and not [n for n in os.listdir(f + '/out') if n.endswith('.partial')]


def test_volumes():
    """3-D: TIFF with channels and times, Zarr, NIfTI, safetensors."""
    f = folder('volumes')
    net, same = nets.conv(f + '/net.onnx', 3, 2)
    x = numbers((2, 2, 13, 30, 33), np.uint16)  # T, C, Z, Y, X
    tifffile.imwrite(f + '/a.ome.tif', x, ome=True, metadata={'axes': 'TCZYX'}, photometric='minisblack')
    writer = formats.create(f + '/b.ome.zarr', x.shape, x.dtype, 'TCZYX', {'Z': (2.0, 'micrometer')})
    writer.write((0,) * 5, x)
    nibabel.save(nibabel.Nifti1Image(x[0].T, np.diag([0.5, 0.5, 2, 1])), f + '/c.nii.gz')
    safetensors.numpy.save_file({'x': x[1]}, f + '/d.safetensors')
    run(net, f + '/*.ome.*', f + '/c.nii.gz', f + '/d.safetensors', '-o', f + '/out', '--tile', '8x16x16')
    want = np.stack([nets.expected(t, same, (8, 16, 16)) for t in x])
    near(tifffile.imread(f + '/out/a.ome.tif'), want, 'tiff')
    group = zarr.open_group(f + '/out/b.ome.zarr', mode='r')
    near(group['0'][...], want, 'zarr')
    assert group.attrs['multiscales'][0]['datasets'][0]['coordinateTransformations'][0]['scale'] == [1, 1, 2, 1, 1]
    nifti = nibabel.load(f + '/out/c.nii.gz')
    near(np.asarray(nifti.dataobj), want[0].T, 'nifti')
    assert np.allclose(nifti.affine, np.diag([0.5, 0.5, 2, 1]))
    near(safetensors.numpy.load_file(f + '/out/d.safetensors')['result'], want[1], 'safetensors')


def test_planes():
    """A network of 2 axes on a volume: each plane by itself. Labels in the input's format; voxel sizes of the input."""
    f = folder('planes')
    net, same = nets.conv(f + '/net.onnx', outputs=3)
    x = numbers((5, 40, 41), np.uint8)
    tifffile.imwrite(f + '/a.ome.tif', x, ome=True, metadata={'axes': 'ZYX'})
    run(net, f + '/a.ome.tif', '-o', f + '/out', '--tile', 16, '--argmax', '--format', 'zarr')
    want = np.stack([nets.expected(p[None], same, (16, 16)).argmax(0) for p in x])
    got = zarr.open_group(f + '/out/a.ome.zarr', mode='r')['0'][...]
    assert got.dtype == np.uint8 and got.shape == want.shape and (got != want).mean() < 1e-3


def test_audio_and_video():
    f = folder('sound')
    net, same = nets.conv(f + '/net.onnx', 1, 2, 1)
    x = (numbers((9000, 2), np.float32) / 8).clip(-1, 1)
    soundfile.write(f + '/a.wav', x, 8000, 'FLOAT')
    run(net, f + '/a.wav', '-o', f + '/out', '--tile', 1024)
    got, rate = soundfile.read(f + '/out/a.wav', dtype='float32')
    near(got, nets.expected(x.T, same, (1024,))[0], 'audio')
    assert rate == 8000
    net, same = nets.conv(f + '/net2.onnx', 2, 3, 1)
    frames = numbers((6, 32, 48, 3), np.uint8)
    video_of(f + '/b.mkv', frames)
    run(net, f + '/b.mkv', '-o', f + '/out', '--normalize', 'unit', '--threshold', 0.02, '--tile', 0, '--format', 'video')
    want = np.stack([nets.expected(p.transpose(2, 0, 1) / 255, same, (32, 48))[0] > 0.02 for p in frames])
    with av.open(f + '/out/b.mkv') as container:
        got = np.stack([p.to_ndarray(format='rgb24') for p in container.decode(video=0)])
    assert got.shape == frames.shape and (got[..., 0] != want).mean() < 1e-3


def test_numbers():
    """--normalize, --mean, --std, --channels; --activation, --threshold, --dtype."""
    f = folder('numbers')
    net, same = nets.conv(f + '/net.onnx', 2, 2)
    x = numbers((4, 1, 50, 60))  # axes CZYX
    np.save(f + '/a.npy', x)
    part = x[[2, 0], 0].astype(np.float64)
    flat = part.reshape(2, -1)

    def by(shift, scale):
        return (part - np.reshape(shift, (2, 1, 1))) / np.reshape(scale, (2, 1, 1))
    for words, want in ((['--normalize', 'unit'], part / 65535), (['--normalize', 'zscore'], by(flat.mean(1), flat.std(1))),
                        (['--normalize', 'minmax'], by(flat.min(1), np.ptp(flat, 1))),
                        (['--normalize', 'percentile'], by(np.percentile(flat, 1, 1), np.percentile(flat, 99.8, 1) - np.percentile(flat, 1, 1))),
                        (['--normalize', 'unit', '--mean', '0.5,0.25', '--std', '2'], (part / 65535 - np.reshape([0.5, 0.25], (2, 1, 1))) / 2)):
        run(net, f + '/a.npy', '-o', f + '/out', '--tile', 32, '--channels', '2,0', *words)
        near(np.load(f + '/out/a.npy')[:, 0], nets.expected(want, same, (32, 32)), words)
    base = nets.expected(part / 65535, same, (32, 32)).astype(np.float64)
    for words, want in ((['--activation', 'sigmoid'], 1 / (1 + np.exp(-base))),
                        (['--activation', 'softmax'], np.exp(base) / np.exp(base).sum(0))):
        run(net, f + '/a.npy', '-o', f + '/out', '--tile', 32, '--channels', '2,0', '--normalize', 'unit', *words)
        near(np.load(f + '/out/a.npy')[:, 0], want, words)
    run(net, f + '/a.npy', '-o', f + '/out', '--tile', 32, '--channels', '2,0', '--dtype', 'uint8')
    want = nets.expected(part, same, (32, 32))
    assert np.abs(np.load(f + '/out/a.npy')[:, 0].astype(int) - np.clip(np.rint(want), 0, 255)).max() <= 1 and want.max() > 255


def test_region():
    f = folder('region')
    net, same = nets.conv(f + '/net.onnx', outputs=1)
    x = numbers((100, 120), np.float32)
    np.save(f + '/a.npy', x)
    want = nets.expected(x[None], same, (16, 16))[0]
    _, all_tiles = run(net, f + '/a.npy', '-o', f + '/out', '--tile', 16)
    _, some = run(net, f + '/a.npy', '-o', f + '/out', '--tile', 16, '--box', '0:10,0:10', '--box', '80:90,100:120')
    got = np.load(f + '/out/a.npy')[0]
    near(got[80:90, 100:120], want[80:90, 100:120])
    assert (got[40:60, 40:60] == 0).all() and some['tiles'] < all_tiles['tiles'] / 5
    mask = np.zeros((10, 12), np.uint8)
    mask[5, 6] = 1
    np.save(f + '/a-mask.npy', mask)
    _, some = run(net, f + '/a.npy', '-o', f + '/out', '--tile', 16, '--mask', f + '/{name}-mask.npy')
    near(np.load(f + '/out/a.npy')[0][50:60, 60:70], want[50:60, 60:70])
    np.save(f + '/a-mask.npy', mask * 0)
    said, _ = run(net, f + '/a.npy', '-o', f + '/out', '--tile', 16, '--mask', f + '/{name}-mask.npy', code=2)
    assert 'no tile touches the region of interest' in said


def test_pyramid():
    """Scales of one library with symbolic sizes, beside cytoc.tiling.pyramid; with results that go into files between."""
    f = folder('pyramid')
    net, same = nets.conv(f + '/net.onnx', 3)
    x = numbers((20, 50, 60), np.float32)
    np.save(f + '/a.npy', x)

    def network(tiles):
        return same(nets.torch.from_numpy(tiles)).numpy()
    for merge in cytoc.tiling.MERGING:
        run(net, f + '/a.npy', '-o', f + '/out', '--tile', '8x16x16', '--scales', '1,2,1x4x4', '--merge', merge)
        want = cytoc.tiling.pyramid(x[None], network, (8, 16, 16), [1, 2, (1, 4, 4)], merge=merge, mode='gaussian')
        near(np.load(f + '/out/a.npy'), want, merge)
    fails(nets.conv(f + '/fixed.onnx', 3, sizes=(8, 16, 16))[0], f + '/a.npy', '-o', f + '/out', '--scales', '1,2', says=['sizes are open'])


def test_layouts():
    """Channels last, of pictures; results without channels; results of another size."""
    f = folder('layouts')
    x = numbers((40, 50, 3), np.uint8)
    imageio.imwrite(f + '/a.png', x)
    node = nets.helper.make_node
    net = nets.save(f + '/nhwc.onnx', [node('Mul', ['x', 's'], ['y'])], [nets.port('x', ['n', 'h', 'w', 3])], [nets.port('y', ['n', 'h', 'w', 3])],
                    [('s', np.array([1, 2, 3], np.float32))])
    run(net, f + '/a.png', '-o', f + '/out', '--tile', 16)
    near(tifffile.imread(f + '/out/a.ome.tif'), (x * np.array([1.0, 2, 3])).transpose(2, 0, 1), 'NHWC')
    net = nets.save(f + '/sum.onnx', [node('ReduceSum', ['x', 'a'], ['y'], keepdims=0)], [nets.port('x', ['n', 3, 'h', 'w'])],
                    [nets.port('y', ['n', 'h', 'w'])], [('a', np.array([1], np.int64))])
    run(net, f + '/a.png', '-o', f + '/out', '--tile', 16)
    near(tifffile.imread(f + '/out/a.ome.tif'), x.sum(2).astype(np.float64), 'no channels')
    net = nets.save(f + '/half.onnx', [node('AveragePool', ['x'], ['y'], kernel_shape=[2, 2], strides=[2, 2])], [nets.port('x', ['n', 3, 'h', 'w'])],
                    [nets.port('y', ['n', 3, 'h2', 'w2'])])
    run(net, f + '/a.png', '-o', f + '/out', '--tile', 16, '--align', 2)
    near(tifffile.imread(f + '/out/a.ome.tif'), x.reshape(20, 2, 25, 2, 3).mean((1, 3)).transpose(2, 0, 1), 'half')


def test_output_layout():
    """An output whose axes lie otherwise than the input's: channels last, space in another order."""
    f = folder('output-layout')
    x = numbers((40, 50, 3), np.uint8)
    imageio.imwrite(f + '/a.png', x)
    for layout, order in (('NHWC', [0, 2, 3, 1]), ('NWCH', [0, 3, 1, 2])):
        net = nets.save(f + '/%s.onnx' % layout, [nets.helper.make_node('Transpose', ['x'], ['y'], perm=order)], [nets.port('x', ['n', 3, 'h', 'w'])],
                        [nets.port('y', ['a', 'b', 'c', 'd'])])
        words = [net, f + '/a.png', '-o', f + '/out', '--tile', '16x24']
        run(*words, '--output-layout', layout)
        near(tifffile.imread(f + '/out/a.ome.tif'), x.transpose(2, 0, 1), layout)
        fails(*words, '--output-layout', 'NHW', says=['--output-layout', "4 axes of output 'y'", "found 'NHW'"])
    said, _ = run(f + '/NWCH.onnx', f + '/a.png', '-o', f + '/out', '--tile', '16x24', code=2)
    assert '--output-layout' in said, said


def test_whole_images():
    """A network that gives numbers for an image: an array for each."""
    f = folder('whole')
    node = nets.helper.make_node
    net = nets.save(f + '/mean.onnx', [node('GlobalAveragePool', ['x'], ['m']), node('Flatten', ['m'], ['y'])],
                    [nets.port('x', ['n', 3, 40, 50])], [nets.port('y', ['n', 3])])
    x = numbers((40, 50, 3), np.uint8)
    imageio.imwrite(f + '/a.png', x)
    imageio.imwrite(f + '/b.png', numbers((41, 50, 3), np.uint8))
    said, summary = run(net, f + '/*.png', '-o', f + '/out', code=2)
    near(np.load(f + '/out/a.npy'), x.mean((0, 1)))
    assert summary['done'] == 1 and 'b.png' in said and 'must be one tile' in said
    run(net, f + '/a.png', '-o', f + '/out', '--argmax')
    assert np.load(f + '/out/a.npy') == x.mean((0, 1)).argmax()


def test_several_inputs():
    f = folder('inputs')
    node = nets.helper.make_node
    net = nets.save(f + '/two.onnx', [node('Mul', ['x', 'gain'], ['m']), node('Add', ['m', 'm'], ['z']), node('Identity', ['m'], ['y'])],
                    [nets.port('x', ['n', 1, 'h', 'w']), nets.port('gain', ['n', 1, 1, 1])],
                    [nets.port('y', ['n', 1, 'h', 'w']), nets.port('z', ['n', 1, 'h', 'w'])])
    x = numbers((30, 30), np.float32)
    np.save(f + '/a.npy', x)
    words = [net, f + '/a.npy', '-o', f + '/out', '--tile', 16]
    fails(*words, says=["2 inputs, 'x', 'gain'", '--input NAME', '--set'])
    run(*words, '--input', 'x', '--set', 'gain=3')
    near(np.load(f + '/out/a.npy')[0], x * 3)
    run(*words, '--set', 'gain=3', '--output', 'z')
    near(np.load(f + '/out/a.npy')[0], x * 6)
    np.save(f + '/gain.npy', np.full((1, 1, 1), 2, np.float32))
    run(*words, '--set', 'gain=%s/gain.npy' % f)
    near(np.load(f + '/out/a.npy')[0], x * 2)
    fails(*words, '--set', 'gian=3', says=["did you mean 'gain'"])
    fails(*words, '--set', 'gain=much', says=['a number or a file'])
    fails(*words, '--set', 'gain=3', '--output', 'w', says=["no output 'w'"])


def test_reuse_and_first():
    """Frames like the last one are not computed again; a cheap model decides who needs the expensive one."""
    f = folder('reuse')
    net, same = nets.conv(f + '/net.onnx', 2, 3, 1)
    frames = np.repeat(numbers((3, 32, 48, 3), np.uint8), 4, 0)
    video_of(f + '/a.mkv', frames)
    _, summary = run(net, f + '/a.mkv', '-o', f + '/out', '--tile', 0, '--reuse', 0.5, '--format', 'npy')
    stage = next(s for s in summary['stages'] if s['name'] == 'run')
    assert stage['reused'] == 9, stage
    near(np.load(f + '/out/a.npy'), np.stack([nets.expected(p.transpose(2, 0, 1), same, (32, 48)) for p in frames]))
    node = nets.helper.make_node
    cheap = nets.save(f + '/cheap.onnx', [node('Identity', ['x'], ['y'])], [nets.port('x', ['n', 1, 'h', 'w'])], [nets.port('y', ['n', 1, 'h', 'w'])])
    expensive = nets.save(f + '/e.onnx', [node('Add', ['x', 'x'], ['y'])], [nets.port('x', ['n', 1, 'h', 'w'])], [nets.port('y', ['n', 1, 'h', 'w'])])
    x = np.zeros((32, 16), np.float32)
    x[0], x[20] = 0.5, 0.99
    np.save(f + '/b.npy', x)
    run(expensive, f + '/b.npy', '-o', f + '/out', '--tile', 16, '--overlap', 0, '--first', cheap, '--confident', 0.9)
    near(np.load(f + '/out/b.npy')[0], np.concatenate((x[:16] * 2, x[16:])))


def test_compiled_and_options():
    """A library as well as a model; options of compiling."""
    f = folder('compiled')
    net, same = nets.conv(f + '/net.onnx', 2, 1, 4, layers=2)
    x = numbers((60, 60), np.uint8)
    np.save(f + '/a.npy', x)
    cytoc.compile(net).save(f + '/net.so')
    words = [f + '/a.npy', '-o', f + '/out', '--tile', 32, '--normalize', 'unit']
    run(f + '/net.so', *words)
    want = nets.expected(x[None] / 255, same, (32, 32))
    near(np.load(f + '/out/a.npy'), want)
    fails(f + '/net.so', *words, '--int8', says=['is compiled', '--int8'])
    run(net, *words, '--int8=dynamic', '-O3', '--dim', 'batch=1')
    got = np.load(f + '/out/a.npy')
    error = np.abs(got - want).max() / np.abs(want).max()
    assert 1e-6 < error < 0.05, error
    fails(net, *words, '--int9', says=['--int9'])
    fails(net, *words, '--overlpa', '0.5', says=['did you mean'])


def test_cache():
    """The second run takes decoded images from the cache; a changed file is decoded anew; the cache stays below its limit."""
    f = folder('cache')
    net, same = nets.conv(f + '/net.onnx')
    for k in range(4):
        imageio.imwrite(f + '/i%d.png' % k, numbers((100, 100), np.uint8, k))
    words = [net, f + '/*.png', '-o', f + '/out', '--tile', 32, '--normalize', 'zscore', '--cache', f + '/kept', '--format', 'npy']
    run(*words)
    first = [np.load(f + '/out/i%d.npy' % k) for k in range(4)]
    times = {n: os.stat(f + '/kept/' + n).st_ino for n in os.listdir(f + '/kept')}
    assert len(times) == 4
    imageio.imwrite(f + '/i0.png', numbers((90, 100), np.uint8, 9))
    run(*words)
    now = {n: os.stat(f + '/kept/' + n).st_ino for n in os.listdir(f + '/kept')}
    assert len(now) == 5 and all(now[n] == t for n, t in times.items())
    assert np.load(f + '/out/i0.npy').shape == (2, 90, 100) and all(np.array_equal(np.load(f + '/out/i%d.npy' % k), first[k]) for k in (1, 2, 3))
    run(*words, '--cache-size', '100K')
    assert sum(os.path.getsize(f + '/kept/' + n) for n in os.listdir(f + '/kept')) <= 100 << 10


def test_command():
    """The program cytoc finds Python's part; a bar on a terminal only."""
    f = folder('command')
    net, same = nets.conv(f + '/net.onnx')
    x = numbers((40, 40), np.float32)
    np.save(f + '/a.npy', x)
    env = dict(os.environ, CYTO_PYTHON=sys.executable)
    words = [os.path.join(BUILD, 'cytoc'), 'predict', net, f + '/a.npy', '-o', f + '/out', '--tile', '16', '--json', '-']
    done = subprocess.run(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0 and json.loads(done.stdout)['done'] == 1 and '\r' not in done.stderr, done.stderr
    near(np.load(f + '/out/a.npy'), nets.expected(x[None], same, (16, 16)))
    done = subprocess.run(words, env=dict(env, CYTO_PYTHON='/bin/false'), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and 'cytoc predict is part of the Python package' in done.stderr, done.stderr
    import pty
    leader, follower = pty.openpty()
    process = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=follower)
    os.close(follower)
    shown = b''
    with contextlib.suppress(OSError):
        while True:
            shown += os.read(leader, 4096)
    os.close(leader)
    assert process.wait() == 0 and b'\r\x1b[K' in shown, shown
