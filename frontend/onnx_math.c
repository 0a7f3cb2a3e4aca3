/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_math.c - element-wise arithmetic and activations, and matrix products.
 *
 * Most ops are one IR op (the row's argument names it) or a short composition that element-wise fusion turns into one
 * kernel. Constants take the dtype of the operand (LIKE), so every composition works at every float type.
 */
#include "frontend/import_int.h"

#include <math.h>

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))
#define SIGMOID(x) UNARY(sigmoid, x)
#define FLOAT(name, otherwise) LIKE(X, cy_onnx_float(im, n, name, otherwise))

static bool exact_inputs(cy_importer *im, const cy_onnx_node *n, uint32_t count) {
  if (n->nin <= count)
    return true;
  cy_build_error(im->g, NULL, "expected %u input%s, found %u inputs", count, count == 1 ? "" : "s", n->nin);
  return false;
}

IMPORT(unary) { return exact_inputs(im, n, 1) && SET(cy_build_unary(im->g, (cy_op)n->arg, X)); }

/* Before opset 7 the second operand is aligned to axis `axis` of the first when broadcast=1. */
static cy_val legacy_operand(cy_importer *im, const cy_onnx_node *n) {
  cy_val b = n->in[1];
  if (n->version >= 7 || !cy_onnx_int(im, n, "broadcast", 0) || !cy_onnx_has(n, "axis"))
    return b;
  const cy_type *ta = cy_onnx_type(im, X), *tb = cy_onnx_type(im, b);
  int axis;
  if (!cy_onnx_axis(im, cy_onnx_int(im, n, "axis", -1), ta->rank, &axis))
    return 0;
  cy_dim d[CY_MAX_RANK];
  int rank = ta->rank - axis;
  if (tb->rank > rank)
    return cy_build_error(im->g, "attribute 'axis'", "a second operand of rank %d does not fit behind axis %d",
                          tb->rank, axis);
  for (int i = 0; i < rank; i++)
    d[i] = i < tb->rank ? tb->dim[i] : cy_dim_const(im->g, 1);
  return cy_build_reshape(im->g, b, d, rank);
}

IMPORT(binary) {
  return exact_inputs(im, n, 2) && SET(cy_build_binary(im->g, (cy_op)n->arg, X, legacy_operand(im, n)));
}

IMPORT(bitshift) {
  int way = cy_onnx_word(im, n, "direction", "", "LEFT|RIGHT");
  return way >= 0 && SET(cy_build_binary(im->g, way ? CY_OP_shr : CY_OP_shl, X, n->in[1]));
}

IMPORT(mod) { return SET(cy_build_binary(im->g, cy_onnx_int(im, n, "fmod", 0) ? CY_OP_fmod : CY_OP_mod, X, n->in[1])); }

/* Integer powers with small constant exponents become products: exact, and far cheaper. */
IMPORT(pow) {
  cy_val e = legacy_operand(im, n);
  double v;
  if (e && cy_value_is_splat(im->g, e, &v) && cy_onnx_type(im, e)->rank <= cy_onnx_type(im, X)->rank) {
    cy_type t = *cy_onnx_type(im, e);
    bool scalar = true;
    for (int i = 0; i < t.rank; i++)
      scalar = scalar && cy_dim_is(im->g, t.dim[i], 1);
    if (scalar && v == 1)
      return SET(X);
    if (scalar && (v == 2 || v == 3))
      return SET(v == 2 ? MUL(X, X) : MUL(MUL(X, X), X));
  }
  if (!e)
    return false;
  cy_dtype base = cy_onnx_type(im, X)->dtype, other = cy_onnx_type(im, e)->dtype;
  if (cy_dtype_is_float(other) && !cy_dtype_is_float(base)) /* computed as a float, of the base's type in the end */
    return SET(CAST(BINARY(pow, CAST(X, other), e), base));
  return SET(BINARY(pow, X, CAST(e, base)));
}

IMPORT(variadic) {
  cy_val y = X;
  for (uint32_t i = 1; i < n->nin; i++)
    y = cy_build_binary(im->g, (cy_op)n->arg, y, n->in[i]);
  return SET(y);
}

IMPORT(mean) {
  cy_val y = X;
  for (uint32_t i = 1; i < n->nin; i++)
    y = ADD(y, n->in[i]);
  return SET(n->nin > 1 ? DIV(y, LIKE(X, n->nin)) : y);
}

IMPORT(reciprocal) { return SET(DIV(LIKE(X, 1), X)); }
IMPORT(relu) { return exact_inputs(im, n, 1) && SET(MAX(X, LIKE(X, 0))); }

IMPORT(leaky_relu) { return SET(SELECT(BINARY(lt, X, LIKE(X, 0)), MUL(X, FLOAT("alpha", 0.01)), X)); }

IMPORT(prelu) {
  cy_val slope = n->in[1];
  const cy_type *t = cy_onnx_type(im, slope);
  if (n->version < 7 && t->rank == 1 && !cy_dim_is(im->g, t->dim[0], 1)) /* one slope per channel */
    slope = cy_onnx_per_channel(im, slope, "input 'slope'", X, 1);
  /* As in ONNX Runtime, a slope may also be larger than x. */
  return SET(SELECT(BINARY(lt, X, LIKE(X, 0)), MUL(X, slope), X));
}

IMPORT(thresholded_relu) { return SET(SELECT(BINARY(gt, X, FLOAT("alpha", 1)), X, LIKE(X, 0))); }

/* alpha * (exp(x) - 1) below zero; the exponent is clamped so that the unused side cannot overflow. */
static cy_val exp_tail(cy_importer *im, cy_val x, cy_val alpha) {
  return MUL(alpha, SUB(UNARY(exp, MIN(x, LIKE(x, 0))), LIKE(x, 1)));
}

IMPORT(elu) { return SET(SELECT(BINARY(lt, X, LIKE(X, 0)), exp_tail(im, X, FLOAT("alpha", 1)), X)); }

IMPORT(selu) {
  cy_val alpha = FLOAT("alpha", n->version < 6 ? 1.6732 : 1.67326319217681884765625),
         gamma = FLOAT("gamma", n->version < 6 ? 1.0507 : 1.05070102214813232421875);
  return SET(MUL(gamma, SELECT(BINARY(gt, X, LIKE(X, 0)), X, exp_tail(im, X, alpha))));
}

IMPORT(celu) {
  cy_val alpha = FLOAT("alpha", 1);
  return SET(ADD(MAX(X, LIKE(X, 0)),
                 MIN(LIKE(X, 0), MUL(alpha, SUB(UNARY(exp, MIN(DIV(X, alpha), LIKE(X, 0))), LIKE(X, 1))))));
}

static cy_val hard_sigmoid(cy_importer *im, cy_val x, double alpha, double beta) {
  return MAX(LIKE(x, 0), MIN(LIKE(x, 1), ADD(MUL(x, LIKE(x, alpha)), LIKE(x, beta))));
}

IMPORT(hard_sigmoid) {
  return SET(hard_sigmoid(im, X, cy_onnx_float(im, n, "alpha", 0.2), cy_onnx_float(im, n, "beta", 0.5)));
}
IMPORT(hard_swish) { return SET(MUL(X, hard_sigmoid(im, X, 1.0 / 6, 0.5))); }
IMPORT(swish) { return SET(MUL(X, SIGMOID(MUL(X, FLOAT("alpha", 1))))); }

/* Swish of the gate times the other input, which has its shape. */
IMPORT(swiglu) {
  const cy_type *gate = cy_onnx_type(im, X), *value = cy_onnx_type(im, n->in[1]);
  bool same = gate->rank == value->rank;
  for (int i = 0; same && i < gate->rank; i++) {
    int64_t a, b;
    same = !cy_dim_is_const(im->g, gate->dim[i], &a) || !cy_dim_is_const(im->g, value->dim[i], &b) || a == b;
    if (same && gate->dim[i] != value->dim[i])
      cy_graph_require(im->g, gate->dim[i], value->dim[i], CY_REQUIRE_EQUAL);
  }
  if (!same)
    return cy_build_error(im->g, "input 'B'", "expected the shape of input 'A', %s, found %s", cy_type_text(im->g, gate),
                          cy_type_text(im->g, value));
  return SET(MUL(MUL(X, SIGMOID(MUL(X, FLOAT("alpha", 1)))), n->in[1]));
}

/* log(1 + exp(x)), from the side that cannot overflow. */
cy_val cy_onnx_softplus(cy_importer *im, cy_val x) {
  return ADD(MAX(x, LIKE(x, 0)), UNARY(log1p, UNARY(exp, UNARY(neg, UNARY(abs, x)))));
}

IMPORT(softplus) { return SET(cy_onnx_softplus(im, X)); }
IMPORT(mish) { return SET(MUL(X, UNARY(tanh, cy_onnx_softplus(im, X)))); }
IMPORT(softsign) { return SET(DIV(X, ADD(LIKE(X, 1), UNARY(abs, X)))); }
IMPORT(parametric_softplus) { return SET(MUL(FLOAT("alpha", 1), cy_onnx_softplus(im, MUL(FLOAT("beta", 1), X)))); }
IMPORT(scaled_tanh) { return SET(MUL(FLOAT("alpha", 1), UNARY(tanh, MUL(FLOAT("beta", 1), X)))); }
IMPORT(affine) { return SET(ADD(MUL(X, FLOAT("alpha", 1)), FLOAT("beta", 0))); }
IMPORT(scale) { return SET(MUL(X, FLOAT("scale", 1))); }

cy_val cy_onnx_gelu_tanh(cy_importer *im, cy_val x) {
  cy_val inner = MUL(LIKE(x, 0.7978845608028654), ADD(x, MUL(LIKE(x, 0.044715), MUL(MUL(x, x), x))));
  return MUL(MUL(LIKE(x, 0.5), x), ADD(LIKE(x, 1), UNARY(tanh, inner)));
}

static cy_val gelu_erf(cy_importer *im, cy_val x) {
  return MUL(MUL(LIKE(x, 0.5), x), ADD(LIKE(x, 1), UNARY(erf, MUL(x, LIKE(x, 0.7071067811865476)))));
}

IMPORT(gelu) {
  int how = cy_onnx_word(im, n, "approximate", "none", "none|tanh");
  return how >= 0 && SET(how ? cy_onnx_gelu_tanh(im, X) : gelu_erf(im, X));
}

IMPORT(bias_gelu) { return SET(gelu_erf(im, n->in[1] ? ADD(X, n->in[1]) : X)); }
IMPORT(fast_gelu) { return SET(cy_onnx_gelu_tanh(im, n->in[1] ? ADD(X, n->in[1]) : X)); }
IMPORT(quick_gelu) { return SET(MUL(X, SIGMOID(MUL(X, FLOAT("alpha", 1.702))))); }

IMPORT(shrink) {
  double lambda = cy_onnx_float(im, n, "lambd", 0.5), bias = cy_onnx_float(im, n, "bias", 0);
  cy_dtype dtype = cy_onnx_type(im, X)->dtype;
  cy_val x = cy_dtype_is_float(dtype) ? X : CAST(X, CY_F32); /* integers: thresholds may be fractions */
  cy_val low = SELECT(BINARY(lt, x, LIKE(x, -lambda)), ADD(x, LIKE(x, bias)), LIKE(x, 0));
  return SET(CAST(SELECT(BINARY(gt, x, LIKE(x, lambda)), SUB(x, LIKE(x, bias)), low), dtype));
}

IMPORT(clip) {
  cy_val y = X, low = n->in[1], high = n->in[2];
  if (n->version < 11) {
    low = cy_onnx_has(n, "min") ? FLOAT("min", 0) : 0;
    high = cy_onnx_has(n, "max") ? FLOAT("max", 0) : 0;
  }
  if (low)
    y = MAX(y, low);
  if (high)
    y = MIN(y, high);
  return SET(y);
}

IMPORT(isinf) {
  int64_t positive = cy_onnx_int(im, n, "detect_positive", 1), negative = cy_onnx_int(im, n, "detect_negative", 1);
  cy_val y = UNARY(isinf, X);
  if (!positive)
    y = BINARY(and, y, BINARY(lt, X, LIKE(X, 0)));
  if (!negative)
    y = BINARY(and, y, BINARY(gt, X, LIKE(X, 0)));
  return SET(y);
}

/* ---- matrix products ---- */

IMPORT(matmul) { return SET(cy_onnx_matmul(im, X, n->in[1], cy_onnx_type(im, X)->dtype)); }

static cy_val transposed_if(cy_importer *im, cy_val x, bool wanted) {
  int64_t swap[2] = {1, 0};
  return wanted ? cy_build_transpose(im->g, x, swap) : x;
}

static cy_val scaled(cy_importer *im, cy_val x, double by) { return by == 1 || !x ? x : MUL(x, LIKE(x, by)); }

IMPORT(gemm) {
  cy_val a = X, b = n->in[1], c = n->in[2];
  if (n->version < 7 && cy_onnx_type(im, a)->rank > 2)
    a = cy_onnx_flatten2(im, a, 1);
  if (cy_onnx_type(im, a)->rank != 2 || cy_onnx_type(im, b)->rank != 2)
    return cy_build_error(im->g, NULL, "expected two matrices, found %s and %s",
                          cy_type_text(im->g, cy_onnx_type(im, a)), cy_type_text(im->g, cy_onnx_type(im, b)));
  a = transposed_if(im, a, cy_onnx_int(im, n, "transA", 0) != 0);
  b = transposed_if(im, b, cy_onnx_int(im, n, "transB", 0) != 0);
  cy_val y = scaled(im, cy_build_matmul(im->g, a, b, cy_onnx_type(im, X)->dtype), cy_onnx_float(im, n, "alpha", 1));
  double beta = cy_onnx_float(im, n, "beta", 1);
  if (y && c && !cy_onnx_fits_into(im, "input 'C'", c, y))
    return false;
  return SET(c && beta != 0 ? ADD(y, scaled(im, c, beta)) : y);
}

static cy_val swap_last(cy_importer *im, cy_val x, bool wanted) {
  int rank = cy_onnx_type(im, x)->rank;
  return wanted && rank > 1 ? cy_onnx_move_axis(im, x, rank - 1, rank - 2) : x;
}

/* com.microsoft: transBatchA moves the first axis behind the other batch axes. */
IMPORT(fused_matmul) {
  cy_val v[2] = {X, n->in[1]};
  const char *const batch[2] = {"transBatchA", "transBatchB"}, *const last[2] = {"transA", "transB"};
  for (int i = 0; i < 2; i++) {
    int rank = cy_onnx_type(im, v[i])->rank;
    if (cy_onnx_int(im, n, batch[i], 0) && rank > 2)
      v[i] = cy_onnx_move_axis(im, v[i], 0, rank - 2);
    if (!v[i])
      return false;
    v[i] = swap_last(im, v[i], cy_onnx_int(im, n, last[i], 0) != 0);
  }
  return SET(scaled(im, cy_onnx_matmul(im, v[0], v[1], cy_onnx_type(im, X)->dtype), cy_onnx_float(im, n, "alpha", 1)));
}

IMPORT(det) {
  const cy_type *t = cy_onnx_type(im, X);
  int64_t size;
  if (t->rank < 2 || !cy_dim_is_const(im->g, t->dim[t->rank - 1], &size) ||
      !cy_dim_is(im->g, t->dim[t->rank - 2], size) || size < 1 || size > 3)
    return cy_build_error(im->g, NULL, "determinants are supported for matrices of 1 to 3 rows, found %s",
                          cy_type_text(im->g, t));
  cy_val e[3][3];
  cy_dim one = cy_dim_const(im->g, 1);
  for (int i = 0; i < size; i++) {
    for (int j = 0; j < size; j++) {
      cy_val row = cy_build_slice_axis(im->g, X, t->rank - 2, cy_dim_const(im->g, i), one);
      cy_val v = cy_build_slice_axis(im->g, row, t->rank - 1, cy_dim_const(im->g, j), one);
      e[i][j] = cy_build_reshape(im->g, v, t->dim, t->rank - 2);
    }
  }
#define MINOR(a, b) SUB(MUL(e[1][a], e[2][b]), MUL(e[1][b], e[2][a]))
  if (size == 1)
    return SET(e[0][0]);
  if (size == 2)
    return SET(SUB(MUL(e[0][0], e[1][1]), MUL(e[0][1], e[1][0])));
  return SET(ADD(SUB(MUL(e[0][0], MINOR(1, 2)), MUL(e[0][1], MINOR(0, 2))), MUL(e[0][2], MINOR(0, 1))));
}
