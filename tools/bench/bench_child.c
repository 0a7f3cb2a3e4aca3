/* SPDX-License-Identifier: Apache-2.0 */
/* bench_child.c - one measured process of cyto-bench: load a compiled model, run it, print one line of numbers.
 *
 * In:  a library, sizes for the dims that it leaves open, a seed.
 * Out: the line of a cy_bench_sample on stdout, and one with the shapes of the inputs; on failure a message on stderr and
 *      exit code 1.
 *
 * Inputs are made from a hash of the element's index, so that bench_ort.py can make the very same ones: floats uniform in
 * [-1, 1), integers 0 or 1 (valid as indices and masks), or within --range NAME=LO:HI; --inputs FOLDER has those that are
 * not random. --outputs FOLDER gets the outputs of the last run as .npy.
 */
#include "bench.h"

#include "ir/clock.h"
#include "tools/sizes.h"
#include "tools/statistics.h"
#include "tools/values/value_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { MAX_RUNS = 200000 };

static double resident_kb(void) {
  long pages = 0, resident = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  if (f) {
    if (fscanf(f, "%ld %ld", &pages, &resident) != 2)
      resident = 0;
    fclose(f);
  }
  return resident * 4.0;
}

static double peak_kb(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (double)usage.ru_maxrss;
}

/* The pairs by their options. */
typedef struct given {
  options_list dims, shapes, ranges;
  const char *inputs, *outputs; /* folders; NULL: none */
} given;

static int given_sort(const cy_bench_pairs *pairs, given *out) {
  const struct {
    const char *option;
    options_list *list;
  } lists[] = {{"--dim", &out->dims}, {"--shape", &out->shapes}, {"--range", &out->ranges}};
  int failed = 0;
  for (int i = 0; i < pairs->n; i++) {
    if (!strcmp(pairs->option[i], "--inputs"))
      out->inputs = pairs->text[i];
    if (!strcmp(pairs->option[i], "--outputs"))
      out->outputs = pairs->text[i];
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
      if (!strcmp(pairs->option[i], lists[k].option))
        failed |= options_list_add(lists[k].list, pairs->text[i], 0);
  }
  return failed;
}

static void given_free(given *g) {
  options_list_free(&g->dims);
  options_list_free(&g->shapes);
  options_list_free(&g->ranges);
}

/* What the second line says. */
typedef struct shapes {
  char text[400];
  int64_t samples;
} shapes;

static void shapes_add(shapes *s, const char *name, int32_t rank, const int64_t *dims) {
  char text[100];
  size_t n = strlen(s->text);
  snprintf(s->text + n, sizeof s->text - n, "%s%s %s", n ? ", " : "", name, sizes_text(rank, dims, text, sizeof text));
  if (!s->samples)
    s->samples = sizes_samples(rank, dims);
}

/* splitmix64: a well mixed number for each index. */
static uint64_t hash(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

static int is_float(int32_t dtype) {
  return dtype == CYTO_F32 || dtype == CYTO_F64 || dtype == CYTO_F16 || dtype == CYTO_BF16;
}

static int random_tensor(const cyto_port *port, uint64_t seed, const given *g, cyto_value *out) {
  host_tensor t = {.dtype = port->dtype};
  char why[TENSOR_ERROR_SIZE];
  if (port->type->kind != CYTO_TENSOR || port->dtype == CYTO_STRING || cyto_dtype_bits(port->dtype) < 8) {
    fprintf(stderr, "no random values for input '%s' of type %s; give a folder of inputs\n", port->name,
            cyto_dtype_name(port->dtype));
    return 1;
  }
  if (sizes_choose(port, &(sizes_given){&g->dims, &g->shapes, 0}, &t.rank, t.dims, why) || host_tensor_alloc(&t, why)) {
    fprintf(stderr, "%s\n", why);
    return 1;
  }
  double low = is_float(port->dtype) ? -1 : 0, high = is_float(port->dtype) ? 1 : 2;
  const char *range = options_value(&g->ranges, port->name, -1);
  if (range && sscanf(range, "%lf:%lf", &low, &high) == 2 && !is_float(port->dtype))
    high += 1;
  for (int64_t i = 0, n = host_tensor_count(&t); i < n; i++)
    host_tensor_set(&t, i, low + (high - low) * (double)(hash(seed + (uint64_t)i) >> 11) * 0x1p-53);
  host_value_take(out, &t);
  return 0;
}

/* Of the folder of inputs if it has one of this number, else random. What fails without a text in *error is printed. */
static int input_bind(cyto_context *context, int index, const cyto_port *port, uint64_t seed, const given *g,
                      cyto_value *out, shapes *out_shapes, cyto_error *error) {
  char path[PATH_MAX], why[TENSOR_ERROR_SIZE];
  if (g->inputs && value_folder_find(g->inputs, false, index, path, sizeof path)) {
    if (value_file_read(path, port, out, why)) {
      fprintf(stderr, "input '%s': %s\n", port->name, why);
      return 1;
    }
  } else if (port->is_optional) {
    return 0;
  } else if (random_tensor(port, seed, g, out)) {
    return 1;
  }
  if (out->kind == CYTO_TENSOR)
    shapes_add(out_shapes, port->name, out->tensor.rank, out->tensor.dims);
  return cyto_bind_value(context, index, out, error) != CYTO_OK;
}

static int inputs_bind(cyto_context *context, cyto_model *model, uint64_t seed, const given *g, cyto_value *values,
                       shapes *out_shapes, cyto_error *error) {
  cyto_port port;
  int failed = values == NULL;
  for (int i = 0; !failed && i < cyto_model_input_count(model); i++) {
    cyto_model_input(model, i, &port);
    failed = input_bind(context, i, &port, seed + (uint64_t)i, g, &values[i], out_shapes, error);
  }
  return failed;
}

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
static int transfers_time(cyto_context *context, const cyto_model *model, const cyto_value *inputs, const given *g,
                          cy_bench_sample *out, cyto_error *error) {
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
  given g = {0};
  shapes used = {0};
  double before = resident_kb(), start = cy_clock_ms();
  int failed = cyto_model_load(library, &model, &error) || cyto_context_create(model, &options, &context, &error);
  s.load_ms = cy_clock_ms() - start;
  int inputs = failed ? 0 : cyto_model_input_count(model);
  cyto_value *values = calloc((size_t)inputs + 1, sizeof *values);
  int unbound = failed || given_sort(pairs, &g) || inputs_bind(context, model, seed, &g, values, &used, &error);
  start = cy_clock_ms();
  failed = unbound || cyto_run(context, &error);
  s.first_ms = cy_clock_ms() - start;
  failed = failed || runs_time(context, seconds, &s, &error);
  s.peak_kb = peak_kb() - before;
  failed = failed || transfers_time(context, model, values, &g, &s, &error);
  if (failed && *error.message)
    fprintf(stderr, "%s\n", error.message);
  if (!failed)
    printf("%.6f %.6f %.6f %.6f %.0f %.0f %.6f %.6f %.6f %.6f %.6f %.6f\n%lld %s\n", s.load_ms, s.first_ms, s.median_ms,
           s.min_ms, s.runs, s.peak_kb, s.mean_ms, s.p95_ms, s.p99_ms, s.deviation_ms, s.in_ms, s.out_ms,
           (long long)(used.samples ? used.samples : 1), used.text);
  given_free(&g);
  cyto_context_destroy(context);
  cyto_model_unload(model);
  for (int i = 0; values && i < inputs; i++)
    host_value_free(&values[i]);
  free(values);
  return failed;
}
