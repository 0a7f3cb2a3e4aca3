/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cuda_keep.c - caches that grow on a device: the memory that a context keeps them in, and copies of rows.
 *
 * runtime/context_keep.c decides what is kept, where and for how long; here are the device's memory and the copies that it
 * asks for: to and from memory of the host or the device, as steps of the context's stream.
 */
#include "cyrt_cuda.h"

#include <string.h>

/* CUDA_MEMCPY2D of the driver */
typedef struct rows_copy {
  size_t from_x, from_y;
  int32_t from_kind;
  const void *from_host;
  cuda_ptr from_device;
  void *from_array;
  size_t from_pitch;
  size_t to_x, to_y;
  int32_t to_kind;
  void *to_host;
  cuda_ptr to_device;
  void *to_array;
  size_t to_pitch;
  size_t width, height;
} rows_copy;
enum { HOST = 1, DEVICE = 2, MAX_PITCH = INT32_MAX };

static cyto_status enter(cuda_state *state, const char *why_not, cuda_entry *out, cyto_error *error) {
  cyto_status status = cyrt_cuda_enter(state->shared, state->device, out, error);
  if (status)
    return status;
  status = cyrt_cuda_find_capture(state, error);
  if (!status && state->captured)
    status = cyrt_cuda_refuse_capture(state, why_not, error);
  if (status)
    cyrt_cuda_leave(state->shared, out);
  return status;
}

int32_t cyrt_cuda_keep_get(void *data, uint64_t bytes, void **out, cyto_error *error) {
  cuda_state *state = data;
  cuda_entry entry;
  cuda_block block = {0, 0};
  *out = NULL;
  cyto_status status =
      enter(state, "what is kept needs memory: prepare the context for these sizes before", &entry, error);
  if (status)
    return status;
  status = cyrt_cuda_block_grow(state, &block, bytes, "outputs that are kept", error);
  cyrt_cuda_leave(state->shared, &entry);
  *out = (void *)(uintptr_t)block.ptr;
  return status;
}

void cyrt_cuda_keep_give(void *data, void *ptr) {
  cuda_state *state = data;
  cuda_entry entry;
  cuda_block block = {(cuda_ptr)(uintptr_t)ptr, 1};
  if (!ptr || cyrt_cuda_enter(state->shared, state->device, &entry, NULL))
    return;
  cyrt_cuda_block_free(state, &block);
  cyrt_cuda_leave(state->shared, &entry);
}

/* One side of a copy as the driver wants it described. */
static void set_side(const cuda_state *state, const void *ptr, int32_t *kind, const void **host, cuda_ptr *device) {
  int on_device = cyrt_cuda_on_device(state, ptr);
  *kind = on_device ? DEVICE : HOST;
  *host = on_device ? NULL : ptr;
  *device = on_device ? (cuda_ptr)(uintptr_t)ptr : 0;
}

static cuda_code copy_rows(const cuda_state *state, const cyrt_rows *r, uint64_t first, uint64_t count) {
  rows_copy c = {.from_pitch = r->from_step, .to_pitch = r->to_step, .width = r->bytes, .height = count};
  const void *to;
  if (count == 1)
    c.from_pitch = c.to_pitch = r->bytes;
  set_side(state, (const uint8_t *)r->from + first * r->from_step, &c.from_kind, &c.from_host, &c.from_device);
  set_side(state, (uint8_t *)r->to + first * r->to_step, &c.to_kind, &to, &c.to_device);
  c.to_host = (void *)(uintptr_t)to;
  return state->shared->driver.copy_2d_async(&c, state->stream);
}

int32_t cyrt_cuda_keep_move(void *data, const cyrt_rows *r, int32_t wait, cyto_error *error) {
  cuda_state *state = data;
  cuda_entry entry;
  cyto_status status = enter(state, "what is kept moves, or is copied: run the context before", &entry, error);
  if (status)
    return status;
  int whole = r->from_step <= MAX_PITCH && r->to_step <= MAX_PITCH; /* what the driver takes in one copy */
  cuda_code code = 0;
  for (uint64_t i = 0; i < (whole ? 1 : r->count) && !code; i++)
    code = copy_rows(state, r, i, whole ? r->count : 1);
  if (!code && wait)
    code = state->shared->driver.stream_wait(state->stream);
  cyrt_cuda_leave(state->shared, &entry);
  return cyrt_cuda_check(&state->shared->driver, code, "copying what is kept (cuMemcpy2DAsync)", error);
}
