/* SPDX-License-Identifier: Apache-2.0 */
/* recognise.c - finds the row operations that exporters spell out: layer and RMS normalisation, softmax, log-softmax.
 *
 * In:  a swept graph in canonical spelling (simplify, fold and cse have run: constants second, one node per value).
 * Out: `normalize`, `softmax`, `log_softmax` nodes; scale and bias behind them stay element-wise, where fusion finds
 * them.
 *
 * A pattern is only taken as a whole: all reductions over the same axes, of the same value, epsilon a constant of one
 * element or left out, the count the true number of elements. The inner values must have no other readers, or their work
 * would be done twice. Softmax is only recognised with the maximum subtracted: without it the spelled form overflows
 * where softmax does not, and that difference is the model's own. In front of softmax a maximum over its axis at least,
 * less which the rows are taken, changes nothing, and is left out. Activations like x * sigmoid(x) stay as they are:
 * fusion makes them free.
 */
#include "pass_int.h"

#include <math.h>
#include <string.h>

static cy_val in_of(const cy_node_info *n, int k) { return n ? n->in[k] : 0; }

/* Is c the number of elements that axes of t hold (reciprocal: one over it)? */
static bool is_count(cy_graph *g, cy_val c, const cy_type *t, const bool *axes, bool reciprocal) {
  cy_dim product = cy_dim_const(g, 1);
  for (int i = 0; i < t->rank; i++)
    if (axes[i])
      product = cy_dim_mul(g, product, t->dim[i]);
  double have;
  int64_t want;
  if (cy_value_is_const(g, c) && cy_dim_is_const(g, product, &want) && want > 0 && cy_value_is_splat(g, c, &have)) {
    double exact = reciprocal ? 1.0 / (double)want : (double)want;
    return fabs(have - exact) <= exact * 1e-7;
  }
  uint32_t n;
  const cy_dim *elems = reciprocal ? NULL : cy_value_elems(g, c, &n);
  return elems && n == 1 && elems[0] == product;
}

/* v = mean of something over axes, which stay as length 1: returns what is averaged, else 0. */
static cy_val mean_of(cy_graph *g, cy_val v, bool *out_axes) {
  const cy_node_info *n = cy_def(g, v);
  if (!n || (n->op != CY_OP_div && n->op != CY_OP_mul))
    return 0;
  const cy_node_info *sum = cy_def_of(g, n->in[0], CY_OP_reduce_sum);
  if (!sum || !cy_attr_get_int(sum, CY_ATTR_keepdims, 1))
    return 0;
  const cy_type *t = cy_type_of(g, sum->in[0]);
  if (!cy_axes_of(sum, t->rank, out_axes) || !is_count(g, n->in[1], t, out_axes, n->op == CY_OP_mul))
    return 0;
  return sum->in[0];
}

static bool same_axes(const bool *a, const bool *b) { return !memcmp(a, b, CY_MAX_RANK * sizeof *a); }

/* root = sqrt(mean(d * d) + epsilon), or without: an epsilon like 1e-12 is 0 in f16. Returns d. */
static cy_val rms_of(cy_rewrite *rw, cy_val root, bool *out_axes, double *out_epsilon) {
  cy_graph *g = rw->g;
  cy_val mean = in_of(cy_def_of(g, root, CY_OP_sqrt), 0);
  const cy_node_info *add = cy_def_of(g, mean, CY_OP_add);
  *out_epsilon = 0;
  if (!mean || (add && (!cy_value_is_const(g, add->in[1]) || !cy_value_is_splat(g, add->in[1], out_epsilon) ||
                        cy_type_count(g, cy_type_of(g, add->in[1])) != 1)))
    return 0;
  if (!cy_rewrite_single_use(rw, root))
    return 0;
  const cy_node_info *square = cy_def_of(g, mean_of(g, add ? add->in[0] : mean, out_axes), CY_OP_mul);
  return square && square->in[0] == square->in[1] ? square->in[0] : 0;
}

static cy_val build_normalize(cy_graph *g, cy_val x, const bool *axes, double epsilon, bool rms) {
  int64_t list[CY_MAX_RANK];
  uint32_t n = 0;
  for (int i = 0; i < CY_MAX_RANK; i++)
    if (axes[i])
      list[n++] = i;
  cy_attr attrs[] = {cy_attr_ints(CY_ATTR_axes, list, n), cy_attr_float(CY_ATTR_epsilon, epsilon),
                     cy_attr_int(CY_ATTR_rms, rms)};
  return cy_build(g, CY_OP_normalize, &x, 1, attrs, 3, NULL, 0);
}

/* numerator / root: a normalisation if root is the deviation of the numerator. */
static cy_val normalisation(cy_rewrite *rw, cy_val numerator, cy_val root) {
  cy_graph *g = rw->g;
  bool axes[CY_MAX_RANK], mean_axes[CY_MAX_RANK];
  double epsilon;
  if (!cy_dtype_is_float((cy_dtype)cy_type_of(g, numerator)->dtype) || rms_of(rw, root, axes, &epsilon) != numerator)
    return 0;
  const cy_node_info *centred = cy_def_of(g, numerator, CY_OP_sub);
  if (centred && mean_of(g, centred->in[1], mean_axes) == centred->in[0] && same_axes(axes, mean_axes))
    return build_normalize(g, centred->in[0], axes, epsilon, false);
  return build_normalize(g, numerator, axes, epsilon, true);
}

/* x / sqrt(..) */
static cy_val divided(cy_rewrite *rw, const cy_node_info *n) { return normalisation(rw, n->in[0], n->in[1]); }

/* Products with a reciprocal: x * (1 / sqrt(..)) */
static cy_val multiplied(cy_rewrite *rw, const cy_node_info *n) {
  for (int k = 0; k < 2; k++) {
    const cy_node_info *inverse = cy_def_of(rw->g, n->in[k], CY_OP_div);
    cy_val r = inverse && cy_splat_is(rw->g, inverse->in[0], 1) && cy_rewrite_single_use(rw, n->in[k])
                   ? normalisation(rw, n->in[1 - k], inverse->in[1])
                   : 0;
    if (r)
      return r;
  }
  return 0;
}

/* v = reduce(x) over one axis that stays: returns x and the axis. */
static cy_val row_reduce(cy_graph *g, cy_val v, cy_op op, int64_t *out_axis) {
  const cy_node_info *n = cy_def_of(g, v, op);
  uint32_t count;
  const int64_t *axes = n ? cy_attr_list(n, CY_ATTR_axes, &count) : NULL;
  if (!axes || count != 1 || !cy_attr_get_int(n, CY_ATTR_keepdims, 1))
    return 0;
  *out_axis = axes[0] < 0 ? axes[0] + cy_type_of(g, n->in[0])->rank : axes[0];
  return n->in[0];
}

/* d = x - max(x): returns x if the maximum is along `axis`. */
static cy_val centred_at_max(cy_graph *g, cy_val d, int64_t axis) {
  const cy_node_info *sub = cy_def_of(g, d, CY_OP_sub);
  int64_t max_axis;
  return sub && row_reduce(g, sub->in[1], CY_OP_reduce_max, &max_axis) == sub->in[0] && max_axis == axis ? sub->in[0]
                                                                                                         : 0;
}

static cy_val build_rows(cy_graph *g, cy_op op, cy_val x, int64_t axis) {
  cy_attr a = cy_attr_int(CY_ATTR_axis, axis);
  return x ? cy_build(g, op, &x, 1, &a, 1, NULL, 0) : 0;
}

/* m is one number for each row of x along `axis`, or for several: their maximum. */
static bool is_row_max(cy_graph *g, cy_val m, cy_val x, int64_t axis) {
  const cy_type *t = cy_type_of(g, x);
  const cy_node_info *view = cy_def_of(g, m, CY_OP_reshape);
  const cy_node_info *max = cy_def_of(g, view ? view->in[0] : m, CY_OP_reduce_max);
  bool axes[CY_MAX_RANK];
  if (!max || max->in[0] != x || !cy_axes_of(max, t->rank, axes) || !axes[axis])
    return false;
  const cy_type *now = cy_type_of(g, m);
  if (now->rank == 0)
    return true;
  for (int i = 0; i < t->rank; i++)
    if (now->rank != t->rank || !(axes[i] ? cy_dim_is(g, now->dim[i], 1) : now->dim[i] == t->dim[i]))
      return false;
  return true;
}

/* softmax((x - max(x)) * c) = softmax(x * c): softmax takes the maximum away itself */
static cy_val shifted_softmax(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  int64_t axis = cy_attr_get_int(n, CY_ATTR_axis, -1);
  const cy_node_info *scale = cy_def(g, n->in[0]);
  bool scaled = scale && (scale->op == CY_OP_mul || scale->op == CY_OP_div);
  double c;
  if (scaled && !(cy_value_is_const(g, scale->in[1]) && cy_value_is_splat(g, scale->in[1], &c) && c > 0))
    return 0;
  const cy_node_info *sub = scaled ? cy_def_of(g, scale->in[0], CY_OP_sub) : cy_def_of(g, n->in[0], CY_OP_sub);
  axis += axis < 0 ? cy_type_of(g, n->in[0])->rank : 0;
  if (!sub || !cy_same_shape(cy_type_of(g, sub->in[0]), cy_type_of(g, n->in[0])) ||
      !is_row_max(g, sub->in[1], sub->in[0], axis))
    return 0;
  return build_rows(g, CY_OP_softmax,
                    scaled ? cy_build_binary(g, (cy_op)scale->op, sub->in[0], scale->in[1]) : sub->in[0], axis);
}

/* exp(x - max) / sum(exp(x - max)) */
static cy_val spelled_softmax(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  int64_t axis;
  const cy_node_info *e = cy_def_of(g, n->in[0], CY_OP_exp);
  if (!e || row_reduce(g, n->in[1], CY_OP_reduce_sum, &axis) != n->in[0])
    return 0;
  return build_rows(g, CY_OP_softmax, centred_at_max(g, e->in[0], axis), axis);
}

/* (x - max) - log(sum(exp(x - max))) */
static cy_val spelled_log_softmax(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  int64_t axis;
  const cy_node_info *log = cy_def_of(g, n->in[1], CY_OP_log);
  const cy_node_info *e = log ? cy_def_of(g, row_reduce(g, log->in[0], CY_OP_reduce_sum, &axis), CY_OP_exp) : NULL;
  if (!e || e->in[0] != n->in[0])
    return 0;
  return build_rows(g, CY_OP_log_softmax, centred_at_max(g, n->in[0], axis), axis);
}

/* log(softmax(x)) */
static cy_val log_of_softmax(cy_rewrite *rw, const cy_node_info *n) {
  const cy_node_info *s = cy_def_of(rw->g, n->in[0], CY_OP_softmax);
  return s && cy_rewrite_single_use(rw, n->in[0])
             ? build_rows(rw->g, CY_OP_log_softmax, s->in[0], cy_attr_get_int(s, CY_ATTR_axis, -1))
             : 0;
}

static const cy_rule rules[] = {
    {CY_OP_div, "normalize", divided},
    {CY_OP_div, "softmax", spelled_softmax},
    {CY_OP_softmax, "softmax of a maximum taken away", shifted_softmax},
    {CY_OP_mul, "normalize", multiplied},
    {CY_OP_sub, "log_softmax", spelled_log_softmax},
    {CY_OP_log, "log of softmax", log_of_softmax},
};

/* requires: swept   establishes: swept   breaks: unique, folded, placed, fused */
int cy_pass_recognise(cy_pass *p) {
  const cy_rule_set set = {rules, sizeof rules / sizeof rules[0]};
  cy_rewrite_run(p, &set, 1);
  return 0;
}
