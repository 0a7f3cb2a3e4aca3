/* SPDX-License-Identifier: Apache-2.0 */
/* jobs.h - what tests of the compiler as a library share: small models as bytes, a job with a record of its callbacks, and
 * what a process has that must not become more.
 */
#ifndef TESTS_DRIVER_JOBS_H
#define TESTS_DRIVER_JOBS_H

#include "onnx.pb-c.h"
#include "tests/check.h"
#include "tools/driver/cytoc.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
/* The library starts a thread in a child of a process with threads, as a program may with this C library. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }
#endif

enum { JOBS_ROWS = 4, JOBS_COLUMNS = 3, MAX_JOBS = 400 };

typedef struct bytes {
  uint8_t *data;
  size_t size;
} bytes;

static inline bytes file_bytes(const char *path) {
  bytes b = {0};
  FILE *f = fopen(path, "rb");
  if (!f)
    return b;
  fseek(f, 0, SEEK_END);
  b.size = (size_t)ftell(f);
  rewind(f);
  b.data = malloc(b.size + 1);
  b.size = fread(b.data, 1, b.size, f);
  b.data[b.size] = 0;
  fclose(f);
  return b;
}

static inline bool same_bytes(bytes a, const void *data, size_t size) {
  return a.data && a.size == size && !memcmp(a.data, data, size);
}

/* ---- a model: y = x w, where w lies in a file "w.bin" behind 16 other bytes, or in the model ---- */

typedef struct product {
  bool external;
  int columns_declared; /* rows of w by its declaration; not JOBS_ROWS: the model is wrong */
} product;

static const float jobs_weights[JOBS_ROWS * JOBS_COLUMNS] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

static inline void set_entry(Onnx__StringStringEntryProto *e, const char *key, const char *value) {
  onnx__string_string_entry_proto__init(e);
  e->key = (char *)key;
  e->value = (char *)value;
}

/* A float tensor's declaration. */
typedef struct declared {
  Onnx__ValueInfoProto info;
  Onnx__TypeProto type;
  Onnx__TypeProto__Tensor tensor;
  Onnx__TensorShapeProto shape;
  Onnx__TensorShapeProto__Dimension dim[2], *dims[2];
} declared;

static inline void declare(declared *d, const char *name, int64_t rows, int64_t columns) {
  onnx__value_info_proto__init(&d->info);
  onnx__type_proto__init(&d->type);
  onnx__type_proto__tensor__init(&d->tensor);
  onnx__tensor_shape_proto__init(&d->shape);
  for (int i = 0; i < 2; i++) {
    onnx__tensor_shape_proto__dimension__init(&d->dim[i]);
    d->dim[i].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
    d->dim[i].dim_value = i ? columns : rows;
    d->dims[i] = &d->dim[i];
  }
  d->shape.n_dim = 2;
  d->shape.dim = d->dims;
  d->tensor.has_elem_type = 1;
  d->tensor.elem_type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
  d->tensor.shape = &d->shape;
  d->type.value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
  d->type.tensor_type = &d->tensor;
  d->info.name = (char *)name;
  d->info.type = &d->type;
}

static inline bytes product_bytes(product p) {
  Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
  Onnx__GraphProto graph = ONNX__GRAPH_PROTO__INIT;
  Onnx__NodeProto node = ONNX__NODE_PROTO__INIT, *nodes[] = {&node};
  Onnx__TensorProto weights = ONNX__TENSOR_PROTO__INIT, *initializers[] = {&weights};
  Onnx__OperatorSetIdProto opset = ONNX__OPERATOR_SET_ID_PROTO__INIT, *opsets[] = {&opset};
  Onnx__StringStringEntryProto entry[3], *entries[] = {&entry[0], &entry[1], &entry[2]};
  char *inputs[] = {"x", "w"}, *outputs[] = {"y"};
  int64_t dims[] = {p.columns_declared, JOBS_COLUMNS};
  declared x, y;
  declare(&x, "x", 2, JOBS_ROWS);
  declare(&y, "y", 2, JOBS_COLUMNS);
  Onnx__ValueInfoProto *ins[] = {&x.info}, *outs[] = {&y.info};
  node.name = "product";
  node.op_type = "MatMul";
  node.n_input = 2;
  node.input = inputs;
  node.n_output = 1;
  node.output = outputs;
  weights.name = "w";
  weights.n_dims = 2;
  weights.dims = dims;
  weights.has_data_type = 1;
  weights.data_type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
  char length[20];
  snprintf(length, sizeof length, "%d", p.columns_declared * JOBS_COLUMNS * 4);
  set_entry(&entry[0], "location", "w.bin");
  set_entry(&entry[1], "offset", "16");
  set_entry(&entry[2], "length", length);
  if (p.external) {
    weights.has_data_location = 1;
    weights.data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    weights.n_external_data = 3;
    weights.external_data = entries;
  } else {
    weights.has_raw_data = 1;
    weights.raw_data.data = (uint8_t *)jobs_weights;
    weights.raw_data.len = (size_t)p.columns_declared * JOBS_COLUMNS * 4;
  }
  graph.name = "main";
  graph.n_node = 1;
  graph.node = nodes;
  graph.n_initializer = 1;
  graph.initializer = initializers;
  graph.n_input = graph.n_output = 1;
  graph.input = ins;
  graph.output = outs;
  opset.domain = "";
  opset.has_version = 1;
  opset.version = 17;
  model.has_ir_version = 1;
  model.ir_version = 8;
  model.n_opset_import = 1;
  model.opset_import = opsets;
  model.graph = &graph;
  bytes b = {.size = onnx__model_proto__get_packed_size(&model)};
  b.data = malloc(b.size);
  onnx__model_proto__pack(&model, b.data);
  return b;
}

/* ---- a job that remembers ---- */

typedef struct heard {
  cytoc_diagnostic last; /* texts below */
  char text[7][600];
  int errors, warnings;
  struct {
    char stage[16];
    int64_t done, total;
  } progress[MAX_JOBS];
  int n_progress;
  const char *cancel_at; /* stage; NULL: never */
  int external_calls, external_code;
  uint64_t external_short; /* so many bytes too few */
  int wrong_thread;
  pthread_t thread;
  void (*meanwhile)(struct heard *h, const char *stage);
} heard;

static inline void hear_diagnostic(void *ctx, const cytoc_diagnostic *d) {
  heard *h = ctx;
  const char *const given[] = {d->file, d->graph, d->node, d->op, d->item, d->text, d->line};
  h->wrong_thread += !pthread_equal(pthread_self(), h->thread);
  h->errors += d->severity == CYTOC_ERROR;
  h->warnings += d->severity == CYTOC_WARNING;
  h->last = *d;
  for (int i = 0; i < 7; i++)
    snprintf(h->text[i], sizeof h->text[i], "%s", given[i]);
  h->last.file = h->text[0];
  h->last.graph = h->text[1];
  h->last.node = h->text[2];
  h->last.op = h->text[3];
  h->last.item = h->text[4];
  h->last.text = h->text[5];
  h->last.line = h->text[6];
}

static inline int hear_progress(void *ctx, const char *stage, int64_t done, int64_t total) {
  heard *h = ctx;
  h->wrong_thread += !pthread_equal(pthread_self(), h->thread);
  if (h->n_progress < MAX_JOBS) {
    snprintf(h->progress[h->n_progress].stage, 16, "%s", stage);
    h->progress[h->n_progress].done = done;
    h->progress[h->n_progress++].total = total;
  }
  if (h->meanwhile)
    h->meanwhile(h, stage);
  return h->cancel_at && !strcmp(stage, h->cancel_at) ? 7 : 0;
}

static inline int give_weights(void *ctx, const char *location, uint64_t offset, uint64_t length, const void **out_data,
                               uint64_t *out_size) {
  heard *h = ctx;
  h->external_calls++;
  h->wrong_thread += !pthread_equal(pthread_self(), h->thread);
  if (strcmp(location, "w.bin") || offset != 16 || length != sizeof jobs_weights)
    return 99;
  *out_data = jobs_weights;
  *out_size = sizeof jobs_weights - h->external_short;
  return h->external_code;
}

static inline cytoc_job job_of(heard *h) {
  h->thread = pthread_self();
  return (cytoc_job){
      .struct_size = sizeof(cytoc_job), .ctx = h, .on_diagnostic = hear_diagnostic, .on_progress = hear_progress};
}

/* ---- what must not become more ---- */

static inline int entries_of(const char *folder) {
  int n = 0;
  DIR *dir = opendir(folder);
  for (struct dirent *e; dir && (e = readdir(dir));)
    n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
  if (dir)
    closedir(dir);
  return n;
}

static inline int open_files(void) { return entries_of("/proc/self/fd"); }

static inline bool has_children(void) { return waitpid(-1, NULL, WNOHANG) >= 0; }

/* A folder of this test's own, which is TMPDIR from now on; it must be empty in the end. */
static inline const char *own_tmpdir(void) {
  static char path[CHECK_PATH];
  if (!*path && check_folder("cytoc-test", path))
    setenv("TMPDIR", path, 1);
  return path;
}

#endif
