/* SPDX-License-Identifier: Apache-2.0 */
/* qdq_upgrade.c - a model of operator set 7 to 12 as one of 13, the first with a scale per channel in QuantizeLinear.
 *
 * In:  a graph as it was read. Out: the same in the newer operators: attributes that became inputs are initializers;
 * Upsample is Resize, Scatter is ScatterElements; Softmax over several axes is one over the flattened feature map. What
 * cannot be said without knowing more of the model is refused, with the node.
 */
#include "qdq_int.h"

#include <string.h>

/* Attributes in the order of the inputs, from the second on, that they became. */
static const struct moved {
  const char *op, *attribute[3];
} moved[] = {{"Clip", {"min", "max"}}, {"Pad", {"pads", "value"}}, {"ReduceSum", {"axes"}},
             {"Split", {"split"}},     {"Squeeze", {"axes"}},      {"Slice", {"starts", "ends", "axes"}},
             {"TopK", {"k"}},          {"Unsqueeze", {"axes"}},    {"Upsample", {"scales"}}};

/* Attributes that went without an heir: neither matters in inference. */
static const struct gone {
  const char *op, *attribute;
} gone[] = {{"BatchNormalization", "spatial"}, {"Dropout", "ratio"}};

static void drop_attribute(Onnx__NodeProto *n, const char *name) {
  size_t kept = 0;
  for (size_t i = 0; i < n->n_attribute; i++)
    if (strcmp(n->attribute[i]->name, name) != 0)
      n->attribute[kept++] = n->attribute[i];
  n->n_attribute = kept;
}

static void add_value(qdq_writer *w, const Onnx__AttributeProto *a, char *name) {
  int64_t one = 1, ints = (int64_t)a->n_ints, floats = (int64_t)a->n_floats;
  const int to_i64 = ONNX__TENSOR_PROTO__DATA_TYPE__INT64, to_f32 = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
  switch (a->type) {
  case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT:
    qdq_add_initializer(w, name, to_i64, &one, 1, &a->i, sizeof a->i);
    break;
  case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS:
    qdq_add_initializer(w, name, to_i64, &ints, 1, a->ints, a->n_ints * sizeof *a->ints);
    break;
  case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS:
    qdq_add_initializer(w, name, to_f32, &floats, 1, a->floats, a->n_floats * sizeof *a->floats);
    break;
  default:
    qdq_add_initializer(w, name, to_f32, NULL, 0, &a->f, sizeof a->f);
  }
}

/* Nodes of newer sets have the inputs already, and none of the attributes. */
static void move_attributes(qdq_writer *w, Onnx__NodeProto *n, const struct moved *m) {
  char **inputs = CY_NEW_ARRAY(w->arena, char *, n->n_input + 3);
  memcpy(inputs, n->input, n->n_input * sizeof *inputs);
  for (size_t k = 0; k < 3 && m->attribute[k]; k++) {
    const Onnx__AttributeProto *a = qdq_attribute(n, m->attribute[k]);
    if (!a)
      continue;
    while (n->n_input < k + 2)
      inputs[n->n_input++] = (char *)"";
    inputs[k + 1] = qdq_name(w, n->output[0], cy_arena_printf(w->arena, "_%s", m->attribute[k]));
    add_value(w, a, inputs[k + 1]);
    drop_attribute(n, m->attribute[k]);
  }
  n->input = inputs;
}

/* Resize of set 10, and Upsample: X, scales -> X, no region, scales. Corners coincide; the nearest element is the one
 * before, or behind where the feature map becomes smaller. */
static int upgrade_resize(qdq_writer *w, Onnx__NodeProto *n) {
  uint64_t count = 0;
  if (n->n_input < 2)
    return qdq_fail(w, n->name, n->op_type, "expected the input 'scales'");
  const float *scales = qdq_floats(w, qdq_initializer(w, n->input[1]), &count);
  bool smaller = false, larger = false;
  for (uint64_t i = 0; scales && i < count; i++) {
    smaller |= scales[i] < 1;
    larger |= scales[i] > 1;
  }
  if (smaller && larger)
    return qdq_fail(w, n->name, n->op_type,
                    "operator set %lld: scales on either side of 1 in one node cannot be written in operator set %d",
                    (long long)w->opset, QDQ_WANTED);
  char **inputs = CY_NEW_ARRAY(w->arena, char *, 3);
  inputs[0] = n->input[0];
  inputs[1] = (char *)"";
  inputs[2] = n->input[1];
  n->input = inputs;
  n->n_input = 3;
  n->op_type = (char *)"Resize";
  qdq_set_string(w, n, "coordinate_transformation_mode", "asymmetric");
  qdq_set_string(w, n, "nearest_mode", smaller ? "ceil" : "floor");
  return 0;
}

/* Over all axes from `axis` on: flattened, over the last axis, and back into shape. n becomes the last of these. */
static void upgrade_softmax(qdq_writer *w, Onnx__NodeProto *n, int64_t axis) {
  char *y = n->output[0], *shape = qdq_name(w, y, "_shape"), *flat = qdq_name(w, y, "_flattened"),
       *result = qdq_name(w, y, "_flat");
  qdq_add_node(w, "Shape", n->input, 1, shape);
  qdq_set_int(w, qdq_add_node(w, "Flatten", n->input, 1, flat), "axis", axis);
  qdq_set_int(w, qdq_add_node(w, n->op_type, &flat, 1, result), "axis", -1);
  char **inputs = CY_NEW_ARRAY(w->arena, char *, 2);
  inputs[0] = result;
  inputs[1] = shape;
  n->input = inputs;
  n->n_input = 2;
  n->op_type = (char *)"Reshape";
  n->n_attribute = 0;
}

static bool is_read(const qdq_writer *w, const char *name) {
  for (size_t i = 0; i < w->graph->n_node; i++)
    for (size_t k = 0; k < w->graph->node[i]->n_input; k++)
      if (!strcmp(w->graph->node[i]->input[k], name))
        return true;
  return false;
}

static int refuse(const qdq_writer *w, const Onnx__NodeProto *n) {
  for (size_t i = 0; i < n->n_attribute; i++)
    if (n->attribute[i]->g || n->attribute[i]->n_graphs)
      return qdq_fail(w, n->name, n->op_type,
                      "operator set %lld with bodies inside: convert the model by onnx.version_converter first",
                      (long long)w->opset);
  if (!strcmp(n->op_type, "BatchNormalization") && !qdq_int_attribute(n, "spatial", 1))
    return qdq_fail(w, n->name, n->op_type, "attribute 'spatial': 0 has no form in operator set %d", QDQ_WANTED);
  if (!strcmp(n->op_type, "Dropout") && n->n_output > 1 && *n->output[1] && is_read(w, n->output[1]))
    return qdq_fail(w, n->name, n->op_type, "output 'mask' is read; its type depends on the operator set");
  return 0;
}

static int upgrade_node(qdq_writer *w, Onnx__NodeProto *n) {
  if ((n->domain && *n->domain) || !n->n_input || !n->n_output)
    return 0;
  if (refuse(w, n))
    return -1;
  for (size_t i = 0; i < sizeof moved / sizeof *moved; i++)
    if (!strcmp(n->op_type, moved[i].op))
      move_attributes(w, n, &moved[i]);
  for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
    if (!strcmp(n->op_type, gone[i].op))
      drop_attribute(n, gone[i].attribute);
  if (!strcmp(n->op_type, "Scatter"))
    n->op_type = (char *)"ScatterElements";
  if (!strcmp(n->op_type, "Upsample") || (!strcmp(n->op_type, "Resize") && w->opset < 11))
    return upgrade_resize(w, n);
  int64_t axis = qdq_is_one_of(n->op_type, "Softmax LogSoftmax Hardmax") ? qdq_int_attribute(n, "axis", 1) : -1;
  if (axis != -1)
    upgrade_softmax(w, n, axis);
  return 0;
}

int qdq_upgrade(qdq_writer *w) {
  if (w->opset < QDQ_OLDEST)
    return qdq_fail(w, NULL, NULL,
                    "operator set %lld: expected %d or newer; convert the model by onnx.version_converter first",
                    (long long)w->opset, QDQ_OLDEST);
  if (w->model->ir_version < 7)
    w->model->ir_version = 7; /* with set 13; initializers need not be inputs from 4 on */
  if (w->opset >= QDQ_WANTED)
    return 0;
  for (size_t i = 0; i < w->graph->n_node; i++) {
    Onnx__NodeProto *n = w->graph->node[i];
    if (upgrade_node(w, n))
      return -1;
    qdq_grow(w, (void ***)&w->nodes, &w->nnodes, n);
  }
  w->graph->node = w->nodes;
  w->graph->n_node = w->nnodes;
  w->nodes = NULL;
  w->nnodes = 0;
  for (size_t i = 0; i < w->model->n_opset_import; i++) {
    Onnx__OperatorSetIdProto *o = w->model->opset_import[i];
    if (!o->domain || !*o->domain || !strcmp(o->domain, "ai.onnx"))
      o->version = QDQ_WANTED;
  }
  return 0;
}
