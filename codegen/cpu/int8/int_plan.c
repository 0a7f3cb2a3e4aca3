/* SPDX-License-Identifier: Apache-2.0 */
/* int_plan.c - what follows from the plan of an integer GEMM: sizes of k, places of rows.
 *
 * In: a cy_int_gemm_plan (int_gemm.c). Out: numbers and code that its tasks, copies and tiles all need.
 */
#include "int_gemm_int.h"

typedef cy_int_gemm_plan plan;

/* Do rows lie in memory as they would in scratch, all of them one run? */
bool cy_int_gemm_rows_as_wanted(const plan *p) {
  return p->dense && (p->k % cy_int_gemm_tile_k(p) == 0 || cy_int_gemm_rows_reach(p));
}

V cy_int_gemm_k_size(cy_cg *cg, const plan *p) { return p->d->conv ? cy_i64(cg, p->k) : cy_size(cg, p->d->gemm.k); }
/* Groups of k, with those that fill up the last tile. */
V cy_int_gemm_k_groups(cy_cg *cg, const plan *p) {
  if (p->row_block)
    return cy_i64(cg, cy_int_gemm_row_block_groups(p));
  V there = cy_ceil_div(cg, cy_int_gemm_k_size(cg, p), cy_i64(cg, p->variant.step));
  return cy_mulc(cg, cy_ceil_div(cg, there, cy_i64(cg, p->variant.together)), p->variant.together);
}

/* Output position `flat` of a convolution: image, then the axes. */
void cy_int_gemm_split_position(cy_cg *cg, const plan *p, V flat, V *image, V *o) {
  for (int i = 2; i >= 0; i--) {
    V size = cy_size(cg, p->axis[i].out);
    bool whole = cy_csize_is(p->axis[i].out, 1);
    o[i] = whole ? cy_i64(cg, 0) : cy_mod(cg, flat, size);
    flat = whole ? flat : cy_div(cg, flat, size);
  }
  *image = cy_csize_is(p->d->window.batch, 1) ? cy_i64(cg, 0) : flat;
}

/* The element of a so many behind the one at `from`. */
V cy_int_gemm_elements_on(cy_cg *cg, const plan *p, V from, V elements) {
  return cy_gep(cg, from, cy_mulc(cg, elements, p->variant.bf16 ? 2 : 1));
}
