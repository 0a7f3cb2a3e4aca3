/* SPDX-License-Identifier: Apache-2.0 */
/* memplan.c - memory planning: lifetimes, then places.
 *
 * In: a program whose ARENA buffers have sizes. Out: their lifetimes; where all sizes are numbers, their offsets and
 * p->arena_bytes, both multiples of 64.
 * Lifetimes are ranges of step positions (pre-order). What lives across the iterations of a loop, because it is used
 * outside too or read before it is written, lives as long as the whole loop. Sizes that are polynomials cannot be
 * ordered before their symbols have values. Then only lifetimes are known here, and plan() of the library places the
 * buffers by the same method (runtime/cyrt_place.h) whenever sizes change: as tight as for numbers.
 */
#include "memplan.h"

#include "runtime/cyrt_place.h"

#include <stdlib.h>

typedef struct planner {
  cy_program *p;
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

/* Steps come in the order of their positions. */
static void touch_step(void *ctx, cy_step *s) {
  planner *m = ctx;
  s->position = m->position++;
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

/* Buffers of a loop that must survive from one iteration to the next live as long as the loop. */
static void extend_over_loop(planner *m, const cy_step *loop, int32_t end) {
  uint8_t *state = calloc(m->p->nbuffers + 1, 1);
  if (!state)
    cy_no_memory();
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

static void note_position(void *last, cy_step *s) { *(int32_t *)last = s->position; }

static int32_t last_position(const cy_step *loop) {
  int32_t last = loop->position;
  cy_steps_visit(loop->then_steps, note_position, &last);
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

/* ---- the plan ---- */

/* Is the buffer placed in the arena at all? */
static bool is_placed(const cy_graph *g, const cy_buffer *b) {
  return b->kind == CY_BUF_ARENA && b->first >= 0 && !cy_dim_is(g, b->bytes, 0);
}

/* Offsets of placed buffers with these sizes of theirs, and how many bytes they take. -1: not all sizes are numbers. */
static int64_t place(cy_program *p, cy_sym one, uint64_t *offsets) {
  uint32_t n = 0;
  cyrt_lifetime *lives = malloc((p->nbuffers + 1) * sizeof *lives);
  uint64_t *room = malloc((p->nbuffers + 1) * (CYRT_PLAN_WORDS - 1) * sizeof *room);
  bool numbers = true;
  if (!lives || !room)
    cy_no_memory();
  for (uint32_t i = 0; i < p->nbuffers && numbers; i++) {
    const cy_buffer *b = &p->buffers[i];
    int64_t bytes;
    if (!is_placed(p->g, b))
      continue;
    cy_dim d = one ? cy_dim_subst(p->g, b->bytes, one, cy_dim_const(p->g, 1)) : b->bytes;
    numbers = cy_dim_is_const(p->g, d, &bytes);
    offsets[n] = (uint64_t)bytes;
    lives[n++] = (cyrt_lifetime){b->first, b->last};
  }
  int64_t total = numbers ? (int64_t)cyrt_place(offsets, lives, n, room) : -1;
  free(lives);
  free(room);
  return total;
}

static void assign_offsets(cy_program *p, int64_t total, const uint64_t *offsets) {
  p->arena_bytes = total < 0 ? 0 : cy_dim_const(p->g, total);
  for (uint32_t i = 0, n = 0; i < p->nbuffers; i++) {
    cy_buffer *b = &p->buffers[i];
    if (b->kind == CY_BUF_ARENA)
      b->offset = !is_placed(p->g, b) ? cy_dim_const(p->g, 0)
                  : total < 0         ? 0
                                      : cy_dim_const(p->g, (int64_t)offsets[n++]);
  }
}

int64_t cy_plan_memory(cy_program *p) {
  uint32_t n = p->nbuffers + 2;
  planner m = {.p = p, .first = malloc(n * sizeof(int32_t)), .last = malloc(n * sizeof(int32_t))};
  uint64_t *offsets = malloc(n * sizeof *offsets);
  if (!m.first || !m.last || !offsets)
    cy_no_memory();
  for (uint32_t i = 0; i < n; i++)
    m.first[i] = m.last[i] = -1;
  cy_steps_visit(p->steps, touch_step, &m);
  extend_loops(&m, p->steps);
  for (uint32_t i = 0; i < p->nbuffers; i++) {
    p->buffers[i].first = m.first[i];
    p->buffers[i].last = m.last[i];
  }
  int64_t total = place(p, 0, offsets);
  assign_offsets(p, total, offsets);
  if (total < 0)
    total = place(p, p->workers, offsets);
  free(offsets);
  free(m.first);
  free(m.last);
  return total;
}
