/* SPDX-License-Identifier: Apache-2.0 */
/* bench_child.c - one measured process of cyto-bench: load a compiled model, run it, print one line of numbers.
 *
 * In:  a library, sizes for the dims that it leaves open, a seed.
 * Out: the line of a cy_bench_sample on stdout, and one with the shapes of the inputs; on failure a message on stderr and
 *      exit code 1.
 *
 * Inputs are those of bench_inputs.h. --outputs FOLDER gets the outputs of the last run as .npy.
 */
#include "bench.h"

#include "bench_inputs.h"

#include "ir/clock.h"
#include "tools/statistics.h"
#include "tools/values/value_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_RUNS = 200000 };

/* ---- what an application does around a run ---- */

/* Milliseconds to copy a tensor between its memory and some other, which is touched before. */
static double copy_time(const cyto_value *value, bool in) {
  size_t bytes = value->kind == CYTO_TENSOR && value->tensor.dtype != CYTO_STRING ? (size_t)value->tensor.bytes : 0;
  void *other = bytes && value->tensor.data ? malloc(bytes) : NULL;
  if (!other)
    return 0;
  memcpy(other, value->tensor.data, bytes);
  double start = cy_clock_ms();
  memcpy(in ? value->tensor.data : other, in ? other : value->tensor.data, bytes);
  double taken = cy_clock_ms() - start;
  free(other);
  return taken;
}

/* The time to copy all inputs, and the time to copy all outputs; the outputs go to files where asked for. */
static int transfers_time(cyto_context *context, const cyto_model *model, const cyto_value *inputs,
                          const cy_bench_given *g, cy_bench_sample *out, cyto_error *error) {
  char path[PATH_MAX + 300], name[200], why[TENSOR_ERROR_SIZE];
  for (int32_t i = 0; i < cyto_model_input_count(model); i++)
    out->in_ms += copy_time(&inputs[i], true);
  if (g->outputs && mkdir(g->outputs, 0777) && errno != EEXIST)
    return snprintf(error->message, sizeof error->message, "cannot make '%s': %s", g->outputs, strerror(errno)) > 0;
  for (int32_t i = 0; i < cyto_model_output_count(model); i++) {
    cyto_port port;
    cyto_value value;
    cyto_model_output(model, i, &port);
    if (cyto_output_value(context, i, &value, error))
      return 1;
    out->out_ms += copy_time(&value, false);
    if (!g->outputs || value.kind != CYTO_TENSOR || value.tensor.dtype == CYTO_STRING)
      continue;
    host_tensor t = {.dtype = value.tensor.dtype,
                     .rank = value.tensor.rank,
                     .data = value.tensor.data,
                     .bytes = (size_t)value.tensor.bytes};
    memcpy(t.dims, value.tensor.dims, sizeof t.dims);
    file_name_of(port.name, name, sizeof name);
    snprintf(path, sizeof path, "%s/out_%d_%s.npy", g->outputs, i, name);
    if (npy_write(path, &t, why))
      return snprintf(error->message, sizeof error->message, "%s", why) > 0;
  }
  return 0;
}

/* Runs for `seconds`, at least three times. */
static int runs_time(cyto_context *context, double seconds, cy_bench_sample *out, cyto_error *error) {
  double *times = malloc(sizeof *times * MAX_RUNS), end = cy_clock_ms() + seconds * 1e3;
  int n = 0;
  for (double start = cy_clock_ms(); times && n < MAX_RUNS && (start < end || n < 3); n++) {
    if (cyto_run(context, error) != CYTO_OK)
      break;
    double stop = cy_clock_ms();
    times[n] = stop - start;
    start = stop;
  }
  if (n >= 3) {
    statistics all = statistics_of(times, (size_t)n);
    out->median_ms = all.median;
    out->min_ms = all.min;
    out->mean_ms = all.mean;
    out->p95_ms = all.p95;
    out->p99_ms = all.p99;
    out->deviation_ms = all.deviation;
    out->runs = n;
  }
  free(times);
  return n < 3;
}

int cy_bench_child(const char *library, int threads, double seconds, uint64_t seed, const cy_bench_pairs *pairs) {
  cyto_error error = {0};
  cyto_model *model = NULL;
  cyto_context *context = NULL;
  cyto_options options = {.threads = threads};
  cy_bench_sample s = {0};
  cy_bench_given g = {0};
  cy_bench_shapes used = {0};
  double before = cy_bench_resident_kb(), start = cy_clock_ms();
  int failed = cyto_model_load(library, &model, &error) || cyto_context_create(model, &options, &context, &error);
  s.load_ms = cy_clock_ms() - start;
  int inputs = failed ? 0 : cyto_model_input_count(model);
  cyto_value *values = calloc((size_t)inputs + 1, sizeof *values);
  int unbound =
      failed || cy_bench_given_read(pairs, &g) || cy_bench_inputs_bind(context, model, seed, &g, values, &used, &error);
  start = cy_clock_ms();
  failed = unbound || cyto_run(context, &error);
  s.first_ms = cy_clock_ms() - start;
  failed = failed || runs_time(context, seconds, &s, &error);
  s.peak_kb = cy_bench_peak_kb() - before;
  failed = failed || transfers_time(context, model, values, &g, &s, &error);
  if (failed && *error.message)
    fprintf(stderr, "%s\n", error.message);
  if (!failed)
    printf("%.6f %.6f %.6f %.6f %.0f %.0f %.6f %.6f %.6f %.6f %.6f %.6f\n%lld %s\n", s.load_ms, s.first_ms, s.median_ms,
           s.min_ms, s.runs, s.peak_kb, s.mean_ms, s.p95_ms, s.p99_ms, s.deviation_ms, s.in_ms, s.out_ms,
           (long long)(used.samples ? used.samples : 1), used.text);
  cy_bench_given_free(&g);
  cyto_context_destroy(context);
  cyto_model_unload(model);
  for (int i = 0; values && i < inputs; i++)
    host_value_free(&values[i]);
  free(values);
  return failed;
}
