/* SPDX-License-Identifier: Apache-2.0 */
/* microkernel_tasks.c - what the functions of tasks share: sizes, scratch, phases, the loop over tasks, copies.
 *
 * Comes in: sizes and strides, known now or when running. Goes out: code, and rows of cy_contract_info.
 */
#include "ir/ir.h"
#include "microkernel.h"

#include <stdio.h>

V cy_size(cy_cg *cg, cy_csize s) { return s.slot < 0 ? cy_i64(cg, s.value) : cy_arg_size(cg, s.slot); }

int64_t cy_size_fn(cy_cg *cg, const char *name, const char *suffix, V (*formula)(cy_cg *cg, const void *ctx),
                   const void *ctx) {
  char full[160];
  snprintf(full, sizeof full, "%s%s", name, suffix);
  cy_fn_state state = cy_fn_save(cg);
  V fn = cy_fn_begin(cg, full, cg->i64, &cg->ptr, 1, 0);
  cg->args = LLVMGetParam(fn, 0);
  V v = formula(cg, ctx);
  int64_t known = -1;
  cy_fn_end(cg, v);
  cy_fn_restore(cg, state);
  if (cy_is_const(v, &known))
    LLVMDeleteFunction(fn);
  return known;
}

/* ---- phases ---- */

static void phase_add(cy_contract_info *info, const char *name, int64_t tasks) {
  if (info->n_phases == CY_CONTRACT_PHASES)
    cy_bug("kernel '%s' has more than %d phases", name, CY_CONTRACT_PHASES);
  cy_phase *p = &info->phase[info->n_phases++];
  snprintf(p->name, sizeof p->name, "%s", name);
  p->tasks = tasks;
}

typedef struct phase_of {
  const cy_phase_desc *desc;
  const void *plan;
} phase_of;

static V phase_tasks(cy_cg *cg, const void *of) {
  const phase_of *p = of;
  return p->desc->tasks ? p->desc->tasks(cg, p->plan) : cy_task_count(cg, p->desc->grid, p->plan);
}

static void emit_plain(cy_cg *cg, const cy_phase_desc *desc, const void *plan, const char *name) {
  cy_kernel_begin(cg, name, 0);
  cy_tasks_emit(cg, desc->grid, plan, desc->body, (void *)plan);
  cy_fn_end(cg, NULL);
}

void cy_generator_emit(cy_cg *cg, const cy_generator *by, const void *plan, const char *kernel, cy_contract_info *out) {
  *out = (cy_contract_info){0};
  for (const cy_phase_desc *p = by->phase; p < by->phase + CY_CONTRACT_PHASES && (p->emit || p->body); p++) {
    char name[sizeof out->phase->name];
    if (p->wanted && !p->wanted(plan))
      continue;
    snprintf(name, sizeof name, "%s%s", kernel, p->suffix);
    if (p->emit)
      p->emit(cg, plan, name);
    else
      emit_plain(cg, p, plan, name);
    phase_add(out, name, cy_size_fn(cg, name, "_tasks", phase_tasks, &(phase_of){p, plan}));
  }
  out->worker_bytes = by->worker_bytes ? cy_size_fn(cg, kernel, "_worker_bytes", by->worker_bytes, plan) : 0;
  out->shared_bytes = by->shared_bytes ? cy_size_fn(cg, kernel, "_shared_bytes", by->shared_bytes, plan) : 0;
}

V cy_phase_begin(cy_cg *cg, const char *name, int flags, const cy_epilogue *epilogue, int scratch_slot,
                 cy_formula *worker_bytes, const void *plan) {
  int64_t none;
  cy_kernel_begin(cg, name, flags);
  if (epilogue)
    cy_epilogue_open(epilogue, cg);
  V bytes = worker_bytes ? worker_bytes(cg, plan) : cy_i64(cg, 0);
  if (cy_is_const(bytes, &none) && !none)
    return NULL;
  return cy_gep(cg, cy_arg_ptr(cg, scratch_slot), cy_mul(cg, cg->worker, bytes));
}

/* ---- tasks ---- */

cy_task_axis cy_axis_shares(cy_cg *cg, V count, int64_t unit, int64_t block) {
  return (cy_task_axis){.count = count, .blocks = cy_ceil_div(cg, count, cy_i64(cg, block)), .unit = unit};
}

cy_task_axis cy_axis_pieces(cy_cg *cg, V count, int64_t block) {
  return (cy_task_axis){.count = count, .blocks = cy_ceil_div(cg, count, cy_i64(cg, block)), .block = block};
}

static V blocks_of(cy_cg *cg, const cy_task_axis *a) { return a->blocks ? a->blocks : cy_i64(cg, 1); }

V cy_task_count(cy_cg *cg, cy_task_cut *grid, const void *plan) {
  cy_task_grid g = grid(cg, plan);
  V each = cy_mul(cg, blocks_of(cg, &g.rows), blocks_of(cg, &g.columns));
  return g.products ? cy_mul(cg, g.products, each) : each;
}

cy_share cy_axis_share(cy_cg *cg, const cy_task_axis *a, V first, V last) {
  if (!a->blocks)
    return (cy_share){cy_i64(cg, 0), a->count};
  if (a->unit == 0) {
    V begin = cy_mulc(cg, first, a->block), all = cy_mulc(cg, cy_addc(cg, cy_sub(cg, last, first), 1), a->block);
    return (cy_share){begin, cy_add(cg, begin, a->block == 1 ? all : cy_imin(cg, all, cy_sub(cg, a->count, begin)))};
  }
  V units = cy_ceil_div(cg, a->count, cy_i64(cg, a->unit)), begin = cy_div(cg, cy_mul(cg, units, first), a->blocks);
  V end = cy_div(cg, cy_mul(cg, units, cy_addc(cg, last, 1)), a->blocks);
  begin = cy_mulc(cg, begin, a->unit);
  end = cy_mulc(cg, end, a->unit);
  return (cy_share){begin, a->unit == 1 ? end : cy_imin(cg, a->count, end)};
}

/* Tasks [first, last], which have the same rows, as one. */
static void emit_tasks(cy_cg *cg, const cy_task_grid *g, V first, V last, cy_task_body *body, void *frame) {
  V rows = blocks_of(cg, &g->rows), columns = blocks_of(cg, &g->columns), both = cy_mul(cg, rows, columns);
  cy_task t = {.number = first, .product = g->products ? cy_div(cg, first, both) : cy_i64(cg, 0)};
  V rest = g->products ? cy_mod(cg, first, both) : first, inner = g->columns_outer ? rows : columns;
  V slow = cy_div(cg, rest, inner), fast = cy_mod(cg, rest, inner), column = g->columns_outer ? slow : fast;
  t.row_block = g->columns_outer ? fast : slow;
  t.rows = cy_axis_share(cg, &g->rows, t.row_block, t.row_block);
  t.columns = cy_axis_share(cg, &g->columns, column, last == first ? column : cy_add(cg, column, cy_sub(cg, last, first)));
  body(cg, frame, &t);
}

/* Those of block `above` of rows, counted over all products, run by run. */
static void emit_runs(cy_cg *cg, const cy_task_grid *g, V above, cy_task_body *body, void *frame) {
  V each = blocks_of(cg, &g->columns), begin = cy_mul(cg, above, each), end = cy_imin(cg, cg->end, cy_add(cg, begin, each));
  cy_loop t;
  cy_loop_begin(cg, &t, cy_imax(cg, cg->begin, begin), end, cy_i64(cg, g->run), NULL, 0);
  emit_tasks(cg, g, t.iv, cy_addc(cg, cy_imin(cg, end, cy_addc(cg, t.iv, g->run)), -1), body, frame);
  cy_loop_end(cg, &t, NULL);
}

void cy_tasks_emit(cy_cg *cg, cy_task_cut *grid, const void *plan, cy_task_body *body, void *frame) {
  cy_task_grid g = grid(cg, plan);
  bool runs = g.run > 1;
  V each = runs ? blocks_of(cg, &g.columns) : cy_i64(cg, 1), begin = cy_div(cg, cg->begin, each);
  cy_loop t;
  cy_loop_begin(cg, &t, begin, cy_ceil_div(cg, cg->end, each), cy_i64(cg, 1), NULL, 0);
  if (runs)
    emit_runs(cg, &g, t.iv, body, frame);
  else
    emit_tasks(cg, &g, t.iv, t.iv, body, frame);
  cy_loop_end(cg, &t, NULL);
}

void cy_microkernel_task(cy_cg *cg, cy_microkernel *m, const cy_task *t, V panels, cy_csize n, int64_t last) {
  m->p0 = t->columns.begin;
  m->p1 = t->columns.end;
  m->rows = cy_sub(cg, t->rows.end, t->rows.begin);
  m->n = cy_size(cg, n);
  m->panels = panels;
  m->last = last;
  m->ldb = cy_i64(cg, m->tile.nv * cg->W * cy_weight_bytes(m->weights));
  m->tail_lanes = cy_csize_known(n) ? (unsigned)(cy_csize_known(n) % cg->W) : cg->W;
}

V cy_round64(cy_cg *cg, V bytes) { return cy_mulc(cg, cy_div(cg, cy_addc(cg, bytes, 63), cy_i64(cg, 64)), 64); }

V cy_row_table(cy_cg *cg, int64_t rows, V stride) {
  V tab = cy_alloca(cg, rows * 8);
  cy_loop r;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), cy_i64(cg, rows), cy_i64(cg, 1), NULL, 0);
  cy_store(cg, cy_mul(cg, r.iv, stride), cy_gep(cg, tab, cy_mulc(cg, r.iv, 8)), 8);
  cy_loop_end(cg, &r, NULL);
  return tab;
}

/* ---- transposed copies ---- */

static V times(cy_cg *cg, V v, double factor, unsigned lanes) {
  if (factor == 1)
    return v;
  return LLVMBuildFMul(cg->b, v, lanes == 1 ? LLVMConstReal(cg->f32, factor) : cy_splatf(cg, factor, lanes), "");
}

typedef struct copy {
  V dst, ld, src, si, sk; /* see cy_emit_gather2 */
  double factor;
} copy;

/* Reads 8 vectors along the dense axis of the source, transposes them when it is not the dense axis of dst. */
static void emit_block8(cy_cg *cg, const copy *c, V dst, V src, bool rows_dense) {
  LLVMTypeRef v8 = cy_vecf(cg, 8);
  V v[8];
  for (int i = 0; i < 8; i++)
    v[i] = times(cg, cy_load(cg, v8, cy_gepf(cg, src, cy_mulc(cg, rows_dense ? c->sk : c->si, i)), 4), c->factor, 8);
  if (rows_dense)
    cy_transpose8(cg, v);
  for (int i = 0; i < 8; i++)
    cy_store(cg, v[i], cy_gepf(cg, dst, cy_mulc(cg, c->ld, i)), 4);
}

static V from_at(cy_cg *cg, const copy *c, V i, V k) {
  return cy_gepf(cg, c->src, cy_add(cg, cy_mul(cg, i, c->si), cy_mul(cg, k, c->sk)));
}

static V to_at(cy_cg *cg, const copy *c, V i, V k) { return cy_gepf(cg, c->dst, cy_add(cg, cy_mul(cg, i, c->ld), k)); }

/* Element by element: rows i0 to i1, from column k0 to k1. */
static void emit_scalar(cy_cg *cg, const copy *c, V i0, V i1, V k0, V k1) {
  cy_loop i, k;
  cy_loop_begin(cg, &i, i0, i1, cy_i64(cg, 1), NULL, 0);
  cy_loop_begin(cg, &k, k0, k1, cy_i64(cg, 1), NULL, 0);
  V x = times(cg, cy_load(cg, cg->f32, from_at(cg, c, i.iv, k.iv), 4), c->factor, 1);
  cy_store(cg, x, to_at(cg, c, i.iv, k.iv), 4);
  cy_loop_end(cg, &k, NULL);
  cy_loop_end(cg, &i, NULL);
}

void cy_emit_gather2(cy_cg *cg, V dst, V ld, V src, V si, V sk, V ni, V nk, double factor) {
  const copy c = {dst, ld, src, si, sk, factor};
  int64_t one_i = 0, one_k = 0;
  V zero = cy_i64(cg, 0), eight = cy_i64(cg, 8), fi = zero, fk = zero;
  cy_is_const(si, &one_i);
  cy_is_const(sk, &one_k);
  if (one_i == 1 || one_k == 1) {
    fi = cy_mulc(cg, cy_div(cg, ni, eight), 8);
    fk = cy_mulc(cg, cy_div(cg, nk, eight), 8);
    cy_loop i, k;
    cy_loop_begin(cg, &i, zero, fi, eight, NULL, 0);
    cy_loop_begin(cg, &k, zero, fk, eight, NULL, 0);
    V from = from_at(cg, &c, i.iv, k.iv);
    emit_block8(cg, &c, to_at(cg, &c, i.iv, k.iv), from, one_k != 1);
    cy_loop_end(cg, &k, NULL);
    cy_loop_end(cg, &i, NULL);
    emit_scalar(cg, &c, zero, fi, fk, nk);
  }
  emit_scalar(cg, &c, fi, ni, zero, nk);
}

void cy_emit_panel(cy_cg *cg, V dst, int64_t nr, V src, V sk, V sn, V depth, V valid, double factor) {
  V NR = cy_i64(cg, nr), partial = cy_icmp(cg, LLVMIntSLT, valid, NR);
  int64_t known;
  cy_if tail;
  bool branch = !cy_is_const(partial, &known);
  if (branch)
    cy_if_begin(cg, &tail, partial);
  if (branch || known)
    cy_fill_zero(cg, dst, cy_mulc(cg, depth, nr));
  if (branch)
    cy_if_end(cg, &tail);
  cy_emit_gather2(cg, dst, NR, src, sk, sn, depth, valid, factor);
}
