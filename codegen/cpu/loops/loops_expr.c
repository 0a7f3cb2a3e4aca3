/* SPDX-License-Identifier: Apache-2.0 */
/* loops_expr.c - values of loop-IR expressions, loads and stores.
 *
 * In: an expression, the lane variable and the number of lanes. Out: a scalar where the expression is the same for all
 * lanes, else a vector. Offsets are never computed as vectors where they are affine in the lane variable: the first
 * lane's offset is a scalar, the coefficient decides between a vector load (1), a reversed one (-1), lanes one by one,
 * and a gather. A load below one side of a select happens only where that side is taken (it may lie outside of the
 * argument otherwise): the condition is kept in p->guard and becomes a mask or a branch. What was computed under a
 * guard is forgotten when it ends; p->log knows what that was.
 */
#include "loops_int.h"

#include <math.h>

enum { GATHERED = 8 }; /* lanes of an instruction that gathers */

/* ---- bookkeeping ---- */

void cy_lp_statement(cy_lp *p) {
  for (uint32_t i = 0; i < p->nlog; i++)
    (p->log[i] & 1 ? p->varying : p->uniform)[p->log[i] >> 1] = NULL;
  p->nlog = 0;
}

/* Ends a block that is not on every way to what follows. */
static void forget_since(cy_lp *p, uint32_t mark) {
  p->forgotten += p->nlog > mark;
  for (; p->nlog > mark; p->nlog--) {
    uint32_t entry = p->log[p->nlog - 1];
    (entry & 1 ? p->varying : p->uniform)[entry >> 1] = NULL;
  }
}

/* Ends a guard: values that depend on loads made under it are forgotten, the others hold everywhere. */
static void forget_guarded(cy_lp *p, uint32_t mark) {
  uint32_t kept = mark;
  for (uint32_t i = mark; i < p->nlog; i++) {
    cy_expr e = p->log[i] >> 1;
    if (p->guarded[e]) {
      p->uniform[e] = p->varying[e] = NULL;
      p->guarded[e] = false;
      p->forgotten++;
    } else {
      p->log[kept++] = p->log[i];
    }
  }
  p->nlog = kept;
}

/* `forgotten`: p->forgotten before e was computed. */
static V remember(cy_lp *p, cy_expr e, V v, bool varying, uint32_t forgotten) {
  const cy_expr_info *x = cy_expr_of(p->k, e);
  (varying ? p->varying : p->uniform)[e] = v;
  p->log[p->nlog++] = e << 1 | varying;
  if (p->guard) {
    bool yes = x->op == CY_X_LOAD || p->forgotten != forgotten;
    for (int i = 0; i < x->n; i++)
      yes |= p->guarded[x->arg[i]];
    p->guarded[e] |= yes;
  }
  return v;
}

static bool varies(cy_lp *p, cy_expr e) {
  if (p->lanes == 1)
    return false;
  if (p->vary[e])
    return p->vary[e] == 2;
  const cy_expr_info *x = cy_expr_of(p->k, e);
  if (x->op == CY_OP_div && cy_lp_part_of(p, x)) {
    p->vary[e] = 1;
    return false;
  }
  bool yes = (x->op == CY_X_VAR && x->id == p->lane) || (x->op == CY_X_LOCAL && p->lane_slot[x->id]);
  for (int i = 0; i < x->n; i++)
    yes |= varies(p, x->arg[i]);
  p->vary[e] = yes ? 2 : 1;
  return yes;
}

V cy_lp_dim(cy_lp *p, cy_dim d) {
  int64_t v;
  if (cy_dim_is_const(cy_kernel_graph(p->k), d, &v))
    return cy_i64(p->cg, v);
  for (uint32_t i = 0; i < p->ndims; i++)
    if (p->dims[i] == d)
      return p->size[i];
  cy_bug("kernel '%s' was not handed a size that it uses", cy_kernel_name(p->k));
}

/* ---- how an offset moves with the lanes ---- */

typedef struct step {
  bool affine;
  bool flag; /* by is 1, or 0 where one element is broadcast, which only the running model knows */
  V by;      /* per lane; NULL: 0 */
} step;

static bool is_flag(const cy_lp *p, cy_expr e) {
  const cy_expr_info *x = cy_expr_of(p->k, e);
  const cy_graph *g = cy_kernel_graph(p->k);
  const cy_term *terms;
  int64_t lo, hi;
  if (x->op != CY_X_DIM)
    return false;
  cy_dim_range(g, x->id, &lo, &hi);
  if (lo >= 0)
    return hi <= 1;
  /* -1: min(size - 1, 1) of an axis without elements, along which nothing runs; no such thing backwards, where it moves */
  return lo == -1 && hi == 1 && cy_dim_terms(g, x->id, &terms) == 1 && terms->coef > 0;
}

static step step_of(cy_lp *p, cy_expr e) {
  if (!varies(p, e))
    return (step){.affine = true};
  const cy_expr_info *x = cy_expr_of(p->k, e);
  if (x->op == CY_X_VAR)
    return (step){.affine = true, .by = cy_i64(p->cg, 1)};
  step no = {.affine = false};
  if (x->op == CY_OP_mod && cy_lp_part_of(p, x))
    return (step){.affine = true, .by = cy_i64(p->cg, 1)};
  if (x->op != CY_OP_add && x->op != CY_OP_sub && x->op != CY_OP_mul)
    return no;
  step a = step_of(p, x->arg[0]), b = step_of(p, x->arg[1]);
  if (!a.affine || !b.affine)
    return no;
  if (x->op == CY_OP_mul) {
    if (a.by && b.by)
      return no;
    cy_expr other = x->arg[a.by ? 1 : 0];
    V moves = a.by ? a.by : b.by;
    int64_t one;
    return (step){.affine = true,
                  .flag = is_flag(p, other) && cy_is_const(moves, &one) && one == 1,
                  .by = cy_mul(p->cg, moves, cy_lp_uniform(p, other))};
  }
  if (!b.by || (!a.by && x->op == CY_OP_add))
    return b.by ? b : a;
  V from = a.by ? a.by : cy_i64(p->cg, 0);
  return (step){.affine = true, .by = x->op == CY_OP_add ? cy_add(p->cg, from, b.by) : cy_sub(p->cg, from, b.by)};
}

bool cy_lp_affine(cy_lp *p, cy_expr e, V *out_step) {
  step s = step_of(p, e);
  *out_step = s.by;
  return s.affine;
}

/* ---- memory ---- */

static V address(cy_lp *p, cy_karg arg, V offset) {
  return cy_gep(p->cg, p->arg[arg], cy_mulc(p->cg, offset, cy_lp_bytes(p->args[arg].dtype)));
}

/* The byte that has an element of 2 or 4 bits. */
static V packed_byte(cy_lp *p, cy_karg arg, V offset) {
  int bits = cy_dtype_of(p->args[arg].dtype)->bits;
  return cy_gep(p->cg, p->arg[arg], LLVMBuildLShr(p->cg->b, offset, cy_i64(p->cg, bits == 4 ? 1 : 2), ""));
}

/* The element's lowest bit in that byte, an i8; ones: the bits of an element. */
static V packed_place(cy_lp *p, cy_karg arg, V offset, V *out_ones) {
  cy_cg *cg = p->cg;
  int bits = cy_dtype_of(p->args[arg].dtype)->bits;
  *out_ones = LLVMConstInt(cg->i8, (1u << bits) - 1, 0);
  V place = cy_mulc(cg, LLVMBuildAnd(cg->b, offset, cy_i64(cg, 8 / bits - 1), ""), bits);
  return LLVMBuildTrunc(cg->b, place, cg->i8, "");
}

static V load_packed(cy_lp *p, cy_karg arg, V offset) {
  V byte = cy_load(p->cg, p->cg->i8, packed_byte(p, arg, offset), 1), ones;
  V shifted = LLVMBuildLShr(p->cg->b, byte, packed_place(p, arg, offset, &ones), "");
  return LLVMBuildAnd(p->cg->b, shifted, ones, "");
}

void cy_lp_prefetch(cy_lp *p, cy_karg arg, cy_expr offset, int64_t prefetch, bool write) {
  V by = NULL;
  int64_t one;
  if (cy_lp_affine(p, offset, &by) && by && cy_is_const(by, &one) && one == 1)
    cy_prefetch(p->cg, cy_gepc(p->cg, address(p, arg, cy_lp_uniform(p, offset)), prefetch), write, CY_FIRST_LEVEL);
}

/* `lanes` elements that lie side by side, in storage type. */
static V load_vector(cy_lp *p, cy_karg arg, V offset, unsigned lanes) {
  cy_dtype t = p->args[arg].dtype;
  return cy_load(p->cg, cy_lp_mem(p->cg, t, lanes), address(p, arg, offset), cy_lp_bytes(t));
}

static V load_one(cy_lp *p, cy_karg arg, V offset) {
  return cy_lp_packed(p->args[arg].dtype) ? load_packed(p, arg, offset) : load_vector(p, arg, offset, 1);
}

/* A load, of one element or of a vector, that happens only if `cond`; else zeros. */
static V load_if(cy_lp *p, cy_karg arg, V offset, V cond, unsigned lanes) {
  cy_either e;
  cy_either_begin(p->cg, &e, cond, NULL);
  return cy_either_end(p->cg, &e, lanes > 1 ? load_vector(p, arg, offset, lanes) : load_one(p, arg, offset));
}

static V any(cy_lp *p, V guard) {
  if (!cy_is_vector(guard))
    return guard;
  return cy_intrinsic(p->cg, "llvm.vector.reduce.or", LLVMTypeOf(guard), &guard, 1);
}

static V guard_mask(cy_lp *p) { return cy_is_vector(p->guard) ? p->guard : cy_splat(p->cg, p->guard, p->lanes); }

static V load_uniform(cy_lp *p, const cy_expr_info *x) {
  V offset = cy_lp_uniform(p, x->arg[0]);
  V raw = p->guard ? load_if(p, x->id, offset, any(p, p->guard), 1) : load_one(p, x->id, offset);
  return cy_lp_from_mem(p->cg, raw, x->dtype, 1);
}

static V load_contiguous(cy_lp *p, cy_karg arg, V offset) {
  cy_cg *cg = p->cg;
  cy_dtype t = p->args[arg].dtype;
  if (!p->guard)
    return load_vector(p, arg, offset, p->lanes);
  V at = address(p, arg, offset);
  return cy_load_masked(cg, cy_lp_mem(cg, t, p->lanes), at, guard_mask(p), cy_lp_bytes(t));
}

static V reversed(cy_lp *p, V v) {
  int order[64];
  for (unsigned i = 0; i < p->lanes; i++)
    order[i] = (int)(p->lanes - 1 - i);
  return cy_shuffle(p->cg, v, v, order, p->lanes);
}

/* Every second element: two vectors that together end with the last one wanted. */
static V load_alternate(cy_lp *p, cy_karg arg, V first) {
  int order[64];
  for (unsigned i = 0; i < p->lanes; i++)
    order[i] = (int)(2 * i < p->lanes ? 2 * i : 2 * i + 1);
  V low = load_contiguous(p, arg, first), high = load_contiguous(p, arg, cy_addc(p->cg, first, (int64_t)p->lanes - 1));
  return cy_shuffle(p->cg, low, high, order, p->lanes);
}

/* Lane by lane, at offsets that are a step apart or, with step NULL, elements of a vector. */
static V load_lanes(cy_lp *p, cy_karg arg, V offset, V by) {
  V v = LLVMGetPoison(cy_lp_mem(p->cg, p->args[arg].dtype, p->lanes));
  for (unsigned i = 0; i < p->lanes; i++) {
    V at = by ? cy_add(p->cg, offset, cy_mulc(p->cg, by, i)) : cy_lp_lane(p->cg, offset, i, p->lanes);
    V one = p->guard ? load_if(p, arg, at, cy_lp_lane(p->cg, guard_mask(p), i, p->lanes), 1) : load_one(p, arg, at);
    v = cy_lp_set_lane(p->cg, v, one, i);
  }
  return v;
}

/* The term of e that varies along the lanes; 0: there are several. */
static cy_expr varying_term(cy_lp *p, cy_expr e) {
  const cy_expr_info *x = cy_expr_of(p->k, e);
  if (x->op != CY_OP_add)
    return e;
  bool first = varies(p, x->arg[0]), second = varies(p, x->arg[1]);
  return first && second ? 0 : varying_term(p, x->arg[first ? 0 : 1]);
}

/* e's terms that vary along the lanes, and those that do not; NULL: there are none. */
static void split_terms(cy_lp *p, cy_expr e, V *inout_varying, V *inout_uniform) {
  const cy_expr_info *x = cy_expr_of(p->k, e);
  bool in_lanes = varies(p, e);
  if (in_lanes && x->op == CY_OP_add) {
    split_terms(p, x->arg[0], inout_varying, inout_uniform);
    split_terms(p, x->arg[1], inout_varying, inout_uniform);
    return;
  }
  V *sum = in_lanes ? inout_varying : inout_uniform, v = in_lanes ? cy_lp_value(p, e) : cy_lp_uniform(p, e);
  *sum = *sum ? LLVMBuildAdd(p->cg->b, *sum, v, "") : v;
}

/* Is there an instruction for elements t from anywhere, and is it the faster way? */
static bool gathers(const cy_lp *p, cy_dtype t) {
  return p->cg->gathers && !cy_lp_packed(t) && cy_lp_bytes(t) == 4 && p->lanes % GATHERED == 0;
}

/* The offset's uniform part is the address: what varies may be the same for many such loads. By an instruction, only
 * those lanes that the guard lets through, zeros in the others, or without a guard from a table in registers or lane by
 * lane. */
static V load_scattered(cy_lp *p, cy_karg arg, cy_expr offset) {
  V varying = NULL, uniform = NULL;
  split_terms(p, offset, &varying, &uniform);
  V base = uniform ? address(p, arg, uniform) : p->arg[arg];
  cy_dtype t = p->args[arg].dtype;
  cy_expr term = varying_term(p, offset);
  if (term && cy_lp_short_index(p, t, term))
    return cy_lp_lookup(p, t, base, term, cy_lp_value(p, cy_lp_lookup_index(p, term)));
  if (gathers(p, t)) {
    T types[2] = {cy_lp_mem(p->cg, t, p->lanes), LLVMVectorType(p->cg->ptr, p->lanes)};
    V at = LLVMBuildGEP2(p->cg->b, cy_lp_mem(p->cg, t, 1), base, &varying, 1, "");
    V mask = p->guard ? guard_mask(p) : LLVMConstAllOnes(LLVMVectorType(p->cg->i1, p->lanes));
    V a[4] = {at, cy_i32(p->cg, 4), mask, LLVMConstNull(types[0])};
    return cy_intrinsic_of(p->cg, "llvm.masked.gather", types, 2, a, 4);
  }
  V v = LLVMGetPoison(cy_lp_mem(p->cg, t, p->lanes));
  for (unsigned i = 0; i < p->lanes; i++) {
    V at = cy_mulc(p->cg, cy_lp_lane(p->cg, varying, i, p->lanes), cy_lp_bytes(t));
    v = cy_lp_set_lane(p->cg, v, cy_load(p->cg, cy_lp_mem(p->cg, t, 1), cy_gep(p->cg, base, at), cy_lp_bytes(t)), i);
  }
  return v;
}

/* Elements side by side, or one for all lanes. */
static V load_flagged(cy_lp *p, cy_karg arg, V offset, V by) {
  cy_cg *cg = p->cg;
  cy_either e;
  cy_either_begin(cg, &e, cy_icmp(cg, LLVMIntNE, by, cy_i64(cg, 0)), NULL);
  cy_either_else(cg, &e, load_vector(p, arg, offset, p->lanes));
  return cy_either_end(cg, &e, cy_splat(cg, load_one(p, arg, offset), p->lanes));
}

/* offset: of the first lane where s is affine, else of all. */
static V load_by(cy_lp *p, const cy_expr_info *x, const step *s, V offset) {
  cy_cg *cg = p->cg;
  int64_t by = 0;
  bool whole = !cy_lp_packed(x->dtype), fixed = whole && s->affine && cy_is_const(s->by, &by);
  if (fixed && by == 1)
    return load_contiguous(p, x->id, offset);
  if (fixed && by == -1 && !p->guard)
    return reversed(p, load_contiguous(p, x->id, cy_addc(cg, offset, 1 - (int64_t)p->lanes)));
  if (fixed && by == 2 && !p->guard && p->lanes % 4 == 0)
    return load_alternate(p, x->id, offset);
  if (whole && s->affine && s->flag && !p->guard)
    return load_flagged(p, x->id, offset, s->by);
  return load_lanes(p, x->id, offset, s->affine ? s->by : NULL);
}

/* The same only if a condition holds that is one for all lanes; else zeros. */
static V load_by_if(cy_lp *p, const cy_expr_info *x, const step *s, V offset) {
  V cond = p->guard;
  cy_either e;
  cy_either_begin(p->cg, &e, cond, NULL);
  p->guard = NULL;
  V v = load_by(p, x, s, offset);
  p->guard = cond;
  return cy_either_end(p->cg, &e, v);
}

/* The columns of a row, again and again. */
static V load_repeated(cy_lp *p, const cy_expr_info *x) {
  V row = load_vector(p, x->id, cy_lp_uniform(p, x->arg[0]), p->wrap);
  return cy_lp_from_mem(p->cg, cy_repeated(p->cg, row, p->wrap, p->lanes), x->dtype, p->lanes);
}

static V load_varying(cy_lp *p, const cy_expr_info *x) {
  if (p->wrap && cy_lp_rows_same(p->k, x->arg[0]))
    return load_repeated(p, x);
  step s = step_of(p, x->arg[0]);
  if (!s.affine && (gathers(p, x->dtype) || (!p->guard && !cy_lp_packed(x->dtype))))
    return cy_lp_from_mem(p->cg, load_scattered(p, x->id, x->arg[0]), x->dtype, p->lanes);
  V offset = s.affine ? cy_lp_uniform(p, x->arg[0]) : cy_lp_value(p, x->arg[0]);
  int64_t by;
  /* masks of bytes and words are instructions of AVX-512 only */
  bool mask = s.affine && cy_is_const(s.by, &by) && by == 1 && cy_lp_bytes(x->dtype) >= 4;
  V raw = p->guard && !cy_is_vector(p->guard) && !mask ? load_by_if(p, x, &s, offset) : load_by(p, x, &s, offset);
  return cy_lp_from_mem(p->cg, raw, x->dtype, p->lanes);
}

/* Packed elements share a byte: read, replace, write. */
static void store_packed(cy_lp *p, cy_karg arg, V offset, V code) {
  cy_cg *cg = p->cg;
  V at = packed_byte(p, arg, offset), ones, place = packed_place(p, arg, offset, &ones);
  V mask = LLVMBuildNot(cg->b, LLVMBuildShl(cg->b, ones, place, ""), "");
  V old = LLVMBuildAnd(cg->b, cy_load(cg, cg->i8, at, 1), mask, "");
  V bits_in = LLVMBuildShl(cg->b, LLVMBuildAnd(cg->b, code, ones, ""), place, "");
  cy_store(cg, LLVMBuildOr(cg->b, old, bits_in, ""), at, 1);
}

static void store_one(cy_lp *p, cy_karg arg, V offset, V raw) {
  cy_dtype t = p->args[arg].dtype;
  if (cy_lp_packed(t))
    store_packed(p, arg, offset, raw);
  else
    cy_store(p->cg, raw, address(p, arg, offset), cy_lp_bytes(t));
}

void cy_lp_store(cy_lp *p, cy_karg arg, cy_expr offset, V value) {
  cy_cg *cg = p->cg;
  cy_dtype t = p->args[arg].dtype;
  V raw = cy_lp_to_mem(cg, value, t, p->lanes);
  if (p->lanes == 1 || !varies(p, offset)) { /* all lanes to one place: the last one stays */
    raw = cy_lp_lane(cg, raw, p->lanes - 1, p->lanes);
    store_one(p, arg, cy_lp_uniform(p, offset), raw);
    return;
  }
  step s = step_of(p, offset);
  int64_t by = 0;
  if (s.affine && cy_is_const(s.by, &by) && (by == 1 || by == -1) && !cy_lp_packed(t)) {
    V first = cy_lp_uniform(p, offset);
    V at = address(p, arg, by == 1 ? first : cy_addc(cg, first, 1 - (int64_t)p->lanes));
    cy_store(cg, by == 1 ? raw : reversed(p, raw), at, cy_lp_bytes(t));
    return;
  }
  V base = s.affine ? cy_lp_uniform(p, offset) : cy_lp_value(p, offset);
  for (unsigned i = 0; i < p->lanes; i++) {
    V at = s.affine ? cy_add(cg, base, cy_mulc(cg, s.by, i)) : cy_lp_lane(cg, base, i, p->lanes);
    store_one(p, arg, at, cy_lp_lane(cg, raw, i, p->lanes));
  }
}

/* ---- expressions ---- */

static V compute(cy_lp *p, cy_expr e, bool varying);

static V operand(cy_lp *p, cy_expr e, bool varying) { return varying ? cy_lp_value(p, e) : cy_lp_uniform(p, e); }

/* One side of a select, with its loads guarded by `cond`. */
static V guarded(cy_lp *p, cy_expr e, V cond, bool varying) {
  cy_cg *cg = p->cg;
  V outer = p->guard;
  uint32_t mark = p->nlog;
  if (outer && cy_is_vector(outer) != cy_is_vector(cond)) {
    V *flat = cy_is_vector(outer) ? &cond : &outer;
    *flat = cy_splat(cg, *flat, p->lanes);
  }
  V before = p->guard;
  p->guard = outer ? LLVMBuildAnd(cg->b, outer, cond, "") : cond;
  V v = operand(p, e, varying);
  p->guard = before;
  forget_guarded(p, mark);
  return v;
}

/* Behind a branch that is hardly ever taken, whose values are forgotten: what the usual side needs, too, is computed
 * before. */
static V rare_value(cy_lp *p, const cy_expr_info *x, V cond, bool varying) {
  cy_cg *cg = p->cg;
  V usual = operand(p, x->arg[2], varying);
  uint32_t mark = p->nlog;
  cy_either e;
  cy_either_begin(cg, &e, any(p, cond), usual);
  cy_if_rare(cg, &e.s);
  V v = cy_either_end(cg, &e, cy_select(cg, cond, operand(p, x->arg[1], varying), usual));
  forget_since(p, mark);
  return v;
}

static V select_value(cy_lp *p, const cy_expr_info *x, bool varying) {
  cy_cg *cg = p->cg;
  V cond = varies(p, x->arg[0]) && varying ? cy_lp_value(p, x->arg[0]) : cy_lp_uniform(p, x->arg[0]);
  if (x->id == CY_SELECT_RARE)
    return rare_value(p, x, cond, varying);
  if (x->id)
    return cy_select(cg, cond, operand(p, x->arg[1], varying), operand(p, x->arg[2], varying));
  V a = guarded(p, x->arg[1], cond, varying);
  V b = guarded(p, x->arg[2], LLVMBuildNot(cg->b, cond, ""), varying);
  return cy_select(cg, cond, a, b);
}

V cy_lp_lane_numbers(cy_lp *p, V first) {
  V step[64];
  for (unsigned i = 0; i < p->lanes; i++)
    step[i] = cy_i64(p->cg, i);
  return LLVMBuildNSWAdd(p->cg->b, cy_splat(p->cg, first, p->lanes), LLVMConstVector(step, p->lanes), "");
}

static V local_value(cy_lp *p, const cy_expr_info *x, bool varying) {
  T type = cy_lp_reg(p->cg, x->dtype, varying ? p->lanes : 1);
  return LLVMBuildLoad2(p->cg->b, type, varying ? p->lane_slot[x->id] : p->slot[x->id], "");
}

static bool is_param(const cy_kernel *k, const cy_expr_info *x) {
  const cy_karg_info *args;
  cy_kernel_args(k, &args);
  return x->op == CY_X_LOAD && args[x->id].param;
}

/* Of op(e, constant): a constant's test, and what it is told. */
typedef bool constant_test(const cy_kernel *k, const cy_expr_info *x, double bound);

/* A number that an i32 surely holds. */
static bool is_bound(const cy_kernel *k, const cy_expr_info *x, double bound) {
  (void)bound;
  return is_param(k, x) || (x->op == CY_X_CONST && fabs(x->c.f) < 1e9);
}

static bool is_word(const cy_kernel *k, const cy_expr_info *x, double bound) {
  (void)k, (void)bound;
  return x->op == CY_X_CONST && fabs(x->c.f) <= INT16_MAX;
}

static bool is_number(const cy_kernel *k, const cy_expr_info *x, double bound) {
  (void)k;
  return x->op == CY_X_CONST && (cy_dtype_is_float(x->dtype) ? x->c.f == bound : (double)x->c.i == bound);
}

/* The other operand where one passes the test; 0: e is something else. */
static cy_expr beside(const cy_kernel *k, cy_expr e, cy_op op, constant_test *test, double bound) {
  const cy_expr_info *x = cy_expr_of(k, e);
  for (int i = 0; i < 2 && x->op == op; i++)
    if (test(k, cy_expr_of(k, x->arg[i]), bound))
      return x->arg[1 - i];
  return 0;
}

/* Is e clamped, by minimum and maximum in either order, to bounds that pass the test? */
static bool clamped(const cy_kernel *k, cy_expr e, constant_test *test) {
  cy_expr low = beside(k, e, CY_OP_max, test, 0), high = beside(k, e, CY_OP_min, test, 0);
  return (low && beside(k, low, CY_OP_min, test, 0)) || (high && beside(k, high, CY_OP_max, test, 0));
}

/* v, where e is min(max(v, low), high); else 0. */
static cy_expr clamped_to(const cy_kernel *k, cy_expr e, double low, double high) {
  cy_expr top = beside(k, e, CY_OP_min, is_number, high);
  return top ? beside(k, top, CY_OP_max, is_number, low) : 0;
}

/* Is e a whole number (or infinite, or NaN)? Sums of few of them, so that a long one does not take long to look at. */
static bool whole(const cy_kernel *k, cy_expr e, int depth) {
  const cy_expr_info *x = cy_expr_of(k, e);
  const cy_karg_info *args;
  cy_kernel_args(k, &args);
  switch (x->op) {
  case CY_X_LOAD: return args[x->id].whole;
  case CY_OP_round: return true;
  case CY_X_CONST: return x->c.f == nearbyint(x->c.f);
  case CY_OP_cast: return !cy_dtype_is_float(cy_expr_of(k, x->arg[0])->dtype);
  case CY_OP_add:
  case CY_OP_sub:
  case CY_OP_min:
  case CY_OP_max: return depth > 0 && whole(k, x->arg[0], depth - 1) && whole(k, x->arg[1], depth - 1);
  default: return false;
  }
}

/* What cast x rounds to i32 by one instruction: the operand of a round behind it, or a whole number, where nothing can
 * saturate, as behind a quantize's clamp; else 0. NaN becomes INT32_MIN, whose low bits are those of the 0 that a
 * saturating conversion gives. */
static cy_expr rounding_cast_of(const cy_kernel *k, const cy_expr_info *x) {
  if (x->op != CY_OP_cast || x->dtype != CY_I32 || x->id || cy_expr_of(k, x->arg[0])->dtype != CY_F32)
    return 0;
  const cy_expr_info *r = cy_expr_of(k, x->arg[0]);
  cy_expr from = r->op == CY_OP_round ? r->arg[0] : whole(k, x->arg[0], 4) ? x->arg[0] : 0;
  return from && clamped(k, from, is_bound) ? from : 0;
}

static V rounding_cast(cy_lp *p, cy_expr from, bool varying) {
  V v = operand(p, from, varying);
  T types[2] = {cy_lp_reg(p->cg, CY_I32, varying ? p->lanes : 1), LLVMTypeOf(v)};
  return cy_intrinsic_of(p->cg, "llvm.lrint", types, 2, &v, 1);
}

/* Do vectors fill one of bytes, or a part of one where packing is as fast? */
static bool fills_bytes(const cy_lp *p, bool varying) {
  unsigned vectors = p->lanes % p->cg->W ? 0 : p->lanes / p->cg->W;
  return varying && p->cg->avx2 && (vectors == 4 || (p->cg->model.packs_parts && (vectors == 1 || vectors == 2)));
}

/* cast<u8>(cast<i32>(round(min(max(v, 0), 255)))), or without `round`, v being whole: v, else 0. */
static cy_expr is_byte_rounding(const cy_lp *p, const cy_expr_info *x, bool varying) {
  if (!fills_bytes(p, varying) || x->op != CY_OP_cast || x->dtype != CY_U8 || x->id)
    return 0;
  cy_expr from = rounding_cast_of(p->k, cy_expr_of(p->k, x->arg[0]));
  return from ? clamped_to(p->k, from, 0, 255) : 0;
}

/* cast<u8>(cast<i32>(round(v)) + number) with v clamped to what 16 bits hold, as a quantize with a zero point has it,
 * or without the number or `round`: v, else 0. */
static cy_expr is_byte_truncation(const cy_lp *p, const cy_expr_info *x, bool varying, cy_expr *out_number) {
  const cy_kernel *k = p->k;
  *out_number = 0;
  if (!p->cg->model.packs_parts || !fills_bytes(p, varying) || x->op != CY_OP_cast || !cy_dtype_is_byte(x->dtype) || x->id)
    return 0;
  cy_expr rounded = x->arg[0];
  const cy_expr_info *sum = cy_expr_of(k, rounded);
  for (int i = 0; i < 2 && !*out_number && sum->op == CY_OP_add; i++)
    if (cy_expr_of(k, sum->arg[i])->op == CY_X_CONST) {
      *out_number = sum->arg[i];
      rounded = sum->arg[1 - i];
    }
  cy_expr from = rounding_cast_of(k, cy_expr_of(k, rounded));
  return from && clamped(k, from, is_word) ? from : 0;
}

/* v, floats, rounded to 16 bits and from there to u8, each time with saturation, or to their low byte. Two vectors
 * become one 128 bits at a time, which one permutation puts right; of fewer than four, some come twice. */
static V packed_bytes(cy_lp *p, V v, bool low_byte) {
  cy_cg *cg = p->cg;
  unsigned W = cg->W, vectors = p->lanes / W, quarter = W / 4;
  const char *words = W == 16 ? "llvm.x86.avx512.packssdw.512" : "llvm.x86.avx2.packssdw";
  const char *to_bytes = W == 16 ? "llvm.x86.avx512.packuswb.512" : "llvm.x86.avx2.packuswb";
  T types[2] = {LLVMVectorType(cg->i32, p->lanes), LLVMTypeOf(v)};
  V part[4], half[2];
  v = cy_intrinsic_of(cg, "llvm.lrint", types, 2, &v, 1);
  for (unsigned i = 0; i < 4; i++)
    part[i] = i < vectors ? cy_some_lanes(cg, v, i * W, W) : part[i - vectors];
  for (int i = 0; i < 2; i++) {
    half[i] = cy_intrinsic_of(cg, words, NULL, 0, part + 2 * i, 2);
    if (low_byte)
      half[i] = LLVMBuildAnd(cg->b, half[i], cy_splat(cg, LLVMConstInt(cg->i16, 255, 0), 2 * W), "");
  }
  V bytes = cy_intrinsic_of(cg, to_bytes, NULL, 0, half, 2);
  int order[16];
  for (unsigned i = 0; i < vectors * quarter; i++) /* of 4 bytes */
    order[i] = (int)(i % quarter * 4 + i / quarter);
  bytes = LLVMBuildBitCast(cg->b, bytes, cg->vi, "");
  bytes = cy_shuffle(cg, bytes, bytes, order, vectors * quarter);
  return LLVMBuildBitCast(cg->b, bytes, LLVMVectorType(cg->i8, p->lanes), "");
}

/* Saturation spares the lower bound: below it, and for NaN, the conversion gives negative numbers. */
static V byte_rounding(cy_lp *p, cy_expr from) {
  V top[2] = {cy_lp_value(p, from), cy_lp_const(p->cg, CY_F32, (cy_scalar){.f = 255}, p->lanes)};
  return packed_bytes(p, cy_lp_op(p->cg, CY_OP_min, CY_F32, CY_F32, top, 2, p->lanes), false);
}

/* The low byte of what NaN becomes is 0 in 16 bits, too. */
static V byte_truncation(cy_lp *p, cy_expr from, cy_expr number) {
  V v = packed_bytes(p, cy_lp_value(p, from), true);
  if (!number)
    return v;
  V added = LLVMConstInt(p->cg->i8, (uint64_t)cy_expr_of(p->k, number)->c.i & 255, 0);
  return LLVMBuildAdd(p->cg->b, v, cy_splat(p->cg, added, p->lanes), "");
}

/* Integers times a number, plus a number perhaps: what is NaN only where a constant is. */
static bool of_integers(const cy_kernel *k, cy_expr e) {
  const cy_expr_info *x = cy_expr_of(k, e);
  x = x->op == CY_OP_add ? cy_expr_of(k, x->arg[0]) : x;
  x = x->op == CY_OP_mul ? cy_expr_of(k, x->arg[0]) : x;
  return x->op == CY_OP_cast && cy_expr_of(k, x->arg[0])->dtype == CY_I32;
}

/* cast<i16>(cast<i32>(round(min(max(v, -32768), 32767)))), of integers, for whole vectors of words: v, else 0. */
static cy_expr is_word_rounding(const cy_lp *p, const cy_expr_info *x, bool varying) {
  if (!varying || !p->cg->avx2 || p->lanes % (2 * p->cg->W) || x->op != CY_OP_cast || x->dtype != CY_I16 || x->id)
    return 0;
  cy_expr from = rounding_cast_of(p->k, cy_expr_of(p->k, x->arg[0]));
  cy_expr v = from ? clamped_to(p->k, from, INT16_MIN, INT16_MAX) : 0;
  return v && of_integers(p->k, v) ? v : 0;
}

/* cast<u8>(min(max(v, 0), 255)) of words, for whole vectors of bytes: v, else 0. */
static cy_expr is_byte_saturation(const cy_lp *p, const cy_expr_info *x, bool varying) {
  if (!varying || !p->cg->avx2 || p->lanes % (4 * p->cg->W) || x->op != CY_OP_cast || x->dtype != CY_U8 || x->id ||
      cy_expr_of(p->k, x->arg[0])->dtype != CY_I16)
    return 0;
  return clamped_to(p->k, x->arg[0], 0, 255);
}

/* The lanes of v by an instruction that saturates two vectors to one, 128 bits of each at a time. */
static V narrowed(cy_lp *p, V v, const char *pack, unsigned each, T out) {
  cy_cg *cg = p->cg;
  unsigned n = p->lanes / each / 2, quads = cg->W / 2;
  int order[8];
  V part[8];
  for (unsigned i = 0; i < quads; i++)
    order[i] = (int)(i % (quads / 2) * 2 + i / (quads / 2));
  for (unsigned i = 0; i < n; i++) {
    V two[2] = {cy_some_lanes(cg, v, 2 * i * each, each), cy_some_lanes(cg, v, (2 * i + 1) * each, each)};
    V both = LLVMBuildBitCast(cg->b, cy_intrinsic_of(cg, pack, NULL, 0, two, 2), LLVMVectorType(cg->i64, quads), "");
    part[i] = LLVMBuildBitCast(cg->b, cy_shuffle(cg, both, both, order, quads), LLVMVectorType(out, 2 * each), "");
  }
  return cy_joined_all(cg, part, n);
}

/* Saturation spares the lower bound. */
static V word_rounding(cy_lp *p, cy_expr from) {
  cy_cg *cg = p->cg;
  V top[2] = {cy_lp_value(p, from), cy_lp_const(cg, CY_F32, (cy_scalar){.f = INT16_MAX}, p->lanes)};
  V v = cy_lp_op(cg, CY_OP_min, CY_F32, CY_F32, top, 2, p->lanes);
  T types[2] = {LLVMVectorType(cg->i32, p->lanes), LLVMTypeOf(v)};
  v = cy_intrinsic_of(cg, "llvm.lrint", types, 2, &v, 1);
  return narrowed(p, v, cg->W == 16 ? "llvm.x86.avx512.packssdw.512" : "llvm.x86.avx2.packssdw", cg->W, cg->i16);
}

static V byte_saturation(cy_lp *p, cy_expr from) {
  const char *pack = p->cg->W == 16 ? "llvm.x86.avx512.packuswb.512" : "llvm.x86.avx2.packuswb";
  return narrowed(p, cy_lp_value(p, from), pack, 2 * p->cg->W, p->cg->i8);
}

/* Pairs in vectors of W to 64 lanes, for W of which one instruction multiplies and adds. */
static V pairs(cy_lp *p, cy_expr w, cy_expr h) {
  cy_cg *cg = p->cg;
  T bytes = LLVMVectorType(cg->i8, 2 * cg->W), halves = LLVMVectorType(cg->i16, 2 * cg->W);
  V all_w = cy_lp_value(p, w), all_h = cy_lp_value(p, h), part[64];
  unsigned n = p->lanes / cg->W;
  for (unsigned i = 0; i < n; i++) {
    V a = LLVMBuildBitCast(cg->b, cy_some_lanes(cg, all_w, i * cg->W, cg->W), bytes, "");
    V b = LLVMBuildBitCast(cg->b, cy_some_lanes(cg, all_h, i * cg->W, cg->W), halves, "");
    V v[2] = {LLVMBuildSExt(cg->b, a, halves, ""), b};
    part[i] = cy_intrinsic_of(cg, cg->W == 16 ? "llvm.x86.avx512.pmaddw.d.512" : "llvm.x86.avx2.pmadd.wd", NULL, 0, v, 2);
  }
  return cy_joined_all(cg, part, n);
}

/* Does x keep the low byte of a sum with a parameter, such as a quantize's zero point? */
static bool is_byte_sum(const cy_kernel *k, const cy_expr_info *x) {
  bool byte = x->op == CY_OP_cast && cy_dtype_is_byte((cy_dtype)x->dtype);
  const cy_expr_info *sum = byte ? cy_expr_of(k, x->arg[0]) : x;
  return byte && sum->op == CY_OP_add && sum->dtype == CY_I32 &&
         (is_param(k, cy_expr_of(k, sum->arg[0])) || is_param(k, cy_expr_of(k, sum->arg[1])));
}

/* The sum of low bytes: LLVM finds that by itself where the number is constant. */
static V byte_sum(cy_lp *p, const cy_expr_info *x, bool varying) {
  const cy_expr_info *sum = cy_expr_of(p->k, x->arg[0]);
  T type = cy_lp_reg(p->cg, x->dtype, varying ? p->lanes : 1);
  V a = operand(p, sum->arg[0], varying), b = operand(p, sum->arg[1], varying);
  b = LLVMBuildTrunc(p->cg->b, b, type, "");
  return LLVMBuildAdd(p->cg->b, LLVMBuildTrunc(p->cg->b, a, type, ""), b, "");
}

static V compute(cy_lp *p, cy_expr e, bool varying) {
  const cy_expr_info *x = cy_expr_of(p->k, e);
  V a[3];
  cy_expr byte = is_byte_rounding(p, x, varying), rounded = rounding_cast_of(p->k, x), w, h;
  cy_expr number, low = byte ? 0 : is_byte_truncation(p, x, varying, &number);
  if (byte)
    return byte_rounding(p, byte);
  if (low)
    return byte_truncation(p, low, number);
  cy_expr word = is_word_rounding(p, x, varying), saturated = is_byte_saturation(p, x, varying);
  if (word)
    return word_rounding(p, word);
  if (saturated)
    return byte_saturation(p, saturated);
  if (varying && p->cg->avx2 && p->lanes % p->cg->W == 0 && cy_x_is_pairs(p->k, e, &w, &h))
    return pairs(p, w, h);
  switch (x->op) {
  case CY_X_CONST: return cy_lp_const(p->cg, x->dtype, x->c, 1);
  case CY_X_VAR: return varying ? cy_lp_lane_numbers(p, p->var[x->id]) : p->var[x->id];
  case CY_X_DIM: return cy_lp_dim(p, x->id);
  case CY_X_LOCAL: return local_value(p, x, varying);
  case CY_X_LOAD: return varying ? load_varying(p, x) : load_uniform(p, x);
  case CY_OP_select: return select_value(p, x, varying);
  }
  if (rounded)
    return rounding_cast(p, rounded, varying);
  if (is_byte_sum(p->k, x))
    return byte_sum(p, x, varying);
  for (int i = 0; i < x->n; i++)
    a[i] = operand(p, x->arg[i], varying);
  cy_dtype from = cy_expr_of(p->k, x->arg[0])->dtype;
  if (x->op == CY_OP_cast && x->id)
    return cy_lp_cast_unsaturated(p->cg, a[0], from, x->dtype, varying ? p->lanes : 1);
  return cy_lp_op(p->cg, x->op, from, x->dtype, a, x->n, varying ? p->lanes : 1);
}

void cy_lp_load_params(cy_lp *p) {
  for (cy_expr e = 1; e < p->nexprs; e++) {
    const cy_expr_info *x = cy_expr_of(p->k, e);
    if (is_param(p->k, x))
      cy_lp_is_number(p->cg, p->param[e] = load_uniform(p, x));
  }
}

V cy_lp_uniform(cy_lp *p, cy_expr e) {
  V v = p->param[e] ? p->param[e] : p->uniform[e];
  uint32_t forgotten = p->forgotten;
  return v ? v : remember(p, e, compute(p, e, false), false, forgotten);
}

V cy_lp_value(cy_lp *p, cy_expr e) {
  if (p->lanes == 1)
    return cy_lp_uniform(p, e);
  V v = p->varying[e];
  uint32_t forgotten = p->forgotten;
  if (v)
    return v;
  const cy_expr_info *x = cy_expr_of(p->k, e);
  if (x->op == CY_X_CONST)
    v = cy_lp_const(p->cg, x->dtype, x->c, p->lanes);
  else if (varies(p, e))
    v = compute(p, e, true);
  else
    v = cy_splat(p->cg, cy_lp_uniform(p, e), p->lanes);
  return remember(p, e, v, true, forgotten);
}
