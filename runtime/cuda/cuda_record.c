/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cuda_record.c - the device's context on this thread, streams that are captured, and recording of graphs.
 *
 * In:  what a thread has current, and what the application captures; work for a stream. Out: the model's context current,
 * the caller's again behind it; a graph of the work.
 * Recordings are made on the context's own stream, whichever the runs use: the driver's legacy stream cannot be
 * recorded, and what other threads do with the caller's, or with the legacy stream that it waits for, would get into
 * the recording or spoil it.
 */
#include "cyrt_cuda.h"

#include <stdio.h>

enum {
  ATTRIBUTE_MEMORY_TYPE = 2, /* of a pointer */
  MEMORY_DEVICE = 2,
  CAPTURE_ACTIVE = 1, /* CUstreamCaptureStatus */
  CAPTURE_INVALIDATED = 2,
  UNSUPPORTED = 900, /* CUDA_ERROR_STREAM_CAPTURE_ */
  INVALIDATED = 901
};

cyto_status cyrt_cuda_enter_calmly(const cuda_shared *shared, const cuda_device *device, cuda_entry *out,
                                   cyto_error *error) {
  void *current = NULL;
  cuda_code code = shared->driver.context_current(&current);
  *out = (cuda_entry){.pushed = code || current != device->context};
  code = out->pushed ? shared->driver.context_push(device->context) : 0;
  return cyrt_cuda_check(&shared->driver, code, "cuCtxPushCurrent", error);
}

void cyrt_cuda_relax(const cuda_shared *shared, cuda_entry *entry) {
  if (!entry || entry->relaxed)
    return;
  entry->relaxed = 1;
  entry->mode = CUDA_CAPTURE_RELAXED;
  shared->driver.capture_mode(&entry->mode);
}

cyto_status cyrt_cuda_enter(const cuda_shared *shared, const cuda_device *device, cuda_entry *out, cyto_error *error) {
  cyto_status status = cyrt_cuda_enter_calmly(shared, device, out, error);
  if (!status)
    cyrt_cuda_relax(shared, out);
  return status;
}

void cyrt_cuda_leave(const cuda_shared *shared, const cuda_entry *entry) {
  void *context;
  int32_t mode = entry->mode;
  if (entry->relaxed)
    shared->driver.capture_mode(&mode);
  if (entry->pushed)
    shared->driver.context_pop(&context);
}

/* ---- what the driver says of memory and streams ---- */

int cyrt_cuda_on_device(const cuda_state *state, const void *ptr) {
  uint32_t type = 0;
  cuda_code code = state->shared->driver.pointer_attribute(&type, ATTRIBUTE_MEMORY_TYPE, (cuda_ptr)(uintptr_t)ptr);
  return !code && type == MEMORY_DEVICE; /* memory that the driver does not know is the host's */
}

cyto_status cyrt_cuda_find_capture(cuda_state *state, cyto_error *error) {
  const cuda_driver *driver = &state->shared->driver;
  int32_t found = 0;
  cuda_code code = state->stream == state->own_stream ? 0 : driver->capture_status(state->stream, &found);
  state->captured = !code && found == CAPTURE_ACTIVE;
  return cyrt_cuda_check(driver, !code && found == CAPTURE_INVALIDATED ? INVALIDATED : code, "cuStreamIsCapturing",
                         error);
}

cyto_status cyrt_cuda_refuse_capture(const cuda_state *state, const char *why, cyto_error *error) {
  char text[200];
  snprintf(text, sizeof text, "the run cannot become part of the captured graph, %s", why);
  return cyrt_cuda_check(&state->shared->driver, UNSUPPORTED, text, error);
}

/* ---- recording ---- */

/* Has what follows use another stream. */
static cyto_status use_stream(cuda_state *state, void *stream) {
  int change = state->stream != stream;
  state->stream = stream;
  return change && state->code->libraries ? state->code->libraries->follow(state, state->host->error) : CYTO_OK;
}

static cyto_status capture(cuda_state *state, int32_t (*work)(void *data), void *data, void **out_graph) {
  const cuda_driver *driver = &state->shared->driver;
  cyto_error *error = state->host->error;
  cyto_status status = cyrt_cuda_check(driver, driver->capture_begin(state->stream, CUDA_CAPTURE_THREAD_LOCAL),
                                       "cuStreamBeginCapture", error);
  if (status)
    return status;
  state->recording = 1;
  state->behind_kernel = 0;
  status = (cyto_status)work(data);
  state->recording = state->behind_kernel = 0;
  cuda_code ended = driver->capture_end(state->stream, out_graph);
  return status ? status : cyrt_cuda_check(driver, ended, "cuStreamEndCapture", error);
}

cyto_status cyrt_cuda_record(cuda_state *state, int32_t (*work)(void *data), void *data, void **out_executable) {
  const cuda_driver *driver = &state->shared->driver;
  cyto_error *error = state->host->error;
  void *graph = NULL, *stream = state->stream;
  cyto_status status = use_stream(state, state->own_stream);
  if (!status)
    status = capture(state, work, data, &graph);
  cyto_status back = use_stream(state, stream);
  status = status ? status : back;
  if (!status)
    status = cyrt_cuda_check(driver, driver->graph_instantiate(out_executable, graph, 0), "cuGraphInstantiate", error);
  *out_executable = status ? NULL : *out_executable;
  if (graph)
    driver->graph_destroy(graph);
  return status;
}
