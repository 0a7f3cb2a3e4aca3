/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* half.h - small number formats to and from float, for the runtime's operators and the tools.
 *
 * Header-only, plain bit arithmetic, no CPU feature needed: for searching, sorting and printing, not for kernels (the
 * compiler emits its own conversions). Encoders round to nearest, ties to even, and keep NaN.
 */
#ifndef CYRT_HALF_H
#define CYRT_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t cyrt_f32_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float cyrt_bits_f32(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline float cyrt_bf16_to_f32(uint16_t bits) { return cyrt_bits_f32((uint32_t)bits << 16); }

static inline uint16_t cyrt_f32_to_bf16(float value) {
  uint32_t bits = cyrt_f32_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* How a format uses its largest exponent. */
typedef enum cyrt_special {
  CYRT_IEEE,   /* infinities and NaN, as float */
  CYRT_FN,     /* no infinity; all ones is NaN */
  CYRT_FNUZ,   /* no infinity, no -0; what would be -0 is NaN */
  CYRT_FINITE, /* neither */
} cyrt_special;

/* sign | exponent (ebits) | mantissa (mbits) as a float, exactly. */
static inline float cyrt_minifloat_to_f32(uint32_t bits, int ebits, int mbits, int bias, cyrt_special special) {
  uint32_t mantissa = bits & ((1u << mbits) - 1), exponent = bits >> mbits & ((1u << ebits) - 1);
  uint32_t top = (1u << ebits) - 1, sign = bits >> (ebits + mbits) & 1;
  float value;
  if (special == CYRT_FNUZ && sign && !exponent && !mantissa)
    return NAN;
  if (special == CYRT_FN && exponent == top && mantissa == (1u << mbits) - 1)
    return NAN;
  if (special == CYRT_IEEE && exponent == top)
    value = mantissa ? NAN : INFINITY;
  else if (!exponent)
    value = ldexpf((float)mantissa, 1 - bias - mbits);
  else
    value = ldexpf((float)(mantissa | 1u << mbits), (int)exponent - bias - mbits);
  return sign ? -value : value;
}

static inline float cyrt_f16_to_f32(uint16_t bits) { return cyrt_minifloat_to_f32(bits, 5, 10, 15, CYRT_IEEE); }
static inline float cyrt_f8e4m3fn_to_f32(uint8_t bits) { return cyrt_minifloat_to_f32(bits, 4, 3, 7, CYRT_FN); }
static inline float cyrt_f8e4m3fnuz_to_f32(uint8_t bits) { return cyrt_minifloat_to_f32(bits, 4, 3, 8, CYRT_FNUZ); }
static inline float cyrt_f8e5m2_to_f32(uint8_t bits) { return cyrt_minifloat_to_f32(bits, 5, 2, 15, CYRT_IEEE); }
static inline float cyrt_f8e5m2fnuz_to_f32(uint8_t bits) { return cyrt_minifloat_to_f32(bits, 5, 2, 16, CYRT_FNUZ); }
static inline float cyrt_f4e2m1_to_f32(uint8_t bits) { return cyrt_minifloat_to_f32(bits & 15, 2, 1, 1, CYRT_FINITE); }
static inline float cyrt_f6e2m3_to_f32(uint8_t bits) { return cyrt_minifloat_to_f32(bits & 63, 2, 3, 1, CYRT_FINITE); }
static inline float cyrt_f6e3m2_to_f32(uint8_t bits) { return cyrt_minifloat_to_f32(bits & 63, 3, 2, 3, CYRT_FINITE); }
static inline float cyrt_f8e8m0_to_f32(uint8_t bits) { return bits == 255 ? NAN : ldexpf(1, (int)bits - 127); }

static inline uint16_t cyrt_f32_to_f16(float value) {
  uint32_t bits = cyrt_f32_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x477ff000u) /* 65520: rounds to infinity */
    return (uint16_t)(sign | 0x7c00);
  if (magnitude < 0x38800000u) { /* below 2^-14: subnormal; adding 0.5 makes the float adder round at 2^-24 */
    uint32_t rounded = cyrt_f32_bits(cyrt_bits_f32(magnitude) + 0.5f) - cyrt_f32_bits(0.5f);
    return (uint16_t)(sign | rounded);
  }
  return (uint16_t)(sign | ((magnitude - 0x38000000u + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

/* Element `i` of packed 2- or 4-bit data, low bits first; sign-extended when `is_signed`. */
/* Six-bit elements as ONNX's files pack them: four in three bytes, the first in the lowest bits. */
static inline uint64_t cyrt_six_bytes(uint64_t count) { return count / 4 * 3 + (count % 4 * 6 + 7) / 8; }
static inline uint8_t cyrt_six_get(const uint8_t *packed, uint64_t i) {
  uint64_t bit = i % 4 * 6;
  const uint8_t *at = packed + i / 4 * 3 + bit / 8;
  unsigned two = bit % 8 > 2 ? at[0] | (unsigned)at[1] << 8 : at[0];
  return (uint8_t)(two >> bit % 8 & 63);
}
static inline void cyrt_six_set(uint8_t *packed, uint64_t i, uint8_t code) { /* into zeros */
  uint64_t bit = i % 4 * 6;
  uint8_t *at = packed + i / 4 * 3 + bit / 8;
  unsigned two = (code & 63u) << bit % 8;
  at[0] |= (uint8_t)two;
  if (two > 255)
    at[1] |= (uint8_t)(two >> 8);
}

static inline int32_t cyrt_packed_get(const void *data, int64_t i, int bits, int is_signed) {
  int per_byte = 8 / bits;
  uint32_t raw = (uint32_t)((const uint8_t *)data)[i / per_byte] >> (i % per_byte * bits) & ((1u << bits) - 1);
  return is_signed && raw >> (bits - 1) ? (int32_t)raw - (1 << bits) : (int32_t)raw;
}

static inline void cyrt_packed_set(void *data, int64_t i, int bits, int32_t value) {
  int per_byte = 8 / bits, shift = (int)(i % per_byte) * bits;
  uint8_t *byte = (uint8_t *)data + i / per_byte;
  *byte = (uint8_t)((*byte & ~(((1u << bits) - 1) << shift)) | ((uint32_t)value & ((1u << bits) - 1)) << shift);
}

#endif
