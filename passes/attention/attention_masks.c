/* SPDX-License-Identifier: Apache-2.0 */
/* attention_masks.c - what attention's masks are written as: constant triangles, and products.
 *
 * Triangles: a constant, or a slice of one, that lets each row see a key more than the row before becomes causality.
 *
 * Products, as tf2onnx spells a Where of floats. In: softmax(s * m + c * (1 - m)): m, and what stands for 1 - m, are a
 * mask's and its negation's casts, or constants of zeros and ones; c is a number, or s itself plus one so low that s only
 * changes which of the hidden keys weighs how much when a row sees none. Out: softmax(select(mask, s, c)), or softmax(s +
 * select(mask, 0, low)). Both are the same for finite scores; of one that is not finite and masked the product is NaN, what
 * was meant is not.
 */
#include "attention_int.h"

/* ---- masks that are constant triangles ---- */

typedef struct triangle {
  const cy_value *v;
  int64_t rows, columns;
} triangle;

/* Is key j seen by row i? -1: the element is neither. */
static int seen_in(const triangle *t, int64_t i, int64_t j) {
  cy_dtype dtype = (cy_dtype)t->v->type.dtype;
  cy_scalar s = cy_scalar_load(t->v->data.bytes, dtype, (uint64_t)(i * t->columns + j));
  if (dtype == CY_BOOL)
    return s.i != 0;
  return s.f == 0 ? 1 : s.f <= CY_ATTENTION_HIDDEN ? 0 : -1;
}

/* The constant lets row i see keys up to i + *out_offset and no others. */
static bool is_triangle(const triangle *t, int64_t *out_offset) {
  int64_t seen = 0;
  while (seen < t->columns && seen_in(t, 0, seen) == 1)
    seen++;
  *out_offset = seen - 1;
  for (int64_t i = 0; i < t->rows; i++)
    for (int64_t j = 0; j < t->columns; j++)
      if (seen_in(t, i, j) != (j <= i + *out_offset))
        return false;
  return t->rows > 1 && t->columns > 1;
}

/* x, a triangular constant or a slice of one: sets the keys before the first row. */
bool cy_attention_causal_past(cy_graph *g, cy_val x, cy_dim *out_past) {
  const cy_node_info *slice = cy_def_of(g, x, CY_OP_slice);
  const cy_value *v = cy_value_of(g, slice ? slice->in[0] : x);
  int r = v->type.rank;
  triangle t = {.v = v};
  int64_t offset;
  uint32_t n;
  if (r < 2 || !v->data.bytes || (v->type.dtype != CY_BOOL && v->type.dtype != CY_F32) ||
      !cy_dim_is_const(g, v->type.dim[r - 2], &t.rows) || !cy_dim_is_const(g, v->type.dim[r - 1], &t.columns))
    return false;
  for (int i = 0; i < r - 2; i++)
    if (!cy_dim_is(g, v->type.dim[i], 1))
      return false;
  if (!is_triangle(&t, &offset))
    return false;
  *out_past = cy_dim_const(g, offset);
  if (slice) {
    const cy_dim *starts = cy_attr_dim_list(slice, CY_ATTR_starts, &n);
    const int64_t *steps = cy_attr_list(slice, CY_ATTR_steps, &n);
    if (steps[r - 1] != 1 || steps[r - 2] != 1)
      return false;
    *out_past = cy_dim_add(g, *out_past, cy_dim_sub(g, starts[r - 2], starts[r - 1]));
  }
  return cy_dim_le(g, cy_dim_const(g, 0), *out_past); /* every row sees a key, so that its fill does not matter */
}

/* ---- products ---- */

cy_val cy_attention_seen_at(cy_graph *g, const cy_value *numbers, float one) {
  const cy_data_f32 *number = numbers->data.bytes;
  int64_t count = cy_type_count(g, &numbers->type);
  cy_type t = numbers->type;
  cy_val mask;
  t.dtype = CY_BOOL;
  bool *see = cy_const_new(g, &t, &mask);
  for (int64_t i = 0; i < count; i++)
    see[i] = number[i] == one;
  return mask;
}

/* x is cast(mask): the mask without its negations, whose number is odd if *out_odd; else 0. */
static cy_val mask_of(const cy_graph *g, cy_val x, bool *out_odd) {
  const cy_node_info *n = cy_def_of(g, x, CY_OP_cast);
  cy_val mask = n && cy_type_of(g, n->in[0])->dtype == CY_BOOL ? n->in[0] : 0;
  *out_odd = false;
  for (n = mask ? cy_def_of(g, mask, CY_OP_not) : NULL; n; n = cy_def_of(g, mask, CY_OP_not)) {
    mask = n->in[0];
    *out_odd = !*out_odd;
  }
  return mask;
}

/* Constants of zeros and ones whose sum is 1. */
static bool are_opposite(cy_graph *g, const cy_value *a, const cy_value *b) {
  const cy_data_f32 *x = a->data.bytes, *y = b->data.bytes;
  if (!x || !y || a->type.dtype != CY_F32 || b->type.dtype != CY_F32 || !cy_same_shape(&a->type, &b->type))
    return false;
  int64_t count = cy_type_count(g, &a->type);
  for (int64_t i = 0; i < count; i++)
    if (!((x[i] == 0 && y[i] == 1) || (x[i] == 1 && y[i] == 0)))
      return false;
  return true;
}

/* What is true where `ones` is 1, if `rest` is 1 - ones; else 0. */
static cy_val mask_between(cy_graph *g, cy_val ones, cy_val rest) {
  bool odd, rest_odd;
  cy_val mask = mask_of(g, ones, &odd), other = mask_of(g, rest, &rest_odd);
  if (mask)
    return mask == other && odd != rest_odd ? cy_def(g, ones)->in[0] : 0;
  return are_opposite(g, cy_value_of(g, ones), cy_value_of(g, rest)) ? cy_attention_seen_at(g, cy_value_of(g, ones), 1)
                                                                     : 0;
}

/* A mask that a view of the same rank repeats broadcasts by itself. */
static cy_val unexpanded(const cy_graph *g, cy_val mask) {
  const cy_node_info *wide = cy_def_of(g, mask, CY_OP_expand);
  return wide && cy_type_of(g, wide->in[0])->rank == cy_type_of(g, mask)->rank ? wide->in[0] : mask;
}

/* s where the mask is true, c elsewhere; 0: c is something else. */
static cy_val masked(cy_graph *g, cy_val mask, cy_val s, cy_val c) {
  const cy_node_info *sum = cy_def_of(g, c, CY_OP_add);
  double low;
  if (cy_value_is_const(g, c) && cy_type_count(g, cy_type_of(g, c)) == 1)
    return cy_build_select(g, unexpanded(g, mask), s, c);
  if (!sum || sum->in[0] != s || !cy_value_is_const(g, sum->in[1]) || !cy_value_is_splat(g, sum->in[1], &low) ||
      low > CY_ATTENTION_HIDDEN)
    return 0;
  cy_val zero = cy_build_like(g, s, 0), added = cy_build_like(g, s, low);
  return cy_build_binary(g, CY_OP_add, s, cy_build_select(g, unexpanded(g, mask), zero, added));
}

cy_val cy_attention_masked(cy_rewrite *rw, const cy_node_info *softmax) {
  cy_graph *g = rw->g;
  const cy_type *t = cy_type_of(g, softmax->in[0]);
  const cy_node_info *sum = cy_def_of(g, softmax->in[0], CY_OP_add);
  if (!sum || t->dtype != CY_F32 || !cy_rewrite_single_use(rw, sum->out[0]))
    return 0;
  for (int way = 0; way < 8; way++) { /* which term has the scores, which factors are the masks */
    const cy_node_info *kept = cy_def_of(g, sum->in[way & 1], CY_OP_mul);
    const cy_node_info *filled = cy_def_of(g, sum->in[1 - (way & 1)], CY_OP_mul);
    int at = way >> 1 & 1, rest = way >> 2;
    if (!kept || !filled || cy_type_of(g, kept->in[1 - at])->rank != t->rank)
      continue;
    cy_val mask = mask_between(g, kept->in[at], filled->in[rest]);
    cy_val scores = mask ? masked(g, mask, kept->in[1 - at], filled->in[1 - rest]) : 0;
    if (scores)
      return cy_build(g, CY_OP_softmax, &scores, 1, cy_attr_find(softmax, CY_ATTR_axis), 1, NULL, 1);
  }
  return 0;
}
