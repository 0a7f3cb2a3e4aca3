# SPDX-License-Identifier: Apache-2.0
"""Outputs as the specification defines them, for networks whose recorded outputs are far from it.

In:  a model, a folder of inputs. Out: a folder of outputs. The onnx package's reference evaluator computes them, with
     every float constant and input widened to double, so that what is left is exact for our purpose.

ONNX Runtime's SkipLayerNormalization, say, takes the variance as E[x^2] - E[x]^2 in float: on gpt2_embed_attn_fused,
whose rows lie at 36,000, that alone is off by 1.7e-3.  com.microsoft's operators are not part of the package; the classes
below say what their documentation says, for the attributes that our networks use.
"""
import glob
import os

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

import lib


def normalized(x, gamma, beta, epsilon):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred ** 2, -1, keepdims=True) + epsilon) * gamma + beta


class MsEmbedLayerNormalization(OpRun):
    op_domain = 'com.microsoft'

    def _run(self, ids, segments, words, places, kinds, gamma, beta, mask, at, epsilon=None):
        assert mask is None
        return normalized(words[ids] + places[at] + kinds[segments], gamma, beta, epsilon), np.zeros(len(ids), np.int32)


class MsSkipLayerNormalization(OpRun):
    op_domain = 'com.microsoft'

    def _run(self, x, skip, gamma, beta, bias, epsilon=None):
        return (normalized(x + skip + bias, gamma, beta, epsilon),)


class MsAttention(OpRun):
    op_domain = 'com.microsoft'

    def _run(self, x, weights, bias, mask, num_heads=None):
        assert mask is None
        batch, tokens = x.shape[:2]
        q, k, v = (part.reshape(batch, tokens, num_heads, -1).transpose(0, 2, 1, 3)
                   for part in np.split(x @ weights + bias, 3, -1))
        score = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1])
        score = np.exp(score - score.max(-1, keepdims=True))
        return ((score / score.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(batch, tokens, -1),)


def widened(array):
    return array.astype(np.float64) if array.dtype == np.float32 else array


def in_order(nodes):
    """The nodes so that each comes after those whose outputs it reads, which the evaluator relies on."""
    left, pending, done = list(nodes), {o for n in nodes for o in n.output}, []
    while left:
        node = next(n for n in left if not pending.intersection(n.input))
        left.remove(node)
        pending.difference_update(node.output)
        done.append(node)
    return done


def evaluate(model, inputs, outputs):
    """Writes the outputs of `model` on the folder `inputs` to the folder `outputs`."""
    proto = onnx.load(model)
    for opset in proto.opset_import:  # the evaluator knows the standard's domain by its short name only
        opset.domain = '' if opset.domain == 'ai.onnx' else opset.domain
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(onnx.numpy_helper.from_array(widened(onnx.numpy_helper.to_array(tensor)), tensor.name))
    nodes = in_order(proto.graph.node)
    for node in nodes:  # or attributes would be looked up under the standard's operator of that name
        node.op_type = 'Ms' * (node.domain == 'com.microsoft') + node.op_type
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    session = ReferenceEvaluator(proto, new_ops=[MsEmbedLayerNormalization, MsSkipLayerNormalization, MsAttention])
    feeds = {port.name: widened(np.load(glob.glob(os.path.join(glob.escape(inputs), 'in_%d_*' % k))[0]))
             for k, port in enumerate(proto.graph.input)}
    for k, (name, value) in enumerate(zip(session.output_names, session.run(None, feeds))):
        value = value.astype(np.float32) if value.dtype == np.float64 else value
        np.save(os.path.join(outputs, 'out_%d_%s.npy' % (k, lib.safe_name(name))), value)
