/* qdq.c - writes the QDQ form of a float model: ONNX in, ONNX out, with protobuf-c.
 *
 * In:  a model of operator set 11 or newer, samples. Out: a model of operator set 13 or newer in which the inputs of
 * Conv, Gemm and MatMul with constant weights, and of the pooling, concatenation, addition, resampling and views
 * between them, are followed by QuantizeLinear and DequantizeLinear (u8, a scale and zero point per tensor); weights
 * are s8 with a scale per output channel, biases i32 with the scale of their products, both behind DequantizeLinear.
 *
 * Method: list the tensors; run the model with them as further outputs (cytoc_quantise.c) for their ranges; insert
 * nodes. The rest of the file stays as it was: names, other operators, metadata. Operators whose axes became inputs
 * with operator set 13 are rewritten. Memory is an arena's: messages are never freed one by one.
 */
#define _GNU_SOURCE
#include "qdq.h"

#include "codegen/temps.h"

#include "onnx.pb-c.h"

#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { OLDEST = 11, WANTED = 13 };

typedef struct tensor_info {
  const char *name; /* ONNX's */
  float scale;
  int zero;
} tensor_info;

typedef struct writer {
  const qdq_job *job;
  cy_diag_sink *diag;
  cy_arena *arena;
  Onnx__ModelProto *model;
  Onnx__GraphProto *graph;
  tensor_info *tensors; /* to be quantised */
  uint32_t ntensors;
  cy_quant quant;
  Onnx__NodeProto **nodes; /* what is written */
  size_t nnodes;
  uint8_t *observed; /* the model with tensors as outputs */
  size_t observed_size;
  int64_t opset;
} writer;

static int fail(const writer *w, const char *node, const char *op, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static int fail(const writer *w, const char *node, const char *op, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  cy_location where = {.file = w->job->input, .node = node, .op = op, .node_index = -1};
  cy_diag_add(w->diag, CY_ERROR, &where, "%s", text);
  return -1;
}

/* ---- reading the model ------------------------------------------------------------------------------------------ */

static void *arena_alloc(void *arena, size_t size) { return cy_arena_alloc(arena, size ? size : 1); }
static void arena_free(void *arena, void *p) { (void)arena, (void)p; }

static int read_model(writer *w) {
  char error[TENSOR_ERROR_SIZE];
  uint8_t *bytes;
  size_t size;
  ProtobufCAllocator allocator = {arena_alloc, arena_free, w->arena};
  if (file_read(w->job->input, &bytes, &size, error))
    return fail(w, NULL, NULL, "cannot read the file: %s", error);
  w->model = onnx__model_proto__unpack(&allocator, size, bytes);
  free(bytes);
  if (!w->model || !w->model->graph)
    return fail(w, NULL, NULL, "not an ONNX model: it does not parse");
  w->graph = w->model->graph;
  for (size_t i = 0; i < w->model->n_opset_import; i++) {
    const Onnx__OperatorSetIdProto *o = w->model->opset_import[i];
    if (!o->domain || !*o->domain || !strcmp(o->domain, "ai.onnx"))
      w->opset = o->version;
  }
  if (w->opset < OLDEST)
    return fail(w, NULL, NULL,
                "operator set %lld: expected %d or newer; convert the model by onnx.version_converter first",
                (long long)w->opset, OLDEST);
  for (size_t i = 0; i < w->graph->n_initializer; i++)
    if (w->graph->initializer[i]->has_data_location && w->graph->initializer[i]->data_location)
      return fail(w, NULL, NULL, "initializer '%s' lies in another file: expected a model in one file",
                  w->graph->initializer[i]->name);
  return 0;
}

static Onnx__TensorProto *initializer(const writer *w, const char *name) {
  for (size_t i = 0; name && *name && i < w->graph->n_initializer; i++)
    if (w->graph->initializer[i]->name && !strcmp(w->graph->initializer[i]->name, name))
      return w->graph->initializer[i];
  return NULL;
}

/* An initializer's f32 elements; NULL when it is something else. */
static const float *floats(const writer *w, const Onnx__TensorProto *t, uint64_t *out_n) {
  uint64_t n = 1;
  if (!t || t->data_type != ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT)
    return NULL;
  for (size_t i = 0; i < t->n_dims; i++)
    n *= (uint64_t)t->dims[i];
  *out_n = n;
  if (t->has_raw_data && t->raw_data.len == n * sizeof(float))
    return cy_arena_copy(w->arena, t->raw_data.data, t->raw_data.len);
  return t->n_float_data == n ? t->float_data : NULL;
}

static Onnx__NodeProto *producer(const writer *w, const char *name) {
  for (size_t i = 0; i < w->graph->n_node; i++)
    for (size_t k = 0; k < w->graph->node[i]->n_output; k++)
      if (!strcmp(w->graph->node[i]->output[k], name))
        return w->graph->node[i];
  return NULL;
}

static const Onnx__AttributeProto *attribute(const Onnx__NodeProto *n, const char *name) {
  for (size_t i = 0; i < n->n_attribute; i++)
    if (n->attribute[i]->name && !strcmp(n->attribute[i]->name, name))
      return n->attribute[i];
  return NULL;
}

static int64_t int_attribute(const Onnx__NodeProto *n, const char *name, int64_t otherwise) {
  const Onnx__AttributeProto *a = attribute(n, name);
  return a ? a->i : otherwise;
}

static bool is_one_of(const char *op, const char *list) {
  const char *at = strstr(list, op);
  size_t n = strlen(op);
  return at && (at == list || at[-1] == ' ') && (at[n] == ' ' || !at[n]);
}

static bool skipped(const writer *w, const Onnx__NodeProto *n) {
  char pattern[512];
  for (const char *p = w->job->skip; p && *p;) {
    size_t len = strcspn(p, ",");
    snprintf(pattern, sizeof pattern, "%.*s", (int)len, p);
    if ((n->name && !fnmatch(pattern, n->name, 0)) || !fnmatch(pattern, n->op_type, 0))
      return true;
    p += len + (p[len] == ',');
  }
  return false;
}

/* A contraction with constant weights in f32. */
static bool is_layer(const writer *w, const Onnx__NodeProto *n) {
  uint64_t count;
  return is_one_of(n->op_type, "Conv Gemm MatMul") && (!n->domain || !*n->domain) && n->n_input >= 2 &&
         !initializer(w, n->input[0]) && floats(w, initializer(w, n->input[1]), &count) && count &&
         initializer(w, n->input[1])->n_dims >= 2 && !int_attribute(n, "transA", 0) && !skipped(w, n);
}

/* ---- which tensors ---------------------------------------------------------------------------------------------- */

static tensor_info *tensor_of(const writer *w, const char *name) {
  for (uint32_t t = 0; t < w->ntensors; t++)
    if (!strcmp(w->tensors[t].name, name))
      return &w->tensors[t];
  return NULL;
}

/* Adds a tensor, and what the operators in front of it read as long as they can work on integers. */
static void add_tensor(writer *w, const char *name, uint32_t room) {
  uint32_t at = w->ntensors;
  if (!*name || tensor_of(w, name) || initializer(w, name) || w->ntensors == room)
    return;
  w->tensors[w->ntensors++] = (tensor_info){.name = name};
  for (; at < w->ntensors; at++) {
    const Onnx__NodeProto *n = producer(w, w->tensors[at].name);
    bool all = n && is_one_of(n->op_type, "Add Concat");
    if (!n || (!all && !is_one_of(n->op_type, "MaxPool AveragePool GlobalAveragePool Resize Reshape Transpose Flatten "
                                              "Squeeze Unsqueeze")))
      continue;
    for (size_t k = 0; k < (all ? n->n_input : 1); k++)
      if (*n->input[k] && !tensor_of(w, n->input[k]) && !initializer(w, n->input[k]) && w->ntensors < room)
        w->tensors[w->ntensors++] = (tensor_info){.name = n->input[k]};
  }
}

static int list_tensors(writer *w) {
  uint32_t room = (uint32_t)w->graph->n_input, layers = 0;
  for (size_t i = 0; i < w->graph->n_node; i++)
    room += (uint32_t)w->graph->node[i]->n_output;
  w->tensors = CY_NEW_ARRAY(w->arena, tensor_info, room + 1);
  for (size_t i = 0; i < w->graph->n_node; i++)
    if (is_layer(w, w->graph->node[i])) {
      add_tensor(w, w->graph->node[i]->input[0], room);
      layers++;
    }
  return layers ? 0
                : fail(w, NULL, NULL,
                       "nothing to quantise: the model has no Conv, Gemm or MatMul in f32 with weights in an "
                       "initializer");
}

/* ---- ranges ----------------------------------------------------------------------------------------------------- */

static void grow(void ***list, size_t *n, const cy_arena *arena, void *item) {
  void **grown = CY_NEW_ARRAY((cy_arena *)arena, void *, *n + 1);
  if (*n)
    memcpy(grown, *list, *n * sizeof *grown);
  grown[(*n)++] = item;
  *list = grown;
}

static void pack_observed(writer *w) {
  Onnx__GraphProto *g = w->graph;
  size_t before = g->n_output;
  Onnx__ValueInfoProto **outputs = g->output;
  w->quant.tensor = CY_NEW_ARRAY(w->arena, cy_quant_tensor, w->ntensors + 1);
  for (uint32_t t = 0; t < w->ntensors; t++) {
    Onnx__ValueInfoProto *v = CY_NEW(w->arena, Onnx__ValueInfoProto);
    size_t at = 0;
    onnx__value_info_proto__init(v);
    v->name = (char *)w->tensors[t].name;
    while (at < g->n_output && strcmp(g->output[at]->name, v->name))
      at++;
    if (at == g->n_output)
      grow((void ***)&g->output, &g->n_output, w->arena, v);
    w->quant.tensor[t] = (cy_quant_tensor){.name = v->name, .output = (uint32_t)at, .axis = -1, .channels = 1};
  }
  w->quant.ntensors = w->ntensors;
  w->observed_size = onnx__model_proto__get_packed_size(w->model);
  w->observed = cy_arena_alloc(w->arena, w->observed_size + 1);
  onnx__model_proto__pack(w->model, w->observed);
  g->output = outputs;
  g->n_output = before;
}

static cy_graph *read_observed(void *ctx) {
  writer *w = ctx;
  return cy_import_memory(w->observed, w->observed_size, w->job->input, &w->job->import, w->diag);
}

static int find_ranges(writer *w) {
  cytoc_quantise how = w->job->calibrate;
  how.read = read_observed;
  how.ctx = w;
  pack_observed(w);
  if (cytoc_observe(&how, &w->quant))
    return -1;
  for (uint32_t t = 0; t < w->ntensors; t++)
    cy_quant_u8(w->quant.tensor[t].low, w->quant.tensor[t].high, &w->tensors[t].scale, &w->tensors[t].zero);
  return 0;
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

static char *text(const writer *w, const char *name, const char *ending) {
  return cy_arena_printf(w->arena, "%s%s", name, ending);
}

static void add_initializer(writer *w, char *name, int dtype, const int64_t *dims, size_t ndims, const void *data,
                            size_t bytes) {
  Onnx__TensorProto *t = CY_NEW(w->arena, Onnx__TensorProto);
  onnx__tensor_proto__init(t);
  t->name = name;
  t->has_data_type = 1;
  t->data_type = dtype;
  t->n_dims = ndims;
  t->dims = ndims ? cy_arena_copy(w->arena, dims, ndims * sizeof *dims) : NULL;
  t->has_raw_data = 1;
  t->raw_data = (ProtobufCBinaryData){bytes, cy_arena_copy(w->arena, data, bytes)};
  grow((void ***)&w->graph->initializer, &w->graph->n_initializer, w->arena, t);
}

static Onnx__NodeProto *add_node(writer *w, const char *op, char **inputs, size_t ninputs, char *output) {
  Onnx__NodeProto *n = CY_NEW(w->arena, Onnx__NodeProto);
  onnx__node_proto__init(n);
  n->op_type = (char *)op;
  n->name = text(w, output, "_node");
  n->n_input = ninputs;
  n->input = cy_arena_copy(w->arena, inputs, ninputs * sizeof *inputs);
  n->n_output = 1;
  n->output = cy_arena_copy(w->arena, &output, sizeof output);
  grow((void ***)&w->nodes, &w->nnodes, w->arena, n);
  return n;
}

static void set_int(const writer *w, Onnx__NodeProto *n, const char *name, int64_t value) {
  Onnx__AttributeProto *a = CY_NEW(w->arena, Onnx__AttributeProto);
  onnx__attribute_proto__init(a);
  a->name = (char *)name;
  a->has_type = 1;
  a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
  a->has_i = 1;
  a->i = value;
  grow((void ***)&n->attribute, &n->n_attribute, w->arena, a);
}

/* x -> QuantizeLinear -> DequantizeLinear -> x_dequantized */
static void add_pair(writer *w, const tensor_info *t) {
  uint8_t zero = (uint8_t)t->zero;
  char *scale = text(w, t->name, "_scale"), *zp = text(w, t->name, "_zero_point"), *q = text(w, t->name, "_quantized");
  add_initializer(w, scale, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, NULL, 0, &t->scale, sizeof t->scale);
  add_initializer(w, zp, ONNX__TENSOR_PROTO__DATA_TYPE__UINT8, NULL, 0, &zero, 1);
  add_node(w, "QuantizeLinear", (char *[]){(char *)t->name, scale, zp}, 3, q);
  add_node(w, "DequantizeLinear", (char *[]){q, scale, zp}, 3, text(w, t->name, "_dequantized"));
}

/* values[channels] of type `dtype` behind a DequantizeLinear along `axis`; returns its output. */
static char *add_constant(writer *w, const char *name, int dtype, const Onnx__TensorProto *like, const void *data,
                          size_t bytes, const float *scale, int64_t channels, int64_t axis) {
  char *q = text(w, name, "_quantized"), *s = text(w, name, "_scale"), *out = text(w, name, "_dequantized");
  add_initializer(w, q, dtype, like->dims, like->n_dims, data, bytes);
  add_initializer(w, s, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, &channels, 1, scale, (size_t)channels * sizeof *scale);
  set_int(w, add_node(w, "DequantizeLinear", (char *[]){q, s}, 2, out), "axis", axis);
  return out;
}

/* The weights of layer n as s8; sets the scale of each output channel. A name of its own: others may share the weights.
 */
static void write_weights(writer *w, Onnx__NodeProto *n, float **out_scale, int64_t *out_channels) {
  const Onnx__TensorProto *t = initializer(w, n->input[1]);
  uint64_t count, outer = 1, inner = 1;
  const float *values = floats(w, t, &count);
  bool is_conv = !strcmp(n->op_type, "Conv");
  size_t axis = is_conv || int_attribute(n, "transB", 0) ? 0 : t->n_dims - 1;
  for (size_t i = 0; i < t->n_dims; i++)
    *(i < axis ? &outer : &inner) *= i == axis ? 1 : (uint64_t)t->dims[i];
  uint64_t channels = (uint64_t)t->dims[axis];
  int8_t *ints = cy_arena_alloc(w->arena, count);
  float *scale = CY_NEW_ARRAY(w->arena, float, channels);
  cy_quant_s8(values, outer, channels, inner, scale, ints);
  n->input[1] = add_constant(w, text(w, n->output[0], "_weight"), ONNX__TENSOR_PROTO__DATA_TYPE__INT8, t, ints, count,
                             scale, (int64_t)channels, (int64_t)axis);
  *out_scale = scale;
  *out_channels = (int64_t)channels;
}

/* A bias per channel as i32 with the scale of the products it is added to. Others (Gemm broadcasts) stay as they are.
 */
static void write_bias(writer *w, Onnx__NodeProto *n, float input_scale, const float *weight_scale, int64_t channels) {
  uint64_t count;
  const Onnx__TensorProto *t = n->n_input > 2 ? initializer(w, n->input[2]) : NULL;
  const float *values = floats(w, t, &count);
  if (!values || t->n_dims != 1 || count != (uint64_t)channels)
    return;
  const Onnx__AttributeProto *alpha = attribute(n, "alpha"), *beta = attribute(n, "beta");
  if ((alpha && alpha->f != 1) || (beta && beta->f != 1))
    return;
  int32_t *ints = CY_NEW_ARRAY(w->arena, int32_t, count);
  float *scale = CY_NEW_ARRAY(w->arena, float, count);
  for (uint64_t i = 0; i < count; i++) {
    scale[i] = input_scale * weight_scale[i];
    double x = rint((double)values[i] / scale[i]);
    if (!(fabs(x) < 2147483647.0)) /* weights of nearly nothing: the bias is all that counts */
      return;
    ints[i] = (int32_t)x;
  }
  n->input[2] = add_constant(w, text(w, n->output[0], "_bias"), ONNX__TENSOR_PROTO__DATA_TYPE__INT32, t, ints,
                             count * sizeof *ints, scale, channels, 0);
}

static void write_node(writer *w, Onnx__NodeProto *n) {
  if (is_layer(w, n)) {
    const tensor_info *x = tensor_of(w, n->input[0]);
    float *scale;
    int64_t channels;
    write_weights(w, n, &scale, &channels);
    write_bias(w, n, x->scale, scale, channels);
  }
  for (size_t k = 0; k < n->n_input; k++)
    if (tensor_of(w, n->input[k]))
      n->input[k] = text(w, n->input[k], "_dequantized");
  grow((void ***)&w->nodes, &w->nnodes, w->arena, n);
  for (size_t k = 0; k < n->n_output; k++)
    if (tensor_of(w, n->output[k]))
      add_pair(w, tensor_of(w, n->output[k]));
}

/* Initializers that nobody reads any more go. */
static void drop_unused(writer *w) {
  size_t kept = 0;
  for (size_t i = 0; i < w->graph->n_initializer; i++) {
    const char *name = w->graph->initializer[i]->name;
    bool used = false;
    for (size_t n = 0; n < w->nnodes && !used; n++) {
      for (size_t k = 0; k < w->nodes[n]->n_input && !used; k++)
        used = !strcmp(w->nodes[n]->input[k], name);
      for (size_t a = 0; a < w->nodes[n]->n_attribute && !used; a++)
        used = w->nodes[n]->attribute[a]->g || w->nodes[n]->attribute[a]->n_graphs; /* bodies read outer values */
    }
    for (size_t o = 0; o < w->graph->n_output && !used; o++)
      used = !strcmp(w->graph->output[o]->name, name);
    if (used)
      w->graph->initializer[kept++] = w->graph->initializer[i];
    else
      for (size_t k = 0; k < w->graph->n_input; k++) /* old models list initializers as inputs */
        if (!strcmp(w->graph->input[k]->name, name))
          w->graph->input[k--] = w->graph->input[--w->graph->n_input];
  }
  w->graph->n_initializer = kept;
}

/* Axes that were attributes until operator set 13, and what changed its meaning then. */
static int upgrade_node(writer *w, Onnx__NodeProto *n) {
  bool axes = is_one_of(n->op_type, "Squeeze Unsqueeze ReduceSum"), split = !strcmp(n->op_type, "Split");
  const Onnx__AttributeProto *a = axes ? attribute(n, "axes") : split ? attribute(n, "split") : NULL;
  if (is_one_of(n->op_type, "Softmax LogSoftmax Hardmax") && int_attribute(n, "axis", 1) != -1)
    return fail(w, n->name, n->op_type,
                "attribute 'axis': its meaning changes with operator set 13; convert the model by "
                "onnx.version_converter first");
  for (size_t i = 0; i < n->n_attribute; i++)
    if (n->attribute[i]->g || n->attribute[i]->n_graphs)
      return fail(w, n->name, n->op_type,
                  "operator set %lld with bodies inside: convert the model by onnx.version_converter "
                  "first",
                  (long long)w->opset);
  if (!a)
    return 0;
  char *name = text(w, n->output[0], split ? "_split" : "_axes"), **inputs = CY_NEW_ARRAY(w->arena, char *, 2);
  int64_t count = (int64_t)a->n_ints;
  add_initializer(w, name, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, &count, 1, a->ints, a->n_ints * sizeof *a->ints);
  inputs[0] = n->input[0];
  inputs[1] = name;
  n->input = inputs;
  n->n_input = 2;
  size_t kept = 0;
  for (size_t i = 0; i < n->n_attribute; i++)
    if (n->attribute[i] != a)
      n->attribute[kept++] = n->attribute[i];
  n->n_attribute = kept;
  return 0;
}

static int upgrade(writer *w) {
  if (w->opset >= WANTED)
    return 0;
  for (size_t i = 0; i < w->graph->n_node; i++)
    if (upgrade_node(w, w->graph->node[i]))
      return -1;
  for (size_t i = 0; i < w->model->n_opset_import; i++) {
    Onnx__OperatorSetIdProto *o = w->model->opset_import[i];
    if (!o->domain || !*o->domain || !strcmp(o->domain, "ai.onnx"))
      o->version = WANTED;
  }
  if (w->model->ir_version < 7)
    w->model->ir_version = 7;
  return 0;
}

static int save(const writer *w) {
  size_t size = onnx__model_proto__get_packed_size(w->model);
  uint8_t *bytes = malloc(size ? size : 1);
  if (!bytes)
    cy_bug("out of memory");
  onnx__model_proto__pack(w->model, bytes);
  cy_temps *temps = cy_temps_create(w->diag);
  const char *near = temps ? cy_temps_near(temps, w->job->output) : NULL;
  int status = -1;
  if (near)
    status = cy_file_write(near, bytes, size)
                 ? cy_temps_commit(temps, near, w->job->output, w->diag)
                 : fail(w, NULL, NULL, "cannot write '%s': %s", w->job->output, strerror(errno));
  cy_temps_destroy(temps);
  free(bytes);
  return status;
}

static int rewrite(writer *w) {
  if (upgrade(w))
    return -1;
  for (size_t i = 0; i < w->graph->n_input; i++)
    if (tensor_of(w, w->graph->input[i]->name))
      add_pair(w, tensor_of(w, w->graph->input[i]->name));
  for (size_t i = 0; i < w->graph->n_node; i++)
    write_node(w, w->graph->node[i]);
  drop_unused(w);
  w->graph->node = w->nodes;
  w->graph->n_node = w->nnodes;
  return save(w);
}

int qdq_write(const qdq_job *job) {
  writer w = {.job = job, .diag = job->calibrate.diag, .arena = cy_arena_create()};
  cy_quant_init(&w.quant, CY_QUANT_OBSERVE);
  int status = read_model(&w);
  if (!status)
    status = list_tensors(&w);
  if (!status)
    status = find_ranges(&w);
  if (!status)
    status = rewrite(&w);
  cy_quant_deinit(&w.quant);
  cy_arena_destroy(w.arena);
  return status;
}
