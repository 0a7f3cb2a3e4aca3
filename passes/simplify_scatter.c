/* SPDX-License-Identifier: Apache-2.0 */
/* simplify_scatter.c - scatters that replace a window of a tensor, as exporters write x[:, a:b, c:d] = y; and those that
 * write rows of an axis which is brought to the front for that, and back, as x.index_copy(axis, i, y) is exported.
 *
 * Windows.
 * In:  scatter_nd whose index tuples count up: element (i, j, ..) of the updates goes to (start + i, start + j, ..),
 * with one start per axis. The tuples are a constant, or ranges per axis, expanded and set side by side.
 * Out: the slices of the data around the window and the updates, concatenated, which other kernels absorb; a scatter
 * runs in order, element by element, for its indices might be equal. Starts and sizes may be symbols where the window
 * is sure to lie inside; constant ones may count from the end.
 * Refused: steps other than 1, tuples of fewer or more axes than they index, sums and other combinations.
 *
 * Rows.
 * In:  scatter_nd into a transposed tensor, by indices of one number. Out: scatter_elements along the axis that was brought
 * to the front, and the transpose behind it: it meets its inverse there, and what is written is the tensor itself, a cache
 * that an output may share its memory with.
 */
#include "simplify.h"

#include <string.h>

/* Do the elements of v count up by 1 along `axis`, and depend on no other (axis -1: are all equal)? Sets the first. */
static bool counts_up(cy_graph *g, cy_val v, int axis, cy_dim *out_start);

static bool constant_counts(cy_graph *g, const cy_value *v, int axis, cy_dim *out_start) {
  const cy_type *t = &v->type;
  int64_t count = cy_type_count(g, t), size = 1, inner = 1;
  if (!cy_dtype_is_int((cy_dtype)t->dtype) || count < 1 || (axis >= 0 && !cy_dim_is_const(g, t->dim[axis], &size)))
    return false;
  for (int i = axis + 1; axis >= 0 && i < t->rank; i++) {
    int64_t d;
    if (!cy_dim_is_const(g, t->dim[i], &d))
      return false;
    inner *= d;
  }
  int64_t first = cy_scalar_load(v->data.bytes, (cy_dtype)t->dtype, 0).i;
  for (int64_t i = 0; i < count; i++)
    if (cy_scalar_load(v->data.bytes, (cy_dtype)t->dtype, (uint64_t)i).i != first + i / inner % size)
      return false;
  *out_start = cy_dim_const(g, first);
  return true;
}

/* The axis of `from` that is axis `axis` of `to`, a reshape that only adds or takes away axes of 1; -1: none. */
static int axis_before(const cy_graph *g, const cy_type *from, const cy_type *to, int axis) {
  int at = 0, found = -1;
  for (int i = 0; i < to->rank; i++) {
    if (cy_dim_is(g, to->dim[i], 1))
      continue;
    while (at < from->rank && cy_dim_is(g, from->dim[at], 1))
      at++;
    if (at == from->rank || from->dim[at] != to->dim[i])
      return -1;
    found = i == axis ? at : found;
    at++;
  }
  return found;
}

/* Through views and sums of n, of v. */
static bool derived_counts(cy_graph *g, const cy_node_info *n, int axis, cy_dim *out_start) {
  const cy_type *t = cy_type_of(g, n->out[0]), *from = n->nin ? cy_type_of(g, n->in[0]) : NULL;
  uint32_t count;
  int at = axis;
  switch (n->op) {
  case CY_OP_iota:
    *out_start = cy_dim_const(g, 0);
    return axis >= 0 && axis == cy_attr_get_int(n, CY_ATTR_axis, 0);
  case CY_OP_cast:
    return cy_dtype_is_int((cy_dtype)from->dtype) && counts_up(g, n->in[0], axis, out_start);
  case CY_OP_add: {
    const cy_dim *more = cy_value_elems(g, n->in[1], &count);
    if (!more || count != 1 || !cy_same_shape(from, t) || !counts_up(g, n->in[0], axis, out_start))
      return false;
    *out_start = cy_dim_add(g, *out_start, more[0]);
    return true;
  }
  case CY_OP_slice:
    if (!counts_up(g, n->in[0], axis, out_start) || (axis >= 0 && cy_attr_list(n, CY_ATTR_steps, &count)[axis] != 1))
      return false;
    if (axis >= 0)
      *out_start = cy_dim_add(g, *out_start, cy_attr_dim_list(n, CY_ATTR_starts, &count)[axis]);
    return true;
  case CY_OP_expand:
    at = axis < 0 ? -1 : axis - (t->rank - from->rank);
    return (axis < 0 || (at >= 0 && from->dim[at] == t->dim[axis])) && counts_up(g, n->in[0], at, out_start);
  case CY_OP_reshape:
    at = axis < 0 ? -1 : axis_before(g, from, t, axis);
    return (axis < 0) == (at < 0) && counts_up(g, n->in[0], at, out_start);
  default:
    return false;
  }
}

static bool counts_up(cy_graph *g, cy_val v, int axis, cy_dim *out_start) {
  uint32_t count;
  const cy_dim *known = axis < 0 ? cy_value_elems(g, v, &count) : NULL;
  if (known && count == 1) {
    *out_start = known[0];
    return true;
  }
  const cy_value *value = cy_value_of(g, v);
  const cy_node_info *n = cy_def(g, v);
  return value->data.bytes ? constant_counts(g, value, axis, out_start) : n && derived_counts(g, n, axis, out_start);
}

/* Number `which` of the index tuples, as a tensor with an axis for each of the grid, and one of 1. */
static cy_val tuple_part(cy_graph *g, cy_val indices, int which) {
  const cy_type *t = cy_type_of(g, indices);
  const cy_node_info *join = cy_def_of(g, indices, CY_OP_concat);
  int last = t->rank - 1;
  if (cy_dim_is(g, t->dim[last], 1))
    return indices;
  if (!join || cy_attr_get_int(join, CY_ATTR_axis, 0) != last || !cy_dim_is(g, t->dim[last], join->nin))
    return 0;
  return cy_dim_is(g, cy_type_of(g, join->in[which])->dim[last], 1) ? join->in[which] : 0;
}

/* The same of a constant. */
static bool constant_part(cy_graph *g, cy_val indices, int which, cy_dim *out_start) {
  const cy_value *v = cy_value_of(g, indices);
  int last = v->type.rank - 1;
  int64_t count = cy_type_count(g, &v->type), depth, size = 1, inner = 1;
  if (!v->data.bytes || !cy_dtype_is_int((cy_dtype)v->type.dtype) || count < 1)
    return false;
  cy_dim_is_const(g, v->type.dim[last], &depth);
  cy_dim_is_const(g, v->type.dim[which], &size);
  for (int i = which + 1; i < last; i++) {
    int64_t d = 1;
    cy_dim_is_const(g, v->type.dim[i], &d);
    inner *= d;
  }
  int64_t first = cy_scalar_load(v->data.bytes, (cy_dtype)v->type.dtype, (uint64_t)which).i;
  for (int64_t i = 0; i < count / depth; i++) {
    uint64_t at = (uint64_t)(i * depth + which);
    if (cy_scalar_load(v->data.bytes, (cy_dtype)v->type.dtype, at).i != first + i / inner % size)
      return false;
  }
  *out_start = cy_dim_const(g, first);
  return true;
}

/* The start of `size` indices of an axis, constant negative ones counted from its front. */
static cy_dim from_front(cy_graph *g, cy_dim start, cy_dim size, cy_dim axis) {
  int64_t first, count;
  bool behind =
      cy_dim_is_const(g, start, &first) && cy_dim_is_const(g, size, &count) && first < 0 && first + count <= 0;
  return behind ? cy_dim_add(g, start, axis) : start;
}

/* Starts of the window for each axis that the tuples index. False: there is none. */
static bool find_window(cy_graph *g, const cy_type *data, cy_val indices, cy_dim *starts) {
  const cy_type *t = cy_type_of(g, indices);
  int64_t depth;
  int axes = t->rank - 1;
  if (axes < 1 || !cy_dim_is_const(g, t->dim[axes], &depth) || depth != axes || axes > data->rank)
    return false;
  for (int i = 0; i < axes; i++) {
    cy_val part = tuple_part(g, indices, i);
    int along = cy_dim_is(g, t->dim[i], 1) ? -1 : i;
    if (!(part ? counts_up(g, part, along, &starts[i]) : constant_part(g, indices, i, &starts[i])))
      return false;
    starts[i] = from_front(g, starts[i], t->dim[i], data->dim[i]);
    if (!cy_dim_le(g, cy_dim_const(g, 0), starts[i]) ||
        !cy_dim_le(g, cy_dim_add(g, starts[i], t->dim[i]), data->dim[i]))
      return false;
  }
  return true;
}

/* x with the window of axes [axis, naxes) replaced. */
static cy_val with_window(cy_graph *g, cy_val x, cy_val updates, int axis, int naxes, const cy_dim *starts) {
  const cy_type t = *cy_type_of(g, x), *u = cy_type_of(g, updates);
  while (axis < naxes && t.dim[axis] == u->dim[axis])
    axis++;
  if (axis == naxes)
    return updates;
  cy_dim zero = cy_dim_const(g, 0), size = u->dim[axis], end = cy_dim_add(g, starts[axis], size);
  cy_dim from[3] = {zero, starts[axis], end}, extent[3] = {starts[axis], size, cy_dim_sub(g, t.dim[axis], end)};
  cy_val parts[3];
  uint32_t n = 0;
  for (int i = 0; i < 3; i++) {
    if (extent[i] == zero)
      continue;
    cy_val part = cy_build_slice_axis(g, x, axis, from[i], extent[i]);
    parts[n++] = i == 1 ? with_window(g, part, updates, axis + 1, naxes, starts) : part;
  }
  return cy_build_concat(g, parts, n, axis);
}

static cy_val window_replaced(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_type *data = cy_type_of(g, n->in[0]), *updates = cy_type_of(g, n->in[2]);
  cy_dim starts[CY_MAX_RANK];
  if (cy_attr_get_int(n, CY_ATTR_combine, CY_COMBINE_SET) != CY_COMBINE_SET || updates->rank != data->rank ||
      updates->dtype != data->dtype || !find_window(g, data, n->in[1], starts))
    return 0;
  return with_window(g, n->in[0], n->in[2], 0, cy_type_of(g, n->in[1])->rank - 1, starts);
}

/* The row number of each element of updates, whose axis `axis` counts the indices. */
static cy_val rows_of_elements(cy_graph *g, cy_val indices, const cy_type *updates, int axis) {
  cy_dim dims[CY_MAX_RANK];
  for (int i = 0; i < updates->rank; i++)
    dims[i] = i == axis ? updates->dim[i] : cy_dim_const(g, 1);
  cy_val column = cy_build_reshape(g, indices, dims, updates->rank);
  return column ? cy_build_expand(g, column, updates->dim, updates->rank) : 0;
}

static cy_val transposed_rows(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_node_info *transpose = cy_def_of(g, n->in[0], CY_OP_transpose);
  const cy_type data = *cy_type_of(g, n->in[0]), *tuples = cy_type_of(g, n->in[1]);
  if (!transpose || tuples->rank < 1 || !cy_dim_is(g, tuples->dim[tuples->rank - 1], 1))
    return 0;
  int64_t perm[CY_MAX_RANK], inverse[CY_MAX_RANK];
  uint32_t count;
  memcpy(perm, cy_attr_list(transpose, CY_ATTR_perm, &count), sizeof *perm * (size_t)data.rank);
  cy_perm_invert(perm, data.rank, inverse);
  cy_dim dims[CY_MAX_RANK] = {cy_type_elems(g, tuples)};
  for (int i = 1; i < data.rank; i++)
    dims[i] = data.dim[i];
  cy_val rows = cy_build_reshape(g, n->in[2], dims, data.rank);
  cy_val updates = rows ? cy_build_transpose(g, rows, inverse) : 0;
  if (!updates)
    return 0;
  const cy_type written = *cy_type_of(g, updates);
  cy_val in[3] = {transpose->in[0], rows_of_elements(g, n->in[1], &written, (int)perm[0]), updates};
  cy_attr a[2] = {cy_attr_int(CY_ATTR_axis, perm[0]),
                  cy_attr_int(CY_ATTR_combine, cy_attr_get_int(n, CY_ATTR_combine, CY_COMBINE_SET))};
  cy_val y = in[1] ? cy_build(g, CY_OP_scatter_elements, in, 3, a, 2, NULL, 0) : 0;
  return y ? cy_build_transpose(g, y, perm) : 0;
}

static const cy_rule rules[] = {
    {CY_OP_scatter_nd, "window replaced", window_replaced},
    {CY_OP_scatter_nd, "rows of an axis brought to the front", transposed_rows},
};

cy_rule_set cy_simplify_scatter_rules(void) { return (cy_rule_set){rules, sizeof rules / sizeof rules[0]}; }
