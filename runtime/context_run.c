/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* context_run.c - planning, placing and running a model whose inputs are bound, and reading what came of it.
 *
 * In: a context with bound inputs. Out: outputs in memory of the caller or of the context; sizes of what a run would
 * take (cyto_memory_need); all of it in one call (cyto_run_simple, for the functions of generated headers).
 */
#include "context.h"

#include <string.h>

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
                            "input '%s': expected %lld on axis %d%s%s%s as on axis %d of input '%s', found %lld%s%s%s",
                            port->name, (long long)context->frame.syms[symbol], axis, *name ? " ('" : "", name,
                            *name ? "')" : "", context->symbol_axis[symbol], code->inputs[from].name,
                            (long long)dims[axis], *name ? "; sizes may differ in a library compiled with --dim '" : "",
                            name, *name ? "=?'" : "");
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
  const cyrt_model *model = context->model->code;
  int on_device = context->device && code == model->run;
  int32_t status = on_device ? model->device->run(context->device, &context->frame) : code(&context->frame);
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
  cyrt_output_state *state = &context->outputs[index];
  char text[CYRT_DIMS_TEXT];
  if (port->flags & CYRT_PORT_DYNAMIC) {
    output->ptr = state->bound ? state->bound : state->own;
    output->capacity = state->bound ? state->bound_bytes : state->own_bytes;
    return CYTO_OK;
  }
  int64_t bytes = output_bytes(context, index, error);
  if (bytes < 0)
    return CYTO_SHAPE_MISMATCH;
  if (cyrt_output_is_kept(context, index)) {
    output->ptr = state->kept;
    output->capacity = state->kept_bytes;
    return CYTO_OK;
  }
  if (state->bound && state->bound_bytes < (uint64_t)bytes)
    return cyrt_error_set(error, CYTO_BUFFER_TOO_SMALL,
                          "output '%s': needs %lld bytes for %s %s, the bound buffer holds %llu", port->name,
                          (long long)bytes, cyto_dtype_name(port->dtype),
                          cyrt_dims_text(port->rank, output->dims, NULL, text), (unsigned long long)state->bound_bytes);
  cyto_status status =
      cyrt_output_check_apart(context, index, state->bound ? state->bound : state->own,
                              state->bound ? (uint64_t)bytes : state->own_bytes, (uint64_t)bytes, error);
  if (status)
    return status;
  if (!state->bound && !cyrt_memory_grow(context, &state->own, &state->own_bytes, (uint64_t)bytes))
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "output '%s': no memory for %lld bytes", port->name,
                          (long long)bytes);
  output->ptr = state->bound ? state->bound : state->own;
  output->capacity = state->bound ? state->bound_bytes : state->own_bytes;
  return CYTO_OK;
}

static cyto_status context_arena(cyto_context *context, cyto_error *error) {
  void *arena = context->frame.arena;
  int grown = cyrt_memory_grow(context, &arena, &context->arena_capacity, context->frame.arena_bytes);
  context->frame.arena = arena;
  if (grown)
    return CYTO_OK;
  return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for %llu bytes of intermediate tensors",
                        (unsigned long long)context->frame.arena_bytes);
}

cyto_status cyrt_context_plan(cyto_context *context, cyto_error *error) {
  cyto_status status;
  if (context->planned)
    return CYTO_OK;
  if ((status = context_plan(context, error)))
    return status;
  if (!context->device && !context->spread && (status = context_arena(context, error)))
    return status;
  context->planned = 1;
  context->ran = 0;
  return CYTO_OK;
}

static cyto_status context_prepare(cyto_context *context, cyto_error *error) {
  cyto_status status = cyrt_context_plan(context, error);
  if (status)
    return status;
  if (context->wanted_room && !context->placed && (status = cyrt_keep_place(context, error)))
    return status;
  int placed = context->placed && context->apart;
  for (uint32_t i = 0; !placed && i < context->model->code->n_outputs; i++)
    if ((status = output_place(context, i, error)))
      return status;
  if (!context->placed && context->device) {
    context->frame.error = error;
    status = (cyto_status)context->model->code->device->prepare(context->device, &context->frame);
    context->frame.error = NULL;
    if (status)
      return status;
  }
  context->placed = context->apart = 1;
  return CYTO_OK;
}

/* ---- running ---- */

cyto_status cyto_context_prepare(cyto_context *context, cyto_error *error) {
  if (!context)
    return cyrt_error_null(error, "cyto_context_prepare: no context");
  cyrt_error_clear(error);
  return context_prepare(context, error);
}

/* Strings, sequences, maps and optional values become numbers of the store, which is new with every run. */
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

static cyto_status run_placed(cyto_context *context, cyrt_trace *trace, cyto_error *error) {
  cyto_status status = context->placed && context->apart ? CYTO_OK : context_prepare(context, error);
  if (!status && trace)
    trace->planned(trace, context);
  if (!status && context->wanted_room)
    status = cyrt_keep_enter(context, error);
  if (!status && context->head.values)
    status = values_enter(context, error);
  if (!status)
    status = context->spread ? context->spread->run(context, error)
                             : call_code(context, context->model->code->run, "running", error);
  if (!status && context->head.values)
    strings_leave(context);
  if (!status && context->wanted_room)
    cyrt_keep_leave(context);
  return status;
}

cyto_status cyto_run(cyto_context *context, cyto_error *error) {
  if (!context)
    return cyrt_error_null(error, "cyto_run: no context");
  cyrt_error_clear(error);
  context->ran = 0;
  cyrt_trace *trace = __atomic_load_n(&context->model->trace, __ATOMIC_ACQUIRE);
  if (trace && !trace->enter(trace, context, cyrt_os_now_ns()))
    trace = NULL;
  cyto_status status = run_placed(context, trace, error);
  if (trace)
    trace->leave(trace, context, status, error);
  context->ran = !status;
  return status;
}

cyto_status cyto_output(cyto_context *context, int32_t index, cyto_tensor *out_tensor, cyto_error *error) {
  const cyrt_port *port;
  cyto_status status = cyrt_output_find(out_tensor ? context : NULL, index, &port, error);
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
  out_tensor->data =
      cyrt_output_is_kept(context, (uint32_t)index) ? cyrt_keep_dense(context, (uint32_t)index, error) : output->ptr;
  if (!out_tensor->data && output->ptr && error && error->code)
    return error->code;
  if (!out_tensor->data && output->ptr)
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "output '%s': no memory for a copy of what is kept", port->name);
  out_tensor->dtype = port->dtype;
  out_tensor->rank = port->rank;
  memcpy(out_tensor->dims, output->dims, sizeof out_tensor->dims);
  out_tensor->bytes = (uint64_t)cyto_tensor_bytes(port->dtype, port->rank, output->dims);
  return CYTO_OK;
}

cyto_status cyto_output_value(cyto_context *context, int32_t index, cyto_value *out_value, cyto_error *error) {
  const cyrt_port *port;
  cyto_status status = cyrt_output_find(out_value ? context : NULL, index, &port, error);
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
  if (!out_memory)
    return cyrt_error_null(error, "cyto_memory_need: no place for the result");
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
    status = cyrt_input_check_shape(context, port, port->rank, dims, error);
    if (!status)
      cyrt_input_set_shape(context, (int32_t)i, port->rank, dims);
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
  cyrt_context_free(context);
  return status;
}

/* ---- one call ---- */

/* A context for a linked model; the model's handle lives and dies with it. */
static cyto_status context_for_linked(const cyrt_model *linked, const cyto_options *options, cyto_context **out_context,
                                      cyto_error *error) {
  cyto_model *model = NULL;
  cyto_status status = cyto_model_from_linked(linked, &model, error);
  if (!status)
    status = cyto_context_create(model, options, out_context, error);
  cyto_model_unload(model);
  return status;
}

cyto_status cyto_create_simple(const cyrt_model *linked, cyto_context **cache, const cyto_simple_options *options,
                               cyto_error *error) {
  cyto_options all = {0};
  if (!linked || !cache)
    return cyrt_error_null(error, "no model or no cache");
  if (*cache)
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT,
                          "there is a context in the cache: destroy it, and set it to NULL");
  if (options) {
    all.threads = options->threads;
    all.device = options->device;
  }
  return context_for_linked(linked, &all, cache, error);
}

cyto_status cyto_run_simple(const cyrt_model *linked, cyto_context **cache, const void *const *inputs,
                            const int64_t *symbols, void *const *outputs, cyto_error *error) {
  cyto_context *context = cache ? *cache : NULL;
  if (!linked || (linked->n_inputs && !inputs) || (linked->n_outputs && !outputs))
    return cyrt_error_null(error, "no model, no inputs or no outputs");
  if (context && context->model->code != linked)
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "the cache is that of another model");
  cyto_status status = context ? CYTO_OK : context_for_linked(linked, NULL, &context, error);
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
    cyrt_context_free(context);
  return status;
}
