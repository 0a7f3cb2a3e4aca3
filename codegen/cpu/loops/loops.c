/* SPDX-License-Identifier: Apache-2.0 */
/* loops.c - loop-IR kernels as LLVM functions: the entry point, tasks, statements and lane loops.
 *
 *   symbol(args, begin, end, worker)          loads pointers and sizes, moves scratch pointers to the worker's stripe
 *     -> symbol.body(pointers noalias .., sizes .., begin, end)   the loops: LLVM may hoist loads out of them
 *
 * Lane loops run in pieces: several vectors at a time (only where that pays: see wide_lanes, copies_choose), one vector
 * at a time, then what is left: one more vector that ends with the loop and does some lanes again, or, where the loop
 * is shorter than a vector or reads what it writes, single elements. A local that the loop sets lives in a vector slot;
 * a local that it only accumulates into is a reduction: every unrolled copy has its own vector of partial results,
 * combined behind the loop. To know before editing: values computed for one statement are never used by the next,
 * because a statement may open blocks. LLVM finds what is common.
 */
#include "loops_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  WIDE = 4,       /* vectors at once where there are accumulators inside of a lane loop, or much arithmetic */
  LONG_CHAIN = 24 /* weight of much arithmetic */
};

static void emit_list(cy_lp *p, const cy_stmt *s);

/* ---- state ---- */

static void lp_init(cy_lp *p, cy_cg *cg, cy_kernel *k) {
  *p = (cy_lp){.cg = cg, .k = k, .lanes = 1};
  p->nargs = cy_kernel_args(k, &p->args);
  p->ndims = cy_kernel_dims(k, &p->dims);
  p->nexprs = cy_expr_count(k) + 1;
  p->arg = cy_lp_zeroed(p->nargs, sizeof(V));
  p->size = cy_lp_zeroed(p->ndims, sizeof(V));
  p->var = cy_lp_zeroed(cy_kernel_var_count(k) + 1, sizeof(V));
  p->slot = cy_lp_zeroed(cy_kernel_local_count(k) + 1, sizeof(V));
  p->lane_slot = cy_lp_zeroed(cy_kernel_local_count(k) + 1, sizeof(V));
  p->vary = cy_lp_zeroed(p->nexprs, 1);
  p->guarded = cy_lp_zeroed(p->nexprs, 1);
  p->uniform = cy_lp_zeroed(p->nexprs, sizeof(V));
  p->varying = cy_lp_zeroed(p->nexprs, sizeof(V));
  p->param = cy_lp_zeroed(p->nexprs, sizeof(V));
  p->log = cy_lp_zeroed(2 * (size_t)p->nexprs, sizeof(cy_expr));
}

static void lp_deinit(cy_lp *p) {
  void *all[] = {p->arg,     p->size,    p->var,     p->slot,  p->lane_slot, p->vary,
                 p->guarded, p->uniform, p->varying, p->param, p->log};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    free(all[i]);
}

static void make_slots(cy_lp *p) {
  for (uint32_t i = 1; i <= cy_kernel_local_count(p->k); i++)
    p->slot[i] = cy_alloca_of(p->cg, cy_lp_reg(p->cg, cy_kernel_local_dtype(p->k, i), 1));
}

/* ---- what a lane loop contains ---- */

typedef struct lane_body {
  uint8_t *set, *accum; /* of locals; accum: the op */
  uint32_t nlocals;
  int bits;                /* of the widest data */
  int weight;              /* expressions of its statements, roughly */
  bool loops;              /* contains loops or conditions */
  int accumulators;        /* locals that it accumulates into */
  bool carries;            /* sets a local inside of a loop: a running sum, where the greatest was found */
  bool reduces;            /* some local is accumulated and not set */
  uint8_t *loads, *stores; /* of arguments */
} lane_body;

static void widest(cy_lp *p, lane_body *b, cy_expr e, uint8_t *seen) {
  if (seen[e])
    return;
  seen[e] = 1;
  b->weight++;
  const cy_expr_info *x = cy_expr_of(p->k, e);
  if (x->op == CY_X_LOAD && p->args[x->id].param)
    return; /* like a constant */
  bool index = x->op == CY_X_VAR || x->op == CY_X_DIM || x->op == CY_X_CONST;
  int bits = cy_dtype_of(x->dtype)->bits, in_register = cy_dtype_is_float(x->dtype) && bits < 32 ? 32 : bits;
  if (x->op == CY_X_LOAD) {
    in_register = bits < 8 ? 8 : bits;
    b->loads[x->id] = 1;
  }
  if (!index && in_register > b->bits)
    b->bits = in_register;
  cy_expr pair[2];
  if (cy_x_is_pairs(p->k, e, &pair[0], &pair[1])) { /* one operation */
    widest(p, b, pair[0], seen);
    widest(p, b, pair[1], seen);
    return;
  }
  int before = b->bits; /* offsets are mostly scalars: they do not count */
  for (int i = 0; i < x->n; i++)
    widest(p, b, x->arg[i], seen);
  if (x->op == CY_X_LOAD)
    b->bits = before;
}

static void scan(cy_lp *p, lane_body *b, const cy_stmt *s, uint8_t *seen, bool inside) {
  for (; s; s = s->next) {
    if (s->kind == CY_S_SET) {
      b->set[s->local] = 1;
      b->carries |= inside;
    }
    if (s->kind == CY_S_ACCUM) {
      b->accumulators += !b->accum[s->local];
      b->accum[s->local] = (uint8_t)s->op;
    }
    if (s->kind == CY_S_STORE)
      b->stores[s->arg] = 1;
    b->loops |= s->kind == CY_S_FOR;
    if (s->value)
      widest(p, b, s->value, seen);
    scan(p, b, s->body, seen, true);
  }
}

static lane_body lane_scan(cy_lp *p, const cy_stmt *s) {
  uint32_t n = cy_kernel_local_count(p->k) + 1;
  lane_body b = {.set = cy_lp_zeroed(n, 1), .accum = cy_lp_zeroed(n, 1), .nlocals = n, .bits = 8, .loads = cy_lp_zeroed(p->nargs, 1),
                 .stores = cy_lp_zeroed(p->nargs, 1)};
  uint8_t *seen = cy_lp_zeroed(p->nexprs, 1);
  scan(p, &b, s, seen, false);
  free(seen);
  for (uint32_t l = 1; l < n; l++)
    b.reduces |= b.accum[l] && !b.set[l];
  return b;
}

static void lane_free(lane_body *b) {
  free(b->set);
  free(b->accum);
  free(b->loads);
  free(b->stores);
}

/* May an iteration be run twice? Not where it reads what it has written. */
static bool repeatable(const cy_lp *p, const lane_body *b) {
  for (uint32_t i = 0; i < p->nargs; i++)
    if (b->loads[i] && b->stores[i])
      return false;
  return true;
}

/* Short arithmetic on floats that ends in bytes: with as many lanes as a vector has bytes, they are packed at once. */
static bool packs_bytes(const cy_lp *p, const lane_body *b) {
  bool bytes = !b->loops && !b->accumulators && b->bits == 32 && b->weight <= 40;
  for (uint32_t i = 0; i < p->nargs; i++)
    bytes &= !b->stores[i] || p->args[i].dtype == CY_U8 || (p->cg->model.packs_parts && p->args[i].dtype == CY_I8);
  return bytes;
}

static unsigned lane_width(cy_lp *p, const lane_body *b, V count) {
  unsigned n = p->cg->W * 32 / (packs_bytes(p, b) ? 8 : (unsigned)b->bits);
  int64_t known;
  n = n < 2 ? 2 : n > 64 ? 64 : n;
  while (n > 1 && cy_is_const(count, &known) && known < n)
    n /= 2;
  return n;
}

/* ---- lane loops ---- */

typedef struct lane_loop {
  cy_lp *p;
  const cy_stmt *body;
  lane_body info;
  cy_var var;
  unsigned lanes, copies;
  V *part[CY_LP_UNROLL]; /* vector slots of locals: of each unrolled copy */
} lane_loop;

static void each_reduction(lane_loop *l, void (*visit)(lane_loop *l, cy_local local, cy_op op)) {
  for (cy_local i = 1; i < l->info.nlocals; i++)
    if (l->info.accum[i] && !l->info.set[i])
      visit(l, i, l->info.accum[i]);
}

static void make_part(lane_loop *l, cy_local local, cy_op op) {
  cy_cg *cg = l->p->cg;
  cy_dtype t = cy_kernel_local_dtype(l->p->k, local);
  for (unsigned c = 0; c < l->copies; c++) {
    l->part[c][local] = cy_alloca_of(cg, cy_lp_reg(cg, t, l->lanes));
    LLVMBuildStore(cg->b, cy_lp_const(cg, t, cy_scalar_neutral(op, t), l->lanes), l->part[c][local]);
  }
}

/* v op v's second lane, at lane 0, computed as a vector: LLVM moves single integers to other registers and back. */
static V fold_pair(lane_loop *l, cy_op op, cy_dtype t, V v) {
  cy_cg *cg = l->p->cg;
  int second[2] = {1, 1};
  V pair[2] = {v, cy_shuffle(cg, v, v, second, 2)};
  return cy_lp_lane(cg, cy_lp_op(cg, op, t, t, pair, 2, 2), 0, 2);
}

/* local = local op (all lanes of all partial results) */
static void fold_parts(lane_loop *l, cy_local local, cy_op op) {
  cy_cg *cg = l->p->cg;
  cy_dtype t = cy_kernel_local_dtype(l->p->k, local);
  T type = cy_lp_reg(cg, t, l->lanes);
  V sum = NULL;
  for (unsigned c = 0; c < l->copies; c++) {
    V pair[2] = {sum, LLVMBuildLoad2(cg->b, type, l->part[c][local], "")};
    sum = c ? cy_lp_op(cg, op, t, t, pair, 2, l->lanes) : pair[1];
  }
  for (unsigned n = l->lanes / 2; n >= 1; n /= 2) {
    V pair[2] = {cy_some_lanes(cg, sum, 0, n), cy_some_lanes(cg, sum, n, n)};
    sum = n > 1 ? cy_lp_op(cg, op, t, t, pair, 2, n) : fold_pair(l, op, t, sum);
  }
  V pair[2] = {LLVMBuildLoad2(cg->b, cy_lp_reg(cg, t, 1), l->p->slot[local], ""), sum};
  LLVMBuildStore(cg->b, cy_lp_op(cg, op, t, t, pair, 2, 1), l->p->slot[local]);
}

/* One iteration at `lanes` lanes starting at `first`. */
static void lane_iteration(lane_loop *l, unsigned lanes, unsigned copy, V first) {
  cy_lp *p = l->p;
  p->var[l->var] = first;
  p->lanes = lanes;
  p->lane = lanes > 1 ? l->var : 0;
  p->set = l->info.set;
  if (lanes > 1)
    memcpy(p->lane_slot, l->part[copy], l->info.nlocals * sizeof(V));
  memset(p->vary, 0, p->nexprs);
  emit_list(p, l->body);
  cy_lp_statement(p);
  p->lanes = 1;
  p->lane = 0;
  memset(p->lane_slot, 0, l->info.nlocals * sizeof(V));
  memset(p->vary, 0, p->nexprs);
}

/* Are so many iterations of vectors laid out flat, so that what one loop over a short row reads is still in registers
 * for the next, and nothing stands between the rows? */
static bool flat_lanes(const lane_loop *l, unsigned lanes, int64_t iterations) {
  enum { MAX_ITERATIONS = 8, MAX_WEIGHT = 200 };
  return lanes > 1 && !l->info.loops && iterations <= MAX_ITERATIONS && iterations * l->info.weight <= MAX_WEIGHT;
}

/* From lo on in steps of lanes * copies while a whole step fits; returns where it stopped. */
static V lane_piece(lane_loop *l, V lo, V hi, unsigned lanes, unsigned copies) {
  cy_cg *cg = l->p->cg;
  int64_t step = (int64_t)lanes * copies, a, b;
  V count = cy_sub(cg, hi, lo), whole = count;
  if (step > 1) /* lo <= hi, so the cast to unsigned inside cy_mod is right */
    whole = cy_sub(cg, count, cy_mod(cg, count, cy_i64(cg, step)));
  V stop = cy_add(cg, lo, whole);
  if (cy_is_const(lo, &a) && cy_is_const(stop, &b) && a == b)
    return stop;
  if (cy_is_const(whole, &b) && flat_lanes(l, lanes, b / lanes)) {
    for (int64_t i = 0; i < b / lanes; i++)
      lane_iteration(l, lanes, (unsigned)(i % copies), cy_addc(cg, lo, i * lanes));
    return stop;
  }
  cy_loop loop;
  cy_loop_begin(cg, &loop, lo, stop, cy_i64(cg, step), NULL, 0);
  for (unsigned c = 0; c < copies; c++)
    lane_iteration(l, lanes, c, cy_addc(cg, loop.iv, (int64_t)c * lanes));
  cy_loop_end(cg, &loop, NULL);
  return stop;
}

static void make_set_slots(lane_loop *l) {
  for (cy_local i = 1; i < l->info.nlocals; i++)
    for (unsigned c = 0; l->info.set[i] && c < l->copies; c++)
      l->part[c][i] = cy_alloca_of(l->p->cg, cy_lp_reg(l->p->cg, cy_kernel_local_dtype(l->p->k, i), l->lanes));
}

/* The last vector of the loop, of which the lanes below `lo` are done: what they store they store again, what they
 * accumulate does not count. */
static void lane_tail(lane_loop *l, V lo, V hi) {
  cy_cg *cg = l->p->cg;
  V first = cy_addc(cg, hi, -(int64_t)l->lanes);
  l->p->lanes = l->lanes;
  V numbers = cy_lp_lane_numbers(l->p, first), bound = cy_splat(cg, lo, l->lanes);
  l->p->new_lanes = LLVMBuildICmp(cg->b, LLVMIntSGE, numbers, bound, "");
  lane_iteration(l, l->lanes, 0, first);
  l->p->new_lanes = NULL;
}

/* Elements [lo, hi), fewer than a vector, of a loop that began at `start`. */
static void lane_rest(lane_loop *l, V start, V lo, V hi) {
  cy_cg *cg = l->p->cg;
  V total = cy_sub(cg, hi, start), rest = cy_sub(cg, hi, lo), zero = cy_i64(cg, 0);
  int64_t n, left;
  bool known = cy_is_const(total, &n) && cy_is_const(rest, &left);
  if (known && left == 0)
    return;
  if (l->lanes == 1 || !repeatable(l->p, &l->info) || (known && (n < l->lanes || left == 1))) {
    lane_piece(l, lo, hi, 1, 1);
    return;
  }
  if (known) {
    lane_tail(l, lo, hi);
    return;
  }
  cy_if some, whole;
  cy_if_begin(cg, &some, cy_icmp(cg, LLVMIntSGT, rest, zero));
  cy_if_begin(cg, &whole, cy_icmp(cg, LLVMIntSGE, total, cy_i64(cg, l->lanes)));
  lane_tail(l, lo, hi);
  cy_if_else(cg, &whole);
  lane_piece(l, lo, hi, 1, 1);
  cy_if_end(cg, &whole);
  cy_if_end(cg, &some);
}

/* Vector slots of what the loop sets and of its partial results, which close_parts combines. */
static void open_parts(lane_loop *l) {
  for (unsigned c = 0; c < l->copies; c++)
    l->part[c] = cy_lp_zeroed(l->info.nlocals, sizeof(V));
  if (l->lanes > 1) {
    make_set_slots(l);
    each_reduction(l, make_part);
  }
}

static void close_parts(lane_loop *l) {
  if (l->lanes > 1)
    each_reduction(l, fold_parts);
  for (unsigned c = 0; c < l->copies; c++)
    free(l->part[c]);
}

/* All pieces at l's number of lanes from lo on, the rest too when `last`; returns where it stopped. start: of the loop.
 */
static V lane_pieces(lane_loop *l, V start, V lo, V hi, bool last) {
  if (l->lanes > 1) {
    if (l->copies > 1)
      lo = lane_piece(l, lo, hi, l->lanes, l->copies);
    lo = lane_piece(l, lo, hi, l->lanes, 1);
  }
  if (last)
    lane_rest(l, start, lo, hi);
  return lo;
}

static void copies_choose(lane_loop *l, V count) {
  int64_t known;
  if (!l->info.loops && l->info.weight <= (l->info.reduces ? 60 : 12))
    l->copies = l->info.weight <= 24 ? CY_LP_UNROLL : 2;
  while (l->copies > 1 && cy_is_const(count, &known) && known < 4 * (int64_t)l->lanes * l->copies)
    l->copies /= 2; /* short: combining partial results would cost more than it saves */
}

/* Does an offset move by at most an element from one iteration of v to the next? */
static bool is_near(cy_lp *p, cy_expr offset, cy_var v) {
  cy_affine a;
  int64_t min = 0, max = 0;
  if (!cy_expr_affine(p->k, offset, &a) || (a.rest && cy_expr_uses_var(p->k, a.rest, v)))
    return false;
  for (int i = 0; i < a.n; i++)
    if (a.var[i] == v)
      cy_dim_range(cy_kernel_graph(p->k), a.coef[i], &min, &max);
  return min >= -1 && max <= 1;
}

static bool loads_near(cy_lp *p, cy_expr e, cy_var v, uint8_t *seen) {
  const cy_expr_info x = *cy_expr_of(p->k, e);
  bool near = seen[e] || x.op != CY_X_LOAD || is_near(p, x.arg[0], v);
  for (int i = 0; i < x.n && near && !seen[e]; i++)
    near = loads_near(p, x.arg[i], v, seen);
  seen[e] = 1;
  return near;
}

static bool list_near(cy_lp *p, const cy_stmt *s, cy_var v, uint8_t *seen) {
  bool near = true;
  for (; s && near; s = s->next)
    near = (s->kind != CY_S_STORE || is_near(p, s->offset, v)) && (!s->value || loads_near(p, s->value, v, seen)) &&
           list_near(p, s->body, v, seen);
  return near;
}

/* Is all that the statements read and write side by side along v? */
static bool stays_near(cy_lp *p, const cy_stmt *s, cy_var v) {
  uint8_t *seen = cy_lp_zeroed(p->nexprs, 1);
  bool near = list_near(p, s, v, seen);
  free(seen);
  return near;
}

/* How many lanes most iterations take at once. A loop inside that walks memory in other directions uses more of each
 * cache line, and has independent accumulators, when it takes several vectors, as many as registers hold of all; so do
 * long chains of arithmetic, whose instructions else wait for each other until nothing behind them fits into the
 * processor's window. */
static unsigned wide_lanes(const lane_loop *l, V count) {
  unsigned lanes = l->lanes, times = 1;
  int64_t known = 0;
  bool tile = l->info.accumulators > 1 && cy_is_const(count, &known) && known == 2 * (int64_t)lanes;
  bool light = l->info.loops && !l->info.reduces && l->info.weight <= 40;
  if (l->info.loops && l->info.accumulators && !l->info.reduces && (light || tile))
    for (times = 2 * (unsigned)l->p->cg->model.loop_vectors; times > 1 && times * (unsigned)l->info.accumulators > 2 * WIDE;)
      times /= 2;
  else if (light && l->info.carries && stays_near(l->p, l->body, l->var))
    times = 2 * (unsigned)l->p->cg->model.loop_vectors;
  else if (!l->info.loops && l->info.bits >= 32 && l->info.weight > LONG_CHAIN)
    times = WIDE;
  while (times > 1 && (lanes * times > 64 || (cy_is_const(count, &known) && known < lanes * times)))
    times /= 2;
  return lanes * times;
}

/* Whole iterations of so many lanes from lo on; returns where they stopped. */
static V wide_pieces(lane_loop *l, unsigned lanes, V lo, V hi) {
  l->lanes = lanes;
  open_parts(l);
  V at = lane_pieces(l, lo, lo, hi, false);
  close_parts(l);
  return at;
}

/* Runs body for var in [lo, hi), hi >= lo, vectorised along var. */
static void emit_lanes(cy_lp *p, cy_var var, const cy_stmt *body, V lo, V hi) {
  lane_loop l = {.p = p, .body = body, .info = lane_scan(p, body), .var = var};
  V count = cy_sub(p->cg, hi, lo), at = lo;
  unsigned lanes = l.lanes = lane_width(p, &l.info, count), wide = wide_lanes(&l, count);
  int64_t known;
  l.copies = 1;
  if (wide > lanes)
    at = wide_pieces(&l, wide, at, hi);
  if (wide >= WIDE * lanes && l.info.loops && !cy_is_const(count, &known)) /* fewer may be all there are */
    at = wide_pieces(&l, wide / 2, at, hi);
  l.lanes = lanes;
  copies_choose(&l, count);
  open_parts(&l);
  lane_pieces(&l, lo, at, hi, true);
  close_parts(&l);
  lane_free(&l.info);
}

/* ---- statements ---- */

/* Short loops of a known number of iterations are laid out flat: pooling windows, for one. */
static bool flat(cy_lp *p, const cy_stmt *s, int64_t iterations) {
  if (iterations > 4)
    return false;
  lane_body b = lane_scan(p, s->body);
  bool yes = b.weight <= 40;
  lane_free(&b);
  return yes;
}

/* The lane loop that is all there is in s, which is a loop in loops, if it does nothing but accumulate; else NULL. */
static const cy_stmt *sums_inside(const cy_stmt *s) {
  while (s->kind == CY_S_FOR && !s->lanes && s->body && !s->body->next)
    s = s->body;
  if (s->kind != CY_S_FOR || !s->lanes)
    return NULL;
  for (const cy_stmt *in = s->body; in; in = in->next)
    if (in->kind != CY_S_ACCUM)
      return NULL;
  return s;
}

/* How often s iterations: not at all where a loop that is all there is in it does not. [2^40, 0] has as many rows of
 * nothing. */
static V iterations_of(cy_lp *p, const cy_stmt *s) {
  V n = cy_lp_dim(p, cy_kernel_var(p->k, s->var)->extent), zero = cy_i64(p->cg, 0);
  int64_t known;
  for (const cy_stmt *in = s->body; in && !in->next && in->kind == CY_S_FOR; in = in->body) {
    V inner = cy_lp_dim(p, cy_kernel_var(p->k, in->var)->extent);
    if (!cy_is_const(n, &known) && !cy_is_const(inner, &known))
      n = cy_select(p->cg, cy_icmp(p->cg, LLVMIntEQ, inner, zero), zero, n);
  }
  return n;
}

static void sum_iterations(lane_loop *l, const cy_stmt *s, const cy_stmt *inner, V n) {
  cy_cg *cg = l->p->cg;
  V zero = cy_i64(cg, 0);
  if (s == inner) {
    lane_pieces(l, zero, zero, n, true);
    return;
  }
  cy_loop loop;
  cy_loop_begin(cg, &loop, zero, iterations_of(l->p, s), cy_i64(cg, 1), NULL, 0);
  l->p->var[s->var] = loop.iv;
  sum_iterations(l, s->body, inner, n);
  cy_loop_end(cg, &loop, NULL);
}

/* Loops s around lane loop `inner`, whose partial results are combined once, behind all of them. */
static void emit_sums(cy_lp *p, const cy_stmt *s, const cy_stmt *inner) {
  lane_loop l = {.p = p, .body = inner->body, .info = lane_scan(p, inner->body), .var = inner->var, .copies = 1};
  V n = cy_lp_dim(p, cy_kernel_var(p->k, inner->var)->extent);
  int64_t known;
  if (!cy_is_const(n, &known))
    n = cy_imax(p->cg, n, cy_i64(p->cg, 0));
  l.lanes = lane_width(p, &l.info, n);
  copies_choose(&l, n);
  open_parts(&l);
  sum_iterations(&l, s, inner, n);
  close_parts(&l);
  lane_free(&l.info);
}

static void emit_for(cy_lp *p, const cy_stmt *s) {
  const cy_stmt *sums = p->lanes == 1 ? sums_inside(s) : NULL;
  if (sums && sums != s) {
    emit_sums(p, s, sums);
    return;
  }
  V n = iterations_of(p, s);
  int64_t iterations;
  if (s->lanes && p->lanes == 1) {
    if (!cy_is_const(n, &iterations))
      n = cy_imax(p->cg, n, cy_i64(p->cg, 0));
    emit_lanes(p, s->var, s->body, cy_i64(p->cg, 0), n);
  } else if (cy_lp_crosses(p, s)) {
    cy_lp_cross(p, s, n);
  } else if (cy_is_const(n, &iterations) && flat(p, s, iterations)) {
    for (int64_t i = 0; i < iterations; i++) {
      p->var[s->var] = cy_i64(p->cg, i);
      emit_list(p, s->body);
    }
  } else {
    cy_loop loop;
    cy_loop_begin(p->cg, &loop, cy_i64(p->cg, 0), n, cy_i64(p->cg, 1), NULL, 0);
    p->var[s->var] = loop.iv;
    cy_lp_statement(p);
    cy_lp_stream(p, s);
    emit_list(p, s->body);
    cy_loop_end(p->cg, &loop, NULL);
  }
}

/* A local that the current lane loop does not touch stays one scalar; setting it there cannot happen (lane_scan). */
static void emit_set(cy_lp *p, const cy_stmt *s) {
  LLVMBuilderRef b = p->cg->b;
  cy_dtype t = cy_kernel_local_dtype(p->k, s->local);
  V slot = p->lanes > 1 ? p->lane_slot[s->local] : p->slot[s->local], v = cy_lp_value(p, s->value);
  if (s->kind == CY_S_ACCUM) {
    if (p->new_lanes && p->lanes > 1 && !p->set[s->local])
      v = LLVMBuildSelect(b, p->new_lanes, v, cy_lp_const(p->cg, t, cy_scalar_neutral(s->op, t), p->lanes), "");
    V pair[2] = {LLVMBuildLoad2(b, cy_lp_reg(p->cg, t, p->lanes), slot, ""), v};
    v = cy_lp_op(p->cg, s->op, t, t, pair, 2, p->lanes);
  }
  LLVMBuildStore(b, v, slot);
}

static void emit_list(cy_lp *p, const cy_stmt *s) {
  for (; s; s = s->next) {
    cy_lp_statement(p);
    switch (s->kind) {
    case CY_S_FOR: emit_for(p, s); break;
    case CY_S_STORE: cy_lp_store(p, s->arg, s->offset, cy_lp_value(p, s->value)); break;
    case CY_S_SET:
    case CY_S_ACCUM: emit_set(p, s); break;
    }
  }
}

/* ---- tasks ---- */

/* Tasks [begin, end), row-major over the grid: coordinates by division once per run along the last variable. */
static void emit_tasks(cy_lp *p, V begin, V end) {
  cy_cg *cg = p->cg;
  const cy_var *grid;
  uint32_t n = cy_kernel_grid(p->k, &grid);
  if (cy_kernel_grid_lanes(p->k)) {
    emit_lanes(p, grid[0], cy_kernel_body(p->k), begin, end);
    return;
  }
  cy_loop runs, run;
  cy_if some; /* without tasks an extent may be 0, which nothing may be divided by */
  cy_if_begin(cg, &some, cy_icmp(cg, LLVMIntSLT, begin, end));
  V inner = n ? cy_lp_dim(p, cy_kernel_var(p->k, grid[n - 1])->extent) : cy_i64(cg, 1);
  V first_run = cy_div(cg, begin, inner), last_run = cy_ceil_div(cg, end, inner);
  cy_loop_begin(cg, &runs, first_run, last_run, cy_i64(cg, 1), NULL, 0);
  V rest = runs.iv, start = cy_mul(cg, runs.iv, inner), zero = cy_i64(cg, 0);
  for (uint32_t i = n ? n - 1 : 0; i-- > 0;) {
    V extent = cy_lp_dim(p, cy_kernel_var(p->k, grid[i])->extent);
    p->var[grid[i]] = i ? cy_mod(cg, rest, extent) : rest;
    rest = i ? cy_div(cg, rest, extent) : rest;
  }
  V lo = cy_imax(cg, cy_sub(cg, begin, start), zero), hi = cy_imin(cg, cy_sub(cg, end, start), inner);
  cy_loop_begin(cg, &run, lo, hi, cy_i64(cg, 1), NULL, 0);
  if (n)
    p->var[grid[n - 1]] = run.iv;
  emit_list(p, cy_kernel_body(p->k));
  cy_loop_end(cg, &run, NULL);
  cy_loop_end(cg, &runs, NULL);
  cy_if_end(cg, &some);
}

/* ---- kernels ---- */

static V emit_body(cy_lp *p, const char *name) {
  cy_cg *cg = p->cg;
  uint32_t n = p->nargs + p->ndims + 2;
  T *types = cy_lp_zeroed(n, sizeof(T));
  for (uint32_t i = 0; i < n; i++)
    types[i] = i < p->nargs ? cg->ptr : cg->i64;
  V fn = cy_fn_begin(cg, name, cg->voidt, types, n, CY_FN_INTERNAL | CY_FN_NOINLINE | CY_FN_NOALIAS);
  for (uint32_t i = 0; i < p->nargs; i++)
    p->arg[i] = LLVMGetParam(fn, i);
  for (uint32_t i = 0; i < p->ndims; i++)
    p->size[i] = LLVMGetParam(fn, p->nargs + i);
  make_slots(p);
  cy_lp_load_params(p);
  emit_tasks(p, LLVMGetParam(fn, n - 2), LLVMGetParam(fn, n - 1));
  cy_fn_end(cg, NULL);
  free(types);
  return fn;
}

static int64_t bytes_of(cy_dtype t, V *inout_elems, cy_cg *cg) {
  if (!cy_lp_packed(t))
    return cy_lp_bytes(t);
  int per_byte = 8 / cy_dtype_of(t)->bits;
  *inout_elems = cy_ceil_div(cg, *inout_elems, cy_i64(cg, per_byte));
  return 1;
}

void cy_cpu_emit_loops(cy_cg *cg, cy_kernel *k, const char *symbol) {
  cy_lp p;
  lp_init(&p, cg, k);
  char name[300];
  snprintf(name, sizeof name, "%.280s.body", symbol);
  V fn = emit_body(&p, name), *actual = cy_lp_zeroed(p.nargs + p.ndims + 2, sizeof(V));
  cy_kernel_begin(cg, symbol, 0);
  for (uint32_t i = 0; i < p.ndims; i++)
    actual[p.nargs + i] = p.size[i] = cy_arg_size(cg, (int)(p.nargs + i));
  for (uint32_t i = 0; i < p.nargs; i++) {
    actual[i] = cy_arg_ptr(cg, (int)i);
    if (p.args[i].kind == CY_ARG_SCRATCH) {
      V elems = cy_lp_dim(&p, p.args[i].elems);
      int64_t bytes = bytes_of(p.args[i].dtype, &elems, cg);
      actual[i] = cy_gep(cg, actual[i], cy_mul(cg, cg->worker, cy_mulc(cg, elems, bytes)));
    }
  }
  actual[p.nargs + p.ndims] = cg->begin;
  actual[p.nargs + p.ndims + 1] = cg->end;
  cy_call(cg, fn, actual, p.nargs + p.ndims + 2);
  cy_fn_end(cg, NULL);
  free(actual);
  lp_deinit(&p);
}

/* ---- epilogues of contractions ---- */

typedef struct epilogue {
  cy_kernel *k;
  unsigned flat; /* as cy_epilogue.flat */
  unsigned part; /* so many lanes go at once: cy_lp.part; 0: all */
  cy_lp lp;
  bool open;
} epilogue;

static void epilogue_begin(void *ctx, cy_cg *cg) {
  epilogue *e = ctx;
  if (e->open)
    lp_deinit(&e->lp);
  lp_init(&e->lp, cg, e->k);
  e->open = true;
  for (uint32_t i = 0; i < e->lp.nargs; i++)
    e->lp.arg[i] = cy_arg_ptr(cg, (int)i);
  for (uint32_t i = 0; i < e->lp.ndims; i++)
    e->lp.size[i] = cy_arg_size(cg, (int)(e->lp.nargs + i));
  make_slots(&e->lp);
  e->lp.part = e->part;
  cy_lp_load_params(&e->lp);
}

/* Runs `body` with var at `first` and the lanes behind it, `local` being v. Returns where it is afterwards. */
static V run_body(cy_lp *p, const cy_stmt *body, cy_var var, V first, unsigned lanes, cy_local local, V v) {
  lane_loop l = {.p = p, .body = body, .info = lane_scan(p, body), .var = var, .lanes = lanes, .copies = 1};
  l.part[0] = cy_lp_zeroed(l.info.nlocals, sizeof(V));
  l.info.set[local] = 1;
  if (lanes > 1)
    make_set_slots(&l);
  else if (cy_is_vector(v))
    v = cy_lp_lane(p->cg, v, 0, 2);
  V slot = lanes > 1 ? l.part[0][local] : p->slot[local];
  LLVMBuildStore(p->cg->b, v, slot);
  lane_iteration(&l, lanes, 0, first);
  free(l.part[0]);
  lane_free(&l.info);
  return slot;
}

/* The body at `lanes` lanes along the last output variable. */
static void emit_columns(epilogue *e, V acc, unsigned lanes, const V *idx) {
  const cy_contraction *c = cy_kernel_contraction(e->k);
  const cy_stmt *body = cy_kernel_body(e->k);
  int last = c->nout_vars - 1;
  if (c->kind == CY_CONTRACT_ATTENTION)
    body = body->next->next; /* behind the loops over the keys */
  for (int i = 0; i <= last; i++)
    e->lp.var[c->out_var[i]] = idx[i];
  e->lp.wrap = e->flat && lanes > e->flat ? e->flat : 0;
  run_body(&e->lp, body, c->out_var[last], idx[last], lanes, c->acc, acc);
  e->lp.wrap = 0;
}

static void epilogue_emit(void *ctx, cy_cg *cg, V acc, unsigned lanes, const V *idx) {
  epilogue *e = ctx;
  int last = cy_kernel_contraction(e->k)->nout_vars - 1;
  V at[CY_MAX_BATCH + 2];
  if (!e->part || lanes <= e->part) {
    emit_columns(e, acc, lanes, idx);
    return;
  }
  memcpy(at, idx, ((size_t)last + 1) * sizeof *at);
  for (unsigned from = 0, n; from < lanes; from += n) {
    n = lanes - from < e->part ? lanes - from : e->part;
    at[last] = cy_addc(cg, idx[last], from);
    emit_columns(e, cy_some_lanes(cg, acc, from, n), n, at);
  }
}

/* The body of a loop over the keys at `lanes` of them; returns what becomes of the scores. */
static V run_scores(epilogue *e, cy_cg *cg, const cy_stmt *loop, V score, unsigned lanes, V key) {
  const cy_contraction *c = cy_kernel_contraction(e->k);
  V slot = run_body(&e->lp, loop->body, c->key, key, lanes, c->score, score);
  return LLVMBuildLoad2(cg->b, cy_lp_reg(cg, cy_kernel_local_dtype(e->k, c->score), lanes), slot, "");
}

static V scores_change(void *ctx, cy_cg *cg, V score, unsigned lanes, const V *idx) {
  epilogue *e = ctx;
  const cy_contraction *c = cy_kernel_contraction(e->k);
  int last = c->nout_vars - 1;
  for (int i = 0; i < last; i++)
    e->lp.var[c->out_var[i]] = idx[i];
  return run_scores(e, cg, cy_kernel_body(e->k), score, lanes, idx[last]);
}

static V scores_weigh(void *ctx, cy_cg *cg, V score, V top, unsigned lanes) {
  epilogue *e = ctx;
  LLVMBuildStore(cg->b, top, e->lp.slot[cy_kernel_contraction(e->k)->top]);
  return run_scores(e, cg, cy_kernel_body(e->k)->next, score, lanes, cy_i64(cg, 0));
}

bool cy_cpu_changes_scores(const cy_kernel *k) { return cy_kernel_body(k)->body != NULL; }

cy_scores cy_cpu_scores_of(const cy_epilogue *e) {
  const epilogue *own = e->ctx;
  return (cy_scores){cy_cpu_changes_scores(own->k) ? scores_change : NULL, scores_weigh, e->ctx};
}

/* Operations for one element, returned those on floats; a kernel has expressions that nothing uses any more, too. */
static int arithmetic(const cy_kernel *k, unsigned *out_all) {
  bool *marks = cy_lp_marks(k);
  int n = 0;
  *out_all = 0;
  cy_stmt_mark(k, cy_kernel_body(k), marks);
  for (cy_expr e = 1; e <= cy_expr_count(k); e++) {
    const cy_expr_info *x = cy_expr_of(k, e);
    bool counts = marks[e] && x->op != CY_X_LOAD && x->n > 0;
    *out_all += counts;
    n += counts && cy_dtype_is_float(x->dtype);
  }
  free(marks);
  return n;
}

static void epilogue_prefetch(void *ctx, cy_cg *cg, const V *idx, bool stores) {
  (void)cg;
  epilogue *e = ctx;
  cy_lp_prefetch_all(&e->lp, idx, stores);
}

/* Long chains of arithmetic wait for each other less when several vectors go through them side by side. */
cy_epilogue cy_cpu_epilogue_create(const cy_cg *cg, cy_kernel *k) {
  const cy_contraction *c = cy_kernel_contraction(k);
  cy_dim columns = cy_kernel_var(k, c->out_var[c->nout_vars - 1])->extent;
  epilogue *e = cy_lp_zeroed(1, sizeof *e);
  int64_t n;
  e->k = k;
  unsigned steps;
  bool heavy = arithmetic(k, &steps) > 10,
       many = cy_dim_is_const(cy_kernel_graph(k), columns, &n) && n >= WIDE * (int64_t)cg->W;
  bool plain = c->kind != CY_CONTRACT_ATTENTION;
  e->flat = cy_lp_flat_columns(k);
  if (c->kind == CY_CONTRACT_CONV) /* generators begin vectors at multiples of W */
    e->part = cy_lp_part_lanes(k, cg->W);
  return (cy_epilogue){.begin = epilogue_begin,
                       .emit = epilogue_emit,
                       .prefetch = plain ? epilogue_prefetch : NULL,
                       .ctx = e,
                       .reads = plain && cy_lp_reads_to_prefetch(k),
                       .heavy = heavy,
                       .steps = steps,
                       .flat = e->flat,
                       .positions_join = cy_kernel_positions_join(k),
                       .wide = heavy && many ? WIDE : 0};
}

void cy_cpu_epilogue_destroy(cy_epilogue *e) {
  epilogue *own = e->ctx;
  if (own->open)
    lp_deinit(&own->lp);
  free(own);
  e->ctx = NULL;
}
