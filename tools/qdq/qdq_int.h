/* SPDX-License-Identifier: Apache-2.0 */
/* qdq_int.h - what the files of `cytoc quantize` share: the model being rewritten, and small edits of it.
 *
 * qdq.c          the models that are run on samples, and the one that is written
 * qdq_graph.c    looking at the model and adding to it
 * qdq_tensors.c  which tensors are rounded, their scales
 * qdq_layers.c   weights, biases, QuantizeLinear and DequantizeLinear
 * qdq_measure.c  the models that tell what quantising does to each layer
 * qdq_upgrade.c  models of older operator sets
 * qdq_file.c     the model's file, and those beside it that hold tensor data
 */
#ifndef QDQ_INT_H
#define QDQ_INT_H

#include "qdq.h"

#include "frontend/file/external.h"

enum { QDQ_OLDEST = 7, QDQ_WANTED = 13 }; /* operator sets that are read; the least that is written */

/* Number t is number t of quant.tensor, whose `value` is t + 1. */
typedef struct qdq_tensor {
  const char *name;             /* ONNX's */
  const Onnx__NodeProto *maker; /* as read; NULL: none */
  int rank;
  /* for the model being built, by qdq_choose_scales() */
  bool rounded;
  bool moved;    /* made of other tensors that are rounded, by moving their elements */
  bool balanced; /* its maker makes it divided by its balance */
  bool plain;    /* there is a node that multiplies it by its balance again */
  bool exact;    /* a second node makes it from unrounded inputs */
  double low, high;
  float scale;
  int zero;
  uint32_t group; /* union-find: tensors of a group share a scale */
} qdq_tensor;

/* A contraction with constant weights in f32; number i is number i of quant.layer. */
typedef struct qdq_layer {
  const Onnx__NodeProto *node; /* as read */
  uint32_t tensor;             /* that it reads */
  size_t axis;                 /* of its weights: output channels */
  int8_t *ints;                /* its weights, times the balance of what it reads; NULL: not known yet */
  float *scale;                /* [channels] */
  int rank;                    /* of what it puts out */
  const float *balance;        /* [channels]: what it puts out is divided by this; NULL: it is not */
} qdq_layer;

typedef struct qdq_writer {
  const qdq_job *job;
  cy_diag_sink *diag;
  cy_arena *arena; /* of all messages, which are never freed one by one */
  cy_externals *externals;
  Onnx__ModelProto *model;
  Onnx__GraphProto *graph;
  const char **names; /* of all values, as read; sorted */
  size_t nnames;
  int64_t opset;       /* as read */
  bool outside;        /* read with tensor data in other files, and written so */
  qdq_tensor *tensors; /* that may be quantised */
  qdq_layer *layers;
  uint32_t ntensors, nlayers;
  cy_quant quant;
  Onnx__NodeProto **nodes; /* what takes the place of graph->node */
  size_t nnodes;
  uint8_t *packed; /* the model that was built last */
} qdq_writer;

/* ---- qdq_graph.c ---- */
/* Files an error of the model, at node and op unless NULL; returns -1. */
int qdq_fail(const qdq_writer *w, const char *node, const char *op, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Names of the model's values, for qdq_name(). */
void qdq_list_names(qdq_writer *w);
/* A name that no value of the model has, the same for the same arguments: `name` with `ending`, and a number if need be. */
char *qdq_name(const qdq_writer *w, const char *name, const char *ending);
void qdq_grow(const qdq_writer *w, void ***list, size_t *n, void *item);
bool qdq_is_one_of(const char *op, const char *list); /* of names with a space between them */
const Onnx__AttributeProto *qdq_attribute(const Onnx__NodeProto *n, const char *name);
int64_t qdq_int_attribute(const Onnx__NodeProto *n, const char *name, int64_t otherwise);
void qdq_add_initializer(qdq_writer *w, char *name, int dtype, const int64_t *dims, size_t ndims, const void *data,
                         size_t bytes);
Onnx__NodeProto *qdq_add_node(qdq_writer *w, const char *op, char **inputs, size_t ninputs, char *output);
/* A copy of n, whose inputs and attributes may change; added to the nodes by the caller. */
Onnx__NodeProto *qdq_copy_node(const qdq_writer *w, const Onnx__NodeProto *n);
void qdq_set_int(const qdq_writer *w, Onnx__NodeProto *n, const char *name, int64_t value);
void qdq_set_string(const qdq_writer *w, Onnx__NodeProto *n, const char *name, const char *value);
void qdq_add_output(qdq_writer *w, char *name); /* a further output of the model */
bool qdq_is_output(const qdq_writer *w, const char *name);
bool qdq_read_by_bodies(const qdq_writer *w, const char *name); /* of nodes with graphs in them */
/* The one node that reads a value; NULL: several do, or none, or what is not a node. */
const Onnx__NodeProto *qdq_only_reader(const qdq_writer *w, const char *name);
Onnx__TensorProto *qdq_initializer(const qdq_writer *w, const char *name); /* NULL: none */
cy_val qdq_value_of(const cy_graph *g, const char *name); /* of the model as imported; 0: none */
/* Initializers that no node reads any more go. */
void qdq_drop_unused(qdq_writer *w);

/* ---- qdq_tensors.c ---- */
void qdq_list_tensors(qdq_writer *w);                             /* from the layers */
void qdq_describe_tensors(qdq_writer *w, const cy_graph *g);      /* by their types, as imported */
qdq_tensor *qdq_tensor_of(const qdq_writer *w, const char *name); /* NULL: none */
const cy_quant_tensor *qdq_quant_of(const qdq_writer *w, const qdq_tensor *t);
/* How many inputs of what makes t are rounded if t is. */
size_t qdq_rounded_inputs(const qdq_writer *w, const qdq_tensor *t);
bool qdq_read_by_product(const qdq_writer *w, const qdq_tensor *t);
void qdq_choose_scales(qdq_writer *w); /* which are rounded with the layers that are so now, and how */

/* ---- qdq_layers.c: 0, or -1 after a diagnostic ---- */
int qdq_list_layers(qdq_writer *w);
/* Ranks, and how much they compute, by the types of what they put out. */
void qdq_describe_layers(qdq_writer *w, const cy_graph *g);
/* Quantises and dequantises t as it is in the model; divided by its balance, unless it comes so. */
void qdq_add_pair(qdq_writer *w, const qdq_tensor *t);
/* Has n, the node of layer i or a copy, read integers; its bias corrected if that is known. */
int qdq_quantise_layer(qdq_writer *w, uint32_t i, Onnx__NodeProto *n);
int qdq_channel_axis(const qdq_layer *l); /* of what it puts out */
/* values[channels], shaped to broadcast along `axis` of a value of that rank: an initializer of that name. */
char *qdq_add_factors(qdq_writer *w, char *name, const float *values, int64_t channels, int rank, int axis);
int qdq_build_static(qdq_writer *w);

/* ---- qdq_measure.c: models for CY_QUANT_MEASURE and CY_QUANT_SINGLE; 0, or -1 after a diagnostic ---- */
int qdq_build_measuring(qdq_writer *w);
int qdq_build_single(qdq_writer *w);

/* ---- qdq_upgrade.c: 0, or -1 after a diagnostic ---- */
int qdq_upgrade(qdq_writer *w);

/* ---- qdq_file.c: 0, or -1 after a diagnostic ---- */
int qdq_read(qdq_writer *w);
/* Its f32 elements; NULL when it is something else, or after an error. */
const float *qdq_floats(const qdq_writer *w, const Onnx__TensorProto *t, uint64_t *out_n);
int qdq_save(const qdq_writer *w);

#endif
