/* core_widen.c - weights that are not stored as floats made floats for a group of panels, once for all rows of a task.
 *
 * Comes in: a group of panels of one K block. Goes out: the same as packed panels of floats in a cache.
 * Halves: with AVX-512 a conversion takes the ports that fma does, a sixth of a tile's time and more. Integers, whose
 * scales hold for blocks of rows, are not packed: the same bytes serve kernels for few rows, which read whole rows of
 * them (passes/lower_blocks.c). A group reads a run of each row, a cache line where panels are that wide, and asks for
 * those of the next group.
 */
#include "core.h"

enum { MOST_WIDENED = 256 * 1024 };

int64_t cy_block_depth(const cy_core *k) {
  int64_t taps = 0, c = 0;
  cy_is_const(k->taps, &taps);
  cy_is_const(k->c, &c);
  return (taps < k->tap_block ? taps : k->tap_block) * (c < k->c_block ? c : k->c_block);
}

bool cy_widens(const cy_cg *cg, const cy_core *k) {
  int64_t bytes = cy_block_depth(k) * k->tile.nv * cg->W * 4;
  return k->ints.bits ||
         (k->weights != CY_WEIGHTS_F32 && cg->avx512 && k->tile.mr >= 6 && bytes && bytes <= MOST_WIDENED);
}

/* ---- halves ---- */

static void emit_halves(cy_cg *cg, const cy_widening *w) {
  const cy_core *k = w->core;
  V depth = cy_mul(cg, w->taps, w->c), rows = cy_mul(cg, cy_sub(cg, w->end, w->q0), depth);
  cy_loop l;
  cy_loop_begin(cg, &l, cy_i64(cg, 0), rows, cy_i64(cg, 1), NULL, 0);
  V source = cy_gep(cg, w->from, cy_mul(cg, l.iv, k->ldb));
  V target = cy_gep(cg, w->to, cy_mulc(cg, l.iv, k->tile.nv * cg->W * 4));
  for (unsigned j = 0; j < k->tile.nv; j++) {
    V v = cy_weights_load(cg, k->weights, cy_gepc(cg, source, (int64_t)j * cg->W * cy_weight_bytes(k->weights)));
    cy_store(cg, v, cy_gepc(cg, target, (int64_t)j * cg->W * 4), 4);
  }
  cy_loop_end(cg, &l, NULL);
}

/* ---- integers ---- */

/* A panel of a block of rows: `vectors` of them hold columns, `lanes` the last one. */
typedef struct piece {
  unsigned vectors, lanes;
  V col, to; /* first column; its floats of the block's first row */
  V block;   /* number of the block */
} piece;

static unsigned lanes_of(const cy_cg *cg, const piece *p, unsigned j) { return j + 1 < p->vectors ? cg->W : p->lanes; }

/* So many elements of a vector of `type`, as W; those behind are not read. */
static V load_lanes(cy_cg *cg, LLVMTypeRef type, V at, unsigned lanes) {
  V v = cy_load(cg, LLVMVectorType(type, lanes), at, 1);
  int some[16];
  for (unsigned i = 0; i < cg->W; i++)
    some[i] = i < lanes ? (int)i : 0;
  return lanes == cg->W ? v : cy_shuffle(cg, v, v, some, cg->W);
}

static V floats_of(cy_cg *cg, V ints, bool is_signed) {
  V wide = is_signed ? LLVMBuildSExt(cg->b, ints, cg->vi, "") : LLVMBuildZExt(cg->b, ints, cg->vi, "");
  return LLVMBuildSIToFP(cg->b, wide, cg->vf, "");
}

/* What each vector of a block is multiplied by, and what is then added: -zero * scale. */
static void load_scales(cy_cg *cg, const cy_widening *w, const piece *p, V *scale, V *shift) {
  const cy_int_weights *s = &w->core->ints;
  V first = cy_add(cg, cy_mul(cg, p->block, w->core->n), p->col);
  for (unsigned j = 0; j < p->vectors; j++) {
    V at = cy_addc(cg, first, (int64_t)j * cg->W), zero = cy_splatf(cg, (double)s->middle, cg->W);
    cy_prefetch(cg, cy_gepf(cg, s->scales, cy_add(cg, at, w->next)), false, CY_SECOND_LEVEL);
    scale[j] = load_lanes(cg, cg->f32, cy_gepf(cg, s->scales, at), lanes_of(cg, p, j));
    if (s->zeros)
      zero = floats_of(cg, load_lanes(cg, cg->i8, cy_gep(cg, s->zeros, at), lanes_of(cg, p, j)), false);
    shift[j] = LLVMBuildFNeg(cg->b, LLVMBuildFMul(cg->b, zero, scale[j], ""), "");
  }
}

static void store_floats(cy_cg *cg, const cy_core *k, const piece *p, V row, const V *code, const V *scale,
                         const V *shift) {
  V to = cy_gepf(cg, p->to, cy_mulc(cg, row, (int64_t)k->tile.nv * cg->W));
  for (unsigned j = 0; j < k->tile.nv; j++) {
    V v = LLVMConstNull(cg->vf);
    if (j < p->vectors)
      v = cy_fma(cg, floats_of(cg, code[j], k->ints.is_signed), scale[j], shift[j]);
    cy_store(cg, v, cy_gepc(cg, to, (int64_t)j * cg->W * 4), 4);
  }
}

/* Where the codes of a block's first row begin in a column, of which no vector leaves a tile. */
static V codes_at(cy_cg *cg, const cy_core *k, const piece *p, V col) {
  int64_t bytes = k->ints.block * k->ints.bits / 8;
  V tile = cy_i64(cg, k->ints.tile), before = cy_mul(cg, cy_div(cg, col, tile), cy_i64(cg, bytes * k->ints.tile));
  V at = cy_add(cg, cy_mul(cg, cy_mulc(cg, p->block, bytes), k->n), before);
  return cy_gep(cg, cy_gep(cg, k->b, at), cy_mod(cg, col, tile));
}

static void emit_piece(cy_cg *cg, const cy_widening *w, const piece *p) {
  const cy_core *k = w->core;
  const cy_int_weights *s = &k->ints;
  int64_t bytes = s->block * s->bits / 8;
  V scale[8], shift[8], code[8], high[8];
  load_scales(cg, w, p, scale, shift);
  V from[8], ahead = codes_at(cg, k, p, cy_add(cg, p->col, w->next));
  for (unsigned j = 0; j < p->vectors; j++)
    from[j] = codes_at(cg, k, p, cy_addc(cg, p->col, (int64_t)j * cg->W));
  V four = cy_splat(cg, LLVMConstInt(cg->i8, 4, 0), cg->W), low = cy_splat(cg, LLVMConstInt(cg->i8, 15, 0), cg->W);
  cy_loop i;
  cy_loop_begin(cg, &i, cy_i64(cg, 0), cy_i64(cg, bytes), cy_i64(cg, 1), NULL, 0);
  V row = cy_mulc(cg, i.iv, s->tile);
  for (unsigned j = 0; j < p->vectors; j++) {
    code[j] = load_lanes(cg, cg->i8, cy_gep(cg, from[j], row), lanes_of(cg, p, j));
    if (s->bits == 8)
      continue;
    high[j] = LLVMBuildLShr(cg->b, code[j], four, "");
    code[j] = LLVMBuildAnd(cg->b, code[j], low, "");
  }
  cy_prefetch(cg, cy_gep(cg, ahead, row), false, CY_SECOND_LEVEL);
  store_floats(cg, k, p, i.iv, code, scale, shift);
  if (s->bits == 4)
    store_floats(cg, k, p, cy_addc(cg, i.iv, bytes), high, scale, shift);
  cy_loop_end(cg, &i, NULL);
}

static void emit_ints(cy_cg *cg, const cy_widening *w) {
  const cy_core *k = w->core;
  int64_t NR = (int64_t)k->tile.nv * cg->W, block = k->ints.block, n = 0;
  cy_is_const(k->n, &n);
  V first = cy_div(cg, w->c0, cy_i64(cg, block)), full = cy_i64(cg, n / NR);
  cy_loop b, q;
  cy_loop_begin(cg, &b, cy_i64(cg, 0), cy_div(cg, w->c, cy_i64(cg, block)), cy_i64(cg, 1), NULL, 0);
  piece p = {.vectors = k->tile.nv, .lanes = cg->W, .block = cy_add(cg, first, b.iv)};
  V row = cy_gepf(cg, w->to, cy_mulc(cg, b.iv, block * NR)), panel = cy_mulc(cg, w->c, NR);
  if (n >= NR) {
    cy_loop_begin(cg, &q, w->q0, cy_imin(cg, w->end, full), cy_i64(cg, 1), NULL, 0);
    p.col = cy_mulc(cg, q.iv, NR);
    p.to = cy_gepf(cg, row, cy_mul(cg, cy_sub(cg, q.iv, w->q0), panel));
    emit_piece(cg, w, &p);
    cy_loop_end(cg, &q, NULL);
  }
  if (n % NR) {
    cy_if last;
    cy_if_begin(cg, &last, cy_icmp(cg, LLVMIntSGT, w->end, full));
    p.vectors = (unsigned)cy_ceil(n % NR, cg->W);
    p.lanes = n % cg->W ? (unsigned)(n % cg->W) : cg->W;
    p.col = cy_mulc(cg, full, NR);
    p.to = cy_gepf(cg, row, cy_mul(cg, cy_sub(cg, full, w->q0), panel));
    emit_piece(cg, w, &p);
    cy_if_end(cg, &last);
  }
  cy_loop_end(cg, &b, NULL);
}

void cy_widen_emit(cy_cg *cg, const cy_widening *w) {
  if (w->core->ints.bits)
    emit_ints(cg, w);
  else
    emit_halves(cg, w);
}
