/* SPDX-License-Identifier: Apache-2.0 */
/* loop_index.c - index arithmetic (i64) in normal form.
 *
 * A sum is kept as base + coef * atom + .., where base and coefs are dims (symbolic sizes) and an atom is a loop
 * variable or any expression that is not itself a sum. Equal sums are therefore equal expressions, and cy_expr_affine()
 * only has to read. Division and modulo take out what divides evenly and drop what is provably smaller than the
 * divisor: `(i * E + j) / E` is i where 0 <= j < E. The proofs use the extents of the variables and what is known about
 * symbols (dims.c). To know before editing: element *data* of type i64 comes through here too. So sums must be right
 * modulo 2^64 for any atom, and constants that are large (LIMIT) stay opaque atoms, because dims do not wrap.
 */
#include "ir/dims/dims_int.h"
#include "loop_int.h"

enum { TERMS = CY_MAX_RANK * 2 };
static const int64_t LIMIT = (int64_t)1 << 44;

typedef struct sum {
  cy_dim base;
  int n;
  cy_expr atom[TERMS];
  cy_dim coef[TERMS];
} sum;

static bool small(const cy_kernel *k, cy_dim d) {
  int64_t v;
  return !cy_dim_is_const(k->g, d, &v) || (v <= LIMIT && v >= -LIMIT);
}

/* ---- sums ---- */

static bool sum_add_term(cy_kernel *k, sum *s, cy_expr atom, cy_dim coef) {
  for (int i = 0; i < s->n; i++)
    if (s->atom[i] == atom) {
      s->coef[i] = cy_dim_add(k->g, s->coef[i], coef);
      if (cy_dim_is(k->g, s->coef[i], 0)) {
        s->n--;
        s->atom[i] = s->atom[s->n];
        s->coef[i] = s->coef[s->n];
        return true;
      }
      return small(k, s->coef[i]);
    }
  if (s->n == TERMS)
    return false;
  s->atom[s->n] = atom;
  s->coef[s->n++] = coef;
  return small(k, coef);
}

/* out += a * factor */
static bool sum_add(cy_kernel *k, sum *out, const sum *a, cy_dim factor) {
  if (cy_dim_is(k->g, factor, 0))
    return true;
  out->base = cy_dim_add(k->g, out->base, cy_dim_mul(k->g, a->base, factor));
  if (!small(k, out->base))
    return false;
  for (int i = 0; i < a->n; i++)
    if (!sum_add_term(k, out, a->atom[i], cy_dim_mul(k->g, a->coef[i], factor)))
      return false;
  return true;
}

static sum sum_zero(cy_kernel *k) { return (sum){.base = cy_dim_const(k->g, 0)}; }

/* The dim that e is, 0 when it is none. */
static cy_dim as_dim(cy_kernel *k, cy_expr e) {
  const cy_expr_info *x = cy_expr_of(k, e);
  if (x->op == CY_X_DIM)
    return x->id;
  if (x->op == CY_X_CONST && x->c.i <= LIMIT && x->c.i >= -LIMIT)
    return cy_dim_const(k->g, x->c.i);
  return 0;
}

/* Reads the normal form back: sums and `atom * dim` were made by sum_expr(). */
static bool sum_of(cy_kernel *k, cy_expr e, cy_dim factor, sum *out) {
  const cy_expr_info *x = cy_expr_of(k, e);
  cy_dim d = as_dim(k, e);
  if (d) {
    out->base = cy_dim_add(k->g, out->base, cy_dim_mul(k->g, d, factor));
    return small(k, out->base);
  }
  if (x->op == CY_OP_add)
    return sum_of(k, x->arg[0], factor, out) && sum_of(k, x->arg[1], factor, out);
  if (x->op == CY_OP_mul && (d = as_dim(k, x->arg[1])))
    return sum_add_term(k, out, x->arg[0], cy_dim_mul(k->g, d, factor));
  return sum_add_term(k, out, e, factor);
}

/* Variables first, by number; then other atoms in order of their making. */
static bool before(const cy_kernel *k, cy_expr a, cy_expr b) {
  const cy_expr_info *x = cy_expr_of(k, a), *y = cy_expr_of(k, b);
  bool va = x->op == CY_X_VAR, vb = y->op == CY_X_VAR;
  if (va != vb)
    return va;
  return va ? x->id < y->id : a < b;
}

static void sum_sort(const cy_kernel *k, sum *s) {
  for (int i = 1; i < s->n; i++)
    for (int j = i; j > 0 && before(k, s->atom[j], s->atom[j - 1]); j--) {
      cy_expr e = s->atom[j];
      cy_dim d = s->coef[j];
      s->atom[j] = s->atom[j - 1];
      s->coef[j] = s->coef[j - 1];
      s->atom[j - 1] = e;
      s->coef[j - 1] = d;
    }
}

static cy_expr raw2(cy_kernel *k, cy_op op, cy_expr a, cy_expr b) {
  cy_expr args[2] = {a, b};
  return cy_expr_raw(k, op, CY_I64, args, 2);
}

static cy_expr sum_expr(cy_kernel *k, sum *s) {
  cy_expr e = 0;
  sum_sort(k, s);
  for (int i = 0; i < s->n; i++) {
    cy_expr term = s->atom[i];
    if (!cy_dim_is(k->g, s->coef[i], 1))
      term = raw2(k, CY_OP_mul, term, cy_x_dim(k, s->coef[i]));
    e = e ? raw2(k, CY_OP_add, e, term) : term;
  }
  if (!e)
    return cy_x_dim(k, s->base);
  return cy_dim_is(k->g, s->base, 0) ? e : raw2(k, CY_OP_add, e, cy_x_dim(k, s->base));
}

static bool put_together(cy_kernel *k, sum *s);

static cy_expr combine(cy_kernel *k, cy_expr a, cy_expr b, int64_t sign) {
  sum s = sum_zero(k);
  if (!sum_of(k, a, cy_dim_const(k->g, 1), &s) || !sum_of(k, b, cy_dim_const(k->g, sign), &s))
    return 0;
  while (put_together(k, &s))
    ;
  return sum_expr(k, &s);
}

static cy_expr scale(cy_kernel *k, cy_expr a, cy_expr b) {
  cy_dim d = as_dim(k, b);
  if (!d && (d = as_dim(k, a)))
    a = b;
  sum s = sum_zero(k), out = sum_zero(k);
  if (!d || !sum_of(k, a, cy_dim_const(k->g, 1), &s) || !sum_add(k, &out, &s, d))
    return 0;
  return sum_expr(k, &out);
}

/* ---- bounds ---- */

static bool sum_bounds(cy_kernel *k, const sum *s, cy_dim *out_lo, cy_dim *out_hi);

static bool nonnegative(cy_kernel *k, cy_dim d) {
  int64_t lo, hi;
  cy_dim_range(k->g, d, &lo, &hi);
  return lo >= 0;
}

static bool positive(cy_kernel *k, cy_dim d) {
  int64_t lo, hi;
  cy_dim_range(k->g, d, &lo, &hi);
  return lo > 0;
}

static bool expr_bounds(cy_kernel *k, cy_expr e, cy_dim *out_lo, cy_dim *out_hi) {
  sum s = sum_zero(k);
  return sum_of(k, e, cy_dim_const(k->g, 1), &s) && sum_bounds(k, &s, out_lo, out_hi);
}

/* Bounds of one atom as dims, both inclusive; *out_hi may be 0: unknown. A loop of no iterations makes any bound true.
 * */
static bool atom_bounds(cy_kernel *k, cy_expr e, cy_dim *out_lo, cy_dim *out_hi) {
  const cy_expr_info *x = cy_expr_of(k, e);
  cy_dim lo, hi, d, zero = cy_dim_const(k->g, 0);
  *out_lo = zero;
  *out_hi = 0;
  switch (x->op) {
  case CY_X_VAR: *out_hi = cy_dim_addi(k->g, cy_kernel_var(k, x->id)->extent, -1); return true;
  case CY_OP_mod:
    if (!(d = as_dim(k, x->arg[1])) || !nonnegative(k, d))
      return false;
    *out_hi = cy_dim_max(k->g, cy_dim_addi(k->g, d, -1), zero);
    return true;
  case CY_OP_div:
    if (!(d = as_dim(k, x->arg[1])) || !positive(k, d) || !expr_bounds(k, x->arg[0], &lo, &hi) || !nonnegative(k, lo))
      return false;
    *out_hi = hi ? cy_dim_div(k->g, hi, d) : 0;
    return true;
  case CY_OP_cast: {
    const cy_dtype_info *t = cy_dtype_of(cy_expr_of(k, x->arg[0])->dtype);
    if (t->cls != 'B' && (t->cls != 'U' || t->bits > 32))
      return false;
    *out_hi = cy_dim_const(k->g, t->cls == 'B' ? 1 : ((int64_t)1 << t->bits) - 1);
    return true;
  }
  default: return false;
  }
}

/* Is d > 0 wherever s is computed, because d is the extent, or a multiple of the extent, of a variable in s? */
static bool has_iterations(cy_kernel *k, const sum *s, cy_dim d) {
  cy_dim q;
  int64_t v;
  for (int i = 0; i < s->n; i++) {
    const cy_expr_info *x = cy_expr_of(k, s->atom[i]);
    if (x->op == CY_X_VAR && cy_dim_divides(k->g, cy_kernel_var(k, x->id)->extent, d, &q) && cy_dim_is_const(k->g, q, &v) &&
        v > 0)
      return true;
  }
  return false;
}

/* A coefficient that multiplies a variable of extent E may be 0 * (E - 1) with E = 0: fine, the loop does not run. */
static bool sum_bounds(cy_kernel *k, const sum *s, cy_dim *out_lo, cy_dim *out_hi) {
  cy_dim lo = s->base, hi = s->base, minus;
  for (int i = 0; i < s->n; i++) {
    cy_dim alo, ahi;
    if (!atom_bounds(k, s->atom[i], &alo, &ahi))
      return false;
    bool up = nonnegative(k, s->coef[i]) || has_iterations(k, s, s->coef[i]);
    minus = cy_dim_muli(k->g, s->coef[i], -1);
    if (!up && (!nonnegative(k, minus) || !ahi))
      return false;
    lo = cy_dim_add(k->g, lo, cy_dim_mul(k->g, s->coef[i], up ? alo : ahi));
    if (!hi || !(up ? ahi : alo))
      hi = 0;
    else
      hi = cy_dim_add(k->g, hi, cy_dim_mul(k->g, s->coef[i], up ? ahi : alo));
  }
  *out_lo = lo;
  *out_hi = hi;
  return true;
}

/* ---- division and modulo by a dim ---- */

/* c = q * d exactly? */
static bool divides(cy_kernel *k, cy_dim c, cy_dim d, cy_dim *out_q) { return cy_dim_divides(k->g, d, c, out_q); }

/* Is d > 0 wherever s is computed? It is where s reads a variable whose extent is a multiple of d: with d = 0 its loop
 * does not run. A constant 0 is left alone: nobody runs what it would make simpler. */
static bool positive_at(cy_kernel *k, const sum *s, cy_dim d) {
  cy_dim unused;
  if (positive(k, d) || has_iterations(k, s, d))
    return true;
  for (int i = 0; i < s->n && nonnegative(k, d) && !cy_dim_is(k->g, d, 0); i++) {
    const cy_expr_info *x = cy_expr_of(k, s->atom[i]);
    if (x->op == CY_X_VAR && divides(k, cy_kernel_var(k, x->id)->extent, d, &unused))
      return true;
  }
  return false;
}

/* Takes c * (x mod d) and c * d * (x / d) out of s, for which it puts c * x: what reshaping there and back leaves of an
 * index whose rows change their length in between. False: there is no such pair. */
static bool put_together(cy_kernel *k, sum *s) {
  cy_dim d, lo, hi, one = cy_dim_const(k->g, 1);
  for (int i = 0; i < s->n; i++) {
    const cy_expr_info *m = cy_expr_of(k, s->atom[i]);
    if (m->op != CY_OP_mod || !(d = as_dim(k, m->arg[1])))
      continue;
    for (int j = 0; j < s->n; j++) {
      const cy_expr_info *q = cy_expr_of(k, s->atom[j]);
      sum x = sum_zero(k), rest = sum_zero(k);
      if (q->op != CY_OP_div || q->arg[0] != m->arg[0] || q->arg[1] != m->arg[1] ||
          s->coef[j] != cy_dim_mul(k->g, s->coef[i], d) || !sum_of(k, m->arg[0], one, &x) || !positive_at(k, &x, d) ||
          !sum_bounds(k, &x, &lo, &hi) || !nonnegative(k, lo))
        continue;
      rest.base = s->base;
      for (int t = 0; t < s->n; t++)
        if (t != i && t != j) {
          rest.atom[rest.n] = s->atom[t];
          rest.coef[rest.n++] = s->coef[t];
        }
      if (!sum_add(k, &rest, &x, s->coef[i]))
        continue;
      *s = rest;
      return true;
    }
  }
  return false;
}

/* s = d * quotient + rest, term by term; of a constant base the rest is what floor division leaves. */
static void sum_split(cy_kernel *k, const sum *s, cy_dim d, sum *out_q, sum *out_rest) {
  cy_dim q;
  int64_t base, divisor;
  *out_q = *out_rest = sum_zero(k);
  for (int i = 0; i < s->n; i++) {
    sum *to = divides(k, s->coef[i], d, &q) ? out_q : out_rest;
    to->atom[to->n] = s->atom[i];
    to->coef[to->n++] = to == out_q ? q : s->coef[i];
  }
  if (cy_dim_is_const(k->g, s->base, &base) && cy_dim_is_const(k->g, d, &divisor)) {
    int64_t rest = base % divisor + (base % divisor < 0 ? divisor : 0);
    out_q->base = cy_dim_const(k->g, (base - rest) / divisor);
    out_rest->base = cy_dim_const(k->g, rest);
  } else if (divides(k, s->base, d, &q)) {
    out_q->base = q;
  } else {
    out_rest->base = s->base;
  }
}

/* floor((g * X + b) / (g * D)) = floor((X + floor(b / g)) / D): takes the common factor out of a constant division. */
static cy_dim shrink(cy_kernel *k, sum *s, cy_dim d) {
  int64_t g, v;
  if (!cy_dim_is_const(k->g, d, &g))
    return d;
  int64_t divisor = g;
  for (int i = 0; i < s->n; i++) {
    if (!cy_dim_is_const(k->g, s->coef[i], &v))
      return d;
    g = cy_gcd(g, v);
  }
  if (g <= 1 || !cy_dim_is_const(k->g, s->base, &v) || v < 0)
    return d;
  for (int i = 0; i < s->n; i++)
    s->coef[i] = cy_dim_div(k->g, s->coef[i], cy_dim_const(k->g, g));
  s->base = cy_dim_const(k->g, v / g);
  return cy_dim_const(k->g, divisor / g);
}

static bool within(cy_kernel *k, const sum *s, cy_dim d, bool *out_nonnegative) {
  cy_dim lo, hi;
  *out_nonnegative = false;
  if (!sum_bounds(k, s, &lo, &hi))
    return false;
  *out_nonnegative = nonnegative(k, lo);
  return *out_nonnegative && hi && cy_dim_le(k->g, cy_dim_addi(k->g, hi, 1), d);
}

/* (x / a) / b = x / (a * b) where x >= 0. */
static cy_expr divide_rest(cy_kernel *k, sum *rest, cy_dim d) {
  d = shrink(k, rest, d);
  cy_expr e = sum_expr(k, rest);
  const cy_expr_info *x = cy_expr_of(k, e);
  cy_dim inner;
  if (x->op == CY_OP_div && (inner = as_dim(k, x->arg[1])) && positive(k, inner)) {
    e = x->arg[0];
    d = cy_dim_mul(k->g, d, inner);
  }
  return cy_dim_is(k->g, d, 1) ? e : raw2(k, CY_OP_div, e, cy_x_dim(k, d));
}

static cy_expr divide(cy_kernel *k, cy_expr a, cy_expr b) {
  cy_dim d = as_dim(k, b), lo, hi;
  sum s = sum_zero(k), q, rest;
  if (!d || !sum_of(k, a, cy_dim_const(k->g, 1), &s) || !positive_at(k, &s, d))
    return 0;
  bool positive_sum = sum_bounds(k, &s, &lo, &hi) && nonnegative(k, lo), positive_rest;
  sum_split(k, &s, d, &q, &rest);
  if (rest.n == 0 && cy_dim_is(k->g, rest.base, 0)) /* exact for any sign, barring overflow of data */
    return positive_sum ? sum_expr(k, &q) : 0;
  if (!positive_sum)
    return 0;
  bool inside = within(k, &rest, d, &positive_rest);
  if (inside)
    return sum_expr(k, &q);
  if (!positive_rest) { /* quotient and floor cannot be separated: divide the whole */
    cy_dim one = cy_dim_const(k->g, 1);
    rest = sum_zero(k);
    return sum_add(k, &rest, &s, one) ? divide_rest(k, &rest, d) : 0;
  }
  cy_expr e = divide_rest(k, &rest, d);
  return q.n || !cy_dim_is(k->g, q.base, 0) ? combine(k, sum_expr(k, &q), e, 1) : e;
}

/* Floor modulo: multiples of a positive d drop out for any sign. fmod (C's %) is the same where the dividend is >= 0.
 */
static cy_expr modulo(cy_kernel *k, cy_op op, cy_expr a, cy_expr b) {
  cy_dim d = as_dim(k, b), lo, hi, inner, q2;
  sum s = sum_zero(k), q, rest;
  bool positive_rest;
  if (!d || !sum_of(k, a, cy_dim_const(k->g, 1), &s) || !positive_at(k, &s, d))
    return 0;
  if (!sum_bounds(k, &s, &lo, &hi) || (op == CY_OP_fmod && !nonnegative(k, lo)))
    return 0;
  sum_split(k, &s, d, &q, &rest);
  if (within(k, &rest, d, &positive_rest))
    return sum_expr(k, &rest);
  cy_expr e = sum_expr(k, &rest);
  const cy_expr_info *x = cy_expr_of(k, e);
  if (x->op == CY_OP_mod && (inner = as_dim(k, x->arg[1])) && divides(k, inner, d, &q2)) {
    cy_expr whole = modulo(k, CY_OP_mod, x->arg[0], b);
    return whole ? whole : raw2(k, CY_OP_mod, x->arg[0], b);
  }
  return raw2(k, CY_OP_mod, e, b);
}

/* ---- comparisons, minimum, maximum ---- */

/* -1: a < b, 0: unknown, 1: a >= b; *out_le: a <= b is certain. */
static int order(cy_kernel *k, cy_expr a, cy_expr b, bool *out_le) {
  sum s = sum_zero(k);
  cy_dim lo, hi;
  *out_le = false;
  if (!sum_of(k, a, cy_dim_const(k->g, 1), &s) || !sum_of(k, b, cy_dim_const(k->g, -1), &s) ||
      !sum_bounds(k, &s, &lo, &hi))
    return 0;
  cy_dim zero = cy_dim_const(k->g, 0);
  *out_le = hi && cy_dim_le(k->g, hi, zero);
  if (hi && cy_dim_le(k->g, cy_dim_addi(k->g, hi, 1), zero))
    return -1;
  return cy_dim_le(k->g, zero, lo) ? 1 : 0;
}

static cy_expr compare(cy_kernel *k, cy_op op, cy_expr a, cy_expr b) {
  bool swap = op == CY_OP_gt || op == CY_OP_le, le;
  int o = order(k, swap ? b : a, swap ? a : b, &le); /* gt: b < a; le: not b < a; ge: not a < b */
  if (o == 0)
    return 0;
  return cy_x_int(k, CY_BOOL, (o < 0) == (op == CY_OP_lt || op == CY_OP_gt));
}

cy_expr cy_index_op(cy_kernel *k, cy_op op, const cy_expr *a) {
  bool le;
  int o;
  switch (op) {
  case CY_OP_add:
  case CY_OP_sub: return combine(k, a[0], a[1], op == CY_OP_add ? 1 : -1);
  case CY_OP_neg: return combine(k, cy_x_index(k, 0), a[0], -1);
  case CY_OP_mul: return scale(k, a[0], a[1]);
  case CY_OP_div: return divide(k, a[0], a[1]);
  case CY_OP_mod:
  case CY_OP_fmod: return modulo(k, op, a[0], a[1]);
  case CY_OP_lt:
  case CY_OP_le:
  case CY_OP_gt:
  case CY_OP_ge: return compare(k, op, a[0], a[1]);
  case CY_OP_eq:
  case CY_OP_ne:
    o = order(k, a[0], a[1], &le);
    if (o < 0)
      return cy_x_int(k, CY_BOOL, op == CY_OP_ne);
    return order(k, a[1], a[0], &le) < 0 ? cy_x_int(k, CY_BOOL, op == CY_OP_ne) : 0;
  case CY_OP_min:
  case CY_OP_max:
    o = order(k, a[0], a[1], &le);
    if (o == 0 && !le)
      return 0;
    return a[(o > 0 && !le) == (op == CY_OP_min) ? 1 : 0];
  default: return 0;
  }
}

/* ---- reading ---- */

bool cy_expr_affine(cy_kernel *k, cy_expr e, cy_affine *out) {
  cy_dim one = cy_dim_const(k->g, 1);
  sum s = sum_zero(k), rest = sum_zero(k);
  if (!sum_of(k, e, one, &s))
    return false;
  *out = (cy_affine){.base = s.base};
  sum_sort(k, &s);
  for (int i = 0; i < s.n; i++) {
    const cy_expr_info *x = cy_expr_of(k, s.atom[i]);
    if (x->op == CY_X_VAR) {
      out->var[out->n] = x->id;
      out->coef[out->n++] = s.coef[i];
    } else {
      sum_add_term(k, &rest, s.atom[i], s.coef[i]);
    }
  }
  if (rest.n)
    out->rest = sum_expr(k, &rest);
  return true;
}
