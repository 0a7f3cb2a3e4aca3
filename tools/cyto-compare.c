/* SPDX-License-Identifier: Apache-2.0 */
/* cyto-compare.c - two libraries of one model, float and int8 or old and new: sizes, errors, times.
 *
 * In:  A.so, which counts as right, and B.so; samples, or a seed. Out: the ratio of their sizes, the errors of B's outputs in
 * each sample and over all, arg-max agreement, times of runs that take turns, and their ratio. Exit code 0: they could be
 * compared; 1: not, with a line that says why.
 */
#define _GNU_SOURCE
#include "ir/clock.h"
#include "tools/bench/bench.h"
#include "tools/calibrate/inputs.h"
#include "tools/statistics.h"
#include "tools/values/errors.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct compare_options {
  const char *samples, *json;
  options_list ranges;
  int random, seed, threads, rounds;
} compare_options;

#define AT(field) offsetof(compare_options, field)
static const option_row rows[] = {
    {"--samples", OPTION_TEXT, AT(samples), "DIR|FILE.npz",
     "folders with in_K_*.npy, .json or input_K.pb, or what cytoc --calibrate takes (default: random ones)",
     OPTION_MAIN},
    {"--random", OPTION_NUMBER, AT(random), "N", "so many random samples (default: 3)", OPTION_RANGE(1, 1000),
     OPTION_MAIN},
    {"--seed", OPTION_NUMBER, AT(seed), "N", "of the random samples (default: 1)", OPTION_MAIN},
    {"--range", OPTION_PAIRS, AT(ranges), "INPUT=LO:HI", "values of a random input", OPTION_MAIN},
    {"--threads", OPTION_NUMBER, AT(threads), "N", "how many threads (0: all CPUs, the default)", OPTION_RANGE(0, 4096),
     OPTION_MAIN},
    {"--rounds", OPTION_NUMBER, AT(rounds), "N",
     "runs of each on each sample, in turns (default: 10; 0: none are timed)", OPTION_RANGE(0, 1000000), OPTION_MAIN},
    {"--json", OPTION_TEXT, AT(json), "FILE", "all figures as JSON (-: to stdout)", OPTION_MAIN},
    OPTIONS_COMMON,
};

static const options_command commands[] = {{NULL, "A.so B.so [OPTION..]",
                                            "Compares two libraries of one model, such as float and int8, or old and "
                                            "new. A counts as right: errors are B's."}};

static const options_program program = {.name = "cyto-compare",
                                        .title = "compares two libraries of one model",
                                        .endings = "so",
                                        .commands = commands,
                                        .n_commands = 1,
                                        .rows = rows,
                                        .n_rows = sizeof rows / sizeof *rows};

#define complain(...) options_complain(&program, __VA_ARGS__)

/* One of the two. */
typedef struct side {
  const char *path;
  cyto_model *model;
  cyto_context *context;
  double kb, first_ms, *times; /* of runs behind the first; ntimes of them */
  size_t ntimes;
  statistics statistics;
} side;

typedef struct comparison {
  const compare_options *o;
  side side[2];
  input_samples samples;
  int32_t noutputs;
  value_errors *errors; /* [samples][outputs] */
} comparison;

static cyto_port output_of(const comparison *c, int32_t k) {
  cyto_port port = {.name = ""};
  cyto_model_output(c->side[0].model, k, &port);
  return port;
}

/* ---- interfaces ------------------------------------------------------------------------------------------------- */

static bool is_float(int32_t dtype) {
  return dtype == CYTO_F32 || dtype == CYTO_F64 || dtype == CYTO_F16 || dtype == CYTO_BF16;
}

static const char *port_text(const cyto_port *p, char *text, size_t room) {
  size_t n;
  type_text(p->type, text, room);
  n = strlen(text);
  if (p->type->kind != CYTO_TENSOR)
    return text;
  n += (size_t)snprintf(text + n, room - n, "[");
  for (int32_t i = 0; i < p->rank && n < room; i++)
    n += p->dims[i] >= 0
             ? (size_t)snprintf(text + n, room - n, "%s%lld", i ? "," : "", (long long)p->dims[i])
             : (size_t)snprintf(text + n, room - n, "%s%s", i ? "," : "", *p->dim_names[i] ? p->dim_names[i] : "?");
  if (n < room)
    snprintf(text + n, room - n, "]");
  return text;
}

static bool same_type(const cyto_type *a, const cyto_type *b) {
  for (; a && b; a = a->of, b = b->of)
    if (a->kind != b->kind || (a->dtype != b->dtype && !(is_float(a->dtype) && is_float(b->dtype))))
      return false;
  return !a && !b;
}

/* Do values of one fit the other? Floats may have other widths; sizes may be open on one side. */
static bool fits(const cyto_port *a, const cyto_port *b) {
  if (strcmp(a->name, b->name) || !same_type(a->type, b->type) || (a->type->kind == CYTO_TENSOR && a->rank != b->rank))
    return false;
  for (int32_t i = 0; a->type->kind == CYTO_TENSOR && i < a->rank; i++)
    if (a->dims[i] >= 0 && b->dims[i] >= 0 && a->dims[i] != b->dims[i])
      return false;
  return true;
}

static int check_ports(const comparison *c, bool inputs) {
  const char *what = inputs ? "input" : "output";
  int32_t n[2];
  for (int i = 0; i < 2; i++)
    n[i] = inputs ? cyto_model_input_count(c->side[i].model) : cyto_model_output_count(c->side[i].model);
  for (int32_t k = 0; k < n[0] && k < n[1]; k++) {
    cyto_port p[2];
    char text[2][300];
    for (int i = 0; i < 2; i++)
      inputs ? cyto_model_input(c->side[i].model, k, &p[i]) : cyto_model_output(c->side[i].model, k, &p[i]);
    if (!fits(&p[0], &p[1]))
      return complain("these are libraries of different models: %s %d is '%s' %s in '%s' and '%s' %s in '%s'", what, k,
                      p[0].name, port_text(&p[0], text[0], sizeof text[0]), c->side[0].path, p[1].name,
                      port_text(&p[1], text[1], sizeof text[1]), c->side[1].path);
  }
  return n[0] == n[1] ? 0
                      : complain("these are libraries of different models: '%s' has %d %ss, '%s' has %d",
                                 c->side[0].path, n[0], what, c->side[1].path, n[1]);
}

/* ---- running ---------------------------------------------------------------------------------------------------- */

static int open_side(const compare_options *o, const char *path, side *out) {
  cyto_error error;
  cyto_options how = {.threads = o->threads};
  char here[4200];
  out->path = path;
  snprintf(here, sizeof here, "%s%s", strchr(path, '/') ? "" : "./", path);
  if (cyto_model_load(here, &out->model, &error) || cyto_context_create(out->model, &how, &out->context, &error))
    return complain("%s", error.message);
  out->kb = cy_bench_model_kb(path);
  return 0;
}

static void close_side(side *s) {
  cyto_context_destroy(s->context);
  cyto_model_unload(s->model);
  free(s->times);
}

/* Binds a sample, whose floats may be of another width than this side takes: out_made[k] is what was made for that. */
static int bind(const side *s, const input_sample *sample, host_tensor *out_made, char text[TENSOR_ERROR_SIZE]) {
  cyto_error error = {0};
  int status = 0;
  for (int32_t k = 0; k < sample->n && !status; k++) {
    const cyto_value *v = &sample->inputs[k];
    const cyto_tensor *t = &v->tensor;
    cyto_port port;
    cyto_model_input(s->model, k, &port);
    if (v->kind != CYTO_TENSOR || t->dtype == port.dtype || !is_float(t->dtype) || !is_float(port.dtype)) {
      if (v->kind != CYTO_TENSOR || t->dtype || port.is_optional)
        status = cyto_bind_value(s->context, k, v->kind == CYTO_TENSOR && !t->dtype ? NULL : v, &error);
      continue;
    }
    host_tensor from = {.dtype = t->dtype, .rank = t->rank, .data = t->data}, *to = &out_made[k];
    memcpy(from.dims, t->dims, sizeof from.dims);
    *to = (host_tensor){.dtype = port.dtype, .rank = t->rank};
    memcpy(to->dims, t->dims, sizeof to->dims);
    if (host_tensor_alloc(to, text))
      return -1;
    for (int64_t i = 0; i < host_tensor_count(to); i++)
      host_tensor_set(to, i, host_tensor_get(&from, i));
    status = cyto_bind_input(s->context, k, to->dtype, to->rank, to->dims, to->data, &error);
  }
  if (status)
    snprintf(text, TENSOR_ERROR_SIZE, "%.500s", error.message);
  return status ? -1 : 0;
}

static int run(side *s, double *out_ms, char text[TENSOR_ERROR_SIZE]) {
  cyto_error error = {0};
  double start = cy_clock_ms();
  if (!cyto_run(s->context, &error)) {
    *out_ms = cy_clock_ms() - start;
    return 0;
  }
  snprintf(text, TENSOR_ERROR_SIZE, "'%s': %.400s", s->path, error.message);
  return -1;
}

static int add_errors(comparison *c, int sample, char text[TENSOR_ERROR_SIZE]) {
  for (int32_t k = 0; k < c->noutputs; k++) {
    cyto_value v[2];
    cyto_error error;
    for (int i = 0; i < 2; i++)
      if (cyto_output_value(c->side[i].context, k, &v[i], &error)) {
        snprintf(text, TENSOR_ERROR_SIZE, "%.500s", error.message);
        return -1;
      }
    errors_add(&c->errors[(size_t)sample * (size_t)c->noutputs + (size_t)k], &v[1], &v[0]);
  }
  return 0;
}

/* The first run of both, whose outputs are compared, then the others in turns: which is first changes each time. */
static int run_bound(comparison *c, int sample, char text[TENSOR_ERROR_SIZE]) {
  double ms = 0;
  for (int i = 0; i < 2; i++) {
    if (run(&c->side[i], &ms, text))
      return -1;
    c->side[i].first_ms = sample ? c->side[i].first_ms : ms;
  }
  if (add_errors(c, sample, text))
    return -1;
  for (int r = 0; r < c->o->rounds; r++)
    for (int i = 0; i < 2; i++) {
      side *s = &c->side[(i + r) % 2];
      if (run(s, &s->times[s->ntimes++], text))
        return -1;
    }
  return 0;
}

static int run_sample(comparison *c, int sample, char text[TENSOR_ERROR_SIZE]) {
  const input_sample *s = &c->samples.list[sample];
  host_tensor *made[2];
  int status = 0;
  for (int i = 0; i < 2; i++) {
    made[i] = calloc((size_t)s->n + 1, sizeof **made);
    if (!made[i])
      snprintf(text, TENSOR_ERROR_SIZE, "no memory for the inputs");
    status = status || !made[i] ? -1 : bind(&c->side[i], s, made[i], text);
  }
  if (!status)
    status = run_bound(c, sample, text);
  for (int i = 0; i < 2; i++) {
    for (int32_t k = 0; made[i] && k < s->n; k++)
      host_tensor_free(&made[i][k]);
    free(made[i]);
  }
  return status;
}

/* ---- samples ---------------------------------------------------------------------------------------------------- */

static int alloc(comparison *c) {
  size_t n = (size_t)c->samples.n, each = (size_t)c->noutputs;
  c->errors = calloc(n * each + 1, sizeof *c->errors);
  for (int i = 0; i < 2; i++)
    c->side[i].times = calloc(n * (size_t)c->o->rounds + 1, sizeof(double));
  return c->errors && c->side[0].times && c->side[1].times ? 0 : complain("no memory");
}

static int run_given(comparison *c) {
  char text[TENSOR_ERROR_SIZE];
  if (input_samples_read(c->o->samples, c->side[0].model, &c->samples, text))
    return complain("%s", text);
  int status = alloc(c);
  for (int i = 0; i < c->samples.n && !status; i++)
    if (run_sample(c, i, text))
      status = complain("%s: %s", c->samples.list[i].label, text);
  return status;
}

/* What was learnt of a sample that could not be run is forgotten. */
static void forget(comparison *c, int sample, const size_t before[2]) {
  memset(&c->errors[(size_t)sample * (size_t)c->noutputs], 0, sizeof *c->errors * (size_t)c->noutputs);
  for (int i = 0; i < 2; i++)
    c->side[i].ntimes = before[i];
  input_sample_free(&c->samples.list[sample]);
}

static int run_random(comparison *c, int i, int *attempt) {
  const inputs_wanted wanted = {.seed = c->o->seed, .ranges = &c->o->ranges};
  const size_t before[2] = {c->side[0].ntimes, c->side[1].ntimes};
  char text[TENSOR_ERROR_SIZE];
  for (;; ++*attempt) {
    if (input_sample_random(&wanted, c->side[0].model, i, *attempt, &c->samples.list[i], text))
      return complain("%s", text);
    if (!run_sample(c, i, text))
      return 0;
    if (*attempt + 1 >= inputs_attempts(&wanted, c->side[0].model))
      return complain(
          "random inputs do not fit the model: %s; give some by --samples=DIR, values of integers by --range", text);
    forget(c, i, before);
  }
}

static int run_randoms(comparison *c) {
  int attempt = 0, status;
  c->samples.n = c->o->random;
  c->samples.list = calloc((size_t)c->samples.n, sizeof *c->samples.list);
  status = c->samples.list ? alloc(c) : complain("no memory");
  for (int i = 0; i < c->samples.n && !status; i++)
    status = run_random(c, i, &attempt);
  return status;
}

/* ---- saying it -------------------------------------------------------------------------------------------------- */

static value_errors whole_of(const comparison *c, int32_t k) {
  value_errors all = {0};
  for (int i = 0; i < c->samples.n; i++)
    errors_join(&all, &c->errors[(size_t)i * (size_t)c->noutputs + (size_t)k]);
  return all;
}

static void print_errors(const char *what, const value_errors *e) {
  char db[24], top[24] = "-";
  if (*e->differ) {
    printf("%-32.32s %s\n", what, e->differ);
    return;
  }
  if (e->exact)
    snprintf(top, sizeof top, "%.2f %%", 100 * errors_equal(e));
  else if (e->rows)
    snprintf(top, sizeof top, "%.2f %%", 100 * errors_top(e));
  printf("%-32.32s %10.3g %10.3g %8s %9.6f %11s", what, e->largest, errors_rms(e),
         errors_decibels_text(errors_snr(e), db, sizeof db), errors_cosine(e), top);
  if (e->odd)
    printf("  %llu not finite in one alone", (unsigned long long)e->odd);
  putchar('\n');
}

static void print_output(const comparison *c, int32_t k) {
  char text[600];
  value_errors all = whole_of(c, k);
  print_errors(output_of(c, k).name, &all);
  for (int i = 0; i < c->samples.n; i++) {
    const char *label = c->samples.list[i].label;
    size_t n = strlen(label);
    snprintf(text, sizeof text, "  %s", n > 30 ? label + n - 30 : label);
    print_errors(text, &c->errors[(size_t)i * (size_t)c->noutputs + (size_t)k]);
  }
}

/* Above 1: B is faster. */
static double speed(const comparison *c) { return c->side[0].statistics.median / c->side[1].statistics.median; }

static void print_all(const comparison *c) {
  const side *a = &c->side[0], *b = &c->side[1];
  printf("size: A %.0f KB, B %.0f KB: %.3f of A, %.2f times smaller\n", a->kb, b->kb, b->kb / a->kb, a->kb / b->kb);
  printf("%-32s %10s %10s %8s %9s %11s\n", "output of B beside A", "largest", "RMS", "SNR dB", "cosine", "top/equal");
  for (int32_t k = 0; k < c->noutputs; k++)
    print_output(c, k);
  for (int i = 0; i < 2 && c->o->rounds; i++) {
    const side *s = &c->side[i];
    printf("%c: first %.3f ms, then %zu runs: median %.3f ms, min %.3f, mean %.3f, p95 %.3f  ('%s', %s)\n", 'A' + i,
           s->first_ms, s->ntimes, s->statistics.median, s->statistics.min, s->statistics.mean, s->statistics.p95,
           s->path, cyto_model_target(s->model));
  }
  if (c->o->rounds)
    printf("time: B takes %.3f of A, %.2fx as fast\n", 1 / speed(c), speed(c));
}

static json_t *number(double v) { return isfinite(v) ? json_real(v) : json_null(); }

static json_t *text_json(const char *text) {
  json_t *string = json_string(text);
  return string ? string : json_string("?");
}

static json_t *errors_json(const char *key, const char *name, const value_errors *e) {
  json_t *all =
      json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", key, text_json(name), "largest", number(e->largest), "rms",
                number(errors_rms(e)), "relative", number(errors_relative(e)), "snr_db", number(errors_snr(e)),
                "cosine", number(errors_cosine(e)), "top", number(errors_top(e)), "equal", number(errors_equal(e)));
  if (*e->differ)
    json_object_set_new(all, "differ", text_json(e->differ));
  return all;
}

static json_t *side_json(const comparison *c, const side *s) {
  json_t *all = json_pack("{s:o, s:s, s:f}", "library", text_json(s->path), "target", cyto_model_target(s->model),
                          "size_kb", s->kb);
  if (!c->o->rounds)
    return all;
  json_object_set_new(all, "first_ms", json_real(s->first_ms));
  json_object_set_new(all, "runs", json_integer((json_int_t)s->ntimes));
#define X(name) json_object_set_new(all, #name "_ms", json_real(s->statistics.name));
  STATISTICS_FIELDS(X)
#undef X
  return all;
}

static json_t *all_json(const comparison *c) {
  json_t *outputs = json_array();
  for (int32_t k = 0; k < c->noutputs; k++) {
    value_errors all = whole_of(c, k);
    json_t *output = errors_json("name", output_of(c, k).name, &all), *samples = json_array();
    for (int i = 0; i < c->samples.n; i++)
      json_array_append_new(samples, errors_json("sample", c->samples.list[i].label,
                                                 &c->errors[(size_t)i * (size_t)c->noutputs + (size_t)k]));
    json_object_set_new(output, "samples", samples);
    json_array_append_new(outputs, output);
  }
  json_t *all = json_pack("{s:o, s:o, s:f, s:o}", "a", side_json(c, &c->side[0]), "b", side_json(c, &c->side[1]),
                          "size", c->side[1].kb / c->side[0].kb, "outputs", outputs);
  if (c->o->rounds)
    json_object_set_new(all, "time", json_real(1 / speed(c)));
  return all;
}

static int write_json(const comparison *c) {
  bool to_stdout = !strcmp(c->o->json, "-");
  FILE *f = to_stdout ? stdout : fopen(c->o->json, "w");
  json_t *all = all_json(c);
  bool bad = !f || json_dumpf(all, f, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) || fputc('\n', f) < 0;
  bad = (f && (to_stdout ? fflush(f) : fclose(f))) || bad;
  json_decref(all);
  return bad ? complain("cannot write '%s': %s", c->o->json, strerror(errno)) : 0;
}

static int compare(comparison *c, const char *const *paths) {
  for (int i = 0; i < 2; i++)
    if (open_side(c->o, paths[i], &c->side[i]))
      return -1;
  if (check_ports(c, true) || check_ports(c, false))
    return -1;
  c->noutputs = cyto_model_output_count(c->side[0].model);
  if (c->o->samples ? run_given(c) : run_randoms(c))
    return -1;
  for (int i = 0; i < 2 && c->o->rounds; i++)
    c->side[i].statistics = statistics_of(c->side[i].times, c->side[i].ntimes);
  if (!c->o->json || strcmp(c->o->json, "-"))
    print_all(c);
  if (c->o->json && write_json(c))
    return -1;
  return fflush(stdout) ? complain("cannot write to the standard output: %s", strerror(errno)) : 0;
}

int main(int argc, char **argv) {
  compare_options o = {.random = 3, .seed = 1, .rounds = 10};
  options_words words;
  options_parsed parsed;
  int status = options_read(&program, argc, argv, &o, &words, &parsed);
  if (!status && parsed.operands.count != 2)
    status = complain("expected two libraries, found %d; cyto-compare --help lists the options", parsed.operands.count);
  else if (!status) {
    comparison c = {.o = &o};
    status = compare(&c, parsed.operands.items);
    input_samples_free(&c.samples);
    free(c.errors);
    close_side(&c.side[0]);
    close_side(&c.side[1]);
  }
  options_free(&program, &o, &parsed);
  options_words_free(&words);
  return status < 0 ? 1 : 0;
}
