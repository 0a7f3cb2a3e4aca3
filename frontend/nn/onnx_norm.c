/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_norm.c - normalisations and softmax.
 *
 * Batch normalisation at inference is a multiply and an add with constants per channel (which passes fold into
 * convolutions). The others are the IR's `normalize` with a scale and a shift behind it; it computes in f32 at least,
 * with two passes.
 */
#include "frontend/import_int.h"

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))

static cy_val scale_shift(cy_importer *im, cy_val y, cy_val scale, cy_val shift) {
  if ((y && scale && !cy_onnx_fits_into(im, "the scale", scale, y)) ||
      (y && shift && !cy_onnx_fits_into(im, "the bias", shift, y)))
    return 0;
  y = scale ? MUL(y, scale) : y;
  return shift ? ADD(y, shift) : y;
}

/* The same for channels, which are axis 1: one number for each. */
static cy_val channels_scale_shift(cy_importer *im, cy_val y, cy_val scale, cy_val shift) {
  shift = cy_onnx_per_channel(im, shift, "input 'bias'", y, 1);
  scale = cy_onnx_per_channel(im, scale, "input 'scale'", y, 1);
  return scale && shift ? scale_shift(im, y, scale, shift) : 0;
}

/* An attribute says so since operator set 14; before, that the node has more outputs than one, even if nobody uses them:
 * exporters write it to standardise weights, too. */
static bool batch_norm_trains(cy_importer *im, const cy_onnx_node *n) {
  bool more = cy_onnx_wants(n, 1);
  for (uint32_t i = 1; i < n->nout; i++)
    more |= n->written->output[i][0] != 0;
  return n->version >= 14 ? cy_onnx_int(im, n, "training_mode", 0) != 0 : more;
}

/* Training mode: statistics of this batch; as further outputs the running ones and, before operator set 14, its own. */
static bool batch_norm_training(cy_importer *im, const cy_onnx_node *n, double epsilon) {
  const cy_type t = *cy_onnx_type(im, X);
  int64_t axes[CY_MAX_RANK];
  uint32_t count = 0;
  for (int i = 0; i < t.rank; i++)
    if (i != 1)
      axes[count++] = i;
  double momentum = cy_onnx_float(im, n, "momentum", 0.9);
  cy_val mean = cy_onnx_mean(im, X, axes, count, true), d = SUB(X, mean),
         var = cy_onnx_mean(im, MUL(d, d), axes, count, true);
  cy_val now[2] = {mean, var};
  for (uint32_t i = 0; i < 2; i++) {
    if (cy_onnx_wants(n, i + 3) && !cy_importer_set(im, n, i + 3, cy_build_reshape(im->g, now[i], &t.dim[1], 1)))
      return false;
    if (!cy_onnx_wants(n, i + 1))
      continue;
    cy_val flat = cy_build_reshape(im->g, now[i], &t.dim[1], 1), old = n->in[3 + i];
    if (!cy_importer_set(im, n, i + 1,
                         CAST(ADD(MUL(old, LIKE(old, momentum)),
                                  MUL(CAST(flat, cy_onnx_type(im, old)->dtype), LIKE(old, 1 - momentum))),
                              cy_onnx_type(im, old)->dtype)))
      return false;
  }
  cy_val y = DIV(d, UNARY(sqrt, ADD(var, LIKE(var, epsilon))));
  return SET(channels_scale_shift(im, y, n->in[1], n->in[2]));
}

IMPORT(batch_norm) {
  static const char *const items[] = {"input 'scale'", "input 'B'", "input 'input_mean'", "input 'input_var'"};
  const cy_type *t = cy_onnx_type(im, X);
  double epsilon = cy_onnx_float(im, n, "epsilon", 1e-5);
  if (t->rank < 2)
    return cy_build_error(im->g, NULL, "expected [batch, channels, ..], found %s", cy_type_text(im->g, t));
  for (int k = 0; k < 4; k++)
    if (!cy_onnx_per_channel(im, n->in[k + 1], items[k], X, 1))
      return false;
  if (batch_norm_trains(im, n))
    return batch_norm_training(im, n, epsilon);
  cy_dtype dtype = t->dtype, stat = cy_onnx_type(im, n->in[4])->dtype;
  cy_val scale = DIV(CAST(n->in[1], stat), UNARY(sqrt, ADD(n->in[4], LIKE(n->in[4], epsilon))));
  cy_val shift = SUB(CAST(n->in[2], stat), MUL(n->in[3], scale));
  if (!scale || !shift)
    return false;
  cy_val y = channels_scale_shift(im, CAST(X, stat), scale, shift);
  return SET(y ? CAST(y, dtype) : 0);
}

IMPORT(instance_norm) {
  const cy_type *t = cy_onnx_type(im, X);
  int64_t axes[CY_MAX_RANK];
  if (t->rank < 3)
    return cy_build_error(im->g, NULL, "expected [batch, channels, spatial..], found %s", cy_type_text(im->g, t));
  for (int i = 2; i < t->rank; i++)
    axes[i - 2] = i;
  cy_val y = cy_onnx_normalize(im, X, axes, (uint32_t)t->rank - 2, cy_onnx_float(im, n, "epsilon", 1e-5), false);
  return SET(channels_scale_shift(im, y, n->in[1], n->in[2]));
}

static bool trailing_axes(cy_importer *im, const cy_onnx_node *n, int64_t *axes, uint32_t *out_n) {
  int rank = cy_onnx_type(im, X)->rank, axis;
  if (!cy_onnx_axis(im, cy_onnx_int(im, n, "axis", -1), rank, &axis))
    return false;
  *out_n = 0;
  for (int i = axis; i < rank; i++)
    axes[(*out_n)++] = i;
  return true;
}

static cy_val inverse_root(cy_importer *im, cy_val square, const int64_t *axes, uint32_t count, double epsilon) {
  cy_val mean = cy_onnx_mean(im, square, axes, count, true);
  return mean ? DIV(LIKE(mean, 1), UNARY(sqrt, ADD(mean, LIKE(mean, epsilon)))) : 0;
}

/* Mean and 1/deviation as outputs 1 and 2 where somebody asks for them. */
static bool layer_norm_statistics(cy_importer *im, const cy_onnx_node *n, const int64_t *axes, uint32_t count,
                                  double epsilon) {
  if (!cy_onnx_wants(n, 1) && !cy_onnx_wants(n, 2))
    return true;
  cy_val x = CAST(X, cy_dtype_real(cy_onnx_type(im, X)->dtype)), mean = cy_onnx_mean(im, x, axes, count, true);
  cy_importer_set(im, n, 1, mean ? CAST(mean, CY_F32) : 0);
  if (!cy_onnx_wants(n, 2))
    return mean != 0;
  cy_val d = SUB(x, mean), deviation = inverse_root(im, MUL(d, d), axes, count, epsilon);
  return cy_importer_set(im, n, 2, deviation ? CAST(deviation, CY_F32) : 0);
}

IMPORT(layer_norm) {
  int64_t axes[CY_MAX_RANK];
  uint32_t count;
  double epsilon = cy_onnx_float(im, n, "epsilon", 1e-5);
  if (!trailing_axes(im, n, axes, &count) || !layer_norm_statistics(im, n, axes, count, epsilon))
    return false;
  if (!cy_onnx_broadcasts_to(im, n->in[1], "input 'Scale'", X) || !cy_onnx_broadcasts_to(im, n->in[2], "input 'B'", X))
    return false;
  return SET(scale_shift(im, cy_onnx_normalize(im, X, axes, count, epsilon, false), n->in[1], n->in[2]));
}

IMPORT(rms_norm) {
  int64_t axes[CY_MAX_RANK];
  uint32_t count;
  double epsilon = cy_onnx_float(im, n, "epsilon", 1e-5);
  if (!trailing_axes(im, n, axes, &count) || !cy_onnx_broadcasts_to(im, n->in[1], "input 'scale'", X))
    return false;
  if (cy_onnx_wants(n, 1)) { /* of SimplifiedLayerNormalization: 1 over the root */
    cy_val x = CAST(X, cy_dtype_real(cy_onnx_type(im, X)->dtype)),
           root = inverse_root(im, MUL(x, x), axes, count, epsilon);
    if (!cy_importer_set(im, n, 1, root ? CAST(root, CY_F32) : 0))
      return false;
  }
  cy_dtype dtype = cy_onnx_type(im, n->in[1])->dtype;
  cy_val y = cy_onnx_normalize(im, X, axes, count, epsilon, true);
  return SET(y && cy_onnx_fits_into(im, "the scale", n->in[1], y) ? MUL(CAST(y, dtype), n->in[1]) : 0);
}

cy_val cy_onnx_group_normalize(cy_importer *im, cy_val x, int64_t groups, double epsilon) {
  const cy_type *t = cy_onnx_type(im, x);
  cy_dim d[3] = {t->dim[0], cy_dim_const(im->g, groups),
                 cy_dim_div(im->g, cy_type_elems(im->g, t), cy_dim_muli(im->g, t->dim[0], groups))};
  const int64_t axis = 2;
  return cy_onnx_normalize(im, cy_build_reshape(im->g, x, d, 3), &axis, 1, epsilon, false);
}

/* Scale and shift come per group (opset 18) or per channel (21). */
IMPORT(group_norm) {
  const cy_type t = *cy_onnx_type(im, X);
  int64_t groups = cy_onnx_int(im, n, "num_groups", 0), c;
  if (t.rank < 2 || groups < 1 || (cy_dim_is_const(im->g, t.dim[1], &c) && c % groups))
    return cy_build_error(im->g, "attribute 'num_groups'", "%lld groups do not fit %s", (long long)groups,
                          cy_type_text(im->g, &t));
  cy_val y = cy_onnx_group_normalize(im, X, groups, cy_onnx_float(im, n, "epsilon", 1e-5));
  if (n->since < 21) {
    y = channels_scale_shift(im, y, n->in[1], n->in[2]);
    return SET(cy_build_reshape(im->g, y, t.dim, t.rank));
  }
  y = cy_build_reshape(im->g, y, t.dim, t.rank);
  return SET(channels_scale_shift(im, y, n->in[1], n->in[2]));
}

/* x / (bias + alpha * mean of squares over neighbouring channels) ^ beta; the mean is a pooling along the channels. */
IMPORT(lrn) {
  const cy_type t = *cy_onnx_type(im, X);
  int64_t size = cy_onnx_int(im, n, "size", 0);
  if (t.rank < 3 || size < 1 || size > 1 << 20)
    return cy_build_error(im->g, NULL,
                          "expected [batch, channels, spatial..] and a size of 1 or more, found %s and %lld",
                          cy_type_text(im->g, &t), (long long)size);
  cy_dim rest = cy_dim_const(im->g, 1), one = rest;
  for (int i = 2; i < t.rank; i++)
    rest = cy_dim_mul(im->g, rest, t.dim[i]);
  cy_dim d[4] = {t.dim[0], one, t.dim[1], rest}, pads[4] = {cy_dim_const(im->g, (size - 1) / 2), cy_dim_const(im->g, 0),
                                                            cy_dim_const(im->g, size / 2), cy_dim_const(im->g, 0)};
  int64_t kernel[2] = {size, 1}, ones[2] = {1, 1};
  cy_attr a[5] = {cy_attr_ints(CY_ATTR_kernel, kernel, 2), cy_attr_ints(CY_ATTR_strides, ones, 2),
                  cy_attr_dims(CY_ATTR_pads, pads, 4), cy_attr_ints(CY_ATTR_dilations, ones, 2),
                  cy_attr_int(CY_ATTR_count_include_pad, 1)};
  cy_type type = cy_type_make(t.dtype, 4, d);
  cy_val squares = cy_build_reshape(im->g, MUL(X, X), d, 4);
  cy_val mean = cy_build(im->g, CY_OP_pool_avg, &squares, 1, a, 5, &type, 1);
  cy_val base = ADD(MUL(cy_build_reshape(im->g, mean, t.dim, t.rank), LIKE(X, cy_onnx_float(im, n, "alpha", 1e-4))),
                    LIKE(X, cy_onnx_float(im, n, "bias", 1)));
  return SET(DIV(X, BINARY(pow, base, LIKE(X, cy_onnx_float(im, n, "beta", 0.75)))));
}

IMPORT(lp_norm) {
  int axis;
  int64_t p = cy_onnx_int(im, n, "p", 2);
  if (!cy_onnx_axis(im, cy_onnx_int(im, n, "axis", -1), cy_onnx_type(im, X)->rank, &axis))
    return false;
  if (p != 1 && p != 2)
    return cy_build_error(im->g, "attribute 'p'", "expected 1 or 2, found %lld", (long long)p);
  int64_t at = axis;
  cy_val sum = cy_build_reduce(im->g, CY_OP_reduce_sum, p == 1 ? UNARY(abs, X) : MUL(X, X), &at, 1, true);
  cy_val norm = p == 1 ? sum : UNARY(sqrt, sum);
  return SET(SELECT(BINARY(eq, norm, LIKE(X, 0)), LIKE(X, 0), DIV(X, norm)));
}

/* Before operator set 9, when it was experimental, attributes said whether channels share a mean and whether to divide.
 */
IMPORT(mean_variance_norm) {
  static const int64_t usual[3] = {0, 2, 3};
  bool early = n->version < 9, across = early && cy_onnx_int(im, n, "across_channels", 0) != 0;
  uint32_t count;
  int64_t axes[CY_MAX_RANK];
  int rank = cy_onnx_type(im, X)->rank;
  if (!cy_onnx_axes(im, n, 0, rank, axes, &count))
    return false;
  for (; count == 0 && !cy_onnx_has(n, "axes") && rank == 4; count = 3)
    for (int i = 0; i < 3; i++)
      axes[i] = usual[i];
  if (across && rank <= CY_MAX_RANK)
    for (count = 0; count < (uint32_t)rank; count++)
      axes[count] = count;
  cy_val d = SUB(X, cy_onnx_mean(im, X, axes, count, true));
  if (early && !cy_onnx_int(im, n, "normalize_variance", 1))
    return SET(d);
  cy_val deviation = UNARY(sqrt, cy_onnx_mean(im, MUL(d, d), axes, count, true));
  return SET(DIV(d, ADD(deviation, LIKE(X, 1e-9))));
}

/* ---- softmax ---- */

static cy_val along(cy_importer *im, int op, cy_val x, int axis) {
  if (!x)
    return 0;
  cy_attr a[3] = {cy_attr_int(CY_ATTR_axis, axis)};
  if (op != CY_OP_argmax)
    return cy_build(im->g, (cy_op)op, &x, 1, a, 1, NULL, 1);
  a[1] = cy_attr_int(CY_ATTR_keepdims, 1);
  a[2] = cy_attr_int(CY_ATTR_select_last, 0);
  cy_val at = cy_build(im->g, CY_OP_argmax, &x, 1, a, 3, NULL, 1);
  const cy_type t = *cy_onnx_type(im, x);
  return CAST(BINARY(eq, cy_build_iota(im->g, CY_I64, t.dim, t.rank, axis), at), t.dtype);
}

/* The argument is the op; before opset 13 the tensor is a matrix [before axis, from axis]. */
IMPORT(softmax) {
  const cy_type t = *cy_onnx_type(im, X);
  int axis;
  if (t.rank == 0)
    return cy_build_error(im->g, NULL, "expected a tensor of rank 1 or more");
  if (!cy_onnx_axis(im, cy_onnx_int(im, n, "axis", n->version < 13 ? 1 : -1), t.rank + (n->version < 13 && t.rank == 1),
                    &axis))
    return false;
  if (n->version >= 13 || axis == t.rank - 1)
    return SET(along(im, n->arg, X, axis));
  return SET(cy_build_reshape(im->g, along(im, n->arg, cy_onnx_flatten2(im, X, axis), 1), t.dim, t.rank));
}
