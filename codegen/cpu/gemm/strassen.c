/* SPDX-License-Identifier: Apache-2.0 */
/* strassen.c - products of many rows and constant columns by seven multiplications of quarters in place of eight.
 *
 * Comes in: a cy_microkernel with one tap and packed weights, as cy_microkernel_emit takes it. Goes out: code for one
 * task that computes the same sums; for some, a phase before it. The algorithm is Strassen's (Gaussian elimination is
 * not optimal, 1969) with the fifteen additions of Winograd (On multiplication of 2x2 matrices, 1971), one level of it.
 * Quarters are not those of the whole matrices: A is two tiles of rows by the halves of a block of K, B a pair of
 * panels by these halves.
 *
 *   left    S1 = A21+A22  S2 = S1-A11  S3 = A11-A21  S4 = A12-S2
 *   right   T1 = B12-B11  T2 = B22-T1  T3 = B22-B12  T4 = B21-T2
 *   C11 += P1 + A12 B21,  C12 += P1+P6+P5 + S4 B22,  C21 += P1+P6+P7 + A22 T4,  C22 += P1+P6+P7+P5
 *           P1 = A11 B11, P5 = S1 T1, P6 = S2 T2, P7 = S3 T3
 *
 *   1. Sums of the left factor: where they are few bytes, once for all tasks by a phase of their own, in shared
 *      scratch; else by the task for its rows, block of K by block of K.
 *   2. Pair of panels by pair of panels: the right factor's sums, which all rows of the task share, and of weights in
 *      half precision also floats; then for each pair of tiles the seven products by one micro-kernel, which keeps in
 *      registers what quarters of C have in common. Rows that fill no pair of tiles are multiplied plainly while the
 *      panels are near; a panel without a partner by cy_microkernel_emit.
 *   3. The epilogue, over several pairs of panels at once, so that it meets long runs of each row.
 * The micro-kernel finds neither factor in the first-level cache, and prefetches what comes next: left sums of the next
 * pair of tiles, and the next pair of panels.
 *
 * A sum mixes two rows: NaN, infinities and rounding errors of one would get into the other. Pairs of tiles with rows
 * that are not finite or of very different magnitude are therefore multiplied plainly; the left sums come with a flag
 * that says so.
 *
 * Rounding: with factors of random normal data, relative RMS error against double, here and plainly: 10.8e-7, 5.0e-7
 * (rows, k, columns 197, 768, 768), 11.0e-7, 9.9e-7 (197, 3072, 768), 9.0e-7, 5.7e-7 (512, 1024, 512).
 */
#include "microkernel.h"

#include <stdio.h>
#include <string.h>

enum { LEFT_SUMS = 4, RIGHT_SUMS = 4, PRODUCTS = 7 };
enum {
  GROUP = 4,       /* pairs of panels between epilogues */
  MAX_ROWS = 384,  /* of a task, and .. */
  MAX_PANELS = 48, /* .. its panels; half, where K has several blocks and accumulators wait in memory: bounds of a search */
  MAX_APART = 6,   /* binary orders of magnitude between two rows of a pair of tiles */
  PAD = 320        /* bytes between right sums, which else fell into the same sets of a first-level cache, whatever its size */
};

/* ---- sizes ---- */

static int64_t half_of(int64_t k, int64_t k_block) { return (k < k_block ? k : k_block) / 2; }
static int64_t sum_bytes(cy_tile t, int64_t half) { return t.mr * half * 4; }
/* Of a pair of tiles: its sums, and a flag in a cache line of its own. */
static int64_t left_bytes(cy_tile t, int64_t half) { return LEFT_SUMS * sum_bytes(t, half) + 64; }
static int64_t right_bytes(const cy_cg *cg, cy_tile t, int64_t half) { return half * t.nv * cg->W * 4 + PAD; }
/* Of a panel as floats; 0: it is used where it is stored. */
static int64_t floats_bytes(const cy_cg *cg, cy_tile t, int64_t half, cy_weights weights) {
  return weights == CY_WEIGHTS_F32 ? 0 : 2 * half * t.nv * cg->W * 4 + PAD;
}
static int64_t group_of(int64_t nb) { return 2 * GROUP < nb ? 2 * GROUP : nb; } /* panels */

int64_t cy_strassen_sums_bytes(cy_tile t, int64_t k, int64_t k_block) {
  return cy_ceil(k, k_block) * left_bytes(t, half_of(k, k_block));
}

/* Scratch, in this order: left sums, right sums, a pair of panels as floats, accumulators of a group. */
int64_t cy_strassen_bytes(const cy_cg *cg, cy_tile t, const cy_strassen *s, int64_t k) {
  int64_t half = half_of(k, s->k_block), left = s->shared ? 0 : s->blocks.mb / (2 * t.mr) * left_bytes(t, half);
  int64_t c = k <= s->k_block ? s->blocks.mb * group_of(s->blocks.nb) * t.nv * cg->W * 4 : 0;
  return left + RIGHT_SUMS * right_bytes(cg, t, half) + 2 * floats_bytes(cg, t, half, s->weights) + c;
}

unsigned cy_strassen_tails(const cy_cg *cg, cy_tile t, int64_t rows, int64_t panels) {
  int64_t pair = 2 * t.mr, rest = rows % pair;
  if (!rows)
    return (1u << t.mr) - 1;
  return cy_tails(cg, t, rest, pair) | (panels % 2 ? cy_tails(cg, t, pair + rest, 2 * pair) : 0);
}

/* ---- code for one task ---- */

typedef struct frame {
  const cy_microkernel *k;
  int64_t nr, half, blocks; /* columns of a panel; floats of a row of left sums; of K */
  V pairs;                  /* of tiles */
  V left, right;
  V floats;          /* where a pair of panels is as floats */
  int64_t left_pair; /* bytes between the left sums of pairs of tiles */
  V c0, kc, h;       /* the block of K: where, how long, half of that */
  V accumulate, last, b, panel_bytes;
  V c; /* of panel p0, or of the group's first one */
  int64_t ldc;
  V prefetch; /* bytes per k to prefetch of the next pair of panels, or NULL */
} frame;

static V add(cy_cg *cg, V a, V b) { return LLVMBuildFAdd(cg->b, a, b, ""); }
static V sub(cy_cg *cg, V a, V b) { return LLVMBuildFSub(cg->b, a, b, ""); }
static V pointer(cy_cg *cg, V p) { return LLVMBuildIntToPtr(cg->b, p, cg->ptr, ""); }

/* A left sum; behind the last one: the flag. */
static V left_at(cy_cg *cg, const frame *f, V pair, int sum) {
  V first = cy_gep(cg, f->left, cy_mulc(cg, pair, f->left_pair));
  return cy_gepc(cg, first, sum * sum_bytes(f->k->tile, f->half));
}

static V right_at(cy_cg *cg, const frame *f, int sum) {
  return cy_gepc(cg, f->right, sum * right_bytes(cg, f->k->tile, f->half));
}

static V panel_at(cy_cg *cg, const frame *f, V q) { return cy_gep(cg, f->b, cy_mul(cg, q, f->panel_bytes)); }
static int64_t row_bytes(const frame *f) { return f->nr * cy_weight_bytes(f->k->weights); }
static V lower_half(cy_cg *cg, const frame *f, V panel) { return cy_gep(cg, panel, cy_mulc(cg, f->h, row_bytes(f))); }

/* Panel q or the one behind it, whose right sums are at hand, in floats. */
static int64_t floats_of_panel(const cy_cg *cg, const frame *f) {
  return floats_bytes(cg, f->k->tile, f->half, f->k->weights);
}
static V floats_at(cy_cg *cg, const frame *f, V q, int second) {
  int64_t bytes = floats_of_panel(cg, f);
  return bytes ? cy_gepc(cg, f->floats, second * bytes) : panel_at(cg, f, cy_addc(cg, q, second));
}

/* The address of the block's first element in a row. */
static V row_at(cy_cg *cg, const frame *f, V row) {
  V entry = cy_load(cg, cg->i64, cy_gep(cg, f->k->tab, cy_mulc(cg, row, 8)), 8);
  return pointer(cg, cy_add(cg, cy_add(cg, f->k->base, cy_mulc(cg, f->c0, 4)), entry));
}

/* Elements [at, at + lanes) of both halves of two rows into their sums; max: the largest magnitudes so far of each row,
 * as bits, among which infinities and NaN are larger than numbers. */
static void emit_left_piece(cy_cg *cg, const frame *f, const V row[2], V to, V at, unsigned lanes, V max[2]) {
  LLVMTypeRef type = cy_vecf(cg, lanes), bits = LLVMVectorType(cg->i32, lanes);
  V a[2][2], sum = cy_i64(cg, sum_bytes(f->k->tile, f->half));
  V magnitude = cy_splat(cg, cy_i32(cg, INT32_MAX), lanes);
  for (int i = 0; i < 4; i++) {
    a[i / 2][i % 2] = cy_load(cg, type, cy_gepf(cg, row[i / 2], i % 2 ? cy_add(cg, at, f->h) : at), 4);
    V v[2] = {max[i / 2], LLVMBuildAnd(cg->b, LLVMBuildBitCast(cg->b, a[i / 2][i % 2], bits, ""), magnitude, "")};
    max[i / 2] = cy_intrinsic(cg, "llvm.umax", bits, v, 2);
  }
  V s1 = add(cg, a[1][0], a[1][1]), s2 = sub(cg, s1, a[0][0]);
  V sums[LEFT_SUMS] = {s1, s2, sub(cg, a[0][0], a[1][0]), sub(cg, a[0][1], s2)};
  for (int i = 0; i < LEFT_SUMS; i++, to = cy_gep(cg, to, sum))
    cy_store(cg, sums[i], cy_gepf(cg, to, at), 4);
}

/* i32, 1: what rounds away beside the larger of these rows' magnitudes (bits) would be felt in the other row. */
static V too_far_apart(cy_cg *cg, V max[2]) {
  V high = cy_intrinsic(cg, "llvm.umax", cg->i32, max, 2), low = cy_intrinsic(cg, "llvm.umin", cg->i32, max, 2);
  V far = cy_icmp(cg, LLVMIntUGT, cy_sub(cg, high, low), cy_i32(cg, MAX_APART << 23));
  V infinite = cy_icmp(cg, LLVMIntUGE, high, cy_i32(cg, 0x7f800000));
  return LLVMBuildZExt(cg->b, LLVMBuildOr(cg->b, far, infinite, ""), cg->i32, "");
}

/* The left sums of row i of a pair of tiles and of the row below it, `next` being prefetched; their flag. */
static V emit_left_rows(cy_cg *cg, const frame *f, const V row[2], const V next[2], V to) {
  V whole = cy_mulc(cg, cy_div(cg, f->h, cy_i64(cg, cg->W)), cg->W),
    max[2] = {LLVMConstNull(cg->vi), LLVMConstNull(cg->vi)};
  cy_loop j, rest;
  cy_loop_begin(cg, &j, cy_i64(cg, 0), whole, cy_i64(cg, cg->W), max, 2);
  for (int p = 0; p < 4; p++)
    cy_prefetch(cg, cy_gepf(cg, next[p / 2], p % 2 ? cy_add(cg, j.iv, f->h) : j.iv), false, CY_SECOND_LEVEL);
  memcpy(max, j.v, sizeof max);
  emit_left_piece(cg, f, row, to, j.iv, cg->W, max);
  cy_loop_end(cg, &j, max);
  for (int r = 0; r < 2; r++)
    max[r] = cy_splat(cg, cy_intrinsic(cg, "llvm.vector.reduce.umax", cg->vi, &j.out[r], 1), 1);
  cy_loop_begin(cg, &rest, whole, f->h, cy_i64(cg, 1), max, 2);
  memcpy(max, rest.v, sizeof max);
  emit_left_piece(cg, f, row, to, rest.iv, 1, max);
  cy_loop_end(cg, &rest, max);
  for (int r = 0; r < 2; r++)
    max[r] = LLVMBuildExtractElement(cg->b, rest.out[r], cy_i32(cg, 0), "");
  return too_far_apart(cg, max);
}

/* The left sums and flags of all pairs of tiles. */
static void emit_left(cy_cg *cg, const frame *f) {
  int64_t mr = f->k->tile.mr;
  cy_loop t, i;
  V last = cy_addc(cg, cy_mulc(cg, f->pairs, 2 * mr), -1), flag = cy_i32(cg, 0), row[2], next[2];
  cy_loop_begin(cg, &t, cy_i64(cg, 0), f->pairs, cy_i64(cg, 1), NULL, 0);
  cy_loop_begin(cg, &i, cy_i64(cg, 0), cy_i64(cg, mr), cy_i64(cg, 1), &flag, 1);
  V number = cy_add(cg, cy_mulc(cg, t.iv, 2 * mr), i.iv);
  for (int r = 0; r < 2; r++) {
    row[r] = row_at(cg, f, cy_addc(cg, number, r * mr));
    next[r] = row_at(cg, f, cy_imin(cg, last, cy_addc(cg, number, r * mr + 1)));
  }
  V to = cy_gep(cg, left_at(cg, f, t.iv, 0), cy_mulc(cg, i.iv, f->half * 4));
  flag = LLVMBuildOr(cg->b, i.v[0], emit_left_rows(cg, f, row, next, to), "");
  cy_loop_end(cg, &i, &flag);
  cy_store(cg, i.out[0], left_at(cg, f, t.iv, LEFT_SUMS), 4);
  cy_loop_end(cg, &t, NULL);
}

/* Element `at` of a panel as it is stored. */
static V load_stored(cy_cg *cg, const frame *f, V panel, V at) {
  cy_weights weights = f->k->weights;
  V address =
      weights == CY_WEIGHTS_F32 ? cy_gepf(cg, panel, at) : cy_gep(cg, panel, cy_mulc(cg, at, cy_weight_bytes(weights)));
  return cy_weights_load(cg, weights, address);
}

/* The right sums of panels q and q + 1, and these as floats if they are halves. */
static void emit_right(cy_cg *cg, const frame *f, V q) {
  V b[4] = {panel_at(cg, f, q), panel_at(cg, f, cy_addc(cg, q, 1))};
  b[2] = lower_half(cg, f, b[0]);
  b[3] = lower_half(cg, f, b[1]);
  cy_loop i;
  cy_loop_begin(cg, &i, cy_i64(cg, 0), cy_mulc(cg, f->h, f->nr), cy_i64(cg, f->nr), NULL, 0);
  for (unsigned j = 0; j < f->k->tile.nv; j++) {
    V x[4], at = cy_addc(cg, i.iv, j * cg->W);
    for (int p = 0; p < 4; p++)
      x[p] = load_stored(cg, f, b[p], at);
    for (int p = 0; p < 4 && floats_of_panel(cg, f); p++) {
      V panel = floats_at(cg, f, q, p % 2);
      cy_store(cg, x[p], cy_gepf(cg, panel, p < 2 ? at : cy_add(cg, at, cy_mulc(cg, f->h, f->nr))), 4);
    }
    V t1 = sub(cg, x[1], x[0]), t2 = sub(cg, x[3], t1);
    V sums[RIGHT_SUMS] = {t1, t2, sub(cg, x[3], x[1]), sub(cg, x[2], t2)};
    for (int s = 0; s < RIGHT_SUMS; s++)
      cy_store(cg, sums[s], cy_gepf(cg, right_at(cg, f, s), at), 4);
  }
  cy_loop_end(cg, &i, NULL);
}

/* ---- the products of a pair of tiles and a pair of panels ---- */

/* Arguments of their micro-kernel. */
enum {
  BASE, /* 2*MR rows, as of a micro-kernel of microkernel.c */
  TAB,
  LEFT,      /* the left sums of this pair of tiles */
  LEFT_ROW,  /* bytes of a row of one */
  LEFT_NEXT, /* those of the next pair, prefetched */
  PANEL,     /* the first of two */
  PANEL_BYTES,
  RIGHT, /* the right sums */
  RIGHT_BYTES,
  HALF, /* of the block of K */
  C,
  LDC,      /* bytes of a row */
  ADD,      /* i1: to what C holds? */
  PREFETCH, /* weights to prefetch, .. */
  STEP,     /* .. so many bytes with every k of the rows of A */
  N_ARGS
};

typedef struct kernel {
  cy_tile tile;
  int64_t nr;
  V arg[N_ARGS];
  V prefetch; /* the weights to prefetch next */
  V v[CY_LOOP_MAX];
} kernel;

/* acc += rows at `row` times b, while `prefetch` is prefetched; returns what comes behind that. */
static V emit_run(cy_cg *cg, kernel *k, const V *row, V b, V prefetch, V step) {
  unsigned n = k->tile.mr * k->tile.nv;
  k->v[n] = b;
  k->v[n + 1] = prefetch;
  cy_run_emit(cg, k->tile.mr, k->tile.nv, CY_WEIGHTS_F32, row, k->arg[HALF], cy_i64(cg, k->nr * 4), step, k->v);
  return k->v[n + 1];
}

/* acc += rows [first, first + MR) of A, the first or second half of them, times b. */
static void emit_rows_run(cy_cg *cg, kernel *k, unsigned first, bool second, V b) {
  V row[16];
  for (unsigned i = 0; i < k->tile.mr; i++) {
    V entry = cy_load(cg, cg->i64, cy_gepc(cg, k->arg[TAB], (first + i) * 8), 8);
    row[i] = pointer(cg, cy_add(cg, k->arg[BASE], entry));
    row[i] = second ? cy_gepf(cg, row[i], k->arg[HALF]) : row[i];
  }
  k->prefetch = emit_run(cg, k, row, b, k->prefetch, k->arg[STEP]);
}

/* acc += S(i + 1) times b. */
static void emit_sums_run(cy_cg *cg, kernel *k, int i, V b) {
  V row[16], to_sum = cy_mulc(cg, k->arg[LEFT_ROW], i * k->tile.mr), first = cy_gep(cg, k->arg[LEFT], to_sum);
  for (unsigned r = 0; r < k->tile.mr; r++)
    row[r] = cy_gep(cg, first, cy_mulc(cg, k->arg[LEFT_ROW], r));
  emit_run(cg, k, row, b, cy_gep(cg, k->arg[LEFT_NEXT], to_sum), cy_i64(cg, k->tile.mr * 4));
}

/* The address of vector j of row i. */
static V vector_at(cy_cg *cg, V tile, V ld, unsigned i, unsigned j) {
  return cy_gepc(cg, cy_gep(cg, tile, cy_mulc(cg, ld, i)), (int64_t)j * cg->W * 4);
}

static void emit_store(cy_cg *cg, const kernel *k, V tile) {
  for (unsigned i = 0; i < k->tile.mr; i++)
    for (unsigned j = 0; j < k->tile.nv; j++)
      cy_store(cg, k->v[i * k->tile.nv + j], vector_at(cg, tile, cy_i64(cg, k->nr * 4), i, j), 4);
}

/* acc = tile, or acc += tile. */
static void emit_load(cy_cg *cg, kernel *k, V tile, bool onto) {
  for (unsigned i = 0; i < k->tile.mr; i++)
    for (unsigned j = 0; j < k->tile.nv; j++) {
      V *sum = &k->v[i * k->tile.nv + j], x = cy_load(cg, cg->vf, vector_at(cg, tile, cy_i64(cg, k->nr * 4), i, j), 4);
      *sum = onto ? add(cg, *sum, x) : x;
    }
}

/* A quarter of C: += acc; where it `begins`, = acc but for blocks of K behind the first. */
static void emit_onto(cy_cg *cg, const kernel *k, unsigned down, unsigned right, bool begins) {
  V tile = cy_gepc(cg, cy_gep(cg, k->arg[C], cy_mulc(cg, k->arg[LDC], down * k->tile.mr)), right * k->nr * 4);
  for (unsigned i = 0; i < k->tile.mr; i++)
    for (unsigned j = 0; j < k->tile.nv; j++) {
      V at = vector_at(cg, tile, k->arg[LDC], i, j), x = cy_load(cg, cg->vf, at, 4);
      x = begins ? cy_select(cg, k->arg[ADD], x, LLVMConstNull(cg->vf)) : x;
      cy_store(cg, add(cg, x, k->v[i * k->tile.nv + j]), at, 4);
    }
}

static void emit_zero(cy_cg *cg, kernel *k) {
  for (unsigned i = 0; i < k->tile.mr * k->tile.nv; i++)
    k->v[i] = LLVMConstNull(cg->vf);
}

/* The seven products in three chains, each going on with the accumulators of the one before; only P1 and P1 + P6 are stored on
 * the way. */
static void emit_chains(cy_cg *cg, kernel *k) {
  V b11 = k->arg[PANEL], to_lower = cy_mulc(cg, k->arg[HALF], k->nr * 4), b21 = cy_gep(cg, b11, to_lower);
  V b22 = cy_gep(cg, cy_gep(cg, b11, k->arg[PANEL_BYTES]), to_lower), t[RIGHT_SUMS];
  V shared = cy_alloca(cg, k->tile.mr * k->nr * 4);
  for (int i = 0; i < RIGHT_SUMS; i++)
    t[i] = cy_gep(cg, k->arg[RIGHT], cy_mulc(cg, k->arg[RIGHT_BYTES], i));
  emit_zero(cg, k);
  emit_rows_run(cg, k, 0, false, b11);
  emit_store(cg, k, shared);
  emit_rows_run(cg, k, 0, true, b21);
  emit_onto(cg, k, 0, 0, true); /* P1 + A12 B21 */
  emit_load(cg, k, shared, false);
  emit_sums_run(cg, k, 1, t[1]);
  emit_store(cg, k, shared);
  emit_sums_run(cg, k, 2, t[2]);
  emit_onto(cg, k, 1, 1, true); /* P1 + P6 + P7, and below P5 */
  emit_rows_run(cg, k, k->tile.mr, true, t[3]);
  emit_onto(cg, k, 1, 0, true); /* P1 + P6 + P7 + A22 T4 */
  emit_zero(cg, k);
  emit_sums_run(cg, k, 0, t[0]);
  emit_onto(cg, k, 1, 1, false);
  emit_load(cg, k, shared, true);
  emit_sums_run(cg, k, 3, b22);
  emit_onto(cg, k, 0, 1, true); /* P5 + P1 + P6 + S4 B22 */
}

static V kernel_of(cy_cg *cg, cy_tile t) {
  char name[60];
  snprintf(name, sizeof name, "cyk_f32_%ux%u_strassen", t.mr, t.nv * cg->W);
  V fn = LLVMGetNamedFunction(cg->module, name);
  if (fn)
    return fn;
  LLVMTypeRef params[N_ARGS];
  for (int i = 0; i < N_ARGS; i++)
    params[i] = cg->i64;
  params[TAB] = params[LEFT] = params[LEFT_NEXT] = params[PANEL] = params[RIGHT] = params[C] = params[PREFETCH] =
      cg->ptr;
  params[ADD] = cg->i1;
  cy_fn_state state = cy_fn_save(cg);
  kernel k = {.tile = t, .nr = (int64_t)t.nv * cg->W};
  fn = cy_fn_begin(cg, name, cg->voidt, params, N_ARGS, CY_FN_INTERNAL | CY_FN_NOINLINE | CY_FN_NOALIAS);
  for (int i = 0; i < N_ARGS; i++)
    k.arg[i] = LLVMGetParam(fn, (unsigned)i);
  k.prefetch = k.arg[PREFETCH];
  emit_chains(cg, &k);
  cy_fn_end(cg, NULL);
  cy_fn_restore(cg, state);
  return fn;
}

/* Pair of tiles t, panels q and q + 1. */
static void emit_gemm(cy_cg *cg, const frame *f, V t, V q, V c) {
  const cy_microkernel *k = f->k;
  int64_t floats = floats_of_panel(cg, f);
  V weights = panel_at(cg, f, cy_addc(cg, q, 2)), step = f->prefetch ? f->prefetch : cy_i64(cg, 0);
  if (f->prefetch)
    weights = cy_gep(cg, weights, cy_mul(cg, cy_mulc(cg, t, PRODUCTS - LEFT_SUMS), cy_mul(cg, f->h, step)));
  V args[N_ARGS] = {[BASE] = cy_add(cg, k->base, cy_mulc(cg, f->c0, 4)),
                    [TAB] = cy_gep(cg, k->tab, cy_mulc(cg, t, 2 * k->tile.mr * 8)),
                    [LEFT] = left_at(cg, f, t, 0),
                    [LEFT_ROW] = cy_i64(cg, f->half * 4),
                    [LEFT_NEXT] = left_at(cg, f, cy_addc(cg, t, 1), 0),
                    [PANEL] = floats_at(cg, f, q, 0),
                    [PANEL_BYTES] = floats ? cy_i64(cg, floats) : f->panel_bytes,
                    [RIGHT] = f->right,
                    [RIGHT_BYTES] = cy_i64(cg, right_bytes(cg, k->tile, f->half)),
                    [HALF] = f->h,
                    [C] = c,
                    [LDC] = cy_i64(cg, f->ldc),
                    [ADD] = f->accumulate,
                    [PREFETCH] = weights,
                    [STEP] = step};
  V fn = kernel_of(cg, k->tile);
  LLVMBuildCall2(cg->b, LLVMGlobalGetValueType(fn), fn, args, N_ARGS, "");
}

/* `rows` rows from row0 on, of panels q and q + 1, without the sums; c: of row 0. */
static void emit_plain(cy_cg *cg, const frame *f, V row0, V rows, unsigned tails, V q, V c) {
  const cy_microkernel *k = f->k;
  int64_t none;
  if (cy_is_const(rows, &none) && !none)
    return;
  for (int i = 0; i < 2; i++) {
    cy_product p = {.tile = k->tile,
                    .rows = rows,
                    .a = pointer(cg, cy_add(cg, k->base, cy_mulc(cg, f->c0, 4))),
                    .b = floats_at(cg, f, q, i),
                    .c = cy_gepc(cg, cy_gep(cg, c, cy_mulc(cg, row0, f->ldc)), i * f->nr * 4),
                    .tab = cy_gep(cg, k->tab, cy_mulc(cg, row0, 8)),
                    .whole_tab = true,
                    .k = f->kc,
                    .accumulate = f->accumulate,
                    .tails = tails,
                    .ldc = f->ldc};
    cy_product_emit(cg, &p);
  }
}

static void emit_epilogue(cy_cg *cg, const frame *f, V q0, V end, V c) {
  const cy_microkernel *k = f->k;
  V col = cy_mulc(cg, q0, f->nr), cols = cy_sub(cg, cy_imin(cg, k->n, cy_mulc(cg, end, f->nr)), col);
  int64_t always;
  cy_if s;
  bool branch = !cy_is_const(f->last, &always);
  if (branch)
    cy_if_begin(cg, &s, f->last);
  cy_epilogue_tile(cg, k->epilogue, k->index, c, cy_i64(cg, f->ldc), k->rows, cy_i64(cg, 0), cols,
                   cy_add(cg, k->col0, col), k->tail_lanes);
  if (branch)
    cy_if_end(cg, &s);
}

/* Panels [q0, end), an even number of them. */
static void emit_group(cy_cg *cg, const frame *f, V q0, V end) {
  const cy_microkernel *k = f->k;
  int64_t pair = 2 * k->tile.mr;
  V c = cy_microkernel_single(k) ? f->c : cy_gep(cg, f->c, cy_mulc(cg, cy_sub(cg, q0, k->p0), f->nr * 4));
  cy_loop q, t;
  cy_loop_begin(cg, &q, q0, end, cy_i64(cg, 2), NULL, 0);
  V here = cy_gep(cg, c, cy_mulc(cg, cy_sub(cg, q.iv, q0), f->nr * 4));
  emit_right(cg, f, q.iv);
  cy_loop_begin(cg, &t, cy_i64(cg, 0), f->pairs, cy_i64(cg, 1), NULL, 0);
  cy_if apart;
  V flag = cy_load(cg, cg->i32, left_at(cg, f, t.iv, LEFT_SUMS), 4), row0 = cy_mulc(cg, t.iv, pair);
  cy_if_begin(cg, &apart, cy_icmp(cg, LLVMIntNE, flag, cy_i32(cg, 0)));
  emit_plain(cg, f, row0, cy_i64(cg, pair), 1u << k->tile.mr, q.iv, here);
  cy_if_else(cg, &apart);
  emit_gemm(cg, f, t.iv, q.iv, cy_gep(cg, here, cy_mulc(cg, row0, f->ldc)));
  cy_if_end(cg, &apart);
  cy_loop_end(cg, &t, NULL);
  row0 = cy_mulc(cg, f->pairs, pair);
  emit_plain(cg, f, row0, cy_sub(cg, k->rows, row0), k->tails, q.iv, here);
  cy_loop_end(cg, &q, NULL);
  emit_epilogue(cg, f, q0, end, c);
}

/* ---- blocks of K ---- */

static frame frame_of(const cy_cg *cg, const cy_microkernel *k) {
  int64_t c = 0;
  cy_is_const(k->c, &c);
  int64_t half = half_of(c, k->c_block);
  return (frame){.k = k,
                 .nr = (int64_t)k->tile.nv * cg->W,
                 .half = half,
                 .blocks = cy_ceil(c, k->c_block),
                 .left_pair = left_bytes(k->tile, half)};
}

/* A loop over them; none where there is but one. left: sums of the first of them. */
static void blocks_begin(cy_cg *cg, frame *f, cy_loop *l, V left) {
  const cy_microkernel *k = f->k;
  V zero = cy_i64(cg, 0), step = cy_i64(cg, k->c_block);
  if (f->blocks > 1)
    cy_loop_begin(cg, l, zero, k->c, step, NULL, 0);
  f->c0 = f->blocks > 1 ? l->iv : zero;
  f->kc = cy_imin(cg, step, cy_sub(cg, k->c, f->c0));
  f->h = cy_div(cg, f->kc, cy_i64(cg, 2));
  f->accumulate = cy_icmp(cg, LLVMIntNE, f->c0, zero);
  f->last = cy_icmp(cg, LLVMIntEQ, cy_add(cg, f->c0, f->kc), k->c);
  f->left = cy_gep(cg, left, cy_mulc(cg, cy_div(cg, f->c0, step), left_bytes(k->tile, f->half)));
}

static void blocks_end(cy_cg *cg, frame *f, cy_loop *l) {
  if (f->blocks > 1)
    cy_loop_end(cg, l, NULL);
}

void cy_strassen_sums_emit(cy_cg *cg, const cy_microkernel *k, V to) {
  frame f = frame_of(cg, k);
  cy_loop l;
  f.pairs = cy_i64(cg, 1);
  blocks_begin(cg, &f, &l, to);
  emit_left(cg, &f);
  blocks_end(cg, &f, &l);
}

/* Bytes per k to prefetch, where weights come from beyond the second-level cache: a pair of panels, by the products
 * that do not prefetch left sums. */
static V prefetch_choose(cy_cg *cg, const frame *f) {
  int64_t c = 0, panels = 0;
  cy_is_const(f->k->c, &c);
  cy_is_const(f->k->panels, &panels);
  if (!cy_cost_many_weights(cg, c * panels * row_bytes(f)))
    return NULL;
  V products = cy_mulc(cg, cy_imax(cg, f->pairs, cy_i64(cg, 1)), PRODUCTS - LEFT_SUMS);
  return cy_addc(cg, cy_div(cg, cy_i64(cg, 4 * row_bytes(f) - 1), products), 1);
}

void cy_strassen_emit(cy_cg *cg, const cy_microkernel *k, const cy_strassen *s, V scratch, V sums) {
  int64_t mr = k->tile.mr, group = group_of(k->cbuf_panels), panels = 0;
  frame f = frame_of(cg, k);
  f.right = cy_gepc(cg, scratch, s->shared ? 0 : s->blocks.mb / (2 * mr) * f.left_pair);
  f.pairs = cy_div(cg, k->rows, cy_i64(cg, 2 * mr));
  f.ldc = (f.blocks > 1 ? k->cbuf_panels : group) * f.nr * 4;
  f.floats = cy_gepc(cg, f.right, RIGHT_SUMS * right_bytes(cg, k->tile, f.half));
  f.c = f.blocks > 1 ? k->cbuf : cy_gepc(cg, f.floats, 2 * floats_of_panel(cg, &f));
  f.prefetch = prefetch_choose(cg, &f);
  V two = cy_i64(cg, 2), end = cy_add(cg, k->p0, cy_mul(cg, cy_div(cg, cy_sub(cg, k->p1, k->p0), two), two));
  cy_loop l, g;
  blocks_begin(cg, &f, &l, s->shared ? sums : scratch);
  f.b = cy_gep(cg, k->b, cy_mul(cg, f.c0, cy_mulc(cg, k->panels, row_bytes(&f))));
  f.panel_bytes = cy_mulc(cg, f.kc, row_bytes(&f));
  if (s->shared) {
    f.left_pair *= f.blocks;
  } else {
    f.left = scratch;
    emit_left(cg, &f);
  }
  cy_loop_begin(cg, &g, k->p0, end, cy_i64(cg, group), NULL, 0);
  emit_group(cg, &f, g.iv, cy_imin(cg, end, cy_addc(cg, g.iv, group)));
  cy_loop_end(cg, &g, NULL);
  blocks_end(cg, &f, &l);
  cy_is_const(k->panels, &panels);
  if (panels % 2 == 0)
    return;
  cy_microkernel odd = *k;
  odd.p0 = end;
  cy_microkernel_emit(cg, &odd);
}

/* ---- the choice ---- */

/* Cycles on one core. The share of the peak that the micro-kernel reaches is less here, where it finds neither factor in the
 * first-level cache. Sums are counted by vectors stored. */

typedef struct shape {
  const cy_cg *cg;
  cy_tile tile;
  int64_t outer, rows, panels, k, k_block;
  bool shared, halves;
} shape;

static double fmas_of(const shape *s, double rows, double panels) { return rows * panels * s->tile.nv * (double)s->k; }

static double plain_cycles(const shape *s, double rows, double panels) {
  return cy_cost_strassen_plain(s->cg, fmas_of(s, rows, panels));
}

static double left_vectors(const shape *s, double rows) { return rows * (double)s->k / s->cg->W; }

/* Of a task of so many rows and panels. */
static double fast_cycles(const shape *s, int64_t rows, double panels) {
  int64_t pair = 2 * s->tile.mr, pairs = rows / pair, rest = rows % pair;
  double blocks = (double)cy_ceil(s->k, s->k_block);
  cy_strassen_work w = {.fmas = fmas_of(s, (double)(pairs * pair), panels),
                        .plain = fmas_of(s, rest && rest < 4 ? 4 : (double)rest, panels),
                        .left = s->shared ? 0 : left_vectors(s, (double)rows),
                        .right = (double)s->k * (panels * s->tile.nv),
                        .halves = s->halves,
                        .pairs = (double)pairs * panels / 2 * blocks};
  return cy_cost_strassen(s->cg, &w);
}

/* What so many workers take, together, for tasks of these blocks. */
static double work_cycles(const shape *s, cy_blocks b, bool fast, int64_t workers) {
  int64_t rows = cy_ceil(s->rows, b.mb), columns = cy_ceil(s->panels, b.nb);
  int64_t tasks = s->outer * rows * columns;
  double panels = (double)s->panels / (double)columns;
  double task = fast ? fast_cycles(s, s->rows / rows, panels) : plain_cycles(s, (double)s->rows / (double)rows, panels);
  double once = fast && s->shared ? cy_cost_strassen_left(s->cg, left_vectors(s, (double)(s->outer * s->rows))) : 0;
  return (double)cy_round_up(tasks, workers) * task + once;
}

/* The same for 1, 2, 4 and 8 workers. */
static double all_cycles(const shape *s, cy_blocks b, bool fast) {
  double sum = 0;
  for (int64_t workers = 1; workers <= 8; workers *= 2)
    sum += work_cycles(s, b, fast, workers);
  return sum;
}

static cy_blocks blocks_choose(const shape *s) {
  int64_t pair = 2 * s->tile.mr, max = MAX_ROWS / pair * pair;
  int64_t panels = s->k > s->k_block ? MAX_PANELS / 2 : MAX_PANELS;
  int64_t min = cy_ceil(s->rows, max);
  cy_blocks best = {0};
  for (int64_t blocks = min; blocks <= 2 * min; blocks++)
    for (int64_t nb = 2; nb <= panels && nb <= s->panels + 1; nb += 2) {
      cy_blocks b = {cy_round_up(cy_ceil(s->rows, blocks), pair), nb};
      if (!best.mb || all_cycles(s, b, true) < all_cycles(s, best, true))
        best = b;
    }
  return best;
}

bool cy_strassen_choose(const cy_cg *cg, cy_tile t, cy_weights weights, int64_t outer, int64_t rows, int64_t panels,
                        int64_t k, cy_blocks plain, cy_strassen *out) {
  const int64_t max = 768;
  if (k % 2 || panels < 4 || (rows && rows < 4 * t.mr))
    return false;
  shape s = {cg, t, outer ? outer : 1, rows ? rows : MAX_ROWS, panels, k, k, false, weights != CY_WEIGHTS_F32};
  s.k_block = cy_round_up(cy_ceil(k, cy_ceil(k, max)), 16);
  s.k_block = s.k_block < k ? s.k_block : k;
  s.shared = rows && outer && (double)(outer * rows * k * 4) <= cg->model.strassen_shared;
  *out = (cy_strassen){blocks_choose(&s), s.k_block, s.shared, weights, 0};
  if (!out->blocks.mb)
    return false;
  double all = all_cycles(&s, out->blocks, true) / all_cycles(&s, plain, false);
  double one = work_cycles(&s, out->blocks, true, 1) / work_cycles(&s, plain, false, 1);
  out->share = all > one ? all : one;
  return true;
}
