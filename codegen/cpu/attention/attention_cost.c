/* SPDX-License-Identifier: Apache-2.0 */
/* attention_cost.c - what attention takes.
 *
 * In: a cy_attention_desc. Out: cycles of one core, for --explain=costs and for passes alike; what is computed, in words.
 */
#include "codegen/cpu/contract.h"
#include "codegen/cpu/int8/int_gemm.h"

/* As many as fill tiles of AMX. */
static double filled(const cy_cg *cg, double n) {
  return cg->amx_bf16 ? (double)cy_round_up((int64_t)n, 2 * CY_AMX_ROWS) : n;
}

double cy_attention_cost(const cy_cg *cg, const cy_attention_desc *d) {
  const int64_t unknown = 256;
  double rows = (double)cy_csize_or(d->m, unknown), keys = (double)cy_csize_or(d->keys, unknown), heads = 1;
  double size = (double)d->size, columns = (double)d->columns;
  for (int i = 0; i < d->n_batch; i++)
    heads *= (double)cy_csize_or(d->batch[i], 1);
  if (!d->bf16)
    return heads * cy_cost_attention(cg, false, rows * keys, rows * keys * (size + columns), 0);
  double products = filled(cg, rows) * filled(cg, keys) * (filled(cg, size) + filled(cg, columns));
  return cy_cost_attention(cg, true, heads * rows * keys, heads * products,
                           heads * (rows * size + keys * (size + columns)));
}

void cy_attention_text(const cy_attention_desc *d, cy_candidates *c) {
  const int64_t m = cy_csize_known(d->m), keys = cy_csize_known(d->keys);
  int64_t heads = 1;
  for (int i = 0; i < d->n_batch && heads > 0; i++)
    heads = cy_csize_known(d->batch[i]) ? heads * cy_csize_known(d->batch[i]) : -1;
  const int64_t sizes[] = {m ? m : -1, keys ? keys : -1, d->size, d->columns, heads};
  const char *const before[] = {" m", " keys", " size", " values", " b"};
  cy_layer_text(c, "attention%s", d->bf16 ? "_bf16" : "");
  for (int i = 0; i < 5; i++)
    cy_layer_sizes(c, before[i], sizes + i, 1);
}
