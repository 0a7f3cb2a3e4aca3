/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.c - TensorProto and SparseTensorProto to constants of the graph.
 *
 * In:  a TensorProto from the skeleton (see mapped.c): bulk data is a token that says where in the file it is; small
 * unpacked lists are in protobuf-c's arrays. Out: a constant value. Raw little-endian data, and packed lists whose
 * encoding equals it (float, double), stay mapped when they are large; small ones are copied so that they are aligned.
 * Lists of varints are decoded. Sizes are checked before anything is allocated: decoded data is never larger than eight
 * times the bytes that the file really has. Sparse tensors are the exception, so they are capped.
 */
#include "frontend/file/external.h"
#include "frontend/import_int.h"

#include <string.h>

#define COPY_BELOW 4096
#define MAX_SPARSE_BYTES ((uint64_t)1 << 30)

/* Where a tensor's elements come from: field number of TensorProto, and bytes of the file or an array. */
typedef struct source {
  uint32_t field; /* 4 float_data 5 int32_data 7 int64_data 9 raw_data 10 double_data 11 uint64_data; 0: nothing */
  const uint8_t *bytes;
  uint64_t size; /* of bytes */
  const void *array;
  uint64_t n; /* of array's elements */
} source;

static source source_of(const cy_importer *im, const Onnx__TensorProto *t) {
  source s = {0};
  if (t->has_raw_data && t->raw_data.len == sizeof(cy_bulk)) {
    cy_bulk b;
    memcpy(&b, t->raw_data.data, sizeof b);
    return (source){.field = (uint32_t)b.field, .bytes = im->map->bytes + b.offset, .size = b.length};
  }
  if (t->n_float_data)
    s = (source){.field = 4, .array = t->float_data, .n = t->n_float_data};
  else if (t->n_int32_data)
    s = (source){.field = 5, .array = t->int32_data, .n = t->n_int32_data};
  else if (t->n_int64_data)
    s = (source){.field = 7, .array = t->int64_data, .n = t->n_int64_data};
  else if (t->n_double_data)
    s = (source){.field = 10, .array = t->double_data, .n = t->n_double_data};
  else if (t->n_uint64_data)
    s = (source){.field = 11, .array = t->uint64_data, .n = t->n_uint64_data};
  return s;
}

/* The list that ONNX keeps an element type in. */
static uint32_t field_for(cy_dtype t) {
  switch (t) {
  case CY_F32:
  case CY_C64: return 4;
  case CY_I64: return 7;
  case CY_F64:
  case CY_C128: return 10;
  case CY_U32:
  case CY_U64: return 11;
  default: return 5;
  }
}

static const char *field_name(uint32_t field) {
  switch (field) {
  case 4: return "float_data";
  case 5: return "int32_data";
  case 7: return "int64_data";
  case 9: return "raw_data";
  case 10: return "double_data";
  case 11: return "uint64_data";
  default: return "no data";
  }
}

static bool next_varint(const uint8_t **p, const uint8_t *end, uint64_t *out) {
  uint64_t v = 0;
  for (int shift = 0; *p < end && shift < 70; shift += 7) {
    uint8_t c = *(*p)++;
    if (shift < 64)
      v |= (uint64_t)(c & 127) << shift;
    if (!(c & 128)) {
      *out = v;
      return true;
    }
  }
  return false;
}

/* Stores `n` integers, `width` bytes each. False when there are not exactly n. */
static bool decode_ints(const source *s, uint64_t n, unsigned width, uint8_t *out) {
  const uint8_t *p = s->bytes, *end = s->bytes + s->size;
  if (!p && s->n != n)
    return false;
  for (uint64_t i = 0; i < n; i++) {
    uint64_t v;
    if (!p)
      v = s->field == 5 ? (uint64_t)(int64_t)((const int32_t *)s->array)[i] : ((const uint64_t *)s->array)[i];
    else if (!next_varint(&p, end, &v))
      return false;
    memcpy(out + i * width, &v, width);
  }
  return p == end || !p;
}

static cy_val wrong_size(cy_importer *im, const char *item, const cy_type *type, uint64_t need, const source *s) {
  return cy_build_error(im->g, item, "shape and type %s need %llu bytes of data, found %llu %s of %s",
                        cy_type_text(im->g, type), (unsigned long long)need,
                        (unsigned long long)(s->bytes ? s->size : s->n), s->bytes ? "bytes" : "elements",
                        field_name(s->field));
}

static cy_val place(cy_importer *im, const cy_type *type, const void *bytes, uint64_t size) {
  if (size < COPY_BELOW)
    bytes = cy_arena_copy(cy_graph_arena(im->g), size ? bytes : "", size ? size : 1);
  return cy_build_const(im->g, type, bytes, size);
}

/* ---- six-bit elements: a byte each here, four in three bytes in raw data, the first in the lowest bits ---- */

static bool is_six(cy_dtype dtype) { return dtype == CY_F6E2M3 || dtype == CY_F6E3M2; }

static uint64_t raw_bytes(const cy_type *type, uint64_t need) {
  return is_six((cy_dtype)type->dtype) ? need / 4 * 3 + (need % 4 * 6 + 7) / 8 : need;
}

static uint8_t six_at(const uint8_t *packed, uint64_t i) {
  uint64_t bit = i % 4 * 6;
  const uint8_t *at = packed + i / 4 * 3 + bit / 8;
  unsigned two = bit % 8 > 2 ? at[0] | (unsigned)at[1] << 8 : at[0]; /* the last two bits lie in the next byte */
  return (uint8_t)(two >> bit % 8 & 63);
}

static cy_val place_raw(cy_importer *im, const cy_type *type, const void *bytes, uint64_t need) {
  if (!is_six((cy_dtype)type->dtype))
    return place(im, type, bytes, need);
  uint8_t *out = cy_arena_alloc(cy_graph_arena(im->g), need + 1);
  for (uint64_t i = 0; i < need; i++)
    out[i] = six_at(bytes, i);
  return cy_build_const(im->g, type, out, need);
}

static cy_val typed_list(cy_importer *im, const cy_type *type, uint64_t need, const source *s, const char *item) {
  uint32_t bits = (uint32_t)cy_dtype_of(type->dtype)->bits;
  if (s->field != field_for(type->dtype))
    return cy_build_error(im->g, item, "data of type %s belongs into %s or raw_data, found %s",
                          cy_dtype_of(type->dtype)->name, field_name(field_for(type->dtype)), field_name(s->field));
  if (s->field == 4 || s->field == 10) {
    uint64_t have = s->bytes ? s->size : s->n * (s->field == 4 ? 4 : 8);
    if (have != need)
      return wrong_size(im, item, type, need, s);
    return place(im, type, s->bytes ? (const void *)s->bytes : cy_arena_copy(cy_graph_arena(im->g), s->array, need),
                 need);
  }
  unsigned width = bits < 8 ? 1 : bits / 8; /* types below 8 bits come packed, one byte per list element */
  uint64_t n = need / width;
  if (n > (s->bytes ? s->size : s->n))
    return wrong_size(im, item, type, need, s);
  uint8_t *out = cy_arena_alloc(cy_graph_arena(im->g), need + 1);
  if (!decode_ints(s, n, width, out))
    return wrong_size(im, item, type, need, s);
  return cy_build_const(im->g, type, out, need);
}

/* Type and size in bytes from dims and data_type. */
static bool tensor_type(cy_importer *im, const int64_t *dims, size_t rank, int32_t data_type, const char *item,
                        cy_type *out_type, uint64_t *out_bytes) {
  if (data_type <= 0 || data_type >= CY_REF) {
    cy_build_error(im->g, item, "unknown element type %d", data_type);
    return false;
  }
  if (cy_dtype_of((cy_dtype)data_type)->cls == 'C') {
    cy_build_error(im->g, item, "%s", CY_NO_COMPLEX);
    return false;
  }
  if (rank > CY_MAX_RANK) {
    cy_build_error(im->g, item, "tensors of rank %zu are not supported, %d is the most", rank, CY_MAX_RANK);
    return false;
  }
  uint64_t n = 1, bits;
  cy_dim d[CY_MAX_RANK];
  bool empty = false;
  for (size_t i = 0; i < rank; i++) {
    if (dims[i] < 0) {
      cy_build_error(im->g, item, "dimension %zu is %lld, expected no negative number", i, (long long)dims[i]);
      return false;
    }
    empty = empty || dims[i] == 0;
    d[i] = cy_dim_const(im->g, dims[i]);
  }
  for (size_t i = 0; i < rank && !empty; i++)
    if (!cy_mul_size(n, (uint64_t)dims[i], &n) || n >> 56)
      return cy_build_error(im->g, item, "the dimensions' product overflows"), false;
  n = empty ? 0 : n;
  if (!cy_mul_size(n, (uint64_t)cy_dtype_of((cy_dtype)data_type)->bits, &bits))
    return cy_build_error(im->g, item, "the dimensions' product overflows"), false;
  *out_type = cy_type_make((cy_dtype)data_type, (int)rank, d);
  *out_bytes = (bits + 7) / 8;
  return true;
}

/* Elements are the numbers of the texts. */
static cy_val import_strings(cy_importer *im, const Onnx__TensorProto *t, const cy_type *type, uint64_t need,
                             const char *item) {
  uint64_t n = need / sizeof(uint32_t);
  if (t->n_string_data != n)
    return cy_build_error(im->g, item, "shape and type %s need %llu strings in string_data, found %zu",
                          cy_type_text(im->g, type), (unsigned long long)n, t->n_string_data);
  uint32_t *texts = CY_NEW_ARRAY(cy_graph_arena(im->g), uint32_t, n + 1);
  for (uint64_t i = 0; i < n; i++)
    texts[i] = cy_text_add(im->g, t->string_data[i].data, t->string_data[i].len);
  return cy_build_const(im->g, type, texts, need);
}

cy_val cy_import_tensor(cy_importer *im, const Onnx__TensorProto *t, const char *item) {
  cy_type type;
  uint64_t need;
  if (!tensor_type(im, t->dims, t->n_dims, t->has_data_type ? t->data_type : 0, item, &type, &need))
    return 0;
  if (type.dtype == CY_STRING)
    return import_strings(im, t, &type, need, item);
  if (t->segment)
    return cy_build_error(im->g, item, "tensors in segments are not supported");
  uint64_t raw = raw_bytes(&type, need);
  if (t->has_data_location && t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) {
    char why[CY_EXTERNAL_WHY];
    const void *p = need ? cy_externals_find(im->externals, t, raw, why) : "";
    return p ? place_raw(im, &type, p, need) : *why ? cy_build_error(im->g, item, "%s", why) : 0;
  }
  source s = source_of(im, t);
  if (!need)
    return place(im, &type, "", 0);
  if (s.field && s.field != 9)
    return typed_list(im, &type, need, &s, item);
  if (s.size != raw)
    return wrong_size(im, item, &type, raw, &s);
  return place_raw(im, &type, s.bytes, need);
}

/* ---- sparse ---- */

/* Writes the values to their places in `out`; indices are [nnz] (flat) or [nnz, rank]. */
static bool scatter(cy_importer *im, const Onnx__SparseTensorProto *t, cy_val values, cy_val indices, uint64_t total,
                    uint8_t *out, const char *item) {
  const cy_value *v = cy_value_of(im->g, values), *ix = cy_value_of(im->g, indices);
  unsigned width = (unsigned)cy_dtype_of(v->type.dtype)->bits / 8;
  uint64_t nnz = v->data.size / width, per = nnz ? ix->data.size / 8 / nnz : 1;
  if (ix->data.size != nnz * per * 8 || (per != 1 && per != t->n_dims) ||
      (ix->type.rank == 2 && nnz && per != t->n_dims))
    return cy_build_error(im->g, item, "the number of indices does not fit %llu values of rank %zu",
                          (unsigned long long)nnz, t->n_dims);
  bool flat = ix->type.rank < 2;
  for (uint64_t i = 0; i < nnz; i++) {
    uint64_t at = 0;
    for (uint64_t k = 0; k < per; k++) {
      int64_t x;
      memcpy(&x, (const uint8_t *)ix->data.bytes + (i * per + k) * 8, 8);
      uint64_t bound = flat ? total : (uint64_t)t->dims[k];
      if (x < 0 || (uint64_t)x >= bound)
        return cy_build_error(im->g, item, "index %lld is outside of the tensor", (long long)x);
      at = flat ? (uint64_t)x : at * bound + (uint64_t)x;
    }
    memcpy(out + at * width, (const uint8_t *)v->data.bytes + i * width, width);
  }
  return true;
}

cy_val cy_import_sparse(cy_importer *im, const Onnx__SparseTensorProto *t, const char *item) {
  if (!t->values || !t->indices)
    return cy_build_error(im->g, item, "a sparse tensor needs values and indices");
  cy_val values = cy_import_tensor(im, t->values, item), indices = cy_import_tensor(im, t->indices, item);
  if (!values || !indices)
    return 0;
  cy_type type;
  uint64_t bytes;
  cy_dtype dtype = cy_onnx_type(im, values)->dtype;
  if (!tensor_type(im, t->dims, t->n_dims, dtype, item, &type, &bytes))
    return 0;
  if (cy_dtype_of(dtype)->bits < 8 || cy_onnx_type(im, indices)->dtype != CY_I64)
    return cy_build_error(im->g, item,
                          "sparse tensors of this element type, or with indices that are not i64, are not supported");
  if (bytes > MAX_SPARSE_BYTES)
    return cy_build_error(im->g, item, "a sparse tensor of %llu bytes when dense is not supported, 1 GiB is the most",
                          (unsigned long long)bytes);
  uint8_t *out = cy_arena_alloc(cy_graph_arena(im->g), bytes + 1);
  uint64_t total = bytes / ((unsigned)cy_dtype_of(dtype)->bits / 8);
  return scatter(im, t, values, indices, total, out, item) ? cy_build_const(im->g, &type, out, bytes) : 0;
}
