/* SPDX-License-Identifier: Apache-2.0 */
/* qdq_layers.c - layers in integers: their weights and biases, and what they read.
 *
 * In:  a model, which of its layers are quantised, ranges. Out: nodes with QuantizeLinear and DequantizeLinear: tensors
 * are u8 with a scale and a zero point, weights s8 with a scale per output channel, biases i32 with the scale of their
 * products, to which what rounding changes in the mean has been added back.
 *
 * Where the channels of a tensor are balanced (quantise.h), it is divided by factors first, and the weights behind it
 * are multiplied by them. A convolution in front of it takes the division into the scales of its weights, through ReLU
 * and its like; elsewhere there is a Mul.
 */
#define _GNU_SOURCE
#include "qdq_int.h"

#include <math.h>
#include <string.h>

/* ---- which ------------------------------------------------------------------------------------------------------- */

static bool is_weight(const Onnx__TensorProto *t) {
  bool empty = false;
  for (size_t i = 0; t && i < t->n_dims; i++)
    empty |= t->dims[i] < 1;
  return t && t->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT && t->n_dims >= 2 && !empty;
}

static bool is_forward(const Onnx__NodeProto *n) { return !strcmp(n->op_type, "Conv"); }
static bool is_transposed(const Onnx__NodeProto *n) { return !strcmp(n->op_type, "ConvTranspose"); }
static bool is_conv(const Onnx__NodeProto *n) { return is_forward(n) || is_transposed(n); }

/* A contraction with constant weights in f32. The outputs of groups are no axis of a transposed convolution's weights. */
static bool is_layer(const qdq_writer *w, const Onnx__NodeProto *n) {
  if (is_transposed(n) && qdq_int_attribute(n, "group", 1) != 1)
    return false;
  return cy_quant_onnx_does(n->op_type) & CY_QUANT_LAYER && (!n->domain || !*n->domain) && n->n_input >= 2 &&
         !qdq_initializer(w, n->input[0]) && is_weight(qdq_initializer(w, n->input[1])) &&
         !qdq_int_attribute(n, "transA", 0);
}

/* Does n, reading x, hand on what is small beside the rest of it as such, so that a logarithm would show it? */
static bool keeps_small(const qdq_writer *w, const Onnx__NodeProto *n) {
  const Onnx__TensorProto *t = !strcmp(n->op_type, "MatMul") ? qdq_initializer(w, n->input[1]) : NULL;
  uint64_t count = 0;
  const float *values = qdq_floats(w, t, &count);
  return cy_quant_adds_powers(values, count) || cy_quant_onnx_does(n->op_type) & CY_QUANT_SMALL;
}

/* Is the logarithm taken of what becomes of a value, at most `depth` nodes further? */
static bool feeds_log(const qdq_writer *w, const char *name, int depth) {
  for (size_t i = 0; i < w->graph->n_node && depth; i++) {
    const Onnx__NodeProto *n = w->graph->node[i];
    for (size_t k = 0; k < n->n_input; k++)
      if (!strcmp(n->input[k], name) &&
          (!strcmp(n->op_type, "Log") || (keeps_small(w, n) && feeds_log(w, n->output[0], depth - 1))))
        return true;
  }
  return false;
}

int qdq_channel_axis(const qdq_layer *l) { return is_conv(l->node) ? 1 : l->rank - 1; }

static const char *shape_text(const qdq_writer *w, const Onnx__TensorProto *t) {
  char text[256] = "";
  size_t used = 0;
  for (size_t i = 0; i < t->n_dims && used < sizeof text - 24; i++)
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%lld", i ? "x" : "", (long long)t->dims[i]);
  return cy_arena_printf(w->quant.arena, "%s", text);
}

static void add_layer(qdq_writer *w, const Onnx__NodeProto *n, size_t index) {
  const Onnx__TensorProto *t = qdq_initializer(w, n->input[1]);
  size_t axis = is_transposed(n) ? 1 : is_conv(n) || qdq_int_attribute(n, "transB", 0) ? 0 : t->n_dims - 1;
  bool named = n->name && *n->name;
  w->layers[w->nlayers] = (qdq_layer){.node = n, .axis = axis};
  w->quant.layer[w->nlayers++] =
      (cy_quant_layer){.name = named ? n->name : cy_arena_printf(w->quant.arena, "%s %zu", n->op_type, index),
                       .op = n->op_type,
                       .shape = shape_text(w, t),
                       .channels = (uint32_t)t->dims[axis],
                       .product = !is_conv(n),
                       .depthwise = is_forward(n) && t->dims[1] == 1 && t->dims[0] > 1,
                       .keep = cy_quant_skips(w->job->skip, n->name ? n->name : "", n->op_type) ? CY_QUANT_SKIPPED
                               : feeds_log(w, n->output[0], CY_QUANT_LOG_DEPTH)                 ? CY_QUANT_LOG
                                                                                                : NULL,
                       .error = -1};
}

int qdq_list_layers(qdq_writer *w) {
  bool any = false;
  w->layers = CY_NEW_ARRAY(w->arena, qdq_layer, w->graph->n_node + 1);
  w->quant.layer = CY_NEW_ARRAY(w->quant.arena, cy_quant_layer, w->graph->n_node + 1);
  for (size_t i = 0; i < w->graph->n_node; i++)
    if (is_layer(w, w->graph->node[i]))
      add_layer(w, w->graph->node[i], i);
  w->quant.nlayers = w->nlayers;
  for (uint32_t i = 0; i < w->nlayers; i++)
    any |= !w->quant.layer[i].keep;
  return any ? 0
             : qdq_fail(w, NULL, NULL,
                        "nothing to quantise: the model has no Conv, ConvTranspose, Gemm or MatMul in f32 with weights in "
                        "an initializer");
}

void qdq_describe_layers(qdq_writer *w, const cy_graph *g) {
  const int64_t *sizes = cy_quant_sizes(g, w->arena);
  for (uint32_t i = 0; i < w->nlayers; i++) {
    const Onnx__TensorProto *t = qdq_initializer(w, w->layers[i].node->input[1]);
    const Onnx__NodeProto *n = w->layers[i].node;
    cy_val y = qdq_value_of(g, n->output[0]), per = is_transposed(n) ? qdq_value_of(g, n->input[0]) : y;
    size_t alone = is_transposed(n) ? 0 : w->layers[i].axis; /* what `per` has an element for each of */
    double each = 1;
    w->layers[i].rank = y ? cy_value_of(g, y)->type.rank : 0;
    for (size_t k = is_conv(n) ? 0 : t->n_dims - 2; k < t->n_dims; k++)
      each *= k == alone ? 1 : (double)t->dims[k];
    w->quant.layer[i].macs = per ? cy_quant_elements(g, per, sizes) * each : 0;
  }
}

/* ---- tensors ---------------------------------------------------------------------------------------------------- */

static char *dequantised(const qdq_writer *w, const qdq_tensor *t) { return qdq_name(w, t->name, "_dequantized"); }

char *qdq_add_factors(qdq_writer *w, char *name, const float *values, int64_t channels, int rank, int axis) {
  int64_t dims[CY_MAX_RANK] = {channels};
  for (int i = 1; i < rank - axis; i++)
    dims[i] = 1;
  qdq_add_initializer(w, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, dims, (size_t)(rank - axis), values,
                      (size_t)channels * sizeof *values);
  return name;
}

/* x * balance, or x / balance. */
static char *multiply(qdq_writer *w, const qdq_tensor *t, char *x, const char *what, bool inverse) {
  const cy_quant_tensor *q = qdq_quant_of(w, t);
  float *f = CY_NEW_ARRAY(w->arena, float, q->channels);
  for (uint32_t c = 0; c < q->channels; c++)
    f[c] = inverse ? 1 / q->balance[c] : q->balance[c];
  char *out = qdq_name(w, t->name, what);
  char *factors = qdq_add_factors(w, qdq_name(w, out, "_factors"), f, q->channels, t->rank, q->axis);
  qdq_add_node(w, "Mul", (char *[]){x, factors}, 2, out);
  return out;
}

void qdq_add_pair(qdq_writer *w, const qdq_tensor *t) {
  uint8_t zero = (uint8_t)t->zero;
  char *scale = qdq_name(w, t->name, "_scale"), *zp = qdq_name(w, t->name, "_zero_point"),
       *q = qdq_name(w, t->name, "_quantized"), *x = (char *)t->name;
  if (qdq_quant_of(w, t)->balance && !t->balanced)
    x = multiply(w, t, x, "_balanced", true);
  qdq_add_initializer(w, scale, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, NULL, 0, &t->scale, sizeof t->scale);
  qdq_add_initializer(w, zp, ONNX__TENSOR_PROTO__DATA_TYPE__UINT8, NULL, 0, &zero, 1);
  qdq_add_node(w, "QuantizeLinear", (char *[]){x, scale, zp}, 3, q);
  qdq_add_node(w, "DequantizeLinear", (char *[]){q, scale, zp}, 3, dequantised(w, t));
}

/* t dequantised, as what knows nothing of its balance reads it. */
static char *plain(qdq_writer *w, qdq_tensor *t) {
  if (!qdq_quant_of(w, t)->balance)
    return dequantised(w, t);
  if (!t->plain)
    multiply(w, t, dequantised(w, t), "_plain", false);
  t->plain = true;
  return qdq_name(w, t->name, "_plain");
}

/* ---- weights and biases ----------------------------------------------------------------------------------------- */

/* values[channels] of type `dtype` behind a DequantizeLinear along `axis`; returns its output. */
static char *add_constant(qdq_writer *w, const char *name, int dtype, const int64_t *dims, size_t ndims,
                          const void *data, size_t bytes, const float *scale, int64_t channels, int64_t axis) {
  char *q = qdq_name(w, name, "_quantized"), *s = qdq_name(w, name, "_scale"), *out = qdq_name(w, name, "_dequantized");
  qdq_add_initializer(w, q, dtype, dims, ndims, data, bytes);
  qdq_add_initializer(w, s, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, &channels, 1, scale,
                      (size_t)channels * sizeof *scale);
  qdq_set_int(w, qdq_add_node(w, "DequantizeLinear", (char *[]){q, s}, 2, out), "axis", axis);
  return out;
}

/* A copy of a layer's weights with each input channel multiplied. */
static const float *balanced(const qdq_writer *w, const qdq_layer *l, const float *values, uint64_t count,
                             const float *balance) {
  const Onnx__TensorProto *t = qdq_initializer(w, l->node->input[1]);
  float *out = CY_NEW_ARRAY(w->arena, float, count);
  bool conv = is_forward(l->node);
  size_t axis = conv ? 1 : is_transposed(l->node) ? 0 : l->axis ? t->n_dims - 2 : t->n_dims - 1; /* of input channels */
  uint64_t inner = 1, rows = (uint64_t)t->dims[0], group = (uint64_t)qdq_int_attribute(l->node, "group", 1);
  uint64_t depth = (uint64_t)t->dims[axis];
  for (size_t i = axis + 1; i < t->n_dims; i++)
    inner *= (uint64_t)t->dims[i];
  for (uint64_t i = 0; i < count; i++) {
    uint64_t row = i / inner, c = row % depth;
    if (conv)
      c += row / depth / (rows / group) * depth;
    out[i] = values[i] * balance[c];
  }
  return out;
}

/* Sets ints and scale of layer i. */
static int find_weights(qdq_writer *w, uint32_t i) {
  qdq_layer *l = &w->layers[i];
  const Onnx__TensorProto *t = qdq_initializer(w, l->node->input[1]);
  const float *balance = w->quant.tensor[l->tensor].balance;
  uint64_t count, outer = 1, inner = 1, taps = 1;
  const float *values = qdq_floats(w, t, &count);
  if (!values)
    return qdq_fail(w, l->node->name, l->node->op_type,
                    "initializer '%s': expected as many elements as its shape tells", t->name);
  for (size_t k = 2; k < t->n_dims && is_forward(l->node); k++)
    taps *= (uint64_t)t->dims[k];
  for (size_t k = 0; k < t->n_dims; k++)
    *(k < l->axis ? &outer : &inner) *= k == l->axis ? 1 : (uint64_t)t->dims[k];
  l->ints = cy_arena_alloc(w->arena, count);
  l->scale = CY_NEW_ARRAY(w->arena, float, w->quant.layer[i].channels);
  cy_quant_s8(balance ? balanced(w, l, values, count, balance) : values, outer, w->quant.layer[i].channels, inner, taps,
              l->scale, l->ints);
  return 0;
}

/* Its bias, per channel: zeros where it has none; NULL where that is something else, as Gemm may broadcast. */
static float *bias_of(const qdq_writer *w, const Onnx__NodeProto *n, uint32_t channels) {
  const Onnx__AttributeProto *alpha = qdq_attribute(n, "alpha"), *beta = qdq_attribute(n, "beta");
  bool none = n->n_input < 3 || !*n->input[2];
  if (!strcmp(n->op_type, "MatMul"))
    return NULL;
  uint64_t count;
  const Onnx__TensorProto *t = none ? NULL : qdq_initializer(w, n->input[2]);
  const float *values = qdq_floats(w, t, &count);
  if ((!none && (!values || t->n_dims != 1 || count != channels)) || (alpha && alpha->f != 1) || (beta && beta->f != 1))
    return NULL;
  float *out = CY_NEW_ARRAY(w->arena, float, channels);
  if (values)
    memcpy(out, values, channels * sizeof *out);
  return out;
}

/* A bias per channel, as i32 with the scale of the products that it is added to where that can be. */
static void write_bias(qdq_writer *w, uint32_t i, Onnx__NodeProto *n, const float *scale) {
  const cy_quant_layer *l = &w->quant.layer[i];
  const qdq_layer *of = &w->layers[i];
  float *values = bias_of(w, n, l->channels), *both = CY_NEW_ARRAY(w->arena, float, l->channels);
  int32_t *ints = CY_NEW_ARRAY(w->arena, int32_t, l->channels);
  int64_t dims = l->channels;
  if (!values || (n->n_input < 3 && !l->correct))
    return;
  bool small = true;
  for (uint32_t c = 0; c < l->channels; c++) {
    values[c] = (values[c] + (l->correct ? l->correct[c] : 0)) / (of->balance ? of->balance[c] : 1);
    both[c] = w->tensors[of->tensor].scale * scale[c];
    double x = rint((double)values[c] / both[c]);
    small &= fabs(x) < 2147483647.0; /* else: weights of nearly nothing, the bias is all that counts */
    ints[c] = small ? (int32_t)x : 0;
  }
  char *name = qdq_name(w, n->output[0], "_bias"), **inputs = CY_NEW_ARRAY(w->arena, char *, 3);
  memcpy(inputs, n->input, 2 * sizeof *inputs);
  if (small)
    inputs[2] = add_constant(w, name, ONNX__TENSOR_PROTO__DATA_TYPE__INT32, &dims, 1, ints, l->channels * sizeof *ints,
                             both, dims, 0);
  else
    qdq_add_initializer(w, inputs[2] = name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, &dims, 1, values,
                        l->channels * sizeof *values);
  n->input = inputs;
  n->n_input = 3;
}

int qdq_quantise_layer(qdq_writer *w, uint32_t i, Onnx__NodeProto *n) {
  qdq_layer *l = &w->layers[i];
  uint32_t channels = w->quant.layer[i].channels;
  const Onnx__TensorProto *t = qdq_initializer(w, l->node->input[1]);
  uint64_t count = 1;
  if (!l->ints && find_weights(w, i))
    return -1;
  for (size_t k = 0; k < t->n_dims; k++)
    count *= (uint64_t)t->dims[k];
  float *scale = cy_arena_copy(w->arena, l->scale, channels * sizeof *scale);
  for (uint32_t c = 0; c < channels && l->balance; c++)
    scale[c] /= l->balance[c];
  n->input[0] = dequantised(w, &w->tensors[l->tensor]);
  n->input[1] = add_constant(w, qdq_name(w, n->output[0], "_weight"), ONNX__TENSOR_PROTO__DATA_TYPE__INT8, t->dims,
                             t->n_dims, l->ints, count, scale, channels, (int64_t)l->axis);
  write_bias(w, i, n, scale);
  return 0;
}

/* ---- the whole model -------------------------------------------------------------------------------------------- */

static cy_quant_layer *quantised(const qdq_writer *w, const Onnx__NodeProto *n, uint32_t *out) {
  for (*out = 0; *out < w->nlayers; ++*out)
    if (w->layers[*out].node == n)
      return w->quant.layer[*out].keep ? NULL : &w->quant.layer[*out];
  return NULL;
}

static const Onnx__NodeProto *maker_of(const qdq_writer *w, const char *name) {
  const qdq_tensor *t = qdq_tensor_of(w, name);
  for (size_t i = 0; !t && i < w->graph->n_node; i++)
    if (!strcmp(w->graph->node[i]->output[0], name))
      return w->graph->node[i];
  return t ? t->maker : NULL;
}

/* Do only layers in integers read t? */
static bool only_layers_read(const qdq_writer *w, const qdq_tensor *t) {
  uint32_t i;
  if (qdq_is_output(w, t->name) || qdq_read_by_bodies(w, t->name))
    return false;
  for (size_t n = 0; n < w->graph->n_node; n++)
    for (size_t k = 0; k < w->graph->node[n]->n_input; k++)
      if (!strcmp(w->graph->node[n]->input[k], t->name) && (k || !quantised(w, w->graph->node[n], &i)))
        return false;
  return true;
}

/* Has the convolution that makes t, if it does so all by itself but for functions that a positive factor passes
 * through, divide by t's balance. */
static void fold_balance(qdq_writer *w, qdq_tensor *t) {
  const Onnx__NodeProto *n = t->maker;
  uint32_t i;
  if (qdq_quant_of(w, t)->axis != 1 || !only_layers_read(w, t))
    return;
  while (n && qdq_is_one_of(n->op_type, "Relu LeakyRelu PRelu")) {
    const qdq_tensor *in = qdq_tensor_of(w, n->input[0]);
    if (qdq_only_reader(w, n->input[0]) != n || (in && in->rounded))
      return;
    n = maker_of(w, n->input[0]);
  }
  if (!n || !is_conv(n) || !quantised(w, n, &i) || !bias_of(w, n, w->quant.layer[i].channels))
    return;
  w->layers[i].balance = qdq_quant_of(w, t)->balance;
  t->balanced = true;
}

static bool is_elementwise(const Onnx__NodeProto *n) { return cy_quant_onnx_does(n->op_type) & CY_QUANT_EW; }

/* t as it is without the rounding of what it is pooled or moved from: a layer that is in float for its precision reads
 * it so. */
static char *exact(qdq_writer *w, qdq_tensor *t) {
  if (!qdq_rounded_inputs(w, t) || !strcmp(t->maker->op_type, "Add"))
    return (char *)t->name;
  char *out = qdq_name(w, t->name, "_exact");
  if (t->exact)
    return out;
  t->exact = true;
  Onnx__NodeProto *n = qdq_copy_node(w, t->maker);
  for (size_t k = 0; k < qdq_rounded_inputs(w, t); k++) {
    qdq_tensor *from = qdq_tensor_of(w, n->input[k]);
    n->input[k] = from ? exact(w, from) : n->input[k];
  }
  n->name = qdq_name(w, out, "_node");
  n->output[0] = out;
  n->n_output = 1;
  qdq_grow(w, (void ***)&w->nodes, &w->nnodes, n);
  return out;
}

/* Has n, a copy of `as_read`, read integers where that reads tensors that are rounded. */
static void read_rounded(qdq_writer *w, const Onnx__NodeProto *as_read, Onnx__NodeProto *n) {
  const qdq_tensor *out = n->n_output ? qdq_tensor_of(w, n->output[0]) : NULL;
  uint32_t i;
  const cy_quant_layer *l = quantised(w, as_read, &i);
  bool precise = i < w->nlayers && w->quant.layer[i].precise;
  for (size_t k = 0; k < n->n_input; k++) {
    qdq_tensor *t = qdq_tensor_of(w, n->input[k]);
    if (!t || !t->rounded || (is_elementwise(n) && qdq_read_by_product(w, t)))
      continue;
    n->input[k] = precise ? exact(w, t) : (l && !k) || (out && out->moved) ? dequantised(w, t) : plain(w, t);
  }
}

/* Adds what rounding changed in a product in front of n back to the constant that n adds to it. */
static void correct_sum(qdq_writer *w, Onnx__NodeProto *n) {
  for (size_t k = 0; k < 2 && !strcmp(n->op_type, "Add"); k++) {
    uint32_t i;
    const Onnx__NodeProto *from = maker_of(w, n->input[k]);
    const cy_quant_layer *l = from && !strcmp(from->op_type, "MatMul") ? quantised(w, from, &i) : NULL;
    const Onnx__TensorProto *t = qdq_initializer(w, n->input[1 - k]);
    uint64_t count;
    const float *values = l && l->correct && qdq_only_reader(w, n->input[k]) ? qdq_floats(w, t, &count) : NULL;
    if (!values || count != l->channels || t->n_dims < 1 || t->dims[t->n_dims - 1] != (int64_t)count)
      continue;
    float *sum = CY_NEW_ARRAY(w->arena, float, count);
    for (uint64_t c = 0; c < count; c++)
      sum[c] = values[c] + l->correct[c];
    n->input[1 - k] = qdq_name(w, n->output[0], "_corrected");
    qdq_add_initializer(w, n->input[1 - k], ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, t->dims, t->n_dims, sum,
                        count * sizeof *sum);
  }
}

int qdq_build_static(qdq_writer *w) {
  const Onnx__GraphProto *g = w->graph;
  for (uint32_t i = 0; i < w->nlayers; i++)
    w->layers[i].balance = NULL;
  for (uint32_t t = 0; t < w->ntensors; t++) {
    w->tensors[t].balanced = w->tensors[t].moved;
    if (w->tensors[t].rounded && !w->tensors[t].moved && qdq_quant_of(w, &w->tensors[t])->balance)
      fold_balance(w, &w->tensors[t]);
  }
  for (uint32_t t = 0; t < w->ntensors; t++)
    if (w->tensors[t].rounded && !w->tensors[t].maker)
      qdq_add_pair(w, &w->tensors[t]);
  for (size_t i = 0; i < g->n_node; i++) {
    Onnx__NodeProto *n = qdq_copy_node(w, g->node[i]);
    uint32_t layer;
    correct_sum(w, n);
    read_rounded(w, g->node[i], n);
    if (quantised(w, g->node[i], &layer) && qdq_quantise_layer(w, layer, n))
      return -1;
    qdq_grow(w, (void ***)&w->nodes, &w->nnodes, n);
    for (size_t k = 0; k < n->n_output; k++) {
      const qdq_tensor *t = qdq_tensor_of(w, n->output[k]);
      if (t && t->rounded)
        qdq_add_pair(w, t);
    }
  }
  return 0;
}
