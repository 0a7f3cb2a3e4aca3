/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_index.c - ops that read or write by index, or whose result size depends on data: Gather, Scatter, OneHot, TopK,
 * NonZero ..
 *
 * A size known only at run time is a symbol: CY_SYM_COUNT, bound here to the output it is a dimension of.
 */
#include "frontend/import_int.h"

#include <math.h>

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))

static cy_dim num(cy_importer *im, int64_t v) { return cy_dim_const(im->g, v); }

void cy_onnx_bind_count(cy_importer *im, cy_sym s, cy_val v, int64_t index) {
  cy_sym_of(im->g, s)->value = v;
  cy_sym_of(im->g, s)->index = index;
}

static bool axis_of(cy_importer *im, const cy_onnx_node *n, int64_t otherwise, int *out) {
  return cy_onnx_axis(im, cy_onnx_int(im, n, "axis", otherwise), cy_onnx_type(im, X)->rank, out);
}

/* ---- gather, scatter ---- */

IMPORT(gather) {
  int axis;
  return axis_of(im, n, 0, &axis) &&
         cy_onnx_check_indices(im, n->in[1], cy_onnx_type(im, X)->dim[axis], true) &&
         SET(cy_build_gather(im->g, X, n->in[1], axis));
}

IMPORT(gather_elements) {
  int axis;
  if (!axis_of(im, n, 0, &axis) || !cy_onnx_check_indices(im, n->in[1], cy_onnx_type(im, X)->dim[axis], true))
    return false;
  cy_attr a = cy_attr_int(CY_ATTR_axis, axis);
  return SET(cy_build(im->g, CY_OP_gather_elements, n->in, 2, &a, 1, NULL, 1));
}

IMPORT(gather_nd) {
  const cy_type *x = cy_onnx_type(im, X), *idx = cy_onnx_type(im, n->in[1]);
  int64_t batch = cy_onnx_int(im, n, "batch_dims", 0), depth;
  cy_attr a = cy_attr_int(CY_ATTR_batch_dims, batch);
  if (batch >= 0 && batch < x->rank && idx->rank && cy_dim_is_const(im->g, idx->dim[idx->rank - 1], &depth) &&
      !cy_onnx_check_tuples(im, n->in[1], x, (int)batch, depth))
    return false;
  return SET(cy_build(im->g, CY_OP_gather_nd, n->in, 2, &a, 1, NULL, 1));
}

/* In the order of cy_combine. */
#define COMBINE cy_onnx_word(im, n, "reduction", "none", "none|add|mul|min|max")

IMPORT(scatter_elements) {
  int axis, combine = COMBINE;
  if (combine < 0 || !axis_of(im, n, 0, &axis) ||
      !cy_onnx_check_indices(im, n->in[1], cy_onnx_type(im, X)->dim[axis], true))
    return false;
  cy_attr a[2] = {cy_attr_int(CY_ATTR_axis, axis), cy_attr_int(CY_ATTR_combine, combine)};
  return SET(cy_build(im->g, CY_OP_scatter_elements, n->in, 3, a, 2, NULL, 1));
}

IMPORT(scatter_nd) {
  int combine = COMBINE;
  const cy_type *x = cy_onnx_type(im, X);
  int depth = cy_onnx_type(im, n->in[1])->rank - 1 + x->rank - cy_onnx_type(im, n->in[2])->rank;
  cy_attr a = cy_attr_int(CY_ATTR_combine, combine);
  cy_val y = combine >= 0 ? cy_build(im->g, CY_OP_scatter_nd, n->in, 3, &a, 1, NULL, 1) : 0;
  return y && cy_onnx_check_tuples(im, n->in[1], x, 0, depth) && SET(y);
}

static cy_val one_of(cy_importer *im, cy_val list, int64_t k) {
  cy_val v = cy_build_slice_axis(im->g, list, 0, num(im, k), num(im, 1));
  return cy_build_reshape(im->g, v, NULL, 0);
}

/* depth may be any number type, a scalar or a list of one. */
static bool depth_of(cy_importer *im, const cy_onnx_node *n, cy_dim *out) {
  uint32_t count;
  const double *f = cy_value_floats(im->g, n->in[1], &count);
  if (f && count == 1) {
    *out = num(im, (int64_t)f[0]);
    return true;
  }
  cy_val as_int = CAST(n->in[1], CY_I64);
  const cy_dim *d = as_int ? cy_value_elems_or_read(im->g, as_int, &count) : NULL;
  if (!d || count != 1) {
    cy_build_error(im->g, "input 'depth'", "expected one number, found %s",
                   cy_type_text(im->g, cy_onnx_type(im, n->in[1])));
    return false;
  }
  *out = d[0];
  return true;
}

IMPORT(one_hot) {
  const cy_type t = *cy_onnx_type(im, X), *tv = cy_onnx_type(im, n->in[2]);
  int axis;
  cy_dim depth, d[CY_MAX_RANK], di[CY_MAX_RANK];
  if (t.rank + 1 > CY_MAX_RANK || tv->rank != 1)
    return cy_build_error(im->g, "input 'values'", "expected [off, on], found %s", cy_type_text(im->g, tv));
  if (cy_onnx_clash(im, tv->dim[0], num(im, 2)))
    return cy_build_error(im->g, "input 'values'", "expected two, [off, on], found %s", cy_type_text(im->g, tv));
  cy_graph_require(im->g, tv->dim[0], num(im, 2), CY_REQUIRE_EQUAL);
  if (!cy_onnx_axis(im, cy_onnx_int(im, n, "axis", -1), t.rank + 1, &axis) || !depth_of(im, n, &depth))
    return false;
  for (int i = 0, from = 0; i <= t.rank; i++) {
    d[i] = i == axis ? depth : t.dim[from];
    di[i] = i == axis ? num(im, 1) : t.dim[from++];
  }
  cy_val at = cy_build_reshape(im->g, CAST(X, CY_I64), di, t.rank + 1), size = cy_build_dim_scalar(im->g, depth);
  at = SELECT(BINARY(lt, at, LIKE(at, 0)), ADD(at, size), at);
  cy_val hit = BINARY(eq, at, cy_build_iota(im->g, CY_I64, d, t.rank + 1, axis));
  return SET(SELECT(hit, one_of(im, n->in[2], 1), one_of(im, n->in[2], 0)));
}

/* ---- made from nothing ---- */

IMPORT(eye_like) {
  const cy_type t = *cy_onnx_type(im, X);
  if (t.rank != 2)
    return cy_build_error(im->g, NULL, "expected a matrix, found %s", cy_type_text(im->g, &t));
  cy_dtype dtype = cy_onnx_dtype(im, n, "dtype", (cy_dtype)t.dtype, "FIUB");
  if (!dtype)
    return false;
  cy_val row = cy_build_iota(im->g, CY_I64, t.dim, 2, 0), column = cy_build_iota(im->g, CY_I64, t.dim, 2, 1);
  cy_val hit = BINARY(eq, column, ADD(row, cy_build_scalar_int(im->g, CY_I64, cy_onnx_int(im, n, "k", 0))));
  return SET(hit ? CAST(hit, dtype) : 0);
}

IMPORT(trilu) {
  const cy_type t = *cy_onnx_type(im, X);
  if (t.rank < 2)
    return cy_build_error(im->g, NULL, "expected a matrix or a batch of them, found %s", cy_type_text(im->g, &t));
  cy_val k = n->in[1] ? cy_build_reshape(im->g, n->in[1], NULL, 0) : cy_build_scalar_int(im->g, CY_I64, 0);
  cy_val row = cy_build_iota(im->g, CY_I64, t.dim + t.rank - 2, 2, 0),
         column = cy_build_iota(im->g, CY_I64, t.dim + t.rank - 2, 2, 1);
  cy_val keep = cy_build_binary(im->g, cy_onnx_int(im, n, "upper", 1) ? CY_OP_ge : CY_OP_le, column, ADD(row, k));
  return SET(SELECT(keep, X, LIKE(X, 0)));
}

/* A size computed at run time from numbers, as a dim. */
static cy_dim read_size(cy_importer *im, cy_val count) {
  uint32_t one;
  count = count ? cy_build_reshape(im->g, MAX(count, LIKE(count, 0)), NULL, 0) : 0;
  const cy_dim *d = count ? cy_value_elems_or_read(im->g, count, &one) : NULL;
  if (!d)
    return 0;
  int64_t low, high;
  cy_dim_range(im->g, d[0], &low, &high);
  return low >= 0 ? d[0] : cy_dim_max(im->g, d[0], num(im, 0));
}

/* ceil((limit - start) / delta), as a dim: exact for known integers and constants, else computed and read. */
static cy_dim range_size(cy_importer *im, const cy_onnx_node *n) {
  uint32_t count;
  const cy_dim *e[3];
  int64_t step;
  bool known = true;
  for (int i = 0; i < 3; i++)
    known = (e[i] = cy_value_elems(im->g, n->in[i], &count)) && known;
  if (known && cy_dim_is_const(im->g, e[2][0], &step) && step != 0 && step != INT64_MIN) {
    cy_dim span = step > 0 ? cy_dim_sub(im->g, e[1][0], e[0][0]) : cy_dim_sub(im->g, e[0][0], e[1][0]);
    return cy_dim_max(im->g, num(im, 0), cy_dim_cdiv(im->g, span, num(im, step < 0 ? -step : step)));
  }
  const double *f[3];
  known = true;
  for (int i = 0; i < 3; i++)
    known = (f[i] = cy_value_floats(im->g, n->in[i], &count)) && known;
  if (known) {
    double size = ceil((f[1][0] - f[0][0]) / f[2][0]);
    if (!(size < 1e15))
      return cy_build_error(im->g, NULL, "the range from %g to %g by %g does not end", f[0][0], f[1][0], f[2][0]);
    return num(im, size > 0 ? (int64_t)size : 0);
  }
  cy_val span = CAST(SUB(n->in[1], n->in[0]), CY_F64);
  return read_size(im, CAST(UNARY(ceil, DIV(span, CAST(n->in[2], CY_F64))), CY_I64));
}

IMPORT(range) {
  for (int i = 0; i < 3; i++)
    if (!cy_dim_is(im->g, cy_type_elems(im->g, cy_onnx_type(im, n->in[i])), 1) ||
        cy_onnx_type(im, n->in[i])->dtype != cy_onnx_type(im, X)->dtype)
      return cy_build_error(im->g, NULL, "expected three scalars of one type, found %s for number %d",
                            cy_type_text(im->g, cy_onnx_type(im, n->in[i])), i);
  if (!cy_value_is_const(im->g, n->in[2]) &&
      !cy_onnx_check_below(im, BINARY(eq, n->in[2], LIKE(n->in[2], 0)), 1, "node '%s': the step of a range is 0"))
    return false;
  cy_dim size = range_size(im, n);
  if (!size)
    return false;
  cy_dtype dtype = cy_onnx_type(im, X)->dtype;
  cy_val start = cy_build_reshape(im->g, X, NULL, 0), step = cy_build_reshape(im->g, n->in[2], NULL, 0);
  return SET(ADD(MUL(cy_build_iota(im->g, dtype, &size, 1, 0), step), start));
}

/* ---- sorting and data-dependent sizes ---- */

IMPORT(topk) {
  const cy_type t = *cy_onnx_type(im, X);
  int axis;
  uint32_t count;
  if (!axis_of(im, n, -1, &axis))
    return false;
  cy_dim k = num(im, cy_onnx_int(im, n, "k", 1));
  if (n->version >= 10) {
    const cy_dim *e = n->in[1] ? cy_onnx_elems(im, n, 1, &count) : NULL;
    if (!e || count != 1)
      return cy_build_error(im->g, "input 'K'", "expected one number");
    k = e[0];
  }
  int64_t kv, extent;
  if (cy_dim_is_const(im->g, k, &kv) && (kv < 0 || (cy_dim_is_const(im->g, t.dim[axis], &extent) && kv > extent)))
    return cy_build_error(im->g, "input 'K'", "%lld elements of axis %d of %s", (long long)kv, axis,
                          cy_type_text(im->g, &t));
  cy_onnx_require_sizes(im, &k, 1);
  cy_type types[2] = {t, t};
  types[0].dim[axis] = types[1].dim[axis] = k;
  types[1].dtype = CY_I64;
  cy_attr a[3] = {cy_attr_int(CY_ATTR_axis, axis), cy_attr_int(CY_ATTR_largest, cy_onnx_int(im, n, "largest", 1) != 0),
                  cy_attr_int(CY_ATTR_sorted, cy_onnx_int(im, n, "sorted", 1) != 0)};
  cy_val y = cy_build(im->g, CY_OP_topk, &X, 1, a, 3, types, 2);
  if (y)
    cy_importer_set(im, n, 1, cy_build_output(im->g, y, 1));
  return SET(y);
}

static cy_val nonzero(cy_importer *im, cy_val x) {
  cy_sym s = cy_sym_new(im->g, NULL, CY_SYM_COUNT);
  cy_sym_of(im->g, s)->min = 0;
  cy_dim d[2] = {num(im, cy_onnx_type(im, x)->rank), cy_dim_sym(im->g, s)};
  cy_type type = cy_type_make(CY_I64, 2, d);
  cy_val y = cy_build(im->g, CY_OP_nonzero, &x, 1, NULL, 0, &type, 1);
  if (y)
    cy_onnx_bind_count(im, s, y, 1);
  return y;
}

/* Indices of a constant's nonzero elements; false when it is not a small constant. */
static bool constant_nonzero(cy_importer *im, cy_val x, cy_val *out) {
  uint32_t count, found = 0;
  const double *v = cy_value_floats(im->g, x, &count);
  const cy_type t = *cy_onnx_type(im, x);
  if (!v || count > 4096 || t.rank == 0)
    return false;
  for (uint32_t i = 0; i < count; i++)
    found += v[i] != 0;
  int64_t *at = CY_NEW_ARRAY(cy_graph_arena(im->g), int64_t, (uint64_t)found * t.rank + 1);
  uint32_t k = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (v[i] == 0)
      continue;
    uint32_t rest = i;
    for (int a = t.rank - 1; a >= 0; a--) {
      int64_t extent = 1;
      cy_dim_is_const(im->g, t.dim[a], &extent);
      at[(uint32_t)a * found + k] = rest % (uint32_t)extent;
      rest /= (uint32_t)extent;
    }
    k++;
  }
  cy_dim d[2] = {num(im, t.rank), num(im, found)};
  cy_type type = cy_type_make(CY_I64, 2, d);
  *out = cy_build_const(im->g, &type, at, (uint64_t)found * t.rank * 8);
  return true;
}

static cy_val find_nonzero(cy_importer *im, cy_val x) {
  cy_val y;
  return constant_nonzero(im, x, &y) ? y : nonzero(im, x);
}

IMPORT(nonzero) {
  if (cy_onnx_type(im, X)->rank)
    return SET(find_nonzero(im, X));
  cy_dim one = num(im, 1), none = num(im, 0); /* a scalar: as a list of one, without its index */
  cy_val y = find_nonzero(im, cy_build_reshape(im->g, X, &one, 1));
  return SET(y ? cy_build_slice_axis(im->g, y, 0, none, none) : 0);
}

IMPORT(compress) {
  int axis = 0;
  cy_val x = X;
  if (cy_onnx_has(n, "axis")) {
    if (!axis_of(im, n, 0, &axis))
      return false;
  } else {
    cy_dim all = cy_type_elems(im->g, cy_onnx_type(im, X));
    x = cy_build_reshape(im->g, X, &all, 1);
  }
  if (cy_onnx_type(im, n->in[1])->rank != 1)
    return cy_build_error(im->g, "input 'condition'", "expected a list, found %s",
                          cy_type_text(im->g, cy_onnx_type(im, n->in[1])));
  cy_dim extent = cy_onnx_type(im, x)->dim[axis], size = cy_dim_min(im->g, cy_onnx_type(im, n->in[1])->dim[0], extent);
  cy_val condition = n->in[1]; /* what it says beyond the axis is nothing */
  if (size != cy_onnx_type(im, condition)->dim[0])
    condition = cy_build_slice_axis(im->g, condition, 0, cy_dim_const(im->g, 0), size);
  cy_val at = condition ? find_nonzero(im, condition) : 0;
  return at && SET(cy_build_gather(im->g, x, cy_build_reshape(im->g, at, &cy_onnx_type(im, at)->dim[1], 1), axis));
}

/* Strings are sorted as their ranks; the result is taken from them by its indices. */
static cy_val unique_strings(cy_importer *im, cy_val x, cy_val indices, bool by_axis, int axis) {
  cy_dim all = cy_type_elems(im->g, cy_onnx_type(im, x));
  return cy_build_gather(im->g, by_axis ? x : cy_build_reshape(im->g, x, &all, 1), indices, axis);
}

/* ai.onnx (argument 1): sorted by default; values, where they stand first, which of them each element is,
 * how many. com.microsoft's: in the order of the input, and no second output. */
IMPORT(unique) {
  bool strings = cy_onnx_type(im, X)->dtype == CY_STRING;
  cy_val x = strings ? cy_build(im->g, CY_OP_string_rank, &X, 1, NULL, 0, NULL, 1) : X;
  const cy_type t = *cy_onnx_type(im, x);
  cy_sym s = cy_sym_new(im->g, NULL, CY_SYM_COUNT);
  cy_sym_of(im->g, s)->min = 0;
  cy_dim count = cy_dim_sym(im->g, s), all = cy_type_elems(im->g, &t);
  cy_attr a[2] = {cy_attr_int(CY_ATTR_sorted, cy_onnx_int(im, n, "sorted", n->arg) != 0)};
  cy_type list = cy_type_make(CY_I64, 1, &count), inverse = list, y = cy_type_make(t.dtype, 1, &count);
  int axis = 0;
  bool by_axis = cy_onnx_has(n, "axis");
  if (by_axis) {
    if (!axis_of(im, n, 0, &axis))
      return false;
    a[1] = cy_attr_int(CY_ATTR_axis, axis);
    y = t;
    y.dim[axis] = count;
  }
  inverse.dim[0] = by_axis ? t.dim[axis] : all;
  cy_type types[4] = {y, list, inverse, list};
  cy_val v = cy_build(im->g, CY_OP_unique, &x, 1, a, by_axis ? 2 : 1, types, 4);
  if (!v)
    return false;
  cy_onnx_bind_count(im, s, v, by_axis ? axis : 0);
  for (uint32_t k = 0; k < (n->arg ? 4 : 3); k++)
    cy_importer_set(im, n, k, cy_build_output(im->g, v, n->arg || !k ? k : k + 1));
  return !strings || SET(unique_strings(im, X, cy_build_output(im->g, v, 1), by_axis, axis));
}

IMPORT(non_max_suppression) {
  cy_val upper = n->nin > 3 ? n->in[3] : 0;
  if (upper && !cy_onnx_check_true(im, BINARY(and, BINARY(le, LIKE(upper, 0), upper), BINARY(le, upper, LIKE(upper, 1))),
                                  "node '%s': expected an iou_threshold from 0 to 1"))
    return false;
  cy_sym s = cy_sym_new(im->g, NULL, CY_SYM_COUNT);
  cy_sym_of(im->g, s)->min = 0;
  cy_dim d[2] = {cy_dim_sym(im->g, s), num(im, 3)};
  cy_type type = cy_type_make(CY_I64, 2, d);
  cy_attr a = cy_attr_int(CY_ATTR_center_point_box, cy_onnx_int(im, n, "center_point_box", 0));
  cy_val y = cy_build(im->g, CY_OP_non_max_suppression, n->in, n->nin < 5 ? n->nin : 5, &a, 1, &type, 1);
  if (y)
    cy_onnx_bind_count(im, s, y, 0);
  return SET(y);
}

/* Rows are read backwards up to their length: batched gather of [len - 1 - t, or t behind it]. */
IMPORT(reverse_sequence) {
  int64_t batch = cy_onnx_int(im, n, "batch_axis", 1), time = cy_onnx_int(im, n, "time_axis", 0);
  const cy_type t = *cy_onnx_type(im, X);
  if (t.rank < 2 || batch == time || batch < 0 || batch > 1 || time < 0 || time > 1)
    return cy_build_error(im->g, NULL, "batch_axis and time_axis must be 0 and 1 or 1 and 0, found %lld and %lld",
                          (long long)batch, (long long)time);
  if (!cy_onnx_check_lengths(im, n->in[1], t.dim[time]))
    return false;
  cy_val x = batch == 0 ? X : cy_onnx_move_axis(im, X, 1, 0);
  cy_dim d[3] = {t.dim[batch], t.dim[time], num(im, 1)}, column[2] = {t.dim[batch], num(im, 1)};
  cy_val at = cy_build_iota(im->g, CY_I64, d, 2, 1), len = cy_build_reshape(im->g, CAST(n->in[1], CY_I64), column, 2);
  at = SELECT(BINARY(lt, at, len), SUB(SUB(len, LIKE(len, 1)), at), at);
  cy_val in[2] = {x, cy_build_reshape(im->g, at, d, 3)};
  cy_attr a = cy_attr_int(CY_ATTR_batch_dims, 1);
  cy_val y = in[1] ? cy_build(im->g, CY_OP_gather_nd, in, 2, &a, 1, NULL, 1) : 0;
  return SET(batch == 0 ? y : cy_onnx_move_axis(im, y, 1, 0));
}

/* Values written at flat positions of the unpooled tensor. */
IMPORT(max_unpool) {
  const cy_type t = *cy_onnx_type(im, X);
  int spatial = t.rank - 2;
  uint32_t nk, ns, np, count;
  const int64_t *k = cy_onnx_ints(im, n, "kernel_shape", &nk), *s = cy_onnx_ints(im, n, "strides", &ns),
                *p = cy_onnx_ints(im, n, "pads", &np);
  if (spatial < 1 || (int)nk != spatial || (s && (int)ns != spatial) || (p && (int)np != 2 * spatial))
    return cy_build_error(im->g, NULL, "kernel_shape, strides and pads do not fit %s", cy_type_text(im->g, &t));
  cy_dim natural[CY_MAX_RANK] = {t.dim[0], t.dim[1]};
  for (int i = 0; i < spatial; i++) {
    cy_dim grown = cy_dim_muli(im->g, cy_dim_addi(im->g, t.dim[2 + i], -1), s ? s[i] : 1);
    natural[2 + i] = cy_dim_addi(im->g, grown, k[i] - (p ? p[i] + p[spatial + i] : 0));
  }
  cy_type small = cy_type_make(t.dtype, t.rank, natural);
  cy_dim total = cy_type_elems(im->g, &small), all = cy_type_elems(im->g, &t);
  if (!cy_onnx_check_indices(im, n->in[1], total, false))
    return false;
  cy_val flat = cy_build_reshape(im->g, X, &all, 1), at = cy_build_reshape(im->g, n->in[1], &all, 1);
  const cy_dim *want = n->in[2] ? cy_onnx_elems(im, n, 2, &count) : NULL;
  if (n->in[2] && (!want || (int)count != t.rank))
    return cy_build_error(im->g, "input 'output_shape'", "expected %d numbers", t.rank);
  cy_val in[3] = {cy_onnx_fill(im, LIKE(X, 0), &total, 1), at, flat};
  cy_attr a[2] = {cy_attr_int(CY_ATTR_axis, 0), cy_attr_int(CY_ATTR_combine, CY_COMBINE_SET)};
  cy_val y = flat && at ? cy_build(im->g, CY_OP_scatter_elements, in, 3, a, 2, NULL, 1) : 0;
  y = cy_build_reshape(im->g, y, natural, t.rank);
  if (!want)
    return SET(y);
  cy_dim pads[2 * CY_MAX_RANK];
  for (int i = 0; i < t.rank; i++) {
    if (i < 2 && cy_onnx_clash(im, want[i], natural[i]))
      return cy_build_error(im->g, "input 'output_shape'", "expected batch and channels of %s, found %s along axis %d",
                            cy_type_text(im->g, &t), cy_dim_text(im->g, want[i]), i);
    if (i < 2)
      cy_graph_require(im->g, want[i], natural[i], CY_REQUIRE_EQUAL);
    pads[i] = num(im, 0);
    pads[t.rank + i] = cy_dim_sub(im->g, want[i], natural[i]);
  }
  return SET(y ? cy_build_pad(im->g, y, pads, CY_PAD_CONSTANT, LIKE(X, 0)) : 0);
}
