/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - what a compilation says about itself: progress, -v, --stats. */
#ifndef CYTOC_REPORT_H
#define CYTOC_REPORT_H

#include "codegen/codegen.h"
#include "passes/passes.h"

enum { CYTOC_MAX_STAGES = 16 };

typedef struct cytoc_report {
  bool verbose;
  int nstages, at; /* at: 1 + which is at hand; 0: none */
  double start; /* cy_clock_ms() when that at hand began */
  struct {
    const char *name;
    double ms; /* of all the times that it was at hand */
  } stage[CYTOC_MAX_STAGES];
  /* Told as it goes: `done` of `total` parts of a stage, total 0: not known. May be NULL. */
  void (*progress)(void *ctx, const char *stage, int64_t done, int64_t total);
  void *progress_ctx;
  cy_pass_stats passes;
  cy_codegen_stats code;
} cytoc_report;

/* The stage that begins now, or goes on if it was at hand before; NULL: the last one has ended. */
void cytoc_report_stage(cytoc_report *r, const char *name);
/* Parts of a stage are done. */
void cytoc_report_progress(cytoc_report *r, const char *stage, int64_t done, int64_t total);
/* file "": text on standard output, else JSON. 0, or -1 after a diagnostic. */
int cytoc_report_write(const cytoc_report *r, const char *model, const char *file, cy_diag_sink *diag);

#endif
