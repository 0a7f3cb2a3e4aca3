/* SPDX-License-Identifier: Apache-2.0 */
/* maxima.c - the largest elements of images, by which dynamic quantisation rounds them, as fusion and lowering see them.
 *
 * In:  a graph in which quantise_round.c and quantise_halves.c have spelled them out, x being of f16:
 *
 *   max = reduce_max(reduce_max(bitcast<i32>(|cast<f32>(x)|)))     of all axes but the first
 *   ints = cast(round(cast<f32>(x) * (steps / max(bitcast<f32>(max), 1e-30))))
 *
 * Out: which values these are. Where the target can (cy_target_caps.finds_maxima), the kernel that computes x finds `max`, if
 * it is that of a contraction, and convolutions round x as they read it: x is stored and read once, in no kernel but these.
 */
#include "pass_int.h"

enum { MAX_CHAIN = 8, MAX_BACK = 32 };

static const cy_node_info *skip(const cy_graph *g, const cy_node_info *n, cy_op op) {
  return n && n->op == op ? cy_def(g, n->in[0]) : n;
}

/* What is of f16 where n widens it; 0: it does something else. */
static cy_val widened(cy_graph *g, const cy_node_info *n) {
  bool wide = n && n->op == CY_OP_cast && cy_type_of(g, n->out[0])->dtype == CY_F32;
  return wide && cy_type_of(g, n->in[0])->dtype == CY_F16 ? n->in[0] : 0;
}

cy_val cy_maxima_source(cy_graph *g, cy_val max) {
  const cy_node_info *n = cy_def_of(g, max, CY_OP_reduce_max);
  const cy_type *t = cy_type_of(g, max);
  for (int i = 1; i < t->rank; i++)
    if (!cy_dim_is(g, t->dim[i], 1))
      return 0;
  n = n && t->rank > 1 ? cy_def_of(g, n->in[0], CY_OP_reduce_max) : NULL;
  n = n ? cy_def_of(g, n->in[0], CY_OP_bitcast) : NULL;
  if (!n || cy_type_of(g, n->out[0])->dtype != CY_I32)
    return 0;
  cy_val x = widened(g, skip(g, cy_def(g, n->in[0]), CY_OP_abs));
  bool whole = x && cy_type_of(g, x)->rank == t->rank && cy_type_of(g, x)->dim[0] == t->dim[0];
  return whole && cy_def(g, x) && cy_def(g, x)->block == cy_def(g, max)->block ? x : 0;
}

/* Is v, or what only element-wise ops make v of, the result of a product or convolution without groups? */
static bool is_of_contraction(const cy_graph *g, cy_val v, cy_block block, int *inout_left) {
  const cy_node_info *n = cy_def(g, v);
  if (!n || n->block != block || --*inout_left < 0)
    return false;
  if (n->op == CY_OP_matmul || n->op == CY_OP_conv)
    return cy_attr_get_int(n, CY_ATTR_group, 1) == 1;
  if (cy_op_of((cy_op)n->op)->cls != CY_CLASS_EW)
    return false;
  for (uint32_t i = 0; i < n->nin; i++)
    if (cy_same_shape(cy_type_of(g, n->in[i]), cy_type_of(g, v)) && is_of_contraction(g, n->in[i], block, inout_left))
      return true;
  return false;
}

bool cy_maxima_by_contraction(const cy_graph *g, const cy_target_caps *caps, cy_val x) {
  int left = MAX_BACK;
  return cy_caps_of(caps)->finds_maxima && cy_def(g, x) && is_of_contraction(g, x, cy_def(g, x)->block, &left);
}

bool cy_maxima_are_found(cy_graph *g, const cy_target_caps *caps, cy_val max) {
  cy_val x = cy_caps_of(caps)->finds_maxima ? cy_maxima_source(g, max) : 0;
  return x && cy_maxima_by_contraction(g, caps, x);
}

static cy_val maxima_behind(cy_graph *g, const cy_uses *uses, cy_val x, cy_val v, int left) {
  for (uint32_t i = uses->start[v]; i < uses->start[v + 1] && left > 0; i++) {
    const cy_node_info *n = uses->list[i] ? cy_node_of(g, uses->list[i]) : NULL;
    bool on = n && (n->op == CY_OP_cast || n->op == CY_OP_abs || n->op == CY_OP_bitcast || n->op == CY_OP_reduce_max);
    cy_val max = !on                                 ? 0
                  : cy_maxima_source(g, n->out[0]) == x ? n->out[0]
                                                      : maxima_behind(g, uses, x, n->out[0], left - 1);
    if (max)
      return max;
  }
  return 0;
}

cy_val cy_maxima_of(cy_graph *g, const cy_uses *uses, cy_val x) { return maxima_behind(g, uses, x, x, MAX_CHAIN); }

/* The bits' maximum that v, a number for each image that is not 0, is made of. */
cy_val cy_maxima_bounded(cy_graph *g, cy_val v) {
  const cy_node_info *max = cy_def_of(g, v, CY_OP_max), *bits = max ? cy_def_of(g, max->in[0], CY_OP_bitcast) : NULL;
  return bits && cy_splat_is(g, max->in[1], 1e-30f) && cy_type_of(g, v)->dtype == CY_F32 ? bits->in[0] : 0;
}

bool cy_maxima_rounds(cy_graph *g, cy_val ints, cy_maxima_rounding *out) {
  const cy_node_info *cast = cy_def_of(g, ints, CY_OP_cast),
                     *round = cast ? cy_def_of(g, cast->in[0], CY_OP_round) : NULL;
  const cy_node_info *mul = round ? cy_def_of(g, round->in[0], CY_OP_mul) : NULL;
  for (int i = 0; mul && i < 2; i++) {
    const cy_node_info *div = cy_def_of(g, mul->in[1 - i], CY_OP_div);
    cy_val x = widened(g, cy_def(g, mul->in[i])), max = div ? cy_maxima_bounded(g, div->in[1]) : 0;
    cy_dtype type = (cy_dtype)cy_type_of(g, ints)->dtype;
    if (!x || !max || cy_maxima_source(g, max) != x || !cy_dtype_is_byte(type) ||
        !cy_value_is_splat(g, div->in[0], &out->steps) || !(out->steps >= 1 && out->steps <= 255) ||
        out->steps != (int)out->steps)
      continue;
    out->x = x;
    out->max = max;
    out->type = type;
    out->up = mul->in[1 - i];
    out->product = mul->out[0];
    out->whole = round->out[0];
    return true;
  }
  return false;
}
