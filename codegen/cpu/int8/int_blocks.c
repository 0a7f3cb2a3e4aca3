/* SPDX-License-Identifier: Apache-2.0 */
/* int_blocks.c - products of f32 with weights in integers, both rounded to bf16 and multiplied by AMX.
 *
 * Comes in: a cy_gemm_desc whose `ints` are to be bf16. Goes out: two phases. The first rounds the rows of a, once for
 * all tasks, with k in the order in which weights become pairs (microkernel_widen.c): rows i and i + block / 2 of a
 * block side by side, which is what a byte of 4 bits holds. A task of the second has a block of rows, which stays in
 * the second-level cache, and a group of panels. By blocks of k, it makes bf16 of the group's weights, which stay in
 * the first-level cache, and multiplies all its rows by them, onto sums in scratch. These an epilogue takes at the end.
 */
#include "int_gemm.h"

#include <stdio.h>

enum {
  GROUP_COLUMNS = 64,       /* a cache line of codes */
  WEIGHT_BYTES = 32 * 1024, /* of a group's weights: what the first-level cache keeps beside rows */
  MAX_ROWS = 512,           /* of a task: sums */
  TILE_K = 2 * CY_AMX_GROUPS,
  ROUNDED_ROWS = CY_AMX_ROWS /* of a task of the first phase */
};

typedef struct plan {
  const cy_gemm_desc *d;
  cy_int_gemm_variant variant;
  cy_tile tile;
  int64_t n, k, nr, group; /* group: panels of a task */
  int64_t mb, k_block, row_bytes;
} plan;

bool cy_int_gemm_blocks_possible(const cy_cg *cg, int64_t block, int64_t k) {
  return cg->amx_bf16 && k % TILE_K == 0 && block > 1 && (block % TILE_K == 0 || TILE_K % block == 0);
}

static plan plan_of(const cy_cg *cg, const cy_gemm_desc *d) {
  int64_t rows = cy_csize_known(d->m), unit = d->ints.block > TILE_K ? d->ints.block : TILE_K;
  plan p = {.d = d, .n = cy_csize_known(d->n), .k = cy_csize_known(d->k), .tile = cy_int_gemm_amx_tile(rows, p.n)};
  p.variant = cy_group_kernel_of(CY_GROUP_BF16);
  p.variant.amx = true;
  p.variant.together = CY_AMX_GROUPS;
  p.nr = (int64_t)p.tile.nv * cg->W;
  p.group = p.nr < GROUP_COLUMNS ? GROUP_COLUMNS / p.nr : 1;
  p.k_block = WEIGHT_BYTES / (p.group * p.nr * 2) / unit * unit;
  p.k_block = p.k_block ? p.k_block : unit;
  p.row_bytes = p.k * 2 + (p.k * 2 % 1024 ? 0 : 64); /* not all rows of a tile in the same sets of a cache */
  int64_t max = cy_l2_part(cg, 1, 2) / p.row_bytes;
  max = max < MAX_ROWS ? max : MAX_ROWS;
  max = rows && rows < max ? cy_round_up(rows, p.tile.mr) : max / p.tile.mr * p.tile.mr;
  p.mb = max ? max : p.tile.mr;
  return p;
}

/* ---- sizes ---- */

static V batches(cy_cg *cg, const plan *p) { return cy_batch_count(cg, p->d->batch, p->d->n_batch); }
static V row_blocks(cy_cg *cg, const plan *p) { return cy_ceil_div(cg, cy_size(cg, p->d->m), cy_i64(cg, p->mb)); }
static int64_t panels(const plan *p) { return cy_ceil(p->n, p->nr); }
static int64_t groups(const plan *p) { return cy_ceil(panels(p), p->group); }
static int64_t weight_bytes(const plan *p) { return p->group * p->nr * p->k_block * 2; }
static int64_t sum_bytes(const plan *p) { return p->group * p->nr * 4; } /* of a row */

/* Rounded rows of a matrix, with those that fill up the last tile. */
static V whole_rows(cy_cg *cg, const plan *p) {
  return cy_mulc(cg, cy_ceil_div(cg, cy_size(cg, p->d->m), cy_i64(cg, p->tile.mr)), p->tile.mr);
}
static V rounded_count(cy_cg *cg, const void *ctx) {
  const plan *p = ctx;
  return cy_mul(cg, batches(cg, p), cy_ceil_div(cg, cy_size(cg, p->d->m), cy_i64(cg, ROUNDED_ROWS)));
}
static V task_count(cy_cg *cg, const void *ctx) {
  const plan *p = ctx;
  return cy_mulc(cg, cy_mul(cg, batches(cg, p), row_blocks(cg, p)), groups(p));
}
static V shared_bytes(cy_cg *cg, const void *ctx) {
  const plan *p = ctx;
  return cy_mulc(cg, cy_mul(cg, batches(cg, p), whole_rows(cg, p)), p->row_bytes);
}
static V worker_bytes(cy_cg *cg, const void *ctx) {
  const plan *p = ctx;
  return cy_i64(cg, weight_bytes(p) + p->mb * sum_bytes(p));
}

/* ---- rows of a ---- */

V cy_int_gemm_load_floats(cy_cg *cg, V from, V stride, unsigned lanes) {
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

static void emit_rounded_row(cy_cg *cg, const plan *p, V from, V to) {
  int64_t block = p->d->ints.block, half = block / 2;
  unsigned lanes = half < cg->W ? (unsigned)half : cg->W;
  V stride = cy_size(cg, p->d->ak);
  cy_loop b, i;
  cy_loop_begin(cg, &b, cy_i64(cg, 0), cy_i64(cg, p->k), cy_i64(cg, block), NULL, 0);
  cy_loop_begin(cg, &i, cy_i64(cg, 0), cy_i64(cg, half), cy_i64(cg, lanes), NULL, 0);
  V first = cy_gepf(cg, from, cy_mul(cg, cy_add(cg, b.iv, i.iv), stride));
  V second = cy_int_gemm_load_floats(cg, cy_gepf(cg, first, cy_mulc(cg, stride, half)), stride, lanes);
  V pairs = cy_bf16_pairs(cg, cy_int_gemm_load_floats(cg, first, stride, lanes), second, lanes);
  cy_store(cg, pairs, cy_gep(cg, to, cy_add(cg, cy_mulc(cg, b.iv, 2), cy_mulc(cg, i.iv, 4))), 4);
  cy_loop_end(cg, &i, NULL);
  cy_loop_end(cg, &b, NULL);
}

/* Where row `row` of a matrix lies, rounded. */
static V rounded_at(cy_cg *cg, const plan *p, V matrix, V row) {
  V number = cy_add(cg, cy_mul(cg, matrix, whole_rows(cg, p)), row);
  return cy_gep(cg, cy_arg_ptr(cg, p->d->shared_slot), cy_mulc(cg, number, p->row_bytes));
}

static void emit_rounded(cy_cg *cg, const void *of, const char *name) {
  const plan *p = of;
  const cy_gemm_desc *d = p->d;
  V idx[CY_GEMM_BATCH];
  cy_kernel_begin(cg, name, 0);
  V m = cy_size(cg, d->m), am = cy_size(cg, d->am), blocks = cy_ceil_div(cg, m, cy_i64(cg, ROUNDED_ROWS));
  cy_loop t, r;
  cy_loop_begin(cg, &t, cg->begin, cg->end, cy_i64(cg, 1), NULL, 0);
  V matrix = cy_div(cg, t.iv, blocks), row = cy_mulc(cg, cy_mod(cg, t.iv, blocks), ROUNDED_ROWS);
  cy_batch_split(cg, d->batch, d->n_batch, matrix, idx);
  V a = cy_gepf(cg, cy_arg_ptr(cg, d->a_slot), cy_batch_offset(cg, idx, d->a_batch, d->n_batch));
  cy_loop_begin(cg, &r, row, cy_imin(cg, m, cy_addc(cg, row, ROUNDED_ROWS)), cy_i64(cg, 1), NULL, 0);
  V from = cy_gepf(cg, a, cy_mul(cg, r.iv, am));
  emit_rounded_row(cg, p, from, rounded_at(cg, p, matrix, r.iv));
  cy_loop_end(cg, &r, NULL);
  cy_loop_end(cg, &t, NULL);
  cy_fn_end(cg, NULL);
}

/* ---- the product of a task ---- */

typedef struct frame {
  const plan *p;
  cy_microkernel weights; /* what microkernel_widen.c wants to know */
  V to, sums, row_table;
  cy_matrix_rows rows; /* of the task */
} frame;

/* The micro-kernel for `left` rows and more, to be called with the first block of k, or with one behind it. */
static V kernel_of(cy_cg *cg, const plan *p, V left, V is_first, LLVMTypeRef *type) {
  V fn[2];
  for (int onto = 0; onto < 2; onto++) {
    fn[onto] = cy_int_gemm_amx_kernel(cg, p->variant, p->tile.mr, p->tile.nv, p->nr, onto);
    if (p->tile.mr == CY_AMX_ROWS)
      continue;
    V few = cy_int_gemm_amx_kernel(cg, p->variant, CY_AMX_ROWS, p->tile.nv, p->nr, onto);
    fn[onto] = cy_select(cg, cy_icmp(cg, LLVMIntSLE, left, cy_i64(cg, CY_AMX_ROWS)), few, fn[onto]);
  }
  *type = LLVMGlobalGetValueType(cy_int_gemm_amx_kernel(cg, p->variant, p->tile.mr, p->tile.nv, p->nr, false));
  return cy_select(cg, is_first, fn[0], fn[1]);
}

/* Rows at a times panels [q0, end), k from k0 on. */
static void emit_k_block(cy_cg *cg, const frame *f, V a, V rows, V q0, V end, V k0) {
  const plan *p = f->p;
  V c = cy_imin(cg, cy_i64(cg, p->k_block), cy_sub(cg, cy_i64(cg, p->k), k0)), none = LLVMConstNull(cg->ptr);
  cy_widening w = {.micro = &f->weights, .c0 = k0, .taps = cy_i64(cg, 1), .c = c, .q0 = q0, .end = end, .to = f->to};
  w.prefetch_columns = cy_i64(cg, p->group * p->nr);
  w.prefetch_rows = cy_i64(cg, 0);
  cy_widen_emit(cg, &w);
  cy_loop r;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), rows, cy_i64(cg, p->tile.mr), NULL, 0);
  LLVMTypeRef type;
  V is_first = cy_icmp(cg, LLVMIntEQ, k0, cy_i64(cg, 0)),
    fn = kernel_of(cg, p, cy_sub(cg, rows, r.iv), is_first, &type);
  V from = cy_gep(cg, a, cy_add(cg, cy_mulc(cg, r.iv, p->row_bytes), cy_mulc(cg, k0, 2)));
  V sums = cy_gep(cg, f->sums, cy_mulc(cg, r.iv, sum_bytes(p))), pairs = cy_div(cg, c, cy_i64(cg, 2));
  V ldc = cy_i64(cg, sum_bytes(p)), count = cy_sub(cg, end, q0);
  V args[] = {from, f->row_table, f->to, sums, ldc, pairs, count, none, none, none, cy_i64(cg, 1), cy_i64(cg, 0)};
  LLVMBuildCall2(cg->b, type, fn, args, sizeof args / sizeof *args, "");
  cy_loop_end(cg, &r, NULL);
}

/* Groups of columns follow each other, on the same rows. */
static void emit_task(cy_cg *cg, void *frame_of, V task) {
  frame *f = frame_of;
  const plan *p = f->p;
  const cy_gemm_desc *d = p->d;
  V rb = row_blocks(cg, p), cb = cy_i64(cg, groups(p)), rows_of_all = cy_div(cg, task, cb);
  V matrix = cy_div(cg, rows_of_all, rb), q0 = cy_mulc(cg, cy_mod(cg, task, cb), p->group), m = cy_size(cg, d->m);
  cy_share r = cy_share_rows(cg, p->tile, m, p->mb, cy_mod(cg, rows_of_all, rb));
  V end = cy_imin(cg, cy_i64(cg, panels(p)), cy_addc(cg, q0, p->group)), rows = cy_sub(cg, r.end, r.begin);
  f->rows = cy_matrix_rows_at(cg, d, matrix, r.begin);
  V a = rounded_at(cg, p, matrix, r.begin), col = cy_mulc(cg, q0, p->nr);
  cy_loop k;
  cy_loop_begin(cg, &k, cy_i64(cg, 0), cy_i64(cg, p->k), cy_i64(cg, p->k_block), NULL, 0);
  emit_k_block(cg, f, a, rows, q0, end, k.iv);
  cy_loop_end(cg, &k, NULL);
  cy_rows index = cy_matrix_rows_index(&f->rows);
  V cols = cy_imin(cg, cy_sub(cg, cy_i64(cg, p->n), col), cy_i64(cg, p->group * p->nr));
  cy_epilogue_tile(cg, &d->epilogue, &index, f->sums, cy_i64(cg, sum_bytes(p)), rows, cy_i64(cg, 0), cols, col,
                   (unsigned)(p->n % cg->W));
}

static void emit_gemm(cy_cg *cg, const void *of, const char *name) {
  const plan *p = of;
  const cy_gemm_desc *d = p->d;
  cy_kernel_begin(cg, name, 0);
  cy_epilogue_open(&d->epilogue, cg);
  frame f = {.p = p, .to = cy_scratch(cg, d->scratch_slot, worker_bytes(cg, p))};
  f.sums = cy_gepc(cg, f.to, weight_bytes(p));
  f.row_table = cy_row_table(cg, 2, cy_i64(cg, p->row_bytes));
  f.weights = (cy_microkernel){
      .tile = p->tile, .b = cy_arg_ptr(cg, d->b_slot), .ints = cy_gemm_ints(cg, d), .n = cy_i64(cg, p->n)};
  cy_int_gemm_amx_begin(cg);
  cy_tasks_emit(cg, emit_task, &f);
  cy_int_gemm_amx_end(cg);
  cy_fn_end(cg, NULL);
}

static void *plan_make(const cy_cg *cg, const void *desc, cy_arena *arena) {
  plan p = plan_of(cg, desc);
  return cy_arena_copy(arena, &p, sizeof p);
}

static const char *name_of(const void *of) {
  return ((const plan *)of)->d->ints.bits == 8 ? "gemm int8 weights bf16 amx" : "gemm int4 weights bf16 amx";
}

static void describe(const void *of, char *text, size_t size) {
  const plan *p = of;
  snprintf(text, size, "tile %ux%lld, tasks of %lld rows and %lld panels, k by %lld", p->tile.mr, (long long)p->nr,
           (long long)p->mb, (long long)p->group, (long long)p->k_block);
}

const cy_generator cy_int_blocks_generator = {
    .plan = plan_make,
    .name = name_of,
    .describe = describe,
    .phase = {{"_rows", NULL, emit_rounded, rounded_count}, {"", NULL, emit_gemm, task_count}},
    .worker_bytes = worker_bytes,
    .shared_bytes = shared_bytes};
