/* SPDX-License-Identifier: Apache-2.0 */
/* loop_axes.c - the axes of plain loop kernels: what accesses walk along them, and which of them are one.
 *
 * In: a kernel as lowering composed it, grid variables in the output's logical order, loops as they came. Out: the same
 * results with
 *   - no axes of one element;
 *   - axes whose indices are all taken apart by one size (i / c and i % c: a shuffle of channels) cut in two;
 *   - grid variables by decreasing stride of the store;
 *   - neighbouring axes merged where every access treats them as one (coef(outer) = coef(inner) * extent(inner)).
 */
#include "loop_axes.h"

#include <stdlib.h>

/* ---- accesses ---- */

static void *more(void *items, uint32_t n, uint32_t *cap, size_t size) {
  if (n < *cap)
    return items;
  *cap = *cap ? *cap * 2 : 16;
  items = realloc(items, *cap * size);
  if (!items)
    cy_no_memory();
  return items;
}

static void survey_expr(survey *s, record *r, cy_expr e);

static void survey_offset(survey *s, record *r, cy_expr offset) {
  s->access = more(s->access, s->naccess, &s->access_cap, sizeof *s->access);
  access *a = &s->access[s->naccess++];
  a->regular = cy_expr_affine(s->k, offset, &a->at);
  cy_expr rest = a->regular ? a->at.rest : offset;
  if (rest)
    survey_expr(s, r, rest);
}

static void survey_expr(survey *s, record *r, cy_expr e) {
  if (e < s->nseen) { /* the rest of an affine sum may be new: seldom, and small */
    if (s->seen[e])
      return;
    s->seen[e] = true;
  }
  const cy_expr_info x = *cy_expr_of(s->k, e);
  if (x.op == CY_X_VAR)
    s->loose[x.id] = true;
  if (x.op == CY_X_LOAD) {
    survey_offset(s, r, x.arg[0]);
    return;
  }
  r->ops += x.n > 0;
  for (int i = 0; i < x.n; i++)
    survey_expr(s, r, x.arg[i]);
}

double cy_survey_iterations(const cy_kernel *k, cy_var v) {
  int64_t n;
  return cy_dim_is_const(k->g, cy_kernel_var(k, v)->extent, &n) ? (double)n : 64;
}

static void survey_list(survey *s, const cy_stmt *st, record *outer) {
  for (; st; st = st->next) {
    record r = *outer;
    if (st->kind == CY_S_FOR) {
      if (r.nloops == NEST)
        cy_bug("kernel '%s' nests too deeply", s->k->name);
      r.loop[r.nloops++] = st->var;
      r.iterations *= cy_survey_iterations(s->k, st->var);
    } else {
      for (uint32_t i = 0; i < s->nseen; i++)
        s->seen[i] = false;
      r.first = s->naccess;
      r.ops = 1;
      r.store = st->kind == CY_S_STORE;
      if (r.store)
        survey_offset(s, &r, st->offset);
      survey_expr(s, &r, st->value);
      r.last = s->naccess;
      s->record = more(s->record, s->nrecord, &s->record_cap, sizeof *s->record);
      s->record[s->nrecord++] = r;
    }
    survey_list(s, st->body, &r);
  }
}

survey cy_survey_make(cy_kernel *k) {
  survey s = {.k = k, .nseen = cy_expr_count(k) + 1};
  s.loose = calloc(k->nvars + 1, 1);
  s.seen = calloc(s.nseen, 1);
  if (!s.loose || !s.seen)
    cy_no_memory();
  record outer = {.iterations = 1};
  survey_list(&s, k->body, &outer);
  return s;
}

void cy_survey_free(survey *s) {
  free(s->access);
  free(s->record);
  free(s->loose);
  free(s->seen);
}

/* ---- axes of one element ---- */

static bool is_one(const cy_kernel *k, cy_var v) { return cy_dim_is(k->g, cy_kernel_var(k, v)->extent, 1); }

static void drop_loops(cy_kernel *k, cy_stmt **at) {
  while (*at) {
    cy_stmt *s = *at;
    drop_loops(k, &s->body);
    if (s->kind == CY_S_FOR && is_one(k, s->var)) { /* its variable was made as the constant 0 */
      cy_stmt **end = &s->body;
      while (*end)
        end = &(*end)->next;
      *end = s->next;
      *at = s->body;
      at = end;
    } else {
      at = &s->next;
    }
  }
}

static void drop_grid(cy_kernel *k) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < k->ngrid; i++)
    if (!is_one(k, k->grid[i]))
      k->grid[n++] = k->grid[i];
  k->ngrid = n;
}

/* ---- axes taken apart ---- */

static void mark_roots(const cy_stmt *s, bool *used) {
  for (; s; s = s->next) {
    used[s->offset] = used[s->value] = true;
    mark_roots(s->body, used);
  }
}

/* [expression]: does a statement use it? Operands are older than what is made of them. */
static bool *used_exprs(const cy_kernel *k) {
  bool *used = calloc(cy_expr_count(k) + 1, 1);
  if (!used)
    cy_no_memory();
  mark_roots(k->body, used);
  for (cy_expr e = cy_expr_count(k); e > 0; e--) {
    const cy_expr_info *x = cy_expr_of(k, e);
    for (int i = 0; used[e] && i < x->n; i++)
      used[x->arg[i]] = true;
  }
  return used;
}

/* The size that e is, 0 when it is none. */
static cy_dim size_of(const cy_kernel *k, cy_expr e) {
  const cy_expr_info *x = cy_expr_of(k, e);
  return x->op == CY_X_CONST ? cy_dim_const(k->g, x->c.i) : x->op == CY_X_DIM ? x->id : 0;
}

/* What all divisions and remainders of v alone divide by, 0 when that is not one size. */
static cy_dim only_divisor(const cy_kernel *k, cy_var v) {
  bool *used = used_exprs(k), one = true;
  cy_dim c = 0;
  for (cy_expr e = 1; e <= cy_expr_count(k) && one; e++) {
    const cy_expr_info *x = cy_expr_of(k, e);
    if (!used[e] || (x->op != CY_OP_div && x->op != CY_OP_mod))
      continue;
    const cy_expr_info *of = cy_expr_of(k, x->arg[0]);
    if (of->op != CY_X_VAR || of->id != v)
      continue;
    cy_dim by = size_of(k, x->arg[1]);
    one = by && (!c || by == c);
    c = by;
  }
  free(used);
  return one ? c : 0;
}

/* The grid variable at `at` as outer * c + inner where c is its only divisor. */
static void take_apart(cy_kernel *k, uint32_t at) {
  cy_var v = k->grid[at];
  cy_dim n = cy_kernel_var(k, v)->extent, c = only_divisor(k, v), times;
  int64_t known;
  if (!c || (cy_dim_is_const(k->g, c, &known) && known < 2) || n == c || !cy_dim_divides(k->g, c, n, &times))
    return;
  cy_var outer = cy_kernel_add_var(k, times), inner = cy_kernel_add_var(k, c);
  cy_expr by = cy_x_bin(k, CY_OP_mul, cy_x_var(k, outer), cy_x_dim(k, c));
  cy_kernel_subst_var(k, v, cy_x_bin(k, CY_OP_add, by, cy_x_var(k, inner)));
  cy_kernel_var(k, v)->grid = false;
  k->grid[at] = outer;
  cy_kernel_var(k, outer)->grid = true;
  cy_kernel_add_grid(k, inner);
  for (uint32_t i = k->ngrid - 1; i > at + 1; i--) {
    k->grid[i] = k->grid[i - 1];
    k->grid[i - 1] = inner;
  }
}

static void take_axes_apart(cy_kernel *k) {
  for (uint32_t i = 0; i < k->ngrid; i++)
    take_apart(k, i);
}

/* ---- merging ---- */

cy_dim cy_survey_coef(const survey *s, const access *a, cy_var v) {
  for (int i = 0; i < a->at.n; i++)
    if (a->at.var[i] == v)
      return a->at.coef[i];
  return cy_dim_const(s->k->g, 0);
}

bool cy_survey_mergeable(const survey *s, cy_var outer, cy_var inner) {
  if (s->loose[outer] || s->loose[inner])
    return false;
  cy_dim extent = cy_kernel_var(s->k, inner)->extent;
  for (uint32_t i = 0; i < s->naccess; i++) {
    const access *a = &s->access[i];
    if (!a->regular || cy_survey_coef(s, a, outer) != cy_dim_mul(s->k->g, cy_survey_coef(s, a, inner), extent))
      return false;
  }
  return true;
}

cy_var cy_survey_merge(cy_kernel *k, cy_var outer, cy_var inner) {
  cy_dim extent = cy_dim_mul(k->g, cy_kernel_var(k, outer)->extent, cy_kernel_var(k, inner)->extent);
  cy_var v = cy_kernel_add_var(k, extent);
  cy_kernel_subst_var(k, outer, cy_x_index(k, 0));
  cy_kernel_subst_var(k, inner, cy_x_var(k, v));
  return v;
}

static bool merge_grid(cy_kernel *k) {
  survey s = cy_survey_make(k);
  bool merged = false;
  for (uint32_t i = 0; i + 1 < k->ngrid && !merged; i++) {
    if (!cy_survey_mergeable(&s, k->grid[i], k->grid[i + 1]))
      continue;
    cy_var v = cy_survey_merge(k, k->grid[i], k->grid[i + 1]);
    cy_kernel_var(k, v)->grid = true;
    k->grid[i] = v;
    for (uint32_t j = i + 1; j + 1 < k->ngrid; j++)
      k->grid[j] = k->grid[j + 1];
    k->ngrid--;
    merged = true;
  }
  cy_survey_free(&s);
  return merged;
}

static int bound_by(const cy_stmt *s, cy_var v) { /* how many loops run over v */
  int n = 0;
  for (; s; s = s->next)
    n += (s->kind == CY_S_FOR && s->var == v) + bound_by(s->body, v);
  return n;
}

static bool merge_loops(cy_kernel *k, const survey *s, cy_stmt *st) {
  for (; st; st = st->next) {
    cy_stmt *in = st->body;
    bool nest = st->kind == CY_S_FOR && in && in->kind == CY_S_FOR && !in->next;
    if (nest && !st->lanes && bound_by(k->body, st->var) == 1 && bound_by(k->body, in->var) == 1 &&
        cy_survey_mergeable(s, st->var, in->var)) {
      st->var = cy_survey_merge(k, st->var, in->var);
      st->lanes = in->lanes;
      st->body = in->body;
      return true;
    }
    if (merge_loops(k, s, st->body))
      return true;
  }
  return false;
}

static bool merge_nests(cy_kernel *k) {
  survey s = cy_survey_make(k);
  bool merged = merge_loops(k, &s, k->body);
  cy_survey_free(&s);
  return merged;
}

/* ---- the order of the grid ---- */

/* Does a step along a move the store farther than one along b? */
static bool farther(const survey *s, cy_var a, cy_var b) {
  for (uint32_t i = 0; i < s->nrecord; i++) {
    const record *r = &s->record[i];
    if (!r->store || !s->access[r->first].regular)
      continue;
    cy_dim x = cy_survey_coef(s, &s->access[r->first], a), y = cy_survey_coef(s, &s->access[r->first], b);
    return x != y && cy_dim_le(s->k->g, y, x);
  }
  return false;
}

static void order_grid(cy_kernel *k) {
  survey s = cy_survey_make(k);
  for (uint32_t i = 1; i < k->ngrid; i++)
    for (uint32_t j = i; j > 0 && farther(&s, k->grid[j], k->grid[j - 1]); j--) {
      cy_var v = k->grid[j];
      k->grid[j] = k->grid[j - 1];
      k->grid[j - 1] = v;
    }
  cy_survey_free(&s);
}

/* ---- all of it ---- */

void cy_kernel_tidy_axes(cy_kernel *k) {
  drop_loops(k, &k->body);
  drop_grid(k);
  take_axes_apart(k);
  order_grid(k);
  while (merge_grid(k) || merge_nests(k))
    ;
}
