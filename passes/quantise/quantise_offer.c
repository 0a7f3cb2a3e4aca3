/* SPDX-License-Identifier: Apache-2.0 */
/* quantise_offer.c - a model that computes each layer in any of several precisions, chosen when it runs.
 *
 * In:  a folded graph in f32, ranges of tensors where layers may be quantised statically, and the target's estimates. Out:
 * for every layer an entry of q->layer for each precision that gains time there, with both estimates; outputs that tell how
 * each differs from f32; and the input that chooses (quantise_single.c). So one library tells what every layer does to the
 * outputs, and what any combination does.
 *
 * Layers become those that the passes make when a plan is followed (quantise.c, quantise_dynamic.c, quantise_weights.c,
 * round_to_half.c), but for halves and weights of 4 bits, whose values are rounded and computed with in f32.
 */
#include "quantise_int.h"

#include <string.h>


const char *cy_precision_name(cy_precision p) {
#define CY_PRECISION(id, name) [CY_PRECISION_##id] = name,
  static const char *const names[] = {CY_PRECISION_TABLE(CY_PRECISION)};
#undef CY_PRECISION
  return p < CY_PRECISIONS ? names[p] : "?";
}

typedef struct offering {
  cy_pass *p;
  cy_quant *q;
  cy_quant_dynamics *dynamics;
  const cy_quant_layer *fixed; /* [nfixed]: layers that may be static */
  uint32_t nfixed;
  const int64_t *sizes;
  cy_val corrections; /* an input */
} offering;

static const cy_quant_layer *fixed_layer(const offering *s, cy_node id) {
  for (uint32_t i = 0; i < s->nfixed; i++)
    if (s->fixed[i].node == id)
      return s->fixed[i].keep ? NULL : &s->fixed[i];
  return NULL;
}

static bool may_be(const offering *s, cy_precision as) { return s->q->offered >> as & 1; }

static double cycles_as(const offering *s, const cy_node_info *n, cy_layer_arithmetic as) {
  return cy_caps_layer_cycles(s->q->caps, s->p->g, n, s->sizes, as);
}

static bool gains(const offering *s, const cy_quant_layer *l) {
  return l->cycles[0] > 0 && l->cycles[1] > 0 && l->cycles[1] * cy_caps_of(s->q->caps)->ints.margin < l->cycles[0];
}

/* Is entry l, whose precision is set, worth offering? Sets its estimates. */
static bool is_offered(offering *s, cy_quant_layer *l) {
  const cy_node_info *n = cy_node_of(s->p->g, l->node);
  const cy_quant_layer *fixed = fixed_layer(s, l->node);
  bool attends = n->op == CY_OP_attention;
  l->cycles[0] = cycles_as(s, n, CY_LAYER_FLOATS);
  switch (l->precision) {
  case CY_PRECISION_STATIC:
    l->cycles[1] = fixed ? fixed->cycles[1] : 0;
    return fixed && gains(s, l);
  case CY_PRECISION_DYNAMIC:
    return !attends && cy_quant_dynamics_offered(s->dynamics, l->node, l) && !l->keep && l->cycles[0] > 0;
  case CY_PRECISION_BF16:
    if (attends)
      return cy_quant_dynamics_offered(s->dynamics, l->node, l) && !l->keep;
    l->cycles[1] = cycles_as(s, n, CY_LAYER_BF16);
    return cy_half_offered(s->p, n, CY_BF16, s->sizes) && gains(s, l);
  case CY_PRECISION_F16:
    l->cycles[1] = cycles_as(s, n, CY_LAYER_F16_WEIGHTS);
    return gains(s, l) && cy_half_offered(s->p, n, CY_F16, s->sizes);
  case CY_PRECISION_INT4:
    l->cycles[1] = cycles_as(s, n, CY_LAYER_INT4_WEIGHTS);
    return gains(s, l) && cy_weights_offered(s->p, n);
  default:
    return false;
  }
}

static cy_val make_layer(offering *s, const cy_quant_maker *m, const cy_quant_layer *l) {
  const cy_node_info *n = cy_node_of(s->p->g, l->node);
  switch (l->precision) {
  case CY_PRECISION_STATIC:
    return m->make(m->ctx, l);
  case CY_PRECISION_DYNAMIC:
    return cy_quant_dynamics_make(s->dynamics, l->node);
  case CY_PRECISION_INT4:
    return cy_weights_make(s->p, n);
  default:
    return n->op == CY_OP_attention
               ? cy_quant_dynamics_make(s->dynamics, l->node)
               : cy_half_make(s->p, n, l->precision == CY_PRECISION_BF16 ? CY_BF16 : CY_F16, s->sizes);
  }
}

/* Is n one that can be a layer at all? */
static bool is_layer(const offering *s, const cy_node_info *n) {
  return (cy_quant_op_does((cy_op)n->op) & CY_QUANT_LAYER && cy_type_of(s->p->g, n->in[0])->dtype == CY_F32 &&
          cy_type_of(s->p->g, n->out[0])->dtype == CY_F32) ||
         n->op == CY_OP_attention || n->op == CY_OP_recurrent;
}

/* Lists the precisions of a node. */
static void list(offering *s, cy_node id) {
  cy_quant *q = s->q;
  cy_quant_layer l;
  cy_quant_describe(q, s->p->g, id, &l);
  l.keep = cy_quant_skipped(q, s->p->g, cy_node_of(s->p->g, id)) ? CY_QUANT_SKIPPED : l.keep;
  for (int as = 0; as < CY_PRECISIONS && !l.keep; as++) {
    cy_quant_layer *x = &q->layer[q->nlayers];
    *x = l;
    x->precision = (cy_precision)as;
    if (!may_be(s, x->precision) || !is_offered(s, x))
      continue;
    q->nlayers++;
    if (x->precision == CY_PRECISION_STATIC) {
      x->correction = q->ncorrections;
      q->ncorrections += x->channels;
    }
  }
}

/* y with the mean of its error taken off, as static quantisation does in biases. */
static cy_val corrected(offering *s, const cy_quant_layer *l, cy_val y) {
  cy_graph *g = s->p->g;
  if (l->precision != CY_PRECISION_STATIC)
    return y;
  cy_val c = cy_build_slice_axis(g, s->corrections, 0, cy_dim_const(g, l->correction), cy_dim_const(g, l->channels));
  return cy_build_binary(g, CY_OP_add, y, cy_quant_along_channels(g, cy_node_of(g, l->node), c));
}

/* Bodies of control flow cannot put out how a layer differs, nor can its ranges be seen from outside: it stays in f32. */
static void count_inner(offering *s) {
  const cy_graph *g = s->p->g;
  s->q->ninner = 0;
  for (cy_block b = 2; b <= cy_block_count(g); b++)
    for (uint32_t i = 0; i < cy_block_of(g, b)->nnodes; i++) {
      cy_node id = cy_block_of(g, b)->nodes[i];
      cy_quant_layer l;
      if (!is_layer(s, cy_node_of(g, id)))
        continue;
      cy_quant_describe(s->q, s->p->g, id, &l);
      s->q->inner = s->q->ninner++ ? s->q->inner : l.name;
    }
}

/* `count` entries from `first` on, of one layer: what they make, how it differs, and the choice. */
static void build(offering *s, const cy_quant_maker *m, cy_quant_singles *made, uint32_t first, uint32_t count) {
  cy_quant *q = s->q;
  cy_node id = q->layer[first].node;
  cy_val y[CY_PRECISIONS], better[CY_PRECISIONS];
  for (uint32_t k = 0; k < count; k++) {
    m->behind(m->ctx, cy_node_of(s->p->g, id)->out[0]);
    y[k] = make_layer(s, m, &q->layer[first + k]);
    m->behind(m->ctx, cy_node_of(s->p->g, id)->out[0]);
    better[k] = corrected(s, &q->layer[first + k], y[k]);
  }
  m->behind(m->ctx, cy_node_of(s->p->g, id)->out[0]);
  cy_quant_single(s->p, made, first, id, better, count);
  for (uint32_t k = 0; k < count; k++) /* with what is chosen, which is f32 when this is looked at */
    cy_quant_compare(s->p->g, q, first + k, y[k], NULL, 0);
  cy_pass_count(s->p, "precisions", count);
}

void cy_quant_offer(cy_pass *p, cy_quant *q, const cy_quant_maker *m, const cy_node *nodes, uint32_t nnodes) {
  offering s = {.p = p,
                .q = q,
                .dynamics = cy_quant_dynamics_open(p, q),
                .fixed = q->layer,
                .nfixed = q->nlayers,
                .sizes = cy_quant_sizes(p->g, p->scratch)};
  q->layer = CY_NEW_ARRAY(q->arena, cy_quant_layer, nnodes * CY_PRECISIONS + 1);
  q->nlayers = q->ncorrections = 0;
  q->chosen = cy_quant_chosen_outputs(p, q->arena);
  q->nplan = cy_node_count(p->g) + 1;
  for (uint32_t i = 0; i < nnodes; i++)
    if (is_layer(&s, cy_node_of(p->g, nodes[i])))
      list(&s, nodes[i]);
  count_inner(&s);
  cy_quant_singles made;
  cy_quant_singles_start(p, &made, q->nlayers);
  const cy_dim count = cy_dim_const(p->g, q->ncorrections + 1);
  const cy_type type = cy_type_make(CY_F32, 1, &count);
  s.corrections = cy_graph_add_input(p->g, "cytoc.quantise.corrections", &type);
  for (uint32_t first = 0, next; first < q->nlayers; first = next) {
    for (next = first + 1; next < q->nlayers && q->layer[next].node == q->layer[first].node;)
      next++;
    build(&s, m, &made, first, next - first);
  }
  cy_quant_singles_end(p, &made);
}
