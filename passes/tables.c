/* tables.c - large constants that no product multiplies, in fewer bytes: embeddings that are looked up, positions,
 * biases and masks that are added.
 *
 * In:  a graph whose weights have become what was asked for. Out: a constant in f32 (for integers: or in halves) is
 * stored as what is left of it below, and its readers widen what they read of it, which fusion puts into their kernels:
 *
 *   looked up      gather(v, i) = cast(gather(q, i)) * gather(scale, i), a scale per row, with --int8 and --weights;
 *                  one whose error that makes too large, and all with --fp16 or --bf16: cast(gather(half, i))
 *   read in place  by element-wise ops and as bias of attention: as f16 with any of these options. Eight bits would
 *                  shift what they hold, such as coordinates, by more than a user expects
 *
 *   windows        of what is read in place, equal matrices are stored once, asked for or not: masks of shifted windows
 *                  differ at the borders of the picture only
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
#include "quantise_int.h"

#include <math.h>
#include <string.h>

enum { LEAST_ELEMENTS = 1 << 14, LEAST_ROW = 32 };
enum { LEAST_WINDOW = 1 << 10, MOST_WINDOWS = 64 }; /* elements; different ones */
enum { MOST_UNASKED = 1 << 26 }; /* elements: halves of more of them take memory that nobody expects of a compiler */
static const double NEAR = 1.0 / 512; /* of a row in f16, relative RMS: twice what its digits give */

typedef struct table {
  cy_val v;             /* what is stored: all, or the windows that differ */
  cy_val stored, scale; /* scale: 0 where stored as halves */
  cy_val numbers;       /* of windows, along `axis`; 0: all is stored */
  int axis;
  uint64_t rows, row; /* of the last axis */
} table;

typedef enum reading { OTHERWISE, IN_PLACE, LOOKED_UP } reading;

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

/* Are whole rows looked up, long enough for a scale each? */
static bool has_rows(const cy_graph *g, const cy_uses *uses, const table *t) {
  int rank = cy_type_of(g, t->v)->rank;
  for (uint32_t i = uses->start[t->v]; i < uses->start[t->v + 1]; i++)
    if (cy_attr_get_int(cy_node_of(g, uses->list[i]), CY_ATTR_axis, 0) == rank - 1)
      return false;
  return t->row >= LEAST_ROW;
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
  for (uint64_t i = 0; i < t->rows * t->row; i++)
    wide[i] = (float)cy_scalar_load(v->data.bytes, (cy_dtype)v->type.dtype, i).f;
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
  return error_of(p->scratch, t, from, to, scale);
}

/* Lists each reader as a layer; keep: why the table stays in float (NULL: it does not). */
static void report(cy_pass *p, const cy_uses *uses, const table *t, double error, const char *keep) {
  const cy_pass_options *o = p->options;
  cy_quant *q = o->quant ? o->quant : o->weights->report;
  uint32_t count = uses->start[t->v + 1] - uses->start[t->v];
  if (!q)
    return;
  cy_quant_more_layers(q, count);
  for (uint32_t i = 0; i < count; i++) {
    cy_quant_layer *l = &q->layer[q->nlayers++];
    cy_quant_describe(q, p->g, uses->list[uses->start[t->v] + i], l);
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

/* Stores t as integers if that is near enough. */
static bool becomes_ints(cy_pass *p, const cy_uses *uses, table *t) {
  const cy_quant *q = p->options->quant;
  double error = round_to_ints(p, t), most = q ? q->table_error : INFINITY;
  bool near = error <= most;
  report(p, uses, t, error,
         near           ? NULL
         : isnan(error) ? "weights are not finite"
                        : cy_arena_printf(q->arena, "its error is over %.2g %%", most * 100));
  return near;
}

/* ---- halves ---- */

/* Is every row nearly what it was? */
static bool rows_near(const cy_graph *g, const table *t) {
  const cy_data_f32 *from = cy_value_of(g, t->v)->data.bytes;
  const void *halves = cy_value_of(g, t->stored)->data.bytes;
  for (uint64_t r = 0; r < t->rows; r++) {
    double noise = 0, signal = 0;
    for (uint64_t i = r * t->row; i < (r + 1) * t->row; i++) {
      double w = from[i], half = cy_scalar_load(halves, CY_F16, i).f;
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
  bool refused = (half == CY_F16 && !p->options->stores_f16) || (exact && t->rows > MOST_UNASKED / t->row);
  t->stored = refused ? 0 : cy_half_constant(p->g, t->v, half, exact);
  return t->stored && (exact || half != CY_F16 || rows_near(p->g, t));
}

/* ---- windows ---- */

/* Which of the different ones among `count` parts of data each part is; first: of each of these. Returns how many there
 * are, 0: too many. */
static uint64_t number_parts(const cy_data *data, uint64_t count, uint64_t *first, int64_t *numbers) {
  uint64_t size = data->size / count, n = 0;
  const char *bytes = data->bytes;
  for (uint64_t i = 0; i < count; i++) {
    uint64_t k = 0;
    while (k < n && memcmp(bytes + first[k] * size, bytes + i * size, size) != 0)
      k++;
    if (k == n && n == MOST_WINDOWS)
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
  if (axis + 2 >= type.rank || cy_type_count(g, &type) < (uint64_t)d[axis] * LEAST_WINDOW)
    return;
  uint64_t count = (uint64_t)d[axis], *first = CY_NEW_ARRAY(p->scratch, uint64_t, MOST_WINDOWS);
  cy_type each = cy_type_make(CY_I64, 1, &type.dim[axis]);
  cy_val index, parts;
  int64_t *numbers = cy_const_new(g, &each, &index);
  uint64_t n = number_parts(&data, count, first, numbers), size = data.size / count;
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

/* ---- readers ---- */

static cy_val looked_up(cy_graph *g, const table *t, cy_val indices, int axis) {
  cy_val y = cy_build_cast(g, cy_build_gather(g, t->stored, indices, axis), CY_F32);
  if (t->scale)
    y = cy_build_binary(g, CY_OP_mul, y, cy_build_gather(g, t->scale, indices, axis));
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
    cy_graph_replace(g, out, looked_up(g, t, in, (int)cy_attr_get_int(n, CY_ATTR_axis, 0)));
    return;
  }
  cy_val all = t->numbers ? cy_build_gather(g, t->stored, t->numbers, t->axis) : t->stored;
  all = cy_build_cast(g, all, (cy_dtype)cy_type_of(g, t->v)->dtype);
  n = cy_node_of(g, reader);
  for (uint32_t k = 0; k < n->nin; k++)
    if (n->in[k] == v)
      n->in[k] = all;
}

/* v, which all its readers read so. */
static void shrink(cy_pass *p, const cy_uses *uses, cy_val v, reading r) {
  const cy_pass_options *o = p->options;
  const cy_type type = *cy_type_of(p->g, v);
  table t = {.v = v};
  int64_t d[CY_MAX_RANK];
  cy_type_static(p->g, &type, d);
  t.row = (uint64_t)d[type.rank - 1];
  t.rows = cy_type_count(p->g, &type) / t.row;
  if (r == IN_PLACE)
    find_windows(p, &t);
  bool ints = asks_for_ints(o), rows = ints && r == LOOKED_UP && has_rows(p->g, uses, &t);
  if (rows && is_skipped(p, uses, v)) {
    report(p, uses, &t, -1, CY_QUANT_SKIPPED);
    return;
  }
  bool stored = rows && becomes_ints(p, uses, &t);
  cy_dtype half = r == LOOKED_UP && o->half ? o->half : CY_F16;
  bool halves = !stored && type.dtype == CY_F32 && round_to_halves(p, &t, half, !ints && !o->half);
  if (!stored && !halves && !t.numbers)
    return;
  if (!stored && !halves)
    t.stored = t.v;
  for (uint32_t i = uses->start[v]; i < uses->start[v + 1]; i++)
    replace(p, &t, v, uses->list[i]);
  cy_pass_count(p, stored ? "tables in integers" : halves ? "tables in halves" : "windows once", 1);
}

/* requires: swept   establishes: swept   breaks: unique, folded, placed, fused */
int cy_pass_tables(cy_pass *p) {
  cy_graph *g = p->g;
  cy_uses uses = cy_graph_uses(g, p->scratch);
  cy_val last = cy_value_count(g);
  for (cy_val v = 1; v <= last; v++) {
    const cy_value *value = cy_value_of(g, v);
    cy_dtype d = (cy_dtype)value->type.dtype;
    if ((d != CY_F32 && d != CY_F16 && d != CY_BF16) || !value->data.bytes ||
        cy_type_count(g, &value->type) < LEAST_ELEMENTS)
      continue;
    reading r = all_read(g, &uses, v);
    if (r != OTHERWISE)
      shrink(p, &uses, v, r);
  }
  cy_build_in(g, 1);
  cy_graph_sweep(g);
  return 0;
}
