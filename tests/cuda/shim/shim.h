/* SPDX-License-Identifier: Apache-2.0 */
/* shim.h - CUDA kernels as GNU C: one fiber per thread, one block or cluster at a time, on one CPU thread (x86-64).
 *
 * Included in front of codegen/cuda/prelude.cuh and generated kernels; declares what the prelude expects outside of
 * CUDA. What is no matter of a line is compiled once, into an object that each library of kernels is linked with:
 * shim.c (fibers, barriers, launches), shim_matrix.c and shim_tensor.c (matrix instructions and asynchronous copies).
 */
#ifndef SHIM_H
#define SHIM_H

#include "tests/cuda/shim/shim_map.h"

#include <stddef.h>
#include <stdint.h>

typedef int8_t i8;
typedef uint8_t u8;
typedef int16_t i16;
typedef uint16_t u16;
typedef int32_t i32;
typedef uint32_t u32;
typedef long long i64;
typedef unsigned long long u64;
typedef _Bool b1;
typedef float f32;
typedef double f64;

/* What kernels call of <math.h> and <string.h>: those headers take longer to read than a small kernel to compile. */
#define SHIM_MATH(name)                                                                                                \
  f64 name(f64);                                                                                                       \
  f32 name##f(f32)
SHIM_MATH(fabs);
SHIM_MATH(floor);
SHIM_MATH(ceil);
SHIM_MATH(rint);
SHIM_MATH(trunc);
SHIM_MATH(sqrt);
SHIM_MATH(exp);
SHIM_MATH(log);
SHIM_MATH(sin);
SHIM_MATH(log1p);
SHIM_MATH(cos);
SHIM_MATH(tan);
SHIM_MATH(asin);
SHIM_MATH(acos);
SHIM_MATH(atan);
SHIM_MATH(sinh);
SHIM_MATH(cosh);
SHIM_MATH(tanh);
SHIM_MATH(asinh);
SHIM_MATH(acosh);
SHIM_MATH(atanh);
SHIM_MATH(erf);
SHIM_MATH(erfc);
f64 pow(f64, f64);
f32 powf(f32, f32);
f64 fmod(f64, f64);
f32 fmodf(f32, f32);
f64 fma(f64, f64, f64);
f32 fmaf(f32, f32, f32);
void *memcpy(void *, const void *, size_t);
void *memset(void *, int, size_t);

#define CY_INLINE static inline
#define CY_KERNEL(threads) void
#define CY_KERNEL_OF_TWO(threads) void
#define CY_KERNEL_OF_PAIRS(threads, name)                                                                              \
  const int name##_cluster = 2;                                                                                        \
  void
#define CY_AFTER() ((void)0)
#define CY_SHARED static __attribute__((section("cy_shared")))
#define CY_RESTRICT restrict
#define CY_UNROLL
#define CY_UNROLL_BY(n)
#define CY_TID (shim_now->number)
#define CY_BLOCK (shim_block)
#define CY_BLOCKS (shim_blocks)
#define CY_SYNC() shim_wait(SHIM_BLOCK)
#define CY_SYNC_WARP() shim_wait(SHIM_WARP)
#define CY_SYNC_CLUSTER() shim_wait(SHIM_CLUSTER)
#define CY_LEAVE_CLUSTER() shim_wait(SHIM_CLUSTER)

/* ---- fibers ---- */

enum { SHIM_READY, SHIM_WARP, SHIM_BLOCK, SHIM_CLUSTER, SHIM_BARRIER, SHIM_DONE };
enum { SHIM_THREADS = 1024, SHIM_RANKS = 4, SHIM_MAX_SHARED = 228 << 10 }; /* threads of a cluster, its blocks */

typedef struct shim_fiber {
  void *stack_pointer, *fake_stack;
  char *stack;
  int number, state;
  int self, rank;                     /* its number among the threads of the cluster, and the block's in it */
  int place;                          /* of what it laid down for its warp last */
  const struct shim_barrier *barrier; /* BARRIER: until this phase of it has ended */
  int phase;
} shim_fiber;

#pragma GCC visibility push(hidden)
extern shim_fiber *shim_now;
extern unsigned char *shim_dynamic;             /* shared memory that the launch asked for, of the block at hand, */
extern unsigned char *shim_memory[SHIM_RANKS];  /* .. and of all blocks of its cluster */
extern i64 shim_block, shim_blocks, shim_first; /* shim_first: the first block of the cluster */
extern int shim_ranks, shim_syncs;              /* its blocks; how often all of its threads have met */
#define SHIM_SELF (shim_now->self)
void shim_wait(int state); /* until others come */
void shim_fault(const char *what, u64 number)
    __attribute__((noreturn));        /* what no device does well: said, then the end */
extern void (*shim_block_ends)(void); /* NULL, or called when all threads of a block are done */
/* Lanes of a warp lay something down, meet once, and read what others laid down. A fast lane may be at the next meeting
 * while a slow one still reads: places alternate, and the one after that is not reached without the slow one. */
enum { SHIM_PLACES = 2 };
CY_INLINE int shim_next_place(void) { return shim_now->place ^= 1; }
b1 shim_goes_first(void); /* after a meeting: true for one lane, which does what is done for all */

/* ---- what the prelude expects ---- */

CY_INLINE u32 cy_bits_f32(f32 v) {
  u32 b;
  memcpy(&b, &v, 4);
  return b;
}
CY_INLINE f32 cy_f32_bits(u32 b) {
  f32 v;
  memcpy(&v, &b, 4);
  return v;
}
CY_INLINE u64 cy_bits_f64(f64 v) {
  u64 b;
  memcpy(&b, &v, 8);
  return b;
}
CY_INLINE f64 cy_f64_bits(u64 b) {
  f64 v;
  memcpy(&v, &b, 8);
  return v;
}
CY_INLINE f32 cy_dec_f16(u16 b) {
  _Float16 h;
  memcpy(&h, &b, 2);
  return (f32)h;
}
CY_INLINE u16 cy_enc_f16(f32 v) {
  _Float16 h = (_Float16)v;
  u16 b;
  memcpy(&b, &h, 2);
  return b;
}
u32 cy_shfl32(u32 v, int mask);
CY_INLINE int cy_uniform(int v) { return v; }
CY_INLINE void cy_put_max(u32 *word, u32 v) { *word = *word < v ? v : *word; }
CY_INLINE void cy_put_bits(u32 *word, u32 mask, u32 bits) { *word = (*word & ~mask) | bits; }

/* ---- shim_matrix.c ---- */

typedef struct cy_chunk cy_chunk;
#define CY_DYNAMIC(name) unsigned char *const name = shim_dynamic
#define cy_chunk_store(to, v) (*(to) = (v), shim_written(to))
#define cy_chunk_load(from) (*(from))
#define cy_word_store(to, v) (*(to) = (v), shim_written(to))
void shim_written(const void *chunk); /* by the thread at hand, who has yet to publish it */
#define CY_FETCH(bits)                                                                                                 \
  static inline u32 cy_fetch##bits(u64 from, b1 inside) { return inside ? *(const u##bits *)from : 0; }
CY_FETCH(8)
CY_FETCH(16)
CY_FETCH(32)
void cy_copy_async(cy_chunk *to, const void *from, int bytes);
void cy_copy_async_if(cy_chunk *to, const void *from, b1 inside);
void cy_copy_word(u32 *to, const void *from, int bytes);
void cy_copy_word_if(u32 *to, const void *from, b1 inside);
void cy_copy_commit(void);
void CY_COPY_WAIT(int n);
void cy_load_matrix(u32 *r, const cy_chunk *row);
void cy_load_matrix_transposed(u32 *r, const cy_chunk *row);
void cy_mma_f16(f32 *c, const u32 *a, const u32 *b);
void cy_mma_bf16(f32 *c, const u32 *a, const u32 *b);
void cy_mma_tf32(f32 *c, const u32 *a, const u32 *b);
u32 cy_tf32(u32 word);
void cy_mma_f8e4m3fnf8e4m3fn(f32 *c, const u32 *a, const u32 *b);
void cy_mma_f8e4m3fnf8e5m2(f32 *c, const u32 *a, const u32 *b);
void cy_mma_f8e5m2f8e4m3fn(f32 *c, const u32 *a, const u32 *b);
void cy_mma_f8e5m2f8e5m2(f32 *c, const u32 *a, const u32 *b);
void cy_mma_i8i8(i32 *c, const u32 *a, const u32 *b);
void cy_mma_i8u8(i32 *c, const u32 *a, const u32 *b);
void cy_mma_u8i8(i32 *c, const u32 *a, const u32 *b);
void cy_mma_u8u8(i32 *c, const u32 *a, const u32 *b);
i32 cy_add_i8(u32 word, i32 sum);
i32 cy_add_u8(u32 word, i32 sum);
u32 cy_pack_f16(f32 a, f32 b);
u32 cy_pack_bf16(f32 a, f32 b);
f32 cy_exp2_weight(f32 x);
f32 cy_greater(f32 a, f32 b);

/* ---- products of warpgroups (kernels compiled with CY_WARPGROUPS 1) ---- */

#ifndef CY_WARPGROUPS
#define CY_WARPGROUPS 0
#endif
u64 cy_matrix_at(const unsigned char *p, int row_bytes, int rows, int blocks);
void cy_publish(void);
void cy_warpgroup_commit(void);
void cy_warpgroup_wait(void);
void cy_warpgroup_wait_previous(void);
f32 shim_f16(u32 word, int half);
f32 shim_bf16(u32 word, int half);
f32 shim_cut(u32 word, int half); /* of a float what products of warpgroups leave */
f32 shim_f8e4m3fn(u32 word, int i);
f32 shim_f8e5m2(u32 word, int i);
u32 shim_i8(u32 word, int i);
u32 shim_u8(u32 word, int i);
void shim_wgmma(int columns, f32 (*value)(u32, int), int transpose_a, int transpose_b, f32 *d, u64 a, u64 b);
void shim_wgmma_bytes(int columns, u32 (*byte_a)(u32, int), u32 (*byte_b)(u32, int), int transpose_a, int transpose_b,
                      i32 *d, u64 a, u64 b);
void shim_wgmma_float8(int columns, f32 (*value_a)(u32, int), f32 (*value_b)(u32, int), int transpose_a,
                       int transpose_b, f32 *d, u64 a, u64 b);
void shim_wgmma_held(int columns, f32 (*value)(u32, int), f32 *d, const u32 *a, u64 b);
CY_INLINE void cy_warpgroup_begin(void) {}
#define cy_keep(d, n) ((void)(d), (void)(n))
#define CY_REGISTERS(how, n) (void)0
#define CY_WGMMA(name, transpose_a, transpose_b, d, a, b) name(transpose_a, transpose_b, d, a, b)
#define cy_wgmma_f16_16(...) shim_wgmma(16, shim_f16, __VA_ARGS__)
#define cy_wgmma_f16_32(...) shim_wgmma(32, shim_f16, __VA_ARGS__)
#define cy_wgmma_f16_64(...) shim_wgmma(64, shim_f16, __VA_ARGS__)
#define cy_wgmma_f16_128(...) shim_wgmma(128, shim_f16, __VA_ARGS__)
#define cy_wgmma_f16_256(...) shim_wgmma(256, shim_f16, __VA_ARGS__)
#define cy_wgmma_bf16_16(...) shim_wgmma(16, shim_bf16, __VA_ARGS__)
#define cy_wgmma_bf16_32(...) shim_wgmma(32, shim_bf16, __VA_ARGS__)
#define cy_wgmma_bf16_64(...) shim_wgmma(64, shim_bf16, __VA_ARGS__)
#define cy_wgmma_bf16_128(...) shim_wgmma(128, shim_bf16, __VA_ARGS__)
#define cy_wgmma_bf16_256(...) shim_wgmma(256, shim_bf16, __VA_ARGS__)
#define cy_wgmma_tf32_16(...) shim_wgmma(16, shim_cut, __VA_ARGS__)
#define cy_wgmma_tf32_32(...) shim_wgmma(32, shim_cut, __VA_ARGS__)
#define cy_wgmma_tf32_64(...) shim_wgmma(64, shim_cut, __VA_ARGS__)
#define cy_wgmma_tf32_128(...) shim_wgmma(128, shim_cut, __VA_ARGS__)
#define cy_wgmma_tf32_256(...) shim_wgmma(256, shim_cut, __VA_ARGS__)
#define cy_wgmma_held_f16_64(...) shim_wgmma_held(64, shim_f16, __VA_ARGS__)
#define cy_wgmma_held_f16_128(...) shim_wgmma_held(128, shim_f16, __VA_ARGS__)
#define cy_wgmma_held_bf16_64(...) shim_wgmma_held(64, shim_bf16, __VA_ARGS__)
#define cy_wgmma_held_bf16_128(...) shim_wgmma_held(128, shim_bf16, __VA_ARGS__)
#define SHIM_FLOAT8(a, b, n)                                                                                           \
  CY_INLINE void cy_wgmma_##a##b##_##n(int transpose_a, int transpose_b, f32 *d, u64 at_a, u64 at_b) {                 \
    shim_wgmma_float8(n, shim_##a, shim_##b, transpose_a, transpose_b, d, at_a, at_b);                                 \
  }
#define SHIM_FLOAT8_ALL(a, b)                                                                                          \
  SHIM_FLOAT8(a, b, 16) SHIM_FLOAT8(a, b, 32) SHIM_FLOAT8(a, b, 64) SHIM_FLOAT8(a, b, 128) SHIM_FLOAT8(a, b, 256)
SHIM_FLOAT8_ALL(f8e4m3fn, f8e4m3fn)
SHIM_FLOAT8_ALL(f8e4m3fn, f8e5m2)
SHIM_FLOAT8_ALL(f8e5m2, f8e4m3fn)
SHIM_FLOAT8_ALL(f8e5m2, f8e5m2)
#define cy_wgmma_i8i8_16(...) shim_wgmma_bytes(16, shim_i8, shim_i8, __VA_ARGS__)
#define cy_wgmma_i8i8_32(...) shim_wgmma_bytes(32, shim_i8, shim_i8, __VA_ARGS__)
#define cy_wgmma_i8i8_64(...) shim_wgmma_bytes(64, shim_i8, shim_i8, __VA_ARGS__)
#define cy_wgmma_i8i8_128(...) shim_wgmma_bytes(128, shim_i8, shim_i8, __VA_ARGS__)
#define cy_wgmma_i8i8_256(...) shim_wgmma_bytes(256, shim_i8, shim_i8, __VA_ARGS__)
#define cy_wgmma_i8u8_16(...) shim_wgmma_bytes(16, shim_i8, shim_u8, __VA_ARGS__)
#define cy_wgmma_i8u8_32(...) shim_wgmma_bytes(32, shim_i8, shim_u8, __VA_ARGS__)
#define cy_wgmma_i8u8_64(...) shim_wgmma_bytes(64, shim_i8, shim_u8, __VA_ARGS__)
#define cy_wgmma_i8u8_128(...) shim_wgmma_bytes(128, shim_i8, shim_u8, __VA_ARGS__)
#define cy_wgmma_i8u8_256(...) shim_wgmma_bytes(256, shim_i8, shim_u8, __VA_ARGS__)
#define cy_wgmma_u8i8_16(...) shim_wgmma_bytes(16, shim_u8, shim_i8, __VA_ARGS__)
#define cy_wgmma_u8i8_32(...) shim_wgmma_bytes(32, shim_u8, shim_i8, __VA_ARGS__)
#define cy_wgmma_u8i8_64(...) shim_wgmma_bytes(64, shim_u8, shim_i8, __VA_ARGS__)
#define cy_wgmma_u8i8_128(...) shim_wgmma_bytes(128, shim_u8, shim_i8, __VA_ARGS__)
#define cy_wgmma_u8i8_256(...) shim_wgmma_bytes(256, shim_u8, shim_i8, __VA_ARGS__)
#define cy_wgmma_u8u8_16(...) shim_wgmma_bytes(16, shim_u8, shim_u8, __VA_ARGS__)
#define cy_wgmma_u8u8_32(...) shim_wgmma_bytes(32, shim_u8, shim_u8, __VA_ARGS__)
#define cy_wgmma_u8u8_64(...) shim_wgmma_bytes(64, shim_u8, shim_u8, __VA_ARGS__)
#define cy_wgmma_u8u8_128(...) shim_wgmma_bytes(128, shim_u8, shim_u8, __VA_ARGS__)
#define cy_wgmma_u8u8_256(...) shim_wgmma_bytes(256, shim_u8, shim_u8, __VA_ARGS__)

/* ---- shim_tensor.c ---- */

typedef shim_map cy_tensor_map;
#define CY_MAP const cy_tensor_map *
#define CY_EXPECT_MAP(map) (void)0
void cy_barrier_init(u64 *barrier, int arrivals);
void cy_barrier_arrive(u64 *barrier);
void cy_barrier_arrive_at(u64 *barrier, int rank);
void cy_barrier_expect(u64 *barrier, int bytes);
void cy_barrier_wait(u64 *barrier, int phase);
void shim_barrier_wait(u64 *barrier, int parity); /* what that is on a device */
void cy_tensor_load(void *to, const cy_tensor_map *map, int c, int x, int y, int z, int i, u64 *barrier);
void shim_tensor_load(u32 blocks, void *to, const cy_tensor_map *map, const int at[5],
                      u64 *barrier); /* bit r: block r */
CY_INLINE void cy_barrier_publish(void) {}
#define CY_TENSOR_LOAD_5 cy_tensor_load
#define CY_TENSOR_LOAD(shared, batched, to, map, x, y, z, barrier)                                                     \
  shim_tensor_load((shared) ? 3 : 1u << shim_now->rank, to, map, (int[5]){x, y, (batched) ? z : 0}, barrier)

/* ---- among the files of the shim ---- */

void shim_to_main(int state);
void shim_forget_copies(void);
void shim_forget_barriers(void);
void shim_check_copies(void); /* of a block that ends nothing is under way */
void shim_check_barriers(void);
int shim_barrier_done(const shim_fiber *f); /* has the phase that it waits for ended? */
void shim_landed(int rank, u64 at);
b1 shim_unpublished(int rank, u64 at);
#pragma GCC visibility pop

#endif
