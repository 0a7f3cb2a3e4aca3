/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cudnn_make.c - operations of cuDNN's backend interface, for every kind of problem: descriptors, tensors, values.
 *
 * In:  what a kind of problem (cudnn_conv.c, cudnn_attention.c) wants. Out: finished descriptors, or the first error, behind
 * which nothing more is done. What lies between operations is virtual.
 */
#include "runtime/cuda/cudnn_numbers.h"
#include "runtime/cuda/cyrt_choose.h"

enum { ALIGNMENT = 16 };

static const struct {
  int32_t dtype, cudnn, bytes;
} types[] = {{CYTO_F32, CUDNN_FLOAT, 4},
             {CYTO_F16, CUDNN_HALF, 2},
             {CYTO_BF16, CUDNN_BFLOAT16, 2},
             {CYTO_BOOL, CUDNN_BOOLEAN, 1}};

static int type_row(int64_t dtype) {
  for (int i = 0; i < (int)(sizeof types / sizeof *types); i++)
    if (types[i].dtype == dtype)
      return i;
  return -1;
}

int64_t cyrt_problem_element(int64_t dtype) { return type_row(dtype) < 0 ? 0 : types[type_row(dtype)].bytes; }

int32_t cyrt_cudnn_type(int64_t dtype) { return types[type_row(dtype)].cudnn; }

/* ---- descriptors ---- */

void cyrt_cudnn_note(cudnn_maker *m, cudnn_code code, const char *call) {
  if (code && !m->code) {
    m->code = code;
    m->call = call;
  }
}

cudnn_descriptor cyrt_cudnn_make(cudnn_maker *m, int32_t type) {
  cudnn_descriptor d = NULL;
  if (m->code)
    return NULL;
  cyrt_cudnn_note(m, m->lib->make(type, &d), "cudnnBackendCreateDescriptor");
  if (!m->code)
    m->graph->made[m->graph->n++] = d;
  return d;
}

void cyrt_cudnn_set(cudnn_maker *m, cudnn_descriptor d, int32_t attribute, int32_t type, int64_t count,
                    const void *values) {
  if (!m->code)
    cyrt_cudnn_note(m, m->lib->set(d, attribute, type, count, values), "cudnnBackendSetAttribute");
}

void cyrt_cudnn_set_int(cudnn_maker *m, cudnn_descriptor d, int32_t attribute, int32_t type, int32_t value) {
  cyrt_cudnn_set(m, d, attribute, type, 1, &value);
}

void cyrt_cudnn_set_descriptor(cudnn_maker *m, cudnn_descriptor d, int32_t attribute, cudnn_descriptor value) {
  cyrt_cudnn_set(m, d, attribute, CUDNN_T_DESCRIPTOR, 1, &value);
}

cudnn_descriptor cyrt_cudnn_finish(cudnn_maker *m, cudnn_descriptor d, const char *what) {
  if (!m->code)
    cyrt_cudnn_note(m, m->lib->finish(d), what);
  return d;
}

/* ---- tensors ---- */

/* flag: an attribute that is set to true, or 0 */
static cudnn_descriptor tensor(cudnn_maker *m, int64_t rank, const int64_t *dims, const int64_t *strides, int32_t type,
                               int64_t id, int32_t flag) {
  int64_t alignment = flag == CUDNN_TENSOR_BY_VALUE ? 4 : ALIGNMENT;
  uint8_t yes = 1; /* a C++ bool */
  cudnn_descriptor d = cyrt_cudnn_make(m, CUDNN_TENSOR);
  cyrt_cudnn_set_int(m, d, CUDNN_TENSOR_TYPE, CUDNN_T_DATA_TYPE, type);
  cyrt_cudnn_set(m, d, CUDNN_TENSOR_DIMS, CUDNN_T_INT64, rank, dims);
  cyrt_cudnn_set(m, d, CUDNN_TENSOR_STRIDES, CUDNN_T_INT64, rank, strides);
  cyrt_cudnn_set(m, d, CUDNN_TENSOR_ID, CUDNN_T_INT64, 1, &id);
  cyrt_cudnn_set(m, d, CUDNN_TENSOR_ALIGNMENT, CUDNN_T_INT64, 1, &alignment);
  if (flag)
    cyrt_cudnn_set(m, d, flag, CUDNN_T_BOOLEAN, 1, &yes);
  return cyrt_cudnn_finish(m, d, "a tensor's cudnnBackendFinalize");
}

cudnn_descriptor cyrt_cudnn_tensor(cudnn_maker *m, const cyrt_cuda_problem *problem, int which, int64_t rank,
                                   const int64_t *dims, const int64_t *strides) {
  return tensor(m, rank, dims, strides, cyrt_cudnn_type(problem->tensor[which].dtype), CUDNN_FIRST_ID + which, 0);
}

cudnn_descriptor cyrt_cudnn_virtual(cudnn_maker *m, int64_t rank, const int64_t *dims, const int64_t *strides,
                                    int32_t type) {
  return tensor(m, rank, dims, strides, type, CUDNN_FIRST_VIRTUAL + m->next_id++, CUDNN_TENSOR_VIRTUAL);
}

cudnn_descriptor cyrt_cudnn_unread(cudnn_maker *m, int64_t rank, const int64_t *dims, const int64_t *strides) {
  m->graph->unread = 4;
  for (int64_t i = 0; i < rank; i++)
    m->graph->unread *= dims[i];
  return tensor(m, rank, dims, strides, CUDNN_FLOAT, CUDNN_UNREAD_ID, 0);
}

static cudnn_descriptor one_value(cudnn_maker *m, int64_t rank, int32_t type) {
  static const int64_t ones[CUDNN_RANK] = {1, 1, 1, 1, 1};
  return tensor(m, rank, ones, ones, type, CUDNN_FIRST_VALUE + m->graph->n_values++, CUDNN_TENSOR_BY_VALUE);
}

cudnn_descriptor cyrt_cudnn_float(cudnn_maker *m, int64_t rank, float value) {
  m->graph->value[m->graph->n_values].f = value;
  return one_value(m, rank, CUDNN_FLOAT);
}

cudnn_descriptor cyrt_cudnn_int(cudnn_maker *m, int64_t rank, int32_t value) {
  m->graph->value[m->graph->n_values].i = value;
  return one_value(m, rank, CUDNN_INT32);
}

/* ---- operations ---- */

cudnn_descriptor cyrt_cudnn_operation(cudnn_maker *m, int32_t type, const cudnn_operand *operands, int n,
                                      const char *what) {
  cudnn_descriptor op = cyrt_cudnn_make(m, type);
  for (int i = 0; i < n; i++)
    if (operands[i].descriptor)
      cyrt_cudnn_set_descriptor(m, op, operands[i].attribute, operands[i].descriptor);
  return cyrt_cudnn_finish(m, op, what);
}

cudnn_descriptor cyrt_cudnn_pointwise(cudnn_maker *m, cudnn_pointwise p) {
  cudnn_descriptor how = cyrt_cudnn_make(m, CUDNN_POINTWISE);
  cyrt_cudnn_set_int(m, how, CUDNN_POINTWISE_MODE, CUDNN_T_POINTWISE_MODE, p.mode);
  cyrt_cudnn_set_int(m, how, CUDNN_POINTWISE_PRECISION, CUDNN_T_DATA_TYPE, p.precision);
  if (p.mode == CUDNN_GEN_INDEX)
    cyrt_cudnn_set(m, how, CUDNN_POINTWISE_AXIS, CUDNN_T_INT64, 1, &p.axis);
  if (p.mode == CUDNN_RELU) /* without, that of NaN is 0 */
    cyrt_cudnn_set_int(m, how, CUDNN_POINTWISE_NAN, CUDNN_T_NAN, CUDNN_PROPAGATE_NAN);
  for (int i = 0; i < 2; i++)
    if (p.parameter[i].attribute)
      cyrt_cudnn_set(m, how, p.parameter[i].attribute, CUDNN_T_DOUBLE, 1, &p.parameter[i].value);
  cyrt_cudnn_finish(m, how, "a pointwise cudnnBackendFinalize");
  const cudnn_operand operands[] = {{CUDNN_OP_POINTWISE_HOW, how},
                                    {CUDNN_OP_POINTWISE_X, p.x},
                                    {CUDNN_OP_POINTWISE_B, p.b},
                                    {CUDNN_OP_POINTWISE_T, p.t},
                                    {CUDNN_OP_POINTWISE_Y, p.y}};
  return cyrt_cudnn_operation(m, CUDNN_OP_POINTWISE, operands, 5, "a pointwise cudnnBackendFinalize (operation)");
}
