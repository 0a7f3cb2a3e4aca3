/* SPDX-License-Identifier: Apache-2.0 */
/* quantise_ends.c - what a layer does to outputs of the model that no other layer lies in front of.
 *
 * In:  a layer's output and a value in its place. Out: these outputs as they are, and as they would be.
 *
 * The error of a layer's own output says little about the model's outputs if one layer makes several of them, of very
 * different size, as merged products do: all of its error may be in the smallest. So what follows the layer is built once
 * more, on the other value. A layer is no end if other contractions or recurrences, calls of the runtime or control flow
 * follow it.
 */
#include "quantise_int.h"

static bool reads(const cy_node_info *n, const cy_val *now) {
  for (uint32_t k = 0; k < n->nin; k++)
    if (now[n->in[k]])
      return true;
  return false;
}

static bool may_follow(const cy_node_info *n) {
  cy_op_class cls = cy_op_of((cy_op)n->op)->cls;
  return cls != CY_CLASS_CALL && cls != CY_CLASS_CTRL && !(cy_quant_op_does((cy_op)n->op) & CY_QUANT_HEAVY);
}

static bool rebuild(cy_pass *p, const cy_node_info *n, cy_val *now) {
  cy_graph *g = p->g;
  cy_val *in = CY_NEW_ARRAY(p->scratch, cy_val, n->nin + 1);
  cy_type *types = CY_NEW_ARRAY(p->scratch, cy_type, n->nout + 1);
  for (uint32_t k = 0; k < n->nin; k++)
    in[k] = now[n->in[k]] ? now[n->in[k]] : n->in[k];
  for (uint32_t k = 0; k < n->nout; k++)
    if (n->out[k])
      types[k] = *cy_type_of(g, n->out[k]);
  bool typed = cy_op_of((cy_op)n->op)->typed;
  uint32_t nout = n->nout;
  const cy_val *old = n->out;
  cy_val y = cy_build(g, (cy_op)n->op, in, n->nin, n->attrs, n->nattrs, typed ? types : NULL, typed ? nout : 0);
  for (uint32_t k = 0; y && k < nout; k++)
    if (old[k])
      now[old[k]] = cy_build_output(g, y, k);
  return y != 0;
}

cy_quant_end *cy_quant_ends(cy_pass *p, const cy_node *nodes, uint32_t nnodes, uint32_t noutputs, cy_val from,
                            cy_val to, uint32_t *out_count) {
  cy_graph *g = p->g;
  cy_val *now = CY_NEW_ARRAY(p->scratch, cy_val, cy_value_count(g) + 1);
  cy_quant_end *ends = CY_NEW_ARRAY(p->scratch, cy_quant_end, noutputs + 1);
  bool *tail = CY_NEW_ARRAY(p->scratch, bool, nnodes + 1);
  *out_count = 0;
  now[from] = to;
  for (uint32_t i = 0; i < nnodes; i++) { /* whether it is an end, before anything is built */
    const cy_node_info *n = cy_node_of(g, nodes[i]);
    tail[i] = reads(n, now);
    if (tail[i] && !may_follow(n))
      return ends;
    for (uint32_t k = 0; tail[i] && k < n->nout; k++)
      if (n->out[k])
        now[n->out[k]] = to;
  }
  for (uint32_t i = 0; i < nnodes; i++)
    if (tail[i] && !rebuild(p, cy_node_of(g, nodes[i]), now))
      return ends;
  const cy_port_info *ports;
  cy_graph_outputs(g, &ports);
  for (uint32_t i = 0; i < noutputs; i++)
    if (now[ports[i].value] && cy_type_of(g, ports[i].value)->dtype == CY_F32)
      ends[(*out_count)++] = (cy_quant_end){cy_str_text(g, ports[i].name), ports[i].value, now[ports[i].value]};
  return ends;
}
