/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - loads any compiled model at run time, shows its inputs and outputs, runs it on zeros of the smallest shape.
 *
 *   cytoc model.onnx -o model.so
 *   cc main.c libcyto.a -lm -lpthread -ldl
 */
#include "cyto.h"

#include <stdio.h>
#include <stdlib.h>

static int fail(const cyto_error *error) {
  fprintf(stderr, "loaded: %s\n", error->message);
  return 1;
}

static void print_port(const char *kind, const cyto_port *p) {
  printf("%s '%s': %s [", kind, p->name, cyto_dtype_name(p->dtype));
  for (int32_t i = 0; i < p->rank; i++) {
    if (p->dims[i] >= 0)
      printf("%s%lld", i ? ", " : "", (long long)p->dims[i]);
    else
      printf("%s%s", i ? ", " : "", *p->dim_names[i] ? p->dim_names[i] : "?");
  }
  printf("]\n");
}

int main(int argc, char **argv) {
  cyto_error error = {0};
  cyto_model *model;
  cyto_context *context;
  if (argc != 2) {
    fprintf(stderr, "usage: loaded MODEL.so\n");
    return 1;
  }
  if (cyto_model_load(argv[1], &model, &error)) return fail(&error);
  if (cyto_context_create(model, NULL, &context, &error)) return fail(&error);
  void *zeros[64] = {0};
  for (int32_t i = 0; i < cyto_model_input_count(model) && i < 64; i++) {
    cyto_port port;
    int64_t dims[CYTO_MAX_RANK];
    cyto_model_input(model, i, &port);
    print_port("input ", &port);
    for (int32_t k = 0; k < port.rank; k++) dims[k] = port.dims[k] >= 0 ? port.dims[k] : 1;
    zeros[i] = calloc(1, (size_t)cyto_tensor_bytes(port.dtype, port.rank, dims) + 1);
    if (cyto_bind_input(context, i, port.dtype, port.rank, dims, zeros[i], &error)) return fail(&error);
  }
  if (cyto_run(context, &error)) return fail(&error);
  for (int32_t i = 0; i < cyto_model_output_count(model); i++) {
    cyto_port port;
    cyto_tensor tensor;
    cyto_model_output(model, i, &port);
    print_port("output", &port);
    if (cyto_output(context, i, &tensor, &error)) return fail(&error);
    if (tensor.dtype == CYTO_F32) printf("  first element %g\n", ((const float *)tensor.data)[0]);
  }
  cyto_context_destroy(context);
  cyto_model_unload(model);
  for (int i = 0; i < 64; i++) free(zeros[i]);
  return 0;
}
