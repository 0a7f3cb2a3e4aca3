/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cuda_tensor.c - launches of kernels that read their factors by tensor maps (sm_90a).
 *
 * A map tells the device how a tensor lies, so that one instruction copies a box of it to shared memory. Maps are made
 * for every launch, from sizes and pointers as they are then; a recorded run keeps those that it was recorded with.
 * What no map can tell goes to the kernel that does without.
 */
#include "cyrt_cuda.h"

enum { TYPE_U8 = 0, TYPE_F16 = 6, TYPE_BF16 = 9, TYPE_TF32 = 11, SWIZZLE_128 = 3, PROMOTE_128 = 2, ALIGN = 16 };

typedef struct tensor_map {
  uint64_t opaque[16];
} __attribute__((aligned(64))) tensor_map;

/* How the device takes elements. Copies of TF32 round floats to it, which products of warpgroups would only cut off. Bytes
 * stand for integers of either sign. */
static const struct {
  int32_t dtype, type, bytes;
} elements[] = {{CYTO_F16, TYPE_F16, 2}, {CYTO_BF16, TYPE_BF16, 2}, {CYTO_F32, TYPE_TF32, 4}, {CYTO_U8, TYPE_U8, 1}};

static int row_of(const cyrt_cuda_box *t) {
  int row = 0, last = (int)(sizeof elements / sizeof *elements) - 1;
  while (row < last && elements[row].dtype != t->dtype)
    row++;
  return row;
}

static int64_t element_of(const cyrt_cuda_box *t) { return elements[row_of(t)].bytes; }

/* Pointers and strides are multiples of 16 bytes, sizes are 2^31 at most. */
static int fits(const cyrt_cuda_box *t, uint64_t address) {
  int ok = address % ALIGN == 0;
  for (int i = 0; i < t->rank; i++)
    ok &= t->extent[i] > 0 && t->extent[i] <= (int64_t)1 << 31;
  for (int i = 0; i + 1 < t->rank; i++)
    ok &= t->stride[i] > 0 && t->stride[i] * element_of(t) % ALIGN == 0 && t->stride[i] < (int64_t)1 << 39;
  return ok;
}

static int make_map(const cuda_driver *driver, const cyrt_cuda_box *t, uint64_t address, tensor_map *out) {
  uint64_t extents[CYRT_CUDA_BOX_RANK], strides[CYRT_CUDA_BOX_RANK] = {0};
  uint32_t box[CYRT_CUDA_BOX_RANK], steps[CYRT_CUDA_BOX_RANK];
  if (!fits(t, address))
    return 0;
  for (int i = 0; i < t->rank; i++) {
    extents[i] = (uint64_t)t->extent[i];
    box[i] = (uint32_t)(t->box[i] * t->step[i]); /* from the first to behind the last */
    steps[i] = (uint32_t)t->step[i];
    if (i + 1 < t->rank)
      strides[i] = (uint64_t)(t->stride[i] * element_of(t));
  }
  return !driver->tensor_map(out, elements[row_of(t)].type, (uint32_t)t->rank, (void *)(uintptr_t)address, extents, strides, box,
                             steps, 0, SWIZZLE_128, PROMOTE_128, 0);
}

/* As many blocks as there are tiles, or as can be had at a time. */
static int64_t whole_clusters(const cyrt_cuda_tma *tma, int64_t multiprocessors) {
  int64_t n = tma->cluster, wanted = (tma->blocks + n - 1) / n, max = multiprocessors / n;
  return (wanted > max && max > 0 ? max : wanted) * n;
}

int cyrt_cuda_launch_tma(cyrt_frame *frame, const cyrt_slot *slots, const cyrt_cuda_tma *tma, int32_t *out_status) {
  cuda_state *state = cuda_state_of(frame);
  const cuda_driver *driver = &state->shared->driver;
  const cyrt_cuda_kernel *k = &state->code->kernels[tma->kernel];
  void *function = state->device->functions[tma->kernel], *params[CUDA_MAX_SLOTS];
  int64_t blocks = whole_clusters(tma, state->device->multiprocessors);
  tensor_map maps[2];
  int ok = function && blocks > 0 && blocks <= k->max_blocks && k->slots + 2 <= CUDA_MAX_SLOTS;
  for (int i = 0; i < 2; i++)
    ok = ok && make_map(driver, &tma->tensor[i], (uint64_t)(uintptr_t)slots[tma->tensor[i].slot].ptr, &maps[i]);
  if (!ok)
    return 0;
  for (uint32_t i = 0; i < k->slots; i++)
    params[i] = (void *)(uintptr_t)&slots[i];
  params[k->slots] = &maps[0];
  params[k->slots + 1] = &maps[1];
  cuda_code code = driver->launch(function, (uint32_t)blocks, 1, 1, k->threads, 1, 1,
                                  state->device->shared_bytes[tma->kernel], state->stream, params, NULL);
  *out_status = code ? cyrt_cuda_check(driver, code, k->name, frame->error) : CYTO_OK;
  return 1;
}
