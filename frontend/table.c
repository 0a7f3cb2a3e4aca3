/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - onnx_ops.def as a table: which importer serves an op of a domain at an opset version. */
#include "frontend/import_int.h"

#include <string.h>

#define AI ""
#define MS "com.microsoft"
#define ML "ai.onnx.ml"
#define PREVIEW "ai.onnx.preview"
#define TRAINING "ai.onnx.preview.training"

static const cy_onnx_row rows[] = {
#define ONNX_OP(domain, op, since, need, fn, arg) {domain, op, since, need, cy_import_##fn, arg},
#include "frontend/onnx_ops.def"
#undef ONNX_OP
};

#define NROWS (sizeof rows / sizeof rows[0])

bool cy_onnx_knows_domain(const char *domain) {
  for (size_t i = 0; i < NROWS; i++)
    if (strcmp(rows[i].domain, domain) == 0)
      return true;
  return false;
}

/* The newest row not above `version`; an op that is younger than the model's opset is taken at its oldest (models
 * saved by tools that mix versions exist, and other runtimes run them). */
const cy_onnx_row *cy_onnx_find(const char *domain, const char *op, int version) {
  const cy_onnx_row *best = NULL, *oldest = NULL;
  for (size_t i = 0; i < NROWS; i++) {
    if (strcmp(rows[i].op, op) != 0 || strcmp(rows[i].domain, domain) != 0)
      continue;
    if (rows[i].since <= version && (!best || rows[i].since > best->since))
      best = &rows[i];
    if (!oldest || rows[i].since < oldest->since)
      oldest = &rows[i];
  }
  return best ? best : oldest;
}
