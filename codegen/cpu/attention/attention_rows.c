/* SPDX-License-Identifier: Apache-2.0 */
/* attention_rows.c - which row of which head a task's row is. In: a task's place (work). Out: an epilogue's indices,
 * where the row's query lies. */
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

V cy_attention_query(cy_cg *cg, const work *w, V r) {
  const cy_attention_desc *d = w->a->d;
  V idx[CY_GEMM_BATCH + 1];
  cy_attention_row_indices(cg, w, r, idx);
  V at = cy_batch_offset(cg, idx, d->q_batch, d->n_batch), row = cy_mul(cg, idx[d->n_batch], cy_size(cg, d->qm));
  V base = cy_arg_ptr(cg, d->q_slot), elements = cy_add(cg, at, row);
  return w->a->half ? cy_gep(cg, base, cy_mulc(cg, elements, 2)) : cy_gepf(cg, base, elements);
}
