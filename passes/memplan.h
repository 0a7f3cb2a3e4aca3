/* memplan.h - where intermediate tensors lie in the arena. */
#ifndef CY_MEMPLAN_H
#define CY_MEMPLAN_H

#include "ir/loop.h"

/* Gives every ARENA buffer of p an offset, and p->arena_bytes; sets the steps' positions and the buffers' first and last ones. Offsets
 * are expressions that keep buffers in use at the same time apart for all values of the symbols. */
void cy_plan_memory(cy_program *p);

#endif
