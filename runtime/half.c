/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* half.c - the functions that LLVM calls to convert half-precision floats where the CPU has no instruction for it: x86-64
 * before F16C. Their names and arguments are those of compilers' own libraries, which a model must not need.
 */
#if defined(__x86_64__) && defined(__FLT16_MANT_DIG__)
#include "half.h"

/* For LLVM a half lies in a register for floats on all systems; GCC for Windows thinks otherwise. */
#ifdef _WIN32
typedef float half;
#else
typedef _Float16 half;
#endif

float __extendhfsf2(half x);
half __truncsfhf2(float x);
half __truncdfhf2(double x);

static half half_of(uint16_t bits) {
  half x = 0;
  memcpy(&x, &bits, sizeof bits);
  return x;
}

float __extendhfsf2(half x) {
  uint16_t bits;
  memcpy(&bits, &x, sizeof bits);
  return cyrt_f16_to_f32(bits);
}

half __truncsfhf2(float x) { return half_of(cyrt_f32_to_f16(x)); }

/* By way of a float that is rounded to odd, which leaves the second rounding what it needs to know. */
half __truncdfhf2(double x) {
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
