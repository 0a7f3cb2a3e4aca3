/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cuda_memory.c - where a context's memory on the device comes from: the application's allocator, the device's
 * stream-ordered pool, or the driver's cuMemAlloc.
 *
 * In:  cyto_options.device_allocator, device_pool. Out: blocks, which the context lists until they are given back, so that
 * closing it gives back all. Weights belong to the model, for all of its contexts: these are always the driver's.
 */
#include "cyrt_cuda.h"

#include <stdlib.h>

enum { ATTRIBUTE_POOLS = 115 }; /* CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED */

void cyrt_cuda_memory_open(cuda_state *state, const cyrt_device_request *request) {
  int32_t has = 0;
  if (request->allocator)
    state->allocator = *request->allocator;
  if (request->pool)
    state->shared->driver.device_attribute(&has, ATTRIBUTE_POOLS, state->device->handle);
  state->pooled = has && !state->allocator.alloc;
  state->pool_missing = request->pool && !has;
}

const char *cyrt_cuda_memory_words(const cuda_state *state) {
  return state->allocator.alloc ? "; memory by the application's allocator"
         : state->pooled        ? "; memory of the device's stream-ordered pool"
         : state->pool_missing  ? "; memory by cuMemAlloc, since the device has no stream-ordered pools"
                                : "";
}

static cyto_status get(cuda_state *state, cuda_ptr *out, uint64_t bytes, const char *what, cyto_error *error) {
  const cuda_driver *driver = &state->shared->driver;
  size_t available = 0, total = 0;
  *out = 0;
  state->behind_kernel = 0; /* an allocation that the stream orders is one more thing that it was given */
  if (state->allocator.alloc) {
    *out = (cuda_ptr)(uintptr_t)state->allocator.alloc(state->allocator.user, bytes, state->stream);
    if (*out % CYRT_CUDA_ALIGN == 0)
      return *out ? CYTO_OK
                  : cyrt_error_set(error, CYTO_OUT_OF_MEMORY,
                                   "the application's device allocator has no memory for %s: %llu bytes needed", what,
                                   (unsigned long long)bytes);
    state->allocator.release(state->allocator.user, (void *)(uintptr_t)*out, bytes, state->stream);
    return cyrt_error_set(error, CYTO_INVALID_ARGUMENT,
                          "the application's device allocator gave %p for %s, expected a multiple of %d",
                          (void *)(uintptr_t)*out, what, CYRT_CUDA_ALIGN);
  }
  if (!state->pooled)
    return cyrt_cuda_get(driver, out, bytes, what, error);
  cuda_code code = driver->pool_alloc(out, bytes, state->stream);
  if (code != CUDA_OUT_OF_MEMORY)
    return cyrt_cuda_check(driver, code, "cuMemAllocAsync", error);
  driver->mem_info(&available, &total);
  return cyrt_error_set(
      error, CYTO_OUT_OF_MEMORY,
      "the device's pool has no memory for %s: %llu bytes needed, %llu free of %llu besides what pools "
      "hold",
      what, (unsigned long long)bytes, (unsigned long long)available, (unsigned long long)total);
}

/* Launches that use it may be under way: a pool waits for them by itself. */
static void give(cuda_state *state, const cuda_held *block) {
  const cuda_driver *driver = &state->shared->driver;
  state->behind_kernel = 0;
  if (state->pooled) {
    driver->pool_free(block->ptr, state->stream);
    return;
  }
  driver->stream_wait(state->stream);
  if (state->allocator.alloc)
    state->allocator.release(state->allocator.user, (void *)(uintptr_t)block->ptr, block->bytes, state->stream);
  else
    driver->mem_free(block->ptr);
}

cyto_status cyrt_cuda_take(cuda_state *state, cuda_ptr *out_ptr, uint64_t bytes, const char *what, cyto_error *error) {
  cuda_held *block = malloc(sizeof *block);
  *out_ptr = 0;
  if (!block)
    return cyrt_error_set(error, CYTO_OUT_OF_MEMORY, "no memory for listing what a context has on the device");
  block->bytes = bytes ? bytes : 1;
  cyto_status status = get(state, &block->ptr, block->bytes, what, error);
  if (status) {
    free(block);
    return status;
  }
  block->next = state->held;
  state->held = block;
  *out_ptr = block->ptr;
  return CYTO_OK;
}

cyto_status cyrt_cuda_taken(cuda_state *state, cyto_error *error) {
  const cuda_driver *driver = &state->shared->driver;
  if (!state->pooled && !state->allocator.alloc)
    return CYTO_OK;
  cyto_status status = cyrt_cuda_find_capture(state, error);
  if (!status && state->captured)
    status = cyrt_cuda_refuse_capture(state, "new memory is waited for: create and prepare the context before", error);
  return status ? status : cyrt_cuda_check(driver, driver->stream_wait(state->stream), "cuStreamSynchronize", error);
}

void cyrt_cuda_give(cuda_state *state, cuda_ptr ptr) {
  for (cuda_held **at = &state->held; *at; at = &(*at)->next)
    if ((*at)->ptr == ptr) {
      cuda_held *block = *at;
      *at = block->next;
      give(state, block);
      free(block);
      return;
    }
}

void cyrt_cuda_give_all(cuda_state *state) {
  while (state->held)
    cyrt_cuda_give(state, state->held->ptr);
}

void cyrt_cuda_forget_held(cuda_state *state) {
  for (cuda_held *next; state->held; state->held = next) {
    next = state->held->next;
    free(state->held);
  }
}
