/* SPDX-License-Identifier: Apache-2.0 */
/* loops_flat.c - epilogues of several rows at once, where a row has few columns, or of parts of a row, where its columns
 * lie in several places.
 *
 * In: the body of a contraction kernel. Out: whether neighbouring rows may go through it as lanes of one vector: what it
 * stores must lie row behind row without gaps, and what it loads too, or be the same for all rows, like a bias. It then
 * begins at column 0 of a row, and goes on with the next row behind the last column. Or: how many columns, from any
 * multiple of these on, lie side by side, as those of a position do where channels become spatial positions.
 */
#include "loops_int.h"

#include <stdlib.h>

bool cy_lp_coefficient(const cy_kernel *k, cy_expr e, cy_var v, int64_t *out) {
  const cy_expr_info *x = cy_expr_of(k, e);
  int64_t a = 0, b = 0, factor;
  *out = x->op == CY_X_VAR && x->id == v;
  if (x->op == CY_X_LOCAL)
    return false;
  if (x->op == CY_X_VAR || !cy_expr_uses_var(k, e, v))
    return true;
  if ((x->op != CY_OP_add && x->op != CY_OP_sub && x->op != CY_OP_mul) || !cy_lp_coefficient(k, x->arg[0], v, &a) ||
      !cy_lp_coefficient(k, x->arg[1], v, &b))
    return false;
  if (x->op == CY_OP_mul && !cy_expr_is_int(k, x->arg[a ? 1 : 0], &factor))
    return false;
  *out = x->op == CY_OP_add ? a + b : x->op == CY_OP_sub ? a - b : (a ? a : b) * factor;
  return true;
}

typedef enum place { NOWHERE, SAME, BEHIND } place;

/* Where the rows behind the first one lie. */
static place rows_of(cy_kernel *k, cy_expr offset) {
  const cy_contraction *c = cy_kernel_contraction(k);
  int64_t dense = 1, step, extent;
  bool same = true, behind = true;
  for (int i = c->nout_vars - 1; i >= 0; i--) {
    bool known = cy_dim_is_const(cy_kernel_graph(k), cy_kernel_var(k, c->out_var[i])->extent, &extent);
    if (known && extent == 1)
      continue;
    if ((!known && i > 0) || !cy_lp_coefficient(k, offset, c->out_var[i], &step))
      return NOWHERE;
    behind &= step == dense;
    same &= step == 0 || (i == c->nout_vars - 1 && step == 1);
    dense *= extent;
  }
  return behind ? BEHIND : same ? SAME : NOWHERE;
}

/* Does every lane get what it should for value e? seen: expressions that have been looked at. */
static bool fits(cy_kernel *k, cy_expr e, bool *seen) {
  const cy_expr_info *x = cy_expr_of(k, e);
  if (seen[e])
    return true;
  seen[e] = true;
  if (x->op == CY_X_LOAD)
    return !cy_lp_packed(x->dtype) && rows_of(k, x->arg[0]) != NOWHERE;
  if (x->op == CY_X_VAR || (x->op == CY_OP_select && !x->id))
    return false;
  for (int i = 0; i < x->n; i++)
    if (!fits(k, x->arg[i], seen))
      return false;
  return true;
}

unsigned cy_lp_flat_columns(cy_kernel *k) {
  const cy_contraction *c = cy_kernel_contraction(k);
  int64_t columns;
  cy_dim last = cy_kernel_var(k, c->out_var[c->nout_vars - 1])->extent;
  if (c->kind == CY_CONTRACT_ATTENTION || !cy_dim_is_const(cy_kernel_graph(k), last, &columns) || columns < 2 ||
      columns > 64)
    return 0;
  bool *seen = cy_lp_marks(k), all = true;
  for (const cy_stmt *s = cy_kernel_body(k); s && all; s = s->next) {
    all = (s->kind == CY_S_STORE || s->kind == CY_S_SET) && fits(k, s->value, seen);
    if (s->kind == CY_S_STORE)
      all = all && !cy_lp_packed(cy_kernel_arg_dtype(k, s->arg)) && rows_of(k, s->offset) == BEHIND;
  }
  free(seen);
  return all ? (unsigned)columns : 0;
}

bool cy_lp_rows_same(cy_kernel *k, cy_expr offset) { return rows_of(k, offset) == SAME; }

/* ---- parts ---- */

/* v / n or v % n; returns n, or 0. */
static int64_t divisor(const cy_kernel *k, const cy_expr_info *x, cy_var v) {
  int64_t n;
  if ((x->op != CY_OP_div && x->op != CY_OP_mod) || !cy_expr_is_int(k, x->arg[1], &n))
    return 0;
  const cy_expr_info *of = cy_expr_of(k, x->arg[0]);
  return of->op == CY_X_VAR && of->id == v ? n : 0;
}

unsigned cy_lp_part_lanes(cy_kernel *k, unsigned max) {
  const cy_contraction *c = cy_kernel_contraction(k);
  bool *marks = cy_lp_marks(k), any = false;
  int64_t part = max;
  for (const cy_stmt *s = cy_kernel_body(k); s; s = s->next)
    if (s->kind == CY_S_STORE)
      cy_expr_mark(k, s->offset, marks);
  for (cy_expr e = 1; e <= cy_expr_count(k); e++)
    for (int64_t n = marks[e] ? divisor(k, cy_expr_of(k, e), c->out_var[c->nout_vars - 1]) : 0, rest; n; n = rest) {
      any = true;
      rest = part % n; /* the greatest common divisor */
      part = n;
    }
  free(marks);
  return any ? (unsigned)part : 0;
}

bool cy_lp_part_of(const cy_lp *p, const cy_expr_info *e) {
  int64_t n = p->part && p->lane ? divisor(p->k, e, p->lane) : 0;
  return n && n % p->part == 0;
}
