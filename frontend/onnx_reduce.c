/* onnx_reduce.c - reductions, argmin/argmax and cumulative sums.
 *
 * The ten Reduce ops are three IR reductions with element-wise work before and behind. Axes come as an attribute or,
 * from a version that differs per op, as an input; no axes mean all of them unless noop_with_empty_axes says none.
 */
#include "frontend/import_int.h"

#include <math.h>

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))

static bool reduce_axes(cy_importer *im, const cy_onnx_node *n, int64_t *axes, uint32_t *out_n, bool *out_noop) {
  const cy_type *t = cy_onnx_type(im, X);
  bool by_input = n->version >= (n->arg == REDUCE_SUM ? 13 : 18);
  if (!cy_onnx_axes(im, n, by_input, t->rank, axes, out_n))
    return false;
  *out_noop = *out_n == 0 && by_input && cy_onnx_int(im, n, "noop_with_empty_axes", 0);
  if (*out_n == 0 && !*out_noop)
    for (int i = 0; i < t->rank; i++)
      axes[(*out_n)++] = i;
  return true;
}

static cy_val log_sum_exp(cy_importer *im, cy_val x, const int64_t *axes, uint32_t n, bool keep) {
  cy_val top = cy_build_reduce(im->g, CY_OP_reduce_max, x, axes, n, true);
  cy_val base = SELECT(BINARY(lt, UNARY(abs, top), LIKE(x, INFINITY)), top,
                       LIKE(x, 0)); /* an infinite maximum must not give inf - inf */
  cy_val sum = UNARY(log, cy_build_reduce(im->g, CY_OP_reduce_sum, UNARY(exp, SUB(x, base)), axes, n, true));
  cy_val y = ADD(sum, base);
  if (keep || !y)
    return y;
  const cy_type *t = cy_onnx_type(im, x);
  cy_dim d[CY_MAX_RANK];
  int rank = 0;
  for (int i = 0; i < t->rank; i++) {
    bool gone = false;
    for (uint32_t k = 0; k < n; k++)
      gone = gone || axes[k] == i;
    if (!gone)
      d[rank++] = t->dim[i];
  }
  return cy_build_reshape(im->g, y, d, rank);
}

static cy_val reduce_bool(cy_importer *im, cy_op op, cy_val x, const int64_t *axes, uint32_t n, bool keep) {
  if (cy_onnx_type(im, x)->dtype != CY_BOOL)
    return cy_build_reduce(im->g, op, x, axes, n, keep);
  cy_val y = cy_build_reduce(im->g, op, CAST(x, CY_U8), axes, n, keep);
  return y ? CAST(y, CY_BOOL) : 0;
}

IMPORT(reduce) {
  int64_t axes[CY_MAX_RANK];
  uint32_t count;
  bool noop, keep = cy_onnx_int(im, n, "keepdims", 1) != 0;
  if (!reduce_axes(im, n, axes, &count, &noop))
    return false;
#define REDUCE(op, x) (noop ? (x) : cy_build_reduce(im->g, CY_OP_##op, (x), axes, count, keep))
  switch (n->arg) {
  case REDUCE_SUM: return SET(REDUCE(reduce_sum, X));
  case REDUCE_MEAN: return SET(noop ? X : cy_onnx_mean(im, X, axes, count, keep));
  case REDUCE_MAX: return SET(noop ? X : reduce_bool(im, CY_OP_reduce_max, X, axes, count, keep));
  case REDUCE_MIN: return SET(noop ? X : reduce_bool(im, CY_OP_reduce_min, X, axes, count, keep));
  case REDUCE_PROD: return SET(REDUCE(reduce_prod, X));
  case REDUCE_L1: return SET(REDUCE(reduce_sum, UNARY(abs, X)));
  case REDUCE_L2: {
    cy_dtype dtype = cy_onnx_type(im, X)->dtype;
    cy_val sum = REDUCE(reduce_sum, MUL(X, X));
    if (!sum || cy_dtype_is_float(dtype))
      return SET(UNARY(sqrt, sum));
    return SET(CAST(UNARY(sqrt, CAST(sum, CY_F64)), dtype));
  }
  case REDUCE_LOG_SUM: return SET(UNARY(log, REDUCE(reduce_sum, X)));
  case REDUCE_LOG_SUM_EXP: return SET(noop ? X : log_sum_exp(im, X, axes, count, keep));
  default: return SET(REDUCE(reduce_sum, MUL(X, X)));
  }
}

IMPORT(arg_reduce) {
  int axis;
  if (!cy_onnx_axis(im, cy_onnx_int(im, n, "axis", 0), cy_onnx_type(im, X)->rank, &axis))
    return false;
  cy_attr a[3] = {cy_attr_int(CY_ATTR_axis, axis),
                  cy_attr_int(CY_ATTR_keepdims, cy_onnx_int(im, n, "keepdims", 1) != 0),
                  cy_attr_int(CY_ATTR_select_last, cy_onnx_int(im, n, "select_last_index", 0) != 0)};
  return SET(cy_build(im->g, (cy_op)n->arg, &X, 1, a, 3, NULL, 1));
}

IMPORT(cumulative) {
  int64_t at;
  uint32_t count;
  int axis;
  if (!cy_onnx_const_ints(im, n, 1, &at, 1, &count) || !cy_onnx_axis(im, at, cy_onnx_type(im, X)->rank, &axis))
    return false;
  cy_attr a[3] = {cy_attr_int(CY_ATTR_axis, axis),
                  cy_attr_int(CY_ATTR_exclusive, cy_onnx_int(im, n, "exclusive", 0) != 0),
                  cy_attr_int(CY_ATTR_reverse, cy_onnx_int(im, n, "reverse", 0) != 0)};
  return SET(cy_build(im->g, (cy_op)n->arg, &X, 1, a, 3, NULL, 1));
}
