/* SPDX-License-Identifier: Apache-2.0 */
/* unit.c - a group of nodes, compiled and opened.
 *
 * In:  a serialized group, the options of the session.
 * Out: a unit: the library, from the cache or made by libcytoc, opened by the runtime. Or what the compiler said.
 *
 * libcytoc is opened when there is something to compile: sessions of EPContext models do without.
 */
#include "integrations/onnxruntime/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- compiling ---- */

/* NULL: *out can be used. */
static ort_status *compiler_get(const ort_calls *ort, const compiler **out) {
  *out = compiler_open();
  return *(*out)->why ? plugin_error(ort, ORT_EP_FAIL, "cytoc: %s", (*out)->why) : NULL;
}

typedef struct request {
  const compiler *compiler;
  ep *e;
  const model *m;
  refusal *r;
  cytoc_result result;
  cytoc_status status;
} request;

/* Weights are where ONNX Runtime has them. */
static int external(void *ctx, const char *location, uint64_t offset, uint64_t length, const void **data,
                    uint64_t *size) {
  const model *m = ((request *)ctx)->m;
  char *end;
  unsigned long long i = strtoull(location, &end, 10);
  if (*end || end == location || i >= m->n_weights || offset > m->weights[i].bytes)
    return -1;
  *data = (const char *)m->weights[i].data + offset;
  *size = m->weights[i].bytes - offset;
  if (length && length > *size)
    return -1;
  if (length)
    *size = length;
  return 0;
}

static void on_diagnostic(void *ctx, const cytoc_diagnostic *d) {
  request *q = ctx;
  if (d->severity == CYTOC_ERROR && q->r->on_diagnostic)
    q->r->on_diagnostic(q->r->ctx, d);
  else if (d->severity == CYTOC_WARNING)
    ep_log(q->e, ORT_LOG_WARNING, "%s", d->line);
}

/* Its messages begin with its name, or with the model's. */
static ort_status *said_by_compiler(const ort_calls *ort, int32_t code, const cytoc_result *result) {
  static const char name[] = "cytoc: ";
  const char *text =
      strncmp(result->message, name, sizeof name - 1) ? result->message : result->message + sizeof name - 1;
  return plugin_error(ort, code, "%s%s", name, text);
}

/* path NULL: in memory. */
static int build(void *ctx, const char *path) {
  request *q = ctx;
  cytoc_job job = {.struct_size = sizeof job,
                   .model_path = "model",
                   .model = q->m->bytes,
                   .model_size = q->m->size,
                   .external = external,
                   .options = (const char *const *)q->e->words,
                   .option_count = q->e->n_words,
                   .output_path = path,
                   .ctx = q,
                   .on_diagnostic = on_diagnostic};
  cytoc_status status = q->status = q->compiler->cytoc_compile(&job, &q->result);
  if (status == CYTOC_OK)
    return 0;
  /* A model that cytoc makes a mistake with is one for ONNX Runtime, too. */
  q->r->of_model = status == CYTOC_INVALID_MODEL || status == CYTOC_INTERNAL_ERROR;
  q->r->status =
      said_by_compiler(q->e->ort, status == CYTOC_INVALID_OPTION ? ORT_INVALID_ARGUMENT : ORT_EP_FAIL, &q->result);
  return -1;
}

/* ---- units ---- */

void unit_release(unit *u) {
  if (!u)
    return;
  runs_release(u);
  cyto_model_unload(u->model);
  for (size_t i = 0; u->inputs && i < u->n_inputs; i++)
    free(u->inputs[i]);
  for (size_t i = 0; u->outputs && i < u->n_outputs; i++)
    free(u->outputs[i]);
  free(u->inputs);
  free(u->outputs);
  free(u->dynamic);
  free(u->path);
  free(u->bytes);
  pthread_mutex_destroy(&u->lock);
  free(u);
}

static bool copy_ports(char ***names, bool **dynamic, const cyto_model *model, size_t n,
                       cyto_status (*port_of)(const cyto_model *, int32_t, cyto_port *)) {
  cyto_port port;
  *names = calloc(n + 1, sizeof **names);
  *dynamic = calloc(n + 1, sizeof **dynamic);
  for (size_t i = 0; *names && *dynamic && i < n; i++) {
    if (port_of(model, (int32_t)i, &port) || !((*names)[i] = strdup(port.name)))
      return false;
    (*dynamic)[i] = port.is_dynamic;
  }
  return *names && *dynamic;
}

static bool unit_describe(unit *u, const char *path) {
  bool *unused = NULL;
  u->n_inputs = (size_t)cyto_model_input_count(u->model);
  u->n_outputs = (size_t)cyto_model_output_count(u->model);
  u->path = path ? strdup(path) : NULL;
  bool whole = (!path || u->path) && copy_ports(&u->inputs, &unused, u->model, u->n_inputs, cyto_model_input) &&
               copy_ports(&u->outputs, &u->dynamic, u->model, u->n_outputs, cyto_model_output);
  free(unused);
  return whole;
}

ort_status *unit_open(ep *e, const char *path, const void *bytes, size_t size, unit **out) {
  cyto_error error = {0};
  unit *u = *out = calloc(1, sizeof *u);
  if (!u)
    return plugin_error(e->ort, ORT_FAIL, "cytoc: out of memory");
  pthread_mutex_init(&u->lock, NULL);
  u->ep = e;
  cyto_status status =
      path ? cyto_model_load(path, &u->model, &error) : cyto_model_load_memory(bytes, size, &u->model, &error);
  if (status || !unit_describe(u, path)) {
    unit_release(u);
    *out = NULL;
    return plugin_error(e->ort, ORT_EP_FAIL, "cytoc: %s", status ? error.message : "out of memory");
  }
  u->next = e->units;
  e->units = u;
  return NULL;
}

static bool same_names(char **a, const char **b, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (strcmp(a[i], b[i]))
      return false;
  return true;
}

/* What a damaged or foreign library would do wrong. */
static ort_status *check_ports(const unit *u, const model *m) {
  if (u->n_inputs == m->n_inputs && u->n_outputs == m->n_outputs && same_names(u->inputs, m->inputs, m->n_inputs) &&
      same_names(u->outputs, m->outputs, m->n_outputs))
    return NULL;
  return plugin_error(u->ep->ort, ORT_EP_FAIL,
                      "cytoc: the library has other inputs or outputs than the nodes it was compiled from");
}

/* The library of a key: its path, or its bytes in q->result. */
static bool find_library(request *q, char path[CACHE_PATH], bool *in_memory) {
  char key[128], why[256];
  snprintf(key, sizeof key, "ort-%s-%016llx", q->m->key, (unsigned long long)compiler_hash(q->compiler));
  *in_memory = false;
  if (cache_library(q->e->cache_dir, key, build, q, path, why))
    return true;
  if (!*why && q->status != CYTOC_IO_FAILURE)
    return false;     /* the compiler's error */
  if (q->r->status) { /* the folder is full */
    snprintf(why, sizeof why, "%.200s", q->result.message);
    q->e->ort->ReleaseStatus(q->r->status);
    q->r->status = NULL;
  }
  ep_log(q->e, ORT_LOG_WARNING, "compiled models are not kept: %s; the option cache_dir names another folder", why);
  q->compiler->cytoc_result_free(&q->result);
  *in_memory = true;
  return !build(q, NULL);
}

unit *unit_of(ep *e, const model *m, refusal *r) {
  for (unit *u = e->units; u; u = u->next)
    if (!strcmp(u->key, m->key))
      return u;
  request q = {.e = e, .m = m, .r = r};
  if ((r->status = compiler_get(e->ort, &q.compiler)))
    return NULL;
  char path[CACHE_PATH];
  bool in_memory;
  unit *u = NULL;
  if (find_library(&q, path, &in_memory))
    r->status = unit_open(e, in_memory ? NULL : path, q.result.library, q.result.library_size, &u);
  if (u && in_memory && (u->bytes = malloc(q.result.library_size))) {
    memcpy(u->bytes, q.result.library, q.result.library_size);
    u->size = q.result.library_size;
  }
  q.compiler->cytoc_result_free(&q.result);
  if (u && !(r->status = check_ports(u, m)))
    snprintf(u->key, sizeof u->key, "%s", m->key);
  return r->status ? NULL : u;
}

ort_status *unit_read(const unit *u, void **bytes, size_t *size) {
  struct stat st;
  FILE *f = u->path ? fopen(u->path, "rb") : NULL;
  *size = f && !fstat(fileno(f), &st) ? (size_t)st.st_size : u->size;
  *bytes = malloc(*size + 1);
  bool whole = *bytes && (f ? fread(*bytes, 1, *size, f) == *size : u->bytes != NULL);
  if (whole && !f)
    memcpy(*bytes, u->bytes, *size);
  if (f)
    fclose(f);
  if (whole)
    return NULL;
  free(*bytes);
  *bytes = NULL;
  return plugin_error(u->ep->ort, ORT_EP_FAIL, "cytoc: the compiled library cannot be read: %s",
                      u->path ? u->path : "out of memory");
}

/* ---- options ---- */

ort_status *options_check(const ep *e) {
  const compiler *c;
  ort_status *status = compiler_get(e->ort, &c);
  if (status)
    return status;
  cytoc_result result;
  if (compiler_check(c, (const char *const *)e->words, e->n_words, &result) == CYTOC_INVALID_OPTION)
    status = said_by_compiler(e->ort, ORT_INVALID_ARGUMENT, &result);
  c->cytoc_result_free(&result);
  return status;
}
