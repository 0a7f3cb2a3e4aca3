/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* context_keep.c - caches that grow: outputs that continue inputs, kept by the context from run to run.
 *
 * In: a model some of whose outputs are inputs with more behind them along an axis (cyrt_port.continues). Out: for each, one
 * piece of memory in which both lie, laid out as if that axis had frame.room elements, so that a run only writes what is
 * new. There is one room for all of a model, which generated code reads from the frame. When a run needs more of it, all
 * pieces are made anew, twice as large, and what is in them moves; this is also how an input that the caller bound
 * comes in. The pointer of an input tells where it lies: in its piece, or with the caller. Pieces are memory of the
 * model's device where it has one, which then copies, too.
 */
#include "context.h"

#include <string.h>

/* The bytes of one element along the axis, and how often there is a run of them. */
typedef struct row_shape {
  uint64_t bytes, outer;
} row_shape;

/* False: the sizes overflow. */
static int rows_of(const cyrt_port *port, const int64_t *dims, row_shape *out) {
  int64_t inner = cyto_tensor_bytes(port->dtype, port->rank - port->axis - 1, dims + port->axis + 1);
  int64_t outer = cyrt_count(port->axis, dims);
  *out = (row_shape){(uint64_t)inner, (uint64_t)outer};
  return inner >= 0 && outer >= 0;
}

/* ---- memory: the context's, or the device's ---- */

static cyto_status piece_get(cyto_context *context, uint64_t bytes, void **out, cyto_error *error) {
  if (context->device)
    return (cyto_status)context->model->code->device->keep_get(context->device, bytes, out, error);
  *out = cyrt_memory_get(context, bytes);
  return *out ? CYTO_OK : CYTO_OUT_OF_MEMORY;
}

static void piece_give(cyto_context *context, void *ptr, uint64_t bytes) {
  if (context->device)
    context->model->code->device->keep_give(context->device, ptr);
  else
    cyrt_memory_give(context, ptr, bytes);
}

/* `count` elements along the axis, from the beginning. `to` is the caller's to read at once when `wait`. */
static cyto_status move_rows(const cyto_context *context, const row_shape *r, const void *from, uint64_t from_room,
                             void *to, uint64_t to_room, uint64_t count, int wait, cyto_error *error) {
  const cyrt_rows rows = {from, to, from_room * r->bytes, to_room * r->bytes, count * r->bytes, r->outer};
  if (!rows.bytes || !rows.count)
    return CYTO_OK;
  if (context->device)
    return (cyto_status)context->model->code->device->keep_move(context->device, &rows, wait, error);
  for (uint64_t i = 0; i < rows.count; i++)
    memcpy((uint8_t *)to + i * rows.to_step, (const uint8_t *)from + i * rows.from_step, rows.bytes);
  return CYTO_OK;
}

/* ---- room ---- */

/* The elements along its axis that the longest of the kept outputs will have. */
static int64_t needed_room(const cyto_context *context) {
  const cyrt_model *code = context->model->code;
  int64_t max = context->wanted_room;
  for (uint32_t i = 0; i < code->n_outputs; i++) {
    const cyrt_port *port = &code->outputs[i];
    if (port->continues && context->frame.outputs[i].dims[port->axis] > max)
      max = context->frame.outputs[i].dims[port->axis];
  }
  return max;
}

static cyto_status no_room(const cyrt_port *port, int64_t room, cyto_error *error) {
  if (error && error->code) /* the device said why */
    return error->code;
  return cyrt_error_set(error, CYTO_OUT_OF_MEMORY,
                        "output '%s': no memory to keep it in, with room for %lld on axis %d", port->name,
                        (long long)room, port->axis);
}

/* The piece for output i with that much room: the one that there is, or a new one. */
static cyto_status get_piece(cyto_context *context, uint32_t i, int64_t room, void **out, uint64_t *out_bytes,
                             cyto_error *error) {
  const cyrt_port *port = &context->model->code->outputs[i];
  const cyrt_output_state *state = &context->outputs[i];
  row_shape r;
  uint64_t bytes;
  if (!rows_of(port, context->frame.outputs[i].dims, &r) || __builtin_mul_overflow(r.bytes, (uint64_t)room, &bytes) ||
      __builtin_mul_overflow(bytes, r.outer, &bytes))
    return no_room(port, room, error);
  *out = state->kept;
  *out_bytes = state->kept_bytes;
  if (state->kept && room == context->frame.room && state->kept_bytes >= bytes)
    return CYTO_OK;
  *out_bytes = bytes;
  cyto_status status = piece_get(context, bytes, out, error);
  return status == CYTO_OUT_OF_MEMORY ? no_room(port, room, error) : status;
}

/* Output i has a new piece: an input that lies in the old one moves. */
static cyto_status take_piece(cyto_context *context, uint32_t i, int64_t room, void *piece, uint64_t bytes,
                              cyto_error *error) {
  const cyrt_port *port = &context->model->code->outputs[i];
  cyrt_output_state *state = &context->outputs[i];
  uint32_t input = (uint32_t)port->continues - 1;
  if (piece == state->kept)
    return CYTO_OK;
  if (state->kept && context->pointers[input] == state->kept) {
    row_shape r;
    rows_of(port, context->inputs[input].dims, &r);
    cyto_status status = move_rows(context, &r, state->kept, (uint64_t)context->frame.room, piece, (uint64_t)room,
                                   (uint64_t)context->inputs[input].dims[port->axis], 0, error);
    if (status)
      return status;
    context->pointers[input] = piece;
  }
  piece_give(context, state->kept, state->kept_bytes);
  state->kept = piece;
  state->kept_bytes = bytes;
  return CYTO_OK;
}

static void drop_pieces(cyto_context *context, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    cyrt_output_state *state = &context->outputs[i];
    if (context->model->code->outputs[i].continues && state->next != state->kept)
      piece_give(context, state->next, state->next_bytes);
  }
}

static void stop_keeping(cyto_context *context);

/* All new pieces are there. What a device cannot copy is lost: some pieces have the new room, others the old one. */
static cyto_status swap_pieces(cyto_context *context, int64_t room, cyto_error *error) {
  const cyrt_model *code = context->model->code;
  int64_t wanted = context->wanted_room;
  for (uint32_t i = 0; i < code->n_outputs; i++) {
    cyrt_output_state *state = &context->outputs[i];
    cyto_status status =
        code->outputs[i].continues ? take_piece(context, i, room, state->next, state->next_bytes, error) : CYTO_OK;
    if (status) {
      drop_pieces(context, code->n_outputs);
      stop_keeping(context);
      context->wanted_room = wanted;
      return status;
    }
  }
  context->frame.room = room;
  return CYTO_OK;
}

cyto_status cyrt_keep_place(cyto_context *context, cyto_error *error) {
  const cyrt_model *code = context->model->code;
  int64_t room = needed_room(context);
  if (room <= context->frame.room)
    room = context->frame.room;
  else if (context->frame.room && room < INT64_MAX / 2 && room < 2 * context->frame.room)
    room = 2 * context->frame.room;
  for (uint32_t i = 0; i < code->n_outputs; i++) {
    cyrt_output_state *state = &context->outputs[i];
    cyto_status status =
        code->outputs[i].continues ? get_piece(context, i, room, &state->next, &state->next_bytes, error) : CYTO_OK;
    if (status) {
      drop_pieces(context, i);
      return status;
    }
  }
  return swap_pieces(context, room, error);
}

/* ---- a run ---- */

cyto_status cyrt_keep_enter(cyto_context *context, cyto_error *error) {
  const cyrt_model *code = context->model->code;
  for (uint32_t i = 0; i < code->n_outputs; i++) {
    const cyrt_port *port = &code->outputs[i];
    const cyrt_output_state *state = &context->outputs[i];
    row_shape r;
    if (!port->continues || context->pointers[port->continues - 1] == state->kept)
      continue;
    const int64_t *dims = context->inputs[port->continues - 1].dims;
    rows_of(port, dims, &r);
    cyto_status status = move_rows(context, &r, context->pointers[port->continues - 1], (uint64_t)dims[port->axis],
                                   state->kept, (uint64_t)context->frame.room, (uint64_t)dims[port->axis], 0, error);
    if (status)
      return status;
    context->pointers[port->continues - 1] = state->kept;
  }
  return CYTO_OK;
}

void cyrt_keep_leave(cyto_context *context) {
  const cyrt_model *code = context->model->code;
  for (uint32_t i = 0; i < code->n_outputs; i++)
    if (code->outputs[i].continues)
      cyrt_input_set_shape(context, code->outputs[i].continues - 1, code->outputs[i].rank,
                           context->frame.outputs[i].dims);
}

void *cyrt_keep_dense(cyto_context *context, uint32_t index, cyto_error *error) {
  const cyrt_port *port = &context->model->code->outputs[index];
  cyrt_output_state *state = &context->outputs[index];
  const int64_t *dims = context->frame.outputs[index].dims;
  int64_t bytes = cyto_tensor_bytes(port->dtype, port->rank, dims);
  row_shape r;
  if (bytes < 0 || !rows_of(port, dims, &r))
    return NULL;
  if (r.outer == 1 && !context->device)
    return state->kept;
  if (!cyrt_memory_grow(context, &state->own, &state->own_bytes, (uint64_t)bytes))
    return NULL;
  cyto_status status = context->ran ? move_rows(context, &r, state->kept, (uint64_t)context->frame.room, state->own,
                                                (uint64_t)dims[port->axis], (uint64_t)dims[port->axis], 1, error)
                                    : CYTO_OK;
  return status ? NULL : state->own;
}

/* ---- what the application calls ---- */

/* Inputs that lie in memory that will not be kept any longer are bound no more. */
static void stop_keeping(cyto_context *context) {
  const cyrt_model *code = context->model->code;
  for (uint32_t i = 0; i < code->n_outputs; i++) {
    cyrt_output_state *state = &context->outputs[i];
    int32_t input = code->outputs[i].continues - 1;
    if (input < 0 || !state->kept)
      continue;
    if (context->pointers[input] == state->kept) {
      context->pointers[input] = NULL;
      context->inputs[input].has_shape = 0;
    }
    piece_give(context, state->kept, state->kept_bytes);
    state->kept = NULL;
    state->kept_bytes = 0;
  }
  context->wanted_room = context->frame.room = 0;
}

void cyrt_keep_end(cyto_context *context) {
  for (uint32_t i = 0; i < context->model->code->n_outputs; i++)
    if (context->outputs[i].kept)
      piece_give(context, context->outputs[i].kept, context->outputs[i].kept_bytes);
}

cyto_status cyto_context_keep(cyto_context *context, int64_t room, cyto_error *error) {
  if (!context)
    return cyrt_error_null(error, "cyto_context_keep: no context");
  cyrt_error_clear(error);
  const cyrt_model *code = context->model->code;
  int found = 0;
  if (room < 0)
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "cyto_context_keep: room for %lld elements", (long long)room);
  if (room && context->spread)
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "cyto_context_keep: not with several devices");
  for (uint32_t i = 0; i < code->n_outputs; i++) {
    found |= code->outputs[i].continues;
    if (room && code->outputs[i].continues && context->outputs[i].bound)
      return cyrt_error_set(
          error, CYTO_INVALID_ARGUMENT,
          "output '%s': is bound, and can't be kept: unbind it first, by cyto_bind_output() with NULL",
          code->outputs[i].name);
  }
  if (room && !found)
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT,
                          "cyto_context_keep: no output of the model is an input with more behind it");
  if (!room)
    stop_keeping(context);
  else
    context->wanted_room = room;
  context->planned = context->placed = context->ran = 0;
  return CYTO_OK;
}

cyto_status cyto_context_rewind(cyto_context *context, int64_t rows, cyto_error *error) {
  if (!context)
    return cyrt_error_null(error, "cyto_context_rewind: no context");
  cyrt_error_clear(error);
  const cyrt_model *code = context->model->code;
  if (!context->frame.room || rows < 0)
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT,
                          "cyto_context_rewind: nothing is kept yet, or %lld is not a number of rows", (long long)rows);
  for (int pass = 0; pass < 2; pass++) /* all are checked before one is changed */
    for (uint32_t i = 0; i < code->n_outputs; i++) {
      const cyrt_port *port = &code->outputs[i];
      if (!port->continues)
        continue;
      int64_t dims[CYTO_MAX_RANK];
      memcpy(dims, context->inputs[port->continues - 1].dims, sizeof dims);
      if (rows > dims[port->axis])
        return cyrt_error_set(error, CYTO_INVALID_ARGUMENT,
                              "cyto_context_rewind: output '%s' has %lld rows along axis %d, not %lld", port->name,
                              (long long)dims[port->axis], port->axis, (long long)rows);
      dims[port->axis] = rows;
      if (pass)
        cyrt_input_set_shape(context, port->continues - 1, port->rank, dims);
    }
  return CYTO_OK;
}
