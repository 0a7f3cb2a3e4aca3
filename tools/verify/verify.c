/* SPDX-License-Identifier: Apache-2.0 */
/* verify.c - `cytoc verify`: compiles a model, runs it and a reference on the same inputs, and says how far they are apart.
 *
 * In:  a model, the options of compiling, --inputs or --random, --against, --tolerance. Out: a line for each output, a verdict;
 * as JSON where asked; with --bisect a reproducer. Exit code 0: right; 1: beyond the limits; 2: it cannot be said.
 */
#include "verify.h"

#include "tools/driver/pipeline.h"
#include "tools/terminal.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RIGHT = 0, BEYOND = 1, NOT_SAID = 2 };
enum { SAMPLES = 2, OPEN_SAMPLES = 3 }; /* random ones, where the model fixes all sizes, and where not */

typedef struct verification {
  const cytoc_options *o;
  cy_diag_sink *diag;
  verify_model *model;
  cyto_model *ports; /* the library, for its inputs and outputs */
  verify_kind against;
  verify_limits limits;
  inputs_wanted wanted;
  verify_engine ours, reference;
  bool ours_open, reference_open;
  input_samples samples;
  verify_result *expected, *is; /* by sample */
  value_errors *errors;         /* by output, over all samples */
  char (*beyond)[240];          /* by output: "", or the first sample that is beyond, and how */
  int32_t noutputs;
  int worst; /* the first sample with an output beyond the limits, or that the library fails on; -1: none */
} verification;

static int complain(verification *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int complain(verification *v, const char *format, ...) {
  char text[VERIFY_TEXT];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  cy_location where = {.file = v->o->input, .node_index = -1};
  cy_diag_add(v->diag, CY_ERROR, &where, "%s", text);
  return -1;
}

/* ---- what is compared with what --------------------------------------------------------------------------------- */

static bool has_expected(const verification *v) {
  char path[4096];
  return v->samples.n && v->samples.list[0].folder &&
         value_folder_find(v->samples.list[0].folder, true, 0, path, sizeof path);
}

/* Files of expected outputs are the reference of those who bring them; without a word it is -O0. */
static void choose_reference(verification *v) {
  const char *word = v->o->against;
  bool files = has_expected(v) && (!word || !strcmp(word, "reference"));
  v->against = files                             ? VERIFY_FILES
               : !word || !strcmp(word, "eager") ? VERIFY_EAGER
               : !strcmp(word, "ort")            ? VERIFY_ORT
                                                 : VERIFY_REFERENCE;
}

static int open_ours(verification *v) {
  cyto_error error;
  v->ours_open = true;
  if (verify_engine_open(&v->ours, VERIFY_OURS, v->o, v->o->input, v->diag))
    return cy_diag_errors(v->diag) ? -1 : complain(v, "%s", v->ours.error);
  if (cyto_model_load(v->ours.library, &v->ports, &error))
    return complain(v, "it cannot run here: %s", error.message);
  v->noutputs = cyto_model_output_count(v->ports);
  v->errors = calloc((size_t)v->noutputs + 1, sizeof *v->errors);
  v->beyond = calloc((size_t)v->noutputs + 1, sizeof *v->beyond);
  if (!v->errors || !v->beyond)
    cy_no_memory();
  return 0;
}

static int open_reference(verification *v) {
  v->reference_open = true;
  if (verify_engine_open(&v->reference, v->against, v->o, v->o->input, NULL))
    return complain(v, "%s cannot run the model: %s", verify_kind_name(v->against), v->reference.error);
  return 0;
}

/* ---- samples and what the reference makes of them --------------------------------------------------------------- */

static void results_alloc(verification *v) {
  v->expected = calloc((size_t)v->samples.n + 1, sizeof *v->expected);
  v->is = calloc((size_t)v->samples.n + 1, sizeof *v->is);
  if (!v->expected || !v->is)
    cy_no_memory();
}

static int refused(verification *v, int i, bool random) {
  char text[500];
  return complain(v, "%s cannot run the model on %s (%s): %s%s", verify_kind_name(v->against), v->samples.list[i].label,
                  input_shapes_text(v->ports, &v->samples.list[i], text, sizeof text), v->expected[i].error,
                  random ? "; give inputs that it takes by --inputs=DIR, sizes by --dim, values of integers by --range"
                         : "");
}

static int take_files(verification *v) {
  char error[TENSOR_ERROR_SIZE];
  int status = 0;
  for (int i = 0; i < v->samples.n && !status; i++)
    status = verify_files_read(&v->samples.list[i], v->ports, &v->expected[i], error);
  return status ? complain(v, "%s", error) : 0;
}

static int run_given(verification *v) {
  results_alloc(v);
  if (v->against == VERIFY_FILES)
    return take_files(v);
  if (verify_engine_run(&v->reference, v->samples.list, v->samples.n, v->expected))
    return complain(v, "%s", v->reference.error);
  for (int i = 0; i < v->samples.n; i++)
    if (v->expected[i].error)
      return refused(v, i, false);
  return 0;
}

/* Sample i is refused, and those before it were not: they do. */
static int leave_out(verification *v, int i) {
  char text[500];
  printf("%s and further ones: left out, as %s refuses the sizes (%s): %s\n", v->samples.list[i].label,
         verify_kind_name(v->against), input_shapes_text(v->ports, &v->samples.list[i], text, sizeof text),
         v->expected[i].error);
  verify_results_free(&v->expected[i], 1);
  input_sample_free(&v->samples.list[i]);
  v->samples.n = i;
  return 0;
}

/* Sample i, with the first sizes and integers that the reference takes; *attempt: where to begin. Tries that failed after one
 * that did not are left out. */
static int run_random(verification *v, int i, int *attempt) {
  char error[TENSOR_ERROR_SIZE];
  int max = inputs_attempts(&v->wanted, v->ports);
  for (;; ++*attempt) {
    input_sample *s = &v->samples.list[i];
    if (input_sample_random(&v->wanted, v->ports, i, *attempt, s, error))
      return complain(v, "%s", error);
    if (verify_engine_run(&v->reference, s, 1, &v->expected[i]))
      return complain(v, "%s", v->reference.error);
    if (!v->expected[i].error)
      return 0;
    if (*attempt + 1 >= max)
      return i && !v->o->random ? leave_out(v, i) : refused(v, i, true);
    verify_results_free(&v->expected[i], 1);
    input_sample_free(s);
  }
}

static int run_randoms(verification *v) {
  int attempt = 0, status = 0;
  v->samples.n = v->o->random ? v->o->random : inputs_have_open_sizes(v->ports) ? OPEN_SAMPLES : SAMPLES;
  v->samples.list = calloc((size_t)v->samples.n, sizeof *v->samples.list);
  if (!v->samples.list)
    cy_no_memory();
  results_alloc(v);
  for (int i = 0; i < v->samples.n && !status; i++)
    status = run_random(v, i, &attempt);
  return status;
}

static int get_samples(verification *v) {
  char error[TENSOR_ERROR_SIZE];
  if (v->o->inputs && input_samples_read(v->o->inputs, v->ports, &v->samples, error))
    return complain(v, "%s", error);
  choose_reference(v);
  if (v->against != VERIFY_FILES && open_reference(v))
    return -1;
  return v->o->inputs ? run_given(v) : run_randoms(v);
}

/* ---- comparing -------------------------------------------------------------------------------------------------- */

static void compare_sample(verification *v, int i) {
  char text[200];
  for (int32_t k = 0; k < v->noutputs; k++) {
    value_errors e = {0};
    if (k < v->expected[i].n)
      errors_add(&e, &v->is[i].outputs[k], &v->expected[i].outputs[k]);
    if (!*v->beyond[k] && verify_limits_beyond(&v->limits, &e, text, sizeof text)) {
      v->worst = v->worst < 0 ? i : v->worst;
      snprintf(v->beyond[k], sizeof v->beyond[k], "sample %d: %s", i, text);
    }
    errors_join(&v->errors[k], &e);
  }
}

static int compare(verification *v) {
  if (verify_engine_run(&v->ours, v->samples.list, v->samples.n, v->is))
    return complain(v, "%s", v->ours.error);
  v->worst = -1;
  for (int i = 0; i < v->samples.n; i++) {
    if (!v->is[i].error) {
      compare_sample(v, i);
      continue;
    }
    printf("%s: the library fails where the reference does not: %s\n", v->samples.list[i].label, v->is[i].error);
    v->worst = v->worst < 0 ? i : v->worst;
  }
  return 0;
}

/* ---- saying it -------------------------------------------------------------------------------------------------- */

static cyto_port output_of(const verification *v, int32_t k) {
  cyto_port port = {.name = ""};
  cyto_model_output(v->ports, k, &port);
  return port;
}

static void print_output(const verification *v, int32_t k) {
  const value_errors *e = &v->errors[k];
  char db[24], top[24] = "-", type[160];
  cyto_port port = output_of(v, k);
  type_text(port.type, type, sizeof type);
  if (e->rows)
    snprintf(top, sizeof top, "%.2f %%", 100 * errors_top(e));
  const char *why = v->beyond[k];
  printf("%-32s %-8s ", port.name, type);
  if (e->exact)
    printf("%10.4g %10.4g %8s %9s %9.3f %%", e->largest, errors_rms(e), "-", "-", 100 * errors_equal(e));
  else
    printf("%10.3g %10.3g %8s %9.6f %11s", e->largest, errors_rms(e),
           errors_decibels_text(errors_snr(e), db, sizeof db), errors_cosine(e), top);
  printf("  %s%s\n", *why ? "BEYOND: " : "right", why);
}

static bool is_right(const verification *v) { return v->worst < 0; }

static void print_all(const verification *v) {
  char text[600];
  for (int i = 0; i < v->samples.n; i++)
    printf("%s: %s\n", v->samples.list[i].label, input_shapes_text(v->ports, &v->samples.list[i], text, sizeof text));
  printf("%-32s %-8s %10s %10s %8s %9s %11s  beside %s\n", "output", "type", "largest", "RMS", "SNR dB", "cosine",
         "top/equal", verify_kind_name(v->against));
  for (int32_t k = 0; k < v->noutputs; k++)
    print_output(v, k);
  verify_limits_text(&v->limits, text, sizeof text);
  printf("%s: %d %s of %d sample%s; limits of %s\n", is_right(v) ? "right" : "BEYOND", v->noutputs,
         v->noutputs == 1 ? "output" : "outputs", v->samples.n, v->samples.n == 1 ? "" : "s", text);
}

static json_t *number(double v) { return isfinite(v) ? json_real(v) : json_null(); }

static json_t *output_json(const verification *v, int32_t k) {
  const value_errors *e = &v->errors[k];
  const char *why = v->beyond[k];
  json_t *name = json_string(output_of(v, k).name);
  return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o*}", "name", name ? name : json_string("?"),
                   "largest", number(e->largest), "rms", number(errors_rms(e)), "relative", number(errors_relative(e)),
                   "snr_db", number(e->exact ? NAN : errors_snr(e)), "cosine",
                   number(e->exact ? NAN : errors_cosine(e)), "top", number(errors_top(e)), "equal",
                   number(errors_equal(e)), "right", !*why, "why", *why ? json_string(why) : NULL);
}

/* snr_db: null where there is no error. */
static int write_json(verification *v) {
  json_t *outputs = json_array();
  for (int32_t k = 0; k < v->noutputs; k++)
    json_array_append_new(outputs, output_json(v, k));
  json_t *all =
      json_pack("{s:s, s:s, s:s, s:i, s:b, s:o}", "model", v->o->input, "against", verify_kind_name(v->against),
                "limits", v->limits.name, "samples", v->samples.n, "right", is_right(v), "outputs", outputs);
  bool to_stdout = !strcmp(v->o->json, "-");
  FILE *f = to_stdout ? stdout : fopen(v->o->json, "w");
  bool bad = !f || json_dumpf(all, f, JSON_INDENT(1)) || fputc('\n', f) < 0;
  bad = (f && (to_stdout ? fflush(f) : fclose(f))) || bad;
  json_decref(all);
  return bad ? complain(v, "cannot write '%s': %s", v->o->json, strerror(errno)) : 0;
}

/* ---- the command ------------------------------------------------------------------------------------------------ */

static const char *folder_of(const cytoc_options *o, char *text, size_t room) {
  if (*o->bisect)
    return o->bisect;
  const char *base = cy_path_base(o->input), *dot = strrchr(base, '.');
  snprintf(text, room, "%.*s-bisect", dot ? (int)(dot - base) : (int)strlen(base), base);
  return text;
}

static int find_layer(verification *v) {
  char folder[4096];
  if (v->o->library)
    return complain(v, "--bisect compiles parts of the model: leave --library out");
  if (v->against == VERIFY_FILES)
    return complain(v, "--bisect needs a reference that computes, as files have outputs only: --against=eager or ort");
  fflush(stdout);
  return verify_bisect(v->o, v->model, v->against, &v->limits, v->ports, &v->samples.list[v->worst],
                       folder_of(v->o, folder, sizeof folder), v->diag);
}

static int check_options(verification *v) {
  if (v->o->output)
    return complain(v, "verify writes no library: leave '-o %s' out (--bisect=DIR says where the reproducer goes)",
                    v->o->output);
  if (v->o->random && v->o->inputs)
    return complain(v, "--inputs and --random are two ways to get inputs: expected one of them");
  return v->o->ranges.count && v->o->inputs ? complain(v, "--range is for random inputs, and there is --inputs") : 0;
}

/* Names that --range has must be inputs. */
static int check_ranges(verification *v) {
  for (int i = 0; i < v->o->ranges.count; i++) {
    const char *item = v->o->ranges.items[i], *end = strchr(item, '=');
    bool known = false;
    for (int32_t k = 0; k < cyto_model_input_count(v->ports); k++) {
      cyto_port port;
      cyto_model_input(v->ports, k, &port);
      known |= strlen(port.name) == (size_t)(end - item) && !strncmp(port.name, item, (size_t)(end - item));
    }
    if (!known)
      return complain(v, "--range '%s': the model has no input of that name", item);
  }
  return 0;
}

static int64_t bound_of(const void *model, const char *input) { return verify_model_bound(model, input); }

static int verify(verification *v) {
  char error[TENSOR_ERROR_SIZE];
  v->model = verify_model_open(v->o->input, v->diag);
  if (!v->model)
    return NOT_SAID;
  v->wanted = (inputs_wanted){.seed = v->o->seed, .ranges = &v->o->ranges, .bound = bound_of, .ctx = v->model};
  if (check_options(v) || (verify_limits_choose(v->o, v->model, &v->limits, error) && complain(v, "%s", error)))
    return NOT_SAID;
  if (open_ours(v) || check_ranges(v) || get_samples(v) || compare(v))
    return NOT_SAID;
  if (!v->o->json || strcmp(v->o->json, "-"))
    print_all(v);
  int status = is_right(v) ? RIGHT : BEYOND;
  if (v->o->json && write_json(v))
    return NOT_SAID;
  if (status == BEYOND && v->o->bisect && find_layer(v))
    return NOT_SAID;
  if (fflush(stdout)) {
    complain(v, "cannot write to the standard output: %s", strerror(errno));
    return NOT_SAID;
  }
  return status;
}

static void print_line(void *out, const char *line) { terminal_line(out, line); }

int cytoc_verify(const cytoc_options *o) {
  verification v = {.o = o, .diag = cy_diag_create(), .worst = -1};
  int status = verify(&v);
  cy_diag_each(v.diag, print_line, stderr);
  if (v.expected)
    verify_results_free(v.expected, v.samples.n);
  if (v.is)
    verify_results_free(v.is, v.samples.n);
  free(v.expected);
  free(v.is);
  free(v.errors);
  free(v.beyond);
  input_samples_free(&v.samples);
  cyto_model_unload(v.ports);
  if (v.reference_open)
    verify_engine_close(&v.reference);
  if (v.ours_open)
    verify_engine_close(&v.ours);
  verify_model_close(v.model);
  cy_diag_destroy(v.diag);
  return status;
}
