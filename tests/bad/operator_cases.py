# SPDX-License-Identifier: Apache-2.0
"""Bad inputs of quantisation, com.microsoft's operators and attention."""
import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

import decoding
from cases import MODEL_CASES, case, port, save


# ---- quantisation and other operators of com.microsoft ----

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
def quantize_scale_negative(folder):
    rescale(folder, 'QuantizeLinear', scale=(0.5, -1.0), zero=(0, 0), axis=0)


@case(r"'n0'", r'zero point.*one scale.*u8\[1,0\]')
def dequantize_zero_points_of_one_scale(folder):
    rescale(folder, scale=0.5, zero=np.zeros((1, 0)))


@case(r"'n0'", r'zero point.*one scale.*u8\[2\]')
def quantize_zero_points_of_one_scale(folder):
    rescale(folder, 'QuantizeLinear', scale=0.5, zero=(1, 2), axis=0)


@case(r"'n0'", r'scale.*expected finite.*found inf.*mask.*nodes_to_exclude')
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


@case(r"'n0'", r"'past_state'.*2 states.*state_window.*f32\[2,3,2\]")
def causal_conv_states(folder):
    fused_op(folder, 'CausalConvWithState', [('x', (2, 3, 5)), ('w', (3, 1, 3)), ('', 0), ('s', (2, 3, 2))], outputs=2, state_window=2)


@case(r"'n0'", r"'position_embedding'.*6 of 5 elements")
def embedding_of_more_places_than_there_are(folder):
    fused_op(folder, 'EmbedLayerNormalization', [('i', 0), ('', 0), ('w', (3, 8)), ('p', (5, 8)), ('', 0), ('g', (8,)), ('b', (8,))],
             {'i': np.zeros((2, 6), np.int32)}, 2)


@case(r"'n0'", r"'cos_cache'.*4 of 3 elements")
def rotary_places(folder):
    fused_op(folder, 'RotaryEmbedding', [('x', (2, 4, 16)), ('p', 0), ('c', (3, 8)), ('s', (3, 8))], {'p': np.array([0])})


@case(r"'n0'", r"'past_sequence_length'.*9 of 8 elements")
def cache_that_is_full(folder):
    fused_op(folder, 'MultiHeadAttention', [('q', (2, 1, 12)), ('k', (2, 1, 12)), ('v', (2, 1, 12)), ('', 0), ('', 0), ('', 0),
                                            ('pk', (2, 3, 8, 4)), ('pv', (2, 3, 8, 4)), ('n', 0)], {'n': np.int32([8])}, 3, num_heads=3)


@case(r"'n0'", r"'Pads'.*found -1")
def turned_convolution_of_negative_pads(folder):
    fused_op(folder, 'ConvTransposeWithDynamicPads', [('x', (1, 2, 5, 5)), ('w', (2, 2, 3, 3)), ('p', 0)], {'p': np.array([0, -1, 0, 0])})


@case(r"'n0'", r"'Pads'.*4 numbers, found 3")
def turned_convolution_of_few_pads(folder):
    fused_op(folder, 'ConvTransposeWithDynamicPads', [('x', (1, 2, 5, 5)), ('w', (2, 2, 3, 3)), ('p', 0)], {'p': np.array([0, 1, 0])})


@case(r"'n0'", r'as high as wide, found f32\[2,3\]')
def inverse_of_a_rectangle(folder):
    fused_op(folder, 'Inverse', [('x', (2, 3))])


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


@case(r'fc2 \[4 experts, 16, from\]', r'f32\[4,15,8\]', 'moe')
def experts_back(d):
    experts(d, w2=(4, 15, 8))


@case('swiglu without', 'moe')
def experts_halves(d):
    experts(d, activation_type='swiglu')


@case('ORT_ENABLE_EXTENDED', 'n0')
def order_of_a_cpu(d):
    node = h.make_node('Conv', ['x', 'w'], ['y'], name='n0', domain='com.microsoft.nchwc')
    save(d, [node], [port('x', (1, 8, 4, 4)), port('w', (8, 8, 3, 3))], [port('y', (1, 8, 2, 2))],
         opsets=[h.make_opsetid('', 17), h.make_opsetid('com.microsoft.nchwc', 1)])


@case('use_paged_attention', 'n0', '1 node uses it')
def pages_of_a_server(d):
    node = h.make_node('PagedAttention', ['x'], ['y'], name='n0', domain='com.microsoft')
    save(d, [node], [port('x', (1, 8))], [port('y', (1, 8))], opsets=[h.make_opsetid('', 17), h.make_opsetid('com.microsoft', 1)])


@case('do_rotary', 'cos_cache', 'gqa')
def grouped_rotary(d):
    grouped(d, {}, do_rotary=1)


# ---- text that a decoder writes ----

def text(d, kind='BeamSearch', ids=port('i', (2, 3), T.INT32), inputs='i n  b r', given=None, outputs='y', **attributes):
    """given: constants n (the longest text), b (beams), r (sequences returned) and others."""
    numbers = {'n': 9, 'b': 2, 'r': 1, **(given or {})}
    constants = [numpy_helper.from_array(np.atleast_1d(np.array(v, v.dtype if isinstance(v, np.ndarray) else np.int32)), n)
                 for n, v in numbers.items() if n in inputs.split(' ')]
    attributes = {'eos_token_id': 1, 'pad_token_id': 0, 'decoder': decoding.gpt(), **attributes}
    node = h.make_node(kind, inputs.split(' '), outputs.split(' '), name='text', domain='com.microsoft', **attributes)
    save(d, [node], [ids], [h.make_value_info(n, onnx.TypeProto()) for n in outputs.split(' ') if n], constants,
         opsets=[h.make_opsetid('', 17), h.make_opsetid('com.microsoft', 1)])


@case("'text'", 'num_return_sequences', 'at most 2, found 3')
def text_returned(d):
    text(d, given={'r': 3})


@case("'text'", 'max_length', 'at most 3, found 4')
def text_longest(d):
    text(d, given={'n': 3})


@case("'text'", 'num_beams', 'at least 1, found 0')
def text_no_beams(d):
    text(d, given={'b': 0})


@case("'text'", 'min_length', 'one number', r'i32\[2\]')
def text_lengths(d):
    text(d, inputs='i n m b r', given={'m': np.array([1, 2], np.int32)})


@case("'text'", 'input_ids', 'i32.*i64')
def text_ids(d):
    text(d, ids=port('i', (2, 3), T.INT64))


@case("'text'", 'eos_token_id', 'found -1')
def text_end(d):
    text(d, eos_token_id=-1)


@case("'text'", 'model_type', '0.*found 1')
def text_greedy_model(d):
    text(d, 'GreedySearch', inputs='i n', model_type=1)


@case("'text'", "'encoder'")
def text_encoder(d):
    text(d, model_type=1, decoder_start_token_id=2, decoder=decoding.encoder_decoder()['decoder'])


@case("'text'", "'decoder'", 'position_ids', 'found 6 inputs and 3 outputs', 'past_present_share_buffer')
def text_shared_cache(d):
    graph = decoding.gpt()
    graph.input.append(port('past_sequence_length', (1,), T.INT32))
    text(d, decoder=graph)


@case("'text'", 'past_0', 'axis 4.*must be known')
def text_size_of_heads(d):
    graph = decoding.gpt()
    graph.input[3].type.tensor_type.shape.dim[4].dim_param = 'size'
    text(d, decoder=graph)


@case("'text'", 'vocab_size', 'at most.*24.*found 30')
def text_vocabulary(d):
    text(d, vocab_size=30)


@case("'text'", 'filtered_logits')
def text_filtered(d):
    text(d, 'Sampling', inputs='i n', outputs='y z')


@case("'text'", 'cross_qk')
def text_crossed(d):
    text(d, 'WhisperBeamSearch', port('i', (2, 6, 4), T.FLOAT), outputs='y   z', model_type=2, decoder_start_token_id=2,
         **decoding.encoder_decoder(sound=True))


# ---- element types that an operator does not compute with ----

def wrong_elements():
    """Every input of `kind`, (dims, type), and what must be said about it."""
    ints = (2, 3), T.INT32
    gates, state = [((5, 2, 4), T.FLOAT), ((1, 12, 4), T.FLOAT)], ((1, 2, 3), T.DOUBLE)
    lstm = [*gates, ((1, 12, 3), T.FLOAT)]
    for name, kind, inputs, text, attributes in (
            ('softmax_of_integers', 'Softmax', [ints], r'floating-point.*i32\[2,3\]', {}),
            ('log_softmax_of_bools', 'LogSoftmax', [((4,), T.BOOL)], r'floating-point.*bool\[4\]', {}),
            ('normalised_integers', 'LayerNormalization', [ints, ((3,), T.INT32)], 'floating-point.*i32', {}),
            ('lstm_of_bools', 'LSTM', [((5, 2, 4), T.BOOL), ((1, 12, 4), T.BOOL), ((1, 12, 3), T.BOOL)],
             'floating-point.*bool', {'hidden_size': 3}),
            ('lstm_of_two_types', 'LSTM', [*gates, ((1, 12, 3), T.DOUBLE)], 'input 1.*f32.*f64', {'hidden_size': 3}),
            ('lstm_state_of_other_type', 'LSTM', [*gates, ((1, 12, 3), T.FLOAT), None, None, state], 'type f32.*f64',
             {'hidden_size': 3}),
            ('lstm_state_of_more_dims', 'LSTM', [*lstm, None, None, ((1, 2, 3, 0), T.FLOAT)], 'input 3.*', {'hidden_size': 3}),
            ('lstm_state_of_fewer_rows', 'LSTM', [*lstm, None, None, ((1, 1, 3), T.FLOAT)], 'initial state.*2.*1',
             {'hidden_size': 3}),
            ('lstm_cells_of_fewer_rows', 'LSTM', [*lstm, None, None, None, ((1, 1, 3), T.FLOAT)], 'initial cells.*2.*1',
             {'hidden_size': 3}),
            ('lstm_peepholes_of_fewer', 'LSTM', [*lstm, None, None, None, None, ((1, 6), T.FLOAT)], 'peepholes.*9.*6',
             {'hidden_size': 3}),
            ('lstm_of_fewer_lengths', 'LSTM', [*lstm, None, ((1,), T.INT32)], 'lengths.*2.*1', {'hidden_size': 3}),
            ('lstm_of_float_lengths', 'LSTM', [*lstm, None, ((2,), T.FLOAT)], r'lengths of integers.*f32\[2\]',
             {'hidden_size': 3}),
            ('grid_of_fewer_images', 'GridSample', [((5, 1, 3, 2), T.FLOAT), ((1, 2, 4, 2), T.FLOAT)], 'batch of the grid.*5.*1',
             {}),
            ('sum_of_strings', 'ReduceSum', [((2, 3), T.STRING)], 'numbers.*string', {}),
            ('product_of_strings', 'MatMul', [((2, 3), T.STRING), ((3, 2), T.STRING)], 'numbers.*string', {}),
            ('threshold_of_integers', 'NonMaxSuppression',
             [((1, 6, 4), T.FLOAT), ((1, 1, 6), T.FLOAT), ((1,), T.INT64), ((1,), T.FLOAT), ((1,), T.INT64)],
             'input 4.*f32.*i64', {}),
            ('updates_of_more_dims', 'ScatterND', [((4, 4, 4), T.FLOAT), ((2, 1), T.INT64), ((2, 4, 4, 2), T.FLOAT)],
             r'slices of f32\[4,4,4\].*f32\[2,4,4,2\].*i64\[2,1\]', {}),
            ('updates_of_fewer_dims', 'ScatterND', [((4, 4, 4), T.FLOAT), ((2, 1), T.INT64), ((2, 4), T.FLOAT)],
             r'slices of f32\[4,4,4\].*f32\[2,4\]', {}),
            ('updates_of_other_dims', 'ScatterND', [((4, 4, 4), T.FLOAT), ((2, 1), T.INT64), ((2, 4, 3), T.FLOAT)],
             r'slices of f32\[4,4,4\].*f32\[2,4,3\]', {})):
        def build(d, kind=kind, inputs=inputs, attributes=attributes):
            names = ['abcdefgh'[i] if p else '' for i, p in enumerate(inputs)]
            outputs = ['', 'y'] if kind == 'LSTM' else ['y']
            save(d, [h.make_node(kind, names, outputs, name='bad_node', **attributes)],
                 [port(n, *p) for n, p in zip(names, inputs) if p], [h.make_value_info('y', onnx.TypeProto())])
        MODEL_CASES.append((name, ('bad_node', kind, text), build))


wrong_elements()
