/* SPDX-License-Identifier: Apache-2.0 */
/* loops.h - loop IR (ir/loop/loop.h) as machine code: whole kernels, and the epilogues of contractions.
 *
 * Slots of a kernel's arguments (cyrt_slot, cyto_abi.h): one pointer per kernel argument, then one size per entry of
 * cy_kernel_dims(), in order. A SCRATCH argument points to the first worker's stripe of `elems` elements.
 * Nothing here changes the kernel or its graph, provided that cy_kernel_dims() was called once before: so
 * kernels may be emitted on several threads, each with its own cy_cg. Locals become stack slots: run mem2reg
 * (CY_PASSES_LOOPS) on the module.
 */
#ifndef CY_CPU_LOOPS_H
#define CY_CPU_LOOPS_H

#include "codegen/cpu/contract.h"
#include "ir/loop/loop.h"

#define CY_PASSES_LOOPS                                                                                                \
  "function(mem2reg),function(early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,"                          \
  "loop-mssa(licm),early-cse)"

/* Emits `void symbol(const cyrt_slot *args, i64 begin, i64 end, i64 worker)` for a kernel without contraction. */
void cy_cpu_emit_loops(cy_cg *cg, cy_kernel *k, const char *symbol);

/* The body of contraction kernel k as the generators of contract.h call. Release when the generator is done.
 */
cy_epilogue cy_cpu_epilogue_create(const cy_cg *cg, cy_kernel *k);
void cy_cpu_epilogue_destroy(cy_epilogue *e);
/* The loops over the keys of an attention kernel, whose epilogue e is. */
cy_scores cy_cpu_scores_of(const cy_epilogue *e);
bool cy_cpu_changes_scores(const cy_kernel *k); /* will scores.change be set? */

#endif
