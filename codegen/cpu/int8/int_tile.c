/* SPDX-License-Identifier: Apache-2.0 */
/* int_tile.c - a tile of rows times panels, by micro-kernels, for int_gemm.c.
 *
 * Comes in: a frame and a cy_int_gemm_tile. Goes out: code that leaves the accumulators of panels in memory; which kernel
 * computes them depends on how many rows and columns there are.
 */
#include "int_gemm_int.h"

typedef cy_int_gemm_plan plan;
typedef cy_int_gemm_frame frame;

/* Rows of a last tile that is no more than half full, for which there are kernels of their own; 0: none. */
static unsigned few_rows(const cy_cg *cg, const plan *p) {
  enum { MANY_TILES = 32 }; /* of these, one does not matter */
  if (p->variant.amx)
    return p->tile.mr > CY_AMX_ROWS ? CY_AMX_ROWS : 0;
  unsigned half = p->tile.mr / 2, rest = p->rows ? (unsigned)(p->rows % p->tile.mr) : half;
  return cy_int_gemm_rows_stay(cg) && cy_int_gemm_each(p->variant) == 1 && rest <= half &&
                 p->rows < MANY_TILES * p->tile.mr
             ? rest
             : 0;
}

cy_int_gemm_depth cy_int_gemm_depth_of(cy_cg *cg, const plan *p) {
  if (!p->row_block)
    return (cy_int_gemm_depth){cy_int_gemm_k_groups(cg, p), cy_i64(cg, 1), cy_i64(cg, 0), NULL};
  V runs = cy_i64(cg, p->axis[0].count * p->axis[1].count), pitch = cy_int_row_block_pitch(cg, p);
  return (cy_int_gemm_depth){cy_i64(cg, p->run_groups), runs, pitch, NULL};
}

V cy_int_gemm_bytes_before(cy_cg *cg, const frame *f, V q) {
  const plan *p = f->p;
  if (!p->variant.shuffled)
    return cy_mul(cg, q, f->panel_bytes);
  return cy_mulc(cg, cy_int_gemm_tables_before(cg, &f->tables, q), cy_int_gemm_group_bytes(p->variant, p->nr));
}

V cy_int_gemm_start(cy_cg *cg, const frame *f, V q) {
  return cy_gep(cg, f->start, cy_mulc(cg, cy_sub(cg, q, f->p0), f->p->nr * 4));
}

/* Groups of k of panels [q0, end). */
static V groups_between(cy_cg *cg, const frame *f, V q0, V end) {
  if (!f->p->variant.shuffled)
    return cy_mul(cg, cy_int_gemm_k_groups(cg, f->p), cy_sub(cg, end, q0));
  V before = cy_int_gemm_tables_before(cg, &f->tables, q0);
  return cy_sub(cg, cy_int_gemm_tables_before(cg, &f->tables, end), before);
}

/* Weights come from memory in time where each tile of rows asks for some of the panels behind its own. Few tiles would
 * ask for some lines of many, which keeps the hardware from finding the others: they ask for nothing new. */
static void prefetch_args(cy_cg *cg, const frame *f, const cy_int_gemm_tile *t, V own, V groups, V *out) {
  enum { LINE = 64 };
  const plan *p = f->p;
  V bytes = cy_i64(cg, cy_int_gemm_group_bytes(p->variant, p->nr)), step = cy_ceil_div(cg, bytes, t->tiles);
  V enough = cy_icmp(cg, LLVMIntSLE, step, cy_i64(cg, LINE));
  V share = cy_mul(cg, groups, step), behind = cy_int_gemm_bytes_before(cg, f, t->end);
  V prefetch = cy_gep(cg, f->b, cy_add(cg, behind, cy_mul(cg, t->number, share)));
  out[0] = cy_select(cg, enough, prefetch, own);
  out[1] = cy_select(cg, enough, step, cy_i64(cg, 0));
}

/* Panels [q0, end) for a tile of rows, their first nv vectors; nr: columns of each. c: of panel q0. */
static void emit_panels(cy_cg *cg, const frame *f, const cy_int_gemm_tile *t, V q0, V end, unsigned nv, int64_t nr, V c) {
  const plan *p = f->p;
  V fn = cy_int_gemm_kernel_for(cg, p->variant, (cy_tile){p->tile.mr, nv}, nr, false, few_rows(cg, p), t->rows);
  V b = cy_gep(cg, f->b, cy_int_gemm_bytes_before(cg, f, q0));
  V first = cy_gep(cg, f->first, cy_mulc(cg, q0, 4)), start = cy_int_gemm_start(cg, f, q0);
  if (p->variant.split) {
    V before = LLVMBuildZExt(cg->b, cy_load(cg, cg->i32, first, 4), cg->i64, "");
    b = cy_gep(cg, b, cy_mulc(cg, before, cy_int_gemm_group_bytes(p->variant, p->nr)));
  }
  cy_int_gemm_depth d = cy_int_gemm_depth_of(cg, p);
  V panels = cy_sub(cg, end, q0), args[CY_INT_GEMM_MAX_ARGS] = {t->a,   t->table, b,     c,        t->ldc, d.groups,
                                                                panels, start,    first, f->again, d.runs, d.pitch};
  if (p->variant.prefetch)
    prefetch_args(cg, f, t, b, groups_between(cg, f, q0, end), args + CY_INT_GEMM_ARGS);
  if (p->variant.shuffled) {
    cy_int_gemm_tables own = cy_int_gemm_tables_from(cg, &f->tables, q0);
    args[cy_int_gemm_args(p->variant) - 2] = own.panels;
    args[cy_int_gemm_args(p->variant) - 1] = own.runs;
  }
  LLVMBuildCall2(cg->b, cy_int_gemm_kernel_type(cg, p->variant), fn, args, cy_int_gemm_args(p->variant), "");
}

/* The last panel has a kernel of its own where fewer vectors do. */
void cy_int_gemm_tile_emit(cy_cg *cg, const frame *f, const cy_int_gemm_tile *t, V q0, V end) {
  const plan *p = f->p;
  unsigned last = p->n ? (unsigned)cy_ceil(p->n % p->nr, cg->W) : 0;
  if (!last || last == p->tile.nv) {
    emit_panels(cg, f, t, q0, end, p->tile.nv, p->last, t->acc);
    return;
  }
  V full = cy_i64(cg, p->n / p->nr), wide = cy_imin(cg, end, full), at = cy_mulc(cg, cy_sub(cg, full, q0), p->nr * 4);
  cy_if s;
  if (p->n >= p->nr)
    emit_panels(cg, f, t, q0, wide, p->tile.nv, p->nr, t->acc);
  cy_if_begin(cg, &s, cy_icmp(cg, LLVMIntSGT, end, full));
  emit_panels(cg, f, t, full, end, last, p->last, cy_gep(cg, t->acc, at));
  cy_if_end(cg, &s);
}
