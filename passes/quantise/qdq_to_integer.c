/* SPDX-License-Identifier: Apache-2.0 */
/* qdq_to_integer.c - integer arithmetic where a quantised model says so: contractions between dequantize and quantize,
 * and data movement of 8-bit values.
 *
 * In:  a swept graph; run once before constants are folded (dequantised weights would be float constants then) and once
 *      after (biases are constants then). Out, by rules:
 *   contraction   conv, conv_transpose or matmul of two dequantised operands becomes one of their integers, times both
 *                 scales; a transposed one a conv that shuffles its channels. The left operand's scale and zero point
 *                 are scalars, the right one's may be per output channel. Constant weights, also those of products that
 *                 come as integers, lose their zero point: s8 where that fits; where the target multiplies bytes of any
 *                 signs (mixed_bytes) u8, or else they keep it. On other targets, large ones of a matmul become s8, too,
 *                 and what is left of the zero point is taken times the sum of each row of the left operand from the
 *                 result; others become i16. Weights that were folded to floats become
 *                 the integers again that they are multiples of.
 *   float8        (where the target multiplies them) products and convolutions of one group of two dequantised operands of
 *                 f8e4m3fn or f8e5m2, whatever either is: of the operands as they are, sums in f32, times both scales
 *   moving        dequantize moves down through views, maximum pools, resizing to the nearest element, padding, and
 *                 concatenations of equal scales, so that 8 bits are moved; at its end, quantize(dequantize(x)) with
 *                 equal parameters is x. Where scales differ by channel (weights), through views that keep the channels
 *                 apart. quantize moves up through concatenations of what is dequantised.
 *   requantise    the division of a quantize by its constant scale moves into the constants behind it: scales, biases,
 *                 bounds. What is left is one fma, a clamp and a conversion per element.
 *   factors       factors per channel in front of a quantize move there likewise.
 *   clamp         a bound in front of a quantize that its own clamp implies is left out; other upper bounds become
 *                 bounds of bytes behind it.
 *   constant      (the second time) constants that are still dequantised when the model runs.
 *   silu          (likewise) quantize(x * sigmoid(x)) of integers times constants is computed in 16-bit integers.
 * Behind them zero points and biases become what sums begin with (qdq_starts.c).
 *
 * The first two are exact. `requantise` rounds products of constants once more, so results may fall on the other side of
 * a tie between two steps; `silu` is off by 0.0007 and half of 2^-15 of a channel's range, before it rounds. Refused:
 * operands of other types than s8 and u8 (4-bit constants are widened), scales that differ along other axes, sums that
 * may leave 31 bits.
 */
#include "quantise_int.h"

#include <math.h>
#include <string.h>

enum { MAX_K = 33000 }; /* 255 * 255 * k stays below 2^31 */
/* Weights and columns, from which on sums of rows are cheap beside the product. */
enum { MIN_SPLIT = 1 << 14, MIN_COLUMNS = 64 };

/* ---- what is dequantised ---- */

typedef struct source {
  cy_val x, scale, zero; /* zero: 0 when there is none, or all are 0 */
  int axis;              /* along which scale and zero differ; -1: scalars */
} source;

static bool is_single(const cy_graph *g, cy_val v) { return cy_type_count(g, cy_type_of(g, v)) == 1; }

static bool read_source(cy_graph *g, const cy_node_info *d, source *out) {
  cy_val zero = d->nin > 2 && !cy_splat_is(g, d->in[2], 0) ? d->in[2] : 0;
  *out = (source){d->in[0], d->in[1], zero, -1};
  if (cy_attr_get_int(d, CY_ATTR_block_size, 0) || cy_type_of(g, d->out[0])->dtype != CY_F32 ||
      cy_type_of(g, out->scale)->dtype != CY_F32)
    return false;
  if (!is_single(g, out->scale) || (zero && !is_single(g, zero)))
    out->axis = (int)cy_attr_get_int(d, CY_ATTR_axis, 0);
  return true;
}

static bool is_byte(const cy_graph *g, cy_val v) { return cy_dtype_is_byte((cy_dtype)cy_type_of(g, v)->dtype); }

static bool is_float8(const cy_graph *g, cy_val v) { return cy_dtype_is_float8((cy_dtype)cy_type_of(g, v)->dtype); }

/* .. of a type that products take: where the target multiplies floats of 8 bits, these, too. */
static bool is_narrow(const cy_rewrite *rw, cy_val v) {
  return is_byte(rw->g, v) || (cy_caps_of(rw->pass->options->caps)->float8 && is_float8(rw->g, v));
}

/* The dequantize behind v, of a tensor whose scale and zero point are scalars. */
static const cy_node_info *single(cy_graph *g, cy_val v, source *out) {
  const cy_node_info *d = cy_def_of(g, v, CY_OP_dequantize);
  return d && read_source(g, d, out) && out->axis < 0 ? d : NULL;
}
static const cy_node_info *per_tensor(cy_graph *g, cy_val v, source *out) {
  const cy_node_info *d = single(g, v, out);
  return d && is_byte(g, out->x) ? d : NULL;
}

static cy_val scalar(cy_graph *g, cy_val v) {
  return v && cy_type_of(g, v)->rank ? cy_build_reshape(g, v, NULL, 0) : v;
}

/* ---- weights ---- */

/* How the target wants weights from `low` to `high`, less their zero point. CY_NONE: with it, as they are. */
static cy_dtype weight_type(const cy_rewrite *rw, cy_dtype from, int64_t low, int64_t high) {
  if (low >= -128 && high <= 127)
    return CY_I8;
  if (!cy_caps_of(rw->pass->options->caps)->mixed_bytes)
    return CY_I16;
  return low >= 0 && high <= 255 ? CY_U8 : cy_dtype_is_byte(from) ? CY_NONE : CY_I16;
}

/* Should weights of n, which had to become i16, stay bytes, for split_zero()? */
static bool stays_bytes(const cy_graph *g, const cy_node_info *n, const source *s) {
  const cy_type *t = cy_type_of(g, s->x), *out = cy_type_of(g, n->out[0]);
  int64_t columns;
  return n->op == CY_OP_matmul && t->rank == 2 && is_byte(g, s->x) && is_byte(g, n->in[0]) &&
         cy_type_count(g, t) >= MIN_SPLIT && cy_dim_is_const(g, out->dim[out->rank - 1], &columns) &&
         columns >= MIN_COLUMNS;
}

/* s's elements, of n's weights, less the zero points along its axis, of weight_type(); *out_zero: the zero point that is
 * left, or 0. 0: not a constant of integers. */
static cy_val without_zero(cy_rewrite *rw, const cy_node_info *n, const source *s, cy_val *out_zero) {
  cy_graph *g = rw->g;
  const cy_type *t = cy_type_of(g, s->x);
  int64_t dims[CY_MAX_RANK], low = 0, high = 0;
  uint64_t count = cy_type_count(g, t), inner = 1, along = 1;
  cy_dtype from = (cy_dtype)t->dtype;
  if (!cy_dtype_is_int(from) || !cy_value_is_const(g, s->x) || !count || !cy_type_static(g, t, dims) ||
      cy_dtype_of(from)->bits > 8 || (s->zero && !cy_value_is_const(g, s->zero)))
    return 0;
  if (s->axis >= t->rank)
    return 0;
  for (int i = s->axis + 1; s->axis >= 0 && i < t->rank; i++)
    inner *= (uint64_t)dims[i];
  along = s->axis >= 0 ? (uint64_t)dims[s->axis] : 1;
  bool many = s->zero && !is_single(g, s->zero);
  if (many && cy_type_count(g, cy_type_of(g, s->zero)) != along)
    return 0;
  const void *bytes = cy_value_of(g, s->x)->data.bytes, *zeros = s->zero ? cy_value_of(g, s->zero)->data.bytes : NULL;
  if (!bytes || (s->zero && !zeros))
    return 0;
  for (int store = 0;; store++) {
    cy_val out = 0;
    cy_type type = *t;
    type.dtype = weight_type(rw, from, low, high);
    if (store && type.dtype == CY_I16 && stays_bytes(g, n, s))
      type.dtype = CY_NONE;
    *out_zero = type.dtype == CY_NONE ? s->zero : 0;
    if (store && (type.dtype == CY_NONE || (type.dtype == t->dtype && !s->zero)))
      return s->x;
    void *to = store ? cy_const_new(g, &type, &out) : NULL;
    for (uint64_t i = 0; i < count; i++) {
      int64_t v = cy_scalar_load(bytes, from, i).i;
      if (zeros)
        v -= cy_scalar_load(zeros, (cy_dtype)cy_type_of(g, s->zero)->dtype, many ? i / inner % along : 0).i;
      low = v < low ? v : low;
      high = v > high ? v : high;
      if (store)
        cy_scalar_store(to, (cy_dtype)type.dtype, i, (cy_scalar){.i = v});
    }
    if (store)
      return out;
  }
}

/* A scale for each output channel of n, or a single one, shaped to broadcast along them. */
static cy_val along_channels(cy_graph *g, const cy_node_info *n, cy_val scale) {
  bool each = cy_quant_is_conv(n) && cy_type_of(g, scale)->rank;
  return each ? cy_quant_along_channels(g, n, scale) : scale;
}

/* The right operand: a constant in floats that are multiples of steps, as folded ones are. */
static bool right_floats(cy_graph *g, const cy_node_info *n, cy_val *in, cy_val *scale) {
  int rank = cy_type_of(g, n->in[1])->rank;
  if (n->op == CY_OP_matmul && rank != 2)
    return false;
  *in = cy_weights_on_grid(g, n->in[1], cy_quant_weight_axis(g, n), scale);
  *scale = *in ? along_channels(g, n, *scale) : 0;
  return *in != 0;
}

/* Is the scale of n's right operand, which is s transposed by perm (NULL: as it is), one or one for each output channel? */
static bool scales_by_output(const cy_graph *g, const cy_node_info *n, const source *s, const int64_t *perm) {
  int rank = cy_type_of(g, s->x)->rank, wanted = perm ? (int)perm[rank - 1] : cy_quant_weight_axis(g, n);
  return s->axis < 0 || (s->axis == wanted && (cy_quant_is_conv(n) || rank == 2));
}

/* The right operand: a dequantize, maybe transposed. `in` becomes the integers and their zero point, or 0; scale is
 * reshaped to broadcast along the output's channels. */
static bool right_operand(cy_rewrite *rw, const cy_node_info *n, cy_val *in, cy_val *zero, cy_val *scale) {
  cy_graph *g = rw->g;
  bool conv = cy_quant_is_conv(n);
  if (cy_value_is_const(g, n->in[1]))
    return right_floats(g, n, in, scale);
  const cy_node_info *transpose = cy_def_of(g, n->in[1], CY_OP_transpose);
  const cy_node_info *d = cy_def_of(g, transpose ? transpose->in[0] : n->in[1], CY_OP_dequantize);
  source s;
  uint32_t rank;
  if (!d || !read_source(g, d, &s) || (conv && transpose) || !cy_dtype_is_int((cy_dtype)cy_type_of(g, s.x)->dtype))
    return false;
  const int64_t *perm = transpose ? cy_attr_list(transpose, CY_ATTR_perm, &rank) : NULL;
  if (!scales_by_output(g, n, &s, perm))
    return false;
  cy_val left = s.zero, w = without_zero(rw, n, &s, &left);
  if (!w && (!is_byte(g, s.x) || conv || !n->in[0]))
    return false;
  *zero = left && is_single(g, left) ? scalar(g, left) : left;
  *in = w ? w : s.x;
  if (transpose)
    *in = cy_build_transpose(g, *in, perm);
  *scale = is_single(g, s.scale) ? scalar(g, s.scale) : s.scale;
  *scale = along_channels(g, n, *scale);
  return *in && *scale;
}

/* How many products a sum has; 0: not known. */
static int64_t sum_length(const cy_graph *g, const cy_node_info *n) {
  const cy_type *t = cy_type_of(g, n->in[1]);
  int64_t d[CY_MAX_RANK], k = 1;
  if (!cy_type_static(g, t, d))
    return 0;
  if (n->op == CY_OP_matmul)
    return d[t->rank - 2];
  for (int i = 0; i < t->rank; i++)
    k = k > MAX_K || i == cy_quant_weight_axis(g, n) ? k : k * d[i];
  return k;
}

/* What d dequantises, where that is of floats of 8 bits without a zero point; d's result may be halves, too, as then its scale. */
static bool read_float8(cy_graph *g, const cy_node_info *d, source *out) {
  bool zero = d->nin > 2 && d->in[2] && !cy_splat_is(g, d->in[2], 0);
  *out = (source){d->in[0], d->in[1], 0, -1};
  if (zero || !is_float8(g, out->x) || cy_attr_get_int(d, CY_ATTR_block_size, 0) ||
      cy_dtype_of((cy_dtype)cy_type_of(g, out->scale)->dtype)->bits > 32)
    return false;
  if (!is_single(g, out->scale))
    out->axis = (int)cy_attr_get_int(d, CY_ATTR_axis, 0);
  out->scale = cy_build_cast(g, out->scale, CY_F32);
  return true;
}

static bool narrows(const cy_graph *g, const cy_node_info *n) {
  cy_dtype to = n && n->op == CY_OP_cast ? (cy_dtype)cy_type_of(g, n->out[0])->dtype : CY_NONE;
  return (to == CY_F16 || to == CY_BF16) && cy_type_of(g, n->in[0])->dtype == CY_F32;
}

/* What defines v; of halves of f32, as models in halves have them behind a dequantize, what defines that. */
static const cy_node_info *defining(const cy_graph *g, cy_val v, cy_op op) {
  const cy_node_info *n = cy_def(g, v);
  n = narrows(g, n) ? cy_def(g, n->in[0]) : n;
  return n && n->op == op ? n : NULL;
}

/* The right operand in floats of 8 bits: a dequantize, maybe transposed, whose scale is one or differs by output channel. */
static bool right_float8(cy_graph *g, const cy_node_info *n, cy_val *in, cy_val *scale) {
  bool conv = cy_quant_is_conv(n);
  const cy_node_info *transpose = conv ? NULL : defining(g, n->in[1], CY_OP_transpose);
  const cy_node_info *d = defining(g, transpose ? transpose->in[0] : n->in[1], CY_OP_dequantize);
  source s;
  uint32_t rank;
  if (!d || !read_float8(g, d, &s))
    return false;
  const int64_t *perm = transpose ? cy_attr_list(transpose, CY_ATTR_perm, &rank) : NULL;
  if (!scales_by_output(g, n, &s, perm))
    return false;
  *in = transpose ? cy_build_transpose(g, s.x, perm) : s.x;
  *scale = along_channels(g, n, is_single(g, s.scale) ? scalar(g, s.scale) : s.scale);
  return *in && *scale;
}

/* A product of floats of 8 bits, whose sums are f32, times both scales; of a model in halves a half of that. */
static cy_val float8(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  source a;
  cy_val in[2], scale;
  const cy_node_info *d = defining(g, n->in[0], CY_OP_dequantize);
  bool one_group = n->op == CY_OP_matmul || cy_attr_get_int(n, CY_ATTR_group, 1) == 1;
  if (!cy_caps_of(rw->pass->options->caps)->float8 || n->nin > 2 || !one_group || !d || !read_float8(g, d, &a) ||
      a.axis >= 0 || !right_float8(g, n, &in[1], &scale))
    return 0;
  cy_type type = *cy_type_of(g, n->out[0]);
  type.dtype = CY_F32;
  in[0] = a.x;
  cy_val sum = cy_build(g, (cy_op)n->op, in, 2, n->attrs, n->nattrs, &type, 1);
  sum = cy_build_binary(g, CY_OP_mul, sum, cy_build_binary(g, CY_OP_mul, scalar(g, a.scale), scale));
  return cy_build_cast(g, sum, (cy_dtype)cy_type_of(g, n->out[0])->dtype);
}

static cy_val contraction(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  source a;
  cy_val in[4] = {0}, scale;
  if (n->nin > 2 || cy_type_of(g, n->out[0])->dtype != CY_F32 || !per_tensor(g, n->in[0], &a) ||
      sum_length(g, n) > MAX_K || !right_operand(rw, n, &in[1], &in[3], &scale))
    return 0;
  in[0] = a.x;
  in[2] = scalar(g, a.zero);
  cy_type type = *cy_type_of(g, n->out[0]);
  type.dtype = CY_I32;
  cy_val sum;
  if (n->op == CY_OP_conv_transpose)
    sum = in[3] ? 0 : cy_shuffle_integers(g, n, in[0], in[1], in[2]);
  else
    sum = cy_build(g, (cy_op)n->op, in, in[3] ? 4 : in[2] ? 3 : 2, n->attrs, n->nattrs, &type, 1);
  scale = cy_build_binary(g, CY_OP_mul, scalar(g, a.scale), scale);
  return sum ? cy_build_binary(g, CY_OP_mul, cy_build_cast(g, sum, CY_F32), scale) : 0;
}

/* Constant weights of u8, less 128. */
static cy_val flipped(cy_graph *g, cy_val v) {
  cy_type type = *cy_type_of(g, v);
  const uint8_t *from = cy_value_of(g, v)->data.bytes;
  uint64_t count = cy_type_count(g, &type);
  cy_val out;
  type.dtype = CY_I8;
  uint8_t *to = cy_const_new(g, &type, &out);
  for (uint64_t i = 0; i < count; i++)
    to[i] = from[i] ^ 0x80;
  cy_const_made_of(g, out, v);
  return out;
}

/* sum of (x - xz) * (w - z) = sum of (x - xz) * s + (sum of x - k * xz) * (m - z), w being s + m, in s8. Exact: sums wrap. */
static cy_val split_zero(cy_graph *g, const cy_node_info *n, const source *w) {
  cy_val in[3] = {n->in[0], w->x, n->nin > 2 ? n->in[2] : 0}, x = n->in[0], xz = in[2];
  const bool flips = cy_type_of(g, w->x)->dtype == CY_U8;
  const int64_t last = cy_type_of(g, x)->rank - 1;
  if (flips)
    in[1] = flipped(g, w->x);
  cy_val product = cy_build(g, CY_OP_matmul, in, xz ? 3 : 2, n->attrs, n->nattrs, cy_type_of(g, n->out[0]), 1);
  cy_val middle = cy_build_scalar_int(g, CY_I32, flips ? 128 : 0);
  cy_val rest = w->zero ? cy_build_cast(g, w->zero, CY_I32) : cy_build_scalar_int(g, CY_I32, 0);
  cy_val sums = cy_build_reduce(g, CY_OP_reduce_sum, cy_build_cast(g, x, CY_I32), &last, 1, true);
  if (xz) {
    cy_val k = cy_build_scalar_int(g, CY_I32, sum_length(g, n));
    sums = cy_build_binary(g, CY_OP_sub, sums, cy_build_binary(g, CY_OP_mul, cy_build_cast(g, xz, CY_I32), k));
  }
  rest = cy_build_binary(g, CY_OP_sub, middle, is_single(g, rest) ? scalar(g, rest) : rest);
  return cy_build_binary(g, CY_OP_add, product, cy_build_binary(g, CY_OP_mul, sums, rest));
}

/* An integer contraction whose constant weights still have a zero point, or are u8, which not every target packs as
 * bytes. */
static cy_val integer_weights(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  cy_val zero = n->nin > 3 ? n->in[3] : 0;
  source s = {.x = n->in[1], .zero = zero && !cy_splat_is(g, zero, 0) ? zero : 0, .axis = -1};
  const cy_type *t = cy_type_of(g, s.x);
  if (cy_type_of(g, n->out[0])->dtype != CY_I32 || !is_byte(g, n->in[0]) || !is_byte(g, s.x) ||
      (!zero && t->dtype == CY_I8))
    return 0;
  if (s.zero && !is_single(g, s.zero)) {
    s.axis = n->op == CY_OP_conv ? 0 : t->rank - 1;
    if (!cy_dim_is(g, t->dim[s.axis], (int64_t)cy_type_count(g, cy_type_of(g, s.zero))))
      return 0;
  }
  cy_val left = 0, in[3] = {n->in[0], without_zero(rw, n, &s, &left), n->nin > 2 ? n->in[2] : 0};
  if (in[1] == s.x && left == s.zero && !cy_caps_of(rw->pass->options->caps)->mixed_bytes && stays_bytes(g, n, &s))
    return split_zero(g, n, &s);
  if (!in[1] || (in[1] == s.x && left == zero))
    return 0;
  return cy_build(g, (cy_op)n->op, in, in[2] ? 3 : 2, n->attrs, n->nattrs, cy_type_of(g, n->out[0]), 1);
}

/* ---- data movement ---- */

/* Dequantize q as d did; axis: along which parameters differ, now. */
static cy_val dequantize_as(cy_graph *g, const cy_node_info *d, cy_val q, int axis) {
  if (!q)
    return 0;
  cy_val in[3] = {q, d->in[1], d->nin > 2 ? d->in[2] : 0};
  cy_type type = *cy_type_of(g, q);
  cy_attr attrs[2] = {cy_attr_int(CY_ATTR_axis, axis < 0 ? 0 : axis), cy_attr_int(CY_ATTR_block_size, 0)};
  type.dtype = cy_type_of(g, d->out[0])->dtype;
  return cy_build(g, CY_OP_dequantize, in, d->nin, attrs, 2, &type, 1);
}

/* Where view n puts this axis of its operand; -1: nowhere as a whole. */
static int axis_behind(const cy_graph *g, const cy_node_info *n, int axis) {
  const cy_type *from = cy_type_of(g, n->in[0]), *to = cy_type_of(g, n->out[0]);
  int64_t before[CY_MAX_RANK], behind[CY_MAX_RANK], inner = 1, at = 1;
  uint32_t rank;
  const int64_t *perm = n->op == CY_OP_transpose ? cy_attr_list(n, CY_ATTR_perm, &rank) : NULL;
  for (int i = 0; perm && i < from->rank; i++)
    if (perm[i] == axis)
      return i;
  if (n->op != CY_OP_reshape || !cy_type_static(g, from, before) || !cy_type_static(g, to, behind))
    return -1;
  for (int i = axis + 1; i < from->rank; i++)
    inner *= before[i];
  for (int i = to->rank - 1; i >= 0; at *= behind[i--])
    if (at == inner && behind[i] == before[axis])
      return i;
  return -1;
}

static bool equal_constants(const cy_graph *g, cy_val a, cy_val b) {
  if (a == b)
    return true;
  if (!a || !b || cy_type_of(g, a)->dtype != cy_type_of(g, b)->dtype)
    return false;
  const cy_data *x = &cy_value_of(g, a)->data, *y = &cy_value_of(g, b)->data;
  return x->bytes && y->bytes && x->size == y->size && !memcmp(x->bytes, y->bytes, x->size);
}

static bool positive(cy_graph *g, cy_val scale, double *out) {
  return cy_value_is_const(g, scale) && cy_value_is_splat(g, scale, out) && *out > 0 && isfinite(*out);
}

/* Is every element of n's result one of its operand's, in bytes as in floats? */
static bool only_moves(cy_graph *g, const cy_node_info *n, const source *s) {
  double scale;
  if (n->op == CY_OP_pool_max)
    return !is_float8(g, s->x) && positive(g, s->scale, &scale) && cy_type_of(g, n->out[0])->rank <= 5;
  if (n->op == CY_OP_resize) /* a region cropped has a value of its own outside */
    return cy_attr_get_int(n, CY_ATTR_mode, CY_RESIZE_NEAREST) == CY_RESIZE_NEAREST &&
           cy_attr_get_int(n, CY_ATTR_coord, CY_COORD_HALF_PIXEL) != CY_COORD_TF_CROP;
  return true;
}

/* Views and the like: op(dequantize(q), rest..) = dequantize(op(q, rest..)). Of constants the view is computed at once:
 * contractions take them as weights. */
static cy_val moved(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  source s;
  const cy_node_info *d = cy_def_of(g, n->in[0], CY_OP_dequantize);
  if (!d || !read_source(g, d, &s) || !is_narrow(rw, s.x) || !only_moves(g, n, &s))
    return 0;
  int axis = s.axis < 0 ? -1 : axis_behind(g, n, s.axis);
  if (s.axis >= 0 && axis < 0)
    return 0;
  cy_val in[4] = {s.x};
  if (n->nin > 4)
    return 0;
  for (uint32_t i = 1; i < n->nin; i++)
    in[i] = n->in[i];
  cy_type type[2] = {*cy_type_of(g, n->out[0])};
  type[0].dtype = cy_type_of(g, s.x)->dtype;
  if (n->nout > 1)
    type[1] = *cy_type_of(g, n->out[1]);
  bool typed = cy_op_of((cy_op)n->op)->typed;
  cy_val q = cy_build(g, (cy_op)n->op, in, n->nin, n->attrs, n->nattrs, typed ? type : NULL, typed ? n->nout : 0);
  cy_val computed = q && cy_value_of(g, s.x)->data.bytes && cy_def(g, q) ? cy_fold_node(g, cy_def(g, q)) : 0;
  return dequantize_as(g, d, computed ? computed : q, axis);
}

/* Padding by a number that one of the integers stands for, as one does for 0; padding by elements of x. */
static cy_val moved_pad(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  source s;
  double scale, zero = 0, fill = 0;
  const cy_node_info *d = per_tensor(g, n->in[0], &s);
  if (!d || !positive(g, s.scale, &scale) ||
      (s.zero && !(cy_value_is_const(g, s.zero) && cy_value_is_splat(g, s.zero, &zero))) ||
      (n->nin > 1 && n->in[1] && !(cy_value_is_const(g, n->in[1]) && cy_value_is_splat(g, n->in[1], &fill))))
    return 0;
  double q = rint(fill / scale) + zero, min = cy_type_of(g, s.x)->dtype == CY_I8 ? -128 : 0;
  if (!(q >= min && q <= min + 255) || (float)((float)(q - zero) * (float)scale) != (float)fill)
    return 0;
  cy_val in[2] = {s.x, cy_build_scalar_int(g, (cy_dtype)cy_type_of(g, s.x)->dtype, (int64_t)q)};
  return dequantize_as(g, d, cy_build(g, CY_OP_pad, in, 2, n->attrs, n->nattrs, NULL, 0), -1);
}

static cy_val moved_concat(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  source first, s;
  const cy_node_info *d = per_tensor(g, n->in[0], &first);
  cy_val *in = CY_NEW_ARRAY(rw->pass->scratch, cy_val, n->nin);
  for (uint32_t i = 0; d && i < n->nin; i++) {
    if (!per_tensor(g, n->in[i], &s) || !equal_constants(g, s.scale, first.scale) ||
        !equal_constants(g, s.zero, first.zero) || cy_type_of(g, s.x)->dtype != cy_type_of(g, first.x)->dtype)
      return 0;
    in[i] = s.x;
  }
  return d ? dequantize_as(g, d, cy_build(g, CY_OP_concat, in, n->nin, n->attrs, n->nattrs, NULL, 0), -1) : 0;
}

/* quantize(dequantize(x)) with equal parameters: an integer, or a float of 8 bits that has no infinities, times a scale over the
 * same scale rounds to itself. */
static cy_val back(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  source s;
  double scale;
  cy_val zero = n->nin > 2 && !cy_splat_is(g, n->in[2], 0) ? n->in[2] : 0;
  if (cy_attr_get_int(n, CY_ATTR_block_size, 0) || !single(g, n->in[0], &s) ||
      !(is_byte(g, s.x) || (is_narrow(rw, s.x) && cy_type_of(g, s.x)->dtype == CY_F8E4M3FN)) ||
      cy_type_of(g, s.x)->dtype != cy_type_of(g, n->out[0])->dtype || !positive(g, s.scale, &scale) || scale < 1e-30 ||
      scale > 1e30 || !equal_constants(g, s.scale, n->in[1]) || !equal_constants(g, s.zero, zero))
    return 0;
  return s.x;
}

/* quantize(concat(dequantize(a), ..)), of different scales: what is joined is quantised, so that bytes are. */
static cy_val pieces(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  source s;
  const cy_node_info *c = cy_def_of(g, n->in[0], CY_OP_concat);
  if (!c || cy_attr_get_int(n, CY_ATTR_block_size, 0) || !is_byte(g, n->out[0]) || !is_single(g, n->in[1]) ||
      (n->nin > 2 && n->in[2] && !is_single(g, n->in[2])) || !cy_rewrite_single_use(rw, n->in[0]))
    return 0;
  for (uint32_t i = 0; i < c->nin; i++)
    if (!per_tensor(g, c->in[i], &s))
      return 0;
  cy_val *in = CY_NEW_ARRAY(rw->pass->scratch, cy_val, c->nin);
  for (uint32_t i = 0; i < c->nin; i++) {
    cy_val q[3] = {c->in[i], n->in[1], n->nin > 2 ? n->in[2] : 0};
    cy_type type = *cy_type_of(g, c->in[i]);
    type.dtype = cy_type_of(g, n->out[0])->dtype;
    in[i] = cy_build(g, CY_OP_quantize, q, n->nin, n->attrs, n->nattrs, &type, 1);
  }
  return cy_build(g, CY_OP_concat, in, c->nin, c->attrs, c->nattrs, NULL, 0);
}

/* ---- requantising ---- */

/* Can x be had times a constant, one that differs by channel where `many`, by changing constants only? Depth-limited;
 * what others read too would be computed twice. */
static bool can_scale(const cy_rewrite *rw, cy_val x, int depth, bool many) {
  cy_graph *g = rw->g;
  if (cy_value_is_const(g, x))
    return cy_type_count(g, cy_type_of(g, x)) <= 65536;
  const cy_node_info *n = cy_def(g, x);
  double s;
  if (!n || depth == 0 || cy_type_of(g, x)->dtype != CY_F32)
    return false;
  if (n->op == CY_OP_dequantize)
    return n->in[0] && positive(g, n->in[1], &s) && !cy_attr_get_int(n, CY_ATTR_block_size, 0);
  if (!cy_rewrite_single_use(rw, x))
    return false;
  switch (n->op) {
  case CY_OP_mul:
    return cy_value_is_const(g, n->in[1]) && can_scale(rw, n->in[1], depth - 1, many);
  case CY_OP_add:
  case CY_OP_sub:
  case CY_OP_max:
  case CY_OP_min:
    return can_scale(rw, n->in[0], depth - 1, many) && can_scale(rw, n->in[1], depth - 1, many);
  case CY_OP_reduce_sum:
  case CY_OP_reshape:
    return !many && can_scale(rw, n->in[0], depth - 1, many);
  default:
    return false;
  }
}

/* x times a constant, of which a number of 0 stays as it is. */
static cy_val scaled(cy_graph *g, cy_val x, cy_val by) {
  bool constant = cy_value_is_const(g, x);
  const cy_node_info *n = constant ? NULL : cy_def(g, x);
  if (constant && cy_splat_is(g, x, 0) && cy_type_count(g, cy_type_of(g, x)) == 1)
    return x;
  if (!n || (n->op == CY_OP_dequantize && !is_single(g, by)))
    return cy_build_binary(g, CY_OP_mul, x, by);
  switch (n->op) {
  case CY_OP_dequantize: {
    cy_val in[3] = {n->in[0], cy_build_binary(g, CY_OP_mul, n->in[1], by), n->nin > 2 ? n->in[2] : 0};
    return cy_build(g, CY_OP_dequantize, in, n->nin, n->attrs, n->nattrs, cy_type_of(g, x), 1);
  }
  case CY_OP_mul:
    return cy_build_binary(g, CY_OP_mul, n->in[0], scaled(g, n->in[1], by));
  case CY_OP_reduce_sum:
  case CY_OP_reshape: {
    cy_val in = scaled(g, n->in[0], by);
    return cy_build(g, (cy_op)n->op, &in, 1, n->attrs, n->nattrs, n->op == CY_OP_reshape ? cy_type_of(g, x) : NULL,
                    n->op == CY_OP_reshape);
  }
  default: {
    cy_val a = scaled(g, n->in[0], by), b = scaled(g, n->in[1], by);
    return cy_build_binary(g, (cy_op)n->op, a, b);
  }
  }
}

static cy_val quantize_like(cy_graph *g, const cy_node_info *n, cy_val x, cy_val scale) {
  cy_val in[3] = {x, scale, n->nin > 2 ? n->in[2] : 0};
  return x ? cy_build(g, CY_OP_quantize, in, n->nin, n->attrs, n->nattrs, cy_type_of(g, n->out[0]), 1) : 0;
}

/* Are all elements of the constant v positive numbers? */
static bool all_positive(const cy_graph *g, cy_val v) {
  const cy_data_f32 *f = cy_value_of(g, v)->data.bytes;
  uint64_t n = cy_type_count(g, cy_type_of(g, v));
  for (uint64_t i = 0; f && i < n; i++)
    if (!(f[i] > 0) || !isfinite(f[i]))
      return false;
  return f && n;
}

/* quantize(x * factors): the factors go into the constants behind x, as they do for each channel where tensors are
 * balanced. Not where x's channels would change places. */
static cy_val factors(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_node_info *m = cy_def_of(g, n->in[0], CY_OP_mul), *d = m ? cy_def(g, m->in[0]) : NULL;
  if (!d || cy_value_is_const(g, m->in[0]) || !cy_value_is_const(g, m->in[1]) || !is_narrow(rw, n->out[0]) ||
      (d->op != CY_OP_max && d->op != CY_OP_min && d->op != CY_OP_add && d->op != CY_OP_sub && d->op != CY_OP_mul) ||
      !cy_rewrite_single_use(rw, n->in[0]) || !cy_same_shape(cy_type_of(g, m->in[0]), cy_type_of(g, n->in[0])) ||
      cy_attr_get_int(n, CY_ATTR_block_size, 0) || !all_positive(g, m->in[1]) ||
      !can_scale(rw, m->in[0], 6, !is_single(g, m->in[1])))
    return 0;
  return quantize_like(g, n, scaled(g, m->in[0], m->in[1]), n->in[1]);
}

/* quantize(x, scale) = quantize(x / scale, 1) where the division costs nothing. */
static cy_val requantise(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  double scale;
  const cy_node_info *d = cy_def(g, n->in[0]);
  if (!d || cy_attr_get_int(n, CY_ATTR_block_size, 0) || !positive(g, n->in[1], &scale) || scale == 1 ||
      scale < 1e-30 || scale > 1e30 || !is_narrow(rw, n->out[0]) || !can_scale(rw, n->in[0], 6, false))
    return 0;
  cy_val x = scaled(g, n->in[0], cy_build_scalar(g, CY_F32, 1 / scale));
  return quantize_like(g, n, x, cy_build_scalar(g, CY_F32, 1));
}

/* Is v a max with a constant that lies at or below `low`? */
static const cy_node_info *max_below(cy_graph *g, cy_val v, double low) {
  const cy_node_info *m = cy_def_of(g, v, CY_OP_max);
  double bound;
  return m && cy_value_is_const(g, m->in[1]) && cy_value_is_splat(g, m->in[1], &bound) && bound <= low ? m : NULL;
}

/* quantize(c), a constant, by one scale and zero point: what n makes of it. 0: c has no bytes. */
static cy_val rounded_bound(cy_graph *g, const cy_node_info *n, cy_val c, double scale, double zero, double base) {
  const cy_data_f32 *f = cy_value_of(g, c)->data.bytes;
  cy_type type = *cy_type_of(g, c);
  uint64_t count = cy_type_count(g, &type);
  cy_val out;
  if (!f)
    return 0;
  type.dtype = cy_type_of(g, n->out[0])->dtype;
  void *to = cy_const_new(g, &type, &out);
  for (uint64_t i = 0; i < count; i++) {
    double q = rintf(f[i] / (float)scale) + zero;
    if (isnan(q))
      return 0;
    cy_scalar_store(to, (cy_dtype)type.dtype, i,
                    (cy_scalar){.i = (int64_t)(q < base         ? base
                                               : q > base + 255 ? base + 255
                                                                : q)});
  }
  return out;
}

/* quantize(max(x, c)) where c lies at or below the least value that its type can hold; likewise quantize(min(x, c)).
 * Other upper bounds follow the rounding, which keeps the order of numbers, as bounds of bytes: min(quantize(x),
 * quantize(c)). */
static cy_val clamp(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  double scale, zero = 0, bound;
  if (!is_byte(g, n->out[0]) || !positive(g, n->in[1], &scale) || cy_attr_get_int(n, CY_ATTR_block_size, 0) ||
      (n->nin > 2 && n->in[2] && !(cy_value_is_const(g, n->in[2]) && cy_value_is_splat(g, n->in[2], &zero))))
    return 0;
  double base = cy_type_of(g, n->out[0])->dtype == CY_I8 ? -128 : 0;
  double low = (base - zero) * scale, high = (base + 255 - zero) * scale;
  const cy_node_info *max = cy_def_of(g, n->in[0], CY_OP_min), *min = max_below(g, n->in[0], low);
  if (min)
    return quantize_like(g, n, min->in[0], n->in[1]);
  if (!max || !cy_value_is_const(g, max->in[1]))
    return 0;
  bool implied = cy_value_is_splat(g, max->in[1], &bound) && bound >= high;
  cy_val bytes = implied ? 0 : rounded_bound(g, n, max->in[1], scale, zero, base);
  if (!implied && !bytes)
    return 0;
  implied |= bytes && cy_splat_is(g, bytes, base + 255);
  cy_val x = quantize_like(g, n, max->in[0], n->in[1]);
  return implied ? x : cy_build_binary(g, CY_OP_min, x, bytes);
}

/* ---- sigmoid linear units ---- */

enum { Q15_UNITS = 4096, Q15_RANGE = 8, MAX_SHIFT = 6 }; /* per unit of logistic_q15's argument; up to which it runs */

/* A channel's fixed point: x is a multiple of 1 / inverse, up to Q15_RANGE << shift, and so many results in 2^15 are the
 * steps of its bytes. */
typedef struct fixed_point {
  double inverse;
  int shift;
  int64_t factor;
} fixed_point;

/* steps: bytes per unit of the result; max: of them, the largest result. */
static bool choose_fixed(double steps, double max, fixed_point *out) {
  int shift = 0;
  while (max / steps > Q15_RANGE << shift)
    shift++;
  *out = (fixed_point){.shift = shift, .factor = (int64_t)rint((Q15_RANGE << shift) * steps)};
  out->inverse = out->factor ? 32768 * steps / (double)out->factor : 0;
  return shift <= MAX_SHIFT && out->factor > 0 && out->factor <= INT16_MAX;
}

/* Are these integers times constants? */
static bool of_integers(const cy_graph *g, cy_val v) {
  const cy_node_info *n = cy_def(g, v);
  n = n && n->op == CY_OP_mul ? cy_def(g, n->in[0]) : n;
  return n && n->op == CY_OP_cast && cy_type_of(g, n->in[0])->dtype == CY_I32;
}

/* x of x * sigmoid(x), which nobody else reads, where it is sums of integers times constants, plus constants perhaps. */
static cy_val sigmoid_linear(const cy_rewrite *rw, cy_val v) {
  cy_graph *g = rw->g;
  const cy_node_info *m = cy_def_of(g, v, CY_OP_mul);
  for (int i = 0; m && i < 2; i++) {
    cy_val x = m->in[i], s = m->in[1 - i];
    const cy_node_info *sigmoid = cy_def_of(g, s, CY_OP_sigmoid), *d = cy_def(g, x);
    bool both = sigmoid && sigmoid->in[0] == x && d && (d->op == CY_OP_add || d->op == CY_OP_mul) && x <= rw->nvalues &&
                rw->uses.start[x + 1] - rw->uses.start[x] == 2 && cy_rewrite_single_use(rw, s) &&
                cy_rewrite_single_use(rw, v) && cy_type_of(g, x)->dtype == CY_F32 &&
                cy_same_shape(cy_type_of(g, x), cy_type_of(g, v));
    if (both && cy_value_is_const(g, d->in[1]) && of_integers(g, d->op == CY_OP_mul ? x : d->in[0]) &&
        (d->op == CY_OP_mul || can_scale(rw, d->in[0], 4, true)))
      return x;
  }
  return 0;
}

/* Per channel, as bias has them. */
typedef struct fixed_constants {
  cy_val inverse, factor, lowest, times; /* f32, i16, u16, u16 */
  bool shifts;                           /* not all shifts are 0 */
} fixed_constants;

static bool fixed_constants_of(cy_graph *g, cy_val like, cy_val steps, double scale, double max,
                               fixed_constants *out) {
  cy_type type = *cy_type_of(g, like);
  uint64_t count = cy_type_count(g, &type), have = cy_type_count(g, cy_type_of(g, steps));
  const cy_data_f32 *f = cy_value_of(g, steps)->data.bytes;
  if (!f || !count || (have != 1 && !cy_same_shape(&type, cy_type_of(g, steps))))
    return false;
  float *inverse = cy_const_new(g, &type, &out->inverse);
  type.dtype = CY_I16;
  int16_t *factor = cy_const_new(g, &type, &out->factor);
  type.dtype = CY_U16;
  uint16_t *lowest = cy_const_new(g, &type, &out->lowest), *times = cy_const_new(g, &type, &out->times);
  out->shifts = false;
  for (uint64_t i = 0; i < count; i++) {
    fixed_point p;
    if (!choose_fixed(f[have == 1 ? 0 : i] / scale, max, &p))
      return false;
    inverse[i] = (float)p.inverse;
    factor[i] = (int16_t)p.factor;
    lowest[i] = (uint16_t)(INT16_MAX >> p.shift);
    times[i] = (uint16_t)(1 << p.shift);
    out->shifts |= p.shift != 0;
  }
  return true;
}

/* The bytes of x * sigmoid(x) = max(x, 0) - |x| / (1 + exp(|x|)), x being multiples of 2^-15 of a range. */
static cy_val fixed_silu(cy_graph *g, cy_val x, const fixed_constants *c, double zero, cy_dtype to) {
  double low, high;
  cy_dtype_int_range(to, &low, &high);
  cy_val size = cy_build_unary(g, CY_OP_abs, x), at = size;
  if (c->shifts) { /* unsigned: the size of -2^15 is 2^15 */
    at = cy_build_binary(g, CY_OP_min, cy_build_cast(g, size, CY_U16), c->lowest);
    at = cy_build_cast(g, cy_build_binary(g, CY_OP_mul, at, c->times), CY_I16);
  }
  cy_val less = cy_build_binary(g, CY_OP_mul_q15, size, cy_build_unary(g, CY_OP_logistic_q15, at));
  cy_val more = cy_build_binary(g, CY_OP_max, x, cy_build_scalar_int(g, CY_I16, 0));
  cy_val y = cy_build_binary(g, CY_OP_mul_q15, cy_build_binary(g, CY_OP_sub, more, less), c->factor);
  if (zero != 0)
    y = cy_build_binary(g, CY_OP_add, y, cy_build_scalar_int(g, CY_I16, (int64_t)zero));
  y = cy_build_binary(g, CY_OP_max, y, cy_build_scalar_int(g, CY_I16, (int64_t)low));
  y = cy_build_binary(g, CY_OP_min, y, cy_build_scalar_int(g, CY_I16, (int64_t)high));
  return cy_build_cast(g, y, to);
}

/* Is v read in floats alone, as a residual sum does in the kernel that makes it? */
static bool only_dequantized(const cy_rewrite *rw, cy_val v) {
  if (v > rw->nvalues)
    return false;
  for (uint32_t i = rw->uses.start[v]; i < rw->uses.start[v + 1]; i++)
    if (!rw->uses.list[i] || cy_node_of(rw->g, rw->uses.list[i])->op != CY_OP_dequantize)
      return false;
  return true;
}

/* quantize(x * sigmoid(x)), times positive constants perhaps, in 16-bit integers, which vectors hold twice as many of. */
static cy_val silu(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  double scale, zero = 0, low, high;
  cy_val steps = 0, v = n->in[0];
  const cy_node_info *m = cy_def_of(g, v, CY_OP_mul);
  cy_dtype to = (cy_dtype)cy_type_of(g, n->out[0])->dtype;
  if (!cy_caps_of(rw->pass->options->caps)->words || !is_byte(g, n->out[0]) || !positive(g, n->in[1], &scale) ||
      cy_attr_get_int(n, CY_ATTR_block_size, 0) || only_dequantized(rw, n->out[0]) ||
      (n->nin > 2 && n->in[2] && !(cy_value_is_const(g, n->in[2]) && cy_value_is_splat(g, n->in[2], &zero))))
    return 0;
  if (m && cy_value_is_const(g, m->in[1]) && cy_rewrite_single_use(rw, v) && all_positive(g, m->in[1])) {
    steps = m->in[1];
    v = m->in[0];
  }
  cy_val x = sigmoid_linear(rw, v);
  fixed_constants c;
  cy_dtype_int_range(to, &low, &high);
  if (!x || !cy_same_shape(cy_type_of(g, x), cy_type_of(g, n->out[0])) ||
      !fixed_constants_of(g, cy_def(g, x)->in[1], steps ? steps : cy_build_scalar(g, CY_F32, 1), scale, high - zero,
                          &c))
    return 0;
  const cy_node_info *d = cy_def(g, x);
  cy_val in[2] = {d->op == CY_OP_add ? scaled(g, d->in[0], c.inverse) : d->in[0], scaled(g, d->in[1], c.inverse)};
  cy_val q[2] = {cy_build_binary(g, (cy_op)d->op, in[0], in[1]), cy_build_scalar(g, CY_F32, 1)};
  cy_type type = *cy_type_of(g, x);
  type.dtype = CY_I16;
  return fixed_silu(g, cy_build(g, CY_OP_quantize, q, 2, n->attrs, n->nattrs, &type, 1), &c, zero, to);
}

/* ---- constants ---- */

typedef struct walk { /* from an element of a tensor to its parameter's */
  uint64_t inner, along, block, blocks;
} walk;

static uint64_t parameter_of(const walk *w, uint64_t i) {
  uint64_t outer = i / w->inner / w->along, at = i / w->inner % w->along;
  return w->block ? (outer * w->blocks + at / w->block) * w->inner + i % w->inner : at;
}

/* Does f32 hold what n makes: of integers, or of floats of 8 bits or fewer, whose zero points are 0? */
static bool makes_singles(cy_graph *g, const cy_node_info *n) {
  const cy_dtype_info *from = cy_dtype_of((cy_dtype)cy_type_of(g, n->in[0])->dtype);
  cy_val zero = n->nin > 2 ? n->in[2] : 0;
  cy_dtype scale = (cy_dtype)cy_type_of(g, n->in[1])->dtype;
  bool ints = from->cls == 'I' || from->cls == 'U', floats = from->cls == 'F' && from->bits <= 8;
  return cy_type_of(g, n->out[0])->dtype == CY_F32 &&
         (ints ? from->bits <= 32 && scale == CY_F32
               : floats && cy_dtype_of(scale)->bits <= 32 && (!zero || cy_splat_is(g, zero, 0)));
}

/* An element less its zero point (z: NULL is 0): i32 arithmetic, as the kernels do it. */
static float without(const void *x, const void *z, cy_dtype type, uint64_t at, uint64_t zero_at) {
  if (cy_dtype_is_float(type))
    return (float)cy_scalar_load(x, type, at).f;
  uint32_t v = (uint32_t)cy_scalar_load(x, type, at).i;
  if (z)
    v -= (uint32_t)cy_scalar_load(z, type, zero_at).i;
  return (float)(int32_t)v;
}

/* Weights and biases that no integer contraction took, nor shall be read as integers: f32 as dequantize defines it. */
static cy_val constant(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_type *t = cy_type_of(g, n->in[0]);
  cy_val zero = n->nin > 2 ? n->in[2] : 0, out;
  cy_dtype from = (cy_dtype)t->dtype, scale = (cy_dtype)cy_type_of(g, n->in[1])->dtype;
  uint64_t count = cy_type_count(g, t);
  int64_t dims[CY_MAX_RANK], axis = cy_attr_get_int(n, CY_ATTR_axis, 0),
                             block = cy_attr_get_int(n, CY_ATTR_block_size, 0);
  if (!count || !makes_singles(g, n) || !cy_type_static(g, t, dims) ||
      (n->out[0] <= rw->nvalues && cy_weights_stay(rw->pass, n, &rw->uses)))
    return 0;
  const void *x = cy_value_of(g, n->in[0])->data.bytes, *s = cy_value_of(g, n->in[1])->data.bytes;
  const void *z = zero ? cy_value_of(g, zero)->data.bytes : NULL;
  if (!x || !s || (zero && !z))
    return 0;
  walk w = {.inner = 1, .along = 1, .block = (uint64_t)block};
  bool many = !is_single(g, n->in[1]) || (zero && !is_single(g, zero)), many_zeros = zero && !is_single(g, zero);
  bool many_scales = !is_single(g, n->in[1]);
  if (many && (axis < 0 || axis >= t->rank || block < 0))
    return 0;
  for (int64_t i = axis + 1; many && i < t->rank; i++)
    w.inner *= (uint64_t)dims[i];
  w.along = many ? (uint64_t)dims[axis] : count;
  w.blocks = block ? (w.along + w.block - 1) / w.block : 0;
  uint64_t parameters = block ? count / w.along * w.blocks : w.along;
  if ((many_scales && cy_type_count(g, cy_type_of(g, n->in[1])) != parameters) ||
      (many_zeros && cy_type_count(g, cy_type_of(g, zero)) != parameters))
    return 0;
  float *to_f32 = cy_const_new(g, cy_type_of(g, n->out[0]), &out);
  for (uint64_t i = 0; i < count; i++) {
    uint64_t p = many ? parameter_of(&w, i) : 0;
    to_f32[i] = without(x, z, from, i, many_zeros ? p : 0) * (float)cy_scalar_load(s, scale, many_scales ? p : 0).f;
  }
  return out;
}

static const cy_rule constants[] = {
    {CY_OP_dequantize, "constant", constant},
};

static const cy_rule units[] = {
    {CY_OP_quantize, "silu", silu},
};

static const cy_rule rules[] = {
    {CY_OP_conv, "contraction", contraction},
    {CY_OP_matmul, "contraction", contraction},
    {CY_OP_conv_transpose, "contraction", contraction},
    {CY_OP_conv, "float8", float8},
    {CY_OP_matmul, "float8", float8},
    {CY_OP_conv, "weights", integer_weights},
    {CY_OP_matmul, "weights", integer_weights},
    {CY_OP_reshape, "moving", moved},
    {CY_OP_transpose, "moving", moved},
    {CY_OP_slice, "moving", moved},
    {CY_OP_expand, "moving", moved},
    {CY_OP_gather, "moving", moved},
    {CY_OP_pool_max, "moving", moved},
    {CY_OP_resize, "moving", moved},
    {CY_OP_pad, "moving", moved_pad},
    {CY_OP_concat, "moving", moved_concat},
    {CY_OP_quantize, "back", back},
    {CY_OP_quantize, "moving", pieces},
    {CY_OP_quantize, "clamp", clamp},
    {CY_OP_quantize, "factors", factors},
    {CY_OP_quantize, "requantise", requantise},
};

/* requires: swept   establishes: swept   breaks: unique, folded, placed, fused */
int cy_pass_quantised(cy_pass *p) {
  const cy_rule_set set = {rules, sizeof rules / sizeof rules[0]};
  cy_rewrite_run(p, &set, 1);
  return 0;
}

/* requires: swept   establishes: swept   breaks: unique, placed, fused */
int cy_pass_requantise(cy_pass *p) {
  const cy_rule_set sets[] = {{constants, sizeof constants / sizeof constants[0]},
                              {rules, sizeof rules / sizeof rules[0]},
                              {units, sizeof units / sizeof units[0]}};
  cy_rewrite_run(p, sets, 3);
  cy_qdq_starts(p);
  return 0;
}
