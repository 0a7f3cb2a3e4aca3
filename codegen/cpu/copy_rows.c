/* SPDX-License-Identifier: Apache-2.0 */
/* copy_rows.c - code that copies rows of feature maps and matrices to scratch; the contract is in copy_rows.h.
 *
 * Comes in: what an element is in memory and in scratch, and where a row lies. Goes out: code at the builder's place. One
 * vector operation moves as many elements as fill a vector of scratch; the last one begins among those of the one before
 * where that spares others.
 */
#include "copy_rows.h"

typedef LLVMValueRef V;

enum { UNROLLED = 8 }; /* vectors */

cy_elements cy_elements_plain(cy_cg *cg, unsigned bytes) {
  return (cy_elements){.from = bytes, .to = bytes, .blank = LLVMConstNull(cg->i8)};
}

static LLVMTypeRef vector_of(cy_cg *cg, unsigned bytes, unsigned lanes) {
  return LLVMVectorType(LLVMIntTypeInContext(cg->ctx, 8 * bytes), lanes);
}

V cy_elements_change(cy_cg *cg, const cy_elements *e, V v, unsigned lanes) {
  if (e->to > e->from) {
    LLVMTypeRef wide = vector_of(cg, e->to, lanes);
    v = LLVMBuildBitCast(cg->b, v, vector_of(cg, e->from, lanes), "");
    v = e->is_signed ? LLVMBuildSExt(cg->b, v, wide, "") : LLVMBuildZExt(cg->b, v, wide, "");
    return LLVMBuildSub(cg->b, v, cy_splat(cg, e->minus, lanes), "");
  }
  return e->shifted ? LLVMBuildXor(cg->b, v, cy_splat(cg, LLVMConstInt(cg->i8, 0x80, 0), lanes), "") : v;
}

/* ---- runs ---- */

/* What is to be written from dst on: elements of src or, without it, such as count as zeros; n, a multiple of unit. */
typedef struct run {
  const cy_elements *e;
  V dst, src, n;
  int64_t unit;
} run;

/* A vector of them from number `at` on. */
static void emit_piece(cy_cg *cg, const run *r, V at, unsigned lanes) {
  const cy_elements *e = r->e;
  V v = r->src ? cy_load(cg, vector_of(cg, e->from, lanes), cy_gep(cg, r->src, cy_mulc(cg, at, e->from)), 1)
               : cy_splat(cg, e->blank, lanes * e->to);
  cy_store(cg, r->src ? cy_elements_change(cg, e, v, lanes) : v, cy_gep(cg, r->dst, cy_mulc(cg, at, e->to)), 1);
}

/* Numbers [0, n), the last piece beginning at `last` at most. */
static void emit_pieces(cy_cg *cg, const run *r, V n, V last, unsigned lanes) {
  cy_loop l;
  cy_loop_begin(cg, &l, cy_i64(cg, 0), n, cy_i64(cg, lanes), NULL, 0);
  emit_piece(cg, r, last ? cy_imin(cg, l.iv, last) : l.iv, lanes);
  cy_loop_end(cg, &l, NULL);
}

static void emit_known(cy_cg *cg, const run *r, int64_t n, unsigned lanes) {
  int64_t at = n > UNROLLED * lanes ? n / lanes * lanes : 0;
  if (at)
    emit_pieces(cg, r, cy_i64(cg, at), NULL, lanes);
  while (at < n) {
    while (lanes > n || lanes / 2 >= n - at)
      lanes /= 2;
    at = at + lanes > n ? n - lanes : at;
    emit_piece(cg, r, cy_i64(cg, at), lanes);
    at += lanes;
  }
}

static void emit_unknown(cy_cg *cg, const run *r, unsigned lanes) {
  if (r->unit % lanes == 0) {
    emit_pieces(cg, r, r->n, NULL, lanes);
    return;
  }
  cy_if enough;
  cy_if_begin(cg, &enough, cy_icmp(cg, LLVMIntSGE, r->n, cy_i64(cg, lanes)));
  emit_pieces(cg, r, r->n, cy_addc(cg, r->n, -(int64_t)lanes), lanes);
  cy_if_else(cg, &enough);
  emit_unknown(cg, r, lanes > 8 ? lanes / 8 : 1);
  cy_if_end(cg, &enough);
}

static void emit_run(cy_cg *cg, const run *r) {
  unsigned lanes = 4 * cg->W / r->e->to;
  int64_t n;
  if (cy_is_const(r->n, &n))
    emit_known(cg, r, n, lanes);
  else
    emit_unknown(cg, r, lanes);
}

void cy_copy_run(cy_cg *cg, const cy_elements *e, V dst, V src, V n) { emit_run(cg, &(run){e, dst, src, n, 1}); }
void cy_copy_blank(cy_cg *cg, const cy_elements *e, V dst, V n) { emit_run(cg, &(run){e, dst, NULL, n, 1}); }
void cy_fill_zero(cy_cg *cg, V dst, V n) {
  cy_elements floats = cy_elements_plain(cg, 4);
  cy_copy_blank(cg, &floats, dst, n);
}

bool cy_copy_run_over(cy_cg *cg, const cy_elements *e, V dst, V src, int64_t n, int64_t room) {
  unsigned lanes = 16;
  while (lanes < n)
    lanes *= 2;
  if (!cg->avx512 || e->to > 1 || lanes > 4 * cg->W || lanes == n || lanes > room)
    return false;
  V v = cy_load_first(cg, vector_of(cg, 1, lanes), src, (unsigned)n, 1);
  cy_store(cg, cy_elements_change(cg, e, v, lanes), dst, 1);
  return true;
}

/* ---- positions ---- */

void cy_copy_positions(cy_cg *cg, const cy_elements *e, V dst, V src, V n, int64_t c, V stride) {
  int64_t known;
  if ((cy_is_const(stride, &known) && known == c) || (cy_is_const(n, &known) && known <= 1)) {
    emit_run(cg, &(run){e, dst, src, cy_mulc(cg, n, c), c});
    return;
  }
  cy_loop l;
  cy_loop_begin(cg, &l, cy_i64(cg, 0), n, cy_i64(cg, 1), NULL, 0);
  V from = cy_gep(cg, src, cy_mulc(cg, cy_mul(cg, l.iv, stride), e->from));
  cy_copy_run(cg, e, cy_gep(cg, dst, cy_mulc(cg, l.iv, c * e->to)), from, cy_i64(cg, c));
  cy_loop_end(cg, &l, NULL);
}

/* n positions from `first` on, of which `left` lie on the left of the row, and behind them `have` in it. */
static void emit_span(cy_cg *cg, const cy_elements *e, V dst, const cy_map_row *r, V first, V n, V left, V have) {
  V end = cy_add(cg, left, have), right = cy_sub(cg, n, end), step = cy_mulc(cg, r->stride, r->inc);
  V number = cy_add(cg, first, cy_mulc(cg, left, r->inc)), to = cy_gep(cg, dst, cy_mulc(cg, left, r->c * e->to));
  V from = cy_gep(cg, r->at, cy_mulc(cg, cy_mul(cg, number, r->stride), e->from));
  emit_run(cg, &(run){e, dst, NULL, cy_mulc(cg, left, r->c), r->c});
  cy_copy_positions(cg, e, to, from, have, r->c, step);
  to = cy_gep(cg, dst, cy_mulc(cg, end, r->c * e->to));
  emit_run(cg, &(run){e, to, NULL, cy_mulc(cg, right, r->c), r->c});
}

void cy_copy_row(cy_cg *cg, const cy_elements *e, V dst, const cy_map_row *r, V first, V n) {
  V zero = cy_i64(cg, 0), inc = cy_i64(cg, r->inc);
  bool certain = cy_is_const(n, NULL), known = certain && cy_is_const(first, NULL) && cy_is_const(r->positions, NULL);
  cy_if usual; /* the borders are known, or, of a known number of positions, all lie in the row */
  if (certain && !known) {
    V last = cy_add(cg, first, cy_mulc(cg, cy_addc(cg, n, -1), r->inc)), begins = cy_icmp(cg, LLVMIntSGE, first, zero);
    V inside = LLVMBuildAnd(cg->b, begins, cy_icmp(cg, LLVMIntSLT, last, r->positions), "");
    cy_if_begin(cg, &usual, LLVMBuildAnd(cg->b, r->exists, inside, ""));
    emit_span(cg, e, dst, r, first, n, zero, n);
    cy_if_else(cg, &usual);
  }
  V before = cy_imax(cg, cy_sub(cg, zero, first), zero), room = cy_imax(cg, cy_sub(cg, r->positions, first), zero);
  V left = cy_imin(cg, cy_ceil_div(cg, before, inc), n), end = cy_imin(cg, cy_ceil_div(cg, room, inc), n);
  V have = cy_sub(cg, end, left);
  if (known) {
    cy_if_begin(cg, &usual, r->exists);
    emit_span(cg, e, dst, r, first, n, left, have);
    cy_if_else(cg, &usual);
  }
  emit_span(cg, e, dst, r, first, n, left, known ? zero : cy_select(cg, r->exists, have, zero));
  if (certain)
    cy_if_end(cg, &usual);
}
