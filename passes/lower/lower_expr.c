/* SPDX-License-Identifier: Apache-2.0 */
/* lower_expr.c - one output element as an expression: element-wise ops and views.
 *
 * Each function gets the index of the wanted element and returns its value in the compute type, by asking for elements
 * of the node's inputs (cy_lower_at), which are loads or, for inlined inputs, expressions again. The table at the end
 * names the function of every op that has such an expression.
 */
#include "lower_int.h"

static const cy_node_info *node_of(cy_kb *b, cy_node n) { return cy_node_of(b->l->g, n); }

static cy_expr operand(cy_kb *b, const cy_node_info *n, int i, const cy_expr *idx) {
  cy_expr in_idx[CY_MAX_RANK];
  cy_lower_broadcast(b, cy_lower_type(b->l, n->in[i]), cy_lower_type(b->l, n->out[0]), idx, in_idx);
  return cy_lower_at(b, n->in[i], in_idx);
}

static cy_expr lower_elementwise(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  const cy_node_info *n = node_of(b, node);
  cy_expr args[3] = {0};
  for (uint32_t i = 0; i < n->nin; i++)
    args[i] = operand(b, n, (int)i, idx);
  if (n->op == CY_OP_select)
    return cy_x_select_either(b->k, args[0], args[1], args[2]);
  cy_dtype out = (cy_dtype)cy_lower_type(b->l, n->out[0])->dtype;
  return cy_x_op(b->k, (cy_op)n->op, cy_compute_dtype(out), args, (int)n->nin);
}

/* Rounds to the storage type, then goes on in the compute type. */
static cy_expr lower_cast(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  const cy_node_info *n = node_of(b, node);
  cy_dtype out = (cy_dtype)cy_lower_type(b->l, n->out[0])->dtype;
  bool saturate = cy_attr_get_int(n, CY_ATTR_saturate, 1) != 0;
  cy_expr x = operand(b, n, 0, idx), cast = saturate ? cy_x_cast(b->k, x, out) : cy_x_cast_unsaturated(b->k, x, out);
  return cy_x_cast(b->k, cast, cy_compute_dtype(out));
}

static cy_expr lower_bitcast(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  const cy_node_info *n = node_of(b, node);
  cy_dtype from = (cy_dtype)cy_lower_type(b->l, n->in[0])->dtype, to = (cy_dtype)cy_lower_type(b->l, n->out[0])->dtype;
  cy_expr stored = cy_x_cast(b->k, operand(b, n, 0, idx), from == CY_STRING ? CY_I32 : from);
  return cy_x_cast(b->k, cy_x_op(b->k, CY_OP_bitcast, to, &stored, 1), cy_compute_dtype(to));
}

static cy_expr lower_identity(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  return cy_lower_at(b, node_of(b, node)->in[0], idx);
}

static cy_expr lower_expand(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  return operand(b, node_of(b, node), 0, idx);
}

static cy_expr lower_transpose(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  const cy_node_info *n = node_of(b, node);
  const cy_attr *perm = cy_attr_find(n, CY_ATTR_perm);
  cy_expr in_idx[CY_MAX_RANK];
  for (uint32_t i = 0; i < perm->n; i++)
    in_idx[perm->ints[i]] = idx[i];
  return cy_lower_at(b, n->in[0], in_idx);
}

static cy_expr lower_slice(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  const cy_node_info *n = node_of(b, node);
  const cy_attr *starts = cy_attr_find(n, CY_ATTR_starts), *steps = cy_attr_find(n, CY_ATTR_steps);
  cy_expr in_idx[CY_MAX_RANK];
  for (uint32_t i = 0; i < starts->n; i++) {
    cy_expr moved = cy_x_bin(b->k, CY_OP_mul, idx[i], cy_x_index(b->k, steps->ints[i]));
    in_idx[i] = cy_x_bin(b->k, CY_OP_add, moved, cy_x_dim(b->k, starts->dims[i]));
  }
  return cy_lower_at(b, n->in[0], in_idx);
}

/* Row-major position of the axes [from, to) as one index. */
static cy_expr linear_index(cy_kb *b, const cy_type *t, int from, int to, const cy_expr *idx) {
  cy_expr sum = cy_x_index(b->k, 0);
  for (int i = from; i < to; i++) {
    sum = cy_x_bin(b->k, CY_OP_mul, sum, cy_x_dim(b->k, t->dim[i]));
    sum = cy_x_bin(b->k, CY_OP_add, sum, idx[i]);
  }
  return sum;
}

/* Axes [from, to) of t out of one row-major index. */
static void split_index(cy_kb *b, const cy_type *t, int from, int to, cy_expr linear, cy_expr *out_idx) {
  for (int i = to - 1; i >= from; i--) {
    cy_expr extent = cy_x_dim(b->k, t->dim[i]);
    out_idx[i] = i == from ? linear : cy_x_bin(b->k, CY_OP_mod, linear, extent);
    if (i > from)
      linear = cy_x_bin(b->k, CY_OP_div, linear, extent);
  }
}

/* The common refinement: groups of axes with equal products on both sides are converted on their own, so that most
 * indices stay affine. True when no division was needed. */
static bool reshape_index(cy_kb *b, const cy_type *from, const cy_type *to, const cy_expr *idx, cy_expr *out_idx) {
  cy_graph *g = b->l->g;
  bool affine = true;
  int i = 0, j = 0;
  while (i < from->rank || j < to->rank) {
    int i0 = i, j0 = j;
    cy_dim pi = i < from->rank ? from->dim[i++] : cy_dim_const(g, 1);
    cy_dim pj = j < to->rank ? to->dim[j++] : cy_dim_const(g, 1);
    while (pi != pj && (i < from->rank || j < to->rank)) {
      bool grow_from = j == to->rank || (i < from->rank && cy_lower_grows(g, pi, pj));
      if (grow_from)
        pi = cy_dim_mul(g, pi, from->dim[i++]);
      else
        pj = cy_dim_mul(g, pj, to->dim[j++]);
    }
    if (pi != pj) { /* products that only agree at run time: everything that is left is one group */
      i = from->rank;
      j = to->rank;
    }
    if (i - i0 > 1)
      affine = false;
    if (i > i0)
      split_index(b, from, i0, i, linear_index(b, to, j0, j, idx), out_idx);
  }
  return affine;
}

static cy_expr lower_reshape(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  const cy_node_info *n = node_of(b, node);
  cy_expr in_idx[CY_MAX_RANK];
  cy_place view; /* strides through stored memory need no division */
  if (cy_lower_view_place(b->l, n, &view)) {
    const cy_type *t = cy_lower_type(b->l, n->out[0]);
    return cy_kb_load(b, &view, (cy_dtype)t->dtype, t->rank, idx);
  }
  reshape_index(b, cy_lower_type(b->l, n->in[0]), cy_lower_type(b->l, n->out[0]), idx, in_idx);
  return cy_lower_at(b, n->in[0], in_idx);
}

static cy_expr lower_concat(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  const cy_node_info *n = node_of(b, node);
  cy_graph *g = b->l->g;
  int rank = cy_lower_type(b->l, n->out[0])->rank;
  int axis = (int)cy_attr_get_int(n, CY_ATTR_axis, 0);
  cy_expr in_idx[CY_MAX_RANK], value = 0;
  for (int i = 0; i < rank; i++)
    in_idx[i] = idx[i];
  cy_dim end = cy_dim_const(g, 0);
  for (uint32_t i = 0; i < n->nin; i++)
    end = cy_dim_add(g, end, cy_lower_type(b->l, n->in[i])->dim[axis]);
  for (int i = (int)n->nin - 1; i >= 0; i--) {
    cy_dim extent = cy_lower_type(b->l, n->in[i])->dim[axis];
    if (cy_dim_is(g, extent, 0))
      continue;
    cy_dim start = cy_dim_sub(g, end, extent);
    cy_expr local = cy_x_bin(b->k, CY_OP_sub, idx[axis], cy_x_dim(b->k, start));
    in_idx[axis] = cy_lower_clamp(b, local, extent);
    cy_expr here = cy_lower_at(b, n->in[i], in_idx);
    cy_expr before_end = cy_x_bin(b->k, CY_OP_lt, idx[axis], cy_x_dim(b->k, end));
    value = value ? cy_x_select(b->k, before_end, here, value) : here;
    end = start;
  }
  return value;
}

/* Does `a op b` hold wherever it is asked? */
static bool certain(cy_kernel *k, cy_op op, cy_expr a, cy_expr b) {
  const cy_expr_info *x = cy_expr_of(k, cy_x_bin(k, op, a, b));
  return x->op == CY_X_CONST && x->c.i;
}

/* Source index of padded index i (relative to the unpadded begin) along an axis of size d; *out_inside: constant
 * padding reads x. */
static cy_expr pad_index(cy_kb *b, int64_t mode, cy_expr i, cy_dim d) {
  cy_kernel *k = b->k;
  cy_graph *g = b->l->g;
  cy_expr last = cy_x_dim(k, cy_dim_addi(g, d, -1)), none = cy_x_index(k, 0), size = cy_x_dim(k, d);
  cy_expr below = cy_x_bin(k, CY_OP_sub, none, i), twice = cy_x_bin(k, CY_OP_add, last, last);
  if (certain(k, CY_OP_ge, i, none) && certain(k, CY_OP_lt, i, size))
    return i;
  switch (mode) {
  case CY_PAD_REFLECT: { /* near the border without a division; */
    if (certain(k, CY_OP_le, i, none) && certain(k, CY_OP_le, below, last))
      return below;
    if (certain(k, CY_OP_ge, i, last) && certain(k, CY_OP_le, i, twice))
      return cy_x_bin(k, CY_OP_sub, twice, i);
    /* triangle wave of period 2 * (d - 1); at least 1 so that d = 1 is no division by zero */
    cy_expr period = cy_x_dim(k, cy_dim_max(g, cy_dim_addi(g, cy_dim_muli(g, d, 2), -2), cy_dim_const(g, 1)));
    cy_expr within = cy_x_bin(k, CY_OP_mod, i, period);
    return cy_x_bin(k, CY_OP_min, cy_x_bin(k, CY_OP_min, within, cy_x_bin(k, CY_OP_sub, period, within)), last);
  }
  case CY_PAD_WRAP:
    if (certain(k, CY_OP_lt, i, none) && certain(k, CY_OP_le, below, size))
      return cy_x_bin(k, CY_OP_add, i, size);
    if (certain(k, CY_OP_ge, i, size) && certain(k, CY_OP_lt, cy_x_bin(k, CY_OP_sub, i, size), size))
      return cy_x_bin(k, CY_OP_sub, i, size);
    return cy_x_bin(k, CY_OP_mod, i, size);
  default:
    return cy_lower_clamp(b, i, d);
  }
}

static cy_expr lower_pad(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  const cy_node_info *n = node_of(b, node);
  const cy_type *in = cy_lower_type(b->l, n->in[0]);
  const cy_attr *pads = cy_attr_find(n, CY_ATTR_pads);
  int64_t mode = cy_attr_get_int(n, CY_ATTR_mode, CY_PAD_CONSTANT);
  cy_expr in_idx[CY_MAX_RANK], inside = 0;
  bool some = true; /* elements, so that what is read instead of the padding is there */
  for (int i = 0; i < in->rank; i++) {
    int64_t min, max;
    cy_dim_range(b->l->g, in->dim[i], &min, &max);
    some &= min > 0;
    cy_dim begin = pads->dims[i], end = pads->dims[in->rank + i];
    in_idx[i] = cy_x_bin(b->k, CY_OP_sub, idx[i], cy_x_dim(b->k, begin));
    if (cy_dim_is(b->l->g, begin, 0) && cy_dim_is(b->l->g, end, 0))
      continue;
    cy_expr ok = cy_lower_in_range(b, in_idx[i], in->dim[i]);
    inside = inside ? cy_x_bin(b->k, CY_OP_and, inside, ok) : ok;
    in_idx[i] = pad_index(b, mode, in_idx[i], in->dim[i]);
  }
  cy_expr value = cy_lower_at(b, n->in[0], in_idx);
  if (mode != CY_PAD_CONSTANT || !inside)
    return value;
  cy_expr none[1] = {cy_x_index(b->k, 0)};
  cy_dtype compute = cy_compute_dtype((cy_dtype)in->dtype);
  cy_expr fill = n->nin > 1 && n->in[1]       ? cy_lower_at(b, n->in[1], none)
                 : cy_dtype_is_float(compute) ? cy_x_const(b->k, compute, 0)
                                              : cy_x_int(b->k, compute, 0);
  return (some ? cy_x_select_either : cy_x_select)(b->k, inside, value, fill);
}

static cy_expr lower_iota(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  const cy_node_info *n = node_of(b, node);
  cy_dtype out = (cy_dtype)cy_lower_type(b->l, n->out[0])->dtype;
  return cy_x_cast(b->k, idx[cy_attr_get_int(n, CY_ATTR_axis, 0)], cy_compute_dtype(out));
}

static cy_expr lower_dims(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  const cy_node_info *n = node_of(b, node);
  const cy_attr *elems = cy_attr_find(n, CY_ATTR_elems);
  const cy_type *t = cy_lower_type(b->l, n->out[0]);
  cy_expr linear = linear_index(b, t, 0, t->rank, idx), value = cy_x_index(b->k, 0);
  for (uint32_t i = elems->n; i-- > 0;) {
    cy_expr here = cy_x_dim(b->k, elems->dims[i]);
    cy_expr is = cy_x_bin(b->k, CY_OP_eq, linear, cy_x_index(b->k, i));
    value = i + 1 == elems->n ? here : cy_x_select(b->k, is, here, value);
  }
  return cy_x_cast(b->k, value, cy_compute_dtype((cy_dtype)t->dtype));
}

cy_expr_fn cy_lower_expr_of(cy_op op) {
  static const cy_expr_fn table[CY_OP_COUNT] = {
      [CY_OP_cast] = lower_cast,
      [CY_OP_bitcast] = lower_bitcast,
      [CY_OP_reshape] = lower_reshape,
      [CY_OP_transpose] = lower_transpose,
      [CY_OP_expand] = lower_expand,
      [CY_OP_slice] = lower_slice,
      [CY_OP_pad] = lower_pad,
      [CY_OP_concat] = lower_concat,
      [CY_OP_identity] = lower_identity,
      [CY_OP_iota] = lower_iota,
      [CY_OP_dims] = lower_dims,
      [CY_OP_gather] = cy_lower_gather,
      [CY_OP_gather_elements] = cy_lower_gather_elements,
      [CY_OP_gather_nd] = cy_lower_gather_nd,
      [CY_OP_resize] = cy_lower_resize,
      [CY_OP_grid_sample] = cy_lower_grid_sample,
      [CY_OP_quantize] = cy_lower_quantize,
      [CY_OP_dequantize] = cy_lower_dequantize,
      [CY_OP_reduce_sum] = cy_lower_reduce,
      [CY_OP_reduce_prod] = cy_lower_reduce,
      [CY_OP_reduce_min] = cy_lower_reduce,
      [CY_OP_reduce_max] = cy_lower_reduce,
      [CY_OP_argmin] = cy_lower_arg_reduce,
      [CY_OP_argmax] = cy_lower_arg_reduce,
      [CY_OP_pool_max] = cy_lower_pool,
      [CY_OP_pool_avg] = cy_lower_pool,
      [CY_OP_matmul] = cy_lower_matmul_naive,
      [CY_OP_conv] = cy_lower_conv_naive,
      [CY_OP_conv_transpose] = cy_lower_conv_transpose_naive,
  };
  return table[op] ? table[op] : cy_op_is_ew(op) ? lower_elementwise : NULL;
}
