/* SPDX-License-Identifier: Apache-2.0 */
/* run.c - a fused node runs.
 *
 * In:  ONNX Runtime's tensors, which the library reads where they are.
 * Out: tensors that ONNX Runtime allocates in the shapes that the library tells, and the library writes to. Only outputs
 *      whose shape is known after running are copied.
 *
 * A context belongs to one run at a time: a unit keeps those it has made, and makes another when all are in use. Threads
 * are the session's own, by KernelContext_ParallelFor(), so that both kinds of nodes share them; those of the runtime where
 * the option `threads` says how many.  How many a session has, the interface does not tell: work is cut for all CPUs at
 * first, and then for as many threads as were seen to take part. Where ONNX Runtime has no nodes of its own, its threads
 * have nothing else to do: once they are known, as many of the runtime's, which start faster, take their place.
 */
#include "integrations/onnxruntime/plugin.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
  SEEN = 64,
  SETTLED = 2048
}; /* launches after which the threads that were seen count, and after which they are all */

/* Threads of the session's pool that were seen, the calling ones not counted. */
struct helpers {
  atomic_uint n, launches;
  _Atomic(uintptr_t) ids[CYTO_MAX_THREADS];
};

/* Who does the work of a run. threads 0: as many as there are CPUs. */
typedef struct crew {
  int32_t threads;
  bool own; /* of the runtime's pool */
} crew;

struct run {
  run *next;
  crew crew; /* that its context was made for */
  pthread_t caller;
  struct helpers *helpers;
  cyto_context *context;
  const ort_calls *ort;
  ort_kernel_context *now;
  bool planned;         /* for the shapes below */
  int64_t *dims;        /* [n_inputs][CYTO_MAX_RANK] of what is bound */
  cyto_tensor *outputs; /* [n_outputs] their shapes; dynamic ones are not set */
};

static int32_t code_of(cyto_status status) {
  switch (status) {
  case CYTO_INVALID_ARGUMENT:
  case CYTO_SHAPE_MISMATCH:
  case CYTO_DTYPE_MISMATCH:
    return ORT_INVALID_ARGUMENT;
  default:
    return ORT_RUNTIME_EXCEPTION;
  }
}

static ort_status *failed(const unit *u, cyto_status status, const cyto_error *error) {
  return plugin_error(u->ep->ort, code_of(status), "cytoc: %s",
                      error->message[0] ? error->message : cyto_status_name(status));
}

/* ---- threads ---- */

struct helpers *helpers_create(void) {
  return calloc(1, sizeof(struct helpers));
}

/* Two threads that come at once may both enter the same one: it counts once too often, and the work is cut smaller. */
static void meet(struct helpers *h, pthread_t thread) {
  uintptr_t id = (uintptr_t)thread;
  unsigned n = atomic_load_explicit(&h->n, memory_order_acquire);
  for (unsigned i = 0; i < n; i++)
    if (atomic_load_explicit(&h->ids[i], memory_order_relaxed) == id)
      return;
  if (n + 1 < CYTO_MAX_THREADS && atomic_compare_exchange_strong(&h->n, &n, n + 1))
    atomic_store_explicit(&h->ids[n], id, memory_order_relaxed);
}

static crew crew_of(const ep *e) {
  if (e->threads)
    return (crew){e->threads, true};
  unsigned launches = atomic_load_explicit(&e->helpers->launches, memory_order_relaxed);
  int32_t seen = (int32_t)atomic_load_explicit(&e->helpers->n, memory_order_relaxed);
  if (launches < (seen ? SEEN : SETTLED)) /* that nobody came may be because the machine was busy */
    return (crew){0, false};
  return (crew){seen + 1, e->alone && launches >= SETTLED};
}

typedef struct job {
  const run *run;
  cyto_task task;
  void *data;
} job;

static void call_task(void *user, size_t i) {
  const job *j = user;
  pthread_t self = pthread_self();
  if (!pthread_equal(self, j->run->caller))
    meet(j->run->helpers, self);
  j->task(j->data, (int64_t)i);
}

/* All tasks in this thread where the session's cannot be had. */
static void in_session(void *user, int64_t n, cyto_task task, void *data) {
  const run *r = user;
  job j = {r, task, data};
  atomic_fetch_add_explicit(&r->helpers->launches, 1, memory_order_relaxed);
  ort_status *status = r->ort->KernelContext_ParallelFor(r->now, call_task, (size_t)n, (size_t)n, &j);
  if (!status)
    return;
  r->ort->ReleaseStatus(status);
  for (int64_t i = 0; i < n; i++)
    task(data, i);
}

/* ---- contexts ---- */

static void run_release(run *r) {
  cyto_context_destroy(r->context);
  free(r->dims);
  free(r->outputs);
  free(r);
}

void runs_release(unit *u) {
  while (u->idle) {
    run *r = u->idle;
    u->idle = r->next;
    run_release(r);
  }
}

static ort_status *run_create(unit *u, run **out) {
  run *r = *out = calloc(1, sizeof *r);
  cyto_error error = {0};
  cyto_status status = CYTO_OUT_OF_MEMORY;
  if (!r)
    return failed(u, status, &error);
  r->ort = u->ep->ort;
  r->helpers = u->ep->helpers;
  r->crew = crew_of(u->ep);
  r->dims = calloc(u->n_inputs + 1, CYTO_MAX_RANK * sizeof *r->dims);
  r->outputs = calloc(u->n_outputs + 1, sizeof *r->outputs);
  cyto_options options = {.threads = r->crew.threads};
  if (!r->crew.own) {
    options.parallel = in_session;
    options.parallel_user = r;
  }
  if (r->dims && r->outputs && !(status = cyto_context_create(u->model, &options, &r->context, &error)))
    return NULL;
  run_release(r);
  return failed(u, status, &error);
}

static ort_status *run_take(unit *u, run **out) {
  pthread_mutex_lock(&u->lock);
  run *r = *out = u->idle;
  if (r)
    u->idle = r->next;
  pthread_mutex_unlock(&u->lock);
  crew wanted = crew_of(u->ep);
  if (r && r->crew.threads == wanted.threads && r->crew.own == wanted.own)
    return NULL;
  if (r)
    run_release(r);
  return run_create(u, out);
}

static void run_give(unit *u, run *r) {
  pthread_mutex_lock(&u->lock);
  r->next = u->idle;
  u->idle = r;
  pthread_mutex_unlock(&u->lock);
}

/* ---- inputs ---- */

typedef struct view {
  int32_t dtype;
  size_t rank;
  int64_t dims[CYTO_MAX_RANK];
  const void *data;
} view;

static ort_status *read_shape(const ort_calls *ort, const ort_value *value, view *v) {
  ort_tensor_info *info = NULL;
  ort_status *status = ort->GetTensorTypeAndShape(value, &info);
  if (status)
    return status;
  if (!(status = ort->GetTensorElementType(info, &v->dtype)) && !(status = ort->GetDimensionsCount(info, &v->rank)) &&
      v->rank && v->rank <= CYTO_MAX_RANK)
    status = ort->GetDimensions(info, v->dims, v->rank);
  ort->ReleaseTensorTypeAndShapeInfo(info);
  return status;
}

/* The same without allocating, from 1.24 on. */
static ort_status *refer_to_shape(const ort_calls *ort, const ort_value *value, view *v) {
  const int64_t *dims = NULL;
  ort_status *status = ort->GetTensorElementTypeAndShapeDataReference(value, &v->dtype, &dims, &v->rank);
  if (!status && v->rank && v->rank <= CYTO_MAX_RANK)
    memcpy(v->dims, dims, v->rank * sizeof *dims);
  return status;
}

static ort_status *read_input(const unit *u, ort_kernel_context *now, size_t at, const char *name, view *v) {
  static const uint64_t nothing[8]; /* what a tensor without elements points to */
  const ort_calls *ort = u->ep->ort;
  const ort_value *value = NULL;
  ort_status *status = ort->KernelContext_GetInput(now, at, &value);
  if (status)
    return status;
  if (!value)
    return plugin_error(ort, ORT_INVALID_ARGUMENT, "cytoc: input '%s' is missing", name);
  status = ort->GetTensorElementTypeAndShapeDataReference ? refer_to_shape(ort, value, v) : read_shape(ort, value, v);
  if (!status && v->rank > CYTO_MAX_RANK)
    status = plugin_error(ort, ORT_INVALID_ARGUMENT, "cytoc: input '%s' has %zu dims, at most %d are possible", name,
                          v->rank, CYTO_MAX_RANK);
  if (!status)
    status = ort->GetTensorData(value, &v->data);
  if (!v->data)
    v->data = nothing;
  return status;
}

static ort_status *bind_inputs(const compute *c, run *r) {
  const unit *u = c->unit;
  cyto_error error;
  for (size_t i = 0; i < u->n_inputs; i++) {
    view v = {0};
    ort_status *status = read_input(u, r->now, c->inputs[i], u->inputs[i], &v);
    if (status)
      return status;
    int64_t *dims = &r->dims[i * CYTO_MAX_RANK];
    if (memcmp(dims, v.dims, v.rank * sizeof *dims)) {
      memcpy(dims, v.dims, v.rank * sizeof *dims);
      r->planned = false;
    }
    int32_t dtype = dtype_of_ort(v.dtype);
    cyto_status bound = cyto_bind_input(r->context, (int32_t)i, dtype, (int32_t)v.rank, v.dims, v.data, &error);
    if (bound)
      return failed(u, bound, &error);
  }
  return NULL;
}

/* ---- outputs ---- */

/* The shapes that follow from those of the inputs; until then no output is bound. */
static ort_status *plan(const unit *u, run *r) {
  cyto_error error = {0};
  cyto_status status = CYTO_OK;
  for (size_t i = 0; !status && i < u->n_outputs; i++)
    status = cyto_bind_output(r->context, (int32_t)i, NULL, 0, &error);
  if (!status)
    status = cyto_context_prepare(r->context, &error);
  for (size_t i = 0; !status && i < u->n_outputs; i++)
    if (!u->dynamic[i])
      status = cyto_output(r->context, (int32_t)i, &r->outputs[i], &error);
  r->planned = !status;
  return status ? failed(u, status, &error) : NULL;
}

static ort_status *make_output(const unit *u, ort_kernel_context *now, size_t at, const cyto_tensor *t, void **data) {
  ort_value *value = NULL;
  ort_status *status = u->ep->ort->KernelContext_GetOutput(now, at, t->dims, (size_t)t->rank, &value);
  if (status)
    return status;
  if (!value)
    return plugin_error(u->ep->ort, ORT_FAIL, "cytoc: ONNX Runtime gives no memory for output %zu", at);
  return u->ep->ort->GetTensorMutableData(value, data);
}

static ort_status *bind_outputs(const compute *c, run *r) {
  const unit *u = c->unit;
  cyto_error error;
  for (size_t i = 0; i < u->n_outputs; i++) {
    void *data = NULL;
    const cyto_tensor *t = &r->outputs[i];
    if (u->dynamic[i])
      continue;
    ort_status *status = make_output(u, r->now, c->outputs[i], t, &data);
    if (status)
      return status;
    if (!t->bytes)
      continue;
    cyto_status bound = cyto_bind_output(r->context, (int32_t)i, data, t->bytes, &error);
    if (bound)
      return failed(u, bound, &error);
  }
  return NULL;
}

static ort_status *copy_outputs(const compute *c, run *r) {
  const unit *u = c->unit;
  cyto_error error;
  for (size_t i = 0; i < u->n_outputs; i++) {
    void *data = NULL;
    cyto_tensor t;
    if (!u->dynamic[i])
      continue;
    cyto_status got = cyto_output(r->context, (int32_t)i, &t, &error);
    if (got)
      return failed(u, got, &error);
    ort_status *status = make_output(u, r->now, c->outputs[i], &t, &data);
    if (status)
      return status;
    if (t.bytes)
      memcpy(data, t.data, t.bytes);
  }
  return NULL;
}

static ort_status *run_now(const compute *c, run *r) {
  cyto_error error;
  ort_status *status = bind_inputs(c, r);
  if (!status && !r->planned)
    status = plan(c->unit, r);
  if (!status)
    status = bind_outputs(c, r);
  if (status)
    return status;
  cyto_status ran = cyto_run(r->context, &error);
  return ran ? failed(c->unit, ran, &error) : copy_outputs(c, r);
}

ort_status *compute_run(ort_compute *self, void *state, ort_kernel_context *context) {
  (void)state;
  compute *c = (compute *)self;
  run *r = NULL;
  ort_status *status = run_take(c->unit, &r);
  if (status)
    return status;
  r->now = context;
  r->caller = pthread_self();
  status = run_now(c, r);
  if (status)
    r->planned = false;
  run_give(c->unit, r);
  return status;
}
