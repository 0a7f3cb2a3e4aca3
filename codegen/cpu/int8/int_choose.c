/* SPDX-License-Identifier: Apache-2.0 */
/* int_choose.c - which generator a contraction of integers or bf16 has.
 *
 * In: a cy_int_gemm_desc, whose weights are known to allow what it asks for (split, winograd). Out: the row of its
 * generator, what that can do for the caller, and of which kinds of variants it is.
 */
#include "codegen/cpu/variants.h"
#include "int_gemm.h"

const cy_generator *cy_int_generator(const cy_int_gemm_desc *d) {
  if (d->winograd)
    return &cy_int_winograd_generator;
  return cy_int_depthwise_possible(d) ? &cy_int_depthwise_generator : &cy_int_gemm_generator;
}

bool cy_int_gemm_starts(const cy_int_gemm_desc *d) {
  return !d->bf16 && !d->winograd && (d->conv || d->gemm.b_packed);
}

cy_variants cy_int_variants(const cy_cg *cg, const cy_int_gemm_desc *d) {
  cy_variants v = {.kinds = CY_OF_INT_DEPTHWISE, .base = CY_BASE_DEPTHWISE, .by = cy_int_generator(d), .desc = d};
  if (!cy_int_depthwise_possible(d))
    cy_int_gemm_variants(cg, d, &v);
  return v;
}
