/* tensor_pb.c - ONNX TensorProto files, by the protobuf wire format itself, so that the tools need no protobuf library.
 *
 * Fields used: 1 dims, 2 data_type, 4 float_data, 5 int32_data, 7 int64_data, 8 name, 9 raw_data, 10 double_data,
 * 11 uint64_data. Repeated numbers may come packed or one by one. Typed data is gathered by type as the standard lays
 * down: the small types, bool, float16 and bfloat16 sit in int32_data by their bits, complex numbers are pairs in
 * float_data or double_data, 2- and 4-bit elements are packed in raw_data and in the low byte of int32_data alike.
 */
#include "tensor_file.h"

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

/* Second walk: elements. Returns how many bytes were filled; SIZE_MAX when they do not fit. */
static size_t read_elements(span file, host_tensor *tensor) {
  uint32_t field, wire;
  uint64_t value = 0;
  span bytes = {0};
  size_t used = 0, unit;
  uint32_t wanted = dtype_field(tensor->dtype, &unit);
  while (file.at < file.end && read_field(&file, &field, &wire, &value, &bytes)) {
    if (field == F_RAW && wire == WIRE_BYTES) {
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

int tensor_pb_read(const char *path, host_tensor *out_tensor, char error[TENSOR_ERROR_SIZE]) {
  uint8_t *data = NULL;
  size_t bytes = 0;
  int status = -1;
  memset(out_tensor, 0, sizeof *out_tensor);
  if (file_read(path, &data, &bytes, error))
    return -1;
  span file = {data, data + bytes};
  if (!read_shape(file, out_tensor) || has_field(file, F_LOCATION))
    bad(path, "not an ONNX tensor with its data inside", error);
  else if (!cyto_dtype_bits(out_tensor->dtype))
    bad(path, "the tensor's element type is not supported, expected numbers or bool", error);
  else if (cyto_tensor_bytes(out_tensor->dtype, out_tensor->rank, out_tensor->dims) < 0)
    bad(path, "the tensor's dims are negative or too large", error);
  else if (!host_tensor_alloc(out_tensor, error)) {
    status = read_elements(file, out_tensor) == out_tensor->bytes ? 0 : -1;
    if (status)
      bad(path, "the tensor's data does not fit its dims", error);
  }
  free(data);
  if (status)
    host_tensor_free(out_tensor);
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
  put_bytes(file, F_RAW, tensor->data, tensor->bytes);
  int failed = ferror(file);
  if (fclose(file) || failed) {
    snprintf(error, TENSOR_ERROR_SIZE, "'%s': cannot write: %s", path, strerror(errno));
    remove(path);
    return -1;
  }
  return 0;
}
