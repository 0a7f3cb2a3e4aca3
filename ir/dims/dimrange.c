/* SPDX-License-Identifier: Apache-2.0 */
/* dimrange.c - what is certain about dims (bounds, order), their evaluation, and the symbols they are made of.
 *
 * Bounds saturate: INT64_MIN / INT64_MAX stand for "unbounded". Bounds of composite atoms are found once, when the atom
 * is made, so bounds that a symbol is given later are not seen through min, max, div and mod: set a symbol's bounds
 * before using it. cy_dim_le(a, b) looks at b - a; where its bounds alone do not decide, an atom is replaced by
 * something it is certainly not below (or above) and the rest is tried again, a few levels deep.
 */
#include "dims_int.h"

#include <stdlib.h>

#define MIN INT64_MIN
#define MAX INT64_MAX

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

void cy_atom_range(const cy_graph *g, const cy_atom *a, int64_t *out_min, int64_t *out_max) {
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
    cy_atom_range(g, &s->atom, out_min, out_max);
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

/* ---- order ------------------------------------------------------------------------------------------------------- */

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

/* ---- evaluation -------------------------------------------------------------------------------------------------- */

static int64_t eval_atom(const cy_graph *g, uint32_t id, const int64_t *syms) {
  const cy_atom *a = cy_dim_atom(g, id);
  if (a->kind == CY_ATOM_SYM)
    return syms[a->sym];
  int64_t x = cy_dim_eval(g, a->a, syms), y = cy_dim_eval(g, a->b, syms);
  switch (a->kind) {
  case CY_ATOM_DIV: return cy_floor_div(x, y);
  case CY_ATOM_MOD: return cy_floor_mod(x, y);
  case CY_ATOM_MIN: return min_value(x, y);
  case CY_ATOM_JOIN:
    return x && y ? max_value(x, y) : 0;
  default: return max_value(x, y);
  }
}

int64_t cy_dim_eval(const cy_graph *g, cy_dim d, const int64_t *syms) {
  const cy_term *terms;
  int n = cy_dim_terms(g, d, &terms);
  uint64_t sum = 0;
  for (int i = 0; i < n; i++) {
    uint64_t product = (uint64_t)terms[i].coef;
    for (int k = 0; k < terms[i].natoms; k++)
      product *= (uint64_t)eval_atom(g, terms[i].atoms[k], syms);
    sum += product;
  }
  return (int64_t)sum;
}

/* ---- symbols ----------------------------------------------------------------------------------------------------- */

typedef struct walk {
  const cy_graph *g;
  unsigned char *seen; /* by atom */
  void (*visit)(void *ctx, cy_sym s);
  void *ctx;
} walk;

static void walk_dim(walk *w, cy_dim d) {
  const cy_term *terms;
  int n = cy_dim_terms(w->g, d, &terms);
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < terms[i].natoms; k++) {
      uint32_t id = terms[i].atoms[k];
      if (w->seen[id])
        continue;
      w->seen[id] = 1;
      const cy_atom *a = cy_dim_atom(w->g, id);
      if (a->kind == CY_ATOM_SYM) {
        w->visit(w->ctx, a->sym);
      } else {
        walk_dim(w, a->a);
        walk_dim(w, a->b);
      }
    }
  }
}

void cy_dim_symbols(const cy_graph *g, cy_dim d, void (*visit)(void *ctx, cy_sym s), void *ctx) {
  if (cy_dim_is_const(g, d, NULL))
    return;
  unsigned char few[512] = {0}, *seen = few;
  if (g->atoms.count >= sizeof few && !(seen = calloc(g->atoms.count + 1, 1)))
    cy_no_memory();
  walk w = {g, seen, visit, ctx};
  walk_dim(&w, d);
  if (seen != few)
    free(seen);
}

cy_sym cy_dim_symbol(const cy_graph *g, cy_dim d) {
  const cy_term *t;
  if (cy_dim_terms(g, d, &t) != 1 || t->natoms != 1 || t->coef != 1)
    return 0;
  const cy_atom *atom = cy_dim_atom(g, t->atoms[0]);
  return atom->kind == CY_ATOM_SYM ? atom->sym : 0;
}

typedef struct data_query {
  const cy_graph *g;
  bool found;
} data_query;

static void note_data(void *ctx, cy_sym s) {
  data_query *q = ctx;
  cy_sym_kind kind = cy_sym_of(q->g, s)->kind;
  q->found |= kind != CY_SYM_INPUT && kind != CY_SYM_ROOM;
}

bool cy_dim_has_data_sym(const cy_graph *g, cy_dim d) {
  data_query q = {g, false};
  cy_dim_symbols(g, d, note_data, &q);
  return q.found;
}

uint32_t cy_sym_count(const cy_graph *g) { return g->syms.count; }

cy_sym_info *cy_sym_of(const cy_graph *g, cy_sym s) {
  if (s == 0 || s > g->syms.count)
    cy_bug("symbol %u of %u", s, g->syms.count);
  return cy_chunks_at(&g->syms, s);
}

/* The slot that says which symbol a string names. */
static uint32_t *sym_slot(cy_graph *g, cy_str name) {
  if (name >= g->sym_of_str_size) {
    uint32_t size = g->strs.count * 2 + 64;
    uint32_t *grown = CY_NEW_ARRAY(g->arena, uint32_t, size);
    if (g->sym_of_str_size)
      memcpy(grown, g->sym_of_str, sizeof *grown * g->sym_of_str_size);
    g->sym_of_str = grown;
    g->sym_of_str_size = size;
  }
  return &g->sym_of_str[name];
}

static cy_str fresh_name(cy_graph *g, cy_sym id) {
  char text[48];
  for (uint32_t n = id;; n++) {
    snprintf(text, sizeof text, "s%u", n);
    cy_str name = cy_intern(g, text);
    if (!*sym_slot(g, name))
      return name;
  }
}

cy_sym cy_sym_new(cy_graph *g, const char *name, cy_sym_kind kind) {
  cy_sym s = cy_chunks_add(&g->syms, g->arena);
  cy_str str = name && *name ? cy_intern(g, name) : 0;
  if (!str || *sym_slot(g, str))
    str = fresh_name(g, s);
  *sym_slot(g, str) = s;
  bool counts = kind == CY_SYM_INPUT || kind == CY_SYM_COUNT || kind == CY_SYM_ROOM;
  *cy_sym_of(g, s) = (cy_sym_info){.name = str, .kind = kind, .min = counts ? 0 : MIN, .max = MAX};
  return s;
}

cy_sym cy_sym_find(const cy_graph *g, const char *name, size_t len) {
  cy_str str = cy_intern_n((cy_graph *)g, name, len);
  return str < g->sym_of_str_size ? g->sym_of_str[str] : 0;
}

cy_sym cy_sym_by_name(cy_graph *g, const char *name) {
  cy_sym s = cy_sym_find(g, name, strlen(name));
  if (s && cy_sym_of(g, s)->kind != CY_SYM_INPUT) { /* a made-up name was taken: the model's own comes first */
    *sym_slot(g, cy_sym_of(g, s)->name) = 0;
    cy_sym t = cy_sym_new(g, name, CY_SYM_INPUT);
    cy_sym_of(g, s)->name = fresh_name(g, s);
    *sym_slot(g, cy_sym_of(g, s)->name) = s;
    return t;
  }
  return s ? s : cy_sym_new(g, name, CY_SYM_INPUT);
}
