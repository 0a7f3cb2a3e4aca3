/* SPDX-License-Identifier: Apache-2.0 */
/* qdq_graph.c - looking at the graph of an ONNX model, and adding to it.
 *
 * In:  a model as protobuf-c has it. Out: answers; nodes, initializers and outputs with names that nothing else has.
 * What is added goes into new lists (qdq_grow), so that those the model was read with stay as they are.
 */
#define _GNU_SOURCE
#include "qdq_int.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int qdq_fail(const qdq_writer *w, const char *node, const char *op, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  cy_location where = {.file = w->job->input, .node = node, .op = op, .node_index = -1};
  cy_diag_add(w->diag, CY_ERROR, &where, "%s", text);
  return -1;
}

/* ---- looking at the model --------------------------------------------------------------------------------------- */

Onnx__TensorProto *qdq_initializer(const qdq_writer *w, const char *name) {
  for (size_t i = 0; name && *name && i < w->graph->n_initializer; i++)
    if (w->graph->initializer[i]->name && !strcmp(w->graph->initializer[i]->name, name))
      return w->graph->initializer[i];
  return NULL;
}

const Onnx__AttributeProto *qdq_attribute(const Onnx__NodeProto *n, const char *name) {
  for (size_t i = 0; i < n->n_attribute; i++)
    if (n->attribute[i]->name && !strcmp(n->attribute[i]->name, name))
      return n->attribute[i];
  return NULL;
}

int64_t qdq_int_attribute(const Onnx__NodeProto *n, const char *name, int64_t otherwise) {
  const Onnx__AttributeProto *a = qdq_attribute(n, name);
  return a ? a->i : otherwise;
}

bool qdq_is_one_of(const char *op, const char *list) {
  const char *at = strstr(list, op);
  size_t n = strlen(op);
  return at && (at == list || at[-1] == ' ') && (at[n] == ' ' || !at[n]);
}

bool qdq_is_output(const qdq_writer *w, const char *name) {
  for (size_t i = 0; i < w->graph->n_output; i++)
    if (!strcmp(w->graph->output[i]->name, name))
      return true;
  return false;
}

static bool reads(const Onnx__NodeProto *n, const char *name) {
  for (size_t k = 0; k < n->n_input; k++)
    if (!strcmp(n->input[k], name))
      return true;
  return false;
}

static bool body_reads(const Onnx__NodeProto *n, const char *name);

static bool graph_reads(const Onnx__GraphProto *g, const char *name) {
  for (size_t i = 0; g && i < g->n_node; i++)
    if (reads(g->node[i], name) || body_reads(g->node[i], name))
      return true;
  for (size_t i = 0; g && i < g->n_output; i++)
    if (!strcmp(g->output[i]->name, name))
      return true;
  return false;
}

static bool body_reads(const Onnx__NodeProto *n, const char *name) {
  bool any = false;
  for (size_t i = 0; i < n->n_attribute && !any; i++) {
    any = graph_reads(n->attribute[i]->g, name);
    for (size_t j = 0; j < n->attribute[i]->n_graphs && !any; j++)
      any = graph_reads(n->attribute[i]->graphs[j], name);
  }
  return any;
}

bool qdq_read_by_bodies(const qdq_writer *w, const char *name) {
  for (size_t i = 0; i < w->graph->n_node; i++)
    if (body_reads(w->graph->node[i], name))
      return true;
  return false;
}

const Onnx__NodeProto *qdq_only_reader(const qdq_writer *w, const char *name) {
  const Onnx__NodeProto *found = NULL;
  if (qdq_is_output(w, name) || qdq_read_by_bodies(w, name))
    return NULL;
  for (size_t i = 0; i < w->graph->n_node; i++)
    if (reads(w->graph->node[i], name)) {
      if (found)
        return NULL;
      found = w->graph->node[i];
    }
  return found;
}

cy_val qdq_value_of(const cy_graph *g, const char *name) {
  for (cy_val v = 1; v <= cy_value_count(g); v++)
    if (!strcmp(cy_str_text(g, cy_value_of(g, v)->name), name))
      return v;
  return 0;
}

/* ---- adding to it ----------------------------------------------------------------------------------------------- */

void qdq_grow(const qdq_writer *w, void ***list, size_t *n, void *item) {
  void **grown = CY_NEW_ARRAY(w->arena, void *, *n + 1);
  if (*n)
    memcpy(grown, *list, *n * sizeof *grown);
  grown[(*n)++] = item;
  *list = grown;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Names of values in a graph and in those inside it: how many, and where `out` is given, the names. */
static size_t collect_names(const Onnx__GraphProto *g, const char **out) {
  size_t n = 0;
#define FOUND(name) (out && (name) ? (void)(out[n] = (name)) : (void)0, n += (name) != NULL)
  for (size_t i = 0; i < g->n_initializer; i++)
    FOUND(g->initializer[i]->name);
  for (size_t i = 0; i < g->n_input; i++)
    FOUND(g->input[i]->name);
  for (size_t i = 0; i < g->n_node; i++) {
    const Onnx__NodeProto *node = g->node[i];
    for (size_t k = 0; k < node->n_output; k++)
      FOUND(node->output[k]);
    for (size_t k = 0; k < node->n_attribute; k++) {
      const Onnx__AttributeProto *a = node->attribute[k];
      if (a->g)
        n += collect_names(a->g, out ? out + n : NULL);
      for (size_t j = 0; j < a->n_graphs; j++)
        n += collect_names(a->graphs[j], out ? out + n : NULL);
    }
  }
#undef FOUND
  return n;
}

void qdq_list_names(qdq_writer *w) {
  w->nnames = collect_names(w->graph, NULL);
  w->names = CY_NEW_ARRAY(w->arena, const char *, w->nnames + 1);
  collect_names(w->graph, w->names);
  qsort(w->names, w->nnames, sizeof *w->names, by_text);
}

char *qdq_name(const qdq_writer *w, const char *name, const char *ending) {
  char *text = cy_arena_printf(w->arena, "%s%s", name, ending);
  for (unsigned i = 1; bsearch(&text, w->names, w->nnames, sizeof text, by_text); i++)
    text = cy_arena_printf(w->arena, "%s%s_%u", name, ending, i);
  return text;
}

void qdq_add_initializer(qdq_writer *w, char *name, int dtype, const int64_t *dims, size_t ndims, const void *data,
                         size_t bytes) {
  Onnx__TensorProto *t = CY_NEW(w->arena, Onnx__TensorProto);
  onnx__tensor_proto__init(t);
  t->name = name;
  t->has_data_type = 1;
  t->data_type = dtype;
  t->n_dims = ndims;
  t->dims = ndims ? cy_arena_copy(w->arena, dims, ndims * sizeof *dims) : NULL;
  t->has_raw_data = 1;
  t->raw_data = (ProtobufCBinaryData){bytes, cy_arena_copy(w->arena, data, bytes)};
  qdq_grow(w, (void ***)&w->graph->initializer, &w->graph->n_initializer, t);
}

Onnx__NodeProto *qdq_add_node(qdq_writer *w, const char *op, char **inputs, size_t ninputs, char *output) {
  Onnx__NodeProto *n = CY_NEW(w->arena, Onnx__NodeProto);
  onnx__node_proto__init(n);
  n->op_type = (char *)op;
  n->name = qdq_name(w, output, "_node");
  n->n_input = ninputs;
  n->input = cy_arena_copy(w->arena, inputs, ninputs * sizeof *inputs);
  n->n_output = 1;
  n->output = cy_arena_copy(w->arena, &output, sizeof output);
  qdq_grow(w, (void ***)&w->nodes, &w->nnodes, n);
  return n;
}

static Onnx__AttributeProto *add_attribute(const qdq_writer *w, Onnx__NodeProto *n, const char *name,
                                           Onnx__AttributeProto__AttributeType type) {
  Onnx__AttributeProto *a = CY_NEW(w->arena, Onnx__AttributeProto);
  onnx__attribute_proto__init(a);
  a->name = (char *)name;
  a->has_type = 1;
  a->type = type;
  qdq_grow(w, (void ***)&n->attribute, &n->n_attribute, a);
  return a;
}

void qdq_set_int(const qdq_writer *w, Onnx__NodeProto *n, const char *name, int64_t value) {
  Onnx__AttributeProto *a = add_attribute(w, n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
  a->has_i = 1;
  a->i = value;
}

void qdq_set_string(const qdq_writer *w, Onnx__NodeProto *n, const char *name, const char *value) {
  Onnx__AttributeProto *a = add_attribute(w, n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
  a->has_s = 1;
  a->s = (ProtobufCBinaryData){strlen(value), (uint8_t *)(uintptr_t)value};
}

Onnx__NodeProto *qdq_copy_node(const qdq_writer *w, const Onnx__NodeProto *n) {
  Onnx__NodeProto *copy = cy_arena_copy(w->arena, n, sizeof *n);
  copy->input = n->n_input ? cy_arena_copy(w->arena, n->input, n->n_input * sizeof *n->input) : NULL;
  copy->output = n->n_output ? cy_arena_copy(w->arena, n->output, n->n_output * sizeof *n->output) : NULL;
  return copy;
}

void qdq_add_output(qdq_writer *w, char *name) {
  Onnx__ValueInfoProto *v = CY_NEW(w->arena, Onnx__ValueInfoProto);
  onnx__value_info_proto__init(v);
  v->name = name;
  qdq_grow(w, (void ***)&w->graph->output, &w->graph->n_output, v);
}

void qdq_drop_unused(qdq_writer *w) {
  size_t kept = 0;
  for (size_t i = 0; i < w->graph->n_initializer; i++) {
    const char *name = w->graph->initializer[i]->name;
    bool used = false;
    for (size_t n = 0; n < w->nnodes && !used; n++) {
      for (size_t k = 0; k < w->nodes[n]->n_input && !used; k++)
        used = !strcmp(w->nodes[n]->input[k], name);
      for (size_t a = 0; a < w->nodes[n]->n_attribute && !used; a++)
        used = w->nodes[n]->attribute[a]->g || w->nodes[n]->attribute[a]->n_graphs; /* bodies read outer values */
    }
    for (size_t o = 0; o < w->graph->n_output && !used; o++)
      used = !strcmp(w->graph->output[o]->name, name);
    if (used)
      w->graph->initializer[kept++] = w->graph->initializer[i];
    else
      for (size_t k = 0; k < w->graph->n_input; k++) /* old models list initializers as inputs */
        if (!strcmp(w->graph->input[k]->name, name))
          w->graph->input[k--] = w->graph->input[--w->graph->n_input];
  }
  w->graph->n_initializer = kept;
}
