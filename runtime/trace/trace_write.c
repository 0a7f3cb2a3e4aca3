/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* trace_write.c - a recording as a file of Chrome's trace format, which Perfetto opens.
 *
 * In: a recording that is over. Out: {"displayTimeUnit": "ns", "otherData": {..}, "traceEvents": [..]}:
 *   M  names: process 1 is the host, whose lanes are threads by the system's numbers; 2 is the device, with its streams
 *   X  runs (cat "run"), their steps ("step"), what each thread did of a step ("thread"), copies ("copy"); complete events,
 *      which nest within a lane, in the order of their beginning
 *   C  "memory, context N": bytes of the arena alive, and of tensors whose size depends on data, where these change
 * Times are microseconds since the recording began, with three digits for the nanoseconds.
 */
#include "runtime/numbers.h"
#include "trace.h"

#include <stdlib.h>
#include <string.h>

enum { HOST = 1, DEVICE = 2, NUMBER = 40 };

typedef struct writer {
  int64_t file;
  size_t n;
  int failed, comma;
  char why[CYRT_WHY];
  char buffer[1 << 15];
} writer;

/* An event and the context that it is of. */
typedef struct entry {
  const cyrt_event *event;
  const trace_recorder *of;
} entry;

typedef struct lane {
  uint64_t number;
  int stream, runs; /* runs: it has begun some */
} lane;

typedef struct document {
  trace *t;
  entry *entries;
  int64_t n;
  lane *lanes;
  int64_t n_lanes, last;
} document;

/* ---- text ---- */

static void flush(writer *w) {
  if (!w->failed && w->n)
    w->failed = !cyrt_os_file_write(w->file, w->buffer, w->n, w->why);
  w->n = 0;
}

static void put_bytes(writer *w, const char *bytes, size_t n) {
  for (size_t part; n; bytes += part, n -= part) {
    if (w->n == sizeof w->buffer)
      flush(w);
    part = sizeof w->buffer - w->n < n ? sizeof w->buffer - w->n : n;
    memcpy(w->buffer + w->n, bytes, part);
    w->n += part;
  }
}

static void put(writer *w, const char *text) { put_bytes(w, text, strlen(text)); }

static void put_integer(writer *w, int64_t v) {
  char text[NUMBER];
  put_bytes(w, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)v));
}

static void put_real(writer *w, double v) {
  char text[NUMBER];
  put_bytes(w, text, (size_t)cyrt_number_put(text, sizeof text, 9, v));
}

static void put_us(writer *w, int64_t ns) {
  char digits[4] = {'.', (char)('0' + ns / 100 % 10), (char)('0' + ns / 10 % 10), (char)('0' + ns % 10)};
  put_integer(w, ns / 1000);
  put_bytes(w, digits, 4);
}

/* Bytes of the UTF-8 sequence at `s`; 0: it is none. */
static size_t sequence(const unsigned char *s) {
  size_t n = *s < 0x80 ? 1 : *s >= 0xc2 && *s < 0xe0 ? 2 : (*s & 0xf0) == 0xe0 ? 3 : *s >= 0xf0 && *s < 0xf5 ? 4 : 0;
  for (size_t i = 1; i < n; i++)
    if ((s[i] & 0xc0) != 0x80)
      return 0;
  int surrogate = n == 3 && s[0] == 0xed && s[1] >= 0xa0;
  int longer = (n == 3 && s[0] == 0xe0 && s[1] < 0xa0) || (n == 4 && s[0] == 0xf0 && s[1] < 0x90);
  int beyond = n == 4 && s[0] == 0xf4 && s[1] >= 0x90;
  return surrogate || longer || beyond ? 0 : n;
}

/* As a string of JSON; names may be any bytes. */
static void put_text(writer *w, const char *text) {
  static const char hex[] = "0123456789abcdef";
  put(w, "\"");
  for (const unsigned char *s = (const unsigned char *)text; *s;) {
    size_t n = sequence(s);
    if (!n) {
      put(w, "?");
    } else if (*s < 0x20) {
      char escape[6] = {'\\', 'u', '0', '0', hex[*s >> 4], hex[*s & 15]};
      put_bytes(w, escape, sizeof escape);
    } else {
      put_bytes(w, "\\", *s == '"' || *s == '\\');
      put_bytes(w, (const char *)s, n);
    }
    s += n ? n : 1;
  }
  put(w, "\"");
}

static void key(writer *w, const char *name) {
  if (w->comma)
    put(w, ", ");
  w->comma = 1;
  put_text(w, name);
  put(w, ": ");
}

static void text_field(writer *w, const char *name, const char *text) {
  key(w, name);
  put_text(w, text ? text : "");
}

static void integer_field(writer *w, const char *name, int64_t v) {
  key(w, name);
  put_integer(w, v);
}

static void real_field(writer *w, const char *name, double v) {
  key(w, name);
  put_real(w, v);
}

static void open_object(writer *w, const char *name) {
  key(w, name);
  put(w, "{");
  w->comma = 0;
}

static void close_object(writer *w) {
  put(w, "}");
  w->comma = 1;
}

static void open_event(writer *w, const char *phase, const char *name, int process, int64_t lane) {
  put(w, ",\n{");
  w->comma = 0;
  text_field(w, "ph", phase);
  text_field(w, "name", name);
  integer_field(w, "pid", process);
  integer_field(w, "tid", lane);
}

/* ---- what there is ---- */

static int by_start(const void *a, const void *b) {
  const cyrt_event *x = ((const entry *)a)->event, *y = ((const entry *)b)->event;
  if (x->start != y->start)
    return x->start < y->start ? -1 : 1;
  if (x->end != y->end) /* what is around another stands in front of it */
    return x->end > y->end ? -1 : 1;
  return (y->kind == CYRT_EVENT_RUN) - (x->kind == CYRT_EVENT_RUN) + (x->kind == CYRT_EVENT_PIECE) -
         (y->kind == CYRT_EVENT_PIECE);
}

/* The event's lane, by its place in the list; -1: no memory. */
static int64_t lane_of(document *d, const cyrt_event *e) {
  for (int64_t i = 0; i < d->n_lanes; i++) {
    int64_t at = (d->last + i) % d->n_lanes;
    if (d->lanes[at].number == e->lane && d->lanes[at].stream == e->stream)
      return d->last = at;
  }
  lane *more = realloc(d->lanes, (size_t)(d->n_lanes + 1) * sizeof *more);
  if (!more)
    return -1;
  d->lanes = more;
  d->lanes[d->n_lanes] = (lane){e->lane, e->stream, 0};
  return d->last = d->n_lanes++;
}

static int collect(document *d) {
  trace_recorder *first = atomic_load(&d->t->recorders);
  for (const trace_recorder *r = first; r; r = r->next)
    for (const trace_chunk *chunk = r->first; chunk; chunk = chunk->next)
      d->n += chunk->n;
  d->entries = malloc(((size_t)d->n + 1) * sizeof *d->entries);
  if (!d->entries)
    return 0;
  int64_t n = 0;
  for (const trace_recorder *r = first; r; r = r->next)
    for (const trace_chunk *chunk = r->first; chunk; chunk = chunk->next)
      for (int64_t i = 0; i < chunk->n; i++)
        d->entries[n++] = (entry){&chunk->events[i], r};
  qsort(d->entries, (size_t)n, sizeof *d->entries, by_start);
  for (int64_t i = 0; i < n; i++) {
    int64_t at = lane_of(d, d->entries[i].event);
    if (at < 0)
      return 0;
    d->lanes[at].runs |= d->entries[i].event->kind == CYRT_EVENT_RUN;
  }
  return 1;
}

/* What a lane is called in the file: threads by their numbers, streams from 1. */
static int64_t lane_number(const document *d, int64_t at) {
  int64_t stream = 1;
  if (!d->lanes[at].stream)
    return (int64_t)d->lanes[at].number;
  for (int64_t i = 0; i < at; i++)
    stream += d->lanes[i].stream;
  return stream;
}

/* ---- events ---- */

static void name_event(writer *w, const char *what, int process, int64_t lane, const char *name) {
  open_event(w, "M", what, process, lane);
  open_object(w, "args");
  text_field(w, "name", name);
  close_object(w);
  put(w, "}");
}

static void put_names(writer *w, const document *d) {
  char text[400];
  int device = 0;
  snprintf(text, sizeof text, "%.200s (%.100s)", d->t->code->name ? d->t->code->name : "model",
           d->t->code->target ? d->t->code->target : "");
  name_event(w, "process_name", HOST, 0, text);
  for (int64_t i = 0; i < d->n_lanes; i++) {
    int64_t number = lane_number(d, i);
    int stream = d->lanes[i].stream;
    if (stream && !device++)
      name_event(w, "process_name", DEVICE, 0, "device");
    snprintf(text, sizeof text, "%s %lld",
             stream             ? "stream"
             : d->lanes[i].runs ? "thread"
                                : "worker",
             (long long)number);
    name_event(w, "thread_name", stream ? DEVICE : HOST, number, text);
  }
}

static void put_step(writer *w, const document *d, const entry *x) {
  const cyrt_profile_row *row = x->event->row;
  const cyrt_event *e = x->event;
  int piece = e->kind == CYRT_EVENT_PIECE;
  text_field(w, "ops", row->ops);
  text_field(w, "algorithm", row->algorithm);
  text_field(w, "kernel", row->kernel);
  integer_field(w, "step", row->position);
  if (piece) {
    integer_field(w, "tasks", e->a);
    return;
  }
  if (e->failed)
    text_field(w, "failed", "the run ended here");
  if (e->other) {
    text_field(w, "work_is_known_for", row->assumed);
    return;
  }
  if (row->flops > 0)
    real_field(w, "flops", row->flops);
  if (row->bytes > 0)
    real_field(w, "bytes", row->bytes);
  double floor_ns = row->floor * d->t->cycle_ns / (double)x->of->workers;
  if (floor_ns <= 0)
    return;
  real_field(w, "floor_us", floor_ns * 1e-3);
  if (e->end > e->start)
    real_field(w, "of_floor", floor_ns / (double)(e->end - e->start));
}

static void put_run(writer *w, const entry *x) {
  const cyrt_event *e = x->event;
  integer_field(w, "context", x->of->number);
  integer_field(w, "run", e->a);
  integer_field(w, "threads", x->of->workers);
  if (e->a < x->of->runs_room) {
    const trace_run *run = &x->of->runs[e->a];
    integer_field(w, "arena_bytes", (int64_t)run->arena);
    integer_field(w, "bytes_to_device", (int64_t)run->bytes_in);
    integer_field(w, "bytes_from_device", (int64_t)run->bytes_out);
    if (run->failure)
      text_field(w, "failure", run->failure);
  }
}

static void put_complete(writer *w, document *d, const entry *x) {
  static const char *const kinds[] = {"step", "thread", "run", "copy", "copy"};
  const cyrt_event *e = x->event;
  char text[64];
  const char *name = text;
  if (e->kind == CYRT_EVENT_RUN)
    snprintf(text, sizeof text, e->a ? "run %lld" : "first run (cold)", (long long)e->a);
  else if (!e->row)
    name = e->kind == CYRT_EVENT_IN ? "inputs to the device" : "outputs from the device";
  else
    name = e->row->node && *e->row->node ? e->row->node : e->row->ops;
  open_event(w, "X", name, e->stream ? DEVICE : HOST, lane_number(d, lane_of(d, e)));
  text_field(w, "cat", kinds[e->kind]);
  key(w, "ts");
  put_us(w, e->start - d->t->began);
  key(w, "dur");
  put_us(w, e->end - e->start);
  open_object(w, "args");
  if (e->row)
    put_step(w, d, x);
  else if (e->kind == CYRT_EVENT_RUN)
    put_run(w, x);
  else
    integer_field(w, "bytes", e->a);
  close_object(w);
  put(w, "}");
}

static void put_memory(writer *w, const document *d, const entry *x, int64_t at, int64_t arena, int64_t dynamic) {
  char name[64];
  snprintf(name, sizeof name, "memory, context %lld", (long long)x->of->number);
  open_event(w, "C", name, HOST, 0);
  key(w, "ts");
  put_us(w, at - d->t->began);
  open_object(w, "args");
  integer_field(w, "arena", arena);
  if (d->t->code->n_dynamic)
    integer_field(w, "of data-dependent size", dynamic);
  close_object(w);
  put(w, "}");
}

/* What contexts have in use, from step to step; nothing of the arena between runs. */
static void put_events(writer *w, document *d) {
  int64_t contexts = atomic_load(&d->t->contexts);
  int64_t *shown = calloc((size_t)contexts * 2 + 1, sizeof *shown);
  for (int64_t i = 0; i < d->n && !w->failed; i++) {
    const entry *x = &d->entries[i];
    int64_t *now = shown ? shown + 2 * x->of->number : NULL;
    int step = x->event->kind == CYRT_EVENT_STEP, run = x->event->kind == CYRT_EVENT_RUN;
    int64_t arena = step ? x->event->a : 0, dynamic = step ? x->event->b : 0;
    if (now && (step || run) && (now[0] != arena || (step && now[1] != dynamic))) {
      dynamic = step ? dynamic : now[1];
      put_memory(w, d, x, x->event->start, arena, dynamic);
      now[0] = arena;
      now[1] = dynamic;
    }
    put_complete(w, d, x);
  }
  free(shown);
}

static void put_document(writer *w, document *d) {
  const cyrt_model *code = d->t->code;
  put(w, "{\"displayTimeUnit\": \"ns\", ");
  open_object(w, "otherData");
  text_field(w, "model", code->name);
  text_field(w, "target", code->target);
  text_field(w, "compiler", code->compiler);
  integer_field(w, "weights_bytes", (int64_t)code->weights_bytes);
  integer_field(w, "recorded_ns", d->t->ended - d->t->began);
  integer_field(w, "events_left_out", atomic_load(&d->t->dropped));
  close_object(w);
  put(w, ",\n\"traceEvents\": [\n{\"ph\": \"M\", \"name\": \"process_sort_index\", \"pid\": 1, \"tid\": 0, \"args\": "
         "{\"sort_index\": 0}}");
  put_names(w, d);
  put_events(w, d);
  put(w, "\n]}\n");
  flush(w);
}

static cyto_status write_file(document *d, const char *path, cyto_error *error) {
  writer *w = calloc(1, sizeof *w);
  if (!w || !collect(d)) {
    free(w);
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for writing a recording of %lld events",
                          (long long)d->n);
  }
  w->file = cyrt_os_file_create(path, w->why);
  w->failed = w->file < 0;
  if (!w->failed) {
    cyrt_numbers theirs = cyrt_numbers_begin();
    put_document(w, d);
    cyrt_numbers_end(theirs);
    char late[CYRT_WHY];
    int closed = cyrt_os_file_close(w->file, w->failed ? late : w->why);
    w->failed |= !closed;
    if (w->failed)
      cyrt_os_file_remove(path);
  }
  cyto_status status =
      w->failed ? cyrt_error_set(error, CYTO_RUNTIME_FAILURE, "'%s': cannot write the recording: %s", path, w->why)
                : CYTO_OK;
  free(w);
  return status;
}

cyto_status cyto_trace_write(cyto_model *model, const char *path, cyto_error *error) {
  cyrt_error_clear(error);
  if (!model || !path || !*path)
    return cyrt_error_null(error, "cyto_trace_write: no model or no path");
  trace *t = (trace *)__atomic_load_n(&model->trace, __ATOMIC_ACQUIRE);
  cyto_status status = CYTO_NOT_READY;
  document d = {.t = t};
  if (t)
    cyrt_lock_take(&t->lock);
  if (t && !atomic_load(&t->recording)) /* nor does one begin meanwhile */
    status = write_file(&d, path, error);
  else
    cyrt_error_set(error, CYTO_NOT_READY,
                   "there is no recording that is over: call cyto_trace_start(), run the model, and call "
                   "cyto_trace_stop()");
  if (t)
    cyrt_lock_give(&t->lock);
  free(d.entries);
  free(d.lanes);
  return status;
}
