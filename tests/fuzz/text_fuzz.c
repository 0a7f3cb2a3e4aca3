/* SPDX-License-Identifier: Apache-2.0 */
/* text_fuzz.c - libFuzzer target for the parser of text graphs: any bytes must give a graph or diagnostics.
 *
 * `make fuzz` builds it with the address and undefined-behaviour sanitizers and runs it for FUZZ_SECONDS.
 */
#include "ir/ir.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  cy_diag_sink *diag = cy_diag_create();
  char *text = malloc(size + 1); /* its own allocation, so that reading past the end is seen */
  if (!text)
    return 0;
  memcpy(text, data, size);
  text[size] = 0;
  cy_graph *g = cy_graph_parse(text, size, "fuzz.txt", diag);
  if (!g && !cy_diag_errors(diag))
    cy_bug("no graph and no diagnostic");
  if (g)
    cy_graph_destroy(g);
  cy_diag_destroy(diag);
  free(text);
  return 0;
}
