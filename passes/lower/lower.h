/* SPDX-License-Identifier: Apache-2.0 */
/* lower.h - from the tensor graph to a program of kernels and host steps. */
#ifndef CY_LOWER_H
#define CY_LOWER_H

#include "ir/loop/loop.h"
#include "ir/target_caps.h"

typedef struct cy_lower_options {
  int level; /* 0: eager. Contractions are plain loop nests, so that -O0 is an opinion of its own; > 0: the target's
                generators */
  const cy_target_caps *caps; /* the target's; NULL: plain kernels only */
  bool verify;                /* checks the program; what is wrong with it ends the process as a bug */
} cy_lower_options;

/* NULL after diagnostics. The program lives in the graph's arena. Memory is not planned yet (cy_plan_memory). */
cy_program *cy_lower(cy_graph *g, const cy_lower_options *o);

#endif
