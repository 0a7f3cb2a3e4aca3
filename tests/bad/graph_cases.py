# SPDX-License-Identifier: Apache-2.0
"""Bad files and graphs: names, operators, attributes, shapes, external data, functions; options that do not fit a model."""
import os

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

from cases import MODEL_CASES, case, good, good_bytes, overwrite, port, relu, save


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


@case('ir_version 999', 'newer')
def ir_version_999(d):
    def change(m):
        m.ir_version = 999
    save(d, [relu()], change=change)


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
        for number, text in ((77, 'number from 1 to 28, found 77'), (14, 'c64')):
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


# ---- the command line ----

@case("'?x'?")
def shape_of_wrong_rank(d):
    good(d)
    return ['--shape', 'x=1x2x3']


@case("'?x'?", '3', '5')
def shape_against_fixed_dim(d):
    good(d)
    return ['--shape', 'x=1x5']


@case('nosuch', r"an input of the model \('x'\)")
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


@case('pdp11')
def target_unknown(d):
    good(d)
    return ['--target=pdp11']
