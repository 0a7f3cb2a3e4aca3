/* SPDX-License-Identifier: Apache-2.0 */
/* external.c - tensor data that a model keeps in other files.
 *
 * In: a TensorProto's external_data (location, offset, length). Out: a pointer into the mapped file.
 * A model is untrusted: the location must name a regular file inside the model's own folder. Absolute paths, ".." and
 * symbolic links that leave the folder are refused. Each file is mapped once; an import hands all of them to its graph,
 * which unmaps them.
 */
#include "external.h"

#include "frontend/import_int.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef struct file {
  struct file *next;
  char *path;
  cy_mapping map;
} file;

/* A location that could not be opened: it is reported once, not for each of hundreds of tensors. */
typedef struct lost {
  struct lost *next;
  char *location;
} lost;

struct cy_externals {
  lost *lost;
  char *folder; /* NULL: the model has none */
  file *files;
  cy_ask_external *ask; /* NULL: files of the folder */
  void *ask_ctx;
};

cy_externals *cy_externals_create(const char *folder, cy_ask_external *ask, void *ask_ctx) {
  cy_externals *x = calloc(1, sizeof *x);
  char *copy = folder ? strdup(folder) : NULL;
  if (!x || (folder && !copy))
    cy_no_memory();
  *x = (cy_externals){.folder = copy, .ask = ask, .ask_ctx = ask_ctx};
  return x;
}

void cy_externals_retry(cy_externals *x) {
  while (x->lost) {
    lost *l = x->lost;
    x->lost = l->next;
    free(l->location);
    free(l);
  }
}

void cy_externals_destroy(void *externals) {
  cy_externals *x = externals;
  while (x && x->files) {
    file *f = x->files;
    x->files = f->next;
    cy_mapping_close(&f->map);
    free(f->path);
    free(f);
  }
  if (x) {
    cy_externals_retry(x);
    free(x->folder);
  }
  free(x);
}

static void *fail(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void *fail(char *why, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(why, CY_EXTERNAL_WHY, format, args);
  va_end(args);
  return NULL;
}

static bool leaves_folder(const char *location) {
  if (location[0] == '/' || location[0] == '\\' || (location[0] && location[1] == ':'))
    return true;
  for (const char *p = location; *p;) {
    size_t n = strcspn(p, "/\\");
    if (n == 2 && p[0] == '.' && p[1] == '.')
      return true;
    p += n;
    p += *p != 0;
  }
  return false;
}

/* The file's real path, inside the model's real folder; NULL with the reason. */
static const char *safe_path(const cy_externals *x, const char *location, char out[PATH_MAX], char *why) {
  char folder[PATH_MAX], joined[PATH_MAX];
  if (!x->folder)
    return fail(why, "the model comes from memory and so has no folder to find external data '%s' in", location);
  if (!location[0])
    return fail(why, "external data has no 'location', the name of its file");
  if (leaves_folder(location))
    return fail(why, "external data must lie in the model's own folder, found location '%s'", location);
  int length = snprintf(joined, sizeof joined, "%s/%s", x->folder, location);
  errno = ENAMETOOLONG;
  if (length >= (int)sizeof joined || !realpath(x->folder, folder) || !realpath(joined, out))
    return fail(why, "cannot open external data '%s/%s': %s", x->folder, location, strerror(errno));
  size_t n = strlen(folder);
  bool inside = strncmp(out, folder, n) == 0 && (out[n] == '/' || (n == 1 && folder[0] == '/'));
  return inside ? out
                : fail(why, "external data '%s' leads through a symbolic link out of the model's folder", location);
}

static const cy_mapping *mapping_of(cy_externals *x, const char *location, char *why) {
  char buffer[PATH_MAX];
  const char *path = safe_path(x, location, buffer, why);
  if (!path)
    return NULL;
  for (file *f = x->files; f; f = f->next)
    if (strcmp(f->path, path) == 0)
      return &f->map;
  cy_mapping map;
  if (!cy_mapping_open(&map, path, why, CY_EXTERNAL_WHY))
    return NULL;
  file *f = calloc(1, sizeof *f);
  char *copy = strdup(path);
  if (!f || !copy)
    cy_no_memory();
  *f = (file){x->files, copy, map};
  x->files = f;
  return &f->map;
}

/* Is it the first time that this location could not be opened? */
static bool lose(cy_externals *x, const char *location) {
  for (lost *l = x->lost; l; l = l->next)
    if (strcmp(l->location, location) == 0)
      return false;
  lost *l = calloc(1, sizeof *l);
  char *copy = strdup(location);
  if (!l || !copy)
    cy_no_memory();
  *l = (lost){x->lost, copy};
  x->lost = l;
  return true;
}

static bool parse_number(const char *key, const char *text, uint64_t *out, char *why) {
  char *end;
  errno = 0;
  unsigned long long v = strtoull(text, &end, 10);
  if (text[0] < '0' || text[0] > '9' || *end || errno)
    return fail(why, "external data: '%s' must be a number of bytes, found '%s'", key, text);
  *out = v;
  return true;
}

const void *cy_externals_find(cy_externals *x, const Onnx__TensorProto *t, uint64_t bytes, char why[CY_EXTERNAL_WHY]) {
  const char *location = "";
  uint64_t offset = 0, length = bytes, end;
  for (size_t i = 0; i < t->n_external_data; i++) {
    const char *key = t->external_data[i]->key, *value = t->external_data[i]->value;
    if (!key || !value)
      continue;
    if (strcmp(key, "location") == 0)
      location = value;
    if (strcmp(key, "offset") == 0 && !parse_number(key, value, &offset, why))
      return NULL;
    if (strcmp(key, "length") == 0 && !parse_number(key, value, &length, why))
      return NULL;
  }
  if (x->ask && !location[0])
    return fail(why, "external data has no 'location', the name of its file");
  const cy_mapping *m = x->ask ? NULL : mapping_of(x, location, why);
  if (!m && !x->ask) {
    if (location[0] && !lose(x, location))
      *why = 0;
    return NULL;
  }
  if (length != bytes)
    return fail(why, "the tensor's shape and type need %llu bytes, its external data has length %llu",
                (unsigned long long)bytes, (unsigned long long)length);
  if (x->ask) {
    const void *p = length ? x->ask(x->ask_ctx, location, offset, length, why) : "";
    if (!p && !lose(x, location))
      *why = 0;
    return p;
  }
  if (!cy_add_size(offset, length, &end) || end > m->size)
    return fail(why, "external data ends beyond its file: offset %llu and length %llu in '%s' of %llu bytes",
                (unsigned long long)offset, (unsigned long long)length, location, (unsigned long long)m->size);
  return m->bytes + offset;
}
