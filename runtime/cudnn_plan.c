/* cudnn_plan.c - a convolution with bias, residual and ReLU as one plan of cuDNN's backend interface.
 *
 * In: a cyrt_cuda_conv. Out: an operation graph (convolution, additions, ReLU; what lies between them is virtual, in
 * f32), the engine configurations that cuDNN proposes for it, an execution plan of one of them. Numbers of types and
 * attributes are those of cudnn_graph.h of cuDNN 9, of which only these are used.
 */
#include "cyrt_cudnn.h"

#include <string.h>

enum { /* cudnnBackendDescriptorType_t */
       POINTWISE = 0,
       CONVOLUTION = 1,
       ENGINE = 2,
       ENGINE_CONFIG = 3,
       HEURISTICS = 4,
       PLAN = 5,
       OP_CONVOLUTION = 10,
       OP_POINTWISE = 13,
       GRAPH = 15,
       VARIANT_PACK = 16,
       TENSOR = 17
};
enum { /* cudnnBackendAttributeType_t */
       T_HANDLE = 0,
       T_DATA_TYPE = 1,
       T_BOOLEAN = 2,
       T_INT64 = 3,
       T_FLOAT = 4,
       T_POINTER = 6,
       T_CONVOLUTION_MODE = 7,
       T_HEURISTICS_MODE = 8,
       T_NOTE = 11,
       T_POINTWISE_MODE = 14,
       T_DESCRIPTOR = 15
};
enum { /* cudnnBackendAttributeName_t */
       POINTWISE_MODE = 0,
       POINTWISE_PRECISION = 1,
       CONV_PRECISION = 100,
       CONV_MODE = 101,
       CONV_DILATIONS = 102,
       CONV_STRIDES = 103,
       CONV_POST_PADS = 104,
       CONV_PRE_PADS = 105,
       CONV_RANK = 106,
       HEURISTICS_MODE = 200,
       HEURISTICS_GRAPH = 201,
       HEURISTICS_RESULTS = 202,
       CONFIG_ENGINE = 300,
       PLAN_HANDLE = 400,
       PLAN_CONFIG = 401,
       PLAN_WORKSPACE = 402,
       OP_CONV_ALPHA = 700,
       OP_CONV_BETA = 701,
       OP_CONV_CONV = 702,
       OP_CONV_W = 703,
       OP_CONV_X = 704,
       OP_CONV_Y = 705,
       OP_POINTWISE_HOW = 750,
       OP_POINTWISE_X = 751,
       OP_POINTWISE_B = 752,
       OP_POINTWISE_Y = 753,
       GRAPH_HANDLE = 800,
       GRAPH_OPS = 801,
       PACK_IDS = 1000,
       PACK_POINTERS = 1001,
       PACK_WORKSPACE = 1003,
       TENSOR_ALIGNMENT = 900,
       TENSOR_TYPE = 901,
       TENSOR_DIMS = 902,
       TENSOR_STRIDES = 903,
       TENSOR_ID = 906,
       TENSOR_VIRTUAL = 907,
       ENGINE_NOTES = 1303
};
enum { CROSS_CORRELATION = 1, MODE_A = 3, ADD = 0, RELU = 100, TYPE_FLOAT = 0 };
enum { NOTE_TENSOR_CORE = 0, NOTE_DOWN_CONVERT = 1, NOTE_REDUCED = 2, NOTE_NONDETERMINISTIC = 4, NOTES = 32 };
enum { ALIGNMENT = 16, MAX_SPATIAL = 3, MAX_DIMS = MAX_SPATIAL + 2 };
enum { FIRST_ID = 1, FIRST_VIRTUAL = 100 }; /* tensor i has id FIRST_ID + i */

static const struct {
  int32_t dtype, cudnn, bytes;
} types[] = {{CYTO_F32, TYPE_FLOAT, 4}, {CYTO_F16, 2, 2}, {CYTO_BF16, 9, 2}};

static int type_row(int64_t dtype) {
  for (int i = 0; i < (int)(sizeof types / sizeof *types); i++)
    if (types[i].dtype == dtype)
      return i;
  return -1;
}

int64_t cyrt_cudnn_element(int64_t dtype) { return type_row(dtype) < 0 ? 0 : types[type_row(dtype)].bytes; }

/* Zeros behind an axis; negative: some of the input is not read. */
static int64_t pad_behind(const cyrt_cuda_conv *c, int i) {
  return (c->out[i] - 1) * c->stride[i] + (c->kernel[i] - 1) * c->dilation[i] + 1 - c->in[i] - c->pad[i];
}

int cyrt_cudnn_takes(const cyrt_cuda_conv *c) {
  if (c->nspatial < 2 || c->nspatial > MAX_SPATIAL || c->images < 1 || c->channels_in < 1 || c->channels_out < 1)
    return 0;
  for (int i = 0; i < c->nspatial; i++) {
    /* cuDNN computes the extent of the output from the padding, which cannot be negative */
    if (c->in[i] < 1 || c->out[i] < 1 || c->pad[i] < 0 || pad_behind(c, i) <= -c->stride[i])
      return 0;
  }
  for (int i = 0; i < CYRT_CONV_TENSORS; i++)
    if (c->tensor[i].slot >= 0 && type_row(c->tensor[i].dtype) < 0)
      return 0;
  return 1;
}

/* ---- making descriptors ---- */

typedef struct maker {
  const cudnn *lib;
  cudnn_graph *graph;
  cudnn_code code;  /* the first that is not 0 */
  const char *call; /* that returned it */
  int64_t next_id;
} maker;

static void note(maker *m, cudnn_code code, const char *call) {
  if (code && !m->code) {
    m->code = code;
    m->call = call;
  }
}

static cudnn_descriptor make(maker *m, int32_t type) {
  cudnn_descriptor d = NULL;
  if (m->code)
    return NULL;
  note(m, m->lib->make(type, &d), "cudnnBackendCreateDescriptor");
  if (!m->code)
    m->graph->made[m->graph->n++] = d;
  return d;
}

static void set(maker *m, cudnn_descriptor d, int32_t attribute, int32_t type, int64_t count, const void *values) {
  if (!m->code)
    note(m, m->lib->set(d, attribute, type, count, values), "cudnnBackendSetAttribute");
}

static void set_int(maker *m, cudnn_descriptor d, int32_t attribute, int32_t type, int32_t value) {
  set(m, d, attribute, type, 1, &value);
}

static void set_descriptor(maker *m, cudnn_descriptor d, int32_t attribute, cudnn_descriptor value) {
  set(m, d, attribute, T_DESCRIPTOR, 1, &value);
}

static cudnn_descriptor finish(maker *m, cudnn_descriptor d, const char *what) {
  if (!m->code)
    note(m, m->lib->finish(d), what);
  return d;
}

/* ---- tensors ---- */

static cudnn_descriptor tensor(maker *m, int64_t rank, const int64_t *dims, const int64_t *strides, int32_t type,
                               int64_t id) {
  int64_t alignment = ALIGNMENT;
  uint8_t is_virtual = id >= FIRST_VIRTUAL; /* a C++ bool */
  cudnn_descriptor d = make(m, TENSOR);
  set_int(m, d, TENSOR_TYPE, T_DATA_TYPE, type);
  set(m, d, TENSOR_DIMS, T_INT64, rank, dims);
  set(m, d, TENSOR_STRIDES, T_INT64, rank, strides);
  set(m, d, TENSOR_ID, T_INT64, 1, &id);
  set(m, d, TENSOR_ALIGNMENT, T_INT64, 1, &alignment);
  set(m, d, TENSOR_VIRTUAL, T_BOOLEAN, 1, &is_virtual);
  return finish(m, d, "a tensor's cudnnBackendFinalize");
}

/* Strides of a dense tensor whose channels are neighbours: dims are n, c, spatial.. */
static void dense(int64_t rank, const int64_t *dims, int64_t *strides) {
  int64_t step = dims[1];
  strides[1] = 1;
  for (int64_t i = rank - 1; i >= 2; i--) {
    strides[i] = step;
    step *= dims[i];
  }
  strides[0] = step;
}

static cudnn_descriptor image_tensor(maker *m, const cyrt_cuda_conv *c, int which) {
  const cyrt_cuda_tensor *t = &c->tensor[which];
  int input = which == CYRT_CONV_X;
  int64_t dims[MAX_DIMS] = {c->images, input ? c->channels_in : c->channels_out}, strides[MAX_DIMS] = {t->image, 1};
  for (int i = 0; i < c->nspatial; i++) {
    dims[2 + i] = input ? c->in[i] : c->out[i];
    strides[2 + i] = t->spatial[i];
  }
  return tensor(m, 2 + c->nspatial, dims, strides, types[type_row(t->dtype)].cudnn, FIRST_ID + which);
}

static cudnn_descriptor small_tensor(maker *m, const cyrt_cuda_conv *c, int which) {
  int64_t dims[MAX_DIMS] = {1, c->channels_out, 1, 1, 1}, strides[MAX_DIMS];
  if (which == CYRT_CONV_W) {
    dims[0] = c->channels_out;
    dims[1] = c->channels_in / c->group;
    memcpy(dims + 2, c->kernel, sizeof c->kernel);
  }
  dense(2 + c->nspatial, dims, strides);
  return tensor(m, 2 + c->nspatial, dims, strides, types[type_row(c->tensor[which].dtype)].cudnn, FIRST_ID + which);
}

static cudnn_descriptor virtual_tensor(maker *m, const cyrt_cuda_conv *c) {
  int64_t dims[MAX_DIMS] = {c->images, c->channels_out}, strides[MAX_DIMS];
  memcpy(dims + 2, c->out, sizeof c->out);
  dense(2 + c->nspatial, dims, strides);
  return tensor(m, 2 + c->nspatial, dims, strides, TYPE_FLOAT, FIRST_VIRTUAL + m->next_id++);
}

/* ---- operations ---- */

static cudnn_descriptor convolution(maker *m, const cyrt_cuda_conv *c, cudnn_descriptor y) {
  const float one = 1, zero = 0;
  int64_t behind[MAX_SPATIAL];
  for (int i = 0; i < c->nspatial; i++)
    behind[i] = pad_behind(c, i) < 0 ? 0 : pad_behind(c, i);
  cudnn_descriptor x = image_tensor(m, c, CYRT_CONV_X), w = small_tensor(m, c, CYRT_CONV_W), d = make(m, CONVOLUTION);
  set_int(m, d, CONV_PRECISION, T_DATA_TYPE, TYPE_FLOAT);
  set_int(m, d, CONV_MODE, T_CONVOLUTION_MODE, CROSS_CORRELATION);
  set(m, d, CONV_RANK, T_INT64, 1, &c->nspatial);
  set(m, d, CONV_DILATIONS, T_INT64, c->nspatial, c->dilation);
  set(m, d, CONV_STRIDES, T_INT64, c->nspatial, c->stride);
  set(m, d, CONV_PRE_PADS, T_INT64, c->nspatial, c->pad);
  set(m, d, CONV_POST_PADS, T_INT64, c->nspatial, behind);
  finish(m, d, "a convolution's cudnnBackendFinalize");
  cudnn_descriptor op = make(m, OP_CONVOLUTION);
  set_descriptor(m, op, OP_CONV_CONV, d);
  set_descriptor(m, op, OP_CONV_X, x);
  set_descriptor(m, op, OP_CONV_W, w);
  set_descriptor(m, op, OP_CONV_Y, y);
  set(m, op, OP_CONV_ALPHA, T_FLOAT, 1, &one);
  set(m, op, OP_CONV_BETA, T_FLOAT, 1, &zero);
  return finish(m, op, "a convolution's cudnnBackendFinalize (operation)");
}

/* y = x + b, or relu(x) when b is NULL */
static cudnn_descriptor pointwise(maker *m, cudnn_descriptor x, cudnn_descriptor b, cudnn_descriptor y) {
  cudnn_descriptor how = make(m, POINTWISE);
  set_int(m, how, POINTWISE_MODE, T_POINTWISE_MODE, b ? ADD : RELU);
  set_int(m, how, POINTWISE_PRECISION, T_DATA_TYPE, TYPE_FLOAT);
  finish(m, how, "a pointwise cudnnBackendFinalize");
  cudnn_descriptor op = make(m, OP_POINTWISE);
  set_descriptor(m, op, OP_POINTWISE_HOW, how);
  set_descriptor(m, op, OP_POINTWISE_X, x);
  if (b)
    set_descriptor(m, op, OP_POINTWISE_B, b);
  set_descriptor(m, op, OP_POINTWISE_Y, y);
  return finish(m, op, "a pointwise cudnnBackendFinalize (operation)");
}

cudnn_code cyrt_cudnn_graph_init(const cudnn *lib, void *handle, const cyrt_cuda_conv *c, cudnn_graph *graph,
                                 const char **out_call) {
  *graph = (cudnn_graph){.n = 0};
  maker m = {.lib = lib, .graph = graph};
  int bias = c->tensor[CYRT_CONV_BIAS].slot >= 0, residual = c->tensor[CYRT_CONV_RESIDUAL].slot >= 0;
  int left = bias + residual + ((c->flags & CYRT_CONV_RELU) != 0); /* operations to come */
  cudnn_descriptor ops[4], last = image_tensor(&m, c, CYRT_CONV_Y), x = left ? virtual_tensor(&m, c) : last;
  int n = 0;
  ops[n++] = convolution(&m, c, x);
  for (int which = CYRT_CONV_BIAS; which <= CYRT_CONV_RESIDUAL; which++) {
    if (c->tensor[which].slot < 0)
      continue;
    cudnn_descriptor b = which == CYRT_CONV_BIAS ? small_tensor(&m, c, which) : image_tensor(&m, c, which);
    cudnn_descriptor y = --left ? virtual_tensor(&m, c) : last;
    ops[n++] = pointwise(&m, x, b, y);
    x = y;
  }
  if (left)
    ops[n++] = pointwise(&m, x, NULL, last);
  cudnn_descriptor d = make(&m, GRAPH);
  if (handle)
    set(&m, d, GRAPH_HANDLE, T_HANDLE, 1, &handle);
  set(&m, d, GRAPH_OPS, T_DESCRIPTOR, n, ops);
  graph->graph = finish(&m, d, "a graph's cudnnBackendFinalize");
  *out_call = m.call;
  return m.code;
}

/* ---- engines ---- */

static int is_precise(const cudnn *lib, cudnn_descriptor config, int64_t flags) {
  int32_t notes[NOTES];
  int64_t n = 0;
  cudnn_descriptor engine = NULL;
  int ok = !lib->make(ENGINE, &engine) && !lib->get(config, CONFIG_ENGINE, T_DESCRIPTOR, 1, &n, &engine) &&
           !lib->get(engine, ENGINE_NOTES, T_NOTE, NOTES, &n, notes);
  for (int64_t i = 0; ok && i < n; i++) {
    int rounds = notes[i] == NOTE_TENSOR_CORE || notes[i] == NOTE_DOWN_CONVERT;
    ok = notes[i] != NOTE_REDUCED && notes[i] != NOTE_NONDETERMINISTIC && !(rounds && (flags & CYRT_CONV_EXACT));
  }
  if (engine)
    lib->free(engine);
  return ok;
}

cudnn_code cyrt_cudnn_graph_candidates(const cudnn *lib, const cyrt_cuda_conv *conv, cudnn_graph *graph,
                                       const char **out_call) {
  maker m = {.lib = lib, .graph = graph};
  cudnn_descriptor h = make(&m, HEURISTICS), found[CUDNN_CANDIDATES];
  int64_t n = 0;
  set_descriptor(&m, h, HEURISTICS_GRAPH, graph->graph);
  set_int(&m, h, HEURISTICS_MODE, T_HEURISTICS_MODE, MODE_A);
  finish(&m, h, "the heuristics' cudnnBackendFinalize");
  int made = 0;
  for (; made < CUDNN_CANDIDATES && !m.code; made++) {
    found[made] = NULL;
    note(&m, lib->make(ENGINE_CONFIG, &found[made]), "cudnnBackendCreateDescriptor");
  }
  if (!m.code)
    note(&m, lib->get(h, HEURISTICS_RESULTS, T_DESCRIPTOR, CUDNN_CANDIDATES, &n, found), "cudnnBackendGetAttribute");
  for (int i = 0; i < made; i++) {
    if (!m.code && i < n && is_precise(lib, found[i], conv->flags))
      graph->candidate[graph->n_candidates++] = found[i];
    else if (found[i])
      lib->free(found[i]);
  }
  *out_call = m.call;
  return m.code;
}

void cyrt_cudnn_graph_deinit(const cudnn *lib, cudnn_graph *graph) {
  for (int i = 0; i < graph->n_candidates; i++)
    lib->free(graph->candidate[i]);
  graph->n_candidates = 0;
  while (graph->n)
    lib->free(graph->made[--graph->n]);
}

/* ---- plans ---- */

cudnn_code cyrt_cudnn_plan_init(const cudnn *lib, void *handle, const cudnn_graph *graph, int32_t candidate,
                                cudnn_plan *plan) {
  int64_t n = 0;
  *plan = (cudnn_plan){.plan = NULL};
  cudnn_code code = lib->make(PLAN, &plan->plan);
  if (!code)
    code = lib->set(plan->plan, PLAN_HANDLE, T_HANDLE, 1, &handle);
  if (!code)
    code = lib->set(plan->plan, PLAN_CONFIG, T_DESCRIPTOR, 1, &graph->candidate[candidate]);
  if (!code)
    code = lib->finish(plan->plan);
  if (!code)
    code = lib->get(plan->plan, PLAN_WORKSPACE, T_INT64, 1, &n, &plan->workspace);
  if (code && plan->plan) {
    lib->free(plan->plan);
    plan->plan = NULL;
  }
  return code;
}

cudnn_code cyrt_cudnn_plan_run(const cudnn *lib, void *handle, const cudnn_plan *plan, const cyrt_cuda_conv *conv,
                               void *const pointers[CYRT_CONV_TENSORS], void *workspace) {
  int64_t ids[CYRT_CONV_TENSORS], n = 0;
  void *used[CYRT_CONV_TENSORS];
  cudnn_descriptor pack = NULL;
  for (int i = 0; i < CYRT_CONV_TENSORS; i++)
    if (conv->tensor[i].slot >= 0) {
      ids[n] = FIRST_ID + i;
      used[n++] = pointers[i];
    }
  cudnn_code code = lib->make(VARIANT_PACK, &pack);
  if (!code)
    code = lib->set(pack, PACK_IDS, T_INT64, n, ids);
  if (!code)
    code = lib->set(pack, PACK_POINTERS, T_POINTER, n, used);
  if (!code)
    code = lib->set(pack, PACK_WORKSPACE, T_POINTER, 1, &workspace);
  if (!code)
    code = lib->finish(pack);
  if (!code)
    code = lib->execute(handle, plan->plan, pack);
  if (pack)
    lib->free(pack);
  return code;
}
