/* SPDX-License-Identifier: Apache-2.0 */
/* attrs.c - typed readers for the attributes of an ONNX node.
 *
 * A reader returns the value, or what its caller says for an absent attribute. An attribute of the wrong type is
 * reported with its place. Inside a model-local function an attribute may be a reference to one of the calling node's
 * attributes; the reference is followed here, so importers never see it.
 */
#include "frontend/import_int.h"

#include <string.h>

static const char *const type_names[] = {
    "undefined", "float",   "int",    "string",        "tensor",         "graph",      "floats",     "ints",
    "strings",   "tensors", "graphs", "sparse tensor", "sparse tensors", "type proto", "type protos"};

static const char *type_name(int t) {
  return t >= 0 && t < (int)(sizeof type_names / sizeof type_names[0]) ? type_names[t] : "unknown";
}

static const Onnx__AttributeProto *find_in(Onnx__AttributeProto *const *attrs, size_t n, const char *name) {
  for (size_t i = 0; i < n; i++)
    if (attrs[i]->name && strcmp(attrs[i]->name, name) == 0)
      return attrs[i];
  return NULL;
}

/* Follows references outwards through the chain of calls; NULL when the caller did not set it and there is no default.
 */
static const Onnx__AttributeProto *resolve(const Onnx__AttributeProto *a, const cy_call *call) {
  while (a && a->ref_attr_name && a->ref_attr_name[0]) {
    if (!call)
      return NULL;
    const Onnx__NodeProto *site = call->site->proto;
    const Onnx__AttributeProto *bound = find_in(site->attribute, site->n_attribute, a->ref_attr_name);
    const cy_call *outer = call->site->scope->call;
    if (bound && (bound = resolve(bound, outer)))
      return bound;
    a = find_in(call->fn->attribute_proto, call->fn->n_attribute_proto, a->ref_attr_name);
    call = NULL; /* defaults cannot refer on */
  }
  return a;
}

static const Onnx__AttributeProto *find(const cy_onnx_node *n, const char *name) {
  for (size_t i = 0; n->asked && n->asked->proto == n->proto && i < n->proto->n_attribute && i < 64; i++)
    if (n->proto->attribute[i]->name && strcmp(n->proto->attribute[i]->name, name) == 0)
      n->asked->attributes |= (uint64_t)1 << i;
  return resolve(find_in(n->proto->attribute, n->proto->n_attribute, name), n->scope->call);
}

bool cy_onnx_has(const cy_onnx_node *n, const char *name) { return find(n, name) != NULL; }

const char *cy_onnx_unasked(const cy_onnx_node *n, size_t *at) {
  while (n->asked && *at < n->proto->n_attribute && *at < 64) {
    size_t i = (*at)++;
    const Onnx__AttributeProto *a = resolve(n->proto->attribute[i], n->scope->call);
    if (a && !(n->asked->attributes >> i & 1) && n->proto->attribute[i]->name &&
        (a->i || (a->has_f && a->f != 0) || a->s.len || a->t || a->g || a->n_ints || a->n_floats || a->n_strings))
      return n->proto->attribute[i]->name;
  }
  return NULL;
}

/* Files of IR versions 1 and 2 may leave the type out: then the field that is there tells. */
static int type_of(const Onnx__AttributeProto *a) {
  if (a->has_type && a->type != ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__UNDEFINED)
    return (int)a->type;
  return a->has_f       ? 1
         : a->has_i     ? 2
         : a->has_s     ? 3
         : a->t         ? 4
         : a->g         ? 5
         : a->n_floats  ? 6
         : a->n_ints    ? 7
         : a->n_strings ? 8
                        : 0;
}

const Onnx__AttributeProto *cy_onnx_attr(cy_importer *im, const cy_onnx_node *n, const char *name,
                                         Onnx__AttributeProto__AttributeType type) {
  const Onnx__AttributeProto *a = find(n, name);
  if (!a)
    return NULL;
  int found = type_of(a);
  bool list = type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS ||
              type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS ||
              type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS;
  if (found == (int)type || (found == 0 && list))
    return a;
  MALFORMED(im, cy_arena_printf(im->arena, "attribute '%s'", name),
                 "expected an attribute of type %s, found %s", type_name((int)type), type_name(found));
  return NULL;
}

#define FIND(T) cy_onnx_attr(im, n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__##T)

int64_t cy_onnx_int(cy_importer *im, const cy_onnx_node *n, const char *name, int64_t otherwise) {
  const Onnx__AttributeProto *a = FIND(INT);
  return a ? a->i : otherwise;
}

cy_dtype cy_onnx_dtype(cy_importer *im, const cy_onnx_node *n, const char *name, cy_dtype otherwise,
                       const char *classes) {
  int64_t v = cy_onnx_int(im, n, name, otherwise);
  const char *item = cy_arena_printf(im->arena, "attribute '%s'", name);
  if (v > 0 && v < CY_REF && strchr(classes, cy_dtype_of((cy_dtype)v)->cls))
    return (cy_dtype)v;
  if (v > 0 && v < CY_REF)
    cy_build_error(im->g, item, "element type %s is not supported here", cy_dtype_of((cy_dtype)v)->name);
  else if (v)
    cy_build_error(im->g, item, "expected an element type, a number from 1 to %d, found %lld", CY_REF - 1, (long long)v);
  else
    cy_build_error(im->g, item, "expected an element type, found none");
  return CY_NONE;
}

double cy_onnx_float(cy_importer *im, const cy_onnx_node *n, const char *name, double otherwise) {
  const Onnx__AttributeProto *a = FIND(FLOAT);
  return a ? (double)a->f : (double)(float)otherwise;
}

static const char *text_of(cy_importer *im, const ProtobufCBinaryData *s) {
  char *t = cy_arena_alloc(im->arena, s->len + 1);
  if (s->len)
    memcpy(t, s->data, s->len);
  return t;
}

const char *cy_onnx_string(cy_importer *im, const cy_onnx_node *n, const char *name, const char *otherwise) {
  const Onnx__AttributeProto *a = FIND(STRING);
  return a ? text_of(im, &a->s) : otherwise;
}

const int64_t *cy_onnx_ints(cy_importer *im, const cy_onnx_node *n, const char *name, uint32_t *out_n) {
  static const int64_t none[1];
  const Onnx__AttributeProto *a = FIND(INTS);
  *out_n = a ? (uint32_t)a->n_ints : 0;
  return a ? (a->n_ints ? a->ints : none) : NULL;
}

const double *cy_onnx_floats(cy_importer *im, const cy_onnx_node *n, const char *name, uint32_t *out_n) {
  const Onnx__AttributeProto *a = FIND(FLOATS);
  *out_n = a ? (uint32_t)a->n_floats : 0;
  if (!a)
    return NULL;
  double *v = CY_NEW_ARRAY(im->arena, double, a->n_floats + 1);
  for (size_t i = 0; i < a->n_floats; i++)
    v[i] = (double)a->floats[i];
  return v;
}

const char *const *cy_onnx_strings(cy_importer *im, const cy_onnx_node *n, const char *name, uint32_t *out_n) {
  const Onnx__AttributeProto *a = FIND(STRINGS);
  *out_n = a ? (uint32_t)a->n_strings : 0;
  if (!a)
    return NULL;
  const char **v = CY_NEW_ARRAY(im->arena, const char *, a->n_strings + 1);
  for (size_t i = 0; i < a->n_strings; i++)
    v[i] = text_of(im, &a->strings[i]);
  return v;
}

const Onnx__GraphProto *cy_onnx_graph(cy_importer *im, const cy_onnx_node *n, const char *name) {
  const Onnx__AttributeProto *a = FIND(GRAPH);
  if (a && a->g)
    return a->g;
  MALFORMED(im, cy_arena_printf(im->arena, "attribute '%s'", name), "the node needs a graph here, found none");
  return NULL;
}

int cy_onnx_word(cy_importer *im, const cy_onnx_node *n, const char *name, const char *otherwise, const char *words) {
  const char *found = cy_onnx_string(im, n, name, otherwise);
  size_t len = strlen(found);
  int k = 0;
  for (const char *w = words; w; k++) {
    const char *end = strchr(w, '|');
    size_t m = end ? (size_t)(end - w) : strlen(w);
    if (m == len && memcmp(w, found, m) == 0)
      return k;
    w = end ? end + 1 : NULL;
  }
  MALFORMED(im, cy_arena_printf(im->arena, "attribute '%s'", name), "expected one of %s, found '%s'", words,
                 found);
  return -1;
}
