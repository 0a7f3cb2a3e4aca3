/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cuda_copies.c - constants that libraries want in another layout or type than our kernels do: copies on the device, of a context.
 *
 *   biases of products of halves   f32 for our own kernels; halves for libraries: cuDNN takes others only in plans that are
 *                                  compiled when they are made, cuBLASLt not at all
 *   weights of transposed          by residues or as the model has them; for cuDNN [channels_in][kernel..][channels_out / group]
 *   convolutions
 *
 * Each is made once, on the host, when a problem with it is met first.
 */
#include "cyrt_choose.h"

#include "runtime/half.h"

#include <stdlib.h>
#include <string.h>

struct cuda_copy {
  struct cuda_copy *next;
  const void *of;
  int64_t kind; /* the dtype of a bias; REARRANGED */
  int64_t bytes;
  uint64_t shape; /* .. a checksum of what its places depend on; 0 of a bias */
  cuda_ptr ptr;
};
enum { REARRANGED = -1 };

/* What is to be made. */
typedef struct making {
  const cyrt_cuda_problem *p;
  int64_t kind, read_bytes, bytes; /* read_bytes: of the constant, bytes: of the copy */
} making;

static int is_constant(const cuda_state *state, const void *at) {
  cuda_ptr first = state->device->weights, here = (cuda_ptr)(uintptr_t)at;
  return here >= first && here - first < state->shared->model->weights_bytes;
}

static int is_half(int64_t dtype) { return dtype == CYTO_F16 || dtype == CYTO_BF16; }

/* ---- what copies contain ---- */

static void narrow(const making *m, const float *from, uint16_t *to) {
  for (int64_t i = 0; i < m->bytes / 2; i++)
    to[i] = m->kind == CYTO_F16 ? cyrt_f32_to_f16(from[i]) : cyrt_f32_to_bf16(from[i]);
}

/* One tap of one column: where it is in the weights as they come, `row` as in cyrt_cuda_conv. */
static int64_t place_of(const cyrt_cuda_conv *c, int64_t row, int64_t chunk, int64_t column, int64_t tap,
                        int64_t taps) {
  int64_t depth = c->channels_in / c->group;
  return row ? column * row + cyrt_residue_place(c->nspatial, c->kernel, c->stride, c->dilation, tap, depth, chunk)
             : column * taps + tap;
}

static int64_t taps_of(const cyrt_cuda_conv *c) {
  int64_t taps = 1;
  for (int i = 0; i < c->nspatial; i++)
    taps *= c->kernel[i];
  return taps;
}

static void rearrange(const making *m, const uint8_t *from, uint8_t *to) {
  const cyrt_cuda_conv *c = &m->p->conv;
  int64_t element = cyrt_problem_element(m->p->tensor[CYRT_CONV_W].dtype), row = m->p->tensor[CYRT_CONV_W].stride[0];
  int64_t depth = c->channels_in / c->group, columns = c->channels_out / c->group, taps = taps_of(c);
  for (int64_t z = 0; z < c->group; z++)
    for (int64_t n = 0; n < columns; n++)
      for (int64_t t = 0; t < taps; t++) {
        int64_t at = place_of(c, row, 16 / element, n, t, taps), step = row ? 1 : columns * taps;
        at += z * (row ? columns * row : depth * columns * taps);
        for (int64_t d = 0; d < depth; d++)
          memcpy(to + (((z * depth + d) * taps + t) * columns + n) * element, from + (at + d * step) * element,
                 (size_t)element);
      }
}

/* One constant may be the weights of several convolutions. */
static uint64_t shape_of(const making *m) {
  const cyrt_cuda_conv *c = &m->p->conv;
  const int64_t parts[] = {m->p->tensor[CYRT_CONV_W].stride[0], c->nspatial, c->group, c->channels_in, c->channels_out};
  uint64_t hash = CYRT_HASH;
  if (m->kind != REARRANGED)
    return 0;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    hash = cyrt_hash_add(hash, (uint64_t)parts[i]);
  for (int i = 0; i < c->nspatial; i++) {
    hash = cyrt_hash_add(hash, (uint64_t)c->kernel[i]);
    hash = cyrt_hash_add(hash, (uint64_t)c->stride[i]);
    hash = cyrt_hash_add(hash, (uint64_t)c->dilation[i]);
  }
  return hash;
}

/* ---- making one ---- */

static int32_t move(cyrt_frame *frame, const making *m, const cuda_copy *copy, uint8_t *buffer) {
  cuda_state *state = cuda_state_of(frame);
  const cuda_driver *driver = &state->shared->driver;
  uint8_t *made = buffer + m->read_bytes;
  cuda_code code = driver->copy_out_async(buffer, (cuda_ptr)(uintptr_t)copy->of, (size_t)m->read_bytes, state->stream);
  if (!code)
    code = driver->stream_wait(state->stream);
  if (m->kind == REARRANGED)
    rearrange(m, buffer, made);
  else
    narrow(m, (const float *)(const void *)buffer, (uint16_t *)(void *)made);
  if (!code)
    code = driver->copy_in_async(copy->ptr, made, (size_t)m->bytes, state->stream);
  if (!code)
    code = driver->stream_wait(state->stream);
  return (int32_t)cyrt_cuda_check(driver, code, "copying a constant for a library", frame->error);
}

static int32_t make(cyrt_frame *frame, const void *of, const making *m) {
  cuda_state *state = cuda_state_of(frame);
  cuda_copy *copy = calloc(1, sizeof *copy);
  uint8_t *buffer = malloc((size_t)(m->read_bytes + m->bytes));
  int32_t status =
      copy && buffer ? CYTO_OK : cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "no memory for copying a constant for a library");
  if (!status) {
    *copy = (cuda_copy){state->plans->copies, of, m->kind, m->bytes, shape_of(m), 0};
    status = (int32_t)cyrt_cuda_take(state, &copy->ptr, (uint64_t)m->bytes, "a constant for a library", frame->error);
  }
  if (!status) {
    state->plans->copies = copy; /* from here on it is freed with the plans */
    status = move(frame, m, copy, buffer);
  } else {
    free(copy);
  }
  free(buffer);
  return status;
}

/* Points to the copy, which is made if it may be; *out_is: there is one. */
static int32_t use(cyrt_frame *frame, const making *m, void **pointer, int *out_is) {
  cuda_state *state = cuda_state_of(frame);
  const void *of = *pointer;
  uint64_t shape = shape_of(m);
  *out_is = 0;
  for (int attempt = 0; attempt < 2; attempt++) {
    for (const cuda_copy *c = state->plans->copies; c; c = c->next)
      if (c->of == of && c->kind == m->kind && c->bytes == m->bytes && c->shape == shape) {
        *pointer = (void *)(uintptr_t)c->ptr;
        *out_is = 1;
        return CYTO_OK;
      }
    int32_t status = attempt || state->recording ? CYTO_OK : make(frame, of, m);
    if (status)
      return status;
  }
  return CYTO_OK;
}

/* ---- which ---- */

static int32_t use_bias(cyrt_frame *frame, cyrt_cuda_problem *p, void **pointer) {
  cyrt_cuda_tensor *bias = &p->tensor[CYRT_PROBLEM_BIAS];
  int product = p->kind == CYRT_PROBLEM_MATMUL, is;
  int64_t dtype = p->tensor[product ? CYRT_PROBLEM_OUT : CYRT_CONV_X].dtype,
          n = product ? p->matmul.n : p->conv.channels_out;
  making m = {p, dtype, 4 * n, 2 * n};
  if (p->kind == CYRT_PROBLEM_ATTENTION || bias->slot < 0 || bias->dtype != CYTO_F32 || !is_half(dtype) ||
      !is_constant(cuda_state_of(frame), *pointer))
    return CYTO_OK;
  int32_t status = use(frame, &m, pointer, &is);
  if (is)
    bias->dtype = dtype;
  return status;
}

static int32_t use_weights(cyrt_frame *frame, cyrt_cuda_problem *p, void **pointer) {
  const cyrt_cuda_conv *c = &p->conv;
  int64_t element = cyrt_problem_element(p->tensor[CYRT_CONV_W].dtype), row = p->tensor[CYRT_CONV_W].stride[0];
  if (p->kind != CYRT_PROBLEM_CONV_TRANSPOSE || !is_constant(cuda_state_of(frame), *pointer))
    return CYTO_OK;
  int64_t bytes = c->channels_in * (c->channels_out / c->group) * taps_of(c) * element;
  making m = {p, REARRANGED, row ? c->channels_out * row * element : bytes, bytes};
  int is;
  int32_t status = use(frame, &m, pointer, &is);
  if (is)
    p->flags |= CYRT_PROBLEM_REARRANGED;
  return status;
}

int32_t cyrt_copies_use(cyrt_frame *frame, cyrt_cuda_problem *p, void *pointers[CYRT_PROBLEM_TENSORS]) {
  int32_t status = use_bias(frame, p, &pointers[CYRT_PROBLEM_BIAS]);
  return status ? status : use_weights(frame, p, &pointers[CYRT_CONV_W]);
}

void cyrt_copies_free(cuda_state *state, cuda_copy *list) {
  for (cuda_copy *c = list, *next; c; c = next) {
    next = c->next;
    cyrt_cuda_give(state, c->ptr);
    free(c);
  }
}
