/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - the attention node from a struct: built, or written out as products and softmax.
 *
 * In: a cy_attention (ir.h says what it computes), from importers, from the pass that recognises it, or out of a node (infer_attention.c).
 * Out: one `attention` node, or the composition that exporters write: the form of -O0, of targets without a kernel for
 * attention, and of whoever asks for the scores. Masked scores become -infinity by a select; a bias is added.
 */
#include "ir_int.h"

#include <math.h>

/* ---- the node ---- */

cy_val cy_build_attention(cy_graph *g, const cy_attention *a) {
  if (!a->q || !a->k || !a->v)
    return 0;
  cy_val in[6] = {a->q, a->k, a->v, a->bias, a->mask, a->lengths};
  cy_attr attrs[8] = {cy_attr_float(CY_ATTR_scale, a->scale)};
  uint32_t n = 6, count = 1;
  while (!in[n - 1])
    n--;
  if (a->softcap != 0)
    attrs[count++] = cy_attr_float(CY_ATTR_softcap, a->softcap);
  if (a->mask && a->fill != 0 && a->fill != -INFINITY)
    attrs[count++] = cy_attr_float(CY_ATTR_fill, a->fill);
  if (a->causal)
    attrs[count++] = cy_attr_int(CY_ATTR_causal, 1);
  if (a->window)
    attrs[count++] = cy_attr_int(CY_ATTR_window, a->window);
  if ((a->causal || a->window) && a->past && !cy_dim_is(g, a->past, 0))
    attrs[count++] = cy_attr_dims(CY_ATTR_past, &a->past, 1);
  if (a->zero_hidden)
    attrs[count++] = cy_attr_int(CY_ATTR_zero_hidden, 1);
  if (a->round)
    attrs[count++] = cy_attr_int(CY_ATTR_round, a->round);
  const cy_type wide = {.dtype = CY_F32};
  return cy_build(g, CY_OP_attention, in, n, attrs, count, a->wide ? &wide : NULL, a->wide);
}

/* ---- the composition ---- */

cy_val cy_build_repeat_heads(cy_graph *g, cy_val x, cy_dim heads) {
  const cy_type t = cy_value_of(g, x)->type;
  int axis = t.rank - 3;
  int64_t h, own;
  if (t.dim[axis] == heads || !cy_dim_is_const(g, heads, &h) || !cy_dim_is_const(g, t.dim[axis], &own) || own <= 1)
    return x; /* one head broadcasts by itself */
  cy_dim one[CY_MAX_RANK + 1], all[CY_MAX_RANK + 1], out[CY_MAX_RANK];
  for (int i = 0; i < t.rank; i++) {
    one[i + (i > axis)] = all[i + (i > axis)] = t.dim[i];
    out[i] = i == axis ? heads : t.dim[i];
  }
  one[axis + 1] = cy_dim_const(g, 1);
  all[axis + 1] = cy_dim_const(g, h / own);
  cy_val split = cy_build_expand(g, cy_build_reshape(g, x, one, t.rank + 1), all, t.rank + 1);
  return cy_build_reshape(g, split, out, t.rank);
}

static cy_val hide(cy_graph *g, cy_val seen, cy_val s, double fill) {
  return s ? cy_build_select(g, seen, s, cy_build_like(g, s, fill != 0 ? fill : -INFINITY)) : 0;
}

static cy_val hide_masked(cy_graph *g, const cy_attention *a, cy_val s) {
  cy_type t = cy_attention_scores(g, a);
  const cy_dim *grid = &t.dim[t.rank - 2];
  if (a->bias)
    s = cy_build_binary(g, CY_OP_add, s, a->bias);
  if (a->mask)
    s = hide(g, a->mask, s, a->fill);
  cy_val column = a->causal || a->window || a->lengths ? cy_build_iota(g, CY_I64, grid, 2, 1) : 0;
  if (a->causal || a->window) {
    cy_val past = cy_build_dim_scalar(g, a->past ? a->past : cy_dim_const(g, 0));
    cy_val last = cy_build_binary(g, CY_OP_add, cy_build_iota(g, CY_I64, grid, 2, 0), past);
    if (a->causal)
      s = hide(g, cy_build_binary(g, CY_OP_le, column, last), s, 0);
    cy_val first = a->window ? cy_build_binary(g, CY_OP_sub, last, cy_build_scalar_int(g, CY_I64, a->window)) : 0;
    if (first)
      s = hide(g, cy_build_binary(g, CY_OP_gt, column, first), s, 0);
  }
  if (a->lengths) {
    cy_dim d[CY_MAX_RANK] = {t.dim[0]};
    for (int i = 1; i < t.rank; i++)
      d[i] = cy_dim_const(g, 1);
    cy_val length = cy_build_reshape(g, cy_build_cast(g, a->lengths, CY_I64), d, t.rank);
    s = hide(g, cy_build_binary(g, CY_OP_lt, column, length), s, 0);
  }
  return s;
}

/* Weights w of scores s, 0 in rows whose scores are all -infinity. */
static cy_val zero_hidden(cy_graph *g, cy_val s, cy_val w) {
  const int64_t keys = cy_value_of(g, s)->type.rank - 1;
  cy_val top = cy_build_reduce(g, CY_OP_reduce_max, s, &keys, 1, true);
  cy_val hidden = top ? cy_build_binary(g, CY_OP_eq, top, cy_build_like(g, top, -INFINITY)) : 0;
  return hidden ? cy_build_select(g, hidden, cy_build_like(g, w, 0), w) : 0;
}

/* x as f32, rounded to `half`. */
static cy_val rounded(cy_graph *g, cy_val x, cy_dtype half) {
  return cy_build_cast(g, cy_build_cast(g, x, half), CY_F32);
}

static cy_val build_rounded_plain(cy_graph *g, const cy_attention *a, cy_dtype softmax, cy_attention_parts *out_parts) {
  cy_attention wide = *a;
  wide.q = rounded(g, a->q, a->round);
  wide.k = rounded(g, a->k, a->round);
  wide.v = rounded(g, a->v, a->round);
  wide.round = CY_NONE;
  return cy_build_attention_plain(g, &wide, softmax, out_parts);
}

cy_val cy_build_attention_plain(cy_graph *g, const cy_attention *a, cy_dtype softmax, cy_attention_parts *out_parts) {
  if (!a->q || !a->k || !a->v)
    return 0;
  if (a->round)
    return build_rounded_plain(g, a, softmax, out_parts);
  cy_dtype dtype = (cy_dtype)cy_value_of(g, a->q)->type.dtype;
  int rank = cy_value_of(g, a->q)->type.rank;
  cy_dim heads = cy_value_of(g, a->q)->type.dim[rank - 3];
  cy_val k = cy_build_repeat_heads(g, a->k, heads), v = cy_build_repeat_heads(g, a->v, heads);
  int64_t swap[CY_MAX_RANK];
  for (int i = 0; i < rank; i++)
    swap[i] = i < rank - 2 ? i : 2 * rank - 3 - i;
  cy_attention_parts p = {0};
  cy_val s = k ? cy_build_matmul(g, a->q, cy_build_transpose(g, k, swap), dtype) : 0;
  if (s && a->scale != 1)
    s = cy_build_binary(g, CY_OP_mul, s, cy_build_like(g, s, a->scale));
  if (s && a->softcap != 0) {
    cy_val inner = cy_build_unary(g, CY_OP_tanh, cy_build_binary(g, CY_OP_div, s, cy_build_like(g, s, a->softcap)));
    s = cy_build_binary(g, CY_OP_mul, inner, cy_build_like(g, s, a->softcap));
  }
  p.scores = s;
  p.biased = s = s ? hide_masked(g, a, s) : 0;
  if (s && softmax)
    s = cy_build_cast(g, s, softmax);
  cy_attr axis = cy_attr_int(CY_ATTR_axis, rank - 1);
  cy_val w = s ? cy_build(g, CY_OP_softmax, &s, 1, &axis, 1, NULL, 1) : 0;
  if (w && a->zero_hidden)
    w = zero_hidden(g, s, w);
  p.weights = w ? cy_build_cast(g, w, dtype) : 0;
  if (out_parts)
    *out_parts = p;
  return p.weights && v ? cy_build_matmul(g, p.weights, v, dtype) : 0;
}
