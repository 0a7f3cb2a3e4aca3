/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pipeline.c - making and ending a pipeline, putting items in and taking results out, statistics.
 *
 * Threads are not joined: each says under the lock that it is gone, as the last thing it does with the pipeline.
 */
#include "pipeline_int.h"

#include <stdio.h>

enum { MAX_STAGES = 64, USUAL_QUEUE = 4, MANY_CPUS = 4, CONTEXTS_ON_MANY = 2 };

static const char *const kind_names[] = {
    [CYTO_STAGE_MAP] = "map", [CYTO_STAGE_SPLIT] = "split", [CYTO_STAGE_JOIN] = "join", [CYTO_STAGE_MODEL] = "model"};

/* ---- checking ---- */

static const char *stage_fault(const cyto_stage *g, int32_t open) {
  switch (g->kind) {
  case CYTO_STAGE_MAP:
    return g->map ? NULL : "a map needs its callback, `map`";
  case CYTO_STAGE_SPLIT:
    return g->split ? NULL : "a split needs its callback, `split`";
  case CYTO_STAGE_JOIN:
    return !open                 ? "a join needs a split before it, whose parts it puts together"
           : g->add && g->finish ? g->threads > 1 ? "a join has one thread" : NULL
                                 : "a join needs its callbacks, `add` and `finish`";
  case CYTO_STAGE_MODEL:
    return !g->model ? "a model's stage needs its model"
           : g->options && (g->options->device_memory || g->options->stream)
               ? "tensors lie in the host's memory: device_memory and stream are not for pipelines"
               : NULL;
  default:
    return "its kind is none of cyto_stage_kind";
  }
}

static cyto_status stages_check(const cyto_stage *stages, int32_t count, cyto_error *error) {
  int32_t open = 0;
  if (count < 1 || count > MAX_STAGES || !stages)
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "cyto_pipeline_create: %d stages, expected 1 to %d", count,
                          MAX_STAGES);
  for (int32_t k = 0; k < count; k++) {
    const cyto_stage *g = &stages[k];
    const char *fault = stage_fault(g, open);
    if (!fault && (g->threads < 0 || g->threads > CYTO_MAX_THREADS || g->queue < 0 || g->batch < 0 || g->wait_ns < 0 ||
                   !(g->reuse >= 0)))
      fault = "threads, queue, batch, wait_ns and reuse must not be negative, nor threads more than 256";
    if (fault)
      return cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "stage %d '%s': %s", k, g->name ? g->name : "", fault);
    open += (g->kind == CYTO_STAGE_SPLIT) - (g->kind == CYTO_STAGE_JOIN);
  }
  return CYTO_OK;
}

/* ---- making ---- */

static int32_t threads_of(const cyto_stage *g) {
  int32_t cpus = cyto_cpu_count();
  if (g->threads || g->kind != CYTO_STAGE_MODEL)
    return g->threads ? g->threads : 1;
  return cpus <= MANY_CPUS ? cpus : CONTEXTS_ON_MANY;
}

static void queue_init(queue *q, int64_t own, int64_t usual, int unordered) {
  q->capacity = own ? own : usual ? usual : USUAL_QUEUE;
  q->turn = unordered ? INT64_MAX : 0;
}

static cyto_status stage_init(cyto_pipeline *p, stage *s, const cyto_stage *given, cyto_error *error) {
  s->given = *given;
  s->pipeline = p;
  s->number = (int32_t)(s - p->stages);
  snprintf(s->name, sizeof s->name, "%s", given->name ? given->name : kind_names[given->kind]);
  s->given.name = s->name;
  queue_init(&s->in, given->queue, p->options.queue, p->options.unordered || !s->number);
  if (!s->number)
    s->in.turn = INT64_MAX; /* what is put has the order in which it is put */
  s->threads = threads_of(given);
  s->workers = calloc((size_t)s->threads, sizeof *s->workers);
  if (!s->workers)
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for the pipeline");
  for (int32_t k = 0; k < s->threads; k++) {
    s->workers[k].stage = s;
    s->workers[k].ticket = NO_TICKET;
    s->workers[k].state = WORKER_WAITS_IN;
    s->workers[k].since = cyrt_os_now_ns();
  }
  return given->kind == CYTO_STAGE_MODEL ? cyrt_pipe_model_init(s, error) : CYTO_OK;
}

static void worker_main(void *data) {
  worker *w = data;
  stage *s = w->stage;
  cyto_pipeline *p = s->pipeline;
  cyrt_pipe_lock(p);
  if (s->given.kind == CYTO_STAGE_MODEL)
    cyrt_pipe_model_work(w);
  else
    cyrt_pipe_stage_work(w);
  if (s->given.kind == CYTO_STAGE_JOIN)
    cyrt_pipe_join_abandon(s);
  cyrt_pipe_state(w, WORKER_WAITS_IN);
  if (!--s->alive)
    cyrt_pipe_end(s);
  p->alive--;
  cyrt_pipe_signal(&p->settled);
  cyrt_pipe_unlock(p); /* destroy() may be over now */
}

static cyto_status threads_start(cyto_pipeline *p, cyto_error *error) {
  for (int32_t k = 0; k < p->count; k++) {
    stage *s = &p->stages[k];
    int own = s->given.kind != CYTO_STAGE_MODEL && p->options.spawn;
    for (int32_t t = 0; t < s->threads; t++) {
      cyrt_pipe_lock(p);
      p->alive++;
      s->alive++;
      cyrt_pipe_unlock(p);
      if (own ? p->options.spawn(p->options.user, worker_main, &s->workers[t])
              : cyrt_os_thread(worker_main, &s->workers[t]))
        continue;
      cyrt_pipe_lock(p);
      p->alive--;
      s->alive--;
      cyrt_pipe_unlock(p);
      return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "stage '%s': its thread cannot be started", s->name);
    }
  }
  return CYTO_OK;
}

cyto_status cyto_pipeline_create(const cyto_stage *stages, int32_t count, const cyto_pipeline_options *options,
                                 cyto_pipeline **out_pipeline, cyto_error *error) {
  cyrt_error_clear(error);
  if (!out_pipeline)
    return cyrt_error_null(error, "cyto_pipeline_create: no place for the pipeline");
  *out_pipeline = NULL;
  cyto_status status = stages_check(stages, count, error);
  if (!status && options && (options->queue < 0 || options->in_flight < 0))
    status =
        cyrt_error_set(error, CYTO_INVALID_ARGUMENT, "cyto_pipeline_create: queue and in_flight must not be negative");
  if (status)
    return status;
  cyto_pipeline *p = calloc(1, sizeof *p);
  if (p)
    p->stages = calloc((size_t)count, sizeof *p->stages);
  if (!p || !p->stages) {
    free(p);
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for the pipeline");
  }
  if (options)
    p->options = *options;
  cyrt_os_pin(worker_main);
  queue_init(&p->results, 0, p->options.queue, p->options.unordered);
  for (int32_t level = 0; p->count < count && !status; p->count++) {
    level -= stages[p->count].kind == CYTO_STAGE_JOIN;
    p->stages[p->count].level = level;
    status = stage_init(p, &p->stages[p->count], &stages[p->count], error);
    level += stages[p->count].kind == CYTO_STAGE_SPLIT;
  }
  if (!status)
    status = threads_start(p, error);
  if (status)
    cyto_pipeline_destroy(p);
  else
    *out_pipeline = p;
  return status;
}

/* ---- ending ---- */

static void queue_free(queue *q) {
  while (q->first) {
    item *i = q->first;
    q->first = i->next;
    cyrt_pipe_item_free(i);
  }
}

static void cancel(cyto_pipeline *p) {
  p->cancelled = 1;
  for (int32_t k = 0; k < p->count; k++) {
    stage *s = &p->stages[k];
    event *const all[] = {&s->in.filled, &s->in.emptied, &s->gate, &s->published};
    for (size_t e = 0; e < sizeof all / sizeof *all; e++)
      cyrt_pipe_signal(all[e]);
  }
  cyrt_pipe_signal(&p->results.filled);
  cyrt_pipe_signal(&p->results.emptied);
  cyrt_pipe_signal(&p->room);
}

void cyto_pipeline_cancel(cyto_pipeline *p) {
  if (!p)
    return;
  cyrt_pipe_lock(p);
  cancel(p);
  cyrt_pipe_unlock(p);
}

void cyto_pipeline_destroy(cyto_pipeline *p) {
  if (!p)
    return;
  cyrt_pipe_lock(p);
  cancel(p);
  while (p->alive)
    cyrt_pipe_wait(p, &p->settled, -1);
  for (int32_t k = 0; k < p->count; k++)
    queue_free(&p->stages[k].in);
  queue_free(&p->results);
  cyrt_pipe_unlock(p);
  for (int32_t k = 0; k < p->count; k++) {
    if (p->stages[k].given.kind == CYTO_STAGE_MODEL)
      cyrt_pipe_model_end(&p->stages[k]);
    free(p->stages[k].workers);
  }
  free(p->stages);
  free(p);
}

/* ---- items in ---- */

/* Counted from now on as one that is being worked at; NULL: no memory. */
static origin *origin_new(cyto_pipeline *p, const char *name) {
  size_t bytes = strlen(name) + 1;
  origin *o = malloc(sizeof *o + bytes);
  if (!o)
    return NULL;
  o->refs = 0;
  o->number = p->next_number++;
  memcpy(o->name, name, bytes);
  p->live++;
  return o;
}

static cyto_status enter(cyto_pipeline *p, const char *name, void *data, int32_t count, const cyto_tensor *tensors) {
  int64_t max = p->options.in_flight;
  queue *q = &p->stages[0].in;
  if (!p->start)
    p->start = cyrt_os_now_ns();
  while (!p->cancelled && !p->stopping && !p->closed) {
    if (q->length >= q->capacity)
      cyrt_pipe_wait(p, &q->emptied, -1);
    else if (max && p->live >= max)
      cyrt_pipe_wait(p, &p->room, -1);
    else
      break;
  }
  if (p->cancelled || p->stopping)
    return CYTO_CANCELLED;
  if (p->closed)
    return CYTO_NOT_READY;
  origin *o = origin_new(p, name);
  item *i = o ? cyrt_pipe_item_new(p, o, data, count, tensors) : NULL;
  if (i)
    return cyrt_pipe_put(NULL, i) ? CYTO_OK : CYTO_CANCELLED;
  p->live -= o != NULL;
  free(o);
  return CYTO_OUT_OF_MEMORY;
}

cyto_status cyto_pipeline_put(cyto_pipeline *p, const char *name, void *data, int32_t count, const cyto_tensor *tensors,
                              cyto_error *error) {
  cyrt_error_clear(error);
  if (!p || count < 0 || (count && !tensors))
    return cyrt_error_null(error, "cyto_pipeline_put: no pipeline, or no tensors");
  cyrt_pipe_lock(p);
  cyto_status status = enter(p, name ? name : "", data, count, tensors);
  cyrt_pipe_unlock(p);
  return !status                    ? CYTO_OK
         : status == CYTO_NOT_READY ? cyrt_error_set(error, status, "the pipeline was closed: no more items are taken")
         : status == CYTO_CANCELLED
             ? cyrt_error_set(error, status, "the pipeline was cancelled, or stopped by an error")
             : cyrt_error_set(error, status, "no memory for an item");
}

void cyto_pipeline_close(cyto_pipeline *p) {
  if (!p)
    return;
  cyrt_pipe_lock(p);
  p->closed = 1;
  p->stages[0].in.ended = 1;
  cyrt_pipe_signal(&p->stages[0].in.filled);
  cyrt_pipe_signal(&p->stages[0].in.emptied);
  cyrt_pipe_signal(&p->room);
  cyrt_pipe_unlock(p);
}

/* ---- results out ---- */

/* The next result that somebody is interested in: not the ends of groups that no join has put together, nor what was not
 * done as another part had failed. */
static item *next_result(cyto_pipeline *p) {
  item *i;
  while ((i = cyrt_pipe_peek(&p->results))) {
    cyrt_pipe_pop(&p->results);
    if ((!i->own || i->head.status) && (i->head.status || !cyrt_pipe_passes(i)))
      return i;
    cyrt_pipe_item_free(i);
  }
  return NULL;
}

static item *take(cyto_pipeline *p, int64_t deadline) {
  item *i;
  while (!p->cancelled && !(i = next_result(p)) && !cyrt_pipe_is_over(&p->results) &&
         (deadline < 0 || cyrt_os_now_ns() < deadline))
    cyrt_pipe_wait(p, &p->results.filled, deadline);
  if (p->cancelled || !i)
    return NULL;
  p->taken++;
  p->failed += i->head.status != 0;
  if (i->head.status && p->options.on_error == CYTO_ERRORS_STOP)
    cancel(p);
  return i;
}

cyto_status cyto_pipeline_take(cyto_pipeline *p, int64_t timeout_ns, cyto_item **out_item, cyto_error *error) {
  cyrt_error_clear(error);
  if (!p || !out_item)
    return cyrt_error_null(error, "cyto_pipeline_take: no pipeline, or no place for the item");
  *out_item = NULL;
  int64_t deadline = timeout_ns < 0 ? -1 : cyrt_os_now_ns() + timeout_ns;
  cyrt_pipe_lock(p);
  int was_cancelled = p->cancelled;
  item *i = was_cancelled ? NULL : take(p, deadline);
  int over = cyrt_pipe_is_over(&p->results);
  was_cancelled = !i && p->cancelled;
  p->end = cyrt_os_now_ns();
  cyrt_pipe_unlock(p);
  *out_item = i ? &i->head : NULL;
  return was_cancelled ? cyrt_error_set(error, CYTO_CANCELLED, "the pipeline was cancelled, or stopped by an error")
         : i || over   ? CYTO_OK
                       : cyrt_error_set(error, CYTO_NOT_READY, "no result came in time");
}

/* ---- statistics ---- */

static double busy_part(const stage *s) {
  int64_t spent[WORKER_STATES];
  cyrt_pipe_spent(s, spent);
  return (double)spent[WORKER_BUSY] / s->threads;
}

void cyto_pipeline_statistics_get(cyto_pipeline *p, cyto_pipeline_statistics *out) {
  if (!p || !out)
    return;
  cyrt_pipe_lock(p);
  int over = cyrt_pipe_is_over(&p->results) || p->cancelled;
  *out = (cyto_pipeline_statistics){.items = p->taken, .failed = p->failed, .stages = p->count, .bottleneck = -1};
  out->ns = p->start ? (over && p->end ? p->end : cyrt_os_now_ns()) - p->start : 0;
  double max = 0;
  for (int32_t k = 0; k < p->count; k++) {
    double busy = p->stages[k].sums.items ? busy_part(&p->stages[k]) : 0;
    if (busy > max) {
      max = busy;
      out->bottleneck = k;
    }
  }
  cyrt_pipe_unlock(p);
}

void cyrt_pipe_spent(const stage *s, int64_t spent[WORKER_STATES]) {
  int64_t now = cyrt_os_now_ns();
  memset(spent, 0, WORKER_STATES * sizeof *spent);
  for (int32_t k = 0; k < s->threads; k++) {
    const worker *w = &s->workers[k];
    for (int state = 0; state < WORKER_STATES; state++)
      spent[state] += w->spent[state] + ((int)w->state == state && s->alive ? now - w->since : 0);
  }
}

cyto_status cyto_stage_statistics_get(cyto_pipeline *p, int32_t number, cyto_stage_statistics *out) {
  if (!p || !out)
    return CYTO_INVALID_ARGUMENT;
  if (number < 0 || number >= p->count)
    return CYTO_INDEX_OUT_OF_RANGE;
  stage *s = &p->stages[number];
  int64_t spent[WORKER_STATES];
  cyrt_pipe_lock(p);
  *out = s->sums;
  cyrt_pipe_spent(s, spent);
  out->name = s->name;
  out->kind = s->given.kind;
  out->threads = s->threads;
  out->busy_ns = spent[WORKER_BUSY];
  out->waiting_in_ns = spent[WORKER_WAITS_IN];
  out->waiting_out_ns = spent[WORKER_WAITS_OUT];
  out->waiting = s->in.length;
  out->max_waiting = s->in.max;
  out->batch = s->limit;
  cyrt_pipe_unlock(p);
  return CYTO_OK;
}
