/* SPDX-License-Identifier: Apache-2.0 */
/* memplan.h - where intermediate tensors lie in the arena. */
#ifndef CY_MEMPLAN_H
#define CY_MEMPLAN_H

#include "ir/loop/loop.h"

/* Sets the steps' positions and the buffers' first and last ones; gives every ARENA buffer of p an offset, and
 * p->arena_bytes, such that buffers in use at the same time are apart. Where sizes hang on symbols, p->arena_bytes and
 * the offsets of buffers in use are 0: the library places them when it runs. Returns the bytes of the arena with one
 * worker, -1: not known. */
int64_t cy_plan_memory(cy_program *p);

#endif
