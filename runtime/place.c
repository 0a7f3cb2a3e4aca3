/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* place.c - the arena's plan, made when the library runs because sizes were not known before. */
#include "cyrt_place.h"

uint64_t cyrt_plan_arena(uint64_t *offsets, const cyrt_lifetime *lives, uint32_t n) {
  uint64_t *sizes = offsets + (CYRT_PLAN_WORDS - 1) * (uint64_t)n;
  for (uint32_t i = 0; i < n; i++)
    sizes[i] = (int64_t)offsets[i] > 0 ? offsets[i] : 0;
  return cyrt_place(offsets, lives, n, offsets + n);
}
