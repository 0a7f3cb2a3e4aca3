/* SPDX-License-Identifier: Apache-2.0 */
/* lower_cumulative.c - running sums and products: CumSum, CumProd.
 *
 * A task goes along a row. On devices where there are few rows they are cut into parts: a kernel adds up each part, sums
 * of what lies before a part are running sums of these, and a kernel goes along all parts, beginning with them. The
 * running sums in between are made in the same way, level by level. What the sum of a row's last part would be is asked
 * by nobody, so it may be anything, as may be what stands behind it: there are as many as make whole parts. Products of
 * floats stay in one piece: those of a part may overflow where those of the row do not.
 */
#include "lower_int.h"

#define bin(b, op, x, y) cy_x_bin((b)->k, op, x, y)

enum {
  MIN_ROW = 256, /* worth cutting: into parts of .. */
  MIN_PART = 32,
  PART = 64,
  MAX_PART = 96,
  ENOUGH_ROWS = 1 << 15, /* which keep a device busy as they are */
  MAX_LEVELS = 2
};

typedef struct running {
  cy_lowering *l;
  const cy_node_info *n;
  const cy_type *t;
  cy_val target, root_value;
  cy_dtype dtype;
  cy_op op;
  int axis;
  bool lanes; /* neighbours along the axis are neighbours in memory */
} running;

/* What is gone along: the axis of the tensor, or parts of it, whose sums lie in `from`, [rows.., extent]; then what lies
 * before each goes to `to`. */
typedef struct line {
  cy_dim extent;
  int level; /* 0: the tensor's axis */
  cy_place from, to;
} line;

/* A line cut into `whole` parts of `each` elements and one of `rest`, which may be 0. */
typedef struct row_parts {
  cy_dim whole, each, rest;
} row_parts;

/* ---- elements ---- */

static void open_rows(const running *r, cy_kb *b, cy_expr *idx) {
  cy_kb_init(b, r->l, cy_op_of(r->n->op)->name);
  for (int i = 0; i < r->t->rank; i++)
    if (i != r->axis)
      idx[i] = cy_kb_grid_index(b, r->t->dim[i]);
}

/* The axes of a row, then i; how many these are. */
static int in_parts(const running *r, const cy_expr *idx, cy_expr i, cy_expr *out) {
  int rank = 0;
  for (int k = 0; k < r->t->rank; k++)
    if (k != r->axis)
      out[rank++] = idx[k];
  out[rank++] = i;
  return rank;
}

/* Element i of the line; of the tensor idx[axis] is set. */
static cy_expr element(const running *r, cy_kb *b, const line *w, cy_expr *idx, cy_expr i) {
  cy_expr at[CY_MAX_RANK];
  if (w->level > 0) {
    int rank = in_parts(r, idx, i, at);
    return cy_kb_load(b, &w->from, r->dtype, rank, at);
  }
  bool reverse = cy_attr_get_int(r->n, CY_ATTR_reverse, 0) != 0;
  cy_expr last = cy_x_dim(b->k, cy_dim_addi(r->l->g, w->extent, -1));
  idx[r->axis] = reverse ? bin(b, CY_OP_sub, last, i) : i;
  return cy_lower_at(b, r->n->in[0], idx);
}

static void give(const running *r, cy_kb *b, const line *w, const cy_expr *idx, cy_expr i, cy_expr value) {
  cy_expr at[CY_MAX_RANK];
  if (w->level == 0) {
    cy_lower_finish(b, r->target, r->root_value, idx, value);
    return;
  }
  int rank = in_parts(r, idx, i, at);
  cy_kb_store(b, &w->to, r->dtype, rank, at, value);
}

static cy_expr neutral(const running *r, cy_kb *b) {
  bool product = r->op == CY_OP_mul;
  return cy_dtype_is_float(r->dtype) ? cy_x_const(b->k, r->dtype, product) : cy_x_int(b->k, r->dtype, product);
}

/* ---- kernels ---- */

/* Along `count` parts of `each` elements from part `first` on; `starts`: what lies before each, NULL: nothing. */
static void go_along(const running *r, const line *w, cy_dim first, cy_dim count, const row_parts *c, cy_dim each,
                     const cy_place *starts) {
  cy_kb b;
  cy_expr idx[CY_MAX_RANK], at[CY_MAX_RANK], begin = 0;
  bool exclusive = w->level > 0 || cy_attr_get_int(r->n, CY_ATTR_exclusive, 0) != 0;
  open_rows(r, &b, idx);
  cy_kernel *k = b.k;
  cy_local sum = cy_kernel_add_local(k, r->dtype), held = cy_kernel_add_local(k, r->dtype);
  if (starts) {
    cy_expr number = bin(&b, CY_OP_add, cy_kb_grid_index(&b, count), cy_x_dim(k, first));
    begin = bin(&b, CY_OP_mul, number, cy_x_dim(k, c->each));
    int rank = in_parts(r, idx, number, at);
    cy_kernel_set(k, sum, cy_kb_load(&b, starts, r->dtype, rank, at));
  } else {
    cy_kernel_set(k, sum, neutral(r, &b));
  }
  cy_expr i = cy_kb_loop(&b, each, false);
  i = begin ? bin(&b, CY_OP_add, begin, i) : i;
  cy_kernel_set(k, held, cy_x_local(k, sum));
  cy_kernel_set(k, sum, bin(&b, r->op, cy_x_local(k, sum), element(r, &b, w, idx, i)));
  give(r, &b, w, idx, i, cy_x_local(k, exclusive ? held : sum));
  cy_kernel_end(k);
  cy_kb_launch(&b, true);
}

/* What the elements of each whole part give together. */
static void add_parts(const running *r, const line *w, const row_parts *c, const cy_place *to) {
  cy_kb b;
  cy_expr idx[CY_MAX_RANK], at[CY_MAX_RANK];
  open_rows(r, &b, idx);
  cy_kernel *k = b.k;
  cy_expr number = cy_kb_grid_index(&b, c->whole), begin = bin(&b, CY_OP_mul, number, cy_x_dim(k, c->each));
  cy_local sum = cy_kernel_add_local(k, r->dtype);
  cy_kernel_set(k, sum, neutral(r, &b));
  cy_expr i = bin(&b, CY_OP_add, begin, cy_kb_loop(&b, c->each, w->level > 0 || r->lanes));
  cy_kernel_accum(k, sum, r->op, element(r, &b, w, idx, i));
  cy_kernel_end(k);
  int rank = in_parts(r, idx, number, at);
  cy_kb_store(&b, to, r->dtype, rank, at, cy_x_local(k, sum));
  cy_kb_launch(&b, true);
}

/* ---- the choice ---- */

/* Into parts of equal length, if there is a fitting one. */
static row_parts split_line(cy_graph *g, const line *w) {
  int64_t length = 0, each = MAX_PART;
  bool known = cy_dim_is_const(g, w->extent, &length);
  while (known && each >= MIN_PART && length % each)
    each--;
  row_parts c = {.each = cy_dim_const(g, known && each >= MIN_PART ? each : PART)};
  c.whole = cy_dim_div(g, w->extent, c.each);
  c.rest = cy_dim_mod(g, w->extent, c.each);
  return c;
}

static bool may_split(const running *r, const line *w) {
  const cy_lowering *l = r->l;
  int64_t rows = 1, min, max;
  for (int i = 0; i < r->t->rank; i++) {
    cy_dim_range(l->g, r->t->dim[i], &min, &max);
    rows *= i != r->axis && rows < ENOUGH_ROWS ? min : 1;
  }
  cy_dim_range(l->g, w->extent, &min, &max);
  return l->busy_parts && max >= MIN_ROW && rows < ENOUGH_ROWS && w->level < MAX_LEVELS &&
         (r->op == CY_OP_add || !cy_dtype_is_float(r->dtype));
}

static void lower_line(const running *r, const line *w);

static void lower_parts(const running *r, const line *w) {
  cy_lowering *l = r->l;
  row_parts c = split_line(l->g, w);
  bool rest = !cy_dim_is(l->g, c.rest, 0);
  cy_dim more = cy_dim_addi(l->g, cy_dim_div(l->g, c.whole, cy_dim_const(l->g, PART)), 1);
  line next = {.extent = rest ? cy_dim_muli(l->g, more, PART) : c.whole, .level = w->level + 1};
  cy_dim dims[CY_MAX_RANK];
  int rank = 0;
  for (int i = 0; i < r->t->rank; i++)
    if (i != r->axis)
      dims[rank++] = r->t->dim[i];
  dims[rank++] = next.extent;
  next.from = cy_lower_temp(l, r->dtype, dims, rank);
  next.to = cy_lower_temp(l, r->dtype, dims, rank);
  add_parts(r, w, &c, &next.from);
  lower_line(r, &next);
  go_along(r, w, cy_dim_const(l->g, 0), c.whole, &c, c.each, &next.to);
  if (rest)
    go_along(r, w, c.whole, cy_dim_const(l->g, 1), &c, c.rest, &next.to);
}

static void lower_line(const running *r, const line *w) {
  cy_dim none = cy_dim_const(r->l->g, 0), one = cy_dim_const(r->l->g, 1);
  if (!may_split(r, w)) {
    go_along(r, w, none, one, NULL, w->extent, NULL);
    return;
  }
  cy_branch parts;
  bool always = cy_lower_branch_from(r->l, w->extent, MIN_ROW, &parts);
  lower_parts(r, w);
  if (always)
    return;
  cy_lower_otherwise(r->l, &parts);
  go_along(r, w, none, one, NULL, w->extent, NULL);
  cy_lower_join(r->l, &parts);
}

void cy_lower_cumulative(cy_lowering *l, cy_node root, cy_val root_value, cy_val target) {
  const cy_node_info *n = cy_node_of(l->g, root);
  running r = {.l = l,
               .n = n,
               .t = cy_lower_type(l, root_value),
               .target = target,
               .root_value = root_value,
               .op = cy_op_combines_by((cy_op)n->op),
               .axis = (int)cy_attr_get_int(n, CY_ATTR_axis, 0)};
  r.dtype = cy_compute_dtype((cy_dtype)r.t->dtype);
  r.lanes = cy_dim_is(l->g, cy_lower_place(l, target)->stride[r.axis], 1);
  lower_line(&r, &(line){.extent = r.t->dim[r.axis]});
}
