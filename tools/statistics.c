/* SPDX-License-Identifier: Apache-2.0 */
/* statistics.c - see statistics.h. */
#include "tools/statistics.h"

#include "ir/clock.h"

#include <math.h>

static double percentile(const double *sorted, size_t n, double part) {
  size_t rank = (size_t)ceil(part * (double)n);
  return sorted[rank ? rank - 1 : 0];
}

statistics statistics_of(double *times, size_t n) {
  statistics s = {.runs = n};
  double squares = 0;
  cy_numbers_sort(times, n);
  for (size_t i = 0; i < n; i++)
    s.mean += times[i] / (double)n;
  for (size_t i = 0; i < n; i++)
    squares += (times[i] - s.mean) * (times[i] - s.mean);
  s.deviation = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
  s.min = times[0];
  s.median = times[n / 2];
  s.p95 = percentile(times, n, 0.95);
  s.p99 = percentile(times, n, 0.99);
  s.max = times[n - 1];
  return s;
}

void statistics_print(const statistics *s, double samples, FILE *out) {
  double rate = samples * 1e3 / s->mean;
  fprintf(out,
          "%zu runs: min %.3f ms, median %.3f ms, mean %.3f ms, standard deviation %.3f ms, p95 %.3f ms, p99 %.3f ms, "
          "%.*f samples/s\n",
          s->runs, s->min, s->median, s->mean, s->deviation, s->p95, s->p99, rate < 100 ? 2 : 0, rate);
}
