/* SPDX-License-Identifier: Apache-2.0 */
/* bench_size.c - how large a model is on disk: its file, and what it keeps beside it.
 *
 * In:  an ONNX file, whose tensors name files of external data, or a compiled library, whose weights may lie in
 *      LIBRARY.weights. Out: kilobytes.
 *
 * The file is walked as protobuf says, without its library, which not every machine that measures has: of each message the
 * fields that lead to tensors. What is no ONNX counts by itself.
 */
#include "bench.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_DEPTH = 64 };

typedef struct part {
  const uint8_t *at, *end;
} part;

typedef struct files {
  char **locations;
  size_t n;
} files;

static bool varint(part *p, uint64_t *out) {
  *out = 0;
  for (int shift = 0; p->at < p->end && shift < 64; shift += 7) {
    uint8_t byte = *p->at++;
    *out |= (uint64_t)(byte & 127) << shift;
    if (byte < 128)
      return true;
  }
  return false;
}

/* The next field with its number; of those of bytes, *out is what is in it, of others empty. */
static bool next_field(part *p, uint64_t *out_number, part *out) {
  uint64_t key, n = 0;
  *out = (part){0};
  if (p->at == p->end || !varint(p, &key))
    return false;
  *out_number = key >> 3;
  switch (key & 7) {
  case 0:
    return varint(p, &n);
  case 1:
    n = 8;
    break;
  case 5:
    n = 4;
    break;
  case 2:
    if (!varint(p, &n))
      return false;
    break;
  default:
    return false;
  }
  if (n > (uint64_t)(p->end - p->at))
    return false;
  if ((key & 7) == 2)
    *out = (part){p->at, p->at + n};
  p->at += n;
  return true;
}

static bool is_text(part p, const char *text) {
  size_t n = strlen(text);
  return (size_t)(p.end - p.at) == n && !memcmp(p.at, text, n);
}

static void add_file(files *f, part location) {
  size_t n = (size_t)(location.end - location.at);
  for (size_t i = 0; i < f->n; i++)
    if (strlen(f->locations[i]) == n && !memcmp(f->locations[i], location.at, n))
      return;
  char **grown = realloc(f->locations, (f->n + 1) * sizeof *grown), *copy = grown ? calloc(n + 1, 1) : NULL;
  if (grown)
    f->locations = grown;
  if (!copy)
    return;
  memcpy(copy, location.at, n);
  f->locations[f->n++] = copy;
}

/* StringStringEntryProto of TensorProto.external_data */
static void read_entry(part p, files *f) {
  part key = {0}, value = {0}, field;
  for (uint64_t number; next_field(&p, &number, &field);)
    if (number == 1)
      key = field;
    else if (number == 2)
      value = field;
  if (value.at && is_text(key, "location"))
    add_file(f, value);
}

/* Which fields of which messages lead to the data of tensors. */
typedef enum message { MODEL, GRAPH, NODE, ATTRIBUTE, TENSOR, SPARSE, FUNCTION, ENTRY } message;
static const struct {
  message in;
  uint64_t number;
  message is;
} ways[] = {{MODEL, 7, GRAPH},       {MODEL, 25, FUNCTION},  {GRAPH, 1, NODE},       {GRAPH, 5, TENSOR},
            {GRAPH, 15, SPARSE},     {NODE, 5, ATTRIBUTE},   {ATTRIBUTE, 5, TENSOR}, {ATTRIBUTE, 6, GRAPH},
            {ATTRIBUTE, 10, TENSOR}, {ATTRIBUTE, 11, GRAPH}, {SPARSE, 1, TENSOR},    {SPARSE, 2, TENSOR},
            {FUNCTION, 7, NODE},     {TENSOR, 13, ENTRY}};

static void walk(part p, message what, int depth, files *f) {
  part field;
  if (what == ENTRY) {
    read_entry(p, f);
    return;
  }
  for (uint64_t number; depth < MAX_DEPTH && next_field(&p, &number, &field);)
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
      if (field.at && ways[i].in == what && ways[i].number == number)
        walk(field, ways[i].is, depth + 1, f);
}

static double file_kb(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 ? (double)st.st_size / 1024 : 0;
}

static double external_kb(const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat st = {0};
  uint8_t *data = fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0
                      ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)
                      : MAP_FAILED;
  files f = {0};
  double kb = 0;
  if (data != MAP_FAILED) {
    walk((part){data, data + st.st_size}, MODEL, 0, &f);
    munmap(data, (size_t)st.st_size);
  }
  if (fd >= 0)
    close(fd);
  const char *slash = strrchr(path, '/');
  for (size_t i = 0; i < f.n; i++) {
    char beside[2 * PATH_MAX];
    snprintf(beside, sizeof beside, "%.*s%s", slash ? (int)(slash - path + 1) : 0, path, f.locations[i]);
    kb += file_kb(beside);
    free(f.locations[i]);
  }
  free(f.locations);
  return kb;
}

double cy_bench_model_kb(const char *path) {
  size_t n = strlen(path);
  char weights[PATH_MAX + 16];
  snprintf(weights, sizeof weights, "%s.weights", path);
  return file_kb(path) + (n > 5 && !strcmp(path + n - 5, ".onnx") ? external_kb(path) : file_kb(weights));
}
