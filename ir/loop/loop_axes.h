/* SPDX-License-Identifier: Apache-2.0 */
/* loop_axes.h - what the statements of a kernel do along its variables; for loop_axes.c, loop_schedule.c and
 * loop_fold.c. */
#ifndef CY_LOOP_AXES_H
#define CY_LOOP_AXES_H

#include "loop_int.h"

enum { NEST = 16 };

typedef struct access {
  cy_affine at;
  bool regular; /* at holds; else nothing is known */
} access;

typedef struct record { /* a statement with work */
  cy_var loop[NEST];    /* around it, outermost first */
  int nloops;
  double iterations; /* per task */
  int ops;
  uint32_t first, last; /* its accesses; the store's is the first */
  bool store;
} record;

typedef struct survey {
  cy_kernel *k;
  access *access;
  uint32_t naccess, access_cap;
  record *record;
  uint32_t nrecord, record_cap;
  bool *loose; /* variables used otherwise than as an affine term of an offset */
  bool *seen;  /* expressions, per statement */
  uint32_t nseen;
} survey;

survey cy_survey_make(cy_kernel *k); /* of the kernel as it is now; released by cy_survey_free() */
void cy_survey_free(survey *s);
double cy_survey_iterations(const cy_kernel *k, cy_var v);         /* the extent, a guess where it is symbolic */
cy_dim cy_survey_coef(const survey *s, const access *a, cy_var v); /* elements per step of v */
/* Does every access treat the two as one axis? */
bool cy_survey_mergeable(const survey *s, cy_var outer, cy_var inner);
/* One variable for both: coef * (outer * extent(inner) + inner). Its uses change, grid and loops are the caller's. */
cy_var cy_survey_merge(cy_kernel *k, cy_var outer, cy_var inner);

void cy_kernel_tidy_axes(cy_kernel *k); /* see loop_axes.c */

#endif
