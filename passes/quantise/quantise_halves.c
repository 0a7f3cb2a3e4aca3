/* SPDX-License-Identifier: Apache-2.0 */
/* quantise_halves.c - dynamic quantisation of images on a device: what is rounded to integers is stored as f16.
 *
 * In:  a graph whose convolutions read integers that are made of values in f32 (quantise_dynamic.c), and these values.
 * Out: such a value is cut off at the largest finite f16, becomes f16 at the end of the kernel that computes it, and f32
 * again in those that read it, a residual sum among them. That is half of what the layers between two roundings move, at
 * an error of 2^-11 where integers have one of 2^-8.
 *
 * Values stay in f32 that are results, or that something reads which would want them in memory as f32: another block, a
 * call, pooling, a layer in floats.
 */
#include "quantise_int.h"

static const double LIMIT = 65504;

/* Do all readers of v compute with its elements, if need be as a transposed view? */
static bool are_computing(const cy_graph *g, const cy_uses *uses, cy_val v, cy_block block) {
  for (uint32_t i = uses->start[v]; i < uses->start[v + 1]; i++) {
    const cy_node_info *n = uses->list[i] ? cy_node_of(g, uses->list[i]) : NULL;
    if (!n || n->block != block)
      return false;
    cy_op_class cls = cy_op_of((cy_op)n->op)->cls;
    bool transposed = n->op == CY_OP_transpose && are_computing(g, uses, n->out[0], block);
    if (cls != CY_CLASS_EW && cls != CY_CLASS_REDUCE && n->op != CY_OP_quantize_rows && !transposed)
      return false;
  }
  return uses->start[v + 1] > uses->start[v];
}

/* The node behind `id` in its block; 0: it is the last one. */
static cy_node behind(const cy_graph *g, cy_node id) {
  const cy_block_info *b = cy_block_of(g, cy_node_of(g, id)->block);
  uint32_t i = 0;
  while (i < b->nnodes && b->nodes[i] != id)
    i++;
  return i + 1 < b->nnodes ? b->nodes[i + 1] : 0;
}

static cy_val halves_of(cy_graph *g, cy_val x) {
  cy_val v = cy_build_binary(g, CY_OP_min, x, cy_build_scalar(g, CY_F32, LIMIT));
  if (!cy_never_negative(g, x))
    v = cy_build_binary(g, CY_OP_max, v, cy_build_scalar(g, CY_F32, -LIMIT));
  return cy_build_cast(g, v, CY_F16);
}

/* Each reader widens for itself: what several read in f32 would be stored so. */
static void store(cy_pass *p, const cy_uses *uses, cy_val x) {
  cy_graph *g = p->g;
  cy_node id = cy_value_of(g, x)->node, next = id ? behind(g, id) : 0;
  if (!next || cy_type_of(g, x)->dtype != CY_F32 || !are_computing(g, uses, x, cy_node_of(g, id)->block))
    return;
  cy_build_before(g, next);
  cy_rewrite_origin(p, cy_node_of(g, id));
  cy_val half = halves_of(g, x);
  for (uint32_t i = uses->start[x]; i < uses->start[x + 1]; i++) {
    cy_val wide = 0; /* who reads x twice is listed twice */
    for (uint32_t k = 0; k < cy_node_of(g, uses->list[i])->nin; k++)
      if (cy_node_of(g, uses->list[i])->in[k] == x) {
        wide = wide ? wide : cy_build_cast(g, half, CY_F32);
        cy_node_of(g, uses->list[i])->in[k] = wide;
      }
  }
  cy_pass_count(p, "stored as halves", 1);
}

void cy_quant_store_halves(cy_pass *p, const cy_quant_rounded *known, uint32_t n) {
  const cy_target_caps *caps = cy_caps_of(p->options->caps);
  if (!caps->device || !cy_caps_half_factors(caps, CY_F16, NULL, NULL, NULL))
    return;
  cy_graph_sweep(p->g); /* layers that were replaced read nothing */
  cy_uses uses = cy_graph_uses(p->g, p->scratch);
  for (uint32_t r = 0; r < n; r++) {
    bool first = known[r].scales != CY_QUANT_PER_ROW;
    for (uint32_t i = 0; i < r; i++)
      first &= known[i].x != known[r].x;
    if (first)
      store(p, &uses, known[r].x);
  }
}
