/* SPDX-License-Identifier: Apache-2.0 */
/* stored_once.c - weights that one kernel reads as rows and another as panels, stored as panels alone; and a list of what
 * is stored more than once for all that.
 *
 * In: a program whose products have their packed constants. Out: where a table that plain kernels look rows up in holds
 * the numbers that a product has packed (an embedding tied to the output layer), these kernels read the panels: every
 * load of theirs is moved to where the panels have the element, and the table itself is not stored. Equal are numbers,
 * not constants: what was transposed, rounded or quantised for each of both is found, too.
 *
 * A row is spread over as many cache lines as it has elements then. It is one of few: the product, which reads all of
 * the panels, takes hundreds of times as long.
 *
 * What the library still has more than once is listed for --stats: constants made of one initializer, each of which has
 * more than half of its elements (so parts of it that are stored apart do not count, nor do scales).
 *
 * Left alone: tables that anything but plain kernels reads; kernels that other launches bind something else to; panels
 * in which an element has no place of its own (filters of Winograd's algorithm, weights cut into parts). Targets
 * without `panels_of` have no such panels.
 */
#include "codegen/work.h"

#include <stdlib.h>
#include <string.h>

enum { MIN_SHARED = 1 << 14 }; /* bytes */

typedef struct sharing {
  cy_work *b;
  uint32_t *packed; /* [constant] 1 + the packed constant that has its numbers; 0: it stays */
  bool changed;
} sharing;

/* ---- which constants hold the same numbers ----------------------------------------------------------------------- */

static bool same_block(const char *rows, const char *source, const cy_panels *p, int64_t r0, int64_t c0) {
  const int64_t size = p->element, r1 = r0 + 64 < p->n ? r0 + 64 : p->n, c1 = c0 + 64 < p->k ? c0 + 64 : p->k;
  for (int64_t r = r0; r < r1; r++) {
    const char *x = rows + r * p->k * size, *y = source + r * p->from_n * size;
    if (p->from_k == 1) {
      if (memcmp(x + c0 * size, y + c0 * size, (size_t)((c1 - c0) * size)))
        return false;
      continue;
    }
    for (int64_t c = c0; c < c1; c++)
      if (memcmp(x + c * size, y + c * p->from_k * size, (size_t)size))
        return false;
  }
  return true;
}

/* Block by block: one of both may be transposed. Most differ in the first. */
static bool same_numbers(const char *rows, const char *source, const cy_panels *p) {
  if (rows == source && p->from_n == p->k && p->from_k == 1)
    return true;
  for (int64_t r = 0; r < p->n; r += 64)
    for (int64_t c = 0; c < p->k; c += 64)
      if (!same_block(rows, source, p, r, c))
        return false;
  return true;
}

static bool panels_of(const cy_work *b, uint32_t constant, cy_panels *out) {
  return b->p->constants[constant].write && b->machine->target->panels_of(&b->p->constants[constant], out);
}

static uint32_t find_packed(const cy_work *b, uint32_t plain) {
  const cy_constant *c = &b->p->constants[plain];
  const cy_value *v = cy_value_of(b->g, c->value);
  for (uint32_t i = 0; i < b->p->nconstants; i++) {
    cy_panels p;
    if (!panels_of(b, i, &p))
      continue;
    const cy_value *w = cy_value_of(b->g, b->p->constants[i].value);
    if (v->type.dtype == w->type.dtype && c->size == (uint64_t)(p.n * p.k * p.element) &&
        same_numbers(v->data.bytes, (const char *)w->data.bytes + p.from, &p))
      return i + 1;
  }
  return 0;
}

static bool is_default(const cy_graph *g, cy_val v) {
  const cy_port_info *ports;
  uint32_t n = cy_graph_inputs(g, &ports);
  for (uint32_t i = 0; i < n; i++)
    if (ports[i].value == v)
      return true;
  return cy_value_of(g, v)->param;
}

static void find_all(sharing *s) {
  const cy_program *p = s->b->p;
  for (uint32_t i = 0; i < p->nconstants; i++) {
    const cy_constant *c = &p->constants[i];
    const cy_data *d = &cy_value_of(s->b->g, c->value)->data;
    if (!c->write && c->size >= MIN_SHARED && c->size == d->size && !is_default(s->b->g, c->value))
      s->packed[i] = find_packed(s->b, i);
  }
}

/* ---- which readers can read panels ------------------------------------------------------------------------------- */

/* The constant behind an argument of a launch, or UINT32_MAX. */
static uint32_t constant_at(const sharing *s, const cy_bind *at) {
  const cy_buffer *buffer = &s->b->p->buffers[at->buffer];
  return buffer->kind == CY_BUF_CONST ? buffer->index : UINT32_MAX;
}

static void keep(sharing *s, const cy_bind *at) {
  uint32_t c = constant_at(s, at);
  if (c == UINT32_MAX || !s->packed[c])
    return;
  s->packed[c] = 0;
  s->changed = true;
}

static bool is_dead(const cy_kernel_plan *plan, uint32_t arg) {
  return (int32_t)arg == plan->dead_arg && !plan->reads_dead;
}

static bool same_places(const cy_panels *a, const cy_panels *b) {
  return a->n == b->n && a->k == b->k && a->k_padded == b->k_padded && a->k_block == b->k_block && a->nr == b->nr &&
         a->last == b->last && a->step == b->step;
}

typedef struct asking {
  sharing *s;
  const cy_step *launch;
  uint32_t arg;
  cy_panels wanted;
  bool differs;
} asking;

static void ask_launch(void *ctx, cy_step *other) {
  asking *q = ctx;
  cy_panels p;
  if (other->kind != CY_STEP_LAUNCH || other->kernel != q->launch->kernel)
    return;
  uint32_t c = constant_at(q->s, &other->bind[q->arg]), packed = c == UINT32_MAX ? 0 : q->s->packed[c];
  bool zero = !other->bind[q->arg].offset || cy_dim_is(q->s->b->g, other->bind[q->arg].offset, 0);
  q->differs = q->differs || !packed || !zero || !panels_of(q->s->b, packed - 1, &p) || !same_places(&p, &q->wanted);
}

/* May argument `arg`, which is bound to a constant with panels, become these panels? */
static bool reads_panels(sharing *s, const cy_step *launch, uint32_t arg) {
  asking q = {.s = s, .launch = launch, .arg = arg};
  uint32_t packed = s->packed[constant_at(s, &launch->bind[arg])];
  if (cy_kernel_contraction(launch->kernel)->kind != CY_CONTRACT_NONE || !panels_of(s->b, packed - 1, &q.wanted))
    return false;
  cy_steps_visit(s->b->p->steps, ask_launch, &q);
  return !q.differs;
}

static void keep_unless_read(void *ctx, cy_step *step) {
  sharing *s = ctx;
  const cy_kernel_plan *plan = step->kind == CY_STEP_LAUNCH ? cy_kernels_plan(s->b, step->kernel) : NULL;
  for (uint32_t i = 0; i < step->nbind; i++) {
    uint32_t c = constant_at(s, &step->bind[i]);
    if (c != UINT32_MAX && s->packed[c] && !(plan && is_dead(plan, i)) && !(plan && reads_panels(s, step, i)))
      keep(s, &step->bind[i]);
  }
  for (uint32_t i = 0; i < step->nin; i++)
    if (step->in[i].type.dtype != CY_NONE)
      keep(s, &step->in[i].at);
}

/* ---- reading panels ---------------------------------------------------------------------------------------------- */

static cy_expr with_int(cy_kernel *k, cy_op op, cy_expr e, int64_t v) { return cy_x_bin(k, op, e, cy_x_index(k, v)); }

/* Where the panels have element `at` of the rows: see cy_panels. */
static cy_expr place_in_panels(cy_kernel *k, cy_expr at, void *ctx) {
  const cy_panels *p = ctx;
  cy_expr row = with_int(k, CY_OP_div, at, p->k), c = with_int(k, CY_OP_mod, at, p->k);
  cy_expr panel = with_int(k, CY_OP_div, row, p->nr), column = with_int(k, CY_OP_mod, row, p->nr);
  int64_t panels = (p->n + p->nr - 1) / p->nr, columns = (panels - 1) * p->nr + p->last;
  cy_expr width = cy_x_index(k, p->nr), height = cy_x_index(k, p->k_padded), before = cy_x_index(k, 0);
  if (p->last != p->nr) {
    cy_expr whole = with_int(k, CY_OP_lt, panel, panels - 1);
    width = cy_x_select(k, whole, width, cy_x_index(k, p->last));
  }
  if (p->k_block < p->k_padded) {
    cy_expr first = with_int(k, CY_OP_mul, with_int(k, CY_OP_div, c, p->k_block), p->k_block);
    cy_expr left = cy_x_bin(k, CY_OP_sub, height, first);
    height = with_int(k, CY_OP_min, left, p->k_block);
    before = with_int(k, CY_OP_mul, first, columns);
    c = with_int(k, CY_OP_mod, c, p->k_block);
  }
  cy_expr group = with_int(k, CY_OP_div, c, p->step), rest = with_int(k, CY_OP_mod, c, p->step);
  cy_expr down = with_int(k, CY_OP_mul, cy_x_bin(k, CY_OP_mul, group, width), p->step);
  cy_expr across = cy_x_bin(k, CY_OP_add, with_int(k, CY_OP_mul, column, p->step), rest);
  cy_expr begin = with_int(k, CY_OP_mul, cy_x_bin(k, CY_OP_mul, panel, height), p->nr);
  cy_expr inside = cy_x_bin(k, CY_OP_add, down, across), front = cy_x_bin(k, CY_OP_add, before, begin);
  return cy_x_bin(k, CY_OP_add, front, inside);
}

typedef struct moved { /* arguments whose kernels are rewritten already */
  sharing *s;
  bool *done; /* [plan * most + arg] */
  uint32_t max;
} moved;

static void read_panels(void *ctx, cy_step *step) {
  moved *m = ctx;
  cy_work *b = m->s->b;
  const cy_dim *dims;
  const cy_kernel_plan *plan = step->kind == CY_STEP_LAUNCH ? cy_kernels_plan(b, step->kernel) : NULL;
  for (uint32_t i = 0; plan && i < step->nbind; i++) {
    uint32_t c = constant_at(m->s, &step->bind[i]);
    cy_panels p;
    if (c == UINT32_MAX || c >= b->p->nconstants || !m->s->packed[c] || is_dead(plan, i) ||
        !panels_of(b, m->s->packed[c] - 1, &p))
      continue;
    bool *done = &m->done[(uint32_t)(plan - b->plans) * m->max + i];
    if (!*done) {
      cy_kernel_move_loads(plan->kernel, i, place_in_panels, &p);
      cy_kernel_dims(plan->kernel, &dims);
    }
    *done = true;
    step->bind[i] = cy_kernels_constant(b, m->s->packed[c] - 1);
  }
}

static void count_binds(void *ctx, cy_step *step) {
  uint32_t *max = ctx;
  *max = step->nbind > *max ? step->nbind : *max;
}

void cy_stored_once(cy_work *b) {
  if (!b->machine->target->panels_of)
    return;
  sharing s = {.b = b, .packed = calloc(b->p->nconstants + 1, sizeof *s.packed)};
  moved m = {.s = &s};
  if (!s.packed)
    cy_no_memory();
  find_all(&s);
  do {
    s.changed = false;
    cy_steps_visit(b->p->steps, keep_unless_read, &s);
  } while (s.changed);
  cy_steps_visit(b->p->steps, count_binds, &m.max);
  m.done = calloc((size_t)b->nplans * m.max + 1, sizeof *m.done);
  if (!m.done)
    cy_no_memory();
  cy_steps_visit(b->p->steps, read_panels, &m);
  free(m.done);
  free(s.packed);
}

/* ---- what is stored more than once ------------------------------------------------------------------------------- */

typedef struct stored {
  const cy_constant *c;
  cy_val source;
} stored;

static int by_source(const void *x, const void *y) {
  const stored *a = x, *b = y;
  if (a->source != b->source)
    return a->source < b->source ? -1 : 1;
  return a->c->offset != b->c->offset ? (a->c->offset < b->c->offset ? -1 : 1) : 0;
}

static int by_bytes(const void *x, const void *y) {
  const cy_stored_often *a = x, *b = y;
  if (a->library_bytes != b->library_bytes)
    return a->library_bytes > b->library_bytes ? -1 : 1;
  return strcmp(a->name, b->name);
}

/* Of v; with a number of 4 bits in either half of a byte, twice as many. */
static uint64_t elements(const cy_graph *g, cy_val v, cy_val source) {
  const cy_type *t = &cy_value_of(g, v)->type;
  uint64_t n = t->dtype == CY_U8 && cy_dtype_is_float((cy_dtype)cy_value_of(g, source)->type.dtype) ? 2 : 1;
  for (int i = 0; i < t->rank; i++) {
    int64_t size;
    n *= cy_dim_is_const(g, t->dim[i], &size) ? (uint64_t)size : 0;
  }
  return n;
}

static uint32_t list_stored(const cy_work *b, stored *out) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < b->p->nconstants; i++) {
    const cy_constant *c = &b->p->constants[i];
    cy_val source = cy_const_source(b->g, c->value);
    if (b->constant_used[i] && c->size >= MIN_SHARED / 4 &&
        2 * elements(b->g, c->value, source) > elements(b->g, source, source))
      out[n++] = (stored){c, source};
  }
  qsort(out, n, sizeof *out, by_source);
  return n;
}

static const char *name_of(const cy_work *b, cy_val v) {
  cy_str name = cy_value_of(b->g, v)->name;
  return name ? cy_str_text(b->g, name) : cy_arena_printf(cy_graph_arena(b->g), "%%%u", v);
}

void cy_stored_often_find(cy_work *b, cy_codegen_stats *out) {
  cy_arena *arena = cy_graph_arena(b->g);
  stored *list = CY_NEW_ARRAY(arena, stored, b->p->nconstants + 1);
  uint32_t n = list_stored(b, list);
  out->often = CY_NEW_ARRAY(arena, cy_stored_often, n + 1);
  for (uint32_t i = 0, end; i < n; i = end) {
    cy_stored_often all = {.times = 0};
    for (end = i; end < n && list[end].source == list[i].source; end++) {
      if (end > i && list[end].c->offset == list[end - 1].c->offset)
        continue; /* equal bytes lie there once */
      all.times++;
      all.library_bytes += list[end].c->size;
    }
    if (all.times < 2)
      continue;
    all.name = name_of(b, list[i].source);
    all.model_bytes = cy_value_of(b->g, list[i].source)->data.size;
    out->often[out->noften++] = all;
  }
  qsort(out->often, out->noften, sizeof *out->often, by_bytes);
}
