/* conv_across.c - convolutions of few output channels and more input channels: lanes are input channels.
 *
 * Comes in: a cy_core whose tables conv.c has filled. Goes out: code for one task.
 * Vectors of output channels would be mostly empty. Here a tile of pixels has a vector of sums for each of its outputs,
 * to which products of the pixel's channels, as they lie in memory, and of weights are added; behind the last tap the
 * lanes of each are summed up, those of up to a vector's lanes of outputs at a time. No lane idles, and a pixel's
 * channels are loaded once for all outputs, the weights once for all pixels of the tile.
 */
#include "conv_int.h"

#include <stdio.h>
#include <string.h>

enum {
  MOST_OUTPUTS = 8,
  LEAST_LANES = 8,
  LANE_SUMS = 6, /* what summing up an output's lanes takes, in products of vectors */
  UNROLLED = 4,  /* vectors of channels */
};

unsigned cy_across_lanes(const cy_cg *cg, const cy_conv_desc *d) {
  if (d->groups > 1 || d->cout > MOST_OUTPUTS)
    return 0;
  if (d->cin % cg->W == 0)
    return cg->W;
  return d->weights == CY_WEIGHTS_F32 && d->cin % LEAST_LANES == 0 && cg->W > LEAST_LANES ? LEAST_LANES : 0;
}

double cy_across_products(const cy_conv_desc *d, unsigned lanes, double outputs, double taps) {
  return outputs * (double)d->cout * (taps / lanes + LANE_SUMS / (double)d->cin);
}

/* As many pixels as leave registers for weights. */
unsigned cy_across_rows(const cy_cg *cg, int64_t n) {
  int64_t rows = (cg->registers == 32 ? 25 : 12) / n;
  return (unsigned)(rows < 8 ? rows : 8);
}

int64_t cy_across_weights(const cy_conv_desc *d, int64_t taps) {
  return taps * d->cin * d->cout * cy_weight_bytes(d->weights);
}

/* ---- sums of lanes ---- */

/* Two vectors as one, of partial sums. Both consist of segments of `size` lanes, each to be summed up: of the result's
 * segments, half as large, those of a and of b take turns where they stay within groups of four lanes, which costs
 * least, else a's come first. id: what a lane belongs to. */
static V fold_pair(cy_cg *cg, V a, V b, const int *id_a, const int *id_b, unsigned lanes, unsigned size, int *id) {
  unsigned half = size / 2, group = size <= 4 ? 4 : lanes;
  int low[16], high[16];
  for (unsigned i = 0, at = 0; at < lanes; at += group)
    for (unsigned which = 0; which < 2; which++)
      for (unsigned s = at; s < at + group; s += size)
        for (unsigned j = 0; j < half; j++, i++) {
          low[i] = (int)(s + j + which * lanes);
          high[i] = low[i] + (int)half;
          id[i] = which ? id_b[s + j] : id_a[s + j];
        }
  V first = cy_shuffle(cg, a, b, low, lanes);
  return LLVMBuildFAdd(cg->b, first, cy_shuffle(cg, a, b, high, lanes), "");
}

/* The sums of the lanes of v[0 .. n), n up to `lanes`, in this order. */
static V sum_lanes(cy_cg *cg, const V *v, unsigned n, unsigned lanes) {
  V now[16];
  int id[16][16], next[16], order[16];
  for (unsigned i = 0; i < lanes; i++) {
    now[i] = i < n ? v[i] : LLVMGetPoison(LLVMTypeOf(v[0]));
    for (unsigned j = 0; j < lanes; j++)
      id[i][j] = (int)i;
  }
  for (unsigned size = lanes; size > 1; size /= 2)
    for (unsigned i = 0; i < size / 2; i++) {
      now[i] = fold_pair(cg, now[2 * i], now[2 * i + 1], id[2 * i], id[2 * i + 1], lanes, size, next);
      memcpy(id[i], next, sizeof next);
    }
  for (unsigned j = 0; j < lanes; j++)
    order[id[0][j]] = (int)j;
  return cy_shuffle(cg, now[0], now[0], order, lanes);
}

/* ---- the kernel ---- */

typedef struct shape {
  unsigned rows, n, lanes;
  unsigned vectors; /* of channels, where they are few; 0: as many as c says */
  cy_weights weights;
} shape;

/* Floats behind which the results of a tile may be written: whole vectors. */
static int64_t result_floats(const shape *s) { return cy_round_up((int64_t)s->rows * s->n, s->lanes); }

/* A vector of channels from k on: v, sums and then weights, moves on. */
static void add_channels(cy_cg *cg, const shape *s, const V *row, V k, V *v) {
  LLVMTypeRef type = cy_vecf(cg, s->lanes);
  unsigned sums = s->rows * s->n;
  int64_t bytes = s->lanes * cy_weight_bytes(s->weights);
  V w[MOST_OUTPUTS];
  for (unsigned j = 0; j < s->n; j++) {
    V at = cy_gepc(cg, v[sums], j * bytes);
    w[j] = s->lanes == cg->W ? cy_weights_load(cg, s->weights, at) : cy_load(cg, type, at, 4);
  }
  for (unsigned i = 0; i < s->rows; i++) {
    V x = cy_load(cg, type, cy_gepf(cg, row[i], k), 4);
    for (unsigned j = 0; j < s->n; j++)
      v[i * s->n + j] = cy_fma(cg, x, w[j], v[i * s->n + j]);
  }
  v[sums] = cy_gepc(cg, v[sums], s->n * bytes);
}

static void add_tap(cy_cg *cg, const shape *s, const V *row, V c, V *v) {
  unsigned carried = s->rows * s->n + 1;
  if (s->vectors) {
    for (unsigned i = 0; i < s->vectors; i++)
      add_channels(cg, s, row, cy_i64(cg, i * s->lanes), v);
    return;
  }
  cy_loop l;
  cy_loop_begin(cg, &l, cy_i64(cg, 0), c, cy_i64(cg, s->lanes), v, carried);
  memcpy(v, l.v, carried * sizeof *v);
  add_channels(cg, s, row, l.iv, v);
  cy_loop_end(cg, &l, v);
  memcpy(v, l.out, carried * sizeof *v);
}

/* void (i64 base, ptr tab, i64 tab_stride, ptr weights, i64 taps, i64 c, ptr to): results row by row, n each. */
static V kernel(cy_cg *cg, const shape *s) {
  char name[60];
  snprintf(name, sizeof name, "cyk_f32_across%u_%ux%u_%u%s", s->lanes, s->rows, s->n, s->vectors,
           cy_weights_suffix(s->weights));
  V fn = cy_shared_find(cg, name), v[CY_LOOP_MAX], row[16];
  if (fn)
    return fn;
  cy_fn_state state = cy_fn_save(cg);
  LLVMTypeRef params[] = {cg->i64, cg->ptr, cg->i64, cg->ptr, cg->i64, cg->i64, cg->ptr};
  fn = cy_fn_begin(cg, name, cg->voidt, params, 7, CY_FN_SHARED | CY_FN_NOINLINE | CY_FN_NOALIAS);
  unsigned sums = s->rows * s->n, carried = sums + 2;
  for (unsigned i = 0; i < sums; i++)
    v[i] = LLVMConstNull(cy_vecf(cg, s->lanes));
  v[sums] = LLVMGetParam(fn, 3);
  v[sums + 1] = LLVMGetParam(fn, 1);
  cy_loop taps;
  cy_loop_begin(cg, &taps, cy_i64(cg, 0), LLVMGetParam(fn, 4), cy_i64(cg, 1), v, carried);
  for (unsigned i = 0; i < s->rows; i++) {
    V entry = cy_load(cg, cg->i64, cy_gepc(cg, taps.v[sums + 1], i * 8), 8);
    row[i] = LLVMBuildIntToPtr(cg->b, LLVMBuildAdd(cg->b, LLVMGetParam(fn, 0), entry, ""), cg->ptr, "");
  }
  memcpy(v, taps.v, carried * sizeof *v);
  add_tap(cg, s, row, LLVMGetParam(fn, 5), v);
  v[sums + 1] = cy_gep(cg, taps.v[sums + 1], LLVMGetParam(fn, 2));
  cy_loop_end(cg, &taps, v);
  for (unsigned i = 0; i < sums; i += s->lanes) {
    V total = sum_lanes(cg, taps.out + i, sums - i < s->lanes ? sums - i : s->lanes, s->lanes);
    cy_store(cg, total, cy_gepc(cg, LLVMGetParam(fn, 6), i * 4), 4);
  }
  cy_fn_end(cg, NULL);
  cy_fn_restore(cg, state);
  return fn;
}

/* ---- a task ---- */

/* Tiles of s->rows rows from `first` on, as many rows as there are; the last tile begins earlier where it would end
 * beyond them. */
static void emit_tiles(cy_cg *cg, const cy_core *k, const shape *s) {
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

void cy_across_emit(cy_cg *cg, const cy_core *k, unsigned lanes) {
  int64_t n = 0, c = 0;
  cy_is_const(k->n, &n);
  cy_is_const(k->c, &c);
  shape s = {.rows = k->tile.mr, .n = (unsigned)n, .lanes = lanes, .weights = k->weights};
  s.vectors = c <= UNROLLED * (int64_t)lanes ? (unsigned)c / lanes : 0;
  cy_if enough;
  cy_if_begin(cg, &enough, cy_icmp(cg, LLVMIntSGE, k->rows, cy_i64(cg, s.rows)));
  emit_tiles(cg, k, &s);
  cy_if_else(cg, &enough);
  s.rows = 1;
  emit_tiles(cg, k, &s);
  cy_if_end(cg, &enough);
}
