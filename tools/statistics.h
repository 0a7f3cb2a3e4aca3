/* SPDX-License-Identifier: Apache-2.0 */
/* statistics.h - what cyto-run and cyto-bench say of the times of many runs. The first run, which is cold, is not one of
 * them. */
#ifndef CY_TOOLS_STATISTICS_H
#define CY_TOOLS_STATISTICS_H

#include <stddef.h>
#include <stdio.h>

/* name in texts: milliseconds of a run */
#define STATISTICS_FIELDS(X) X(min) X(mean) X(median) X(p95) X(p99) X(max) X(deviation)

typedef struct statistics {
#define X(name) double name;
  STATISTICS_FIELDS(X)
#undef X
  size_t runs;
} statistics;

/* Of n > 0 times, which get sorted. deviation: the standard deviation of a sample; 0 of a single one. A percentile is the
 * least time that so many of all runs do not exceed. */
statistics statistics_of(double *times, size_t n);

/* "100 runs: min 1.000 ms, median 1.100 ms, mean 1.150 ms, standard deviation 0.020 ms, p95 .., p99 .., 900 samples/s" */
void statistics_print(const statistics *s, double samples, FILE *out);

#endif
