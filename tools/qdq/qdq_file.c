/* SPDX-License-Identifier: Apache-2.0 */
/* qdq_file.c - the files of a model that `cytoc quantize` reads and writes.
 *
 * In:  a model's path; tensor data may lie in other files of its folder, which are mapped. Out: a model in one file;
 * or, where it came with data in others or would be larger than the 2 GB that protobuf holds, a model MODEL.onnx with
 * its tensor data in MODEL.onnx.data, which goes with it.
 */
#define _GNU_SOURCE
#include "qdq_int.h"

#include "codegen/temps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_OUTSIDE = 1024, ALIGNED = 64 }; /* bytes: tensors that go into the other file, and where they begin */

static bool is_external(const Onnx__TensorProto *t) {
  return t->has_data_location && t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
}

/* What t needs by its shape and type; false when these make no sense. */
static bool tensor_bytes(const Onnx__TensorProto *t, uint64_t *out_bytes) {
  uint64_t n = (uint64_t)cyto_dtype_bits(t->data_type);
  for (size_t i = 0; i < t->n_dims; i++)
    if (t->dims[i] < 0 || __builtin_mul_overflow(n, (uint64_t)t->dims[i], &n))
      return false;
  *out_bytes = (n + 7) / 8;
  return n <= UINT64_MAX - 7;
}

static const void *external_data(const qdq_writer *w, const Onnx__TensorProto *t, uint64_t *out_bytes) {
  char why[CY_EXTERNAL_WHY] = "its shape and type tell no size";
  const void *data = tensor_bytes(t, out_bytes) ? cy_externals_find(w->externals, t, *out_bytes, why) : NULL;
  if (!data)
    qdq_fail(w, NULL, NULL, "initializer '%s': %s", t->name ? t->name : "", why);
  return data;
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
    const void *data = n ? external_data(w, t, &bytes) : NULL;
    return data ? cy_arena_copy(w->arena, data, bytes) : NULL; /* nothing says that it is aligned there */
  }
  if (t->has_raw_data && t->raw_data.len == n * sizeof(float))
    return cy_arena_copy(w->arena, t->raw_data.data, t->raw_data.len);
  return t->n_float_data == n ? t->float_data : NULL;
}

/* ---- all tensors of a model ------------------------------------------------------------------------------------- */

typedef struct tensors {
  Onnx__TensorProto **list;
  size_t n;
} tensors;

static void list_graph(const qdq_writer *w, const Onnx__GraphProto *g, tensors *out);

static void list_tensor(const qdq_writer *w, Onnx__TensorProto *t, tensors *out) {
  if (t)
    qdq_grow(w, (void ***)&out->list, &out->n, t);
}

static void list_sparse(const qdq_writer *w, const Onnx__SparseTensorProto *t, tensors *out) {
  list_tensor(w, t ? t->values : NULL, out);
  list_tensor(w, t ? t->indices : NULL, out);
}

static void list_nodes(const qdq_writer *w, Onnx__NodeProto **nodes, size_t n, tensors *out) {
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < nodes[i]->n_attribute; k++) {
      const Onnx__AttributeProto *a = nodes[i]->attribute[k];
      list_tensor(w, a->t, out);
      list_sparse(w, a->sparse_tensor, out);
      for (size_t j = 0; j < a->n_tensors; j++)
        list_tensor(w, a->tensors[j], out);
      list_graph(w, a->g, out);
      for (size_t j = 0; j < a->n_graphs; j++)
        list_graph(w, a->graphs[j], out);
    }
}

static void list_graph(const qdq_writer *w, const Onnx__GraphProto *g, tensors *out) {
  for (size_t i = 0; g && i < g->n_initializer; i++)
    list_tensor(w, g->initializer[i], out);
  for (size_t i = 0; g && i < g->n_sparse_initializer; i++)
    list_sparse(w, g->sparse_initializer[i], out);
  if (g)
    list_nodes(w, g->node, g->n_node, out);
}

static tensors list_all(const qdq_writer *w) {
  tensors all = {0};
  list_graph(w, w->graph, &all);
  for (size_t i = 0; i < w->model->n_functions; i++)
    list_nodes(w, w->model->functions[i]->node, w->model->functions[i]->n_node, &all);
  return all;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static void *arena_alloc(void *arena, size_t size) { return cy_arena_alloc(arena, size ? size : 1); }
static void arena_free(void *arena, void *p) { (void)arena, (void)p; }

int qdq_read(qdq_writer *w) {
  char error[TENSOR_ERROR_SIZE];
  uint8_t *bytes;
  size_t size;
  ProtobufCAllocator allocator = {arena_alloc, arena_free, w->arena};
  if (file_read(w->job->input, &bytes, &size, error))
    return qdq_fail(w, NULL, NULL, "cannot read the file: %s", error);
  w->model = onnx__model_proto__unpack(&allocator, size, bytes);
  free(bytes);
  if (!w->model || !w->model->graph)
    return qdq_fail(w, NULL, NULL, "not an ONNX model: it does not parse");
  const char *slash = strrchr(w->job->input, '/');
  w->externals = cy_externals_create(
      slash ? cy_arena_printf(w->arena, "%.*s/", (int)(slash - w->job->input), w->job->input) : ".", NULL, NULL);
  w->graph = w->model->graph;
  for (size_t i = 0; i < w->model->n_opset_import; i++) {
    const Onnx__OperatorSetIdProto *o = w->model->opset_import[i];
    if (!o->domain || !*o->domain || !strcmp(o->domain, "ai.onnx"))
      w->opset = o->version;
  }
  tensors all = list_all(w);
  for (size_t i = 0; i < all.n; i++)
    w->outside |= is_external(all.list[i]);
  return 0;
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

static Onnx__StringStringEntryProto *entry(const qdq_writer *w, const char *key, char *value) {
  Onnx__StringStringEntryProto *e = CY_NEW(w->arena, Onnx__StringStringEntryProto);
  onnx__string_string_entry_proto__init(e);
  e->key = (char *)key;
  e->value = value;
  return e;
}

/* Has t's data, already at `offset` of the other file, be looked for there. */
static void point_outside(const qdq_writer *w, Onnx__TensorProto *t, const char *location, uint64_t offset,
                          uint64_t bytes) {
  t->has_raw_data = 0;
  t->raw_data = (ProtobufCBinaryData){0};
  t->has_data_location = 1;
  t->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
  t->external_data = NULL;
  t->n_external_data = 0;
  void ***list = (void ***)&t->external_data;
  qdq_grow(w, list, &t->n_external_data, entry(w, "location", (char *)location));
  qdq_grow(w, list, &t->n_external_data,
           entry(w, "offset", cy_arena_printf(w->arena, "%llu", (unsigned long long)offset)));
  qdq_grow(w, list, &t->n_external_data,
           entry(w, "length", cy_arena_printf(w->arena, "%llu", (unsigned long long)bytes)));
}

static int write_data(const qdq_writer *w, const tensors *all, const char *location, FILE *f) {
  static const char zeros[ALIGNED];
  uint64_t at = 0;
  for (size_t i = 0; i < all->n; i++) {
    Onnx__TensorProto *t = all->list[i];
    uint64_t bytes = t->has_raw_data ? t->raw_data.len : 0, gap = -at % ALIGNED;
    const void *data = t->raw_data.data;
    if (!is_external(t) && bytes < MIN_OUTSIDE)
      continue;
    if (is_external(t) && !(data = external_data(w, t, &bytes)))
      return -1;
    if (fwrite(zeros, 1, gap, f) != gap || fwrite(data, 1, bytes, f) != bytes)
      return qdq_fail(w, NULL, NULL, "cannot write '%s': %s", location, strerror(errno));
    point_outside(w, t, location, at + gap, bytes);
    at += gap + bytes;
  }
  return 0;
}

/* Tensor data into a file that becomes `path`; what it is called until then, NULL after a diagnostic. */
static const char *save_data(const qdq_writer *w, cy_temps *temps, const tensors *all, const char *path) {
  const char *slash = strrchr(path, '/'), *near = cy_temps_near(temps, path);
  FILE *f = near ? fopen(near, "wb") : NULL;
  int status = f ? write_data(w, all, slash ? slash + 1 : path, f) : -1;
  if (near && (!f || (fclose(f) && !status)))
    status = qdq_fail(w, NULL, NULL, "cannot write '%s': %s", path, strerror(errno));
  return status ? NULL : near;
}

/* The same for the model. */
static const char *save_model(const qdq_writer *w, cy_temps *temps, const char *path) {
  size_t size = onnx__model_proto__get_packed_size(w->model);
  if (size > INT32_MAX)
    return qdq_fail(w, NULL, NULL, "the model without its tensor data is larger than 2 GB"), NULL;
  uint8_t *bytes = malloc(size ? size : 1);
  if (!bytes)
    cy_no_memory();
  onnx__model_proto__pack(w->model, bytes);
  const char *near = cy_temps_near(temps, path);
  if (near && !cy_file_write(near, bytes, size)) {
    qdq_fail(w, NULL, NULL, "cannot write '%s': %s", path, strerror(errno));
    near = NULL;
  }
  free(bytes);
  return near;
}

int qdq_save(const qdq_writer *w) {
  const char *path = w->job->output, *data_path = cy_arena_printf(w->arena, "%s.data", path), *data = NULL;
  tensors all = list_all(w);
  bool outside = w->outside || onnx__model_proto__get_packed_size(w->model) > INT32_MAX;
  cy_temps *temps = cy_temps_create(w->diag);
  if (temps && outside)
    data = save_data(w, temps, &all, data_path);
  const char *model = temps && (data || !outside) ? save_model(w, temps, path) : NULL;
  int status = model ? 0 : -1;
  if (model && data)
    status = cy_temps_commit(data, data_path, w->diag);
  if (!status)
    status = cy_temps_commit(model, path, w->diag);
  cy_temps_destroy(temps);
  return status;
}
