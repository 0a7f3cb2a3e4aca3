/* SPDX-License-Identifier: Apache-2.0 */
/* mock_stream.c - streams of the mock driver: what they are given, copies, captures, graphs, events.
 *
 * In:  operations. Out: they are done when somebody waits for the stream, in order, and no other stream does anything, so that
 *      whatever relies on a wait that is missing finds old values, and what the host will be copied to is poisoned until then.
 *      With mock_cuda()->prompt all is done at once. While a stream is captured, operations are kept, and a graph does them
 *      when it is launched. What a driver refuses while a stream is recorded is refused here, too, and spoils the recording.
 */
#define _GNU_SOURCE
#include "tests/cuda/mock/mock_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { POISON = 0xbd, LEGACY = 1, NON_BLOCKING = 1 };
enum { GLOBAL = 0, THREAD_LOCAL = 1, RELAXED = 2 };

typedef struct event {
  double us;
  int recorded;
  struct stream *stream;
  unsigned ticket, done; /* of its recordings, in order: the last one, the last that its stream came to */
} event;

stream mock_legacy = {.blocking = 1, .later = {.last = &mock_legacy.later.first}};
static stream *streams = &mock_legacy;
static MOCK_OF_THREAD stream *capturing; /* by this thread */
static MOCK_OF_THREAD int mode;          /* of this thread's calls */

/* ---- what captures refuse ---- */

/* What calls come to that do not go with a stream's capture, whatever the thread's mode is. */
int mock_refused(void) {
  if (capturing)
    capturing->spoilt = 1;
  return !mock_depth ? INVALID_CONTEXT : capturing ? CAPTURE_UNSUPPORTED : OK;
}

/* What calls come to that need a context and that may not happen while a stream is captured: memory, modules, waiting. In
 * global mode, which threads begin in, those of all threads are spoilt that are captured in global mode; in relaxed mode
 * all goes. */
int mock_unsafe(void) {
  int spoils = 0;
  if (!mock_depth)
    return INVALID_CONTEXT;
  pthread_mutex_lock(&mock_mutex);
  for (stream *s = streams; s; s = s->next)
    if (s->capture && mode != RELAXED && (s == capturing || (mode == GLOBAL && s->mode == GLOBAL)))
      spoils = s->spoilt = 1;
  return mock_unlock(spoils ? CAPTURE_UNSUPPORTED : OK);
}

int cuThreadExchangeStreamCaptureMode(int *changed) {
  mock_count();
  int before = mode;
  if (*changed < GLOBAL || *changed > RELAXED)
    return INVALID_VALUE;
  mode = *changed;
  *changed = before;
  return OK;
}

/* ---- operations ---- */

static int perform(const operation *o) {
  if (o->work)
    return o->work(o->data);
  if (!o->kernel) {
    if (mock_is_elsewhere(o->to, o->device) || mock_is_elsewhere(o->from, o->device))
      return INVALID_CONTEXT;
    memcpy(o->to, o->from, o->bytes);
    return OK;
  }
  return mock_perform_launch(o);
}

/* Of a stream that can be recorded; NULL: it cannot. */
stream *mock_stream_of(void *s) { return (uintptr_t)s == LEGACY ? NULL : s; }

static operation *copy_of(const operation *o) {
  operation *kept = malloc(sizeof *kept);
  *kept = *o;
  kept->next = NULL;
  if (o->work) {
    kept->data = malloc(o->bytes);
    memcpy(kept->data, o->data, o->bytes);
  }
  return kept;
}

static void append(graph *g, operation *o) {
  *g->last = o;
  g->last = &o->next;
}

/* The first thing that the stream was given. */
static int step(stream *s) {
  operation *o = s->later.first;
  if (!(s->later.first = o->next))
    s->later.last = &s->later.first;
  int code = perform(o);
  free(o->work ? o->data : NULL);
  free(o->read);
  free(o);
  return code;
}

/* Everything that the stream was given; the first code that is no success. */
int mock_catch_up(stream *s) {
  int code = s->failed;
  while (s->later.first) {
    int got = step(s);
    code = code ? code : got;
  }
  s->failed = 0;
  return code;
}

/* The legacy stream and those that are blocking do what they were given before each other in the order of calls: here, at
 * the latest when one of the others is given something. */
static void keep_order(const stream *s) {
  for (stream *other = streams; other; other = other->next)
    if (other != s && (s == &mock_legacy ? other->blocking : other == &mock_legacy && s->blocking))
      other->failed = mock_catch_up(other);
}

/* Locked. Now or later. */
static int give(stream *s, const operation *o) {
  if (!o->work && !o->kernel && (mock_is_not_taken(o->to, s) || mock_is_not_taken(o->from, s)))
    return ILLEGAL_ADDRESS;
  keep_order(s);
  if (mock_state.prompt)
    return perform(o);
  operation *kept = copy_of(o);
  if (!o->work && !o->kernel && !mock_stays(o->from, o->bytes))
    kept->from = kept->read = memcpy(malloc(o->bytes + 1), o->from, o->bytes);
  append(&s->later, kept);
  if (!o->work && !o->kernel && !mock_state.unpoisoned && !mock_is_of_device(o->to))
    memset(o->to, POISON, o->bytes);
  return OK;
}

/* Locked. The legacy stream would wait for streams that are being captured, which spoils these. */
static int legacy_refused(void) {
  int code = OK;
  for (stream *s = streams; s; s = s->next)
    if (s->capture && s->blocking) {
      s->spoilt = 1;
      code = CAPTURE_IMPLICIT;
    }
  return code;
}

int mock_submit(void *where, const operation *given) {
  stream *s = mock_stream_of(where);
  operation here = *given, *o = &here;
  o->device = mock_device();
  if (!s || !s->capture) {
    pthread_mutex_lock(&mock_mutex);
    int code = s ? OK : legacy_refused();
    return mock_unlock(code ? code : give(s ? s : &mock_legacy, o));
  }
  if (!o->work && !o->kernel && !(mock_stays(o->to, o->bytes) && mock_stays(o->from, o->bytes)))
    return mock_refused();
  append(s->capture, copy_of(o));
  return OK;
}

int mock_submit_work(void *where, int (*work)(const void *data), const void *data, size_t bytes) {
  return mock_submit(where, &(operation){.work = work, .data = (void *)data, .bytes = bytes});
}

int mock_cuda_submit(void *stream, int (*work)(const void *data), const void *data, size_t bytes) {
  return mock_submit_work(stream, work, data, bytes);
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *where) {
  mock_count();
  int code = mock_failure();
  if (code)
    return code;
  code = mock_submit(where, &(operation){.to = (void *)(uintptr_t)to, .from = from, .bytes = bytes});
  __atomic_add_fetch(&mock_state.copies_in, code == OK, __ATOMIC_RELAXED);
  return code;
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *where) {
  mock_count();
  return mock_submit(where, &(operation){.to = to, .from = (const void *)(uintptr_t)from, .bytes = bytes});
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *where) {
  mock_count();
  return mock_submit(where,
                &(operation){.to = (void *)(uintptr_t)to, .from = (const void *)(uintptr_t)from, .bytes = bytes});
}

/* As the driver has it (CUDA_MEMCPY2D); rows one by one, since they may be recorded. */
typedef struct rows_copy {
  size_t from_x, from_y;
  int from_kind;
  const void *from_host;
  uint64_t from_device;
  void *from_array;
  size_t from_pitch, to_x, to_y;
  int to_kind;
  void *to_host;
  uint64_t to_device;
  void *to_array;
  size_t to_pitch, width, height;
} rows_copy;

int cuMemcpy2DAsync_v2(const rows_copy *c, void *where) {
  mock_count();
  const char *from = c->from_kind == 2 ? (const char *)(uintptr_t)c->from_device : c->from_host;
  char *to = c->to_kind == 2 ? (char *)(uintptr_t)c->to_device : c->to_host;
  int code = !mock_depth ? INVALID_CONTEXT : OK;
  if (c->from_x || c->from_y || c->to_x || c->to_y || c->width > c->from_pitch || c->width > c->to_pitch ||
      c->from_pitch > INT32_MAX || c->to_pitch > INT32_MAX || (c->from_kind == 2) != mock_is_of_device(from) ||
      (c->to_kind == 2) != mock_is_of_device(to))
    return INVALID_VALUE;
  for (size_t i = 0; i < c->height && !code; i++)
    code = mock_submit(where, &(operation){.to = to + i * c->to_pitch, .from = from + i * c->from_pitch, .bytes = c->width});
  return code;
}

typedef struct filling {
  void *to;
  size_t bytes;
  unsigned char value;
} filling;

static int fill(const void *data) {
  const filling *f = data;
  memset(f->to, f->value, f->bytes);
  return OK;
}

int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void *where) {
  mock_count();
  const filling f = {(void *)(uintptr_t)to, bytes, value};
  return mock_submit(where, &(operation){.work = fill, .data = (void *)&f, .bytes = sizeof f});
}

/* ---- streams and graphs ---- */

int cuGraphDestroy(void *g);

int cuStreamCreate(void **out, unsigned flags) {
  mock_count();
  int code = mock_unsafe();
  code = code ? code : mock_failure();
  if (code)
    return code;
  stream *s = *out = calloc(1, sizeof(stream));
  s->blocking = !(flags & NON_BLOCKING);
  s->later.last = &s->later.first;
  pthread_mutex_lock(&mock_mutex);
  s->next = streams;
  streams = s;
  mock_state.streams++;
  return mock_unlock(OK);
}

/* The driver lets it finish. */
int cuStreamDestroy_v2(void *s) {
  mock_count();
  pthread_mutex_lock(&mock_mutex);
  mock_catch_up(s);
  for (stream **at = &streams; *at; at = &(*at)->next)
    if (*at == s) {
      *at = (*at)->next;
      break;
    }
  free(s);
  mock_state.streams--;
  return mock_unlock(OK);
}

/* A wait on the device whose context is current: what it is to fail with. */
static int device_wait(void) {
  int device = mock_depth ? mock_stack[mock_depth - 1] - FIRST_DEVICE : 0, code = OK;
  if (device < 0 || device >= MOCK_DEVICES)
    return OK;
  pthread_mutex_lock(&mock_mutex);
  mock_state.device_waits[device]++;
  if (device == mock_state.fail_device && mock_state.fail_after-- <= 0)
    code = mock_state.fail_code;
  pthread_mutex_unlock(&mock_mutex);
  if (mock_state.wait_us[device])
    usleep((unsigned)mock_state.wait_us[device]);
  return code;
}

int cuStreamSynchronize(void *s) {
  mock_count();
  int code = device_wait();
  code = code ? code : mock_state.wait_code;
  mock_state.waits++;
  mock_state.wait_code = 0;
  if (code)
    return code;
  if (mock_stream_of(s) && ((stream *)s)->capture)
    return mock_refused();
  pthread_mutex_lock(&mock_mutex);
  stream *of = mock_stream_of(s) ? s : &mock_legacy;
  if (of == &mock_legacy && (code = legacy_refused()))
    return mock_unlock(code);
  keep_order(of);
  return mock_unlock(mock_catch_up(of));
}

int cuStreamBeginCapture_v2(void *s, int how) {
  mock_count();
  if (!mock_stream_of(s) || capturing || ((stream *)s)->capture)
    return CAPTURE_UNSUPPORTED;
  if (mock_state.capture_code[0])
    return mock_state.capture_code[0];
  graph *g = calloc(1, sizeof *g);
  g->last = &g->first;
  capturing = s;
  capturing->capture = g;
  capturing->mode = how;
  capturing->spoilt = capturing->blocking && mock_state.legacy_busy;
  return how == THREAD_LOCAL || mock_state.any_capture ? OK : INVALID_VALUE;
}

int cuStreamIsCapturing(void *s, int *status) {
  mock_count();
  if (!mock_stream_of(s))
    return capturing && capturing->blocking ? CAPTURE_IMPLICIT : (*status = 0, OK);
  const stream *of = s;
  *status = !of->capture ? 0 : of->spoilt ? 2 : 1;
  return OK;
}

int cuStreamEndCapture(void *s, void **out) {
  mock_count();
  stream *ended = s;
  if (!mock_stream_of(s) || ended != capturing)
    return CAPTURE_UNMATCHED;
  *out = ended->capture;
  ended->capture = NULL;
  capturing = NULL;
  if (!ended->spoilt && !mock_state.capture_code[1])
    return OK;
  cuGraphDestroy(*out);
  *out = NULL;
  return ended->spoilt ? CAPTURE_INVALIDATED : mock_state.capture_code[1];
}

/* The executable takes the operations over. */
int cuGraphInstantiateWithFlags(void **out, void *g, unsigned long long flags) {
  mock_count();
  (void)flags;
  if (mock_state.capture_code[2])
    return mock_state.capture_code[2];
  graph *copy = malloc(sizeof *copy);
  *copy = *(graph *)g;
  ((graph *)g)->first = NULL;
  *out = copy;
  mock_state.recordings++;
  mock_state.graphs++;
  return OK;
}

int cuGraphLaunch(void *executable, void *s) {
  mock_count();
  if (!mock_depth || (mock_stream_of(s) && ((stream *)s)->capture))
    return mock_refused();
  pthread_mutex_lock(&mock_mutex);
  mock_state.replays++;
  for (const operation *o = ((graph *)executable)->first; o; o = o->next)
    if (give(mock_stream_of(s) ? s : &mock_legacy, o))
      return mock_unlock(LAUNCH_FAILED);
  return mock_unlock(OK);
}

int cuGraphDestroy(void *g) {
  mock_count();
  for (operation *o = ((graph *)g)->first, *next; o; o = next) {
    next = o->next;
    free(o->data);
    free(o);
  }
  free(g);
  return OK;
}

int cuGraphExecDestroy(void *executable) {
  mock_count();
  mock_state.graphs--;
  return cuGraphDestroy(executable);
}

/* ---- events: what the mock's clock says ---- */

int cuEventCreate(void **out, unsigned flags) {
  mock_count();
  (void)flags;
  if (!mock_depth)
    return INVALID_CONTEXT;
  int code = mock_failure();
  if (code)
    return code;
  *out = calloc(1, sizeof(event));
  mock_state.events++;
  return OK;
}

typedef struct noting {
  event *event;
  unsigned ticket;
} noting;

static int note_time(const void *data) {
  const noting *n = data;
  n->event->us = mock_state.clock_us;
  n->event->done = n->ticket;
  return OK;
}

/* The other stream does what it was given up to that recording, and no more. */
static int await(const void *data) {
  const noting *n = data;
  stream *s = n->event->stream;
  int code = OK;
  while (n->event->done < n->ticket && s && s->later.first && !code)
    code = step(s);
  return code;
}

int cuStreamWaitEvent(void *s, void *e, unsigned flags) {
  mock_count();
  const noting n = {e, ((event *)e)->ticket};
  if (flags || !mock_depth || (mock_stream_of(s) && ((stream *)s)->capture))
    return flags ? INVALID_VALUE : mock_refused();
  mock_state.event_waits++;
  int code = mock_failure();
  if (code)
    return code;
  return mock_submit_work(s, await, &n, sizeof n);
}

int cuEventRecord(void *e, void *s) {
  mock_count();
  if (mock_stream_of(s) && ((stream *)s)->capture)
    return mock_refused();
  event *kept = e;
  int code = mock_failure();
  if (code)
    return code;
  kept->recorded = 1;
  kept->stream = mock_stream_of(s) ? s : &mock_legacy;
  const noting n = {kept, ++kept->ticket};
  return mock_submit_work(s, note_time, &n, sizeof n);
}

int cuEventSynchronize(void *e) {
  mock_count();
  pthread_mutex_lock(&mock_mutex);
  stream *s = ((event *)e)->stream;
  int code = s ? mock_catch_up(s) : OK;
  return mock_unlock(code);
}

int cuEventElapsedTime(float *ms, void *from, void *to) {
  mock_count();
  const event *a = from, *b = to;
  *ms = (float)((b->us - a->us) / 1000);
  return a->recorded && b->recorded ? OK : INVALID_HANDLE;
}

/* Once the stream has come to it. */
int cuEventDestroy_v2(void *e) {
  mock_count();
  pthread_mutex_lock(&mock_mutex);
  for (stream *s = streams; s; s = s->next)
    if (s == ((event *)e)->stream)
      s->failed = mock_catch_up(s);
  free(e);
  mock_state.events--;
  return mock_unlock(OK);
}
