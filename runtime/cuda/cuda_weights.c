/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cuda_weights.c - weights on the device; and those that are more than fit there, which are streamed.
 *
 * Streamed weights stay in pinned memory of the host. Generated code sees them at addresses that no memory has (BASE). Before
 * a launch such slots are given the place of the weight in the context's window, a ring of device memory: what is not there is
 * copied by a stream of its own, behind the last kernel that reads what lay in its place, and the launch waits for that copy
 * by an event. A run uses weights in the order of the run before: behind each launch the next ones are copied ahead for
 * as long as nothing in the ring is in the way that is still wanted. Small weights lie on the device for good.
 * Such runs are neither recorded nor captured, and libraries of NVIDIA have no part in them.
 */
#include "cyrt_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Not canonical, so that neither the host nor a device has memory there: the upper 16 bits of addresses are all equal. */
#define BASE ((uint64_t)0x5157 << 48)
#define NOWHERE UINT64_MAX
enum { UPLOAD_BYTES = 8 << 20, SMALL = 64 << 10 };

struct cuda_streamed {
  uint8_t *host;  /* pinned: all weights */
  uint64_t limit; /* the application's, or 0 */
  cuda_ptr small;
  uint64_t small_bytes, large_bytes, largest;
  uint64_t *at; /* [n_weights] in `small`; NOWHERE: goes through windows */
};

typedef struct piece { /* a weight and its place in a window */
  uint64_t at;         /* NOWHERE: it has none */
  void *loaded, *used; /* events: of the copy, and of the last launch that reads it */
  uint64_t launch;     /* the last that reads it */
  uint32_t planned;    /* uses for which it was copied ahead */
  int32_t awaited;     /* launches wait for the copy already */
} piece;

typedef struct uses { /* of weights, in the order of a run */
  uint32_t *weight;
  uint64_t n, room;
} uses;

struct cuda_window {
  cuda_ptr ring;
  uint64_t bytes, head;
  void *stream;
  piece *pieces;         /* [n_weights] */
  uint32_t *queue;       /* [n_weights + 1] weights in the ring, the oldest first: a ring itself */
  uint64_t oldest, next; /* of it */
  uses before, now;      /* of the run before, of this one */
  uint64_t prefetched;   /* uses of `before` (and of its repetition) for which was copied */
  int32_t same;          /* this run goes as the one before so far */
  uint64_t launch;       /* number of the launch */
};

static uint64_t rounded(uint64_t bytes) { return (bytes + CYRT_CUDA_ALIGN - 1) / CYRT_CUDA_ALIGN * CYRT_CUDA_ALIGN; }

static uint64_t size_of(const cyrt_model *model, uint64_t weight) {
  const cyrt_cuda_model *code = model->device_data;
  uint64_t end = weight + 1 < code->n_weights ? code->weights_at[weight + 1] : model->weights_bytes;
  return end - code->weights_at[weight];
}

/* ---- all on the device ---- */

typedef struct upload {
  void *buffer[2], *stream[2]; /* pinned; while one is filled the other is under way */
} upload;

static cyto_status upload_open(const cuda_driver *driver, upload *u, size_t bytes, cyto_error *error) {
  cyto_status status = CYTO_OK;
  for (int i = 0; i < 2 && !status; i++) {
    status = cyrt_cuda_get_pinned(driver, &u->buffer[i], bytes, "copying the model's weights", error);
    if (!status)
      status = cyrt_cuda_check(driver, driver->stream_create(&u->stream[i], CUDA_STREAM_NON_BLOCKING), "cuStreamCreate",
                               error);
  }
  return status;
}

static void upload_close(const cuda_driver *driver, upload *u) {
  for (int i = 0; i < 2; i++) {
    if (u->stream[i])
      driver->stream_destroy(u->stream[i]);
    if (u->buffer[i])
      driver->host_free(u->buffer[i]);
  }
}

static cuda_code upload_all(const cuda_driver *driver, upload *u, cuda_ptr to, const uint8_t *from, uint64_t bytes) {
  cuda_code code = 0;
  for (uint64_t at = 0, turn = 0; at < bytes && !code; at += UPLOAD_BYTES, turn ^= 1) {
    uint64_t n = bytes - at < UPLOAD_BYTES ? bytes - at : UPLOAD_BYTES;
    if ((code = driver->stream_wait(u->stream[turn])))
      break;
    memcpy(u->buffer[turn], from + at, n);
    code = driver->copy_in_async(to + at, u->buffer[turn], n, u->stream[turn]);
  }
  for (int i = 0; i < 2 && !code; i++)
    code = driver->stream_wait(u->stream[i]);
  return code;
}

/* The driver copies faster from pinned memory, of which weights are too much; so they go through two pieces of it. */
static cyto_status upload_weights(const cuda_driver *driver, cuda_device *device, const uint8_t *weights,
                                  uint64_t bytes, cyto_error *error) {
  upload u = {{NULL, NULL}, {NULL, NULL}};
  cyto_status status = upload_open(driver, &u, bytes < UPLOAD_BYTES ? bytes : UPLOAD_BYTES, error);
  if (!status)
    status = cyrt_cuda_check(driver, upload_all(driver, &u, device->weights, weights, bytes),
                             "copying the model's weights to the device", error);
  upload_close(driver, &u);
  return status;
}

/* ---- with the host ---- */

static void sort_out(const cyrt_model *model, struct cuda_streamed *s) {
  const cyrt_cuda_model *code = model->device_data;
  for (uint64_t i = 0; i < code->n_weights; i++) {
    uint64_t bytes = rounded(size_of(model, i));
    int small = bytes <= SMALL;
    s->at[i] = small ? s->small_bytes : NOWHERE;
    s->small_bytes += small ? bytes : 0;
    s->large_bytes += small ? 0 : bytes;
    s->largest = !small && bytes > s->largest ? bytes : s->largest;
  }
}

/* On a stream of its own: the legacy stream may not be used while another thread captures one that waits for it. */
static cyto_status upload_small(const cuda_driver *driver, const cyrt_model *model, struct cuda_streamed *s,
                                cyto_error *error) {
  const cyrt_cuda_model *code = model->device_data;
  void *stream = NULL;
  cyto_status status = cyrt_cuda_get(driver, &s->small, s->small_bytes,
                                     "the model's weights, of which the small ones stay there", error);
  if (status)
    return status;
  cuda_code got = driver->stream_create(&stream, CUDA_STREAM_NON_BLOCKING);
  for (uint64_t i = 0; i < code->n_weights && !got; i++)
    if (s->at[i] != NOWHERE)
      got = driver->copy_in_async(s->small + s->at[i], s->host + code->weights_at[i], size_of(model, i), stream);
  if (!got)
    got = driver->stream_wait(stream);
  if (stream)
    driver->stream_destroy(stream);
  return cyrt_cuda_check(driver, got, "copying the model's weights to the device", error);
}

static cyto_status stream_weights(cuda_shared *shared, cuda_device *device, const cyrt_device_request *request,
                                  cyto_error *error) {
  const cyrt_model *model = shared->model;
  const cyrt_cuda_model *code = model->device_data;
  struct cuda_streamed *s = device->streamed = calloc(1, sizeof *s);
  void *host = NULL;
  if (s)
    s->at = calloc(code->n_weights + 1, sizeof *s->at);
  if (!s || !s->at)
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for the table of weights");
  s->limit = request->weights_limit;
  cyto_status status = cyrt_cuda_get_pinned(&shared->driver, &host, model->weights_bytes,
                                            "the model's weights, which are more than the device may hold", error);
  if (status)
    return status;
  s->host = host;
  memcpy(s->host, request->weights, model->weights_bytes);
  sort_out(model, s);
  return upload_small(&shared->driver, model, s, error);
}

cyto_status cyrt_cuda_weights_load(cuda_shared *shared, cuda_device *device, const cyrt_device_request *request,
                                   cyto_error *error) {
  const cuda_driver *driver = &shared->driver;
  uint64_t bytes = shared->model->weights_bytes;
  if (request->weights_limit && bytes > request->weights_limit)
    return stream_weights(shared, device, request, error);
  cyto_status status = cyrt_cuda_get(driver, &device->weights, bytes, "the model's weights", error);
  if (status == CYTO_OUT_OF_MEMORY) {
    cyrt_error_clear(error);
    return stream_weights(shared, device, request, error);
  }
  return status ? status : upload_weights(driver, device, request->weights, bytes, error);
}

void cyrt_cuda_weights_release(cuda_shared *shared, cuda_device *device) {
  struct cuda_streamed *s = device->streamed;
  if (device->weights)
    shared->driver.mem_free(device->weights);
  if (s && s->small)
    shared->driver.mem_free(s->small);
  if (s && s->host)
    shared->driver.host_free(s->host);
  device->weights = 0;
}

void cyrt_cuda_weights_forget(cuda_device *device) {
  if (device->streamed)
    free(device->streamed->at);
  free(device->streamed);
  device->streamed = NULL;
}

/* ---- a context's window ---- */

static int window_tables(struct cuda_window *w, uint64_t n) {
  w->pieces = calloc(n + 1, sizeof *w->pieces);
  w->queue = calloc(n + 1, sizeof *w->queue);
  for (uint64_t i = 0; i < n && w->pieces; i++)
    w->pieces[i].at = NOWHERE;
  return w->pieces && w->queue;
}

static cyto_status window_events(cuda_state *state, struct cuda_window *w, cyto_error *error) {
  const cuda_driver *driver = &state->shared->driver;
  cuda_code code = driver->stream_create(&w->stream, CUDA_STREAM_NON_BLOCKING);
  for (uint64_t i = 0; i < state->code->n_weights && !code; i++)
    if (state->device->streamed->at[i] == NOWHERE) {
      code = driver->event_create(&w->pieces[i].loaded, CUDA_EVENT_NO_TIMING);
      code = code ? code : driver->event_create(&w->pieces[i].used, CUDA_EVENT_NO_TIMING);
    }
  return cyrt_cuda_check(driver, code, "streaming weights (cuStreamCreate, cuEventCreate)", error);
}

/* Without a limit, three quarters of what is free: intermediate tensors want some, too. */
static uint64_t window_bytes(const cuda_state *state) {
  const struct cuda_streamed *s = state->device->streamed;
  size_t available = 0, total = 0;
  state->shared->driver.mem_info(&available, &total);
  uint64_t bytes = s->limit > s->small_bytes ? s->limit - s->small_bytes : s->limit ? 0 : available / 4 * 3;
  bytes = bytes < s->large_bytes ? bytes / CYRT_CUDA_ALIGN * CYRT_CUDA_ALIGN : s->large_bytes;
  return bytes > s->largest ? bytes : s->largest;
}

/* The window's memory, for its own stream; it has none if that fails. */
static cyto_status take_ring(cuda_state *state, uint64_t bytes, cyto_error *error) {
  struct cuda_window *w = state->window;
  cyto_status status = cyrt_cuda_take(state, &w->ring, bytes, "streamed weights", error);
  if (!status && (status = cyrt_cuda_taken(state, error))) {
    cyrt_cuda_give(state, w->ring);
    w->ring = 0;
  }
  w->bytes = status ? 0 : bytes;
  return status;
}

cyto_status cyrt_cuda_window_open(cuda_state *state, cyto_error *error) {
  struct cuda_streamed *s = state->device->streamed;
  if (!s) {
    state->frame.weights = (const uint8_t *)(uintptr_t)state->device->weights;
    return CYTO_OK;
  }
  struct cuda_window *w = state->window = calloc(1, sizeof *w);
  state->frame.weights = (const uint8_t *)(uintptr_t)BASE;
  if (!w || !window_tables(w, state->code->n_weights))
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for streaming weights");
  w->bytes = window_bytes(state);
  cyto_status status = window_events(state, w, error);
  return status || !w->bytes ? status : take_ring(state, w->bytes, error);
}

/* Nothing lies in it any more. */
static void window_empty(cuda_state *state) {
  struct cuda_window *w = state->window;
  state->shared->driver.stream_wait(w->stream);
  if (w->ring)
    cyrt_cuda_give(state, w->ring);
  w->ring = w->head = w->prefetched = w->oldest = w->next = 0;
  for (uint64_t i = 0; i < state->code->n_weights; i++) {
    w->pieces[i].at = NOWHERE;
    w->pieces[i].planned = 0;
  }
}

cyto_status cyrt_cuda_window_yield(cuda_state *state, cuda_ptr *out_ptr, uint64_t bytes, const char *what,
                                   cyto_error *error) {
  struct cuda_window *w = state->window;
  const struct cuda_streamed *s = state->device->streamed;
  if (s->limit || w->bytes <= s->largest)
    return CYTO_OUT_OF_MEMORY;
  uint64_t left = w->bytes > rounded(bytes) + s->largest ? w->bytes - rounded(bytes) : s->largest;
  window_empty(state);
  cyto_status status = cyrt_cuda_take(state, out_ptr, bytes, what, error);
  cyto_status again = take_ring(state, left, status ? NULL : error);
  if (!again)
    return status;
  if (!status)
    cyrt_cuda_give(state, *out_ptr);
  *out_ptr = 0;
  take_ring(state, s->largest, NULL);
  return status ? status : again;
}

void cyrt_cuda_window_close(cuda_state *state) {
  const cuda_driver *driver = &state->shared->driver;
  struct cuda_window *w = state->window;
  if (!w)
    return;
  if (w->stream) {
    driver->stream_wait(w->stream);
    driver->stream_destroy(w->stream);
  }
  for (uint64_t i = 0; w->pieces && i < state->code->n_weights; i++) {
    if (w->pieces[i].loaded)
      driver->event_destroy(w->pieces[i].loaded);
    if (w->pieces[i].used)
      driver->event_destroy(w->pieces[i].used);
  }
  free(w->pieces);
  free(w->queue);
  free(w->before.weight);
  free(w->now.weight);
  free(w);
  state->window = NULL;
}

/* ---- what lies where ---- */

static uint64_t queue_room(const cuda_state *state) { return state->code->n_weights + 1; }

/* May the oldest one go? Not what this launch reads, nor what was copied ahead and not read yet. */
static int may_go(const struct cuda_window *w, const piece *p) { return p->launch != w->launch && !p->planned; }

static int is_in_way(const cuda_state *state, const piece *p, uint32_t weight, uint64_t at, uint64_t end) {
  return p->at < end && at < p->at + rounded(size_of(state->model, weight));
}

/* Where it would go, and whether all in the way may go. Those in the way are the oldest. */
static int find_place(const cuda_state *state, uint64_t bytes, uint64_t *out_at) {
  const struct cuda_window *w = state->window;
  uint64_t at = w->head + bytes <= w->bytes ? w->head : 0;
  int wraps = at != w->head;
  *out_at = at;
  if (bytes > w->bytes)
    return 0;
  for (uint64_t i = w->oldest; i != w->next; i = (i + 1) % queue_room(state)) {
    const piece *p = &w->pieces[w->queue[i]];
    int skipped = wraps && p->at >= w->head; /* between the head and the end of the ring, which are given up */
    if (!skipped && !is_in_way(state, p, w->queue[i], at, at + bytes))
      return 1;
    if (!may_go(w, p))
      return 0;
  }
  return 1;
}

/* Copies that follow wait for its last reader. */
static cuda_code give_up_oldest(cuda_state *state) {
  struct cuda_window *w = state->window;
  piece *p = &w->pieces[w->queue[w->oldest]];
  cuda_code code = p->launch ? state->shared->driver.stream_wait_event(w->stream, p->used, 0) : 0;
  if (code)
    return code;
  p->at = NOWHERE;
  w->oldest = (w->oldest + 1) % queue_room(state);
  return 0;
}

static cuda_code evict(cuda_state *state, uint64_t at, uint64_t bytes) {
  struct cuda_window *w = state->window;
  int wraps = at != w->head;
  cuda_code code = 0;
  while (w->oldest != w->next && !code) {
    uint32_t weight = w->queue[w->oldest];
    const piece *p = &w->pieces[weight];
    if (!(wraps && p->at >= w->head) && !is_in_way(state, p, weight, at, at + bytes))
      break;
    code = give_up_oldest(state);
  }
  return code;
}

/* Copies it into the ring, if it has a place there. */
static cyto_status load(cuda_state *state, uint32_t weight, int *out_done, cyto_error *error) {
  struct cuda_window *w = state->window;
  const cuda_driver *driver = &state->shared->driver;
  piece *p = &w->pieces[weight];
  uint64_t at, bytes = size_of(state->model, weight);
  *out_done = find_place(state, rounded(bytes), &at);
  if (!*out_done)
    return CYTO_OK;
  cuda_code code = evict(state, at, rounded(bytes));
  if (!code)
    code = driver->copy_in_async(w->ring + at, state->device->streamed->host + state->code->weights_at[weight], bytes,
                                 w->stream);
  if (!code)
    code = driver->event_record(p->loaded, w->stream);
  if (code)
    return cyrt_cuda_check(driver, code, "copying a weight to the device (cuMemcpyHtoDAsync)", error);
  state->moved_in += bytes;
  p->at = at;
  p->awaited = 0;
  p->launch = 0;
  w->queue[w->next] = weight;
  w->next = (w->next + 1) % queue_room(state);
  w->head = at + rounded(bytes);
  return CYTO_OK;
}

/* ---- runs ---- */

static cyto_status note_use(cuda_state *state, uint32_t weight, cyto_error *error) {
  struct cuda_window *w = state->window;
  uses *u = &w->now;
  if (u->n == u->room) {
    uint64_t room = u->room ? 2 * u->room : 64;
    uint32_t *grown = realloc(u->weight, room * sizeof *grown);
    if (!grown)
      return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for the order of weights");
    u->weight = grown;
    u->room = room;
  }
  w->same = w->same && u->n < w->before.n && w->before.weight[u->n] == weight;
  u->weight[u->n++] = weight;
  return CYTO_OK;
}

static void plan_nothing(cuda_state *state) {
  for (uint64_t i = 0; i < state->code->n_weights; i++)
    state->window->pieces[i].planned = 0;
  state->window->prefetched = 0;
}

void cyrt_cuda_window_begin(cuda_state *state) {
  struct cuda_window *w = state->window;
  if (!w)
    return;
  int whole = w->same && w->now.n == w->before.n && w->now.n;
  if (whole && w->prefetched >= w->before.n)
    w->prefetched -= w->before.n;
  else
    plan_nothing(state);
  uses old = w->before;
  w->before = w->now;
  w->now = (uses){old.weight, 0, old.room};
  w->same = w->before.n > 0;
}

/* The weight of an address; -1: it is none. */
static int64_t weight_of(const cuda_state *state, uint64_t address) {
  const uint64_t *at = state->code->weights_at;
  uint64_t offset = address - BASE, low = 0, high = state->code->n_weights;
  if (address < BASE || offset >= state->model->weights_bytes || !high || offset < at[0])
    return -1;
  while (high - low > 1) {
    uint64_t middle = (low + high) / 2;
    if (at[middle] <= offset)
      low = middle;
    else
      high = middle;
  }
  return (int64_t)low;
}

static cyto_status too_small(const cuda_state *state, uint32_t weight, cyto_error *error) {
  return cyrt_error_set(
      error, CYTO_OUT_OF_MEMORY,
      "no device memory for streamed weights: a kernel reads several at once, one of %llu bytes, but the "
      "context's part of the device has %llu: raise cyto_options.device_weights, or free memory",
      (unsigned long long)size_of(state->model, weight), (unsigned long long)state->window->bytes);
}

/* Has the launch wait until it is there. */
static cyto_status need(cuda_state *state, uint32_t weight, cyto_error *error) {
  struct cuda_window *w = state->window;
  const cuda_driver *driver = &state->shared->driver;
  piece *p = &w->pieces[weight];
  int done = 1;
  cyto_status status = note_use(state, weight, error);
  if (!w->same && w->prefetched)
    plan_nothing(state);
  if (!status && p->at == NOWHERE)
    status = load(state, weight, &done, error);
  if (!status && !done && w->prefetched) { /* what was copied ahead gives way */
    plan_nothing(state);
    status = load(state, weight, &done, error);
  }
  if (status || !done)
    return status ? status : too_small(state, weight, error);
  p->planned -= p->planned > 0;
  p->launch = w->launch;
  if (p->awaited)
    return CYTO_OK;
  cuda_code code = driver->stream_wait_event(state->stream, p->loaded, 0);
  p->awaited = !code;
  return cyrt_cuda_check(driver, code, "cuStreamWaitEvent", error);
}

static cyto_status need_all(cuda_state *state, const cyrt_slot *slots, uint32_t n, cyto_error *error) {
  cyto_status status = CYTO_OK;
  for (uint32_t i = 0; i < n && !status; i++) {
    int64_t weight = weight_of(state, (uint64_t)slots[i].size);
    if (weight >= 0 && state->device->streamed->at[weight] == NOWHERE)
      status = need(state, (uint32_t)weight, error);
  }
  return status;
}

/* The next copies begin at the start of the ring, behind the launches that still read what lies there. */
static cyto_status start_over(cuda_state *state, cyto_error *error) {
  struct cuda_window *w = state->window;
  cuda_code code = 0;
  plan_nothing(state);
  while (w->oldest != w->next && !(code = give_up_oldest(state)))
    ;
  w->head = code ? w->head : 0;
  return cyrt_cuda_check(&state->shared->driver, code, "cuStreamWaitEvent", error);
}

cyto_status cyrt_cuda_window_enter(cuda_state *state, const cyrt_slot *slots, uint32_t n, cyrt_slot *out,
                                   cyto_error *error) {
  const struct cuda_streamed *s = state->device->streamed;
  struct cuda_window *w = state->window;
  uint64_t noted = w->now.n;
  int32_t same = w->same;
  w->launch++;
  state->behind_kernel = 0; /* what stands between is waited for */
  memcpy(out, slots, n * sizeof *slots);
  cyto_status status = need_all(state, slots, n, error);
  if (status == CYTO_OUT_OF_MEMORY) { /* it may be for what lies between its weights */
    cyrt_error_clear(error);
    w->now.n = noted;
    w->same = same;
    status = start_over(state, error);
    status = status ? status : need_all(state, slots, n, error);
  }
  for (uint32_t i = 0; i < n && !status; i++) {
    int64_t weight = weight_of(state, (uint64_t)slots[i].size);
    if (weight < 0)
      continue;
    uint64_t begin =
        s->at[weight] != NOWHERE ? s->small + s->at[weight] : state->window->ring + state->window->pieces[weight].at;
    out[i].ptr = (void *)(uintptr_t)(begin + ((uint64_t)slots[i].size - BASE - state->code->weights_at[weight]));
  }
  return status;
}

/* Copies what comes next, as far as it fits. */
static cyto_status copy_ahead(cuda_state *state, cyto_error *error) {
  struct cuda_window *w = state->window;
  cyto_status status = CYTO_OK;
  int done = 1;
  if (!w->same || !w->before.n)
    return CYTO_OK;
  w->prefetched = w->prefetched < w->now.n ? w->now.n : w->prefetched;
  while (!status && done && w->prefetched < w->now.n + w->before.n) {
    uint32_t weight = w->before.weight[w->prefetched % w->before.n];
    if (w->pieces[weight].at == NOWHERE)
      status = load(state, weight, &done, error);
    if (!status && done) {
      w->pieces[weight].planned++;
      w->prefetched++;
    }
  }
  return status;
}

cyto_status cyrt_cuda_window_leave(cuda_state *state, cyto_error *error) {
  struct cuda_window *w = state->window;
  cuda_code code = 0;
  for (uint64_t i = w->oldest; i != w->next && !code; i = (i + 1) % queue_room(state)) {
    piece *p = &w->pieces[w->queue[i]];
    if (p->launch == w->launch)
      code = state->shared->driver.event_record(p->used, state->stream);
  }
  if (code) /* then nothing tells when the launch has read what it reads */
    state->shared->driver.stream_wait(state->stream);
  cyto_status status = cyrt_cuda_check(&state->shared->driver, code, "cuEventRecord", error);
  w->launch++; /* what that one read may go, behind its event */
  return status ? status : copy_ahead(state, error);
}

const void *cyrt_cuda_window_host(const cuda_state *state, const void *at, uint64_t bytes) {
  uint64_t offset = (uint64_t)(uintptr_t)at - BASE;
  int inside = state->window && (uint64_t)(uintptr_t)at >= BASE && offset < state->model->weights_bytes &&
               bytes <= state->model->weights_bytes - offset;
  return inside ? state->device->streamed->host + offset : NULL;
}

int cyrt_cuda_window_describe(const cuda_state *state, char *text, uint64_t capacity) {
  const struct cuda_streamed *s = state->device->streamed;
  return snprintf(
      text, capacity,
      "; weights are streamed: %.1f of %.1f MB stay in pinned memory and go through %.1f MB of the device in "
      "each run, which is slow: free memory, or raise cyto_options.device_weights",
      (double)s->large_bytes / 1e6, (double)state->model->weights_bytes / 1e6, (double)state->window->bytes / 1e6);
}

void cyrt_cuda_window_memory(const cuda_state *state, cyto_memory_use out[2]) {
  const struct cuda_streamed *s = state->device->streamed;
  uint64_t on_device = state->window ? s->small_bytes + state->window->bytes : state->model->weights_bytes;
  uint64_t on_host = state->window ? state->model->weights_bytes : 0;
  out[0] = (cyto_memory_use){"device: weights", on_device, on_device};
  out[1] = (cyto_memory_use){"pinned memory: weights", on_host, on_host};
}
