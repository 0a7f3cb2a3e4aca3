/* SPDX-License-Identifier: Apache-2.0 */
/* request.c - a request: its inputs, which are read where they are, its response, the states of its sequence.
 *
 * In:  a request of Triton's. Out: views of its inputs; memory for its outputs; the response, sent.
 */
#include "integrations/triton/backend.h"

#include <string.h>

/* ---- inputs ---- */

/* Triton gives the first request of a sequence memory that nobody wrote to, unless the configuration has an initial_state; and
 * where that has no rows, the shape is told with one. */
static void begin_state(view *v, const port *p, bool starts) {
  bool is_bare = starts && p->starts_bare;
  if (v->bytes && !is_bare)
    return;
  for (int32_t d = 0; d < v->rank; d++)
    if (p->grows[d])
      v->dims[d] = 0;
  int64_t bytes = cyto_tensor_bytes(p->at.dtype, v->rank, v->dims);
  v->is_zero = is_bare;
  v->bytes = !bytes ? 0 : v->bytes;
}

static triton_error *check_bytes(const view *v, const port *p) {
  int64_t bytes = cyto_tensor_bytes(p->at.dtype, v->rank, v->dims);
  if (p->at.dtype == CYTO_STRING ? bytes >= 0 : bytes == (int64_t)v->bytes)
    return NULL;
  return error_of(TRITON_INVALID_ARG, "input '%s': expected %lld bytes, as its shape has, found %llu", p->at.name,
                  (long long)bytes, (unsigned long long)v->bytes);
}

static triton_error *read_input(request *r, const port *p, bool starts, view *v) {
  const int64_t *dims;
  uint32_t rank;
  int type;
  triton_error *error = TRITONBACKEND_RequestInput(r->triton, p->at.name, &v->input);
  if (error && p->at.is_optional) {
    ignore(error);
    v->input = NULL;
    return NULL;
  }
  if (error)
    return error;
  TRY(TRITONBACKEND_InputProperties(v->input, NULL, &type, &dims, &rank, &v->bytes, &v->pieces));
  if (type != p->type)
    return error_of(TRITON_INVALID_ARG, "input '%s': expected %s, found %s", p->at.name, type_name(p->type),
                    type_name(type));
  if (rank > CYTO_MAX_RANK)
    return error_of(TRITON_INVALID_ARG, "input '%s' has %u dims, at most %d are possible", p->at.name, rank,
                    CYTO_MAX_RANK);
  v->rank = p->at.rank || rank != 1 || dims[0] != 1 ? (int32_t)rank : 0; /* Triton has [1] for a scalar */
  memcpy(v->dims, dims, rank * sizeof *dims);
  if (p->is_state)
    begin_state(v, p, starts);
  return check_bytes(v, p);
}

/* All inputs have as many rows. */
static triton_error *count_rows(request *r, const model *m) {
  r->rows = 1;
  const char *first = NULL;
  for (int32_t i = 0; m->max_batch && i < m->n_inputs; i++) {
    const view *v = &r->inputs[i];
    if (!v->input || m->inputs[i].is_control)
      continue;
    if (!v->rank || (first && v->dims[0] != r->rows))
      return error_of(TRITON_INVALID_ARG, "input '%s' has %lld rows, '%s' has %lld: expected a batch of one size",
                      m->inputs[i].at.name, v->rank ? (long long)v->dims[0] : 0LL, first ? first : "",
                      (long long)r->rows);
    r->rows = v->dims[0];
    first = m->inputs[i].at.name;
  }
  return NULL;
}

static triton_error *read_wanted(request *r, const model *m) {
  uint32_t n;
  TRY(TRITONBACKEND_RequestOutputCount(r->triton, &n));
  for (uint32_t k = 0; k < n; k++) {
    const char *name;
    TRY(TRITONBACKEND_RequestOutputName(r->triton, k, &name));
    const port *p = port_find(m->outputs, m->n_outputs, name);
    if (p)
      r->outputs[p->index].wanted = true;
  }
  return NULL;
}

static triton_error *read_request(request *r, const model *m) {
  bool cancelled = false;
  uint32_t flags = 0;
  ignore(TRITONBACKEND_RequestIsCancelled(r->triton, &cancelled));
  if (cancelled)
    return error_of(TRITON_CANCELLED, "the request was cancelled");
  ignore(TRITONBACKEND_RequestFlags(r->triton, &flags));
  for (int32_t i = 0; i < m->n_inputs; i++)
    TRY(read_input(r, &m->inputs[i], flags & TRITON_SEQUENCE_START, &r->inputs[i]));
  TRY(count_rows(r, m));
  return read_wanted(r, m);
}

void request_begin(request *r, const model *m, triton_request *triton) {
  r->triton = triton;
  r->error = TRITONBACKEND_ResponseNew(&r->response, triton);
  if (!r->error)
    r->error = read_request(r, m);
}

bool request_fits(const request *a, const request *b, const model *m) {
  for (int32_t i = 0; i < m->n_inputs; i++) {
    const view *x = &a->inputs[i], *y = &b->inputs[i];
    if (!x->input != !y->input || x->rank != y->rank)
      return false;
    if (x->rank > 1 && memcmp(x->dims + 1, y->dims + 1, (size_t)(x->rank - 1) * sizeof *x->dims))
      return false;
  }
  return true;
}

static triton_error *read_piece(const view *v, const char *name, uint32_t k, const void **data, uint64_t *bytes) {
  int memory = TRITON_CPU;
  int64_t device = 0;
  TRY(TRITONBACKEND_InputBuffer(v->input, k, data, bytes, &memory, &device));
  if (memory == TRITON_GPU)
    return error_of(TRITON_UNSUPPORTED,
                    "input '%s' lies on a GPU: expected memory of the host, or system shared memory", name);
  return NULL;
}

triton_error *request_copy(const view *v, const char *name, void *to) {
  uint64_t done = 0;
  if (v->is_zero) {
    memset(to, 0, v->bytes);
    return NULL;
  }
  for (uint32_t k = 0; k < v->pieces && done < v->bytes; k++) {
    const void *data;
    uint64_t bytes;
    TRY(read_piece(v, name, k, &data, &bytes));
    if (bytes > v->bytes - done)
      bytes = v->bytes - done;
    if (bytes)
      memcpy((char *)to + done, data, bytes);
    done += bytes;
  }
  if (done == v->bytes)
    return NULL;
  return error_of(TRITON_INVALID_ARG, "input '%s': expected %llu bytes, found %llu", name, (unsigned long long)v->bytes,
                  (unsigned long long)done);
}

triton_error *request_direct(const view *v, const char *name, uint64_t alignment, const void **data) {
  uint64_t bytes = 0;
  *data = NULL;
  if (v->pieces != 1 || !v->bytes || v->is_zero)
    return NULL;
  TRY(read_piece(v, name, 0, data, &bytes));
  if (bytes != v->bytes || (alignment && (uintptr_t)*data % alignment))
    *data = NULL;
  return NULL;
}

/* ---- outputs ---- */

static triton_error *check_memory(const char *name, int memory) {
  if (memory != TRITON_GPU)
    return NULL;
  return error_of(TRITON_UNSUPPORTED, "output '%s' is wanted on a GPU: expected memory of the host", name);
}

static triton_error *place_state(request *r, const port *p, const int64_t *dims, int32_t rank, uint64_t bytes) {
  target *t = &r->outputs[p->index];
  int memory = TRITON_CPU;
  int64_t device = 0;
  TRY(TRITONBACKEND_StateNew(&t->handle, r->triton, p->at.name, p->type, dims, (uint32_t)rank));
  TRY(TRITONBACKEND_StateBuffer(t->handle, &t->state, bytes, &memory, &device));
  return check_memory(p->at.name, memory);
}

triton_error *request_place(request *r, const port *p, const int64_t *dims, int32_t rank, uint64_t bytes) {
  static const int64_t one[] = {1};
  target *t = &r->outputs[p->index];
  if (!rank) { /* Triton has no scalars */
    dims = one;
    rank = 1;
  }
  triton_output *output;
  int memory = TRITON_CPU;
  int64_t device = 0;
  if (p->twin >= 0)
    TRY(place_state(r, p, dims, rank, bytes));
  if (!t->wanted)
    return NULL;
  TRY(TRITONBACKEND_ResponseOutput(r->response, &output, p->at.name, p->type, dims, (uint32_t)rank));
  TRY(TRITONBACKEND_OutputBuffer(output, &t->response, bytes, &memory, &device));
  return check_memory(p->at.name, memory);
}

triton_error *request_update_states(const request *r, const model *m) {
  for (int32_t o = 0; o < m->n_outputs; o++)
    if (r->outputs[o].handle)
      TRY(TRITONBACKEND_StateUpdate(r->outputs[o].handle));
  return NULL;
}

void request_answer(request *r) {
  if (r->response)
    ignore(TRITONBACKEND_ResponseSend(r->response, TRITON_RESPONSE_FINAL, r->error));
}
