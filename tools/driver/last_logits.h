/* SPDX-License-Identifier: Apache-2.0 */
/* last_logits.h - the option --last-logits. */
#ifndef CYTOC_LAST_LOGITS_H
#define CYTOC_LAST_LOGITS_H

#include "ir/ir.h"

/* Of output `name` keeps the last position: the last element along its last axis but one. 0, or -1 after a diagnostic. */
int cytoc_last_logits(cy_graph *g, const char *name);

#endif
