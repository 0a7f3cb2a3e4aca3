/* SPDX-License-Identifier: Apache-2.0 */
/* int_blocks.c - products of f32 with weights in integers, both rounded to bf16 and multiplied by AMX.
 *
 * Comes in: a cy_gemm_desc whose `ints` are to be bf16. Goes out: two phases. The first rounds the rows of a, once for
 * all tasks, with k in the order in which weights become pairs (microkernel_widen.c): rows i and i + block / 2 of a
 * block side by side, which is what a byte of 4 bits holds. A task of the second has a block of rows, which stays in
 * the second-level cache, and a group of panels. By blocks of k, it makes bf16 of the group's weights, which stay in
 * the first-level cache, and multiplies all its rows by them, onto accumulators in scratch. Phases,
 * tasks and the epilogue are those of scaled.c.
 */
#include "scaled.h"

enum {
  GROUP_COLUMNS = 64, /* a cache line of codes */
  MAX_ROWS = 512,     /* of a task: accumulators */
  TILE_K = 2 * CY_AMX_GROUPS
};

bool cy_int_gemm_blocks_possible(const cy_cg *cg, int64_t block, int64_t k) {
  return cg->amx_bf16 && k % TILE_K == 0 && block > 1 && (block % TILE_K == 0 || TILE_K % block == 0);
}

static const cy_scaled_ops ops;

static cy_scaled plan_of(const cy_cg *cg, const cy_gemm_desc *d) {
  int64_t rows = cy_csize_known(d->m), unit = d->ints.block > TILE_K ? d->ints.block : TILE_K;
  cy_tile tile = cy_int_gemm_amx_tile(rows, cy_csize_known(d->n));
  cy_scaled p = cy_scaled_plan(&ops, d, (int64_t)tile.nv * cg->W);
  p.tile = tile;
  p.nb = p.nr < GROUP_COLUMNS ? GROUP_COLUMNS / p.nr : 1;
  int64_t k_block = (int64_t)cg->model.amx_group_weights / (p.nb * p.nr * 2) / unit * unit;
  p.k_blocks = (k_block ? k_block : unit) / p.block;
  p.row_bytes = p.k * 2 + (p.k * 2 % 1024 ? 0 : 64); /* not all rows of a tile in the same sets of a cache */
  p.rows_behind = tile.mr;
  int64_t max = cy_l2_part(cg, 1, 2) / p.row_bytes;
  max = max < MAX_ROWS ? max : MAX_ROWS;
  max = rows && rows < max ? cy_round_up(rows, tile.mr) : max / tile.mr * tile.mr;
  p.mb = max ? max : tile.mr;
  p.acc_bytes = p.nb * p.nr * 4;
  p.weight_bytes = p.nb * p.nr * p.k_blocks * p.block * 2;
  return p;
}

static void round_block(cy_cg *cg, const void *plan, V from, V row, V block) {
  const cy_scaled *p = plan;
  int64_t half = p->block / 2;
  unsigned lanes = half < cg->W ? (unsigned)half : cg->W;
  V stride = cy_size(cg, p->d->ak), to = cy_gep(cg, row, cy_mulc(cg, block, p->block * 2));
  cy_loop i;
  cy_loop_begin(cg, &i, cy_i64(cg, 0), cy_i64(cg, half), cy_i64(cg, lanes), NULL, 0);
  V first = cy_gepf(cg, from, cy_mul(cg, i.iv, stride));
  V second = cy_scaled_floats(cg, cy_gepf(cg, first, cy_mulc(cg, stride, half)), stride, lanes);
  V pairs = cy_bf16_pairs(cg, cy_scaled_floats(cg, first, stride, lanes), second, lanes);
  cy_store(cg, pairs, cy_gep(cg, to, cy_mulc(cg, i.iv, 4)), 4);
  cy_loop_end(cg, &i, NULL);
}

static void multiply(cy_cg *cg, const cy_scaled_frame *f, V first, V count) {
  const cy_scaled *p = f->p;
  V k0 = cy_mulc(cg, first, p->block), c = cy_mulc(cg, count, p->block);
  cy_microkernel weights = {
      .tile = p->tile, .b = cy_arg_ptr(cg, p->d->b_slot), .ints = cy_gemm_ints(cg, p->d), .n = cy_i64(cg, p->n)};
  cy_widening w = {
      .micro = &weights, .c0 = k0, .taps = cy_i64(cg, 1), .c = c, .q0 = f->q0, .end = f->q1, .to = f->weights};
  w.prefetch_columns = cy_i64(cg, p->nb * p->nr);
  w.prefetch_rows = cy_i64(cg, 0);
  cy_widen_emit(cg, &w);
  cy_int_product product = {.variant = cy_group_kernel_of(CY_GROUP_BF16),
                            .tile = p->tile,
                            .nr = p->nr,
                            .row_bytes = p->row_bytes,
                            .ldc = p->acc_bytes,
                            .rows = f->rows,
                            .a = cy_gep(cg, f->m, cy_mulc(cg, k0, 2)),
                            .tab = f->row_table,
                            .b = f->weights,
                            .c = f->acc,
                            .onto = LLVMConstInt(cg->i1, 1, 0)};
  product.variant.amx = true;
  product.variant.together = CY_AMX_GROUPS;
  product.groups = cy_div(cg, c, cy_i64(cg, 2));
  product.panels = cy_sub(cg, f->q1, f->q0);
  cy_int_product_emit(cg, &product);
}

static const cy_scaled_ops ops = {.round = round_block, .multiply = multiply, .amx = true};

CY_PLAN_MAKE(cy_scaled)

static const char *name_of(const void *of) {
  return ((const cy_scaled *)of)->d->ints.bits == 8 ? "gemm int8 weights bf16 amx" : "gemm int4 weights bf16 amx";
}

const cy_generator cy_int_blocks_generator = {CY_SCALED_PHASES(cy_scaled_emit), .plan = plan_make, .name = name_of,
                                              .describe = cy_scaled_describe, .worker_bytes = cy_scaled_worker_bytes};
