/* SPDX-License-Identifier: Apache-2.0 */
/* qdq.c - writes the QDQ form of a float model: ONNX in, ONNX out, with protobuf-c.
 *
 * In:  a model of operator set 7 or newer, samples. Out: a model of operator set 13 or newer in which the inputs of
 * Conv, Gemm and MatMul with constant weights, and of the pooling, concatenation, addition, resampling and views
 * between them, are followed by QuantizeLinear and DequantizeLinear (u8, a scale and zero point per tensor); weights
 * are s8 with a scale per output channel, biases i32 with the scale of their products, both behind DequantizeLinear.
 *
 * Method: that of --int8=static (cytoc_quantise.c), which runs several models; where that has the pass
 * `quantise` make them of a graph, here they are made of the ONNX model, as each is read: with tensors as further
 * outputs, with every layer measured, with one layer in integers, with all of them. The last is what is written. The
 * rest of the file stays as it was: names, other operators, metadata.
 */
#define _GNU_SOURCE
#include "qdq_int.h"

#include "tools/calibrate/cytoc_whole.h"

#include <stdlib.h>
#include <string.h>

static void add_observed(qdq_writer *w) {
  Onnx__GraphProto *g = w->graph;
  w->nodes = g->node;
  w->nnodes = g->n_node;
  for (uint32_t t = 0; t < w->ntensors; t++) {
    size_t at = 0;
    while (at < g->n_output && strcmp(g->output[at]->name, w->tensors[t].name))
      at++;
    if (at == g->n_output)
      qdq_add_output(w, (char *)w->tensors[t].name);
    w->quant.tensor[t] = (cy_quant_tensor){
        .value = t + 1, .name = w->tensors[t].name, .output = (uint32_t)at, .axis = -1, .channels = 1};
  }
}

/* The model that the quantisation asks for, in the place of the model; what was read stays in *out_read. */
static int build(qdq_writer *w, Onnx__GraphProto *out_read) {
  Onnx__GraphProto *g = w->graph;
  int status = 0;
  *out_read = *g;
  if (g->n_initializer) /* these lists are changed where they are */
    g->initializer = cy_arena_copy(w->arena, g->initializer, g->n_initializer * sizeof *g->initializer);
  if (g->n_input)
    g->input = cy_arena_copy(w->arena, g->input, g->n_input * sizeof *g->input);
  w->nodes = NULL;
  w->nnodes = 0;
  if (w->quant.mode != CY_QUANT_OBSERVE)
    qdq_choose_scales(w);
  switch (w->quant.mode) {
  case CY_QUANT_OBSERVE:
    add_observed(w);
    break;
  case CY_QUANT_MEASURE:
    status = qdq_build_measuring(w);
    break;
  case CY_QUANT_SINGLE:
    status = qdq_build_single(w);
    break;
  default:
    status = qdq_build_static(w);
  }
  qdq_drop_unused(w);
  g->node = w->nodes;
  g->n_node = w->nnodes;
  return status;
}

static cy_graph *read_graph(void *ctx) {
  qdq_writer *w = ctx;
  Onnx__GraphProto read;
  int status = build(w, &read);
  size_t size = onnx__model_proto__get_packed_size(w->model);
  free(w->packed); /* the graph that was made of it is gone */
  w->packed = malloc(size + 1);
  if (!w->packed)
    cy_no_memory();
  onnx__model_proto__pack(w->model, w->packed);
  *w->graph = read;
  const char *name = w->job->input; /* with a folder, or external data is not looked for */
  name = strchr(name, '/') ? name : cy_arena_printf(w->arena, "./%s", name);
  cy_graph *g = status ? NULL : cy_import_memory(w->packed, size, name, &w->job->import, w->diag);
  if (g && w->quant.mode == CY_QUANT_OBSERVE) {
    qdq_describe_tensors(w, g);
    qdq_describe_layers(w, g);
  }
  return g;
}

static int calibrate(qdq_writer *w) {
  cytoc_quantise how = w->job->calibrate;
  how.graph = read_graph;
  how.ctx = w;
  how.in_mode = true;
  for (uint32_t i = 0; i < w->nlayers; i++)
    w->quant.layer[i].input = w->layers[i].tensor + 1;
  w->quant.tensor = CY_NEW_ARRAY(w->quant.arena, cy_quant_tensor, w->ntensors + 1);
  w->quant.ntensors = w->ntensors;
  return cytoc_calibrate(&how, &w->quant);
}

static int save(qdq_writer *w) {
  Onnx__GraphProto read;
  return build(w, &read) ? -1 : qdq_save(w);
}

static void report(qdq_writer *w) {
  cytoc_quantise_check(&w->quant, w->diag);
  cytoc_whole_check(&w->job->calibrate, &w->quant);
  if (w->job->explain) {
    cytoc_quantise_table(&w->quant, "int8", stdout);
    cytoc_whole_table(&w->quant, stdout);
  }
}

int qdq_write(const qdq_job *job) {
  qdq_writer w = {.job = job, .diag = job->calibrate.diag, .arena = cy_arena_create()};
  cy_quant_init(&w.quant, CY_QUANT_OBSERVE);
  int status = qdq_read(&w);
  if (!status) {
    qdq_list_names(&w);
    status = qdq_upgrade(&w);
  }
  if (!status)
    status = qdq_list_layers(&w);
  if (!status) {
    qdq_list_tensors(&w);
    status = calibrate(&w);
  }
  if (!status)
    status = save(&w);
  if (!status)
    report(&w);
  free(w.packed);
  cy_quant_deinit(&w.quant);
  cy_externals_destroy(w.externals);
  cy_arena_destroy(w.arena);
  return status;
}
