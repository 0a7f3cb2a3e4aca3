/* SPDX-License-Identifier: Apache-2.0 */
/* axes.c - one name on several axes of the inputs, whose sizes differ when the model runs.
 *
 * Exporters write one name for whatever they do not know. Where nothing relies on the sizes being equal, the axes get
 * symbols of their own, and any sizes will do, as in ONNX Runtime. Where something does, the name stays one symbol: kernels
 * and memory plans are better for it.
 *
 * In:  the declared inputs; a graph that was imported with all names taken apart. What has to be equal there is what its
 * requirements compare, directly or by way of other symbols, and what meets in the results of an If or a loop. Out: a symbol
 * for each axis: the name for the first ones, "INPUT_dimK" for those that are apart from it.
 * Inputs of three dimensions or more that are declared alike stay together: they are the caches and states of layers, whose
 * kernels are the same only as long as their sizes are. --dim NAME=? takes all axes of a name apart for good.
 */
#include "frontend/axes.h"

#include "frontend/import_int.h"

#include <string.h>

typedef struct axis {
  const char *input, *name;
  const Onnx__ValueInfoProto *port;
  int axis;
  bool forced;   /* by --dim NAME=? */
  uint32_t with; /* the first axis that it has its symbol with, perhaps itself */
} axis;

struct cy_axes {
  cy_arena *arena;
  axis *list;
  uint32_t n, capacity;
  cy_names *index; /* "input\naxis" -> place in list */
  bool parted;
};

const Onnx__TensorShapeProto *cy_import_shape_of(const Onnx__ValueInfoProto *v) {
  const Onnx__TypeProto *t = v->type;
  return t && t->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE && t->tensor_type ? t->tensor_type->shape : NULL;
}

const char *cy_import_dim_name(const Onnx__TensorShapeProto__Dimension *d) {
  const char *name = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM ? d->dim_param : NULL;
  bool letter = false;
  for (const char *p = name; p && *p; p++)
    letter |= (unsigned char)*p >= 0x80 || (unsigned)((*p | 32) - 'a') < 26u || *p == '_';
  return letter && strcmp(name, "None") ? name : NULL;
}

static const char *key_of(const cy_axes *a, const char *input, int number) {
  return cy_arena_printf(a->arena, "%s\n%d", input, number);
}

static bool is_forced(const cy_import_options *o, const char *name) {
  for (uint32_t i = 0; i < o->ndims; i++) {
    const char *eq = strrchr(o->dims[i], '=');
    size_t length = eq ? (size_t)(eq - o->dims[i]) : 0;
    if (eq && strcmp(eq, "=?") == 0 &&
        ((length == strlen(name) && strncmp(name, o->dims[i], length) == 0) || (length == 1 && o->dims[i][0] == '*')))
      return true;
  }
  return false;
}

/* Declared with the same element type and dims, three or more. */
static bool declared_alike(const Onnx__ValueInfoProto *p, const Onnx__ValueInfoProto *q) {
  const Onnx__TensorShapeProto *s = cy_import_shape_of(p), *t = cy_import_shape_of(q);
  if (s->n_dim < 3 || s->n_dim != t->n_dim || p->type->tensor_type->elem_type != q->type->tensor_type->elem_type)
    return false;
  for (size_t i = 0; i < s->n_dim; i++) {
    const char *x = cy_import_dim_name(s->dim[i]), *y = cy_import_dim_name(t->dim[i]);
    if (!x != !y || (x && strcmp(x, y) != 0) || (!x && s->dim[i]->dim_value != t->dim[i]->dim_value))
      return false;
  }
  return true;
}

static void add_axis(cy_axes *a, const Onnx__ValueInfoProto *port, int number, const char *name, bool forced) {
  a->list = cy_arena_grow(a->arena, a->list, a->n, &a->capacity, sizeof *a->list);
  cy_names_set(a->index, key_of(a, port->name, number), a->n);
  a->list[a->n] = (axis){port->name, name, port, number, forced, a->n};
  a->n++;
}

cy_axes *cy_axes_create(cy_arena *arena, const Onnx__GraphProto *graph, const cy_import_options *o) {
  cy_axes *a = CY_NEW(arena, cy_axes);
  a->arena = arena;
  a->index = cy_names_create(arena);
  cy_names *constants = cy_names_create(arena);
  uint32_t ignored;
  for (size_t i = 0; graph && i < graph->n_initializer; i++)
    if (graph->initializer[i]->name)
      cy_names_set(constants, graph->initializer[i]->name, 1);
  for (size_t i = 0; graph && i < graph->n_input; i++) {
    const Onnx__ValueInfoProto *port = graph->input[i];
    const Onnx__TensorShapeProto *shape = cy_import_shape_of(port);
    if (!shape || !port->name || cy_names_find(constants, port->name, &ignored))
      continue;
    for (size_t k = 0; k < shape->n_dim; k++)
      if (cy_import_dim_name(shape->dim[k]))
        add_axis(a, port, (int)k, cy_import_dim_name(shape->dim[k]), is_forced(o, cy_import_dim_name(shape->dim[k])));
  }
  return a;
}

const char *cy_axes_symbol(const cy_axes *a, const char *input, int number, const char *name) {
  uint32_t at, first = 0;
  if (!cy_names_find(a->index, key_of(a, input, number), &at) || (!a->parted && !a->list[at].forced))
    return name;
  const axis *x = &a->list[at], *leader = &a->list[x->with];
  while (strcmp(a->list[first].name, name) != 0)
    first++;
  return x->with == first ? name : cy_arena_printf(a->arena, "%s_dim%d", leader->input, leader->axis);
}

bool cy_axes_part(cy_axes *a) {
  bool any = false;
  cy_names *first = cy_names_create(a->arena);
  for (uint32_t i = 0; i < a->n; i++) {
    axis *x = &a->list[i];
    uint32_t other;
    if (!cy_names_find(first, x->name, &other))
      cy_names_set(first, x->name, i);
    for (uint32_t k = 0; k < i && x->with == i && !x->forced; k++)
      if (a->list[k].axis == x->axis && strcmp(a->list[k].name, x->name) == 0 && a->list[k].port != x->port &&
          declared_alike(a->list[k].port, x->port))
        x->with = a->list[k].with;
    any = any || (x->with == i && !x->forced && cy_names_find(first, x->name, &other) && other != i);
  }
  a->parted = any;
  return any;
}

/* ---- what has to be equal ---- */

/* Sets of symbols that are compared; each has a parent, roots themselves. */
typedef struct sets {
  uint32_t *parent;
  cy_sym last; /* seen in the comparison at hand; 0: none */
} sets;

static uint32_t root_of(const uint32_t *parent, uint32_t i) {
  while (parent[i] != i)
    i = parent[i];
  return i;
}

static void see(void *context, cy_sym s) {
  sets *t = context;
  if (t->last)
    t->parent[root_of(t->parent, s)] = root_of(t->parent, t->last);
  t->last = s;
}

static void compare(const cy_graph *g, sets *t, cy_dim a, cy_dim b) {
  t->last = 0;
  if (a == b)
    return;
  cy_dim_symbols(g, a, see, t);
  cy_dim_symbols(g, b, see, t);
}

static void compare_types(const cy_graph *g, sets *t, cy_val a, cy_val b) {
  const cy_type *x = &cy_value_of(g, a)->type, *y = &cy_value_of(g, b)->type;
  for (int i = 0; i < x->rank && x->rank == y->rank; i++)
    compare(g, t, x->dim[i], y->dim[i]);
}

/* Results of both branches; what a loop begins with and carries on. */
static void compare_blocks(const cy_graph *g, sets *t, const cy_node_info *n) {
  const cy_attr *first = cy_attr_find(n, n->op == CY_OP_if ? CY_ATTR_then : CY_ATTR_body), *second;
  const cy_block_info *b = first ? cy_block_of(g, first->block) : NULL;
  if (n->op == CY_OP_if && b && (second = cy_attr_find(n, CY_ATTR_else)))
    for (uint32_t k = 0; k < b->nresults; k++)
      compare_types(g, t, b->results[k], cy_block_of(g, second->block)->results[k]);
  for (uint32_t k = 2; n->op == CY_OP_loop && b && k < n->nin; k++)
    compare_types(g, t, n->in[k], b->results[k - 1]);
}

static void keep(void *context, cy_sym s) { *(cy_sym *)context = s; }

/* 0: the dim is fixed. */
static cy_sym symbol_of(const cy_graph *g, cy_dim d) {
  cy_sym s = 0;
  cy_dim_symbols(g, d, keep, &s);
  return s;
}

bool cy_axes_join(cy_axes *a, const cy_graph *g) {
  sets t = {CY_NEW_ARRAY(a->arena, uint32_t, cy_sym_count(g) + 1), 0};
  const cy_requirement *list;
  const cy_port_info *ports;
  uint32_t nports = cy_graph_inputs(g, &ports);
  uint32_t n = cy_graph_requirements(g, &list);
  for (uint32_t s = 0; s <= cy_sym_count(g); s++)
    t.parent[s] = s;
  for (uint32_t i = 0; i < n; i++)
    if (list[i].kind != CY_REQUIRE_AT_MOST)
      compare(g, &t, list[i].a, list[i].b);
  for (cy_node i = 1; i <= cy_node_count(g); i++)
    if (cy_node_of(g, i)->op == CY_OP_if || cy_node_of(g, i)->op == CY_OP_loop)
      compare_blocks(g, &t, cy_node_of(g, i));
  uint32_t *sym = CY_NEW_ARRAY(a->arena, uint32_t, a->n + 1);
  for (uint32_t i = 0; i < a->n; i++)
    for (uint32_t k = 0; k < nports; k++)
      if (strcmp(cy_str_text(g, ports[k].name), a->list[i].input) == 0)
        sym[i] = root_of(t.parent, symbol_of(g, cy_value_of(g, ports[k].value)->type.dim[a->list[i].axis]));
  bool apart = false;
  for (uint32_t i = 0; i < a->n; i++) {
    axis *x = &a->list[i];
    bool first = true;
    x->with = x->forced ? x->with : i;
    for (uint32_t k = 0; k < i && x->with == i && !x->forced; k++) {
      bool same = strcmp(a->list[k].name, x->name) == 0;
      first = first && !same;
      if (same && (sym[k] == sym[i] || !sym[i])) /* one that is fixed has no symbol */
        x->with = a->list[k].with;
    }
    apart = apart || (x->with == i && !first);
  }
  return apart;
}
