/* SPDX-License-Identifier: Apache-2.0 */
/* pingpong.c - sm_90a: should the warpgroups of a kernel by tensor maps multiply in turns (matrix_tma.c)?
 *
 * In:  a product or convolution in tiles of 128 rows and so many columns. Out: tma_n, tma_pingpong of its schedule.
 *
 * Clocks of a multiprocessor are estimated for both, P for the products of a tile and E for its end:
 *
 *   a tile of 128 x n for both warpgroups:         tiles * (P + E): both end it at about the same time
 *   tiles of 128 x 128 for each in turn:           P + (tiles - 1) * max(P, E) + E
 *
 * tiles: of the multiprocessor that has most. P: a step of 128 bytes of k takes 4 n clocks, or as long as the second-level
 * cache takes to bring 128 rows and n columns, half of these where blocks go in pairs; narrower tiles need more of it
 * for the same products, and that is why products with a short end keep the wide ones. E: warp instructions, one a clock
 * for each quarter of a multiprocessor. Products of integers, whose zero points both warpgroups work out together, and which
 * end in a few instructions, are left as they are.
 */
#include "contract_int.h"

#include <math.h>
#include <stdlib.h>

enum {
  ROWS = CY_CU_TMA_M,
  MAX_COLUMNS = 128, /* of which a warpgroup has room for the accumulators of all rows */
  PAIRED_COLUMNS = 128,
  CACHE_BYTES = 5120 / 132, /* that the second-level cache gives a multiprocessor in a clock */
  STORE_WORK = 7,           /* instructions for a result, through shared memory to where it belongs, */
  LOAD_WORK = 2             /* .. and for what an epilogue reads; of compiled kernels */
};

/* Instructions of an expression, each once; indices are added up outside of it. */
static double work_of(cy_kernel *k, cy_expr e, uint8_t *seen) {
  const cy_expr_info *x = cy_expr_of(k, e);
  if (seen[e])
    return 0;
  seen[e] = 1;
  if (x->op == CY_X_LOAD)
    return LOAD_WORK;
  double work = x->op < CY_OP_COUNT && x->op != CY_OP_bitcast ? cy_op_of((cy_op)x->op)->cost : 0;
  for (int i = 0; i < x->n; i++)
    work += work_of(k, x->arg[i], seen);
  return work;
}

static double work_of_list(cy_kernel *k, const cy_stmt *s, uint8_t *seen) {
  double work = 0;
  for (; s; s = s->next)
    work += (s->value ? work_of(k, s->value, seen) : 0) + work_of_list(k, s->body, seen);
  return work;
}

static double epilogue_work(cy_kernel *k) {
  uint8_t *seen = calloc(cy_expr_count(k) + 1, 1);
  if (!seen)
    cy_no_memory();
  double work = work_of_list(k, cy_kernel_body(k), seen);
  free(seen);
  return work + STORE_WORK;
}

/* Clocks for the products of a tile. */
static double products(double steps, int columns) {
  double bytes = CY_CU_TMA_ROW_BYTES * (ROWS + (columns >= PAIRED_COLUMNS ? columns / 2 : columns));
  return steps * fmax(4 * columns, bytes / CACHE_BYTES);
}

static double tiles_of(const cy_machine *m, double rows, double all_columns, int columns) {
  return ceil(rows * ceil(all_columns / columns) / cy_cuda_multiprocessors_of(m, 90));
}

void cy_cu_pingpong(const cy_machine *m, cy_kernel *k, double rows, int columns, cy_cuda_schedule *schedule) {
  cy_graph *g = cy_kernel_graph(k);
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_cu_sizes s = cy_cu_sizes_of(k);
  int own = columns < MAX_COLUMNS ? columns : MAX_COLUMNS;
  double all = cy_cu_estimate(g, s.n, 512), work = epilogue_work(k);
  double steps = ceil(cy_cu_estimate(g, s.k, 4096) / cy_cu_tma_depth(cy_cu_factor_type(k)));
  double wide = tiles_of(m, rows, all, columns), each = tiles_of(m, rows, all, own);
  double p = products(steps, own), e = own * work;
  double together = wide * (products(steps, columns) + columns * work), in_turns = p + (each - 1) * fmax(p, e) + e;
  int wanted = ((const cy_cuda_machine *)m->state)->pingpong;
  bool faster = wanted ? wanted > 0 : each >= 2 && in_turns < together;
  schedule->tma_pingpong = cy_kernel_local_dtype(k, c->acc) == CY_F32 && faster;
  schedule->tma_n = schedule->tma_pingpong ? own : columns;
}
