/* SPDX-License-Identifier: Apache-2.0 */
/* scalar.c - one element of an element-wise op, exact per dtype; loading and storing of every element type.
 *
 * In: the rows of elementwise.def, op, types, arguments widened to double / int64 / uint64. Out: the result, rounded or wrapped to the output type.
 * It is what folding and the loop interpreter compute with, hence the oracle of every backend.
 *
 * Floats are computed in double and rounded once: for + - * / sqrt on f32 and narrower that equals computing in the
 *   type itself.
 * Conversions. float -> int truncates and saturates (under 8 bits: wraps), NaN gives 0 (ONNX leaves both open). int ->
 *   int wraps. Anything -> bool asks x != 0. Eight-bit floats saturate by default, by ONNX's Cast tables.
 *   f4e2m1, f6e2m3, f6e3m2: these always saturate, NaN becomes -0. f8e8m0 holds powers of two: rounds up, 0 becomes 2^-127, negative numbers NaN.
 * Integers. Everything wraps; x / 0, x mod 0 are 0; shifts by the width or more give 0 (or the sign).
 */
#include "ir_int.h"

#include <math.h>

/* A binary float format. emin: exponent of the smallest normal number. */
typedef struct format {
  int mantissa, emin;
  double max;
  uint32_t nan, inf; /* bits; inf 0: there is none */
  bool unsigned_zero;
} format;

static const format formats[CY_DTYPE_COUNT] = {
    [CY_F16] = {10, -14, 65504, 0x7e00, 0x7c00, false},
    [CY_BF16] = {7, -126, 0x1.fep127, 0x7fc0, 0x7f80, false},
    [CY_F8E4M3FN] = {3, -6, 448, 0x7f, 0, false},
    [CY_F8E4M3FNUZ] = {3, -7, 240, 0x80, 0, true},
    [CY_F8E5M2] = {2, -14, 57344, 0x7f, 0x7c, false},
    [CY_F8E5M2FNUZ] = {2, -15, 57344, 0x80, 0, true},
    [CY_F4E2M1] = {1, 0, 6, 0, 0, false},
    [CY_F6E2M3] = {3, 0, 7.5, 0, 0, false},
    [CY_F6E3M2] = {2, -2, 28, 0, 0, false},
};

/* ---- narrow floats ----------------------------------------------------------------------------------------------- */

/* Bits of a code: those in memory, but for six of a byte. */
static int code_bits(cy_dtype dtype) {
  return dtype == CY_F6E2M3 || dtype == CY_F6E3M2 ? 6 : cy_dtype_of(dtype)->bits;
}

/* Has the format neither NaN nor infinities? */
static bool all_finite(const format *f) { return !f->nan && !f->inf; }

static double round_e8m0(double x) {
  int e;
  if (isnan(x) || x < 0)
    return NAN;
  if (x <= 0x1p-127)
    return 0x1p-127;
  if (x > 0x1p127)
    return 0x1p127;
  double m = frexp(x, &e); /* x = m * 2^e, m in [0.5, 1) */
  return m == 0.5 ? x : ldexp(1, e);
}

static double rounded(cy_dtype dtype, double x, bool saturate) {
  const format *f = &formats[dtype];
  if (dtype == CY_F32)
    return (float)x;
  if (dtype == CY_F64)
    return x;
  if (dtype == CY_F8E8M0)
    return round_e8m0(x);
  if (all_finite(f) && isnan(x))
    return -0.0;
  bool eight = cy_dtype_of(dtype)->bits == 8;
  if (isnan(x))
    return x;
  if (x == 0)
    return f->unsigned_zero ? 0.0 : x;
  double r = x;
  if (!isinf(x)) {
    int e = ilogb(x);
    double quantum = ldexp(1, (e < f->emin ? f->emin : e) - f->mantissa);
    r = nearbyint(x / quantum) * quantum;
  }
  if (fabs(r) > f->max) {
    if ((eight && saturate) || all_finite(f))
      return copysign(f->max, r);
    return f->inf ? copysign(INFINITY, r) : NAN;
  }
  return r == 0 && f->unsigned_zero ? 0.0 : r;
}

static uint32_t encode(cy_dtype dtype, double x) { /* x is representable */
  const format *f = &formats[dtype];
  int width = code_bits(dtype);
  if (dtype == CY_F8E8M0)
    return isnan(x) ? 0xff : (uint32_t)(ilogb(x) + 127);
  if (isnan(x))
    return f->nan;
  uint32_t sign = signbit(x) ? 1u << (width - 1) : 0;
  double a = fabs(x);
  if (isinf(x))
    return sign | f->inf;
  if (a == 0)
    return sign;
  int e = ilogb(a);
  if (e < f->emin)
    return sign | (uint32_t)ldexp(a, f->mantissa - f->emin);
  uint32_t fraction = (uint32_t)(ldexp(a, f->mantissa - e)) - (1u << f->mantissa);
  return sign | (uint32_t)(e - f->emin + 1) << f->mantissa | fraction;
}

static double decode(cy_dtype dtype, uint32_t bits) {
  const format *f = &formats[dtype];
  int width = code_bits(dtype);
  if (dtype == CY_F8E8M0)
    return bits == 0xff ? NAN : ldexp(1, (int)bits - 127);
  uint32_t sign = bits >> (width - 1) & 1, mag = bits & ((1u << (width - 1)) - 1);
  if (f->unsigned_zero && bits == f->nan)
    return NAN;
  if (f->inf && mag >= f->inf)
    return mag > f->inf ? NAN : sign ? -INFINITY : INFINITY;
  if (!f->unsigned_zero && f->nan && mag == f->nan)
    return NAN;
  uint32_t e = mag >> f->mantissa, fraction = mag & ((1u << f->mantissa) - 1);
  double a = e == 0 ? ldexp(fraction, f->emin - f->mantissa)
                    : ldexp(fraction + (1u << f->mantissa), (int)e - 1 + f->emin - f->mantissa);
  return sign ? -a : a;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static int64_t wrap_signed(uint64_t v, int bits) {
  return bits >= 64 ? (int64_t)v : (int64_t)(v << (64 - bits)) >> (64 - bits);
}

static uint64_t wrap_unsigned(uint64_t v, int bits) { return bits >= 64 ? v : v & ((UINT64_C(1) << bits) - 1); }

static cy_scalar from_bits(cy_dtype dtype, uint64_t bits) {
  const cy_dtype_info *t = cy_dtype_of(dtype);
  cy_scalar s = {.u = 0};
  float f;
  uint32_t low = (uint32_t)bits;
  switch (t->cls) {
  case 'F':
    if (dtype == CY_F64) {
      memcpy(&s.f, &bits, 8);
    } else if (dtype == CY_F32) {
      memcpy(&f, &low, 4);
      s.f = f;
    } else {
      s.f = decode(dtype, low);
    }
    break;
  case 'I': s.i = wrap_signed(bits, t->bits); break;
  case 'B': s.i = bits != 0; break;
  default: s.u = wrap_unsigned(bits, t->bits); break;
  }
  return s;
}

static uint64_t to_bits(cy_dtype dtype, cy_scalar v) {
  const cy_dtype_info *t = cy_dtype_of(dtype);
  uint64_t bits = 0;
  if (t->cls != 'F')
    return t->cls == 'B' ? v.i != 0 : wrap_unsigned(v.u, t->bits);
  if (dtype == CY_F64) {
    memcpy(&bits, &v.f, 8);
  } else if (dtype == CY_F32) {
    float f = (float)v.f;
    memcpy(&bits, &f, 4);
  } else {
    bits = encode(dtype, rounded(dtype, v.f, !isinf(v.f))); /* an infinity that a cast let through stays */
  }
  return bits;
}

cy_scalar cy_scalar_load(const void *bytes, cy_dtype dtype, uint64_t index) {
  int width = cy_dtype_of(dtype)->bits;
  uint64_t bits = 0;
  if (width > 64)
    cy_bug("an element of type %s as a number", cy_dtype_of(dtype)->name);
  if (width >= 8) {
    memcpy(&bits, (const char *)bytes + index * (uint64_t)(width / 8), (size_t)width / 8);
  } else {
    uint64_t at = index * (uint64_t)width;
    bits = (uint64_t)(((const unsigned char *)bytes)[at / 8] >> (at % 8)) & ((1u << width) - 1);
  }
  return from_bits(dtype, bits);
}

void cy_scalar_store(void *bytes, cy_dtype dtype, uint64_t index, cy_scalar v) {
  int width = cy_dtype_of(dtype)->bits;
  if (width > 64)
    cy_bug("an element of type %s as a number", cy_dtype_of(dtype)->name);
  uint64_t bits = to_bits(dtype, v);
  if (width >= 8) {
    memcpy((char *)bytes + index * (uint64_t)(width / 8), &bits, (size_t)width / 8);
  } else {
    uint64_t at = index * (uint64_t)width;
    unsigned mask = ((1u << width) - 1) << (at % 8);
    unsigned char *p = (unsigned char *)bytes + at / 8;
    *p = (unsigned char)((*p & ~mask) | (bits << (at % 8)));
  }
}

/* ---- conversion -------------------------------------------------------------------------------------------------- */

static cy_scalar float_to_int(double x, const cy_dtype_info *t) {
  cy_scalar s = {.u = 0};
  double top = ldexp(1, t->cls == 'I' ? t->bits - 1 : t->bits); /* first value too large */
  double bottom = t->cls == 'I' ? -top : 0;
  if (isnan(x))
    return s;
  if (t->bits < 8) { /* ONNX's reference wraps these */
    s = float_to_int(x, cy_dtype_of(CY_I32));
    if (t->cls == 'I')
      s.i = wrap_signed(s.u, t->bits);
    else
      s.u = wrap_unsigned(s.u, t->bits);
    return s;
  }
  x = trunc(x);
  if (t->cls == 'I')
    s.i = x >= top     ? (int64_t)((UINT64_C(1) << (t->bits - 1)) - 1)
          : x < bottom ? wrap_signed(UINT64_C(1) << (t->bits - 1), t->bits)
                       : (int64_t)x;
  else
    s.u = x >= top ? wrap_unsigned(UINT64_MAX, t->bits) : x <= 0 ? 0 : (uint64_t)x;
  return s;
}

cy_scalar cy_scalar_convert(cy_dtype from, cy_dtype to, cy_scalar v, bool saturate) {
  const cy_dtype_info *f = cy_dtype_of(from), *t = cy_dtype_of(to);
  cy_scalar s = {.u = 0};
  if (t->cls == 'B') {
    s.i = f->cls == 'F' ? v.f != 0 : v.i != 0;
  } else if (t->cls == 'F') {
    if (f->cls == 'F')
      s.f = rounded(to, v.f, saturate);
    else if (to == CY_F32) /* in one step: 2^53 and beyond would round twice */
      s.f = f->cls == 'U' ? (float)v.u : (float)v.i;
    else
      s.f = rounded(to, f->cls == 'U' ? (double)v.u : (double)v.i, saturate);
  } else if (f->cls == 'F') {
    s = float_to_int(v.f, t);
  } else if (t->cls == 'I') {
    s.i = wrap_signed(v.u, t->bits);
  } else {
    s.u = wrap_unsigned(v.u, t->bits);
  }
  return s;
}

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

static double float_mod(double a, double b) {
  double r = fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static uint64_t int_div(uint64_t a, uint64_t b, bool is_signed) {
  if (b == 0)
    return 0;
  if (!is_signed)
    return a / b;
  return (int64_t)b == -1 ? 0 - a : (uint64_t)((int64_t)a / (int64_t)b);
}

static uint64_t int_rem(uint64_t a, uint64_t b, bool is_signed, bool floor_mod) {
  if (b == 0 || (is_signed && (int64_t)b == -1))
    return 0;
  if (!is_signed)
    return a % b;
  int64_t r = (int64_t)a % (int64_t)b;
  return (uint64_t)(floor_mod && r != 0 && (r < 0) != ((int64_t)b < 0) ? r + (int64_t)b : r);
}

static uint64_t int_pow(uint64_t base, uint64_t exponent, bool is_signed) {
  if (is_signed && (int64_t)exponent < 0)
    return base == 1 ? 1 : (int64_t)base == -1 ? (exponent & 1 ? base : 1) : 0;
  uint64_t r = 1;
  for (; exponent; exponent >>= 1, base *= base)
    if (exponent & 1)
      r *= base;
  return r;
}

static uint64_t int_shift(cy_op op, uint64_t a, uint64_t by, int bits, bool is_signed) {
  if (by >= (uint64_t)bits)
    return op == CY_OP_shr && is_signed && (int64_t)a < 0 ? UINT64_MAX : 0;
  if (op == CY_OP_shl)
    return a << by;
  return is_signed ? (uint64_t)((int64_t)a >> by) : a >> by;
}

/* ---- multiples of 2^-15 ---- */

static int16_t mul_q15(int16_t a, int16_t b) { return (int16_t)((a * b + (1 << 14)) >> 15); }

const int16_t cy_logistic_q15[CY_LOGISTIC_TERMS] = {19815, -19491, 9402, 4822, -19717};

static int16_t logistic_q15(int16_t x) {
  int16_t t = (int16_t)(x - CY_LOGISTIC_MIDDLE), p = cy_logistic_q15[CY_LOGISTIC_TERMS - 1];
  for (int i = CY_LOGISTIC_TERMS - 2; i >= 0; i--)
    p = (int16_t)(mul_q15(p, t) + cy_logistic_q15[i]);
  for (int i = 0; i < CY_LOGISTIC_SQUARES; i++)
    p = mul_q15(p, p);
  return p;
}

static bool int_less(uint64_t a, uint64_t b, bool sgn) { return sgn ? (int64_t)a < (int64_t)b : a < b; }

static _Noreturn void no_expression(cy_op op, const cy_dtype_info *t) {
  cy_bug("op '%s' on elements of type %s", cy_op_of(op)->name, t->name);
}
#define NONE (no_expression(op, t), 0)

static double float_op(cy_op op, const cy_scalar *v, const cy_dtype_info *t) {
  int n = cy_op_of(op)->min_in;
  double x = v[0].f, y = n > 1 ? v[1].f : 0, z = n > 2 ? v[2].f : 0;
  switch (op) {
#define EW_OP(name, inputs, flags, attributes, cost, real, ...)                                                        \
  case CY_OP_##name:                                                                                                   \
    return real;
#include "elementwise.def"
#undef EW_OP
  default:
    return NONE;
  }
}

static uint64_t int_op(cy_op op, const cy_scalar *v, const cy_dtype_info *t) {
  int n = cy_op_of(op)->min_in;
  bool sgn = t->cls == 'I';
  uint64_t x = v[0].u, y = n > 1 ? v[1].u : 0, z = n > 2 ? v[2].u : 0;
  switch (op) {
#define EW_OP(name, inputs, flags, attributes, cost, real, integer, ...)                                               \
  case CY_OP_##name:                                                                                                   \
    return integer;
#include "elementwise.def"
#undef EW_OP
  default:
    return NONE;
  }
}

static bool compare(cy_op op, cy_scalar a, cy_scalar b, char cls) {
  bool less, equal;
  if (cls == 'F') {
    less = a.f < b.f;
    equal = a.f == b.f;
    if (isnan(a.f) || isnan(b.f))
      return op == CY_OP_ne;
  } else {
    less = cls == 'I' ? a.i < b.i : a.u < b.u;
    equal = a.u == b.u;
  }
  switch (op) {
  case CY_OP_eq: return equal;
  case CY_OP_ne: return !equal;
  case CY_OP_lt: return less;
  case CY_OP_le: return less || equal;
  case CY_OP_gt: return !less && !equal;
  default: return !less;
  }
}

cy_scalar cy_scalar_eval(cy_op op, cy_dtype in_dtype, cy_dtype out_dtype, const cy_scalar *args) {
  const cy_dtype_info *t = cy_dtype_of(in_dtype);
  cy_scalar s = {.u = 0};
  if (op == CY_OP_cast)
    return cy_scalar_convert(in_dtype, out_dtype, args[0], true);
  if (op == CY_OP_bitcast)
    return from_bits(out_dtype, to_bits(in_dtype, args[0]));
  if (op == CY_OP_select)
    return args[args[0].i != 0 ? 1 : 2];
  if (op == CY_OP_isnan || op == CY_OP_isinf) {
    s.i = t->cls == 'F' && (op == CY_OP_isnan ? isnan(args[0].f) : isinf(args[0].f));
    return s;
  }
  if (cy_op_of(op)->gives_bool) {
    s.i = compare(op, args[0], args[1], t->cls);
    return s;
  }
  if (t->cls == 'F') {
    s.f = rounded(out_dtype, float_op(op, args, t), true);
    return s;
  }
  uint64_t r = int_op(op, args, t);
  if (t->cls == 'I')
    s.i = wrap_signed(r, t->bits);
  else
    s.u = t->cls == 'B' ? r & 1 : wrap_unsigned(r, t->bits);
  return s;
}

cy_scalar cy_scalar_neutral(cy_op op, cy_dtype dtype) {
  const cy_dtype_info *t = cy_dtype_of(dtype);
  bool real = t->cls == 'F', sgn = t->cls == 'I';
  uint64_t ones = dtype == CY_BOOL ? 1 : UINT64_MAX >> (64 - t->bits);
  int64_t upper = (int64_t)(ones >> 1);
  switch (op) {
  case CY_OP_mul: return real ? (cy_scalar){.f = 1} : (cy_scalar){.u = 1};
  case CY_OP_min: return real ? (cy_scalar){.f = INFINITY} : sgn ? (cy_scalar){.i = upper} : (cy_scalar){.u = ones};
  case CY_OP_max: return real ? (cy_scalar){.f = -INFINITY} : sgn ? (cy_scalar){.i = -upper - 1} : (cy_scalar){.u = 0};
  case CY_OP_and: return sgn ? (cy_scalar){.i = -1} : (cy_scalar){.u = ones};
  default: return (cy_scalar){.u = 0};
  }
}
