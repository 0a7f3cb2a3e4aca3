/* quantise_weights.c - weight-only quantisation: the constants of matrix products in 8 or 4 bits, arithmetic in f32.
 *
 * In:  a folded graph. Out: matmul(x, w) with a large constant w [k, n] in f32 reads integers instead, where asked, or
 * those that the model itself has (weights_given.c): q [k / block, block, n], with a scale for every block of rows and
 * column (all rows are one block where blocks do not divide k):
 *
 *   sum over blocks of scale * (sum over the block of x * q - zero * sum over the block of x)
 *
 * a reduction that reads each weight once, a quarter or an eighth of the bytes, which is what decides its time when x
 * has few rows. More rows would make f32 of every weight many times over, or once into memory, which takes longer than
 * reading the f32 weights did: such products stay as they are, and so do those whose rows are known only at run time.
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

#include <math.h>

enum { LEAST_WEIGHTS = 1 << 14 };

/* Integers behind a product: q as f32 in up to two halves of each block, scale and zero [count, n]; zero 0: none. */
typedef struct small_weights {
  cy_val half[2], scale, zero;
  int halves;
} small_weights;

/* Rounds column c of block b, of f32. */
static void round_column(const cy_weight_blocks *s, const void *from, uint64_t b, uint64_t c, cy_weight_column *out) {
  const cy_data_f32 *w = (const cy_data_f32 *)from + b * s->block * s->n + c;
  double low = 0, high = 0;
  int top = (1 << s->bits) - 1, most = top / 2;
  for (uint64_t i = 0; i < s->block; i++) {
    double x = w[i * s->n];
    low = x < low ? x : low;
    high = x > high ? x : high;
  }
  double step = s->zeros ? (high - low) / top : fmax(high, -low) / most;
  out->scale = step >= 1e-30 ? (float)step : 1;
  out->zero = s->zeros ? (int)fmin(fmax(rint(-low / out->scale), 0), top) : s->zero;
  int least = s->zeros ? 0 : s->zero - most;
  for (uint64_t i = 0; i < s->block; i++)
    out->code[i] = (int)fmin(fmax(rint(w[i * s->n] / out->scale) + out->zero, least), least + top - !s->zeros);
}

/* Puts a column where it belongs in q; two codes share a byte of 4 bits. */
static void store_column(const cy_weight_blocks *s, const int *code, uint8_t *q) {
  uint64_t rows = s->bits == 8 ? s->block : s->block / 2;
  for (uint64_t i = 0; i < rows; i++)
    q[i * s->n] = (uint8_t)(s->bits == 8 ? code[i] : code[i] | code[i + rows] << 4);
}

static void store_all(cy_pass *p, const cy_weight_blocks *s, cy_weight_reader read, const void *from, uint8_t *q,
                      float *scale, uint8_t *zero) {
  uint64_t rows = s->bits == 8 ? s->block : s->block / 2;
  cy_weight_column column = {.code = CY_NEW_ARRAY(p->scratch, int, s->block)};
  for (uint64_t c = 0; c < s->n; c++)
    for (uint64_t b = 0; b < s->count; b++) {
      read(s, from, b, c, &column);
      store_column(s, column.code, q + b * rows * s->n + c);
      scale[b * s->n + c] = column.scale;
      if (zero)
        zero[b * s->n + c] = (uint8_t)column.zero;
    }
}

static cy_val new_constant(cy_graph *g, cy_dtype dtype, const uint64_t *dims, int rank, void *out) {
  cy_dim d[3];
  cy_val v;
  for (int i = 0; i < rank; i++)
    d[i] = cy_dim_const(g, (int64_t)dims[i]);
  cy_type t = cy_type_make(dtype, rank, d);
  *(void **)out = cy_const_new(g, &t, &v);
  return v;
}

static small_weights make_weights(cy_pass *p, const cy_weight_blocks *s, cy_weight_reader read, const void *from) {
  cy_graph *g = p->g;
  uint64_t dims[3] = {s->count, s->bits == 8 ? s->block : s->block / 2, s->n}, flat[2] = {s->count, s->n};
  small_weights out = {.halves = s->bits == 8 ? 1 : 2};
  uint8_t *q, *zero = NULL;
  float *scale;
  cy_val ints = new_constant(g, s->bits == 8 && !s->zeros && !s->zero ? CY_I8 : CY_U8, dims, 3, &q);
  out.scale = new_constant(g, CY_F32, flat, 2, &scale);
  if (s->zeros)
    out.zero = new_constant(g, CY_U8, flat, 2, &zero);
  store_all(p, s, read, from, q, scale, zero);
  if (out.zero)
    out.zero = cy_build_cast(g, out.zero, CY_F32);
  else if (s->zero)
    out.zero = cy_build_scalar(g, CY_F32, s->zero);
  if (out.halves == 1) {
    out.half[0] = cy_build_cast(g, ints, CY_F32);
    return out;
  }
  cy_val low = cy_build_binary(g, CY_OP_and, ints, cy_build_scalar_int(g, CY_U8, 15));
  out.half[0] = cy_build_cast(g, low, CY_F32);
  out.half[1] = cy_build_cast(g, cy_build_binary(g, CY_OP_shr, ints, cy_build_scalar_int(g, CY_U8, 4)), CY_F32);
  return out;
}

/* For few rows: x [rows, k] as [rows, count, halves, block / halves, 1]. */
static cy_val sum_blocks(cy_graph *g, const cy_weight_blocks *s, const small_weights *w, cy_val x, uint64_t rows,
                         const cy_type *out) {
  int64_t in_block = 2, in_halves[2] = {2, 3}, blocks = 1;
  uint64_t size[5] = {rows, s->count, (uint64_t)w->halves, s->block / (uint64_t)w->halves, 1};
  cy_dim d[5], part[4];
  for (int i = 0; i < 5; i++)
    d[i] = cy_dim_const(g, (int64_t)size[i]);
  for (int i = 0; i < 4; i++)
    part[i] = d[i < 2 ? i : i + 1];
  cy_val split = cy_build_reshape(g, x, d, 5), sum = 0;
  for (int h = 0; h < w->halves; h++) {
    cy_val one = cy_build_slice_axis(g, split, 2, cy_dim_const(g, h), cy_dim_const(g, 1));
    cy_val product = cy_build_binary(g, CY_OP_mul, cy_build_reshape(g, one, part, 4), w->half[h]);
    sum = sum ? cy_build_binary(g, CY_OP_add, sum, product) : product;
  }
  sum = cy_build_reduce(g, CY_OP_reduce_sum, sum, &in_block, 1, false);
  if (w->zero) {
    cy_val xs = cy_build_reduce(g, CY_OP_reduce_sum, split, in_halves, 2, false); /* [rows, count, 1] */
    sum = cy_build_binary(g, CY_OP_sub, sum, cy_build_binary(g, CY_OP_mul, xs, w->zero));
  }
  sum = cy_build_binary(g, CY_OP_mul, sum, w->scale);
  sum = cy_build_reduce(g, CY_OP_reduce_sum, sum, &blocks, 1, false);
  return cy_build_reshape(g, sum, out->dim, out->rank);
}

static bool is_finite(const cy_data *d) {
  const cy_data_f32 *w = d->bytes;
  for (uint64_t i = 0; i < d->size / sizeof *w; i++)
    if (!isfinite(w[i]))
      return false;
  return true;
}

/* As why_not, of a recurrence. */
static const char *why_not_recurrence(cy_pass *p, const cy_node_info *n) {
  if (cy_type_count(p->g, cy_type_of(p->g, n->in[1])) < LEAST_WEIGHTS)
    return "too small to gain";
  if (!is_finite(&cy_value_of(p->g, n->in[1])->data))
    return "weights are not finite";
  return p->options->weights->bits == 8 ? NULL : "recurrent weights take 8 bits";
}

/* Why product n stays as it is; NULL: it does not, and its blocks are set. */
static const char *why_not(cy_pass *p, const cy_node_info *n, cy_weight_blocks *out) {
  const cy_graph *g = p->g;
  const cy_weight_options *o = p->options->weights;
  const cy_type *t = cy_type_of(g, n->in[1]);
  int64_t d[CY_MAX_RANK];
  uint64_t count = cy_type_count(g, t), rows;
  cy_type_static(g, t, d);
  *out = (cy_weight_blocks){.bits = o->bits,
                            .zeros = o->asymmetric,
                            .zero = o->bits == 4 ? 8 : 0,
                            .k = (uint64_t)d[t->rank - 2],
                            .n = (uint64_t)d[t->rank - 1]};
  out->block = o->block && out->k % (uint64_t)o->block == 0 ? (uint64_t)o->block : out->k;
  out->count = out->k / out->block;
  rows = cy_type_count(g, cy_type_of(g, n->in[0])) / out->k;
  if (count != out->k * out->n)
    return "a stack of matrices";
  if (count < LEAST_WEIGHTS)
    return "too small to gain";
  if (o->bits != 8 && out->block % 2)
    return "an odd number of rows in each block";
  if (!is_finite(&cy_value_of(g, n->in[1])->data))
    return "weights are not finite";
  if (!rows)
    return "its number of rows is not known: fix it by --dim or --shape";
  return rows <= CY_WEIGHTS_FEW_ROWS ? NULL : "more than two rows: it would be slower";
}

static void shrink(cy_pass *p, cy_node id, const cy_weight_blocks *s, cy_weight_reader read, const void *from) {
  cy_graph *g = p->g;
  cy_node_info *n = cy_node_of(g, id);
  uint64_t rows = cy_type_count(g, cy_type_of(g, n->in[0])) / s->k;
  cy_type out = *cy_type_of(g, n->out[0]);
  cy_build_before(g, id);
  cy_rewrite_origin(p, n);
  small_weights w = make_weights(p, s, read, from);
  cy_graph_replace(g, n->out[0], sum_blocks(g, s, &w, n->in[0], rows, &out));
  cy_pass_count(p, "weights summed by blocks", 1);
}

static void shrink_recurrence(cy_pass *p, cy_node id) {
  cy_build_before(p->g, id);
  cy_quant_recurrence(p, id, false);
  cy_pass_count(p, "recurrences of integers", 1);
}

static void report(cy_pass *p, cy_node id, const char *keep) {
  cy_quant *q = p->options->weights->report;
  cy_quant_layer *l = &q->layer[q->nlayers++];
  cy_quant_describe(q, p->g, id, l);
  l->keep = keep;
}

/* What is asked for. */
static void visit(cy_pass *p, cy_node id) {
  const cy_graph *g = p->g;
  const cy_node_info *n = cy_node_of(g, id);
  cy_weight_blocks s;
  bool recurrence = cy_quant_is_recurrence(g, n);
  if (!recurrence && (n->op != CY_OP_matmul || !cy_quant_eligible(g, n)))
    return;
  const char *keep = recurrence ? why_not_recurrence(p, n) : why_not(p, n, &s);
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
    }
  }
  cy_build_in(g, 1);
  cy_graph_sweep(g);
  return 0;
}
