/* SPDX-License-Identifier: Apache-2.0 */
/* mock_cudnn.c - a libcudnn.so.9 without a GPU: checks descriptors as cuDNN documents them, and computes by plain
 * loops.
 *
 * A descriptor keeps its attributes as they were set. Every type's attributes, their types and counts are rows of a
 * table; finishing checks that what is required is there, that what it refers to is finished, and that shapes follow
 * from each other. A plan evaluates its operations one after the other, each into memory of its own where its output is
 * virtual. Five engines differ in their notes and in the time they take on the mock driver's clock. As in cuDNN 9.19, no
 * engine takes attention whose only output is the result; but one, all that take convolutions want the operations in
 * one order and all tensors of one type; and of f32 many round the factors to TF32, which come first. Whatever is wrong
 * fails with the code of a bad parameter, and mock_cudnn()->fault says why.
 */
#define _GNU_SOURCE
#include "tests/cuda/mock/mock_cudnn.h"
#include "runtime/cuda/cudnn_numbers.h"
#include "tests/cuda/mock/mock_library.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, BAD = 2000, UNSUPPORTED = 3000 };

/* ---- the table of attributes ---- */

static const struct attribute {
  int of, name, type, min, max, refers; /* least 0: optional; refers: type of the descriptors, -1: any operation */
} attributes[] = {
    {CUDNN_POINTWISE, CUDNN_POINTWISE_MODE, CUDNN_T_POINTWISE_MODE, 1, 1, 0},
    {CUDNN_POINTWISE, CUDNN_POINTWISE_PRECISION, CUDNN_T_DATA_TYPE, 1, 1, 0},
    {CUDNN_POINTWISE, CUDNN_POINTWISE_NAN, CUDNN_T_NAN, 0, 1, 0},
    {CUDNN_POINTWISE, CUDNN_POINTWISE_RELU_LOWER, CUDNN_T_DOUBLE, 0, 1, 0},
    {CUDNN_POINTWISE, CUDNN_POINTWISE_RELU_UPPER, CUDNN_T_DOUBLE, 0, 1, 0},
    {CUDNN_POINTWISE, CUDNN_POINTWISE_RELU_SLOPE, CUDNN_T_DOUBLE, 0, 1, 0},
    {CUDNN_POINTWISE, CUDNN_POINTWISE_ELU_ALPHA, CUDNN_T_DOUBLE, 0, 1, 0},
    {CUDNN_POINTWISE, CUDNN_POINTWISE_SWISH_BETA, CUDNN_T_DOUBLE, 0, 1, 0},
    {CUDNN_CONVOLUTION, CUDNN_CONV_PRECISION, CUDNN_T_DATA_TYPE, 1, 1, 0},
    {CUDNN_CONVOLUTION, CUDNN_CONV_MODE, CUDNN_T_CONVOLUTION_MODE, 1, 1, 0},
    {CUDNN_CONVOLUTION, CUDNN_CONV_DILATIONS, CUDNN_T_INT64, 1, 6, 0},
    {CUDNN_CONVOLUTION, CUDNN_CONV_STRIDES, CUDNN_T_INT64, 1, 6, 0},
    {CUDNN_CONVOLUTION, CUDNN_CONV_POST_PADS, CUDNN_T_INT64, 1, 6, 0},
    {CUDNN_CONVOLUTION, CUDNN_CONV_PRE_PADS, CUDNN_T_INT64, 1, 6, 0},
    {CUDNN_CONVOLUTION, CUDNN_CONV_RANK, CUDNN_T_INT64, 1, 1, 0},
    {CUDNN_HEURISTICS, CUDNN_HEURISTICS_MODE, CUDNN_T_HEURISTICS_MODE, 1, 1, 0},
    {CUDNN_HEURISTICS, CUDNN_HEURISTICS_GRAPH, CUDNN_T_DESCRIPTOR, 1, 1, CUDNN_GRAPH},
    {CUDNN_ENGINE_CONFIG, CUDNN_CONFIG_ENGINE, CUDNN_T_DESCRIPTOR, 1, 1, CUDNN_ENGINE},
    {CUDNN_PLAN, CUDNN_PLAN_HANDLE, CUDNN_T_HANDLE, 1, 1, 0},
    {CUDNN_PLAN, CUDNN_PLAN_CONFIG, CUDNN_T_DESCRIPTOR, 1, 1, CUDNN_ENGINE_CONFIG},
    {CUDNN_OP_CONVOLUTION, CUDNN_OP_CONV_ALPHA, CUDNN_T_FLOAT, 1, 1, 0},
    {CUDNN_OP_CONVOLUTION, CUDNN_OP_CONV_BETA, CUDNN_T_FLOAT, 1, 1, 0},
    {CUDNN_OP_CONVOLUTION, CUDNN_OP_CONV_CONV, CUDNN_T_DESCRIPTOR, 1, 1, CUDNN_CONVOLUTION},
    {CUDNN_OP_CONVOLUTION, CUDNN_OP_CONV_W, CUDNN_T_DESCRIPTOR, 1, 1, CUDNN_TENSOR},
    {CUDNN_OP_CONVOLUTION, CUDNN_OP_CONV_X, CUDNN_T_DESCRIPTOR, 1, 1, CUDNN_TENSOR},
    {CUDNN_OP_CONVOLUTION, CUDNN_OP_CONV_Y, CUDNN_T_DESCRIPTOR, 1, 1, CUDNN_TENSOR},
    {CUDNN_OP_CONVOLUTION_BACK, CUDNN_OP_BACK_ALPHA, CUDNN_T_FLOAT, 1, 1, 0},
    {CUDNN_OP_CONVOLUTION_BACK, CUDNN_OP_BACK_BETA, CUDNN_T_FLOAT, 1, 1, 0},
    {CUDNN_OP_CONVOLUTION_BACK, CUDNN_OP_BACK_CONV, CUDNN_T_DESCRIPTOR, 1, 1, CUDNN_CONVOLUTION},
    {CUDNN_OP_CONVOLUTION_BACK, CUDNN_OP_BACK_W, CUDNN_T_DESCRIPTOR, 1, 1, CUDNN_TENSOR},
    {CUDNN_OP_CONVOLUTION_BACK, CUDNN_OP_BACK_DX, CUDNN_T_DESCRIPTOR, 1, 1, CUDNN_TENSOR},
    {CUDNN_OP_CONVOLUTION_BACK, CUDNN_OP_BACK_DY, CUDNN_T_DESCRIPTOR, 1, 1, CUDNN_TENSOR},
    {CUDNN_OP_POINTWISE, CUDNN_OP_POINTWISE_HOW, CUDNN_T_DESCRIPTOR, 1, 1, CUDNN_POINTWISE},
    {CUDNN_OP_POINTWISE, CUDNN_OP_POINTWISE_X, CUDNN_T_DESCRIPTOR, 1, 1, CUDNN_TENSOR},
    {CUDNN_OP_POINTWISE, CUDNN_OP_POINTWISE_B, CUDNN_T_DESCRIPTOR, 0, 1, CUDNN_TENSOR},
    {CUDNN_OP_POINTWISE, CUDNN_OP_POINTWISE_Y, CUDNN_T_DESCRIPTOR, 1, 1, CUDNN_TENSOR},
    {CUDNN_GRAPH, CUDNN_GRAPH_HANDLE, CUDNN_T_HANDLE, 1, 1, 0},
    {CUDNN_GRAPH, CUDNN_GRAPH_OPS, CUDNN_T_DESCRIPTOR, 1, 20, -1},
    {CUDNN_VARIANT_PACK, CUDNN_PACK_IDS, CUDNN_T_INT64, 1, 20, 0},
    {CUDNN_VARIANT_PACK, CUDNN_PACK_POINTERS, CUDNN_T_POINTER, 1, 20, 0},
    {CUDNN_VARIANT_PACK, CUDNN_PACK_WORKSPACE, CUDNN_T_POINTER, 1, 1, 0},
    {CUDNN_TENSOR, CUDNN_TENSOR_ALIGNMENT, CUDNN_T_INT64, 1, 1, 0},
    {CUDNN_TENSOR, CUDNN_TENSOR_TYPE, CUDNN_T_DATA_TYPE, 1, 1, 0},
    {CUDNN_TENSOR, CUDNN_TENSOR_DIMS, CUDNN_T_INT64, 3, 8, 0},
    {CUDNN_TENSOR, CUDNN_TENSOR_STRIDES, CUDNN_T_INT64, 3, 8, 0},
    {CUDNN_TENSOR, CUDNN_TENSOR_ID, CUDNN_T_INT64, 1, 1, 0},
    {CUDNN_TENSOR, CUDNN_TENSOR_VIRTUAL, CUDNN_T_BOOLEAN, 0, 1, 0},
    {CUDNN_POINTWISE, CUDNN_POINTWISE_AXIS, CUDNN_T_INT64, 0, 1, 0},
    {CUDNN_OP_POINTWISE, CUDNN_OP_POINTWISE_T, CUDNN_T_DESCRIPTOR, 0, 1, CUDNN_TENSOR},
    {CUDNN_TENSOR, CUDNN_TENSOR_BY_VALUE, CUDNN_T_BOOLEAN, 0, 1, 0},
    {CUDNN_MATMUL, CUDNN_MATMUL_PRECISION, CUDNN_T_DATA_TYPE, 1, 1, 0},
    {CUDNN_OP_MATMUL, CUDNN_OP_MATMUL_A, CUDNN_T_DESCRIPTOR, 1, 1, CUDNN_TENSOR},
    {CUDNN_OP_MATMUL, CUDNN_OP_MATMUL_B, CUDNN_T_DESCRIPTOR, 1, 1, CUDNN_TENSOR},
    {CUDNN_OP_MATMUL, CUDNN_OP_MATMUL_C, CUDNN_T_DESCRIPTOR, 1, 1, CUDNN_TENSOR},
    {CUDNN_OP_MATMUL, CUDNN_OP_MATMUL_HOW, CUDNN_T_DESCRIPTOR, 1, 1, CUDNN_MATMUL},
    {CUDNN_REDUCTION, CUDNN_REDUCTION_OPERATOR, CUDNN_T_REDUCTION, 1, 1, 0},
    {CUDNN_REDUCTION, CUDNN_REDUCTION_PRECISION, CUDNN_T_DATA_TYPE, 1, 1, 0},
    {CUDNN_OP_REDUCTION, CUDNN_OP_REDUCTION_X, CUDNN_T_DESCRIPTOR, 1, 1, CUDNN_TENSOR},
    {CUDNN_OP_REDUCTION, CUDNN_OP_REDUCTION_Y, CUDNN_T_DESCRIPTOR, 1, 1, CUDNN_TENSOR},
    {CUDNN_OP_REDUCTION, CUDNN_OP_REDUCTION_HOW, CUDNN_T_DESCRIPTOR, 1, 1, CUDNN_REDUCTION},
};
enum { ATTRIBUTES = sizeof attributes / sizeof *attributes };

static size_t size_of(int type) {
  switch (type) {
  case CUDNN_T_BOOLEAN:
    return 1;
  case CUDNN_T_DOUBLE:
  case CUDNN_T_HANDLE:
  case CUDNN_T_INT64:
  case CUDNN_T_POINTER:
  case CUDNN_T_DESCRIPTOR:
    return 8;
  default:
    return 4;
  }
}

typedef struct descriptor {
  int type, finished, engine; /* engine: of engines and what comes of them */
  int64_t count[ATTRIBUTES];
  union {
    int64_t i[20];
    int32_t e[40];
    uint8_t b[160];
    float f[40];
    double d[20];
    void *p[20];
  } value[ATTRIBUTES];
} descriptor;

static mock_cudnn_state mock = {
    .version = 91900, .cudart = 13000, .engine_us = {5, 4, 6, 3, 7}, .workspace = 1000, .wrong = -1};
/* tensor cores, not the same at every run, none, sums of less precision, inputs made smaller; -1: none */
static const int notes[MOCK_ENGINES] = {0, 4, -1, 2, 1};

mock_cudnn_state *mock_cudnn(void) { return &mock; }

static int row_of(int type, int name) {
  for (int i = 0; i < ATTRIBUTES; i++)
    if (attributes[i].of == type && attributes[i].name == name)
      return i;
  return -1;
}

/* An attribute that must be there. */
static const int64_t *ints(const descriptor *d, int name) { return d->value[row_of(d->type, name)].i; }
static int count(const descriptor *d, int name) { return (int)d->count[row_of(d->type, name)]; }
static int word(const descriptor *d, int name) { return d->value[row_of(d->type, name)].e[0]; }
static descriptor *ref(const descriptor *d, int name, int i) { return d->value[row_of(d->type, name)].p[i]; }

/* ---- library, handles ---- */

size_t cudnnGetVersion(void) { return mock.version; }
size_t cudnnGetCudartVersion(void) { return mock.cudart; }

const char *cudnnGetErrorString(int code) {
  return code == BAD        ? "CUDNN_STATUS_BAD_PARAM"
         : code / 1000 == 3 ? "CUDNN_STATUS_NOT_SUPPORTED"
                            : "CUDNN_STATUS_OTHER";
}

void cudnnGetLastErrorString(char *text, size_t capacity) { snprintf(text, capacity, "%s", mock.fault); }

typedef struct handle {
  void *stream;
} handle;

int cudnnCreate(void **out) {
  if (mock.create_code)
    return fail(mock.create_code, "the test wants it");
  *out = calloc(1, sizeof(handle));
  mock.handles++;
  return OK;
}

int cudnnDestroy(void *h) {
  free(h);
  mock.handles--;
  return OK;
}

int cudnnSetStream(void *h, void *stream) {
  ((handle *)h)->stream = stream;
  return OK;
}

/* ---- descriptors ---- */

int cudnnBackendCreateDescriptor(int type, void **out) {
  descriptor *d = calloc(1, sizeof *d);
  d->type = type;
  *out = d;
  mock.descriptors++;
  return OK;
}

int cudnnBackendDestroyDescriptor(void *d) {
  free(d);
  mock.descriptors--;
  return OK;
}

static int is_operation(const descriptor *d) {
  return d->type == CUDNN_OP_CONVOLUTION || d->type == CUDNN_OP_CONVOLUTION_BACK || d->type == CUDNN_OP_POINTWISE || d->type == CUDNN_OP_MATMUL ||
         d->type == CUDNN_OP_REDUCTION;
}

int cudnnBackendSetAttribute(void *where, int name, int type, int64_t n, const void *values) {
  descriptor *d = where;
  int row = row_of(d->type, name);
  if (d->finished)
    return fail(BAD, "attribute %d is set after the descriptor was finished", name);
  if (row < 0)
    return fail(BAD, "descriptors of type %d have no attribute %d", d->type, name);
  const struct attribute *a = &attributes[row];
  if (type != a->type || n < 1 || n > a->max || !values)
    return fail(BAD, "attribute %d: type %d, %lld elements", name, type, (long long)n);
  d->count[row] = n;
  memcpy(&d->value[row], values, size_of(type) * (size_t)n);
  for (int i = 0; i < n && type == CUDNN_T_DESCRIPTOR; i++) {
    const descriptor *to = ref(d, name, i);
    int fits = to && (a->refers < 0 ? is_operation(to) : to->type == a->refers);
    if (!fits || !to->finished)
      return fail(BAD, "attribute %d refers to a descriptor of the wrong type, or to one that is not finished", name);
  }
  return OK;
}

/* ---- finishing ---- */

static int finish_tensor(const descriptor *d) {
  const int64_t *dims = ints(d, CUDNN_TENSOR_DIMS), *strides = ints(d, CUDNN_TENSOR_STRIDES),
                alignment = ints(d, CUDNN_TENSOR_ALIGNMENT)[0];
  int type = word(d, CUDNN_TENSOR_TYPE);
  if (count(d, CUDNN_TENSOR_DIMS) != count(d, CUDNN_TENSOR_STRIDES))
    return fail(BAD, "a tensor has %d dims and %d strides", count(d, CUDNN_TENSOR_DIMS),
                count(d, CUDNN_TENSOR_STRIDES));
  for (int i = 0; i < count(d, CUDNN_TENSOR_DIMS); i++)
    if (dims[i] < 1 || strides[i] < 1)
      return fail(BAD, "a tensor's dim %d is %lld, its stride %lld", i, (long long)dims[i], (long long)strides[i]);
  if (alignment < 1 || (alignment & (alignment - 1)) ||
      (type != CUDNN_FLOAT && type != CUDNN_HALF && type != CUDNN_BFLOAT16 && type != CUDNN_INT32 &&
       type != CUDNN_BOOLEAN))
    return fail(BAD, "a tensor of type %d, aligned to %lld", type, (long long)alignment);
  return OK;
}

static int finish_convolution(const descriptor *d) {
  for (int name = CUDNN_CONV_DILATIONS; name <= CUDNN_CONV_PRE_PADS; name++)
    if (count(d, name) != ints(d, CUDNN_CONV_RANK)[0])
      return fail(BAD, "attribute %d has %d elements for %lld axes", name, count(d, name),
                  (long long)ints(d, CUDNN_CONV_RANK)[0]);
  return word(d, CUDNN_CONV_MODE) == 1 && word(d, CUDNN_CONV_PRECISION) == 0
             ? OK
             : fail(BAD, "mode %d, precision %d", word(d, CUDNN_CONV_MODE), word(d, CUDNN_CONV_PRECISION));
}

/* The way back has the tensors of the convolution that it comes back from. */
static int finish_op_conv(const descriptor *d) {
  const int back = d->type == CUDNN_OP_CONVOLUTION_BACK;
  const descriptor *c = ref(d, back ? CUDNN_OP_BACK_CONV : CUDNN_OP_CONV_CONV, 0),
                   *w = ref(d, back ? CUDNN_OP_BACK_W : CUDNN_OP_CONV_W, 0),
                   *x = ref(d, back ? CUDNN_OP_BACK_DX : CUDNN_OP_CONV_X, 0),
                   *y = ref(d, back ? CUDNN_OP_BACK_DY : CUDNN_OP_CONV_Y, 0);
  const int64_t *xd = ints(x, CUDNN_TENSOR_DIMS), *wd = ints(w, CUDNN_TENSOR_DIMS), *yd = ints(y, CUDNN_TENSOR_DIMS);
  int rank = (int)ints(c, CUDNN_CONV_RANK)[0];
  if (count(x, CUDNN_TENSOR_DIMS) != rank + 2 || count(w, CUDNN_TENSOR_DIMS) != rank + 2 ||
      count(y, CUDNN_TENSOR_DIMS) != rank + 2)
    return fail(BAD, "a convolution of %d axes has tensors of another rank", rank);
  if (xd[0] != yd[0] || wd[0] != yd[1] || xd[1] % wd[1] || wd[0] % (xd[1] / wd[1]))
    return fail(BAD, "a convolution's images, channels or groups do not fit");
  for (int i = 0; i < rank; i++) {
    int64_t reach = (wd[2 + i] - 1) * ints(c, CUDNN_CONV_DILATIONS)[i] + 1,
            padded = xd[2 + i] + ints(c, CUDNN_CONV_PRE_PADS)[i] + ints(c, CUDNN_CONV_POST_PADS)[i];
    if (ints(c, CUDNN_CONV_PRE_PADS)[i] < 0 || ints(c, CUDNN_CONV_POST_PADS)[i] < 0 ||
        (padded - reach) / ints(c, CUDNN_CONV_STRIDES)[i] + 1 != yd[2 + i])
      return fail(BAD, "a convolution's axis %d: %lld cannot become %lld", i, (long long)xd[2 + i],
                  (long long)yd[2 + i]);
  }
  return OK;
}

/* Operands of a pointwise mode; 0: there is none of this number. */
static int operands(int mode) {
  switch (mode) {
  case CUDNN_EXP:
  case CUDNN_LOG:
  case CUDNN_RELU:
  case CUDNN_TANH:
  case CUDNN_SIGMOID:
  case CUDNN_ELU:
  case CUDNN_GELU:
  case CUDNN_SWISH:
  case CUDNN_GELU_TANH:
  case CUDNN_GEN_INDEX:
    return 1;
  case CUDNN_ADD:
  case CUDNN_MUL:
  case CUDNN_DIV:
  case CUDNN_SUB:
  case CUDNN_GE:
    return 2;
  case CUDNN_SELECT:
    return 3;
  default:
    return 0;
  }
}

static int finish_op_pointwise(const descriptor *d) {
  const descriptor *in[] = {ref(d, CUDNN_OP_POINTWISE_X, 0), ref(d, CUDNN_OP_POINTWISE_B, 0),
                            ref(d, CUDNN_OP_POINTWISE_T, 0)};
  const descriptor *how = ref(d, CUDNN_OP_POINTWISE_HOW, 0), *y = ref(d, CUDNN_OP_POINTWISE_Y, 0);
  int mode = word(how, CUDNN_POINTWISE_MODE), rank = count(y, CUDNN_TENSOR_DIMS);
  if (mode == CUDNN_RELU && word(how, CUDNN_POINTWISE_NAN) != CUDNN_PROPAGATE_NAN) /* is no error to cuDNN */
    return fail(BAD, "the ReLU of NaN would be 0");
  if (operands(mode) != 1 + !!in[1] + !!in[2])
    return fail(BAD, "a pointwise operation of mode %d has %d operands", mode, 1 + !!in[1] + !!in[2]);
  if ((mode == CUDNN_GEN_INDEX) != count(how, CUDNN_POINTWISE_AXIS))
    return fail(BAD, "a pointwise operation of mode %d %s an axis", mode, mode == CUDNN_GEN_INDEX ? "lacks" : "has");
  for (int i = 0; i < rank; i++)
    for (int k = 0; k < operands(mode); k++) {
      int64_t n = ints(y, CUDNN_TENSOR_DIMS)[i], own = ints(in[k], CUDNN_TENSOR_DIMS)[i];
      if (count(in[k], CUDNN_TENSOR_DIMS) != rank || (own != n && (own != 1 || !k)))
        return fail(BAD, "a pointwise operation's axis %d does not fit", i);
    }
  return OK;
}

static int finish_op_matmul(const descriptor *d) {
  const int64_t *a = ints(ref(d, CUDNN_OP_MATMUL_A, 0), CUDNN_TENSOR_DIMS);
  const int64_t *b = ints(ref(d, CUDNN_OP_MATMUL_B, 0), CUDNN_TENSOR_DIMS);
  const int64_t *c = ints(ref(d, CUDNN_OP_MATMUL_C, 0), CUDNN_TENSOR_DIMS);
  int rank = count(ref(d, CUDNN_OP_MATMUL_C, 0), CUDNN_TENSOR_DIMS);
  for (int i = 0; i < rank - 2; i++)
    if (a[i] != c[i] || c[i] % b[i])
      return fail(BAD, "a product's axis %d does not fit", i);
  return a[rank - 2] == c[rank - 2] && a[rank - 1] == b[rank - 2] && b[rank - 1] == c[rank - 1]
             ? OK
             : fail(BAD, "a product's matrices do not fit");
}

static int finish_op_reduction(const descriptor *d) {
  const descriptor *x = ref(d, CUDNN_OP_REDUCTION_X, 0), *y = ref(d, CUDNN_OP_REDUCTION_Y, 0);
  int mode = word(ref(d, CUDNN_OP_REDUCTION_HOW, 0), CUDNN_REDUCTION_OPERATOR);
  for (int i = 0; i < count(y, CUDNN_TENSOR_DIMS); i++) {
    int64_t n = ints(y, CUDNN_TENSOR_DIMS)[i];
    if (n != 1 && n != ints(x, CUDNN_TENSOR_DIMS)[i])
      return fail(BAD, "a reduction's axis %d does not fit", i);
  }
  return mode == CUDNN_REDUCE_ADD || mode == CUDNN_REDUCE_MAX ? OK : fail(BAD, "a reduction of mode %d", mode);
}

static int has(const descriptor *tensor, int flag) { return tensor->value[row_of(CUDNN_TENSOR, flag)].b[0]; }
static int is_virtual(const descriptor *tensor) { return has(tensor, CUDNN_TENSOR_VIRTUAL); }

/* The tensors of an operation: the operands, NULL where there is none, and the output. */
enum { OPERANDS = 3 };
static void tensors_of(const descriptor *op, const descriptor *out[OPERANDS + 1]) {
  static const struct {
    int type, names[OPERANDS + 1];
  } rows[] = {
      {CUDNN_OP_CONVOLUTION, {CUDNN_OP_CONV_X, CUDNN_OP_CONV_W, 0, CUDNN_OP_CONV_Y}},
      {CUDNN_OP_CONVOLUTION_BACK, {CUDNN_OP_BACK_DY, CUDNN_OP_BACK_W, 0, CUDNN_OP_BACK_DX}},
      {CUDNN_OP_POINTWISE, {CUDNN_OP_POINTWISE_X, CUDNN_OP_POINTWISE_B, CUDNN_OP_POINTWISE_T, CUDNN_OP_POINTWISE_Y}},
      {CUDNN_OP_MATMUL, {CUDNN_OP_MATMUL_A, CUDNN_OP_MATMUL_B, 0, CUDNN_OP_MATMUL_C}},
      {CUDNN_OP_REDUCTION, {CUDNN_OP_REDUCTION_X, 0, 0, CUDNN_OP_REDUCTION_Y}}};
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
    for (int i = 0; i <= OPERANDS && rows[r].type == op->type; i++)
      out[i] = rows[r].names[i] ? ref(op, rows[r].names[i], 0) : NULL;
}

static const descriptor *output(const descriptor *op) {
  const descriptor *t[OPERANDS + 1];
  tensors_of(op, t);
  return t[OPERANDS];
}

static int reads(const descriptor *op, const descriptor *tensor) {
  const descriptor *t[OPERANDS + 1];
  int n = 0;
  tensors_of(op, t);
  for (int i = 0; i < OPERANDS; i++)
    n += t[i] == tensor;
  return n;
}

static int outputs_of(const descriptor *graph) {
  int n = 0;
  for (int i = 0; i < count(graph, CUDNN_GRAPH_OPS); i++)
    n += !is_virtual(output(ref(graph, CUDNN_GRAPH_OPS, i)));
  return n;
}

/* Virtual tensors are written once, and read by later operations; those that are not are the graph's outputs. */
static int finish_graph(const descriptor *d) {
  int n = count(d, CUDNN_GRAPH_OPS);
  if (mock.graph_code)
    return fail(mock.graph_code, "the test wants it");
  for (int i = 0; i < n; i++) {
    int readers = 0, early = 0, writers = 0;
    const descriptor *t = output(ref(d, CUDNN_GRAPH_OPS, i));
    for (int j = 0; j < n; j++) {
      *(j > i ? &readers : &early) += reads(ref(d, CUDNN_GRAPH_OPS, j), t);
      writers += output(ref(d, CUDNN_GRAPH_OPS, j)) == t;
      if (j > i && ints(output(ref(d, CUDNN_GRAPH_OPS, j)), CUDNN_TENSOR_ID)[0] == ints(t, CUDNN_TENSOR_ID)[0])
        return fail(BAD, "two tensors have the id %lld", (long long)ints(t, CUDNN_TENSOR_ID)[0]);
    }
    if (writers != 1 || early || (is_virtual(t) ? !readers : readers))
      return fail(BAD, "operation %d: %d write its output, %d read it, %d before", i, writers, readers, early);
  }
  mock.graphs++;
  return outputs_of(d) ? OK : fail(BAD, "a graph has no output");
}

int cudnnBackendFinalize(void *where) {
  descriptor *d = where;
  if (d->finished)
    return fail(BAD, "a descriptor of type %d is finished twice", d->type);
  for (int i = 0; i < ATTRIBUTES; i++)
    if (attributes[i].of == d->type && d->count[i] < attributes[i].min)
      return fail(BAD, "a descriptor of type %d lacks attribute %d", d->type, attributes[i].name);
  int code = OK;
  switch (d->type) {
  case CUDNN_TENSOR:
    code = finish_tensor(d);
    break;
  case CUDNN_CONVOLUTION:
    code = finish_convolution(d);
    break;
  case CUDNN_OP_CONVOLUTION:
  case CUDNN_OP_CONVOLUTION_BACK:
    code = finish_op_conv(d);
    break;
  case CUDNN_OP_POINTWISE:
    code = finish_op_pointwise(d);
    break;
  case CUDNN_OP_MATMUL:
    code = finish_op_matmul(d);
    break;
  case CUDNN_OP_REDUCTION:
    code = finish_op_reduction(d);
    break;
  case CUDNN_GRAPH:
    code = finish_graph(d);
    break;
  case CUDNN_HEURISTICS:
    code = word(d, CUDNN_HEURISTICS_MODE) == CUDNN_MODE_A || word(d, CUDNN_HEURISTICS_MODE) == CUDNN_MODE_FALLBACK
               ? OK
               : fail(UNSUPPORTED, "heuristics of mode %d", word(d, CUDNN_HEURISTICS_MODE));
    break;
  case CUDNN_PLAN:
    d->engine = ref(d, CUDNN_PLAN_CONFIG, 0)->engine;
    mock.plans++;
    code = mock.plan_code ? fail(mock.plan_code, "the test wants it") : OK;
    break;
  case CUDNN_VARIANT_PACK:
    code =
        count(d, CUDNN_PACK_IDS) == count(d, CUDNN_PACK_POINTERS) ? OK : fail(BAD, "ids and pointers differ in number");
    break;
  }
  d->finished = !code;
  return code;
}

/* ---- what finished descriptors tell ---- */

static int same_type(const descriptor *op, int type) {
  const descriptor *t[OPERANDS + 1];
  int same = 1;
  tensors_of(op, t);
  for (int i = 0; i <= OPERANDS; i++)
    same &= !t[i] || is_virtual(t[i]) || word(t[i], CUDNN_TENSOR_TYPE) == type;
  return same;
}

static int is_pointwise(const descriptor *op, int mode) {
  return op->type == CUDNN_OP_POINTWISE && word(ref(op, CUDNN_OP_POINTWISE_HOW, 0), CUDNN_POINTWISE_MODE) == mode;
}

static const descriptor *input(const descriptor *op) {
  const descriptor *t[OPERANDS + 1];
  tensors_of(op, t);
  return t[0];
}

static int is_conv(const descriptor *op) {
  return op->type == CUDNN_OP_CONVOLUTION || op->type == CUDNN_OP_CONVOLUTION_BACK;
}

static int has_parameter(const descriptor *pointwise) {
  int any = 0;
  for (int name = CUDNN_POINTWISE_RELU_LOWER; name <= CUDNN_POINTWISE_SWISH_BETA; name++)
    any |= row_of(CUDNN_POINTWISE, name) >= 0 && count(pointwise, name);
  return any;
}

/* Is it a convolution alone, or conv + image + bias with or without the image, a ReLU, all of one type and virtual
 * tensors of f32? That is what engines that need no compiling look for. */
static int is_common(const descriptor *graph) {
  int n = count(graph, CUDNN_GRAPH_OPS), at = 1, bias = 0, same = 1;
  const descriptor *conv = ref(graph, CUDNN_GRAPH_OPS, 0);
  for (int i = 0; i < n; i++) {
    const descriptor *op = ref(graph, CUDNN_GRAPH_OPS, i), *y = output(op);
    same &= same_type(op, word(input(conv), CUDNN_TENSOR_TYPE)) &&
            (!is_virtual(y) || word(y, CUDNN_TENSOR_TYPE) == CUDNN_FLOAT);
  }
  for (; at < n && !bias && is_pointwise(ref(graph, CUDNN_GRAPH_OPS, at), CUDNN_ADD); at++) {
    const descriptor *b = ref(ref(graph, CUDNN_GRAPH_OPS, at), CUDNN_OP_POINTWISE_B, 0);
    bias = ints(b, CUDNN_TENSOR_STRIDES)[0] == ints(b, CUDNN_TENSOR_DIMS)[1]; /* one row of channels */
  }
  at += at < n && is_pointwise(ref(graph, CUDNN_GRAPH_OPS, at), CUDNN_RELU) &&
        !has_parameter(ref(ref(graph, CUDNN_GRAPH_OPS, at), CUDNN_OP_POINTWISE_HOW, 0));
  return same && at == n && (bias || n == 1);
}

/* Which engines take a graph, best first; how many. */
enum { MANY = 27, COMPILING = 0 };
static int engines_for(const descriptor *graph, int engine[MANY + MOCK_ENGINES]) {
  const descriptor *first = ref(graph, CUDNN_GRAPH_OPS, 0);
  int n = 0, of = 0;
  if (first->type == CUDNN_OP_MATMUL && outputs_of(graph) == 1)
    return 0;
  if (is_conv(first) && !is_common(graph)) {
    engine[0] = COMPILING;
    return 1;
  }
  if (is_conv(first) && word(input(first), CUDNN_TENSOR_TYPE) == CUDNN_FLOAT)
    for (; n < MANY; n++)
      engine[n] = 0; /* on tensor cores */
  for (; of < MOCK_ENGINES; of++)
    engine[n++] = of;
  return n;
}

/* Fills the engine configurations that were passed in. */
static int results(descriptor *h, int64_t capacity, int64_t *n, void **out) {
  int engine[MANY + MOCK_ENGINES];
  *n = engines_for(ref(h, CUDNN_HEURISTICS_GRAPH, 0), engine);
  for (int i = 0; i < *n && i < capacity; i++) {
    descriptor *config = out[i];
    if (!config || config->type != CUDNN_ENGINE_CONFIG)
      return fail(BAD, "results want engine configurations to be filled");
    config->finished = 1;
    config->engine = engine[i];
    config->value[row_of(CUDNN_ENGINE_CONFIG, CUDNN_CONFIG_ENGINE)].p[0] =
        ref(h, CUDNN_HEURISTICS_GRAPH, 0); /* kept for the plan: the graph */
  }
  return OK;
}

int cudnnBackendGetAttribute(void *where, int name, int type, int64_t capacity, int64_t *n, void *out) {
  descriptor *d = where;
  if (!d->finished)
    return fail(BAD, "attribute %d is asked of a descriptor that is not finished", name);
  if (d->type == CUDNN_HEURISTICS && name == CUDNN_HEURISTICS_RESULTS && type == CUDNN_T_DESCRIPTOR)
    return results(d, capacity, n, out);
  *n = 1;
  if (d->type == CUDNN_ENGINE_CONFIG && name == CUDNN_CONFIG_ENGINE && type == CUDNN_T_DESCRIPTOR && capacity == 1) {
    descriptor *engine = *(void **)out;
    if (!engine || engine->type != CUDNN_ENGINE)
      return fail(BAD, "an engine is asked for without one to be filled");
    engine->finished = 1;
    engine->engine = d->engine;
    return OK;
  }
  if (d->type == CUDNN_ENGINE && name == CUDNN_ENGINE_NOTES && type == CUDNN_T_NOTE) {
    *n = notes[d->engine] >= 0;
    if (*n)
      *(int32_t *)out = notes[d->engine];
    return OK;
  }
  if (d->type == CUDNN_ENGINE && name == CUDNN_ENGINE_BEHAVIOUR && type == CUDNN_T_BEHAVIOUR) {
    *n = 0;
    return OK;
  }
  if (d->type == CUDNN_PLAN && name == CUDNN_PLAN_WORKSPACE && type == CUDNN_T_INT64 && capacity == 1) {
    *(int64_t *)out = (int64_t)mock.workspace;
    return OK;
  }
  return fail(BAD, "attribute %d of a descriptor of type %d cannot be read as type %d", name, d->type, type);
}

/* ---- running ---- */

/* What a run reads and writes, apart from descriptors that may be gone when a captured graph is launched. */
typedef struct tensor {
  int rank, type, virtual;
  int64_t id, dims[8], strides[8];
  void *data; /* of virtual ones: while running; NULL and not virtual: it is `value` */
  float value;
} tensor;

enum { MAX_OPS = 24 };
typedef struct job {
  int nops, wrong;
  double *clock, us; /* what it takes */
  struct step {
    int type, mode;
    tensor in[OPERANDS], y;
    int64_t axis, dilation[3], stride[3], pad[3];
    double lower, upper, slope, alpha, beta; /* of activations */
  } op[MAX_OPS];
} job;

/* Virtual integers and truths are floats here. */
static mock_type type_of(const tensor *t) {
  return t->type == CUDNN_HALF ? MOCK_F16 : t->type == CUDNN_BFLOAT16 ? MOCK_BF16 : MOCK_F32;
}

static float load(const tensor *t, int64_t at) {
  if (!t->data)
    return t->value;
  if (t->type == CUDNN_BOOLEAN && !t->virtual)
    return ((uint8_t *)t->data)[at];
  return mock_load(type_of(t), t->data, at);
}

static void store(const tensor *t, int64_t at, float f) { mock_store(type_of(t), t->data, at, f); }

/* Offset of the element at these coordinates; axes of extent 1 are broadcast. */
static int64_t offset(const tensor *t, const int64_t *at) {
  int64_t n = 0;
  for (int i = 0; i < t->rank; i++)
    n += t->dims[i] == 1 ? 0 : at[i] * t->strides[i];
  return n;
}

/* The next coordinates in row-major order; 0 behind the last. */
static int next(const int64_t *dims, int rank, int64_t *at) {
  for (int i = rank; i-- > 0; at[i] = 0)
    if (++at[i] < dims[i])
      return 1;
  return 0;
}

static float convolve(const struct step *s, const int64_t *at) {
  const tensor *x = &s->in[0], *w = &s->in[1];
  int rank = x->rank, spatial = rank - 2;
  int64_t per_group = w->dims[0] / (x->dims[1] / w->dims[1]), tap[8] = {0}, from[8] = {at[0]};
  double total = 0;
  do {
    int inside = 1;
    int64_t in_w[8] = {at[1], tap[0]};
    from[1] = at[1] / per_group * w->dims[1] + tap[0];
    for (int i = 0; i < spatial; i++) {
      in_w[2 + i] = tap[1 + i];
      from[2 + i] = at[2 + i] * s->stride[i] - s->pad[i] + tap[1 + i] * s->dilation[i];
      inside &= from[2 + i] >= 0 && from[2 + i] < x->dims[2 + i];
    }
    if (inside)
      total += (double)load(x, offset(x, from)) * (double)load(w, offset(w, in_w));
  } while (next(w->dims + 1, rank - 1, tap));
  return (float)total;
}

/* Of the output `at`: all inputs and taps that lead there. */
static float convolve_back(const struct step *s, const int64_t *at) {
  const tensor *y = &s->in[0], *w = &s->in[1];
  int rank = y->rank, spatial = rank - 2;
  int64_t group = s->y.dims[1] / w->dims[1], depth = w->dims[0] / group, own = at[1] / w->dims[1], tap[8] = {0};
  int64_t taps[8] = {depth}, from[8] = {at[0]};
  double total = 0;
  memcpy(taps + 1, w->dims + 2, sizeof *taps * (size_t)spatial);
  do {
    int inside = 1;
    int64_t in_w[8] = {own * depth + tap[0], at[1] % w->dims[1]};
    from[1] = own * depth + tap[0];
    for (int i = 0; i < spatial; i++) {
      int64_t place = at[2 + i] + s->pad[i] - tap[1 + i] * s->dilation[i];
      in_w[2 + i] = tap[1 + i];
      from[2 + i] = place / s->stride[i];
      inside &= place >= 0 && place % s->stride[i] == 0 && from[2 + i] < y->dims[2 + i];
    }
    if (inside)
      total += (double)load(y, offset(y, from)) * (double)load(w, offset(w, in_w));
  } while (next(taps, rank - 1, tap));
  return (float)total;
}

/* Fewer matrices of the second factor serve neighbours of the first. */
static float multiply(const struct step *s, const int64_t *at) {
  const tensor *a = &s->in[0], *b = &s->in[1];
  int rank = a->rank;
  int64_t in_a[8], in_b[8];
  double total = 0;
  for (int i = 0; i < rank; i++) {
    in_a[i] = at[i];
    in_b[i] = i < rank - 2 ? at[i] / (s->y.dims[i] / b->dims[i]) : at[i];
  }
  for (int64_t k = 0; k < a->dims[rank - 1]; k++) {
    in_a[rank - 1] = in_b[rank - 2] = k;
    total += (double)load(a, offset(a, in_a)) * (double)load(b, offset(b, in_b));
  }
  return (float)total;
}

/* Along all axes of which the output has one element. */
static float reduce(const struct step *s, const int64_t *at) {
  const tensor *x = &s->in[0];
  int64_t dims[8], turn[8] = {0}, from[8];
  double total = s->mode == CUDNN_REDUCE_MAX ? -INFINITY : 0;
  for (int i = 0; i < x->rank; i++)
    dims[i] = s->y.dims[i] == 1 ? x->dims[i] : 1;
  do {
    for (int i = 0; i < x->rank; i++)
      from[i] = at[i] + turn[i];
    double v = (double)load(x, offset(x, from));
    total = s->mode == CUDNN_REDUCE_MAX ? fmax(total, v) : total + v;
  } while (next(dims, x->rank, turn));
  return (float)total;
}

static double relu(const struct step *s, double x) {
  return x < s->lower ? s->lower + s->slope * (x - s->lower) : x > s->upper ? s->upper : x;
}

static float pointwise(const struct step *s, const int64_t *at) {
  float v[OPERANDS] = {0};
  for (int i = 0; i < operands(s->mode) && s->mode != CUDNN_GEN_INDEX; i++)
    v[i] = load(&s->in[i], offset(&s->in[i], at));
  switch (s->mode) {
  case CUDNN_ADD:
    return v[0] + v[1];
  case CUDNN_SUB:
    return v[0] - v[1];
  case CUDNN_MUL:
    return v[0] * v[1];
  case CUDNN_DIV:
    return v[0] / v[1];
  case CUDNN_EXP:
    return expf(v[0]);
  case CUDNN_LOG:
    return logf(v[0]);
  case CUDNN_RELU:
    return (float)relu(s, (double)v[0]);
  case CUDNN_TANH:
    return tanhf(v[0]);
  case CUDNN_SIGMOID:
    return (float)(1 / (1 + exp(-(double)v[0])));
  case CUDNN_ELU:
    return (float)(v[0] > 0 ? (double)v[0] : s->alpha * expm1((double)v[0]));
  case CUDNN_GELU:
    return (float)((double)v[0] / 2 * (1 + erf((double)v[0] * 0.7071067811865476)));
  case CUDNN_SWISH:
    return (float)((double)v[0] / (1 + exp(-s->beta * (double)v[0])));
  case CUDNN_GELU_TANH:
    return v[0] / 2 * (1 + tanhf(0.7978845608f * (v[0] + 0.044715f * v[0] * v[0] * v[0])));
  case CUDNN_GE:
    return v[0] >= v[1];
  case CUDNN_GEN_INDEX:
    return (float)at[s->axis];
  default: /* CUDNN_SELECT */
    return v[2] != 0 ? v[0] : v[1];
  }
}

static void run_step(const struct step *s, float by) {
  int64_t at[8] = {0};
  do {
    float v = s->type == CUDNN_OP_CONVOLUTION        ? convolve(s, at)
              : s->type == CUDNN_OP_CONVOLUTION_BACK ? convolve_back(s, at)
              : s->type == CUDNN_OP_MATMUL           ? multiply(s, at)
              : s->type == CUDNN_OP_REDUCTION        ? reduce(s, at)
                                                     : pointwise(s, at);
    store(&s->y, offset(&s->y, at), v * by);
  } while (next(s->y.dims, s->y.rank, at));
}

/* Virtual tensors are dense. */
static void *get_memory(const tensor *t) {
  size_t n = 4;
  for (int i = 0; i < t->rank; i++)
    n *= (size_t)t->dims[i];
  return calloc(1, n);
}

static int run_job(const void *data) {
  job j = *(const job *)data;
  *j.clock += j.us;
  for (int i = 0; i < j.nops; i++) {
    struct step *s = &j.op[i];
    for (int k = 0; k < OPERANDS; k++)
      for (int before = 0; before < i && s->in[k].virtual; before++)
        if (j.op[before].y.id == s->in[k].id)
          s->in[k].data = j.op[before].y.data;
    if (s->y.virtual)
      s->y.data = get_memory(&s->y);
    run_step(s, j.wrong && i == j.nops - 1 ? 1.5f : 1);
  }
  for (int i = 0; i < j.nops; i++)
    if (j.op[i].y.virtual)
      free(j.op[i].y.data);
  return 0;
}

static int fill_tensor(const descriptor *d, const descriptor *pack, tensor *t) {
  *t = (tensor){.rank = count(d, CUDNN_TENSOR_DIMS),
                .type = word(d, CUDNN_TENSOR_TYPE),
                .virtual = is_virtual(d),
                .id = ints(d, CUDNN_TENSOR_ID)[0]};
  memcpy(t->dims, ints(d, CUDNN_TENSOR_DIMS), sizeof *t->dims * (size_t)t->rank);
  memcpy(t->strides, ints(d, CUDNN_TENSOR_STRIDES), sizeof *t->strides * (size_t)t->rank);
  for (int i = 0; i < count(pack, CUDNN_PACK_IDS) && !t->virtual; i++)
    if (ints(pack, CUDNN_PACK_IDS)[i] == t->id)
      t->data = pack->value[row_of(CUDNN_VARIANT_PACK, CUDNN_PACK_POINTERS)].p[i];
  if (!t->virtual && (!t->data || (uintptr_t)t->data % (size_t)ints(d, CUDNN_TENSOR_ALIGNMENT)[0]))
    return fail(BAD, "tensor %lld has no pointer, or one that is not aligned", (long long)t->id);
  if (has(d, CUDNN_TENSOR_BY_VALUE)) {
    t->value = t->type == CUDNN_INT32 ? (float)*(int32_t *)t->data : *(float *)t->data;
    t->data = NULL;
  }
  return OK;
}

static void fill_convolution(const descriptor *c, struct step *s) {
  for (int i = 0; i < ints(c, CUDNN_CONV_RANK)[0]; i++) {
    s->dilation[i] = ints(c, CUDNN_CONV_DILATIONS)[i];
    s->stride[i] = ints(c, CUDNN_CONV_STRIDES)[i];
    s->pad[i] = ints(c, CUDNN_CONV_PRE_PADS)[i];
  }
}

static double parameter(const descriptor *pointwise, int name, double otherwise) {
  return count(pointwise, name) ? pointwise->value[row_of(CUDNN_POINTWISE, name)].d[0] : otherwise;
}

static void fill_pointwise(const descriptor *how, struct step *s) {
  s->mode = word(how, CUDNN_POINTWISE_MODE);
  s->axis = ints(how, CUDNN_POINTWISE_AXIS)[0];
  s->lower = parameter(how, CUDNN_POINTWISE_RELU_LOWER, 0);
  s->upper = parameter(how, CUDNN_POINTWISE_RELU_UPPER, INFINITY);
  s->slope = parameter(how, CUDNN_POINTWISE_RELU_SLOPE, 0);
  s->alpha = parameter(how, CUDNN_POINTWISE_ELU_ALPHA, 1);
  s->beta = parameter(how, CUDNN_POINTWISE_SWISH_BETA, 1);
}

static int fill_step(const descriptor *op, const descriptor *pack, struct step *s) {
  const descriptor *t[OPERANDS + 1];
  int code = OK;
  s->type = op->type;
  if (op->type == CUDNN_OP_CONVOLUTION)
    fill_convolution(ref(op, CUDNN_OP_CONV_CONV, 0), s);
  if (op->type == CUDNN_OP_CONVOLUTION_BACK)
    fill_convolution(ref(op, CUDNN_OP_BACK_CONV, 0), s);
  if (op->type == CUDNN_OP_REDUCTION)
    s->mode = word(ref(op, CUDNN_OP_REDUCTION_HOW, 0), CUDNN_REDUCTION_OPERATOR);
  if (op->type == CUDNN_OP_POINTWISE)
    fill_pointwise(ref(op, CUDNN_OP_POINTWISE_HOW, 0), s);
  tensors_of(op, t);
  for (int i = 0; i <= OPERANDS && !code; i++)
    if (t[i])
      code = fill_tensor(t[i], pack, i < OPERANDS ? &s->in[i] : &s->y);
  return code;
}

int cudnnBackendExecute(void *where, void *plan_at, void *pack_at) {
  descriptor *plan = plan_at, *pack = pack_at, *graph;
  job j = {.nops = 0};
  if (!plan->finished || plan->type != CUDNN_PLAN || !pack->finished || pack->type != CUDNN_VARIANT_PACK)
    return fail(BAD, "a plan and a pack, both finished, are expected");
  if (mock.execute_code)
    return fail(mock.execute_code, "the test wants it");
  if (mock.workspace && !pack->value[row_of(CUDNN_VARIANT_PACK, CUDNN_PACK_WORKSPACE)].p[0])
    return fail(BAD, "there is no workspace");
  graph = ref(ref(plan, CUDNN_PLAN_CONFIG, 0), CUDNN_CONFIG_ENGINE, 0);
  j.wrong = plan->engine == mock.wrong;
  j.nops = count(graph, CUDNN_GRAPH_OPS);
  for (int i = 0; i < j.nops; i++)
    if (i == MAX_OPS || fill_step(ref(graph, CUDNN_GRAPH_OPS, i), pack, &j.op[i]))
      return BAD;
  mock.ran[plan->engine]++;
  int captured = mock_is_captured(((handle *)where)->stream);
  if (captured && mock.not_recorded == plan->engine + 1)
    return 5000;
  *(captured ? &(double){0} : mock_clock()) += mock.host_us;
  j.clock = mock_clock();
  j.us = mock.engine_us[plan->engine];
  return mock_give(((handle *)where)->stream, run_job, &j, sizeof j) ? 5000 : OK;
}
