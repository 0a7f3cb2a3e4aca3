/* SPDX-License-Identifier: Apache-2.0 */
/* TEMPLATE.c - a complete small pass, to be copied. It is compiled and tested, so it can't rot; it runs only by name.
 *
 * In:  a swept graph. Out: relu(relu(x)) = relu(x), as an example of a rule; the number of nodes per class, as an
 * example of a walk.
 *
 * To add a pass: copy this file; say here what comes in, what goes out, by which method and what it refuses; add a row (and
 * the reasons for its place) to passes.def; write goldens in tests/passes/NAME/: one per rule that fires, one per reason to
 * refuse. Prefer rules (rewrite.c) to walks: they are counted, named and undone one by one.
 */
#include "pass_int.h"

/* max(max(x, 0), 0). A rule returns what replaces n's output, built before n, or 0. */
static cy_val relu_relu(cy_rewrite *rw, const cy_node_info *n) {
  const cy_node_info *inner = cy_def_of(rw->g, n->in[0], CY_OP_max);
  return inner && cy_splat_is(rw->g, n->in[1], 0) && cy_splat_is(rw->g, inner->in[1], 0) ? n->in[0] : 0;
}

static const cy_rule rules[] = {
    {CY_OP_max, "relu relu", relu_relu},
};

/* Walks visit blocks by id and nodes in order; every value is defined before it is used. */
static void count_classes(cy_pass *p) {
  static const char *const names[] = {"element-wise", "view", "index", "reduction", "root", "call", "control"};
  for (cy_block b = 1; b <= cy_block_count(p->g); b++)
    for (uint32_t i = 0; i < cy_block_of(p->g, b)->nnodes; i++)
      cy_pass_count(p, names[cy_op_of((cy_op)cy_node_of(p->g, cy_block_of(p->g, b)->nodes[i])->op)->cls], 1);
}

/* requires: swept   establishes: swept   breaks: unique, folded, placed, fused */
int cy_pass_template(cy_pass *p) {
  const cy_rule_set set = {rules, sizeof rules / sizeof rules[0]};
  cy_rewrite_run(p, &set, 1);
  count_classes(p);
  return 0;
}
