/* SPDX-License-Identifier: Apache-2.0 */
/* run_json.h - cyto-run --json: sizes, times and kernels of a run. */
#ifndef CY_TOOLS_RUN_JSON_H
#define CY_TOOLS_RUN_JSON_H

#include "tools/values/tensor_file.h"
#include "tools/profile.h"
#include "tools/resident.h"
#include "tools/statistics.h"

typedef struct run_times {
  double first_ms;
  statistics again; /* of the runs behind the first one; runs 0: there were none */
  double samples;   /* of a run */
  resident_growth growth;
} run_times;

typedef struct run_report {
  const cyto_model *model;
  cyto_context *context;
  const cyto_value *inputs; /* as bound */
  const run_times *times;
  const profile *launches; /* NULL: not counted */
} run_report;

/* path "-": standard output. 0, or -1 with a text in error. */
int run_json_write(const char *path, const run_report *report, char error[TENSOR_ERROR_SIZE]);

#endif
