/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* context_bind.c - tensors and values bound to a context: what is bound must fit the model.
 *
 * In: pointers of the caller, with dtype, shape and capacity. Out: the context's inputs and outputs, and states lost
 * where something else is bound than before (context.h).
 */
#include "context.h"

#include <stdio.h>
#include <string.h>

/* What inputs without elements point to: not NULL, which would mean unbound. */
static const _Alignas(64) uint8_t no_elements[64];

/* ---- checks ---- */

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

cyto_status cyrt_input_check_shape(const cyto_context *context, const cyrt_port *port, int32_t rank,
                                   const int64_t *dims, cyto_error *error) {
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

void cyrt_input_set_shape(cyto_context *context, int32_t index, int32_t rank, const int64_t *dims) {
  cyrt_input_state *input = &context->inputs[index];
  size_t bytes = (size_t)rank * sizeof *dims;
  if (input->has_shape && (!bytes || !memcmp(input->dims, dims, bytes)))
    return;
  if (bytes)
    memcpy(input->dims, dims, bytes);
  input->has_shape = 1;
  context->planned = context->placed = context->ran = 0;
}

/* ---- inputs ---- */

enum { WHERE_TEXT = 160 };

static void name_input(const cyrt_port *port, char out_text[WHERE_TEXT]) {
  snprintf(out_text, WHERE_TEXT, "input '%s'", port->name);
}

cyto_status cyto_bind_input(cyto_context *context, int32_t index, int32_t dtype, int32_t rank, const int64_t *dims,
                            const void *data, cyto_error *error) {
  if (!context)
    return cyrt_error_null(error, "cyto_bind_input: no context");
  const cyrt_model *code = context->model->code;
  cyrt_error_clear(error);
  cyto_status status = check_index(index, code->n_inputs, "input", error);
  if (status)
    return status;
  const cyrt_port *port = &code->inputs[index];
  char where[WHERE_TEXT];
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
  if ((status = cyrt_input_check_shape(context, port, rank, dims, error)) ||
      (status = check_alignment(data, port, "input", error)))
    return status;
  if (!data && cyrt_count(rank, dims) > 0)
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "input '%s': no data, and the input is not optional",
                          port->name);
  if (dtype == CYTO_STRING) {
    name_input(port, where);
    if ((status = cyrt_strings_check(data, cyrt_count(rank, dims), where, error)))
      return status;
    context->given[index] = (cyto_value){.tensor = {.data = (void *)data}};
  }
  const void *at = data ? data : no_elements;
  context->apart &= context->pointers[index] == at;
  context->pointers[index] = at;
  cyrt_input_set_shape(context, index, rank, dims);
  return CYTO_OK;
}

cyto_status cyto_bind_value(cyto_context *context, int32_t index, const cyto_value *value, cyto_error *error) {
  if (!context)
    return cyrt_error_null(error, "cyto_bind_value: no context");
  const cyrt_model *code = context->model->code;
  char where[WHERE_TEXT];
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
  name_input(port, where);
  if ((status = cyrt_value_check(value, shown.type, where, error)))
    return status;
  context->given[index] = *value;
  context->pointers[index] = no_elements;
  cyrt_input_set_shape(context, index, 0, NULL);
  return CYTO_OK;
}

/* ---- outputs ---- */

cyto_status cyrt_output_find(cyto_context *context, int32_t index, const cyrt_port **out_port, cyto_error *error) {
  if (!context)
    return cyrt_error_null(error, "no context, or no place for the output");
  const cyrt_model *code = context->model->code;
  cyrt_error_clear(error);
  cyto_status status = check_index(index, code->n_outputs, "output", error);
  *out_port = status ? NULL : &code->outputs[index];
  return status;
}

cyto_status cyto_bind_output(cyto_context *context, int32_t index, void *data, uint64_t capacity, cyto_error *error) {
  const cyrt_port *port;
  cyto_status status = cyrt_output_find(context, index, &port, error);
  if (status || (status = check_alignment(data, port, "output", error)))
    return status;
  if (data && port->type)
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "output '%s': is no tensor: its memory is the context's",
                          port->name);
  if (data && cyrt_output_is_kept(context, (uint32_t)index))
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT,
                          "output '%s': is kept by the context: end that first, by cyto_context_keep(context, 0, ..)",
                          port->name);
  context->outputs[index].bound = data;
  context->outputs[index].bound_bytes = data ? capacity : 0;
  context->placed = context->apart = context->ran = 0;
  return CYTO_OK;
}

/* ---- memory that inputs and outputs have in common ---- */

static int overlap(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes) {
  uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
  return x < y ? y - x < a_bytes : x - y < b_bytes;
}

static cyto_status check_input_apart(const cyto_context *context, uint32_t index, uint32_t input, const void *ptr,
                                     uint64_t extent, uint64_t bytes, cyto_error *error) {
  const cyrt_model *code = context->model->code;
  const cyrt_port *in = &code->inputs[input], *out = &code->outputs[index];
  if (in->type || in->dtype == CYTO_STRING || !context->pointers[input])
    return CYTO_OK;
  int64_t there = cyto_tensor_bytes(in->dtype, in->rank, context->inputs[input].dims);
  if (there <= 0 || !overlap(ptr, extent, context->pointers[input], (uint64_t)there))
    return CYTO_OK;
  if (out->shares != (int64_t)input + 1)
    return cyrt_error_set(
        error, CYTO_INVALID_ARGUMENT,
        "output '%s' overlaps input '%s', but cannot be made in its memory: give it memory of its own", out->name,
        in->name);
  if (ptr == context->pointers[input] && bytes == (uint64_t)there)
    return CYTO_OK;
  return cyrt_error_set(
      error, CYTO_INVALID_ARGUMENT,
      "output '%s', %llu bytes, overlaps input '%s', %lld bytes: to share memory, they must begin at the "
      "same address and be of one size",
      out->name, (unsigned long long)bytes, in->name, (long long)there);
}

cyto_status cyrt_output_check_apart(const cyto_context *context, uint32_t index, const void *ptr, uint64_t extent,
                                    uint64_t bytes, cyto_error *error) {
  const cyrt_model *code = context->model->code;
  cyto_status status = CYTO_OK;
  if (!ptr || !extent)
    return CYTO_OK;
  for (uint32_t i = 0; i < code->n_inputs && !status; i++)
    status = check_input_apart(context, index, i, ptr, extent, bytes, error);
  for (uint32_t i = 0; i < code->n_outputs && !status; i++) {
    const cyrt_port *other = &code->outputs[i];
    if (i == index || !context->outputs[i].bound || other->type)
      continue;
    int64_t there = other->flags & CYRT_PORT_DYNAMIC
                        ? 1 /* not known yet */
                        : cyto_tensor_bytes(other->dtype, other->rank, context->frame.outputs[i].dims);
    if (there > 0 && overlap(ptr, extent, context->outputs[i].bound, (uint64_t)there))
      return cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "output '%s' overlaps output '%s'", code->outputs[index].name,
                            other->name);
  }
  return status;
}
