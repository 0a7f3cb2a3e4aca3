/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - attention without its matrix of scores: one task takes a stretch of rows of one head.
 *
 * Comes in: a cy_attention_desc. Goes out: one phase. Rows of heads that share keys (trailing batch axes along which k
 * and v stand still) are counted as one run of rows. A task packs its keys, transposed, and its values into panels
 * once (tasks of one head that a worker does one after the other share them), then goes through its rows by blocks of 12
 * or 18:
 *   scaled copy of the queries -> scores = q k^T -> change, top, weights, sum -> out += weights v -> epilogue / sum
 * With AVX-512 (not that of CPUs with AMX), scores become weights only within the last product, a few steps before they are
 * multiplied: microkernel_weigh.c.
 * The scores of a block lie in the worker's scratch, sized for the second-level cache; where all keys do not fit there,
 * they come by tiles, and sums and outputs so far are scaled down when a greater score turns up. Keys that causality or
 * a window hide from all rows of a block are not looked at. Up to four rows are not worth packing: their scores are dot
 * products, and the values are read where they are. Where all keys come by one tile, and AMX is not there, the last step of
 * a block is done between the products of the next one.
 * Memory per worker grows with the number of keys, not with its square.
 * Where q, k and v are bf16, attention_half.c packs and multiplies, by blocks of 32 or 24 rows; scores are f32, weights are
 * rounded to bf16 where values are multiplied by them, their sum is that of f32.
 */
#include "attention_int.h"
#include "codegen/cpu/int8/int_gemm.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The first-level cache should have a block's scores. AVX512_TILES: Zen 5 takes up to 5 % longer by fewer; AMX tells
 * Sapphire Rapids. */
enum { FEW = 4, BLOCK_TILES = 2, AVX512_TILES = 3, WANTED_TASKS = 24, MIN_ROWS = 64, UNKNOWN_ROWS = 256 };

/* ---- the plan ---- */

static void plan_rows(const cy_cg *cg, att *a) {
  const cy_attention_desc *d = a->d;
  int64_t outer = 1;
  a->rows = cy_csize_known(d->m);
  for (int i = 0; i < d->n_batch; i++) {
    int64_t extent = cy_csize_known(d->batch[i]);
    if (i >= d->n_batch - a->shared)
      a->rows *= extent;
    else
      outer *= extent ? extent : 1;
  }
  bool in_place = cy_csize_is(d->kd, 1) && cy_csize_is(d->vn, 1) && d->columns % cg->W == 0;
  a->few = in_place && (a->rows == 0 || a->rows <= FEW);
  a->many = !a->few || a->rows == 0;
  a->qk = cy_tile_choose(cg, 0, 0);
  a->pv = cy_tile_choose(cg, a->many ? 0 : a->rows, d->columns);
  a->block = (cg->amx_bf16 ? BLOCK_TILES : (int64_t)cg->model.attention_rows) * a->qk.mr;
  int64_t rows = a->rows ? a->rows : UNKNOWN_ROWS * 4, parts = cy_ceil(WANTED_TASKS, outer);
  if (parts > rows / MIN_ROWS)
    parts = rows / MIN_ROWS;
  if (a->rows && parts <= 1) {
    int64_t blocks = cy_ceil(a->rows, a->block);
    a->block = cy_round_up(cy_ceil(a->rows, blocks), a->qk.mr);
  }
  a->chunk = cy_round_up(cy_ceil(rows, parts > 1 ? parts : 1), a->block);
}

/* Scores that nothing else changes are multiplied on their way: with the queries, or, where these are read as they are,
 * with the keys as they are packed; those of bf16 when they become weights, if that leaves the greatest the greatest.
 * Weights in the product with the values were not tried where AMX multiplies other types. */
static void plan_scales(const cy_cg *cg, att *a) {
  const double scale = a->d->scale, log2_e = 1.4426950408889634;
  bool powers = !cy_attention_scales(cg) || cy_cg_has(cg, "avx512dq"), changed = a->d->changes_scores;
  bool with_unit = powers && a->half && !changed && scale > 0;
  a->unit = !powers ? 0 : with_unit ? scale * log2_e : changed || a->half ? log2_e : 1;
  a->scale_s = a->half && !with_unit ? scale : 1;
  a->scale_q = a->half ? 1 : a->unit == 1 ? scale * log2_e : scale;
  a->queries_stay = powers && !a->half && !a->shared && cy_csize_is(a->d->qd, 1) && cy_csize_known(a->d->qm);
  a->scale_k = a->queries_stay ? a->scale_q : 1;
  a->late = cy_form_on(cg, CY_FORM_WEIGH) && powers && cy_attention_scales(cg) && !a->half && a->many && !cg->amx_bf16;
}

/* With AVX-512, vectors of values are shared out evenly to as few panels as hold them, the last one takes what is left: 80
 * columns come by 48 and 32, as a panel of 64 for the last 16 would be mostly empty. Elsewhere panels are narrow, and the
 * values of few rows are read where they are, by whole ones. */
static void plan_values(const cy_cg *cg, att *a) {
  int64_t columns = a->d->columns, vectors = cy_ceil(columns, cg->W);
  if (cg->model.attention_values)
    a->pv.nv = (unsigned)cy_ceil(vectors, cy_ceil(vectors, a->pv.nv));
  else if (a->few)
    while (columns % ((int64_t)a->pv.nv * cg->W))
      a->pv.nv--;
}

/* Values that are a panel as they lie. With AVX-512 (not tried where AMX multiplies) several may lie side by side, where
 * all rows stay in the second-level cache. On Zen 5, 256 or 512 keys of 128 columns take 1 to 2 % less time in place,
 * 1024 2 % more; of rows of 768 floats, one head having 64 of them, 64 and 128 keys 1 to 3 % less, 512 and 1024 4 to 15 %
 * more. */
static bool values_lie_well(const cy_cg *cg, const att *a) {
  const cy_attention_desc *d = a->d;
  int64_t row = cy_csize_known(d->vj);
  if (d->columns == a->nr_v && row == a->nr_v)
    return true;
  return cg->model.attention_values && !cg->amx_bf16 && d->columns % cg->W == 0 && row > 0 && a->keys > 0 &&
         a->keys * row * 4 < cy_l2_part(cg, 1, 2);
}

static att plan_of(const cy_cg *cg, const cy_attention_desc *d) {
  att a = {.d = d, .keys = cy_csize_known(d->keys)};
  while (a.shared < d->n_batch && cy_csize_is(d->k_batch[d->n_batch - 1 - a.shared], 0) &&
         cy_csize_is(d->v_batch[d->n_batch - 1 - a.shared], 0))
    a.shared++;
  plan_rows(cg, &a);
  if (d->bf16)
    cy_attention_half_plan(cg, &a);
  plan_values(cg, &a);
  plan_scales(cg, &a);
  a.nr_k = (int64_t)a.qk.nv * cg->W;
  a.nr_v = (int64_t)a.pv.nv * cg->W;
  int64_t max = cy_l2_part(cg, 1, 3) / (a.block * 4) / a.nr_k * a.nr_k;
  a.tile = max;
  if (a.keys) {
    int64_t tiles = cy_ceil(a.keys, max);
    a.tile = cy_round_up(cy_ceil(a.keys, tiles), a.nr_k);
  }
  a.tiled = !a.keys || a.keys > a.tile;
  a.all = a.keys && !a.tiled && !d->causal && !d->window;
  a.maxima = a.all && a.keys >= a.nr_k && !a.half && !a.few && !d->changes_scores && a.scale_s == 1;
  a.behind = a.all && !a.half && !a.few && a.keys >= a.nr_k && (a.late || !cy_attention_scales(cg));
  a.panels_v = cy_ceil(d->columns, a.nr_v);
  a.last_v =
      cg->model.attention_values && !a.amx ? (unsigned)cy_ceil(d->columns - (a.panels_v - 1) * a.nr_v, cg->W) : a.pv.nv;
  a.values_stay = !a.half && cy_csize_is(d->vn, 1) && values_lie_well(cg, &a);
  a.ld_s = a.tile + 2 * cg->W; /* room for a vector behind the last key, and no power of two */
  a.ld_o = a.panels_v * a.nr_v;
  a.ld_w = a.tile + 32;
  return a;
}

/* ---- sizes ---- */

static V outer_count(cy_cg *cg, const att *a) { return cy_batch_count(cg, a->d->batch, a->d->n_batch - a->shared); }

static V row_count(cy_cg *cg, const att *a) {
  V n = cy_size(cg, a->d->m);
  for (int i = a->d->n_batch - a->shared; i < a->d->n_batch; i++)
    n = cy_mul(cg, n, cy_size(cg, a->d->batch[i]));
  return n;
}

static cy_task_grid grid_of(cy_cg *cg, const void *of) {
  const att *a = of;
  return (cy_task_grid){.products = outer_count(cg, a), .rows = cy_axis_pieces(cg, row_count(cg, a), a->chunk)};
}

static V panels_k(cy_cg *cg, const att *a) { return cy_ceil_div(cg, cy_size(cg, a->d->keys), cy_i64(cg, a->nr_k)); }

/* Scratch: packed keys, packed values, then queries, scores and outputs of a block; bytes. */
typedef struct areas {
  V keys, values, queries, scores, outputs, weights, end;
} areas;

static areas place_areas(cy_cg *cg, const att *a) {
  const cy_attention_desc *d = a->d;
  V keys, values;
  if (a->half) {
    keys = cy_attention_half_keys_bytes(cg, a);
    values = cy_attention_half_values_bytes(cg, a);
  } else {
    keys = cy_mulc(cg, cy_mulc(cg, panels_k(cg, a), a->nr_k * d->size * 4), a->many);
    values = cy_mulc(cg, cy_mulc(cg, cy_size(cg, d->keys), a->panels_v * a->nr_v * 4), a->many && !a->values_stay);
  }
  areas r = {.keys = cy_i64(cg, 0), .values = cy_round64(cg, keys)};
  r.queries = cy_add(cg, r.values, cy_round64(cg, values));
  r.scores = cy_addc(cg, r.queries, cy_round_up(a->block * (a->half ? a->filled * 2 : d->size * 4), 64));
  r.outputs = cy_addc(cg, r.scores, cy_round_up(a->block * a->ld_s * 4, 64));
  r.weights = cy_addc(cg, r.outputs, cy_round_up(a->block * a->ld_o * 4, 64));
  r.end = a->half ? cy_addc(cg, r.weights, cy_round_up(a->block * a->ld_w * 2, 64)) : r.weights;
  return r;
}

static V worker_bytes(cy_cg *cg, const void *ctx) { return place_areas(cg, ctx).end; }

/* ---- one task's place ---- */

/* The first key that rows [r0, r1) may see, a multiple of a panel, and the one behind the last. */
static void key_range(cy_cg *cg, const work *w, V r0, V r1, V *out_lo, V *out_hi) {
  const cy_attention_desc *d = w->a->d;
  V keys = cy_size(cg, d->keys), one = cy_i64(cg, 1), zero = cy_i64(cg, 0), first = r0, last = cy_addc(cg, r1, -1);
  *out_lo = zero;
  *out_hi = keys;
  if (!d->causal && !d->window)
    return;
  if (w->a->shared) { /* rows of several heads: from the first row to the last */
    V m = cy_size(cg, d->m), same = cy_icmp(cg, LLVMIntEQ, cy_div(cg, r0, m), cy_div(cg, last, m));
    first = cy_select(cg, same, cy_mod(cg, r0, m), zero);
    last = cy_select(cg, same, cy_mod(cg, last, m), cy_addc(cg, m, -1));
  }
  V past = cy_size(cg, d->past);
  if (d->causal) /* one key at least: the rows that see none are its softmax's matter */
    *out_hi = cy_imin(cg, keys, cy_imax(cg, one, cy_addc(cg, cy_add(cg, last, past), 1)));
  if (d->window) {
    V lo = cy_addc(cg, cy_add(cg, first, past), 1 - d->window), max = cy_imax(cg, zero, cy_addc(cg, *out_hi, -1));
    lo = cy_imin(cg, cy_imax(cg, lo, zero), max);
    *out_lo = cy_mulc(cg, cy_div(cg, lo, cy_i64(cg, w->a->nr_k)), w->a->nr_k);
  }
}

/* ---- packing ---- */

static void pack_keys(cy_cg *cg, const work *w, V lo, V hi) {
  const att *a = w->a;
  V NR = cy_i64(cg, a->nr_k), stride = cy_size(cg, a->d->kj);
  cy_loop j;
  cy_loop_begin(cg, &j, lo, hi, NR, NULL, 0);
  V to = cy_gepf(cg, w->keys_at, cy_mulc(cg, j.iv, a->d->size)), valid = cy_imin(cg, NR, cy_sub(cg, hi, j.iv));
  V step = cy_size(cg, a->d->kd), from = cy_gepf(cg, w->k, cy_mul(cg, j.iv, stride));
  cy_emit_panel(cg, to, a->nr_k, from, step, stride, cy_i64(cg, a->d->size), valid, a->scale_k);
  cy_loop_end(cg, &j, NULL);
}

/* Panel p's row j lies at (p * keys + j) * NR. */
static void pack_values(cy_cg *cg, const work *w, V lo, V hi) {
  const att *a = w->a;
  V stride = cy_size(cg, a->d->vj), keys = cy_size(cg, a->d->keys), n = cy_sub(cg, hi, lo);
  for (int64_t p = 0; p < a->panels_v; p++) {
    int64_t valid = a->d->columns - p * a->nr_v;
    V to = cy_gepf(cg, w->values_at, cy_mulc(cg, cy_add(cg, cy_mulc(cg, keys, p), lo), a->nr_v));
    V column = cy_mulc(cg, cy_size(cg, a->d->vn), p * a->nr_v);
    V from = cy_gepf(cg, w->v, cy_add(cg, cy_mul(cg, lo, stride), column));
    cy_emit_panel(cg, to, a->nr_v, from, stride, cy_size(cg, a->d->vn), n,
                  cy_i64(cg, valid < a->nr_v ? valid : a->nr_v), 1);
  }
}

/* The block's queries, scaled. */
static void copy_queries(cy_cg *cg, const work *w) {
  const cy_attention_desc *d = w->a->d;
  if (w->a->half) {
    cy_attention_half_queries(cg, w);
    return;
  }
  int64_t whole = cy_csize_is(d->qd, 1) ? d->size / cg->W * cg->W : 0;
  V step = cy_size(cg, d->qd);
  cy_loop r, l;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), w->rows, cy_i64(cg, 1), NULL, 0);
  V from = cy_attention_query(cg, w, cy_add(cg, w->row0, r.iv)),
    to = cy_gepf(cg, w->queries, cy_mulc(cg, r.iv, d->size));
  for (int part = 0; part < 2; part++) {
    int64_t lo = part ? whole : 0, hi = part ? d->size : whole;
    if (lo == hi)
      continue;
    V scale = part ? LLVMConstReal(cg->f32, w->a->scale_q) : cy_splatf(cg, w->a->scale_q, cg->W);
    cy_loop_begin(cg, &l, cy_i64(cg, lo), cy_i64(cg, hi), cy_i64(cg, part ? 1 : cg->W), NULL, 0);
    V x = cy_load(cg, part ? cg->f32 : cg->vf, cy_gepf(cg, from, part ? cy_mul(cg, l.iv, step) : l.iv), 4);
    cy_store(cg, LLVMBuildFMul(cg->b, x, scale, ""), cy_gepf(cg, to, l.iv), 4);
    cy_loop_end(cg, &l, NULL);
  }
  cy_loop_end(cg, &r, NULL);
}

/* ---- finishing ---- */

static void out_row(void *ctx, cy_cg *cg, V row, V *idx) {
  work *w = ctx;
  cy_attention_row_indices(cg, w, cy_add(cg, w->row0, row), idx);
  V top = cy_load(cg, cg->f32, cy_gepf(cg, w->top, row), 4);
  V sum = w->a->behind && w->a->late ? cy_attention_sum(cg, w, row) : cy_load(cg, cg->f32, cy_gepf(cg, w->sum, row), 4);
  V none = LLVMBuildFCmp(cg->b, LLVMRealOEQ, top, LLVMConstReal(cg->f32, -INFINITY), "");
  w->inverse = LLVMBuildSelect(cg->b, none, w->empty, LLVMBuildFDiv(cg->b, LLVMConstReal(cg->f32, 1), sum, ""), "");
}

static void out_emit(void *ctx, cy_cg *cg, V acc, unsigned lanes, const V *idx) {
  const work *w = ctx;
  const cy_epilogue *e = &w->a->d->epilogue;
  e->emit(e->ctx, cg, LLVMBuildFMul(cg->b, acc, cy_splat(cg, w->inverse, lanes), ""), lanes, idx);
}

/* `count` rows of the block, from `first` on. */
static void finish_rows(cy_cg *cg, work *w, V first, V count) {
  const cy_attention_desc *d = w->a->d;
  cy_epilogue e = {.emit = out_emit, .ctx = w};
  cy_rows rows = {out_row, w, (unsigned)d->n_batch + 1};
  V outputs = cy_gepf(cg, w->outputs, cy_mulc(cg, first, w->a->ld_o));
  cy_epilogue_tile(cg, &e, &rows, outputs, cy_i64(cg, w->a->ld_o * 4), count, first, cy_i64(cg, d->columns),
                   cy_i64(cg, 0), (unsigned)(d->columns % cg->W));
}

/* Rows [from, to) of the block before, where there is one. */
static void finish_before(cy_cg *cg, const work *w, V from, V to) {
  work before = *w;
  before.row0 = cy_load(cg, cg->i64, w->done_row0, 8);
  to = cy_imax(cg, from, cy_imin(cg, to, cy_load(cg, cg->i64, w->done_rows, 8)));
  finish_rows(cg, &before, from, cy_sub(cg, to, from));
}

/* ---- the products ---- */

static int64_t query_bytes(const att *a) {
  return a->half ? a->filled * 2 : (a->queries_stay ? cy_csize_known(a->d->qm) : a->d->size) * 4;
}

/* Scores of a panel of keys, the one `at` keys behind j0; nv: the first vectors of it. */
static void multiply_panel(cy_cg *cg, const work *w, V j0, V at, unsigned nv) {
  const att *a = w->a;
  cy_tile tile = {a->qk.mr, nv};
  cy_product product = {.tile = tile,
                        .rows = w->rows,
                        .a = w->queries,
                        .b = cy_gepf(cg, w->keys_at, cy_mulc(cg, cy_add(cg, j0, at), a->d->size)),
                        .ldb = cy_i64(cg, a->nr_k * 4),
                        .c = cy_gepf(cg, w->scores, at),
                        .tab = w->tab_q,
                        .k = cy_i64(cg, a->d->size),
                        .maxima = a->maxima && nv == a->qk.nv ? w->maxima : NULL,
                        .tails = cy_tails(cg, tile, a->rows, a->block),
                        .row_bytes = query_bytes(a),
                        .ldc = a->ld_s * 4};
  cy_product_emit(cg, &product);
}

/* Before the block's first panel. */
static void no_maxima(cy_cg *cg, const work *w) {
  V lowest = cy_splatf(cg, -INFINITY, cg->W);
  for (int64_t r = 0; r < w->a->block; r++)
    cy_store(cg, lowest, cy_gepc(cg, w->maxima, r * cg->W * 4), 4);
}

/* Of the last panel, only vectors that have keys, where it is known how many. Between the panels, rows of the block before
 * are finished, a few at a time: what a micro-kernel has not multiplied yet goes on meanwhile. Finishing them all at once
 * took 1 % of the time of 256 keys (Zen 5). Packing the next head's keys there, by 8x16 up to 8x64 elements, does not
 * pay: it fills the queues that products wait in. */
static void multiply_keys(cy_cg *cg, const work *w, V j0, V n) {
  const att *a = w->a;
  int64_t keys = 0, rest = 0;
  cy_loop p;
  if (cy_is_const(n, &keys))
    rest = keys % a->nr_k;
  V whole = rest ? cy_i64(cg, keys - rest) : n;
  if (a->maxima)
    no_maxima(cg, w);
  cy_loop_begin(cg, &p, cy_i64(cg, 0), whole, cy_i64(cg, a->nr_k), NULL, 0);
  if (a->behind) {
    int64_t some = cy_ceil(a->block, keys / a->nr_k);
    V from = cy_mulc(cg, cy_div(cg, p.iv, cy_i64(cg, a->nr_k)), some);
    finish_before(cg, w, from, cy_addc(cg, from, some));
  }
  multiply_panel(cg, w, j0, p.iv, a->qk.nv);
  cy_loop_end(cg, &p, NULL);
  if (rest)
    multiply_panel(cg, w, j0, whole, (unsigned)cy_ceil(rest, cg->W));
}

/* Few rows: dot products, eight keys at a time; keys beyond the last repeat it. */
static void dot_keys(cy_cg *cg, const work *w, V j0, V n) {
  const att *a = w->a;
  V stride = cy_size(cg, a->d->kj), col[8], last = cy_addc(cg, n, -1);
  cy_loop j, r;
  cy_loop_begin(cg, &j, cy_i64(cg, 0), n, cy_i64(cg, 8), NULL, 0);
  for (int i = 0; i < 8; i++) {
    V key = cy_add(cg, j0, cy_imin(cg, cy_addc(cg, j.iv, i), last));
    col[i] = cy_gepf(cg, w->k, cy_mul(cg, key, stride));
  }
  cy_loop_begin(cg, &r, cy_i64(cg, 0), w->rows, cy_i64(cg, 1), NULL, 0);
  V dots = cy_emit_dots8(cg, cy_gepf(cg, w->queries, cy_mulc(cg, r.iv, a->d->size)), col, cy_i64(cg, a->d->size));
  cy_store(cg, dots, cy_gepf(cg, w->scores, cy_add(cg, cy_mulc(cg, r.iv, a->ld_s), j.iv)), 4);
  cy_loop_end(cg, &r, NULL);
  cy_loop_end(cg, &j, NULL);
}

/* outputs (+)= weights * values of keys [j0, j0 + n), of panel p, nv vectors wide */
static void multiply_value_panel(cy_cg *cg, const work *w, V p, unsigned nv, V j0, V n, V accumulate, bool few,
                                 const cy_weighing *weighing) {
  const att *a = w->a;
  bool stay = few || a->values_stay;
  cy_tile tile = {a->pv.mr, nv};
  V keys = cy_size(cg, a->d->keys), panel = cy_mulc(cg, keys, a->nr_v);
  V packed = cy_gepf(cg, w->values_at, cy_add(cg, cy_mul(cg, p, panel), cy_mulc(cg, j0, a->nr_v)));
  V in_place = cy_gepf(cg, w->v, cy_add(cg, cy_mul(cg, j0, cy_size(cg, a->d->vj)), cy_mulc(cg, p, a->nr_v)));
  cy_product product = {.tile = tile,
                        .rows = w->rows,
                        .a = w->scores,
                        .b = stay ? in_place : packed,
                        .ldb = stay ? cy_mulc(cg, cy_size(cg, a->d->vj), 4) : cy_i64(cg, a->nr_v * 4),
                        .c = cy_gepf(cg, w->outputs, cy_mulc(cg, p, a->nr_v)),
                        .tab = w->tab_s,
                        .k = n,
                        .accumulate = accumulate,
                        .weighing = weighing,
                        .tails = few && !a->rows ? (2u << FEW) - 1 : cy_tails(cg, tile, a->rows, a->block),
                        .row_bytes = a->ld_s * 4,
                        .ldc = a->ld_o * 4};
  cy_product_emit(cg, &product);
}

/* All panels; with the first one, scores may have to become weights. */
static void multiply_values(cy_cg *cg, const work *w, V j0, V n, V accumulate, bool few) {
  const att *a = w->a;
  int64_t done = a->late && !few, whole = a->last_v < a->pv.nv ? a->panels_v - 1 : a->panels_v;
  cy_loop p;
  if (done) {
    const cy_weighing weighing = {w->shifts, w->sums, a->unit != 1};
    multiply_value_panel(cg, w, cy_i64(cg, 0), a->pv.nv, j0, n, accumulate, few, &weighing);
    if (!a->behind)
      cy_attention_sums(cg, w);
  }
  if (done < whole) {
    cy_loop_begin(cg, &p, cy_i64(cg, done), cy_i64(cg, whole), cy_i64(cg, 1), NULL, 0);
    multiply_value_panel(cg, w, p.iv, a->pv.nv, j0, n, accumulate, few, NULL);
    cy_loop_end(cg, &p, NULL);
  }
  if (whole < a->panels_v)
    multiply_value_panel(cg, w, cy_i64(cg, whole), a->last_v, j0, n, accumulate, few, NULL);
}

/* ---- tasks ---- */

static void emit_block(cy_cg *cg, work *w, V end, bool few) {
  const att *a = w->a;
  V lo, hi, tile = cy_i64(cg, a->tile), zero = cy_i64(cg, 0);
  w->rows = cy_imin(cg, cy_i64(cg, a->block), cy_sub(cg, end, w->row0));
  key_range(cg, w, w->row0, cy_add(cg, w->row0, w->rows), &lo, &hi);
  w->queries = w->query_area;
  if (a->queries_stay && !few)
    w->queries = cy_attention_query(cg, w, w->row0);
  else
    copy_queries(cg, w);
  int64_t keys;
  if (!cy_is_const(hi, &keys)) { /* no key at all: a sum of nothing */
    cy_if nothing;
    cy_loop r;
    cy_if_begin(cg, &nothing, cy_icmp(cg, LLVMIntSLE, hi, lo));
    cy_fill_zero(cg, w->outputs, cy_i64(cg, a->block * a->ld_o));
    cy_loop_begin(cg, &r, zero, w->rows, cy_i64(cg, 1), NULL, 0);
    cy_store(cg, LLVMConstReal(cg->f32, -INFINITY), cy_gepf(cg, w->top, r.iv), 4);
    cy_store(cg, LLVMConstReal(cg->f32, 0), cy_gepf(cg, w->sum, r.iv), 4);
    cy_loop_end(cg, &r, NULL);
    cy_if_end(cg, &nothing);
  }
  cy_loop j;
  if (a->tiled)
    cy_loop_begin(cg, &j, lo, hi, tile, NULL, 0);
  V j0 = a->tiled ? j.iv : lo, n = a->tiled ? cy_imin(cg, tile, cy_sub(cg, hi, j0)) : cy_sub(cg, hi, lo);
  V first = cy_icmp(cg, LLVMIntEQ, j0, lo);
  if (few)
    dot_keys(cg, w, j0, n);
  else
    (a->half ? cy_attention_half_scores : multiply_keys)(cg, w, j0, n);
  cy_attention_softmax(cg, w, j0, n, first, few);
  V later = LLVMBuildNot(cg->b, first, "");
  if (a->half)
    cy_attention_half_outputs(cg, w, j0, n, later);
  else
    multiply_values(cg, w, j0, n, later, few);
  if (a->tiled)
    cy_loop_end(cg, &j, NULL);
  if (a->behind) {
    cy_store(cg, w->row0, w->done_row0, 8);
    cy_store(cg, w->rows, w->done_rows, 8);
  } else {
    finish_rows(cg, w, zero, w->rows);
  }
}

/* Tasks of one head that a worker does one after the other share what is packed. */
static V first_to_pack(cy_cg *cg, const work *w, V lo, V hi) {
  if (w->a->d->window)
    return lo;
  V same = cy_icmp(cg, LLVMIntEQ, cy_load(cg, cg->i64, w->packed_head, 8), w->head), NR = cy_i64(cg, w->a->nr_k);
  V end = cy_load(cg, cg->i64, w->packed_end, 8), whole = cy_mul(cg, cy_div(cg, end, NR), NR);
  V unfinished = cy_select(cg, cy_icmp(cg, LLVMIntEQ, end, hi), hi, whole);
  cy_store(cg, w->head, w->packed_head, 8);
  cy_store(cg, hi, w->packed_end, 8);
  return cy_select(cg, same, unfinished, lo);
}

static void emit_rows(cy_cg *cg, work *w, V begin, V end, bool few) {
  V lo, hi;
  cy_loop b;
  w->begin = begin;
  if (few) {
    w->row0 = begin;
    emit_block(cg, w, end, true);
    return;
  }
  key_range(cg, w, begin, end, &lo, &hi);
  lo = first_to_pack(cg, w, lo, hi);
  if (w->a->half) {
    cy_attention_half_pack(cg, w, lo, hi);
  } else {
    pack_keys(cg, w, lo, hi);
    if (!w->a->values_stay)
      pack_values(cg, w, lo, hi);
  }
  if (w->a->behind)
    cy_store(cg, cy_i64(cg, 0), w->done_rows, 8);
  cy_loop_begin(cg, &b, begin, end, cy_i64(cg, w->a->block), NULL, 0);
  w->row0 = b.iv;
  emit_block(cg, w, end, false);
  cy_loop_end(cg, &b, NULL);
  if (w->a->behind)
    finish_before(cg, w, cy_i64(cg, 0), cy_i64(cg, w->a->block));
}

/* Where keys and values of the head begin whose outer batch indices these are. */
static void place_head(cy_cg *cg, const att *a, const V *idx, V *out_k, V *out_v) {
  const cy_attention_desc *d = a->d;
  int outer = d->n_batch - a->shared;
  int64_t size = a->half ? 2 : 4;
  *out_k = cy_gep(cg, cy_arg_ptr(cg, d->k_slot), cy_mulc(cg, cy_batch_offset(cg, idx, d->k_batch, outer), size));
  *out_v = cy_gep(cg, cy_arg_ptr(cg, d->v_slot), cy_mulc(cg, cy_batch_offset(cg, idx, d->v_batch, outer), size));
}

static void emit_task(cy_cg *cg, void *frame_of, const cy_task *t) {
  work *w = frame_of;
  const att *a = w->a;
  const cy_attention_desc *d = a->d;
  int outer = d->n_batch - a->shared;
  cy_task_axis all = grid_of(cg, a).rows;
  V begin = t->rows.begin, end = t->rows.end, idx[CY_GEMM_BATCH];
  V next = cy_imin(cg, cy_addc(cg, t->number, 1), cy_addc(cg, cg->end, -1));
  cy_batch_split(cg, d->batch, outer, cy_div(cg, next, all.blocks), idx);
  place_head(cg, a, idx, &w->next_k, &w->next_v);
  cy_batch_split(cg, d->batch, outer, t->product, w->idx);
  place_head(cg, a, w->idx, &w->k, &w->v);
  w->head = t->product;
  if (!a->few || !a->many) {
    emit_rows(cg, w, begin, end, a->few);
    return;
  }
  cy_if choice;
  cy_if_begin(cg, &choice, cy_icmp(cg, LLVMIntSLE, all.count, cy_i64(cg, FEW)));
  emit_rows(cg, w, begin, end, true);
  cy_if_else(cg, &choice);
  emit_rows(cg, w, begin, end, false);
  cy_if_end(cg, &choice);
}

static void emit(cy_cg *cg, const void *of, const char *name) {
  const att *a = of;
  const cy_attention_desc *d = a->d;
  work w = {.a = a, .rows_fn = cy_attention_softmax_emit(cg, a)};
  V scratch = cy_phase_begin(cg, name, 0, &d->epilogue, d->scratch_slot, worker_bytes, a);
  areas at = place_areas(cg, a);
  w.keys_at = cy_gep(cg, scratch, at.keys);
  w.values_at = cy_gep(cg, scratch, at.values);
  w.query_area = w.queries = cy_gep(cg, scratch, at.queries);
  w.scores = cy_gep(cg, scratch, at.scores);
  w.outputs = cy_gep(cg, scratch, at.outputs);
  w.top = cy_alloca(cg, a->block * 4);
  w.sum = cy_alloca(cg, a->block * 4);
  w.maxima = cy_alloca(cg, a->maxima ? a->block * cg->W * 4 : 4);
  w.shifts = a->late ? cy_alloca(cg, a->block * 4) : w.maxima;
  w.sums = a->late ? cy_alloca(cg, a->block * cg->W * 4) : w.maxima;
  w.weights = cy_gep(cg, scratch, at.weights);
  w.tab_q = cy_row_table(cg, a->qk.mr, cy_i64(cg, query_bytes(a)));
  w.tab_s = cy_row_table(cg, a->pv.mr > FEW ? a->pv.mr : FEW, cy_i64(cg, a->half ? a->ld_w * 2 : a->ld_s * 4));
  w.done_row0 = cy_alloca(cg, 8);
  w.done_rows = cy_alloca(cg, 8);
  w.packed_head = cy_alloca(cg, 8);
  w.packed_end = cy_alloca(cg, 8);
  cy_store(cg, cy_i64(cg, -1), w.packed_head, 8);
  cy_store(cg, cy_i64(cg, 0), w.packed_end, 8);
  V any = cy_icmp(cg, LLVMIntSGT, cy_size(cg, d->keys), cy_i64(cg, 0));
  V nothing = LLVMConstReal(cg->f32, 0), hidden = d->zero_hidden ? nothing : LLVMConstReal(cg->f32, NAN);
  w.empty = LLVMBuildSelect(cg->b, any, hidden, nothing, "");
  if (a->amx)
    cy_int_gemm_amx_begin(cg);
  V before = a->late ? cy_attention_flush_begin(cg) : NULL; /* setting it takes too long for each block */
  cy_tasks_emit(cg, grid_of, a, emit_task, &w);
  if (a->late)
    cy_attention_flush_end(cg, before);
  if (a->amx)
    cy_int_gemm_amx_end(cg);
  cy_fn_end(cg, NULL);
}

CY_PLAN_MAKE(att)

static const char *name_of(const void *of) {
  const att *a = of;
  return !a->d->bf16 ? "attention" : a->amx ? "attention bf16 amx" : "attention bf16 dot2";
}

static void describe(const void *of, char *text, size_t size) {
  const att *a = of;
  snprintf(text, size, "tasks of %lld rows by blocks of %lld, keys by %lld", (long long)a->chunk, (long long)a->block,
           (long long)a->tile);
}

const cy_generator cy_attention_generator = {.plan = plan_make,
                                             .name = name_of,
                                             .describe = describe,
                                             .phase = {{"", NULL, emit, .grid = grid_of}},
                                             .worker_bytes = worker_bytes};
