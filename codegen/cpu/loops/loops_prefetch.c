/* SPDX-License-Identifier: Apache-2.0 */
/* loops_prefetch.c - prefetches what the body of a contraction kernel will read and write, and what loops stream.
 *
 * In: the index of an output. Out: a prefetch for each load, and store, that lies side by side along the columns and
 * elsewhere for each row (a residual sum, not a bias), if nothing has to be loaded to know where.
 * In: a loop that reads bytes line by line (weights in tiles). Out: a prefetch of a line far ahead in every iteration,
 * since the hardware stops where a page ends: 16 MB at 13 GB/s instead of 7 (Sapphire Rapids).
 */
#include "loops_int.h"

#include <stdlib.h>
#include <string.h>

/* Does an offset move with the rows of the output? out_known: without loading anything? */
static bool by_row(const cy_kernel *k, cy_expr e, cy_var column, bool *out_known) {
  const cy_expr_info *x = cy_expr_of(k, e);
  bool moves = x->op == CY_X_VAR && x->id != column;
  *out_known &= x->op != CY_X_LOAD && x->op != CY_X_LOCAL;
  for (int i = 0; i < x->n; i++)
    moves |= by_row(k, x->arg[i], column, out_known);
  return moves;
}

static bool is_worth(cy_kernel *k, cy_karg arg, cy_expr offset) {
  const cy_contraction *c = cy_kernel_contraction(k);
  bool known = !cy_lp_packed(cy_kernel_arg_dtype(k, arg));
  return by_row(k, offset, c->out_var[c->nout_vars - 1], &known) && known;
}

/* The loads that are worth it; free() them. */
static bool *loads_of(cy_kernel *k, bool *out_some) {
  bool *marks = cy_lp_marks(k);
  *out_some = false;
  cy_stmt_mark(k, cy_kernel_body(k), marks);
  for (cy_expr e = 1; e <= cy_expr_count(k); e++) {
    const cy_expr_info *x = cy_expr_of(k, e);
    marks[e] = marks[e] && x->op == CY_X_LOAD && is_worth(k, x->id, x->arg[0]);
    *out_some |= marks[e];
  }
  return marks;
}

bool cy_lp_reads_to_prefetch(cy_kernel *k) {
  bool some;
  free(loads_of(k, &some));
  return some;
}

void cy_lp_prefetch_all(cy_lp *p, const V *idx, bool stores) {
  const cy_contraction *c = cy_kernel_contraction(p->k);
  bool some, *loads = loads_of(p->k, &some);
  for (int i = 0; i < c->nout_vars; i++)
    p->var[c->out_var[i]] = idx[i];
  p->lanes = p->cg->W;
  p->lane = c->out_var[c->nout_vars - 1];
  memset(p->vary, 0, p->nexprs);
  for (cy_expr e = 1; some && e <= cy_expr_count(p->k); e++)
    if (loads[e])
      cy_lp_prefetch(p, cy_expr_of(p->k, e)->id, cy_expr_of(p->k, e)->arg[0], 0, false);
  for (const cy_stmt *s = stores ? cy_kernel_body(p->k) : NULL; s; s = s->next)
    if (s->kind == CY_S_STORE && is_worth(p->k, s->arg, s->offset))
      cy_lp_prefetch(p, s->arg, s->offset, 0, true);
  cy_lp_statement(p);
  p->lanes = 1;
  p->lane = 0;
  memset(p->vary, 0, p->nexprs);
  free(loads);
}

enum { STREAM_LINE = 64, STREAM_PREFETCH = 8192 };

/* Does a load of one cache line begin where that of the iteration before ended? */
static bool is_stream(cy_lp *p, const cy_expr_info *x, cy_var iteration) {
  cy_affine a;
  if (x->op != CY_X_LOAD || cy_lp_bytes(x->dtype) != 1 || cy_lp_packed(x->dtype) ||
      !cy_expr_affine(p->k, x->arg[0], &a) || a.rest)
    return false;
  for (int i = 0; i < a.n; i++)
    if (a.var[i] == iteration)
      return cy_dim_is(cy_kernel_graph(p->k), a.coef[i], STREAM_LINE);
  return false;
}

void cy_lp_stream(cy_lp *p, const cy_stmt *loop) {
  if (p->lanes != STREAM_LINE || p->guard)
    return;
  cy_expr count = cy_expr_count(p->k);
  bool *marks = cy_lp_marks(p->k);
  cy_stmt_mark(p->k, loop->body, marks);
  for (cy_expr e = 1; e <= count; e++) {
    const cy_expr_info x = *cy_expr_of(p->k, e);
    if (marks[e] && is_stream(p, &x, loop->var))
      cy_lp_prefetch(p, x.id, x.arg[0], STREAM_PREFETCH, false);
  }
  free(marks);
}
