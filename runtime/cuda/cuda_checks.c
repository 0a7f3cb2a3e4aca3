/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cuda_checks.c - indices that kernels found out of range: where they keep them, and how a run tells.
 *
 * A check has two numbers in the device's memory: the first index out of range + 1, and the bound that it should have been
 * below. Kernels write them once; they stay 0 in a run without fault. All are copied to pinned memory behind the outputs,
 * as part of the run (and of its recording), and are looked at as soon as the run was waited for: the first check in the
 * order of the launches gives the error. A run that nobody waits for (a stream and outputs of the caller's) is looked at when
 * the next one begins.
 */
#include "cyrt_cuda.h"

#include <string.h>

enum { NUMBER, BOUND, WORDS };

static uint64_t bytes_of(const cuda_state *state) { return state->code->n_checks * WORDS * sizeof(int64_t); }

static const int64_t *first_found(const cuda_state *state) {
  for (uint64_t i = 0; i < state->code->n_checks; i++)
    if (state->found[i * WORDS + NUMBER])
      return &state->found[i * WORDS];
  return NULL;
}

/* None is found any more: for launches that follow on the stream, and here. */
static cyto_status reset(cuda_state *state, void *stream, cyto_error *error) {
  const cuda_driver *driver = &state->shared->driver;
  const int64_t *zeros = state->found + state->code->n_checks * WORDS;
  memset(state->found, 0, bytes_of(state));
  return cyrt_cuda_check(driver, driver->copy_in_async(state->checks.ptr, zeros, bytes_of(state), stream),
                         "cuMemcpyHtoDAsync", error);
}

cyto_status cyrt_cuda_checks_open(cuda_state *state, cyto_error *error) {
  const cuda_driver *driver = &state->shared->driver;
  uint64_t bytes = bytes_of(state);
  void *found = NULL;
  if (!bytes)
    return CYTO_OK;
  cyto_status status = cyrt_cuda_block_grow(state, &state->checks, bytes, "checks of indices", error);
  if (!status)
    status = cyrt_cuda_taken(state, error); /* since own_stream sets them to 0 */
  if (!status)
    status = cyrt_cuda_get_pinned(driver, &found, 2 * bytes, "checks of indices", error);
  if (status)
    return status;
  state->found = memset(found, 0, 2 * bytes);
  state->frame.checks = (int64_t *)(uintptr_t)state->checks.ptr;
  status = reset(state, state->own_stream, error);
  return status ? status
                : cyrt_cuda_check(driver, driver->stream_wait(state->own_stream), "cuStreamSynchronize", error);
}

void cyrt_cuda_checks_close(cuda_state *state) {
  const cuda_driver *driver = &state->shared->driver;
  if (state->checks.ptr)
    cyrt_cuda_give(state, state->checks.ptr);
  if (state->found)
    driver->host_free(state->found);
}

int32_t cyrt_cuda_checks_issue(cuda_state *state) {
  const cuda_driver *driver = &state->shared->driver;
  if (!state->found)
    return CYTO_OK;
  return cyrt_cuda_check(driver,
                         driver->copy_out_async(state->found, state->checks.ptr, bytes_of(state), state->stream),
                         "cuMemcpyDtoHAsync", state->frame.error);
}

/* What the last run found, which was waited for. */
static cyto_status tell(cuda_state *state, const char *when, cyto_error *error) {
  const int64_t *found = first_found(state);
  if (!found)
    return CYTO_OK;
  const cyrt_cuda_bound *row = &state->code->checks[(found - state->found) / WORDS];
  cyto_status status = cyrt_error_set(error, CYTO_SHAPE_MISMATCH, row->format, row->node,
                                      (long long)((uint64_t)found[NUMBER] - 1), (long long)found[BOUND]);
  size_t n = error ? strlen(error->message) : 0;
  if (n)
    strncat(error->message, when, sizeof error->message - n - 1);
  cyto_status again = reset(state, state->stream, NULL);
  return again ? again : status;
}

cyto_status cyrt_cuda_checks_tell(cuda_state *state, cyto_error *error) {
  return state->found ? tell(state, "", error) : CYTO_OK;
}

cyto_status cyrt_cuda_checks_before(cuda_state *state, cyto_error *error) {
  if (!state->found || state->captured || !first_found(state))
    return CYTO_OK;
  const cuda_driver *driver = &state->shared->driver;
  cyrt_cuda_relax(state->shared, state->entry);
  cyto_status status = cyrt_cuda_check(driver, driver->stream_wait(state->stream), "cuStreamSynchronize", error);
  return status ? status : tell(state, ", in an earlier run on this stream, which nothing had waited for", error);
}

cyto_status cyrt_cuda_checks_failed(cuda_state *state, cyto_status status, cyto_error *error) {
  if (!state->found || state->captured || cyrt_cuda_checks_issue(state) ||
      state->shared->driver.stream_wait(state->stream))
    return status;
  return first_found(state) ? tell(state, "", error) : status;
}
