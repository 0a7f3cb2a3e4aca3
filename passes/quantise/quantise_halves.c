/* SPDX-License-Identifier: Apache-2.0 */
/* quantise_halves.c - dynamic quantisation of images on a device: what is rounded to integers is stored as f16.
 *
 * In:  a graph whose convolutions read integers that are made of values in f32 (quantise_dynamic.c), and these values.
 * Out: such a value is cut off at the largest finite f16, becomes f16 at the end of the kernel that computes it, and f32
 * again in those that read it, a residual sum among them. That is half of what the layers between two roundings move, at
 * an error of 2^-11 where integers have one of 2^-8. So is what a layer puts out for such a value to be made of, and nothing
 * else: the first of two that are added, which the kernel of the second reads, and what a maximum is taken of.
 *
 * Values stay in f32 that are results, or that something reads which would want them in memory as f32: another block, a
 * call, pooling by sums, a layer in floats.
 */
#include "quantise_int.h"

static const double LIMIT = 65504;
enum { MAX_INNER = 4 }; /* operations between such a value and what it is made of */

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

/* Each reader widens for itself: what several read in f32 would be stored so. False: x stays as it is. */
static bool store(cy_pass *p, const cy_uses *uses, cy_val x) {
  cy_graph *g = p->g;
  cy_node id = cy_value_of(g, x)->node, next = id ? behind(g, id) : 0;
  if (!next || cy_type_of(g, x)->dtype != CY_F32 || !are_computing(g, uses, x, cy_node_of(g, id)->block))
    return false;
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
  return true;
}

/* ---- what such values are made of ---- */

static uint32_t place_of(const cy_graph *g, cy_node id) {
  const cy_block_info *b = cy_block_of(g, cy_node_of(g, id)->block);
  uint32_t i = 0;
  while (b->nodes[i] != id)
    i++;
  return i;
}

typedef struct inner {
  cy_pass *p;
  cy_graph *g;
  cy_uses uses;
  uint32_t values; /* that they are of */
} inner;

/* Does a layer make v in f32, for one reader in the same block? */
static bool is_for_one(const inner *s, cy_val v) {
  const cy_node_info *n = cy_def(s->g, v);
  bool once = n && v <= s->values && s->uses.start[v + 1] - s->uses.start[v] == 1;
  cy_node user = once ? s->uses.list[s->uses.start[v]] : 0;
  return user && cy_node_of(s->g, user)->block == n->block && cy_type_of(s->g, v)->dtype == CY_F32 &&
         cy_maxima_by_contraction(s->g, s->p->options->caps, v);
}

/* v in f16, built behind its node. */
static cy_val half_behind(const inner *s, cy_val v) {
  cy_build_before(s->g, behind(s->g, cy_value_of(s->g, v)->node));
  cy_rewrite_origin(s->p, cy_def(s->g, v));
  cy_pass_count(s->p, "stored as halves", 1);
  return halves_of(s->g, v);
}

/* A maximum without its place, that operations of the same block read? What is a result stays as it is. */
static bool is_pool(const inner *s, const cy_node_info *n) {
  bool places = n->nout > 1 && n->out[1] <= s->values && s->uses.start[n->out[1] + 1] > s->uses.start[n->out[1]];
  return n->op == CY_OP_pool_max && n->out[0] <= s->values && !places && is_for_one(s, n->in[0]) &&
         are_computing(s->g, &s->uses, n->out[0], n->block);
}

/* The larger of halves is one of these. */
static void pool_halves(const inner *s, cy_node id) {
  cy_graph *g = s->g;
  cy_val half = half_behind(s, cy_node_of(g, id)->in[0]);
  cy_build_before(g, behind(g, id));
  const cy_node_info *n = cy_node_of(g, id);
  cy_val out = n->out[0];
  cy_type type[2] = {*cy_type_of(g, out)};
  cy_rewrite_origin(s->p, n);
  type[0].dtype = CY_F16;
  for (uint32_t i = 1; i < n->nout; i++)
    type[i] = *cy_type_of(g, n->out[i]);
  cy_val most = cy_build(g, CY_OP_pool_max, &half, 1, n->attrs, n->nattrs, type, (int)n->nout);
  cy_graph_replace(g, out, cy_build_cast(g, most, CY_F32));
}

/* Which operand of n, which adds what two layers make, is made first; n->nin: n does something else. */
static uint32_t first_layer(const inner *s, const cy_node_info *n) {
  cy_val v = n->out[0];
  for (int i = 0; i < 2 && n->op == CY_OP_add; i++)
    if (n->in[0] == n->in[1] || !is_for_one(s, n->in[i]) ||
        !cy_same_shape(cy_type_of(s->g, n->in[i]), cy_type_of(s->g, v)))
      return n->nin;
  return n->op != CY_OP_add
             ? n->nin
             : place_of(s->g, cy_value_of(s->g, n->in[1])->node) < place_of(s->g, cy_value_of(s->g, n->in[0])->node);
}

/* From v backwards, through `left` operations. */
static void store_inner(const inner *s, cy_val v, int left) {
  cy_graph *g = s->g;
  cy_node id = cy_value_of(g, v)->node;
  const cy_node_info *n = id ? cy_node_of(g, id) : NULL;
  if (n && is_pool(s, n)) {
    pool_halves(s, id);
    return;
  }
  if (!n || !left || cy_op_of((cy_op)n->op)->cls != CY_CLASS_EW)
    return;
  uint32_t first = first_layer(s, n);
  for (uint32_t i = 0; first == n->nin && i < n->nin; i++)
    store_inner(s, cy_node_of(g, id)->in[i], left - 1);
  if (first == cy_node_of(g, id)->nin)
    return;
  cy_val half = half_behind(s, n->in[first]);
  cy_build_before(g, id);
  cy_val wide = cy_build_cast(g, half, CY_F32);
  cy_node_of(g, id)->in[first] = wide;
}

void cy_quant_store_halves(cy_pass *p, const cy_quant_rounded *known, uint32_t n) {
  const cy_target_caps *caps = cy_caps_of(p->options->caps);
  if (!caps->device || !cy_caps_half_factors(caps, CY_F16, NULL, NULL, NULL))
    return;
  cy_graph_sweep(p->g); /* layers that were replaced read nothing */
  inner s = {p, p->g, cy_graph_uses(p->g, p->scratch), cy_value_count(p->g)};
  for (uint32_t r = 0; r < n; r++) {
    bool first = known[r].scales != CY_QUANT_PER_ROW;
    for (uint32_t i = 0; i < r; i++)
      first &= known[i].x != known[r].x;
    if (first && store(p, &s.uses, known[r].x))
      store_inner(&s, known[r].x, MAX_INNER);
  }
}
