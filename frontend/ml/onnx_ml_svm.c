/* SPDX-License-Identifier: Apache-2.0 */
/* onnx_ml_svm.c - ai.onnx.ml: support vector machines, SVMClassifier and SVMRegressor.
 *
 * A model is a list of support vectors. Its kernel function of each row and each vector, [rows, vectors], is weighed by
 * the coefficients. Without support vectors the coefficients are weights of the features. A classifier has a decision
 * for every pair of classes, in the order (0,1), (0,2) .. (1,2) ..: that of classes i < j is the sum over the vectors of
 * class i weighed by row j - 1 of the coefficients, and those of class j by row i. The class that wins most pairs gives
 * the label, also where there are probabilities. Probabilities of the pairs become those of classes by the iteration of
 * Wu, Lin and Weng (2004), done for all rows at once and stopped row by row.
 *
 * The specification says little of the scores: they follow what ONNX Runtime computes, for each combination of the number
 * of classes, probabilities and 'post_transform'.
 */
#include "frontend/import_int.h"

enum { MAX_CLASSES = 1024 };

typedef struct svm {
  uint32_t features, vectors; /* vectors 0: linear */
  const double *coefficients, *support, *rho;
  uint32_t ncoefficients, nrho;
  cy_val x; /* rows */
} svm;

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* x times the `rows` rows of a constant matrix, transposed. */
static cy_val times(cy_importer *im, cy_val x, const double *matrix, uint32_t rows, uint32_t columns) {
  const int64_t perm[2] = {1, 0};
  cy_dim d[2] = {cy_dim_const(im->g, rows), cy_dim_const(im->g, columns)};
  cy_val m = cy_build_reshape(im->g, cy_onnx_ml_floats(im, matrix, rows * columns), d, 2);
  return m ? cy_build_matmul(im->g, x, cy_build_transpose(im->g, m, perm), CY_F32) : 0;
}

/* Squared distances, [rows, vectors]; by differences: what products give loses the digits of near vectors. */
static cy_val distances(cy_importer *im, const svm *s) {
  const int64_t features = 2;
  cy_dim d[2] = {cy_dim_const(im->g, s->vectors), cy_dim_const(im->g, s->features)};
  cy_val vectors = cy_build_reshape(im->g, cy_onnx_ml_floats(im, s->support, s->vectors * s->features), d, 2);
  cy_val apart = vectors ? SUB(cy_build_unsqueeze(im->g, s->x, 1), vectors) : 0;
  return apart ? cy_build_reduce(im->g, CY_OP_reduce_sum, MUL(apart, apart), &features, 1, false) : 0;
}

/* The kernel function of every row and support vector, [rows, vectors]. */
static cy_val kernels(cy_importer *im, const cy_onnx_node *n, const svm *s) {
  enum { LINEAR, POLY, RBF, SIGMOID };
  int kernel = cy_onnx_word(im, n, "kernel_type", "LINEAR", "LINEAR|POLY|RBF|SIGMOID");
  uint32_t count = 0;
  const double *p = cy_onnx_floats(im, n, "kernel_params", &count); /* gamma, coef0, degree */
  if (kernel < 0)
    return 0;
  if (kernel != LINEAR && (!p || count != 3))
    return cy_build_error(im->g, "attribute 'kernel_params'", "expected gamma, coef0 and degree, found %u numbers", count);
  if (kernel == RBF) {
    cy_val d = distances(im, s);
    return d ? UNARY(exp, MUL(d, LIKE(d, -p[0]))) : 0;
  }
  cy_val dot = times(im, s->x, s->support, s->vectors, s->features);
  if (!dot || kernel == LINEAR)
    return dot;
  dot = ADD(MUL(dot, LIKE(dot, p[0])), LIKE(dot, p[1]));
  return kernel == SIGMOID ? UNARY(tanh, dot) : p[2] == 2 ? MUL(dot, dot) : p[2] == 3 ? MUL(MUL(dot, dot), dot)
                                                                          : BINARY(pow, dot, LIKE(dot, p[2]));
}

/* The lists and the rows. `linear`: rows of weights where there are no support vectors. */
static bool read_svm(cy_importer *im, const cy_onnx_node *n, uint64_t vectors, uint32_t linear, svm *s) {
  uint32_t nsupport = 0;
  int64_t width;
  s->coefficients = cy_onnx_floats(im, n, "coefficients", &s->ncoefficients);
  s->support = cy_onnx_floats(im, n, "support_vectors", &nsupport);
  s->rho = cy_onnx_floats(im, n, "rho", &s->nrho);
  s->vectors = (uint32_t)vectors;
  s->x = cy_onnx_ml_rows(im, n);
  if (!s->x)
    return false;
  if (!s->coefficients || !s->ncoefficients || !s->rho || !s->nrho)
    return cy_build_error(im->g, NULL, "expected the attributes 'coefficients' and 'rho' as lists of floats");
  if (vectors > nsupport || (vectors ? nsupport % vectors : s->ncoefficients % linear))
    return cy_build_error(im->g, vectors ? "attribute 'support_vectors'" : "attribute 'coefficients'",
                          "expected a multiple of %llu numbers, found %u", (unsigned long long)(vectors ? vectors : linear),
                          vectors ? nsupport : s->ncoefficients);
  s->features = vectors ? nsupport / s->vectors : s->ncoefficients / linear;
  if (!cy_dim_is_const(im->g, cy_onnx_type(im, s->x)->dim[1], &width) || width != s->features)
    return cy_build_error(im->g, "input 0", "expected rows of %u features, found %s", s->features,
                          cy_type_text(im->g, cy_onnx_type(im, s->x)));
  return true;
}

IMPORT(svm_regressor) {
  svm s = {0};
  int64_t vectors = cy_onnx_int(im, n, "n_supports", 0);
  int post = cy_onnx_ml_post(im, n);
  if (post < 0)
    return false;
  if (post != POST_NONE)
    return cy_build_error(im->g, "attribute 'post_transform'", "expected NONE for the one value of an SVMRegressor");
  if (vectors < 0 || vectors > UINT32_MAX)
    return cy_build_error(im->g, "attribute 'n_supports'", "expected at least 0, found %lld", (long long)vectors);
  if (!read_svm(im, n, (uint64_t)vectors, 1, &s))
    return false;
  if (s.vectors && s.ncoefficients != s.vectors)
    return cy_build_error(im->g, "attribute 'coefficients'", "expected one for each of %u support vectors, found %u",
                          s.vectors, s.ncoefficients);
  cy_val near = s.vectors ? kernels(im, n, &s) : s.x;
  cy_val y = near ? times(im, near, s.coefficients, 1, s.ncoefficients) : 0;
  y = y ? ADD(y, LIKE(y, s.rho[0])) : 0;
  if (y && cy_onnx_int(im, n, "one_class", 0))
    y = SELECT(BINARY(gt, y, LIKE(y, 0)), LIKE(y, 1), LIKE(y, -1));
  return y && cy_importer_set(im, n, 0, y);
}

/* ---- pairs of classes -------------------------------------------------------------------------------------------- */

/* Where the pair of classes i < j stands among the pairs of k classes. */
static int64_t pair_at(uint32_t i, uint32_t j, uint32_t k) { return (int64_t)i * (2 * k - i - 1) / 2 + (j - i - 1); }

/* Decisions [rows, pairs]. Each class's vectors are weighed by all rows of coefficients, then a pair takes two of the
 * sums. */
static cy_val decisions(cy_importer *im, const svm *s, cy_val near, const int64_t *vectors, uint32_t k) {
  uint32_t pairs = k * (k - 1) / 2, start = 0;
  cy_val *sums = CY_NEW_ARRAY(im->arena, cy_val, k);
  for (uint32_t c = 0; c < k; c++) {
    uint32_t count = (uint32_t)vectors[c];
    double *block = CY_NEW_ARRAY(im->arena, double, (size_t)(k - 1) * count + 1);
    for (uint32_t row = 0; row + 1 < k; row++)
      for (uint32_t v = 0; v < count; v++)
        block[row * count + v] = s->coefficients[(size_t)row * s->vectors + start + v];
    cy_val own = cy_build_slice_axis(im->g, near, 1, cy_dim_const(im->g, start), cy_dim_const(im->g, count));
    sums[c] = own ? times(im, own, block, k - 1, count) : 0;
    if (!sums[c])
      return 0;
    start += count;
  }
  int64_t *first = CY_NEW_ARRAY(im->arena, int64_t, pairs), *second = CY_NEW_ARRAY(im->arena, int64_t, pairs);
  for (uint32_t i = 0; i < k; i++)
    for (uint32_t j = i + 1; j < k; j++) {
      first[pair_at(i, j, k)] = (int64_t)i * (k - 1) + j - 1;
      second[pair_at(i, j, k)] = (int64_t)j * (k - 1) + i;
    }
  cy_val all = cy_build_concat(im->g, sums, k, 1), rho = cy_onnx_ml_floats(im, s->rho, pairs);
  return ADD(ADD(cy_build_gather(im->g, all, cy_onnx_int_list(im, first, pairs), 1),
                 cy_build_gather(im->g, all, cy_onnx_int_list(im, second, pairs), 1)),
             rho);
}

/* [rows, k, k]: at (i, j) what v [rows, pairs] says of i against j, one minus that on the other side, 0 at (i, i). */
static cy_val square(cy_importer *im, cy_val v, uint32_t k) {
  uint32_t pairs = k * (k - 1) / 2;
  int64_t *at = CY_NEW_ARRAY(im->arena, int64_t, (size_t)k * k);
  for (uint32_t i = 0; i < k; i++)
    for (uint32_t j = 0; j < k; j++)
      at[(size_t)i * k + j] = i < j ? pair_at(i, j, k) : i > j ? pairs + pair_at(j, i, k) : 2 * pairs;
  cy_dim one[2] = {v ? cy_onnx_type(im, v)->dim[0] : 0, cy_dim_const(im->g, 1)};
  cy_val zero = v ? cy_onnx_fill(im, cy_build_scalar(im->g, CY_F32, 0), one, 2) : 0;
  cy_val all[3] = {v, v ? SUB(LIKE(v, 1), v) : 0, zero};
  if (!all[1] || !zero)
    return 0;
  cy_dim d[3] = {one[0], cy_dim_const(im->g, k), cy_dim_const(im->g, k)};
  cy_val places = cy_onnx_int_list(im, at, k * k);
  cy_val flat = cy_build_gather(im->g, cy_build_concat(im->g, all, 3, 1), places, 1);
  return flat ? cy_build_reshape(im->g, flat, d, 3) : 0;
}

/* How many pairs each class wins, [rows, k]. */
static cy_val votes(cy_importer *im, cy_val decision, uint32_t k) {
  const int64_t others = 2;
  cy_val wins = square(im, CAST(BINARY(gt, decision, LIKE(decision, 0)), CY_F32), k);
  return wins ? cy_build_reduce(im->g, CY_OP_reduce_sum, wins, &others, 1, false) : 0;
}

/* ---- probabilities ----------------------------------------------------------------------------------------------- */

typedef struct coupling {
  uint32_t k;
  cy_val q, diagonal; /* [rows, k, k], [rows, k] */
} coupling;

static cy_val sum_last(cy_importer *im, cy_val v, int64_t axis, bool keep) {
  return v ? cy_build_reduce(im->g, CY_OP_reduce_sum, v, &axis, 1, keep) : 0;
}

/* One round: every p[i] in turn is moved to where the error is least, and all are scaled to the sum 1 again. Out: the
 * probabilities, unchanged in rows whose error is small; whether there are other rows. */
static cy_val round_of(cy_importer *im, const coupling *c, cy_val p, cy_val *out_go_on) {
  const int64_t classes = 1, whole[2] = {0, 1};
  cy_graph *g = im->g;
  cy_dim one = cy_dim_const(g, 1), all = cy_dim_const(g, c->k);
  cy_val before = p, qp = sum_last(im, MUL(c->q, cy_build_unsqueeze(g, p, 1)), 2, false);
  cy_val pqp = sum_last(im, MUL(p, qp), 1, true);
  cy_val error = cy_build_reduce(g, CY_OP_reduce_max, UNARY(abs, SUB(qp, pqp)), &classes, 1, true);
  cy_val active = BINARY(ge, error, LIKE(error, 0.005f / (float)c->k));
  cy_val place = cy_build_iota(g, CY_I64, &all, 1, 0);
  for (uint32_t i = 0; i < c->k && p; i++) {
    cy_dim at = cy_dim_const(g, i);
    cy_val qii = cy_build_slice_axis(g, c->diagonal, 1, at, one), qpi = cy_build_slice_axis(g, qp, 1, at, one);
    cy_val row = cy_build_squeeze(g, cy_build_slice_axis(g, c->q, 1, at, one), 1);
    cy_val move = DIV(SUB(pqp, qpi), qii), scale = ADD(move, LIKE(move, 1));
    p = ADD(p, SELECT(BINARY(eq, place, LIKE(place, i)), move, LIKE(move, 0)));
    pqp = DIV(DIV(ADD(pqp, MUL(move, ADD(MUL(move, qii), MUL(qpi, LIKE(qpi, 2))))), scale), scale);
    qp = DIV(ADD(qp, MUL(move, row)), scale);
    p = DIV(p, scale);
  }
  *out_go_on = CAST(cy_build_reduce(g, CY_OP_reduce_max, CAST(active, CY_I32), whole, 2, false), CY_BOOL);
  return SELECT(active, p, before);
}

/* Probabilities [rows, k] of the classes from those of the pairs, r [rows, k, k]. */
static cy_val coupled(cy_importer *im, cy_val r, uint32_t k) {
  cy_graph *g = im->g;
  const int64_t transposed[3] = {0, 2, 1};
  cy_dim d[2] = {cy_onnx_type(im, r)->dim[0], cy_dim_const(g, k)}, square_dims[2] = {d[1], d[1]};
  coupling c = {.k = k, .diagonal = sum_last(im, MUL(r, r), 1, false)};
  cy_val same = BINARY(eq, cy_build_iota(g, CY_I64, square_dims, 2, 0), cy_build_iota(g, CY_I64, square_dims, 2, 1));
  c.q = SELECT(same, cy_build_unsqueeze(g, c.diagonal, 2), UNARY(neg, MUL(r, cy_build_transpose(g, r, transposed))));
  cy_val first = cy_onnx_fill(im, cy_build_scalar(g, CY_F32, 1.0 / k), d, 2);
  if (!c.q || !first)
    return 0;
  cy_block here = cy_build_block(g), body = cy_block_create(g, here);
  cy_type index = cy_type_make(CY_I64, 0, NULL), flag = cy_type_make(CY_BOOL, 0, NULL), type = *cy_onnx_type(im, first);
  cy_block_add_param(g, body, &index, NULL);
  cy_block_add_param(g, body, &flag, NULL);
  cy_val results[2], p = cy_block_add_param(g, body, &type, NULL);
  cy_build_in(g, body);
  results[1] = round_of(im, &c, p, &results[0]);
  cy_build_in(g, here);
  if (!results[0] || !results[1])
    return 0;
  cy_block_set_results(g, body, results, 2);
  cy_val in[3] = {cy_build_scalar_int(g, CY_I64, 100), 0, first};
  cy_attr a = cy_attr_block(CY_ATTR_body, body);
  return cy_build(g, CY_OP_loop, in, 3, &a, 1, &type, 1);
}

/* Of class i against j: 1 / (1 + exp(a * decision + b)), kept away from 0 and 1. */
static cy_val probabilities(cy_importer *im, cy_val decision, const double *a, const double *b, uint32_t k) {
  uint32_t pairs = k * (k - 1) / 2;
  cy_val v = ADD(MUL(decision, cy_onnx_ml_floats(im, a, pairs)), cy_onnx_ml_floats(im, b, pairs));
  v = v ? UNARY(sigmoid, UNARY(neg, v)) : 0;
  v = v ? square(im, MIN(MAX(v, LIKE(v, 1e-7)), LIKE(v, 1 - 1e-7)), k) : 0;
  return v ? coupled(im, v, k) : 0;
}

/* ---- the classifier ---------------------------------------------------------------------------------------------- */

/* Without support vectors: a row of weights for each class. Two classes are told apart as linear models of one column are:
 * by the highest score, unless it is large enough for the second class to take it. */
static bool linear_svm(cy_importer *im, const cy_onnx_node *n, const svm *s, cy_val labels, uint32_t k, bool proba,
                        int post) {
  const int64_t classes = 1;
  cy_val scores = times(im, s->x, s->coefficients, k, s->features);
  scores = scores ? ADD(scores, LIKE(scores, s->rho[0])) : 0;
  cy_val label = scores ? cy_onnx_ml_best(im, labels, scores) : 0;
  if (label && k == 2 && !proba) {
    bool positive = true;
    for (uint32_t i = 0; i < s->ncoefficients; i++)
      positive &= s->coefficients[i] >= 0;
    cy_val max = cy_build_reduce(im->g, CY_OP_reduce_max, scores, &classes, 1, false);
    cy_val second = positive ? BINARY(ge, max, LIKE(max, 0.5)) : BINARY(gt, max, LIKE(max, 0));
    label = SELECT(second, cy_build_gather(im->g, labels, cy_build_scalar_int(im->g, CY_I64, 1), 0), label);
  }
  return label && cy_importer_set(im, n, 0, label) &&
         cy_importer_set(im, n, 1, k > 1 ? cy_onnx_ml_transformed(im, scores, post) : scores);
}

/* Two classes without probabilities: both columns from the one decision. */
static cy_val two_scores(cy_importer *im, cy_val decision, int post) {
  bool opposite = post == POST_NONE || post == POST_LOGISTIC;
  cy_val pair[2] = {opposite ? UNARY(neg, decision) : SUB(LIKE(decision, 1), decision), decision};
  cy_val both = pair[0] ? cy_build_concat(im->g, pair, 2, 1) : 0;
  return post == POST_LOGISTIC || post == POST_PROBIT ? cy_onnx_ml_transformed(im, both, post) : both;
}

static bool check_lengths(cy_importer *im, const svm *s, uint32_t k, uint32_t classes, uint32_t na) {
  uint32_t pairs = k * (k - 1) / 2;
  if (k < 2 || k > MAX_CLASSES || classes != k)
    return cy_build_error(im->g, "attribute 'vectors_per_class'",
                          "expected a count for each of 2 to %d labels, found %u counts for %u", MAX_CLASSES, classes,
                          k);
  if (s->ncoefficients != (uint64_t)(k - 1) * s->vectors)
    return cy_build_error(im->g, "attribute 'coefficients'", "expected %llu, a row of %u for each class but one, found %u",
                          (unsigned long long)(k - 1) * s->vectors, s->vectors, s->ncoefficients);
  if (s->nrho < pairs || (na && na < pairs))
    return cy_build_error(im->g, s->nrho < pairs ? "attribute 'rho'" : "attribute 'prob_a'",
                          "expected one for each of %u pairs of classes, found %u", pairs, s->nrho < pairs ? s->nrho : na);
  return true;
}

IMPORT(svm_classifier) {
  svm s = {0};
  uint32_t classes = 0, ints = 0, strings = 0, na = 0, nb = 0;
  uint64_t total = 0;
  const int64_t *vectors = cy_onnx_ints(im, n, "vectors_per_class", &classes);
  const double *a = cy_onnx_floats(im, n, "prob_a", &na), *b = cy_onnx_floats(im, n, "prob_b", &nb);
  int post = cy_onnx_ml_post(im, n);
  cy_onnx_ints(im, n, "classlabels_ints", &ints);
  cy_onnx_strings(im, n, "classlabels_strings", &strings);
  uint32_t k = ints ? ints : strings;
  for (uint32_t i = 0; i < classes && vectors; i++)
    total += vectors[i] < 0 || vectors[i] > UINT32_MAX ? (uint64_t)UINT32_MAX + 1 : (uint64_t)vectors[i];
  if (post < 0)
    return false;
  if (!k || na != nb || total > UINT32_MAX)
    return cy_build_error(
        im->g, NULL,
        "expected labels in classlabels_ints or classlabels_strings, prob_a and prob_b of one length, and "
        "vectors_per_class of at least 0");
  cy_val labels = cy_onnx_ml_labels(im, n, "classlabels_ints", "classlabels_strings", k);
  if (!labels || !read_svm(im, n, total, k, &s))
    return false;
  if (!s.vectors)
    return linear_svm(im, n, &s, labels, k, na > 0, post);
  cy_val near = check_lengths(im, &s, k, classes, na) ? kernels(im, n, &s) : 0;
  cy_val decision = near ? decisions(im, &s, near, vectors, k) : 0, wins = decision ? votes(im, decision, k) : 0;
  if (!wins)
    return false;
  cy_val scores = na ? probabilities(im, decision, a, b, k) : decision;
  if (scores)
    scores = na || k > 2 ? cy_onnx_ml_transformed(im, scores, post) : two_scores(im, scores, post);
  return scores && cy_importer_set(im, n, 0, cy_onnx_ml_best(im, labels, wins)) && cy_importer_set(im, n, 1, scores);
}
