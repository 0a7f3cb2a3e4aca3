/* SPDX-License-Identifier: Apache-2.0 */
/* lower_places.c - memory of values: buffers, places in them, and the steps that these need.
 *
 * In:  a value, or a type, of the graph. Out: its place (buffer, offset, strides), made on first use: inputs and outputs of
 * the model have their own buffers, constants theirs, everything else lies in the arena or, where its size follows from
 * data, in a slot that a step gives memory. Steps are appended at l->tail.
 */
#include "lower_int.h"

cy_dtype cy_compute_dtype(cy_dtype storage) {
  switch (storage) {
  case CY_I4:
  case CY_I2:
    return CY_I8;
  case CY_U4:
  case CY_U2:
    return CY_U8;
  case CY_STRING:
  case CY_REF:
    return CY_I32;
  default:
    return cy_dtype_is_float(storage) && storage != CY_F64 ? CY_F32 : storage;
  }
}

const cy_type *cy_lower_type(const cy_lowering *l, cy_val v) { return &cy_value_of(l->g, v)->type; }

void cy_lower_dense_strides(cy_graph *g, const cy_type *t, const uint8_t *layout, cy_dim *out_stride) {
  cy_dim stride = cy_dim_const(g, 1);
  for (int i = t->rank - 1; i >= 0; i--) {
    int axis = layout ? layout[i] : i;
    out_stride[axis] = stride;
    stride = cy_dim_mul(g, stride, t->dim[axis]);
  }
}

static cy_dim type_bytes(cy_graph *g, const cy_type *t) {
  int bits = cy_dtype_of(t->dtype)->bits;
  cy_dim n = cy_type_elems(g, t);
  return bits >= 8 ? cy_dim_muli(g, n, bits / 8) : cy_dim_cdiv(g, cy_dim_muli(g, n, bits), cy_dim_const(g, 8));
}

static cy_place place_in(cy_lowering *l, uint32_t buffer, const cy_type *t, const uint8_t *layout) {
  cy_place p = {.placed = true, .buffer = buffer, .offset = cy_dim_const(l->g, 0)};
  cy_lower_dense_strides(l->g, t, layout, p.stride);
  return p;
}

bool cy_lower_is_dynamic(const cy_lowering *l, const cy_type *t) {
  for (int i = 0; i < t->rank; i++)
    if (cy_dim_has_data_sym(l->g, t->dim[i]))
      return true;
  return false;
}

cy_step *cy_lower_step(cy_lowering *l, cy_step_kind kind) {
  cy_step *s = CY_NEW(cy_graph_arena(l->g), cy_step);
  s->kind = kind;
  s->node = l->node;
  *l->tail = s;
  l->tail = &s->next;
  return s;
}

cy_place cy_lower_port(cy_lowering *l, cy_buffer_kind kind, uint32_t index, const cy_type *t) {
  uint32_t buffer = cy_program_add_buffer(l->p, kind, index, type_bytes(l->g, t));
  if (kind == CY_BUF_OUTPUT && cy_lower_is_dynamic(l, t))
    cy_lower_step(l, CY_STEP_OUTPUT)->index = index;
  return place_in(l, buffer, t, NULL);
}

static void place_constant(cy_lowering *l, cy_val v) {
  cy_value *val = cy_value_of(l->g, v);
  uint32_t c = cy_program_add_constant(l->p, v, val->data.size, "", NULL, NULL, 1);
  uint32_t buffer = cy_program_add_buffer(l->p, CY_BUF_CONST, c, cy_dim_const(l->g, (int64_t)val->data.size));
  l->place[v] = place_in(l, buffer, &val->type, NULL);
}

cy_place *cy_lower_place(cy_lowering *l, cy_val v) {
  if (!l->place[v].placed && cy_value_of(l->g, v)->data.bytes)
    place_constant(l, v);
  if (!l->place[v].placed)
    cy_bug("value %%%u of '%s' is read before it has a place", v, cy_graph_name(l->g));
  return &l->place[v];
}

uint32_t cy_lower_buffer(cy_lowering *l, cy_dim bytes, bool dynamic) {
  if (dynamic)
    return cy_program_add_buffer(l->p, CY_BUF_DYNAMIC, l->p->ndynamic++, bytes);
  return cy_program_add_buffer(l->p, CY_BUF_ARENA, 0, bytes);
}

static uint32_t type_buffer(cy_lowering *l, const cy_type *t) {
  return cy_lower_buffer(l, type_bytes(l->g, t), cy_lower_is_dynamic(l, t));
}

cy_place cy_lower_unsized(cy_lowering *l, const cy_type *t) { return place_in(l, type_buffer(l, t), t, NULL); }

void cy_lower_size_buffer(cy_lowering *l, uint32_t buffer) {
  if (l->p->buffers[buffer].kind != CY_BUF_DYNAMIC)
    return;
  cy_step *s = cy_lower_step(l, CY_STEP_ALLOC);
  s->bind = CY_NEW(cy_graph_arena(l->g), cy_bind);
  *s->bind = (cy_bind){buffer, cy_dim_const(l->g, 0)};
  s->nbind = 1;
}

void cy_lower_size(cy_lowering *l, const cy_place *p) { cy_lower_size_buffer(l, p->buffer); }

int cy_lower_output_index(cy_lowering *l, cy_val v) {
  const cy_port_info *ports;
  uint32_t n = cy_graph_outputs(l->g, &ports);
  for (uint32_t i = 0; i < n; i++)
    if (ports[i].value == v)
      return (int)i;
  return -1;
}

void cy_lower_alloc(cy_lowering *l, cy_val v) {
  if (l->place[v].placed)
    return;
  const cy_value *val = cy_value_of(l->g, v);
  int output = cy_lower_output_index(l, v);
  if (output >= 0) {
    l->place[v] = cy_lower_port(l, CY_BUF_OUTPUT, (uint32_t)output, &val->type);
    return;
  }
  l->place[v] = place_in(l, type_buffer(l, &val->type), &val->type, val->layout);
  cy_lower_size(l, &l->place[v]);
}

cy_place cy_lower_temp(cy_lowering *l, cy_dtype dtype, const cy_dim *dims, int rank) {
  cy_type t = cy_type_make(dtype, rank, dims);
  cy_place p = cy_lower_unsized(l, &t);
  cy_lower_size(l, &p);
  return p;
}

bool cy_lower_is_contiguous(const cy_lowering *l, const cy_place *p, const cy_type *t) {
  cy_dim want[CY_MAX_RANK];
  cy_lower_dense_strides(l->g, t, NULL, want);
  for (int i = 0; i < t->rank; i++)
    if (p->stride[i] != want[i] && !cy_dim_is(l->g, t->dim[i], 1))
      return false;
  return true;
}

cy_bind cy_lower_bind(cy_lowering *l, const cy_place *p, cy_dtype dtype) {
  int bits = cy_dtype_of(dtype)->bits;
  cy_dim bytes = bits >= 8 ? cy_dim_muli(l->g, p->offset, bits / 8)
                           : cy_dim_div(l->g, cy_dim_muli(l->g, p->offset, bits), cy_dim_const(l->g, 8));
  return (cy_bind){p->buffer, bytes};
}

void cy_lower_read(cy_lowering *l, const cy_place *p, cy_dtype dtype, cy_sym sym) {
  cy_step *s = cy_lower_step(l, CY_STEP_READ);
  s->bind = CY_NEW(cy_graph_arena(l->g), cy_bind);
  *s->bind = cy_lower_bind(l, p, dtype);
  s->nbind = 1;
  s->dtype = dtype;
  s->sym = sym;
}
