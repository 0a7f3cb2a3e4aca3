/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c - the kernels of a program made ready for a target: plans, appended arguments, what is bound to them.
 *
 * In: a program from lowering. Out: one cy_kernel_plan per distinct kernel that some step launches; kernels and steps
 * extended by the arguments that the target asked for (packed weights, scratch); and which constants the library has to
 * carry. Everything that later code only reads is computed here once (expanded math, list of sizes), because the IR
 * belongs to one thread.
 */
#include "codegen/work.h"

#include <stdlib.h>
#include <string.h>

/* ---- which kernels ---- */

/* The place of k in plan_of, or the free one that it would get. */
static cy_kernel_plan **place_of(const cy_work *b, const cy_kernel *k) {
  uint32_t i = (uint32_t)((uintptr_t)k >> 4) * 2654435761u & b->plan_mask;
  while (b->plan_of[i] && b->plan_of[i]->kernel != k)
    i = (i + 1) & b->plan_mask;
  return &b->plan_of[i];
}

cy_kernel_plan *cy_kernels_plan(const cy_work *b, const cy_kernel *k) {
  cy_kernel_plan *plan = *place_of(b, k);
  if (!plan)
    cy_bug("a step launches kernel '%s', which is not in the program's list", cy_kernel_name(k));
  return plan;
}

static void index_plans(cy_work *b) {
  uint32_t places = 16;
  while (places < 2 * b->nplans)
    places *= 2;
  free(b->plan_of);
  b->plan_mask = places - 1;
  b->plan_of = calloc(places, sizeof *b->plan_of);
  if (!b->plan_of)
    cy_no_memory();
  for (uint32_t i = 0; i < b->nplans; i++)
    *place_of(b, b->plans[i].kernel) = &b->plans[i];
}

static void note_launch(void *ctx, cy_step *s) {
  cy_kernel_plan *plan = s->kind == CY_STEP_LAUNCH ? cy_kernels_plan(ctx, s->kernel) : NULL;
  if (plan && !plan->launch)
    plan->launch = s;
}

/* "model_k12_matmul_gelu": the model's name keeps two archives in one application apart. */
static void name_kernel(cy_work *b, cy_kernel_plan *plan, uint32_t index) {
  const char *name = cy_kernel_name(plan->kernel);
  char *id = cy_c_identifier(name, strlen(name));
  snprintf(plan->symbol, sizeof plan->symbol, "%.40s_k%u_%.24s", b->name, index, id);
  free(id);
}

static void prepare_kernel(cy_work *b, cy_kernel_plan *plan) {
  plan->dead_arg = plan->packed_arg = plan->scratch_arg = plan->shared_arg = -1;
  plan->algorithm = "loops";
  const cy_dim *dims;
  cy_kernel_expand_math(plan->kernel);
  cy_kernel_dims(plan->kernel, &dims);
  b->machine->target->prepare(b->machine, b->p, plan);
  plan->weight += 40 + cy_expr_count(plan->kernel);
}

/* ---- what is bound to appended arguments ---- */

static void append_bind(cy_work *b, cy_step *s, uint32_t arg, cy_bind bind) {
  uint32_t n = arg + 1;
  if (n > s->nbind) {
    cy_bind *more = CY_NEW_ARRAY(cy_graph_arena(b->g), cy_bind, n);
    memcpy(more, s->bind, s->nbind * sizeof *more);
    s->bind = more;
    s->nbind = n;
  }
  s->bind[arg] = bind;
}

cy_bind cy_kernels_constant(cy_work *b, uint32_t constant) {
  for (uint32_t i = 0; i < b->p->nbuffers; i++)
    if (b->p->buffers[i].kind == CY_BUF_CONST && b->p->buffers[i].index == constant)
      return (cy_bind){i, 0};
  cy_dim bytes = cy_dim_const(b->g, (int64_t)b->p->constants[constant].size);
  return (cy_bind){cy_program_add_buffer(b->p, CY_BUF_CONST, constant, bytes), 0};
}

static cy_bind scratch_bind(cy_work *b) {
  return (cy_bind){cy_program_add_buffer(b->p, CY_BUF_ARENA, 0, cy_dim_const(b->g, 0)), 0};
}

static void bind_packed(cy_work *b, cy_step *s, cy_kernel_plan *plan) {
  const cy_buffer *plain = &b->p->buffers[s->bind[plan->dead_arg].buffer];
  if (plain->kind != CY_BUF_CONST)
    cy_bug("kernel '%s' wants constant weights, but a step binds something else", cy_kernel_name(plan->kernel));
  cy_val v = b->p->constants[plain->index].value;
  int64_t offset = 0;
  cy_dim at = s->bind[plan->dead_arg].offset;
  if (at && !cy_dim_is_const(b->g, at, &offset))
    cy_bug("kernel '%s': weights begin at a place that is not known", cy_kernel_name(plan->kernel));
  uint32_t packed = b->machine->target->pack(b->p, plan, v, offset);
  append_bind(b, s, (uint32_t)plan->packed_arg, cy_kernels_constant(b, packed));
}

static void bind_launch(void *ctx, cy_step *s) {
  cy_work *b = ctx;
  if (s->kind != CY_STEP_LAUNCH)
    return;
  cy_kernel_plan *plan = cy_kernels_plan(b, s->kernel);
  if (plan->packed_arg >= 0)
    bind_packed(b, s, plan);
  if (plan->scratch_arg >= 0)
    append_bind(b, s, (uint32_t)plan->scratch_arg, scratch_bind(b));
  if (plan->shared_arg >= 0)
    append_bind(b, s, (uint32_t)plan->shared_arg, scratch_bind(b));
}

/* ---- which constants are needed ---- */

static void use_buffer(cy_work *b, uint32_t id) {
  const cy_buffer *buffer = &b->p->buffers[id];
  if (buffer->kind == CY_BUF_CONST)
    b->constant_used[buffer->index] = true;
}

static void use_constants(void *ctx, cy_step *s) {
  cy_work *b = ctx;
  const cy_kernel_plan *plan = s->kind == CY_STEP_LAUNCH ? cy_kernels_plan(b, s->kernel) : NULL;
  int32_t dead = plan && !plan->reads_dead ? plan->dead_arg : -1;
  for (uint32_t i = 0; i < s->nbind; i++)
    if ((int32_t)i != dead)
      use_buffer(b, s->bind[i].buffer);
  for (uint32_t i = 0; i < s->nin; i++)
    if (s->in[i].type.dtype != CY_NONE)
      use_buffer(b, s->in[i].at.buffer);
}

/* Inputs with a default: the default goes along. */
static void add_defaults(cy_work *b) {
  const cy_port_info *ports;
  uint32_t n = cy_graph_inputs(b->g, &ports);
  for (uint32_t i = 0; i < n; i++) {
    const cy_value *v = cy_value_of(b->g, ports[i].value);
    if (v->data.bytes)
      cy_program_add_constant(b->p, ports[i].value, v->data.size, "", NULL, NULL, 1);
  }
}

void cy_kernels_constants(cy_work *b) {
  add_defaults(b);
  b->constant_used = calloc(b->p->nconstants + 1, sizeof *b->constant_used);
  if (!b->constant_used)
    cy_no_memory();
  cy_steps_visit(b->p->steps, use_constants, b);
  for (uint32_t i = 0; i < b->p->nconstants; i++) {
    const cy_constant *c = &b->p->constants[i];
    if (!c->write && cy_value_of(b->g, c->value)->param)
      b->constant_used[i] = true;
  }
}

static uint64_t share_key(void *ctx, cy_kernel *k) {
  const cy_work *b = ctx;
  return b->machine->target->share_key(b->machine, b->p, k);
}

void cy_kernels_prepare(cy_work *b) {
  if (b->machine->target->share_key && b->o->share_kernels)
    cy_program_share_kernels(b->p, share_key, b);
  uint32_t n = b->p->nkernels, kept = 0;
  b->plans = calloc(n + 1, sizeof *b->plans);
  b->scratch_sym = calloc(2 * n + 2, sizeof *b->scratch_sym);
  if (!b->plans || !b->scratch_sym)
    cy_no_memory();
  for (uint32_t i = 0; i < n; i++)
    b->plans[i].kernel = b->p->kernels[i];
  b->nplans = n;
  index_plans(b);
  cy_steps_visit(b->p->steps, note_launch, b);
  for (uint32_t i = 0; i < n; i++) /* kernels that no step launches are left out */
    if (b->plans[i].launch) {
      b->p->kernels[kept] = b->p->kernels[i];
      b->plans[kept++] = b->plans[i];
    }
  b->nplans = b->p->nkernels = kept;
  index_plans(b);
  for (uint32_t i = 0; i < kept; i++) {
    name_kernel(b, &b->plans[i], i);
    prepare_kernel(b, &b->plans[i]);
  }
  cy_steps_visit(b->p->steps, bind_launch, b);
}

/* ---- scratch, once its sizes are known ---- */

static bool depends_on_data(cy_work *b, cy_kernel *k) {
  const cy_dim *dims;
  uint32_t n = cy_kernel_dims(k, &dims);
  for (uint32_t i = 0; i < n; i++)
    if (cy_dim_has_data_sym(b->g, dims[i]))
      return true;
  return false;
}

static cy_dim size_symbol(cy_work *b, cy_sym *sym) {
  if (!*sym) {
    *sym = cy_sym_new(b->g, NULL, CY_SYM_FREE);
    cy_sym_of(b->g, *sym)->min = 0;
  }
  return cy_dim_sym(b->g, *sym);
}

/* which: 0 scratch per worker, 1 shared. */
static void size_scratch(cy_work *b, cy_step *s, const cy_kernel_plan *plan, int which) {
  int32_t arg = which ? plan->shared_arg : plan->scratch_arg;
  int64_t bytes = which ? plan->code.shared_bytes : plan->code.worker_bytes;
  if (arg < 0)
    return;
  cy_buffer *buffer = &b->p->buffers[s->bind[arg].buffer];
  bool data = bytes < 0 && depends_on_data(b, plan->kernel);
  cy_sym *sym = data ? &b->scratch_sym[2 * (plan - b->plans) + which] : &b->common_scratch[which];
  buffer->bytes = bytes < 0 ? size_symbol(b, sym) : cy_dim_const(b->g, bytes);
  if (!which)
    buffer->bytes = cy_dim_mul(b->g, buffer->bytes, cy_dim_sym(b->g, b->p->workers));
  if (data) {
    buffer->kind = CY_BUF_DYNAMIC;
    buffer->index = b->p->ndynamic++;
  }
}

static void size_launch(void *b, cy_step *s) {
  for (int which = 0; which < 2 && s->kind == CY_STEP_LAUNCH; which++)
    size_scratch(b, s, cy_kernels_plan(b, s->kernel), which);
}

void cy_kernels_bind_scratch(cy_work *b) { cy_steps_visit(b->p->steps, size_launch, b); }
