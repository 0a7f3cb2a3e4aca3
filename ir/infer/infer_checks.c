/* SPDX-License-Identifier: Apache-2.0 */
/* infer_checks.c - what inference of many ops checks, and numpy broadcasting of symbolic shapes.
 *
 * In: one inference. Out: true, or false after a diagnostic that says what was expected and found. Where only the running
 * model can tell, a requirement is recorded.
 */
#include "infer_int.h"

bool cy_dims_clash(const infer *i, cy_dim a, cy_dim b) {
  int64_t x, y;
  return is_const(i, a, &x) && is_const(i, b, &y) && x != y;
}

bool cy_dims_differ(infer *i, cy_dim a, cy_dim b) {
  if (cy_dims_clash(i, a, b))
    return true;
  cy_graph_require(i->g, a, b, CY_REQUIRE_EQUAL);
  return false;
}

int cy_infer_broadcast(infer *i, const cy_type *a, const cy_type *b, cy_dim *out_dims) {
  return cy_build_broadcast(i->g, a, b, out_dims);
}

bool cy_check_rank(infer *i, uint32_t k, int at_least, int at_most) {
  const cy_type *t = in_type(i, k);
  if (t->rank >= at_least && t->rank <= at_most)
    return true;
  return FAIL(i, "expected input %u with %s%d dims, found %s", k, at_least == at_most ? "" : "at least ", at_least,
              TEXT(i, t));
}

bool cy_check_dtype(infer *i, uint32_t k, cy_dtype dtype) {
  const cy_type *t = in_type(i, k);
  return t->dtype == dtype ||
         FAIL(i, "expected input %u of type %s, found %s", k, cy_dtype_of(dtype)->name, TEXT(i, t));
}

bool cy_check_axis(infer *i, int64_t axis, int rank) {
  if (axis >= 0 && axis < rank)
    return true;
  return FAIL(i, "expected an axis from 0 to %d, found %lld", rank - 1, (long long)axis);
}

bool cy_check_list(infer *i, cy_attr_key key, int length) {
  const cy_attr *a = cy_attr_find(i->n, key);
  if (a && (int)a->n == length)
    return true;
  return FAIL(i, "expected %d elements in attribute '%s', found %d", length, cy_attr_name(key), a ? (int)a->n : 0);
}

bool cy_check_dim(infer *i, const char *what, cy_dim found, cy_dim expected) {
  if (!cy_dims_differ(i, found, expected))
    return true;
  return FAIL(i, "%s: expected %s, found %s", what, cy_dim_text(i->g, expected), cy_dim_text(i->g, found));
}

bool cy_check_has_source(infer *i, const cy_type *x, int axis, cy_dim wanted) {
  int64_t n;
  if (is_const(i, wanted, &n) && n > 0 && cy_dim_is(i->g, x->dim[axis], 0))
    return FAIL(i, "axis %d of %s has no elements, and an output that has some is computed from it", axis, TEXT(i, x));
  cy_graph_require(i->g, wanted, x->dim[axis], CY_REQUIRE_SOURCE);
  return true;
}

bool cy_check_source(infer *i, const cy_type *x, int axis, const cy_type *made) {
  cy_dim any = cy_dim_const(i->g, 1); /* no product, which might overflow */
  if (axis < made->rank && made->rank == x->rank && made->dim[axis] == x->dim[axis])
    return true;
  for (int k = 0; k < made->rank; k++)
    any = cy_dim_min(i->g, any, made->dim[k]);
  return cy_check_has_source(i, x, axis, any);
}

/* ---- broadcasting ------------------------------------------------------------------------------------------------ */

/* Is b max(0, a)? No size is negative, so both are the same: arange(n) has max(0, n) elements. */
static bool is_at_least_zero(cy_graph *g, cy_dim a, cy_dim b) { return cy_dim_max(g, cy_dim_const(g, 0), a) == b; }

/* One dim; 0 when they cannot go together. Different symbolic dims are equal, or one of them is 1 at run time. */
static cy_dim broadcast_dim(cy_graph *g, cy_dim a, cy_dim b) {
  int64_t x, y;
  bool a_const = cy_dim_is_const(g, a, &x), b_const = cy_dim_is_const(g, b, &y);
  if (a == b || (b_const && y == 1))
    return a;
  if (a_const && x == 1)
    return b;
  if (a_const && b_const)
    return 0;
  if (a_const || b_const)
    return a_const ? a : b;
  if (is_at_least_zero(g, a, b) || is_at_least_zero(g, b, a))
    return is_at_least_zero(g, a, b) ? a : b;
  return cy_dim_join(g, a, b);
}

int cy_build_broadcast(cy_graph *g, const cy_type *a, const cy_type *b, cy_dim *out_dims) {
  int rank = a->rank > b->rank ? a->rank : b->rank;
  cy_dim dims[CY_MAX_RANK];
  for (int i = 0; i < rank; i++) {
    int ai = i - (rank - a->rank), bi = i - (rank - b->rank);
    if (ai >= 0 && bi >= 0)
      cy_graph_require(g, a->dim[ai], b->dim[bi], CY_REQUIRE_BROADCAST);
    dims[i] = ai < 0 ? b->dim[bi] : bi < 0 ? a->dim[ai] : broadcast_dim(g, a->dim[ai], b->dim[bi]);
    if (!dims[i]) {
      cy_build_error(g, NULL, "expected shapes that broadcast, found %s and %s (axis %d)", cy_type_text(g, a),
                     cy_type_text(g, b), i);
      return -1;
    }
  }
  memcpy(out_dims, dims, sizeof(cy_dim) * (size_t)rank);
  return rank;
}
