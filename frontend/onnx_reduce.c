/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_reduce.c - reductions, argmin/argmax and cumulative sums.
 *
 * The ten Reduce ops are three IR reductions with element-wise work before and behind. Axes come as an attribute or,
 * from a version that differs per op, as an input; no axes mean all of them unless noop_with_empty_axes says none.
 */
#include "frontend/import_int.h"

#include <math.h>

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))

/* Along what a node reduces: axes, or a mask over the dimensions when the axes are known only at run time. */
typedef struct along {
  int64_t axes[CY_MAX_RANK];
  uint32_t count;
  cy_val mask; /* 0: the axes are known */
  int masked;  /* how many axes the mask names */
  bool noop, keep;
} along;

static bool find_along(cy_importer *im, const cy_onnx_node *n, along *a) {
  const cy_type *t = cy_onnx_type(im, X);
  bool by_input = n->version >= (n->arg == REDUCE_SUM ? 13 : 18);
  *a = (along){.keep = cy_onnx_int(im, n, "keepdims", 1) != 0};
  if (by_input && !cy_onnx_known(im, n, 1))
    return (a->mask = cy_onnx_axes_mask(im, n, 1, false, t->rank, &a->masked));
  if (!cy_onnx_axes(im, n, by_input, t->rank, a->axes, &a->count))
    return false;
  a->noop = a->count == 0 && by_input && cy_onnx_int(im, n, "noop_with_empty_axes", 0);
  if (a->count == 0 && !a->noop)
    for (int i = 0; i < t->rank; i++)
      a->axes[a->count++] = i;
  return true;
}

static cy_val reduce(cy_importer *im, const along *a, cy_op op, cy_val x, bool keep) {
  if (!x || a->noop)
    return x;
  if (a->mask)
    return cy_onnx_reduce_masked(im, op, x, a->mask, a->masked, keep);
  return cy_build_reduce(im->g, op, x, a->axes, a->count, keep);
}

static cy_val mean(cy_importer *im, const along *a, cy_val x) {
  if (!a->mask)
    return cy_onnx_mean(im, x, a->axes, a->count, a->keep);
  const cy_type t = *cy_onnx_type(im, x);
  const int64_t axis = 0;
  cy_val unit = cy_build_scalar_int(im->g, CY_I64, 1), sizes = cy_build_dims(im->g, t.dim, t.rank);
  cy_val count = SELECT(CAST(a->mask, CY_BOOL), sizes, unit);
  count = count ? cy_build_reduce(im->g, CY_OP_reduce_prod, count, &axis, 1, false) : 0;
  return DIV(reduce(im, a, CY_OP_reduce_sum, x, a->keep), CAST(count, t.dtype));
}

static cy_val log_sum_exp(cy_importer *im, const along *a, cy_val x) {
  cy_val top = reduce(im, a, CY_OP_reduce_max, x, true);
  cy_val base = SELECT(BINARY(lt, UNARY(abs, top), LIKE(x, INFINITY)), top,
                       LIKE(x, 0)); /* an infinite maximum must not give inf - inf */
  cy_val sum = reduce(im, a, CY_OP_reduce_sum, UNARY(exp, SUB(x, base)), a->keep);
  if (!sum)
    return 0;
  const cy_type *t = cy_onnx_type(im, sum);
  return ADD(UNARY(log, sum), cy_build_reshape(im->g, base, t->dim, t->rank));
}

static cy_val extremum(cy_importer *im, const along *a, cy_op op, cy_val x) {
  if (cy_onnx_type(im, x)->dtype != CY_BOOL)
    return reduce(im, a, op, x, a->keep);
  cy_val y = reduce(im, a, op, CAST(x, CY_U8), a->keep);
  return y ? CAST(y, CY_BOOL) : 0;
}

/* Of integers by way of floats. */
static cy_val log_sum(cy_importer *im, const along *a, cy_val x, bool exponential) {
  cy_dtype dtype = cy_onnx_type(im, x)->dtype;
  bool real = cy_dtype_is_float(dtype);
  if (exponential && a->noop)
    return x;
  if (exponential) {
    cy_val y = log_sum_exp(im, a, real ? x : CAST(x, CY_F64));
    return real ? y : CAST(y, dtype);
  }
  cy_val sum = reduce(im, a, CY_OP_reduce_sum, x, a->keep);
  return real ? UNARY(log, sum) : CAST(UNARY(log, CAST(sum, CY_F64)), dtype);
}

IMPORT(reduce) {
  along a;
  if (!find_along(im, n, &a))
    return false;
#define SUM(x) reduce(im, &a, CY_OP_reduce_sum, (x), a.keep)
  switch (n->arg) {
  case REDUCE_SUM: return SET(SUM(X));
  case REDUCE_MEAN: return SET(a.noop ? X : mean(im, &a, X));
  case REDUCE_MAX: return SET(extremum(im, &a, CY_OP_reduce_max, X));
  case REDUCE_MIN: return SET(extremum(im, &a, CY_OP_reduce_min, X));
  case REDUCE_PROD: return SET(reduce(im, &a, CY_OP_reduce_prod, X, a.keep));
  case REDUCE_L1: return SET(SUM(UNARY(abs, X)));
  case REDUCE_L2: {
    cy_dtype dtype = cy_onnx_type(im, X)->dtype;
    cy_val sum = SUM(MUL(X, X));
    if (!sum || cy_dtype_is_float(dtype))
      return SET(UNARY(sqrt, sum));
    return SET(CAST(UNARY(sqrt, CAST(sum, CY_F64)), dtype));
  }
  case REDUCE_LOG_SUM:
  case REDUCE_LOG_SUM_EXP:
    return SET(log_sum(im, &a, X, n->arg == REDUCE_LOG_SUM_EXP));
  default: return SET(SUM(MUL(X, X)));
  }
#undef SUM
}

IMPORT(arg_reduce) {
  int axis;
  if (!cy_onnx_axis(im, cy_onnx_int(im, n, "axis", 0), cy_onnx_type(im, X)->rank, &axis))
    return false;
  cy_attr a[3] = {cy_attr_int(CY_ATTR_axis, axis),
                  cy_attr_int(CY_ATTR_keepdims, cy_onnx_int(im, n, "keepdims", 1) != 0),
                  cy_attr_int(CY_ATTR_select_last, cy_onnx_int(im, n, "select_last_index", 0) != 0)};
  cy_val y = cy_build(im->g, (cy_op)n->arg, &X, 1, a, 3, NULL, 1);
  return y && cy_onnx_check_source(im, cy_onnx_type(im, X)->dim[axis], y) && SET(y);
}

IMPORT(cumulative) {
  int rank = cy_onnx_type(im, X)->rank;
  int first = 0, last = rank - 1, naxes;
  cy_val y = 0, mask = 0;
  int64_t at;
  uint32_t count;
  if (!cy_onnx_known(im, n, 1)) { /* one of all axes */
    if (!(mask = cy_onnx_axes_mask(im, n, 1, false, rank, &naxes)))
      return false;
  } else {
    if (!cy_onnx_const_ints(im, n, 1, &at, 1, &count) || !cy_onnx_axis(im, at, rank, &first))
      return false;
    last = first;
  }
  for (int axis = first; axis <= last; axis++) {
    cy_attr a[3] = {cy_attr_int(CY_ATTR_axis, axis),
                    cy_attr_int(CY_ATTR_exclusive, cy_onnx_int(im, n, "exclusive", 0) != 0),
                    cy_attr_int(CY_ATTR_reverse, cy_onnx_int(im, n, "reverse", 0) != 0)};
    cy_val along_axis = cy_build(im->g, (cy_op)n->arg, &X, 1, a, 3, NULL, 1);
    y = y ? SELECT(cy_onnx_flag(im, mask, axis), along_axis, y) : along_axis;
  }
  return SET(y);
}
