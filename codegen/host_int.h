/* SPDX-License-Identifier: Apache-2.0 */
/* host_int.h - what the files that emit the host program share: host_emit.c on host_steps.c and host_model.c, these on
 * host_profile.c, all on host.c, which is on host_dims.c.
 *
 * One cy_host is one LLVM module being filled: plan(), run() and its parts, the tables of cyrt_model. The module is the
 * same for every target; kernels are external functions.
 */
#ifndef CY_HOST_INT_H
#define CY_HOST_INT_H

#include "codegen/work.h"
#include "codegen/cpu/emit.h"
#include "runtime/cyto_abi.h"

/* The function being emitted: what was loaded in its entry block, and its stack memory. */
typedef struct cy_host_fn {
  LLVMValueRef frame, inputs, outputs, weights, arena, syms, offsets, dynamic;
  LLVMValueRef slots, tensors_in, tensors_out, dims, problem; /* made when first needed */
  LLVMBasicBlockRef fail;                            /* returns fail_code, a phi; made when first needed */
  LLVMValueRef fail_code;
} cy_host_fn;

typedef struct cy_host cy_host;

/* What differs in the host program where kernels run on a device of its own: pointers in slots and tensors are the
 * device's then. */
typedef struct cy_host_device {
  /* Launches the plan's kernel; its slots are filled. */
  void (*launch)(cy_host *h, const cy_step *s, const cy_kernel_plan *plan);
  /* Where in host memory the `bytes` at a device pointer can be read. */
  LLVMValueRef (*fetch)(cy_host *h, LLVMValueRef at, int64_t bytes);
  /* Calls a runtime operator with the arguments of cyrt_op; its code. */
  LLVMValueRef (*call)(cy_host *h, LLVMValueRef op, LLVMValueRef *args);
  /* cyrt_model.device and device_data; NULL function: both are NULL. */
  void (*describe)(cy_host *h, LLVMValueRef *out_device, LLVMValueRef *out_data);
} cy_host_device;
extern const cy_host_device cy_host_cpu;  /* host_steps.c */
extern const cy_host_device cy_host_cuda; /* cuda/host_cuda.c */

struct cy_host {
  cy_work *build;
  cy_program *p;
  cy_graph *g;
  cy_cg *cg;
  uint32_t *sym_index;   /* [symbols + 1] index in frame->syms */
  uint32_t n_input_syms, n_syms;
  int32_t *offset_index; /* [buffers] index in frame->offsets, -1: the offset is a constant */
  uint32_t n_planned;    /* buffers that plan() places */
  uint32_t max_slots, max_in, max_out; /* over all steps */
  int nparts;
  bool *known;           /* [symbols + 1] has its value where code is being emitted */
  bool *checked;         /* [requirements] */
  cy_block block;        /* whose steps are being emitted; 0: none of the graph's */
  LLVMValueRef *profile; /* rows of the steps emitted */
  uint32_t n_profile, profile_cap;
  LLVMValueRef profile_row; /* of the launch being emitted, or NULL */
  cy_host_fn fn;
  /* values of dims in the code emitted since the last place where that might have become wrong */
  LLVMValueRef *memo;
  uint32_t *memo_round;
  uint32_t memo_cap, round;
};

/* A field of a struct of the ABI: an i32, or 8 bytes. */
static inline LLVMValueRef cy_host_field(const cy_host *h, LLVMTypeRef type, LLVMValueRef base, size_t offset) {
  return cy_load(h->cg, type, cy_gepc(h->cg, base, (int64_t)offset), type == h->cg->i32 ? 4 : 8);
}

/* ---- host_dims.c ---- */
LLVMValueRef cy_host_dim(cy_host *h, cy_dim d);
/* The same for what memory is asked for: INT64_MAX, which no one has, where what it is computed from does not fit. */
LLVMValueRef cy_host_size(cy_host *h, cy_dim d);
void cy_host_forget(cy_host *h); /* values seen so far no longer dominate, or a symbol changed */
void cy_host_set_sym(cy_host *h, cy_sym s, LLVMValueRef v);
LLVMValueRef cy_host_sym(cy_host *h, cy_sym s);

/* ---- host.c: functions, memory, checks ---- */
/* Opens i32 name(frame); the function that was open is restored by cy_host_leave(), which returns 0 from this one. */
typedef struct cy_host_state {
  cy_fn_state cg;
  cy_host_fn fn;
} cy_host_state;
cy_host_state cy_host_enter(cy_host *h, const char *name);
void cy_host_leave(cy_host *h, cy_host_state state);
LLVMValueRef cy_host_declare(cy_host *h, const char *name, LLVMTypeRef ret, const LLVMTypeRef *params, unsigned n,
                             bool variadic);
void cy_host_check(cy_host *h, LLVMValueRef code);   /* returns from the function when code is not 0 */
/* Leaves the function with an error text of a text and two numbers where `bad` is true. */
void cy_host_fail_if(cy_host *h, LLVMValueRef bad, const char *format, LLVMValueRef what[3]);
LLVMValueRef cy_host_constant(cy_host *h, LLVMValueRef data); /* a private global that holds it */
LLVMValueRef cy_host_text(cy_host *h, const char *text);
const char *cy_host_node_text(const cy_host *h, const cy_origin *origin); /* how messages name a node */
LLVMValueRef cy_host_external(cy_host *h, const char *symbol); /* the address of data in another object */
const char *cy_host_symbol(const cy_host *h, const char *suffix); /* "<model><suffix>"; in the graph's arena */
static inline LLVMValueRef cy_host_i32(const cy_host *h, int64_t v) { return cy_i32(h->cg, (int32_t)v); }
LLVMValueRef cy_host_table(cy_host *h, LLVMValueRef *words, uint32_t n); /* of i64 */
LLVMValueRef cy_host_pointer(cy_host *h, uint32_t buffer, cy_dim offset);
/* The slots of the function; and writing those with the sizes that a kernel wants, behind its pointers. */
LLVMValueRef cy_host_slots(cy_host *h);
void cy_host_size_slots(cy_host *h, const cy_kernel_plan *plan);
LLVMValueRef cy_host_call_size(cy_host *h, const char *prefix, const char *suffix); /* i64 <prefix><suffix>(slots) */
/* Is there any element that the launch writes? NULL: certainly. Where there is none, its grid may be huge all the same:
 * [2^40, 0] has as many rows. */
LLVMValueRef cy_host_writes_some(cy_host *h, const cy_step *s);
/* Computes the symbols of a plan's scratch that hangs on data. */
void cy_host_scratch_syms(cy_host *h, const cy_kernel_plan *plan);

/* The format of what is said where a requirement is broken. */
const char *cy_host_demand(const cy_requirement *r);
/* Checks the requirements of the block whose symbols are all known by now and that were not checked yet. */
void cy_host_requirements(cy_host *h);

/* ---- host_steps.c: run() ---- */
void cy_host_emit_run(cy_host *h, const char *name);

/* ---- host_profile.c: recording the time of steps; nothing is emitted without --profile ---- */
/* Begins a step's time. `plan` is NULL for a call of the runtime's. */
typedef struct cy_host_timed {
  LLVMValueRef row, start; /* NULL: not timed */
  cy_launch_facts facts;
  bool on_device;
} cy_host_timed;
cy_host_timed cy_host_profile_start(cy_host *h, const cy_step *s, const cy_kernel_plan *plan);
void cy_host_profile_stop(cy_host *h, const cy_host_timed *timed);
LLVMValueRef cy_host_profile_table(cy_host *h); /* a cyrt_profile, or NULL */

/* ---- host_model.c: cyrt_model, <name>_model, <name>_run, cyto_model_query ---- */
void cy_host_emit_model(cy_host *h, LLVMValueRef plan, LLVMValueRef run);
bool cy_host_output_dynamic(const cy_host *h, uint32_t output);

#endif
