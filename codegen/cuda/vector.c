/* SPDX-License-Identifier: Apache-2.0 */
/* vector.c - items of several neighbouring elements, so that memory is read and written 16 bytes at a time.
 *
 * In: a kernel of items whose lanes have a multiple of `vector` iterations, whose stores are contiguous along the lanes
 * and begin at multiples of it. Out: schedule->vector and the loads that can be done for all elements of an item at once
 * (the others stay single). Whether the pointers are aligned is looked at when the kernel runs: if not, the same arrays
 * are filled element by element. Loads that a select may skip stay where they are.
 *
 * A copy that crosses axes comes as a lane loop along what is loaded around a loop along what is stored. What is stored
 * must be contiguous in a warp: a store moves whole sectors or parts of them, and no cache gathers these before the
 * second-level one. So neighbouring threads take turns of the inner loop, and each a sector's worth of the outer one,
 * which it reads 16 bytes at a time where that can be; what one thread leaves of a line of the first-level cache, its
 * next load finds there.
 */
#include "codegen/cuda/cuda_int.h"

#include <string.h>

enum { VECTOR_BYTES = 16, SECTOR_BYTES = 32, MIN_CROSSED = 8 /* iterations of a loop along what is stored */ };

typedef struct study {
  cy_kernel *k;
  cy_graph *g;
  cy_var lanes;
  const cy_karg_info *args;
  int64_t vector;
  uint8_t *load, *seen; /* by expression */
  uint32_t n;
  int max, max_stored;  /* bytes of an item's neighbours: in one tensor; in one that is stored */
  int widest;            /* bytes of an element that is loaded or stored contiguously */
} study;

static bool is_multiple(cy_graph *g, cy_dim d, int64_t of) {
  return cy_dim_is(g, cy_dim_mod(g, d, cy_dim_const(g, of)), 0);
}

/* Is e lanes / n, or lanes % n, by a multiple of `of`? What shuffles channels has these. */
static bool is_part(const study *s, cy_expr e, cy_op op, int64_t of) {
  const cy_expr_info *x = cy_expr_of(s->k, e), *v = x->op == op ? cy_expr_of(s->k, x->arg[0]) : NULL;
  int64_t n;
  return v && v->op == CY_X_VAR && v->id == s->lanes && cy_expr_is_int(s->k, x->arg[1], &n) && n % of == 0;
}

/* Is e the same for `of` lanes from a multiple of `of` on? */
static bool steady(const study *s, cy_expr e, int64_t of) {
  const cy_expr_info *x = cy_expr_of(s->k, e);
  bool same = (x->op != CY_X_VAR || x->id != s->lanes) && x->op != CY_X_LOCAL;
  for (int i = 0; i < x->n && same && !is_part(s, e, CY_OP_div, of); i++)
    same = steady(s, x->arg[i], of);
  return same;
}

/* Is e, a sum of what is not affine, lanes + a multiple of `of` for these? *inout_along: are lanes in it already? */
static bool moves_along(const study *s, cy_expr e, int64_t of, bool *inout_along) {
  const cy_expr_info x = *cy_expr_of(s->k, e);
  int64_t n;
  if (x.op == CY_OP_add)
    return moves_along(s, x.arg[0], of, inout_along) && moves_along(s, x.arg[1], of, inout_along);
  if (is_part(s, e, CY_OP_mod, of)) {
    bool again = *inout_along;
    *inout_along = true;
    return !again;
  }
  for (int i = 0; i < 2 && x.op == CY_OP_mul; i++)
    if (cy_expr_is_int(s->k, x.arg[i], &n) && n % of == 0)
      return steady(s, x.arg[1 - i], of);
  return false;
}

/* Is `offset` = lanes + a multiple of `of`? */
static bool contiguous(const study *s, cy_expr offset, int64_t of) {
  cy_affine a;
  bool along = false;
  if (!cy_expr_affine(s->k, offset, &a) || (a.rest && !moves_along(s, a.rest, of, &along)) ||
      !is_multiple(s->g, a.base, of))
    return false;
  for (int i = 0; i < a.n; i++) {
    if (a.var[i] == s->lanes && !along)
      along = cy_dim_is(s->g, a.coef[i], 1);
    else if (!is_multiple(s->g, a.coef[i], of))
      return false;
  }
  return along;
}

static int bytes_of(const study *s, cy_karg arg) { return cy_dtype_of(s->args[arg].dtype)->bits / 8; }

/* Loads below e that are done in any case. */
static void find_loads(study *s, cy_expr e) {
  const cy_expr_info x = *cy_expr_of(s->k, e); /* a copy: affine sums may add expressions */
  if (e >= s->n || s->seen[e])
    return;
  s->seen[e] = 1;
  if (x.op == CY_X_LOAD && bytes_of(s, x.id) && contiguous(s, x.arg[0], s->vector)) {
    s->load[e] = 1;
    s->widest = bytes_of(s, x.id) > s->widest ? bytes_of(s, x.id) : s->widest;
  }
  for (int i = 0; i < (x.op == CY_OP_select ? 1 : x.n); i++)
    find_loads(s, x.arg[i]);
}

/* Nothing but stores, contiguous ones, and locals; nothing that is stored is loaded, too. */
static bool simple(study *s, const cy_stmt *body) {
  for (const cy_stmt *t = body; t; t = t->next) {
    if (t->kind != CY_S_STORE && t->kind != CY_S_SET)
      return false;
    if (t->kind == CY_S_SET || (t->op && steady(s, t->offset, s->vector)))
      continue;
    if (t->op || !bytes_of(s, t->arg) || !contiguous(s, t->offset, s->vector))
      return false;
    if (s->vector * bytes_of(s, t->arg) > s->max_stored)
      return false;
    s->widest = bytes_of(s, t->arg) > s->widest ? bytes_of(s, t->arg) : s->widest;
    if (cy_kernel_loads(s->k, t->arg))
      return false;
  }
  return true;
}

static bool fits(study *s, const cy_stmt *body) {
  memset(s->load, 0, s->n);
  memset(s->seen, 0, s->n);
  s->widest = 0;
  if (!is_multiple(s->g, cy_kernel_var(s->k, s->lanes)->extent, s->vector) || !simple(s, body))
    return false;
  for (const cy_stmt *t = body; t; t = t->next)
    find_loads(s, t->value);
  return s->vector * s->widest <= s->max;
}

static void begin(study *s, cy_kernel *k, cy_var lanes, int max, int max_stored) {
  cy_arena *arena = cy_graph_arena(cy_kernel_graph(k));
  *s = (study){.k = k, .g = cy_kernel_graph(k), .lanes = lanes, .n = cy_expr_count(k) + 1};
  s->max = max;
  s->max_stored = max_stored;
  cy_kernel_args(k, &s->args);
  s->load = CY_NEW_ARRAY(arena, uint8_t, s->n);
  s->seen = CY_NEW_ARRAY(arena, uint8_t, s->n);
}

static bool try_vector(study *s, cy_cuda_schedule *schedule, const cy_stmt *body, int vector) {
  s->vector = vector;
  if (!fits(s, body))
    return false;
  schedule->vector = vector;
  schedule->vector_var = s->lanes;
  schedule->vector_load = s->load;
  schedule->vector_exprs = s->n;
  return true;
}

bool cy_cuda_vectorise_body(cy_kernel *k, cy_cuda_schedule *schedule, const cy_stmt *body, cy_var var, int vector,
                            int max_stored) {
  study s;
  begin(&s, k, var, 2 * VECTOR_BYTES, max_stored);
  return try_vector(&s, schedule, body, vector);
}

void cy_cuda_vectorise(cy_kernel *k, cy_cuda_schedule *schedule) {
  const cy_var *grid;
  uint32_t ngrid = cy_kernel_grid(k, &grid);
  const cy_stmt *lanes = schedule->lanes, *body = lanes ? lanes->body : cy_kernel_body(k);
  if (lanes ? cy_kernel_body(k) != lanes : ngrid != 1 || !cy_kernel_grid_lanes(k))
    return;
  study s;
  begin(&s, k, lanes ? lanes->var : grid[0], VECTOR_BYTES, VECTOR_BYTES);
  for (int vector = 8; vector > 1; vector /= 2)
    if (try_vector(&s, schedule, body, vector))
      return;
}

/* Is `lanes` a loop around one around a store alone, which is contiguous along the inner loop? */
static const cy_stmt *crossing_loop(cy_kernel *k, const cy_stmt *lanes) {
  const cy_stmt *in = lanes->body, *store = in && in->kind == CY_S_FOR && !in->next ? in->body : NULL;
  cy_affine a;
  int64_t min, max;
  bool along = false;
  if (!store || in->lanes || store->next || store->kind != CY_S_STORE || cy_kernel_loads(k, store->arg) ||
      !cy_expr_affine(k, store->offset, &a))
    return NULL;
  cy_dim_range(cy_kernel_graph(k), cy_kernel_var(k, in->var)->extent, &min, &max);
  for (int i = 0; i < a.n; i++)
    along |= a.var[i] == in->var && cy_dim_is(cy_kernel_graph(k), a.coef[i], 1);
  return along && max >= MIN_CROSSED && !(a.rest && cy_expr_uses_var(k, a.rest, in->var)) ? in : NULL;
}

bool cy_cuda_vectorise_crossing(cy_kernel *k, cy_cuda_schedule *schedule) {
  study s;
  const cy_stmt *in = crossing_loop(k, schedule->lanes);
  if (!in)
    return false;
  begin(&s, k, schedule->lanes->var, SECTOR_BYTES, 0);
  if (!bytes_of(&s, in->body->arg))
    return false;
  s.vector = SECTOR_BYTES / bytes_of(&s, in->body->arg);
  if (is_multiple(s.g, cy_kernel_var(k, s.lanes)->extent, s.vector))
    find_loads(&s, in->body->value);
  if (s.widest * s.vector > s.max)
    memset(s.load, 0, s.n);
  schedule->strip = schedule->lanes;
  schedule->lanes = in;
  schedule->vector = (int)s.vector;
  schedule->vector_var = s.lanes;
  schedule->vector_load = s.load;
  schedule->vector_exprs = s.n;
  return true;
}

/* ---- printing ---- */

/* const b1 wide = are the pointers of all contiguous accesses aligned */
static void print_wide(cy_cu *p, const cy_stmt *body) {
  fprintf(p->out, "%*sconst b1 wide = ((u64)0", p->indent, "");
  for (const cy_stmt *t = body; t && !p->schedule->strip; t = t->next)
    if (t->kind == CY_S_STORE && !t->op)
      fprintf(p->out, " | (u64)a%u", t->arg);
  for (cy_expr e = 1; e < p->schedule->vector_exprs; e++)
    if (p->schedule->vector_load[e])
      fprintf(p->out, " | (u64)a%u", cy_expr_of(p->k, e)->id);
  fprintf(p->out, ") %% %d == 0;\n", VECTOR_BYTES);
}

void cy_cu_offset_at(cy_cu *p, const char *name, cy_expr offset, cy_var var, const char *at) {
  uint32_t mark = p->nlog;
  cy_cu_line(p, "i64 %s;", name);
  cy_cu_line(p, "{");
  cy_cu_open(p);
  cy_cu_line(p, "const %s v%u = %s;", cy_cu_var_type(p, var), var, at);
  cy_cu_line(p, "%s = %s;", name, cy_cu_value(p, offset));
  cy_cu_close(p, mark);
  cy_cu_line(p, "}");
}

static void print_loads(cy_cu *p) {
  char name[32];
  for (cy_expr e = 1; e < p->schedule->vector_exprs; e++) {
    const cy_expr_info *x = cy_expr_of(p->k, e);
    if (!p->schedule->vector_load[e])
      continue;
    cy_dtype t = p->args[x->id].dtype;
    snprintf(name, sizeof name, "ox%u", e);
    cy_cu_offset_at(p, name, x->arg[0], p->schedule->vector_var, "first");
    cy_cu_line(p, "%s x%u[%d] CY_ALIGNED(16);", cy_cu_storage(t), e, p->schedule->vector);
    cy_cu_line(p, "if (wide)");
    cy_cu_line(p, "  cy_move%d(x%u, a%u + ox%u);", p->schedule->vector * cy_dtype_of(t)->bits / 8, e, x->id, e);
    cy_cu_line(p, "else");
    cy_cu_line(p, "  CY_UNROLL");
    cy_cu_line(p, "  for (int u = 0; u < %d; u++)", p->schedule->vector);
    cy_cu_line(p, "    x%u[u] = a%u[ox%u + u];", e, x->id, e);
  }
}

static void print_stores(cy_cu *p, const cy_stmt *body) {
  uint32_t n = 0;
  for (const cy_stmt *t = body; t; t = t->next) {
    if (t->kind != CY_S_STORE || t->op)
      continue;
    int bytes = p->schedule->vector * cy_dtype_of(p->args[t->arg].dtype)->bits / 8;
    cy_cu_line(p, "if (wide)");
    cy_cu_line(p, "  cy_move%d(a%u + oy%u, y%u);", bytes, t->arg, n, n);
    cy_cu_line(p, "else");
    cy_cu_line(p, "  CY_UNROLL");
    cy_cu_line(p, "  for (int u = 0; u < %d; u++)", p->schedule->vector);
    cy_cu_line(p, "    a%u[oy%u + u] = y%u[u];", t->arg, n, n);
    n++;
  }
}

/* .. of all elements at once. */
static void print_maxima(cy_cu *p, const cy_stmt *body) {
  char name[32];
  for (const cy_stmt *t = body; t; t = t->next) {
    if (t->kind != CY_S_STORE || !t->op)
      continue;
    snprintf(name, sizeof name, "om%u", t->arg);
    cy_cu_offset_at(p, name, t->offset, p->schedule->vector_var, "first");
    cy_cu_line(p,
               p->holds_maxima ? "cy_held_max_put(maxima, (u32 *)a%u + om%u, top%u);" : "cy_put_max((u32 *)a%u + om%u, top%u);",
               t->arg, t->arg, t->arg);
  }
}

static bool element(cy_cu *p, cy_expr e, char *out, size_t cap) {
  bool here = e < p->schedule->vector_exprs && p->schedule->vector_load[e];
  if (here)
    snprintf(out, cap, "x%u[u]", e);
  return here;
}

void cy_cu_vector_items(cy_cu *p, const cy_stmt *body) {
  const cy_cuda_schedule *schedule = p->schedule;
  char name[32];
  uint32_t n = 0, mark = p->nlog;
  print_wide(p, body);
  print_loads(p);
  for (const cy_stmt *t = body; t; t = t->next)
    if (t->kind == CY_S_STORE && t->op) {
      cy_cu_line(p, "u32 top%u = 0;", t->arg);
    } else if (t->kind == CY_S_STORE) {
      snprintf(name, sizeof name, "oy%u", n);
      cy_cu_offset_at(p, name, t->offset, schedule->vector_var, "first");
      cy_cu_line(p, "%s y%u[%d] CY_ALIGNED(16);", cy_cu_storage(p->args[t->arg].dtype), n++, schedule->vector);
    }
  cy_cu_line(p, "CY_UNROLL");
  cy_cu_line(p, "for (int u = 0; u < %d; u++) {", schedule->vector);
  cy_cu_open(p);
  const char *type = cy_cu_var_type(p, schedule->vector_var);
  cy_cu_line(p, "const %s v%u = (%s)(first + u);", type, schedule->vector_var, type);
  if (p->item_head)
    cy_cu_line(p, "%s", p->item_head);
  p->in_vector = true;
  p->element = element;
  p->nstored = 0;
  cy_cu_list(p, body);
  p->in_vector = false;
  p->element = NULL;
  cy_cu_close(p, mark);
  cy_cu_line(p, "}");
  print_stores(p, body);
  print_maxima(p, body);
}

void cy_cu_strip_items(cy_cu *p) {
  const cy_cuda_schedule *schedule = p->schedule;
  cy_dim iterations = cy_kernel_var(p->k, schedule->strip->var)->extent;
  const char *type = cy_cu_var_type(p, schedule->vector_var);
  uint32_t mark = p->nlog;
  print_wide(p, schedule->lanes->body);
  print_loads(p);
  cy_cu_line(p, "CY_UNROLL");
  cy_cu_line(p, "for (int u = 0; u < %d; u++) {", schedule->vector);
  cy_cu_open(p);
  cy_cu_line(p, "const %s v%u = (%s)(first + u);", type, schedule->vector_var, type);
  if (!is_multiple(p->g, iterations, schedule->vector))
    cy_cu_line(p, "if (v%u < %s) {", schedule->vector_var, cy_cu_dim(p, iterations));
  else
    cy_cu_line(p, "{");
  cy_cu_open(p);
  p->element = element;
  cy_cu_list(p, schedule->lanes->body);
  p->element = NULL;
  cy_cu_close(p, mark);
  cy_cu_line(p, "}");
  cy_cu_close(p, mark);
  cy_cu_line(p, "}");
}
