/* SPDX-License-Identifier: Apache-2.0 */
/* helpers.c - what most importers need: axes, contents of shape-like inputs, and a few shapes of composition.
 *
 * Everything builds through cy_build_*(), so a 0 in gives a 0 out and the first mistake is the only one reported.
 */
#include "frontend/import_int.h"

bool cy_onnx_axis(cy_importer *im, int64_t axis, int rank, int *out_axis) {
  if (axis < -rank || axis >= rank) {
    cy_build_error(im->g, "attribute 'axis'", "axis %lld is outside of [%d, %d) for a tensor of rank %d",
                   (long long)axis, -rank, rank, rank);
    return false;
  }
  *out_axis = (int)(axis < 0 ? axis + rank : axis);
  return true;
}

static bool normalize_axes(cy_importer *im, const int64_t *axes, uint32_t n, int rank, int64_t *out_axes) {
  bool seen[CY_MAX_RANK] = {false};
  for (uint32_t i = 0; i < n; i++) {
    int a;
    if (!cy_onnx_axis(im, axes[i], rank, &a))
      return false;
    if (seen[a]) {
      cy_build_error(im->g, "axes", "axis %d is named twice", a);
      return false;
    }
    seen[a] = true;
    out_axes[i] = a;
  }
  return true;
}

bool cy_onnx_axes(cy_importer *im, const cy_onnx_node *n, uint32_t k, int rank, int64_t *out_axes, uint32_t *out_n) {
  *out_n = 0;
  int64_t raw[CY_MAX_RANK];
  const int64_t *axes = raw;
  uint32_t count = 0;
  if (k && n->in[k]) {
    if (!cy_onnx_const_ints(im, n, k, raw, CY_MAX_RANK, &count))
      return false;
  } else {
    axes = cy_onnx_ints(im, n, "axes", &count);
  }
  if (count > CY_MAX_RANK || (int)count > rank) {
    cy_build_error(im->g, "axes", "%u axes for a tensor of rank %d", count, rank);
    return false;
  }
  if (!normalize_axes(im, axes, count, rank, out_axes))
    return false;
  *out_n = count;
  return true;
}

static const char *input_item(cy_importer *im, const cy_onnx_node *n, uint32_t k) {
  return cy_arena_printf(im->arena, "input '%s'", k < n->nin ? n->proto->input[k] : "");
}

const cy_dim *cy_onnx_elems(cy_importer *im, const cy_onnx_node *n, uint32_t k, uint32_t *out_n) {
  static const cy_dim none[1];
  const cy_type *t = cy_onnx_type(im, n->in[k]);
  *out_n = 0;
  if (t->rank > 1 || !cy_dtype_is_int(t->dtype)) {
    cy_build_error(im->g, input_item(im, n, k), "expected a list of integers, found %s", cy_type_text(im->g, t));
    return NULL;
  }
  if (t->rank == 1 && cy_dim_is(im->g, t->dim[0], 0))
    return none;
  const cy_dim *e = cy_value_elems_or_read(im->g, n->in[k], out_n);
  if (!e)
    cy_build_error(im->g, input_item(im, n, k),
                   "the number of elements of this list must be known at compile time, found %s",
                   cy_type_text(im->g, t));
  return e;
}

bool cy_onnx_const_ints(cy_importer *im, const cy_onnx_node *n, uint32_t k, int64_t *out, uint32_t max,
                        uint32_t *out_n) {
  const cy_type *t = cy_onnx_type(im, n->in[k]);
  *out_n = 0;
  if (t->rank == 1 && cy_dim_is(im->g, t->dim[0], 0))
    return true;
  uint32_t count = 0;
  const cy_dim *e = cy_value_elems(im->g, n->in[k], &count);
  bool ok = e && count <= max;
  for (uint32_t i = 0; ok && i < count; i++)
    ok = cy_dim_is_const(im->g, e[i], &out[i]);
  if (!ok) {
    cy_build_error(im->g, input_item(im, n, k), "expected at most %u integers known at compile time, found %s", max,
                   cy_type_text(im->g, t));
    return false;
  }
  *out_n = count;
  return true;
}

bool cy_onnx_clash(cy_importer *im, cy_dim a, cy_dim b) {
  int64_t x, y;
  return cy_dim_is_const(im->g, a, &x) && cy_dim_is_const(im->g, b, &y) && x != y;
}

bool cy_onnx_at_most(cy_importer *im, const char *item, cy_dim a, cy_dim b) {
  int64_t x, y;
  if (cy_dim_is_const(im->g, a, &x) && cy_dim_is_const(im->g, b, &y) && x > y)
    return cy_build_error(im->g, item, "%lld of %lld elements are asked for", (long long)x, (long long)y);
  cy_graph_require(im->g, a, b, CY_REQUIRE_AT_MOST);
  return true;
}

void cy_onnx_require_sizes(cy_importer *im, const cy_dim *d, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    cy_graph_require(im->g, d[i], cy_dim_const(im->g, 0), CY_REQUIRE_SIZE);
}

bool cy_onnx_fits_into(cy_importer *im, const char *item, cy_val v, cy_val into) {
  const cy_type *t = cy_onnx_type(im, v), *y = cy_onnx_type(im, into);
  for (int i = 1; i <= t->rank && i <= y->rank; i++) {
    cy_dim upper = cy_dim_max(im->g, y->dim[y->rank - i], cy_dim_const(im->g, 1));
    if (!cy_onnx_at_most(im, item, t->dim[t->rank - i], upper))
      return false;
  }
  return t->rank <= y->rank || cy_build_error(im->g, item, "expected one that broadcasts to %s, found %s",
                                              cy_type_text(im->g, y), cy_type_text(im->g, t));
}

bool cy_onnx_check_source(cy_importer *im, cy_dim size, cy_val made) {
  const cy_type *t = cy_onnx_type(im, made);
  cy_dim any = cy_dim_const(im->g, 1);
  for (int i = 0; i < t->rank; i++)
    any = cy_dim_min(im->g, any, t->dim[i]);
  if (cy_dim_is(im->g, any, 1) && cy_dim_is(im->g, size, 0))
    return cy_build_error(im->g, NULL, "%s is computed from an axis without elements", cy_type_text(im->g, t));
  cy_graph_require(im->g, any, size, CY_REQUIRE_SOURCE);
  return true;
}

cy_val cy_onnx_flatten2(cy_importer *im, cy_val x, int axis) {
  const cy_type *t = cy_onnx_type(im, x);
  cy_dim d[2] = {cy_dim_const(im->g, 1), cy_dim_const(im->g, 1)};
  for (int i = 0; i < t->rank; i++)
    d[i >= axis] = cy_dim_mul(im->g, d[i >= axis], t->dim[i]);
  return cy_build_reshape(im->g, x, d, 2);
}

cy_val cy_onnx_channel(cy_importer *im, cy_val v, int rank, int axis) {
  if (!v)
    return 0;
  cy_dim d[CY_MAX_RANK];
  const cy_type *t = cy_onnx_type(im, v);
  if (t->rank == 0)
    return v;
  if (t->rank != 1)
    return cy_build_error(im->g, NULL, "expected one value per channel in a list, found %s", cy_type_text(im->g, t));
  int n = rank - axis;
  d[0] = t->dim[0];
  for (int i = 1; i < n; i++)
    d[i] = cy_dim_const(im->g, 1);
  return n == 1 ? v : cy_build_reshape(im->g, v, d, n);
}

cy_val cy_onnx_per_channel(cy_importer *im, cy_val v, const char *item, cy_val x, int axis) {
  if (!v || !x)
    return 0;
  const cy_type *t = cy_onnx_type(im, v), *tx = cy_onnx_type(im, x);
  if (t->rank == 1 && cy_onnx_clash(im, t->dim[0], tx->dim[axis]))
    return cy_build_error(im->g, item, "expected %s values, one for each channel of %s, found %s",
                          cy_dim_text(im->g, tx->dim[axis]), cy_type_text(im->g, tx), cy_type_text(im->g, t));
  if (t->rank == 1)
    cy_graph_require(im->g, t->dim[0], tx->dim[axis], CY_REQUIRE_EQUAL);
  return cy_onnx_channel(im, v, tx->rank, axis);
}

bool cy_onnx_broadcasts_to(cy_importer *im, cy_val v, const char *item, cy_val x) {
  if (!v || !x)
    return v == 0;
  const cy_type *t = cy_onnx_type(im, v), *tx = cy_onnx_type(im, x);
  for (int i = 1; i <= t->rank; i++) {
    cy_dim d = t->dim[t->rank - i], one = cy_dim_const(im->g, 1), have = i <= tx->rank ? tx->dim[tx->rank - i] : one;
    int64_t a, b;
    bool known = cy_dim_is_const(im->g, d, &a) && a != 1 && cy_dim_is_const(im->g, have, &b);
    if (known && a != b)
      return cy_build_error(im->g, item, "expected a shape that broadcasts to %s, found %s", cy_type_text(im->g, tx),
                            cy_type_text(im->g, t));
    if (!cy_dim_is(im->g, d, 1)) {
      cy_graph_require(im->g, d, have, CY_REQUIRE_BROADCAST);
      cy_graph_require(im->g, d, cy_dim_max(im->g, have, one), CY_REQUIRE_AT_MOST);
    }
  }
  return true;
}

cy_val cy_onnx_mean(cy_importer *im, cy_val x, const int64_t *axes, uint32_t n, bool keepdims) {
  if (!x)
    return 0;
  const cy_type *t = cy_onnx_type(im, x);
  cy_dim count = cy_dim_const(im->g, 1);
  for (uint32_t i = 0; i < n; i++)
    count = cy_dim_mul(im->g, count, t->dim[axes[i]]);
  int64_t c;
  cy_val sum = cy_build_reduce(im->g, CY_OP_reduce_sum, x, axes, n, keepdims);
  if (cy_dim_is_const(im->g, count, &c) && cy_dtype_is_float(t->dtype))
    return c > 0 && (c & (c - 1)) == 0 ? MUL(sum, LIKE(sum, 1.0 / (double)c)) : DIV(sum, LIKE(sum, (double)c));
  return DIV(sum, CAST(cy_build_dim_scalar(im->g, count), t->dtype));
}

cy_val cy_onnx_normalize(cy_importer *im, cy_val x, const int64_t *axes, uint32_t n, double epsilon, bool rms) {
  cy_attr a[3] = {cy_attr_ints(CY_ATTR_axes, axes, n), cy_attr_float(CY_ATTR_epsilon, epsilon),
                  cy_attr_int(CY_ATTR_rms, rms)};
  return cy_build(im->g, CY_OP_normalize, &x, 1, a, 3, NULL, 1);
}

cy_val cy_onnx_move_axis(cy_importer *im, cy_val x, int from, int to) {
  if (!x || from == to)
    return x;
  int rank = cy_onnx_type(im, x)->rank, k = 0;
  int64_t perm[CY_MAX_RANK];
  for (int i = 0; i < rank; i++) {
    if (i == to) {
      perm[i] = from;
    } else {
      k += k == from;
      perm[i] = k++;
    }
  }
  return cy_build_transpose(im->g, x, perm);
}

cy_val cy_onnx_transpose_channels(cy_importer *im, cy_val x, bool back) {
  int last = x ? cy_onnx_type(im, x)->rank - 1 : 0;
  return last > 1 ? cy_onnx_move_axis(im, x, back ? 1 : last, back ? last : 1) : x;
}

cy_val cy_onnx_fill(cy_importer *im, cy_val scalar, const cy_dim *dims, int rank) {
  if (!scalar)
    return 0;
  if (cy_onnx_type(im, scalar)->rank)
    scalar = cy_build_reshape(im->g, scalar, NULL, 0);
  return rank ? cy_build_expand(im->g, scalar, dims, rank) : scalar;
}

cy_val cy_onnx_matmul(cy_importer *im, cy_val a, cy_val b, cy_dtype dtype) {
  if (!a || !b)
    return 0;
  int ra = cy_onnx_type(im, a)->rank, rb = cy_onnx_type(im, b)->rank;
  if (ra == 0 || rb == 0)
    return cy_build_error(im->g, NULL, "expected operands of rank 1 or more, found %s and %s",
                          cy_type_text(im->g, cy_onnx_type(im, a)), cy_type_text(im->g, cy_onnx_type(im, b)));
  b = rb == 1 ? cy_build_unsqueeze(im->g, b, 1) : b;
  a = ra == 1 ? cy_build_unsqueeze(im->g, a, 0) : a;
  cy_val y = cy_build_matmul(im->g, a, b, dtype);
  if (rb == 1 && y)
    y = cy_build_squeeze(im->g, y, cy_onnx_type(im, y)->rank - 1);
  if (ra == 1 && y)
    y = cy_build_squeeze(im->g, y, cy_onnx_type(im, y)->rank - (rb == 1 ? 1 : 2));
  return y;
}

void cy_onnx_inner_init(cy_onnx_inner *q, const cy_onnx_node *n) {
  *q = (cy_onnx_inner){.n = *n};
  q->n.in = q->in;
  q->n.out = q->out;
  q->n.nout = 1;
}
