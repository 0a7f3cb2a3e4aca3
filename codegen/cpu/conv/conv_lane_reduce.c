/* SPDX-License-Identifier: Apache-2.0 */
/* conv_lane_reduce.c - convolutions of few output channels: lanes are input channels, too.
 *
 * Comes in: a cy_microkernel whose tables conv.c has filled. Goes out: code for one task.
 * Vectors of output channels would be mostly empty. Here lanes are taken up by input channels, in one of two ways:
 *   single   a tile of positions has an accumulator for each of its outputs, to which products of the position's
 *            channels, as they lie in memory, and of weights are added: a position's channels are loaded once for all
 *            outputs;
 *   shared   a position's outputs share an accumulator, each having some of its lanes, and some of its channels are
 *            loaded once for each output: tiles have more positions, and there is less to sum up.
 * Behind the last tap the lanes of each output are summed up, for as many outputs at a time as fill a vector. No lane
 * idles, and weights are loaded once for all positions of the tile.
 */
#include "conv_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
  MAX_OUTPUTS = 8,
  MAX_ROWS = 20,
  MIN_LANES = 8,
  UNROLLED = 4,  /* vectors of channels */
  FENCED = 4,    /* rows, of whose loads there are registers for so many at a time */
};

/* Lanes that outputs of their own have: as many as divide the channels; 0: not so. */
static unsigned single_lanes(const cy_cg *cg, const cy_conv_desc *d) {
  if (d->cin % cg->W == 0)
    return cg->W;
  return d->weights == CY_WEIGHTS_F32 && d->cin % MIN_LANES == 0 && cg->W > MIN_LANES ? MIN_LANES : 0;
}

cy_lane_reduce cy_lane_reduce_choose(const cy_cg *cg, const cy_conv_desc *d, double outputs, double taps,
                                     double *out_products) {
  cy_lane_reduce best = {0, 1};
  if (d->groups > 1 || d->cout > MAX_OUTPUTS)
    return best;
  best.lanes = single_lanes(cg, d);
  *out_products = best.lanes ? cy_cost_lanes_single(cg, outputs * (double)d->cout, taps, best.lanes, (double)d->cin) : INFINITY;
  unsigned together = 2;
  while (together < d->cout)
    together *= 2;
  unsigned each = cg->W / together;
  double shared = cy_cost_lanes_shared(cg, outputs, taps, each, (double)d->cin);
  if (each > 1 && d->cin % each == 0 && shared < *out_products) {
    *out_products = shared;
    best = (cy_lane_reduce){cg->W, together};
  }
  return best;
}

/* As many positions as leave registers for weights, and for a position's channels. */
unsigned cy_lane_reduce_rows(const cy_cg *cg, const cy_lane_reduce *lane_reduce, int64_t n) {
  bool many = cg->registers == 32;
  if (lane_reduce->outputs > 1)
    return many ? MAX_ROWS : 12;
  int64_t rows = (many ? 25 : 12) / n;
  return (unsigned)(rows < 8 ? rows : 8);
}

int64_t cy_lane_reduce_weights(const cy_lane_reduce *lane_reduce, const cy_conv_desc *d, int64_t taps) {
  return taps * d->cin * (lane_reduce->outputs > 1 ? lane_reduce->outputs : d->cout) * cy_weight_bytes(d->weights);
}

/* ---- sums of lanes ---- */

/* Vectors consist of segments of `size` lanes, each to be summed up. Where lane `at` of two of them, which lies in the first
 * half of its segment, goes: as many segments, half as large, as one vector. Both vectors' take turns where they stay within
 * groups of four lanes, which costs least, else the first one's come first. */
static unsigned folded_lane(unsigned at, unsigned lanes, unsigned size) {
  unsigned group = size <= 4 ? 4 : lanes, within = at % group;
  return at % lanes - within + at / lanes * (group / 2) + within / size * (size / 2) + within % size;
}

static V fold_pair(cy_cg *cg, V a, V b, unsigned lanes, unsigned size) {
  int low[16], high[16];
  for (unsigned at = 0; at < 2 * lanes; at++)
    if (at % size < size / 2) {
      low[folded_lane(at, lanes, size)] = (int)at;
      high[folded_lane(at, lanes, size)] = (int)(at + size / 2);
    }
  V first = cy_shuffle(cg, a, b, low, lanes);
  return LLVMBuildFAdd(cg->b, first, cy_shuffle(cg, a, b, high, lanes), "");
}

/* Sums of neighbouring lanes, `each` of them, of v[0 .. n), n up to `each`: those of the first `kept` such of every vector,
 * in this order. */
static V sum_lanes(cy_cg *cg, const V *v, unsigned n, unsigned lanes, unsigned each, unsigned kept) {
  V now[16];
  int order[16] = {0};
  for (unsigned i = 0; i < each; i++)
    now[i] = i < n ? v[i] : LLVMGetPoison(LLVMTypeOf(v[0]));
  for (unsigned size = each; size > 1; size /= 2)
    for (unsigned i = 0; i < size / 2; i++)
      now[i] = fold_pair(cg, now[2 * i], now[2 * i + 1], lanes, size);
  for (unsigned i = 0; i < n * kept; i++) {
    unsigned at = i % kept * each, vector = i / kept;
    for (unsigned size = each; size > 1; size /= 2, vector /= 2)
      at = folded_lane(vector % 2 * lanes + at, lanes, size);
    order[i] = (int)at;
  }
  return cy_shuffle(cg, now[0], now[0], order, lanes);
}

/* ---- the kernel ---- */

typedef struct shape {
  unsigned rows, n, lanes;
  unsigned vectors; /* accumulators of a row: one for each output, or one that they share */
  unsigned each;    /* lanes of an output in a vector, and channels that one is multiplied with */
  unsigned steps;   /* so many channels where they are few; 0: as many as c says .. */
  unsigned unit;    /* .. by so many of a loop's turn */
  cy_weights weights;
} shape;

static shape shape_of(const cy_lane_reduce *lane_reduce, unsigned rows, unsigned n, int64_t c, cy_weights weights) {
  bool shared = lane_reduce->outputs > 1;
  shape s = {
      .rows = rows, .n = n, .lanes = lane_reduce->lanes, .vectors = shared ? 1 : n, .unit = 1, .weights = weights};
  s.each = s.lanes / lane_reduce->outputs;
  int64_t steps = c / s.each;
  s.steps = steps <= (shared ? 2 : 1) * UNROLLED ? (unsigned)steps : 0;
  while (shared && s.unit < UNROLLED && steps % (s.unit * 2) == 0) /* addresses are loaded for several */
    s.unit *= 2;
  return s;
}

/* Floats behind which the results of a tile may be written: whole vectors. */
static int64_t result_floats(const shape *s) { return (int64_t)s->rows * s->n + s->lanes; }

/* Channels from `at` on: a vector of them, or, for outputs that share one, some of them again and again. */
static V load_channels(cy_cg *cg, const shape *s, V at) {
  if (s->each == s->lanes)
    return cy_load(cg, cy_vecf(cg, s->lanes), at, 4);
  return cy_repeated(cg, cy_load(cg, cy_vecf(cg, s->each), at, 4), s->each, s->lanes);
}

/* A step of channels from k on: v, accumulators and then weights, moves on. */
static void add_channels(cy_cg *cg, const shape *s, const V *row, V k, V *v) {
  unsigned acc = s->rows * s->vectors;
  int64_t bytes = s->lanes * cy_weight_bytes(s->weights);
  V w[MAX_OUTPUTS];
  for (unsigned j = 0; j < s->vectors; j++) {
    V at = cy_gepc(cg, v[acc], j * bytes);
    w[j] = s->lanes == cg->W ? cy_weights_load(cg, s->weights, at) : cy_load(cg, cy_vecf(cg, s->lanes), at, 4);
  }
  for (unsigned i = 0; i < s->rows; i++) {
    if (s->each < s->lanes && i % FENCED == 0)
      cy_emit_fence(cg);
    V x = load_channels(cg, s, cy_gepf(cg, row[i], k));
    for (unsigned j = 0; j < s->vectors; j++)
      v[i * s->vectors + j] = cy_fma(cg, x, w[j], v[i * s->vectors + j]);
  }
  v[acc] = cy_gepc(cg, v[acc], s->vectors * bytes);
}

static void add_tap(cy_cg *cg, const shape *s, const V *row, V c, V *v) {
  unsigned carried = s->rows * s->vectors + 1;
  for (unsigned i = 0; i < s->steps; i++)
    add_channels(cg, s, row, cy_i64(cg, i * s->each), v);
  if (s->steps)
    return;
  cy_loop l;
  cy_loop_begin(cg, &l, cy_i64(cg, 0), c, cy_i64(cg, s->unit * s->each), v, carried);
  memcpy(v, l.v, carried * sizeof *v);
  for (unsigned i = 0; i < s->unit; i++)
    add_channels(cg, s, row, cy_addc(cg, l.iv, i * s->each), v);
  cy_loop_end(cg, &l, v);
  memcpy(v, l.out, carried * sizeof *v);
}

/* Sums of lanes, row by row; each store may write behind its own results, where the next one follows. */
static void store_sums(cy_cg *cg, const shape *s, const V *v, V to) {
  unsigned acc = s->rows * s->vectors, kept = s->n / s->vectors;
  for (unsigned i = 0; i < acc; i += s->each) {
    V total = sum_lanes(cg, v + i, acc - i < s->each ? acc - i : s->each, s->lanes, s->each, kept);
    cy_store(cg, total, cy_gepc(cg, to, i * kept * 4), 4);
  }
}

/* void (i64 base, ptr tab, i64 tab_stride, ptr weights, i64 taps, i64 c, ptr to): results row by row, n each. */
static V kernel(cy_cg *cg, const shape *s) {
  char name[100];
  snprintf(name, sizeof name, "cyk_f32_lane_reduce%u_%u_%ux%u_%u_%u%s", s->lanes, s->each, s->rows, s->n, s->steps, s->unit,
           cy_weights_suffix(s->weights));
  V fn = cy_shared_find(cg, name), v[CY_LOOP_MAX], row[MAX_ROWS];
  if (fn)
    return fn;
  cy_fn_state state = cy_fn_save(cg);
  LLVMTypeRef params[] = {cg->i64, cg->ptr, cg->i64, cg->ptr, cg->i64, cg->i64, cg->ptr};
  fn = cy_fn_begin(cg, name, cg->voidt, params, 7, CY_FN_SHARED | CY_FN_NOINLINE | CY_FN_NOALIAS);
  unsigned acc = s->rows * s->vectors, carried = acc + 2;
  for (unsigned i = 0; i < acc; i++)
    v[i] = LLVMConstNull(cy_vecf(cg, s->lanes));
  v[acc] = LLVMGetParam(fn, 3);
  v[acc + 1] = LLVMGetParam(fn, 1);
  cy_loop taps;
  cy_loop_begin(cg, &taps, cy_i64(cg, 0), LLVMGetParam(fn, 4), cy_i64(cg, 1), v, carried);
  cy_rows_of_table(cg, LLVMGetParam(fn, 0), taps.v[acc + 1], s->rows, row);
  memcpy(v, taps.v, carried * sizeof *v);
  add_tap(cg, s, row, LLVMGetParam(fn, 5), v);
  v[acc + 1] = cy_gep(cg, taps.v[acc + 1], LLVMGetParam(fn, 2));
  cy_loop_end(cg, &taps, v);
  store_sums(cg, s, taps.out, LLVMGetParam(fn, 6));
  cy_fn_end(cg, NULL);
  cy_fn_restore(cg, state);
  return fn;
}

/* ---- a task ---- */

/* Tiles of s->rows rows from `first` on, as many rows as there are; the last tile begins earlier where it would end
 * beyond them. */
static void emit_tiles(cy_cg *cg, const cy_microkernel *k, const shape *s) {
  V step = cy_i64(cg, s->rows), to = cy_alloca(cg, result_floats(s) * 4), ldc = cy_i64(cg, s->n * 4);
  cy_loop r;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), k->rows, step, NULL, 0);
  V at = cy_imin(cg, r.iv, cy_sub(cg, k->rows, step)), tab = cy_gep(cg, k->tab, cy_mulc(cg, at, 8));
  V args[] = {k->base, tab, k->tab_stride, k->b, k->taps, k->c, to};
  cy_call(cg, kernel(cg, s), args, 7);
  V done = cy_sub(cg, r.iv, at), results = cy_gep(cg, to, cy_mulc(cg, done, s->n * 4));
  cy_epilogue_tile(cg, k->epilogue, k->index, results, ldc, cy_sub(cg, step, done), r.iv, k->n, k->col0, k->tail_lanes);
  cy_loop_end(cg, &r, NULL);
}

void cy_lane_reduce_emit(cy_cg *cg, const cy_microkernel *k, const cy_lane_reduce *lane_reduce) {
  int64_t n = 0, c = 0;
  cy_is_const(k->n, &n);
  cy_is_const(k->c, &c);
  shape s = shape_of(lane_reduce, k->tile.mr, (unsigned)n, c, k->weights);
  cy_if enough;
  cy_if_begin(cg, &enough, cy_icmp(cg, LLVMIntSGE, k->rows, cy_i64(cg, s.rows)));
  emit_tiles(cg, k, &s);
  cy_if_else(cg, &enough);
  s.rows = 1;
  emit_tiles(cg, k, &s);
  cy_if_end(cg, &enough);
}
