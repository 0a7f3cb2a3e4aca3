/* SPDX-License-Identifier: Apache-2.0 */
/* query.c - small questions about nodes, types, constants and layouts that several passes ask.
 *
 * In: a graph and ids. Out: answers; only cy_const_new() adds anything to the graph. Nothing here files diagnostics.
 */
#include "pass_int.h"

#include <string.h>

cy_node_info *cy_def(const cy_graph *g, cy_val v) {
  cy_node n = v ? cy_value_of(g, v)->node : 0;
  return n ? cy_node_of(g, n) : NULL;
}

cy_node_info *cy_def_of(const cy_graph *g, cy_val v, cy_op op) {
  cy_node_info *n = cy_def(g, v);
  return n && n->op == op ? n : NULL;
}

bool cy_block_encloses(const cy_graph *g, cy_block outer, cy_block b) {
  while (b && b != outer)
    b = cy_block_of(g, b)->parent;
  return b == outer;
}

bool cy_splat_is(cy_graph *g, cy_val v, double want) {
  double have;
  return v && cy_value_is_const(g, v) && cy_value_is_splat(g, v, &have) && have == want;
}

bool cy_type_static(const cy_graph *g, const cy_type *t, int64_t *out_dims) {
  for (int i = 0; i < t->rank; i++) {
    int64_t d;
    if (!cy_dim_is_const(g, t->dim[i], &d))
      return false;
    if (out_dims)
      out_dims[i] = d;
  }
  return true;
}

bool cy_same_shape(const cy_type *a, const cy_type *b) {
  return a->rank == b->rank && !memcmp(a->dim, b->dim, a->rank * sizeof *a->dim);
}

uint64_t cy_type_count(const cy_graph *g, const cy_type *t) {
  int64_t d[CY_MAX_RANK];
  uint64_t n = 1;
  if (!cy_type_static(g, t, d))
    return 0;
  for (int i = 0; i < t->rank; i++)
    if (d[i] < 0 || !cy_mul_size(n, (uint64_t)d[i], &n))
      return 0;
  return n;
}

const int64_t *cy_attr_list(const cy_node_info *n, cy_attr_key key, uint32_t *out_n) {
  const cy_attr *a = cy_attr_find(n, key);
  *out_n = a ? a->n : 0;
  return a ? a->ints : NULL;
}

const cy_dim *cy_attr_dim_list(const cy_node_info *n, cy_attr_key key, uint32_t *out_n) {
  const cy_attr *a = cy_attr_find(n, key);
  *out_n = a ? a->n : 0;
  return a ? a->dims : NULL;
}

/* transpose(transpose(x, inner), outer) = transpose(x, out) */
bool cy_perm_compose(const int64_t *inner, const int64_t *outer, int rank, int64_t *out) {
  bool same = true;
  for (int i = 0; i < rank; i++) {
    out[i] = inner[outer[i]];
    same &= out[i] == i;
  }
  return same;
}

void cy_perm_invert(const int64_t *perm, int rank, int64_t *out) {
  for (int i = 0; i < rank; i++)
    out[perm[i]] = i;
}

bool cy_axes_of(const cy_node_info *n, int rank, bool *out_axes) {
  uint32_t count;
  const int64_t *axes = cy_attr_list(n, CY_ATTR_axes, &count);
  memset(out_axes, 0, CY_MAX_RANK * sizeof *out_axes);
  for (uint32_t i = 0; i < count; i++) {
    int64_t a = axes[i] < 0 ? axes[i] + rank : axes[i];
    if (a < 0 || a >= rank)
      return false;
    out_axes[a] = true;
  }
  return true;
}

void cy_layout_reset(cy_value *v) {
  for (int i = 0; i < CY_MAX_RANK; i++)
    v->layout[i] = (uint8_t)i;
}

bool cy_layout_is_row_major(const cy_value *v) {
  for (int i = 0; i < v->type.rank; i++)
    if (v->layout[i] != i)
      return false;
  return true;
}

/* Significant bits and exponent bits of the floating types that casts meet; integers count value bits. */
static bool float_shape(cy_dtype t, int *digits, int *exponent) {
  switch (t) {
  case CY_F64:
    *digits = 53, *exponent = 11;
    return true;
  case CY_F32:
    *digits = 24, *exponent = 8;
    return true;
  case CY_F16:
    *digits = 11, *exponent = 5;
    return true;
  case CY_BF16:
    *digits = 8, *exponent = 8;
    return true;
  default:
    return false;
  }
}

bool cy_cast_lossless(cy_dtype from, cy_dtype to) {
  const cy_dtype_info *f = cy_dtype_of(from), *t = cy_dtype_of(to);
  int fd, fe, td, te;
  if (from == to)
    return true;
  bool from_int = f->cls == 'I' || f->cls == 'U', to_int = t->cls == 'I' || t->cls == 'U';
  if (f->cls == 'B')
    return to_int || float_shape(to, &td, &te);
  if (from_int && to_int)
    return f->cls == t->cls ? f->bits <= t->bits : f->cls == 'U' && f->bits < t->bits;
  if (!float_shape(to, &td, &te))
    return false;
  if (from_int)
    return f->bits - (f->cls == 'I') <= td && (te > 5 || f->bits <= 8);
  return float_shape(from, &fd, &fe) && fd <= td && fe <= te;
}

void *cy_const_new(cy_graph *g, const cy_type *type, cy_val *out) {
  uint64_t size = (cy_type_count(g, type) * (uint64_t)cy_dtype_of((cy_dtype)type->dtype)->bits + 7) / 8;
  void *bytes = cy_arena_alloc(cy_graph_arena(g), size ? size : 1);
  *out = cy_build_const(g, type, bytes, size);
  return bytes;
}

void cy_const_made_of(cy_graph *g, cy_val v, cy_val from) {
  if (v && v != from)
    cy_value_of(g, v)->source = cy_const_source(g, from);
}

static bool never_negative(cy_graph *g, cy_val v, int depth) {
  const cy_node_info *n = cy_def(g, v);
  cy_dtype t = (cy_dtype)cy_type_of(g, v)->dtype;
  double splat;
  if (!cy_dtype_is_float(t)) /* sums of signed integers may wrap */
    return cy_dtype_of(t)->cls == 'U';
  if (cy_value_is_const(g, v))
    return cy_value_is_splat(g, v, &splat) && splat >= 0;
  if (!n || !depth)
    return false;
  if (cy_node_op(n)->never_negative)
    return true;
#define IS(k) never_negative(g, n->in[k], depth - 1)
  if (cy_node_op(n)->keeps_positive)
    return IS(0) && (cy_node_op(n)->cls != CY_CLASS_EW || n->nin < 2 || IS(1));
  switch (n->op) {
  case CY_OP_max:
    return IS(1) || IS(0); /* constants come second */
  case CY_OP_mul:
    return n->in[0] == n->in[1] || (IS(0) && IS(1));
  case CY_OP_select:
    return IS(1) && IS(2);
  case CY_OP_resize:
    return cy_attr_get_int(n, CY_ATTR_mode, CY_RESIZE_CUBIC) != CY_RESIZE_CUBIC &&
           cy_attr_get_int(n, CY_ATTR_coord, CY_COORD_TF_CROP) != CY_COORD_TF_CROP && IS(0);
  case CY_OP_concat:
    for (uint32_t k = 0; k < n->nin; k++)
      if (!IS(k))
        return false;
    return true;
  case CY_OP_reduce_max: /* of nothing: -inf */
    return cy_type_count(g, cy_type_of(g, n->in[0])) && IS(0);
  case CY_OP_pad:
    return IS(0) && (n->nin < 2 || !n->in[1] || IS(1));
  default:
    return false;
  }
#undef IS
}

bool cy_resizes_axis(const cy_node_info *n, const cy_type *in, const cy_type *out, int axis) {
  const cy_attr *scales = cy_attr_find(n, CY_ATTR_scales);
  bool scaled = scales && scales->n == in->rank && scales->floats[axis] > 0 && scales->floats[axis] != 1;
  return in->dim[axis] != out->dim[axis] || scaled ||
         cy_attr_get_int(n, CY_ATTR_coord, CY_COORD_HALF_PIXEL) == CY_COORD_TF_CROP;
}

bool cy_never_negative(cy_graph *g, cy_val v) {
  enum { DEPTH = 12 };
  return never_negative(g, v, DEPTH);
}
