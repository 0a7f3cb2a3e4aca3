/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* trace.c - recordings of a model: beginning and ending one, and what its contexts' runs put into it.
 *
 * In: a model compiled with --profile, whose code calls trace_step.c. Out: for each context that runs a recorder with its
 * events in chunks, its runs, and sums over each row of the program.
 * Threads.  A recorder belongs to a context, hence to one thread at a time: a run writes without a lock. Recorders join
 *   the recording by one compare-and-swap. A recording that ends waits for the runs that are in it; its memory stays until
 *   the next one begins or the model is unloaded, so contexts may go first.
 */
#include "trace.h"

#include <stdlib.h>
#include <string.h>

enum { USUAL_EVENTS = 1 << 20, ALIGN = 64 };

/* ---- events ---- */

/* NULL: no more are kept. */
static cyrt_event *event_new(trace_recorder *r) {
  trace *t = r->trace;
  if (!r->last || r->last->n == TRACE_CHUNK) {
    if (atomic_fetch_sub(&t->room, TRACE_CHUNK) < TRACE_CHUNK) {
      atomic_fetch_add(&t->room, TRACE_CHUNK);
      return NULL;
    }
    trace_chunk *chunk = malloc(sizeof *chunk);
    if (!chunk)
      return NULL;
    chunk->next = NULL;
    chunk->n = 0;
    *(r->last ? &r->last->next : &r->first) = chunk;
    r->last = chunk;
  }
  return &r->last->events[r->last->n++];
}

static int64_t dynamic_bytes(const cyto_context *context) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < context->model->code->n_dynamic; i++)
    bytes += context->frame.dynamic[i].bytes;
  return (int64_t)bytes;
}

static void sum_up(trace_recorder *r, const cyrt_event *event) {
  trace_sum *sum = &r->sums[event->row->number];
  int first = r->n_runs == 1;
  *(first ? &sum->first_runs : &sum->runs) += 1;
  *(first ? &sum->first_ns : &sum->ns) += event->end - event->start;
  sum->other |= event->other;
}

static void record(cyrt_recorder *head, const cyrt_event *event) {
  trace_recorder *r = (trace_recorder *)head;
  if (event->kind == CYRT_EVENT_STEP) {
    head->open = NULL;
    sum_up(r, event);
  }
  cyrt_event *to = event_new(r);
  if (!to) {
    atomic_fetch_add(&r->trace->dropped, 1);
    return;
  }
  *to = *event;
  if (event->kind != CYRT_EVENT_STEP)
    return;
  to->a = r->alive[event->row->position];
  to->b += dynamic_bytes(r->context);
}

/* ---- recorders ---- */

static void recorder_free(trace_recorder *r) {
  for (trace_chunk *chunk = r->first, *next; chunk; chunk = next) {
    next = chunk->next;
    free(chunk);
  }
  for (int64_t i = 0; i < r->n_runs && i < r->runs_room; i++)
    free(r->runs[i].failure);
  cyrt_os_free(r->head.pieces);
  free(r->runs);
  free(r->sums);
  free(r->sizes);
  free(r->last_sizes);
  free(r->alive);
  free(r);
}

static trace_recorder *recorder_create(trace *t, const cyto_context *context) {
  const cyrt_profile *profile = t->code->profile;
  size_t rows = (size_t)profile->n_rows + 1, buffers = (size_t)profile->n_buffers + 1;
  int64_t workers = context->device ? 1 : context->frame.workers;
  trace_recorder *r = calloc(1, sizeof *r);
  if (!r)
    return NULL;
  r->head.record = record;
  r->head.pieces = cyrt_os_alloc((size_t)workers * sizeof *r->head.pieces, ALIGN);
  r->sums = calloc(rows, sizeof *r->sums);
  r->sizes = calloc(buffers, sizeof *r->sizes);
  r->last_sizes = calloc(buffers, sizeof *r->last_sizes);
  r->alive = calloc((size_t)t->positions + 2, sizeof *r->alive);
  if (!r->head.pieces || !r->sums || !r->sizes || !r->last_sizes || !r->alive) {
    recorder_free(r);
    return NULL;
  }
  r->trace = t;
  r->workers = workers;
  r->number = atomic_fetch_add(&t->contexts, 1);
  r->next = atomic_load(&t->recorders);
  while (!atomic_compare_exchange_weak(&t->recorders, &r->next, r))
    ;
  return r;
}

static trace_recorder *recorder_of(trace *t, cyto_context *context) {
  if (context->recording != t->generation) {
    context->recorder = recorder_create(t, context);
    context->recording = context->recorder ? t->generation : 0;
  }
  return context->recorder;
}

/* The place of a run that begins; NULL: the list has none for it. */
static trace_run *run_new(trace_recorder *r) {
  int64_t room = r->runs_room;
  if (r->n_runs++ == room && room < USUAL_EVENTS) {
    trace_run *runs = realloc(r->runs, (size_t)(2 * room + 16) * sizeof *runs);
    if (runs) {
      r->runs = runs;
      r->runs_room = 2 * room + 16;
    }
  }
  if (r->n_runs > r->runs_room)
    return NULL;
  trace_run *run = &r->runs[r->n_runs - 1];
  memset(run, 0, sizeof *run);
  return run;
}

/* ---- runs ---- */

static void run_over(trace *t) {
  if (atomic_fetch_sub(&t->active, 1) == 1 && !atomic_load(&t->recording))
    cyrt_os_wake(&t->active);
}

static int enter(cyrt_trace *head, cyto_context *context, int64_t start) {
  trace *t = (trace *)head;
  if (!atomic_load(&t->recording))
    return 0;
  atomic_fetch_add(&t->active, 1);
  trace_recorder *r = atomic_load(&t->recording) ? recorder_of(t, context) : NULL;
  if (!r) {
    run_over(t);
    return 0;
  }
  run_new(r);
  r->run_start = start;
  r->lane = cyrt_os_thread_number();
  r->context = context;
  r->head.open = NULL;
  r->head.bytes_in = r->head.bytes_out = 0;
  context->head.recorder = &r->head;
  return 1;
}

/* How many bytes of the arena are alive at each step, once the sizes of its buffers are known. */
static void planned(cyrt_trace *head, cyto_context *context) {
  trace *t = (trace *)head;
  trace_recorder *r = context->recorder;
  const cyrt_profile *profile = t->code->profile;
  context->frame.sizes = r->sizes;
  int32_t status = profile->sizes(&context->frame);
  context->frame.sizes = NULL;
  size_t bytes = (size_t)profile->n_buffers * sizeof *r->sizes;
  if (status || !memcmp(r->sizes, r->last_sizes, bytes))
    return;
  memcpy(r->last_sizes, r->sizes, bytes);
  memset(r->alive, 0, ((size_t)t->positions + 2) * sizeof *r->alive);
  for (int64_t i = 0; i < profile->n_buffers; i++) {
    int64_t size = (r->sizes[i] + ALIGN - 1) / ALIGN * ALIGN;
    if (profile->buffers[i].first < 0)
      continue;
    r->alive[profile->buffers[i].first] += size;
    r->alive[profile->buffers[i].last + 1] -= size;
  }
  for (int64_t i = 1; i <= t->positions; i++)
    r->alive[i] += r->alive[i - 1];
}

static char *copy_text(const char *text) {
  size_t n = strlen(text) + 1;
  char *copy = malloc(n);
  return copy ? memcpy(copy, text, n) : NULL;
}

static void leave(cyrt_trace *head, cyto_context *context, cyto_status status, const cyto_error *error) {
  trace *t = (trace *)head;
  trace_recorder *r = context->recorder;
  cyrt_event event = {.end = cyrt_os_now_ns(), .lane = r->lane};
  if (r->head.open) { /* what failed */
    event.row = r->head.open;
    event.start = r->head.open_start;
    event.kind = CYRT_EVENT_STEP;
    event.failed = 1;
    record(&r->head, &event);
    event.row = NULL;
  }
  event.start = r->run_start;
  event.kind = CYRT_EVENT_RUN;
  event.a = r->n_runs - 1;
  event.b = status;
  event.failed = status != CYTO_OK;
  record(&r->head, &event);
  if (r->n_runs <= r->runs_room) {
    const char *why = error && error->code ? error->message : cyto_status_name(status);
    r->runs[r->n_runs - 1] = (trace_run){context->frame.arena_bytes, (uint64_t)r->head.bytes_in,
                                         (uint64_t)r->head.bytes_out, status ? copy_text(why) : NULL};
  }
  context->head.recorder = NULL;
  r->context = NULL;
  run_over(t);
}

/* ---- the recording ---- */

static void forget(trace *t) {
  for (trace_recorder *r = atomic_load(&t->recorders), *next; r; r = next) {
    next = r->next;
    recorder_free(r);
  }
  atomic_store(&t->recorders, NULL);
}

static void release(cyrt_trace *head) {
  forget((trace *)head);
  free(head);
}

/* The model's, made when first asked for; NULL: no memory. */
static trace *trace_of(cyto_model *model) {
  cyrt_trace *found = __atomic_load_n(&model->trace, __ATOMIC_ACQUIRE);
  const cyrt_profile *profile = model->code->profile;
  if (found)
    return (trace *)found;
  trace *t = calloc(1, sizeof *t);
  if (!t)
    return NULL;
  t->head = (cyrt_trace){enter, planned, leave, release};
  t->code = model->code;
  for (int64_t i = 0; i < profile->n_rows; i++)
    t->positions = profile->rows[i]->position > t->positions ? profile->rows[i]->position : t->positions;
  for (int64_t i = 0; i < profile->n_buffers; i++)
    t->positions = profile->buffers[i].last > t->positions ? profile->buffers[i].last : t->positions;
  if (__atomic_compare_exchange_n(&model->trace, &found, &t->head, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return t;
  free(t);
  return (trace *)found;
}

/* Nanoseconds of a cycle: a chain of multiplications and additions, four cycles a link on every x86-64 of this century. */
static double measure_cycle(void) {
  enum { LINKS = 50000, TURNS = 9 };
  int64_t min = INT64_MAX;
  for (int turn = 0; turn < TURNS; turn++) {
    int64_t start = cyrt_os_now_ns();
    uint64_t x = (uint64_t)start;
    for (int i = 0; i < LINKS; i++) {
      x = x * 6364136223846793005u + 1442695040888963407u;
      __asm__ volatile("" : "+r"(x)); /* no link may be computed ahead */
    }
    int64_t taken = cyrt_os_now_ns() - start;
    min = taken < min ? taken : min;
  }
  return (double)min / (4.0 * LINKS);
}

static cyto_status not_profiled(const cyto_model *model, cyto_error *error) {
  return cyrt_error_set(error, CYTO_INVALID_ARGUMENT,
                        "model '%s' cannot be recorded, it does not count the time of its steps: compile it by cytoc "
                        "--profile",
                        cyto_model_name(model));
}

cyto_status cyto_trace_start(cyto_model *model, int64_t events, cyto_error *error) {
  cyrt_error_clear(error);
  if (!model || events < -1)
    return cyrt_error_null(error, "cyto_trace_start: no model, or a number of events below -1");
  if (!model->code->profile)
    return not_profiled(model, error);
  trace *t = trace_of(model);
  if (!t)
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for a recording");
  cyrt_lock_take(&t->lock);
  int already = (int)atomic_load(&t->recording);
  if (!already) {
    forget(t);
    t->generation++;
    t->began = cyrt_os_now_ns();
    int64_t room = events == 0 ? USUAL_EVENTS : events < 0 ? 0 : events;
    atomic_store(&t->room,
                 room < INT64_MAX - TRACE_CHUNK ? (room + TRACE_CHUNK - 1) / TRACE_CHUNK * TRACE_CHUNK : room);
    atomic_store(&t->dropped, 0);
    atomic_store(&t->contexts, 0);
    atomic_store(&t->recording, 1);
  }
  cyrt_lock_give(&t->lock);
  return already ? cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "model '%s' is being recorded already",
                                  cyto_model_name(model))
                 : CYTO_OK;
}

cyto_status cyto_trace_stop(cyto_model *model, cyto_error *error) {
  cyrt_error_clear(error);
  trace *t = model ? (trace *)__atomic_load_n(&model->trace, __ATOMIC_ACQUIRE) : NULL;
  if (!t)
    return cyrt_error_set(error, CYTO_NOT_READY, "no recording has begun");
  cyrt_lock_take(&t->lock);
  unsigned was = atomic_exchange(&t->recording, 0), active;
  while ((active = atomic_load(&t->active)))
    cyrt_os_wait(&t->active, active);
  if (was) {
    t->ended = cyrt_os_now_ns();
    t->cycle_ns = t->code->device ? 1 : measure_cycle();
  }
  cyrt_lock_give(&t->lock);
  return was ? CYTO_OK : cyrt_error_set(error, CYTO_NOT_READY, "no recording has begun");
}

/* ---- sums ---- */

int64_t cyto_trace_step_count(const cyto_model *model) {
  return model && model->code->profile ? model->code->profile->n_rows : 0;
}

/* With the lock held: a recording that begins forgets these. */
static void add_sums(trace *t, int64_t index, cyto_trace_sums *out_sums) {
  const cyrt_profile_row *row = t->code->profile->rows[index];
  *out_sums = (cyto_trace_sums){.node = row->node,
                                .ops = row->ops,
                                .algorithm = row->algorithm,
                                .kernel = row->kernel,
                                .flops = row->flops,
                                .bytes = row->bytes,
                                .floor_ns = row->floor * t->cycle_ns,
                                .assumed = row->assumed,
                                .position = row->position};
  for (const trace_recorder *r = atomic_load(&t->recorders); r; r = r->next) {
    const trace_sum *sum = &r->sums[index];
    out_sums->runs += sum->runs;
    out_sums->ns += sum->ns;
    out_sums->first_runs += sum->first_runs;
    out_sums->first_ns += sum->first_ns;
    out_sums->other_sizes |= sum->other;
  }
}

cyto_status cyto_trace_step(const cyto_model *model, int64_t index, cyto_trace_sums *out_sums) {
  trace *t = model ? (trace *)__atomic_load_n(&model->trace, __ATOMIC_ACQUIRE) : NULL;
  if (!model || !out_sums)
    return CYTO_INVALID_ARGUMENT;
  if (index < 0 || index >= cyto_trace_step_count(model))
    return CYTO_INDEX_OUT_OF_RANGE;
  if (!t)
    return CYTO_NOT_READY;
  cyrt_lock_take(&t->lock);
  int ready = t->ended && !atomic_load(&t->recording);
  if (ready)
    add_sums(t, index, out_sums);
  cyrt_lock_give(&t->lock);
  return ready ? CYTO_OK : CYTO_NOT_READY;
}
