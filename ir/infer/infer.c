/* SPDX-License-Identifier: Apache-2.0 */
/* infer.c - output types from input types and attributes: dispatch, element-wise ops, views.
 *
 * In: a node whose inputs have types. Out: types of its outputs, or a diagnostic that says what was expected and found.
 * Ops flagged T in ops.def bring their type along; of these, what can be derived is overwritten (cast: dims, conv:
 * dims) and the rest is checked where both sides are constant. Symbolic dims are trusted: what they turn out to be is
 * the model's promise.
 */
#include "infer_int.h"

/* ---- element-wise ------------------------------------------------------------------------------------------------ */

static bool ew_dtypes(infer *i, cy_op op, cy_dtype *out) {
  uint32_t first = op == CY_OP_select;
  if (first && !cy_check_dtype(i, 0, CY_BOOL))
    return false;
  cy_dtype t = (cy_dtype)in_type(i, first)->dtype;
  for (uint32_t k = first + 1; k < i->n->nin && op != CY_OP_pow; k++)
    if (in_type(i, k)->dtype != t)
      return FAIL(i, "expected inputs of one type, found %s and %s", TEXT(i, in_type(i, first)),
                  TEXT(i, in_type(i, k)));
  char cls = cy_dtype_of(t)->cls;
  bool moves = first || op == CY_OP_eq || op == CY_OP_ne;
  if (cls == 0 || ((cls == 'S' || cls == 'C') && !moves) || cls == 'R')
    return FAIL(i, "expected numbers, found %s", TEXT(i, in_type(i, first)));
  if ((op == CY_OP_mul_q15 || op == CY_OP_logistic_q15) && t != CY_I16)
    return FAIL(i, "expected an i16 tensor, found %s", TEXT(i, in_type(i, 0)));
  *out = cy_op_of(op)->gives_bool ? CY_BOOL : t;
  return true;
}

static bool cast_dtype(infer *i, cy_op op, cy_dtype *out) {
  const cy_dtype_info *from = cy_dtype_of((cy_dtype)in_type(i, 0)->dtype),
                      *to = cy_dtype_of((cy_dtype)out_type(i, 0)->dtype);
  *out = (cy_dtype)out_type(i, 0)->dtype;
  bool is_set = from->cls == 'R' && *out == CY_BOOL && op == CY_OP_cast;      /* has an optional a value? */
  bool is_number = op == CY_OP_bitcast && from->cls == 'S' && *out == CY_I32; /* the number of a text */
  if ((from->cls == 'S' && !is_number) || to->cls == 'S' || to->cls == 0 ||
      ((from->cls == 'R' || to->cls == 'R') && !is_set))
    return FAIL(i, "cannot convert %s to %s", cy_type_text(i->g, in_type(i, 0)), to->name);
  if (op == CY_OP_bitcast && from->bits != to->bits)
    return FAIL(i, "expected types of one size, found %s and %s", from->name, to->name);
  return true;
}

static bool infer_ew(infer *i) {
  cy_op op = (cy_op)i->n->op;
  cy_dtype dtype = CY_NONE;
  if (op == CY_OP_cast || op == CY_OP_bitcast ? !cast_dtype(i, op, &dtype) : !ew_dtypes(i, op, &dtype))
    return false;
  cy_type t = *in_type(i, 0);
  for (uint32_t k = 1; k < i->n->nin; k++) {
    int rank = cy_infer_broadcast(i, &t, in_type(i, k), t.dim);
    if (rank < 0)
      return false;
    t.rank = (uint8_t)rank;
  }
  return set_type(i, 0, cy_type_make(dtype, t.rank, t.dim));
}

/* ---- views ------------------------------------------------------------------------------------------------------- */

/* The given type of a view must be that of its input but for the dims. */
static bool keep_dtype(infer *i) {
  out_type(i, 0)->dtype = in_type(i, 0)->dtype;
  for (int k = 0; k < out_type(i, 0)->rank; k++) {
    int64_t d;
    cy_dim dim = out_type(i, 0)->dim[k];
    if (!dim || (is_const(i, dim, &d) && d < 0))
      return FAIL(i, "expected sizes of at least 0, found %s", TEXT(i, out_type(i, 0)));
  }
  return true;
}

bool cy_infer_reshape(infer *i) {
  int64_t a, b;
  if (!keep_dtype(i))
    return false;
  cy_dim have = cy_type_elems(i->g, in_type(i, 0)), want = cy_type_elems(i->g, out_type(i, 0));
  if (is_const(i, have, &a) && is_const(i, want, &b) && a != b)
    return FAIL(i, "cannot give the %lld elements of %s the shape of %s (%lld)", (long long)a, TEXT(i, in_type(i, 0)),
                TEXT(i, out_type(i, 0)), (long long)b);
  cy_graph_require(i->g, have, want, CY_REQUIRE_EQUAL);
  return true;
}

bool cy_infer_transpose(infer *i) {
  const cy_type *x = in_type(i, 0);
  cy_type t = *x;
  unsigned seen = 0;
  if (!cy_check_list(i, CY_ATTR_perm, x->rank))
    return false;
  const int64_t *perm = cy_attr_find(i->n, CY_ATTR_perm)->ints;
  for (int k = 0; k < x->rank; k++) {
    if (!cy_check_axis(i, perm[k], x->rank))
      return false;
    if (seen >> perm[k] & 1)
      return FAIL(i, "expected a permutation, found axis %lld twice", (long long)perm[k]);
    seen |= 1u << perm[k];
    t.dim[k] = x->dim[perm[k]];
  }
  return set_type(i, 0, t);
}

bool cy_infer_expand(infer *i) {
  const cy_type *x = in_type(i, 0), *t = out_type(i, 0);
  if (!keep_dtype(i))
    return false;
  int grow = t->rank - x->rank;
  for (int k = 0; k < x->rank && grow >= 0; k++)
    if (cy_dims_clash(i, x->dim[k], t->dim[k + grow]) && !cy_dim_is(i->g, x->dim[k], 1))
      grow = -1;
    else
      cy_graph_require(i->g, x->dim[k], t->dim[k + grow], CY_REQUIRE_BROADCAST);
  return grow >= 0 || FAIL(i, "cannot expand %s to %s", TEXT(i, x), TEXT(i, t));
}

bool cy_infer_slice(infer *i) {
  const cy_type *x = in_type(i, 0), *t = out_type(i, 0);
  if (!keep_dtype(i) || !cy_check_list(i, CY_ATTR_starts, x->rank) || !cy_check_list(i, CY_ATTR_steps, x->rank))
    return false;
  if (t->rank != x->rank)
    return FAIL(i, "expected a slice of %d dims, found %s", x->rank, TEXT(i, t));
  const cy_attr *starts = cy_attr_find(i->n, CY_ATTR_starts), *steps = cy_attr_find(i->n, CY_ATTR_steps);
  for (int k = 0; k < x->rank; k++) {
    int64_t start, size, d;
    if (steps->ints[k] == 0)
      return FAIL(i, "expected a step other than 0 on axis %d", k);
    if (!is_const(i, starts->dims[k], &start) || !is_const(i, t->dim[k], &size) || !is_const(i, x->dim[k], &d) ||
        size == 0)
      continue;
    __int128 last = start + (__int128)(size - 1) * steps->ints[k];
    if (start < 0 || start >= d || last < 0 || last >= d)
      return FAIL(i, "slice of axis %d starts at %lld, takes %lld with step %lld, leaves the %lld of %s", k,
                  (long long)start, (long long)size, (long long)steps->ints[k], (long long)d, TEXT(i, x));
  }
  return true;
}

bool cy_infer_pad(infer *i) {
  cy_type t = *in_type(i, 0);
  if (!cy_check_list(i, CY_ATTR_pads, 2 * t.rank))
    return false;
  if (has_in(i, 1) && !cy_check_dtype(i, 1, (cy_dtype)t.dtype))
    return false;
  const cy_dim *pads = cy_attr_find(i->n, CY_ATTR_pads)->dims;
  for (int k = 0; k < t.rank; k++) {
    int64_t d;
    t.dim[k] = cy_dim_add(i->g, t.dim[k], cy_dim_add(i->g, pads[k], pads[k + t.rank]));
    if (is_const(i, t.dim[k], &d) && d < 0)
      return FAIL(i, "padding leaves %lld elements on axis %d of %s", (long long)d, k, TEXT(i, in_type(i, 0)));
  }
  for (int k = 0; k < t.rank && int_attr(i, CY_ATTR_mode) != CY_PAD_CONSTANT; k++)
    if (!cy_check_has_source(i, in_type(i, 0), k, t.dim[k]))
      return false;
  return set_type(i, 0, t);
}

bool cy_infer_concat(infer *i) {
  cy_type t = *in_type(i, 0);
  int64_t axis = int_attr(i, CY_ATTR_axis);
  if (!cy_check_axis(i, axis, t.rank))
    return false;
  for (uint32_t k = 1; k < i->n->nin; k++) {
    const cy_type *x = in_type(i, k);
    bool fits = x->rank == t.rank && x->dtype == t.dtype;
    for (int d = 0; d < t.rank && fits; d++) {
      if (d == axis) {
        t.dim[d] = cy_dim_add(i->g, t.dim[d], x->dim[d]);
        continue;
      }
      fits = !cy_dims_differ(i, t.dim[d], x->dim[d]);
      t.dim[d] = is_const(i, x->dim[d], NULL) ? x->dim[d] : t.dim[d];
    }
    if (!fits)
      return FAIL(i, "expected tensors that differ on axis %lld only, found %s and %s (input %u)", (long long)axis,
                  TEXT(i, in_type(i, 0)), TEXT(i, x), k);
  }
  return set_type(i, 0, t);
}

bool cy_infer_identity(infer *i) { return set_type(i, 0, *in_type(i, 0)); }

/* ---- dispatch ---------------------------------------------------------------------------------------------------- */

#define FUNCTION_EW(name) infer_ew
#define FUNCTION_VIEW(name) cy_infer_##name
#define FUNCTION_INDEX(name) cy_infer_##name
#define FUNCTION_REDUCE(name) cy_infer_##name
#define FUNCTION_ROOT(name) cy_infer_##name
#define FUNCTION_CALL(name) cy_infer_##name
#define FUNCTION_CTRL(name) cy_infer_##name
static infer_function *const functions[CY_OP_COUNT] = {
#define OP(name, min_in, max_in, outs, cls, flags, cost, attrs) [CY_OP_##name] = FUNCTION_##cls(name),
#include "ir/ops.def"
#undef OP
};

/* Nothing is done to complex numbers, not even moving them. */
static bool no_complex(infer *i, const cy_val *v, uint32_t n) {
  for (uint32_t k = 0; k < n; k++)
    if (v[k] && cy_dtype_of((cy_dtype)cy_value_of(i->g, v[k])->type.dtype)->cls == 'C')
      return FAIL(i, "%s", CY_NO_COMPLEX);
  return true;
}

/* What else the elements of input 0 may not be, by classes of dtypes.def. */
static bool elements_fit(infer *i) {
  char cls = i->n->nin && i->n->in[0] ? cy_dtype_of((cy_dtype)in_type(i, 0)->dtype)->cls : 0;
  if (cy_node_op(i->n)->of_floats && cls != 'F')
    return FAIL(i, "expected a floating-point tensor, found %s", TEXT(i, in_type(i, 0)));
  if (cy_node_op(i->n)->of_integers && cls == 'F')
    return FAIL(i, "expected a bool or integer tensor, found %s", TEXT(i, in_type(i, 0)));
  if (cy_node_op(i->n)->of_numbers && (cls == 'S' || cls == 'R'))
    return FAIL(i, "expected numbers, found %s", TEXT(i, in_type(i, 0)));
  return true;
}

bool cy_infer(cy_graph *g, cy_node n) {
  infer i = {g, &cy_node_slot_of(g, n)->n};
  return no_complex(&i, i.n->in, i.n->nin) && elements_fit(&i) && functions[i.n->op](&i) &&
         no_complex(&i, i.n->out, i.n->nout);
}
