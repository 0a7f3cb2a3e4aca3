/* SPDX-License-Identifier: Apache-2.0 */
/* batch.c - the batch axes of products: numbers of matrices to indices, offsets, and back.
 *
 * In: sizes and strides of the axes, outermost first. Out: values for gemm.c, int_gemm.c and attention.c. Axes along
 * which B stands still (stride 0) do not count among its matrices, which are numbered in the order of the others.
 */
#include "microkernel.h"

#include <string.h>

V cy_batch_count(cy_cg *cg, const cy_csize *sizes, int n) {
  V count = cy_i64(cg, 1);
  for (int i = 0; i < n; i++)
    count = cy_mul(cg, count, cy_size(cg, sizes[i]));
  return count;
}

int64_t cy_batch_known(const cy_gemm_desc *d) {
  int64_t count = 1;
  for (int i = 0; i < d->n_batch; i++)
    count *= cy_csize_known(d->batch[i]) ? cy_csize_known(d->batch[i]) : 1;
  return count;
}

bool cy_batch_all_known(const cy_gemm_desc *d) {
  for (int i = 0; i < d->n_batch; i++)
    if (!cy_csize_known(d->batch[i]))
      return false;
  return true;
}

void cy_batch_split(cy_cg *cg, const cy_csize *sizes, int n, V flat, V *idx) {
  for (int i = n - 1; i >= 0; i--) {
    V size = cy_size(cg, sizes[i]);
    idx[i] = i ? cy_mod(cg, flat, size) : flat;
    flat = i ? cy_div(cg, flat, size) : flat;
  }
}

V cy_batch_offset(cy_cg *cg, const V *idx, const cy_csize *strides, int n) {
  V sum = cy_i64(cg, 0);
  for (int i = 0; i < n; i++)
    sum = cy_add(cg, sum, cy_mul(cg, idx[i], cy_size(cg, strides[i])));
  return sum;
}

V cy_gemm_b_count(cy_cg *cg, const cy_gemm_desc *d) {
  V count = cy_i64(cg, 1);
  for (int i = 0; i < d->n_batch; i++)
    if (!cy_csize_is(d->b_batch[i], 0))
      count = cy_mul(cg, count, cy_size(cg, d->batch[i]));
  return count;
}

V cy_gemm_b_number(cy_cg *cg, const cy_gemm_desc *d, const V *idx) {
  if (d->b_packed)
    return cy_batch_offset(cg, idx, d->b_batch, d->n_batch);
  V number = cy_i64(cg, 0);
  for (int i = 0; i < d->n_batch; i++)
    if (!cy_csize_is(d->b_batch[i], 0))
      number = cy_add(cg, cy_mul(cg, number, cy_size(cg, d->batch[i])), idx[i]);
  return number;
}

V cy_gemm_b_offset(cy_cg *cg, const cy_gemm_desc *d, V number) {
  V offset = cy_i64(cg, 0);
  for (int i = d->n_batch - 1; i >= 0; i--) {
    if (cy_csize_is(d->b_batch[i], 0))
      continue;
    V size = cy_size(cg, d->batch[i]);
    offset = cy_add(cg, offset, cy_mul(cg, cy_mod(cg, number, size), cy_size(cg, d->b_batch[i])));
    number = cy_div(cg, number, size);
  }
  return offset;
}

cy_matrix_rows cy_matrix_rows_at(cy_cg *cg, const cy_gemm_desc *d, V matrix, V row0) {
  cy_matrix_rows r = {.row0 = row0, .n = (unsigned)d->n_batch};
  cy_batch_split(cg, d->batch, d->n_batch, matrix, r.idx);
  return r;
}

static void matrix_row(void *ctx, cy_cg *cg, V row, V *idx) {
  const cy_matrix_rows *r = ctx;
  memcpy(idx, r->idx, r->n * sizeof *idx);
  idx[r->n] = cy_add(cg, r->row0, row);
}

cy_rows cy_matrix_rows_index(const cy_matrix_rows *r) { return (cy_rows){matrix_row, (void *)r, r->n + 1}; }
