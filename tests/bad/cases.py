"""The table of bad inputs: one function a case, made on the fly, nothing binary is committed.

Each function gets an empty folder, writes model.onnx there (and what else it needs) and may return further arguments for
cytoc. The decorator has regular expressions that must all occur in what cytoc prints; the model's file name is always
expected in addition. run.py says what else is checked.
"""
import os

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

MODEL_CASES = []  # (name, expressions, function)


def case(*expressions):
    def add(function):
        MODEL_CASES.append((function.__name__, expressions, function))
        return function
    return add


def port(name, dims=(2, 3), dtype=T.FLOAT):
    return h.make_tensor_value_info(name, dtype, list(dims))


def save(folder, nodes, inputs=None, outputs=None, initializers=(), opset=17, opsets=None, functions=(), change=None):
    graph = h.make_graph(nodes, 'g', inputs or [port('x')], outputs or [port('y')], list(initializers))
    model = h.make_model(graph, opset_imports=opsets or [h.make_opsetid('', opset)], functions=list(functions),
                         ir_version=8)
    if change:
        change(model)
    with open(os.path.join(folder, 'model.onnx'), 'wb') as f:
        f.write(model.SerializeToString())


def relu(name='r', i='x', o='y'):
    return h.make_node('Relu', [i], [o], name=name)


def good(folder):
    """A small correct model, for what is done to its bytes or around it."""
    w = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), 'w')
    save(folder, [h.make_node('MatMul', ['x', 'w'], ['m'], name='mm'), relu('r', 'm')],
         [port('x', ['batch', 3])], [port('y', ['batch', 4])], [w])


def weighty(folder, floats):
    """As good(), with so many weights."""
    w = numpy_helper.from_array(np.arange(floats, dtype=np.float32), 'w')
    save(folder, [h.make_node('Add', ['x', 'w'], ['y'], name='add')], [port('x', [floats])], [port('y', [floats])], [w])


def good_bytes(folder):
    good(folder)
    with open(os.path.join(folder, 'model.onnx'), 'rb') as f:
        return f.read()


def overwrite(folder, data):
    with open(os.path.join(folder, 'model.onnx'), 'wb') as f:
        f.write(data)


# ---- the file ----

@case('empty|no graph|truncated|not an ONNX')
def empty_file(d):
    overwrite(d, b'')


@case('parse|truncated|protobuf|corrupt|not an ONNX')
def truncated(d):
    overwrite(d, good_bytes(d)[:-7])


@case('parse|truncated|protobuf|corrupt|not an ONNX')
def text_file(d):
    overwrite(d, b'this is no model at all, only a line of text\n' * 50)


@case('graph')
def no_graph(d):
    m = onnx.ModelProto(ir_version=8)
    m.opset_import.add(version=17)
    overwrite(d, m.SerializeToString())


@case('parse|truncated|protobuf|corrupt|not an ONNX|length')
def length_beyond_end(d):
    overwrite(d, b'\x08\x08\x3a\xff\xff\xff\xff\x0f' + b'\0' * 20)


@case('parse|nest|deep|protobuf|level')
def deep_nesting(d):
    def field(number, data):
        size, out, n = len(data), bytearray([number << 3 | 2]), len(data)
        while n > 127:
            out.append(n & 127 | 128)
            n >>= 7
        out.append(n)
        return bytes(out) + data if size else bytes(out)
    graph = b''
    for _ in range(10000):  # graph { node { op_type: "If", attribute { name: "then_branch", g: graph, type: GRAPH } } }
        graph = field(1, field(4, b'If') + field(5, field(1, b'then_branch') + field(6, graph) + b'\xa0\x01\x05'))
    overwrite(d, b'\x08\x08' + field(7, graph) + field(8, b'\x10\x11'))


# ---- names and order ----

@case('nosuch', 'bad_node')
def dangling_input(d):
    save(d, [h.make_node('Add', ['x', 'nosuch'], ['y'], name='bad_node')])


@case("'?y'?")
def dangling_output(d):
    save(d, [relu(o='z')])


@case('cycle|before|order|loop')
def cycle(d):
    save(d, [h.make_node('Add', ['x', 'b'], ['a'], name='n1'), h.make_node('Relu', ['a'], ['b'], name='n2'), relu('n3', 'b')])


@case('cycle|itself|before|own|loop')
def own_output(d):
    save(d, [h.make_node('Add', ['x', 'y'], ['y'], name='self')])


@case('twice|duplicate|already|more than once', 'y')
def duplicate_value(d):
    save(d, [relu('first'), h.make_node('Neg', ['x'], ['y'], name='second')])


@case('twice|duplicate|already|more than once', 'x')
def duplicate_input(d):
    save(d, [relu()], [port('x'), port('x')])


@case('twice|duplicate|already|more than once', 'w')
def duplicate_initializer(d):
    w = numpy_helper.from_array(np.zeros((2, 3), np.float32), 'w')
    save(d, [h.make_node('Add', ['x', 'w'], ['y'])], initializers=[w, w])


@case('output')
def no_outputs(d):
    save(d, [relu()], change=lambda m: m.graph.ClearField('output'))


# ---- operators ----

@case('FrobnicateOne', 'FrobnicateTwo', 'weird_node')
def unknown_ops_all_named(d):
    save(d, [h.make_node('FrobnicateOne', ['x'], ['a'], name='weird_node'), h.make_node('FrobnicateTwo', ['a'], ['y'])])


@case('my.domain')
def unknown_domain(d):
    save(d, [h.make_node('Relu', ['x'], ['y'], domain='my.domain')], opsets=[h.make_opsetid('', 17),
                                                                           h.make_opsetid('my.domain', 1)])


@case('999')
def opset_999(d):
    save(d, [relu()], opset=999)


@case('opset')
def opset_missing(d):
    save(d, [relu()], change=lambda m: m.ClearField('opset_import'))


@case('opset|version', '0|-5')
def opset_negative(d):
    save(d, [relu()], opset=-5)


@case('inputs?', 'bad_node')
def too_few_inputs(d):
    save(d, [h.make_node('Conv', ['x'], ['y'], name='bad_node')], [port('x', (1, 3, 8, 8))], [port('y', (1, 4, 8, 8))])


@case('inputs?', 'bad_node')
def too_many_inputs(d):
    save(d, [h.make_node('Relu', ['x', 'x'], ['y'], name='bad_node')])


@case('outputs?', 'bad_node')
def too_many_outputs(d):
    save(d, [h.make_node('Relu', ['x'], ['y', 'z'], name='bad_node')])


# ---- attributes ----

@case('axis', 'bad_node')
def attribute_of_wrong_type(d):
    save(d, [h.make_node('Softmax', ['x'], ['y'], name='bad_node', axis=1.5)])


@case('axis', '7', 'bad_node')
def axis_out_of_range(d):
    save(d, [h.make_node('Softmax', ['x'], ['y'], name='bad_node', axis=7)])


@case("'perm'", 'bad_node', 'every axis from 0 to 1 once, found 0 as element 1')
def perm_no_permutation(d):
    save(d, [h.make_node('Transpose', ['x'], ['y'], name='bad_node', perm=[0, 0])])


@case('perm', 'bad_node')
def perm_of_wrong_length(d):
    save(d, [h.make_node('Transpose', ['x'], ['y'], name='bad_node', perm=[0, 1, 2])])


@case("'to'", 'bad_node', 'expected an element type, found none')
def attribute_missing(d):
    save(d, [h.make_node('Cast', ['x'], ['y'], name='bad_node')])


def conv(d, x=(1, 4, 8, 8), w=(6, 4, 3, 3), **attributes):
    weight = numpy_helper.from_array(np.zeros(w, np.float32), 'w')
    save(d, [h.make_node('Conv', ['x', 'w'], ['y'], name='bad_node', **attributes)], [port('x', x)],
         [port('y', ['a', 'b', 'c', 'd'])], [weight])


def element_types():
    """Element types that an operator's attribute must not give: no number of one, and complex numbers."""
    scalar = [port('s', ())]
    for op, name, inputs, opset in (('Cast', 'to', [port('x')], 21), ('EyeLike', 'dtype', [port('x')], 22),
                                    ('Bernoulli', 'dtype', [port('x')], 22), ('RandomNormalLike', 'dtype', [port('x')], 22),
                                    ('HannWindow', 'output_datatype', [port('n', (), T.INT64)], 17),
                                    ('BitCast', 'to', [port('x', (4,), T.INT64)], 26),
                                    ('QuantizeLinear', 'output_dtype', [port('x')] + scalar, 21),
                                    ('SequenceEmpty', 'dtype', [], 17)):
        for number, text in ((77, 'number from 1 to 26, found 77'), (14, 'c64')):
            def build(d, op=op, name=name, inputs=inputs, opset=opset, number=number):
                node = h.make_node(op, [i.name for i in inputs], ['y'], name='bad_node', **{name: number})
                save(d, [node], inputs or None, [port('y', (2, 3))], opset=opset)
            if (op, number) != ('SequenceEmpty', 14):
                MODEL_CASES.append(('element_type_%s_%d' % (op, number), ('bad_node', "'%s'" % name, text), build))


element_types()


@case('stride', 'bad_node')
def stride_zero(d):
    conv(d, strides=[0, 1])


@case('dilation', 'bad_node')
def dilation_negative(d):
    conv(d, dilations=[-1, 1])


@case('pads', 'bad_node')
def pads_of_wrong_length(d):
    conv(d, pads=[1, 1])


@case('group', 'bad_node')
def group_does_not_divide(d):
    conv(d, group=3)


@case('channel|group', 'bad_node')
def channels_do_not_match(d):
    conv(d, w=(6, 5, 3, 3))


@case('kernel_shape', 'bad_node')
def kernel_shape_differs(d):
    conv(d, kernel_shape=[5, 5])


@case('bad_node')
def kernel_larger_than_input(d):
    conv(d, x=(1, 4, 2, 2), w=(6, 4, 7, 7))


@case('auto_pad', 'SOMEHOW', 'bad_node')
def auto_pad_unknown(d):
    conv(d, auto_pad='SOMEHOW')


# ---- shapes and types ----

@case('bad_node', '3', '4')
def broadcast_impossible(d):
    save(d, [h.make_node('Add', ['x', 'z'], ['y'], name='bad_node')], [port('x', (2, 3)), port('z', (2, 4))])


@case('bad_node', '3', '5')
def matmul_inner_differs(d):
    save(d, [h.make_node('MatMul', ['x', 'z'], ['y'], name='bad_node')], [port('x', (2, 3)), port('z', (5, 4))])


def reshape(d, *shape):
    s = numpy_helper.from_array(np.array(shape, np.int64), 's')
    save(d, [h.make_node('Reshape', ['x', 's'], ['y'], name='bad_node')], initializers=[s])


@case('bad_node')
def reshape_of_wrong_size(d):
    reshape(d, 4, 2)


@case('bad_node', "'shape'", 'element 1 is -2', 'expected a size')
def reshape_to_negative_size(d):
    reshape(d, 3, -2)


@case('bad_node', "'shape'", 'at most one element may be -1, found 2')
def reshape_to_two_unknowns(d):
    reshape(d, -1, -1)


@case('bad_node')
def concat_of_different_ranks(d):
    save(d, [h.make_node('Concat', ['x', 'z'], ['y'], name='bad_node', axis=0)], [port('x'), port('z', (2, 3, 4))])


@case('bad_node', 'i64', 'f32')
def dtypes_differ(d):
    save(d, [h.make_node('Add', ['x', 'z'], ['y'], name='bad_node')], [port('x'), port('z', dtype=T.INT64)])


@case('bad_node', 'bool')
def dtype_not_allowed(d):
    save(d, [h.make_node('Sqrt', ['x'], ['y'], name='bad_node')], [port('x', dtype=T.BOOL)], [port('y', dtype=T.BOOL)])


@case('99|type')
def input_dtype_unknown(d):
    save(d, [relu()], [port('x', dtype=99)])


@case('dim|large|overflow|size', '4611686018427387904|2\\^62|overflow|large')
def dim_of_2_to_62(d):
    save(d, [relu()], [port('x', (1 << 62, 3))], [port('y', (1 << 62, 3))])


@case('overflow|large|size')
def product_overflows(d):
    save(d, [relu()], [port('x', (1 << 31, 1 << 31, 16))], [port('y', (1 << 31, 1 << 31, 16))])


def initializer(d, change):
    w = numpy_helper.from_array(np.zeros((2, 3), np.float32), 'weight_w')
    change(w)
    save(d, [h.make_node('Add', ['x', 'weight_w'], ['y'])], initializers=[w])


@case('weight_w', 'negative|-3|dim')
def initializer_dim_negative(d):
    def change(w):
        w.dims[1] = -3
    initializer(d, change)


@case('weight_w', '24|bytes|data|elements')
def initializer_too_short(d):
    def change(w):
        w.raw_data = w.raw_data[:9]
    initializer(d, change)


@case('weight_w')
def initializer_without_dtype(d):
    initializer(d, lambda w: w.ClearField('data_type'))


@case('weight_w', 'overflow|large|bytes|size')
def initializer_dims_overflow(d):
    def change(w):
        w.dims[0], w.dims[1] = 1 << 40, 1 << 40
    initializer(d, change)


# ---- external data ----

def external(d, location, offset=None, length=None, write=None):
    if write is not None:
        with open(os.path.join(d, 'weights.bin'), 'wb') as f:
            f.write(write)

    def change(w):
        w.ClearField('raw_data')
        w.data_location = T.EXTERNAL
        for key, value in (('location', location), ('offset', offset), ('length', length)):
            if value is not None:
                w.external_data.add(key=key, value=str(value))
    initializer(d, change)


@case('weight_w', 'outside|leaves|\\.\\.')
def external_outside_folder(d):
    external(d, '../../etc/hostname')


@case('weight_w', 'absolute|outside')
def external_absolute_path(d):
    external(d, '/etc/hostname')


@case('weight_w', 'link|outside')
def external_through_link(d):
    os.symlink('/etc/passwd', os.path.join(d, 'weights.bin'))
    external(d, 'weights.bin')


@case('weight_w', 'missing.bin')
def external_missing(d):
    external(d, 'missing.bin')


@case('weight_w', 'end|beyond|size|bytes')
def external_beyond_end(d):
    external(d, 'weights.bin', offset=16, length=24, write=b'\0' * 24)


@case('weight_w', 'offset|negative|number')
def external_offset_negative(d):
    external(d, 'weights.bin', offset=-8, length=24, write=b'\0' * 24)


@case('weight_w', 'length|24|bytes')
def external_length_wrong(d):
    external(d, 'weights.bin', offset=0, length=7, write=b'\0' * 24)


@case('weight_w', "no 'location'")
def external_without_location(d):
    external(d, None)


@case('weight_w')
def external_is_folder(d):
    os.mkdir(os.path.join(d, 'weights.bin'))
    external(d, 'weights.bin')


# ---- functions and subgraphs ----

def function(name, callee, domain='own'):
    return h.make_function(domain, name, ['x'], ['y'], [h.make_node(callee, ['x'], ['y'], domain=domain)],
                           [h.make_opsetid('', 17), h.make_opsetid(domain, 1)])


OWN = [h.make_opsetid('', 17), h.make_opsetid('own', 1)]


@case('recurs|itself|cycle', "'?F'?")
def function_calls_itself(d):
    save(d, [h.make_node('F', ['x'], ['y'], domain='own')], opsets=OWN, functions=[function('F', 'F')])


@case('recurs|itself|cycle')
def functions_call_each_other(d):
    save(d, [h.make_node('F', ['x'], ['y'], domain='own')], opsets=OWN, functions=[function('F', 'G'), function('G', 'F')])


@case('bad_node', 'then_branch|else_branch')
def if_without_branches(d):
    save(d, [h.make_node('If', ['c'], ['y'], name='bad_node')], [port('c', (), T.BOOL)])


@case('bad_node')
def if_branches_differ(d):
    one = h.make_graph([relu()], 't', [], [port('y')])
    two = h.make_graph([relu('a', 'x', 'p'), relu('b', 'x', 'q')], 'e', [], [port('p'), port('q')])
    save(d, [h.make_node('If', ['c'], ['y'], name='bad_node', then_branch=one, else_branch=two)],
         [port('c', (), T.BOOL), port('x')])


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


# ---- the command line ----

@case("'?x'?")
def shape_of_wrong_rank(d):
    good(d)
    return ['--shape', 'x=1x2x3']


@case("'?x'?", '3', '5')
def shape_against_fixed_dim(d):
    good(d)
    return ['--shape', 'x=1x5']


@case('nosuch')
def shape_of_unknown_input(d):
    good(d)
    return ['--shape', 'nosuch=1x3']


@case('nosuch')
def dim_unknown(d):
    good(d)
    return ['--dim', 'nosuch=3']


@case('batch')
def dim_negative(d):
    good(d)
    return ['--dim', 'batch=-4']


@case('batch')
def dim_overflowing(d):
    good(d)
    return ['--dim', 'batch=99999999999999999999']


@case('Trilu', 'complex')
def complex_arithmetic(d):
    save(d, [h.make_node('Trilu', ['x'], ['y'], name='t')], [port('x', (2, 3), T.COMPLEX128)], [port('y', (2, 3), T.COMPLEX128)])


@case('pdp11')
def target_unknown(d):
    good(d)
    return ['--target=pdp11']


def rescale(folder, kind='DequantizeLinear', scale=(0.5,), zero=(0,), zero_dtype=np.uint8, dims=(2, 6), opset=21, scale_dims=None, **attributes):
    inits = [numpy_helper.from_array(np.array(scale, np.float32).reshape(scale_dims or np.shape(scale) or ()), 's')]
    if zero is not None:
        inits.append(numpy_helper.from_array(np.array(zero, zero_dtype).reshape(scale_dims or np.shape(zero) or ()), 'z'))
    back = kind == 'QuantizeLinear'
    node = h.make_node(kind, ['x', 's', 'z'][:1 + len(inits)], ['y'], name='n0', **attributes)
    save(folder, [node], [port('x', dims, T.FLOAT if back else T.UINT8)], [port('y', dims, T.UINT8 if back else T.FLOAT)], inits, opset)


@case(r"'n0'", r'scale.*positive finite.*found 0')
def quantize_scale_zero(folder):
    rescale(folder, 'QuantizeLinear', scale=0.0, zero=3)


@case(r"'n0'", r'scale.*positive finite.*found -1')
def dequantize_scale_negative(folder):
    rescale(folder, scale=(0.5, -1.0), zero=(0, 0), axis=0)


@case(r"'n0'", r'scale.*positive finite.*found inf')
def dequantize_scale_infinite(folder):
    rescale(folder, scale=float('inf'), zero=3)


@case(r"'n0'", r'scale.*positive finite.*found -?nan')
def quantize_scale_nan(folder):
    rescale(folder, 'QuantizeLinear', scale=float('nan'), zero=3)


@case(r"'n0'", r'zero point.*u8.*found i8')
def dequantize_zero_point_dtype(folder):
    rescale(folder, scale=0.5, zero=3, zero_dtype=np.int8)


@case(r"'n0'", r'zero point.*i8.*found u8')
def quantize_zero_point_against_output_dtype(folder):
    rescale(folder, 'QuantizeLinear', scale=0.5, zero=3, output_dtype=T.INT8)


@case(r"'n0'", r'axis 1.*found f32\[4\]')
def dequantize_scales_of_axis(folder):
    rescale(folder, scale=(1, 2, 3, 4), zero=(0, 0, 0, 0), axis=1)


@case(r"'n0'", r'block_size.*blocks of 4 along axis 1')
def dequantize_block_size(folder):
    rescale(folder, scale=(1, 2, 3, 4, 5, 6), zero=(0,) * 6, scale_dims=(2, 3), axis=1, block_size=4)


@case(r"'n0'", r'block_size.*found -2')
def dequantize_block_size_negative(folder):
    rescale(folder, scale=(1, 2, 3, 4, 5, 6), zero=(0,) * 6, scale_dims=(2, 3), axis=1, block_size=-2)


@case(r"'n0'", r'zero point.*expected 0.*i32.*found 3')
def dequantize_zero_point_of_i32(folder):
    node = h.make_node('DequantizeLinear', ['x', 's', 'z'], ['y'], name='n0')
    save(folder, [node], [port('x', (2, 6), T.INT32)], [port('y', (2, 6))],
         [numpy_helper.from_array(np.float32(0.5), 's'), numpy_helper.from_array(np.int32(3), 'z')], 21)


def matmul_nbits(folder, block, weights=(8, 2, 16), scales=(8, 2), scale=1.0):
    inits = [numpy_helper.from_array(np.zeros(weights, np.uint8), 'w'), numpy_helper.from_array(np.full(scales, scale, np.float32), 's')]
    node = h.make_node('MatMulNBits', ['x', 'w', 's'], ['y'], name='n0', domain='com.microsoft', K=64, N=8, bits=4, block_size=block)
    save(folder, [node], [port('x', (2, 64))], [port('y', (2, 8))], inits,
         opsets=[h.make_opsetid('', 17), h.make_opsetid('com.microsoft', 1)])


@case(r"'n0'", r'block_size that is a power of two.*24')
def matmul_nbits_block_size(folder):
    matmul_nbits(folder, 24, (8, 3, 12), (8, 3))


@case(r"'n0'", r'u8\[8,3,16\]')
def matmul_nbits_blocks(folder):
    matmul_nbits(folder, 32, (8, 3, 16))


@case(r"'n0'", r'scale.*finite.*found -?nan')
def matmul_nbits_scale(folder):
    matmul_nbits(folder, 32, scale=float('nan'))


def fused_op(folder, kind, ports, constants=None, outputs=1, **attributes):
    """A node of com.microsoft; ports: name and dims of the inputs, '' for one that is absent."""
    constants = constants or {}
    node = h.make_node(kind, [name for name, _ in ports], ['y%d' % i for i in range(outputs)], name='n0', domain='com.microsoft', **attributes)
    save(folder, [node], [port(name, dims) for name, dims in ports if name and name not in constants],
         [h.make_tensor_value_info('y%d' % i, T.FLOAT, None) for i in range(outputs)],
         [numpy_helper.from_array(x, name) for name, x in constants.items()],
         opsets=[h.make_opsetid('', 17), h.make_opsetid('com.microsoft', 1)])


@case(r"'n0'", r"'g_idx'.*2 blocks, found 2 as element 5")
def matmul_nbits_groups(folder):
    groups = np.zeros(32, np.int32)
    groups[5] = 2
    fused_op(folder, 'MatMulNBits', [('x', (2, 32)), ('w', 0), ('s', 0), ('', 0), ('g', 0)], {
        'w': np.zeros((4, 2, 8), np.uint8), 's': np.ones((4, 2), np.float32), 'g': groups}, K=32, N=4, bits=4, block_size=16)


@case(r"'n0'", r"'weight_prepacked'")
def matmul_nbits_packed_for_a_device(folder):
    fused_op(folder, 'MatMulNBits', [('x', (2, 32)), ('w', 0), ('s', 0)], {
        'w': np.zeros((4, 2, 8), np.uint8), 's': np.ones((4, 2), np.float32)}, K=32, N=4, bits=4, block_size=16, weight_prepacked=1)


@case(r"'n0'", r"'scales'.*block of 16 elements along axis 1, found f32\[3,3\]")
def gather_blocks_scales(folder):
    fused_op(folder, 'GatherBlockQuantized', [('w', 0), ('i', 0), ('s', (3, 3))], {
        'w': np.zeros((3, 16), np.uint8), 'i': np.array([0, 2])}, quantize_axis=1, block_size=16, bits=4)


@case(r"'n0'", r'as many rows of keys and values as of queries.*f32\[2,4,16\]')
def shared_heads_rows(folder):
    fused_op(folder, 'GroupQueryAttention', [('q', (2, 3, 32)), ('k', (2, 4, 16)), ('v', (2, 4, 16)), ('', 0), ('', 0), ('l', 0), ('t', 0)],
             {'l': np.int32([2, 2]), 't': np.array(3, np.int32)}, 3, num_heads=2, kv_num_heads=1)


@case(r"'n0'", r"'past_state'.*expected 2 elements.*f32\[2,3,1\]")
def causal_conv_state(folder):
    fused_op(folder, 'CausalConvWithState', [('x', (2, 3, 5)), ('w', (3, 1, 2)), ('', 0), ('s', (2, 3, 1))], outputs=2, dilation=2)


@case(r"'n0'", r'three counts that add up to 4')
def rotary_sections(folder):
    fused_op(folder, 'MRotaryEmbedding', [('x', (1, 2, 3, 8)), ('p', 0), ('c', (9, 4)), ('s', (9, 4))], {'p': np.zeros((3, 1, 3), np.int64)},
             mrope_section=[1, 1, 1])


@case(r"'n0'", r'windows of 5 elements.*f32\[3,4\]')
def windows_too_long(folder):
    fused_op(folder, 'UnfoldTensor', [('x', (3, 4))], size=5)


def integer_op(folder, kind, inputs, ports, domain='com.microsoft', **attributes):
    node = h.make_node(kind, inputs, ['y'], name='n0', domain=domain, **attributes)
    inits = [numpy_helper.from_array(np.float32(0.5), 's'), numpy_helper.from_array(np.float32(-0.5), 'bad'),
             numpy_helper.from_array(np.uint8(3), 'z'), numpy_helper.from_array(np.int8(3), 'zi'),
             numpy_helper.from_array(np.array([1, 2, 3], np.uint8), 'z3')]
    save(folder, [node], ports, [port('y', (2, 3), T.UINT8)], [i for i in inits if i.name in inputs],
         opsets=[h.make_opsetid('', 17), h.make_opsetid('com.microsoft', 1)])


@case(r"'n0'", r'scale.*positive finite.*found -0.5')
def qlinear_add_scale(folder):
    integer_op(folder, 'QLinearAdd', ['x', 's', 'z', 'x', 'bad', 'z', 's', 'z'], [port('x', (2, 3), T.UINT8)])


@case(r"'n0'", r'zero point.*u8.*found i8')
def qlinear_add_zero_point(folder):
    integer_op(folder, 'QLinearAdd', ['x', 's', 'z', 'x', 's', 'zi', 's', 'z'], [port('x', (2, 3), T.UINT8)])


@case(r"'n0'", r'expected no zero point|expected input 3 of type i8')
def matmul_integer_zero_point(folder):
    integer_op(folder, 'MatMulInteger', ['x', 'w', 'z', 'z'], [port('x', (2, 4), T.UINT8), port('w', (4, 3), T.INT8)], domain='')


@case(r"'n0'", r'zero points: expected 5, found 3')
def matmul_integer_zero_points(folder):
    integer_op(folder, 'MatMulInteger', ['x', 'w', 'z', 'z3'], [port('x', (2, 4), T.UINT8), port('w', (4, 5), T.UINT8)], domain='')


@case(r"'n0'", r'block_size.*power of two')
def gather_block_quantized_block_size(folder):
    integer_op(folder, 'GatherBlockQuantized', ['x', 'i', 's'], [port('x', (2, 64), T.UINT8), port('i', (3,), T.INT64)], block_size=24, bits=8)


@case(r"'n0'", r"'groups'.*3 groups do not fit f32\[1,8,4,4\]")
def group_norm_groups(folder):
    integer_op(folder, 'GroupNorm', ['x', 'c', 'c'], [port('x', (1, 8, 4, 4)), port('c', (4,))], groups=3, activation=0)


@case(r"'n0'", r"'metric'.*cosine")
def distance_metric(folder):
    integer_op(folder, 'CDist', ['x', 'x'], [port('x', (3, 4))], metric='cosine')


@case(r"'n0'", r"'activation'.*Mish")
def fused_gemm_activation(folder):
    integer_op(folder, 'FusedGemm', ['x', 'x'], [port('x', (3, 3))], activation='Mish')


@case(r"'n0'", r"'max_distance'.*found 4")
def relative_position_distance(folder):
    integer_op(folder, 'RelativePositionBias', ['x', 'n', 'n'], [port('x', (32, 3)), port('n', (), T.INT64)], max_distance=4)


LSTM_PORTS = [port('x', (5, 1, 4)), port('w', (1, 4, 12), T.INT8), port('r', (1, 3, 12), T.INT8)]


@case(r"'n0'", r"'R_scale'.*expected a scale, found nothing")
def dynamic_quantize_lstm_scale(folder):
    integer_op(folder, 'DynamicQuantizeLSTM', ['x', 'w', 'r', '', '', '', '', '', 's'], LSTM_PORTS, hidden_size=3)


@case(r"'n0'", r'W is \[directions, input, gates \* hidden\]')
def dynamic_quantize_lstm_weights(folder):
    integer_op(folder, 'DynamicQuantizeLSTM', ['x', 'w', 'r', '', '', '', '', '', 's', '', 's', ''],
               [LSTM_PORTS[0], port('w', (1, 12, 4), T.INT8), LSTM_PORTS[2]], hidden_size=3)


# ---- attention ----

@case('heads', 'att')
def attention_heads(d):
    save(d, [h.make_node('Attention', ['q', 'k', 'k'], ['y'], name='att')],
         [port('q', (1, 6, 5, 8)), port('k', (1, 4, 5, 8))], [port('y', (1, 6, 5, 8))], opset=23)


@case('broadcasts to the scores', 'att')
def attention_mask_shape(d):
    save(d, [h.make_node('Attention', ['q', 'k', 'k', 'm'], ['y'], name='att')],
         [port('q', (1, 2, 5, 8)), port('k', (1, 2, 7, 8)), port('m', (5, 6, 7))], [port('y', (1, 2, 5, 8))], opset=23)


def grouped(d, change, more=(), **attributes):
    """A GroupQueryAttention with one thing wrong. more: names of inputs behind the seventh."""
    shapes = {'q': ((1, 3, 32), T.FLOAT), 'k': ((1, 3, 16), T.FLOAT), 'v': ((1, 3, 16), T.FLOAT),
              'n': ((1,), T.INT32), 't': ((), T.INT32)}
    shapes.update(change)
    node = h.make_node('GroupQueryAttention', ['q', 'k', 'v', '', '', 'n', 't', *more], ['y', 'pk', 'pv'], name='gqa',
                       domain='com.microsoft', **{'num_heads': 4, 'kv_num_heads': 2, **attributes})
    save(d, [node], [port(n, *s) for n, s in shapes.items()], [port('y', (1, 3, 32))],
         opsets=[h.make_opsetid('', 17), h.make_opsetid('com.microsoft', 1)])


@case('kv_num_heads', 'gqa')
def grouped_heads(d):
    grouped(d, {}, kv_num_heads=3)


@case('total_sequence_length', 'gqa')
def grouped_total(d):
    grouped(d, {'t': ((2,), T.INT32)})


@case('seqlens_k', 'gqa')
def grouped_lengths(d):
    grouped(d, {'n': ((3,), T.INT32)})


@case('attention_bias', r'found f32\[3,3\]', 'gqa')
def grouped_bias(d):
    grouped(d, {'b': ((3, 3), T.FLOAT)}, ['', '', '', 'b'])


@case(r'3 elements of f32\[3\]', 'gqa')
def grouped_sink(d):
    grouped(d, {'s': ((3,), T.FLOAT)}, ['', '', '', '', 's'])


def experts(d, w1=(4, 8, 16), w2=(4, 16, 8), **attributes):
    """A MoE with one thing wrong."""
    node = h.make_node('MoE', ['x', 'r', 'w1', '', 'w2'], ['y'], name='moe', domain='com.microsoft', **attributes)
    save(d, [node], [port('x', (5, 16)), port('r', (5, 4)), port('w1', w1), port('w2', w2)], [port('y', (5, 16))],
         opsets=[h.make_opsetid('', 17), h.make_opsetid('com.microsoft', 1)])


@case('k = 5', 'moe')
def experts_chosen(d):
    experts(d, k=5)


@case(r'f32\[4,8,17\]', 'moe')
def experts_hidden(d):
    experts(d, w1=(4, 8, 17))


@case('swiglu without', 'moe')
def experts_halves(d):
    experts(d, activation_type='swiglu')


@case('ORT_ENABLE_EXTENDED', 'n0')
def order_of_a_cpu(d):
    node = h.make_node('Conv', ['x', 'w'], ['y'], name='n0', domain='com.microsoft.nchwc')
    save(d, [node], [port('x', (1, 8, 4, 4)), port('w', (8, 8, 3, 3))], [port('y', (1, 8, 2, 2))],
         opsets=[h.make_opsetid('', 17), h.make_opsetid('com.microsoft.nchwc', 1)])


@case('do_rotary', 'cos_cache', 'gqa')
def grouped_rotary(d):
    grouped(d, {}, do_rotary=1)
