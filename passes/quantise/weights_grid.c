/* SPDX-License-Identifier: Apache-2.0 */
/* weights_grid.c - the integers that float weights are multiples of.
 *
 * Exporters and optimisers that fold constants leave the weights of a network trained with quantisation in floats: those
 * that quantize and dequantize would give, maybe times a normalisation's factor per channel. All weights of a channel are
 * multiples of one step then, and as few as 8 bits hold: the greatest is k steps, k being one of 128. Where a network's
 * weights happen to be such multiples without that, integers say the same, too.
 */
#include "quantise_int.h"

#include <math.h>

enum { MAX_STEPS = 128 };
static const double off =
    1e-4; /* of a step: what the rounding of 127 steps to f32, and of a factor, come to, many times */

typedef struct channel {
  const cy_data_f32 *w;
  uint64_t runs, run, apart; /* `runs` runs of `run` weights, from one's begin to the next's */
} channel;

static double weight(const channel *c, uint64_t i) { return c->w[i / c->run * c->apart + i % c->run]; }

static bool on_grid(const channel *c, double step) {
  for (uint64_t i = 0; i < c->runs * c->run; i++) {
    double q = weight(c, i) / step;
    if (!(fabs(q - rint(q)) <= off) || rint(q) > 127 || rint(q) < -128)
      return false;
  }
  return true;
}

/* The largest step of which all weights of a channel are multiples, 1 where all are 0; 0: there is none. */
static double step_of(const channel *c) {
  double max = 0;
  for (uint64_t i = 0; i < c->runs * c->run; i++) {
    double w = fabs(weight(c, i));
    max = w > max || isnan(w) ? w : max;
  }
  if (max == 0 || !isfinite(max) || max < 1e-30)
    return max == 0;
  for (int k = 1; k <= MAX_STEPS; k++)
    if (on_grid(c, max / k))
      return max / k;
  return 0;
}

cy_val cy_weights_on_grid(cy_graph *g, cy_val w, int axis, cy_val *out_scale) {
  const cy_value *v = cy_value_of(g, w);
  cy_type type = v->type;
  int64_t dim[CY_MAX_RANK];
  uint64_t count = cy_type_count(g, &type), inner = 1, outer = 1;
  if (type.dtype != CY_F32 || !v->data.bytes || !count || !cy_type_static(g, &type, dim))
    return 0;
  for (int i = axis + 1; i < type.rank; i++)
    inner *= (uint64_t)dim[i];
  for (int i = 0; i < axis; i++)
    outer *= (uint64_t)dim[i];
  uint64_t channels = count / inner / outer;
  cy_type along = cy_type_make(CY_F32, 1, &type.dim[axis]);
  cy_val out;
  float *scale = cy_const_new(g, &along, out_scale);
  channel c = {.runs = outer, .run = inner, .apart = inner * channels};
  for (uint64_t i = 0; i < channels; i++) {
    c.w = (const cy_data_f32 *)v->data.bytes + i * inner;
    scale[i] = (float)step_of(&c);
    if (scale[i] == 0)
      return 0;
  }
  const cy_data_f32 *from = v->data.bytes;
  type.dtype = CY_I8;
  int8_t *q = cy_const_new(g, &type, &out);
  cy_const_made_of(g, out, w);
  cy_const_made_of(g, *out_scale, w);
  for (uint64_t i = 0; i < count; i++)
    q[i] = (int8_t)rintf(from[i] / scale[i / inner % channels]);
  return out;
}
