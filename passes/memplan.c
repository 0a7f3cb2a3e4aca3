/* memplan.c - memory planning: lifetimes, then largest first into the best fitting gap.
 *
 * In: a program whose ARENA buffers have sizes. Out: their offsets and p->arena_bytes, both multiples of 64.
 * Lifetimes are ranges of step positions (pre-order). What lives across the turns of a loop, because it is used outside too or
 * read before it is written, lives as long as the whole loop.
 * Sizes are numbers or polynomials. Buffers whose sizes are multiples of the same polynomial (`batch`, `batch*seq`, the
 * constant 1) form a class with a region of its own, inside which placement counts in multiples: exact for all values of the
 * symbols, as tight as constants are, and the offsets stay short expressions. Models have few classes that matter.
 */
#include "memplan.h"

#include <stdlib.h>
#include <string.h>

enum {
  ALIGN = 64,
  COARSE = 1024 /* sizes of at least so many units are rounded up in units: 6 % at most */
};

typedef struct item {
  uint32_t buffer;
  int32_t first, last;
  uint32_t class;
  int64_t size, at; /* in multiples of the class's polynomial */
} item;

typedef struct region {
  cy_dim unit;
  int64_t size; /* in units */
} region;

typedef struct planner {
  cy_program *p;
  cy_graph *g;
  int32_t *first, *last; /* by buffer; -1 before any use */
  int32_t position;
} planner;

/* ---- lifetimes ---- */

static void touch(planner *m, uint32_t buffer, int32_t at) {
  if (m->first[buffer] < 0)
    m->first[buffer] = at;
  if (at > m->last[buffer])
    m->last[buffer] = at;
}

static void touch_step(planner *m, cy_step *s) {
  for (uint32_t i = 0; i < s->nbind; i++)
    touch(m, s->bind[i].buffer, s->position);
  for (uint32_t i = 0; i < s->nin; i++)
    if (s->in[i].type.dtype != CY_NONE)
      touch(m, s->in[i].at.buffer, s->position);
  for (uint32_t i = 0; i < s->nout; i++)
    if (s->out[i].type.dtype != CY_NONE)
      touch(m, s->out[i].at.buffer, s->position);
}

/* Does step s only write argument i? Scratch counts: nothing is kept in it. */
static bool writes(const cy_step *s, uint32_t i) {
  if (s->kind != CY_STEP_LAUNCH)
    return false;
  const cy_karg_info *args;
  return i < cy_kernel_args(s->kernel, &args) && args[i].kind != CY_ARG_READ;
}

/* state[buffer] of a loop's body: 0 not seen, 1 first written, 2 first read. A conditional write promises nothing. */
static void first_access(const cy_step *s, uint8_t *state, bool certain) {
  for (; s; s = s->next) {
    for (uint32_t i = 0; i < s->nbind; i++)
      if (!state[s->bind[i].buffer] && !writes(s, i))
        state[s->bind[i].buffer] = 2;
    for (uint32_t i = 0; i < s->nin; i++)
      if (s->in[i].type.dtype != CY_NONE && !state[s->in[i].at.buffer])
        state[s->in[i].at.buffer] = 2;
    for (uint32_t i = 0; i < s->nbind && certain; i++)
      if (!state[s->bind[i].buffer])
        state[s->bind[i].buffer] = 1;
    for (uint32_t i = 0; i < s->nout && certain; i++)
      if (s->out[i].type.dtype != CY_NONE && !state[s->out[i].at.buffer])
        state[s->out[i].at.buffer] = 1;
    first_access(s->then_steps, state, false);
    first_access(s->else_steps, state, false);
  }
}

/* Buffers of a loop that must survive from turn to turn live as long as the loop. */
static void extend_over_loop(planner *m, const cy_step *loop, int32_t end) {
  uint8_t *state = calloc(m->p->nbuffers + 1, 1);
  if (!state)
    abort();
  first_access(loop->then_steps, state, true);
  for (uint32_t b = 0; b < m->p->nbuffers; b++) {
    bool inside = m->first[b] >= 0 && m->last[b] >= loop->position && m->first[b] <= end;
    bool outside = m->first[b] < loop->position || m->last[b] > end;
    if (!inside || (!outside && state[b] != 2))
      continue;
    m->first[b] = m->first[b] < loop->position ? m->first[b] : loop->position;
    m->last[b] = m->last[b] > end ? m->last[b] : end;
  }
  free(state);
}

static void number(planner *m, cy_step *s) {
  for (; s; s = s->next) {
    s->position = m->position++;
    touch_step(m, s);
    number(m, s->then_steps);
    number(m, s->else_steps);
  }
}

static int32_t last_position(const cy_step *s) {
  int32_t last = s->position;
  const cy_step *lists[2] = {s->then_steps, s->else_steps};
  for (int i = 0; i < 2; i++)
    for (const cy_step *t = lists[i]; t; t = t->next)
      last = last_position(t) > last ? last_position(t) : last;
  return last;
}

/* Inner loops first: what they lengthen, outer ones must see. */
static void extend_loops(planner *m, const cy_step *s) {
  for (; s; s = s->next) {
    extend_loops(m, s->then_steps);
    extend_loops(m, s->else_steps);
    if (s->kind == CY_STEP_LOOP)
      extend_over_loop(m, s, last_position(s));
  }
}

/* ---- classes ---- */

static int64_t round_up(int64_t v) { return (v + ALIGN - 1) / ALIGN * ALIGN; }

static int64_t gcd(int64_t a, int64_t b) {
  for (int64_t t; b; a = b, b = t)
    t = a % b;
  return a < 0 ? -a : a;
}

/* bytes = returned factor * *out_unit, the factor as large as possible. */
static int64_t split(cy_graph *g, cy_dim bytes, cy_dim *out_unit) {
  const cy_term *terms;
  int n = cy_dim_terms(g, bytes, &terms);
  int64_t factor = 0;
  for (int i = 0; i < n; i++)
    factor = gcd(factor, terms[i].coef);
  *out_unit = factor > 1 ? cy_dim_div(g, bytes, cy_dim_const(g, factor)) : bytes;
  return factor;
}

/* The size of a buffer as a multiple of 64 times a polynomial. */
static int64_t units_of(cy_graph *g, cy_dim bytes, cy_dim *out_unit) {
  int64_t v;
  if (cy_dim_is_const(g, bytes, &v)) {
    *out_unit = cy_dim_const(g, 1);
    return round_up(v > 0 ? v : 0);
  }
  int64_t factor = split(g, bytes, out_unit);
  if (factor % ALIGN == 0 || factor >= COARSE)
    return round_up(factor);
  *out_unit = cy_dim_cdiv(g, bytes, cy_dim_const(g, ALIGN));
  return ALIGN * split(g, *out_unit, out_unit);
}

static uint32_t class_of(region *regions, uint32_t *n, cy_dim unit) {
  uint32_t c = 0;
  while (c < *n && regions[c].unit != unit)
    c++;
  if (c == *n)
    regions[(*n)++] = (region){unit, 0};
  return c;
}

/* ---- placement ---- */

static int by_size(const void *a, const void *b) {
  const item *x = a, *y = b;
  return x->size != y->size ? (x->size < y->size ? 1 : -1) : x->buffer < y->buffer ? -1 : x->buffer > y->buffer;
}

static bool together(const item *a, const item *b) { return a->class == b->class && a->first <= b->last && b->first <= a->last; }

/* `placed`: sorted by place. The smallest gap that is large enough, else the end. */
static int64_t best_gap(const item *it, item *const *placed, uint32_t n) {
  int64_t best = -1, best_size = 0, end = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (!together(it, placed[i]))
      continue;
    int64_t gap = placed[i]->at - end;
    if (gap >= it->size && (best < 0 || gap < best_size)) {
      best = end;
      best_size = gap;
    }
    if (placed[i]->at + placed[i]->size > end)
      end = placed[i]->at + placed[i]->size;
  }
  return best >= 0 ? best : end;
}

static void place_all(item *items, uint32_t n, region *regions) {
  item **sorted = malloc((n + 1) * sizeof *sorted);
  if (!sorted)
    abort();
  qsort(items, n, sizeof *items, by_size);
  for (uint32_t i = 0; i < n; i++) {
    item *it = &items[i];
    it->at = best_gap(it, sorted, i);
    uint32_t at = i;
    for (; at > 0 && sorted[at - 1]->at > it->at; at--)
      sorted[at] = sorted[at - 1];
    sorted[at] = it;
    if (it->at + it->size > regions[it->class].size)
      regions[it->class].size = it->at + it->size;
  }
  free(sorted);
}

/* ---- the plan ---- */

static uint32_t make_items(planner *m, item *items, region *regions, uint32_t *nregions) {
  uint32_t n = 0;
  class_of(regions, nregions, cy_dim_const(m->g, 1)); /* numbers first: their offsets are numbers too */
  for (uint32_t b = 0; b < m->p->nbuffers; b++) {
    cy_buffer *buffer = &m->p->buffers[b];
    buffer->first = m->first[b];
    buffer->last = m->last[b];
    if (buffer->kind != CY_BUF_ARENA)
      continue;
    buffer->offset = cy_dim_const(m->g, 0);
    if (m->first[b] < 0 || cy_dim_is(m->g, buffer->bytes, 0))
      continue;
    cy_dim unit;
    int64_t size = units_of(m->g, buffer->bytes, &unit);
    items[n++] = (item){b, m->first[b], m->last[b], class_of(regions, nregions, unit), size, 0};
  }
  return n;
}

static void assign_offsets(planner *m, const item *items, uint32_t n, const region *regions, uint32_t nregions) {
  cy_dim *start = malloc((nregions + 1) * sizeof *start);
  if (!start)
    abort();
  start[0] = cy_dim_const(m->g, 0);
  for (uint32_t c = 0; c < nregions; c++)
    start[c + 1] = cy_dim_add(m->g, start[c], cy_dim_muli(m->g, regions[c].unit, regions[c].size));
  for (uint32_t i = 0; i < n; i++) {
    uint32_t c = items[i].class;
    m->p->buffers[items[i].buffer].offset = cy_dim_add(m->g, start[c], cy_dim_muli(m->g, regions[c].unit, items[i].at));
  }
  m->p->arena_bytes = start[nregions];
  free(start);
}

void cy_plan_memory(cy_program *p) {
  uint32_t n = p->nbuffers + 2, nregions = 0;
  planner m = {.p = p, .g = p->g, .first = malloc(n * sizeof(int32_t)), .last = malloc(n * sizeof(int32_t))};
  item *items = calloc(n, sizeof *items);
  region *regions = calloc(n, sizeof *regions);
  if (!m.first || !m.last || !items || !regions)
    abort();
  for (uint32_t i = 0; i < n; i++)
    m.first[i] = m.last[i] = -1;
  number(&m, p->steps);
  extend_loops(&m, p->steps);
  uint32_t nitems = make_items(&m, items, regions, &nregions);
  place_all(items, nitems, regions);
  assign_offsets(&m, items, nitems, regions, nregions);
  free(items);
  free(regions);
  free(m.first);
  free(m.last);
}
