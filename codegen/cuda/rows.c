/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c - kernels that pass over rows: softmax, normalisations, reductions along the contiguous axis.
 *
 * In: a kernel whose tasks are rows, whose body is locals and lane loops over the elements of one row, from whatever op
 * it came. Out: a group of threads per row, each with `vector` neighbouring elements of every chunk of threads x
 * vector. What several passes read is loaded once and held in registers, and so are rows of scratch; what one pass
 * reads is loaded there; both 16 bytes at a time where the row is aligned. A row that the registers cannot hold is read
 * again by every pass, and scratch is computed again. Sums go thread by thread, then over the lanes, then over the
 * warps: always in the same order.
 *
 * All lane loops get one variable, so that equal loads of several passes are one expression. Where the length is a
 * symbol, the kernel has a schedule for short, middle and long rows and takes one when it runs.
 */
#include "codegen/cuda/cuda_int.h"

#include <string.h>

struct cy_cuda_rows {
  cy_var var;
  uint32_t *passes; /* [exprs] of loads along the row: bit i: loop i does it in any case */
  uint32_t exprs;
  int vector;
  int chunks; /* that a thread holds; 0: nothing is held */
};
typedef struct cy_cuda_rows rows;

/* ---- which kernels ---- */

typedef struct study {
  cy_kernel *k;
  cy_graph *g;
  const cy_karg_info *args;
  uint32_t nargs;
  cy_var var;
  rows *r;
  uint8_t *used;  /* [exprs] by statements: renaming leaves others behind */
  uint32_t *seen; /* [exprs] bit i: loop i was looked through */
  int widest;     /* bytes of an element that is contiguous along the row */
} study;

static bool is_loop(const cy_stmt *s) { return s->kind == CY_S_FOR; }

/* Locals and stores, and lane loops of locals, accumulators and stores. */
static bool flat(const cy_stmt *s, bool top) {
  for (; s; s = s->next)
    if ((s->kind == CY_S_ACCUM && top) || (is_loop(s) && (!top || !s->lanes || !flat(s->body, false))))
      return false;
  return true;
}

static bool changes(const cy_stmt *s, cy_local l) {
  for (; s; s = s->next)
    if (((s->kind == CY_S_SET || s->kind == CY_S_ACCUM) && s->local == l) || changes(s->body, l))
      return true;
  return false;
}

static bool depends(cy_kernel *k, cy_expr e, const cy_stmt *on) {
  const cy_expr_info *x = cy_expr_of(k, e);
  if (x->op == CY_X_LOCAL)
    return changes(on, x->id);
  for (int i = 0; i < x->n; i++)
    if (depends(k, x->arg[i], on))
      return true;
  return false;
}

/* Gives all loops the first one's variable; false: they differ in length, or nothing is accumulated. */
static bool one_variable(cy_kernel *k) {
  const cy_stmt *first = NULL;
  bool accumulates = false;
  int loops = 0;
  for (cy_stmt *f = cy_kernel_body(k); f; f = f->next) {
    if (!is_loop(f))
      continue;
    first = first ? first : f;
    if (loops++ == 32 || cy_kernel_var(k, f->var)->extent != cy_kernel_var(k, first->var)->extent)
      return false;
    for (const cy_stmt *s = f->body; s; s = s->next)
      accumulates |= s->kind == CY_S_ACCUM;
  }
  if (!accumulates)
    return false;
  for (cy_stmt *f = cy_kernel_body(k); f; f = f->next)
    if (is_loop(f) && f->var != first->var) {
      cy_kernel_subst_var(k, f->var, cy_x_var(k, first->var));
      f->var = first->var;
    }
  return true;
}

/* The only statement that stores to scratch, and the loop around it; false: there are others. */
static bool filler(cy_kernel *k, cy_karg arg, const cy_stmt **out_loop, const cy_stmt **out_store) {
  int n = 0;
  for (const cy_stmt *f = cy_kernel_body(k); f; f = f->next) {
    n += f->kind == CY_S_STORE && f->arg == arg ? 2 : 0;
    for (const cy_stmt *s = f->body; s; s = s->next)
      if (s->kind == CY_S_STORE && s->arg == arg) {
        *out_loop = f;
        *out_store = s;
        n++;
      }
  }
  return n == 1;
}

/* Is scratch written and read element by element, and can its values be had again as long as they are read? */
static bool scratch_is_row(const study *s, cy_karg arg) {
  const cy_stmt *loop, *store;
  if (!filler(s->k, arg, &loop, &store) || cy_dtype_of(s->args[arg].dtype)->bits < 32)
    return false;
  const cy_expr_info *at = cy_expr_of(s->k, store->offset);
  for (cy_expr e = 1; e <= cy_expr_count(s->k); e++) {
    const cy_expr_info *x = cy_expr_of(s->k, e);
    if (s->used[e] && x->op == CY_X_LOAD && x->id == arg && x->arg[0] != store->offset)
      return false;
  }
  return at->op == CY_X_VAR && at->id == s->var && !depends(s->k, store->value, loop->body) &&
         !depends(s->k, store->value, loop->next);
}

static void use(study *s, cy_expr e) {
  if (!e || s->used[e])
    return;
  s->used[e] = 1;
  for (int i = 0; i < cy_expr_of(s->k, e)->n; i++)
    use(s, cy_expr_of(s->k, e)->arg[i]);
}

static void use_all(study *s, const cy_stmt *list) {
  for (; list; list = list->next) {
    use(s, list->value);
    use(s, list->offset);
    use_all(s, list->body);
  }
}

static bool loads(const study *s, cy_karg arg) {
  for (cy_expr e = 1; e <= cy_expr_count(s->k); e++)
    if (s->used[e] && cy_expr_of(s->k, e)->op == CY_X_LOAD && cy_expr_of(s->k, e)->id == arg)
      return true;
  return false;
}

static bool memory_fits(const study *s) {
  for (uint32_t i = 0; i < s->nargs; i++)
    if (s->args[i].kind == CY_ARG_SCRATCH ? !scratch_is_row(s, i) : s->args[i].kind == CY_ARG_WRITE && loads(s, i))
      return false;
  return true;
}

/* ---- what is read how ---- */

static int bytes_of(const study *s, cy_karg arg) { return cy_dtype_of(s->args[arg].dtype)->bits / 8; }

/* offset = var + what is the same all along the row */
static bool contiguous(const study *s, cy_expr offset) {
  cy_affine a;
  if (!cy_expr_affine(s->k, offset, &a) || a.rest)
    return false;
  for (int i = 0; i < a.n; i++)
    if (a.var[i] == s->var)
      return cy_dim_is(s->g, a.coef[i], 1);
  return false;
}

static void widen(study *s, cy_karg arg) {
  int bytes = bytes_of(s, arg);
  s->widest = bytes > s->widest ? bytes : s->widest;
}

/* Loads that loop number `pass` does in any case. */
static void find_loads(study *s, cy_expr e, uint32_t pass) {
  const cy_expr_info x = *cy_expr_of(s->k, e); /* a copy: affine sums may add expressions */
  if (e >= s->r->exprs || s->seen[e] >> pass & 1)
    return;
  s->seen[e] |= 1u << pass;
  if (x.op == CY_X_LOAD && s->args[x.id].kind == CY_ARG_READ && bytes_of(s, x.id) && contiguous(s, x.arg[0])) {
    s->r->passes[e] |= 1u << pass;
    widen(s, x.id);
  }
  for (int i = 0; i < (x.op == CY_OP_select ? 1 : x.n); i++)
    find_loads(s, x.arg[i], pass);
}

static void find_reading(study *s) {
  uint32_t pass = 0;
  for (const cy_stmt *f = cy_kernel_body(s->k); f; f = f->next) {
    if (!is_loop(f))
      continue;
    for (const cy_stmt *t = f->body; t; t = t->next) {
      find_loads(s, t->value, pass);
      if (t->kind != CY_S_STORE)
        continue;
      find_loads(s, t->offset, pass);
      if (s->args[t->arg].kind == CY_ARG_WRITE && bytes_of(s, t->arg) && contiguous(s, t->offset))
        widen(s, t->arg);
    }
    pass++;
  }
}

/* Several passes read it. */
static bool is_shared(const rows *r, cy_expr e) { return e < r->exprs && (r->passes[e] & (r->passes[e] - 1)); }

/* Quarters of a register that an element takes while it is held. */
static int held_quarters(const study *s) {
  int bytes = 0;
  for (cy_expr e = 1; e < s->r->exprs; e++)
    if (is_shared(s->r, e))
      bytes += bytes_of(s, cy_expr_of(s->k, e)->id);
  for (uint32_t i = 0; i < s->nargs; i++)
    bytes += s->args[i].kind == CY_ARG_SCRATCH ? bytes_of(s, i) : 0;
  return bytes;
}

/* ---- choosing ---- */

/* The cost of a row is its bytes once, if enough loads are in flight and no thread waits for others: so the fewest
 * threads that can hold it in registers. A warp needs no barrier; a thread of it may hold 64 registers' worth (of 255,
 * the rest is for addresses and temporaries), one of a block of 1024 has 64 in all and may hold 32. Rows of few
 * elements share a warp, two chunks for each thread: one would leave nothing to overlap. Where there are too few rows
 * to fill the device, more threads take each, with no more than FEW_HELD elements where there are as many threads: a
 * row then takes as long as a thread takes for its elements, and four warps alone hide none of that. */
static const struct group {
  int threads, words;
  bool alone; /* only for few rows or when the smaller ones cannot hold a row */
} groups[] = {{4, 8, false},   {8, 8, false},   {16, 8, false},  {32, 64, false},
              {128, 32, true}, {256, 64, true}, {512, 64, true}, {1024, 32, true}};
enum {
  WARP_SIZE = 32,
  NGROUPS = sizeof groups / sizeof *groups,
  SYMBOLIC_BLOCK = 256,          /* threads of a long row whose length is a symbol, */
  SYMBOLIC_ITERATIONS = 32,      /* .. elements that each holds, of no more than two registers */
  BLOCK_THREADS = 128,           /* of a block of several rows */
  SPLIT_ITERATIONS = 512,        /* rows worth a block when there are few of them, */
  MAYBE_SPLIT_ITERATIONS = 2048, /* .. or may be */
  FEW_HELD = 8,
  LOOSE_CHUNKS = 16,             /* chunks for each thread when nothing is held */
  MAX_VECTOR = 8,
  VECTOR_BYTES = 16
};

static void choose_group(const study *s, const cy_machine *m, cy_dim tasks, int64_t length, cy_cuda_schedule *f) {
  rows *r = s->r;
  int quarters = held_quarters(s);
  int64_t min, max;
  cy_dim_range(s->g, tasks, &min, &max);
  bool few = min < cy_cu_wanted_blocks(m) && length >= (min < max ? MAYBE_SPLIT_ITERATIONS : SPLIT_ITERATIONS);
  const struct group *chosen = NULL;
  for (int i = 0; i < NGROUPS; i++) {
    const struct group *c = &groups[i];
    int64_t chunks = cy_ceil(length, (int64_t)c->threads * r->vector), words = chunks * r->vector * quarters / 4;
    bool holds = quarters ? words <= c->words : chunks <= (c->threads < WARP_SIZE ? 2 : LOOSE_CHUNKS);
    bool more = few && chunks * r->vector > FEW_HELD && i + 1 < NGROUPS;
    if (!holds || (few && !c->alone) || more)
      continue;
    chosen = c;
    r->chunks = quarters ? (int)chunks : 0;
    break;
  }
  f->group = chosen ? chosen->threads : groups[NGROUPS - 1].threads;
  f->threads = f->group < BLOCK_THREADS ? BLOCK_THREADS : f->group;
  f->blocks = cy_dim_cdiv(s->g, tasks, cy_dim_const(s->g, f->threads / f->group));
}

/* A warp for what it can hold, a block for the rest: as many blocks as the longer rows want, up to one per row. */
static void choose_symbolic(const study *s, cy_dim tasks, cy_dim length, cy_cuda_schedule *f) {
  int quarters = held_quarters(s), elements = quarters > 8 ? SYMBOLIC_ITERATIONS * 8 / quarters : SYMBOLIC_ITERATIONS;
  s->r->chunks = elements > s->r->vector ? elements / s->r->vector : 1;
  f->group = 0;
  f->threads = SYMBOLIC_BLOCK;
  cy_dim warps = cy_dim_cdiv(s->g, tasks, cy_dim_const(s->g, SYMBOLIC_BLOCK / WARP_SIZE));
  cy_dim iterations = cy_dim_const(s->g, (int64_t)WARP_SIZE * s->r->chunks * s->r->vector);
  cy_dim more = cy_dim_div(s->g, cy_dim_mul(s->g, tasks, length), iterations);
  f->blocks = cy_dim_min(s->g, tasks, cy_dim_add(s->g, warps, more));
}

bool cy_cuda_rows_schedule(const cy_machine *m, cy_kernel *k, cy_dim tasks, cy_cuda_schedule *f) {
  cy_graph *g = cy_kernel_graph(k);
  cy_arena *arena = cy_graph_arena(g);
  study s = {.k = k, .g = g};
  int64_t length = 0;
  if (cy_kernel_grid_lanes(k) || !flat(cy_kernel_body(k), true) || !one_variable(k))
    return false;
  s.nargs = cy_kernel_args(k, &s.args);
  for (const cy_stmt *t = cy_kernel_body(k); t; t = t->next)
    s.var = is_loop(t) ? t->var : s.var;
  s.used = CY_NEW_ARRAY(arena, uint8_t, cy_expr_count(k) + 1);
  use_all(&s, cy_kernel_body(k));
  if (!memory_fits(&s))
    return false;
  s.r = CY_NEW(arena, rows);
  *s.r = (rows){.var = s.var, .exprs = cy_expr_count(k) + 1};
  s.r->passes = CY_NEW_ARRAY(arena, uint32_t, s.r->exprs);
  s.seen = CY_NEW_ARRAY(arena, uint32_t, s.r->exprs);
  find_reading(&s);
  cy_dim extent = cy_kernel_var(k, s.var)->extent;
  bool known = cy_dim_is_const(g, extent, &length);
  if (known && length < 2)
    return false;
  s.r->vector = s.widest ? VECTOR_BYTES / s.widest : 1;
  s.r->vector = s.r->vector > MAX_VECTOR ? MAX_VECTOR : s.r->vector;
  while (known && length % s.r->vector)
    s.r->vector /= 2;
  f->kind = CY_CUDA_ROWS;
  f->rows = s.r;
  if (known)
    choose_group(&s, m, tasks, length, f);
  else
    choose_symbolic(&s, tasks, extent, f);
  return true;
}

const char *cy_cuda_rows_name(const cy_cuda_schedule *f, cy_arena *arena) {
  const rows *r = f->rows;
  if (!f->group)
    return cy_arena_printf(arena, "rows by warp or block, %d held", r->chunks * r->vector);
  return r->chunks ? cy_arena_printf(arena, "rows by %d threads, %d held", f->group, r->chunks * r->vector)
                   : cy_arena_printf(arena, "rows by %d threads", f->group);
}

/* ---- printing: elements in registers ---- */

/* A row by `threads`; chunks: that are held, 0: none. */
typedef struct variant {
  cy_cu *p;
  const rows *r;
  int threads, chunks;
  uint32_t pass;   /* the loop being printed */
  char length[64]; /* of a row, as text */
  bool whole;      /* it is known, and chunks are never cut off */
} variant;

static bool is_held(const variant *v, cy_expr e) { return v->chunks && is_shared(v->r, e); }

/* Is e loaded chunk by chunk in the loop being printed? */
static bool in_chunk(const variant *v, cy_expr e) {
  return e < v->r->exprs && v->r->passes[e] >> v->pass & 1 && !is_held(v, e);
}

static bool store_in_chunk(const variant *v, const cy_stmt *s) {
  study of = {.k = v->p->k, .g = v->p->g, .args = v->p->args, .var = v->r->var};
  return s->kind == CY_S_STORE && v->p->args[s->arg].kind == CY_ARG_WRITE && bytes_of(&of, s->arg) &&
         contiguous(&of, s->offset);
}

/* cy_cu.element: where a load's element at v<var> is. */
static bool element(cy_cu *p, cy_expr e, char *out, size_t cap) {
  const variant *v = p->element_ctx;
  const cy_expr_info *x = cy_expr_of(p->k, e);
  const cy_stmt *loop, *store;
  if (x->op != CY_X_LOAD)
    return false;
  if (p->args[x->id].kind == CY_ARG_SCRATCH && !v->chunks && filler(p->k, x->id, &loop, &store))
    snprintf(out, cap, "%s", cy_cu_value(p, store->value));
  else if (p->args[x->id].kind == CY_ARG_SCRATCH)
    snprintf(out, cap, "s%u[r][u]", x->id);
  else if (is_held(v, e))
    snprintf(out, cap, "x%u[r][u]", e);
  else if (in_chunk(v, e))
    snprintf(out, cap, "x%u[u]", e);
  else
    return false;
  return true;
}

/* o<name> = the offset of the row's first element, w<name> = can its chunks be moved at once */
static void print_base(variant *v, const char *name, cy_karg arg, cy_expr offset) {
  cy_cu *p = v->p;
  char variable[40];
  snprintf(variable, sizeof variable, "o%s", name);
  cy_cu_offset_at(p, variable, offset, v->r->var, "0");
  if (v->r->vector > 1)
    cy_cu_line(p, "const b1 w%s = (u64)(a%u + o%s) %% %d == 0;", name, arg, name,
               v->r->vector * cy_dtype_of(p->args[arg].dtype)->bits / 8);
}

static void print_bases(variant *v) {
  cy_cu *p = v->p;
  char name[32];
  uint32_t stores = 0;
  for (cy_expr e = 1; e < v->r->exprs; e++)
    if (v->r->passes[e]) {
      snprintf(name, sizeof name, "x%u", e);
      print_base(v, name, cy_expr_of(p->k, e)->id, cy_expr_of(p->k, e)->arg[0]);
    }
  for (const cy_stmt *f = cy_kernel_body(p->k); f; f = f->next)
    for (const cy_stmt *s = f->body; s; s = s->next)
      if (store_in_chunk(v, s)) {
        snprintf(name, sizeof name, "y%u", stores++);
        print_base(v, name, s->arg, s->offset);
      }
}

/* A chunk between memory (name: of its base) and an array: in, or out for the rows that are there. */
static void print_move(variant *v, cy_karg arg, const char *name, const char *array, bool out) {
  cy_cu *p = v->p;
  char memory[64], to[96], from[96];
  int vector = v->r->vector;
  snprintf(memory, sizeof memory, "a%u + o%s + first", arg, name);
  if (vector > 1) {
    if (v->whole)
      cy_cu_line(p, "if (w%s)", name);
    else
      cy_cu_line(p, "if (w%s && first + %d <= %s)", name, vector, v->length);
    cy_cu_line(p, "  cy_move%d(%s, %s);", vector * cy_dtype_of(p->args[arg].dtype)->bits / 8, out ? memory : array,
               out ? array : memory);
    cy_cu_line(p, "else");
  }
  snprintf(to, sizeof to, out ? "(%s)[u]" : "%s[u]", out ? memory : array);
  snprintf(from, sizeof from, out ? "%s[u]" : "(%s)[u]", out ? array : memory);
  cy_cu_line(p, "  CY_UNROLL");
  cy_cu_line(p, "  for (int u = 0; u < %d; u++)", vector);
  if (!v->whole)
    cy_cu_line(p, "    if (first + u < %s)", v->length);
  cy_cu_line(p, "      %s = %s;", to, from);
}

static void open_chunks(variant *v) {
  cy_cu *p = v->p;
  const char *type = cy_cu_var_type(p, v->r->var);
  int step = v->threads * v->r->vector;
  if (v->chunks) {
    cy_cu_line(p, "CY_UNROLL");
    cy_cu_line(p, "for (int r = 0; r < %d; r++) {", v->chunks);
    cy_cu_open(p);
    cy_cu_line(p, "const %s first = (%s)(r * %d + lane * %d);", type, type, step, v->r->vector);
    cy_cu_line(p, "if (first < %s) {", v->length);
  } else {
    cy_cu_line(p, "for (%s first = lane * %d; first < %s; first += %d) {", type, v->r->vector, v->length, step);
    cy_cu_open(p);
    cy_cu_line(p, "{");
  }
  cy_cu_open(p);
}

static void close_chunks(variant *v, uint32_t mark) {
  for (int i = 0; i < 2; i++) {
    cy_cu_close(v->p, mark);
    cy_cu_line(v->p, "}");
  }
}

static void print_held(variant *v) {
  cy_cu *p = v->p;
  char name[32], array[32];
  for (uint32_t i = 0; i < p->nargs && v->chunks; i++)
    if (p->args[i].kind == CY_ARG_SCRATCH)
      cy_cu_line(p, "%s s%u[%d][%d];", cy_cu_storage(p->args[i].dtype), i, v->chunks, v->r->vector);
  for (cy_expr e = 1; e < v->r->exprs; e++) {
    if (!is_held(v, e))
      continue;
    cy_karg arg = cy_expr_of(p->k, e)->id;
    snprintf(name, sizeof name, "x%u", e);
    snprintf(array, sizeof array, "x%u[r]", e);
    cy_cu_line(p, "%s x%u[%d][%d] CY_ALIGNED(16);", cy_cu_storage(p->args[arg].dtype), e, v->chunks, v->r->vector);
    open_chunks(v);
    print_move(v, arg, name, array, false);
    close_chunks(v, p->nlog);
  }
}

/* ---- printing: passes ---- */

static void print_store(variant *v, const cy_stmt *s, const char *condition) {
  cy_cu *p = v->p;
  char offset[192], value[192];
  snprintf(offset, sizeof offset, "%s", cy_cu_value(p, s->offset));
  snprintf(value, sizeof value, "%s", cy_cu_value(p, s->value));
  if (*condition)
    cy_cu_line(p, "if (%s) {", condition);
  cy_cu_store(p, s->arg, offset, value);
  if (*condition)
    cy_cu_line(p, "}");
}

/* The statements of a pass for one element; `stores` are numbered as in print_bases(). */
static void print_element(variant *v, const cy_stmt *body, uint32_t stores) {
  cy_cu *p = v->p;
  for (const cy_stmt *s = body; s; s = s->next) {
    uint32_t mark = p->nlog;
    if (s->kind != CY_S_STORE) {
      cy_cu_stmt(p, s);
    } else if (p->args[s->arg].kind == CY_ARG_SCRATCH) {
      if (v->chunks)
        cy_cu_line(p, "s%u[r][u] = %s;", s->arg, cy_cu_value(p, s->value));
    } else if (store_in_chunk(v, s)) {
      char value[192];
      snprintf(value, sizeof value, "%s", cy_cu_value(p, s->value));
      p->in_vector = true;
      p->nstored = stores++;
      cy_cu_store(p, s->arg, "", value);
      p->in_vector = false;
    } else {
      print_store(v, s, v->threads < WARP_SIZE ? "live" : "");
    }
    cy_cu_forget(p, mark);
  }
}

static void print_chunk(variant *v, const cy_stmt *loop, uint32_t *stores) {
  cy_cu *p = v->p;
  char name[32];
  uint32_t first = *stores, mark = p->nlog;
  for (cy_expr e = 1; e < v->r->exprs; e++) {
    if (!in_chunk(v, e))
      continue;
    cy_karg arg = cy_expr_of(p->k, e)->id;
    snprintf(name, sizeof name, "x%u", e);
    cy_cu_line(p, "%s x%u[%d] CY_ALIGNED(16);", cy_cu_storage(p->args[arg].dtype), e, v->r->vector);
    print_move(v, arg, name, name, false);
  }
  for (const cy_stmt *s = loop->body; s; s = s->next)
    if (store_in_chunk(v, s))
      cy_cu_line(p, "%s y%u[%d] CY_ALIGNED(16);", cy_cu_storage(p->args[s->arg].dtype), (*stores)++, v->r->vector);
  const char *type = cy_cu_var_type(p, v->r->var);
  cy_cu_line(p, "CY_UNROLL");
  cy_cu_line(p, "for (int u = 0; u < %d; u++) {", v->r->vector);
  cy_cu_open(p);
  cy_cu_line(p, "const %s v%u = (%s)(first + u);", type, v->r->var, type);
  if (!v->whole)
    cy_cu_line(p, "if (v%u < %s) {", v->r->var, v->length);
  print_element(v, loop->body, first);
  if (!v->whole)
    cy_cu_line(p, "}");
  cy_cu_close(p, mark);
  cy_cu_line(p, "}");
  if (first < *stores && v->threads < WARP_SIZE)
    cy_cu_line(p, "if (live) {");
  for (const cy_stmt *s = loop->body; s; s = s->next)
    if (store_in_chunk(v, s)) {
      snprintf(name, sizeof name, "y%u", first++);
      print_move(v, s->arg, name, name, true);
      if (first == *stores && v->threads < WARP_SIZE)
        cy_cu_line(p, "}");
    }
}

static void print_row(variant *v) {
  cy_cu *p = v->p;
  uint32_t stores = 0;
  print_bases(v);
  print_held(v);
  v->pass = 0;
  for (const cy_stmt *s = cy_kernel_body(p->k); s; s = s->next) {
    uint32_t mark = p->nlog;
    if (is_loop(s)) {
      uint8_t *ops = cy_cu_partials_open(p, s);
      open_chunks(v);
      p->element = element;
      p->element_ctx = v;
      print_chunk(v, s, &stores);
      p->element = NULL;
      close_chunks(v, mark);
      p->group = v->threads;
      cy_cu_partials_close(p, ops);
      p->group = 1;
      v->pass++;
    } else if (s->kind == CY_S_STORE) {
      print_store(v, s, v->threads < WARP_SIZE ? "lane == 0 && live" : "lane == 0");
    } else {
      cy_cu_stmt(p, s);
    }
    cy_cu_forget(p, mark);
  }
}

static void print_variant(cy_cu *p, int threads, int chunks) {
  const cy_var *grid;
  uint32_t n = cy_kernel_grid(p->k, &grid);
  variant v = {.p = p, .r = p->schedule->rows, .threads = threads, .chunks = chunks};
  cy_dim extent = cy_kernel_var(p->k, v.r->var)->extent;
  snprintf(v.length, sizeof v.length, "%s", cy_cu_dim(p, extent));
  v.whole = cy_dim_is_const(p->g, extent, NULL); /* the vector divides it then */
  int together = p->schedule->threads / threads;
  const char *type = p->wide ? "i64" : "int";
  cy_cu_line(p, "const int lane = CY_TID %% %d;", threads);
  if (threads < WARP_SIZE) { /* the rows of a warp go on together: shuffles want all of it */
    cy_cu_line(p, "for (i64 number = CY_BLOCK * %d; number < count; number += CY_BLOCKS * %d) {", together, together);
    cy_cu_open(p);
    cy_cu_line(p, "const b1 live = number + CY_TID / %d < count;", threads);
    cy_cu_line(p, "const %s task = (%s)(live ? number + CY_TID / %d : count - 1);", type, type, threads);
  } else {
    cy_cu_line(p, "for (i64 number = CY_BLOCK * %d + CY_TID / %d; number < count; number += CY_BLOCKS * %d) {",
               together, threads, together);
    cy_cu_open(p);
    cy_cu_line(p, "const %s task = (%s)number;", type, type);
  }
  cy_cu_unravel(p, grid, n, "task");
  print_row(&v);
  cy_cu_close(p, 0);
  cy_cu_line(p, "}");
}

void cy_cuda_rows_print(cy_cu *p) {
  const rows *r = p->schedule->rows;
  const cy_var *grid;
  uint32_t n = cy_kernel_grid(p->k, &grid);
  cy_cu_count(p, "count", grid, n, NULL);
  if (p->schedule->group) {
    print_variant(p, p->schedule->group, r->chunks);
    return;
  }
  char length[64];
  snprintf(length, sizeof length, "%s", cy_cu_dim(p, cy_kernel_var(p->k, r->var)->extent));
  const int threads[3] = {WARP_SIZE, SYMBOLIC_BLOCK, SYMBOLIC_BLOCK}, chunks[3] = {r->chunks, r->chunks, 0};
  for (int i = 0; i < 3; i++) {
    if (i < 2)
      cy_cu_line(p, "if (%s <= %d) {", length, threads[i] * chunks[i] * r->vector);
    else
      cy_cu_line(p, "{");
    cy_cu_open(p);
    print_variant(p, threads[i], chunks[i]);
    cy_cu_close(p, 0);
    cy_cu_line(p, i < 2 ? "} else" : "}");
  }
}
