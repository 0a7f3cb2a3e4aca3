# SPDX-License-Identifier: Apache-2.0
"""`cytoc predict` where things go wrong: kills, full disks, little memory, files and options that do not fit."""
import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time

import imageio.v3 as imageio
import nets
import nibabel
import numpy as np
import soundfile
import tifffile
import zarr
from test_formats import numbers
import test_predict
from test_predict import fails, near, run

import cytoc
from cytoc import formats

WORK = BUILD = ''
JOURNAL = '.cytoc-predict.jsonl'


def folder(name):
    test_predict.WORK, test_predict.BUILD = WORK, BUILD
    return test_predict.folder('robust-' + name)


def start(*words, step=None, **options):
    """step: in how many rows results are written, which otherwise follows from --memory."""
    code = 'import runpy\nfrom cytoc import formats\nformats.rows_at_once = lambda *_: %s\nrunpy.run_module("cytoc", run_name="__main__")' % step
    how = ['-c', code] if step else ['-m', 'cytoc']
    return subprocess.Popen([sys.executable, '-W', 'ignore', *how, 'predict', *map(str, words)], stderr=subprocess.PIPE, **options)


def entries(out, kind):
    try:
        lines = open(os.path.join(out, JOURNAL), encoding='utf-8').read().splitlines()
    except FileNotFoundError:
        return []
    return [line for line in lines if '"%s": ' % kind in line]


def killed_when(out, kind, count, *words, step=None):
    """Kills a run with signal 9 as soon as its journal has so many entries of a kind."""
    process = start(*words, step=step)
    end = time.time() + 240
    while len(entries(out, kind)) < count:
        assert process.poll() is None, 'it ended before it was killed: %s' % process.stderr.read()
        assert time.time() < end, 'no entry in the journal'
        time.sleep(0.005)
    process.kill()
    process.wait()
    process.stderr.close()


def test_resume():
    """Killed between items: what is done is not done again, and the results are the same bytes."""
    f = folder('resume')
    net, _ = nets.conv(f + '/net.onnx', 3, 1, 16, layers=3)
    for k in range(6):
        np.save(f + '/v%d.npy' % k, numbers((24, 64, 64), np.float32, k))
    words = [net, f + '/v*.npy', '--tile', '16x32x32', '--batch', 1]
    run(*words, '-o', f + '/whole')
    killed_when(f + '/out', 'output', 2, *words, '-o', f + '/out')
    before = {n: os.stat(f + '/out/' + n).st_mtime_ns for n in os.listdir(f + '/out') if n.startswith('v')}
    assert 2 <= len(before) < 6, before
    _, summary = run(*words, '-o', f + '/out', '--resume')
    assert summary['skipped'] >= 2 and summary['done'] == 6 - summary['skipped'], summary
    done = [json.loads(line)['item'] for line in entries(f + '/out', 'output')]
    assert sorted(set(done)) == [f + '/v%d.npy' % k for k in range(6)] and len(done) == 6, done
    for k in range(6):
        assert open(f + '/out/v%d.npy' % k, 'rb').read() == open(f + '/whole/v%d.npy' % k, 'rb').read(), k
    assert not [n for n in os.listdir(f + '/out') if n.endswith('.partial')]
    _, again = run(*words, '-o', f + '/out', '--resume')
    assert again['skipped'] == 6 and again['done'] == 0
    np.save(f + '/v3.npy', numbers((24, 64, 64), np.float32, 9))
    _, again = run(*words, '-o', f + '/out', '--resume')
    assert again['skipped'] == 5 and again['done'] == 1, 'a file that has changed is done anew'


def test_resume_within():
    """Killed within a volume: the rows that are on the disk are not computed again. npy, TIFF and Zarr; several positions."""
    f = folder('within')
    net, _ = nets.conv(f + '/net.onnx', 3, 1, 12, layers=3)
    x = numbers((2, 1, 96, 48, 48), np.float32)  # T, C, Z, Y, X
    np.save(f + '/a.npy', x)
    for kind, name in (('npy', 'a.npy'), ('tiff', 'a.ome.tif'), ('zarr', 'a.ome.zarr')):
        words = [net, f + '/a.npy', '--tile', '8x32x32', '--batch', 1, '--checkpoint', 0, '--format', kind]
        _, whole = run(*words, '-o', f + '/whole')
        out = '%s/out-%s' % (f, kind)
        killed_when(out, 'rows', 5 if kind == 'npy' else 2, *words, '-o', out)
        entry = json.loads(entries(out, 'rows')[-1])
        assert entry['rows'] > 0 and not os.path.exists(out + '/' + name)
        _, rest = run(*words, '-o', out, '--resume')
        assert rest['done'] == 1 and rest['tiles'] < whole['tiles'], (rest['tiles'], whole['tiles'])
        a, b = (zarr.open_group(p + name, mode='r')['0'][...] if kind == 'zarr' else np.load(p + name) if kind == 'npy' else tifffile.imread(p + name)
                for p in (out + '/', f + '/whole/'))
        assert np.array_equal(a, b), kind
        if kind == 'tiff':
            assert open(out + '/' + name, 'rb').read() == open(f + '/whole/' + name, 'rb').read()


def test_resume_with_other_steps():
    """With another --memory the rows of a volume are written in other steps, so that a chunk with rows of the journal is written again:
    killed twice, nothing is lost."""
    f = folder('steps')
    net, _ = nets.conv(f + '/net.onnx', 3, 1, 12, layers=3)
    np.save(f + '/a.npy', numbers((96, 48, 48), np.float32))
    words = [net, f + '/a.npy', '--tile', '8x32x32', '--batch', 1, '--checkpoint', 0, '--format', 'zarr']
    run(*words, '-o', f + '/whole')
    killed_when(f + '/out', 'rows', 2, *words, '-o', f + '/out', step=12)
    killed_when(f + '/out', 'rows', 5, *words, '-o', f + '/out', '--resume', step=5)
    run(*words, '-o', f + '/out', '--resume')
    a, b = (zarr.open_group(f + p + '/a.ome.zarr', mode='r')['0'] for p in ('/out', '/whole'))
    assert a.chunks[1] == 12 and b.chunks[1] == 32 and np.array_equal(a[...], b[...]), (a.chunks, np.argwhere((a[...] != b[...]).any((1, 2))).ravel())


def test_journal():
    f = folder('journal')
    net, _ = nets.conv(f + '/net.onnx')
    np.save(f + '/a.npy', numbers((40, 40), np.float32))
    words = [net, f + '/a.npy', '-o', f + '/out', '--tile', 16]
    run(*words)
    fails(*words, '--resume', '--overlap', 0.5, says=['other options', 'overlap was [0.25] and is [0.5]', 'without --resume'])
    with open(f + '/out/' + JOURNAL, 'a') as file:
        file.write('{"item": "cut')
    assert run(*words, '--resume')[1]['skipped'] == 1
    with open(f + '/out/' + JOURNAL, 'a') as file:
        file.write('garbage\n')
    fails(*words, '--resume', says=['is damaged'])
    run(*words)
    import fcntl
    with open(f + '/out/' + JOURNAL) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        fails(*words, says=['another cytoc predict writes'])


def test_power_failure():
    """What a run said to be done before the system ended counts as far as it was synced; without that the item is done anew."""
    f = folder('power')
    net, _ = nets.conv(f + '/net.onnx')
    for k in range(3):
        np.save(f + '/v%d.npy' % k, numbers((40, 40), np.float32, k))
    words = [net, f + '/v*.npy', '-o', f + '/out', '--tile', 16]
    _, whole = run(*words)
    journal = f + '/out/' + JOURNAL
    lines = open(journal).read().splitlines()
    assert [json.loads(line).get('item') for line in lines] == [None] + [f + '/v%d.npy' % k for k in range(3)] + [None], lines
    boot = json.loads(lines[-1])['safe']
    assert boot == open('/proc/sys/kernel/random/boot_id').read().strip() == json.loads(lines[1])['boot'] and whole['seconds'] > 0
    for kept, skipped, title in ((lines, 3, 'synced, another boot'), (lines[:-1], 0, 'not synced, another boot'),
                                 (lines[:2] + lines[-1:] + lines[2:-1], 1, 'one synced')):
        with open(journal, 'w') as file:
            file.write('\n'.join(kept).replace(boot, 'before') + '\n')
        assert run(*words, '--resume')[1]['skipped'] == skipped, title
        assert run(*words, '--resume')[1]['skipped'] == 3, title + ', afterwards'
    with open(journal, 'w') as file:
        file.write('\n'.join(lines[:-1]) + '\n')
    assert run(*words, '--resume')[1]['skipped'] == 3, 'not synced, the same boot'
    assert 'safe' in open(journal).read(), 'it was synced by the run that left it out'
    with open(journal, 'w') as file:
        file.write('\n'.join(lines[:-1]).replace(', "boot": "%s"' % boot, '') + '\n')
    assert run(*words, '--resume')[1]['skipped'] == 3, 'of a version that synced each'


def test_input_is_gone():
    """What was read may be moved meanwhile: its result is whole, and another file of that name is done anew."""
    from cytoc.predict._items import Item, stamp
    from cytoc.predict._journal import Journal
    f = folder('gone')
    np.save(f + '/a.npy', numbers((4, 4), np.float32))
    item, read = Item(f + '/a.npy', 'a'), stamp(f + '/a.npy')
    os.remove(f + '/a.npy')
    journal = Journal(f, {}, False)
    with open(f + '/result', 'w') as file:
        file.write('x')
    journal.add_done(item, read, f + '/result')
    journal.close(True)
    np.save(f + '/a.npy', numbers((5, 4), np.float32))
    journal = Journal(f, {}, True)
    assert not journal.is_done(item)
    journal.close(True)


def test_sync_fails():
    """The system cannot write what it took: an error, and what came since the last time is not in the journal."""
    from cytoc import formats
    from cytoc._errors import CytocError
    from cytoc.predict import predict
    f = folder('sync')
    net, _ = nets.conv(f + '/net.onnx')
    np.save(f + '/a.npy', numbers((40, 40), np.float32))
    words = [net, f + '/a.npy', '-o', f + '/out', '--tile', '16']
    real = formats.sync_all, formats.fsync_below
    formats.sync_all = lambda handle: False  # as where the system does not know, or a file of others failed
    assert predict(words)['done'] == 1 and 'safe' in open(f + '/out/' + JOURNAL).read()
    for error, said in ((errno.EIO, 'cannot be written'), (errno.ENOSPC, 'no room for the results')):
        def broken(path, error=error):
            raise OSError(error, os.strerror(error))

        formats.sync_all, formats.fsync_below = (lambda handle: False), broken
        try:
            predict(words)
            raise AssertionError('it did not fail')
        except CytocError as e:
            assert said in str(e) and os.strerror(error) in str(e) and '--resume' in str(e), e
        finally:
            formats.sync_all, formats.fsync_below = real
        assert not entries(f + '/out', 'output')
    assert predict(words + ['--resume'])['done'] == 1


def peak_of(*words):
    """Peak resident memory of a run, bytes, as the system says it while it runs: what wait4() says begins with the parent's."""
    process = start(*words)
    peak = 0
    while process.poll() is None:
        with open('/proc/%d/status' % process.pid) as f:
            peak = max([peak] + [int(line.split()[1]) << 10 for line in f if line.startswith('VmHWM')])
        time.sleep(0.01)
    assert process.returncode == 0, process.stderr.read().decode()
    process.stderr.close()
    return peak


def test_memory():
    """A volume whose rows under work alone would take 570 MB, in 300 MB, of which Python and its packages take 100."""
    f = folder('memory')
    net, same = nets.conv(f + '/net.onnx', 3, 1, 2)
    image = np.lib.format.open_memmap(f + '/a.npy', 'w+', np.uint8, (40, 1200, 1200))
    plane = numbers((1200, 1200), np.uint8)
    for k in range(40):
        image[k] = np.roll(plane, 7 * k, 1)
    del image
    words = [net, f + '/a.npy', '-o', f + '/out', '--tile', '32x128x128', '--overlap', '0.125', '--box', '0:40,0:1200,0:300', '--dtype', 'uint8',
             '--workers', 1]
    limit = 300 << 20
    peak = peak_of(*words, '--memory', '300M')
    assert peak <= limit, '%d MB' % (peak >> 20)
    got, image = np.load(f + '/out/a.npy', mmap_mode='r'), np.load(f + '/a.npy', mmap_mode='r')
    want = np.asarray(same(nets.torch.from_numpy(np.asarray(image[:, 500:700, 130:250], np.float32))[None]))
    error = np.abs(got[:, :, 510:690, 140:240].astype(int) - np.clip(np.rint(want[:, :, 10:190, 10:110]), 0, 255))
    assert np.percentile(error, 90) <= 1, error.max()  # but for the borders of tiles, where the network sees zeros
    fails(*words, '--memory', '100M', says=['--memory: 100 MB are not enough', 'MB for each of 1 runs', '--tile'])


def limited(size):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_disk_full():
    """Files may not be larger than 200 kB: an error that says so, nothing half-written is left, and --resume goes on with more room."""
    f = folder('full')
    net, _ = nets.conv(f + '/net.onnx')
    np.save(f + '/a.npy', numbers((40, 40), np.float32))
    np.save(f + '/b.npy', numbers((500, 500), np.float32))
    np.save(f + '/c.npy', numbers((500, 500), np.float32))
    for kind in ('npy', 'tiff', 'nifti', 'safetensors', 'zarr'):
        out = '%s/%s' % (f, kind)
        words = [net, f + '/?.npy', '-o', out, '--tile', 32, '--format', kind]
        run(net, f + '/a.npy', '-o', f + '/warm', '--tile', 32)  # compiled, before files are limited
        process = start(*words, preexec_fn=limited(200 << 10))
        said = process.stderr.read().decode()
        assert process.wait() == 1 and 'no room for the result' in said and 'b.npy' in said and '--resume' in said, (kind, process.returncode, said)
        assert not [n for n in os.listdir(out) if n.startswith('b') or n.startswith('c') or n.endswith('.partial')], os.listdir(out)
        _, summary = run(*words, '--resume')
        assert summary['skipped'] == 1 and summary['done'] == 2, (kind, summary['skipped'], summary['done'])


def test_small_disk():
    """A file system that is really full."""
    f = folder('tmpfs')
    os.makedirs(f + '/small')
    if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=300k', 'tmpfs', f + '/small'], stderr=subprocess.DEVNULL).returncode:
        return 'file systems cannot be mounted here'
    try:
        net, _ = nets.conv(f + '/net.onnx')
        np.save(f + '/b.npy', numbers((500, 500), np.float32))
        for kind in ('npy', 'zarr', 'tiff'):
            fails(net, f + '/b.npy', '-o', f + '/small', '--tile', 32, '--format', kind, says=['no room for the result', 'No space left'])
            assert [n for n in os.listdir(f + '/small')] == [JOURNAL]
    finally:
        subprocess.run(['umount', '-l', f + '/small'], check=True)


def test_files():
    """Broken files are named and skipped, the others are done, and the exit code is 2."""
    f = folder('files')
    net, same = nets.conv(f + '/net.onnx')
    x = numbers((40, 41), np.uint8)
    imageio.imwrite(f + '/good.png', x)
    data = open(f + '/good.png', 'rb').read()
    open(f + '/cut.png', 'wb').write(data[:len(data) // 2])
    open(f + '/empty.tif', 'wb').close()
    tifffile.imwrite(f + '/whole.tif', numbers((3, 80, 80)), compression='zlib', metadata={'axes': 'ZYX'}, photometric='minisblack')
    data = open(f + '/whole.tif', 'rb').read()
    open(f + '/holes.tif', 'wb').write(data[:3000] + bytes(2000) + data[5000:])
    nibabel.save(nibabel.Nifti1Image(numbers((20, 20, 5), np.int16), np.eye(4)), f + '/v.nii.gz')
    data = open(f + '/v.nii.gz', 'rb').read()
    open(f + '/v.nii.gz', 'wb').write(data[:len(data) // 2])
    imageio.imwrite(f + '/colour.png', numbers((40, 41, 3), np.uint8))
    soundfile.write(f + '/sound.wav', numbers((100,), np.float32) / 9, 8000)
    np.save(f + '/text.npy', np.array(['a', 'b']))
    np.save(f + '/none.npy', np.zeros((0, 30), np.float32))
    said, summary = run(net, f, '-o', f + '-out', '--tile', 16, '--exclude', '*.onnx', code=2)
    assert summary['done'] == 2 and summary['failed'] == 8, summary
    wrong = {os.path.basename(e['item']): e['error'] for e in summary['errors']}
    assert sorted(wrong) == sorted(['cut.png', 'empty.tif', 'holes.tif', 'v.nii.gz', 'colour.png', 'sound.wav', 'text.npy', 'none.npy']), wrong
    for name, text in wrong.items():
        assert said.count('skipped: ') == 8 and name in text and text in said, (name, text)
    assert "3 channels" in wrong['colour.png'] and "'x' has 1: choose with --channels" in wrong['colour.png']
    assert 'too few for the network' in wrong['sound.wav'] and 'no voxels' in wrong['none.npy'] and 'truncated' in wrong['v.nii.gz']
    near(tifffile.imread(f + '-out/good.ome.tif'), nets.expected(x[None], same, (16, 16)))
    assert sorted(n for n in os.listdir(f + '-out') if n != JOURNAL) == ['good.ome.tif', 'whole.ome.tif']


def test_no_files():
    """What is no file: pipes, links to nowhere and in circles, folders by a file's name, files that may not be read. Nothing is waited for."""
    f = folder('no-files')
    net, _ = nets.conv(f + '/net.onnx')
    os.makedirs(f + '/in/folder.png')
    np.save(f + '/in/good.npy', numbers((40, 41), np.float32))
    for name in ('pipe.tif', 'pipe.npy', 'pipe.nii.gz', 'pipe.wav'):
        os.mkfifo(f + '/in/' + name)
    os.symlink('circle.png', f + '/in/circle.png')
    os.symlink('nowhere', f + '/in/nowhere.tif')
    said, summary = run(net, f + '/in', '-o', f + '/out', '--tile', 16, code=2)
    assert summary['done'] == 1 and summary['failed'] == 6, summary
    assert said.count('is neither a file nor a folder') == 4 and said.count('no such file') == 2, said
    fails(net, f + '/in/good.npy', '-o', f + '/net.onnx', says=['-o: expected a folder', 'net.onnx'])
    os.chmod(f + '/in/good.npy', 0)
    user = os.geteuid()
    os.seteuid(user or 65534)  # root may read all
    try:
        formats.open_image(f + '/in/good.npy')
        raise AssertionError('a file that may not be read was')
    except PermissionError as e:
        assert 'good.npy' in str(e), e
    finally:
        os.seteuid(user)


def test_output_among_inputs():
    """No result takes the place of an input; results in a folder below the inputs are no inputs of the next run."""
    f = folder('among')
    net, _ = nets.conv(f + '/net.onnx')
    os.makedirs(f + '/in')
    x = numbers((40, 41), np.float32)
    np.save(f + '/in/a.npy', x)
    imageio.imwrite(f + '/in/b.png', numbers((40, 41), np.uint8))
    fails(net, f + '/in', '-o', f + '/in', '--tile', 16, says=["would replace the input '%s/in/a.npy'" % f, 'choose another folder'])
    os.symlink(f + '/in', f + '/link')
    fails(net, f + '/in/a.npy', '-o', f + '/link', '--tile', 16, says=['would replace the input'])
    fails(net, f + '/in/b.png', f + '/in/a.npy', '-o', f + '/in', '--format', 'npy', '--tile', 16, says=['would replace the input'])
    assert np.array_equal(np.load(f + '/in/a.npy'), x) and sorted(os.listdir(f + '/in')) == ['a.npy', 'b.png']
    for _ in range(2):
        _, summary = run(net, f + '/in', '-o', f + '/in/out', '--tile', 16)
        assert summary['done'] == 2, summary
    run(net, f + '/in/b.png', '-o', f + '/in', '--tile', 16)  # b.ome.tif


def test_sizes_without_sense():
    """An error before anything is run, and no traceback."""
    f = folder('sense')
    net, _ = nets.conv(f + '/net.onnx')
    np.save(f + '/a.npy', numbers((40, 40), np.float32))
    for words, says in ((['--tile', '100000x100000', '--memory', '500M'], ['500 MB are not enough for one run', '100000x100000']),
                        (['--tile', '16', '--batch', '100000000'], ['make --tile or --batch smaller']),
                        (['--memory', '0'], ['--memory: expected 1 or more']), (['--memory', '1K'], ['are taken by the network', 'at least']),
                        (['--sigma', '0'], ['--sigma', 'found 0']), (['--sigma', 'nan'], ['--sigma', 'found nan']), (['--std', '0'], ['no --std of 0']),
                        (['--mean', 'nan'], ['finite numbers']), (['--checkpoint', '-1'], ['--checkpoint: expected seconds']),
                        (['--readers', '100000'], ['--readers: expected 256 or less']), (['--box', '5:5,0:3'], ['start < stop', '5:5,0:3']),
                        (['--box', '0:3'], ['expected 2 ranges', 'found 1'])):
        fails(net, f + '/a.npy', '-o', f + '/out', *words, says=says)
    process = start(net, f + '/a.npy', '-o', f + '/out', '--json', f + '/none/x.json')
    assert b'--json: expected a file in a folder' in process.communicate()[1] and process.returncode == 1
    assert not os.path.exists(f + '/out/a.npy')


def test_options():
    f = folder('options')
    net, _ = nets.conv(f + '/net.onnx')
    np.save(f + '/a.npy', numbers((40, 40), np.float32))
    os.makedirs(f + '/empty')
    good = [net, f + '/a.npy', '-o', f + '/out']
    fails(net, f + '/empty', '-o', f + '/out', says=['no file of a known format', '.ome.tif'])
    fails(net, f + '/*.tif', '-o', f + '/out', says=['nothing matches'])
    fails(net, f + '/b.npy', '-o', f + '/out', says=['no such file'])
    fails(net, '-o', f + '/out', says=['no input given'])
    fails('-o', f + '/out', says=['no model given'])
    fails(net, f + '/a.npy', says=['-o FOLDER'])
    fails(f + '/no.onnx', f + '/a.npy', '-o', f + '/out', says=['no such model'])
    fails(f + '/a.npy', f + '/a.npy', '-o', f + '/out', says=['a.npy'])
    for words, says in ((['--overlap', 1], ['less than 1', 'found 1']), (['--overlap', 50], ['did you mean 0.5?']), (['--overlap', '-0.5'], ['--overlap']),
                        (['--tile', '16x16x16'], ['expected 2 sizes', 'found 3']), (['--tile', 'big'], ['such as 64x256x256', "found 'big'"]),
                        (['--tile', '16', '--align', '5'], ['multiples of --align 5']),
                        (['--align', str(1 << 40)], ['--align: expected', 'up to 4096']), (['--memory', 'lots'], ['such as 500M']),
                        (['--box', '0:5'], ['expected 2 ranges']), (['--box', '5:0,1:2'], ['start < stop']), (['--batch', '-1'], ['--batch']),
                        (['--workers', '0'], ['--workers: expected 1']), (['--argmax', '--threshold', '1'], ['choose one']), (['--layout', 'NHC'], ['--layout', '4 axes']),
                        (['--axes', 'QYX'], ['axes']), (['--channels', '3'], ['names channel 3']), (['--set', 'y=1'], ["no input 'y'"]),
                        (['--blend', 'gauss'], ['invalid choice', 'gaussian']), (['--mask', f + '/m.npy'], ['m.npy']), (['--scales', '0'], ['such as 1,2'])):
        said, summary = run_any(*good, '--tile', 16, *words)
        for word in says:
            assert word in said, '%s: %s not in: %s' % (words, word, said)
    fixed, _ = nets.conv(f + '/fixed.onnx', sizes=(16, 16), batch=2)
    fails(fixed, f + '/a.npy', '-o', f + '/out', '--tile', 32, says=['fixed shape', 'expected 16x16, found 32x32'])
    fails(fixed, f + '/a.npy', '-o', f + '/out', '--batch', 3, says=['fixed batch 2'])
    run(fixed, f + '/a.npy', '-o', f + '/out')


def test_sizes_that_do_not_halve():
    """A network that halves its input, and tiles and images that it cannot halve: the error says what to give."""
    f = folder('halve')
    node = nets.helper.make_node
    net = nets.save(f + '/net.onnx', [node('MaxPool', ['x'], ['m'], kernel_shape=[2, 2], strides=[2, 2]),
                                      node('ConvTranspose', ['m', 'w'], ['u'], strides=[2, 2]), node('Concat', ['x', 'u'], ['y'], axis=1)],
                    [nets.port('x', ['n', 1, 'h', 'w'])], [nets.port('y', ['n', 2, 'h', 'w'])], [('w', np.ones((1, 1, 2, 2), np.float32))])
    np.save(f + '/a.npy', numbers((41, 40), np.float32))
    words = [net, f + '/a.npy', '-o', f + '/out']
    fails(*words, '--tile', '15x16', says=['--tile: the network cannot be run on tiles of 15x16', 'Concat', '--align 16'])
    cytoc.compile(net).save(f + '/net.so')
    fails(f + '/net.so', *words[1:], '--tile', '15x16', says=['--tile: the network cannot be run on tiles of 15x16', 'Concat', '--align 16'])
    said, _ = run(*words, code=2)
    assert 'a.npy' in said and 'Concat' in said and '--align 16' in said, said
    run(*words, '--align', 2)
    assert np.load(f + '/out/a.npy').shape == (2, 41, 40)


def test_names_in_errors():
    """Of a format that does not hold the numbers: the result's own name, not that of the file under way."""
    f = folder('names')
    net, _ = nets.conv(f + '/net.onnx')
    np.save(f + '/a.npy', numbers((40, 40), np.float32))
    said, _ = run(net, f + '/a.npy', '-o', f + '/out', '--tile', 16, '--format', 'png', code=2)
    assert f + '/out/a.png' in said and '.partial' not in said, said


def run_any(*words):
    """Of what may be an error of the run, or of its only item."""
    try:
        return run(*words, code=1)
    except AssertionError:
        return run(*words, code=2)


def test_interrupt():
    """Ctrl-C: exit code 130, and --resume goes on."""
    f = folder('interrupt')
    net, _ = nets.conv(f + '/net.onnx', 3, 1, 16, layers=3)
    for k in range(5):
        np.save(f + '/v%d.npy' % k, numbers((24, 64, 64), np.float32, k))
    words = [net, f + '/v*.npy', '-o', f + '/out', '--tile', '16x32x32', '--batch', 1]
    process = start(*words)
    end = time.time() + 240
    while not entries(f + '/out', 'output') and time.time() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    said = process.stderr.read().decode()
    assert process.wait() == 130 and '--resume goes on' in said and 'Traceback' not in said, (process.returncode, said)
    assert run(*words, '--resume')[1]['skipped'] >= 1
