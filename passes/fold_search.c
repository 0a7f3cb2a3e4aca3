/* SPDX-License-Identifier: Apache-2.0 */
/* fold_search.c - top-k, running sums and picked elements of constants, for fold.c: weights that a network sorts before it
 * uses them (sparsemax and entmax of parameters, as trees that choose their features).
 *
 * The order is the runtime's (runtime/ops/ops.c): NaN is the largest number, and equal ones come in the order of their index.
 * Sums are rounded once, at the end.
 */
#include "pass_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SORTED = 1 << 24 };

/* What lies along `axis`: n elements, `inner` apart, in each of `rows`. */
typedef struct lines {
  int64_t n, inner, rows;
} lines;

static lines lines_of(const int64_t *dim, int rank, int64_t axis) {
  lines l = {dim[axis], 1, 1};
  for (int i = 0; i < rank; i++)
    *(i > axis ? &l.inner : &l.rows) *= i == axis ? 1 : dim[i];
  l.rows *= l.inner;
  return l;
}

/* The first element of a row, of lines that have `n` elements. */
static int64_t start_of(const lines *l, int64_t row, int64_t n) {
  return row / l->inner * l->inner * n + row % l->inner;
}

typedef struct item {
  int nan; /* -1: comes first, 1: last */
  double key;
  int64_t index;
} item;

static int by_key(const void *a, const void *b) {
  const item *p = a, *q = b;
  int order = (p->nan > q->nan) - (p->nan < q->nan);
  order = order || p->nan ? order : (p->key > q->key) - (p->key < q->key);
  return order ? order : (p->index > q->index) - (p->index < q->index);
}

bool cy_fold_topk(cy_pass *p, const cy_node_info *n) {
  cy_graph *g = p->g;
  const cy_value *x = cy_value_of(g, n->in[0]);
  const cy_type t = x->type, values = *cy_type_of(g, n->out[0]), indices = *cy_type_of(g, n->out[1]);
  cy_dtype dtype = (cy_dtype)t.dtype;
  int64_t axis = cy_attr_get_int(n, CY_ATTR_axis, 0), dim[CY_MAX_RANK], kept[CY_MAX_RANK];
  bool largest = cy_attr_get_int(n, CY_ATTR_largest, 1) != 0, real = cy_dtype_is_float(dtype);
  if (!x->data.bytes || !cy_type_static(g, &t, dim) || !cy_type_static(g, &values, kept) || !t.rank ||
      cy_type_count(g, &t) > MAX_SORTED || !kept[axis] || (!real && !cy_dtype_is_int(dtype)) ||
      cy_dtype_of(dtype)->bits < 8 || (!real && cy_dtype_of(dtype)->bits > 32))
    return false;
  const unsigned char *from = x->data.bytes;
  lines l = lines_of(dim, t.rank, axis);
  size_t unit = (size_t)cy_dtype_of(dtype)->bits / 8;
  cy_val v, i;
  unsigned char *to = cy_const_new(g, &values, &v);
  int64_t *at = cy_const_new(g, &indices, &i);
  item *items = CY_NEW_ARRAY(p->scratch, item, l.n + 1);
  for (int64_t row = 0; row < l.rows; row++) {
    int64_t first = start_of(&l, row, l.n), out = start_of(&l, row, kept[axis]);
    for (int64_t k = 0; k < l.n; k++) {
      cy_scalar s = cy_scalar_load(from, dtype, (uint64_t)(first + k * l.inner));
      double key = real ? s.f : (double)s.i;
      items[k] = (item){isnan(key) ? (largest ? -1 : 1) : 0, largest ? -key : key, k};
    }
    qsort(items, (size_t)l.n, sizeof *items, by_key);
    for (int64_t k = 0; k < kept[axis]; k++, out += l.inner) {
      memcpy(to + (size_t)out * unit, from + (size_t)(first + items[k].index * l.inner) * unit, unit);
      at[out] = items[k].index;
    }
  }
  cy_graph_replace(g, n->out[0], v);
  cy_graph_replace(g, n->out[1], i);
  return true;
}

cy_val cy_fold_cumsum(cy_graph *g, const cy_node_info *n) {
  const cy_type t = *cy_type_of(g, n->out[0]);
  cy_dtype dtype = (cy_dtype)t.dtype;
  int64_t axis = cy_attr_get_int(n, CY_ATTR_axis, 0), dim[CY_MAX_RANK];
  bool exclusive = cy_attr_get_int(n, CY_ATTR_exclusive, 0) != 0;
  bool reverse = cy_attr_get_int(n, CY_ATTR_reverse, 0) != 0;
  if (!cy_dtype_is_float(dtype) || !t.rank || !cy_type_static(g, &t, dim))
    return 0;
  lines l = lines_of(dim, t.rank, axis);
  cy_val out;
  void *to = cy_const_new(g, &t, &out);
  const void *from = cy_value_of(g, n->in[0])->data.bytes;
  for (int64_t row = 0; row < l.rows; row++) {
    cy_scalar sum = {.f = 0};
    for (int64_t k = 0; k < l.n; k++) {
      uint64_t at = (uint64_t)(start_of(&l, row, l.n) + (reverse ? l.n - 1 - k : k) * l.inner);
      cy_scalar next = {.f = sum.f + cy_scalar_load(from, dtype, at).f};
      cy_scalar_store(to, dtype, at, exclusive ? sum : next);
      sum = next;
    }
  }
  return out;
}

/* Indices as the op has them: negative ones count from the end, what is outside is clamped. */
cy_val cy_fold_gather_elements(cy_graph *g, const cy_node_info *n) {
  const cy_type t = *cy_type_of(g, n->in[0]), picked = *cy_type_of(g, n->in[1]);
  int64_t axis = cy_attr_get_int(n, CY_ATTR_axis, 0), dim[CY_MAX_RANK], dims[CY_MAX_RANK];
  size_t unit = (size_t)cy_dtype_of((cy_dtype)t.dtype)->bits / 8;
  if (!unit || !t.rank || !cy_type_static(g, &t, dim) || !cy_type_static(g, &picked, dims) || !dim[axis])
    return 0;
  cy_val out;
  unsigned char *to = cy_const_new(g, cy_type_of(g, n->out[0]), &out);
  const unsigned char *from = cy_value_of(g, n->in[0])->data.bytes;
  const void *index = cy_value_of(g, n->in[1])->data.bytes;
  for (uint64_t i = 0, count = cy_type_count(g, &picked); i < count; i++) {
    int64_t at = cy_scalar_load(index, (cy_dtype)picked.dtype, i).i, place = 0, stride = 1;
    at += at < 0 ? dim[axis] : 0;
    at = at < 0 ? 0 : at >= dim[axis] ? dim[axis] - 1 : at;
    uint64_t rest = i;
    for (int a = t.rank; a-- > 0; stride *= dim[a]) {
      place += (a == axis ? at : (int64_t)(rest % (uint64_t)dims[a])) * stride;
      rest /= (uint64_t)dims[a];
    }
    memcpy(to + i * unit, from + (size_t)place * unit, unit);
  }
  return out;
}
