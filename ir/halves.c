/* SPDX-License-Identifier: Apache-2.0 */
/* halves.c - whole arrays between f32 and half precision.
 *
 * In: arrays in f32, f16 or bf16. Out: what scalar.c gives element by element, bit for bit, some fifty times as fast:
 * weights are converted by the hundred million. Loops over a fixed number of elements become vectors.
 */
#include "ir_int.h"

enum { BLOCK = 32 };

static uint32_t bits_of(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

static float float_of(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

/* Half of the numbers lie on either side of what is cut off: to nearest, ties to even. */
static uint32_t round_off(uint32_t bits, int by) { return (bits + (1u << (by - 1)) - 1 + (bits >> by & 1)) >> by; }

static uint16_t to_bf16(uint32_t bits) {
  uint32_t magnitude = bits & 0x7fffffff;
  return (uint16_t)(magnitude > 0x7f800000 ? 0x7fc0 : round_off(bits, 16));
}

/* Below 2^-14, adding 0.5 leaves multiples of 2^-24 in the last bits. */
static uint16_t to_f16(uint32_t bits) {
  uint32_t magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
  uint32_t small = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f),
           normal = round_off(magnitude, 13) - (112u << 10);
  uint32_t half = magnitude < 0x38800000 ? small : normal;
  half = magnitude >= 0x477ff000 ? 0x7c00 : half; /* 65520 and more */
  return (uint16_t)(magnitude > 0x7f800000 ? 0x7e00 : sign | half);
}

static uint32_t from_bf16(uint32_t half) { return (half & 0x7fff) > 0x7f80 ? 0x7fc00000 : half << 16; }

static uint32_t from_f16(uint32_t half) {
  uint32_t magnitude = half & 0x7fff, sign = (half & 0x8000) << 16;
  uint32_t small = bits_of((float)(int32_t)magnitude * 0x1p-24f), normal = (magnitude << 13) + (112u << 23);
  uint32_t wide = magnitude < 0x400 ? small : magnitude < 0x7c00 ? normal : 0x7f800000;
  return magnitude > 0x7c00 ? 0x7fc00000 : sign | wide;
}

static void narrow_block(bool bf16, const uint32_t *from, uint16_t *to) {
  if (bf16)
    for (int i = 0; i < BLOCK; i++)
      to[i] = to_bf16(from[i]);
  else
    for (int i = 0; i < BLOCK; i++)
      to[i] = to_f16(from[i]);
}

static void widen_block(bool bf16, const uint16_t *from, uint32_t *to) {
  if (bf16)
    for (int i = 0; i < BLOCK; i++)
      to[i] = from_bf16(from[i]);
  else
    for (int i = 0; i < BLOCK; i++)
      to[i] = from_f16(from[i]);
}

static void check(cy_dtype half) {
  if (half != CY_F16 && half != CY_BF16)
    cy_bug("%s as half precision", cy_dtype_of(half)->name);
}

/* Both may be mapped from a file, at any address: blocks go by way of the stack. */
void cy_halves_store(void *to, cy_dtype half, const void *from, uint64_t n) {
  check(half);
  for (uint64_t i = 0; i < n; i += BLOCK) {
    uint32_t wide[BLOCK] = {0};
    uint16_t narrow[BLOCK];
    size_t count = n - i < BLOCK ? (size_t)(n - i) : BLOCK;
    memcpy(wide, (const char *)from + i * sizeof *wide, count * sizeof *wide);
    narrow_block(half == CY_BF16, wide, narrow);
    memcpy((char *)to + i * sizeof *narrow, narrow, count * sizeof *narrow);
  }
}

void cy_halves_load(void *to, cy_dtype half, const void *from, uint64_t n) {
  check(half);
  for (uint64_t i = 0; i < n; i += BLOCK) {
    uint32_t wide[BLOCK];
    uint16_t narrow[BLOCK] = {0};
    size_t count = n - i < BLOCK ? (size_t)(n - i) : BLOCK;
    memcpy(narrow, (const char *)from + i * sizeof *narrow, count * sizeof *narrow);
    widen_block(half == CY_BF16, narrow, wide);
    memcpy((char *)to + i * sizeof *wide, wide, count * sizeof *wide);
  }
}

void cy_halves_round(void *to, cy_dtype half, const void *from, uint64_t n) {
  for (uint64_t i = 0; i < n; i += BLOCK) {
    uint16_t narrow[BLOCK];
    uint64_t count = n - i < BLOCK ? n - i : BLOCK;
    cy_halves_store(narrow, half, (const char *)from + i * 4, count);
    cy_halves_load((char *)to + i * 4, half, narrow, count);
  }
}

bool cy_halves_hold(cy_dtype half, const void *from, uint64_t n) {
  for (uint64_t i = 0; i < n; i += BLOCK) {
    float back[BLOCK];
    uint64_t count = n - i < BLOCK ? n - i : BLOCK;
    const char *these = (const char *)from + i * sizeof *back;
    cy_halves_round(back, half, these, count);
    if (memcmp(back, these, count * sizeof *back))
      return false;
  }
  return true;
}
