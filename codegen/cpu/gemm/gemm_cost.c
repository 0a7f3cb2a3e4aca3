/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_cost.c - what a matrix product takes without Strassen's algorithm, whatever its weights are stored in.
 *
 * In: a cy_gemm_desc. Out: its work in numbers, and cycles of one core, for the choice among candidates and for passes alike.
 */
#include "microkernel.h"

cy_gemm_work cy_gemm_work_of(const cy_gemm_desc *d) {
  const int64_t unknown = 1024;
  cy_gemm_work w = {1, (double)cy_csize_or(d->m, unknown), (double)cy_csize_or(d->k, unknown), (double)cy_csize_or(d->n, unknown)};
  for (int i = 0; i < d->n_batch; i++)
    if (!cy_csize_known(d->batch[i]))
      return w;
  for (int i = 0; i < d->n_batch; i++)
    *(cy_csize_is(d->b_batch[i], 0) ? &w.rows : &w.matrices) *= (double)cy_csize_known(d->batch[i]);
  return w;
}

/* Of weights in integers, by the generator that multiplies them. */
static double blocks_cost(const cy_cg *cg, const cy_gemm_desc *d, const cy_gemm_work *w) {
  if (d->ints.bf16)
    return cy_cost_grouped(cg, CY_FACTORS_BF16, w->rows, w->k, w->n, w->n, 0, 1);
  if (d->ints.rows24)
    return cy_cost_rows24(cg, w->rows * w->k * w->n, w->k * w->n, d->ints.bits);
  return cy_cost_grouped(cg, CY_FACTORS_BYTES, w->rows, w->k, w->n, w->n, 0, 1) + cy_cost_rounding(cg, w->rows * w->k, false);
}

double cy_gemm_cost(const cy_cg *cg, const cy_gemm_desc *d) {
  cy_gemm_work w = cy_gemm_work_of(d);
  if (d->ints.bf16 || d->ints.rows24 || d->ints.quantised_rows)
    return w.matrices * blocks_cost(cg, d, &w);
  double products = w.rows * w.k * w.n, weights = w.k * w.n, outputs = w.rows * w.n;
  int bits = d->ints.bits ? d->ints.bits : (int)(8 * cy_weight_bytes(d->weights));
  return w.matrices * (bits == 32 ? cy_cost_plain(cg, cy_cost_fmas(cg, products), 4 * weights, outputs)
                                  : cy_cost_narrow_weights(cg, products, weights, bits, outputs));
}
