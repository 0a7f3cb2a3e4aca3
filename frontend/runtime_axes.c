/* SPDX-License-Identifier: Apache-2.0 */
/* runtime_axes.c - axes and shapes known only at run time: a Reduce, Squeeze or Slice whose axes are a graph input.
 *
 * In:  integer lists that are computed when the model runs; only their lengths are known. Out: the sizes that follow from
 * them. They are computed by small integer kernels from the lists and read back as one symbol each (cy_onnx_sizes), so
 * that no formula over the axes reaches the dim arithmetic. A reduction reduces every axis in turn and keeps the
 * result where the mask says so, which costs one pass per axis; exporters write constant axes, so what counts here is
 * that every valid model works. That axes are distinct, as the standard demands, is checked.
 */
#include "frontend/import_int.h"

static cy_dim num(cy_importer *im, int64_t v) { return cy_dim_const(im->g, v); }
static cy_val int_like(cy_importer *im, int64_t v) { return cy_build_scalar_int(im->g, CY_I64, v); }

bool cy_onnx_known(cy_importer *im, const cy_onnx_node *n, uint32_t k) {
  uint32_t count;
  int64_t unused;
  const cy_type *t = n->in[k] ? cy_onnx_type(im, n->in[k]) : NULL;
  if (!t || (t->rank == 1 && cy_dim_is(im->g, t->dim[0], 0)))
    return true;
  const cy_dim *e = cy_value_elems(im->g, n->in[k], &count);
  for (uint32_t i = 0; e && i < count; i++)
    if (!cy_dim_is_const(im->g, e[i], &unused))
      return false;
  return e != NULL;
}

/* Input k as i64[n]; its length. */
static cy_val list(cy_importer *im, const cy_onnx_node *n, uint32_t k, int64_t *out_n) {
  const cy_type *t = cy_onnx_type(im, n->in[k]);
  cy_dim d = t->rank == 1 ? t->dim[0] : num(im, 1);
  if (t->rank > 1 || !cy_dtype_is_int(t->dtype) || !cy_dim_is_const(im->g, d, out_n) || *out_n < 1 ||
      *out_n > CY_MAX_RANK)
    return cy_build_error(im->g, cy_arena_printf(im->arena, "input '%s'", n->proto->input[k]),
                          "expected a list of at most %d integers whose length is known at compile time, found %s",
                          CY_MAX_RANK, cy_type_text(im->g, t));
  return CAST(t->rank ? n->in[k] : cy_build_reshape(im->g, n->in[k], &d, 1), CY_I64);
}

static cy_val sum_rows(cy_importer *im, cy_val x) {
  const int64_t axis = 0;
  return x ? cy_build_reduce(im->g, CY_OP_reduce_sum, x, &axis, 1, false) : 0;
}

/* i64 [n, rank]: 1 where list element n is axis r. */
static cy_val hits(cy_importer *im, cy_val axes, int64_t n, int rank) {
  cy_dim d[2] = {num(im, n), num(im, rank)};
  cy_val axis = BINARY(mod, axes, int_like(im, rank));
  axis = axis ? cy_build_unsqueeze(im->g, axis, 1) : 0;
  return CAST(BINARY(eq, axis, cy_build_iota(im->g, CY_I64, d, 2, 1)), CY_I64);
}

/* The same of axes that the model's caller gives: checked to be axes of `rank`, each named once. */
static cy_val hits_once(cy_importer *im, cy_val axes, int64_t n, int rank) {
  cy_val hit = cy_onnx_check_axes(im, axes, rank) ? hits(im, axes, n, rank) : 0;
  bool once = hit && (n == 1 || cy_onnx_check_below(im, sum_rows(im, hit), 2,
                                                    "node '%s': an axis is named %lld times, less than %lld is right"));
  return once ? hit : 0;
}

static cy_val element(cy_importer *im, cy_val v, int i) {
  cy_val one = cy_build_slice_axis(im->g, v, 0, num(im, i), num(im, 1));
  return one ? cy_build_reshape(im->g, one, NULL, 0) : 0;
}

const cy_dim *cy_onnx_sizes(cy_importer *im, cy_val v) {
  uint32_t count;
  const cy_term *terms;
  const cy_dim *e = v ? cy_value_elems_or_read(im->g, v, &count) : NULL;
  for (uint32_t i = 0; e && i < count; i++) {
    const cy_atom *a = cy_dim_terms(im->g, e[i], &terms) == 1 && terms[0].natoms == 1 && terms[0].coef == 1
                           ? cy_dim_atom(im->g, terms[0].atoms[0])
                           : NULL;
    if (a && a->kind == CY_ATOM_SYM && cy_sym_of(im->g, a->sym)->kind == CY_SYM_DATA)
      cy_sym_of(im->g, a->sym)->min = 0;
  }
  return e;
}

cy_val cy_onnx_axes_mask(cy_importer *im, const cy_onnx_node *n, uint32_t k, bool more, int rank, int *out_n) {
  int64_t count;
  cy_val axes = list(im, n, k, &count);
  if (!axes)
    return 0;
  *out_n = (int)count;
  rank += more ? (int)count : 0;
  if (count > rank || rank > CY_MAX_RANK)
    return cy_build_error(im->g, "axes", "%d axes for a tensor of rank %d", (int)count, rank);
  return sum_rows(im, hits_once(im, axes, count, rank));
}

/* How many zeros stand in front of each element of the mask. */
static cy_val zeros_before(cy_importer *im, cy_val kept) {
  cy_attr a[3] = {cy_attr_int(CY_ATTR_axis, 0), cy_attr_int(CY_ATTR_exclusive, 1), cy_attr_int(CY_ATTR_reverse, 0)};
  return cy_build(im->g, CY_OP_cumsum, &kept, 1, a, 3, NULL, 1);
}

cy_val cy_onnx_drop_axes(cy_importer *im, cy_val x, cy_val mask, const cy_dim *dims, int rank, int left) {
  if (!x || !mask)
    return 0;
  if (left == 0)
    return cy_build_reshape(im->g, x, NULL, 0);
  cy_dim d[2] = {num(im, rank), num(im, left)};
  cy_val kept = SUB(int_like(im, 1), mask), before = zeros_before(im, kept);
  cy_val here = CAST(BINARY(eq, cy_build_unsqueeze(im->g, before, 1), cy_build_iota(im->g, CY_I64, d, 2, 1)), CY_I64);
  cy_val sizes = MUL(kept, cy_build_dims(im->g, dims, (uint32_t)rank));
  const cy_dim *out = cy_onnx_sizes(im, sum_rows(im, MUL(here, cy_build_unsqueeze(im->g, sizes, 1))));
  return out ? cy_build_reshape(im->g, x, out, left) : 0;
}

cy_val cy_onnx_insert_axes(cy_importer *im, cy_val x, cy_val mask, int rank) {
  if (!x || !mask)
    return 0;
  const cy_type t = *cy_onnx_type(im, x);
  if (!t.rank) {
    cy_dim ones[CY_MAX_RANK];
    for (int i = 0; i < rank; i++)
      ones[i] = num(im, 1);
    return cy_build_reshape(im->g, x, ones, rank);
  }
  cy_val from = MIN(zeros_before(im, SUB(int_like(im, 1), mask)), int_like(im, t.rank - 1));
  cy_val old = cy_build_gather(im->g, cy_build_dims(im->g, t.dim, t.rank), from, 0);
  const cy_dim *out = cy_onnx_sizes(im, SELECT(CAST(mask, CY_BOOL), int_like(im, 1), old));
  return out ? cy_build_reshape(im->g, x, out, rank) : 0;
}

cy_val cy_onnx_flag(cy_importer *im, cy_val mask, int i) { return CAST(element(im, mask, i), CY_BOOL); }

/* x with no dimension of 0: an empty one gets one element, which is what reducing nothing gives. */
static cy_val without_empty(cy_importer *im, cy_op op, cy_val x) {
  const cy_type t = *cy_onnx_type(im, x);
  cy_dim pads[2 * CY_MAX_RANK];
  int64_t all[CY_MAX_RANK], low, high;
  bool needed = false;
  for (int i = 0; i < t.rank; i++) {
    cy_dim_range(im->g, t.dim[i], &low, &high);
    needed = needed || low < 1;
    all[i] = i;
    pads[i] = num(im, 0);
    pads[t.rank + i] = cy_dim_max(im->g, num(im, 0), cy_dim_sub(im->g, num(im, 1), t.dim[i]));
  }
  if (!needed)
    return x;
  cy_val nothing = cy_build_reduce(im->g, op, x, all, t.rank, false);
  return nothing ? cy_build_pad(im->g, x, pads, CY_PAD_CONSTANT, nothing) : 0;
}

cy_val cy_onnx_reduce_masked(cy_importer *im, cy_op op, cy_val x, cy_val mask, int naxes, bool keepdims) {
  if (!x || !mask)
    return 0;
  const cy_type t = *cy_onnx_type(im, x);
  cy_dim start[CY_MAX_RANK];
  x = without_empty(im, op, x);
  for (int64_t i = 0; i < t.rank && x; i++) {
    x = SELECT(cy_onnx_flag(im, mask, (int)i), cy_build_reduce(im->g, op, x, &i, 1, true), x);
    start[i] = num(im, 0);
  }
  cy_val all = cy_build_dims(im->g, t.dim, t.rank);
  const cy_dim *size = cy_onnx_sizes(im, SELECT(CAST(mask, CY_BOOL), int_like(im, 1), all));
  x = x && size ? cy_build_slice(im->g, x, start, NULL, size) : 0;
  return keepdims ? x : cy_onnx_drop_axes(im, x, mask, t.dim, t.rank, t.rank - naxes);
}

/* i64[rank]: the list's elements at the axes that they belong to, `otherwise` elsewhere. */
static cy_val spread(cy_importer *im, cy_val v, cy_val hit, cy_val named, cy_val otherwise) {
  return v ? SELECT(named, sum_rows(im, MUL(hit, cy_build_unsqueeze(im->g, v, 1))), otherwise) : otherwise;
}

cy_val cy_onnx_slice_run_time(cy_importer *im, const cy_onnx_node *n) {
  cy_val v[4] = {0}, x = n->in[0];
  const cy_type t = *cy_onnx_type(im, x);
  int64_t count = 0, other;
  for (uint32_t k = 0; k < 4; k++) {
    if (n->in[k + 1] && !(v[k] = list(im, n, k + 1, k ? &other : &count)))
      return 0;
    if (v[k] && k && other != count)
      return cy_build_error(im->g, NULL, "starts, ends, axes and steps must have one element per sliced axis of %s",
                            cy_type_text(im->g, &t));
  }
  cy_dim one = num(im, count);
  if (v[3] && !cy_onnx_check_below(im, SUB(int_like(im, 1), UNARY(abs, v[3])), 1, "node '%s': a step is 0"))
    return 0;
  cy_val hit = v[2] ? hits_once(im, v[2], count, t.rank)
                    : hits(im, cy_build_iota(im->g, CY_I64, &one, 1, 0), count, t.rank);
  if (!hit)
    return 0;
  cy_val zero = int_like(im, 0), unit = int_like(im, 1), size = cy_build_dims(im->g, t.dim, t.rank);
  cy_val named = CAST(sum_rows(im, hit), CY_BOOL);
  cy_val step = spread(im, v[3], hit, named, unit);
  cy_val up = CAST(BINARY(gt, step, zero), CY_I64), top = ADD(SUB(size, unit), up);
  cy_val start = spread(im, v[0], hit, named, zero), end = spread(im, v[1], hit, named, size);
  start = ADD(start, SELECT(BINARY(lt, start, zero), size, zero));
  end = ADD(end, SELECT(BINARY(lt, end, zero), size, zero));
  start = MIN(MAX(start, zero), top);
  end = MIN(MAX(end, SUB(up, unit)), top);
  cy_val span = DIV(SUB(ADD(SUB(end, start), step), UNARY(sign, step)), step); /* rounded away from 0 */
  cy_dim rank = num(im, t.rank);
  const cy_dim *sizes = cy_onnx_sizes(im, MAX(span, zero));
  step = step && !cy_onnx_type(im, step)->rank ? cy_build_expand(im->g, step, &rank, 1) : step;
  for (int i = 0; i < t.rank && sizes && x; i++) {
    cy_val at = MUL(cy_build_iota(im->g, CY_I64, &sizes[i], 1, 0), element(im, step, i));
    x = cy_build_gather(im->g, x, ADD(at, element(im, start, i)), i);
  }
  return sizes ? x : 0;
}

const cy_dim *cy_onnx_pads_run_time(cy_importer *im, const cy_onnx_node *n, uint32_t pads, uint32_t axes, int rank) {
  int64_t count, npads;
  uint32_t unused;
  cy_val axis = list(im, n, axes, &count), pad = axis ? list(im, n, pads, &npads) : 0, side[2];
  if (!pad)
    return NULL;
  if (npads != 2 * count) {
    cy_build_error(im->g, "input 'pads'", "expected %d numbers (begins, then ends), found %d", 2 * (int)count,
                   (int)npads);
    return NULL;
  }
  side[0] = side[1] = 0;
  cy_val hit = hits_once(im, axis, count, rank);
  for (int i = 0; hit && i < 2; i++) {
    cy_val half = cy_build_slice_axis(im->g, pad, 0, num(im, i * count), num(im, count));
    side[i] = half ? sum_rows(im, MUL(hit, cy_build_unsqueeze(im->g, half, 1))) : 0;
  }
  cy_val both = side[0] && side[1] ? cy_build_concat(im->g, side, 2, 0) : 0;
  return both ? cy_value_elems_or_read(im->g, both, &unused) : NULL;
}

/* Is the target shape one by the standard? At most one -1 (what is left), 0 (keep) only where the input has a dimension, and with
 * allowzero not beside -1. */
static bool target_check(cy_importer *im, cy_val want, int rank, int input_rank, bool allow_zero) {
  cy_val zero = int_like(im, 0), below = BINARY(lt, want, zero), none = BINARY(eq, want, zero);
  cy_val wild = sum_rows(im, CAST(below, CY_I64)),
         kept = none && !allow_zero && rank > input_rank
                    ? cy_build_slice_axis(im->g, none, 0, num(im, input_rank), num(im, rank - input_rank))
                    : 0;
  return cy_onnx_check_below(
             im, UNARY(neg, MAX(want, int_like(im, -INT64_MAX))), 2,
             "node '%s': the new shape has an element of -%lld: expected a size, 0 (keep) or -1 (what is left)") &&
         (rank == 1 ||
          cy_onnx_check_below(im, wild, 2, "node '%s': at most one element of the new shape may be -1, found %lld")) &&
         (!kept || cy_onnx_check_below(
                       im, CAST(kept, CY_I64), 1,
                       "node '%s': the new shape has a 0 (keep) for a dimension that the input does not have")) &&
         (!allow_zero ||
          cy_onnx_check_below(im, MUL(wild, CAST(none, CY_I64)), 1,
                              "node '%s': the new shape has both 0 and -1, which cannot be computed then"));
}

cy_val cy_onnx_reshape_run_time(cy_importer *im, cy_val x, cy_val shape, int rank, bool allow_zero) {
  const cy_type t = *cy_onnx_type(im, x);
  const int64_t axis = 0;
  cy_dim old[CY_MAX_RANK];
  for (int i = 0; i < rank; i++)
    old[i] = i < t.rank ? t.dim[i] : num(im, 0);
  cy_val want = CAST(shape, CY_I64), zero = int_like(im, 0), unit = int_like(im, 1);
  if (!want || !target_check(im, want, rank, t.rank, allow_zero))
    return 0;
  if (!allow_zero)
    want = SELECT(BINARY(eq, want, zero), cy_build_dims(im->g, old, (uint32_t)rank), want);
  cy_val open = BINARY(lt, want, zero), others = SELECT(open, unit, want);
  others = others ? cy_build_reduce(im->g, CY_OP_reduce_prod, others, &axis, 1, false) : 0;
  cy_val rest = DIV(cy_build_dim_scalar(im->g, cy_type_elems(im->g, &t)), others);
  const cy_dim *out = cy_onnx_sizes(im, SELECT(open, rest, want));
  return out ? cy_build_reshape(im->g, x, out, rank) : 0;
}
