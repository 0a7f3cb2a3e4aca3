/* SPDX-License-Identifier: Apache-2.0 */
/* quantise_weights.c - weight-only quantisation: the constants of matrix products in 8 or 4 bits, arithmetic in floats.
 *
 * In:  a folded graph. Out: matmul(x, w) with a large constant w [k, n] in f32 reads integers instead, where asked, or
 * those that the model itself has (weights_given.c): q [k / block, n / tile, block, tile], with a scale for every block
 * of rows and column (all rows are one block where blocks do not divide k):
 *
 *   matmul_blocks(x, q, scale, zero) = sum over k of x * (q - zero) * scale
 *
 * a quarter or an eighth of the bytes. With few rows what decides the time is how fast the weights are read; with more,
 * making floats of them once for all rows costs little (lower_blocks.c has both). Blocks of more than 128 rows are
 * stored in parts of equal scales.
 *
 * 8 bits are s8, or u8 with zero points. 4 bits are u8 with two rows in each: row i of a block in the lower half, row
 * i + block / 2 in the upper one, so that taking them apart is two operations on whole vectors; their zero is one number,
 * or zero points. Nothing behind this pass may fold these constants back to f32.
 *
 * Where 8 bits are asked for, the recurrent weights of RNN, GRU and LSTM become s8 with one scale per row, whatever the
 * batch: the cell's own kernels read them so (lower_rnn.c).
 *
 * Refused, besides: small weights, which a cache holds anyway, weights that are not finite, stacks of matrices, and
 * products that another pass has made integers of.
 */
#include "quantise_int.h"

#include <assert.h>
#include <math.h>

enum { MIN_WEIGHTS = 1 << 14, LINE = 64 };

/* Rounds column c of block b, of f32. */
static void round_column(const cy_weight_blocks *s, const void *from, uint64_t b, uint64_t c, cy_weight_column *out) {
  const cy_data_f32 *w = (const cy_data_f32 *)from + b * s->block * s->n + c;
  double low = 0, high = 0;
  int top = (1 << s->bits) - 1, max = top / 2;
  for (uint64_t i = 0; i < s->block; i++) {
    double x = w[i * s->n];
    low = x < low ? x : low;
    high = x > high ? x : high;
  }
  double step = s->zeros ? (high - low) / top : fmax(high, -low) / max;
  out->scale = step >= 1e-30 ? (float)step : 1;
  out->zero = s->zeros ? (int)fmin(fmax(rint(-low / out->scale), 0), top) : s->zero;
  int min = s->zeros ? 0 : s->zero - max;
  for (uint64_t i = 0; i < s->block; i++)
    out->code[i] = (int)fmin(fmax(rint(w[i * s->n] / out->scale) + out->zero, min), min + top - !s->zeros);
}

/* A cache line of columns, where these divide the matrix: contractions read 64 x 128 codes at a time, twice as fast as
 * from rows that lie a page apart. */
static uint64_t columns_of_tile(const cy_weight_blocks *s) { return s->n % LINE == 0 ? LINE : s->n; }

/* Puts `part` codes of a column where they belong in q; two share a byte of 4 bits. */
static void store_part(const cy_weight_blocks *s, const int *code, uint64_t part, uint8_t *q) {
  uint64_t rows = s->bits == 8 ? part : part / 2, tile = s->tile;
  for (uint64_t i = 0; i < rows; i++)
    q[i * tile] = (uint8_t)(s->bits == 8 ? code[i] : code[i] | code[i + rows] << 4);
}

/* Column c of block b, stored in `split` parts of equal scales. */
static void store_column(const cy_weight_blocks *s, const cy_weight_column *from, uint64_t b, uint64_t c, uint8_t *q,
                         float *scale, uint8_t *zero) {
  uint64_t part = s->block / s->split, bytes = s->bits == 8 ? part : part / 2, tile = s->tile;
  for (uint64_t i = 0; i < s->split; i++) {
    uint64_t at = b * s->split + i;
    store_part(s, from->code + i * part, part, q + at * bytes * s->n + c / tile * bytes * tile + c % tile);
    scale[at * s->n + c] = from->scale;
    if (zero)
      zero[at * s->n + c] = (uint8_t)from->zero;
  }
}

/* Columns that share cache lines go together. */
static void store_all(cy_pass *p, const cy_weight_blocks *s, cy_weight_reader read, const void *from, uint8_t *q,
                      float *scale, uint8_t *zero) {
  cy_weight_column column = {.code = CY_NEW_ARRAY(p->scratch, int, s->block)};
  for (uint64_t c0 = 0; c0 < s->n; c0 += LINE)
    for (uint64_t b = 0; b < s->count; b++)
      for (uint64_t c = c0; c < s->n && c < c0 + LINE; c++) {
        read(s, from, b, c, &column);
        store_column(s, &column, b, c, q, scale, zero);
      }
}

static cy_val new_constant(cy_graph *g, cy_dtype dtype, const uint64_t *dims, int rank, void *out) {
  cy_dim d[4];
  cy_val v;
  for (int i = 0; i < rank; i++)
    d[i] = cy_dim_const(g, (int64_t)dims[i]);
  cy_type t = cy_type_make(dtype, rank, d);
  *(void **)out = cy_const_new(g, &t, &v);
  return v;
}

/* May the rows of product n be rounded to 8 bits? Its model says so, or the option. */
static bool rounds_rows(const cy_pass *p, const cy_node_info *n) {
  const cy_weight_options *o = p->options->weights;
  const cy_quant *q = p->options->quant;
  return cy_attr_get_int(n, CY_ATTR_round, CY_NONE) == CY_I8 ||
         (o && o->quantised_rows && !(q && cy_quant_skipped(q, p->g, n)));
}

/* x with as many columns as the weights have rows, where x's type leaves their number open. */
static cy_val columns_known(cy_graph *g, cy_val x, uint64_t k) {
  cy_type t = *cy_type_of(g, x);
  if (cy_dim_is_const(g, t.dim[t.rank - 1], NULL))
    return x;
  t.dim[t.rank - 1] = cy_dim_const(g, (int64_t)k);
  return cy_build_reshape(g, x, t.dim, t.rank);
}

/* Are all of n scales, as f32, `by` times numbers of this type? */
static bool fit_scales(const float *scale, uint64_t n, cy_dtype type, float by) {
  uint32_t bits;
  for (uint64_t i = 0; i < n; i++) {
    cy_scalar x = {.f = scale[i] / by};
    x = cy_scalar_eval(CY_OP_cast, CY_F32, type, &x);
    cy_scalar_store(&bits, type, 0, x);
    if ((float)cy_scalar_load(&bits, type, 0).f * by != scale[i])
      return false;
  }
  return true;
}

/* The factor of all scales that are products of it and numbers of f8e4m3fn, as NVFP4 has them; 0: there is none. */
static float common_factor(const float *scale, uint64_t n) {
  float max = 0;
  for (uint64_t i = 0; i < n; i++)
    max = scale[i] > max ? scale[i] : max;
  for (int code = 0x7e; code > 0 && max > 0; code--) {
    uint8_t bits = (uint8_t)code;
    float by = max / (float)cy_scalar_load(&bits, CY_F8E4M3FN, 0).f;
    const float near[3] = {by, nextafterf(by, 0), nextafterf(by, INFINITY)};
    for (int k = 0; k < 3; k++)
      if (near[k] > 0 && isfinite(near[k]) && fit_scales(scale, n, CY_F8E4M3FN, near[k]))
        return near[k];
  }
  return 0;
}

/* The scales of codes that are floats, [blocks, n], in the narrowest type that has each of them; *by: 1, or what else the
 * product is multiplied by. Codes of 8 bits have no such factor: times scales of up to 448 they would leave f16. */
static cy_val narrow_scales(cy_graph *g, cy_val v, const float *scale, cy_dtype codes, float *by) {
  static const cy_dtype types[] = {CY_F8E8M0, CY_F8E4M3FN, CY_F16, CY_BF16};
  cy_type type = *cy_type_of(g, v);
  uint64_t n = cy_type_count(g, &type);
  size_t i = 0;
  cy_val out;
  *by = 1;
  while (i < sizeof types / sizeof *types && !fit_scales(scale, n, types[i], 1))
    i++;
  float factor = i < 2 || codes != CY_F4E2M1 ? 0 : common_factor(scale, n);
  if (factor == 0 && i == sizeof types / sizeof *types)
    return v;
  type.dtype = factor > 0 ? CY_F8E4M3FN : types[i];
  *by = factor > 0 ? factor : 1;
  void *to = cy_const_new(g, &type, &out);
  for (uint64_t k = 0; k < n; k++) {
    cy_scalar x = {.f = scale[k] / *by};
    cy_scalar_store(to, (cy_dtype)type.dtype, k, cy_scalar_eval(CY_OP_cast, CY_F32, (cy_dtype)type.dtype, &x));
  }
  return out;
}

/* The product n with weights that are floats in the place of integers. */
static cy_val multiply_floats(cy_pass *p, const cy_weight_blocks *s, cy_val in[3], const float *scale) {
  const cy_attr codes = cy_attr_int(CY_ATTR_codes, s->codes);
  float by;
  in[2] = narrow_scales(p->g, in[2], scale, s->codes, &by);
  cy_val y = cy_build(p->g, CY_OP_matmul_blocks, in, 3, &codes, s->bits == 4, NULL, 0);
  return by == 1 ? y : cy_build_binary(p->g, CY_OP_mul, y, cy_build_scalar(p->g, CY_F32, by));
}

/* The product n with them. */
static cy_val multiply_blocks(cy_pass *p, const cy_node_info *n, cy_weight_blocks *s, cy_weight_reader read,
                              const void *from) {
  cy_graph *g = p->g;
  s->tile = columns_of_tile(s);
  uint64_t count = s->count * s->split, rows = s->k / count;
  const uint64_t dims[4] = {count, s->n / s->tile, rows * (uint64_t)s->bits / 8, s->tile};
  const uint64_t flat[2] = {count, s->n};
  uint8_t *q, *zero = NULL;
  float *scale;
  cy_val in[4] = {columns_known(g, n->in[0], s->k)};
  const cy_attr quantised_rows = cy_attr_int(CY_ATTR_round, CY_I8);
  bool rounds = rounds_rows(p, n);
  cy_dtype ints = s->bits == 8 && !s->zeros && !s->zero ? CY_I8 : CY_U8;
  in[1] = new_constant(g, s->codes && s->bits == 8 ? s->codes : ints, dims, 4, &q);
  in[2] = new_constant(g, CY_F32, flat, 2, &scale);
  if (s->zeros)
    in[3] = new_constant(g, CY_U8, flat, 2, &zero);
  else if (s->zero)
    in[3] = cy_build_scalar_int(g, CY_U8, s->zero);
  store_all(p, s, read, from, q, scale, zero);
  if (cy_value_is_const(g, n->in[1]))
    cy_const_made_of(g, in[1], n->in[1]);
  if (s->codes)
    return multiply_floats(p, s, in, scale);
  return cy_build(g, CY_OP_matmul_blocks, in, in[3] ? 4 : 3, &quantised_rows, rounds, NULL, 0);
}

/* As why_not, of a recurrence. */
static const char *why_not_recurrence(cy_pass *p, const cy_node_info *n) {
  if (cy_type_count(p->g, cy_type_of(p->g, n->in[1])) < MIN_WEIGHTS)
    return "too small to gain";
  if (!cy_quant_finite(&cy_value_of(p->g, n->in[1])->data))
    return "weights are not finite";
  return p->options->weights->bits == 8 ? NULL : "recurrent weights take 8 bits";
}

/* Why product n stays as it is; NULL: it does not, and its blocks are set. */
static const char *why_not(cy_pass *p, const cy_node_info *n, const cy_weight_options *o, cy_weight_blocks *out) {
  const cy_graph *g = p->g;
  const cy_type *t = cy_type_of(g, n->in[1]);
  int64_t d[CY_MAX_RANK];
  uint64_t count = cy_type_count(g, t);
  cy_type_static(g, t, d);
  *out = (cy_weight_blocks){.bits = o->bits,
                            .zeros = o->asymmetric,
                            .zero = o->bits == 4 ? 8 : 0,
                            .k = (uint64_t)d[t->rank - 2],
                            .n = (uint64_t)d[t->rank - 1]};
  out->block = o->block && out->k % (uint64_t)o->block == 0 ? (uint64_t)o->block : out->k;
  out->count = out->k / out->block;
  if (count != out->k * out->n)
    return "a stack of matrices";
  if (count < MIN_WEIGHTS)
    return "too small to gain";
  if (!cy_weights_split(out))
    return out->bits != 8 && out->block % 2 ? "an odd number of rows in each block"
                                            : "rows that cannot be cut into blocks of up to 128";
  return cy_quant_finite(&cy_value_of(g, n->in[1])->data) ? NULL : "weights are not finite";
}

static void shrink(cy_pass *p, cy_node id, cy_weight_blocks *s, cy_weight_reader read, const void *from) {
  cy_graph *g = p->g;
  cy_node_info *n = cy_node_of(g, id);
  cy_build_before(g, id);
  cy_rewrite_origin(p, n);
  cy_graph_replace(g, n->out[0], multiply_blocks(p, n, s, read, from));
  cy_pass_count(p, "weights in integers", 1);
}

static void shrink_recurrence(cy_pass *p, cy_node id) {
  cy_build_before(p->g, id);
  cy_quant_recurrence(p, id, false);
  cy_pass_count(p, "recurrences of integers", 1);
}

/* ---- 4 bits for the layers that a plan has so ---- */

/* What --weights=int4 takes. */
static const cy_weight_options offered_blocks = {.bits = 4, .block = 32};

static bool has_plan(const cy_pass *p) { return p->options->quant && p->options->quant->mode == CY_QUANT_PLAN; }

bool cy_weights_offered(cy_pass *p, const cy_node_info *n) {
  cy_weight_blocks s;
  return n->op == CY_OP_matmul && cy_quant_eligible(p->g, n) && !why_not(p, n, &offered_blocks, &s);
}

cy_val cy_weights_make(cy_pass *p, const cy_node_info *n) {
  cy_graph *g = p->g;
  cy_weight_blocks s;
  const char *why = why_not(p, n, &offered_blocks, &s);
  assert(!why && "cy_weights_offered() was asked before");
  (void)why;
  cy_val w, in[2] = {n->in[0]};
  const void *from = cy_value_of(g, n->in[1])->data.bytes;
  float *to = cy_const_new(g, cy_type_of(g, n->in[1]), &w);
  cy_weight_column column = {.code = CY_NEW_ARRAY(p->scratch, int, s.block)};
  for (uint64_t b = 0; b < s.count; b++)
    for (uint64_t c = 0; c < s.n; c++) {
      round_column(&s, from, b, c, &column);
      for (uint64_t i = 0; i < s.block; i++)
        to[(b * s.block + i) * s.n + c] = (float)(column.code[i] - column.zero) * column.scale;
    }
  in[1] = w;
  return cy_build(g, CY_OP_matmul, in, 2, n->attrs, n->nattrs, cy_type_of(g, n->out[0]), 1);
}

static void shrink_planned(cy_pass *p, cy_node id) {
  cy_weight_blocks s;
  const cy_node_info *n = cy_node_of(p->g, id);
  if (cy_quant_planned(p, n, id) == CY_PRECISION_INT4 && n->op == CY_OP_matmul && cy_quant_eligible(p->g, n) &&
      !why_not(p, n, &offered_blocks, &s))
    shrink(p, id, &s, round_column, cy_value_of(p->g, n->in[1])->data.bytes);
}

bool cy_weights_take(cy_pass *p, const cy_node_info *n) {
  const cy_weight_options *o = p->options->weights;
  cy_weight_blocks s;
  return o && o->bits && o->quantised_rows && n->op == CY_OP_matmul && cy_quant_eligible(p->g, n) &&
         !why_not(p, n, o, &s);
}

static void report(cy_pass *p, cy_node id, const char *keep) {
  cy_quant *q = p->options->weights->report;
  cy_quant_layer *l = &q->layer[q->nlayers++];
  cy_quant_describe(q, p->g, id, l);
  l->keep = keep;
}

/* What is asked for. */
static void visit(cy_pass *p, cy_node id) {
  cy_graph *g = p->g;
  const cy_node_info *n = cy_node_of(g, id);
  cy_weight_blocks s;
  bool recurrence = cy_quant_is_recurrence(g, n);
  if (!recurrence && (n->op != CY_OP_matmul || !cy_quant_eligible(g, n)))
    return;
  const char *keep = recurrence ? why_not_recurrence(p, n) : why_not(p, n, p->options->weights, &s);
  if (p->options->weights->report)
    report(p, id, keep);
  if (!keep && recurrence)
    shrink_recurrence(p, id);
  else if (!keep)
    shrink(p, id, &s, round_column, cy_value_of(g, n->in[1])->data.bytes);
}

/* requires: swept   establishes: swept   breaks: unique, folded, placed, fused */
int cy_pass_weights(cy_pass *p) {
  cy_graph *g = p->g;
  bool asked = p->options->weights && p->options->weights->bits;
  cy_quant *q = asked ? p->options->weights->report : NULL;
  cy_uses uses = cy_graph_uses(g, p->scratch);
  if (q)
    q->layer = CY_NEW_ARRAY(q->arena, cy_quant_layer, cy_node_count(g) + 1);
  for (cy_block b = 1; b <= cy_block_count(g); b++) {
    uint32_t count;
    const cy_node *nodes = cy_pass_walk(p, b, &count);
    for (uint32_t i = 0; i < count; i++) {
      cy_given_weights given;
      if (cy_weights_given(p, cy_node_of(g, nodes[i]), &uses, &given))
        shrink(p, nodes[i], &given.blocks, cy_weights_given_column, &given);
      else if (asked)
        visit(p, nodes[i]);
      else if (has_plan(p))
        shrink_planned(p, nodes[i]);
    }
  }
  cy_build_in(g, 1);
  cy_graph_sweep(g);
  return 0;
}
