/* SPDX-License-Identifier: Apache-2.0 */
/* quantise_dynamic.c - dynamic quantisation: integer contractions of weights that are integers now and activations that
 * become integers when the model runs.
 *
 * In:  a folded graph in f32. Out: every matmul or convolution of computed values with constant weights, in any block
 * from a first one on, that is large enough, gains and is not skipped, as
 *
 *   ints, scale = x rounded (quantise_round.c): a scale per row of a product, per image of a convolution; where the target
 *                 prefers it, no convolution of more taps reads x, and no contraction makes x and finds its largest
 *                 element (maxima.c), per place of an image
 *   y           = cast<f32>(matmul or conv(ints, wq)) * scale * wscale[channel]
 *
 * which fusion makes kernels of: the largest elements, the rounding, the contraction with both scales in its epilogue.
 * With cy_quant.float8 both are f8e4m3fn, the sums f32, and nothing but products and convolutions is a layer.
 * Attention, which has no weights, multiplies bf16 where the target gains by that. Layers by whose numbers something is
 * chosen stay as they are (quantise_decide.c).
 * Layers that read the same x share the first two. The recurrent weights of RNN, GRU and LSTM become integers as well,
 * a scale per row: a step reads all of them, and rounds its state to 16 bits.
 *
 * To measure, y is built behind the layer and only compared with what that puts out; bodies of control flow cannot put
 * out anything, so that their layers are left alone where errors are limited.
 */
#include "quantise_int.h"

#include <string.h>

enum { MIN_DEPTH = 32, MIN_WIDTH = 16, MIN_WEIGHTS = 4096 };

/* What sums of so many products of 8 bits may reach stays below 2^31. */
enum { MAX_DEPTH = 65000, MAX_RANK = 5 };

/* size: rather small than fast */
static const char *why_not(cy_pass *p, const cy_node_info *n, bool size) {
  if (n->op == CY_OP_attention)
    return NULL;
  const cy_type *w = cy_type_of(p->g, n->in[1]);
  int64_t d[CY_MAX_RANK], depth = 1;
  cy_type_static(p->g, w, d);
  if (n->op == CY_OP_recurrent)
    return d[0] * d[1] < MIN_WEIGHTS && !size ? "too small to gain" : NULL;
  bool conv = cy_quant_is_conv(n);
  for (int i = 0; i < w->rank && depth <= MAX_DEPTH; i++)
    depth *= i == cy_quant_weight_axis(p->g, n) ? 1 : d[i];
  if (conv && (w->rank < 3 || w->rank > MAX_RANK))
    return "no kernel has so many axes";
  const cy_quant *q = p->options->quant;
  if (q && q->float8)
    return cy_quant_float8_keeps(p->g, n);
  if ((conv ? depth : d[w->rank - 2]) > MAX_DEPTH)
    return "its sums may leave 31 bits";
  if (!conv && !size &&
      (d[w->rank - 2] < MIN_DEPTH || d[w->rank - 1] < MIN_WIDTH || d[w->rank - 2] * d[w->rank - 1] < MIN_WEIGHTS))
    return "too small to gain";
  return NULL;
}

struct cy_quant_dynamics {
  cy_pass *p;
  cy_graph *g;
  cy_quant *q;
  cy_uses uses;            /* as they are before any layer is replaced .. */
  uint32_t values;         /* .. of values up to this one */
  const int64_t *sizes;    /* [symbol]: to estimate with */
  const bool *deciding;    /* [value]: see quantise_decide.c */
  const bool *amplified;   /* [value]: the same, however far; NULL: nobody asks */
  cy_quant_rounded *known; /* what has been rounded */
  uint32_t nknown;
  struct {
    cy_val v, by;
  } * replaced; /* results of layers that were, and what stands there now */
  uint32_t nreplaced;
  cy_quant_singles *single; /* NULL: layers are not quantised one at a time */
};
typedef cy_quant_dynamics dynamic;

/* A convolution that reads one place for each that it gives, and no padding? */
static bool has_one_tap(const cy_graph *g, const cy_node_info *n) {
  const cy_type *w = cy_type_of(g, n->in[1]);
  uint32_t npads = 0;
  const int64_t *pads = cy_attr_list(n, CY_ATTR_pads, &npads);
  bool one = n->op == CY_OP_conv;
  for (int i = 2; i < w->rank; i++)
    one &= cy_dim_is(g, w->dim[i], 1);
  for (uint32_t i = 0; i < npads; i++)
    one &= pads[i] == 0;
  return one;
}

/* v's number in s->uses: of the result of a layer that was replaced, that of what it stands for; 0: it has none. */
static cy_val value_of_uses(const dynamic *s, cy_val v) {
  uint32_t i = s->nreplaced;
  while (v > s->values && i > 0 && s->replaced[i - 1].by != v)
    i--;
  return v <= s->values ? v : i > 0 ? s->replaced[i - 1].v : 0;
}

static cy_quant_scales scales_of(const dynamic *s, const cy_node_info *n) {
  if (!cy_quant_is_conv(n))
    return CY_QUANT_PER_ROW;
  bool one_tap = has_one_tap(s->g, n);
  cy_val x = value_of_uses(s, n->in[0]);
  for (uint32_t i = x ? s->uses.start[x] : 0; x && i < s->uses.start[x + 1]; i++) {
    const cy_node_info *other = s->uses.list[i] ? cy_node_of(s->g, s->uses.list[i]) : NULL;
    if (other && cy_quant_is_conv(other) && other->in[0] == n->in[0])
      one_tap &= has_one_tap(s->g, other);
  }
  bool found = !s->q->float8 && cy_maxima_by_contraction(s->g, s->p->options->caps, n->in[0]);
  return one_tap && !found && cy_caps_of(s->p->options->caps)->scales_per_place ? CY_QUANT_PER_PLACE
                                                                                : CY_QUANT_PER_IMAGE;
}

static const cy_quant_rounded *rounded(dynamic *s, const cy_node_info *n) {
  cy_quant_scales scales = scales_of(s, n);
  uint32_t r = 0;
  while (r < s->nknown && (s->known[r].x != n->in[0] || s->known[r].block != n->block || s->known[r].scales != scales))
    r++;
  if (r == s->nknown) {
    s->known[s->nknown++] = cy_quant_round(s->g, n->in[0], scales, s->sizes, s->q->float8);
    s->known[r].block = n->block;
    s->known[r].scales = scales;
  }
  return &s->known[r];
}

/* The scales of the places that n reads: all, or one in so many along each axis. */
static cy_val scales_read(dynamic *s, const cy_node_info *n, const cy_quant_rounded *x) {
  cy_dim starts[CY_MAX_RANK], sizes[CY_MAX_RANK];
  int64_t steps[CY_MAX_RANK];
  uint32_t nstrides = 0;
  const int64_t *strides = cy_attr_list(n, CY_ATTR_strides, &nstrides);
  const cy_type t = *cy_type_of(s->g, x->scale), *y = cy_type_of(s->g, n->out[0]);
  bool all = true;
  for (int i = 0; i < t.rank; i++) {
    starts[i] = cy_dim_const(s->g, 0);
    steps[i] = i >= 2 && (uint32_t)i - 2 < nstrides ? strides[i - 2] : 1;
    sizes[i] = i < 2 ? t.dim[i] : y->dim[i];
    all &= steps[i] == 1;
  }
  return x->scales != CY_QUANT_PER_PLACE || all ? x->scale : cy_build_slice(s->g, x->scale, starts, steps, sizes);
}

/* What layer `id` puts out, from integers, built here. */
static cy_val contraction(dynamic *s, cy_node id) {
  cy_graph *g = s->g;
  const cy_node_info *n = cy_node_of(g, id);
  if (n->op == CY_OP_attention)
    return cy_quant_attention(s->p, n);
  cy_rewrite_origin(s->p, n);
  const cy_quant_rounded *x = rounded(s, n);
  cy_val scale, in[2] = {x->ints, cy_quant_weights(s->p, n, NULL, &scale)};
  cy_type type = *cy_type_of(g, n->out[0]);
  type.dtype = CY_I32;
  cy_val sums = s->q->float8                    ? cy_quant_float8_product(s->p, n, in[0], in[1])
                : n->op == CY_OP_conv_transpose ? cy_shuffle_integers(g, n, in[0], in[1], 0)
                                                : cy_build(g, (cy_op)n->op, in, 2, n->attrs, n->nattrs, &type, 1);
  cy_val each = scales_read(s, n, x);
  cy_val y = cy_build_binary(g, CY_OP_mul, cy_build_cast(g, sums, CY_F32), each);
  return cy_build_binary(g, CY_OP_mul, y, cy_quant_along_channels(g, n, scale));
}


/* Layer n's share of rounding what it reads. */
static double rounding_cycles(const dynamic *s, const cy_node_info *n) {
  uint32_t sharing = 0;
  if (n->in[0] > s->values) /* the result of a layer that was replaced */
    return cy_caps_layer_cycles(s->q->caps, s->g, n, s->sizes, CY_LAYER_ROUNDING);
  for (uint32_t i = s->uses.start[n->in[0]]; i < s->uses.start[n->in[0] + 1]; i++) {
    const cy_node_info *other = s->uses.list[i] ? cy_node_of(s->g, s->uses.list[i]) : NULL;
    sharing += other && other->op == n->op && other->in[0] == n->in[0];
  }
  return cy_caps_layer_cycles(s->q->caps, s->g, n, s->sizes, CY_LAYER_ROUNDING) / (sharing ? sharing : 1);
}

/* Where nothing is known of time, on a GPU: are there matrices to multiply? */
static bool is_dense(const dynamic *s, const cy_node_info *n) {
  int64_t d[CY_MAX_RANK], depth = 1;
  const cy_type *w = cy_type_of(s->g, n->in[1]);
  int axis = cy_quant_weight_axis(s->g, n);
  cy_type_static(s->g, w, d);
  for (int i = 0; i < w->rank; i++)
    depth *= i == axis ? 1 : d[i];
  return cy_attr_get_int(n, CY_ATTR_group, 1) == 1 && depth >= MIN_DEPTH && d[axis] >= MIN_WIDTH;
}

static bool gains(const dynamic *s, const cy_quant_layer *l, const cy_node_info *n) {
  if (l->cycles[0] <= 0)
    return !cy_quant_is_conv(n) || is_dense(s, n);
  const cy_target_caps *caps = cy_caps_of(s->q->caps);
  bool wide = (cy_quant_is_conv(n) || n->op == CY_OP_attention) && caps->rounding_margin > caps->ints.margin;
  return l->cycles[0] > l->cycles[1] * (wide ? caps->rounding_margin : caps->ints.margin);
}

static bool any_of(const cy_node_info *n, const bool *marked) {
  for (uint32_t k = 0; k < n->nout; k++)
    if (n->out[k] && marked[n->out[k]])
      return true;
  return false;
}

/* Why layer l, node n of block b, stays in float; NULL: it does not. */
static const char *reason(const dynamic *s, cy_quant_layer *l, const cy_node_info *n, cy_block b) {
  const char *keep = cy_quant_skipped(s->q, s->g, n) ? CY_QUANT_SKIPPED : why_not(s->p, n, s->q->smallest);
  if (!keep && cy_weights_take(s->p, n))
    return CY_QUANT_BLOCKS;
  if (!keep && cy_quant_feeds_log(s->g, &s->uses, n->out[0]))
    keep = CY_QUANT_LOG;
  if (!keep && any_of(n, s->deciding))
    keep = CY_QUANT_DECIDES;
  return keep ? keep : cy_quant_judged(s->q, l, b);
}

static void put_in_place(dynamic *s, cy_val v, cy_val by) {
  s->replaced[s->nreplaced].v = v;
  s->replaced[s->nreplaced++].by = by;
  cy_graph_replace(s->g, v, by);
}

/* Layer `id` in integers: in its place, or only compared with it. */
static void replace(dynamic *s, cy_node id, uint32_t layer, bool measure) {
  bool recurrence = cy_quant_is_recurrence(s->g, cy_node_of(s->g, id));
  cy_val y = recurrence ? cy_quant_recurrence(s->p, id, measure) : contraction(s, id);
  if (s->single)
    cy_quant_single(s->p, s->single, layer, id, &y, 1);
  else if (measure)
    cy_quant_compare(s->g, s->q, layer, y, NULL, 0);
  else if (!recurrence)
    put_in_place(s, cy_node_of(s->g, id)->out[0], y);
  cy_pass_count(s->p, "layers", 1);
}

/* ---- layer by layer ---- */

cy_quant_dynamics *cy_quant_dynamics_open(cy_pass *p, cy_quant *q) {
  dynamic *s = CY_NEW_ARRAY(p->scratch, dynamic, 1);
  uint32_t max = cy_node_count(p->g) + 1;
  *s = (dynamic){.p = p,
                 .g = p->g,
                 .q = q,
                 .uses = cy_graph_uses(p->g, p->scratch),
                 .values = cy_value_count(p->g),
                 .sizes = cy_quant_sizes(p->g, p->scratch)};
  s->known = CY_NEW_ARRAY(p->scratch, cy_quant_rounded, max);
  s->replaced = cy_arena_alloc(p->scratch, sizeof *s->replaced * max);
  s->deciding = cy_quant_deciding(p, &s->uses, false);
  return s;
}

static bool is_layer(dynamic *s, const cy_node_info *n) {
  if (s->q->float8)
    return cy_quant_eligible(s->g, n);
  return cy_quant_eligible(s->g, n) || cy_quant_is_recurrence(s->g, n) ||
         cy_quant_is_attention(s->p, s->q, n, s->sizes);
}

/* Sets the estimates of layer l, node n of block b, and why it stays in float. */
static void judge(dynamic *s, cy_quant_layer *l, const cy_node_info *n, cy_block b) {
  cy_quant_cycles(s->q, s->g, n, s->sizes, l->cycles);
  if (l->cycles[1] > 0 && n->op != CY_OP_recurrent && n->op != CY_OP_attention)
    l->cycles[1] += rounding_cycles(s, n);
  if (!l->keep)
    l->keep = reason(s, l, n, b);
  if (!l->keep && !s->q->smallest && !gains(s, l, n))
    l->keep = CY_QUANT_NO_GAIN;
}

bool cy_quant_dynamics_offered(cy_quant_dynamics *s, cy_node id, cy_quant_layer *l) {
  const cy_node_info *n = cy_node_of(s->g, id);
  if (!is_layer(s, n))
    return false;
  judge(s, l, n, n->block);
  return true;
}

cy_val cy_quant_dynamics_make(cy_quant_dynamics *s, cy_node id) {
  return cy_quant_is_recurrence(s->g, cy_node_of(s->g, id)) ? cy_quant_recurrence(s->p, id, true) : contraction(s, id);
}

void cy_quant_dynamic_planned(cy_pass *p, cy_quant *q) {
  dynamic *s = cy_quant_dynamics_open(p, q);
  uint32_t count;
  const cy_node *nodes = cy_pass_walk(p, 1, &count);
  for (uint32_t i = 0; i < count; i++) {
    const cy_node_info *n = cy_node_of(p->g, nodes[i]);
    cy_precision as = cy_quant_planned(p, n, nodes[i]);
    if (as != CY_PRECISION_DYNAMIC && !(as == CY_PRECISION_BF16 && n->op == CY_OP_attention))
      continue;
    cy_build_before(p->g, nodes[i]);
    replace(s, nodes[i], 0, false);
  }
  cy_quant_store_halves(p, s->known, s->nknown);
}

/* ---- all of a graph ---- */

void cy_quant_dynamic(cy_pass *p, cy_quant *q, cy_block first) {
  cy_graph *g = p->g;
  uint32_t max = cy_node_count(g);
  dynamic *s = cy_quant_dynamics_open(p, q);
  cy_quant_more_layers(q, max);
  bool single = q->mode == CY_QUANT_SINGLE_DYNAMIC, measure = single || q->mode == CY_QUANT_MEASURE_DYNAMIC;
  cy_quant_singles made;
  if (single) {
    q->chosen = cy_quant_chosen_outputs(p, q->arena);
    s->amplified = cy_quant_deciding(p, &s->uses, true);
    cy_quant_singles_start(p, &made, max);
    s->single = &made;
  }
  for (cy_block b = first; b <= (measure ? 1 : cy_block_count(g)); b++) {
    uint32_t count;
    const cy_node *nodes = cy_pass_walk(p, b, &count);
    for (uint32_t i = 0; i < count; i++) {
      const cy_node_info *n = cy_node_of(g, nodes[i]);
      bool given = cy_weights_read(p, n, &s->uses);
      if (!given && !is_layer(s, n))
        continue;
      cy_quant_layer *l = &q->layer[q->nlayers++];
      cy_quant_describe(q, g, nodes[i], l);
      l->amplified = single && any_of(n, s->amplified);
      if (given) {
        l->keep = cy_quant_skipped(q, g, n) ? CY_QUANT_SKIPPED : CY_QUANT_BLOCKS;
        continue;
      }
      judge(s, l, n, b);
      if (l->keep)
        continue;
      if (measure && i + 1 == count)
        cy_build_in(g, b);
      else
        cy_build_before(g, nodes[measure ? i + 1 : i]);
      replace(s, nodes[i], (uint32_t)(l - q->layer), measure);
    }
  }
  if (single)
    cy_quant_singles_end(p, &made);
  if (!measure)
    cy_quant_store_halves(p, s->known, s->nknown);
}
