/* SPDX-License-Identifier: Apache-2.0 */
/* value_json.c - values of every kind as JSON; the form is in value_file.h.
 *
 * Numbers are written with as many digits as bring back the same bits: 9 for float, 17 for double; half precision as
 * the float it equals. Jansson reads; writing is by hand, because it prints floats with their own number of digits and
 * no NaN.
 */
#include "value_file.h"

#include "runtime/half.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ONNX's names of the element types, which the files have. */
static const char *const dtype_names[] = {
    "",          "float",      "uint8",      "int8",         "uint16",         "int16",      "int32",
    "int64",     "string",     "bool",       "float16",      "double",         "uint32",     "uint64",
    "complex64", "complex128", "bfloat16",   "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz",
    "uint4",     "int4",       "float4e2m1", "float8e8m0",   "uint2",          "int2",
    "float6e2m3", "float6e3m2"};
enum { DTYPES = sizeof dtype_names / sizeof dtype_names[0] };

static int fail(char error[TENSOR_ERROR_SIZE], const char *text, const char *name) {
  snprintf(error, TENSOR_ERROR_SIZE, "%s%s", text, name);
  return -1;
}

/* ---- reading ---- */

static int special(const char *text, double *out) {
  static const struct {
    const char *name;
    double value;
  } names[] = {{"NaN", NAN},       {"nan", NAN}, {"Infinity", INFINITY}, {"inf", INFINITY}, {"-Infinity", -INFINITY},
               {"-inf", -INFINITY}};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (text && !strcmp(text, names[i].name)) {
      *out = names[i].value;
      return 1;
    }
  return 0;
}

/* Element i of a number type from its JSON; 0: it is no number that fits. */
static int set_number(host_tensor *t, int64_t i, const json_t *item) {
  double v = json_is_true(item) ? 1 : json_number_value(item);
  int64_t whole = json_is_integer(item) ? json_integer_value(item) : (int64_t)v;
  int is_number = json_is_number(item) || json_is_boolean(item);
  if (t->dtype == CYTO_U64 && json_is_string(item)) { /* above what JSON's readers take for integers */
    char *end;
    errno = 0;
    ((uint64_t *)t->data)[i] = strtoull(json_string_value(item), &end, 10);
    return !errno && !*end && end != json_string_value(item);
  }
  if (!is_number && !(json_is_string(item) && special(json_string_value(item), &v)))
    return 0;
  switch (t->dtype) {
  case CYTO_F32:
    ((float *)t->data)[i] = (float)v;
    return 1;
  case CYTO_F64:
    ((double *)t->data)[i] = v;
    return 1;
  case CYTO_F16:
    ((uint16_t *)t->data)[i] = cyrt_f32_to_f16((float)v);
    return 1;
  case CYTO_BF16:
    ((uint16_t *)t->data)[i] = cyrt_f32_to_bf16((float)v);
    return 1;
  case CYTO_I8:
  case CYTO_U8:
  case CYTO_BOOL:
    ((uint8_t *)t->data)[i] = (uint8_t)whole;
    return is_number;
  case CYTO_I16:
  case CYTO_U16:
    ((uint16_t *)t->data)[i] = (uint16_t)whole;
    return is_number;
  case CYTO_I32:
  case CYTO_U32:
    ((uint32_t *)t->data)[i] = (uint32_t)whole;
    return is_number;
  case CYTO_I64:
  case CYTO_U64:
    ((uint64_t *)t->data)[i] = (uint64_t)whole;
    return is_number;
  default:
    return 0;
  }
}

static int read_dims(const json_t *shape, host_tensor *t, char error[TENSOR_ERROR_SIZE]) {
  if (!json_is_array(shape) || json_array_size(shape) > CYTO_MAX_RANK)
    return fail(error, "a tensor without a list 'shape' of at most 12 sizes", "");
  t->rank = (int32_t)json_array_size(shape);
  for (int32_t i = 0; i < t->rank; i++)
    t->dims[i] =
        json_is_integer(json_array_get(shape, (size_t)i)) ? json_integer_value(json_array_get(shape, (size_t)i)) : -1;
  return cyto_tensor_bytes(t->dtype, t->rank, t->dims) < 0 ? fail(error, "a 'shape' that is negative or too large", "")
                                                           : 0;
}

static int read_tensor(const json_t *j, cyto_value *out, char error[TENSOR_ERROR_SIZE]) {
  const char *name = json_string_value(json_object_get(j, "dtype"));
  const json_t *data = json_object_get(j, "data"), *item;
  host_tensor t = {0};
  size_t total = 0, i;
  while (t.dtype < DTYPES && (!name || !t.dtype || strcmp(dtype_names[t.dtype], name)))
    t.dtype++;
  if (t.dtype == DTYPES)
    return fail(error, "expected a tensor with a known 'dtype', found ", name ? name : "none");
  if (read_dims(json_object_get(j, "shape"), &t, error))
    return -1;
  if (!json_is_array(data) || (int64_t)json_array_size(data) != host_tensor_count(&t))
    return fail(error, "a tensor whose 'data' has not as many elements as 'shape' says", "");
  for (i = 0; t.dtype == CYTO_STRING && i < json_array_size(data); i++) {
    if (!json_is_string(json_array_get(data, i)))
      return fail(error, "a tensor of strings with an element that is none", "");
    total += json_string_length(json_array_get(data, i));
  }
  if (t.dtype == CYTO_STRING ? host_strings_alloc(&t, total, error) : host_tensor_alloc(&t, error))
    return -1;
  for (i = 0; i < json_array_size(data) && (item = json_array_get(data, i)); i++) {
    if (t.dtype == CYTO_STRING) {
      host_strings_set(&t, (int64_t)i, json_string_value(item), json_string_length(item));
    } else if (!set_number(&t, (int64_t)i, item)) {
      host_tensor_free(&t);
      return fail(error, "an element that is no number of type ", dtype_names[t.dtype]);
    }
  }
  host_value_take(out, &t);
  return 0;
}

static int read_value(const json_t *j, const cyto_type *type, cyto_value *out, char error[TENSOR_ERROR_SIZE]);

static int read_items(const json_t *list, const cyto_type *type, cyto_value *out, char error[TENSOR_ERROR_SIZE]) {
  const cyto_type keys = {CYTO_TENSOR, type->dtype, NULL};
  if (host_value_items(out, json_array_size(list), error))
    return -1;
  for (size_t i = 0; i < json_array_size(list); i++) {
    const cyto_type *of = type->kind == CYTO_MAP && i == 0 ? &keys : type->of;
    if (read_value(json_array_get(list, i), of, (cyto_value *)&out->items[i], error))
      return -1;
  }
  return 0;
}

static int read_value(const json_t *j, const cyto_type *type, cyto_value *out, char error[TENSOR_ERROR_SIZE]) {
  char text[160];
  const json_t *list = json_object_get(j, type->kind == CYTO_MAP ? "map" : "sequence"),
               *held = json_object_get(j, "optional");
  out->kind = type->kind;
  if (type->kind == CYTO_TENSOR && json_object_get(j, "dtype"))
    return read_tensor(j, out, error);
  if ((type->kind == CYTO_SEQUENCE && json_is_array(list)) || (type->kind == CYTO_MAP && json_array_size(list) == 2))
    return read_items(list, type, out, error);
  if (type->kind == CYTO_OPTIONAL && held && json_is_null(held))
    return 0;
  if (type->kind == CYTO_OPTIONAL && held)
    return host_value_items(out, 1, error) || read_value(held, type->of, (cyto_value *)out->items, error) ? -1 : 0;
  type_text(type, text, sizeof text);
  return fail(error, "expected the JSON of a value of type ", text);
}

int value_json_read(const char *path, const cyto_type *type, cyto_value *out_value, char error[TENSOR_ERROR_SIZE]) {
  json_error_t why;
  char said[TENSOR_ERROR_SIZE] = "";
  memset(out_value, 0, sizeof *out_value);
  json_t *j = json_load_file(path, JSON_ALLOW_NUL, &why);
  if (!j) {
    snprintf(error, TENSOR_ERROR_SIZE, "'%s': no JSON: %s (line %d)", path, why.text, why.line);
    return -1;
  }
  int status = read_value(j, type, out_value, said);
  json_decref(j);
  if (!status)
    return 0;
  snprintf(error, TENSOR_ERROR_SIZE, "'%.200s': %.280s", path, said);
  host_value_free(out_value);
  return -1;
}

/* ---- writing ---- */

static void put_string(FILE *f, cyto_string s) {
  putc('"', f);
  for (uint64_t i = 0; i < s.length; i++) {
    unsigned char c = (unsigned char)s.text[i];
    if (c == '"' || c == '\\')
      fprintf(f, "\\%c", c);
    else if (c < 32)
      fprintf(f, "\\u%04x", c);
    else
      putc(c, f);
  }
  putc('"', f);
}

static void put_number(FILE *f, const host_tensor *t, int64_t i) {
  double v = host_tensor_get(t, i);
  if (isnan(v))
    fputs("\"NaN\"", f);
  else if (isinf(v))
    fputs(v < 0 ? "\"-Infinity\"" : "\"Infinity\"", f);
  else if (t->dtype == CYTO_I64)
    fprintf(f, "%lld", (long long)((const int64_t *)t->data)[i]);
  else if (t->dtype == CYTO_U64)
    fprintf(f, ((const uint64_t *)t->data)[i] > INT64_MAX ? "\"%llu\"" : "%llu",
            (unsigned long long)((const uint64_t *)t->data)[i]);
  else
    fprintf(f, "%.*g", t->dtype == CYTO_F64 ? 17 : 9, v);
}

static void put_tensor(FILE *f, const cyto_tensor *tensor) {
  host_tensor t = {.dtype = tensor->dtype, .rank = tensor->rank, .data = tensor->data, .bytes = (size_t)tensor->bytes};
  memcpy(t.dims, tensor->dims, sizeof t.dims);
  fprintf(f, "{\"dtype\":\"%s\",\"shape\":[", t.dtype > 0 && t.dtype < DTYPES ? dtype_names[t.dtype] : "");
  for (int32_t i = 0; i < t.rank; i++)
    fprintf(f, "%s%lld", i ? "," : "", (long long)t.dims[i]);
  fputs("],\"data\":[", f);
  for (int64_t i = 0, n = host_tensor_count(&t); i < n; i++) {
    fputs(i ? "," : "", f);
    if (t.dtype == CYTO_STRING)
      put_string(f, ((const cyto_string *)t.data)[i]);
    else
      put_number(f, &t, i);
  }
  fputs("]}", f);
}

static void put_value(FILE *f, const cyto_value *value) {
  if (value->kind == CYTO_TENSOR) {
    put_tensor(f, &value->tensor);
    return;
  }
  fputs(value->kind == CYTO_SEQUENCE ? "{\"sequence\":["
        : value->kind == CYTO_MAP    ? "{\"map\":["
                                     : "{\"optional\":",
        f);
  for (uint64_t i = 0; i < value->count; i++) {
    fputs(i ? "," : "", f);
    put_value(f, &value->items[i]);
  }
  fputs(value->kind != CYTO_OPTIONAL ? "]}" : value->count ? "}" : "null}", f);
}

int value_json_write(const char *path, const cyto_value *value, char error[TENSOR_ERROR_SIZE]) {
  FILE *f = fopen(path, "wb");
  if (!f) {
    snprintf(error, TENSOR_ERROR_SIZE, "'%s': cannot create: %s", path, strerror(errno));
    return -1;
  }
  put_value(f, value);
  putc('\n', f);
  int failed = ferror(f);
  if (!fclose(f) && !failed)
    return 0;
  snprintf(error, TENSOR_ERROR_SIZE, "'%s': cannot write: %s", path, strerror(errno));
  remove(path);
  return -1;
}
