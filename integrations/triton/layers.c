/* SPDX-License-Identifier: Apache-2.0 */
/* layers.c - the time of a model's layers, among the metrics of the server (parameter layer_metrics).
 *
 * In:  a library compiled with --profile, whose runs are recorded.
 * Out: counters cytoc_layer_duration_us and cytoc_layer_runs, with the labels model, version, step, layer, operators.
 *
 * A thread takes over the sums once a second: the recording is stopped for that, and begun anew; what runs in between is not
 * counted. It ends with the model.
 */
#include "integrations/triton/backend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* One family of a name in a process: it lives as long as there is a model that uses it. The lock is held while metrics are made
 * and deleted, too: a model that is loaded again meets itself while it is unloaded, with the same labels, and in the server
 * (2.51, and the newest of 2026) a metric that is made while its last user deletes it is one whose memory was freed. */
static struct {
  pthread_mutex_t lock;
  int users;
  triton_family *time, *runs;
} families = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct layers {
  model *m;
  int64_t n;
  triton_metric **time, **runs; /* [n]; NULL: could not be had */
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t wake;
  bool is_started, ends;
};

/* ---- families ---- */

static triton_error *families_make(void) {
  TRY(TRITONSERVER_MetricFamilyNew(&families.time, TRITON_COUNTER, "cytoc_layer_duration_us",
                                   "Time of a step of a model compiled by cytoc, in microseconds"));
  return TRITONSERVER_MetricFamilyNew(&families.runs, TRITON_COUNTER, "cytoc_layer_runs",
                                      "Runs of a step of a model compiled by cytoc");
}

static void families_delete(void) {
  if (families.time)
    ignore(TRITONSERVER_MetricFamilyDelete(families.time));
  if (families.runs)
    ignore(TRITONSERVER_MetricFamilyDelete(families.runs));
  families.time = families.runs = NULL;
}

static triton_error *families_take(void) {
  triton_error *error = NULL;
  pthread_mutex_lock(&families.lock);
  if (!families.users)
    error = families_make();
  if (error)
    families_delete();
  else
    families.users++;
  pthread_mutex_unlock(&families.lock);
  return error;
}

static void families_give(void) {
  pthread_mutex_lock(&families.lock);
  if (!--families.users)
    families_delete();
  pthread_mutex_unlock(&families.lock);
}

/* ---- metrics ---- */

enum { LABELS = 5 };

static triton_error *metric_new(triton_metric **out, triton_family *family, const char *const values[LABELS]) {
  static const char *const names[LABELS] = {"model", "version", "step", "layer", "operators"};
  const triton_parameter *labels[LABELS] = {NULL};
  for (int i = 0; i < LABELS; i++)
    labels[i] = TRITONSERVER_ParameterNew(names[i], TRITON_PARAMETER_STRING, values[i]);
  pthread_mutex_lock(&families.lock);
  triton_error *error = TRITONSERVER_MetricNew(out, family, labels, LABELS);
  pthread_mutex_unlock(&families.lock);
  for (int i = 0; i < LABELS; i++)
    TRITONSERVER_ParameterDelete((triton_parameter *)labels[i]);
  return error;
}

static triton_error *make_metrics(layers *l, int64_t k) {
  char version[24], step[24];
  cyto_trace_sums sums;
  if (cyto_trace_step(l->m->library, k, &sums))
    return error_of(TRITON_INTERNAL, "step %lld cannot be told", (long long)k);
  snprintf(version, sizeof version, "%llu", (unsigned long long)l->m->version);
  snprintf(step, sizeof step, "%lld", (long long)k);
  const char *const values[LABELS] = {l->m->name, version, step, sums.node, sums.ops};
  TRY(metric_new(&l->time[k], families.time, values));
  return metric_new(&l->runs[k], families.runs, values);
}

static void add_sums(const layers *l) {
  for (int64_t k = 0; k < l->n; k++) {
    cyto_trace_sums sums;
    if (cyto_trace_step(l->m->library, k, &sums) || !(sums.runs + sums.first_runs))
      continue;
    ignore(TRITONSERVER_MetricIncrement(l->time[k], (double)(sums.ns + sums.first_ns) * 1e-3));
    ignore(TRITONSERVER_MetricIncrement(l->runs[k], (double)(sums.runs + sums.first_runs)));
  }
}

/* ---- the thread ---- */

static bool wait_a_second(layers *l) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec++;
  int waited = 0;
  while (!l->ends && waited != ETIMEDOUT)
    waited = pthread_cond_timedwait(&l->wake, &l->lock, &until);
  return !l->ends;
}

static void *take_over(void *data) {
  layers *l = data;
  cyto_error error;
  bool goes_on = true;
  pthread_mutex_lock(&l->lock);
  while (goes_on) {
    goes_on = wait_a_second(l);
    if (cyto_trace_stop(l->m->library, &error))
      break;
    add_sums(l);
    goes_on = goes_on && !cyto_trace_start(l->m->library, -1, &error);
  }
  pthread_mutex_unlock(&l->lock);
  return NULL;
}

static triton_error *start(layers *l) {
  cyto_error error = {0};
  cyto_status status = cyto_trace_start(l->m->library, -1, &error);
  if (!status) /* what the steps are is told when a recording is over */
    status = cyto_trace_stop(l->m->library, &error);
  if (status == CYTO_INVALID_ARGUMENT)
    return error_of(
        TRITON_INVALID_ARG,
        "model '%s': layer_metrics needs a library compiled with --profile, or model.onnx, which is compiled so",
        l->m->name);
  if (status)
    return error_of_runtime(status, &error);
  for (int64_t k = 0; k < l->n; k++)
    TRY(make_metrics(l, k));
  status = cyto_trace_start(l->m->library, -1, &error);
  if (status)
    return error_of_runtime(status, &error);
  l->is_started = !pthread_create(&l->thread, NULL, take_over, l);
  return l->is_started ? NULL : out_of_memory();
}

triton_error *layers_start(model *m) {
  layers *l = calloc(1, sizeof *l);
  if (!l)
    return out_of_memory();
  triton_error *error = families_take();
  if (error) {
    free(l);
    return error;
  }
  pthread_mutex_init(&l->lock, NULL);
  pthread_cond_init(&l->wake, NULL);
  m->layers = l;
  l->m = m;
  l->n = cyto_trace_step_count(m->library);
  l->time = calloc((size_t)l->n + 1, sizeof *l->time);
  l->runs = calloc((size_t)l->n + 1, sizeof *l->runs);
  return l->time && l->runs ? start(l) : out_of_memory();
}

static void metrics_delete(triton_metric **metrics, int64_t n) {
  pthread_mutex_lock(&families.lock);
  for (int64_t k = 0; metrics && k < n; k++)
    if (metrics[k])
      ignore(TRITONSERVER_MetricDelete(metrics[k]));
  pthread_mutex_unlock(&families.lock);
  free(metrics);
}

void layers_stop(layers *l) {
  if (!l)
    return;
  pthread_mutex_lock(&l->lock);
  l->ends = true;
  pthread_cond_signal(&l->wake);
  pthread_mutex_unlock(&l->lock);
  if (l->is_started)
    pthread_join(l->thread, NULL);
  else
    cyto_trace_stop(l->m->library, NULL);
  metrics_delete(l->time, l->n);
  metrics_delete(l->runs, l->n);
  families_give();
  pthread_mutex_destroy(&l->lock);
  pthread_cond_destroy(&l->wake);
  free(l);
}
