/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_fused.c - com.microsoft operators that ONNX Runtime's optimisers write in place of patterns: an operator of
 * ai.onnx with a bias, a residual or an activation, or with its channels last.
 *
 * Source: onnxruntime's operator schemas (docs/ContribOperators.md). Channels-last ones are their channels-first
 * sisters between transposes, which layout assignment takes out again.
 */
#include "frontend/import_int.h"

#include <math.h>
#include <string.h>

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))
#define SILU(x) MUL(x, UNARY(sigmoid, x))

/* ---- products and convolutions with an activation ---- */

/* Runs the importer of an operator of ai.onnx, as it was at an operator set, on a node that stands for it. */
static bool import_as(cy_importer *im, cy_onnx_node *n, const char *op, int version) {
  const cy_onnx_row *row = im->find_row("", op, version);
  n->op = op;
  n->domain = "";
  n->version = version;
  n->since = row->since;
  n->arg = row->arg;
  return row->import(im, n);
}

/* The operator that attribute 'activation' names, on x, with up to two parameters of its own. */
static cy_val activate(cy_importer *im, const cy_onnx_node *n, cy_val x, const double *p, uint32_t count) {
  enum { VERSION = 6 }; /* Clip's bounds became inputs later */
  static const struct {
    const char *name, *parameter[2];
  } known[] = {
      {"Relu", {0}},
      {"Tanh", {0}},
      {"Sigmoid", {0}},
      {"Softplus", {0}},
      {"Softsign", {0}},
      {"Selu", {"alpha", "gamma"}},
      {"Elu", {"alpha"}},
      {"LeakyRelu", {"alpha"}},
      {"ThresholdedRelu", {"alpha"}},
      {"Clip", {"min", "max"}},
      {"HardSigmoid", {"alpha", "beta"}},
  };
  enum { KNOWN = sizeof known / sizeof known[0] };
  const char *name = cy_onnx_string(im, n, "activation", "");
  if (!x || !name[0])
    return x;
  int k = 0;
  while (k < KNOWN && strcmp(known[k].name, name) != 0)
    k++;
  if (k == KNOWN)
    return cy_build_error(im->g, "attribute 'activation'", "activation '%s' is not supported", name);
  Onnx__AttributeProto attributes[2], *list[2];
  Onnx__NodeProto proto = ONNX__NODE_PROTO__INIT;
  proto.attribute = list;
  for (uint32_t i = 0; i < 2 && i < count && known[k].parameter[i]; i++) {
    list[i] = &attributes[i];
    onnx__attribute_proto__init(list[i]);
    list[i]->name = (char *)known[k].parameter[i];
    list[i]->has_type = list[i]->has_f = true;
    list[i]->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
    list[i]->f = (float)p[i];
    proto.n_attribute = i + 1;
  }
  cy_onnx_inner q;
  cy_onnx_inner_init(&q, n);
  q.in[0] = x;
  q.n.nin = 1;
  q.n.proto = &proto;
  return import_as(im, &q.n, name, VERSION) ? q.out[0] : 0;
}

IMPORT(fused_gemm) {
  double parameters[2] = {cy_onnx_float(im, n, "activation_alpha", 0), cy_onnx_float(im, n, "activation_beta", 0)};
  uint32_t count = cy_onnx_has(n, "activation_beta") ? 2 : cy_onnx_has(n, "activation_alpha") ? 1 : 0;
  cy_onnx_inner q;
  cy_onnx_inner_init(&q, n);
  memcpy(q.in, n->in, sizeof q.in);
  return import_as(im, &q.n, "Gemm", 13) && SET(activate(im, n, q.out[0], parameters, count));
}

/* The product with a matrix, then FastGelu with a bias or none. */
IMPORT(gemm_fast_gelu) {
  cy_onnx_inner q;
  cy_onnx_inner_init(&q, n);
  q.in[0] = cy_onnx_matmul(im, X, n->in[1], cy_onnx_type(im, X)->dtype);
  q.in[1] = n->in[2];
  return q.in[0] && cy_import_fast_gelu(im, &q.n) && SET(q.out[0]);
}

/* Input, weights, bias, residual. The argument: 0 channels first; NHWC_CONV all of them last, the weights' too;
 * NHWC_FUSED_CONV the weights' first. */
IMPORT(fused_conv) {
  bool last = n->arg != 0;
  uint32_t count;
  const double *parameters = cy_onnx_floats(im, n, "activation_params", &count);
  cy_val x = last ? cy_onnx_transpose_channels(im, X, false) : X, w = n->in[1];
  if (n->arg == NHWC_CONV)
    w = cy_onnx_transpose_channels(im, w, false);
  cy_val y = cy_onnx_conv(im, n, x, w, cy_onnx_type(im, X)->dtype);
  if (y && n->in[2])
    y = ADD(y, cy_onnx_per_channel(im, n->in[2], "input 'B'", y, 1));
  if (last)
    y = cy_onnx_transpose_channels(im, y, true);
  return SET(activate(im, n, n->in[3] ? ADD(y, n->in[3]) : y, parameters, count));
}

/* MaxPool, and QLinearConv if its attribute says so, of input 0 and output 0 with channels last. */
IMPORT(channels_last) {
  bool pool = strcmp(n->op, "NhwcMaxPool") == 0, last = pool || cy_onnx_int(im, n, "channels_last", 0) != 0;
  cy_onnx_inner q;
  cy_onnx_inner_init(&q, n);
  memcpy(q.in, n->in, sizeof q.in);
  if (last)
    q.in[0] = cy_onnx_transpose_channels(im, X, false);
  return q.in[0] && import_as(im, &q.n, pool ? "MaxPool" : n->op, 12) &&
         SET(last ? cy_onnx_transpose_channels(im, q.out[0], true) : q.out[0]);
}

/* ---- what diffusion networks are made of ---- */

/* y and its 1-D factor and shift per channel, the channel being `axis`. */
static cy_val per_channel(cy_importer *im, cy_val y, cy_val scale, cy_val shift, int axis) {
  shift = cy_onnx_per_channel(im, shift, "input 'beta'", y, axis);
  scale = cy_onnx_per_channel(im, scale, "input 'gamma'", y, axis);
  return ADD(MUL(y, scale), shift);
}

/* Input, gamma, beta; with the argument skip and bias are added first, and the sum is output 1. Statistics and gamma
 * are f32 whatever the input is. */
IMPORT(ms_group_norm) {
  const cy_type t = *cy_onnx_type(im, X);
  bool last = cy_onnx_int(im, n, "channels_last", 1) != 0;
  int axis = last ? t.rank - 1 : 1;
  int64_t groups = cy_onnx_int(im, n, "groups", 0), activation = cy_onnx_int(im, n, "activation", 0), c;
  if (t.rank < 3 || groups < 1 || (cy_dim_is_const(im->g, t.dim[axis], &c) && c % groups))
    return cy_build_error(im->g, "attribute 'groups'", "%lld groups do not fit %s", (long long)groups,
                          cy_type_text(im->g, &t));
  if (activation != 0 && activation != 1)
    return cy_build_error(im->g, "attribute 'activation'", "expected 0 (none) or 1 (SiLU), found %lld",
                          (long long)activation);
  cy_val x = X;
  if (n->arg) {
    cy_val skip = n->in[3];
    const cy_type *ts = cy_onnx_type(im, skip);
    if (ts->rank == 2) { /* [n, c], for every spatial position */
      cy_dim d[CY_MAX_RANK];
      for (int i = 0; i < t.rank; i++)
        d[i] = i == 0 ? ts->dim[0] : i == axis ? ts->dim[1] : cy_dim_const(im->g, 1);
      skip = cy_build_reshape(im->g, skip, d, t.rank);
    }
    x = ADD(x, skip);
    if (n->in[4])
      x = ADD(x, cy_onnx_per_channel(im, n->in[4], "input 'bias'", x, axis));
    if (!x || (cy_onnx_wants(n, 1) && !cy_importer_set(im, n, 1, x)))
      return false;
  }
  cy_val y = CAST(x, CY_F32);
  y = last ? cy_onnx_transpose_channels(im, y, false) : y;
  if (!y)
    return false;
  const cy_type transposed = *cy_onnx_type(im, y);
  y = cy_onnx_group_normalize(im, y, groups, cy_onnx_float(im, n, "epsilon", 1e-5));
  y = y ? cy_build_reshape(im->g, y, transposed.dim, transposed.rank) : 0;
  cy_val shift = CAST(n->in[2], CY_F32);
  y = per_channel(im, y, CAST(n->in[1], CY_F32), shift, 1);
  y = last ? cy_onnx_transpose_channels(im, y, true) : y;
  if (y && activation)
    y = SILU(y);
  return SET(y ? CAST(y, (cy_dtype)t.dtype) : 0);
}

IMPORT(bias_add) { return SET(ADD(ADD(X, n->in[1]), n->in[2])); }

/* Left half times Gelu of the right half. */
IMPORT(bias_split_gelu) {
  cy_val v = ADD(X, n->in[1]);
  if (!v)
    return false;
  const cy_type t = *cy_onnx_type(im, v);
  cy_dim half = cy_dim_div(im->g, t.dim[t.rank - 1], cy_dim_const(im->g, 2));
  cy_onnx_inner q;
  cy_onnx_inner_init(&q, n);
  q.in[0] = cy_build_slice_axis(im->g, v, t.rank - 1, half, half);
  cy_val left = cy_build_slice_axis(im->g, v, t.rank - 1, cy_dim_const(im->g, 0), half);
  return left && q.in[0] && cy_import_bias_gelu(im, &q.n) && SET(MUL(left, q.out[0]));
}

/* ---- attention's additions ---- */

IMPORT(bias_softmax) {
  cy_onnx_inner q;
  cy_onnx_inner_init(&q, n);
  q.in[0] = ADD(X, n->in[1]);
  q.n.version = 11; /* from `axis` on, as one */
  q.n.arg = CY_OP_softmax;
  return q.in[0] && cy_import_softmax(im, &q.n) && SET(q.out[0]);
}

/* T5's buckets of the distance j - i: exact up to half of them, then by its logarithm. i64[queries, keys]. */
static cy_val distance_buckets(cy_importer *im, cy_dim queries, cy_dim keys, int64_t buckets, int64_t farthest,
                               bool both_ways) {
  cy_dim rows[2] = {queries, cy_dim_const(im->g, 1)};
  cy_val i = cy_build_reshape(im->g, cy_build_iota(im->g, CY_I64, &queries, 1, 0), rows, 2);
  cy_val away = SUB(cy_build_iota(im->g, CY_I64, &keys, 1, 0), i), base = LIKE(away, 0);
  if (both_ways) {
    buckets /= 2;
    base = SELECT(BINARY(gt, away, LIKE(away, 0)), LIKE(away, (double)buckets), base);
    away = UNARY(abs, away);
  } else {
    away = UNARY(neg, MIN(away, LIKE(away, 0)));
  }
  double exact = (double)(buckets / 2);
  cy_val real = CAST(MAX(away, LIKE(away, 1)), CY_F32);
  cy_val far = MUL(DIV(UNARY(log, DIV(real, LIKE(real, exact))), LIKE(real, log((double)farthest / exact))),
                   LIKE(real, (double)buckets - exact));
  far = MIN(ADD(CAST(far, CY_I64), LIKE(away, exact)), LIKE(away, (double)(buckets - 1)));
  return ADD(base, SELECT(BINARY(lt, away, LIKE(away, exact)), away, far));
}

/* The table is declared [buckets, heads], but lies as [heads, buckets]. */
IMPORT(relative_position_bias) {
  const cy_type t = *cy_onnx_type(im, X);
  int64_t farthest = cy_onnx_int(im, n, "max_distance", 0), buckets;
  bool both_ways = cy_onnx_int(im, n, "is_bidirectional", 0) != 0;
  uint32_t count[2];
  const cy_dim *size[2] = {cy_onnx_elems(im, n, 1, &count[0]), cy_onnx_elems(im, n, 2, &count[1])};
  if (!size[0] || !size[1])
    return false;
  if (t.rank != 2 || !cy_dim_is_const(im->g, t.dim[0], &buckets) || buckets < 4 || count[0] != 1 || count[1] != 1)
    return cy_build_error(im->g, "input 'bias_table'",
                          "expected [buckets, heads] with 4 buckets or more and two lengths,"
                          " found %s",
                          cy_type_text(im->g, &t));
  if (farthest <= buckets / (both_ways ? 4 : 2))
    return cy_build_error(im->g, "attribute 'max_distance'", "expected more than the exact buckets, found %lld",
                          (long long)farthest);
  cy_dim transposed[2] = {t.dim[1], t.dim[0]};
  cy_val at = distance_buckets(im, size[0][0], size[1][0], buckets, farthest, both_ways);
  cy_val y = at ? cy_build_gather(im->g, cy_build_reshape(im->g, X, transposed, 2), at, 1) : 0;
  return SET(y ? cy_build_unsqueeze(im->g, y, 0) : 0);
}

/* WavLM: query, its bias, rel_pos [1, h, s, s], weight [d, m], bias [m], eco_a [1, h, 1, 1]. */
IMPORT(gated_relative_position_bias) {
  int64_t heads = cy_onnx_int(im, n, "num_heads", 0), wide;
  const cy_type *tw = cy_onnx_type(im, n->in[3]);
  if (heads < 1 || cy_onnx_type(im, X)->rank != 3 || n->in[6] || tw->rank != 2 ||
      !cy_dim_is_const(im->g, tw->dim[1], &wide) || wide % 2)
    return cy_build_error(im->g, NULL,
                          "expected a query [batch, sequence, hidden], num_heads and no token_offset,"
                          " found %s",
                          cy_type_text(im->g, cy_onnx_type(im, X)));
  cy_val q = cy_onnx_split_heads(im, ADD(X, n->in[1]), heads);
  cy_val gates = q ? cy_onnx_matmul(im, q, n->in[3], cy_onnx_type(im, q)->dtype) : 0;
  gates = gates ? ADD(gates, n->in[4]) : 0;
  if (!gates)
    return false;
  const cy_type t = *cy_onnx_type(im, gates);
  cy_dim d[5] = {t.dim[0], t.dim[1], t.dim[2], cy_dim_const(im->g, 2), cy_dim_const(im->g, wide / 2)};
  const int64_t axis = 4;
  gates = cy_build_reduce(im->g, CY_OP_reduce_sum, cy_build_reshape(im->g, gates, d, 5), &axis, 1, false);
  gates = gates ? UNARY(sigmoid, gates) : 0;
  if (!gates)
    return false;
  cy_dim one = cy_dim_const(im->g, 1);
  cy_val u = cy_build_slice_axis(im->g, gates, 3, cy_dim_const(im->g, 0), one);
  cy_val r = cy_build_slice_axis(im->g, gates, 3, one, one);
  r = SUB(MUL(r, n->in[5]), LIKE(gates, 1));
  return SET(MUL(ADD(MUL(u, r), LIKE(gates, 2)), n->in[2]));
}

/* ---- older sisters of ai.onnx's operators ---- */

/* What ai.onnx's operator of the same name meant at an operator set: the argument. */
IMPORT(as_standard) {
  cy_onnx_node standard = *n;
  return import_as(im, &standard, n->op, n->arg);
}

/* The pads may be a row, [1, 2 * rank]. */
IMPORT(ms_pad) {
  cy_onnx_inner q;
  cy_onnx_inner_init(&q, n);
  memcpy(q.in, n->in, sizeof q.in);
  q.n.nin = n->nin;
  if (cy_onnx_type(im, q.in[1])->rank == 2)
    q.in[1] = cy_build_squeeze(im->g, q.in[1], 0);
  return q.in[1] && import_as(im, &q.n, "Pad", 13) && SET(q.out[0]);
}

/* The step may be left out. */
IMPORT(ms_range) {
  cy_onnx_inner q;
  cy_onnx_inner_init(&q, n);
  memcpy(q.in, n->in, sizeof(cy_val) * 3);
  q.n.nin = 3;
  if (!q.in[2])
    q.in[2] = cy_build_scalar_int(im->g, (cy_dtype)cy_onnx_type(im, X)->dtype, 1);
  return import_as(im, &q.n, "Range", 11) && SET(q.out[0]);
}

IMPORT(expand_dims) {
  cy_onnx_node standard = *n;
  return import_as(im, &standard, "Unsqueeze", 13);
}

/* Distances between the rows of two matrices. */
IMPORT(cdist) {
  int root = cy_onnx_word(im, n, "metric", "sqeuclidean", "sqeuclidean|euclidean");
  if (root < 0)
    return false;
  if (cy_onnx_type(im, X)->rank != 2 || cy_onnx_type(im, n->in[1])->rank != 2)
    return cy_build_error(im->g, NULL, "expected two matrices, found %s and %s",
                          cy_type_text(im->g, cy_onnx_type(im, X)), cy_type_text(im->g, cy_onnx_type(im, n->in[1])));
  cy_val a = cy_build_unsqueeze(im->g, X, 1), b = cy_build_unsqueeze(im->g, n->in[1], 0);
  cy_val d = a && b ? SUB(a, b) : 0;
  const int64_t axis = 2;
  cy_val y = d ? cy_build_reduce(im->g, CY_OP_reduce_sum, MUL(d, d), &axis, 1, false) : 0;
  return SET(y && root ? UNARY(sqrt, y) : y);
}

/* EmbedLayerNormalization of tables in 8 bits: input k has its scale and zero point in s and z. */
IMPORT(qembed_layer_norm) {
  static const struct { uint8_t k, s, z; } parts[] = {{2, 8, 13}, {3, 9, 14}, {4, 10, 15}, {5, 11, 16}, {6, 12, 17}};
  cy_onnx_inner q;
  cy_onnx_inner_init(&q, n);
  q.in[0] = X;
  q.in[1] = n->in[1];
  q.in[7] = n->in[7];
  q.n.nout = n->nout;
  q.n.out = n->out;
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    uint32_t k = parts[i].k, s = parts[i].s, z = parts[i].z;
    if (k == 4 && !n->in[k])
      continue;
    if (n->nin <= z || !n->in[k] || !n->in[s] || !n->in[z])
      return cy_build_error(im->g, NULL, "input %u needs a scale and a zero point: inputs %u and %u", k, s, z);
    if (!(q.in[k] = cy_onnx_dequantize(im, n->in[k], n->in[s], n->in[z])))
      return false;
  }
  return cy_import_embed_layer_norm(im, &q.n);
}
