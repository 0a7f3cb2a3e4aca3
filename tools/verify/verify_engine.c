/* SPDX-License-Identifier: Apache-2.0 */
/* verify_engine.c - one of the two sides of `cytoc verify`: computes the outputs of a model on samples.
 *
 * In:  a model, samples. Out: for every sample its outputs, or why there are none.
 *
 * Libraries run in a forked process: one that crashes is a finding and not the end of the command. Other frameworks run in
 * Python (verify_python.py). Values go there and back in files (value_stream_write), each sample's as a number of values
 * and these, or -1, a length and a text.
 */
#define _GNU_SOURCE
#include "verify.h"

#include "tools/driver/pipeline.h"
#include "tools/process.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
  const char *name, *word; /* for people; for the script, NULL: it is none of its */
} kinds[] = {
    [VERIFY_OURS] = {"the library", NULL},           [VERIFY_EAGER] = {"-O0", NULL},
    [VERIFY_ORT] = {"ONNX Runtime", "ort"},          [VERIFY_REFERENCE] = {"onnx.reference", "reference"},
    [VERIFY_FILES] = {"the expected outputs", NULL},
};

const char *verify_kind_name(verify_kind kind) { return kinds[kind].name; }

static int fail(verify_engine *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int fail(verify_engine *e, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(e->error, sizeof e->error, format, args);
  va_end(args);
  return -1;
}

/* ---- compiling -------------------------------------------------------------------------------------------------- */

/* The options of -O0: those that say what the model is, and where kernels run. */
static cytoc_options eager_options(const cytoc_options *o) {
  return (cytoc_options){.target = "native",
                         .jobs = o->jobs,
                         .dims = o->dims,
                         .shapes = o->shapes,
                         .last_logits = o->last_logits,
                         .strict = o->strict};
}

static void first_error(void *ctx, const char *line) {
  verify_engine *e = ctx;
  if (!*e->error && strstr(line, "error:"))
    fail(e, "%s", line);
}

static int build(verify_engine *e, cy_diag_sink *diag) {
  cytoc_options o = e->kind == VERIFY_OURS ? *e->o : eager_options(e->o);
  cy_diag_sink *own = diag ? NULL : cy_diag_create();
  e->library = cy_temps_file(e->temps, "model.so");
  cy_temps_file(e->temps, "model.so.weights");
  cy_temps_file(e->temps, "model.h");
  o.input = e->source;
  o.output = e->library;
  o.emit = "so";
  o.name = "model";
  o.bisect = o.stats_file = NULL;
  o.explain = false;
  cytoc_session s = {.o = &o, .diag = diag ? diag : own};
  int status = cytoc_session_run(&s);
  free(s.written);
  if (status && own)
    cy_diag_each(own, first_error, e);
  if (status && !*e->error)
    fail(e, "it does not compile");
  if (own)
    cy_diag_destroy(own);
  return status;
}

int verify_engine_open(verify_engine *e, verify_kind kind, const cytoc_options *o, const char *source,
                       cy_diag_sink *diag) {
  *e = (verify_engine){.kind = kind, .o = o, .source = source};
  cy_diag_sink *own = cy_diag_create();
  e->temps = cy_temps_create(own);
  if (!e->temps)
    cy_diag_each(own, first_error, e);
  cy_diag_destroy(own);
  if (!e->temps)
    return -1;
  if (kind == VERIFY_OURS && o->library) {
    e->library = o->library;
    return 0;
  }
  return kind == VERIFY_OURS || kind == VERIFY_EAGER ? build(e, diag) : 0;
}

void verify_engine_close(verify_engine *e) { cy_temps_destroy(e->temps); }

void verify_results_free(verify_result *results, int n) {
  for (int i = 0; i < n; i++) {
    for (int32_t k = 0; k < results[i].n; k++)
      host_value_free(&results[i].outputs[k]);
    free(results[i].outputs);
    free(results[i].error);
    results[i] = (verify_result){0};
  }
}

/* ---- the library's process -------------------------------------------------------------------------------------- */

static bool put_error(FILE *f, const char *text) {
  int64_t mark = -1;
  uint64_t length = strlen(text);
  return fwrite(&mark, sizeof mark, 1, f) == 1 && fwrite(&length, sizeof length, 1, f) == 1 &&
         fwrite(text, 1, length, f) == length;
}

static bool is_float(int32_t dtype) {
  return dtype == CYTO_F32 || dtype == CYTO_F64 || dtype == CYTO_F16 || dtype == CYTO_BF16;
}

/* With --half-io an input is narrower than the model's, or than the samples are. */
static int bind(cyto_context *context, int32_t k, const cyto_port *port, const cyto_value *value, cyto_error *error) {
  if (value->kind != CYTO_TENSOR || value->tensor.dtype == port->dtype || !is_float(port->dtype) ||
      !is_float(value->tensor.dtype))
    return cyto_bind_value(context, k, value, error);
  char why[TENSOR_ERROR_SIZE];
  const cyto_tensor *t = &value->tensor;
  host_tensor from = {.dtype = t->dtype, .rank = t->rank, .data = t->data},
              to = {.dtype = port->dtype, .rank = t->rank};
  memcpy(from.dims, t->dims, sizeof from.dims);
  memcpy(to.dims, t->dims, sizeof to.dims);
  if (host_tensor_alloc(&to, why)) {
    snprintf(error->message, sizeof error->message, "%s", why);
    return -1;
  }
  for (int64_t i = 0; i < host_tensor_count(&from); i++)
    host_tensor_set(&to, i, host_tensor_get(&from, i));
  return cyto_bind_input(context, k, to.dtype, to.rank, to.dims, to.data, error); /* lives as long as this process */
}

static int bind_all(const cyto_model *model, cyto_context *context, const input_sample *s, cyto_error *error) {
  for (int32_t k = 0; k < cyto_model_input_count(model); k++) {
    cyto_port port;
    cyto_model_input(model, k, &port);
    const cyto_value *value = k < s->n ? &s->inputs[k] : NULL;
    bool absent = !value || (value->kind == CYTO_TENSOR && !value->tensor.dtype);
    if (absent ? port.is_optional && cyto_bind_value(context, k, NULL, error) : bind(context, k, &port, value, error))
      return -1;
  }
  return 0;
}

static bool put_outputs(const cyto_model *model, cyto_context *context, FILE *f) {
  int64_t n = cyto_model_output_count(model);
  cyto_error error;
  cyto_value value;
  for (int32_t k = 0; k < n; k++)
    if (cyto_output_value(context, k, &value, &error))
      return put_error(f, error.message);
  bool ok = fwrite(&n, sizeof n, 1, f) == 1;
  for (int32_t k = 0; ok && k < n; k++) {
    cyto_output_value(context, k, &value, &error);
    ok = value_stream_write(f, &value);
  }
  return ok;
}

/* Exit codes of the process: what it has to say is in the file; that could not be written; the library does not load, or finds
 * no device, which the file says. */
enum { SAID = 0, NOT_WRITTEN = 1, NOT_HERE = 2 };

static int run_samples(const verify_engine *e, const input_sample *samples, int n, FILE *f) {
  cyto_model *model = NULL;
  cyto_context *context = NULL;
  cyto_error error = {0};
  cyto_options how = {.threads = e->o->threads, .device = 0};
  bool ok = true;
  const char *path = e->library;
  char here[PROCESS_PATH];
  if (!strchr(path, '/')) {
    snprintf(here, sizeof here, "./%s", path);
    path = here;
  }
  if (cyto_model_load(path, &model, &error) || cyto_context_create(model, &how, &context, &error))
    ok = put_error(f, error.message);
  bool loaded = context != NULL;
  for (int i = 0; i < n && context && ok; i++) {
    ok = bind_all(model, context, &samples[i], &error) || cyto_run(context, &error) ? put_error(f, error.message)
                                                                                    : put_outputs(model, context, f);
    ok = ok && !fflush(f);
  }
  ok = !fclose(f) && ok;
  return !ok ? NOT_WRITTEN : loaded ? SAID : NOT_HERE;
}

/* ---- what came back --------------------------------------------------------------------------------------------- */

static char *copy_text(const char *text) {
  char *copy = strdup(text);
  if (!copy)
    cy_no_memory();
  return copy;
}

static char *read_error(FILE *f) {
  uint64_t length = 0;
  char text[VERIFY_TEXT];
  if (fread(&length, sizeof length, 1, f) != 1)
    return NULL;
  size_t n = length < sizeof text ? (size_t)length : sizeof text - 1;
  n = fread(text, 1, n, f);
  text[n] = 0;
  fseek(f, (long)(length - n), SEEK_CUR);
  return copy_text(text);
}

/* False: there is nothing more in the file. */
static bool read_result(FILE *f, verify_result *out) {
  int64_t n = 0;
  char error[TENSOR_ERROR_SIZE];
  *out = (verify_result){0};
  if (fread(&n, sizeof n, 1, f) != 1)
    return false;
  if (n < 0)
    return (out->error = read_error(f)) != NULL;
  out->outputs = calloc((size_t)n + 1, sizeof *out->outputs);
  if (!out->outputs)
    cy_no_memory();
  for (int64_t k = 0; k < n; k++, out->n++)
    if (value_stream_read(f, &out->outputs[k], error)) {
      verify_results_free(out, 1);
      return false;
    }
  return true;
}

/* Results of those samples that have any; of the others it is `otherwise` that says why, or NULL: the first one's failure, of
 * loading the model, which stands for all. */
static void read_results(const char *path, int n, verify_result *results, const char *otherwise) {
  FILE *f = fopen(path, "rb");
  for (int i = 0; i < n; i++) {
    if (f && read_result(f, &results[i]))
      continue;
    if (f)
      fclose(f);
    f = NULL;
    results[i].error = copy_text(otherwise               ? otherwise
                                 : i && results[0].error ? results[0].error
                                                         : "there is no result");
  }
  if (f)
    fclose(f);
}

static int run_library(verify_engine *e, const input_sample *samples, int n, const char *path, verify_result *results) {
  fflush(NULL);
  pid_t child = cy_temps_fork();
  if (child < 0)
    return fail(e, "cannot start a process: %s", strerror(errno));
  if (!child) {
    FILE *f = fopen(path, "wb");
    _exit(f ? run_samples(e, samples, n, f) : NOT_WRITTEN);
  }
  int status = cy_temps_wait(child);
  char why[200] = "it did not come so far";
  if (WIFSIGNALED(status))
    snprintf(why, sizeof why, "the process was ended by a signal: %s", strsignal(WTERMSIG(status)));
  else if (WEXITSTATUS(status) != SAID && WEXITSTATUS(status) != NOT_HERE)
    return fail(e, "cannot write the outputs to '%s': is the disk full? TMPDIR says where", path);
  read_results(path, n, results, WIFEXITED(status) && WEXITSTATUS(status) == NOT_HERE ? NULL : why);
  return WIFEXITED(status) && WEXITSTATUS(status) == NOT_HERE && results[0].error
             ? fail(e, "it cannot run here: %s", results[0].error)
             : 0;
}

/* ---- Python ----------------------------------------------------------------------------------------------------- */

static int write_job(verify_engine *e, const input_sample *samples, int n, const char *path) {
  FILE *f = fopen(path, "wb");
  bool ok = f != NULL;
  for (int i = 0; ok && i < n; i++) {
    int64_t count = samples[i].n;
    ok = fwrite(&count, sizeof count, 1, f) == 1;
    for (int32_t k = 0; ok && k < samples[i].n; k++)
      ok = value_stream_write(f, &samples[i].inputs[k]);
  }
  ok = f && !fclose(f) && ok;
  return ok ? 0 : fail(e, "cannot write the inputs to '%s': %s", path, strerror(errno));
}

static int run_python(verify_engine *e, const input_sample *samples, int n, const char *path, verify_result *results) {
  char self[PROCESS_PATH], folder[PROCESS_PATH], python[PROCESS_PATH], script[PROCESS_PATH], text[VERIFY_TEXT];
  char threads[16];
  const char *inputs = cy_temps_file(e->temps, "inputs.bin");
  process_args a = {0};
  if (process_self(self, folder) || write_job(e, samples, n, inputs))
    return *e->error ? -1 : fail(e, "cannot find the folder of cytoc");
  process_python(folder, python);
  process_script(folder, "verify/verify_python.py", script);
  snprintf(threads, sizeof threads, "%d", e->o->threads);
  const char *const words[] = {python, script, kinds[e->kind].word, e->source, inputs, path, threads};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    process_arg(&a, words[i]);
  int status = process_run(&a, text, sizeof text);
  if (status) {
    process_failure(e->error, sizeof e->error, kinds[e->kind].name, status, text, 1);
    return -1;
  }
  read_results(path, n, results, NULL);
  return 0;
}

int verify_engine_run(verify_engine *e, const input_sample *samples, int n, verify_result *results) {
  const char *path = cy_temps_file(e->temps, "outputs.bin");
  *e->error = 0;
  memset(results, 0, sizeof *results * (size_t)n);
  int status =
      kinds[e->kind].word ? run_python(e, samples, n, path, results) : run_library(e, samples, n, path, results);
  unlink(path); /* they may be large, and several sides come one after the other */
  return status;
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

int verify_files_read(const input_sample *s, const cyto_model *model, verify_result *out,
                      char error[TENSOR_ERROR_SIZE]) {
  char path[PROCESS_PATH];
  out->n = cyto_model_output_count(model);
  out->outputs = calloc((size_t)out->n + 1, sizeof *out->outputs);
  if (!out->outputs)
    cy_no_memory();
  for (int32_t k = 0; k < out->n; k++) {
    cyto_port port;
    char why[TENSOR_ERROR_SIZE];
    cyto_model_output(model, k, &port);
    if (!value_folder_find(s->folder, true, k, path, sizeof path)) {
      snprintf(error, TENSOR_ERROR_SIZE,
               "'%.200s' has no file for output '%.100s': expected out_%d_*.npy or output_%d.pb", s->folder, port.name,
               k, k);
      return -1;
    }
    if (value_file_read(path, &port, &out->outputs[k], why)) {
      snprintf(error, TENSOR_ERROR_SIZE, "output '%.100s': %.400s", port.name, why);
      return -1;
    }
  }
  return 0;
}
