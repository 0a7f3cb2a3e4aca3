/* SPDX-License-Identifier: Apache-2.0 */
/* dimeval.c - the values of dims, and the symbols that they are made of.
 *
 * In: a dim, values of symbols. Out: a number; a call for each symbol.
 */
#include "dims_int.h"

#include <stdlib.h>

/* ---- evaluation -------------------------------------------------------------------------------------------------- */

static int64_t eval_atom(const cy_graph *g, uint32_t id, const int64_t *syms) {
  const cy_atom *a = cy_dim_atom(g, id);
  if (a->kind == CY_ATOM_SYM)
    return syms[a->sym];
  int64_t x = cy_dim_eval(g, a->a, syms), y = cy_dim_eval(g, a->b, syms);
  switch (a->kind) {
  case CY_ATOM_DIV: return cy_floor_div(x, y);
  case CY_ATOM_MOD: return cy_floor_mod(x, y);
  case CY_ATOM_MIN: return x < y ? x : y;
  case CY_ATOM_JOIN:
    return x && y ? (x > y ? x : y) : 0;
  default: return x > y ? x : y;
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
