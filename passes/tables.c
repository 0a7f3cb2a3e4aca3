/* SPDX-License-Identifier: Apache-2.0 */
/* tables.c - large constants that no product multiplies, in fewer bytes: embeddings that are looked up, positions,
 * biases and masks that are added.
 *
 * In:  a graph whose weights have become what was asked for. Out: a constant in f32 (for integers: or in halves) is
 * stored as what is left of it below, and its readers widen what they read of it, which fusion puts into their kernels:
 *
 *   looked up      gather(v, i) = cast(gather(q, i)) * gather(scale, i), a scale per row, with --int8 and --weights;
 *                  one whose error that makes too large, and all with --fp16 or --bf16: cast(gather(half, i))
 *   added          with --int8, cast(q) * scale, a scale per row, if no output is reached but through what rounds as much
 *                  or takes the scale away: positions of transformers
 *   read in place  else, by element-wise ops and as bias of attention: as f16 with any of these options. Eight bits would
 *                  shift what they hold, such as coordinates, by more than a user expects, and lose the biases that a
 *                  mask is added to
 *
 *   windows        of what is read in place, equal matrices are stored once, asked for or not: masks of shifted windows
 *                  differ at the borders of the feature map only
 *   columns        of what is read in place for many windows, columns that are equal in all matrices are stored once with
 *                  any of these options: biases that depend on where a key lies relative to its query. Their matrices are
 *                  stored again by every run, which is why nobody gets this unasked
 *
 * Not asked for, constants become f16 where that holds them exactly: models that come in f16 keep the size they have,
 * masks of zeros and infinities half of it. Not so the very largest.
 *
 * Every reader widens for itself: several readers of one result would have all of it stored by every run.
 *
 * Left alone: constants that anything else reads, too, as they would be stored twice; small ones, and tables of short
 * rows, where a scale costs more than it saves and numbers mean something by themselves (boxes); for f16, those with
 * rows that it does not come near, such as very small numbers. Nothing behind this pass may fold the constants back to
 * f32.
 */
#include "passes/quantise/quantise_int.h"

#include <math.h>
#include <string.h>

enum { MIN_ELEMENTS = 1 << 14, MIN_ROW = 32 };
enum { MIN_WINDOW = 1 << 10, MAX_WINDOWS = 64 };                   /* elements; different ones */
enum { MIN_COLUMNS = 1 << 13, MAX_COLUMNS = 1 << 10, SPREAD = 8 }; /* elements; different ones; see is_spread() */
enum { MAX_UNASKED = 1 << 26 }; /* elements: halves of more of them take memory that nobody expects of a compiler */
static const double NEAR = 1.0 / 512; /* of a row in f16, relative RMS: twice what its digits give */

typedef struct table {
  cy_val v;             /* what is stored: all, or the windows that differ */
  cy_val stored, scale; /* scale: 0 where stored as halves */
  cy_val zero;          /* of blocks in 4 bits, two rows of a block in each byte; else 0 */
  bool blocks;          /* stored and scale are those of a matmul_blocks, of which v's rows are columns */
  cy_val numbers;       /* of windows or columns, along `axis`; 0: all is stored */
  int axis;
  uint64_t rows, row; /* of the last axis */
} table;

typedef enum reading { OTHERWISE, IN_PLACE, LOOKED_UP } reading;

typedef struct shrinking {
  cy_pass *p;
  cy_uses uses;
  const bool *rounded; /* [value]: cy_tables_rounded(); NULL: constants that are added stay in float */
} shrinking;

static reading how_read(const cy_graph *g, const cy_node_info *n, cy_val v) {
  if (n->op == CY_OP_gather)
    return n->in[0] != v || n->in[1] == v ? OTHERWISE : LOOKED_UP;
  if (n->op != CY_OP_attention)
    return cy_op_is_ew((cy_op)n->op) ? IN_PLACE : OTHERWISE;
  for (int k = 0; k < 3; k++)
    if (n->in[k] == v)
      return OTHERWISE;
  return cy_type_of(g, v)->rank > 1 ? IN_PLACE : OTHERWISE;
}

/* How all readers of v read it; OTHERWISE where they differ. */
static reading all_read(const cy_graph *g, const cy_uses *uses, cy_val v) {
  reading all = OTHERWISE;
  for (uint32_t i = uses->start[v]; i < uses->start[v + 1]; i++) {
    reading r = uses->list[i] ? how_read(g, cy_node_of(g, uses->list[i]), v) : OTHERWISE;
    if (r == OTHERWISE || (all != OTHERWISE && r != all))
      return OTHERWISE;
    all = r;
  }
  return all;
}

/* Does n look whole rows of v up, or add v to what is rounded further on? */
static bool may_round(const shrinking *s, const cy_node_info *n, cy_val v) {
  if (n->op == CY_OP_gather)
    return cy_attr_get_int(n, CY_ATTR_axis, 0) != cy_type_of(s->p->g, v)->rank - 1;
  return s->rounded && n->op == CY_OP_add && n->in[0] != n->in[1] && s->rounded[n->out[0]];
}

/* Does v, stored as t, have rows long enough for a scale each, and may all its readers have them in eight bits? */
static bool has_rows(const shrinking *s, const table *t, cy_val v) {
  for (uint32_t i = s->uses.start[v]; i < s->uses.start[v + 1]; i++)
    if (!may_round(s, cy_node_of(s->p->g, s->uses.list[i]), v))
      return false;
  return t->row >= MIN_ROW;
}

/* ---- eight bits ---- */

/* Relative RMS, every column counting the same: where some hold far larger numbers than others, as embeddings of language
 * models do, these would hide what becomes of the rest, which a normalisation may bring out again. */
static double error_of(cy_arena *scratch, const table *t, const cy_data_f32 *from, const int8_t *ints,
                       const float *scale) {
  double *noise = CY_NEW_ARRAY(scratch, double, t->row), *signal = CY_NEW_ARRAY(scratch, double, t->row), sum = 0;
  for (uint64_t i = 0; i < t->rows * t->row; i++) {
    double w = from[i], d = w - (double)ints[i] * scale[i / t->row];
    noise[i % t->row] += d * d;
    signal[i % t->row] += w * w;
  }
  for (uint64_t c = 0; c < t->row; c++)
    sum += signal[c] > 0 ? noise[c] / signal[c] : noise[c];
  return sqrt(sum / (double)t->row);
}

static const void *in_f32(cy_pass *p, const table *t) {
  const cy_value *v = cy_value_of(p->g, t->v);
  if (v->type.dtype == CY_F32)
    return v->data.bytes;
  float *wide = CY_NEW_ARRAY(p->scratch, float, t->rows * t->row);
  cy_halves_load(wide, (cy_dtype)v->type.dtype, v->data.bytes, t->rows * t->row);
  return wide;
}

/* Stores t as integers; returns the error. */
static double round_to_ints(cy_pass *p, table *t) {
  cy_graph *g = p->g;
  cy_type ints = *cy_type_of(g, t->v), scales = ints;
  ints.dtype = CY_I8;
  scales.dtype = CY_F32;
  scales.dim[scales.rank - 1] = cy_dim_const(g, 1);
  const void *from = in_f32(p, t);
  int8_t *to = cy_const_new(g, &ints, &t->stored);
  float *scale = cy_const_new(g, &scales, &t->scale);
  cy_quant_s8(from, 1, t->rows, t->row, 1, scale, to);
  cy_const_made_of(g, t->stored, t->v);
  cy_const_made_of(g, t->scale, t->v);
  return error_of(p->scratch, t, from, to, scale);
}

/* Lists each reader as a layer; keep: why the table stays in float (NULL: it does not). */
static void report(cy_pass *p, const cy_uses *uses, cy_val v, double error, const char *keep) {
  const cy_pass_options *o = p->options;
  cy_quant *q = o->quant ? o->quant : o->weights->report;
  uint32_t count = uses->start[v + 1] - uses->start[v];
  if (!q)
    return;
  cy_quant_more_layers(q, count);
  for (uint32_t i = 0; i < count; i++) {
    cy_quant_layer *l = &q->layer[q->nlayers++];
    cy_quant_describe(q, p->g, uses->list[uses->start[v] + i], l);
    l->error = error;
    l->keep = l->keep ? l->keep : keep;
  }
}

static bool asks_for_ints(const cy_pass_options *o) {
  return o->quant ? o->quant->mode == CY_QUANT_STATIC || o->quant->mode == CY_QUANT_DYNAMIC
                  : o->weights && o->weights->bits;
}

static bool is_skipped(const cy_pass *p, const cy_uses *uses, cy_val v) {
  const cy_quant *q = p->options->quant;
  for (uint32_t i = uses->start[v]; q && i < uses->start[v + 1]; i++)
    if (cy_quant_skipped(q, p->g, cy_node_of(p->g, uses->list[i])))
      return true;
  return false;
}

/* Stores t, which is v, as integers if that is near enough. */
static bool becomes_ints(cy_pass *p, const cy_uses *uses, cy_val v, table *t) {
  const cy_quant *q = p->options->quant;
  double error = round_to_ints(p, t), max = q ? q->table_error : INFINITY;
  bool near = error <= max;
  report(p, uses, v, error,
         near           ? NULL
         : isnan(error) ? "weights are not finite"
                        : cy_arena_printf(q->arena, "its error is over %.2g %%", max * 100));
  return near;
}

/* ---- the integers of a product ---- */

/* Is n a product by constant blocks, in 8 bits or, with a zero point, in 4? */
static bool multiplies_blocks(const cy_graph *g, const cy_node_info *n) {
  if (n->op != CY_OP_matmul_blocks || !cy_value_is_const(g, n->in[2]))
    return false;
  cy_dtype t = (cy_dtype)cy_type_of(g, n->in[1])->dtype;
  return n->nin == 3 ? t == CY_I8 : t == CY_U8 && cy_value_is_const(g, n->in[3]);
}

/* The product that multiplies v, looked up here, in integers by blocks; NULL: none does. */
static const cy_node_info *product_of(const cy_pass *p, cy_val v) {
  const cy_graph *g = p->g;
  for (cy_block b = 1; b <= cy_block_count(g); b++)
    for (uint32_t i = 0; i < cy_block_of(g, b)->nnodes; i++) {
      const cy_node_info *n = cy_node_of(g, cy_block_of(g, b)->nodes[i]);
      if (multiplies_blocks(g, n) && cy_const_source(g, n->in[1]) == cy_const_source(g, v))
        return n;
    }
  return NULL;
}

/* Of integers q [blocks, columns / tile, rows, tile], d: element `at` of a column of a block, less its zero point. In 4
 * bits, the second half of a block's elements are in the upper halves of bytes. */
static int block_element(const cy_graph *g, const cy_node_info *product, const int64_t *d, int64_t block,
                         int64_t column, int64_t at) {
  const cy_value *q = cy_value_of(g, product->in[1]), *zero = product->nin > 3 ? cy_value_of(g, product->in[3]) : NULL;
  const int64_t i = ((block * d[1] + column / d[3]) * d[2] + at % d[2]) * d[3] + column % d[3];
  if (!zero)
    return ((const int8_t *)q->data.bytes)[i];
  const uint8_t *bytes = q->data.bytes, *zeros = zero->data.bytes;
  return (bytes[i] >> at / d[2] * 4 & 15) - zeros[zero->type.rank ? block * d[1] * d[3] + column : 0];
}

/* Are the integers of a product, with its scales [blocks, columns], v, a column being a row of it? Those of 4 bits may
 * saturate by a step. */
static bool rounds_to(const cy_graph *g, const table *t, const int64_t *d, const cy_node_info *product) {
  const float *from = cy_value_of(g, t->v)->data.bytes, *scale = cy_value_of(g, product->in[2])->data.bytes;
  const bool halves = product->nin > 3;
  const int64_t n = d[1] * d[3], each = halves ? 2 * d[2] : d[2], k = d[0] * each;
  if ((uint64_t)n != t->rows || (uint64_t)k != t->row || cy_type_of(g, t->v)->dtype != CY_F32)
    return false;
  for (int64_t i = 0; i < n * k; i++) {
    int64_t row = i / k, block = i % k / each;
    float s = scale[block * n + row], read;
    float w = s * (float)block_element(g, product, d, block, row, i % k % each);
    memcpy(&read, from + i, sizeof read);
    if (!(fabsf(w - read) <= (halves ? 1.001f : 0.501f) * fabsf(s)))
      return false;
  }
  return true;
}

/* Reads t, whose readers look v up, from the integers that a product has, where that is all that it stands for. */
static bool becomes_blocks(cy_pass *p, const cy_uses *uses, cy_val v, table *t) {
  cy_graph *g = p->g;
  const cy_node_info *n = product_of(p, v);
  int64_t d[CY_MAX_RANK];
  if (!n || !cy_type_static(g, cy_type_of(g, n->in[1]), d) || !rounds_to(g, t, d, n))
    return false;
  t->stored = n->in[1];
  t->scale = n->in[2];
  t->zero = n->nin > 3 ? n->in[3] : 0;
  t->blocks = true;
  report(p, uses, v, -1, NULL);
  return true;
}

/* ---- halves ---- */

/* Is every row nearly what it was? */
static bool rows_near(const cy_graph *g, cy_arena *scratch, const table *t) {
  const cy_data_f32 *from = cy_value_of(g, t->v)->data.bytes;
  const char *halves = cy_value_of(g, t->stored)->data.bytes;
  float *row = CY_NEW_ARRAY(scratch, float, t->row);
  for (uint64_t r = 0; r < t->rows; r++) {
    double noise = 0, signal = 0;
    cy_halves_load(row, CY_F16, halves + r * t->row * 2, t->row);
    for (uint64_t i = 0; i < t->row; i++) {
      double w = from[r * t->row + i], half = row[i];
      noise += half == w ? 0 : (w - half) * (w - half);
      signal += isfinite(w) ? w * w : 0;
    }
    if (!(noise <= signal * NEAR * NEAR))
      return false;
  }
  return true;
}

static bool round_to_halves(cy_pass *p, table *t, cy_dtype half, bool exact) {
  t->scale = 0;
  bool refused = (half == CY_F16 && !cy_caps_stores_f16(p->options->caps)) || (exact && t->rows > MAX_UNASKED / t->row);
  t->stored = refused ? 0 : cy_half_constant(p->g, t->v, half, exact);
  return t->stored && (exact || half != CY_F16 || rows_near(p->g, p->scratch, t));
}

/* ---- windows ---- */

/* Which of the different ones among `count` parts of data each part is; first: of each of these. Returns how many there
 * are, 0: more than `max`. */
static uint64_t number_parts(const char *bytes, uint64_t size, uint64_t count, uint64_t max, uint64_t *first,
                             int64_t *numbers) {
  uint64_t n = 0;
  for (uint64_t i = 0; i < count; i++) {
    uint64_t k = 0;
    while (k < n && memcmp(bytes + first[k] * size, bytes + i * size, size) != 0)
      k++;
    if (k == n && n == max)
      return 0;
    if (k == n)
      first[n++] = i;
    numbers[i] = (int64_t)k;
  }
  return n;
}

/* Stores each window of t once, where that leaves no more than half of them. */
static void find_windows(cy_pass *p, table *t) {
  cy_graph *g = p->g;
  cy_type type = *cy_type_of(g, t->v);
  const cy_data data = cy_value_of(g, t->v)->data;
  int64_t d[CY_MAX_RANK];
  int axis = 0;
  cy_type_static(g, &type, d);
  while (axis < type.rank && d[axis] == 1)
    axis++;
  if (axis + 2 >= type.rank || cy_type_count(g, &type) < (uint64_t)d[axis] * MIN_WINDOW)
    return;
  uint64_t count = (uint64_t)d[axis], *first = CY_NEW_ARRAY(p->scratch, uint64_t, MAX_WINDOWS);
  cy_type each = cy_type_make(CY_I64, 1, &type.dim[axis]);
  cy_val index, parts;
  int64_t *numbers = cy_const_new(g, &each, &index);
  uint64_t size = data.size / count, n = number_parts(data.bytes, size, count, MAX_WINDOWS, first, numbers);
  if (!n || n * 2 > count)
    return;
  type.dim[axis] = cy_dim_const(g, (int64_t)n);
  char *to = cy_const_new(g, &type, &parts);
  for (uint64_t k = 0; k < n; k++)
    memcpy(to + k * size, (const char *)data.bytes + first[k] * size, size);
  t->rows = t->rows / count * n;
  t->v = parts;
  t->numbers = index;
  t->axis = axis;
}

/* ---- columns ---- */

/* Does n read each element of v so often that storing v again in every run does not show? */
static bool is_spread(cy_graph *g, const cy_node_info *n, cy_val v) {
  cy_type reads = *cy_type_of(g, n->out[0]);
  if (n->op == CY_OP_attention) {
    cy_attention a = cy_attention_of(n);
    reads = cy_attention_scores(g, &a);
  }
  return cy_dim_le(g, cy_dim_muli(g, cy_type_elems(g, cy_type_of(g, v)), SPREAD), cy_type_elems(g, &reads));
}

static bool all_spread(cy_graph *g, const cy_uses *uses, cy_val v) {
  for (uint32_t i = uses->start[v]; i < uses->start[v + 1]; i++)
    if (!is_spread(g, cy_node_of(g, uses->list[i]), v))
      return false;
  return true;
}

/* The numbers of the columns of matrices [rows, row], in as few bytes as hold those below n. */
static cy_val store_numbers(cy_graph *g, const cy_dim *matrix, const int64_t *numbers, uint64_t count, uint64_t n) {
  bool bytes = n <= 256;
  cy_type type = cy_type_make(bytes ? CY_U8 : CY_U16, 2, matrix);
  cy_val v;
  void *to = cy_const_new(g, &type, &v);
  for (uint64_t c = 0; c < count; c++)
    if (bytes)
      ((uint8_t *)to)[c] = (uint8_t)numbers[c];
    else
      ((uint16_t *)to)[c] = (uint16_t)numbers[c];
  return v;
}

/* Stores each column of t, that is an element of the last two axes for all matrices, once, where that takes no more
 * than half of what halves would. */
static bool find_columns(cy_pass *p, table *t) {
  cy_graph *g = p->g;
  cy_type type = *cy_type_of(g, t->v);
  int64_t d[CY_MAX_RANK];
  cy_type_static(g, &type, d);
  if (type.rank < 3 || type.dtype != CY_F32)
    return false;
  uint64_t columns = (uint64_t)(d[type.rank - 2] * d[type.rank - 1]), matrices = t->rows * t->row / columns;
  const float *from = cy_value_of(g, t->v)->data.bytes;
  float *transposed = CY_NEW_ARRAY(p->scratch, float, t->rows * t->row);
  for (uint64_t i = 0; i < t->rows * t->row; i++)
    transposed[i % columns * matrices + i / columns] = from[i];
  uint64_t *first = CY_NEW_ARRAY(p->scratch, uint64_t, MAX_COLUMNS);
  int64_t *numbers = CY_NEW_ARRAY(p->scratch, int64_t, columns);
  uint64_t n =
      number_parts((const char *)transposed, matrices * sizeof *transposed, columns, MAX_COLUMNS, first, numbers);
  uint64_t size = n * matrices * sizeof *transposed + columns * (n <= 256 ? 1 : 2);
  if (!n || size > t->rows * t->row)
    return false;
  t->numbers = store_numbers(g, &type.dim[type.rank - 2], numbers, columns, n);
  t->axis = --type.rank - 1;
  type.dim[t->axis] = cy_dim_const(g, (int64_t)n);
  float *to = cy_const_new(g, &type, &t->stored);
  for (uint64_t i = 0; i < n * matrices; i++)
    to[i] = transposed[first[i % n] * matrices + i / n];
  return true;
}

/* ---- readers ---- */

static cy_val rows_of(cy_graph *g, cy_val v, cy_val indices, int axis) {
  return indices ? cy_build_gather(g, v, indices, axis) : v;
}

static cy_val times(cy_graph *g, cy_val x, int64_t by) {
  return cy_build_binary(g, CY_OP_mul, x, cy_build_scalar_int(g, CY_I64, by));
}

/* Where blocks w have the elements of columns `indices`: [.., block, row of it], as gather takes indices; of `in_block` rows,
 * some the second in their bytes. */
static cy_val blocks_places(cy_graph *g, const cy_type *w, cy_val indices, cy_val in_block) {
  int64_t d[CY_MAX_RANK];
  cy_type_static(g, w, d);
  const int64_t n = d[1] * d[3];
  const cy_dim dims[] = {w->dim[0], cy_dim_const(g, 1)};
  cy_val i = cy_build_cast(g, indices, CY_I64), zero = cy_build_scalar_int(g, CY_I64, 0);
  cy_val tile = cy_build_scalar_int(g, CY_I64, d[3]), all = cy_build_scalar_int(g, CY_I64, n);
  cy_val negative = cy_build_binary(g, CY_OP_lt, i, zero), behind = cy_build_binary(g, CY_OP_add, i, all);
  i = cy_build_select(g, negative, behind, i);
  i = cy_build_binary(g, CY_OP_max, i, zero);
  i = cy_build_binary(g, CY_OP_min, i, cy_build_scalar_int(g, CY_I64, n - 1));
  cy_val tiles = times(g, cy_build_binary(g, CY_OP_div, i, tile), d[2] * d[3]);
  cy_val column = cy_build_binary(g, CY_OP_add, tiles, cy_build_binary(g, CY_OP_mod, i, tile));
  for (int k = 0; k < 2; k++)
    column = cy_build_unsqueeze(g, column, cy_type_of(g, column)->rank);
  cy_val block = times(g, cy_build_iota(g, CY_I64, dims, 2, 0), n * d[2]);
  cy_val row = times(g, cy_build_binary(g, CY_OP_mod, in_block, cy_build_scalar_int(g, CY_I64, d[2])), d[3]);
  return cy_build_binary(g, CY_OP_add, column, cy_build_binary(g, CY_OP_add, block, row));
}

/* Parameters [blocks, columns] of these columns: [.., block, 1]. */
static cy_val of_columns(cy_graph *g, cy_val parameters, cy_val indices) {
  static const int64_t transposed[] = {1, 0};
  cy_val v = cy_build_gather(g, cy_build_transpose(g, parameters, transposed), indices, 0);
  return cy_build_unsqueeze(g, v, cy_type_of(g, v)->rank);
}

/* The halves of bytes, rows [.., in_block], less their zero point. */
static cy_val halves_widened(cy_graph *g, const table *t, cy_val bytes, cy_val in_block, int64_t rows, cy_val indices) {
  cy_val up = times(g, cy_build_binary(g, CY_OP_div, in_block, cy_build_scalar_int(g, CY_I64, rows)), 4);
  cy_val shifted = cy_build_binary(g, CY_OP_shr, cy_build_cast(g, bytes, CY_I32), cy_build_cast(g, up, CY_I32));
  cy_val ints = cy_build_binary(g, CY_OP_and, shifted, cy_build_scalar_int(g, CY_I32, 15));
  cy_val zero = cy_type_of(g, t->zero)->rank ? of_columns(g, t->zero, indices) : t->zero;
  return cy_build_binary(g, CY_OP_sub, ints, cy_build_cast(g, zero, CY_I32));
}

/* Rows of v at these indices, from the columns of a product's blocks. */
static cy_val blocks_widened(cy_graph *g, const table *t, cy_val indices) {
  const cy_type w = *cy_type_of(g, t->stored);
  const cy_dim count = cy_type_elems(g, &w);
  const cy_dim in_block[] = {cy_dim_const(g, 1), t->zero ? cy_dim_muli(g, w.dim[2], 2) : w.dim[2]};
  cy_val row = cy_build_iota(g, CY_I64, in_block, 2, 1), flat = cy_build_reshape(g, t->stored, &count, 1);
  cy_val ints = cy_build_gather(g, flat, blocks_places(g, &w, indices, row), 0);
  int64_t rows;
  if (t->zero && cy_dim_is_const(g, w.dim[2], &rows))
    ints = halves_widened(g, t, ints, row, rows, indices);
  return cy_build_binary(g, CY_OP_mul, cy_build_cast(g, ints, CY_F32), of_columns(g, t->scale, indices));
}

/* What t stands for, at these indices along axis or (0) as a whole. */
static cy_val widened(cy_graph *g, const table *t, cy_val indices, int axis) {
  cy_val y = rows_of(g, t->stored, indices, axis);
  if (t->scale) {
    y = cy_build_cast(g, y, CY_F32);
    y = cy_build_binary(g, CY_OP_mul, y, rows_of(g, t->scale, indices, axis));
  }
  return cy_build_cast(g, y, (cy_dtype)cy_type_of(g, t->v)->dtype);
}

/* Readers of v read t. */
static void replace(cy_pass *p, const table *t, cy_val v, cy_node reader) {
  cy_graph *g = p->g;
  cy_node_info *n = cy_node_of(g, reader);
  cy_build_before(g, reader);
  cy_rewrite_origin(p, n);
  if (n->op == CY_OP_gather) {
    cy_val out = n->out[0], in = n->in[1];
    if (t->blocks) {
      const cy_type type = *cy_type_of(g, out);
      cy_graph_replace(g, out, cy_build_reshape(g, blocks_widened(g, t, in), type.dim, type.rank));
      return;
    }
    cy_graph_replace(g, out, widened(g, t, in, (int)cy_attr_get_int(n, CY_ATTR_axis, 0)));
    return;
  }
  cy_val all = widened(g, t, t->numbers, t->axis);
  n = cy_node_of(g, reader);
  for (uint32_t k = 0; k < n->nin; k++)
    if (n->in[k] == v)
      n->in[k] = all;
}

/* What v becomes for all its readers, in words; NULL: it stays. */
static const char *choose(const shrinking *s, cy_val v, reading r, table *t) {
  cy_pass *p = s->p;
  const cy_pass_options *o = p->options;
  bool ints = asks_for_ints(o), large = t->rows * t->row >= MIN_ELEMENTS;
  if (r == IN_PLACE && large)
    find_windows(p, t);
  if (r == IN_PLACE && !t->numbers && (ints || o->half) && all_spread(p->g, &s->uses, v) && find_columns(p, t))
    return "columns once";
  if (!large)
    return NULL;
  bool rows = ints && has_rows(s, t, v), type_is_matrix = cy_type_of(p->g, v)->rank == 2;
  if (rows && is_skipped(p, &s->uses, v)) {
    report(p, &s->uses, v, -1, CY_QUANT_SKIPPED);
    if (r == LOOKED_UP)
      return NULL;
    rows = false;
  }
  if (rows && r == LOOKED_UP && type_is_matrix && becomes_blocks(p, &s->uses, v, t))
    return "tables of a product's integers";
  if (rows && becomes_ints(p, &s->uses, v, t))
    return "tables in integers";
  cy_dtype half = r == LOOKED_UP && o->half ? o->half : CY_F16;
  if (cy_type_of(p->g, v)->dtype == CY_F32 && round_to_halves(p, t, half, !ints && !o->half))
    return "tables in halves";
  t->stored = t->v;
  t->scale = 0;
  return t->numbers ? "windows once" : NULL;
}

static void shrink(const shrinking *s, cy_val v, reading r) {
  const cy_type type = *cy_type_of(s->p->g, v);
  table t = {.v = v};
  int64_t d[CY_MAX_RANK];
  cy_type_static(s->p->g, &type, d);
  t.row = (uint64_t)d[type.rank - 1];
  t.rows = cy_type_count(s->p->g, &type) / t.row;
  const char *what = choose(s, v, r, &t);
  for (uint32_t i = s->uses.start[v]; what && i < s->uses.start[v + 1]; i++)
    replace(s->p, &t, v, s->uses.list[i]);
  if (what)
    cy_pass_count(s->p, what, 1);
}

/* requires: swept   establishes: swept   breaks: unique, folded, placed, fused */
int cy_pass_tables(cy_pass *p) {
  cy_graph *g = p->g;
  const cy_quant *q = p->options->quant;
  shrinking s = {.p = p, .uses = cy_graph_uses(g, p->scratch)};
  if (q && asks_for_ints(p->options))
    s.rounded = cy_tables_rounded(p, &s.uses);
  cy_val last = cy_value_count(g);
  for (cy_val v = 1; v <= last; v++) {
    const cy_value *value = cy_value_of(g, v);
    cy_dtype d = (cy_dtype)value->type.dtype;
    if ((d != CY_F32 && d != CY_F16 && d != CY_BF16) || !value->data.bytes ||
        cy_type_count(g, &value->type) < MIN_COLUMNS)
      continue;
    reading r = all_read(g, &s.uses, v);
    if (r != OTHERWISE)
      shrink(&s, v, r);
  }
  cy_build_in(g, 1);
  cy_graph_sweep(g);
  return 0;
}
