# SPDX-License-Identifier: Apache-2.0
"""cytoc.formats beside the libraries themselves: what they write is read, whole and by regions, and what is written they read."""
import os
import resource
import struct
import subprocess
import sys

import av
import imageio.v3 as imageio
import nibabel
import numpy as np
import safetensors.numpy
import soundfile
import tifffile
import zarr

from cytoc import formats

WORK = ''


def path(name):
    os.makedirs(os.path.join(WORK, 'formats'), exist_ok=True)
    return os.path.join(WORK, 'formats', name)


def numbers(shape, dtype=np.uint16, seed=0):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == 'f':
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, min(np.iinfo(dtype).max, 60000), shape).astype(dtype)


def check(name, want, axes, scale=None, regions=20):
    """The image is `want`, whole and by regions at random; dtype and axes are right."""
    with formats.open_image(name) as image:
        assert image.axes == axes and image.shape == want.shape and image.dtype == want.dtype, (image.axes, image.shape, image.dtype)
        assert np.array_equal(image[...], want), name
        rng = np.random.default_rng(1)
        for _ in range(regions):
            ends = [np.sort(rng.integers(0, n + 1, 2)) for n in want.shape]
            key = tuple(slice(a, max(b, a + 1)) for a, b in ends)
            assert np.array_equal(image[key], want[key]), (name, key)
        assert np.array_equal(image[0], want[0]) and np.array_equal(image[..., 0], want[..., 0])
        for letter, size in (scale or {}).items():
            assert abs(image.scale[letter][0] - size[0]) < 1e-6 * size[0] and image.scale[letter][1] == size[1], image.scale


def test_tiff():
    x = numbers((3, 2, 5, 37, 41))
    for k, options in enumerate(({}, {'compression': 'zlib'}, {'compression': 'zlib', 'tile': (16, 16)}, {'tile': (16, 32)},
                                 {'compression': 'zlib', 'predictor': True, 'rowsperstrip': 5}, {'byteorder': '>'}, {'bigtiff': True})):
        name = path('a%d.ome.tif' % k)
        big = {n: options.pop(n) for n in ('byteorder', 'bigtiff') if n in options}
        with tifffile.TiffWriter(name, ome=True, **big) as f:
            f.write(x, photometric='minisblack', metadata={'axes': 'TCZYX', 'PhysicalSizeX': 0.25, 'PhysicalSizeXUnit': 'µm', 'PhysicalSizeZ': 2.0,
                                                           'PhysicalSizeZUnit': 'µm'}, **options)
        check(name, x if '>' not in big.values() else x.astype('>u2'), 'TCZYX', {'X': (0.25, 'micrometer'), 'Z': (2.0, 'micrometer')})
    plain = numbers((50, 60), np.uint8)
    tifffile.imwrite(path('b.tif'), plain, compression='zlib', rowsperstrip=7)
    check(path('b.tif'), plain, 'YX')
    colour = numbers((50, 60, 3), np.uint8)
    planar = numbers((3, 50, 60), np.uint8)
    tifffile.imwrite(path('planar.tif'), planar, photometric='rgb', planarconfig='separate', compression='zlib', tile=(16, 32))
    check(path('planar.tif'), planar, 'CYX')
    for k, options in enumerate(({}, {'compression': 'zlib', 'tile': (16, 16)}, {'compression': 'zlib'})):
        tifffile.imwrite(path('c%d.tif' % k), colour, photometric='rgb', **options)
        check(path('c%d.tif' % k), colour, 'YXC')
    stack = numbers((9, 20, 21), np.float32)
    tifffile.imwrite(path('d.tif'), stack, imagej=True, metadata={'axes': 'ZYX'})
    check(path('d.tif'), stack, 'ZYX')


def test_tiff_is_lazy():
    """Of a tiled, compressed file the tiles that a region touches are decoded, no others."""
    x = numbers((512, 512))
    tifffile.imwrite(path('lazy.tif'), x, compression='zlib', tile=(64, 64))
    image = formats.open_image(path('lazy.tif'))
    assert np.array_equal(image[70:130, 10:20], x[70:130, 10:20]) and len(image.kept) == 2
    image.close()


def parts_of_chunks():
    """Zarr: parts that cover chunks in part, chunks at borders, chunks of zeros, numbers of other types; read by zarr."""
    rng = np.random.default_rng(2)
    for dtype in ('uint8', '<f4', '>i2', 'bool', 'float16'):
        x = (rng.random((40, 300, 301)) * 3).astype(dtype)
        x[16:32, :256, :256] = 0
        writer = formats.create(path('p.ome.zarr'), x.shape, x.dtype, 'ZYX')
        for z in range(0, 40, 7):
            for y in range(0, 300, 130):
                writer.write([z, y, 0], x[z:z + 7, y:y + 130])
        with open(path('p.ome.zarr/0/0/1/0.part'), 'wb') as f:
            f.write(b'cut')  # of a run that was killed while it wrote
        again = formats.create(path('p.ome.zarr'), x.shape, x.dtype, 'ZYX', goes_on=True)
        again.write([0, 256, 0], x[:9, 256:])
        again.write([9, 256, 0], x[9:16, 256:])
        again.write([16, 0, 0], x[16:20] * 0)
        again.write([16, 0, 0], x[16:20])
        again.close()
        assert not [n for _, _, names in os.walk(path('p.ome.zarr')) for n in names if n.endswith('.part')]
        array = zarr.open_group(path('p.ome.zarr'), mode='r')['0']
        assert array.dtype == x.dtype.newbyteorder('<') and array.chunks == (16, 256, 256), (array.dtype, array.chunks)
        assert np.array_equal(array[:], x), dtype
        assert not os.path.exists(path('p.ome.zarr/0/1/0/0')) and os.path.exists(path('p.ome.zarr/0/1/1/0')), 'chunks of zeros have no file'


def test_zarr_failures():
    """A write that fails leaves the rows that were there; a damaged chunk is an error, not zeros; a whole chunk takes its place."""
    x = np.random.default_rng(5).random((8, 64, 64)).astype(np.float32)
    writer = formats.create(path('f.ome.zarr'), x.shape, x.dtype, 'ZYX', extra={'rows': {'Z': 8}})
    writer.write([0, 0, 0], x[:4])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        writer.write([4, 0, 0], x[4:])
        raise AssertionError('files were not limited')
    except OSError:
        pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    again = formats.create(path('f.ome.zarr'), x.shape, x.dtype, 'ZYX', goes_on=True)
    array = zarr.open_group(path('f.ome.zarr'), mode='r')['0']
    assert np.array_equal(array[:4], x[:4]) and not array[4:].any(), 'rows were lost'
    with open(path('f.ome.zarr/0/0/0/0'), 'r+b') as f:
        f.truncate(100)
    try:
        again.write([4, 0, 0], x[4:])
        raise AssertionError('a damaged chunk was taken')
    except formats.FormatError as e:
        assert 'f.ome.zarr/0/0/0/0' in str(e) and 'is damaged' in str(e) and 'run without --resume' in str(e), e
    again.write([0, 0, 0], x)
    again.close()
    assert np.array_equal(zarr.open_group(path('f.ome.zarr'), mode='r')['0'][:], x)
    with open(path('f.ome.zarr/0/.zarray'), 'r+b') as f:
        f.truncate(10)
    try:
        formats.create(path('f.ome.zarr'), x.shape, x.dtype, 'ZYX', goes_on=True)
        raise AssertionError('a damaged store was taken')
    except formats.FormatError as e:
        assert '.zarray' in str(e) and 'run without --resume' in str(e), e
    formats.create(path('n.ome.zarr'), (0, 5), np.uint8, 'YX').close()
    assert zarr.open_group(path('n.ome.zarr'), mode='r')['0'].shape == (0, 5)


def test_zarr_is_safe():
    """sync() writes to the disk what came since: files, and folders with new names; what it has seen to is no more replaced by something that
    is not there yet."""
    said, real, names = [], os.fsync, {}
    x = np.ones((32, 40, 40), np.uint8)

    def fsync(handle):
        said.append(os.path.relpath(os.readlink('/proc/self/fd/%d' % handle), path('s.ome.zarr')))
        real(handle)

    os.fsync = fsync
    try:
        writer = formats.create(path('s.ome.zarr'), x.shape, x.dtype, 'ZYX', extra={'rows': {'Z': 16}})
        for title, action in (('first', lambda: writer.write([0, 0, 0], x[:16])), ('sync', writer.sync), ('nothing', writer.sync),
                              ('new', lambda: writer.write([16, 0, 0], x[:4])), ('once', writer.sync),
                              ('again', lambda: writer.write([20, 0, 0], x[:4])), ('last', writer.sync)):
            said.clear()
            action()
            names[title] = sorted(said)
    finally:
        os.fsync = real
    assert names['first'] == names['nothing'] == [], names
    assert names['sync'] == ['.', '.zattrs', '.zgroup', '0', '0/.zarray', '0/.zattrs', '0/0', '0/0/0', '0/0/0/0'], names
    assert names['again'] == ['0/1/0/0.part'] and names['last'] == ['.', '0', '0/1', '0/1/0'], names
    assert set(names['new'] + names['once']) >= {'.', '0', '0/1', '0/1/0'} and [n for n in names['new'] + names['once'] if n.startswith('0/1/0/0')], names


def test_rows_are_read_once():
    """Regions beside each other come from the same rows, where these may be kept."""
    x = numbers((8, 6, 10), np.uint16)
    np.save(path('rows.npy'), x)
    calls, real = [], os.preadv
    os.preadv = lambda *args: calls.append(0) or real(*args)
    try:
        with formats.open_image(path('rows.npy')) as image:
            for at_once, counts in ((1 << 20, (1, 0, 1, 4, 1, 0)), (100, (4, 4, 4, 4, 4, 4))):
                image.at_once = at_once
                few = np.s_[2:6, :1, :2], np.s_[2:6, 1:2, :2], np.s_[2:6, 2:3, 3:5]  # from the second one on they have neighbours
                for count, part in zip(counts, (np.s_[2:6, :3], np.s_[2:6, 3:, 4:], np.s_[3:7, 1:4], *few)):
                    calls.clear()
                    assert np.array_equal(image[part], x[part]) and len(calls) == count, (at_once, part, len(calls))
                image.release()
            part = image[1:3]
            part += 1  # it is the caller's
            assert np.array_equal(image[1:3], x[1:3])
    finally:
        os.preadv = real


def test_zarr():
    x = numbers((2, 3, 10, 33, 35))
    for version in (2, 3):
        name = path('a%d.ome.zarr' % version)
        group = zarr.open_group(name, mode='w', zarr_format=version)
        axes = [{'name': a, 'type': 'space', 'unit': 'micrometer'} for a in 'tczyx']
        scales = [{'version': '0.4', 'axes': axes,
                   'datasets': [{'path': '0', 'coordinateTransformations': [{'type': 'scale', 'scale': [1, 1, 2.0, 0.5, 0.5]}]}]}]
        group.attrs.update({'multiscales': scales} if version == 2 else {'ome': {'version': '0.5', 'multiscales': scales}})
        array = group.create_array('0', shape=x.shape, chunks=(1, 1, 4, 16, 16), dtype=x.dtype)
        array[...] = x
        check(name, x, 'TCZYX', {'Z': (2.0, 'micrometer'), 'Y': (0.5, 'micrometer')})
        check(os.path.join(name, '0'), x, 'TCZYX')
    plate = zarr.open_group(path('plate.zarr'), mode='w', zarr_format=2)
    plate.attrs['plate'] = {'wells': [{'path': 'A/1'}, {'path': 'B/2'}]}
    for well in ('A/1', 'B/2'):
        plate.require_group(well).attrs['well'] = {'images': [{'path': '0'}, {'path': '1'}]}
    assert [os.path.relpath(p, path('plate.zarr')) for p in formats.images_in(path('plate.zarr'))] == ['A/1/0', 'A/1/1', 'B/2/0', 'B/2/1']
    assert formats.images_in(path('a2.ome.zarr')) == [path('a2.ome.zarr')]


def test_nifti():
    x = numbers((21, 22, 13), np.int16)  # of nibabel: x, y, z
    affine = np.diag([0.5, 0.5, 2.0, 1.0])
    for name in ('a.nii', 'a.nii.gz'):
        nibabel.save(nibabel.Nifti1Image(x, affine), path(name))
        check(path(name), x.T, 'ZYX', {'X': (0.5, ''), 'Z': (2.0, '')})
    y = numbers((8, 9, 10, 4), np.float32)
    nibabel.save(nibabel.Nifti2Image(y, affine), path('b.nii'))
    check(path('b.nii'), y.T, 'CZYX')
    scaled = nibabel.Nifti1Image(x, affine)
    scaled.header.set_slope_inter(0.5, 3)
    with open(path('c.nii'), 'wb') as f:
        scaled.header.set_data_offset(352)
        header = scaled.header.copy()
        header['scl_slope'], header['scl_inter'] = 0.5, 3
        header.write_to(f)
        f.write(bytes(352 - f.tell()))
        f.write(x.tobytes('F'))
    check(path('c.nii'), (x.T * 0.5 + 3).astype(np.float32), 'ZYX')


def test_pictures():
    for name, x in (('a.png', numbers((30, 40), np.uint8)), ('b.png', numbers((30, 40, 3), np.uint8)), ('c.png', numbers((30, 40), np.uint16))):
        imageio.imwrite(path(name), x)
        check(path(name), x, 'YX' if x.ndim == 2 else 'YXC')
    smooth = np.broadcast_to(np.arange(40, dtype=np.uint8) * 5, (30, 40)).copy()
    imageio.imwrite(path('d.jpg'), smooth)
    assert np.abs(formats.open_image(path('d.jpg'))[...].astype(int) - smooth).max() < 8


def test_audio():
    x = (numbers((8000, 2), np.float32) / 8).clip(-1, 1)
    soundfile.write(path('a.wav'), x, 22050, 'FLOAT')
    check(path('a.wav'), np.ascontiguousarray(x.T), 'CT', {'T': (1 / 22050, 'second')})
    soundfile.write(path('a.flac'), x[:, 0], 16000, 'PCM_24')
    got = formats.open_image(path('a.flac'))
    assert got.shape == (1, 8000) and np.abs(got[0, 100:300] - x[100:300, 0]).max() < 1e-6


def video_of(name, frames, codec='ffv1', pix_fmt='bgr0'):
    with av.open(name, 'w') as container:
        stream = container.add_stream(codec, rate=10)
        stream.height, stream.width, stream.pix_fmt = frames.shape[1], frames.shape[2], pix_fmt
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format='rgb24')))
        container.mux(stream.encode())
    return name


def test_video():
    x = numbers((7, 32, 48, 3), np.uint8)
    check(video_of(path('a.mkv'), x), x, 'TYXC', {'T': (0.1, 'second')})
    assert formats.open_image(video_of(path('b.mp4'), x, 'mpeg4', 'yuv420p')).shape == x.shape


def test_arrays():
    for shape, axes in (((20, 30), 'YX'), ((5, 20, 30), 'ZYX'), ((20, 30, 3), 'YXC'), ((2, 5, 20, 30), 'CZYX'), ((1, 2, 5, 20, 30), 'TCZYX'), ((9,), 'T')):
        x = numbers(shape, np.float32)
        np.save(path('a.npy'), x)
        check(path('a.npy'), x, axes)
        safetensors.numpy.save_file({'x': x}, path('a.safetensors'))
        check(path('a.safetensors'), x, axes)
    safetensors.numpy.save_file({'x': x, 'y': x + 1}, path('two.safetensors'))
    fails('two.safetensors', '2 tensors', '::x')
    check(path('two.safetensors') + '::y', x + 1, 'T')


def fill(writer, x, axes):
    """By slabs along the first axis, the last one first where that may be."""
    for k in range(0, x.shape[0], 2):
        writer.write([k] + [0] * (x.ndim - 1), x[k:k + 2])
    writer.sync()
    writer.close()


SCALE = {'X': (0.5, 'micrometer'), 'Y': (0.25, 'micrometer'), 'Z': (2.0, 'micrometer')}


def test_written():
    """What is written is read by the real library; voxel sizes are kept."""
    x = numbers((5, 20, 31))
    fill(formats.create(path('w.ome.tif'), x.shape, x.dtype, 'ZYX', SCALE), x, 'ZYX')
    with tifffile.TiffFile(path('w.ome.tif')) as f:
        assert f.is_ome and f.series[0].axes == 'ZYX' and np.array_equal(f.asarray(), x)
        assert 'PhysicalSizeX="0.5"' in f.ome_metadata and 'µm' in f.ome_metadata
    check(path('w.ome.tif'), x, 'ZYX', SCALE)
    fill(formats.create(path('w.ome.zarr'), x.shape, x.dtype, 'ZYX', SCALE), x, 'ZYX')
    group = zarr.open_group(path('w.ome.zarr'), mode='r')
    parts_of_chunks()
    assert np.array_equal(group['0'][...], x) and [a['name'] for a in group.attrs['multiscales'][0]['axes']] == ['z', 'y', 'x']
    check(path('w.ome.zarr'), x, 'ZYX', SCALE)
    for name in ('w.nii', 'w.nii.gz'):
        fill(formats.create(path(name), x.shape, x.dtype, 'ZYX', SCALE), x, 'ZYX')
        image = nibabel.load(path(name))
        assert np.array_equal(np.asarray(image.dataobj), x.T) and np.allclose(image.header.get_zooms(), (0.5, 0.25, 2.0))
        check(path(name), x, 'ZYX', SCALE)
    five = numbers((3, 2, 5, 8, 9))
    for name in ('five.ome.tif', 'five.ome.zarr', 'five.nii', 'five.npy', 'five.safetensors'):
        fill(formats.create(path(name), five.shape, five.dtype, 'TCZYX', SCALE), five, 'TCZYX')
    check(path('five.ome.tif'), five, 'TCZYX')
    check(path('five.ome.zarr'), five, 'TCZYX')
    check(path('five.nii'), five.transpose(1, 0, 2, 3, 4), 'CTZYX')
    assert np.asarray(nibabel.load(path('five.nii')).dataobj).shape == (9, 8, 5, 3, 2)
    assert np.array_equal(np.load(path('five.npy')), five) and np.array_equal(safetensors.numpy.load_file(path('five.safetensors'))['result'], five)


def test_written_pictures():
    x = numbers((3, 20, 31), np.uint8)
    fill(formats.create(path('w.png'), x.shape, x.dtype, 'CYX'), x, 'CYX')
    assert np.array_equal(imageio.imread(path('w.png')), x.transpose(1, 2, 0))
    deep = numbers((20, 31))
    fill(formats.create(path('w16.png'), deep.shape, deep.dtype, 'YX'), deep, 'YX')
    assert np.array_equal(imageio.imread(path('w16.png')), deep)
    try:
        formats.create(path('bad.png'), (20, 31), np.float32, 'YX')
        raise AssertionError('a picture of floats')
    except formats.FormatError as e:
        assert '--dtype' in str(e)


def test_written_audio():
    x = (numbers((2, 5000), np.float32) / 8).clip(-1, 1)
    for name in ('w.wav', 'w.flac'):
        writer = formats.create(path(name), x.shape, x.dtype, 'CT', extra={'rate': 8000})
        for k in range(0, 5000, 999):
            writer.write((0, k), x[:, k:k + 999])
        writer.close()
        got, rate = soundfile.read(path(name), dtype='float32')
        assert rate == 8000 and np.abs(got.T - x).max() < 1e-6


def test_written_video():
    x = numbers((5, 3, 16, 32), np.uint8)
    fill(formats.create(path('w.mkv'), x.shape, x.dtype, 'TCYX'), x, 'TCYX')
    with av.open(path('w.mkv')) as container:
        got = np.stack([f.to_ndarray(format='rgb24') for f in container.decode(video=0)])
    assert np.array_equal(got, x.transpose(0, 2, 3, 1))
    fill(formats.create(path('w.mp4'), (5, 16, 32), np.uint8, 'TYX'), x[:, 0], 'TYX')
    assert formats.open_image(path('w.mp4')).shape == (5, 16, 32, 3)


def test_same_as_input():
    """NIfTI: the affine of the input is that of the output."""
    affine = np.array([[0, -0.5, 0, 3], [0.5, 0, 0, 4], [0, 0, 2, 5], [0, 0, 0, 1]], float)
    nibabel.save(nibabel.Nifti1Image(numbers((5, 6, 7), np.int16), affine), path('affine.nii'))
    image = formats.open_image(path('affine.nii'))
    fill(formats.create(path('affine2.nii'), image.shape, np.uint8, image.axes, image.scale, extra=image.extra), np.zeros(image.shape, np.uint8), 'ZYX')
    assert np.allclose(nibabel.load(path('affine2.nii')).affine, affine)


def fails(name, *words):
    try:
        with formats.open_image(path(name)) as image:
            image[...]
    except (formats.FormatError, OSError) as e:
        assert all(w in str(e) for w in words) and os.path.basename(name) in str(e), str(e)
        return str(e)
    raise AssertionError('%s: no error' % name)


def test_damaged():
    """Every format: cut to half, empty, and garbage. FormatError with the file's name, no other exception."""
    x = numbers((4, 64, 64))
    tifffile.imwrite(path('t0.tif'), x)
    tifffile.imwrite(path('t1.tif'), x, compression='zlib')
    nibabel.save(nibabel.Nifti1Image(x, np.eye(4)), path('t.nii'))
    nibabel.save(nibabel.Nifti1Image(x, np.eye(4)), path('t.nii.gz'))
    imageio.imwrite(path('t.png'), x[0])
    imageio.imwrite(path('t.jpg'), x[0].astype(np.uint8))
    soundfile.write(path('t.flac'), numbers((9000, 1), np.float32) / 9, 16000)
    soundfile.write(path('t.wav'), numbers((9000, 1), np.float32) / 9, 16000)
    np.save(path('t.npy'), x)
    safetensors.numpy.save_file({'x': x}, path('t.safetensors'))
    video_of(path('t.mp4'), numbers((6, 32, 32, 3), np.uint8), 'mpeg4', 'yuv420p')
    for name in ('t0.tif', 't1.tif', 't.nii', 't.nii.gz', 't.png', 't.jpg', 't.flac', 't.wav', 't.npy', 't.safetensors', 't.mp4'):
        data = open(path(name), 'rb').read()
        for what, damaged in (('cut', data[:len(data) // 2]), ('empty', b''), ('garbage', os.urandom(5000))):
            with open(path('%s-%s' % (what, name)), 'wb') as f:
                f.write(damaged)
            fails('%s-%s' % (what, name))
    fails('missing.tif', 'no such file')
    open(path('notes.docx'), 'w').close()
    fails('notes.docx', '.ome.tif')
    os.makedirs(path('empty.zarr'), exist_ok=True)
    fails('empty.zarr')
    group = zarr.open_group(path('holes.zarr'), mode='w', zarr_format=2)
    group.attrs['multiscales'] = [{'axes': list('yx'), 'datasets': [{'path': '0'}]}]
    fails('holes.zarr', "'0' is missing")


def test_truncated():
    """Wherever a file ends too early, there is an error; never a part of it in place of the whole."""
    x, frames = numbers((6, 40, 44)), numbers((20, 32, 48, 3), np.uint8)
    tifffile.imwrite(path('c0.ome.tif'), x, ome=True, metadata={'axes': 'ZYX', 'PhysicalSizeX': 0.5})
    tifffile.imwrite(path('c1.ome.tif'), x, ome=True, compression='zlib', tile=(16, 16), bigtiff=True, metadata={'axes': 'ZYX'})
    with tifffile.TiffWriter(path('c2.tif'), byteorder='>') as f:
        for plane in x:
            f.write(plane, contiguous=False, software=False, metadata=None)
    tifffile.imwrite(path('c3.tif'), x, imagej=True, metadata={'axes': 'ZYX'})
    nibabel.save(nibabel.Nifti1Image(x, np.eye(4)), path('c.nii.gz'))
    imageio.imwrite(path('c.png'), x[0])
    imageio.imwrite(path('c.jpg'), x[0].astype(np.uint8))
    for suffix in ('wav', 'flac'):
        soundfile.write(path('c.' + suffix), numbers((9000, 2), np.float32) / 9, 16000)
    np.save(path('c.npy'), x)
    safetensors.numpy.save_file({'x': x}, path('c.safetensors'))
    for name, codec, pixels in (('c.mkv', 'ffv1', 'bgr0'), ('d.mkv', 'mpeg4', 'yuv420p'), ('c.avi', 'mpeg4', 'yuv420p'), ('c.mp4', 'mpeg4', 'yuv420p')):
        video_of(path(name), frames, codec, pixels)
    for name in ('c0.ome.tif', 'c1.ome.tif', 'c2.tif', 'c3.tif', 'c.nii.gz', 'c.png', 'c.jpg', 'c.wav', 'c.flac', 'c.npy', 'c.safetensors', 'c.mkv', 'd.mkv',
                 'c.avi', 'c.mp4'):
        with formats.open_image(path(name)) as image:
            whole = image[...]
        data = open(path(name), 'rb').read()
        for size in [len(data) * k // 16 for k in range(16)]:
            with open(path('cut-' + name), 'wb') as f:
                f.write(data[:size])
            fails('cut-' + name)
        with open(path('cut-' + name), 'wb') as f:
            f.write(data[:-20])  # which may be but what ends the file
        try:
            with formats.open_image(path('cut-' + name)) as image:
                assert np.array_equal(image[...], whole), name
        except (formats.FormatError, OSError):
            pass
    with open(path('long.wav'), 'wb') as f:  # what is more than it says is no harm
        f.write(open(path('c.wav'), 'rb').read() + b'more')
    assert formats.open_image(path('long.wav')).shape == (2, 9000)
    wave = open(path('c.wav'), 'rb').read()
    data = wave.index(b'data')
    for of_file, of_data in ((0x7ffff024, 0x7ffff000), (0x80000024, 0x80000000), (0xffffffff, 0xffffffff), (len(wave), None)):  # sox, arecord, ..
        text = wave[:4] + struct.pack('<I', of_file) + wave[8:data + 4] + (wave[data + 4:data + 8] if of_data is None else struct.pack('<I', of_data))
        with open(path('open.wav'), 'wb') as f:
            f.write(text + wave[data + 8:])
        assert formats.open_image(path('open.wav')).shape == (2, 9000), hex(of_file)


def test_not_installed():
    """Without a format's library: which extra of the package has it."""
    code = ('import sys\nfor n in ("tifffile", "zarr", "nibabel", "imageio", "PIL", "soundfile", "av", "safetensors"): sys.modules[n] = None\n'
            'from cytoc import formats\n'
            'for p in sys.argv[1:]:\n    try: formats.open_image(p); print("opened", p)\n    except formats.FormatError as e: print(e)')
    files = [path('not-installed' + s) for s in ('.ome.tif', '.ome.zarr', '.nii', '.png', '.wav', '.mkv', '.safetensors')]
    for name in files:
        open(name, 'w').close()
    out = subprocess.run([sys.executable, '-c', code, *files], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    wanted = ['images', 'volumes', 'volumes', 'images', 'audio', 'video', 'volumes']
    assert len(out) == 7 and all("pip install 'cytoc[%s]'" % w in line for w, line in zip(wanted, out)), out
