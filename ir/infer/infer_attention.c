/* SPDX-License-Identifier: Apache-2.0 */
/* infer_attention.c - the attention node read as a struct, and the type of what it gives.
 *
 * In: an `attention` node. Out: a cy_attention (ir.h says what it computes), the type of its scores and of its output, or a
 * diagnostic. How it is built: attention.c.
 */
#include "infer_int.h"

#include <math.h>

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

cy_type cy_attention_scores(cy_graph *g, const cy_attention *a) {
  cy_type t = cy_value_of(g, a->q)->type, k = cy_value_of(g, a->k)->type;
  t.dim[t.rank - 1] = k.dim[k.rank - 2];
  return t;
}

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
