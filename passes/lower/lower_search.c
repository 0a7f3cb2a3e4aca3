/* SPDX-License-Identifier: Apache-2.0 */
/* lower_search.c - operators that look for elements, as kernels: for targets whose memory the runtime's do not reach.
 *
 * What is found is counted by parts of PART elements; sums of the counts in front of each part tell where its results
 * go. How many there are is read by the host, which gives the outputs their size. Then every result looks for its
 * element: for the part by bisection, in the part one after the other. So nothing is written twice, and no result
 * depends on timing. Semantics are those of the runtime's functions (runtime/rt_ops.def).
 */
#include "lower_int.h"

enum { PART = 64, FEW = 1024, DEEPEST = 3, MAX_BITS = 40 };

#define bin(b, op, x, y) cy_x_bin((b)->k, op, x, y)
#define add(b, x, y) bin(b, CY_OP_add, x, y)
static cy_expr local(cy_kb *b, cy_local l) { return cy_x_local(b->k, l); }

static cy_local local_set(cy_kb *b, cy_dtype dtype, cy_expr v) {
  cy_local l = cy_kernel_add_local(b->k, dtype);
  cy_kernel_set(b->k, l, v);
  return l;
}

static cy_expr load(cy_kb *b, const cy_place *p, cy_dtype type, cy_expr at) { return cy_kb_load(b, p, type, 1, &at); }
static void store(cy_kb *b, const cy_place *p, cy_dtype type, cy_expr at, cy_expr value) {
  cy_kb_store(b, p, type, 1, &at, value);
}
#define store(b, p, type, at, value) CY_LAST_FIRST(cy_expr, at, value, store(b, p, type, x_, y_))

static cy_place list_of(cy_lowering *l, cy_dtype type, cy_dim n) { return cy_lower_temp(l, type, &n, 1); }

/* ---- counting ---- */

/* n numbers, computed from memory. */
typedef struct numbers {
  cy_expr (*at)(cy_kb *b, const struct numbers *x, cy_expr i); /* i64 */
  cy_place place;
  cy_dtype type;
  cy_dim n;
} numbers;

static cy_expr number_at(cy_kb *b, const numbers *x, cy_expr i) { return load(b, &x->place, x->type, i); }

/* 1 for what is not 0. */
static cy_expr flag_at(cy_kb *b, const numbers *x, cy_expr i) {
  cy_expr v = load(b, &x->place, x->type, i);
  if (cy_expr_of(b->k, v)->dtype != CY_BOOL)
    v = bin(b, CY_OP_ne, v, cy_x_const(b->k, (cy_dtype)cy_expr_of(b->k, v)->dtype, 0));
  return cy_x_cast(b->k, v, CY_I64);
}

/* 1 for what differs from the one in front of it. */
static cy_expr change_at(cy_kb *b, const numbers *x, cy_expr i) {
  cy_expr previous = bin(b, CY_OP_max, bin(b, CY_OP_sub, i, cy_x_index(b->k, 1)), cy_x_index(b->k, 0));
  cy_expr differs = bin(b, CY_OP_ne, load(b, &x->place, x->type, i), load(b, &x->place, x->type, previous));
  return cy_x_cast(b->k, bin(b, CY_OP_or, differs, bin(b, CY_OP_eq, i, cy_x_index(b->k, 0))), CY_I64);
}

static cy_dim parts_of(cy_lowering *l, const numbers *x) { return cy_dim_cdiv(l->g, x->n, cy_dim_const(l->g, PART)); }

/* Number i, or 0 where it does not count: i may be behind the last one then. */
static cy_expr number_if(cy_kb *b, const numbers *x, cy_expr i, cy_expr counts) {
  cy_expr v = x->at(b, x, cy_lower_clamp(b, i, x->n));
  return cy_x_select(b->k, counts, v, cy_x_index(b->k, 0));
}

static numbers sums_of(cy_lowering *l, const numbers *x) {
  cy_dim parts = parts_of(l, x);
  numbers sums = {number_at, list_of(l, CY_I64, parts), CY_I64, parts};
  cy_kb b;
  cy_kb_init(&b, l, "search_sums");
  cy_expr p = cy_kb_grid_index(&b, parts), first = bin(&b, CY_OP_mul, p, cy_x_index(b.k, PART));
  cy_local sum = local_set(&b, CY_I64, cy_x_index(b.k, 0));
  cy_expr i = add(&b, first, cy_kb_loop(&b, cy_dim_const(l->g, PART), false));
  cy_kernel_accum(b.k, sum, CY_OP_add, number_if(&b, x, i, bin(&b, CY_OP_lt, i, cy_x_dim(b.k, x->n))));
  cy_kernel_end(b.k);
  store(&b, &sums.place, CY_I64, p, local(&b, sum));
  cy_kb_launch(&b, true);
  return sums;
}

/* [n + 1]: the sum of all numbers in front; the last one is that of all. Many are added up by parts first. */
static cy_place starts_of(cy_lowering *l, const numbers *x, int depth) {
  cy_graph *g = l->g;
  int64_t min, max;
  cy_dim_range(g, x->n, &min, &max);
  bool deep = max > FEW && depth < DEEPEST;
  cy_dim behind = cy_dim_addi(g, x->n, 1);
  cy_place above = {0}, out = list_of(l, CY_I64, behind);
  if (deep) {
    numbers sums = sums_of(l, x);
    above = starts_of(l, &sums, depth + 1);
  }
  cy_kb b;
  cy_kb_init(&b, l, "search_starts");
  cy_expr p = cy_kb_grid_index(&b, behind), part = bin(&b, CY_OP_div, p, cy_x_index(b.k, PART));
  cy_local sum = local_set(&b, CY_I64, deep ? load(&b, &above, CY_I64, part) : cy_x_index(b.k, 0));
  cy_expr i = cy_kb_loop(&b, deep ? cy_dim_const(g, PART) : x->n, false);
  if (deep)
    i = add(&b, bin(&b, CY_OP_mul, part, cy_x_index(b.k, PART)), i);
  cy_kernel_accum(b.k, sum, CY_OP_add, number_if(&b, x, i, bin(&b, CY_OP_lt, i, p)));
  cy_kernel_end(b.k);
  store(&b, &out, CY_I64, p, local(&b, sum));
  cy_kb_launch(&b, true);
  return out;
}

/* The last i < n with starts[i] <= c, where starts[0] <= c. */
static cy_expr last_start(cy_kb *b, const cy_place *starts, cy_dim n, cy_expr c) {
  cy_kernel *k = b->k;
  int64_t min, max, iterations = 0;
  cy_dim_range(b->l->g, n, &min, &max);
  while (iterations < MAX_BITS && (max - 1) >> iterations > 0)
    iterations++;
  cy_local at = local_set(b, CY_I64, cy_x_index(k, 0)),
           step = local_set(b, CY_I64, cy_x_index(k, (int64_t)1 << (iterations ? iterations - 1 : 0)));
  cy_kb_loop(b, cy_dim_const(b->l->g, iterations), false);
  cy_expr next = add(b, local(b, at), local(b, step)), inside = cy_lower_clamp(b, next, n);
  cy_expr fits =
      bin(b, CY_OP_and, bin(b, CY_OP_eq, next, inside), bin(b, CY_OP_le, load(b, starts, CY_I64, inside), c));
  cy_kernel_set(k, at, cy_x_select(k, fits, next, local(b, at)));
  cy_kernel_set(k, step, bin(b, CY_OP_shr, local(b, step), cy_x_index(k, 1)));
  cy_kernel_end(k);
  return local(b, at);
}

/* Which of the numbers, 0 or 1 each, is the 1 with c others in front; starts: of their parts. */
static cy_expr find(cy_kb *b, const numbers *x, const cy_place *starts, cy_expr c) {
  cy_kernel *k = b->k;
  cy_local part = local_set(b, CY_I64, last_start(b, starts, parts_of(b->l, x), c));
  cy_local seen = local_set(b, CY_I64, load(b, starts, CY_I64, local(b, part)));
  cy_expr first = bin(b, CY_OP_mul, local(b, part), cy_x_index(k, PART));
  cy_local at = local_set(b, CY_I64, first);
  cy_expr i = add(b, first, cy_kb_loop(b, cy_dim_const(b->l->g, PART), false));
  cy_kernel_set(k, seen, add(b, local(b, seen), number_if(b, x, i, bin(b, CY_OP_lt, i, cy_x_dim(k, x->n)))));
  cy_kernel_accum(k, at, CY_OP_add, cy_x_cast(k, bin(b, CY_OP_le, local(b, seen), c), CY_I64));
  cy_kernel_end(k);
  return local(b, at);
}

/* Counts them: the starts of their parts; sym is how many there are. */
static cy_place count(cy_lowering *l, const numbers *x, cy_sym sym) {
  numbers sums = sums_of(l, x);
  cy_place starts = starts_of(l, &sums, 0), all = starts;
  all.offset = cy_dim_add(l->g, all.offset, sums.n);
  cy_lower_read(l, &all, CY_I64, sym);
  return starts;
}

/* The place of a tensor as a list of its elements. */
static cy_place as_list(cy_lowering *l, cy_val v) {
  cy_place p = cy_lower_dense(l, v);
  p.stride[0] = cy_dim_const(l->g, 1);
  return p;
}

/* ---- nonzero ---- */

static bool nonzero(cy_lowering *l, const cy_node_info *n) {
  cy_val out = n->out[0];
  const cy_type *t = cy_lower_type(l, n->in[0]), *to = cy_lower_type(l, out);
  cy_sym sym = cy_lower_count_symbol(l, to->dim[1], out);
  if (!sym)
    return false;
  numbers x = {flag_at, as_list(l, n->in[0]), (cy_dtype)t->dtype, cy_type_elems(l->g, t)};
  cy_place starts = count(l, &x, sym);
  cy_lower_alloc(l, out);
  cy_kb b;
  cy_kb_init(&b, l, "nonzero");
  cy_expr idx[2] = {0, cy_kb_grid_index(&b, to->dim[1])};
  cy_expr rest = find(&b, &x, &starts, idx[1]);
  for (int axis = t->rank; axis-- > 0;) {
    cy_expr extent = cy_x_dim(b.k, t->dim[axis]);
    idx[0] = cy_x_index(b.k, axis);
    cy_kb_store(&b, cy_lower_place(l, out), CY_I64, 2, idx, axis ? bin(&b, CY_OP_mod, rest, extent) : rest);
    rest = bin(&b, CY_OP_div, rest, extent);
  }
  cy_kb_launch(&b, true);
  return true;
}

/* ---- non-maximum suppression: for each batch and class (a row) ---- */

enum { TOP, LEFT, BOTTOM, RIGHT, AREA, SIDES, WORD = 32, MAX_SQUARES = 1 << 17 /* of WORD words: 16 MB */ };

typedef struct nms {
  cy_lowering *l;
  const cy_node_info *n;
  cy_dim classes, rows, boxes, limit; /* limit: most that are kept of a row */
  cy_dim max;                        /* candidates of the row that has the most of them */
  cy_place found;                     /* [row]: its candidates, */
  cy_lower_sorted order;              /* .. the best ones first */
} nms;

static bool has_input(const nms *s, uint32_t i) { return i < s->n->nin && s->n->in[i]; }

/* An optional input of one element. */
static cy_expr scalar_input(const nms *s, cy_kb *b, uint32_t i) {
  cy_expr idx[CY_MAX_RANK];
  for (int axis = 0; has_input(s, i) && axis < cy_lower_type(s->l, s->n->in[i])->rank; axis++)
    idx[axis] = cy_x_index(b->k, 0);
  return has_input(s, i) ? cy_lower_at(b, s->n->in[i], idx) : cy_x_const(b->k, CY_F32, 0);
}

static cy_dim kept_at_most(const nms *s) {
  cy_graph *g = s->l->g;
  uint32_t elems;
  if (!has_input(s, 2))
    return cy_dim_const(g, 0);
  const cy_dim *known = cy_value_elems(g, s->n->in[2], &elems);
  cy_dim limit = known ? known[0] : cy_dim_sym(g, cy_lower_read_scalar(s->l, s->n->in[2]));
  return cy_dim_max(g, cy_dim_min(g, limit, s->boxes), cy_dim_const(g, 0));
}

/* Scores as keys; boxes that are no candidates come last. */
static cy_lower_rows candidates(const nms *s) {
  cy_lowering *l = s->l;
  const cy_type *t = cy_lower_type(l, s->n->in[1]);
  cy_lower_rows rows = {.type = CY_I32, .rows = s->rows, .n = s->boxes};
  cy_dim dims[2] = {rows.rows, rows.n};
  rows.place = cy_lower_temp(l, CY_I32, dims, 2);
  cy_kb b;
  cy_expr idx[3];
  cy_kb_init(&b, l, "sort_keys");
  for (int i = 0; i < 3; i++)
    idx[i] = cy_kb_grid_index(&b, t->dim[i]);
  const cy_expr to[2] = {add(&b, bin(&b, CY_OP_mul, idx[0], cy_x_dim(b.k, s->classes)), idx[1]), idx[2]};
  cy_expr score = cy_lower_at(&b, s->n->in[1], idx);
  cy_expr is_one = has_input(s, 4) ? bin(&b, CY_OP_gt, score, scalar_input(s, &b, 4)) : bin(&b, CY_OP_eq, score, score);
  cy_expr none = cy_x_int(b.k, CY_I32, INT32_MAX); /* the key of a NaN alone, which is no candidate either */
  cy_kb_store(&b, &rows.place, CY_I32, 2, to, cy_x_select(b.k, is_one, cy_lower_key(&b, score, true), none));
  cy_kb_launch(&b, true);
  return rows;
}

/* Counts each row's candidates, then reads the most of any. */
static void count_candidates(nms *s, const cy_lower_rows *rows) {
  cy_lowering *l = s->l;
  cy_dim one = cy_dim_const(l->g, 1);
  cy_place max = list_of(l, CY_I64, one);
  cy_sym sym = cy_sym_new(l->g, NULL, CY_SYM_FREE);
  s->found = list_of(l, CY_I64, s->rows);
  cy_kb b;
  cy_kb_init(&b, l, "nms_count");
  cy_expr idx[2] = {cy_kb_grid_index(&b, rows->rows), 0};
  cy_local sum = local_set(&b, CY_I64, cy_x_index(b.k, 0));
  idx[1] = cy_kb_loop(&b, rows->n, false);
  cy_expr is_one = bin(&b, CY_OP_ne, cy_kb_load(&b, &rows->place, CY_I32, 2, idx), cy_x_int(b.k, CY_I32, INT32_MAX));
  cy_kernel_accum(b.k, sum, CY_OP_add, cy_x_cast(b.k, is_one, CY_I64));
  cy_kernel_end(b.k);
  store(&b, &s->found, CY_I64, idx[0], local(&b, sum));
  cy_kb_launch(&b, true);
  cy_kb_init(&b, l, "nms_most");
  cy_local top = local_set(&b, CY_I64, cy_x_index(b.k, 0));
  cy_expr row = cy_kb_loop(&b, rows->rows, false);
  cy_kernel_accum(b.k, top, CY_OP_max, load(&b, &s->found, CY_I64, row));
  cy_kernel_end(b.k);
  store(&b, &max, CY_I64, cy_x_index(b.k, 0), local(&b, top));
  cy_kb_launch(&b, true);
  cy_lower_read(l, &max, CY_I64, sym);
  s->max = cy_dim_sym(l->g, sym);
}

static cy_expr smaller(cy_kb *b, cy_expr x, cy_expr y) { return cy_x_select(b->k, bin(b, CY_OP_lt, x, y), x, y); }
static cy_expr larger(cy_kb *b, cy_expr x, cy_expr y) { return cy_x_select(b->k, bin(b, CY_OP_gt, x, y), x, y); }

/* Sets locals to the sides of a box. */
static void read_box(const nms *s, cy_kb *b, cy_expr batch, cy_expr box, const cy_local side[SIDES]) {
  cy_kernel *k = b->k;
  cy_expr v[4], edge[4], half = cy_x_const(k, CY_F32, 0.5);
  for (int i = 0; i < 4; i++) {
    const cy_expr idx[3] = {batch, box, cy_x_index(k, i)};
    v[i] = cy_lower_at(b, s->n->in[0], idx);
  }
  for (int i = 0; i < 2; i++) {                               /* y, x */
    if (cy_attr_get_int(s->n, CY_ATTR_center_point_box, 0)) { /* x, y, width, height */
      cy_expr middle = v[1 - i], reach = bin(b, CY_OP_mul, v[3 - i], half);
      edge[i] = bin(b, CY_OP_sub, middle, reach);
      edge[2 + i] = add(b, middle, reach);
    } else { /* two opposite corners, y first */
      edge[i] = smaller(b, v[i], v[2 + i]);
      edge[2 + i] = cy_x_select(k, bin(b, CY_OP_lt, v[i], v[2 + i]), v[2 + i], v[i]);
    }
  }
  for (int i = 0; i < 4; i++)
    cy_kernel_set(k, side[i], edge[i]);
  cy_kernel_set(k, side[AREA],
                bin(b, CY_OP_mul, bin(b, CY_OP_sub, local(b, side[BOTTOM]), local(b, side[TOP])),
                    bin(b, CY_OP_sub, local(b, side[RIGHT]), local(b, side[LEFT]))));
}

static cy_expr overlaps(cy_kb *b, const cy_expr x[SIDES], const cy_expr y[SIDES], cy_expr threshold) {
  cy_expr zero = cy_x_const(b->k, CY_F32, 0);
  cy_expr height = bin(b, CY_OP_sub, smaller(b, x[BOTTOM], y[BOTTOM]), larger(b, x[TOP], y[TOP]));
  cy_expr width = bin(b, CY_OP_sub, smaller(b, x[RIGHT], y[RIGHT]), larger(b, x[LEFT], y[LEFT]));
  cy_expr shared = bin(b, CY_OP_mul, height, width), all = bin(b, CY_OP_sub, add(b, x[AREA], y[AREA]), shared);
  cy_expr too_much = bin(b, CY_OP_gt, bin(b, CY_OP_div, shared, all), threshold);
  const cy_expr positive[5] = {height, width, x[AREA], y[AREA], all};
  for (int i = 0; i < 5; i++)
    too_much = bin(b, CY_OP_and, bin(b, CY_OP_gt, positive[i], zero), too_much);
  return too_much;
}

static cy_expr side_at(cy_kb *b, const cy_place *sides, cy_expr row, int side, cy_expr i) {
  const cy_expr idx[3] = {row, cy_x_index(b->k, side), i};
  return cy_kb_load(b, sides, CY_F32, 3, idx);
}

static cy_expr as_u32(cy_kb *b, uint32_t v) { return cy_x_int(b->k, CY_U32, v); }

/* [row][side][candidate], the best ones first. */
static cy_place sides_in_order(const nms *s, cy_dim padded) {
  cy_lowering *l = s->l;
  const cy_dim dims[3] = {s->rows, cy_dim_const(l->g, SIDES), padded};
  cy_place sides = cy_lower_temp(l, CY_F32, dims, 3);
  cy_kb b;
  cy_kb_init(&b, l, "nms_sides");
  cy_expr row = cy_kb_grid_index(&b, s->rows), i = cy_kb_grid_index(&b, padded);
  cy_expr last = bin(&b, CY_OP_sub, cy_x_dim(b.k, s->max), cy_x_index(b.k, 1));
  const cy_expr at[2] = {row, bin(&b, CY_OP_min, i, last)};
  cy_local side[SIDES];
  for (int n = 0; n < SIDES; n++)
    side[n] = cy_kernel_add_local(b.k, CY_F32);
  cy_expr box = cy_x_cast(b.k, cy_kb_load(&b, &s->order.at, s->order.at_type, 2, at), CY_I64);
  read_box(s, &b, bin(&b, CY_OP_div, row, cy_x_dim(b.k, s->classes)), box, side);
  for (int n = 0; n < SIDES; n++) {
    const cy_expr to[3] = {row, cy_x_index(b.k, n), i};
    cy_kb_store(&b, &sides, CY_F32, 3, to, local(&b, side[n]));
  }
  cy_kb_launch(&b, true);
  return sides;
}

/* [row][word][candidate]: bit j of word w tells that it overlaps too much with the later candidate w * WORD + j. */
static cy_place overlap_bits(const nms *s, cy_dim words, cy_dim padded) {
  cy_lowering *l = s->l;
  const cy_place sides = sides_in_order(s, padded);
  const cy_dim dims[3] = {s->rows, words, padded};
  cy_place bits = cy_lower_temp(l, CY_U32, dims, 3);
  cy_kb b;
  cy_kb_init(&b, l, "nms_overlaps");
  cy_expr mine[SIDES], theirs[SIDES], idx[3];
  for (int i = 0; i < 3; i++)
    idx[i] = cy_kb_grid_index(&b, dims[i]);
  for (int n = 0; n < SIDES; n++) {
    cy_expr side = side_at(&b, &sides, idx[0], n, idx[2]);
    theirs[n] = local(&b, local_set(&b, CY_F32, side));
  }
  cy_local word = local_set(&b, CY_U32, as_u32(&b, 0));
  cy_expr bit = cy_kb_loop(&b, cy_dim_const(l->g, WORD), false);
  cy_expr j = add(&b, bin(&b, CY_OP_mul, idx[1], cy_x_index(b.k, WORD)), bit);
  for (int n = 0; n < SIDES; n++)
    mine[n] = side_at(&b, &sides, idx[0], n, j);
  cy_expr too_much = overlaps(&b, mine, theirs, scalar_input(s, &b, 3));
  too_much = bin(&b, CY_OP_and, bin(&b, CY_OP_gt, j, idx[2]), too_much);
  cy_expr one = bin(&b, CY_OP_shl, as_u32(&b, 1), cy_x_cast(b.k, bit, CY_U32));
  cy_kernel_accum(b.k, word, CY_OP_or, cy_x_select(b.k, too_much, one, as_u32(&b, 0)));
  cy_kernel_end(b.k);
  cy_kb_store(&b, &bits, CY_U32, 3, idx, local(&b, word));
  cy_kb_launch(&b, true);
  return bits;
}

/* What keeping knows of a row while it goes on. */
typedef struct keeping {
  cy_expr row;
  cy_local gone, chosen, found; /* bits of a word: overlap too much with what is kept; are kept. How many are in all */
} keeping;

/* Goes through the candidates of a word one after the other. */
static void keep_word(const nms *s, cy_kb *b, const keeping *q, const cy_place *bits, cy_expr word,
                      const cy_place *kept) {
  cy_kernel *k = b->k;
  cy_expr limit = cy_x_dim(k, s->limit), last = bin(b, CY_OP_sub, cy_x_dim(k, s->max), cy_x_index(k, 1));
  cy_expr bit = cy_kb_loop(b, cy_dim_const(s->l->g, WORD), false), shift = cy_x_cast(k, bit, CY_U32);
  cy_expr i = add(b, bin(b, CY_OP_mul, word, cy_x_index(k, WORD)), bit);
  cy_expr hit = bin(b, CY_OP_and, bin(b, CY_OP_shr, local(b, q->gone), shift), as_u32(b, 1));
  cy_expr fits = bin(b, CY_OP_and, bin(b, CY_OP_lt, i, load(b, &s->found, CY_I64, q->row)),
                     bin(b, CY_OP_lt, local(b, q->found), limit));
  cy_expr is_good = bin(b, CY_OP_and, fits, bin(b, CY_OP_eq, hit, as_u32(b, 0)));
  cy_local good = local_set(b, CY_BOOL, is_good);
  const cy_expr mine[3] = {q->row, word, i}, box[2] = {q->row, bin(b, CY_OP_min, i, last)};
  cy_expr more = cy_kb_load(b, bits, CY_U32, 3, mine), none = as_u32(b, 0);
  const cy_expr to[2] = {q->row, cy_x_select(k, local(b, good), local(b, q->found), limit)}; /* or where nobody looks */
  cy_kb_store(b, kept, CY_I64, 2, to, cy_x_cast(k, cy_kb_load(b, &s->order.at, s->order.at_type, 2, box), CY_I64));
  cy_kernel_set(k, q->gone, bin(b, CY_OP_or, local(b, q->gone), cy_x_select(k, local(b, good), more, none)));
  cy_expr one = bin(b, CY_OP_shl, as_u32(b, 1), shift);
  cy_kernel_set(k, q->chosen, bin(b, CY_OP_or, local(b, q->chosen), cy_x_select(k, local(b, good), one, none)));
  cy_kernel_set(k, q->found, add(b, local(b, q->found), cy_x_cast(k, local(b, good), CY_I64)));
  cy_kernel_end(k);
}

/* The same selection as keep_best's: all pairs first, by as many threads as there are; then a task for each row goes
 * through the candidates word by word, whose bits it has in a register, and marks what overlaps with the kept ones. */
static void keep_by_bits(const nms *s, cy_dim words, const cy_place *kept, const cy_place *counts) {
  cy_lowering *l = s->l;
  cy_dim size = cy_dim_const(l->g, WORD), padded = cy_dim_mul(l->g, words, size);
  const cy_place bits = overlap_bits(s, words, padded);
  cy_kb b;
  cy_kb_init(&b, l, "nms_bits");
  keeping q = {.row = cy_kb_grid_index(&b, s->rows)};
  cy_karg marks = cy_kb_scratch(&b, CY_U32, words);
  cy_expr v = cy_kb_loop(&b, words, true);
  cy_kernel_store(b.k, marks, v, as_u32(&b, 0));
  cy_kernel_end(b.k);
  q.found = local_set(&b, CY_I64, cy_x_index(b.k, 0));
  cy_expr word = cy_kb_loop(&b, words, false);
  q.gone = local_set(&b, CY_U32, cy_x_load(b.k, marks, word));
  q.chosen = local_set(&b, CY_U32, as_u32(&b, 0));
  keep_word(s, &b, &q, &bits, word, kept);
  v = cy_kb_loop(&b, words, true);
  cy_local mark = local_set(&b, CY_U32, cy_x_load(b.k, marks, v));
  cy_expr bit = cy_kb_loop(&b, size, false);
  const cy_expr at[3] = {q.row, v, add(&b, bin(&b, CY_OP_mul, word, cy_x_index(b.k, WORD)), bit)};
  cy_expr kept_bit = bin(&b, CY_OP_shr, local(&b, q.chosen), cy_x_cast(b.k, bit, CY_U32));
  cy_expr is_kept = bin(&b, CY_OP_ne, bin(&b, CY_OP_and, kept_bit, as_u32(&b, 1)), as_u32(&b, 0));
  cy_kernel_accum(b.k, mark, CY_OP_or, cy_x_select(b.k, is_kept, cy_kb_load(&b, &bits, CY_U32, 3, at), as_u32(&b, 0)));
  cy_kernel_end(b.k);
  cy_kernel_store(b.k, marks, v, local(&b, mark));
  cy_kernel_end(b.k);
  cy_kernel_end(b.k);
  store(&b, counts, CY_I64, q.row, local(&b, q.found));
  cy_kb_launch(&b, true);
}

/* A task is a row: candidate after candidate is held against those that were kept, by all threads of the task. It takes
 * no memory for pairs. */
static void keep_best(const nms *s, const cy_place *kept, cy_dim room, const cy_place *counts) {
  cy_lowering *l = s->l;
  cy_graph *g = l->g;
  cy_kb b;
  cy_kb_init(&b, l, "nms");
  cy_kernel *k = b.k;
  cy_expr row = cy_kb_grid_index(&b, s->rows), batch = bin(&b, CY_OP_div, row, cy_x_dim(k, s->classes));
  cy_expr limit = cy_x_dim(k, s->limit), stride = cy_x_dim(k, room), mine[SIDES], theirs[SIDES];
  cy_karg sides = cy_kb_scratch(&b, CY_F32, cy_dim_muli(g, room, SIDES));
  cy_local side[SIDES], found = local_set(&b, CY_I64, cy_x_index(k, 0)), hit = cy_kernel_add_local(k, CY_BOOL),
                        good = cy_kernel_add_local(k, CY_BOOL), slot = cy_kernel_add_local(k, CY_I64);
  for (int i = 0; i < SIDES; i++) {
    side[i] = cy_kernel_add_local(k, CY_F32);
    mine[i] = local(&b, side[i]);
  }
  cy_expr idx[2] = {row, cy_kb_loop(&b, s->max, false)};
  cy_local box = local_set(&b, CY_I64, cy_x_cast(k, cy_kb_load(&b, &s->order.at, s->order.at_type, 2, idx), CY_I64));
  read_box(s, &b, batch, local(&b, box), side);
  cy_kernel_set(k, hit, cy_x_int(k, CY_BOOL, 0));
  cy_expr j = cy_kb_loop(&b, s->limit, true);
  for (int i = 0; i < SIDES; i++)
    theirs[i] = cy_x_load(k, sides, add(&b, bin(&b, CY_OP_mul, cy_x_index(k, i), stride), j));
  cy_expr too_much = overlaps(&b, mine, theirs, scalar_input(s, &b, 3));
  cy_kernel_accum(k, hit, CY_OP_or,
                  cy_x_select(k, bin(&b, CY_OP_lt, j, local(&b, found)), too_much, cy_x_int(k, CY_BOOL, 0)));
  cy_kernel_end(k);
  cy_expr fits = bin(&b, CY_OP_and, bin(&b, CY_OP_lt, idx[1], load(&b, &s->found, CY_I64, row)),
                     bin(&b, CY_OP_lt, local(&b, found), limit));
  cy_kernel_set(k, good, bin(&b, CY_OP_and, fits, cy_x_un(k, CY_OP_not, local(&b, hit))));
  cy_kernel_set(k, slot, cy_x_select(k, local(&b, good), local(&b, found), limit)); /* or where nobody looks */
  for (int i = 0; i < SIDES; i++)
    cy_kernel_store(k, sides, add(&b, bin(&b, CY_OP_mul, cy_x_index(k, i), stride), local(&b, slot)), mine[i]);
  const cy_expr to[2] = {row, local(&b, slot)};
  cy_kb_store(&b, kept, CY_I64, 2, to, local(&b, box));
  cy_kernel_set(k, found, add(&b, local(&b, found), cy_x_cast(k, local(&b, good), CY_I64)));
  cy_kernel_end(k);
  store(&b, counts, CY_I64, row, local(&b, found));
  cy_kb_launch(&b, true);
}

/* By bits where there is room for those of all pairs: candidates one by one cost a barrier and more for each. */
static void keep(const nms *s, const cy_place *kept, cy_dim room, const cy_place *counts) {
  cy_lowering *l = s->l;
  cy_graph *g = l->g;
  cy_dim words = cy_dim_cdiv(g, s->max, cy_dim_const(g, WORD)), one = cy_dim_const(g, 1);
  cy_dim squares = cy_dim_max(g, cy_dim_mul(g, s->rows, cy_dim_mul(g, words, words)), one);
  cy_branch fits;
  cy_lower_branch(l, cy_dim_div(g, cy_dim_const(g, MAX_SQUARES), squares), &fits);
  keep_by_bits(s, words, kept, counts);
  cy_lower_otherwise(l, &fits);
  keep_best(s, kept, room, counts);
  cy_lower_join(l, &fits);
}

static bool non_max_suppression(cy_lowering *l, const cy_node_info *n) {
  cy_graph *g = l->g;
  cy_val out = n->out[0];
  const cy_type *scores = cy_lower_type(l, n->in[1]), *to = cy_lower_type(l, out);
  cy_sym sym = cy_lower_count_symbol(l, to->dim[0], out);
  nms s = {.l = l, .n = n, .classes = scores->dim[1], .boxes = scores->dim[2]};
  if (!sym)
    return false;
  s.rows = cy_dim_mul(g, scores->dim[0], s.classes);
  s.limit = kept_at_most(&s);
  cy_lower_rows rows = candidates(&s);
  s.order = cy_lower_sort_all(l, &rows);
  count_candidates(&s, &rows);
  cy_dim room = cy_dim_addi(g, s.limit, 1), dims[2] = {s.rows, room};
  cy_place kept = cy_lower_temp(l, CY_I64, dims, 2);
  numbers counts = {number_at, list_of(l, CY_I64, s.rows), CY_I64, s.rows};
  keep(&s, &kept, room, &counts.place);
  cy_place starts = starts_of(l, &counts, 0), all = starts;
  all.offset = cy_dim_add(g, all.offset, s.rows);
  cy_lower_read(l, &all, CY_I64, sym);
  cy_lower_alloc(l, out);
  cy_kb b;
  cy_kb_init(&b, l, "nms_results");
  cy_expr c = cy_kb_grid_index(&b, to->dim[0]), classes = cy_x_dim(b.k, s.classes);
  cy_expr row = last_start(&b, &starts, s.rows, c);
  const cy_expr from[2] = {row, bin(&b, CY_OP_sub, c, load(&b, &starts, CY_I64, row))};
  const cy_expr result[3] = {bin(&b, CY_OP_div, row, classes), bin(&b, CY_OP_mod, row, classes),
                             cy_kb_load(&b, &kept, CY_I64, 2, from)};
  for (int i = 0; i < 3; i++) {
    const cy_expr idx[2] = {c, cy_x_index(b.k, i)};
    cy_kb_store(&b, cy_lower_place(l, out), CY_I64, 2, idx, result[i]);
  }
  cy_kb_launch(&b, true);
  return true;
}

/* ---- unique ---- */

/* Equal elements are a group; groups in the order of their keys are numbered g, results stand in slots. */
typedef struct unique {
  cy_lowering *l;
  const cy_node_info *n;
  cy_dim elems, count;
  cy_place x;
  cy_lower_sorted order;
  cy_place begin; /* [count + 1]: where in the order groups begin */
  cy_place group; /* [elems]: of each element */
  cy_place slot;  /* [count]: of each group */
} unique;

static bool is_used(const cy_lowering *l, cy_val v) { return l->uses.start[v] != l->uses.start[v + 1]; }

/* The element that stands i-th in the order. */
static cy_expr ordered(const unique *s, cy_kb *b, cy_expr i) {
  return cy_x_cast(b->k, load(b, &s->order.at, s->order.at_type, i), CY_I64);
}

static cy_lower_rows unique_keys(const unique *s, cy_dtype t) {
  cy_lower_rows rows = {.type = cy_lower_key_type(t), .rows = cy_dim_const(s->l->g, 1), .n = s->elems};
  cy_dim dims[2] = {rows.rows, rows.n};
  rows.place = cy_lower_temp(s->l, rows.type, dims, 2);
  cy_kb b;
  cy_kb_init(&b, s->l, "sort_keys");
  const cy_expr to[2] = {cy_x_index(b.k, 0), cy_kb_grid_index(&b, s->elems)};
  cy_kb_store(&b, &rows.place, rows.type, 2, to, cy_lower_key(&b, load(&b, &s->x, t, to[1]), false));
  cy_kb_launch(&b, true);
  return rows;
}

static void find_groups(unique *s, const numbers *changes, const cy_place *starts) {
  cy_lowering *l = s->l;
  cy_dim behind = cy_dim_addi(l->g, s->count, 1);
  s->begin = list_of(l, CY_I64, behind);
  s->group = list_of(l, CY_I64, s->elems);
  cy_kb b;
  cy_kb_init(&b, l, "unique_begin");
  cy_expr g = cy_kb_grid_index(&b, behind), at = find(&b, changes, starts, g);
  cy_expr is_one = bin(&b, CY_OP_lt, g, cy_x_dim(b.k, s->count));
  store(&b, &s->begin, CY_I64, g, cy_x_select(b.k, is_one, at, cy_x_dim(b.k, s->elems)));
  cy_kb_launch(&b, true);
  cy_kb_init(&b, l, "unique_group");
  cy_expr i = cy_kb_grid_index(&b, s->elems);
  store(&b, &s->group, CY_I64, ordered(s, &b, i), last_start(&b, &s->begin, s->count, i));
  cy_kb_launch(&b, true);
}

/* Slots in the order in which the groups' first elements stand, or (sorted) in that of the groups. */
static void find_slots(unique *s, bool sorted) {
  cy_lowering *l = s->l;
  numbers first = {flag_at, {0}, CY_I32, s->elems};
  cy_place starts = {0};
  s->slot = list_of(l, CY_I64, s->count);
  cy_kb b;
  if (!sorted) {
    first.place = list_of(l, CY_I32, s->elems);
    cy_kb_init(&b, l, "unique_first");
    cy_expr i = cy_kb_grid_index(&b, s->elems);
    cy_expr begin = load(&b, &s->begin, CY_I64, last_start(&b, &s->begin, s->count, i));
    store(&b, &first.place, CY_I32, ordered(s, &b, i), cy_x_cast(b.k, bin(&b, CY_OP_eq, begin, i), CY_I32));
    cy_kb_launch(&b, true);
    starts = starts_of(l, &first, 0);
  }
  cy_kb_init(&b, l, "unique_slot");
  cy_expr g = cy_kb_grid_index(&b, s->count), slot = g;
  if (!sorted)
    slot = load(&b, &starts, CY_I64, ordered(s, &b, load(&b, &s->begin, CY_I64, g)));
  store(&b, &s->slot, CY_I64, g, slot);
  cy_kb_launch(&b, true);
}

static void unique_results(const unique *s, cy_dtype t) {
  cy_lowering *l = s->l;
  const cy_val *out = s->n->out;
  cy_kb b;
  cy_kb_init(&b, l, "unique");
  cy_expr g = cy_kb_grid_index(&b, s->count), slot = load(&b, &s->slot, CY_I64, g);
  cy_expr begin = load(&b, &s->begin, CY_I64, g), end = load(&b, &s->begin, CY_I64, add(&b, g, cy_x_index(b.k, 1)));
  cy_expr first = ordered(s, &b, begin);
  const cy_expr value[4] = {load(&b, &s->x, t, first), first, 0, bin(&b, CY_OP_sub, end, begin)};
  for (int i = 0; i < 4; i++)
    if (value[i] && is_used(l, out[i]))
      store(&b, cy_lower_place(l, out[i]), i ? CY_I64 : t, slot, value[i]);
  cy_kb_launch(&b, true);
  if (!is_used(l, out[2]))
    return;
  cy_kb_init(&b, l, "unique_inverse");
  cy_expr i = cy_kb_grid_index(&b, s->elems);
  store(&b, cy_lower_place(l, out[2]), CY_I64, i, load(&b, &s->slot, CY_I64, load(&b, &s->group, CY_I64, i)));
  cy_kb_launch(&b, true);
}

static bool unique_elements(cy_lowering *l, const cy_node_info *n) {
  const cy_type *t = cy_lower_type(l, n->in[0]);
  cy_sym sym = cy_lower_count_symbol(l, cy_lower_type(l, n->out[0])->dim[0], n->out[0]);
  if (!sym || cy_attr_find(n, CY_ATTR_axis))
    return false; /* what is compared along an axis are tensors */
  unique s = {.l = l, .n = n, .elems = cy_type_elems(l->g, t), .count = cy_dim_sym(l->g, sym)};
  s.x = as_list(l, n->in[0]);
  cy_lower_rows rows = unique_keys(&s, (cy_dtype)t->dtype);
  s.order = cy_lower_sort_all(l, &rows);
  numbers changes = {change_at, s.order.key, s.order.type, s.elems};
  changes.place.stride[0] = cy_dim_const(l->g, 1);
  s.order.at.stride[0] = changes.place.stride[0];
  cy_place starts = count(l, &changes, sym);
  for (uint32_t i = 0; i < n->nout; i++)
    if (is_used(l, n->out[i]))
      cy_lower_alloc(l, n->out[i]);
  find_groups(&s, &changes, &starts);
  find_slots(&s, cy_attr_get_int(n, CY_ATTR_sorted, 1) != 0);
  unique_results(&s, (cy_dtype)t->dtype);
  return true;
}

bool cy_lower_search(cy_lowering *l, cy_node node) {
  const cy_node_info *n = cy_node_of(l->g, node);
  switch (n->op) {
  case CY_OP_topk:
    cy_lower_topk(l, n);
    return true;
  case CY_OP_nonzero:
    return nonzero(l, n);
  case CY_OP_non_max_suppression:
    return non_max_suppression(l, n);
  case CY_OP_unique:
    return unique_elements(l, n);
  default:
    return false;
  }
}
