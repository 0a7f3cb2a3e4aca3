/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h - what the files of the CPU target's row share: between the IR's contractions and the generators of contract.h.
 */
#ifndef CY_CPU_H
#define CY_CPU_H

#include "codegen/cpu/loops/loops.h"
#include "codegen/target.h"

/* ---- cpu.c ---- */
/* Optimises the open module by LLVM's `passes` (see cy_cg_optimize) and writes it: 0, or -1 with a malloc'ed text. */
int cy_cpu_finish(cy_cg *cg, const char *passes, cy_code_kind kind, const char *path, char **out_error);

/* ---- cpu_contract.c ---- */
bool cy_cpu_contract_supports(const cy_machine *m, cy_kernel *k);
/* cy_target_caps.int_rows */
bool cy_cpu_int_rows(const cy_machine *m, int bits, int64_t block, int64_t n);
/* cy_target.share_key. */
uint64_t cy_cpu_contract_share_key(const cy_machine *m, cy_program *p, cy_kernel *k);
/* Chooses the algorithm; appends arguments for packed weights and scratch. */
void cy_cpu_contract_prepare(const cy_machine *m, cy_program *p, cy_kernel_plan *plan);
/* The program's constant with the packed layout of v, whose matrix starts at byte `offset` of its contents. */
uint32_t cy_cpu_contract_pack(cy_program *p, cy_kernel_plan *plan, cy_val v, int64_t offset);
bool cy_cpu_panels_of(const cy_constant *packed, cy_panels *out); /* see cy_target */
void cy_cpu_contract_emit(cy_cg *cg, cy_kernel_plan *plan);

/* ---- layer_cost.c ---- */
double cy_cpu_layer_cycles(const cy_machine *m, const cy_graph *g, const cy_node_info *n, const int64_t *sizes,
                           cy_layer_arithmetic variant);
bool cy_cpu_conv_cycles(const cy_machine *m, const cy_graph *g, const cy_node_info *n, const int64_t *sizes,
                        cy_conv_cycles *out);
/* Does n, of bf16, take less time than of f32? n NULL: is there an instruction for it? */
bool cy_cpu_half_factors(const cy_machine *m, cy_dtype half, const cy_graph *g, const cy_node_info *n,
                         const int64_t *sizes);

#endif
