/* SPDX-License-Identifier: Apache-2.0 */
/* labels.c - the right answers of samples: class numbers, of arrays or of text.
 *
 * In:  a file. Out: a number for every row of the samples, in their order.
 */
#include "cytoc_budget.h"

#include "tools/values/tensor_file.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct labels {
  int64_t *value;
  int64_t count;
  const char *path;
  int arrays;
} labels;

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
      return tensor_fail(error, "'%s': label %lld is %g: expected class numbers, from 0", l->path, (long long)i, v);
    add(l, (int64_t)v);
  }
  return 0;
}

static int take_entry(void *ctx, const char *entry, uint8_t *bytes, size_t size, char error[TENSOR_ERROR_SIZE]) {
  labels *l = ctx;
  host_tensor t;
  if (l->arrays++)
    return tensor_fail(error, "'%s' has several arrays, '%s' among them: expected the labels alone", l->path, entry);
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

/* Takes the spaces at both ends off, in place. */
static char *trim(char *text) {
  text += strspn(text, " \t\r\n");
  size_t n = strlen(text);
  while (n && strchr(" \t\r\n", text[n - 1]))
    n--;
  text[n] = 0;
  return text;
}

/* Cuts the next field of a line of CSV off, in place, its quotes and spaces off. Sets *at to NULL behind the last. */
static char *next_field(char **at) {
  char *from = *at, *p = from;
  for (bool quoted = false; *p && (quoted || *p != ','); p++)
    quoted ^= *p == '"';
  *at = *p ? p + 1 : NULL;
  *p = 0;
  from = trim(from);
  size_t n = strlen(from);
  if (n < 2 || *from != '"' || from[n - 1] != '"')
    return from;
  from[n - 1] = 0;
  return trim(from + 1);
}

static bool is_number(const char *text) { return *text && !text[strspn(text, "0123456789+-.eE")]; }

static bool is_label(const char *name) {
  return !strcasecmp(name, "label") || !strcasecmp(name, "labels") || !strcasecmp(name, "class");
}

/* How many fields the lines of a CSV file have, and which of them is the label. */
typedef struct columns {
  int count, label; /* count 0: not known yet */
} columns;

/* Of the first line, which is changed. Is it a header? Then it names the label, or its last field is no number. */
static bool read_header(char *line, columns *out) {
  char *at = line, *last = line;
  out->label = -1;
  for (out->count = 0; at; out->count++) {
    last = next_field(&at);
    if (out->label < 0 && is_label(last))
      out->label = out->count;
  }
  bool header = out->label >= 0 || !is_number(last);
  if (out->label < 0)
    out->label = out->count - 1;
  return header;
}

static int take_number(labels *l, const char *text, int number, char error[TENSOR_ERROR_SIZE]) {
  char *end;
  long long v = strtoll(text, &end, 10);
  if (end == text || *end || v < 0)
    return tensor_fail(error, "'%s', line %d: expected a class number, from 0, found '%.100s'", l->path, number, text);
  add(l, v);
  return 0;
}

static int take_row(labels *l, char *line, const columns *c, int number, char error[TENSOR_ERROR_SIZE]) {
  char *at = line, *label = line;
  int count = 0;
  for (; at; count++) {
    char *text = next_field(&at);
    label = count == c->label ? text : label;
  }
  if (count != c->count)
    return tensor_fail(error, "'%s', line %d: expected %d fields as in the first line, found %d", l->path, number,
                       c->count, count);
  return take_number(l, label, number, error);
}

/* A line of CSV. */
static int take_line(labels *l, char *line, columns *c, int number, char error[TENSOR_ERROR_SIZE]) {
  if (!c->count) {
    char *copy = strdup(line);
    if (!copy)
      cy_no_memory();
    bool header = read_header(copy, c);
    free(copy);
    if (header)
      return 0;
  }
  return take_row(l, line, c, number, error);
}

static int take_text(labels *l, bool csv, char error[TENSOR_ERROR_SIZE]) {
  static const char mark[] = "\xef\xbb\xbf"; /* that a file is UTF-8, as some programs write */
  FILE *f = fopen(l->path, "r");
  if (!f)
    return tensor_fail(error, "cannot read '%s': %s", l->path, strerror(errno));
  char *line = NULL;
  size_t room = 0;
  int status = 0;
  columns c = {0};
  for (int number = 1; !status && getline(&line, &room, f) >= 0; number++) {
    char *text = trim(number == 1 && !strncmp(line, mark, 3) ? line + 3 : line);
    if (*text && *text != '#')
      status = csv ? take_line(l, text, &c, number, error) : take_number(l, text, number, error);
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
                                                     : tensor_fail(error,
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
