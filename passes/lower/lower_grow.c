/* SPDX-License-Identifier: Apache-2.0 */
/* lower_grow.c - outputs that continue inputs: caches to which every run appends some rows.
 *
 * In: a concatenation of a model's input and what is new, along an axis of symbolic size, that is an output of the model
 * (past and present keys and values, as exporters write them). Out: places for both whose strides leave room along
 * that axis, and a step ROOM that asks when a run begins how much there is. 0: input and output are dense, and the
 * input is copied, as by any concatenation. Else both lie in one piece of memory, whose rows are that many: what is new
 * goes behind the input, and the copy is left out.
 * All such outputs of a model have the room in common, for one symbol: layers are equal and share their kernels.
 */
#include "lower_int.h"
#include "passes/pass_int.h"

/* The number of the input that v is, or -1; those with a default may be unbound. */
static int input_index(cy_lowering *l, cy_val v) {
  const cy_port_info *ports;
  uint32_t n = cy_graph_inputs(l->g, &ports);
  for (uint32_t i = 0; i < n; i++)
    if (ports[i].value == v && !cy_value_of(l->g, v)->data.bytes)
      return (int)i;
  return -1;
}

/* Are all sizes but that of `axis` equal, and is that one open? */
static bool grows_along(cy_lowering *l, const cy_type *past, const cy_type *present, int axis) {
  if (cy_dim_is_const(l->g, past->dim[axis], NULL))
    return false;
  for (int i = 0; i < past->rank; i++)
    if (i != axis && past->dim[i] != present->dim[i])
      return false;
  return !cy_lower_is_dynamic(l, present);
}

static bool is_continued(cy_lowering *l, cy_val present, cy_memory_growth *out) {
  const cy_node_info *n = cy_def(l->g, present);
  const cy_value *v = cy_value_of(l->g, present);
  if (!n || n->op != CY_OP_concat || n->block != 1 || n->nin < 2 || v->inlined || v->data.bytes ||
      !cy_layout_is_row_major(v))
    return false;
  const cy_type *t = &v->type, *past = cy_lower_type(l, n->in[0]);
  int input = input_index(l, n->in[0]);
  out->input = (uint32_t)input;
  out->axis = (int)cy_attr_get_int(n, CY_ATTR_axis, 0);
  return input >= 0 && cy_dtype_of((cy_dtype)t->dtype)->bits >= 8 && t->dtype != CY_STRING && t->dtype != CY_REF &&
         past->dtype == t->dtype && grows_along(l, past, t, out->axis);
}

static bool input_taken(const cy_program *p, uint32_t input) {
  for (uint32_t i = 0; i < p->ngrowths; i++)
    if (p->growths[i].input == input)
      return true;
  return false;
}

/* Gives v, which may be placed already, strides that leave room along an axis. */
static void leave_room(cy_lowering *l, cy_val v, int axis) {
  cy_type roomy = *cy_lower_type(l, v);
  roomy.dim[axis] = cy_dim_max(l->g, roomy.dim[axis], cy_dim_sym(l->g, l->p->room));
  cy_lower_alloc(l, v);
  cy_lower_dense_strides(l->g, &roomy, NULL, l->place[v].stride);
}

static void ask_room(cy_lowering *l) {
  l->p->room = cy_sym_new(l->g, NULL, CY_SYM_ROOM);
  cy_lower_step(l, CY_STEP_ROOM)->sym = l->p->room;
}

void cy_lower_growing_places(cy_lowering *l) {
  const cy_port_info *outputs, *inputs;
  uint32_t n = cy_graph_outputs(l->g, &outputs);
  cy_graph_inputs(l->g, &inputs);
  cy_program *p = l->p;
  for (uint32_t i = 0; i < n; i++) {
    cy_memory_growth growth = {.output = i};
    if (l->place[outputs[i].value].placed || !is_continued(l, outputs[i].value, &growth) ||
        input_taken(p, growth.input))
      continue;
    if (!p->room)
      ask_room(l);
    leave_room(l, inputs[growth.input].value, growth.axis);
    leave_room(l, outputs[i].value, growth.axis);
    p->growths = cy_arena_grow(cy_graph_arena(l->g), p->growths, p->ngrowths, &p->growths_cap, sizeof *p->growths);
    p->growths[p->ngrowths++] = growth;
  }
}

bool cy_lower_unless_grown(cy_lowering *l, cy_val past, cy_val present, cy_branch *out) {
  const cy_port_info *outputs, *inputs;
  cy_graph_outputs(l->g, &outputs);
  cy_graph_inputs(l->g, &inputs);
  for (uint32_t i = 0; i < l->p->ngrowths; i++) {
    const cy_memory_growth *growth = &l->p->growths[i];
    if (outputs[growth->output].value != present || inputs[growth->input].value != past)
      continue;
    out->step = cy_lower_step(l, CY_STEP_IF);
    out->step->sym = l->p->room;
    out->after = l->tail;
    l->tail = &out->step->else_steps;
    return true;
  }
  return false;
}
