/* SPDX-License-Identifier: Apache-2.0 */
/* loop_schedule.c - the schedule of plain loop kernels: which axis is the lanes.
 *
 * In: a kernel as lowering composed it. Out: the same results, axes as loop_axes.c leaves them, and
 *   - lanes along the axis that a small cost model likes best: mostly the one with unit stride. Either a grid variable,
 *     which then becomes the grid's own lanes (one variable) or an inner lane loop around the body; or the innermost
 *     reductions;
 *   - a copy that crosses axes (a transpose) cut into strips, so that the cache lines it reads are used up before they
 *     leave (the last strip may overlap the one before, so that any size has strips). Of elements of 8 to 32 bits, a
 *     loop along the axis that the store walks goes inside the lanes, which are what the loads walk: the target then
 *     exchanges elements between vectors.
 * A kernel that already has a lane loop keeps it. On request, where addresses take much arithmetic along the rows of
 * what is stored (resampling), the lanes go around a loop over rows: what is the same for all of them is computed once.
 */
#include "loop_axes.h"

#include <math.h>
#include <stdlib.h>

enum {
  LANES = 8,
  STRIP = 16,
  LONG_STRIP = 128,
  FEW_ROWS = 16,
  BLOCK = 2048,
  LINE_BITS = 512,
  VECTOR_BITS = 256,
  WAY_BYTES = 4096
};

/* ---- lanes ---- */

/* What an access costs per lane, 1 = a scalar one. */
static double access_cost(const survey *s, const access *a, cy_var v, double vector) {
  int64_t min, max;
  if (!a->regular || (a->at.rest && cy_expr_uses_var(s->k, a->at.rest, v)))
    return 1;
  cy_dim_range(s->k->g, cy_survey_coef(s, a, v), &min, &max);
  return min >= -1 && max <= 1 ? vector : 1;
}

static double vector_share(const cy_kernel *k, cy_var v) {
  double n = cy_survey_iterations(k, v);
  return n >= LANES ? 1.0 / LANES : n > 1 ? 1 / n : 1;
}

static double record_cost(const survey *s, const record *r, cy_var v) {
  double vector = v ? vector_share(s->k, v) : 1, cost = r->ops * vector;
  for (uint32_t i = r->first; i < r->last; i++)
    cost += v ? access_cost(s, &s->access[i], v, vector) : 1;
  return cost * r->iterations;
}

static double grid_cost(const survey *s, cy_var v) {
  double cost = 0;
  for (uint32_t i = 0; i < s->nrecord; i++)
    cost += record_cost(s, &s->record[i], v);
  return cost;
}

/* A loop that only accumulates may run in any order. */
static bool only_accumulates(const cy_stmt *s) {
  for (; s; s = s->next)
    if (s->kind != CY_S_ACCUM)
      return false;
  return true;
}

static void find_reductions(cy_stmt *s, bool *is_reduction, bool mark) {
  for (; s; s = s->next) {
    if (s->kind == CY_S_FOR && only_accumulates(s->body)) {
      is_reduction[s->var] = true;
      s->lanes |= mark;
    }
    find_reductions(s->body, is_reduction, mark);
  }
}

static double reduction_cost(const survey *s, const bool *is_reduction) {
  double cost = 0;
  for (uint32_t i = 0; i < s->nrecord; i++) {
    const record *r = &s->record[i];
    cy_var v = r->nloops && is_reduction[r->loop[r->nloops - 1]] ? r->loop[r->nloops - 1] : 0;
    cost += record_cost(s, r, v);
  }
  return cost;
}

static bool has_lanes(const cy_stmt *s) {
  for (; s; s = s->next)
    if ((s->kind == CY_S_FOR && s->lanes) || has_lanes(s->body))
      return true;
  return false;
}

static bool has_scratch(const cy_kernel *k) {
  for (uint32_t i = 0; i < k->nargs; i++)
    if (k->args[i].kind == CY_ARG_SCRATCH)
      return true;
  return false;
}

static void grid_remove(cy_kernel *k, cy_var v) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < k->ngrid; i++)
    if (k->grid[i] != v)
      k->grid[n++] = k->grid[i];
  k->ngrid = n;
  cy_kernel_var(k, v)->grid = false;
}

static void wrap_in_loop(cy_kernel *k, cy_var v, bool lanes) {
  cy_stmt *s = CY_NEW(cy_graph_arena(k->g), cy_stmt);
  *s = (cy_stmt){.kind = CY_S_FOR, .var = v, .lanes = lanes, .body = k->body};
  k->body = s;
  k->open[0].tail = &s->next;
}

/* v becomes `by`; outer goes into the grid before position `at`. */
static void split_into(cy_kernel *k, cy_var v, cy_var outer, cy_expr by, uint32_t at) {
  grid_remove(k, v);
  cy_kernel_subst_var(k, v, by);
  cy_kernel_add_grid(k, outer);
  for (uint32_t i = k->ngrid - 1; i > at; i--) {
    k->grid[i] = k->grid[i - 1];
    k->grid[i - 1] = outer;
  }
}

/* v becomes outer * block + inner; inner takes the place of the lanes, outer goes into the grid before position `at`.
 */
static cy_var split(cy_kernel *k, cy_var v, int64_t block, uint32_t at) {
  int64_t extent = 0;
  cy_dim_is_const(k->g, cy_kernel_var(k, v)->extent, &extent);
  cy_var outer = cy_kernel_add_var(k, cy_dim_const(k->g, extent / block));
  cy_var inner = cy_kernel_add_var(k, cy_dim_const(k->g, block));
  cy_expr by = cy_x_bin(k, CY_OP_mul, cy_x_var(k, outer), cy_x_index(k, block));
  split_into(k, v, outer, cy_x_bin(k, CY_OP_add, by, cy_x_var(k, inner)), at);
  return inner;
}

/* The same where block need not divide v's extent, which may be a symbol: the last block ends with v, and does again
 * what it shares with the one before. */
static cy_var split_over(cy_kernel *k, cy_var v, int64_t block, uint32_t at) {
  cy_dim extent = cy_kernel_var(k, v)->extent, size = cy_dim_min(k->g, extent, cy_dim_const(k->g, block));
  cy_var outer = cy_kernel_add_var(k, cy_dim_cdiv(k->g, extent, cy_dim_const(k->g, block)));
  cy_var inner = cy_kernel_add_var(k, size);
  cy_expr by = cy_x_bin(k, CY_OP_mul, cy_x_var(k, outer), cy_x_index(k, block));
  by = cy_x_bin(k, CY_OP_min, by, cy_x_dim(k, cy_dim_sub(k->g, extent, size)));
  split_into(k, v, outer, cy_x_bin(k, CY_OP_add, by, cy_x_var(k, inner)), at);
  return inner;
}

/* A load that walks along another grid variable with unit stride while the lanes (v) jump: 0 when there is none. */
static cy_var crossing(const survey *s, cy_var v) {
  for (uint32_t i = 0; i < s->naccess; i++) {
    const access *a = &s->access[i];
    int64_t c;
    if (!a->regular || (cy_dim_is_const(s->k->g, cy_survey_coef(s, a, v), &c) && c >= -1 && c <= 1))
      continue;
    for (uint32_t j = 0; j < s->k->ngrid; j++)
      if (s->k->grid[j] != v && cy_dim_is(s->k->g, cy_survey_coef(s, a, s->k->grid[j]), 1))
        return s->k->grid[j];
  }
  return 0;
}

/* The largest divisor of n in [lo, hi], 0 when there is none. */
static int64_t divisor_in(int64_t n, int64_t lo, int64_t hi) {
  for (int64_t d = hi; d >= lo; d--)
    if (n % d == 0)
      return d;
  return 0;
}

/* Grid variable v is the lanes. */
static void lanes_on_grid(cy_kernel *k, const survey *s, cy_var v) {
  int64_t extent, others = 1, n, block;
  bool known = cy_dim_is_const(k->g, cy_kernel_var(k, v)->extent, &extent);
  if (k->ngrid == 1) {
    k->grid_lanes = true;
    return;
  }
  cy_var across = crossing(s, v);
  if (across && known && extent > STRIP && (block = divisor_in(extent, LANES, STRIP))) {
    grid_remove(k, across);
    cy_kernel_add_grid(k, across); /* fastest: successive tasks use the rest of the lines just read */
    wrap_in_loop(k, split(k, v, block, k->ngrid - 2), true);
    return;
  }
  for (uint32_t i = 0; i < k->ngrid; i++)
    if (k->grid[i] != v)
      others =
          cy_dim_is_const(k->g, cy_kernel_var(k, k->grid[i])->extent, &n) && others < FEW_ROWS ? others * n : FEW_ROWS;
  if (known && others < FEW_ROWS && extent >= 2 * BLOCK && (block = divisor_in(extent, BLOCK / 4, BLOCK))) {
    wrap_in_loop(k, split(k, v, block, k->ngrid - 1), true);
    return;
  }
  grid_remove(k, v);
  wrap_in_loop(k, v, true);
}

/* ---- exchanges between vectors ---- */

static bool coef_known(const survey *s, const access *a, cy_var v, int64_t *out) {
  return cy_dim_is_const(s->k->g, cy_survey_coef(s, a, v), out);
}

/* Does a load walk along `loads`, and not stand still along `store`? One that does is broadcast, not transposed: then
 * vectors along `store` are better, unless it is too short for them. */
static bool transposes(const survey *s, cy_var loads, cy_var store) {
  cy_dim zero = cy_dim_const(s->k->g, 0);
  int64_t n;
  if (cy_dim_is_const(s->k->g, cy_kernel_var(s->k, store)->extent, &n) && n < LANES)
    return true;
  for (uint32_t i = 1; i < s->naccess; i++)
    if (cy_survey_coef(s, &s->access[i], loads) != zero && cy_survey_coef(s, &s->access[i], store) != zero)
      return true;
  return false;
}

/* Do all loads walk along v by single elements (or every second one), while the store jumps? */
static bool loads_walk(const survey *s, cy_var v) {
  bool walks = false;
  int64_t c;
  if (coef_known(s, &s->access[0], v, &c) && c >= -1 && c <= 1)
    return false;
  for (uint32_t i = 1; i < s->naccess; i++) {
    if (!coef_known(s, &s->access[i], v, &c) || c < 0 || c > 2)
      return false;
    walks |= c != 0;
  }
  return walks;
}

/* Are 2 to 4 elements, along `store`, put behind one another for every iteration of `loads`? */
static bool joins(const survey *s, cy_var loads, cy_var store) {
  int64_t c, n;
  return cy_dim_is_const(s->k->g, cy_kernel_var(s->k, store)->extent, &n) && n >= 2 && n <= 4 &&
         coef_known(s, &s->access[0], loads, &c) && c == n;
}

/* Are all arguments of elements of so many bits? */
static bool only_of(const cy_kernel *k, int bits) {
  for (uint32_t i = 0; i < k->nargs; i++)
    if (cy_dtype_of(k->args[i].dtype)->bits != bits)
      return false;
  return true;
}

/* Do vectors hold enough of the elements that are stored for the target to exchange them? */
static bool exchanges(const survey *s, cy_var loads, cy_var store) {
  int bits = cy_dtype_of(s->k->args[s->k->body->arg].dtype)->bits;
  if (bits >= 32)
    return bits == 32;
  return bits >= 8 && (joins(s, loads, store) || only_of(s->k, bits));
}

/* The axes of a kernel that is nothing but one store that the target makes across the lanes: what its loads walk, what
 * the store walks. */
static bool crossed_axes(const survey *s, cy_var *out_loads, cy_var *out_store) {
  cy_kernel *k = s->k;
  const cy_stmt *st = k->body;
  *out_loads = *out_store = 0;
  if (!st || st->next || st->kind != CY_S_STORE)
    return false;
  for (uint32_t i = 0; i < s->naccess; i++)
    if (!s->access[i].regular || s->access[i].at.rest)
      return false;
  for (uint32_t i = 0; i < k->ngrid; i++) {
    if (cy_dim_is(k->g, cy_survey_coef(s, &s->access[0], k->grid[i]), 1))
      *out_store = k->grid[i];
    else if (loads_walk(s, k->grid[i]))
      *out_loads = k->grid[i];
  }
  return *out_loads && *out_store && transposes(s, *out_loads, *out_store) && exchanges(s, *out_loads, *out_store);
}

/* The largest multiple of `lanes` that divides n and is no greater than `max`, 0 when there is none. */
static int64_t strip_of(int64_t n, int64_t max, int64_t lanes) {
  for (int64_t d = max / lanes * lanes; d > 0; d -= lanes)
    if (n % d == 0)
      return d;
  return 0;
}

/* The store's axis, of so many elements, is only part of a cache line: the grid variable that goes on with the line, 0
 * when there is none, or that is what the loads walk. */
static cy_var line_rest(const survey *s, cy_var loads, cy_var store, int64_t rows, int line) {
  for (uint32_t i = 0; rows < line && i < s->k->ngrid; i++) {
    cy_var v = s->k->grid[i];
    if (v != store && cy_dim_is(s->k->g, cy_survey_coef(s, &s->access[0], v), rows))
      return v == loads ? 0 : v;
  }
  return 0;
}

/* Are neighbours along v stored in lines that compete for the same places of the first cache? */
static bool compete(const survey *s, cy_var v, int bits) {
  int64_t c;
  return !coef_known(s, &s->access[0], v, &c) || c * bits / 8 % WAY_BYTES == 0;
}

/* Many store rows at once would not stay in the first cache: short strips of both then, else long ones. Where each
 * iteration of the grid stores but a piece of a line, the next iteration goes on with it. */
static bool cross_on_grid(cy_kernel *k, const survey *s) {
  cy_var loads, store;
  int64_t n = 0, rows = 0; /* 0: a symbol */
  if (!crossed_axes(s, &loads, &store))
    return false;
  int bits = cy_dtype_of(k->args[k->body->arg].dtype)->bits, line = LINE_BITS / bits,
      iterations = bits == 8 ? 16 : LANES;
  bool known = cy_dim_is_const(k->g, cy_kernel_var(k, loads)->extent, &n);
  if (known && n < (joins(s, loads, store) ? LANES : iterations))
    return false;
  bool few = cy_dim_is_const(k->g, cy_kernel_var(k, store)->extent, &rows) && rows <= STRIP;
  cy_var rest = few ? line_rest(s, loads, store, rows, line) : 0;
  int64_t max = !rest ? (few ? LONG_STRIP : line) : compete(s, loads, bits) ? VECTOR_BITS / bits : line;
  int64_t strip = known ? strip_of(n, max, VECTOR_BITS / bits) : 0;
  if (!strip && (!known || n > LONG_STRIP))
    loads = split_over(k, loads, max, k->ngrid - 1);
  else if (strip && strip < n)
    loads = split(k, loads, strip, k->ngrid - 1);
  else
    grid_remove(k, loads);
  if (few)
    grid_remove(k, store);
  else /* fastest: successive tasks use the rest of the lines */
    store = (rows && rows % iterations == 0 ? split : split_over)(k, store, iterations, k->ngrid - 1);
  if (rest) {
    grid_remove(k, rest);
    cy_kernel_add_grid(k, rest);
  }
  wrap_in_loop(k, store, false);
  wrap_in_loop(k, loads, true);
  return true;
}

static void choose_lanes(cy_kernel *k) {
  survey s = cy_survey_make(k);
  if (cross_on_grid(k, &s)) {
    cy_survey_free(&s);
    return;
  }
  bool *is_reduction = calloc(k->nvars + 1, 1);
  if (!is_reduction)
    cy_no_memory();
  find_reductions(k->body, is_reduction, false);
  double best = reduction_cost(&s, is_reduction) * 0.999; /* without reductions: everything scalar */
  cy_var v = 0;
  for (uint32_t i = k->ngrid; i-- > 0;) {
    cy_var g = k->grid[i];
    double cost = has_scratch(k) ? INFINITY : grid_cost(&s, g);
    if (cost < best) {
      best = cost;
      v = g;
    }
  }
  if (v)
    lanes_on_grid(k, &s, v);
  else
    find_reductions(k->body, is_reduction, true);
  free(is_reduction);
  cy_survey_free(&s);
}

/* ---- addresses for several rows ---- */

enum { ADDRESS_OPS = 4, ROWS = 32, COLUMNS = 64, MIN_ROWS = 4 };

/* Is e ADDRESS_OPS operations or more, none of which loads anything? */
static bool is_arithmetic(const cy_kernel *k, cy_expr e) {
  bool *marks = calloc(e + 1, sizeof *marks), loads = false;
  int ops = 0;
  if (!marks)
    cy_no_memory();
  cy_expr_mark(k, e, marks);
  for (cy_expr i = e; i > 0 && !loads; i--) {
    ops += marks[i] && k->exprs[i].n > 0;
    loads = marks[i] && k->exprs[i].op == CY_X_LOAD;
  }
  free(marks);
  return !loads && ops >= ADDRESS_OPS;
}

/* Is a term of e, a sum of them, much arithmetic with v and the same for every u? Not where an index is loaded:
 * elements of a row that come from anywhere are better read row by row. */
static bool has_address(const cy_kernel *k, cy_expr e, cy_var v, cy_var u) {
  const cy_expr_info *x = cy_expr_of(k, e);
  if (!cy_expr_uses_var(k, e, v))
    return false;
  if (x->op == CY_OP_add || x->op == CY_OP_sub || x->op == CY_OP_mul)
    return has_address(k, x->arg[0], v, u) || has_address(k, x->arg[1], v, u);
  return !cy_expr_uses_var(k, e, u) && is_arithmetic(k, e);
}

static bool shares_addresses(const survey *s, cy_var v, cy_var u) {
  int64_t n;
  if (cy_dim_is_const(s->k->g, cy_kernel_var(s->k, u)->extent, &n) && n < MIN_ROWS)
    return false;
  for (uint32_t i = 1; i < s->naccess; i++)
    if (s->access[i].regular && s->access[i].at.rest && has_address(s->k, s->access[i].at.rest, v, u))
      return true;
  return false;
}

/* A part of v, the rest of which goes into the grid; all of it where it is not much more. */
static cy_var part_of(cy_kernel *k, cy_var v, int64_t block) {
  int64_t n;
  if (!cy_dim_is_const(k->g, cy_kernel_var(k, v)->extent, &n) || n > block + block / 2)
    return split_over(k, v, block, k->ngrid - 1);
  grid_remove(k, v);
  return v;
}

void cy_kernel_share_addresses(cy_kernel *k) {
  cy_kernel_tidy_axes(k);
  const cy_stmt *st = k->body;
  if (!st || st->next || st->kind != CY_S_STORE || k->ngrid < 2)
    return;
  cy_var u = k->grid[k->ngrid - 2], v = k->grid[k->ngrid - 1];
  survey s = cy_survey_make(k);
  bool dense = s.access[0].regular && cy_dim_is(k->g, cy_survey_coef(&s, &s.access[0], v), 1);
  bool pays = dense && shares_addresses(&s, v, u);
  cy_survey_free(&s);
  if (!pays)
    return;
  u = part_of(k, u, ROWS);
  v = part_of(k, v, COLUMNS);
  wrap_in_loop(k, u, false);
  wrap_in_loop(k, v, true);
}

/* ---- the schedule ---- */

void cy_kernel_schedule(cy_kernel *k) {
  cy_kernel_tidy_axes(k);
  if (!has_lanes(k->body) && !k->grid_lanes)
    choose_lanes(k);
}
