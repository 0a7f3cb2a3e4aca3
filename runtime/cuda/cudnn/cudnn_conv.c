/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cudnn_conv.c - convolutions with their epilogues as operations of cuDNN; what lies between them is in f32. Transposed ones
 * are the gradient of a convolution by its input, products of matrices convolutions of one tap.
 *
 * activation(conv + residual + bias), in this order, with a bias, and a ReLU: such graphs have engines that are compiled
 * already. Others have, but for the bare convolution, only those that cuDNN compiles when it makes a plan, for some 0.5 s
 * each, and of f32 only in TF32.
 */
#include "runtime/cuda/cudnn_numbers.h"
#include "runtime/cuda/cyrt_choose.h"

#include <string.h>

enum { MAX_SPATIAL = CUDNN_RANK - 2 };

/* A transposed convolution is the way back of one from its output to its input. */
static int is_back(const cyrt_cuda_problem *p) { return p->kind == CYRT_PROBLEM_CONV_TRANSPOSE; }

/* Zeros behind an axis of the convolution; negative: some of its input is not read. */
static int64_t pad_behind(const cyrt_cuda_problem *p, int i) {
  const cyrt_cuda_conv *c = &p->conv;
  int64_t in = is_back(p) ? c->out[i] : c->in[i], out = is_back(p) ? c->in[i] : c->out[i];
  return (out - 1) * c->stride[i] + (c->kernel[i] - 1) * c->dilation[i] + 1 - in - c->pad[i];
}

static int takes(const cyrt_cuda_problem *p) {
  const cyrt_cuda_conv *c = &p->conv;
  if (c->nspatial < 2 || c->nspatial > MAX_SPATIAL || c->images < 1 || c->channels_in < 1 || c->channels_out < 1)
    return 0;
  for (int i = 0; i < c->nspatial; i++) {
    /* cuDNN computes the extent of the output from the padding, which cannot be negative */
    if (c->in[i] < 1 || c->out[i] < 1 || c->pad[i] < 0 || pad_behind(p, i) <= -c->stride[i])
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
    dims[0] = is_back(p) ? c->channels_in : c->channels_out;
    dims[1] = (is_back(p) ? c->channels_out : c->channels_in) / c->group;
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

/* ---- operations ---- */

static cudnn_descriptor convolution(cudnn_maker *m, const cyrt_cuda_problem *p, cudnn_descriptor y) {
  static const struct {
    int32_t type, conv, x, w, y, alpha, beta;
  } of[2] = {{CUDNN_OP_CONVOLUTION, CUDNN_OP_CONV_CONV, CUDNN_OP_CONV_X, CUDNN_OP_CONV_W, CUDNN_OP_CONV_Y,
              CUDNN_OP_CONV_ALPHA, CUDNN_OP_CONV_BETA},
             {CUDNN_OP_CONVOLUTION_BACK, CUDNN_OP_BACK_CONV, CUDNN_OP_BACK_DY, CUDNN_OP_BACK_W, CUDNN_OP_BACK_DX,
              CUDNN_OP_BACK_ALPHA, CUDNN_OP_BACK_BETA}};
  const cyrt_cuda_conv *c = &p->conv;
  const float one = 1, zero = 0;
  const int back = is_back(p);
  int64_t behind[MAX_SPATIAL];
  for (int i = 0; i < c->nspatial; i++)
    behind[i] = pad_behind(p, i) < 0 ? 0 : pad_behind(p, i);
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
  cudnn_descriptor op = cyrt_cudnn_make(m, of[back].type);
  cyrt_cudnn_set_descriptor(m, op, of[back].conv, d);
  cyrt_cudnn_set_descriptor(m, op, of[back].x, x);
  cyrt_cudnn_set_descriptor(m, op, of[back].w, w);
  cyrt_cudnn_set_descriptor(m, op, of[back].y, y);
  cyrt_cudnn_set(m, op, of[back].alpha, CUDNN_T_FLOAT, 1, &one);
  cyrt_cudnn_set(m, op, of[back].beta, CUDNN_T_FLOAT, 1, &zero);
  return cyrt_cudnn_finish(m, op, "a convolution's cudnnBackendFinalize (operation)");
}

static const struct {
  int32_t mode, p, q; /* of a pointwise operation; the attributes of its parameters */
} activations[CYRT_ACTIVATIONS] = {
#define ACTIVATION(name, mode, p, q, epilogue, ours) {CUDNN_##mode, CUDNN_POINTWISE_##p, CUDNN_POINTWISE_##q},
#include "runtime/cuda/activations.def"
#undef ACTIVATION
};

/* The operations of a problem as they are made: each reads what the last one wrote. */
typedef struct chain {
  cudnn_maker *m;
  const cyrt_cuda_problem *p;
  cudnn_descriptor *ops, x;
  int n, left; /* left: how many are to come */
} chain;

static cudnn_descriptor next_output(chain *c) {
  return c->x = --c->left ? between(c->m, &c->p->conv) : image_tensor(c->m, c->p, CYRT_CONV_Y);
}

static void add_pointwise(chain *c, cudnn_pointwise how) {
  how.x = c->x;
  how.y = next_output(c);
  c->ops[c->n++] = cyrt_cudnn_pointwise(c->m, how);
}

static void add_tensor(chain *c, int which) {
  if (c->p->tensor[which].slot >= 0)
    add_pointwise(c, (cudnn_pointwise){.mode = CUDNN_ADD,
                                       .b = which == CYRT_PROBLEM_BIAS ? small_tensor(c->m, c->p, which)
                                                                       : image_tensor(c->m, c->p, which)});
}

static float float_of(int64_t bits) {
  int32_t low = (int32_t)bits;
  float f;
  memcpy(&f, &low, sizeof f);
  return f;
}

static void activate(chain *c) {
  const cyrt_cuda_epilogue *e = &c->p->epilogue;
  const int32_t at[2] = {activations[e->activation].p, activations[e->activation].q};
  cudnn_pointwise how = {.mode = activations[e->activation].mode};
  for (int i = 0; i < 2; i++)
    if (at[i] != CUDNN_POINTWISE_NONE) {
      how.parameter[i].attribute = at[i];
      how.parameter[i].value = (double)float_of(i ? e->q : e->p);
    }
  if (e->activation != CYRT_ACTIVATION_NONE)
    add_pointwise(c, how);
}

static int operations(cudnn_maker *m, const cyrt_cuda_problem *p, cudnn_descriptor ops[CUDNN_OPERATIONS]) {
  const int after = (p->flags & CYRT_PROBLEM_AFTER) != 0;
  float alpha = float_of(p->epilogue.alpha);
  chain c = {.m = m, .p = p, .ops = ops};
  c.left = 1 + (alpha != 1) + (p->tensor[CYRT_PROBLEM_BIAS].slot >= 0) + (p->tensor[CYRT_PROBLEM_RESIDUAL].slot >= 0) +
           (p->epilogue.activation != CYRT_ACTIVATION_NONE);
  cudnn_descriptor sums = next_output(&c);
  c.ops[c.n++] = convolution(m, p, sums);
  if (alpha != 1)
    add_pointwise(&c, (cudnn_pointwise){.mode = CUDNN_MUL, .b = cyrt_cudnn_float(m, 2 + p->conv.nspatial, alpha)});
  if (!after)
    add_tensor(&c, CYRT_PROBLEM_RESIDUAL);
  add_tensor(&c, CYRT_PROBLEM_BIAS);
  activate(&c);
  if (after)
    add_tensor(&c, CYRT_PROBLEM_RESIDUAL);
  return c.n;
}

static int takes_conv(const cyrt_cuda_problem *p) {
  return takes(p) &&
         (p->epilogue.activation == CYRT_ACTIVATION_NONE || activations[p->epilogue.activation].mode != CUDNN_NONE);
}

const cudnn_kind cyrt_cudnn_conv = {takes_conv, operations};

/* ---- products ---- */

/* One image of one line, if all rows of the factors are dense. */
static int from_product(const cyrt_cuda_problem *p, cyrt_cuda_problem *out) {
  const cyrt_cuda_matmul s = p->matmul;
  static const int images[] = {CYRT_CONV_X, CYRT_PROBLEM_RESIDUAL, CYRT_CONV_Y};
  *out = *p;
  memset(&out->conv, 0, sizeof out->conv);
  out->kind = CYRT_PROBLEM_CONV;
  out->conv = (cyrt_cuda_conv){2, 1, 1, s.k, s.n, {1, s.m, 1}, {1, s.m, 1}, {0, 0, 0}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}};
  for (int i = 0; i < 3; i++) {
    cyrt_cuda_tensor *t = &out->tensor[images[i]];
    int64_t row = t->stride[1], fits = t->slot < 0 || (t->stride[2] == 1 && row > 0);
    if (!fits)
      return 0;
    memcpy(t->stride, (int64_t[4]){row * s.m, row * s.m, row, row * s.m}, sizeof t->stride);
  }
  const int64_t *w = p->tensor[CYRT_MATMUL_B].stride;
  return s.batch == 1 && w[1] == 1 && w[2] == s.k;
}

static int takes_product(const cyrt_cuda_problem *p) {
  cyrt_cuda_problem conv;
  return from_product(p, &conv) && takes_conv(&conv);
}

static int product_operations(cudnn_maker *m, const cyrt_cuda_problem *p, cudnn_descriptor ops[CUDNN_OPERATIONS]) {
  cyrt_cuda_problem conv;
  from_product(p, &conv);
  return operations(m, &conv, ops);
}

const cudnn_kind cyrt_cudnn_product = {takes_product, product_operations};
