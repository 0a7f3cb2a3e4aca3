/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* place.c - the arena's plan, made when the library runs because sizes were not known before. */
#include "cyrt_place.h"

uint64_t cyrt_plan_arena(uint64_t *offsets, const cyrt_lifetime *lives, uint32_t n) {
  return cyrt_place(offsets, lives, n, offsets + n);
}
