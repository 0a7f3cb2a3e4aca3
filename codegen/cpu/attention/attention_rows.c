/* SPDX-License-Identifier: Apache-2.0 */
/* attention_rows.c - which row of which head a task's row is. In: a task's place (work). Out: an epilogue's indices. */
#include "attention_int.h"

#include <string.h>

void cy_attention_row_indices(cy_cg *cg, const work *w, V r, V *idx) {
  const cy_attention_desc *d = w->a->d;
  int outer = d->n_batch - w->a->shared;
  memcpy(idx, w->idx, (size_t)outer * sizeof *idx);
  V m = cy_size(cg, d->m), rest = r;
  idx[d->n_batch] = w->a->shared ? cy_mod(cg, r, m) : r;
  rest = w->a->shared ? cy_div(cg, r, m) : r;
  for (int i = d->n_batch - 1; i >= outer; i--) {
    V extent = cy_size(cg, d->batch[i]);
    idx[i] = i > outer ? cy_mod(cg, rest, extent) : rest;
    rest = i > outer ? cy_div(cg, rest, extent) : rest;
  }
}
