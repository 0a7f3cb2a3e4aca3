/* external.c - tensor data that a model keeps in other files.
 *
 * In: a TensorProto's external_data (location, offset, length). Out: a pointer into the mapped file.
 * A model is untrusted: the location must name a regular file inside the model's own folder. Absolute paths, ".." and
 * symbolic links that leave the folder are refused. Each file is mapped once and handed to the graph, which unmaps it.
 */
#include "frontend/import_int.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct cy_external_file {
  cy_external_file *next;
  const char *path;
  cy_mapping map;
};

static void release(void *handle) {
  cy_mapping_close(handle);
  free(handle);
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

/* The file's real path, inside the model's real folder; NULL after a diagnostic. */
static const char *safe_path(cy_importer *im, const char *location, const char *item) {
  if (!im->folder)
    return cy_build_error(im->g, item, "the model comes from memory and so has no folder to find external data '%s' in",
                          location),
           NULL;
  if (!location[0] || leaves_folder(location)) {
    cy_build_error(im->g, item, "external data must lie in the model's own folder, found location '%s'", location);
    return NULL;
  }
  char folder[PATH_MAX], file[PATH_MAX];
  const char *joined = cy_arena_printf(im->arena, "%s/%s", im->folder, location);
  if (!realpath(im->folder, folder) || !realpath(joined, file)) {
    cy_build_error(im->g, item, "cannot open external data '%s': %s", joined, strerror(errno));
    return NULL;
  }
  size_t n = strlen(folder);
  bool inside = strncmp(file, folder, n) == 0 && (file[n] == '/' || (n == 1 && folder[0] == '/'));
  if (!inside) {
    cy_build_error(im->g, item, "external data '%s' leads through a symbolic link out of the model's folder", location);
    return NULL;
  }
  return cy_arena_copy(im->arena, file, strlen(file) + 1);
}

static const cy_mapping *mapping_of(cy_importer *im, const char *location, const char *item) {
  const char *path = safe_path(im, location, item);
  if (!path)
    return NULL;
  for (cy_external_file *f = im->externals; f; f = f->next)
    if (strcmp(f->path, path) == 0)
      return &f->map;
  cy_external_file *f = CY_NEW(im->arena, cy_external_file);
  cy_location where = cy_importer_where(im, NULL);
  where.item = item;
  if (!cy_mapping_open(&f->map, path, im->diag, &where))
    return NULL;
  f->path = path;
  f->next = im->externals;
  im->externals = f;
  cy_mapping *handle = malloc(sizeof *handle);
  if (!handle) {
    cy_mapping_close(&f->map);
    return cy_build_error(im->g, item, "out of memory"), NULL;
  }
  *handle = f->map;
  cy_graph_own(im->g, handle, release);
  return &f->map;
}

static bool parse_number(cy_importer *im, const char *key, const char *text, const char *item, uint64_t *out) {
  char *end;
  errno = 0;
  unsigned long long v = strtoull(text, &end, 10);
  if (text[0] < '0' || text[0] > '9' || *end || errno) {
    cy_build_error(im->g, item, "external data: '%s' must be a number of bytes, found '%s'", key, text);
    return false;
  }
  *out = v;
  return true;
}

const void *cy_external_data(cy_importer *im, const Onnx__TensorProto *t, uint64_t bytes, const char *item) {
  const char *location = "";
  uint64_t offset = 0, length = bytes, end;
  for (size_t i = 0; i < t->n_external_data; i++) {
    const char *key = t->external_data[i]->key, *value = t->external_data[i]->value;
    if (!key || !value)
      continue;
    if (strcmp(key, "location") == 0)
      location = value;
    if (strcmp(key, "offset") == 0 && !parse_number(im, key, value, item, &offset))
      return NULL;
    if (strcmp(key, "length") == 0 && !parse_number(im, key, value, item, &length))
      return NULL;
  }
  const cy_mapping *m = mapping_of(im, location, item);
  if (!m)
    return NULL;
  if (length != bytes) {
    cy_build_error(im->g, item, "the tensor's shape and type need %llu bytes, its external data has length %llu",
                   (unsigned long long)bytes, (unsigned long long)length);
    return NULL;
  }
  if (!cy_add_size(offset, length, &end) || end > m->size) {
    cy_build_error(im->g, item, "external data ends beyond its file: offset %llu and length %llu in '%s' of %llu bytes",
                   (unsigned long long)offset, (unsigned long long)length, location, (unsigned long long)m->size);
    return NULL;
  }
  return m->bytes + offset;
}
