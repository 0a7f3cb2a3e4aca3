/* SPDX-License-Identifier: Apache-2.0 */
/* lower_memory.c - values that need no kernel because they only rename memory: views, and concatenations and outputs
 * written in place.
 *
 * A transpose, slice, expand or reshape of stored data is a new place with other strides. The inputs of a concatenation
 * are placed inside its output beforehand, so that their kernels write there directly; a concatenation of the first of
 * these inputs is the beginning of that output. So is what a model's output is a reshaped view of. What could not be
 * placed is copied.
 */
#include "lower_int.h"
#include "passes/pass_int.h"

#include <string.h>

bool cy_lower_grows(cy_graph *g, cy_dim a, cy_dim b) {
  cy_dim unused;
  return cy_dim_le(g, a, b) || cy_dim_divides(g, a, b, &unused);
}

static void dense_place(cy_lowering *l, const cy_type *t, cy_place *p) {
  cy_dim stride = cy_dim_const(l->g, 1);
  for (int i = t->rank - 1; i >= 0; i--) {
    p->stride[i] = stride;
    stride = cy_dim_mul(l->g, stride, t->dim[i]);
  }
}

/* Strides for `to` over the memory of `from`, where this is dense or every group of axes with equal products can be walked
 * with one stride. */
static bool reshape_place(cy_lowering *l, const cy_type *from, const cy_place *p, const cy_type *to, cy_place *out) {
  cy_graph *g = l->g;
  *out = *p;
  if (cy_lower_is_contiguous(l, p, from)) {
    dense_place(l, to, out);
    return true;
  }
  int i = 0, j = 0;
  while (i < from->rank || j < to->rank) {
    int i0 = i, j0 = j;
    cy_dim pi = i < from->rank ? from->dim[i++] : cy_dim_const(g, 1),
           pj = j < to->rank ? to->dim[j++] : cy_dim_const(g, 1);
    while (pi != pj) {
      if (i == from->rank && j == to->rank)
        return false;
      if (j == to->rank || (i < from->rank && cy_lower_grows(g, pi, pj)))
        pi = cy_dim_mul(g, pi, from->dim[i++]);
      else
        pj = cy_dim_mul(g, pj, to->dim[j++]);
    }
    cy_dim inner = 0, step = 0; /* the group's innermost stride; what the next outer axis must have */
    for (int a = i - 1; a >= i0; a--) {
      if (cy_dim_is(g, from->dim[a], 1))
        continue;
      if (inner && p->stride[a] != step)
        return false;
      if (!inner)
        inner = p->stride[a];
      step = cy_dim_mul(g, p->stride[a], from->dim[a]);
    }
    cy_dim stride = inner ? inner : cy_dim_const(g, 1);
    for (int a = j - 1; a >= j0; a--) {
      out->stride[a] = stride;
      stride = cy_dim_mul(g, stride, to->dim[a]);
    }
  }
  return true;
}

static bool same_layout(const cy_graph *g, cy_val a, cy_val b) {
  const cy_value *x = cy_value_of(g, a), *y = cy_value_of(g, b);
  return !memcmp(x->layout, y->layout, (size_t)x->type.rank);
}

static bool view_place(cy_lowering *l, const cy_node_info *n, const cy_place *p, cy_place *out) {
  cy_graph *g = l->g;
  const cy_type *from = cy_lower_type(l, n->in[0]), *to = cy_lower_type(l, n->out[0]);
  *out = *p;
  switch (n->op) {
  case CY_OP_identity: /* also how a change of layout is asked for: then it is a copy */
    return same_layout(g, n->in[0], n->out[0]);
  case CY_OP_reshape:
    return reshape_place(l, from, p, to, out);
  case CY_OP_transpose: {
    const cy_attr *perm = cy_attr_find(n, CY_ATTR_perm);
    for (uint32_t i = 0; i < perm->n; i++)
      out->stride[i] = p->stride[perm->ints[i]];
    return true;
  }
  case CY_OP_expand:
    for (int i = 0, skip = to->rank - from->rank; i < to->rank; i++) {
      bool same = i >= skip && from->dim[i - skip] == to->dim[i];
      if (i >= skip && !same && !cy_dim_is(g, from->dim[i - skip], 1))
        return false; /* 1 or not is known at run time only */
      out->stride[i] = same ? p->stride[i - skip] : cy_dim_const(g, 0);
    }
    return true;
  case CY_OP_slice: {
    const cy_attr *starts = cy_attr_find(n, CY_ATTR_starts), *steps = cy_attr_find(n, CY_ATTR_steps);
    for (uint32_t i = 0; i < starts->n; i++) {
      out->offset = cy_dim_add(g, out->offset, cy_dim_mul(g, starts->dims[i], p->stride[i]));
      out->stride[i] = cy_dim_muli(g, p->stride[i], steps->ints[i]);
    }
    return cy_dtype_of((cy_dtype)from->dtype)->bits >= 8;
  }
  default:
    return false;
  }
}

bool cy_lower_view_place(cy_lowering *l, const cy_node_info *n, cy_place *out) {
  const cy_value *in = cy_value_of(l->g, n->in[0]);
  return (!in->inlined || l->place[n->in[0]].placed) && view_place(l, n, cy_lower_place(l, n->in[0]), out);
}

bool cy_lower_view(cy_lowering *l, cy_node node) {
  const cy_node_info *n = cy_node_of(l->g, node);
  cy_place view, *out = &l->place[n->out[0]];
  if (n->op == CY_OP_concat || n->op == CY_OP_pad || !cy_lower_view_place(l, n, &view))
    return false;
  if (out->placed)
    return cy_lower_same_place(l, out, &view, cy_lower_type(l, n->out[0]));
  *out = view;
  return true;
}

/* ---- concatenation ---- */

static cy_place part_place(cy_lowering *l, const cy_place *whole, int axis, cy_dim start) {
  cy_place part = *whole;
  part.offset = cy_dim_add(l->g, part.offset, cy_dim_mul(l->g, start, part.stride[axis]));
  return part;
}

bool cy_lower_same_place(const cy_lowering *l, const cy_place *a, const cy_place *b, const cy_type *t) {
  if (!a->placed || a->buffer != b->buffer || a->offset != b->offset)
    return false;
  for (int i = 0; i < t->rank; i++)
    if (a->stride[i] != b->stride[i] && !cy_dim_is(l->g, t->dim[i], 1))
      return false;
  return true;
}

/* May a kernel write u straight into a part of a larger tensor? */
static bool can_move(cy_lowering *l, cy_val u, cy_block block) {
  const cy_value *v = cy_value_of(l->g, u);
  if (!v->node || v->inlined || v->data.bytes || l->place[u].placed)
    return false;
  const cy_node_info *n = cy_node_of(l->g, v->node);
  if (n->block != block || n->op == CY_OP_recurrent)
    return false;
  const cy_port_info *ports;
  uint32_t outputs = cy_graph_outputs(l->g, &ports);
  for (uint32_t i = 0; i < outputs; i++)
    if (ports[i].value == u)
      return false;
  cy_op_class cls = cy_op_of((cy_op)n->op)->cls;
  bool copies = n->op == CY_OP_concat || n->op == CY_OP_pad ||
                (n->op == CY_OP_identity && !same_layout(l->g, n->in[0], u));
  return cls == CY_CLASS_VIEW ? copies : cls != CY_CLASS_CALL && cls != CY_CLASS_CTRL;
}

/* v, or what it is a transposed or reshaped view of, which a kernel may write so that v comes to lie at p: p becomes the
 * place for that. 0: there is no such value. */
static cy_val behind_views(cy_lowering *l, cy_val v, cy_block block, cy_place *p) {
  while (!can_move(l, v, block)) {
    const cy_value *value = cy_value_of(l->g, v);
    const cy_node_info *n = value->node ? cy_node_of(l->g, value->node) : NULL;
    if (!n || n->block != block || value->inlined || l->place[v].placed)
      return 0;
    cy_place inner = *p;
    if (n->op == CY_OP_transpose) {
      const cy_attr *perm = cy_attr_find(n, CY_ATTR_perm);
      for (uint32_t i = 0; i < perm->n; i++)
        inner.stride[perm->ints[i]] = p->stride[i];
    } else if (n->op != CY_OP_reshape ||
               !reshape_place(l, cy_lower_type(l, v), p, cy_lower_type(l, n->in[0]), &inner)) {
      return 0;
    }
    *p = inner;
    v = n->in[0];
  }
  return v;
}

static bool has_data_sizes(cy_lowering *l, const cy_type *t) {
  for (int i = 0; i < t->rank; i++)
    if (cy_dim_has_data_sym(l->g, t->dim[i]))
      return true;
  return false;
}

static void place_parts(cy_lowering *l, const cy_node_info *n, cy_block block) {
  cy_graph *g = l->g;
  const cy_type *t = cy_lower_type(l, n->out[0]);
  int axis = (int)cy_attr_get_int(n, CY_ATTR_axis, 0);
  if (has_data_sizes(l, t) || cy_value_of(g, n->out[0])->inlined || cy_dtype_of((cy_dtype)t->dtype)->bits < 8)
    return;
  cy_lower_alloc(l, n->out[0]);
  cy_dim start = cy_dim_const(g, 0);
  for (uint32_t i = 0; i < n->nin; i++) {
    cy_place part = part_place(l, cy_lower_place(l, n->out[0]), axis, start);
    cy_val v = behind_views(l, n->in[i], block, &part);
    if (v)
      l->place[v] = part;
    start = cy_dim_add(g, start, cy_lower_type(l, n->in[i])->dim[axis]);
  }
}

/* Is m a concatenation of the first inputs of n? */
static bool is_prefix(const cy_node_info *m, const cy_node_info *n) {
  return m->op == CY_OP_concat && m->nin < n->nin &&
         cy_attr_get_int(m, CY_ATTR_axis, 0) == cy_attr_get_int(n, CY_ATTR_axis, 0) &&
         !memcmp(m->in, n->in, m->nin * sizeof *m->in);
}

/* Concatenations of ever more of the same values (dense blocks) are the beginnings of the last one. n: nodes[at]. */
static void place_prefixes(cy_lowering *l, const cy_block_info *b, uint32_t at, cy_block block) {
  const cy_node_info *n = cy_node_of(l->g, b->nodes[at]);
  if (!l->place[n->out[0]].placed)
    return;
  for (uint32_t i = 0; i < at; i++) {
    const cy_node_info *m = cy_node_of(l->g, b->nodes[i]);
    if (is_prefix(m, n) && same_layout(l->g, m->out[0], n->out[0]) && can_move(l, m->out[0], block))
      l->place[m->out[0]] = l->place[n->out[0]];
  }
}

/* How many of n's inputs a concatenation before it has put in place. */
static uint32_t inputs_done(cy_lowering *l, cy_node node) {
  const cy_node_info *n = cy_node_of(l->g, node);
  const cy_block_info *b = cy_block_of(l->g, n->block);
  uint32_t done = 0;
  for (uint32_t i = 0; i < b->nnodes && b->nodes[i] != node; i++) {
    const cy_node_info *m = cy_node_of(l->g, b->nodes[i]);
    if (is_prefix(m, n) && m->nin > done &&
        cy_lower_same_place(l, &l->place[m->out[0]], &l->place[n->out[0]], cy_lower_type(l, m->out[0])))
      done = m->nin;
  }
  return done;
}

/* Last concatenation first: one that is itself a part of a later one is placed inside it before its own parts are. */
void cy_lower_concat_places(cy_lowering *l, cy_block block) {
  if (l->o->level == 0)
    return;
  const cy_block_info *b = cy_block_of(l->g, block);
  for (uint32_t i = b->nnodes; i-- > 0;) {
    const cy_node_info *n = cy_node_of(l->g, b->nodes[i]);
    if (n->op != CY_OP_concat || cy_value_of(l->g, n->out[0])->data.bytes)
      continue;
    place_parts(l, n, block);
    place_prefixes(l, b, i, block);
  }
}

static bool in_rows(const cy_value *v) {
  for (int i = 0; i < v->type.rank; i++)
    if (v->layout[i] != i)
      return false;
  return true;
}

/* Outputs that are what a kernel computes, reshaped: it writes there. Only where that lies in order, or what had better be a
 * copy tile by tile would be stores far from each other. */
void cy_lower_output_places(cy_lowering *l) {
  const cy_port_info *ports;
  uint32_t count = cy_graph_outputs(l->g, &ports);
  for (uint32_t i = 0; i < count && l->o->level > 0; i++) {
    cy_val v = ports[i].value;
    const cy_node_info *n = cy_def(l->g, v);
    const cy_type *t = cy_lower_type(l, v);
    if (!n || n->op != CY_OP_reshape || n->block != 1 || cy_value_of(l->g, v)->inlined || has_data_sizes(l, t) ||
        cy_dtype_of((cy_dtype)t->dtype)->bits < 8)
      continue;
    cy_lower_alloc(l, v);
    cy_place p;
    if (!reshape_place(l, t, &l->place[v], cy_lower_type(l, n->in[0]), &p))
      continue;
    cy_val u = behind_views(l, n->in[0], 1, &p);
    if (u && in_rows(cy_value_of(l->g, u)) && cy_lower_is_contiguous(l, &p, cy_lower_type(l, u)))
      l->place[u] = p;
  }
}

/* An input of a concatenation that still has to be copied, and where to. */
typedef struct part {
  cy_val v;
  cy_place place;
} part;

static void copy_part(cy_lowering *l, const part *p) {
  const cy_type *t = cy_lower_type(l, p->v);
  cy_kb b;
  cy_kb_init(&b, l, "concat");
  cy_expr idx[CY_MAX_RANK];
  for (int a = 0; a < t->rank; a++)
    idx[a] = cy_kb_grid_index(&b, t->dim[a]);
  cy_kb_store(&b, &p->place, (cy_dtype)t->dtype, t->rank, idx, cy_lower_at(&b, p->v, idx));
  cy_kb_launch(&b, true);
}

enum { NARROW = 8, LANES = 8, MAX_PARTS = 16 };

/* The axis whose neighbours lie closest in memory, apart from `axis`; long enough for vectors, or -1. */
static int near_axis(cy_lowering *l, const cy_place *p, const cy_type *t, int axis) {
  int best = -1;
  int64_t n;
  for (int a = 0; a < t->rank; a++)
    if (a != axis && !cy_dim_is(l->g, t->dim[a], 1) && (best < 0 || cy_dim_le(l->g, p->stride[a], p->stride[best])))
      best = a;
  return best >= 0 && cy_dim_is_const(l->g, t->dim[best], &n) && n >= LANES ? best : -1;
}

/* Parts that are less than a cache line, one behind the other: a kernel for each would write every line several times.
 */
static bool narrow(cy_lowering *l, const part *parts, uint32_t n, int axis) {
  int64_t width;
  for (uint32_t i = 0; i < n; i++) {
    const cy_type *t = cy_lower_type(l, parts[i].v);
    if (!cy_dim_is(l->g, parts[i].place.stride[axis], 1) || !cy_dim_is_const(l->g, t->dim[axis], &width) ||
        width > NARROW || cy_dtype_of((cy_dtype)t->dtype)->bits != 32)
      return false;
  }
  return n > 1 && n <= MAX_PARTS && near_axis(l, &parts[0].place, cy_lower_type(l, parts[0].v), axis) >= 0;
}

/* All parts by one kernel, element by element of the other axes. */
static void copy_parts(cy_lowering *l, const part *parts, uint32_t n, int axis) {
  const cy_type *t = cy_lower_type(l, parts[0].v);
  int near = near_axis(l, &parts[0].place, t, axis);
  cy_kb b;
  cy_kb_init(&b, l, "concat");
  cy_expr idx[CY_MAX_RANK];
  for (int a = 0; a < t->rank; a++)
    if (a != axis && a != near)
      idx[a] = cy_kb_grid_index(&b, t->dim[a]);
  idx[near] = cy_kb_loop(&b, t->dim[near], true);
  for (uint32_t i = 0; i < n; i++) {
    idx[axis] = cy_kb_loop(&b, cy_lower_type(l, parts[i].v)->dim[axis], false);
    cy_kb_store(&b, &parts[i].place, (cy_dtype)t->dtype, t->rank, idx, cy_lower_at(&b, parts[i].v, idx));
    cy_kernel_end(b.k);
  }
  cy_kernel_end(b.k);
  cy_kb_launch(&b, true);
}

void cy_lower_concat(cy_lowering *l, cy_node root, cy_val root_value, cy_val target) {
  const cy_node_info *n = cy_node_of(l->g, root);
  if (root_value != target)
    cy_bug("a concatenation cannot take an epilogue");
  int axis = (int)cy_attr_get_int(n, CY_ATTR_axis, 0);
  part *parts = CY_NEW_ARRAY(l->arena, part, n->nin);
  uint32_t nparts = 0, done = l->o->level > 0 ? inputs_done(l, root) : 0;
  cy_dim start = cy_dim_const(l->g, 0);
  for (uint32_t i = 0; i < n->nin; i++) {
    const cy_type *t = cy_lower_type(l, n->in[i]);
    part p = {n->in[i], part_place(l, cy_lower_place(l, target), axis, start)};
    start = cy_dim_add(l->g, start, t->dim[axis]);
    if (i >= done && !cy_lower_same_place(l, &l->place[p.v], &p.place, t) && !cy_dim_is(l->g, t->dim[axis], 0))
      parts[nparts++] = p;
  }
  if (l->o->level > 0 && narrow(l, parts, nparts, axis)) {
    copy_parts(l, parts, nparts, axis);
    return;
  }
  for (uint32_t i = 0; i < nparts; i++) {
    cy_branch apart;
    bool grows = cy_lower_unless_grown(l, parts[i].v, target, &apart);
    copy_part(l, &parts[i]);
    if (grows)
      cy_lower_join(l, &apart);
  }
}
