/* SPDX-License-Identifier: Apache-2.0 */
/* npy.c - NumPy's .npy files: format versions 1 to 3 in, 1 out.
 *
 * The header is a Python dictionary in text: {'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }. Big-endian
 * data is swapped and Fortran order turned into row-major, so that callers see one layout only.
 *
 * Strings are elements of one width, filled up with zeros: '<U5' has five code points of 32 bits each, '|S5' five bytes.
 * In memory both are bytes, those of 'U' UTF-8. Written is 'U', and 'S' where an element is no UTF-8.
 */
#include "tensor_file.h"

#include "runtime/half.h"

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
    {'i', '1', CYTO_I2},         {'V', '2', CYTO_BF16},   {'u', '1', CYTO_F6E2M3},     {'u', '1', CYTO_F6E3M2},
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

/* What the header says of the elements. */
typedef struct elements {
  int32_t dtype;
  int swap;
  size_t width; /* of strings: bytes of an element */
  int wide;     /* .. are code points of 32 bits */
} elements;

/* The number of characters of "<U5", and the quote behind it. */
static int parse_width(const char *text, char quote, elements *out) {
  char *end;
  errno = 0;
  unsigned long long width = strtoull(text + 3, &end, 10);
  if (!isdigit((unsigned char)text[3]) || errno || *end != quote || width > UINT32_MAX)
    return -1;
  out->dtype = CYTO_STRING;
  out->wide = text[2] == 'U';
  out->width = (size_t)width * (out->wide ? 4 : 1);
  out->swap = text[1] == '>';
  return 0;
}

static int parse_descr(const char *text, elements *out) {
  char quote = text[0], order = text[1], kind, size;
  if ((quote != '\'' && quote != '"') || !order || !strchr("<>|=", order))
    return -1;
  kind = text[2];
  size = text[3];
  if (kind == 'U' || kind == 'S')
    return parse_width(text, quote, out);
  if (size == '1' && text[4] == '6') {
    size = 'G';
    text++;
  }
  if (!kind || !size || text[4] != quote)
    return -1;
  for (size_t i = 0; i < sizeof descrs / sizeof descrs[0]; i++)
    if (descrs[i].kind == kind && descrs[i].size == size) {
      out->dtype = descrs[i].dtype;
      out->swap = order == '>';
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

/* Where the element of a row-major index lies column-major; `index` is that of every axis, and becomes the next one. */
static size_t next_fortran(const host_tensor *tensor, int64_t index[CYTO_MAX_RANK]) {
  int64_t at = 0;
  for (int32_t axis = tensor->rank - 1; axis >= 0; axis--)
    at = at * tensor->dims[axis] + index[axis];
  for (int32_t axis = tensor->rank - 1; axis >= 0 && ++index[axis] == tensor->dims[axis]; axis--)
    index[axis] = 0;
  return (size_t)at;
}

/* Copies column-major `from` to row-major `to`. */
static void copy_fortran(const host_tensor *tensor, const uint8_t *from, size_t unit) {
  int64_t index[CYTO_MAX_RANK] = {0}, count = host_tensor_count(tensor);
  uint8_t *to = tensor->data;
  for (int64_t i = 0; i < count; i++)
    memcpy(to + (size_t)i * unit, from + next_fortran(tensor, index) * unit, unit);
}

/* ---- reading strings ---- */

enum { MAX_CODE = 0x10ffff, UTF8_MAX = 4 };

/* Bytes of a code point as UTF-8; 0: it is none. */
static size_t utf8_put(uint32_t code, uint8_t out[UTF8_MAX]) {
  if (code > MAX_CODE || (code >= 0xd800 && code < 0xe000))
    return 0;
  size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (size_t i = n; i-- > 1; code >>= 6)
    out[i] = (uint8_t)(0x80 | (code & 0x3f));
  out[0] = (uint8_t)(lead[n] | code);
  return n;
}

/* An element as bytes, without the zeros that fill it up; `to` has room for its width. -1: not what Unicode has. */
static int64_t string_bytes(const elements *e, const uint8_t *at, uint8_t *to) {
  size_t used = 0, n = e->width / (e->wide ? 4 : 1);
  for (size_t i = 0, length = 0; i < n; i++) {
    uint32_t code = e->wide && e->swap ? (uint32_t)at[i * 4] << 24 | at[i * 4 + 1] << 16 | at[i * 4 + 2] << 8 | at[i * 4 + 3]
                    : e->wide ? at[i * 4] | at[i * 4 + 1] << 8 | at[i * 4 + 2] << 16 | (uint32_t)at[i * 4 + 3] << 24
                              : at[i];
    size_t bytes = e->wide ? utf8_put(code, to + length) : 1;
    if (!bytes)
      return -1;
    if (!e->wide)
      to[length] = (uint8_t)code;
    length += bytes;
    if (code)
      used = length;
  }
  return (int64_t)used;
}

/* Elements one after the other: once to add up their lengths, once to keep them. */
static int read_strings(const char *path, const elements *e, const uint8_t *data, int fortran, host_tensor *tensor,
                        char error[TENSOR_ERROR_SIZE]) {
  int64_t count = host_tensor_count(tensor);
  uint8_t *text = malloc(e->width + 1);
  int status = text ? 0 : bad(path, "no memory for its strings", error);
  size_t total = 0;
  for (int pass = 0; pass < 2 && !status; pass++) {
    int64_t index[CYTO_MAX_RANK] = {0};
    if (pass)
      status = host_strings_alloc(tensor, total, error);
    for (int64_t i = 0; i < count && !status; i++) {
      size_t at = fortran ? next_fortran(tensor, index) : (size_t)i;
      int64_t length = string_bytes(e, data + at * e->width, text);
      if (length < 0)
        status = bad(path, "a string has a character that Unicode does not have", error);
      else if (pass)
        host_strings_set(tensor, i, text, (size_t)length);
      else
        total += (size_t)length;
    }
  }
  free(text);
  return status;
}

static int refuse_elements(const char *path, const char *descr, char error[TENSOR_ERROR_SIZE]) {
  int length = (int)strcspn(descr, ",");
  if (length > 2 && descr[2] == 'O')
    return bad(path, "holds Python objects (dtype object), which only Python reads: save strings by "
               "numpy.save(path, array.astype(str)), or give a .json file", error);
  snprintf(error, TENSOR_ERROR_SIZE, "'%s': element type %.*s is not supported, expected numbers, bool or strings", path,
           length, descr);
  return -1;
}

/* ---- reading a file ---- */

int npy_parse(const char *path, uint8_t *file, size_t bytes, host_tensor *tensor, char error[TENSOR_ERROR_SIZE]) {
  elements e = {0};
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
  if (parse_descr(descr, &e))
    return refuse_elements(path, descr, error);
  tensor->dtype = e.dtype;
  int fortran = !strncmp(order, "True", 4) && tensor->rank > 1;
  /* strings: as many bytes as elements, then their width */
  int64_t needed = cyto_tensor_bytes(e.width ? CYTO_U8 : e.dtype, tensor->rank, tensor->dims);
  size_t unit = e.dtype == CYTO_STRING ? e.width : (size_t)cyto_dtype_bits(e.dtype) / 8, room = bytes - start - header;
  const uint8_t *data = file + start + header;
  if (needed < 0 || (e.width ? (uint64_t)needed > room / e.width : e.dtype != CYTO_STRING && (uint64_t)needed > room))
    return bad(path, "the data is shorter than its shape needs", error);
  if (e.dtype == CYTO_STRING)
    return read_strings(path, &e, data, fortran, tensor, error);
  if (host_tensor_alloc(tensor, error))
    return -1;
  if (fortran)
    copy_fortran(tensor, data, unit);
  else if (needed)
    memcpy(tensor->data, data, tensor->bytes);
  if (e.swap)
    swap_bytes(tensor->data, tensor->bytes, e.dtype == CYTO_C64 || e.dtype == CYTO_C128 ? unit / 2 : unit);
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
static size_t header_make(const host_tensor *tensor, const char *descr, char header[1024]) {
  int used = 10;
  used += snprintf(header + used, 900, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
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

/* The next code point of a text, and the bytes that it has; 0: it is no UTF-8. */
static size_t utf8_get(const uint8_t *at, size_t left, uint32_t *out_code) {
  static const uint32_t min[] = {0, 0, 0x80, 0x800, 0x10000};
  size_t n = at[0] < 0x80 ? 1 : at[0] >> 5 == 6 ? 2 : at[0] >> 4 == 14 ? 3 : at[0] >> 3 == 30 ? 4 : 0;
  uint32_t code = n == 1 ? at[0] : at[0] & (0x7fu >> n);
  if (!n || n > left)
    return 0;
  for (size_t i = 1; i < n; i++) {
    if (at[i] >> 6 != 2)
      return 0;
    code = code << 6 | (at[i] & 0x3f);
  }
  *out_code = code;
  return code < min[n] || code > MAX_CODE || (code >= 0xd800 && code < 0xe000) ? 0 : n;
}

/* Code points of a text; -1: it is no UTF-8. */
static int64_t utf8_length(const cyto_string *s) {
  int64_t count = 0;
  uint32_t code;
  for (size_t at = 0, n; at < s->length; at += n, count++)
    if (!(n = utf8_get((const uint8_t *)s->text + at, (size_t)s->length - at, &code)))
      return -1;
  return count;
}

/* The width of the longest element in *out. Elements that end in a zero would lose it. */
static int measure_strings(const char *path, const host_tensor *tensor, elements *out, char error[TENSOR_ERROR_SIZE]) {
  const cyto_string *all = tensor->data;
  int64_t count = host_tensor_count(tensor), widest[2] = {1, 1}; /* in bytes, in code points */
  *out = (elements){.dtype = CYTO_STRING, .wide = 1};
  for (int64_t i = 0; i < count; i++) {
    int64_t length = utf8_length(&all[i]), bytes = (int64_t)all[i].length;
    if (bytes && !all[i].text[bytes - 1])
      return bad(path, "a string ends in a zero byte, which .npy cannot hold: write .json", error);
    out->wide = out->wide && length >= 0;
    widest[0] = bytes > widest[0] ? bytes : widest[0];
    widest[1] = length > widest[1] ? length : widest[1];
  }
  out->width = (size_t)(out->wide ? widest[1] * 4 : widest[0]);
  return 0;
}

static int write_strings(FILE *file, const host_tensor *tensor, const elements *e) {
  const cyto_string *all = tensor->data;
  int64_t count = host_tensor_count(tensor);
  for (int64_t i = 0; i < count; i++) {
    size_t done = 0;
    uint32_t code = 0;
    for (size_t at = 0, n; at < all[i].length; at += n) {
      n = e->wide ? utf8_get((const uint8_t *)all[i].text + at, (size_t)all[i].length - at, &code) : 1;
      const uint8_t wide[4] = {(uint8_t)code, (uint8_t)(code >> 8), (uint8_t)(code >> 16), 0};
      done += e->wide ? fwrite(wide, 1, 4, file) : fwrite(all[i].text + at, 1, 1, file);
    }
    for (; done < e->width; done++)
      if (putc(0, file) == EOF)
        return 0;
  }
  return !ferror(file);
}

/* "<f4" of a tensor; of strings also how they are written. */
static int descr_of(const char *path, const host_tensor *tensor, elements *out, char text[40], char error[TENSOR_ERROR_SIZE]) {
  const descr_row *row = descrs;
  if (tensor->dtype == CYTO_STRING) {
    if (measure_strings(path, tensor, out, error))
      return -1;
    snprintf(text, 40, "%s%zu", out->wide ? "<U" : "|S", out->width / (out->wide ? 4 : 1));
    return 0;
  }
  while (row < descrs + sizeof descrs / sizeof descrs[0] && row->dtype != tensor->dtype)
    row++;
  if (row == descrs + sizeof descrs / sizeof descrs[0])
    return bad(path, "tensors of this element type cannot be written as .npy", error);
  snprintf(text, 40, "%c%c%s", row->size == '1' ? '|' : '<', row->kind, row->size == 'G' ? "16" : (char[]){row->size, 0});
  return 0;
}

int npy_write(const char *path, const host_tensor *tensor, char error[TENSOR_ERROR_SIZE]) {
  char header[1024], descr[40];
  elements e = {0};
  if (descr_of(path, tensor, &e, descr, error))
    return -1;
  FILE *file = fopen(path, "wb");
  if (!file) {
    snprintf(error, TENSOR_ERROR_SIZE, "'%s': cannot create: %s", path, strerror(errno));
    return -1;
  }
  size_t length = header_make(tensor, descr, header);
  int done = fwrite(header, 1, length, file) == length;
  if (done && tensor->dtype == CYTO_STRING)
    done = write_strings(file, tensor, &e);
  else if (done && cyto_dtype_bits(tensor->dtype) < 8)
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
