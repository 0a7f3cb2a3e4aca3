/* SPDX-License-Identifier: Apache-2.0 */
/* int_lane_reduce.c - products of bytes with few columns: their lanes are k, too.
 *
 * Comes in: a plan, then accumulators of a tile. Goes out: how many lanes a column gets, and the accumulators as all others are.
 * Vectors of columns would be mostly empty. Instead a group of k is so many times longer: a row's bytes are broadcast
 * by as many dot4, each of which meets those of its own lane, and weights lie in the same order. Behind the last k
 * neighbouring lanes are added up, which leaves the columns of as many rows in a vector. Sums of integers do not depend
 * on their order.
 */
#include "int_gemm_int.h"

enum { ROWS = CY_INT_LANE_REDUCE_ROWS };

/* Cycles for a tile, about: each step loads every row's bytes and weights; adding up takes two shuffles and a sum for
 * each two vectors. */
static double tile_cycles(int64_t runs, int64_t run, unsigned each) {
  double folds = ROWS * (1 - 1.0 / each);
  return (double)(runs * cy_ceil(run, 4 * each)) * (ROWS + 1) / 2 + 1.5 * folds;
}

unsigned cy_int_lane_reduce_choose(const cy_cg *cg, const cy_int_gemm_plan *p) {
  bool window = p->d->conv && p->taps > 1;
  int64_t run = window ? p->axis[2].count * p->c : p->k, runs = window ? p->k / run : 1;
  unsigned best = 1, max = 1;
  while (p->n && p->n * max * 2 <= cg->W)
    max *= 2;
  if (!cy_form_on(cg, CY_FORM_INT_LANE_REDUCE) || !p->packed || !p->k || (p->rows && p->rows < ROWS))
    return 1;
  for (unsigned each = 2; each <= max && each <= cy_int_gemm_max_each(cg); each *= 2)
    if (tile_cycles(runs, run, each) < tile_cycles(runs, run, best))
      best = each;
  return best;
}

cy_tile cy_int_lane_reduce_tile(void) { return (cy_tile){ROWS, 1}; }

/* Sums of neighbouring lanes, first those of a, then those of b. */
static V fold(cy_cg *cg, V a, V b) {
  V even = cy_strided_lanes(cg, a, b, 0, 2, cg->W);
  return LLVMBuildAdd(cg->b, even, cy_strided_lanes(cg, a, b, 1, 2, cg->W), "");
}

V cy_int_lane_reduce_load(cy_cg *cg, V at, unsigned lanes) {
  return cy_repeated(cg, cy_load(cg, LLVMVectorType(cg->i32, lanes), at, 4), lanes, cg->W);
}

void cy_int_lane_reduce_fold(cy_cg *cg, unsigned each, unsigned mr, V start, V *v) {
  unsigned n = mr;
  for (unsigned left = each; left > 1; left /= 2, n /= 2)
    for (unsigned i = 0; i < n / 2; i++)
      v[i] = fold(cg, v[2 * i], v[2 * i + 1]);
  for (unsigned i = 0; start && i < n; i++)
    v[i] = LLVMBuildAdd(cg->b, v[i], start, "");
}

V cy_int_lane_reduce_row(cy_cg *cg, unsigned each, const V *v, unsigned row, unsigned lanes) {
  return cy_some_lanes(cg, v[row / each], row % each * (cg->W / each), lanes);
}
