/* dot_fresh.c - packs a second factor that is computed at run time: i16 less its zero points, or bf16.
 *
 * Comes in: a product whose sizes and strides may be known only then. Goes out: panels in the order of dot.h, k filled
 * up with zeros to whole groups and, for AMX, tiles.
 */
#include "dot.h"

enum { ROWS_AHEAD = 16 };

static V widened(cy_cg *cg, const cy_dot_desc *d, V v, unsigned lanes) {
  LLVMTypeRef type = lanes ? LLVMVectorType(cg->i16, lanes) : cg->i16;
  if (d->b_bits == 16)
    return v;
  return d->b_signed ? LLVMBuildSExt(cg->b, v, type, "") : LLVMBuildZExt(cg->b, v, type, "");
}

/* `lanes` elements of b, or of its zero points, at element `at`. */
static V load_wide(cy_cg *cg, const cy_dot_desc *d, V p, V at, unsigned lanes) {
  LLVMTypeRef element = d->b_bits == 16 ? cg->i16 : cg->i8;
  V v = cy_load(cg, lanes ? LLVMVectorType(element, lanes) : element, cy_gep(cg, p, cy_mulc(cg, at, d->b_bits / 8)), 1);
  return widened(cg, d, v, lanes);
}

static V zeros_of(cy_cg *cg, const cy_dot_fresh *p, V col, unsigned lanes) {
  const cy_dot_desc *d = p->d;
  if (d->b_zero_slot < 0)
    return LLVMConstNull(lanes ? LLVMVectorType(cg->i16, lanes) : cg->i16);
  V at = cy_mulc(cg, col, d->b_zero_step), slot = cy_arg_ptr(cg, d->b_zero_slot);
  if (d->b_zero_step || !lanes)
    return load_wide(cg, d, slot, at, lanes);
  return cy_splat(cg, load_wide(cg, d, slot, at, 0), lanes);
}

typedef struct packer {
  const cy_dot_fresh *p;
  V src, dst;      /* of the panel's first column; of the panel */
  V col, valid, k; /* first column, columns */
  V bk, bn;
} packer;

/* Pair g of k for `lanes` columns (0: one column) from j on; the second k is absent in the last pair of an odd k. */
static void emit_pack_pair(cy_cg *cg, const packer *q, V g, V j, unsigned lanes) {
  const cy_dot_fresh *p = q->p;
  V k0 = cy_mulc(cg, g, 2), k1 = cy_addc(cg, k0, 1);
  V absent = p->k && p->k % 2 == 0 ? LLVMConstInt(cg->i1, 0, 0) : cy_icmp(cg, LLVMIntSGE, k1, q->k);
  V zeros = zeros_of(cg, p, cy_add(cg, q->col, j), lanes), v[2];
  for (int i = 0; i < 2; i++) {
    V at = cy_add(cg, cy_mul(cg, i ? cy_select(cg, absent, k0, k1) : k0, q->bk), cy_mul(cg, j, q->bn));
    v[i] = LLVMBuildSub(cg->b, load_wide(cg, p->d, q->src, at, lanes), zeros, "");
  }
  v[1] = cy_select(cg, absent, LLVMConstNull(LLVMTypeOf(v[1])), v[1]);
  V to = cy_gep(cg, q->dst, cy_mulc(cg, cy_add(cg, cy_mulc(cg, g, p->nr), j), 4));
  if (!lanes) {
    cy_store(cg, v[0], to, 2);
    cy_store(cg, v[1], cy_gepc(cg, to, 2), 2);
    return;
  }
  int mix[128];
  for (unsigned i = 0; i < lanes; i++) {
    mix[2 * i] = (int)i;
    mix[2 * i + 1] = (int)(lanes + i);
  }
  cy_store(cg, cy_shuffle(cg, v[0], v[1], mix, 2 * lanes), to, 2);
}

/* Group g of k of the columns that there are, the others being zero. */
static void emit_pack_group(cy_cg *cg, const packer *q, V g) {
  const cy_dot_fresh *p = q->p;
  int64_t unit = 0, all = 0;
  bool rows_dense = cy_is_const(q->bn, &unit) && unit == 1;
  V NR = cy_i64(cg, p->nr), from = cy_i64(cg, 0);
  cy_loop j;
  if (rows_dense && cy_is_const(q->valid, &all)) {
    unsigned lanes = p->nr % (2 * cg->W) ? cg->W : 2 * cg->W;
    for (int64_t at = 0; at < p->nr; at += lanes)
      emit_pack_pair(cg, q, g, cy_i64(cg, at), lanes);
    return;
  }
  for (unsigned lanes = 2 * cg->W; rows_dense && lanes >= cg->W; lanes /= 2) {
    V end = cy_add(cg, from, cy_mulc(cg, cy_div(cg, cy_sub(cg, q->valid, from), cy_i64(cg, lanes)), lanes));
    cy_loop_begin(cg, &j, from, end, cy_i64(cg, lanes), NULL, 0);
    emit_pack_pair(cg, q, g, j.iv, lanes);
    cy_loop_end(cg, &j, NULL);
    from = end;
  }
  cy_loop_begin(cg, &j, from, q->valid, cy_i64(cg, 1), NULL, 0);
  emit_pack_pair(cg, q, g, j.iv, 0);
  cy_loop_end(cg, &j, NULL);
  cy_loop_begin(cg, &j, q->valid, NR, cy_i64(cg, 1), NULL, 0);
  V to = cy_gep(cg, q->dst, cy_mulc(cg, cy_add(cg, cy_mulc(cg, g, p->nr), j.iv), 4));
  cy_store(cg, LLVMConstNull(cg->i32), to, 4);
  cy_loop_end(cg, &j, NULL);
}

/* Panels are packed side by side, since a cache line of b may hold columns of several. */
void cy_dot_fresh_emit(cy_cg *cg, const cy_dot_fresh *p, V matrix, V p0, V p1, V dst) {
  const cy_gemm_desc *g = &p->d->gemm;
  V groups = cy_ceil_div(cg, p->depth, cy_i64(cg, p->form.step));
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
  for (int i = 0; i < 2; i++) { /* rows of b lie too far apart for the hardware to foresee */
    V ahead = cy_mul(cg, cy_addc(cg, cy_mulc(cg, k.iv, 2), ROWS_AHEAD + i), q.bk);
    cy_prefetch(cg, cy_gep(cg, q.src, cy_mulc(cg, ahead, p->d->b_bits / 8)), false, CY_SECOND_LEVEL);
  }
  q.valid = full ? cy_i64(cg, p->nr) : cy_imin(cg, cy_i64(cg, p->nr), cy_sub(cg, p->columns, q.col));
  emit_pack_group(cg, &q, k.iv);
  cy_loop_end(cg, &t, NULL);
  cy_loop_end(cg, &k, NULL);
  if (p->form.together == 1 || (p->k && p->k % (p->form.step * p->form.together) == 0))
    return;
  cy_loop_begin(cg, &t, p0, p1, cy_i64(cg, 1), NULL, 0); /* what fills up the last tile of k */
  V filled = cy_mulc(cg, groups, cy_dot_group_bytes(p->form, p->nr)), bytes = p->panel_bytes;
  V rest = cy_gep(cg, dst, cy_add(cg, cy_mul(cg, cy_sub(cg, t.iv, p0), bytes), filled));
  V empty = cy_sub(cg, bytes, filled);
  LLVMBuildMemSet(cg->b, rest, LLVMConstNull(cg->i8), empty, 4);
  cy_loop_end(cg, &t, NULL);
}
