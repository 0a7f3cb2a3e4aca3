/* SPDX-License-Identifier: Apache-2.0 */
/* lower_branch.c - symbols that are set while the program runs, and branches of steps by sizes.
 *
 * In:  a size or a value of the graph. Out: steps that set a symbol, or that choose what is done next; the steps of a side
 * are appended between cy_lower_branch(), cy_lower_otherwise() and cy_lower_join().
 */
#include "lower_int.h"

cy_sym cy_lower_read_scalar(cy_lowering *l, cy_val v) {
  cy_sym sym = cy_sym_new(l->g, NULL, CY_SYM_FREE);
  cy_lower_read(l, cy_lower_place(l, v), (cy_dtype)cy_lower_type(l, v)->dtype, sym);
  return sym;
}

cy_step *cy_lower_set_symbol(cy_lowering *l, cy_sym sym, cy_dim value) {
  cy_step *s = cy_lower_step(l, CY_STEP_SET);
  s->sym = sym;
  s->limit = value;
  return s;
}

cy_sym cy_lower_count_symbol(cy_lowering *l, cy_dim d, cy_val v) {
  const cy_term *terms;
  if (cy_dim_terms(l->g, d, &terms) != 1 || terms[0].coef != 1 || terms[0].natoms != 1)
    return 0;
  const cy_atom *a = cy_dim_atom(l->g, terms[0].atoms[0]);
  if (a->kind != CY_ATOM_SYM)
    return 0;
  const cy_sym_info *s = cy_sym_of(l->g, a->sym);
  return s->kind == CY_SYM_COUNT && s->value == v ? a->sym : 0;
}

/* ---- branches by sizes ---- */

void cy_lower_branch(cy_lowering *l, cy_dim d, cy_branch *out) {
  cy_sym cond = cy_sym_new(l->g, NULL, CY_SYM_FREE);
  cy_lower_set_symbol(l, cond, d);
  out->step = cy_lower_step(l, CY_STEP_IF);
  out->step->sym = cond;
  out->after = l->tail;
  l->tail = &out->step->then_steps;
}

bool cy_lower_branch_from(cy_lowering *l, cy_dim d, int64_t min, cy_branch *out) {
  int64_t lo, hi;
  cy_dim_range(l->g, d, &lo, &hi);
  if (lo < min)
    cy_lower_branch(l, cy_dim_div(l->g, d, cy_dim_const(l->g, min)), out);
  return lo >= min;
}

void cy_lower_otherwise(cy_lowering *l, cy_branch *b) { l->tail = &b->step->else_steps; }

void cy_lower_join(cy_lowering *l, cy_branch *b) { l->tail = b->after; }
