/* SPDX-License-Identifier: Apache-2.0 */
/* execute.c - requests are run.
 *
 * In:  the requests that Triton's scheduler gives an instance at once.
 * Out: their responses; times for Triton's statistics.
 *
 * Requests of one shape become one batch: their inputs are copied behind each other, the outputs cut. Those of other shapes,
 * which only sequences give, are batches of their own. A request that is alone is copied nowhere: the library reads its inputs
 * where they are, and writes to the response, or to the state of the sequence. What fails in a batch is run again one by one,
 * so that a request answers for nobody but itself: a batch's responses get memory when the run was good, as an output of a
 * response can be had only once. A client that is gone costs nothing.
 */
#include "integrations/triton/backend.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const uint64_t nothing[8]; /* what a tensor without elements points to */

/* Requests that run together. */
typedef struct batch {
  instance *i;
  request **members;
  uint32_t n;
  int64_t rows;
} batch;

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- inputs ---- */

static triton_error *gather(const batch *b, int32_t k, const void **data, uint64_t *total) {
  const char *name = b->i->model->inputs[k].at.name;
  room *to = &b->i->gathered[k];
  *total = 0;
  for (uint32_t r = 0; r < b->n; r++)
    if (__builtin_add_overflow(*total, b->members[r]->inputs[k].bytes, total))
      return out_of_memory();
  if (!room_get(to, *total))
    return out_of_memory();
  uint64_t done = 0;
  for (uint32_t r = 0; r < b->n; r++) {
    const view *v = &b->members[r]->inputs[k];
    TRY(request_copy(v, name, (char *)to->data + done));
    done += v->bytes;
  }
  *data = to->data;
  return NULL;
}

static triton_error *read_strings(const batch *b, const port *p, cyto_tensor *t, uint64_t bytes) {
  room *to = &b->i->strings[p->index];
  int64_t room_bytes = cyto_tensor_bytes(CYTO_STRING, t->rank, t->dims);
  uint64_t n = (uint64_t)room_bytes / sizeof(cyto_string);
  /* Each string has 4 bytes at least. */
  if (room_bytes < 0 || n > bytes / 4)
    return error_of(TRITON_INVALID_ARG, "input '%s': %llu strings do not fit into %llu bytes", p->at.name,
                    (unsigned long long)n, (unsigned long long)bytes);
  if (!room_get(to, (uint64_t)room_bytes))
    return out_of_memory();
  TRY(text_read(p->at.name, t->data, bytes, to->data, n));
  t->data = to->data;
  return NULL;
}

static triton_error *bind_input(const batch *b, int32_t k) {
  const port *p = &b->i->model->inputs[k];
  const view *v = &b->members[0]->inputs[k];
  cyto_tensor t = {.dtype = p->at.dtype, .rank = v->rank};
  const void *data = NULL;
  uint64_t bytes = v->bytes;
  if (!v->input)
    return instance_bind(b->i, k, &t);
  memcpy(t.dims, v->dims, (size_t)v->rank * sizeof *t.dims);
  if (b->i->model->max_batch && v->rank && !p->is_control)
    t.dims[0] = b->rows;
  if (b->n == 1 && p->at.dtype != CYTO_STRING)
    TRY(request_direct(v, p->at.name, (uint64_t)type_bytes(p->type), &data));
  if (!data)
    TRY(gather(b, k, &data, &bytes));
  t.data = (void *)(uintptr_t)(bytes ? data : nothing);
  if (p->at.dtype == CYTO_STRING)
    TRY(read_strings(b, p, &t, bytes));
  return instance_bind(b->i, k, &t);
}

/* ---- outputs ---- */

/* Its size is known only after the run. */
static bool is_late(const port *p) { return p->at.is_dynamic || p->at.dtype == CYTO_STRING; }

static bool lies_in_input(const instance *i, const void *data, uint64_t bytes) {
  uintptr_t begin = (uintptr_t)data, end = begin + bytes;
  for (int32_t k = 0; k < i->model->n_inputs; k++) {
    uintptr_t from = (uintptr_t)i->bound[k].data;
    int64_t size = i->bound[k].data ? cyto_tensor_bytes(i->bound[k].dtype, i->bound[k].rank, i->bound[k].dims) : 0;
    if (size > 0 && begin < from + (uintptr_t)size && from < end)
      return true;
  }
  return false;
}

/* The part of a result that is one request's. */
typedef struct part {
  int64_t dims[CYTO_MAX_RANK];
  uint64_t begin, bytes;
} part;

static part part_of(const batch *b, const cyto_tensor *t, int64_t row, int64_t rows) {
  part p = {.bytes = t->bytes};
  memcpy(p.dims, t->dims, (size_t)t->rank * sizeof *t->dims);
  if (b->n > 1) {
    uint64_t each = b->rows ? t->bytes / (uint64_t)b->rows : 0;
    p.dims[0] = rows;
    p.begin = each * (uint64_t)row;
    p.bytes = each * (uint64_t)rows;
  }
  return p;
}

static triton_error *place(const batch *b, const port *p, const cyto_tensor *t) {
  int64_t row = 0;
  for (uint32_t r = 0; r < b->n; row += b->members[r++]->rows) {
    part mine = part_of(b, t, row, b->members[r]->rows);
    TRY(request_place(b->members[r], p, mine.dims, t->rank, mine.bytes));
  }
  return NULL;
}

/* Where the library writes: to the response or state of a request that is alone, else to memory of the instance. */
static triton_error *bind_output(const batch *b, int32_t o, void **data) {
  const port *p = &b->i->model->outputs[o];
  const cyto_tensor *t = &b->i->shapes[o];
  const target *only = &b->members[0]->outputs[o];
  cyto_error error = {0};
  if (!p->type)
    return NULL;
  *data = NULL;
  if (!is_late(p)) {
    if (b->n == 1)
      TRY(place(b, p, t));
    *data = only->response ? only->response : only->state;
    if (!*data || lies_in_input(b->i, *data, t->bytes) || (uintptr_t)*data % (uint64_t)type_bytes(p->type))
      *data = room_get(&b->i->results[o], t->bytes) ? b->i->results[o].data : NULL;
    if (!*data)
      return out_of_memory();
  }
  bool own = is_late(p) || !t->bytes;
  cyto_status status = cyto_bind_output(b->i->context, o, own ? NULL : *data, own ? 0 : t->bytes, &error);
  return status ? error_of_runtime(status, &error) : NULL;
}

static void copy(void *to, const void *from, uint64_t bytes) {
  if (to && to != from && bytes)
    memcpy(to, from, bytes);
}

static triton_error *cut(const batch *b, int32_t o, const char *data) {
  int64_t row = 0;
  if (b->n > 1)
    TRY(place(b, &b->i->model->outputs[o], &b->i->shapes[o]));
  for (uint32_t r = 0; r < b->n; row += b->members[r++]->rows) {
    const target *to = &b->members[r]->outputs[o];
    part mine = part_of(b, &b->i->shapes[o], row, b->members[r]->rows);
    copy(to->response, data + mine.begin, mine.bytes);
    copy(to->state, data + mine.begin, mine.bytes);
  }
  return NULL;
}

static triton_error *send_strings(const batch *b, const port *p, const cyto_tensor *t) {
  int64_t row = 0;
  for (uint32_t r = 0; r < b->n; row += b->members[r++]->rows) {
    part mine = part_of(b, t, row, b->members[r]->rows);
    const target *to = &b->members[r]->outputs[p->index];
    const cyto_string *strings = (const cyto_string *)((const char *)t->data + mine.begin);
    uint64_t n = mine.bytes / sizeof *strings;
    TRY(request_place(b->members[r], p, mine.dims, t->rank, text_bytes(strings, n)));
    if (to->response)
      text_write(strings, n, to->response);
    if (to->state)
      text_write(strings, n, to->state);
  }
  return NULL;
}

static triton_error *send_late(const batch *b, const port *p) {
  cyto_tensor t;
  cyto_error error = {0};
  cyto_status status = cyto_output(b->i->context, p->index, &t, &error);
  if (status)
    return error_of_runtime(status, &error);
  if (p->at.dtype == CYTO_STRING)
    return send_strings(b, p, &t);
  TRY(request_place(b->members[0], p, t.dims, t.rank, t.bytes));
  copy(b->members[0]->outputs[p->index].response, t.data, t.bytes);
  copy(b->members[0]->outputs[p->index].state, t.data, t.bytes);
  return NULL;
}

/* ---- a batch ---- */

/* Every result has a row for each that came in. */
static triton_error *check_rows(const batch *b) {
  const model *m = b->i->model;
  for (int32_t o = 0; b->n > 1 && o < m->n_outputs; o++) {
    const cyto_tensor *t = &b->i->shapes[o];
    if (m->outputs[o].type && (m->outputs[o].at.is_dynamic || !t->rank || t->dims[0] != b->rows))
      return error_of(TRITON_INTERNAL, "output '%s' has no row for each of the batch", m->outputs[o].at.name);
  }
  return NULL;
}

static triton_error *bind_all(const batch *b, void **data) {
  const model *m = b->i->model;
  for (int32_t k = 0; k < m->n_inputs; k++)
    TRY(bind_input(b, k));
  TRY(instance_plan(b->i));
  TRY(check_rows(b));
  for (int32_t o = 0; o < m->n_outputs; o++)
    TRY(bind_output(b, o, &data[o]));
  return NULL;
}

static triton_error *send_all(const batch *b, void **data) {
  const model *m = b->i->model;
  for (int32_t o = 0; o < m->n_outputs; o++) {
    if (m->outputs[o].type && is_late(&m->outputs[o]))
      TRY(send_late(b, &m->outputs[o]));
    else if (m->outputs[o].type)
      TRY(cut(b, o, data[o]));
  }
  for (uint32_t r = 0; r < b->n; r++)
    TRY(request_update_states(b->members[r], m));
  return NULL;
}

static triton_error *run_batch(const batch *b, void **data, uint64_t times[2], bool *ran) {
  cyto_error error = {0};
  TRY(bind_all(b, data));
  times[0] = now();
  cyto_status status = cyto_run(b->i->context, &error);
  times[1] = now();
  *ran = !status;
  if (status)
    b->i->planned = false;
  return status ? error_of_runtime(status, &error) : send_all(b, data);
}

/* ---- all requests ---- */

typedef struct work {
  instance *i;
  request *all, **members;
  void **data; /* [n_outputs] where a batch's results are */
  uint32_t n;
  uint64_t begin, first_run, last_run;
  uint64_t rows;
} work;

static void finish(work *w, request *r, const uint64_t times[2]) {
  bool good = !r->error;
  request_answer(r);
  ignore(
      TRITONBACKEND_ModelInstanceReportStatistics(w->i->triton, r->triton, good, w->begin, times[0], times[1], now()));
  if (r->error)
    TRITONSERVER_ErrorDelete(r->error);
  r->error = NULL;
  r->is_done = true;
  ignore(TRITONBACKEND_RequestRelease(r->triton, TRITON_RELEASE_ALL));
}

static void run(work *w, const batch *b) {
  uint64_t times[2] = {now(), 0};
  times[1] = times[0];
  bool ran = false;
  triton_error *error = run_batch(b, w->data, times, &ran);
  if (error && b->n > 1 && !ran) {
    ignore(error);
    for (uint32_t r = 0; r < b->n; r++) {
      batch alone = {b->i, &b->members[r], 1, b->members[r]->rows};
      run(w, &alone);
    }
    return;
  }
  w->first_run = w->first_run ? w->first_run : times[0];
  w->last_run = times[1];
  for (uint32_t r = 0; r < b->n; r++) {
    if (error)
      b->members[r]->error = error_copy(error);
    else
      w->rows += (uint64_t)b->members[r]->rows;
    finish(w, b->members[r], times);
  }
  if (error)
    ignore(error);
}

/* The first that is left, and all that fit it. */
static void run_next(work *w, uint32_t first) {
  batch b = {w->i, w->members, 0, 0};
  for (uint32_t k = first; k < w->n; k++) {
    request *r = &w->all[k];
    if (r->is_done || (b.n && (!w->i->model->max_batch || !request_fits(b.members[0], r, w->i->model))))
      continue;
    b.members[b.n++] = r;
    b.rows += r->rows;
  }
  run(w, &b);
}

/* All memory of the requests in one piece; false: there is none. */
static bool work_begin(work *w, instance *i, triton_request **requests, uint32_t n) {
  size_t inputs = (size_t)i->model->n_inputs, outputs = (size_t)i->model->n_outputs;
  size_t each = sizeof(request) + sizeof(request *) + inputs * sizeof(view) + outputs * sizeof(target);
  size_t bytes = each * n + outputs * sizeof(void *);
  *w = (work){.i = i, .n = n, .begin = now()};
  if (!room_get(&i->requests, bytes))
    return false;
  memset(i->requests.data, 0, bytes);
  w->all = i->requests.data;
  view *views = (view *)(w->all + n);
  target *targets = (target *)(views + inputs * n);
  w->members = (request **)(targets + outputs * n);
  w->data = (void **)(w->members + n);
  for (uint32_t k = 0; k < n; k++) {
    w->all[k].inputs = views + inputs * k;
    w->all[k].outputs = targets + outputs * k;
    request_begin(&w->all[k], i->model, requests[k]);
  }
  return true;
}

triton_error *execute(instance *i, triton_request **requests, uint32_t n) {
  work w;
  if (!work_begin(&w, i, requests, n))
    return out_of_memory();
  for (uint32_t k = 0; k < n; k++)
    if (w.all[k].error)
      finish(&w, &w.all[k], (const uint64_t[2]){w.begin, w.begin});
  for (uint32_t k = 0; k < n; k++)
    if (!w.all[k].is_done)
      run_next(&w, k);
  if (w.rows)
    ignore(
        TRITONBACKEND_ModelInstanceReportBatchStatistics(i->triton, w.rows, w.begin, w.first_run, w.last_run, now()));
  return NULL;
}
