/* SPDX-License-Identifier: Apache-2.0 */
/* labels.c - the right answers of samples: class numbers, of arrays or of text.
 *
 * In:  a file. Out: a number for every row of the samples, in their order.
 */
#include "cytoc_budget.h"

#include "tools/values/tensor_file.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct labels {
  int64_t *value;
  int64_t count;
  const char *path;
  int arrays;
} labels;

static int fail(char error[TENSOR_ERROR_SIZE], const char *format, ...) __attribute__((format(printf, 2, 3)));
static int fail(char error[TENSOR_ERROR_SIZE], const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(error, TENSOR_ERROR_SIZE, format, args);
  va_end(args);
  return -1;
}

static void add(labels *l, int64_t v) {
  if ((l->count & (l->count - 1)) == 0)
    l->value = realloc(l->value, (size_t)(l->count ? 2 * l->count : 1) * sizeof *l->value);
  if (!l->value)
    cy_no_memory();
  l->value[l->count++] = v;
}

static int take_array(labels *l, const host_tensor *t, char error[TENSOR_ERROR_SIZE]) {
  for (int64_t i = 0, n = host_tensor_count(t); i < n; i++) {
    double v = host_tensor_get(t, i);
    if (!(v >= 0 && v < 9e15) || v != floor(v))
      return fail(error, "'%s': label %lld is %g: expected class numbers, from 0", l->path, (long long)i, v);
    add(l, (int64_t)v);
  }
  return 0;
}

static int take_entry(void *ctx, const char *entry, uint8_t *bytes, size_t size, char error[TENSOR_ERROR_SIZE]) {
  labels *l = ctx;
  host_tensor t;
  if (l->arrays++)
    return fail(error, "'%s' has several arrays, '%s' among them: expected the labels alone", l->path, entry);
  if (npy_parse(entry, bytes, size, &t, error))
    return -1;
  int status = take_array(l, &t, error);
  host_tensor_free(&t);
  return status;
}

static int take_npy(labels *l, char error[TENSOR_ERROR_SIZE]) {
  host_tensor t;
  if (npy_read(l->path, &t, error))
    return -1;
  int status = take_array(l, &t, error);
  host_tensor_free(&t);
  return status;
}

/* The field of a line that has number `column`, its quotes and spaces off; the last one for -1. The line is changed. */
static char *field(char *line, int column) {
  char *at = line;
  line[strcspn(line, "\r\n")] = 0;
  for (int i = 0; column < 0 || i < column; i++) {
    char *comma = strchr(at, ',');
    if (!comma)
      break;
    at = comma + 1;
  }
  at[strcspn(at, ",")] = 0;
  at += strspn(at, " \t\"");
  at[strcspn(at, " \t\"")] = 0;
  return at;
}

/* Which column a header calls "label" or "class"; -1: none. */
static int label_column(const char *line) {
  int column = 0;
  for (const char *p = line; p; p = strchr(p, ','), p = p ? p + 1 : NULL, column++) {
    const char *name = p + strspn(p, " \t\"");
    size_t n = strcspn(name, ",\r\n\"");
    if ((n == 5 && (!strncasecmp(name, "label", n) || !strncasecmp(name, "class", n))) ||
        (n == 6 && !strncasecmp(name, "labels", n)))
      return column;
  }
  return -1;
}

static int take_line(labels *l, char *line, int column, int number, char error[TENSOR_ERROR_SIZE]) {
  char *end, *text = field(line, column);
  long long v = strtoll(text, &end, 10);
  if (end == text || *end || v < 0)
    return fail(error, "'%s', line %d: expected a class number, from 0, found '%s'", l->path, number, text);
  add(l, v);
  return 0;
}

static int take_text(labels *l, bool csv, char error[TENSOR_ERROR_SIZE]) {
  FILE *f = fopen(l->path, "r");
  if (!f)
    return fail(error, "cannot read '%s': %s", l->path, strerror(errno));
  char *line = NULL;
  size_t room = 0;
  int column = csv ? -1 : 0, status = 0;
  for (int number = 1; !status && getline(&line, &room, f) >= 0; number++) {
    bool blank = !line[strspn(line, " \t\r\n")] || *line == '#';
    bool header = csv && !l->count && number == 1 && (strpbrk(line, "abcdefghijklmnopqrstuvwxyz") != NULL) &&
                  (column = label_column(line)) >= 0;
    status = blank || header ? 0 : take_line(l, line, column, number, error);
  }
  free(line);
  fclose(f);
  return status;
}

int cytoc_labels_read(const char *path, int64_t **out, int64_t *out_count, char error[TENSOR_ERROR_SIZE]) {
  labels l = {.path = path};
  bool csv = file_ends_with(path, ".csv");
  int status = file_ends_with(path, ".npy")          ? take_npy(&l, error)
               : file_ends_with(path, ".npz")        ? npz_each(path, take_entry, &l, error)
               : csv || file_ends_with(path, ".txt") ? take_text(&l, csv, error)
                                                     : fail(error,
                                                            "'%s': labels are read from .npy, .npz, .txt and "
                                                            ".csv files",
                                                            path);
  if (status) {
    free(l.value);
    l = (labels){0};
  }
  *out = l.value;
  *out_count = l.count;
  return status;
}
