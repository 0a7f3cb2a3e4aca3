/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* batch_axis.c - can a model's batch be cut into rows, and results be put together again?
 *
 * The batch is the first axis of the first input, `lead`. Whether a row's results depend on other rows is not asked: a
 * model that is given batches has rows that do not.
 */
#include "cyrt.h"

#include <string.h>

int cyrt_batch_has(const cyto_port *lead, const cyto_port *port) {
  if (!port->rank || !lead->rank || port->dims[0] != lead->dims[0])
    return 0;
  return port->dims[0] >= 0 || !strcmp(port->dim_names[0], lead->dim_names[0]);
}

static int is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Does the size's text ("2*seq+1") have the symbol? */
static int mentions(const char *text, const char *symbol) {
  size_t n = strlen(symbol);
  for (const char *at = text; n && (at = strstr(at, symbol)); at += n)
    if ((at == text || !is_letter(at[-1])) && !is_letter(at[n]))
      return 1;
  return 0;
}

const char *cyrt_batch_fault(const cyto_port *lead, const cyto_port *port, int is_output) {
  if (!port->dtype || port->dtype == CYTO_STRING)
    return "is no tensor of numbers";
  if (cyto_dtype_bits(port->dtype) < 8)
    return "has elements smaller than a byte";
  if (is_output && port->is_dynamic)
    return "has a size that depends on data";
  if (is_output && !cyrt_batch_has(lead, port))
    return "lacks the batch axis of the first input";
  for (int32_t k = 0; k < port->rank && lead->rank; k++)
    if (lead->dims[0] < 0 && mentions(port->dim_names[k], lead->dim_names[0]) && (k || !cyrt_batch_has(lead, port)))
      return "has the batch's size on another axis";
  return NULL;
}
