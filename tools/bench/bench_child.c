/* SPDX-License-Identifier: Apache-2.0 */
/* bench_child.c - one measured process of cyto-bench: load a compiled model, run it, print one line of numbers.
 *
 * In:  a library, sizes for the dims that it leaves open, a seed.
 * Out: the line of a cy_bench_sample on stdout, and one with the shapes of the inputs; on failure a message on stderr and
 *      exit code 1.
 *
 * Inputs are made from a hash of the element's index, so that bench_ort.py can make the very same ones: floats uniform in
 * [-1, 1), integers 0 or 1 (valid as indices and masks), or within --range NAME=LO:HI.
 */
#include "bench.h"

#include "ir/clock.h"
#include "tools/sizes.h"
#include "tools/statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

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
} given;

static int given_sort(const cy_bench_pairs *pairs, given *out) {
  const struct {
    const char *option;
    options_list *list;
  } lists[] = {{"--dim", &out->dims}, {"--shape", &out->shapes}, {"--range", &out->ranges}};
  int failed = 0;
  for (int i = 0; i < pairs->n; i++)
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
      if (!strcmp(pairs->option[i], lists[k].option))
        failed |= options_list_add(lists[k].list, pairs->text[i], 0);
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

/* *out_data: memory of the input, for free(). What fails without a text in *error is printed. */
static int input_bind(cyto_context *context, int index, const cyto_port *port, uint64_t seed, const given *g,
                      void **out_data, shapes *out_shapes, cyto_error *error) {
  int64_t dims[CYTO_MAX_RANK], count = 1;
  int32_t rank;
  char why[TENSOR_ERROR_SIZE];
  if (sizes_choose(port, &(sizes_given){&g->dims, &g->shapes, 0}, &rank, dims, why)) {
    fprintf(stderr, "%s\n", why);
    return 1;
  }
  shapes_add(out_shapes, port->name, rank, dims);
  for (int d = 0; d < rank; d++)
    count *= dims[d];
  int64_t bytes = cyto_tensor_bytes(port->dtype, rank, dims);
  if (bytes < 0 || port->dtype == CYTO_STRING || cyto_dtype_bits(port->dtype) < 8) {
    fprintf(stderr, "no random values for input '%s' of type %s\n", port->name, cyto_dtype_name(port->dtype));
    return 1;
  }
  double low = is_float(port->dtype) ? -1 : 0, high = is_float(port->dtype) ? 1 : 2;
  const char *range = options_value(&g->ranges, port->name, -1);
  if (range && sscanf(range, "%lf:%lf", &low, &high) == 2 && !is_float(port->dtype))
    high += 1;
  void *data = *out_data = aligned_alloc(64, ((size_t)bytes + 127) / 64 * 64);
  if (!data) {
    fprintf(stderr, "no memory for input '%s'\n", port->name);
    return 1;
  }
  host_tensor tensor = {.dtype = port->dtype, .data = data};
  for (int64_t i = 0; i < count; i++)
    host_tensor_set(&tensor, i, low + (high - low) * (double)(hash(seed + (uint64_t)i) >> 11) * 0x1p-53);
  return cyto_bind_input(context, index, port->dtype, rank, dims, data, error) != CYTO_OK;
}

static int inputs_bind(cyto_context *context, cyto_model *model, uint64_t seed, const given *g, void **data,
                       shapes *out_shapes, cyto_error *error) {
  cyto_port port;
  int failed = data == NULL;
  for (int i = 0; !failed && i < cyto_model_input_count(model); i++) {
    cyto_model_input(model, i, &port);
    failed = !port.is_optional && input_bind(context, i, &port, seed + (uint64_t)i, g, &data[i], out_shapes, error);
  }
  return failed;
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
  void **data = calloc((size_t)inputs + 1, sizeof *data);
  int unbound = failed || given_sort(pairs, &g) || inputs_bind(context, model, seed, &g, data, &used, &error);
  start = cy_clock_ms();
  failed = unbound || cyto_run(context, &error);
  s.first_ms = cy_clock_ms() - start;
  failed = failed || runs_time(context, seconds, &s, &error);
  s.peak_kb = peak_kb() - before;
  if (failed && *error.message)
    fprintf(stderr, "%s\n", error.message);
  if (!failed)
    printf("%.6f %.6f %.6f %.6f %.0f %.0f %.6f %.6f %.6f %.6f\n%lld %s\n", s.load_ms, s.first_ms, s.median_ms, s.min_ms,
           s.runs, s.peak_kb, s.mean_ms, s.p95_ms, s.p99_ms, s.deviation_ms,
           (long long)(used.samples ? used.samples : 1), used.text);
  given_free(&g);
  cyto_context_destroy(context);
  cyto_model_unload(model);
  for (int i = 0; data && i < inputs; i++)
    free(data[i]);
  free(data);
  return failed;
}
