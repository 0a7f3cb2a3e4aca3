/* SPDX-License-Identifier: Apache-2.0 */
/* quantise_layers.c - the layers that quantising is about: which contractions qualify, what they are called, their
 * weights, how they are measured.
 *
 * In: a graph whose batch normalisations and scales are in the weights. Out: answers, and weights as s8 constants.
 *
 * Weights are symmetric (-127 .. 127) with a scale per output channel: their zero point is 0, so that an integer
 * product needs no sum over activations; -128 is left out, which keeps products of pairs inside 16 bits more often.
 * Those of f8e4m3fn have the largest of a channel at 448.
 */
#include "quantise_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void cy_quant_init(cy_quant *q, cy_quant_mode mode) { *q = (cy_quant){.mode = mode, .arena = cy_arena_create()}; }

void cy_quant_deinit(cy_quant *q) {
  if (q->arena)
    cy_arena_destroy(q->arena);
  q->arena = NULL;
}

/* A spectrum's weak bins would drown in the rounding of its strong ones: its waves are no learnt weights. */
static bool is_fourier(const cy_graph *g, const cy_node_info *n) {
  const char *op = cy_str_text(g, n->origin.op);
  return strcmp(op, "STFT") == 0 || strcmp(op, "DFT") == 0;
}

bool cy_quant_eligible(cy_graph *g, const cy_node_info *n) {
  if (!(cy_quant_op_does((cy_op)n->op) & CY_QUANT_LAYER) || is_fourier(g, n))
    return false;
  const cy_type *x = cy_type_of(g, n->in[0]), *w = cy_type_of(g, n->in[1]), *y = cy_type_of(g, n->out[0]);
  return x->dtype == CY_F32 && w->dtype == CY_F32 && y->dtype == CY_F32 && cy_value_of(g, n->in[1])->data.bytes &&
         !cy_value_is_const(g, n->in[0]) && cy_type_count(g, w) > 0 &&
         (n->op != CY_OP_conv_transpose || cy_shuffle_possible(g, n));
}

/* A device has them for products and convolutions of one group by matrix instructions. */
const char *cy_quant_float8_keeps(const cy_graph *g, const cy_node_info *n) {
  enum { MIN_DEPTH = 32, MIN_WIDTH = 16 }; /* less fills no tile */
  int64_t d[CY_MAX_RANK], depth = 1, width = 0;
  const cy_type *w = cy_type_of(g, n->in[1]);
  if (n->op != CY_OP_matmul && n->op != CY_OP_conv)
    return "is not computed in floats of 8 bits";
  if (cy_attr_get_int(n, CY_ATTR_group, 1) != 1)
    return "groups are not computed in floats of 8 bits";
  for (int i = 0, axis = cy_quant_weight_axis(g, n); cy_type_static(g, w, d) && i < w->rank; i++)
    if (i == axis)
      width = d[i];
    else if (n->op == CY_OP_conv || i == w->rank - 2)
      depth *= d[i];
  return depth < MIN_DEPTH || width < MIN_WIDTH ? "too small to gain" : NULL;
}

cy_val cy_quant_float8_product(cy_pass *p, const cy_node_info *n, cy_val x, cy_val w) {
  const cy_pass_options *o = p->options;
  bool direct = cy_caps_of(o->caps)->float8;
  cy_val in[2] = {direct ? x : cy_build_cast(p->g, x, CY_F32), direct ? w : cy_build_cast(p->g, w, CY_F32)};
  return cy_build(p->g, (cy_op)n->op, in, 2, n->attrs, n->nattrs, cy_type_of(p->g, n->out[0]), 1);
}

bool cy_quant_is_recurrence(const cy_graph *g, const cy_node_info *n) {
  if (n->op != CY_OP_recurrent)
    return false;
  const cy_type *w = cy_type_of(g, n->in[1]);
  return cy_type_of(g, n->in[0])->dtype == CY_F32 && w->dtype == CY_F32 && cy_value_of(g, n->in[1])->data.bytes &&
         cy_attr_get_int(n, CY_ATTR_hidden, 1) % 2 == 0;
}

bool cy_quant_is_attention(const cy_pass *p, const cy_quant *q, const cy_node_info *n, const int64_t *sizes) {
  const cy_pass_options *o = p->options;
  double cycles[2];
  if (n->op != CY_OP_attention || cy_type_of(p->g, n->in[0])->dtype != CY_F32 ||
      !cy_caps_half_factors(o->caps, CY_BF16, p->g, n, sizes))
    return false;
  cy_quant_cycles(q, p->g, n, sizes, cycles);
  return cycles[1] > 0;
}

static bool is_view(const cy_node_info *n) {
  return n && n->op != CY_OP_concat && n->nout == 1 && cy_op_of((cy_op)n->op)->cls == CY_CLASS_VIEW;
}

/* Does nothing read v, or what views make of it, but attention its factors? */
static bool only_factors(const cy_graph *g, const cy_uses *uses, cy_val v, int depth) {
  for (uint32_t i = uses->start[v]; i < uses->start[v + 1]; i++) {
    const cy_node_info *n = uses->list[i] ? cy_node_of(g, uses->list[i]) : NULL;
    bool view = is_view(n) && n->in[0] == v && depth && only_factors(g, uses, n->out[0], depth - 1);
    if (!view && !(n && n->op == CY_OP_attention && (n->in[0] == v || n->in[1] == v || n->in[2] == v)))
      return false;
  }
  return true;
}

enum { MAX_FACTORS = 3, MAX_VIEWS = 8 };
typedef struct halves {
  cy_uses uses;
  cy_val from[MAX_FACTORS], to[MAX_FACTORS]; /* casts */
  int n;
} halves;

static cy_val cast_once(cy_pass *p, halves *h, cy_val v) {
  for (int i = 0; i < h->n; i++)
    if (h->from[i] == v)
      return h->to[i];
  h->from[h->n] = v;
  return h->to[h->n++] = cy_build_cast(p->g, v, CY_BF16);
}

/* v as bf16: rounded in front of the views that make it where nobody reads these in f32, so that the kernel of a
 * product that makes all factors stores halves. */
static cy_val halved(cy_pass *p, halves *h, cy_val v) {
  cy_graph *g = p->g;
  const cy_node_info *n = cy_def(g, v);
  if (!is_view(n) || !only_factors(g, &h->uses, n->in[0], MAX_VIEWS))
    return cast_once(p, h, v);
  cy_val *in = CY_NEW_ARRAY(p->scratch, cy_val, n->nin + 1);
  memcpy(in, n->in, n->nin * sizeof *in);
  in[0] = halved(p, h, in[0]);
  cy_type type = *cy_type_of(g, v);
  type.dtype = CY_BF16;
  n = cy_def(g, v);
  return cy_build(g, (cy_op)n->op, in, n->nin, n->attrs, n->nattrs, cy_op_of((cy_op)n->op)->typed ? &type : NULL, 1);
}

cy_val cy_quant_attention(cy_pass *p, const cy_node_info *n) {
  cy_attention a = cy_attention_of(n);
  halves h = {.uses = cy_graph_uses(p->g, p->scratch)};
  cy_val *factor[] = {&a.q, &a.k, &a.v};
  cy_rewrite_origin(p, n);
  for (int i = 0; i < MAX_FACTORS; i++)
    *factor[i] = halved(p, &h, *factor[i]);
  a.wide = true;
  return cy_build_attention(p->g, &a);
}

/* Does n, reading x, hand on what is small beside the rest of it as such, so that a logarithm would show it? */
static bool keeps_small(const cy_graph *g, const cy_node_info *n) {
  if (n->op != CY_OP_matmul)
    return cy_quant_op_does((cy_op)n->op) & CY_QUANT_SMALL;
  const cy_data *w = &cy_value_of(g, n->in[1])->data;
  return cy_type_of(g, n->in[1])->dtype == CY_F32 && cy_quant_adds_powers(w->bytes, w->size / sizeof(float));
}

/* By a model's own Log: other functions are made of logarithms, too. */
static bool feeds_log(const cy_graph *g, const cy_uses *uses, cy_val v, int depth) {
  for (uint32_t i = uses->start[v]; i < uses->start[v + 1] && depth; i++) {
    const cy_node_info *n = uses->list[i] ? cy_node_of(g, uses->list[i]) : NULL;
    if (n && n->op == CY_OP_log && strcmp(cy_str_text(g, n->origin.op), "Log") == 0)
      return true;
    if (n && keeps_small(g, n) && feeds_log(g, uses, n->out[0], depth - 1))
      return true;
  }
  return false;
}

bool cy_quant_feeds_log(const cy_graph *g, const cy_uses *uses, cy_val v) {
  return feeds_log(g, uses, v, CY_QUANT_LOG_DEPTH);
}

bool cy_quant_skipped(const cy_quant *q, const cy_graph *g, const cy_node_info *n) {
  return cy_quant_skips(q->skip, cy_str_text(g, n->origin.name), cy_str_text(g, n->origin.op));
}

/* Looks rows up in a constant or adds one (tables.c)? */
static bool reads_table(const cy_node_info *n) { return n->op == CY_OP_gather || n->op == CY_OP_add; }

/* Which of its inputs that is, or what n multiplies with. */
static int constant_of(const cy_graph *g, const cy_node_info *n) {
  return n->op == CY_OP_gather || (n->op == CY_OP_add && cy_value_of(g, n->in[0])->data.bytes) ? 0 : 1;
}

/* Of the output: channels. */
static int out_axis(const cy_graph *g, const cy_node_info *n) {
  return n->op == CY_OP_matmul || n->op == CY_OP_recurrent || n->op == CY_OP_attention || reads_table(n)
             ? cy_type_of(g, n->out[0])->rank - 1
             : 1;
}

int cy_quant_weight_axis(const cy_graph *g, const cy_node_info *n) {
  return n->op == CY_OP_matmul ? cy_type_of(g, n->in[1])->rank - 1 : n->op == CY_OP_conv_transpose;
}

void cy_quant_more_layers(cy_quant *q, uint32_t n) {
  const cy_quant_layer *before = q->layer;
  q->layer = CY_NEW_ARRAY(q->arena, cy_quant_layer, q->nlayers + n + 1);
  if (q->nlayers)
    memcpy(q->layer, before, q->nlayers * sizeof *before);
}

/* w: NULL when it is computed. */
static const char *shape_text(cy_quant *q, const cy_node_info *n, const int64_t *w, int rank) {
  if (!w)
    return "computed";
  if (n->op == CY_OP_matmul)
    return cy_arena_printf(q->arena, "%lld->%lld", (long long)w[rank - 2], (long long)w[rank - 1]);
  if (n->op == CY_OP_recurrent)
    return cy_arena_printf(q->arena, "%lld->%lld", (long long)w[1], (long long)w[0]);
  if (reads_table(n))
    return cy_arena_printf(q->arena, "rows of %lld", (long long)w[rank - 1]);
  char kernel[128] = "";
  size_t used = 0;
  for (int i = 2; i < rank && used < sizeof kernel - 24; i++)
    used += (size_t)snprintf(kernel + used, sizeof kernel - used, "%s%lld", i > 2 ? "x" : "", (long long)w[i]);
  int64_t group = cy_attr_get_int(n, CY_ATTR_group, 1);
  return cy_arena_printf(q->arena, group > 1 ? "%s %lld->%lld /%lld" : "%s %lld->%lld", kernel,
                         (long long)(n->op == CY_OP_conv ? w[1] * group : w[0]),
                         (long long)(n->op == CY_OP_conv ? w[0] : w[1] * group), (long long)group);
}

/* Of attention: their size is always known. */
static const char *heads_text(cy_quant *q, const cy_graph *g, const cy_type *k) {
  int64_t size = 0;
  cy_dim_is_const(g, k->dim[k->rank - 1], &size);
  return cy_arena_printf(q->arena, "heads of %lld", (long long)size);
}

bool cy_quant_finite(const cy_data *data) {
  const cy_data_f32 *w = data->bytes;
  for (uint64_t i = 0; i < data->size / sizeof *w; i++)
    if (!isfinite(w[i]))
      return false;
  return true;
}

void cy_quant_describe(cy_quant *q, cy_graph *g, cy_node id, cy_quant_layer *out) {
  const cy_node_info *n = cy_node_of(g, id);
  int constant = constant_of(g, n);
  const cy_type *x = cy_type_of(g, n->in[!constant]), *w = cy_type_of(g, n->in[constant]),
                *y = cy_type_of(g, n->out[0]);
  int64_t d[CY_MAX_RANK], channels;
  bool known = cy_type_static(g, w, d);
  if (!cy_dim_is_const(g, y->dim[out_axis(g, n)], &channels))
    channels = 1; /* nothing is reported of them then */
  const char *name = cy_str_text(g, n->origin.name), *op = cy_str_text(g, n->origin.op);
  *out = (cy_quant_layer){.node = id,
                          .name = *name ? cy_arena_printf(q->arena, "%s", name)
                                        : cy_arena_printf(q->arena, "%s %d", op, (int)n->origin.index),
                          .op = cy_arena_printf(q->arena, "%s", op),
                          .shape = n->op == CY_OP_attention ? heads_text(q, g, w)
                                                            : shape_text(q, n, known ? d : NULL, w->rank),
                          .input = n->in[!constant],
                          .channels = (uint32_t)channels,
                          .instead = n->op == CY_OP_attention ? "bf16" : NULL,
                          .product = n->op == CY_OP_matmul,
                          .depthwise = known && n->op == CY_OP_conv && d[1] == 1 && d[0] > 1,
                          .error = -1};
  const cy_data *weights = &cy_value_of(g, n->in[constant])->data;
  if (weights->bytes && w->dtype == CY_F32 && !cy_quant_finite(weights))
    out->keep = "weights are not finite";
  uint64_t each = !known || !d[0] || reads_table(n) ? 0
                  : n->op == CY_OP_attention ? (uint64_t)(d[w->rank - 2] + d[w->rank - 2] * d[w->rank - 1] / channels)
                  : n->op == CY_OP_matmul    ? (uint64_t)d[w->rank - 2]
                  : n->op == CY_OP_recurrent ? (uint64_t)d[0]
                                             : cy_type_count(g, w) / (uint64_t)d[0];
  out->macs = (double)cy_type_count(g, n->op == CY_OP_conv_transpose ? x : y) * (double)each;
}

const char *cy_quant_judged(const cy_quant *q, cy_quant_layer *l, cy_block b) {
  if (q->limited && b != 1)
    return "its error cannot be measured inside control flow";
  for (uint32_t i = 0; i < q->nmeasured; i++)
    if (q->measured[i].node == l->node) {
      l->error = q->measured[i].error;
      return q->measured[i].keep;
    }
  return NULL;
}

/* ---- time ------------------------------------------------------------------------------------------------------- */

enum { MIDDLING = 64 };

static void set_one(void *sizes, cy_sym s) { ((int64_t *)sizes)[s] = 1; }

const int64_t *cy_quant_sizes(const cy_graph *g, cy_arena *arena) {
  const cy_port_info *ports;
  uint32_t n = cy_graph_inputs(g, &ports), count = cy_sym_count(g) + 1;
  int64_t *sizes = CY_NEW_ARRAY(arena, int64_t, count);
  for (uint32_t i = 0; i < count; i++)
    sizes[i] = MIDDLING;
  for (uint32_t i = 0; i < n; i++)
    if (cy_type_of(g, ports[i].value)->rank > 1)
      cy_dim_symbols(g, cy_type_of(g, ports[i].value)->dim[0], set_one, sizes);
  return sizes;
}

double cy_quant_elements(const cy_graph *g, cy_val v, const int64_t *sizes) {
  const cy_type *t = cy_type_of(g, v);
  double n = 1;
  for (int i = 0; i < t->rank; i++)
    n *= (double)cy_dim_eval(g, t->dim[i], sizes);
  return n;
}

void cy_quant_cycles(const cy_quant *q, const cy_graph *g, const cy_node_info *n, const int64_t *sizes, double out[2]) {
  for (int ints = 0; ints < 2; ints++)
    out[ints] = cy_caps_layer_cycles(q->caps, g, n, sizes, ints ? CY_LAYER_INTS : CY_LAYER_FLOATS);
}

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

void cy_quant_u8(double low, double high, float *out_scale, int *out_zero) {
  low = low < 0 ? low : 0;
  high = high > 0 ? high : 0;
  float scale = (float)((high - low) / 255);
  if (!(scale >= 1e-30f)) /* all zero: any scale will do */
    scale = 1;
  double zero = rint(-low / scale);
  *out_scale = scale;
  *out_zero = zero > 255 ? 255 : (int)zero;
}

float cy_quant_float8_scale(double max) {
  float scale = (float)(max / CY_QUANT_FLOAT8_MAX);
  return scale >= 1e-30f ? scale : 1;
}

enum { MAX_TAPS = 64 };

/* Neighbours are alike, so what a filter's taps make of an input channel depends on their sum most of all: those that were
 * nearest to being rounded the other way are, until the sum is off by half a step at most. */
static void keep_sum(const cy_data_f32 *w, float scale, uint64_t taps, int8_t *ints) {
  double off = 0;
  for (uint64_t i = 0; i < taps; i++)
    off += ints[i] - (double)w[i] / scale;
  while (fabs(off) > 0.5) {
    int step = off > 0 ? -1 : 1;
    uint64_t best = taps;
    double max = 0;
    for (uint64_t i = 0; i < taps; i++) {
      double wanted = ((double)w[i] / scale - ints[i]) * step;
      if (wanted > max && abs(ints[i] + step) <= 127) {
        max = wanted;
        best = i;
      }
    }
    if (best == taps)
      return;
    ints[best] = (int8_t)(ints[best] + step);
    off += step;
  }
}

void cy_quant_s8(const void *values, uint64_t outer, uint64_t channels, uint64_t inner, uint64_t taps, float *out_scale,
                 int8_t *out) {
  const cy_data_f32 *w = values;
  memset(out_scale, 0, channels * sizeof *out_scale);
  for (uint64_t r = 0; r < outer * channels; r++)
    for (uint64_t i = 0; i < inner; i++) {
      float a = fabsf(w[r * inner + i]), *max = &out_scale[r % channels];
      *max = a > *max ? a : *max;
    }
  for (uint64_t c = 0; c < channels; c++)
    out_scale[c] = out_scale[c] >= 1e-30f ? out_scale[c] / 127 : 1;
  for (uint64_t r = 0; r < outer * channels; r++)
    for (uint64_t i = 0; i < inner; i++) {
      float x = rintf(w[r * inner + i] / out_scale[r % channels]);
      out[r * inner + i] = (int8_t)(x > 127 ? 127 : x >= -127 ? x : -127);
    }
  for (uint64_t i = 0; i < outer * channels * inner && taps > 1 && taps <= MAX_TAPS; i += taps)
    keep_sum(w + i, out_scale[i / inner % channels], taps, out + i);
}

/* The same in f8e4m3fn: what a step is goes by the number, so no sums are kept. */
static void round_float8(const void *values, uint64_t outer, uint64_t channels, uint64_t inner, float *out_scale,
                         void *out) {
  const cy_data_f32 *w = values;
  memset(out_scale, 0, channels * sizeof *out_scale);
  for (uint64_t r = 0; r < outer * channels; r++)
    for (uint64_t i = 0; i < inner; i++)
      out_scale[r % channels] = fmaxf(out_scale[r % channels], fabsf(w[r * inner + i]));
  for (uint64_t c = 0; c < channels; c++)
    out_scale[c] = cy_quant_float8_scale(out_scale[c]);
  for (uint64_t r = 0; r < outer * channels; r++)
    for (uint64_t i = 0; i < inner; i++) {
      cy_scalar x = {.f = w[r * inner + i] / out_scale[r % channels]};
      cy_scalar_store(out, CY_F8E4M3FN, r * inner + i, cy_scalar_eval(CY_OP_cast, CY_F32, CY_F8E4M3FN, &x));
    }
}

/* A copy of the weights with each input channel multiplied. */
static const void *balanced(cy_pass *p, const cy_node_info *n, const int64_t *d, int rank, const float *balance) {
  const cy_data *data = &cy_value_of(p->g, n->in[1])->data;
  const cy_data_f32 *w = data->bytes;
  uint64_t count = data->size / sizeof *w;
  float *out = CY_NEW_ARRAY(p->scratch, float, count + 1);
  bool is_conv = n->op == CY_OP_conv;
  int axis = is_conv ? 1 : n->op == CY_OP_conv_transpose ? 0 : rank - 2; /* of input channels */
  uint64_t depth = (uint64_t)d[axis], inner = 1, group = is_conv ? (uint64_t)cy_attr_get_int(n, CY_ATTR_group, 1) : 1;
  for (int i = axis + 1; i < rank; i++)
    inner *= (uint64_t)d[i];
  uint64_t per_group = is_conv ? (uint64_t)d[0] / group : 1;
  for (uint64_t i = 0; i < count; i++) {
    uint64_t row = i / inner, c = row % depth;
    if (is_conv)
      c += row / depth / per_group * depth;
    out[i] = w[i] * balance[c];
  }
  return out;
}

cy_val cy_quant_weights(cy_pass *p, const cy_node_info *n, const float *balance, cy_val *out_scale) {
  cy_graph *g = p->g;
  const cy_type *w = cy_type_of(g, n->in[1]);
  int axis = cy_quant_weight_axis(g, n);
  int64_t d[CY_MAX_RANK];
  uint64_t outer = 1, inner = 1, taps = 1;
  cy_type_static(g, w, d);
  for (int i = 2; i < w->rank && n->op == CY_OP_conv; i++)
    taps *= (uint64_t)d[i];
  for (int i = 0; i < w->rank; i++)
    *(i < axis ? &outer : &inner) *= i == axis ? 1 : (uint64_t)d[i];
  const cy_quant *q = p->options->quant;
  bool float8 = q && q->float8;
  cy_type ints = cy_type_make(float8 ? CY_F8E4M3FN : CY_I8, w->rank, w->dim),
          scales = cy_type_make(CY_F32, 1, &w->dim[axis]);
  cy_val v;
  void *to = cy_const_new(g, &ints, &v);
  float *scale = cy_const_new(g, &scales, out_scale);
  const void *from = cy_value_of(g, n->in[1])->data.bytes;
  from = balance ? balanced(p, n, d, w->rank, balance) : from;
  if (float8)
    round_float8(from, outer, (uint64_t)d[axis], inner, scale, to);
  else
    cy_quant_s8(from, outer, (uint64_t)d[axis], inner, taps, scale, to);
  cy_const_made_of(g, v, n->in[1]);
  cy_const_made_of(g, *out_scale, n->in[1]);
  return v;
}

cy_val cy_quant_recurrence(cy_pass *p, cy_node id, bool keep) {
  cy_graph *g = p->g;
  const cy_node_info *n = cy_node_of(g, id);
  cy_val in[9] = {0}, old[3];
  memcpy(in, n->in, n->nin * sizeof *in);
  memcpy(old, n->out, n->nout * sizeof *old);
  cy_rewrite_origin(p, n);
  in[1] = cy_quant_weights(p, n, NULL, &in[7]);
  cy_val y = cy_build(g, CY_OP_recurrent, in, 9, n->attrs, n->nattrs, NULL, 3);
  for (uint32_t k = 0; k < 3 && !keep; k++)
    cy_graph_replace(g, old[k], cy_build_output(g, y, k));
  return y;
}

cy_val cy_quant_along_channels(cy_graph *g, const cy_node_info *n, cy_val c) {
  int rank = cy_type_of(g, n->out[0])->rank, axis = out_axis(g, n);
  cy_dim dims[CY_MAX_RANK];
  for (int i = axis; i < rank; i++)
    dims[i - axis] = i == axis ? cy_type_of(g, c)->dim[0] : cy_dim_const(g, 1);
  return cy_build_reshape(g, c, dims, rank - axis);
}

/* ---- measuring -------------------------------------------------------------------------------------------------- */

uint32_t cy_quant_add_output(cy_graph *g, const char *what, uint32_t number, cy_val v) {
  const cy_port_info *ports;
  uint32_t at = cy_graph_outputs(g, &ports);
  char name[64];
  snprintf(name, sizeof name, "cytoc.quantise.%s.%u", what, number);
  cy_graph_add_output(g, name, v);
  return at;
}

static cy_val sum_all(cy_graph *g, cy_val x, int but) {
  int64_t axes[CY_MAX_RANK];
  uint32_t n = 0;
  for (int i = 0; i < cy_type_of(g, x)->rank; i++)
    if (i != but)
      axes[n++] = i;
  return n ? cy_build_reduce(g, CY_OP_reduce_sum, x, axes, n, false) : x;
}

/* Sums of squares: of what y differs from x, and of x. */
static void add_squares(cy_graph *g, cy_val x, cy_val y, cy_val *sums, uint32_t *n) {
  cy_val d = cy_build_binary(g, CY_OP_sub, y, x);
  sums[(*n)++] = sum_all(g, cy_build_binary(g, CY_OP_mul, d, d), -1);
  sums[(*n)++] = sum_all(g, cy_build_binary(g, CY_OP_mul, x, x), -1);
}

void cy_quant_compare(cy_graph *g, cy_quant *q, uint32_t i, cy_val y, const cy_quant_end *ends, uint32_t nends) {
  cy_quant_layer *l = &q->layer[i];
  const cy_node_info *n = cy_node_of(g, l->node);
  cy_val out = n->out[0], *sums = CY_NEW_ARRAY(q->arena, cy_val, 3 + 2 * (size_t)nends);
  uint32_t nsums = 0;
  int axis = out_axis(g, n);
  const cy_dim one = cy_dim_const(g, 1), count = cy_type_elems(g, cy_type_of(g, out));
  add_squares(g, out, y, sums, &nsums);
  sums[nsums++] = cy_build_cast(g, cy_build_dim_scalar(g, cy_dim_div(g, count, cy_dim_const(g, l->channels))), CY_F32);
  l->nends = nends;
  l->end = CY_NEW_ARRAY(q->arena, const char *, nends + 1);
  for (uint32_t k = 0; k < nends; k++) {
    l->end[k] = cy_arena_printf(q->arena, "%s", ends[k].name);
    add_squares(g, ends[k].is, ends[k].would_be, sums, &nsums);
  }
  for (uint32_t k = 0; k < nsums; k++)
    sums[k] = cy_build_reshape(g, sums[k], &one, 1);
  l->output = cy_quant_add_output(g, "sums", i, cy_build_concat(g, sums, nsums, 0));
  cy_quant_add_output(g, "differences", i, sum_all(g, cy_build_binary(g, CY_OP_sub, y, out), axis));
}

cy_precision cy_quant_planned(const cy_pass *p, const cy_node_info *n, cy_node id) {
  const cy_quant *q = p->options->quant;
  return q && q->mode == CY_QUANT_PLAN && n->block == 1 && id < q->nplan ? q->plan[id] : CY_PRECISION_F32;
}
