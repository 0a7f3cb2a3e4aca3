/* SPDX-License-Identifier: Apache-2.0 */
/* shim_ptx.c - instructions of warps and of warpgroups as the PTX ISA defines their operands (shim_ptx.h).
 *
 * mma: fragments by the ISA's formulas, for every shape in use. wgmma: sums are kept apart while products are under way;
 * the registers of D hold marks, which moves between registers carry along as they carry what the device will have put
 * there, and become sums when their thread waits. A product needs a fence since the last commit; barriers in shared
 * memory that copies arrive at need theirs.
 */
#include "tests/cuda/shim/shim_ptx.h"

#include <stdio.h>
#include <stdlib.h>

u32 ptx_shared_bytes;

__attribute__((visibility("default"))) int ptx_launch(void (*kernel)(), int threads, i64 blocks, int cluster,
                                                      int shared, const u64 *slots, int nslots, int schedule,
                                                      unsigned seed);
int cy_shim_launch(void (*kernel)(), int threads, i64 blocks, int cluster, int shared, const u64 *slots, int nslots,
                   int schedule, unsigned seed);

/* ---- floats ---- */

#define PTX_FMA(type, function)                                                                                        \
  type ptx_fma_##type(type a, type b, type c, int rounding) {                                                          \
    volatile type x = a, y = b, z = c, r;                                                                              \
    int before = fegetround();                                                                                         \
    fesetround(rounding);                                                                                              \
    r = function(x, y, z);                                                                                             \
    fesetround(before);                                                                                                \
    return r;                                                                                                          \
  }
PTX_FMA(f32, fmaf)
PTX_FMA(f64, fma)

/* ---- warps ---- */

static u32 exchanges[SHIM_PLACES][SHIM_THREADS];

/* What the warp's lanes give. */
static const u32 *exchange(u32 v) {
  u32 *all = exchanges[shim_next_place()];
  all[SHIM_SELF] = v;
  CY_SYNC_WARP();
  return all + (SHIM_SELF & ~31);
}
static u32 take(u32 v, int lane, b1 there, b1 *out_there) {
  *out_there = there;
  return exchange(v)[there ? lane : CY_TID % 32];
}
/* clamp: bits 0 to 4 bound the lane, bits 8 to 12 say which of its bits are those of a part of the warp. */
static void part_of(u32 clamp, int *lowest, int *highest) {
  int lane = CY_TID % 32, segment = clamp >> 8 & 31;
  *lowest = lane & segment;
  *highest = *lowest | ((int)(clamp & 31) & ~segment);
}
#define PTX_SHFL(name, source, is_there)                                                                               \
  u32 ptx_shfl_##name(u32 v, u32 by, u32 clamp, u32 mask, b1 *there) {                                                 \
    int low, high;                                                                                                     \
    ptx_whole_warp(mask);                                                                                              \
    part_of(clamp, &low, &high);                                                                                       \
    int from = source;                                                                                                 \
    return take(v, from, is_there, there);                                                                             \
  }
PTX_SHFL(bfly, CY_TID % 32 ^ (int)(by & 31), from <= high)
PTX_SHFL(idx, low | ((int)(by & 31) & ~(int)(clamp >> 8 & 31)), from <= high)
PTX_SHFL(down, CY_TID % 32 + (int)(by & 31), from <= high)
PTX_SHFL(up, CY_TID % 32 - (int)(by & 31), from >= high) /* whose clamp is the lowest lane */

u32 ptx_ballot(b1 v, u32 mask) {
  u32 all = 0;
  ptx_whole_warp(mask);
  const u32 *lanes = exchange(v);
  for (int i = 0; i < 32; i++)
    all |= lanes[i] << i;
  return all;
}

/* ---- matrices of a warp ---- */

u32 ptx_of_f16(u32 word, int i) { return cy_bits_f32(shim_f16(word, i)); }
u32 ptx_of_bf16(u32 word, int i) { return cy_bits_f32(shim_bf16(word, i)); }
u32 ptx_of_tf32(u32 word, int i) { return i ? 0 : word & ~0x1fffu; }
u32 ptx_of_e4m3(u32 word, int i) { return cy_bits_f32(shim_f8e4m3fn(word, i)); }
u32 ptx_of_e5m2(u32 word, int i) { return cy_bits_f32(shim_f8e5m2(word, i)); }
u32 ptx_of_s8(u32 word, int i) { return shim_i8(word, i); }
u32 ptx_of_u8(u32 word, int i) { return shim_u8(word, i); }

static u32 of_as[SHIM_PLACES][SHIM_THREADS][4], of_bs[SHIM_PLACES][SHIM_THREADS][2];
static u32 (*of_a)[4], (*of_b)[2]; /* of the thread at hand, who alone runs */

static void meet(int rows, int words, const u32 *a, const u32 *b) {
  int place = shim_next_place();
  for (int i = 0; i < rows / 8 * words / 4; i++)
    of_as[place][SHIM_SELF][i] = a[i];
  for (int i = 0; i < words / 4; i++)
    of_bs[place][SHIM_SELF][i] = b[i];
  CY_SYNC_WARP();
  of_a = of_as[place];
  of_b = of_bs[place];
}
/* Word w of a row of A: registers go down the rows (two halves of 16) and then along k. */
static u32 word_of_a(int rows, int row, int w) {
  int thread = (SHIM_SELF & ~31) + row % 8 * 4 + w % 4;
  return of_a[thread][w / 4 * (rows / 8) + row / 8];
}
static u32 word_of_b(int column, int w) { return of_b[(SHIM_SELF & ~31) + column * 4 + w % 4][w / 4]; }
/* Result i of a lane: row and column of the product. */
static int row_of(int i) { return CY_TID % 32 / 4 + i / 2 * 8; }
static int column_of(int i) { return CY_TID % 4 * 2 + i % 2; }

void ptx_mma_f32(int rows, int words, u32 *d, const u32 *a, const u32 *b, ptx_element *element_a,
                 ptx_element *element_b) {
  int each = element_a == ptx_of_tf32 ? 1 : element_a == ptx_of_e4m3 || element_a == ptx_of_e5m2 ? 4 : 2;
  meet(rows, words, a, b);
  for (int i = 0; i < rows / 4; i++) {
    f32 sum = cy_f32_bits(d[i]);
    for (int e = 0; e < words * each; e++)
      sum += cy_f32_bits(element_a(word_of_a(rows, row_of(i), e / each), e % each)) *
             cy_f32_bits(element_b(word_of_b(column_of(i), e / each), e % each));
    d[i] = cy_bits_f32(sum);
  }
}
void ptx_mma_s32(int rows, int words, u32 *d, const u32 *a, const u32 *b, ptx_element *element_a,
                 ptx_element *element_b) {
  meet(rows, words, a, b);
  for (int i = 0; i < rows / 4; i++)
    for (int e = 0; e < words * 4; e++)
      d[i] += element_a(word_of_a(rows, row_of(i), e / 4), e % 4) * element_b(word_of_b(column_of(i), e / 4), e % 4);
}

/* ---- products of warpgroups ---- */

enum { KEPT = 16, SETS = 2 };
/* A thread's products: of each set of registers that they add to, the sums, what marks the registers until they are waited
 * for, how many are under way, how many of those in groups, and in which group the last one is. */
static struct products {
  struct set {
    u32 sum[128], tag;
    int under_way, committed, group;
  } set[SETS];
  u32 kept[KEPT][4];
  int nkept, groups, nset; /* nset: of the product that begins */
  b1 fenced;
} products[SHIM_THREADS];
static b1 published[SHIM_RANKS];

static u32 mark_of(const struct products *p, const struct set *s, int i) {
  return (s->tag << 4) + (u32)(s - p->set) * 128 + (u32)i;
}

u32 *ptx_wgmma_begin(int n, const u32 *d, b1 add, u32 tag) {
  struct products *p = &products[SHIM_SELF];
  struct set *free = NULL;
  int marks = 0;
  if (!p->fenced)
    shim_fault("wgmma without a fence", 0);
  for (struct set *s = p->set; s < p->set + SETS; s++) {
    int own = 0;
    for (int i = 0; i < n; i++)
      own += s->under_way && d[i] == mark_of(p, s, i);
    if (own == n && add) {
      p->nset = (int)(s - p->set);
      return s->sum; /* goes on from the product before */
    }
    marks += own;
    free = s->under_way ? free : s;
  }
  if (marks || !free) {
    shim_fault("wgmma into some registers of another one that is under way", (u64)marks);
    free = p->set;
  }
  p->nset = (int)(free - p->set);
  free->tag = tag;
  for (int i = 0; i < n; i++)
    free->sum[i] = add ? d[i] : 0;
  return free->sum;
}
void ptx_wgmma_end(u32 *d, int n) {
  struct products *p = &products[SHIM_SELF];
  struct set *s = &p->set[p->nset];
  for (int i = 0; i < n; i++)
    d[i] = mark_of(p, s, i);
  s->under_way++;
  s->group = p->groups;
}
const u32 *ptx_wgmma_kept(const u32 *a) {
  struct products *p = &products[SHIM_SELF];
  return memcpy(p->kept[p->nkept++ % KEPT], a, sizeof p->kept[0]);
}
void ptx_wgmma_fence(void) { products[SHIM_SELF].fenced = 1; }
void ptx_wgmma_commit(void) {
  struct products *p = &products[SHIM_SELF];
  p->fenced = 0;
  p->groups++;
  cy_warpgroup_commit();
  for (struct set *s = p->set; s < p->set + SETS; s++)
    s->committed = s->under_way;
}
/* For all but the last group (but: 1) or for all of them. */
void ptx_wgmma_wait(int but, u32 *held, int nheld) {
  struct products *p = &products[SHIM_SELF];
  if (but > 1)
    shim_fault("wait for all but groups", (u64)but);
  if (but)
    cy_warpgroup_wait_previous();
  else
    cy_warpgroup_wait();
  for (struct set *s = p->set; s < p->set + SETS; s++) {
    /* what was not committed, or is in the last group, is not waited for */
    if (!s->under_way || s->committed < s->under_way || (but && s->group == p->groups - 1))
      continue;
    s->under_way = s->committed = 0;
    for (int i = 0; i < nheld; i++)
      if (held[i] - mark_of(p, s, 0) < 128)
        held[i] = s->sum[held[i] - mark_of(p, s, 0)];
  }
}

/* ---- registers of a block ---- */

/* A block's registers are divided evenly when it begins; from then on its warps give and take, all of a warpgroup as
 * many. Who takes waits until others have given, so the sum counts when all is done. */
enum { REGISTERS = 64 << 10, REGISTERS_STEP = 8, WARP = 32, WARPS = SHIM_THREADS / WARP };
static int block_threads, registers[WARPS]; /* of each thread of a warp */

static int registers_at_first(void) {
  int each = REGISTERS / block_threads / REGISTERS_STEP * REGISTERS_STEP;
  return each > 255 ? 255 : each;
}
static void registers_begin(void) {
  for (int w = 0; w < WARPS; w++)
    registers[w] = registers_at_first();
}
void ptx_registers(b1 more, int n) {
  int *own = &registers[SHIM_SELF / WARP];
  if (n % REGISTERS_STEP || n < 24 || n > 256 || (more ? n < *own : n > *own))
    shim_fault("setmaxnreg", (u64)n);
  CY_SYNC_WARP();
  *own = n;
}
static void registers_end(void) {
  for (int rank = 0, warps = block_threads / WARP; rank < shim_ranks; rank++) {
    int sum = 0, *of = registers + rank * warps;
    for (int w = 0; w < warps; w++) {
      sum += of[w] * WARP;
      if (of[w] != of[w & ~3])
        shim_fault("setmaxnreg of a part of a warpgroup: warp", (u64)w);
    }
    if (sum > registers_at_first() * block_threads)
      shim_fault("setmaxnreg: more registers than the block has", (u64)sum);
  }
  registers_begin();
}

/* ---- barriers in shared memory, launches ---- */

void ptx_barrier_init(u64 *barrier, int arrivals) {
  published[shim_now->rank] = 0;
  cy_barrier_init(barrier, arrivals);
}
void ptx_barriers_published(void) { published[shim_now->rank] = 1; }
static b1 arrived[SHIM_THREADS]; /* at the cluster's barrier */
static b1 afar[SHIM_THREADS];    /* arrived at another block's barrier, which no release has ordered since */
void ptx_cluster_arrive(int release) {
  if (!release && afar[SHIM_SELF])
    shim_fault("arrival at another block's barrier that a relaxed one at the cluster's does not order", 0);
  afar[SHIM_SELF] = 0;
  if (arrived[SHIM_SELF])
    shim_fault("arrival at the cluster's barrier, again", 0);
  arrived[SHIM_SELF] = 1;
}
void ptx_cluster_wait(void) {
  if (!arrived[SHIM_SELF])
    shim_fault("wait at the cluster's barrier without an arrival", 0);
  arrived[SHIM_SELF] = 0;
  CY_SYNC_CLUSTER();
}

/* An address as other blocks of the cluster have it: those of the block's own have 0 where others have their number. */
enum { CLUSTER_RANK = 24 };
u64 ptx_map_shared(u64 at, u32 rank) {
  if (rank >= (u32)shim_ranks)
    shim_fault("a block that is not in the cluster", rank);
  return at | (u64)(rank + 1) << CLUSTER_RANK;
}
void ptx_barrier_arrive_at(u64 at) {
  int given = (int)(at >> CLUSTER_RANK) - 1, rank = given < 0 ? shim_now->rank : given;
  if (!published[rank])
    shim_fault("arrival at a barrier that was not published, of the block", (u64)rank);
  afar[SHIM_SELF] |= rank != shim_now->rank;
  cy_barrier_arrive_at((u64 *)ptx_shared(at & ((1u << CLUSTER_RANK) - 1), 8), rank);
}
void ptx_tensor_load(u32 blocks, void *to, const cy_tensor_map *map, const int at[5], u64 *barrier) {
  u32 wanted = blocks ? blocks : 1u << shim_now->rank;
  for (int rank = 0; rank < shim_ranks; rank++)
    if (wanted >> rank & 1 && !published[rank])
      shim_fault("copy to a barrier that was not published", (u64)barrier - (u64)shim_dynamic);
  shim_tensor_load(wanted, to, map, at, barrier);
}

int ptx_launch(void (*kernel)(), int threads, i64 blocks, int cluster, int shared, const u64 *slots, int nslots,
               int schedule, unsigned seed) {
  ptx_shared_bytes = (u32)shared;
  memset(arrived, 0, sizeof arrived);
  memset(afar, 0, sizeof afar);
  memset(published, 0, sizeof published);
  memset(products, 0, sizeof products);
  block_threads = threads;
  registers_begin();
  shim_block_ends = registers_end;
  ptx_traffic_begin();
  int stuck = cy_shim_launch(kernel, threads, blocks, cluster, shared, slots, nslots, schedule, seed);
  ptx_traffic_end();
  return stuck;
}
