/* SPDX-License-Identifier: Apache-2.0 */
/* simplify_rows.c - of a product of which some rows are read, computes these: logits of the last position, the class token.
 *
 * In:  a slice along one axis, by steps of 1, of a matrix product, or of what is computed row by row behind one:
 * element-wise ops, normalisations. Out: the product of a slice of its rows, and so on behind it.
 * Each of these values has no other use, or it would be computed twice. The slice only moves if it reaches a product:
 * elsewhere it had better stay behind a kernel that takes more into its epilogue.
 */
#include "simplify.h"

enum { MAX_STEPS = 12 }; /* ops between the slice and the product */

typedef struct window {
  cy_dim start, size, whole;
  int from_end; /* the axis, counted from the last, which is 1: operands may have fewer axes */
} window;

static int axis_in(const window *w, const cy_type *t) { return t->rank - w->from_end; }
static bool has_axis(const window *w, const cy_type *t) {
  return axis_in(w, t) >= 0 && t->dim[axis_in(w, t)] == w->whole;
}

/* The one axis that n cuts. */
static bool find_window(cy_graph *g, const cy_node_info *n, window *out) {
  const cy_type *from = cy_type_of(g, n->in[0]), *to = cy_type_of(g, n->out[0]);
  uint32_t rank;
  const int64_t *steps = cy_attr_list(n, CY_ATTR_steps, &rank);
  const cy_dim *starts = cy_attr_dim_list(n, CY_ATTR_starts, &rank);
  int cropped = -1;
  for (int i = 0; i < from->rank; i++) {
    if (steps[i] == 1 && from->dim[i] == to->dim[i])
      continue;
    if (steps[i] != 1 || cropped >= 0)
      return false;
    cropped = i;
  }
  if (cropped < 0)
    return false;
  *out = (window){starts[cropped], to->dim[cropped], from->dim[cropped], from->rank - cropped};
  return true;
}

static bool normalises_across(const cy_node_info *n, int axis) {
  uint32_t count;
  const int64_t *axes = cy_attr_list(n, CY_ATTR_axes, &count);
  for (uint32_t i = 0; i < count; i++)
    if (axes[i] == axis)
      return true;
  return false;
}

/* Is v computed row by row, from rows of a product that nothing else reads? */
static bool reaches_product(cy_rewrite *rw, cy_val v, const window *w, int steps) {
  cy_graph *g = rw->g;
  const cy_node_info *n = cy_def(g, v);
  if (!n || n->nout != 1 || !steps || !cy_rewrite_single_use(rw, v) || !has_axis(w, cy_type_of(g, v)))
    return false;
  if (n->op == CY_OP_matmul)
    return n->nin == 2 && w->from_end == 2 && has_axis(w, cy_type_of(g, n->in[0]));
  if (n->op == CY_OP_normalize)
    return !normalises_across(n, axis_in(w, cy_type_of(g, v))) && reaches_product(rw, n->in[0], w, steps - 1);
  bool found = false;
  for (uint32_t i = 0; i < n->nin && cy_op_is_ew((cy_op)n->op) && !found; i++)
    found = reaches_product(rw, n->in[i], w, steps - 1);
  return found;
}

static cy_val windowed(cy_rewrite *rw, cy_val v, const window *w, int steps);

/* Operand i of n for those rows of its result. */
static cy_val operand(cy_rewrite *rw, const cy_node_info *n, uint32_t i, const window *w, int steps) {
  const cy_type t = *cy_type_of(rw->g, n->in[i]);
  if (!has_axis(w, &t) || (n->op == CY_OP_matmul && i))
    return n->in[i]; /* broadcast along it, or all columns */
  if (n->op != CY_OP_matmul && reaches_product(rw, n->in[i], w, steps))
    return windowed(rw, n->in[i], w, steps);
  return cy_build_slice_axis(rw->g, n->in[i], axis_in(w, &t), w->start, w->size);
}

static cy_val windowed(cy_rewrite *rw, cy_val v, const window *w, int steps) {
  cy_graph *g = rw->g;
  const cy_node_info *n = cy_def(g, v);
  cy_val in[4];
  if (n->nin > 4)
    return 0;
  for (uint32_t i = 0; i < n->nin; i++)
    if (!(in[i] = operand(rw, n, i, w, steps - 1)))
      return 0;
  cy_type t = *cy_type_of(g, v);
  t.dim[axis_in(w, &t)] = w->size;
  bool typed = cy_op_of((cy_op)n->op)->typed;
  return cy_build(g, (cy_op)n->op, in, n->nin, n->attrs, n->nattrs, typed ? &t : NULL, typed);
}

static cy_val rows_of_product(cy_rewrite *rw, const cy_node_info *n) {
  window w;
  if (!find_window(rw->g, n, &w) || !reaches_product(rw, n->in[0], &w, MAX_STEPS))
    return 0;
  cy_val y = windowed(rw, n->in[0], &w, MAX_STEPS);
  return y && cy_type_equal(cy_type_of(rw->g, y), cy_type_of(rw->g, n->out[0])) ? y : 0;
}

static const cy_rule rules[] = {
    {CY_OP_slice, "rows of a product", rows_of_product},
};

cy_rule_set cy_simplify_rows_rules(void) { return (cy_rule_set){rules, sizeof rules / sizeof rules[0]}; }
