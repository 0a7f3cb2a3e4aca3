/* SPDX-License-Identifier: Apache-2.0 */
/* winograd_transform.c - what F(4x4,3x3) makes of one axis of a patch, a filter or outputs, of floats and of integers.
 *
 * In: vectors of f32, i16 or i32, each a value of all lanes. Out: six of the same type, of outputs four. The points of a
 * filter are -6 and 24 times those of the textbook: no multiplications but by small powers of two, and integers stay integers.
 * So outputs are 6 times what they should be along each axis, those of integers 24 times, modulo 2^32: whoever packs or loads
 * the filters divides by it, or whoever takes the outputs (cy_winograd_ints.finish).
 */
#include "conv_int.h"

static bool is_float(V v) { return LLVMGetTypeKind(LLVMGetElementType(LLVMTypeOf(v))) == LLVMFloatTypeKind; }

static V add(cy_cg *cg, V a, V b) { return (is_float(a) ? LLVMBuildFAdd : LLVMBuildAdd)(cg->b, a, b, ""); }
static V sub(cy_cg *cg, V a, V b) { return (is_float(a) ? LLVMBuildFSub : LLVMBuildSub)(cg->b, a, b, ""); }

/* k * a + b. */
static V mad(cy_cg *cg, int k, V a, V b) {
  unsigned lanes = LLVMGetVectorSize(LLVMTypeOf(a));
  if (is_float(a))
    return cy_fma(cg, cy_splatf(cg, k, lanes), a, b);
  V factor = LLVMConstInt(LLVMGetElementType(LLVMTypeOf(a)), (unsigned long long)(long long)k, 1);
  return add(cg, LLVMBuildMul(cg->b, a, cy_splat(cg, factor, lanes), ""), b);
}

void cy_winograd_input(cy_cg *cg, const V d[6], V out[6]) {
  V even = mad(cg, -4, d[2], d[4]), odd = mad(cg, -4, d[1], d[3]);
  V even2 = sub(cg, d[4], d[2]), odd2 = sub(cg, d[3], d[1]);
  out[0] = mad(cg, 4, d[0], mad(cg, -5, d[2], d[4]));
  out[1] = add(cg, even, odd);
  out[2] = sub(cg, even, odd);
  out[3] = mad(cg, 2, odd2, even2);
  out[4] = mad(cg, -2, odd2, even2);
  out[5] = mad(cg, 4, d[1], mad(cg, -5, d[3], d[5]));
}

void cy_winograd_filter(cy_cg *cg, const V g[3], V out[6]) {
  V ends = add(cg, g[0], g[2]), wide = mad(cg, 4, g[2], g[0]);
  out[0] = g[0];
  out[1] = add(cg, ends, g[1]);
  out[2] = sub(cg, ends, g[1]);
  out[3] = mad(cg, 2, g[1], wide);
  out[4] = mad(cg, -2, g[1], wide);
  out[5] = g[2];
}

/* q / 4 * a + b; of integers four times that, as b is then: see unit(). */
static V quarters(cy_cg *cg, int q, V a, V b) {
  return is_float(a) ? cy_fma(cg, cy_splatf(cg, q / 4.0, LLVMGetVectorSize(LLVMTypeOf(a))), a, b) : mad(cg, q, a, b);
}

static V unit(cy_cg *cg, V a) {
  return is_float(a) ? a : LLVMBuildShl(cg->b, a, cy_splat(cg, cy_i32(cg, 2), LLVMGetVectorSize(LLVMTypeOf(a))), "");
}

static V negated(cy_cg *cg, V a) { return (is_float(a) ? LLVMBuildFNeg : LLVMBuildNeg)(cg->b, a, ""); }

void cy_winograd_output(cy_cg *cg, const V m[6], V out[4]) {
  V s1 = add(cg, m[1], m[2]), d1 = sub(cg, m[2], m[1]), s2 = add(cg, m[3], m[4]), d2 = sub(cg, m[3], m[4]);
  out[0] = quarters(cg, 6, m[0], quarters(cg, 1, s2, negated(cg, unit(cg, s1))));
  out[1] = quarters(cg, 2, d2, unit(cg, d1));
  out[2] = unit(cg, sub(cg, s2, s1));
  out[3] = quarters(cg, 24, m[5], quarters(cg, 8, d2, unit(cg, d1)));
}
