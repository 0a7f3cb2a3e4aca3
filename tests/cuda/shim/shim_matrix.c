/* SPDX-License-Identifier: Apache-2.0 */
/* shim_matrix.c - matrix instructions and asynchronous copies behind the shim (shim.h).
 *
 * A copy begins with its target poisoned (NaN in every format) and lands when its thread waits for its group: reading
 * too early, or overwriting a tile that is still read, gives NaN. Fragments are laid out as the PTX manual tells: a
 * matrix of 8 rows of 16 bytes has word l % 4 of row l / 4 in lane l. The lanes of a warp meet in every instruction.
 * Products of warpgroups leave NaN in their results until they are waited for, and read shared memory only then; what
 * its writer has not published by a fence is NaN to them, other numbers where they are of integers; so is the result
 * of a product whose factor in registers has changed in the meantime. All threads of a warpgroup order the same products,
 * of matrices that are described as the PTX manual has it.
 */
#include "tests/cuda/shim/shim.h"

#include "codegen/cuda/prelude.cuh"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct shim_copy {
  void *to;
  u8 bytes[16];
  int size; /* 16 or 4 */
} shim_copy;
enum { SHIM_COPIES = 512, SHIM_GROUPS = 8 };
typedef struct shim_product { /* of a warpgroup, this thread's part; results are i32 where there is byte_a, else f32 */
  u32 *d, was[128];
  u64 a, b;
  int columns, transpose_a, transpose_b;
  const u32 *held; /* A is in registers: this thread's, as they were, and the two rows that its results need */
  u32 held_was[4], row[2][8];
  f32 (*value)(u32, int), (*value_b)(u32, int); /* value_b: factors are floats of 8 bits, `value` is of A alone */
  u32 (*byte_a)(u32, int), (*byte_b)(u32, int);
} shim_product;
enum { SHIM_PRODUCTS = 16 };
typedef struct shim_queue {
  shim_copy copy[SHIM_COPIES];
  int n, group_end[SHIM_GROUPS], ngroups;
  shim_product product[SHIM_PRODUCTS];
  int nproducts, committed, previous; /* previous: of those, what was committed before the last time */
  int ordered;                        /* products since the block began */
} shim_queue;
enum { GROUP = 128, ORDERS = 64 }; /* threads of a warpgroup; how many products one of them may be ahead */
static struct shim_orders {        /* what the first of its threads has ordered */
  int n;
  struct shim_order {
    u64 a, b;
    int columns;
  } order[ORDERS];
} shim_orders[SHIM_THREADS / GROUP];
static shim_queue *shim_queues; /* [SHIM_THREADS], made when first needed */

static u16 shim_writer[SHIM_RANKS][SHIM_MAX_SHARED / 16]; /* by block and chunk of dynamic shared memory */

static shim_queue *shim_my_queue(void) {
  if (!shim_queues)
    shim_queues = calloc(SHIM_THREADS, sizeof *shim_queues);
  return &shim_queues[SHIM_SELF];
}

/* When the module is unloaded: it alone knows of them. */
__attribute__((destructor)) static void shim_free_queues(void) { free(shim_queues); }

void shim_forget_copies(void) {
  for (int i = 0; shim_queues && i < SHIM_THREADS; i++)
    shim_queues[i].n = shim_queues[i].ngroups = shim_queues[i].nproducts = shim_queues[i].committed =
        shim_queues[i].previous = shim_queues[i].ordered = 0;
  memset(shim_writer, 0, sizeof shim_writer);
  memset(shim_orders, 0, sizeof shim_orders);
}

void shim_check_copies(void) {
  for (int i = 0; shim_queues && i < SHIM_THREADS; i++) {
    if (shim_queues[i].n)
      shim_fault("a block ends before copies of its thread", (u64)i);
    if (shim_queues[i].nproducts)
      shim_fault("a block ends before products of its thread", (u64)i);
    if (shim_queues[i].ordered != shim_orders[i / GROUP].n)
      shim_fault("a product that not all threads of the warpgroup have ordered, but", (u64)i);
  }
}

/* Who wrote a chunk and did not publish it yet: thread + 1. */
void shim_written(const void *chunk) {
  size_t at = (size_t)((const unsigned char *)chunk - shim_dynamic) / 16;
  if (at < sizeof shim_writer[0] / sizeof shim_writer[0][0])
    shim_writer[shim_now->rank][at] = (u16)(SHIM_SELF + 1);
}
void shim_landed(int rank, u64 at) { shim_writer[rank][at / 16] = 0; }
b1 shim_unpublished(int rank, u64 at) { return shim_writer[rank][at / 16] != 0; }

static void shim_copy_begin(void *to, const void *from, int bytes, int size) {
  shim_queue *q = shim_my_queue();
  if (q->n == SHIM_COPIES || ((uintptr_t)to | (uintptr_t)from) % (uintptr_t)size || bytes < 0 || bytes > size)
    abort();
  shim_copy *c = &q->copy[q->n++];
  c->to = to;
  c->size = size;
  memset(c->bytes, 0, 16);
  if (bytes)
    memcpy(c->bytes, from, (size_t)bytes);
  memset(to, 0xff, (size_t)size);
}
void cy_copy_async(cy_chunk *to, const void *from, int bytes) { shim_copy_begin(to, from, bytes, 16); }
void cy_copy_word(u32 *to, const void *from, int bytes) { shim_copy_begin(to, from, bytes, 4); }
void cy_copy_word_if(u32 *to, const void *from, b1 inside) { shim_copy_begin(to, from, inside ? 4 : 0, 4); }
void cy_copy_async_if(cy_chunk *to, const void *from, b1 inside) { cy_copy_async(to, from, inside ? 16 : 0); }
void cy_copy_commit(void) {
  shim_queue *q = shim_my_queue();
  if (q->ngroups == SHIM_GROUPS)
    abort();
  q->group_end[q->ngroups++] = q->n;
}
void CY_COPY_WAIT(int n) {
  shim_queue *q = shim_my_queue();
  int landed = q->ngroups - n, end = landed > 0 ? q->group_end[landed - 1] : 0;
  if (landed <= 0)
    return;
  for (int i = 0; i < end; i++) {
    memcpy(q->copy[i].to, q->copy[i].bytes, (size_t)q->copy[i].size);
    shim_written(q->copy[i].to);
  }
  memmove(q->copy, q->copy + end, (size_t)(q->n - end) * sizeof *q->copy);
  q->n -= end;
  q->ngroups -= landed;
  for (int i = 0; i < q->ngroups; i++)
    q->group_end[i] = q->group_end[i + landed] - end;
}

/* ---- fragments ---- */

static const u16 *shim_rows[SHIM_THREADS];
static u32 shim_loaded[SHIM_THREADS][4];

/* All lanes read at once: the first that goes on does it for them. */
static void shim_load_warp(int warp, int transposed) {
  for (int lane = 0; lane < 32; lane++)
    for (int j = 0; j < 4; j++) {
      const u16 *const *rows = &shim_rows[warp + j * 8];
      u32 *to = &shim_loaded[warp + lane][j];
      if (transposed)
        *to = rows[lane % 4 * 2][lane / 4] | (u32)rows[lane % 4 * 2 + 1][lane / 4] << 16;
      else
        memcpy(to, rows[lane / 4] + lane % 4 * 2, 4);
    }
}
static void shim_load_matrix(u32 *r, const void *row, int transposed) {
  if ((uintptr_t)row % 16)
    abort();
  shim_rows[SHIM_SELF] = row;
  CY_SYNC_WARP();
  if (shim_goes_first())
    shim_load_warp(SHIM_SELF & ~31, transposed);
  memcpy(r, shim_loaded[SHIM_SELF], sizeof shim_loaded[0]);
}
void cy_load_matrix(u32 *r, const cy_chunk *row) { shim_load_matrix(r, row, 0); }
void cy_load_matrix_transposed(u32 *r, const cy_chunk *row) { shim_load_matrix(r, row, 1); }

f32 shim_f16(u32 word, int half) { return cy_dec_f16((u16)(word >> half * 16)); }
f32 shim_bf16(u32 word, int half) { return cy_f32_bits(word >> half * 16 << 16); }
f32 shim_f8e4m3fn(u32 word, int i) { return cy_dec_f8e4m3fn((u8)(word >> i * 8)); }
f32 shim_f8e5m2(u32 word, int i) { return cy_dec_f8e5m2((u8)(word >> i * 8)); }
/* Rounded to 10 bits of mantissa, ties away from zero. */
u32 cy_tf32(u32 word) { return (word & 0x7f800000u) == 0x7f800000u ? word : (word + 0x1000u) & ~0x1fffu; }
static f32 shim_tf32(u32 word, int half) { return cy_f32_bits(half ? 0 : cy_tf32(word)); }
/* As products of warpgroups take it. */
f32 shim_cut(u32 word, int half) { return cy_f32_bits(half ? 0 : word & ~0x1fffu); }

/* Every lane decodes its own words, `per_word` numbers each, so that each is decoded once; result i of a lane is of a row
 * of A and a column of B. Inlined, so that neither decoding nor the counts of iterations are left to run time. */
#define SHIM_INLINE static inline __attribute__((always_inline))
static f32 shim_as[SHIM_PLACES][SHIM_THREADS][16], shim_bs[SHIM_PLACES][SHIM_THREADS][8];
SHIM_INLINE void shim_mma(f32 *c, const u32 *a, const u32 *b, int per_word, f32 (*of_a)(u32, int),
                          f32 (*of_b)(u32, int)) {
  int me = SHIM_SELF, lane = me % 32, warp = me - lane, place = shim_next_place();
  f32(*shim_a)[16] = shim_as[place], (*shim_b)[8] = shim_bs[place];
  for (int i = 0; i < 4 * per_word; i++)
    shim_a[me][i] = of_a(a[i / per_word], i % per_word);
  for (int i = 0; i < 2 * per_word; i++)
    shim_b[me][i] = of_b(b[i / per_word], i % per_word);
  CY_SYNC_WARP();
  for (int i = 0; i < 4; i++) {
    const f32(*row)[16] = &shim_a[warp + lane / 4 * 4], (*column)[8] = &shim_b[warp + (lane % 4 * 2 + i % 2) * 4];
    f32 sum = c[i];
    for (int w = 0; w < 8; w++)
      for (int h = 0; h < per_word; h++)
        sum += row[w % 4][(w / 4 * 2 + i / 2) * per_word + h] * column[w % 4][w / 4 * per_word + h];
    c[i] = sum;
  }
}
void cy_mma_f16(f32 *c, const u32 *a, const u32 *b) { shim_mma(c, a, b, 2, shim_f16, shim_f16); }
void cy_mma_bf16(f32 *c, const u32 *a, const u32 *b) { shim_mma(c, a, b, 2, shim_bf16, shim_bf16); }
void cy_mma_tf32(f32 *c, const u32 *a, const u32 *b) { shim_mma(c, a, b, 1, shim_tf32, shim_tf32); }
#define SHIM_MMA_FLOAT8(a_type, b_type)                                                                                \
  void cy_mma_##a_type##b_type(f32 *c, const u32 *a, const u32 *b) {                                                   \
    shim_mma(c, a, b, 4, shim_##a_type, shim_##b_type);                                                                \
  }
SHIM_MMA_FLOAT8(f8e4m3fn, f8e4m3fn)
SHIM_MMA_FLOAT8(f8e4m3fn, f8e5m2)
SHIM_MMA_FLOAT8(f8e5m2, f8e4m3fn)
SHIM_MMA_FLOAT8(f8e5m2, f8e5m2)

u32 cy_pack_f16(f32 a, f32 b) { return cy_enc_f16(a) | (u32)cy_enc_f16(b) << 16; }
u32 cy_pack_bf16(f32 a, f32 b) { return cy_enc_bf16(a) | (u32)cy_enc_bf16(b) << 16; }
f32 cy_exp2_weight(f32 x) { return exp2f(x); }
f32 cy_greater(f32 a, f32 b) { return fmaxf(a, b); }

u32 shim_i8(u32 word, int i) { return (u32)(i8)(word >> i * 8); }
u32 shim_u8(u32 word, int i) { return (u8)(word >> i * 8); }
/* The same of bytes; sums may overflow. */
static u32 shim_bytes_as[SHIM_PLACES][SHIM_THREADS][16], shim_bytes_bs[SHIM_PLACES][SHIM_THREADS][8];
SHIM_INLINE void shim_mma_bytes(i32 *c, const u32 *a, const u32 *b, u32 (*of_a)(u32, int), u32 (*of_b)(u32, int)) {
  int me = SHIM_SELF, lane = me % 32, warp = me - lane, place = shim_next_place();
  u32(*shim_bytes_a)[16] = shim_bytes_as[place], (*shim_bytes_b)[8] = shim_bytes_bs[place];
  for (int i = 0; i < 16; i++)
    shim_bytes_a[me][i] = of_a(a[i / 4], i % 4);
  for (int i = 0; i < 8; i++)
    shim_bytes_b[me][i] = of_b(b[i / 4], i % 4);
  CY_SYNC_WARP();
  for (int i = 0; i < 4; i++) {
    const u32(*row)[16] = &shim_bytes_a[warp + lane / 4 * 4];
    const u32(*column)[8] = &shim_bytes_b[warp + (lane % 4 * 2 + i % 2) * 4];
    u32 sum = (u32)c[i];
    for (int w = 0; w < 8; w++)
      for (int h = 0; h < 4; h++)
        sum += row[w % 4][(w / 4 * 2 + i / 2) * 4 + h] * column[w % 4][w / 4 * 4 + h];
    c[i] = (i32)sum;
  }
}
void cy_mma_i8i8(i32 *c, const u32 *a, const u32 *b) { shim_mma_bytes(c, a, b, shim_i8, shim_i8); }
void cy_mma_i8u8(i32 *c, const u32 *a, const u32 *b) { shim_mma_bytes(c, a, b, shim_i8, shim_u8); }
void cy_mma_u8i8(i32 *c, const u32 *a, const u32 *b) { shim_mma_bytes(c, a, b, shim_u8, shim_i8); }
void cy_mma_u8u8(i32 *c, const u32 *a, const u32 *b) { shim_mma_bytes(c, a, b, shim_u8, shim_u8); }
i32 cy_add_i8(u32 word, i32 sum) {
  return (i32)((u32)sum + shim_i8(word, 0) + shim_i8(word, 1) + shim_i8(word, 2) + shim_i8(word, 3));
}
i32 cy_add_u8(u32 word, i32 sum) {
  return (i32)((u32)sum + shim_u8(word, 0) + shim_u8(word, 1) + shim_u8(word, 2) + shim_u8(word, 3));
}

/* ---- products of warpgroups ---- */

u64 cy_matrix_at(const unsigned char *p, int row_bytes, int rows, int blocks) {
  u64 at = (u64)(p - shim_dynamic);
  if (at % 16 || at >= 1 << 18 || rows % 16 || blocks % 16)
    abort();
  return at >> 4 | (u64)(blocks >> 4) << 16 | (u64)(rows >> 4) << 32 | (u64)(row_bytes == 128 ? 1 : 2) << 62;
}
void cy_publish(void) {
  u16 me = (u16)(SHIM_SELF + 1);
  u16 *of = shim_writer[shim_now->rank];
  for (size_t i = 0; i < sizeof shim_writer[0] / sizeof *of; i++)
    of[i] = of[i] == me ? 0 : of[i]; /* no branch: several at a time */
}
void cy_warpgroup_commit(void) {
  shim_queue *q = shim_my_queue();
  q->previous = q->committed;
  q->committed = q->nproducts;
  CY_SYNC_WARP(); /* no thread goes on before all of the warp have come */
}

/* `size` bytes of a factor that hold element (row, k): addresses as PTX has them for swizzled rows, k or rows
 * contiguous. What its writer has not published yet is something else. */
SHIM_INLINE u32 shim_factor(u64 matrix, int transposed, int row, int k, int size) {
  u64 start = (matrix & 0x3fff) << 4, blocks = (matrix >> 16 & 0x3fff) << 4, rows = (matrix >> 32 & 0x3fff) << 4, at;
  int wide = (int)(matrix >> 62) == 1;
  u32 v = 0;
  if (transposed)
    at = start + (u64)(row / 64) * blocks + (u64)(k / 8) * rows + (u64)(k % 8 * 128 + row % 64 * 2);
  else
    at = start + (u64)(row / 8) * rows + (u64)(row % 8 * (wide ? 128 : 64) + k * size);
  at ^= (at >> 7 & (wide ? 7 : 3)) << 4;
  memcpy(&v, shim_dynamic + at, (size_t)size);
  return !shim_unpublished(shim_now->rank, at) ? v : size == 1 ? v ^ 0x5a : 0xffffffff;
}
/* Bits that mean nothing are 0; the pattern of swizzled rows begins at a multiple of its own size, since its offset is
 * not told, and so do groups of 8 rows and blocks. */
static void shim_check_matrix(u64 matrix, int transposed) {
  u64 start = (matrix & 0x3fff) << 4, blocks = (matrix >> 16 & 0x3fff) << 4, rows = (matrix >> 32 & 0x3fff) << 4;
  int mode = (int)(matrix >> 62);
  u64 row = mode == 1 ? 128 : 64, pattern = row * 8;
  if (matrix & 0x3fffc000c000c000 || (mode != 1 && (mode != 2 || transposed)))
    shim_fault("descriptor of a matrix", matrix);
  if (start % pattern >= row || rows % pattern || (transposed && blocks % pattern))
    shim_fault("descriptor of a matrix whose swizzled rows begin elsewhere", matrix);
}

/* Threads of a warpgroup order the same products, one after the other. */
static void shim_check_order(shim_queue *q, struct shim_order own) {
  struct shim_orders *all = &shim_orders[SHIM_SELF / GROUP];
  struct shim_order *first = &all->order[q->ordered % ORDERS];
  if (q->ordered == all->n) {
    *first = own;
    all->n++;
  } else if (all->n - q->ordered > ORDERS || first->a != own.a || first->b != own.b || first->columns != own.columns) {
    shim_fault("a product that is another one in other threads of the warpgroup", own.b);
  }
  q->ordered++;
}

static shim_product *shim_order(int columns, void *d, u64 a, u64 b) {
  shim_queue *q = shim_my_queue();
  if (q->nproducts == SHIM_PRODUCTS)
    abort();
  shim_check_order(q, (struct shim_order){a, b, columns});
  shim_product *p = &q->product[q->nproducts++];
  *p = (shim_product){.d = d, .a = a, .b = b, .columns = columns};
  memcpy(p->was, d, (size_t)columns / 2 * sizeof *p->was);
  for (const shim_product *before = q->product; before < p; before++)
    if (before->d == p->d)
      return p; /* goes on from what that one leaves */
  for (int i = 0; i < columns / 2; i++)
    p->d[i] = 0xffbadbad;
  return p;
}
void shim_wgmma(int columns, f32 (*value)(u32, int), int transpose_a, int transpose_b, f32 *d, u64 a, u64 b) {
  shim_product *p = shim_order(columns, d, a, b);
  if (value == shim_cut && (transpose_a || transpose_b))
    abort();
  shim_check_matrix(a, transpose_a);
  shim_check_matrix(b, transpose_b);
  p->transpose_a = transpose_a;
  p->transpose_b = transpose_b;
  p->value = value;
}
void shim_wgmma_bytes(int columns, u32 (*byte_a)(u32, int), u32 (*byte_b)(u32, int), int transpose_a, int transpose_b,
                      i32 *d, u64 a, u64 b) {
  shim_product *p = shim_order(columns, d, a, b);
  if (transpose_a || transpose_b)
    abort();
  shim_check_matrix(a, 0);
  shim_check_matrix(b, 0);
  p->byte_a = byte_a;
  p->byte_b = byte_b;
}
void shim_wgmma_float8(int columns, f32 (*value_a)(u32, int), f32 (*value_b)(u32, int), int transpose_a,
                       int transpose_b, f32 *d, u64 a, u64 b) {
  shim_product *p = shim_order(columns, d, a, b);
  if (transpose_a || transpose_b)
    abort();
  shim_check_matrix(a, 0);
  shim_check_matrix(b, 0);
  p->value = value_a;
  p->value_b = value_b;
}
static u32 shim_helds[SHIM_PLACES][SHIM_THREADS][4];
/* Words w of rows l / 4 and l / 4 + 8 lie where mma has them. */
void shim_wgmma_held(int columns, f32 (*value)(u32, int), f32 *d, const u32 *a, u64 b) {
  int lane = SHIM_SELF % 32, first = SHIM_SELF - lane + lane / 4 * 4;
  shim_product *p = shim_order(columns, d, 0, b);
  shim_check_matrix(b, 1);
  p->transpose_b = 1;
  p->value = value;
  p->held = a;
  memcpy(p->held_was, a, sizeof p->held_was);
  u32(*shim_held)[4] = shim_helds[shim_next_place()];
  memcpy(shim_held[SHIM_SELF], a, sizeof shim_held[0]);
  CY_SYNC_WARP();
  for (int w = 0; w < 16; w++)
    p->row[w / 8][w % 8] = shim_held[first + w % 4][w % 8 / 4 * 2 + w / 8];
}
SHIM_INLINE int shim_element_bytes(const shim_product *p) { return p->byte_a || p->value_b ? 1 : p->value == shim_cut ? 4 : 2; }
/* Element k of row `row` of A or (of_a false) column `row` of B: the number, of floats as f32. half: which of the rows
 * of a thread that is. */
SHIM_INLINE u32 shim_decoded(const shim_product *p, int of_a, int half, int row, int k) {
  u32 raw = of_a && p->held
                ? p->row[half][k / 2] >> k % 2 * 16 & 0xffff
                : shim_factor(of_a ? p->a : p->b, of_a ? p->transpose_a : p->transpose_b, row, k, shim_element_bytes(p));
  /* By name, so that they are inlined: this is most of the time that a product takes. */
  if (p->byte_a)
    return (of_a ? p->byte_a : p->byte_b) == shim_i8 ? shim_i8(raw, 0) : shim_u8(raw, 0);
  if (p->value == shim_cut)
    return cy_bits_f32(shim_cut(raw, 0));
  if (p->value_b)
    return cy_bits_f32((of_a ? p->value : p->value_b) == shim_f8e5m2 ? shim_f8e5m2(raw, 0) : shim_f8e4m3fn(raw, 0));
  return cy_bits_f32(p->value == shim_f16 ? shim_f16(raw, 0) : shim_bf16(raw, 0));
}
/* Adds a product to this thread's results: of rows `row` and `row` + 8, columns `column` and `column` + 1 of every 8. */
static void shim_product_add(const shim_product *p, int row, int column, u32 *sum) {
  int depth = 32 / shim_element_bytes(p), changed = p->held && memcmp(p->held, p->held_was, sizeof p->held_was);
  u32 x[2][32], y[32];
  for (int k = 0; k < depth * 2; k++)
    x[k / depth][k % depth] = shim_decoded(p, 1, k / depth, row + k / depth * 8, k % depth);
  for (int j = 0; j < p->columns / 4; j++) {
    for (int k = 0; k < depth; k++)
      y[k] = shim_decoded(p, 0, 0, column + j / 2 * 8 + j % 2, k);
    for (int half = 0; half < 2; half++) {
      u32 *v = &sum[j / 2 * 4 + half * 2 + j % 2];
      for (int k = 0; k < depth; k++)
        *v = p->byte_a ? *v + x[half][k] * y[k]
                       : cy_bits_f32(cy_f32_bits(*v) + cy_f32_bits(x[half][k]) * cy_f32_bits(y[k]));
      if (changed)
        *v = 0xffffffff;
    }
  }
}
/* The first n products are done; what comes behind goes on from their results, which stay poisoned until then. */
static void shim_finish(int n) {
  shim_queue *q = shim_my_queue();
  int lane = CY_TID % 32, warp = CY_TID / 32 % 4;
  for (const shim_product *p = q->product; p < q->product + n; p++) {
    size_t bytes = (size_t)p->columns / 2 * sizeof(u32);
    shim_product *next = q->product + (p - q->product) + 1;
    u32 sum[128];
    memcpy(sum, p->was, bytes);
    shim_product_add(p, warp * 16 + lane / 4, lane % 4 * 2, sum);
    while (next < q->product + q->nproducts && next->d != p->d)
      next++;
    memcpy(next < q->product + q->nproducts ? next->was : p->d, sum, bytes);
  }
  memmove(q->product, q->product + n, (size_t)(q->nproducts - n) * sizeof *q->product);
  q->nproducts -= n;
  q->committed -= n;
  q->previous = 0;
  CY_SYNC_WARP(); /* a warp waits together */
}
void cy_warpgroup_wait(void) { shim_finish(shim_my_queue()->committed); }
void cy_warpgroup_wait_previous(void) { shim_finish(shim_my_queue()->previous); }
