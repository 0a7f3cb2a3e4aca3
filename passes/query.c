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
