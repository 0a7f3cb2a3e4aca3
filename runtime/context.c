/* context.c - everything one use of a model needs: bound tensors, symbol values, memory, and running.
 *
 * A context goes through three states, each kept until something it rests on changes:
 *   planned  the symbols are read off the bound shapes, plan() has set arena offsets and output dims, the arena is
 *            there. Lost when an input is bound with other dims.
 *   placed   every output that is not dynamic has its buffer. Lost with planned, or when an output is bound.
 *   ran      outputs hold results. Lost with placed, or when a run fails.
 * All tables lie in one block behind the struct. Memory only grows; a failed attempt leaves the state unset
 * and everything else whole, so the caller can repair and call again. Generated code of another library calls back
 * through the head (cyrt.h).
 */
#define _GNU_SOURCE
#include "values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct input_state {
  int64_t dims[CYTO_MAX_RANK];
  int32_t has_shape;
} input_state;

typedef struct output_state {
  void *bound, *own; /* bound by the caller, or NULL; the context's memory, kept also while another is bound */
  uint64_t bound_bytes, own_bytes;
} output_state;

struct cyrt_context {
  cyrt_context_head head;
  cyrt_frame frame;
  cyto_model *model;
  cyto_allocator allocator;
  uint64_t block_bytes; /* of this struct and its tables */
  void *own_pool;       /* memory of a custom pool, or NULL */
  uint64_t arena_capacity;
  input_state *inputs;
  const void **pointers; /* frame.inputs */
  cyto_value *given;     /* inputs that are strings or no tensors, as bound; none where the model has numbers only */
  output_state *outputs;
  int32_t *symbol_input, *symbol_axis; /* where each input symbol's value came from; input -1: from nowhere yet */
  int32_t planned, placed, ran;
  void *device; /* state of the model's device, or NULL */
};

/* What inputs without elements point to: not NULL, which would mean unbound. */
static const _Alignas(64) uint8_t no_elements[64];

/* ---- memory ---- */

static void *default_alloc(void *user, size_t bytes, size_t alignment) {
  const size_t huge = (size_t)2 << 20;
  void *ptr;
  (void)user;
  if (bytes >= 2 * huge) { /* large arenas on huge pages: fewer faults and TLB misses */
    if (posix_memalign(&ptr, huge, bytes))
      return NULL;
    madvise(ptr, bytes & ~(huge - 1), MADV_HUGEPAGE);
    return ptr;
  }
  return posix_memalign(&ptr, alignment, bytes) ? NULL : ptr;
}

static void default_release(void *user, void *ptr, size_t bytes) {
  (void)user, (void)bytes;
  free(ptr);
}

static void *memory_get(const cyto_allocator *allocator, uint64_t bytes) {
  if (bytes > (uint64_t)1 << 46) /* sizes come from shapes: do not bother the allocator with nonsense */
    return NULL;
  return allocator->alloc(allocator->user, bytes ? bytes : 1, CYRT_ALIGN);
}

static void memory_give(const cyto_allocator *allocator, void *ptr, uint64_t bytes) {
  if (ptr)
    allocator->release(allocator->user, ptr, bytes ? bytes : 1);
}

static void *context_alloc(cyto_context *context, uint64_t bytes) { return memory_get(&context->allocator, bytes); }

static void context_release(cyto_context *context, void *ptr, uint64_t bytes) {
  memory_give(&context->allocator, ptr, bytes);
}

/* Makes *ptr hold `bytes` at least; contents are lost when it grows. 0: no memory, *ptr is then NULL. */
static int memory_grow(cyto_context *context, void **ptr, uint64_t *capacity, uint64_t bytes) {
  if (*ptr && *capacity >= bytes)
    return 1;
  context_release(context, *ptr, *capacity);
  *ptr = context_alloc(context, bytes);
  *capacity = *ptr ? bytes : 0;
  return *ptr != NULL;
}

/* ---- what generated code and operators call ---- */

static int32_t context_slot_alloc(cyrt_frame *frame, uint32_t slot, int64_t bytes) {
  cyrt_dynamic *dynamic = &frame->dynamic[slot];
  if (bytes < 0)
    return cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "the size of an intermediate tensor overflows");
  uint64_t wanted = (uint64_t)bytes;
  if (dynamic->ptr && wanted > dynamic->capacity && wanted < (uint64_t)1 << 40)
    wanted += wanted / 4; /* it grew once: loops make it grow again */
  if (!memory_grow(frame->context, &dynamic->ptr, &dynamic->capacity, wanted)) {
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
  output_state *state = &context->outputs[index];
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
  if (state->bound) {
    if (state->bound_bytes < (uint64_t)bytes)
      return cyrt_fail(frame, CYTO_BUFFER_TOO_SMALL, "output '%s': has %lld bytes %s, but the bound buffer holds %lld",
                       port->name, (long long)bytes, cyrt_dims_text((int32_t)rank, dims, NULL, text),
                       (long long)state->bound_bytes);
    output->ptr = state->bound;
    output->capacity = state->bound_bytes;
  } else {
    int grown = memory_grow(context, &state->own, &state->own_bytes, (uint64_t)bytes);
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
  cyrt_device_request request = {model->code,     model->weights,         context,
                                 options->device, options->device_memory, options->stream};
  context->frame.workers = device->workers;
  pthread_mutex_lock(&model->device_mutex);
  int32_t status = device->open(&request, &model->device_shared, &context->device, error);
  pthread_mutex_unlock(&model->device_mutex);
  return (cyto_status)status;
}

static cyto_status context_pool(cyto_context *context, const cyto_options *options, cyto_error *error) {
  int32_t threads = options->threads ? options->threads : cyto_cpu_count();
  context->frame.workers = threads < CYTO_MAX_THREADS ? threads : CYTO_MAX_THREADS;
  if (context->frame.workers == 1)
    return CYTO_OK;
  if (options->parallel) {
    context->own_pool = context_alloc(context, cyrt_pool_custom_bytes());
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
  if (!model || !out_context || options->threads < 0)
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT,
                          "cyto_context_create: no model, no place for the context, or a negative thread count");
  if (options->allocator.alloc)
    allocator = options->allocator;
  if (!allocator.release)
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "cyto_context_create: the allocator has no release function");
  uint64_t bytes = context_layout(model->code, NULL);
  cyto_context *context = memory_get(&allocator, bytes);
  if (!context)
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for a context (%llu bytes)", (unsigned long long)bytes);
  memset(context, 0, bytes);
  context_layout(model->code, context);
  context->head = (cyrt_context_head){.alloc = context_alloc,
                                      .release = context_release,
                                      .slot_alloc = context_slot_alloc,
                                      .output_alloc = context_output_alloc};
  context->model = model;
  context->allocator = allocator;
  context->block_bytes = bytes;
  context->frame.inputs = context->pointers;
  context->frame.weights = model->weights;
  context->frame.context = context;
  cyrt_model_retain(model);
  if (model->code->texts && !(context->head.values = cyrt_values_create(context, model->code->texts))) {
    cyto_context_destroy(context);
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for the model's strings");
  }
  cyto_status status =
      model->code->device ? context_device(context, options, error) : context_pool(context, options, error);
  if (status)
    cyto_context_destroy(context);
  else
    *out_context = context;
  return status;
}

void cyto_context_describe(const cyto_context *context, char *text, uint64_t capacity) {
  const cyrt_model *code = context->model->code;
  if (!capacity)
    return;
  if (context->device)
    code->device->describe(context->device, text, capacity);
  else
    snprintf(text, capacity, "%s, %lld thread%s", code->target, (long long)context->frame.workers,
             context->frame.workers == 1 ? "" : "s");
}

void cyto_context_destroy(cyto_context *context) {
  if (!context)
    return;
  const cyrt_model *code = context->model->code;
  cyto_model *model = context->model;
  cyto_allocator allocator = context->allocator;
  if (context->device)
    code->device->close(context->device);
  cyrt_values_destroy(context->head.values);
  for (uint32_t i = 0; i < code->n_outputs; i++)
    memory_give(&allocator, context->outputs[i].own, context->outputs[i].own_bytes);
  for (uint32_t i = 0; i < code->n_dynamic; i++)
    memory_give(&allocator, context->frame.dynamic[i].ptr, context->frame.dynamic[i].capacity);
  memory_give(&allocator, context->frame.arena, context->arena_capacity);
  memory_give(&allocator, context->head.stash, context->head.stash_bytes);
  memory_give(&allocator, context->own_pool, cyrt_pool_custom_bytes());
  memory_give(&allocator, context, context->block_bytes);
  cyto_model_unload(model);
}

/* ---- binding ---- */

static cyto_status check_index(int32_t index, uint32_t count, const char *kind, cyto_error *error) {
  if (index >= 0 && (uint32_t)index < count)
    return CYTO_OK;
  return cyrt_error_set(error, CYTO_INDEX_OUT_OF_RANGE, "%s %d does not exist: the model has %u %ss", kind, index,
                        count, kind);
}

static cyto_status check_alignment(const void *data, const cyrt_port *port, const char *kind, cyto_error *error) {
  uint32_t align = cyrt_dtype_align(port->dtype);
  if ((uintptr_t)data % align == 0)
    return CYTO_OK;
  return cyrt_error_set(error, CYTO_INVALID_ARGUMENT,
                        "%s '%s': the pointer is not aligned to the %u bytes that %s needs", kind, port->name, align,
                        cyto_dtype_name(port->dtype));
}

static cyto_status check_shape(const cyto_context *context, const cyrt_port *port, int32_t rank, const int64_t *dims,
                               cyto_error *error) {
  char expected[CYRT_DIMS_TEXT], found[CYRT_DIMS_TEXT];
  cyto_port shown;
  int fits = rank == port->rank && (rank == 0 || dims);
  for (int32_t i = 0; fits && i < rank; i++)
    fits = dims[i] >= 0 && (port->dims[i] < 0 || dims[i] == port->dims[i]);
  if (fits && cyto_tensor_bytes(port->dtype, rank, dims) >= 0)
    return CYTO_OK;
  cyrt_port_describe(context->model->code, port, 1, &shown);
  return cyrt_error_set(error, CYTO_SHAPE_MISMATCH, "input '%s': expected shape %s, found %s%s", port->name,
                        cyrt_dims_text(port->rank, shown.dims, shown.dim_names, expected),
                        rank < 0 || rank > CYTO_MAX_RANK || (rank && !dims) ? "none that is valid"
                                                                            : cyrt_dims_text(rank, dims, NULL, found),
                        fits ? ", whose size overflows" : "");
}

/* Remembers the shape of an input; the plan holds while shapes stay the same. */
static void input_set_shape(cyto_context *context, int32_t index, int32_t rank, const int64_t *dims) {
  input_state *input = &context->inputs[index];
  size_t bytes = (size_t)rank * sizeof *dims;
  if (input->has_shape && (!bytes || !memcmp(input->dims, dims, bytes)))
    return;
  if (bytes)
    memcpy(input->dims, dims, bytes);
  input->has_shape = 1;
  context->planned = context->placed = context->ran = 0;
}

cyto_status cyto_bind_input(cyto_context *context, int32_t index, int32_t dtype, int32_t rank, const int64_t *dims,
                            const void *data, cyto_error *error) {
  const cyrt_model *code = context->model->code;
  cyrt_error_clear(error);
  cyto_status status = check_index(index, code->n_inputs, "input", error);
  if (status)
    return status;
  const cyrt_port *port = &code->inputs[index];
  if (!data && (port->flags & CYRT_PORT_OPTIONAL)) {
    if (context->inputs[index].has_shape)
      context->planned = context->placed = context->ran = 0;
    context->inputs[index].has_shape = 0;
    context->pointers[index] = NULL;
    return CYTO_OK;
  }
  if (port->type)
    return cyrt_error_set(error, CYTO_DTYPE_MISMATCH, "input '%s': is no tensor, bind it by cyto_bind_value()",
                          port->name);
  if (dtype != port->dtype)
    return cyrt_error_set(error, CYTO_DTYPE_MISMATCH, "input '%s': expected %s, found %s", port->name,
                          cyto_dtype_name(port->dtype), cyto_dtype_name(dtype));
  if ((status = check_shape(context, port, rank, dims, error)) ||
      (status = check_alignment(data, port, "input", error)))
    return status;
  if (!data && cyrt_count(rank, dims) > 0)
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "input '%s': no data, and the input is not optional",
                          port->name);
  context->pointers[index] = data ? data : no_elements;
  if (dtype == CYTO_STRING)
    context->given[index] = (cyto_value){.tensor = {.data = (void *)data}};
  input_set_shape(context, index, rank, dims);
  return CYTO_OK;
}

cyto_status cyto_bind_value(cyto_context *context, int32_t index, const cyto_value *value, cyto_error *error) {
  const cyrt_model *code = context->model->code;
  char where[160];
  cyrt_error_clear(error);
  cyto_status status = check_index(index, code->n_inputs, "input", error);
  if (status)
    return status;
  const cyrt_port *port = &code->inputs[index];
  if (!value || (!port->type && value->kind == CYTO_TENSOR)) {
    const cyto_tensor *t = value ? &value->tensor : NULL;
    if (!t && !(port->flags & CYRT_PORT_OPTIONAL))
      return cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "input '%s': no value, and the input is not optional",
                            port->name);
    return t ? cyto_bind_input(context, index, t->dtype, t->rank, t->dims, t->data, error)
             : cyto_bind_input(context, index, port->dtype, 0, NULL, NULL, error);
  }
  cyto_port shown;
  cyrt_port_describe(code, port, 1, &shown);
  snprintf(where, sizeof where, "input '%s'", port->name);
  if ((status = cyrt_value_check(value, shown.type, where, error)))
    return status;
  context->given[index] = *value;
  context->pointers[index] = no_elements;
  input_set_shape(context, index, 0, NULL);
  return CYTO_OK;
}

static cyto_status find_output(cyto_context *context, int32_t index, const cyrt_port **out_port, cyto_error *error) {
  const cyrt_model *code = context->model->code;
  cyrt_error_clear(error);
  cyto_status status = check_index(index, code->n_outputs, "output", error);
  *out_port = status ? NULL : &code->outputs[index];
  return status;
}

cyto_status cyto_bind_output(cyto_context *context, int32_t index, void *data, uint64_t capacity, cyto_error *error) {
  const cyrt_port *port;
  cyto_status status = find_output(context, index, &port, error);
  if (status || (status = check_alignment(data, port, "output", error)))
    return status;
  if (data && port->type)
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "output '%s': is no tensor: its memory is the context's",
                          port->name);
  context->outputs[index].bound = data;
  context->outputs[index].bound_bytes = data ? capacity : 0;
  context->placed = context->ran = 0;
  return CYTO_OK;
}

/* ---- planning ---- */

static cyto_status input_read_symbols(cyto_context *context, int32_t index, cyto_error *error) {
  const cyrt_model *code = context->model->code;
  const cyrt_port *port = &code->inputs[index];
  const int64_t *dims = context->inputs[index].dims;
  for (int32_t axis = 0; axis < port->rank; axis++) {
    int64_t symbol = -1 - port->dims[axis];
    if (symbol < 0 || symbol >= (int64_t)code->n_input_syms)
      continue;
    int32_t from = context->symbol_input[symbol];
    if (from < 0) {
      context->frame.syms[symbol] = dims[axis];
      context->symbol_input[symbol] = index;
      context->symbol_axis[symbol] = axis;
    } else if (context->frame.syms[symbol] != dims[axis]) {
      const char *name = code->sym_names && code->sym_names[symbol] ? code->sym_names[symbol] : "";
      return cyrt_error_set(error, CYTO_SHAPE_MISMATCH,
                            "input '%s': expected %lld on axis %d%s%s%s as on axis %d of input '%s', found %lld",
                            port->name, (long long)context->frame.syms[symbol], axis, *name ? " ('" : "", name,
                            *name ? "')" : "", context->symbol_axis[symbol], code->inputs[from].name,
                            (long long)dims[axis]);
    }
  }
  return CYTO_OK;
}

static cyto_status read_symbols(cyto_context *context, cyto_error *error) {
  const cyrt_model *code = context->model->code;
  for (uint32_t i = 0; i < code->n_input_syms; i++)
    context->symbol_input[i] = -1;
  for (uint32_t i = 0; i < code->n_inputs; i++) {
    const cyrt_port *port = &code->inputs[i];
    cyto_status status = CYTO_OK;
    if (context->inputs[i].has_shape) {
      status = input_read_symbols(context, (int32_t)i, error);
    } else if (!(port->flags & CYRT_PORT_OPTIONAL)) {
      char text[CYRT_DIMS_TEXT];
      cyto_port shown;
      cyrt_port_describe(code, port, 1, &shown);
      if (port->type)
        return cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "input '%s' is not bound, bind it by cyto_bind_value()",
                              port->name);
      status =
          cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "input '%s' is not bound: expected %s %s", port->name,
                         cyto_dtype_name(port->dtype), cyrt_dims_text(port->rank, shown.dims, shown.dim_names, text));
    }
    if (status)
      return status;
  }
  for (uint32_t i = 0; i < code->n_input_syms; i++)
    if (context->symbol_input[i] < 0)
      return cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "no bound input tells the size '%s'",
                            code->sym_names && code->sym_names[i] ? code->sym_names[i] : "");
  return CYTO_OK;
}

/* Calls generated code; a failure that it did not explain is explained here. */
static cyto_status call_code(cyto_context *context, int32_t (*code)(cyrt_frame *), const char *what,
                             cyto_error *error) {
  context->frame.error = error;
  int on_device = context->device && code == context->model->code->run;
  int32_t status = on_device ? context->model->code->device->run(context->device, &context->frame) : code(&context->frame);
  context->frame.error = NULL;
  if (status && error && error->code != status)
    cyrt_error_set(error, (cyto_status)status, "%s the model: %s", what, cyto_status_name(status));
  return (cyto_status)status;
}

static cyto_status context_plan(cyto_context *context, cyto_error *error) {
  cyto_status status = read_symbols(context, error);
  return status ? status : call_code(context, context->model->code->plan, "planning", error);
}

/* The bytes of an output that is not dynamic; -1 after an error. */
static int64_t output_bytes(const cyto_context *context, uint32_t index, cyto_error *error) {
  const cyrt_port *port = &context->model->code->outputs[index];
  const cyrt_output *output = &context->frame.outputs[index];
  char text[CYRT_DIMS_TEXT];
  int64_t bytes = port->type ? (int64_t)sizeof(int32_t) : cyto_tensor_bytes(port->dtype, port->rank, output->dims);
  if (bytes < 0)
    cyrt_error_set(error, CYTO_SHAPE_MISMATCH, "output '%s': the inputs' shapes give it the impossible shape %s",
                   port->name, cyrt_dims_text(port->rank, output->dims, NULL, text));
  return bytes;
}

static cyto_status output_place(cyto_context *context, uint32_t index, cyto_error *error) {
  const cyrt_port *port = &context->model->code->outputs[index];
  cyrt_output *output = &context->frame.outputs[index];
  output_state *state = &context->outputs[index];
  char text[CYRT_DIMS_TEXT];
  if (port->flags & CYRT_PORT_DYNAMIC) {
    output->ptr = state->bound ? state->bound : state->own;
    output->capacity = state->bound ? state->bound_bytes : state->own_bytes;
    return CYTO_OK;
  }
  int64_t bytes = output_bytes(context, index, error);
  if (bytes < 0)
    return CYTO_SHAPE_MISMATCH;
  if (state->bound && state->bound_bytes < (uint64_t)bytes)
    return cyrt_error_set(error, CYTO_BUFFER_TOO_SMALL,
                          "output '%s': needs %lld bytes for %s %s, the bound buffer holds %llu", port->name,
                          (long long)bytes, cyto_dtype_name(port->dtype),
                          cyrt_dims_text(port->rank, output->dims, NULL, text), (unsigned long long)state->bound_bytes);
  if (!state->bound && !memory_grow(context, &state->own, &state->own_bytes, (uint64_t)bytes))
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "output '%s': no memory for %lld bytes", port->name,
                          (long long)bytes);
  output->ptr = state->bound ? state->bound : state->own;
  output->capacity = state->bound ? state->bound_bytes : state->own_bytes;
  return CYTO_OK;
}

static cyto_status context_arena(cyto_context *context, cyto_error *error) {
  void *arena = context->frame.arena;
  int grown = memory_grow(context, &arena, &context->arena_capacity, context->frame.arena_bytes);
  context->frame.arena = arena;
  if (grown)
    return CYTO_OK;
  return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for %llu bytes of intermediate tensors",
                        (unsigned long long)context->frame.arena_bytes);
}

static cyto_status context_prepare(cyto_context *context, cyto_error *error) {
  cyto_status status;
  if (!context->planned) {
    if ((status = context_plan(context, error)))
      return status;
    if (!context->device && (status = context_arena(context, error)))
      return status;
    context->planned = 1;
  }
  for (uint32_t i = 0; !context->placed && i < context->model->code->n_outputs; i++)
    if ((status = output_place(context, i, error)))
      return status;
  if (!context->placed && context->device) {
    context->frame.error = error;
    status = (cyto_status)context->model->code->device->prepare(context->device, &context->frame);
    context->frame.error = NULL;
    if (status)
      return status;
  }
  context->placed = 1;
  return CYTO_OK;
}

/* ---- running ---- */

cyto_status cyto_context_prepare(cyto_context *context, cyto_error *error) {
  cyrt_error_clear(error);
  return context_prepare(context, error);
}

/* Strings and what is no tensor become numbers of the store, which is new with every run. */
static cyto_status values_enter(cyto_context *context, cyto_error *error) {
  const cyrt_model *code = context->model->code;
  struct cyrt_values *v = context->head.values;
  cyrt_values_reset(v);
  for (uint32_t i = 0; i < code->n_inputs; i++) {
    const cyrt_port *port = &code->inputs[i];
    int32_t *numbers = NULL;
    if (!context->pointers[i] || (port->dtype != CYTO_STRING && !port->type))
      continue;
    if (!port->type)
      numbers = cyrt_strings_enter(v, context->given[i].tensor.data, cyrt_count(port->rank, context->inputs[i].dims));
    else if ((numbers = v->api->alloc(v, sizeof *numbers)))
      *numbers = cyrt_value_enter(v, &context->given[i]);
    if (!numbers || (port->type && *numbers < 0))
      return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "input '%s': no memory for its strings or objects", port->name);
    context->pointers[i] = numbers;
  }
  return CYTO_OK;
}

static void strings_leave(cyto_context *context) {
  const cyrt_model *code = context->model->code;
  for (uint32_t i = 0; i < code->n_outputs; i++)
    if (code->outputs[i].dtype == CYTO_STRING)
      cyrt_strings_leave(context->head.values, context->frame.outputs[i].ptr,
                         cyrt_count(code->outputs[i].rank, context->frame.outputs[i].dims));
}

cyto_status cyto_run(cyto_context *context, cyto_error *error) {
  cyrt_error_clear(error);
  context->ran = 0;
  cyto_status status = context->placed ? CYTO_OK : context_prepare(context, error);
  if (!status && context->head.values)
    status = values_enter(context, error);
  if (!status)
    status = call_code(context, context->model->code->run, "running", error);
  if (!status && context->head.values)
    strings_leave(context);
  context->ran = !status;
  return status;
}

cyto_status cyto_output(cyto_context *context, int32_t index, cyto_tensor *out_tensor, cyto_error *error) {
  const cyrt_port *port;
  cyto_status status = find_output(context, index, &port, error);
  if (status)
    return status;
  const cyrt_output *output = &context->frame.outputs[index];
  if (port->type)
    return cyrt_error_set(error, CYTO_DTYPE_MISMATCH, "output '%s': is no tensor, read it by cyto_output_value()",
                          port->name);
  if (!context->ran && (!context->placed || (port->flags & CYRT_PORT_DYNAMIC)))
    return cyrt_error_set(error, CYTO_NOT_READY, "output '%s': not known before %s", port->name,
                          port->flags & CYRT_PORT_DYNAMIC ? "cyto_run()" : "cyto_context_prepare() or cyto_run()");
  memset(out_tensor, 0, sizeof *out_tensor);
  out_tensor->data = output->ptr;
  out_tensor->dtype = port->dtype;
  out_tensor->rank = port->rank;
  memcpy(out_tensor->dims, output->dims, sizeof out_tensor->dims);
  out_tensor->bytes = (uint64_t)cyto_tensor_bytes(port->dtype, port->rank, output->dims);
  return CYTO_OK;
}

cyto_status cyto_output_value(cyto_context *context, int32_t index, cyto_value *out_value, cyto_error *error) {
  const cyrt_port *port;
  cyto_status status = find_output(context, index, &port, error);
  if (status)
    return status;
  if (!context->ran)
    return cyrt_error_set(error, CYTO_NOT_READY, "output '%s': not known before cyto_run()", port->name);
  memset(out_value, 0, sizeof *out_value);
  if (!port->type)
    return cyto_output(context, index, &out_value->tensor, error);
  int32_t number;
  memcpy(&number, context->frame.outputs[index].ptr, sizeof number);
  status = cyrt_value_leave(context->head.values, number, port->type, out_value);
  return status ? cyrt_error_set(error, status, "output '%s': %s", port->name, cyto_status_name(status)) : CYTO_OK;
}

cyto_status cyto_memory_need(cyto_model *model, const cyto_options *options, const int64_t *const *input_dims,
                             cyto_memory *out_memory, cyto_error *error) {
  cyto_context *context = NULL;
  cyto_status status = cyto_context_create(model, options, &context, error);
  if (status)
    return status;
  const cyrt_model *code = model->code;
  memset(out_memory, 0, sizeof *out_memory);
  for (uint32_t i = 0; i < code->n_inputs && !status; i++) {
    const cyrt_port *port = &code->inputs[i];
    const int64_t *dims = input_dims && input_dims[i] ? input_dims[i] : port->dims;
    if (dims == port->dims && (port->flags & CYRT_PORT_OPTIONAL))
      continue;
    status = check_shape(context, port, port->rank, dims, error);
    if (!status)
      input_set_shape(context, (int32_t)i, port->rank, dims);
  }
  if (!status)
    status = context_plan(context, error);
  for (uint32_t i = 0; i < code->n_outputs && !status; i++) {
    if (code->outputs[i].flags & CYRT_PORT_DYNAMIC)
      continue;
    int64_t bytes = output_bytes(context, i, error);
    if (bytes < 0)
      status = CYTO_SHAPE_MISMATCH;
    else
      out_memory->outputs += (uint64_t)bytes;
  }
  out_memory->weights = code->weights_bytes;
  out_memory->arena = context->frame.arena_bytes;
  out_memory->context = context->block_bytes;
  cyto_context_destroy(context);
  return status;
}

/* ---- one call ---- */

/* A context for a linked model; the model's handle lives and dies with it. */
static cyto_status context_for_linked(const cyrt_model *linked, cyto_context **out_context, cyto_error *error) {
  cyto_model *model = NULL;
  cyto_status status = cyto_model_from_linked(linked, &model, error);
  if (!status)
    status = cyto_context_create(model, NULL, out_context, error);
  cyto_model_unload(model);
  return status;
}

cyto_status cyto_run_simple(const cyrt_model *linked, cyto_context **cache, const void *const *inputs,
                            const int64_t *symbols, void *const *outputs, cyto_error *error) {
  cyto_context *context = cache ? *cache : NULL;
  cyto_status status = context ? CYTO_OK : context_for_linked(linked, &context, error);
  if (status)
    return status;
  for (uint32_t i = 0; i < linked->n_inputs && !status; i++) {
    const cyrt_port *port = &linked->inputs[i];
    int64_t dims[CYTO_MAX_RANK];
    if (port->type) {
      status = cyto_bind_value(context, (int32_t)i, inputs[i], error);
      continue;
    }
    for (int32_t axis = 0; axis < port->rank; axis++)
      dims[axis] = port->dims[axis] >= 0 ? port->dims[axis] : symbols ? symbols[-1 - port->dims[axis]] : -1;
    status = cyto_bind_input(context, (int32_t)i, port->dtype, port->rank, dims, inputs[i], error);
  }
  for (uint32_t i = 0; i < linked->n_outputs && !status; i++)
    if (linked->outputs[i].type && !cache)
      status =
          cyrt_error_set(error, CYTO_INVALID_ARGUMENT,
                         "output '%s': is no tensor and lives in the context: give a cache", linked->outputs[i].name);
    else if (!linked->outputs[i].type && (context->outputs[i].bound != outputs[i] || !context->placed))
      status = cyto_bind_output(context, (int32_t)i, outputs[i], UINT64_MAX, error);
  if (!status)
    status = cyto_run(context, error);
  for (uint32_t i = 0; i < linked->n_outputs && !status; i++)
    if (linked->outputs[i].type && outputs[i])
      status = cyto_output_value(context, (int32_t)i, outputs[i], error);
  if (cache)
    *cache = context;
  else
    cyto_context_destroy(context);
  return status;
}
