/* SPDX-License-Identifier: Apache-2.0 */
/* attention_windows.c - scores to a window of which something was added in place, as s[.., 1:, 1:] += b is exported.
 *
 * In:  what becomes of that assignment (simplify_scatter.c): slices of the scores around the window and slice(s) + b,
 * concatenated, with views in between; torch's dynamo exporter moves the window's axes to the front and back and
 * assembles the same tensor several times over.
 * Out: s, and a bias that is b in the window and 0 around it.
 *
 * Each part is followed down to the scores with its box, what it fills of the result, and with where the first element
 * of the value at hand would lie in the result. All parts must end at the same value, in its place.
 *
 * Refused: parts of anything else, boxes whose order is not certain, two additions to one part, scores read elsewhere.
 */
#include "attention_int.h"

#include <string.h>

enum { MAX_VISITED = 64, MAX_WINDOWS = 4, MAX_DEPTH = 32 };

/* A value on the way from the result to the scores. */
typedef struct place {
  int axis[CY_MAX_RANK];      /* the result's axis of each of the value's; -1: of one element, anywhere */
  cy_dim origin[CY_MAX_RANK]; /* where the value's first element lies, for each axis of the result */
  cy_dim low[CY_MAX_RANK], high[CY_MAX_RANK]; /* the box that is of interest, in the result */
} place;

/* What is added to `to`, a value at this place. */
typedef struct window {
  cy_val added, to;
  place at;
} window;

typedef struct tracing {
  cy_graph *g;
  cy_type result;
  cy_val base;              /* the scores; 0: not reached yet */
  cy_val seen[MAX_VISITED]; /* values between the result and the scores */
  window found[MAX_WINDOWS];
  int nseen, nfound;
} tracing;

static bool trace(tracing *t, cy_val v, const place *p, bool added, int depth);

static bool remember(tracing *t, cy_val v) {
  for (int i = 0; i < t->nseen; i++)
    if (t->seen[i] == v)
      return true;
  if (t->nseen == MAX_VISITED)
    return false;
  t->seen[t->nseen++] = v;
  return true;
}

/* ---- through one node ---- */

static bool trace_transpose(tracing *t, const cy_node_info *n, const place *p, bool added, int depth) {
  uint32_t rank;
  const int64_t *perm = cy_attr_list(n, CY_ATTR_perm, &rank);
  place q = *p;
  for (uint32_t i = 0; i < rank; i++)
    q.axis[perm[i]] = p->axis[i];
  return trace(t, n->in[0], &q, added, depth);
}

/* Reshapes that add or take away axes of one element. */
static bool trace_reshape(tracing *t, const cy_node_info *n, const place *p, bool added, int depth) {
  cy_graph *g = t->g;
  const cy_type *to = cy_type_of(g, n->out[0]), *from = cy_type_of(g, n->in[0]);
  place q = *p;
  int at = 0;
  for (int i = 0; i < from->rank; i++) {
    q.axis[i] = -1;
    if (cy_dim_is(g, from->dim[i], 1))
      continue;
    while (at < to->rank && cy_dim_is(g, to->dim[at], 1))
      at++;
    if (at == to->rank || to->dim[at] != from->dim[i])
      return false;
    q.axis[i] = p->axis[at++];
  }
  for (; at < to->rank; at++)
    if (!cy_dim_is(g, to->dim[at], 1))
      return false;
  return trace(t, n->in[0], &q, added, depth);
}

static bool trace_slice(tracing *t, const cy_node_info *n, const place *p, bool added, int depth) {
  cy_graph *g = t->g;
  uint32_t rank;
  const cy_dim *starts = cy_attr_dim_list(n, CY_ATTR_starts, &rank);
  const int64_t *steps = cy_attr_list(n, CY_ATTR_steps, &rank);
  place q = *p;
  for (uint32_t i = 0; i < rank; i++) {
    int to = p->axis[i];
    bool whole = cy_type_of(g, n->in[0])->dim[i] == cy_type_of(g, n->out[0])->dim[i];
    if (steps[i] != 1 || (to < 0 && !whole))
      return false;
    if (to >= 0)
      q.origin[to] = cy_dim_sub(g, p->origin[to], starts[i]);
  }
  return trace(t, n->in[0], &q, added, depth);
}

/* The parts that the box meets; one that the box's edge is in only as far as that. */
static bool trace_concat(tracing *t, const cy_node_info *n, const place *p, bool added, int depth) {
  cy_graph *g = t->g;
  int along = (int)cy_attr_get_int(n, CY_ATTR_axis, 0), to = p->axis[along];
  if (to < 0)
    return false;
  cy_dim first = p->origin[to];
  for (uint32_t i = 0; i < n->nin; i++) {
    place q = *p;
    cy_dim next = cy_dim_add(g, first, cy_type_of(g, n->in[i])->dim[along]);
    bool starts_inside = cy_dim_le(g, p->low[to], first), ends_inside = cy_dim_le(g, next, p->high[to]);
    bool outside = cy_dim_le(g, next, p->low[to]) || cy_dim_le(g, p->high[to], first);
    if ((!starts_inside && !outside && !cy_dim_le(g, first, p->low[to])) ||
        (!ends_inside && !outside && !cy_dim_le(g, p->high[to], next)))
      return false;
    q.origin[to] = first;
    q.low[to] = starts_inside ? first : p->low[to];
    q.high[to] = ends_inside ? next : p->high[to];
    if (!outside && !trace(t, n->in[i], &q, added, depth))
      return false;
    first = next;
  }
  return true;
}

static bool trace_sum(tracing *t, const cy_node_info *n, const place *p, bool added, int depth) {
  for (int k = 0; k < 2 && !added; k++) {
    tracing before = *t;
    if (t->nfound == MAX_WINDOWS || !cy_same_shape(cy_type_of(t->g, n->in[k]), cy_type_of(t->g, n->out[0])))
      continue;
    t->found[t->nfound++] = (window){n->in[1 - k], n->out[0], *p};
    if (trace(t, n->in[k], p, true, depth))
      return true;
    *t = before;
  }
  return false;
}

/* Is v in the place of the result, the same element at the same index? */
static bool in_place(const tracing *t, cy_val v, const place *p) {
  const cy_type *own = cy_type_of(t->g, v);
  if (!cy_same_shape(own, &t->result))
    return false;
  for (int i = 0; i < own->rank; i++)
    if ((p->axis[i] != i && !cy_dim_is(t->g, own->dim[i], 1)) || !cy_dim_is(t->g, p->origin[i], 0))
      return false;
  return true;
}

static bool trace(tracing *t, cy_val v, const place *p, bool added, int depth) {
  const cy_node_info *n = cy_def(t->g, v);
  if (!n || depth == MAX_DEPTH)
    return false;
  bool passes = n->op == CY_OP_concat || n->op == CY_OP_add || n->op == CY_OP_transpose || n->op == CY_OP_reshape ||
                n->op == CY_OP_slice;
  if (passes && !remember(t, v))
    return false;
  switch (n->op) {
  case CY_OP_concat:
    return trace_concat(t, n, p, added, depth + 1);
  case CY_OP_add:
    return trace_sum(t, n, p, added, depth + 1);
  case CY_OP_transpose:
    return trace_transpose(t, n, p, added, depth + 1);
  case CY_OP_reshape:
    return trace_reshape(t, n, p, added, depth + 1);
  case CY_OP_slice:
    return trace_slice(t, n, p, added, depth + 1);
  default:
    if ((t->base && t->base != v) || !in_place(t, v, p))
      return false;
    t->base = v;
    return true;
  }
}

/* ---- the whole ---- */

/* Do only values on the way read v? */
static bool read_inside(const tracing *t, const cy_rewrite *rw, cy_val v) {
  uint32_t inside = 0;
  if (v > rw->nvalues)
    return false;
  for (int i = 0; i < t->nseen; i++) {
    const cy_node_info *n = cy_def(t->g, t->seen[i]);
    for (uint32_t k = 0; k < n->nin; k++)
      inside += n->in[k] == v;
  }
  return rw->uses.start[v + 1] - rw->uses.start[v] == inside && !cy_rewrite_is_result(rw, v);
}

/* What is added in the window, and 0 around it. */
static cy_val padded(tracing *t, const window *w) {
  cy_graph *g = t->g;
  const cy_type own = *cy_type_of(g, w->to);
  int rank = t->result.rank, n = 0;
  int64_t perm[CY_MAX_RANK];
  cy_dim sizes[CY_MAX_RANK], pads[2 * CY_MAX_RANK];
  cy_val v = cy_build_expand(g, w->added, own.dim, own.rank);
  for (int i = 0; v && i < own.rank; i++) {
    int to = w->at.axis[i];
    if (to >= 0)
      v = cy_build_slice_axis(g, v, i, cy_dim_sub(g, w->at.low[to], w->at.origin[to]),
                              cy_dim_sub(g, w->at.high[to], w->at.low[to]));
    else
      perm[n++] = i;
  }
  for (int to = 0; to < rank; to++) {
    sizes[to] = cy_dim_sub(g, w->at.high[to], w->at.low[to]);
    pads[to] = w->at.low[to];
    pads[rank + to] = cy_dim_sub(g, t->result.dim[to], w->at.high[to]);
    for (int i = 0; i < own.rank; i++)
      if (w->at.axis[i] == to)
        perm[n++] = i;
  }
  v = v ? cy_build_reshape(g, cy_build_transpose(g, v, perm), sizes, rank) : 0;
  return v ? cy_build_pad(g, v, pads, CY_PAD_CONSTANT, cy_build_scalar(g, (cy_dtype)own.dtype, 0)) : 0;
}

cy_val cy_attention_windows(cy_rewrite *rw, cy_val v, cy_val *out_bias) {
  cy_graph *g = rw->g;
  tracing t = {.g = g, .result = *cy_type_of(g, v)};
  place p;
  memset(&p, 0, sizeof p);
  for (int i = 0; i < t.result.rank; i++) {
    p.axis[i] = i;
    p.origin[i] = p.low[i] = cy_dim_const(g, 0);
    p.high[i] = t.result.dim[i];
  }
  if (!trace(&t, v, &p, false, 0) || !t.nfound || !read_inside(&t, rw, t.base))
    return 0;
  for (int i = 0; i < t.nseen; i++)
    if (t.seen[i] != v && !read_inside(&t, rw, t.seen[i]))
      return 0;
  *out_bias = 0;
  for (int i = 0; i < t.nfound; i++) {
    cy_val b = padded(&t, &t.found[i]);
    *out_bias = *out_bias && b ? cy_build_binary(g, CY_OP_add, *out_bias, b) : b;
    if (!b)
      return 0;
  }
  return t.base;
}
