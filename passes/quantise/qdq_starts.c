/* SPDX-License-Identifier: Apache-2.0 */
/* qdq_starts.c - what the sums of integer contractions begin with: zero points and biases as one i32 per channel.
 *
 * In: a graph whose scales and biases no rule of qdq_to_integer.c moves any more. Out, by rules:
 *   zero   conv(x - zero, w) = conv(x, w) - zero * (sums of w), where no padding needs the zero point; likewise matmul.
 *          Exact.
 *   bias   cast(sum + c) * s + b = cast(sum + c + b / s) * s: the bias is rounded to what one more in the sum is worth,
 *          as models that come with biases in i32 have it, and added before the sum becomes a float.
 * A target that lets sums begin with these numbers adds nothing then, and a channel has 8 bytes of parameters instead of
 * 12.
 *
 * Refused: weights other than s8 constants; channels that become spatial positions; sums that may leave 31 bits; biases
 * whose rounding would be more than a 64th of what one step of one input may change (half of s is compared with s times
 * the largest weight). A channel without weights may have any scale, and gets one that leaves its bias as it is.
 */
#include "quantise_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_WEIGHT = 32, EMPTY_BITS = 20 };

/* An integer contraction, and what its channels' weights add up to. */
typedef struct sums {
  const cy_node_info *n;
  uint64_t channels;
  int64_t *total, *size; /* of weights; of their amounts */
  int *largest;          /* amount */
  int64_t max;          /* amount of an element of x */
} sums;

/* Elements of v differ along n's output channels only, if at all. out_step: from channel to channel, 0 or 1. */
static bool by_channel(cy_graph *g, const cy_node_info *n, uint64_t channels, cy_val v, uint64_t *out_step) {
  const cy_type *t = cy_type_of(g, v);
  uint64_t count = cy_type_count(g, t);
  int behind = n->op == CY_OP_conv ? cy_type_of(g, n->out[0])->rank - 2 : 0, at = t->rank - 1 - behind;
  *out_step = count > 1;
  return count == 1 || (count == channels && at >= 0 && cy_dim_is(g, t->dim[at], (int64_t)channels));
}

/* v as a contraction of bytes by constant s8 whose zero point, if any, is a constant. */
static bool read_sums(cy_rewrite *rw, cy_val v, sums *out) {
  cy_graph *g = rw->g;
  const cy_node_info *n = cy_def(g, v);
  int64_t d[CY_MAX_RANK];
  if (!n || (n->op != CY_OP_conv && n->op != CY_OP_matmul) || (n->nin > 3 && n->in[3]) ||
      cy_attr_find(n, CY_ATTR_shuffle))
    return false;
  const cy_type *tw = cy_type_of(g, n->in[1]);
  cy_dtype tx = (cy_dtype)cy_type_of(g, n->in[0])->dtype;
  const int8_t *w = cy_value_of(g, n->in[1])->data.bytes;
  bool conv = n->op == CY_OP_conv;
  if (!w || tw->dtype != CY_I8 || !cy_dtype_is_byte(tx) || cy_type_of(g, v)->dtype != CY_I32 ||
      !cy_type_static(g, tw, d) || (!conv && tw->rank != 2))
    return false;
  uint64_t count = cy_type_count(g, tw), channels = (uint64_t)d[conv ? 0 : 1];
  if (!count)
    return false;
  *out = (sums){n,
                channels,
                CY_NEW_ARRAY(rw->pass->scratch, int64_t, channels),
                CY_NEW_ARRAY(rw->pass->scratch, int64_t, channels),
                CY_NEW_ARRAY(rw->pass->scratch, int, channels),
                tx == CY_I8 ? 128 : 255};
  for (uint64_t i = 0; i < count; i++) {
    uint64_t c = conv ? i / (count / channels) : i % channels;
    int amount = abs(w[i]);
    out->total[c] += w[i];
    out->size[c] += amount;
    out->largest[c] = amount > out->largest[c] ? amount : out->largest[c];
  }
  return true;
}

static bool fits(const sums *s, uint64_t c, int64_t start) { return llabs(start) + s->max * s->size[c] <= INT32_MAX; }

/* A constant per channel, shaped to broadcast against the contraction's result. */
static void *channel_constant(cy_graph *g, const sums *s, cy_dtype dtype, cy_val *out) {
  cy_dim dims[CY_MAX_RANK] = {cy_dim_const(g, (int64_t)s->channels)};
  int rank = s->n->op == CY_OP_conv ? cy_type_of(g, s->n->out[0])->rank - 1 : 1;
  for (int i = 1; i < rank; i++)
    dims[i] = cy_dim_const(g, 1);
  cy_type type = cy_type_make(dtype, rank, dims);
  return cy_const_new(g, &type, out);
}

static bool pads_nothing(const cy_node_info *n) {
  const cy_attr *pads = n->op == CY_OP_conv ? cy_attr_find(n, CY_ATTR_pads) : NULL;
  for (uint32_t i = 0; pads && i < pads->n; i++)
    if (pads->ints[i])
      return false;
  return true;
}

static cy_val zero(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  double value;
  sums s;
  if (n->nin < 3 || !n->in[2] || !pads_nothing(n) || !cy_value_is_const(g, n->in[2]) ||
      !cy_value_is_splat(g, n->in[2], &value) || !read_sums(rw, n->out[0], &s))
    return 0;
  cy_val start, in[2] = {n->in[0], n->in[1]};
  int32_t *to = channel_constant(g, &s, CY_I32, &start);
  for (uint64_t c = 0; c < s.channels; c++) {
    int64_t less = -(int64_t)value * s.total[c];
    if (!fits(&s, c, less))
      return 0;
    to[c] = (int32_t)less;
  }
  cy_val sum = cy_build(g, (cy_op)n->op, in, 2, n->attrs, n->nattrs, cy_type_of(g, n->out[0]), 1);
  return cy_build_binary(g, CY_OP_add, sum, start);
}

/* A channel's bias in the unit of its sums, whose scale may change where there are no weights. */
static bool rounded_bias(const sums *s, uint64_t c, float bias, int32_t before, float *inout_scale, int32_t *out) {
  if (!s->largest[c]) {
    if (before)
      return false;
    *out = bias == 0 ? 0 : 1 << EMPTY_BITS;
    *inout_scale = bias == 0 ? 1 : ldexpf(bias, -EMPTY_BITS);
    return isfinite(bias) && (bias == 0 || fabsf(bias) > 1e-30f);
  }
  double b = rint((double)bias / *inout_scale) + before;
  if (!(fabs(b) < INT32_MAX) || !(fabsf(*inout_scale) > 1e-30f) || s->largest[c] < MIN_WEIGHT)
    return false;
  *out = (int32_t)b;
  return fits(s, c, *out);
}

static cy_val bias(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_node_info *mul = cy_def_of(g, n->in[0], CY_OP_mul),
                     *cast = mul ? cy_def_of(g, mul->in[0], CY_OP_cast) : NULL;
  const cy_node_info *add = cast ? cy_def_of(g, cast->in[0], CY_OP_add) : NULL;
  sums s;
  uint64_t step[3] = {0};
  if (!cast || !cy_rewrite_single_use(rw, n->in[0]) || !cy_rewrite_single_use(rw, mul->in[0]) ||
      !cy_value_is_const(g, mul->in[1]) || !cy_value_is_const(g, n->in[1]) ||
      cy_type_of(g, n->out[0])->dtype != CY_F32 ||
      !cy_same_shape(cy_type_of(g, n->out[0]), cy_type_of(g, cast->in[0])) ||
      !read_sums(rw, add ? add->in[0] : cast->in[0], &s) || !by_channel(g, s.n, s.channels, mul->in[1], &step[0]) ||
      !by_channel(g, s.n, s.channels, n->in[1], &step[1]) ||
      (add && !by_channel(g, s.n, s.channels, add->in[1], &step[2])))
    return 0;
  const cy_data_f32 *scales = cy_value_of(g, mul->in[1])->data.bytes, *biases = cy_value_of(g, n->in[1])->data.bytes;
  const int32_t *before = add ? cy_value_of(g, add->in[1])->data.bytes : NULL;
  if (!scales || !biases || (add && !before))
    return 0;
  cy_val start, scale;
  int32_t *to = channel_constant(g, &s, CY_I32, &start);
  float *factor = channel_constant(g, &s, CY_F32, &scale);
  for (uint64_t c = 0; c < s.channels; c++) {
    factor[c] = scales[c * step[0]];
    if (!rounded_bias(&s, c, biases[c * step[1]], before ? before[c * step[2]] : 0, &factor[c], &to[c]))
      return 0;
  }
  cy_val sum = cy_build_binary(g, CY_OP_add, s.n->out[0], start);
  return cy_build_binary(g, CY_OP_mul, cy_build_cast(g, sum, CY_F32), scale);
}

static const cy_rule rules[] = {
    {CY_OP_conv, "zero point of sums", zero},
    {CY_OP_matmul, "zero point of sums", zero},
    {CY_OP_add, "bias of sums", bias},
};

void cy_qdq_starts(cy_pass *p) {
  const cy_rule_set set = {rules, sizeof rules / sizeof rules[0]};
  cy_rewrite_run(p, &set, 1);
}
