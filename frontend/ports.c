/* SPDX-License-Identifier: Apache-2.0 */
/* ports.c - the inputs of the model: declared types, and what the command line says about them.
 *
 * A declared dimension is a number, a name (one symbol, or several where nothing needs them equal: axes.c), or unknown (a
 * symbol of its own). --dim replaces a name by a number everywhere, or by symbols of their own (NAME=?). --shape gives one input's dimensions: where the model has a name, the
 * name gets that number everywhere too; where the model has another number, that is an error.
 */
#include "frontend/import_int.h"
#include "ir/nearest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct cy_fixed_dim {
  const char *name;
  int64_t value; /* OPEN: "?" */
  bool used;
} cy_fixed_dim;

enum { OPEN = -1 };

typedef struct shape_override {
  int rank;                 /* -1: none */
  int64_t dim[CY_MAX_RANK]; /* -1: "?" */
} shape_override;

static bool is_initializer(const Onnx__GraphProto *g, cy_names **cache, cy_arena *arena, const char *name) {
  if (!*cache) {
    *cache = cy_names_create(arena);
    for (size_t i = 0; i < g->n_initializer; i++)
      if (g->initializer[i]->name)
        cy_names_set(*cache, g->initializer[i]->name, 1);
    for (size_t i = 0; i < g->n_sparse_initializer; i++)
      if (g->sparse_initializer[i]->values && g->sparse_initializer[i]->values->name)
        cy_names_set(*cache, g->sparse_initializer[i]->values->name, 1);
  }
  uint32_t ignored;
  return cy_names_find(*cache, name, &ignored);
}

static bool parse_extent(const char *text, size_t len, int64_t *out) {
  char *end;
  errno = 0;
  long long v = strtoll(text, &end, 10);
  if (len == 0 || text[0] < '0' || text[0] > '9' || end != text + len || errno || v < 0 || v >= (int64_t)1 << 48)
    return false;
  *out = v;
  return true;
}

static bool option_error(cy_importer *im, const char *format, const char *text) {
  cy_location where = cy_importer_where(im, NULL);
  cy_diag_add(im->diag, CY_ERROR, &where, "%s '%s'", format, text);
  cy_diag_blame(im->diag, CY_CAUSE_OPTION);
  return false;
}

static bool fix_dim(cy_importer *im, const char *name, int64_t value, bool used) {
  uint32_t at;
  cy_location where = cy_importer_where(im, NULL);
  if (cy_names_find(im->fixed_dims, name, &at)) {
    im->fixed[at].used = im->fixed[at].used || used;
    if (im->fixed[at].value == value || (used && im->fixed[at].value == OPEN))
      return true;
    cy_diag_add(im->diag, CY_ERROR, &where,
                "dimension '%s' is given twice, as %lld and %lld; with --dim '%s=?' each axis of that name has a size of "
                "its own",
                name, (long long)im->fixed[at].value, (long long)value, name);
    return false;
  }
  cy_names_set(im->fixed_dims, name, im->nfixed);
  im->fixed[im->nfixed++] = (cy_fixed_dim){name, value, used};
  return true;
}

/* Reads the --shape given for this input, if there is one. */
static bool find_override(cy_importer *im, const char *input, shape_override *out) {
  out->rank = -1;
  for (uint32_t i = 0; i < im->options->nshapes; i++) {
    const char *text = im->options->shapes[i], *eq = strrchr(text, '=');
    if (!eq || strlen(input) != (size_t)(eq - text) || strncmp(text, input, (size_t)(eq - text)) != 0)
      continue;
    out->rank = 0;
    for (const char *p = eq + 1; *p;) {
      size_t n = strcspn(p, "x,");
      if (out->rank == CY_MAX_RANK)
        return option_error(im, "too many dimensions in --shape", text);
      int64_t *d = &out->dim[out->rank++];
      if (n == 1 && *p == '?')
        *d = -1;
      else if (!parse_extent(p, n, d))
        return option_error(im, "expected input=1x3x224x224 (numbers, or ? for unknown) in --shape, found", text);
      p += n;
      p += *p != 0;
    }
  }
  return true;
}

/* --shape against the declaration; names get their number. */
static bool apply_override(cy_importer *im, const Onnx__ValueInfoProto *input, const shape_override *o) {
  const Onnx__TensorShapeProto *shape = cy_import_shape_of(input);
  cy_location where = cy_importer_where(im, im->model->graph->name);
  where.item = cy_arena_printf(im->arena, "input '%s'", input->name);
  if (o->rank < 0 || !shape)
    return true;
  if ((size_t)o->rank != shape->n_dim) {
    cy_diag_add(im->diag, CY_ERROR, &where, "--shape gives %d dimensions, the model declares %zu", o->rank,
                shape->n_dim);
    cy_diag_blame(im->diag, CY_CAUSE_OPTION);
    return false;
  }
  for (int i = 0; i < o->rank; i++) {
    const Onnx__TensorShapeProto__Dimension *d = shape->dim[i];
    if (o->dim[i] < 0)
      continue;
    if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && d->dim_value >= 0 &&
        d->dim_value != o->dim[i]) {
      cy_diag_add(im->diag, CY_ERROR, &where, "--shape gives %lld for dimension %d, the model declares %lld",
                  (long long)o->dim[i], i, (long long)d->dim_value);
      cy_diag_blame(im->diag, CY_CAUSE_OPTION);
      return false;
    }
    if (cy_import_dim_name(d) && !fix_dim(im, cy_import_dim_name(d), o->dim[i], true))
      return false;
  }
  return true;
}

bool cy_import_fix_dims(cy_importer *im) {
  const Onnx__GraphProto *g = im->model->graph;
  size_t max = im->options->ndims + 1;
  im->fixed_dims = cy_names_create(im->arena);
  for (size_t i = 0; i < g->n_input; i++)
    max += cy_import_shape_of(g->input[i]) ? cy_import_shape_of(g->input[i])->n_dim : 0;
  im->fixed = CY_NEW_ARRAY(im->arena, cy_fixed_dim, max);
  for (uint32_t i = 0; i < im->options->ndims; i++) {
    const char *text = im->options->dims[i], *eq = strrchr(text, '=');
    int64_t value;
    if (eq && strcmp(eq, "=?") == 0)
      value = OPEN;
    else if (!eq || eq == text || !parse_extent(eq + 1, strlen(eq + 1), &value))
      return option_error(im, "expected name=number in --dim, or name=?, found", text);
    char *name = cy_arena_copy(im->arena, text, (size_t)(eq - text) + 1);
    name[eq - text] = 0;
    if (!fix_dim(im, name, value, false))
      return false;
  }
  for (size_t i = 0; i < g->n_input; i++) {
    shape_override o;
    if (!g->input[i]->name || !find_override(im, g->input[i]->name, &o) || !apply_override(im, g->input[i], &o))
      return g->input[i]->name == NULL
                 ? option_error(im, "an input of the model has no name in graph", g->name ? g->name : "")
                 : false;
  }
  return true;
}

static bool find_fixed(cy_importer *im, const char *name, cy_dim *out) {
  uint32_t at;
  if (!cy_names_find(im->fixed_dims, name, &at) && !cy_names_find(im->fixed_dims, "*", &at))
    return false;
  im->fixed[at].used = true;
  if (im->fixed[at].value == OPEN)
    return false;
  *out = cy_dim_const(im->g, im->fixed[at].value);
  return true;
}

static cy_dim dim_of(cy_importer *im, const Onnx__ValueInfoProto *input, int axis, int64_t given) {
  const Onnx__TensorShapeProto *shape = cy_import_shape_of(input);
  const Onnx__TensorShapeProto__Dimension *d = shape ? shape->dim[axis] : NULL;
  if (d && d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && d->dim_value >= 0)
    return cy_dim_const(im->g, d->dim_value);
  if (given >= 0)
    return cy_dim_const(im->g, given);
  const char *name = d ? cy_import_dim_name(d) : NULL;
  cy_dim fixed;
  if (name && find_fixed(im, name, &fixed))
    return fixed;
  name = name ? cy_axes_symbol(im->axes, input->name, axis, name) : cy_arena_printf(im->arena, "%s_dim%d", input->name, axis);
  return find_fixed(im, name, &fixed) ? fixed : cy_dim_sym(im->g, cy_sym_by_name(im->g, name));
}

/* ---- types ---- */

static bool elem_type(cy_importer *im, const cy_location *where, int32_t elem, cy_dtype *out) {
  *out = (cy_dtype)elem;
  bool known = elem > 0 && elem < CY_REF, complex = known && cy_dtype_of(*out)->cls == 'C';
  if (known && !complex)
    return true;
  if (complex)
    cy_diag_add(im->diag, CY_ERROR, where, "%s", CY_NO_COMPLEX);
  else
    cy_diag_add(im->diag, CY_ERROR, where, "unknown element type %d", elem);
  return false;
}

/* What the tensors in a sequence, map or optional value are; unknown sizes are any sizes there. */
static bool held_tensor(cy_importer *im, const cy_location *where, const Onnx__TypeProto__Tensor *t,
                        cy_content_info *out) {
  cy_dtype dtype;
  if (!elem_type(im, where, t->elem_type, &dtype))
    return false;
  out->dtype = (uint8_t)dtype;
  out->rank = CY_ANY_RANK;
  if (!t->shape || t->shape->n_dim > CY_MAX_RANK)
    return true;
  out->rank = (uint8_t)t->shape->n_dim;
  for (int i = 0; i < out->rank; i++) {
    const Onnx__TensorShapeProto__Dimension *d = t->shape->dim[i];
    bool known = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && d->dim_value >= 0;
    out->dim[i] = known ? d->dim_value : -1;
  }
  return true;
}

static cy_content content_of(cy_importer *im, const cy_location *where, const Onnx__TypeProto *type);

/* Fills in what a container holds: tensors or another container. */
static bool held(cy_importer *im, const cy_location *where, const Onnx__TypeProto *type, cy_content_info *info) {
  if (type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE && type->tensor_type)
    return held_tensor(im, where, type->tensor_type, info);
  info->item = content_of(im, where, type);
  return info->item != 0;
}

static bool map_content(cy_importer *im, const cy_location *where, const Onnx__TypeProto__Map *map,
                        cy_content_info *info) {
  cy_dtype key;
  if (!map || !elem_type(im, where, map->key_type, &key) || !held(im, where, map->value_type, info))
    return false;
  info->kind = CY_CONTENT_MAP;
  info->key = (uint8_t)key;
  if ((key == CY_STRING || cy_dtype_is_int(key)) && !info->item && (info->rank == 0 || info->rank == CY_ANY_RANK)) {
    info->rank = 0;
    return true;
  }
  cy_diag_add(im->diag, CY_ERROR, where,
              "maps of this type are not supported, expected integers or strings as keys and single numbers or strings "
              "as values");
  return false;
}

/* The description of a container's type; 0 after a diagnostic. */
static cy_content content_of(cy_importer *im, const cy_location *where, const Onnx__TypeProto *type) {
  cy_content_info info = {0};
  bool ok = false;
  switch (type ? type->value_case : ONNX__TYPE_PROTO__VALUE__NOT_SET) {
  case ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE:
    info.kind = CY_CONTENT_SEQUENCE;
    ok = type->sequence_type && held(im, where, type->sequence_type->elem_type, &info);
    break;
  case ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE:
    info.kind = CY_CONTENT_OPTIONAL;
    ok = type->optional_type && held(im, where, type->optional_type->elem_type, &info);
    break;
  case ONNX__TYPE_PROTO__VALUE_MAP_TYPE:
    ok = map_content(im, where, type->map_type, &info);
    break;
  default:
    cy_diag_add(im->diag, CY_ERROR, where, "values of type %s are not supported",
                !type || type->value_case == ONNX__TYPE_PROTO__VALUE__NOT_SET    ? "undeclared"
                : type->value_case == ONNX__TYPE_PROTO__VALUE_SPARSE_TENSOR_TYPE ? "sparse tensor"
                : type->value_case == ONNX__TYPE_PROTO__VALUE_OPAQUE_TYPE        ? "opaque"
                                                                                 : "tensor without element type");
  }
  return ok ? cy_content_add(im->g, &info) : 0;
}

bool cy_import_held_tensor(cy_importer *im, const cy_onnx_node *n, const Onnx__TypeProto *type, cy_content_info *out) {
  cy_location where = cy_importer_at(im, n);
  where.item = "attribute 'type'";
  return held(im, &where, type, out);
}

static bool import_input(cy_importer *im, cy_scope *scope, const Onnx__ValueInfoProto *input) {
  cy_location where = cy_importer_where(im, im->model->graph->name);
  where.item = cy_arena_printf(im->arena, "input '%s'", input->name);
  cy_dtype dtype;
  shape_override given;
  cy_val other;
  bool is_tensor =
      input->type && input->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE && input->type->tensor_type;
  if (!find_override(im, input->name, &given))
    return false;
  if (cy_names_find(scope->names, input->name, &other)) {
    cy_diag_add(im->diag, CY_ERROR, &where, "the model lists this input twice");
    return false;
  }
  if (!is_tensor) {
    cy_content content = content_of(im, &where, input->type);
    if (content) {
      cy_type ref = cy_type_ref(content);
      cy_names_set(scope->names, input->name, cy_graph_add_input(im->g, input->name, &ref));
    }
    return content != 0;
  }
  if (!elem_type(im, &where, input->type->tensor_type->elem_type, &dtype))
    return false;
  const Onnx__TensorShapeProto *shape = cy_import_shape_of(input);
  if (!shape && given.rank < 0) {
    cy_diag_add(im->diag, CY_ERROR, &where,
                "the model does not declare this input's shape: give it with --shape '%s=1x3x224x224'", input->name);
    return false;
  }
  size_t rank = shape ? shape->n_dim : (size_t)given.rank;
  if (rank > CY_MAX_RANK) {
    cy_diag_add(im->diag, CY_ERROR, &where, "rank %zu is not supported, %d is the most", rank, CY_MAX_RANK);
    return false;
  }
  cy_dim dims[CY_MAX_RANK];
  uint64_t product = 1;
  for (size_t i = 0; i < rank; i++) {
    int64_t v;
    dims[i] = dim_of(im, input, (int)i, given.rank < 0 ? -1 : given.dim[i]);
    if (cy_dim_is_const(im->g, dims[i], &v) && v > 0 &&
        (!cy_mul_size(product, (uint64_t)v, &product) || product >> 48)) {
      cy_diag_add(im->diag, CY_ERROR, &where, "the declared dimensions are too large: more than 2^48 elements");
      return false;
    }
  }
  cy_type type = cy_type_make(dtype, (int)rank, dims);
  cy_names_set(scope->names, input->name, cy_graph_add_input(im->g, input->name, &type));
  return true;
}

/* "'batch', 'seq'": what --dim could have named, or did. */
static const char *dimension_names(cy_importer *im) {
  const char *list = "";
  for (uint32_t i = 0; i < im->nfixed; i++)
    if (im->fixed[i].used && strcmp(im->fixed[i].name, "*") != 0)
      list = cy_arena_printf(im->arena, "%s%s'%s'", list, *list ? ", " : "", im->fixed[i].name);
  for (cy_sym s = 1; s <= cy_sym_count(im->g); s++) {
    const cy_sym_info *info = cy_sym_of(im->g, s);
    if (info->kind == CY_SYM_INPUT)
      list = cy_arena_printf(im->arena, "%s%s'%s'", list, *list ? ", " : "", cy_str_text(im->g, info->name));
  }
  return *list ? list : "none, all are fixed";
}

/* The same for --shape. */
static const char *input_names(cy_importer *im) {
  const Onnx__GraphProto *g = im->model->graph;
  const char *list = "";
  for (size_t k = 0; k < g->n_input; k++)
    list = cy_arena_printf(im->arena, "%s%s'%s'", list, *list ? ", " : "", g->input[k]->name);
  return *list ? list : "none";
}

static cy_nearest near_dimension(cy_importer *im, const char *name) {
  cy_nearest n = cy_nearest_of(name, strlen(name));
  for (uint32_t i = 0; i < im->nfixed; i++)
    if (im->fixed[i].used)
      cy_nearest_try(&n, im->fixed[i].name, strlen(im->fixed[i].name));
  for (cy_sym s = 1; s <= cy_sym_count(im->g); s++) {
    const cy_sym_info *info = cy_sym_of(im->g, s);
    if (info->kind == CY_SYM_INPUT)
      cy_nearest_try(&n, cy_str_text(im->g, info->name), strlen(cy_str_text(im->g, info->name)));
  }
  return n;
}

static cy_nearest near_input(cy_importer *im, const char *name, size_t length) {
  const Onnx__GraphProto *g = im->model->graph;
  cy_nearest n = cy_nearest_of(name, length);
  for (size_t k = 0; k < g->n_input; k++)
    cy_nearest_try(&n, g->input[k]->name, strlen(g->input[k]->name));
  return n;
}

/* names: those that there are; n: the nearest of them. */
static bool unknown_name(cy_importer *im, const char *expected, const char *names, const char *found, cy_nearest n) {
  char near[CY_NEAREST_TEXT];
  cy_location where = cy_importer_where(im, NULL);
  cy_diag_add(im->diag, CY_ERROR, &where, "%s (%s), found '%s'%s", expected, names, found, cy_nearest_say(&n, near));
  return false;
}

static bool check_unused(cy_importer *im) {
  const Onnx__GraphProto *g = im->model->graph;
  bool ok = true;
  for (uint32_t i = 0; i < im->nfixed; i++)
    if (!im->fixed[i].used && strcmp(im->fixed[i].name, "*") != 0)
      ok = unknown_name(im, "--dim: expected a dimension of the model's inputs", dimension_names(im),
                        im->fixed[i].name, near_dimension(im, im->fixed[i].name));
  for (uint32_t i = 0; i < im->options->nshapes; i++) {
    const char *text = im->options->shapes[i], *eq = strrchr(text, '=');
    bool found = false;
    for (size_t k = 0; k < g->n_input && eq; k++)
      found = found || (strlen(g->input[k]->name) == (size_t)(eq - text) &&
                        strncmp(g->input[k]->name, text, (size_t)(eq - text)) == 0);
    if (!found) {
      ok = unknown_name(im, "--shape must be input=1x3x224x224 with the name of an input of the model",
                        input_names(im), text, near_input(im, text, eq ? (size_t)(eq - text) : strlen(text)));
    }
  }
  return ok;
}

bool cy_import_inputs(cy_importer *im, cy_scope *scope) {
  const Onnx__GraphProto *g = im->model->graph;
  cy_names *initializers = NULL;
  bool ok = true;
  for (size_t i = 0; i < g->n_input; i++)
    if (!is_initializer(g, &initializers, im->arena, g->input[i]->name))
      ok = import_input(im, scope, g->input[i]) && ok;
  return check_unused(im) && ok;
}
