/* SPDX-License-Identifier: Apache-2.0 */
/* fold_math.c - element-wise ops, reductions and running sums on small contents: constants through scalar.c, symbolic
 * integers through dims.
 *
 * Symbolic arithmetic must say what the tensor arithmetic would. It takes i32 and i64 as unbounded (shapes do not
 * overflow), narrower types and bool only where the bounds prove that nothing wraps, and floats while they stay
 * integers. Integer division truncates and dims round down: they agree where both operands cannot be negative, taking
 * input dims to be at least 1. Of a number that only smallest inputs make negative, as lengths behind convolutions are
 * written, the model is required to have none when it runs.
 */
#include "fold_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Up to where lengths are required to be, at least; behind convolutions of sound up to so many of their kernels. */
enum { MAX_REQUIRED = 64, KERNELS = 8 };

void cy_fold_unravel(uint64_t index, int rank, const int64_t *dim, int64_t *out_idx) {
  for (int k = rank - 1; k >= 0; k--) {
    out_idx[k] = (int64_t)(index % (uint64_t)dim[k]);
    index /= (uint64_t)dim[k];
  }
}

uint64_t cy_fold_broadcast(const fold *f, const fold_in *in, const int64_t *idx) {
  uint64_t at = 0;
  for (int k = 0; k < in->rank; k++) {
    int64_t i = idx[f->rank - in->rank + k];
    at = at * (uint64_t)in->dim[k] + (uint64_t)(in->dim[k] == 1 ? 0 : i);
  }
  return at;
}

/* ---- constants --------------------------------------------------------------------------------------------------- */

static cy_scalar load(const fold *f, uint32_t k, uint64_t at) {
  return cy_scalar_load(f->in[k].v->data.bytes, (cy_dtype)f->in[k].v->type.dtype, at);
}

/* The exponent may be of another type than the base. */
static cy_scalar power(cy_dtype base, cy_dtype exponent, const cy_scalar *args) {
  cy_scalar a[2] = {args[0], args[1]}, r;
  bool base_float = cy_dtype_is_float(base), exponent_float = cy_dtype_is_float(exponent);
  if (base_float || !exponent_float) {
    a[1] = cy_scalar_convert(exponent, base_float ? CY_F64 : base, a[1], true);
    return cy_scalar_eval(CY_OP_pow, base, base, a);
  }
  a[0] = cy_scalar_convert(base, CY_F64, a[0], true);
  r = cy_scalar_eval(CY_OP_pow, CY_F64, CY_F64, a);
  return cy_scalar_convert(CY_F64, base, r, true);
}

static bool ew_const(fold *f) {
  cy_op op = (cy_op)f->n->op;
  cy_dtype t = (cy_dtype)f->in[op == CY_OP_select].v->type.dtype;
  bool saturate = cy_attr_get_int(f->n, CY_ATTR_saturate, 1) != 0;
  if (f->n->nin > 3)
    return false;
  for (uint64_t o = 0; o < f->count; o++) {
    int64_t idx[CY_MAX_RANK];
    cy_scalar args[3] = {{0}}, r;
    cy_fold_unravel(o, f->rank, f->dim, idx);
    for (uint32_t k = 0; k < f->n->nin; k++)
      args[k] = load(f, k, cy_fold_broadcast(f, &f->in[k], idx));
    if (op == CY_OP_cast)
      r = cy_scalar_convert(t, f->dtype, args[0], saturate);
    else if (op == CY_OP_pow)
      r = power(t, (cy_dtype)f->in[1].v->type.dtype, args);
    else
      r = cy_scalar_eval(op, t, f->dtype, args);
    cy_scalar_store(f->bytes, f->dtype, o, r);
  }
  return true;
}

static unsigned reduced_axes(const fold *f) {
  const cy_attr *a = cy_attr_find(f->n, CY_ATTR_axes);
  unsigned axes = 0;
  for (uint32_t k = 0; k < a->n; k++)
    axes |= 1u << a->ints[k];
  return axes;
}

/* Output element that input element i is reduced into. */
static uint64_t target_of(const fold_in *x, unsigned axes, uint64_t i) {
  int64_t idx[CY_MAX_RANK];
  uint64_t at = 0;
  cy_fold_unravel(i, x->rank, x->dim, idx);
  for (int k = 0; k < x->rank; k++)
    if (!(axes >> k & 1))
      at = at * (uint64_t)x->dim[k] + (uint64_t)idx[k];
  return at;
}

static bool reduce_const(fold *f) {
  const fold_in *x = &f->in[0];
  cy_op op = cy_op_combines_by((cy_op)f->n->op);
  cy_dtype t = cy_dtype_is_float(f->dtype) ? CY_F64 : f->dtype; /* floats add up in double, rounded once */
  unsigned axes = reduced_axes(f);
  cy_scalar *acc = CY_NEW_ARRAY(f->g->arena, cy_scalar, f->count + 1);
  for (uint64_t o = 0; o < f->count; o++)
    acc[o] = cy_scalar_neutral(op, t);
  for (uint64_t i = 0; i < x->count; i++) {
    uint64_t o = target_of(x, axes, i);
    acc[o] = cy_scalar_eval(op, t, t, (cy_scalar[]){acc[o], load(f, 0, i)});
  }
  for (uint64_t o = 0; o < f->count; o++)
    cy_scalar_store(f->bytes, f->dtype, o, acc[o]);
  return true;
}

/* Whether b takes the place of a: a NaN stays, and ties go to the first or last. */
static bool beats(cy_op op, cy_dtype t, cy_scalar b, cy_scalar a, bool last) {
  if (cy_dtype_is_float(t) && (isnan(a.f) || isnan(b.f)))
    return !isnan(a.f) || (last && isnan(b.f));
  cy_op cmp = op == CY_OP_argmin ? (last ? CY_OP_le : CY_OP_lt) : (last ? CY_OP_ge : CY_OP_gt);
  return cy_scalar_eval(cmp, t, CY_BOOL, (cy_scalar[]){b, a}).i;
}

bool cy_fold_arg(fold *f) {
  const fold_in *x = &f->in[0];
  cy_dtype t = (cy_dtype)x->v->type.dtype;
  int64_t axis = cy_attr_get_int(f->n, CY_ATTR_axis, 0), *best = CY_NEW_ARRAY(f->g->arena, int64_t, f->count + 1);
  bool last = cy_attr_get_int(f->n, CY_ATTR_select_last, 0) != 0;
  cy_scalar *value = CY_NEW_ARRAY(f->g->arena, cy_scalar, f->count + 1);
  if (x->dim[axis] == 0)
    return false;
  for (uint64_t i = 0; i < x->count; i++) {
    int64_t idx[CY_MAX_RANK];
    cy_fold_unravel(i, x->rank, x->dim, idx);
    uint64_t o = target_of(x, 1u << axis, i);
    cy_scalar v = load(f, 0, i);
    if (idx[axis] == 0 || beats((cy_op)f->n->op, t, v, value[o], last)) {
      value[o] = v;
      best[o] = idx[axis];
    }
  }
  memcpy(f->bytes, best, sizeof *best * f->count);
  return true;
}

bool cy_fold_cumulate(fold *f) {
  int64_t axis = cy_attr_get_int(f->n, CY_ATTR_axis, 0), n = f->dim[axis];
  bool exclusive = cy_attr_get_int(f->n, CY_ATTR_exclusive, 0) != 0,
       reverse = cy_attr_get_int(f->n, CY_ATTR_reverse, 0) != 0;
  cy_op op = cy_op_combines_by((cy_op)f->n->op);
  cy_dtype t = cy_dtype_is_float(f->dtype) ? CY_F64 : f->dtype;
  uint64_t inner = 1;
  for (int k = (int)axis + 1; k < f->rank; k++)
    inner *= (uint64_t)f->dim[k];
  for (uint64_t row = 0; n && row < f->count / (uint64_t)n; row++) {
    uint64_t base = row / inner * inner * (uint64_t)n + row % inner;
    cy_scalar acc = cy_scalar_neutral(op, t);
    for (int64_t i = 0; i < n; i++) {
      uint64_t at = base + (uint64_t)(reverse ? n - 1 - i : i) * inner;
      cy_scalar next = cy_scalar_eval(op, t, t, (cy_scalar[]){acc, load(f, 0, at)});
      cy_scalar_store(f->bytes, f->dtype, at, exclusive ? acc : next);
      acc = next;
    }
  }
  return true;
}

/* ---- symbolic integers ------------------------------------------------------------------------------------------- */

typedef struct shifted {
  cy_graph *g;
  cy_dim d;
} shifted;

static void add_one(void *ctx, cy_sym s) {
  shifted *c = ctx;
  if (cy_sym_of(c->g, s)->kind == CY_SYM_INPUT)
    c->d = cy_dim_subst(c->g, c->d, s, cy_dim_addi(c->g, cy_dim_sym(c->g, s), 1));
}

/* For all input dims >= 1. */
static bool never_negative(cy_graph *g, cy_dim d) {
  shifted c = {g, d};
  cy_dim zero = cy_dim_const(g, 0);
  if (cy_dim_le(g, zero, d))
    return true;
  cy_dim_symbols(g, d, add_one, &c);
  return cy_dim_le(g, zero, c.d);
}

/* Whether d is a value of dtype as it stands; floats must also be exact. */
static bool holds(cy_graph *g, cy_dtype dtype, cy_dim d) {
  const cy_dtype_info *t = cy_dtype_of(dtype);
  int64_t lo, hi, c;
  bool known = cy_dim_is_const(g, d, &c);
  cy_dim_range(g, d, &lo, &hi);
  if (known && t->cls == 'F')
    return cy_scalar_convert(CY_I64, dtype, (cy_scalar){.i = c}, true).f == (double)c && llabs(c) <= (int64_t)1 << 53;
  if (dtype == CY_I64 || (dtype == CY_I32 && !known) || (dtype == CY_U64 && lo >= 0))
    return true;
  if (t->cls == 'F') {
    int64_t exact = dtype == CY_F16 ? 1 << 11 : 1 << 2;
    return t->bits >= 32 || (lo >= -exact && hi <= exact);
  }
  int bits = t->cls == 'B' ? 1 : t->bits;
  if (t->cls == 'I')
    return lo >= -((int64_t)1 << (bits - 1)) && hi < (int64_t)1 << (bits - 1);
  return lo >= 0 && bits < 63 && hi < (int64_t)1 << bits;
}

static cy_dim truth(cy_graph *g, bool yes, bool no) { return yes || no ? cy_dim_const(g, yes) : 0; }

static cy_dim compare_dims(cy_graph *g, cy_op op, cy_dim a, cy_dim b) {
  bool le = cy_dim_le(g, a, b), ge = cy_dim_le(g, b, a);
  bool lt = cy_dim_lt(g, a, b), gt = cy_dim_lt(g, b, a);
  switch (op) {
  case CY_OP_eq: return truth(g, a == b, lt || gt);
  case CY_OP_ne: return truth(g, lt || gt, a == b);
  case CY_OP_lt: return truth(g, lt, ge);
  case CY_OP_le: return truth(g, le, gt);
  case CY_OP_gt: return truth(g, gt, le);
  default: return truth(g, ge, lt);
  }
}

/* Sizes make it negative only where they are small, and a requirement says that they are not. A feature map may well be
 * smaller than what it is compared with; but behind a convolution there is nothing of a sound shorter than its kernel. */
static bool required_positive(cy_graph *g, cy_dim a) {
  int64_t lo, hi, max = g->longest_kernel * KERNELS;
  cy_dim_range(g, a, &lo, &hi);
  if (!g->recording || lo < -(max > MAX_REQUIRED ? max : MAX_REQUIRED))
    return false;
  cy_graph_require(g, cy_dim_max(g, a, cy_dim_const(g, 0)), a, CY_REQUIRE_EQUAL);
  return true;
}

static cy_dim divide(cy_graph *g, bool is_float, cy_dim a, cy_dim b) {
  if (cy_dim_is(g, b, 0))
    return is_float ? 0 : b;
  if (cy_dim_is(g, cy_dim_mod(g, a, b), 0))
    return cy_dim_div(g, a, b);
  if (is_float || !never_negative(g, b))
    return 0;
  return never_negative(g, a) || required_positive(g, a) ? cy_dim_div(g, a, b) : 0;
}

static cy_dim sign_of(cy_graph *g, cy_dim a) {
  int64_t lo, hi;
  cy_dim_range(g, a, &lo, &hi);
  return lo > 0 ? cy_dim_const(g, 1) : hi < 0 ? cy_dim_const(g, -1) : lo == 0 && hi == 0 ? a : 0;
}

static cy_dim absolute(cy_graph *g, cy_dim a) {
  int64_t lo, hi;
  cy_dim_range(g, a, &lo, &hi);
  cy_dim minus = cy_dim_muli(g, a, -1);
  return lo >= 0 ? a : hi <= 0 ? minus : cy_dim_max(g, a, minus);
}

/* 0: not expressible. */
static cy_dim ew_dims(cy_graph *g, cy_op op, cy_dtype in, const cy_dim *v) {
  bool is_float = cy_dtype_is_float(in), is_bool = in == CY_BOOL;
  int64_t c;
  switch (op) {
  case CY_OP_cast:
  case CY_OP_floor:
  case CY_OP_ceil:
  case CY_OP_round:
  case CY_OP_trunc: return v[0];
  case CY_OP_neg: return cy_dim_muli(g, v[0], -1);
  case CY_OP_abs: return absolute(g, v[0]);
  case CY_OP_sign: return sign_of(g, v[0]);
  case CY_OP_not: return is_bool ? cy_dim_sub(g, cy_dim_const(g, 1), v[0]) : 0;
  case CY_OP_add: return cy_dim_add(g, v[0], v[1]);
  case CY_OP_sub: return cy_dim_sub(g, v[0], v[1]);
  case CY_OP_mul: return cy_dim_mul(g, v[0], v[1]);
  case CY_OP_div: return divide(g, is_float, v[0], v[1]);
  case CY_OP_mod: return cy_dim_is_const(g, v[1], &c) && c == 0 ? 0 : cy_dim_mod(g, v[0], v[1]);
  case CY_OP_and:
    if (!is_bool)
      return 0;
    return cy_dim_min(g, v[0], v[1]);
  case CY_OP_or:
    if (!is_bool)
      return 0;
    return cy_dim_max(g, v[0], v[1]);
  case CY_OP_min: return cy_dim_min(g, v[0], v[1]);
  case CY_OP_max: return cy_dim_max(g, v[0], v[1]);
  case CY_OP_select: return cy_dim_is_const(g, v[0], &c) ? v[c ? 1 : 2] : 0;
  case CY_OP_eq:
  case CY_OP_ne:
  case CY_OP_lt:
  case CY_OP_le:
  case CY_OP_gt:
  case CY_OP_ge: return compare_dims(g, op, v[0], v[1]);
  default: return 0;
  }
}

static cy_dim cast_dim(cy_graph *g, cy_dtype to, cy_dim d) {
  return to == CY_BOOL ? compare_dims(g, CY_OP_ne, d, cy_dim_const(g, 0)) : d;
}

/* v = a / b, plus or minus an integer: what it is made of. */
bool cy_fold_quotient(cy_graph *g, cy_val v, cy_quotient *out) {
  const cy_value *x = cy_value_of(g, v);
  const cy_node_info *n = x->node ? &cy_node_slot_of(g, x->node)->n : NULL;
  memset(out, 0, sizeof *out);
  for (int k = 0; n && k < (n->op == CY_OP_add ? 2 : n->op == CY_OP_sub ? 1 : 0) && !out->part[2]; k++) {
    const cy_value *inner = cy_value_of(g, n->in[k]);
    uint32_t count;
    if (!inner->node || cy_node_slot_of(g, inner->node)->n.op != CY_OP_div || !cy_value_elems(g, n->in[1 - k], &count))
      continue;
    out->part[2] = n->in[1 - k];
    out->minus = n->op == CY_OP_sub;
    n = &cy_node_slot_of(g, inner->node)->n;
  }
  if (!n || n->op != CY_OP_div)
    return false;
  out->part[0] = n->in[0];
  out->part[1] = n->in[1];
  return true;
}

/* floor(a / b + c), ceil(a / b + c) on floats that hold integers: exact while the quotient's fraction is not lost, i.e.
 * for any shape. */
static bool round_quotient(fold *f) {
  cy_graph *g = f->g;
  cy_quotient q;
  fold_in part[3] = {{0}};
  uint32_t n;
  if (!cy_fold_quotient(g, f->n->in[0], &q))
    return false;
  for (int k = 0; k < 3 && q.part[k]; k++) {
    part[k].v = cy_value_of(g, q.part[k]);
    part[k].rank = part[k].v->type.rank;
    part[k].elems = cy_value_elems(g, q.part[k], &n);
    if (!part[k].elems)
      return false;
    for (int d = 0; d < part[k].rank; d++)
      if (!cy_dim_is_const(g, part[k].v->type.dim[d], &part[k].dim[d]))
        return false;
  }
  for (uint64_t o = 0; o < f->count; o++) {
    int64_t idx[CY_MAX_RANK], lo, hi;
    cy_fold_unravel(o, f->rank, f->dim, idx);
    cy_dim a = part[0].elems[cy_fold_broadcast(f, &part[0], idx)],
           b = part[1].elems[cy_fold_broadcast(f, &part[1], idx)];
    cy_dim c = part[2].elems ? part[2].elems[cy_fold_broadcast(f, &part[2], idx)] : cy_dim_const(g, 0);
    cy_dim_range(g, b, &lo, &hi);
    if (lo < 0 || hi == 0)
      return false;
    cy_dim rounded = f->n->op == CY_OP_floor ? cy_dim_div(g, a, b) : cy_dim_cdiv(g, a, b);
    f->elems[o] = q.minus ? cy_dim_sub(g, rounded, c) : cy_dim_add(g, rounded, c);
  }
  return true;
}

/* x times a constant 1/k is x / k where k is an integer: how exporters write `scale_factor=0.5`. */
static cy_dim times_fraction(fold *f, const int64_t *idx) {
  int k = f->in[0].elems ? 1 : 0;
  const fold_in *x = &f->in[1 - k], *c = &f->in[k];
  if (!x->elems || !c->v->data.bytes || !cy_dtype_is_float(f->dtype))
    return 0;
  double v = cy_scalar_load(c->v->data.bytes, f->dtype, cy_fold_broadcast(f, c, idx)).f, inverse = 1 / v;
  if (v <= 0 || inverse != trunc(inverse) || inverse > 1 << 20)
    return 0;
  return divide(f->g, true, x->elems[cy_fold_broadcast(f, x, idx)], cy_dim_const(f->g, (int64_t)inverse));
}

/* What follows from some of the arguments; those that are not known are 0. */
static cy_dim decided(cy_graph *g, cy_op op, cy_dtype in, uint32_t nargs, const cy_dim *v) {
  int64_t c;
  bool all = true;
  for (uint32_t k = 0; k < nargs; k++) {
    bool known = v[k] && cy_dim_is_const(g, v[k], &c);
    if (known && in == CY_BOOL && c == (op == CY_OP_or) && (op == CY_OP_or || op == CY_OP_and))
      return v[k];
    all = all && v[k];
  }
  if (op == CY_OP_select && v[0] && cy_dim_is_const(g, v[0], &c))
    return v[c ? 1 : 2];
  return all ? ew_dims(g, op, in, v) : 0;
}

static bool ew_symbolic(fold *f) {
  cy_op op = (cy_op)f->n->op;
  cy_dtype t = (cy_dtype)f->in[op == CY_OP_select].v->type.dtype;
  bool fraction = op == CY_OP_mul && (!f->in[0].elems || !f->in[1].elems);
  if ((op == CY_OP_floor || op == CY_OP_ceil) && !f->in[0].elems)
    return round_quotient(f);
  if (f->n->nin > 3)
    return false;
  for (uint64_t o = 0; o < f->count; o++) {
    int64_t idx[CY_MAX_RANK];
    cy_dim args[3] = {0};
    cy_fold_unravel(o, f->rank, f->dim, idx);
    for (uint32_t k = 0; k < f->n->nin && !fraction; k++)
      args[k] = f->in[k].elems[cy_fold_broadcast(f, &f->in[k], idx)];
    cy_dim d = fraction    ? times_fraction(f, idx)
               : f->partly ? decided(f->g, op, t, f->n->nin, args)
                           : ew_dims(f->g, op, t, args);
    if (d && op == CY_OP_cast)
      d = cast_dim(f->g, f->dtype, d);
    bool found = d && holds(f->g, f->dtype, d);
    if (!found && !f->partly)
      return false;
    f->elems[o] = found ? d : 0;
  }
  return true;
}

bool cy_fold_ew(fold *f, bool symbolic) { return symbolic ? ew_symbolic(f) : ew_const(f); }

static bool reduce_symbolic(fold *f) {
  const fold_in *x = &f->in[0];
  cy_op op = cy_op_combines_by((cy_op)f->n->op);
  bool begins = op == CY_OP_add || op == CY_OP_mul; /* with 0 or 1 */
  unsigned axes = reduced_axes(f);
  if (!begins && x->count == 0)
    return false;
  for (uint64_t o = 0; o < f->count && begins; o++)
    f->elems[o] = cy_dim_const(f->g, op == CY_OP_mul);
  for (uint64_t i = 0; i < x->count; i++) {
    cy_dim *acc = &f->elems[target_of(x, axes, i)];
    *acc = *acc ? ew_dims(f->g, op, f->dtype, (cy_dim[]){*acc, x->elems[i]}) : x->elems[i];
  }
  for (uint64_t o = 0; o < f->count; o++)
    if (!f->elems[o] || !holds(f->g, f->dtype, f->elems[o]))
      return false;
  return true;
}

bool cy_fold_reduce(fold *f, bool symbolic) { return symbolic ? reduce_symbolic(f) : reduce_const(f); }
