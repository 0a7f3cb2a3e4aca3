# SPDX-License-Identifier: Apache-2.0
"""The cases of the suite `ray`; run.py starts it in the Python that has Ray.

Out: the closing line. The cluster of one machine is started for all of its cases, that of three nodes for one.
"""
import argparse
import inspect
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
import traceback

import numpy as np
import onnx
import pyarrow
import pyarrow.parquet as parquet
import ray
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), HERE, os.path.join(os.path.dirname(HERE), 'cuda')]
import lib
import mock
import nodes

import cytoc
import cytoc.ray
from cytoc import predict, tiling
from cytoc.ray import _library as library

WORK = BUILD = ''


def save(name, layers, inputs, outputs, weights=()):
    path = os.path.join(WORK, name + '.onnx')
    graph = helper.make_graph(layers, 'net', inputs, outputs, [numpy_helper.from_array(w, n) for n, w in weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8), path)
    return path


def port(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def conv(name, rank=2, batch='batch', layers=1):
    """Convolutions of 3 in each direction; sizes are open."""
    sizes = ['size%d' % k for k in range(rank)]
    rng = np.random.default_rng(0)
    found, weights, last = [], [], 'x'
    for k in range(layers):
        weights.append(('w%d' % k, (rng.standard_normal((2, 1 if k == 0 else 2) + (3,) * rank) / 3 ** rank).astype(np.float32)))
        found.append(helper.make_node('Conv', [last, 'w%d' % k], ['c%d' % k], pads=[1] * 2 * rank))
        last = 'y' if k == layers - 1 else 'r%d' % k
        found.append(helper.make_node('Relu', ['c%d' % k], [last]))
    return save(name, found, [port('x', [batch, 1, *sizes])], [port('y', [batch, 2, *sizes])], weights)


def two(name, batch='batch'):
    """Two inputs, two outputs."""
    return save(name, [helper.make_node('Add', ['a', 'b'], ['sum']), helper.make_node('Mul', ['a', 'b'], ['product'])],
                [port('a', [batch, 3]), port('b', [batch, 3])], [port('sum', [batch, 3]), port('product', [batch, 3])])


def numbers(shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def raises(kind, text, function, *args, **named):
    try:
        function(*args, **named)
    except kind as e:
        assert re.search(text, str(e), re.S), "no '%s' in: %s" % (text, e)
        return
    raise AssertionError('nothing was raised, expected ' + text)


# ---- Ray Data ----


def test_map_batches():
    """Rows come back beside their columns, the same as the model gives by itself, from several tasks at once."""
    path, images = conv('map'), numbers((37, 1, 12, 16))
    data = ray.data.from_numpy(images).repartition(5)
    predictor = cytoc.ray.Predictor(path, inputs={'x': 'data'}, outputs={'y': 'found'})
    want = cytoc.compile(path)(images)
    for tasks in ({'compute': ray.data.TaskPoolStrategy(size=2)}, {'concurrency': 2}):  # Ray's word today, and the one before
        rows = data.map_batches(predictor, batch_size=4, num_cpus=1, **tasks).take_all()
        order = [int(np.flatnonzero((images == r['data']).all((1, 2, 3)))[0]) for r in rows]
        assert sorted(order) == list(range(37))
        for row, k in zip(rows, order):
            np.testing.assert_allclose(row['found'], want[k], rtol=1e-5, atol=1e-6)


def test_batches_of_a_fixed_size():
    path, images = conv('fixed', batch=4), numbers((10, 1, 8, 8))
    found = cytoc.ray.Predictor(path, keep=False)({'anything': images})
    want = cytoc.compile(conv('open'))(images)
    assert list(found) == ['y']
    np.testing.assert_allclose(found['y'], want, rtol=1e-5, atol=1e-6)
    empty = cytoc.ray.Predictor(conv('open'), keep=False)({'x': numbers((0, 1, 8, 8))})
    assert empty['y'].shape == (0, 2, 8, 8)


def test_rows_of_several_shapes():
    path = conv('ragged')
    images = np.empty(3, object)
    images[:] = [numbers((1, 8, 8)), numbers((1, 8, 12)), numbers((1, 5, 3))]
    found = cytoc.ray.Predictor(path)({'x': images, 'name': np.array(['a', 'b', 'c'])})
    model = cytoc.compile(path)
    assert found['y'].dtype == object and list(found['name']) == ['a', 'b', 'c']
    for got, image in zip(found['y'], images):
        np.testing.assert_array_equal(got, model(image[None])[0])


def test_several_inputs():
    path, a, b = two('two'), numbers((5, 3)), numbers((5, 3), 2)
    found = cytoc.ray.Predictor(path, inputs={'b': 'other'}, outputs={'product': 'p'})({'a': a, 'other': b})
    assert sorted(found) == ['a', 'other', 'p']
    np.testing.assert_array_equal(found['p'], a * b)


def test_integers_for_floats():
    """Images of bytes are what a network of floats gets; floats of another width are not changed in silence."""
    path, image = conv('bytes'), np.arange(64, dtype=np.uint8).reshape(1, 1, 8, 8)
    predictor = cytoc.ray.Predictor(path)
    np.testing.assert_array_equal(predictor({'x': image})['y'], predictor({'x': image.astype(np.float32)})['y'])
    raises(cytoc.InputError, 'float64', predictor, {'x': image.astype(np.float64)})


def test_tiles_of_rows():
    path, images = conv('tiles', layers=2), numbers((2, 1, 40, 50))
    found = cytoc.ray.Predictor(path, tile=16, overlap=0.5, mode='gaussian', batch=3)({'x': images})
    model = cytoc.compile(path)
    for got, image in zip(found['y'], images):
        np.testing.assert_array_equal(got, tiling.sliding_window(image, model, 16, overlap=0.5, mode='gaussian', batch=3))


def test_bad_tiling():
    """Of a Predictor when it is made, not in every worker."""
    path = conv('bad3')
    for words, text in (({'tile': 8, 'overlap': 1}, 'overlap: .*less than 1'), ({'tile': (8, 8, 8)}, 'tile: expected one value, or 2'),
                        ({'tile': 9, 'align': 2}, 'multiple of 2'), ({'tile': 8, 'mode': 'gauss'}, 'mode: .*gaussian'),
                        ({'tile': 8, 'padding': 'none'}, 'padding: .*reflect'), ({'tile': 8, 'batch': 0}, 'batch: '), ({'threads': 0}, 'threads: ')):
        raises(cytoc.InputError, text, lambda: cytoc.ray.Predictor(path, **words))
    raises(FileNotFoundError, "no such model: 'none.onnx'", cytoc.ray.Predictor, 'none.onnx')


def test_bad_columns():
    path = two('bad')
    predictor = cytoc.ray.Predictor(path)
    raises(cytoc.InputError, "no column 'a' for the model's input 'a'.*the columns are 'A', 'b'.*inputs=", predictor, {'A': numbers((1, 3)), 'b': numbers((1, 3))})
    raises(cytoc.InputError, "inputs: the model has no 'c'", cytoc.ray.Predictor, path, inputs={'c': 'x'})
    raises(cytoc.InputError, "outputs: the model has no 'sums': did you mean 'sum'", cytoc.ray.Predictor, path, outputs={'sums': 'x'})
    raises(cytoc.InputError, 'one input and one output', cytoc.ray.Predictor, path, tile=8)
    raises(cytoc.CompileError, 'nonsense', cytoc.ray.Predictor, path, nonsense=True)
    data = ray.data.from_numpy(numbers((4, 5)))  # five columns of a row where three are wanted
    raises(Exception, r"InputError.*shape", data.map_batches(cytoc.ray.Predictor(conv('bad2'))).take_all)


# ---- libraries ----


def test_pickles_small():
    """A Predictor is a few references, however large its model is."""
    path = save('large', [helper.make_node('MatMul', ['x', 'w'], ['y'])], [port('x', ['batch', 512])], [port('y', ['batch', 2048])],
                [('w', numbers((512, 2048)))])
    assert len(ray.cloudpickle.dumps(cytoc.ray.Predictor(path))) < 20000


@ray.remote
def opened(predictor, kind, image):
    """The kinds that are there when this worker says it is of another."""
    import cytoc.ray._library as library
    library.native_kind = lambda: kind
    return predictor({'x': image})['y']


def test_cpus_of_several_kinds():
    """Each kind has a library of its own; a kind that came later compiles for itself; both give the same as ours."""
    from cytoc.ray import _library
    path, image = conv('kinds'), numbers((1, 1, 9, 9))
    asked, _library.kinds_of_cluster = _library.kinds_of_cluster, lambda: sorted({_library.native_kind(), 'x86-64-v3'})
    try:
        predictor = cytoc.ray.Predictor(path)
    finally:
        _library.kinds_of_cluster = asked
    assert len(predictor.library.files) == 2 and 'x86-64-v3' in predictor.library.files, list(predictor.library.files)
    want = cytoc.compile(path)(image)
    for kind in 'x86-64-v3', 'a kind that came later':
        np.testing.assert_allclose(ray.get(opened.remote(predictor, kind, image)), want, rtol=1e-5, atol=1e-6)


def test_keys():
    """Libraries that differ in their samples alone are not taken for each other; a CPU without a name is sent none."""
    path = save('keys', [helper.make_node('MatMul', ['x', 'w'], ['y'])], [port('x', ['batch', 512])], [port('y', ['batch', 2048])],
                [('w', numbers((512, 2048)))])
    wide, narrow = numbers((64, 512)), numbers((64, 512))
    wide[30, 200:300] *= 9  # in what repr() leaves out
    assert repr(wide) == repr(narrow)
    first, second = (cytoc.ray.Predictor(path, int8='static', calibrate={'x': x}).library for x in (wide, narrow))
    assert first.key != second.key and first.key == cytoc.ray.Predictor(path, int8='static', calibrate={'x': wide}).library.key
    kind = library.native_kind
    library.native_kind = lambda: 'native'
    try:
        assert 'native' not in cytoc.ray.Predictor(path).library.files
    finally:
        library.native_kind = kind


def test_on_gpus():
    """num_gpus: a model for a GPU, in workers that Ray has given one; the driver is the mock of tests/cuda."""
    args = argparse.Namespace(build=os.path.abspath(BUILD), device=False)
    if not os.path.exists(os.path.join(mock.folder(args), 'libcuda.so.1')):
        return 'the mocks of CUDA are not built'
    env = {name: value for name, value in mock.environment(args).items() if os.environ.get(name) != value}
    path, images = conv('gpu'), numbers((10, 1, 8, 8))
    home, os.environ['CUDA_HOME'] = os.environ.get('CUDA_HOME', ''), env['CUDA_HOME']  # of the mock of NVRTC
    try:
        predictor = cytoc.ray.Predictor(path, target='sm_80', cudnn='off', cublaslt='off', keep=False)
    finally:
        os.environ['CUDA_HOME'] = home
    data = ray.data.from_numpy(images)
    rows = data.map_batches(predictor, batch_size=4, num_gpus=1, num_cpus=1, runtime_env={'env_vars': env}).take_all()
    np.testing.assert_allclose(np.stack([row['y'] for row in rows]), cytoc.compile(path)(images), rtol=1e-4, atol=1e-5)
    raises(Exception, 'NVIDIA driver|libcuda|no usable device', data.map_batches(predictor, batch_size=4, num_gpus=1, num_cpus=1).take_all)
    raises(cytoc.InputError, '1 GPUs: no room for a run with .*num_gpus=2', cytoc.ray.sliding_window, images[0], predictor, 8, num_gpus=2)


def test_compiled_library():
    path = os.path.join(WORK, 'ready.so')
    model = cytoc.compile(conv('ready'))
    model.save(path)
    image = numbers((2, 1, 8, 8))
    np.testing.assert_array_equal(cytoc.ray.Predictor(path)({'x': image})['y'], model(image))
    raises(cytoc.LoadError, 'is compiled: .*int8', cytoc.ray.Predictor, path, int8=True)


# ---- tiles on all machines ----


def test_window():
    """The same, bit for bit, as on one machine; from an array, from a reference, in a task of its own."""
    path, volume = conv('volume', 3), numbers((1, 20, 33, 30))
    want = tiling.sliding_window(volume, cytoc.compile(path), (8, 16, 16), overlap=0.25, mode='gaussian', batch=2)
    predictor = cytoc.ray.Predictor(path)
    how = dict(overlap=0.25, mode='gaussian', batch=2)
    np.testing.assert_array_equal(cytoc.ray.sliding_window(volume, predictor, (8, 16, 16), **how), want)
    np.testing.assert_array_equal(cytoc.ray.sliding_window(ray.put(volume), predictor, (8, 16, 16), in_flight=1, **how), want)
    task = ray.remote(num_cpus=0)(cytoc.ray.sliding_window)
    np.testing.assert_array_equal(ray.get(task.remote(ray.put(volume), predictor, (8, 16, 16), **how)), want)
    raises(cytoc.InputError, 'no room for a run with num_cpus=500', cytoc.ray.sliding_window, volume, predictor, (8, 16, 16), num_cpus=500)
    np.testing.assert_array_equal(cytoc.ray.sliding_window(volume[0], predictor, (8, 16, 16), channels=0, **how), want)
    raises(cytoc.InputError, 'in_flight: expected 1', cytoc.ray.sliding_window, volume, predictor, (8, 16, 16), in_flight=-1)
    raises(cytoc.InputError, 'expected a cytoc.ray.Predictor, found str', cytoc.ray.sliding_window, volume, path, (8, 16, 16))
    raises(cytoc.InputError, r"^input 'x': expected shape", cytoc.ray.sliding_window, np.concatenate([volume] * 2), predictor, (8, 16, 16))
    raises(cytoc.InputError, "output: the model has no 'z'", cytoc.ray.sliding_window, volume, predictor, (8, 16, 16), output='z')
    raises(cytoc.InputError, 'one input, found 2', cytoc.ray.sliding_window, volume, cytoc.ray.Predictor(two('two')), 8)


def images():
    """A folder of three."""
    folder = os.path.join(WORK, 'inputs')
    os.makedirs(folder, exist_ok=True)
    for k in range(3):
        np.save(os.path.join(folder, 'image%d.npy' % k), numbers((1, 40 + k, 50), k))
    return folder


def files_of(folder):
    return {name: open(os.path.join(folder, name), 'rb').read() for name in sorted(os.listdir(folder)) if name.endswith('.npy')}


def test_predict():
    """`cytoc predict --ray` writes the files that it writes without; what it cannot do is refused."""
    path, inputs = conv('predict', layers=2), images()
    words = [path, inputs, '--tile', '16x16', '--axes', 'CYX', '--batch', '1', '--quiet']
    for name, more in ('plain', []), ('spread', ['--ray', 'auto', '--workers', '3']):
        out = os.path.join(WORK, name)
        assert predict.main([*words, '-o', out, *more]) == 0
    plain, spread = files_of(os.path.join(WORK, 'plain')), files_of(os.path.join(WORK, 'spread'))
    assert plain == spread and len(plain) == 3, (list(plain), list(spread))
    assert predict.main([*words, '-o', os.path.join(WORK, 'no'), '--ray', 'auto', '--reuse', '0.1']) == 1


def test_no_cluster():
    """An address where nobody is."""
    out = subprocess.run([sys.executable, '-m', 'cytoc', 'predict', conv('nobody'), images(), '-o', os.path.join(WORK, 'nobody'),
                          '--axes', 'CYX', '--ray', '127.0.0.1:1'], capture_output=True, text=True, timeout=120)
    assert out.returncode == 1 and 'there is no such cluster' in out.stderr, out.stderr[-500:]


def test_resumed():
    """A job of Ray Data whose driver is killed goes on by Ray's checkpoints: rows that were written are not computed again, none is lost."""
    layers = [helper.make_node('MatMul', ['x', 'w'], ['y'])]
    model = save('resumed', layers, [port('x', ['batch', 3])], [port('y', ['batch', 2])], [('w', numbers((3, 2)))])
    folder, x = os.path.join(WORK, 'resumed'), numbers((64, 3))
    os.makedirs(folder + '/in')
    for k in range(0, 64, 4):
        column = pyarrow.FixedSizeListArray.from_arrays(x[k:k + 4].ravel(), 3)
        parquet.write_table(pyarrow.table({'id': np.arange(k, k + 4), 'x': column}), '%s/in/%02d.parquet' % (folder, k))
    words = [sys.executable, os.path.join(HERE, 'resumed.py'), model, folder, ray.get_runtime_context().gcs_address]

    def files(name):
        return [os.path.join(root, file) for root, _, found in os.walk(os.path.join(folder, name)) for file in found if file.endswith('.parquet')]
    job = subprocess.Popen([*words, '0.5'], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 300
    while len(files('done')) < 12:
        assert job.poll() is None, 'it ended before it was killed: %s' % job.stderr.read()[-1000:]
        assert time.monotonic() < end, 'nothing was written'
        time.sleep(0.05)
    job.kill()
    job.communicate()
    time.sleep(2)  # until the tasks that it had begun have ended
    written = {row['id'] for file in files('done') for row in parquet.read_table(file).to_pylist()}
    os.rename(folder + '/calls', folder + '/calls-before')
    done = subprocess.run([*words, '0'], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-1000:]
    again = {int(k) for line in open(folder + '/calls') for k in line.split()}
    assert 12 <= len(written) < 64 and again == set(range(64)) - written, (written, again)
    rows = [row for file in files('out') for row in parquet.read_table(file).to_pylist()]
    assert {row['id'] for row in rows} == set(range(64)), sorted(row['id'] for row in rows)
    want = cytoc.compile(model)(x)
    for row in rows:
        np.testing.assert_allclose(row['found'], want[row['id']], rtol=1e-5, atol=1e-6)


# ---- three nodes ----


def test_three_nodes():
    """A node that is killed in the middle of a job loses nothing: the result is, byte for byte, that of one machine."""
    if not nodes.possible():
        return 'network namespaces cannot be made here'
    path, volume = conv('nodes', 3, layers=2), numbers((1, 24, 64, 64))
    np.save(os.path.join(WORK, 'volume.npy'), volume)
    want = tiling.sliding_window(volume, cytoc.compile(path), (8, 24, 24), overlap=0.5, mode='gaussian')
    with nodes.Cluster(WORK, 3) as cluster:
        said = cluster.run([os.path.join(HERE, 'job.py'), path, os.path.join(WORK, 'volume.npy'), os.path.join(WORK, 'found.npy')],
                           when='a third is done', then=lambda: cluster.kill(2))
    assert 'nodes alive at first: 3' in said and 'nodes alive at the end: 2' in said and 'ran on 3 nodes' in said, said
    assert np.load(os.path.join(WORK, 'found.npy')).tobytes() == want.tobytes(), 'another result'


def main():
    global WORK, BUILD
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    WORK, BUILD = os.path.join(args.build, 'ray-tests'), args.build
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK)
    tests = [(n, f) for n, f in inspect.getmembers(sys.modules[__name__], inspect.isfunction) if n.startswith('test_') and args.wanted(n)]
    if any(f is not test_three_nodes for _, f in tests):
        ray.init(num_cpus=2, num_gpus=1, _node_ip_address='127.0.0.1', logging_level='error', include_dashboard=False, log_to_driver=False,
                 object_store_memory=256 << 20)
    for name, function in tests:
        if function is test_three_nodes and ray.is_initialized():
            continue
        result(suite, name, function)
    ray.shutdown()
    for name, function in tests:
        if function is test_three_nodes and len(tests) > 1:
            result(suite, name, function)
    suite.done('tests')


def result(suite, name, function):
    try:
        why = function()
        suite.skip(name[5:], why) if why else suite.result(name[5:])
    except Exception as e:
        traceback.print_exc()
        suite.result(name[5:], (str(e).splitlines() or [type(e).__name__])[0])


if __name__ == '__main__':
    main()
