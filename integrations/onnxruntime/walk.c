/* SPDX-License-Identifier: Apache-2.0 */
/* walk.c - ONNX Runtime's graphs as arrays.
 *
 * In:  an OrtGraph. Out: its nodes with inputs, outputs, attributes and bodies; types of values. Whatever fails, memory
 *      included, leaves the walk through walk.failed with a status.
 */
#include "integrations/onnxruntime/plugin.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory and errors ---- */

enum { BLOCK = 1 << 16 };

typedef struct walk_block {
  struct walk_block *next;
  size_t used, size;
  _Alignas(16) char data[];
} walk_block;

void walk_free(walk *w) {
  if (w->value)
    w->ort->ReleaseValue(w->value);
  free(w->bytes);
  while (w->blocks) {
    walk_block *b = w->blocks;
    w->blocks = b->next;
    free(b);
  }
}

void walk_check(walk *w, ort_status *status) {
  if (!status)
    return;
  w->status = status;
  longjmp(w->failed, 1);
}

void *walk_take(walk *w, size_t n, size_t size) {
  size_t bytes;
  walk_block *b = w->blocks;
  bool fits = !__builtin_mul_overflow(n, size, &bytes) && bytes <= PTRDIFF_MAX - 2 * BLOCK;
  bytes = (bytes + 15) / 16 * 16;
  if (fits && (!b || b->size - b->used < bytes)) {
    size_t room = bytes > BLOCK ? bytes : BLOCK;
    if ((b = malloc(sizeof *b + room))) {
      *b = (walk_block){.next = w->blocks, .size = room};
      w->blocks = b;
    }
  }
  if (!fits || !b)
    walk_check(w, plugin_error(w->ort, ORT_FAIL, "cytoc: out of memory"));
  void *p = b->data + b->used;
  b->used += bytes;
  return memset(p, 0, bytes);
}

char *walk_format(walk *w, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  char *text = walk_take(w, (size_t)n + 1, 1);
  va_start(arguments, format);
  vsnprintf(text, (size_t)n + 1, format, arguments);
  va_end(arguments);
  return text;
}

/* ---- names ---- */

static size_t text_hash(const char *text) {
  size_t h = 14695981039346656037u;
  for (; *text; text++)
    h = (h ^ (unsigned char)*text) * 1099511628211u;
  return h;
}

static struct name *slot_of(const names *set, const char *text) {
  size_t i = text_hash(text) & (set->room - 1);
  while (set->slots[i].text && strcmp(set->slots[i].text, text))
    i = (i + 1) & (set->room - 1);
  return &set->slots[i];
}

static void names_grow(walk *w, names *set) {
  names grown = {.n = set->n, .room = set->room ? 2 * set->room : 64};
  grown.slots = walk_take(w, grown.room, sizeof *grown.slots);
  for (size_t i = 0; i < set->room; i++)
    if (set->slots[i].text)
      *slot_of(&grown, set->slots[i].text) = set->slots[i];
  *set = grown;
}

intptr_t *names_at(walk *w, names *set, const char *text, bool add) {
  if (add && 2 * set->n >= set->room)
    names_grow(w, set);
  if (!set->room)
    return NULL;
  struct name *slot = slot_of(set, text);
  if (slot->text)
    return &slot->number;
  if (!add)
    return NULL;
  slot->text = text;
  set->n++;
  return &slot->number;
}

/* ---- nodes ---- */

/* What is asked for by its number first. */
#define ARRAY(w, of, count, items, n, array)                                                                           \
  do {                                                                                                                 \
    walk_check(w, (w)->ort->count(of, &(n)));                                                                          \
    (array) = walk_take(w, (n) + 1, sizeof *(array));                                                                  \
    if (n)                                                                                                             \
      walk_check(w, (w)->ort->items(of, array, n));                                                                    \
  } while (0)

void walk_node(walk *w, const ort_node *ort, node *out) {
  *out = (node){.ort = ort};
  walk_check(w, w->ort->Node_GetName(ort, &out->name));
  walk_check(w, w->ort->Node_GetOperatorType(ort, &out->op));
  walk_check(w, w->ort->Node_GetDomain(ort, &out->domain));
  ARRAY(w, ort, Node_GetNumInputs, Node_GetInputs, out->n_in, out->in);
  ARRAY(w, ort, Node_GetNumOutputs, Node_GetOutputs, out->n_out, out->out);
  ARRAY(w, ort, Node_GetNumImplicitInputs, Node_GetImplicitInputs, out->n_implicit, out->implicit);
  walk_check(w, w->ort->Node_GetNumSubgraphs(ort, &out->n_bodies));
  if (!out->n_bodies)
    return;
  const ort_graph **bodies = walk_take(w, out->n_bodies, sizeof *bodies);
  out->body_names = walk_take(w, out->n_bodies, sizeof *out->body_names);
  out->bodies = walk_take(w, out->n_bodies, sizeof *out->bodies);
  walk_check(w, w->ort->Node_GetSubgraphs(ort, bodies, out->n_bodies, out->body_names));
  for (size_t i = 0; i < out->n_bodies; i++)
    walk_graph(w, bodies[i], &out->bodies[i]);
}

void walk_graph(walk *w, const ort_graph *ort, graph *out) {
  const ort_node **nodes;
  *out = (graph){.ort = ort};
  walk_check(w, w->ort->Graph_GetName(ort, &out->name));
  ARRAY(w, ort, Graph_GetNumNodes, Graph_GetNodes, out->n, nodes);
  out->nodes = walk_take(w, out->n, sizeof *out->nodes);
  for (size_t i = 0; i < out->n; i++)
    walk_node(w, nodes[i], &out->nodes[i]);
}

const ort_value_info **walk_outputs(walk *w, const ort_graph *ort, size_t *n) {
  const ort_value_info **values;
  ARRAY(w, ort, Graph_GetNumOutputs, Graph_GetOutputs, *n, values);
  return values;
}

attribute *walk_attributes(walk *w, const node *n, size_t *count) {
  const ort_op_attr **all;
  ARRAY(w, n->ort, Node_GetNumAttributes, Node_GetAttributes, *count, all);
  attribute *attributes = walk_take(w, *count, sizeof *attributes);
  for (size_t i = 0; i < *count; i++) {
    attributes[i].ort = all[i];
    walk_check(w, w->ort->OpAttr_GetName(all[i], &attributes[i].name));
    walk_check(w, w->ort->OpAttr_GetType(all[i], &attributes[i].kind));
  }
  return attributes;
}

const attribute *attribute_find(const attribute *all, size_t n, const char *name) {
  for (size_t i = 0; i < n; i++)
    if (!strcmp(all[i].name, name))
      return &all[i];
  return NULL;
}

/* The first call, with room for a scalar, tells how many bytes there are. */
void *walk_attribute(walk *w, const attribute *a, size_t *bytes) {
  int64_t scalar = 0;
  ort_status *status = w->ort->ReadOpAttr(a->ort, a->kind, &scalar, sizeof scalar, bytes);
  bool fits = !status;
  if (status && *bytes <= sizeof scalar)
    walk_check(w, status); /* there is no value */
  if (status)
    w->ort->ReleaseStatus(status);
  char *data = walk_take(w, *bytes + 1, 1);
  if (fits)
    memcpy(data, &scalar, *bytes < sizeof scalar ? *bytes : sizeof scalar);
  else
    walk_check(w, w->ort->ReadOpAttr(a->ort, a->kind, data, *bytes, bytes));
  return data;
}

/* ---- values ---- */

const char *walk_name(walk *w, const ort_value_info *value) {
  const char *name = "";
  if (value)
    walk_check(w, w->ort->GetValueInfoName(value, &name));
  return name;
}

bool walk_is_constant(walk *w, const ort_value_info *value) {
  bool answer = false;
  walk_check(w, w->ort->ValueInfo_IsConstantInitializer(value, &answer));
  return answer;
}

/* The numbers are ONNX's, but for the last, which came to both in another order. */
int32_t dtype_of_ort(int32_t number) {
  switch (number) {
  case 24:
    return CYTO_U2;
  case 25:
    return CYTO_I2;
  case 26:
    return CYTO_F8E8M0;
  default:
    return number < 24 ? number : 0;
  }
}

/* No strings, no complex numbers. */
static bool computes_with(int32_t dtype) {
  return dtype && dtype != CYTO_STRING && dtype != CYTO_C64 && dtype != CYTO_C128;
}

type walk_type(walk *w, const ort_value_info *value) {
  type t = {0};
  const ort_type_info *info = NULL;
  const ort_tensor_info *tensor = NULL;
  int32_t kind = 0;
  walk_check(w, w->ort->GetValueInfoTypeInfo(value, &info));
  if (!info)
    return t;
  walk_check(w, w->ort->GetOnnxTypeFromTypeInfo(info, &kind));
  if (kind != ORT_TYPE_TENSOR)
    return t;
  walk_check(w, w->ort->CastTypeInfoToTensorInfo(info, &tensor));
  walk_check(w, w->ort->GetTensorElementType(tensor, &t.dtype));
  walk_check(w, w->ort->GetDimensionsCount(tensor, &t.rank));
  t.dtype = dtype_of_ort(t.dtype);
  if (!computes_with(t.dtype) || t.rank > CYTO_MAX_RANK)
    t.dtype = 0;
  /* 1.23 does not tell a scalar from what has no shape. */
  t.has_shape = w->ort->TensorTypeAndShape_HasShape ? w->ort->TensorTypeAndShape_HasShape(tensor) : t.rank > 0;
  t.dims = walk_take(w, t.rank, sizeof *t.dims);
  t.symbols = walk_take(w, t.rank, sizeof *t.symbols);
  if (t.rank) {
    walk_check(w, w->ort->GetDimensions(tensor, t.dims, t.rank));
    walk_check(w, w->ort->GetSymbolicDimensions(tensor, t.symbols, t.rank));
  }
  return t;
}
