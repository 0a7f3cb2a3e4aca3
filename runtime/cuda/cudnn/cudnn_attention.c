/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cudnn_attention.c - attention as operations of cuDNN, in the order that its fused engines look for: a product, scale,
 * bias, a mask, the causal mask and the window by comparing generated indices, softmax piece by piece, a product.
 *
 * They take it only when the logarithms of the sums are an output, too, which nobody reads here. Weights are halves, as
 * they are in our own kernel, all else between the operations is in f32. Versions, architectures and sizes that an
 * engine does not take it says itself; what is left to check is what it would read wrongly or not at all.
 */
#include "runtime/cuda/cudnn_numbers.h"
#include "runtime/cuda/cyrt_cudnn.h"

#include <math.h>
#include <string.h>

enum { RANK = 4, MAX_SIZE = 256, WIDE = 8 }; /* WIDE: elements that are read at once, 16 bytes of halves */

static int is_wide(const cyrt_cuda_tensor *t, const int64_t extent[RANK - 1]) {
  for (int i = 0; i < RANK - 1; i++)
    if (extent[i] > 1 && (t->stride[i] < 1 || t->stride[i] % WIDE))
      return 0;
  return 1;
}

static int takes(const cyrt_cuda_problem *p) {
  const cyrt_cuda_attention *a = &p->attention;
  const int64_t of_rows[] = {a->batch, a->heads, a->rows}, of_keys[] = {a->batch, a->key_heads, a->keys};
  if (a->batch < 1 || a->heads < 1 || a->key_heads < 1 || a->rows < 1 || a->keys < 1 || a->heads % a->key_heads ||
      a->size > MAX_SIZE || a->columns > MAX_SIZE || a->size % WIDE || a->columns % WIDE)
    return 0;
  /* rows that see no key: in front of the first, behind the window of the last */
  if (((p->flags & CYRT_ATTENTION_CAUSAL) || a->window) && (a->past < 0 || a->past > INT32_MAX))
    return 0;
  if (a->window && (a->window < 0 || a->window > INT32_MAX || a->rows + a->past - a->window >= a->keys))
    return 0;
  for (int i = CYRT_ATTENTION_BIAS; i <= CYRT_ATTENTION_MASK; i++)
    if (p->tensor[i].slot >= 0 && (a->keys % WIDE || p->tensor[i].stride[3] != 1))
      return 0;
  return is_wide(&p->tensor[CYRT_ATTENTION_Q], of_rows) && is_wide(&p->tensor[CYRT_PROBLEM_OUT], of_rows) &&
         is_wide(&p->tensor[CYRT_ATTENTION_K], of_keys) && is_wide(&p->tensor[CYRT_ATTENTION_V], of_keys);
}

/* ---- tensors: dims are batch, head, row, column ---- */

static cudnn_descriptor tensor(cudnn_maker *m, const cyrt_cuda_problem *p, int which, const int64_t extent[RANK]) {
  const cyrt_cuda_tensor *t = &p->tensor[which];
  int64_t dims[RANK], strides[RANK] = {t->stride[0], t->stride[1], t->stride[2], 1}, step = 1;
  for (int i = RANK - 1; i >= 0; i--) { /* what is the same along an axis has extent 1 there, and any stride */
    dims[i] = strides[i] ? extent[i] : 1;
    strides[i] = dims[i] == 1 ? step : strides[i];
    step = strides[i] * dims[i];
  }
  if (which == CYRT_ATTENTION_K) { /* its transpose */
    const int64_t transposed[] = {dims[0], dims[1], dims[3], dims[2]}, by[] = {strides[0], strides[1], 1, strides[2]};
    return cyrt_cudnn_tensor(m, p, which, RANK, transposed, by);
  }
  return cyrt_cudnn_tensor(m, p, which, RANK, dims, strides);
}

typedef struct builder {
  cudnn_maker *m;
  const cyrt_cuda_attention *a;
  cudnn_descriptor *ops;
  int n;
} builder;

static void shape(const cyrt_cuda_attention *a, int64_t columns, int64_t dims[RANK], int64_t strides[RANK]) {
  const int64_t d[] = {a->batch, a->heads, a->rows, columns};
  const int64_t s[] = {a->heads * a->rows * columns, a->rows * columns, columns, 1};
  memcpy(dims, d, sizeof d);
  memcpy(strides, s, sizeof s);
}

/* Scores (keys columns), or one number per row. */
static cudnn_descriptor between(builder *b, int64_t columns, int32_t type) {
  int64_t dims[RANK], strides[RANK];
  shape(b->a, columns, dims, strides);
  return cyrt_cudnn_virtual(b->m, RANK, dims, strides, type);
}

/* ---- operations ---- */

static cudnn_descriptor pointwise(builder *b, cudnn_pointwise p) {
  b->ops[b->n++] = cyrt_cudnn_pointwise(b->m, p);
  return p.y;
}

/* mode(x, by) as scores */
static cudnn_descriptor scores(builder *b, int32_t mode, cudnn_descriptor x, cudnn_descriptor by) {
  return pointwise(b, (cudnn_pointwise){.mode = mode, .x = x, .b = by, .y = between(b, b->a->keys, CUDNN_FLOAT)});
}

static cudnn_descriptor matmul(builder *b, cudnn_descriptor x, cudnn_descriptor y, cudnn_descriptor out) {
  cudnn_descriptor how = cyrt_cudnn_make(b->m, CUDNN_MATMUL);
  cyrt_cudnn_set_int(b->m, how, CUDNN_MATMUL_PRECISION, CUDNN_T_DATA_TYPE, CUDNN_FLOAT);
  cyrt_cudnn_finish(b->m, how, "a product's cudnnBackendFinalize");
  const cudnn_operand operands[] = {
      {CUDNN_OP_MATMUL_HOW, how}, {CUDNN_OP_MATMUL_A, x}, {CUDNN_OP_MATMUL_B, y}, {CUDNN_OP_MATMUL_C, out}};
  b->ops[b->n++] =
      cyrt_cudnn_operation(b->m, CUDNN_OP_MATMUL, operands, 4, "a product's cudnnBackendFinalize (operation)");
  return out;
}

/* One number per row. */
static cudnn_descriptor reduce(builder *b, int32_t mode, cudnn_descriptor x) {
  cudnn_descriptor y = between(b, 1, CUDNN_FLOAT), how = cyrt_cudnn_make(b->m, CUDNN_REDUCTION);
  cyrt_cudnn_set_int(b->m, how, CUDNN_REDUCTION_OPERATOR, CUDNN_T_REDUCTION, mode);
  cyrt_cudnn_set_int(b->m, how, CUDNN_REDUCTION_PRECISION, CUDNN_T_DATA_TYPE, CUDNN_FLOAT);
  cyrt_cudnn_finish(b->m, how, "a reduction's cudnnBackendFinalize");
  const cudnn_operand operands[] = {
      {CUDNN_OP_REDUCTION_HOW, how}, {CUDNN_OP_REDUCTION_X, x}, {CUDNN_OP_REDUCTION_Y, y}};
  b->ops[b->n++] =
      cyrt_cudnn_operation(b->m, CUDNN_OP_REDUCTION, operands, 3, "a reduction's cudnnBackendFinalize (operation)");
  return y;
}

static cudnn_descriptor select(builder *b, cudnn_descriptor seen, cudnn_descriptor x, float otherwise) {
  return pointwise(b, (cudnn_pointwise){.mode = CUDNN_SELECT,
                                        .x = x,
                                        .b = cyrt_cudnn_float(b->m, RANK, otherwise),
                                        .t = seen,
                                        .y = between(b, b->a->keys, CUDNN_FLOAT)});
}

/* The number of a score's row (0) or key (1), plus `more`. */
static cudnn_descriptor number(builder *b, int axis, cudnn_descriptor x, int64_t more) {
  cudnn_descriptor n = pointwise(
      b, (cudnn_pointwise){
             .mode = CUDNN_GEN_INDEX, .axis = RANK - 2 + axis, .x = x, .y = between(b, b->a->keys, CUDNN_INT32)});
  return more ? pointwise(b, (cudnn_pointwise){.mode = CUDNN_ADD,
                                               .precision = CUDNN_INT32,
                                               .x = n,
                                               .b = cyrt_cudnn_int(b->m, RANK, (int32_t)more),
                                               .y = between(b, b->a->keys, CUDNN_INT32)})
              : n;
}

/* x where high >= low, else -inf */
static cudnn_descriptor where_ordered(builder *b, cudnn_descriptor high, cudnn_descriptor low, cudnn_descriptor x) {
  cudnn_descriptor seen = pointwise(b, (cudnn_pointwise){.mode = CUDNN_GE,
                                                         .precision = CUDNN_BOOLEAN,
                                                         .x = high,
                                                         .b = low,
                                                         .y = between(b, b->a->keys, CUDNN_BOOLEAN)});
  return select(b, seen, x, -INFINITY);
}

/* Weights of the scores, as halves. */
static cudnn_descriptor softmax(builder *b, cudnn_descriptor x, int32_t type) {
  int64_t dims[RANK], strides[RANK];
  cudnn_descriptor top = reduce(b, CUDNN_REDUCE_MAX, x), below = scores(b, CUDNN_SUB, x, top);
  cudnn_descriptor e = scores(b, CUDNN_EXP, below, NULL), sum = reduce(b, CUDNN_REDUCE_ADD, e);
  cudnn_descriptor log = pointwise(b, (cudnn_pointwise){.mode = CUDNN_LOG, .x = sum, .y = between(b, 1, CUDNN_FLOAT)});
  shape(b->a, 1, dims, strides);
  pointwise(
      b, (cudnn_pointwise){.mode = CUDNN_ADD, .x = top, .b = log, .y = cyrt_cudnn_unread(b->m, RANK, dims, strides)});
  return pointwise(b, (cudnn_pointwise){.mode = CUDNN_DIV, .x = e, .b = sum, .y = between(b, b->a->keys, type)});
}

static float float_of(int64_t bits) {
  int32_t low = (int32_t)bits;
  float f;
  memcpy(&f, &low, sizeof f);
  return f;
}

static int operations(cudnn_maker *m, const cyrt_cuda_problem *p, cudnn_descriptor ops[CUDNN_OPERATIONS]) {
  const cyrt_cuda_attention *a = &p->attention;
  builder b = {.m = m, .a = a, .ops = ops};
  float scale = float_of(a->scale);
  cudnn_descriptor q = tensor(m, p, CYRT_ATTENTION_Q, (int64_t[]){a->batch, a->heads, a->rows, a->size});
  cudnn_descriptor k = tensor(m, p, CYRT_ATTENTION_K, (int64_t[]){a->batch, a->key_heads, a->keys, a->size});
  cudnn_descriptor v = tensor(m, p, CYRT_ATTENTION_V, (int64_t[]){a->batch, a->key_heads, a->keys, a->columns});
  cudnn_descriptor out = tensor(m, p, CYRT_PROBLEM_OUT, (int64_t[]){a->batch, a->heads, a->rows, a->columns});
  cudnn_descriptor s = matmul(&b, q, k, between(&b, a->keys, CUDNN_FLOAT));
  s = scores(&b, CUDNN_MUL, s, cyrt_cudnn_float(m, RANK, scale));
  if (p->tensor[CYRT_ATTENTION_BIAS].slot >= 0)
    s = scores(&b, CUDNN_ADD, s, tensor(m, p, CYRT_ATTENTION_BIAS, (int64_t[]){a->batch, a->heads, a->rows, a->keys}));
  if (p->tensor[CYRT_ATTENTION_MASK].slot >= 0)
    s = select(&b, tensor(m, p, CYRT_ATTENTION_MASK, (int64_t[]){a->batch, a->heads, a->rows, a->keys}), s,
               float_of(a->fill));
  if (p->flags & CYRT_ATTENTION_CAUSAL)
    s = where_ordered(&b, number(&b, 0, s, a->past), number(&b, 1, s, 0), s);
  if (a->window)
    s = where_ordered(&b, number(&b, 1, s, a->window - 1 - a->past), number(&b, 0, s, 0), s);
  matmul(&b, softmax(&b, s, cyrt_cudnn_type(p->tensor[CYRT_ATTENTION_Q].dtype)), v, out);
  return b.n;
}

const cudnn_kind cyrt_cudnn_attention = {takes, operations};
