/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_value.c - host tensors in memory: allocating, reading elements as numbers, filling with random numbers, and
 * bridging dtypes that numpy lacks.
 */
#include "tensor_file.h"

#include "runtime/half.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int tensor_fail(char error[TENSOR_ERROR_SIZE], const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(error, TENSOR_ERROR_SIZE, format, args);
  va_end(args);
  return -1;
}

int64_t host_tensor_count(const host_tensor *tensor) {
  int64_t count = 1;
  for (int32_t i = 0; i < tensor->rank; i++)
    if (tensor->dims[i] == 0) /* and the others may be of any size */
      return 0;
  for (int32_t i = 0; i < tensor->rank; i++)
    count *= tensor->dims[i];
  return count;
}

int host_tensor_alloc(host_tensor *tensor, char error[TENSOR_ERROR_SIZE]) {
  int64_t bytes = cyto_tensor_bytes(tensor->dtype, tensor->rank, tensor->dims);
  tensor->data = NULL;
  if (bytes >= 0)
    tensor->data = aligned_alloc(64, ((size_t)bytes + 64) / 64 * 64);
  if (!tensor->data) {
    snprintf(error, TENSOR_ERROR_SIZE, "no memory for a tensor of %lld bytes", (long long)bytes);
    return -1;
  }
  tensor->bytes = (size_t)bytes;
  memset(tensor->data, 0, tensor->bytes);
  return 0;
}

int host_strings_alloc(host_tensor *tensor, size_t bytes, char error[TENSOR_ERROR_SIZE]) {
  int64_t array = cyto_tensor_bytes(CYTO_STRING, tensor->rank, tensor->dims);
  tensor->data = array < 0 ? NULL : calloc(1, (size_t)array + (size_t)host_tensor_count(tensor) + bytes + 1);
  tensor->bytes = array < 0 ? 0 : (size_t)array;
  if (tensor->data)
    return 0;
  snprintf(error, TENSOR_ERROR_SIZE, "no memory for a tensor of strings");
  return -1;
}

void host_strings_set(host_tensor *tensor, int64_t i, const void *text, size_t length) {
  cyto_string *s = tensor->data;
  char *at = i ? (char *)s[i - 1].text + s[i - 1].length + 1 : (char *)tensor->data + tensor->bytes;
  if (length)
    memcpy(at, text, length);
  s[i] = (cyto_string){at, length};
}

void host_tensor_free(host_tensor *tensor) {
  free(tensor->data);
  tensor->data = NULL;
}

double host_tensor_get(const host_tensor *tensor, int64_t i) {
  const void *data = tensor->data;
  switch (tensor->dtype) {
  case CYTO_F32:
    return ((const float *)data)[i];
  case CYTO_F64:
    return ((const double *)data)[i];
  case CYTO_F16:
    return cyrt_f16_to_f32(((const uint16_t *)data)[i]);
  case CYTO_BF16:
    return cyrt_bf16_to_f32(((const uint16_t *)data)[i]);
  case CYTO_F8E4M3FN:
    return cyrt_f8e4m3fn_to_f32(((const uint8_t *)data)[i]);
  case CYTO_F8E4M3FNUZ:
    return cyrt_f8e4m3fnuz_to_f32(((const uint8_t *)data)[i]);
  case CYTO_F8E5M2:
    return cyrt_f8e5m2_to_f32(((const uint8_t *)data)[i]);
  case CYTO_F8E5M2FNUZ:
    return cyrt_f8e5m2fnuz_to_f32(((const uint8_t *)data)[i]);
  case CYTO_F8E8M0:
    return cyrt_f8e8m0_to_f32(((const uint8_t *)data)[i]);
  case CYTO_F6E2M3:
    return cyrt_f6e2m3_to_f32(((const uint8_t *)data)[i]);
  case CYTO_F6E3M2:
    return cyrt_f6e3m2_to_f32(((const uint8_t *)data)[i]);
  case CYTO_F4E2M1:
    return cyrt_f4e2m1_to_f32((uint8_t)cyrt_packed_get(data, i, 4, 0));
  case CYTO_BOOL:
  case CYTO_U8:
    return ((const uint8_t *)data)[i];
  case CYTO_I8:
    return ((const int8_t *)data)[i];
  case CYTO_U16:
    return ((const uint16_t *)data)[i];
  case CYTO_I16:
    return ((const int16_t *)data)[i];
  case CYTO_U32:
    return ((const uint32_t *)data)[i];
  case CYTO_I32:
    return ((const int32_t *)data)[i];
  case CYTO_U64:
    return (double)((const uint64_t *)data)[i];
  case CYTO_I64:
    return (double)((const int64_t *)data)[i];
  case CYTO_C64:
    return ((const float *)data)[i * 2];
  case CYTO_C128:
    return ((const double *)data)[i * 2];
  case CYTO_U4:
  case CYTO_I4:
  case CYTO_U2:
  case CYTO_I2:
    return cyrt_packed_get(data, i, cyto_dtype_bits(tensor->dtype),
                           tensor->dtype == CYTO_I4 || tensor->dtype == CYTO_I2);
  default:
    return NAN;
  }
}

void host_tensor_set(host_tensor *tensor, int64_t i, double v) {
  void *data = tensor->data;
  switch (tensor->dtype) {
  case CYTO_F32:
    ((float *)data)[i] = (float)v;
    break;
  case CYTO_F64:
    ((double *)data)[i] = v;
    break;
  case CYTO_F16:
    ((uint16_t *)data)[i] = cyrt_f32_to_f16((float)v);
    break;
  case CYTO_BF16:
    ((uint16_t *)data)[i] = cyrt_f32_to_bf16((float)v);
    break;
  case CYTO_I64:
  case CYTO_U64:
    ((int64_t *)data)[i] = (int64_t)floor(v);
    break;
  case CYTO_I32:
  case CYTO_U32:
    ((uint32_t *)data)[i] = (uint32_t)(int64_t)floor(v);
    break;
  case CYTO_I16:
  case CYTO_U16:
    ((uint16_t *)data)[i] = (uint16_t)(int64_t)floor(v);
    break;
  default:
    ((uint8_t *)data)[i] = (uint8_t)(int64_t)floor(v);
  }
}

/* splitmix64 */
static uint64_t random_next(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

static void random_element(host_tensor *tensor, int64_t i, uint64_t r) {
  void *data = tensor->data;
  double unit = (double)(int64_t)(r >> 11) * 0x1p-52 - 1;
  switch (tensor->dtype) {
  case CYTO_C64:
  case CYTO_F32:
    ((float *)data)[i] = (float)(unit < -0x1.fffffep-1 ? -1 : unit > 0x1.fffffep-1 ? 0x1.fffffep-1 : unit);
    break;
  case CYTO_C128:
  case CYTO_F64:
    ((double *)data)[i] = unit;
    break;
  case CYTO_F16:
    ((uint16_t *)data)[i] = cyrt_f32_to_f16((float)unit);
    break;
  case CYTO_BF16:
    ((uint16_t *)data)[i] = cyrt_f32_to_bf16((float)unit);
    break;
  case CYTO_F8E4M3FN:
  case CYTO_F8E4M3FNUZ:
  case CYTO_F8E5M2:
  case CYTO_F8E5M2FNUZ:
    ((uint8_t *)data)[i] = (uint8_t)(r & 0xbf); /* below 2 in all four */
    break;
  case CYTO_F6E2M3:
  case CYTO_F6E3M2:
    ((uint8_t *)data)[i] = (uint8_t)(r & 63);
    break;
  case CYTO_F8E8M0:
    ((uint8_t *)data)[i] = (uint8_t)(120 + r % 8);
    break;
  case CYTO_BOOL:
    ((uint8_t *)data)[i] = r & 1;
    break;
  case CYTO_U16:
  case CYTO_I16:
    ((uint16_t *)data)[i] = (uint16_t)(r % 10);
    break;
  case CYTO_U32:
  case CYTO_I32:
    ((uint32_t *)data)[i] = (uint32_t)(r % 10);
    break;
  case CYTO_U64:
  case CYTO_I64:
    ((uint64_t *)data)[i] = r % 10;
    break;
  default: /* bytes, also of packed elements */
    ((uint8_t *)data)[i] = (uint8_t)r;
  }
}

void host_tensor_randomize(host_tensor *tensor, uint64_t *state) {
  int32_t bits = cyto_dtype_bits(tensor->dtype);
  int is_complex = tensor->dtype == CYTO_C64 || tensor->dtype == CYTO_C128;
  int64_t count = bits < 8 ? (int64_t)tensor->bytes : host_tensor_count(tensor) * (is_complex ? 2 : 1);
  for (int64_t i = 0; i < count; i++)
    random_element(tensor, i, random_next(state));
}

static int pack(host_tensor *tensor, int32_t dtype, char error[TENSOR_ERROR_SIZE]) {
  host_tensor packed = *tensor;
  packed.dtype = dtype;
  if (host_tensor_alloc(&packed, error))
    return -1;
  int64_t count = host_tensor_count(tensor);
  for (int64_t i = 0; i < count; i++)
    cyrt_packed_set(packed.data, i, cyto_dtype_bits(dtype), ((const int8_t *)tensor->data)[i]);
  host_tensor_free(tensor);
  *tensor = packed;
  return 0;
}

int host_tensor_adapt(host_tensor *tensor, int32_t dtype, char error[TENSOR_ERROR_SIZE]) {
  int32_t bits = cyto_dtype_bits(dtype);
  int is_byte = tensor->dtype == CYTO_U8 || tensor->dtype == CYTO_I8;
  if (tensor->dtype == dtype)
    return 0;
  if (bits > 0 && bits < 8 && is_byte)
    return pack(tensor, dtype, error);
  int is_float8 = (dtype >= CYTO_F8E4M3FN && dtype <= CYTO_F8E5M2FNUZ) || dtype == CYTO_F8E8M0 ||
                  dtype == CYTO_F6E2M3 || dtype == CYTO_F6E3M2;
  if ((dtype == CYTO_BF16 && tensor->dtype == CYTO_U16) || (is_float8 && tensor->dtype == CYTO_U8))
    tensor->dtype = dtype;
  return 0;
}

bool file_ends_with(const char *path, const char *ending) {
  size_t length = strlen(path), tail = strlen(ending);
  return length >= tail && !strcmp(path + length - tail, ending);
}

int file_read(const char *path, uint8_t **out_data, size_t *out_bytes, char error[TENSOR_ERROR_SIZE]) {
  FILE *file = fopen(path, "rb");
  long size = -1;
  uint8_t *data = NULL;
  if (!file) {
    snprintf(error, TENSOR_ERROR_SIZE, "'%s': cannot open: %s", path, strerror(errno));
    return -1;
  }
  if (!fseek(file, 0, SEEK_END) && (size = ftell(file)) >= 0 && !fseek(file, 0, SEEK_SET) &&
      (data = malloc((size_t)size + 1)) && fread(data, 1, (size_t)size, file) == (size_t)size) {
    fclose(file);
    data[size] = 0;
    *out_data = data;
    *out_bytes = (size_t)size;
    return 0;
  }
  snprintf(error, TENSOR_ERROR_SIZE, "'%s': cannot read: %s", path, strerror(errno));
  fclose(file);
  free(data);
  return -1;
}
