/* half.c - the functions that LLVM calls to convert half-precision floats where the CPU has no instruction for it: x86-64
 * before F16C. Their names and arguments are those of compilers' own libraries, which a model must not need.
 */
#if defined(__x86_64__) && defined(__FLT16_MANT_DIG__)
#include "half.h"

float __extendhfsf2(_Float16 x);
_Float16 __truncsfhf2(float x);
_Float16 __truncdfhf2(double x);

static _Float16 half_of(uint16_t bits) {
  _Float16 x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

float __extendhfsf2(_Float16 x) {
  uint16_t bits;
  memcpy(&bits, &x, sizeof bits);
  return cyrt_f16_to_f32(bits);
}

_Float16 __truncsfhf2(float x) { return half_of(cyrt_f32_to_f16(x)); }

/* By way of a float that is rounded to odd, which leaves the second rounding what it needs to know. */
_Float16 __truncdfhf2(double x) {
  float f = (float)x;
  if (x == x && (double)f != x) {
    uint32_t bits = cyrt_f32_bits(f);
    f = cyrt_bits_f32((fabs((double)f) > fabs(x) ? bits - 1 : bits) | 1);
  }
  return half_of(cyrt_f32_to_f16(f));
}

#else
typedef int nothing; /* a file must have something in it */
#endif
