/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_ml_lookup.c - ai.onnx.ml: operators that look things up: LabelEncoder, CategoryMapper, OneHotEncoder; and those
 * on maps: ZipMap, DictVectorizer, CastMap.
 *
 * A lookup is arithmetic. The model's own strings are numbered before it runs, so a table indexed by a string's number
 * says where it stands among the keys; numbers are searched for in the sorted keys, a step of gather and compare per
 * halving. Both give the position of the key, or the number of keys where there is none, which is the place of the
 * default value. Maps are objects of the runtime (see onnx_sequence.c), with lists of keys and of values.
 */
#include "frontend/import_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))

/* ---- constants --------------------------------------------------------------------------------------------------- */

static uint64_t count_of(const cy_importer *im, cy_val v) {
  const cy_value *value = cy_value_of(im->g, v);
  return value->data.size * 8 / (uint64_t)cy_dtype_of((cy_dtype)value->type.dtype)->bits;
}

static cy_scalar element(const cy_importer *im, cy_val v, uint64_t i) {
  const cy_value *value = cy_value_of(im->g, v);
  return cy_scalar_load(value->data.bytes, (cy_dtype)value->type.dtype, i);
}

/* The elements of a constant list, in this order, as another one. */
static cy_val reordered(cy_importer *im, cy_val v, const uint32_t *order, uint32_t count) {
  cy_dtype dtype = (cy_dtype)cy_onnx_type(im, v)->dtype;
  uint64_t size = (uint64_t)count * (uint64_t)cy_dtype_of(dtype)->bits / 8;
  void *bytes = cy_arena_alloc(cy_graph_arena(im->g), size + 8);
  for (uint32_t i = 0; i < count; i++)
    cy_scalar_store(bytes, dtype, i, element(im, v, order[i]));
  cy_dim d = cy_dim_const(im->g, count);
  cy_type t = cy_type_make(dtype, 1, &d);
  return cy_build_const(im->g, &t, bytes, size);
}

static cy_val float_list(cy_importer *im, const double *v, uint32_t count) {
  float *f = CY_NEW_ARRAY(cy_graph_arena(im->g), float, count + 1);
  for (uint32_t i = 0; i < count; i++)
    f[i] = (float)v[i];
  cy_dim d = cy_dim_const(im->g, count);
  cy_type t = cy_type_make(CY_F32, 1, &d);
  return cy_build_const(im->g, &t, f, count * sizeof *f);
}

/* The list that attribute <prefix>_strings, _int64s, _floats or _tensor holds; 0: there is none, or after a diagnostic.
 */
static cy_val list_of(cy_importer *im, const cy_onnx_node *n, const char *prefix) {
  uint32_t count;
  const char *strings = cy_arena_printf(im->arena, "%s_strings", prefix),
             *ints = cy_arena_printf(im->arena, "%s_int64s", prefix),
             *floats = cy_arena_printf(im->arena, "%s_floats", prefix),
             *tensor = cy_arena_printf(im->arena, "%s_tensor", prefix);
  if (cy_onnx_has(n, tensor)) {
    const Onnx__AttributeProto *a = cy_onnx_attr(im, n, tensor, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR);
    cy_val v = a && a->t ? cy_import_tensor(im, a->t, cy_arena_printf(im->arena, "attribute '%s'", tensor)) : 0;
    return v && cy_onnx_type(im, v)->rank == 1 ? v : 0;
  }
  const int64_t *i = cy_onnx_ints(im, n, ints, &count);
  if (i)
    return cy_onnx_int_list(im, i, count);
  const double *f = cy_onnx_floats(im, n, floats, &count);
  if (f)
    return float_list(im, f, count);
  return cy_onnx_has(n, strings) ? cy_onnx_texts(im, n, strings, &count) : 0;
}

/* ---- searching --------------------------------------------------------------------------------------------------- */

/* Strings: the number of a text of the model is an index. */
static cy_val find_text(cy_importer *im, cy_val x, cy_val keys) {
  cy_graph *g = im->g;
  uint64_t n = count_of(im, keys), size = 1;
  for (uint64_t i = 0; i < n; i++)
    size = element(im, keys, i).u >= size ? element(im, keys, i).u + 1 : size;
  int64_t *table = CY_NEW_ARRAY(im->arena, int64_t, size + 1);
  for (uint64_t i = 0; i <= size; i++)
    table[i] = (int64_t)n; /* the last one: of all texts that are numbered later */
  for (uint64_t i = n; i-- > 0;)
    table[element(im, keys, i).u] = (int64_t)i;
  cy_val number = cy_build_bitcast(g, x, CY_I32);
  number = CAST(MIN(number, LIKE(number, (double)size)), CY_I64);
  return cy_build_gather(g, cy_onnx_int_list(im, table, (uint32_t)size + 1), number, 0);
}

typedef struct sort_key {
  double f;
  int64_t i;
  uint32_t index;
} sort_key;

static int by_key(const void *a, const void *b) {
  const sort_key *x = a, *y = b;
  int order = (x->f > y->f) - (x->f < y->f);
  order = order ? order : (x->i > y->i) - (x->i < y->i);
  return order ? order : x->index < y->index ? -1 : 1; /* of equal keys the first one counts */
}

/* Numbers: the last of the sorted keys that is not above x, then a look whether it is x. */
static cy_val find_number(cy_importer *im, cy_val x, cy_val keys) {
  cy_graph *g = im->g;
  const cy_type xt = *cy_onnx_type(im, x);
  bool is_float = cy_dtype_is_float((cy_dtype)xt.dtype);
  uint32_t n = (uint32_t)count_of(im, keys), used = 0, nan_at = n;
  sort_key *list = CY_NEW_ARRAY(im->arena, sort_key, n + 1);
  for (uint32_t i = 0; i < n; i++) {
    cy_scalar s = element(im, keys, i);
    if (is_float && isnan(s.f))
      nan_at = nan_at == n ? i : nan_at;
    else
      list[used++] = (sort_key){is_float ? s.f : 0, is_float ? 0 : s.i, i};
  }
  qsort(list, used, sizeof *list, by_key);
  uint32_t *order = CY_NEW_ARRAY(im->arena, uint32_t, n + 1), distinct = 0;
  for (uint32_t i = 0; i < used; i++)
    if (i == 0 || list[i].f != list[i - 1].f || list[i].i != list[i - 1].i)
      order[distinct++] = list[i].index;
  int64_t *where = CY_NEW_ARRAY(im->arena, int64_t, distinct + 1);
  for (uint32_t i = 0; i < distinct; i++)
    where[i] = order[i];
  cy_val none = cy_build_scalar_int(g, CY_I64, n), found = cy_onnx_fill(im, none, xt.dim, xt.rank);
  if (distinct) {
    cy_val sorted = reordered(im, keys, order, distinct), at = cy_build_scalar_int(g, CY_I64, 0);
    at = cy_onnx_fill(im, at, xt.dim, xt.rank);
    uint32_t step = 1;
    while (step * 2 < distinct)
      step *= 2;
    for (; step && distinct > 1 && at;
         step /= 2) { /* gather clamps what lies behind the last key: compared, it is no step */
      cy_val next = ADD(at, LIKE(at, step));
      cy_val inside = BINARY(lt, next, LIKE(next, distinct)),
             below = BINARY(le, cy_build_gather(g, sorted, next, 0), x);
      at = SELECT(BINARY(and, inside, below), next, at);
    }
    found = SELECT(BINARY(eq, cy_build_gather(g, sorted, at, 0), x),
                   cy_build_gather(g, cy_onnx_int_list(im, where, distinct), at, 0), none);
  }
  return nan_at < n ? SELECT(UNARY(isnan, x), cy_build_scalar_int(g, CY_I64, nan_at), found) : found;
}

/* Where x stands among constant keys, i64; their number where it does not. 0 after a diagnostic. */
static cy_val find(cy_importer *im, cy_val x, cy_val keys) {
  cy_dtype xt = (cy_dtype)cy_onnx_type(im, x)->dtype, kt = (cy_dtype)cy_onnx_type(im, keys)->dtype;
  if (xt == CY_STRING && kt == CY_STRING)
    return find_text(im, x, keys);
  bool ints = cy_dtype_is_int(xt) && cy_dtype_is_int(kt), floats = cy_dtype_is_float(xt) && cy_dtype_is_float(kt);
  if (!ints && !floats)
    return cy_build_error(im->g, NULL, "expected an input of the keys' type %s, found %s", cy_dtype_of(kt)->name,
                          cy_type_text(im->g, cy_onnx_type(im, x)));
  cy_dtype wide = ints ? CY_I64 : xt == CY_F64 || kt == CY_F64 ? CY_F64 : CY_F32;
  keys = CAST(keys, wide);
  return find_number(im, CAST(x, wide), keys);
}

/* values[at], `otherwise` (a scalar) behind the last. */
static cy_val pick(cy_importer *im, cy_val values, cy_val otherwise, cy_val at) {
  cy_val all[2] = {values, otherwise ? cy_build_unsqueeze(im->g, otherwise, 0) : 0};
  return at && all[1] ? cy_build_gather(im->g, cy_build_concat(im->g, all, 2, 0), at, 0) : 0;
}

/* ---- labels ------------------------------------------------------------------------------------------------------ */

static cy_val default_text(cy_importer *im, const cy_onnx_node *n) {
  const Onnx__AttributeProto *a = cy_onnx_attr(im, n, "default_string", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
  return a ? cy_onnx_text(im, a->s.data, a->s.len) : cy_onnx_text(im, "_Unused", 7);
}

/* What keys that are not there get, as a scalar of dtype. */
static cy_val default_value(cy_importer *im, const cy_onnx_node *n, cy_dtype dtype) {
  if (cy_onnx_has(n, "default_tensor")) {
    const Onnx__AttributeProto *a =
        cy_onnx_attr(im, n, "default_tensor", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR);
    cy_val v = a && a->t ? cy_import_tensor(im, a->t, "attribute 'default_tensor'") : 0;
    if (v && (cy_onnx_type(im, v)->dtype != dtype || count_of(im, v) != 1))
      return cy_build_error(im->g, "attribute 'default_tensor'", "expected one %s, found %s", cy_dtype_of(dtype)->name,
                            cy_type_text(im->g, cy_onnx_type(im, v)));
    return v ? cy_build_reshape(im->g, v, NULL, 0) : 0;
  }
  if (dtype == CY_STRING)
    return default_text(im, n);
  if (cy_dtype_is_float(dtype))
    return cy_build_scalar(im->g, dtype, cy_onnx_float(im, n, "default_float", -0.0));
  return cy_build_scalar_int(im->g, dtype, cy_onnx_int(im, n, "default_int64", -1));
}

/* Version 1: strings to their positions, and back. */
IMPORT(label_encoder_1) {
  uint32_t count;
  cy_val classes = cy_onnx_texts(im, n, "classes_strings", &count), at = X;
  if (!classes || !count)
    return cy_build_error(im->g, NULL, "expected the attribute 'classes_strings'");
  if (cy_onnx_type(im, X)->dtype == CY_STRING) {
    at = find_text(im, X, classes);
    cy_val found = at ? BINARY(lt, at, LIKE(at, count)) : 0;
    return SET(SELECT(found, at, LIKE(at, (double)cy_onnx_int(im, n, "default_int64", -1))));
  }
  at = CAST(at, CY_I64);
  cy_val outside = at ? BINARY(or, BINARY(lt, at, LIKE(at, 0)), BINARY(ge, at, LIKE(at, count))) : 0;
  at = SELECT(outside, LIKE(at, count), at);
  return SET(pick(im, classes, default_text(im, n), at));
}

IMPORT(label_encoder) {
  cy_val keys = list_of(im, n, "keys"), values = list_of(im, n, "values");
  if (!keys || !values || count_of(im, keys) != count_of(im, values))
    return cy_build_error(im->g, NULL,
                          "expected lists keys_* and values_* (strings, int64s, floats or tensor) of one length");
  cy_val otherwise = default_value(im, n, (cy_dtype)cy_onnx_type(im, values)->dtype);
  return otherwise && SET(pick(im, values, otherwise, find(im, X, keys)));
}

IMPORT(category_mapper) {
  cy_val ints = list_of(im, n, "cats"), strings; /* list_of() takes the numbers where both are there */
  uint32_t count;
  strings = cy_onnx_texts(im, n, "cats_strings", &count);
  if (!ints || cy_onnx_type(im, ints)->dtype != CY_I64 || count_of(im, ints) != count)
    return cy_build_error(im->g, NULL,
                          "expected the attributes 'cats_strings' and 'cats_int64s' as lists of one length");
  bool from_text = cy_onnx_type(im, X)->dtype == CY_STRING;
  cy_val at = find(im, X, from_text ? strings : ints);
  return SET(from_text ? pick(im, ints, default_value(im, n, CY_I64), at) : pick(im, strings, default_text(im, n), at));
}

IMPORT(one_hot_encoder) {
  cy_val cats = list_of(im, n, "cats"), x = X;
  const cy_type *t = cy_onnx_type(im, x);
  if (!cats || cy_onnx_type(im, cats)->dtype == CY_F32)
    return cy_build_error(im->g, NULL, "expected the attribute 'cats_strings' or 'cats_int64s'");
  if (t->rank == CY_MAX_RANK)
    return cy_build_error(im->g, NULL, "expected fewer than %d dims, found %s", CY_MAX_RANK, cy_type_text(im->g, t));
  x = t->dtype == CY_STRING || cy_dtype_is_int((cy_dtype)t->dtype) ? x : CAST(x, CY_I64);
  cy_val at = find(im, x, cats);
  cy_attr limit = cy_attr_int(CY_ATTR_limit, (int64_t)count_of(im, cats));
  if (at && !cy_onnx_int(im, n, "zeros", 1)) /* a category that is not listed is an error */
    at = cy_build(im->g, CY_OP_require_found, &at, 1, &limit, 1, NULL, 1);
  cy_dim d[CY_MAX_RANK];
  int rank = t->rank;
  memcpy(d, t->dim, sizeof d);
  d[rank] = cy_dim_const(im->g, (int64_t)count_of(im, cats));
  cy_val hit =
      at ? BINARY(eq, cy_build_unsqueeze(im->g, at, rank), cy_build_iota(im->g, CY_I64, d, rank + 1, rank)) : 0;
  return SET(hit ? CAST(hit, CY_F32) : 0);
}

/* ---- maps -------------------------------------------------------------------------------------------------------- */

static const cy_content_info *map_content(cy_importer *im, cy_val v) {
  const cy_type *t = cy_onnx_type(im, v);
  const cy_content_info *info = t->content ? cy_content_of(im->g, t->content) : NULL;
  if (info && info->kind == CY_CONTENT_MAP)
    return info;
  cy_build_error(im->g, "input 0", "expected a map, found %s", cy_type_text(im->g, t));
  return NULL;
}

IMPORT(zip_map) {
  cy_val keys = list_of(im, n, "classlabels"), x = X;
  const cy_type *t = cy_onnx_type(im, x);
  if (!keys || cy_onnx_type(im, keys)->dtype == CY_F32)
    return cy_build_error(im->g, NULL, "expected the attribute 'classlabels_strings' or 'classlabels_int64s'");
  if (t->rank == 1)
    x = cy_build_unsqueeze(im->g, x, 0);
  int64_t columns;
  if (t->content || t->rank < 1 || t->rank > 2 || !cy_dtype_is_float((cy_dtype)t->dtype) ||
      (cy_dim_is_const(im->g, t->dim[t->rank - 1], &columns) && columns != (int64_t)count_of(im, keys)))
    return cy_build_error(im->g, "input 0", "expected a matrix of %llu columns, one for each label, found %s",
                          (unsigned long long)count_of(im, keys), cy_type_text(im->g, t));
  cy_content_info map = {.kind = CY_CONTENT_MAP, .key = cy_onnx_type(im, keys)->dtype, .dtype = t->dtype};
  cy_content_info list = {.kind = CY_CONTENT_SEQUENCE, .item = cy_content_add(im->g, &map)};
  cy_type out = cy_type_ref(cy_content_add(im->g, &list));
  cy_val in[2] = {x, keys};
  return SET(cy_build(im->g, CY_OP_zip_maps, in, 2, NULL, 0, &out, 1));
}

IMPORT(dict_vectorizer) {
  const cy_content_info *map = map_content(im, X);
  uint32_t count;
  const int64_t *ints = cy_onnx_ints(im, n, "int64_vocabulary", &count);
  cy_val keys = ints ? cy_onnx_int_list(im, ints, count) : cy_onnx_texts(im, n, "string_vocabulary", &count);
  if (!map || !keys)
    return false;
  if (map->key != cy_onnx_type(im, keys)->dtype)
    return cy_build_error(im->g, NULL, "the map's keys are %s, the vocabulary is of type %s",
                          cy_dtype_of((cy_dtype)map->key)->name, cy_type_text(im->g, cy_onnx_type(im, keys)));
  cy_type t = *cy_onnx_type(im, keys);
  t.dtype = map->dtype;
  cy_val in[2] = {X, keys};
  return SET(cy_build_unsqueeze(im->g, cy_build(im->g, CY_OP_map_find, in, 2, NULL, 0, &t, 1), 0));
}

IMPORT(cast_map) {
  int to = cy_onnx_word(im, n, "cast_to", "TO_FLOAT", "TO_FLOAT|TO_STRING|TO_INT64");
  int form = cy_onnx_word(im, n, "map_form", "DENSE", "DENSE|SPARSE");
  int64_t size = cy_onnx_int(im, n, "max_map", 1);
  const cy_content_info *map = map_content(im, X);
  if (!map || to < 0 || form < 0)
    return false;
  if (map->key != CY_I64 || (form == 1 && size < 1))
    return cy_build_error(im->g, NULL,
                          "expected a map with int64 keys, and max_map of at least 1 where map_form is SPARSE");
  cy_sym s = cy_sym_new(im->g, NULL, CY_SYM_COUNT);
  cy_sym_of(im->g, s)->min = 0;
  cy_dim d = cy_dim_sym(im->g, s);
  cy_type types[2] = {cy_type_make(CY_I64, 1, &d), cy_type_make((cy_dtype)map->dtype, 1, &d)};
  cy_val keys = cy_build(im->g, CY_OP_map_items, &X, 1, NULL, 0, types, 2), values = cy_build_output(im->g, keys, 1);
  static const cy_dtype wanted[] = {CY_F32, CY_STRING, CY_I64};
  cy_dtype dtype = wanted[to];
  if (!values)
    return false;
  values = map->dtype == CY_STRING || dtype == CY_STRING ? cy_onnx_cast_string(im, values, dtype) : CAST(values, dtype);
  if (form == 1 && values) {
    cy_dim whole = cy_dim_const(im->g, size);
    cy_val in[3] = {cy_onnx_fill(im, LIKE(values, 0), &whole, 1), keys, values};
    cy_attr a[2] = {cy_attr_int(CY_ATTR_axis, 0), cy_attr_int(CY_ATTR_combine, CY_COMBINE_SET)};
    values = cy_build(im->g, CY_OP_scatter_elements, in, 3, a, 2, NULL, 1);
  }
  return SET(values ? cy_build_unsqueeze(im->g, values, 0) : 0);
}
