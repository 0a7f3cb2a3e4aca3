/* SPDX-License-Identifier: Apache-2.0 */
/* attention_half.c - attention of bf16, by AMX or vdpbf16ps: how keys, values and queries lie in scratch, and the
 * products.
 *
 * Comes in: the plan and place of attention.c, which calls these in place of what it does for floats. Goes out: packed
 * keys and values, scores, outputs. The first product's b are keys by panels, pairs of their elements in the order of
 * int_gemm.h: a transposition of 32-bit words; the second one's are values by panels of columns, rows of two keys woven
 * into each other. Keys are filled up to whole tiles, or a pair, with values of 0, whose weights are 0, too. Kernels
 * take whole tiles of rows, of whatever content: scratch has so many.
 */
#include "attention_int.h"
#include "codegen/cpu/int8/int_gemm.h"

/* PAIR_ROWS: a multiple of the rows of all tiles. */
enum { AMX_KEYS = 32, BLOCK_ROWS = 2 * CY_AMX_ROWS, PAIR_ROWS = 24, TILE_ELEMENTS = 2 * CY_AMX_GROUPS, LANES = 16 };

void cy_attention_half_plan(const cy_cg *cg, att *a) {
  a->half = a->many = true;
  a->amx = cg->amx_bf16;
  a->few = false;
  if (a->amx) {
    a->qk = (cy_tile){BLOCK_ROWS, AMX_KEYS / LANES};
    a->pv = (cy_tile){BLOCK_ROWS, a->d->columns <= LANES ? 1 : 2};
  } else {
    a->qk = cy_tile_choose(cg, 0, a->keys);
    a->pv = cy_tile_choose(cg, 0, a->d->columns);
  }
  a->block = a->amx ? BLOCK_ROWS : PAIR_ROWS;
  a->chunk = cy_round_up(a->chunk, a->block);
  a->filled = cy_round_up(a->d->size, a->amx ? TILE_ELEMENTS : 2);
}

static cy_int_gemm_variant variant(const att *a) {
  return (cy_int_gemm_variant){
      .wide = true, .bf16 = true, .amx = a->amx, .step = 2, .together = a->amx ? CY_AMX_GROUPS : 1};
}

static V round_keys(cy_cg *cg, const att *a, V n) {
  return cy_mulc(cg, cy_ceil_div(cg, n, cy_i64(cg, a->nr_k)), a->nr_k);
}
static V all_keys(cy_cg *cg, const att *a) { return round_keys(cg, a, cy_size(cg, a->d->keys)); }

V cy_attention_half_keys_bytes(cy_cg *cg, const att *a) { return cy_mulc(cg, all_keys(cg, a), a->filled * 2); }
V cy_attention_half_values_bytes(cy_cg *cg, const att *a) {
  return cy_mulc(cg, all_keys(cg, a), a->panels_v * a->nr_v * 2);
}

/* bf16 number `at` behind p. */
static V element(cy_cg *cg, V p, V at) { return cy_gep(cg, p, cy_mulc(cg, at, 2)); }

static void move_element(cy_cg *cg, V to, V from) { cy_store(cg, cy_load(cg, cg->i16, from, 2), to, 2); }

static void zero_bytes(cy_cg *cg, V p, V n) { LLVMBuildMemSet(cg->b, p, LLVMConstNull(cg->i8), n, 2); }

/* ---- packing ---- */

/* A panel of up to nr_k keys at `to`, whose first lies at `from`. */
static void pack_panel(cy_cg *cg, const att *a, V to, V from, V valid) {
  const cy_attention_desc *d = a->d;
  int64_t stride = cy_csize_known(d->kj);
  if (cy_csize_is(d->kd, 1) && d->size % 2 == 0 && stride && stride % 2 == 0) { /* two elements at a time */
    V one = cy_i64(cg, 1), pairs = cy_i64(cg, d->size / 2), next = cy_i64(cg, stride / 2);
    cy_emit_gather2(cg, to, cy_i64(cg, a->nr_k), from, one, next, pairs, valid, 1);
    return;
  }
  cy_loop j, e;
  V size = cy_i64(cg, d->size), kj = cy_size(cg, d->kj), kd = cy_size(cg, d->kd);
  cy_loop_begin(cg, &j, cy_i64(cg, 0), valid, cy_i64(cg, 1), NULL, 0);
  V key = cy_mul(cg, j.iv, kj);
  cy_loop_begin(cg, &e, cy_i64(cg, 0), size, cy_i64(cg, 1), NULL, 0);
  V pair = cy_div(cg, e.iv, cy_i64(cg, 2)), odd = cy_mod(cg, e.iv, cy_i64(cg, 2));
  V at = cy_add(cg, cy_mulc(cg, cy_add(cg, cy_mulc(cg, pair, a->nr_k), j.iv), 2), odd);
  V source = element(cg, from, cy_add(cg, key, cy_mul(cg, e.iv, kd)));
  move_element(cg, element(cg, to, at), source);
  cy_loop_end(cg, &e, NULL);
  cy_loop_end(cg, &j, NULL);
}

static void pack_keys(cy_cg *cg, const work *w, V lo, V hi) {
  const att *a = w->a;
  V NR = cy_i64(cg, a->nr_k), stride = cy_size(cg, a->d->kj);
  cy_loop j;
  cy_loop_begin(cg, &j, lo, hi, NR, NULL, 0);
  V to = element(cg, w->keys_at, cy_mulc(cg, j.iv, a->filled)), valid = cy_imin(cg, NR, cy_sub(cg, hi, j.iv));
  V partial = cy_icmp(cg, LLVMIntSLT, valid, NR);
  cy_if fill;
  cy_if_begin(cg, &fill, a->filled == a->d->size ? partial : LLVMConstInt(cg->i1, 1, 0));
  zero_bytes(cg, to, cy_i64(cg, a->nr_k * a->filled * 2));
  cy_if_end(cg, &fill);
  pack_panel(cg, a, to, element(cg, w->k, cy_mul(cg, j.iv, stride)), valid);
  cy_loop_end(cg, &j, NULL);
}

/* Where the pair of keys that begins with `key` lies in panel p of values. */
static V pair_at(cy_cg *cg, const work *w, int64_t p, V key) {
  V panel = cy_mulc(cg, all_keys(cg, w->a), p);
  return element(cg, w->values_at, cy_mulc(cg, cy_add(cg, panel, key), w->a->nr_v));
}

/* Values of keys `key` and the one behind it, which is not there when `alone`: i1. */
static void pack_pair(cy_cg *cg, const work *w, V key, V alone) {
  const att *a = w->a;
  const cy_attention_desc *d = a->d;
  LLVMTypeRef lanes = LLVMVectorType(cg->i16, LANES);
  V stride = cy_size(cg, d->vj), even = element(cg, w->v, cy_mul(cg, key, stride));
  V odd = cy_select(cg, alone, even, element(cg, even, stride));
  for (int64_t p = 0; p < a->panels_v; p++) {
    V to = pair_at(cg, w, p, key);
    for (int64_t at = 0; at < a->nr_v; at += LANES) {
      int64_t column = p * a->nr_v + at, valid = d->columns - column;
      if (valid >= LANES && cy_csize_is(d->vn, 1)) {
        V x = cy_load(cg, lanes, cy_gepc(cg, even, column * 2), 2),
          y = cy_load(cg, lanes, cy_gepc(cg, odd, column * 2), 2);
        y = cy_select(cg, alone, LLVMConstNull(lanes), y);
        cy_store(cg, cy_interleaved(cg, x, y), cy_gepc(cg, to, at * 4), 2);
        continue;
      }
      for (int64_t i = 0; i < LANES && i < valid; i++) {
        V from = cy_mulc(cg, cy_size(cg, d->vn), column + i), cell = cy_gepc(cg, to, (at + i) * 4);
        V x = cy_load(cg, cg->i16, element(cg, even, from), 2), y = cy_load(cg, cg->i16, element(cg, odd, from), 2);
        cy_store(cg, x, cell, 2);
        cy_store(cg, cy_select(cg, alone, LLVMConstNull(cg->i16), y), cy_gepc(cg, cell, 2), 2);
      }
    }
  }
}

static void pack_values(cy_cg *cg, const work *w, V lo, V hi) {
  const att *a = w->a;
  cy_loop j;
  cy_loop_begin(cg, &j, lo, hi, cy_i64(cg, 2), NULL, 0);
  pack_pair(cg, w, j.iv, cy_icmp(cg, LLVMIntEQ, cy_addc(cg, j.iv, 1), hi));
  cy_loop_end(cg, &j, NULL);
  V end = cy_mulc(cg, cy_ceil_div(cg, hi, cy_i64(cg, 2)), 2), rest = cy_sub(cg, round_keys(cg, a, hi), end);
  for (int64_t p = 0; p < a->panels_v; p++) {
    V at = pair_at(cg, w, p, end);
    zero_bytes(cg, at, cy_mulc(cg, rest, a->nr_v * 2));
  }
}

void cy_attention_half_pack(cy_cg *cg, const work *w, V lo, V hi) {
  pack_keys(cg, w, lo, hi);
  pack_values(cg, w, lo, hi);
}

void cy_attention_half_queries(cy_cg *cg, const work *w) {
  const att *a = w->a;
  const cy_attention_desc *d = a->d;
  V step = cy_size(cg, d->qd);
  cy_loop r, e;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), w->rows, cy_i64(cg, 1), NULL, 0);
  V from = cy_attention_query(cg, w, cy_add(cg, w->row0, r.iv)),
    to = element(cg, w->queries, cy_mulc(cg, r.iv, a->filled));
  if (cy_csize_is(d->qd, 1)) {
    LLVMBuildMemCpy(cg->b, to, 2, from, 2, cy_i64(cg, d->size * 2));
  } else {
    cy_loop_begin(cg, &e, cy_i64(cg, 0), cy_i64(cg, d->size), cy_i64(cg, 1), NULL, 0);
    V source = element(cg, from, cy_mul(cg, e.iv, step));
    move_element(cg, element(cg, to, e.iv), source);
    cy_loop_end(cg, &e, NULL);
  }
  if (a->filled > d->size)
    zero_bytes(cg, cy_gepc(cg, to, d->size * 2), cy_i64(cg, (a->filled - d->size) * 2));
  cy_loop_end(cg, &r, NULL);
}

/* ---- the products ---- */

/* Panels of keys [j, end) one after the other, of `vectors` each: a panel stays in the first-level cache meanwhile. */
static void multiply_panels(cy_cg *cg, const work *w, const cy_int_product *all, V j, V end, unsigned vectors) {
  cy_int_product x = *all;
  x.panels = cy_i64(cg, 1);
  x.tile.nv = vectors;
  cy_loop p;
  cy_loop_begin(cg, &p, j, end, cy_i64(cg, x.nr), NULL, 0);
  x.b = element(cg, all->b, cy_mulc(cg, p.iv, w->a->filled));
  x.c = cy_gepf(cg, all->c, p.iv);
  cy_int_product_emit(cg, &x);
  cy_loop_end(cg, &p, NULL);
}

/* Where the number of keys is known, the last panel is as wide as they need. */
static void multiply_keys(cy_cg *cg, const work *w, const cy_int_product *x, V n) {
  int64_t keys, whole;
  if (!cy_is_const(n, &keys))
    keys = 0;
  whole = keys / x->nr * x->nr;
  multiply_panels(cg, w, x, cy_i64(cg, 0), keys ? cy_i64(cg, whole) : n, x->tile.nv);
  if (keys > whole)
    multiply_panels(cg, w, x, cy_i64(cg, whole), n, (unsigned)cy_ceil(keys - whole, LANES));
}

void cy_attention_half_scores(cy_cg *cg, const work *w, V j0, V n) {
  const att *a = w->a;
  cy_int_product x = {.variant = variant(a),
                      .tile = a->qk,
                      .nr = a->nr_k,
                      .row_bytes = a->filled * 2,
                      .ldc = a->ld_s * 4,
                      .rows = w->rows,
                      .a = w->queries,
                      .tab = w->tab_q,
                      .b = element(cg, w->keys_at, cy_mulc(cg, j0, a->filled)),
                      .c = w->scores,
                      .groups = cy_i64(cg, a->filled / 2)};
  x.panels = cy_ceil_div(cg, n, cy_i64(cg, a->nr_k));
  if (a->amx)
    cy_int_product_emit(cg, &x);
  else
    multiply_keys(cg, w, &x, n);
}

void cy_attention_half_outputs(cy_cg *cg, const work *w, V j0, V n, V accumulate) {
  const att *a = w->a;
  V keys = a->amx ? round_keys(cg, a, n) : cy_addc(cg, n, 1);
  for (int64_t p = 0; p < a->panels_v; p++) {
    cy_int_product x = {.variant = variant(a),
                        .tile = {a->pv.mr, p + 1 < a->panels_v ? a->pv.nv : a->last_v},
                        .nr = a->nr_v,
                        .row_bytes = a->ld_w * 2,
                        .ldc = a->ld_o * 4,
                        .rows = w->rows,
                        .a = w->weights,
                        .tab = w->tab_s,
                        .panels = cy_i64(cg, 1),
                        .onto = a->tiled ? accumulate : NULL};
    x.b = pair_at(cg, w, p, j0);
    x.c = cy_gepc(cg, w->outputs, p * a->nr_v * 4);
    x.groups = cy_div(cg, keys, cy_i64(cg, 2));
    cy_int_product_emit(cg, &x);
  }
}

/* ---- weights ---- */

void cy_attention_half_weights(cy_cg *cg, V row, V at, V v) {
  V halves = LLVMBuildFPTrunc(cg->b, v, LLVMVectorType(cg->bf16, LANES), "");
  cy_store(cg, halves, element(cg, row, at), 2);
}

void cy_attention_half_weights_end(cy_cg *cg, V row, V n) {
  V end = cy_mulc(cg, cy_ceil_div(cg, n, cy_i64(cg, LANES)), LANES);
  cy_store(cg, LLVMConstNull(LLVMVectorType(cg->i16, LANES)), element(cg, row, end), 2);
}
