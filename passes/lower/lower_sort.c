/* SPDX-License-Identifier: Apache-2.0 */
/* lower_sort.c - sorting and top-k as kernels: for targets whose memory the runtime's operators do not reach.
 *
 * In: rows of anything. Elements become keys first, whole numbers that rise in the order wanted, so all that follows is
 * the same for every type. Equal keys keep the order in which they stand.
 *   1. An element's place among the ones of its part of the row is how many of them come before it: it goes there at
 *      once. Each part becomes a run.
 *   2. MERGED runs become one, again element by element: its place is the sum over the runs of how many of their
 *      elements come before it, each found by bisection. This is repeated until there is one run.
 * Where only the first k of a row are wanted, no more of any run are looked at. Every place is written once, by one
 * task, so results do not depend on timing. How many steps it takes follows from the row's length: where that is a
 * symbol, the program branches, and the second step of merging makes one run of all that are left.
 */
#include "lower_int.h"

enum { MERGED = 64 };
/* Elements of a part: PART, so that rows of up to PART * MERGED need one step of merging at most. Longer ones need two in
 * any case; then parts are SHORT, as each element is compared with all others of its part. */
enum { PART = 512, SHORT = 64 };

#define bin(b, op, x, y) cy_x_bin((b)->k, op, x, y)

/* ---- keys ---- */

static cy_expr as_signed(cy_kb *b, cy_expr x, cy_dtype from, cy_dtype to) {
  cy_expr moved = bin(b, CY_OP_xor, x, cy_x_int(b->k, from, to == CY_I64 ? INT64_MIN : INT32_MIN));
  return cy_x_op(b->k, CY_OP_bitcast, to, &moved, 1);
}

/* The bits of a float, those behind the sign turned where it is set; 0 has no sign, NaN is larger than everything. */
static cy_expr float_key(cy_kb *b, cy_expr x, cy_dtype from, cy_dtype to) {
  cy_kernel *k = b->k;
  cy_expr zero = cy_x_const(k, from, 0), max = cy_x_int(k, to, to == CY_I64 ? INT64_MAX : INT32_MAX);
  cy_expr plain = cy_x_select(k, bin(b, CY_OP_eq, x, zero), zero, x);
  cy_expr bits = cy_x_op(k, CY_OP_bitcast, to, &plain, 1);
  cy_expr key = cy_x_select(k, bin(b, CY_OP_lt, bits, cy_x_int(k, to, 0)), bin(b, CY_OP_xor, bits, max), bits);
  return cy_x_select(k, cy_x_un(k, CY_OP_isnan, x), max, key);
}

cy_dtype cy_lower_key_type(cy_dtype t) {
  t = cy_compute_dtype(t);
  return cy_dtype_of(t)->bits == 64 ? CY_I64 : CY_I32;
}

cy_expr cy_lower_key(cy_kb *b, cy_expr x, bool falling) {
  cy_dtype from = (cy_dtype)cy_expr_of(b->k, x)->dtype, to = cy_lower_key_type(from);
  cy_expr key;
  if (cy_dtype_is_float(from))
    key = float_key(b, x, from, to);
  else if (from == CY_U32 || from == CY_U64)
    key = as_signed(b, x, from, to);
  else
    key = cy_x_cast(b->k, x, to);
  return falling ? cy_x_un(b->k, CY_OP_not, key) : key;
}

/* ---- runs ---- */

/* A row has its runs one behind the other, `step` elements apart, and of each the first `width`, of the last one less:
 * `total` in all. A run covers `span` elements of the row as it was. */
typedef struct runs {
  cy_place key, at; /* [rows][..]: keys; where the elements stood */
  cy_dim step, width, total, count;
  int64_t span; /* 0: all of it */
} runs;

typedef void taker(cy_lowering *l, const cy_lower_sorted *s, void *ctx);

typedef struct sorting {
  cy_lowering *l;
  const cy_lower_rows *from;
  cy_dim k; /* of a row are wanted */
  int64_t part;
  cy_dtype at_type;
  taker *take;
  void *ctx;
} sorting;

static cy_dim number(const sorting *s, int64_t n) { return cy_dim_const(s->l->g, n); }

/* Room for `row` elements in each row. */
static runs room(const sorting *s, cy_dim row, int64_t span, cy_dim step) {
  cy_graph *g = s->l->g;
  cy_dim dims[2] = {s->from->rows, row}, n = s->from->n;
  runs r = {.step = step, .width = s->k, .total = s->k, .count = number(s, 1), .span = span};
  r.key = cy_lower_temp(s->l, s->from->type, dims, 2);
  r.at = cy_lower_temp(s->l, s->at_type, dims, 2);
  if (!span)
    return r;
  r.width = cy_dim_min(g, s->k, number(s, span));
  r.count = cy_dim_cdiv(g, n, number(s, span));
  cy_dim whole = cy_dim_sub(g, r.count, number(s, 1));
  cy_dim last = cy_dim_min(g, r.width, cy_dim_sub(g, n, cy_dim_muli(g, whole, span)));
  r.total = cy_dim_add(g, cy_dim_mul(g, whole, r.width), last);
  return r;
}

static cy_expr load(cy_kb *b, const cy_place *p, cy_dtype type, cy_expr row, cy_expr at) {
  const cy_expr idx[2] = {row, at};
  return cy_kb_load(b, p, type, 2, idx);
}

static void put(const sorting *s, cy_kb *b, const runs *to, cy_expr row, cy_expr place, cy_expr key, cy_expr at) {
  const cy_expr idx[2] = {row, place};
  cy_kb_store(b, &to->key, s->from->type, 2, idx, key);
  cy_kb_store(b, &to->at, s->at_type, 2, idx, at);
}

/* Does `theirs` come before `mine`? Of equal ones it does if it stands in front. */
static cy_expr before(cy_kb *b, cy_expr theirs, cy_expr mine, cy_expr in_front) {
  return bin(b, CY_OP_or, bin(b, CY_OP_lt, theirs, mine), bin(b, CY_OP_and, bin(b, CY_OP_eq, theirs, mine), in_front));
}

static runs sort_parts(const sorting *s) {
  cy_graph *g = s->l->g;
  cy_dim n = s->from->n, iterations = cy_dim_min(g, n, number(s, s->part));
  runs to = room(s, n, s->part, number(s, s->part));
  cy_kb b;
  cy_kb_init(&b, s->l, "sort_parts");
  cy_kernel *k = b.k;
  cy_expr row = cy_kb_grid_index(&b, s->from->rows), i = cy_kb_grid_index(&b, n);
  cy_expr mine = load(&b, &s->from->place, s->from->type, row, i), first = cy_x_index(k, 0);
  bool whole = cy_dim_is(g, to.count, 1); /* the row is one part */
  if (!whole)
    first = bin(&b, CY_OP_mul, bin(&b, CY_OP_div, i, cy_x_index(k, s->part)), cy_x_index(k, s->part));
  cy_local smaller = cy_kernel_add_local(k, s->at_type);
  cy_kernel_set(k, smaller, cy_x_int(k, s->at_type, 0));
  cy_expr j = bin(&b, CY_OP_add, first, cy_kb_loop(&b, iterations, false));
  cy_expr inside = whole ? j : cy_lower_clamp(&b, j, n);
  cy_expr earlier = bin(&b, CY_OP_lt, j, i), theirs = load(&b, &s->from->place, s->from->type, row, inside);
  cy_expr counts = before(&b, theirs, mine, earlier);
  if (!whole)
    counts = bin(&b, CY_OP_and, counts, bin(&b, CY_OP_lt, j, cy_x_dim(k, n)));
  cy_kernel_accum(k, smaller, CY_OP_add, cy_x_cast(k, counts, s->at_type));
  cy_kernel_end(k);
  cy_expr place = bin(&b, CY_OP_add, first, cy_x_cast(k, cy_x_local(k, smaller), CY_I64));
  put(s, &b, &to, row, place, mine, i);
  cy_kb_launch(&b, true);
  return to;
}

/* Opens and closes a loop that sets `pos` to how many of the first `length` elements of a run come before `mine`; at
 * most `max`. */
static void bisect(const sorting *s, cy_kb *b, const runs *from, cy_expr row, cy_expr first, cy_expr length,
                   int64_t max, cy_expr mine, cy_expr in_front, cy_local pos) {
  cy_kernel *k = b->k;
  int64_t iterations = 0;
  while (max >> iterations)
    iterations++;
  cy_local step = cy_kernel_add_local(k, CY_I64);
  cy_kernel_set(k, pos, cy_x_index(k, 0));
  cy_kernel_set(k, step, cy_x_index(k, (int64_t)1 << (iterations ? iterations - 1 : 0)));
  cy_kb_loop(b, number(s, iterations), false);
  cy_expr next = bin(b, CY_OP_add, cy_x_local(k, pos), cy_x_local(k, step)), one = cy_x_index(k, 1);
  cy_expr last = bin(b, CY_OP_max, bin(b, CY_OP_min, next, length), one); /* never outside of the row */
  cy_expr theirs = load(b, &from->key, s->from->type, row, bin(b, CY_OP_sub, bin(b, CY_OP_add, first, last), one));
  cy_expr fits = bin(b, CY_OP_and, bin(b, CY_OP_le, next, length), before(b, theirs, mine, in_front));
  cy_kernel_set(k, pos, cy_x_select(k, fits, next, cy_x_local(k, pos)));
  cy_kernel_set(k, step, bin(b, CY_OP_shr, cy_x_local(k, step), one));
  cy_kernel_end(k);
}

static runs merge(const sorting *s, const runs *from) {
  cy_graph *g = s->l->g;
  bool all = from->span > s->part && !cy_dim_is_const(g, s->from->n, NULL);
  cy_dim merged = all ? from->count : cy_dim_min(g, from->count, number(s, MERGED));
  runs to = room(s, from->total, all ? 0 : from->span * MERGED, cy_dim_muli(g, from->width, MERGED));
  int64_t min, max;
  cy_dim_range(g, from->width, &min, &max);
  cy_kb b;
  cy_kb_init(&b, s->l, "sort_merge");
  cy_kernel *k = b.k;
  cy_expr row = cy_kb_grid_index(&b, s->from->rows), e = cy_kb_grid_index(&b, from->total);
  cy_expr width = cy_x_dim(k, from->width), step = cy_x_dim(k, from->step);
  cy_expr run = bin(&b, CY_OP_div, e, width), p = bin(&b, CY_OP_sub, e, bin(&b, CY_OP_mul, run, width));
  cy_expr source = bin(&b, CY_OP_add, bin(&b, CY_OP_mul, run, step), p);
  cy_expr mine = load(&b, &from->key, s->from->type, row, source), at = load(&b, &from->at, s->at_type, row, source);
  cy_expr group = all ? cy_x_index(k, 0) : bin(&b, CY_OP_div, run, cy_x_index(k, MERGED));
  cy_local smaller = cy_kernel_add_local(k, CY_I64), pos = cy_kernel_add_local(k, CY_I64);
  cy_kernel_set(k, smaller, p);
  cy_expr iteration = cy_kb_loop(&b, merged, false);
  cy_expr other = bin(&b, CY_OP_add, bin(&b, CY_OP_mul, group, cy_x_index(k, MERGED)), iteration);
  cy_expr left = bin(&b, CY_OP_sub, cy_x_dim(k, from->total), bin(&b, CY_OP_mul, other, width));
  cy_expr length = bin(&b, CY_OP_max, bin(&b, CY_OP_min, left, width), cy_x_index(k, 0));
  length = cy_x_select(k, bin(&b, CY_OP_eq, other, run), cy_x_index(k, 0), length); /* p are known to be before it */
  cy_expr first = bin(&b, CY_OP_mul, cy_lower_clamp(&b, other, from->count), step);
  bisect(s, &b, from, row, first, length, max, mine, bin(&b, CY_OP_lt, other, run), pos);
  cy_kernel_accum(k, smaller, CY_OP_add, cy_x_local(k, pos));
  cy_kernel_end(k);
  cy_expr begin = bin(&b, CY_OP_mul, group, cy_x_dim(k, to.step));
  put(s, &b, &to, row, bin(&b, CY_OP_add, begin, cy_x_local(k, smaller)), mine, at);
  cy_kb_launch(&b, true);
  return to;
}

static void take(const sorting *s, const runs *r) {
  const cy_lower_sorted sorted = {r->key, r->at, s->from->type, s->at_type};
  s->take(s->l, &sorted, s->ctx);
}

static void merge_all(const sorting *s, const runs *r) {
  int64_t min, max;
  cy_dim_range(s->l->g, r->count, &min, &max);
  if (max <= 1) {
    take(s, r);
    return;
  }
  cy_branch more;
  if (min <= 1)
    cy_lower_branch(s->l, cy_dim_max(s->l->g, cy_dim_sub(s->l->g, r->count, number(s, 1)), number(s, 0)), &more);
  runs merged = merge(s, r);
  merge_all(s, &merged);
  if (min > 1)
    return;
  cy_lower_otherwise(s->l, &more);
  take(s, r);
  cy_lower_join(s->l, &more);
}

/* Of places in a row. */
static cy_dtype index_type(cy_lowering *l, cy_dim n) {
  int64_t min, max;
  cy_dim_range(l->g, n, &min, &max);
  return max <= INT32_MAX ? CY_I32 : CY_I64;
}

/* Sorts at least the first k of each row; then `take` appends what is to be done with them: once for each way that the
 * program can take, which depends on n. */
static void sort(cy_lowering *l, const cy_lower_rows *rows, cy_dim k, taker *take, void *ctx) {
  int64_t n;
  bool many = cy_dim_is_const(l->g, rows->n, &n) && n > PART * MERGED;
  sorting s = {l, rows, k, many ? SHORT : PART, index_type(l, rows->n), take, ctx};
  runs r = sort_parts(&s);
  merge_all(&s, &r);
}

/* ---- rows as a whole ---- */

static void take_all(cy_lowering *l, const cy_lower_sorted *s, void *ctx) {
  (void)l;
  *(cy_lower_sorted *)ctx = *s;
}

typedef struct gathered {
  cy_lower_sorted to;
  const cy_lower_rows *rows;
} gathered;

/* Wherever the rows came to lie, they end up in one place. */
static void take_copy(cy_lowering *l, const cy_lower_sorted *s, void *ctx) {
  const gathered *c = ctx;
  cy_dim dims[2] = {c->rows->rows, c->rows->n};
  const cy_type keys = cy_type_make(s->type, 2, dims), at = cy_type_make(s->at_type, 2, dims);
  cy_lower_copy(l, &s->key, &c->to.key, &keys);
  cy_lower_copy(l, &s->at, &c->to.at, &at);
}

cy_lower_sorted cy_lower_sort_all(cy_lowering *l, const cy_lower_rows *rows) {
  cy_dim dims[2] = {rows->rows, rows->n};
  gathered c = {.rows = rows};
  if (cy_dim_is_const(l->g, rows->n, NULL)) {
    sort(l, rows, rows->n, take_all, &c.to);
    return c.to;
  }
  c.to = (cy_lower_sorted){.type = rows->type, .at_type = index_type(l, rows->n)};
  c.to.key = cy_lower_temp(l, c.to.type, dims, 2);
  c.to.at = cy_lower_temp(l, c.to.at_type, dims, 2);
  sort(l, rows, rows->n, take_copy, &c);
  return c.to;
}

/* ---- top-k ---- */

typedef struct topk {
  const cy_node_info *n;
  const cy_type *x;
  int axis;
  cy_dim stride[CY_MAX_RANK]; /* of the number of a row, along the other axes */
} topk;

/* The row that index idx of the input or an output is in. */
static cy_expr row_of(const topk *t, cy_kb *b, const cy_expr *idx) {
  cy_expr row = cy_x_index(b->k, 0);
  for (int i = 0; i < t->x->rank; i++)
    if (i != t->axis)
      row = bin(b, CY_OP_add, row, bin(b, CY_OP_mul, idx[i], cy_x_dim(b->k, t->stride[i])));
  return row;
}

static cy_lower_rows topk_keys(cy_lowering *l, topk *t, bool largest) {
  cy_lower_rows rows = {.rows = cy_dim_const(l->g, 1), .n = t->x->dim[t->axis]};
  for (int i = t->x->rank; i-- > 0;) {
    t->stride[i] = rows.rows;
    if (i != t->axis)
      rows.rows = cy_dim_mul(l->g, rows.rows, t->x->dim[i]);
  }
  cy_dim dims[2] = {rows.rows, rows.n};
  rows.type = cy_lower_key_type((cy_dtype)t->x->dtype);
  rows.place = cy_lower_temp(l, rows.type, dims, 2);
  cy_kb b;
  cy_kb_init(&b, l, "sort_keys");
  cy_expr idx[CY_MAX_RANK];
  for (int i = 0; i < t->x->rank; i++)
    idx[i] = cy_kb_grid_index(&b, t->x->dim[i]);
  const cy_expr to[2] = {row_of(t, &b, idx), idx[t->axis]};
  cy_kb_store(&b, &rows.place, rows.type, 2, to, cy_lower_key(&b, cy_lower_at(&b, t->n->in[0], idx), largest));
  cy_kb_launch(&b, true);
  return rows;
}

static void take_topk(cy_lowering *l, const cy_lower_sorted *s, void *ctx) {
  const topk *t = ctx;
  const cy_type *out = cy_lower_type(l, t->n->out[0]);
  cy_kb b;
  cy_expr idx[CY_MAX_RANK], from[CY_MAX_RANK];
  cy_kb_init(&b, l, "topk");
  for (int i = 0; i < out->rank; i++)
    from[i] = idx[i] = cy_kb_grid_index(&b, out->dim[i]);
  const cy_expr place[2] = {row_of(t, &b, idx), idx[t->axis]};
  from[t->axis] = cy_x_cast(b.k, cy_kb_load(&b, &s->at, s->at_type, 2, place), CY_I64);
  if (l->place[t->n->out[0]].placed)
    cy_kb_store(&b, cy_lower_place(l, t->n->out[0]), (cy_dtype)out->dtype, out->rank, idx,
                cy_lower_at(&b, t->n->in[0], from));
  if (l->place[t->n->out[1]].placed)
    cy_kb_store(&b, cy_lower_place(l, t->n->out[1]), CY_I64, out->rank, idx, from[t->axis]);
  cy_kb_launch(&b, true);
}

void cy_lower_topk(cy_lowering *l, const cy_node_info *n) {
  topk t = {.n = n, .x = cy_lower_type(l, n->in[0]), .axis = (int)cy_attr_get_int(n, CY_ATTR_axis, 0)};
  for (uint32_t i = 0; i < n->nout; i++)
    if (l->uses.start[n->out[i]] != l->uses.start[n->out[i] + 1])
      cy_lower_alloc(l, n->out[i]);
  cy_lower_rows rows = topk_keys(l, &t, cy_attr_get_int(n, CY_ATTR_largest, 1) != 0);
  sort(l, &rows, cy_lower_type(l, n->out[0])->dim[t.axis], take_topk, &t);
}
