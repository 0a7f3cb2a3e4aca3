/* SPDX-License-Identifier: Apache-2.0 */
/* lower.h - from the tensor graph to a program of kernels and host steps. */
#ifndef CY_LOWER_H
#define CY_LOWER_H

#include "ir/loop/loop.h"

typedef struct cy_lower_options {
  int level; /* 0: eager. Contractions are plain loop nests, so that -O0 is an opinion of its own; > 0: the target's
                generators */
  /* Does the target have a generator for this contraction kernel? (level > 0; NULL: for none.) */
  bool (*supports)(const void *target, cy_kernel *k);
  const void *target;
  bool cuts_rows; /* cy_target.cuts_rows */
  bool planar;    /* Does it have generators of convolutions that are planar (cy_contraction)? */
  int64_t busy_parts; /* see cy_pass_options: softmax of long rows takes as many tasks as are useful; 0: a task each */
  bool grows;     /* May outputs lie where the inputs are that they continue (lower_grow.c)? */
  bool searches;  /* Are top-k and the like kernels, not calls of the runtime, which only reaches the host's memory? */
  bool late_checks; /* Do kernels check indices, and the run tells when it ends (lower_checks.c)? */
  int64_t few_rows;     /* cy_target.few_rows */
  int64_t few_queries;  /* cy_target.few_queries */
  int64_t tile_columns; /* see cy_machine_tile_columns */
  bool verify; /* checks the program; what is wrong with it ends the process as a bug */
} cy_lower_options;

/* NULL after diagnostics. The program lives in the graph's arena. Memory is not planned yet (cy_plan_memory). */
cy_program *cy_lower(cy_graph *g, const cy_lower_options *o);

#endif
