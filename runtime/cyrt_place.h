/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cyrt_place.h - where blocks of memory lie that live for a while: largest first, each into the best fitting gap.
 *
 * In: sizes and lifetimes. Out: offsets, so that blocks in use at the same time are apart. Here because two need it:
 * the compiler for programs whose sizes are numbers, the libraries it makes for all others, whenever sizes change.
 * Depends on libc.
 */
#ifndef CYRT_PLACE_H
#define CYRT_PLACE_H

#include "cyto_abi.h"

#include <string.h>

#define CYRT_PLACE_ALIGN 64u
#define CYRT_PLACE_LIMIT ((uint64_t)1 << 46) /* more bytes than that are not to be had */

typedef struct cyrt_block {
  uint64_t size;
  cyrt_lifetime life;
  uint32_t index; /* of its size and offset */
} cyrt_block;

/* A block that has its place. What is looked at for every block is kept small and in order. */
typedef struct cyrt_spot {
  cyrt_lifetime life;
  uint32_t block;
} cyrt_spot;
_Static_assert(sizeof(cyrt_block) + sizeof(cyrt_spot) <= 8 * (CYRT_PLAN_WORDS - 1), "room is counted in words");

static inline int cyrt_block_before(const cyrt_block *a, const cyrt_block *b) {
  return a->size != b->size ? a->size > b->size : a->index < b->index;
}

static inline void cyrt_blocks_sort(cyrt_block *blocks, uint32_t n) {
  uint32_t gap = 1;
  while (gap < n / 3)
    gap = gap * 3 + 1;
  for (; gap; gap /= 3)
    for (uint32_t i = gap; i < n; i++) {
      cyrt_block b = blocks[i];
      uint32_t at = i;
      for (; at >= gap && cyrt_block_before(&b, &blocks[at - gap]); at -= gap)
        blocks[at] = blocks[at - gap];
      blocks[at] = b;
    }
}

/* The smallest gap between the blocks of b's time that is large enough, else behind them. spots[n]: in order of place.
 */
static inline uint64_t cyrt_best_gap(const cyrt_block *b, const cyrt_block *blocks, const uint64_t *offsets,
                                     const cyrt_spot *spots, uint32_t n) {
  uint64_t best = 0, best_size = UINT64_MAX, end = 0;
  for (const cyrt_spot *s = spots; s < spots + n; s++) {
    if (b->life.first > s->life.last || s->life.first > b->life.last)
      continue;
    const cyrt_block *other = &blocks[s->block];
    uint64_t at = offsets[other->index];
    if (at > end && at - end >= b->size && at - end < best_size) {
      best = end;
      best_size = at - end;
    }
    if (at + other->size > end)
      end = at + other->size;
  }
  return best_size == UINT64_MAX ? end : best;
}

/* Where in the order of places a block at `at` belongs: behind those at the same place. */
static inline uint32_t cyrt_spot_find(uint64_t at, const cyrt_block *blocks, const uint64_t *offsets,
                                      const cyrt_spot *spots, uint32_t n) {
  uint32_t low = 0;
  while (low < n) {
    uint32_t middle = low + (n - low) / 2;
    if (offsets[blocks[spots[middle].block].index] <= at)
      low = middle + 1;
    else
      n = middle;
  }
  return low;
}

/* Replaces the n sizes by offsets, both multiples of 64; sizes below 0 count as 0. `room` has CYRT_PLAN_WORDS - 2 words
 * for each. Returns how many bytes it takes, more than CYRT_PLACE_LIMIT when one block does. */
static inline uint64_t cyrt_place(uint64_t *sizes, const cyrt_lifetime *lives, uint32_t n, uint64_t *room) {
  cyrt_block *blocks = (cyrt_block *)(void *)room;
  cyrt_spot *spots = (cyrt_spot *)(void *)(blocks + n);
  uint64_t total = 0;
  uint32_t used = 0;
  for (uint32_t i = 0; i < n; i++) {
    uint64_t size = (int64_t)sizes[i] > 0 ? sizes[i] : 0;
    sizes[i] = 0;
    if (size > CYRT_PLACE_LIMIT)
      return size;
    if (size)
      blocks[used++] = (cyrt_block){(size + CYRT_PLACE_ALIGN - 1) & ~(uint64_t)(CYRT_PLACE_ALIGN - 1), lives[i], i};
  }
  cyrt_blocks_sort(blocks, used);
  for (uint32_t i = 0; i < used; i++) {
    const cyrt_block *b = &blocks[i];
    uint64_t at = cyrt_best_gap(b, blocks, sizes, spots, i);
    uint32_t spot = cyrt_spot_find(at, blocks, sizes, spots, i);
    memmove(spots + spot + 1, spots + spot, (i - spot) * sizeof *spots);
    spots[spot] = (cyrt_spot){b->life, i};
    sizes[b->index] = at;
    if (at + b->size > total)
      total = at + b->size;
  }
  return total;
}

#endif
