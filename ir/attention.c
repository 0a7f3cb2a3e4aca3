/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - the attention node as a struct: built, read, inferred, and written out as products and softmax.
 *
 * In: a cy_attention (ir.h says what it computes), from importers, from the pass that recognises it, or out of a node.
 * Out: one `attention` node, or the composition that exporters write: the form of -O0, of targets without a kernel for
 * attention, and of whoever asks for the scores. Masked scores become -infinity by a select; a bias is added.
 */
#include "ir/infer/infer_int.h"

#include <math.h>

/* ---- the node ---- */

cy_attention cy_attention_of(const cy_node_info *n) {
  const cy_attr *past = cy_attr_find(n, CY_ATTR_past);
  cy_val in[6] = {0};
  for (uint32_t i = 0; i < n->nin && i < 6; i++)
    in[i] = n->in[i];
  return (cy_attention){.q = in[0],
                        .k = in[1],
                        .v = in[2],
                        .bias = in[3],
                        .mask = in[4],
                        .lengths = in[5],
                        .scale = cy_attr_get_float(n, CY_ATTR_scale, 1),
                        .fill = cy_attr_get_float(n, CY_ATTR_fill, 0),
                        .softcap = cy_attr_get_float(n, CY_ATTR_softcap, 0),
                        .causal = cy_attr_get_int(n, CY_ATTR_causal, 0) != 0,
                        .window = cy_attr_get_int(n, CY_ATTR_window, 0),
                        .zero_hidden = cy_attr_get_int(n, CY_ATTR_zero_hidden, 0) != 0,
                        .round = (cy_dtype)cy_attr_get_int(n, CY_ATTR_round, CY_NONE),
                        .past = past && past->n == 1 ? past->dims[0] : 0};
}

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

cy_type cy_attention_scores(cy_graph *g, const cy_attention *a) {
  cy_type t = cy_value_of(g, a->q)->type, k = cy_value_of(g, a->k)->type;
  t.dim[t.rank - 1] = k.dim[k.rank - 2];
  return t;
}

/* ---- inference ---- */

/* Batch axes of k (or v) against those of q: equal, 1, or at the heads a divisor. */
static bool check_batch(infer *i, uint32_t which) {
  const cy_type *q = in_type(i, 0), *t = in_type(i, which);
  for (int axis = 0; axis < q->rank - 2; axis++) {
    int64_t h, own;
    bool both = is_const(i, q->dim[axis], &h) && is_const(i, t->dim[axis], &own);
    if (t->dim[axis] == q->dim[axis] || cy_dim_is(i->g, t->dim[axis], 1) || (both && h == own))
      continue;
    if (axis < q->rank - 3 && !both) {
      cy_graph_require(i->g, t->dim[axis], q->dim[axis], CY_REQUIRE_EQUAL); /* kernels do not ask for 1 */
      continue;
    }
    if (axis < q->rank - 3 || !both || own < 1 || h % own)
      return FAIL(
          i,
          "input %u: expected batch dims and heads like those of q, %s, or fewer heads that divide its own, found %s",
          which, TEXT(i, q), TEXT(i, t));
  }
  return true;
}

/* An operand that broadcasts to the scores. */
static bool check_scores(infer *i, uint32_t which, const cy_type *scores) {
  const cy_type *t = in_type(i, which);
  int grow = scores->rank - t->rank;
  for (int axis = 0; axis < t->rank && grow >= 0; axis++)
    if (!cy_dim_is(i->g, t->dim[axis], 1) && cy_dims_clash(i, t->dim[axis], scores->dim[axis + grow])) {
      grow = -1;
    } else {
      cy_dim into = cy_dim_max(i->g, scores->dim[axis + grow], cy_dim_const(i->g, 1)); /* the scores do not grow by it */
      cy_graph_require(i->g, t->dim[axis], scores->dim[axis + grow], CY_REQUIRE_BROADCAST);
      cy_graph_require(i->g, t->dim[axis], into, CY_REQUIRE_AT_MOST);
    }
  return grow >= 0 || FAIL(i, "input %u: expected something that broadcasts to the scores %s, found %s", which,
                           TEXT(i, scores), TEXT(i, t));
}

static bool check_attributes(infer *i) {
  cy_attention a = cy_attention_of(i->n);
  const cy_attr *past = cy_attr_find(i->n, CY_ATTR_past);
  if (!isfinite(a.scale) || !isfinite(a.softcap) || a.softcap < 0 || a.window < 0 || (past && past->n != 1))
    return FAIL(
        i,
        "expected a finite scale, softcap and window of at least 0, one past, found scale %g, softcap %g, window %lld",
        a.scale, a.softcap, (long long)a.window);
  return true;
}

/* q, k and v are of one type; if they are to be rounded to halves, each of f32 or of these. */
static bool check_factors(infer *i) {
  cy_dtype first = (cy_dtype)in_type(i, 0)->dtype, round = (cy_dtype)cy_attr_get_int(i->n, CY_ATTR_round, CY_NONE);
  if (!cy_dtype_is_float(first))
    return FAIL(i, "expected floating-point tensors, found %s", TEXT(i, in_type(i, 0)));
  if (!round)
    return cy_check_dtype(i, 1, first) && cy_check_dtype(i, 2, first);
  for (uint32_t k = 0; k < 3; k++)
    if ((round != CY_F16 && round != CY_BF16) || (in_type(i, k)->dtype != CY_F32 && in_type(i, k)->dtype != round))
      return FAIL(i, "input %u: expected f32 or what it is rounded to, f16 or bf16, found %s", k,
                  TEXT(i, in_type(i, k)));
  return true;
}

bool cy_infer_attention(infer *i) {
  const cy_type *q = in_type(i, 0), *k = in_type(i, 1), *v = in_type(i, 2);
  if (!cy_check_rank(i, 0, 3, CY_MAX_RANK) || !cy_check_rank(i, 1, q->rank, q->rank) ||
      !cy_check_rank(i, 2, q->rank, q->rank) || !check_factors(i) || !check_attributes(i))
    return false;
  int r = q->rank;
  if (!check_batch(i, 1) || !check_batch(i, 2) || !cy_check_dim(i, "heads of v", v->dim[r - 3], k->dim[r - 3]) ||
      !cy_check_dim(i, "size of a head of k", k->dim[r - 1], q->dim[r - 1]) ||
      !cy_check_dim(i, "keys of v", v->dim[r - 2], k->dim[r - 2]))
    return false;
  cy_attention a = cy_attention_of(i->n);
  cy_type scores = cy_attention_scores(i->g, &a), out = *q;
  bool wide = out_type(i, 0)->dtype == CY_F32 || cy_attr_find(i->n, CY_ATTR_round);
  out.dtype = wide ? CY_F32 : q->dtype; /* halves may be added up, and changed, in f32 */
  if (has_in(i, 3) && (!cy_check_dtype(i, 3, (cy_dtype)out.dtype) || !check_scores(i, 3, &scores)))
    return false;
  if (has_in(i, 4) && (!cy_check_dtype(i, 4, CY_BOOL) || !check_scores(i, 4, &scores)))
    return false;
  if (has_in(i, 5) && (!cy_check_rank(i, 5, 1, 1) || !cy_check_dim(i, "lengths", in_type(i, 5)->dim[0], q->dim[0])))
    return false;
  if (has_in(i, 5) && !cy_dtype_is_int((cy_dtype)in_type(i, 5)->dtype))
    return FAIL(i, "expected integer lengths, found %s", TEXT(i, in_type(i, 5)));
  out.dim[r - 1] = v->dim[r - 1];
  return set_type(i, 0, out);
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
