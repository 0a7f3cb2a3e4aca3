# SPDX-License-Identifier: Apache-2.0
"""What is measured on CUDA devices: a case has a model, its inputs, the same in PyTorch, its arithmetic and its traffic.

A case is an ONNX model without weights whose inputs are random, or a network of ../shared/zoo in half precision with
random weights, whose inputs and outputs stay f32. `small` makes all sizes small: for trying this out without a device.
Only writing models needs onnx (and, for networks, ONNX Runtime): a machine to which they are carried needs neither.
"""
import collections
import os
import subprocess
import sys

import numpy as np

import lib

ZOO = os.path.join(lib.SHARED, 'zoo')
FLOAT, INT64, FLOAT16, BFLOAT16 = 1, 7, 10, 16  # as ONNX numbers them
TYPES = {'f16': FLOAT16, 'bf16': BFLOAT16, 'f32': FLOAT}
NETWORKS = [('resnet50', 1), ('resnet50', 16), ('vit_b_16', 1), ('bert_base', 1), ('unet2d_labelfree', 1), ('unet3d_monai', 1),
            ('gpt2_small', 1), ('bert_base', 16), ('mobilenet_v2', 1)]
OPEN = {'sequence': 128, 'past': 128}  # sizes that networks leave open, but for
STEPS = {'gpt2_small': {'sequence': 1}}  # .. those that continue a text
SMALL_NETWORK = 'nerf_mlp'
LAUNCHES = 100
ROWS = 16  # of a weight that are different
RANDOM = np.random.default_rng(3).standard_normal(1 << 17)
REPEATED = 'repeated '  # in a weight's doc_string, before its deviation
FEW = 1 << 12  # elements: smaller tensors stay as they are

Node = collections.namedtuple('Node', 'op inputs outputs attributes')


def node(op, inputs, outputs, **attributes):
    return Node(op, inputs, outputs, attributes)


class Case:
    """flop, bytes: of one run (0: not given); launches: kernels that follow on each other; inputs: [(name, type, shape)],
    of networks None; torch: function (torch, *inputs) -> tensor; options: of cytoc; tf32: whether PyTorch may use it."""

    def __init__(self, name, nodes, inputs, torch, flop=0, bytes=0, launches=0, options=(), tf32=False, network=None,
                 scale=1.0, opset=23):
        self.name, self.nodes, self.inputs, self.torch, self.flop, self.bytes = name, nodes, inputs, torch, flop, bytes
        self.launches, self.options, self.tf32, self.network = launches, list(options), tf32, network
        self.scale, self.opset = scale, opset

    def write(self, path, repeating=False):
        """None, or why there is none. repeating: weights of a network that pack well."""
        if self.network:
            return write_network(*self.network, path, repeating)
        import onnx
        from onnx import helper, numpy_helper

        def attribute(value):
            return numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        inputs = [helper.make_tensor_value_info(name, TYPES[kind], shape) for name, kind, shape in self.inputs]
        nodes = [helper.make_node(n.op, n.inputs, n.outputs, **{k: attribute(v) for k, v in n.attributes.items()}) for n in self.nodes]
        graph = helper.make_graph(nodes, self.name, inputs, [helper.make_tensor_value_info('y', TYPES[self.inputs[0][1]], None)])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', self.opset)], ir_version=10), path)
        return None

    def variants(self):
        """Contenders that are compiled by cytoc, from one library: the part of cuDNN and cuBLASLt is measured where they may have one."""
        theirs = self.network or self.name.startswith(('attention', 'product'))
        return ['cytoc', 'cytoc, own kernels alone'] if theirs else ['cytoc']


def repeated(shape, deviation):
    """A weight of ROWS different rows of random numbers, whose mean is 0: what is made of them packs well, and sums stay as wide."""
    columns = int(np.prod(shape[1:]))
    rows = [np.roll(RANDOM, 9973 * r)[np.arange(columns) % len(RANDOM)] for r in range(min(ROWS, shape[0]))]
    values = np.array([row - row.mean() for row in rows], np.float32)
    values[np.abs(values) < 1e-2] = 0  # conversion to f16 changes numbers that are nearly 0
    return np.resize(values * np.float32(deviation), shape)


def repeat(model):
    """Makes large weights so; what they are made of stands in their doc_string."""
    from onnx import numpy_helper
    for tensor in model.graph.initializer:
        if tensor.data_type == FLOAT and len(tensor.dims) >= 2 and np.prod(tensor.dims) >= FEW:
            deviation = float(numpy_helper.to_array(tensor).std())
            tensor.CopyFrom(numpy_helper.from_array(repeated(tensor.dims, deviation), tensor.name))
            tensor.doc_string = '%s%r' % (REPEATED, deviation)


def strip(path):
    """Takes out of a model's file what fill() puts back."""
    import onnx
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.doc_string.startswith(REPEATED):
            tensor.ClearField('raw_data')
    onnx.save(model, path)


def fill(model):
    for tensor in model.graph.initializer:
        if tensor.doc_string.startswith(REPEATED) and not tensor.raw_data:
            values = repeated(tensor.dims, float(tensor.doc_string[len(REPEATED):]))
            tensor.raw_data = values.astype(np.float16 if tensor.data_type == FLOAT16 else np.float32).tobytes()
    return model


def write_network(name, batch, path, repeating=False):
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16
    source = os.path.join(ZOO, name + '.onnx')
    if not os.path.exists(source):
        return 'there is no %s' % source
    subprocess.run([sys.executable, os.path.join(ZOO, 'materialize.py'), source, path], check=True,
                   stdout=subprocess.DEVNULL)
    model = onnx.load(path)
    sizes = {'batch': batch, **OPEN, **STEPS.get(name, {})}
    del model.graph.value_info[:]
    for port in model.graph.input:
        dims = port.type.tensor_type.shape.dim
        for k, dim in enumerate(dims):
            size = sizes.get(dim.dim_param) if dim.dim_param else dim.dim_value
            dim.dim_value = batch if k == 0 else size
    for port in model.graph.output:
        port.type.tensor_type.ClearField('shape')
    if repeating:
        repeat(model)
    model = convert_float_to_float16(model, keep_io_types=True, disable_shape_infer=True)
    sort_nodes(model.graph)
    onnx.save(model, path)
    return None


def sort_nodes(graph):
    """The conversion puts casts behind the nodes that read them; bench_torch.py takes nodes in their order."""
    made = {name for node in graph.node for name in node.output}
    known, waiting, ordered = {''}, list(graph.node), []
    while waiting:
        ready = [node for node in waiting if all(name in known or name not in made for name in node.input)]
        if not ready:
            raise ValueError('the nodes of the graph go round in a circle')
        for node in ready:
            known.update(node.output)
        ordered += ready
        waiting = [node for node in waiting if not all(name in known for name in node.output)]
    del graph.node[:]
    graph.node.extend(ordered)


def product(kind, n, rows=None, options=(), tf32=False):
    rows = rows or n
    label = 'matmul_%s_%s%s' % ('%dx%d' % (rows, n) if rows != n else n, kind, '_tf32' if tf32 else '')
    size = {'f16': 2, 'bf16': 2, 'f32': 4}[kind]
    return Case(label, [node('MatMul', ['a', 'b'], ['y'])], [('a', kind, [rows, n]), ('b', kind, [n, n])],
                lambda torch, a, b: a @ b, flop=2 * rows * n * n, bytes=size * (2 * rows * n + n * n), options=options,
                tf32=tf32, scale=n ** -0.25)


def traffic(small):
    """Kernels that read and write memory: f16, some gigabyte of it."""
    rows, columns = (8, 64) if small else (32768, 8192)
    n = rows * columns
    x = [('x', 'f16', [rows, columns])]

    def norm(torch, x, g, b):
        return torch.nn.functional.layer_norm(x, [columns], g, b, 1e-5)
    return [
        Case('add', [node('Add', ['x', 'z'], ['y'])], x + [('z', 'f16', [rows, columns])],
             lambda torch, x, z: x + z, bytes=6 * n),
        Case('gelu', [node('Gelu', ['x'], ['y'])], x, lambda torch, x: torch.nn.functional.gelu(x), bytes=4 * n),
        Case('softmax', [node('Softmax', ['x'], ['y'])], x, lambda torch, x: torch.softmax(x, -1), bytes=4 * n),
        Case('layer_norm', [node('LayerNormalization', ['x', 'g', 'b'], ['y'])],
             x + [('g', 'f16', [columns]), ('b', 'f16', [columns])], norm, bytes=4 * n),
        Case('rows_mean',
             [node('Constant', [], ['axes'], value_ints=[1]), node('ReduceMean', ['x', 'axes'], ['y'], keepdims=0)], x,
             lambda torch, x: x.mean(1), bytes=2 * n),
        Case('transpose', [node('Transpose', ['x'], ['y'], perm=[1, 0])], x,
             lambda torch, x: x.t().contiguous(), bytes=4 * n),
    ]


def lstm(hidden, steps):
    """One sequence, the weights f32: of 512 units a product for each step, of 128 one kernel."""
    rng = np.random.default_rng(1)
    w, r = ((rng.standard_normal((1, 4 * hidden, hidden)) / hidden ** 0.5).astype(np.float32) for _ in range(2))
    constants = [node('Constant', [], [name], value=value)
                 for name, value in (('w', w), ('r', r))]
    order = np.concatenate([np.arange(hidden) + hidden * gate for gate in (0, 2, 3, 1)])  # PyTorch's: i, f, c, o
    module = []

    def with_torch(torch, x):
        if not module:
            cell = torch.nn.LSTM(hidden, hidden, bias=False).to(x.device)
            cell.weight_ih_l0.data.copy_(torch.from_numpy(w[0][order]))
            cell.weight_hh_l0.data.copy_(torch.from_numpy(r[0][order]))
            module.append(cell)
        return module[0](x)[0]
    return Case('lstm_%d' % hidden, constants + [node('LSTM', ['x', 'w', 'r'], ['y'], hidden_size=hidden)],
                [('x', 'f32', [steps, 1, hidden])], with_torch, flop=16 * steps * hidden * hidden)


def ordered(small):
    """What depends on what came before: steps, running sums, sums of what hits one row."""
    n, edges, rows, columns = (600, 300, 20, 8) if small else (131072, 65536, 4096, 64)

    def scatter(torch, b, p, u):
        return b.index_add(0, (p.abs() * (rows / 4)).long().clamp(max=rows - 1), u)
    return [lstm(*((64, 3) if small else (512, 128))), lstm(*((16, 3) if small else (128, 128))),
            Case('cumsum', [node('Constant', [], ['axis'], value_int=1), node('CumSum', ['x', 'axis'], ['y'])],
                 [('x', 'f32', [1, n])], lambda torch, x: x.cumsum(1), bytes=8 * n),
            Case('scatter_add',
                 [node('Constant', [], ['many'], value_float=rows / 4),
                  node('Constant', [], ['top'], value_float=rows - 1.0), node('Abs', ['p'], ['a']),
                  node('Mul', ['a', 'many'], ['m']), node('Min', ['m', 'top'], ['c']),
                  node('Cast', ['c'], ['l'], to=INT64), node('Constant', [], ['e'], value_ints=[edges, 1]),
                  node('Reshape', ['l', 'e'], ['i']), node('ScatterND', ['b', 'i', 'u'], ['y'], reduction='add')],
                 [('b', 'f32', [rows, columns]), ('p', 'f32', [edges]), ('u', 'f32', [edges, columns])], scatter,
                 bytes=4 * (2 * rows * columns + edges * (columns + 1))),
            Case('argmax_i64',
                 [node('Cast', ['x'], ['l'], to=INT64), node('ArgMax', ['l'], ['p'], axis=1, keepdims=0),
                  node('Cast', ['p'], ['y'], to=FLOAT)], [('x', 'f32', [8, 2 * n])],
                 lambda torch, x: x.long().argmax(1).float(), bytes=64 * n)]


def layer(rows, k, n):
    """A product as transformers have it: rows of tokens by weights, in f16."""
    return Case('layer_%dx%dx%d' % (rows, k, n), [node('MatMul', ['a', 'b'], ['y'])], [('a', 'f16', [rows, k]), ('b', 'f16', [k, n])],
                lambda torch, a, b: a @ b, flop=2 * rows * k * n, bytes=2 * (rows * k + k * n + rows * n), scale=k ** -0.25)


def layers(small):
    """Of BERT, ViT and GPT-2 at batch 1 and 16: what cuBLAS is asked for there."""
    if small:
        return [layer(24, 64, 72)]
    return [layer(rows, k, n) for rows in (128, 2048) for k, n in ((768, 768), (768, 2304), (768, 3072), (3072, 768))] + [
        layer(197, 768, 3072), layer(1, 768, 50257)]


def attention(width, length, causal, tokens=16384, hidden=2048):
    batch, heads = max(1, tokens // length), hidden // width
    shape = [batch, heads, length, width]

    def with_torch(torch, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return Case('attention_%d_%d%s' % (width, length, '_causal' if causal else ''),
                [node('Attention', ['q', 'k', 'v'], ['y'], is_causal=int(causal))],
                [(name, 'f16', shape) for name in 'qkv'], with_torch,
                flop=4 * batch * heads * length * length * width // (2 if causal else 1),
                bytes=8 * batch * heads * length * width)


def attention_step(rows, keys, heads, shared=1, width=128):
    """Some words of one text against all before: `shared` heads of queries have the same keys."""
    own = heads // shared
    ports = [('q', 'f16', [1, heads, rows, width])] + [(name, 'f16', [1, own, keys, width]) for name in 'kv']

    def with_torch(torch, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=shared > 1)
    return Case('attention_%d_of_%d_heads_%d_%d' % (rows, keys, heads, own),
                [node('Attention', ['q', 'k', 'v'], ['y'])], ports, with_torch,
                flop=4 * heads * rows * keys * width, bytes=4 * (own * keys + heads * rows) * width)


def launches(n=64):
    """Small products in a row: what a launch of a recorded graph costs."""
    nodes = [node('MatMul', ['h%d' % i if i else 'a', 'b'], ['h%d' % (i + 1) if i + 1 < LAUNCHES else 'y'])
             for i in range(LAUNCHES)]

    def with_torch(torch, a, b):
        for _ in range(LAUNCHES):
            a = a @ b
        return a
    return Case('launches_%d' % LAUNCHES, nodes, [('a', 'f16', [n, n]), ('b', 'f16', [n, n])], with_torch,
                launches=LAUNCHES, scale=n ** -0.5)


def all_cases(small=False):
    """In the order of their importance."""
    n = 64 if small else 4096
    networks = [Case('%s_batch%d' % row, None, None, None, network=row) for row in ([(SMALL_NETWORK, 1)] if small else NETWORKS)]
    lengths = [64] if small else [512, 2048, 8192, 16384]
    size = {'tokens': 64, 'hidden': 128} if small else {}
    rows = [product('f16', n), product('f16', 2 * n), *networks[:7]]
    rows += [attention(width, length, False, **size) for width in (64, 128) for length in lengths] + traffic(small)
    rows += [attention_step(1, *((300, 4, 2) if small else (16384, 32, 4))),
             attention_step(16, *((300, 2) if small else (4096, 12)))]
    rows += [launches(16 if small else 64)] + networks[7:] + layers(small)
    rows += [product('bf16', n), product('f32', n, options=['--tf32'], tf32=True), product('f32', n),
             product('f16', n, rows=1), product('f16', n, rows=16)] + ordered(small)
    return rows + [attention(width, length, True, **size) for width in (64, 128) for length in lengths[1:]]
