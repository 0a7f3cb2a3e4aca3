/* SPDX-License-Identifier: Apache-2.0 */
/* microkernel_tasks.c - what the functions of tasks share: sizes, scratch, phases, copies.
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

V cy_scratch(cy_cg *cg, int slot, V worker_bytes) {
  return cy_gep(cg, cy_arg_ptr(cg, slot), cy_mul(cg, cg->worker, worker_bytes));
}

static void phase_add(cy_contract_info *info, const char *name, int64_t tasks) {
  if (info->n_phases == CY_CONTRACT_PHASES)
    cy_bug("kernel '%s' has more than %d phases", name, CY_CONTRACT_PHASES);
  cy_phase *p = &info->phase[info->n_phases++];
  snprintf(p->name, sizeof p->name, "%s", name);
  p->tasks = tasks;
}

void cy_generator_emit(cy_cg *cg, const cy_generator *by, const void *plan, const char *kernel, cy_contract_info *out) {
  *out = (cy_contract_info){0};
  for (const cy_phase_form *p = by->phase; p < by->phase + CY_CONTRACT_PHASES && p->emit; p++) {
    char name[sizeof out->phase->name];
    if (p->wanted && !p->wanted(plan))
      continue;
    snprintf(name, sizeof name, "%s%s", kernel, p->suffix);
    p->emit(cg, plan, name);
    phase_add(out, name, cy_size_fn(cg, name, "_tasks", p->tasks, plan));
  }
  out->worker_bytes = by->worker_bytes ? cy_size_fn(cg, kernel, "_worker_bytes", by->worker_bytes, plan) : 0;
  out->shared_bytes = by->shared_bytes ? cy_size_fn(cg, kernel, "_shared_bytes", by->shared_bytes, plan) : 0;
}

void cy_tasks_emit(cy_cg *cg, void (*task)(cy_cg *cg, void *frame, V number), void *frame) {
  cy_loop t;
  cy_loop_begin(cg, &t, cg->begin, cg->end, cy_i64(cg, 1), NULL, 0);
  task(cg, frame, t.iv);
  cy_loop_end(cg, &t, NULL);
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

cy_task_place cy_task_split(cy_cg *cg, V task, V rows, V columns, bool several, bool columns_outer) {
  V both = cy_mul(cg, rows, columns), product = several ? cy_div(cg, task, both) : cy_i64(cg, 0);
  V rest = several ? cy_mod(cg, task, both) : task, inner = columns_outer ? rows : columns;
  V slow = cy_div(cg, rest, inner), fast = cy_mod(cg, rest, inner);
  return columns_outer ? (cy_task_place){product, fast, slow} : (cy_task_place){product, slow, fast};
}
