/* SPDX-License-Identifier: Apache-2.0 */
/* run_steps.c - steps of a model whose caches grow, kept by the context and not: both must give the same bytes.
 *
 * In:  run_steps LIBRARY ROOM THREADS NAME=SIZE,.. STEP..: a library with outputs that continue inputs. A step is a number of
 *      new rows; rN goes back to N rows; b binds what there is to the inputs anew; xN runs N steps of one row and prints the
 *      median time of both. Sizes: `past` is how many rows there are, `new` how many come, `total` both; others are given.
 *      Inputs are made here: floats between -1 and 1, integers from 0 to 7, 1 in those that are called a mask.
 * Out: lines about what differed, and exit code 1 then, or after any error; the times.
 * One context is given what it left as its next inputs, as an application does that knows nothing of caches.
 */
#define _GNU_SOURCE
#include "cyto.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_PORTS = 512, MAX_STEPS = 4096 };

typedef struct steps {
  cyto_model *model;
  cyto_context *kept, *given;
  const char *sizes;
  int32_t inputs, outputs;
  int64_t past, longer; /* before and after a step */
  uint32_t random;
  void *data[MAX_PORTS];        /* of inputs */
  cyto_tensor cache[MAX_PORTS]; /* of inputs that outputs continue: as `given` left them */
  int32_t continued[MAX_PORTS]; /* [input]: the output that continues it, or -1 */
  double kept_ms[MAX_STEPS], given_ms[MAX_STEPS];
  int timed;
} steps;

static int fail(const char *what, const cyto_error *error) {
  fprintf(stderr, "run_steps: %s%s%s\n", what, error ? ": " : "", error ? error->message : "");
  return 1;
}

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* ---- inputs ---- */

static int64_t size_of(const steps *s, const char *name, int64_t fresh) {
  size_t length = strlen(name);
  if (!strcmp(name, "past"))
    return s->past;
  if (!strcmp(name, "new"))
    return fresh;
  if (!strcmp(name, "total"))
    return s->past + fresh;
  for (const char *at = s->sizes; (at = strstr(at, name)); at++)
    if (at[length] == '=' && (at == s->sizes || at[-1] == ','))
      return atoll(at + length + 1);
  return -1;
}

static void set_element(uint8_t *at, int32_t dtype, int64_t size, uint32_t random, int is_mask) {
  float number = (float)(random >> 8) / (float)(1 << 23) - 1;
  if (dtype == CYTO_F32) {
    memcpy(at, &number, sizeof number);
  } else if (dtype == CYTO_F16) { /* the same, between a half and 1, of either sign */
    uint16_t half = (uint16_t)((random >> 31) << 15 | 0x3800 | (random >> 12 & 0x3ff));
    memcpy(at, &half, sizeof half);
  } else {
    memset(at, 0, (size_t)size);
    *at = is_mask ? 1 : random >> 29; /* little endian */
  }
}

static int make_input(steps *s, int32_t i, const cyto_port *port, const int64_t *dims) {
  int64_t bytes = cyto_tensor_bytes(port->dtype, port->rank, dims), size = cyto_dtype_bits(port->dtype) / 8;
  free(s->data[i]);
  s->data[i] = calloc((size_t)bytes + 1, 1);
  for (int64_t at = 0; s->data[i] && at < bytes; at += size) {
    s->random = s->random * 1664525 + 1013904223;
    set_element((uint8_t *)s->data[i] + at, port->dtype, size, s->random, strstr(port->name, "mask") != NULL);
  }
  return !s->data[i];
}

static int bind_inputs(steps *s, int64_t fresh) {
  cyto_error error;
  for (int32_t i = 0; i < s->inputs; i++) {
    cyto_port port;
    int64_t dims[CYTO_MAX_RANK];
    cyto_model_input(s->model, i, &port);
    if (s->continued[i] >= 0 && s->cache[i].data) {
      if (cyto_bind_input(s->given, i, port.dtype, port.rank, s->cache[i].dims, s->cache[i].data, &error))
        return fail(port.name, &error);
      continue;
    }
    for (int32_t a = 0; a < port.rank; a++)
      if ((dims[a] = port.dims[a] < 0 ? size_of(s, port.dim_names[a], fresh) : port.dims[a]) < 0)
        return fail(port.dim_names[a], NULL);
    if (make_input(s, i, &port, dims) ||
        cyto_bind_input(s->given, i, port.dtype, port.rank, dims, s->data[i], &error) ||
        cyto_bind_input(s->kept, i, port.dtype, port.rank, dims, s->data[i], &error))
      return fail(port.name, &error);
  }
  return 0;
}

/* ---- a step ---- */

/* The first `rows` along an axis. */
static int take_cache(cyto_tensor *to, const cyto_tensor *from, int32_t axis, int64_t rows) {
  int64_t outer = 1, inner = cyto_dtype_bits(from->dtype) / 8, had = from->dims[axis];
  for (int32_t a = 0; a < from->rank; a++)
    *(a < axis ? &outer : &inner) *= a == axis ? 1 : from->dims[a];
  uint8_t *data = malloc((size_t)(outer * inner * rows) + 1);
  for (int64_t i = 0; data && i < outer; i++)
    memcpy(data + i * inner * rows, (const uint8_t *)from->data + i * inner * had, (size_t)(inner * rows));
  cyto_tensor taken = *from;
  taken.data = data;
  taken.dims[axis] = rows;
  free(to->data);
  *to = taken;
  return !data;
}

static int compare(steps *s, int32_t i) {
  cyto_tensor a, b;
  cyto_error error;
  cyto_port port;
  cyto_model_output(s->model, i, &port);
  if (cyto_output(s->given, i, &a, &error) || cyto_output(s->kept, i, &b, &error))
    return fail(port.name, &error);
  if (a.bytes != b.bytes || memcmp(a.dims, b.dims, (size_t)a.rank * sizeof *a.dims) ||
      memcmp(a.data, b.data, a.bytes)) {
    fprintf(stderr, "run_steps: output '%s' differs behind %lld rows\n", port.name, (long long)s->past);
    return 1;
  }
  s->longer = port.grown_input >= 0 ? a.dims[port.grown_axis] : s->longer;
  return port.grown_input >= 0 ? take_cache(&s->cache[port.grown_input], &a, port.grown_axis, a.dims[port.grown_axis])
                               : 0;
}

static int step(steps *s, int64_t fresh) {
  cyto_error error;
  if (bind_inputs(s, fresh))
    return 1;
  double start = now_ms();
  if (cyto_run(s->given, &error))
    return fail("given", &error);
  double between = now_ms();
  if (cyto_run(s->kept, &error))
    return fail("kept", &error);
  s->given_ms[s->timed % MAX_STEPS] = between - start;
  s->kept_ms[s->timed++ % MAX_STEPS] = now_ms() - between;
  for (int32_t i = 0; i < s->outputs; i++)
    if (compare(s, i))
      return 1;
  s->past = s->longer;
  return 0;
}

static int refused(cyto_status status, cyto_status wanted, const cyto_error *error, const char *text) {
  return status != wanted || !strstr(error->message, text) ? fail("wrong answer instead of a refusal", error) : 0;
}

static int rewind_to(steps *s, int64_t rows) {
  cyto_error error;
  for (int32_t i = 0; i < s->inputs; i++) {
    cyto_port port;
    if (s->continued[i] < 0)
      continue;
    cyto_model_output(s->model, s->continued[i], &port);
    if (take_cache(&s->cache[i], &s->cache[i], port.grown_axis, rows))
      return fail("no memory", NULL);
  }
  if (refused(cyto_context_rewind(s->kept, s->past + 1, &error), CYTO_INVALID_ARGUMENT, &error, "rows along axis"))
    return 1;
  s->past = rows;
  return cyto_context_rewind(s->kept, rows, &error) ? fail("rewind", &error) : 0;
}

static int bind_anew(steps *s) {
  cyto_error error;
  for (int32_t i = 0; i < s->inputs; i++)
    if (s->continued[i] >= 0 &&
        cyto_bind_input(s->kept, i, s->cache[i].dtype, s->cache[i].rank, s->cache[i].dims, s->cache[i].data, &error))
      return fail("bind", &error);
  return 0;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int timed_steps(steps *s, int n) {
  s->timed = 0;
  for (int i = 0; i < n; i++)
    if (step(s, 1))
      return 1;
  int count = n < MAX_STEPS ? n : MAX_STEPS;
  qsort(s->kept_ms, (size_t)count, sizeof *s->kept_ms, by_value);
  qsort(s->given_ms, (size_t)count, sizeof *s->given_ms, by_value);
  printf("behind %lld rows: kept %.3f ms, given %.3f ms\n", (long long)s->past, s->kept_ms[count / 2],
         s->given_ms[count / 2]);
  return 0;
}

/* What is no use of kept outputs. */
static int check_refusals(const steps *s) {
  cyto_error error;
  cyto_port port;
  _Alignas(64) float memory[16] = {0};
  int32_t i = 0;
  while (!cyto_model_output(s->model, i, &port) && port.grown_input < 0)
    i++;
  if (refused(cyto_context_keep(s->given, -1, &error), CYTO_INVALID_ARGUMENT, &error, "room for -1") ||
      refused(cyto_context_rewind(s->given, 0, &error), CYTO_INVALID_ARGUMENT, &error, "nothing is kept") ||
      refused(cyto_bind_output(s->kept, i, memory, sizeof memory, &error), CYTO_INVALID_ARGUMENT, &error, "is kept") ||
      cyto_bind_output(s->given, i, memory, sizeof memory, &error) ||
      refused(cyto_context_keep(s->given, 4, &error), CYTO_INVALID_ARGUMENT, &error, "is bound") ||
      cyto_bind_output(s->given, i, NULL, 0, &error) || cyto_context_keep(s->given, 4, &error) ||
      refused(cyto_run(s->given, &error), CYTO_INVALID_ARGUMENT, &error, "is not bound"))
    return 1;
  return cyto_context_keep(s->given, 0, &error) ? fail("keep 0", &error) : 0;
}

static int open_model(steps *s, const char *library, int64_t room, int32_t threads) {
  cyto_error error;
  cyto_options options = {.threads = threads};
  if (cyto_model_load(library, &s->model, &error) || cyto_context_create(s->model, &options, &s->kept, &error) ||
      cyto_context_create(s->model, &options, &s->given, &error) || cyto_context_keep(s->kept, room, &error))
    return fail(library, &error);
  if (check_refusals(s))
    return 1;
  s->inputs = cyto_model_input_count(s->model);
  s->outputs = cyto_model_output_count(s->model);
  if (s->inputs > MAX_PORTS || s->outputs > MAX_PORTS)
    return fail("too many inputs or outputs", NULL);
  memset(s->continued, -1, sizeof s->continued);
  for (int32_t i = 0; i < s->outputs; i++) {
    cyto_port port;
    cyto_model_output(s->model, i, &port);
    if (port.grown_input >= 0)
      s->continued[port.grown_input] = i;
  }
  return 0;
}

int main(int argc, char **argv) {
  if (argc < 6)
    return fail("usage: run_steps LIBRARY ROOM THREADS NAME=SIZE,.. STEP..", NULL);
  steps *s = calloc(1, sizeof *s);
  if (!s || open_model(s, argv[1], atoll(argv[2]), atoi(argv[3])))
    return 1;
  s->sizes = argv[4];
  int bad = 0;
  for (int i = 5; i < argc && !bad; i++) {
    const char *what = argv[i];
    bad = *what == 'r'   ? rewind_to(s, atoll(what + 1))
          : *what == 'b' ? bind_anew(s)
          : *what == 'x' ? timed_steps(s, atoi(what + 1))
                         : step(s, atoll(what));
  }
  cyto_context_destroy(s->kept);
  cyto_context_destroy(s->given);
  cyto_model_unload(s->model);
  for (int32_t i = 0; i < s->inputs; i++) {
    free(s->data[i]);
    free(s->cache[i].data);
  }
  free(s);
  return bad;
}
