/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* load.c - from a library file, or from the bytes of one, to a cyto_model.
 *
 * In:  a path, bytes. Out: a handle (model.c). A library exports CYTO_MODEL_QUERY, which gives its read-only cyrt_model for
 * the interface version we know. Models that come so may be run on several devices at once (context_spread.c).
 */
#include "context.h"

#include <stdio.h>
#include <string.h>

/* `name` is what the library is called in texts; path as for cyrt_model_create(). */
static cyto_status load(const char *file, const char *name, const char *path, cyto_model **out_model,
                        cyto_error *error) {
  char why[CYRT_WHY];
  cyto_model_query_fn query;
  void *library = cyrt_os_library_open(file, why);
  if (!library)
    return cyrt_error_set(error, CYTO_BAD_LIBRARY, "'%s': cannot load the library: %s", name, why);
  void *symbol = cyrt_os_library_symbol(library, CYTO_MODEL_QUERY);
  if (!symbol) {
    cyrt_os_library_close(library);
    return cyrt_error_set(error, CYTO_BAD_LIBRARY, "'%s': not a compiled model (it does not export '%s')", name,
                          CYTO_MODEL_QUERY);
  }
  memcpy(&query, &symbol, sizeof query);
  const cyrt_model *code = query(CYTO_ABI_VERSION);
  if (!code) {
    cyrt_os_library_close(library);
    return cyrt_error_set(error, CYTO_BAD_LIBRARY,
                          "'%s': model has another interface version, expected %u; compile it again", name,
                          CYTO_ABI_VERSION);
  }
  cyto_status status = cyrt_model_create(code, library, file, path, out_model, error);
  if (!status)
    (*out_model)->spread_open = cyrt_spread_open;
  return status;
}

cyto_status cyto_model_load(const char *path, cyto_model **out_model, cyto_error *error) {
  char local[CYRT_PATH], why[CYRT_WHY];
  cyrt_error_clear(error);
  if (out_model)
    *out_model = NULL;
  if (!path || !*path || !out_model)
    return cyrt_error_null(error, "cyto_model_load: no path or no place for the model");
  if (cyrt_os_path_base(path) == path &&
      strlen(path) < sizeof local - 2) { /* a plain name means a file here, not a search */
    snprintf(local, sizeof local, "./%s", path);
    path = local;
  }
  if (!cyrt_os_readable(path, why))
    return cyrt_error_set(error, CYTO_NOT_FOUND, "'%s': cannot read the library: %s", path, why);
  return load(path, path, path, out_model, error);
}

cyto_status cyto_model_load_memory(const void *bytes, uint64_t size, cyto_model **out_model, cyto_error *error) {
  char path[CYRT_PATH], why[CYRT_WHY];
  cyrt_error_clear(error);
  if (out_model)
    *out_model = NULL;
  if (!bytes || !size || !out_model)
    return cyrt_error_null(error, "cyto_model_load_memory: no bytes or no place for the model");
  int file = cyrt_os_memory_file(bytes, size, path, why);
  if (file < 0)
    return cyrt_error_set(error, CYTO_RUNTIME_FAILURE, "cannot make a file of %llu bytes in memory for the library: %s",
                          (unsigned long long)size, why);
  cyto_status status = load(path, "library in memory", NULL, out_model, error);
  cyrt_os_memory_file_close(file);
  return status;
}
