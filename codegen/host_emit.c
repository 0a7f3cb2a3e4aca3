/* SPDX-License-Identifier: Apache-2.0 */
/* host_emit.c - the host program: one LLVM module with plan(), run(), and the tables of the model.
 *
 * In: a program with planned memory, and what the target made of its kernels. Out: an object (or text) file. plan()
 * turns the values of the input symbols into offsets and output shapes; run() (host_steps.c) does the steps;
 * host_model.c adds the tables and the exported functions.
 */
#include "codegen/cpu/cpu.h"
#include "codegen/host_int.h"

#include <stdlib.h>

/* ---- plan() ---- */

/* The largest scratch that any kernel needs whose sizes follow from the inputs' sizes. */
static void emit_common_scratch(cy_host *h) {
  static const char *const suffix[2] = {"_worker_bytes", "_shared_bytes"};
  for (int which = 0; which < 2; which++) {
    LLVMValueRef upper = cy_i64(h->cg, 0);
    if (!h->build->common_scratch[which])
      continue;
    for (uint32_t i = 0; i < h->build->nplans; i++) {
      const cy_kernel_plan *plan = &h->build->plans[i];
      int64_t bytes = which ? plan->code.shared_bytes : plan->code.worker_bytes;
      int32_t arg = which ? plan->shared_arg : plan->scratch_arg;
      if (bytes >= 0 || arg < 0 || h->build->scratch_sym[2 * i + (uint32_t)which])
        continue;
      cy_host_size_slots(h, plan);
      upper = cy_imax(h->cg, upper, cy_host_call_size(h, plan->symbol, suffix[which]));
    }
    cy_host_set_sym(h, h->build->common_scratch[which], upper);
  }
}

/* A size below zero comes of input shapes that do not fit together. */
static void check_output_dim(cy_host *h, const char *name, int axis, cy_dim d, LLVMValueRef v) {
  cy_cg *cg = h->cg;
  int64_t min, max;
  cy_dim_range(h->g, d, &min, &max);
  if (min >= 0)
    return;
  LLVMValueRef args[3] = {cy_host_text(h, name), v, cy_i64(cg, axis)};
  cy_host_fail_if(h, cy_icmp(cg, LLVMIntSLT, v, cy_i64(cg, 0)),
                  "output '%s' would have size %lld along axis %lld: the sizes of the inputs do not fit this model",
                  args);
}

static void emit_output_dims(cy_host *h) {
  const cy_port_info *ports;
  uint32_t n = cy_graph_outputs(h->g, &ports);
  for (uint32_t i = 0; i < n; i++) {
    if (cy_host_output_dynamic(h, i))
      continue;
    const cy_type *type = &cy_value_of(h->g, ports[i].value)->type;
    for (int axis = 0; axis < type->rank; axis++) {
      LLVMValueRef v = cy_host_size(h, type->dim[axis]);
      check_output_dim(h, cy_str_text(h->g, ports[i].name), axis, type->dim[axis], v);
      size_t at = i * sizeof(cyrt_output) + offsetof(cyrt_output, dims) + 8 * (size_t)axis;
      cy_store(h->cg, v, cy_gepc(h->cg, h->fn.outputs, (int64_t)at), 8);
    }
  }
}

/* Sizes that hang on symbols: the runtime places the buffers. Returns how many bytes it takes. */
static LLVMValueRef emit_arena_plan(cy_host *h) {
  cy_cg *cg = h->cg;
  LLVMValueRef *lives = malloc((h->n_planned + 1) * sizeof *lives);
  if (!lives)
    cy_no_memory();
  for (uint32_t i = 0; i < h->p->nbuffers; i++) {
    const cy_buffer *b = &h->p->buffers[i];
    int64_t at = h->offset_index[i];
    if (at < 0)
      continue;
    cy_store(cg, cy_host_size(h, b->bytes), cy_gepc(cg, h->fn.offsets, 8 * at), 8);
    lives[at] = cy_i64(cg, (int64_t)b->last << 32 | b->first); /* a cyrt_lifetime */
  }
  LLVMValueRef table = cy_host_table(h, lives, h->n_planned);
  free(lives);
  LLVMTypeRef params[3] = {cg->ptr, cg->ptr, cg->i32};
  LLVMValueRef args[3] = {h->fn.offsets, table, LLVMConstInt(cg->i32, h->n_planned, 0)};
  return cy_call(cg, cy_host_declare(h, "cyrt_plan_arena", cg->i64, params, 3, false), args, 3);
}

static LLVMValueRef emit_plan(cy_host *h, const char *name) {
  cy_host_state state = cy_host_enter(h, name);
  LLVMValueRef fn = h->cg->fn;
  cy_host_requirements(h);
  emit_common_scratch(h);
  emit_output_dims(h);
  LLVMValueRef bytes = h->p->arena_bytes ? cy_host_size(h, h->p->arena_bytes) : emit_arena_plan(h);
  cy_store(h->cg, bytes, cy_gepc(h->cg, h->fn.frame, offsetof(cyrt_frame, arena_bytes)), 8);
  cy_host_leave(h, state);
  return fn;
}

/* ---- the module ---- */

static void count_slots(cy_host *h) {
  for (uint32_t i = 0; i < h->build->nplans; i++) {
    const cy_kernel_plan *plan = &h->build->plans[i];
    const cy_dim *dims;
    uint32_t n = cy_plan_first_dim(plan) + cy_kernel_dims(plan->kernel, &dims);
    h->max_slots = n > h->max_slots ? n : h->max_slots;
  }
}

static void number_symbols(cy_host *h) {
  uint32_t n = cy_sym_count(h->g);
  const cy_requirement *unused;
  h->sym_index = calloc(n + 1, sizeof *h->sym_index);
  h->known = calloc(n + 1, sizeof *h->known);
  h->checked = calloc(cy_graph_requirements(h->g, &unused) + 1, sizeof *h->checked);
  bool *done = calloc(n + 1, sizeof *done);
  if (!h->sym_index || !h->known || !h->checked || !done)
    cy_no_memory();
  cy_sym *inputs;
  h->n_input_syms = cy_input_symbols(h->g, &inputs);
  for (uint32_t i = 0; i < h->n_input_syms; i++) {
    h->sym_index[inputs[i]] = i;
    h->known[inputs[i]] = true;
    done[inputs[i]] = true;
  }
  h->block = 1;
  h->n_syms = h->n_input_syms;
  for (cy_sym s = 1; s <= n; s++)
    if (!done[s] && s != h->p->workers)
      h->sym_index[s] = h->n_syms++;
  free(done);
}

static void number_offsets(cy_host *h) {
  h->offset_index = malloc((h->p->nbuffers + 1) * sizeof *h->offset_index);
  if (!h->offset_index)
    cy_no_memory();
  for (uint32_t i = 0; i < h->p->nbuffers; i++) {
    bool planned = h->p->buffers[i].kind == CY_BUF_ARENA && !h->p->buffers[i].offset;
    h->offset_index[i] = planned ? (int32_t)h->n_planned++ : -1;
  }
}

static void host_deinit(cy_host *h) {
  cy_cg_destroy(h->cg);
  free(h->sym_index);
  free(h->known);
  free(h->checked);
  free(h->offset_index);
  free(h->memo);
  free(h->memo_round);
  free(h->profile);
}

/* Verifies, optimises and writes the module. */
static int finish_module(cy_host *h, cy_code_kind kind, const char *path) {
  char *error = NULL;
  if (cy_cg_verify(h->cg, &error))
    cy_bug("invalid host module: %s", error);
  int rc = cy_cpu_finish(h->cg, "function(early-cse,simplifycfg)", kind, path, &error);
  if (rc) {
    cy_diag_add(h->build->diag, CY_ERROR, NULL, "the host program cannot be compiled: %s", error);
    cy_diag_blame(h->build->diag, cy_code_cause(error));
  }
  free(error);
  return rc;
}

int cy_host_emit(cy_work *b, cy_code_kind kind) {
  static const char *const base[] = {"host.o", "host.s", "host.ll"};
  char *error = NULL;
  cy_host host = {.build = b, .p = b->p, .g = b->g, .round = 1}, *h = &host;
  h->cg = cy_cg_create(b->machine->cpu, &error);
  if (!h->cg) {
    cy_diag_add(b->diag, CY_ERROR, NULL, "no code can be made for '%s': %s", b->machine->cpu,
                error ? error : "unknown CPU");
    free(error);
    return -1;
  }
  h->cg->fast_codegen = b->o->fast_codegen;
  h->cg->straight = true;
  number_symbols(h);
  number_offsets(h);
  count_slots(h);
  cy_cg_module(h->cg, "host");
  LLVMValueRef plan = emit_plan(h, "plan");
  cy_host_emit_run(h, "run");
  cy_host_emit_model(h, plan, LLVMGetNamedFunction(h->cg->module, "run"));
  const char *path = cy_temps_file(b->temps, base[kind]);
  int rc = finish_module(h, kind, path);
  if (rc == 0)
    cy_work_add_object(b, path);
  host_deinit(h);
  return rc;
}
