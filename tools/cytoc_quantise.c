/* cytoc_quantise.c - calibration: the model, compiled for this machine with more outputs, is loaded into this process and
 * run on samples.
 *
 * In:  how to read the model, and samples. Out: a cy_quant with the range of every tensor and the error of every layer.
 *
 *   1. observe   a library whose further outputs are the tensors; every sample runs once for extremes and, unless the range
 *                is just these, once more for histograms between them
 *   2. measure   a library that computes each layer twice, in float and quantised, and puts out their differences: errors
 *                decide which layers stay in float, mean differences per channel become corrections of the bias
 *
 * Whatever the target is, this machine's CPU runs it. Libraries lie in TMPDIR for the moment between linking and loading.
 */
#define _GNU_SOURCE
#include "cytoc_quantise.h"

#include "codegen/codegen.h"
#include "passes/lower.h"
#include "passes/memplan.h"
#include "passes/passes.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

typedef struct recorder {
  const cytoc_quantise *how;
  cy_quant *q;
  cyto_model *model;
  cyto_context *context;
  sample_set *samples;
  host_tensor *inputs;
  int32_t ninputs;
} recorder;

static int complain(const recorder *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int complain(const recorder *r, const char *format, ...) {
  char text[1200];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  cy_diag_add(r->how->diag, CY_ERROR, NULL, "calibration: %s", text);
  return -1;
}

/* ---- compiling and loading -------------------------------------------------------------------------------------- */

static bool supports(const void *machine, cy_kernel *k) { return cy_machine_supports(machine, k); }

static int build(const recorder *r, cy_machine *machine, const char *path) {
  cy_graph *g = r->how->read(r->how->ctx);
  cy_pass_options passes = {.opt_level = r->how->opt_level, .disable = r->how->disable, .quant = r->q};
  int status = g ? cy_passes_run(g, &passes, NULL) : -1;
  if (!status && r->q->nlayers) {
    cy_lower_options lower = {.level = r->how->opt_level, .supports = supports, .target = machine};
    cy_program *p = cy_lower(g, &lower);
    cy_codegen_options c = {.machine = machine,
                            .emit = CY_EMIT_SO,
                            .output = path,
                            .header = "",
                            .name = "recorder",
                            .opt_level = 1,
                            .jobs = r->how->jobs,
                            .plan_memory = cy_plan_memory,
                            .diag = r->how->diag};
    status = p ? cy_codegen(p, &c) : -1;
  }
  if (g)
    cy_graph_destroy(g);
  return status;
}

static void temporary_path(char *out, size_t size) {
  const char *base = getenv("TMPDIR");
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) < 0)
    number = (uint64_t)getpid();
  snprintf(out, size, "%s/cytoc-%016llx.so", base && *base ? base : "/tmp", (unsigned long long)number);
}

static int load(recorder *r, const char *path) {
  cyto_error error;
  if (cyto_model_load(path, &r->model, &error) || cyto_context_create(r->model, NULL, &r->context, &error))
    return complain(r, "%s", error.message);
  return 0;
}

static void unload(recorder *r) {
  cyto_context_destroy(r->context);
  cyto_model_unload(r->model);
  r->context = NULL;
  r->model = NULL;
}

/* Compiles the model in the mode that q has, and opens it. */
static int start(recorder *r) {
  char path[4096];
  cy_machine *machine = cy_machine_open("native", r->how->diag);
  if (!machine)
    return -1;
  temporary_path(path, sizeof path);
  int status = build(r, machine, path);
  cy_machine_close(machine);
  if (!status && r->q->nlayers)
    status = load(r, path);
  unlink(path);
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
    return complain(r, "%s", text);
  for (int32_t k = 0; k < r->ninputs; k++) {
    const host_tensor *t = &r->inputs[k];
    cyto_port port;
    cyto_model_input(r->model, k, &port);
    if (has_nan(t))
      return complain(r, "'%s': the sample for input '%s' has NaN in it", samples_name(r->samples, i), port.name);
    if (cyto_bind_input(r->context, k, t->dtype, t->rank, t->dims, t->data, &error))
      return complain(r, "'%s': %s", samples_name(r->samples, i), error.message);
  }
  if (cyto_run(r->context, &error))
    return complain(r, "'%s': %s", samples_name(r->samples, i), error.message);
  return 0;
}

static void free_inputs(recorder *r) {
  for (int32_t k = 0; k < r->ninputs; k++)
    host_tensor_free(&r->inputs[k]);
}

/* Runs all samples; visit sees the outputs of each. */
static int run_all(recorder *r, const char *what, int (*visit)(recorder *r, int sample, void *ctx), void *ctx) {
  int n = samples_count(r->samples), status = 0;
  bool terminal = isatty(STDERR_FILENO);
  for (int i = 0; i < n && !status; i++) {
    if (terminal)
      fprintf(stderr, "\r\033[Kcytoc: %s, sample %d of %d", what, i + 1, n);
    status = run_sample(r, i);
    if (!status)
      status = visit(r, i, ctx);
    free_inputs(r);
  }
  if (terminal)
    fputs("\r\033[K", stderr);
  return status;
}

static const float *output(recorder *r, uint32_t index, uint64_t *out_n) {
  cyto_tensor t;
  cyto_error error;
  if (cyto_output(r->context, (int32_t)index, &t, &error)) {
    complain(r, "%s", error.message);
    return NULL;
  }
  *out_n = t.bytes / sizeof(float);
  return t.data;
}

/* ---- ranges ----------------------------------------------------------------------------------------------------- */

typedef struct observed {
  range_stats *stats; /* [tensor] */
  bool *odd;          /* had NaN or infinity */
} observed;

static int see_extremes(recorder *r, int sample, void *ctx) {
  (void)sample;
  observed *o = ctx;
  for (uint32_t t = 0; t < r->q->ntensors; t++) {
    uint64_t n;
    const float *x = output(r, r->q->tensor[t].output, &n);
    if (!x && n)
      return -1;
    o->odd[t] |= !range_extend(&o->stats[t], x, n);
  }
  return 0;
}

static int see_histograms(recorder *r, int sample, void *ctx) {
  (void)sample;
  observed *o = ctx;
  for (uint32_t t = 0; t < r->q->ntensors; t++) {
    uint64_t n;
    const float *x = o->odd[t] ? NULL : output(r, r->q->tensor[t].output, &n);
    if (x)
      range_count(&o->stats[t], x, n);
  }
  return 0;
}

static int observe(recorder *r, observed *o) {
  uint32_t n = r->q->ntensors;
  if (run_all(r, "calibrating", see_extremes, o))
    return -1;
  if (r->how->method == RANGE_MINMAX)
    return 0;
  for (uint32_t t = 0; t < n; t++)
    if (!(o->stats[t].bins = calloc(RANGE_BINS, sizeof *o->stats[t].bins)))
      return complain(r, "no memory");
  return run_all(r, "counting", see_histograms, o);
}

/* Layers whose input can't be quantised stay in float. */
static void keep_odd(const recorder *r, const observed *o) {
  cy_quant *q = r->q;
  for (uint32_t t = 0; t < q->ntensors; t++) {
    bool zero = o->stats[t].low == 0 && o->stats[t].high == 0;
    if (!zero && !o->odd[t])
      continue;
    for (uint32_t i = 0; i < q->nlayers; i++)
      if (q->layer[i].input == q->tensor[t].value && !q->layer[i].keep) {
        q->layer[i].keep = o->odd[t] ? "its input has NaN or infinity" : "its input is always 0";
        cy_diag_add(r->how->diag, CY_WARNING, NULL, "calibration: layer '%s' stays in float: %s on the samples",
                    q->layer[i].name, q->layer[i].keep);
      }
  }
}

static int choose_ranges(recorder *r) {
  cy_quant *q = r->q;
  observed o = {calloc(q->ntensors + 1, sizeof *o.stats), calloc(q->ntensors + 1, sizeof *o.odd)};
  int status = o.stats && o.odd ? observe(r, &o) : complain(r, "no memory");
  for (uint32_t t = 0; t < q->ntensors && !status; t++)
    range_choose(&o.stats[t], r->how->method, &q->tensor[t].low, &q->tensor[t].high);
  if (!status)
    keep_odd(r, &o);
  for (uint32_t t = 0; o.stats && t < q->ntensors; t++)
    free(o.stats[t].bins);
  free(o.stats);
  free(o.odd);
  return status;
}

/* ---- all of it -------------------------------------------------------------------------------------------------- */

static int open_samples(recorder *r) {
  char text[TENSOR_ERROR_SIZE];
  r->ninputs = cyto_model_input_count(r->model);
  r->inputs = calloc((size_t)r->ninputs + 1, sizeof *r->inputs);
  r->samples = r->inputs ? samples_open(r->how->samples, r->model, text) : NULL;
  return r->samples ? 0 : complain(r, "%s", r->inputs ? text : "no memory");
}

int cytoc_calibrate(const cytoc_quantise *how, cy_quant *q) {
  recorder r = {.how = how, .q = q};
  q->mode = CY_QUANT_OBSERVE;
  int status = start(&r);
  if (!status && q->nlayers)
    status = open_samples(&r);
  if (!status && q->nlayers)
    status = choose_ranges(&r);
  unload(&r);
  samples_close(r.samples);
  free(r.inputs);
  q->mode = CY_QUANT_STATIC;
  return status;
}

void cytoc_quantise_check(const cy_quant *q, cy_diag_sink *diag) {
  for (uint32_t i = 0; i < q->nlayers; i++)
    if (!q->layer[i].keep)
      return;
  if (q->nlayers)
    cy_diag_add(diag, CY_WARNING, NULL, "nothing was quantised: of %u layers the first, '%s', stays in float: %s", q->nlayers,
                q->layer[0].name, q->layer[0].keep);
  else
    cy_diag_add(diag, CY_WARNING, NULL,
                "nothing to quantise: the model has no convolution or matrix product in f32 with constant weights; it stays "
                "in float");
}

void cytoc_quantise_table(const cy_quant *q, FILE *out) {
  fprintf(out, "%-40s %-20s %8s %9s  %s\n", "layer", "shape", "MFLOP", "error %", "verdict");
  for (uint32_t i = 0; i < q->nlayers; i++) {
    const cy_quant_layer *l = &q->layer[i];
    fprintf(out, "%-40.40s %-20s %8.2f ", l->name, l->shape, l->macs * 2e-6);
    if (l->error >= 0)
      fprintf(out, "%9.2f", l->error * 100);
    else
      fprintf(out, "%9s", "-");
    fprintf(out, "  %s%s\n", l->keep ? "float: " : "int8", l->keep ? l->keep : "");
  }
}
