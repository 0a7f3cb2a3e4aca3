/* SPDX-License-Identifier: Apache-2.0 */
/* simplify.c - local algebra on element-wise ops. Views have their rules in simplify_view.c, scatters in
 * simplify_scatter.c, transposed convolutions in simplify_shuffle.c, spelled-out dequantisation in weights_spelled.c; all
 * sets run together.
 *
 * In:  a swept graph. Out: the same results within rounding, fewer or cheaper ops, canonical spelling: constants
 * second, x - c as x + -c, squares as products, no cast that another makes superfluous. What is not done, on purpose: x
 * - x and x * 0 of floats (NaN, inf), x / c as x * (1 / c) unless c is a power of two (rounding), anything that
 * reorders sums of different operands.
 */
#include "simplify.h"
#include "pass_int.h"

#include <math.h>
#include <string.h>

static cy_dtype dtype_of(const cy_rewrite *rw, cy_val v) { return (cy_dtype)cy_type_of(rw->g, v)->dtype; }
static bool is_float(const cy_rewrite *rw, cy_val v) { return cy_dtype_is_float(dtype_of(rw, v)); }
static bool is_int(const cy_rewrite *rw, cy_val v) { return cy_dtype_is_int(dtype_of(rw, v)); }
static bool is_const(const cy_rewrite *rw, cy_val v) { return cy_value_is_const(rw->g, v); }

/* A constant with one value for all elements, and exactly representable as a double (i64 and u64 stay out). */
static bool splat(cy_rewrite *rw, cy_val v, double *out) {
  cy_dtype t = dtype_of(rw, v);
  return is_const(rw, v) && (cy_dtype_is_float(t) || cy_dtype_of(t)->bits <= 32) && cy_value_is_splat(rw->g, v, out);
}

/* ---- commutative ops -------------------------------------------------------------------------------------------- */

static cy_val const_second(cy_rewrite *rw, const cy_node_info *n) {
  if (!cy_op_of((cy_op)n->op)->commutative || n->nin != 2 || !is_const(rw, n->in[0]) || is_const(rw, n->in[1]))
    return 0;
  return cy_build_binary(rw->g, (cy_op)n->op, n->in[1], n->in[0]);
}

static cy_val same_operands(cy_rewrite *rw, const cy_node_info *n) {
  (void)rw;
  return n->nin == 2 && n->in[0] == n->in[1] && cy_op_of((cy_op)n->op)->idempotent ? n->in[0] : 0;
}

/* ---- add, sub, mul, div ----------------------------------------------------------------------------------------- */

static cy_val add_zero(cy_rewrite *rw, const cy_node_info *n) { return cy_splat_is(rw->g, n->in[1], 0) ? n->in[0] : 0; }
static cy_val times_one(cy_rewrite *rw, const cy_node_info *n) {
  return cy_splat_is(rw->g, n->in[1], 1) ? n->in[0] : 0;
}

static cy_val times_minus_one(cy_rewrite *rw, const cy_node_info *n) {
  bool is_signed = cy_dtype_of(dtype_of(rw, n->in[0]))->cls != 'U';
  return is_signed && cy_splat_is(rw->g, n->in[1], -1) ? cy_build_unary(rw->g, CY_OP_neg, n->in[0]) : 0;
}

static cy_val int_times_zero(cy_rewrite *rw, const cy_node_info *n) {
  return is_int(rw, n->in[0]) && cy_splat_is(rw->g, n->in[1], 0) ? n->in[1] : 0;
}

static cy_val sub_const(cy_rewrite *rw, const cy_node_info *n) {
  if (!is_const(rw, n->in[1]) || is_const(rw, n->in[0]))
    return 0;
  cy_val c = cy_build_unary(rw->g, CY_OP_neg, n->in[1]);
  return cy_build_binary(rw->g, CY_OP_add, n->in[0], c);
}

static cy_val sub_from_zero(cy_rewrite *rw, const cy_node_info *n) {
  return cy_splat_is(rw->g, n->in[0], 0) ? cy_build_unary(rw->g, CY_OP_neg, n->in[1]) : 0;
}

/* x + -y = x - y */
static cy_val add_neg(cy_rewrite *rw, const cy_node_info *n) {
  for (int k = 0; k < 2; k++) {
    const cy_node_info *d = cy_def_of(rw->g, n->in[k], CY_OP_neg);
    if (d && !is_const(rw, d->in[0]) && !is_const(rw, n->in[1 - k]))
      return cy_build_binary(rw->g, CY_OP_sub, n->in[1 - k], d->in[0]);
  }
  return 0;
}

static cy_val sub_neg(cy_rewrite *rw, const cy_node_info *n) {
  const cy_node_info *d = cy_def_of(rw->g, n->in[1], CY_OP_neg);
  return d ? cy_build_binary(rw->g, CY_OP_add, n->in[0], d->in[0]) : 0;
}

/* (x + c) + d, (x * c) * d with scalars: one constant. Products that leave the normal range stay apart. */
static cy_val merge_scalars(cy_rewrite *rw, const cy_node_info *n) {
  const cy_node_info *d = cy_def_of(rw->g, n->in[0], (cy_op)n->op);
  double a, b;
  if (!d || !splat(rw, n->in[1], &b) || !splat(rw, d->in[1], &a))
    return 0;
  if (is_float(rw, n->in[0]) && n->op == CY_OP_mul) {
    double limit = dtype_of(rw, n->in[0]) == CY_F16 ? 1e-4 : 1e-30, p = fabs(a * b);
    if (!(p > limit && p < 1 / limit && fabs(a) > limit && fabs(a) < 1 / limit))
      return 0;
  } else if (is_float(rw, n->in[0]) && (a < 0) != (b < 0)) {
    return 0; /* (x + big) - big is a way to round */
  }
  cy_val c = cy_build_binary(rw->g, (cy_op)n->op, d->in[1], n->in[1]);
  return is_const(rw, c) ? cy_build_binary(rw->g, (cy_op)n->op, d->in[0], c) : 0;
}

static cy_val div_one(cy_rewrite *rw, const cy_node_info *n) { return times_one(rw, n); }

static bool power_of_two(double v) {
  int e;
  return isfinite(v) && fabs(frexp(v, &e)) == 0.5 && e > -12 && e < 14; /* exact in f16, too */
}

static cy_val div_power(cy_rewrite *rw, const cy_node_info *n) {
  cy_val c = n->in[1];
  uint32_t count;
  if (!is_float(rw, c) || !is_const(rw, c) || is_const(rw, n->in[0]) ||
      cy_type_count(rw->g, cy_type_of(rw->g, c)) > 4096)
    return 0;
  const double *v = cy_value_floats(rw->g, c, &count);
  for (uint32_t i = 0; v && i < count; i++)
    if (!power_of_two(v[i]))
      return 0;
  if (!v || !count)
    return 0;
  cy_val inverse = cy_build_binary(rw->g, CY_OP_div, cy_build_like(rw->g, c, 1), c);
  return cy_build_binary(rw->g, CY_OP_mul, n->in[0], inverse);
}

/* ---- unary ------------------------------------------------------------------------------------------------------ */

/* f(f(x)) = x */
static cy_val involution(cy_rewrite *rw, const cy_node_info *n) {
  const cy_node_info *d = cy_def_of(rw->g, n->in[0], (cy_op)n->op);
  return d ? d->in[0] : 0;
}

/* f(f(x)) = f(x) */
static cy_val projection(cy_rewrite *rw, const cy_node_info *n) {
  return cy_def_of(rw->g, n->in[0], (cy_op)n->op) ? n->in[0] : 0;
}

static cy_val abs_neg(cy_rewrite *rw, const cy_node_info *n) {
  const cy_node_info *d = cy_def_of(rw->g, n->in[0], CY_OP_neg);
  return d ? cy_build_unary(rw->g, CY_OP_abs, d->in[0]) : 0;
}

/* |x| * |x| = x * x */
static cy_val square_of_abs(cy_rewrite *rw, const cy_node_info *n) {
  const cy_node_info *a = n->in[0] == n->in[1] ? cy_def_of(rw->g, n->in[0], CY_OP_abs) : NULL;
  return a ? cy_build_binary(rw->g, CY_OP_mul, a->in[0], a->in[0]) : 0;
}

/* 1 / (1 + exp(-x)) */
static cy_val spelled_sigmoid(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_node_info *sum = cy_def_of(g, n->in[1], CY_OP_add);
  if (!sum || !is_float(rw, n->in[1]) || !cy_splat_is(g, n->in[0], 1) || !cy_splat_is(g, sum->in[1], 1))
    return 0;
  const cy_node_info *e = cy_def_of(g, sum->in[0], CY_OP_exp), *minus = e ? cy_def_of(g, e->in[0], CY_OP_neg) : NULL;
  return minus ? cy_build_unary(g, CY_OP_sigmoid, minus->in[0]) : 0;
}

/* 1 + erf(x) = erfc(-x), which is right where the sum has no digits left: gelu of numbers far below 0. gelu by itself then
 * takes 1.6 times as long, and so it is for those who ask for accuracy. The constant that gelu multiplies or divides x by
 * takes the sign. */
static cy_val one_and_erf(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_node_info *erf = cy_def_of(g, n->in[0], CY_OP_erf);
  if (!rw->pass->options->strict_fp || !erf || !cy_splat_is(g, n->in[1], 1) || !cy_rewrite_single_use(rw, n->in[0]) ||
      !cy_same_shape(cy_type_of(g, n->in[0]), cy_type_of(g, n->out[0])))
    return 0;
  cy_val x = erf->in[0], minus = 0;
  const cy_node_info *by = cy_def(g, x);
  double c;
  if (by && (by->op == CY_OP_mul || by->op == CY_OP_div) && is_const(rw, by->in[1]) &&
      cy_value_is_splat(g, by->in[1], &c) && isnormal(c) && cy_same_shape(cy_type_of(g, by->in[0]), cy_type_of(g, x)))
    minus = cy_build_binary(g, CY_OP_mul, by->in[0], cy_build_like(g, x, by->op == CY_OP_mul ? -c : -1 / c));
  return cy_build_unary(g, CY_OP_erfc, minus ? minus : cy_build_unary(g, CY_OP_neg, x));
}

/* ---- pow -------------------------------------------------------------------------------------------------------- */

/* x ^ 0.5: sqrt(x), but for -inf and -0, which what something positive was added to, as normalisations do, cannot be. */
static cy_val root_of(cy_graph *g, cy_val x) {
  const cy_node_info *sum = cy_def_of(g, x, CY_OP_add);
  double c;
  cy_val root = cy_build_unary(g, CY_OP_sqrt, x);
  if (sum && cy_value_is_splat(g, sum->in[1], &c) && c > 0 && cy_never_negative(g, sum->in[0]))
    return root;
  cy_val low = cy_build_binary(g, CY_OP_eq, x, cy_build_like(g, x, -INFINITY));
  return cy_build_select(g, low, cy_build_like(g, x, INFINITY), cy_build_unary(g, CY_OP_abs, root));
}

static cy_val pow_const(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  cy_val x = n->in[0];
  double e;
  if (is_const(rw, x) || !is_const(rw, n->in[1]) || !cy_value_is_splat(g, n->in[1], &e))
    return 0;
  if (e == 1)
    return x;
  if (e == 2)
    return cy_build_binary(g, CY_OP_mul, x, x);
  if (e == 3)
    return cy_build_binary(g, CY_OP_mul, cy_build_binary(g, CY_OP_mul, x, x), x);
  if (!is_float(rw, x))
    return 0;
  if (e == 0.5)
    return root_of(g, x);
  if (e == -1)
    return cy_build_binary(g, CY_OP_div, cy_build_like(g, x, 1), x);
  if (e == -0.5)
    return cy_build_binary(g, CY_OP_div, cy_build_like(g, x, 1), root_of(g, x));
  return 0;
}

/* ---- select, logic ---------------------------------------------------------------------------------------------- */

static cy_val select_known(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  if (n->in[1] == n->in[2])
    return n->in[1];
  double c;
  if (is_const(rw, n->in[0]) && cy_value_is_splat(g, n->in[0], &c))
    return n->in[c != 0 ? 1 : 2];
  const cy_node_info *d = cy_def_of(g, n->in[0], CY_OP_not);
  return d ? cy_build_select(g, d->in[0], n->in[2], n->in[1]) : 0;
}

static bool is_bool(cy_rewrite *rw, cy_val v) { return dtype_of(rw, v) == CY_BOOL; }

/* Also of a true of symbolic size, as ones_like makes it. */
static cy_val and_const(cy_rewrite *rw, const cy_node_info *n) {
  if (!is_bool(rw, n->in[0]))
    return 0;
  const cy_type *t = cy_type_of(rw->g, n->out[0]);
  for (int k = 0; k < 2; k++) {
    const cy_node_info *wide = cy_def_of(rw->g, n->in[k], CY_OP_expand);
    if (wide && cy_splat_is(rw->g, wide->in[0], 1))
      return cy_build_expand(rw->g, n->in[1 - k], t->dim, t->rank);
  }
  return cy_splat_is(rw->g, n->in[1], 1) ? n->in[0] : cy_splat_is(rw->g, n->in[1], 0) ? n->in[1] : 0;
}

static cy_val or_const(cy_rewrite *rw, const cy_node_info *n) {
  if (!is_bool(rw, n->in[0]))
    return 0;
  return cy_splat_is(rw->g, n->in[1], 0) ? n->in[0] : cy_splat_is(rw->g, n->in[1], 1) ? n->in[1] : 0;
}

/* The negation of a comparison of integers; of floats NaN forbids it but for eq and ne. */
static cy_val not_compare(cy_rewrite *rw, const cy_node_info *n) {
  static const uint16_t pairs[][2] = {{CY_OP_eq, CY_OP_ne}, {CY_OP_ne, CY_OP_eq}, {CY_OP_lt, CY_OP_ge},
                                      {CY_OP_ge, CY_OP_lt}, {CY_OP_gt, CY_OP_le}, {CY_OP_le, CY_OP_gt}};
  const cy_node_info *d = cy_def(rw->g, n->in[0]);
  for (size_t i = 0; d && i < sizeof pairs / sizeof pairs[0]; i++)
    if (d->op == pairs[i][0] && (i < 2 || is_int(rw, d->in[0])) && cy_rewrite_single_use(rw, n->in[0]))
      return cy_build_binary(rw->g, (cy_op)pairs[i][1], d->in[0], d->in[1]);
  return 0;
}

/* ---- casts ------------------------------------------------------------------------------------------------------ */

static cy_val cast_chain(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  cy_dtype to = dtype_of(rw, n->out[0]);
  if (dtype_of(rw, n->in[0]) == to)
    return n->in[0];
  const cy_node_info *d = cy_def_of(g, n->in[0], CY_OP_cast);
  if (!d || !cy_cast_lossless(dtype_of(rw, d->in[0]), dtype_of(rw, n->in[0])))
    return 0;
  if (to == dtype_of(rw, d->in[0]))
    return d->in[0];
  return n->nattrs ? 0 : cy_build_cast(g, d->in[0], to); /* float8's saturate belongs to its own source */
}

/* ---- min, max --------------------------------------------------------------------------------------------------- */

/* Is every number of the type at least c (max), or at most? Of floats NaN aside, which both operations hand on. */
static bool type_implies(cy_dtype t, double c, bool max) {
  double low = -INFINITY, high = INFINITY;
  if (cy_dtype_is_int(t))
    cy_dtype_int_range(t, &low, &high);
  return max ? c <= low : c >= high;
}

/* max(max(x, c), d), max(min(max(x, a), b), c) with a >= c: bounds that can't act any more, or merge. */
static cy_val bounds(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  double c, b, a;
  bool max = n->op == CY_OP_max;
  if (!splat(rw, n->in[1], &c))
    return 0;
  if (type_implies(dtype_of(rw, n->in[0]), c, max))
    return n->in[0];
  const cy_node_info *d = cy_def_of(g, n->in[0], (cy_op)n->op);
  if (d && splat(rw, d->in[1], &a)) {
    if (max ? a >= c : a <= c)
      return n->in[0];
    return cy_build_binary(g, (cy_op)n->op, d->in[0], n->in[1]);
  }
  d = cy_def_of(g, n->in[0], max ? CY_OP_min : CY_OP_max);
  const cy_node_info *e = d ? cy_def_of(g, d->in[0], (cy_op)n->op) : NULL;
  if (e && splat(rw, d->in[1], &b) && splat(rw, e->in[1], &a) && (max ? a >= c && b >= c : a <= c && b <= c))
    return n->in[0];
  return 0;
}

/* max(x, 0): relu of something that can't be negative */
static cy_val relu_of_positive(cy_rewrite *rw, const cy_node_info *n) {
  return cy_splat_is(rw->g, n->in[1], 0) && cy_never_negative(rw->g, n->in[0]) ? n->in[0] : 0;
}

/* ---- expand in front of an op that broadcasts anyway ------------------------------------------------------------ */

/* True when output axes lose nothing if input k of n had shape t (ranks aligned at the end). */
static bool others_cover(const cy_graph *g, const cy_node_info *n, uint32_t k, const cy_type *t) {
  const cy_type *out = cy_type_of(g, n->out[0]);
  for (int i = 1; i <= out->rank; i++) {
    cy_dim want = out->dim[out->rank - i];
    bool have = i <= t->rank && t->dim[t->rank - i] == want;
    for (uint32_t j = 0; !have && j < n->nin; j++) {
      const cy_type *u = cy_type_of(g, n->in[j]);
      have = j != k && i <= u->rank && u->dim[u->rank - i] == want;
    }
    if (!have && !cy_dim_is(g, want, 1))
      return false;
  }
  return true;
}

static cy_val drop_expand(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  for (uint32_t k = 0; n->nin > 1 && k < n->nin; k++) {
    const cy_node_info *d = cy_def_of(g, n->in[k], CY_OP_expand);
    if (!d || !others_cover(g, n, k, cy_type_of(g, d->in[0])))
      continue;
    cy_val in[3];
    memcpy(in, n->in, n->nin * sizeof *in);
    in[k] = d->in[0];
    return cy_build(g, (cy_op)n->op, in, n->nin, n->attrs, n->nattrs, NULL, 0);
  }
  return 0;
}

/* ---- pooling ---------------------------------------------------------------------------------------------------- */

/* The maximum, or average, over a large window: along the last axis first, then along the others. 5x5: 10 comparisons
 * instead of 25. Which elements of a window lie inside is the same along an axis wherever it is along the others, so
 * averages divide by the right counts; what lies between is not rounded to less than f32. */
static cy_val pool_by_axes(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  cy_val x = n->in[0];
  cy_type half = *cy_type_of(g, x), to = *cy_type_of(g, n->out[0]);
  uint32_t rank, npads;
  const int64_t *kernel = cy_attr_list(n, CY_ATTR_kernel, &rank), *stride = cy_attr_list(n, CY_ATTR_strides, &rank),
                *dilation = cy_attr_list(n, CY_ATTR_dilations, &rank);
  const int64_t *pads = cy_attr_list(n, CY_ATTR_pads, &npads);
  int64_t last = (int64_t)rank - 1, others = 1, skipped = 1;
  for (int64_t i = 0; i < last; i++) {
    others *= kernel[i];
    skipped *= stride[i]; /* rows that the first step computes for each row of the result */
  }
  bool average = n->op == CY_OP_pool_avg;
  if (average && to.dtype != CY_F32 && to.dtype != CY_F64)
    return 0;
  bool indices = n->nout > 1 && (n->out[1] > rw->nvalues || rw->uses.start[n->out[1]] != rw->uses.start[n->out[1] + 1]);
  int64_t apart = kernel[last] * skipped + others + 3, together = kernel[last] * others;
  if (indices || !pads || others == 1 || (average ? apart * 3 >= together * 2 : apart >= together))
    return 0; /* averages divide twice then, and what lies inside is asked twice */
  half.dim[last + 2] = to.dim[last + 2];
  for (int step = 0; step < 2; step++) {
    int64_t list[3][CY_MAX_RANK];
    int64_t pad[2 * CY_MAX_RANK];
    for (int64_t i = 0; i <= last; i++) {
      bool now = (i == last) == (step == 0);
      list[0][i] = now ? kernel[i] : 1;
      list[1][i] = now ? stride[i] : 1;
      list[2][i] = now ? dilation[i] : 1;
      pad[i] = now ? pads[i] : 0;
      pad[i + last + 1] = now ? pads[i + last + 1] : 0;
    }
    cy_attr a[5] = {cy_attr_ints(CY_ATTR_kernel, list[0], rank), cy_attr_ints(CY_ATTR_strides, list[1], rank),
                    cy_attr_ints(CY_ATTR_pads, pad, npads), cy_attr_ints(CY_ATTR_dilations, list[2], rank),
                    average ? cy_attr_int(CY_ATTR_count_include_pad, cy_attr_get_int(n, CY_ATTR_count_include_pad, 0))
                            : cy_attr_int(CY_ATTR_storage_order, 0)};
    x = cy_build(g, (cy_op)n->op, &x, 1, a, 5, step ? &to : &half, 1);
  }
  return x;
}

/* ---- the set ---------------------------------------------------------------------------------------------------- */

static const cy_rule rules[] = {
    {CY_RULE_ANY_EW, "constant second", const_second},
    {CY_RULE_ANY_EW, "x op x", same_operands},
    {CY_RULE_ANY_EW, "expand dropped", drop_expand},
    {CY_OP_add, "x+0", add_zero},
    {CY_OP_add, "(x+c)+d", merge_scalars},
    {CY_OP_add, "x+-y", add_neg},
    {CY_OP_add, "1+erf", one_and_erf},
    {CY_OP_sub, "x-0", add_zero},
    {CY_OP_sub, "x-c", sub_const},
    {CY_OP_sub, "0-x", sub_from_zero},
    {CY_OP_sub, "x--y", sub_neg},
    {CY_OP_mul, "x*1", times_one},
    {CY_OP_mul, "x*-1", times_minus_one},
    {CY_OP_mul, "integer x*0", int_times_zero},
    {CY_OP_mul, "(x*c)*d", merge_scalars},
    {CY_OP_mul, "square of abs", square_of_abs},
    {CY_OP_div, "x/1", div_one},
    {CY_OP_div, "x/2^k", div_power},
    {CY_OP_div, "sigmoid", spelled_sigmoid},
    {CY_OP_neg, "--x", involution},
    {CY_OP_not, "not not x", involution},
    {CY_OP_not, "not compare", not_compare},
    {CY_OP_abs, "abs abs x", projection},
    {CY_OP_abs, "abs -x", abs_neg},
    {CY_OP_floor, "floor floor x", projection},
    {CY_OP_ceil, "ceil ceil x", projection},
    {CY_OP_round, "round round x", projection},
    {CY_OP_trunc, "trunc trunc x", projection},
    {CY_OP_pow, "pow", pow_const},
    {CY_OP_select, "select", select_known},
    {CY_OP_and, "and constant", and_const},
    {CY_OP_or, "or constant", or_const},
    {CY_OP_cast, "casts", cast_chain},
    {CY_OP_min, "bounds", bounds},
    {CY_OP_max, "bounds", bounds},
    {CY_OP_max, "relu of positive", relu_of_positive},
    {CY_OP_pool_max, "pool by axes", pool_by_axes},
    {CY_OP_pool_avg, "pool by axes", pool_by_axes},
};

/* requires: swept   establishes: swept   breaks: unique, folded, placed, fused */
int cy_pass_simplify(cy_pass *p) {
  const cy_rule_set sets[] = {{rules, sizeof rules / sizeof rules[0]},
                              cy_simplify_view_rules(),
                              cy_simplify_scatter_rules(),
                              cy_simplify_rows_rules(),
                              cy_simplify_shuffle_rules(),
                              cy_weights_spelled_rules()};
  cy_rewrite_run(p, sets, sizeof sets / sizeof sets[0]);
  return 0;
}
