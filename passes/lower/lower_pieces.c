/* SPDX-License-Identifier: Apache-2.0 */
/* lower_pieces.c - kernels cut along one axis: padding and pooling, where few elements at the borders ask whether what
 * they read is there, and all others between them need not.
 *
 * Nothing is written twice: a piece composes the same expression as a plain kernel, for an index that begins where the
 * piece does. What is certain of such an index (it is never below 0, never behind the last element) folds away when the
 * expression is made, sizes known or not. The pieces of a row are one kernel, one behind the other, where vectors run
 * along the row; where rows follow each other without a gap, they are kernels of their own, whose axes merge.
 */
#include "lower_int.h"
#include "passes/pass_int.h"

enum { MAX_PIECES = 12, MAX_BORDER = 4, MIN_INNER = 16 };

typedef struct pieces {
  int axis, n, inner;                             /* inner: the piece between the borders */
  cy_dim start[MAX_PIECES], extent[MAX_PIECES];   /* an extent below 0 is one of 0 */
  bool fixed[MAX_PIECES];                         /* extent is at most 1 */
} pieces;

static void add_piece(pieces *p, cy_dim start, cy_dim extent) {
  p->start[p->n] = start;
  p->extent[p->n++] = extent;
}

/* A part of a tensor, or all of it. */
typedef struct box {
  int rank;
  cy_dim start[CY_MAX_RANK], extent[CY_MAX_RANK];
  bool fixed[CY_MAX_RANK];
} box;

static box box_of(cy_lowering *l, cy_val v) {
  const cy_type *t = cy_lower_type(l, v);
  box b = {.rank = t->rank};
  for (int i = 0; i < t->rank; i++) {
    b.start[i] = cy_dim_const(l->g, 0);
    b.extent[i] = t->dim[i];
  }
  return b;
}

static box box_piece(const box *from, const pieces *p, int i) {
  box b = *from;
  b.start[p->axis] = p->start[i];
  b.extent[p->axis] = p->extent[i];
  b.fixed[p->axis] = p->fixed[i];
  return b;
}

/* Where a piece is fixed, its index is known, which is worth more than that its loop may not run. */
static cy_expr index_in(cy_kb *b, cy_dim start, bool fixed, cy_expr at) {
  cy_expr first = cy_x_dim(b->k, start);
  return fixed ? first : cy_x_bin(b->k, CY_OP_add, at, first);
}

static void grid_index(cy_kb *b, const box *x, int axis, cy_expr *idx) {
  idx[axis] = index_in(b, x->start[axis], x->fixed[axis], cy_kb_grid_index(b, x->extent[axis]));
}

/* One kernel, a task of which is a row. */
static void lower_rows(cy_lowering *l, cy_val root_value, cy_val target, const char *name, const box *x,
                       const pieces *p) {
  cy_kb b;
  cy_expr idx[CY_MAX_RANK];
  cy_kb_init(&b, l, name);
  for (int axis = 0; axis < x->rank; axis++)
    if (axis != p->axis)
      grid_index(&b, x, axis, idx);
  for (int i = 0; i < p->n; i++) {
    idx[p->axis] = index_in(&b, p->start[i], p->fixed[i], cy_kb_loop(&b, p->extent[i], !p->fixed[i]));
    cy_lower_element(&b, root_value, target, idx);
    cy_kernel_end(b.k);
  }
  cy_kb_launch(&b, true);
}

/* A kernel for each piece. */
static void lower_parts(cy_lowering *l, cy_val target, const char *name, const pieces *p) {
  box all = box_of(l, target);
  for (int i = 0; i < p->n; i++) {
    if (cy_dim_is(l->g, p->extent[i], 0))
      continue;
    cy_kb b;
    cy_expr idx[CY_MAX_RANK];
    cy_kb_init(&b, l, name);
    box part = box_piece(&all, p, i);
    for (int axis = 0; axis < part.rank; axis++)
      grid_index(&b, &part, axis, idx);
    cy_lower_element(&b, 0, target, idx);
    cy_kb_launch(&b, true);
  }
}

static bool never_negative(cy_lowering *l, cy_dim d) {
  int64_t lo, hi;
  cy_dim_range(l->g, d, &lo, &hi);
  return lo >= 0;
}

/* ---- padding ---- */

/* The padded axis of stride 1 where no axis is cut off, else -1; *out_alone: no other one is padded. Elsewhere a plain
 * kernel decides once for all its lanes whether they lie inside. */
static int padded_axis(cy_lowering *l, const cy_node_info *n, bool *out_alone) {
  const cy_attr *pads = cy_attr_find(n, CY_ATTR_pads);
  const cy_place *p = cy_lower_place(l, n->out[0]);
  const cy_type *t = cy_lower_type(l, n->in[0]);
  int axis = -1, padded = 0;
  for (int i = 0; i < t->rank; i++) {
    cy_dim begin = pads->dims[i], end = pads->dims[t->rank + i];
    if (!never_negative(l, begin) || !never_negative(l, end))
      return -1;
    bool pad = !cy_dim_is(l->g, begin, 0) || !cy_dim_is(l->g, end, 0);
    padded += pad;
    if (pad && cy_dim_is(l->g, p->stride[i], 1))
      axis = i;
  }
  *out_alone = padded == 1;
  return cy_dtype_of((cy_dtype)t->dtype)->bits >= 8 ? axis : -1; /* smaller elements share bytes */
}

void cy_lower_pad(cy_lowering *l, cy_node root, cy_val root_value, cy_val target) {
  const cy_node_info *n = cy_node_of(l->g, root);
  bool alone = false;
  pieces p = {.axis = l->o->level > 0 ? padded_axis(l, n, &alone) : -1};
  if (root_value != target)
    cy_bug("a padding cannot take an epilogue");
  if (p.axis < 0 || !(alone || l->splits_rows)) {
    cy_lower_plain(l, 0, target, "pad", NULL);
    return;
  }
  const cy_attr *pads = cy_attr_find(n, CY_ATTR_pads);
  const cy_type *t = cy_lower_type(l, n->in[0]);
  cy_dim begin = pads->dims[p.axis], end = pads->dims[t->rank + p.axis], size = t->dim[p.axis];
  add_piece(&p, cy_dim_const(l->g, 0), begin);
  add_piece(&p, begin, size);
  add_piece(&p, cy_dim_add(l->g, begin, size), end);
  box all = box_of(l, target);
  if (alone)
    lower_parts(l, target, "pad", &p);
  else
    lower_rows(l, 0, target, "pad", &all, &p);
}

/* ---- pooling ---- */

bool cy_pool_split_of(cy_graph *g, const cy_node_info *n, int i, cy_pool_split *out) {
  const cy_attr *dilations = cy_attr_find(n, CY_ATTR_dilations);
  const cy_type *x = &cy_value_of(g, n->in[0])->type, *y = &cy_value_of(g, n->out[0])->type;
  int64_t kernel = cy_attr_find(n, CY_ATTR_kernel)->ints[i], stride = cy_attr_find(n, CY_ATTR_strides)->ints[i];
  int64_t pad = cy_attr_find(n, CY_ATTR_pads)->ints[i], reach = (kernel - 1) * (dilations ? dilations->ints[i] : 1);
  int64_t inner;
  cy_dim room = cy_dim_addi(g, x->dim[i + 2], pad - reach - 1), size = y->dim[i + 2];
  out->size = size;
  out->first = (pad + stride - 1) / stride;
  out->end = cy_dim_min(g, cy_dim_addi(g, cy_dim_div(g, room, cy_dim_const(g, stride)), 1), size);
  out->behind = 0;
  while (out->behind <= MAX_BORDER && !cy_dim_le(g, cy_dim_addi(g, size, -out->behind), out->end))
    out->behind++;
  if (out->first + out->behind == 0)
    return true;
  if (cy_dim_is_const(g, cy_dim_addi(g, out->end, -out->first), &inner))
    return out->first + out->behind <= MAX_BORDER && inner >= MIN_INNER;
  /* whether sizes are below the window's is asked for every tap; a large one's maximum is found axis by axis */
  return out->first + out->behind <= (n->op == CY_OP_pool_max ? 2 : MAX_BORDER);
}

/* 1 if element `from` is below `size`, else 0. */
static cy_dim one_below(cy_graph *g, int64_t from, cy_dim size) {
  cy_dim rest = cy_dim_max(g, cy_dim_addi(g, size, -from), cy_dim_const(g, 0));
  return cy_dim_min(g, rest, cy_dim_const(g, 1));
}

static void add_fixed(pieces *p, cy_dim at, cy_dim one) {
  p->fixed[p->n] = true;
  add_piece(p, at, one);
}

/* Each of the few windows that reach over the border, and all others. */
static pieces split_pieces(cy_graph *g, int axis, const cy_pool_split *row_parts) {
  pieces p = {.axis = axis};
  for (int64_t i = 0; i < row_parts->first; i++)
    add_fixed(&p, cy_dim_const(g, i), one_below(g, i, row_parts->size));
  p.inner = p.n;
  add_piece(&p, cy_dim_const(g, row_parts->first), cy_dim_addi(g, row_parts->end, -row_parts->first));
  for (int i = row_parts->behind; i > 0; i--)
    add_fixed(&p, cy_dim_addi(g, row_parts->size, -i), one_below(g, i - 1, row_parts->size));
  return p;
}

/* Where row pieces lie side by side, vectors along them pay. */
static bool runs_along(cy_lowering *l, const cy_node_info *n, cy_val target, int axis) {
  const cy_place *from = &l->place[n->in[0]];
  return cy_dim_is(l->g, cy_lower_place(l, target)->stride[axis], 1) &&
         (!from->placed || cy_dim_is(l->g, from->stride[axis], 1));
}

/* Rows are cut along the last axis; along those before it, what lies at a border gets kernels of its own, so that no
 * row in between asks. */
void cy_lower_pools(cy_lowering *l, cy_node root, cy_val root_value, cy_val target) {
  const cy_node_info *n = cy_node_of(l->g, root);
  int last = cy_lower_type(l, target)->rank - 1;
  const char *name = cy_op_of((cy_op)n->op)->name;
  cy_pool_split row_parts;
  if (!l->splits_rows || root_value != n->out[0] || !runs_along(l, n, target, last) ||
      !cy_pool_split_of(l->g, n, last - 2, &row_parts) || row_parts.first + row_parts.behind == 0) {
    cy_lower_plain(l, root_value, target, name, NULL);
    return;
  }
  box all = box_of(l, target);
  pieces rows = split_pieces(l->g, last, &row_parts);
  for (int axis = 2; axis < last; axis++) {
    if (!cy_pool_split_of(l->g, n, axis - 2, &row_parts))
      continue;
    pieces p = split_pieces(l->g, axis, &row_parts);
    for (int i = 0; i < p.n; i++)
      if (i != p.inner) {
        box border = box_piece(&all, &p, i);
        lower_rows(l, root_value, target, name, &border, &rows);
      }
    all = box_piece(&all, &p, p.inner);
  }
  lower_rows(l, root_value, target, name, &all, &rows);
}
