/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* prelude.cuh - what stands in front of every generated kernel: names of types and threads, and arithmetic that C
 * lacks.
 *
 * Kernels include nothing, so that NVRTC needs no header search path. The same text is valid CUDA C++ and GNU C: on the
 * device the first part applies; anywhere else the includer has defined its names beforehand (tests/cuda/shim/shim.h runs a
 * fiber per thread). What follows is arithmetic that both share and that agrees with ir/scalar.c, the oracle: floats
 * narrower than f32 are computed in f32 and rounded, integers wrap, divisions by zero give 0, conversions to integers
 * saturate.
 */
#ifdef __CUDACC__
typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef bool b1;
typedef float f32;
typedef double f64;
#define CY_INLINE static __device__ __forceinline__
#define CY_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads, 1)
/* Two blocks at a time, where a multiprocessor's shared memory has room for them: a thread then takes no more than half of
 * the registers; a kernel for which they are too few is compiled again with CY_ONE_BLOCK_<its name> defined. */
#if __CUDA_ARCH__ >= 800 && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CY_KERNEL_OF_TWO(threads) extern "C" __global__ void __launch_bounds__(threads, 2)
#else
#define CY_KERNEL_OF_TWO CY_KERNEL
#endif
/* Two neighbouring blocks, a cluster, reach each other's shared memory. `name`: of the kernel. */
#define CY_KERNEL_OF_PAIRS(threads, name)                                                                              \
  extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(threads, 1)
/* Begins each kernel that may be launched before the one in front of it has ended (programmatic dependent launch): waits for
 * all that this one writes, then lets the next one begin. In this order, so that what ran two kernels ago has ended. */
#if __CUDA_ARCH__ >= 900
#define CY_AFTER() asm volatile("griddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;" ::: "memory")
#else
#define CY_AFTER() ((void)0)
#endif
#define CY_SHARED __shared__
#define CY_RESTRICT __restrict__
#define CY_UNROLL _Pragma("unroll")
#define CY_UNROLL_BY(n) _Pragma(CY_TEXT(unroll n))
#define CY_TEXT(text) #text
#define CY_TID ((int)threadIdx.x)
#define CY_BLOCK ((i64)blockIdx.x)
#define CY_BLOCKS ((i64)gridDim.x)
#define CY_SYNC() __syncthreads()
#define CY_SYNC_WARP() __syncwarp()
CY_INLINE u32 cy_shfl32(u32 v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
/* What all threads of a warp have alike, such that compilers see it: it then is in one register for all of them. */
CY_INLINE int cy_uniform(int v) { return __shfl_sync(0xffffffffu, v, 0); }
CY_INLINE u32 cy_bits_f32(f32 v) { return __float_as_uint(v); }
CY_INLINE f32 cy_f32_bits(u32 v) { return __uint_as_float(v); }
CY_INLINE u64 cy_bits_f64(f64 v) { return (u64)__double_as_longlong(v); }
CY_INLINE f64 cy_f64_bits(u64 v) { return __longlong_as_double((i64)v); }
CY_INLINE f32 cy_dec_f16(u16 v) {
  f32 r;
  asm("{.reg .b16 h; mov.b16 h, %1; cvt.f32.f16 %0, h;}" : "=f"(r) : "h"(v));
  return r;
}
CY_INLINE u16 cy_enc_f16(f32 v) {
  u16 r;
  asm("{.reg .b16 h; cvt.rn.f16.f32 h, %1; mov.b16 %0, h;}" : "=h"(r) : "f"(v));
  return r;
}
/* Replaces the bits of `mask` in a word that other threads change elsewhere. */
CY_INLINE void cy_put_bits(u32 *word, u32 mask, u32 bits) {
  atomicAnd(word, ~mask);
  atomicOr(word, bits);
}
CY_INLINE void cy_put_max(u32 *word, u32 v) { atomicMax(word, v); }
#endif

/* ---- several elements at once: addresses are multiples of the size ---- */

#define CY_ALIGNED(n) __attribute__((aligned(n)))
#ifdef __CUDACC__ /* whose compiler takes other structs apart into accesses of 4 bytes */
typedef uint2 cy_pair;
typedef uint4 cy_words;
#else
typedef u64 cy_pair;
typedef struct cy_words {
  u32 word[4];
} CY_ALIGNED(16) cy_words;
#endif
CY_INLINE void cy_move16(void *to, const void *from) { *(cy_words *)to = *(const cy_words *)from; }
CY_INLINE void cy_move32(void *to, const void *from) {
  cy_move16(to, from);
  cy_move16((cy_words *)to + 1, (const cy_words *)from + 1);
}
CY_INLINE void cy_move8(void *to, const void *from) { *(cy_pair *)to = *(const cy_pair *)from; }
CY_INLINE void cy_move4(void *to, const void *from) { *(u32 *)to = *(const u32 *)from; }
CY_INLINE void cy_move2(void *to, const void *from) { *(u16 *)to = *(const u16 *)from; }

/* ---- values between the threads of a warp ---- */

CY_INLINE u64 cy_shfl64(u64 v, int mask) {
  u32 low = cy_shfl32((u32)v, mask), high = cy_shfl32((u32)(v >> 32), mask);
  return (u64)high << 32 | low;
}
CY_INLINE f32 cy_shfl_f32(f32 v, int mask) { return cy_f32_bits(cy_shfl32(cy_bits_f32(v), mask)); }
CY_INLINE f64 cy_shfl_f64(f64 v, int mask) { return cy_f64_bits(cy_shfl64(cy_bits_f64(v), mask)); }
CY_INLINE i64 cy_shfl_i64(i64 v, int mask) { return (i64)cy_shfl64((u64)v, mask); }
CY_INLINE u64 cy_shfl_u64(u64 v, int mask) { return cy_shfl64(v, mask); }
CY_INLINE i32 cy_shfl_i32(i32 v, int mask) { return (i32)cy_shfl32((u32)v, mask); }
CY_INLINE u32 cy_shfl_u32(u32 v, int mask) { return cy_shfl32(v, mask); }

/* ---- narrow floats: storage bits to f32 and back ---- */

CY_INLINE f32 cy_dec_bf16(u16 v) { return cy_f32_bits((u32)v << 16); }
CY_INLINE u16 cy_enc_bf16(f32 v) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
  u32 r; /* of two at once: the conversion of one is many times slower */
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(0.f), "f"(v));
  return (u16)r;
#else
  u32 b = cy_bits_f32(v);
  if ((b & 0x7fffffffu) > 0x7f800000u)
    return (u16)(b >> 16 | 0x40);
  return (u16)((b + 0x7fffu + (b >> 16 & 1)) >> 16);
#endif
}

/* |v| in a format of `mantissa` bits whose smallest normal number is 2^emin, above its largest: `top` + 1 or more. */
CY_INLINE u32 cy_enc_small(f32 v, int mantissa, int emin) {
  u32 b = cy_bits_f32(v) & 0x7fffffffu;
  int e = (int)(b >> 23) - 127, shift = 23 - mantissa;
  if (e < emin) {                                                    /* subnormal: in units of 2^(emin - mantissa) */
    f32 unit = cy_f32_bits((u32)(127 + emin - mantissa + 23) << 23); /* adding it leaves whole units */
    return cy_bits_f32(cy_f32_bits(b) + unit) - cy_bits_f32(unit);
  }
  u32 round = (1u << (shift - 1)) - 1 + (b >> shift & 1);
  return ((b + round) >> shift) - ((u32)(emin - 1 + 127) << mantissa);
}
CY_INLINE f32 cy_dec_small(u32 v, int mantissa, int emin) {
  u32 e = v >> mantissa, fraction = v & ((1u << mantissa) - 1);
  if (e == 0)
    return (f32)fraction * cy_f32_bits((u32)(127 + emin - mantissa) << 23);
  return cy_f32_bits((u32)((int)e - 1 + emin + 127) << 23 | fraction << (23 - mantissa));
}
/* Infinities are stored as such, or as NaN where a format has none; a cast saturates them before. */
CY_INLINE b1 cy_is_inf(f32 v) { return (cy_bits_f32(v) & 0x7fffffffu) == 0x7f800000u; }
CY_INLINE f32 cy_saturate(f32 v) { return cy_is_inf(v) ? cy_f32_bits(cy_bits_f32(v) - 1) : v; }
CY_INLINE f32 cy_signed(f32 v, u32 sign) { return cy_f32_bits(cy_bits_f32(v) | sign << 31); }

#if defined(__CUDACC__) && __CUDA_ARCH__ >= 890
#define CY_FLOAT8(name, type)                                                                                          \
  CY_INLINE u8 cy_sat_##name(f32 v) {                                                                                  \
    u16 r; /* of two at once, the second argument in the low byte */                                                   \
    asm("cvt.rn.satfinite." type "x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.f), "f"(v));                                   \
    return (u8)r;                                                                                                      \
  }                                                                                                                    \
  CY_INLINE f32 cy_dec_##name(u8 v) {                                                                                  \
    u32 r;                                                                                                             \
    asm("cvt.rn.f16x2." type "x2 %0, %1;" : "=r"(r) : "h"((u16)v));                                                    \
    return cy_dec_f16((u16)r);                                                                                         \
  }
CY_FLOAT8(f8e4m3fn, "e4m3")
CY_FLOAT8(f8e5m2, "e5m2")
CY_INLINE u8 cy_enc_f8e4m3fn(f32 v) { return cy_is_inf(v) ? (u8)0x7f : cy_sat_f8e4m3fn(v); }
CY_INLINE u8 cy_enc_f8e5m2(f32 v) {
  return cy_is_inf(v) ? (u8)(0x7c | cy_bits_f32(v) >> 31 << 7) : cy_sat_f8e5m2(v);
}
#else
CY_INLINE f32 cy_dec_f8e4m3fn(u8 v) {
  f32 nan = cy_f32_bits(0x7fc00000u);
  return (v & 0x7f) == 0x7f ? nan : cy_signed(cy_dec_small(v & 0x7fu, 3, -6), v >> 7);
}
CY_INLINE u8 cy_enc_f8e4m3fn(f32 v) {
  u32 r = cy_enc_small(v, 3, -6);
  return (u8)(v != v || cy_is_inf(v) ? 0x7f : (r > 0x7e ? 0x7e : r) | (cy_bits_f32(v) >> 31 << 7));
}
CY_INLINE f32 cy_dec_f8e5m2(u8 v) {
  u32 m = v & 0x7fu;
  f32 r = m > 0x7c ? cy_f32_bits(0x7fc00000u) : m == 0x7c ? cy_f32_bits(0x7f800000u) : cy_dec_small(m, 2, -14);
  return cy_signed(r, v >> 7);
}
CY_INLINE u8 cy_enc_f8e5m2(f32 v) {
  u32 r = cy_enc_small(v, 2, -14);
  return (u8)(v != v ? 0x7f : (cy_is_inf(v) ? 0x7c : r > 0x7b ? 0x7b : r) | (cy_bits_f32(v) >> 31 << 7));
}
CY_INLINE u8 cy_sat_f8e4m3fn(f32 v) { return cy_enc_f8e4m3fn(cy_saturate(v)); }
CY_INLINE u8 cy_sat_f8e5m2(f32 v) { return cy_enc_f8e5m2(cy_saturate(v)); }
#endif
CY_INLINE f32 cy_dec_f8e4m3fnuz(u8 v) {
  return v == 0x80 ? cy_f32_bits(0x7fc00000u) : cy_signed(cy_dec_small(v & 0x7fu, 3, -7), v >> 7);
}
CY_INLINE u8 cy_enc_f8e4m3fnuz(f32 v) {
  u32 r = cy_enc_small(v, 3, -7);
  return (u8)(v != v || cy_is_inf(v) ? 0x80 : r == 0 ? 0 : (r > 0x7f ? 0x7f : r) | (cy_bits_f32(v) >> 31 << 7));
}
CY_INLINE f32 cy_dec_f8e5m2fnuz(u8 v) {
  return v == 0x80 ? cy_f32_bits(0x7fc00000u) : cy_signed(cy_dec_small(v & 0x7fu, 2, -15), v >> 7);
}
CY_INLINE u8 cy_enc_f8e5m2fnuz(f32 v) {
  u32 r = cy_enc_small(v, 2, -15);
  return (u8)(v != v || cy_is_inf(v) ? 0x80 : r == 0 ? 0 : (r > 0x7f ? 0x7f : r) | (cy_bits_f32(v) >> 31 << 7));
}
CY_INLINE f32 cy_dec_f4e2m1(u8 v) { return cy_signed(cy_dec_small(v & 7u, 1, 0), v >> 3 & 1u); }
CY_INLINE u8 cy_enc_f4e2m1(f32 v) {
  u32 r = cy_enc_small(v, 1, 0);
  return (u8)(v != v ? 8 : (r > 7 ? 7 : r) | (cy_bits_f32(v) >> 31 << 3));
}
CY_INLINE f32 cy_dec_f6e2m3(u8 v) { return cy_signed(cy_dec_small(v & 31u, 3, 0), v >> 5 & 1u); }
CY_INLINE u8 cy_enc_f6e2m3(f32 v) {
  u32 r = cy_enc_small(v, 3, 0);
  return (u8)(v != v ? 32 : (r > 31 ? 31 : r) | (cy_bits_f32(v) >> 31 << 5));
}
CY_INLINE f32 cy_dec_f6e3m2(u8 v) { return cy_signed(cy_dec_small(v & 31u, 2, -2), v >> 5 & 1u); }
CY_INLINE u8 cy_enc_f6e3m2(f32 v) {
  u32 r = cy_enc_small(v, 2, -2);
  return (u8)(v != v ? 32 : (r > 31 ? 31 : r) | (cy_bits_f32(v) >> 31 << 5));
}
CY_INLINE f32 cy_dec_f8e8m0(u8 v) {
  return v == 0xff ? cy_f32_bits(0x7fc00000u) : v == 0 ? cy_f32_bits(0x00400000u) : cy_f32_bits((u32)v << 23);
}
CY_INLINE u8 cy_enc_f8e8m0(f32 v) { /* powers of two, rounded up */
  u32 b = cy_bits_f32(v) & 0x7fffffffu;
  if (v != v || v < 0.f)
    return 0xff;
  if (b <= 0x00400000u)
    return 0;
  u32 up = (b + 0x7fffffu) >> 23;
  return (u8)(up > 0xfe ? 0xfe : up);
}

/* ---- elements of fewer than 8 bits, packed from the lowest bits up ---- */

CY_INLINE u8 cy_load_packed(const u8 *at, i64 i, int bits) {
  i64 bit = i * bits;
  return (u8)(at[bit >> 3] >> (bit & 7) & ((1 << bits) - 1));
}
CY_INLINE void cy_store_packed(u8 *at, i64 i, int bits, u8 v) {
  u64 bit = (u64)at * 8 + (u64)(i * bits);
  u32 place = (u32)(bit & 31), mask = ((1u << bits) - 1) << place;
  cy_put_bits((u32 *)(bit >> 5 << 2), mask, (u32)v << place & mask);
}
CY_INLINE i8 cy_sext(i32 v, int bits) { return (i8)((i32)((u32)v << (32 - bits)) >> (32 - bits)); }

/* ---- weights in integers: codes below 2^22 less a zero point, exactly; 2^23 + byte e of a word ---- */

/* A float of 1 + `sign` bits, neither NaN nor infinite: exponent and mantissa moved to where f32 has them, `unit` makes up for
 * the other bias, of subnormal numbers, too. */
CY_INLINE f32 cy_float_code(u32 code, int sign, int shift, f32 unit) {
  return cy_f32_bits((code & ((1u << sign) - 1)) << shift | (code >> sign & 1) << 31) * unit;
}
CY_INLINE f32 cy_code_f32(u32 code, f32 zero) { return cy_f32_bits(0x4b000000u | code) - (8388608.f + zero); }
#ifdef __CUDACC__
CY_INLINE f32 cy_byte_f32(u32 word, int e) { return cy_f32_bits(__byte_perm(word, 0x4b000000u, 0x7540 | e)); }
#else
CY_INLINE f32 cy_byte_f32(u32 word, int e) { return cy_f32_bits(0x4b000000u | (word >> 8 * e & 255)); }
#endif

/* ---- floats ---- */

/* NaN when either is. */
CY_INLINE f32 cy_min_f32(f32 a, f32 b) { return a < b || a != a ? a : b; }
CY_INLINE f32 cy_max_f32(f32 a, f32 b) { return a > b || a != a ? a : b; }
CY_INLINE f64 cy_min_f64(f64 a, f64 b) { return a < b || a != a ? a : b; }
CY_INLINE f64 cy_max_f64(f64 a, f64 b) { return a > b || a != a ? a : b; }
CY_INLINE f32 cy_sign_f32(f32 x) { return x > 0.f ? 1.f : x < 0.f ? -1.f : x != x ? x : 0.f; }
CY_INLINE f64 cy_sign_f64(f64 x) { return x > 0. ? 1. : x < 0. ? -1. : x != x ? x : 0.; }
CY_INLINE f32 cy_mod_f32(f32 a, f32 b) {
  f32 r = fmodf(a, b);
  return r != 0.f && (r < 0.f) != (b < 0.f) ? r + b : r;
}
CY_INLINE f64 cy_mod_f64(f64 a, f64 b) {
  f64 r = fmod(a, b);
  return r != 0. && (r < 0.) != (b < 0.) ? r + b : r;
}
CY_INLINE f32 cy_sigmoid_f32(f32 x) { return 1.f / (1.f + expf(-x)); }
CY_INLINE f64 cy_sigmoid_f64(f64 x) { return 1. / (1. + exp(-x)); }

/* a / b to 2 ulp, where b is between 1 and 1e30. */
#ifdef __CUDACC__
CY_INLINE f32 cy_ratio(f32 a, f32 b) {
  f32 inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b));
  return a * inverse;
}
#else
CY_INLINE f32 cy_ratio(f32 a, f32 b) { return a * (1.f / b); }
#endif

/* To integers: towards zero, saturating, NaN to 0. */
CY_INLINE i32 cy_clamp_f32(f32 x, i32 low, i32 high) {
  return x != x ? 0 : x <= (f32)low ? low : x >= (f32)high ? high : (i32)x;
}
CY_INLINE i32 cy_clamp_f64(f64 x, i32 low, i32 high) {
  return x != x ? 0 : x <= (f64)low ? low : x >= (f64)high ? high : (i32)x;
}
CY_INLINE i64 cy_i64_f64(f64 x) {
  return x != x ? 0 : x >= 0x1p63 ? 0x7fffffffffffffffll : x < -0x1p63 ? (i64)0x8000000000000000ull : (i64)x;
}
CY_INLINE u64 cy_u64_f64(f64 x) { return x != x || x <= 0. ? 0 : x >= 0x1p64 ? 0xffffffffffffffffull : (u64)x; }
CY_INLINE i32 cy_i32_f64(f64 x) {
  return x != x ? 0 : x >= 0x1p31 ? 0x7fffffff : x < -0x1p31 ? (i32)0x80000000u : (i32)x;
}
CY_INLINE u32 cy_u32_f64(f64 x) { return x != x || x <= 0. ? 0 : x >= 0x1p32 ? 0xffffffffu : (u32)x; }
CY_INLINE i32 cy_i32_f32(f32 x) {
  return x != x ? 0 : x >= 0x1p31f ? 0x7fffffff : x < -0x1p31f ? (i32)0x80000000u : (i32)x;
}
CY_INLINE u32 cy_u32_f32(f32 x) { return x != x || x <= 0.f ? 0 : x >= 0x1p32f ? 0xffffffffu : (u32)x; }
CY_INLINE i64 cy_i64_f32(f32 x) {
  return x != x ? 0 : x >= 0x1p63f ? 0x7fffffffffffffffll : x < -0x1p63f ? (i64)0x8000000000000000ull : (i64)x;
}
CY_INLINE u64 cy_u64_f32(f32 x) { return x != x || x <= 0.f ? 0 : x >= 0x1p64f ? 0xffffffffffffffffull : (u64)x; }

/* ---- integers ---- */

CY_INLINE i32 cy_div_i32(i32 a, i32 b) { return b == 0 ? 0 : b == -1 ? (i32)(0u - (u32)a) : a / b; }
CY_INLINE i64 cy_div_i64(i64 a, i64 b) { return b == 0 ? 0 : b == -1 ? (i64)(0ull - (u64)a) : a / b; }
CY_INLINE u32 cy_div_u32(u32 a, u32 b) { return b == 0 ? 0 : a / b; }
CY_INLINE u64 cy_div_u64(u64 a, u64 b) { return b == 0 ? 0 : a / b; }
CY_INLINE i32 cy_fmod_i32(i32 a, i32 b) { return b == 0 || b == -1 ? 0 : a % b; }
CY_INLINE i64 cy_fmod_i64(i64 a, i64 b) { return b == 0 || b == -1 ? 0 : a % b; }
CY_INLINE u32 cy_fmod_u32(u32 a, u32 b) { return b == 0 ? 0 : a % b; }
CY_INLINE u64 cy_fmod_u64(u64 a, u64 b) { return b == 0 ? 0 : a % b; }
CY_INLINE i32 cy_mod_i32(i32 a, i32 b) {
  i32 r = cy_fmod_i32(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
CY_INLINE i64 cy_mod_i64(i64 a, i64 b) {
  i64 r = cy_fmod_i64(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
CY_INLINE u32 cy_mod_u32(u32 a, u32 b) { return cy_fmod_u32(a, b); }
CY_INLINE u64 cy_mod_u64(u64 a, u64 b) { return cy_fmod_u64(a, b); }
CY_INLINE u64 cy_pow_u64(u64 base, u64 e) {
  u64 r = 1;
  for (; e; e >>= 1, base *= base)
    if (e & 1)
      r *= base;
  return r;
}
CY_INLINE i64 cy_pow_i64(i64 base, i64 e) {
  if (e < 0)
    return base == 1 ? 1 : base == -1 ? (e & 1 ? -1 : 1) : 0;
  return (i64)cy_pow_u64((u64)base, (u64)e);
}
/* `by` is unsigned: shifts by the width or more leave 0, or the sign. */
CY_INLINE u64 cy_shl(u64 a, u64 by, int bits) { return by >= (u64)bits ? 0 : a << by; }
CY_INLINE u64 cy_shr_u64(u64 a, u64 by, int bits) { return by >= (u64)bits ? 0 : a >> by; }
CY_INLINE i64 cy_shr_i64(i64 a, u64 by, int bits) { return a >> (by >= (u64)bits ? (u64)bits - 1 : by); }
