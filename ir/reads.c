/* SPDX-License-Identifier: Apache-2.0 */
/* reads.c - contents of values that are known only when the model runs, as symbols.
 *
 * In: a value of a few integers. Out: its contents as dims: what is known at compile time, and for the rest symbols whose
 * value the running model reads there. Remembered in value->elems, as in contents.c.
 */
#include "ir_int.h"

#define MAX_READ 64

const cy_dim *cy_value_elems_or_read(cy_graph *g, cy_val v, uint32_t *out_n) {
  const cy_dim *known = cy_value_elems(g, v, out_n);
  uint64_t n;
  if (known || !v)
    return known;
  cy_value *value = cy_value_of(g, v);
  char cls = cy_dtype_of((cy_dtype)value->type.dtype)->cls;
  if ((cls != 'I' && cls != 'U' && cls != 'B') || !cy_type_static_count(g, &value->type, &n) || n > MAX_READ)
    return NULL;
  /* the host reads whole bytes */
  cy_val bytes = cy_dtype_of((cy_dtype)value->type.dtype)->bits < 8 ? cy_build_cast(g, v, CY_I64) : v;
  const cy_dim *part = cy_fold_known_part(g, v);
  cy_dim *elems = CY_NEW_ARRAY(g->arena, cy_dim, n + 1);
  for (uint64_t i = 0; i < n; i++) {
    if (part && part[i]) {
      elems[i] = part[i];
      continue;
    }
    cy_sym s = cy_sym_new(g, NULL, CY_SYM_DATA);
    cy_sym_info *info = cy_sym_of(g, s);
    info->value = bytes;
    info->index = (int64_t)i;
    info->min = cls == 'I' ? INT64_MIN : 0;
    info->max = cls == 'B' ? 1 : INT64_MAX;
    elems[i] = cy_dim_sym(g, s);
  }
  *out_n = (uint32_t)n;
  return cy_value_of(g, v)->elems = elems;
}
