/* SPDX-License-Identifier: Apache-2.0 */
/* infer_object.c - output types of ops on sequences, optional values and maps. See infer.c.
 *
 * All of them bring their types along: what a container holds cannot be inferred from its type where it may hold tensors of
 * any size. Here is checked that both sides agree.
 */
#include "infer_int.h"

static const cy_content_info *held(const infer *i, const cy_type *t) { return cy_content_of(i->g, t->content); }

static bool is_kind(infer *i, const cy_type *t, cy_content_kind kind, const char *what) {
  static const char *const names[] = {"a sequence", "an optional", "a map"};
  return (t->content && held(i, t)->kind == kind) || FAIL(i, "expected %s %s, found %s", what, names[kind], TEXT(i, t));
}

/* May container c hold a value of type t? */
static bool holds(infer *i, const cy_type *c, const cy_type *t) {
  const cy_content_info *info = held(i, c);
  cy_content both;
  bool fits = info->item
                  ? t->content && cy_content_join(i->g, info->item, t->content, &both) && both == info->item
                  : !t->content && info->dtype == t->dtype && (info->rank == CY_ANY_RANK || info->rank == t->rank);
  for (int k = 0; fits && !info->item && info->rank != CY_ANY_RANK && k < t->rank; k++) {
    int64_t d;
    fits = info->dim[k] < 0 || !is_const(i, t->dim[k], &d) || d == info->dim[k];
  }
  return fits || FAIL(i, "%s cannot hold %s", TEXT(i, c), TEXT(i, t));
}

/* Is everything that `from` may hold something that `to` may hold? */
static bool widens(infer *i, const cy_type *to, const cy_type *from) {
  cy_content both;
  return (cy_content_join(i->g, to->content, from->content, &both) && both == to->content) ||
         FAIL(i, "%s cannot be the type of %s", TEXT(i, to), TEXT(i, from));
}

static bool position(infer *i, uint32_t k) {
  return !has_in(i, k) || (cy_check_dtype(i, k, CY_I64) && cy_check_rank(i, k, 0, 0));
}

bool cy_infer_box(infer *i) {
  return is_kind(i, out_type(i, 0), CY_CONTENT_OPTIONAL, "an output that is") &&
         holds(i, out_type(i, 0), in_type(i, 0));
}

bool cy_infer_unbox(infer *i) {
  return is_kind(i, in_type(i, 0), CY_CONTENT_OPTIONAL, "an input that is") && holds(i, in_type(i, 0), out_type(i, 0));
}

bool cy_infer_seq_make(infer *i) {
  if (!is_kind(i, out_type(i, 0), CY_CONTENT_SEQUENCE, "an output that is"))
    return false;
  for (uint32_t k = 0; k < i->n->nin; k++)
    if (!holds(i, out_type(i, 0), in_type(i, k)))
      return false;
  return true;
}

static bool sequences(infer *i) {
  return is_kind(i, in_type(i, 0), CY_CONTENT_SEQUENCE, "an input that is") &&
         is_kind(i, out_type(i, 0), CY_CONTENT_SEQUENCE, "an output that is") &&
         widens(i, out_type(i, 0), in_type(i, 0));
}

bool cy_infer_seq_insert(infer *i) { return sequences(i) && holds(i, out_type(i, 0), in_type(i, 1)) && position(i, 2); }

bool cy_infer_seq_erase(infer *i) { return sequences(i) && position(i, 1); }

bool cy_infer_seq_length(infer *i) {
  return is_kind(i, in_type(i, 0), CY_CONTENT_SEQUENCE, "an input that is") &&
         set_type(i, 0, cy_type_make(CY_I64, 0, NULL));
}

bool cy_infer_seq_at(infer *i) {
  return is_kind(i, in_type(i, 0), CY_CONTENT_SEQUENCE, "an input that is") &&
         holds(i, in_type(i, 0), out_type(i, 0)) && position(i, 1);
}

bool cy_infer_seq_concat(infer *i) {
  const cy_type *t = out_type(i, 0);
  if (!is_kind(i, in_type(i, 0), CY_CONTENT_SEQUENCE, "an input that is"))
    return false;
  const cy_content_info *info = held(i, in_type(i, 0));
  if (info->item || info->dtype != t->dtype)
    return FAIL(i, "cannot join the elements of %s to %s", TEXT(i, in_type(i, 0)), TEXT(i, t));
  return cy_check_axis(i, int_attr(i, CY_ATTR_axis), t->rank);
}

bool cy_infer_seq_split(infer *i) {
  if (has_in(i, 1) && (!cy_check_dtype(i, 1, CY_I64) || !cy_check_rank(i, 1, 0, 1)))
    return false;
  return cy_check_axis(i, int_attr(i, CY_ATTR_axis), in_type(i, 0)->rank) &&
         is_kind(i, out_type(i, 0), CY_CONTENT_SEQUENCE, "an output that is");
}

/* ---- maps -------------------------------------------------------------------------------------------------------- */

bool cy_infer_zip_maps(infer *i) {
  const cy_type *x = in_type(i, 0), *keys = in_type(i, 1);
  if (!cy_check_rank(i, 0, 2, 2) || !cy_check_rank(i, 1, 1, 1) ||
      !is_kind(i, out_type(i, 0), CY_CONTENT_SEQUENCE, "an output that is"))
    return false;
  cy_content item = held(i, out_type(i, 0))->item;
  const cy_content_info *map = item ? cy_content_of(i->g, item) : NULL;
  return (map && map->kind == CY_CONTENT_MAP && map->key == keys->dtype && map->dtype == x->dtype) ||
         FAIL(i, "expected an output of maps from %s to %s, found %s", cy_dtype_of((cy_dtype)keys->dtype)->name,
              cy_dtype_of((cy_dtype)x->dtype)->name, TEXT(i, out_type(i, 0)));
}

static bool check_map(infer *i, cy_dtype key, uint32_t values) {
  const cy_content_info *map;
  if (!is_kind(i, in_type(i, 0), CY_CONTENT_MAP, "an input that is"))
    return false;
  map = held(i, in_type(i, 0));
  return (map->key == key && map->dtype == out_type(i, values)->dtype && out_type(i, values)->rank == 1) ||
         FAIL(i, "expected keys and a list of values as in %s, found %s and %s", TEXT(i, in_type(i, 0)),
              cy_dtype_of(key)->name, TEXT(i, out_type(i, values)));
}

bool cy_infer_map_find(infer *i) {
  return cy_check_rank(i, 1, 1, 1) && check_map(i, (cy_dtype)in_type(i, 1)->dtype, 0) &&
         cy_check_dim(i, "values", out_type(i, 0)->dim[0], in_type(i, 1)->dim[0]);
}

bool cy_infer_map_items(infer *i) {
  return check_map(i, CY_I64, 1) && ((out_type(i, 0)->dtype == CY_I64 && out_type(i, 0)->rank == 1) ||
                                     FAIL(i, "expected a list of i64 for the keys, found %s", TEXT(i, out_type(i, 0))));
}
