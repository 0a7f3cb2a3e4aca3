/* SPDX-License-Identifier: Apache-2.0 */
/* cytoc_quantise.h - what --int8=static does before the model is compiled: running it on samples to see its numbers. */
#ifndef CYTOC_QUANTISE_H
#define CYTOC_QUANTISE_H

#include "codegen/codegen.h"
#include "passes/passes.h"
#include "passes/quantise/quantise.h"

#include "calibrate.h"

typedef struct cytoc_quantise {
  /* A graph that becomes what q->mode asks for and is destroyed then; NULL after a diagnostic. */
  cy_graph *(*graph)(void *ctx);
  void *ctx;
  bool in_mode; /* it is that when the passes begin; else the pass `quantise` makes it so, and those in front have run */
  cy_pass_options passes; /* as the model is compiled with; what differs when it only runs here: recorder.c */
  cy_diag_sink *diag;
  const char *samples; /* path; NULL: random numbers, for cytoc_measure */
  range_method method;
  double max_error; /* layers over it stay in float; <= 0: no limit */
  double min_snr;   /* dB; layers stay in float until outputs have it; <= 0: outputs are not compared with float */
  bool firm_snr;    /* .. whatever time that costs */
  double floor_snr; /* dB; what they have whatever time it costs if min_snr is not firm */
  int jobs;
  bool runs_here; /* the target is this CPU: times that are measured tell something */
  /* Told as it goes: sample `done` of `total`; NULL: nobody. */
  void (*progress)(void *ctx, const char *stage, int64_t done, int64_t total);
  void *progress_ctx;
} cytoc_quantise;

/* Fills q (made by cy_quant_init, q->skip set) for CY_QUANT_STATIC. 0, or -1 after a diagnostic. With nothing to
 * quantise, q->nlayers is 0 and a warning is filed. */
int cytoc_calibrate(const cytoc_quantise *how, cy_quant *q);
/* The same for CY_QUANT_DYNAMIC and CY_QUANT_HALF: measures its layers, so that those over max_error stay in float. */
int cytoc_measure(const cytoc_quantise *how, cy_quant *q);
/* Plain CY_QUANT_DYNAMIC, in about a second: sets q->output, and leaves layers in float whose errors are amplified by what
 * follows. With more to do, or when the model does not run on random numbers, q->unseen. */
int cytoc_estimate(const cytoc_quantise *how, cy_quant *q);
/* Files a warning if no layer was quantised. */
void cytoc_quantise_check(const cy_quant *q, cy_diag_sink *diag);
/* A row per layer: its error, the thousands of cycles it takes in float and as `what` ("int8"), what became of it. */
void cytoc_quantise_table(const cy_quant *q, const char *what, FILE *out);
/* The same for --weights: a warning if no weights were made smaller; and a row per product. */
void cytoc_weights_check(const cy_quant *q, cy_diag_sink *diag);
void cytoc_weights_table(const cy_quant *q, FILE *out);

#endif
