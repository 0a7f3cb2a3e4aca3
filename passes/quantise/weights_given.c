/* SPDX-License-Identifier: Apache-2.0 */
/* weights_given.c - weights that a model itself has in integers, for products of f32, or of halves where the target
 * multiplies these: 4- and 8-bit language models (MatMulNBits; DequantizeLinear by blocks or channels; what
 * weights_spelled.c finds).
 *
 * In:  matmul(x, w), w dequantize(constants), maybe transposed or cast to halves, whose scales hold for blocks of rows and
 * one column.
 * Out: nothing yet. `fold` and `requantise`, which would make f32 of w, ask cy_weights_stay(); pass `weights` makes
 * products of the integers, which say the same as the model does and take a quarter or an eighth of the bytes.
 *
 * Where the target takes them (float_codes), weights of f4e2m1, f8e4m3fn and f8e5m2 likewise, by blocks with scales of any type
 * of floats (NVFP4, MXFP4, MXFP8) or by columns. Elsewhere these become f32 while compiling.
 *
 * Refused: weights that a cache would hold in f32, too; blocks that have no storable parts (cy_weights_split); w that is
 * read by anything else and would be stored twice; scales along rows; products of quantised activations. Where layers
 * shall be quantised (--int8), weights become 8-bit integers by channels, of which f32 are made before, unless they are
 * of 4 bits, the target multiplies these by rows in 8 bits, and few rows meet them or nobody knows how many: or with
 * --weights.
 */
#include "quantise_int.h"

#include <math.h>
#include <string.h>

enum {
  MAX_ROWS = 128, /* of a block as it is stored: products of many rows make floats of no less of a column at a time */
  MIN_ROWS = 16,
  MIN_WEIGHTS = 1 << 18, /* what a cache has room for beside all the others, in floats */
  FEW_ROWS = 8 /* that read codes of 4 bits by blocks (one: 1.5 to 1.9 times) faster than of 8 bits by channels; AMX
                  multiplies 128 rows by the latter 2.3 times as fast */
};

bool cy_weights_split(cy_weight_blocks *s) {
  for (uint64_t split = 1; split <= s->block; split++)
    if (s->block % split == 0 && s->block / split <= MAX_ROWS && (s->bits == 8 || s->block / split % 2 == 0)) {
      s->split = split;
      return s->block / split >= MIN_ROWS || s->block < MIN_ROWS;
    }
  return false;
}

/* From a block to the next, and from a column to the next, of a scale or zero point. False: they differ along rows. */
static bool find_steps(const cy_graph *g, const cy_node_info *d, const cy_value *v, cy_given_weights *w,
                       uint64_t *step) {
  uint64_t elements = cy_type_count(g, &v->type);
  bool rows = cy_attr_get_int(d, CY_ATTR_axis, 0) == (w->transposed ? 1 : 0);
  int64_t block = cy_attr_get_int(d, CY_ATTR_block_size, 0);
  step[0] = step[1] = 0;
  if (elements == 1)
    return true;
  if (!block) {
    step[1] = 1;
    return !rows && elements == w->blocks.n;
  }
  w->blocks.block = (uint64_t)block;
  if (!rows || w->blocks.k % (uint64_t)block)
    return false;
  w->blocks.count = w->blocks.k / (uint64_t)block;
  step[0] = w->transposed ? 1 : w->blocks.n;
  step[1] = w->transposed ? w->blocks.count : 1;
  return elements == w->blocks.count * w->blocks.n;
}

/* The least and the greatest of all codes or zero points. */
static void find_range(const cy_graph *g, const cy_value *v, int64_t *low, int64_t *high) {
  uint64_t count = cy_type_count(g, &v->type);
  for (uint64_t i = 0; i < count; i++) {
    int64_t x = cy_scalar_load(v->data.bytes, (cy_dtype)v->type.dtype, i).i;
    *low = x < *low ? x : *low;
    *high = x > *high ? x : *high;
  }
}

static bool fit_four_bits(int64_t low, int64_t high) { return low >= (high < 8 ? -8 : 0) && high <= 15; }

/* How codes are stored: in 4 bits where all fit. */
static void choose_codes(const cy_graph *g, cy_given_weights *w) {
  int64_t low = 0, high = 0, min = 255, max = -128;
  find_range(g, w->q, &low, &high);
  if (w->zero) {
    find_range(g, w->zero, &low, &high);
    find_range(g, w->zero, &min, &max);
  }
  int zero = w->zero ? (int)min : 0;
  w->blocks.zeros = w->zero && min != max;
  w->blocks.bits = 4;
  if (!fit_four_bits(low, high) || !cy_weights_split(&w->blocks)) {
    w->blocks.bits = 8;
    cy_weights_split(&w->blocks);
  }
  if (w->blocks.bits == 4)
    w->more = low < 0 ? 8 : 0;
  else if (w->blocks.zeros)
    w->more = low < 0 ? 128 : 0;
  else
    w->more = low - zero >= -128 && high - zero <= 127 ? -zero : low < 0 ? 128 : 0;
  w->blocks.zero = w->blocks.zeros ? 0 : zero + w->more;
}

static bool is_half(const cy_type *t) { return t->dtype == CY_F16 || t->dtype == CY_BF16; }

/* Half operands stay where the target multiplies them (widen_half.c), with weights that become halves in its tiles. */
static bool multiplies(const cy_pass *p, const cy_type *x) {
  const cy_pass_options *o = p->options;
  const cy_node_info product = {.op = CY_OP_matmul_blocks};
  return x->dtype == CY_F32 || (is_half(x) && !cy_caps_of(o->caps)->blocks_round &&
                                cy_caps_half_factors(o->caps, (cy_dtype)x->dtype, p->g, &product, NULL));
}

/* Numbers alone? */
static bool is_finite(const cy_graph *g, const cy_value *v) {
  for (uint64_t i = 0, count = cy_type_count(g, &v->type); i < count; i++)
    if (!isfinite(cy_scalar_load(v->data.bytes, (cy_dtype)v->type.dtype, i).f))
      return false;
  return true;
}

static bool is_dense(const cy_graph *g, const cy_value *v, const char *classes, int bits) {
  const cy_dtype_info *t = cy_dtype_of((cy_dtype)v->type.dtype);
  return v->data.bytes && strchr(classes, t->cls) && t->bits <= bits && cy_type_count(g, &v->type);
}

/* What dequantize d reads, as weights [k, n]. */
static bool read_matrix(const cy_pass *p, const cy_node_info *d, bool transposed, cy_given_weights *w) {
  const cy_pass_options *o = p->options;
  const cy_graph *g = p->g;
  int64_t dim[CY_MAX_RANK];
  cy_val zero = d->nin > 2 ? d->in[2] : 0;
  *w = (cy_given_weights){.q = cy_value_of(g, d->in[0]), .scale = cy_value_of(g, d->in[1]), .transposed = transposed};
  w->zero = zero ? cy_value_of(g, zero) : NULL;
  cy_dtype q = (cy_dtype)w->q->type.dtype;
  bool floats = !zero && (q == CY_F4E2M1 || cy_dtype_is_float8(q)) && cy_caps_of(o->caps)->float_codes;
  if (w->q->type.rank != 2 || !cy_type_static(g, &w->q->type, dim) || !is_dense(g, w->q, floats ? "F" : "IU", 8) ||
      !is_dense(g, w->scale, "F", 32) || (zero && !is_dense(g, w->zero, "IU", 8)))
    return false;
  w->blocks.k = w->blocks.block = (uint64_t)dim[transposed];
  w->blocks.n = (uint64_t)dim[!transposed];
  w->blocks.count = 1;
  w->blocks.codes = floats ? q : CY_NONE;
  w->blocks.bits = floats ? cy_dtype_of(q)->bits : 8;
  return find_steps(g, d, w->scale, w, w->scale_step) && (!zero || find_steps(g, d, w->zero, w, w->zero_step)) &&
         cy_weights_split(&w->blocks) && (!floats || (is_finite(g, w->q) && is_finite(g, w->scale)));
}

/* A plan is about layers in f32, and floats of 8 bits are no smaller than 8 bits: such weights stay as they are then. */
static bool asked_for_layers(const cy_pass *p) {
  const cy_quant *q = p->options->quant;
  return q && !q->float8 && !cy_quant_is_half(q->mode) && q->mode != CY_QUANT_PLAN && q->mode != CY_QUANT_OFFER;
}

/* Are layers quantised, and --weights not asked for: then these are for products of few rows alone. */
static bool only_few_rows(const cy_pass *p) {
  const cy_weight_options *o = p->options->weights;
  return asked_for_layers(p) && !(o && o->keeps_given);
}

static bool has_few_rows(const cy_pass *p, const cy_type *x) {
  const cy_weight_options *o = p->options->weights;
  cy_graph *g = p->g;
  cy_dim rows = cy_dim_const(g, 1);
  int64_t min, max;
  for (int i = 0; i < x->rank - 1; i++)
    rows = cy_dim_mul(g, rows, x->dim[i]);
  cy_dim_range(g, rows, &min, &max);
  return o && o->quantised_rows && min <= FEW_ROWS;
}

/* Are codes and zero points of 4 bits, whatever holds them? Looks no further than to the first that is not. */
static bool has_four_bits(const cy_graph *g, const cy_given_weights *w) {
  const cy_value *all[2] = {w->q, w->zero};
  int64_t low = 0, high = 0;
  for (int i = 0; i < 2 && all[i] && cy_dtype_of((cy_dtype)w->q->type.dtype)->bits > 4; i++)
    for (uint64_t k = 0; k < cy_type_count(g, &all[i]->type); k++) {
      int64_t x = cy_scalar_load(all[i]->data.bytes, (cy_dtype)all[i]->type.dtype, k).i;
      low = x < low ? x : low;
      high = x > high ? x : high;
      if (!fit_four_bits(low, high))
        return false;
    }
  return true;
}

/* Are these of 4 bits, which the target multiplies by rows in 8 bits? */
static bool rounds_rows(const cy_pass *p, const cy_given_weights *w) {
  const cy_pass_options *o = p->options;
  cy_weight_blocks s = w->blocks;
  s.bits = 4;
  return !s.codes && cy_weights_split(&s) && has_four_bits(p->g, w) &&
         cy_caps_int_rows(o->caps, s.bits, (int64_t)(s.block / s.split), (int64_t)s.n);
}

/* Is n a product of f32 that can read integers, and v its second factor only? */
static bool is_product(const cy_pass *p, const cy_node_info *n, cy_val v) {
  const cy_graph *g = p->g;
  const cy_type *x = n->op == CY_OP_matmul ? cy_type_of(g, n->in[0]) : NULL, *w = cy_type_of(g, v);
  int64_t k;
  if (!x || n->in[1] != v || n->in[0] == v || !multiplies(p, x) || cy_def_of(g, n->in[0], CY_OP_dequantize) ||
      cy_type_of(g, n->out[0])->dtype != CY_F32 || !cy_dim_is_const(g, w->dim[0], &k) || k < 1 ||
      (only_few_rows(p) && !has_few_rows(p, x)))
    return false;
  return cy_type_count(g, w) >= MIN_WEIGHTS;
}

static bool transposes(const cy_node_info *n) {
  uint32_t rank;
  const int64_t *perm = n->op == CY_OP_transpose ? cy_attr_list(n, CY_ATTR_perm, &rank) : NULL;
  return perm && rank == 2 && perm[0] == 1;
}

static bool narrows(const cy_graph *g, const cy_node_info *n) {
  return n->op == CY_OP_cast && cy_type_of(g, n->in[0])->dtype == CY_F32 && is_half(cy_type_of(g, n->out[0]));
}

/* Is v read by such products alone, or by what moves and casts it for them? *out_transposed: transposed. */
static bool read_by_products(const cy_pass *p, const cy_uses *uses, cy_val v, bool *out_transposed) {
  const cy_graph *g = p->g;
  bool some = uses->start[v] < uses->start[v + 1];
  for (uint32_t i = uses->start[v]; i < uses->start[v + 1]; i++) {
    const cy_node_info *n = uses->list[i] ? cy_node_of(g, uses->list[i]) : NULL;
    bool transposed = false, transpose = n && transposes(n);
    if (!n || !(transpose || narrows(g, n) ? read_by_products(p, uses, n->out[0], &transposed) : is_product(p, n, v)) ||
        (transpose && transposed) || (i > uses->start[v] && (transpose || transposed) != *out_transposed))
      return false;
    *out_transposed = transpose || transposed;
  }
  return some;
}

bool cy_weights_wanted(const cy_pass *p, cy_val v, const cy_uses *uses) {
  bool transposed;
  return read_by_products(p, uses, v, &transposed);
}

bool cy_weights_stay(const cy_pass *p, const cy_node_info *n, const cy_uses *uses) {
  cy_given_weights w;
  bool transposed;
  return n->op == CY_OP_dequantize && cy_type_of(p->g, n->out[0])->rank == 2 &&
         read_by_products(p, uses, n->out[0], &transposed) && read_matrix(p, n, transposed, &w) &&
         (!only_few_rows(p) || rounds_rows(p, &w));
}

/* What makes floats of n's weights, where these stay; NULL: they do not. */
static const cy_node_info *dequantize_of(const cy_pass *p, const cy_node_info *n, const cy_uses *uses,
                                         bool *out_transposed) {
  const cy_graph *g = p->g;
  const cy_node_info *d = n->op == CY_OP_matmul ? cy_def(g, n->in[1]) : NULL;
  *out_transposed = false;
  for (; d && (transposes(d) || narrows(g, d)); d = cy_def(g, d->in[0]))
    *out_transposed |= transposes(d);
  return d && cy_weights_stay(p, d, uses) ? d : NULL;
}

bool cy_weights_read(const cy_pass *p, const cy_node_info *n, const cy_uses *uses) {
  bool transposed;
  return dequantize_of(p, n, uses, &transposed) != NULL;
}

bool cy_weights_given(const cy_pass *p, const cy_node_info *n, const cy_uses *uses, cy_given_weights *out) {
  bool transposed;
  const cy_node_info *d = dequantize_of(p, n, uses, &transposed);
  if (!d || !read_matrix(p, d, transposed, out))
    return false;
  if (!out->blocks.codes)
    choose_codes(p->g, out);
  return true;
}

void cy_weights_given_column(const cy_weight_blocks *s, const void *given, uint64_t b, uint64_t c,
                             cy_weight_column *out) {
  const cy_given_weights *w = given;
  uint64_t first = w->transposed ? c * s->k + b * s->block : b * s->block * s->n + c, step = w->transposed ? 1 : s->n;
  cy_dtype raw = s->codes ? (s->bits == 4 ? CY_U4 : CY_U8) : (cy_dtype)w->q->type.dtype; /* of floats their bits */
  for (uint64_t i = 0; i < s->block; i++)
    out->code[i] = (int)cy_scalar_load(w->q->data.bytes, raw, first + i * step).i + w->more;
  out->scale = (float)cy_scalar_load(w->scale->data.bytes, (cy_dtype)w->scale->type.dtype,
                                     b * w->scale_step[0] + c * w->scale_step[1])
                   .f;
  out->zero = s->zero;
  if (s->zeros)
    out->zero = (int)cy_scalar_load(w->zero->data.bytes, (cy_dtype)w->zero->type.dtype,
                                    b * w->zero_step[0] + c * w->zero_step[1])
                    .i +
                w->more;
}
