/* prelude_matrix.cuh - stands behind prelude.cuh in front of kernels that use matrix instructions and asynchronous
 * copies.
 *
 * On the device: ldmatrix, mma.sync and cp.async as inline PTX; sm_75 has neither asynchronous copies nor products of
 * 16 columns, there a copy is done at once and a product is two. The types are told by the bits that they multiply: f16
 * and bf16 in pairs, tf32 in single words; the accumulators are f32. Anywhere else the includer has defined the same
 * names (tests/cuda/shim_matrix.h). A tile in shared memory is rows of 16-byte chunks; cy_place() permutes the chunks
 * of a row so that the eight addresses of a matrix lie in different banks.
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
    v = *(const cy_chunk *)from;
  else
    CY_UNROLL
    for (int i = 0; i < 8; i++)
      if (i * 2 < bytes)
        v.word[i / 2] |= (u32)((const u16 *)from)[i] << i % 2 * 16;
  *to = v;
#endif
}
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
CY_INLINE void cy_load_matrix_turned(u32 *r, const cy_chunk *row) {
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
#endif

/* The place of chunk c of a row in a tile whose rows have `chunks` (4 or a multiple of 8) of them. */
CY_INLINE int cy_place(int row, int c, int chunks) {
  return row * chunks + (chunks == 4 ? c ^ (row >> 1 & 3) : c ^ (row & 7));
}
/* Elements of a chunk by their bits. */
CY_INLINE void cy_chunk_put16(cy_chunk *to, int i, u32 bits) { to->word[i / 2] |= bits << i % 2 * 16; }
CY_INLINE void cy_chunk_put32(cy_chunk *to, int i, u32 bits) { to->word[i] = bits; }
