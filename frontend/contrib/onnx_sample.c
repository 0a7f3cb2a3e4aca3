/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_sample.c - Sampling's choice of tokens: by chance, among the most probable ones.
 *
 * Random numbers are those of ONNX Runtime on Linux, so that the same seed gives the same text: a linear congruential
 * generator, of which two steps make a number in [0, 1), and all elements of the batch take turns. Every element begins
 * where its first iteration is, and jumps over those of the others.
 */
#include "generate.h"

#include <float.h>

static const int64_t axis1[1] = {1};
static const int64_t modulus = 2147483647, step = 16807; /* std::minstd_rand0 of C++ */

static cy_val number(cy_importer *im, int64_t v) { return cy_build_scalar_int(im->g, CY_I64, v); }

/* x times factor, of the generator's numbers: both are below 2^31. */
static cy_val times(cy_importer *im, cy_val x, int64_t factor) {
  return BINARY(mod, MUL(x, number(im, factor)), number(im, modulus));
}

/* What 2 * count steps multiply a state with. */
static cy_val jump(cy_importer *im, cy_val count) {
  cy_val y = number(im, 1);
  int64_t factor = step * step % modulus;
  for (int bit = 0; bit < 31 && y && count; bit++, factor = factor * factor % modulus) {
    cy_val set = BINARY(ne, BINARY(and, count, number(im, (int64_t)1 << bit)), number(im, 0));
    y = SELECT(set, times(im, y, factor), y);
  }
  return y;
}

cy_val cy_search_seed(const cy_search *s) {
  cy_importer *im = s->im;
  cy_val seed = s->seed ? BINARY(mod, s->seed, number(im, modulus)) : number(im, 0);
  seed = SELECT(BINARY(eq, seed, number(im, 0)), number(im, 1), seed);
  cy_val first = jump(im, cy_build_iota(im->g, CY_I64, &s->batch, 1, 0));
  return BINARY(mod, MUL(first, seed), number(im, modulus));
}

/* f64 [batch] in [0, 1). */
static cy_val draw(const cy_search *s, cy_val *state) {
  cy_importer *im = s->im;
  cy_val one = number(im, 1), low = times(im, *state, step), high = times(im, low, step);
  double range = (double)(modulus - 1);
  low = CAST(SUB(low, one), CY_F64);
  high = CAST(SUB(high, one), CY_F64);
  *state = BINARY(mod, MUL(*state, jump(im, cy_build_dim_scalar(im->g, s->batch))), number(im, modulus));
  return low && high ? DIV(ADD(low, MUL(high, LIKE(high, range))), LIKE(low, range * range)) : 0;
}

static cy_val running_sums(cy_importer *im, cy_val x) {
  const cy_attr a[3] = {cy_attr_int(CY_ATTR_axis, 1), cy_attr_int(CY_ATTR_exclusive, 0),
                        cy_attr_int(CY_ATTR_reverse, 0)};
  return x ? cy_build(im->g, CY_OP_cumsum, &x, 1, a, 3, NULL, 0) : 0;
}

/* Scores [batch, vocab] where those of improbable tokens, whose probabilities sum to 1 - top_p, are `filter`. Custom: the
 * sum counts from the most probable one on, and the one that passes top_p stays. */
static cy_val filtered(const cy_search *s, cy_val scores) {
  cy_importer *im = s->im;
  cy_type types[2] = {*cy_onnx_type(im, scores), *cy_onnx_type(im, scores)};
  types[1].dtype = CY_I64;
  cy_attr axis = cy_attr_int(CY_ATTR_axis, 1);
  cy_attr a[3] = {axis, cy_attr_int(CY_ATTR_largest, s->custom), cy_attr_int(CY_ATTR_sorted, 1)};
  cy_val sorted = cy_build(im->g, CY_OP_topk, &scores, 1, a, 3, types, 2), at = cy_build_output(im->g, sorted, 1);
  cy_val p = sorted ? cy_build(im->g, CY_OP_softmax, &sorted, 1, &axis, 1, NULL, 0) : 0, sum = running_sums(im, p);
  if (!sum)
    return 0;
  cy_dim none = cy_dim_const(im->g, 0), one = cy_dim_const(im->g, 1);
  cy_val place = cy_build_iota(im->g, CY_I64, (cy_dim[]){one, s->vocab}, 2, 1), drop;
  if (s->custom) {
    cy_dim pads[4] = {none, one, none, cy_dim_const(im->g, -1)}; /* sums before each */
    sum = cy_build_pad(im->g, sum, pads, CY_PAD_CONSTANT, LIKE(sum, 0));
    drop = BINARY(and, BINARY(gt, sum, LIKE(sum, s->top_p)), BINARY(gt, place, number(im, 0)));
  } else {
    cy_val last = cy_build_dim_scalar(im->g, cy_dim_addi(im->g, s->vocab, -s->min));
    cy_val among = BINARY(lt, place, MAX(last, number(im, 1)));
    drop = BINARY(and, BINARY(le, sum, LIKE(sum, (float)(1 - (float)s->top_p))), among);
  }
  const cy_attr put[2] = {axis, cy_attr_int(CY_ATTR_combine, CY_COMBINE_SET)};
  cy_val in[3] = {scores, at, SELECT(drop, LIKE(sorted, s->filter), sorted)};
  return in[2] ? cy_build(im->g, CY_OP_scatter_elements, in, 3, put, 2, NULL, 0) : 0;
}

cy_val cy_search_sample(const cy_search *s, cy_val scores, cy_val *state) {
  cy_importer *im = s->im;
  cy_val x = CAST(filtered(s, scores), CY_F64);
  if (!x)
    return 0;
  cy_val odd = BINARY(or, UNARY(isnan, x), UNARY(isinf, x));
  cy_val max = cy_build_reduce(im->g, CY_OP_reduce_max, SELECT(odd, LIKE(x, -FLT_MAX), x), axis1, 1, true);
  cy_val sums = running_sums(im, SELECT(odd, LIKE(x, 0), UNARY(exp, SUB(x, max))));
  cy_dim one = cy_dim_const(im->g, 1), last = cy_dim_addi(im->g, s->vocab, -1);
  cy_val total = cy_build_slice_axis(im->g, sums, 1, last, one), u = cy_build_unsqueeze(im->g, draw(s, state), 1);
  cy_val passed = CAST(BINARY(le, sums, MUL(u, total)), CY_I64);
  cy_val token = cy_build_reduce(im->g, CY_OP_reduce_sum, passed, axis1, 1, false);
  return MIN(token, cy_build_dim_scalar(im->g, last));
}
