/* SPDX-License-Identifier: Apache-2.0 */
/* frontend.h - ONNX file in, graph IR out.
 *
 * One call reads a model, checks it and rebuilds it from the IR's primitives. Tensor data is not copied: the file (and
 * any external data file) stays mapped for as long as the graph lives. Everything wrong with the model becomes a
 * diagnostic with its place; then the result is NULL. Declared shapes of outputs and intermediate values are never
 * trusted.
 */
#ifndef CY_FRONTEND_H
#define CY_FRONTEND_H

#include "ir/ir.h"

enum { CY_EXTERNAL_WHY = 5000 }; /* room for a text with a path in it */

/* External data by somebody who knows it: `length` bytes from `offset` of what the model calls `location`, which live as
 * long as the graph; NULL with a text in `why`. */
typedef const void *cy_ask_external(void *ctx, const char *location, uint64_t offset, uint64_t length,
                                    char why[CY_EXTERNAL_WHY]);

typedef struct cy_import_options {
  const char *const *dims; /* "batch=4": fixes a symbolic dimension; "*=1": all that are not named otherwise */
  uint32_t ndims;
  const char *const *shapes; /* "input=1x3x224x224": a whole input; "?" leaves a dimension as the model declares it */
  uint32_t nshapes;
  const char *folder; /* of external data; NULL: the file's, or what `name` says */
  cy_ask_external *ask; /* NULL: files in that folder */
  void *ask_ctx;
  bool strict; /* round where the reference does, also where keeping more digits is as fast */
  bool unchecked; /* indices are not looked at before they are used: what is out of range counts as the nearest one */
} cy_import_options;

/* `o` may be NULL. NULL after diagnostics. */
cy_graph *cy_import_file(const char *path, const cy_import_options *o, cy_diag_sink *diag);

/* The same from memory, which must outlive the graph. `name` stands for the file in diagnostics; external data is
 * looked for in its folder only when it contains a '/'. */
cy_graph *cy_import_memory(const void *bytes, size_t size, const char *name, const cy_import_options *o,
                           cy_diag_sink *diag);

#endif
