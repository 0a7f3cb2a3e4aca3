/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ops_maps.c - operators on maps: objects with a list of keys (int64 or strings, as numbers of texts) and one of
 * values, both tensors of rank 1 in the context's store. See rt_ops.def.
 */
#include "runtime/values.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of an element as the store holds it. */
static size_t unit_of(int32_t dtype) {
  return dtype == CYTO_STRING ? sizeof(int32_t) : (size_t)cyto_dtype_bits(dtype) / 8;
}

static int64_t key_at(const cyrt_tensor *t, int64_t i) {
  return t->dtype == CYTO_STRING || t->dtype == CYTO_I32 ? ((const int32_t *)t->data)[i]
                                                         : ((const int64_t *)t->data)[i];
}

/* Keys and values of a map; 0 after an error. */
static int open_map(cyrt_frame *frame, const char *op, const cyrt_tensor *in, cyrt_tensor *keys, cyrt_tensor *values,
                    int32_t *status) {
  const cyrt_object *map = cyrt_object_at(frame, *(const int32_t *)in->data);
  const cyrt_object *k = map && map->kind == CYTO_MAP ? cyrt_object_at(frame, map->keys) : NULL;
  const cyrt_object *v = k ? cyrt_object_at(frame, map->vals) : NULL;
  if (v) {
    *keys = k->tensor;
    *values = v->tensor;
    return 1;
  }
  *status = cyrt_fail(frame, CYTO_RUNTIME_FAILURE, "%s: the value is no map", op);
  return 0;
}

/* A list of `count` elements in the store, copied from data. */
static int32_t add_list(cyrt_frame *frame, int32_t dtype, const void *data, int64_t count, int32_t *out_number) {
  cyrt_object object = {.kind = CYTO_TENSOR, .tensor = {.dtype = dtype, .rank = 1, .dims = {count}}};
  size_t bytes = (size_t)count * unit_of(dtype);
  int32_t status = cyrt_values_alloc(frame, bytes, &object.tensor.data);
  if (status)
    return status;
  if (bytes)
    memcpy(object.tensor.data, data, bytes);
  return cyrt_object_add(frame, &object, out_number);
}

int32_t cyrt_op_zip_maps(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                         const cyrt_attr *attr) {
  (void)n_in, (void)n_out, (void)attr;
  int64_t rows = in[0].dims[0], columns = in[0].dims[1];
  cyrt_object map = {.kind = CYTO_MAP}, all = {.kind = CYTO_SEQUENCE, .count = rows};
  void *list, *items;
  if (columns != in[1].dims[0])
    return cyrt_fail(frame, CYTO_SHAPE_MISMATCH, "ZipMap: found %lld columns, expected %lld, one for each label",
                     (long long)columns, (long long)in[1].dims[0]);
  int32_t status = add_list(frame, in[1].dtype, in[1].data, columns, &map.keys);
  if (!status)
    status = cyrt_values_alloc(frame, sizeof(cyrt_list), &list);
  if (!status)
    status = cyrt_values_alloc(frame, (uint64_t)rows * sizeof(int32_t), &items);
  size_t pitch = (size_t)columns * unit_of(in[0].dtype);
  for (int64_t i = 0; i < rows && !status; i++) {
    status = add_list(frame, in[0].dtype, (const uint8_t *)in[0].data + (size_t)i * pitch, columns, &map.vals);
    if (!status)
      status = cyrt_object_add(frame, &map, &((int32_t *)items)[i]);
  }
  if (status)
    return status;
  all.list = list;
  *all.list = (cyrt_list){.used = rows, .capacity = rows, .items = items};
  return cyrt_object_add(frame, &all, out[0].data);
}

int32_t cyrt_op_map_find(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                         const cyrt_attr *attr) {
  (void)n_in, (void)n_out, (void)attr;
  cyrt_tensor keys, values;
  int32_t status = CYTO_OK;
  size_t unit = unit_of(out[0].dtype);
  if (!open_map(frame, "DictVectorizer", &in[0], &keys, &values, &status))
    return status;
  for (int64_t i = 0; i < in[1].dims[0]; i++) {
    int64_t wanted = key_at(&in[1], i), k = 0;
    while (k < keys.dims[0] && key_at(&keys, k) != wanted)
      k++;
    uint8_t *to = (uint8_t *)out[0].data + (size_t)i * unit;
    if (k < keys.dims[0])
      memcpy(to, (const uint8_t *)values.data + (size_t)k * unit, unit);
    else
      memset(to, 0, unit);
  }
  return CYTO_OK;
}

typedef struct item {
  int64_t key, index;
} item;

static int by_key(const void *a, const void *b) {
  const item *x = a, *y = b;
  return (x->key > y->key) - (x->key < y->key);
}

int32_t cyrt_op_map_items(cyrt_frame *frame, const cyrt_tensor *in, int32_t n_in, cyrt_tensor *out, int32_t n_out,
                          const cyrt_attr *attr) {
  (void)n_in, (void)n_out, (void)attr;
  cyrt_tensor keys, values;
  int32_t status = CYTO_OK;
  if (!open_map(frame, "CastMap", &in[0], &keys, &values, &status))
    return status;
  int64_t count = keys.dims[0];
  out[0].dims[0] = out[1].dims[0] = count;
  if (!out[0].data)
    return CYTO_OK;
  uint64_t room = (uint64_t)count * sizeof(item);
  item *items = cyrt_scratch_alloc(frame, room);
  if (!items)
    return cyrt_fail(frame, CYTO_OUT_OF_MEMORY, "CastMap: no memory for scratch");
  for (int64_t i = 0; i < count; i++)
    items[i] = (item){key_at(&keys, i), i};
  qsort(items, (size_t)count, sizeof *items, by_key);
  size_t unit = unit_of(values.dtype);
  for (int64_t i = 0; i < count; i++) {
    ((int64_t *)out[0].data)[i] = items[i].key;
    memcpy((uint8_t *)out[1].data + (size_t)i * unit, (const uint8_t *)values.data + (size_t)items[i].index * unit,
           unit);
  }
  cyrt_scratch_free(frame, items, room);
  return CYTO_OK;
}
