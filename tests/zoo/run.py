# SPDX-License-Identifier: Apache-2.0
"""The networks of ../shared/zoo, refilled with weights, against ONNX Runtime run beside them.

In:  NAME.onnx without weights, index.json and materialize.py, which fills them in.
     passing.txt: the names that must pass.
Out: a line for each network; the closing line.

Every network is compiled at -O3, the small ones at -O0 too. One with dynamic dims runs at two shapes from one library.
The relative RMS error of each output may be 1e-4; where ONNX Runtime's own levels differ by more than a third of that,
three times their difference, at most 1e-3. Files made here are large and deleted after each network.
"""
import functools
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import lib
import network

ZOO = os.path.join(lib.SHARED, 'zoo')
# attentions in a network: each must become one kernel (whisper's decoder has cross-attention, tfswa shifted windows)
ATTENTIONS = {'vit_b_16': 12, 'bert_base': 12, 'distilbert_cls': 6, 'gpt2_small': 12, 'llama_160m_gqa': 12,
              'whisper_tiny_encoder': 4, 'whisper_tiny_decoder': 8, 'conformer_ctc': 6, 'torch_transformer_encoder': 6,
              'tfswa_unet': 10, 'ddpm_unet_cifar': 6}
EAGER_GMAC, EAGER_PARAMS = 1.0, 15e6  # eager runs of larger networks would take minutes


def second_shape(entry):
    """Other values for the dynamic dims, kept consistent between inputs: {axis: value}."""
    first = {}
    for port in entry['inputs']:
        for axis, size in zip(port['shape'], port['test_shape']):
            if isinstance(axis, str):
                first[axis] = size
    second = {a: (3 if size == 1 else size + 1) if a == 'batch' else size if size < 2 else size // 2 + 1
              for a, size in first.items()}
    if 'total' in second:  # length of the attention mask
        second['total'] = second['past'] + second['sequence']
    if second.get('batch', 0) > 4:
        second['batch'] = 2
    return second


def shapes(entry):
    yield {}
    if entry.get('dynamic_axes'):
        yield second_shape(entry)


def make_inputs(maker, entry, axes, folder):
    feeds = {}
    for port in entry['inputs']:
        shape = [axes.get(axis, size) if isinstance(axis, str) else size
                 for axis, size in zip(port['shape'], port['test_shape'])]
        feeds[port['name']] = maker.make_input(port, 1, shape)
    network.save_inputs(folder, feeds)
    return feeds


def references(maker, entry, model, work):
    """For each shape: folders of inputs and of ONNX Runtime's outputs."""
    session, found = network.ort_session(model), []
    for i, axes in enumerate(shapes(entry)):
        inputs, expected = os.path.join(work, 'in%d' % i), os.path.join(work, 'ref%d' % i)
        feeds = make_inputs(maker, entry, axes, inputs)
        network.reference(session, feeds, expected)
        found.append((inputs, expected, feeds))
    return found


def test(args, maker, name, work, entry):
    model = os.path.join(work, name + '.onnx')
    code, _, err = lib.run([sys.executable, os.path.join(ZOO, 'materialize.py'), os.path.join(ZOO, entry['file']), model])
    if code:
        return 'not refilled: ' + lib.reason(err, code)
    small = (entry.get('gmac') or 0) < EAGER_GMAC and entry['params'] < EAGER_PARAMS and args.variant == 'release'
    cases = None
    for level in ('-O3', '-O0') if small else ('-O3',):
        library = os.path.join(work, name + level + '.so')
        stats = library + '.json'
        why = network.compile_model(args, model, library, level, ['-j', '1', '--stats=' + stats])
        if why:
            return why
        if level == '-O3' and network.attentions(stats) != ATTENTIONS.get(name, 0):
            return '%d attentions found, expected %d' % (network.attentions(stats), ATTENTIONS.get(name, 0))
        cases = cases or references(maker, entry, model, work)
        for i, (inputs, expected, feeds) in enumerate(cases):
            outputs = os.path.join(work, 'out')
            why = network.execute(args, library, inputs, outputs, 1 + i)
            why = why or network.judge(outputs, expected, model, feeds)
            if why:
                return '%s, %s: %s' % (level, 'second shape' if i else 'first shape', why)
        os.remove(library)
    return None


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args, os.path.join(HERE, 'passing.txt'))
    if not os.path.exists(os.path.join(ZOO, 'index.json')):
        suite.skip('zoo', 'there are no networks in %s' % ZOO)
        suite.done('networks')
    maker = lib.load_module(os.path.join(ZOO, 'materialize.py'))
    with open(os.path.join(ZOO, 'index.json'), encoding='utf-8') as f:
        entries = [(e['name'], e) for e in json.load(f)['models'] if args.wanted(e['name'])]
    if args.variant != 'release':  # sanitizers slow compiling down; the large networks add no new paths
        entries = [(name, e) for name, e in entries if e['params'] < EAGER_PARAMS]
    network.test_each(args, suite, 'zoo', entries, functools.partial(test, args, maker))
    suite.done('networks')


if __name__ == '__main__':
    main()
