/* SPDX-License-Identifier: Apache-2.0 */
/* half_constant.c - constants in half precision.
 *
 * In:  a constant of f32. Out: one of f16 or bf16, or of f32 with the values that these hold. Refused: values beyond the
 * largest f16; where asked for, what would be rounded at all.
 */
#include "quantise_int.h"

#include <math.h>

double cy_half_largest(const cy_data *d) {
  const cy_data_f32 *w = d->bytes;
  double max = 0;
  for (uint64_t i = 0; i < d->size / sizeof *w; i++)
    max = isfinite(w[i]) && fabs(w[i]) > max ? fabs(w[i]) : max;
  return max;
}

cy_val cy_half_rounded(cy_graph *g, cy_val v, cy_dtype rounded, cy_dtype to) {
  const cy_data *d = &cy_value_of(g, v)->data;
  uint64_t n = d->size / sizeof(float);
  const void *from = d->bytes;
  cy_type t = *cy_type_of(g, v);
  cy_val made;
  t.dtype = (uint8_t)to;
  (to == rounded ? cy_halves_store : cy_halves_round)(cy_const_new(g, &t, &made), rounded, from, n);
  cy_const_made_of(g, made, v);
  return made;
}

bool cy_half_fits(cy_dtype half, const cy_data *d) { return half != CY_F16 || cy_half_largest(d) < CY_HALF_BEYOND_F16; }

cy_val cy_half_constant(cy_graph *g, cy_val v, cy_dtype half, bool exact) {
  const cy_data *d = &cy_value_of(g, v)->data;
  return (exact ? cy_halves_hold(half, d->bytes, d->size / sizeof(float)) : cy_half_fits(half, d))
             ? cy_half_rounded(g, v, half, half)
             : 0;
}
