/* SPDX-License-Identifier: Apache-2.0 */
/* columns.c - reductions across the contiguous axis: pooling of whole images, normalisations of channels-last tensors.
 *
 * In: a kernel of items each of which goes through long serial loops that only add up and store. Out: a block of
 * `columns` neighbouring items, so that what a warp reads is contiguous, times `strands` threads that share the
 * iterations of their loops. Each strand has a partial sum; they meet in shared memory and are added in the order of
 * the strands. One multiprocessor's share of the bandwidth is what bounds a block: it takes few columns where there are
 * few of them, as many threads as it can have, and several iterations' loads are on their way at a time.
 */
#include "codegen/cuda/cuda_int.h"

enum {
  COLUMNS = 32,
  FEW_COLUMNS = 8, /* where items are few: what memory moves at once, of f32 */
  MIN_COLUMNS = 4,
  MIN_ITERATIONS = 64,   /* of a loop worth sharing */
  STRAND_ITERATIONS = 8, /* that a strand should have */
  MAX_THREADS = 1024,
  ITEM_THREADS = 256 /* of a block of items (schedule.c) */
};

static bool only_accumulators(const cy_stmt *s) {
  for (; s; s = s->next)
    if (s->kind == CY_S_SET || (s->kind == CY_S_FOR && (s->lanes || !only_accumulators(s->body))))
      return false;
  return true;
}

/* The least and greatest number of iterations of the loops; false: one of them cannot be shared. */
static bool loops_fit(cy_kernel *k, const cy_stmt *body, int64_t *out_iterations) {
  *out_iterations = 0;
  for (const cy_stmt *s = body; s; s = s->next) {
    int64_t min, max;
    if (s->kind == CY_S_ACCUM || (s->kind == CY_S_FOR && (s->lanes || !only_accumulators(s->body))))
      return false;
    if (s->kind != CY_S_FOR)
      continue;
    cy_dim_range(cy_kernel_graph(k), cy_kernel_var(k, s->var)->extent, &min, &max);
    max = max == INT64_MAX ? MIN_ITERATIONS * STRAND_ITERATIONS : max;
    *out_iterations = max > *out_iterations ? max : *out_iterations;
  }
  return *out_iterations >= MIN_ITERATIONS;
}

/* Items alone fill a device when there are some of its threads' number; if there may be fewer, strands make up for it.
 */
bool cy_cuda_columns_schedule(const cy_machine *m, cy_kernel *k, cy_dim items, const cy_stmt *body, cy_cuda_schedule *f) {
  cy_graph *g = cy_kernel_graph(k);
  int64_t iterations, min, max, wanted = (int64_t)cy_cu_wanted_blocks(m) * ITEM_THREADS;
  if (!loops_fit(k, body, &iterations))
    return false;
  cy_dim_range(g, items, &min, &max);
  if (min > wanted / 2)
    return false;
  f->kind = CY_CUDA_COLUMNS;
  f->columns = COLUMNS;
  while (f->columns / 2 >= max && f->columns > MIN_COLUMNS)
    f->columns /= 2;
  while (f->columns > FEW_COLUMNS && min < (int64_t)f->columns * cy_cu_wanted_blocks(m))
    f->columns /= 2;
  f->group = 2;
  while (f->group * f->columns < MAX_THREADS && f->group * (min > 0 ? min : 1) < wanted &&
         f->group * STRAND_ITERATIONS * 2 <= iterations)
    f->group *= 2;
  f->threads = f->columns * f->group;
  f->blocks = cy_dim_cdiv(g, items, cy_dim_const(g, f->columns));
  return true;
}

static void print_loop(cy_cu *p, const cy_stmt *s) {
  uint32_t mark = p->nlog;
  const char *type = cy_cu_var_type(p, s->var);
  uint8_t *ops = cy_cu_partials_open(p, s);
  cy_cu_line(p, "CY_UNROLL_BY(8)");
  cy_cu_line(p, "for (%s v%u = strand; live && v%u < %s; v%u += %d) {", type, s->var, s->var,
             cy_cu_dim(p, cy_kernel_var(p->k, s->var)->extent), s->var, p->schedule->group);
  cy_cu_open(p);
  cy_cu_list(p, s->body);
  cy_cu_close(p, mark);
  cy_cu_line(p, "}");
  p->group = p->schedule->group;
  p->apart = p->schedule->columns;
  cy_cu_partials_close(p, ops);
  p->group = 1;
  p->apart = 0;
}

void cy_cuda_columns_print(cy_cu *p, const cy_stmt *body) {
  cy_cu_line(p, "const int strand = CY_TID / %d;", p->schedule->columns);
  for (const cy_stmt *s = body; s; s = s->next) {
    uint32_t mark = p->nlog;
    if (s->kind == CY_S_FOR) {
      print_loop(p, s);
    } else if (s->kind == CY_S_STORE) {
      cy_cu_line(p, "if (live && strand == 0) {");
      cy_cu_open(p);
      cy_cu_stmt(p, s);
      cy_cu_close(p, mark);
      cy_cu_line(p, "}");
    } else {
      cy_cu_stmt(p, s);
    }
    cy_cu_forget(p, mark);
  }
}
