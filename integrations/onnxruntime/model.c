/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - a group of nodes as an ONNX model.
 *
 * In:  nodes of an OrtGraph.
 * Out: the bytes of a ModelProto with these nodes, the values they read as inputs, those that are read elsewhere as
 *      outputs. Constants that are not small are external data: their location is a number in model.weights, which says
 *      where ONNX Runtime has them, so that they are copied nowhere. A key of all of it for the cache.
 */
#include "integrations/onnxruntime/plugin.h"

#include "onnx.pb-c.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INLINE_BYTES = 1024, IR_VERSION = 10 };

#define NEW(w, type, init)                                                                                             \
  ({                                                                                                                   \
    type *p_ = walk_take(w, 1, sizeof *p_);                                                                            \
    init(p_);                                                                                                          \
    p_;                                                                                                                \
  })

typedef struct writer {
  walk *w;
  model *out;
  size_t weights_room;
} writer;

/* ---- tensors ---- */

static size_t add_weight(writer *m, const void *data, size_t bytes) {
  if (m->out->n_weights == m->weights_room) {
    m->weights_room = m->weights_room ? 2 * m->weights_room : 64;
    weight *grown = walk_take(m->w, m->weights_room, sizeof *grown);
    if (m->out->n_weights)
      memcpy(grown, m->out->weights, m->out->n_weights * sizeof *grown);
    m->out->weights = grown;
  }
  m->out->weights[m->out->n_weights] = (weight){data, bytes};
  return m->out->n_weights++;
}

static Onnx__StringStringEntryProto *entry_of(walk *w, const char *key, char *value) {
  Onnx__StringStringEntryProto *e = NEW(w, Onnx__StringStringEntryProto, onnx__string_string_entry_proto__init);
  e->key = (char *)key;
  e->value = value;
  return e;
}

static void put_data(writer *m, Onnx__TensorProto *t, const void *data, size_t bytes, bool keeps) {
  walk *w = m->w;
  if (bytes <= INLINE_BYTES || !keeps) {
    t->has_raw_data = 1;
    t->raw_data.len = bytes;
    t->raw_data.data = walk_take(w, bytes, 1);
    if (bytes)
      memcpy(t->raw_data.data, data, bytes);
    return;
  }
  t->has_data_location = 1;
  t->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
  t->n_external_data = 2;
  t->external_data = walk_take(w, 2, sizeof *t->external_data);
  t->external_data[0] = entry_of(w, "location", walk_format(w, "%zu", add_weight(m, data, bytes)));
  t->external_data[1] = entry_of(w, "length", walk_format(w, "%zu", bytes));
}

/* keeps: the value outlives the compilation. */
static Onnx__TensorProto *tensor_of(writer *m, const char *name, const ort_value *value, bool keeps) {
  walk *w = m->w;
  Onnx__TensorProto *t = NEW(w, Onnx__TensorProto, onnx__tensor_proto__init);
  ort_tensor_info *info = NULL;
  const void *data = NULL;
  size_t bytes = 0, rank = 0;
  int64_t dims[CYTO_MAX_RANK] = {0};
  walk_check(w, w->ort->GetTensorTypeAndShape(value, &info));
  ort_status *status = w->ort->GetTensorElementType(info, &t->data_type);
  if (!status)
    status = w->ort->GetDimensionsCount(info, &rank);
  if (!status && rank > CYTO_MAX_RANK)
    status = plugin_error(w->ort, ORT_EP_FAIL, "cytoc: constant '%s' has %zu dims, at most %d are possible", name, rank,
                          CYTO_MAX_RANK);
  if (!status && rank)
    status = w->ort->GetDimensions(info, dims, rank);
  w->ort->ReleaseTensorTypeAndShapeInfo(info);
  walk_check(w, status);
  walk_check(w, w->ort->GetTensorSizeInBytes(value, &bytes));
  walk_check(w, w->ort->GetTensorData(value, &data));
  t->name = (char *)name;
  t->has_data_type = 1;
  t->data_type = dtype_of_ort(t->data_type);
  t->n_dims = rank;
  t->dims = walk_take(w, rank, sizeof *t->dims);
  memcpy(t->dims, dims, rank * sizeof *dims);
  put_data(m, t, data, bytes, keeps);
  return t;
}

static Onnx__TensorProto *constant_of(writer *m, const ort_value_info *info, const char *name) {
  const ort_value *value = NULL;
  walk_check(m->w, m->w->ort->ValueInfo_GetInitializerValue(info, &value));
  if (!value)
    walk_check(m->w, plugin_error(m->w->ort, ORT_EP_FAIL, "cytoc: constant '%s' has no value", name));
  return tensor_of(m, name, value, true);
}

/* ---- types ---- */

static Onnx__TensorShapeProto *shape_of(walk *w, const type *t) {
  Onnx__TensorShapeProto *s = NEW(w, Onnx__TensorShapeProto, onnx__tensor_shape_proto__init);
  s->n_dim = t->rank;
  s->dim = walk_take(w, t->rank, sizeof *s->dim);
  for (size_t i = 0; i < t->rank; i++) {
    Onnx__TensorShapeProto__Dimension *d = s->dim[i] =
        NEW(w, Onnx__TensorShapeProto__Dimension, onnx__tensor_shape_proto__dimension__init);
    if (t->dims[i] >= 0) {
      d->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
      d->dim_value = t->dims[i];
    } else if (t->symbols[i] && *t->symbols[i]) {
      d->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
      d->dim_param = (char *)t->symbols[i];
    }
  }
  return s;
}

static Onnx__ValueInfoProto *value_of(walk *w, const ort_value_info *info, bool with_shape) {
  type t = walk_type(w, info);
  Onnx__ValueInfoProto *v = NEW(w, Onnx__ValueInfoProto, onnx__value_info_proto__init);
  v->name = (char *)walk_name(w, info);
  v->type = NEW(w, Onnx__TypeProto, onnx__type_proto__init);
  v->type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
  v->type->tensor_type = NEW(w, Onnx__TypeProto__Tensor, onnx__type_proto__tensor__init);
  v->type->tensor_type->has_elem_type = 1;
  v->type->tensor_type->elem_type = t.dtype;
  if (with_shape && t.has_shape)
    v->type->tensor_type->shape = shape_of(w, &t);
  return v;
}

/* ---- nodes ---- */

static void put_strings(walk *w, Onnx__AttributeProto *to, char *texts, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    to->n_strings += !texts[i];
  to->strings = walk_take(w, to->n_strings, sizeof *to->strings);
  for (size_t i = 0; i < to->n_strings; i++, texts += strlen(texts) + 1)
    to->strings[i] = (ProtobufCBinaryData){strlen(texts), (uint8_t *)texts};
}

static Onnx__GraphProto *body_of(writer *m, const graph *g);

static void put_tensor(writer *m, Onnx__AttributeProto *to, const attribute *a) {
  walk *w = m->w;
  walk_check(w, w->ort->OpAttr_GetTensorAttributeAsOrtValue(a->ort, &w->value));
  to->t = tensor_of(m, "", w->value, false);
  w->ort->ReleaseValue(w->value);
  w->value = NULL;
}

static Onnx__AttributeProto *attribute_of(writer *m, const attribute *a) {
  Onnx__AttributeProto *to = NEW(m->w, Onnx__AttributeProto, onnx__attribute_proto__init);
  size_t bytes = 0;
  void *data = a->kind == ORT_ATTR_TENSOR ? NULL : walk_attribute(m->w, a, &bytes);
  to->name = (char *)a->name;
  to->has_type = 1;
  switch (a->kind) {
  case ORT_ATTR_INT:
    to->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
    to->has_i = 1;
    memcpy(&to->i, data, sizeof to->i);
    break;
  case ORT_ATTR_FLOAT:
    to->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
    to->has_f = 1;
    memcpy(&to->f, data, sizeof to->f);
    break;
  case ORT_ATTR_STRING:
    to->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
    to->has_s = 1;
    to->s = (ProtobufCBinaryData){bytes, data};
    break;
  case ORT_ATTR_INTS:
    to->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
    to->n_ints = bytes / sizeof *to->ints;
    to->ints = data;
    break;
  case ORT_ATTR_FLOATS:
    to->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS;
    to->n_floats = bytes / sizeof *to->floats;
    to->floats = data;
    break;
  case ORT_ATTR_STRINGS:
    to->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS;
    put_strings(m->w, to, data, bytes);
    break;
  default: /* of capability.c's attributes, what is left */
    to->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR;
    put_tensor(m, to, a);
  }
  return to;
}

static void put_attributes(writer *m, const node *n, Onnx__NodeProto *to) {
  size_t count;
  attribute *attributes = walk_attributes(m->w, n, &count);
  to->attribute = walk_take(m->w, count + n->n_bodies, sizeof *to->attribute);
  for (size_t i = 0; i < count; i++)
    if (attributes[i].kind != ORT_ATTR_GRAPH)
      to->attribute[to->n_attribute++] = attribute_of(m, &attributes[i]);
  for (size_t i = 0; i < n->n_bodies; i++) {
    Onnx__AttributeProto *a = NEW(m->w, Onnx__AttributeProto, onnx__attribute_proto__init);
    a->name = (char *)n->body_names[i];
    a->has_type = 1;
    a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH;
    a->g = body_of(m, &n->bodies[i]);
    to->attribute[to->n_attribute++] = a;
  }
}

static char **names_of(walk *w, const ort_value_info **values, size_t n) {
  char **texts = walk_take(w, n, sizeof *texts);
  for (size_t i = 0; i < n; i++)
    texts[i] = (char *)walk_name(w, values[i]);
  return texts;
}

static Onnx__NodeProto *node_of(writer *m, const node *n) {
  Onnx__NodeProto *to = NEW(m->w, Onnx__NodeProto, onnx__node_proto__init);
  to->name = (char *)n->name;
  to->op_type = (char *)n->op;
  to->domain = (char *)n->domain;
  to->n_input = n->n_in;
  to->input = names_of(m->w, n->in, n->n_in);
  to->n_output = n->n_out;
  to->output = names_of(m->w, n->out, n->n_out);
  put_attributes(m, n, to);
  return to;
}

/* The body of a loop or branch, whole. */
static Onnx__GraphProto *body_of(writer *m, const graph *g) {
  walk *w = m->w;
  Onnx__GraphProto *to = NEW(w, Onnx__GraphProto, onnx__graph_proto__init);
  const ort_value_info **values;
  to->name = (char *)(g->name && *g->name ? g->name : "body");
  walk_check(w, w->ort->Graph_GetNumInputs(g->ort, &to->n_input));
  values = walk_take(w, to->n_input, sizeof *values);
  if (to->n_input)
    walk_check(w, w->ort->Graph_GetInputs(g->ort, values, to->n_input));
  to->input = walk_take(w, to->n_input, sizeof *to->input);
  for (size_t i = 0; i < to->n_input; i++)
    to->input[i] = value_of(w, values[i], true);
  values = walk_outputs(w, g->ort, &to->n_output);
  to->output = walk_take(w, to->n_output, sizeof *to->output);
  for (size_t i = 0; i < to->n_output; i++)
    to->output[i] = value_of(w, values[i], false);
  walk_check(w, w->ort->Graph_GetNumInitializers(g->ort, &to->n_initializer));
  values = walk_take(w, to->n_initializer, sizeof *values);
  if (to->n_initializer)
    walk_check(w, w->ort->Graph_GetInitializers(g->ort, values, to->n_initializer));
  to->initializer = walk_take(w, to->n_initializer, sizeof *to->initializer);
  for (size_t i = 0; i < to->n_initializer; i++)
    to->initializer[i] = constant_of(m, values[i], walk_name(w, values[i]));
  to->n_node = g->n;
  to->node = walk_take(w, g->n, sizeof *to->node);
  for (size_t i = 0; i < g->n; i++)
    to->node[i] = node_of(m, &g->nodes[i]);
  return to;
}

/* ---- the group ---- */

/* A group while it is written: which values were met. */
typedef struct group {
  writer m;
  Onnx__GraphProto *proto;
  names seen; /* 1: made by a node of the group, or entered as an input or constant */
} group;

static void enter(group *g, const ort_value_info *value) {
  walk *w = g->m.w;
  const char *name = walk_name(w, value);
  if (!*name)
    return;
  intptr_t *met = names_at(w, &g->seen, name, true);
  if (*met)
    return;
  *met = 1;
  if (walk_is_constant(w, value)) {
    g->proto->initializer[g->proto->n_initializer++] = constant_of(&g->m, value, name);
    return;
  }
  g->proto->input[g->proto->n_input++] = value_of(w, value, true);
  g->m.out->inputs[g->m.out->n_inputs++] = name;
}

static void leave(group *g, const ort_value_info *value, names *escaping) {
  walk *w = g->m.w;
  const char *name = walk_name(w, value);
  if (!*name)
    return;
  *names_at(w, &g->seen, name, true) = 1;
  intptr_t *wanted = names_at(w, escaping, name, false);
  if (!wanted || !*wanted)
    return;
  g->proto->output[g->proto->n_output++] = value_of(w, value, false);
  g->m.out->outputs[g->m.out->n_outputs++] = name;
}

static void put_group(group *g, const graph *from, const bool *taken, names *escaping) {
  walk *w = g->m.w;
  size_t inputs = 0, outputs = 0;
  for (size_t i = 0; i < from->n; i++)
    if (taken[i]) {
      inputs += from->nodes[i].n_in + from->nodes[i].n_implicit;
      outputs += from->nodes[i].n_out;
    }
  g->proto->input = walk_take(w, inputs, sizeof *g->proto->input);
  g->proto->initializer = walk_take(w, inputs, sizeof *g->proto->initializer);
  g->proto->output = walk_take(w, outputs, sizeof *g->proto->output);
  g->proto->node = walk_take(w, from->n, sizeof *g->proto->node);
  g->m.out->inputs = walk_take(w, inputs, sizeof *g->m.out->inputs);
  g->m.out->outputs = walk_take(w, outputs, sizeof *g->m.out->outputs);
  for (size_t i = 0; i < from->n; i++) {
    const node *n = &from->nodes[i];
    if (!taken[i])
      continue;
    for (size_t k = 0; k < n->n_in; k++)
      enter(g, n->in[k]);
    for (size_t k = 0; k < n->n_implicit; k++)
      enter(g, n->implicit[k]);
    for (size_t k = 0; k < n->n_out; k++)
      leave(g, n->out[k], escaping);
    g->proto->node[g->proto->n_node++] = node_of(&g->m, n);
  }
}

/* Every domain that a node or a node of its bodies is of gets the number 1. */
static void find_domains(walk *w, const node *n, names *used) {
  *names_at(w, used, n->domain, true) = 1;
  for (size_t i = 0; i < n->n_bodies; i++)
    for (size_t k = 0; k < n->bodies[i].n; k++)
      find_domains(w, &n->bodies[i].nodes[k], used);
}

static int by_domain(const void *a, const void *b) {
  return strcmp((*(Onnx__OperatorSetIdProto *const *)a)->domain, (*(Onnx__OperatorSetIdProto *const *)b)->domain);
}

/* Those that are used, in order: ONNX Runtime lists all that it knows, in any. */
static void put_opsets(walk *w, const graph *from, const bool *taken, Onnx__ModelProto *to) {
  size_t n;
  names used = {0};
  *names_at(w, &used, "", true) = 1;
  for (size_t i = 0; i < from->n; i++)
    if (taken[i])
      find_domains(w, &from->nodes[i], &used);
  walk_check(w, w->ort->Graph_GetNumOperatorSets(from->ort, &n));
  const char **domains = walk_take(w, n, sizeof *domains);
  int64_t *versions = walk_take(w, n, sizeof *versions);
  if (n)
    walk_check(w, w->ort->Graph_GetOperatorSets(from->ort, domains, versions, n));
  to->opset_import = walk_take(w, n, sizeof *to->opset_import);
  for (size_t i = 0; i < n; i++) {
    if (!names_at(w, &used, domains[i], false))
      continue;
    Onnx__OperatorSetIdProto *o = to->opset_import[to->n_opset_import++] =
        NEW(w, Onnx__OperatorSetIdProto, onnx__operator_set_id_proto__init);
    o->domain = (char *)domains[i];
    o->has_version = 1;
    o->version = versions[i];
  }
  qsort(to->opset_import, to->n_opset_import, sizeof *to->opset_import, by_domain);
}

/* ---- the key ---- */

static void put_key(const ep *e, model *m) {
  key_sum s = KEY_BEGIN;
  key_add(&s, m->bytes, m->size);
  for (size_t i = 0; i < m->n_weights; i++)
    key_add(&s, m->weights[i].data, m->weights[i].bytes);
  for (size_t i = 0; i < e->n_words; i++)
    key_add(&s, e->words[i], strlen(e->words[i]));
  key_add(&s, &e->samples, sizeof e->samples);
  snprintf(m->key, sizeof m->key, "%016" PRIx64 "%016" PRIx64, s.a, s.b);
}

void model_write(walk *w, const graph *from, const bool *taken, names *escaping, model *out) {
  *out = (model){.ort = from->ort};
  group g = {.m = {.w = w, .out = out}, .proto = NEW(w, Onnx__GraphProto, onnx__graph_proto__init)};
  g.proto->name = MODEL_GRAPH;
  put_group(&g, from, taken, escaping);
  Onnx__ModelProto *m = NEW(w, Onnx__ModelProto, onnx__model_proto__init);
  m->has_ir_version = 1;
  m->ir_version = IR_VERSION;
  m->graph = g.proto;
  put_opsets(w, from, taken, m);
  out->size = onnx__model_proto__get_packed_size(m);
  uint8_t *bytes = walk_take(w, out->size, 1);
  onnx__model_proto__pack(m, bytes);
  out->bytes = bytes;
  put_key(w->ep, out);
}
