/* SPDX-License-Identifier: Apache-2.0 */
/* quantised_rows.c - products of f32 with weights in integers, the rows rounded to 8 bits by the blocks that weights
 * have.
 *
 * Comes in: a cy_gemm_desc whose `ints` are to meet integers. Goes out: two phases. The first rounds the rows of a, once
 * for all tasks: codes[k], then for each block the step between codes and minus their sum. A task of the second has a
 * block of rows and a group of panels of 4 * W columns. By some blocks of k, it unpacks the codes of each panel, which lie
 * row by row, into dot4 of k, in the first-level cache, and multiplies all its rows by them:
 *
 *   acc[row, n] += step[row, block] * scale[block, n] * (codes of row * codes of n - zero[block, n] * sum of row)
 *
 * The bracket is exact on every CPU, the floats around it are the same operations in the same order: so are results.
 * Where there is vpdpbusd, or ARM's usdot or sdot, it takes weights of either width. vpmaddubsw adds up two products in 16 bits,
 * which hold 8 groups of k with weights of 4 bits, whatever the codes; weights of 8 bits are multiplied as two digits of
 * 4 then.
 *
 * Rows that are few, those of one call of the micro-kernel, wait for weights: tasks that follow each other are done as one
 * then, block by block of k, so that weights are read in the order they lie in, and asked for long before.
 *
 * Interleaving is done in lanes of 128 bits, by two rounds of unpack: vector q of a panel has columns 16 L + 4 q + [0, 4) in
 * lane L. Accumulators stay in this order till the epilogue, scales and zero points are read in it. The last panel of columns
 * that do not fill it begins so early that it ends with them. Phases, tasks and the epilogue are those of scaled.c.
 */
#include "scaled.h"

#include <stdio.h>
#include <string.h>

enum {
  VECTORS = CY_SCALED_VECTORS, /* of a panel: what two rounds of unpack give */
  MAX_COLUMNS = 64,            /* of a panel: all CPUs take the same products */
  INTERLEAVED_ROWS = 128,      /* rows of k that are interleaved at a time, about */
  MAX_ROWS = 192,              /* of a task: accumulators stay in the second-level cache */
  MAX_PANELS = 8,              /* of a task, and .. */
  MIN_TASKS = 16,              /* .. so many tasks, if there are enough panels */
  FEW_RUN = 16,                /* few rows: tasks done as one, at most, and .. */
  FEW_PREFETCH = 256,          /* .. rows of bytes from the panel that is interleaved to the one that is asked for */
  EXACT_GROUPS = 8,            /* 8 * 2 * 127 * 15 fits in 16 bits, .. */
  MAX_BLOCK = 128              /* .. as does 128 * 127 */
};

typedef struct plan {
  cy_scaled s;
  bool dot4;
  unsigned digits;           /* of 4 bits, that weights are multiplied by one after the other; 1: whole codes */
  int64_t flip;              /* what codes are more when they are read as the instruction takes them */
  int64_t groups;            /* of 4 k in a block */
  int64_t interleaved_bytes; /* of a panel's block */
  bool few;                  /* rows */
} plan;

static const plan *plan_at(const cy_scaled_frame *f) { return (const plan *)f->p; }

bool cy_quantised_rows_possible(const cy_cg *cg, int bits, int64_t block, int64_t tile, int64_t n) {
  return (cg->avx2 || cg->vnni) && cg->fma && block <= MAX_BLOCK && block * bits / 8 % 4 == 0 && n >= MAX_COLUMNS &&
         (tile == n || tile % MAX_COLUMNS == 0);
}

/* Rows whose accumulators fit the registers, without vpdpbusd twice: in 16 and in 32 bits. */
static unsigned tile_rows(const cy_cg *cg, int64_t rows) {
  bool dot4 = cy_scaled_dot4(cg);
  unsigned max = cg->registers == 32 ? (dot4 ? 6 : 4) : dot4 ? 3 : 2;
  return rows && rows < max ? (unsigned)rows : max;
}

/* Blocks that are interleaved at a time, and what follows from that and from the rows and panels of a task. */
static void plan_blocks(plan *p, int64_t mb, int64_t run, int64_t k_blocks) {
  cy_scaled *s = &p->s;
  s->mb = mb;
  s->run = run;
  s->k_blocks = k_blocks;
  s->weight_bytes = cy_round_up(k_blocks * p->interleaved_bytes, 64);
  s->acc_bytes = run * s->nb * s->nr * 4;
}

static const cy_scaled_ops ops;

static plan plan_of(const cy_cg *cg, const cy_gemm_desc *d) {
  int64_t rows = cy_csize_known(d->m);
  plan p = {.s = cy_scaled_plan(&ops, d, VECTORS * (int64_t)cg->W), .dot4 = cy_scaled_dot4(cg)};
  cy_scaled *s = &p.s;
  if (d->ints.bits == 8 && d->ints.is_signed != cg->sdot)
    p.flip = cg->sdot ? -128 : 128;
  p.digits = d->ints.bits == 8 && !p.dot4 ? 2 : 1;
  p.groups = s->block / 4;
  p.interleaved_bytes = s->nr * (8 + p.groups * 4 * p.digits);
  s->tile = (cy_tile){tile_rows(cg, rows), VECTORS};
  s->row_bytes = cy_round_up(cy_round_up(s->k, 8) + s->count * 8, 64);
  s->row_bytes += s->row_bytes % 1024 ? 0 : 64;
  int64_t max = MAX_ROWS / s->tile.mr * s->tile.mr, nb = s->panels / MIN_TASKS;
  s->nb = s->line = nb < 1 ? 1 : nb < MAX_PANELS ? nb : MAX_PANELS;
  plan_blocks(&p, rows && rows < max ? cy_round_up(rows, s->tile.mr) : max, 1,
              s->block < INTERLEAVED_ROWS ? INTERLEAVED_ROWS / s->block : 1);
  return p;
}

/* The plan p for few rows. */
static plan for_few(const plan *p) {
  plan few = *p;
  few.few = true;
  plan_blocks(&few, p->s.tile.mr, FEW_RUN, 1);
  return few;
}

static bool always_few(const plan *p) {
  int64_t rows = cy_csize_known(p->s.d->m);
  return rows && rows <= (int64_t)p->s.tile.mr;
}

static V worker_bytes(cy_cg *cg, const void *ctx) {
  const plan *p = ctx, few = for_few(p);
  int64_t one = p->s.weight_bytes + p->s.mb * p->s.acc_bytes;
  int64_t other = few.s.weight_bytes + few.s.mb * few.s.acc_bytes;
  return cy_i64(cg, always_few(p) || one < other ? other : one);
}

/* ---- rows of a ---- */

static V ints_of(cy_cg *cg, V floats, unsigned lanes) {
  return LLVMBuildBitCast(cg->b, floats, LLVMVectorType(cg->i32, lanes), "");
}

/* x * inverse, rounded: as bits of a float whose last ones count units. Stores codes; returns `sum` and their sum. */
static V emit_codes(cy_cg *cg, V x, V inverse, V to, V sum, unsigned lanes) {
  const double unit = 12582912; /* 1.5 * 2^23 */
  V bits = ints_of(cg, cy_fma(cg, x, inverse, cy_splatf(cg, unit, lanes)), lanes);
  V code = LLVMBuildSub(cg->b, bits, ints_of(cg, cy_splatf(cg, unit, lanes), lanes), "");
  cy_store(cg, LLVMBuildTrunc(cg->b, code, LLVMVectorType(cg->i8, lanes), ""), to, 1);
  return LLVMBuildAdd(cg->b, sum, code, "");
}

/* What a rounded row has behind its codes. */
static int64_t steps_at(const plan *p) { return cy_round_up(p->s.k, 8); }

/* A block of a row: its codes, then behind all codes its step and minus the sum of its codes, times the zero point where all
 * weights have one. Magnitudes below `min` count as nothing: 127 by them might not be finite. Where there is something that is
 * not finite, neither is the step. */
static void round_block(cy_cg *cg, const void *of, V from, V row, V block) {
  const double min = 1e-36;
  const plan *p = of;
  const cy_gemm_desc *d = p->s.d;
  unsigned lanes = cy_scaled_lanes(cg, &p->s);
  V stride = cy_size(cg, d->ak), max = cy_scaled_largest(cg, &p->s, from, lanes);
  V to = cy_gep(cg, row, cy_mulc(cg, block, p->s.block)), more = cy_gepc(cg, row, steps_at(p));
  V tiny = LLVMBuildFCmp(cg->b, LLVMRealOLT, max, LLVMConstReal(cg->f32, min), "");
  V top = LLVMConstReal(cg->f32, 127), inverse = LLVMBuildFDiv(cg->b, top, max, "");
  V factor = cy_splat(cg, cy_select(cg, tiny, LLVMConstReal(cg->f32, 0), inverse), lanes);
  V sum = LLVMConstNull(LLVMVectorType(cg->i32, lanes));
  cy_loop i;
  cy_loop_begin(cg, &i, cy_i64(cg, 0), cy_i64(cg, p->s.block), cy_i64(cg, lanes), &sum, 1);
  V x = cy_scaled_floats(cg, cy_gepf(cg, from, cy_mul(cg, i.iv, stride)), stride, lanes);
  sum = emit_codes(cg, x, factor, cy_gep(cg, to, i.iv), i.v[0], lanes);
  cy_loop_end(cg, &i, &sum);
  V weight = cy_i32(cg, (int32_t)(d->ints.zero_slot < 0 ? -(d->ints.middle + p->flip) : -1));
  sum = LLVMBuildMul(cg->b, cy_lanes_sum(cg, i.out[0]), weight, "");
  more = cy_gep(cg, more, cy_mulc(cg, block, 8));
  cy_store(cg, LLVMBuildFDiv(cg->b, max, top, ""), more, 4);
  cy_store(cg, sum, cy_gepc(cg, more, 4), 4);
}

/* ---- a panel's block, interleaved: scales, zero points (i32), then vectors of dot4: [digit][group][VECTORS] ---- */

typedef struct panel {
  cy_scaled_place at, prefetch; /* prefetch: what is interleaved next, to be prefetched */
  V to;
} panel;

/* Rows r .. r + 3 of bytes. */
static void load_dot4(cy_cg *cg, const plan *p, const panel *q, V row, V *out) {
  LLVMTypeRef type = LLVMVectorType(cg->i8, 4 * cg->W);
  V line[4], flip = cy_splat(cg, LLVMConstInt(cg->i8, 0x80, 0), 4 * cg->W);
  for (int i = 0; i < 4; i++) {
    V at = cy_mulc(cg, cy_addc(cg, row, i), p->s.d->ints.tile);
    line[i] = cy_load(cg, type, cy_gep(cg, q->at.codes, at), 1);
    if (p->flip)
      line[i] = LLVMBuildXor(cg->b, line[i], flip, "");
    cy_prefetch(cg, cy_gep(cg, q->prefetch.codes, at), false, p->few ? CY_FIRST_LEVEL : CY_SECOND_LEVEL);
  }
  cy_scaled_interleave(cg, line, 0, VECTORS, out);
}

static void emit_interleaved_rows(cy_cg *cg, const plan *p, const panel *q) {
  bool digits = p->s.d->ints.bits == 4 || p->digits == 2; /* the higher ones lie behind all lower ones */
  int64_t vector = (int64_t)cg->W * 4, group = VECTORS * vector, high = p->s.bytes / 4 * group;
  V mask = cy_splat(cg, cy_i32(cg, 0x0f0f0f0f), cg->W);
  cy_loop r;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), cy_i64(cg, p->s.bytes), cy_i64(cg, 4), NULL, 0);
  V four[VECTORS], to = cy_gep(cg, q->to, cy_mulc(cg, r.iv, group / 4));
  load_dot4(cg, p, q, r.iv, four);
  for (int i = 0; i < VECTORS; i++) {
    V at = cy_gepc(cg, to, p->s.nr * 8 + i * vector);
    cy_store(cg, digits ? cy_scaled_half(cg, four[i], mask, false) : four[i], at, 4);
    if (digits)
      cy_store(cg, cy_scaled_half(cg, four[i], mask, true), cy_gepc(cg, at, high), 4);
  }
  cy_loop_end(cg, &r, NULL);
}

static void emit_interleaved_block(cy_cg *cg, const plan *p, const panel *q) {
  V zeros = q->at.zeros ? cy_scaled_interleaved_zeros(cg, q->at.zeros) : NULL;
  for (int i = 0; i < VECTORS; i++) {
    V to = cy_gepc(cg, q->to, (int64_t)i * cg->W * 4);
    cy_store(cg, cy_scaled_interleaved_scales(cg, q->at.scales, (unsigned)i), to, 4);
    cy_prefetch(cg, cy_gepc(cg, q->prefetch.scales, (int64_t)i * cg->W * 4), false, CY_SECOND_LEVEL);
    if (zeros) {
      V some = LLVMBuildZExt(cg->b, cy_some_lanes(cg, zeros, (unsigned)i * cg->W, cg->W), cg->vi, "");
      some = LLVMBuildAdd(cg->b, some, cy_splat(cg, cy_i32(cg, (int32_t)p->flip), cg->W), "");
      cy_store(cg, some, cy_gepc(cg, to, p->s.nr * 4), 4);
    }
  }
  if (zeros)
    cy_prefetch(cg, q->prefetch.zeros, false, CY_SECOND_LEVEL);
  emit_interleaved_rows(cg, p, q);
}

/* ---- the micro-kernel: mr rows by a panel, some blocks of k ---- */

/* void (ptr codes, ptr steps, ptr row_offsets, ptr interleaved, ptr acc, i64 acc_stride, i64 blocks): codes and steps of the
 * first row, at the first of the blocks; bytes. */
enum { CODES, STEPS, OFFSETS, INTERLEAVED, ACC, STRIDE, BLOCKS, KERNEL_ARGS };

typedef struct kernel {
  const plan *p;
  unsigned mr;
  V code[8], step[8]; /* of rows, at the block at hand */
  V interleaved;      /* its dot4 */
} kernel;

static unsigned accumulators_of(const kernel *k) { return k->mr * VECTORS; }

/* Group `at` + i of k, whose codes are those of group `row_at` + i: accumulators become the next ones. */
static void emit_group(cy_cg *cg, const kernel *k, V at, V row_at, int64_t i, V *sum) {
  V b[VECTORS], from = cy_gep(cg, k->interleaved, cy_mulc(cg, cy_addc(cg, at, i), k->p->s.nr * 4));
  for (int j = 0; j < VECTORS; j++)
    b[j] = cy_load(cg, cg->vi, cy_gepc(cg, from, (int64_t)j * cg->W * 4), 4);
  for (unsigned r = 0; r < k->mr; r++) {
    V code = cy_gep(cg, k->code[r], cy_mulc(cg, cy_addc(cg, row_at, i), 4));
    V a = cy_splat(cg, cy_load(cg, cg->i32, code, 1), cg->W);
    for (int j = 0; j < VECTORS; j++) {
      V *s = &sum[r * VECTORS + j];
      *s = cy_scaled_add(cg, *s, b[j], a);
    }
  }
  cy_emit_fence(cg);
}

/* Groups of one digit, weighing so much, onto accumulators of 32 bits. */
static void emit_digit(cy_cg *cg, const kernel *k, unsigned digit, V *sum) {
  int64_t once = cy_scaled_divisor(k->p->groups, EXACT_GROUPS);
  unsigned n = accumulators_of(k);
  V first = cy_i64(cg, digit * k->p->groups), part[CY_LOOP_MAX];
  LLVMTypeRef words = LLVMVectorType(cg->i16, 2 * cg->W);
  V weight = cy_splat(cg, LLVMConstInt(cg->i16, digit ? 16 : 1, 0), 2 * cg->W);
  cy_loop g;
  cy_loop_begin(cg, &g, cy_i64(cg, 0), cy_i64(cg, k->p->groups), cy_i64(cg, once), sum, n);
  for (unsigned i = 0; i < n; i++)
    part[i] = k->p->dot4 ? g.v[i] : LLVMConstNull(words);
  for (int64_t i = 0; i < once; i++)
    emit_group(cg, k, cy_add(cg, first, g.iv), g.iv, i, part);
  for (unsigned i = 0; i < n && !k->p->dot4; i++)
    part[i] = LLVMBuildAdd(cg->b, g.v[i], cy_int_gemm_dot2_times(cg, part[i], weight), "");
  cy_loop_end(cg, &g, part);
  memcpy(sum, g.out, n * sizeof *sum);
}

/* What accumulators of a block begin with: minus the sum of the row's codes, which 16 bits hold, times the zero point. */
static void emit_begin(cy_cg *cg, const kernel *k, V block, V *sum) {
  const cy_gemm_desc *d = k->p->s.d;
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

/* acc += step * scale * what the block gave. */
static void emit_end(cy_cg *cg, const kernel *k, V block, V acc, V stride, const V *sum) {
  V scale[VECTORS];
  for (int j = 0; j < VECTORS; j++)
    scale[j] = cy_load(cg, cg->vf, cy_gepc(cg, block, (int64_t)j * cg->W * 4), 4);
  for (unsigned r = 0; r < k->mr; r++, acc = cy_gep(cg, acc, stride)) {
    V step = cy_splat(cg, cy_load(cg, cg->f32, k->step[r], 4), cg->W);
    for (int j = 0; j < VECTORS; j++) {
      V at = cy_gepc(cg, acc, (int64_t)j * cg->W * 4), factor = LLVMBuildFMul(cg->b, step, scale[j], "");
      V exact = LLVMBuildSIToFP(cg->b, sum[r * VECTORS + j], cg->vf, "");
      cy_store(cg, cy_fma(cg, exact, factor, cy_load(cg, cg->vf, at, 4)), at, 4);
    }
  }
}

static V kernel_of(cy_cg *cg, const plan *p, unsigned mr) {
  const cy_gemm_desc *d = p->s.d;
  char name[64];
  snprintf(name, sizeof name, "cyk_codes%d%s%s_%ux%lld_%lld", d->ints.bits, d->ints.zero_slot < 0 ? "" : "z",
           p->dot4 ? "" : "_digits", mr, (long long)p->s.nr, (long long)p->s.block);
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
  kernel k = {.p = p, .mr = mr, .interleaved = cy_gepc(cg, block, p->s.nr * 8)};
  for (unsigned r = 0; r < mr; r++) {
    k.code[r] = cy_gep(cg, cy_gep(cg, LLVMGetParam(fn, CODES), cy_mulc(cg, b.iv, p->s.block)), offset[r]);
    k.step[r] = cy_gep(cg, cy_gep(cg, LLVMGetParam(fn, STEPS), cy_mulc(cg, b.iv, 8)), offset[r]);
  }
  emit_begin(cg, &k, block, sum);
  for (unsigned digit = 0; digit < p->digits; digit++)
    emit_digit(cg, &k, digit, sum);
  emit_end(cg, &k, block, LLVMGetParam(fn, ACC), LLVMGetParam(fn, STRIDE), sum);
  cy_loop_end(cg, &b, NULL);
  cy_fn_end(cg, NULL);
  cy_fn_restore(cg, state);
  return fn;
}

/* ---- the product of a task ---- */

/* Blocks [b0, b0 + count) of panel q; what comes next is asked for: a panel behind, or one of the first's next blocks. */
static void emit_interleaved(cy_cg *cg, const cy_scaled_frame *f, V q, V b0, V count) {
  const plan *p = plan_at(f);
  int64_t prefetch = p->few && p->s.bytes < FEW_PREFETCH ? FEW_PREFETCH / p->s.bytes : 1;
  V panels = cy_sub(cg, f->q1, f->q0), step = cy_imin(cg, cy_i64(cg, prefetch), panels);
  V next = cy_add(cg, q, step), last = cy_icmp(cg, LLVMIntSGE, next, f->q1), col = cy_scaled_column(cg, f->p, q);
  V next_col = cy_scaled_column(cg, f->p, cy_select(cg, last, cy_sub(cg, next, panels), next));
  V next_block = cy_select(cg, last, cy_addc(cg, b0, p->s.k_blocks), b0);
  cy_loop b;
  cy_loop_begin(cg, &b, cy_i64(cg, 0), count, cy_i64(cg, 1), NULL, 0);
  panel block = {.at = cy_scaled_place_of(cg, p->s.d, cy_add(cg, b0, b.iv), col)};
  block.prefetch = cy_scaled_place_of(cg, p->s.d, cy_add(cg, next_block, b.iv), next_col);
  block.to = cy_gep(cg, f->weights, cy_mulc(cg, b.iv, p->interleaved_bytes));
  emit_interleaved_block(cg, p, &block);
  cy_loop_end(cg, &b, NULL);
}

/* The kernel for `left` rows and more. */
static V kernel_for(cy_cg *cg, const plan *p, V left) {
  int64_t m = cy_csize_known(p->s.d->m);
  V fn = kernel_of(cg, p, p->s.tile.mr);
  for (unsigned few = 1; few < p->s.tile.mr; few++)
    if (!m || m % p->s.tile.mr == few)
      fn = cy_select(cg, cy_icmp(cg, LLVMIntEQ, left, cy_i64(cg, few)), kernel_of(cg, p, few), fn);
  return fn;
}

/* All rows times the blocks that are interleaved. */
static void emit_rows(cy_cg *cg, const cy_scaled_frame *f, V acc, V b0, V count) {
  const plan *p = plan_at(f);
  LLVMTypeRef type = LLVMGlobalGetValueType(kernel_of(cg, p, p->s.tile.mr));
  V codes = cy_gep(cg, f->m, cy_mulc(cg, b0, p->s.block));
  V steps = cy_gep(cg, f->m, cy_addc(cg, cy_mulc(cg, b0, 8), steps_at(p)));
  cy_loop r;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), f->rows, cy_i64(cg, p->s.tile.mr), NULL, 0);
  V at = cy_mulc(cg, r.iv, p->s.row_bytes), fn = kernel_for(cg, p, cy_sub(cg, f->rows, r.iv));
  V args[KERNEL_ARGS] = {[OFFSETS] = f->row_table, [INTERLEAVED] = f->weights, [BLOCKS] = count};
  args[CODES] = cy_gep(cg, codes, at);
  args[STEPS] = cy_gep(cg, steps, at);
  args[ACC] = cy_gep(cg, acc, cy_mulc(cg, r.iv, p->s.acc_bytes));
  args[STRIDE] = cy_i64(cg, p->s.acc_bytes);
  LLVMBuildCall2(cg->b, type, fn, args, KERNEL_ARGS, "");
  cy_loop_end(cg, &r, NULL);
}

static void multiply(cy_cg *cg, const cy_scaled_frame *f, V first, V count) {
  cy_loop q;
  cy_loop_begin(cg, &q, f->q0, f->q1, cy_i64(cg, 1), NULL, 0);
  emit_interleaved(cg, f, q.iv, first, count);
  emit_rows(cg, f, cy_scaled_acc_at(cg, f, q.iv), first, count);
  cy_loop_end(cg, &q, NULL);
}

static const cy_scaled_ops ops = {.round = round_block, .multiply = multiply, .interleaved = true};

static void emit_gemm(cy_cg *cg, const void *of, const char *name) {
  const plan *p = of, few = for_few(p);
  const cy_gemm_desc *d = p->s.d;
  V scratch = cy_phase_begin(cg, name, 0, &d->epilogue, d->scratch_slot, worker_bytes, p);
  cy_if choice;
  if (cy_csize_known(d->m)) {
    cy_scaled_tasks(cg, always_few(p) ? &few.s : &p->s, scratch);
  } else {
    cy_if_begin(cg, &choice, cy_icmp(cg, LLVMIntSLE, cy_size(cg, d->m), cy_i64(cg, p->s.tile.mr)));
    cy_scaled_tasks(cg, &few.s, scratch);
    cy_if_else(cg, &choice);
    cy_scaled_tasks(cg, &p->s, scratch);
    cy_if_end(cg, &choice);
  }
  cy_fn_end(cg, NULL);
}

CY_PLAN_MAKE(plan)

static const char *name_of(const void *of) {
  return ((const plan *)of)->s.d->ints.bits == 8 ? "gemm int8 weights int8 rows" : "gemm int4 weights int8 rows";
}

const cy_generator cy_quantised_rows_generator = {CY_SCALED_PHASES(emit_gemm), .plan = plan_make, .name = name_of,
                                                  .describe = cy_scaled_describe, .worker_bytes = worker_bytes};
