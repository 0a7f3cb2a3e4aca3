/* SPDX-License-Identifier: Apache-2.0 */
/* loop_math.c - functions of f32 as arithmetic: one expression that vectorises and agrees on CPU, CUDA and the oracle.
 *
 * In: a kernel with exp, tanh, pow, .. nodes. Out: the same kernel where those of dtype f32 are polynomials in + - *
 * fma / and bit operations; other dtypes stay calls of the target's library. Coefficients were fitted for this file:
 * least maximum relative error on the reduced interval, the low ones rounded to f32 before the next were fitted. Errors
 * (ulp, measured by tests/codegen/math_test.c): exp, log, log1p, sigmoid, tanh, erf, sin, cos, tan, asin, atan up to 4,
 * erfc up to 7, the compositions up to 8. Infinities, NaN, denormal results (but for those of sigmoid and erfc, which are
 * 0) and signed zeros come out as libm's. Kernels of 8-bit integers have a rougher sigmoid. To know before editing:
 * the order of operations is part of the result; contraction of a * b + c must not hurt.
 */
#include "loop_int.h"

#include <math.h>

#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

/* ---- shorthands: everything is f32 unless said otherwise ---- */

static cy_expr num(cy_kernel *k, double v) { return cy_x_const(k, CY_F32, v); }
static cy_expr int32(cy_kernel *k, int64_t v) { return cy_x_int(k, CY_I32, v); }
#define bin(k, op, a, b) cy_x_bin(k, op, a, b)
#define add(k, a, b) cy_x_bin(k, CY_OP_add, a, b)
#define sub(k, a, b) cy_x_bin(k, CY_OP_sub, a, b)
#define mul(k, a, b) cy_x_bin(k, CY_OP_mul, a, b)
#define divide(k, a, b) cy_x_bin(k, CY_OP_div, a, b)
static cy_expr un(cy_kernel *k, cy_op op, cy_expr a) { return cy_x_un(k, op, a); }
static cy_expr abs_of(cy_kernel *k, cy_expr a) { return un(k, CY_OP_abs, a); }

static cy_expr fma_of(cy_kernel *k, cy_expr a, cy_expr b, cy_expr c) {
  cy_expr args[3] = {a, b, c};
  return cy_x_op(k, CY_OP_fma, cy_expr_of(k, a)->dtype, args, 3);
}
#define fma_of(k, a, b, c) CY_LAST_FIRST3(cy_expr, a, b, c, fma_of(k, x_, y_, z_))

static cy_expr bits(cy_kernel *k, cy_expr a, cy_dtype to) { return cy_x_op(k, CY_OP_bitcast, to, &a, 1); }

static cy_expr clamp(cy_kernel *k, cy_expr x, double lo, double hi) {
  return bin(k, CY_OP_min, bin(k, CY_OP_max, x, num(k, lo)), num(k, hi));
}

/* c[0] + x * (c[1] + x * ..) in x's dtype */
static cy_expr poly(cy_kernel *k, cy_expr x, const double *c, int n) {
  cy_dtype t = cy_expr_of(k, x)->dtype;
  cy_expr p = cy_x_const(k, t, c[n - 1]);
  for (int i = n - 2; i >= 0; i--)
    p = fma_of(k, p, x, cy_x_const(k, t, c[i]));
  return p;
}

/* |a| with the sign of s */
static cy_expr with_sign(cy_kernel *k, cy_expr a, cy_expr s) {
  cy_expr sign = bin(k, CY_OP_and, bits(k, s, CY_I32), int32(k, INT32_MIN));
  return bits(k, bin(k, CY_OP_or, bits(k, a, CY_I32), sign), CY_F32);
}

/* ---- exponential and logarithm ---- */

/* Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits. */
static const double MAGIC = 12582912;

/* p * 2^n for -152 <= n <= 130, n given as n + MAGIC: in two factors, so that denormal and infinite results come out
 * right. */
static cy_expr scale(cy_kernel *k, cy_expr p, cy_expr n_magic) {
  cy_expr n = sub(k, bits(k, n_magic, CY_I32), bits(k, num(k, MAGIC), CY_I32));
  cy_expr half = bin(k, CY_OP_shr, n, int32(k, 1)), rest = sub(k, n, half), factor[2] = {half, rest};
  for (int i = 0; i < 2; i++) {
    cy_expr exponent = bin(k, CY_OP_shl, add(k, factor[i], int32(k, 127)), int32(k, 23));
    p = mul(k, p, bits(k, exponent, CY_F32));
  }
  return p;
}

static const double LOG2_E = 1.4426950408889634, LN_2_HIGH = 0.693145751953125, LN_2_LOW = 1.4286068203094172e-6;

/* e^r - 1 for |r| up to ln(2) / 2, and a little more */
static cy_expr exp_less_one(cy_kernel *k, cy_expr r) {
  static const double c[] = {0.49999994, 0.16666521, 0.04166827, 0.008368677, 0.0013820411}; /* (e^r - 1 - r) / r^2 */
  return fma_of(k, poly(k, r, c, COUNT(c)), mul(k, r, r), r);
}

/* e^x as (1 + p) * 2^n with 1 + p between 0.7 and 1.42, n given as n + magic; |x| up to 105. */
static cy_expr exp_parts(cy_kernel *k, cy_expr x, double magic, cy_expr *out_n_magic) {
  cy_expr n_magic = fma_of(k, x, num(k, LOG2_E), num(k, magic)), n = sub(k, n_magic, num(k, magic));
  cy_expr r = fma_of(k, n, num(k, -LN_2_HIGH), x);
  *out_n_magic = n_magic;
  return exp_less_one(k, fma_of(k, n, num(k, -LN_2_LOW), r));
}

/* 2^n given as n + MAGIC + 127, whose low bits are an exponent; that of 0 is 0. */
static cy_expr exponent_of(cy_kernel *k, cy_expr n_magic) {
  cy_expr exponent = bin(k, CY_OP_shl, bits(k, n_magic, CY_I32), int32(k, 23)); /* MAGIC's own bits are gone then */
  return bits(k, exponent, CY_F32);
}

/* So far down as 2^n is no number any more x need be held. */
cy_expr cy_x_exp_below(cy_kernel *k, cy_expr x) {
  if (cy_expr_of(k, x)->dtype != CY_F32)
    return un(k, CY_OP_exp, x);
  cy_expr min = num(k, -88), n_magic;
  cy_expr p = exp_parts(k, cy_x_select(k, bin(k, CY_OP_lt, x, min), min, x), MAGIC + 127, &n_magic);
  cy_expr power = exponent_of(k, n_magic);
  return fma_of(k, p, power, power);
}

static cy_expr exp_of(cy_kernel *k, cy_expr x) {
  cy_expr n_magic, p = exp_parts(k, clamp(k, x, -105, 89.5), MAGIC, &n_magic);
  return scale(k, add(k, p, num(k, 1)), n_magic);
}

/* x = 2^e * (1 + f), 1 + f in [0.7071, 1.4142); e as f32. Denormals are scaled up first. */
static cy_expr split_exponent(cy_kernel *k, cy_expr x, cy_expr *out_e) {
  cy_expr tiny = bin(k, CY_OP_lt, x, num(k, 0x1p-126));
  cy_expr up = cy_x_select(k, tiny, mul(k, x, num(k, 0x1p23)), x);
  cy_expr u = bits(k, up, CY_I32), e = bin(k, CY_OP_shr, sub(k, u, int32(k, 0x3f3504f3)), int32(k, 23));
  cy_expr m = bits(k, sub(k, u, bin(k, CY_OP_shl, e, int32(k, 23))), CY_F32);
  *out_e = sub(k, cy_x_cast(k, e, CY_F32), cy_x_select(k, tiny, num(k, 23), num(k, 0)));
  return sub(k, m, num(k, 1));
}

/* log of positive finite numbers is `value`; the rest as IEEE wants it. */
static cy_expr log_edges(cy_kernel *k, cy_expr x, cy_expr value) {
  cy_dtype t = cy_expr_of(k, value)->dtype;
  cy_expr zero = num(k, 0), inf = num(k, INFINITY);
  value = cy_x_select(k, bin(k, CY_OP_eq, x, inf), cy_x_const(k, t, INFINITY), value);
  value = cy_x_select(k, bin(k, CY_OP_eq, x, zero), cy_x_const(k, t, -INFINITY), value);
  cy_expr wrong = bin(k, CY_OP_or, bin(k, CY_OP_lt, x, zero), un(k, CY_OP_isnan, x));
  return cy_x_select(k, wrong, cy_x_const(k, t, NAN), value);
}

static cy_expr log_of(cy_kernel *k, cy_expr x) {
  /* (log(1 + f) - f + f^2 / 2) / f^3 */
  static const double c[] = {0.33333313,   -0.2500001, 0.20002078,  -0.16668005, 0.14220184,
                             -0.124056704, 0.11884535, -0.11674724, 0.067528136};
  cy_expr e, f = split_exponent(k, x, &e), f2 = mul(k, f, f);
  cy_expr tail = mul(k, mul(k, f2, f), poly(k, f, c, COUNT(c)));
  tail = fma_of(k, e, num(k, -2.12194440e-4), tail);
  tail = fma_of(k, f2, num(k, -0.5), tail);
  cy_expr sum = add(k, f, tail);
  return log_edges(k, x, fma_of(k, e, num(k, 0.693359375), sum));
}

/* log(1 + t) without losing a small t: log(u) + what rounding 1 + t to u took away. */
static cy_expr log1p_of(cy_kernel *k, cy_expr t) {
  cy_expr one = num(k, 1), u = add(k, t, one), lost = sub(k, sub(k, u, one), t);
  cy_expr finite = bin(k, CY_OP_lt, u, num(k, INFINITY)), fix = divide(k, lost, bin(k, CY_OP_max, u, num(k, 0x1p-24)));
  cy_expr value = sub(k, log_of(k, u), cy_x_select(k, finite, fix, num(k, 0)));
  return cy_x_select(k, bin(k, CY_OP_eq, u, one), t, value);
}

/* ---- sigmoid, hyperbolic functions, erf ---- */

/* 1 / (1 + e^-x) with e^-x = 2^n * (a - b) / (a + b), where b / a = tanh(r / 2), r = x + n * ln 2: one division for
 * both quotients, and 2^n is a factor of a product that is due anyway. n + 127 stands in the low bits, so that a shift
 * makes it the exponent of 2^n: 0 for n = -127, infinity for n = 128, which below
 * -88.4 makes the result 0. */
static cy_expr sigmoid_of(cy_kernel *k, cy_expr x) {
  cy_expr one = num(k, 1), biased = num(k, MAGIC + 127), t = clamp(k, x, -88.8, 88);
  cy_expr n_magic = fma_of(k, t, num(k, -1.4426950408889634), biased), n = sub(k, n_magic, biased);
  cy_expr r = fma_of(k, n, num(k, 0.693145751953125), t);
  r = fma_of(k, n, num(k, 1.4286068203094172e-6), r);
  cy_expr z = mul(k, r, r), a = fma_of(k, z, num(k, 0.1), one);
  cy_expr b = mul(k, r, fma_of(k, z, num(k, 1 / 120.0), num(k, 0.5))), sum = add(k, a, b);
  return divide(k, sum, fma_of(k, exponent_of(k, n_magic), sub(k, a, b), sum));
}

/* 1 / (1 + e^-x) to a relative error of 2e-4: a twentieth of a step of 8 bits. No division, and few operations that wait
 * for each other: that is what an epilogue's time is made of. The inverse of d begins with the negative of its exponent,
 * 5 % off at most, and takes one step of third order. */
static cy_expr rough_sigmoid_of(cy_kernel *k, cy_expr x) {
  static const double c[] = {0.99992807, 0.69326099, 0.24261115, 0.05517167}; /* 2^f, |f| <= 1/2 */
  enum { ABOUT_INVERSE = 0x7ef311c3 };
  cy_expr one = num(k, 1), biased = num(k, MAGIC + 127), t = clamp(k, x, -80, 88),
          to_log2 = num(k, -1.4426950408889634);
  cy_expr n_magic = fma_of(k, t, to_log2, biased), n = sub(k, n_magic, biased);
  cy_expr f = fma_of(k, t, to_log2, un(k, CY_OP_neg, n));
  cy_expr low = fma_of(k, f, num(k, c[1]), num(k, c[0])), high = fma_of(k, f, num(k, c[3]), num(k, c[2]));
  cy_expr p = fma_of(k, mul(k, f, f), high, low);
  cy_expr d = fma_of(k, p, exponent_of(k, n_magic), one);
  cy_expr inverse = bits(k, sub(k, int32(k, ABOUT_INVERSE), bits(k, d, CY_I32)), CY_F32);
  cy_expr wrong = fma_of(k, un(k, CY_OP_neg, d), inverse, one);
  return fma_of(k, inverse, fma_of(k, wrong, wrong, wrong), inverse);
}

/* See cy_logistic_q15. */
static cy_expr logistic_q15_of(cy_kernel *k, cy_expr x) {
  cy_expr t = sub(k, x, cy_x_int(k, CY_I16, CY_LOGISTIC_MIDDLE)), p = 0;
  for (int i = CY_LOGISTIC_TERMS - 1; i >= 0; i--) {
    cy_expr c = cy_x_int(k, CY_I16, cy_logistic_q15[i]);
    p = p ? add(k, bin(k, CY_OP_mul_q15, p, t), c) : c;
  }
  for (int i = 0; i < CY_LOGISTIC_SQUARES; i++)
    p = bin(k, CY_OP_mul_q15, p, p);
  return p;
}

/* x * P(x^2) / Q(x^2) */
static cy_expr odd_ratio(cy_kernel *k, cy_expr x, const double *p, int np, const double *q, int nq) {
  cy_expr z = mul(k, x, x);
  return divide(k, mul(k, x, poly(k, z, p, np)), poly(k, z, q, nq));
}

/* The argument of a function whose relative error is at most that of its argument: what is divided by a constant, as
 * gelu spells erf(x / sqrt(2)), is multiplied by the inverse, so that one division is left. */
static cy_expr inverse_times(cy_kernel *k, cy_expr x) {
  const cy_expr_info *d = cy_expr_of(k, x);
  const cy_expr_info *by = d->op == CY_OP_div ? cy_expr_of(k, d->arg[1]) : NULL;
  if (!by || by->op != CY_X_CONST || !isnormal((float)(1 / by->c.f)))
    return x;
  return mul(k, d->arg[0], num(k, 1 / by->c.f));
}

static cy_expr tanh_of(cy_kernel *k, cy_expr x) {
  static const double p[] = {1,
                             0.13679911196231842,
                             0.0038683232851326466,
                             2.8007370929117315e-05,
                             3.058481468087848e-08,
                             -1.2203314747605276e-11};
  static const double q[] = {1, 0.470132440328598, 0.02724582329392433, 0.0003938623412977904, 1.2873605328422855e-06};
  return clamp(k, odd_ratio(k, clamp(k, x, -9.02, 9.02), p, COUNT(p), q, COUNT(q)), -1, 1);
}

static cy_expr erf_of(cy_kernel *k, cy_expr x) {
  static const double p[] = {1.1283791065216064,   0.2071242481470108,      0.05152473971247673,   0.003990523517131805,
                             0.000147284910781309, -1.9422998320806073e-06, 1.9110807158995158e-08};
  static const double q[] = {1, 0.5168903470039368, 0.11797032505273819, 0.014957976527512074, 0.0010210993932560086};
  return clamp(k, odd_ratio(k, clamp(k, x, -4, 4), p, COUNT(p), q, COUNT(q)), -1, 1);
}

/* With a = |x|: e^(-a^2) * P(a) / Q(a). a^2 is h^2, exact as h has the upper 12 bits of a, plus (a - h) * (a + h); of
 * n * ln 2, too, the upper part is exact. e^r as in exp_parts(), 2^n as in cy_x_exp_below(): 0 where a is held. */
static cy_expr erfc_of(cy_kernel *k, cy_expr x) {
  static const double p[] = {1, 1.2322653, 0.72518353, 0.22616394, 0.032157186};
  static const double q[] = {1, 2.360645, 2.388878, 1.3133847, 0.4008947, 0.056996316};
  cy_expr a = bin(k, CY_OP_min, abs_of(k, x), num(k, 9.4)), magic = num(k, MAGIC + 127);
  cy_expr h = bits(k, bin(k, CY_OP_and, bits(k, a, CY_I32), int32(k, -4096)), CY_F32), minus_h = un(k, CY_OP_neg, h);
  cy_expr n_magic = fma_of(k, mul(k, a, a), num(k, -LOG2_E), magic), n = sub(k, n_magic, magic);
  cy_expr r = fma_of(k, h, minus_h, mul(k, n, num(k, -LN_2_HIGH)));
  r = fma_of(k, n, num(k, -LN_2_LOW), r);
  r = fma_of(k, sub(k, h, a), add(k, a, h), r);
  cy_expr power = exponent_of(k, n_magic), e = fma_of(k, exp_less_one(k, r), power, power);
  cy_expr v = mul(k, divide(k, poly(k, a, p, COUNT(p)), poly(k, a, q, COUNT(q))), e);
  return cy_x_select(k, bin(k, CY_OP_lt, x, num(k, 0)), sub(k, num(k, 2), v), v);
}

/* e = exp(|x| / 2): e * e may overflow only where the result does. */
static cy_expr cosh_of(cy_kernel *k, cy_expr x) {
  cy_expr half = num(k, 0.5), e = exp_of(k, mul(k, abs_of(k, x), half));
  return fma_of(k, mul(k, half, e), e, divide(k, half, mul(k, e, e)));
}

static cy_expr sinh_of(cy_kernel *k, cy_expr x) {
  static const double c[] = {1, 1 / 6.0, 1 / 120.0, 1 / 5040.0, 1 / 362880.0};
  cy_expr half = num(k, 0.5), a = abs_of(k, x), e = exp_of(k, mul(k, a, half));
  cy_expr large = sub(k, mul(k, mul(k, half, e), e), divide(k, half, mul(k, e, e)));
  cy_expr small = mul(k, x, poly(k, mul(k, x, x), c, COUNT(c)));
  return cy_x_select(k, bin(k, CY_OP_lt, a, num(k, 1)), small, with_sign(k, large, x));
}

static cy_expr asinh_of(cy_kernel *k, cy_expr x) {
  cy_expr one = num(k, 1), a = abs_of(k, x), a2 = mul(k, a, a);
  cy_expr root = un(k, CY_OP_sqrt, add(k, a2, one));
  cy_expr mid = log1p_of(k, add(k, a, divide(k, a2, add(k, one, root))));
  cy_expr large = add(k, log_of(k, a), num(k, 0.6931471805599453));
  return with_sign(k, cy_x_select(k, bin(k, CY_OP_gt, a, num(k, 1e9)), large, mid), x);
}

static cy_expr acosh_of(cy_kernel *k, cy_expr x) {
  cy_expr t = sub(k, x, num(k, 1)), root = un(k, CY_OP_sqrt, fma_of(k, t, t, mul(k, num(k, 2), t)));
  cy_expr large = add(k, log_of(k, x), num(k, 0.6931471805599453)), mid = log1p_of(k, add(k, t, root));
  mid = cy_x_select(k, bin(k, CY_OP_lt, t, num(k, 0)), num(k, NAN), mid); /* far below, t + root is 0 and no number */
  return cy_x_select(k, bin(k, CY_OP_gt, x, num(k, 1e9)), large, mid);
}

static cy_expr atanh_of(cy_kernel *k, cy_expr x) {
  cy_expr a = abs_of(k, x), twice = add(k, a, a);
  cy_expr value = mul(k, num(k, 0.5), log1p_of(k, divide(k, twice, sub(k, num(k, 1), a))));
  return with_sign(k, cy_x_select(k, bin(k, CY_OP_eq, x, num(k, 0)), a, value), x);
}

/* ---- circular functions ---- */

typedef struct angle {
  cy_expr r;            /* remainder in [-pi/4, pi/4] */
  cy_expr sine, cosine; /* of r */
  cy_expr quadrant;     /* i32, 0 .. 3 in the two low bits */
} angle;

static cy_expr u64(cy_kernel *k, uint64_t v) { return cy_x_int(k, CY_U64, (int64_t)v); }

/* r, an f64, with the two low bits of quadrant, an u64, in place of its own: what one select can choose. */
static cy_expr with_quadrant(cy_kernel *k, cy_expr r, cy_expr quadrant) {
  cy_expr high = bin(k, CY_OP_and, bits(k, r, CY_U64), u64(k, ~UINT64_C(3)));
  return bits(k, bin(k, CY_OP_or, high, bin(k, CY_OP_and, quadrant, u64(k, 3))), CY_F64);
}

/* Below NEAR, n = round(x / (pi/2)) times pi/2, whose upper part has so few bits that its product is exact without an
 * fma, too. Adding 1.5 * 2^52 rounds to n and leaves it in the low bits. */
static const double NEAR = 0x1p28;
static cy_expr near_angle(cy_kernel *k, cy_expr x) {
  cy_expr wide = cy_x_cast(k, x, CY_F64), magic = cy_x_const(k, CY_F64, 0x1.8p52);
  cy_expr n_magic = fma_of(k, wide, cy_x_const(k, CY_F64, 0.63661977236758134), magic), n = sub(k, n_magic, magic);
  cy_expr r = fma_of(k, n, cy_x_const(k, CY_F64, -1.57079631090164184570), wide);
  r = fma_of(k, n, cy_x_const(k, CY_F64, -1.58932547735281966916e-08), r);
  return with_quadrant(k, r, bits(k, n_magic, CY_U64));
}

/* 64 bits of 2/pi's fraction from bit 32 * (i + first) on, i = 0 .. 3 */
static cy_expr two_over_pi(cy_kernel *k, cy_expr i, int first) {
  static const uint32_t w[] = {0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};
  cy_expr v = 0;
  for (int n = first; n < first + 4; n++) {
    cy_expr word = u64(k, (uint64_t)w[n] << 32 | w[n + 1]);
    v = v ? cy_x_select(k, bin(k, CY_OP_eq, i, int32(k, n - first)), word, v) : word;
  }
  return v;
}

/* From NEAR on, x = m * 2^e (e >= 5) with m of 24 bits: of m * (2^e * 2/pi) the bits from 2 on, 64 of them. What is
 * above are whole turns, what is below cannot be seen next to the nearest that x comes to a multiple of pi/2. */
static cy_expr far_angle(cy_kernel *k, cy_expr x) {
  cy_expr u = bits(k, abs_of(k, x), CY_I32), at = sub(k, bin(k, CY_OP_shr, u, int32(k, 23)), int32(k, 152));
  cy_expr m = bin(k, CY_OP_or, bin(k, CY_OP_and, u, int32(k, 0x7fffff)), int32(k, 0x800000));
  cy_expr wide = cy_x_cast(k, m, CY_U64), shift = cy_x_cast(k, bin(k, CY_OP_and, at, int32(k, 31)), CY_U64);
  cy_expr i = bin(k, CY_OP_shr, at, int32(k, 5)), first = two_over_pi(k, i, 0), next = two_over_pi(k, i, 2);
  cy_expr from_next = bin(k, CY_OP_shr, bin(k, CY_OP_shr, next, u64(k, 1)), sub(k, u64(k, 63), shift));
  cy_expr high = bin(k, CY_OP_or, bin(k, CY_OP_shl, first, shift), from_next);
  cy_expr low = bin(k, CY_OP_shr, bin(k, CY_OP_shl, next, shift), u64(k, 32));
  cy_expr turns = add(k, mul(k, wide, high), bin(k, CY_OP_shr, mul(k, wide, low), u64(k, 32)));
  turns = cy_x_select(k, bin(k, CY_OP_lt, x, num(k, 0)), sub(k, u64(k, 0), turns), turns);
  cy_expr rest = cy_x_cast(k, bits(k, bin(k, CY_OP_shl, turns, u64(k, 2)), CY_I64), CY_F64);
  cy_expr r = mul(k, rest, cy_x_const(k, CY_F64, 1.5707963267948966 * 0x1p-64));
  r = cy_x_select(k, un(k, CY_OP_isinf, x), cy_x_const(k, CY_F64, NAN), r);
  return with_quadrant(k, r, bin(k, CY_OP_shr, add(k, turns, u64(k, UINT64_C(1) << 61)), u64(k, 62)));
}

static angle reduce_angle(cy_kernel *k, cy_expr x) {
  static const double s[] = {-0.16666667, 0.008333379, -0.00019853079, 2.832806e-06};
  static const double c[] = {0.041666646, -0.001388731, 2.4432336e-05};
  cy_expr is_far = bin(k, CY_OP_ge, abs_of(k, x), num(k, NEAR)), near = near_angle(k, x);
  cy_expr both = cy_x_select_rare(k, is_far, far_angle(k, x), near);
  angle a;
  a.quadrant = cy_x_cast(k, bits(k, both, CY_U64), CY_I32);
  a.r = cy_x_cast(k, both, CY_F32);
  cy_expr z = mul(k, a.r, a.r);
  /* a product: a sum of -0 and what is added to it would be 0 */
  a.sine = mul(k, a.r, fma_of(k, z, poly(k, z, s, COUNT(s)), num(k, 1)));
  a.cosine = fma_of(k, mul(k, z, z), poly(k, z, c, COUNT(c)), fma_of(k, z, num(k, -0.5), num(k, 1)));
  return a;
}

static cy_expr is_odd(cy_kernel *k, const angle *a) {
  return bin(k, CY_OP_ne, bin(k, CY_OP_and, a->quadrant, int32(k, 1)), int32(k, 0));
}

static cy_expr negate_if(cy_kernel *k, cy_expr c, cy_expr v) { return cy_x_select(k, c, un(k, CY_OP_neg, v), v); }

/* v, negated in quadrants 2 and 3 */
static cy_expr signed_by(cy_kernel *k, cy_expr quadrant, cy_expr v) {
  cy_expr sign = bin(k, CY_OP_shl, bin(k, CY_OP_and, quadrant, int32(k, 2)), int32(k, 30));
  return bits(k, bin(k, CY_OP_xor, bits(k, v, CY_I32), sign), CY_F32);
}

static cy_expr sin_of(cy_kernel *k, cy_expr x) {
  angle a = reduce_angle(k, x);
  cy_expr v = cy_x_select(k, is_odd(k, &a), a.cosine, a.sine);
  return signed_by(k, a.quadrant, v);
}

static cy_expr cos_of(cy_kernel *k, cy_expr x) {
  angle a = reduce_angle(k, x);
  cy_expr v = cy_x_select(k, is_odd(k, &a), a.sine, a.cosine);
  return signed_by(k, add(k, a.quadrant, int32(k, 1)), v);
}

static cy_expr tan_of(cy_kernel *k, cy_expr x) {
  angle a = reduce_angle(k, x);
  cy_expr odd = is_odd(k, &a), minus = un(k, CY_OP_neg, a.cosine);
  return divide(k, cy_x_select(k, odd, minus, a.sine), cy_x_select(k, odd, a.sine, a.cosine));
}

static cy_expr atan_of(cy_kernel *k, cy_expr x) {
  static const double c[] = {-0.333333,  0.19998534,   -0.14264102,  0.10951506,   -0.08401582,
                             0.05792723, -0.031148937, 0.0108996965, -0.0017904058}; /* (atan t - t) / t^3 */
  cy_expr one = num(k, 1), a = abs_of(k, x), large = bin(k, CY_OP_gt, a, one);
  cy_expr t = cy_x_select(k, large, divide(k, one, a), a), z = mul(k, t, t);
  cy_expr v = fma_of(k, mul(k, z, t), poly(k, z, c, COUNT(c)), t);
  return with_sign(k, cy_x_select(k, large, sub(k, num(k, 1.5707963267948966), v), v), x);
}

/* asin of t in [0, 0.5] */
static cy_expr asin_core(cy_kernel *k, cy_expr t) {
  static const double c[] = {0.16666752, 0.074953094, 0.04546915, 0.024184778, 0.042158306};
  cy_expr z = mul(k, t, t);
  return fma_of(k, mul(k, z, t), poly(k, z, c, COUNT(c)), t);
}

/* asin(a) for a <= 0.5, else acos(a) / 2, a = |x|; NaN beyond 1. */
static cy_expr asin_half(cy_kernel *k, cy_expr a, cy_expr *out_large) {
  *out_large = bin(k, CY_OP_gt, a, num(k, 0.5));
  cy_expr root = un(k, CY_OP_sqrt, mul(k, sub(k, num(k, 1), a), num(k, 0.5)));
  return asin_core(k, cy_x_select(k, *out_large, root, a));
}

static cy_expr asin_of(cy_kernel *k, cy_expr x) {
  cy_expr large, v = asin_half(k, abs_of(k, x), &large);
  return with_sign(k, cy_x_select(k, large, fma_of(k, v, num(k, -2), num(k, 1.5707963267948966)), v), x);
}

static cy_expr acos_of(cy_kernel *k, cy_expr x) {
  cy_expr large, v = asin_half(k, abs_of(k, x), &large), negative = bin(k, CY_OP_lt, x, num(k, 0));
  cy_expr twice = add(k, v, v), far = cy_x_select(k, negative, sub(k, num(k, 3.141592653589793), twice), twice);
  return cy_x_select(k, large, far, sub(k, num(k, 1.5707963267948966), with_sign(k, v, x)));
}

/* ---- powers ---- */

/* log2 of |x| in f64, where y * log2 |x| keeps enough digits. */
static cy_expr log2_wide(cy_kernel *k, cy_expr a) {
  static const double c[] = {2.8853900817779268, 0.9617966939259756, 0.5770780163555854, 0.4121985831111324,
                             0.3205988979753252, 0.2623081892525388, 0.2219530832136868}; /* 2 / (ln 2 * (2 i + 1)) */
  cy_expr e, f = cy_x_cast(k, split_exponent(k, a, &e), CY_F64);
  cy_expr s = divide(k, f, add(k, f, cy_x_const(k, CY_F64, 2)));
  cy_expr v = fma_of(k, s, poly(k, mul(k, s, s), c, COUNT(c)), cy_x_cast(k, e, CY_F64));
  return log_edges(k, a, v);
}

/* 2^t of an f64, as f32 */
static cy_expr exp2_wide(cy_kernel *k, cy_expr t) {
  static const double c[] = {1, 0.6931472, 0.24022648, 0.055503596, 0.009618499, 0.001339097, 0.0001532931};
  t = bin(k, CY_OP_min, bin(k, CY_OP_max, t, cy_x_const(k, CY_F64, -152)), cy_x_const(k, CY_F64, 130));
  cy_expr n = un(k, CY_OP_round, t), r = cy_x_cast(k, sub(k, t, n), CY_F32);
  cy_expr n_magic = add(k, cy_x_cast(k, n, CY_F32), num(k, MAGIC));
  return scale(k, poly(k, r, c, COUNT(c)), n_magic);
}

static cy_expr pow_of(cy_kernel *k, cy_expr x, cy_expr y) {
  cy_expr zero = num(k, 0), one = num(k, 1), a = abs_of(k, x);
  cy_expr t = mul(k, cy_x_cast(k, y, CY_F64), log2_wide(k, a));
  cy_expr v = cy_x_select(k, bin(k, CY_OP_eq, a, one), one, exp2_wide(k, t));
  cy_expr floor_y = un(k, CY_OP_floor, y), whole = bin(k, CY_OP_eq, floor_y, y);
  cy_expr odd = bin(k, CY_OP_eq, fma_of(k, un(k, CY_OP_floor, mul(k, y, num(k, 0.5))), num(k, -2), y), one);
  cy_expr minus = bin(k, CY_OP_lt, bits(k, x, CY_I32), int32(k, 0));
  v = negate_if(k, bin(k, CY_OP_and, minus, odd), v);
  cy_expr below = bin(k, CY_OP_and, bin(k, CY_OP_lt, x, zero), bin(k, CY_OP_gt, x, num(k, -INFINITY)));
  cy_expr wrong = bin(k, CY_OP_and, below, un(k, CY_OP_not, whole));
  v = cy_x_select(k, bin(k, CY_OP_or, wrong, un(k, CY_OP_isnan, y)), num(k, NAN), v);
  cy_expr is_one = bin(k, CY_OP_or, bin(k, CY_OP_eq, y, zero), bin(k, CY_OP_eq, x, one));
  return cy_x_select(k, is_one, one, v);
}

/* ---- the pass ---- */

typedef cy_expr (*unary_fn)(cy_kernel *k, cy_expr x);

static cy_expr expand(cy_kernel *k, const cy_expr_info *x, const cy_expr *a) {
  static const unary_fn functions[CY_OP_COUNT] = {
#define FUNCTION(name) [CY_OP_##name] = name##_of
      FUNCTION(exp),  FUNCTION(log),  FUNCTION(log1p), FUNCTION(sin),   FUNCTION(cos),   FUNCTION(tan),
      FUNCTION(asin), FUNCTION(acos), FUNCTION(atan),  FUNCTION(sinh),  FUNCTION(cosh),  FUNCTION(tanh),
      FUNCTION(erf),  FUNCTION(erfc), FUNCTION(asinh), FUNCTION(acosh), FUNCTION(atanh), FUNCTION(sigmoid),
#undef FUNCTION
  };
  if (x->op == CY_OP_logistic_q15)
    return logistic_q15_of(k, a[0]);
  if (x->dtype != CY_F32)
    return 0;
  if (x->op == CY_OP_pow)
    return pow_of(k, a[0], a[1]);
  if (x->op >= CY_OP_COUNT || !functions[x->op])
    return 0;
  bool scaled = x->op == CY_OP_tanh || x->op == CY_OP_erf;
  return functions[x->op](k, scaled ? inverse_times(k, a[0]) : a[0]);
}

/* Equal expressions have equal ids: what one is said to be, it is wherever it stands. */
typedef struct cy_spelled {
  cy_expr value, arg;
  uint16_t op;
} cy_spelled;

static cy_expr expand_noted(cy_kernel *k, const cy_expr_info *x, const cy_expr *a) {
  cy_expr value = expand(k, x, a);
  if (value && x->n == 1) {
    CY_LOOP_ROOM(k, k->spelled, k->nspelled, k->spelled_cap);
    k->spelled[k->nspelled++] = (cy_spelled){value, a[0], x->op};
  }
  return value;
}

bool cy_expr_function(const cy_kernel *k, cy_expr e, cy_op *out_op, cy_expr *out_arg) {
  for (uint32_t i = 0; i < k->nspelled; i++)
    if (k->spelled[i].value == e) {
      *out_op = (cy_op)k->spelled[i].op;
      *out_arg = k->spelled[i].arg;
      return true;
    }
  return false;
}

static cy_expr expand_rough(cy_kernel *k, const cy_expr_info *x, const cy_expr *a) {
  return x->op == CY_OP_sigmoid && x->dtype == CY_F32 ? rough_sigmoid_of(k, a[0]) : expand_noted(k, x, a);
}

/* Does a kernel read 8-bit integers, and write nothing else? What a model in floats hands out as bytes, a mask say, is
 * made of floats, and no such kernel's. */
static bool is_of_bytes(const cy_kernel *k) {
  const cy_karg_info *args;
  uint32_t n = cy_kernel_args(k, &args);
  bool reads = false, writes = true;
  for (uint32_t i = 0; i < n; i++)
    if (args[i].kind == CY_ARG_READ)
      reads |= cy_dtype_is_byte(args[i].dtype);
    else if (args[i].kind == CY_ARG_WRITE)
      writes &= cy_dtype_is_byte(args[i].dtype);
  return reads && writes;
}

void cy_kernel_expand_math(cy_kernel *k) {
  cy_kernel_rewrite(k, (cy_rewrite){.op = is_of_bytes(k) ? expand_rough : expand_noted});
}
