/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cuda_trace.c - what a CUDA model compiled with --profile tells of its launches: to a recording, and to NVIDIA's tools.
 *
 * While the model is recorded, an event of the driver stands in front of each launch and behind it, and around the copies
 * of inputs and outputs; runs are launched step by step then. When the stream has done all of it, their times become
 * events of the recording, on the lane of the stream. The first of a run's events and the host's clock tell where they
 * lie among those of the host.
 * Where libnvToolsExt.so.1 is found, launches stand in ranges of NVTX with the names of their nodes, which Nsight shows;
 * runs are launched step by step then, too, as a recorded graph has no ranges.
 * Part of libraries compiled with --profile only (cyrt_cuda_model.trace).
 */
#define _GNU_SOURCE
#include "cyrt_cuda.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* A launch, or the copies of inputs or outputs. */
typedef struct mark {
  const cyrt_profile_row *row; /* NULL: copies */
  int64_t bytes, other;        /* of copies, of dynamic slots */
  int kind, done;
} mark;

struct cuda_timeline {
  cyrt_recorder *recorder; /* of the run under way; NULL: it is not recorded */
  void **events;           /* [2 * room + 1] of the driver: where it begins, then two for each mark */
  mark *marks;
  int64_t n, room;
  int64_t began; /* by the host's clock, when the first event was recorded */
  int64_t depth; /* of ranges */
};

/* ---- NVTX ---- */

static void nvtx_find(cuda_shared *shared) {
  shared->nvtx = dlopen("libnvToolsExt.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void *push = shared->nvtx ? dlsym(shared->nvtx, "nvtxRangePushA") : NULL;
  void *pop = shared->nvtx ? dlsym(shared->nvtx, "nvtxRangePop") : NULL;
  if (push && pop) {
    memcpy(&shared->nvtx_push, &push, sizeof push);
    memcpy(&shared->nvtx_pop, &pop, sizeof pop);
  }
}

static void nvtx_release(cuda_shared *shared) {
  if (shared->nvtx)
    dlclose(shared->nvtx);
}

/* ---- the timeline of a run ---- */

static int open_timeline(cuda_state *state) {
  state->timeline = calloc(1, sizeof *state->timeline);
  return state->timeline != NULL;
}

static void close_timeline(cuda_state *state) {
  struct cuda_timeline *t = state->timeline;
  for (int64_t i = 0; t && t->events && i < 2 * t->room + 1; i++)
    if (t->events[i])
      state->shared->driver.event_destroy(t->events[i]);
  if (t) {
    free(t->events);
    free(t->marks);
  }
  free(t);
  state->timeline = NULL;
}

static int grow(struct cuda_timeline *t) {
  int64_t room = 2 * t->room + 64;
  void **events = realloc(t->events, (size_t)(2 * room + 1) * sizeof *events);
  if (!events)
    return 0;
  int64_t had = t->events ? 2 * t->room + 1 : 0;
  memset(events + had, 0, (size_t)(2 * room + 1 - had) * sizeof *events);
  t->events = events;
  mark *marks = realloc(t->marks, (size_t)room * sizeof *marks);
  if (!marks)
    return 0;
  t->marks = marks;
  t->room = room;
  return 1;
}

/* Has the stream note when it comes here, as event number i. */
static int note(cuda_state *state, int64_t i) {
  const cuda_driver *driver = &state->shared->driver;
  struct cuda_timeline *t = state->timeline;
  if (!t->events[i] && driver->event_create(&t->events[i], 0))
    return 0;
  return !driver->event_record(t->events[i], state->stream);
}

static int64_t mark_begin(cuda_state *state, const cyrt_profile_row *row, int kind) {
  struct cuda_timeline *t = state->timeline;
  if (!t->recorder || state->recording || (t->n == t->room && !grow(t)))
    return 0;
  t->marks[t->n] = (mark){.row = row, .kind = kind};
  if (!note(state, 2 * t->n + 1))
    return 0;
  return ++t->n;
}

static void mark_end(cuda_state *state, int64_t number, int64_t bytes, int64_t other) {
  struct cuda_timeline *t = state->timeline;
  if (number <= 0 || number > t->n)
    return;
  mark *m = &t->marks[number - 1];
  m->bytes = bytes;
  m->other = other;
  m->done = note(state, 2 * number);
}

static int begin(cuda_state *state) {
  struct cuda_timeline *t = state->timeline;
  t->recorder = ((const cyrt_context_head *)state->host->context)->recorder;
  state->head.recorder = t->recorder;
  t->n = 0;
  state->moved_in = state->moved_out = 0;
  if (t->recorder && !state->captured) {
    if ((t->room || grow(t)) && note(state, 0))
      t->began = cyrt_os_now_ns();
    else
      t->recorder = NULL;
  }
  return t->recorder != NULL || state->shared->nvtx_push;
}

static int64_t copy_begin(cuda_state *state, int back) {
  return mark_begin(state, NULL, back ? CYRT_EVENT_OUT : CYRT_EVENT_IN);
}

static void copy_end(cuda_state *state, int64_t number, uint64_t bytes) { mark_end(state, number, (int64_t)bytes, 0); }

/* Hands over what the stream has done; what was not done by then is left out. */
static void end(cuda_state *state) {
  const cuda_driver *driver = &state->shared->driver;
  struct cuda_timeline *t = state->timeline;
  for (; t->depth > 0; t->depth--)
    state->shared->nvtx_pop();
  cyrt_recorder *r = state->head.recorder;
  state->head.recorder = NULL;
  if (r) {
    r->bytes_in = (int64_t)state->moved_in;
    r->bytes_out = (int64_t)state->moved_out;
  }
  if (!t->recorder || state->captured || driver->stream_wait(state->stream))
    return;
  int64_t last = t->began;
  for (int64_t i = 0; i < t->n; i++) {
    const mark *m = &t->marks[i];
    float from_ms = 0, ms = 0;
    if (!m->done || driver->event_elapsed(&from_ms, t->events[0], t->events[2 * i + 1]) ||
        driver->event_elapsed(&ms, t->events[2 * i + 1], t->events[2 * i + 2]))
      continue;
    int64_t start = t->began + (int64_t)((double)from_ms * 1e6), stop = start + (int64_t)((double)ms * 1e6);
    start = start < last ? last : start; /* clocks of events are coarse */
    stop = stop < start ? start : stop;
    cyrt_event event = {.row = m->row,
                        .start = start,
                        .end = last = stop,
                        .lane = (uintptr_t)state->stream,
                        .a = m->row ? 0 : m->bytes,
                        .b = m->row ? m->bytes : 0,
                        .kind = (int16_t)m->kind,
                        .stream = 1,
                        .other = m->other != 0};
    r->record(r, &event);
  }
  t->recorder = NULL;
}

const struct cyrt_cuda_trace cyrt_cuda_trace = {.find = nvtx_find,
                                                .release = nvtx_release,
                                                .open = open_timeline,
                                                .close = close_timeline,
                                                .begin = begin,
                                                .copy_begin = copy_begin,
                                                .copy_end = copy_end,
                                                .end = end};

/* ---- what generated code calls ---- */

int64_t cyrt_cuda_profile_start(cyrt_frame *frame, const cyrt_profile_row *row) {
  cuda_state *state = cuda_state_of(frame);
  struct cuda_timeline *t = state->timeline;
  if (state->shared->nvtx_push) {
    state->shared->nvtx_push(row->node && *row->node ? row->node : row->ops);
    t->depth++;
  }
  if (t->recorder) {
    t->recorder->open = row;
    t->recorder->open_start = cyrt_os_now_ns();
  }
  int64_t number = mark_begin(state, row, CYRT_EVENT_STEP);
  return number ? number : state->shared->nvtx_push ? -1 : 0;
}

void cyrt_cuda_profile_stop(cyrt_frame *frame, const cyrt_profile_row *row, int64_t start, int64_t other) {
  cuda_state *state = cuda_state_of(frame);
  struct cuda_timeline *t = state->timeline;
  (void)row;
  if (state->shared->nvtx_pop && t->depth > 0) {
    state->shared->nvtx_pop();
    t->depth--;
  }
  if (t->recorder)
    t->recorder->open = NULL;
  uint64_t dynamic = 0;
  for (uint32_t i = 0; i < state->model->n_dynamic; i++)
    dynamic += frame->dynamic[i].bytes;
  mark_end(state, start, (int64_t)dynamic, other);
}
