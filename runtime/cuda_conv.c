/* cuda_conv.c - convolutions that cuDNN may compute: whichever is faster on this device, it or our own kernel.
 *
 * Every convolution has a kernel of its own; where it has the form relu(conv + bias + residual), and cuDNN is found, it
 * is cuDNN's to win. The first run of a context with a convolution of new sizes asks cuda_choices.c; only when that
 * does not know, the kernel and cuDNN's first few plans are timed on the stream, on the run's own tensors but a scratch
 * output, and the choice is kept. Plans belong to the context, as its cuDNN handle does. While a run is recorded
 * nothing is decided: the run before, launch by launch, decided all.
 */
#include "cyrt_cudnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OWN = -1, WARM_UPS = 2, RUNS = 8, TIMED_PLANS = 4, ALIGNMENT = 16, MAX_SLOTS = 512, ATTRIBUTE_SMS = 16 };

/* One convolution of the model with the sizes it had. */
typedef struct entry {
  struct entry *next;
  uint64_t hash;
  uint32_t kernel;
  cyrt_cuda_conv conv;
  cudnn_plan plan;   /* of the choice; none: our own kernel */
  cudnn_graph graph; /* what the plan was made of */
} entry;

typedef struct cuda_convs { /* of a context */
  void *handle;
  entry *entries;
  cuda_block workspace;
  int32_t decided; /* since choices were saved */
} cuda_convs;

/* ---- what is run ---- */

/* Where each tensor's first element is. */
static void locate(const cyrt_slot *slots, const cyrt_cuda_conv *c, void *pointers[CYRT_CONV_TENSORS]) {
  for (int i = 0; i < CYRT_CONV_TENSORS; i++) {
    const cyrt_cuda_tensor *t = &c->tensor[i];
    pointers[i] = t->slot < 0 ? NULL : (uint8_t *)slots[t->slot].ptr + t->offset * cyrt_cudnn_element(t->dtype);
  }
}

static int is_aligned(const cyrt_cuda_conv *c, void *const pointers[CYRT_CONV_TENSORS]) {
  for (int i = 0; i < CYRT_CONV_TENSORS; i++)
    if (c->tensor[i].slot >= 0 && (uintptr_t)pointers[i] % ALIGNMENT)
      return 0;
  return 1;
}

/* One way to compute a convolution, to be timed or run. */
typedef struct way {
  cyrt_frame *frame;
  uint32_t kernel;
  const cyrt_slot *slots;
  int64_t blocks;
  const cyrt_cuda_conv *conv;
  void *const *pointers;
  const cudnn_plan *plan; /* NULL: our own kernel */
} way;

static int32_t run_way(const way *w) {
  cuda_state *state = cuda_state_of(w->frame);
  const cudnn *lib = state->shared->cudnn;
  if (!w->plan)
    return cyrt_cuda_launch(w->frame, w->kernel, w->slots, w->blocks);
  void *workspace = w->plan->workspace ? (void *)(uintptr_t)state->convs->workspace.ptr : NULL;
  cudnn_code code = cyrt_cudnn_plan_run(lib, state->convs->handle, w->plan, w->conv, w->pointers, workspace);
  return cyrt_cudnn_check(lib, code, "cudnnBackendExecute", w->frame->error);
}

/* ---- timing ---- */

static int32_t time_between(const way *w, void *from, void *to, double *out_us) {
  cuda_state *state = cuda_state_of(w->frame);
  const cuda_driver *driver = &state->shared->driver;
  float ms = 0;
  int32_t status = CYTO_OK;
  for (int i = 0; i < WARM_UPS && !status; i++)
    status = run_way(w);
  cuda_code code = status ? 0 : driver->event_record(from, state->stream);
  for (int i = 0; i < RUNS && !status; i++)
    status = run_way(w);
  if (status)
    return status;
  if (!code)
    code = driver->event_record(to, state->stream);
  if (!code)
    code = driver->event_wait(to);
  if (!code)
    code = driver->event_elapsed(&ms, from, to);
  *out_us = (double)ms * 1000 / RUNS;
  return cyrt_cuda_check(driver, code, "timing a convolution", w->frame->error);
}

static int32_t time_way(const way *w, double *out_us) {
  cuda_state *state = cuda_state_of(w->frame);
  const cuda_driver *driver = &state->shared->driver;
  void *events[2] = {NULL, NULL};
  cuda_code code = driver->event_create(&events[0], 0);
  if (!code)
    code = driver->event_create(&events[1], 0);
  int32_t status = cyrt_cuda_check(driver, code, "cuEventCreate", w->frame->error);
  if (!status)
    status = time_between(w, events[0], events[1], out_us);
  for (int i = 0; i < 2; i++)
    if (events[i])
      driver->event_destroy(events[i]);
  return status;
}

/* Bytes from the first to the last element of the output. */
static uint64_t output_span(const cyrt_cuda_conv *c) {
  const cyrt_cuda_tensor *y = &c->tensor[CYRT_CONV_Y];
  int64_t last = (c->images - 1) * y->image + c->channels_out;
  for (int i = 0; i < c->nspatial; i++)
    last += (c->out[i] - 1) * y->spatial[i];
  return (uint64_t)(last * cyrt_cudnn_element(y->dtype));
}

/* ---- plans of one convolution ---- */

typedef struct search {
  way w; /* with a scratch output while ways are timed */
  cudnn_graph graph;
  double own_us, best_us;
  int32_t best; /* OWN, or a candidate */
  cudnn_plan plan;
} search;

static int32_t grow_workspace(search *s, int64_t bytes) {
  cuda_state *state = cuda_state_of(s->w.frame);
  return bytes <= 0 ? CYTO_OK
                    : cyrt_cuda_block_grow(state, &state->convs->workspace, (uint64_t)bytes, "cuDNN's workspace",
                                           s->w.frame->error);
}

/* An engine that cannot make a plan, or whose plan fails, is passed over: there are others, and our own kernel. */
static int32_t try_candidate(search *s, int32_t candidate, int *timed) {
  cuda_state *state = cuda_state_of(s->w.frame);
  const cudnn *lib = state->shared->cudnn;
  cudnn_plan plan;
  double us = 0;
  if (cyrt_cudnn_plan_init(lib, state->convs->handle, &s->graph, candidate, &plan))
    return CYTO_OK;
  int32_t status = grow_workspace(s, plan.workspace);
  s->w.plan = &plan;
  if (!status && !time_way(&s->w, &us)) {
    ++*timed;
    if (us < s->best_us) {
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
  int32_t status = time_way(&s->w, &s->own_us);
  s->best_us = s->own_us;
  for (int32_t i = 0; i < s->graph.n_candidates && timed < TIMED_PLANS && !status; i++)
    status = try_candidate(s, i, &timed);
  return status;
}

/* The own kernel and the plans write to scratch memory meanwhile: what follows reads the output once. */
static int32_t time_on_scratch(search *s) {
  cuda_state *state = cuda_state_of(s->w.frame);
  const cyrt_cuda_tensor *y = &s->w.conv->tensor[CYRT_CONV_Y];
  cyrt_slot slots[MAX_SLOTS];
  void *pointers[CYRT_CONV_TENSORS];
  cuda_ptr scratch = 0;
  int32_t status = cyrt_cuda_get(&state->shared->driver, &scratch, output_span(s->w.conv), "timing a convolution",
                                 s->w.frame->error);
  if (status)
    return status;
  memcpy(slots, s->w.slots, state->code->kernels[s->w.kernel].slots * sizeof *slots);
  memcpy(pointers, s->w.pointers, sizeof pointers);
  slots[y->slot].ptr = (void *)(uintptr_t)(scratch - (uint64_t)(y->offset * cyrt_cudnn_element(y->dtype)));
  pointers[CYRT_CONV_Y] = (void *)(uintptr_t)scratch;
  way real = s->w;
  s->w.slots = slots;
  s->w.pointers = pointers;
  status = time_all(s);
  s->w = real;
  state->shared->driver.mem_free(scratch);
  return status;
}

/* ---- choosing ---- */

/* What a choice rests on, besides the device and cuDNN: the problem, and our kernel's code. */
static uint64_t key_of(const cuda_state *state, uint32_t kernel, const cyrt_cuda_conv *conv) {
  const cyrt_cuda_kernel *k = &state->code->kernels[kernel];
  const cyrt_cuda_image *image = NULL;
  cyrt_cuda_conv problem = *conv;
  uint64_t parts[3];
  for (int i = 0; i < CYRT_CONV_TENSORS; i++) {
    problem.tensor[i].slot = problem.tensor[i].slot >= 0;
    problem.tensor[i].offset = 0;
  }
  cyrt_cuda_image_choose(&state->shared->driver, state->device, k->images, &image, NULL);
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
      !cyrt_cudnn_plan_init(state->shared->cudnn, state->convs->handle, &s->graph, s->best, &s->plan) &&
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
  cudnn_code code = cyrt_cudnn_graph_init(lib, state->convs->handle, s->w.conv, &s->graph, &call);
  if (!code)
    code = cyrt_cudnn_graph_candidates(lib, s->w.conv, &s->graph, &call);
  int32_t status = cyrt_cudnn_unsupported(code) ? CYTO_OK : cyrt_cudnn_check(lib, code, call, s->w.frame->error);
  if (!status && !code && !take_known(s, key)) {
    status = time_on_scratch(s);
    if (!status)
      cyrt_choices_add(state->device->choices, key, s->best, s->own_us, s->best_us);
  }
  return status;
}

static uint64_t hash_of(uint32_t kernel, const cyrt_cuda_conv *conv) {
  const int64_t *words = (const int64_t *)conv;
  uint64_t h = 14695981039346656037u ^ kernel;
  for (size_t i = 0; i < sizeof *conv / sizeof *words; i++)
    h = (h ^ (uint64_t)words[i]) * 1099511628211u;
  return h;
}

static const entry *find_entry(const cuda_convs *convs, uint64_t hash, uint32_t kernel, const cyrt_cuda_conv *conv) {
  for (const entry *e = convs->entries; e; e = e->next)
    if (e->hash == hash && e->kernel == kernel && !memcmp(&e->conv, conv, sizeof *conv))
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
  cuda_convs *convs = cuda_state_of(w->frame)->convs;
  search s = {.w = *w, .best = OWN};
  int32_t status = choose(&s, key_of(cuda_state_of(w->frame), w->kernel, w->conv));
  entry *e = status ? NULL : calloc(1, sizeof *e);
  if (!e || !s.plan.plan)
    forget_plan(cuda_state_of(w->frame)->shared->cudnn, &s.plan, &s.graph);
  if (!e)
    return status ? status : cyrt_fail(w->frame, CYTO_OUT_OF_MEMORY, "no memory for a convolution's plan");
  *e = (entry){convs->entries, hash, w->kernel, *w->conv, s.plan, s.graph};
  convs->entries = e;
  convs->decided++;
  return CYTO_OK;
}

int32_t cyrt_cuda_conv_launch(cyrt_frame *frame, uint32_t kernel, const cyrt_slot *slots, int64_t blocks,
                              const cyrt_cuda_conv *conv) {
  cuda_state *state = cuda_state_of(frame);
  void *pointers[CYRT_CONV_TENSORS];
  way w = {frame, kernel, slots, blocks, conv, pointers, NULL};
  if (!state->convs || state->code->kernels[kernel].slots > MAX_SLOTS)
    return run_way(&w);
  locate(slots, conv, pointers);
  if (!cyrt_cudnn_takes(conv) || !is_aligned(conv, pointers))
    return run_way(&w);
  uint64_t hash = hash_of(kernel, conv);
  const entry *e = find_entry(state->convs, hash, kernel, conv);
  if (!e && !state->recording) {
    int32_t status = decide(&w, hash);
    if (status)
      return status;
    e = state->convs->entries;
  }
  w.plan = e && e->plan.plan ? &e->plan : NULL;
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
  int32_t sms = 0, version = 0;
  if (!shared->cudnn)
    return CYTO_OK;
  driver->device_name(name, sizeof name, device->handle);
  driver->device_attribute(&sms, ATTRIBUTE_SMS, device->handle);
  driver->driver_version(&version);
  name[strcspn(name, "\n")] = 0;
  snprintf(about, sizeof about, "%s, sm_%u, %d multiprocessors, driver %d, cuDNN %u", name, device->capability, sms,
           version, shared->cudnn->version);
  device->choices = cyrt_choices_open(about);
  return device->choices ? CYTO_OK
                         : cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for the choice of algorithms");
}

static void hook_device_close(cuda_device *device) { cyrt_choices_close(device->choices); }

static cyto_status hook_open(cuda_state *state, cyto_error *error) {
  const cudnn *lib = state->shared->cudnn;
  if (!lib)
    return CYTO_OK;
  state->convs = calloc(1, sizeof *state->convs);
  if (!state->convs)
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for cuDNN's plans");
  cyto_status status = cyrt_cudnn_check(lib, lib->create(&state->convs->handle), "cudnnCreate", error);
  return status ? status
                : cyrt_cudnn_check(lib, lib->set_stream(state->convs->handle, state->stream), "cudnnSetStream", error);
}

static void hook_close(cuda_state *state) {
  cuda_convs *convs = state->convs;
  if (!convs)
    return;
  const cudnn *lib = state->shared->cudnn;
  for (entry *e = convs->entries, *next; e; e = next) {
    next = e->next;
    forget_plan(lib, &e->plan, &e->graph);
    free(e);
  }
  if (convs->handle)
    lib->destroy(convs->handle);
  if (convs->workspace.ptr)
    state->shared->driver.mem_free(convs->workspace.ptr);
  free(convs);
  state->convs = NULL;
}

static uint64_t hook_workspace(const cuda_state *state) { return state->convs ? state->convs->workspace.ptr : 0; }

static void hook_settle(cuda_state *state) {
  if (state->convs && state->convs->decided)
    cyrt_choices_save(state->device->choices);
  if (state->convs)
    state->convs->decided = 0;
}

static int hook_describe(const cuda_state *state, char *text, uint64_t capacity) {
  const cudnn *lib = state->shared->cudnn;
  int known = 0, won = 0;
  if (!lib)
    return snprintf(text, capacity, "; cuDNN is not used: %s", state->shared->why_not);
  for (const entry *e = state->convs->entries; e; e = e->next) {
    known++;
    won += e->plan.plan != NULL;
  }
  return snprintf(text, capacity, "; cuDNN %u.%u.%u (%s): faster for %d of %d convolutions so far",
                  lib->version / 10000, lib->version / 100 % 100, lib->version % 100, lib->path, won, known);
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
};
