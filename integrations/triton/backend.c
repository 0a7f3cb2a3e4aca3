/* SPDX-License-Identifier: Apache-2.0 */
/* backend.c - what Triton finds in this library: its entry points. Errors and lines of its log.
 *
 * In:  calls of the server. Out: models, instances; an error that names both versions where the server is too old.
 */
#include "integrations/triton/backend.h"

#include <stdlib.h>
#include <string.h>

/* ---- errors ---- */

triton_error *error_of(int code, const char *format, ...) {
  char text[4096];
  va_list arguments;
  va_start(arguments, format);
  int n = snprintf(text, sizeof text, "cytoc: ");
  vsnprintf(text + n, sizeof text - (size_t)n, format, arguments);
  va_end(arguments);
  return TRITONSERVER_ErrorNew(code, text);
}

static int code_of(cyto_status status) {
  switch (status) {
  case CYTO_INVALID_ARGUMENT:
  case CYTO_SHAPE_MISMATCH:
  case CYTO_DTYPE_MISMATCH:
    return TRITON_INVALID_ARG;
  case CYTO_OUT_OF_MEMORY:
  case CYTO_NO_DEVICE:
    return TRITON_UNAVAILABLE;
  default:
    return TRITON_INTERNAL;
  }
}

triton_error *error_of_runtime(cyto_status status, const cyto_error *error) {
  return error_of(code_of(status), "%s", error->message[0] ? error->message : cyto_status_name(status));
}

triton_error *out_of_memory(void) { return error_of(TRITON_UNAVAILABLE, "out of memory"); }

triton_error *error_copy(triton_error *error) {
  return TRITONSERVER_ErrorNew((int)TRITONSERVER_ErrorCode(error), TRITONSERVER_ErrorMessage(error));
}

void ignore(triton_error *error) {
  if (error)
    TRITONSERVER_ErrorDelete(error);
}

void log_line(int level, const char *format, ...) {
  char text[4096];
  va_list arguments;
  va_start(arguments, format);
  int n = snprintf(text, sizeof text, "cytoc: ");
  vsnprintf(text + n, sizeof text - (size_t)n, format, arguments);
  va_end(arguments);
  ignore(TRITONSERVER_LogMessage(level, "cytoc", 0, text));
}

/* ---- the backend ---- */

enum { DEFAULT_MAX_BATCH = 4 }; /* as Triton's own backends have it */

/* --backend-config=cytoc,default-max-batch-size=8 or, for all backends, --backend-config=default-max-batch-size=8 */
static triton_error *read_max_batch(triton_backend *triton, int64_t *out) {
  triton_message *message;
  const char *text;
  size_t bytes;
  *out = DEFAULT_MAX_BATCH;
  TRY(TRITONBACKEND_BackendConfig(triton, &message));
  TRY(TRITONSERVER_MessageSerializeToJson(message, &text, &bytes));
  json_t *root = json_loadb(text, bytes, 0, NULL);
  const json_t *value = json_object_get(json_object_get(root, "cmdline"), "default-max-batch-size");
  const char *number = json_string_value(value);
  char *end = NULL;
  long n = number ? strtol(number, &end, 10) : DEFAULT_MAX_BATCH;
  triton_error *error = NULL;
  if (number && (end == number || *end || n < 0 || n > INT32_MAX))
    error = error_of(TRITON_INVALID_ARG, "default-max-batch-size: expected a number from 0, found '%s'", number);
  *out = n;
  json_decref(root);
  return error;
}

triton_error *TRITONBACKEND_Initialize(triton_backend *triton) {
  uint32_t major, minor;
  TRY(TRITONBACKEND_ApiVersion(&major, &minor));
  if (major != TRITON_MAJOR || minor < TRITON_OLDEST_MINOR)
    return error_of(TRITON_UNSUPPORTED,
                    "expected a server whose backend interface is %d.%d or a newer %d.x, found %u.%u", TRITON_MAJOR,
                    TRITON_OLDEST_MINOR, TRITON_MAJOR, major, minor);
  backend *b = calloc(1, sizeof *b);
  if (!b)
    return out_of_memory();
  triton_error *error = read_max_batch(triton, &b->max_batch);
  if (!error)
    error = TRITONBACKEND_BackendSetState(triton, b);
  if (error)
    free(b);
  return error;
}

triton_error *TRITONBACKEND_Finalize(triton_backend *triton) {
  void *b = NULL;
  TRY(TRITONBACKEND_BackendState(triton, &b));
  free(b);
  return NULL;
}

/* Without a word of the configuration, models run on CPUs: config.c says so of libraries for GPUs. */
triton_error *TRITONBACKEND_GetBackendAttribute(triton_backend *triton, triton_attributes *attributes) {
  (void)triton;
  TRY(TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(attributes, TRITON_KIND_CPU, 1, NULL, 0));
  return TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(attributes, true);
}

/* ---- models ---- */

static void model_free(model *m) {
  layers_stop(m->layers);
  cyto_model_unload(m->library);
  options_free(&m->options);
  free(m->inputs);
  free(m->outputs);
  free(m);
}

static triton_error *open_file(model *m, const config *c) {
  char folder[CACHE_PATH];
  const char *repository;
  int kind;
  TRY(TRITONBACKEND_ModelRepository(m->triton, &kind, &repository));
  int n = snprintf(folder, sizeof folder, "%s/%llu", repository, (unsigned long long)m->version);
  if (n < 0 || n >= (int)sizeof folder)
    return error_of(TRITON_INVALID_ARG, "model '%s': the path of its folder is too long", m->name);
  return library_open(m, folder, c->file, c->gpu);
}

static triton_error *model_setup(model *m, config *c) {
  bool completes = false;
  triton_backend *triton;
  void *b;
  TRY(TRITONBACKEND_ModelName(m->triton, &m->name));
  TRY(TRITONBACKEND_ModelVersion(m->triton, &m->version));
  TRY(TRITONBACKEND_ModelBackend(m->triton, &triton));
  TRY(TRITONBACKEND_BackendState(triton, &b));
  TRY(options_read(&m->options, json_object_get(c->root, "parameters")));
  TRY(open_file(m, c));
  TRY(ports_read(m));
  TRY(TRITONBACKEND_ModelAutoCompleteConfig(m->triton, &completes));
  if (completes)
    TRY(config_complete(c, m, ((const backend *)b)->max_batch));
  TRY(config_apply(c, m));
  return m->options.layers ? layers_start(m) : NULL;
}

triton_error *TRITONBACKEND_ModelInitialize(triton_model *triton) {
  model *m = calloc(1, sizeof *m);
  config c;
  if (!m)
    return out_of_memory();
  m->triton = triton;
  triton_error *error = config_read(&c, triton);
  if (!error)
    error = model_setup(m, &c);
  config_free(&c);
  if (!error)
    error = TRITONBACKEND_ModelSetState(triton, m);
  if (error)
    model_free(m);
  return error;
}

triton_error *TRITONBACKEND_ModelFinalize(triton_model *triton) {
  void *m = NULL;
  TRY(TRITONBACKEND_ModelState(triton, &m));
  if (m)
    model_free(m);
  return NULL;
}

/* ---- instances ---- */

triton_error *TRITONBACKEND_ModelInstanceInitialize(triton_instance *triton) {
  triton_model *of;
  void *m;
  instance *i;
  TRY(TRITONBACKEND_ModelInstanceModel(triton, &of));
  TRY(TRITONBACKEND_ModelState(of, &m));
  TRY(instance_create(m, triton, &i));
  triton_error *error = TRITONBACKEND_ModelInstanceSetState(triton, i);
  if (error)
    instance_destroy(i);
  return error;
}

triton_error *TRITONBACKEND_ModelInstanceFinalize(triton_instance *triton) {
  void *i = NULL;
  TRY(TRITONBACKEND_ModelInstanceState(triton, &i));
  if (i)
    instance_destroy(i);
  return NULL;
}

triton_error *TRITONBACKEND_ModelInstanceExecute(triton_instance *triton, triton_request **requests, const uint32_t n) {
  void *i;
  TRY(TRITONBACKEND_ModelInstanceState(triton, &i));
  return execute(i, requests, n);
}
