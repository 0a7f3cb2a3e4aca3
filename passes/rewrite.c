/* SPDX-License-Identifier: Apache-2.0 */
/* rewrite.c - the driver of local rewrites: rows {root op, name, callback}, applied to a fixpoint.
 *
 * In:  a swept graph, sets of rules. Out: the graph with every rule applied wherever it fires, swept; each rule counted
 * by name.
 *
 * Rules for rule writers
 *   - Return a value equal to the node's first output for every input, within rounding, or 0. The type must be the
 *     same: a replacement of another type is dropped (an unseen broadcast, an unproven dimension).
 *   - Shrink the graph, or keep its cost and move it towards one canonical form (constants second, transposes down).
 *     Never undo another rule: two rules that reverse each other run until the round limit.
 *   - Build only when sure: nodes built before returning 0 cost a sweep and hide what else could fire.
 *   - cy_build_*() folds small constants by itself; don't compute in rules what it would.
 *   - Don't change n, or any other node. Others may use the same values.
 *   - Use counts are as of the start of the round. They decide about profit, never about correctness.
 */
#include "pass_int.h"

enum { MAX_ROUNDS = 64 };

void cy_rewrite_origin(cy_pass *p, const cy_node_info *n) {
  cy_origin origin = n->origin;
  origin.pass = p->name;
  cy_build_origin(p->g, &origin);
}

bool cy_rewrite_single_use(const cy_rewrite *rw, cy_val v) {
  return v && v <= rw->nvalues && rw->uses.start[v + 1] - rw->uses.start[v] == 1;
}

bool cy_rewrite_is_result(const cy_rewrite *rw, cy_val v) {
  if (v > rw->nvalues)
    return false;
  for (uint32_t i = rw->uses.start[v]; i < rw->uses.start[v + 1]; i++)
    if (!rw->uses.list[i])
      return true;
  return false;
}

/* Tries all rules on one node; true when one fired. */
static bool try_node(cy_rewrite *rw, cy_node id, const cy_rule_set *sets, uint32_t nsets) {
  cy_graph *g = rw->g;
  const cy_node_info *n = cy_node_of(g, id);
  for (uint32_t s = 0; s < nsets; s++)
    for (const cy_rule *r = sets[s].rules; r < sets[s].rules + sets[s].n; r++) {
      if (r->op != n->op && !(r->op == CY_RULE_ANY_EW && cy_op_is_ew((cy_op)n->op)))
        continue;
      cy_build_before(g, id);
      cy_rewrite_origin(rw->pass, n);
      cy_val to = r->apply(rw, n);
      if (!to || to == n->out[0] || !cy_type_equal(cy_type_of(g, to), cy_type_of(g, n->out[0])))
        continue;
      cy_graph_replace(g, n->out[0], to);
      cy_pass_count(rw->pass, r->name, 1);
      return true;
    }
  return false;
}

/* One walk over all nodes in order, with the use counts of its start. */
static uint64_t round_once(cy_pass *p, const cy_rule_set *sets, uint32_t nsets) {
  cy_graph *g = p->g;
  uint64_t fired = 0;
  cy_rewrite rw = {.pass = p, .g = g, .uses = cy_graph_uses(g, p->scratch), .nvalues = cy_value_count(g)};
  uint32_t nblocks = cy_block_count(g);
  for (cy_block b = 1; b <= nblocks; b++) {
    uint32_t n;
    const cy_node *nodes = cy_pass_walk(p, b, &n);
    for (uint32_t i = 0; i < n; i++)
      fired += try_node(&rw, nodes[i], sets, nsets);
  }
  cy_build_in(g, 1);
  return fired;
}

uint64_t cy_rewrite_run(cy_pass *p, const cy_rule_set *sets, uint32_t nsets) {
  uint64_t total = 0;
  for (int round = 0; round < MAX_ROUNDS; round++) {
    uint64_t fired = round_once(p, sets, nsets);
    cy_arena_reset(p->scratch);
    cy_graph_sweep(p->g);
    if (!fired)
      return total;
    total += fired;
  }
  cy_pass_count(p, "round limit reached", 1);
  return total;
}
