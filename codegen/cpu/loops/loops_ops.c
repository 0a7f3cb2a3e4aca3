/* SPDX-License-Identifier: Apache-2.0 */
/* loops_ops.c - the arithmetic of loop IR on LLVM values, scalar or vector alike.
 *
 * In: ir/elementwise.def's expressions, operands in registers' types (see loops_int.h) and dtypes. Out: the result in its
 * register's type. Follows ir/scalar.c in every corner: integer division by zero is 0 and never traps, float to integer saturates
 * with NaN as 0, minimum and maximum propagate NaN, shifts by the width or more give 0 or the sign. Fast-math is limited to
 * `contract` (a * b + c may become one fma). Floats smaller than f32 are computed in f32 and rounded after every operation.
 * Functions LLVM has no instruction for call libm per lane; f32 ones are expanded before (ir/loop/loop_math.c) where speed
 * matters.
 */
#include "loops_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <llvm-c/Analysis.h>

static bool signed_int(cy_dtype t) { return cy_dtype_of(t)->cls == 'I'; }
static int bits_of(cy_dtype t) { return cy_dtype_of(t)->bits; }

/* A constant in the type of `like`. */
static V int_like(V like, uint64_t c) {
  T t = LLVMTypeOf(like);
  return cy_lp_in_lanes(t, LLVMConstInt(lane_type(t), c, 0));
}

static V real_like(V like, double c) {
  T t = LLVMTypeOf(like);
  return cy_lp_in_lanes(t, LLVMConstReal(lane_type(t), c));
}

static V contract(V v) {
  if (LLVMIsAInstruction(v))
    LLVMSetFastMathFlags(v, LLVMFastMathAllowContract);
  return v;
}

/* ---- storage types and back ---- */

static V bf16_bits(cy_cg *cg, V x, unsigned n) { /* f32 -> i32 holding the rounded upper half in place */
  LLVMBuilderRef b = cg->b;
  V u = LLVMBuildBitCast(b, x, lanes_of(cg->i32, n), "");
  V odd = LLVMBuildAnd(b, LLVMBuildLShr(b, u, int_like(u, 16), ""), int_like(u, 1), "");
  V r = LLVMBuildAdd(b, u, LLVMBuildAdd(b, odd, int_like(u, 0x7fff), ""), "");
  V nan = LLVMBuildOr(b, u, int_like(u, 0x400000), "");
  r = LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealUNO, x, x, ""), nan, r, "");
  return LLVMBuildAnd(b, r, int_like(u, 0xffff0000u), "");
}

/* An integer of fewer than 8 bits wrapped in its i8. */
static V wrap_small(cy_cg *cg, V v, cy_dtype t) {
  if (!cy_lp_packed(t))
    return v;
  if (signed_int(t)) {
    V up = int_like(v, 8 - (unsigned)bits_of(t));
    return LLVMBuildAShr(cg->b, LLVMBuildShl(cg->b, v, up, ""), up, "");
  }
  return LLVMBuildAnd(cg->b, v, int_like(v, (1u << bits_of(t)) - 1), "");
}

V cy_lp_from_mem(cy_cg *cg, V v, cy_dtype t, unsigned n) {
  LLVMBuilderRef b = cg->b;
  T reg = cy_lp_reg(cg, t, n);
  if (t == CY_BOOL)
    return LLVMBuildICmp(b, LLVMIntNE, v, LLVMConstNull(LLVMTypeOf(v)), "");
  if (t == CY_F16)
    return LLVMBuildFPExt(b, v, reg, "");
  if (t == CY_BF16) {
    V wide = LLVMBuildZExt(b, v, lanes_of(cg->i32, n), "");
    return LLVMBuildBitCast(b, LLVMBuildShl(b, wide, int_like(wide, 16), ""), reg, "");
  }
  if (small_float(t))
    return cy_lp_small_float_decode(cg, v, t, n);
  return cy_lp_packed(t) && signed_int(t) ? wrap_small(cg, v, t) : v;
}

V cy_lp_to_mem(cy_cg *cg, V v, cy_dtype t, unsigned n) {
  LLVMBuilderRef b = cg->b;
  T mem = cy_lp_mem(cg, t, n);
  if (t == CY_BOOL)
    return LLVMBuildZExt(b, v, mem, "");
  if (t == CY_F16)
    return LLVMBuildFPTrunc(b, v, mem, "");
  if (t == CY_BF16) { /* rounded already, like every value of a small type */
    V u = LLVMBuildBitCast(b, v, lanes_of(cg->i32, n), "");
    return LLVMBuildTrunc(b, LLVMBuildLShr(b, u, int_like(u, 16), ""), mem, "");
  }
  return small_float(t) ? cy_lp_small_float_encode(cg, v, t, n) : v;
}

/* An f32 made representable in the small type t. */
static V round_small(cy_cg *cg, V v, cy_dtype t, unsigned n) {
  if (t == CY_BF16)
    return LLVMBuildBitCast(cg->b, bf16_bits(cg, v, n), LLVMTypeOf(v), "");
  return cy_lp_from_mem(cg, cy_lp_to_mem(cg, v, t, n), t, n);
}

/* ---- libm ---- */

static V libm_function(cy_cg *cg, const char *name, T type, unsigned nargs) {
  V fn = LLVMGetNamedFunction(cg->module, name);
  if (fn)
    return fn;
  T params[2] = {type, type};
  return LLVMAddFunction(cg->module, name, LLVMFunctionType(type, params, nargs, 0));
}

static V libm_call(cy_cg *cg, const char *base, V *a, unsigned nargs, unsigned n) {
  T type = lane_type(LLVMTypeOf(a[0]));
  char name[16];
  snprintf(name, sizeof name, "%s%s", base, type == cg->f32 ? "f" : "");
  V fn = libm_function(cg, name, type, nargs), out = LLVMGetPoison(LLVMTypeOf(a[0])), lane[2];
  for (unsigned i = 0; i < n; i++) {
    for (unsigned j = 0; j < nargs; j++)
      lane[j] = cy_lp_lane(cg, a[j], i, n);
    V v = cy_call(cg, fn, lane, nargs);
    if (n == 1)
      return v;
    out = cy_lp_set_lane(cg, out, v, i);
  }
  return out;
}

/* ---- floats ---- */

static V real_intrinsic(cy_cg *cg, const char *name, V x) { return cy_intrinsic(cg, name, LLVMTypeOf(x), &x, 1); }

static unsigned number_kind(cy_cg *cg) { return LLVMGetMDKindIDInContext(cg->ctx, "cyto.number", 11); }

void cy_lp_is_number(cy_cg *cg, V v) {
  LLVMSetMetadata(v, number_kind(cg), LLVMMetadataAsValue(cg->ctx, LLVMMDNodeInContext2(cg->ctx, NULL, 0)));
}

/* The scalar that all lanes of a vector made by cy_splat are, or v itself. */
static V repeated(V v) {
  V one = LLVMIsAShuffleVectorInst(v) ? LLVMGetOperand(v, 0) : NULL;
  return one && LLVMIsAInsertElementInst(one) ? LLVMGetOperand(one, 1) : v;
}

static bool is_number(cy_cg *cg, V v) { /* a constant or a parameter that is not NaN */
  if (!LLVMIsConstant(v)) {
    V one = repeated(v);
    return LLVMIsALoadInst(one) && LLVMGetMetadata(one, number_kind(cg));
  }
  if (cy_is_vector(v))
    v = LLVMGetAggregateElement(v, 0);
  LLVMBool lost;
  return v && LLVMIsAConstantFP(v) && !isnan(LLVMConstRealGetDouble(v, &lost));
}

/* `a < c ? c : a` keeps a NaN in a and is one instruction; only where either may be NaN a second test is due. */
static V real_minmax(cy_cg *cg, cy_op op, V a, V c) {
  LLVMRealPredicate p = op == CY_OP_max ? LLVMRealOLT : LLVMRealOGT;
  if (is_number(cg, a)) {
    V t = a;
    a = c;
    c = t;
  }
  V m = LLVMBuildSelect(cg->b, LLVMBuildFCmp(cg->b, p, a, c, ""), c, a, ""); /* a NaN: a; c NaN: a */
  if (is_number(cg, c))
    return m;
  m = LLVMBuildFreeze(cg->b, m, ""); /* else LLVM makes one select of both, which takes a test, an `or` and a blend */
  return LLVMBuildSelect(cg->b, LLVMBuildFCmp(cg->b, LLVMRealUNO, c, c, ""), c, m, "");
}

static V real_mod(cy_cg *cg, V a, V c) {
  LLVMBuilderRef b = cg->b;
  V r = LLVMBuildFRem(b, a, c, ""), zero = real_like(a, 0);
  V other = LLVMBuildFCmp(b, LLVMRealOLT, c, zero, "");
  other = LLVMBuildXor(b, LLVMBuildFCmp(b, LLVMRealOLT, r, zero, ""), other, "");
  V fix = LLVMBuildAnd(b, other, LLVMBuildFCmp(b, LLVMRealONE, r, zero, ""), "");
  return LLVMBuildSelect(b, fix, LLVMBuildFAdd(b, r, c, ""), r, "");
}

static V real_sign(cy_cg *cg, V x) {
  LLVMBuilderRef b = cg->b;
  V zero = real_like(x, 0), one = real_like(x, 1), minus = real_like(x, -1);
  V none = LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealUNO, x, x, ""), x, zero, ""); /* 0 of -0 */
  V low = LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealOLT, x, zero, ""), minus, none, "");
  return LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealOGT, x, zero, ""), one, low, "");
}

static V real_sigmoid(cy_cg *cg, V x, unsigned n) {
  V minus = LLVMBuildFNeg(cg->b, x, ""), one = real_like(x, 1);
  return LLVMBuildFDiv(cg->b, one, LLVMBuildFAdd(cg->b, one, libm_call(cg, "exp", &minus, 1, n), ""), "");
}

/* ---- integers ---- */

static V int_minmax(cy_cg *cg, cy_op op, bool sgn, V a, V c) {
  LLVMIntPredicate p = sgn ? LLVMIntSLT : LLVMIntULT;
  V less = LLVMBuildICmp(cg->b, p, a, c, "");
  return LLVMBuildSelect(cg->b, less, op == CY_OP_min ? a : c, op == CY_OP_min ? c : a, "");
}

/* May a quotient of vectors be one of floats, cut off? A quotient that is no whole number is at least 1 / d away from
 * one, which rounding does not bridge: in f64 for 32 bits, in f32 for 16. There are no instructions for integers, but
 * LLVM knows better for constant divisors. */
static bool divides_by_floats(bool sgn, V d) {
  T t = LLVMTypeOf(d);
  if (!cy_is_vector(d) || LLVMIsConstant(d))
    return false;
  unsigned bits = LLVMGetIntTypeWidth(lane_type(t));
  return bits <= 16 || (bits == 32 && sgn);
}

static V quotient(cy_cg *cg, bool sgn, V a, V d) {
  LLVMBuilderRef b = cg->b;
  if (!divides_by_floats(sgn, d))
    return sgn ? LLVMBuildSDiv(b, a, d, "") : LLVMBuildUDiv(b, a, d, "");
  T t = LLVMTypeOf(d), wide = LLVMVectorType(cg->i32, LLVMGetVectorSize(t));
  T real = LLVMVectorType(LLVMGetIntTypeWidth(lane_type(t)) == 32 ? cg->f64 : cg->f32, LLVMGetVectorSize(t));
  V x = LLVMBuildSIToFP(b, LLVMBuildIntCast2(b, a, wide, sgn, ""), real, "");
  V y = LLVMBuildSIToFP(b, LLVMBuildIntCast2(b, d, wide, sgn, ""), real, "");
  return LLVMBuildIntCast2(b, LLVMBuildFPToSI(b, LLVMBuildFDiv(b, x, y, ""), wide, ""), t, sgn, "");
}

/* The rest of a division whose quotient vectors have by floats; else LLVM's own. */
static V rest(cy_cg *cg, bool sgn, V a, V d) {
  LLVMBuilderRef b = cg->b;
  if (divides_by_floats(sgn, d))
    return LLVMBuildSub(b, a, LLVMBuildMul(b, quotient(cg, sgn, a, d), d, ""), "");
  return sgn ? LLVMBuildSRem(b, a, d, "") : LLVMBuildURem(b, a, d, "");
}

/* Divisors 0 (and -1, where the quotient may overflow) are replaced by 1 and the result is chosen afterwards. */
static V int_divide(cy_cg *cg, cy_op op, bool sgn, V a, V d) {
  LLVMBuilderRef b = cg->b;
  V zero = int_like(d, 0), one = int_like(d, 1), minus = LLVMConstAllOnes(LLVMTypeOf(d));
  int64_t known;
  bool plain = cy_is_const(d, &known) && known != 0 && known != -1;
  V is0 = LLVMBuildICmp(b, LLVMIntEQ, d, zero, ""), is1 = sgn ? LLVMBuildICmp(b, LLVMIntEQ, d, minus, "") : NULL;
  V risky = sgn ? LLVMBuildOr(b, is0, is1, "") : is0;
  V safe = plain ? d : LLVMBuildSelect(b, risky, one, d, "");
  if (op == CY_OP_div) {
    V q = quotient(cg, sgn, a, safe);
    if (plain)
      return q;
    if (sgn)
      q = LLVMBuildSelect(b, is1, LLVMBuildNeg(b, a, ""), q, "");
    return LLVMBuildSelect(b, is0, zero, q, "");
  }
  if (!sgn)
    return rest(cg, sgn, a, safe); /* x mod 1 = 0, which is also what x mod 0 is */
  V r = rest(cg, sgn, a, safe);
  if (op == CY_OP_fmod)
    return r;
  V other = LLVMBuildICmp(b, LLVMIntSLT, LLVMBuildXor(b, r, safe, ""), zero, "");
  V fix = LLVMBuildAnd(b, other, LLVMBuildICmp(b, LLVMIntNE, r, zero, ""), "");
  return LLVMBuildSelect(b, fix, LLVMBuildAdd(b, r, safe, ""), r, "");
}

typedef struct power {
  V result, square, exponent; /* what is left of it */
} power;

/* One bit of the exponent. */
static power power_iteration(cy_cg *cg, power p) {
  LLVMBuilderRef b = cg->b;
  V one = int_like(p.square, 1);
  V take = LLVMBuildICmp(b, LLVMIntNE, LLVMBuildAnd(b, p.exponent, one, ""), int_like(one, 0), "");
  return (power){LLVMBuildSelect(b, take, LLVMBuildMul(b, p.result, p.square, ""), p.result, ""),
                 LLVMBuildMul(b, p.square, p.square, ""), LLVMBuildLShr(b, p.exponent, one, "")};
}

/* How many bits the largest exponent of all lanes has. */
static V exponent_bits(cy_cg *cg, V exponent) {
  V top[2] = {exponent, LLVMConstNull(cg->i1)};
  if (cy_is_vector(exponent))
    top[0] = cy_intrinsic(cg, "llvm.vector.reduce.or", LLVMTypeOf(exponent), &exponent, 1);
  T type = LLVMTypeOf(top[0]);
  V zeros = LLVMBuildZExt(cg->b, cy_intrinsic(cg, "llvm.ctlz", type, top, 2), cg->i64, "");
  return cy_sub(cg, cy_i64(cg, LLVMGetIntTypeWidth(type)), zeros);
}

/* As many iterations as the exponents at hand need; those that are known are laid out flat, for LLVM to simplify. */
static V int_power(cy_cg *cg, bool sgn, int bits, V base, V exponent) {
  LLVMBuilderRef b = cg->b;
  V one = int_like(base, 1), zero = int_like(base, 0), minus = LLVMConstAllOnes(LLVMTypeOf(base)), r;
  power p = {one, base, exponent};
  if (LLVMIsConstant(exponent)) {
    for (int i = 0; i < bits; i++)
      p = power_iteration(cg, p);
    r = p.result;
  } else {
    cy_loop l;
    V init[3] = {p.result, p.square, p.exponent};
    cy_loop_begin(cg, &l, cy_i64(cg, 0), exponent_bits(cg, exponent), cy_i64(cg, 1), init, 3);
    p = power_iteration(cg, (power){l.v[0], l.v[1], l.v[2]});
    cy_loop_end(cg, &l, (V[]){p.result, p.square, p.exponent});
    r = l.out[0];
  }
  if (!sgn)
    return r;
  V odd = LLVMBuildICmp(b, LLVMIntNE, LLVMBuildAnd(b, exponent, one, ""), zero, "");
  V flip = LLVMBuildSelect(b, odd, minus, one, "");
  V low = LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntEQ, base, minus, ""), flip, zero, "");
  low = LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntEQ, base, one, ""), one, low, "");
  return LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntSLT, exponent, zero, ""), low, r, "");
}

static V int_shift(cy_cg *cg, cy_op op, bool sgn, int bits, V a, V by) {
  LLVMBuilderRef b = cg->b;
  V width = int_like(by, (uint64_t)bits), inside = LLVMBuildICmp(b, LLVMIntULT, by, width, "");
  V safe = LLVMBuildSelect(b, inside, by, int_like(by, (uint64_t)bits - 1), "");
  if (op == CY_OP_shr && sgn)
    return LLVMBuildAShr(b, a, safe, "");
  V r = op == CY_OP_shl ? LLVMBuildShl(b, a, safe, "") : LLVMBuildLShr(b, a, safe, "");
  return LLVMBuildSelect(b, inside, r, int_like(a, 0), "");
}

static V int_abs(cy_cg *cg, V a) {
  V negated = LLVMBuildNeg(cg->b, a, "");
  return LLVMBuildSelect(cg->b, LLVMBuildICmp(cg->b, LLVMIntSLT, a, int_like(a, 0), ""), negated, a, "");
}

static V int_sign(cy_cg *cg, bool sgn, V x) {
  LLVMBuilderRef b = cg->b;
  V zero = int_like(x, 0);
  V positive = LLVMBuildZExt(b, LLVMBuildICmp(b, LLVMIntNE, x, zero, ""), LLVMTypeOf(x), "");
  if (!sgn)
    return positive;
  V low = LLVMBuildICmp(b, LLVMIntSLT, x, zero, "");
  return LLVMBuildSelect(b, low, LLVMConstAllOnes(LLVMTypeOf(x)), positive, "");
}

/* One instruction for each whole vector of words, where lanes fill some or a half or a quarter of one. */
static V mul_q15(cy_cg *cg, V x, V y) {
  LLVMBuilderRef b = cg->b;
  unsigned lanes = cy_is_vector(x) ? LLVMGetVectorSize(LLVMTypeOf(x)) : 1, max = 2 * cg->W;
  unsigned each = lanes < max ? lanes : max;
  if (!cg->avx2 || lanes > 64 || lanes % each || (each != 8 && each != 16 && each != 32)) {
    T wide = lanes_of(cg->i32, lanes);
    V product = LLVMBuildSExt(b, x, wide, ""), by = LLVMBuildSExt(b, y, wide, "");
    product = LLVMBuildMul(b, product, by, "");
    product = LLVMBuildAdd(b, product, int_like(product, 1 << 14), "");
    return LLVMBuildTrunc(b, LLVMBuildAShr(b, product, int_like(product, 15), ""), LLVMTypeOf(x), "");
  }
  V part[8];
  for (unsigned i = 0; i < lanes / each; i++) {
    V factor[2] = {cy_some_lanes(cg, x, i * each, each), cy_some_lanes(cg, y, i * each, each)};
    part[i] = cy_intrinsic_of(cg,
                              each == 32   ? "llvm.x86.avx512.pmul.hr.sw.512"
                              : each == 16 ? "llvm.x86.avx2.pmul.hr.sw"
                                           : "llvm.x86.ssse3.pmul.hr.sw.128",
                              NULL, 0, factor, 2);
  }
  return cy_joined_all(cg, part, lanes / each);
}

/* ---- the expressions of elementwise.def ---- */

static _Noreturn void no_expression(cy_op op, cy_dtype t) {
  cy_bug("op '%s' on %s in a kernel", cy_op_of(op)->name, cy_dtype_of(t)->name);
}
#define NONE (no_expression(op, t), NULL)

static V real_op(cy_cg *cg, cy_op op, cy_dtype t, V *a, int nargs, unsigned n) {
  LLVMBuilderRef b = cg->b;
  V x = a[0], y = nargs > 1 ? a[1] : NULL, z = nargs > 2 ? a[2] : NULL;
  switch (op) {
#define EW_OP(name, inputs, flags, attributes, cost, real, integer, llvm_real, ...)                                    \
  case CY_OP_##name:                                                                                                   \
    return llvm_real;
#include "ir/elementwise.def"
#undef EW_OP
  default:
    return NONE;
  }
}

static V int_op(cy_cg *cg, cy_op op, cy_dtype t, V *a, int nargs) {
  LLVMBuilderRef b = cg->b;
  V x = a[0], y = nargs > 1 ? a[1] : NULL, z = nargs > 2 ? a[2] : NULL;
  bool sgn = signed_int(t);
  int bits = t == CY_BOOL ? 1 : bits_of(t);
  switch (op) {
#define EW_OP(name, inputs, flags, attributes, cost, real, integer, llvm_real, llvm_integer, ...)                      \
  case CY_OP_##name:                                                                                                   \
    return llvm_integer;
#include "ir/elementwise.def"
#undef EW_OP
  default:
    return NONE;
  }
}

/* ---- conversion, comparison ---- */

/* Saturated, 0 for NaN: LLVM takes vectors apart for its own instruction. low: the least number; high: the largest one below
 * too_large, which is one more than `max`, the largest integer. */
typedef struct int_range {
  double low, high, too_large;
  int64_t max;
} int_range;
static const int_range f32_to_i32 = {-0x1p31, 0x1.fffffep30, 0x1p31, INT32_MAX},
                       f32_to_i64 = {-0x1p63, 0x1.fffffep62, 0x1p63, INT64_MAX},
                       f64_to_i64 = {-0x1p63, 0x1.fffffffffffffp62, 0x1p63, INT64_MAX};

static V to_int_within(cy_cg *cg, V x, T reg, const int_range *r) {
  LLVMBuilderRef b = cg->b;
  V low = real_like(x, r->low), high = real_like(x, r->high), too_large = real_like(x, r->too_large);
  V y = LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealOGT, x, low, ""), x, low, "");
  y = LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealOLT, y, high, ""), y, high, "");
  V v = LLVMBuildFPToSI(b, y, reg, ""), max = int_like(v, r->max);
  v = LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealOGE, x, too_large, ""), max, v, "");
  return LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealUNO, x, x, ""), LLVMConstNull(LLVMTypeOf(v)), v, "");
}

static V saturated(cy_cg *cg, V x, T reg, bool sgn) {
  T types[2] = {reg, LLVMTypeOf(x)};
  return cy_intrinsic_of(cg, sgn ? "llvm.fptosi.sat" : "llvm.fptoui.sat", types, 2, &x, 1);
}

/* To i64 by way of i32, where that holds all of the numbers: there are instructions for vectors of these. */
static V real_to_i64(cy_cg *cg, V x, unsigned n) {
  LLVMBuilderRef b = cg->b;
  T reg = cy_lp_reg(cg, CY_I64, n);
  V small = LLVMBuildFCmp(b, LLVMRealOLT, real_intrinsic(cg, "llvm.fabs", x), real_like(x, 0x1p31), "");
  cy_either e;
  cy_either_begin(cg, &e, cy_intrinsic(cg, "llvm.vector.reduce.and", LLVMTypeOf(small), &small, 1), NULL);
  cy_either_else(cg, &e, LLVMBuildSExt(b, LLVMBuildFPToSI(b, x, lanes_of(cg->i32, n), ""), reg, ""));
  return cy_either_end(cg, &e, saturated(cg, x, reg, true));
}

static V real_to_int(cy_cg *cg, V x, cy_dtype t, unsigned n) {
  LLVMBuilderRef b = cg->b;
  bool sgn = signed_int(t), is_f32 = n > 1 && LLVMGetElementType(LLVMTypeOf(x)) == cg->f32;
  int bits = bits_of(t);
  T reg = cy_lp_reg(cg, t, n);
  if (is_f32 && t == CY_I32)
    return to_int_within(cg, x, reg, &f32_to_i32);
  if (n >= 4 && t == CY_I64) /* an instruction of AVX-512 only */
    return cg->avx512 ? to_int_within(cg, x, reg, is_f32 ? &f32_to_i64 : &f64_to_i64) : real_to_i64(cg, x, n);
  bool exact = n > 1 && t == CY_I32; /* f64 has all of i32 */
  if (bits >= 32 && !exact)
    return saturated(cg, x, reg, sgn);
  if (bits < 8)
    return wrap_small(cg, LLVMBuildTrunc(b, real_to_int(cg, x, CY_I32, n), reg, ""), t);
  double lo, hi;
  cy_dtype_int_range(t, &lo, &hi);
  x = LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealUNO, x, x, ""), real_like(x, 0), x, "");
  x = real_minmax(cg, CY_OP_min, real_minmax(cg, CY_OP_max, x, real_like(x, lo)), real_like(x, hi));
  V v = LLVMBuildFPToSI(b, x, lanes_of(cg->i32, n), "");
  return exact ? v : LLVMBuildTrunc(b, v, reg, "");
}

static V int_to_int(cy_cg *cg, V v, cy_dtype from, cy_dtype to, unsigned n) {
  T reg = cy_lp_reg(cg, to, n);
  unsigned a = from == CY_BOOL ? 1 : bits_of(from) < 8 ? 8 : (unsigned)bits_of(from);
  unsigned z = bits_of(to) < 8 ? 8 : (unsigned)bits_of(to);
  if (a < z)
    v = signed_int(from) ? LLVMBuildSExt(cg->b, v, reg, "") : LLVMBuildZExt(cg->b, v, reg, "");
  else if (a > z)
    v = LLVMBuildTrunc(cg->b, v, reg, "");
  return bits_of(to) < bits_of(from) || signed_int(to) != signed_int(from) ? wrap_small(cg, v, to) : v;
}

/* The largest finite number of t, which saturating casts stop at; infinite where casts do not saturate. */
static double cast_limit(cy_dtype t) {
  cy_scalar inf = {.f = INFINITY};
  double top = cy_scalar_eval(CY_OP_cast, CY_F64, t, &inf).f;
  return isnan(top) ? INFINITY : top;
}

static V convert(cy_cg *cg, V v, cy_dtype from, cy_dtype to, bool saturate, unsigned n) {
  LLVMBuilderRef b = cg->b;
  bool real_from = cy_dtype_is_float(from), real_to = cy_dtype_is_float(to);
  if (to == CY_BOOL)
    return real_from ? LLVMBuildFCmp(b, LLVMRealUNE, v, real_like(v, 0), "")
                     : LLVMBuildICmp(b, LLVMIntNE, v, int_like(v, 0), "");
  if (!real_to)
    return real_from ? real_to_int(cg, v, to, n) : int_to_int(cg, v, from, to, n);
  T reg = cy_lp_reg(cg, to, n);
  if (!real_from)
    v = signed_int(from) ? LLVMBuildSIToFP(b, v, reg, "") : LLVMBuildUIToFP(b, v, reg, "");
  else if (from == CY_F64 && to != CY_F64)
    v = LLVMBuildFPTrunc(b, v, reg, "");
  else if (from != CY_F64 && to == CY_F64)
    v = LLVMBuildFPExt(b, v, reg, "");
  if (!small_float(to) || from == to)
    return v;
  double top = cast_limit(to);
  if (saturate && isfinite(top)) {
    v = real_minmax(cg, CY_OP_min, v, real_like(v, top));
    v = real_minmax(cg, CY_OP_max, v, real_like(v, -top));
  }
  return round_small(cg, v, to, n);
}

static V bit_cast(cy_cg *cg, V v, cy_dtype from, cy_dtype to, unsigned n) {
  V mem = cy_lp_to_mem(cg, v, from, n);
  return cy_lp_from_mem(cg, LLVMBuildBitCast(cg->b, mem, cy_lp_mem(cg, to, n), ""), to, n);
}

static V compare(cy_cg *cg, cy_op op, cy_dtype t, V a, V c) {
  static const LLVMRealPredicate real[] = {LLVMRealOEQ, LLVMRealUNE, LLVMRealOLT,
                                           LLVMRealOLE, LLVMRealOGT, LLVMRealOGE};
  static const LLVMIntPredicate sgn[] = {LLVMIntEQ, LLVMIntNE, LLVMIntSLT, LLVMIntSLE, LLVMIntSGT, LLVMIntSGE};
  static const LLVMIntPredicate uns[] = {LLVMIntEQ, LLVMIntNE, LLVMIntULT, LLVMIntULE, LLVMIntUGT, LLVMIntUGE};
  int i = op - CY_OP_eq;
  if (cy_dtype_is_float(t))
    return LLVMBuildFCmp(cg->b, real[i], a, c, "");
  return LLVMBuildICmp(cg->b, signed_int(t) ? sgn[i] : uns[i], a, c, "");
}

static V float_class(cy_cg *cg, cy_op op, cy_dtype t, V x, unsigned n) {
  if (!cy_dtype_is_float(t))
    return LLVMConstNull(lanes_of(cg->i1, n));
  if (op == CY_OP_isnan)
    return LLVMBuildFCmp(cg->b, LLVMRealUNO, x, x, "");
  return LLVMBuildFCmp(cg->b, LLVMRealOEQ, real_intrinsic(cg, "llvm.fabs", x), real_like(x, INFINITY), "");
}

V cy_lp_cast_unsaturated(cy_cg *cg, V v, cy_dtype in, cy_dtype out, unsigned n) {
  return convert(cg, v, in, out, false, n);
}

V cy_lp_op(cy_cg *cg, cy_op op, cy_dtype in, cy_dtype out, V *a, int nargs, unsigned n) {
  if (op == CY_OP_cast)
    return convert(cg, a[0], in, out, true, n);
  if (op == CY_OP_bitcast)
    return bit_cast(cg, a[0], in, out, n);
  if (op == CY_OP_isnan || op == CY_OP_isinf)
    return float_class(cg, op, in, a[0], n);
  if (cy_op_of(op)->gives_bool)
    return compare(cg, op, in, a[0], a[1]);
  if (!cy_dtype_is_float(in))
    return wrap_small(cg, int_op(cg, op, in, a, nargs), in);
  V v = real_op(cg, op, in, a, nargs, n);
  return small_float(out) && !cy_op_of(op)->exact ? round_small(cg, v, out, n) : v;
}
