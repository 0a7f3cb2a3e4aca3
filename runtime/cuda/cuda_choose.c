/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cuda_choose.c - convolutions, products and attention that a library of NVIDIA may compute: whichever is fastest on this
 * device, one of them or our own kernel.
 *
 * Every one has a kernel of its own; where it is a problem that a library takes (cyrt_cuda_problem), and that is found, it
 * is the library's to win. The first run of a context with a problem of new sizes asks cuda_choices.c; only when that does
 * not know, the kernel and the first few plans of each library are timed on the stream, on the run's own tensors but a
 * scratch output, and the choice is kept. A plan whose result is not our kernel's is passed over, as one that fails. Plans
 * belong to the context, as handles of libraries do. While a run is recorded nothing is decided: the run before, launch
 * by launch, decided all.
 *
 * A kernel whose sizes change all the time decides for the first MAX_SIZES of them and is itself launched for the rest:
 * deciding takes as long as dozens of launches. Nothing that was decided is forgotten, as recorded runs may hold kernels that
 * plans own.
 */
#include "cyrt_choose.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OWN = -1, RUNS = 8, ALIGNMENT = 16, MAX_SLOTS = 512, TIMED_PLANS = 4, RANK = 5, MAX_SIZES = 64 };

static const cuda_solver *const solvers[CYRT_CUDA_LIBRARIES] = {
    [CYRT_CUDA_CUDNN] = &cyrt_cudnn_solver, [CYRT_CUDA_CUBLASLT] = &cyrt_cublaslt_solver};

/* One problem of the model with the sizes it had. */
typedef struct cuda_chosen {
  struct cuda_chosen *next;
  uint64_t hash;
  uint32_t kernel;
  cyrt_cuda_problem problem;
  struct cuda_choice *choice; /* NULL: our own kernel */
} entry;
typedef struct cuda_choice {
  cuda_plan plan;
  cuda_offer offer; /* what the plan was made of */
} choice;

/* ---- what is run ---- */

/* Where each tensor's first element is. */
static void locate(const cyrt_slot *slots, const cyrt_cuda_problem *p, void *pointers[CYRT_PROBLEM_TENSORS]) {
  for (int i = 0; i < CYRT_PROBLEM_TENSORS; i++) {
    const cyrt_cuda_tensor *t = &p->tensor[i];
    pointers[i] = t->slot < 0 ? NULL : (uint8_t *)slots[t->slot].ptr + t->offset * cyrt_problem_element(t->dtype);
  }
}

/* Does any library take it? */
static int is_taken(const cuda_state *state, const cyrt_cuda_problem *p) {
  int any = 0;
  for (int i = 0; i < CYRT_PROBLEM_TENSORS; i++)
    if (p->tensor[i].slot >= 0 && !cyrt_problem_element(p->tensor[i].dtype))
      return 0;
  for (int i = 0; i < CYRT_CUDA_LIBRARIES && !any; i++)
    any = solvers[i]->ready(state) && solvers[i]->takes(p);
  return any;
}

static int is_aligned(const cyrt_cuda_problem *p, void *const pointers[CYRT_PROBLEM_TENSORS]) {
  for (int i = 0; i < CYRT_PROBLEM_TENSORS; i++)
    if (p->tensor[i].slot >= 0 && (uintptr_t)pointers[i] % ALIGNMENT)
      return 0;
  return 1;
}

/* One way to solve a problem, to be timed or run. */
typedef struct way {
  cyrt_frame *frame;
  uint32_t kernel;
  const cyrt_slot *slots;
  int64_t blocks, then_blocks;
  const cyrt_cuda_tma *tma;
  const cyrt_cuda_problem *problem;
  void *const *pointers;
  const cuda_plan *plan; /* NULL: our own kernel */
  const cuda_offer *offer;
} way;

static int32_t run_way(const way *w) {
  cuda_state *state = cuda_state_of(w->frame);
  if (!w->plan)
    return cyrt_cuda_launch(w->frame, w->kernel, w->slots, w->blocks, w->then_blocks, w->tma);
  state->behind_kernel = 0;
  void *workspace = w->plan->workspace ? (void *)(uintptr_t)state->plans->workspace.ptr : NULL;
  return w->plan->by->run(state, w->plan, w->offer, w->problem, w->pointers, workspace, w->frame->error);
}

/* ---- timing ---- */

static int32_t run_often(void *data) {
  const way *w = data;
  int32_t status = CYTO_OK;
  for (int i = 0; i < RUNS && !status; i++)
    status = run_way(w);
  return status;
}

/* Of what a way takes in the end: as part of a graph where runs are recorded, else as calls of the host. */
static int32_t run_timed(way *w, void *graph) {
  cuda_state *state = cuda_state_of(w->frame);
  const cuda_driver *driver = &state->shared->driver;
  if (!graph)
    return run_often(w);
  return cyrt_cuda_check(driver, driver->graph_launch(graph, state->stream), "cuGraphLaunch", w->frame->error);
}

static int32_t time_between(way *w, void *graph, void *from, void *to, double *out_us) {
  cuda_state *state = cuda_state_of(w->frame);
  const cuda_driver *driver = &state->shared->driver;
  float ms = 0;
  int32_t status = run_timed(w, graph); /* to warm up */
  cuda_code code = status ? 0 : driver->event_record(from, state->stream);
  if (!status)
    status = run_timed(w, graph);
  if (status)
    return status;
  if (!code)
    code = driver->event_record(to, state->stream);
  if (!code)
    code = driver->event_wait(to);
  if (!code)
    code = driver->event_elapsed(&ms, from, to);
  *out_us = (double)ms * 1000 / RUNS;
  return cyrt_cuda_check(driver, code, "choosing an algorithm", w->frame->error);
}

/* A plan is of use for recorded runs only if it can be recorded; our own kernels can, or nothing is. */
static int32_t record_way(way *w, void **out_graph) {
  cuda_state *state = cuda_state_of(w->frame);
  if (!(state->code->flags & CYRT_CUDA_REPLAY) || state->failed_recordings >= CUDA_MAX_FAILED)
    return CYTO_OK;
  int32_t status = run_way(w); /* what is made ready by the first run is not part of a graph */
  if (status || !(status = (int32_t)cyrt_cuda_record(state, run_often, w, out_graph)) || w->plan)
    return status;
  state->failed_recordings = CUDA_MAX_FAILED;
  cyrt_error_clear(w->frame->error);
  return CYTO_OK;
}

static int32_t time_way(way *w, double *out_us) {
  cuda_state *state = cuda_state_of(w->frame);
  const cuda_driver *driver = &state->shared->driver;
  void *events[2] = {NULL, NULL}, *graph = NULL;
  cuda_code code = driver->event_create(&events[0], 0);
  if (!code)
    code = driver->event_create(&events[1], 0);
  int32_t status = cyrt_cuda_check(driver, code, "cuEventCreate", w->frame->error);
  if (!status)
    status = record_way(w, &graph);
  if (!status)
    status = time_between(w, graph, events[0], events[1], out_us);
  if (graph)
    driver->graph_exec_destroy(graph);
  for (int i = 0; i < 2; i++)
    if (events[i])
      driver->event_destroy(events[i]);
  return status;
}

/* ---- comparing ---- */

/* Extents and strides of the output, from the outermost axis. */
static void output_of(const cyrt_cuda_problem *p, int64_t extent[RANK], int64_t stride[RANK]) {
  const cyrt_cuda_attention *a = &p->attention;
  const cyrt_cuda_matmul *x = &p->matmul;
  const cyrt_cuda_conv *c = &p->conv;
  const int64_t *s = p->tensor[CYRT_PROBLEM_OUT].stride, deep = p->kind == CYRT_PROBLEM_ATTENTION || c->nspatial > 2;
  const int64_t extents[CYRT_PROBLEM_KINDS][RANK] = {
      [CYRT_PROBLEM_CONV] = {c->images, c->out[0], c->out[1], deep ? c->out[2] : 1, c->channels_out},
      [CYRT_PROBLEM_CONV_TRANSPOSE] = {c->images, c->out[0], c->out[1], deep ? c->out[2] : 1, c->channels_out},
      [CYRT_PROBLEM_MATMUL] = {x->batch, x->m, 1, 1, x->n},
      [CYRT_PROBLEM_ATTENTION] = {a->batch, a->heads, a->rows, 1, a->columns}};
  const int64_t strides[RANK] = {s[0], s[1], s[2], s[3], 1};
  memcpy(extent, extents[p->kind], sizeof extents[0]);
  memcpy(stride, strides, sizeof strides);
}

/* Bytes from the first to behind the last element of the output. */
static uint64_t output_span(const cyrt_cuda_problem *p) {
  int64_t extent[RANK], stride[RANK], last = 0;
  output_of(p, extent, stride);
  for (int i = 0; i < RANK; i++)
    last += (extent[i] - 1) * stride[i];
  return (uint64_t)((last + 1) * cyrt_problem_element(p->tensor[CYRT_PROBLEM_OUT].dtype));
}

/* How far the other result is from our own may be, relative to the largest number: rounding. */
static double tolerance(const cyrt_cuda_problem *p) { return p->flags & CYRT_PROBLEM_EXACT ? 1e-3 : 5e-2; }

/* ---- plans of one problem ---- */

typedef struct search {
  way w; /* with a scratch output while ways are timed */
  double own_us, best_us;
  int32_t best; /* OWN, or the plan's number among all libraries' */
  int zeros;    /* the best is right as all results were 0, which says little */
  cuda_plan plan;
  cuda_offer offers[CYRT_CUDA_LIBRARIES];
  cuda_ptr own, other; /* results of our kernel and of the plan at hand, */
  cuda_ptr max;       /* .. and how they compare: two floats */
} search;

enum { NUMBERS = 1000 }; /* of plans, for each library */

static void forget_plan(cuda_state *state, cuda_plan *plan) {
  if (plan->by)
    plan->by->unmake(state, plan);
  plan->by = NULL;
}

static void forget_offer(cuda_state *state, cuda_offer *offer) {
  if (offer->by)
    offer->by->forget(state, offer);
  offer->by = NULL;
}

static int32_t grow_workspace(search *s, int64_t bytes) {
  cuda_state *state = cuda_state_of(s->w.frame);
  return bytes <= 0 ? CYTO_OK
                    : (int32_t)cyrt_cuda_block_grow(state, &state->plans->workspace, (uint64_t)bytes,
                                                    "a library's workspace", s->w.frame->error);
}

/* Where the output of the way is: what follows in the model reads the real one once. */
static void write_to(search *s, cuda_ptr result) {
  const cyrt_cuda_tensor *y = &s->w.problem->tensor[CYRT_PROBLEM_OUT];
  ((cyrt_slot *)(uintptr_t)s->w.slots)[y->slot].ptr =
      (void *)(uintptr_t)(result - (uint64_t)(y->offset * cyrt_problem_element(y->dtype)));
  ((void **)(uintptr_t)s->w.pointers)[CYRT_PROBLEM_OUT] = (void *)(uintptr_t)result;
}

/* Times a way that writes to `result`, where NaN stands before. */
static int32_t try_way(search *s, double *out_us, cuda_ptr result) {
  cuda_state *state = cuda_state_of(s->w.frame);
  const cuda_driver *driver = &state->shared->driver;
  cuda_code code = driver->fill_async(result, 0xff, output_span(s->w.problem), state->stream);
  int32_t status = cyrt_cuda_check(driver, code, "cuMemsetD8Async", s->w.frame->error);
  write_to(s, result);
  return status ? status : time_way(&s->w, out_us);
}

/* Are the two results the same but for rounding? What a plan does not write is NaN. */
static int agree(search *s, int *out_zeros) {
  cuda_state *state = cuda_state_of(s->w.frame);
  const cuda_driver *driver = &state->shared->driver;
  const cyrt_cuda_problem *p = s->w.problem;
  int64_t dtype = p->tensor[CYRT_PROBLEM_OUT].dtype, blocks = 4 * (int64_t)state->device->multiprocessors;
  int64_t n = (int64_t)output_span(p) / cyrt_problem_element(dtype);
  float max[2] = {0, INFINITY};
  state->behind_kernel = 0; /* the kernel that compares does not wait by itself */
  cyrt_slot slots[5] = {{.ptr = (void *)(uintptr_t)s->own},
                        {.ptr = (void *)(uintptr_t)s->other},
                        {.ptr = (void *)(uintptr_t)s->max},
                        {.size = n},
                        {.size = dtype}};
  if (driver->fill_async(s->max, 0, sizeof max, state->stream) ||
      cyrt_cuda_launch(s->w.frame, (uint32_t)state->code->agree, slots, blocks > 0 ? blocks : 1, 0, NULL) ||
      driver->copy_out_async(max, s->max, sizeof max, state->stream) || driver->stream_wait(state->stream))
    return 0;
  *out_zeros = max[0] == 0;
  return max[1] <= max[0] * tolerance(p);
}

/* A plan that cannot be made, or that fails, is passed over: there are others, and our own kernel. */
static int32_t try_candidate(search *s, int library, int32_t candidate, int *timed) {
  cuda_state *state = cuda_state_of(s->w.frame);
  const cuda_offer *offer = &s->offers[library];
  cuda_plan plan = {.by = NULL};
  double us = 0;
  if (!offer->by->make(state, offer, candidate, &plan))
    return CYTO_OK;
  int32_t status = grow_workspace(s, plan.workspace);
  s->w.plan = &plan;
  s->w.offer = offer;
  if (!status && !try_way(s, &us, s->other)) {
    *timed += plan.weight;
    int zeros = 0;
    if (us < s->best_us && agree(s, &zeros)) {
      s->zeros = zeros;
      cuda_plan worse = s->plan;
      s->plan = plan;
      s->best = library * NUMBERS + candidate;
      s->best_us = us;
      plan = worse;
    }
  }
  s->w.plan = NULL;
  forget_plan(state, &plan);
  if (status == CYTO_OUT_OF_MEMORY)
    status = CYTO_OK;
  if (!status)
    cyrt_error_clear(s->w.frame->error);
  return status;
}

/* What the libraries offer; how many candidates that are. */
static int32_t ask_all(search *s, int32_t *out_n) {
  cuda_state *state = cuda_state_of(s->w.frame);
  int32_t status = CYTO_OK;
  *out_n = 0;
  for (int i = 0; i < CYRT_CUDA_LIBRARIES && !status; i++)
    if (solvers[i]->ready(state) && solvers[i]->takes(s->w.problem)) {
      status = solvers[i]->ask(state, s->w.problem, s->w.pointers, &s->offers[i], s->w.frame->error);
      *out_n += s->offers[i].n;
    }
  return status;
}

static int32_t time_all(search *s) {
  int32_t status = try_way(s, &s->own_us, s->own);
  s->best_us = s->own_us;
  for (int i = 0; i < CYRT_CUDA_LIBRARIES; i++) {
    int timed = 0;
    for (int32_t c = 0; c < s->offers[i].n && timed < TIMED_PLANS && !status; c++)
      status = try_candidate(s, i, c, &timed);
  }
  return status;
}

static int32_t get_results(search *s, uint64_t bytes) {
  cuda_state *state = cuda_state_of(s->w.frame);
  cyto_error *error = s->w.frame->error;
  int32_t status = (int32_t)cyrt_cuda_take(state, &s->own, bytes, "choosing an algorithm", error);
  if (!status)
    status = (int32_t)cyrt_cuda_take(state, &s->other, bytes, "choosing an algorithm", error);
  return status ? status : (int32_t)cyrt_cuda_take(state, &s->max, 2 * sizeof(float), "choosing an algorithm", error);
}

static int32_t time_on_scratch(search *s) {
  cuda_state *state = cuda_state_of(s->w.frame);
  cyrt_slot slots[MAX_SLOTS];
  void *pointers[CYRT_PROBLEM_TENSORS];
  int32_t status = get_results(s, output_span(s->w.problem));
  if (!status) {
    memcpy(slots, s->w.slots, state->code->kernels[s->w.kernel].slots * sizeof *slots);
    memcpy(pointers, s->w.pointers, sizeof pointers);
    way real = s->w;
    s->w.slots = slots;
    s->w.pointers = pointers;
    status = time_all(s);
    s->w = real;
  }
  state->shared->driver.stream_wait(state->stream); /* a way that failed may have left something under way */
  const cuda_ptr got[3] = {s->own, s->other, s->max};
  for (int i = 0; i < 3; i++)
    if (got[i])
      cyrt_cuda_give(state, got[i]);
  return status;
}

/* ---- choosing ---- */

/* What a choice rests on, besides the device and the libraries: the problem, and our kernel's code. */
static uint64_t key_of(const cuda_state *state, uint32_t kernel, const cyrt_cuda_problem *of) {
  const cyrt_cuda_kernel *k = &state->code->kernels[kernel];
  const cyrt_cuda_image *image = state->device->images[kernel];
  cyrt_cuda_problem problem = *of;
  uint64_t parts[3];
  for (int i = 0; i < CYRT_PROBLEM_TENSORS; i++) {
    problem.tensor[i].slot = problem.tensor[i].slot >= 0;
    problem.tensor[i].offset = 0;
  }
  parts[0] = cyrt_cuda_checksum(&problem, sizeof problem);
  parts[1] = image ? image->checksum : 0;
  parts[2] = cyrt_cuda_checksum(k->name, strlen(k->name));
  return cyrt_cuda_checksum(parts, sizeof parts);
}

/* A known choice of a plan that cannot be made any more is timed again. */
static int32_t take_known(search *s, uint64_t key, int *out_is) {
  cuda_state *state = cuda_state_of(s->w.frame);
  *out_is = cyrt_choices_find(state->device->choices, key, &s->best) != 0;
  if (!*out_is || s->best == OWN)
    return CYTO_OK;
  int library = s->best / NUMBERS, candidate = s->best % NUMBERS;
  int32_t status = CYTO_OK;
  *out_is = 0;
  if (s->best >= 0 && library < CYRT_CUDA_LIBRARIES && solvers[library]->ready(state) &&
      solvers[library]->takes(s->w.problem)) {
    cuda_offer *offer = &s->offers[library];
    status = solvers[library]->ask(state, s->w.problem, s->w.pointers, offer, s->w.frame->error);
    *out_is = !status && candidate < offer->n && offer->by->make(state, offer, candidate, &s->plan) &&
              !grow_workspace(s, s->plan.workspace);
    if (!*out_is)
      forget_offer(state, offer);
  }
  if (*out_is)
    return CYTO_OK;
  forget_plan(state, &s->plan);
  s->best = OWN;
  if (!status)
    cyrt_error_clear(s->w.frame->error); /* of a workspace that there is no memory for */
  return status;
}

static int32_t choose(search *s, uint64_t key) {
  cuda_state *state = cuda_state_of(s->w.frame);
  int known = 0;
  int32_t status = take_known(s, key, &known), n = 0;
  if (status || known || (status = ask_all(s, &n)) || !n)
    return status;
  status = time_on_scratch(s);
  if (!status && !s->zeros)
    cyrt_choices_add(state->device->choices, key, s->best, s->own_us, s->best_us);
  return status;
}

static uint64_t hash_of(uint32_t kernel, const cyrt_cuda_problem *problem) {
  const int64_t *words = (const int64_t *)problem;
  uint64_t hash = cyrt_hash_add(CYRT_HASH, kernel);
  for (size_t i = 0; i < sizeof *problem / sizeof *words; i++)
    hash = cyrt_hash_add(hash, (uint64_t)words[i]);
  return hash;
}

static entry **list_of(cuda_plans *plans, uint64_t hash) {
  return &plans->entries[(hash ^ hash >> 24 ^ hash >> 48) % CUDA_CHOICE_LISTS];
}

static entry *find_entry(cuda_plans *plans, uint64_t hash, uint32_t kernel, const cyrt_cuda_problem *problem) {
  for (entry *e = *list_of(plans, hash); e; e = e->next)
    if (e->hash == hash && e->kernel == kernel && !memcmp(&e->problem, problem, sizeof *problem))
      return e;
  return NULL;
}

/* What was found, as an entry that has the plan and its offer; NULL: no memory. */
static entry *keep(const way *w, uint64_t hash, const search *s) {
  cuda_plans *plans = cuda_state_of(w->frame)->plans;
  entry *e = calloc(1, sizeof *e);
  choice *of = e && s->plan.by ? calloc(1, sizeof *of) : NULL;
  if (!e || (s->plan.by && !of)) {
    free(e);
    return NULL;
  }
  for (int i = 0; of && i < CYRT_CUDA_LIBRARIES; i++)
    if (s->offers[i].by == s->plan.by)
      *of = (choice){s->plan, s->offers[i]};
  entry **list = list_of(plans, hash);
  *e = (entry){*list, hash, w->kernel, *w->problem, of};
  *list = e;
  plans->sizes[w->kernel]++;
  plans->decided++;
  return e;
}

/* Our own kernel from now on. */
static void forget_choice(cuda_state *state, entry *e) {
  if (!e->choice)
    return;
  forget_plan(state, &e->choice->plan);
  forget_offer(state, &e->choice->offer);
  free(e->choice);
  e->choice = NULL;
}

/* Finds the fastest way and keeps it as an entry. */
static int32_t decide(const way *w, uint64_t hash, entry **out) {
  cuda_state *state = cuda_state_of(w->frame);
  search s = {.w = *w, .best = OWN};
  int32_t status = choose(&s, key_of(state, w->kernel, w->problem));
  entry *e = status ? NULL : keep(w, hash, &s);
  if (!e)
    forget_plan(state, &s.plan);
  for (int i = 0; i < CYRT_CUDA_LIBRARIES; i++)
    if (!e || !e->choice || e->choice->offer.by != s.offers[i].by)
      forget_offer(state, &s.offers[i]);
  if (!e)
    return status ? status : cyrt_fail(w->frame, CYTO_OUT_OF_MEMORY, "no memory for plans of libraries");
  *out = e;
  return CYTO_OK;
}

/* What was chosen; where that fails and the library is not a must, our own kernel from now on. */
static int32_t run_chosen(way *w, entry *e) {
  cuda_state *state = cuda_state_of(w->frame);
  w->plan = &e->choice->plan;
  w->offer = &e->choice->offer;
  int32_t status = run_way(w);
  if (!status)
    state->launches++;
  if (!status || e->choice->plan.by->required)
    return status;
  cyrt_error_clear(w->frame->error);
  w->plan = NULL;
  forget_choice(state, e);
  return run_way(w);
}

int32_t cyrt_cuda_choose_launch(cyrt_frame *frame, uint32_t kernel, const cyrt_slot *slots, int64_t blocks,
                                int64_t then_blocks, const cyrt_cuda_tma *tma, const cyrt_cuda_problem *problem) {
  cuda_state *state = cuda_state_of(frame);
  void *pointers[CYRT_PROBLEM_TENSORS];
  cyrt_cuda_problem p = *problem;
  way w = {frame, kernel, slots, blocks, then_blocks, tma, &p, pointers, NULL, NULL};
  if (cyrt_cuda_steps_note(frame, kernel, slots, blocks, then_blocks, tma))
    return CYTO_OK;
  if (blocks <= 0 || !state->plans || cyrt_cuda_steps_taking(state, kernel) ||
      state->code->kernels[kernel].slots > MAX_SLOTS)
    return run_way(&w);
  locate(slots, &p, pointers);
  if (!is_taken(state, &p) || !is_aligned(&p, pointers))
    return run_way(&w);
  int32_t status = cyrt_copies_use(frame, &p, pointers);
  if (status)
    return status;
  uint64_t hash = hash_of(kernel, &p);
  entry *e = find_entry(state->plans, hash, kernel, &p);
  if (!e && !state->recording && state->plans->sizes[kernel] < MAX_SIZES)
    status = decide(&w, hash, &e);
  if (status)
    return status;
  return e && e->choice ? run_chosen(&w, e) : run_way(&w);
}

/* ---- what the other files call ---- */

static int is_wanted(const cuda_shared *shared, int library, int flag) {
  const cyrt_cuda_model *code = shared->model->device_data;
  return (code->flags & (uint32_t)flag << library) != 0;
}

static cyto_status hook_find(cuda_shared *shared, cyto_error *error) {
  static const char *const advice[CYRT_CUDA_LIBRARIES] = {
      [CYRT_CUDA_CUDNN] = "--cudnn=require, but there is %s: install it (pip: nvidia-cudnn-cu%d, Debian: "
                          "'cudnn9-cuda-%d'), let CYTO_CUDNN name its folder, or compile with --cudnn=auto",
      [CYRT_CUDA_CUBLASLT] = "--cublaslt=require, but there is %s: install it (pip: nvidia-cublas-cu%d, Debian: "
                             "'libcublas-%d-0'), let CYTO_CUBLASLT name its folder, or compile with --cublaslt=auto"};
  int32_t version = 0;
  char why[1000];
  cyto_status status =
      cyrt_cuda_check(&shared->driver, shared->driver.driver_version(&version), "cuDriverGetVersion", error);
  if (!status && is_wanted(shared, CYRT_CUDA_CUDNN, CYRT_CUDA_USE))
    status = cyrt_cudnn_find(version, &shared->cudnn, shared->why_not[CYRT_CUDA_CUDNN], error);
  if (!status && is_wanted(shared, CYRT_CUDA_CUBLASLT, CYRT_CUDA_USE))
    shared->cublaslt = cyrt_cublaslt_find(version, shared->why_not[CYRT_CUDA_CUBLASLT]);
  const void *const found[CYRT_CUDA_LIBRARIES] = {
      [CYRT_CUDA_CUDNN] = shared->cudnn, [CYRT_CUDA_CUBLASLT] = shared->cublaslt};
  for (int i = 0; i < CYRT_CUDA_LIBRARIES && !status; i++)
    if (is_wanted(shared, i, CYRT_CUDA_REQUIRE) && !found[i]) {
      snprintf(why, sizeof why, advice[i], shared->why_not[i], version / 1000, version / 1000);
      status = cyrt_error_set(error, CYTO_NO_DEVICE, "the model is compiled with %s", why);
    }
  return status;
}

static void hook_release(cuda_shared *shared) {
  cyrt_cudnn_close(shared->cudnn);
  cyrt_cublaslt_close(shared->cublaslt);
}

static cyto_status hook_device_open(cuda_shared *shared, cuda_device *device, cyto_error *error) {
  const cuda_driver *driver = &shared->driver;
  char name[100] = "?", about[300];
  int32_t version = 0;
  if (!shared->cudnn && !shared->cublaslt)
    return CYTO_OK;
  driver->device_name(name, sizeof name, device->handle);
  driver->driver_version(&version);
  name[strcspn(name, "\n")] = 0;
  int n = snprintf(about, sizeof about, "%s, sm_%u, %d multiprocessors, driver %d", name, device->capability,
                   device->multiprocessors, version);
  if (shared->cudnn)
    n += snprintf(about + n, sizeof about - (size_t)n, ", cuDNN %u", shared->cudnn->version);
  if (shared->cublaslt)
    snprintf(about + n, sizeof about - (size_t)n, ", cuBLASLt %zu", shared->cublaslt->version);
  device->choices = cyrt_choices_open(about);
  return device->choices ? CYTO_OK
                         : cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for the choice of algorithms");
}

static void hook_device_close(cuda_device *device) { cyrt_choices_close(device->choices); }

static cyto_status hook_follow(cuda_state *state, cyto_error *error) {
  const cudnn *lib = state->shared->cudnn;
  return state->plans && state->plans->cudnn
             ? cyrt_cudnn_check(lib, lib->set_stream(state->plans->cudnn, state->stream), "cudnnSetStream", error)
             : CYTO_OK;
}

static cyto_status hook_open(cuda_state *state, cyto_error *error) {
  const cuda_shared *shared = state->shared;
  cyto_status status = CYTO_OK;
  if (!shared->cudnn && !shared->cublaslt)
    return CYTO_OK;
  state->plans = calloc(1, sizeof *state->plans);
  if (state->plans)
    state->plans->sizes = calloc(state->code->n_kernels + 1, sizeof *state->plans->sizes);
  if (!state->plans || !state->plans->sizes)
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for plans of libraries");
  if (shared->cudnn)
    status = cyrt_cudnn_check(shared->cudnn, shared->cudnn->create(&state->plans->cudnn), "cudnnCreate", error);
  if (!status && shared->cublaslt)
    state->plans->cublaslt = cyrt_cublaslt_open(shared->cublaslt, state->plans->failed[CYRT_CUDA_CUBLASLT]);
  if (!status && shared->cublaslt && !state->plans->cublaslt &&
      is_wanted(shared, CYRT_CUDA_CUBLASLT, CYRT_CUDA_REQUIRE))
    status = cyrt_error_set(error, CYTO_RUNTIME_FAILURE,
                            "the model is compiled with --cublaslt=require, but %s; compile with --cublaslt=auto",
                            state->plans->failed[CYRT_CUDA_CUBLASLT]);
  return status ? status : hook_follow(state, error);
}

static void hook_close(cuda_state *state) {
  cuda_plans *plans = state->plans;
  if (!plans)
    return;
  for (int i = 0; i < CUDA_CHOICE_LISTS; i++)
    for (entry *e = plans->entries[i], *next; e; e = next) {
      next = e->next;
      forget_choice(state, e);
      free(e);
    }
  free(plans->sizes);
  cyrt_copies_free(state, plans->copies);
  if (plans->cudnn)
    state->shared->cudnn->destroy(plans->cudnn);
  if (plans->cublaslt)
    state->shared->cublaslt->destroy(plans->cublaslt);
  if (plans->workspace.ptr)
    cyrt_cuda_give(state, plans->workspace.ptr);
  free(plans);
  state->plans = NULL;
}

static uint64_t hook_workspace(const cuda_state *state) { return state->plans ? state->plans->workspace.ptr : 0; }

static void hook_settle(cuda_state *state) {
  if (state->plans && state->plans->decided)
    cyrt_choices_save(state->device->choices);
  if (state->plans)
    state->plans->decided = 0;
}

/* ---- in words ---- */

/* For how many problems of each kind a library is faster, of those that it takes. */
static void describe_wins(const cuda_state *state, int library, char text[200]) {
  static const char *const plural[CYRT_PROBLEM_KINDS] = {[CYRT_PROBLEM_CONV] = "convolutions",
                                                         [CYRT_PROBLEM_CONV_TRANSPOSE] = "transposed convolutions",
                                                         [CYRT_PROBLEM_MATMUL] = "products",
                                                         [CYRT_PROBLEM_ATTENTION] = "attentions"};
  int known[CYRT_PROBLEM_KINDS] = {0}, won[CYRT_PROBLEM_KINDS] = {0};
  *text = 0;
  for (int i = 0; i < CUDA_CHOICE_LISTS; i++)
    for (const entry *e = state->plans->entries[i]; e; e = e->next) {
      known[e->problem.kind] += solvers[library]->takes(&e->problem);
      won[e->problem.kind] += e->choice && e->choice->plan.by == solvers[library];
    }
  for (int i = 0; i < CYRT_PROBLEM_KINDS; i++) {
    size_t n = strlen(text);
    if (known[i])
      snprintf(text + n, 200 - n, "%s%d of %d %s", n ? ", " : "", won[i], known[i], plural[i]);
  }
  if (!*text)
    snprintf(text, 200, "nothing");
}

static int describe_library(const cuda_state *state, int library, const char *path, size_t version, char *text,
                            uint64_t capacity) {
  const char *name = solvers[library]->name, *why_not = state->shared->why_not[library];
  char wins[200];
  if (!path)
    return snprintf(text, capacity, "; %s is not used: %s", name, why_not);
  if (!solvers[library]->ready(state))
    return snprintf(text, capacity, "; %s is not used: %s", name, state->plans->failed[library]);
  describe_wins(state, library, wins);
  const char *failed = state->plans->failed[library];
  return snprintf(text, capacity, "; %s %zu.%zu.%zu (%s): faster for %s so far%s%s", name, version / 10000,
                  version / 100 % 100, version % 100, path, wins, *failed ? "; a call failed: " : "", failed);
}

static int hook_describe(const cuda_state *state, char *text, uint64_t capacity) {
  const cuda_shared *shared = state->shared;
  int n = 0;
  *text = 0;
  if (is_wanted(shared, CYRT_CUDA_CUDNN, CYRT_CUDA_USE))
    n = describe_library(state, CYRT_CUDA_CUDNN, shared->cudnn ? shared->cudnn->path : NULL,
                         shared->cudnn ? shared->cudnn->version : 0, text, capacity);
  if (is_wanted(shared, CYRT_CUDA_CUBLASLT, CYRT_CUDA_USE) && n >= 0 && (uint64_t)n < capacity)
    n += describe_library(state, CYRT_CUDA_CUBLASLT, shared->cublaslt ? shared->cublaslt->path : NULL,
                          shared->cublaslt ? shared->cublaslt->version : 0, text + n, capacity - (uint64_t)n);
  return n;
}

const struct cyrt_cuda_libraries cyrt_cuda_libraries = {
    .find = hook_find,
    .release = hook_release,
    .device_open = hook_device_open,
    .device_close = hook_device_close,
    .open = hook_open,
    .close = hook_close,
    .workspace = hook_workspace,
    .settle = hook_settle,
    .describe = hook_describe,
    .follow = hook_follow,
};
