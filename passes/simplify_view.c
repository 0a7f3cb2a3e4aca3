/* SPDX-License-Identifier: Apache-2.0 */
/* simplify_view.c - rules on ops that only move elements: chains become one, transposes travel towards the outputs and
 * meet their inverse.
 *
 * In:  a swept graph. Out: no view of a view of the same kind, no view that moves nothing, transposes below
 * element-wise ops, reductions and row operations instead of above them, zero padding inside the convolution that
 * follows. A transpose moves down only past nodes that are its single user, so that no work is repeated and every move
 * brings it closer to an end: the rules can't cycle.
 */
#include "simplify.h"

#include <string.h>

static const cy_type *type_of(const cy_rewrite *rw, cy_val v) { return cy_type_of(rw->g, v); }

/* The permutation of transpose node n. */
static const int64_t *perm_of(const cy_node_info *n) {
  uint32_t count;
  return cy_attr_list(n, CY_ATTR_perm, &count);
}

/* ---- same kind twice, nothing moved ----------------------------------------------------------------------------- */

static cy_val same_type(cy_rewrite *rw, const cy_node_info *n) {
  return cy_type_equal(type_of(rw, n->in[0]), type_of(rw, n->out[0])) ? n->in[0] : 0;
}

/* An identity stays where a result of the model would otherwise be one of its inputs or a constant. */
static cy_val identity(cy_rewrite *rw, const cy_node_info *n) {
  bool stored = cy_value_of(rw->g, n->in[0])->node != 0;
  return stored || !cy_rewrite_is_result(rw, n->out[0]) ? n->in[0] : 0;
}

static cy_val reshape_reshape(cy_rewrite *rw, const cy_node_info *n) {
  const cy_node_info *d = cy_def_of(rw->g, n->in[0], CY_OP_reshape);
  const cy_type *t = type_of(rw, n->out[0]);
  return d ? cy_build_reshape(rw->g, d->in[0], t->dim, t->rank) : 0;
}

/* Batch axes made one for a product of matrices, which are swapped, and several again behind that: the swap needs no
 * such views. */
static cy_val unmerged_transpose(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_node_info *d = cy_def_of(g, n->in[0], CY_OP_transpose);
  if (!d || perm_of(d)[0] != 0 || !cy_def_of(g, d->in[0], CY_OP_reshape) || !cy_rewrite_single_use(rw, n->in[0]))
    return 0;
  const cy_type *from = type_of(rw, d->in[0]), *transposed = type_of(rw, n->in[0]), *to = type_of(rw, n->out[0]);
  const int64_t *old = perm_of(d);
  int batch = to->rank - from->rank + 1;
  int64_t perm[CY_MAX_RANK];
  cy_dim dims[CY_MAX_RANK], all = cy_dim_const(g, 1);
  if (batch < 2)
    return 0;
  for (int i = 0; i < batch; i++) {
    perm[i] = i;
    dims[i] = to->dim[i];
    all = cy_dim_mul(g, all, dims[i]);
  }
  if (all != from->dim[0])
    return 0;
  for (int i = 1; i < from->rank; i++) {
    if (to->dim[batch - 1 + i] != transposed->dim[i])
      return 0;
    perm[batch - 1 + i] = batch - 1 + old[i];
    dims[batch - 1 + i] = from->dim[i];
  }
  return cy_build_transpose(g, cy_build_reshape(g, d->in[0], dims, to->rank), perm);
}

static cy_val expand_expand(cy_rewrite *rw, const cy_node_info *n) {
  const cy_node_info *d = cy_def_of(rw->g, n->in[0], CY_OP_expand);
  const cy_type *t = type_of(rw, n->out[0]);
  return d ? cy_build_expand(rw->g, d->in[0], t->dim, t->rank) : 0;
}

/* An expand that only adds axes of length 1. */
static cy_val expand_as_reshape(cy_rewrite *rw, const cy_node_info *n) {
  const cy_type *from = type_of(rw, n->in[0]), *to = type_of(rw, n->out[0]);
  int extra = to->rank - from->rank;
  if (extra <= 0)
    return 0;
  for (int i = 0; i < to->rank; i++)
    if (i < extra ? !cy_dim_is(rw->g, to->dim[i], 1) : to->dim[i] != from->dim[i - extra])
      return 0;
  return cy_build_reshape(rw->g, n->in[0], to->dim, to->rank);
}

static cy_val transpose_transpose(cy_rewrite *rw, const cy_node_info *n) {
  const cy_node_info *d = cy_def_of(rw->g, n->in[0], CY_OP_transpose);
  int64_t perm[CY_MAX_RANK];
  if (!d)
    return 0;
  return cy_perm_compose(perm_of(d), perm_of(n), type_of(rw, n->in[0])->rank, perm)
             ? d->in[0]
             : cy_build_transpose(rw->g, d->in[0], perm);
}

/* A transpose that keeps the order of all axes longer than 1. */
static cy_val transpose_units(cy_rewrite *rw, const cy_node_info *n) {
  const cy_type *from = type_of(rw, n->in[0]), *to = type_of(rw, n->out[0]);
  const int64_t *perm = perm_of(n);
  int64_t last = -1;
  for (int i = 0; i < to->rank; i++) {
    if (cy_dim_is(rw->g, from->dim[perm[i]], 1))
      continue;
    if (perm[i] < last)
      return 0;
    last = perm[i];
  }
  return to->rank ? cy_build_reshape(rw->g, n->in[0], to->dim, to->rank) : n->in[0];
}

/* ---- slices ----------------------------------------------------------------------------------------------------- */

static cy_val slice_all(cy_rewrite *rw, const cy_node_info *n) {
  uint32_t rank;
  const int64_t *steps = cy_attr_list(n, CY_ATTR_steps, &rank);
  for (uint32_t i = 0; i < rank; i++)
    if (steps[i] != 1)
      return 0;
  return same_type(rw, n);
}

static cy_val slice_slice(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_node_info *d = cy_def_of(g, n->in[0], CY_OP_slice);
  const cy_type *t = type_of(rw, n->out[0]);
  cy_dim starts[CY_MAX_RANK];
  int64_t steps[CY_MAX_RANK];
  uint32_t rank;
  if (!d)
    return 0;
  const cy_dim *s1 = cy_attr_dim_list(d, CY_ATTR_starts, &rank), *s2 = cy_attr_dim_list(n, CY_ATTR_starts, &rank);
  const int64_t *p1 = cy_attr_list(d, CY_ATTR_steps, &rank), *p2 = cy_attr_list(n, CY_ATTR_steps, &rank);
  for (uint32_t i = 0; i < rank; i++) {
    if (__builtin_mul_overflow(p1[i], p2[i], &steps[i]))
      return 0;
    starts[i] = cy_dim_add(g, s1[i], cy_dim_muli(g, s2[i], p1[i]));
  }
  return cy_build_slice(g, d->in[0], starts, steps, t->dim);
}

/* Gathering one known place, or places in even steps, is a slice: strides, and no copy. */
static cy_val gather_slice(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_type *x = type_of(rw, n->in[0]), *at = type_of(rw, n->in[1]), *to = type_of(rw, n->out[0]);
  uint32_t count = 0;
  const cy_dim *places = at->rank <= 1 ? cy_value_elems(g, n->in[1], &count) : NULL;
  int axis = (int)cy_attr_get_int(n, CY_ATTR_axis, 0);
  int64_t first, second, place, step = 1, steps[CY_MAX_RANK];
  if (!places || !count || !cy_dim_is_const(g, places[0], &first) || first < 0)
    return 0;
  if (count > 1 && (!cy_dim_is_const(g, places[1], &second) || (step = second - first) < 1))
    return 0;
  for (uint32_t i = 2; i < count; i++)
    if (!cy_dim_is_const(g, places[i], &place) || place != first + i * step)
      return 0;
  if (!cy_dim_le(g, cy_dim_const(g, first + (count - 1) * step + 1), x->dim[axis]))
    return 0;
  cy_dim starts[CY_MAX_RANK], sizes[CY_MAX_RANK];
  for (int i = 0; i < x->rank; i++) {
    starts[i] = cy_dim_const(g, i == axis ? first : 0);
    sizes[i] = i == axis ? cy_dim_const(g, count) : x->dim[i];
    steps[i] = i == axis ? step : 1;
  }
  return cy_build_reshape(g, cy_build_slice(g, n->in[0], starts, steps, sizes), to->dim, to->rank);
}

/* The only axis on which slice n takes less than all, with step 1; -1 when there are more or none. */
static int slice_axis(cy_rewrite *rw, const cy_node_info *n) {
  const cy_type *from = type_of(rw, n->in[0]), *to = type_of(rw, n->out[0]);
  uint32_t rank;
  const int64_t *steps = cy_attr_list(n, CY_ATTR_steps, &rank);
  int axis = -1;
  for (uint32_t i = 0; i < rank; i++) {
    if (steps[i] == 1 && from->dim[i] == to->dim[i])
      continue;
    if (steps[i] != 1 || axis >= 0)
      return -1;
    axis = (int)i;
  }
  return axis;
}

/* The part of a concat that a slice falls into. */
static cy_val slice_concat(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_node_info *d = cy_def_of(g, n->in[0], CY_OP_concat);
  int axis = d ? slice_axis(rw, n) : -1;
  if (axis < 0 || cy_attr_get_int(d, CY_ATTR_axis, 0) != axis)
    return 0;
  uint32_t rank;
  cy_dim begin = cy_attr_dim_list(n, CY_ATTR_starts, &rank)[axis], size = type_of(rw, n->out[0])->dim[axis],
         at = cy_dim_const(g, 0);
  cy_dim end = cy_dim_add(g, begin, size);
  for (uint32_t k = 0; k < d->nin; k++) {
    cy_dim next = cy_dim_add(g, at, type_of(rw, d->in[k])->dim[axis]);
    if (cy_dim_le(g, at, begin) && cy_dim_le(g, end, next)) {
      cy_dim offset = cy_dim_sub(g, begin, at);
      if (cy_dim_is(g, offset, 0) && size == type_of(rw, d->in[k])->dim[axis])
        return d->in[k];
      return cy_build_slice_axis(g, d->in[k], axis, offset, size);
    }
    at = next;
  }
  return 0;
}

/* ---- concat ----------------------------------------------------------------------------------------------------- */

enum { MAX_PARTS = 256 };

static cy_val concat_one(cy_rewrite *rw, const cy_node_info *n) {
  (void)rw;
  return n->nin == 1 ? n->in[0] : 0;
}

/* concat(.., concat(a, b), ..) along the same axis; parts of length 0 go. */
static cy_val concat_flat(cy_rewrite *rw, const cy_node_info *n) {
  cy_val parts[MAX_PARTS];
  int64_t axis = cy_attr_get_int(n, CY_ATTR_axis, 0);
  uint32_t count = 0;
  bool changed = false;
  for (uint32_t k = 0; k < n->nin; k++) {
    const cy_node_info *d = cy_def_of(rw->g, n->in[k], CY_OP_concat);
    bool flat = d && cy_attr_get_int(d, CY_ATTR_axis, 0) == axis && cy_rewrite_single_use(rw, n->in[k]);
    const cy_val *from = flat ? d->in : &n->in[k];
    uint32_t more = flat ? d->nin : 1;
    changed |= flat;
    if (!flat && n->nin > 1 && cy_dim_is(rw->g, type_of(rw, n->in[k])->dim[axis], 0)) {
      changed = true;
      continue;
    }
    if (count + more > MAX_PARTS)
      return 0;
    memcpy(&parts[count], from, more * sizeof *parts);
    count += more;
  }
  return changed && count ? cy_build_concat(rw->g, parts, count, (int)axis) : 0;
}

/* Neighbouring slices of one value become one. */
static cy_val concat_slices(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  cy_val parts[MAX_PARTS];
  int axis = (int)cy_attr_get_int(n, CY_ATTR_axis, 0);
  uint32_t count = 0, rank;
  bool changed = false;
  if (n->nin > MAX_PARTS)
    return 0;
  for (uint32_t k = 0; k < n->nin; k++) {
    const cy_node_info *a = count ? cy_def_of(g, parts[count - 1], CY_OP_slice) : NULL,
                       *b = cy_def_of(g, n->in[k], CY_OP_slice);
    if (a && b && a->in[0] == b->in[0] && slice_axis(rw, a) == axis && slice_axis(rw, b) == axis) {
      cy_dim start = cy_attr_dim_list(a, CY_ATTR_starts, &rank)[axis], size = type_of(rw, a->out[0])->dim[axis];
      if (cy_dim_add(g, start, size) == cy_attr_dim_list(b, CY_ATTR_starts, &rank)[axis]) {
        size = cy_dim_add(g, size, type_of(rw, b->out[0])->dim[axis]);
        parts[count - 1] = cy_build_slice_axis(g, a->in[0], axis, start, size);
        changed = true;
        continue;
      }
    }
    parts[count++] = n->in[k];
  }
  return !changed ? 0 : count == 1 ? parts[0] : cy_build_concat(g, parts, count, axis);
}

/* ---- pad -------------------------------------------------------------------------------------------------------- */

static cy_val pad_nothing(cy_rewrite *rw, const cy_node_info *n) {
  uint32_t count;
  const cy_dim *pads = cy_attr_dim_list(n, CY_ATTR_pads, &count);
  for (uint32_t i = 0; i < count; i++)
    if (!cy_dim_is(rw->g, pads[i], 0))
      return 0;
  return n->in[0];
}

/* Padding of the spatial axes with zeros belongs into the convolution, which pads with zeros itself. */
static cy_val conv_of_pad(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_node_info *d = cy_def_of(g, n->in[0], CY_OP_pad);
  uint32_t count, npads;
  const int64_t *old = cy_attr_list(n, CY_ATTR_pads, &npads);
  if (!d || cy_attr_get_int(d, CY_ATTR_mode, 0) != CY_PAD_CONSTANT ||
      (d->nin > 1 && d->in[1] && !cy_splat_is(g, d->in[1], 0)))
    return 0;
  const cy_dim *extra = cy_attr_dim_list(d, CY_ATTR_pads, &count);
  uint32_t rank = count / 2;
  int64_t pads[2 * CY_MAX_RANK], v;
  if (rank < 3 || npads != 2 * (rank - 2))
    return 0;
  for (uint32_t i = 0; i < count; i++) {
    if (!cy_dim_is_const(g, extra[i], &v) || v < 0 || (i % rank < 2 && v != 0))
      return 0;
    if (i % rank >= 2) {
      uint32_t k = i / rank * (rank - 2) + i % rank - 2;
      pads[k] = old[k] + v;
    }
  }
  cy_attr attrs[8];
  if (n->nattrs > 8)
    return 0;
  for (uint32_t i = 0; i < n->nattrs; i++)
    attrs[i] = n->attrs[i].key == CY_ATTR_pads ? cy_attr_ints(CY_ATTR_pads, pads, npads) : n->attrs[i];
  cy_val in[2] = {d->in[0], n->in[1]};
  return n->nin > 2 ? 0 : cy_build(g, CY_OP_conv, in, 2, attrs, n->nattrs, type_of(rw, n->out[0]), 1);
}

/* ---- transposes moving down ------------------------------------------------------------------------------------- */

/* Node n over new inputs, its other attributes kept, the type given for ops that want one. */
static cy_val rebuild(cy_graph *g, const cy_node_info *n, const cy_val *in, const cy_attr *attrs, const cy_type *type) {
  return cy_build(g, (cy_op)n->op, in, n->nin, attrs, n->nattrs, cy_op_of((cy_op)n->op)->typed ? type : NULL,
                  type ? 1 : 0);
}

/* The operand as seen from before the transpose: scalars as they are, constants of full rank transposed back. 0: can't. */
static cy_val transpose_back(cy_rewrite *rw, cy_val v, const int64_t *perm, int rank) {
  const cy_type *t = type_of(rw, v);
  int64_t inverse[CY_MAX_RANK];
  if (t->rank == 0 || cy_type_count(rw->g, t) == 1)
    return v;
  if (!cy_value_is_const(rw->g, v))
    return 0;
  cy_dim dims[CY_MAX_RANK];
  for (int i = 0; i < rank; i++)
    dims[i] = i < rank - t->rank ? cy_dim_const(rw->g, 1) : t->dim[i - (rank - t->rank)];
  cy_perm_invert(perm, rank, inverse);
  if (t->rank < rank)
    v = cy_build_reshape(rw->g, v, dims, rank);
  return cy_build_transpose(rw->g, v, inverse);
}

/* f(transpose(x), transpose(y), constant) = transpose(f(x, y, transposed constant)) */
static cy_val ew_of_transpose(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_type *out = type_of(rw, n->out[0]);
  const int64_t *perm = NULL;
  for (uint32_t k = 0; k < n->nin; k++) {
    const cy_node_info *d = cy_def_of(g, n->in[k], CY_OP_transpose);
    const cy_type *t = type_of(rw, n->in[k]);
    if (cy_value_is_const(g, n->in[k]) || (cy_type_count(g, t) == 1 && !(d && n->nin == 1)))
      continue;
    if (!d || t->rank != out->rank || !cy_rewrite_single_use(rw, n->in[k]))
      return 0;
    if (perm && memcmp(perm, perm_of(d), (size_t)t->rank * sizeof *perm))
      return 0;
    perm = perm_of(d);
  }
  if (!perm)
    return 0;
  cy_val in[3];
  for (uint32_t k = 0; k < n->nin; k++) {
    const cy_node_info *d = cy_def_of(g, n->in[k], CY_OP_transpose);
    bool transposed = d && type_of(rw, n->in[k])->rank == out->rank && !cy_value_is_const(g, n->in[k]) &&
                      !memcmp(perm, perm_of(d), (size_t)out->rank * sizeof *perm);
    in[k] = transposed ? d->in[0] : transpose_back(rw, n->in[k], perm, out->rank);
    if (!in[k])
      return 0;
  }
  cy_type type = *out;
  for (int i = 0; i < out->rank; i++)
    type.dim[perm[i]] = out->dim[i];
  cy_val r = rebuild(g, n, in, n->attrs, &type);
  return r ? cy_build_transpose(g, r, perm) : 0;
}

/* softmax, log_softmax, normalize along axes of a transpose: along the axes before it. */
static cy_val rows_of_transpose(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_node_info *d = cy_def_of(g, n->in[0], CY_OP_transpose);
  int rank = type_of(rw, n->in[0])->rank;
  int64_t axes[CY_MAX_RANK];
  cy_attr attrs[8];
  if (!d || n->nattrs > 8 || !cy_rewrite_single_use(rw, n->in[0]))
    return 0;
  const int64_t *perm = perm_of(d);
  memcpy(attrs, n->attrs, n->nattrs * sizeof *attrs);
  for (uint32_t i = 0; i < n->nattrs; i++) {
    if (attrs[i].key == CY_ATTR_axis) {
      attrs[i] = cy_attr_int(CY_ATTR_axis, perm[attrs[i].i < 0 ? attrs[i].i + rank : attrs[i].i]);
    } else if (attrs[i].key == CY_ATTR_axes) {
      for (uint32_t k = 0; k < attrs[i].n; k++)
        axes[k] = perm[attrs[i].ints[k] < 0 ? attrs[i].ints[k] + rank : attrs[i].ints[k]];
      attrs[i] = cy_attr_ints(CY_ATTR_axes, axes, attrs[i].n);
    }
  }
  cy_val r = cy_build(g, (cy_op)n->op, d->in, 1, attrs, n->nattrs, NULL, 0);
  return r ? cy_build_transpose(g, r, perm) : 0;
}

/* A reduction of a transpose: of what was transposed; the axes that stay are transposed behind it. Only where nobody
 * else wants the transpose: in spelled-out normalisations and softmax, `recognise` looks for one value read twice. */
static cy_val reduce_of_transpose(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_node_info *d = cy_def_of(g, n->in[0], CY_OP_transpose);
  int rank = type_of(rw, n->in[0])->rank, kept = 0;
  bool reduced[CY_MAX_RANK], gone[CY_MAX_RANK] = {false};
  if (!d || !cy_rewrite_single_use(rw, n->in[0]) || !cy_axes_of(n, rank, reduced))
    return 0;
  const int64_t *perm = perm_of(d);
  bool keepdims = cy_attr_get_int(n, CY_ATTR_keepdims, 1) != 0;
  int64_t axes[CY_MAX_RANK], rest[CY_MAX_RANK];
  uint32_t naxes = 0;
  for (int i = 0; i < rank; i++)
    if (reduced[i])
      gone[axes[naxes++] = perm[i]] = true;
  cy_val r = cy_build_reduce(g, (cy_op)n->op, d->in[0], axes, naxes, keepdims);
  if (keepdims)
    return r ? cy_build_transpose(g, r, perm) : 0;
  for (int i = 0; i < rank; i++) {
    if (reduced[i])
      continue;
    int64_t at = 0;
    for (int64_t k = 0; k < perm[i]; k++)
      at += !gone[k];
    rest[kept++] = at;
  }
  return !r ? 0 : kept ? cy_build_transpose(g, r, rest) : r;
}

static cy_val concat_of_transposes(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  cy_val in[MAX_PARTS];
  const int64_t *perm = NULL;
  if (n->nin > MAX_PARTS)
    return 0;
  for (uint32_t k = 0; k < n->nin; k++) {
    const cy_node_info *d = cy_def_of(g, n->in[k], CY_OP_transpose);
    if (!d || !cy_rewrite_single_use(rw, n->in[k]) ||
        (perm && memcmp(perm, perm_of(d), type_of(rw, n->in[k])->rank * sizeof *perm)))
      return 0;
    perm = perm_of(d);
    in[k] = d->in[0];
  }
  cy_val r = cy_build_concat(g, in, n->nin, (int)perm[cy_attr_get_int(n, CY_ATTR_axis, 0)]);
  return r ? cy_build_transpose(g, r, perm) : 0;
}

/* ---- reductions ------------------------------------------------------------------------------------------------- */

/* A reduction over axes of length 1, or over none. */
static cy_val reduce_nothing(cy_rewrite *rw, const cy_node_info *n) {
  const cy_type *from = type_of(rw, n->in[0]), *to = type_of(rw, n->out[0]);
  bool reduced[CY_MAX_RANK];
  if (!cy_axes_of(n, from->rank, reduced))
    return 0;
  for (int i = 0; i < from->rank; i++)
    if (reduced[i] && !cy_dim_is(rw->g, from->dim[i], 1))
      return 0;
  return cy_type_equal(from, to) ? n->in[0] : cy_build_reshape(rw->g, n->in[0], to->dim, to->rank);
}

/* The same reduction twice: all axes at once. */
static cy_val reduce_reduce(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_node_info *d = cy_def_of(g, n->in[0], (cy_op)n->op);
  bool first[CY_MAX_RANK], second[CY_MAX_RANK];
  if (!d || !cy_rewrite_single_use(rw, n->in[0]))
    return 0;
  int rank = type_of(rw, d->in[0])->rank, k = 0;
  bool kept1 = cy_attr_get_int(d, CY_ATTR_keepdims, 1) != 0, kept2 = cy_attr_get_int(n, CY_ATTR_keepdims, 1) != 0;
  if (!cy_axes_of(d, rank, first) || !cy_axes_of(n, type_of(rw, n->in[0])->rank, second))
    return 0;
  int64_t axes[CY_MAX_RANK];
  uint32_t naxes = 0;
  for (int i = 0; i < rank; i++) {
    bool again = (kept1 || !first[i]) && second[k++];
    if (first[i] || again)
      axes[naxes++] = i;
  }
  cy_val r = cy_build_reduce(g, (cy_op)n->op, d->in[0], axes, naxes, kept1 && kept2);
  const cy_type *to = type_of(rw, n->out[0]);
  return !r || cy_type_equal(type_of(rw, r), to) ? r : cy_build_reshape(g, r, to->dim, to->rank);
}

/* ---- the set ---------------------------------------------------------------------------------------------------- */

/* x as it broadcasts to dims d of rank r: axes of other sizes, which are 1 or that, are made explicit. */
static cy_val within(cy_graph *g, cy_val x, const cy_dim *d, int r) {
  const cy_type *t = cy_type_of(g, x);
  cy_dim to[CY_MAX_RANK];
  for (int i = 0; i < t->rank; i++)
    to[i] = cy_dim_is(g, t->dim[i], 1) ? t->dim[i] : d[r - t->rank + i];
  return cy_build_expand(g, x, to, t->rank);
}

/* An element-wise result that has as many elements as one of its operands: broadcasting only ever adds to these, so it did
 * not. Behind it the reshape says how many there are, while in front of it encoder and decoder, whose batches have
 * different names, seemed to broadcast. (Without elements, sizes do not matter.) */
static cy_val not_broadcast(cy_rewrite *rw, const cy_node_info *n) {
  cy_graph *g = rw->g;
  const cy_node_info *ew = cy_def(g, n->in[0]);
  cy_dim count = cy_type_elems(g, cy_type_of(g, n->out[0]));
  cy_val in[CY_MAX_RANK];
  if (!ew || !cy_op_is_ew((cy_op)ew->op) || ew->nin < 2 || ew->nin > 3 || !cy_rewrite_single_use(rw, n->in[0]) ||
      cy_type_elems(g, cy_type_of(g, n->in[0])) == count)
    return 0;
  for (uint32_t k = 0; k < ew->nin; k++) {
    const cy_type t = *cy_type_of(g, ew->in[k]);
    if (t.rank != cy_type_of(g, n->in[0])->rank || cy_type_elems(g, &t) != count)
      continue;
    for (uint32_t i = 0; i < ew->nin; i++)
      in[i] = i == k ? ew->in[i] : within(g, ew->in[i], t.dim, t.rank);
    cy_val y = cy_build(g, (cy_op)ew->op, in, ew->nin, ew->attrs, ew->nattrs, NULL, 1);
    return cy_build_reshape(g, y, cy_type_of(g, n->out[0])->dim, cy_type_of(g, n->out[0])->rank);
  }
  return 0;
}

static const cy_rule rules[] = {
    {CY_OP_identity, "identity", identity},
    {CY_OP_reshape, "reshape to the same", same_type},
    {CY_OP_reshape, "reshape reshape", reshape_reshape},
    {CY_OP_reshape, "reshape transpose reshape", unmerged_transpose},
    {CY_OP_reshape, "reshape of what did not broadcast", not_broadcast},
    {CY_OP_expand, "expand to the same", same_type},
    {CY_OP_expand, "expand expand", expand_expand},
    {CY_OP_expand, "expand adds units", expand_as_reshape},
    {CY_OP_transpose, "transpose transpose", transpose_transpose},
    {CY_OP_transpose, "transpose of units", transpose_units},
    {CY_OP_slice, "slice of all", slice_all},
    {CY_OP_slice, "slice slice", slice_slice},
    {CY_OP_slice, "slice concat", slice_concat},
    {CY_OP_gather, "gather of a stretch", gather_slice},
    {CY_OP_concat, "concat of one", concat_one},
    {CY_OP_concat, "concat concat", concat_flat},
    {CY_OP_concat, "concat slices", concat_slices},
    {CY_OP_pad, "pad by nothing", pad_nothing},
    {CY_OP_conv, "conv pad", conv_of_pad},
    {CY_RULE_ANY_EW, "transpose below element-wise", ew_of_transpose},
    {CY_OP_softmax, "transpose below rows", rows_of_transpose},
    {CY_OP_log_softmax, "transpose below rows", rows_of_transpose},
    {CY_OP_normalize, "transpose below rows", rows_of_transpose},
    {CY_OP_concat, "transpose below concat", concat_of_transposes},
#define REDUCE(op)                                                                                                     \
  {CY_OP_##op, "reduce of nothing", reduce_nothing}, {CY_OP_##op, "reduce reduce", reduce_reduce}, {                   \
    CY_OP_##op, "reduce transpose", reduce_of_transpose                                                                \
  }
    REDUCE(reduce_sum),
    REDUCE(reduce_prod),
    REDUCE(reduce_min),
    REDUCE(reduce_max),
#undef REDUCE
};

cy_rule_set cy_simplify_view_rules(void) { return (cy_rule_set){rules, sizeof rules / sizeof rules[0]}; }
