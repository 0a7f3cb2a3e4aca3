/* SPDX-License-Identifier: Apache-2.0 */
/* import_fuzz.c - libFuzzer target for the importer: any bytes as a model must give a graph or diagnostics.
 *
 * `make fuzz` builds it with the address and undefined-behaviour sanitizers and runs it for FUZZ_SECONDS.
 */
#include "frontend/frontend.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  cy_diag_sink *diag = cy_diag_create();
  cy_graph *g = cy_import_memory(data, size, "fuzz.onnx", NULL, diag);
  if (!g && !cy_diag_errors(diag))
    cy_bug("no graph and no diagnostic");
  if (g)
    cy_graph_destroy(g);
  cy_diag_destroy(diag);
  return 0;
}
