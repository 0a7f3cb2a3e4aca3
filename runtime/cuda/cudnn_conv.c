/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cudnn_conv.c - relu(conv + residual + bias) as operations of cuDNN; what lies between them is in f32.
 *
 * In this order, and with a bias: such graphs have engines that are compiled already. Others have, but for the bare
 * convolution, only those that cuDNN compiles when it makes a plan, for some 0.5 s each, and of f32 only in TF32.
 */
#include "cudnn_numbers.h"
#include "cyrt_cudnn.h"

#include <string.h>

enum { MAX_SPATIAL = CUDNN_RANK - 2 };

/* Zeros behind an axis; negative: some of the input is not read. */
static int64_t pad_behind(const cyrt_cuda_conv *c, int i) {
  return (c->out[i] - 1) * c->stride[i] + (c->kernel[i] - 1) * c->dilation[i] + 1 - c->in[i] - c->pad[i];
}

static int takes(const cyrt_cuda_problem *p) {
  const cyrt_cuda_conv *c = &p->conv;
  if (c->nspatial < 2 || c->nspatial > MAX_SPATIAL || c->images < 1 || c->channels_in < 1 || c->channels_out < 1)
    return 0;
  for (int i = 0; i < c->nspatial; i++) {
    /* cuDNN computes the extent of the output from the padding, which cannot be negative */
    if (c->in[i] < 1 || c->out[i] < 1 || c->pad[i] < 0 || pad_behind(c, i) <= -c->stride[i])
      return 0;
  }
  return 1;
}

/* ---- tensors: dims are n, c, spatial.. ---- */

/* Strides of a dense tensor whose channels are neighbours. */
static void dense(int64_t rank, const int64_t *dims, int64_t *strides) {
  int64_t step = dims[1];
  strides[1] = 1;
  for (int64_t i = rank - 1; i >= 2; i--) {
    strides[i] = step;
    step *= dims[i];
  }
  strides[0] = step;
}

static cudnn_descriptor image_tensor(cudnn_maker *m, const cyrt_cuda_problem *p, int which) {
  const cyrt_cuda_conv *c = &p->conv;
  const int64_t *from = p->tensor[which].stride;
  int input = which == CYRT_CONV_X;
  int64_t dims[CUDNN_RANK] = {c->images, input ? c->channels_in : c->channels_out}, strides[CUDNN_RANK] = {from[0], 1};
  for (int i = 0; i < c->nspatial; i++) {
    dims[2 + i] = input ? c->in[i] : c->out[i];
    strides[2 + i] = from[1 + i];
  }
  return cyrt_cudnn_tensor(m, p, which, 2 + c->nspatial, dims, strides);
}

static cudnn_descriptor small_tensor(cudnn_maker *m, const cyrt_cuda_problem *p, int which) {
  const cyrt_cuda_conv *c = &p->conv;
  int64_t dims[CUDNN_RANK] = {1, c->channels_out, 1, 1, 1}, strides[CUDNN_RANK];
  if (which == CYRT_CONV_W) {
    dims[0] = c->channels_out;
    dims[1] = c->channels_in / c->group;
    memcpy(dims + 2, c->kernel, sizeof c->kernel);
  }
  dense(2 + c->nspatial, dims, strides);
  return cyrt_cudnn_tensor(m, p, which, 2 + c->nspatial, dims, strides);
}

static cudnn_descriptor between(cudnn_maker *m, const cyrt_cuda_conv *c) {
  int64_t dims[CUDNN_RANK] = {c->images, c->channels_out}, strides[CUDNN_RANK];
  memcpy(dims + 2, c->out, sizeof c->out);
  dense(2 + c->nspatial, dims, strides);
  return cyrt_cudnn_virtual(m, 2 + c->nspatial, dims, strides, CUDNN_FLOAT);
}

static void output(const cyrt_cuda_problem *p, int64_t extent[CUDNN_RANK], int64_t stride[CUDNN_RANK]) {
  const cyrt_cuda_conv *c = &p->conv;
  const int64_t *from = p->tensor[CYRT_CONV_Y].stride;
  extent[0] = c->images;
  stride[0] = from[0];
  extent[1] = c->channels_out;
  stride[1] = 1;
  for (int i = 0; i < MAX_SPATIAL; i++) {
    extent[2 + i] = i < c->nspatial ? c->out[i] : 1;
    stride[2 + i] = from[1 + i];
  }
}

/* ---- operations ---- */

static cudnn_descriptor convolution(cudnn_maker *m, const cyrt_cuda_problem *p, cudnn_descriptor y) {
  const cyrt_cuda_conv *c = &p->conv;
  const float one = 1, zero = 0;
  int64_t behind[MAX_SPATIAL];
  for (int i = 0; i < c->nspatial; i++)
    behind[i] = pad_behind(c, i) < 0 ? 0 : pad_behind(c, i);
  cudnn_descriptor x = image_tensor(m, p, CYRT_CONV_X), w = small_tensor(m, p, CYRT_CONV_W);
  cudnn_descriptor d = cyrt_cudnn_make(m, CUDNN_CONVOLUTION);
  cyrt_cudnn_set_int(m, d, CUDNN_CONV_PRECISION, CUDNN_T_DATA_TYPE, CUDNN_FLOAT);
  cyrt_cudnn_set_int(m, d, CUDNN_CONV_MODE, CUDNN_T_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
  cyrt_cudnn_set(m, d, CUDNN_CONV_RANK, CUDNN_T_INT64, 1, &c->nspatial);
  cyrt_cudnn_set(m, d, CUDNN_CONV_DILATIONS, CUDNN_T_INT64, c->nspatial, c->dilation);
  cyrt_cudnn_set(m, d, CUDNN_CONV_STRIDES, CUDNN_T_INT64, c->nspatial, c->stride);
  cyrt_cudnn_set(m, d, CUDNN_CONV_PRE_PADS, CUDNN_T_INT64, c->nspatial, c->pad);
  cyrt_cudnn_set(m, d, CUDNN_CONV_POST_PADS, CUDNN_T_INT64, c->nspatial, behind);
  cyrt_cudnn_finish(m, d, "a convolution's cudnnBackendFinalize");
  cudnn_descriptor op = cyrt_cudnn_make(m, CUDNN_OP_CONVOLUTION);
  cyrt_cudnn_set_descriptor(m, op, CUDNN_OP_CONV_CONV, d);
  cyrt_cudnn_set_descriptor(m, op, CUDNN_OP_CONV_X, x);
  cyrt_cudnn_set_descriptor(m, op, CUDNN_OP_CONV_W, w);
  cyrt_cudnn_set_descriptor(m, op, CUDNN_OP_CONV_Y, y);
  cyrt_cudnn_set(m, op, CUDNN_OP_CONV_ALPHA, CUDNN_T_FLOAT, 1, &one);
  cyrt_cudnn_set(m, op, CUDNN_OP_CONV_BETA, CUDNN_T_FLOAT, 1, &zero);
  return cyrt_cudnn_finish(m, op, "a convolution's cudnnBackendFinalize (operation)");
}

static int operations(cudnn_maker *m, const cyrt_cuda_problem *p, cudnn_descriptor ops[CUDNN_OPERATIONS]) {
  int bias = p->tensor[CYRT_CONV_BIAS].slot >= 0, residual = p->tensor[CYRT_CONV_RESIDUAL].slot >= 0;
  int left = bias + residual + ((p->flags & CYRT_CONV_RELU) != 0); /* operations to come */
  cudnn_descriptor last = image_tensor(m, p, CYRT_CONV_Y), x = left ? between(m, &p->conv) : last;
  int n = 0;
  ops[n++] = convolution(m, p, x);
  static const int addends[] = {CYRT_CONV_RESIDUAL, CYRT_CONV_BIAS};
  for (int i = 0; i < 2; i++) {
    int which = addends[i];
    if (p->tensor[which].slot < 0)
      continue;
    cudnn_descriptor b = which == CYRT_CONV_BIAS ? small_tensor(m, p, which) : image_tensor(m, p, which);
    cudnn_descriptor y = --left ? between(m, &p->conv) : last;
    ops[n++] = cyrt_cudnn_pointwise(m, (cudnn_pointwise){.mode = CUDNN_ADD, .x = x, .b = b, .y = y});
    x = y;
  }
  if (left)
    ops[n++] = cyrt_cudnn_pointwise(m, (cudnn_pointwise){.mode = CUDNN_RELU, .x = x, .y = last});
  return n;
}

const cudnn_kind cyrt_cudnn_conv = {"convolutions", takes, operations, output};
