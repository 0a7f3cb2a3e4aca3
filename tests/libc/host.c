/* SPDX-License-Identifier: Apache-2.0 */
/* host.c - an application on another C library than the one that cytoc was built with, or with other habits.
 *
 *   host LIBRARY [odd]    opens a model by path; with -DLINKED=NAME: runs the model NAME that is linked in
 *
 * In:  models whose inputs and outputs are f32 tensors, dynamic sizes taken as 2. odd: setlocale() must have found a locale
 *      in which 1.5 is written otherwise.
 * Out: the bits of all outputs; exit code 1 and a line on stderr after an error.
 */
#include "cyto.h"

#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef LINKED
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
const cyrt_model *JOIN(LINKED, _model)(void);
#endif

#ifndef LOCALE
#define LOCALE "" /* the environment's */
#endif

enum { MAX_INPUTS = 8 };

static cyto_error error;
static float *inputs[MAX_INPUTS];

static int failed(const char *what) {
  fprintf(stderr, "host: %s\n", what);
  return 1;
}

static int bind_input(cyto_context *context, int32_t index, const cyto_port *port) {
  int64_t dims[CYTO_MAX_RANK], n = 1;
  for (int32_t k = 0; k < port->rank; k++)
    n *= dims[k] = port->dims[k] < 0 ? 2 : port->dims[k];
  float *data = inputs[index] = malloc((size_t)n * sizeof *data);
  for (int64_t i = 0; data && i < n; i++)
    data[i] = (float)(i * 7 % 31) / 8 - 1;
  return !data || cyto_bind_input(context, index, CYTO_F32, port->rank, dims, data, &error);
}

static int run(cyto_model *model) {
  cyto_options options = {.threads = 2};
  cyto_context *context;
  cyto_port port;
  cyto_tensor out;
  if (cyto_context_create(model, &options, &context, &error))
    return failed(error.message);
  for (int32_t i = 0; i < cyto_model_input_count(model) && i < MAX_INPUTS; i++)
    if (cyto_model_input(model, i, &port) || bind_input(context, i, &port))
      return failed(error.message);
  for (int round = 0; round < 3; round++)
    if (cyto_run(context, &error))
      return failed(error.message);
  for (int32_t i = 0; i < cyto_model_output_count(model); i++) {
    if (cyto_output(context, i, &out, &error))
      return failed(error.message);
    for (uint64_t k = 0; k < out.bytes / sizeof(uint32_t); k++)
      printf("%08" PRIx32 "\n", ((const uint32_t *)out.data)[k]);
  }
  cyto_context_destroy(context);
  for (int i = 0; i < MAX_INPUTS; i++)
    free(inputs[i]);
  return 0;
}

int main(int argc, char **argv) {
  char text[16];
  cyto_model *model;
  setlocale(LC_ALL, LOCALE);
  snprintf(text, sizeof text, "%g", 1.5);
  if (argc > 2 && !strcmp(text, "1.5"))
    return failed("numbers look as in C");
#ifdef LINKED
  (void)argv;
  if (cyto_model_from_linked(JOIN(LINKED, _model)(), &model, &error))
#else
  if (cyto_model_load(argv[1], &model, &error))
#endif
    return failed(error.message);
  int status = run(model);
  cyto_model_unload(model);
  return status;
}
