/* SPDX-License-Identifier: Apache-2.0 */
/* scaled.c - products of f32 with weights in integers with scales, block by block of k: phases, tasks and rows of all of them.
 *
 * Comes in: a plan that begins with a cy_scaled. Goes out: two phases. The first rounds the rows of a, once for all tasks, by
 * the blocks that weights have. A task of the second has a block of rows and a group of panels of columns; by some blocks of k,
 * the generator multiplies all its rows by the weights of each panel, onto accumulators in scratch, which an epilogue takes at the end.
 * Tasks of the same rows that follow each other may be done as one, block by block of k, so that weights are read in the
 * order they lie in.
 */
#include "scaled.h"

#include <stdio.h>

cy_scaled cy_scaled_plan(const cy_scaled_ops *ops, const cy_gemm_desc *d, int64_t nr) {
  cy_scaled p = {.ops = ops,
                 .d = d,
                 .n = cy_csize_known(d->n),
                 .k = cy_csize_known(d->k),
                 .block = d->ints.block,
                 .bytes = d->ints.block * d->ints.bits / 8,
                 .nr = nr,
                 .unit = 1,
                 .run = 1,
                 .k_blocks = 1};
  p.count = p.share = p.k / p.block;
  p.panels = cy_ceil(p.n, nr);
  return p;
}

/* ---- sizes ---- */

static V all_rows(cy_cg *cg, const cy_scaled *p) {
  return cy_mul(cg, cy_batch_count(cg, p->d->batch, p->d->n_batch), cy_size(cg, p->d->m));
}

/* Blocks of k of a row. */
cy_task_grid cy_scaled_round_grid(cy_cg *cg, const void *plan) {
  const cy_scaled *p = plan;
  return (cy_task_grid){.products = all_rows(cg, p), .columns = cy_axis_pieces(cg, cy_i64(cg, p->count), p->share)};
}
cy_task_grid cy_scaled_grid(cy_cg *cg, const void *plan) {
  const cy_scaled *p = plan;
  return (cy_task_grid){.products = cy_batch_count(cg, p->d->batch, p->d->n_batch),
                        .rows = cy_axis_shares(cg, cy_size(cg, p->d->m), p->tile.mr, p->mb),
                        .columns = cy_axis_shares(cg, cy_i64(cg, p->panels), p->unit, p->nb),
                        .run = p->run};
}
V cy_scaled_shared_bytes(cy_cg *cg, const void *plan) {
  const cy_scaled *p = plan;
  return cy_mulc(cg, cy_addc(cg, all_rows(cg, p), p->rows_behind), p->row_bytes);
}
V cy_scaled_worker_bytes(cy_cg *cg, const void *plan) {
  const cy_scaled *p = plan;
  return cy_i64(cg, p->weight_bytes + p->mb * p->acc_bytes);
}

/* ---- rows of a ---- */

V cy_scaled_floats(cy_cg *cg, V from, V stride, unsigned lanes) {
  int64_t dense;
  LLVMTypeRef type = LLVMVectorType(cg->f32, lanes);
  if (cy_is_const(stride, &dense) && dense == 1)
    return cy_load(cg, type, from, 4);
  V v = LLVMGetPoison(type);
  for (unsigned i = 0; i < lanes; i++) {
    V one = cy_load(cg, cg->f32, cy_gepf(cg, from, cy_mulc(cg, stride, i)), 4);
    v = LLVMBuildInsertElement(cg->b, v, one, cy_i32(cg, (int32_t)i), "");
  }
  return v;
}

unsigned cy_scaled_lanes(const cy_cg *cg, const cy_scaled *p) {
  return p->block % cg->W == 0 ? cg->W : p->block % 8 == 0 ? 8 : 4;
}

/* Bits of magnitudes compare like floats do, and NaN is above all. */
V cy_scaled_largest(cy_cg *cg, const cy_scaled *p, V from, unsigned lanes) {
  LLVMTypeRef type = LLVMVectorType(cg->i32, lanes);
  V max = LLVMConstNull(type), mask = cy_splat(cg, cy_i32(cg, INT32_MAX), lanes), stride = cy_size(cg, p->d->ak);
  cy_loop i;
  cy_loop_begin(cg, &i, cy_i64(cg, 0), cy_i64(cg, p->block), cy_i64(cg, lanes), &max, 1);
  V x = cy_scaled_floats(cg, cy_gepf(cg, from, cy_mul(cg, i.iv, stride)), stride, lanes);
  V args[2] = {i.v[0], LLVMBuildAnd(cg->b, LLVMBuildBitCast(cg->b, x, type, ""), mask, "")};
  max = cy_intrinsic(cg, "llvm.smax", type, args, 2);
  cy_loop_end(cg, &i, &max);
  max = cy_intrinsic(cg, "llvm.vector.reduce.smax", type, &i.out[0], 1);
  return LLVMBuildBitCast(cg->b, max, cg->f32, "");
}

/* A row, counted over all matrices. */
static V rounded_at(cy_cg *cg, const cy_scaled *p, V row) {
  return cy_gep(cg, cy_arg_ptr(cg, p->d->shared_slot), cy_mulc(cg, row, p->row_bytes));
}

void cy_scaled_round(cy_cg *cg, void *plan, const cy_task *t) {
  const cy_scaled *p = plan;
  const cy_gemm_desc *d = p->d;
  V idx[CY_GEMM_BATCH], m = cy_size(cg, d->m), row = t->product;
  cy_loop b;
  cy_batch_split(cg, d->batch, d->n_batch, cy_div(cg, row, m), idx);
  V a = cy_gepf(cg, cy_arg_ptr(cg, d->a_slot), cy_batch_offset(cg, idx, d->a_batch, d->n_batch));
  a = cy_gepf(cg, a, cy_mul(cg, cy_mod(cg, row, m), cy_size(cg, d->am)));
  cy_loop_begin(cg, &b, t->columns.begin, t->columns.end, cy_i64(cg, 1), NULL, 0);
  V at = cy_mul(cg, cy_mulc(cg, b.iv, p->block), cy_size(cg, d->ak));
  V to = rounded_at(cg, p, row);
  p->ops->round(cg, plan, cy_gepf(cg, a, at), to, b.iv);
  cy_loop_end(cg, &b, NULL);
}

/* ---- weights ---- */

cy_scaled_place cy_scaled_place_of(cy_cg *cg, const cy_gemm_desc *d, V block, V col) {
  int64_t bytes = d->ints.block * d->ints.bits / 8, n = cy_csize_known(d->n);
  V tile = cy_i64(cg, d->ints.tile), before = cy_mul(cg, cy_div(cg, col, tile), cy_mulc(cg, tile, bytes));
  V at = cy_add(cg, cy_add(cg, cy_mulc(cg, block, bytes * n), before), cy_mod(cg, col, tile));
  V number = cy_add(cg, cy_mulc(cg, block, n), col);
  cy_scaled_place to = {.codes = cy_gep(cg, cy_arg_ptr(cg, d->b_slot), at)};
  to.scales = cy_gepf(cg, cy_arg_ptr(cg, d->ints.scale_slot), number);
  if (d->ints.zero_slot >= 0)
    to.zeros = cy_gep(cg, cy_arg_ptr(cg, d->ints.zero_slot), number);
  return to;
}

cy_scaled_place cy_scaled_behind(cy_cg *cg, cy_scaled_place at, V bytes, V columns) {
  cy_scaled_place to = {.codes = cy_gep(cg, at.codes, bytes)};
  to.scales = cy_gepf(cg, at.scales, columns);
  to.zeros = at.zeros ? cy_gep(cg, at.zeros, columns) : NULL;
  return to;
}

void cy_scaled_interleave(cy_cg *cg, const V line[4], unsigned first, unsigned n, V *out) {
  for (unsigned i = first / 2; 2 * i < first + n; i++, out += 2) {
    V low = cy_unpacked(cg, line[0], line[1], 1, i), high = cy_unpacked(cg, line[2], line[3], 1, i);
    out[0] = cy_unpacked(cg, low, high, 2, false);
    out[1] = cy_unpacked(cg, low, high, 2, true);
  }
}

V cy_scaled_interleaved_scales(cy_cg *cg, V scales, unsigned i) {
  unsigned count = cg->W / 4;
  V part[4];
  for (unsigned lane = 0; lane < count; lane++)
    part[lane] = cy_load(cg, cy_vecf(cg, 4), cy_gepc(cg, scales, (16 * lane + 4 * i) * 4), 4);
  for (; count > 1; count /= 2)
    for (unsigned lane = 0; lane < count / 2; lane++)
      part[lane] = cy_joined(cg, part[2 * lane], part[2 * lane + 1]);
  return part[0];
}

V cy_scaled_interleaved_zeros(cy_cg *cg, V zeros) {
  int order[16];
  V dot4 = cy_load(cg, cg->vi, zeros, 1);
  for (unsigned i = 0; i < cg->W; i++)
    order[i] = (int)(i % (cg->W / 4) * 4 + i / (cg->W / 4));
  dot4 = cy_shuffle(cg, dot4, dot4, order, cg->W);
  return LLVMBuildBitCast(cg->b, dot4, LLVMVectorType(cg->i8, 4 * cg->W), "");
}

V cy_scaled_half(cy_cg *cg, V v, V mask, bool high) {
  v = LLVMBuildBitCast(cg->b, v, cg->vi, "");
  if (high)
    v = LLVMBuildLShr(cg->b, v, cy_splat(cg, cy_i32(cg, 4), cg->W), "");
  return LLVMBuildAnd(cg->b, v, mask, "");
}

V cy_scaled_add(cy_cg *cg, V sum, V codes, V rounded) {
  return cy_scaled_dot4(cg) ? cy_int_gemm_add(cg, cy_group_kernel_of(CY_GROUP_DOT4), sum, codes, rounded)
                            : LLVMBuildAdd(cg->b, sum, cy_int_gemm_bytes_times(cg, codes, rounded), "");
}

int64_t cy_scaled_divisor(int64_t all, int64_t max) {
  while (all % max)
    max--;
  return max;
}

/* ---- the product of a task ---- */

V cy_scaled_column(cy_cg *cg, const cy_scaled *p, V panel) {
  return cy_imin(cg, cy_mulc(cg, panel, p->nr), cy_i64(cg, p->n - p->nr));
}

V cy_scaled_acc_at(cy_cg *cg, const cy_scaled_frame *f, V panel) {
  return cy_gep(cg, f->acc, cy_mulc(cg, cy_sub(cg, panel, f->q0), f->p->nr * 4));
}

/* A panel's accumulators of a row, in the order of columns, to the line that the epilogue takes, which begins with panel `first`. */
static void emit_ordered(cy_cg *cg, const cy_scaled_frame *f, V row, V q, V first) {
  const cy_scaled *p = f->p;
  V from = cy_gep(cg, cy_scaled_acc_at(cg, f, q), cy_mulc(cg, row, p->acc_bytes)), v[CY_SCALED_VECTORS];
  V to = cy_gepf(cg, f->line, cy_sub(cg, cy_scaled_column(cg, p, q), cy_mulc(cg, first, p->nr)));
  for (int i = 0; i < CY_SCALED_VECTORS; i++)
    v[i] = cy_load(cg, cg->vf, cy_gepc(cg, from, (int64_t)i * cg->W * 4), 4);
  for (unsigned i = 0; i < CY_SCALED_VECTORS; i++)
    for (unsigned lane = 0; lane < cg->W / 4; lane++)
      cy_store(cg, cy_some_lanes(cg, v[i], 4 * lane, 4), cy_gepc(cg, to, (16 * lane + 4 * i) * 4), 4);
}

/* The epilogue of `rows` rows from `row` on, whose accumulators of panels [q0, q1) lie at `acc`, in order. */
static void finish_rows(cy_cg *cg, const cy_scaled_frame *f, V acc, V row, V rows, V q0, V q1) {
  const cy_scaled *p = f->p;
  V col = cy_mulc(cg, q0, p->nr), end = cy_imin(cg, cy_i64(cg, p->n), cy_mulc(cg, q1, p->nr));
  cy_rows index = cy_matrix_rows_index(&f->at);
  cy_epilogue_tile(cg, &p->d->epilogue, &index, acc, cy_i64(cg, p->acc_bytes), rows, row, cy_sub(cg, end, col), col,
                   (unsigned)(p->n % cg->W));
}

/* Row by row, as many panels at a time as the line has room for. */
static void finish_interleaved(cy_cg *cg, const cy_scaled_frame *f) {
  cy_loop r, q, t;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), f->rows, cy_i64(cg, 1), NULL, 0);
  cy_loop_begin(cg, &q, f->q0, f->q1, cy_i64(cg, f->p->line), NULL, 0);
  V end = cy_imin(cg, f->q1, cy_addc(cg, q.iv, f->p->line));
  cy_loop_begin(cg, &t, q.iv, end, cy_i64(cg, 1), NULL, 0);
  emit_ordered(cg, f, r.iv, t.iv, q.iv);
  cy_loop_end(cg, &t, NULL);
  finish_rows(cg, f, f->line, r.iv, cy_i64(cg, 1), q.iv, end);
  cy_loop_end(cg, &q, NULL);
  cy_loop_end(cg, &r, NULL);
}

/* All of k of the frame. */
static void emit_product(cy_cg *cg, const cy_scaled_frame *f) {
  const cy_scaled *p = f->p;
  cy_loop r, b;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), f->rows, cy_i64(cg, 1), NULL, 0);
  V row = cy_gep(cg, f->acc, cy_mulc(cg, r.iv, p->acc_bytes));
  cy_fill_zero(cg, row, cy_mulc(cg, cy_sub(cg, f->q1, f->q0), p->nr));
  cy_loop_end(cg, &r, NULL);
  cy_loop_begin(cg, &b, cy_i64(cg, 0), cy_i64(cg, p->count), cy_i64(cg, p->k_blocks), NULL, 0);
  p->ops->multiply(cg, f, b.iv, cy_imin(cg, cy_i64(cg, p->k_blocks), cy_sub(cg, cy_i64(cg, p->count), b.iv)));
  cy_loop_end(cg, &b, NULL);
  if (p->ops->interleaved)
    finish_interleaved(cg, f);
  else
    finish_rows(cg, f, f->acc, cy_i64(cg, 0), f->rows, f->q0, f->q1);
}

static void emit_task(cy_cg *cg, void *frame_of, const cy_task *t) {
  cy_scaled_frame *f = frame_of;
  const cy_scaled *p = f->p;
  V m = cy_size(cg, p->d->m), row = t->rows.begin;
  f->at = cy_matrix_rows_at(cg, p->d, t->product, row);
  f->rows = cy_sub(cg, t->rows.end, row);
  f->m = rounded_at(cg, p, cy_add(cg, cy_mul(cg, t->product, m), row));
  f->q0 = t->columns.begin;
  f->q1 = t->columns.end;
  emit_product(cg, f);
}

void cy_scaled_tasks(cy_cg *cg, const cy_scaled *p, V scratch) {
  cy_scaled_frame f = {.p = p, .weights = scratch, .acc = cy_gepc(cg, scratch, p->weight_bytes)};
  f.row_table = cy_row_table(cg, p->tile.mr, cy_i64(cg, p->row_bytes));
  if (p->ops->interleaved)
    f.line = cy_gepc(cg, cy_alloca(cg, (p->line + 1) * p->nr * 4), p->nr * 4);
  cy_tasks_emit(cg, cy_scaled_grid, p, emit_task, &f);
}

void cy_scaled_emit(cy_cg *cg, const void *plan, const char *name) {
  const cy_scaled *p = plan;
  V scratch = cy_phase_begin(cg, name, 0, &p->d->epilogue, p->d->scratch_slot, cy_scaled_worker_bytes, p);
  if (p->ops->amx)
    cy_int_gemm_amx_begin(cg);
  cy_scaled_tasks(cg, p, scratch);
  if (p->ops->amx)
    cy_int_gemm_amx_end(cg);
  cy_fn_end(cg, NULL);
}

void cy_scaled_describe(const void *plan, char *text, size_t size) {
  const cy_scaled *p = plan;
  snprintf(text, size, "tile %ux%lld, tasks of %lld rows and %lld panels, k by %lld", p->tile.mr, (long long)p->nr,
           (long long)p->mb, (long long)p->nb, (long long)(p->k_blocks * p->block));
}
