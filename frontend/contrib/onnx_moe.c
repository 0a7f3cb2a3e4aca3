/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_moe.c - com.microsoft's MoE and QMoE: a mixture of experts behind a router.
 *
 * Of every token the k experts of the highest scores count, weighted by the softmax of the scores. All experts are
 * computed, as one product of x and all their matrices; those not chosen have a weight of 0. That is more arithmetic
 * than the choice needs and none of the gathers of whole matrices that it would need.
 */
#include "frontend/import_int.h"

#include <math.h>

#define X (n->in[0])

typedef struct moe {
  cy_importer *im;
  const cy_onnx_node *n;
  cy_val w[3], b[3]; /* of fc1 [experts, width or 2 * width, hidden], fc2 [experts, hidden, width], fc3 as fc1 */
  cy_val scale[3], zero[3]; /* where w are codes: [experts, to, blocks], zero also one for all */
  cy_val weights;    /* [tokens, experts]: what counts where the scores only choose, or 0 */
  bool normalise;    /* weights of the chosen sum to 1 */
  cy_val x, gates;   /* [tokens, hidden], [tokens, experts] */
  cy_dim tokens, experts, hidden, width;
} moe;

/* Softmax of the scores, or the weights that are given, where the scores are among the k highest, else 0. */
static cy_val gates(const moe *m, cy_val scores, int64_t k) {
  cy_importer *im = m->im;
  const int64_t last = 1;
  cy_attr axis = cy_attr_int(CY_ATTR_axis, 1);
  cy_val p = cy_build(im->g, CY_OP_softmax, &scores, 1, &axis, 1, NULL, 1), chosen[2];
  if (!p)
    return 0;
  cy_type types[2] = {*cy_onnx_type(im, p), *cy_onnx_type(im, p)};
  types[0].dim[1] = types[1].dim[1] = cy_dim_const(im->g, k);
  types[1].dtype = CY_I64;
  cy_attr a[3] = {axis, cy_attr_int(CY_ATTR_largest, 1), cy_attr_int(CY_ATTR_sorted, 1)};
  chosen[0] = cy_build(im->g, CY_OP_topk, &p, 1, a, 3, types, 2);
  chosen[1] = chosen[0] ? cy_build_output(im->g, chosen[0], 1) : 0;
  cy_val weight = chosen[0];
  if (weight && m->weights)
    weight = cy_build(im->g, CY_OP_gather_elements, (cy_val[]){m->weights, chosen[1]}, 2, &axis, 1, NULL, 1);
  if (weight && m->normalise)
    weight = DIV(weight, cy_build_reduce(im->g, CY_OP_reduce_sum, weight, &last, 1, true));
  cy_dim d[3] = {cy_dim_const(im->g, 1), cy_dim_const(im->g, 1), m->experts};
  cy_val mine = BINARY(eq, cy_build_iota(im->g, CY_I64, d, 3, 2), cy_build_unsqueeze(im->g, chosen[1], 2));
  cy_val spread = mine && weight ? SELECT(mine, cy_build_unsqueeze(im->g, weight, 2), LIKE(weight, 0)) : 0;
  return spread ? cy_build_reduce(im->g, CY_OP_reduce_sum, spread, &last, 1, false) : 0;
}

/* Of all experts, [experts, to, from], as one matrix [experts * to, from]; of fc2, [experts * from, to]. */
static cy_val together(const moe *m, cy_val v, int which) {
  static const int64_t transpose[3] = {0, 2, 1};
  cy_importer *im = m->im;
  v = v && which == 1 ? cy_build_transpose(im->g, v, transpose) : v;
  if (!v)
    return 0;
  const cy_type t = *cy_onnx_type(im, v);
  const cy_dim flat[2] = {cy_dim_mul(im->g, t.dim[0], t.dim[1]), t.dim[2]};
  return cy_build_reshape(im->g, v, flat, 2);
}

/* Weights of all experts together. Codes stay what they are: products may read them so. */
static cy_val matrix(const moe *m, int which) {
  cy_importer *im = m->im;
  cy_val w = together(m, m->w[which], which), zero = m->zero[which];
  if (!w || !m->scale[which])
    return w;
  cy_type t = *cy_onnx_type(im, w);
  cy_dim rows = cy_onnx_type(im, m->w[which])->dim[2], blocks = cy_onnx_type(im, m->scale[which])->dim[2];
  int64_t block;
  if (!cy_dim_is_const(im->g, cy_dim_div(im->g, rows, blocks), &block))
    return cy_build_error(im->g, "expert scales", "expected sizes that are known, found %s",
                          cy_type_text(im->g, cy_onnx_type(im, m->scale[which])));
  const cy_attr a[2] = {cy_attr_int(CY_ATTR_axis, which == 1 ? 0 : 1), cy_attr_int(CY_ATTR_block_size, block)};
  zero = cy_onnx_type(im, zero)->rank ? together(m, zero, which) : zero;
  cy_val in[3] = {w, together(m, m->scale[which], which), zero};
  t.dtype = (uint8_t)cy_onnx_type(im, m->x)->dtype;
  return in[1] && in[2] ? cy_build(im->g, CY_OP_dequantize, in, 3, a, 2, &t, 1) : 0;
}

/* x times matrix `which` of all experts, plus bias: [tokens, experts, rows]. */
static cy_val expand(const moe *m, int which) {
  static const int64_t swap[2] = {1, 0};
  cy_importer *im = m->im;
  cy_dim rows = cy_onnx_type(im, m->w[which])->dim[1], apart[3] = {m->tokens, m->experts, rows};
  cy_val w = matrix(m, which), y = w ? cy_build_transpose(im->g, w, swap) : 0;
  y = y ? cy_build_matmul(im->g, m->x, y, cy_onnx_type(im, m->x)->dtype) : 0;
  y = y ? cy_build_reshape(im->g, y, apart, 3) : 0;
  return y && m->b[which] ? ADD(y, m->b[which]) : y;
}

/* Results of experts in between, weighted, times all matrices of fc2: [tokens, hidden]. */
static cy_val contract(const moe *m, cy_val h) {
  cy_importer *im = m->im;
  cy_dim in[2] = {m->tokens, cy_dim_mul(im->g, m->experts, m->width)};
  cy_dtype dtype = cy_onnx_type(im, m->x)->dtype;
  h = MUL(h, cy_build_unsqueeze(im->g, m->gates, 2));
  cy_val w = h ? matrix(m, 1) : 0;
  cy_val y = w ? cy_build_matmul(im->g, cy_build_reshape(im->g, h, in, 2), w, dtype) : 0;
  return y && m->b[1] ? ADD(y, cy_build_matmul(im->g, m->gates, m->b[1], dtype)) : y;
}

/* One of the two that lie side by side, or take turns. */
static cy_val half(const moe *m, cy_val y, int which, bool interleaved) {
  cy_importer *im = m->im;
  if (!interleaved)
    return cy_build_slice_axis(im->g, y, 2, which ? m->width : cy_dim_const(im->g, 0), m->width);
  cy_dim pairs[4] = {m->tokens, m->experts, m->width, cy_dim_const(im->g, 2)};
  y = cy_build_reshape(im->g, y, pairs, 4);
  y = y ? cy_build_slice_axis(im->g, y, 3, cy_dim_const(im->g, which), cy_dim_const(im->g, 1)) : 0;
  return y ? cy_build_squeeze(im->g, y, 3) : 0;
}

static cy_val swiglu(const moe *m, cy_val gate, cy_val linear) {
  cy_importer *im = m->im;
  double limit = cy_onnx_float(im, m->n, "swiglu_limit", INFINITY);
  if (!gate || !linear)
    return 0;
  if (isfinite(limit)) {
    gate = MIN(gate, LIKE(gate, limit));
    linear = MAX(MIN(linear, LIKE(linear, limit)), LIKE(linear, -limit));
  }
  cy_val slope = MUL(gate, LIKE(gate, cy_onnx_float(im, m->n, "activation_alpha", 1)));
  return MUL(MUL(gate, UNARY(sigmoid, slope)),
             ADD(linear, LIKE(linear, cy_onnx_float(im, m->n, "activation_beta", 0))));
}

static cy_val activated(const moe *m, int activation, int64_t fusion) {
  enum { RELU, GELU, SILU, SWIGLU, IDENTITY };
  cy_importer *im = m->im;
  cy_val y = expand(m, 0), other = m->w[2] ? expand(m, 2) : 0;
  if (!y || (m->w[2] && !other))
    return 0;
  if (activation == SWIGLU && fusion) {
    other = half(m, y, 1, fusion == 1);
    y = half(m, y, 0, fusion == 1);
  }
  if (activation == SWIGLU)
    return swiglu(m, y, other);
  if (activation == RELU)
    y = MAX(y, LIKE(y, 0));
  else if (activation == SILU)
    y = MUL(y, UNARY(sigmoid, y));
  else if (activation == GELU)
    y = cy_onnx_gelu_tanh(im, y);
  return other ? MUL(y, other) : y;
}

static bool differ(const cy_graph *g, cy_dim a, cy_dim b) {
  int64_t x, y;
  return cy_dim_is_const(g, a, &x) && cy_dim_is_const(g, b, &y) && x != y;
}

/* Do the matrices fit the tokens? */
static bool check_matrices(const moe *m) {
  cy_graph *g = m->im->g;
  for (int i = 0; i < 3; i++) {
    const cy_type *t = m->w[i] ? cy_onnx_type(m->im, m->w[i]) : NULL;
    if (t && (t->rank != 3 || differ(g, t->dim[0], m->experts) || differ(g, t->dim[i == 1 ? 1 : 2], m->hidden)))
      return cy_build_error(g, "expert weights", "expected matrices of fc%d [%s experts, %s, %s], found %s", i + 1,
                            cy_dim_text(g, m->experts), i == 1 ? cy_dim_text(g, m->hidden) : "to",
                            i == 1 ? "from" : cy_dim_text(g, m->hidden), cy_type_text(g, t));
  }
  return true;
}

static bool mix(moe *m) {
  cy_importer *im = m->im;
  const cy_onnx_node *n = m->n;
  const cy_type t = *cy_onnx_type(im, X), *router = cy_onnx_type(im, n->in[1]);
  int activation = cy_onnx_word(im, n, "activation_type", "relu", "relu|gelu|silu|swiglu|identity");
  int64_t k = cy_onnx_int(im, n, "k", 1), fusion = activation == 3 ? cy_onnx_int(im, n, "swiglu_fusion", 0) : 0,
          experts;
  if (activation < 0)
    return false;
  if ((t.rank != 2 && t.rank != 3) || router->rank != 2 || cy_onnx_type(im, m->w[0])->rank != 3 ||
      cy_onnx_type(im, m->w[1])->rank != 3 || !cy_dim_is_const(im->g, router->dim[1], &experts) || k < 1 || k > experts)
    return cy_build_error(
        im->g, NULL,
        "expected tokens, router_probs [tokens, experts], matrices [experts, to, from] and at most as many "
        "experts chosen as there are, found %s, %s, %s and k = %lld",
        cy_type_text(im->g, &t), cy_type_text(im->g, router), cy_type_text(im->g, cy_onnx_type(im, m->w[0])),
        (long long)k);
  if (cy_onnx_int(im, n, "use_sparse_mixer", 0) || fusion < 0 || fusion > 2 || (activation == 3 && !fusion && !m->w[2]))
    return cy_build_error(im->g, NULL, "a sparse mixer, or swiglu without a second matrix, is not supported");
  m->experts = router->dim[1];
  m->hidden = t.dim[t.rank - 1];
  m->width = cy_onnx_type(im, m->w[1])->dim[2];
  m->tokens = t.rank == 2 ? t.dim[0] : cy_dim_mul(im->g, t.dim[0], t.dim[1]);
  cy_dim rows[2] = {m->tokens, m->hidden};
  if (!check_matrices(m))
    return false;
  m->x = cy_build_reshape(im->g, X, rows, 2);
  m->gates = m->x ? gates(m, n->in[1], k) : 0;
  cy_val h = m->gates ? activated(m, activation, fusion) : 0, y = h ? contract(m, h) : 0;
  return y && cy_importer_set(im, n, 0, cy_build_reshape(im->g, y, t.dim, t.rank));
}

IMPORT(moe) {
  moe m = {.im = im,
           .n = n,
           .w = {n->in[2], n->in[4], n->in[6]},
           .b = {n->in[3], n->in[5], n->in[7]},
           .normalise = cy_onnx_int(im, n, "normalize_routing_weights", 0) != 0};
  return n->in[4] ? mix(&m) : cy_build_error(im->g, "input 'fc2_experts_weights'", "expected the second matrices");
}

/* Codes q [experts, to, from * bits / 8] of matrix i, scales and zero points [experts, to] or, by blocks, [experts, to,
 * blocks]. */
static bool read_codes(moe *m, int i, cy_val q, cy_val scale, cy_val zero, int64_t bits, cy_dtype dtype) {
  cy_importer *im = m->im;
  if (!q || !scale || cy_onnx_type(im, q)->rank != 3 || cy_onnx_type(im, q)->dtype != CY_U8)
    return cy_build_error(im->g, "expert weights", "expected bytes [experts, to, from] with scales");
  const cy_type tq = *cy_onnx_type(im, q), ts = *cy_onnx_type(im, scale);
  if (!(m->w[i] = cy_onnx_unpack(im, q, bits, tq.dim, 3)))
    return false;
  if (ts.rank != 2 && ts.rank != 3)
    return cy_build_error(im->g, "expert scales", "expected [experts, to] or [experts, to, blocks], found %s",
                          cy_type_text(im->g, &ts));
  const cy_dim each[3] = {tq.dim[0], tq.dim[1], ts.rank == 3 ? ts.dim[2] : cy_dim_const(im->g, 1)};
  m->scale[i] = cy_build_reshape(im->g, CAST(scale, dtype), each, 3);
  if (zero) {
    const cy_type tz = *cy_onnx_type(im, zero);
    zero = cy_onnx_unpack(im, zero, bits, tz.dim, tz.rank);
    zero = zero ? cy_build_slice_axis(im->g, zero, tz.rank - 1, cy_dim_const(im->g, 0), ts.dim[ts.rank - 1]) : 0;
    m->zero[i] = zero ? cy_build_reshape(im->g, zero, each, 3) : 0;
  } else {
    m->zero[i] = cy_build_scalar_int(im->g, CY_U8, 1 << (bits - 1));
  }
  return m->scale[i] && m->zero[i];
}

/* Weight, scale, bias of fc1 to fc3 from input 2 on, then their zero points and router_weights. As in ONNX Runtime, the
 * softmax is over the chosen experts, whatever the attribute says, where the scores themselves weigh. */
IMPORT(qmoe) {
  static const char *const widths[3] = {"fc1_expert_weight_bits", "fc2_expert_weight_bits", "fc3_expert_weight_bits"};
  moe m = {.im = im,
           .n = n,
           .weights = n->in[14],
           .normalise = !n->in[14] || cy_onnx_int(im, n, "normalize_routing_weights", 0) != 0};
  cy_dtype dtype = cy_onnx_type(im, X)->dtype;
  int64_t bits = cy_onnx_int(im, n, "expert_weight_bits", 4);
  if (cy_onnx_word(im, n, "quant_type", "int", "int") < 0)
    return false;
  if (cy_onnx_int(im, n, "weights_prepacked", -1) > 0)
    return cy_build_error(im->g, "attribute 'weights_prepacked'", "weights in the order of a device are not supported");
  for (uint32_t i = 0; i < 3; i++) {
    int64_t own = cy_onnx_int(im, n, widths[i], bits);
    if (own != 2 && own != 4 && own != 8)
      return cy_build_error(im->g, NULL, "expected weights of 2, 4 or 8 bits, found %lld", (long long)own);
    if (i == 2 && !n->in[8])
      break;
    if (!read_codes(&m, (int)i, n->in[2 + 3 * i], n->in[3 + 3 * i], n->in[11 + i], own, dtype))
      return false;
    m.b[i] = n->in[4 + 3 * i];
  }
  return mix(&m);
}
