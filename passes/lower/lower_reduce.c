/* SPDX-License-Identifier: Apache-2.0 */
/* lower_reduce.c - one output element as a sum (maximum, ..) over others: reductions, pooling, and plain loops of
 * products and convolutions, which are the eager level's kernels and the fallback where a target has no generator.
 *
 * These functions emit loops around accumulators at the kernel's insertion point and return the local that holds the
 * result.
 */
#include "lower_int.h"

static const cy_node_info *node_of(cy_kb *b, cy_node n) { return cy_node_of(b->l->g, n); }
#define bin(b, op, x, y) cy_x_bin((b)->k, op, x, y)

static cy_expr neutral(cy_kb *b, cy_op op, cy_dtype dtype) {
  cy_scalar s = cy_scalar_neutral(op, dtype);
  return cy_dtype_is_float(dtype) ? cy_x_const(b->k, dtype, s.f) : cy_x_int(b->k, dtype, s.i);
}

static cy_local accumulator(cy_kb *b, cy_op op, cy_dtype dtype) {
  cy_local l = cy_kernel_add_local(b->k, dtype);
  cy_kernel_set(b->k, l, neutral(b, op, dtype));
  return l;
}

static cy_op reduce_op(cy_op op, cy_dtype dtype) {
  cy_op by = cy_op_combines_by(op);
  if (dtype == CY_BOOL && (by == CY_OP_min || by == CY_OP_max))
    return by == CY_OP_min ? CY_OP_and : CY_OP_or;
  return by;
}

cy_expr cy_lower_reduce(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  const cy_node_info *n = node_of(b, node);
  const cy_type *in = cy_lower_type(b->l, n->in[0]);
  const cy_attr *axes = cy_attr_find(n, CY_ATTR_axes);
  bool keep = cy_attr_get_int(n, CY_ATTR_keepdims, 0) != 0, reduced[CY_MAX_RANK] = {false};
  for (uint32_t i = 0; i < axes->n; i++)
    reduced[axes->ints[i]] = true;
  cy_dtype dtype = cy_compute_dtype((cy_dtype)in->dtype);
  cy_op op = reduce_op((cy_op)n->op, dtype);
  cy_local acc = accumulator(b, op, dtype);
  cy_expr in_idx[CY_MAX_RANK];
  int loops = 0;
  for (int i = 0, o = 0; i < in->rank; i++)
    if (!reduced[i])
      in_idx[i] = idx[o++];
    else
      o += keep;
  const uint8_t *layout = cy_value_of(b->l->g, n->in[0])->layout; /* loops as memory has them may become one */
  for (int i = 0; i < in->rank; i++)
    if (reduced[layout[i]]) {
      in_idx[layout[i]] = cy_kb_loop(b, in->dim[layout[i]], false);
      loops++;
    }
  cy_kernel_accum(b->k, acc, op, cy_lower_at(b, n->in[0], in_idx));
  while (loops--)
    cy_kernel_end(b->k);
  return cy_x_local(b->k, acc);
}

/* ---- rows whose length only the run tells ---- */

enum { MIN_ROW = 1 << 17, PART = 1 << 12 }; /* elements, as in long_sums.c */

typedef struct parted {
  cy_lowering *l;
  const cy_node_info *n;
  const cy_type *in;
  bool reduced[CY_MAX_RANK], keep;
  int axis;           /* is cut: */
  cy_dim whole, rest; /* parts of PART elements, and what is behind them, perhaps nothing */
  cy_dtype dtype;
  cy_op op;
  cy_place sums; /* [results.., parts] */
} parted;

/* Is there an axis to cut, and may there be few results of many elements? *out_when: not 0 where that is so. */
static bool split_reduction(parted *p, cy_dim *out_when) {
  cy_graph *g = p->l->g;
  const cy_attr *axes = cy_attr_find(p->n, CY_ATTR_axes);
  int64_t enough = p->l->busy_parts / 2, lower, upper;
  cy_dim length = cy_dim_const(g, 1), results = length;
  p->axis = -1;
  for (uint32_t i = 0; i < axes->n; i++)
    p->reduced[axes->ints[i]] = true;
  for (int i = 0; i < p->in->rank; i++) {
    cy_dim *of = p->reduced[i] ? &length : &results;
    *of = cy_dim_mul(g, *of, p->in->dim[i]);
    if (p->reduced[i] && !cy_dim_is_const(g, p->in->dim[i], NULL))
      p->axis = i;
  }
  if (p->axis < 0)
    return false;
  cy_dim_range(g, length, &lower, &upper);
  if (upper < MIN_ROW)
    return false;
  cy_dim_range(g, results, &lower, &upper);
  if (lower > enough)
    return false;
  cy_dim few = cy_dim_max(g, cy_dim_sub(g, cy_dim_const(g, enough + 1), results), cy_dim_const(g, 0));
  *out_when = cy_dim_mul(g, cy_dim_div(g, length, cy_dim_const(g, MIN_ROW)), few);
  return true;
}

/* Of `count` parts from `first` on, of `each` elements. */
static void reduce_parts(const parted *p, cy_dim first, cy_dim count, cy_dim each) {
  cy_kb b;
  cy_expr idx[CY_MAX_RANK], at[CY_MAX_RANK + 1];
  int rank = 0, loops = 0;
  cy_kb_init(&b, p->l, cy_op_of((cy_op)p->n->op)->name);
  for (int i = 0; i < p->in->rank; i++)
    if (!p->reduced[i])
      at[rank++] = idx[i] = cy_kb_grid_index(&b, p->in->dim[i]);
  at[rank] = bin(&b, CY_OP_add, cy_kb_grid_index(&b, count), cy_x_dim(b.k, first));
  cy_local acc = accumulator(&b, p->op, p->dtype);
  for (int i = 0; i < p->in->rank; i++) {
    if (!p->reduced[i])
      continue;
    idx[i] = cy_kb_loop(&b, i == p->axis ? each : p->in->dim[i], false);
    loops++;
    if (i == p->axis)
      idx[i] = bin(&b, CY_OP_add, bin(&b, CY_OP_mul, at[rank], cy_x_index(b.k, PART)), idx[i]);
  }
  cy_kernel_accum(b.k, acc, p->op, cy_lower_at(&b, p->n->in[0], idx));
  while (loops--)
    cy_kernel_end(b.k);
  cy_kb_store(&b, &p->sums, p->dtype, rank + 1, at, cy_x_local(b.k, acc));
  cy_kb_launch(&b, true);
}

static void join_parts(const parted *p, cy_dim parts, cy_val root_value, cy_val target) {
  const cy_type *t = cy_lower_type(p->l, target);
  cy_kb b;
  cy_expr idx[CY_MAX_RANK], at[CY_MAX_RANK + 1];
  int rank = 0;
  cy_kb_init(&b, p->l, cy_op_of((cy_op)p->n->op)->name);
  for (int i = 0; i < t->rank; i++)
    idx[i] = cy_kb_grid_index(&b, t->dim[i]);
  for (int i = 0, o = 0; i < p->in->rank; i++) {
    if (!p->reduced[i])
      at[rank++] = idx[o];
    o += !p->reduced[i] || p->keep;
  }
  cy_local acc = accumulator(&b, p->op, p->dtype);
  at[rank] = cy_kb_loop(&b, parts, false);
  cy_kernel_accum(b.k, acc, p->op, cy_kb_load(&b, &p->sums, p->dtype, rank + 1, at));
  cy_kernel_end(b.k);
  cy_lower_finish(&b, target, root_value, idx, cy_x_local(b.k, acc));
  cy_kb_launch(&b, true);
}

bool cy_lower_parted_reduce(cy_lowering *l, cy_node root, cy_val root_value, cy_val target) {
  cy_graph *g = l->g;
  const cy_node_info *n = cy_node_of(g, root);
  if (!l->busy_parts || n->op < CY_OP_reduce_sum || n->op > CY_OP_reduce_max)
    return false;
  parted p = {.l = l, .n = n, .in = cy_lower_type(l, n->in[0]), .keep = cy_attr_get_int(n, CY_ATTR_keepdims, 0) != 0};
  cy_dim when, dims[CY_MAX_RANK + 1], one = cy_dim_const(g, 1), each = cy_dim_const(g, PART);
  if (!split_reduction(&p, &when))
    return false;
  p.dtype = cy_compute_dtype((cy_dtype)p.in->dtype);
  p.op = reduce_op((cy_op)n->op, p.dtype);
  p.whole = cy_dim_div(g, p.in->dim[p.axis], each);
  p.rest = cy_dim_mod(g, p.in->dim[p.axis], each);
  cy_branch parts;
  cy_lower_branch(l, when, &parts);
  int rank = 0;
  for (int i = 0; i < p.in->rank; i++)
    if (!p.reduced[i])
      dims[rank++] = p.in->dim[i];
  dims[rank] = cy_dim_add(g, p.whole, one);
  p.sums = cy_lower_temp(l, p.dtype, dims, rank + 1);
  reduce_parts(&p, cy_dim_const(g, 0), p.whole, each);
  reduce_parts(&p, p.whole, one, p.rest);
  join_parts(&p, dims[rank], root_value, target);
  cy_lower_otherwise(l, &parts);
  cy_lower_plain(l, root_value, target, cy_op_of((cy_op)n->op)->name, NULL);
  cy_lower_join(l, &parts);
  return true;
}

enum { MIN_VECTOR = 8 };

/* Do the elements that an argmax along `axis` compares lie side by side, and are they enough for vectors? */
static bool lies_in_row(cy_kb *b, const cy_node_info *n, int axis) {
  int64_t length;
  const cy_place *p = &b->l->place[n->in[0]];
  bool few = cy_dim_is_const(b->l->g, cy_lower_type(b->l, n->in[0])->dim[axis], &length) && length < MIN_VECTOR;
  return b->l->o->level > 0 && p->placed && cy_dim_is(b->l->g, p->stride[axis], 1) && !few;
}

/* What comparing begins with: element 0 along the axis, which in_idx names, or 0 where there is none. */
static cy_expr first_or_zero(cy_kb *b, cy_val x, cy_dim extent, const cy_expr *in_idx) {
  int64_t lower, upper;
  cy_expr first = cy_lower_at(b, x, in_idx);
  cy_dim_range(b->l->g, extent, &lower, &upper);
  if (lower > 0)
    return first;
  cy_dtype dtype = (cy_dtype)cy_expr_of(b->k, first)->dtype;
  cy_expr some = bin(b, CY_OP_gt, cy_x_dim(b->k, extent), cy_x_index(b->k, 0));
  cy_expr zero = cy_dtype_is_float(dtype) ? cy_x_const(b->k, dtype, 0) : cy_x_int(b->k, dtype, 0);
  return cy_x_select(b->k, some, first, zero);
}

/* The greatest (least) element of a row, then where it is first (last): both by vectors. As when one looks at them in
 * order, NaN beats nothing, and nothing beats a NaN that comes first. */
static cy_expr arg_of_row(cy_kb *b, const cy_node_info *n, int axis, bool last, cy_expr *in_idx) {
  cy_kernel *k = b->k;
  cy_dim extent = cy_lower_type(b->l, n->in[0])->dim[axis];
  cy_expr first = first_or_zero(b, n->in[0], extent, in_idx);
  cy_dtype dtype = (cy_dtype)cy_expr_of(k, first)->dtype;
  cy_op best_op = n->op == CY_OP_argmax ? CY_OP_max : CY_OP_min, at_op = last ? CY_OP_max : CY_OP_min;
  int64_t length;
  cy_dtype position = cy_dim_is_const(b->l->g, extent, &length) && length <= INT32_MAX ? CY_I32 : CY_I64;
  cy_local best = accumulator(b, best_op, dtype), at = accumulator(b, at_op, position);
  in_idx[axis] = cy_kb_loop(b, extent, true);
  cy_expr v = cy_lower_at(b, n->in[0], in_idx);
  if (cy_dtype_is_float(dtype))
    v = cy_x_select(k, cy_x_un(k, CY_OP_isnan, v), neutral(b, best_op, dtype), v);
  cy_kernel_accum(k, best, best_op, v);
  cy_kernel_end(k);
  in_idx[axis] = cy_kb_loop(b, extent, true);
  cy_expr hit = bin(b, CY_OP_eq, cy_lower_at(b, n->in[0], in_idx), cy_x_local(k, best));
  cy_expr here = cy_x_cast(k, in_idx[axis], position);
  cy_kernel_accum(k, at, at_op, cy_x_select(k, hit, here, neutral(b, at_op, position)));
  cy_kernel_end(k);
  cy_expr result = cy_x_cast(k, cy_x_local(k, at), CY_I64);
  if (!cy_dtype_is_float(dtype))
    return result;
  return cy_x_select(k, cy_x_un(k, CY_OP_isnan, first), cy_x_index(k, 0), result);
}

cy_expr cy_lower_arg_reduce(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  const cy_node_info *n = node_of(b, node);
  cy_kernel *k = b->k;
  const cy_type *in = cy_lower_type(b->l, n->in[0]);
  int axis = (int)cy_attr_get_int(n, CY_ATTR_axis, 0);
  bool keep = cy_attr_get_int(n, CY_ATTR_keepdims, 1) != 0, last = cy_attr_get_int(n, CY_ATTR_select_last, 0) != 0;
  cy_dtype dtype = cy_compute_dtype((cy_dtype)in->dtype);
  bool max = n->op == CY_OP_argmax;
  cy_expr in_idx[CY_MAX_RANK];
  for (int i = 0; i < in->rank; i++)
    in_idx[i] = i == axis ? cy_x_index(k, 0) : idx[i < axis || keep ? i : i - 1];
  if (lies_in_row(b, n, axis))
    return arg_of_row(b, n, axis, last, in_idx);
  cy_local best = cy_kernel_add_local(k, dtype), at = cy_kernel_add_local(k, CY_I64);
  cy_kernel_set(k, best, first_or_zero(b, n->in[0], in->dim[axis], in_idx));
  cy_kernel_set(k, at, cy_x_index(k, 0));
  in_idx[axis] = cy_kb_loop(b, in->dim[axis], false);
  cy_expr v = cy_lower_at(b, n->in[0], in_idx), held = cy_x_local(k, best);
  cy_op beats = max ? (last ? CY_OP_ge : CY_OP_gt) : (last ? CY_OP_le : CY_OP_lt);
  cy_local better = cy_kernel_add_local(k, CY_BOOL);
  cy_kernel_set(k, better, bin(b, beats, v, held));
  cy_kernel_set(k, at, cy_x_select(k, cy_x_local(k, better), in_idx[axis], cy_x_local(k, at)));
  cy_kernel_set(k, best, cy_x_select(k, cy_x_local(k, better), v, held));
  cy_kernel_end(k);
  return cy_x_local(k, at);
}

/* ---- pooling ---- */

typedef struct window { /* the spatial attributes of pooling and convolution */
  int spatial;
  const int64_t *kernel, *strides, *dilations, *pads; /* pads: begins, ends */
} window;

static window window_of(const cy_node_info *n, int spatial) {
  const cy_attr *kernel = cy_attr_find(n, CY_ATTR_kernel), *strides = cy_attr_find(n, CY_ATTR_strides);
  const cy_attr *dilations = cy_attr_find(n, CY_ATTR_dilations), *pads = cy_attr_find(n, CY_ATTR_pads);
  return (window){spatial, kernel ? kernel->ints : NULL, strides->ints, dilations ? dilations->ints : NULL, pads->ints};
}

static int64_t dilation_of(const window *w, int i) { return w->dilations ? w->dilations[i] : 1; }

/* o * stride + k * dilation - pad */
static cy_expr window_index(cy_kb *b, const window *w, int i, cy_expr o, cy_expr k) {
  cy_expr at = bin(b, CY_OP_add, bin(b, CY_OP_mul, o, cy_x_index(b->k, w->strides[i])),
                   bin(b, CY_OP_mul, k, cy_x_index(b->k, dilation_of(w, i))));
  return bin(b, CY_OP_sub, at, cy_x_index(b->k, w->pads[i]));
}

/* Can position `at` fall outside of [0, extent)? Not where nothing is padded and no window overhangs. */
static bool needs_check(cy_kb *b, const window *w, int i, cy_dim in, cy_dim out, int64_t kernel) {
  cy_graph *g = b->l->g;
  cy_dim last =
      cy_dim_addi(g, cy_dim_muli(g, cy_dim_addi(g, out, -1), w->strides[i]), (kernel - 1) * dilation_of(w, i));
  return w->pads[i] != 0 || !cy_dim_le(g, last, cy_dim_addi(g, in, -1));
}

/* May taps outside of the input be taken from its border when looking for the greatest? Where each window reaches that
 * border, as it has these elements already. Not along neighbours in memory, which are then read one by one. */
static bool takes_border(cy_kb *b, const cy_node_info *n, const window *w, int i, cy_dim in, cy_dim out) {
  cy_graph *g = b->l->g;
  int64_t lower, upper;
  const cy_place *from = &b->l->place[n->in[0]];
  int64_t behind = w->pads[w->spatial + i];
  cy_dim_range(g, in, &lower, &upper);
  cy_dim last = cy_dim_addi(g, cy_dim_muli(g, cy_dim_addi(g, out, -1), w->strides[i]), -w->pads[i]);
  /* there is a border to take, unless the input is empty: it may be where padding alone holds no window */
  bool none = w->pads[i] + behind < w->kernel[i] &&
              cy_dim_le(g, cy_dim_addi(g, last, w->kernel[i]), cy_dim_addi(g, in, behind));
  return n->op == CY_OP_pool_max && (lower >= 1 || none) && from->placed && !cy_dim_is(g, from->stride[2 + i], 1) &&
         dilation_of(w, i) == 1 && w->pads[i] < w->kernel[i] && cy_dim_le(g, last, cy_dim_addi(g, in, -1));
}

/* How many taps of the window at output o lie in [-low, extent + high). */
static cy_expr tap_count(cy_kb *b, const window *w, int i, cy_expr o, cy_dim low, cy_dim limit) {
  cy_kernel *k = b->k;
  cy_expr start = window_index(b, w, i, o, cy_x_index(k, 0)), d = cy_x_index(k, dilation_of(w, i));
  cy_expr up = cy_x_index(k, dilation_of(w, i) - 1), zero = cy_x_index(k, 0);
  cy_expr below = bin(b, CY_OP_max, bin(b, CY_OP_sub, cy_x_dim(k, low), start), zero);
  cy_expr first = bin(b, CY_OP_div, bin(b, CY_OP_add, below, up), d);
  cy_expr room = bin(b, CY_OP_max, bin(b, CY_OP_sub, cy_x_dim(k, limit), start), zero);
  cy_expr end = bin(b, CY_OP_min, cy_x_index(k, w->kernel[i]), bin(b, CY_OP_div, bin(b, CY_OP_add, room, up), d));
  return bin(b, CY_OP_max, bin(b, CY_OP_sub, end, first), zero);
}

static cy_expr average_divisor(cy_kb *b, const cy_node_info *n, const window *w, const cy_type *in, const cy_type *out,
                               const cy_expr *idx) {
  bool include = cy_attr_get_int(n, CY_ATTR_count_include_pad, 0) != 0;
  cy_graph *g = b->l->g;
  cy_expr count = cy_x_index(b->k, 1);
  for (int i = 0; i < w->spatial; i++) {
    cy_dim size = in->dim[2 + i];
    if (!needs_check(b, w, i, size, out->dim[2 + i], w->kernel[i])) {
      count = bin(b, CY_OP_mul, count, cy_x_index(b->k, w->kernel[i]));
      continue;
    }
    cy_dim low = cy_dim_const(g, include ? -w->pads[i] : 0);
    cy_dim limit = cy_dim_addi(g, size, include ? w->pads[w->spatial + i] : 0);
    count = bin(b, CY_OP_mul, count, tap_count(b, w, i, idx[2 + i], low, limit));
  }
  return count;
}

/* The flat position that MaxPool's second output counts: over the whole tensor; storage_order 1 numbers the spatial
 * axes column-major. */
static cy_expr flat_position(cy_kb *b, const cy_node_info *n, const cy_type *in, const cy_expr *in_idx) {
  cy_kernel *k = b->k;
  bool column = cy_attr_get_int(n, CY_ATTR_storage_order, 0) != 0;
  cy_expr at = bin(b, CY_OP_add, bin(b, CY_OP_mul, in_idx[0], cy_x_dim(k, in->dim[1])), in_idx[1]);
  cy_expr inner = cy_x_index(k, 0), size = cy_x_index(k, 1);
  for (int j = 0; j < in->rank - 2; j++) {
    int i = column ? in->rank - 1 - j : 2 + j;
    inner = bin(b, CY_OP_add, bin(b, CY_OP_mul, inner, cy_x_dim(k, in->dim[i])), in_idx[i]);
    size = bin(b, CY_OP_mul, size, cy_x_dim(k, in->dim[i]));
  }
  return bin(b, CY_OP_add, bin(b, CY_OP_mul, at, size), inner);
}

typedef struct pool {
  const cy_node_info *n;
  const cy_type *in, *out;
  window w;
  cy_op op;
  cy_dtype dtype;
  cy_local acc, at; /* at: position of the greatest, 0: not asked for */
  const cy_expr *idx;
} pool;

static void pool_tap(cy_kb *b, const pool *p, const cy_expr *in_idx, cy_expr inside) {
  cy_kernel *k = b->k;
  cy_expr v = cy_lower_at(b, p->n->in[0], in_idx);
  if (inside)
    v = cy_x_select(k, inside, v, neutral(b, p->op, p->dtype));
  if (!p->at) {
    cy_kernel_accum(k, p->acc, p->op, v);
    return;
  }
  /* The first NaN is above all. */
  cy_expr held = cy_x_local(k, p->acc), beats = bin(b, CY_OP_gt, v, held);
  if (cy_dtype_is_float(p->dtype))
    beats = bin(b, CY_OP_and, cy_x_un(k, CY_OP_not, bin(b, CY_OP_le, v, held)), bin(b, CY_OP_eq, held, held));
  cy_local better = cy_kernel_add_local(k, CY_BOOL);
  cy_kernel_set(k, better, beats);
  cy_expr here = flat_position(b, p->n, p->in, in_idx);
  /* The first tap of all counts even if it is as small as numbers get. */
  cy_expr first = bin(b, CY_OP_lt, cy_x_local(k, p->at), cy_x_index(k, 0));
  first = inside ? bin(b, CY_OP_and, first, inside) : first;
  cy_expr taken = bin(b, CY_OP_or, cy_x_local(k, better), first);
  cy_kernel_set(k, p->at, cy_x_select(k, taken, here, cy_x_local(k, p->at)));
  cy_kernel_set(k, p->acc, cy_x_select(k, cy_x_local(k, better), v, held));
}

static void pool_taps(cy_kb *b, const pool *p, int i, cy_expr *in_idx, cy_expr inside);

/* The taps of axes i.. with `tap` along axis i; none where it certainly lies outside. */
static void pool_at(cy_kb *b, const pool *p, int i, cy_expr tap, cy_expr *in_idx, cy_expr inside) {
  cy_dim in = p->in->dim[2 + i], out = p->out->dim[2 + i];
  cy_expr at = window_index(b, &p->w, i, p->idx[2 + i], tap);
  in_idx[2 + i] = at;
  if (needs_check(b, &p->w, i, in, out, p->w.kernel[i])) {
    cy_expr ok = cy_lower_in_range(b, at, in);
    const cy_expr_info *x = cy_expr_of(b->k, ok);
    if (x->op == CY_X_CONST && !x->c.i)
      return;
    in_idx[2 + i] = cy_lower_clamp(b, at, in);
    if (p->at || !takes_border(b, p->n, &p->w, i, in, out))
      inside = inside ? bin(b, CY_OP_and, inside, ok) : ok;
  }
  pool_taps(b, p, i + 1, in_idx, inside);
}

/* Of a window that always lies at the same place, whose borders are known now. */
static bool lies_fixed(cy_kb *b, const pool *p, int i) {
  int op = cy_expr_of(b->k, p->idx[2 + i])->op;
  return p->w.kernel[i] <= 7 && (op == CY_X_CONST || op == CY_X_DIM) && !cy_dim_is(b->l->g, p->out->dim[2 + i], 1);
}

static void pool_taps(cy_kb *b, const pool *p, int i, cy_expr *in_idx, cy_expr inside) {
  if (i == p->w.spatial) {
    pool_tap(b, p, in_idx, inside);
  } else if (lies_fixed(b, p, i)) {
    for (int64_t tap = 0; tap < p->w.kernel[i]; tap++)
      pool_at(b, p, i, cy_x_index(b->k, tap), in_idx, inside);
  } else {
    pool_at(b, p, i, cy_kb_loop(b, cy_dim_const(b->l->g, p->w.kernel[i]), false), in_idx, inside);
    cy_kernel_end(b->k);
  }
}

cy_expr cy_lower_pool(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  const cy_node_info *n = node_of(b, node);
  cy_kernel *k = b->k;
  const cy_type *in = cy_lower_type(b->l, n->in[0]);
  bool max = n->op == CY_OP_pool_max;
  pool p = {.n = n,
            .in = in,
            .out = cy_lower_type(b->l, n->out[0]),
            .w = window_of(n, in->rank - 2),
            .op = max ? CY_OP_max : CY_OP_add,
            .dtype = cy_compute_dtype((cy_dtype)in->dtype),
            .idx = idx};
  p.acc = accumulator(b, p.op, p.dtype);
  if (output == 1) {
    p.at = cy_kernel_add_local(k, CY_I64);
    cy_kernel_set(k, p.at, cy_x_index(k, -1));
  }
  cy_expr in_idx[CY_MAX_RANK] = {idx[0], idx[1]};
  pool_taps(b, &p, 0, in_idx, 0);
  if (p.at)
    return bin(b, CY_OP_max, cy_x_local(k, p.at), cy_x_index(k, 0));
  if (max)
    return cy_x_local(k, p.acc);
  cy_expr count = average_divisor(b, n, &p.w, in, p.out, idx);
  return bin(b, CY_OP_div, cy_x_local(k, p.acc), cy_x_cast(k, count, p.dtype));
}

/* ---- plain products and convolutions ---- */

static cy_expr product_accum(cy_kb *b, cy_local acc, cy_dtype dtype, cy_expr x, cy_expr y, int loops) {
  cy_kernel_accum(b->k, acc, CY_OP_add, bin(b, CY_OP_mul, cy_x_cast(b->k, x, dtype), cy_x_cast(b->k, y, dtype)));
  while (loops--)
    cy_kernel_end(b->k);
  return cy_x_local(b->k, acc);
}

/* Operand k of a product in the accumulator's dtype, less its zero point; column: the output's last index, or channel. */
static cy_expr product_operand(cy_kb *b, const cy_node_info *n, uint32_t k, cy_expr value, cy_dtype dtype,
                               cy_expr column) {
  value = cy_x_cast(b->k, value, dtype);
  cy_val zero = k + 2 < n->nin ? n->in[k + 2] : 0;
  if (!zero)
    return value;
  const cy_type *t = cy_lower_type(b->l, zero);
  cy_expr at = t->rank && !cy_dim_is(b->l->g, t->dim[0], 1) ? column : cy_x_index(b->k, 0);
  return bin(b, CY_OP_sub, value, cy_x_cast(b->k, cy_lower_at(b, zero, &at), dtype));
}

cy_expr cy_lower_matmul_naive(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  const cy_node_info *n = node_of(b, node);
  const cy_type *ta = cy_lower_type(b->l, n->in[0]), *tb = cy_lower_type(b->l, n->in[1]),
                *out = cy_lower_type(b->l, n->out[0]);
  cy_dtype dtype = cy_compute_dtype((cy_dtype)out->dtype);
  cy_local acc = accumulator(b, CY_OP_add, dtype);
  cy_expr k = cy_kb_loop(b, ta->dim[ta->rank - 1], false), a_idx[CY_MAX_RANK], b_idx[CY_MAX_RANK];
  for (int side = 0; side < 2; side++) {
    cy_type batches = side ? *tb : *ta, all = *out;
    batches.rank -= 2;
    all.rank -= 2;
    cy_lower_broadcast(b, &batches, &all, idx, side ? b_idx : a_idx);
  }
  a_idx[ta->rank - 2] = idx[out->rank - 2];
  a_idx[ta->rank - 1] = b_idx[tb->rank - 2] = k;
  b_idx[tb->rank - 1] = idx[out->rank - 1];
  cy_expr x = product_operand(b, n, 0, cy_lower_at(b, n->in[0], a_idx), dtype, 0);
  cy_expr y = product_operand(b, n, 1, cy_lower_at(b, n->in[1], b_idx), dtype, b_idx[tb->rank - 1]);
  return product_accum(b, acc, dtype, x, y, 1);
}

/* Where conv n computes what its output has at idx: another place and channel, if it shuffles these. places: its output,
 * as it would be without. */
static void gather_places(cy_kb *b, const cy_node_info *n, cy_type *places, const cy_expr *idx, cy_expr *out_idx) {
  const cy_attr *shuffle = cy_attr_find(n, CY_ATTR_shuffle);
  cy_expr part = 0;
  for (int i = 0; i < places->rank; i++)
    out_idx[i] = idx[i];
  for (uint32_t i = 0; shuffle && i < shuffle->n; i++) {
    cy_expr positions = cy_x_index(b->k, shuffle->ints[i]), at = bin(b, CY_OP_mod, idx[2 + i], positions);
    part = part ? bin(b, CY_OP_add, bin(b, CY_OP_mul, part, positions), at) : at;
    out_idx[2 + i] = bin(b, CY_OP_div, idx[2 + i], positions);
    places->dim[2 + i] = cy_dim_div(b->l->g, places->dim[2 + i], cy_dim_const(b->l->g, shuffle->ints[i]));
  }
  if (shuffle)
    out_idx[1] = bin(b, CY_OP_add, bin(b, CY_OP_mul, part, cy_x_dim(b->k, places->dim[1])), idx[1]);
}

cy_expr cy_lower_conv_naive(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  const cy_node_info *n = node_of(b, node);
  cy_graph *g = b->l->g;
  const cy_type *x = cy_lower_type(b->l, n->in[0]), *w = cy_lower_type(b->l, n->in[1]),
                *out = cy_lower_type(b->l, n->out[0]);
  window win = window_of(n, x->rank - 2);
  int64_t group = cy_attr_get_int(n, CY_ATTR_group, 1), kernel = 1;
  cy_dtype dtype = cy_compute_dtype((cy_dtype)out->dtype);
  cy_local acc = accumulator(b, CY_OP_add, dtype);
  cy_type places = *out;
  cy_expr at[CY_MAX_RANK];
  gather_places(b, n, &places, idx, at);
  cy_expr x_idx[CY_MAX_RANK] = {idx[0]}, w_idx[CY_MAX_RANK] = {at[1]}, inside = 0;
  cy_expr c = cy_kb_loop(b, w->dim[1], false);
  w_idx[1] = x_idx[1] = c;
  if (group > 1) {
    cy_expr member = bin(b, CY_OP_div, idx[1], cy_x_dim(b->k, cy_dim_div(g, w->dim[0], cy_dim_const(g, group))));
    x_idx[1] = bin(b, CY_OP_add, bin(b, CY_OP_mul, member, cy_x_dim(b->k, w->dim[1])), c);
  }
  for (int i = 0; i < win.spatial; i++) {
    w_idx[2 + i] = cy_kb_loop(b, w->dim[2 + i], false);
    x_idx[2 + i] = window_index(b, &win, i, at[2 + i], w_idx[2 + i]);
    if (!cy_dim_is_const(g, w->dim[2 + i], &kernel))
      kernel = INT32_MAX;
    if (b->padded) { /* the caller has written a padded copy */
      x_idx[2 + i] = bin(b, CY_OP_add, x_idx[2 + i], cy_x_index(b->k, win.pads[i]));
    } else if (needs_check(b, &win, i, x->dim[2 + i], places.dim[2 + i], kernel)) {
      cy_expr ok = cy_lower_in_range(b, x_idx[2 + i], x->dim[2 + i]);
      inside = inside ? bin(b, CY_OP_and, inside, ok) : ok;
      x_idx[2 + i] = cy_lower_clamp(b, x_idx[2 + i], x->dim[2 + i]);
    }
  }
  cy_expr xv =
      b->padded ? cy_kb_load(b, b->padded, (cy_dtype)x->dtype, x->rank, x_idx) : cy_lower_at(b, n->in[0], x_idx);
  xv = product_operand(b, n, 0, xv, dtype, 0);
  if (inside)
    xv = cy_x_select(b->k, inside, xv, neutral(b, CY_OP_add, dtype));
  cy_expr wv = product_operand(b, n, 1, cy_lower_at(b, n->in[1], w_idx), dtype, at[1]);
  return product_accum(b, acc, dtype, xv, wv, 1 + win.spatial);
}

/* Gathers: output o takes input i by tap k where i * stride = o + pad - k * dilation. */
cy_expr cy_lower_conv_transpose_naive(cy_kb *b, cy_node node, uint32_t output, const cy_expr *idx) {
  (void)output;
  const cy_node_info *n = node_of(b, node);
  cy_graph *g = b->l->g;
  cy_kernel *k = b->k;
  const cy_type *x = cy_lower_type(b->l, n->in[0]), *w = cy_lower_type(b->l, n->in[1]),
                *out = cy_lower_type(b->l, n->out[0]);
  window win = window_of(n, x->rank - 2);
  int64_t group = cy_attr_get_int(n, CY_ATTR_group, 1);
  cy_dtype dtype = cy_compute_dtype((cy_dtype)out->dtype);
  cy_local acc = accumulator(b, CY_OP_add, dtype);
  cy_dim per_group = cy_dim_div(g, x->dim[1], cy_dim_const(g, group));
  cy_expr x_idx[CY_MAX_RANK] = {idx[0]}, w_idx[CY_MAX_RANK], inside = 0;
  cy_expr c = cy_kb_loop(b, per_group, false), o = idx[1];
  x_idx[1] = c;
  if (group > 1) {
    cy_expr member = bin(b, CY_OP_div, idx[1], cy_x_dim(k, w->dim[1]));
    x_idx[1] = bin(b, CY_OP_add, bin(b, CY_OP_mul, member, cy_x_dim(k, per_group)), c);
    o = bin(b, CY_OP_mod, idx[1], cy_x_dim(k, w->dim[1]));
  }
  w_idx[0] = x_idx[1];
  w_idx[1] = o;
  for (int i = 0; i < win.spatial; i++) {
    w_idx[2 + i] = cy_kb_loop(b, w->dim[2 + i], false);
    cy_expr tap = bin(b, CY_OP_mul, w_idx[2 + i], cy_x_index(k, dilation_of(&win, i)));
    cy_expr at = bin(b, CY_OP_sub, bin(b, CY_OP_add, idx[2 + i], cy_x_index(k, win.pads[i])), tap);
    cy_expr stride = cy_x_index(k, win.strides[i]);
    cy_expr hit = bin(b, CY_OP_eq, bin(b, CY_OP_mod, at, stride), cy_x_index(k, 0));
    at = bin(b, CY_OP_div, at, stride);
    cy_expr ok = bin(b, CY_OP_and, hit, cy_lower_in_range(b, at, x->dim[2 + i]));
    inside = inside ? bin(b, CY_OP_and, inside, ok) : ok;
    x_idx[2 + i] = cy_lower_clamp(b, at, x->dim[2 + i]);
  }
  cy_expr xv = cy_x_cast(k, cy_lower_at(b, n->in[0], x_idx), dtype);
  if (inside)
    xv = cy_x_select(k, inside, xv, neutral(b, CY_OP_add, dtype));
  return product_accum(b, acc, dtype, xv, cy_lower_at(b, n->in[1], w_idx), 1 + win.spatial);
}
