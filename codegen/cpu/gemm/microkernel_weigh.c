/* SPDX-License-Identifier: Apache-2.0 */
/* microkernel_weigh.c - the inner loop of a micro-kernel whose A becomes weights of a softmax on its way.
 *
 * Comes in: rows of scores, a number for each that is subtracted, packed B, accumulators as values. Goes out: code that
 * puts 2^(score - shift) in the place of 16 scores of each row, 16 steps of k before they are multiplied; what becomes of
 * the accumulators, and the sums of the weights.
 * Products keep those ports busy that multiply. A weight by itself waits for the steps of its polynomial, and for ports
 * that add; spread over the steps of k both go on beside the products, and what is left to pay for is the multiplications.
 * So there are as few as can be: 2^y is that of y rounded down to 1/32, from a table of two vectors, times a
 * polynomial of second degree for the rest, whose relative error is 5e-8. (Three tables and two multiplications take as
 * long on Zen 5: permutations use one of those ports, too.)
 * The products' registers are nearly all there are. Where the weights' steps come between those of products, LLVM's
 * scheduler must not mix them, or accumulators are spilled, which then take longer than the products: hence the barriers.
 */
#include "microkernel.h"

#include <math.h>
#include <string.h>

enum { LANES = 16, STEPS = 32, FACTORS = STEPS }; /* FACTORS: where other constants begin, behind the table */
enum { SQUARE, LINE, ROUND, LOG2_E };

/* 2^(i/32) times the first term of the polynomial; its other terms over that; what added to a number leaves it in steps of
 * 1/32, their count in the low bits. */
static V constants(cy_cg *cg) {
  static const double terms[] = {1.000000053, 0.6931165636, 0.2428406206};
  static const char name[] = "cyk_exp2_steps";
  V found = cy_shared_find(cg, name), e[STEPS + 4];
  if (found)
    return found;
  for (int i = 0; i < STEPS; i++)
    e[i] = LLVMConstReal(cg->f32, exp2((double)i / STEPS) * terms[0]);
  e[FACTORS + SQUARE] = LLVMConstReal(cg->f32, terms[2] / terms[0]);
  e[FACTORS + LINE] = LLVMConstReal(cg->f32, terms[1] / terms[0]);
  e[FACTORS + ROUND] = LLVMConstReal(cg->f32, 1.5 * (1 << 23) / STEPS);
  e[FACTORS + LOG2_E] = LLVMConstReal(cg->f32, 1.4426950408889634);
  return cy_shared_constant(cg, name, LLVMConstArray2(cg->f32, e, STEPS + 4));
}

static V everywhere(cy_cg *cg, V p, int64_t i) {
  return cy_splat(cg, cy_load(cg, cg->f32, cy_gepc(cg, p, i * 4), 4), LANES);
}

/* 2^y, y <= 0, flushed to 0 where it would be denormal. NaN stays one. */
static V power_of_two(cy_cg *cg, V table, V y) {
  enum { DOWN = 9, FRACTION = 5 << 4 | DOWN, CURRENT = 4 };
  V none = LLVMConstNull(cg->vf), any = LLVMConstAllOnes(cg->i16), current = cy_i32(cg, CURRENT);
  V rounded[] = {everywhere(cg, table, FACTORS + ROUND), y, cy_i32(cg, DOWN)};
  V steps = cy_intrinsic_of(cg, "llvm.x86.avx512.add.ps.512", NULL, 0, rounded, 3);
  V low = cy_load(cg, cg->vf, table, 4), high = cy_load(cg, cg->vf, cy_gepc(cg, table, LANES * 4), 4);
  V looked_up[] = {low, LLVMBuildBitCast(cg->b, steps, cg->vi, ""), high};
  V whole[] = {cy_intrinsic_of(cg, "llvm.x86.avx512.vpermi2var.ps.512", NULL, 0, looked_up, 3), y, none, any, current};
  V rest[] = {y, cy_i32(cg, FRACTION), none, any, current};
  V power = cy_intrinsic_of(cg, "llvm.x86.avx512.mask.scalef.ps.512", NULL, 0, whole, 5);
  V f = cy_intrinsic_of(cg, "llvm.x86.avx512.mask.reduce.ps.512", NULL, 0, rest, 5);
  V square = everywhere(cg, table, FACTORS + SQUARE), line = everywhere(cg, table, FACTORS + LINE);
  V more = cy_fma(cg, square, f, line);
  return cy_fma(cg, LLVMBuildFMul(cg->b, f, power, ""), more, power);
}

/* The scores at p, of row i. */
static void weigh(cy_cg *cg, const cy_weighing *w, V table, unsigned i, V p, bool first) {
  V score = cy_load(cg, cg->vf, p, 4), y = LLVMBuildFSub(cg->b, score, everywhere(cg, w->shifts, i), "");
  if (w->natural)
    y = LLVMBuildFMul(cg->b, y, everywhere(cg, table, FACTORS + LOG2_E), "");
  V weights = power_of_two(cg, table, y), sum = cy_gepc(cg, w->sums, (int64_t)i * LANES * 4);
  cy_store(cg, weights, p, 4);
  cy_store(cg, first ? weights : LLVMBuildFAdd(cg->b, weights, cy_load(cg, cg->vf, sum, 4), ""), sum, 4);
}

static void rows_at(cy_cg *cg, unsigned mr, const V *row, V k, V *out) {
  for (unsigned i = 0; i < mr; i++)
    out[i] = cy_gepf(cg, row[i], k);
}

void cy_run_weigh(cy_cg *cg, unsigned mr, unsigned nv, const V *row, V klen, V ldb, const cy_weighing *w, V *v) {
  unsigned n = mr * nv;
  V zero = cy_i64(cg, 0), one = cy_i64(cg, 1), some = cy_i64(cg, LANES), table = cy_opaque(cg, constants(cg)), at[16];
  V shifts =
      cy_opaque(cg, w->shifts); /* so they are not loaded in front of the loop, into registers that are not there */
  const cy_weighing own = {shifts, w->sums, w->natural};
  for (unsigned i = 0; i < mr; i++)
    weigh(cg, &own, table, i, row[i], true);
  cy_loop k;
  cy_loop_begin(cg, &k, zero, cy_addc(cg, klen, -LANES), some, v, n + 1);
  memcpy(v, k.v, (n + 1) * sizeof *v);
  for (unsigned step = 0, next = 0; step < LANES; step++) {
    rows_at(cg, mr, row, cy_addc(cg, k.iv, step), at);
    cy_run_steps(cg, mr, nv, CY_WEIGHTS_F32, at, 1, ldb, v);
    for (; next < mr && next * LANES / mr == step; next++) {
      weigh(cg, &own, table, next, cy_gepf(cg, row[next], cy_addc(cg, k.iv, LANES)), false);
      cy_accumulators_fence(cg, n, v);
    }
  }
  cy_loop_end(cg, &k, v);
  memcpy(v, k.out, (n + 1) * sizeof *v);
  V done = cy_mulc(cg, cy_div(cg, cy_imax(cg, zero, cy_sub(cg, klen, one)), some), LANES);
  rows_at(cg, mr, row, done, at);
  cy_run_emit(cg, mr, nv, CY_WEIGHTS_F32, at, cy_sub(cg, klen, done), ldb, NULL, v);
}
