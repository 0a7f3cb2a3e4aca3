/* qdq.c - writes the QDQ form of a float model: ONNX in, ONNX out, with protobuf-c.
 *
 * In:  a model of operator set 7 or newer, samples. Out: a model of operator set 13 or newer in which the inputs of
 * Conv, Gemm and MatMul with constant weights, and of the pooling, concatenation, addition, resampling and views
 * between them, are followed by QuantizeLinear and DequantizeLinear (u8, a scale and zero point per tensor); weights
 * are s8 with a scale per output channel, biases i32 with the scale of their products, both behind DequantizeLinear.
 *
 * Method: rewrite operators that changed since (qdq_upgrade.c); list the tensors; run the model with them as further
 * outputs (cytoc_quantise.c) for their ranges; insert nodes. The rest of the file stays as it was: names, other
 * operators, metadata.
 */
#define _GNU_SOURCE
#include "qdq_int.h"

#include <fnmatch.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int qdq_fail(const qdq_writer *w, const char *node, const char *op, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  cy_location where = {.file = w->job->input, .node = node, .op = op, .node_index = -1};
  cy_diag_add(w->diag, CY_ERROR, &where, "%s", text);
  return -1;
}

/* ---- looking at the model --------------------------------------------------------------------------------------- */

Onnx__TensorProto *qdq_initializer(const qdq_writer *w, const char *name) {
  for (size_t i = 0; name && *name && i < w->graph->n_initializer; i++)
    if (w->graph->initializer[i]->name && !strcmp(w->graph->initializer[i]->name, name))
      return w->graph->initializer[i];
  return NULL;
}

const float *qdq_floats(const qdq_writer *w, const Onnx__TensorProto *t, uint64_t *out_n) {
  uint64_t n = 1;
  if (!t || t->data_type != ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT)
    return NULL;
  for (size_t i = 0; i < t->n_dims; i++)
    n *= (uint64_t)t->dims[i];
  *out_n = n;
  if (t->has_data_location && t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) {
    uint64_t bytes;
    const void *data = n ? qdq_external(w, t, &bytes) : NULL;
    return data ? cy_arena_copy(w->arena, data, bytes) : NULL; /* nothing says that it is aligned there */
  }
  if (t->has_raw_data && t->raw_data.len == n * sizeof(float))
    return cy_arena_copy(w->arena, t->raw_data.data, t->raw_data.len);
  return t->n_float_data == n ? t->float_data : NULL;
}

static Onnx__NodeProto *producer(const qdq_writer *w, const char *name) {
  for (size_t i = 0; i < w->graph->n_node; i++)
    for (size_t k = 0; k < w->graph->node[i]->n_output; k++)
      if (!strcmp(w->graph->node[i]->output[k], name))
        return w->graph->node[i];
  return NULL;
}

const Onnx__AttributeProto *qdq_attribute(const Onnx__NodeProto *n, const char *name) {
  for (size_t i = 0; i < n->n_attribute; i++)
    if (n->attribute[i]->name && !strcmp(n->attribute[i]->name, name))
      return n->attribute[i];
  return NULL;
}

int64_t qdq_int_attribute(const Onnx__NodeProto *n, const char *name, int64_t otherwise) {
  const Onnx__AttributeProto *a = qdq_attribute(n, name);
  return a ? a->i : otherwise;
}

bool qdq_is_one_of(const char *op, const char *list) {
  const char *at = strstr(list, op);
  size_t n = strlen(op);
  return at && (at == list || at[-1] == ' ') && (at[n] == ' ' || !at[n]);
}

static bool skipped(const qdq_writer *w, const Onnx__NodeProto *n) {
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

static bool is_weight(const Onnx__TensorProto *t) {
  bool empty = false;
  for (size_t i = 0; t && i < t->n_dims; i++)
    empty |= t->dims[i] < 1;
  return t && t->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT && t->n_dims >= 2 && !empty;
}

/* A contraction with constant weights in f32. */
static bool is_layer(const qdq_writer *w, const Onnx__NodeProto *n) {
  return qdq_is_one_of(n->op_type, "Conv Gemm MatMul") && (!n->domain || !*n->domain) && n->n_input >= 2 &&
         !qdq_initializer(w, n->input[0]) && is_weight(qdq_initializer(w, n->input[1])) &&
         !qdq_int_attribute(n, "transA", 0) && !skipped(w, n);
}

/* ---- which tensors ---------------------------------------------------------------------------------------------- */

static qdq_tensor *tensor_of(const qdq_writer *w, const char *name) {
  for (uint32_t t = 0; t < w->ntensors; t++)
    if (!strcmp(w->tensors[t].name, name))
      return &w->tensors[t];
  return NULL;
}

/* Adds a tensor, and what the operators in front of it read as long as they can work on integers. */
static void add_tensor(qdq_writer *w, const char *name, uint32_t room) {
  uint32_t at = w->ntensors;
  if (!*name || tensor_of(w, name) || qdq_initializer(w, name) || w->ntensors == room)
    return;
  w->tensors[w->ntensors++] = (qdq_tensor){.name = name};
  for (; at < w->ntensors; at++) {
    const Onnx__NodeProto *n = producer(w, w->tensors[at].name);
    bool all = n && qdq_is_one_of(n->op_type, "Add Concat");
    if (!n ||
        (!all && !qdq_is_one_of(n->op_type, "MaxPool AveragePool GlobalAveragePool Resize Reshape Transpose Flatten "
                                            "Squeeze Unsqueeze")))
      continue;
    for (size_t k = 0; k < (all ? n->n_input : 1); k++)
      if (*n->input[k] && !tensor_of(w, n->input[k]) && !qdq_initializer(w, n->input[k]) && w->ntensors < room)
        w->tensors[w->ntensors++] = (qdq_tensor){.name = n->input[k]};
  }
}

static int list_tensors(qdq_writer *w) {
  uint32_t room = (uint32_t)w->graph->n_input, layers = 0;
  for (size_t i = 0; i < w->graph->n_node; i++)
    room += (uint32_t)w->graph->node[i]->n_output;
  w->tensors = CY_NEW_ARRAY(w->arena, qdq_tensor, room + 1);
  for (size_t i = 0; i < w->graph->n_node; i++)
    if (is_layer(w, w->graph->node[i])) {
      add_tensor(w, w->graph->node[i]->input[0], room);
      layers++;
    }
  return layers ? 0
                : qdq_fail(w, NULL, NULL,
                           "nothing to quantise: the model has no Conv, Gemm or MatMul in f32 with weights in an "
                           "initializer");
}

/* ---- ranges ----------------------------------------------------------------------------------------------------- */

void qdq_grow(const qdq_writer *w, void ***list, size_t *n, void *item) {
  void **grown = CY_NEW_ARRAY(w->arena, void *, *n + 1);
  if (*n)
    memcpy(grown, *list, *n * sizeof *grown);
  grown[(*n)++] = item;
  *list = grown;
}

static void pack_observed(qdq_writer *w) {
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
      qdq_grow(w, (void ***)&g->output, &g->n_output, v);
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
  qdq_writer *w = ctx;
  const char *name = w->job->input; /* with a folder, or external data is not looked for */
  name = strchr(name, '/') ? name : cy_arena_printf(w->arena, "./%s", name);
  return cy_import_memory(w->observed, w->observed_size, name, &w->job->import, w->diag);
}

static int find_ranges(qdq_writer *w) {
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

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Names of values in a graph and in those inside it: how many, and where `out` is given, the names. */
static size_t collect_names(const Onnx__GraphProto *g, const char **out) {
  size_t n = 0;
#define FOUND(name) (out && (name) ? (void)(out[n] = (name)) : (void)0, n += (name) != NULL)
  for (size_t i = 0; i < g->n_initializer; i++)
    FOUND(g->initializer[i]->name);
  for (size_t i = 0; i < g->n_input; i++)
    FOUND(g->input[i]->name);
  for (size_t i = 0; i < g->n_node; i++) {
    const Onnx__NodeProto *node = g->node[i];
    for (size_t k = 0; k < node->n_output; k++)
      FOUND(node->output[k]);
    for (size_t k = 0; k < node->n_attribute; k++) {
      const Onnx__AttributeProto *a = node->attribute[k];
      if (a->g)
        n += collect_names(a->g, out ? out + n : NULL);
      for (size_t j = 0; j < a->n_graphs; j++)
        n += collect_names(a->graphs[j], out ? out + n : NULL);
    }
  }
#undef FOUND
  return n;
}

static void list_names(qdq_writer *w) {
  w->nnames = collect_names(w->graph, NULL);
  w->names = CY_NEW_ARRAY(w->arena, const char *, w->nnames + 1);
  collect_names(w->graph, w->names);
  qsort(w->names, w->nnames, sizeof *w->names, by_text);
}

char *qdq_name(const qdq_writer *w, const char *name, const char *ending) {
  char *text = cy_arena_printf(w->arena, "%s%s", name, ending);
  for (unsigned i = 1; bsearch(&text, w->names, w->nnames, sizeof text, by_text); i++)
    text = cy_arena_printf(w->arena, "%s%s_%u", name, ending, i);
  return text;
}

void qdq_add_initializer(qdq_writer *w, char *name, int dtype, const int64_t *dims, size_t ndims, const void *data,
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
  qdq_grow(w, (void ***)&w->graph->initializer, &w->graph->n_initializer, t);
}

Onnx__NodeProto *qdq_add_node(qdq_writer *w, const char *op, char **inputs, size_t ninputs, char *output) {
  Onnx__NodeProto *n = CY_NEW(w->arena, Onnx__NodeProto);
  onnx__node_proto__init(n);
  n->op_type = (char *)op;
  n->name = qdq_name(w, output, "_node");
  n->n_input = ninputs;
  n->input = cy_arena_copy(w->arena, inputs, ninputs * sizeof *inputs);
  n->n_output = 1;
  n->output = cy_arena_copy(w->arena, &output, sizeof output);
  qdq_grow(w, (void ***)&w->nodes, &w->nnodes, n);
  return n;
}

static Onnx__AttributeProto *add_attribute(const qdq_writer *w, Onnx__NodeProto *n, const char *name,
                                           Onnx__AttributeProto__AttributeType type) {
  Onnx__AttributeProto *a = CY_NEW(w->arena, Onnx__AttributeProto);
  onnx__attribute_proto__init(a);
  a->name = (char *)name;
  a->has_type = 1;
  a->type = type;
  qdq_grow(w, (void ***)&n->attribute, &n->n_attribute, a);
  return a;
}

void qdq_set_int(const qdq_writer *w, Onnx__NodeProto *n, const char *name, int64_t value) {
  Onnx__AttributeProto *a = add_attribute(w, n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
  a->has_i = 1;
  a->i = value;
}

void qdq_set_string(const qdq_writer *w, Onnx__NodeProto *n, const char *name, const char *value) {
  Onnx__AttributeProto *a = add_attribute(w, n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
  a->has_s = 1;
  a->s = (ProtobufCBinaryData){strlen(value), (uint8_t *)(uintptr_t)value};
}

/* x -> QuantizeLinear -> DequantizeLinear -> x_dequantized */
static void add_pair(qdq_writer *w, const qdq_tensor *t) {
  uint8_t zero = (uint8_t)t->zero;
  char *scale = qdq_name(w, t->name, "_scale"), *zp = qdq_name(w, t->name, "_zero_point"),
       *q = qdq_name(w, t->name, "_quantized");
  qdq_add_initializer(w, scale, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, NULL, 0, &t->scale, sizeof t->scale);
  qdq_add_initializer(w, zp, ONNX__TENSOR_PROTO__DATA_TYPE__UINT8, NULL, 0, &zero, 1);
  qdq_add_node(w, "QuantizeLinear", (char *[]){(char *)t->name, scale, zp}, 3, q);
  qdq_add_node(w, "DequantizeLinear", (char *[]){q, scale, zp}, 3, qdq_name(w, t->name, "_dequantized"));
}

/* values[channels] of type `dtype` behind a DequantizeLinear along `axis`; returns its output. */
static char *add_constant(qdq_writer *w, const char *name, int dtype, const Onnx__TensorProto *like, const void *data,
                          size_t bytes, const float *scale, int64_t channels, int64_t axis) {
  char *q = qdq_name(w, name, "_quantized"), *s = qdq_name(w, name, "_scale"), *out = qdq_name(w, name, "_dequantized");
  qdq_add_initializer(w, q, dtype, like->dims, like->n_dims, data, bytes);
  qdq_add_initializer(w, s, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, &channels, 1, scale,
                      (size_t)channels * sizeof *scale);
  qdq_set_int(w, qdq_add_node(w, "DequantizeLinear", (char *[]){q, s}, 2, out), "axis", axis);
  return out;
}

/* The weights of layer n as s8; sets the scale of each output channel. A name of its own: others may share the weights.
 */
static int write_weights(qdq_writer *w, Onnx__NodeProto *n, float **out_scale, int64_t *out_channels) {
  const Onnx__TensorProto *t = qdq_initializer(w, n->input[1]);
  uint64_t count, outer = 1, inner = 1;
  const float *values = qdq_floats(w, t, &count);
  if (!values)
    return qdq_fail(w, n->name, n->op_type, "initializer '%s': expected as many elements as its shape tells", t->name);
  bool is_conv = !strcmp(n->op_type, "Conv");
  size_t axis = is_conv || qdq_int_attribute(n, "transB", 0) ? 0 : t->n_dims - 1;
  for (size_t i = 0; i < t->n_dims; i++)
    *(i < axis ? &outer : &inner) *= i == axis ? 1 : (uint64_t)t->dims[i];
  uint64_t channels = (uint64_t)t->dims[axis];
  int8_t *ints = cy_arena_alloc(w->arena, count);
  float *scale = CY_NEW_ARRAY(w->arena, float, channels);
  cy_quant_s8(values, outer, channels, inner, scale, ints);
  n->input[1] = add_constant(w, qdq_name(w, n->output[0], "_weight"), ONNX__TENSOR_PROTO__DATA_TYPE__INT8, t, ints,
                             count, scale, (int64_t)channels, (int64_t)axis);
  *out_scale = scale;
  *out_channels = (int64_t)channels;
  return 0;
}

/* A bias per channel as i32 with the scale of the products it is added to. Others (Gemm broadcasts) stay as they are.
 */
static void write_bias(qdq_writer *w, Onnx__NodeProto *n, float input_scale, const float *weight_scale,
                       int64_t channels) {
  uint64_t count;
  const Onnx__TensorProto *t = n->n_input > 2 ? qdq_initializer(w, n->input[2]) : NULL;
  const float *values = qdq_floats(w, t, &count);
  if (!values || t->n_dims != 1 || count != (uint64_t)channels)
    return;
  const Onnx__AttributeProto *alpha = qdq_attribute(n, "alpha"), *beta = qdq_attribute(n, "beta");
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
  n->input[2] = add_constant(w, qdq_name(w, n->output[0], "_bias"), ONNX__TENSOR_PROTO__DATA_TYPE__INT32, t, ints,
                             count * sizeof *ints, scale, channels, 0);
}

static int write_node(qdq_writer *w, Onnx__NodeProto *n) {
  if (is_layer(w, n)) {
    const qdq_tensor *x = tensor_of(w, n->input[0]);
    float *scale = NULL;
    int64_t channels = 0;
    if (write_weights(w, n, &scale, &channels))
      return -1;
    write_bias(w, n, x->scale, scale, channels);
  }
  for (size_t k = 0; k < n->n_input; k++)
    if (tensor_of(w, n->input[k]))
      n->input[k] = qdq_name(w, n->input[k], "_dequantized");
  qdq_grow(w, (void ***)&w->nodes, &w->nnodes, n);
  for (size_t k = 0; k < n->n_output; k++)
    if (tensor_of(w, n->output[k]))
      add_pair(w, tensor_of(w, n->output[k]));
  return 0;
}

/* Initializers that nobody reads any more go. */
static void drop_unused(qdq_writer *w) {
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

static int rewrite(qdq_writer *w) {
  for (size_t i = 0; i < w->graph->n_input; i++)
    if (tensor_of(w, w->graph->input[i]->name))
      add_pair(w, tensor_of(w, w->graph->input[i]->name));
  for (size_t i = 0; i < w->graph->n_node; i++)
    if (write_node(w, w->graph->node[i]))
      return -1;
  drop_unused(w);
  w->graph->node = w->nodes;
  w->graph->n_node = w->nnodes;
  return qdq_save(w);
}

int qdq_write(const qdq_job *job) {
  qdq_writer w = {.job = job, .diag = job->calibrate.diag, .arena = cy_arena_create()};
  cy_quant_init(&w.quant, CY_QUANT_OBSERVE);
  int status = qdq_read(&w);
  if (!status) {
    list_names(&w);
    status = qdq_upgrade(&w);
  }
  if (!status)
    status = list_tensors(&w);
  if (!status)
    status = find_ranges(&w);
  if (!status)
    status = rewrite(&w);
  cy_quant_deinit(&w.quant);
  cy_externals_destroy(w.externals);
  cy_arena_destroy(w.arena);
  return status;
}
