/* SPDX-License-Identifier: Apache-2.0 */
/* attention_softmax.c - the scores of a block become weights: softmax row by row, between the two products of attention.
 *
 * Comes in: scores of keys [j0, j0 + n) in the worker's scratch, greatest scores and sums of the tiles before. Goes out:
 * weights in their place (as bf16 in a place of their own), not divided by their sum yet; greatest scores and sums; outputs
 * so far scaled down where a greater score turned up. Beside that each row asks for some of the memory that the task's
 * outputs and the next task will need. Where scores become weights within the second product (microkernel_weigh.c),
 * only the greatest scores are found here, and behind that product the sums.
 */
#include "attention_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDE = 4 }; /* vectors of weights that take turns */

/* ---- a row ---- */

static V minus_infinity(cy_cg *cg, unsigned lanes) { return cy_splatf(cg, -INFINITY, lanes); }

typedef V combine(cy_cg *cg, V a, V b);
static V sum_of(cy_cg *cg, V a, V b) { return LLVMBuildFAdd(cg->b, a, b, ""); }

static V reduce_lanes(cy_cg *cg, V v, unsigned lanes, combine *op) {
  for (unsigned n = lanes / 2; n >= 1; n /= 2) {
    V high = cy_some_lanes(cg, v, n, n);
    v = op(cg, cy_some_lanes(cg, v, 0, n), high);
  }
  return LLVMBuildExtractElement(cg->b, v, cy_i32(cg, 0), "");
}

/* One row of scores being worked on: n of them at s, of keys from j0 on. */
typedef struct line {
  V s, j0, n;
  V weights; /* as bf16: half */
  V idx[CY_GEMM_BATCH + 2];
} line;

/* Are scores not yet what the softmax takes? */
static bool changes(const att *a) { return a->d->scores.change || a->scale_s != 1; }

static V changed(cy_cg *cg, const work *w, line *l, V at, unsigned lanes) {
  const cy_attention_desc *d = w->a->d;
  V p = cy_gepf(cg, l->s, at), v = cy_load(cg, cy_vecf(cg, lanes), p, 4);
  if (!changes(w->a))
    return v;
  if (w->a->scale_s != 1)
    v = LLVMBuildFMul(cg->b, v, cy_splatf(cg, w->a->scale_s, lanes), "");
  l->idx[d->n_batch + 1] = cy_add(cg, l->j0, at);
  if (d->scores.change)
    v = d->scores.change(d->scores.ctx, cg, v, lanes, l->idx);
  cy_store(cg, v, p, 4);
  return v;
}

/* Changes scores [from, to) by vectors of `lanes`, as long as whole ones fit; returns the greatest in `best`. */
static V change_run(cy_cg *cg, const work *w, line *l, V *from, V to, unsigned lanes, V best) {
  V n = cy_sub(cg, to, *from), stop = cy_add(cg, *from, cy_mulc(cg, cy_div(cg, n, cy_i64(cg, lanes)), lanes));
  cy_loop j;
  cy_loop_begin(cg, &j, *from, stop, cy_i64(cg, lanes), &best, 1);
  V v = changed(cg, w, l, j.iv, lanes);
  v = cy_fmax(cg, v, j.v[0]);
  cy_loop_end(cg, &j, &v);
  *from = stop;
  return j.out[0];
}

/* Elements behind the last whole vector, then -infinity up to the end of that vector. */
static V change_rest(cy_cg *cg, const work *w, line *l, V from, V best) {
  unsigned W = cg->W;
  int64_t n;
  if (cy_is_const(l->n, &n) && n % W == 0)
    return best;
  cy_either some;
  cy_either_begin(cg, &some, cy_icmp(cg, LLVMIntSLT, from, l->n), best);
  if (changes(w->a) && cy_is_const(l->n, &n)) {
    changed(cg, w, l, from, (unsigned)(n % W));
  } else if (changes(w->a)) {
    cy_loop j;
    cy_loop_begin(cg, &j, from, l->n, cy_i64(cg, 1), NULL, 0);
    changed(cg, w, l, j.iv, 1);
    cy_loop_end(cg, &j, NULL);
  }
  cy_store(cg, minus_infinity(cg, W), cy_gepf(cg, l->s, l->n), 4);
  return cy_either_end(cg, &some, cy_fmax(cg, cy_load(cg, cg->vf, cy_gepf(cg, l->s, from), 4), best));
}

/* Row r's greatest score. */
static V top_of_line(cy_cg *cg, const work *w, line *l, V r) {
  unsigned W = cg->W;
  if (w->a->maxima) {
    V whole = cy_i64(cg, w->a->keys / w->a->nr_k * w->a->nr_k);
    V known = cy_load(cg, cg->vf, cy_gepf(cg, w->maxima, cy_mulc(cg, r, W)), 4);
    known = change_run(cg, w, l, &whole, l->n, W, known);
    return reduce_lanes(cg, change_rest(cg, w, l, whole, known), W, cy_fmax);
  }
  V at = cy_i64(cg, 0), wide = change_run(cg, w, l, &at, l->n, WIDE * W, minus_infinity(cg, WIDE * W)), best = NULL;
  for (unsigned i = 0; i < WIDE; i++) {
    V part = cy_some_lanes(cg, wide, i * W, W);
    best = best ? cy_fmax(cg, part, best) : part;
  }
  best = change_run(cg, w, l, &at, l->n, W, best);
  return reduce_lanes(cg, change_rest(cg, w, l, at, best), W, cy_fmax);
}

/* The polynomial c[n - 1] + c[n - 2] f + .. + c[0] f^(n - 1) of `count` vectors, step by step. */
static void polynomials(cy_cg *cg, const double *c, size_t n, unsigned count, const V *f, V *p) {
  for (unsigned j = 0; j < count; j++)
    p[j] = cy_splatf(cg, c[0], cg->W);
  for (size_t i = 1; i < n; i++)
    for (unsigned j = 0; j < count; j++)
      p[j] = cy_fma(cg, p[j], f[j], cy_splatf(cg, c[i], cg->W));
}

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* 2^y for y <= 0, in `count` vectors of 16; 0 where it would be denormal, behind flush_begin. The polynomial is 2^f,
 * 0 <= f < 1, its relative error 7e-5 where weights are rounded to bf16, else 8e-8. */
static void powers_by_scalef(cy_cg *cg, unsigned count, V *y, bool rough) {
  static const double few[] = {0.0780245215, 0.226067156, 0.695833564, 0.999925196},
                      all[] = {0.00187757669, 0.00898933969, 0.0558263175, 0.240153611, 0.693153083, 0.99999994};
  enum { FLOOR = 9 };
  V none = LLVMConstNull(cg->vf), any = LLVMConstAllOnes(cg->i16), current = cy_i32(cg, 4), f[WIDE], p[WIDE];
  for (unsigned j = 0; j < count; j++) {
    V fraction[] = {y[j], cy_i32(cg, FLOOR), none, any, current};
    f[j] = cy_intrinsic_of(cg, "llvm.x86.avx512.mask.reduce.ps.512", NULL, 0, fraction, 5);
  }
  polynomials(cg, rough ? few : all, rough ? COUNT(few) : COUNT(all), count, f, p);
  for (unsigned j = 0; j < count; j++) {
    V power[] = {p[j], y[j], none, any, current};
    y[j] = cy_intrinsic_of(cg, "llvm.x86.avx512.mask.scalef.ps.512", NULL, 0, power, 5);
  }
}

/* The same of any vectors: y is rounded to a whole number by adding one so great that nothing behind the point is left,
 * whose low bits then are the exponent of 2^y, 0 from -127 on. The polynomial is 2^f, -0.5 <= f <= 0.5. */
static void powers_by_exponent(cy_cg *cg, unsigned count, V *y) {
  static const double terms[] = {1.3276472e-3, 9.6755413e-3, 5.5507133e-2, 2.4022120e-1, 6.9314697e-1, 1.00000007};
  enum { BIAS = 127, MANTISSA = 23 };
  V round = cy_splatf(cg, 1.5 * (1 << MANTISSA) + BIAS, cg->W), min = cy_splatf(cg, -BIAS, cg->W);
  V shift = cy_splat(cg, cy_i32(cg, MANTISSA), cg->W), f[WIDE], p[WIDE], whole[WIDE];
  for (unsigned j = 0; j < count; j++)
    y[j] = cy_fmax(cg, min, y[j]);
  for (unsigned j = 0; j < count; j++)
    whole[j] = LLVMBuildFAdd(cg->b, y[j], round, "");
  for (unsigned j = 0; j < count; j++)
    f[j] = LLVMBuildFSub(cg->b, y[j], LLVMBuildFSub(cg->b, whole[j], round, ""), "");
  polynomials(cg, terms, COUNT(terms), count, f, p);
  for (unsigned j = 0; j < count; j++) {
    V exponent = LLVMBuildShl(cg->b, LLVMBuildBitCast(cg->b, whole[j], cg->vi, ""), shift, "");
    y[j] = LLVMBuildFMul(cg->b, p[j], LLVMBuildBitCast(cg->b, exponent, cg->vf, ""), "");
  }
}

V cy_attention_flush_begin(cy_cg *cg) {
  enum { FLUSH_TO_ZERO = 1 << 15 };
  V both = cy_alloca(cg, 8), now = cy_gepc(cg, both, 4);
  cy_intrinsic_of(cg, "llvm.x86.sse.stmxcsr", NULL, 0, &both, 1);
  cy_store(cg, LLVMBuildOr(cg->b, cy_load(cg, cg->i32, both, 4), cy_i32(cg, FLUSH_TO_ZERO), ""), now, 4);
  cy_intrinsic_of(cg, "llvm.x86.sse.ldmxcsr", NULL, 0, &now, 1);
  return both;
}

void cy_attention_flush_end(cy_cg *cg, V before) { cy_intrinsic_of(cg, "llvm.x86.sse.ldmxcsr", NULL, 0, &before, 1); }

/* One fma makes an exponent of a score where neither the top's can be infinite: else, the lowest fill times log2(e)
 * would be, and the difference is multiplied. */
static bool fuses_top(const att *a) { return a->unit > 0 && a->unit < 1; }

/* Of a row's greatest score, what its weights are made with. */
static V shift_of(cy_cg *cg, const att *a, V top) {
  return fuses_top(a) ? LLVMBuildFMul(cg->b, top, LLVMConstReal(cg->f32, -a->unit), "") : top;
}

/* Of `count` vectors of scores, step by step. */
static void weights_of(cy_cg *cg, const att *a, unsigned count, V *scores, V shift) {
  const cy_scores *s = &a->d->scores;
  V unit = cy_splatf(cg, a->unit, cg->W), all = cy_splat(cg, shift, cg->W);
  for (unsigned j = 0; j < count; j++) {
    if (a->unit == 0)
      scores[j] = s->weigh(s->ctx, cg, scores[j], shift, cg->W);
    else if (fuses_top(a))
      scores[j] = cy_fma(cg, scores[j], unit, all);
    else
      scores[j] = LLVMBuildFSub(cg->b, scores[j], all, "");
    if (a->unit > 1)
      scores[j] = LLVMBuildFMul(cg->b, scores[j], unit, "");
  }
  if (a->unit != 0 && cy_attention_scales(cg))
    powers_by_scalef(cg, count, scores, a->half);
  else if (a->unit != 0)
    powers_by_exponent(cg, count, scores);
}

static V weight_of(cy_cg *cg, const att *a, V score, V top) {
  const cy_scores *s = &a->d->scores;
  if (a->unit == 0)
    return s->weigh(s->ctx, cg, score, top, 1);
  V all = cy_splat(cg, score, cg->W);
  weights_of(cg, a, 1, &all, shift_of(cg, a, top));
  return LLVMBuildExtractElement(cg->b, all, cy_i32(cg, 0), "");
}

/* Scores [from, to), by `count` vectors at a time, become weights; returns their sum and `sum`. */
static V weigh_run(cy_cg *cg, const work *w, const line *l, V from, V to, unsigned count, V shift, V sum) {
  cy_loop j;
  cy_loop_begin(cg, &j, from, to, cy_i64(cg, count * cg->W), &sum, 1);
  V at[WIDE], v[WIDE];
  for (unsigned i = 0; i < count; i++) {
    at[i] = cy_addc(cg, j.iv, i * cg->W);
    v[i] = cy_load(cg, cg->vf, cy_gepf(cg, l->s, at[i]), 4);
  }
  weights_of(cg, w->a, count, v, shift);
  for (unsigned i = 0; i < count; i++) {
    if (w->a->half)
      cy_attention_half_weights(cg, l->weights, at[i], v[i]);
    else
      cy_store(cg, v[i], cy_gepf(cg, l->s, at[i]), 4);
  }
  for (unsigned n = count; n > 1; n /= 2) /* one sum of the loop waits for that of the step before */
    for (unsigned i = 0; i < n / 2; i++)
      v[i] = sum_of(cg, v[i], v[i + n / 2]);
  sum = sum_of(cg, v[0], j.v[0]);
  cy_loop_end(cg, &j, &sum);
  return j.out[0];
}

/* Scores become weights, up to the end of the last vector; returns their sum. Steps of one vector wait for each other:
 * more of them are under way where several vectors take turns (Zen 5; not tried where AMX multiplies). */
static V weigh_line(cy_cg *cg, const work *w, const line *l, V top) {
  V sum = LLVMConstNull(cg->vf), whole = cy_i64(cg, 0), shift = shift_of(cg, w->a, top);
  if (w->a->unit != 0 && !w->a->amx) {
    whole = cy_mulc(cg, cy_div(cg, l->n, cy_i64(cg, WIDE * cg->W)), WIDE * cg->W);
    sum = weigh_run(cg, w, l, cy_i64(cg, 0), whole, WIDE, shift, sum);
  }
  sum = weigh_run(cg, w, l, whole, l->n, 1, shift, sum);
  if (w->a->half)
    cy_attention_half_weights_end(cg, l->weights, l->n);
  return reduce_lanes(cg, sum, cg->W, sum_of);
}

static void scale_outputs(cy_cg *cg, const work *w, V row, V by) {
  V p = cy_gepf(cg, w->outputs, cy_mulc(cg, row, w->a->ld_o)), factor = cy_splat(cg, by, cg->W);
  cy_loop c;
  cy_loop_begin(cg, &c, cy_i64(cg, 0), cy_i64(cg, w->a->ld_o), cy_i64(cg, cg->W), NULL, 0);
  V at = cy_gepf(cg, p, c.iv);
  cy_store(cg, LLVMBuildFMul(cg->b, cy_load(cg, cg->vf, at, 4), factor, ""), at, 4);
  cy_loop_end(cg, &c, NULL);
}

/* Keys, and values, of the next task that are asked for with every row of this one; 0: none. */
static int64_t keys_to_prefetch(const att *a) {
  enum { LIMIT = 8 };
  if (!cy_csize_is(a->d->kd, 1) || !cy_csize_is(a->d->vn, 1))
    return 0;
  int64_t rows = a->rows && a->rows < a->chunk ? a->rows : a->chunk, keys = cy_ceil(a->keys ? a->keys : rows, rows);
  return keys < LIMIT ? keys : LIMIT;
}

static void prefetch_row(cy_cg *cg, V p, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64)
    cy_prefetch(cg, cy_gepc(cg, p, at), false, CY_SECOND_LEVEL);
}

/* Row r of the block, which l is, asks for what the task's outputs and the next task will need. Without weights to make
 * between them, so many orders in a row only wait for each other: 1 % of the time of 256 or 1024 keys (Zen 5). */
static void emit_prefetch(cy_cg *cg, const work *w, line *l, V r) {
  const cy_attention_desc *d = w->a->d;
  int64_t size = w->a->half ? 2 : 4, count = keys_to_prefetch(w->a);
  V first = cy_mulc(cg, r, count * size);
  for (int64_t i = 0; i < count; i++) {
    V key = cy_addc(cg, first, i * size);
    prefetch_row(cg, cy_gep(cg, w->next_k, cy_mul(cg, key, cy_size(cg, d->kj))), d->size * size);
    prefetch_row(cg, cy_gep(cg, w->next_v, cy_mul(cg, key, cy_size(cg, d->vj))), d->columns * size);
  }
  for (int64_t at = 0; count && d->epilogue.prefetch && at < d->columns; at += cg->W) {
    l->idx[d->n_batch + 1] = cy_i64(cg, at);
    d->epilogue.prefetch(d->epilogue.ctx, cg, l->idx, true);
  }
}

static line line_of(cy_cg *cg, const work *w, V row, V j0, V n) {
  line l = {.s = cy_gepf(cg, w->scores, cy_mulc(cg, row, w->a->ld_s)), .j0 = j0, .n = n};
  if (w->a->half)
    l.weights = cy_gep(cg, w->weights, cy_mulc(cg, row, w->a->ld_w * 2));
  cy_attention_row_indices(cg, w, cy_add(cg, w->row0, row), l.idx);
  return l;
}

/* A row's greatest score so far; what a row that has seen no key yet, or is to be zero without any, takes in its place:
 * its weights are as good as zero. */
static V safe_top(cy_cg *cg, const att *a, V top) {
  if (!a->tiled && !a->d->zero_hidden)
    return top;
  V none = LLVMBuildFCmp(cg->b, LLVMRealOEQ, top, LLVMConstReal(cg->f32, -INFINITY), "");
  return LLVMBuildSelect(cg->b, none, LLVMConstReal(cg->f32, 0), top, "");
}

/* Row r's greatest score; where it is greater than those of the tiles before, these count for less. */
static void find_top(cy_cg *cg, const work *w, V r, line *l, V first) {
  const att *a = w->a;
  V top = top_of_line(cg, w, l, r), at_top = cy_gepf(cg, w->top, r), at_sum = cy_gepf(cg, w->sum, r);
  V zero = LLVMConstReal(cg->f32, 0);
  if (a->tiled) {
    V old = LLVMBuildSelect(cg->b, first, LLVMConstReal(cg->f32, -INFINITY), cy_load(cg, cg->f32, at_top, 4), "");
    V sum = LLVMBuildSelect(cg->b, first, zero, cy_load(cg, cg->f32, at_sum, 4), "");
    top = LLVMBuildSelect(cg->b, LLVMBuildFCmp(cg->b, LLVMRealOGT, old, top, ""), old, top, "");
    V down = weight_of(cg, a, old, safe_top(cg, a, top));
    cy_if later;
    cy_if_begin(cg, &later, LLVMBuildNot(cg->b, first, ""));
    scale_outputs(cg, w, r, down);
    cy_if_end(cg, &later);
    cy_store(cg, LLVMBuildFMul(cg->b, sum, down, ""), at_sum, 4);
  }
  cy_store(cg, top, at_top, 4);
  if (a->late) {
    V shift = safe_top(cg, a, top), at_shift = cy_gepf(cg, w->shifts, r);
    cy_store(cg, shift, at_shift, 4);
  }
}

/* For keys [j0, j0 + n); `first`: i1, no tile before. All rows' greatest scores come before any weights: each is known
 * only after many steps that depend on each other, and so are those of several rows at a time. */
static void find_maxima(cy_cg *cg, const work *w, V j0, V n, V first) {
  cy_loop r;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), w->rows, cy_i64(cg, 1), NULL, 0);
  line l = line_of(cg, w, r.iv, j0, n);
  find_top(cg, w, r.iv, &l, first);
  cy_loop_end(cg, &r, NULL);
}

static void weigh_rows(cy_cg *cg, const work *w, V j0, V n) {
  cy_loop r;
  V before = w->a->unit != 0 && cy_attention_scales(cg) ? cy_attention_flush_begin(cg) : NULL;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), w->rows, cy_i64(cg, 1), NULL, 0);
  line l = line_of(cg, w, r.iv, j0, n);
  if (!w->a->late)
    emit_prefetch(cg, w, &l, r.iv);
  V top = safe_top(cg, w->a, cy_load(cg, cg->f32, cy_gepf(cg, w->top, r.iv), 4)), at_sum = cy_gepf(cg, w->sum, r.iv);
  V sum = weigh_line(cg, w, &l, top);
  if (w->a->tiled)
    sum = sum_of(cg, cy_load(cg, cg->f32, at_sum, 4), sum);
  cy_store(cg, sum, at_sum, 4);
  cy_loop_end(cg, &r, NULL);
  if (before)
    cy_attention_flush_end(cg, before);
}

/* The softmax of a block is a function of its own: beside the calls of the micro-kernels the constants of its
 * polynomial would be loaded again after each. Parameters: kernel arguments, scores, outputs, top, sum, rows, row0, j0,
 * n, first, few, weights, next keys and values, maxima, shifts, outer indices. */
enum { ROWS_PARAMS = 16 };

V cy_attention_softmax_emit(cy_cg *cg, const att *a) {
  const cy_attention_desc *d = a->d;
  int outer = d->n_batch - a->shared;
  LLVMTypeRef params[ROWS_PARAMS + CY_GEMM_BATCH] = {cg->ptr, cg->ptr, cg->ptr, cg->ptr, cg->ptr, cg->i64,
                                                     cg->i64, cg->i64, cg->i64, cg->i1,  cg->i1,  cg->ptr,
                                                     cg->ptr, cg->ptr, cg->ptr, cg->ptr};
  for (int i = 0; i < outer; i++)
    params[ROWS_PARAMS + i] = cg->i64;
  char name[160];
  snprintf(name, sizeof name, "%s_rows", d->name);
  V fn = cy_fn_begin(cg, name, cg->voidt, params, (unsigned)(ROWS_PARAMS + outer),
                     CY_FN_INTERNAL | CY_FN_NOINLINE | CY_FN_NOALIAS);
  cg->args = LLVMGetParam(fn, 0);
  cy_epilogue_open(&d->epilogue, cg);
  work w = {.a = a,
            .scores = LLVMGetParam(fn, 1),
            .outputs = LLVMGetParam(fn, 2),
            .top = LLVMGetParam(fn, 3),
            .sum = LLVMGetParam(fn, 4),
            .rows = LLVMGetParam(fn, 5),
            .row0 = LLVMGetParam(fn, 6),
            .weights = LLVMGetParam(fn, 11),
            .next_k = LLVMGetParam(fn, 12),
            .next_v = LLVMGetParam(fn, 13),
            .maxima = LLVMGetParam(fn, 14),
            .shifts = LLVMGetParam(fn, 15)};
  for (int i = 0; i < outer; i++)
    w.idx[i] = LLVMGetParam(fn, (unsigned)(ROWS_PARAMS + i));
  V j0 = a->all ? cy_i64(cg, 0) : LLVMGetParam(fn, 7), n = a->all ? cy_i64(cg, a->keys) : LLVMGetParam(fn, 8);
  find_maxima(cg, &w, j0, n, LLVMGetParam(fn, 9));
  if (!a->late) {
    weigh_rows(cg, &w, j0, n);
  } else if (a->few) {
    cy_if now;
    cy_if_begin(cg, &now, LLVMGetParam(fn, 10));
    weigh_rows(cg, &w, j0, n);
    cy_if_end(cg, &now);
  }
  cy_fn_end(cg, NULL);
  return fn;
}

void cy_attention_softmax(cy_cg *cg, const work *w, V j0, V n, V first, bool few) {
  int outer = w->a->d->n_batch - w->a->shared;
  int64_t size = w->a->half ? 2 : 4;
  V is_few = LLVMConstInt(cg->i1, few, 0);
  V key = cy_mulc(cg, cy_sub(cg, w->row0, w->begin), keys_to_prefetch(w->a) * size);
  V next_k = cy_gep(cg, w->next_k, cy_mul(cg, key, cy_size(cg, w->a->d->kj)));
  V next_v = cy_gep(cg, w->next_v, cy_mul(cg, key, cy_size(cg, w->a->d->vj)));
  V args[ROWS_PARAMS + CY_GEMM_BATCH] = {cg->args, w->scores, w->outputs, w->top, w->sum, w->rows, w->row0,  j0, n,
                                         first,    is_few,    w->weights, next_k, next_v, w->maxima, w->shifts};
  memcpy(args + ROWS_PARAMS, w->idx, (size_t)outer * sizeof *args);
  cy_call(cg, w->rows_fn, args, (unsigned)(ROWS_PARAMS + outer));
}

V cy_attention_sum(cy_cg *cg, const work *w, V row) {
  return reduce_lanes(cg, cy_load(cg, cg->vf, cy_gepf(cg, w->sums, cy_mulc(cg, row, cg->W)), 4), cg->W, sum_of);
}

void cy_attention_sums(cy_cg *cg, const work *w) {
  cy_loop r;
  cy_loop_begin(cg, &r, cy_i64(cg, 0), w->rows, cy_i64(cg, 1), NULL, 0);
  V at = cy_gepf(cg, w->sum, r.iv);
  V sum = cy_attention_sum(cg, w, r.iv);
  if (w->a->tiled)
    sum = sum_of(cg, cy_load(cg, cg->f32, at, 4), sum);
  cy_store(cg, sum, at, 4);
  cy_loop_end(cg, &r, NULL);
}
