/* qdq_int.h - what the files of `cytoc quantize` share: the model being rewritten, and small edits of it.
 *
 * qdq.c          which tensors, their ranges, QuantizeLinear and DequantizeLinear
 * qdq_upgrade.c  models of older operator sets
 * qdq_file.c     the model's file, and those beside it that hold tensor data
 */
#ifndef QDQ_INT_H
#define QDQ_INT_H

#include "qdq.h"

#include "frontend/external.h"

enum { QDQ_OLDEST = 7, QDQ_WANTED = 13 }; /* operator sets that are read; the least that is written */

typedef struct qdq_tensor {
  const char *name; /* ONNX's */
  float scale;
  int zero;
} qdq_tensor;

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
  qdq_tensor *tensors; /* to be quantised */
  uint32_t ntensors;
  cy_quant quant;
  Onnx__NodeProto **nodes; /* what takes the place of graph->node */
  size_t nnodes;
  uint8_t *observed; /* the model with tensors as outputs */
  size_t observed_size;
} qdq_writer;

/* Files an error of the model, at node and op unless NULL; returns -1. */
int qdq_fail(const qdq_writer *w, const char *node, const char *op, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* A name that no value of the model has, the same for the same arguments: `name` with `ending`, and a number if need be. */
char *qdq_name(const qdq_writer *w, const char *name, const char *ending);
void qdq_grow(const qdq_writer *w, void ***list, size_t *n, void *item);
bool qdq_is_one_of(const char *op, const char *list); /* of names with a space between them */
const Onnx__AttributeProto *qdq_attribute(const Onnx__NodeProto *n, const char *name);
int64_t qdq_int_attribute(const Onnx__NodeProto *n, const char *name, int64_t otherwise);
void qdq_add_initializer(qdq_writer *w, char *name, int dtype, const int64_t *dims, size_t ndims, const void *data,
                         size_t bytes);
Onnx__NodeProto *qdq_add_node(qdq_writer *w, const char *op, char **inputs, size_t ninputs, char *output);
void qdq_set_int(const qdq_writer *w, Onnx__NodeProto *n, const char *name, int64_t value);
void qdq_set_string(const qdq_writer *w, Onnx__NodeProto *n, const char *name, const char *value);
Onnx__TensorProto *qdq_initializer(const qdq_writer *w, const char *name); /* NULL: none */
/* Its f32 elements; NULL when it is something else, or after an error. */
const float *qdq_floats(const qdq_writer *w, const Onnx__TensorProto *t, uint64_t *out_n);

/* ---- qdq_upgrade.c: 0, or -1 after a diagnostic ---- */
int qdq_upgrade(qdq_writer *w);

/* ---- qdq_file.c: 0, or -1 after a diagnostic ---- */
int qdq_read(qdq_writer *w);
/* The data of t that lies in another file; NULL after a diagnostic. */
const void *qdq_external(const qdq_writer *w, const Onnx__TensorProto *t, uint64_t *out_bytes);
int qdq_save(const qdq_writer *w);

#endif
