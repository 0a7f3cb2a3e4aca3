/* SPDX-License-Identifier: Apache-2.0 */
/* int_pack_b.c - packs a second factor that is computed at run time: by dot4 as s8, else as i16 less its zero points,
 * or bf16.
 *
 * Comes in: a product whose sizes and strides may be known only then. Goes out: panels in the order of int_gemm.h, k
 * filled up with zeros to whole groups and, for AMX, tiles; for dot4, what zero points take away: that of a times the
 * sum of a column, those of b times the sum of a row.
 */
#include "int_gemm.h"

enum { ROWS_PREFETCH = 16 };

/* `lanes` elements of b, or of its zero points, at element `at`; 0: one, no vector. by dot4, as s8: less 128 if they
 * are not signed; otherwise as i16. */
static V load_element(cy_cg *cg, const cy_int_pack_b *p, V from, V at, unsigned lanes) {
  const cy_int_gemm_desc *d = p->d;
  LLVMTypeRef element = d->b_bits == 16 ? cg->i16 : cg->i8, wide = lanes ? LLVMVectorType(cg->i16, lanes) : cg->i16;
  LLVMTypeRef type = lanes ? LLVMVectorType(element, lanes) : element;
  V v = cy_load(cg, type, cy_gep(cg, from, cy_mulc(cg, at, d->b_bits / 8)), 1);
  if (d->b_bits == 16 || (p->variant.dot4 && d->b_signed))
    return v;
  V shift = LLVMConstInt(cg->i8, 0x80, 0);
  if (p->variant.dot4)
    return LLVMBuildXor(cg->b, v, lanes ? cy_splat(cg, shift, lanes) : shift, "");
  return d->b_signed ? LLVMBuildSExt(cg->b, v, wide, "") : LLVMBuildZExt(cg->b, v, wide, "");
}

/* Zero points of b as load_element() has them; where there are none, what stands for 0. */
static V zeros_of(cy_cg *cg, const cy_int_pack_b *p, V col, unsigned lanes) {
  const cy_int_gemm_desc *d = p->d;
  if (d->b_zero_slot < 0) {
    V zero = LLVMConstInt(cg->i8, d->b_signed ? 0 : 0x80, 0);
    return lanes ? cy_splat(cg, zero, lanes) : zero;
  }
  V at = cy_mulc(cg, col, d->b_zero_step), slot = cy_arg_ptr(cg, d->b_zero_slot);
  if (d->b_zero_step || !lanes)
    return load_element(cg, p, slot, at, lanes);
  return cy_splat(cg, load_element(cg, p, slot, at, 0), lanes);
}

typedef struct packer {
  const cy_int_pack_b *p;
  V src, dst;      /* of the panel's first column; of the panel */
  V col, valid, k; /* first column, columns */
  V bk, bn;
} packer;

/* Group g of k for `lanes` columns (0: one column) from j on; of the last group some k may be absent. */
static void emit_pack_columns(cy_cg *cg, const packer *q, V g, V j, unsigned lanes) {
  const cy_int_pack_b *p = q->p;
  const unsigned step = p->variant.step, size = p->variant.dot4 ? 1 : 2;
  V first = cy_mulc(cg, g, step), v[4] = {NULL}, last = cy_addc(cg, q->k, -1);
  for (unsigned i = 0; i < step; i++) {
    V k = cy_addc(cg, first, i), there = NULL;
    if (!p->k || p->k % step) {
      there = cy_icmp(cg, LLVMIntSLE, k, last);
      k = cy_imin(cg, k, last);
    }
    V at = cy_mul(cg, k, q->bk);
    v[i] = load_element(cg, p, q->src, cy_add(cg, at, cy_mul(cg, j, q->bn)), lanes);
    if (!p->variant.dot4 && p->d->b_zero_slot >= 0)
      v[i] = LLVMBuildSub(cg->b, v[i], zeros_of(cg, p, cy_add(cg, q->col, j), lanes), "");
    if (there)
      v[i] = cy_select(cg, there, v[i], LLVMConstNull(LLVMTypeOf(v[i])));
  }
  V to = cy_gep(cg, q->dst, cy_mulc(cg, cy_add(cg, cy_mulc(cg, g, p->nr), j), 4));
  if (!lanes) {
    for (unsigned i = 0; i < step; i++)
      cy_store(cg, v[i], cy_gepc(cg, to, i * size), size);
    return;
  }
  if (step == 4) {
    v[0] = cy_interleaved(cg, v[0], v[2]);
    v[1] = cy_interleaved(cg, v[1], v[3]);
  }
  cy_store(cg, cy_interleaved(cg, v[0], v[1]), to, size);
}

/* Group g of k of the columns that there are, the others being zero. */
static void emit_pack_group(cy_cg *cg, const packer *q, V g) {
  const cy_int_pack_b *p = q->p;
  int64_t unit = 0, all = 0;
  bool rows_dense = cy_is_const(q->bn, &unit) && unit == 1;
  V NR = cy_i64(cg, p->nr), from = cy_i64(cg, 0);
  const unsigned max = p->variant.dot4 ? cg->W : 2 * cg->W;
  cy_loop j;
  if (rows_dense && cy_is_const(q->valid, &all)) {
    unsigned lanes = p->nr % max ? cg->W : max;
    for (int64_t at = 0; at < p->nr; at += lanes)
      emit_pack_columns(cg, q, g, cy_i64(cg, at), lanes);
    return;
  }
  for (unsigned lanes = max; rows_dense && lanes >= cg->W; lanes /= 2) {
    V end = cy_add(cg, from, cy_mulc(cg, cy_div(cg, cy_sub(cg, q->valid, from), cy_i64(cg, lanes)), lanes));
    cy_loop_begin(cg, &j, from, end, cy_i64(cg, lanes), NULL, 0);
    emit_pack_columns(cg, q, g, j.iv, lanes);
    cy_loop_end(cg, &j, NULL);
    from = end;
  }
  cy_loop_begin(cg, &j, from, q->valid, cy_i64(cg, 1), NULL, 0);
  emit_pack_columns(cg, q, g, j.iv, 0);
  cy_loop_end(cg, &j, NULL);
  cy_loop_begin(cg, &j, q->valid, NR, cy_i64(cg, 1), NULL, 0);
  V to = cy_gep(cg, q->dst, cy_mulc(cg, cy_add(cg, cy_mulc(cg, g, p->nr), j.iv), 4));
  cy_store(cg, LLVMConstNull(cg->i32), to, 4);
  cy_loop_end(cg, &j, NULL);
}

/* Panels are packed side by side, since a cache line of b may hold columns of several. */
void cy_int_pack_b_emit(cy_cg *cg, const cy_int_pack_b *p, V matrix, V p0, V p1, V dst) {
  const cy_gemm_desc *g = &p->d->gemm;
  V groups = cy_ceil_div(cg, p->depth, cy_i64(cg, p->variant.step));
  bool full = p->n && p->n % p->nr == 0;
  packer q = {.p = p, .k = p->depth, .bk = cy_size(cg, g->bk), .bn = cy_size(cg, g->bn)};
  V from = cy_gemm_b_offset(cg, g, matrix);
  cy_loop k, t;
  cy_loop_begin(cg, &k, cy_i64(cg, 0), groups, cy_i64(cg, 1), NULL, 0);
  cy_loop_begin(cg, &t, p0, p1, cy_i64(cg, 1), NULL, 0);
  q.col = cy_mulc(cg, t.iv, p->nr);
  V at = cy_add(cg, from, cy_mul(cg, q.col, q.bn));
  q.src = cy_gep(cg, cy_arg_ptr(cg, p->b_slot), cy_mulc(cg, at, p->d->b_bits / 8));
  q.dst = cy_gep(cg, dst, cy_mul(cg, cy_sub(cg, t.iv, p0), p->panel_bytes));
  for (unsigned i = 0; i < p->variant.step; i++) { /* rows of b lie too far apart for the hardware to foresee */
    V prefetch = cy_mul(cg, cy_addc(cg, cy_mulc(cg, k.iv, p->variant.step), ROWS_PREFETCH + i), q.bk);
    cy_prefetch(cg, cy_gep(cg, q.src, cy_mulc(cg, prefetch, p->d->b_bits / 8)), false, CY_SECOND_LEVEL);
  }
  q.valid = full ? cy_i64(cg, p->nr) : cy_imin(cg, cy_i64(cg, p->nr), cy_sub(cg, p->columns, q.col));
  emit_pack_group(cg, &q, k.iv);
  cy_loop_end(cg, &t, NULL);
  cy_loop_end(cg, &k, NULL);
  if (p->variant.together == 1 || (p->k && p->k % (p->variant.step * p->variant.together) == 0))
    return;
  cy_loop_begin(cg, &t, p0, p1, cy_i64(cg, 1), NULL, 0); /* what fills up the last tile of k */
  V filled = cy_mulc(cg, groups, cy_int_gemm_group_bytes(p->variant, p->nr)), bytes = p->panel_bytes;
  V rest = cy_gep(cg, dst, cy_add(cg, cy_mul(cg, cy_sub(cg, t.iv, p0), bytes), filled));
  V empty = cy_sub(cg, bytes, filled);
  LLVMBuildMemSet(cg->b, rest, LLVMConstNull(cg->i8), empty, 4);
  cy_loop_end(cg, &t, NULL);
}

/* ---- dot4: what zero points take away ---- */

static V ones(cy_cg *cg) { return cy_splat(cg, cy_i32(cg, 0x01010101), cg->W); }

void cy_int_pack_b_sums(cy_cg *cg, const cy_int_pack_b *p, V p0, V p1, V panels, V sums) {
  const int64_t nv = p->nr / cg->W, vector = cy_int_gemm_group_bytes(p->variant, cg->W);
  V groups = cy_ceil_div(cg, p->depth, cy_i64(cg, p->variant.step)), v[CY_LOOP_MAX], first = ones(cg);
  cy_loop t, k;
  cy_loop_begin(cg, &t, cy_i64(cg, 0), cy_sub(cg, p1, p0), cy_i64(cg, 1), NULL, 0);
  V panel = cy_gep(cg, panels, cy_mul(cg, t.iv, p->panel_bytes)), to = cy_gep(cg, sums, cy_mulc(cg, t.iv, p->nr * 4));
  for (int64_t j = 0; j < nv; j++)
    v[j] = LLVMConstNull(cg->vi);
  cy_loop_begin(cg, &k, cy_i64(cg, 0), groups, cy_i64(cg, 1), v, (unsigned)nv);
  V group = cy_gep(cg, panel, cy_mulc(cg, k.iv, cy_int_gemm_group_bytes(p->variant, p->nr)));
  for (int64_t j = 0; j < nv; j++)
    v[j] = cy_int_gemm_add(cg, p->variant, k.v[j], first, cy_load(cg, cg->vi, cy_gepc(cg, group, j * vector), 4));
  cy_loop_end(cg, &k, v);
  for (int64_t j = 0; j < nv; j++)
    cy_store(cg, k.out[j], cy_gepc(cg, to, j * cg->W * 4), 4);
  cy_loop_end(cg, &t, NULL);
}

/* The sum of a row's bytes [*from, to), as far as there are whole vectors; *from: where these end. */
static V sum_vectors(cy_cg *cg, const cy_int_pack_b *p, V row, V *from, V to) {
  const int64_t bytes = (int64_t)cg->W * 4;
  V sum = LLVMConstNull(cg->vi), end = cy_mulc(cg, cy_div(cg, to, cy_i64(cg, bytes)), bytes);
  cy_loop k;
  cy_loop_begin(cg, &k, *from, end, cy_i64(cg, bytes), &sum, 1);
  V some = cy_load(cg, cg->vi, cy_gep(cg, row, k.iv), 1);
  sum = cy_int_gemm_add(cg, p->variant, k.v[0], some, ones(cg));
  cy_loop_end(cg, &k, &sum);
  *from = end;
  return cy_lanes_sum(cg, k.out[0]);
}

void cy_int_pack_b_rows(cy_cg *cg, const cy_int_pack_b *p, V zero, V rows, V row_bytes, V count, V sums) {
  V one = cy_int_gemm_widened(cg, zero),
    none = LLVMBuildMul(cg->b, one, LLVMBuildTrunc(cg->b, p->depth, cg->i32, ""), "");
  cy_loop r, k;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), count, cy_i64(cg, 1), NULL, 0);
  V row = cy_gep(cg, rows, cy_mul(cg, r.iv, row_bytes)), at = cy_i64(cg, 0);
  V sum = LLVMBuildSub(cg->b, sum_vectors(cg, p, row, &at, p->depth), none, "");
  cy_loop_begin(cg, &k, at, p->depth, cy_i64(cg, 1), &sum, 1);
  V element = cy_int_gemm_widened(cg, cy_load(cg, cg->i8, cy_gep(cg, row, k.iv), 1));
  sum = LLVMBuildAdd(cg->b, k.v[0], element, "");
  cy_loop_end(cg, &k, &sum);
  cy_store(cg, k.out[0], cy_gep(cg, sums, cy_mulc(cg, r.iv, 4)), 4);
  cy_loop_end(cg, &r, NULL);
}

V cy_int_pack_b_less(cy_cg *cg, const cy_int_pack_b *p, V sums, V row_sum, V col, unsigned lanes) {
  LLVMTypeRef type = LLVMVectorType(cg->i32, lanes);
  V row = cy_splat(cg, cy_load(cg, cg->i32, row_sum, 4), lanes);
  V zeros = LLVMBuildSExt(cg->b, zeros_of(cg, p, col, lanes), type, "");
  return LLVMBuildSub(cg->b, sums, LLVMBuildMul(cg->b, zeros, row, ""), "");
}
