/* SPDX-License-Identifier: Apache-2.0 */
/* quantised_rows.c - products of f32 with weights in integers, the rows rounded to 8 bits by the blocks that weights
 * have.
 *
 * Comes in: a cy_gemm_desc whose `ints` are to meet integers. Goes out: two phases. The first rounds the rows of a, once
 * for all tasks: codes[k], then for each block the step between codes and minus their sum. A task of the second has a
 * block of rows and a group of panels of 4 * W columns. By some blocks of k, it unpacks the codes of each panel, which lie
 * row by row, into dot4 of k, in the first-level cache, and multiplies all its rows by them:
 *
 *   sums[row, n] += step[row, block] * scale[block, n] * (codes of row * codes of n - zero[block, n] * sum of row)
 *
 * The bracket is exact on every CPU, the floats around it are the same operations in the same order: so are results.
 * Where there is vpdpbusd, or ARM's usdot or sdot, it takes weights of either width. vpmaddubsw sums pairs in 16 bits,
 * which hold 8 groups of k with weights of 4 bits, whatever the codes; weights of 8 bits are multiplied as two digits of
 * 4 then.
 *
 * Rows that are few, those of one call of the micro-kernel, wait for weights: tasks that follow each other are done as one
 * then, block by block of k, so that weights are read in the order they lie in, and asked for long before.
 *
 * Turning is done in lanes of 128 bits, by two rounds of unpack: vector q of a panel has columns 16 L + 4 q + [0, 4) in
 * lane L. Sums stay in this order till the epilogue, scales and zero points are read in it. The last panel of columns
 * that do not fill it begins so early that it ends with them.
 */
#include "int_gemm.h"

#include <stdio.h>
#include <string.h>

enum {
  VECTORS = 4,            /* of a panel: what two rounds of unpack give */
  MAX_COLUMNS = 64,       /* of a panel: all CPUs take the same products */
  INTERLEAVED_ROWS = 128, /* rows of k that are interleaved at a time, about */
  MAX_ROWS = 192,         /* of a task: sums stay in the second-level cache */
  MAX_PANELS = 8,         /* of a task, and .. */
  MIN_TASKS = 16,         /* .. so many tasks, if there are enough panels */
  FEW_RUN = 16,           /* few rows: tasks done as one, at most, and .. */
  FEW_PREFETCH = 256,     /* .. rows of bytes from the panel that is interleaved to the one that is asked for */
  EXACT_GROUPS = 8,       /* 8 * 2 * 127 * 15 fits in 16 bits, .. */
  MAX_BLOCK = 128         /* .. as does 128 * 127 */
};

typedef struct plan {
  const cy_gemm_desc *d;
  bool dot4;
  unsigned digits;              /* of 4 bits, that weights are multiplied by one after the other; 1: whole codes */
  int64_t flip;                 /* what codes are more when they are read as the instruction takes them */
  int64_t n, k, block, count;   /* count: of blocks */
  int64_t groups, bytes;        /* of 4 k in a block; rows of bytes */
  int64_t nr, panels, together; /* columns of a panel; blocks that are interleaved at a time */
  int64_t row_bytes, interleaved_bytes; /* of a rounded row; of a panel's block */
  bool few;                             /* rows; run: tasks that are done as one */
  int64_t run;
  cy_tile tile;
  cy_blocks blocks;
} plan;

static bool has_dot4(const cy_cg *cg) { return cg->vnni || cg->vnni_spelled; }

bool cy_quantised_rows_possible(const cy_cg *cg, int bits, int64_t block, int64_t tile, int64_t n) {
  return (cg->avx2 || cg->vnni) && cg->fma && block <= MAX_BLOCK && block * bits / 8 % 4 == 0 && n >= MAX_COLUMNS &&
         (tile == n || tile % MAX_COLUMNS == 0);
}

/* Rows whose sums fit the registers, without vpdpbusd twice: in 16 and in 32 bits. */
static unsigned tile_rows(const cy_cg *cg, int64_t rows) {
  unsigned max = cg->registers == 32 ? (has_dot4(cg) ? 6 : 4) : has_dot4(cg) ? 3 : 2;
  return rows && rows < max ? (unsigned)rows : max;
}

static plan plan_of(const cy_cg *cg, const cy_gemm_desc *d) {
  int64_t rows = cy_csize_known(d->m);
  plan p = {.d = d,
            .dot4 = has_dot4(cg),
            .n = cy_csize_known(d->n),
            .k = cy_csize_known(d->k),
            .block = d->ints.block,
            .bytes = d->ints.block * d->ints.bits / 8,
            .flip = d->ints.bits < 8 || d->ints.is_signed == cg->sdot ? 0
                    : cg->sdot                                        ? -128
                                                                      : 128,
            .nr = VECTORS * (int64_t)cg->W,
            .tile = {tile_rows(cg, rows), VECTORS}};
  p.digits = d->ints.bits == 8 && !p.dot4 ? 2 : 1;
  p.groups = p.block / 4;
  p.count = p.k / p.block;
  p.panels = cy_ceil(p.n, p.nr);
  p.together = p.block < INTERLEAVED_ROWS ? INTERLEAVED_ROWS / p.block : 1;
  p.row_bytes = cy_round_up(p.k, 8) + p.count * 8;
  p.row_bytes = cy_round_up(p.row_bytes, 64) + (cy_round_up(p.row_bytes, 64) % 1024 ? 0 : 64);
  p.interleaved_bytes = p.nr * (8 + p.groups * 4 * p.digits);
  int64_t max = MAX_ROWS / p.tile.mr * p.tile.mr, nb = p.panels / MIN_TASKS;
  p.blocks.mb = rows && rows < max ? cy_round_up(rows, p.tile.mr) : max;
  p.blocks.nb = nb < 1 ? 1 : nb < MAX_PANELS ? nb : MAX_PANELS;
  p.run = 1;
  return p;
}

/* The form of p for few rows. */
static plan for_few(const plan *p) {
  plan few = *p;
  few.few = true;
  few.run = FEW_RUN;
  few.together = 1;
  few.blocks.mb = p->tile.mr;
  return few;
}

static bool always_few(const plan *p) {
  int64_t rows = cy_csize_known(p->d->m);
  return rows && rows <= (int64_t)p->tile.mr;
}

/* ---- sizes ---- */

static V batches(cy_cg *cg, const plan *p) { return cy_batch_count(cg, p->d->batch, p->d->n_batch); }
static V all_rows(cy_cg *cg, const plan *p) { return cy_mul(cg, batches(cg, p), cy_size(cg, p->d->m)); }
static V row_blocks(cy_cg *cg, const plan *p) {
  return cy_ceil_div(cg, cy_size(cg, p->d->m), cy_i64(cg, p->blocks.mb));
}
static int64_t panel_blocks(const plan *p) { return cy_ceil(p->panels, p->blocks.nb); }
static int64_t line_bytes(const plan *p) { return p->blocks.nb * p->nr * 4; } /* of a task's row */
static int64_t sum_bytes(const plan *p) { return p->run * line_bytes(p); }
static int64_t interleaved_bytes(const plan *p) { return cy_round_up(p->together * p->interleaved_bytes, 64); }

static V rounded_count(cy_cg *cg, const void *ctx) { return all_rows(cg, ctx); }
static V task_count(cy_cg *cg, const void *ctx) {
  const plan *p = ctx;
  return cy_mulc(cg, cy_mul(cg, batches(cg, p), row_blocks(cg, p)), panel_blocks(p));
}
static V shared_bytes(cy_cg *cg, const void *ctx) {
  const plan *p = ctx;
  return cy_mulc(cg, all_rows(cg, p), p->row_bytes);
}
static V worker_bytes(cy_cg *cg, const void *ctx) {
  const plan *p = ctx, few = for_few(p);
  int64_t one = interleaved_bytes(p) + p->blocks.mb * sum_bytes(p);
  int64_t other = interleaved_bytes(&few) + few.blocks.mb * sum_bytes(&few);
  return cy_i64(cg, always_few(p) || one < other ? other : one);
}

/* ---- rows of a ---- */

static V ints_of(cy_cg *cg, V floats, unsigned lanes) {
  return LLVMBuildBitCast(cg->b, floats, LLVMVectorType(cg->i32, lanes), "");
}

V cy_rounded_sum(cy_cg *cg, V v) { return cy_intrinsic(cg, "llvm.vector.reduce.add", LLVMTypeOf(v), &v, 1); }

/* Bits of magnitudes compare like floats do, and NaN is above all. */
V cy_rounded_largest(cy_cg *cg, int64_t block, V from, V stride, unsigned lanes) {
  V max = LLVMConstNull(LLVMVectorType(cg->i32, lanes)), mask = cy_splat(cg, cy_i32(cg, INT32_MAX), lanes);
  cy_loop i;
  cy_loop_begin(cg, &i, cy_i64(cg, 0), cy_i64(cg, block), cy_i64(cg, lanes), &max, 1);
  V x = cy_int_gemm_load_floats(cg, cy_gepf(cg, from, cy_mul(cg, i.iv, stride)), stride, lanes);
  V args[2] = {i.v[0], LLVMBuildAnd(cg->b, ints_of(cg, x, lanes), mask, "")};
  max = cy_intrinsic(cg, "llvm.smax", LLVMTypeOf(mask), args, 2);
  cy_loop_end(cg, &i, &max);
  max = cy_intrinsic(cg, "llvm.vector.reduce.smax", LLVMTypeOf(mask), &i.out[0], 1);
  return LLVMBuildBitCast(cg->b, max, cg->f32, "");
}

/* x * inverse, rounded: as bits of a float whose last ones count units. Stores codes; returns `sum` and their sum. */
static V emit_codes(cy_cg *cg, V x, V inverse, V to, V sum, unsigned lanes) {
  const double unit = 12582912; /* 1.5 * 2^23 */
  V bits = ints_of(cg, cy_fma(cg, x, inverse, cy_splatf(cg, unit, lanes)), lanes);
  V code = LLVMBuildSub(cg->b, bits, ints_of(cg, cy_splatf(cg, unit, lanes), lanes), "");
  cy_store(cg, LLVMBuildTrunc(cg->b, code, LLVMVectorType(cg->i8, lanes), ""), to, 1);
  return LLVMBuildAdd(cg->b, sum, code, "");
}

/* A block of a row: `from` its floats, `to` its codes, `more` its step and minus the sum of its codes, times the zero point
 * where all weights have one. Magnitudes below `min` count as nothing: 127 by them might not be finite. Where there is
 * something that is not finite, neither is the step. */
static void emit_rounded_block(cy_cg *cg, const plan *p, V from, V to, V more) {
  const double min = 1e-36;
  unsigned lanes = p->block % cg->W == 0 ? cg->W : p->block % 8 == 0 ? 8 : 4;
  V stride = cy_size(cg, p->d->ak), max = cy_rounded_largest(cg, p->block, from, stride, lanes);
  V tiny = LLVMBuildFCmp(cg->b, LLVMRealOLT, max, LLVMConstReal(cg->f32, min), "");
  V top = LLVMConstReal(cg->f32, 127), inverse = LLVMBuildFDiv(cg->b, top, max, "");
  V factor = cy_splat(cg, cy_select(cg, tiny, LLVMConstReal(cg->f32, 0), inverse), lanes);
  V sum = LLVMConstNull(LLVMVectorType(cg->i32, lanes));
  cy_loop i;
  cy_loop_begin(cg, &i, cy_i64(cg, 0), cy_i64(cg, p->block), cy_i64(cg, lanes), &sum, 1);
  V x = cy_int_gemm_load_floats(cg, cy_gepf(cg, from, cy_mul(cg, i.iv, stride)), stride, lanes);
  sum = emit_codes(cg, x, factor, cy_gep(cg, to, i.iv), i.v[0], lanes);
  cy_loop_end(cg, &i, &sum);
  V weight = cy_i32(cg, (int32_t)(p->d->ints.zero_slot < 0 ? -(p->d->ints.middle + p->flip) : -1));
  sum = LLVMBuildMul(cg->b, cy_rounded_sum(cg, i.out[0]), weight, "");
  cy_store(cg, LLVMBuildFDiv(cg->b, max, top, ""), more, 4);
  cy_store(cg, sum, cy_gepc(cg, more, 4), 4);
}

static V rounded_at(cy_cg *cg, const plan *p, V row) {
  return cy_gep(cg, cy_arg_ptr(cg, p->d->shared_slot), cy_mulc(cg, row, p->row_bytes));
}

/* What a rounded row has behind its codes. */
static int64_t steps_at(const plan *p) { return cy_round_up(p->k, 8); }

/* Block b of row `row`, whose floats are at `from`. */
static void round_block(cy_cg *cg, const void *of, V from, V row, V b) {
  const plan *p = of;
  V to = rounded_at(cg, p, row), step = cy_gep(cg, cy_gepc(cg, to, steps_at(p)), cy_mulc(cg, b, 8));
  emit_rounded_block(cg, p, from, cy_gep(cg, to, cy_mulc(cg, b, p->block)), step);
}

void cy_rounded_rows_emit(cy_cg *cg, const cy_rounded_rows *r, const void *plan, const char *name) {
  const cy_gemm_desc *d = r->d;
  V idx[CY_GEMM_BATCH];
  cy_kernel_begin(cg, name, 0);
  V m = cy_size(cg, d->m), parts = cy_i64(cg, cy_ceil(r->count, r->share));
  cy_loop t, b;
  cy_loop_begin(cg, &t, cg->begin, cg->end, cy_i64(cg, 1), NULL, 0);
  V row = cy_div(cg, t.iv, parts), first = cy_mulc(cg, cy_mod(cg, t.iv, parts), r->share);
  cy_batch_split(cg, d->batch, d->n_batch, cy_div(cg, row, m), idx);
  V a = cy_gepf(cg, cy_arg_ptr(cg, d->a_slot), cy_batch_offset(cg, idx, d->a_batch, d->n_batch));
  a = cy_gepf(cg, a, cy_mul(cg, cy_mod(cg, row, m), cy_size(cg, d->am)));
  V end = cy_imin(cg, cy_i64(cg, r->count), cy_addc(cg, first, r->share));
  cy_loop_begin(cg, &b, first, end, cy_i64(cg, 1), NULL, 0);
  V at = cy_mul(cg, cy_mulc(cg, b.iv, d->ints.block), cy_size(cg, d->ak));
  r->block(cg, plan, cy_gepf(cg, a, at), row, b.iv);
  cy_loop_end(cg, &b, NULL);
  cy_loop_end(cg, &t, NULL);
  cy_fn_end(cg, NULL);
}

static void emit_rounded(cy_cg *cg, const void *of, const char *name) {
  const plan *p = of;
  const cy_rounded_rows rows = {p->d, p->count, p->count, round_block};
  cy_rounded_rows_emit(cg, &rows, p, name);
}

/* ---- a panel's block, interleaved: scales, zero points (i32), then vectors of dot4: [digit][group][VECTORS] ---- */

typedef struct panel {
  cy_int_gemm_place at, prefetch; /* prefetch: what is interleaved next, to be prefetched */
  V to;
} panel;

cy_int_gemm_place cy_int_gemm_place_of(cy_cg *cg, const cy_gemm_desc *d, V block, V col) {
  int64_t bytes = d->ints.block * d->ints.bits / 8, n = cy_csize_known(d->n);
  V tile = cy_i64(cg, d->ints.tile), before = cy_mul(cg, cy_div(cg, col, tile), cy_mulc(cg, tile, bytes));
  V at = cy_add(cg, cy_add(cg, cy_mulc(cg, block, bytes * n), before), cy_mod(cg, col, tile));
  V number = cy_add(cg, cy_mulc(cg, block, n), col);
  cy_int_gemm_place to = {.codes = cy_gep(cg, cy_arg_ptr(cg, d->b_slot), at)};
  to.scales = cy_gepf(cg, cy_arg_ptr(cg, d->ints.scale_slot), number);
  if (d->ints.zero_slot >= 0)
    to.zeros = cy_gep(cg, cy_arg_ptr(cg, d->ints.zero_slot), number);
  return to;
}

V cy_int_gemm_unpacked(cy_cg *cg, V a, V b, unsigned bytes, bool high) {
  unsigned lanes = 4 * cg->W / bytes, part = 16 / bytes;
  LLVMTypeRef type = LLVMVectorType(bytes == 1 ? cg->i8 : cg->i16, lanes);
  int order[64];
  for (unsigned i = 0; i < lanes; i++)
    order[i] = (int)(i / part * part + (high ? part / 2 : 0) + i % part / 2 + i % 2 * lanes);
  a = LLVMBuildBitCast(cg->b, a, type, "");
  return cy_shuffle(cg, a, LLVMBuildBitCast(cg->b, b, type, ""), order, lanes);
}

/* Rows r .. r + 3 of bytes. */
static void load_dot4(cy_cg *cg, const plan *p, const panel *q, V row, V *out) {
  LLVMTypeRef type = LLVMVectorType(cg->i8, 4 * cg->W);
  V line[4], flip = cy_splat(cg, LLVMConstInt(cg->i8, 0x80, 0), 4 * cg->W);
  for (int i = 0; i < 4; i++) {
    V at = cy_mulc(cg, cy_addc(cg, row, i), p->d->ints.tile);
    line[i] = cy_load(cg, type, cy_gep(cg, q->at.codes, at), 1);
    if (p->flip)
      line[i] = LLVMBuildXor(cg->b, line[i], flip, "");
    cy_prefetch(cg, cy_gep(cg, q->prefetch.codes, at), false, p->few ? CY_FIRST_LEVEL : CY_SECOND_LEVEL);
  }
  for (int i = 0; i < 2; i++) {
    V first = cy_int_gemm_unpacked(cg, line[0], line[1], 1, i),
      second = cy_int_gemm_unpacked(cg, line[2], line[3], 1, i);
    out[2 * i] = cy_int_gemm_unpacked(cg, first, second, 2, false);
    out[2 * i + 1] = cy_int_gemm_unpacked(cg, first, second, 2, true);
  }
}

static V digit_of(cy_cg *cg, V v, bool high) {
  v = LLVMBuildBitCast(cg->b, v, cg->vi, "");
  if (high)
    v = LLVMBuildLShr(cg->b, v, cy_splat(cg, cy_i32(cg, 4), cg->W), "");
  return LLVMBuildAnd(cg->b, v, cy_splat(cg, cy_i32(cg, 0x0f0f0f0f), cg->W), "");
}

static void emit_interleaved_rows(cy_cg *cg, const plan *p, const panel *q) {
  bool digits = p->d->ints.bits == 4 || p->digits == 2; /* the higher ones lie behind all lower ones */
  int64_t vector = (int64_t)cg->W * 4, group = VECTORS * vector, high = p->bytes / 4 * group;
  cy_loop r;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), cy_i64(cg, p->bytes), cy_i64(cg, 4), NULL, 0);
  V four[VECTORS], to = cy_gep(cg, q->to, cy_mulc(cg, r.iv, group / 4));
  load_dot4(cg, p, q, r.iv, four);
  for (int i = 0; i < VECTORS; i++) {
    V at = cy_gepc(cg, to, p->nr * 8 + i * vector);
    cy_store(cg, digits ? digit_of(cg, four[i], false) : four[i], at, 4);
    if (digits)
      cy_store(cg, digit_of(cg, four[i], true), cy_gepc(cg, at, high), 4);
  }
  cy_loop_end(cg, &r, NULL);
}

V cy_int_gemm_interleaved_scales(cy_cg *cg, V scales, int i) {
  unsigned count = cg->W / 4;
  V part[4];
  for (unsigned lane = 0; lane < count; lane++)
    part[lane] = cy_load(cg, cy_vecf(cg, 4), cy_gepc(cg, scales, (16 * lane + 4 * i) * 4), 4);
  for (; count > 1; count /= 2)
    for (unsigned lane = 0; lane < count / 2; lane++)
      part[lane] = cy_joined(cg, part[2 * lane], part[2 * lane + 1]);
  return part[0];
}

V cy_int_gemm_interleaved_zeros(cy_cg *cg, V zeros) {
  int order[16];
  V dot4 = cy_load(cg, cg->vi, zeros, 1);
  for (unsigned i = 0; i < cg->W; i++)
    order[i] = (int)(i % (cg->W / 4) * 4 + i / (cg->W / 4));
  dot4 = cy_shuffle(cg, dot4, dot4, order, cg->W);
  return LLVMBuildBitCast(cg->b, dot4, LLVMVectorType(cg->i8, 4 * cg->W), "");
}

static void emit_interleaved_block(cy_cg *cg, const plan *p, const panel *q) {
  V zeros = q->at.zeros ? cy_int_gemm_interleaved_zeros(cg, q->at.zeros) : NULL;
  for (int i = 0; i < VECTORS; i++) {
    V to = cy_gepc(cg, q->to, (int64_t)i * cg->W * 4);
    cy_store(cg, cy_int_gemm_interleaved_scales(cg, q->at.scales, i), to, 4);
    cy_prefetch(cg, cy_gepc(cg, q->prefetch.scales, (int64_t)i * cg->W * 4), false, CY_SECOND_LEVEL);
    if (zeros) {
      V some = LLVMBuildZExt(cg->b, cy_some_lanes(cg, zeros, (unsigned)i * cg->W, cg->W), cg->vi, "");
      some = LLVMBuildAdd(cg->b, some, cy_splat(cg, cy_i32(cg, (int32_t)p->flip), cg->W), "");
      cy_store(cg, some, cy_gepc(cg, to, p->nr * 4), 4);
    }
  }
  if (zeros)
    cy_prefetch(cg, q->prefetch.zeros, false, CY_SECOND_LEVEL);
  emit_interleaved_rows(cg, p, q);
}

/* ---- the micro-kernel: mr rows by a panel, some blocks of k ---- */

/* void (ptr codes, ptr steps, ptr row_offsets, ptr turned, ptr sums, i64 sums_stride, i64 blocks): codes and steps of the
 * first row, at the first of the blocks; bytes. */
enum { CODES, STEPS, OFFSETS, INTERLEAVED, SUMS, STRIDE, BLOCKS, KERNEL_ARGS };

typedef struct kernel {
  const plan *p;
  unsigned mr;
  V code[8], step[8]; /* of rows, at the block at hand */
  V interleaved;      /* its dot4 */
} kernel;

static unsigned sums_of(const kernel *k) { return k->mr * VECTORS; }

/* Group `at` + i of k, whose codes are those of group `row_at` + i: sums become the next ones. */
static void emit_group(cy_cg *cg, const kernel *k, V at, V row_at, int64_t i, V *sum) {
  V b[VECTORS], from = cy_gep(cg, k->interleaved, cy_mulc(cg, cy_addc(cg, at, i), k->p->nr * 4));
  for (int j = 0; j < VECTORS; j++)
    b[j] = cy_load(cg, cg->vi, cy_gepc(cg, from, (int64_t)j * cg->W * 4), 4);
  for (unsigned r = 0; r < k->mr; r++) {
    V code = cy_gep(cg, k->code[r], cy_mulc(cg, cy_addc(cg, row_at, i), 4));
    V a = cy_splat(cg, cy_load(cg, cg->i32, code, 1), cg->W);
    for (int j = 0; j < VECTORS; j++) {
      V *s = &sum[r * VECTORS + j];
      *s = k->p->dot4 ? cy_int_gemm_add(cg, cy_group_kernel_of(CY_GROUP_DOT4), *s, b[j], a)
                      : LLVMBuildAdd(cg->b, *s, cy_int_gemm_bytes_times(cg, b[j], a), "");
    }
  }
  cy_emit_fence(cg);
}

/* Up to EXACT_GROUPS that divide all groups of a block. */
static int64_t groups_at_once(const plan *p) {
  int64_t n = EXACT_GROUPS;
  while (p->groups % n)
    n--;
  return n;
}

/* Groups of one digit, weighing so much, onto sums of 32 bits. */
static void emit_digit(cy_cg *cg, const kernel *k, unsigned digit, V *sum) {
  int64_t once = groups_at_once(k->p);
  unsigned n = sums_of(k);
  V first = cy_i64(cg, digit * k->p->groups), part[CY_LOOP_MAX];
  LLVMTypeRef pairs = LLVMVectorType(cg->i16, 2 * cg->W);
  V weight = cy_splat(cg, LLVMConstInt(cg->i16, digit ? 16 : 1, 0), 2 * cg->W);
  cy_loop g;
  cy_loop_begin(cg, &g, cy_i64(cg, 0), cy_i64(cg, k->p->groups), cy_i64(cg, once), sum, n);
  for (unsigned i = 0; i < n; i++)
    part[i] = k->p->dot4 ? g.v[i] : LLVMConstNull(pairs);
  for (int64_t i = 0; i < once; i++)
    emit_group(cg, k, cy_add(cg, first, g.iv), g.iv, i, part);
  for (unsigned i = 0; i < n && !k->p->dot4; i++)
    part[i] = LLVMBuildAdd(cg->b, g.v[i], cy_int_gemm_dot2_times(cg, part[i], weight), "");
  cy_loop_end(cg, &g, part);
  memcpy(sum, g.out, n * sizeof *sum);
}

/* What sums of a block begin with: minus the sum of the row's codes, which 16 bits hold, times the zero point. */
static void emit_begin(cy_cg *cg, const kernel *k, V block, V *sum) {
  const cy_gemm_desc *d = k->p->d;
  for (unsigned r = 0; r < k->mr; r++) {
    V less = cy_splat(cg, cy_load(cg, cg->i32, cy_gepc(cg, k->step[r], 4), 4), cg->W);
    for (int j = 0; j < VECTORS; j++) {
      V *s = &sum[r * VECTORS + j], at = cy_gepc(cg, block, (int64_t)(VECTORS + j) * cg->W * 4);
      if (d->ints.zero_slot < 0)
        *s = less;
      else /* x86 multiplies words faster; the higher ones of zero points are 0 there */
        *s = cg->avx2 ? cy_int_gemm_dot2_times(cg, cy_load(cg, cg->vi, at, 4), less)
                      : LLVMBuildMul(cg->b, cy_load(cg, cg->vi, at, 4), less, "");
    }
  }
}

/* sums += step * scale * what the block gave. */
static void emit_end(cy_cg *cg, const kernel *k, V block, V sums, V stride, const V *sum) {
  V scale[VECTORS];
  for (int j = 0; j < VECTORS; j++)
    scale[j] = cy_load(cg, cg->vf, cy_gepc(cg, block, (int64_t)j * cg->W * 4), 4);
  for (unsigned r = 0; r < k->mr; r++, sums = cy_gep(cg, sums, stride)) {
    V step = cy_splat(cg, cy_load(cg, cg->f32, k->step[r], 4), cg->W);
    for (int j = 0; j < VECTORS; j++) {
      V at = cy_gepc(cg, sums, (int64_t)j * cg->W * 4), factor = LLVMBuildFMul(cg->b, step, scale[j], "");
      V exact = LLVMBuildSIToFP(cg->b, sum[r * VECTORS + j], cg->vf, "");
      cy_store(cg, cy_fma(cg, exact, factor, cy_load(cg, cg->vf, at, 4)), at, 4);
    }
  }
}

static V kernel_of(cy_cg *cg, const plan *p, unsigned mr) {
  const cy_gemm_desc *d = p->d;
  char name[64];
  snprintf(name, sizeof name, "cyk_codes%d%s%s_%ux%lld_%lld", d->ints.bits, d->ints.zero_slot < 0 ? "" : "z",
           p->dot4 ? "" : "_digits", mr, (long long)p->nr, (long long)p->block);
  V fn = cy_shared_find(cg, name);
  if (fn)
    return fn;
  cy_fn_state state = cy_fn_save(cg);
  const LLVMTypeRef params[KERNEL_ARGS] = {cg->ptr, cg->ptr, cg->ptr, cg->ptr, cg->ptr, cg->i64, cg->i64};
  fn = cy_fn_begin(cg, name, cg->voidt, params, KERNEL_ARGS, CY_FN_SHARED | CY_FN_NOINLINE | CY_FN_NOALIAS);
  V offset[8], sum[CY_LOOP_MAX];
  for (unsigned r = 0; r < mr; r++)
    offset[r] = cy_load(cg, cg->i64, cy_gepc(cg, LLVMGetParam(fn, OFFSETS), 8 * r), 8);
  cy_loop b;
  cy_loop_begin(cg, &b, cy_i64(cg, 0), LLVMGetParam(fn, BLOCKS), cy_i64(cg, 1), NULL, 0);
  V block = cy_gep(cg, LLVMGetParam(fn, INTERLEAVED), cy_mulc(cg, b.iv, p->interleaved_bytes));
  kernel k = {.p = p, .mr = mr, .interleaved = cy_gepc(cg, block, p->nr * 8)};
  for (unsigned r = 0; r < mr; r++) {
    k.code[r] = cy_gep(cg, cy_gep(cg, LLVMGetParam(fn, CODES), cy_mulc(cg, b.iv, p->block)), offset[r]);
    k.step[r] = cy_gep(cg, cy_gep(cg, LLVMGetParam(fn, STEPS), cy_mulc(cg, b.iv, 8)), offset[r]);
  }
  emit_begin(cg, &k, block, sum);
  for (unsigned digit = 0; digit < p->digits; digit++)
    emit_digit(cg, &k, digit, sum);
  emit_end(cg, &k, block, LLVMGetParam(fn, SUMS), LLVMGetParam(fn, STRIDE), sum);
  cy_loop_end(cg, &b, NULL);
  cy_fn_end(cg, NULL);
  cy_fn_restore(cg, state);
  return fn;
}

/* ---- the product of a task ---- */

typedef struct frame {
  const plan *p;
  V interleaved, sums, offsets, line;
  cy_matrix_rows at; /* of the task, .. */
  V rows;            /* .. so many */
  V codes;           /* of its first row */
  V q0, q1;          /* panels */
} frame;

V cy_panel_column(cy_cg *cg, int64_t n, int64_t nr, V panel) {
  return cy_imin(cg, cy_mulc(cg, panel, nr), cy_i64(cg, n - nr));
}

/* Where the sums of a panel lie, in the first row. */
static V sums_at(cy_cg *cg, const frame *f, V q) {
  return cy_gep(cg, f->sums, cy_mulc(cg, cy_sub(cg, q, f->q0), f->p->nr * 4));
}

/* Blocks [b0, b0 + count) of panel q; what comes next is asked for: a panel behind, or one of the first's next blocks. */
static void emit_interleaved(cy_cg *cg, const frame *f, V q, V b0, V count) {
  const plan *p = f->p;
  int64_t prefetch = p->few && p->bytes < FEW_PREFETCH ? FEW_PREFETCH / p->bytes : 1;
  V panels = cy_sub(cg, f->q1, f->q0), step = cy_imin(cg, cy_i64(cg, prefetch), panels);
  V next = cy_add(cg, q, step), last = cy_icmp(cg, LLVMIntSGE, next, f->q1), col = cy_panel_column(cg, p->n, p->nr, q);
  V next_col = cy_panel_column(cg, p->n, p->nr, cy_select(cg, last, cy_sub(cg, next, panels), next));
  V next_block = cy_select(cg, last, cy_addc(cg, b0, p->together), b0);
  cy_loop b;
  cy_loop_begin(cg, &b, cy_i64(cg, 0), count, cy_i64(cg, 1), NULL, 0);
  panel block = {.at = cy_int_gemm_place_of(cg, p->d, cy_add(cg, b0, b.iv), col)};
  block.prefetch = cy_int_gemm_place_of(cg, p->d, cy_add(cg, next_block, b.iv), next_col);
  block.to = cy_gep(cg, f->interleaved, cy_mulc(cg, b.iv, p->interleaved_bytes));
  emit_interleaved_block(cg, p, &block);
  cy_loop_end(cg, &b, NULL);
}

/* The kernel for `left` rows and more. */
static V kernel_for(cy_cg *cg, const plan *p, V left) {
  int64_t m = cy_csize_known(p->d->m);
  V fn = kernel_of(cg, p, p->tile.mr);
  for (unsigned few = 1; few < p->tile.mr; few++)
    if (!m || m % p->tile.mr == few)
      fn = cy_select(cg, cy_icmp(cg, LLVMIntEQ, left, cy_i64(cg, few)), kernel_of(cg, p, few), fn);
  return fn;
}

static void emit_rows(cy_cg *cg, const frame *f, V sums, V b0, V count) {
  const plan *p = f->p;
  LLVMTypeRef type = LLVMGlobalGetValueType(kernel_of(cg, p, p->tile.mr));
  V codes = cy_gep(cg, f->codes, cy_mulc(cg, b0, p->block));
  V steps = cy_gep(cg, f->codes, cy_addc(cg, cy_mulc(cg, b0, 8), steps_at(p)));
  cy_loop r;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), f->rows, cy_i64(cg, p->tile.mr), NULL, 0);
  V at = cy_mulc(cg, r.iv, p->row_bytes), fn = kernel_for(cg, p, cy_sub(cg, f->rows, r.iv));
  V args[KERNEL_ARGS] = {[OFFSETS] = f->offsets, [INTERLEAVED] = f->interleaved, [BLOCKS] = count};
  args[CODES] = cy_gep(cg, codes, at);
  args[STEPS] = cy_gep(cg, steps, at);
  args[SUMS] = cy_gep(cg, sums, cy_mulc(cg, r.iv, sum_bytes(p)));
  args[STRIDE] = cy_i64(cg, sum_bytes(p));
  LLVMBuildCall2(cg->b, type, fn, args, KERNEL_ARGS, "");
  cy_loop_end(cg, &r, NULL);
}

void cy_interleaved_order(cy_cg *cg, V from, V to) {
  V v[VECTORS];
  for (int i = 0; i < VECTORS; i++)
    v[i] = cy_load(cg, cg->vf, cy_gepc(cg, from, (int64_t)i * cg->W * 4), 4);
  for (int i = 0; i < VECTORS; i++)
    for (unsigned lane = 0; lane < cg->W / 4; lane++)
      cy_store(cg, cy_some_lanes(cg, v[i], 4 * lane, 4), cy_gepc(cg, to, (16 * lane + 4 * i) * 4), 4);
}

/* A panel's sums of a row, in the order of columns, to the line that the epilogue takes, which begins with panel `first`.
 */
static void emit_ordered(cy_cg *cg, const frame *f, V row, V q, V first) {
  const plan *p = f->p;
  V from = cy_gep(cg, sums_at(cg, f, q), cy_mulc(cg, row, sum_bytes(p)));
  V before = cy_sub(cg, cy_panel_column(cg, p->n, p->nr, q), cy_mulc(cg, first, p->nr));
  cy_interleaved_order(cg, from, cy_gepf(cg, f->line, before));
}

/* Of panels [q0, q1), as many as the line has room for. */
static void emit_line(cy_cg *cg, frame *f, V row, V q0, V q1) {
  const plan *p = f->p;
  V col = cy_mulc(cg, q0, p->nr), end = cy_imin(cg, cy_i64(cg, p->n), cy_mulc(cg, q1, p->nr));
  cy_rows index = cy_matrix_rows_index(&f->at);
  cy_loop q;
  cy_loop_begin(cg, &q, q0, q1, cy_i64(cg, 1), NULL, 0);
  emit_ordered(cg, f, row, q.iv, q0);
  cy_loop_end(cg, &q, NULL);
  cy_epilogue_tile(cg, &p->d->epilogue, &index, f->line, cy_i64(cg, 0), cy_i64(cg, 1), row, cy_sub(cg, end, col), col,
                   (unsigned)(p->n % cg->W));
}

static void emit_epilogue(cy_cg *cg, frame *f) {
  const plan *p = f->p;
  cy_loop r, q;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), f->rows, cy_i64(cg, 1), NULL, 0);
  cy_loop_begin(cg, &q, f->q0, f->q1, cy_i64(cg, p->blocks.nb), NULL, 0);
  emit_line(cg, f, r.iv, q.iv, cy_imin(cg, f->q1, cy_addc(cg, q.iv, p->blocks.nb)));
  cy_loop_end(cg, &q, NULL);
  cy_loop_end(cg, &r, NULL);
}

/* Shares [first, end) of the panels for the frame's rows. */
static void emit_shares(cy_cg *cg, frame *f, V first, V end) {
  const plan *p = f->p;
  V all = cy_i64(cg, p->panels), cb = cy_i64(cg, panel_blocks(p));
  f->q0 = cy_share_of(cg, all, cb, first).begin;
  f->q1 = cy_share_of(cg, all, cb, cy_addc(cg, end, -1)).end;
  cy_loop r, b, t;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), f->rows, cy_i64(cg, 1), NULL, 0);
  V row = cy_gep(cg, f->sums, cy_mulc(cg, r.iv, sum_bytes(p)));
  cy_fill_zero(cg, row, cy_mulc(cg, cy_sub(cg, f->q1, f->q0), p->nr));
  cy_loop_end(cg, &r, NULL);
  cy_loop_begin(cg, &b, cy_i64(cg, 0), cy_i64(cg, p->count), cy_i64(cg, p->together), NULL, 0);
  V count = cy_imin(cg, cy_i64(cg, p->together), cy_sub(cg, cy_i64(cg, p->count), b.iv));
  cy_loop_begin(cg, &t, f->q0, f->q1, cy_i64(cg, 1), NULL, 0);
  emit_interleaved(cg, f, t.iv, b.iv, count);
  emit_rows(cg, f, sums_at(cg, f, t.iv), b.iv, count);
  cy_loop_end(cg, &t, NULL);
  cy_loop_end(cg, &b, NULL);
  emit_epilogue(cg, f);
}

/* Tasks [first, end), all of block `above` of rows, counted over all matrices. */
static void emit_block_tasks(cy_cg *cg, frame *f, V above, V first, V end) {
  const plan *p = f->p;
  const cy_gemm_desc *d = p->d;
  V rb = row_blocks(cg, p), m = cy_size(cg, d->m), matrix = cy_div(cg, above, rb);
  V before = cy_mulc(cg, above, panel_blocks(p));
  cy_share r = cy_share_rows(cg, p->tile, m, p->blocks.mb, cy_mod(cg, above, rb));
  f->at = cy_matrix_rows_at(cg, d, matrix, r.begin);
  f->rows = cy_sub(cg, r.end, r.begin);
  f->codes = rounded_at(cg, p, cy_add(cg, cy_mul(cg, matrix, m), r.begin));
  V share = cy_sub(cg, first, before), stop = cy_sub(cg, end, before);
  cy_loop t;
  cy_loop_begin(cg, &t, share, stop, cy_i64(cg, p->run), NULL, 0);
  emit_shares(cg, f, t.iv, cy_imin(cg, cy_addc(cg, t.iv, p->run), stop));
  cy_loop_end(cg, &t, NULL);
}

static void emit_tasks(cy_cg *cg, const plan *p, V scratch) {
  frame f = {.p = p, .interleaved = scratch, .sums = cy_gepc(cg, scratch, interleaved_bytes(p))};
  f.offsets = cy_row_table(cg, p->tile.mr, cy_i64(cg, p->row_bytes));
  f.line = cy_gepc(cg, cy_alloca(cg, line_bytes(p) + p->nr * 4), p->nr * 4);
  V cb = cy_i64(cg, panel_blocks(p)), low = cy_div(cg, cg->begin, cb), high = cy_ceil_div(cg, cg->end, cb);
  cy_loop above;
  cy_loop_begin(cg, &above, low, high, cy_i64(cg, 1), NULL, 0);
  V begin = cy_mul(cg, above.iv, cb), end = cy_add(cg, begin, cb);
  begin = cy_imax(cg, cg->begin, begin);
  emit_block_tasks(cg, &f, above.iv, begin, cy_imin(cg, cg->end, end));
  cy_loop_end(cg, &above, NULL);
}

static void emit_gemm(cy_cg *cg, const void *of, const char *name) {
  const plan *p = of;
  const cy_gemm_desc *d = p->d;
  plan few = for_few(p);
  cy_kernel_begin(cg, name, 0);
  cy_epilogue_open(&d->epilogue, cg);
  V scratch = cy_scratch(cg, d->scratch_slot, worker_bytes(cg, p));
  cy_if choice;
  if (cy_csize_known(d->m)) {
    emit_tasks(cg, always_few(p) ? &few : p, scratch);
  } else {
    cy_if_begin(cg, &choice, cy_icmp(cg, LLVMIntSLE, cy_size(cg, d->m), cy_i64(cg, p->tile.mr)));
    emit_tasks(cg, &few, scratch);
    cy_if_else(cg, &choice);
    emit_tasks(cg, p, scratch);
    cy_if_end(cg, &choice);
  }
  cy_fn_end(cg, NULL);
}

static void *plan_make(const cy_cg *cg, const void *desc, cy_arena *arena) {
  plan p = plan_of(cg, desc);
  return cy_arena_copy(arena, &p, sizeof p);
}

static const char *name_of(const void *of) {
  return ((const plan *)of)->d->ints.bits == 8 ? "gemm int8 weights int8 rows" : "gemm int4 weights int8 rows";
}

static void describe(const void *of, char *text, size_t size) {
  const plan *p = of;
  snprintf(text, size, "tile %ux%lld, tasks of %lld rows and %lld panels, k by %lld", p->tile.mr, (long long)p->nr,
           (long long)p->blocks.mb, (long long)p->blocks.nb, (long long)p->block);
}

const cy_generator cy_quantised_rows_generator = {
    .plan = plan_make,
    .name = name_of,
    .describe = describe,
    .phase = {{"_rows", NULL, emit_rounded, rounded_count}, {"", NULL, emit_gemm, task_count}},
    .worker_bytes = worker_bytes,
    .shared_bytes = shared_bytes};
