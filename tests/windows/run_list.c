/* SPDX-License-Identifier: Apache-2.0 */
/* run_list.c - runs many models in one process: starting one takes a second where programs for Windows are emulated.
 *
 * In:  run_list LIST: a file with a run per line, tab-separated: library, folder of in_K_NAME.npy, folder for the outputs,
 *      threads, how often. "-" for a folder of inputs fills them with numbers made here.
 * Out: in a run's folder out_K.npy for every output, for strings out_K.txt with one a line; on stdout a line for each run:
 *      "ok" and the fastest time in microseconds, or the error's number and text.
 *
 * The same source, compiled for Linux and for Windows, whose results are then compared.
 */
#include "tools/values/tensor_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef _WIN32
#include <windows.h>
#else
#include <time.h>
#endif

enum { MAX_INPUTS = 128, PATH = 1200, SIZE_OF_UNKNOWN = 2 };

static cyto_error error;

static double now_us(void) {
#ifdef _WIN32
  LARGE_INTEGER now, rate;
  QueryPerformanceCounter(&now);
  QueryPerformanceFrequency(&rate);
  return (double)now.QuadPart * 1e6 / (double)rate.QuadPart;
#else
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
#endif
}

static int failed(const char *text) {
  error.code = CYTO_INVALID_ARGUMENT;
  snprintf(error.message, sizeof error.message, "%.900s", text);
  return -1;
}

static int input_read(const char *folder, const cyto_port *port, int k, host_tensor *t) {
  char name[200], path[PATH], text[TENSOR_ERROR_SIZE];
  uint64_t seed = (uint64_t)k + 1;
  if (strcmp(folder, "-")) {
    file_name_of(port->name, name, sizeof name);
    snprintf(path, sizeof path, "%s/in_%d_%s.npy", folder, k, name);
    return npy_read(path, t, text) || host_tensor_adapt(t, port->dtype, text) ? failed(text) : 0;
  }
  *t = (host_tensor){.dtype = port->dtype, .rank = port->rank};
  for (int32_t i = 0; i < port->rank; i++)
    t->dims[i] = port->dims[i] < 0 ? SIZE_OF_UNKNOWN : port->dims[i];
  if (host_tensor_alloc(t, text))
    return failed(text);
  host_tensor_randomize(t, &seed);
  return 0;
}

static int output_write(cyto_context *context, int k, const char *folder) {
  char path[PATH], text[TENSOR_ERROR_SIZE];
  cyto_tensor out;
  if (cyto_output(context, k, &out, &error))
    return -1;
  host_tensor t = {.dtype = out.dtype, .rank = out.rank, .data = out.data, .bytes = (size_t)out.bytes};
  memcpy(t.dims, out.dims, sizeof t.dims);
  snprintf(path, sizeof path, "%s/out_%d.%s", folder, k, out.dtype == CYTO_STRING ? "txt" : "npy");
  if (out.dtype != CYTO_STRING)
    return npy_write(path, &t, text) ? failed(text) : 0;
  FILE *f = fopen(path, "wb");
  for (int64_t i = 0; f && i < host_tensor_count(&t); i++)
    fprintf(f, "%s\n", ((const cyto_string *)out.data)[i].text);
  return f && !fclose(f) ? 0 : failed(path);
}

static int run_context(cyto_model *model, cyto_context *context, host_tensor *inputs, char **field, double *best) {
  int32_t n = cyto_model_input_count(model);
  cyto_port port;
  for (int32_t k = 0; k < n && k < MAX_INPUTS; k++) {
    if (cyto_model_input(model, k, &port))
      return failed("no such input");
    host_tensor *t = &inputs[k];
    if (input_read(field[1], &port, k, t)) {
      if (port.is_optional)
        continue;
      return -1;
    }
    if (cyto_bind_input(context, k, t->dtype, t->rank, t->dims, t->data, &error))
      return -1;
  }
  for (int round = 0; round < atoi(field[4]); round++) {
    double start = now_us();
    if (cyto_run(context, &error))
      return -1;
    double took = now_us() - start;
    *best = round && *best < took ? *best : took;
  }
  for (int32_t k = 0; k < cyto_model_output_count(model); k++)
    if (output_write(context, k, field[2]))
      return -1;
  return 0;
}

static int run_line(char **field, double *best) {
  host_tensor inputs[MAX_INPUTS] = {0};
  cyto_options options = {.threads = atoi(field[3])};
  cyto_context *context = NULL;
  cyto_model *model;
  error.code = 0;
  if (cyto_model_load(field[0], &model, &error))
    return -1;
  int status =
      cyto_context_create(model, &options, &context, &error) || run_context(model, context, inputs, field, best);
  cyto_context_destroy(context);
  cyto_model_unload(model);
  for (int k = 0; k < MAX_INPUTS; k++)
    host_tensor_free(&inputs[k]);
  return status;
}

int main(int argc, char **argv) {
  char line[4 * PATH];
  FILE *list = argc == 2 ? fopen(argv[1], "r") : NULL;
  if (!list)
    return fprintf(stderr, "usage: run_list LIST\n"), 2;
  while (fgets(line, sizeof line, list)) {
    char *field[5], *at = line;
    double best = 0;
    line[strcspn(line, "\n")] = 0;
    for (int i = 0; i < 5; i++, at += strlen(at) + (i < 5)) {
      field[i] = at;
      at[strcspn(at, "\t")] = 0;
    }
    if (run_line(field, &best))
      printf("%d %s\n", (int)error.code, error.message);
    else
      printf("ok %.0f\n", best);
    fflush(stdout);
  }
  fclose(list);
  return 0;
}
