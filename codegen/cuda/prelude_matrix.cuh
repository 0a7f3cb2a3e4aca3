/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* prelude_matrix.cuh - stands behind prelude.cuh in front of kernels that use matrix instructions and asynchronous
 * copies.
 *
 * On the device: ldmatrix, mma.sync and cp.async as inline PTX; sm_75 has neither asynchronous copies nor products of
 * 16 columns, there a copy is done at once and a product is two. The types are described by the bits that they multiply, in words of 32
 * bits: f16 and bf16 by two, tf32 by one, floats of 8 bits by four, accumulated in f32; 8-bit integers by four, accumulated in i32.
 * sm_90a has products of 64 rows whose factors stay in shared memory. Anywhere else the includer has defined the same names
 * (tests/cuda/shim/shim.h). A tile in shared memory is rows of 16-byte chunks; cy_place() permutes the chunks of a row so that
 * the eight addresses of a matrix lie in different banks.
 */
typedef struct cy_chunk {
  u32 word[4];
} __attribute__((aligned(16))) cy_chunk;

#ifdef __CUDACC__
#define CY_DYNAMIC(name)                                                                                               \
  extern __shared__ __align__(1024) unsigned char cy_dynamic[];                                                        \
  unsigned char *const name = cy_dynamic
CY_INLINE u32 cy_shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

/* `bytes` of 16 from global to shared memory, the rest is zero; `from` is not read when bytes is 0. */
CY_INLINE void cy_copy_async(cy_chunk *to, const void *from, int bytes) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(cy_shared_address(to)), "l"(from), "r"(bytes)
               : "memory");
#else
  cy_chunk v = {{0, 0, 0, 0}};
  if (bytes == 16)
    cy_move16(&v, from);
  else
    CY_UNROLL
    for (int i = 0; i < 16; i++)
      if (i < bytes)
        v.word[i / 4] |= (u32)((const u8 *)from)[i] << i % 4 * 8;
  *to = v;
#endif
}
/* All 16, or zeros: then `from` may point anywhere. */
CY_INLINE void cy_copy_async_if(cy_chunk *to, const void *from, b1 inside) {
#if __CUDA_ARCH__ >= 800
  asm volatile("{.reg .pred p; setp.eq.u32 p, %2, 0; cp.async.cg.shared.global [%0], [%1], 16, p;}" ::"r"(
                   cy_shared_address(to)),
               "l"(from), "r"((u32)inside)
               : "memory");
#else
  cy_copy_async(to, from, inside ? 16 : 0);
#endif
}
/* `bytes` of 4; both pointers are multiples of 4. */
CY_INLINE void cy_copy_word(u32 *to, const void *from, int bytes) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(cy_shared_address(to)), "l"(from), "r"(bytes)
               : "memory");
#else
  u32 v = 0;
  if (bytes == 4)
    v = *(const u32 *)from;
  else
    CY_UNROLL
    for (int i = 0; i < 3; i++)
      if (i < bytes)
        v |= (u32)((const u8 *)from)[i] << i * 8;
  *to = v;
#endif
}
/* All 4, or zeros: then `from` may point anywhere. */
CY_INLINE void cy_copy_word_if(u32 *to, const void *from, b1 inside) {
#if __CUDA_ARCH__ >= 800
  asm volatile("{.reg .pred p; setp.eq.u32 p, %2, 0; cp.async.ca.shared.global [%0], [%1], 4, p;}" ::"r"(
                   cy_shared_address(to)),
               "l"(from), "r"((u32)inside)
               : "memory");
#else
  cy_copy_word(to, from, inside ? 4 : 0);
#endif
}
CY_INLINE void cy_chunk_store(cy_chunk *to, cy_chunk v) { *to = v; }
CY_INLINE void cy_word_store(u32 *to, u32 v) { *to = v; }
/* All at once: compilers may take the words of a chunk one by one, which threads of neighbouring rows have in one bank. */
CY_INLINE cy_chunk cy_chunk_load(const cy_chunk *from) {
  cy_chunk v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "r"(cy_shared_address(from))
               : "memory");
  return v;
}
/* The bits of an element that the kernel does not change; 0 where it is not inside: then `from` may point anywhere. */
#define CY_FETCH(bits)                                                                                                 \
  CY_INLINE u32 cy_fetch##bits(u64 from, b1 inside) {                                                                  \
    u32 r;                                                                                                             \
    asm("{.reg .pred p; setp.ne.u32 p, %2, 0; mov.u32 %0, 0; @p ld.global.nc.u" #bits " %0, [%1];}"                    \
        : "=&r"(r)                                                                                                     \
        : "l"(from), "r"((u32)inside));                                                                                \
    return r;                                                                                                          \
  }
CY_FETCH(8)
CY_FETCH(16)
CY_FETCH(32)
CY_INLINE void cy_copy_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/* Waits for all but the last n groups of this thread. */
template <int n> CY_INLINE void cy_copy_wait_() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
#endif
}
#define CY_COPY_WAIT(n) cy_copy_wait_<n>()

/* Four 8 x 16 byte matrices, the row addresses from lanes 0-7, 8-15, 16-23, 24-31. */
CY_INLINE void cy_load_matrix(u32 *r, const cy_chunk *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(cy_shared_address(row))
               : "memory");
}
CY_INLINE void cy_load_matrix_transposed(u32 *r, const cy_chunk *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(cy_shared_address(row))
               : "memory");
}

/* c (16 x 8) += a (16 x 32 bytes) * b (32 bytes x 8). */
#define CY_MMA(name, shape, types)                                                                                     \
  CY_INLINE void name(f32 *c, const u32 *a, const u32 *b) {                                                            \
    asm volatile("mma.sync.aligned." shape ".row.col.f32." types ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, " \
                 "{%0, %1, %2, %3};"                                                                                   \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                  \
  }
#if __CUDA_ARCH__ >= 800
CY_MMA(cy_mma_f16, "m16n8k16", "f16.f16")
CY_MMA(cy_mma_bf16, "m16n8k16", "bf16.bf16")
CY_MMA(cy_mma_tf32_, "m16n8k8", "tf32.tf32")
CY_INLINE u32 cy_tf32(u32 v) {
  u32 r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(cy_f32_bits(v)));
  return r;
}
CY_INLINE void cy_mma_tf32(f32 *c, const u32 *a, const u32 *b) {
  const u32 x[4] = {cy_tf32(a[0]), cy_tf32(a[1]), cy_tf32(a[2]), cy_tf32(a[3])};
  const u32 y[2] = {cy_tf32(b[0]), cy_tf32(b[1])};
  cy_mma_tf32_(c, x, y);
}
#if __CUDA_ARCH__ >= 890
CY_MMA(cy_mma_f8e4m3fnf8e4m3fn, "m16n8k32", "e4m3.e4m3")
CY_MMA(cy_mma_f8e4m3fnf8e5m2, "m16n8k32", "e4m3.e5m2")
CY_MMA(cy_mma_f8e5m2f8e4m3fn, "m16n8k32", "e5m2.e4m3")
CY_MMA(cy_mma_f8e5m2f8e5m2, "m16n8k32", "e5m2.e5m2")
#endif
#else
CY_INLINE void cy_mma_f16_half(f32 *c, const u32 *a, u32 b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(b));
}
CY_INLINE void cy_mma_f16(f32 *c, const u32 *a, const u32 *b) {
  cy_mma_f16_half(c, a, b[0]);
  cy_mma_f16_half(c, a + 2, b[1]);
}
#endif

/* Two floats rounded to halves, the first in the low bits. */
#if __CUDA_ARCH__ >= 800
CY_INLINE u32 cy_pack_f16(f32 a, f32 b) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
  return r;
}
CY_INLINE u32 cy_pack_bf16(f32 a, f32 b) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
  return r;
}
#else
CY_INLINE u32 cy_pack_f16(f32 a, f32 b) { return cy_enc_f16(a) | (u32)cy_enc_f16(b) << 16; }
#endif
/* 2^x for x <= 0, to about 20 bits: what is rounded to halves. */
CY_INLINE f32 cy_exp2_weight(f32 x) {
  f32 r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
/* The greater one; of NaN and a number the number. */
CY_INLINE f32 cy_greater(f32 a, f32 b) {
  f32 r;
  asm("max.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}

/* c (16 x 8) += a * b of 8-bit integers, with sums in i32, which wrap. */
#if __CUDA_ARCH__ >= 800
#define CY_MMA_BYTES(name, types)                                                                                      \
  CY_INLINE void name(i32 *c, const u32 *a, const u32 *b) {                                                            \
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32." types ".s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "  \
                 "{%0, %1, %2, %3};"                                                                                   \
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                  \
  }
#else
#define CY_MMA_BYTES(name, types)                                                                                      \
  CY_INLINE void name##_part(i32 *c, u32 a, u32 b) {                                                                   \
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32." types ".s32 {%0, %1}, {%2}, {%3}, {%0, %1};"                  \
                 : "+r"(c[0]), "+r"(c[1])                                                                              \
                 : "r"(a), "r"(b));                                                                                    \
  }                                                                                                                    \
  CY_INLINE void name(i32 *c, const u32 *a, const u32 *b) {                                                            \
    name##_part(c, a[0], b[0]);                                                                                        \
    name##_part(c, a[2], b[1]);                                                                                        \
    name##_part(c + 2, a[1], b[0]);                                                                                    \
    name##_part(c + 2, a[3], b[1]);                                                                                    \
  }
#endif
CY_MMA_BYTES(cy_mma_i8i8, "s8.s8")
CY_MMA_BYTES(cy_mma_i8u8, "s8.u8")
CY_MMA_BYTES(cy_mma_u8i8, "u8.s8")
CY_MMA_BYTES(cy_mma_u8u8, "u8.u8")
/* sum + the four elements of a word */
CY_INLINE i32 cy_add_i8(u32 word, i32 sum) { return __dp4a((int)word, 0x01010101, sum); }
CY_INLINE i32 cy_add_u8(u32 word, i32 sum) { return (i32)__dp4a(word, 0x01010101u, (u32)sum); }
#endif

/* ---- maxima that all blocks store to ---- */

/* The element that a thread has last met, and the maximum that it has for it. */
typedef struct cy_held_max {
  u32 *at; /* NULL: none */
  u32 v;
} cy_held_max;
CY_INLINE void cy_held_max_put(cy_held_max *held, u32 *at, u32 v) {
  if (held->at && held->at != at)
    cy_put_max(held->at, held->v);
  held->v = held->at != at || held->v < v ? v : held->v;
  held->at = at;
}
/* At the end of a kernel, by whole warps: one access where all of their threads have the same element. */
CY_INLINE void cy_held_max_end(const cy_held_max *held) {
  const u64 several = 1;
  u64 at = (u64)held->at;
  u32 v = held->v;
  for (int mask = 16; mask > 0; mask /= 2) {
    const u64 other = cy_shfl64(at, mask);
    const u32 w = cy_shfl32(v, mask);
    at = at == other || !other ? at : at ? several : other;
    v = v > w ? v : w;
  }
  if (at == several && held->at)
    cy_put_max(held->at, held->v);
  if (at > several && CY_TID % 32 == 0)
    cy_put_max((u32 *)at, v);
}

/* To the nearest integer, NaN to 0. */
#ifdef __CUDACC__
CY_INLINE i32 cy_nearest(f32 v) { return __float2int_rn(v); }
#else
CY_INLINE i32 cy_nearest(f32 v) { return v != v ? 0 : (i32)rintf(v); }
#endif

/* The place of chunk c of a row in a tile of `rows` rows of `chunks` (4 or a multiple of 8) chunks: blocks of 8 chunks
 * lie one behind the other. */
CY_INLINE int cy_place(int row, int c, int chunks, int rows) {
  return chunks == 4 ? row * 4 + (c ^ (row >> 1 & 3)) : (c / 8 * rows + row) * 8 + (c % 8 ^ (row & 7));
}
/* Elements of a chunk by their bits. */
CY_INLINE void cy_chunk_put8(cy_chunk *to, int i, u32 bits) { to->word[i / 4] |= (bits & 0xff) << i % 4 * 8; }
CY_INLINE void cy_chunk_put16(cy_chunk *to, int i, u32 bits) { to->word[i / 2] |= bits << i % 2 * 16; }
CY_INLINE void cy_chunk_put32(cy_chunk *to, int i, u32 bits) { to->word[i] = bits; }

/* ---- sm_90a: products of a warpgroup (128 threads), whose factors are read from shared memory while it goes on ---- */

#if defined(__CUDACC__) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CY_WARPGROUPS 1
/* A matrix in shared memory for wgmma: where it begins, the swizzle of its rows (64 or 128 bytes), the distances in bytes
 * between groups of 8 rows and between blocks of 128 bytes (transposed matrices). */
CY_INLINE u64 cy_matrix_at(const unsigned char *p, int row_bytes, int rows, int blocks) {
  return (u64)((cy_shared_address(p) & 0x3ffffu) >> 4) | (u64)(blocks >> 4) << 16 | (u64)(rows >> 4) << 32 |
         (u64)(row_bytes == 128 ? 1 : 2) << 62;
}
CY_INLINE void cy_warpgroup_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
CY_INLINE void cy_warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
CY_INLINE void cy_warpgroup_wait() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
/* For all but what was committed last. */
CY_INLINE void cy_warpgroup_wait_previous() { asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory"); }
/* Registers that products read or write: nothing that is computed from them or for them moves past here. */
#define CY_KEEP(type, how)                                                                                             \
  CY_INLINE void cy_keep(type *d, int n) {                                                                             \
    CY_UNROLL                                                                                                          \
    for (int i = 0; i < n; i++)                                                                                        \
      asm volatile("" : how(d[i])::"memory");                                                                          \
  }
CY_KEEP(f32, "+f")
CY_KEEP(i32, "+r")
CY_KEEP(u32, "+r")
/* What this thread wrote to shared memory becomes visible to wgmma. */
CY_INLINE void cy_publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
/* The warpgroup gives registers up (dec) or takes what others gave up (inc): n for each of its threads from here on. */
#define CY_REGISTERS(how, n) asm volatile("setmaxnreg." #how ".sync.aligned.u32 " #n ";")
/* The first so many registers of an instruction as text, and what they hold: c is "+f" or "+r". */
#define CY_NAMES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define CY_NAMES_16 CY_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define CY_NAMES_32 CY_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define CY_NAMES_64                                                                                                    \
  CY_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"                       \
              ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define CY_NAMES_128                                                                                                   \
  CY_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"                       \
              ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"                       \
              ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"           \
              ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define CY_REG4(c, d, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define CY_REG16(c, d, i) CY_REG4(c, d, i), CY_REG4(c, d, i + 4), CY_REG4(c, d, i + 8), CY_REG4(c, d, i + 12)
#define CY_REGS_8(c, d) CY_REG4(c, d, 0), CY_REG4(c, d, 4)
#define CY_REGS_16(c, d) CY_REG16(c, d, 0)
#define CY_REGS_32(c, d) CY_REGS_16(c, d), CY_REG16(c, d, 16)
#define CY_REGS_64(c, d) CY_REGS_32(c, d), CY_REG16(c, d, 32), CY_REG16(c, d, 48)
#define CY_REGS_128(c, d)                                                                                              \
  CY_REGS_64(c, d), CY_REG16(c, d, 64), CY_REG16(c, d, 80), CY_REG16(c, d, 96), CY_REG16(c, d, 112)
#define CY_WGMMA_TEXT(shape, results)                                                                                  \
  "{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned." shape " {" CY_NAMES_##results "}, "
/* d (64 x n) += a * b, of halves: `results` of them in each thread, r0 .. r3 are the numbers behind those. */
#define CY_WGMMA_HALVES(type, n, results, r0, r1, r2, r3)                                                              \
  template <int transpose_a, int transpose_b> CY_INLINE void cy_wgmma_##type##_##n(f32 *d, u64 a, u64 b) {             \
    asm volatile(CY_WGMMA_TEXT("m64n" #n "k16.f32." #type "." #type, results) "%" #r0 ", %" #r1 ", p, 1, 1, %" #r2     \
                                                                              ", %" #r3 "; }"                          \
                 : CY_REGS_##results("+f", d)                                                                          \
                 : "l"(a), "l"(b), "n"(transpose_a), "n"(transpose_b));                                                \
  }
/* The same with a in registers, as fragments of mma.sync, and b transposed. */
#define CY_WGMMA_HELD(type, n, results, r0, r1, r2, r3, r4)                                                            \
  CY_INLINE void cy_wgmma_held_##type##_##n(f32 *d, const u32 *a, u64 b) {                                             \
    asm volatile(CY_WGMMA_TEXT("m64n" #n "k16.f32." #type "." #type, results) "{%" #r0 ", %" #r1 ", %" #r2 ", %" #r3   \
                 "}, %" #r4 ", p, 1, 1, 1; }"                                                                          \
                 : CY_REGS_##results("+f", d)                                                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                                \
  }
/* Of floats, of which the lower 13 bits are left out, and whose rows are always of k. */
#define CY_WGMMA_TF32(n, results, r0, r1)                                                                              \
  template <int transpose_a, int transpose_b> CY_INLINE void cy_wgmma_tf32_##n(f32 *d, u64 a, u64 b) {                 \
    asm volatile(CY_WGMMA_TEXT("m64n" #n "k8.f32.tf32.tf32", results) "%" #r0 ", %" #r1 ", p, 1, 1; }"                 \
                 : CY_REGS_##results("+f", d)                                                                          \
                 : "l"(a), "l"(b));                                                                                    \
  }
/* Of 8-bit integers, whose rows are always of k. */
#define CY_WGMMA_BYTES(name, types, n, results, r0, r1)                                                                \
  template <int transpose_a, int transpose_b> CY_INLINE void cy_wgmma_##name##_##n(i32 *d, u64 a, u64 b) {             \
    asm volatile(CY_WGMMA_TEXT("m64n" #n "k32.s32." types, results) "%" #r0 ", %" #r1 ", p; }"                         \
                 : CY_REGS_##results("+r", d)                                                                          \
                 : "l"(a), "l"(b));                                                                                    \
  }
/* Of floats of 8 bits, likewise, in all widths; behind the predicate stand the signs of both factors. */
#define CY_WGMMA_FLOAT8(name, types, n, results, r0, r1)                                                               \
  template <int transpose_a, int transpose_b> CY_INLINE void cy_wgmma_##name##_##n(f32 *d, u64 a, u64 b) {             \
    asm volatile(CY_WGMMA_TEXT("m64n" #n "k32.f32." types, results) "%" #r0 ", %" #r1 ", p, 1, 1; }"                   \
                 : CY_REGS_##results("+f", d)                                                                          \
                 : "l"(a), "l"(b));                                                                                    \
  }
#define CY_WGMMA_FLOAT8_ALL(name, types)                                                                               \
  CY_WGMMA_FLOAT8(name, types, 16, 8, 8, 9)                                                                            \
  CY_WGMMA_FLOAT8(name, types, 32, 16, 16, 17)                                                                         \
  CY_WGMMA_FLOAT8(name, types, 64, 32, 32, 33)                                                                         \
  CY_WGMMA_FLOAT8(name, types, 128, 64, 64, 65)                                                                        \
  CY_WGMMA_FLOAT8(name, types, 256, 128, 128, 129)
CY_WGMMA_FLOAT8_ALL(f8e4m3fnf8e4m3fn, "e4m3.e4m3")
CY_WGMMA_FLOAT8_ALL(f8e4m3fnf8e5m2, "e4m3.e5m2")
CY_WGMMA_FLOAT8_ALL(f8e5m2f8e4m3fn, "e5m2.e4m3")
CY_WGMMA_FLOAT8_ALL(f8e5m2f8e5m2, "e5m2.e5m2")
CY_WGMMA_HALVES(f16, 16, 8, 8, 9, 10, 11)
CY_WGMMA_HALVES(f16, 32, 16, 16, 17, 18, 19)
CY_WGMMA_HALVES(f16, 64, 32, 32, 33, 34, 35)
CY_WGMMA_HALVES(f16, 128, 64, 64, 65, 66, 67)
CY_WGMMA_HALVES(f16, 256, 128, 128, 129, 130, 131)
CY_WGMMA_HALVES(bf16, 16, 8, 8, 9, 10, 11)
CY_WGMMA_HALVES(bf16, 32, 16, 16, 17, 18, 19)
CY_WGMMA_HALVES(bf16, 64, 32, 32, 33, 34, 35)
CY_WGMMA_HALVES(bf16, 128, 64, 64, 65, 66, 67)
CY_WGMMA_HALVES(bf16, 256, 128, 128, 129, 130, 131)
CY_WGMMA_HELD(f16, 64, 32, 32, 33, 34, 35, 36)
CY_WGMMA_HELD(f16, 128, 64, 64, 65, 66, 67, 68)
CY_WGMMA_HELD(bf16, 64, 32, 32, 33, 34, 35, 36)
CY_WGMMA_HELD(bf16, 128, 64, 64, 65, 66, 67, 68)
CY_WGMMA_TF32(16, 8, 8, 9)
CY_WGMMA_TF32(32, 16, 16, 17)
CY_WGMMA_TF32(64, 32, 32, 33)
CY_WGMMA_TF32(128, 64, 64, 65)
CY_WGMMA_TF32(256, 128, 128, 129)
CY_WGMMA_BYTES(i8i8, "s8.s8", 16, 8, 8, 9)
CY_WGMMA_BYTES(i8i8, "s8.s8", 32, 16, 16, 17)
CY_WGMMA_BYTES(i8i8, "s8.s8", 64, 32, 32, 33)
CY_WGMMA_BYTES(i8i8, "s8.s8", 128, 64, 64, 65)
CY_WGMMA_BYTES(i8i8, "s8.s8", 256, 128, 128, 129)
CY_WGMMA_BYTES(i8u8, "s8.u8", 16, 8, 8, 9)
CY_WGMMA_BYTES(i8u8, "s8.u8", 32, 16, 16, 17)
CY_WGMMA_BYTES(i8u8, "s8.u8", 64, 32, 32, 33)
CY_WGMMA_BYTES(i8u8, "s8.u8", 128, 64, 64, 65)
CY_WGMMA_BYTES(i8u8, "s8.u8", 256, 128, 128, 129)
CY_WGMMA_BYTES(u8i8, "u8.s8", 16, 8, 8, 9)
CY_WGMMA_BYTES(u8i8, "u8.s8", 32, 16, 16, 17)
CY_WGMMA_BYTES(u8i8, "u8.s8", 64, 32, 32, 33)
CY_WGMMA_BYTES(u8i8, "u8.s8", 128, 64, 64, 65)
CY_WGMMA_BYTES(u8i8, "u8.s8", 256, 128, 128, 129)
CY_WGMMA_BYTES(u8u8, "u8.u8", 16, 8, 8, 9)
CY_WGMMA_BYTES(u8u8, "u8.u8", 32, 16, 16, 17)
CY_WGMMA_BYTES(u8u8, "u8.u8", 64, 32, 32, 33)
CY_WGMMA_BYTES(u8u8, "u8.u8", 128, 64, 64, 65)
CY_WGMMA_BYTES(u8u8, "u8.u8", 256, 128, 128, 129)
#define CY_WGMMA(name, transpose_a, transpose_b, d, a, b) name<transpose_a, transpose_b>(d, a, b)

/* ---- sm_90a: tiles that come by tensor maps, and barriers in shared memory that tell when ---- */

typedef struct cy_tensor_map {
  u64 opaque[16];
} __attribute__((aligned(64))) cy_tensor_map;
#define CY_MAP const __grid_constant__ cy_tensor_map
/* Copies will want it soon. */
#define CY_EXPECT_MAP(map) asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory")
/* A barrier's phase ends when `arrivals` threads have arrived and all bytes that they expect are there. */
CY_INLINE void cy_barrier_init(u64 *barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(cy_shared_address(barrier)), "r"(arrivals) : "memory");
}
/* Makes initialised barriers visible to copies; the other threads see them behind a barrier of the block. */
CY_INLINE void cy_barrier_publish() {
  asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;" ::: "memory");
}
CY_INLINE void cy_barrier_arrive(u64 *barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(cy_shared_address(barrier)) : "memory");
}
/* At the barrier that stands at the same place in the shared memory of block number `rank` of the cluster. */
CY_INLINE void cy_barrier_arrive_at(u64 *barrier, int rank) {
  asm volatile("{.reg .b32 at; mapa.shared::cluster.u32 at, %0, %1; mbarrier.arrive.shared::cluster.b64 "
               "_, [at]; }" ::"r"(cy_shared_address(barrier)),
               "r"(rank)
               : "memory");
}
/* All threads of the cluster meet. Of what they did to memory the others see barriers, which were published: to wait for
 * the rest, as results on their way to memory, is not worth the time. */
#define CY_SYNC_CLUSTER() asm volatile("barrier.cluster.arrive.relaxed; barrier.cluster.wait.acquire;" ::: "memory")
/* The same before a block ends whose shared memory the other one uses: arrivals at its barriers have happened, too, and do
 * not reach a block that is gone. */
#define CY_LEAVE_CLUSTER() asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory")
/* Arrives, and has the phase wait for so many bytes of copies. */
CY_INLINE void cy_barrier_expect(u64 *barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(cy_shared_address(barrier)), "r"(bytes)
               : "memory");
}
/* Until phase number `phase` (from 0) has ended. */
CY_INLINE void cy_barrier_wait(u64 *barrier, int phase) {
  u32 done = 0;
  while (!done)
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(cy_shared_address(barrier)), "r"(phase & 1)
                 : "memory");
}
/* A box of the tensor from (x, y[, z]) on; what is outside of it is zero. */
CY_INLINE void cy_tensor_load_2(void *to, const cy_tensor_map *map, int x, int y, u64 *barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
               "[%4];" ::"r"(cy_shared_address(to)),
               "l"(map), "r"(x), "r"(y), "r"(cy_shared_address(barrier))
               : "memory");
}
CY_INLINE void cy_tensor_load_3(void *to, const cy_tensor_map *map, int x, int y, int z, u64 *barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
               "%4}], [%5];" ::"r"(cy_shared_address(to)),
               "l"(map), "r"(x), "r"(y), "r"(z), "r"(cy_shared_address(barrier))
               : "memory");
}
CY_INLINE void cy_tensor_load_5(void *to, const cy_tensor_map *map, int c, int x, int y, int z, int i, u64 *barrier) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
               "%4, %5, %6}], [%7];" ::"r"(cy_shared_address(to)),
               "l"(map), "r"(c), "r"(x), "r"(y), "r"(z), "r"(i), "r"(cy_shared_address(barrier))
               : "memory");
}
/* The same for both blocks of a pair: to the same place of each, where the same barrier counts it. */
CY_INLINE void cy_tensor_load_2_both(void *to, const cy_tensor_map *map, int x, int y, u64 *barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
               "[%1, {%2, %3}], [%4], %5;" ::"r"(cy_shared_address(to)),
               "l"(map), "r"(x), "r"(y), "r"(cy_shared_address(barrier)), "h"((u16)3)
               : "memory");
}
CY_INLINE void cy_tensor_load_3_both(void *to, const cy_tensor_map *map, int x, int y, int z, u64 *barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
               "[%1, {%2, %3, %4}], [%5], %6;" ::"r"(cy_shared_address(to)),
               "l"(map), "r"(x), "r"(y), "r"(z), "r"(cy_shared_address(barrier)), "h"((u16)3)
               : "memory");
}
#define CY_TENSOR_LOAD_5(to, map, c, x, y, z, i, barrier) cy_tensor_load_5(to, &map, c, x, y, z, i, barrier)
#define CY_TENSOR_LOAD(both, batched, to, map, x, y, z, barrier)                                                       \
  do {                                                                                                                 \
    if (batched)                                                                                                       \
      (both) ? cy_tensor_load_3_both(to, &map, x, y, z, barrier) : cy_tensor_load_3(to, &map, x, y, z, barrier);       \
    else                                                                                                               \
      (both) ? cy_tensor_load_2_both(to, &map, x, y, barrier) : cy_tensor_load_2(to, &map, x, y, barrier);             \
  } while (0)
#endif
#ifndef CY_WARPGROUPS
#define CY_WARPGROUPS 0
#endif
