/* SPDX-License-Identifier: Apache-2.0 */
/* shim_ptx.h - what the C that ptx.py writes needs: instructions of PTX that C has no operator for, and addresses.
 *
 * Every access is checked for alignment, those of shared memory for its bounds; instructions of a warp and products of
 * warpgroups are in shim_ptx.c, on top of the shim's.
 */
#ifndef SHIM_PTX_H
#define SHIM_PTX_H

#include "tests/cuda/shim/shim.h"

#include "codegen/cuda/prelude.cuh"

#include <fenv.h>
#include <math.h>
#include <string.h>

#pragma GCC visibility push(hidden)
extern u32 ptx_shared_bytes; /* of the launch at hand */

/* ---- addresses ---- */

CY_INLINE char *ptx_at(u64 at, u32 bytes) {
  if (at & (bytes - 1))
    shim_fault("misaligned address", at);
  return (char *)at;
}
CY_INLINE char *ptx_shared(u64 at, u32 bytes) {
  if (at & (bytes - 1) || at + bytes > ptx_shared_bytes)
    shim_fault("address in shared memory", at);
  return (char *)shim_dynamic + at;
}
CY_INLINE char *ptx_shared_put(u64 at, u32 bytes) {
  char *to = ptx_shared(at, bytes);
  shim_written(to);
  return to;
}
#define PTX_PARAM (1ull << 60) /* added to addresses in these spaces */
#define PTX_LOCAL (1ull << 61)
CY_INLINE char *ptx_param(u64 at, u32 bytes) {
  if (at >> 60 != PTX_PARAM >> 60)
    shim_fault("address of a parameter", at);
  return ptx_at(at - PTX_PARAM, bytes);
}
CY_INLINE char *ptx_local(u64 at, u32 bytes) {
  if (at >> 60 != PTX_LOCAL >> 60)
    shim_fault("address in local memory", at);
  return ptx_at(at - PTX_LOCAL, bytes);
}
CY_INLINE char *ptx_generic(u64 at, u32 bytes) { return ptx_at(at, bytes); }
CY_INLINE char *ptx_generic_put(u64 at, u32 bytes) {
  u64 offset = at - (u64)shim_dynamic;
  return offset < ptx_shared_bytes ? ptx_shared_put(offset, bytes) : ptx_at(at, bytes);
}

/* ---- integers ---- */

/* 1 in place of a divisor of 0 (which leaves any result). */
#define ptx_divisor(b) ((b) == 0 ? 1 : (b))
/* n bits from `at` on; beyond the width are zeros, or (s) the sign, which is also that of the highest bit taken. */
CY_INLINE u64 ptx_bfe_u(u64 a, u32 at, u32 n, u32 width) {
  at &= 255, n &= 255;
  return at >= width || !n ? 0 : n >= width - at ? a >> at : a >> at & ((1ull << n) - 1);
}
CY_INLINE i64 ptx_bfe_s(i64 a, u32 at, u32 n, u32 width) {
  at &= 255, n &= 255;
  if (!n)
    return 0;
  return at >= width ? a >> 63 : n >= width - at ? a >> at : (i64)((u64)a << (64 - at - n)) >> (64 - n);
}
CY_INLINE u64 ptx_bfi(u64 a, u64 b, u32 at, u32 n, u32 width) {
  at &= 255, n &= 255;
  u64 mask = at >= width || !n ? 0 : (n > 63 ? ~0ull : (1ull << n) - 1) << at;
  return (b & ~mask) | (mask ? a << at & mask : 0);
}
CY_INLINE u32 ptx_prmt(u32 a, u32 b, u32 how) {
  u64 bytes = (u64)b << 32 | a;
  u32 r = 0;
  for (int i = 0; i < 4; i++) {
    u32 one = how >> i * 4 & 15, byte = (u32)(bytes >> (one & 7) * 8) & 255;
    r |= (one & 8 ? byte & 128 ? 255u : 0u : byte) << i * 8;
  }
  return r;
}
CY_INLINE u32 ptx_dp4a_u(u32 a, u32 b, u32 c) {
  for (int i = 0; i < 32; i += 8)
    c += (a >> i & 255) * (b >> i & 255);
  return c;
}
CY_INLINE u32 ptx_dp4a_s(u32 a, u32 b, u32 c) {
  for (int i = 0; i < 32; i += 8)
    c += (u32)((i8)(a >> i) * (i8)(b >> i));
  return c;
}
#define ptx_popc32 __builtin_popcount
#define ptx_popc64 __builtin_popcountll
#define ptx_clz32(a) ((a) ? __builtin_clz(a) : 32)
#define ptx_clz64(a) ((a) ? __builtin_clzll(a) : 64)
#define ptx_bfind32(a) ((a) ? 31 - __builtin_clz(a) : -1)
#define ptx_bfind64(a) ((a) ? 63 - __builtin_clzll(a) : -1)
CY_INLINE u64 ptx_brev64(u64 a) {
  u64 r = 0;
  for (int i = 0; i < 64; i++)
    r |= (a >> i & 1) << (63 - i);
  return r;
}
CY_INLINE u32 ptx_brev32(u32 a) { return (u32)(ptx_brev64(a) >> 32); }

/* ---- floats ---- */

CY_INLINE f32 ptx_ftz(f32 v) { return cy_bits_f32(v) & 0x7f800000u ? v : cy_f32_bits(cy_bits_f32(v) & 0x80000000u); }
CY_INLINE f64 ptx_coarse(f64 v) { return isfinite(v) ? cy_f64_bits(cy_bits_f64(v) & ~0xffffffffull) : v; }
CY_INLINE f32 ptx_sat(f32 v) { return v > 0.f ? v < 1.f ? v : 1.f : 0.f; }
/* The nearest of 10 bits of mantissa, ties away from zero. */
CY_INLINE u32 ptx_tf32(u32 v) { return (v & 0x7f800000u) == 0x7f800000u ? v : (v + 0x1000u) & ~0x1fffu; }
f32 ptx_fma_f32(f32 a, f32 b, f32 c, int rounding);
f64 ptx_fma_f64(f64 a, f64 b, f64 c, int rounding);
/* Whole numbers as integers. */
#define PTX_TO(name, type, low, high, end, nan)                                                                        \
  CY_INLINE type ptx_to_##name(f64 v) { return isnan(v) ? nan : v <= low ? (type)low : v >= end ? high : (type)v; }
PTX_TO(s8, i8, -128., 127, 127., 0)
PTX_TO(u8, u8, 0., 255, 255., 0)
PTX_TO(s16, i16, -32768., 32767, 32767., 0)
PTX_TO(u16, u16, 0., 65535, 65535., 0)
PTX_TO(s32, i32, -0x1p31, 0x7fffffff, 0x1p31, 0)
PTX_TO(u32, u32, 0., 0xffffffffu, 0x1p32, 0)
PTX_TO(s64, i64, -0x1p63, 0x7fffffffffffffffll, 0x1p63, (i64)0x8000000000000000ull)
PTX_TO(u64, u64, 0., 0xffffffffffffffffull, 0x1p64, 0x8000000000000000ull)

/* ---- warps ---- */

CY_INLINE void ptx_whole_warp(u32 mask) {
  if (mask != 0xffffffffu)
    shim_fault("mask of a part of a warp", mask);
}
u32 ptx_shfl_bfly(u32 v, u32 by, u32 clamp, u32 mask, b1 *there);
u32 ptx_shfl_idx(u32 v, u32 by, u32 clamp, u32 mask, b1 *there);
u32 ptx_shfl_down(u32 v, u32 by, u32 clamp, u32 mask, b1 *there);
u32 ptx_shfl_up(u32 v, u32 by, u32 clamp, u32 mask, b1 *there);
u32 ptx_ballot(b1 v, u32 mask);
typedef u32 ptx_element(u32 word, int i); /* an element of a word; floats as f32 */
ptx_element ptx_of_f16, ptx_of_bf16, ptx_of_tf32, ptx_of_e4m3, ptx_of_e5m2, ptx_of_s8, ptx_of_u8;
void ptx_mma_f32(int rows, int words, u32 *d, const u32 *a, const u32 *b, ptx_element *of_a, ptx_element *of_b);
void ptx_mma_s32(int rows, int words, u32 *d, const u32 *a, const u32 *b, ptx_element *of_a, ptx_element *of_b);

/* ---- products of warpgroups ---- */

/* What stands in registers until their product has been waited for, less the number of the register: NaN, or far from
 * any sum. */
enum { PTX_F32 = 0xffbad00, PTX_S32 = 0x80bad00 };
u32 *ptx_wgmma_begin(int n, const u32 *d, b1 add, u32 tag); /* where the sums are */
void ptx_wgmma_end(u32 *d, int n);
const u32 *ptx_wgmma_kept(const u32 *a);
void ptx_registers(b1 more, int n); /* setmaxnreg */
void ptx_wgmma_fence(void);
void ptx_wgmma_commit(void);
void ptx_wgmma_wait(int but, u32 *held, int nheld);

/* ---- barriers in shared memory ---- */

void ptx_barrier_init(u64 *barrier, int arrivals);
void ptx_barriers_published(void);
void ptx_tensor_load(u32 blocks, void *to, const cy_tensor_map *map, const int at[5],
                     u64 *barrier); /* 0: the own one */
void ptx_cluster_arrive(int release);
void ptx_cluster_wait(void);
u64 ptx_map_shared(u64 at, u32 rank); /* mapa */
void ptx_barrier_arrive_at(u64 at);   /* of any block of the cluster */

/* ---- traffic: shim_traffic.c ---- */

/* Of the first blocks of the last launch: what requests cost, and the least that they could. */
typedef struct ptx_traffic {
  u64 shared_iterations, shared_min, sectors, sectors_min;
} ptx_traffic;
void ptx_note(u32 line, b1 shared, u64 at, u32 bytes);
void ptx_round(void); /* of a loop of the thread at hand has ended, and another one follows */
void ptx_traffic_begin(void);
void ptx_traffic_end(void);
#ifdef PTX_TRAFFIC
#define ptx_at(at, bytes) (ptx_note(__LINE__, 0, at, bytes), ptx_at(at, bytes))
#define ptx_shared(at, bytes) (ptx_note(__LINE__, 1, at, bytes), ptx_shared(at, bytes))
#define ptx_shared_put(at, bytes) (ptx_note(__LINE__, 1, at, bytes), ptx_shared_put(at, bytes))
#define PTX_ROUND() ptx_round()
#define cy_copy_async(to, from, bytes) (ptx_note(__LINE__, 0, (u64)(from), bytes), cy_copy_async(to, from, bytes))
#define cy_copy_word(to, from, bytes)                                                                                  \
  (ptx_note(__LINE__, 0, (u64)(from), bytes), ptx_note(__LINE__, 1, (u64)(to), 4), cy_copy_word(to, from, bytes))
#else
#define PTX_ROUND() (void)0
#endif
#pragma GCC visibility pop

#endif
