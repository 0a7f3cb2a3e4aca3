/* SPDX-License-Identifier: Apache-2.0 */
/* program_run.c - runs a whole program by the kernel interpreter: the oracle of end-to-end tests.
 *
 * In: element data per model input, values of the input symbols (indexed by symbol id). Out: malloc'ed outputs and
 * their types. Every buffer gets memory of its own when it is first touched, unless memory planning has run: then arena
 * buffers lie where it put them, so that a wrong plan shows as a wrong result. Constants are given to kernels in their
 * stored layout, except the factor of a contraction, which the interpreter wants as the model has it.
 */
#include "loop_int.h"

#include <stdlib.h>
#include <string.h>

typedef struct runner {
  cy_program *p;
  const void *const *inputs;
  int64_t *syms;
  char **memory; /* of buffers */
  bool *owned;
  char *arena;
} runner;

static int64_t eval(const runner *h, cy_dim d) { return d ? cy_dim_eval(h->p->g, d, h->syms) : 0; }

static char *allocate(int64_t bytes) {
  char *m = calloc(bytes > 0 ? (size_t)bytes + 64 : 64, 1);
  if (!m)
    cy_no_memory();
  return m;
}

static char *constant_memory(const runner *h, const cy_constant *c) {
  char *m = allocate((int64_t)c->size);
  const cy_data *data = &cy_value_of(h->p->g, c->value)->data;
  for (uint32_t i = 0; c->write && i < c->pieces; i++)
    c->write(h->p->g, c->value, c->layout, i, m);
  if (!c->write && data->bytes)
    memcpy(m, data->bytes, c->size < data->size ? c->size : data->size);
  return m;
}

static char *buffer_memory(runner *h, uint32_t index) {
  const cy_buffer *b = &h->p->buffers[index];
  if (b->kind == CY_BUF_INPUT)
    return (char *)h->inputs[b->index];
  if (h->memory[index])
    return h->memory[index];
  if (b->kind == CY_BUF_ARENA && b->offset && h->p->arena_bytes) {
    if (!h->arena)
      h->arena = allocate(eval(h, h->p->arena_bytes));
    return h->arena + eval(h, b->offset);
  }
  h->memory[index] =
      b->kind == CY_BUF_CONST ? constant_memory(h, &h->p->constants[b->index]) : allocate(eval(h, b->bytes));
  h->owned[index] = true;
  return h->memory[index];
}

static void renew(runner *h, uint32_t index) {
  if (h->owned[index])
    free(h->memory[index]);
  h->memory[index] = allocate(eval(h, h->p->buffers[index].bytes));
  h->owned[index] = true;
}

static void launch(runner *h, const cy_step *s) {
  void **args = calloc(s->nbind ? s->nbind : 1, sizeof *args);
  if (!args)
    cy_no_memory();
  for (uint32_t i = 0; i < s->nbind; i++)
    args[i] = buffer_memory(h, s->bind[i].buffer) + eval(h, s->bind[i].offset);
  const cy_contraction *c = cy_kernel_contraction(s->kernel);
  if (c->kind != CY_CONTRACT_NONE && c->b_const) {
    const cy_buffer *b = &h->p->buffers[s->bind[c->b].buffer];
    cy_val v = b->kind == CY_BUF_CONST ? h->p->constants[b->index].value : c->b_const;
    args[c->b] = (void *)cy_value_of(h->p->g, v)->data.bytes;
  }
  cy_kernel_interpret(s->kernel, args, h->syms, 0, cy_kernel_tasks_eval(s->kernel, h->syms));
  free(args);
}

static void swap(runner *h, uint32_t a, uint32_t b) {
  char *memory = h->memory[a];
  bool owned = h->owned[a];
  h->memory[a] = h->memory[b];
  h->owned[a] = h->owned[b];
  h->memory[b] = memory;
  h->owned[b] = owned;
}

static void output_ready(runner *h, uint32_t output) {
  for (uint32_t i = 0; i < h->p->nbuffers; i++)
    if (h->p->buffers[i].kind == CY_BUF_OUTPUT && h->p->buffers[i].index == output)
      renew(h, i);
}

static int64_t read_element(runner *h, const cy_step *s) {
  cy_scalar v = cy_scalar_load(buffer_memory(h, s->bind->buffer) + eval(h, s->bind->offset), s->dtype, 0);
  return cy_dtype_is_float(s->dtype) ? (int64_t)v.f : v.i;
}

static int run_steps(runner *h, const cy_step *s);

static int run_loop(runner *h, const cy_step *s) {
  for (h->syms[s->sym] = 0; h->syms[s->sym] < eval(h, s->limit); h->syms[s->sym]++) {
    if (s->cond && !h->syms[s->cond])
      break;
    if (run_steps(h, s->then_steps))
      return -1;
  }
  return 0;
}

static int run_steps(runner *h, const cy_step *s) {
  for (; s; s = s->next)
    switch (s->kind) {
    case CY_STEP_LAUNCH: launch(h, s); break;
    case CY_STEP_READ: h->syms[s->sym] = read_element(h, s); break;
    case CY_STEP_ALLOC: renew(h, s->bind->buffer); break;
    case CY_STEP_OUTPUT: output_ready(h, s->index); break;
    case CY_STEP_IF:
      if (run_steps(h, h->syms[s->sym] ? s->then_steps : s->else_steps))
        return -1;
      break;
    case CY_STEP_LOOP:
      if (run_loop(h, s))
        return -1;
      break;
    case CY_STEP_SET: h->syms[s->sym] = eval(h, s->limit); break;
    case CY_STEP_SHARED:
    case CY_STEP_ROOM:
      h->syms[s->sym] = 0;
      break;
    case CY_STEP_SWAP:
      swap(h, s->bind[0].buffer, s->bind[1].buffer);
      break;
    case CY_STEP_CALL: return -1;
    }
  return 0;
}

/* Hands over the memory of output `index`; its dims become constants. */
static void take_output(runner *h, uint32_t index, const cy_port_info *port, void **out_data, cy_type *out_type) {
  *out_type = cy_value_of(h->p->g, port->value)->type;
  for (int i = 0; i < out_type->rank; i++)
    out_type->dim[i] = cy_dim_const(h->p->g, eval(h, out_type->dim[i]));
  *out_data = NULL;
  for (uint32_t i = 0; i < h->p->nbuffers; i++)
    if (h->p->buffers[i].kind == CY_BUF_OUTPUT && h->p->buffers[i].index == index) {
      *out_data = buffer_memory(h, i);
      h->owned[i] = false;
      return;
    }
}

int cy_program_interpret(cy_program *p, const void *const *inputs, const int64_t *input_syms, void **out_data,
                         cy_type *out_types) {
  uint32_t nsyms = cy_sym_count(p->g) + 1, n = p->nbuffers ? p->nbuffers : 1;
  runner h = {p, inputs, calloc(nsyms, sizeof(int64_t)), calloc(n, sizeof(char *)), calloc(n, sizeof(bool)), NULL};
  if (!h.syms || !h.memory || !h.owned)
    cy_no_memory();
  for (uint32_t s = 1; s < nsyms; s++)
    if (cy_sym_of(p->g, s)->kind == CY_SYM_INPUT)
      h.syms[s] = input_syms[s];
  h.syms[p->workers] = 1;
  const cy_port_info *ports;
  uint32_t nout = cy_graph_outputs(p->g, &ports);
  int status = run_steps(&h, p->steps);
  for (uint32_t i = 0; i < nout && !status; i++)
    take_output(&h, i, &ports[i], &out_data[i], &out_types[i]);
  for (uint32_t i = 0; i < p->nbuffers; i++)
    if (h.owned[i])
      free(h.memory[i]);
  free(h.arena);
  free(h.memory);
  free(h.owned);
  free(h.syms);
  return status;
}
