/* SPDX-License-Identifier: Apache-2.0 */
/* settings_child.c - one measured process of cyto-tune: several contexts of a library, each run by a thread of its own.
 *
 * In:  a library, a setting, sizes of what it leaves open, a seed.
 * Out: the line of a cy_setting_sample on stdout; on failure a message on stderr and exit code 1.
 *
 * All contexts run once, which is cold and not counted, and begin together. Each has inputs of its own.
 */
#include "settings.h"

#include "ir/clock.h"
#include "tools/bench/bench_inputs.h"
#include "tools/statistics.h"
#include "tools/values/value_file.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RUNS = 50000, MIN_RUNS = 3 };

typedef struct lane {
  cyto_context *context;
  cyto_value *values;
  cy_bench_shapes shapes;
  pthread_t thread;
  pthread_barrier_t *begin;
  double seconds, took_ms, *times; /* took_ms: from the first of its runs to the last */
  int n;
  bool failed;
  cyto_error error;
} lane;

typedef struct process {
  cyto_model *model;
  lane *lanes;
  int n;
  cy_bench_given given;
  cyto_error error;
} process;

static int lane_open(process *p, lane *l, const cyto_options *options, uint64_t seed) {
  size_t inputs = (size_t)cyto_model_input_count(p->model);
  l->values = calloc(inputs + 1, sizeof *l->values);
  l->times = calloc(MAX_RUNS, sizeof *l->times);
  if (!l->values || !l->times)
    return snprintf(p->error.message, sizeof p->error.message, "no memory") > 0;
  return cyto_context_create(p->model, options, &l->context, &p->error) ||
         cy_bench_inputs_bind(l->context, p->model, seed, &p->given, l->values, &l->shapes, &p->error) ||
         cyto_run(l->context, &p->error);
}

static void *lane_run(void *ctx) {
  lane *l = ctx;
  pthread_barrier_wait(l->begin);
  double began = cy_clock_ms(), start = began, end = began + l->seconds * 1e3;
  while (l->n < MAX_RUNS && (start < end || l->n < MIN_RUNS)) {
    if ((l->failed = cyto_run(l->context, &l->error) != CYTO_OK))
      break;
    double stop = cy_clock_ms();
    l->times[l->n++] = stop - start;
    start = stop;
  }
  l->took_ms = start - began;
  return NULL;
}

static int lanes_run(process *p, double seconds) {
  pthread_barrier_t begin;
  int failed = pthread_barrier_init(&begin, NULL, (unsigned)p->n), started = 0;
  for (lane *l = p->lanes; l < p->lanes + p->n && !failed; l++) {
    l->begin = &begin;
    l->seconds = seconds;
    failed = pthread_create(&l->thread, NULL, lane_run, l);
    started += !failed;
  }
  if (failed) { /* those that wait for each other end with the process */
    fprintf(stderr, "cannot start %d threads\n", p->n);
    exit(1);
  }
  for (lane *l = p->lanes; l < p->lanes + started; l++) {
    pthread_join(l->thread, NULL);
    failed |= l->failed;
    if (l->failed)
      p->error = l->error;
  }
  pthread_barrier_destroy(&begin);
  return failed;
}

/* What a device holds is no memory of this process. */
static double device_kb(const process *p, const cyto_options *options) {
  const int64_t *dims[CY_BENCH_MAX_PAIRS] = {NULL};
  cyto_memory need;
  int32_t inputs = cyto_model_input_count(p->model);
  for (int32_t i = 0; i < inputs && i < CY_BENCH_MAX_PAIRS; i++)
    dims[i] = p->lanes->values[i].tensor.dims;
  if (inputs > CY_BENCH_MAX_PAIRS || cyto_memory_need(p->model, options, dims, &need, NULL))
    return 0;
  return ((double)need.weights + p->n * (double)(need.arena + need.outputs)) / 1024;
}

static int sample_print(const process *p, cy_setting s, double peak) {
  size_t n = 0;
  double rate = 0, samples = s.batch                    ? (double)s.batch
                             : p->lanes->shapes.samples ? (double)p->lanes->shapes.samples
                                                        : 1;
  double *all = malloc(sizeof *all * MAX_RUNS * (size_t)p->n);
  if (!all)
    return 1;
  for (const lane *l = p->lanes; l < p->lanes + p->n; l++) {
    rate += samples * l->n * 1e3 / (l->took_ms > 0 ? l->took_ms : 1e-6);
    memcpy(all + n, l->times, sizeof *all * (size_t)l->n);
    n += (size_t)l->n;
  }
  statistics t = statistics_of(all, n);
  free(all);
  printf("%zu %.9g %.9g %.9g %.9g\n", n, rate, t.median, t.p95, peak);
  return fflush(stdout) != 0;
}

static void process_close(process *p) {
  for (lane *l = p->lanes; l && l < p->lanes + p->n; l++) {
    cyto_context_destroy(l->context);
    for (int32_t i = 0; l->values && i < cyto_model_input_count(p->model); i++)
      host_value_free(&l->values[i]);
    free(l->values);
    free(l->times);
  }
  cyto_model_unload(p->model);
  free(p->lanes);
  cy_bench_given_free(&p->given);
}

int cy_setting_child(const char *library, cy_setting s, double seconds, uint64_t seed, const cy_bench_pairs *pairs) {
  process p = {.n = s.contexts, .lanes = calloc((size_t)s.contexts, sizeof(lane))};
  cyto_options options = {.threads = s.threads};
  double before = cy_bench_resident_kb();
  int failed = !p.lanes || cy_bench_given_read(pairs, &p.given) || cyto_model_load(library, &p.model, &p.error);
  for (int i = 0; i < p.n && !failed; i++)
    failed = lane_open(&p, &p.lanes[i], &options, seed);
  failed = failed || lanes_run(&p, seconds);
  if (failed && *p.error.message)
    fprintf(stderr, "%s\n", p.error.message);
  if (!failed) {
    double peak = cy_bench_peak_kb() - before, there = s.threads ? 0 : device_kb(&p, &options);
    failed = sample_print(&p, s, there > 0 ? there : peak);
  }
  if (p.model)
    process_close(&p);
  return failed;
}
