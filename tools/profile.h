/* SPDX-License-Identifier: Apache-2.0 */
/* profile.h - the table of cyto-run --profile. */
#ifndef CY_TOOLS_PROFILE_H
#define CY_TOOLS_PROFILE_H

#include "runtime/cyto.h"

typedef struct profile {
  const cyto_model *model; /* whose recording is over */
  int64_t n;
} profile;

/* Step i: how often it ran behind the first run and the nanoseconds of that; where there was no other run, of the first
 * one. */
void profile_step(const profile *p, int64_t i, cyto_trace_sums *out, int64_t *out_runs, int64_t *out_ns);
/* Prints a row per step, beside the floors for `threads` cores (0: one), and the mean sum of `runs` runs behind the first
 * one (0: of the first one). */
void profile_print(const profile *p, int threads, long runs);

#endif
