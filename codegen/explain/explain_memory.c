/* SPDX-License-Identifier: Apache-2.0 */
/* explain_memory.c - what --explain=memory prints: which memory a run takes, and what for.
 *
 * In: a program with planned memory. Out: weights, arena, scratch of each thread; what is alive in the arena at its peak,
 * the largest first, and the step that made it; then the bytes alive at every step. Sizes that are left open have the
 * values that --explain assumes.
 */
#define _GNU_SOURCE
#include "codegen/explain/explain_int.h"
#include "runtime/cyrt_place.h"

#include <stdlib.h>

static void *zeros(size_t n, size_t size) {
  void *p = calloc(n, size);
  if (!p)
    cy_no_memory();
  return p;
}

static void note_position(void *ctx, cy_step *s) {
  cy_memory *m = ctx;
  m->positions = s->position > m->positions ? s->position : m->positions;
}

static void note_maker(cy_memory *m, uint32_t buffer, const cy_step *s, bool scratch) {
  if (m->maker[buffer])
    return;
  m->maker[buffer] = s;
  m->scratch[buffer] = scratch;
}

static void note_step(void *ctx, cy_step *s) {
  cy_memory *m = ctx;
  m->steps[s->position] = s;
  const cy_karg_info *args = NULL;
  uint32_t n = s->kind == CY_STEP_LAUNCH ? cy_kernel_args(s->kernel, &args) : 0;
  const cy_kernel_plan *plan = n ? cy_kernels_plan(m->b, s->kernel) : NULL;
  for (uint32_t i = 0; plan && i < s->nbind; i++) {
    bool appended = (int32_t)i == plan->scratch_arg || (int32_t)i == plan->shared_arg;
    if (appended || (i < n && args[i].kind != CY_ARG_READ))
      note_maker(m, s->bind[i].buffer, s, appended || args[i].kind == CY_ARG_SCRATCH);
  }
  for (uint32_t i = 0; i < s->nout; i++)
    if (s->out[i].type.dtype != CY_NONE)
      note_maker(m, s->out[i].at.buffer, s, false);
}

static void measure(cy_memory *m, int64_t workers) {
  const cy_program *p = m->b->p;
  m->syms[p->workers] = workers;
  for (uint32_t i = 0; i < p->nbuffers; i++) {
    const cy_buffer *b = &p->buffers[i];
    m->bytes[i] = b->kind == CY_BUF_ARENA && b->first >= 0 ? cy_dim_eval(m->b->g, b->bytes, m->syms) : 0;
  }
}

/* How large the arena is, as the library will place it. */
static int64_t arena_bytes(cy_memory *m, int64_t workers) {
  const cy_program *p = m->b->p;
  uint64_t *sizes = zeros(p->nbuffers + 1, sizeof *sizes);
  uint64_t *room = zeros((p->nbuffers + 1) * (CYRT_PLAN_WORDS - 1), sizeof *room);
  cyrt_lifetime *lives = zeros(p->nbuffers + 1, sizeof *lives);
  uint32_t n = 0;
  measure(m, workers);
  for (uint32_t i = 0; i < p->nbuffers; i++)
    if (m->bytes[i] > 0) {
      sizes[n] = (uint64_t)m->bytes[i];
      lives[n++] = (cyrt_lifetime){p->buffers[i].first, p->buffers[i].last};
    }
  int64_t total = (int64_t)cyrt_place(sizes, lives, n, room);
  free(sizes);
  free(room);
  free(lives);
  return total;
}

static void find_peak(cy_memory *m) {
  for (uint32_t i = 0; i < m->b->p->nbuffers; i++)
    for (int32_t at = m->b->p->buffers[i].first; m->bytes[i] > 0 && at <= m->b->p->buffers[i].last; at++)
      m->alive[at] += m->bytes[i];
  for (int32_t at = 0; at <= m->positions; at++)
    m->peak = m->alive[at] > m->alive[m->peak] ? at : m->peak;
}

/* "m_k12_conv: conv add max from 'Conv_12'" */
static void print_step(const cy_memory *m, const cy_step *s, FILE *out) {
  if (s && s->kind == CY_STEP_LAUNCH) {
    const cy_kernel_plan *plan = cy_kernels_plan(m->b, s->kernel);
    cy_launch_facts facts = cy_launch_explain(m->b, s, plan);
    fprintf(out, "%s: %s", plan->symbol, facts.ops);
    fprintf(out, *facts.node ? " from '%s'\n" : "%s\n", facts.node);
  } else if (s && s->kind == CY_STEP_CALL) {
    const char *node = s->node ? cy_str_text(m->b->g, cy_node_of(m->b->g, s->node)->origin.name) : "";
    fprintf(out, *node ? "%s from '%s'\n" : "%s%s\n", s->call, node);
  } else {
    fputs("-\n", out);
  }
}

typedef struct part {
  int64_t bytes;
  uint32_t buffer;
} part;

static int larger_first(const void *a, const void *b) {
  const part *x = a, *y = b;
  return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

static void print_peak(const cy_memory *m, FILE *out) {
  const cy_program *p = m->b->p;
  part *parts = zeros(p->nbuffers + 1, sizeof *parts);
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->nbuffers; i++)
    if (m->bytes[i] > 0 && p->buffers[i].first <= m->peak && p->buffers[i].last >= m->peak)
      parts[n++] = (part){m->bytes[i], i};
  qsort(parts, n, sizeof *parts, larger_first);
  fprintf(out, "at the peak, step %d, %.3f MB are alive:\n%12s  %-13s %s\n", m->peak, (double)m->alive[m->peak] / 1e6,
          "bytes", "steps", "made by");
  for (uint32_t i = 0; i < n; i++) {
    const cy_buffer *b = &p->buffers[parts[i].buffer];
    char steps[32];
    snprintf(steps, sizeof steps, "%d..%d", b->first, b->last);
    fprintf(out, "%12lld  %-13s %s", (long long)parts[i].bytes, steps,
            m->scratch[parts[i].buffer] ? "scratch of " : "");
    print_step(m, m->maker[parts[i].buffer], out);
  }
  free(parts);
}

static void print_sums(const cy_memory *m, FILE *out) {
  const cy_program *p = m->b->p;
  fprintf(out, "weights %.3f MB\narena %.3f MB", (double)p->weights_bytes / 1e6, (double)m->one_thread / 1e6);
  if (m->two_threads > m->one_thread && !m->b->machine->caps.device)
    fprintf(out, "; %.3f MB more for each thread behind the first, for its scratch",
            (double)(m->two_threads - m->one_thread) / 1e6);
  fputc('\n', out);
  if (p->ndynamic)
    fprintf(out, "and %u tensors whose size depends on data\n", p->ndynamic);
}

cy_memory cy_memory_measure(cy_work *b) {
  uint32_t n = b->p->nbuffers + 1;
  cy_memory m = {.b = b, .syms = cy_sizes_assumed(b)};
  cy_steps_visit(b->p->steps, note_position, &m);
  size_t positions = (size_t)m.positions + 2;
  m.bytes = zeros(n, sizeof *m.bytes);
  m.maker = zeros(n, sizeof *m.maker);
  m.scratch = zeros(n, sizeof *m.scratch);
  m.steps = zeros(positions, sizeof *m.steps);
  m.alive = zeros(positions, sizeof *m.alive);
  cy_steps_visit(b->p->steps, note_step, &m);
  m.two_threads = arena_bytes(&m, 2);
  m.one_thread = arena_bytes(&m, 1);
  find_peak(&m);
  return m;
}

void cy_memory_free(cy_memory *m) {
  free(m->syms);
  free(m->bytes);
  free(m->maker);
  free(m->scratch);
  free(m->steps);
  free(m->alive);
}

void cy_explain_memory(cy_work *b, FILE *out) {
  cy_memory m = cy_memory_measure(b);
  cy_sizes_print(b, m.syms, out);
  print_sums(&m, out);
  if (m.alive[m.peak])
    print_peak(&m, out);
  fprintf(out, "%6s %12s  %s\n", "step", "bytes alive", "kernel");
  for (int32_t at = 0; at <= m.positions; at++) {
    if (!m.steps[at] || (m.steps[at]->kind != CY_STEP_LAUNCH && m.steps[at]->kind != CY_STEP_CALL))
      continue;
    fprintf(out, "%6d %12lld%s ", at, (long long)m.alive[at], at == m.peak ? "*" : " ");
    print_step(&m, m.steps[at], out);
  }
  cy_memory_free(&m);
}
