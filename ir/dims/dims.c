/* SPDX-License-Identifier: Apache-2.0 */
/* dims.c - arithmetic of integer expressions over symbols in a normal form, so that equal dims have equal ids; their order.
 *
 * A dim is a polynomial: a sorted list of terms coef * atom * atom .., highest degree first, the constant last. An atom
 * is a symbol or a div / mod / min / max of two dims. The order is structural (not by id), so a printed dim reads back
 * to the same text. Coefficients wrap like the arithmetic that evaluates them; ranges saturate instead (dimstore.c).
 * Sums of more than CY_MAX_TERMS terms and products of high degree hide an operand in the atom `x / 1`, which keeps
 * hostile models from exploding here.
 *
 * Assumptions. Quotients cancel as if the divisor were not zero: `(b*s*768) / (b*s)` is 768. Where an input dim is 0
 * that changes only how many elements an empty tensor is said to be made of. Nothing else assumes input dims >= 1:
 * max(s, 1) stays. Which forms are recognised: see divide_const() and divide_poly(). Text form: dimtext.c.
 *
 * cy_dim_le(a, b) looks at b - a; where its bounds alone do not decide, an atom is replaced by something it is certainly not
 * below (or above) and the rest is tried again, a few levels deep. Simplifying asks for the order, which asks for
 * differences and quotients: all of it stands here.
 */
#include "dims_int.h"

#define MAX_DEGREE 24

static int64_t wrap_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static int64_t wrap_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
static int64_t wrap_neg(int64_t a) { return (int64_t)(0 - (uint64_t)a); }

/* ---- structural order -------------------------------------------------------------------------------------------- */

/* Structural order of all three: < 0, 0, > 0. */
static int compare(const cy_graph *g, cy_dim a, cy_dim b);

static int compare_atoms(const cy_graph *g, uint32_t a, uint32_t b) {
  if (a == b)
    return 0;
  const cy_atom *x = cy_dim_atom(g, a), *y = cy_dim_atom(g, b);
  if (x->kind != y->kind)
    return x->kind < y->kind ? -1 : 1;
  if (x->kind == CY_ATOM_SYM)
    return x->sym < y->sym ? -1 : 1;
  int c = compare(g, x->a, y->a);
  return c ? c : compare(g, x->b, y->b);
}

/* Graded lexicographic on the atoms; coefficients do not count. */
static int compare_terms(const cy_graph *g, const cy_term *a, const cy_term *b) {
  if (a->natoms != b->natoms)
    return a->natoms > b->natoms ? -1 : 1;
  for (int i = 0; i < a->natoms; i++) {
    int c = compare_atoms(g, a->atoms[i], b->atoms[i]);
    if (c)
      return c;
  }
  return 0;
}

static int compare(const cy_graph *g, cy_dim a, cy_dim b) {
  if (a == b)
    return 0;
  const cy_dim_slot *x = cy_dim_slot_of(g, a), *y = cy_dim_slot_of(g, b);
  for (int i = 0; i < x->nterms && i < y->nterms; i++) {
    int c = compare_terms(g, &x->terms[i], &y->terms[i]);
    if (c)
      return c;
    if (x->terms[i].coef != y->terms[i].coef)
      return x->terms[i].coef < y->terms[i].coef ? -1 : 1;
  }
  return x->nterms < y->nterms ? -1 : 1;
}

/* The atom d consists of, if it is a single one of this kind. */
static const cy_atom *sole_atom(const cy_graph *g, cy_dim d, cy_atom_kind kind) {
  const cy_dim_slot *s = cy_dim_slot_of(g, d);
  if (s->nterms != 1 || s->terms[0].natoms != 1 || s->terms[0].coef != 1)
    return NULL;
  const cy_atom *a = cy_dim_atom(g, s->terms[0].atoms[0]);
  return a->kind == kind ? a : NULL;
}

/* ---- sums and products ------------------------------------------------------------------------------------------- */

/* x as one atom, for when it has grown too large to be multiplied out. */
static cy_dim hidden(cy_graph *g, cy_dim x) { return cy_dim_atom_add(g, CY_ATOM_DIV, 0, x, cy_dim_const(g, 1)); }

static cy_dim combine(cy_graph *g, cy_dim a, int64_t ka, cy_dim b, int64_t kb);

/* The atom of term t if it is one of this kind, times a number. */
static const cy_atom *choice(const cy_graph *g, const cy_term *t, cy_atom_kind kind) {
  const cy_atom *a = t->coef && t->natoms == 1 ? cy_dim_atom(g, t->atoms[0]) : NULL;
  return a && a->kind == kind ? a : NULL;
}

static cy_dim divide_const(cy_graph *g, cy_dim a, int64_t c);

/* x mod c (c > 1) as x - c * floor(x / c); as x + c * ceil(-x / c) where x is less than 0, as what fills up blocks is. */
static cy_dim remainder_apart(cy_graph *g, uint32_t id, int64_t c) {
  cy_atom_slot *s = cy_chunks_at(&g->atoms, id);
  cy_dim x = s->atom.a;
  if (s->apart)
    return s->apart;
  if (cy_dim_slot_of(g, x)->terms[0].coef < 0)
    s->apart = combine(g, x, 1, divide_const(g, combine(g, cy_dim_const(g, c - 1), 1, x, -1), c), c);
  else
    s->apart = combine(g, x, 1, divide_const(g, x, c), -c);
  return s->apart;
}

/* How many terms p + k * d has. */
static int count_terms(const cy_graph *g, const cy_poly *p, cy_dim d, int64_t k) {
  const cy_dim_slot *s = cy_dim_slot_of(g, d);
  int n = 0;
  for (int i = 0, j = 0; i < p->n || j < s->nterms; n++) {
    int c = i == p->n ? 1 : j == s->nterms ? -1 : compare_terms(g, &p->t[i], &s->terms[j]);
    int64_t coef = c <= 0 ? p->t[i++].coef : 0;
    if (c >= 0)
      coef = wrap_add(coef, wrap_mul(k, s->terms[j++].coef));
    n -= coef == 0;
  }
  return n;
}

/* Remainders of p that are gone when spelled as differences: s + -s mod 8, a length filled up to blocks, is a number of
 * blocks, and that less -s mod 8 is s again. False: there are none. */
static bool without_remainder(cy_graph *g, cy_poly *p, cy_dim *out) {
  cy_dim zero = cy_dim_const(g, 0);
  for (int i = 0; i < p->n; i++) {
    const cy_atom *a = choice(g, &p->t[i], CY_ATOM_MOD);
    int64_t c, k = p->t[i].coef;
    if (!a || !cy_dim_is_const(g, a->b, &c) || c <= 1)
      continue;
    int before = count_terms(g, p, zero, 0);
    cy_dim apart = before > 1 ? remainder_apart(g, p->t[i].atoms[0], c) : 0;
    p->t[i].coef = 0;
    if (apart && count_terms(g, p, apart, k) < before) {
      *out = combine(g, cy_dim_intern(g, p), 1, apart, k);
      return true;
    }
    p->t[i].coef = k;
  }
  return false;
}

/* The sum of p's terms. min(x, y) + max(x - e, y - e) is x + y - e: the two parts that rolling cuts an axis into are as
 * long as the axis. */
static cy_dim sum_of(cy_graph *g, cy_poly *p) {
  for (int i = 0; i < p->n; i++) {
    const cy_atom *lower = choice(g, &p->t[i], CY_ATOM_MIN);
    for (int j = 0; lower && j < p->n; j++) {
      const cy_atom *upper = choice(g, &p->t[j], CY_ATOM_MAX);
      if (!upper || p->t[i].coef != p->t[j].coef)
        continue;
      int64_t k = p->t[i].coef;
      cy_dim x = lower->a, y = lower->b, u = upper->a, v = upper->b, e = combine(g, x, 1, u, -1);
      if (e != combine(g, y, 1, v, -1) && (e = combine(g, x, 1, v, -1)) != combine(g, y, 1, u, -1))
        continue;
      p->t[i].coef = p->t[j].coef = 0;
      return combine(g, cy_dim_intern(g, p), 1, combine(g, combine(g, x, 1, y, 1), 1, e, -1), k);
    }
  }
  cy_dim less;
  return without_remainder(g, p, &less) ? less : cy_dim_intern(g, p);
}

/* ka * a + kb * b */
static cy_dim combine(cy_graph *g, cy_dim a, int64_t ka, cy_dim b, int64_t kb) {
  if (cy_dim_slot_of(g, a)->nterms + cy_dim_slot_of(g, b)->nterms > CY_MAX_TERMS) {
    a = cy_dim_slot_of(g, a)->nterms > CY_MAX_TERMS / 2 ? hidden(g, a) : a;
    b = cy_dim_slot_of(g, b)->nterms > CY_MAX_TERMS / 2 ? hidden(g, b) : b;
  }
  const cy_dim_slot *x = cy_dim_slot_of(g, a), *y = cy_dim_slot_of(g, b);
  cy_poly p;
  p.n = 0;
  for (int i = 0, j = 0; i < x->nterms || j < y->nterms;) {
    int c = i == x->nterms ? 1 : j == y->nterms ? -1 : compare_terms(g, &x->terms[i], &y->terms[j]);
    cy_term t = c <= 0 ? x->terms[i] : y->terms[j];
    t.coef = 0;
    if (c <= 0)
      t.coef = wrap_mul(ka, x->terms[i++].coef);
    if (c >= 0)
      t.coef = wrap_add(t.coef, wrap_mul(kb, y->terms[j++].coef));
    p.t[p.n++] = t;
  }
  return sum_of(g, &p);
}

cy_dim cy_dim_add(cy_graph *g, cy_dim a, cy_dim b) { return combine(g, a, 1, b, 1); }
cy_dim cy_dim_sub(cy_graph *g, cy_dim a, cy_dim b) { return combine(g, a, 1, b, -1); }
cy_dim cy_dim_addi(cy_graph *g, cy_dim a, int64_t b) { return combine(g, a, 1, cy_dim_const(g, b), 1); }

cy_dim cy_dim_muli(cy_graph *g, cy_dim a, int64_t b) {
  cy_dim zero = cy_dim_const(g, 0);
  return combine(g, a, b, zero, 1);
}

static cy_term multiply_terms(cy_graph *g, const cy_term *x, const cy_term *y) {
  int n = x->natoms + y->natoms;
  uint32_t *atoms = n ? CY_NEW_ARRAY(g->arena, uint32_t, n) : NULL;
  for (int i = 0, j = 0; i + j < n;) {
    bool left = j == y->natoms || (i < x->natoms && compare_atoms(g, x->atoms[i], y->atoms[j]) <= 0);
    uint32_t next = left ? x->atoms[i] : y->atoms[j];
    atoms[i + j] = next;
    if (left)
      i++;
    else
      j++;
  }
  return (cy_term){wrap_mul(x->coef, y->coef), n, atoms};
}

static int degree(const cy_dim_slot *s) { return s->nterms ? s->terms[0].natoms : 0; }

cy_dim cy_dim_mul(cy_graph *g, cy_dim a, cy_dim b) {
  int64_t k;
  if (cy_dim_is_const(g, b, &k))
    return cy_dim_muli(g, a, k);
  if (cy_dim_is_const(g, a, &k))
    return cy_dim_muli(g, b, k);
  const cy_dim_slot *x = cy_dim_slot_of(g, a), *y = cy_dim_slot_of(g, b);
  if (x->nterms * y->nterms > CY_MAX_TERMS || degree(x) + degree(y) > MAX_DEGREE) {
    x = cy_dim_slot_of(g, x->nterms > 1 || degree(x) > MAX_DEGREE / 2 ? hidden(g, a) : a);
    y = cy_dim_slot_of(g, y->nterms > 1 || degree(y) > MAX_DEGREE / 2 ? hidden(g, b) : b);
  }
  cy_poly p;
  p.n = 0;
  for (int i = 0; i < x->nterms; i++) {
    for (int j = 0; j < y->nterms; j++) {
      cy_term t = multiply_terms(g, &x->terms[i], &y->terms[j]);
      int at = p.n, c = 1;
      while (at > 0 && (c = compare_terms(g, &t, &p.t[at - 1])) < 0)
        at--;
      if (at > 0 && c == 0) {
        p.t[at - 1].coef = wrap_add(p.t[at - 1].coef, t.coef);
        continue;
      }
      memmove(&p.t[at + 1], &p.t[at], sizeof(cy_term) * (size_t)(p.n - at));
      p.t[at] = t;
      p.n++;
    }
  }
  return cy_dim_intern(g, &p);
}

/* ---- quotients --------------------------------------------------------------------------------------------------- */

/* a = c * q + r by coefficients: truncating for symbols, floor for the constant (c > 0). */
static void split_const(cy_graph *g, cy_dim a, int64_t c, cy_dim *out_q, cy_dim *out_r) {
  const cy_dim_slot *s = cy_dim_slot_of(g, a);
  cy_poly q, r;
  q.n = r.n = 0;
  for (int i = 0; i < s->nterms; i++) {
    cy_term t = s->terms[i], u = t;
    t.coef = u.natoms ? u.coef / c : cy_floor_div(u.coef, c);
    u.coef = wrap_add(u.coef, wrap_neg(wrap_mul(t.coef, c)));
    q.t[q.n++] = t;
    r.t[r.n++] = u;
  }
  *out_q = cy_dim_intern(g, &q);
  *out_r = cy_dim_intern(g, &r);
}

/* gcd of c and the coefficients of r's symbols (and of its constant, if asked). */
static int64_t content(const cy_graph *g, cy_dim r, int64_t c, bool with_const) {
  const cy_dim_slot *s = cy_dim_slot_of(g, r);
  for (int i = 0; i < s->nterms; i++)
    if (s->terms[i].natoms || with_const)
      c = cy_gcd(c, s->terms[i].coef);
  return c;
}

/* r / k where k divides every symbol's coefficient; the constant rounds down. */
static cy_dim exact_div(cy_graph *g, cy_dim r, int64_t k) {
  cy_dim q, rest;
  split_const(g, r, k, &q, &rest);
  return q;
}

/* r = floor(y / c2) + k with c2 a constant: floor(r / c) is floor((y + k * c2) / (c * c2)). */
static bool merge_div(cy_graph *g, cy_dim r, int64_t c, cy_dim *out_num, int64_t *out_c) {
  const cy_dim_slot *s = cy_dim_slot_of(g, r);
  if (s->nterms < 1 || s->nterms > 2 || s->terms[0].natoms != 1 || s->terms[0].coef != 1)
    return false;
  if (s->nterms == 2 && s->terms[1].natoms)
    return false;
  const cy_atom *a = cy_dim_atom(g, s->terms[0].atoms[0]);
  int64_t c2, k = s->nterms == 2 ? s->terms[1].coef : 0, add;
  if (a->kind != CY_ATOM_DIV || !cy_dim_is_const(g, a->b, &c2) || c2 <= 1)
    return false;
  if (__builtin_mul_overflow(c, c2, out_c) || __builtin_mul_overflow(k, c2, &add))
    return false;
  *out_num = cy_dim_addi(g, a->a, add);
  return true;
}

static cy_dim divide_const(cy_graph *g, cy_dim a, int64_t c) { /* c > 0 */
  cy_dim q, r, num;
  int64_t lo, hi, c2;
  if (c == 1)
    return a;
  split_const(g, a, c, &q, &r);
  int64_t common = content(g, r, c, false);
  if (common > 1)
    return cy_dim_add(g, q, divide_const(g, exact_div(g, r, common), c / common));
  cy_dim_range(g, r, &lo, &hi);
  if (lo != INT64_MIN && hi != INT64_MAX && cy_floor_div(lo, c) == cy_floor_div(hi, c))
    return cy_dim_addi(g, q, cy_floor_div(lo, c));
  if (merge_div(g, r, c, &num, &c2))
    return cy_dim_add(g, q, divide_const(g, num, c2));
  return cy_dim_add(g, q, cy_dim_atom_add(g, CY_ATOM_DIV, 0, r, cy_dim_const(g, c)));
}

/* t / by as a monomial; false when it does not divide. */
static bool divide_term(cy_graph *g, const cy_term *t, const cy_term *by, cy_term *out) {
  if (by->coef == 0 || by->natoms > t->natoms || (by->coef == -1 ? t->coef == INT64_MIN : t->coef % by->coef != 0))
    return false;
  uint32_t *left = CY_NEW_ARRAY(g->arena, uint32_t, t->natoms + 1);
  int n = 0, j = 0;
  for (int i = 0; i < t->natoms; i++) {
    if (j < by->natoms && t->atoms[i] == by->atoms[j])
      j++;
    else
      left[n++] = t->atoms[i];
  }
  *out = (cy_term){t->coef / by->coef, n, left};
  return j == by->natoms;
}

/* a = q * b + r, taking out of a what the leading term of b divides. */
static void divide_poly(cy_graph *g, cy_dim a, cy_dim b, cy_dim *out_q, cy_dim *out_r) {
  cy_dim p = a, q = cy_dim_const(g, 0), r = q;
  const cy_term *lead = &cy_dim_slot_of(g, b)->terms[0];
  for (int steps = 0; cy_dim_slot_of(g, p)->nterms; steps++) {
    const cy_term *top = &cy_dim_slot_of(g, p)->terms[0];
    cy_poly m;
    m.n = 1;
    if (steps == 2 * CY_MAX_TERMS) {
      *out_q = cy_dim_const(g, 0);
      *out_r = a;
      return;
    }
    if (divide_term(g, top, lead, &m.t[0])) {
      cy_dim t = cy_dim_intern(g, &m);
      q = cy_dim_add(g, q, t);
      p = cy_dim_sub(g, p, cy_dim_mul(g, t, b));
    } else {
      m.t[0] = *top;
      cy_dim t = cy_dim_intern(g, &m);
      r = cy_dim_add(g, r, t);
      p = cy_dim_sub(g, p, t);
    }
  }
  *out_q = q;
  *out_r = r;
}

/* What all terms of d have in common with m, removed from m's atoms: m becomes the common monomial. */
static void common_atoms(const cy_graph *g, cy_dim d, cy_term *m, uint32_t *atoms) {
  const cy_dim_slot *s = cy_dim_slot_of(g, d);
  for (int i = 0; i < s->nterms; i++) {
    const cy_term *t = &s->terms[i];
    int n = 0;
    for (int k = 0, j = 0; k < m->natoms; k++) {
      while (j < t->natoms && compare_atoms(g, t->atoms[j], m->atoms[k]) < 0)
        j++;
      if (j < t->natoms && t->atoms[j] == m->atoms[k]) {
        atoms[n++] = m->atoms[k];
        j++;
      }
    }
    m->natoms = n;
    m->atoms = atoms;
    m->coef = cy_gcd(m->coef, t->coef);
  }
}

/* Cancels the common monomial of a and b in both; returns it. */
static cy_dim cancel(cy_graph *g, cy_dim *a, cy_dim *b) {
  const cy_dim_slot *s = cy_dim_slot_of(g, *b);
  uint32_t *atoms = CY_NEW_ARRAY(g->arena, uint32_t, s->terms[0].natoms + 1);
  cy_poly p;
  p.n = 1;
  p.t[0] = s->terms[0];
  common_atoms(g, *b, &p.t[0], atoms);
  common_atoms(g, *a, &p.t[0], atoms);
  if (p.t[0].coef <= 0)
    p.t[0].coef = 1;
  cy_dim m = cy_dim_intern(g, &p), rest;
  if (!cy_dim_is(g, m, 1)) {
    divide_poly(g, *a, m, a, &rest);
    divide_poly(g, *b, m, b, &rest);
  }
  return m;
}

static bool is_remainder(cy_graph *g, cy_dim r, cy_dim b) { /* 0 <= r < b for sure */
  return cy_dim_le(g, cy_dim_const(g, 0), r) && cy_dim_le(g, cy_dim_addi(g, r, 1), b);
}

cy_dim cy_dim_div(cy_graph *g, cy_dim a, cy_dim b) {
  int64_t c, n;
  if (cy_dim_is_const(g, b, &c)) {
    if (c == 0)
      return cy_dim_const(g, 0);
    if (cy_dim_is_const(g, a, &n))
      return cy_dim_const(g, cy_floor_div(n, c));
    if (c == INT64_MIN)
      return cy_dim_atom_add(g, CY_ATOM_DIV, 0, a, b);
    return c > 0 ? divide_const(g, a, c) : divide_const(g, cy_dim_muli(g, a, -1), -c);
  }
  cy_dim q, r;
  cancel(g, &a, &b);
  if (cy_dim_is_const(g, b, NULL))
    return cy_dim_div(g, a, b);
  divide_poly(g, a, b, &q, &r);
  if (cy_dim_is(g, r, 0) || is_remainder(g, r, b))
    return q;
  if (cy_dim_slot_of(g, b)->nterms > 1)
    return cy_dim_atom_add(g, CY_ATOM_DIV, 0, a, b);
  cancel(g, &r, &b);
  return cy_dim_add(g, q, cy_dim_atom_add(g, CY_ATOM_DIV, 0, r, b));
}

bool cy_dim_divides(cy_graph *g, cy_dim d, cy_dim n, cy_dim *out_quotient) {
  *out_quotient = cy_dim_div(g, n, d);
  return cy_dim_mul(g, *out_quotient, d) == n;
}

cy_dim cy_dim_cdiv(cy_graph *g, cy_dim a, cy_dim b) {
  int64_t lo, hi;
  cy_dim_range(g, b, &lo, &hi);
  if (lo >= 0)
    return cy_dim_div(g, cy_dim_addi(g, cy_dim_add(g, a, b), -1), b);
  return cy_dim_muli(g, cy_dim_div(g, cy_dim_muli(g, a, -1), b), -1);
}

/* a with x in the place of each remainder x mod c2 in it, c2 a multiple of c: the same modulo c. */
static cy_dim same_modulo(cy_graph *g, cy_dim a, int64_t c) {
  const cy_dim_slot *s = cy_dim_slot_of(g, a);
  int64_t c2;
  for (int i = 0; i < s->nterms; i++) {
    const cy_atom *x = choice(g, &s->terms[i], CY_ATOM_MOD);
    if (x && cy_dim_is_const(g, x->b, &c2) && c2 > 0 && c2 % c == 0) {
      cy_poly rest;
      rest.n = s->nterms;
      memcpy(rest.t, s->terms, sizeof(cy_term) * (size_t)s->nterms);
      rest.t[i].coef = 0;
      return combine(g, cy_dim_intern(g, &rest), 1, x->a, s->terms[i].coef);
    }
  }
  return a;
}

static cy_dim mod_const(cy_graph *g, cy_dim a, int64_t c) { /* c > 0 */
  cy_dim q, r, whole;
  int64_t lo, hi;
  split_const(g, a, c, &q, &r);
  cy_dim_range(g, r, &lo, &hi);
  if (lo >= 0 && hi < c)
    return r;
  if ((whole = same_modulo(g, r, c)) != r)
    return mod_const(g, whole, c);
  int64_t common = content(g, r, c, true);
  if (common > 1)
    return cy_dim_muli(g, mod_const(g, exact_div(g, r, common), c / common), common);
  return cy_dim_atom_add(g, CY_ATOM_MOD, 0, r, cy_dim_const(g, c));
}

cy_dim cy_dim_mod(cy_graph *g, cy_dim a, cy_dim b) {
  int64_t c;
  if (cy_dim_is_const(g, b, &c)) {
    if (c == 0 || c == 1 || c == -1)
      return cy_dim_const(g, 0);
    if (c == INT64_MIN)
      return cy_dim_atom_add(g, CY_ATOM_MOD, 0, a, b);
    return c > 0 ? mod_const(g, a, c) : cy_dim_muli(g, mod_const(g, cy_dim_muli(g, a, -1), -c), -1);
  }
  cy_dim q, r;
  divide_poly(g, a, b, &q, &r);
  if (cy_dim_is(g, r, 0) || is_remainder(g, r, b))
    return r;
  return cy_dim_atom_add(g, CY_ATOM_MOD, 0, cy_dim_slot_of(g, b)->nterms > 1 ? a : r, b);
}

/* ---- min, max and join -------------------------------------------------------------------------------------------- */

#define MAX_OPERANDS 12

typedef struct operands {
  int n;
  cy_dim d[MAX_OPERANDS];
  bool full;
} operands;

/* Is d certainly 0 only where `other` is, as min(n,128) is only where n is? */
static bool zero_only_with(cy_graph *g, cy_dim d, cy_dim other) {
  if (d == other || cy_dim_le(g, cy_dim_const(g, 1), d))
    return true;
  const cy_atom *a = sole_atom(g, d, CY_ATOM_MIN);
  return a && zero_only_with(g, a->a, other) && zero_only_with(g, a->b, other);
}

/* Is part the first (or last) elements of whole, at least one where there is one? It is less than whole, but 0 only where
 * whole is. Slices from the end have it as whole - max(0, whole - n). */
static bool is_end_of(cy_graph *g, cy_dim part, cy_dim whole) {
  const cy_atom *a = sole_atom(g, cy_dim_sub(g, whole, part), CY_ATOM_MAX);
  if (!a || !(cy_dim_is(g, a->a, 0) || cy_dim_is(g, a->b, 0)))
    return cy_dim_le(g, part, whole) && zero_only_with(g, part, whole);
  cy_dim upper = cy_dim_sub(g, whole, cy_dim_is(g, a->a, 0) ? a->b : a->a);
  return cy_dim_le(g, cy_dim_const(g, 1), upper);
}

static bool dominates(cy_graph *g, cy_atom_kind kind, cy_dim winner, cy_dim loser) {
  if (kind == CY_ATOM_JOIN && winner != loser && !cy_dim_le(g, cy_dim_const(g, 1), loser))
    return cy_dim_is(g, winner, 0) || (cy_dim_le(g, cy_dim_const(g, 0), winner) && is_end_of(g, loser, winner));
  return kind == CY_ATOM_MIN ? cy_dim_le(g, winner, loser) : cy_dim_le(g, loser, winner);
}

/* Adds what d is made of, keeping only operands that no other decides. */
static void add_operand(cy_graph *g, cy_atom_kind kind, cy_dim d, operands *list) {
  const cy_atom *a = sole_atom(g, d, kind);
  if (a) {
    add_operand(g, kind, a->a, list);
    add_operand(g, kind, a->b, list);
    return;
  }
  for (int i = 0; i < list->n; i++)
    if (dominates(g, kind, list->d[i], d))
      return;
  int n = 0;
  for (int i = 0; i < list->n; i++)
    if (!dominates(g, kind, d, list->d[i]))
      list->d[n++] = list->d[i];
  list->n = n;
  if (n == MAX_OPERANDS) {
    list->full = true;
    return;
  }
  int at = n;
  for (; at > 0 && compare(g, d, list->d[at - 1]) < 0; at--)
    list->d[at] = list->d[at - 1];
  list->d[at] = d;
  list->n++;
}

static cy_dim choose(cy_graph *g, cy_atom_kind kind, cy_dim a, cy_dim b) {
  if (dominates(g, kind, a, b))
    return a;
  if (dominates(g, kind, b, a))
    return b;
  int64_t known, common = content(g, a, content(g, b, 0, true), true);
  if (common > 1 && !cy_dim_is_const(g, a, &known) && !cy_dim_is_const(g, b, &known))
    return cy_dim_muli(g, choose(g, kind, exact_div(g, a, common), exact_div(g, b, common)), common);
  operands list = {0};
  add_operand(g, kind, a, &list);
  add_operand(g, kind, b, &list);
  if (list.full)
    return cy_dim_atom_add(g, kind, 0, a, b);
  cy_dim d = list.d[0];
  for (int i = 1; i < list.n; i++)
    d = cy_dim_atom_add(g, kind, 0, d, list.d[i]);
  return d;
}

cy_dim cy_dim_min(cy_graph *g, cy_dim a, cy_dim b) { return choose(g, CY_ATOM_MIN, a, b); }
cy_dim cy_dim_max(cy_graph *g, cy_dim a, cy_dim b) { return choose(g, CY_ATOM_MAX, a, b); }
cy_dim cy_dim_join(cy_graph *g, cy_dim a, cy_dim b) { return choose(g, CY_ATOM_JOIN, a, b); }

cy_dim cy_dim_binary(cy_graph *g, cy_atom_kind kind, cy_dim a, cy_dim b) {
  switch (kind) {
  case CY_ATOM_DIV: return cy_dim_div(g, a, b);
  case CY_ATOM_MOD: return cy_dim_mod(g, a, b);
  case CY_ATOM_MIN: return cy_dim_min(g, a, b);
  case CY_ATOM_MAX: return cy_dim_max(g, a, b);
  case CY_ATOM_JOIN: return cy_dim_join(g, a, b);
  case CY_ATOM_SYM: break;
  }
  cy_bug("dim operator %d", (int)kind);
}

/* ---- substitution ------------------------------------------------------------------------------------------------ */

static cy_dim subst_atom(cy_graph *g, uint32_t id, cy_sym s, cy_dim by) {
  cy_atom a = *cy_dim_atom(g, id);
  if (a.kind == CY_ATOM_SYM)
    return a.sym == s ? by : cy_dim_sym(g, a.sym);
  cy_dim x = cy_dim_subst(g, a.a, s, by), y = cy_dim_subst(g, a.b, s, by);
  return x == a.a && y == a.b ? cy_dim_atom_add(g, a.kind, 0, x, y) : cy_dim_binary(g, a.kind, x, y);
}

cy_dim cy_dim_subst(cy_graph *g, cy_dim d, cy_sym s, cy_dim by) {
  const cy_dim_slot *slot = cy_dim_slot_of(g, d);
  cy_dim sum = cy_dim_const(g, 0);
  for (int i = 0; i < slot->nterms; i++) {
    cy_dim t = cy_dim_const(g, slot->terms[i].coef);
    for (int k = 0; k < slot->terms[i].natoms; k++)
      t = cy_dim_mul(g, t, subst_atom(g, slot->terms[i].atoms[k], s, by));
    sum = cy_dim_add(g, sum, t);
  }
  return sum;
}

/* ---- certain order ----------------------------------------------------------------------------------------------- */

static bool tame(const cy_graph *g, cy_dim d) { /* small enough that scaling cannot wrap */
  const cy_term *t;
  int n = cy_dim_terms(g, d, &t);
  for (int i = 0; i < n; i++)
    if (t[i].coef > (int64_t)1 << 44 || t[i].coef < -((int64_t)1 << 44))
      return false;
  return n <= 16;
}

static bool nonneg(cy_graph *g, cy_dim d, int depth);

/* d with its term `t` (one atom) replaced by coef * by, all scaled by `scale` but the new part. */
static bool nonneg_with(cy_graph *g, cy_dim d, const cy_term *t, cy_dim by, int64_t scale, int depth) {
  cy_dim rest = cy_dim_sub(g, d, cy_dim_muli(g, cy_dim_of_atom(g, t->atoms[0]), t->coef));
  return nonneg(g, cy_dim_add(g, cy_dim_muli(g, rest, scale), cy_dim_muli(g, by, t->coef)), depth - 1);
}

/* k * floor(x / (k * b)) lies in floor(x/b)-k+1 .. floor(x/b): what is halved twice, say, beside what is halved once. */
static bool nonneg_by_part(cy_graph *g, cy_dim d, cy_term t, cy_dim x, int64_t c, int depth) {
  int64_t k = cy_gcd(t.coef, c);
  if (k == 1 || k == c)
    return false;
  cy_dim by = cy_dim_div(g, x, cy_dim_const(g, c / k));
  cy_dim rest = cy_dim_sub(g, d, cy_dim_muli(g, cy_dim_of_atom(g, t.atoms[0]), t.coef));
  by = t.coef < 0 ? by : cy_dim_addi(g, by, 1 - k);
  return nonneg(g, cy_dim_add(g, rest, cy_dim_muli(g, by, t.coef / k)), depth - 1);
}

static bool nonneg_by_atom(cy_graph *g, cy_dim d, cy_term t, int depth) {
  const cy_atom *a = cy_dim_atom(g, t.atoms[0]);
  int64_t c;
  if (a->kind == CY_ATOM_SYM && cy_sym_of(g, a->sym)->upper && t.coef < 0)
    return nonneg_with(g, d, &t, cy_sym_of(g, a->sym)->upper, 1, depth);
  if (a->kind == CY_ATOM_SYM || a->kind == CY_ATOM_MOD)
    return false;
  if (a->kind == CY_ATOM_DIV) {
    if (!cy_dim_is_const(g, a->b, &c) || c < 1 || c > 1 << 16)
      return false;
    if (nonneg_by_part(g, d, t, a->a, c, depth))
      return true;
    /* c * floor(x / c) lies in x-c+1 .. x */
    cy_dim by = t.coef < 0 ? a->a : cy_dim_addi(g, a->a, 1 - c);
    return nonneg_with(g, d, &t, by, c, depth);
  }
  if (a->kind == CY_ATOM_JOIN && t.coef > 0) /* not more than max(x,y) */
    return false;
  bool either = (a->kind == CY_ATOM_MIN) == (t.coef < 0); /* -min(x,y) >= -x, max(x,y) >= x */
  bool first = nonneg_with(g, d, &t, a->a, 1, depth);
  if (first == either)
    return first;
  return nonneg_with(g, d, &t, a->b, 1, depth);
}

static bool nonneg(cy_graph *g, cy_dim d, int depth) {
  int64_t lo, hi;
  cy_dim_range(g, d, &lo, &hi);
  if (lo >= 0)
    return true;
  if (depth <= 0 || hi < 0 || !tame(g, d))
    return false;
  const cy_term *terms;
  int n = cy_dim_terms(g, d, &terms);
  for (int i = 0; i < n; i++)
    if (terms[i].natoms == 1 && nonneg_by_atom(g, d, terms[i], depth))
      return true;
  return false;
}

bool cy_dim_le(const cy_graph *g, cy_dim a, cy_dim b) {
  int64_t alo, ahi, blo, bhi;
  if (a == b)
    return true;
  cy_dim_range(g, a, &alo, &ahi);
  cy_dim_range(g, b, &blo, &bhi);
  if (ahi <= blo)
    return true;
  if (alo > bhi || !tame(g, a) || !tame(g, b))
    return false;
  cy_graph *m = (cy_graph *)g; /* interning the difference changes no meaning */
  return nonneg(m, cy_dim_sub(m, b, a), 3);
}

bool cy_dim_lt(const cy_graph *g, cy_dim a, cy_dim b) {
  int64_t alo, ahi, blo, bhi;
  cy_dim_range(g, a, &alo, &ahi);
  cy_dim_range(g, b, &blo, &bhi);
  if (ahi < blo)
    return true;
  if (alo >= bhi || !tame(g, a) || !tame(g, b)) /* of others, a + 1 may wrap */
    return false;
  cy_graph *m = (cy_graph *)g;
  return nonneg(m, cy_dim_addi(m, cy_dim_sub(m, b, a), -1), 3);
}
