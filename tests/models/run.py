# SPDX-License-Identifier: Apache-2.0
"""The networks of ../shared/models at -O0 and -O3, with 1 and 2 threads, against ONNX Runtime's recorded outputs.

In:  MODEL/model.onnx, refio/ and meta.json (see INDEX.md there). A network without refio, and the random-weight twin of
     each light_*, is compared with ONNX Runtime run here.
     expected.txt: the names that must pass, each followed by cytoc options of its own if it needs any (--dim batch=1), or
     by @spec: compared with what the specification says (spec.py), not with ONNX Runtime.
Out: the closing line; build/models-report.txt with what is not supported or not right yet, and why.

The relative RMS error of each output may be 1e-4, or three times what ONNX Runtime's own levels differ by where that is
larger; integers must be equal, unless that noise says that they cannot be. Dequantised outputs of quantised networks
may be off by one quantisation step, which is where two ways of rounding meet: on 99.9 % of the elements.
"""
import functools
import glob
import json
import os
import re
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import lib
import network
import spec

LEVELS = ('-O0', '-O3')
THREADS = (1, 2)
# What sanitizers see, being slow: one of each kind, none that takes long.
SANITIZED = ('attention_past_u8s8', 'bert_toy', 'blazeface_short', 'byte_bidi_lstm', 'conv3d_fuse', 'conv_qdq_external_data',
             'gpt2_past_12layer_tiny', 'letterbox_preproc', 'mnist_cntk', 'nested_if_loop_4031', 'oww_hey_rhasspy',
             'silero_vad_v5_ifless', 'sparse_initializer', 'topk_multi_output', 'tree_classifier_25',
             'types_int32_f32_bf16_double')


def read_meta(folder):
    with open(os.path.join(folder, 'meta.json'), encoding='utf-8') as f:
        return json.load(f)


def output_dtypes(meta):
    return [m.group(1) if (m := re.search(r':(\w+)\[[^:]*$', o)) else '' for o in meta.get('outputs', [])]


def limits_of(meta):
    noise = meta.get('noise_O0_vs_O99') or {}
    return lambda name: max(1e-4, 3 * (noise.get(name) or [0, 0])[1])


def reference(model, work, seed=1):
    """Makes inputs for a network of fixed shapes and has ONNX Runtime compute the outputs. Returns both folders."""
    session = network.ort_session(model)
    rng, feeds = np.random.default_rng(seed), {}
    os.makedirs(os.path.join(work, 'in'), exist_ok=True)
    for k, port in enumerate(session.get_inputs()):
        dims = [d if isinstance(d, int) and d > 0 else 1 for d in port.shape]
        kind = re.sub(r'.*\(|\)*$', '', port.type)
        dtype = np.dtype({'float': 'float32', 'double': 'float64'}.get(kind, kind))
        feeds[port.name] = rng.standard_normal(dims).astype(np.float32) if dtype.kind == 'f' else \
            rng.integers(0, 2, dims).astype(dtype)
        network.save(os.path.join(work, 'in'), 'in_%d_%s' % (k, lib.safe_name(port.name)), port.type, feeds[port.name])
    network.reference(session, feeds, os.path.join(work, 'ref'))
    return os.path.join(work, 'in'), os.path.join(work, 'ref')


def check(args, model, work, inputs, expected, meta, options, levels):
    """None when the network is right at every level and thread count, else the first thing wrong."""
    for level in levels:
        library = os.path.join(work, 'model%s.so' % level)
        why = network.compile_model(args, model, library, level, options + ['-j', '1'])
        if why:
            return why
        for threads in THREADS:
            outputs = os.path.join(work, 'out')
            why = network.execute(args, library, inputs, outputs, threads)
            why = why or network.compare(outputs, expected, limits_of(meta), output_dtypes(meta),
                                         meta.get('kind') == 'quantized')
            if why:
                return '%s, %d threads: %s' % (level, threads, why)
        os.remove(library)
    return None


def test(args, levels, name, work, options):
    source = os.path.join(lib.SHARED, 'models', name[3:] if name.startswith('rw_') else name)
    model, refio, meta = os.path.join(source, 'model.onnx'), os.path.join(source, 'refio'), read_meta(source)
    if name.startswith('rw_'):
        twin = os.path.join(work, 'twin.onnx')
        code, _, err = lib.run([sys.executable, os.path.join(lib.SHARED, 'models', 'materialize.py'), model, twin])
        if code:
            return 'the random-weight twin was not made: ' + lib.reason(err, code)
        inputs, expected = reference(twin, work)
        return check(args, twin, work, inputs, expected, {}, options, levels)
    if '@spec' in options:
        expected = os.path.join(work, 'ref')
        os.makedirs(expected)
        spec.evaluate(model, refio, expected)
        return check(args, model, work, refio, expected, meta, [o for o in options if o != '@spec'], levels)
    if network.by_index(refio):
        return check(args, model, work, refio, refio, meta, options, levels)
    inputs, expected = reference(model, work)
    return check(args, model, work, inputs, expected, meta, options, levels)


def names():
    for path in sorted(glob.glob(os.path.join(lib.SHARED, 'models', '*', 'model.onnx'))):
        name = os.path.basename(os.path.dirname(path))
        if not name.startswith('neg_'):
            yield name
        if name.startswith('light_'):
            yield 'rw_' + name


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args, os.path.join(HERE, 'expected.txt'))
    wanted = [n for n in names() if args.wanted(n) and (args.variant == 'release' or args.names or n in SANITIZED)]
    if not wanted:
        suite.skip('models', 'there are no networks in %s' % os.path.join(lib.SHARED, 'models'))
        suite.done('networks')
    levels = LEVELS if args.variant == 'release' else LEVELS[1:]

    items = [(name, suite.listed.get(name, name).split()[1:]) for name in wanted]
    network.test_each(args, suite, 'models', items, functools.partial(test, args, levels))
    with open(os.path.join(args.build, 'models-report.txt'), 'w', encoding='utf-8') as f:
        f.writelines('%s\t%s\n' % row for row in suite.unsupported)
    suite.done('networks')


if __name__ == '__main__':
    main()
