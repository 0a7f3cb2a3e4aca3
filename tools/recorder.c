/* recorder.c - the model, compiled for this machine as a cy_quant says, loaded into this process and run on samples.
 *
 * Whatever the target is, this machine's CPU runs it. Libraries lie in TMPDIR for the moment between linking and
 * loading.
 */
#define _GNU_SOURCE
#include "recorder.h"

#include "codegen/target.h"
#include "codegen/temps.h"
#include "passes/memplan.h"
#include "tools/lower_options.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

enum { RANDOM_SAMPLES = 4 };

int recorder_fail(const recorder *r, const char *format, ...) {
  char text[1200];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  cy_diag_add(r->how->diag, CY_ERROR, NULL, "calibration: %s", text);
  return -1;
}

/* ---- compiling and loading -------------------------------------------------------------------------------------- */

/* Is there anything to see when the model runs? */
static bool has_work(const cy_quant *q) {
  if (cy_quant_is_static(q->mode))
    return q->ntensors > 0;
  for (uint32_t i = 0; i < q->nlayers; i++)
    if (!q->layer[i].keep)
      return true;
  return false;
}

static int build(const recorder *r, cy_machine *machine, const char *path) {
  cy_graph *g = r->how->read(r->how->ctx);
  cy_pass_options passes = r->how->half;
  passes.opt_level = r->how->opt_level;
  passes.disable = r->how->disable;
  passes.quant = r->how->in_form ? NULL : r->q;
  passes.most_head = cy_machine_most_head(machine);
  int status = g ? cy_passes_run(g, &passes, NULL) : -1;
  if (!status && has_work(r->q)) {
    cy_lower_options lower = lower_options_of(machine, r->how->opt_level);
    cy_program *p = cy_lower(g, &lower);
    cy_codegen_options c = {.machine = machine,
                            .emit = CY_EMIT_SO,
                            .output = path,
                            .header = "",
                            .name = "recorder",
                            .share_kernels = true,
                            .jobs = r->how->jobs,
                            .progress = r->how->progress,
                            .progress_ctx = r->how->progress_ctx,
                            .plan_memory = cy_plan_memory,
                            .diag = r->how->diag};
    status = p ? cy_codegen(p, &c) : -1;
  }
  if (g)
    cy_graph_destroy(g);
  return status;
}

static int load(recorder *r, const char *path) {
  cyto_error error;
  if (cyto_model_load(path, &r->model, &error) || cyto_context_create(r->model, NULL, &r->context, &error))
    return recorder_fail(r, "%s", error.message);
  return 0;
}

void recorder_stop(recorder *r) {
  cyto_context_destroy(r->context);
  if (r->model != r->known)
    cyto_model_unload(r->model);
  r->context = NULL;
  r->model = NULL;
}

int recorder_start(recorder *r) {
  cy_machine *machine = cy_machine_open("native", r->how->diag);
  cy_temps *temps = machine ? cy_temps_create(r->how->diag) : NULL;
  int status = -1;
  if (temps) {
    const char *path = cy_temps_file(temps, "recorder.so");
    cy_temps_file(temps, "recorder.so.weights"); /* written when the model is large */
    status = build(r, machine, path);
    if (!status && has_work(r->q))
      status = load(r, path);
  }
  cy_temps_destroy(temps);
  if (machine)
    cy_machine_close(machine);
  return status;
}

/* ---- running ---------------------------------------------------------------------------------------------------- */

static bool has_nan(const host_tensor *t) {
  bool odd = false;
  for (int64_t i = 0, n = t->dtype == CYTO_F32 && t->data ? host_tensor_count(t) : 0; i < n; i++)
    odd |= isnan(((const float *)t->data)[i]);
  return odd;
}

static int run_sample(recorder *r, int i) {
  char text[TENSOR_ERROR_SIZE];
  cyto_error error;
  if (samples_read(r->samples, i, r->inputs, text))
    return recorder_fail(r, "%s", text);
  for (int32_t k = 0; k < r->ninputs; k++) {
    const host_tensor *t = &r->inputs[k];
    cyto_port port;
    cyto_model_input(r->model, k, &port);
    if (has_nan(t))
      return recorder_fail(r, "'%s': the sample for input '%s' has NaN in it", samples_name(r->samples, i), port.name);
    if (cyto_bind_input(r->context, k, t->dtype, t->rank, t->dims, t->data, &error))
      return recorder_fail(r, "'%s': %s", samples_name(r->samples, i), error.message);
  }
  if (cyto_run(r->context, &error))
    return recorder_fail(r, "'%s': %s", samples_name(r->samples, i), error.message);
  return 0;
}

int recorder_open_samples(recorder *r) {
  char text[TENSOR_ERROR_SIZE];
  r->ninputs = cyto_model_input_count(r->model);
  r->inputs = calloc((size_t)r->ninputs + 1, sizeof *r->inputs);
  if (r->inputs)
    r->samples = r->how->samples ? samples_open(r->how->samples, r->model, text)
                                 : samples_random(r->model, RANDOM_SAMPLES, text);
  r->known = r->model;
  return r->samples ? 0 : recorder_fail(r, "%s", r->inputs ? text : "no memory");
}

void recorder_close(recorder *r) {
  recorder_stop(r);
  samples_close(r->samples);
  cyto_model_unload(r->known);
  free(r->inputs);
}

static void free_inputs(recorder *r) {
  for (int32_t k = 0; k < r->ninputs; k++)
    host_tensor_free(&r->inputs[k]);
}

int recorder_run(recorder *r, const char *what, int most, int (*visit)(recorder *r, int sample, void *ctx), void *ctx) {
  int n = samples_count(r->samples), status = 0;
  n = n < most ? n : most;
  for (int i = 0; i < n && !status; i++) {
    if (r->how->progress)
      r->how->progress(r->how->progress_ctx, what, i, n);
    status = run_sample(r, i);
    if (!status)
      status = visit(r, i, ctx);
    free_inputs(r);
  }
  return status;
}

int recorder_output(recorder *r, uint32_t index, cyto_tensor *out) {
  cyto_error error;
  return cyto_output(r->context, (int32_t)index, out, &error) ? recorder_fail(r, "%s", error.message) : 0;
}
