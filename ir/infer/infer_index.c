/* SPDX-License-Identifier: Apache-2.0 */
/* infer_index.c - output types of index functions and reductions. See infer.c. */
#include "infer_int.h"

static bool is_index_type(infer *i, uint32_t k) {
  const cy_type *t = in_type(i, k);
  return cy_dtype_is_int((cy_dtype)t->dtype) || FAIL(i, "expected integer indices, found %s", TEXT(i, t));
}

/* A rank above the limit would run over the type's dims. */
static bool fits_rank(infer *i, int rank) {
  return rank <= CY_MAX_RANK || FAIL(i, "expected at most %d dims, found %d", CY_MAX_RANK, rank);
}

bool cy_infer_iota(infer *i) {
  const cy_type *t = out_type(i, 0);
  return cy_check_axis(i, int_attr(i, CY_ATTR_axis), t->rank);
}

bool cy_infer_dims(infer *i) {
  const cy_type *t = out_type(i, 0);
  const cy_attr *a = cy_attr_find(i->n, CY_ATTR_elems);
  if (!cy_dtype_is_int((cy_dtype)t->dtype) || t->rank > 1 || !cy_dim_is(i->g, cy_type_elems(i->g, t), a->n))
    return FAIL(i, "expected an integer tensor of %u elements, found %s", a->n, TEXT(i, t));
  return true;
}

/* Is there something to look up along an axis of x, if anything is? */
static bool has_elements(infer *i, const cy_type *x, int64_t axis, const cy_type *found) {
  return cy_check_source(i, x, (int)axis, found);
}

/* Indices take places of their own off the axis: at most as many as x has. */
static bool places_fit(infer *i, const cy_type *x, const cy_type *idx, int64_t axis) {
  for (int k = 0; k < idx->rank; k++) {
    int64_t wanted, there;
    if (k == axis)
      continue;
    if (is_const(i, idx->dim[k], &wanted) && is_const(i, x->dim[k], &there) && wanted > there)
      return FAIL(i, "expected indices of at most the dims of %s but along axis %d, found %s", TEXT(i, x), (int)axis,
                  TEXT(i, idx));
    cy_graph_require(i->g, idx->dim[k], x->dim[k], CY_REQUIRE_AT_MOST);
  }
  return true;
}

/* Is there something that the coordinates for axes [first, end) of x can name? */
static bool have_elements(infer *i, const cy_type *x, int64_t first, int64_t end, const cy_type *idx) {
  cy_type tuples = *idx;
  tuples.rank--;
  for (int64_t k = first; k < end; k++)
    if (!has_elements(i, x, k, &tuples))
      return false;
  return true;
}

bool cy_infer_gather(infer *i) {
  const cy_type *x = in_type(i, 0), *idx = in_type(i, 1);
  int64_t axis = int_attr(i, CY_ATTR_axis);
  cy_type t = {.dtype = x->dtype};
  if (!is_index_type(i, 1) || !cy_check_axis(i, axis, x->rank) || !fits_rank(i, x->rank - 1 + idx->rank))
    return false;
  for (int k = 0; k < axis; k++)
    t.dim[t.rank++] = x->dim[k];
  for (int k = 0; k < idx->rank; k++)
    t.dim[t.rank++] = idx->dim[k];
  for (int k = (int)axis + 1; k < x->rank; k++)
    t.dim[t.rank++] = x->dim[k];
  return has_elements(i, x, axis, &t) && set_type(i, 0, t);
}

bool cy_infer_gather_elements(infer *i) {
  const cy_type *x = in_type(i, 0), *idx = in_type(i, 1);
  if (!is_index_type(i, 1) || !cy_check_axis(i, int_attr(i, CY_ATTR_axis), x->rank))
    return false;
  if (idx->rank != x->rank)
    return FAIL(i, "expected indices of rank %d, found %s", x->rank, TEXT(i, idx));
  return places_fit(i, x, idx, int_attr(i, CY_ATTR_axis)) && has_elements(i, x, int_attr(i, CY_ATTR_axis), idx) &&
         set_type(i, 0, cy_type_make((cy_dtype)x->dtype, idx->rank, idx->dim));
}

bool cy_infer_gather_nd(infer *i) {
  const cy_type *x = in_type(i, 0), *idx = in_type(i, 1);
  int64_t batch = int_attr(i, CY_ATTR_batch_dims), depth;
  cy_type t = {.dtype = x->dtype};
  if (!is_index_type(i, 1) || !cy_check_rank(i, 1, 1, CY_MAX_RANK))
    return false;
  if (!is_const(i, idx->dim[idx->rank - 1], &depth))
    return FAIL(i, "expected a known last dim of the indices, found %s", TEXT(i, idx));
  if (batch < 0 || batch >= idx->rank || depth < 0 || batch + depth > x->rank)
    return FAIL(i, "expected indices of at most %d coordinates after %lld batch dims, found %s", x->rank,
                (long long)batch, TEXT(i, idx));
  if (!fits_rank(i, idx->rank - 1 + x->rank - (int)(batch + depth)))
    return false;
  for (int k = 0; k < batch; k++)
    if (cy_dims_differ(i, idx->dim[k], x->dim[k]))
      return FAIL(i, "expected %lld batch dims of %s, found %s", (long long)batch, TEXT(i, x), TEXT(i, idx));
  for (int k = 0; k < idx->rank - 1; k++)
    t.dim[t.rank++] = idx->dim[k];
  for (int k = (int)(batch + depth); k < x->rank; k++)
    t.dim[t.rank++] = x->dim[k];
  return have_elements(i, x, batch, batch + depth, idx) && set_type(i, 0, t);
}

bool cy_infer_scatter_elements(infer *i) {
  const cy_type *x = in_type(i, 0), *idx = in_type(i, 1), *u = in_type(i, 2);
  if (!is_index_type(i, 1) || !cy_check_dtype(i, 2, (cy_dtype)x->dtype) ||
      !cy_check_axis(i, int_attr(i, CY_ATTR_axis), x->rank))
    return false;
  if (idx->rank != x->rank || u->rank != x->rank)
    return FAIL(i, "expected indices and updates of rank %d, found %s and %s", x->rank, TEXT(i, idx), TEXT(i, u));
  for (int k = 0; k < x->rank; k++)
    if (cy_dims_differ(i, idx->dim[k], u->dim[k]))
      return FAIL(i, "expected indices and updates of the same dims, found %s and %s", TEXT(i, idx), TEXT(i, u));
  return places_fit(i, x, idx, int_attr(i, CY_ATTR_axis)) && has_elements(i, x, int_attr(i, CY_ATTR_axis), idx) &&
         set_type(i, 0, *x);
}

bool cy_infer_scatter_nd(infer *i) {
  const cy_type *x = in_type(i, 0), *idx = in_type(i, 1), *u = in_type(i, 2);
  int64_t depth;
  if (!is_index_type(i, 1) || !cy_check_rank(i, 1, 1, CY_MAX_RANK) || !cy_check_dtype(i, 2, (cy_dtype)x->dtype))
    return false;
  bool known = is_const(i, idx->dim[idx->rank - 1], &depth);
  if (!known) /* the updates' rank tells */
    depth = idx->rank - 1 + x->rank - u->rank;
  if (depth < 0 || depth > x->rank)
    return FAIL(i, "expected indices of at most %d coordinates, found %s", x->rank, TEXT(i, idx));
  if (!known && !cy_check_dim(i, "coordinates", idx->dim[idx->rank - 1], cy_dim_const(i->g, depth)))
    return false;
  bool fits = u->rank == idx->rank - 1 + x->rank - depth;
  for (int k = 0; k < u->rank && fits; k++)
    fits = !cy_dims_differ(i, u->dim[k], k < idx->rank - 1 ? idx->dim[k] : x->dim[k - (idx->rank - 1) + depth]);
  if (!fits)
    return FAIL(
        i,
        "expected updates with the dims of the indices but their last, then those of the slices of %s, found %s for %s",
        TEXT(i, x), TEXT(i, u), TEXT(i, idx));
  return have_elements(i, x, 0, depth, idx) && set_type(i, 0, *x);
}

bool cy_infer_write_rows(infer *i) {
  const cy_type *x = in_type(i, 0), *rows = in_type(i, 1), *starts = in_type(i, 2);
  cy_type t = *out_type(i, 0);
  int64_t axis = int_attr(i, CY_ATTR_axis);
  if (!is_index_type(i, 2) || !cy_check_dtype(i, 1, (cy_dtype)x->dtype) || !cy_check_axis(i, axis, x->rank))
    return false;
  if (rows->rank != x->rank || t.rank != x->rank || axis == 0 || starts->rank != 1)
    return FAIL(i, "expected rows of rank %d, an axis behind the first one and a list of starts, found %s and %s",
                x->rank, TEXT(i, rows), TEXT(i, starts));
  for (int k = 0; k < x->rank; k++)
    if (k != axis && (cy_dims_differ(i, rows->dim[k], t.dim[k]) || cy_dims_differ(i, x->dim[k], t.dim[k])))
      return FAIL(i, "expected rows of the dims of %s but along axis %d, found %s", TEXT(i, x), (int)axis,
                  TEXT(i, rows));
  if (!cy_dim_is(i->g, starts->dim[0], 1) && cy_dims_differ(i, starts->dim[0], t.dim[0]))
    return FAIL(i, "expected a start for each of %s, found %s", TEXT(i, x), TEXT(i, starts));
  cy_graph_require(i->g, rows->dim[axis], t.dim[axis], CY_REQUIRE_AT_MOST);
  cy_graph_require(i->g, x->dim[axis], t.dim[axis], CY_REQUIRE_AT_MOST);
  t.dtype = x->dtype;
  return set_type(i, 0, t);
}

bool cy_infer_resize(infer *i) {
  const cy_type *x = in_type(i, 0);
  cy_type *t = out_type(i, 0);
  if (t->rank != x->rank)
    return FAIL(i, "expected a size for each of the %d dims, found %s", x->rank, TEXT(i, t));
  for (uint32_t k = 1; k < 3; k++) {
    const cy_type *list = has_in(i, k) ? in_type(i, k) : NULL;
    if (list && !(cy_check_dtype(i, k, CY_F32) && cy_check_rank(i, k, 1, 1) &&
                  cy_check_dim(i, k == 1 ? "scales" : "bounds of the region", list->dim[0],
                               cy_dim_const(i->g, (int64_t)k * x->rank))))
      return false;
  }
  for (int k = 0; k < x->rank; k++)
    if (!cy_check_source(i, x, k, t))
      return false;
  t->dtype = x->dtype;
  return true;
}

bool cy_infer_grid_sample(infer *i) {
  const cy_type *x = in_type(i, 0), *grid = in_type(i, 1);
  if (!cy_check_rank(i, 0, 3, CY_MAX_RANK) || !cy_check_rank(i, 1, x->rank, x->rank))
    return false;
  cy_type t = *x;
  for (int k = 2; k < x->rank; k++)
    t.dim[k] = grid->dim[k - 1];
  for (int k = 2; k < x->rank; k++)
    if (!cy_check_source(i, x, k, &t))
      return false;
  return cy_check_dim(i, "batch of the grid", grid->dim[0], x->dim[0]) &&
         cy_check_dim(i, "coordinates of the grid", grid->dim[x->rank - 1], cy_dim_const(i->g, x->rank - 2)) &&
         set_type(i, 0, t);
}

/* dtype given, dims of the input; a scale and zero point, or one for each element along an axis (of blocks: importer) */
static bool rescale(infer *i) {
  cy_type t = *in_type(i, 0);
  int64_t axis = int_attr(i, CY_ATTR_axis);
  t.dtype = out_type(i, 0)->dtype;
  if (cy_dtype_of((cy_dtype)t.dtype)->cls == 0)
    return FAIL(i, "expected an output type");
  for (uint32_t k = 1; k < 3 && !int_attr(i, CY_ATTR_block_size); k++) {
    const cy_type *list = has_in(i, k) ? in_type(i, k) : NULL;
    if (list && list->rank == 1 &&
        !(cy_check_axis(i, axis, t.rank) &&
          cy_check_dim(i, k == 1 ? "scales along the axis" : "zero points along the axis", list->dim[0], t.dim[axis])))
      return false;
  }
  return set_type(i, 0, t);
}

bool cy_infer_quantize(infer *i) { return rescale(i); }
bool cy_infer_dequantize(infer *i) { return rescale(i); }

/* ---- reductions -------------------------------------------------------------------------------------------------- */

static bool reduced(infer *i, unsigned axes, cy_dtype dtype) {
  const cy_type *x = in_type(i, 0);
  cy_type t = {.dtype = (uint8_t)dtype};
  bool keep = int_attr(i, CY_ATTR_keepdims) != 0;
  for (int k = 0; k < x->rank; k++) {
    bool gone = axes >> k & 1;
    if (!gone || keep)
      t.dim[t.rank++] = gone ? cy_dim_const(i->g, 1) : x->dim[k];
  }
  return set_type(i, 0, t);
}

static bool reduce_axes(infer *i, unsigned *out) {
  const cy_attr *a = cy_attr_find(i->n, CY_ATTR_axes);
  *out = 0;
  for (uint32_t k = 0; k < a->n; k++) {
    if (!cy_check_axis(i, a->ints[k], in_type(i, 0)->rank))
      return false;
    *out |= 1u << a->ints[k];
  }
  return true;
}

static bool reduce(infer *i) {
  unsigned axes;
  return reduce_axes(i, &axes) && reduced(i, axes, (cy_dtype)in_type(i, 0)->dtype);
}

static bool arg_reduce(infer *i) {
  int64_t axis = int_attr(i, CY_ATTR_axis);
  return cy_check_axis(i, axis, in_type(i, 0)->rank) && reduced(i, 1u << axis, CY_I64);
}

static bool along_axis(infer *i) {
  return cy_check_axis(i, int_attr(i, CY_ATTR_axis), in_type(i, 0)->rank) && set_type(i, 0, *in_type(i, 0));
}

bool cy_infer_reduce_sum(infer *i) { return reduce(i); }
bool cy_infer_reduce_prod(infer *i) { return reduce(i); }
bool cy_infer_reduce_min(infer *i) { return reduce(i); }
bool cy_infer_reduce_max(infer *i) { return reduce(i); }
bool cy_infer_argmin(infer *i) { return arg_reduce(i); }
bool cy_infer_argmax(infer *i) { return arg_reduce(i); }
bool cy_infer_cumsum(infer *i) { return along_axis(i); }
bool cy_infer_cumprod(infer *i) { return along_axis(i); }
bool cy_infer_softmax(infer *i) { return along_axis(i); }
bool cy_infer_log_softmax(infer *i) { return along_axis(i); }

bool cy_infer_quantize_rows(infer *i) {
  cy_type t = *in_type(i, 0), scale = t;
  if (!cy_check_dtype(i, 0, CY_F32) || !cy_check_rank(i, 0, 1, CY_MAX_RANK))
    return false;
  t.dtype = (uint8_t)cy_attr_get_int(i->n, CY_ATTR_round, CY_I8);
  if (t.dtype != CY_I8 && t.dtype != CY_F8E4M3FN)
    return FAIL(i, "expected rows that are rounded to i8 or f8e4m3fn, found %s", cy_dtype_of((cy_dtype)t.dtype)->name);
  scale.dim[t.rank - 1] = cy_dim_const(i->g, 1);
  return set_type(i, 0, t) && set_type(i, 1, scale);
}

bool cy_infer_normalize(infer *i) {
  unsigned axes;
  return reduce_axes(i, &axes) && set_type(i, 0, *in_type(i, 0));
}
