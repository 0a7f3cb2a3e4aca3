/* SPDX-License-Identifier: Apache-2.0 */
/* attention_plain.c - `attention` nodes as products, softmax and element-wise ops.
 *
 * In:  a swept graph. Out: attention nodes only where they can be one kernel. At level 0 and with --attention=plain that
 * is nowhere; otherwise those are written out that are not computed in f32, or whose heads are of unknown size or larger
 * than the target's kernels allow. Lowering has a slow nest for what a target then refuses.
 */
#include "passes/pass_int.h"

bool cy_attention_fits(const cy_pass *p, const cy_type *q, const cy_type *v) {
  const cy_type *t[2] = {q, v};
  int64_t size, largest = p->options->plain_attention ? 0 : cy_caps_of(p->options->caps)->max_head;
  for (int k = 0; k < 2; k++)
    if (!cy_dim_is_const(p->g, t[k]->dim[t[k]->rank - 1], &size) || size < 1 || size > largest)
      return false;
  return p->options->opt_level > 0;
}

static bool stays_whole(const cy_pass *p, const cy_node_info *n) {
  const cy_graph *g = p->g;
  return cy_type_of(g, n->out[0])->dtype == CY_F32 &&
         cy_attention_fits(p, cy_type_of(g, n->in[0]), cy_type_of(g, n->in[2]));
}

/* requires: swept   establishes: swept   breaks: unique, folded, placed, fused */
int cy_pass_attention_plain(cy_pass *p) {
  cy_graph *g = p->g;
  for (cy_block b = 1; b <= cy_block_count(g); b++) {
    uint32_t count;
    const cy_node *nodes = cy_pass_walk(p, b, &count);
    for (uint32_t i = 0; i < count; i++) {
      const cy_node_info *n = cy_node_of(g, nodes[i]);
      if (n->op != CY_OP_attention)
        continue;
      bool whole = stays_whole(p, n);
      cy_pass_count(p, whole ? "kept whole" : "written out", 1);
      if (whole)
        continue;
      cy_attention a = cy_attention_of(n);
      cy_build_before(g, nodes[i]);
      cy_rewrite_origin(p, n);
      cy_val y = cy_build_attention_plain(g, &a, CY_NONE, NULL);
      const cy_type *t = cy_type_of(g, n->out[0]);
      if (y && !cy_type_equal(cy_type_of(g, y), t)) /* batches of k or v by other names than q's */
        y = cy_build_reshape(g, y, t->dim, t->rank);
      if (!y)
        return -1;
      cy_graph_replace(g, n->out[0], y);
    }
  }
  cy_build_in(g, 1);
  cy_graph_sweep(g);
  return 0;
}
