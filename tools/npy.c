/* npy.c - NumPy's .npy files: format versions 1 to 3 in, 1 out.
 *
 * The header is a Python dictionary in text: {'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }. Big-endian
 * data is swapped and Fortran order turned into row-major, so that callers see one layout only.
 */
#include "tensor_file.h"

#include "half.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct descr_row {
  char kind, size; /* of "<f4": 'f', '4' */
  int32_t dtype;
} descr_row;

/* Sixteen bytes are written as 'G' to fit one character. The first row of a dtype is what is written. */
static const descr_row descrs[] = {
    {'f', '4', CYTO_F32},        {'f', '8', CYTO_F64},    {'f', '2', CYTO_F16},        {'i', '1', CYTO_I8},
    {'i', '2', CYTO_I16},        {'i', '4', CYTO_I32},    {'i', '8', CYTO_I64},        {'u', '1', CYTO_U8},
    {'u', '2', CYTO_U16},        {'u', '4', CYTO_U32},    {'u', '8', CYTO_U64},        {'b', '1', CYTO_BOOL},
    {'c', '8', CYTO_C64},        {'c', 'G', CYTO_C128},   {'u', '2', CYTO_BF16},       {'u', '1', CYTO_F8E4M3FN},
    {'u', '1', CYTO_F8E4M3FNUZ}, {'u', '1', CYTO_F8E5M2}, {'u', '1', CYTO_F8E5M2FNUZ}, {'u', '1', CYTO_F8E8M0},
    {'u', '1', CYTO_U4},         {'i', '1', CYTO_I4},     {'u', '1', CYTO_F4E2M1},     {'u', '1', CYTO_U2},
    {'i', '1', CYTO_I2},         {'V', '2', CYTO_BF16},
};

/* ---- reading ---- */

static int bad(const char *path, const char *what, char error[TENSOR_ERROR_SIZE]) {
  snprintf(error, TENSOR_ERROR_SIZE, "'%s': %s", path, what);
  return -1;
}

/* The text behind 'key': in the header, NULL when missing. */
static const char *header_value(const char *header, const char *key) {
  const char *at = strstr(header, key);
  if (!at || !(at = strchr(at, ':')))
    return NULL;
  for (at++; *at == ' '; at++)
    ;
  return at;
}

static int parse_descr(const char *text, int32_t *out_dtype, int *out_swap) {
  char quote = text[0], order = text[1], kind, size;
  if ((quote != '\'' && quote != '"') || !order || !strchr("<>|=", order))
    return -1;
  kind = text[2];
  size = text[3];
  if (size == '1' && text[4] == '6') {
    size = 'G';
    text++;
  }
  if (!kind || !size || text[4] != quote)
    return -1;
  for (size_t i = 0; i < sizeof descrs / sizeof descrs[0]; i++)
    if (descrs[i].kind == kind && descrs[i].size == size) {
      *out_dtype = descrs[i].dtype;
      *out_swap = order == '>';
      return 0;
    }
  return -1;
}

static int parse_shape(const char *text, host_tensor *tensor) {
  if (*text++ != '(')
    return -1;
  tensor->rank = 0;
  for (;;) {
    char *end;
    while (*text == ' ' || *text == ',')
      text++;
    if (*text == ')')
      return 0;
    if (tensor->rank == CYTO_MAX_RANK || !isdigit((unsigned char)*text))
      return -1;
    errno = 0;
    tensor->dims[tensor->rank++] = strtoll(text, &end, 10);
    if (errno)
      return -1;
    text = end + (*end == 'L');
  }
}

static void swap_bytes(uint8_t *data, size_t bytes, size_t unit) {
  for (size_t at = 0; at + unit <= bytes; at += unit)
    for (size_t i = 0; i < unit / 2; i++) {
      uint8_t byte = data[at + i];
      data[at + i] = data[at + unit - 1 - i];
      data[at + unit - 1 - i] = byte;
    }
}

/* Copies column-major `from` to row-major `to`: walks `to` in order with the index of every axis. */
static void copy_fortran(const host_tensor *tensor, const uint8_t *from, size_t unit) {
  int64_t index[CYTO_MAX_RANK] = {0}, count = host_tensor_count(tensor);
  uint8_t *to = tensor->data;
  for (int64_t i = 0; i < count; i++) {
    int64_t at = 0;
    for (int32_t axis = tensor->rank - 1; axis >= 0; axis--)
      at = at * tensor->dims[axis] + index[axis];
    memcpy(to + (size_t)i * unit, from + (size_t)at * unit, unit);
    for (int32_t axis = tensor->rank - 1; axis >= 0 && ++index[axis] == tensor->dims[axis]; axis--)
      index[axis] = 0;
  }
}

int npy_parse(const char *path, uint8_t *file, size_t bytes, host_tensor *tensor, char error[TENSOR_ERROR_SIZE]) {
  int swap = 0;
  memset(tensor, 0, sizeof *tensor);
  size_t header = 0, start = 0;
  if (bytes < 12 || memcmp(file, "\x93NUMPY", 6))
    return bad(path, "not a .npy file", error);
  start = file[6] == 1 ? 10 : 12;
  header = file[8] | (size_t)file[9] << 8;
  if (file[6] != 1)
    header |= (size_t)file[10] << 16 | (size_t)file[11] << 24;
  if (header > bytes - start || !header)
    return bad(path, "the header is cut off", error);
  file[start + header - 1] = 0; /* its closing newline */
  const char *text = (const char *)file + start;
  const char *descr = header_value(text, "descr"), *order = header_value(text, "fortran_order");
  const char *shape = header_value(text, "shape");
  if (!descr || !order || !shape || parse_shape(shape, tensor))
    return bad(path, "the header has no valid 'descr', 'fortran_order' and 'shape'", error);
  if (parse_descr(descr, &tensor->dtype, &swap)) {
    snprintf(error, TENSOR_ERROR_SIZE, "'%s': element type %.*s is not supported, expected numbers or bool", path,
             (int)strcspn(descr, ","), descr);
    return -1;
  }
  int64_t needed = cyto_tensor_bytes(tensor->dtype, tensor->rank, tensor->dims);
  size_t unit = (size_t)cyto_dtype_bits(tensor->dtype) / 8;
  const uint8_t *data = file + start + header;
  if (needed < 0 || (uint64_t)needed > bytes - start - header)
    return bad(path, "the data is shorter than its shape needs", error);
  if (host_tensor_alloc(tensor, error))
    return -1;
  if (!strncmp(order, "True", 4) && tensor->rank > 1)
    copy_fortran(tensor, data, unit);
  else if (needed)
    memcpy(tensor->data, data, tensor->bytes);
  if (swap)
    swap_bytes(tensor->data, tensor->bytes, tensor->dtype == CYTO_C64 || tensor->dtype == CYTO_C128 ? unit / 2 : unit);
  return 0;
}

int npy_read(const char *path, host_tensor *out_tensor, char error[TENSOR_ERROR_SIZE]) {
  memset(out_tensor, 0, sizeof *out_tensor);
  uint8_t *file = NULL;
  size_t bytes = 0;
  if (file_read(path, &file, &bytes, error))
    return -1;
  int status = npy_parse(path, file, bytes, out_tensor, error);
  free(file);
  return status;
}

/* ---- writing ---- */

/* Magic, version, length and dictionary, padded so that data starts at a multiple of 64. Returns its length. */
static size_t header_make(const host_tensor *tensor, const descr_row *row, char header[1024]) {
  int used = 10;
  used += snprintf(header + used, 900, "{'descr': '%c%c%s', 'fortran_order': False, 'shape': (",
                   row->size == '1' ? '|' : '<', row->kind, row->size == 'G' ? "16" : (char[]){row->size, 0});
  for (int32_t i = 0; i < tensor->rank; i++)
    used += snprintf(header + used, 32, "%lld%s", (long long)tensor->dims[i],
                     tensor->rank == 1      ? ","
                     : i + 1 < tensor->rank ? ", "
                                            : "");
  used += snprintf(header + used, 8, "), }");
  size_t length = ((size_t)used + 1 + 63) / 64 * 64;
  memset(header + used, ' ', length - (size_t)used - 1);
  header[length - 1] = '\n';
  memcpy(header, "\x93NUMPY\x01\x00", 8);
  header[8] = (char)((length - 10) & 255);
  header[9] = (char)((length - 10) >> 8);
  return length;
}

/* One byte per element, for dtypes that numpy cannot pack. */
static int write_unpacked(FILE *file, const host_tensor *tensor) {
  int bits = cyto_dtype_bits(tensor->dtype), is_signed = tensor->dtype == CYTO_I4 || tensor->dtype == CYTO_I2;
  int64_t count = host_tensor_count(tensor);
  for (int64_t i = 0; i < count; i++)
    if (putc(cyrt_packed_get(tensor->data, i, bits, is_signed) & 255, file) == EOF)
      return 0;
  return 1;
}

int npy_write(const char *path, const host_tensor *tensor, char error[TENSOR_ERROR_SIZE]) {
  char header[1024];
  const descr_row *row = descrs;
  while (row < descrs + sizeof descrs / sizeof descrs[0] && row->dtype != tensor->dtype)
    row++;
  if (row == descrs + sizeof descrs / sizeof descrs[0])
    return bad(path, "tensors of this element type cannot be written as .npy", error);
  FILE *file = fopen(path, "wb");
  if (!file) {
    snprintf(error, TENSOR_ERROR_SIZE, "'%s': cannot create: %s", path, strerror(errno));
    return -1;
  }
  size_t length = header_make(tensor, row, header);
  int done = fwrite(header, 1, length, file) == length;
  if (done && cyto_dtype_bits(tensor->dtype) < 8)
    done = write_unpacked(file, tensor);
  else if (done && tensor->bytes)
    done = fwrite(tensor->data, 1, tensor->bytes, file) == tensor->bytes;
  if (fclose(file) || !done) {
    snprintf(error, TENSOR_ERROR_SIZE, "'%s': cannot write: %s", path, strerror(errno));
    remove(path);
    return -1;
  }
  return 0;
}

void file_name_of(const char *name, char *out, size_t room) {
  static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  size_t n = 0;
  for (const char *p = name; *p && n + 1 < room; p++)
    if (((unsigned char)*p & 0xc0) != 0x80)
      out[n++] = strchr(plain, *p) ? *p : '_';
  out[n] = 0;
}
