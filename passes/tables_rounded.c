/* SPDX-License-Identifier: Apache-2.0 */
/* tables_rounded.c - values whose small errors no output shows as they are, for pass `tables`.
 *
 * In:  a graph whose products have become integers. Out: for each value, is it rounded, or divided by its magnitude, on
 * every way to an output of the model? Rounded: to 8 bits, by the largest of its row, its image, or of all samples.
 *
 * From the end to the start: all readers of a value must do that themselves, or hand it on in a way that does not make
 * a small error large, to a value of which the same is true. Positions of transformers are such values; coordinates that
 * a detector adds to what it puts out are none, nor is what a product in float, a softmax or a comparison reads.
 *
 * Values that other blocks read are none: what they do with them is not followed.
 */
#include "passes/quantise/quantise_int.h"

/* Is what n reads rounded or normalised? The magnitudes whose bits are taken are those that images are rounded by
 * (quantise_round.c). */
static bool rounds(const cy_graph *g, const cy_node_info *n) {
  switch (n->op) {
  case CY_OP_normalize:
  case CY_OP_quantize_rows:
  case CY_OP_quantize:
    return true;
  case CY_OP_cast:
    return cy_type_of(g, n->out[0])->dtype == CY_I8 || cy_type_of(g, n->out[0])->dtype == CY_U8;
  case CY_OP_bitcast:
    return cy_def_of(g, n->in[0], CY_OP_abs);
  default:
    return false;
  }
}

/* Is an error in input v of n about as large in what n puts out? */
static bool hands_on(const cy_graph *g, const cy_node_info *n, cy_val v) {
  switch (n->op) {
  case CY_OP_div:
    return n->in[1] != v;
  case CY_OP_select:
    return n->in[0] != v;
  case CY_OP_cast:
    return cy_dtype_is_float(cy_type_of(g, n->out[0])->dtype);
  default:
    return cy_node_op(n)->passes_errors;
  }
}

static bool reader_hides(const cy_graph *g, const bool *hidden, cy_node reader, cy_val v) {
  const cy_node_info *n = reader ? cy_node_of(g, reader) : NULL;
  if (!n || n->block != 1)
    return false;
  return rounds(g, n) || (hands_on(g, n, v) && hidden[n->out[0]]);
}

const bool *cy_tables_rounded(cy_pass *p, const cy_uses *uses) {
  const cy_graph *g = p->g;
  const cy_block_info *b = cy_block_of(g, 1);
  bool *hidden = CY_NEW_ARRAY(p->scratch, bool, cy_value_count(g) + 1);
  for (uint32_t i = b->nnodes; i-- > 0;) {
    const cy_node_info *n = cy_node_of(g, b->nodes[i]);
    cy_val v = n->nout == 1 ? n->out[0] : 0;
    bool all = v != 0;
    for (uint32_t k = v ? uses->start[v] : 0; v && k < uses->start[v + 1]; k++)
      all &= reader_hides(g, hidden, uses->list[k], v);
    hidden[v] = all;
  }
  hidden[0] = false;
  return hidden;
}
