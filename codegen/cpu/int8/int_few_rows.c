/* SPDX-License-Identifier: Apache-2.0 */
/* int_few_rows.c - a few rows of f32 times weights of 4 bits, as exact as sums of f32, by instructions for bytes.
 *
 * Comes in: a cy_gemm_desc of up to CY_INT_GEMM_FEW rows with `ints` of 4 bits. Goes out: two phases. Few rows wait for
 * weights, and where these are not read from memory fast, for making floats of them: a conversion and an fma for 16
 * (AVX2: 8) of them. So the first phase makes integers of 24 bits of the rows instead, by the blocks that weights have,
 * each as three digits of 8 bits, which vpdpbusd, vpmaddubsw or ARM's usdot and sdot multiply 64 (32) at a time:
 *
 *   x = step * (high * 2^16 + middle * 2^8 + low),  |x / step| up to TOP, the largest of the block
 *
 * Sums of a block are exact, digit by digit, less zero points, too; they are joined in f32. What rounding x loses is less
 * than a 2^23rd of the block's largest, which f32 loses in adding up as well.
 *
 * A task of the second phase has a group of columns. It goes through all blocks of k, and in each through its columns, in
 * the order that weights lie in. A panel of 4 * W columns is interleaved into dot4 of k in registers, in the order that
 * quantised_rows.c tells, in which accumulators stay till the epilogue. vpmaddubsw adds up two products in 16 bits, which hold 8
 * groups of k. The last panel of columns that do not fill it begins so early that it ends with them. Phases, tasks and
 * the epilogue are those of scaled.c.
 */
#include "scaled.h"

#include <stdio.h>
#include <string.h>

enum { UPPER = 4, LOW = 8, WORDS = 12 }; /* of a block's head, see emit_head */

enum {
  VECTORS = CY_SCALED_VECTORS,
  DIGITS = 3,
  TOP = 0x7f7f00,         /* less than 127 * (2^16 + 2^8 + 1), by more than rounding adds */
  MIDDLE = 0x808080,      /* makes digits of two's complement: they are bytes less 128 */
  HEAD_BYTES = 16,        /* of a block, see emit_head */
  AT_ONCE = 4,            /* groups of rows of bytes in a loop's body: 8 of k, 8 * 2 * 128 * 15 fits in 16 bits */
  UNIT = 64,              /* columns; tasks have multiples of it */
  MIN_TASKS = 32,         /* if there are enough units */
  MAX_UNITS = 8,          /* of a task */
  RUN_COLUMNS = 4096,     /* of tasks done as one: accumulators stay in the first-level cache */
  PREFETCH_BYTES = 16384, /* of codes, from what is multiplied to what is asked for */
  LINE = 64,
  SHARE_BLOCKS = 1024 /* k of a task of the first phase, about */
};

typedef struct plan {
  cy_scaled s;
  bool dot4;           /* vpdpbusd or the like; else vpmaddubsw */
  unsigned nv;         /* vectors of a panel that are added up at a time */
  int64_t block_bytes; /* of a rounded row */
} plan;

bool cy_int_gemm_few_possible(const cy_cg *cg, int bits, int64_t block, int64_t tile, int64_t n) {
  return cy_form_on(cg, CY_FORM_INT_FEW_ROWS) && bits == 4 && cy_quantised_rows_possible(cg, bits, block, tile, n);
}

static const cy_scaled_ops ops;

static plan plan_of(const cy_cg *cg, const cy_gemm_desc *d) {
  plan p = {.s = cy_scaled_plan(&ops, d, VECTORS * (int64_t)cg->W),
            .dot4 = cy_scaled_dot4(cg),
            .nv = cg->registers == 32 ? VECTORS : VECTORS / 2,
            .block_bytes = HEAD_BYTES + DIGITS * d->ints.block};
  cy_scaled *s = &p.s;
  int64_t units = cy_ceil(s->n, UNIT) / MIN_TASKS, task = units < 1 ? 1 : units < MAX_UNITS ? units : MAX_UNITS;
  s->tile = (cy_tile){CY_INT_GEMM_FEW, p.nv};
  s->unit = UNIT / s->nr;
  s->mb = CY_INT_GEMM_FEW;
  s->nb = task * s->unit;
  s->run = RUN_COLUMNS / (UNIT * task);
  s->line = s->run * s->nb; /* fewer at a time would be loaded before their stores are done */
  s->share = s->block < SHARE_BLOCKS ? SHARE_BLOCKS / s->block : 1;
  s->row_bytes = s->count * p.block_bytes;
  s->acc_bytes = (RUN_COLUMNS + s->nr) * 4; /* not all rows in the same sets of the first-level cache */
  return p;
}

/* ---- rows of a: for each block its head, then the digits: [digit, low ones first][k] ---- */

/* x by that, rounded to an integer, whatever x is. */
static V rounded(cy_cg *cg, V x, V inverse, unsigned lanes) {
  V args[2] = {LLVMBuildFMul(cg->b, x, inverse, ""), cy_splatf(cg, -TOP - 1, lanes)};
  args[0] = cy_intrinsic(cg, "llvm.maxnum", cy_vecf(cg, lanes), args, 2);
  args[1] = cy_splatf(cg, TOP + 1, lanes);
  V near = cy_intrinsic(cg, "llvm.minnum", cy_vecf(cg, lanes), args, 2);
  near = cy_intrinsic(cg, "llvm.rint", cy_vecf(cg, lanes), &near, 1);
  return LLVMBuildFPToSI(cg->b, near, LLVMVectorType(cg->i32, lanes), "");
}

/* Digits of `lanes` integers, to each plane, and onto their sums. */
static void emit_digits(cy_cg *cg, const plan *p, V v, V to, V *sum, unsigned lanes) {
  LLVMTypeRef bytes = LLVMVectorType(cg->i8, lanes);
  V flip = cy_splat(cg, LLVMConstInt(cg->i8, 0x80, 0), lanes);
  v = LLVMBuildAdd(cg->b, v, cy_splat(cg, cy_i32(cg, MIDDLE), lanes), "");
  for (int i = 0; i < DIGITS; i++) {
    V part = i ? LLVMBuildLShr(cg->b, v, cy_splat(cg, cy_i32(cg, 8 * i), lanes), "") : v;
    V digit = LLVMBuildXor(cg->b, LLVMBuildTrunc(cg->b, part, bytes, ""), flip, "");
    cy_store(cg, digit, cy_gepc(cg, to, i * p->s.block), 1);
    sum[i] = LLVMBuildAdd(cg->b, sum[i], LLVMBuildSExt(cg->b, digit, LLVMTypeOf(sum[i]), ""), "");
  }
}

/* NaN where something is not finite. */
static V step_of(cy_cg *cg, V max, V largest) {
  V wrong = LLVMBuildFSub(cg->b, max, max, "");
  return LLVMBuildFAdd(cg->b, LLVMBuildFDiv(cg->b, largest, LLVMConstReal(cg->f32, TOP), ""), wrong, "");
}

/* The step, and minus the sums of digits, by which zero points count: 256 * high + middle, low, both times the zero point
 * where all weights have one; behind them, where zero points are read, the first two as words, middle ones first. */
static void emit_head(cy_cg *cg, const plan *p, V step, const V *sum, V to) {
  V less[DIGITS], weight = cy_i32(cg, (int32_t)(p->s.d->ints.zero_slot < 0 ? -p->s.d->ints.middle : -1));
  V byte = cy_i32(cg, 8), word = cy_i32(cg, 16);
  for (int i = 0; i < DIGITS; i++)
    less[i] = LLVMBuildMul(cg->b, cy_lanes_sum(cg, sum[i]), weight, "");
  V upper = LLVMBuildAdd(cg->b, LLVMBuildShl(cg->b, less[2], byte, ""), less[1], "");
  V middle = LLVMBuildAnd(cg->b, less[1], cy_i32(cg, 0xffff), "");
  cy_store(cg, step, to, 4);
  cy_store(cg, upper, cy_gepc(cg, to, UPPER), 4);
  cy_store(cg, less[0], cy_gepc(cg, to, LOW), 4);
  cy_store(cg, LLVMBuildOr(cg->b, LLVMBuildShl(cg->b, less[2], word, ""), middle, ""), cy_gepc(cg, to, WORDS), 4);
}

/* A block of a row. Numbers below `min` are as coarse as its own: TOP by them might not be finite. Where there is
 * something that is not finite, the step is NaN. */
static void round_block(cy_cg *cg, const void *of, V from, V row, V block) {
  const double min = 1e-30;
  const plan *p = of;
  unsigned lanes = cy_scaled_lanes(cg, &p->s);
  V to = cy_gep(cg, row, cy_mulc(cg, block, p->block_bytes)), floor = LLVMConstReal(cg->f32, min), sum[DIGITS];
  V stride = cy_size(cg, p->s.d->ak), max = cy_scaled_largest(cg, &p->s, from, lanes),
    top = LLVMConstReal(cg->f32, TOP);
  V largest = cy_select(cg, LLVMBuildFCmp(cg->b, LLVMRealOLT, max, floor, ""), floor, max);
  V inverse = cy_splat(cg, LLVMBuildFDiv(cg->b, top, largest, ""), lanes);
  for (int i = 0; i < DIGITS; i++)
    sum[i] = LLVMConstNull(LLVMVectorType(cg->i32, lanes));
  for (int64_t i = 0; i < p->s.block; i += lanes) {
    V x = cy_scaled_floats(cg, cy_gepf(cg, from, cy_mulc(cg, stride, i)), stride, lanes);
    V q = rounded(cg, x, inverse, lanes);
    emit_digits(cg, p, q, cy_gepc(cg, to, HEAD_BYTES + i), sum, lanes);
  }
  emit_head(cg, p, step_of(cg, max, largest), sum, to);
}

/* ---- the micro-kernel: a block of k, so many tiles of columns ---- */

/* void (i64 rows, i64 row_bytes, i64 tiles, i64 same, ptr digits, ptr acc, then thrice codes, scales and zeros): digits and
 * accumulators of the first row, from the first column on; row_bytes: from the digits of a row to those of the next. What is
 * multiplied, and what is asked for meanwhile: less than `same` tiles from the first on, .. and behind them, both told as
 * if from the first on. */
enum {
  ROWS,
  ROW_BYTES,
  TILES,
  SAME,
  FIRST_POINTER,
  DIGITS_AT = FIRST_POINTER,
  ACC,
  CODES,
  PREFETCH = CODES + 3,
  LATER = PREFETCH + 3,
  KERNEL_ARGS = LATER + 3
};

typedef struct kernel {
  const plan *p;
  unsigned first;        /* vector of the panel that accumulators begin with */
  V row, mask;           /* block of a row; the lower 4 bits of bytes */
  cy_scaled_place at;    /* of a panel */
  V scale[VECTORS];      /* .. and in the order of accumulators .. */
  V zero[VECTORS], acc;  /* .. as i32; NULL: there are none */
} kernel;

/* What is added up of a vector of columns: low digits, then middle and high ones, or 256 * high + middle ones. */
static unsigned accumulators_of(const kernel *k) { return (k->p->dot4 ? DIGITS : 2) * k->p->nv; }

/* Rows [row, row + 4) of bytes, interleaved into dot4: vectors from the first on. */
static void load_dot4(cy_cg *cg, const kernel *k, V row, V *out) {
  LLVMTypeRef type = LLVMVectorType(cg->i8, 4 * cg->W);
  V line[4];
  for (int i = 0; i < 4; i++) {
    V at = cy_gep(cg, k->at.codes, cy_mulc(cg, cy_addc(cg, row, i), k->p->s.d->ints.tile));
    line[i] = cy_load(cg, type, at, 1);
  }
  cy_scaled_interleave(cg, line, k->first, k->p->nv, out);
}

/* Four of the digits, `at` of all, in each lane. */
static V load_digits(cy_cg *cg, const kernel *k, V at) {
  return cy_splat(cg, cy_load(cg, cg->i32, cy_gepc(cg, cy_gep(cg, k->row, at), HEAD_BYTES), 1), cg->W);
}

/* Otherwise LLVM adds up products of several groups first, for which there are no registers. */
static void fence(cy_cg *cg, unsigned n, V *sum) {
  LLVMTypeRef type = LLVMTypeOf(sum[0]);
  for (unsigned i = 0; i < n; i++)
    sum[i] = LLVMBuildBitCast(cg->b, sum[i], cg->vf, "");
  cy_accumulators_fence(cg, n, sum);
  for (unsigned i = 0; i < n; i++)
    sum[i] = LLVMBuildBitCast(cg->b, sum[i], type, "");
}

/* Rows [row, row + 4) of bytes, with the digits that they meet. */
static void emit_group(cy_cg *cg, const kernel *k, V row, V *sum) {
  const plan *p = k->p;
  V four[VECTORS], half[VECTORS];
  load_dot4(cg, k, row, four);
  for (int high = 0; high < 2; high++) {
    for (unsigned j = 0; j < p->nv; j++)
      half[j] = cy_scaled_half(cg, four[j], k->mask, high);
    for (int i = 0; i < DIGITS; i++) {
      V digits = load_digits(cg, k, cy_addc(cg, row, i * p->s.block + high * p->s.bytes));
      for (unsigned j = 0; j < p->nv; j++) {
        V *s = &sum[(unsigned)i * p->nv + j];
        *s = cy_scaled_add(cg, *s, half[j], digits);
      }
    }
    fence(cg, DIGITS * p->nv, sum);
  }
}

/* Groups of rows of bytes that are done without a loop. */
static int64_t groups_at_once(const plan *p) { return cy_scaled_divisor(p->s.bytes / 4, AT_ONCE); }

/* Accumulators of 16 bits, each of which weighs so much, onto `sum`. */
static V add_words(cy_cg *cg, V sum, V words, int64_t weight) {
  V by = cy_splat(cg, LLVMConstInt(cg->i16, (uint64_t)weight, 0), 2 * cg->W);
  return LLVMBuildAdd(cg->b, sum, cy_int_gemm_dot2_times(cg, words, by), "");
}

/* Some groups without a loop. */
static void emit_groups(cy_cg *cg, const kernel *k, V row, V *sum) {
  unsigned nv = k->p->nv;
  V part[DIGITS * VECTORS];
  for (unsigned i = 0; i < DIGITS * nv; i++)
    part[i] = k->p->dot4 ? sum[i] : LLVMConstNull(LLVMVectorType(cg->i16, 2 * cg->W));
  for (int64_t i = 0; i < groups_at_once(k->p); i++)
    emit_group(cg, k, cy_addc(cg, row, 4 * i), part);
  if (k->p->dot4) {
    memcpy(sum, part, DIGITS * nv * sizeof *sum);
    return;
  }
  for (unsigned j = 0; j < nv; j++) {
    sum[j] = add_words(cg, sum[j], part[j], 1);
    sum[nv + j] = add_words(cg, add_words(cg, sum[nv + j], part[nv + j], 1), part[2 * nv + j], 256);
  }
}

static void emit_depth(cy_cg *cg, const kernel *k, V *sum) {
  int64_t once = groups_at_once(k->p) * 4;
  unsigned n = accumulators_of(k);
  if (once == k->p->s.bytes) {
    emit_groups(cg, k, cy_i64(cg, 0), sum);
    return;
  }
  cy_loop g;
  cy_loop_begin(cg, &g, cy_i64(cg, 0), cy_i64(cg, k->p->s.bytes), cy_i64(cg, once), sum, n);
  memcpy(sum, g.v, n * sizeof *sum);
  emit_groups(cg, k, g.iv, sum);
  cy_loop_end(cg, &g, sum);
  memcpy(sum, g.out, n * sizeof *sum);
}

/* Minus the sum of digits times the zero point, of low ones or of the others. On x86, k->zero has words, zero and
 * 256 * zero, by which it multiplies faster. */
static V less_zero(cy_cg *cg, const kernel *k, bool low, V zero) {
  V less = cy_load(cg, cg->i32, cy_gepc(cg, k->row, low ? LOW : cg->avx2 && zero ? WORDS : UPPER), 4);
  if (low && cg->avx2 && zero)
    less = LLVMBuildAnd(cg->b, less, cy_i32(cg, 0xffff), "");
  less = cy_splat(cg, less, cg->W);
  return !zero ? less : cg->avx2 ? cy_int_gemm_dot2_times(cg, zero, less) : LLVMBuildMul(cg->b, zero, less, "");
}

static void emit_begin(cy_cg *cg, const kernel *k, V *sum) {
  unsigned nv = k->p->nv;
  for (unsigned j = 0; j < nv; j++) {
    V zero = k->zero[k->first + j];
    sum[j] = less_zero(cg, k, true, zero);
    sum[nv + j] = less_zero(cg, k, false, zero);
    if (k->p->dot4)
      sum[2 * nv + j] = LLVMConstNull(cg->vi);
  }
}

/* Onto the accumulators of a row: step * scale * what the digits gave. */
static void emit_end(cy_cg *cg, const kernel *k, V acc, const V *sum) {
  unsigned nv = k->p->nv;
  V step = cy_splat(cg, cy_load(cg, cg->f32, k->row, 4), cg->W), eight = cy_splat(cg, cy_i32(cg, 8), cg->W);
  for (unsigned j = 0; j < nv; j++) {
    V upper = sum[nv + j];
    if (k->p->dot4)
      upper = LLVMBuildAdd(cg->b, LLVMBuildShl(cg->b, sum[2 * nv + j], eight, ""), upper, "");
    V low = LLVMBuildSIToFP(cg->b, sum[j], cg->vf, "");
    V all = cy_fma(cg, LLVMBuildSIToFP(cg->b, upper, cg->vf, ""), cy_splatf(cg, 256, cg->W), low);
    V at = cy_gepc(cg, acc, (int64_t)(k->first + j) * cg->W * 4);
    V factor = LLVMBuildFMul(cg->b, step, k->scale[k->first + j], "");
    cy_store(cg, cy_fma(cg, all, factor, cy_load(cg, cg->vf, at, 4)), at, 4);
  }
}

/* See less_zero. */
static V zero_of(cy_cg *cg, V bytes) {
  V zero = LLVMBuildZExt(cg->b, bytes, cg->vi, "");
  if (!cg->avx2)
    return zero;
  return LLVMBuildOr(cg->b, zero, LLVMBuildShl(cg->b, zero, cy_splat(cg, cy_i32(cg, 24), cg->W), ""), "");
}

/* A panel: all rows, which find its codes in the first-level cache. */
static void emit_panel(cy_cg *cg, kernel *k) {
  const plan *p = k->p;
  V fn = cg->fn, sum[CY_LOOP_MAX], zeros = k->at.zeros ? cy_scaled_interleaved_zeros(cg, k->at.zeros) : NULL;
  for (unsigned i = 0; i < VECTORS; i++) {
    k->scale[i] = cy_scaled_interleaved_scales(cg, k->at.scales, i);
    k->zero[i] = zeros ? zero_of(cg, cy_some_lanes(cg, zeros, i * cg->W, cg->W)) : NULL;
  }
  cy_loop r;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), LLVMGetParam(fn, ROWS), cy_i64(cg, 1), NULL, 0);
  k->row = cy_gep(cg, LLVMGetParam(fn, DIGITS_AT), cy_mul(cg, r.iv, LLVMGetParam(fn, ROW_BYTES)));
  for (k->first = 0; k->first < VECTORS; k->first += p->nv) {
    emit_begin(cg, k, sum);
    emit_depth(cg, k, sum);
    emit_end(cg, k, cy_gep(cg, k->acc, cy_mulc(cg, r.iv, p->s.acc_bytes)), sum);
  }
  cy_loop_end(cg, &r, NULL);
}

/* Panels of a tile that lie side by side; a tile of all columns is read panel by panel. */
static int64_t panels_of_tile(const plan *p) { return p->s.d->ints.tile == UNIT ? p->s.unit : 1; }

/* From the codes of a tile to those of the next. */
static int64_t tile_bytes(const plan *p) { return p->s.d->ints.tile == UNIT ? p->s.bytes * UNIT : p->s.nr; }
static int64_t tile_columns(const plan *p) { return panels_of_tile(p) * p->s.nr; }

/* What is `tiles` behind a place. */
static cy_scaled_place place_behind(cy_cg *cg, const plan *p, cy_scaled_place at, V tiles) {
  V columns = cy_mulc(cg, tiles, tile_columns(p));
  return cy_scaled_behind(cg, at, cy_mulc(cg, tiles, tile_bytes(p)), columns);
}

/* Asks for a tile: the hardware does not know where the next run of columns begins, nor that it is on another page. */
static void emit_prefetch(cy_cg *cg, const plan *p, cy_scaled_place at) {
  for (int64_t i = 0; i < p->s.bytes; i++)
    cy_prefetch(cg, cy_gepc(cg, at.codes, i * p->s.d->ints.tile), false, CY_FIRST_LEVEL);
  for (int64_t i = 0; i < tile_columns(p) * 4; i += LINE)
    cy_prefetch(cg, cy_gepc(cg, at.scales, i), false, CY_FIRST_LEVEL);
  if (at.zeros)
    cy_prefetch(cg, at.zeros, false, CY_FIRST_LEVEL);
}

static cy_scaled_place place_of_args(cy_cg *cg, const plan *p, unsigned first) {
  cy_scaled_place at = {.codes = LLVMGetParam(cg->fn, first), .scales = LLVMGetParam(cg->fn, first + 1)};
  if (p->s.d->ints.zero_slot >= 0)
    at.zeros = LLVMGetParam(cg->fn, first + 2);
  return at;
}

/* A tile, and an order for the one that follows in so many. */
static void emit_tile(cy_cg *cg, const plan *p, V tile) {
  V fn = cg->fn, columns = cy_i64(cg, tile_columns(p));
  cy_scaled_place now = place_behind(cg, p, place_of_args(cg, p, CODES), tile), next = place_of_args(cg, p, PREFETCH),
                  later = place_of_args(cg, p, LATER);
  V same = cy_icmp(cg, LLVMIntSLT, tile, LLVMGetParam(fn, SAME));
  next.codes = cy_select(cg, same, next.codes, later.codes);
  next.scales = cy_select(cg, same, next.scales, later.scales);
  next.zeros = next.zeros ? cy_select(cg, same, next.zeros, later.zeros) : NULL;
  emit_prefetch(cg, p, place_behind(cg, p, next, tile));
  V acc = cy_gepf(cg, LLVMGetParam(fn, ACC), cy_mul(cg, tile, columns));
  V mask = LLVMBuildBitCast(cg->b, cy_splat(cg, cy_i32(cg, 0x0f0f0f0f), cg->W), cg->vf, "");
  cy_accumulators_fence(cg, 1, &mask);
  cy_loop j;
  cy_loop_begin(cg, &j, cy_i64(cg, 0), columns, cy_i64(cg, p->s.nr), NULL, 0);
  kernel k = {.p = p, .acc = cy_gepf(cg, acc, j.iv), .mask = LLVMBuildBitCast(cg->b, mask, cg->vi, "")};
  k.at = cy_scaled_behind(cg, now, j.iv, j.iv);
  emit_panel(cg, &k);
  cy_loop_end(cg, &j, NULL);
}

static V kernel_of(cy_cg *cg, const plan *p) {
  const cy_gemm_desc *d = p->s.d;
  char name[80];
  snprintf(name, sizeof name, "cyk_few%s%s_%lld_%lld_%lld", d->ints.zero_slot < 0 ? "" : "z", p->dot4 ? "" : "_words",
           (long long)p->s.nr, (long long)p->s.block, (long long)d->ints.tile);
  V fn = cy_shared_find(cg, name);
  if (fn)
    return fn;
  cy_fn_state state = cy_fn_save(cg);
  LLVMTypeRef params[KERNEL_ARGS];
  for (int i = 0; i < KERNEL_ARGS; i++)
    params[i] = i < FIRST_POINTER ? cg->i64 : cg->ptr;
  fn = cy_fn_begin(cg, name, cg->voidt, params, KERNEL_ARGS, CY_FN_SHARED | CY_FN_NOINLINE);
  cy_loop t;
  cy_loop_begin(cg, &t, cy_i64(cg, 0), LLVMGetParam(fn, TILES), cy_i64(cg, 1), NULL, 0);
  emit_tile(cg, p, t.iv);
  cy_loop_end(cg, &t, NULL);
  cy_fn_end(cg, NULL);
  cy_fn_restore(cg, state);
  return fn;
}

/* ---- the product of a task ---- */

static void put_place(cy_cg *cg, V *args, cy_scaled_place at) {
  args[0] = at.codes;
  args[1] = at.scales;
  args[2] = at.zeros ? at.zeros : LLVMConstNull(cg->ptr);
}

/* Panels [q, end), in whole tiles, of a block. As many tiles ahead as have PREFETCH_BYTES lies another block as soon as
 * the panels end. */
static void emit_call(cy_cg *cg, const cy_scaled_frame *f, V block, V q, V end) {
  const plan *p = (const plan *)f->p;
  const cy_gemm_desc *d = p->s.d;
  V fn = kernel_of(cg, p), args[KERNEL_ARGS] = {[ROWS] = f->rows}, col = cy_scaled_column(cg, f->p, q);
  V tiles = cy_div(cg, cy_sub(cg, end, q), cy_i64(cg, panels_of_tile(p))), last = cy_i64(cg, p->s.count - 1);
  int64_t bytes = p->s.bytes * tile_columns(p);
  V some = cy_imax(cg, tiles, cy_i64(cg, 1)),
    prefetch = cy_i64(cg, bytes < PREFETCH_BYTES ? PREFETCH_BYTES / bytes : 1);
  V blocks = cy_add(cg, block, cy_div(cg, prefetch, some)), over = cy_mod(cg, prefetch, some);
  cy_scaled_place next = cy_scaled_place_of(cg, d, cy_imin(cg, last, blocks), col);
  cy_scaled_place later = cy_scaled_place_of(cg, d, cy_imin(cg, last, cy_addc(cg, blocks, 1)), col);
  args[ROW_BYTES] = cy_i64(cg, p->s.row_bytes);
  args[TILES] = tiles;
  args[SAME] = cy_sub(cg, tiles, over);
  args[DIGITS_AT] = cy_gep(cg, f->m, cy_mulc(cg, block, p->block_bytes));
  args[ACC] = cy_scaled_acc_at(cg, f, q);
  put_place(cg, args + CODES, cy_scaled_place_of(cg, d, block, col));
  put_place(cg, args + PREFETCH, place_behind(cg, p, next, over));
  put_place(cg, args + LATER, place_behind(cg, p, later, cy_sub(cg, over, tiles)));
  cy_call(cg, fn, args, KERNEL_ARGS);
}

static void multiply(cy_cg *cg, const cy_scaled_frame *f, V block, V count) {
  (void)count;
  V full = cy_i64(cg, f->p->n / f->p->nr);
  emit_call(cg, f, block, f->q0, cy_imin(cg, f->q1, full));
  if (f->p->n % f->p->nr) {
    cy_if last;
    cy_if_begin(cg, &last, cy_icmp(cg, LLVMIntSGT, f->q1, full));
    emit_call(cg, f, block, full, f->q1);
    cy_if_end(cg, &last);
  }
}

static const cy_scaled_ops ops = {.round = round_block, .multiply = multiply, .interleaved = true};

CY_PLAN_MAKE(plan)

static const char *name_of(const void *of) {
  return ((const plan *)of)->s.d->ints.bits == 8 ? "gemm int8 weights int24 rows" : "gemm int4 weights int24 rows";
}

const cy_generator cy_few_rows_generator = {CY_SCALED_PHASES(cy_scaled_emit), .plan = plan_make, .name = name_of,
                                            .describe = cy_scaled_describe, .worker_bytes = cy_scaled_worker_bytes};
