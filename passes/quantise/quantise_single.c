/* SPDX-License-Identifier: Apache-2.0 */
/* quantise_single.c - a model that quantises the layers that are chosen when it runs.
 *
 * In:  layers, and for each its output in integers. Out: a further input of the model, a bool for each layer; where it is
 * true, that layer's outputs are those in integers, else those in float. Compiling the model once for each choice would
 * tell the same, but takes longer than running all of them.
 *
 * Values are put in the place of others when all are built: until then everything reads the graph as it was.
 */
#include "quantise_int.h"

void cy_quant_singles_start(cy_pass *p, cy_quant_singles *s, uint32_t nlayers) {
  const cy_dim count = cy_dim_const(p->g, nlayers ? nlayers : 1);
  const cy_type flags = cy_type_make(CY_BOOL, 1, &count);
  *s = (cy_quant_singles){.which = cy_graph_add_input(p->g, "cytoc.quantise.layers", &flags)};
  s->made = cy_arena_alloc(p->scratch, (CY_QUANT_MAX_OUTPUTS * (size_t)nlayers + 1) * sizeof *s->made);
}

/* The node once more, in float: what it puts out is replaced by what is chosen. */
static cy_val again(cy_pass *p, cy_node id) {
  const cy_node_info *n = cy_node_of(p->g, id);
  cy_val *in = CY_NEW_ARRAY(p->scratch, cy_val, n->nin + 1);
  cy_type *types = CY_NEW_ARRAY(p->scratch, cy_type, n->nout + 1);
  for (uint32_t k = 0; k < n->nin; k++)
    in[k] = n->in[k];
  for (uint32_t k = 0; k < n->nout; k++)
    types[k] = *cy_type_of(p->g, n->out[k]);
  bool typed = cy_op_of((cy_op)n->op)->typed;
  return cy_build(p->g, (cy_op)n->op, in, n->nin, n->attrs, n->nattrs, typed ? types : NULL, n->nout);
}

static cy_val is_chosen(cy_graph *g, const cy_quant_singles *s, uint32_t i) {
  return cy_build_squeeze(g, cy_build_slice_axis(g, s->which, 0, cy_dim_const(g, i), cy_dim_const(g, 1)), 0);
}

void cy_quant_single(cy_pass *p, cy_quant_singles *s, uint32_t i, cy_node id, const cy_val *y, uint32_t count) {
  cy_graph *g = p->g;
  cy_val plain = again(p, id);
  for (uint32_t k = 0; k < cy_node_of(g, id)->nout && k < CY_QUANT_MAX_OUTPUTS; k++) {
    cy_val v = cy_build_output(g, plain, k);
    for (uint32_t c = 0; c < count; c++)
      v = cy_build_select(g, is_chosen(g, s, i + c), k ? cy_build_output(g, y[c], k) : y[c], v);
    s->made[s->nmade].old = cy_node_of(g, id)->out[k];
    s->made[s->nmade++].now = v;
  }
}

void cy_quant_singles_end(cy_pass *p, const cy_quant_singles *s) {
  for (uint32_t i = 0; i < s->nmade; i++)
    cy_graph_replace(p->g, s->made[i].old, s->made[i].now);
}
