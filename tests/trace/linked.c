/* SPDX-License-Identifier: Apache-2.0 */
/* linked.c - records a model that is linked into the program: linked OUT.json. Prints the sums of its steps' runs. */
#include "cyto.h"

#include <stdio.h>
#include <stdlib.h>

const cyrt_model *net_model(void);

int main(int argc, char **argv) {
  cyto_model *model = NULL;
  cyto_context *context = NULL;
  cyto_error error = {0};
  cyto_trace_sums sums;
  int64_t dims[CYTO_MAX_RANK], runs = 0;
  cyto_port port;
  if (argc != 2 || cyto_model_from_linked(net_model(), &model, &error) || cyto_trace_start(model, 0, &error) ||
      cyto_context_create(model, NULL, &context, &error) || cyto_model_input(model, 0, &port))
    goto failed;
  for (int32_t i = 0; i < port.rank; i++)
    dims[i] = port.dims[i];
  float *data = calloc((size_t)cyto_tensor_bytes(port.dtype, port.rank, dims), 1);
  if (cyto_bind_input(context, 0, port.dtype, port.rank, dims, data, &error) || cyto_run(context, &error) ||
      cyto_run(context, &error) || cyto_trace_stop(model, &error) || cyto_trace_write(model, argv[1], &error))
    goto failed;
  for (int64_t i = 0; i < cyto_trace_step_count(model); i++)
    if (!cyto_trace_step(model, i, &sums))
      runs += sums.runs + sums.first_runs;
  printf("%lld\n", (long long)runs);
  cyto_context_destroy(context);
  cyto_model_unload(model);
  free(data);
  return 0;
failed:
  fprintf(stderr, "%s\n", error.message);
  return 1;
}
