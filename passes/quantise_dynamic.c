/* quantise_dynamic.c - dynamic quantisation: integer products of weights that are integers now and activations that
 * become integers when the model runs.
 *
 * In:  a folded graph in f32. Out: every matmul of computed values x [.., m, k] with constant weights w [k, n], in any
 * block from a first one on, that is large enough and not skipped, as
 *
 *   most  = reduce_max(|x|, last axis)               one number per row
 *   xq    = cast<s8>(round(x * (127 / most)))        s8; a row of zeros stays zeros
 *   y     = cast<f32>(matmul(xq, wq)) * (most / 127) * scale[n]
 *
 * which fusion makes three kernels of: a row reduction, the rounding, the product with both scales in its epilogue.
 * Products that read the same x share the first two. Convolutions stay in float: a scale per image costs a pass over
 * memory that their integer form seldom wins back; static quantisation is for them. The recurrent weights of RNN, GRU
 * and LSTM become integers as well, a scale per row: a step reads all of them, and rounds its state to 16 bits.
 *
 * To measure, y is built behind the layer and only compared with what that puts out; bodies of control flow cannot put
 * out anything, so that their layers are left alone where errors are limited.
 */
#include "quantise_int.h"

#include <string.h>

enum { MIN_DEPTH = 32, MIN_WIDTH = 16, MIN_WEIGHTS = 4096 };

/* x rounded, once per x and block. */
typedef struct rounded {
  cy_val x, ints, scale;
  cy_block block;
} rounded;

static const char *why_not(cy_pass *p, const cy_quant *q, const cy_node_info *n) {
  const cy_type *w = cy_type_of(p->g, n->in[1]);
  int64_t d[CY_MAX_RANK];
  cy_type_static(p->g, w, d);
  if (n->op == CY_OP_recurrent)
    return d[0] * d[1] < MIN_WEIGHTS ? "too small to gain" : NULL;
  if (n->op != CY_OP_matmul)
    return q->mode != CY_QUANT_STATIC ? "convolutions gain by --int8=static only"
                                       : "it lies in a body of control flow";
  if (d[w->rank - 2] < MIN_DEPTH || d[w->rank - 1] < MIN_WIDTH || d[w->rank - 2] * d[w->rank - 1] < MIN_WEIGHTS)
    return "too small to gain";
  return NULL;
}

static rounded round_rows(cy_graph *g, cy_val x, cy_block block) {
  int64_t last = cy_type_of(g, x)->rank - 1;
  cy_val most = cy_build_reduce(g, CY_OP_reduce_max, cy_build_unary(g, CY_OP_abs, x), &last, 1, true);
  most = cy_build_binary(g, CY_OP_max, most, cy_build_scalar(g, CY_F32, 1e-30));
  cy_val up = cy_build_binary(g, CY_OP_div, cy_build_scalar(g, CY_F32, 127), most);
  cy_val ints = cy_build_cast(g, cy_build_unary(g, CY_OP_round, cy_build_binary(g, CY_OP_mul, x, up)), CY_I8);
  return (rounded){x, ints, cy_build_binary(g, CY_OP_mul, most, cy_build_scalar(g, CY_F32, 1.0 / 127)), block};
}

/* The product of layer `id` in integers, built here. */
static cy_val integer_product(cy_pass *p, cy_node id, rounded *known, uint32_t *nknown) {
  cy_graph *g = p->g;
  const cy_node_info *n = cy_node_of(g, id);
  uint32_t r = 0;
  cy_rewrite_origin(p, n);
  while (r < *nknown && (known[r].x != n->in[0] || known[r].block != n->block))
    r++;
  if (r == *nknown)
    known[(*nknown)++] = round_rows(g, n->in[0], n->block);
  cy_val scale, w = cy_quant_weights(p, n, NULL, &scale);
  cy_val acc = cy_build_matmul(g, known[r].ints, w, CY_I32);
  cy_val y = cy_build_binary(g, CY_OP_mul, cy_build_cast(g, acc, CY_F32), known[r].scale);
  return cy_build_binary(g, CY_OP_mul, y, scale);
}

/* Cycles per element, measured on Zen 3: to find a row's largest element, and to round it. And what integers have to
 * gain, as estimates are no better. */
static const double ROUNDING = 0.7, MARGIN = 1.03;

/* Does layer l, node n, gain time with its share of rounding what it reads? */
static bool gains(const cy_quant_layer *l, const cy_graph *g, const cy_node_info *n, const cy_uses *uses,
                  const int64_t *sizes) {
  uint32_t sharing = 0;
  if (n->op == CY_OP_recurrent)
    return l->cycles[0] > l->cycles[1] * MARGIN;
  for (uint32_t i = uses->start[n->in[0]]; i < uses->start[n->in[0] + 1]; i++) {
    const cy_node_info *other = uses->list[i] ? cy_node_of(g, uses->list[i]) : NULL;
    sharing += other && other->op == CY_OP_matmul && other->in[0] == n->in[0];
  }
  double rounding = ROUNDING * cy_quant_elements(g, n->in[0], sizes) / (sharing ? sharing : 1);
  return l->cycles[0] <= 0 || l->cycles[0] > (l->cycles[1] + rounding) * MARGIN;
}

/* Why layer l, node n of block b, stays in float; NULL: it does not. */
static const char *reason(cy_pass *p, const cy_quant *q, cy_quant_layer *l, const cy_node_info *n, cy_block b,
                          const cy_uses *uses) {
  const char *keep = cy_quant_skipped(q, p->g, n) ? "skipped as asked" : why_not(p, q, n);
  if (!keep && cy_quant_feeds_log(p->g, uses, n->out[0]))
    keep = CY_QUANT_LOG;
  return keep ? keep : cy_quant_judged(q, l, b);
}

void cy_quant_dynamic(cy_pass *p, cy_quant *q, cy_block first) {
  cy_graph *g = p->g;
  uint32_t most = cy_node_count(g), nknown = 0;
  rounded *known = CY_NEW_ARRAY(p->scratch, rounded, most + 1);
  cy_quant_layer *before = q->layer;
  q->layer = CY_NEW_ARRAY(q->arena, cy_quant_layer, q->nlayers + most + 1);
  if (q->nlayers)
    memcpy(q->layer, before, q->nlayers * sizeof *before);
  bool single = q->mode == CY_QUANT_SINGLE_DYNAMIC, measure = single || q->mode == CY_QUANT_MEASURE_DYNAMIC;
  cy_quant_singles made;
  if (single)
    cy_quant_singles_start(p, &made, most);
  cy_uses uses = cy_graph_uses(g, p->scratch); /* as they are before any product is replaced */
  const int64_t *sizes = cy_quant_sizes(g, p->scratch);
  for (cy_block b = first; b <= (measure ? 1 : cy_block_count(g)); b++) {
    uint32_t count;
    const cy_node *nodes = cy_pass_walk(p, b, &count);
    for (uint32_t i = 0; i < count; i++) {
      const cy_node_info *n = cy_node_of(g, nodes[i]);
      bool recurrence = cy_quant_is_recurrence(g, n);
      if (!cy_quant_eligible(g, n) && !recurrence)
        continue;
      cy_quant_layer *l = &q->layer[q->nlayers++];
      cy_quant_describe(q, g, nodes[i], l);
      cy_quant_cycles(q, g, n, sizes, l->cycles);
      if (!l->keep)
        l->keep = reason(p, q, l, n, b, &uses);
      if (!l->keep && !q->smallest && !gains(l, g, n, &uses, sizes))
        l->keep = CY_QUANT_NO_GAIN;
      if (l->keep)
        continue;
      if (measure && i + 1 == count)
        cy_build_in(g, b);
      else
        cy_build_before(g, nodes[measure ? i + 1 : i]);
      cy_val y = recurrence ? cy_quant_recurrence(p, nodes[i], measure) : integer_product(p, nodes[i], known, &nknown);
      if (single)
        cy_quant_single(p, &made, (uint32_t)(l - q->layer), nodes[i], y);
      else if (measure)
        cy_quant_compare(g, q, (uint32_t)(l - q->layer), y, NULL, 0);
      else if (!recurrence)
        cy_graph_replace(g, cy_node_of(g, nodes[i])->out[0], y);
      cy_pass_count(p, "layers", 1);
    }
  }
  if (single)
    cy_quant_singles_end(p, &made);
}
