/* SPDX-License-Identifier: Apache-2.0 */
/* quantise_round.c - activations that become integers when the model runs, for dynamic quantisation.
 *
 * In:  x in f32, and what will read it. Out: its integers, and a scale to multiply with what is made of them:
 *
 *   for products       one scale per row        s8, by quantize_rows: one kernel, perhaps that of what it reads
 *   for convolutions   one scale per image      s8, or u8 where the graph says that no element is negative: those
 *                                               behind a ReLU have 255 steps then, and not 127
 *   .. of one tap,     one scale per place      s8, as for products, whose rows the channels of a place are: one kernel
 *   on a GPU                                    finds the scales and rounds, where images need three or four
 *
 * Images:
 *
 *   most = reduce_max(|x|)       of the bits, which have the same order; NaN is above all of them
 *   ints = cast(round(x * (127 / most)))
 *
 * Floats of 8 bits (f8e4m3fn) likewise: 448 in the place of 127, and no rounding but that of the cast.
 * A row or an image of zeros stays zeros; so does padding, 0 being an integer. No scale reaches over the batch: what
 * comes out for an image does not depend on the images beside it. An image is reduced in two steps, to a number per
 * slice first: those are tasks of their own. The largest of several numbers has no order, so that all targets get the
 * same scale.
 */
#include "quantise_int.h"

/* The axis of images [n, c, s..] that they are cut into slices along: the outermost with enough of them, else the
 * longest. */
static int64_t slice_axis(cy_graph *g, const cy_type *t, const int64_t *sizes) {
  enum { ENOUGH = 16 };
  int64_t best = 2, max = cy_dim_eval(g, t->dim[2], sizes);
  for (int i = 3; i < t->rank && max < ENOUGH; i++)
    if (cy_dim_eval(g, t->dim[i], sizes) > max)
      max = cy_dim_eval(g, t->dim[best = i], sizes);
  return best;
}

/* The largest element of every image. */
static cy_val most_of_images(cy_graph *g, cy_val x, const int64_t *sizes) {
  const cy_type *t = cy_type_of(g, x);
  int64_t axes[CY_MAX_RANK], cut = slice_axis(g, t, sizes);
  uint32_t n = 0;
  for (int i = 1; i < t->rank; i++)
    if (i != cut)
      axes[n++] = i;
  cy_val slices = cy_build_reduce(g, CY_OP_reduce_max, x, axes, n, true);
  return cy_build_reduce(g, CY_OP_reduce_max, slices, &cut, 1, true);
}

/* The scale of every row is found by the kernel that rounds it. */
static cy_quant_rounded round_rows(cy_graph *g, cy_val x, bool float8) {
  const cy_attr to = cy_attr_int(CY_ATTR_round, CY_F8E4M3FN);
  cy_val ints = cy_build(g, CY_OP_quantize_rows, &x, 1, &to, float8, NULL, 0);
  return (cy_quant_rounded){.x = x, .ints = ints, .scale = cy_build_output(g, ints, 1)};
}

/* x [n, c, s..]: the scale is [n, 1, s..]. */
static cy_quant_rounded round_places(cy_graph *g, cy_val x, bool float8) {
  int rank = cy_type_of(g, x)->rank;
  int64_t last[CY_MAX_RANK], back[CY_MAX_RANK]; /* channels last, and back */
  for (int i = 0; i < rank; i++) {
    last[i] = i == 0 ? 0 : i + 1 < rank ? i + 1 : 1;
    back[last[i]] = i;
  }
  cy_quant_rounded r = round_rows(g, cy_build_transpose(g, x, last), float8);
  r.x = x;
  r.ints = cy_build_transpose(g, r.ints, back);
  r.scale = cy_build_transpose(g, r.scale, back);
  return r;
}

cy_quant_rounded cy_quant_round(cy_graph *g, cy_val x, cy_quant_scales scales, const int64_t *sizes, bool float8) {
  if (scales != CY_QUANT_PER_IMAGE)
    return scales == CY_QUANT_PER_ROW ? round_rows(g, x, float8) : round_places(g, x, float8);
  bool positive = !float8 && cy_never_negative(g, x);
  double steps = float8 ? CY_QUANT_FLOAT8_MAX : positive ? 255 : 127;
  cy_val bits = cy_build_bitcast(g, cy_build_unary(g, CY_OP_abs, x), CY_I32);
  cy_val max = cy_build_bitcast(g, most_of_images(g, bits, sizes), CY_F32);
  max = cy_build_binary(g, CY_OP_max, max, cy_build_scalar(g, CY_F32, 1e-30));
  cy_val up = cy_build_binary(g, CY_OP_div, cy_build_scalar(g, CY_F32, steps), max);
  cy_val whole = cy_build_binary(g, CY_OP_mul, x, up);
  whole = float8 ? whole : cy_build_unary(g, CY_OP_round, whole);
  return (cy_quant_rounded){.x = x,
                            .ints = cy_build_cast(g, whole,
                                                  float8     ? CY_F8E4M3FN
                                                  : positive ? CY_U8
                                                             : CY_I8),
                            .scale = cy_build_binary(g, CY_OP_mul, max, cy_build_scalar(g, CY_F32, 1 / steps))};
}
