/* SPDX-License-Identifier: Apache-2.0 */
/* lower_rows.c - kernels that pass over a row more than once: softmax, normalisation, rows as bytes.
 *
 * One task is one row (all axes but the reduced ones). Rows that lie contiguously in memory are vectorised along
 * themselves; for all others the loops stay plain and scheduling vectorises across neighbouring rows.
 */
#include "lower_int.h"

static const cy_node_info *node_of(cy_lowering *l, cy_node n) { return cy_node_of(l->g, n); }
#define bin(b, op, x, y) cy_x_bin((b)->k, op, x, y)

/* Grid variables for every axis of t that is not in `skip`. */
static void grid_rows(cy_kb *b, const cy_type *t, const bool *skip, cy_expr *idx) {
  for (int i = 0; i < t->rank; i++)
    if (!skip[i])
      idx[i] = cy_kb_grid_index(b, t->dim[i]);
}

static cy_local local_set(cy_kb *b, cy_dtype dtype, cy_expr v) {
  cy_local l = cy_kernel_add_local(b->k, dtype);
  cy_kernel_set(b->k, l, v);
  return l;
}

/* ---- softmax ---- */

typedef struct soft {
  cy_lowering *l;
  const cy_node_info *n;
  const cy_type *t;
  cy_val target, root_value;
  cy_dtype dtype;
  int axis;
  bool log, lanes, skip[CY_MAX_RANK];
} soft;

static cy_expr soft_at(const soft *s, cy_kb *b, const cy_expr *idx) { return cy_lower_at(b, s->n->in[0], idx); }
static cy_expr soft_exp(const soft *s, cy_kb *b, const cy_expr *idx, cy_expr top) {
  return cy_x_exp_below(b->k, bin(b, CY_OP_sub, soft_at(s, b, idx), top));
}
static cy_expr soft_last(const soft *s, cy_kb *b, cy_expr sum) {
  return s->log ? cy_x_un(b->k, CY_OP_log, sum) : bin(b, CY_OP_div, cy_x_const(b->k, s->dtype, 1), sum);
}

/* An element from exp(x - top), which a logarithm has no use for, and the row's soft_last(). */
static void soft_finish(const soft *s, cy_kb *b, const cy_expr *idx, cy_expr e, cy_expr top, cy_expr last) {
  cy_expr v = s->log ? bin(b, CY_OP_sub, bin(b, CY_OP_sub, soft_at(s, b, idx), top), last) : bin(b, CY_OP_mul, e, last);
  cy_lower_finish(b, s->target, s->root_value, idx, v);
}

enum { ROW_KEPT = 2048 };

/* Are exponentials kept for the last pass in the output, rather than in scratch? Of long rows: three of them are more
 * than the first cache holds. */
static bool kept_in_output(const soft *s) {
  int64_t length;
  bool is_short = cy_dim_is_const(s->l->g, s->t->dim[s->axis], &length) && length < ROW_KEPT;
  return !is_short && !s->l->busy_parts && s->target == s->root_value && s->t->dtype == s->dtype;
}

/* A task is a row. */
static void soft_of_rows(const soft *s) {
  cy_kb b;
  cy_expr idx[CY_MAX_RANK], e;
  cy_dim extent = s->t->dim[s->axis];
  cy_kb_init(&b, s->l, cy_op_of(s->n->op)->name);
  cy_kernel *k = b.k;
  grid_rows(&b, s->t, s->skip, idx);
  const cy_place *out = cy_lower_place(s->l, s->target);
  bool kept = s->lanes && !s->log, in_output = kept && kept_in_output(s);
  cy_karg row = in_output ? cy_kb_arg(&b, out, s->dtype, CY_ARG_WRITE) : kept ? cy_kb_scratch(&b, s->dtype, extent) : 0;

  cy_local max = local_set(&b, s->dtype, cy_x_const(k, s->dtype, -__builtin_inf()));
  idx[s->axis] = cy_kb_loop(&b, extent, s->lanes);
  cy_kernel_accum(k, max, CY_OP_max, soft_at(s, &b, idx));
  cy_kernel_end(k);

  cy_local sum = local_set(&b, s->dtype, cy_x_const(k, s->dtype, 0));
  idx[s->axis] = cy_kb_loop(&b, extent, s->lanes);
  e = soft_exp(s, &b, idx, cy_x_local(k, max));
  if (kept)
    cy_kernel_store(k, row, in_output ? cy_kb_offset(&b, out, s->t->rank, idx) : idx[s->axis], e);
  cy_kernel_accum(k, sum, CY_OP_add, e);
  cy_kernel_end(k);

  cy_local last = local_set(&b, s->dtype, soft_last(s, &b, cy_x_local(k, sum)));
  idx[s->axis] = cy_kb_loop(&b, extent, s->lanes);
  cy_expr at = in_output ? cy_kb_offset(&b, out, s->t->rank, idx) : idx[s->axis];
  e = kept ? cy_x_load(k, row, at) : s->log ? 0 : soft_exp(s, &b, idx, cy_x_local(k, max));
  cy_expr over = cy_x_local(k, last);
  soft_finish(s, &b, idx, e, cy_x_local(k, max), over);
  cy_kernel_end(k);
  cy_kb_launch(&b, true);
}

enum { SOFT_ROW = 1 << 16, SOFT_PART = 1 << 12, SOFT_PARTS = 1 << 10 };

/* Rows cut into `whole` parts of `each` elements and one of `rest`, which may be 0. Of parts, [rows.., parts]: the
 * greatest element and the sum of exponentials below it; of rows: the same, the sum as soft_last(). */
typedef struct soft_parts {
  cy_dim whole, each, rest;
  int rank; /* of those of rows */
  cy_place tops, sums, top, last;
} soft_parts;

/* May a row be more than a block of a device holds, so that one block would read it again and again while others idle? */
static bool split_soft(const soft *s, soft_parts *out) {
  cy_graph *g = s->l->g;
  cy_dim extent = s->t->dim[s->axis];
  int64_t lower, upper, each = SOFT_PART;
  cy_dim_range(g, extent, &lower, &upper);
  if (!s->l->busy_parts || upper < SOFT_ROW)
    return false;
  if (lower == upper && cy_ceil(upper, SOFT_PARTS) > each)
    each = cy_round_up(cy_ceil(upper, SOFT_PARTS), SOFT_PART);
  out->each = cy_dim_const(g, each);
  out->whole = cy_dim_div(g, extent, out->each);
  out->rest = cy_dim_mod(g, extent, out->each);
  return true;
}

static int soft_row(const soft *s, const cy_expr *idx, cy_expr *out) {
  int rank = 0;
  for (int i = 0; i < s->t->rank; i++)
    if (i != s->axis)
      out[rank++] = idx[i];
  return rank;
}

/* Of `count` parts from `first` on. A part of nothing, or of nothing but -inf, is one whose sum is 0: its maximum is
 * taken to be the least number, which stays below that of any other part. */
static void soft_make_parts(const soft *s, const soft_parts *p, cy_dim first, cy_dim count, cy_dim each) {
  cy_kb b;
  cy_expr idx[CY_MAX_RANK], at[CY_MAX_RANK];
  cy_kb_init(&b, s->l, cy_op_of(s->n->op)->name);
  cy_kernel *k = b.k;
  grid_rows(&b, s->t, s->skip, idx);
  cy_expr number = bin(&b, CY_OP_add, cy_kb_grid_index(&b, count), cy_x_dim(k, first));
  cy_expr begin = bin(&b, CY_OP_mul, number, cy_x_dim(k, p->each));
  double lower = s->dtype == CY_F64 ? -__DBL_MAX__ : -__FLT_MAX__;
  cy_local top = local_set(&b, s->dtype, cy_x_const(k, s->dtype, lower));
  idx[s->axis] = bin(&b, CY_OP_add, begin, cy_kb_loop(&b, each, s->lanes));
  cy_kernel_accum(k, top, CY_OP_max, soft_at(s, &b, idx));
  cy_kernel_end(k);
  cy_local sum = local_set(&b, s->dtype, cy_x_const(k, s->dtype, 0));
  idx[s->axis] = bin(&b, CY_OP_add, begin, cy_kb_loop(&b, each, s->lanes));
  cy_kernel_accum(k, sum, CY_OP_add, soft_exp(s, &b, idx, cy_x_local(k, top)));
  cy_kernel_end(k);
  at[soft_row(s, idx, at)] = number;
  cy_kb_store(&b, &p->tops, s->dtype, p->rank + 1, at, cy_x_local(k, top));
  cy_kb_store(&b, &p->sums, s->dtype, p->rank + 1, at, cy_x_local(k, sum));
  cy_kb_launch(&b, true);
}

static void soft_join_parts(const soft *s, const soft_parts *p, cy_dim parts) {
  cy_kb b;
  cy_expr idx[CY_MAX_RANK], at[CY_MAX_RANK];
  cy_kb_init(&b, s->l, cy_op_of(s->n->op)->name);
  cy_kernel *k = b.k;
  grid_rows(&b, s->t, s->skip, idx);
  int last = soft_row(s, idx, at);
  cy_local top = local_set(&b, s->dtype, cy_x_const(k, s->dtype, -__builtin_inf()));
  at[last] = cy_kb_loop(&b, parts, true);
  cy_kernel_accum(k, top, CY_OP_max, cy_kb_load(&b, &p->tops, s->dtype, p->rank + 1, at));
  cy_kernel_end(k);
  cy_local sum = local_set(&b, s->dtype, cy_x_const(k, s->dtype, 0));
  at[last] = cy_kb_loop(&b, parts, true);
  cy_expr below = bin(&b, CY_OP_sub, cy_kb_load(&b, &p->tops, s->dtype, p->rank + 1, at), cy_x_local(k, top));
  cy_expr part = cy_kb_load(&b, &p->sums, s->dtype, p->rank + 1, at);
  cy_kernel_accum(k, sum, CY_OP_add, bin(&b, CY_OP_mul, part, cy_x_exp_below(k, below)));
  cy_kernel_end(k);
  cy_kb_store(&b, &p->top, s->dtype, p->rank, at, cy_x_local(k, top));
  cy_kb_store(&b, &p->last, s->dtype, p->rank, at, soft_last(s, &b, cy_x_local(k, sum)));
  cy_kb_launch(&b, true);
}

/* Kernels for parts, for what rows have of them, for elements: rows are read twice, by the whole device. */
static void soft_of_parts(const soft *s, soft_parts *p) {
  static const bool none[CY_MAX_RANK];
  cy_lowering *l = s->l;
  cy_kb b;
  cy_expr idx[CY_MAX_RANK], row[CY_MAX_RANK];
  bool rest = !cy_dim_is(l->g, p->rest, 0);
  cy_dim dims[CY_MAX_RANK], one = cy_dim_const(l->g, 1), parts = rest ? cy_dim_add(l->g, p->whole, one) : p->whole;
  for (int i = 0; i < s->t->rank; i++)
    if (i != s->axis)
      dims[p->rank++] = s->t->dim[i];
  dims[p->rank] = parts;
  p->tops = cy_lower_temp(l, s->dtype, dims, p->rank + 1);
  p->sums = cy_lower_temp(l, s->dtype, dims, p->rank + 1);
  p->top = cy_lower_temp(l, s->dtype, dims, p->rank);
  p->last = cy_lower_temp(l, s->dtype, dims, p->rank);
  soft_make_parts(s, p, cy_dim_const(l->g, 0), p->whole, p->each);
  if (rest)
    soft_make_parts(s, p, p->whole, one, p->rest);
  soft_join_parts(s, p, parts);
  cy_kb_init(&b, l, cy_op_of(s->n->op)->name);
  grid_rows(&b, s->t, none, idx);
  soft_row(s, idx, row);
  cy_expr top = cy_kb_load(&b, &p->top, s->dtype, p->rank, row);
  cy_expr last = cy_kb_load(&b, &p->last, s->dtype, p->rank, row);
  soft_finish(s, &b, idx, s->log ? 0 : soft_exp(s, &b, idx, top), top, last);
  cy_kb_launch(&b, true);
}

static void lower_softmax(cy_lowering *l, cy_node root, cy_val root_value, cy_val target) {
  const cy_node_info *n = node_of(l, root);
  soft s = {.l = l,
            .n = n,
            .t = cy_lower_type(l, root_value),
            .target = target,
            .root_value = root_value,
            .axis = (int)cy_attr_get_int(n, CY_ATTR_axis, -1),
            .log = n->op == CY_OP_log_softmax};
  soft_parts parts = {0};
  s.dtype = cy_compute_dtype((cy_dtype)s.t->dtype);
  s.skip[s.axis] = true;
  s.lanes = cy_dim_is(l->g, cy_lower_place(l, target)->stride[s.axis], 1);
  if (!split_soft(&s, &parts)) {
    soft_of_rows(&s);
    return;
  }
  cy_branch row_parts;
  bool always = cy_lower_branch_from(l, s.t->dim[s.axis], SOFT_ROW, &row_parts);
  soft_of_parts(&s, &parts);
  if (always)
    return;
  cy_lower_otherwise(l, &row_parts);
  soft_of_rows(&s);
  cy_lower_join(l, &row_parts);
}

/* ---- rows as bytes ---- */

/* Rows of bytes by a scale of their own; their floats are computed first, in one loop with their largest magnitude. */
typedef struct byte_rows {
  cy_lowering *l;
  const cy_node_info *n;
  const cy_type *t;
  cy_local upper; /* bits of the largest magnitude, which have the order of what they stand for */
  bool lanes, kept;
  cy_karg row; /* the floats of a row, where they are kept */
} byte_rows;

static byte_rows byte_rows_begin(cy_kb *b, const cy_node_info *n, bool kept) {
  const cy_type *t = cy_lower_type(b->l, n->in[0]);
  byte_rows r = {.l = b->l, .n = n, .t = t, .kept = kept};
  r.lanes = cy_dim_is(b->l->g, cy_lower_place(b->l, n->out[0])->stride[t->rank - 1], 1);
  r.row = kept ? cy_kb_scratch(b, CY_F32, t->dim[t->rank - 1]) : 0;
  r.upper = local_set(b, CY_U32, cy_x_int(b->k, CY_U32, 0));
  return r;
}

/* x: element idx of a row. */
static void byte_rows_take(const byte_rows *r, cy_kb *b, const cy_expr *idx, cy_expr x) {
  if (r->kept)
    cy_kernel_store(b->k, r->row, idx[r->t->rank - 1], x);
  x = cy_x_un(b->k, CY_OP_abs, x);
  cy_kernel_accum(b->k, r->upper, CY_OP_max, cy_x_op(b->k, CY_OP_bitcast, CY_U32, &x, 1));
}

/* The scale and the bytes of a row that has been taken. factor: what its floats lack, the same and positive for all; 0:
 * nothing. Bytes do not depend on it, so they need not wait for it. */
static void byte_rows_end(const byte_rows *r, cy_kb *b, cy_expr *idx, cy_expr factor) {
  cy_kernel *k = b->k;
  int last = r->t->rank - 1;
  cy_val ints = r->n->out[0], scale = r->n->out[1];
  const bool float8 = cy_attr_get_int(r->n, CY_ATTR_round, CY_I8) == CY_F8E4M3FN;
  const double steps = float8 ? 448 : 127;
  cy_expr bits = cy_x_local(k, r->upper), x = cy_x_op(k, CY_OP_bitcast, CY_F32, &bits, 1);
  cy_local upper = local_set(b, CY_F32, bin(b, CY_OP_max, x, cy_x_const(k, CY_F32, 1e-30)));
  cy_local up = local_set(b, CY_F32, bin(b, CY_OP_div, cy_x_const(k, CY_F32, steps), cy_x_local(k, upper)));
  idx[last] = cy_x_index(k, 0);
  x = bin(b, CY_OP_mul, cy_x_local(k, upper), cy_x_const(k, CY_F32, 1 / steps));
  x = factor ? bin(b, CY_OP_mul, x, factor) : x;
  cy_kb_store(b, cy_lower_place(r->l, scale), CY_F32, r->t->rank, idx, x);
  idx[last] = cy_kb_loop(b, r->t->dim[last], r->lanes);
  x = r->kept ? cy_x_load(k, r->row, idx[last]) : cy_lower_at(b, r->n->in[0], idx);
  x = bin(b, CY_OP_mul, x, cy_x_local(k, up));
  if (!float8) {
    x = bin(b, CY_OP_min, bin(b, CY_OP_max, x, cy_x_const(k, CY_F32, -127)), cy_x_const(k, CY_F32, 127));
    x = cy_x_cast(k, cy_x_un(k, CY_OP_round, x), CY_I32); /* bounded, both are one instruction */
  }
  x = cy_x_cast(k, x, float8 ? CY_F8E4M3FN : CY_I8); /* the former saturates */
  cy_lower_finish(b, ints, ints, idx, float8 ? cy_x_cast(k, x, CY_F32) : x);
  cy_kernel_end(k);
}

/* A task is a row. What is computed on the way is kept rather than computed twice. */
static void lower_quantize_rows(cy_lowering *l, cy_node root, cy_val root_value, cy_val target) {
  const cy_node_info *n = node_of(l, root);
  const cy_type *t = cy_lower_type(l, target);
  bool skip[CY_MAX_RANK] = {false};
  cy_kb b;
  cy_expr idx[CY_MAX_RANK];
  (void)root_value; /* the same: nothing joins it */
  cy_kb_init(&b, l, cy_op_of(n->op)->name);
  skip[t->rank - 1] = true;
  grid_rows(&b, t, skip, idx);
  byte_rows r = byte_rows_begin(&b, n, cy_value_of(l->g, n->in[0])->inlined);
  idx[t->rank - 1] = cy_kb_loop(&b, t->dim[t->rank - 1], r.lanes);
  byte_rows_take(&r, &b, idx, cy_lower_at(&b, n->in[0], idx));
  cy_kernel_end(b.k);
  byte_rows_end(&r, &b, idx, 0);
  cy_kb_launch(&b, true);
}

/* ---- normalisation ---- */

typedef struct norm {
  cy_lowering *l;
  const cy_node_info *n;
  const cy_type *t;
  cy_val target, root_value;
  cy_dtype dtype;
  bool rms, lanes, reduced[CY_MAX_RANK];
  int axis[CY_MAX_RANK], naxes; /* the reduced ones as memory has them, outermost first */
  const cy_node_info *bytes;    /* what makes the target, where those are rows as bytes; else NULL */
  cy_dim count;                 /* elements of a row */
} norm;

static norm norm_of(cy_lowering *l, cy_node root, cy_val root_value, cy_val target) {
  const cy_node_info *n = node_of(l, root);
  const cy_attr *axes = cy_attr_find(n, CY_ATTR_axes);
  norm m = {.l = l,
            .n = n,
            .t = cy_lower_type(l, root_value),
            .target = target,
            .root_value = root_value,
            .rms = cy_attr_get_int(n, CY_ATTR_rms, 0) != 0,
            .count = cy_dim_const(l->g, 1)};
  const uint8_t *layout = cy_value_of(l->g, root_value)->layout;
  m.dtype = cy_compute_dtype((cy_dtype)m.t->dtype);
  for (uint32_t i = 0; i < axes->n; i++) {
    m.reduced[axes->ints[i]] = true;
    m.count = cy_dim_mul(l->g, m.count, m.t->dim[axes->ints[i]]);
  }
  for (int i = 0; i < m.t->rank; i++)
    if (m.reduced[layout[i]])
      m.axis[m.naxes++] = layout[i];
  m.lanes = cy_dim_is(l->g, cy_lower_place(l, target)->stride[m.axis[m.naxes - 1]], 1);
  const cy_node_info *last = node_of(l, cy_value_of(l->g, target)->node);
  m.bytes = last->op == CY_OP_quantize_rows ? last : NULL;
  return m;
}

static cy_expr one_over(const norm *m, cy_kb *b, cy_dim d) {
  return bin(b, CY_OP_div, cy_x_const(b->k, m->dtype, 1), cy_x_cast(b->k, cy_x_dim(b->k, d), m->dtype));
}

/* 1 / sqrt(squares / count + epsilon) */
static cy_expr scale_of(const norm *m, cy_kb *b, cy_expr squares) {
  cy_expr mean = bin(b, CY_OP_mul, squares, one_over(m, b, m->count));
  mean = bin(b, CY_OP_add, mean, cy_x_const(b->k, m->dtype, cy_attr_get_float(m->n, CY_ATTR_epsilon, 1e-5)));
  return bin(b, CY_OP_div, cy_x_const(b->k, m->dtype, 1), cy_x_un(b->k, CY_OP_sqrt, mean));
}

/* Part `number` of so many elements along the row's axis `axis`, where parts are `apart`; all of t: number is 0. */
typedef struct part {
  cy_type t;
  int axis;
  cy_dim apart;
  cy_expr number;
} part;

/* Loops over a part of a row, whose element idx then is; close_row ends them. The innermost one is vectorised when it is
 * contiguous. */
static void open_part(const norm *m, cy_kb *b, const part *p, cy_expr *idx) {
  for (int i = 0; i < m->naxes; i++)
    idx[m->axis[i]] = cy_kb_loop(b, p->t.dim[m->axis[i]], m->lanes && i == m->naxes - 1);
  if (p->number) {
    cy_expr first = bin(b, CY_OP_mul, p->number, cy_x_dim(b->k, p->apart));
    idx[p->axis] = bin(b, CY_OP_add, first, idx[p->axis]);
  }
}

static void close_row(const norm *m, cy_kb *b) {
  for (int i = 0; i < m->naxes; i++)
    cy_kernel_end(b->k);
}

/* Mean (but of an rms norm: 0) and sum of squares about it. Two passes: one is faster and wrong for data far from zero.
 */
static void statistics(const norm *m, cy_kb *b, const part *p, cy_dim count, cy_expr *idx, cy_local *out_mean,
                       cy_local *out_squares) {
  cy_kernel *k = b->k;
  *out_mean = local_set(b, m->dtype, cy_x_const(k, m->dtype, 0));
  if (!m->rms) {
    open_part(m, b, p, idx);
    cy_kernel_accum(k, *out_mean, CY_OP_add, cy_lower_at(b, m->n->in[0], idx));
    close_row(m, b);
    cy_kernel_set(k, *out_mean, bin(b, CY_OP_mul, cy_x_local(k, *out_mean), one_over(m, b, count)));
  }
  *out_squares = local_set(b, m->dtype, cy_x_const(k, m->dtype, 0));
  open_part(m, b, p, idx);
  cy_expr x = cy_lower_at(b, m->n->in[0], idx), d = m->rms ? x : bin(b, CY_OP_sub, x, cy_x_local(k, *out_mean));
  cy_kernel_accum(k, *out_squares, CY_OP_add, bin(b, CY_OP_mul, d, d));
  close_row(m, b);
}

static cy_expr centred(const norm *m, cy_kb *b, const cy_expr *idx, cy_expr mean) {
  cy_expr x = cy_lower_at(b, m->n->in[0], idx);
  return m->rms ? x : bin(b, CY_OP_sub, x, mean);
}

static cy_expr normalised(const norm *m, cy_kb *b, const cy_expr *idx, cy_expr mean, cy_expr scale) {
  return bin(b, CY_OP_mul, centred(m, b, idx, mean), scale);
}

static const char *norm_name(const norm *m) { return m->rms ? "rms_norm" : "normalize"; }

/* The row's bytes, from its floats. */
static void finish_bytes(const norm *m, cy_kb *b, const part *all, cy_expr *idx, cy_expr mean, cy_expr scale) {
  byte_rows r = byte_rows_begin(b, m->bytes, true);
  open_part(m, b, all, idx);
  cy_expr x = normalised(m, b, idx, mean, scale), v = cy_lower_behind(b, m->bytes->in[0], m->root_value, idx, x);
  bool alone = v == x;
  byte_rows_take(&r, b, idx, alone ? centred(m, b, idx, mean) : v);
  close_row(m, b);
  byte_rows_end(&r, b, idx, alone ? scale : 0);
}

/* A task is a row. */
static void norm_of_rows(const norm *m) {
  cy_kb b;
  cy_kb_init(&b, m->l, norm_name(m));
  cy_expr idx[CY_MAX_RANK];
  cy_local mean, squares;
  part all = {.t = *m->t};
  grid_rows(&b, m->t, m->reduced, idx);
  statistics(m, &b, &all, m->count, idx, &mean, &squares);
  cy_local scale = local_set(&b, m->dtype, scale_of(m, &b, cy_x_local(b.k, squares)));
  cy_expr centre = cy_x_local(b.k, mean), factor = cy_x_local(b.k, scale);
  if (m->bytes) {
    finish_bytes(m, &b, &all, idx, centre, factor);
  } else {
    open_part(m, &b, &all, idx);
    cy_expr x = normalised(m, &b, idx, centre, factor);
    cy_lower_finish(&b, m->target, m->root_value, idx, x);
    close_row(m, &b);
  }
  cy_kb_launch(&b, true);
}

enum {
  MIN_ROW = 1 << 14,
  MIN_PART = 1 << 11,
  MAX_PARTS = 256,
  MIN_PARTS = 8,
  ENOUGH_ROWS = 64,
  MIN_RUN = 64 /* elements of a part side by side: fewer waste what comes with them into the cache */
};

/* .. of few channels that are innermost, on devices, where a block has some of them */
enum { MIN_BUSY_ROW = 1 << 12, MIN_BUSY_PART = 1 << 8, FEW_CHANNELS = 512 };

/* Has a row whose length is not known parts whose length is, each index of its outermost axis one? */
static bool has_known_parts(const norm *m) {
  int64_t run;
  cy_dim part = cy_dim_div(m->l->g, m->count, m->t->dim[m->axis[0]]);
  return cy_dim_is_const(m->l->g, part, &run) && run >= MIN_RUN;
}

/* How rows are cut: along `axis` into `whole` parts of `each` indices and one of `rest`, which may be 0. */
typedef struct row_split {
  int axis;
  cy_dim whole, each, rest;
} row_split;

static row_split split_evenly(const norm *m, int axis, cy_dim parts) {
  cy_graph *g = m->l->g;
  cy_dim each = cy_dim_div(g, m->t->dim[axis], parts);
  return (row_split){axis, parts, each, cy_dim_const(g, 0)};
}

static row_split split_with_rest(const norm *m, int axis, int64_t each) {
  cy_graph *g = m->l->g;
  cy_dim extent = m->t->dim[axis], of = cy_dim_const(g, each), whole = cy_dim_div(g, extent, of);
  return (row_split){axis, whole, of, cy_dim_mod(g, extent, of)};
}

/* Are rows, or may they be, so long that their statistics are better made part by part? Of rows that lanes are not
 * along, lest a sum of f32 has too many terms one after the other, and few tasks are all there is; of others for the
 * tasks alone: where lengths are not known, on devices by lines, or where those of parts are. */
static bool split_row(const norm *m, row_split *out) {
  cy_graph *g = m->l->g;
  int64_t length = 0, rows = 1, extent;
  bool known = cy_dim_is_const(g, m->count, &length);
  for (int i = 0; i < m->t->rank; i++)
    if (!m->reduced[i])
      rows *= cy_dim_is_const(g, m->t->dim[i], &extent) ? extent : 1;
  bool busy = m->l->busy_parts && !m->lanes && rows < FEW_CHANNELS;
  int64_t min_row = busy ? MIN_BUSY_ROW : MIN_ROW, min_part = busy ? MIN_BUSY_PART : MIN_PART;
  if (m->l->o->level == 0 || (known && length < min_row) ||
      (m->lanes && !known && !m->l->busy_parts && !has_known_parts(m)))
    return false;
  if (m->lanes && rows >= ENOUGH_ROWS)
    return false;
  for (int i = 0; i < m->naxes; i++) {
    int axis = m->axis[i];
    int64_t run = m->lanes && i == m->naxes - 1 ? MIN_RUN : 1;
    bool fixed = cy_dim_is_const(g, m->t->dim[axis], &extent), alone = m->t->dim[axis] == m->count;
    *out = split_evenly(m, axis, m->t->dim[axis]);
    if (m->lanes && !known)
      return !alone && (!fixed || extent >= MIN_PARTS);
    if (!fixed && alone)
      *out = split_with_rest(m, axis, MIN_PART);
    if (!fixed)
      return true;
    int64_t upper = extent < MAX_PARTS ? extent : MAX_PARTS, parts = upper;
    while (parts >= MIN_PARTS && (extent % parts || extent / parts < run || (known && length / parts < min_part)))
      parts--;
    *out = split_evenly(m, axis, cy_dim_const(g, parts));
    if (parts >= MIN_PARTS)
      return true;
    if (known && !m->lanes && extent >= MIN_ROW) { /* no divisor fits */
      *out = split_with_rest(m, axis, cy_ceil(extent, upper) > MIN_PART ? cy_ceil(extent, upper) : MIN_PART);
      return true;
    }
  }
  return false;
}

/* idx of the axes that are not reduced, behind `first`, which is 0 for none. */
static void row_place(const norm *m, cy_expr first, const cy_expr *idx, cy_expr *out) {
  int rank = 0;
  if (first)
    out[rank++] = first;
  for (int i = 0; i < m->t->rank; i++)
    if (!m->reduced[i])
      out[rank++] = idx[i];
}

/* Statistics on their way: of parts, [parts, rows..]; of rows. */
typedef struct part_places {
  row_split row_parts;
  int rank; /* of those of parts */
  cy_place means, squares, mean, scale;
} part_places;

/* Parts of equal size: `count` from number `first` on, of `extent` indices of the axis that is cut. */
typedef struct equal_parts {
  cy_dim first, count, extent;
} equal_parts;

static int equal_parts_of(cy_graph *g, const row_split *c, equal_parts out[2]) {
  out[0] = (equal_parts){cy_dim_const(g, 0), c->whole, c->each};
  out[1] = (equal_parts){c->whole, cy_dim_min(g, c->rest, cy_dim_const(g, 1)), c->rest};
  return cy_dim_is(g, c->rest, 0) ? 1 : 2;
}

/* Elements of one of them. */
static cy_dim elements_of(const norm *m, int axis, const equal_parts *e) {
  cy_dim count = e->extent;
  for (int i = 0; i < m->t->rank; i++)
    if (m->reduced[i] && i != axis)
      count = cy_dim_mul(m->l->g, count, m->t->dim[i]);
  return count;
}

static void make_parts(const norm *m, const part_places *s, const equal_parts *e) {
  cy_kb b;
  cy_expr idx[CY_MAX_RANK], at[CY_MAX_RANK + 1];
  cy_local mean, squares;
  int axis = s->row_parts.axis;
  part p = {.t = *m->t, .axis = axis, .apart = s->row_parts.each};
  p.t.dim[axis] = e->extent;
  cy_kb_init(&b, m->l, norm_name(m));
  p.number = cy_kb_grid_index(&b, e->count);
  p.number = bin(&b, CY_OP_add, p.number, cy_x_dim(b.k, e->first));
  grid_rows(&b, m->t, m->reduced, idx);
  statistics(m, &b, &p, elements_of(m, axis, e), idx, &mean, &squares);
  row_place(m, p.number, idx, at);
  cy_kb_store(&b, &s->means, m->dtype, s->rank, at, cy_x_local(b.k, mean));
  cy_kb_store(&b, &s->squares, m->dtype, s->rank, at, cy_x_local(b.k, squares));
  cy_kb_launch(&b, true);
}

/* A loop over some parts of row idx: `at` is the place of one. Returns its number of elements. */
static cy_expr open_parts(const norm *m, cy_kb *b, const part_places *s, const equal_parts *e, const cy_expr *idx,
                          cy_expr *at) {
  cy_expr number = cy_kb_loop(b, e->count, false);
  row_place(m, bin(b, CY_OP_add, number, cy_x_dim(b->k, e->first)), idx, at);
  return cy_x_cast(b->k, cy_x_dim(b->k, elements_of(m, s->row_parts.axis, e)), m->dtype);
}

static void join_parts(const norm *m, const part_places *s, const equal_parts *e, int n) {
  cy_kb b;
  cy_expr idx[CY_MAX_RANK], at[CY_MAX_RANK + 1], row[CY_MAX_RANK];
  cy_kb_init(&b, m->l, norm_name(m));
  cy_kernel *k = b.k;
  grid_rows(&b, m->t, m->reduced, idx);
  row_place(m, 0, idx, row);
  cy_local mean = local_set(&b, m->dtype, cy_x_const(k, m->dtype, 0));
  for (int i = 0; i < n; i++) {
    cy_expr elements = open_parts(m, &b, s, &e[i], idx, at);
    cy_expr of = cy_kb_load(&b, &s->means, m->dtype, s->rank, at);
    cy_kernel_accum(k, mean, CY_OP_add, bin(&b, CY_OP_mul, of, elements));
    cy_kernel_end(k);
  }
  cy_kernel_set(k, mean, bin(&b, CY_OP_mul, cy_x_local(k, mean), one_over(m, &b, m->count)));
  cy_local squares = local_set(&b, m->dtype, cy_x_const(k, m->dtype, 0));
  for (int i = 0; i < n; i++) {
    cy_expr elements = open_parts(m, &b, s, &e[i], idx, at);
    cy_expr of = cy_kb_load(&b, &s->means, m->dtype, s->rank, at), d = bin(&b, CY_OP_sub, of, cy_x_local(k, mean));
    d = bin(&b, CY_OP_mul, bin(&b, CY_OP_mul, d, d), elements);
    d = bin(&b, CY_OP_add, cy_kb_load(&b, &s->squares, m->dtype, s->rank, at), d);
    cy_kernel_accum(k, squares, CY_OP_add, d);
    cy_kernel_end(k);
  }
  cy_kb_store(&b, &s->mean, m->dtype, s->rank - 1, row, cy_x_local(k, mean));
  cy_kb_store(&b, &s->scale, m->dtype, s->rank - 1, row, scale_of(m, &b, cy_x_local(k, squares)));
  cy_kb_launch(&b, true);
}

/* Three kernels: mean and squares of parts; those of rows from them (Chan, Golub, LeVeque: Updating formulae and a
 * pairwise algorithm for computing sample variances, 1979), kept as mean and scale; elements. */
static void norm_of_parts(const norm *m, const row_split *row_parts) {
  static const bool none[CY_MAX_RANK];
  cy_lowering *l = m->l;
  cy_kb b;
  cy_expr idx[CY_MAX_RANK], row[CY_MAX_RANK];
  equal_parts e[2];
  int n = equal_parts_of(l->g, row_parts, e);
  cy_dim dims[CY_MAX_RANK + 1] = {n > 1 ? cy_dim_addi(l->g, row_parts->whole, 1) : row_parts->whole};
  part_places s = {.row_parts = *row_parts, .rank = 1};
  for (int i = 0; i < m->t->rank; i++)
    if (!m->reduced[i])
      dims[s.rank++] = m->t->dim[i];
  s.means = cy_lower_temp(l, m->dtype, dims, s.rank);
  s.squares = cy_lower_temp(l, m->dtype, dims, s.rank);
  s.mean = cy_lower_temp(l, m->dtype, dims + 1, s.rank - 1);
  s.scale = cy_lower_temp(l, m->dtype, dims + 1, s.rank - 1);
  for (int i = 0; i < n; i++)
    make_parts(m, &s, &e[i]);
  join_parts(m, &s, e, n);
  cy_kb_init(&b, l, norm_name(m));
  grid_rows(&b, m->t, none, idx);
  row_place(m, 0, idx, row);
  cy_expr scale = cy_kb_load(&b, &s.scale, m->dtype, s.rank - 1, row);
  cy_expr x = normalised(m, &b, idx, cy_kb_load(&b, &s.mean, m->dtype, s.rank - 1, row), scale);
  cy_lower_finish(&b, m->target, m->root_value, idx, x);
  cy_kb_launch(&b, true);
}

static void lower_normalize(cy_lowering *l, cy_node root, cy_val root_value, cy_val target) {
  norm m = norm_of(l, root, root_value, target);
  row_split rows;
  if (m.bytes || !split_row(&m, &rows)) {
    norm_of_rows(&m);
    return;
  }
  cy_branch row_parts;
  bool always = !m.lanes || cy_lower_branch_from(l, m.count, MIN_ROW, &row_parts);
  norm_of_parts(&m, &rows);
  if (always)
    return;
  cy_lower_otherwise(l, &row_parts);
  norm_of_rows(&m);
  cy_lower_join(l, &row_parts);
}

cy_root_fn cy_lower_root_of(cy_op op) {
  static const cy_root_fn roots[CY_OP_COUNT] = {
      [CY_OP_softmax] = lower_softmax,
      [CY_OP_log_softmax] = lower_softmax,
      [CY_OP_normalize] = lower_normalize,
      [CY_OP_quantize_rows] = lower_quantize_rows,
      [CY_OP_cumsum] = cy_lower_cumulative,
      [CY_OP_cumprod] = cy_lower_cumulative,
      [CY_OP_scatter_elements] = cy_lower_scatter,
      [CY_OP_scatter_nd] = cy_lower_scatter,
      [CY_OP_write_rows] = cy_lower_write_rows,
      [CY_OP_matmul] = cy_lower_contraction,
      [CY_OP_conv] = cy_lower_contraction,
      [CY_OP_conv_transpose] = cy_lower_contraction,
      [CY_OP_matmul_blocks] = cy_lower_matmul_blocks,
      [CY_OP_attention] = cy_lower_attention,
      [CY_OP_concat] = cy_lower_concat,
      [CY_OP_pad] = cy_lower_pad,
      [CY_OP_pool_max] = cy_lower_pools,
      [CY_OP_pool_avg] = cy_lower_pools,
  };
  return roots[op];
}
