/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* context.c - making and ending a context, and what generated code and operators call on it.
 *
 * All tables of a context lie in one block behind the struct. Generated code of another library calls back through the
 * head (cyrt.h).
 */
#include "context.h"
#include "os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *default_alloc(void *user, size_t bytes, size_t alignment) {
  (void)user;
  return cyrt_os_alloc(bytes, alignment);
}

static void default_release(void *user, void *ptr, size_t bytes) {
  (void)user, (void)bytes;
  cyrt_os_free(ptr);
}

/* ---- what generated code and operators call ---- */

static int32_t context_slot_alloc(cyrt_frame *frame, uint32_t slot, int64_t bytes) {
  cyrt_dynamic *dynamic = &frame->dynamic[slot];
  if (bytes < 0)
    return cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "the size of an intermediate tensor overflows");
  uint64_t wanted = (uint64_t)bytes;
  if (dynamic->ptr && wanted > dynamic->capacity && wanted < (uint64_t)1 << 40)
    wanted += wanted / 4; /* it grew once: loops make it grow again */
  if (!cyrt_memory_grow(frame->context, &dynamic->ptr, &dynamic->capacity, wanted)) {
    dynamic->bytes = 0;
    return cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "no memory for an intermediate tensor of %lld bytes", (long long)bytes);
  }
  dynamic->bytes = (uint64_t)bytes;
  return CYTO_OK;
}

static int32_t context_output_alloc(cyrt_frame *frame, uint32_t index, const int64_t *dims, int64_t rank,
                                    int64_t elem_bytes) {
  cyto_context *context = frame->context;
  const cyrt_port *port = &context->model->code->outputs[index];
  cyrt_output_state *state = &context->outputs[index];
  cyrt_output *output = &frame->outputs[index];
  char text[CYRT_DIMS_TEXT];
  int64_t count, bytes;
  if (rank != port->rank)
    return cyrt_fail(frame, CYTO_RUNTIME_FAILURE, "output '%s': has rank %lld, expected %lld", port->name,
                     (long long)rank, (long long)port->rank);
  if (port->dtype == CYTO_STRING)
    elem_bytes = sizeof(cyto_string); /* what the numbers become when the run ends */
  count = cyrt_count((int32_t)rank, dims);
  if (count < 0 || __builtin_mul_overflow(count, elem_bytes, &bytes))
    return cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "output '%s': the size of %s overflows", port->name,
                     cyrt_dims_text((int32_t)rank, dims, NULL, text));
  cyto_status status =
      cyrt_output_check_apart(context, index, state->bound ? state->bound : state->own,
                              state->bound ? (uint64_t)bytes : state->own_bytes, (uint64_t)bytes, frame->error);
  if (status)
    return status;
  if (state->bound) {
    if (state->bound_bytes < (uint64_t)bytes)
      return cyrt_fail(frame, CYTO_BUFFER_TOO_SMALL, "output '%s': has %lld bytes %s, but the bound buffer holds %lld",
                       port->name, (long long)bytes, cyrt_dims_text((int32_t)rank, dims, NULL, text),
                       (long long)state->bound_bytes);
    output->ptr = state->bound;
    output->capacity = state->bound_bytes;
  } else {
    int grown = cyrt_memory_grow(context, &state->own, &state->own_bytes, (uint64_t)bytes);
    output->ptr = state->own;
    output->capacity = state->own_bytes;
    if (!grown)
      return cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "output '%s': no memory for %lld bytes", port->name,
                       (long long)bytes);
  }
  if (rank)
    memcpy(output->dims, dims, (size_t)rank * sizeof *dims);
  return CYTO_OK;
}

static const cyrt_context_head *head_of(const cyrt_frame *frame) { return (const cyrt_context_head *)frame->context; }

int32_t cyrt_slot_alloc(cyrt_frame *frame, uint32_t slot, int64_t bytes) {
  return head_of(frame)->slot_alloc(frame, slot, bytes);
}

int32_t cyrt_output_alloc(cyrt_frame *frame, uint32_t index, const int64_t *dims, int64_t rank, int64_t elem_bytes) {
  return head_of(frame)->output_alloc(frame, index, dims, rank, elem_bytes);
}

void *cyrt_scratch_alloc(cyrt_frame *frame, uint64_t bytes) {
  if (frame->context)
    return head_of(frame)->alloc(frame->context, bytes);
  return bytes > SIZE_MAX / 2 ? NULL : malloc(bytes ? bytes : 1); /* an operator called outside a model */
}

void cyrt_scratch_free(cyrt_frame *frame, void *ptr, uint64_t bytes) {
  if (!ptr)
    return;
  if (frame->context)
    head_of(frame)->release(frame->context, ptr, bytes);
  else
    free(ptr);
}

void cyrt_stash_put(cyrt_frame *frame, const void *tag, void *ptr, uint64_t bytes) {
  cyrt_context_head *head = (cyrt_context_head *)frame->context;
  if (!head) {
    cyrt_scratch_free(frame, ptr, bytes);
    return;
  }
  cyrt_scratch_free(frame, head->stash, head->stash_bytes);
  head->stash = ptr;
  head->stash_bytes = bytes;
  head->stash_tag = tag;
}

void *cyrt_stash_take(cyrt_frame *frame, const void *tag, uint64_t *out_bytes) {
  cyrt_context_head *head = (cyrt_context_head *)frame->context;
  if (!head || !head->stash || head->stash_tag != tag)
    return NULL;
  void *ptr = head->stash;
  *out_bytes = head->stash_bytes;
  head->stash = NULL;
  return ptr;
}

/* ---- creating ---- */

/* Lays the tables out behind the struct; with context NULL only measures. Returns the size of the block. */
static uint64_t context_layout(const cyrt_model *code, cyto_context *context) {
  uint64_t used = sizeof *context;
#define TABLE(field, count)                                                                                            \
  do {                                                                                                                 \
    used = (used + 15) & ~(uint64_t)15;                                                                                \
    if (context)                                                                                                       \
      field = (void *)((uint8_t *)context + used);                                                                     \
    used += (uint64_t)(count) * sizeof *field;                                                                         \
  } while (0)
  TABLE(context->inputs, code->n_inputs);
  TABLE(context->pointers, code->n_inputs);
  TABLE(context->given, code->texts ? code->n_inputs : 0);
  TABLE(context->outputs, code->n_outputs);
  TABLE(context->symbol_input, code->n_input_syms);
  TABLE(context->symbol_axis, code->n_input_syms);
  TABLE(context->frame.outputs, code->n_outputs);
  TABLE(context->frame.syms, code->n_syms);
  TABLE(context->frame.offsets, code->n_offsets);
  TABLE(context->frame.dynamic, code->n_dynamic);
#undef TABLE
  return used;
}

static cyto_status context_device(cyto_context *context, const cyto_options *options, cyto_error *error) {
  cyto_model *model = context->model;
  const cyrt_device *device = model->code->device;
  const cyto_device_allocator *allocator = options->device_allocator.alloc ? &options->device_allocator : NULL;
  if (allocator && !allocator->release)
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "cyto_options.device_allocator has no release function");
  cyrt_device_request request = {.model = model->code,
                                 .weights = model->weights,
                                 .context = context,
                                 .device = options->device,
                                 .device_memory = options->device_memory,
                                 .stream = options->stream,
                                 .allocator = allocator,
                                 .weights_limit = options->device_weights,
                                 .pool = options->device_pool};
  context->frame.workers = device->workers;
  cyrt_lock_take(&model->device_lock);
  int32_t status = device->open(&request, &model->device_shared, &context->device, error);
  cyrt_lock_give(&model->device_lock);
  return (cyto_status)status;
}

static cyto_status context_devices(cyto_context *context, const cyto_options *options, cyto_error *error) {
  if (context->model->spread_open)
    return context->model->spread_open(context, options, error);
  return cyrt_error_set(
      error, CYTO_INVALID_ARGUMENT,
      "cyto_options.devices: the model is linked; several devices run those that cyto_model_load() opens");
}

/* What only models for CUDA have a use for would be ignored in silence. */
static cyto_status check_for_cpu(const cyrt_model *code, const cyto_options *o, cyto_error *error) {
  const char *given = o->device                   ? "device"
                      : o->device_memory          ? "device_memory"
                      : o->stream                 ? "stream"
                      : o->device_pool            ? "device_pool"
                      : o->device_weights         ? "device_weights"
                      : o->device_allocator.alloc ? "device_allocator"
                                                  : NULL;
  return !given
             ? CYTO_OK
             : cyrt_error_set(
                   error, CYTO_INVALID_ARGUMENT,
                   "cyto_options.%s is for models for CUDA, but the model is compiled for a CPU (%s): compile it with "
                   "--target=sm_.., or leave it out",
                   given, code->target);
}

static cyto_status context_pool(cyto_context *context, const cyto_options *options, cyto_error *error) {
  cyto_status wrong = check_for_cpu(context->model->code, options, error);
  if (wrong)
    return wrong;
  int32_t threads = options->threads ? options->threads : cyto_cpu_count();
  context->frame.workers = threads < CYTO_MAX_THREADS ? threads : CYTO_MAX_THREADS;
  if (context->frame.workers == 1)
    return CYTO_OK;
  if (options->parallel) {
    context->own_pool = cyrt_memory_get(context, cyrt_pool_custom_bytes());
    if (context->own_pool)
      context->frame.pool = cyrt_pool_custom(context->own_pool, options->parallel, options->parallel_user);
  } else {
    context->frame.pool = cyrt_pool_shared();
  }
  return context->frame.pool ? CYTO_OK : cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for the thread pool");
}

cyto_status cyto_context_create(cyto_model *model, const cyto_options *options, cyto_context **out_context,
                                cyto_error *error) {
  static const cyto_options defaults;
  cyto_allocator allocator = {default_alloc, default_release, NULL};
  cyrt_error_clear(error);
  if (!options)
    options = &defaults;
  if (out_context)
    *out_context = NULL;
  if (!model || !out_context || options->threads < 0)
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT,
                          "cyto_context_create: no model, no place for the context, or a negative thread count");
  if (options->allocator.alloc)
    allocator = options->allocator;
  if (!allocator.release)
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "cyto_context_create: the allocator has no release function");
  uint64_t bytes = context_layout(model->code, NULL);
  cyto_context *context = cyrt_allocator_get(&allocator, bytes);
  if (!context)
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for a context (%llu bytes)", (unsigned long long)bytes);
  memset(context, 0, bytes);
  context_layout(model->code, context);
  context->head = (cyrt_context_head){.destroy = cyrt_context_free,
                                      .alloc = cyrt_memory_get,
                                      .release = cyrt_memory_give,
                                      .slot_alloc = context_slot_alloc,
                                      .output_alloc = context_output_alloc};
  context->model = model;
  context->allocator = allocator;
  context->block_bytes = context->in_use = context->peak = bytes;
  context->frame.inputs = context->pointers;
  context->frame.weights = model->weights;
  context->frame.context = context;
  cyrt_model_retain(model);
  if (model->code->texts && !(context->head.values = cyrt_values_create(context, model->code->texts))) {
    cyrt_context_free(context);
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for the model's strings");
  }
  cyto_status status = options->devices || options->device_count ? context_devices(context, options, error)
                       : model->code->device                     ? context_device(context, options, error)
                                                                 : context_pool(context, options, error);
  if (status)
    cyrt_context_free(context);
  else
    *out_context = context;
  return status;
}

void cyto_context_describe(const cyto_context *context, char *text, uint64_t capacity) {
  if (!text || !capacity)
    return;
  text[0] = 0;
  if (!context)
    return;
  const cyrt_model *code = context->model->code;
  if (context->spread)
    context->spread->describe(context->spread, text, capacity);
  else if (context->device)
    code->device->describe(context->device, text, capacity);
  else
    snprintf(text, capacity, "%s, %lld thread%s", code->target, (long long)context->frame.workers,
             context->frame.workers == 1 ? "" : "s");
}

void cyrt_context_free(cyto_context *context) {
  const cyrt_model *code = context->model->code;
  cyto_model *model = context->model;
  cyto_allocator allocator = context->allocator;
  cyrt_keep_end(context);
  if (context->spread)
    context->spread->close(context->spread);
  if (context->device)
    code->device->close(context->device);
  cyrt_values_destroy(context->head.values);
  for (uint32_t i = 0; i < code->n_outputs; i++) {
    cyrt_allocator_give(&allocator, context->outputs[i].own, context->outputs[i].own_bytes);
  }
  for (uint32_t i = 0; i < code->n_dynamic; i++)
    cyrt_allocator_give(&allocator, context->frame.dynamic[i].ptr, context->frame.dynamic[i].capacity);
  cyrt_allocator_give(&allocator, context->frame.arena, context->arena_capacity);
  cyrt_allocator_give(&allocator, context->head.stash, context->head.stash_bytes);
  cyrt_allocator_give(&allocator, context->own_pool, cyrt_pool_custom_bytes());
  cyrt_allocator_give(&allocator, context, context->block_bytes);
  cyto_model_unload(model);
}

/* The context may be that of another library's runtime. */
void cyto_context_destroy(cyto_context *context) {
  if (context)
    ((const cyrt_context_head *)context)->destroy(context);
}
