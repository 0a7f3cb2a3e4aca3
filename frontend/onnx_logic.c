/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_logic.c - types, constants and the ops that only pass values on: Cast, Where, Constant, Shape, Identity ..
 *
 * Identity-like ops make no node: the output is the input's value.
 */
#include "frontend/import_int.h"

#include <math.h>

#define X (n->in[0])
#define SET(v) cy_importer_set(im, n, 0, (v))

IMPORT(identity) { return SET(X); }

IMPORT(where) { return SET(SELECT(X, n->in[1], n->in[2])); }

/* What a cast to an eight-bit float without infinities makes NaN when it must not saturate: magnitudes from which rounding
 * passes the largest number (a tie goes to the even neighbour, which f8e4m3fn still has). */
static cy_val overflow_to_nan(cy_importer *im, cy_val x, cy_dtype to) {
  double limit = to == CY_F8E4M3FN ? 464 : to == CY_F8E4M3FNUZ ? 248 : 61440;
  cy_val size = UNARY(abs, x), bound = LIKE(x, limit);
  cy_val over = to == CY_F8E4M3FN ? BINARY(gt, size, bound) : BINARY(ge, size, bound);
  return SELECT(over, LIKE(x, NAN), x);
}

static cy_val cast_to(cy_importer *im, cy_val x, cy_dtype to, int64_t saturate) {
  const cy_type *t = cy_onnx_type(im, x);
  if (to == CY_STRING || t->dtype == CY_STRING)
    return cy_onnx_cast_string(im, x, to);
  if (cy_dtype_of(to)->cls == 'C')
    return cy_build_error(im->g, "attribute 'to'", "casts from %s to %s are not supported", cy_dtype_of(t->dtype)->name,
                          cy_dtype_of(to)->name);
  bool from_float = cy_dtype_is_float(t->dtype);
  if (from_float && cy_dtype_is_int(to) && cy_dtype_of(to)->bits < 8)
    x = CAST(x, CY_I32); /* two- and four-bit integers wrap */
  bool no_inf = to == CY_F8E4M3FN || to == CY_F8E4M3FNUZ || to == CY_F8E5M2FNUZ;
  if (!saturate && no_inf && from_float)
    return CAST(overflow_to_nan(im, x, to), to);
  if (saturate || no_inf)
    return cy_build_cast(im->g, x, to);
  cy_type type = cy_type_make(to, t->rank, t->dim);
  cy_attr a = cy_attr_int(CY_ATTR_saturate, 0);
  return cy_build(im->g, CY_OP_cast, &x, 1, &a, 1, &type, 1);
}

IMPORT(cast) {
  if (n->since >= 6) {
    cy_dtype to = cy_onnx_dtype(im, n, "to", CY_NONE, "FIUBSC");
    return to && SET(cast_to(im, X, to, cy_onnx_int(im, n, "saturate", 1)));
  }
  int to = 1 + cy_onnx_word(im, n, "to", "",
                            "FLOAT|UINT8|INT8|UINT16|INT16|INT32|INT64|STRING|BOOL|FLOAT16|DOUBLE|UINT32|UINT64");
  return to && SET(cast_to(im, X, (cy_dtype)to, 1));
}

IMPORT(cast_like) { return SET(cast_to(im, X, cy_onnx_type(im, n->in[1])->dtype, cy_onnx_int(im, n, "saturate", 1))); }

IMPORT(bitcast) {
  const cy_type *t = cy_onnx_type(im, X);
  cy_dtype to = cy_onnx_dtype(im, n, "to", CY_NONE, "FIUB");
  if (!to)
    return false;
  const cy_dtype both[2] = {to, (cy_dtype)t->dtype};
  for (int i = 0; i < 2; i++)
    if (both[i] == CY_F6E2M3 || both[i] == CY_F6E3M2) /* six bits, of a byte in memory */
      return cy_build_error(im->g, "attribute 'to'", "BitCast has no type of 6 bits, found %s to %s",
                            cy_dtype_of(t->dtype)->name, cy_dtype_of(to)->name);
  if (cy_dtype_of(to)->bits != cy_dtype_of(t->dtype)->bits)
    return cy_build_error(im->g, "attribute 'to'", "expected an element type of %d bits, found %s",
                          cy_dtype_of(t->dtype)->bits, cy_dtype_of(to)->name);
  return SET(cy_build_bitcast(im->g, X, to));
}

#define ATTR(T, name) cy_onnx_attr(im, n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__##T)

static cy_val constant_list(cy_importer *im, cy_dtype dtype, const void *values, uint32_t count, size_t width) {
  cy_dim d = cy_dim_const(im->g, count);
  cy_type t = cy_type_make(dtype, 1, &d);
  return cy_build_const(im->g, &t, cy_arena_copy(cy_graph_arena(im->g), count ? values : "", count ? count * width : 1),
                        count * width);
}

IMPORT(constant) {
  const Onnx__AttributeProto *a;
  if (cy_onnx_has(n, "value")) {
    a = ATTR(TENSOR, "value");
    return a && a->t && SET(cy_import_tensor(im, a->t, "attribute 'value'"));
  }
  if (cy_onnx_has(n, "sparse_value")) {
    a = ATTR(SPARSE_TENSOR, "sparse_value");
    return a && a->sparse_tensor && SET(cy_import_sparse(im, a->sparse_tensor, "attribute 'sparse_value'"));
  }
  if (cy_onnx_has(n, "value_int"))
    return SET(cy_build_scalar_int(im->g, CY_I64, cy_onnx_int(im, n, "value_int", 0)));
  if (cy_onnx_has(n, "value_float"))
    return SET(cy_build_scalar(im->g, CY_F32, cy_onnx_float(im, n, "value_float", 0)));
  if (cy_onnx_has(n, "value_ints"))
    return (a = ATTR(INTS, "value_ints")) && SET(constant_list(im, CY_I64, a->ints, (uint32_t)a->n_ints, 8));
  if (cy_onnx_has(n, "value_floats"))
    return (a = ATTR(FLOATS, "value_floats")) && SET(constant_list(im, CY_F32, a->floats, (uint32_t)a->n_floats, 4));
  if (cy_onnx_has(n, "value_string"))
    return (a = ATTR(STRING, "value_string")) && SET(cy_onnx_text(im, a->s.data, a->s.len));
  uint32_t count;
  if (cy_onnx_has(n, "value_strings"))
    return SET(cy_onnx_texts(im, n, "value_strings", &count));
  return cy_build_error(
      im->g, NULL,
      "a constant needs one of the attributes 'value', 'value_int', 'value_ints', 'value_float', 'value_floats', "
      "'value_string', 'value_strings'");
}

IMPORT(constant_of_shape) {
  uint32_t rank;
  const cy_dim *dims = cy_onnx_elems(im, n, 0, &rank);
  if (!dims)
    return false;
  if (rank > CY_MAX_RANK)
    return cy_build_error(im->g, NULL, "tensors of rank %u are not supported, %d is the most", rank, CY_MAX_RANK);
  cy_onnx_require_sizes(im, dims, rank);
  const Onnx__AttributeProto *a = ATTR(TENSOR, "value");
  cy_val v = a && a->t ? cy_import_tensor(im, a->t, "attribute 'value'") : cy_build_scalar(im->g, CY_F32, 0);
  return SET(cy_onnx_fill(im, v, dims, (int)rank));
}

IMPORT(shape) {
  const cy_type *t = cy_onnx_type(im, X);
  int64_t start = cy_onnx_int(im, n, "start", 0), end = cy_onnx_int(im, n, "end", t->rank);
  start = start < 0 ? start + t->rank : start;
  end = end < 0 ? end + t->rank : end;
  start = start < 0 ? 0 : start > t->rank ? t->rank : start;
  end = end < start ? start : end > t->rank ? t->rank : end;
  return SET(cy_build_dims(im->g, t->dim + start, (uint32_t)(end - start)));
}

IMPORT(size) { return SET(cy_build_dim_scalar(im->g, cy_type_elems(im->g, cy_onnx_type(im, X)))); }
