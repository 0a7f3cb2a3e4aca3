/* SPDX-License-Identifier: Apache-2.0 */
/* shorthand.c - builders for the common ops.
 *
 * Everything goes through cy_build(), so it folds, checks and reports alike. Axes may be negative here (counted from
 * the end); nodes store them normalised. A 0 input yields 0.
 */
#include "ir/ir_int.h"

#include <stdlib.h>

/* ---- constants --------------------------------------------------------------------------------------------------- */

cy_val cy_build_const(cy_graph *g, const cy_type *type, const void *bytes, uint64_t size) {
  cy_val v = cy_value_add(g, type);
  cy_value_set_data(g, v, bytes, size);
  return v;
}

static cy_val scalar_const(cy_graph *g, cy_dtype dtype, cy_scalar v) {
  if (cy_dtype_of(dtype)->cls == 'C')
    return cy_build_error(g, NULL, "%s", CY_NO_COMPLEX);
  cy_type type = cy_type_make(dtype, 0, NULL);
  void *bytes = cy_arena_alloc(g->arena, 16);
  cy_scalar_store(bytes, dtype, 0, v);
  return cy_build_const(g, &type, bytes, cy_dtype_bytes(dtype, 1));
}

cy_val cy_build_scalar(cy_graph *g, cy_dtype dtype, double v) {
  cy_scalar s = {.f = v};
  return scalar_const(g, dtype, cy_scalar_eval(CY_OP_cast, CY_F64, dtype, &s));
}

cy_val cy_build_scalar_int(cy_graph *g, cy_dtype dtype, int64_t v) {
  cy_scalar s = {.i = v};
  return scalar_const(g, dtype, cy_scalar_eval(CY_OP_cast, CY_I64, dtype, &s));
}

cy_val cy_build_ints(cy_graph *g, const int64_t *v, uint32_t n) {
  cy_dim d = cy_dim_const(g, n);
  cy_type type = cy_type_make(CY_I64, 1, &d);
  return cy_build_const(g, &type, cy_arena_copy(g->arena, v, sizeof *v * n), sizeof *v * n);
}

static cy_val dims_node(cy_graph *g, const cy_dim *v, uint32_t n, const cy_type *type) {
  cy_attr a = cy_attr_dims(CY_ATTR_elems, v, n);
  return cy_build(g, CY_OP_dims, NULL, 0, &a, 1, type, 1);
}

cy_val cy_build_dims(cy_graph *g, const cy_dim *v, uint32_t n) {
  cy_dim d = cy_dim_const(g, n);
  cy_type type = cy_type_make(CY_I64, 1, &d);
  return dims_node(g, v, n, &type);
}

cy_val cy_build_dim_scalar(cy_graph *g, cy_dim v) {
  cy_type type = cy_type_make(CY_I64, 0, NULL);
  return dims_node(g, &v, 1, &type);
}

cy_val cy_build_like(cy_graph *g, cy_val x, double v) {
  return x ? cy_build_scalar(g, (cy_dtype)cy_value_of(g, x)->type.dtype, v) : 0;
}

cy_val cy_build_iota(cy_graph *g, cy_dtype dtype, const cy_dim *dims, int rank, int axis) {
  cy_type type = cy_type_make(dtype, rank, dims);
  cy_attr a = cy_attr_int(CY_ATTR_axis, axis < 0 ? axis + rank : axis);
  return cy_build(g, CY_OP_iota, NULL, 0, &a, 1, &type, 1);
}

/* ---- element-wise ------------------------------------------------------------------------------------------------ */

cy_val cy_build_unary(cy_graph *g, cy_op op, cy_val x) { return cy_build(g, op, &x, 1, NULL, 0, NULL, 0); }

cy_val (cy_build_binary)(cy_graph *g, cy_op op, cy_val a, cy_val b) {
  return cy_build(g, op, (cy_val[]){a, b}, 2, NULL, 0, NULL, 0);
}

cy_val (cy_build_select)(cy_graph *g, cy_val c, cy_val a, cy_val b) {
  return cy_build(g, CY_OP_select, (cy_val[]){c, a, b}, 3, NULL, 0, NULL, 0);
}

static cy_val retyped(cy_graph *g, cy_op op, cy_val x, cy_dtype dtype) {
  if (!x)
    return 0;
  cy_type type = cy_value_of(g, x)->type;
  type.dtype = (uint8_t)dtype;
  return cy_build(g, op, &x, 1, NULL, 0, &type, 1);
}

cy_val cy_build_cast(cy_graph *g, cy_val x, cy_dtype dtype) { return retyped(g, CY_OP_cast, x, dtype); }
cy_val cy_build_bitcast(cy_graph *g, cy_val x, cy_dtype dtype) { return retyped(g, CY_OP_bitcast, x, dtype); }

/* ---- views ------------------------------------------------------------------------------------------------------- */

static int rank_of(const cy_graph *g, cy_val x) { return cy_value_of(g, x)->type.rank; }
static cy_dtype dtype_of(const cy_graph *g, cy_val x) { return (cy_dtype)cy_value_of(g, x)->type.dtype; }

static cy_val typed_view(cy_graph *g, cy_op op, cy_val x, const cy_dim *dims, int rank) {
  if (!x)
    return 0;
  if (rank > CY_MAX_RANK)
    return cy_build_error(g, NULL, "expected at most %d dims, found %d", CY_MAX_RANK, rank);
  cy_type type = cy_type_make(dtype_of(g, x), rank, dims);
  return cy_build(g, op, &x, 1, NULL, 0, &type, 1);
}

cy_val cy_build_reshape(cy_graph *g, cy_val x, const cy_dim *dims, int rank) {
  return typed_view(g, CY_OP_reshape, x, dims, rank);
}

cy_val cy_build_expand(cy_graph *g, cy_val x, const cy_dim *dims, int rank) {
  return typed_view(g, CY_OP_expand, x, dims, rank);
}

cy_val cy_build_transpose(cy_graph *g, cy_val x, const int64_t *perm) {
  if (!x)
    return 0;
  cy_attr a = cy_attr_ints(CY_ATTR_perm, perm, (uint32_t)rank_of(g, x));
  return cy_build(g, CY_OP_transpose, &x, 1, &a, 1, NULL, 0);
}

cy_val cy_build_slice(cy_graph *g, cy_val x, const cy_dim *starts, const int64_t *steps, const cy_dim *sizes) {
  static const int64_t ones[CY_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  if (!x)
    return 0;
  uint32_t rank = (uint32_t)rank_of(g, x);
  cy_type type = cy_type_make(dtype_of(g, x), (int)rank, sizes);
  cy_attr a[2] = {cy_attr_dims(CY_ATTR_starts, starts, rank), cy_attr_ints(CY_ATTR_steps, steps ? steps : ones, rank)};
  return cy_build(g, CY_OP_slice, &x, 1, a, 2, &type, 1);
}

cy_val cy_build_slice_axis(cy_graph *g, cy_val x, int axis, cy_dim start, cy_dim size) {
  if (!x)
    return 0;
  cy_dim starts[CY_MAX_RANK], sizes[CY_MAX_RANK];
  const cy_type *t = &cy_value_of(g, x)->type;
  for (int i = 0; i < t->rank; i++) {
    bool here = i == (axis < 0 ? axis + t->rank : axis);
    starts[i] = here ? start : cy_dim_const(g, 0);
    sizes[i] = here ? size : t->dim[i];
    if (here)
      cy_graph_require(g, cy_dim_add(g, start, size), cy_dim_max(g, t->dim[i], start), CY_REQUIRE_AT_MOST); /* or none */
  }
  return cy_build_slice(g, x, starts, NULL, sizes);
}

cy_val cy_build_pad(cy_graph *g, cy_val x, const cy_dim *pads, int mode, cy_val fill) {
  if (!x)
    return 0;
  cy_attr a[2] = {cy_attr_dims(CY_ATTR_pads, pads, 2 * (uint32_t)rank_of(g, x)), cy_attr_int(CY_ATTR_mode, mode)};
  return cy_build(g, CY_OP_pad, (cy_val[]){x, fill}, fill ? 2 : 1, a, 2, NULL, 0);
}

cy_val cy_build_concat(cy_graph *g, const cy_val *v, uint32_t n, int axis) {
  if (n == 0)
    return cy_build_error(g, NULL, "expected at least one tensor to concatenate, found none");
  if (!v[0])
    return 0;
  cy_attr a = cy_attr_int(CY_ATTR_axis, axis < 0 ? axis + rank_of(g, v[0]) : axis);
  return cy_build(g, CY_OP_concat, v, n, &a, 1, NULL, 0);
}

cy_val cy_build_write_rows(cy_graph *g, cy_val x, cy_val rows, cy_val starts, int axis, cy_dim length,
                           cy_write_mode mode) {
  if (!x || !rows || !starts)
    return 0;
  const cy_attr a[2] = {cy_attr_int(CY_ATTR_axis, axis), cy_attr_int(CY_ATTR_mode, mode)};
  cy_type t = cy_value_of(g, x)->type;
  const cy_type *r = &cy_value_of(g, rows)->type;
  int64_t known;
  for (int i = 0; i < t.rank && i < r->rank; i++)
    if (cy_dim_is_const(g, r->dim[i], &known))
      t.dim[i] = r->dim[i];
  t.dim[axis] = length;
  return cy_build(g, CY_OP_write_rows, (cy_val[]){x, rows, starts}, 3, a, 2, &t, 1);
}

cy_val cy_build_gather(cy_graph *g, cy_val x, cy_val indices, int axis) {
  if (!x)
    return 0;
  cy_attr a = cy_attr_int(CY_ATTR_axis, axis < 0 ? axis + rank_of(g, x) : axis);
  return cy_build(g, CY_OP_gather, (cy_val[]){x, indices}, 2, &a, 1, NULL, 0);
}

cy_val cy_build_squeeze(cy_graph *g, cy_val x, int axis) {
  if (!x)
    return 0;
  cy_type t = cy_value_of(g, x)->type;
  axis = axis < 0 ? axis + t.rank : axis;
  if (axis < 0 || axis >= t.rank)
    return cy_build_error(g, NULL, "expected an axis below %d, found %d", t.rank, axis);
  memmove(&t.dim[axis], &t.dim[axis + 1], sizeof(cy_dim) * (size_t)(t.rank - axis - 1));
  return cy_build_reshape(g, x, t.dim, t.rank - 1);
}

cy_val cy_build_unsqueeze(cy_graph *g, cy_val x, int axis) {
  if (!x)
    return 0;
  cy_type t = cy_value_of(g, x)->type;
  axis = axis < 0 ? axis + t.rank + 1 : axis;
  if (axis < 0 || axis > t.rank)
    return cy_build_error(g, NULL, "expected an axis up to %d, found %d", t.rank, axis);
  cy_dim dims[CY_MAX_RANK + 1];
  memcpy(dims, t.dim, sizeof(cy_dim) * (size_t)axis);
  dims[axis] = cy_dim_const(g, 1);
  memcpy(&dims[axis + 1], &t.dim[axis], sizeof(cy_dim) * (size_t)(t.rank - axis));
  return cy_build_reshape(g, x, dims, t.rank + 1);
}

/* ---- reductions and contractions --------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

cy_val cy_build_reduce(cy_graph *g, cy_op op, cy_val x, const int64_t *axes, uint32_t naxes, bool keepdims) {
  if (!x || naxes == 0)
    return x;
  int64_t sorted[CY_MAX_RANK], rank = rank_of(g, x);
  if (naxes > CY_MAX_RANK)
    return cy_build_error(g, NULL, "expected at most %d axes, found %u", CY_MAX_RANK, naxes);
  for (uint32_t i = 0; i < naxes; i++)
    sorted[i] = axes[i] < 0 ? axes[i] + rank : axes[i];
  qsort(sorted, naxes, sizeof *sorted, by_value);
  cy_attr keep = cy_attr_int(CY_ATTR_keepdims, keepdims);
  if (op == CY_OP_argmin || op == CY_OP_argmax) {
    cy_attr a[3] = {cy_attr_int(CY_ATTR_axis, sorted[0]), keep, cy_attr_int(CY_ATTR_select_last, 0)};
    return cy_build(g, op, &x, 1, a, 3, NULL, 0);
  }
  cy_attr a[2] = {cy_attr_ints(CY_ATTR_axes, sorted, naxes), keep};
  return cy_build(g, op, &x, 1, a, 2, NULL, 0);
}

cy_val cy_build_matmul(cy_graph *g, cy_val a, cy_val b, cy_dtype dtype) {
  cy_type type = {.dtype = (uint8_t)dtype};
  return cy_build(g, CY_OP_matmul, (cy_val[]){a, b}, 2, NULL, 0, &type, 1);
}
