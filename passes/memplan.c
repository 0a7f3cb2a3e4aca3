/* memplan.c - memory planning: lifetimes, then largest first into the best fitting gap.
 *
 * In: a program whose ARENA buffers have sizes. Out: their offsets and p->arena_bytes, both multiples of 64.
 * Lifetimes are ranges of step positions (pre-order). What lives across the turns of a loop, because it is used outside too or
 * read before it is written, lives as long as the whole loop.
 * Placement is decided at representative sizes. From it only the order is kept: B lies above A if they live at the same time
 * and A was placed below. Offsets follow from the order alone, offset(B) = max over those directly below of their ends, and
 * so hold for every size; where all is constant they fold to numbers.
 */
#include "memplan.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64, TYPICAL = 16 /* value of a symbol that nothing is known of */ };

typedef struct item {
  uint32_t buffer;
  int32_t first, last;
  int64_t size, at; /* at representative symbol values */
} item;

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

/* ---- placement at representative sizes ---- */

static int64_t round_up(int64_t v) { return (v + ALIGN - 1) / ALIGN * ALIGN; }

/* Batch-like sizes are small, others middling; bounds are kept. */
static int64_t *typical_symbols(cy_graph *g) {
  uint32_t n = cy_sym_count(g);
  int64_t *v = calloc(n + 1, sizeof *v);
  if (!v)
    abort();
  for (cy_sym s = 1; s <= n; s++) {
    const cy_sym_info *info = cy_sym_of(g, s);
    const char *name = cy_str_text(g, info->name);
    v[s] = name[0] == 'b' || name[0] == 'B' || name[0] == 'N' ? 2 : TYPICAL;
    v[s] = v[s] < info->min ? info->min : v[s] > info->max ? info->max : v[s];
  }
  return v;
}

static int by_size(const void *a, const void *b) {
  const item *x = a, *y = b;
  return x->size != y->size ? (x->size < y->size ? 1 : -1) : x->buffer < y->buffer ? -1 : x->buffer > y->buffer;
}
static int by_place(const void *a, const void *b) {
  const item *x = a, *y = b;
  return x->at != y->at ? (x->at < y->at ? -1 : 1) : x->buffer < y->buffer ? -1 : x->buffer > y->buffer;
}

static bool together(const item *a, const item *b) { return a->first <= b->last && b->first <= a->last; }

/* `below`: those placed already, sorted by place. The smallest gap that is large enough, else the end. */
static int64_t best_gap(const item *it, item *const *below, uint32_t n) {
  int64_t best = -1, best_size = 0, end = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (!together(it, below[i]))
      continue;
    int64_t gap = below[i]->at - end;
    if (gap >= it->size && (best < 0 || gap < best_size)) {
      best = end;
      best_size = gap;
    }
    if (below[i]->at + below[i]->size > end)
      end = below[i]->at + below[i]->size;
  }
  return best >= 0 ? best : end;
}

static void place_all(item *items, uint32_t n) {
  item **sorted = malloc((n + 1) * sizeof *sorted);
  if (!sorted)
    abort();
  qsort(items, n, sizeof *items, by_size);
  for (uint32_t i = 0; i < n; i++) {
    items[i].at = best_gap(&items[i], sorted, i);
    uint32_t at = i;
    for (; at > 0 && sorted[at - 1]->at > items[i].at; at--)
      sorted[at] = sorted[at - 1];
    sorted[at] = &items[i];
  }
  free(sorted);
}

/* ---- offsets that hold for all sizes ---- */

static cy_dim rounded(cy_graph *g, cy_dim bytes) { return cy_dim_muli(g, cy_dim_cdiv(g, bytes, cy_dim_const(g, ALIGN)), ALIGN); }

static cy_dim end_of(planner *m, const item *it) {
  const cy_buffer *b = &m->p->buffers[it->buffer];
  return cy_dim_add(m->g, b->offset, rounded(m->g, b->bytes));
}

static cy_dim larger(cy_graph *g, cy_dim a, cy_dim b) {
  return cy_dim_le(g, a, b) ? b : cy_dim_le(g, b, a) ? a : cy_dim_max(g, a, b);
}

/* The offset of items[i]: above everything that was placed below and lives at the same time. Walking downwards, whatever lies
 * below one already taken that lives together with it is implied by that. */
static cy_dim offset_of(planner *m, const item *items, uint32_t i, uint32_t *taken) {
  cy_dim offset = cy_dim_const(m->g, 0);
  uint32_t n = 0;
  for (uint32_t j = i; j-- > 0;) {
    if (!together(&items[i], &items[j]))
      continue;
    bool implied = false;
    for (uint32_t t = 0; t < n && !implied; t++)
      implied = together(&items[taken[t]], &items[j]);
    if (implied)
      continue;
    taken[n++] = j;
    offset = larger(m->g, offset, end_of(m, &items[j]));
  }
  return offset;
}

static void assign_offsets(planner *m, item *items, uint32_t n) {
  uint32_t *taken = malloc((n + 1) * sizeof *taken);
  if (!taken)
    abort();
  qsort(items, n, sizeof *items, by_place);
  m->p->arena_bytes = cy_dim_const(m->g, 0);
  for (uint32_t i = 0; i < n; i++) {
    m->p->buffers[items[i].buffer].offset = offset_of(m, items, i, taken);
    m->p->arena_bytes = larger(m->g, m->p->arena_bytes, end_of(m, &items[i]));
  }
  free(taken);
}

static uint32_t make_items(planner *m, item *items) {
  int64_t *syms = typical_symbols(m->g);
  uint32_t n = 0;
  for (uint32_t b = 0; b < m->p->nbuffers; b++) {
    cy_buffer *buffer = &m->p->buffers[b];
    buffer->first = m->first[b];
    buffer->last = m->last[b];
    if (buffer->kind != CY_BUF_ARENA)
      continue;
    buffer->offset = cy_dim_const(m->g, 0);
    if (m->first[b] < 0 || cy_dim_is(m->g, buffer->bytes, 0))
      continue;
    int64_t size = round_up(cy_dim_eval(m->g, buffer->bytes, syms));
    items[n++] = (item){.buffer = b, .first = m->first[b], .last = m->last[b], .size = size > 0 ? size : ALIGN};
  }
  free(syms);
  return n;
}

void cy_plan_memory(cy_program *p) {
  uint32_t n = p->nbuffers + 1;
  planner m = {.p = p, .g = p->g, .first = malloc(n * sizeof(int32_t)), .last = malloc(n * sizeof(int32_t))};
  item *items = calloc(n, sizeof *items);
  if (!m.first || !m.last || !items)
    abort();
  for (uint32_t i = 0; i < n; i++)
    m.first[i] = m.last[i] = -1;
  number(&m, p->steps);
  extend_loops(&m, p->steps);
  uint32_t nitems = make_items(&m, items);
  place_all(items, nitems);
  assign_offsets(&m, items, nitems);
  free(items);
  free(m.first);
  free(m.last);
}
