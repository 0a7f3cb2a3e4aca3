# SPDX-License-Identifier: Apache-2.0
"""What is taken and what is left; sizes, options, threads, errors."""
import os
import re
import threading

import numpy as np
import onnx
import onnxruntime as ort
import models
import plugin
import test_abi
from plugin import close, groups, left, raises, random_feeds, reference, session


def beside(model, sizes, **options):
    s, r = session(model, **options), reference(model)
    for seed, size in enumerate(sizes):
        feeds = random_feeds(r, size, seed)
        close(s.run(None, feeds), r.run(None, feeds))
    return s


def test_whole_network_one_library_for_all_sizes():
    before = plugin.files(WORK + '/cache')
    s = beside(models.network(), [{'batch': n} for n in (1, 5, 2, 0, 5)])
    assert len(groups(s)) == 1 and not left(s), (groups(s), left(s))
    assert len(set(plugin.files(WORK + '/cache')) - set(before)) <= 1


def test_shape_that_depends_on_data():
    beside(models.filled(), [{'n': n} for n in (1, 4, 0, 2)])


def test_attributes_of_all_types():
    s = beside(models.recurrent(), [{'steps': n} for n in (1, 5)])
    assert not left(s)


def test_branches_are_taken_whole():
    s = beside(models.branches(), [{'n': n} for n in (2, 3)])
    assert len(groups(s)) == 1 and not left(s) and 'If' in groups(s)[0], (groups(s), left(s))


def test_loops_are_taken_whole():
    s = beside(models.loop(), [{'n': n} for n in (2, 3)])
    assert len(groups(s)) == 1 and not left(s) and groups(s)[0] == ['Loop'], (groups(s), left(s))


def test_strings_are_left():
    """The product behind them depends on them: a group of its own."""
    s = beside(models.with_strings(), [{'n': 3}])
    assert [sorted(g) for g in groups(s)] == [['MatMul', 'Relu'], ['Gemm']] and left(s) == ['Cast', 'Cast'], (groups(s), left(s))


def test_what_is_left_beside_does_not_split():
    s = beside(models.with_strings(False), [{'n': 3}])
    assert sorted(left(s)) == ['Cast', 'Cast'] and len(groups(s)) == 1, groups(s)


def test_sequences_are_left():
    """And Neg: the rank of what comes out of a sequence is not known."""
    s = beside(models.with_sequence(), [{}])
    assert sorted(left(s)) == ['Neg', 'SequenceAt', 'SplitToSequence'] and groups(s) == [['Relu']], (groups(s), left(s))


def test_what_the_compiler_refuses_is_left():
    s = beside(models.refused_by_compiler(), [{}])
    assert left(s) == ['LinearRegressor'] and groups(s) == [['Sigmoid', 'Exp']], (groups(s), left(s))


def test_external_data_and_paths(name='external'):
    import onnx
    path = '%s/%s.onnx' % (WORK, name)
    onnx.save_model(models.network(), path, save_as_external_data=True, location=name + '.bin', size_threshold=256)
    s = beside(path, [{'batch': 2}])
    assert not left(s)


def test_options_change_the_library():
    m = models.heavy()
    feeds = random_feeds(reference(m), {'rows': 8})
    exact = reference(m).run(None, feeds)[0]
    for options, least, most in (({'int8': 'dynamic'}, 1e-4, 0.1), ({'bf16': '1'}, 1e-4, 0.1), ({'weights': 'int8'}, 1e-4, 0.1),
                                 ({'bf16': '0'}, 0, 1e-5), ({'target': 'x86-64-v3'}, 0, 1e-5), ({'threads': 2}, 0, 1e-5)):
        got = session(m, **options).run(None, feeds)[0]
        error = np.sqrt(np.mean((got - exact) ** 2) / np.mean(exact ** 2))
        assert least <= error <= most, (options, error)


def test_bad_options():
    m = models.network()
    for options, text in (({'intt8': '1'}, "there is no provider option 'intt8'; did you mean 'int8'?"),
                          ({'int8': 'dynamc'}, "did you mean 'dynamic'?"), ({'threads': 'many'}, "found 'many'"),
                          ({'target': 'pentium'}, "unknown target 'pentium'"), ({'weights': 'int3'}, "found 'int3'"),
                          ({'bf16': 'maybe'}, "expected 1 or 0, found 'maybe'"), ({'int8': 'static'}, '--calibrate')):
        with raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument, text):
            session(m, **options)


def test_wrong_shapes():
    s = session(models.two_inputs())
    a = np.ones((3, 2), np.float32)
    with raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument, "input 'b': expected 3 on axis 0 ('n') as on axis 0 of input 'a'"):
        s.run(None, {'a': a, 'b': a[:2]})
    close(s.run(None, {'a': a, 'b': a}), [a - a])  # as good as before
    with raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument, 'nvalid dimensions'):
        session(models.network()).run(None, {'x': np.zeros((1, 3, 15, 16), np.float32)})


def test_inputs_are_not_copied_nor_changed():
    s = session(models.network())
    x = random_feeds(s, {'batch': 2})['x']
    kept = x.copy()
    x.flags.writeable = False
    binding = s.io_binding()
    out = np.empty((2, 5), np.float32)
    binding.bind_input('x', 'cpu', 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output('y', 'cpu', 0, np.float32, out.shape, out.ctypes.data)
    s.run_with_iobinding(binding)
    assert np.array_equal(x, kept)
    close([out], reference(models.network()).run(None, {'x': x}))


def test_two_sessions_of_eight_threads():
    sessions = [session(models.heavy(), intra=2), session(models.network(), intra=2)]
    names, wrong = ['rows', 'batch'], []
    cases = [[(f, reference(m).run(None, f)) for f in (random_feeds(s, {names[k]: n}, n) for n in range(1, 5))]
             for k, (s, m) in enumerate(zip(sessions, (models.heavy(), models.network())))]

    def work(k, i):
        try:
            for step in range(20):
                feeds, want = cases[k][(i + step) % 4]
                close(sessions[k].run(None, feeds), want)
        except BaseException as e:
            wrong.append(e)

    threads = [threading.Thread(target=work, args=(k, i)) for k in range(2) for i in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong, wrong[0]


def test_sessions_made_at_once():
    wrong = []

    def work(i):
        try:
            beside(models.heavy(64 + 8 * (i % 2)), [{'rows': 3}])
        except BaseException as e:
            wrong.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong, wrong[0]


def test_samples_that_cannot_be_used():
    """The session says so, with the reason, at the default level of its log."""
    test_abi.WORK, path = WORK, os.path.join(WORK, 'calibrated.onnx')
    onnx.save(models.network(), path)
    sample = np.ones((1, 3, 16, 16), np.float32)
    for name, x, says in (('nan', sample * np.nan, "the sample for input 'x' has NaN in it|has NaN at element"),
                          ('shape', sample[:, :2], 'expects float32'), ('zero', sample * 0, 'nothing was quantised'),
                          ('nothing', sample[:0], 'nothing was quantised'), ('large', sample * 3e38, 'its input has NaN or infinity')):
        folder = os.path.join(WORK, 'samples-' + name)
        os.makedirs(folder)
        np.save(os.path.join(folder, 'x.npy'), x)
        said, warned = test_abi.scenario_said('calibrated', LIBRARY, path, folder)
        assert said == 'ok\n' and re.search(says, warned), (name, warned)
