/* SPDX-License-Identifier: Apache-2.0 */
/* conv_output_block.c - convolutions of few output channels: a row of the product is several neighbouring outputs.
 *
 * Comes in: a cy_conv_desc. Goes out, for conv.c: a block of outputs, the window of the input that it reads as axes of
 * a convolution with as many times the channels, where that one's weights lie, and an epilogue that hands the outputs
 * of a row on, one by one.
 * A vector of W columns would compute few channels in its first lanes and idle in the others. Here they are the
 * channels of a block of outputs; inputs of the window that an output does not read have weights of zero for it. Along
 * an axis that takes ((outputs - 1) * stride + kernel) taps for all outputs instead of the kernel's for each. The
 * residues of a transposed convolution are such neighbours, too: blocks have a multiple of each stride then.
 * Where input channels fill vectors, those of conv_lane_reduce.c may take less.
 * On Sapphire Rapids a 3x3x3 convolution of 2 to 2 channels and 64x64x64 positions took 9.5 ms and takes 3.2.
 */
#include "conv_int.h"

#define GAIN 1.5             /* of products, at least: there are more outputs to cut rows into */
#define LANE_REDUCE_GAIN 1.2 /* likewise, of vectors of input channels */
#define UNKNOWN_AXIS 48      /* outputs along an axis of unknown size */

/* Does output q of a block read through tap k along axis i, and where, from the block's first input on? */
static bool reads(const cy_conv_desc *d, int i, int64_t q, int64_t k, int64_t *out_at) {
  if (!d->transposed) {
    *out_at = q * d->stride[i] - d->pad[i] + k * d->dilation[i];
    return true;
  }
  int64_t at = q + d->pad[i] - k * d->dilation[i];
  *out_at = at / d->stride[i];
  return at % d->stride[i] == 0;
}

typedef struct window {
  int64_t begin, end;
} window;

static window window_of(const cy_conv_desc *d, int i, int64_t outputs) {
  window w = {INT64_MAX, INT64_MIN};
  int64_t at;
  for (int64_t q = 0; q < outputs; q++)
    for (int64_t k = 0; k < d->kernel[i]; k++)
      if (reads(d, i, q, k, &at)) {
        w.begin = at < w.begin ? at : w.begin;
        w.end = at >= w.end ? at + 1 : w.end;
      }
  return w;
}

static int64_t window_taps(const cy_conv_desc *d, const cy_output_block *s) {
  int64_t taps = 1;
  for (int i = 0; i < d->n_spatial; i++) {
    window w = window_of(d, i, s->along[i]);
    taps *= w.end - w.begin;
  }
  return taps;
}

/* Products of vectors for each input channel. */
static double products(const cy_conv_desc *d, const cy_output_block *s) {
  double n = (double)window_taps(d, s);
  for (int i = 0; i < d->n_spatial; i++)
    n *= (double)cy_ceil(cy_csize_or(d->out[i], UNKNOWN_AXIS), s->along[i]);
  return n;
}

/* Of a feature map. */
static double outputs_of(const cy_conv_desc *d) {
  double n = 1;
  for (int i = 0; i < d->n_spatial; i++)
    n *= (double)cy_csize_or(d->out[i], UNKNOWN_AXIS);
  return n;
}

static double plain_products(const cy_conv_desc *d) {
  double n = outputs_of(d);
  for (int i = 0; i < d->n_spatial; i++)
    n *= (double)d->kernel[i] / (d->transposed ? (double)d->stride[i] : 1);
  return n;
}

/* Outputs of a block along axis i, in steps of what it must be a multiple of. */
static int64_t step_of(const cy_conv_desc *d, int i) {
  return i >= d->n_spatial ? 1 : d->transposed ? d->stride[i] : 1;
}

/* Vectors that hold input channels instead, where they take fewer products than `min`? */
static cy_output_block lane_reduce_or(const cy_cg *cg, const cy_conv_desc *d, cy_output_block output_block,
                                      double min) {
  double outputs = outputs_of(d), taps = plain_products(d) / outputs, max;
  cy_lane_reduce lane_reduce = cy_lane_reduce_choose(cg, d, outputs, taps, &max);
  if (!cy_form_on(cg, CY_FORM_LANE_REDUCE) || !lane_reduce.lanes ||
      cy_cost_many_weights(cg, cy_lane_reduce_weights(&lane_reduce, d, cy_conv_taps(d))) || max * LANE_REDUCE_GAIN >= min)
    return output_block;
  return (cy_output_block){.along = {1, 1, 1}, .count = 1, .lane_reduce = lane_reduce, .products = max};
}

cy_output_block cy_output_block_choose(const cy_cg *cg, const cy_conv_desc *d) {
  cy_output_block best = {.along = {1, 1, 1}, .count = 1}, s = best;
  int64_t max = cg->W / d->cout, ends[3];
  double plain = plain_products(d), min = plain / GAIN;
  if (d->groups > 1 || max < 2)
    return best;
  for (int i = 0; i < 3; i++)
    ends[i] = cg->strict_fp || !cy_form_on(cg, CY_FORM_OUTPUT_BLOCK) ? 0
              : i < d->n_spatial                                     ? max
                                                                     : 1; /* NaN times a weight of zero is NaN */
  for (s.along[0] = step_of(d, 0); s.along[0] <= ends[0]; s.along[0] += step_of(d, 0))
    for (s.along[1] = step_of(d, 1); s.along[1] <= ends[1]; s.along[1] += step_of(d, 1))
      for (s.along[2] = step_of(d, 2); s.along[2] <= ends[2]; s.along[2] += step_of(d, 2)) {
        s.count = s.along[0] * s.along[1] * s.along[2];
        if (s.count == 1 || s.count > max || products(d, &s) >= min ||
            cy_cost_many_weights(cg, window_taps(d, &s) * d->cin * cg->W * 4))
          continue;
        best = s;
        best.products = min = products(d, &s);
      }
  return lane_reduce_or(cg, d, best, best.count > 1 ? min : plain);
}

void cy_output_block_axes(const cy_conv_desc *d, const cy_output_block *s, cy_axis axis[3]) {
  int missing = 3 - d->n_spatial;
  for (int i = 0; i < d->n_spatial; i++) {
    window w = window_of(d, i, s->along[i]);
    axis[missing + i] = (cy_axis){.count = w.end - w.begin,
                                  .step = d->transposed ? s->along[i] / d->stride[i] : s->along[i] * d->stride[i],
                                  .start = w.begin,
                                  .inc = 1,
                                  .scale = s->along[i],
                                  .in = d->in[i],
                                  .out = d->out[i],
                                  .in_stride = d->in_s[i]};
  }
}

/* Number `n`, row-major, of a box of these sizes. */
static void split(int n_axes, const int64_t *size, int64_t n, int64_t *out) {
  for (int i = n_axes - 1; i >= 0; i--) {
    out[i] = n % size[i];
    n /= size[i];
  }
}

/* The tap of the kernel through which output q reads what lies at `at`, along axis i, or -1. */
static int64_t tap_at(const cy_conv_desc *d, int i, int64_t q, int64_t at) {
  int64_t here;
  for (int64_t k = 0; k < d->kernel[i]; k++)
    if (reads(d, i, q, k, &here) && here == at)
      return k;
  return -1;
}

const int32_t *cy_output_block_map(const cy_conv_desc *d, const cy_output_block *s, cy_arena *arena) {
  int64_t size[3], begin[3], taps = window_taps(d, s), q[3], t[3];
  int32_t *first = CY_NEW_ARRAY(arena, int32_t, s->count * taps), *map = first;
  for (int i = 0; i < d->n_spatial; i++) {
    window w = window_of(d, i, s->along[i]);
    begin[i] = w.begin;
    size[i] = w.end - w.begin;
  }
  for (int64_t place = 0; place < s->count; place++)
    for (int64_t tap = 0; tap < taps; tap++) {
      int64_t source = 0;
      split(d->n_spatial, s->along, place, q);
      split(d->n_spatial, size, tap, t);
      for (int i = 0; i < d->n_spatial && source >= 0; i++) {
        int64_t k = tap_at(d, i, q[i], begin[i] + t[i]);
        source = k < 0 ? -1 : source * d->kernel[i] + k;
      }
      *map++ = (int32_t)source;
    }
  return first;
}

/* ---- the epilogue ---- */

/* i1: is the output at idx one of the feature map's? NULL: surely. */
static LLVMValueRef exists(cy_cg *cg, const cy_conv_desc *d, const cy_output_block *s, const LLVMValueRef *at) {
  LLVMValueRef ok = NULL;
  for (int i = 0; i < d->n_spatial; i++) {
    int64_t out = cy_csize_known(d->out[i]);
    if (s->along[i] == 1 || (out && out % s->along[i] == 0))
      continue;
    LLVMValueRef here = cy_icmp(cg, LLVMIntSLT, at[i], cy_size(cg, d->out[i]));
    ok = ok ? LLVMBuildAnd(cg->b, ok, here, "") : here;
  }
  return ok;
}

/* idx: of the block's first output. */
static void emit_places(void *ctx, cy_cg *cg, LLVMValueRef acc, unsigned lanes, const LLVMValueRef *idx) {
  const cy_output_block_outputs *o = ctx;
  const cy_conv_desc *d = o->d;
  (void)lanes; /* all of a row */
  for (int64_t place = 0; place < o->output_block.count; place++) {
    LLVMValueRef at[5] = {idx[0]}, ok;
    int64_t q[3];
    split(d->n_spatial, o->output_block.along, place, q);
    for (int i = 0; i < d->n_spatial; i++)
      at[1 + i] = cy_addc(cg, idx[1 + i], q[i]);
    at[1 + d->n_spatial] = cy_i64(cg, 0);
    cy_if s;
    ok = exists(cg, d, &o->output_block, at + 1);
    if (ok)
      cy_if_begin(cg, &s, ok);
    d->epilogue.emit(d->epilogue.ctx, cg, cy_some_lanes(cg, acc, (unsigned)(place * d->cout), (unsigned)d->cout),
                     (unsigned)d->cout, at);
    if (ok)
      cy_if_end(cg, &s);
  }
}

/* Too much code to be repeated for every row of a tile. */
cy_epilogue cy_output_block_epilogue(const cy_output_block_outputs *o) {
  return (cy_epilogue){.emit = emit_places, .ctx = (void *)o, .heavy = true};
}
