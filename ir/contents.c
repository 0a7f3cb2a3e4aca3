/* SPDX-License-Identifier: Apache-2.0 */
/* contents.c - what is known of a value's contents: integers as dims, constants as doubles, splats.
 *
 * Integer contents are remembered in value->elems, for constants when first asked. Integer-valued floats count as
 * integers, but not -0, infinities and NaN. Before editing: elems are never changed once set, others keep pointers to
 * them.
 */
#include "ir_int.h"

#include <math.h>

#define MAX_ELEMS 4096

bool cy_value_is_const(const cy_graph *g, cy_val v) { return v && cy_value_of(g, v)->data.bytes != NULL; }

cy_val cy_const_source(const cy_graph *g, cy_val v) {
  cy_val source = cy_value_of(g, v)->source;
  return source ? source : v;
}

static bool is_number(cy_dtype t) {
  char cls = cy_dtype_of(t)->cls;
  return cls == 'F' || cls == 'I' || cls == 'U' || cls == 'B';
}

/* A constant of few enough numbers whose bytes are all there. */
static bool small_const(const cy_graph *g, const cy_value *v, uint64_t limit, uint64_t *out_n) {
  cy_dtype t = (cy_dtype)v->type.dtype;
  return v->data.bytes && is_number(t) && cy_type_static_count(g, &v->type, out_n) && *out_n <= limit &&
         v->data.size >= cy_dtype_bytes(t, *out_n);
}

static bool integer_of(cy_dtype dtype, cy_scalar s, int64_t *out) {
  char cls = cy_dtype_of(dtype)->cls;
  *out = s.i;
  if (cls == 'U')
    return s.u <= INT64_MAX;
  if (cls != 'F')
    return true;
  if (!(fabs(s.f) < 0x1p62) || s.f != trunc(s.f) || (s.f == 0 && signbit(s.f)))
    return false;
  *out = (int64_t)s.f;
  return true;
}

const cy_dim *cy_value_elems(cy_graph *g, cy_val v, uint32_t *out_n) {
  uint64_t n;
  if (!v)
    return NULL;
  cy_value *value = cy_value_of(g, v);
  if (value->elems) {
    if (!cy_type_static_count(g, &value->type, &n))
      return NULL;
    *out_n = (uint32_t)n;
    return value->elems;
  }
  if (!small_const(g, value, MAX_ELEMS, &n))
    return NULL;
  cy_dtype t = (cy_dtype)value->type.dtype;
  cy_dim *elems = CY_NEW_ARRAY(g->arena, cy_dim, n + 1);
  for (uint64_t i = 0; i < n; i++) {
    int64_t x;
    if (!integer_of(t, cy_scalar_load(value->data.bytes, t, i), &x))
      return NULL;
    elems[i] = cy_dim_const(g, x);
  }
  *out_n = (uint32_t)n;
  return value->elems = elems;
}

static double to_double(cy_dtype t, cy_scalar s) {
  char cls = cy_dtype_of(t)->cls;
  return cls == 'F' ? s.f : cls == 'U' ? (double)s.u : (double)s.i;
}

const double *cy_value_floats(cy_graph *g, cy_val v, uint32_t *out_n) {
  uint64_t n;
  if (!v)
    return NULL;
  const cy_value *value = cy_value_of(g, v);
  if (!small_const(g, value, (uint64_t)1 << 24, &n))
    return NULL;
  cy_dtype t = (cy_dtype)value->type.dtype;
  double *list = CY_NEW_ARRAY(g->arena, double, n + 1);
  for (uint64_t i = 0; i < n; i++)
    list[i] = to_double(t, cy_scalar_load(value->data.bytes, t, i));
  *out_n = (uint32_t)n;
  return list;
}

bool cy_value_is_splat(cy_graph *g, cy_val v, double *out_value) {
  uint64_t n;
  if (!v)
    return false;
  const cy_value *value = cy_value_of(g, v);
  if (!small_const(g, value, (uint64_t)1 << 40, &n) || n == 0)
    return false;
  cy_dtype t = (cy_dtype)value->type.dtype;
  cy_scalar first = cy_scalar_load(value->data.bytes, t, 0);
  for (uint64_t i = 1; i < n; i++)
    if (cy_scalar_load(value->data.bytes, t, i).u != first.u)
      return false;
  *out_value = to_double(t, first);
  return true;
}
