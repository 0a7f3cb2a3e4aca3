/* SPDX-License-Identifier: Apache-2.0 */
/* errors.c - see errors.h. */
#include "errors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

double errors_decibels(double signal, double noise) { return noise > 0 ? 10 * log10(signal / noise) : INFINITY; }

static void differ(value_errors *e, const char *what, const char *is, const char *expected) {
  if (!*e->differ)
    snprintf(e->differ, sizeof e->differ, "%s %.60s instead of %.60s", what, is, expected);
}

static const char *shape_text(const cyto_tensor *t, char *text, size_t room) {
  size_t n = (size_t)snprintf(text, room, "[");
  for (int32_t i = 0; i < t->rank && n < room; i++)
    n += (size_t)snprintf(text + n, room - n, "%s%lld", i ? "," : "", (long long)t->dims[i]);
  if (n < room)
    snprintf(text + n, room - n, "]");
  return text;
}

static bool same_shape(value_errors *e, const cyto_tensor *a, const cyto_tensor *b) {
  char is[100], expected[100];
  if (a->rank == b->rank && !memcmp(a->dims, b->dims, sizeof *a->dims * (size_t)a->rank))
    return true;
  differ(e, "shape", shape_text(a, is, sizeof is), shape_text(b, expected, sizeof expected));
  return false;
}

static bool is_float(int32_t dtype) {
  switch (dtype) {
  case CYTO_F32:
  case CYTO_F64:
  case CYTO_F16:
  case CYTO_BF16:
  case CYTO_C64:
  case CYTO_C128:
    return true;
  default:
    return false;
  }
}

static host_tensor view(const cyto_tensor *t) {
  host_tensor v = {.dtype = t->dtype, .rank = t->rank, .data = t->data, .bytes = (size_t)t->bytes};
  memcpy(v.dims, t->dims, sizeof v.dims);
  return v;
}

static double get(const host_tensor *t, int64_t i) {
  return t->dtype == CYTO_F32 ? (double)((const float *)t->data)[i] : host_tensor_get(t, i);
}

static void add_numbers(value_errors *e, const host_tensor *is, const host_tensor *expected) {
  int64_t n = host_tensor_count(is);
  for (int64_t i = 0; i < n; i++) {
    double x = get(is, i), y = get(expected, i);
    e->count++;
    if (x == y || (isnan(x) && isnan(y))) {
      e->equal++;
      e->near++;
    } else if (fabs(x - y) <= 1)
      e->near++;
    if (!isfinite(x) || !isfinite(y)) {
      e->odd += !(x == y || (isnan(x) && isnan(y)));
      continue;
    }
    double error = x - y, off = fabs(error);
    e->largest = off > e->largest ? off : e->largest;
    e->peak = fabs(y) > e->peak ? fabs(y) : e->peak;
    e->error2 += error * error;
    e->is2 += x * x;
    e->expected2 += y * y;
    e->product += x * y;
  }
}

/* Classes lie along the last axis, of feature maps (rank 4 and more) along the second. */
static int32_t class_axis(int32_t rank) { return rank < 4 ? rank - 1 : 1; }

/* The place of the greatest of n elements, `step` apart. */
static int64_t top_of(const host_tensor *t, int64_t from, int64_t n, int64_t step) {
  int64_t best = 0;
  double max = get(t, from);
  for (int64_t i = 1; i < n; i++) {
    double x = get(t, from + i * step);
    if (x > max) {
      max = x;
      best = i;
    }
  }
  return best;
}

static void add_tops(value_errors *e, const host_tensor *is, const host_tensor *expected) {
  int32_t axis = class_axis(is->rank);
  if (is->rank < 2 || is->dims[axis] < 2)
    return;
  int64_t inner = 1, outer = 1, n = is->dims[axis];
  for (int32_t i = 0; i < is->rank; i++)
    *(i < axis ? &outer : &inner) *= i == axis ? 1 : is->dims[i];
  for (int64_t row = 0; row < outer * inner; row++) {
    int64_t from = row / inner * n * inner + row % inner, at = top_of(is, from, n, inner);
    int64_t wanted = top_of(expected, from, n, inner);
    /* equal elements share the first place */
    e->same_top += at == wanted || get(expected, from + at * inner) == get(expected, from + wanted * inner);
    e->rows++;
  }
}

static void add_strings(value_errors *e, const cyto_tensor *is, const cyto_tensor *expected) {
  const cyto_string *a = is->data, *b = expected->data;
  int64_t n = 1;
  for (int32_t i = 0; i < is->rank; i++)
    n *= is->dims[i];
  for (int64_t i = 0; i < n; i++) {
    bool same = a[i].length == b[i].length && (!a[i].length || !memcmp(a[i].text, b[i].text, a[i].length));
    e->count++;
    e->equal += same;
    e->near += same;
    e->odd += !same;
  }
}

static void add_tensors(value_errors *e, const cyto_tensor *is, const cyto_tensor *expected) {
  bool strings = is->dtype == CYTO_STRING;
  if (strings != (expected->dtype == CYTO_STRING)) {
    differ(e, "type", cyto_dtype_name(is->dtype), cyto_dtype_name(expected->dtype));
    return;
  }
  if (!same_shape(e, is, expected))
    return;
  bool floats = is_float(is->dtype) || is_float(expected->dtype);
  e->exact = !e->count ? !floats : e->exact && !floats;
  e->bytes = !floats && !strings && cyto_dtype_bits(is->dtype) <= 8 && is->dtype != CYTO_BOOL;
  if (strings) {
    add_strings(e, is, expected);
    return;
  }
  host_tensor a = view(is), b = view(expected);
  add_numbers(e, &a, &b);
  if (floats)
    add_tops(e, &a, &b);
}

void errors_add(value_errors *e, const cyto_value *is, const cyto_value *expected) {
  static const char *const names[] = {"a tensor", "a sequence", "an optional value", "a map"};
  char counts[2][24];
  if (is->kind != expected->kind && is->kind == CYTO_OPTIONAL && is->count == 1)
    is = is->items; /* other tools do not tell a value from an optional one that is there */
  else if (is->kind != expected->kind && expected->kind == CYTO_OPTIONAL && expected->count == 1)
    expected = expected->items;
  if (is->kind != expected->kind) {
    differ(e, "it is", names[is->kind & 3], names[expected->kind & 3]);
    return;
  }
  if (is->kind == CYTO_TENSOR) {
    add_tensors(e, &is->tensor, &expected->tensor);
    return;
  }
  for (int k = 0; k < 2; k++)
    snprintf(counts[k], sizeof counts[k], "%llu", (unsigned long long)(k ? expected : is)->count);
  if (is->count != expected->count)
    differ(e, "elements:", counts[0], counts[1]);
  for (uint64_t i = 0; i < is->count && i < expected->count; i++)
    errors_add(e, &is->items[i], &expected->items[i]);
}

void errors_join(value_errors *e, const value_errors *more) {
  if (!*e->differ)
    memcpy(e->differ, more->differ, sizeof e->differ);
  e->exact = !e->count ? more->exact : e->exact && more->exact;
  e->bytes = !e->count ? more->bytes : e->bytes && more->bytes;
#define X(field) e->field += more->field;
  X(count)
  X(equal) X(near) X(odd) X(error2) X(is2) X(expected2) X(product) X(rows) X(same_top)
#undef X
      e->largest = fmax(e->largest, more->largest);
  e->peak = fmax(e->peak, more->peak);
}

double errors_rms(const value_errors *e) { return e->count ? sqrt(e->error2 / (double)e->count) : 0; }

double errors_relative(const value_errors *e) {
  return e->largest > 0 ? e->peak > 0 ? e->largest / e->peak : INFINITY : 0;
}

double errors_snr(const value_errors *e) { return errors_decibels(e->expected2, e->error2); }

double errors_cosine(const value_errors *e) {
  double lengths = sqrt(e->is2) * sqrt(e->expected2);
  return lengths > 0 ? e->product / lengths : e->is2 == e->expected2 ? 1 : 0;
}

static double share(uint64_t part, uint64_t whole) { return whole ? (double)part / (double)whole : 1; }

double errors_equal(const value_errors *e) { return share(e->equal, e->count); }
double errors_near(const value_errors *e) { return share(e->near, e->count); }
double errors_top(const value_errors *e) { return e->rows ? share(e->same_top, e->rows) : NAN; }

const char *errors_decibels_text(double decibels, char *text, size_t room) {
  snprintf(text, room, isinf(decibels) ? decibels > 0 ? "inf" : "-inf" : "%.1f", decibels);
  return text;
}
