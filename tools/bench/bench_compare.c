/* SPDX-License-Identifier: Apache-2.0 */
/* bench_compare.c - results beside older ones: what got slower or faster by more than the noise of both runs.
 *
 * In:  results, and a file that cyto-bench --json wrote. Rows belong together by model, options, shapes, batch, threads and
 *      contender.
 * Out: a line on stdout for each pair.
 *
 * Noise is that of the processes which measured the same thing: the distance of the quartiles of their medians, relative
 * to the median of these, and 1 % at least. A change counts when it is larger than one and a half times the noise of both
 * together (as Tukey's fences); J. W. Tukey, Exploratory Data Analysis, 1977.
 */
#include "bench.h"

#include "ir/clock.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

enum { MAX_TIMES = 4 * CY_BENCH_MAX_PROCESSES };

typedef struct figure {
  double median, noise; /* noise: relative */
} figure;

static figure figure_of(double *medians, size_t n) {
  if (!n)
    return (figure){0};
  cy_numbers_sort(medians, n);
  double middle = medians[n / 2], spread = middle > 0 ? (medians[n * 3 / 4] - medians[n / 4]) / middle : 0;
  return (figure){middle, spread < 0.01 ? 0.01 : spread};
}

static figure figure_now(const cy_bench_result *r) {
  double medians[CY_BENCH_MAX_PROCESSES];
  for (int i = 0; i < r->n_samples; i++)
    medians[i] = r->samples[i].median_ms;
  return figure_of(medians, (size_t)r->n_samples);
}

static figure figure_then(const json_t *row) {
  double medians[MAX_TIMES];
  size_t n = 0, i;
  json_t *process;
  json_array_foreach(json_object_get(row, "processes"), i, process) {
    if (n < MAX_TIMES)
      medians[n++] = json_number_value(json_object_get(process, "median_ms"));
  }
  return figure_of(medians, n);
}

static bool has_text(const json_t *row, const char *key, const char *text) {
  const char *found = json_string_value(json_object_get(row, key));
  return !strcmp(found ? found : "", text ? text : "");
}

static bool belongs(const json_t *row, const cy_bench_result *r) {
  return has_text(row, "model", r->model) && has_text(row, "options", r->options) &&
         has_text(row, "shapes", r->shapes) && has_text(row, "contender", cy_bench_contender_name(r->contender)) &&
         json_integer_value(json_object_get(row, "batch")) == r->batch &&
         json_integer_value(json_object_get(row, "threads")) == r->threads;
}

static const json_t *row_of(const json_t *rows, const cy_bench_result *r) {
  size_t i;
  json_t *row;
  json_array_foreach(rows, i, row) {
    if (belongs(row, r))
      return row;
  }
  return NULL;
}

/* 1: it got slower. */
static int pair_print(const cy_bench_result *r, const json_t *row) {
  char name[200];
  snprintf(name, sizeof name, "%s%s%s", r->model, r->options ? " " : "", r->options ? r->options : "");
  printf("%-40s  %7d  %-15s", name, r->threads, cy_bench_contender_name(r->contender));
  figure now = figure_now(r), then = row ? figure_then(row) : (figure){0};
  if (now.median <= 0 || then.median <= 0) {
    const char *why = !row              ? "no such row"
                      : now.median > 0  ? "failed then"
                      : then.median > 0 ? "fails now"
                                        : "failed, and fails";
    printf("  %s\n", why);
    return row && now.median <= 0 && then.median > 0;
  }
  double change = now.median / then.median - 1, noise = 1.5 * hypot(now.noise, then.noise);
  const char *what = change > noise ? "slower" : change < -noise ? "faster" : "same";
  printf("  %10.4f  %10.4f  %+7.1f %%  %6.1f %%  %s\n", then.median, now.median, 100 * change, 100 * noise, what);
  return change > noise;
}

int cy_bench_compare(const char *path, const cy_bench_result *results, int n) {
  json_error_t why;
  json_t *file = json_load_file(path, 0, &why);
  const json_t *rows = json_is_array(file) ? file : json_object_get(file, "results");
  int slower = 0;
  if (!json_is_array(rows)) {
    fprintf(stderr, "cyto-bench: error: --compare: '%s' is no file of cyto-bench --json: %s\n", path,
            file ? "it has no 'results'" : why.text);
    json_decref(file);
    return -1;
  }
  printf("\nbeside %s:\n%-40s  %7s  %-15s  %10s  %10s  %9s  %8s\n", path, "model", "threads", "contender", "then ms",
         "now ms", "change", "noise");
  for (int i = 0; i < n; i++)
    slower += pair_print(&results[i], row_of(rows, &results[i]));
  printf("%d of %d slower than before by more than the noise\n", slower, n);
  json_decref(file);
  return slower;
}
