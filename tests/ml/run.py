# SPDX-License-Identifier: Apache-2.0
"""Operators of ai.onnx.ml whose numbers the standard does not check, beside ONNX Runtime: support vector machines, tree
ensembles, those of doubles too; OneHotEncoder without zeros; attributes that contradict each other.

In:  --build DIR, names (regular expressions) to restrict it.
Out: the closing line. A case is a node with random attributes; each runs at two numbers of rows, the second at two threads.
     Labels must be equal, scores agree to a relative RMS error of 1e-4. Every third input of trees is NaN.
"""
import os
import shutil
import sys

import numpy as np
from onnx import TensorProto
from onnx import helper as h
from onnx import numpy_helper

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import graphs
import lib
import network

FEATURES = 7
KERNELS = {'linear': ('LINEAR', [0, 0, 0]), 'poly': ('POLY', [0.3, 0.4, 3]), 'square': ('POLY', [0.2, -0.1, 2]),
           'quartic': ('POLY', [0.1, 0.2, 4]), 'rbf': ('RBF', [0.15, 0, 0]), 'sigmoid': ('SIGMOID', [0.1, 0.2, 0])}
POSTS = ('NONE', 'LOGISTIC', 'SOFTMAX', 'SOFTMAX_ZERO')
CASES = []


def numbers(rng, count, low=-1.0, high=1.0):
    return [float(np.float32(v)) for v in rng.uniform(low, high, count)]


def regressor(kernel, vectors, one_class=0):
    def make(rng):
        kind, params = KERNELS[kernel]
        support = numbers(rng, vectors * FEATURES)
        return dict(op_type='SVMRegressor', kernel_type=kind, kernel_params=[float(p) for p in params], n_supports=vectors, one_class=one_class,
                    coefficients=numbers(rng, vectors or FEATURES), rho=numbers(rng, 1), post_transform='NONE',
                    **({'support_vectors': support} if vectors else {}))
    CASES.append(('regressor %s %d%s' % (kernel, vectors, ' one class' * one_class), make))


def classifier(kernel, counts, proba=False, post='NONE', strings=False, classes=None, low=-1.0):
    """counts: support vectors of each class; none of them: the linear form for `classes` classes."""
    def make(rng):
        kind, params = KERNELS[kernel]
        k, total = len(counts) or classes, sum(counts)
        pairs = k * (k - 1) // 2
        names = dict(classlabels_strings=['kind %d' % (9 - i) for i in range(k)]) if strings else \
            dict(classlabels_ints=[7 * i - 3 for i in range(k)])
        if total:
            names.update(vectors_per_class=list(counts), support_vectors=numbers(rng, total * FEATURES))
        if proba:
            names.update(prob_a=numbers(rng, pairs, -2, -0.5), prob_b=numbers(rng, pairs, -0.2, 0.2))
        return dict(op_type='SVMClassifier', kernel_type=kind, kernel_params=[float(p) for p in params], post_transform=post,
                    coefficients=numbers(rng, (k - 1) * total or k * FEATURES, low), rho=numbers(rng, pairs or 1, -0.3, 0.3),
                    **names)
    CASES.append((' '.join(['classifier', kernel, '-'.join(map(str, counts)) or 'of %d' % classes] + ['proba'] * proba + [post] +
                           ['strings'] * strings + ['positive'] * (low >= 0)), make))


def forest(name, trees, modes, features=FEATURES, missing=True, targets=1, aggregate='SUM', depths=(0, 9), early=0.3,
           categories=0, chain=1):
    """Trees of random shape and depth; leaves stand between inner nodes. categories: how many there are; nodes that ask for
    one are chains of up to `chain` of them with one true child, as LightGBM's converter writes sets."""
    def make(rng):
        nodes, leaves = [], []

        def grow(tree, levels):
            at = len(nodes)
            nodes.append([tree, at, 0, 0.0, 'LEAF', 0, 0, 0])
            here = nodes[-1]
            if levels == 0 or levels < depths[1] - 1 and rng.random() < early:
                leaves.append((tree, at, int(rng.integers(targets)), numbers(rng, 1)[0]))
                return at
            here[2:5] = int(rng.integers(features)), float(np.float32(rng.standard_normal())), str(rng.choice(modes))
            yes, links = grow(tree, levels - 1), [here]
            if categories and here[4] == 'BRANCH_EQ':
                for _ in range(rng.integers(chain)):
                    links.append([*here[:5], 0, 0, 0])
                    links[-2][6] = links[-1][1] = len(nodes)
                    nodes.append(links[-1])
                for link in links:
                    link[3] = float(rng.integers(categories))
            links[-1][6] = grow(tree, levels - 1)
            # ONNX Runtime finds NaN unequal whatever the list says of it
            gap = int(here[4] == 'BRANCH_NEQ' or rng.integers(2))
            for link in links:
                link[5], link[7] = yes, gap
            return at
        for tree in range(trees):
            grow(tree, int(rng.integers(depths[0], depths[1] + 1)))
        kinds = ['treeids', 'nodeids', 'featureids', 'values', 'modes', 'truenodeids', 'falsenodeids'] + \
            ['missing_value_tracks_true'] * missing
        lists = {'nodes_' + kind: column for kind, column in zip(kinds, zip(*nodes))}
        lists.update({'target_' + kind: column
                      for kind, column in zip(('treeids', 'nodeids', 'ids', 'weights'), zip(*leaves))})
        return dict(op_type='TreeEnsembleRegressor', features=features, categories=categories, n_targets=targets, aggregate_function=aggregate,
                    **{kind: list(column) for kind, column in lists.items()})
    CASES.append(('trees ' + name, make))


def doubles(rng, attributes, where):
    """The same tree ensemble with thresholds and weights that floats do not hold, as tensors of doubles; x: rows of features, of
    which many are as near to a threshold as doubles and floats come."""
    made = dict(attributes)
    for name in ('nodes_values', *(k for k in attributes if k.endswith('_weights') or k == 'base_values')):
        values = np.asarray(made.pop(name), float)
        values = values + np.where(rng.integers(2, size=values.shape), rng.uniform(-1e-9, 1e-9, values.shape), 0)
        made[name + where] = numpy_helper.from_array(values, name) if where else [float(v) for v in np.float32(values)]
    near = numpy_helper.to_array(made['nodes_values_as_tensor']) if where else np.float64(made['nodes_values'])

    tree, feature = np.asarray(made['nodes_treeids']), np.asarray(made['nodes_featureids'])
    first = np.array([i - np.flatnonzero(tree == t)[0] < 3 for i, t in enumerate(tree)])  # near roots, where all rows pass

    def rows(count, features):
        at = [near[first & (feature == f)] for f in range(features)]
        x = np.stack([rng.choice(a if len(a) else near, count) for a in at], axis=1)
        x.flat[::4] = x.flat[::4].astype(np.float32)
        x.flat[1::4] = np.nextafter(x.flat[1::4], np.inf)
        x.flat[2::8] = np.nextafter(x.flat[2::8].astype(np.float32), np.float32(-9)).astype(float)
        return x
    return made, rows


def of_doubles(name, base, where, classes=0):
    """base: the arguments of forest(); classes: a classifier of so many."""
    def make(rng):
        before = len(CASES)
        forest(*base, targets=max(classes, 1), missing=False)
        attributes = CASES.pop(before)[1](rng)
        features = attributes.pop('features')
        attributes.pop('categories')
        attributes['base_values'] = numbers(rng, classes if classes > 2 else 1)
        if classes:
            del attributes['n_targets'], attributes['aggregate_function']
            attributes = {k.replace('target_', 'class_'): v for k, v in attributes.items()}
            if classes == 2:  # one column decides
                attributes['class_ids'] = [0] * len(attributes['class_ids'])
            attributes.update(op_type='TreeEnsembleClassifier', classlabels_int64s=[5 * i - 2 for i in range(classes)])
        attributes, rows = doubles(rng, attributes, where)
        return dict(attributes, features=features, rows=rows)
    CASES.append(('double trees ' + name + (' as tensors' if where else ''), make))


def numbered(dtype):
    """TreeEnsemble of version 5, of one float type."""
    def make(rng):
        count = 40
        inner, leaves = count, count + 1  # a tree: node k has children 2k+1, 2k+2, nodes first
        def child(k, side):
            at = 2 * k + 1 + side
            return (at, 0) if at < inner else (at - inner, 1)
        pairs = [[child(k, side) for k in range(inner)] for side in (0, 1)]
        tensor = lambda v, name: numpy_helper.from_array(np.asarray(v, dtype), name)
        splits = rng.standard_normal(inner).astype(dtype)

        def rows(n, features):
            x = rng.choice(splits.astype(float), (n, features))
            x.flat[::3] = np.nextafter(x.flat[::3].astype(dtype), dtype(9)).astype(float)
            return x.astype(dtype)
        return dict(op_type='TreeEnsemble', rows=rows, tree_roots=[0], n_targets=2, aggregate_function=1, post_transform=0,
                    nodes_featureids=[int(v) for v in rng.integers(0, FEATURES, inner)],
                    nodes_modes=numpy_helper.from_array(np.zeros(inner, np.uint8), 'm'), nodes_splits=tensor(splits, 's'),
                    nodes_truenodeids=[a for a, _ in pairs[0]], nodes_trueleafs=[b for _, b in pairs[0]],
                    nodes_falsenodeids=[a for a, _ in pairs[1]], nodes_falseleafs=[b for _, b in pairs[1]],
                    leaf_targetids=[k % 2 for k in range(leaves)], leaf_weights=tensor(rng.standard_normal(leaves), 'w'))
    CASES.append(('numbered trees of %s' % np.dtype(dtype), make))


def list_cases():
    some = ('', 30, ['BRANCH_%s' % m for m in ('LEQ', 'LT', 'GTE', 'GT', 'EQ')])
    for where in '', '_as_tensor':
        of_doubles('of one comparison', ('', 30, ['BRANCH_LEQ']), where)
        of_doubles('of all comparisons', some, where)
        for classes in 2, 4:
            of_doubles('of %d classes' % classes, some, where, classes)
    for dtype in np.float32, np.float64:
        numbered(dtype)
    forest('of one comparison', 30, ['BRANCH_LEQ'])
    forest('without a say on NaN', 30, ['BRANCH_LT'], missing=False)
    forest('of all comparisons', 30, ['BRANCH_%s' % m for m in ('LEQ', 'LT', 'GTE', 'GT', 'EQ', 'NEQ')], targets=3)
    forest('of unequal', 12, ['BRANCH_NEQ'], depths=(1, 4))
    forest('of unequal without a say on NaN', 12, ['BRANCH_NEQ'], missing=False, depths=(1, 4))
    forest('of one feature', 9, ['BRANCH_GTE'], features=1)
    forest('of one depth', 9, ['BRANCH_GT'], depths=(4, 4))
    forest('that are leaves', 5, ['BRANCH_GT'], depths=(0, 0))
    for features in 20, 32, 40, 64, 65:  # some from registers
        forest('of %d features' % features, 30, ['BRANCH_LEQ'], features=features)
    forest('of many features', 40, ['BRANCH_LEQ', 'BRANCH_EQ'], features=70000, depths=(7, 7), early=0)
    for aggregate in 'AVERAGE', 'MIN', 'MAX':
        forest('by ' + aggregate, 30, ['BRANCH_LEQ'], aggregate=aggregate, depths=(1, 9))
    for categories, chain in (30, 9), (200, 40), (6000, 5):  # the largest are compared one by one
        forest('of %d categories' % categories, 30, ['BRANCH_LEQ', 'BRANCH_EQ'], categories=categories, chain=chain)
    forest('of sets alone', 30, ['BRANCH_EQ'], categories=100, chain=30)
    forest('of sets and unequal', 30, ['BRANCH_EQ', 'BRANCH_NEQ'], missing=False, categories=30, chain=9, depths=(1, 5))
    forest('of long chains', 3, ['BRANCH_EQ'], categories=3000, chain=400, depths=(5, 5), early=0)  # some 1000 levels
    for kernel in KERNELS:
        regressor(kernel, 12)
        classifier(kernel, (4, 3, 6))
    regressor('linear', 0)
    regressor('rbf', 9, 1)
    for post in POSTS:
        classifier('rbf', (5, 8), post=post)
        classifier('rbf', (5, 8), True, post)
        classifier('poly', (4, 3, 6, 2), post=post, strings=True)
        classifier('sigmoid', (4, 3, 6, 2), True, post)
        classifier('linear', (), post=post, classes=3)
    classifier('rbf', (30, 1, 17, 5, 9, 12, 3, 20, 8, 11), True)
    classifier('rbf', (5, 8), strings=True)
    for low in (-1.0, 0.0):
        classifier('linear', (), classes=2, low=low)
        classifier('linear', (), True, classes=2, low=low, strings=True)


def check(args, folder, name, make):
    rng = np.random.default_rng(sum(name.encode()))
    attributes = make(rng)
    kind, strings = attributes.pop('op_type'), 'classlabels_strings' in attributes
    features, categories = attributes.pop('features', FEATURES), attributes.pop('categories', 0)
    label = [graphs.port('label', TensorProto.STRING if strings else np.int64, None)]
    trees = kind == 'TreeEnsembleRegressor'
    given = attributes.pop('rows', None)
    dtype = given(1, features).dtype if given else np.dtype(np.float32)
    ports = (label if kind.endswith('Classifier') else []) + \
        [graphs.port('scores', dtype if kind == 'TreeEnsemble' else np.float32, None)]
    node = h.make_node(kind, ['x'], [p.name for p in ports], domain='ai.onnx.ml', **attributes)
    proto = graphs.model_of([node], [graphs.port('x', dtype, ['rows', features])], ports,
                            domains=[('ai.onnx.ml', 5 if kind == 'TreeEnsemble' else 3 if trees or given else 1)])
    runs = []
    for rows, threads in (1, 1), (230 if given else 23, 2):
        x = rng.standard_normal((rows, features)).astype(np.float32)
        if categories:  # some below them, above, and between two
            x = rng.integers(-3, categories + 40, (rows, features)).astype(np.float32)
            x.flat[::5] += 0.5
            x.flat[1::7] = [-0.0, 1e30, -np.inf, categories - 1][rows % 4]
        if given:
            x = given(rows, features)
        elif trees:
            x.flat[::3] = np.nan
        runs.append((threads, {'x': x}))
    return network.beside_ort(args, folder, proto, runs, 1e-6 if given else 1e-4)


def one_hot(args, folder):
    """zeros = 0: categories that are listed as always, another one is an error when running."""
    node = h.make_node('OneHotEncoder', ['x'], ['y'], domain='ai.onnx.ml', cats_int64s=[3, 5, 9], zeros=0)
    path, library = (os.path.join(folder, name) for name in ('m.onnx', 'm.so'))
    graphs.save_model(path, [node], [graphs.port('x', np.int64, ['n'])], [graphs.port('y', np.float32, None)],
                      domains=[('ai.onnx.ml', 1)])
    why = network.compile_model(args, path, library, '-O3', ['--verify'])
    if why:
        return why
    code, err = network.run_feeds(args, folder, library, {'x': np.array([5, 3, 9, 5])})
    if code:
        return lib.reason(err, code)
    if not np.array_equal(network.output_of(folder, 0, 'y'), np.eye(3)[[1, 0, 2, 1]]):
        return 'wrong columns'
    code, err = network.run_feeds(args, folder, library, {'x': np.array([5, 4])})
    return None if code and 'element 1 of the input is none of the 3 values' in err else 'an unknown category: code %d, %s' % (code, err)


def main():
    args = lib.arguments(__doc__)
    suite = lib.Suite(args)
    folder = os.path.join(args.build, 'ml')
    list_cases()
    for name, make in CASES:
        if args.wanted(name):
            os.makedirs(folder, exist_ok=True)
            suite.result(name, check(args, folder, name, make))
            shutil.rmtree(folder)
    if args.wanted('one hot'):
        os.makedirs(folder, exist_ok=True)
        suite.result('one hot', one_hot(args, folder))
        shutil.rmtree(folder)
    suite.done()


if __name__ == '__main__':
    main()
