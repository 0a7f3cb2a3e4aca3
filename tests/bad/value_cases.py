# SPDX-License-Identifier: Apache-2.0
"""Bad strings, sequences, optional values, maps and models of ai.onnx.ml; arithmetic on complex numbers."""
import numpy as np
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

from cases import case, port, save


# ---- strings, sequences, optional values, maps ----

def value(name, type_proto):
    return h.make_value_info(name, type_proto)


def sequence(dtype=T.FLOAT, dims=(2,)):
    return h.make_sequence_type_proto(h.make_tensor_type_proto(dtype, dims))


@case('bad_node', 'expected numbers|floating', 'string')
def string_arithmetic(d):
    save(d, [h.make_node('Relu', ['x'], ['y'], name='bad_node')], [port('x', (2,), T.STRING)], [port('y', (2,), T.STRING)])


@case('bad_node', "'pattern'", 'RE2', "has no '\\)'")
def regex_unbalanced(d):
    save(d, [h.make_node('RegexFullMatch', ['x'], ['y'], name='bad_node', pattern='(a')], [port('x', (2,), T.STRING)],
         [port('y', (2,), T.BOOL)], opset=20)


@case('bad_node', "'pattern'", 'back-references')
def regex_back_reference(d):
    save(d, [h.make_node('RegexFullMatch', ['x'], ['y'], name='bad_node', pattern='(a)\\1')], [port('x', (2,), T.STRING)],
         [port('y', (2,), T.BOOL)], opset=20)


@case('bad_node', "'pattern'", 'ASCII letters only', 'both cases')
def regex_case_of_umlauts(d):
    save(d, [h.make_node('RegexFullMatch', ['x'], ['y'], name='bad_node', pattern='(?i)[à-ü]+')], [port('x', (2,), T.STRING)],
         [port('y', (2,), T.BOOL)], opset=20)


@case('bad_node', "'pattern'", 'Unicode properties', 'ranges in')
def regex_unicode_property(d):
    save(d, [h.make_node('RegexFullMatch', ['x'], ['y'], name='bad_node', pattern='\\p{Lu}+')], [port('x', (2,), T.STRING)],
         [port('y', (2,), T.BOOL)], opset=20)


@case('bad_node', 'case_change_action|NONE', 'SMALL')
def normalizer_unknown_action(d):
    save(d, [h.make_node('StringNormalizer', ['x'], ['y'], name='bad_node', case_change_action='SMALL')],
         [port('x', (2,), T.STRING)], [port('y', (2,), T.STRING)])


@case('bad_node', r'\[n\] or \[1,n\]', r'string\[2,2\]')
def normalizer_of_matrix(d):
    save(d, [h.make_node('StringNormalizer', ['x'], ['y'], name='bad_node')], [port('x', (2, 2), T.STRING)],
         [port('y', (2, 2), T.STRING)])


@case('bad_node', 'expected strings', r'f32\[2\]')
def split_of_numbers(d):
    save(d, [h.make_node('StringSplit', ['x'], ['y', 'n'], name='bad_node')], [port('x', (2,))],
         [port('y', (2, 2), T.STRING)], opset=20)


def tfidf(d, **attributes):
    row = dict(mode='TF', min_gram_length=1, max_gram_length=2, max_skip_count=0, ngram_counts=[0, 2],
               ngram_indexes=[0, 1, 2], pool_int64s=[1, 2, 3, 4])
    row.update(attributes)
    save(d, [h.make_node('TfIdfVectorizer', ['x'], ['y'], name='bad_node', **row)], [port('x', (4,), T.INT64)],
         [port('y', (3,))])


@case('bad_node', 'ngram_indexes', '3', '2')
def tfidf_too_few_indexes(d):
    tfidf(d, ngram_indexes=[0, 1])


@case('bad_node', 'ngram_counts', 'whole n-grams')
def tfidf_broken_pool(d):
    tfidf(d, pool_int64s=[1, 2, 3])


@case('bad_node', 'max_gram_length')
def tfidf_lengths(d):
    tfidf(d, min_gram_length=3)


@case("'x'|initializer", 'string_data', '2', '1')
def strings_missing(d):
    t = numpy_helper.from_array(np.array(['a', 'b'], dtype=object), 'w')
    del t.string_data[1]
    save(d, [h.make_node('Concat', ['x', 'w'], ['y'], axis=0)], [port('x', (2,), T.STRING)], [port('y', (4,), T.STRING)], [t])


@case('bad_node', 'expected a sequence', r'f32\[2,3\]')
def sequence_at_of_tensor(d):
    save(d, [h.make_node('SequenceAt', ['x', 'i'], ['y'], name='bad_node')], [port('x'), port('i', (), T.INT64)])


@case('bad_node', 'position', '2', '5')
def sequence_position_beyond(d):
    five = numpy_helper.from_array(np.array(5), 'i')
    save(d, [h.make_node('SequenceConstruct', ['x', 'x'], ['s']), h.make_node('SequenceAt', ['s', 'i'], ['y'], name='bad_node')],
         initializers=[five])


@case('bad_node', 'empty')
def sequence_erase_from_empty(d):
    save(d, [h.make_node('SequenceEmpty', [], ['s']), h.make_node('SequenceErase', ['s'], ['t'], name='bad_node'),
             h.make_node('SequenceLength', ['t'], ['y'])], outputs=[port('y', (), T.INT64)])


@case('bad_node', r'i64\[2,3\]', r'seq\(f32')
def sequence_of_two_types(d):
    save(d, [h.make_node('SequenceConstruct', ['x', 'z'], ['y'], name='bad_node')], [port('x'), port('z', (2, 3), T.INT64)],
         [value('y', sequence())])


@case('bad_node', 'number of dimensions', 'declare')
def sequence_of_unknown_rank(d):
    save(d, [h.make_node('SequenceAt', ['x', 'i'], ['y'], name='bad_node')],
         [value('x', sequence(dims=None)), port('i', (), T.INT64)])


@case('bad_node', 'expected a sequence of tensors', r'found elements map\(i64,f32\)')
def concat_of_maps(d):
    maps = h.make_sequence_type_proto(h.make_map_type_proto(T.INT64, h.make_tensor_type_proto(T.FLOAT, [])))
    save(d, [h.make_node('ConcatFromSequence', ['x'], ['y'], name='bad_node', axis=0)], [value('x', maps)])


@case('bad_node', 'the branches give', r'seq\(f32', r'seq\(i64')
def branches_of_other_sequences(d):
    one = h.make_graph([h.make_node('SequenceConstruct', ['x'], ['p'])], 't', [], [value('p', sequence())])
    two = h.make_graph([h.make_node('SequenceConstruct', ['z'], ['q'])], 'e', [], [value('q', sequence(T.INT64))])
    save(d, [h.make_node('If', ['c'], ['y'], name='bad_node', then_branch=one, else_branch=two)],
         [port('c', (), T.BOOL), port('x'), port('z', (2,), T.INT64)], [value('y', sequence())])


@case('bad_node', 'optional has no value')
def optional_without_value(d):
    kind = h.make_tensor_type_proto(T.FLOAT, [2, 3])
    save(d, [h.make_node('Optional', [], ['o'], type=kind), h.make_node('OptionalGetElement', ['o'], ['y'], name='bad_node')],
         opset=18)


@case("input 'x'", 'maps of this type', 'integers or strings')
def map_with_float_keys(d):
    save(d, [h.make_node('Identity', ['x'], ['y'])], [value('x', h.make_map_type_proto(T.FLOAT, h.make_tensor_type_proto(T.FLOAT, [])))],
         [value('y', sequence())])


ML = [h.make_opsetid('', 17), h.make_opsetid('ai.onnx.ml', 3)]


def ml(d, op, x, y, **attributes):
    save(d, [h.make_node(op, ['x'], ['y'], name='bad_node', domain='ai.onnx.ml', **attributes)], [x], [y], opsets=ML)


@case('bad_node', 'keys_', 'values_', 'one length')
def label_encoder_lengths(d):
    ml(d, 'LabelEncoder', port('x', (2,), T.STRING), port('y', (2,), T.INT64), keys_strings=['a', 'b'], values_int64s=[1])


@case('bad_node', "keys' type string", r'i64\[2\]')
def label_encoder_types(d):
    ml(d, 'LabelEncoder', port('x', (2,), T.INT64), port('y', (2,), T.INT64), keys_strings=['a'], values_int64s=[1])


def svm(d, kind='SVMClassifier', **changes):
    attributes = dict(coefficients=[1.0, -1.0], support_vectors=[0.5] * 6, rho=[0.1], classlabels_ints=[4, 5],
                      vectors_per_class=[1, 1], kernel_type='LINEAR')
    attributes.update(changes)
    outputs = [port('l', (2,), T.INT64), port('y', (2, 2))] if kind == 'SVMClassifier' else [port('y', (2, 1))]
    save(d, [h.make_node(kind, ['x'], [o.name for o in outputs], name='bad_node', domain='ai.onnx.ml',
                         **{k: v for k, v in attributes.items() if v is not None})], [port('x')], outputs, opsets=ML)


@case('bad_node', "'kernel_params'", 'gamma, coef0 and degree', 'found 0')
def svm_without_parameters(d):
    svm(d, kernel_type='RBF')


@case('bad_node', "'coefficients'", 'expected 2', 'found 3')
def svm_coefficients(d):
    svm(d, coefficients=[1.0, 2.0, 3.0])


@case('bad_node', "'vectors_per_class'", 'found 2 counts for 3')
def svm_classes(d):
    svm(d, classlabels_ints=[1, 2, 3])


@case('bad_node', 'input 0', 'rows of 4 features', r'f32\[2,3\]')
def svm_features(d):
    svm(d, support_vectors=[0.5] * 8)


@case('bad_node', "'post_transform'", 'PROBIT is not supported', 'LOGISTIC')
def svm_probit(d):
    svm(d, post_transform='PROBIT')


@case('bad_node', "'coefficients'", '3 support vectors', 'found 2')
def svm_regressor_coefficients(d):
    svm(d, 'SVMRegressor', n_supports=3, support_vectors=[0.5] * 9, classlabels_ints=None, vectors_per_class=None)


@case('bad_node', '2 columns|matrix of 2', r'f32\[4,3\]')
def zip_map_columns(d):
    ml(d, 'ZipMap', port('x', (4, 3)), value('y', sequence()), classlabels_int64s=[1, 2])


@case('bad_node', 'expected a map', r'f32\[2,3\]')
def dict_vectorizer_of_tensor(d):
    ml(d, 'DictVectorizer', port('x'), port('y'), int64_vocabulary=[1])


@case("'x' is a tensor of strings", 'strings, sequences', "target 'cuda'", 'compile for a CPU')
def strings_on_a_device(d):
    save(d, [h.make_node('Concat', ['x', 'x'], ['y'], axis=0)], [port('x', (2,), T.STRING)], [port('y', (4,), T.STRING)])
    return ['--target=sm_80']


@case("'s' is a sequence, a map or an optional value", "target 'cuda'", 'compile for a CPU')
def sequence_on_a_device(d):
    sequence = h.make_tensor_sequence_value_info('s', T.FLOAT, (2,))
    save(d, [h.make_node('SequenceLength', ['s'], ['n'])], [sequence], [port('n', (), T.INT64)])
    return ['--target=sm_80']


@case("input 'x'", 'complex numbers', r'\[real, imaginary\]')
def complex_arithmetic(d):
    save(d, [h.make_node('Trilu', ['x'], ['y'], name='t')], [port('x', (2, 3), T.COMPLEX128)], [port('y', (2, 3), T.COMPLEX128)])
