/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_pb.c - ONNX TensorProto files, by the protobuf wire format itself, so that the tools need no protobuf library.
 *
 * Fields used: 1 dims, 2 data_type, 4 float_data, 5 int32_data, 6 string_data, 7 int64_data, 8 name, 9 raw_data,
 * 10 double_data, 11 uint64_data. Repeated numbers may come packed or one by one. Typed data is gathered by type as the
 * standard lays down: the small types, bool, float16 and bfloat16 sit in int32_data by their bits, complex numbers are
 * pairs in float_data or double_data, 2- and 4-bit elements are packed in raw_data and in the low byte of int32_data
 * alike.
 */
#include "value_file.h"

#include "runtime/half.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
enum {
  F_DIMS = 1,
  F_TYPE = 2,
  F_FLOAT = 4,
  F_INT32 = 5,
  F_STRING = 6,
  F_INT64 = 7,
  F_NAME = 8,
  F_RAW = 9,
  F_DOUBLE = 10,
  F_UINT64 = 11,
  F_LOCATION = 14
};

/* A run of bytes being read. */
typedef struct span {
  const uint8_t *at, *end;
} span;

static int read_varint(span *s, uint64_t *out_value) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && s->at < s->end; shift += 7) {
    uint8_t byte = *s->at++;
    value |= (uint64_t)(byte & 127) << shift;
    if (!(byte & 128)) {
      *out_value = value;
      return 1;
    }
  }
  return 0;
}

static int read_fixed(span *s, size_t bytes, uint64_t *out_value) {
  if ((size_t)(s->end - s->at) < bytes)
    return 0;
  *out_value = 0;
  memcpy(out_value, s->at, bytes); /* the wire and all our machines are little-endian */
  s->at += bytes;
  return 1;
}

/* One field: its number, and its value in `value` or `bytes`. */
static int read_field(span *s, uint32_t *out_field, uint32_t *out_wire, uint64_t *out_value, span *out_bytes) {
  uint64_t key, length;
  if (!read_varint(s, &key))
    return 0;
  *out_field = (uint32_t)(key >> 3);
  *out_wire = key & 7;
  switch (key & 7) {
  case WIRE_VARINT:
    return read_varint(s, out_value);
  case WIRE_64:
    return read_fixed(s, 8, out_value);
  case WIRE_32:
    return read_fixed(s, 4, out_value);
  case WIRE_BYTES:
    if (!read_varint(s, &length) || length > (uint64_t)(s->end - s->at))
      return 0;
    *out_bytes = (span){s->at, s->at + length};
    s->at += length;
    return 1;
  default:
    return 0;
  }
}

/* What elements of a number field are, on the wire and in memory. */
static uint32_t field_wire(uint32_t field) {
  return field == F_FLOAT ? WIRE_32 : field == F_DOUBLE ? WIRE_64 : WIRE_VARINT;
}

/* The field that holds typed data of a dtype, and how many bytes of memory one of its numbers fills. */
static uint32_t dtype_field(int32_t dtype, size_t *out_unit) {
  int32_t bits = cyto_dtype_bits(dtype);
  *out_unit = bits < 8 ? 1 : (size_t)bits / 8;
  switch (dtype) {
  case CYTO_C64:
    *out_unit = 4; /* fall through */
  case CYTO_F32:
    return F_FLOAT;
  case CYTO_C128:
    *out_unit = 8; /* fall through */
  case CYTO_F64:
    return F_DOUBLE;
  case CYTO_I64:
    return F_INT64;
  case CYTO_U32:
  case CYTO_U64:
    return F_UINT64;
  default:
    return F_INT32;
  }
}

/* Stores one number of a typed field; 0 when there are more than fit. */
static int store(host_tensor *tensor, size_t *used, size_t unit, uint64_t value) {
  if (*used + unit > tensor->bytes)
    return 0;
  memcpy((uint8_t *)tensor->data + *used, &value, unit);
  *used += unit;
  return 1;
}

static int bad(const char *path, const char *what, char error[TENSOR_ERROR_SIZE]) {
  snprintf(error, TENSOR_ERROR_SIZE, "'%s': %s", path, what);
  return -1;
}

static int push_dim(host_tensor *tensor, uint64_t value) {
  if (tensor->rank == CYTO_MAX_RANK)
    return 0;
  tensor->dims[tensor->rank++] = (int64_t)value;
  return 1;
}

/* First walk: dims and dtype. */
static int read_shape(span file, host_tensor *tensor) {
  uint32_t field, wire;
  uint64_t value = 0;
  span bytes = {0};
  while (file.at < file.end) {
    if (!read_field(&file, &field, &wire, &value, &bytes))
      return 0;
    if (field == F_TYPE && wire == WIRE_VARINT)
      tensor->dtype = (int32_t)value;
    if (field == F_DIMS && wire == WIRE_VARINT && !push_dim(tensor, value))
      return 0;
    while (field == F_DIMS && wire == WIRE_BYTES && bytes.at < bytes.end)
      if (!read_varint(&bytes, &value) || !push_dim(tensor, value))
        return 0;
  }
  return 1;
}

static int is_six(int32_t dtype) { return dtype == CYTO_F6E2M3 || dtype == CYTO_F6E3M2; }

/* Second walk: elements. Returns how many bytes were filled; SIZE_MAX when they do not fit. */
static size_t read_elements(span file, host_tensor *tensor) {
  uint32_t field, wire;
  uint64_t value = 0;
  span bytes = {0};
  size_t used = 0, unit;
  uint32_t wanted = dtype_field(tensor->dtype, &unit);
  while (file.at < file.end && read_field(&file, &field, &wire, &value, &bytes)) {
    if (field == F_RAW && wire == WIRE_BYTES && is_six(tensor->dtype)) {
      if ((uint64_t)(bytes.end - bytes.at) != cyrt_six_bytes(tensor->bytes))
        return SIZE_MAX;
      for (; used < tensor->bytes; used++)
        ((uint8_t *)tensor->data)[used] = cyrt_six_get(bytes.at, used);
    } else if (field == F_RAW && wire == WIRE_BYTES) {
      if ((size_t)(bytes.end - bytes.at) != tensor->bytes)
        return SIZE_MAX;
      memcpy(tensor->data, bytes.at, tensor->bytes);
      used = tensor->bytes;
    } else if (field == wanted && wire == field_wire(field)) {
      if (!store(tensor, &used, unit, value))
        return SIZE_MAX;
    } else if (field == wanted && wire == WIRE_BYTES) {
      while (bytes.at < bytes.end) {
        int good = field_wire(field) == WIRE_VARINT ? read_varint(&bytes, &value)
                                                    : read_fixed(&bytes, field == F_FLOAT ? 4 : 8, &value);
        if (!good || !store(tensor, &used, unit, value))
          return SIZE_MAX;
      }
    }
  }
  return used;
}

static int has_field(span file, uint32_t wanted) {
  uint32_t field, wire;
  uint64_t value;
  span bytes;
  while (file.at < file.end && read_field(&file, &field, &wire, &value, &bytes))
    if (field == wanted)
      return 1;
  return 0;
}

/* The texts of string_data, which must be as many as there are elements. */
static int read_strings(span file, const char *path, host_tensor *tensor, char error[TENSOR_ERROR_SIZE]) {
  uint32_t field, wire;
  uint64_t value;
  span bytes, again = file;
  size_t total = 0;
  int64_t count = host_tensor_count(tensor), n = 0;
  while (again.at < again.end && read_field(&again, &field, &wire, &value, &bytes))
    if (field == F_STRING && wire == WIRE_BYTES) {
      total += (size_t)(bytes.end - bytes.at);
      n++;
    }
  if (n != count)
    return bad(path, "the tensor's data does not fit its dims", error);
  if (host_strings_alloc(tensor, total, error))
    return -1;
  for (n = 0; file.at < file.end && read_field(&file, &field, &wire, &value, &bytes);)
    if (field == F_STRING && wire == WIRE_BYTES)
      host_strings_set(tensor, n++, bytes.at, (size_t)(bytes.end - bytes.at));
  return 0;
}

/* TensorProto in memory. */
static int parse_tensor(const uint8_t *bytes, size_t size, const char *path, host_tensor *out_tensor,
                        char error[TENSOR_ERROR_SIZE]) {
  span file = {bytes, bytes + size};
  int status = -1;
  memset(out_tensor, 0, sizeof *out_tensor);
  if (!read_shape(file, out_tensor) || has_field(file, F_LOCATION))
    bad(path, "not an ONNX tensor with its data inside", error);
  else if (!cyto_dtype_bits(out_tensor->dtype))
    bad(path, "the tensor's element type is unknown", error);
  else if (cyto_tensor_bytes(out_tensor->dtype, out_tensor->rank, out_tensor->dims) < 0)
    bad(path, "the tensor's dims are negative or too large", error);
  else if (out_tensor->dtype == CYTO_STRING)
    status = read_strings(file, path, out_tensor, error);
  else if (!host_tensor_alloc(out_tensor, error)) {
    status = read_elements(file, out_tensor) == out_tensor->bytes ? 0 : -1;
    if (status)
      bad(path, "the tensor's data does not fit its dims", error);
  }
  if (status)
    host_tensor_free(out_tensor);
  return status;
}

int tensor_pb_read(const char *path, host_tensor *out_tensor, char error[TENSOR_ERROR_SIZE]) {
  uint8_t *data = NULL;
  size_t bytes = 0;
  memset(out_tensor, 0, sizeof *out_tensor);
  if (file_read(path, &data, &bytes, error))
    return -1;
  int status = parse_tensor(data, bytes, path, out_tensor, error);
  free(data);
  return status;
}

/* ---- sequences, optional values, maps ---- */

/* The same fields in SequenceProto and OptionalProto. */
enum {
  F_TENSORS = 3,
  F_SEQUENCES = 5,
  F_MAPS = 6,
  F_OPTIONALS = 7,
  F_INT_KEYS = 3,
  F_STRING_KEYS = 4,
  F_MAP_VALUES = 5
};

static int value_parse(span s, const char *path, const cyto_type *type, cyto_value *out, char error[TENSOR_ERROR_SIZE]);

static uint32_t field_of_kind(int32_t kind) {
  return kind == CYTO_TENSOR     ? F_TENSORS
         : kind == CYTO_SEQUENCE ? F_SEQUENCES
         : kind == CYTO_MAP      ? F_MAPS
                                 : F_OPTIONALS;
}

static int items_parse(span s, const char *path, const cyto_type *type, cyto_value *out,
                       char error[TENSOR_ERROR_SIZE]) {
  uint32_t field, wire, wanted = field_of_kind(type->of->kind);
  uint64_t value, n = 0;
  span bytes, again = s;
  while (again.at < again.end && read_field(&again, &field, &wire, &value, &bytes))
    n += field == wanted && wire == WIRE_BYTES;
  if (type->kind == CYTO_OPTIONAL && n > 1)
    return bad(path, "an optional with several values", error);
  if (host_value_items(out, n, error))
    return -1;
  for (n = 0; s.at < s.end && read_field(&s, &field, &wire, &value, &bytes);)
    if (field == wanted && wire == WIRE_BYTES &&
        value_parse(bytes, path, type->of, (cyto_value *)&out->items[n++], error))
      return -1;
  return 0;
}

/* Keys of a map as a list: int64 or strings. */
static int keys_parse(span s, const char *path, int32_t dtype, host_tensor *keys, char error[TENSOR_ERROR_SIZE]) {
  uint32_t field, wire;
  uint64_t value = 0;
  span bytes = {0}, again = s;
  size_t total = 0;
  int64_t n = 0;
  if (dtype != CYTO_STRING && dtype != CYTO_I64)
    return bad(path, "maps with keys of this type are not supported", error);
  while (again.at < again.end && read_field(&again, &field, &wire, &value, &bytes)) {
    if (dtype == CYTO_STRING && field == F_STRING_KEYS && wire == WIRE_BYTES)
      total += (size_t)(bytes.end - bytes.at), n++;
    if (dtype == CYTO_I64 && field == F_INT_KEYS && wire == WIRE_VARINT)
      n++;
    while (dtype == CYTO_I64 && field == F_INT_KEYS && wire == WIRE_BYTES && bytes.at < bytes.end &&
           read_varint(&bytes, &value))
      n++;
  }
  *keys = (host_tensor){.dtype = dtype, .rank = 1, .dims = {n}};
  if (dtype == CYTO_STRING ? host_strings_alloc(keys, total, error) : host_tensor_alloc(keys, error))
    return -1;
  int64_t *ints = keys->data;
  for (n = 0; s.at < s.end && read_field(&s, &field, &wire, &value, &bytes);) {
    if (dtype == CYTO_STRING && field == F_STRING_KEYS && wire == WIRE_BYTES)
      host_strings_set(keys, n++, bytes.at, (size_t)(bytes.end - bytes.at));
    if (dtype == CYTO_I64 && field == F_INT_KEYS && wire == WIRE_VARINT)
      ints[n++] = (int64_t)value;
    while (dtype == CYTO_I64 && field == F_INT_KEYS && wire == WIRE_BYTES && bytes.at < bytes.end &&
           read_varint(&bytes, &value))
      ints[n++] = (int64_t)value;
  }
  return 0;
}

/* The values of a map are a sequence of scalars; here they become one list. */
static int map_parse(span s, const char *path, const cyto_type *type, cyto_value *out, char error[TENSOR_ERROR_SIZE]) {
  uint32_t field, wire;
  uint64_t value;
  span bytes, sequence = {NULL, NULL};
  host_tensor keys;
  if (keys_parse(s, path, type->dtype, &keys, error))
    return -1;
  if (host_value_items(out, 2, error)) {
    host_tensor_free(&keys);
    return -1;
  }
  host_value_take((cyto_value *)&out->items[0], &keys);
  while (s.at < s.end && read_field(&s, &field, &wire, &value, &bytes))
    if (field == F_MAP_VALUES && wire == WIRE_BYTES)
      sequence = bytes;
  cyto_type list = {CYTO_SEQUENCE, 0, type->of};
  cyto_value scalars = {.kind = CYTO_SEQUENCE};
  host_tensor values = {.dtype = type->of->dtype, .rank = 1, .dims = {keys.dims[0]}};
  size_t width = (size_t)cyto_dtype_bits(values.dtype) / 8;
  int status = sequence.at ? items_parse(sequence, path, &list, &scalars, error) : 0;
  if (!status && (scalars.count != (uint64_t)keys.dims[0] || values.dtype == CYTO_STRING || !width))
    status = bad(path, "a map whose values are not numbers, one for each key", error);
  if (!status)
    status = host_tensor_alloc(&values, error);
  for (uint64_t i = 0; !status && i < scalars.count; i++) {
    if (scalars.items[i].tensor.bytes != width)
      status = bad(path, "a map with values that are no single numbers of its type", error);
    else
      memcpy((uint8_t *)values.data + i * width, scalars.items[i].tensor.data, width);
  }
  host_value_take((cyto_value *)&out->items[1], &values);
  host_value_free(&scalars);
  return status;
}

static int value_parse(span s, const char *path, const cyto_type *type, cyto_value *out,
                       char error[TENSOR_ERROR_SIZE]) {
  host_tensor tensor;
  memset(out, 0, sizeof *out);
  out->kind = type->kind;
  if (type->kind == CYTO_MAP)
    return map_parse(s, path, type, out, error);
  if (type->kind != CYTO_TENSOR)
    return items_parse(s, path, type, out, error);
  if (parse_tensor(s.at, (size_t)(s.end - s.at), path, &tensor, error))
    return -1;
  host_value_take(out, &tensor);
  return 0;
}

int value_pb_read(const char *path, const cyto_type *type, cyto_value *out_value, char error[TENSOR_ERROR_SIZE]) {
  uint8_t *data = NULL;
  size_t bytes = 0;
  memset(out_value, 0, sizeof *out_value);
  if (file_read(path, &data, &bytes, error))
    return -1;
  int status = value_parse((span){data, data + bytes}, path, type, out_value, error);
  free(data);
  if (status)
    host_value_free(out_value);
  return status;
}

/* ---- writing ---- */

static void put_varint(FILE *file, uint64_t value) {
  for (; value > 127; value >>= 7)
    putc((int)(value & 127) | 128, file);
  putc((int)value, file);
}

static void put_bytes(FILE *file, uint32_t field, const void *data, size_t bytes) {
  put_varint(file, field << 3 | WIRE_BYTES);
  put_varint(file, bytes);
  if (bytes)
    fwrite(data, 1, bytes, file);
}

/* 1: no memory */
static int put_six(FILE *file, const host_tensor *tensor) {
  size_t bytes = (size_t)cyrt_six_bytes(tensor->bytes);
  uint8_t *packed = calloc(1, bytes + 1);
  for (size_t i = 0; packed && i < tensor->bytes; i++)
    cyrt_six_set(packed, i, ((const uint8_t *)tensor->data)[i]);
  if (packed)
    put_bytes(file, F_RAW, (const char *)packed, bytes);
  free(packed);
  return !packed;
}

int tensor_pb_write(const char *path, const char *name, const host_tensor *tensor, char error[TENSOR_ERROR_SIZE]) {
  FILE *file = fopen(path, "wb");
  if (!file) {
    snprintf(error, TENSOR_ERROR_SIZE, "'%s': cannot create: %s", path, strerror(errno));
    return -1;
  }
  for (int32_t i = 0; i < tensor->rank; i++) {
    put_varint(file, F_DIMS << 3 | WIRE_VARINT);
    put_varint(file, (uint64_t)tensor->dims[i]);
  }
  put_varint(file, F_TYPE << 3 | WIRE_VARINT);
  put_varint(file, (uint64_t)tensor->dtype);
  put_bytes(file, F_NAME, name, strlen(name));
  const cyto_string *strings = tensor->data;
  for (int64_t i = 0; tensor->dtype == CYTO_STRING && i < host_tensor_count(tensor); i++)
    put_bytes(file, F_STRING, strings[i].text, strings[i].length);
  int failed = 0;
  if (is_six(tensor->dtype))
    failed = put_six(file, tensor);
  else if (tensor->dtype != CYTO_STRING)
    put_bytes(file, F_RAW, tensor->data, tensor->bytes);
  failed = failed || ferror(file);
  if (fclose(file) || failed) {
    snprintf(error, TENSOR_ERROR_SIZE, "'%s': cannot write: %s", path, strerror(errno));
    remove(path);
    return -1;
  }
  return 0;
}
