/* SPDX-License-Identifier: Apache-2.0 */
/* fold_affine.c - moves scales and shifts by constants into the weights of the contraction next to them.
 *
 * In:  a swept graph. Out: batch normalisations and scales behind conv, conv_transpose and matmul become part of the
 * weights (new constant expressions, computed by fold_late); shifts become one bias behind the contraction, which is
 * its epilogue. Scales in front of a contraction, along its input channels, go into the weights too; shifts in front
 * where nothing is padded.
 *
 * Only f32 and f64: scaled half-precision weights would be rounded a second time. A contraction's result must have no
 * other reader. Weights that others use, too, are not touched: the scaled ones are new constants. Rows that are looked
 * up, too (an embedding tied to the output layer), stay what they are: scaled, they would be stored a second time.
 */
#include "pass_int.h"

enum {
  MAX_COPIED = 1 << 26
}; /* larger weights are not copied for a scale in front: the compiler's memory is worth more */

static bool is_exact_enough(const cy_rewrite *rw, cy_val v) {
  int t = cy_type_of(rw->g, v)->dtype;
  return t == CY_F32 || t == CY_F64;
}

static bool is_const(const cy_rewrite *rw, cy_val v) { return cy_value_is_const(rw->g, v); }

/* The contraction that computes v with constant weights, if v has one reader; else NULL. */
static const cy_node_info *contraction(const cy_rewrite *rw, cy_val v) {
  const cy_node_info *n = cy_def(rw->g, v);
  bool is = n && (n->op == CY_OP_conv || n->op == CY_OP_conv_transpose || n->op == CY_OP_matmul);
  return is && is_const(rw, n->in[1]) && is_exact_enough(rw, v) && is_exact_enough(rw, n->in[1]) &&
                 is_exact_enough(rw, n->in[0]) && cy_rewrite_single_use(rw, v)
             ? n
             : NULL;
}

/* Constant c against a value of type t varies along `axis` only: returns its length there (1: a scalar), 0: no. */
static uint64_t length_along(const cy_rewrite *rw, cy_val c, const cy_type *t, int axis) {
  const cy_type *u = cy_type_of(rw->g, c);
  uint64_t count = cy_type_count(rw->g, u);
  int64_t d[CY_MAX_RANK];
  if (!is_const(rw, c) || u->rank > t->rank || !count || !cy_type_static(rw->g, u, d))
    return 0;
  int at = axis - (t->rank - u->rank);
  return count == 1 || (at >= 0 && (uint64_t)d[at] == count) ? count : 0;
}

/* c as a tensor of the given rank with its elements along `axis`. */
static cy_val along(cy_graph *g, cy_val c, uint64_t count, int rank, int axis) {
  cy_dim dims[CY_MAX_RANK];
  for (int i = 0; i < rank; i++)
    dims[i] = cy_dim_const(g, i == axis ? (int64_t)count : 1);
  return count == 1 ? cy_build_reshape(g, c, dims, 0) : cy_build_reshape(g, c, dims, rank);
}

/* Contraction n over other inputs, its attributes and type kept. */
static cy_val rebuild(cy_graph *g, const cy_node_info *n, cy_val x, cy_val w) {
  cy_val in[2] = {x, w};
  return cy_build(g, (cy_op)n->op, in, 2, n->attrs, n->nattrs, cy_type_of(g, n->out[0]), 1);
}

static int out_axis(const cy_rewrite *rw, const cy_node_info *n) {
  return n->op == CY_OP_matmul ? cy_type_of(rw->g, n->out[0])->rank - 1 : 1;
}

/* Is what weights w were made of looked up somewhere? */
static bool is_looked_up(const cy_rewrite *rw, cy_val w) {
  cy_val v = cy_const_source(rw->g, w);
  for (uint32_t i = v <= rw->nvalues ? rw->uses.start[v] : 0; v <= rw->nvalues && i < rw->uses.start[v + 1]; i++) {
    const cy_node_info *n = rw->uses.list[i] ? cy_node_of(rw->g, rw->uses.list[i]) : NULL;
    if (n && n->op == CY_OP_gather && n->in[0] == v)
      return true;
  }
  return false;
}

/* ---- behind ----------------------------------------------------------------------------------------------------- */

/* The weights of n with output channel o multiplied by c[o]; 0 when c has another shape. */
static cy_val scaled_weights(cy_rewrite *rw, const cy_node_info *n, cy_val c) {
  cy_graph *g = rw->g;
  const cy_type *t = cy_type_of(g, n->out[0]), *w = cy_type_of(g, n->in[1]);
  uint64_t count = length_along(rw, c, t, out_axis(rw, n));
  int w_axis = n->op == CY_OP_matmul ? w->rank - 1 : n->op == CY_OP_conv ? 0 : 1;
  if (!count || is_looked_up(rw, n->in[1]) ||
      (count > 1 && n->op == CY_OP_conv_transpose && cy_attr_get_int(n, CY_ATTR_group, 1) != 1) ||
      (count > 1 && !cy_dim_is(g, w->dim[w_axis], (int64_t)count)))
    return 0;
  return cy_build_binary(g, CY_OP_mul, n->in[1], along(g, c, count, w->rank, w_axis));
}

/* contraction(x, w) * c */
static cy_val scale_behind(cy_rewrite *rw, const cy_node_info *n) {
  const cy_node_info *m = contraction(rw, n->in[0]);
  cy_val w = m ? scaled_weights(rw, m, n->in[1]) : 0;
  return w ? rebuild(rw->g, m, m->in[0], w) : 0;
}

/* contraction(x, w) / c */
static cy_val divide_behind(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_node_info *m = contraction(rw, n->in[0]);
  if (!m || !length_along(rw, n->in[1], cy_type_of(g, n->out[0]), out_axis(rw, m)) || cy_splat_is(g, n->in[1], 0))
    return 0;
  cy_val inverse = cy_build_binary(g, CY_OP_div, cy_build_like(g, n->in[1], 1), n->in[1]);
  return cy_value_is_const(g, inverse) ? cy_build_binary(g, CY_OP_mul, n->in[0], inverse) : 0;
}

/* (contraction(x, w) + b) * c = contraction(x, w) * c + b * c */
static cy_val scale_behind_shift(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_node_info *add = cy_def_of(g, n->in[0], CY_OP_add);
  const cy_node_info *m = add && cy_rewrite_single_use(rw, n->in[0]) ? contraction(rw, add->in[0]) : NULL;
  if (!m || !length_along(rw, add->in[1], cy_type_of(g, n->out[0]), out_axis(rw, m)))
    return 0;
  cy_val w = scaled_weights(rw, m, n->in[1]);
  if (!w)
    return 0;
  return cy_build_binary(g, CY_OP_add, rebuild(g, m, m->in[0], w), cy_build_binary(g, CY_OP_mul, add->in[1], n->in[1]));
}

/* (contraction(x, w) + b) + c = contraction(x, w) + (b + c) */
static cy_val shifts_behind(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_node_info *add = cy_def_of(g, n->in[0], CY_OP_add);
  const cy_node_info *m = add && cy_rewrite_single_use(rw, n->in[0]) ? contraction(rw, add->in[0]) : NULL;
  const cy_type *t = cy_type_of(g, n->out[0]);
  if (!m || !length_along(rw, add->in[1], t, out_axis(rw, m)) || !length_along(rw, n->in[1], t, out_axis(rw, m)))
    return 0;
  return cy_build_binary(g, CY_OP_add, add->in[0], cy_build_binary(g, CY_OP_add, add->in[1], n->in[1]));
}

/* ---- in front --------------------------------------------------------------------------------------------------- */

/* The constant second operand of v = x op c, along the channels that contraction n reads; sets its length. */
static const cy_node_info *front(cy_rewrite *rw, const cy_node_info *n, cy_op op, uint64_t *out_count) {
  cy_graph *g = rw->g;
  const cy_node_info *d = cy_def_of(g, n->in[0], op);
  if (!d || cy_value_of(g, n->in[1])->data.size > MAX_COPIED || !is_const(rw, n->in[1]) || is_const(rw, d->in[0]) ||
      !is_exact_enough(rw, n->in[0]) || !is_exact_enough(rw, n->in[1]) || !cy_rewrite_single_use(rw, n->in[0]) ||
      !cy_same_shape(cy_type_of(g, d->in[0]), cy_type_of(g, n->in[0])))
    return NULL;
  const cy_type *t = cy_type_of(g, n->in[0]);
  *out_count = length_along(rw, d->in[1], t, n->op == CY_OP_matmul ? t->rank - 1 : 1);
  return *out_count ? d : NULL;
}

/* contraction(x * c, w) = contraction(x, c * w) */
static cy_val scale_in_front(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  uint64_t count;
  const cy_node_info *d = front(rw, n, CY_OP_mul, &count);
  if (!d || is_looked_up(rw, n->in[1]))
    return 0;
  const cy_type *w = cy_type_of(g, n->in[1]);
  int axis = n->op == CY_OP_matmul ? w->rank - 2 : n->op == CY_OP_conv ? 1 : 0;
  if (count > 1 && n->op == CY_OP_conv && cy_attr_get_int(n, CY_ATTR_group, 1) != 1) {
    if (!cy_dim_is(g, w->dim[1], 1) || !cy_dim_is(g, w->dim[0], (int64_t)count))
      return 0; /* depthwise: one filter per channel; other groups would need c gathered */
    axis = 0;
  }
  if (count > 1 && !cy_dim_is(g, w->dim[axis], (int64_t)count))
    return 0;
  return rebuild(g, n, d->in[0], cy_build_binary(g, CY_OP_mul, n->in[1], along(g, d->in[1], count, w->rank, axis)));
}

static bool is_unpadded(const cy_node_info *n) {
  uint32_t count;
  const int64_t *pads = cy_attr_list(n, CY_ATTR_pads, &count);
  for (uint32_t i = 0; i < count; i++)
    if (pads[i])
      return false;
  return true;
}

/* contraction(x + c, w) = contraction(x, w) + sum of c * w. Not where a border of zeros was added, nor where sizes
 * depend on groups. */
static cy_val shift_in_front(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  uint64_t count;
  const cy_node_info *d = front(rw, n, CY_OP_add, &count);
  const cy_type *w = cy_type_of(g, n->in[1]);
  bool conv = n->op == CY_OP_conv;
  if (!d || (!conv && (n->op != CY_OP_matmul || w->rank != 2)) ||
      (conv && (cy_attr_get_int(n, CY_ATTR_group, 1) != 1 || !is_unpadded(n))) || cy_splat_is(g, d->in[1], 0))
    return 0;
  int axis = conv ? 1 : 0, o_axis = conv ? 0 : 1;
  int64_t o, axes[CY_MAX_RANK];
  uint32_t naxes = 0;
  if (!cy_dim_is_const(g, w->dim[o_axis], &o))
    return 0;
  for (int i = 0; i < w->rank; i++)
    if (i != o_axis)
      axes[naxes++] = i;
  cy_val product = cy_build_binary(g, CY_OP_mul, n->in[1], along(g, d->in[1], count, w->rank, axis));
  cy_val bias = cy_build_reduce(g, CY_OP_reduce_sum, product, axes, naxes, false);
  int rank = cy_type_of(g, n->out[0])->rank;
  bias = along(g, bias, (uint64_t)o, conv ? rank - 1 : 1, 0);
  return cy_build_binary(g, CY_OP_add, rebuild(g, n, d->in[0], n->in[1]), bias);
}

static const cy_rule rules[] = {
    {CY_OP_mul, "scale behind", scale_behind},
    {CY_OP_mul, "scale behind shift", scale_behind_shift},
    {CY_OP_div, "division behind", divide_behind},
    {CY_OP_add, "shifts behind", shifts_behind},
    {CY_OP_matmul, "scale in front", scale_in_front},
    {CY_OP_conv, "scale in front", scale_in_front},
    {CY_OP_conv_transpose, "scale in front", scale_in_front},
    {CY_OP_matmul, "shift in front", shift_in_front},
    {CY_OP_conv, "shift in front", shift_in_front},
};

/* requires: swept   establishes: swept   breaks: unique, folded, placed, fused */
int cy_pass_fold_affine(cy_pass *p) {
  const cy_rule_set set = {rules, sizeof rules / sizeof rules[0]};
  cy_rewrite_run(p, &set, 1);
  return 0;
}
