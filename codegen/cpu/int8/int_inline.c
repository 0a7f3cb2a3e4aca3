/* SPDX-License-Identifier: Apache-2.0 */
/* int_inline.c - products of bytes whose accumulators go through the epilogue from registers.
 *
 * Comes in: rows of a in scratch, packed panels of b. Goes out: code in line, for a tile of rows and some panels; what
 * int_kernel.c's functions do, but that accumulators are not stored, loaded again and waited for. Where k is short this is much
 * of the time. The code is per kernel then, and mr times as long in the epilogue: only for epilogues that are short, and
 * with AVX-512, whose registers have room for both.
 */
#include "int_gemm_int.h"

typedef cy_int_gemm_plan plan;
typedef cy_int_gemm_frame frame;

/* Measured on Zen 5. A short epilogue: behind more of k storing accumulators costs nothing, except where few columns share a
 * call. A long one takes so much code that there must be many rows, and much time of its own. */
enum { SHORT_STEPS = 20, MAX_DEPTH = 256, NARROW_DEPTH = 1280, LONG_DEPTH = 128, LONG_ROWS = 8192 };

bool cy_int_gemm_inline_pays(const cy_cg *cg, const plan *p) {
  const cy_epilogue *e = cy_int_gemm_epilogue(p);
  int64_t max = e->steps > SHORT_STEPS       ? (p->rows >= LONG_ROWS ? LONG_DEPTH : 0)
                : p->n <= 2 * (int64_t)cg->W ? NARROW_DEPTH
                                             : MAX_DEPTH;
  return cy_form_on(cg, CY_FORM_INT_INLINE) && cg->model.int_inline && p->variant.dot4 && !p->variant.amx &&
         !p->variant.split && p->packed && p->d->b_zero_slot < 0 && p->n && p->k && p->k <= max;
}

/* Of a tile. */
typedef struct work {
  const frame *f;
  const cy_int_gemm_tile *t;
  const cy_rows *index;
  unsigned together; /* so many rows go at once; 1: each of its own */
  bool full;         /* there are always mr of them */
  V row[16];
} work;

/* Lanes [0, lanes) of `count` vectors one behind the other. */
static V joined(cy_cg *cg, const V *v, unsigned count, unsigned lanes) {
  V all = count == 1 ? v[0] : cy_joined(cg, v[0], v[1]);
  if (count == 4)
    all = cy_joined(cg, all, cy_joined(cg, v[2], v[3]));
  return lanes < count * cg->W ? cy_some_lanes(cg, all, 0, lanes) : all;
}

/* Rows [i, i + together) of the tile: v has the accumulators of all, of columns from col on; lanes: there are. */
static void emit_rows(cy_cg *cg, const work *w, unsigned i, V col, unsigned nv, unsigned lanes, const V *v) {
  const cy_epilogue *e = cy_int_gemm_epilogue(w->f->p);
  unsigned column = w->index->n_idx, each = cy_int_gemm_each(w->f->p->variant), vectors = nv * w->together / each;
  V idx[16];
  w->index->index(w->index->ctx, cg, cy_addc(cg, w->t->row0, i), idx);
  if (vectors == 0) { /* rows share one */
    idx[column] = col;
    e->emit(e->ctx, cg, cy_int_lane_reduce_row(cg, each, v, i, lanes), lanes, idx);
  }
  v += i * nv / each;
  for (unsigned j = 0, n; j < vectors; j += n) {
    n = vectors - j >= 4 ? 4 : vectors - j >= 2 ? 2 : 1;
    unsigned there = w->together > 1 || lanes >= (j + n) * cg->W ? n * cg->W : lanes - j * cg->W;
    idx[column] = cy_addc(cg, col, j * cg->W);
    e->emit(e->ctx, cg, joined(cg, v + j, n, there), there, idx);
  }
}

/* A panel of nv vectors, of which `lanes` columns are there. */
static void emit_panel(cy_cg *cg, const work *w, V q, unsigned nv, unsigned lanes) {
  const frame *f = w->f;
  const plan *p = f->p;
  V v[CY_LOOP_MAX], col = cy_mulc(cg, q, p->nr), b = cy_gep(cg, f->b, cy_int_gemm_bytes_before(cg, f, q));
  cy_int_gemm_depth depth = p->variant.shuffled ? cy_int_gemm_tables_depth(cg, &f->tables, q) : cy_int_gemm_depth_of(cg, p);
  cy_int_gemm_accumulate(cg, p->variant, p->tile.mr, nv, lanes < p->nr ? p->last : p->nr, w->row, b,
                         cy_int_gemm_start(cg, f, q), &depth, v);
  for (unsigned i = 0; i < p->tile.mr; i += w->together) {
    cy_if s;
    if (!w->full)
      cy_if_begin(cg, &s, cy_icmp(cg, LLVMIntSLT, cy_i64(cg, i), w->t->rows));
    emit_rows(cg, w, i, cy_add(cg, f->col0, col), nv, lanes, v);
    if (!w->full)
      cy_if_end(cg, &s);
  }
}

/* Can tiles, the last one, too, be cut into so many rows each? */
static bool fits_tiles(const plan *p, unsigned rows) {
  return rows && p->rows && p->rows % rows == 0 && p->tile.mr % rows == 0;
}

void cy_int_gemm_inline_emit(cy_cg *cg, const frame *f, const cy_int_gemm_tile *t, const cy_rows *index,
                             unsigned together, V q0, V end) {
  const plan *p = f->p;
  unsigned rest = (unsigned)(p->n % p->nr);
  work w = {f, t, index, fits_tiles(p, together) ? together : 1, p->rows && p->rows % p->tile.mr == 0, {NULL}};
  V full = cy_i64(cg, p->n / p->nr);
  for (unsigned i = 0; i < p->tile.mr; i++) /* see cy_int_gemm_kernel */
    w.row[i] = cy_gep(cg, t->a, cy_load(cg, cg->i64, cy_gepc(cg, t->table, 8 * i), 8));
  cy_loop q;
  cy_loop_begin(cg, &q, q0, rest ? cy_imin(cg, end, full) : end, cy_i64(cg, 1), NULL, 0);
  emit_panel(cg, &w, q.iv, p->tile.nv, (unsigned)p->nr);
  cy_loop_end(cg, &q, NULL);
  if (!rest)
    return;
  cy_if s;
  cy_if_begin(cg, &s, cy_icmp(cg, LLVMIntSGT, end, full));
  emit_panel(cg, &w, full, (unsigned)cy_ceil(rest, cg->W), rest);
  cy_if_end(cg, &s);
}
