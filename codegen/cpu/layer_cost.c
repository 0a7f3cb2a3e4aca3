/* SPDX-License-Identifier: Apache-2.0 */
/* layer_cost.c - what a layer takes on one core, in float, in 8-bit integers and in bf16: by this, --int8 and --bf16
 * leave layers in float that they would make slower.
 *
 * In:  a conv, matmul or recurrent of the graph with constant weights, before kernels exist. Out: cycles: the estimate of the
 * algorithm that the generators will choose, by the function that they choose it by. That holds for the layer without what fusion
 * puts into it, an activation or a residual sum, which both forms compute alike. Rounding the result to 8 bits is not in it
 * either: whether that is needed depends on the layers around.
 */
#include "codegen/cpu/conv/conv_int.h"
#include "codegen/cpu/cpu.h"
#include "codegen/cpu/int8/int_gemm.h"
#include "ir/pixel_shuffle.h"

static const double NEVER = 1e15;             /* cycles */
enum { WORTH_PACKING = 32, WORTH_TILES = 8 }; /* rows */

static const cy_type *type_of(const cy_graph *g, cy_val v) { return &cy_value_of(g, v)->type; }

static int64_t dim_of(const cy_graph *g, cy_dim d, const int64_t *sizes) {
  int64_t v = 0;
  if (!cy_dim_is_const(g, d, &v) && sizes)
    v = cy_dim_eval(g, d, sizes);
  return v > 0 ? v : 1;
}

/* Of the first n axes. */
static double elements_of(const cy_graph *g, const cy_type *t, int n, const int64_t *sizes) {
  double elements = 1;
  for (int i = 0; i < n; i++)
    elements *= (double)dim_of(g, t->dim[i], sizes);
  return elements;
}

typedef cy_factor_type arithmetic;

/* Product n as a kernel will have it. Where weights differ from matrix to matrix, each has as many rows. */
static cy_gemm_desc product_of(const cy_graph *g, const cy_node_info *n, const int64_t *sizes) {
  const cy_type *w = type_of(g, n->in[1]), *y = type_of(g, n->out[0]);
  int64_t matrices = w->rank > 2 ? (int64_t)elements_of(g, w, w->rank - 2, sizes) : 1;
  int64_t rows = (int64_t)elements_of(g, y, w->rank > 1 ? y->rank - 1 : y->rank, sizes);
  return (cy_gemm_desc){.n_batch = matrices > 1,
                        .batch = {cy_cconst(matrices)},
                        .b_batch = {cy_cconst(1)},
                        .m = cy_cconst(rows / matrices),
                        .n = cy_cconst(w->rank > 1 ? dim_of(g, w->dim[w->rank - 1], sizes) : 1),
                        .k = cy_cconst(dim_of(g, w->dim[w->rank > 1 ? w->rank - 2 : 0], sizes)),
                        .b_packed = true};
}

static double matmul_cycles(const cy_cg *cg, const cy_graph *g, const cy_node_info *n, const int64_t *sizes,
                            arithmetic f) {
  cy_int_gemm_desc d = {.gemm = product_of(g, n, sizes), .bf16 = f == CY_FACTORS_BF16};
  return f == CY_FACTORS_F32 ? cy_gemm_cost(cg, &d.gemm) : cy_int_cost(cg, &d);
}

static bool is_conv(const cy_node_info *n) { return n->op == CY_OP_conv || n->op == CY_OP_conv_transpose; }

/* sizes NULL: those that are not constants are not known. */
static cy_csize size_of(const cy_graph *g, cy_dim d, const int64_t *sizes) {
  int64_t v;
  return sizes || cy_dim_is_const(g, d, &v) ? cy_cconst(dim_of(g, d, sizes)) : cy_cslot(0);
}

static cy_conv_desc describe(const cy_graph *g, const cy_node_info *n, const int64_t *sizes) {
  const cy_type *x = type_of(g, n->in[0]), *w = type_of(g, n->in[1]), *y = type_of(g, n->out[0]);
  const cy_attr *strides = cy_attr_find(n, CY_ATTR_strides), *dilations = cy_attr_find(n, CY_ATTR_dilations);
  const cy_attr *pads = cy_attr_find(n, CY_ATTR_pads);
  int64_t groups = cy_attr_get_int(n, CY_ATTR_group, 1);
  bool transposed = n->op == CY_OP_conv_transpose;
  cy_conv_desc d = {.name = "",
                    .n_spatial = x->rank - 2,
                    .transposed = transposed,
                    .groups = groups,
                    .batch = size_of(g, x->dim[0], sizes),
                    .cin = transposed ? dim_of(g, w->dim[0], sizes)
                                      : dim_of(g, w->dim[1], sizes) * groups, /* x may not say it */
                    .cout = dim_of(g, y->dim[1], sizes)};
  int64_t stride = d.cin;
  for (int i = d.n_spatial - 1; i >= 0; i--) {
    d.in[i] = size_of(g, x->dim[2 + i], sizes);
    d.out[i] = size_of(g, y->dim[2 + i], sizes);
    d.in_s[i] = cy_cconst(stride);
    d.kernel[i] = dim_of(g, w->dim[2 + i], sizes);
    d.stride[i] = strides->ints[i];
    d.dilation[i] = dilations ? dilations->ints[i] : 1;
    d.pad[i] = pads->ints[i];
    stride *= d.in[i].value;
  }
  d.in_n = cy_cconst(stride);
  return d;
}

/* Winograd's algorithm in integers is for these. */
static bool sizes_are_known(const cy_graph *g, const cy_type *t) {
  int64_t size;
  for (int i = 0; i < t->rank; i++)
    if (!cy_dim_is_const(g, t->dim[i], &size))
      return false;
  return true;
}

/* A transposed convolution of one group, as one that shuffles its channels. */
static double shuffled_cycles(const cy_cg *cg, const cy_conv_desc *d) {
  cy_int_gemm_desc shuffled = {
      .conv = true, .window = *d, .b_signed = true, .b_bits = 8, .a_zero_slot = -1, .b_zero_slot = -1};
  cy_conv_desc *w = &shuffled.window;
  w->transposed = false;
  for (int i = 0; i < d->n_spatial; i++) {
    cy_shuffle_axis a = cy_shuffle_axis_of(d->kernel[i], d->stride[i], d->pad[i]);
    shuffled.shuffle[i] = (cy_shuffle_fill){d->stride[i], a.before, a.behind};
    w->out[i] = cy_cconst(cy_ceil(d->out[i].value, d->stride[i]));
    w->kernel[i] = a.taps;
    w->stride[i] = 1;
    w->pad[i] = a.edge;
    w->cout *= d->stride[i];
  }
  return cy_int_cost(cg, &shuffled);
}

static double conv_cycles(const cy_cg *cg, const cy_graph *g, const cy_node_info *n, const int64_t *sizes,
                          arithmetic f) {
  if (type_of(g, n->in[0])->rank > 5)
    return 0;
  cy_conv_desc d = describe(g, n, sizes);
  if (f == CY_FACTORS_BYTES && d.transposed)
    return shuffled_cycles(cg, &d);
  if (f == CY_FACTORS_F32 || d.transposed)
    return cy_conv_cost(cg, &d);
  cy_int_gemm_desc integers = {.conv = true,
                               .window = d,
                               .b_signed = true,
                               .b_bits = f == CY_FACTORS_BF16 ? 16 : 8,
                               .bf16 = f == CY_FACTORS_BF16,
                               .a_zero_slot = -1,
                               .b_zero_slot = -1};
  cy_candidates c;
  cy_int_candidates(cg, &integers, sizes_are_known(g, type_of(g, n->in[0])), true, &c);
  return c.of[cy_candidates_best(&c)].cycles;
}

static double transposing(const cy_cg *cg, const cy_graph *g, const cy_type *t, const int64_t *sizes) {
  bool alone = dim_of(g, t->dim[1], sizes) == 1; /* both orders are the same */
  return alone ? 0 : cy_cost_transpose(cg, elements_of(g, t, t->rank, sizes));
}

/* A constant, or one that has been transposed. */
static bool is_constant(const cy_graph *g, cy_val v) {
  cy_node def = cy_value_of(g, v)->node;
  const cy_node_info *n = def ? cy_node_of(g, def) : NULL;
  return cy_value_is_const(g, v) || (n && n->op == CY_OP_transpose && is_constant(g, n->in[0]));
}

/* A convolution that no generator takes, as its weights come at run time and each group has few outputs (else
 * lower_unfold.c makes a product of it), such as the correlations of trackers: lanes along rows read their neighbours, lanes
 * along channels weights that lie far apart. */
enum { FEW_OUTPUTS = 8, MIN_ROW = 8 };

static bool looped_cycles(const cy_cg *cg, const cy_conv_desc *d, cy_conv_cycles *out) {
  if (d->cout / d->groups >= FEW_OUTPUTS || d->out[d->n_spatial - 1].value < MIN_ROW)
    return false;
  double work = (double)d->batch.value * (double)d->cout * (double)(d->cin / d->groups);
  for (int i = 0; i < d->n_spatial; i++)
    work *= (double)(d->out[i].value * d->kernel[i]);
  cy_cost_looped(cg, work, &out->planar, &out->channels);
  return true;
}

static bool is_planar(const char *name) { return cy_candidate_is(name, cy_conv_name(CY_CONV_PLANAR)); }
static bool is_channels(const char *name) { return !is_planar(name); }

/* A candidate that is forced decides the layout, too; measured ones take the place of estimates. */
static void follow_choice(const cy_cg *cg, const cy_graph *g, const cy_node_info *n, cy_conv_cycles *out) {
  if (!cg->choices)
    return;
  cy_conv_desc d = describe(g, n, NULL);
  cy_candidates c;
  cy_conv_candidates(cg, &d, &c);
  double planes = cy_candidates_measured(cg, &c, is_planar), channels = cy_candidates_measured(cg, &c, is_channels);
  if (planes > 0 && channels > 0) {
    out->planar = planes;
    out->channels = channels;
  }
  int asked = cy_candidates_asked(cg, &c);
  if (asked < 0)
    return;
  bool planar = is_planar(c.of[asked].name);
  *out = (cy_conv_cycles){planar ? 0 : NEVER, planar ? NEVER : 0, 0, 0};
}

bool cy_cpu_conv_cycles(const cy_machine *m, const cy_graph *g, const cy_node_info *n, const int64_t *sizes,
                        cy_conv_cycles *out) {
  const cy_cg *cg = m->state;
  const cy_type *x = type_of(g, n->in[0]), *w = type_of(g, n->in[1]), *y = type_of(g, n->out[0]);
  if (n->op != CY_OP_conv || x->rank < 3 || x->rank > 5 || x->dtype != CY_F32 || w->dtype != CY_F32 ||
      y->dtype != CY_F32 || (dim_of(g, x->dim[1], sizes) == 1 && dim_of(g, y->dim[1], sizes) == 1))
    return false;
  cy_conv_desc d = describe(g, n, sizes);
  *out = (cy_conv_cycles){.transpose_in = transposing(cg, g, x, sizes), .transpose_out = transposing(cg, g, y, sizes)};
  if (!is_constant(g, n->in[1]))
    return looped_cycles(cg, &d, out);
  out->planar = cy_form_on(cg, CY_FORM_PLANAR) ? cy_planar_cost(cg, &d) : NEVER;
  out->channels = conv_cycles(cg, g, n, sizes, CY_FACTORS_F32);
  follow_choice(cg, g, n, out);
  return true;
}

/* Only the products with the state, which differ. */
static double recurrent_cycles(const cy_cg *cg, const cy_graph *g, const cy_node_info *n, const int64_t *sizes,
                               arithmetic f) {
  const cy_type *x = type_of(g, n->in[0]), *w = type_of(g, n->in[1]);
  double batch = (double)dim_of(g, x->dim[1], sizes), steps = (double)dim_of(g, x->dim[0], sizes) * batch;
  double units = (double)dim_of(g, w->dim[1], sizes), weights = units * (double)dim_of(g, w->dim[0], sizes);
  return cy_cost_recurrent(cg, f != CY_FACTORS_F32, steps, weights, units, batch >= 4);
}

/* f not CY_FACTORS_F32: of q, k and v as bf16. */
static double attention_cycles(const cy_cg *cg, const cy_graph *g, const cy_node_info *n, const int64_t *sizes,
                               arithmetic f) {
  const cy_type *q = type_of(g, n->in[0]), *v = type_of(g, n->in[2]);
  cy_attention_desc d = {.n_batch = 1,
                         .batch = {cy_cconst((int64_t)elements_of(g, q, q->rank - 2, sizes))},
                         .m = cy_cconst(dim_of(g, q->dim[q->rank - 2], sizes)),
                         .size = dim_of(g, q->dim[q->rank - 1], sizes),
                         .keys = cy_cconst(dim_of(g, v->dim[v->rank - 2], sizes)),
                         .columns = dim_of(g, v->dim[v->rank - 1], sizes),
                         .bf16 = f != CY_FACTORS_F32};
  return cy_attention_cost(cg, &d);
}

static double cycles(const cy_cg *cg, const cy_graph *g, const cy_node_info *n, const int64_t *sizes, arithmetic f) {
  return n->op == CY_OP_matmul      ? matmul_cycles(cg, g, n, sizes, f)
         : is_conv(n)               ? conv_cycles(cg, g, n, sizes, f)
         : n->op == CY_OP_recurrent ? recurrent_cycles(cg, g, n, sizes, f)
         : n->op == CY_OP_attention ? attention_cycles(cg, g, n, sizes, f)
                                    : 0;
}

/* What n reads. */
static double rounding_cycles(const cy_cg *cg, const cy_graph *g, const cy_node_info *n, const int64_t *sizes) {
  const cy_type *t = type_of(g, n->in[0]);
  return cy_cost_rounding(cg, elements_of(g, t, t->rank, sizes), is_conv(n));
}

/* A product whose weights are stored in so many bits. */
static double narrow_weights_cycles(const cy_cg *cg, const cy_graph *g, const cy_node_info *n, const int64_t *sizes,
                                    int bits) {
  if (n->op != CY_OP_matmul || type_of(g, n->in[1])->rank < 2)
    return 0;
  cy_gemm_desc d = product_of(g, n, sizes);
  d.ints.bits = bits;
  return cy_gemm_cost(cg, &d);
}

static bool is_any(const char *name) {
  (void)name;
  return true;
}

/* What the fastest algorithm for convolution n in f32 was measured to take; 0: it was not. */
static double measured_conv(const cy_cg *cg, const cy_graph *g, const cy_node_info *n) {
  if (!cg->choices || n->op != CY_OP_conv || type_of(g, n->in[0])->rank > 5)
    return 0;
  cy_conv_desc d = describe(g, n, NULL);
  cy_candidates c;
  cy_conv_candidates(cg, &d, &c);
  return cy_candidates_measured(cg, &c, is_any);
}

double cy_cpu_layer_cycles(const cy_machine *m, const cy_graph *g, const cy_node_info *n, const int64_t *sizes,
                           cy_layer_arithmetic arithmetic) {
  switch (arithmetic) {
  case CY_LAYER_ROUNDING:
    return rounding_cycles(m->state, g, n, sizes);
  case CY_LAYER_F16_WEIGHTS:
    return narrow_weights_cycles(m->state, g, n, sizes, 16);
  case CY_LAYER_INT4_WEIGHTS:
    return narrow_weights_cycles(m->state, g, n, sizes, 4);
  case CY_LAYER_FLOATS: {
    double measured = measured_conv(m->state, g, n), estimated = cycles(m->state, g, n, sizes, CY_FACTORS_F32);
    /* Times of other precisions are estimates, which leave out what is alike, such as an activation: a measured time that is longer
     * tells nothing beside them. (unet2d_labelfree, --int8: a convolution of one channel became slower by 0.4 ms of 21.) */
    return measured > 0 && (estimated <= 0 || measured < estimated) ? measured : estimated;
  }
  case CY_LAYER_BF16:
    return cycles(m->state, g, n, sizes, CY_FACTORS_BF16);
  default:
    return cycles(m->state, g, n, sizes, CY_FACTORS_BYTES);
  }
}

/* Is n's second factor known when compiling, or are there rows enough to pay for packing it at every run? */
static bool packing_pays(const cy_graph *g, const cy_node_info *n, const int64_t *sizes) {
  const cy_type *y = type_of(g, n->out[0]);
  return is_constant(g, n->in[1]) ||
         (n->op == CY_OP_matmul && y->rank > 1 && dim_of(g, y->dim[y->rank - 2], sizes) >= WORTH_PACKING);
}

/* Attention of few rows waits for its keys, which are not worth packing. */
static bool attention_pays(const cy_graph *g, const cy_node_info *n, const int64_t *sizes) {
  const cy_type *q = type_of(g, n->in[0]);
  int64_t rows;
  bool known = cy_dim_is_const(g, q->dim[q->rank - 2], &rows);
  return known ? rows >= WORTH_TILES : !cy_attention_of(n).past && dim_of(g, q->dim[q->rank - 2], sizes) >= WORTH_TILES;
}

bool cy_cpu_half_factors(const cy_machine *m, cy_dtype half, const cy_graph *g, const cy_node_info *n,
                         const int64_t *sizes) {
  const cy_cg *cg = m->state;
  if (half != CY_BF16 || (!cg->bf16_dot && !cg->amx_bf16))
    return false;
  if (!n)
    return true;
  if (n->op == CY_OP_attention)
    return attention_pays(g, n, sizes);
  if (n->op == CY_OP_matmul_blocks)
    return cg->amx_bf16;
  if ((n->op != CY_OP_matmul && n->op != CY_OP_conv) || cy_attr_get_int(n, CY_ATTR_group, 1) != 1 ||
      !packing_pays(g, n, sizes))
    return false;
  double taken = cycles(cg, g, n, sizes, CY_FACTORS_BF16);
  return taken > 0 && taken < cycles(cg, g, n, sizes, CY_FACTORS_F32);
}
