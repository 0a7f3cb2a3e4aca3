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

/* A node of ai.onnx that reads x: `op`, with the float attributes of n that names[k][0] names, there called
 * names[k][1]. */
static cy_val apply(cy_importer *im, const cy_onnx_node *n, const char *op, cy_val x, const char *const (*names)[2],
                    uint32_t nnames) {
  enum { VERSION = 17 };
  const cy_onnx_row *row = cy_onnx_find("", op, VERSION);
  Onnx__NodeProto proto = ONNX__NODE_PROTO__INIT;
  Onnx__AttributeProto *attrs = CY_NEW_ARRAY(im->arena, Onnx__AttributeProto, nnames),
                       **list = CY_NEW_ARRAY(im->arena, Onnx__AttributeProto *, nnames);
  cy_onnx_inner q;
  cy_onnx_inner_init(&q, n);
  q.in[0] = x;
  q.n.nin = 1;
  q.n.proto = &proto;
  q.n.op = op;
  q.n.version = VERSION;
  q.n.since = row->since;
  q.n.arg = row->arg;
  proto.attribute = list;
  for (uint32_t k = 0; k < nnames; k++) {
    if (!cy_onnx_has(n, names[k][0]))
      continue;
    Onnx__AttributeProto *a = list[proto.n_attribute++] = &attrs[k];
    onnx__attribute_proto__init(a);
    a->name = (char *)names[k][1];
    a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
    a->has_type = true;
    a->f = (float)cy_onnx_float(im, n, names[k][0], 0);
    a->has_f = true;
  }
  return x && row->import(im, &q.n) ? q.out[0] : 0;
}

IMPORT(fused_gemm) {
  static const char words[] = "|Relu|LeakyRelu|Sigmoid|Tanh|Elu|HardSigmoid|Selu|Softplus|Softsign|ThresholdedRelu|"
                              "ParametricSoftplus|ScaledTanh";
  static const char *const names[][2] = {
      {"activation_alpha", "alpha"}, {"activation_beta", "beta"}, {"activation_gamma", "gamma"}};
  int k = cy_onnx_word(im, n, "activation", "", words);
  cy_onnx_inner q;
  cy_onnx_inner_init(&q, n);
  memcpy(q.in, n->in, sizeof(cy_val) * 3);
  q.n.version = 13;
  if (k < 0 || !cy_import_gemm(im, &q.n))
    return false;
  return SET(k == 0 ? q.out[0] : apply(im, n, cy_onnx_string(im, n, "activation", ""), q.out[0], names, 3));
}

/* The product with a matrix, then FastGelu with a bias or none. */
IMPORT(gemm_fast_gelu) {
  cy_onnx_inner q;
  cy_onnx_inner_init(&q, n);
  q.in[0] = cy_onnx_matmul(im, X, n->in[1], cy_onnx_type(im, X)->dtype);
  q.in[1] = n->in[2];
  return q.in[0] && cy_import_fast_gelu(im, &q.n) && SET(q.out[0]);
}

/* FusedConv's activation, by name, with up to two parameters. */
static cy_val activate(cy_importer *im, const cy_onnx_node *n, cy_val x) {
  uint32_t count;
  const double *p = cy_onnx_floats(im, n, "activation_params", &count);
  int k = cy_onnx_word(im, n, "activation", "", "|Relu|Tanh|Sigmoid|LeakyRelu|Clip|HardSigmoid");
  double a = p && count > 0 ? p[0]
             : k == 4       ? 0.01
             : k == 6       ? 0.2
                            : -INFINITY,
         b = p && count > 1 ? p[1]
             : k == 6       ? 0.5
                            : INFINITY;
  switch (x ? k : -1) {
  case 0:
    return x;
  case 1:
    return MAX(x, LIKE(x, 0));
  case 2:
    return UNARY(tanh, x);
  case 3:
    return UNARY(sigmoid, x);
  case 4:
    return SELECT(BINARY(lt, x, LIKE(x, 0)), MUL(x, LIKE(x, a)), x);
  case 5:
    return MIN(MAX(x, LIKE(x, a)), LIKE(x, b));
  case 6:
    return MAX(LIKE(x, 0), MIN(LIKE(x, 1), ADD(MUL(x, LIKE(x, a)), LIKE(x, b))));
  default:
    return 0;
  }
}

/* Input, weights, bias, residual. The argument: 0 channels first; NHWC_CONV all of them last, the weights' too;
 * NHWC_FUSED_CONV the weights' first. */
IMPORT(fused_conv) {
  bool last = n->arg != 0;
  cy_val x = last ? cy_onnx_turn_channels(im, X, false) : X, w = n->in[1];
  if (n->arg == NHWC_CONV)
    w = cy_onnx_turn_channels(im, w, false);
  cy_val y = cy_onnx_conv(im, n, x, w, cy_onnx_type(im, X)->dtype);
  if (y && n->in[2])
    y = ADD(y, cy_onnx_channel(im, n->in[2], cy_onnx_type(im, y)->rank, 1));
  if (last)
    y = cy_onnx_turn_channels(im, y, true);
  return SET(activate(im, n, n->in[3] ? ADD(y, n->in[3]) : y));
}

IMPORT(nhwc_max_pool) {
  cy_onnx_inner q;
  cy_onnx_inner_init(&q, n);
  q.in[0] = cy_onnx_turn_channels(im, X, false);
  return q.in[0] && cy_import_max_pool(im, &q.n) && SET(cy_onnx_turn_channels(im, q.out[0], true));
}

/* ---- what diffusion networks are made of ---- */

/* y and its 1-D factor and shift per channel, the channel being `axis`. */
static cy_val per_channel(cy_importer *im, cy_val y, cy_val scale, cy_val shift, int axis) {
  int rank = y ? cy_onnx_type(im, y)->rank : 0;
  return y ? ADD(MUL(y, cy_onnx_channel(im, scale, rank, axis)), cy_onnx_channel(im, shift, rank, axis)) : 0;
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
    if (ts->rank == 2) { /* [n, c], for every pixel */
      cy_dim d[CY_MAX_RANK];
      for (int i = 0; i < t.rank; i++)
        d[i] = i == 0 ? ts->dim[0] : i == axis ? ts->dim[1] : cy_dim_const(im->g, 1);
      skip = cy_build_reshape(im->g, skip, d, t.rank);
    }
    x = ADD(x, skip);
    if (n->in[4])
      x = ADD(x, cy_onnx_channel(im, n->in[4], t.rank, axis));
    if (!x || (cy_onnx_wants(n, 1) && !cy_importer_set(im, n, 1, x)))
      return false;
  }
  cy_val y = CAST(x, CY_F32);
  y = last ? cy_onnx_turn_channels(im, y, false) : y;
  if (!y)
    return false;
  const cy_type turned = *cy_onnx_type(im, y);
  y = cy_onnx_group_normalize(im, y, groups, cy_onnx_float(im, n, "epsilon", 1e-5));
  y = y ? cy_build_reshape(im->g, y, turned.dim, turned.rank) : 0;
  y = per_channel(im, y, CAST(n->in[1], CY_F32), CAST(n->in[2], CY_F32), 1);
  y = last ? cy_onnx_turn_channels(im, y, true) : y;
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
  cy_dim turned[2] = {t.dim[1], t.dim[0]};
  cy_val at = distance_buckets(im, size[0][0], size[1][0], buckets, farthest, both_ways);
  cy_val y = at ? cy_build_gather(im->g, cy_build_reshape(im->g, X, turned, 2), at, 1) : 0;
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

/* Pad, Range, GridSample: as ai.onnx's of a version. The argument: an RENAMED_.. */
IMPORT(renamed) {
  static const struct {
    const char *op;
    int version;
  } as[] = {[RENAMED_PAD] = {"Pad", 13}, [RENAMED_RANGE] = {"Range", 11}, [RENAMED_GRID_SAMPLE] = {"GridSample", 16}};
  const cy_onnx_row *row = cy_onnx_find("", as[n->arg].op, as[n->arg].version);
  cy_onnx_inner q;
  cy_onnx_inner_init(&q, n);
  for (uint32_t k = 0; k < n->nin && k < CY_ONNX_MIN_IN; k++)
    q.in[k] = n->in[k];
  q.n.nin = n->nin;
  if (n->arg == RENAMED_RANGE && !q.in[2])
    q.in[2] = cy_build_scalar_int(im->g, (cy_dtype)cy_onnx_type(im, X)->dtype, 1);
  if (n->arg == RENAMED_PAD && cy_onnx_type(im, q.in[1])->rank == 2)
    q.in[1] = cy_build_squeeze(im->g, q.in[1], 0);
  q.n.version = as[n->arg].version;
  q.n.since = row->since;
  q.n.arg = row->arg;
  return q.in[1] && row->import(im, &q.n) && SET(q.out[0]);
}

IMPORT(expand_dims) {
  int64_t axis;
  uint32_t count;
  int place, rank = cy_onnx_type(im, X)->rank;
  return cy_onnx_const_ints(im, n, 1, &axis, 1, &count) && cy_onnx_axis(im, axis, rank + 1, &place) &&
         SET(cy_build_unsqueeze(im->g, X, place));
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
