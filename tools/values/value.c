/* SPDX-License-Identifier: Apache-2.0 */
/* value.c - values of every kind in memory: see value_file.h. */
#include "value_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int host_value_items(cyto_value *value, uint64_t count, char error[TENSOR_ERROR_SIZE]) {
  value->items = calloc(count + 1, sizeof *value->items);
  value->count = value->items ? count : 0;
  if (!value->items)
    snprintf(error, TENSOR_ERROR_SIZE, "no memory for the elements of a value");
  return value->items ? 0 : -1;
}

void host_value_take(cyto_value *value, const host_tensor *tensor) {
  *value = (cyto_value){.kind = CYTO_TENSOR};
  value->tensor =
      (cyto_tensor){.data = tensor->data, .bytes = tensor->bytes, .dtype = tensor->dtype, .rank = tensor->rank};
  memcpy(value->tensor.dims, tensor->dims, sizeof value->tensor.dims);
}

void host_value_free(cyto_value *value) {
  for (uint64_t i = 0; i < value->count; i++)
    host_value_free((cyto_value *)&value->items[i]);
  free((void *)value->items);
  free(value->tensor.data);
  memset(value, 0, sizeof *value);
}

void type_text(const cyto_type *type, char *out_text, size_t size) {
  static const char *const names[] = {"", "seq(", "optional(", "map("};
  char inner[160] = "";
  if (type->of)
    type_text(type->of, inner, sizeof inner);
  if (type->kind == CYTO_TENSOR)
    snprintf(out_text, size, "%s", cyto_dtype_name(type->dtype));
  else if (type->kind == CYTO_MAP)
    snprintf(out_text, size, "map(%s,%s)", cyto_dtype_name(type->dtype), inner);
  else
    snprintf(out_text, size, "%s%s)", names[type->kind], inner);
}
