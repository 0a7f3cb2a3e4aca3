/* SPDX-License-Identifier: Apache-2.0 */
/* long_sums.c - sums of long rows in two steps: parts of the rows first, then their results; positions of extrema as
 * maxima.
 *
 * In:  a swept graph. Out: two kernels in place of one, the first with a task for every part,
 *   - for images, on all targets: along all spatial axes but the first one, then along that. Where channels are
 *     innermost, a sum of f32 had as many terms one after the other as there are positions, and all channels were one
 * task;
 *   - for other rows where a reduction along neighbouring axes leaves fewer results than cy_target_caps.busy_parts.
 * The parts and their order are the graph's: results do not depend on timing.
 *
 * Where results are few or rows lie together, argmax and argmin become a maximum first: of 64-bit keys that are in the
 * order of the elements, and among equal ones in that of the positions wanted; or, of 64-bit elements, the extremum and
 * then the position of what equals it. A search takes one element after the other, a maximum has no order.
 *
 * Refused: rows that one task sums in little more time than it takes to launch another kernel; and, except in images,
 * rows whose length is not known or has no fitting divisor.
 */
#include "pass_int.h"

enum {
  MIN_IMAGE = 1 << 14,
  MIN_BUSY_IMAGE = 1 << 13, /* .. where there are busy_parts */
  MIN_ROW = 1 << 17,
  MIN_PART = 1 << 12,
  MAX_PARTS = 1024,
  MIN_PARTS = 8,
  WIDE = 8,
  MAX_RANK = 3
};

/* Neighbouring axes [*first, *behind) of a reduction whose extents' product is *length; false: they are not. */
static bool axes_of(cy_graph *g, const cy_node_info *n, int *first, int *behind, int64_t *length) {
  const cy_type *t = cy_type_of(g, n->in[0]);
  const cy_attr *axes = cy_attr_find(n, CY_ATTR_axes);
  bool reduced[CY_MAX_RANK] = {0};
  int64_t extent;
  for (uint32_t i = 0; axes && i < axes->n; i++)
    reduced[axes->ints[i]] = true;
  for (*first = 0; *first < t->rank && !reduced[*first];)
    ++*first;
  *length = 1;
  for (*behind = *first; *behind < t->rank && reduced[*behind]; ++*behind) {
    if (!cy_dim_is_const(g, t->dim[*behind], &extent) || extent < 1 || extent > INT64_MAX / *length)
      return false;
    *length *= extent;
  }
  for (int i = *behind; i < t->rank; i++)
    if (reduced[i])
      return false;
  return *behind > *first;
}

/* How a row is cut: the outer axes whole, of axis `at` the outer `parts` (a divisor of its extent). */
typedef struct row_parts {
  int at;
  int64_t parts, extent;
} row_parts;

/* As many parts as are useful; false: too few. What is read at once should not be cut. */
static bool find_split(cy_graph *g, const cy_type *t, int first, int behind, int64_t length, row_parts *out) {
  int64_t max = length / MIN_PART < MAX_PARTS ? length / MIN_PART : MAX_PARTS, outer = 1;
  *out = (row_parts){.at = first, .parts = 1};
  while (cy_dim_is_const(g, t->dim[out->at], &out->extent) && outer * out->extent <= max) {
    outer *= out->extent;
    out->at++;
  }
  for (int wide = out->at == behind - 1 ? WIDE : 1; wide > 0 && out->parts == 1; wide -= WIDE - 1)
    for (out->parts = max / outer; out->parts > 1 && out->extent % (out->parts * wide);)
      out->parts--;
  return outer * out->parts >= MIN_PARTS;
}

static uint32_t span(int64_t *axes, int from, int to) {
  uint32_t n = 0;
  for (int i = from; i < to; i++)
    axes[n++] = i;
  return n;
}

/* Tasks that are wanted at work. */
static int64_t busy_parts(const cy_rewrite *rw) {
  const cy_pass_options *o = rw->pass->options;
  return o->few_runs ? 0 : cy_caps_of(o->caps)->busy_parts;
}

/* Of [n, c, d, h, w]: [n, c, d] first. */
static cy_val image_in_two_steps(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_type x = *cy_type_of(g, n->in[0]);
  const cy_attr *reduced = cy_attr_find(n, CY_ATTR_axes);
  int64_t axes[CY_MAX_RANK], length = 0, extent = 0;
  int64_t min = busy_parts(rw) ? MIN_BUSY_IMAGE : MIN_IMAGE;
  int first = x.rank - (reduced ? (int)reduced->n : 0);
  cy_dim count = cy_dim_const(g, 1);
  for (int i = first; i < x.rank; i++) {
    if (!reduced || reduced->ints[i - first] != i)
      return 0;
    count = cy_dim_mul(g, count, x.dim[i]);
  }
  if (x.rank - first < 2 || (cy_dim_is_const(g, count, &length) && length < min) ||
      (cy_dim_is_const(g, x.dim[first], &extent) && extent < MIN_PARTS))
    return 0;
  bool keep = cy_type_of(g, n->out[0])->rank == x.rank;
  uint32_t naxes = span(axes, first + 1, x.rank);
  cy_val v = cy_build_reduce(g, (cy_op)n->op, n->in[0], axes, naxes, keep);
  naxes = span(axes, first, first + 1);
  return cy_build_reduce(g, (cy_op)n->op, v, axes, naxes, keep);
}

static cy_val in_two_steps(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_type x = *cy_type_of(g, n->in[0]), out = *cy_type_of(g, n->out[0]);
  cy_op op = (cy_op)n->op;
  cy_dim dims[CY_MAX_RANK + 1], count = cy_dim_const(g, 1);
  int64_t length, results, axes[CY_MAX_RANK + 1];
  int first, behind, rank = 0;
  row_parts c;
  if (x.rank > MAX_RANK)
    return image_in_two_steps(rw, n);
  for (int i = 0; i < out.rank; i++)
    count = cy_dim_mul(g, count, out.dim[i]);
  if (!busy_parts(rw) || !axes_of(g, n, &first, &behind, &length) || length < MIN_ROW ||
      (cy_dim_is_const(g, count, &results) && results * 2 > busy_parts(rw)) ||
      !find_split(g, &x, first, behind, length, &c))
    return 0;
  for (int i = 0; i < x.rank; i++) {
    if (i == c.at)
      dims[rank++] = cy_dim_const(g, c.parts);
    dims[rank++] = i == c.at ? cy_dim_const(g, c.extent / c.parts) : x.dim[i];
  }
  cy_val v = cy_build_reshape(g, n->in[0], dims, rank);
  uint32_t naxes = span(axes, c.at + 1, behind + 1);
  v = cy_build_reduce(g, op, v, axes, naxes, false);
  naxes = span(axes, first, c.at + 1);
  return cy_build_reshape(g, cy_build_reduce(g, op, v, axes, naxes, false), out.dim, out.rank);
}

/* ---- positions ---- */

enum {
  MIN_SEARCH = 32,        /* elements of a row that lies together, */
  APART_SEARCH = 256,     /* .. of one that does not; */
  APART_RESULTS = 1 << 14 /* more of these have tasks enough */
};

static cy_val scalar_like(cy_graph *g, cy_val x, uint64_t v) {
  return cy_build_scalar_int(g, (cy_dtype)cy_type_of(g, x)->dtype, (int64_t)v);
}

/* u32 in the order of x, or in the opposite one. NaN is below everything; a sum with 0 makes one zero of both. */
static cy_val in_order(cy_graph *g, cy_val x, bool opposite) {
  cy_dtype t = (cy_dtype)cy_type_of(g, x)->dtype;
  bool real = cy_dtype_is_float(t), has_sign = real || cy_dtype_of(t)->cls == 'I';
  cy_val v = cy_build_cast(g, x, real ? CY_F32 : has_sign ? CY_I32 : CY_U32);
  v = real ? cy_build_bitcast(g, cy_build_binary(g, CY_OP_add, v, cy_build_like(g, v, 0)), CY_I32) : v;
  cy_val key = has_sign ? cy_build_bitcast(g, v, CY_U32) : v, high = scalar_like(g, key, UINT64_C(1) << 31);
  cy_val sign = real ? cy_build_binary(g, CY_OP_shr, v, scalar_like(g, v, 31)) : 0; /* all bits of negative ones */
  if (has_sign)
    key = cy_build_binary(g, CY_OP_xor, key,
                          real ? cy_build_binary(g, CY_OP_or, cy_build_bitcast(g, sign, CY_U32), high) : high);
  key = opposite ? cy_build_unary(g, CY_OP_not, key) : key;
  cy_val min = scalar_like(g, key, 0);
  return real ? cy_build_select(g, cy_build_binary(g, CY_OP_eq, x, x), key, min) : key;
}

/* Is a search along `axis` better a maximum? Positions have 32 bits, beside elements of 64 bits as many. */
static bool is_long_search(cy_graph *g, const cy_type *t, int axis) {
  int64_t length = MIN_SEARCH, extent, results = 1;
  bool together = true, known_length = cy_dim_is_const(g, t->dim[axis], &length);
  int bits = cy_dtype_of((cy_dtype)t->dtype)->bits;
  if (bits <= 32 ? !known_length || length > INT32_MAX : bits > 64)
    return false;
  for (int i = 0; i < t->rank; i++) {
    bool known = cy_dim_is_const(g, t->dim[i], &extent);
    together &= i <= axis || (known && extent == 1);
    if (i != axis && known && results < APART_RESULTS)
      results *= extent;
  }
  return together ? length >= MIN_SEARCH : length >= APART_SEARCH && results < APART_RESULTS;
}

/* The position by a maximum of keys, which have the element above the position. */
static cy_val by_keys(cy_graph *g, cy_val x, cy_val at, int axis, bool min, bool last, bool keep) {
  int64_t axes[1] = {axis};
  cy_val key = cy_build_cast(g, in_order(g, x, min), CY_U64), mask = scalar_like(g, key, UINT32_MAX);
  at = cy_build_cast(g, last ? at : cy_build_unary(g, CY_OP_not, at), CY_U64);
  key = cy_build_binary(g, CY_OP_or, cy_build_binary(g, CY_OP_shl, key, scalar_like(g, key, 32)), at);
  at = cy_build_reduce(g, CY_OP_reduce_max, key, axes, 1, keep);
  return cy_build_binary(g, CY_OP_and, last ? at : cy_build_unary(g, CY_OP_not, at), mask);
}

/* The same of elements that a key has no room for, of i64: the extremum first, then the position of what equals it. */
static cy_val by_value(cy_graph *g, cy_val x, cy_val at, int axis, bool min, bool last, bool keep) {
  int64_t axes[1] = {axis};
  cy_val numbers = x;
  if (cy_dtype_is_float((cy_dtype)cy_type_of(g, x)->dtype)) {
    cy_val worst = cy_build_like(g, x, min ? __builtin_inf() : -__builtin_inf());
    numbers = cy_build_select(g, cy_build_binary(g, CY_OP_eq, x, x), x, worst);
  }
  cy_val best = cy_build_reduce(g, min ? CY_OP_reduce_min : CY_OP_reduce_max, numbers, axes, 1, true);
  cy_val none = scalar_like(g, at, last ? 0 : INT64_MAX);
  at = cy_build_select(g, cy_build_binary(g, CY_OP_eq, x, best), at, none);
  return cy_build_reduce(g, last ? CY_OP_reduce_max : CY_OP_reduce_min, at, axes, 1, keep);
}

/* A row that begins with NaN has its position 0, as where elements are compared with the best one so far. */
static cy_val search(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  cy_val x = n->in[0];
  const cy_type t = *cy_type_of(g, x), out = *cy_type_of(g, n->out[0]);
  int axis = (int)cy_attr_get_int(n, CY_ATTR_axis, 0);
  bool last = cy_attr_get_int(n, CY_ATTR_select_last, 0) != 0, is_wide = cy_dtype_of((cy_dtype)t.dtype)->bits > 32;
  if (!busy_parts(rw) || !is_long_search(g, &t, axis))
    return 0;
  cy_val at = cy_build_iota(g, is_wide ? CY_I64 : CY_U32, t.dim, t.rank, axis);
  at = (is_wide ? by_value : by_keys)(g, x, at, axis, n->op == CY_OP_argmin, last, out.rank == t.rank);
  at = cy_build_cast(g, at, CY_I64);
  if (!cy_dtype_is_float((cy_dtype)t.dtype))
    return at;
  cy_val first = cy_build_slice_axis(g, x, axis, cy_dim_const(g, 0), cy_dim_const(g, 1));
  first = cy_build_reshape(g, first, out.dim, out.rank);
  return cy_build_select(g, cy_build_binary(g, CY_OP_eq, first, first), at, scalar_like(g, at, 0));
}

static const cy_rule rules[] = {
    {CY_OP_argmax, "greatest positions", search},
    {CY_OP_argmin, "least positions", search},
    {CY_OP_reduce_sum, "sums", in_two_steps},
    {CY_OP_reduce_prod, "products", in_two_steps},
    {CY_OP_reduce_min, "least", in_two_steps},
    {CY_OP_reduce_max, "greatest", in_two_steps},
};

/* requires: swept   establishes: swept   breaks: unique, folded, placed, fused */
int cy_pass_long_sums(cy_pass *p) {
  const cy_rule_set set = {rules, sizeof rules / sizeof rules[0]};
  cy_rewrite_run(p, &set, 1);
  return 0;
}
