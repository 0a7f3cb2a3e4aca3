/* SPDX-License-Identifier: Apache-2.0 */
/* profile.h - the table of cyto-run --profile. */
#ifndef CY_TOOLS_PROFILE_H
#define CY_TOOLS_PROFILE_H

#include "runtime/cyto_abi.h"

typedef struct profile {
  cyrt_profile_row *const *rows; /* of the library, which go on counting */
  int64_t n;
  double rate;             /* cycles a second of a core */
  cyrt_profile_row *first; /* [n] what they said behind the first run, which is cold */
} profile;

/* Behind the first run: reads the counters of the loaded library. 0, or -1 when it has none or there is no memory. */
int profile_begin(const char *library, profile *out);
/* Launch i: how often it ran behind the first run and the nanoseconds of that; where there was no other run, of the first
 * one. */
void profile_launch(const profile *p, int64_t i, int64_t *out_runs, int64_t *out_ns);
/* Prints a row per launch, beside the floors for `threads` cores (0: one), and the mean sum of `runs` runs behind the
 * first one (0: of the first one). */
void profile_print(const profile *p, int threads, long runs);
void profile_end(profile *p);

#endif
