/* SPDX-License-Identifier: Apache-2.0 */
/* quantise_decide.c - where a small error may change much: values by which something is chosen.
 *
 * In:  a graph. Out: for each value, whether it decides what is chosen (by TopK, NonMaxSuppression, NonZero, Unique, or
 * ArgMax), with no other layer in between or at all, and for each output whether it was chosen, with no layer since.
 *
 * What follows a layer usually hands its error on in proportion. A choice does not: scores that differ by less than the
 * error change places, and with them whatever is looked up by these places: neighbours in a cloud of points, boxes. So the
 * layers that make such scores, or coordinates that distances are computed from, are not rounded. Places that are handed to
 * the model's outputs as they are, such as labels, are a result like others: nothing inside the model hangs on them.
 *
 * Outputs that were chosen cannot be compared with those of float element by element: their order differs.
 */
#include "quantise_int.h"

static bool has_weights(const cy_graph *g, const cy_node_info *n) {
  return cy_quant_op_does((cy_op)n->op) & CY_QUANT_LAYER && n->nin > 1 && cy_value_is_const(g, n->in[1]);
}

/* Does n begin something new: a layer of its own, or what cannot be looked through? */
static bool is_border(const cy_graph *g, const cy_node_info *n) {
  return n->op == CY_OP_recurrent || n->op == CY_OP_attention || n->op == CY_OP_matmul_blocks ||
         cy_op_of((cy_op)n->op)->cls == CY_CLASS_CTRL || has_weights(g, n);
}

/* Is v used for more than to be an output of the model, moved or cast? */
static bool is_used(const cy_graph *g, const cy_uses *uses, cy_val v, int depth) {
  for (uint32_t i = uses->start[v]; i < uses->start[v + 1]; i++) {
    const cy_node_info *n = uses->list[i] ? cy_node_of(g, uses->list[i]) : NULL;
    bool moved = n && (n->op == CY_OP_cast || (cy_op_of((cy_op)n->op)->cls == CY_CLASS_VIEW && n->in[0] == v));
    if (n && (!moved || !depth || is_used(g, uses, n->out[0], depth - 1)))
      return true;
  }
  return false;
}

/* The output of n that has places, by which something is chosen; 0: none. */
static cy_val choice_of(const cy_graph *g, const cy_uses *uses, const cy_node_info *n) {
  switch ((cy_op)n->op) {
  case CY_OP_non_max_suppression:
  case CY_OP_nonzero:
  case CY_OP_unique:
    return n->out[0];
  case CY_OP_topk:
    return n->out[1] && is_used(g, uses, n->out[1], CY_QUANT_LOG_DEPTH) ? n->out[1] : 0;
  case CY_OP_argmax:
  case CY_OP_argmin:
    return is_used(g, uses, n->out[0], CY_QUANT_LOG_DEPTH) ? n->out[0] : 0;
  default:
    return 0;
  }
}

static bool any(const cy_val *list, uint32_t n, const bool *marked) {
  for (uint32_t i = 0; i < n; i++)
    if (list[i] && marked[list[i]])
      return true;
  return false;
}

const bool *cy_quant_deciding(cy_pass *p, const cy_uses *uses, bool through) {
  const cy_graph *g = p->g;
  bool *marked = CY_NEW_ARRAY(p->scratch, bool, cy_value_count(g) + 1);
  for (cy_block b = cy_block_count(g); b >= 1; b--) { /* bodies before what they read from outside is made */
    const cy_block_info *block = cy_block_of(g, b);
    for (uint32_t i = block->nnodes; i-- > 0;) {
      const cy_node_info *n = cy_node_of(g, block->nodes[i]);
      bool chooses = choice_of(g, uses, n) != 0;
      uint32_t scores = n->op == CY_OP_non_max_suppression ? 2 : 1;
      if (!chooses && ((is_border(g, n) && !through) || !any(n->out, n->nout, marked)))
        continue;
      for (uint32_t k = 0; k < n->nin && (!chooses || k < scores); k++)
        marked[n->in[k]] = true;
    }
  }
  return marked;
}

const bool *cy_quant_chosen_outputs(cy_pass *p, cy_arena *arena) {
  cy_graph *g = p->g;
  const cy_uses uses = cy_graph_uses(g, p->scratch);
  const cy_port_info *ports;
  const cy_block_info *block = cy_block_of(g, 1);
  uint32_t count = cy_graph_outputs(g, &ports);
  bool *marked = CY_NEW_ARRAY(p->scratch, bool, cy_value_count(g) + 1), *out = CY_NEW_ARRAY(arena, bool, count + 1);
  for (uint32_t i = 0; i < block->nnodes; i++) {
    const cy_node_info *n = cy_node_of(g, block->nodes[i]);
    cy_val places = choice_of(g, &uses, n);
    bool chosen = !is_border(g, n) && any(n->in, n->nin, marked);
    for (uint32_t k = 0; k < n->nout; k++)
      if (n->out[k] && (chosen || n->out[k] == places))
        marked[n->out[k]] = true;
  }
  for (uint32_t i = 0; i < count; i++)
    out[i] = marked[ports[i].value];
  return out;
}
