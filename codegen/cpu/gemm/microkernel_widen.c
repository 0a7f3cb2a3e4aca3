/* SPDX-License-Identifier: Apache-2.0 */
/* microkernel_widen.c - weights that are not stored as floats made floats for a group of panels, once for all rows of a
 * task.
 *
 * Comes in: a group of panels of one K block. Goes out: the same as packed panels of floats in a cache.
 * Halves: with AVX-512 a conversion takes the ports that fma does, a sixth of a tile's time and more. Integers, whose
 * scales hold for blocks of rows, are not packed: the same bytes serve kernels for few rows, which read whole rows of
 * them (passes/lower/lower_blocks.c). A group reads a run of each row, a cache line where panels are that wide, and asks for
 * those of the next group, behind the last one of a task for the next rows of the first one.
 */
#include "microkernel.h"

int64_t cy_block_depth(const cy_microkernel *k) {
  int64_t taps = 0, c = 0;
  cy_is_const(k->taps, &taps);
  cy_is_const(k->c, &c);
  return (taps < k->tap_block ? taps : k->tap_block) * (c < k->c_block ? c : k->c_block);
}

bool cy_widens(const cy_cg *cg, const cy_microkernel *k) {
  int64_t bytes = cy_block_depth(k) * k->tile.nv * cg->W * 4;
  return k->ints.bits || (k->weights != CY_WEIGHTS_F32 && !k->direct && cg->model.widens && k->tile.mr >= 6 && bytes &&
                          (double)bytes <= cg->model.converted_panel);
}

/* ---- halves ---- */

/* `rows` of them, ldb bytes apart, of nv vectors. */
static void emit_half_rows(cy_cg *cg, const cy_microkernel *k, V from, V ldb, unsigned nv, V to, V rows) {
  cy_loop l;
  cy_loop_begin(cg, &l, cy_i64(cg, 0), rows, cy_i64(cg, 1), NULL, 0);
  V source = cy_gep(cg, from, cy_mul(cg, l.iv, ldb));
  V target = cy_gep(cg, to, cy_mulc(cg, l.iv, k->tile.nv * cg->W * 4));
  for (unsigned j = 0; j < nv; j++) {
    V v = cy_weights_load(cg, k->weights, cy_gepc(cg, source, (int64_t)j * cg->W * cy_weight_bytes(k->weights)));
    cy_store(cg, v, cy_gepc(cg, target, (int64_t)j * cg->W * 4), 4);
  }
  cy_loop_end(cg, &l, NULL);
}

static void emit_halves(cy_cg *cg, const cy_widening *w) {
  const cy_microkernel *k = w->micro;
  V depth = cy_mul(cg, w->taps, w->c), end = k->last ? cy_imin(cg, w->end, cy_addc(cg, k->panels, -1)) : w->end;
  V rows = cy_mul(cg, cy_sub(cg, end, w->q0), depth);
  emit_half_rows(cg, k, w->from, k->ldb, k->tile.nv, w->to, rows);
  if (!k->last)
    return;
  V from = cy_gep(cg, w->from, cy_mul(cg, rows, k->ldb)), ldb = cy_i64(cg, k->last * cy_weight_bytes(k->weights));
  V to = cy_gep(cg, w->to, cy_mulc(cg, rows, k->tile.nv * cg->W * 4));
  cy_if last;
  cy_if_begin(cg, &last, cy_icmp(cg, LLVMIntEQ, w->end, k->panels));
  emit_half_rows(cg, k, from, ldb, (unsigned)cy_ceil(k->last, cg->W), to, depth);
  cy_if_end(cg, &last);
}

/* ---- integers ---- */

/* A panel of a block of rows: `vectors` of them hold columns, `lanes` the last one. */
typedef struct piece {
  unsigned vectors, lanes;
  V col, to; /* first column; its floats of the block's first row */
  V block;   /* number of the block */
} piece;

static unsigned lanes_of(const cy_cg *cg, const piece *p, unsigned j) { return j + 1 < p->vectors ? cg->W : p->lanes; }

/* The `lanes` lanes of v as n; behind them is the first one again. */
static V filled_up(cy_cg *cg, V v, unsigned lanes, unsigned n) {
  int some[16];
  for (unsigned i = 0; i < n; i++)
    some[i] = i < lanes ? (int)i : 0;
  return lanes == n ? v : cy_shuffle(cg, v, v, some, n);
}

/* So many elements of a vector of `type`, as W; those behind are not read. */
static V load_lanes(cy_cg *cg, LLVMTypeRef type, V at, unsigned lanes) {
  return filled_up(cg, cy_load(cg, LLVMVectorType(type, lanes), at, 1), lanes, cg->W);
}

static V wide_of(cy_cg *cg, V ints, bool is_signed) {
  return is_signed ? LLVMBuildSExt(cg->b, ints, cg->vi, "") : LLVMBuildZExt(cg->b, ints, cg->vi, "");
}
static V floats_of(cy_cg *cg, V wide) { return LLVMBuildSIToFP(cg->b, wide, cg->vf, ""); }

static V blocks_to_prefetch(cy_cg *cg, const cy_widening *w) {
  return cy_div(cg, w->prefetch_rows, cy_i64(cg, w->micro->ints.block));
}

/* What each vector of a block is multiplied by, and what is then added: -zero * scale. */
static void load_scales(cy_cg *cg, const cy_widening *w, const piece *p, V *scale, V *shift) {
  const cy_int_weights *s = &w->micro->ints;
  V first = cy_add(cg, cy_mul(cg, p->block, w->micro->n), p->col);
  V prefetch = cy_add(cg, cy_mul(cg, blocks_to_prefetch(cg, w), w->micro->n), w->prefetch_columns);
  for (unsigned j = 0; j < p->vectors; j++) {
    V at = cy_addc(cg, first, (int64_t)j * cg->W), zero = cy_splatf(cg, (double)s->middle, cg->W);
    cy_prefetch(cg, cy_gepf(cg, s->scales, cy_add(cg, at, prefetch)), false, CY_SECOND_LEVEL);
    scale[j] = load_lanes(cg, cg->f32, cy_gepf(cg, s->scales, at), lanes_of(cg, p, j));
    if (s->zeros)
      zero = floats_of(cg, wide_of(cg, load_lanes(cg, cg->i8, cy_gep(cg, s->zeros, at), lanes_of(cg, p, j)), false));
    shift[j] = LLVMBuildFNeg(cg->b, LLVMBuildFMul(cg->b, zero, scale[j], ""), "");
  }
}

/* What the weights of a row are, by their codes. */
static V scaled(cy_cg *cg, V code, V scale, V shift) { return cy_fma(cg, floats_of(cg, code), scale, shift); }

static void store_floats(cy_cg *cg, const cy_microkernel *k, const piece *p, V row, const V *code, const V *scale,
                         const V *shift) {
  V to = cy_gepf(cg, p->to, cy_mulc(cg, row, (int64_t)k->tile.nv * cg->W));
  for (unsigned j = 0; j < k->tile.nv; j++) {
    V v = j < p->vectors ? scaled(cg, code[j], scale[j], shift[j]) : LLVMConstNull(cg->vf);
    cy_store(cg, v, cy_gepc(cg, to, (int64_t)j * cg->W * 4), 4);
  }
}

V cy_bf16_pairs(cy_cg *cg, V first, V second, unsigned lanes) {
  V high = filled_up(cg, second, lanes, 16), args[2] = {high, filled_up(cg, first, lanes, 16)};
  int mix[32];
  for (int i = 0; i < 32; i++)
    mix[i] = i / 2 + i % 2 * 16;
  V halves = cy_intrinsic_of(cg, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", NULL, 0, args, 2);
  halves = LLVMBuildBitCast(cg->b, halves, LLVMVectorType(cg->i16, 32), "");
  return cy_shuffle(cg, halves, halves, mix, 2 * lanes);
}

static void store_pairs(cy_cg *cg, const cy_microkernel *k, const piece *p, V pair, const V *code, const V *high,
                        const V *scale, const V *shift) {
  V to = cy_gepf(cg, p->to, cy_mulc(cg, pair, (int64_t)k->tile.nv * cg->W));
  for (unsigned j = 0; j < k->tile.nv; j++) {
    V v = LLVMConstNull(cg->vi);
    if (j < p->vectors) {
      V first = scaled(cg, code[j], scale[j], shift[j]);
      v = cy_bf16_pairs(cg, first, scaled(cg, high[j], scale[j], shift[j]), cg->W);
    }
    cy_store(cg, v, cy_gepc(cg, to, (int64_t)j * cg->W * 4), 4);
  }
}

/* Where the codes of a block's first row begin in a column, of which no vector leaves a tile. */
static V codes_at(cy_cg *cg, const cy_microkernel *k, V block, V col) {
  int64_t bytes = k->ints.block * k->ints.bits / 8;
  V tile = cy_i64(cg, k->ints.tile), before = cy_mul(cg, cy_div(cg, col, tile), cy_i64(cg, bytes * k->ints.tile));
  V at = cy_add(cg, cy_mul(cg, cy_mulc(cg, block, bytes), k->n), before);
  return cy_gep(cg, cy_gep(cg, k->b, at), cy_mod(cg, col, tile));
}

/* Codes of a row of bytes, and an order for those of the next group of panels, `prefetch`. */
static void load_codes(cy_cg *cg, const cy_microkernel *k, const piece *p, const V *from, V prefetch, V row, V *code) {
  V at = cy_mulc(cg, row, k->ints.tile);
  for (unsigned j = 0; j < p->vectors; j++)
    code[j] = wide_of(cg, load_lanes(cg, cg->i8, cy_gep(cg, from[j], at), lanes_of(cg, p, j)), k->ints.is_signed);
  cy_prefetch(cg, cy_gep(cg, prefetch, at), false, CY_SECOND_LEVEL);
}

static void split_codes(cy_cg *cg, const piece *p, V *code, V *high) {
  V four = cy_splat(cg, cy_i32(cg, 4), cg->W), low = cy_splat(cg, cy_i32(cg, 15), cg->W);
  for (unsigned j = 0; j < p->vectors; j++) {
    high[j] = LLVMBuildLShr(cg->b, code[j], four, "");
    code[j] = LLVMBuildAnd(cg->b, code[j], low, "");
  }
}

static void emit_piece(cy_cg *cg, const cy_widening *w, const piece *p) {
  const cy_microkernel *k = w->micro;
  const cy_int_weights *s = &k->ints;
  bool together = s->bits == 4 || s->bf16; /* row i and that half a block on */
  int64_t rows = together ? s->block / 2 : s->block;
  V scale[8], shift[8], code[8], high[8];
  load_scales(cg, w, p, scale, shift);
  V from[8], prefetch = cy_add(cg, p->block, blocks_to_prefetch(cg, w));
  prefetch = codes_at(cg, k, prefetch, cy_add(cg, p->col, w->prefetch_columns));
  for (unsigned j = 0; j < p->vectors; j++)
    from[j] = codes_at(cg, k, p->block, cy_addc(cg, p->col, (int64_t)j * cg->W));
  cy_loop i;
  cy_loop_begin(cg, &i, cy_i64(cg, 0), cy_i64(cg, rows), cy_i64(cg, 1), NULL, 0);
  load_codes(cg, k, p, from, prefetch, i.iv, code);
  if (s->bits == 4)
    split_codes(cg, p, code, high);
  else if (together)
    load_codes(cg, k, p, from, prefetch, cy_addc(cg, i.iv, rows), high);
  if (s->bf16) {
    store_pairs(cg, k, p, i.iv, code, high, scale, shift);
  } else {
    store_floats(cg, k, p, i.iv, code, scale, shift);
    if (together)
      store_floats(cg, k, p, cy_addc(cg, i.iv, rows), high, scale, shift);
  }
  cy_loop_end(cg, &i, NULL);
}

static void emit_ints(cy_cg *cg, const cy_widening *w) {
  const cy_microkernel *k = w->micro;
  int64_t NR = (int64_t)k->tile.nv * cg->W, block = k->ints.block, size = k->ints.bf16 ? 2 : 4, n = 0;
  cy_is_const(k->n, &n);
  V first = cy_div(cg, w->c0, cy_i64(cg, block)), full = cy_i64(cg, n / NR);
  cy_loop b, q;
  cy_loop_begin(cg, &b, cy_i64(cg, 0), cy_div(cg, w->c, cy_i64(cg, block)), cy_i64(cg, 1), NULL, 0);
  piece p = {.vectors = k->tile.nv, .lanes = cg->W, .block = cy_add(cg, first, b.iv)};
  V row = cy_gep(cg, w->to, cy_mulc(cg, b.iv, block * NR * size)), panel = cy_mulc(cg, w->c, NR * size);
  if (n >= NR) {
    cy_loop_begin(cg, &q, w->q0, cy_imin(cg, w->end, full), cy_i64(cg, 1), NULL, 0);
    p.col = cy_mulc(cg, q.iv, NR);
    p.to = cy_gep(cg, row, cy_mul(cg, cy_sub(cg, q.iv, w->q0), panel));
    emit_piece(cg, w, &p);
    cy_loop_end(cg, &q, NULL);
  }
  if (n % NR) {
    cy_if last;
    cy_if_begin(cg, &last, cy_icmp(cg, LLVMIntSGT, w->end, full));
    p.vectors = (unsigned)cy_ceil(n % NR, cg->W);
    p.lanes = n % cg->W ? (unsigned)(n % cg->W) : cg->W;
    p.col = cy_mulc(cg, full, NR);
    p.to = cy_gep(cg, row, cy_mul(cg, cy_sub(cg, full, w->q0), panel));
    emit_piece(cg, w, &p);
    cy_if_end(cg, &last);
  }
  cy_loop_end(cg, &b, NULL);
}

void cy_widen_emit(cy_cg *cg, const cy_widening *w) {
  if (w->micro->ints.bits)
    emit_ints(cg, w);
  else
    emit_halves(cg, w);
}
