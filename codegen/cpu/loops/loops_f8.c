/* SPDX-License-Identifier: Apache-2.0 */
/* loops_f8.c - eight-, six- and four-bit floats in LLVM IR.
 *
 * Decoding looks the code up in a table of 256 floats that the compiler fills by cy_scalar_load(); encoding rounds an
 * f32 to nearest even by integer arithmetic; what is too large becomes infinite or NaN (casts that saturate do so
 * before). What a format does with NaN, overflow and -0 is asked of ir/scalar.c, so that only the two numbers in
 * `shapes` are known here. Correct first: these types are stored, seldom computed in.
 */
#include "loops_int.h"

#include <math.h>
#include <stdio.h>

typedef struct shape {
  int mantissa, emin; /* bits; exponent of the smallest normal number */
} shape;

static const shape shapes[CY_DTYPE_COUNT] = {
    [CY_F8E4M3FN] = {3, -6},    [CY_F8E4M3FNUZ] = {3, -7}, [CY_F8E5M2] = {2, -14},
    [CY_F8E5M2FNUZ] = {2, -15}, [CY_F4E2M1] = {1, 0},
    [CY_F6E2M3] = {3, 0},       [CY_F6E3M2] = {2, -2},
};

static V table(cy_cg *cg, cy_dtype t) {
  char name[40];
  snprintf(name, sizeof name, "cyk_decode_%s", cy_dtype_of(t)->name);
  V g = cy_shared_find(cg, name);
  if (g)
    return g;
  V e[256];
  for (int i = 0; i < 256; i++) {
    uint8_t code = (uint8_t)i;
    e[i] = LLVMConstReal(cg->f32, cy_scalar_load(&code, t, 0).f);
  }
  return cy_shared_constant(cg, name, LLVMConstArray2(cg->f32, e, 256));
}

V cy_lp_small_float_decode(cy_cg *cg, V bits, cy_dtype t, unsigned n) {
  V g = table(cg, t), out = n > 1 ? LLVMGetPoison(LLVMVectorType(cg->f32, n)) : NULL;
  for (unsigned i = 0; i < n; i++) {
    V at = LLVMBuildZExt(cg->b, cy_lp_lane(cg, bits, i, n), cg->i64, "");
    V one = cy_load(cg, cg->f32, cy_gepf(cg, g, at), 4);
    out = out ? cy_lp_set_lane(cg, out, one, i) : one;
  }
  return out;
}

static V splat_i32(cy_cg *cg, uint32_t c, unsigned n) { return cy_lp_const(cg, CY_U32, (cy_scalar){.u = c}, n); }
static V splat_f32(cy_cg *cg, double c, unsigned n) { return cy_lp_const(cg, CY_F32, (cy_scalar){.f = c}, n); }

static uint8_t code_of(cy_dtype t, double x) {
  uint8_t code = 0;
  cy_scalar_store(&code, t, 0, (cy_scalar){.f = x});
  return code;
}

/* Powers of two, rounded up: the exponent field, plus one where there is a fraction. */
static V encode_e8m0(cy_cg *cg, V x, V u, unsigned n) {
  LLVMBuilderRef b = cg->b;
  V fraction = LLVMBuildAnd(b, u, splat_i32(cg, 0x7fffff, n), "");
  V up = LLVMBuildZExt(b, LLVMBuildICmp(b, LLVMIntNE, fraction, splat_i32(cg, 0, n), ""), LLVMTypeOf(u), "");
  V code = LLVMBuildAdd(b, LLVMBuildLShr(b, u, splat_i32(cg, 23, n), ""), up, "");
  V top = splat_i32(cg, 254, n), tiny = splat_f32(cg, 0x1p-127, n), zero = splat_f32(cg, 0, n);
  code = LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntUGT, code, top, ""), top, code, "");
  code = LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealOLE, x, tiny, ""), splat_i32(cg, 0, n), code, "");
  return LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealULT, x, zero, ""), splat_i32(cg, 0xff, n), code, "");
}

/* Codes of a = |x| as i32. */
static V encode_magnitude(cy_cg *cg, V a, cy_dtype t, unsigned n) {
  LLVMBuilderRef b = cg->b;
  shape s = shapes[t];
  cy_scalar inf = {.f = INFINITY};
  uint8_t beyond = code_of(t, INFINITY), top = code_of(t, cy_scalar_eval(CY_OP_cast, CY_F64, t, &inf).f);
  V magic = splat_f32(cg, ldexp(1, 23 + s.emin - s.mantissa), n), last = splat_i32(cg, top, n);
  V u = LLVMBuildBitCast(b, a, LLVMTypeOf(splat_i32(cg, 0, n)), "");
  V shift = splat_i32(cg, (uint32_t)(23 - s.mantissa), n), half = splat_i32(cg, (1u << (22 - s.mantissa)) - 1, n);
  V odd = LLVMBuildAnd(b, LLVMBuildLShr(b, u, shift, ""), splat_i32(cg, 1, n), "");
  V rounded = LLVMBuildLShr(b, LLVMBuildAdd(b, u, LLVMBuildAdd(b, odd, half, ""), ""), shift, "");
  V normal = LLVMBuildSub(b, rounded, splat_i32(cg, (uint32_t)(126 + s.emin) << s.mantissa, n), "");
  normal = LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntSGT, normal, last, ""), splat_i32(cg, beyond, n), normal, "");
  V sum = LLVMBuildBitCast(b, LLVMBuildFAdd(b, a, magic, ""), LLVMTypeOf(u), "");
  V tiny = LLVMBuildSub(b, sum, LLVMBuildBitCast(b, magic, LLVMTypeOf(u), ""), "");
  V is_tiny = LLVMBuildFCmp(b, LLVMRealOLT, a, splat_f32(cg, ldexp(1, s.emin), n), "");
  return LLVMBuildSelect(b, is_tiny, tiny, normal, "");
}

V cy_lp_small_float_encode(cy_cg *cg, V x, cy_dtype t, unsigned n) {
  LLVMBuilderRef b = cg->b;
  T i32 = LLVMTypeOf(splat_i32(cg, 0, n)), i8 = cy_lp_mem(cg, t, n);
  V u = LLVMBuildBitCast(b, x, i32, "");
  if (t == CY_F8E8M0)
    return LLVMBuildTrunc(b, encode_e8m0(cg, x, u, n), i8, "");
  V code = encode_magnitude(cg, cy_intrinsic(cg, "llvm.fabs", LLVMTypeOf(x), &x, 1), t, n);
  uint32_t at = (uint32_t)__builtin_ctz((unsigned)(code_of(t, -1) ^ code_of(t, 1))); /* where the sign is */
  V sign = LLVMBuildShl(b, LLVMBuildLShr(b, u, splat_i32(cg, 31, n), ""), splat_i32(cg, at, n), "");
  V coded = LLVMBuildOr(b, code, sign, "");
  if (code_of(t, -0.0) == 0)
    coded = LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntEQ, code, splat_i32(cg, 0, n), ""), code, coded, "");
  V nan = LLVMBuildFCmp(b, LLVMRealUNO, x, x, "");
  coded = LLVMBuildSelect(b, nan, splat_i32(cg, code_of(t, NAN), n), coded, "");
  return LLVMBuildTrunc(b, coded, i8, "");
}
