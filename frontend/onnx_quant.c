/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_quant.c - quantised arithmetic: QuantizeLinear and relatives, integer and QLinear matrix products and
 * convolutions.
 *
 * Integer products accumulate in i32, exactly: matmul and conv take 8-bit operands and their zero points. A matrix
 * product whose left zero points differ by row, or whose right ones by matrix, corrects with row and column sums instead:
 * sum (a - za)(b - zb) = ab - za * colsum(b) - zb * rowsum(a) + k * za * zb, which is exact modulo 2^32.
 */
#include "frontend/import_int.h"

#include <math.h>

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))

static bool is_single(cy_importer *im, cy_val v) {
  return cy_dim_is(im->g, cy_type_elems(im->g, cy_onnx_type(im, v)), 1);
}

/* A parameter per tensor becomes a scalar. */
static cy_val per_tensor(cy_importer *im, cy_val v) {
  return v && cy_onnx_type(im, v)->rank && is_single(im, v) ? cy_build_reshape(im->g, v, NULL, 0) : v;
}

/* A parameter that may only be per tensor: a scalar, of what has one element when the model runs. */
static cy_val single(cy_importer *im, cy_val v, const char *what) {
  v = per_tensor(im, v);
  if (!v || !cy_onnx_type(im, v)->rank)
    return v;
  cy_dim n = cy_type_elems(im->g, cy_onnx_type(im, v)), one = cy_dim_const(im->g, 1);
  if (cy_onnx_clash(im, n, one)) {
    cy_build_error(im->g, what, "expected one number, found %s", cy_type_text(im->g, cy_onnx_type(im, v)));
    return 0;
  }
  cy_graph_require(im->g, n, one, CY_REQUIRE_EQUAL);
  return cy_build_reshape(im->g, v, NULL, 0);
}

/* ---- checks ---- */

/* Scales must be finite numbers, where they are known, and positive, except where they only multiply: weights of 4 bits
 * have negative ones where the element of largest magnitude is positive, so that it becomes -8, and blocks of zeros 0. */
static bool check_scales(cy_importer *im, cy_val scale, bool multiplies) {
  static const char unbounded[] = ": calibrated on a mask of -inf or the least float? keep its nodes in float then "
                                  "(nodes_to_exclude of ONNX Runtime's quantizer), or use 'cytoc --int8=static'";
  uint32_t count;
  const double *v = scale ? cy_value_floats(im->g, scale, &count) : NULL;
  for (uint32_t i = 0; v && i < count; i++)
    if ((!multiplies && !(v[i] > 0)) || !isfinite(v[i]))
      return cy_build_error(im->g, "a scale", "expected %sfinite numbers, found %g as element %u of %s%s",
                            multiplies ? "" : "positive ", v[i], i, cy_type_text(im->g, cy_onnx_type(im, scale)),
                            isinf(v[i]) ? unbounded : "");
  return scale != 0;
}

static bool check_scale(cy_importer *im, cy_val scale) { return check_scales(im, scale, false); }

/* A zero point has the type of what it belongs to. */
static bool check_zero(cy_importer *im, cy_val zero, cy_dtype dtype) {
  if (!zero || cy_onnx_type(im, zero)->dtype == dtype)
    return true;
  return cy_build_error(im->g, "a zero point", "expected it to be of type %s as what is quantised, found %s",
                        cy_dtype_of(dtype)->name, cy_type_text(im->g, cy_onnx_type(im, zero)));
}

/* Scales, or zero points, of a tensor of type t: one; one per element of `axis`; or one per block along it. */
static bool check_shape(cy_importer *im, const cy_type *t, cy_val v, int axis, int64_t block) {
  if (!v || cy_onnx_type(im, v)->rank == 0)
    return true;
  const cy_type *p = cy_onnx_type(im, v);
  bool bad = p->rank != (block ? t->rank : 1);
  for (int i = 0; !bad && i < p->rank; i++) {
    cy_dim want = !block ? t->dim[axis] : i == axis ? cy_dim_cdiv(im->g, t->dim[i], cy_dim_const(im->g, block)) : t->dim[i];
    bad = cy_onnx_clash(im, p->dim[i], want);
    if (!bad)
      cy_graph_require(im->g, p->dim[i], want, CY_REQUIRE_EQUAL);
  }
  if (!bad)
    return true;
  if (block)
    return cy_build_error(im->g, "attribute 'block_size'",
                          "blocks of %lld along axis %d of %s need as many scales and zero points, found %s",
                          (long long)block, axis, cy_type_text(im->g, t), cy_type_text(im->g, p));
  return cy_build_error(im->g, "attribute 'axis'",
                        "expected one scale and zero point for each of axis %d of %s, found %s", axis,
                        cy_type_text(im->g, t), cy_type_text(im->g, p));
}

/* Axis, block size and inputs of quantize and dequantize. */
static bool rescale_inputs(cy_importer *im, const cy_onnx_node *n, bool multiplies, cy_val *in, int *out_axis,
                           int64_t *out_block) {
  const cy_type *t = cy_onnx_type(im, X);
  *out_block = cy_onnx_int(im, n, "block_size", 0);
  *out_axis = 0;
  if (*out_block < 0)
    return cy_build_error(im->g, "attribute 'block_size'", "expected 0 or more, found %lld", (long long)*out_block);
  in[0] = X;
  in[1] = *out_block ? n->in[1] : per_tensor(im, n->in[1]);
  in[2] = n->in[2] && !*out_block ? per_tensor(im, n->in[2]) : n->in[2];
  if (!check_scales(im, in[1], multiplies))
    return false;
  if (!cy_onnx_type(im, in[1])->rank && in[2] && cy_onnx_type(im, in[2])->rank)
    return cy_build_error(im->g, "the zero point", "expected one, as there is one scale, found %s",
                          cy_type_text(im->g, cy_onnx_type(im, in[2])));
  if (!cy_onnx_type(im, in[1])->rank)
    return true;
  return cy_onnx_axis(im, cy_onnx_int(im, n, "axis", 1), t->rank, out_axis) &&
         check_shape(im, t, in[1], *out_axis, *out_block) && check_shape(im, t, in[2], *out_axis, *out_block);
}

static cy_val quantize(cy_importer *im, cy_val *in, int axis, int64_t block, int64_t saturate, cy_dtype dtype) {
  if (!in[0] || !in[1])
    return 0;
  const cy_type *t = cy_onnx_type(im, in[0]);
  cy_type type = cy_type_make(dtype, t->rank, t->dim);
  cy_attr a[3] = {cy_attr_int(CY_ATTR_axis, axis), cy_attr_int(CY_ATTR_block_size, block),
                  cy_attr_int(CY_ATTR_saturate, saturate)};
  return cy_build(im->g, CY_OP_quantize, in, in[2] ? 3 : 2, a, 3, &type, 1);
}

static bool output_dtype(cy_importer *im, const cy_onnx_node *n, cy_dtype otherwise, cy_dtype *out) {
  *out = cy_onnx_int(im, n, "output_dtype", 0) ? cy_onnx_dtype(im, n, "output_dtype", CY_NONE, "FIUB") : otherwise;
  return *out != CY_NONE;
}

IMPORT(quantize_linear) {
  cy_val in[3];
  int axis;
  int64_t block;
  cy_dtype dtype;
  if (!rescale_inputs(im, n, false, in, &axis, &block) ||
      !output_dtype(im, n, in[2] ? (cy_dtype)cy_onnx_type(im, in[2])->dtype : CY_U8, &dtype) ||
      !check_zero(im, in[2], dtype))
    return false;
  return SET(quantize(im, in, axis, block, cy_onnx_int(im, n, "saturate", 1), dtype));
}

IMPORT(dequantize_linear) {
  cy_val in[3];
  int axis;
  int64_t block;
  cy_dtype dtype;
  if (!rescale_inputs(im, n, true, in, &axis, &block) || !output_dtype(im, n, cy_onnx_type(im, in[1])->dtype, &dtype) ||
      !check_zero(im, in[2], (cy_dtype)cy_onnx_type(im, X)->dtype))
    return false;
  const cy_type *t = cy_onnx_type(im, X);
  uint32_t count;
  const double *zero = in[2] && t->dtype == CY_I32 ? cy_value_floats(im->g, in[2], &count) : NULL;
  for (uint32_t i = 0; zero && i < count; i++)
    if (zero[i] != 0)
      return cy_build_error(im->g, "the zero point", "expected 0, as x is of i32, found %g", zero[i]);
  cy_type type = cy_type_make(dtype, t->rank, t->dim);
  cy_attr a[2] = {cy_attr_int(CY_ATTR_axis, axis), cy_attr_int(CY_ATTR_block_size, block)};
  return SET(cy_build(im->g, CY_OP_dequantize, in, in[2] ? 3 : 2, a, 2, &type, 1));
}

/* x as u8, with the scale and zero point that its least and largest element ask for. */
static cy_val quantize_dynamically(cy_importer *im, cy_val x, cy_val *out_scale, cy_val *out_zero) {
  int64_t axes[CY_MAX_RANK];
  int rank = cy_onnx_type(im, x)->rank;
  for (int i = 0; i < rank; i++)
    axes[i] = i;
  cy_val zero = LIKE(x, 0), low = MIN(zero, cy_build_reduce(im->g, CY_OP_reduce_min, x, axes, (uint32_t)rank, false));
  cy_val high = MAX(zero, cy_build_reduce(im->g, CY_OP_reduce_max, x, axes, (uint32_t)rank, false));
  cy_val scale = DIV(SUB(high, low), LIKE(x, 255));
  *out_scale = scale = SELECT(BINARY(eq, scale, zero), LIKE(x, 1), scale);
  cy_val zp = UNARY(round, MIN(LIKE(x, 255), MAX(zero, DIV(SUB(zero, low), scale))));
  cy_val in[3] = {x, scale, *out_zero = zp ? CAST(zp, CY_U8) : 0};
  return zp ? quantize(im, in, 0, 0, 1, CY_U8) : 0;
}

IMPORT(dynamic_quantize_linear) {
  cy_val scale, zero, y = quantize_dynamically(im, X, &scale, &zero);
  return y && SET(y) && cy_importer_set(im, n, 1, scale) && cy_importer_set(im, n, 2, zero);
}

/* ---- for onnx_qlinear.c ---- */

cy_val cy_onnx_per_tensor(cy_importer *im, cy_val v) { return per_tensor(im, v); }

bool cy_onnx_check_parameters(cy_importer *im, cy_val x, cy_val *scale, cy_val *zero, int axis) {
  const cy_type *t = cy_onnx_type(im, x);
  *scale = per_tensor(im, *scale);
  *zero = *zero ? per_tensor(im, *zero) : 0;
  return check_scale(im, *scale) && check_zero(im, *zero, (cy_dtype)t->dtype) &&
         (axis >= t->rank || (check_shape(im, t, *scale, axis, 0) && check_shape(im, t, *zero, axis, 0)));
}

cy_val cy_onnx_dequantize_along(cy_importer *im, cy_val x, cy_val scale, cy_val zero, int axis) {
  if (!x || !cy_onnx_check_parameters(im, x, &scale, &zero, axis))
    return 0;
  cy_val in[3] = {x, scale, zero};
  cy_type type = *cy_onnx_type(im, x);
  cy_attr a[2] = {cy_attr_int(CY_ATTR_axis, axis), cy_attr_int(CY_ATTR_block_size, 0)};
  type.dtype = CY_F32;
  return cy_build(im->g, CY_OP_dequantize, in, in[2] ? 3 : 2, a, 2, &type, 1);
}

cy_val cy_onnx_dequantize(cy_importer *im, cy_val x, cy_val scale, cy_val zero) {
  if (!x || !scale || is_single(im, scale))
    return cy_onnx_dequantize_along(im, x, scale, zero, 0);
  return cy_build_error(im->g, "a scale", "expected one number, found %s", cy_type_text(im->g, cy_onnx_type(im, scale)));
}

cy_val cy_onnx_quantize(cy_importer *im, cy_val y, cy_val scale, cy_val zero, cy_dtype dtype) {
  cy_val in[3] = {y, single(im, scale, "a scale"), single(im, zero, "a zero point")};
  return y && in[1] && (in[2] || !zero) && check_scale(im, in[1]) && check_zero(im, in[2], dtype) ? quantize(im, in, 0, 0, 1, dtype) : 0;
}

/* ---- products ---- */

static bool is_zero(cy_importer *im, cy_val v) {
  double x;
  return !v || (cy_value_is_splat(im->g, v, &x) && x == 0);
}

static cy_val sum_of(cy_importer *im, cy_val x, int from_end) {
  int64_t axis = cy_onnx_type(im, x)->rank - from_end;
  return cy_build_reduce(im->g, CY_OP_reduce_sum, CAST(x, CY_I32), &axis, 1, true);
}

/* A zero point or scale of the left operand is per row: [m] -> [m, 1]; the right one's is per column: [n] broadcasts as
 * it is. */
static cy_val left_parameter(cy_importer *im, cy_val v) {
  v = per_tensor(im, v);
  return v && cy_onnx_type(im, v)->rank == 1 ? cy_build_unsqueeze(im->g, v, 1) : v;
}

static cy_val integer_matmul(cy_importer *im, cy_val a, cy_val b, cy_val za, cy_val zb) {
  if (cy_onnx_type(im, a)->rank < 2 || cy_onnx_type(im, b)->rank < 2) {
    a = is_zero(im, za) ? a : SUB(CAST(a, CY_I32), CAST(per_tensor(im, za), CY_I32));
    b = is_zero(im, zb) ? b : SUB(CAST(b, CY_I32), CAST(per_tensor(im, zb), CY_I32));
    return cy_onnx_matmul(im, a, b, CY_I32);
  }
  cy_val left = is_zero(im, za) ? 0 : left_parameter(im, za), right = is_zero(im, zb) ? 0 : per_tensor(im, zb);
  if ((!left || cy_onnx_type(im, left)->rank == 0) && (!right || cy_onnx_type(im, right)->rank <= 1)) {
    cy_type type = {.dtype = CY_I32};
    return cy_build(im->g, CY_OP_matmul, (cy_val[]){a, b, left, right}, right ? 4 : left ? 3 : 2, NULL, 0, &type, 1);
  }
  cy_val y = cy_build_matmul(im->g, a, b, CY_I32);
  left = left ? CAST(left, CY_I32) : 0;
  right = right ? CAST(right, CY_I32) : 0;
  if (left)
    y = SUB(y, MUL(left, sum_of(im, b, 2)));
  if (right)
    y = SUB(y, MUL(right, sum_of(im, a, 1)));
  if (left && right) {
    cy_dim k = cy_onnx_type(im, a)->dim[cy_onnx_type(im, a)->rank - 1];
    y = ADD(y, MUL(MUL(left, right), CAST(cy_build_dim_scalar(im->g, k), CY_I32)));
  }
  return y;
}

IMPORT(matmul_integer) { return SET(integer_matmul(im, X, n->in[1], n->in[2], n->in[3])); }

static cy_val with_bias(cy_importer *im, cy_val y, cy_val bias) { return y && bias ? ADD(y, bias) : y; }

static cy_val as_f32(cy_importer *im, cy_val v) { return v ? CAST(v, CY_F32) : 0; }

/* A, B, their scales, their zero points, bias. */
IMPORT(matmul_integer_to_float) {
  cy_val acc = integer_matmul(im, X, n->in[1], n->in[4], n->in[5]);
  if (!check_scale(im, n->in[2]) || !check_scale(im, n->in[3]))
    return false;
  cy_val scale = MUL(left_parameter(im, n->in[2]), per_tensor(im, n->in[3]));
  return SET(with_bias(im, acc && scale ? MUL(as_f32(im, acc), scale) : 0, n->in[6]));
}

bool cy_onnx_round(cy_importer *im, cy_val x, cy_onnx_rounded *out) {
  out->ints = quantize_dynamically(im, x, &out->scale, &out->zero);
  return out->ints != 0;
}

cy_val cy_onnx_rounded_product(cy_importer *im, const cy_onnx_rounded *a, cy_val b, cy_val scale, cy_val zero) {
  if (!check_scale(im, scale) || !check_zero(im, zero, (cy_dtype)cy_onnx_type(im, b)->dtype))
    return 0;
  cy_val acc = integer_matmul(im, a->ints, b, a->zero, zero);
  scale = MUL(a->scale, per_tensor(im, scale));
  return acc && scale ? MUL(as_f32(im, acc), scale) : 0;
}

/* A in f32, B, its scale and zero point, bias. */
IMPORT(dynamic_quantize_matmul) {
  cy_onnx_rounded a;
  return cy_onnx_round(im, X, &a) &&
         SET(with_bias(im, cy_onnx_rounded_product(im, &a, n->in[1], n->in[2], n->in[3]), n->in[4]));
}

/* acc * ratio, rounded, plus the zero point, saturated to its type. */
static cy_val requantize(cy_importer *im, cy_val acc, cy_val ratio, cy_val zp) {
  if (!acc || !ratio || !zp)
    return 0;
  cy_val in[3] = {MUL(CAST(acc, CY_F32), ratio), cy_build_scalar(im->g, CY_F32, 1), single(im, zp, "input 'y_zero_point'")};
  return in[2] ? quantize(im, in, 0, 0, 1, cy_onnx_type(im, zp)->dtype) : 0;
}

IMPORT(qlinear_matmul) {
  if (!check_scale(im, n->in[1]) || !check_scale(im, n->in[4]) || !check_scale(im, n->in[6]))
    return false;
  cy_val acc = integer_matmul(im, X, n->in[3], n->in[2], n->in[5]);
  cy_val ratio = DIV(MUL(as_f32(im, left_parameter(im, n->in[1])), as_f32(im, per_tensor(im, n->in[4]))),
                     as_f32(im, single(im, n->in[6], "input 'y_scale'")));
  return SET(requantize(im, acc, ratio, n->in[7]));
}

static cy_val integer_conv(cy_importer *im, const cy_onnx_node *n, cy_val x, cy_val w, cy_val zx, cy_val zw) {
  zx = is_zero(im, zx) ? 0 : per_tensor(im, zx);
  zw = is_zero(im, zw) ? 0 : per_tensor(im, zw);
  return cy_onnx_conv_zeros(im, n, x, w, zx, zw, CY_I32);
}

IMPORT(conv_integer) { return SET(integer_conv(im, n, X, n->in[1], n->in[2], n->in[3])); }

IMPORT(qlinear_conv) {
  if (!check_scale(im, n->in[1]) || !check_scale(im, n->in[4]) || !check_scale(im, n->in[6]))
    return false;
  int rank = cy_onnx_type(im, X)->rank;
  cy_val acc = integer_conv(im, n, X, n->in[3], n->in[2], n->in[5]);
  if (n->in[8])
    acc = ADD(acc, cy_onnx_per_channel(im, n->in[8], "input 'B'", acc, 1));
  cy_val ratio = DIV(MUL(per_tensor(im, n->in[1]), per_tensor(im, n->in[4])), single(im, n->in[6], "input 'y_scale'"));
  return SET(requantize(im, acc, cy_onnx_channel(im, ratio, rank, 1), n->in[7]));
}
