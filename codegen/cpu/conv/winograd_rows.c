/* SPDX-License-Identifier: Apache-2.0 */
/* winograd_rows.c - F(4x4,3x3) where tiles are few and registers many: no filter's points are stored.
 *
 * Comes in: V as winograd.c makes it, packed filters. Goes out: code for M of one vector of output channels.
 * To write the 36 points of a filter and to read them again costs as much as multiplying ten tiles by them, since they
 * do not fit the first-level cache (Sapphire Rapids). Here a row of six points at a time is made in registers, from the
 * filters themselves, and multiplied by those points of up to four tiles, whose 24 accumulators stay in registers over the
 * channels of a block. The rows of points are made again for every four tiles, which is some 30 cycles more. Filters
 * and V of a block stay in the first-level cache meanwhile; those of the block behind it are prefetched.
 */
#include "winograd_int.h"

#include <stdio.h>
#include <string.h>

enum { SIDE = 6, ARGS = 8 };

static int64_t tap_bytes(const cy_cg *cg, cy_weights weights) { return (int64_t)cg->W * cy_weight_bytes(weights); }

/* Row y of a filter's points. */
static void emit_points(cy_cg *cg, cy_weights weights, int y, V filter, V out[SIDE]) {
  V columns[3], points[SIDE];
  for (int x = 0; x < 3; x++) {
    V g[3];
    for (int i = 0; i < 3; i++)
      g[i] = cy_weights_load(cg, weights, cy_gepc(cg, filter, (3 * i + x) * tap_bytes(cg, weights)));
    cy_winograd_filter(cg, g, points);
    columns[x] = points[y];
  }
  cy_winograd_filter(cg, columns, out);
}

/* The share of row y of a channel's filters that is prefetched. */
static void emit_prefetch(cy_cg *cg, cy_weights weights, int y, V filter) {
  int64_t bytes = TAPS * tap_bytes(cg, weights), lines = cy_ceil(bytes, LINE);
  for (int64_t i = lines * y / SIDE; i < lines * (y + 1) / SIDE; i++)
    cy_prefetch(cg, cy_gepc(cg, filter, i * LINE), false, CY_SECOND_LEVEL);
}

/* void (ptr v, i64 v_point, ptr filters, i64 channels, ptr m, i64 m_point, i1 accumulate, ptr ahead): row y of the
 * points of some tiles; bytes from point to point. */
static V kernel(cy_cg *cg, cy_weights weights, unsigned tiles, int y) {
  char name[60];
  snprintf(name, sizeof name, "cyk_winograd_%ux%u_row%d%s", tiles, cg->W, y, cy_weights_suffix(weights));
  V fn = cy_shared_find(cg, name);
  if (fn)
    return fn;
  cy_fn_state state = cy_fn_save(cg);
  const LLVMTypeRef params[ARGS] = {cg->ptr, cg->i64, cg->ptr, cg->i64, cg->ptr, cg->i64, cg->i1, cg->ptr};
  fn = cy_fn_begin(cg, name, cg->voidt, params, ARGS, CY_FN_SHARED | CY_FN_NOINLINE | CY_FN_NOALIAS);
  V arg[ARGS], acc[CY_LOOP_MAX], point[SIDE];
  for (unsigned i = 0; i < ARGS; i++)
    arg[i] = LLVMGetParam(fn, i);
  int64_t filter = TAPS * tap_bytes(cg, weights);
  cy_loop c;
  cy_accumulators_begin(cg, SIDE, tiles, arg[4], arg[5], arg[6], acc);
  cy_loop_begin(cg, &c, cy_i64(cg, 0), arg[3], cy_i64(cg, 1), acc, SIDE * tiles);
  emit_points(cg, weights, y, cy_gep(cg, arg[2], cy_mulc(cg, c.iv, filter)), point);
  for (unsigned x = 0; x < SIDE; x++)
    for (unsigned t = 0; t < tiles; t++) {
      V at = cy_gepf(cg, cy_gepc(cg, cy_gep(cg, arg[0], cy_mulc(cg, arg[1], x)), t * CY_ROWS_CHANNELS * 4), c.iv);
      V a = cy_splat(cg, cy_load(cg, cg->f32, at, 4), cg->W);
      acc[x * tiles + t] = cy_fma(cg, a, point[x], c.v[x * tiles + t]);
    }
  emit_prefetch(cg, weights, y, cy_gep(cg, arg[7], cy_mulc(cg, c.iv, filter)));
  cy_loop_end(cg, &c, acc);
  cy_accumulators_store(cg, SIDE, tiles, arg[4], arg[5], c.out);
  cy_fn_end(cg, NULL);
  cy_fn_restore(cg, state);
  return fn;
}

void cy_winograd_rows_emit(cy_cg *cg, const cy_winograd_rows *p) {
  unsigned parts = (unsigned)cy_ceil(p->tiles, CY_ROWS_TILES);
  for (int y = 0; y < SIDE; y++)
    for (unsigned i = 0, first = 0; i < parts; i++) {
      unsigned end = (unsigned)p->tiles * (i + 1) / parts, tiles = end - first;
      V args[ARGS] = {cy_gepc(cg, p->v, y * SIDE * p->v_point + first * CY_ROWS_CHANNELS * 4),
                      cy_i64(cg, p->v_point),
                      p->filters,
                      p->channels,
                      cy_gepc(cg, p->m, y * SIDE * p->m_point + first * (int64_t)cg->W * 4),
                      cy_i64(cg, p->m_point),
                      p->accumulate,
                      p->prefetch};
      cy_call(cg, kernel(cg, p->weights, tiles, y), args, ARGS);
      first = end;
    }
}
