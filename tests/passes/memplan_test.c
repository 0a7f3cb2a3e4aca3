/* SPDX-License-Identifier: Apache-2.0 */
/* memplan_test.c - for random programs and random sizes: buffers in use at the same time never overlap, and the arena
 * is tight where everything is constant.
 */
#include "passes/lower/memplan.h"
#include "runtime/cyrt_place.h"
#include "tests/check.h"

#include <stdlib.h>

typedef struct model {
  cy_diag_sink *diag;
  cy_graph *g;
  cy_program *p;
  cy_kernel *copy; /* argument 0 read, argument 1 written */
  uint32_t seed;
} model;

static uint32_t draw(model *m, uint32_t n) {
  m->seed = m->seed * 1664525u + 1013904223u;
  return (m->seed >> 8) % n;
}

static model model_create(uint32_t seed) {
  model m = {.diag = cy_diag_create(), .seed = seed};
  m.g = cy_graph_create(m.diag, "random");
  m.p = cy_program_create(m.g);
  m.copy = cy_kernel_create(m.g, "copy");
  cy_kernel_add_arg(m.copy, CY_ARG_READ, CY_F32, 0);
  cy_kernel_add_arg(m.copy, CY_ARG_WRITE, CY_F32, 0);
  return m;
}

static void model_destroy(model *m) {
  cy_graph_destroy(m->g);
  cy_diag_destroy(m->diag);
}

static cy_step *launch(model *m, cy_step ***tail, uint32_t from, uint32_t to) {
  cy_step *s = CY_NEW(cy_graph_arena(m->g), cy_step);
  s->kind = CY_STEP_LAUNCH;
  s->kernel = m->copy;
  s->nbind = 2;
  s->bind = CY_NEW_ARRAY(cy_graph_arena(m->g), cy_bind, 2);
  s->bind[0].buffer = from;
  s->bind[1].buffer = to;
  **tail = s;
  *tail = &s->next;
  return s;
}

static cy_step *loop(model *m, cy_step ***tail) {
  cy_step *s = CY_NEW(cy_graph_arena(m->g), cy_step);
  s->kind = CY_STEP_LOOP;
  **tail = s;
  *tail = &s->next;
  return s;
}

static uint32_t arena_buffer(model *m, cy_dim bytes) { return cy_program_add_buffer(m->p, CY_BUF_ARENA, 0, bytes); }

static cy_dim random_size(model *m, bool symbolic) {
  cy_dim d = cy_dim_const(m->g, 1 + draw(m, 5000));
  const char *const names[3] = {"batch", "height", "width"};
  for (int i = 0; i < 2 && symbolic; i++)
    if (draw(m, 2))
      d = cy_dim_mul(m->g, d, cy_dim_sym(m->g, cy_sym_by_name(m->g, names[draw(m, 3)])));
  return d;
}

/* Where the buffers lie for these values of the symbols, as plan() of a library places them; how many bytes it takes.
 */
static int64_t arena_at(model *m, const int64_t *syms, int64_t *offsets) {
  uint32_t n = m->p->nbuffers;
  cyrt_lifetime *lives = calloc(n, sizeof *lives);
  uint64_t *room = calloc(n * (CYRT_PLAN_WORDS - 1), sizeof *room);
  uint64_t *places = calloc(n, sizeof *places);
  for (uint32_t i = 0; i < n; i++) {
    const cy_buffer *b = &m->p->buffers[i];
    lives[i] = (cyrt_lifetime){b->first, b->last};
    places[i] = b->first < 0 ? 0 : (uint64_t)cy_dim_eval(m->g, b->bytes, syms);
  }
  int64_t total = (int64_t)cyrt_place(places, lives, n, room);
  for (uint32_t i = 0; i < n; i++)
    offsets[i] = (int64_t)places[i];
  free(places);
  free(room);
  free(lives);
  return total;
}

static bool disjoint(model *m, const int64_t *syms) {
  int64_t *offset = calloc(m->p->nbuffers, sizeof *offset), arena = 0;
  bool good = true;
  if (m->p->arena_bytes) {
    arena = cy_dim_eval(m->g, m->p->arena_bytes, syms);
    for (uint32_t i = 0; i < m->p->nbuffers; i++)
      offset[i] = cy_dim_eval(m->g, m->p->buffers[i].offset, syms);
  } else {
    arena = arena_at(m, syms, offset);
  }
  for (uint32_t i = 0; i < m->p->nbuffers; i++) {
    const cy_buffer *a = &m->p->buffers[i];
    int64_t a0 = offset[i], a1 = a0 + cy_dim_eval(m->g, a->bytes, syms);
    if (a->first < 0)
      continue;
    good &= a0 >= 0 && a0 % 64 == 0 && a1 <= arena;
    for (uint32_t j = 0; j < i; j++) {
      const cy_buffer *b = &m->p->buffers[j];
      if (b->first < 0 || a->first > b->last || b->first > a->last)
        continue;
      int64_t b0 = offset[j], b1 = b0 + cy_dim_eval(m->g, b->bytes, syms);
      good &= a0 == a1 || b0 == b1 || a1 <= b0 || b1 <= a0;
    }
  }
  free(offset);
  return good;
}

static void check_random(uint32_t seed, bool symbolic) {
  model m = model_create(seed);
  cy_step **tail = &m.p->steps;
  uint32_t first = arena_buffer(&m, random_size(&m, symbolic)), n = 2 + draw(&m, 40);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t back = draw(&m, 4), made = m.p->nbuffers - first;
    uint32_t from = m.p->nbuffers - 1 - (back < made ? back : 0), to = arena_buffer(&m, random_size(&m, symbolic));
    launch(&m, &tail, from, to);
  }
  cy_plan_memory(m.p);
  for (int round = 0; round < 5; round++) {
    int64_t *syms = calloc(cy_sym_count(m.g) + 1, sizeof *syms);
    for (uint32_t s = 1; s <= cy_sym_count(m.g); s++)
      syms[s] = draw(&m, round ? 50 : 2);
    CHECK(disjoint(&m, syms));
    free(syms);
  }
  model_destroy(&m);
}

static void test_constant(void) {
  for (uint32_t seed = 1; seed <= 60; seed++)
    check_random(seed, false);
}

static void test_symbolic(void) {
  for (uint32_t seed = 1; seed <= 60; seed++)
    check_random(seed, true);
}

/* In a chain two buffers are alive at once, so the two largest neighbours are all the memory it takes, whatever the
 * sizes hang on. */
static void test_chain_is_tight(void) {
  model m = model_create(1);
  cy_step **tail = &m.p->steps;
  const char *const names[3] = {"batch", "height", "width"};
  const int64_t values[3] = {50, 7, 200};
  cy_dim sizes[4] = {cy_dim_const(m.g, 64000)};
  int64_t syms[8] = {0}, offsets[300];
  for (int i = 0; i < 3; i++) {
    cy_sym sym = cy_sym_by_name(m.g, names[i]);
    sizes[i + 1] = cy_dim_muli(m.g, cy_dim_sym(m.g, sym), 640);
    syms[sym] = values[i];
  }
  uint32_t last = arena_buffer(&m, sizes[0]);
  for (int i = 1; i < 300; i++) {
    uint32_t to = arena_buffer(&m, sizes[i % 4]);
    launch(&m, &tail, last, to);
    last = to;
  }
  CHECK_INT_EQ(cy_plan_memory(m.p), -1);
  CHECK(disjoint(&m, syms));
  CHECK_INT_EQ(arena_at(&m, syms, offsets), 640 * 200 + 64000);
  model_destroy(&m);
}

/* What no machine has is not added up until it overflows. */
static void test_too_large(void) {
  uint64_t sizes[2] = {64, (uint64_t)1 << 62};
  cyrt_lifetime lives[2] = {{0, 1}, {0, 1}};
  uint64_t room[2 * (CYRT_PLAN_WORDS - 1)];
  CHECK(cyrt_place(sizes, lives, 2, room) > CYRT_PLACE_LIMIT);
}

/* Outside a loop, in it, and carried from one iteration to the next. */
static void test_loops(void) {
  model m = model_create(1);
  cy_step **tail = &m.p->steps, **inside;
  cy_dim size = cy_dim_const(m.g, 100);
  uint32_t before = arena_buffer(&m, size), carried = arena_buffer(&m, size), inner = arena_buffer(&m, size),
           after = arena_buffer(&m, size);
  launch(&m, &tail, before, before);                /* 0 */
  inside = &loop(&m, &tail)->then_steps;            /* 1 */
  launch(&m, &inside, carried, inner);              /* 2: read in the first iteration as the last one left it */
  launch(&m, &inside, inner, carried);              /* 3 */
  launch(&m, &inside, before, inner);               /* 4 */
  launch(&m, &tail, carried, after);                /* 5 */
  cy_plan_memory(m.p);
  const cy_buffer *b = m.p->buffers;
  CHECK_INT_EQ(b[before].first, 0);
  CHECK_INT_EQ(b[before].last, 4);
  CHECK_INT_EQ(b[carried].first, 1);
  CHECK_INT_EQ(b[carried].last, 5);
  CHECK_INT_EQ(b[inner].first, 2);
  CHECK_INT_EQ(b[inner].last, 4);
  CHECK(disjoint(&m, NULL));
  model_destroy(&m);
}

static const check_test tests[] = {{"constant", test_constant},
                                   {"symbolic", test_symbolic},
                                   {"tight chain", test_chain_is_tight},
                                   {"too large", test_too_large},
                                   {"loops", test_loops}};

int main(int argc, char **argv) { return check_main(argc, argv, tests, CHECK_COUNT(tests)); }
