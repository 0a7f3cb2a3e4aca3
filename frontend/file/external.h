/* SPDX-License-Identifier: Apache-2.0 */
/* external.h - tensor data that a model keeps in other files, for the importer and for tools that edit models. */
#ifndef CY_EXTERNAL_H
#define CY_EXTERNAL_H

#include "frontend/frontend.h"
#include "onnx.pb-c.h"

#include <stdint.h>

typedef struct cy_externals cy_externals; /* the open files of one model; one thread at a time */

/* folder: the model's own, outside of which nothing is opened; copied; NULL: it has none, and every look-up fails.
 * ask: gives the data in place of files; NULL: nobody. */
cy_externals *cy_externals_create(const char *folder, cy_ask_external *ask, void *ask_ctx);
/* The model is imported once more: what could not be opened is reported again. */
void cy_externals_retry(cy_externals *x);
/* Pointers into the files end here. Takes void * to be a release function of cy_graph_own(). */
void cy_externals_destroy(void *externals);
/* The data of t, which needs `bytes` bytes by its shape and type; NULL with a text in `why`, which is empty where the same
 * file could not be opened for a tensor before. */
const void *cy_externals_find(cy_externals *x, const Onnx__TensorProto *t, uint64_t bytes, char why[CY_EXTERNAL_WHY]);

#endif
