/* SPDX-License-Identifier: Apache-2.0 */
/* int_inline.c - products of bytes whose sums go through the epilogue from registers.
 *
 * Comes in: rows of a in scratch, packed panels of b. Goes out: code in line, for a tile of rows and some panels; what
 * int_kernel.c's functions do, but that sums are not stored, loaded again and waited for. Where k is short this is much
 * of the time. The code is per kernel then, and mr times as long in the epilogue: only for epilogues that are short, and
 * with AVX-512, whose registers have room for both.
 */
#include "int_gemm.h"

/* Measured on Zen 5. A short epilogue: behind more of k storing sums costs nothing, except where few columns share a
 * call. A long one takes so much code that there must be many rows, and much time of its own. */
enum { SHORT_STEPS = 20, MAX_DEPTH = 256, NARROW_DEPTH = 1280, LONG_DEPTH = 128, LONG_ROWS = 8192 };

bool cy_int_gemm_inline_pays(const cy_cg *cg, cy_int_gemm_variant variant, int64_t rows, int64_t n, int64_t k,
                             const cy_epilogue *e) {
  int64_t max = e->steps > SHORT_STEPS    ? (rows >= LONG_ROWS ? LONG_DEPTH : 0)
                 : n <= 2 * (int64_t)cg->W ? NARROW_DEPTH
                                           : MAX_DEPTH;
  return cy_form_on(cg, CY_FORM_INT_INLINE) && cg->model.int_inline && variant.dot4 && !variant.amx && !variant.split &&
         n && k && k <= max;
}

/* Lanes [0, lanes) of `count` vectors one behind the other. */
static V joined(cy_cg *cg, const V *v, unsigned count, unsigned lanes) {
  V all = count == 1 ? v[0] : cy_joined(cg, v[0], v[1]);
  if (count == 4)
    all = cy_joined(cg, all, cy_joined(cg, v[2], v[3]));
  return lanes < count * cg->W ? cy_some_lanes(cg, all, 0, lanes) : all;
}

/* Rows [i, i + together) of the tile: v has the sums of all, of columns from col on; lanes: there are. */
static void emit_rows(cy_cg *cg, const cy_int_gemm_inline *t, unsigned i, V col, unsigned nv, unsigned lanes,
                      const V *v) {
  unsigned column = t->index->n_idx, each = cy_int_gemm_each(t->variant), vectors = nv * t->together / each;
  V idx[16];
  t->index->index(t->index->ctx, cg, cy_addc(cg, t->row0, i), idx);
  if (vectors == 0) { /* rows share one */
    idx[column] = col;
    t->epilogue->emit(t->epilogue->ctx, cg, cy_int_lane_reduce_row(cg, each, v, i, lanes), lanes, idx);
  }
  v += i * nv / each;
  for (unsigned j = 0, n; j < vectors; j += n) {
    n = vectors - j >= 4 ? 4 : vectors - j >= 2 ? 2 : 1;
    unsigned there = t->together > 1 || lanes >= (j + n) * cg->W ? n * cg->W : lanes - j * cg->W;
    idx[column] = cy_addc(cg, col, j * cg->W);
    t->epilogue->emit(t->epilogue->ctx, cg, joined(cg, v + j, n, there), there, idx);
  }
}

/* A panel of nv vectors, of which `lanes` columns are there. */
static void emit_panel(cy_cg *cg, const cy_int_gemm_inline *t, const V *row, V q, unsigned nv, unsigned lanes) {
  V v[CY_LOOP_MAX], col = cy_mulc(cg, q, t->nr), before = cy_mulc(cg, q, t->panel_bytes);
  V start = cy_gep(cg, t->start, cy_mulc(cg, col, 4));
  cy_int_gemm_depth depth = t->depth;
  if (t->variant.shuffled) {
    before = cy_mulc(cg, cy_int_gemm_tables_before(cg, &t->tables, q), cy_int_gemm_group_bytes(t->variant, t->nr));
    depth = cy_int_gemm_tables_depth(cg, &t->tables, q);
  }
  V b = cy_gep(cg, t->b, before);
  cy_int_gemm_accumulate(cg, t->variant, t->tile.mr, nv, lanes < t->nr ? t->last : t->nr, row, b, start, &depth, v);
  for (unsigned i = 0; i < t->tile.mr; i += t->together) {
    cy_if s;
    if (!t->full)
      cy_if_begin(cg, &s, cy_icmp(cg, LLVMIntSLT, cy_i64(cg, i), t->rows));
    emit_rows(cg, t, i, cy_add(cg, t->col0, col), nv, lanes, v);
    if (!t->full)
      cy_if_end(cg, &s);
  }
}

void cy_int_gemm_inline_emit(cy_cg *cg, const cy_int_gemm_inline *t, V q0, V end) {
  unsigned rest = (unsigned)(t->n % t->nr);
  V row[16], full = cy_i64(cg, t->n / t->nr);
  for (unsigned i = 0; i < t->tile.mr; i++) /* see cy_int_gemm_kernel */
    row[i] = cy_gep(cg, t->a, cy_load(cg, cg->i64, cy_gepc(cg, t->row_table, 8 * i), 8));
  cy_loop q;
  cy_loop_begin(cg, &q, q0, rest ? cy_imin(cg, end, full) : end, cy_i64(cg, 1), NULL, 0);
  emit_panel(cg, t, row, q.iv, t->tile.nv, (unsigned)t->nr);
  cy_loop_end(cg, &q, NULL);
  if (!rest)
    return;
  cy_if s;
  cy_if_begin(cg, &s, cy_icmp(cg, LLVMIntSGT, end, full));
  emit_panel(cg, t, row, full, (unsigned)cy_ceil(rest, cg->W), rest);
  cy_if_end(cg, &s);
}
