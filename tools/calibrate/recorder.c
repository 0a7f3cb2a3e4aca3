/* SPDX-License-Identifier: Apache-2.0 */
/* recorder.c - the model, compiled for this machine as a cy_quant says, loaded into this process and run on samples.
 *
 * Whatever the target is, this machine's CPU runs it. Libraries lie in TMPDIR for the moment between linking and
 * loading.
 */
#define _GNU_SOURCE
#include "recorder.h"

#include "codegen/codegen.h"
#include "codegen/target.h"
#include "codegen/temps.h"
#include "ir/clock.h"
#include "passes/lower/lower.h"
#include "passes/lower/memplan.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

enum { RANDOM_SAMPLES = 4 };
/* What makes a library in about half a second on two cores, or runs it twice. */
enum { BRIEF_KERNELS = 160, BRIEF_WEIGHTS = 96 << 20 };
static const double BRIEF_CYCLES = 4e8;

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
  if (cy_quant_is_static(q->mode) || q->mode == CY_QUANT_PLAN)
    return q->ntensors > 0 || q->mode == CY_QUANT_PLAN;
  for (uint32_t i = 0; i < q->nlayers; i++)
    if (!q->layer[i].keep)
      return true;
  return false;
}

/* What the passes do: all that they do for the target, but for what only makes it fast. Floats are f32, and have no weights
 * in blocks, where they are what integers are compared with; half precision is left out of that comparison on both sides,
 * unless it is what is measured. */
static cy_pass_options options_of(const recorder *r, const cy_machine *machine, cy_weight_options *weights) {
  cy_pass_options o = r->how->passes;
  cy_quant_mode mode = r->q->mode;
  bool whole = mode == CY_QUANT_STATIC || mode == CY_QUANT_DYNAMIC;
  o.only = o.stop_after = o.dump = NULL;
  o.learn = NULL;
  o.from = r->how->in_mode ? NULL : cy_quant_pass(mode);
  o.quant = r->how->in_mode ? NULL : r->q;
  if (r->how->in_mode)
    o.caps = cy_machine_caps(machine);
  if (o.weights) {
    *weights = *o.weights;
    weights->report = NULL; /* of the library that is written only */
    weights->bits = whole ? weights->bits : 0;
    o.weights = weights;
  }
  o.few_runs = mode != CY_QUANT_PLAN; /* which is seen as it will be */
  o.half_io = false;
  if (!cy_quant_is_half(mode))
    o.half = (cy_dtype)0;
  return o;
}

double recorder_cycles(const cy_quant *q) {
  double sum = 1;
  for (uint32_t i = 0; i < q->nlayers; i++) {
    const cy_quant_layer *l = &q->layer[i];
    sum += l->cycles[0] > 0 ? l->cycles[0] + l->cycles[1] : l->macs / 8;
  }
  return sum;
}

/* Why it would take too long to compile and run p; NULL: it does not. */
static const char *too_much(const recorder *r, const cy_program *p) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < p->nconstants; i++)
    bytes += p->constants[i].size;
  return p->nkernels > BRIEF_KERNELS            ? "it has many different kernels"
         : bytes > BRIEF_WEIGHTS                ? "its weights are large"
         : recorder_cycles(r->q) > BRIEF_CYCLES ? "it computes for long"
                                                : NULL;
}

static int build(recorder *r, cy_machine *machine, const char *path) {
  cy_weight_options weights;
  cy_pass_options passes = options_of(r, machine, &weights);
  cy_graph *g = r->how->graph(r->how->ctx);
  int status = g ? cy_passes_run(g, &passes, NULL) : -1;
  if (!status && has_work(r->q)) {
    cy_lower_options lower = {.level = passes.opt_level, .caps = cy_machine_caps(machine)};
    cy_program *p = cy_lower(g, &lower);
    r->too_much = p && r->brief ? too_much(r, p) : NULL;
    cy_codegen_options c = {.machine = machine,
                            .emit = CY_EMIT_SO,
                            .output = path,
                            .header = "",
                            .name = "recorder",
                            .share_kernels = true,
                            .few_runs = r->brief,
                            .jobs = r->how->jobs,
                            .progress = r->how->progress,
                            .progress_ctx = r->how->progress_ctx,
                            .visit = r->visit,
                            .visit_ctx = r->visit_ctx,
                            .plan_memory = cy_plan_memory,
                            .diag = r->how->diag};
    status = r->too_much ? 0 : p ? cy_codegen(p, &c) : -1;
  }
  if (g)
    cy_graph_destroy(g);
  return status;
}

static int load(recorder *r, const char *path) {
  cyto_error error;
  const cyto_options options = {.threads = r->threads};
  if (cyto_model_load(path, &r->model, &error) || cyto_context_create(r->model, &options, &r->context, &error))
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
  if (machine && (r->how->passes.strict_fp || r->plain))
    cy_machine_strict_fp(machine);
  if (machine && r->choices)
    cy_machine_choose(machine, r->choices);
  cy_temps *temps = machine ? cy_temps_create(r->how->diag) : NULL;
  int status = -1;
  if (temps) {
    const char *path = cy_temps_file(temps, "recorder.so");
    cy_temps_file(temps, "recorder.so.weights"); /* written when the model is large */
    status = build(r, machine, path);
    if (!status && !r->too_much && has_work(r->q))
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

int recorder_open_samples(recorder *r, int64_t size) {
  char text[TENSOR_ERROR_SIZE];
  r->ninputs = cyto_model_input_count(r->model) - cy_quant_has_choice(r->q->mode) - (r->q->mode == CY_QUANT_OFFER);
  r->inputs = calloc((size_t)r->ninputs + 1, sizeof *r->inputs);
  if (r->inputs)
    r->samples = r->how->samples ? samples_open(r->how->samples, r->model, r->ninputs, text)
                                 : samples_random(r->model, r->ninputs, RANDOM_SAMPLES, size, text);
  r->known = r->model;
  return r->samples ? 0 : recorder_fail(r, "%s", r->inputs ? text : "no memory");
}

void recorder_close_samples(recorder *r) {
  samples_close(r->samples);
  free(r->inputs);
  r->samples = NULL;
  r->inputs = NULL;
}

void recorder_close(recorder *r) {
  recorder_stop(r);
  recorder_close_samples(r);
  cyto_model_unload(r->known);
}

static void free_inputs(recorder *r) {
  for (int32_t k = 0; k < r->ninputs; k++)
    host_tensor_free(&r->inputs[k]);
}

int recorder_run(recorder *r, const char *what, int max, int (*visit)(recorder *r, int sample, void *ctx), void *ctx) {
  int n = samples_count(r->samples), status = 0;
  n = n < max ? n : max;
  for (int i = 0; i < n && !status; i++) {
    if (r->how->progress && what)
      r->how->progress(r->how->progress_ctx, what, i, n);
    status = run_sample(r, i);
    if (!status)
      status = visit(r, i, ctx);
    free_inputs(r);
  }
  return status;
}

/* Binds what the model has behind its own inputs: zeros in the arena. */
static void *bind_behind(recorder *r, int32_t more, int32_t dtype, size_t size) {
  cyto_error error;
  cyto_port port;
  cyto_model_input(r->model, r->ninputs + more, &port);
  void *x = CY_NEW_ARRAY(r->q->arena, uint8_t, ((size_t)port.dims[0] + 1) * size);
  if (!cyto_bind_input(r->context, r->ninputs + more, dtype, 1, port.dims, x, &error))
    return x;
  recorder_fail(r, "%s", error.message);
  return NULL;
}

bool *recorder_choice(recorder *r) { return bind_behind(r, 0, CYTO_BOOL, sizeof(bool)); }

float *recorder_corrections(recorder *r) { return bind_behind(r, 1, CYTO_F32, sizeof(float)); }

double recorder_time(recorder *r, int i) {
  const double enough = 3; /* ms */
  double began, ms = -1;
  cyto_error error;
  int runs = 0;
  if (run_sample(r, i))
    return -1;
  began = cy_clock_ms();
  do {
    if (cyto_run(r->context, &error))
      break;
    runs++;
    ms = cy_clock_ms() - began;
  } while (ms < enough);
  free_inputs(r);
  return runs ? ms / runs : recorder_fail(r, "'%s': %s", samples_name(r->samples, i), error.message);
}

int recorder_output(recorder *r, uint32_t index, cyto_tensor *out) {
  cyto_error error;
  return cyto_output(r->context, (int32_t)index, out, &error) ? recorder_fail(r, "%s", error.message) : 0;
}
