/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_ml.c - ai.onnx.ml: linear models, the usual preparation of tabular data, and what all models share. Trees are in
 * onnx_ml_trees.c.
 *
 * Labels may be strings; what looks labels up is in onnx_ml_lookup.c. Scores and labels follow what ONNX Runtime does
 * where the specification is silent (binary models with one weight column).
 */
#include "frontend/import_int.h"

#include <math.h>

#define X (n->in[0])

cy_val cy_onnx_ml_constant(cy_importer *im, cy_dtype dtype, const void *bytes, const int64_t *dims, int rank) {
  cy_dim d[CY_MAX_RANK];
  uint64_t count = 1;
  for (int i = 0; i < rank; i++) {
    d[i] = cy_dim_const(im->g, dims[i]);
    count *= (uint64_t)dims[i];
  }
  cy_type t = cy_type_make(dtype, rank, d);
  uint64_t size = count * (uint64_t)cy_dtype_of(dtype)->bits / 8;
  return cy_build_const(im->g, &t, cy_arena_copy(cy_graph_arena(im->g), bytes, size), size);
}

static cy_val constant_ints(cy_importer *im, const int64_t *v, uint32_t n) {
  int64_t dims[1] = {n};
  return cy_onnx_ml_constant(im, CY_I64, v, dims, 1);
}

cy_val cy_onnx_ml_floats(cy_importer *im, const double *v, uint32_t n) {
  float *f = CY_NEW_ARRAY(im->arena, float, n + 1);
  int64_t dims[1] = {n};
  for (uint32_t i = 0; i < n; i++)
    f[i] = (float)v[i];
  return cy_onnx_ml_constant(im, CY_F32, f, dims, 1);
}

/* The input as rows of f32: [features] becomes [1, features]. */
cy_val cy_onnx_ml_rows(cy_importer *im, const cy_onnx_node *n) {
  cy_val x = CAST(X, CY_F32);
  if (!x)
    return 0;
  const cy_type *t = cy_onnx_type(im, x);
  if (t->rank == 2)
    return x;
  if (t->rank != 1)
    return cy_build_error(im->g, "input 0", "expected a matrix of rows and features, found %s", cy_type_text(im->g, t));
  return cy_build_unsqueeze(im->g, x, 0);
}

int cy_onnx_ml_post(cy_importer *im, const cy_onnx_node *n) {
  return cy_onnx_word(im, n, "post_transform", "NONE", "NONE|SOFTMAX|LOGISTIC|SOFTMAX_ZERO|PROBIT");
}

static cy_val softmax(cy_importer *im, cy_val x) {
  cy_attr a = cy_attr_int(CY_ATTR_axis, cy_onnx_type(im, x)->rank - 1);
  return cy_build(im->g, CY_OP_softmax, &x, 1, &a, 1, NULL, 1);
}

cy_val cy_onnx_ml_transformed(cy_importer *im, cy_val scores, int post) {
  switch (post) {
  case POST_SOFTMAX:
    return softmax(im, scores);
  case POST_SOFTMAX_ZERO: /* zeros stay zero and take no part */
    return SELECT(BINARY(eq, scores, LIKE(scores, 0)), LIKE(scores, 0),
                  softmax(im, SELECT(BINARY(eq, scores, LIKE(scores, 0)), LIKE(scores, -INFINITY), scores)));
  case POST_LOGISTIC:
    return UNARY(sigmoid, scores);
  case POST_PROBIT:
    return cy_build_error(im->g, "attribute 'post_transform'",
                          "PROBIT is not supported; expected NONE, SOFTMAX, LOGISTIC or SOFTMAX_ZERO");
  default:
    return scores;
  }
}

/* The labels, integers or strings, or the class numbers where there are none. */
cy_val cy_onnx_ml_labels(cy_importer *im, const cy_onnx_node *n, const char *ints, const char *strings, uint32_t classes) {
  uint32_t count, texts;
  const int64_t *labels = cy_onnx_ints(im, n, ints, &count);
  cy_val named = labels && count ? 0 : cy_onnx_texts(im, n, strings, &texts);
  if (named && texts)
    return texts >= classes ? named
                            : cy_build_error(im->g, cy_arena_printf(im->arena, "attribute '%s'", strings),
                                             "expected a label for each of %u classes, found %u", classes, texts);
  int64_t *numbers = CY_NEW_ARRAY(im->arena, int64_t, classes + 1);
  for (uint32_t i = 0; i < classes; i++)
    numbers[i] = labels && i < count ? labels[i] : i;
  return constant_ints(im, numbers, classes);
}

cy_val cy_onnx_ml_best(cy_importer *im, cy_val labels, cy_val scores) {
  cy_attr a[3] = {cy_attr_int(CY_ATTR_axis, 1), cy_attr_int(CY_ATTR_keepdims, 0), cy_attr_int(CY_ATTR_select_last, 0)};
  return cy_build_gather(im->g, labels, cy_build(im->g, CY_OP_argmax, &scores, 1, a, 3, NULL, 1), 0);
}

static cy_val column_pair(cy_importer *im, cy_val low, cy_val high) {
  cy_val pair[2] = {low, high};
  return low && high ? cy_build_concat(im->g, pair, 2, 1) : 0;
}

bool cy_onnx_ml_set_binary(cy_importer *im, const cy_onnx_node *n, cy_val labels, cy_val s, int post,
                           bool probability) {
  cy_val wins = CAST(BINARY(gt, s, LIKE(s, probability ? 0.5 : 0)), CY_I64);
  cy_val other = probability ? SUB(LIKE(s, 1), s) : UNARY(neg, s);
  if (post == POST_LOGISTIC) {
    other = UNARY(sigmoid, UNARY(neg, s));
    s = UNARY(sigmoid, s);
  }
  return cy_importer_set(im, n, 0, cy_build_gather(im->g, labels, cy_build_squeeze(im->g, wins, 1), 0)) &&
         cy_importer_set(im, n, 1, column_pair(im, other, s));
}

/* ---- linear models ----------------------------------------------------------------------------------------------- */

/* x [rows, f] * coefficients [columns, f]^T + intercepts */
static cy_val linear_scores(cy_importer *im, const cy_onnx_node *n, const char *bias_name, uint32_t *out_columns) {
  uint32_t ncoef, nbias, columns;
  int64_t features, perm[2] = {1, 0};
  const double *coef = cy_onnx_floats(im, n, "coefficients", &ncoef), *bias = cy_onnx_floats(im, n, bias_name, &nbias);
  cy_val x = cy_onnx_ml_rows(im, n);
  if (!x)
    return 0;
  if (!coef || !cy_dim_is_const(im->g, cy_onnx_type(im, x)->dim[1], &features) || features < 1 || ncoef % features)
    return cy_build_error(im->g, "attribute 'coefficients'",
                          "expected a multiple of the number of features, found %u numbers for %s", coef ? ncoef : 0,
                          cy_type_text(im->g, cy_onnx_type(im, x)));
  columns = (uint32_t)(ncoef / features);
  cy_dim dims[2] = {cy_dim_const(im->g, columns), cy_dim_const(im->g, features)};
  cy_val weights = cy_build_transpose(im->g, cy_build_reshape(im->g, cy_onnx_ml_floats(im, coef, ncoef), dims, 2), perm);
  cy_val scores = cy_build_matmul(im->g, x, weights, CY_F32);
  *out_columns = columns;
  return bias && (nbias == columns || nbias == 1) ? ADD(scores, cy_onnx_ml_floats(im, bias, nbias)) : scores;
}

IMPORT(linear_classifier) {
  uint32_t columns, ints = 0, strings = 0;
  int post = cy_onnx_ml_post(im, n);
  cy_val scores = post >= 0 ? linear_scores(im, n, "intercepts", &columns) : 0;
  if (!scores)
    return false;
  cy_onnx_ints(im, n, "classlabels_ints", &ints);
  cy_onnx_strings(im, n, "classlabels_strings", &strings);
  ints = ints ? ints : strings;
  cy_val labels = cy_onnx_ml_labels(im, n, "classlabels_ints", "classlabels_strings", ints > columns ? ints : columns);
  if (!labels)
    return false;
  if (columns == 1 && ints == 2)
    return cy_onnx_ml_set_binary(im, n, labels, scores, post, post == POST_NONE);
  return cy_importer_set(im, n, 0, cy_onnx_ml_best(im, labels, scores)) &&
         cy_importer_set(im, n, 1, cy_onnx_ml_transformed(im, scores, post));
}

IMPORT(linear_regressor) {
  uint32_t columns;
  int post = cy_onnx_ml_post(im, n);
  cy_val scores = post >= 0 ? linear_scores(im, n, "intercepts", &columns) : 0;
  return scores && cy_importer_set(im, n, 0, cy_onnx_ml_transformed(im, scores, post));
}

/* ---- preparation ------------------------------------------------------------------------------------------------- */

IMPORT(scaler) {
  uint32_t noffset, nscale;
  const double *offset = cy_onnx_floats(im, n, "offset", &noffset), *scale = cy_onnx_floats(im, n, "scale", &nscale);
  cy_val x = CAST(X, CY_F32);
  if (offset)
    x = SUB(x, cy_onnx_ml_floats(im, offset, noffset));
  if (scale)
    x = MUL(x, cy_onnx_ml_floats(im, scale, nscale));
  return x && cy_importer_set(im, n, 0, x);
}

IMPORT(normalizer) {
  int how = cy_onnx_word(im, n, "norm", "MAX", "MAX|L1|L2");
  cy_val x = CAST(X, CY_F32);
  if (how < 0 || !x)
    return false;
  int64_t axis = cy_onnx_type(im, x)->rank - 1;
  cy_val size = how == 2 ? MUL(x, x) : how == 1 ? UNARY(abs, x) : x;
  size = cy_build_reduce(im->g, how == 0 ? CY_OP_reduce_max : CY_OP_reduce_sum, size, &axis, 1, true);
  if (how == 2)
    size = UNARY(sqrt, size);
  return size && cy_importer_set(im, n, 0, SELECT(BINARY(eq, size, LIKE(size, 0)), x, DIV(x, size)));
}

IMPORT(binarizer) {
  return cy_importer_set(
      im, n, 0,
      CAST(BINARY(gt, X, LIKE(X, cy_onnx_float(im, n, "threshold", 0))), (cy_dtype)cy_onnx_type(im, X)->dtype));
}

IMPORT(array_feature_extractor) {
  const cy_type *t = cy_onnx_type(im, X);
  cy_val y = cy_onnx_type(im, n->in[1])->rank == 1 ? n->in[1] : 0;
  cy_dim all[1] = {cy_type_elems(im->g, cy_onnx_type(im, n->in[1]))};
  if (!y)
    y = cy_build_reshape(im->g, n->in[1], all, 1);
  cy_val x = t->rank == 1 ? cy_build_unsqueeze(im->g, X, 0) : X;
  if (!y || !x)
    return false;
  const cy_type *tx = cy_onnx_type(im, x);
  bool tensor = tx->rank > 0 && !tx->content; /* else Gather says so */
  return (!tensor || cy_onnx_check_indices(im, y, tx->dim[tx->rank - 1], false)) &&
         cy_importer_set(im, n, 0, cy_build_gather(im->g, x, y, tx->rank - 1));
}

/* The first `columns` of x; zeros where it has fewer. */
static cy_val columns_of(cy_importer *im, cy_val x, int64_t columns) {
  const cy_type t = *cy_onnx_type(im, x);
  cy_dim want = cy_dim_const(im->g, columns), zero = cy_dim_const(im->g, 0);
  if (t.dim[1] == want)
    return x;
  cy_dim there = cy_dim_min(im->g, t.dim[1], want);
  cy_dim pads[4] = {zero, zero, zero, cy_dim_sub(im->g, want, there)};
  x = cy_build_slice_axis(im->g, x, 1, zero, there);
  return x ? cy_build_pad(im->g, x, pads, CY_PAD_CONSTANT, LIKE(x, 0)) : 0;
}

/* Attribute 'inputdimensions' says how many columns each input has in the result. */
IMPORT(feature_vectorizer) {
  cy_val *parts = CY_NEW_ARRAY(im->arena, cy_val, n->nin);
  uint32_t count;
  const int64_t *columns = cy_onnx_ints(im, n, "inputdimensions", &count);
  if (columns && count != n->nin)
    return cy_build_error(im->g, "attribute 'inputdimensions'", "expected %u numbers, one for each input, found %u", n->nin,
                          count);
  for (uint32_t i = 0; i < n->nin; i++) {
    if (!n->in[i])
      return cy_build_error(im->g, NULL, "input %u is missing", i);
    int rank = cy_onnx_type(im, n->in[i])->rank;
    cy_val x = CAST(n->in[i], CY_F32);
    parts[i] = x && rank == 1 ? cy_build_unsqueeze(im->g, x, 0) : x && rank != 2 ? cy_onnx_flatten2(im, x, rank > 0) : x;
    if (columns && columns[i] >= 0 && parts[i])
      parts[i] = columns_of(im, parts[i], columns[i]);
    if (!parts[i])
      return false;
  }
  return cy_importer_set(im, n, 0, n->nin == 1 ? parts[0] : cy_build_concat(im->g, parts, n->nin, 1));
}

IMPORT(imputer) {
  bool is_float = cy_dtype_is_float((cy_dtype)cy_onnx_type(im, X)->dtype);
  uint32_t count;
  double missing = is_float ? cy_onnx_float(im, n, "replaced_value_float", 0)
                            : (double)cy_onnx_int(im, n, "replaced_value_int64", 0);
  cy_val fill;
  if (is_float) {
    const double *v = cy_onnx_floats(im, n, "imputed_value_floats", &count);
    fill = v ? CAST(cy_onnx_ml_floats(im, v, count), (cy_dtype)cy_onnx_type(im, X)->dtype) : 0;
  } else {
    const int64_t *v = cy_onnx_ints(im, n, "imputed_value_int64s", &count);
    fill = v ? CAST(constant_ints(im, v, count), (cy_dtype)cy_onnx_type(im, X)->dtype) : 0;
  }
  if (!fill)
    return cy_build_error(
        im->g, NULL, "expected a list 'imputed_value_floats' or 'imputed_value_int64s' that fits the input's type");
  cy_val is_missing = isnan(missing) ? UNARY(isnan, X) : BINARY(eq, X, LIKE(X, missing));
  return cy_importer_set(im, n, 0, SELECT(is_missing, fill, X));
}
