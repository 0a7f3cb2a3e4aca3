/* SPDX-License-Identifier: Apache-2.0 */
/* run_many.c - several models in several threads at once, one pool: every run must give what a run alone gave.
 *
 * In:  run_many ROUNDS STACK LIBRARY..; each library has inputs that are tensors of fixed shape, of numbers. They are made
 *      here, by a seed that each thread has its own of; integers are 0 or 1. STACK: KB of each thread's, 0: as always.
 * Out: lines about what differed; exit code 1 then, or after any error.
 * A thread has its own handle of its model, or shares one with others, and makes a new context every few rounds. The
 * number of threads that a context may use goes from 1 to 3, and some contexts have a pool that is no pool.
 */
#define _GNU_SOURCE
#include "cyto.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS_PER_MODEL = 3, ROUNDS_PER_CONTEXT = 8, MAX_INPUTS = 16 };

typedef struct worker {
  const char *library;
  cyto_model *shared; /* NULL: the thread opens the library itself */
  int rounds, seed;
  uint64_t expected; /* of a run alone */
} worker;

static atomic_int failures;

static void fail(const worker *w, const char *what, const cyto_error *error) {
  fprintf(stderr, "%s, thread %d: %s%s%s\n", w->library, w->seed, what, error ? ": " : "", error ? error->message : "");
  atomic_fetch_add(&failures, 1);
}

/* ---- a run and what came of it ---- */

static void hash_bytes(uint64_t *h, const void *bytes, uint64_t n) {
  for (uint64_t i = 0; i < n; i++)
    *h = (*h ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u;
}

static void hash_value(uint64_t *h, const cyto_value *value) {
  hash_bytes(h, &value->kind, sizeof value->kind);
  if (value->kind == CYTO_TENSOR) {
    hash_bytes(h, value->tensor.dims, (uint64_t)value->tensor.rank * sizeof *value->tensor.dims);
    hash_bytes(h, value->tensor.data, value->tensor.bytes);
  }
  for (uint64_t i = 0; i < value->count; i++)
    hash_value(h, &value->items[i]);
}

/* Numbers for an input: NULL after an error. */
static void *make_input(const cyto_port *port, uint32_t *random) {
  int64_t bytes = cyto_tensor_bytes(port->dtype, port->rank, port->dims), size = cyto_dtype_bits(port->dtype) / 8;
  uint8_t *data = bytes > 0 && size ? calloc((size_t)bytes, 1) : NULL;
  for (int64_t at = 0; data && at < bytes; at += size) {
    *random = *random * 1664525 + 1013904223;
    float number = (float)(*random >> 8) / (float)(1 << 24);
    if (port->dtype == CYTO_F32)
      memcpy(data + at, &number, sizeof number);
    else
      data[at] = number > 0.5f; /* little endian */
  }
  return data;
}

static int bind_inputs(cyto_context *context, const cyto_model *model, int seed, void *inputs[MAX_INPUTS],
                       cyto_error *error) {
  uint32_t random = (uint32_t)seed * 77777 + 1;
  for (int32_t i = 0; i < cyto_model_input_count(model) && i < MAX_INPUTS; i++) {
    cyto_port port;
    if (cyto_model_input(model, i, &port) || !(inputs[i] = make_input(&port, &random)) ||
        cyto_bind_input(context, i, port.dtype, port.rank, port.dims, inputs[i], error))
      return 0;
  }
  return 1;
}

static void serial(void *user, int64_t n, cyto_task task, void *data) {
  (void)user;
  for (int64_t i = 0; i < n; i++)
    task(data, i);
}

/* Makes a context and runs it; the hash of all outputs of every run must be `expected`, or is put there where it is 0. */
static void run_context(const worker *w, cyto_model *model, int rounds, uint64_t *expected) {
  cyto_error error = {0};
  cyto_options options = {.threads = 1 + w->seed % 3, .parallel = w->seed % 5 == 4 ? serial : NULL};
  cyto_context *context = NULL;
  void *inputs[MAX_INPUTS] = {NULL};
  int good =
      !cyto_context_create(model, &options, &context, &error) && bind_inputs(context, model, w->seed, inputs, &error);
  if (!good)
    fail(w, "no context", &error);
  for (int round = 0; good && round < rounds; round++) {
    uint64_t h = 0xcbf29ce484222325u;
    good = !cyto_run(context, &error);
    for (int32_t i = 0; good && i < cyto_model_output_count(model); i++) {
      cyto_value value;
      good = !cyto_output_value(context, i, &value, &error);
      if (good)
        hash_value(&h, &value);
    }
    if (!good)
      fail(w, "a run failed", &error);
    else if (!*expected)
      *expected = h;
    else if (*expected != h)
      fail(w, "other outputs than of a run alone", NULL);
  }
  cyto_context_destroy(context);
  for (int i = 0; i < MAX_INPUTS; i++)
    free(inputs[i]);
}

static void *work(void *data) {
  worker *w = data;
  for (int round = 0; round < w->rounds; round += ROUNDS_PER_CONTEXT) {
    cyto_model *model = w->shared;
    cyto_error error;
    if (!model && cyto_model_load(w->library, &model, &error)) {
      fail(w, "not loaded", &error);
      break;
    }
    run_context(w, model, ROUNDS_PER_CONTEXT, &w->expected);
    if (!w->shared)
      cyto_model_unload(model);
  }
  return NULL;
}

enum { FIRST_LIBRARY = 3 };

int main(int argc, char **argv) {
  int n = argc > FIRST_LIBRARY ? argc - FIRST_LIBRARY : 0, started = 0;
  char **libraries = argv + FIRST_LIBRARY;
  worker *workers = calloc((size_t)n * THREADS_PER_MODEL + 1, sizeof *workers);
  cyto_model **models = calloc((size_t)n + 1, sizeof *models);
  pthread_t *threads = calloc((size_t)n * THREADS_PER_MODEL + 1, sizeof *threads);
  pthread_attr_t attributes;
  if (!n || !workers || !models || !threads || pthread_attr_init(&attributes))
    return 2;
  size_t stack = (size_t)atoi(argv[2]) << 10;
  if (stack && pthread_attr_setstacksize(&attributes, stack))
    return 2;
  for (int i = 0; i < n; i++) {
    cyto_error error;
    if (cyto_model_load(libraries[i], &models[i], &error)) {
      fprintf(stderr, "%s\n", error.message);
      return 1;
    }
  }
  for (int i = 0; i < n * THREADS_PER_MODEL; i++) {
    workers[i] = (worker){.library = libraries[i % n], .rounds = atoi(argv[1]), .seed = i};
    run_context(&workers[i], models[i % n], 1, &workers[i].expected);
    workers[i].shared = i % 2 ? models[i % n] : NULL;
  }
  for (int i = 0; i < n * THREADS_PER_MODEL; i++)
    started += !pthread_create(&threads[i], &attributes, work, &workers[i]);
  for (int i = 0; i < started; i++)
    pthread_join(threads[i], NULL);
  pthread_attr_destroy(&attributes);
  if (started < n * THREADS_PER_MODEL)
    fprintf(stderr, "only %d threads started\n", started);
  for (int i = 0; i < n; i++)
    cyto_model_unload(models[i]);
  free(workers);
  free(models);
  free(threads);
  return atomic_load(&failures) || started < n * THREADS_PER_MODEL;
}
