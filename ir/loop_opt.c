/* loop_opt.c - the schedule of plain loop kernels: which axes are one, in which order, and which one is the lanes.
 *
 * In: a kernel as lowering composed it, grid variables in the output's logical order, loops as they came. Out: the same
 * results by
 *   - no axes of one element;
 *   - neighbouring axes merged where every access treats them as one (coef(outer) = coef(inner) * extent(inner));
 *   - grid variables by decreasing stride of the store;
 *   - lanes along the axis that a small cost model likes best: mostly the one with unit stride. Either a grid variable,
 * which then becomes the grid's own lanes (one variable) or an inner lane loop around the body; or the innermost
 * reductions.
 *   - axes whose indices are all taken apart by one constant (i / c and i % c: a shuffle of channels) cut in two;
 *   - a copy that crosses axes (a transpose) is cut into strips, so that the cache lines it reads are used up before
 * they leave (the last strip may overlap the one before, so that any size has strips). Of 32-bit elements, a loop along the axis that the store walks goes inside the lanes, which are what the
 * loads walk: the target then exchanges elements between vectors. A kernel that already has a lane loop keeps it.
 */
#include "loop_int.h"

#include <math.h>
#include <stdlib.h>

enum { NEST = 16, LANES = 8, STRIP = 16, LONG_STRIP = 128, FEW_ROWS = 16, BLOCK = 2048 };

/* ---- accesses ---- */

typedef struct access {
  cy_affine at;
  bool regular; /* at holds; else nothing is known */
} access;

typedef struct record { /* a statement with work */
  cy_var loop[NEST];    /* around it, outermost first */
  int nloops;
  double turns; /* per task */
  int ops;
  uint32_t first, last; /* its accesses; the store's is the first */
  bool store;
} record;

typedef struct survey {
  cy_kernel *k;
  access *access;
  uint32_t naccess, access_cap;
  record *record;
  uint32_t nrecord, record_cap;
  bool *loose; /* variables used otherwise than as an affine term of an offset */
  bool *seen;  /* expressions, per statement */
  uint32_t nseen;
  bool branches_on_data; /* an if tests a local */
  bool *branched;        /* variables that conditions test */
} survey;

static void *more(void *items, uint32_t n, uint32_t *cap, size_t size) {
  if (n < *cap)
    return items;
  *cap = *cap ? *cap * 2 : 16;
  items = realloc(items, *cap * size);
  if (!items)
    cy_bug("out of memory");
  return items;
}

static void survey_expr(survey *s, record *r, cy_expr e);

static void survey_offset(survey *s, record *r, cy_expr offset) {
  s->access = more(s->access, s->naccess, &s->access_cap, sizeof *s->access);
  access *a = &s->access[s->naccess++];
  a->regular = cy_expr_affine(s->k, offset, &a->at);
  cy_expr rest = a->regular ? a->at.rest : offset;
  if (rest)
    survey_expr(s, r, rest);
}

static void survey_expr(survey *s, record *r, cy_expr e) {
  if (e < s->nseen) { /* the rest of an affine form may be new: seldom, and small */
    if (s->seen[e])
      return;
    s->seen[e] = true;
  }
  const cy_expr_info x = *cy_expr_of(s->k, e);
  if (x.op == CY_X_VAR)
    s->loose[x.id] = true;
  if (x.op == CY_X_LOAD) {
    survey_offset(s, r, x.arg[0]);
    return;
  }
  r->ops += x.n > 0;
  for (int i = 0; i < x.n; i++)
    survey_expr(s, r, x.arg[i]);
}

static double turns_of(const cy_kernel *k, cy_var v) {
  int64_t n;
  return cy_dim_is_const(k->g, cy_kernel_var(k, v)->extent, &n) ? (double)n : 64;
}

static bool has_local(const cy_kernel *k, cy_expr e) {
  const cy_expr_info *x = cy_expr_of(k, e);
  for (int i = 0; i < x->n; i++)
    if (has_local(k, x->arg[i]))
      return true;
  return x->op == CY_X_LOCAL;
}

static void survey_condition(survey *s, cy_expr cond) {
  s->branches_on_data |= has_local(s->k, cond);
  for (cy_var v = 1; v <= s->k->nvars; v++)
    s->branched[v] |= cy_expr_uses_var(s->k, cond, v);
}

static void survey_list(survey *s, const cy_stmt *st, record *outer) {
  for (; st; st = st->next) {
    record r = *outer;
    if (st->kind == CY_S_FOR) {
      if (r.nloops == NEST)
        cy_bug("kernel '%s' nests too deeply", s->k->name);
      r.loop[r.nloops++] = st->var;
      r.turns *= turns_of(s->k, st->var);
    } else {
      for (uint32_t i = 0; i < s->nseen; i++)
        s->seen[i] = false;
      r.first = s->naccess;
      r.ops = 1;
      r.store = st->kind == CY_S_STORE;
      if (r.store)
        survey_offset(s, &r, st->offset);
      survey_expr(s, &r, st->value);
      r.last = s->naccess;
      if (st->kind == CY_S_IF)
        survey_condition(s, st->value);
      s->record = more(s->record, s->nrecord, &s->record_cap, sizeof *s->record);
      s->record[s->nrecord++] = r;
    }
    survey_list(s, st->body, &r);
    survey_list(s, st->orelse, &r);
  }
}

static survey survey_make(cy_kernel *k) {
  survey s = {.k = k, .nseen = cy_expr_count(k) + 1};
  s.loose = calloc(k->nvars + 1, 1);
  s.branched = calloc(k->nvars + 1, 1);
  s.seen = calloc(s.nseen, 1);
  if (!s.loose || !s.branched || !s.seen)
    cy_bug("out of memory");
  record outer = {.turns = 1};
  survey_list(&s, k->body, &outer);
  return s;
}

static void survey_free(survey *s) {
  free(s->access);
  free(s->record);
  free(s->loose);
  free(s->branched);
  free(s->seen);
}

/* ---- axes of one element ---- */

static bool one(const cy_kernel *k, cy_var v) { return cy_dim_is(k->g, cy_kernel_var(k, v)->extent, 1); }

static void drop_loops(cy_kernel *k, cy_stmt **at) {
  while (*at) {
    cy_stmt *s = *at;
    drop_loops(k, &s->body);
    drop_loops(k, &s->orelse);
    if (s->kind == CY_S_FOR && one(k, s->var)) { /* its variable was made as the constant 0 */
      cy_stmt **end = &s->body;
      while (*end)
        end = &(*end)->next;
      *end = s->next;
      *at = s->body;
      at = end;
    } else {
      at = &s->next;
    }
  }
}

static void drop_grid(cy_kernel *k) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < k->ngrid; i++)
    if (!one(k, k->grid[i]))
      k->grid[n++] = k->grid[i];
  k->ngrid = n;
}

/* ---- axes taken apart ---- */

static void mark_roots(const cy_stmt *s, bool *used) {
  for (; s; s = s->next) {
    used[s->offset] = used[s->value] = true;
    mark_roots(s->body, used);
    mark_roots(s->orelse, used);
  }
}

/* [expression]: does a statement use it? Operands are older than what is made of them. */
static bool *used_exprs(const cy_kernel *k) {
  bool *used = calloc(cy_expr_count(k) + 1, 1);
  if (!used)
    cy_bug("out of memory");
  mark_roots(k->body, used);
  for (cy_expr e = cy_expr_count(k); e > 0; e--) {
    const cy_expr_info *x = cy_expr_of(k, e);
    for (int i = 0; used[e] && i < x->n; i++)
      used[x->arg[i]] = true;
  }
  return used;
}

/* The constant of all divisions and remainders of v alone, 0 when there is no single one. */
static int64_t only_divisor(const cy_kernel *k, cy_var v) {
  bool *used = used_exprs(k), one = true;
  int64_t c = 0;
  for (cy_expr e = 1; e <= cy_expr_count(k) && one; e++) {
    const cy_expr_info *x = cy_expr_of(k, e);
    if (!used[e] || (x->op != CY_OP_div && x->op != CY_OP_mod))
      continue;
    const cy_expr_info *of = cy_expr_of(k, x->arg[0]), *by = cy_expr_of(k, x->arg[1]);
    if (of->op != CY_X_VAR || of->id != v)
      continue;
    one = by->op == CY_X_CONST && (!c || by->c.i == c);
    c = by->c.i;
  }
  free(used);
  return one ? c : 0;
}

/* The grid variable at `at` as outer * c + inner where c is its only divisor. */
static void take_apart(cy_kernel *k, uint32_t at) {
  cy_var v = k->grid[at];
  int64_t n, c = only_divisor(k, v);
  if (c < 2 || !cy_dim_is_const(k->g, cy_kernel_var(k, v)->extent, &n) || n % c || n == c)
    return;
  cy_var outer = cy_kernel_add_var(k, cy_dim_const(k->g, n / c)), inner = cy_kernel_add_var(k, cy_dim_const(k->g, c));
  cy_expr by = cy_x_bin(k, CY_OP_mul, cy_x_var(k, outer), cy_x_index(k, c));
  cy_kernel_subst_var(k, v, cy_x_bin(k, CY_OP_add, by, cy_x_var(k, inner)));
  cy_kernel_var(k, v)->grid = false;
  k->grid[at] = outer;
  cy_kernel_var(k, outer)->grid = true;
  cy_kernel_add_grid(k, inner);
  for (uint32_t i = k->ngrid - 1; i > at + 1; i--) {
    k->grid[i] = k->grid[i - 1];
    k->grid[i - 1] = inner;
  }
}

static void take_axes_apart(cy_kernel *k) {
  for (uint32_t i = 0; i < k->ngrid; i++)
    take_apart(k, i);
}

/* ---- merging ---- */

static cy_dim coef_of(const survey *s, const access *a, cy_var v) {
  for (int i = 0; i < a->at.n; i++)
    if (a->at.var[i] == v)
      return a->at.coef[i];
  return cy_dim_const(s->k->g, 0);
}

static bool mergeable(const survey *s, cy_var outer, cy_var inner) {
  if (s->loose[outer] || s->loose[inner])
    return false;
  cy_dim extent = cy_kernel_var(s->k, inner)->extent;
  for (uint32_t i = 0; i < s->naccess; i++) {
    const access *a = &s->access[i];
    if (!a->regular || coef_of(s, a, outer) != cy_dim_mul(s->k->g, coef_of(s, a, inner), extent))
      return false;
  }
  return true;
}

/* One variable for both: coef * (outer * extent(inner) + inner). */
static cy_var merge(cy_kernel *k, cy_var outer, cy_var inner) {
  cy_dim extent = cy_dim_mul(k->g, cy_kernel_var(k, outer)->extent, cy_kernel_var(k, inner)->extent);
  cy_var v = cy_kernel_add_var(k, extent);
  cy_kernel_subst_var(k, outer, cy_x_index(k, 0));
  cy_kernel_subst_var(k, inner, cy_x_var(k, v));
  return v;
}

static bool merge_grid(cy_kernel *k) {
  survey s = survey_make(k);
  bool merged = false;
  for (uint32_t i = 0; i + 1 < k->ngrid && !merged; i++) {
    if (!mergeable(&s, k->grid[i], k->grid[i + 1]))
      continue;
    cy_var v = merge(k, k->grid[i], k->grid[i + 1]);
    cy_kernel_var(k, v)->grid = true;
    k->grid[i] = v;
    for (uint32_t j = i + 1; j + 1 < k->ngrid; j++)
      k->grid[j] = k->grid[j + 1];
    k->ngrid--;
    merged = true;
  }
  survey_free(&s);
  return merged;
}

static int bound_by(const cy_stmt *s, cy_var v) { /* how many loops run over v */
  int n = 0;
  for (; s; s = s->next)
    n += (s->kind == CY_S_FOR && s->var == v) + bound_by(s->body, v) + bound_by(s->orelse, v);
  return n;
}

static bool merge_loops(cy_kernel *k, const survey *s, cy_stmt *st) {
  for (; st; st = st->next) {
    cy_stmt *in = st->body;
    bool nest = st->kind == CY_S_FOR && in && in->kind == CY_S_FOR && !in->next;
    if (nest && !st->lanes && bound_by(k->body, st->var) == 1 && bound_by(k->body, in->var) == 1 &&
        mergeable(s, st->var, in->var)) {
      st->var = merge(k, st->var, in->var);
      st->lanes = in->lanes;
      st->body = in->body;
      return true;
    }
    if (merge_loops(k, s, st->body) || merge_loops(k, s, st->orelse))
      return true;
  }
  return false;
}

static bool merge_nests(cy_kernel *k) {
  survey s = survey_make(k);
  bool merged = merge_loops(k, &s, k->body);
  survey_free(&s);
  return merged;
}

/* ---- the order of the grid ---- */

/* Does a step along a move the store farther than one along b? */
static bool farther(const survey *s, cy_var a, cy_var b) {
  for (uint32_t i = 0; i < s->nrecord; i++) {
    const record *r = &s->record[i];
    if (!r->store || !s->access[r->first].regular)
      continue;
    cy_dim x = coef_of(s, &s->access[r->first], a), y = coef_of(s, &s->access[r->first], b);
    return x != y && cy_dim_le(s->k->g, y, x);
  }
  return false;
}

static void order_grid(cy_kernel *k) {
  survey s = survey_make(k);
  for (uint32_t i = 1; i < k->ngrid; i++)
    for (uint32_t j = i; j > 0 && farther(&s, k->grid[j], k->grid[j - 1]); j--) {
      cy_var v = k->grid[j];
      k->grid[j] = k->grid[j - 1];
      k->grid[j - 1] = v;
    }
  survey_free(&s);
}

/* ---- lanes ---- */

/* What an access costs per lane, 1 = a scalar one. */
static double access_cost(const survey *s, const access *a, cy_var v, double vector) {
  int64_t c;
  if (!a->regular || (a->at.rest && cy_expr_uses_var(s->k, a->at.rest, v)) ||
      !cy_dim_is_const(s->k->g, coef_of(s, a, v), &c))
    return 1;
  return c >= -1 && c <= 1 ? vector : 1;
}

static double vector_share(const cy_kernel *k, cy_var v) {
  double n = turns_of(k, v);
  return n >= LANES ? 1.0 / LANES : n > 1 ? 1 / n : 1;
}

static double record_cost(const survey *s, const record *r, cy_var v) {
  double vector = v ? vector_share(s->k, v) : 1, cost = r->ops * vector;
  for (uint32_t i = r->first; i < r->last; i++)
    cost += v ? access_cost(s, &s->access[i], v, vector) : 1;
  return cost * r->turns;
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
    find_reductions(s->orelse, is_reduction, mark);
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
    if ((s->kind == CY_S_FOR && s->lanes) || has_lanes(s->body) || has_lanes(s->orelse))
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
    if (!a->regular || (cy_dim_is_const(s->k->g, coef_of(s, a, v), &c) && c >= -1 && c <= 1))
      continue;
    for (uint32_t j = 0; j < s->k->ngrid; j++)
      if (s->k->grid[j] != v && cy_dim_is(s->k->g, coef_of(s, a, s->k->grid[j]), 1))
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
  return cy_dim_is_const(s->k->g, coef_of(s, a, v), out);
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

/* The axes of a kernel that is nothing but one store of 32-bit elements: what its loads walk, what the store walks. */
static bool crossed_axes(const survey *s, cy_var *out_loads, cy_var *out_store) {
  cy_kernel *k = s->k;
  const cy_stmt *st = k->body;
  *out_loads = *out_store = 0;
  if (!st || st->next || st->kind != CY_S_STORE || cy_dtype_of(k->args[st->arg].dtype)->bits != 32)
    return false;
  for (uint32_t i = 0; i < s->naccess; i++)
    if (!s->access[i].regular || s->access[i].at.rest)
      return false;
  for (uint32_t i = 0; i < k->ngrid; i++) {
    if (cy_dim_is(k->g, coef_of(s, &s->access[0], k->grid[i]), 1))
      *out_store = k->grid[i];
    else if (loads_walk(s, k->grid[i]))
      *out_loads = k->grid[i];
  }
  return *out_loads && *out_store;
}

/* The largest multiple of LANES that divides n and is no greater than `most`, 0 when there is none. */
static int64_t strip_of(int64_t n, int64_t most) {
  for (int64_t d = most / LANES * LANES; d > 0; d -= LANES)
    if (n % d == 0)
      return d;
  return 0;
}

/* Many store rows at once would not stay in the first cache: short strips of both then, else long ones. */
static bool cross_on_grid(cy_kernel *k, const survey *s) {
  cy_var loads, store;
  int64_t n = 0, rows = 0; /* 0: a symbol */
  if (!crossed_axes(s, &loads, &store))
    return false;
  bool known = cy_dim_is_const(k->g, cy_kernel_var(k, loads)->extent, &n);
  if (known && n < LANES)
    return false;
  bool few = cy_dim_is_const(k->g, cy_kernel_var(k, store)->extent, &rows) && rows <= STRIP;
  int64_t most = few ? LONG_STRIP : STRIP, strip = known ? strip_of(n, most) : 0;
  if (!strip && (!known || n > LONG_STRIP))
    loads = split_over(k, loads, most, k->ngrid - 1);
  else if (strip && strip < n)
    loads = split(k, loads, strip, k->ngrid - 1);
  else
    grid_remove(k, loads);
  if (few)
    grid_remove(k, store);
  else /* fastest: successive tasks use the rest of the lines */
    store = (rows && rows % LANES == 0 ? split : split_over)(k, store, LANES, k->ngrid - 1);
  wrap_in_loop(k, store, false);
  wrap_in_loop(k, loads, true);
  return true;
}

static void choose_lanes(cy_kernel *k) {
  survey s = survey_make(k);
  if (cross_on_grid(k, &s)) {
    survey_free(&s);
    return;
  }
  bool *is_reduction = calloc(k->nvars + 1, 1);
  if (!is_reduction)
    cy_bug("out of memory");
  find_reductions(k->body, is_reduction, false);
  double best = reduction_cost(&s, is_reduction) * 0.999; /* without reductions: everything scalar */
  cy_var v = 0;
  for (uint32_t i = k->ngrid; i-- > 0;) {
    cy_var g = k->grid[i];
    double cost = s.branches_on_data || s.branched[g] || has_scratch(k) ? INFINITY : grid_cost(&s, g);
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
  survey_free(&s);
}

/* ---- products ---- */

enum { MANY_ROWS = 48 }; /* a matrix of that many rows keeps the multipliers busy by itself */

/* Batch axis i and the rows walk through A like one axis: how, outermost first. */
static bool rows_continue(const cy_kernel *k, int i, bool *out_batch_first) {
  const cy_contraction *c = &k->contraction;
  *out_batch_first = cy_dim_is(k->g, c->m, 1) || c->a_batch[i] == cy_dim_mul(k->g, c->m, c->a_m);
  return *out_batch_first || c->a_m == cy_dim_mul(k->g, c->batch[i], c->a_batch[i]);
}

/* One variable for the rows of batch axis i. Where the epilogue treats the two differently, its indices are split again, row by row. */
static bool fold_batch(cy_kernel *k, int i) {
  cy_contraction *c = &k->contraction;
  bool batch_first;
  int64_t m;
  if (!cy_dim_is(k->g, c->b_batch[i], 0) || !rows_continue(k, i, &batch_first))
    return false;
  cy_var rows = c->out_var[c->nbatch], outer = batch_first ? c->out_var[i] : rows, inner = batch_first ? rows : c->out_var[i];
  survey s = survey_make(k);
  bool same = mergeable(&s, outer, inner);
  survey_free(&s);
  if (!same && (!cy_dim_is_const(k->g, c->m, &m) || m >= MANY_ROWS))
    return false;
  cy_dim extent = cy_kernel_var(k, inner)->extent;
  if (same) {
    rows = merge(k, outer, inner);
  } else {
    rows = cy_kernel_add_var(k, cy_dim_mul(k->g, cy_kernel_var(k, outer)->extent, extent));
    cy_kernel_subst_var(k, outer, cy_x_bin(k, CY_OP_div, cy_x_var(k, rows), cy_x_dim(k, extent)));
    cy_kernel_subst_var(k, inner, cy_x_bin(k, CY_OP_mod, cy_x_var(k, rows), cy_x_dim(k, extent)));
  }
  if (!batch_first || cy_dim_is(k->g, c->m, 1))
    c->a_m = c->a_batch[i];
  c->m = cy_kernel_var(k, rows)->extent;
  c->out_var[c->nbatch] = rows;
  c->nout_vars--;
  for (int j = i; j < c->nout_vars; j++)
    c->out_var[j] = c->out_var[j + 1];
  c->nbatch--;
  for (int j = i; j < c->nbatch; j++) {
    c->batch[j] = c->batch[j + 1];
    c->a_batch[j] = c->a_batch[j + 1];
    c->b_batch[j] = c->b_batch[j + 1];
  }
  return true;
}

void cy_kernel_fold_batches(cy_kernel *k) {
  for (int i = k->contraction.nbatch; i-- > 0;)
    if (fold_batch(k, i))
      i = k->contraction.nbatch;
}

/* Does a pixel of the output read the pixel of the input at the same place, and nothing else? */
static bool is_pointwise(const cy_kernel *k) {
  const cy_contraction *c = &k->contraction;
  if (c->kind != CY_CONTRACT_CONV || c->group != 1 || !cy_dim_is(k->g, c->x_channel, 1) ||
      cy_kernel_local_dtype(k, c->acc) != CY_F32)
    return false;
  for (int i = 0; i < c->nspatial; i++)
    if (c->kernel[i] != 1 || c->stride[i] != 1 || !cy_dim_is(k->g, c->pad[i], 0) || c->in[i] != c->out[i])
      return false;
  return true;
}

/* The output's axes but for the channel, outermost first: extents, strides of the input. */
static int pixel_axes(const cy_contraction *c, cy_dim *extent, cy_dim *stride) {
  extent[0] = c->images;
  stride[0] = c->x_image;
  for (int i = 0; i < c->nspatial; i++) {
    extent[1 + i] = c->out[i];
    stride[1 + i] = c->x_spatial[i];
  }
  return 1 + c->nspatial;
}

/* Axes `at - 1` and `at` become one at `at - 1`, if the input and the epilogue allow it. */
static bool join_axes(cy_kernel *k, cy_dim *extent, cy_dim *stride, int at) {
  cy_contraction *c = &k->contraction;
  int alone = cy_dim_is(k->g, extent[at - 1], 1) ? at - 1 : cy_dim_is(k->g, extent[at], 1) ? at : -1;
  if (alone >= 0) {
    cy_kernel_subst_var(k, c->out_var[alone], cy_x_index(k, 0));
    if (alone == at - 1) {
      c->out_var[at - 1] = c->out_var[at];
      stride[at - 1] = stride[at];
      extent[at - 1] = extent[at];
    }
    return true;
  }
  survey s = survey_make(k);
  bool same = stride[at - 1] == cy_dim_mul(k->g, stride[at], extent[at]) &&
              mergeable(&s, c->out_var[at - 1], c->out_var[at]);
  survey_free(&s);
  if (same) {
    c->out_var[at - 1] = merge(k, c->out_var[at - 1], c->out_var[at]);
    extent[at - 1] = cy_kernel_var(k, c->out_var[at - 1])->extent;
    stride[at - 1] = stride[at];
  }
  return same;
}

void cy_kernel_fold_pixels(cy_kernel *k) {
  cy_contraction *c = &k->contraction;
  cy_dim extent[1 + CY_MAX_SPATIAL], stride[1 + CY_MAX_SPATIAL];
  if (!is_pointwise(k))
    return;
  int n = pixel_axes(c, extent, stride), left = n;
  cy_var channel = c->out_var[n];
  while (left > 1 && join_axes(k, extent, stride, left - 1))
    left--;
  if (left == n)
    return;
  c->kind = CY_CONTRACT_MATMUL;
  c->nbatch = left - 1;
  for (int i = 0; i < c->nbatch; i++) {
    c->batch[i] = extent[i];
    c->a_batch[i] = stride[i];
    c->b_batch[i] = cy_dim_const(k->g, 0);
  }
  c->m = extent[left - 1];
  c->n = c->channels_out;
  c->k = c->b_n = c->channels_in;
  c->a_m = stride[left - 1];
  c->a_k = c->b_k = cy_dim_const(k->g, 1);
  c->out_var[left] = channel;
  c->nout_vars = left + 1;
}

void cy_kernel_schedule(cy_kernel *k) {
  drop_loops(k, &k->body);
  drop_grid(k);
  take_axes_apart(k);
  order_grid(k);
  while (merge_grid(k) || merge_nests(k))
    ;
  if (!has_lanes(k->body) && !k->grid_lanes)
    choose_lanes(k);
}
