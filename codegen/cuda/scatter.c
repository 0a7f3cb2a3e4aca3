/* SPDX-License-Identifier: Apache-2.0 */
/* scatter.c - loops that store where data says, to what is there or in its place: ScatterElements, ScatterND.
 *
 * In: a kernel of items each of which goes through long serial loops around a single store, of which several iterations
 * may hit one element: the last of them counts, or all of them add up in their order. Out: `columns` neighbouring items
 * by a block, of which `group` threads share the iterations. Several blocks do this for the same items, and each
 * element belongs to one of them: all look where all iterations store. From a tile of iterations a block keeps those
 * that store to elements of its own, in their order; the first one to hit an element does all that hit it, one after
 * the other.
 *
 * So results are those of the serial loop, bit by bit, whichever thread is first. An iteration costs its loads once for
 * every owner, of which there are the more the fewer items there are, and a comparison with those it shares a list
 * with. Where all iterations hit one element, a thread does them, from shared memory.
 */
#include "codegen/cuda/cuda_int.h"

enum {
  THREADS = 256,
  WARPS = THREADS / 32,
  EACH = 8,                /* iterations of a tile that a thread looks at, whose loads are on their way at a time */
  MANY = 1024,             /* items from which on blocks have neighbouring ones, .. */
  NEIGHBOURS = 8,          /* .. so many, which are 32 bytes of f32 */
  MIN_ITERATIONS = 64,     /* worth sharing, */
  MAYBE_ITERATIONS = 1024, /* .. if there may be many items */
  ALL_BLOCKS = 1024,       /* for so many, which a large device has at a time, there are more owners: .. */
  MIN_OWNERS = 4,
  MAX_OWNERS = 128,
  ITEM_THREADS = 256 /* of a block of items (schedule.c) */
};

/* ---- which kernels ---- */

/* The store that is all there is in a nest of serial loops. */
static const cy_stmt *only_store(const cy_stmt *s) {
  while (s && !s->next && s->kind == CY_S_FOR && !s->lanes)
    s = s->body;
  return s && !s->next && s->kind == CY_S_STORE ? s : NULL;
}

/* Is there a load below e, of `arg` or, where it is given as -1, of any argument? */
static bool loads(cy_kernel *k, cy_expr e, int64_t arg) {
  const cy_expr_info *x = cy_expr_of(k, e);
  if (x->op == CY_X_LOAD && (arg < 0 || x->id == (uint32_t)arg))
    return true;
  for (int i = 0; i < x->n; i++)
    if (loads(k, x->arg[i], arg))
      return true;
  return false;
}

static const cy_expr_info *without_casts(cy_kernel *k, cy_expr *e) {
  const cy_expr_info *x = cy_expr_of(k, *e);
  for (; x->op == CY_OP_cast; x = cy_expr_of(k, *e))
    *e = x->arg[0];
  return x;
}

/* What a store makes of an element: `update`, or the element (old, a load) and `update` in one operation. */
typedef struct effect {
  cy_expr old, update; /* old: 0: it is replaced */
} effect;

static bool find_effect(cy_kernel *k, const cy_stmt *store, effect *out) {
  cy_expr e = store->value;
  *out = (effect){.update = e};
  if (loads(k, store->offset, store->arg))
    return false;
  if (!loads(k, e, store->arg))
    return true;
  const cy_expr_info *x = without_casts(k, &e);
  if (x->n != 2 || x->op == CY_X_LOAD)
    return false;
  int old_side = !loads(k, x->arg[0], store->arg);
  out->old = x->arg[old_side];
  out->update = x->arg[!old_side];
  if (loads(k, out->update, store->arg))
    return false;
  const cy_expr_info *old = without_casts(k, &out->old);
  return old->op == CY_X_LOAD && old->id == store->arg && old->arg[0] == store->offset;
}

/* ---- choosing ---- */

/* Blocks that share the elements of an item; the kernel computes the same of its sizes. */
static cy_dim owners(cy_graph *g, cy_dim items) {
  cy_dim blocks = cy_dim_const(g, ALL_BLOCKS), max = cy_dim_const(g, MAX_OWNERS);
  cy_dim shares = cy_dim_cdiv(g, blocks, cy_dim_max(g, items, cy_dim_const(g, 1)));
  return cy_dim_max(g, cy_dim_min(g, shares, max), cy_dim_const(g, MIN_OWNERS));
}

bool cy_cuda_scatter_schedule(const cy_machine *m, cy_kernel *k, cy_dim items, const cy_stmt *body, cy_cuda_schedule *f) {
  cy_graph *g = cy_kernel_graph(k);
  const cy_stmt *store = only_store(body);
  const cy_karg_info *args;
  cy_kernel_args(k, &args);
  int64_t min, max, iterations = 1;
  bool known = true;
  effect e;
  if (!store || store == body || !loads(k, store->offset, -1) || cy_dtype_of(args[store->arg].dtype)->bits < 8 ||
      !find_effect(k, store, &e))
    return false;
  for (const cy_stmt *s = body; s != store; s = s->body) {
    int64_t extent;
    known &= cy_dim_is_const(g, cy_kernel_var(k, s->var)->extent, &extent);
    iterations = known && extent < INT32_MAX / (iterations + 1) ? iterations * extent : INT32_MAX;
  }
  cy_dim_range(g, items, &min, &max);
  if (min > (int64_t)cy_cu_wanted_blocks(m) * ITEM_THREADS / 2 ||
      iterations < (min < max ? MAYBE_ITERATIONS : MIN_ITERATIONS))
    return false;
  f->kind = CY_CUDA_SCATTER;
  f->columns = min >= MANY ? NEIGHBOURS : 1;
  f->group = THREADS / f->columns;
  f->threads = THREADS;
  f->blocks = cy_dim_mul(g, cy_dim_cdiv(g, items, cy_dim_const(g, f->columns)), owners(g, items));
  return true;
}

/* ---- printing ---- */

/* Turns of a tile from `first`: those that are nobody's or another block's have no place. */
static void print_places(cy_cu *p, const cy_stmt *store, const cy_var *vars, uint32_t n, const char *type) {
  uint32_t mark = p->nlog;
  cy_cu_line(p, "CY_UNROLL");
  cy_cu_line(p, "for (int u = 0; u < %d; u++) {", EACH);
  cy_cu_open(p);
  cy_cu_line(p, "const b1 inside = live && first + u < iterations;");
  cy_cu_line(p, "const %s iteration = first + u < iterations ? first + u : (%s)iterations - 1;", type, type);
  cy_cu_unravel(p, vars, n, "iteration");
  char place[192];
  snprintf(place, sizeof place, "%s", cy_cu_value(p, store->offset));
  cy_cu_line(p, "const u32 mixed = (u32)((u64)(%s) / %d) * 2654435761u >> 16;", place, p->schedule->columns);
  cy_cu_line(p, "at[u] = inside && (int)(mixed * (u32)owners >> 16) == owner ? %s : -1;", place);
  cy_cu_line(p, "own += at[u] >= 0;");
  cy_cu_close(p, mark);
  cy_cu_line(p, "}");
}

/* next: how many places of a column strands before this one have; all: how many all have. */
static void print_counts(cy_cu *p) {
  int columns = p->schedule->columns;
  cy_cu_line(p, "int next = 0, all = own;");
  cy_cu_line(p, "CY_UNROLL");
  cy_cu_line(p, "for (int m = %d; m < 32; m *= 2) {", columns);
  cy_cu_open(p);
  cy_cu_line(p, "const int other = (int)cy_shfl32((u32)all, m);");
  cy_cu_line(p, "next += CY_TID & m ? other : 0;");
  cy_cu_line(p, "all += other;");
  cy_cu_close(p, p->nlog);
  cy_cu_line(p, "}");
  cy_cu_line(p, "if (CY_TID %% 32 < %d)", columns);
  cy_cu_line(p, "  counts[CY_TID / 32 * %d + column] = all;", columns);
  cy_cu_line(p, "CY_SYNC();");
  cy_cu_line(p, "all = 0;");
  cy_cu_line(p, "CY_UNROLL");
  cy_cu_line(p, "for (int w = 0; w < %d; w++) {", WARPS);
  cy_cu_open(p);
  cy_cu_line(p, "const int some = counts[w * %d + column];", columns);
  cy_cu_line(p, "next += w < CY_TID / 32 ? some : 0;");
  cy_cu_line(p, "all += some;");
  cy_cu_close(p, p->nlog);
  cy_cu_line(p, "}");
}

/* The list of a column: places, and what goes there. */
static void print_list(cy_cu *p, cy_expr update, bool kept, const cy_var *vars, uint32_t n, const char *type) {
  uint32_t mark = p->nlog;
  int columns = p->schedule->columns;
  cy_cu_line(p, "CY_UNROLL");
  cy_cu_line(p, "for (int u = 0; u < %d; u++) {", EACH);
  cy_cu_open(p);
  cy_cu_line(p, "if (at[u] < 0)");
  cy_cu_line(p, "  continue;");
  if (kept) {
    cy_cu_line(p, "const %s iteration = first + u;", type);
    cy_cu_unravel(p, vars, n, "iteration");
    cy_cu_line(p, "updates[next * %d + column] = %s;", columns, cy_cu_value(p, update));
  }
  cy_cu_line(p, "places[next++ * %d + column] = at[u];", columns);
  cy_cu_close(p, mark);
  cy_cu_line(p, "}");
  cy_cu_line(p, "CY_SYNC();");
}

/* The iterations that hit `place`: `element` is what is there, as it is stored. */
static void print_iterations(cy_cu *p, const cy_stmt *store, const effect *e, bool kept) {
  uint32_t mark = p->nlog;
  cy_dtype t = p->args[store->arg].dtype;
  char text[192];
  cy_cu_line(p, "for (; j < all; j++) {");
  cy_cu_open(p);
  cy_cu_line(p, "if (places[j * %d + column] != place)", p->schedule->columns);
  cy_cu_line(p, "  continue;");
  if (e->old) {
    cy_cu_decode(t, "element", text, sizeof text);
    cy_cu_bind(p, e->old, text);
  }
  if (kept) {
    snprintf(text, sizeof text, "updates[j * %d + column]", p->schedule->columns);
    cy_cu_bind(p, e->update, text);
  }
  snprintf(text, sizeof text, "%s", cy_cu_value(p, store->value));
  cy_cu_line(p, "element = %s;", cy_cu_encoded(t, text));
  cy_cu_close(p, mark);
  cy_cu_line(p, "}");
}

static void print_stores(cy_cu *p, const cy_stmt *store, const effect *e, bool kept) {
  const char *type = cy_cu_storage(p->args[store->arg].dtype);
  int columns = p->schedule->columns;
  cy_cu_line(p, "for (int i = strand; i < all; i += %d) {", p->schedule->group);
  cy_cu_open(p);
  cy_cu_line(p, "const i64 place = places[i * %d + column];", columns);
  cy_cu_line(p, "int j = 0;");
  cy_cu_line(p, "while (j < i && places[j * %d + column] != place)", columns);
  cy_cu_line(p, "  j++;");
  cy_cu_line(p, "if (j < i)");
  cy_cu_line(p, "  continue;");
  if (e->old)
    cy_cu_line(p, "%s element = a%u[place];", type, store->arg);
  else
    cy_cu_line(p, "%s element = 0;", type);
  print_iterations(p, store, e, kept);
  cy_cu_line(p, "a%u[place] = element;", store->arg);
  cy_cu_close(p, p->nlog);
  cy_cu_line(p, "}");
}

void cy_cuda_scatter_print(cy_cu *p, const cy_stmt *body) {
  const cy_stmt *store = only_store(body);
  cy_var vars[CY_MAX_RANK * 2];
  uint32_t n = 0;
  effect e = {0};
  find_effect(p->k, store, &e);
  for (const cy_stmt *s = body; s != store; s = s->body)
    vars[n++] = s->var;
  bool kept = cy_expr_of(p->k, e.update)->op != CY_X_CONST;
  int tile = THREADS / p->schedule->columns * EACH;
  cy_cu_count(p, "iterations", vars, n, NULL);
  const char *type = p->wide ? "i64" : "int";
  cy_cu_line(p, "CY_SHARED i64 places[%d];", THREADS * EACH);
  if (kept)
    cy_cu_line(p, "CY_SHARED %s updates[%d];", cy_cu_type(cy_expr_of(p->k, e.update)->dtype), THREADS * EACH);
  cy_cu_line(p, "CY_SHARED int counts[%d];", WARPS * p->schedule->columns);
  cy_cu_line(p, "for (%s begin = 0; begin < iterations; begin += %d) {", type, tile);
  cy_cu_open(p);
  cy_cu_line(p, "const %s first = begin + strand * %d;", type, EACH);
  cy_cu_line(p, "i64 at[%d];", EACH);
  cy_cu_line(p, "int own = 0;");
  print_places(p, store, vars, n, type);
  print_counts(p);
  print_list(p, e.update, kept, vars, n, type);
  print_stores(p, store, &e, kept);
  cy_cu_close(p, 0);
  cy_cu_line(p, "}");
}

void cy_cuda_scatter_items(cy_cu *p) {
  const cy_cuda_schedule *f = p->schedule;
  cy_cu_line(p, "const i64 shares = (%d + count - 1) / count, most = shares < %d ? shares : %d;", ALL_BLOCKS,
             MAX_OWNERS, MAX_OWNERS);
  cy_cu_line(p, "const int owners = (int)(most > %d ? most : %d);", MIN_OWNERS, MIN_OWNERS);
  cy_cu_line(p, "const int owner = (int)(CY_BLOCK %% owners), column = CY_TID %% %d, strand = CY_TID / %d;", f->columns,
             f->columns);
  cy_cu_line(p, "const i64 number = CY_BLOCK / owners * %d + column;", f->columns);
}
