/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cuda_cudnn.c - convolutions and attention that cuDNN may compute: whichever is faster on this device, it or our own
 * kernel.
 *
 * Every one has a kernel of its own; where it has a form that cuDNN takes (cyrt_cuda_problem), and cuDNN is found, it
 * is cuDNN's to win. The first run of a context with a problem of new sizes asks cuda_choices.c; only when that does
 * not know, the kernel and cuDNN's first few plans are timed on the stream, on the run's own tensors but a scratch
 * output, and the choice is kept. A plan whose result is not our kernel's is passed over, as one that fails. Plans
 * belong to the context, as its cuDNN handle does. While a run is recorded nothing is decided: the run before, launch
 * by launch, decided all.
 *
 * Constant biases of convolutions of halves are f32 for our own kernels, and halves for cuDNN: it takes others only in
 * plans that are compiled when they are made.
 */
#include "cyrt_cudnn.h"

#include "runtime/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OWN = -1, RUNS = 8, ALIGNMENT = 16, MAX_SLOTS = 512 };
enum { TIMED_PLANS = 4, COMPILED_PLAN = 2 }; /* COMPILED_PLAN: as how many one counts that takes a second to make */

/* One problem of the model with the sizes it had. */
typedef struct entry {
  struct entry *next;
  uint64_t hash;
  uint32_t kernel;
  cyrt_cuda_problem problem;
  cudnn_plan plan;   /* of the choice; none: our own kernel */
  cudnn_graph graph; /* what the plan was made of */
} entry;

/* A constant in half precision. */
typedef struct half_copy {
  struct half_copy *next;
  const void *of;
  int64_t dtype;
  cuda_ptr ptr;
} half_copy;

typedef struct cuda_plans { /* of a context */
  void *handle;
  entry *entries;
  half_copy *halves;
  cuda_block workspace;
  int32_t decided; /* since choices were saved */
} cuda_plans;

/* ---- what is run ---- */

/* Where each tensor's first element is. */
static void locate(const cyrt_slot *slots, const cyrt_cuda_problem *p, void *pointers[CYRT_PROBLEM_TENSORS]) {
  for (int i = 0; i < CYRT_PROBLEM_TENSORS; i++) {
    const cyrt_cuda_tensor *t = &p->tensor[i];
    pointers[i] = t->slot < 0 ? NULL : (uint8_t *)slots[t->slot].ptr + t->offset * cyrt_cudnn_element(t->dtype);
  }
}

static int takes(const cyrt_cuda_problem *p) {
  for (int i = 0; i < CYRT_PROBLEM_TENSORS; i++)
    if (p->tensor[i].slot >= 0 && !cyrt_cudnn_element(p->tensor[i].dtype))
      return 0;
  return cyrt_cudnn_kind(p)->takes(p);
}

static int is_aligned(const cyrt_cuda_problem *p, void *const pointers[CYRT_PROBLEM_TENSORS]) {
  for (int i = 0; i < CYRT_PROBLEM_TENSORS; i++)
    if (p->tensor[i].slot >= 0 && (uintptr_t)pointers[i] % ALIGNMENT)
      return 0;
  return 1;
}

/* ---- biases in half precision ---- */

static int is_half(const cyrt_cuda_tensor *t) { return t->dtype == CYTO_F16 || t->dtype == CYTO_BF16; }

static int may_narrow(const cuda_state *state, const cyrt_cuda_problem *p, const void *bias) {
  cuda_ptr at = (cuda_ptr)(uintptr_t)bias, first = state->device->weights;
  return p->kind == CYRT_PROBLEM_CONV && p->tensor[CYRT_CONV_BIAS].slot >= 0 &&
         p->tensor[CYRT_CONV_BIAS].dtype == CYTO_F32 && is_half(&p->tensor[CYRT_CONV_X]) && at >= first &&
         at - first < state->shared->model->weights_bytes;
}

/* buffer: of n floats and n halves */
static int32_t fill_half(cyrt_frame *frame, half_copy *copy, float *buffer, uint64_t n) {
  cuda_state *state = cuda_state_of(frame);
  const cuda_driver *driver = &state->shared->driver;
  uint16_t *half = (uint16_t *)(buffer + n);
  cuda_code code = driver->copy_out_async(buffer, (cuda_ptr)(uintptr_t)copy->of, n * sizeof *buffer, state->stream);
  if (!code)
    code = driver->stream_wait(state->stream);
  for (uint64_t i = 0; i < n; i++)
    half[i] = copy->dtype == CYTO_F16 ? cyrt_f32_to_f16(buffer[i]) : cyrt_f32_to_bf16(buffer[i]);
  if (!code)
    code = driver->copy_in_async(copy->ptr, half, n * sizeof *half, state->stream);
  if (!code)
    code = driver->stream_wait(state->stream);
  return cyrt_cuda_check(driver, code, "copying a bias for cuDNN", frame->error);
}

static int32_t make_half(cyrt_frame *frame, const void *of, uint64_t n, int64_t dtype) {
  cuda_state *state = cuda_state_of(frame);
  half_copy *copy = calloc(1, sizeof *copy);
  float *buffer = malloc(n * (sizeof *buffer + sizeof(uint16_t)));
  int32_t status =
      copy && buffer ? CYTO_OK : cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "no memory for copying a bias for cuDNN");
  if (!status) {
    *copy = (half_copy){state->plans->halves, of, dtype, 0};
    status = cyrt_cuda_take(state, &copy->ptr, n * sizeof(uint16_t), "a bias for cuDNN", frame->error);
  }
  if (!status) {
    state->plans->halves = copy; /* from here on it is freed with the plans */
    status = fill_half(frame, copy, buffer, n);
  } else {
    free(copy);
  }
  free(buffer);
  return status;
}

/* Has the problem read its bias as halves, if it is a constant and the factors are halves. */
static int32_t narrow_bias(cyrt_frame *frame, cyrt_cuda_problem *p, void *pointers[CYRT_PROBLEM_TENSORS]) {
  cuda_state *state = cuda_state_of(frame);
  const void *of = pointers[CYRT_CONV_BIAS];
  int64_t dtype = p->tensor[CYRT_CONV_X].dtype;
  if (!may_narrow(state, p, of))
    return CYTO_OK;
  for (int attempt = 0; attempt < 2; attempt++) {
    for (const half_copy *h = state->plans->halves; h; h = h->next)
      if (h->of == of && h->dtype == dtype) {
        pointers[CYRT_CONV_BIAS] = (void *)(uintptr_t)h->ptr;
        p->tensor[CYRT_CONV_BIAS].dtype = dtype;
        return CYTO_OK;
      }
    int32_t status =
        attempt || state->recording ? CYTO_OK : make_half(frame, of, (uint64_t)p->conv.channels_out, dtype);
    if (status)
      return status;
  }
  return CYTO_OK;
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
  const cudnn_plan *plan; /* NULL: our own kernel */
  const cudnn_graph *graph;
} way;

static int32_t run_way(const way *w) {
  cuda_state *state = cuda_state_of(w->frame);
  const cudnn *lib = state->shared->cudnn;
  if (!w->plan)
    return cyrt_cuda_launch(w->frame, w->kernel, w->slots, w->blocks, w->then_blocks, w->tma);
  state->behind_kernel = 0;
  void *workspace = w->plan->workspace ? (void *)(uintptr_t)state->plans->workspace.ptr : NULL;
  cudnn_code code =
      cyrt_cudnn_plan_run(lib, state->plans->handle, w->plan, w->graph, w->problem, w->pointers, workspace);
  return cyrt_cudnn_check(lib, code, "cudnnBackendExecute", w->frame->error);
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

/* Bytes from the first to behind the last element of the output. */
static uint64_t output_span(const cyrt_cuda_problem *p) {
  int64_t extent[CUDNN_RANK], stride[CUDNN_RANK], last = 0;
  cyrt_cudnn_kind(p)->output(p, extent, stride);
  for (int i = 0; i < CUDNN_RANK; i++)
    last += (extent[i] - 1) * stride[i];
  return (uint64_t)((last + 1) * cyrt_cudnn_element(p->tensor[CYRT_PROBLEM_OUT].dtype));
}

/* How far the other result is from our own may be, relative to the largest number: rounding. */
static double tolerance(const cyrt_cuda_problem *p) { return p->flags & CYRT_PROBLEM_EXACT ? 1e-3 : 5e-2; }

/* ---- plans of one problem ---- */

typedef struct search {
  way w; /* with a scratch output while ways are timed */
  cudnn_graph graph;
  double own_us, best_us;
  int32_t best; /* OWN, or a candidate */
  cudnn_plan plan;
  cuda_ptr own, other; /* results of our kernel and of the plan at hand, */
  cuda_ptr most;       /* .. and how they compare: two floats */
} search;

static int32_t grow_workspace(search *s, int64_t bytes) {
  cuda_state *state = cuda_state_of(s->w.frame);
  return bytes <= 0 ? CYTO_OK
                    : cyrt_cuda_block_grow(state, &state->plans->workspace, (uint64_t)bytes, "cuDNN's workspace",
                                           s->w.frame->error);
}

/* Where the output of the way is: what follows in the model reads the real one once. */
static void write_to(search *s, cuda_ptr result) {
  const cyrt_cuda_tensor *y = &s->w.problem->tensor[CYRT_PROBLEM_OUT];
  ((cyrt_slot *)(uintptr_t)s->w.slots)[y->slot].ptr =
      (void *)(uintptr_t)(result - (uint64_t)(y->offset * cyrt_cudnn_element(y->dtype)));
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
static int agree(search *s) {
  cuda_state *state = cuda_state_of(s->w.frame);
  const cuda_driver *driver = &state->shared->driver;
  const cyrt_cuda_problem *p = s->w.problem;
  int64_t dtype = p->tensor[CYRT_PROBLEM_OUT].dtype, blocks = 4 * (int64_t)state->device->multiprocessors;
  int64_t n = (int64_t)output_span(p) / cyrt_cudnn_element(dtype);
  float most[2] = {0, INFINITY};
  state->behind_kernel = 0; /* the kernel that compares does not wait by itself */
  cyrt_slot slots[5] = {{.ptr = (void *)(uintptr_t)s->own},
                        {.ptr = (void *)(uintptr_t)s->other},
                        {.ptr = (void *)(uintptr_t)s->most},
                        {.size = n},
                        {.size = dtype}};
  if (driver->fill_async(s->most, 0, sizeof most, state->stream) ||
      cyrt_cuda_launch(s->w.frame, (uint32_t)state->code->agree, slots, blocks > 0 ? blocks : 1, 0, NULL) ||
      driver->copy_out_async(most, s->most, sizeof most, state->stream) || driver->stream_wait(state->stream))
    return 0;
  return most[1] <= most[0] * tolerance(p);
}

/* An engine that cannot make a plan, or whose plan fails, is passed over: there are others, and our own kernel. */
static int32_t try_candidate(search *s, int32_t candidate, int *timed) {
  cuda_state *state = cuda_state_of(s->w.frame);
  const cudnn *lib = state->shared->cudnn;
  cudnn_plan plan;
  double us = 0;
  if (cyrt_cudnn_plan_init(lib, state->plans->handle, &s->graph, candidate, &plan))
    return CYTO_OK;
  int32_t status = grow_workspace(s, plan.workspace);
  s->w.plan = &plan;
  s->w.graph = &s->graph;
  if (!status && !try_way(s, &us, s->other)) {
    *timed += s->graph.compiles[candidate] ? COMPILED_PLAN : 1;
    if (us < s->best_us && agree(s)) {
      cudnn_plan worse = s->plan;
      s->plan = plan;
      s->best = candidate;
      s->best_us = us;
      plan = worse;
    }
  }
  s->w.plan = NULL;
  if (plan.plan)
    lib->free(plan.plan);
  if (status == CYTO_OUT_OF_MEMORY)
    status = CYTO_OK;
  if (!status)
    cyrt_error_clear(s->w.frame->error);
  return status;
}

static int32_t time_all(search *s) {
  int timed = 0;
  int32_t status = try_way(s, &s->own_us, s->own);
  s->best_us = s->own_us;
  for (int32_t i = 0; i < s->graph.n_candidates && timed < TIMED_PLANS && !status; i++)
    status = try_candidate(s, i, &timed);
  return status;
}

static int32_t get_results(search *s, uint64_t bytes) {
  cuda_state *state = cuda_state_of(s->w.frame);
  cyto_error *error = s->w.frame->error;
  int32_t status = (int32_t)cyrt_cuda_take(state, &s->own, bytes, "choosing an algorithm", error);
  if (!status)
    status = (int32_t)cyrt_cuda_take(state, &s->other, bytes, "choosing an algorithm", error);
  return status ? status : (int32_t)cyrt_cuda_take(state, &s->most, 2 * sizeof(float), "choosing an algorithm", error);
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
  const cuda_ptr got[3] = {s->own, s->other, s->most};
  for (int i = 0; i < 3; i++)
    if (got[i])
      cyrt_cuda_give(state, got[i]);
  return status;
}

/* ---- choosing ---- */

/* What a choice rests on, besides the device and cuDNN: the problem, and our kernel's code. */
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
static int take_known(search *s, uint64_t key) {
  cuda_state *state = cuda_state_of(s->w.frame);
  if (!cyrt_choices_find(state->device->choices, key, &s->best))
    return 0;
  if (s->best == OWN)
    return 1;
  if (s->best >= 0 && s->best < s->graph.n_candidates &&
      !cyrt_cudnn_plan_init(state->shared->cudnn, state->plans->handle, &s->graph, s->best, &s->plan) &&
      !grow_workspace(s, s->plan.workspace))
    return 1;
  if (s->plan.plan)
    state->shared->cudnn->free(s->plan.plan);
  s->plan.plan = NULL;
  s->best = OWN;
  return 0;
}

static int32_t choose(search *s, uint64_t key) {
  cuda_state *state = cuda_state_of(s->w.frame);
  const cudnn *lib = state->shared->cudnn;
  const char *call = NULL;
  cudnn_code code = cyrt_cudnn_graph_init(lib, state->plans->handle, s->w.problem, &s->graph, &call);
  if (!code)
    code = cyrt_cudnn_graph_candidates(lib, s->w.problem, NULL, &s->graph, &call);
  int32_t status = cyrt_cudnn_unsupported(code) ? CYTO_OK : cyrt_cudnn_check(lib, code, call, s->w.frame->error);
  if (!status && !code && !take_known(s, key)) {
    status = time_on_scratch(s);
    if (!status)
      cyrt_choices_add(state->device->choices, key, s->best, s->own_us, s->best_us);
  }
  return status;
}

static uint64_t hash_of(uint32_t kernel, const cyrt_cuda_problem *problem) {
  const int64_t *words = (const int64_t *)problem;
  uint64_t hash = cyrt_hash_add(CYRT_HASH, kernel);
  for (size_t i = 0; i < sizeof *problem / sizeof *words; i++)
    hash = cyrt_hash_add(hash, (uint64_t)words[i]);
  return hash;
}

static const entry *find_entry(const cuda_plans *plans, uint64_t hash, uint32_t kernel,
                               const cyrt_cuda_problem *problem) {
  for (const entry *e = plans->entries; e; e = e->next)
    if (e->hash == hash && e->kernel == kernel && !memcmp(&e->problem, problem, sizeof *problem))
      return e;
  return NULL;
}

static void forget_plan(const cudnn *lib, cudnn_plan *plan, cudnn_graph *graph) {
  if (plan->plan)
    lib->free(plan->plan);
  plan->plan = NULL;
  cyrt_cudnn_graph_deinit(lib, graph);
}

/* Finds the fastest way and keeps it as an entry. */
static int32_t decide(const way *w, uint64_t hash) {
  cuda_plans *plans = cuda_state_of(w->frame)->plans;
  search s = {.w = *w, .best = OWN};
  int32_t status = choose(&s, key_of(cuda_state_of(w->frame), w->kernel, w->problem));
  entry *e = status ? NULL : calloc(1, sizeof *e);
  if (!e || !s.plan.plan)
    forget_plan(cuda_state_of(w->frame)->shared->cudnn, &s.plan, &s.graph);
  if (!e)
    return status ? status : cyrt_fail(w->frame, CYTO_OUT_OF_MEMORY, "no memory for cuDNN's plans");
  *e = (entry){plans->entries, hash, w->kernel, *w->problem, s.plan, s.graph};
  plans->entries = e;
  plans->decided++;
  return CYTO_OK;
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
  if (!takes(&p) || !is_aligned(&p, pointers))
    return run_way(&w);
  int32_t status = narrow_bias(frame, &p, pointers);
  if (status)
    return status;
  uint64_t hash = hash_of(kernel, &p);
  const entry *e = find_entry(state->plans, hash, kernel, &p);
  if (!e && !state->recording) {
    status = decide(&w, hash);
    if (status)
      return status;
    e = state->plans->entries;
  }
  if (e && e->plan.plan) {
    state->launches++;
    w.plan = &e->plan;
    w.graph = &e->graph;
  }
  return run_way(&w);
}

/* ---- what the other files call ---- */

static cyto_status hook_find(cuda_shared *shared, cyto_error *error) {
  const cyrt_cuda_model *code = shared->model->device_data;
  int32_t version = 0;
  cyto_status status =
      cyrt_cuda_check(&shared->driver, shared->driver.driver_version(&version), "cuDriverGetVersion", error);
  if (!status)
    status = cyrt_cudnn_find(version, &shared->cudnn, shared->why_not, error);
  if (status || shared->cudnn || !(code->flags & CYRT_CUDA_REQUIRE_CUDNN))
    return status;
  return cyrt_error_set(error, CYTO_NO_DEVICE,
                        "the model is compiled with --cudnn=require, but there is %s: install it (pip: "
                        "nvidia-cudnn-cu%d, Debian: 'cudnn9-cuda-%d'), let CYTO_CUDNN name its folder, or compile with "
                        "--cudnn=auto",
                        shared->why_not, version / 1000, version / 1000);
}

static void hook_release(cuda_shared *shared) { cyrt_cudnn_close(shared->cudnn); }

static cyto_status hook_device_open(cuda_shared *shared, cuda_device *device, cyto_error *error) {
  const cuda_driver *driver = &shared->driver;
  char name[100] = "?", about[300];
  int32_t version = 0;
  if (!shared->cudnn)
    return CYTO_OK;
  driver->device_name(name, sizeof name, device->handle);
  driver->driver_version(&version);
  name[strcspn(name, "\n")] = 0;
  snprintf(about, sizeof about, "%s, sm_%u, %d multiprocessors, driver %d, cuDNN %u", name, device->capability,
           device->multiprocessors, version, shared->cudnn->version);
  device->choices = cyrt_choices_open(about);
  return device->choices ? CYTO_OK
                         : cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for the choice of algorithms");
}

static void hook_device_close(cuda_device *device) { cyrt_choices_close(device->choices); }

static cyto_status hook_follow(cuda_state *state, cyto_error *error) {
  const cudnn *lib = state->shared->cudnn;
  return state->plans
             ? cyrt_cudnn_check(lib, lib->set_stream(state->plans->handle, state->stream), "cudnnSetStream", error)
             : CYTO_OK;
}

static cyto_status hook_open(cuda_state *state, cyto_error *error) {
  const cudnn *lib = state->shared->cudnn;
  if (!lib)
    return CYTO_OK;
  state->plans = calloc(1, sizeof *state->plans);
  if (!state->plans)
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for cuDNN's plans");
  cyto_status status = cyrt_cudnn_check(lib, lib->create(&state->plans->handle), "cudnnCreate", error);
  return status ? status : hook_follow(state, error);
}

static void hook_close(cuda_state *state) {
  cuda_plans *plans = state->plans;
  if (!plans)
    return;
  const cudnn *lib = state->shared->cudnn;
  for (entry *e = plans->entries, *next; e; e = next) {
    next = e->next;
    forget_plan(lib, &e->plan, &e->graph);
    free(e);
  }
  for (half_copy *h = plans->halves, *next; h; h = next) {
    next = h->next;
    cyrt_cuda_give(state, h->ptr);
    free(h);
  }
  if (plans->handle)
    lib->destroy(plans->handle);
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

static int hook_describe(const cuda_state *state, char *text, uint64_t capacity) {
  const cudnn *lib = state->shared->cudnn;
  int known[CYRT_PROBLEM_KINDS] = {0}, won[CYRT_PROBLEM_KINDS] = {0};
  char faster[200] = "";
  if (!lib)
    return snprintf(text, capacity, "; cuDNN is not used: %s", state->shared->why_not);
  for (const entry *e = state->plans->entries; e; e = e->next) {
    known[e->problem.kind]++;
    won[e->problem.kind] += e->plan.plan != NULL;
  }
  for (int i = 0; i < CYRT_PROBLEM_KINDS; i++) {
    const cyrt_cuda_problem kind = {.kind = i};
    size_t n = strlen(faster);
    if (known[i])
      snprintf(faster + n, sizeof faster - n, "%s%d of %d %s", n ? ", " : "", won[i], known[i],
               cyrt_cudnn_kind(&kind)->plural);
  }
  return snprintf(text, capacity, "; cuDNN %u.%u.%u (%s): faster for %s so far", lib->version / 10000,
                  lib->version / 100 % 100, lib->version % 100, lib->path, *faster ? faster : "nothing");
}

const struct cyrt_cuda_cudnn cyrt_cuda_cudnn = {
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
