/* SPDX-License-Identifier: Apache-2.0 */
/* host_dims.c - sizes: dims to LLVM values, and what a launch costs.
 *
 * In: interned polynomials over symbols (ir.h). Out: i64 values computed from frame->syms in the function being
 * emitted. A value is kept and used again until cy_host_forget(): control flow splits, or a symbol gets a new value.
 * Division follows the oracle: floors, and yields 0 for a divisor of 0; where the ranges allow, a plain unsigned
 * division is emitted.
 */
#include "codegen/host_int.h"

#include <math.h>
#include <stdlib.h>

/* ---- symbols ---- */

LLVMValueRef cy_host_sym(cy_host *h, cy_sym s) {
  if (s == h->p->workers)
    return cy_host_field(h, h->cg->i64, h->fn.frame, offsetof(cyrt_frame, workers));
  return cy_host_field(h, h->cg->i64, h->fn.syms, 8 * (size_t)h->sym_index[s]);
}

void cy_host_set_sym(cy_host *h, cy_sym s, LLVMValueRef v) {
  cy_store(h->cg, v, cy_gepc(h->cg, h->fn.syms, 8 * (int64_t)h->sym_index[s]), 8);
  h->known[s] = true;
  cy_host_forget(h);
}

void cy_host_forget(cy_host *h) { h->round++; }

/* ---- expressions ---- */

/* i64 f(a, b) for any signs: floor division, 0 where b is 0; a + INT64_MIN / -1 wraps instead of trapping. */
static LLVMValueRef floor_div_function(cy_host *h) {
  cy_cg *cg = h->cg;
  LLVMValueRef fn = LLVMGetNamedFunction(cg->module, "floor_div");
  if (fn)
    return fn;
  cy_fn_state state = cy_fn_save(cg);
  LLVMTypeRef params[2] = {cg->i64, cg->i64};
  fn = cy_fn_begin(cg, "floor_div", cg->i64, params, 2, CY_FN_INTERNAL | CY_FN_NOINLINE);
  LLVMValueRef a = LLVMGetParam(fn, 0), b = LLVMGetParam(fn, 1), zero = cy_i64(cg, 0), one = cy_i64(cg, 1);
  LLVMValueRef is0 = cy_icmp(cg, LLVMIntEQ, b, zero), ism = cy_icmp(cg, LLVMIntEQ, b, cy_i64(cg, -1));
  LLVMValueRef safe = cy_select(cg, LLVMBuildOr(cg->b, is0, ism, ""), one, b);
  LLVMValueRef q = LLVMBuildSDiv(cg->b, a, safe, ""), r = LLVMBuildSRem(cg->b, a, safe, "");
  LLVMValueRef odd = cy_icmp(cg, LLVMIntNE, r, zero);
  LLVMValueRef mixed = cy_icmp(cg, LLVMIntSLT, LLVMBuildXor(cg->b, r, safe, ""), zero);
  LLVMValueRef less = LLVMBuildZExt(cg->b, LLVMBuildAnd(cg->b, odd, mixed, ""), cg->i64, "");
  LLVMValueRef floor = LLVMBuildSub(cg->b, q, less, "");
  floor = cy_select(cg, ism, LLVMBuildNeg(cg->b, a, ""), floor);
  cy_fn_end(cg, cy_select(cg, is0, zero, floor));
  cy_fn_restore(cg, state);
  return fn;
}

static LLVMValueRef divide(cy_host *h, const cy_atom *atom) {
  cy_cg *cg = h->cg;
  LLVMValueRef a = cy_host_dim(h, atom->a), b = cy_host_dim(h, atom->b);
  int64_t amin, amax, bmin, bmax;
  cy_dim_range(h->g, atom->a, &amin, &amax);
  cy_dim_range(h->g, atom->b, &bmin, &bmax);
  bool plain = amin >= 0 && bmin > 0;
  if (plain)
    return atom->kind == CY_ATOM_DIV ? cy_div(cg, a, b) : cy_mod(cg, a, b);
  LLVMValueRef args[2] = {a, b};
  LLVMValueRef q = cy_call(cg, floor_div_function(h), args, 2);
  if (atom->kind == CY_ATOM_DIV)
    return q;
  LLVMValueRef rest = cy_sub(cg, a, cy_mul(cg, q, b));
  return bmin > 0 || bmax < 0 ? rest : cy_select(cg, cy_icmp(cg, LLVMIntEQ, b, cy_i64(cg, 0)), cy_i64(cg, 0), rest);
}

static LLVMValueRef join(cy_host *h, const cy_atom *atom) {
  cy_cg *cg = h->cg;
  LLVMValueRef a = cy_host_dim(h, atom->a), b = cy_host_dim(h, atom->b), zero = cy_i64(cg, 0);
  LLVMValueRef no_a = cy_icmp(cg, LLVMIntEQ, a, zero), no_b = cy_icmp(cg, LLVMIntEQ, b, zero);
  LLVMValueRef none = LLVMBuildOr(cg->b, no_a, no_b, ""), larger = cy_imax(cg, a, b);
  return cy_select(cg, none, zero, larger);
}

static LLVMValueRef atom_value(cy_host *h, uint32_t id) {
  const cy_atom *atom = cy_dim_atom(h->g, id);
  switch (atom->kind) {
  case CY_ATOM_SYM:
    return cy_host_dim(h, cy_dim_sym(h->g, atom->sym));
  case CY_ATOM_DIV:
  case CY_ATOM_MOD:
    return divide(h, atom);
  case CY_ATOM_MIN:
    return cy_imin(h->cg, cy_host_dim(h, atom->a), cy_host_dim(h, atom->b));
  case CY_ATOM_MAX:
    return cy_imax(h->cg, cy_host_dim(h, atom->a), cy_host_dim(h, atom->b));
  case CY_ATOM_JOIN:
    return join(h, atom);
  }
  cy_bug("unknown kind of dim");
}

static LLVMValueRef polynomial(cy_host *h, cy_dim d) {
  cy_cg *cg = h->cg;
  const cy_term *terms;
  int n = cy_dim_terms(h->g, d, &terms);
  if (n == 1 && terms->natoms == 1 && terms->coef == 1) {
    const cy_atom *atom = cy_dim_atom(h->g, terms->atoms[0]);
    if (atom->kind == CY_ATOM_SYM)
      return cy_host_sym(h, atom->sym);
  }
  LLVMValueRef sum = cy_i64(cg, 0);
  for (int i = 0; i < n; i++) {
    LLVMValueRef product = cy_i64(cg, terms[i].coef);
    for (int j = 0; j < terms[i].natoms; j++)
      product = cy_mul(cg, product, atom_value(h, terms[i].atoms[j]));
    sum = cy_add(cg, sum, product);
  }
  return sum;
}

static void memo_grow(cy_host *h, cy_dim d) {
  uint32_t cap = h->memo_cap ? h->memo_cap : 1024;
  while (cap <= d)
    cap *= 2;
  h->memo = realloc(h->memo, cap * sizeof *h->memo);
  h->memo_round = realloc(h->memo_round, cap * sizeof *h->memo_round);
  if (!h->memo || !h->memo_round)
    cy_no_memory();
  for (uint32_t i = h->memo_cap; i < cap; i++)
    h->memo_round[i] = 0;
  h->memo_cap = cap;
}

LLVMValueRef cy_host_dim(cy_host *h, cy_dim d) {
  int64_t v;
  if (cy_dim_is_const(h->g, d, &v))
    return cy_i64(h->cg, v);
  if (d < h->memo_cap && h->memo_round[d] == h->round)
    return h->memo[d];
  LLVMValueRef value = polynomial(h, d);
  if (d >= h->memo_cap)
    memo_grow(h, d);
  h->memo[d] = value;
  h->memo_round[d] = h->round;
  return value;
}

/* ---- sizes that may be too large ---- */

static LLVMValueRef larger(cy_host *h, LLVMValueRef a, LLVMValueRef b) {
  return cy_select(h->cg, LLVMBuildFCmp(h->cg->b, LLVMRealOGT, a, b, ""), a, b);
}

static LLVMValueRef magnitude(cy_host *h, LLVMTypeRef real, LLVMValueRef v) {
  LLVMValueRef x = LLVMBuildSIToFP(h->cg->b, v, real, "");
  return larger(h, x, LLVMBuildFNeg(h->cg->b, x, ""));
}

static bool may_be_large(cy_host *h, cy_dim d) {
  int64_t v, min, max;
  const cy_term *terms;
  if (cy_dim_is_const(h->g, d, &v))
    return false;
  cy_dim_range(h->g, d, &min, &max);
  int n = cy_dim_terms(h->g, d, &terms);
  bool symbol =
      n == 1 && terms->natoms == 1 && terms->coef == 1 && cy_dim_atom(h->g, terms->atoms[0])->kind == CY_ATOM_SYM;
  return !symbol && (min < -(INT64_C(1) << 62) || max > INT64_C(1) << 62);
}

/* What the terms of a dim add up to regardless of signs, as a double: the largest over the dim, those in it, and `upper`.
 */
static LLVMValueRef largest_sum(cy_host *h, LLVMTypeRef real, cy_dim d, LLVMValueRef upper) {
  const cy_term *terms;
  if (!may_be_large(h, d))
    return upper;
  int n = cy_dim_terms(h->g, d, &terms);
  LLVMValueRef sum = LLVMConstReal(real, 0);
  for (int i = 0; i < n; i++) {
    LLVMValueRef product = LLVMConstReal(real, fabs((double)terms[i].coef));
    for (int j = 0; j < terms[i].natoms; j++) {
      const cy_atom *atom = cy_dim_atom(h->g, terms[i].atoms[j]);
      product = LLVMBuildFMul(h->cg->b, product, magnitude(h, real, atom_value(h, terms[i].atoms[j])), "");
      if (atom->kind == CY_ATOM_SYM)
        continue;
      upper = largest_sum(h, real, atom->a, upper);
      upper = largest_sum(h, real, atom->b, upper);
    }
    sum = LLVMBuildFAdd(h->cg->b, sum, product, "");
  }
  return larger(h, sum, upper);
}

LLVMValueRef cy_host_size(cy_host *h, cy_dim d) {
  LLVMValueRef value = cy_host_dim(h, d);
  if (!may_be_large(h, d))
    return value;
  LLVMTypeRef real = LLVMDoubleTypeInContext(h->cg->ctx);
  LLVMValueRef sum = largest_sum(h, real, d, LLVMConstReal(real, 0)), limit = LLVMConstReal(real, 0x1p62);
  return cy_select(h->cg, LLVMBuildFCmp(h->cg->b, LLVMRealOLT, sum, limit, ""), value, cy_i64(h->cg, INT64_MAX));
}

/* ---- what a launch costs ---- */

/* Distinct operations behind an expression; seen[] is stamped so that shared parts count once. */
static int64_t ops_of(cy_kernel *k, cy_expr e, uint8_t *seen) {
  if (!e || seen[e])
    return 0;
  seen[e] = 1;
  const cy_expr_info *x = cy_expr_of(k, e);
  int64_t n = x->op == CY_X_LOAD ? 2 : x->op >= CY_X_CONST ? 0 : 1;
  for (int i = 0; i < x->n; i++)
    n += ops_of(k, x->arg[i], seen);
  return n;
}

static cy_dim stmts_work(const cy_host_costs *costs, cy_graph *g, cy_kernel *k, const cy_stmt *s, bool lanes, uint8_t *seen) {
  cy_dim sum = cy_dim_const(g, 0);
  for (; s; s = s->next) {
    int64_t ops = 1 + ops_of(k, s->value, seen) + ops_of(k, s->offset, seen);
    if (s->kind == CY_S_FOR) {
      cy_dim body = stmts_work(costs, g, k, s->body, lanes || s->lanes, seen);
      sum = cy_dim_add(g, sum, cy_dim_mul(g, cy_kernel_var(k, s->var)->extent, body));
      continue;
    }
    sum = cy_dim_addi(g, sum, ops * (lanes ? costs->lane : costs->scalar));
  }
  return sum;
}

static cy_dim contraction_macs(cy_graph *g, const cy_contraction *c) {
  cy_dim n;
  if (c->kind == CY_CONTRACT_MATMUL || c->kind == CY_CONTRACT_ATTENTION) {
    bool attention = c->kind == CY_CONTRACT_ATTENTION;
    n = attention ? cy_dim_mul(g, c->keys, cy_dim_add(g, c->n, c->k)) : cy_dim_mul(g, c->n, c->k);
    n = cy_dim_mul(g, n, c->m);
    for (int i = 0; i < c->nbatch; i++)
      n = cy_dim_mul(g, n, c->batch[i]);
    return n;
  }
  n = cy_dim_mul(g, c->images, cy_dim_mul(g, c->channels_in, c->channels_out));
  for (int i = 0; i < c->nspatial; i++)
    n = cy_dim_muli(g, cy_dim_mul(g, n, c->kind == CY_CONTRACT_CONV ? c->out[i] : c->in[i]), c->kernel[i]);
  return cy_dim_div(g, n, cy_dim_const(g, c->group > 0 ? c->group : 1));
}

cy_dim cy_kernel_work(const cy_host_costs *costs, cy_graph *g, cy_kernel *k) {
  const cy_contraction *c = cy_kernel_contraction(k);
  if (c->kind != CY_CONTRACT_NONE)
    return cy_dim_muli(g, contraction_macs(g, c), costs->product);
  uint8_t *seen = calloc(cy_expr_count(k) + 1, 1);
  if (!seen)
    cy_no_memory();
  cy_dim body = stmts_work(costs, g, k, cy_kernel_body(k), cy_kernel_grid_lanes(k), seen);
  free(seen);
  return cy_dim_mul(g, body, cy_kernel_tasks(k));
}
