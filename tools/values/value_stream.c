/* SPDX-License-Identifier: Apache-2.0 */
/* value_stream.c - values of every kind in a file that processes of this machine hand each other: see value_file.h.
 *
 * A value is a head of native numbers (`head` below), then a tensor's data, or the items of a sequence, map or optional. Of
 * strings the data are pairs of a length (uint64) and so many bytes. tools/verify/verify_python.py reads and writes the same.
 */
#include "value_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 16 };

typedef struct head {
  int32_t kind, dtype, rank, unused;
  int64_t dims[CYTO_MAX_RANK];
  uint64_t bytes, count; /* of a tensor's data; of items */
} head;

static int fail(char error[TENSOR_ERROR_SIZE], const char *text) {
  snprintf(error, TENSOR_ERROR_SIZE, "%s", text);
  return -1;
}

/* ---- writing ---- */

static int64_t count_of(const cyto_tensor *t) {
  int64_t n = 1;
  for (int32_t i = 0; i < t->rank; i++)
    n *= t->dims[i];
  return n;
}

static uint64_t bytes_of(const cyto_tensor *t) {
  uint64_t bytes = 0;
  if (t->dtype != CYTO_STRING)
    return (uint64_t)cyto_tensor_bytes(t->dtype, t->rank, t->dims);
  for (int64_t i = 0; i < count_of(t); i++)
    bytes += sizeof(uint64_t) + ((const cyto_string *)t->data)[i].length;
  return bytes;
}

static bool put(FILE *f, const void *data, size_t bytes) { return !bytes || fwrite(data, 1, bytes, f) == bytes; }

static bool put_strings(FILE *f, const cyto_tensor *t) {
  const cyto_string *s = t->data;
  for (int64_t i = 0; i < count_of(t); i++)
    if (!put(f, &s[i].length, sizeof s[i].length) || !put(f, s[i].text, s[i].length))
      return false;
  return true;
}

bool value_stream_write(FILE *f, const cyto_value *value) {
  const cyto_tensor *t = &value->tensor;
  bool is_tensor = value->kind == CYTO_TENSOR, absent = is_tensor && !t->dtype;
  head h = {.kind = absent ? -1 : value->kind};
  if (is_tensor && !absent) {
    h.dtype = t->dtype;
    h.rank = t->rank;
    memcpy(h.dims, t->dims, sizeof h.dims);
    h.bytes = bytes_of(t);
  } else if (!absent)
    h.count = value->count;
  if (!put(f, &h, sizeof h))
    return false;
  if (is_tensor && !absent)
    return t->dtype == CYTO_STRING ? put_strings(f, t) : put(f, t->data, h.bytes);
  for (uint64_t i = 0; i < h.count; i++)
    if (!value_stream_write(f, &value->items[i]))
      return false;
  return true;
}

/* ---- reading ---- */

static int short_file(FILE *f, char error[TENSOR_ERROR_SIZE]) {
  return fail(error, ferror(f) ? strerror(errno) : "the file of values ends too early");
}

/* How many bytes the file still has. */
static uint64_t bytes_left(FILE *f) {
  long at = ftell(f), end;
  if (at < 0 || fseek(f, 0, SEEK_END) || (end = ftell(f)) < at || fseek(f, at, SEEK_SET))
    return 0;
  return (uint64_t)(end - at);
}

static int take_strings(const uint8_t *bytes, uint64_t size, host_tensor *t, char error[TENSOR_ERROR_SIZE]) {
  uint64_t at = 0, length;
  int64_t n = host_tensor_count(t);
  if ((uint64_t)n > size / sizeof length || host_strings_alloc(t, size - (uint64_t)n * sizeof length, error))
    return (uint64_t)n > size / sizeof length ? fail(error, "the file of values is damaged") : -1;
  for (int64_t i = 0; i < n; i++) {
    if (size - at < sizeof length)
      return fail(error, "the file of values is damaged");
    memcpy(&length, bytes + at, sizeof length);
    at += sizeof length;
    if (length > size - at)
      return fail(error, "the file of values is damaged");
    host_strings_set(t, i, bytes + at, length);
    at += length;
  }
  return 0;
}

static int read_strings(FILE *f, uint64_t size, host_tensor *t, char error[TENSOR_ERROR_SIZE]) {
  uint8_t *bytes = malloc(size ? size : 1);
  if (!bytes)
    return fail(error, "no memory for strings");
  int status = fread(bytes, 1, size, f) == size ? take_strings(bytes, size, t, error) : short_file(f, error);
  free(bytes);
  return status;
}

static int read_tensor(FILE *f, const head *h, cyto_value *value, char error[TENSOR_ERROR_SIZE]) {
  host_tensor t = {.dtype = h->dtype, .rank = h->rank};
  if (h->rank < 0 || h->rank > CYTO_MAX_RANK || (h->dtype != CYTO_STRING && cyto_dtype_bits(h->dtype) <= 0))
    return fail(error, "the file of values is damaged");
  memcpy(t.dims, h->dims, sizeof t.dims);
  int64_t wanted = h->dtype == CYTO_STRING ? (int64_t)h->bytes : cyto_tensor_bytes(h->dtype, h->rank, h->dims);
  if (wanted < 0 || (uint64_t)wanted != h->bytes || h->bytes > bytes_left(f))
    return fail(error, "the file of values ends too early, or is damaged");
  int status = h->dtype == CYTO_STRING                     ? read_strings(f, h->bytes, &t, error)
               : host_tensor_alloc(&t, error)              ? -1
               : fread(t.data, 1, h->bytes, f) == h->bytes ? 0
                                                           : short_file(f, error);
  if (status)
    host_tensor_free(&t);
  else
    host_value_take(value, &t);
  return status;
}

static int read_value(FILE *f, int depth, cyto_value *value, char error[TENSOR_ERROR_SIZE]) {
  head h;
  *value = (cyto_value){0};
  if (fread(&h, sizeof h, 1, f) != 1)
    return short_file(f, error);
  if (h.kind == -1)
    return 0;
  if (h.kind == CYTO_TENSOR)
    return read_tensor(f, &h, value, error);
  if (h.kind < 0 || h.kind > CYTO_MAP || depth == MAX_DEPTH || h.count > bytes_left(f) / sizeof h)
    return fail(error, "the file of values is damaged");
  if (host_value_items(value, h.count, error))
    return -1;
  value->kind = h.kind;
  for (uint64_t i = 0; i < h.count; i++)
    if (read_value(f, depth + 1, (cyto_value *)&value->items[i], error))
      return -1;
  return 0;
}

int value_stream_read(FILE *f, cyto_value *value, char error[TENSOR_ERROR_SIZE]) {
  int status = read_value(f, 0, value, error);
  if (status)
    host_value_free(value);
  return status;
}
