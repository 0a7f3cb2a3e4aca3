/* SPDX-License-Identifier: Apache-2.0 */
/* lengths.c - which sizes of a language model change from one decoding step to the next, and kernels that read them from
 * memory of the device.
 *
 * In: a program with outputs that continue inputs (caches). The extents along which these grow are lengths, and so is every
 * size of an input that neither batches nor counts what a step adds (a mask's). Out: for a kernel that such sizes reach,
 * the slots that may change. It gets one more parameter, `lengths`: NULL, or a record of the runtime's
 * (runtime/cuda/cuda_steps.c): how many blocks work, then what is to be added to each slot. A recorded graph then serves
 * all lengths up to those that its grids were made for; kernels whose sizes stay are as they would be without.
 */
#include "codegen/cuda/cuda_int.h"
#include "codegen/work.h"

#include <stdlib.h>

enum { MAX_VARYING_ARGS = 64, MAX_LENGTHS = 64 };

typedef struct symbols {
  uint8_t *in; /* [symbols + 1] */
  bool any;
} symbols;

static void add_symbol(void *ctx, cy_sym s) { ((symbols *)ctx)->in[s] = 1; }
static void find_symbol(void *ctx, cy_sym s) {
  symbols *of = ctx;
  of->any |= of->in[s];
}

/* Symbols of batches, heads and new elements: sizes that stay while a sequence is written. */
static void add_staying(cy_graph *g, const cy_memory_growth *growth, symbols *staying, uint8_t *grown) {
  const cy_port_info *inputs, *outputs;
  cy_graph_inputs(g, &inputs);
  cy_graph_outputs(g, &outputs);
  const cy_type *in = &cy_value_of(g, inputs[growth->input].value)->type;
  const cy_type *out = &cy_value_of(g, outputs[growth->output].value)->type;
  cy_sym length = cy_dim_symbol(g, in->dim[growth->axis]);
  for (int i = 0; i < in->rank; i++)
    if (i != growth->axis)
      cy_dim_symbols(g, in->dim[i], add_symbol, staying);
  if (length)
    grown[length] = 1;
  symbols still = {grown, false};
  cy_dim more = cy_dim_sub(g, out->dim[growth->axis], in->dim[growth->axis]);
  cy_dim_symbols(g, more, find_symbol, &still);
  if (!still.any) /* else the new length is a symbol of its own */
    cy_dim_symbols(g, more, add_symbol, staying);
}

/* [symbols + 1] in the graph's arena: those that may change, symbols that steps set included; NULL: there are none. */
static uint8_t *varying_symbols(cy_program *p) {
  cy_graph *g = p->g;
  uint32_t n = cy_sym_count(g);
  if (!p->ngrowths)
    return NULL;
  uint8_t *varying = CY_NEW_ARRAY(cy_graph_arena(g), uint8_t, n + 1), *grown = calloc(n + 1, 1);
  symbols staying = {calloc(n + 1, 1), false};
  if (!staying.in || !grown)
    cy_no_memory();
  for (uint32_t i = 0; i < p->ngrowths; i++)
    add_staying(g, &p->growths[i], &staying, grown);
  for (cy_sym s = 1; s <= n; s++)
    varying[s] = grown[s] || (!staying.in[s] && s != p->workers);
  free(staying.in);
  free(grown);
  return varying;
}

uint64_t cy_cuda_lengths(cy_program *p) {
  cy_sym *inputs;
  uint8_t *varying = varying_symbols(p);
  uint32_t n = cy_input_symbols(p->g, &inputs);
  uint64_t mask = 0;
  for (uint32_t i = 0; varying && i < n && i < MAX_LENGTHS; i++)
    mask |= (uint64_t)varying[inputs[i]] << i;
  return mask;
}

static bool varies(cy_graph *g, const uint8_t *varying, cy_dim d) {
  symbols of = {(uint8_t *)varying, false};
  if (d)
    cy_dim_symbols(g, d, find_symbol, &of);
  return of.any;
}

typedef struct binding {
  cy_graph *g;
  const cy_kernel *kernel;
  const uint8_t *varying;
  uint64_t args;
} binding;

/* Arguments that begin at places which may change. */
static void note_binds(void *ctx, cy_step *s) {
  binding *b = ctx;
  for (uint32_t i = 0; s->kind == CY_STEP_LAUNCH && s->kernel == b->kernel && i < s->nbind && i < MAX_VARYING_ARGS; i++)
    if (varies(b->g, b->varying, s->bind[i].offset))
      b->args |= (uint64_t)1 << i;
}

bool cy_cuda_slot_varies(cy_kernel *k, const cy_cuda_schedule *schedule, uint32_t slot) {
  const cy_dim *dims;
  uint32_t nargs = cy_kernel_args(k, NULL);
  if (!schedule->varying)
    return false;
  if (slot < nargs)
    return slot < MAX_VARYING_ARGS && schedule->varying_args >> slot & 1;
  cy_kernel_dims(k, &dims);
  return varies(cy_kernel_graph(k), schedule->varying, dims[slot - nargs]);
}

void cy_cuda_lengths_prepare(cy_program *p, cy_kernel *k, cy_cuda_schedule *schedule) {
  const cy_dim *dims;
  uint32_t ndims = cy_kernel_dims(k, &dims);
  binding b = {p->g, k, varying_symbols(p), 0};
  if (!b.varying)
    return;
  cy_steps_visit(p->steps, note_binds, &b);
  bool any = b.args || varies(p->g, b.varying, schedule->blocks);
  for (uint32_t i = 0; i < ndims && !any; i++)
    any = varies(p->g, b.varying, dims[i]);
  if (any) {
    schedule->varying = b.varying;
    schedule->varying_args = b.args;
  }
}

void cy_cu_lengths_param(cy_cu *p, FILE *out) {
  if (p->schedule->varying)
    fputs(", const i64 *CY_RESTRICT lengths", out);
}

void cy_cu_lengths_read(cy_cu *p) {
  const cy_cuda_schedule *schedule = p->schedule;
  bool takes_turns = schedule->kind == CY_CUDA_GROUPS || schedule->kind == CY_CUDA_ROWS; /* blocks, which stride by the grid */
  if (!schedule->varying)
    return;
  cy_cu_line(p, "if (lengths) {");
  cy_cu_open(p);
  cy_cu_line(p, takes_turns ? "if (lengths[0] == 0)" : "if (CY_BLOCK >= lengths[0])");
  cy_cu_line(p, "  return;");
  for (uint32_t i = 0; i < p->nargs + p->ndims; i++) {
    if (!cy_cuda_slot_varies(p->k, schedule, i))
      continue;
    if (i >= p->nargs)
      cy_cu_line(p, "size%u += lengths[%u];", i - p->nargs, i + 1);
    else
      cy_cu_line(p, "a%u = (%s%s *)((%schar *)a%u + lengths[%u]);", i, p->args[i].kind == CY_ARG_READ ? "const " : "",
                 cy_cu_storage(p->args[i].dtype), p->args[i].kind == CY_ARG_READ ? "const " : "", i, i + 1);
  }
  cy_cu_close(p, p->nlog);
  cy_cu_line(p, "}");
}
