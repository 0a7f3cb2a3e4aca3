/* SPDX-License-Identifier: Apache-2.0 */
/* int_choose.c - which generator a contraction of integers or bf16 has.
 *
 * In: a cy_int_gemm_desc, whose weights are known to allow what it asks for (split, winograd). Out: the row of its
 * generator, and what that can do for the caller.
 */
#include "int_gemm.h"

const cy_generator *cy_int_generator(const cy_int_gemm_desc *d) {
  if (d->winograd)
    return &cy_int_winograd_generator;
  return cy_int_depthwise_possible(d) ? &cy_int_depthwise_generator : &cy_int_gemm_generator;
}

bool cy_int_gemm_starts(const cy_int_gemm_desc *d) {
  return !d->bf16 && !d->winograd && (d->conv || d->gemm.b_packed);
}
