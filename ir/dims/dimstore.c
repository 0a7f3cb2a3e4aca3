/* SPDX-License-Identifier: Apache-2.0 */
/* dimstore.c - dims as they are stored: interned polynomials and atoms, and the bounds of both.
 *
 * In: terms in their order. Out: equal ids for equal terms. Bounds saturate: INT64_MIN / INT64_MAX stand for "unbounded".
 * Bounds of composite atoms are found once, when the atom is made, so bounds that a symbol is given later are not seen
 * through min, max, div and mod: set a symbol's bounds before using it. Arithmetic, which brings terms into their order, is
 * dims.c's.
 */
#include "dims_int.h"

#define MIN INT64_MIN
#define MAX INT64_MAX

const cy_dim_slot *cy_dim_slot_of(const cy_graph *g, cy_dim d) {
  if (d == 0 || d > g->dims.count)
    cy_bug("dim %u of %u", d, g->dims.count);
  return cy_chunks_at(&g->dims, d);
}

typedef struct dim_key {
  const cy_graph *g;
  const cy_term *t;
  int n;
  uint32_t hash;
} dim_key;

static bool dim_same(void *ctx, uint32_t id) {
  const dim_key *k = ctx;
  const cy_dim_slot *s = cy_chunks_at(&k->g->dims, id);
  if (s->hash != k->hash || s->nterms != k->n)
    return false;
  for (int i = 0; i < k->n; i++) {
    const cy_term *x = &s->terms[i], *y = &k->t[i];
    if (x->coef != y->coef || x->natoms != y->natoms)
      return false;
    if (x->natoms && memcmp(x->atoms, y->atoms, sizeof(uint32_t) * (size_t)x->natoms) != 0)
      return false;
  }
  return true;
}

static uint32_t dim_hash(void *ctx, uint32_t id) {
  return ((const cy_dim_slot *)cy_chunks_at(&((const cy_graph *)ctx)->dims, id))->hash;
}

cy_dim cy_dim_intern(cy_graph *g, cy_poly *p) {
  int n = 0;
  uint32_t hash = 7;
  for (int i = 0; i < p->n; i++)
    if (p->t[i].coef != 0)
      p->t[n++] = p->t[i];
  for (int i = 0; i < n; i++) {
    hash = cy_hash_bytes(hash, &p->t[i].coef, sizeof p->t[i].coef);
    if (p->t[i].natoms)
      hash = cy_hash_bytes(hash, p->t[i].atoms, sizeof(uint32_t) * (size_t)p->t[i].natoms);
  }
  cy_id_table_room(&g->dim_table, g->arena, dim_hash, g);
  dim_key key = {g, p->t, n, hash};
  uint32_t *at = cy_id_table_find(&g->dim_table, hash, dim_same, &key);
  if (*at)
    return *at;
  *at = cy_chunks_add(&g->dims, g->arena);
  g->dim_table.used++;
  cy_dim_slot *s = cy_chunks_at(&g->dims, *at);
  *s = (cy_dim_slot){cy_arena_copy(g->arena, p->t, sizeof(cy_term) * (size_t)n), n, hash};
  return *at;
}

static void atom_range(const cy_graph *g, const cy_atom *a, int64_t *out_min, int64_t *out_max);

typedef struct atom_key {
  const cy_graph *g;
  cy_atom atom;
} atom_key;

static bool atom_same(void *ctx, uint32_t id) {
  const atom_key *k = ctx;
  const cy_atom *x = &((const cy_atom_slot *)cy_chunks_at(&k->g->atoms, id))->atom;
  return x->kind == k->atom.kind && x->sym == k->atom.sym && x->a == k->atom.a && x->b == k->atom.b;
}

static uint32_t atom_hash(void *ctx, uint32_t id) {
  return ((const cy_atom_slot *)cy_chunks_at(&((const cy_graph *)ctx)->atoms, id))->hash;
}

cy_dim cy_dim_of_atom(cy_graph *g, uint32_t atom) {
  cy_atom_slot *s = cy_chunks_at(&g->atoms, atom);
  if (!s->alone) {
    cy_poly p = {.n = 1};
    p.t[0] = (cy_term){1, 1, cy_arena_copy(g->arena, &atom, sizeof atom)};
    s->alone = cy_dim_intern(g, &p);
  }
  return s->alone;
}

cy_dim cy_dim_atom_add(cy_graph *g, cy_atom_kind kind, cy_sym sym, cy_dim a, cy_dim b) {
  atom_key key = {g, {kind, sym, a, b}};
  uint32_t words[4] = {kind, sym, a, b};
  uint32_t hash = cy_hash_bytes(3, words, sizeof words);
  cy_id_table_room(&g->atom_table, g->arena, atom_hash, g);
  uint32_t *at = cy_id_table_find(&g->atom_table, hash, atom_same, &key);
  if (!*at) {
    *at = cy_chunks_add(&g->atoms, g->arena);
    g->atom_table.used++;
    cy_atom_slot *s = cy_chunks_at(&g->atoms, *at);
    *s = (cy_atom_slot){.atom = key.atom, .hash = hash};
    if (kind != CY_ATOM_SYM)
      atom_range(g, &key.atom, &s->min, &s->max);
  }
  return cy_dim_of_atom(g, *at);
}

cy_dim cy_dim_const(cy_graph *g, int64_t v) {
  cy_poly p;
  p.n = 1;
  p.t[0] = (cy_term){v, 0, NULL};
  return cy_dim_intern(g, &p);
}

cy_dim cy_dim_sym(cy_graph *g, cy_sym s) {
  cy_sym_of(g, s);
  return cy_dim_atom_add(g, CY_ATOM_SYM, s, 0, 0);
}

int cy_dim_terms(const cy_graph *g, cy_dim d, const cy_term **out_terms) {
  const cy_dim_slot *s = cy_dim_slot_of(g, d);
  *out_terms = s->terms;
  return s->nterms;
}

const cy_atom *cy_dim_atom(const cy_graph *g, uint32_t atom) {
  if (atom == 0 || atom > g->atoms.count)
    cy_bug("dim atom %u of %u", atom, g->atoms.count);
  return &((const cy_atom_slot *)cy_chunks_at(&g->atoms, atom))->atom;
}

bool cy_dim_is_const(const cy_graph *g, cy_dim d, int64_t *out_value) {
  const cy_dim_slot *s = cy_dim_slot_of(g, d);
  if (s->nterms > 1 || (s->nterms == 1 && s->terms[0].natoms))
    return false;
  if (out_value)
    *out_value = s->nterms ? s->terms[0].coef : 0;
  return true;
}

bool cy_dim_is(const cy_graph *g, cy_dim d, int64_t value) {
  int64_t v;
  return cy_dim_is_const(g, d, &v) && v == value;
}

/* ---- whole numbers --------------------------------------------------------------------------------------------------- */

int64_t cy_floor_div(int64_t a, int64_t b) {
  if (b == 0)
    return 0;
  if (b == -1)
    return (int64_t)(0 - (uint64_t)a); /* wraps */
  int64_t q = a / b;
  return q - (a % b != 0 && (a % b < 0) != (b < 0));
}

int64_t cy_floor_mod(int64_t a, int64_t b) {
  if (b == 0 || b == -1)
    return 0;
  int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

int64_t cy_gcd(int64_t a, int64_t b) {
  uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
  while (y) {
    uint64_t r = x % y;
    x = y;
    y = r;
  }
  return x > INT64_MAX ? 1 : (int64_t)x;
}

/* ---- bounds ---------------------------------------------------------------------------------------------------------- */

static int64_t sat_mul(int64_t a, int64_t b) {
  int64_t r;
  return __builtin_mul_overflow(a, b, &r) ? ((a < 0) != (b < 0) ? MIN : MAX) : r;
}

/* Infinity absorbs: `inf` is the bound's own direction. */
static int64_t sat_add(int64_t a, int64_t b, int64_t inf) {
  int64_t r;
  if (a == inf || b == inf)
    return inf;
  return __builtin_add_overflow(a, b, &r) ? (a < 0 ? MIN : MAX) : r;
}

static int64_t min_value(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t max_value(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t bound_div(int64_t a, int64_t b) { return a == MIN || a == MAX ? a : cy_floor_div(a, b); }

static void atom_range(const cy_graph *g, const cy_atom *a, int64_t *out_min, int64_t *out_max) {
  int64_t alo, ahi, blo, bhi;
  if (a->kind == CY_ATOM_SYM) {
    const cy_sym_info *s = cy_sym_of(g, a->sym);
    *out_min = s->min;
    *out_max = s->max;
    return;
  }
  cy_dim_range(g, a->a, &alo, &ahi);
  cy_dim_range(g, a->b, &blo, &bhi);
  *out_min = MIN;
  *out_max = MAX;
  switch (a->kind) {
  case CY_ATOM_MIN:
    *out_min = min_value(alo, blo);
    *out_max = min_value(ahi, bhi);
    break;
  case CY_ATOM_MAX:
    *out_min = max_value(alo, blo);
    *out_max = max_value(ahi, bhi);
    break;
  case CY_ATOM_JOIN:
    *out_min = min_value(alo, blo) > 0 ? max_value(alo, blo) : min_value(max_value(alo, blo), 0);
    *out_max = max_value(ahi, bhi);
    break;
  case CY_ATOM_DIV:
    if (blo < 0)
      break;
    *out_min = bound_div(alo, alo >= 0 ? max_value(bhi, 1) : max_value(blo, 1));
    *out_max = bound_div(ahi, ahi >= 0 ? max_value(blo, 1) : max_value(bhi, 1));
    if (blo == 0) { /* x / 0 is 0 */
      *out_min = min_value(*out_min, 0);
      *out_max = max_value(*out_max, 0);
    }
    break;
  case CY_ATOM_MOD:
    if (blo < 0)
      break;
    *out_min = 0;
    *out_max = bhi == MAX ? MAX : max_value(bhi - 1, 0);
    if (alo >= 0)
      *out_max = min_value(*out_max, ahi);
    break;
  case CY_ATOM_SYM: break;
  }
}

static void atom_bounds(const cy_graph *g, uint32_t id, int64_t *out_min, int64_t *out_max) {
  const cy_atom_slot *s = cy_chunks_at(&g->atoms, id);
  if (s->atom.kind == CY_ATOM_SYM) {
    atom_range(g, &s->atom, out_min, out_max);
  } else {
    *out_min = s->min;
    *out_max = s->max;
  }
}

void cy_dim_range(const cy_graph *g, cy_dim d, int64_t *out_min, int64_t *out_max) {
  const cy_term *terms;
  int n = cy_dim_terms(g, d, &terms);
  int64_t lo = 0, hi = 0;
  for (int i = 0; i < n; i++) {
    int64_t tlo = terms[i].coef, thi = tlo;
    for (int k = 0; k < terms[i].natoms; k++) {
      int64_t alo, ahi;
      atom_bounds(g, terms[i].atoms[k], &alo, &ahi);
      int64_t p[4] = {sat_mul(tlo, alo), sat_mul(tlo, ahi), sat_mul(thi, alo), sat_mul(thi, ahi)};
      tlo = min_value(min_value(p[0], p[1]), min_value(p[2], p[3]));
      thi = max_value(max_value(p[0], p[1]), max_value(p[2], p[3]));
    }
    lo = i ? sat_add(lo, tlo, MIN) : tlo;
    hi = i ? sat_add(hi, thi, MAX) : thi;
  }
  *out_min = lo;
  *out_max = hi;
}
