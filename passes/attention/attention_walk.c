/* SPDX-License-Identifier: Apache-2.0 */
/* attention_walk.c - from softmax back to the product of q and k: what lies between them in a spelled-out attention.
 *
 * In:  what softmax reads. Out: a cy_attention_match with that product, and all that changes the scores on the way, each
 * with the factor that is outside of it and the shape that the scores have there.
 *
 * The walk goes from the result to what it is made of, so what it meets first is applied last. Where a sum may hold
 * the scores on either side, or a product on either, both are tried: the match is kept as it was before the first try.
 */
#include "attention_int.h"

#include <math.h>

enum { MAX_DEPTH = 16 };

typedef cy_attention_match match;
typedef cy_attention_addend addend;

/* Equal shapes, or different only where sizes are symbols of which the model promises that they agree. */
static bool like_shape(const cy_graph *g, const cy_type *a, const cy_type *b) {
  if (a->rank != b->rank)
    return false;
  for (int i = 0; i < a->rank; i++) {
    int64_t v;
    if (a->dim[i] != b->dim[i] && (cy_dim_is_const(g, a->dim[i], &v) || cy_dim_is_const(g, b->dim[i], &v)))
      return false;
  }
  return true;
}

bool cy_attention_same_rows(cy_graph *g, const cy_type *a, const cy_type *b) {
  int64_t v;
  if (a->rank < 2 || b->rank < 2 || a->dim[a->rank - 2] != b->dim[b->rank - 2])
    return false;
  cy_dim keys_a = a->dim[a->rank - 1], keys_b = b->dim[b->rank - 1], rows_a = cy_dim_const(g, 1), rows_b = rows_a;
  if (keys_a == keys_b)
    return true;
  for (int i = 0; i < a->rank - 1; i++)
    rows_a = cy_dim_mul(g, rows_a, a->dim[i]);
  for (int i = 0; i < b->rank - 1; i++)
    rows_b = cy_dim_mul(g, rows_b, b->dim[i]);
  return rows_a == rows_b && !cy_dim_is_const(g, keys_a, &v) && !cy_dim_is_const(g, keys_b, &v);
}

static bool walk(match *m, cy_val v, int depth);
static bool walk_read(match *m, cy_val v, int depth);

/* Can what is added here be a bias? Biases are added behind softcap. */
static bool takes_bias(const match *m) { return m->nbias < CY_ATTENTION_BIASES && m->softcap == 0; }

static bool walk_addition(match *m, const cy_node_info *n, int which, int depth) {
  cy_graph *g = m->g;
  cy_val s = n->in[which], b = n->in[1 - which];
  double sign = n->op == CY_OP_sub ? -1 : 1;
  if (!takes_bias(m) || !like_shape(g, cy_type_of(g, s), cy_type_of(g, n->out[0])) ||
      cy_type_of(g, b)->rank > cy_type_of(g, s)->rank || s == b)
    return false;
  match before = *m;
  m->bias[m->nbias++] = (addend){b, *cy_type_of(g, s), m->factor * sign, 0};
  if (walk(m, s, depth + 1))
    return true;
  *m = before;
  return false;
}

static bool walk_select(match *m, const cy_node_info *n, int depth) {
  cy_graph *g = m->g;
  double fill;
  for (int which = 1; which <= 2; which++) {
    cy_val s = n->in[which];
    if (!cy_attention_number(g, n->in[3 - which], &fill) || m->nmask == CY_ATTENTION_BIASES ||
        !like_shape(g, cy_type_of(g, s), cy_type_of(g, n->out[0])))
      continue;
    fill *= m->factor;
    addend mask = {n->in[0], *cy_type_of(g, s), which == 1 ? 1 : -1, 0};
    bool finite = fill != -INFINITY;
    if (m->factor <= 0 || m->softcap != 0 || isnan(fill) || fill == 0)
      return false;
    if (finite && m->nbias) {
      if (fill > cy_attention_lowest || m->nbias == CY_ATTENTION_BIASES || m->nmask)
        return false;
      mask.low = fill;
      m->bias[m->nbias++] = mask;
    } else {
      if (m->nmask && fill != m->fill)
        return false;
      m->fill = fill;
      m->mask[m->nmask++] = mask;
    }
    return walk(m, s, depth + 1);
  }
  return false;
}

/* s * ones + (1 - ones) * c, ones a slice of a constant of zeros and ones: masked by c. */
static bool walk_sliced_product(match *m, const cy_node_info *n, int depth) {
  cy_graph *g = m->g;
  const cy_node_info *bias = m->nbias == 1 ? cy_def_of(g, m->bias[0].v, CY_OP_mul) : NULL;
  const cy_node_info *rest = bias ? cy_def_of(g, bias->in[0], CY_OP_sub) : NULL;
  double fill;
  if (m->factor <= 0 || m->softcap != 0 || m->nmask || m->bias[0].low != 0 || !rest ||
      !cy_splat_is(g, rest->in[0], 1) || !cy_attention_number(g, bias->in[1], &fill))
    return false;
  int at = n->in[1] == rest->in[1] ? 1 : 0;
  const cy_node_info *slice = cy_def_of(g, n->in[at], CY_OP_slice);
  const cy_value *ones = slice ? cy_value_of(g, slice->in[0]) : NULL;
  cy_val s = n->in[1 - at];
  fill *= m->bias[0].factor;
  if (n->in[at] != rest->in[1] || !ones || !ones->data.bytes || ones->type.dtype != CY_F32 || !(fill < 0) ||
      !like_shape(g, cy_type_of(g, s), cy_type_of(g, n->out[0])))
    return false;
  int64_t count = cy_type_count(g, &ones->type);
  const cy_data_f32 *one = ones->data.bytes;
  for (int64_t i = 0; i < count; i++)
    if (one[i] != 0 && one[i] != 1)
      return false;
  uint32_t rank;
  cy_val mask = cy_build_slice(g, cy_attention_seen_at(g, ones, 1), cy_attr_dim_list(slice, CY_ATTR_starts, &rank),
                               cy_attr_list(slice, CY_ATTR_steps, &rank), cy_type_of(g, slice->out[0])->dim);
  m->nbias = 0;
  m->fill = fill;
  m->mask[m->nmask++] = (addend){mask, *cy_type_of(g, s), 1, 0};
  return walk(m, s, depth + 1);
}

/* s * ones + b: constants ones, of zeros and ones, and b, alone outside, a number where they are zero, else 0. */
static bool walk_product(match *m, const cy_node_info *n, int depth) {
  cy_graph *g = m->g;
  int at = cy_value_of(g, n->in[1])->data.bytes ? 1 : 0;
  const cy_value *ones = cy_value_of(g, n->in[at]), *b = m->nbias == 1 ? cy_value_of(g, m->bias[0].v) : NULL;
  if (m->factor <= 0 || m->softcap != 0 || m->nmask || !b || m->bias[0].low != 0 || !b->data.bytes ||
      !ones->data.bytes || b->type.dtype != CY_F32 || ones->type.dtype != CY_F32 ||
      !cy_same_shape(&b->type, &ones->type) || !like_shape(g, cy_type_of(g, n->in[1 - at]), cy_type_of(g, n->out[0])))
    return false;
  int64_t count = cy_type_count(g, &b->type);
  const cy_data_f32 *one = ones->data.bytes, *add = b->data.bytes;
  double fill = 0;
  for (int64_t i = 0; i < count; i++) {
    float seen = one[i], more = add[i];
    if ((seen != 0 && seen != 1) || (seen == 1 && more != 0) || (seen == 0 && !(more < 0)) ||
        (seen == 0 && fill != 0 && more != fill))
      return false;
    fill = seen == 0 ? more : fill;
  }
  if (fill == 0)
    return false;
  m->nbias = 0;
  m->fill = fill * m->bias[0].factor;
  m->mask[m->nmask++] = (addend){cy_attention_seen_at(g, ones, 1), *cy_type_of(g, n->in[1 - at]), 1, 0};
  return walk(m, n->in[1 - at], depth + 1);
}

/* s * c, c one number for all keys: q's rows take it. */
static bool walk_rows(match *m, const cy_node_info *n, int depth) {
  cy_graph *g = m->g;
  for (int k = 0; k < 2; k++) {
    cy_val s = n->in[k], c = n->in[1 - k];
    const cy_type *t = cy_type_of(g, c), *scores = cy_type_of(g, s);
    if (s == c || t->rank < 2 || t->rank > scores->rank || !cy_dim_is(g, t->dim[t->rank - 1], 1) ||
        !like_shape(g, scores, cy_type_of(g, n->out[0])))
      continue;
    match before = *m;
    m->rows = (addend){c, *scores, 1, 0};
    if (walk(m, s, depth + 1))
      return true;
    *m = before;
  }
  return false;
}

/* reshape(reshape(s) + a + ..), of s's shape: what is added where rows and keys have axes of their own (positions in a
 * feature map) becomes a bias of s. */
static bool walk_grid(match *m, const cy_node_info *back, int depth) {
  cy_graph *g = m->g;
  cy_val v = back->in[0], added[CY_ATTENTION_BIASES], sum;
  const cy_type view = *cy_type_of(g, back->out[0]), grid = *cy_type_of(g, v);
  const cy_node_info *n = cy_def(g, v);
  int count = 0;
  for (; n && n->op == CY_OP_add && count < CY_ATTENTION_BIASES; n = cy_def(g, v)) {
    if (!cy_rewrite_single_use(m->rw, v) || cy_rewrite_is_result(m->rw, v))
      return false;
    int scores = cy_same_shape(cy_type_of(g, n->in[0]), &grid) ? 0 : 1;
    added[count++] = n->in[1 - scores];
    v = n->in[scores];
  }
  if (!count || !takes_bias(m) || !n || n->op != CY_OP_reshape || !cy_rewrite_single_use(m->rw, v) ||
      cy_rewrite_is_result(m->rw, v) || !cy_same_shape(cy_type_of(g, n->in[0]), &view))
    return false;
  cy_val s = n->in[0];
  sum = added[0];
  for (int i = 1; i < count; i++)
    sum = cy_build_binary(g, CY_OP_add, sum, added[i]);
  sum = cy_build_reshape(g, cy_build_expand(g, sum, grid.dim, grid.rank), view.dim, view.rank);
  m->bias[m->nbias++] = (addend){sum, view, m->factor, 0};
  return walk(m, s, depth + 1);
}

/* s with something added to a window of it, put together from parts: that is a bias. */
static bool walk_windows(match *m, cy_val v, int depth) {
  cy_val bias, s = takes_bias(m) ? cy_attention_windows(m->rw, v, &bias) : 0;
  if (!s)
    return false;
  m->bias[m->nbias++] = (addend){bias, *cy_type_of(m->g, s), m->factor, 0};
  return walk_read(m, s, depth + 1);
}

/* Follows v, whoever reads it. */
static bool walk_read(match *m, cy_val v, int depth) {
  cy_graph *g = m->g;
  const cy_node_info *n = cy_def(g, v);
  double c;
  if (m->rows.v && n && n->op != CY_OP_matmul && n->op != CY_OP_mul && n->op != CY_OP_div && n->op != CY_OP_reshape)
    return false;
  if (!n || depth > MAX_DEPTH)
    return false;
  switch (n->op) {
  case CY_OP_matmul:
    m->scores = n;
    return true;
  case CY_OP_mul:
  case CY_OP_div:
    for (int k = 0; k < (n->op == CY_OP_mul ? 2 : 1); k++)
      if (cy_attention_number(g, n->in[1 - k], &c) && cy_same_shape(cy_type_of(g, n->in[k]), cy_type_of(g, v)) &&
          c != 0) {
        m->factor *= n->op == CY_OP_mul ? c : 1 / c;
        return walk(m, n->in[k], depth + 1);
      }
    return n->op == CY_OP_mul && !m->rows.v &&
           (walk_product(m, n, depth) || walk_sliced_product(m, n, depth) || walk_rows(m, n, depth));
  case CY_OP_add:
    return walk_addition(m, n, 0, depth) || walk_addition(m, n, 1, depth);
  case CY_OP_sub:
    return walk_addition(m, n, 0, depth);
  case CY_OP_select:
    return walk_select(m, n, depth);
  case CY_OP_tanh:
    if (m->softcap != 0 || m->factor <= 0)
      return false;
    m->softcap = m->factor;
    m->factor = 1;
    return walk(m, n->in[0], depth + 1) && m->scores;
  case CY_OP_max:
    if (!cy_attention_number(g, n->in[1], &c) || !(c * m->factor <= cy_attention_lowest) || m->factor <= 0 ||
        m->softcap != 0 || m->nbias || m->nmask || m->floor != 0 ||
        !cy_same_shape(cy_type_of(g, n->in[0]), cy_type_of(g, v)))
      return false;
    m->floor = c * m->factor;
    return walk(m, n->in[0], depth + 1);
  case CY_OP_reshape:
    if (cy_attention_same_rows(g, cy_type_of(g, n->in[0]), cy_type_of(g, v)))
      return walk(m, n->in[0], depth + 1);
    return !m->rows.v && (walk_grid(m, n, depth) || walk_windows(m, v, depth));
  case CY_OP_concat:
  case CY_OP_transpose:
    return !m->rows.v && walk_windows(m, v, depth);
  default:
    return false;
  }
}

static bool walk(match *m, cy_val v, int depth) {
  return cy_rewrite_single_use(m->rw, v) && !cy_rewrite_is_result(m->rw, v) && walk_read(m, v, depth);
}

bool cy_attention_walk(cy_attention_match *m, cy_val scores) {
  return scores > m->rw->nvalues ? walk_read(m, scores, 0) : walk(m, scores, 0);
}
