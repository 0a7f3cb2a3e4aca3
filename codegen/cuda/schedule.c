/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.c - which thread does what: the schedule of a plain loop kernel on the GPU.
 *
 * In: a kernel whose lane loops lowering has chosen. Out: a cy_cuda_schedule. Thread per item wherever nothing is shared
 * between the iterations of a lane loop (columns.c, scatter.c: several threads, where items are few and have long loops
 * of their own); a group of threads per task where a lane loop reduces, is followed by others, or works on scratch
 * (rows.c, if it can). Lanes always go to neighbouring threads, so what is contiguous along the lanes is coalesced.
 */
#include "codegen/cuda/cuda_int.h"

#include <string.h>

enum {
  ITEM_THREADS = 256,
  WARP = 32,
  WARPS = 4,              /* tasks per block where a warp does one */
  WARP_ITERATIONS = 1024, /* lane loops of no more iterations are a warp's */
  BLOCK_THREADS = 256,
  LONG_ITERATIONS = 16384, /* from here on a block of LONG_THREADS */
  LONG_THREADS = 1024,
  SHARED_BYTES =
      40 << 10 /* scratch of a block in shared memory, at most: 48 KB without asking, some is the printer's */
};

/* ---- what a body contains ---- */

typedef struct contents {
  bool lanes, deep;              /* deep: the iterations of a lane loop have loops of their own */
  int64_t iterations;            /* most of any lane loop; INT64_MAX: not known */
  uint64_t loaded[4], stored[4]; /* bits of arguments */
  uint8_t *seen;                 /* expressions that were looked at */
} contents;

static void set_bit(uint64_t *set, uint32_t i) { set[i / 64 % 4] |= UINT64_C(1) << (i % 64); }

static void scan_expr(cy_kernel *k, cy_expr e, contents *c) {
  const cy_expr_info *x = cy_expr_of(k, e);
  if (c->seen[e])
    return;
  c->seen[e] = 1;
  if (x->op == CY_X_LOAD)
    set_bit(c->loaded, x->id);
  for (int i = 0; i < x->n; i++)
    scan_expr(k, x->arg[i], c);
}

static bool has_loop(const cy_stmt *s) {
  for (; s; s = s->next)
    if (s->kind == CY_S_FOR)
      return true;
  return false;
}

static void scan(cy_kernel *k, const cy_stmt *s, contents *c) {
  for (; s; s = s->next) {
    if (s->kind == CY_S_FOR && s->lanes) {
      int64_t iterations;
      if (!cy_dim_is_const(cy_kernel_graph(k), cy_kernel_var(k, s->var)->extent, &iterations))
        iterations = INT64_MAX;
      c->lanes = true;
      c->deep |= has_loop(s->body);
      c->iterations = iterations > c->iterations ? iterations : c->iterations;
    }
    if (s->kind == CY_S_STORE)
      set_bit(c->stored, s->arg);
    if (s->value)
      scan_expr(k, s->value, c);
    if (s->offset)
      scan_expr(k, s->offset, c);
    scan(k, s->body, c);
  }
}

static bool reads_what_it_writes(const contents *c) {
  for (int i = 0; i < 4; i++)
    if (c->loaded[i] & c->stored[i])
      return true;
  return false;
}

/* Does the lane loop `whole` accumulate into a local from outside? */
static bool reduces(const cy_stmt *whole, const cy_stmt *s) {
  for (; s; s = s->next)
    if ((s->kind == CY_S_ACCUM && !cy_stmt_sets(whole->body, s->local)) || reduces(whole, s->body))
      return true;
  return false;
}

/* The lane loop that is all there is, perhaps inside of serial loops; NULL: there is more. */
static const cy_stmt *only_lanes(cy_kernel *k, const contents *c) {
  const cy_stmt *s = cy_kernel_body(k);
  int depth = 0;
  for (; s && !s->next && s->kind == CY_S_FOR; s = s->body, depth++)
    if (s->lanes)
      return reduces(s, s->body) || (depth && reads_what_it_writes(c)) ? NULL : s;
  return NULL;
}

/* ---- schedules ---- */

static void items(const cy_machine *m, cy_kernel *k, cy_cuda_schedule *f, const cy_stmt *lanes, const contents *c) {
  cy_graph *g = cy_kernel_graph(k);
  cy_dim n = cy_kernel_tasks(k);
  f->kind = CY_CUDA_ITEMS;
  f->lanes = lanes;
  f->threads = ITEM_THREADS;
  if (lanes && lanes == cy_kernel_body(k) && cy_cuda_vectorise_crossing(k, f)) {
    cy_dim each = cy_dim_cdiv(g, cy_kernel_var(k, f->strip->var)->extent, cy_dim_const(g, f->vector));
    n = cy_dim_mul(g, cy_dim_mul(g, cy_kernel_tasks(k), cy_kernel_var(k, f->lanes->var)->extent), each);
    f->blocks = cy_dim_cdiv(g, n, cy_dim_const(g, f->threads));
    return;
  }
  if (lanes)
    n = cy_dim_mul(g, n, cy_kernel_var(k, lanes->var)->extent);
  const cy_stmt *body = !lanes ? cy_kernel_body(k) : lanes == cy_kernel_body(k) ? lanes->body : NULL;
  if (body && (cy_cuda_scatter_schedule(m, k, n, body, f) ||
               (!reads_what_it_writes(c) && cy_cuda_columns_schedule(m, k, n, body, f))))
    return;
  cy_cuda_vectorise(k, f);
  if (f->vector)
    n = cy_dim_div(g, n, cy_dim_const(g, f->vector));
  f->blocks = cy_dim_cdiv(g, n, cy_dim_const(g, f->threads));
}

/* Scratch goes to shared memory as long as there is room, the rest to stripes of global memory. */
static void place_scratch(cy_kernel *k, cy_cuda_schedule *f) {
  const cy_karg_info *args;
  uint32_t n = cy_kernel_args(k, &args);
  int64_t room = SHARED_BYTES, elems;
  int groups = f->threads / f->group;
  for (uint32_t i = 0; i < n; i++) {
    if (args[i].kind != CY_ARG_SCRATCH)
      continue;
    int64_t bits = cy_dtype_of(args[i].dtype)->bits;
    if (i < 32 && cy_dim_is_const(cy_kernel_graph(k), args[i].elems, &elems) && elems <= SHARED_BYTES && bits >= 8 &&
        elems * bits / 8 * groups <= room) {
      room -= elems * bits / 8 * groups;
      f->in_shared |= 1u << i;
    } else {
      f->stripes = groups;
    }
  }
}

/* Threads for a task: one for each iteration, where iterations are long. */
static int group_for(const contents *c) {
  int threads = WARP;
  if (c->iterations == INT64_MAX)
    return BLOCK_THREADS;
  if (!c->deep)
    return c->iterations <= WARP_ITERATIONS ? WARP : c->iterations < LONG_ITERATIONS ? BLOCK_THREADS : LONG_THREADS;
  while (threads < c->iterations && threads < LONG_THREADS)
    threads *= 2;
  return threads;
}

static void groups(cy_kernel *k, cy_cuda_schedule *f, const contents *c) {
  cy_graph *g = cy_kernel_graph(k);
  f->kind = CY_CUDA_GROUPS;
  f->group = group_for(c);
  f->threads = f->group == WARP ? WARP * WARPS : f->group;
  f->blocks = cy_dim_cdiv(g, cy_kernel_tasks(k), cy_dim_const(g, f->threads / f->group));
  place_scratch(k, f);
}

cy_cuda_schedule *cy_cuda_schedule_make(const cy_machine *m, cy_kernel *k) {
  cy_cuda_schedule *f = CY_NEW(cy_graph_arena(cy_kernel_graph(k)), cy_cuda_schedule);
  const cy_karg_info *args;
  uint32_t nargs = cy_kernel_args(k, &args);
  contents c = {0};
  bool scratch = false;
  if (cy_kernel_contraction(k)->kind != CY_CONTRACT_NONE) {
    cy_cuda_contract_schedule(m, k, f);
    return f;
  }
  c.seen = CY_NEW_ARRAY(cy_graph_arena(cy_kernel_graph(k)), uint8_t, cy_expr_count(k) + 1);
  scan(k, cy_kernel_body(k), &c);
  for (uint32_t i = 0; i < nargs; i++)
    scratch |= args[i].kind == CY_ARG_SCRATCH;
  const cy_stmt *lanes = only_lanes(k, &c);
  if (!scratch && (!c.lanes || lanes))
    items(m, k, f, lanes, &c);
  else if (!cy_cuda_rows_schedule(m, k, cy_kernel_tasks(k), f))
    groups(k, f, &c);
  return f;
}
