/* SPDX-License-Identifier: Apache-2.0 */
/* bench_search.c - samples per second of a model by batch size, and the best batch within a limit of memory.
 *
 * In:  a task whose model leaves the dim `batch` open, a limit in bytes for the memory that a process has in RAM at its peak.
 * Out: a result of the compiled model for each batch size that was tried, those beyond the limit with a failure.
 *
 * Batches double until one does not fit; then those between the best one and its neighbours are tried, as long as that
 * brings more. A process that would get far beyond the limit is refused its memory by the system, which ends it, not us.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BATCH = 65536 };

typedef struct search {
  const cy_bench_setup *setup;
  const cy_bench_task *task;
  double limit_kb;
  cy_bench_result *results;
  int n;
  terminal_progress *progress;
} search;

static double rate_of(const cy_bench_result *r) {
  cy_bench_sample s = cy_bench_median(r);
  return r->n_samples && s.median_ms > 0 ? r->batch * 1e3 / s.median_ms : 0;
}

/* Measures one batch size. True: it fits. */
static bool batch_try(search *s, int batch) {
  cy_bench_result all[CY_BENCH_N_CONTENDERS], *r = &s->results[s->n];
  cy_bench_task task = *s->task;
  char dim[32];
  snprintf(dim, sizeof dim, "batch=%d", batch);
  task.batch = batch;
  task.n_threads = 1;
  cy_bench_pair_add(&task.pairs, "--dim", dim);
  if (s->n == CY_BENCH_MAX_SEARCH || !cy_bench_measure(s->setup, &task, all, s->progress))
    return false;
  *r = all[0];
  s->n++;
  cy_bench_sample median = cy_bench_median(r);
  if (r->n_samples && median.peak_kb > s->limit_kb) {
    snprintf(r->failure, sizeof r->failure, "takes %.1f MB", median.peak_kb / 1024);
    r->n_samples = 0;
  }
  return r->n_samples > 0;
}

static int best_of(const search *s) {
  int best = -1;
  for (int i = 0; i < s->n; i++)
    if (s->results[i].n_samples && (best < 0 || rate_of(&s->results[i]) > rate_of(&s->results[best])))
      best = i;
  return best;
}

static bool was_tried(const search *s, int batch) {
  for (int i = 0; i < s->n; i++)
    if (s->results[i].batch == batch)
      return true;
  return false;
}

/* The nearest batch that was tried below (-1) or above (1) the given one; 0: none. */
static int neighbour_of(const search *s, int batch, int side) {
  int found = 0;
  for (int i = 0; i < s->n; i++) {
    int b = s->results[i].batch;
    if ((b - batch) * side > 0 && (!found || (b - found) * side < 0))
      found = b;
  }
  return found;
}

static int by_batch(const void *a, const void *b) {
  return ((const cy_bench_result *)a)->batch - ((const cy_bench_result *)b)->batch;
}

int cy_bench_search(const cy_bench_setup *o, const cy_bench_task *task, double memory, cy_bench_result *results,
                    int *out_best, terminal_progress *progress) {
  cy_bench_setup setup = *o;
  search s = {&setup, task, memory / 1024, results, 0, progress};
  setup.limit_kb = 2 * s.limit_kb + (256 << 10); /* for code and tables, which are no part of the peak */
  for (int c = CY_BENCH_EAGER; c < CY_BENCH_N_CONTENDERS; c++)
    setup.against[c] = 0;
  for (int batch = 1; batch <= MAX_BATCH && batch_try(&s, batch);)
    batch *= 2;
  for (int step = 0, best = best_of(&s); best >= 0 && step < 6; step++) {
    int batch = results[best].batch, before = best;
    for (int side = -1; side <= 1; side += 2) {
      int other = neighbour_of(&s, batch, side), between = (other + batch) / 2;
      if (other && !was_tried(&s, between))
        batch_try(&s, between);
    }
    best = best_of(&s);
    if (best == before)
      break;
  }
  qsort(results, (size_t)s.n, sizeof *results, by_batch);
  *out_best = best_of(&s);
  return s.n;
}
