/* SPDX-License-Identifier: Apache-2.0 */
/* recorder.h - the model compiled for this machine as a cy_quant says, and run on samples; see recorder.c. */
#ifndef RECORDER_H
#define RECORDER_H

#include "cytoc_quantise.h"

typedef struct recorder {
  const cytoc_quantise *how;
  cy_quant *q;
  cyto_model *model; /* NULL: there is nothing to run, as nothing is quantised */
  cyto_context *context;
  cyto_model *known; /* that samples were opened for, which stays until recorder_close() */
  sample_set *samples;
  host_tensor *inputs; /* [ninputs]: of the sample at hand */
  int32_t ninputs;     /* of the model itself, which come first */
  bool brief;          /* the model is only compiled if that and a few runs take about a second; else.. */
  bool plain;          /* f32 is computed without fast algorithms */
  const char *too_much; /* .. why it is not */
  int32_t threads;      /* 0: all that there are */
  cy_choices *choices;  /* candidates of layers; NULL: by estimates */
  cy_layer_visit *visit; /* called for layers with candidates; may be NULL */
  void *visit_ctx;
} recorder;

/* How many times as long code of fast codegen takes, as brief models are compiled. */
enum { RECORDER_FAST_CODEGEN = 5 };
/* Estimated cycles of a run with every layer in float and in integers. */
double recorder_cycles(const cy_quant *q);

/* Files an error; -1. */
int recorder_fail(const recorder *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Compiles the model in the mode that q has, and opens it. */
int recorder_start(recorder *r);
void recorder_stop(recorder *r);
/* Opens the samples that r->how names, or random ones, for the model that is open; size: of the latter's axes that are not
 * fixed. */
int recorder_open_samples(recorder *r, int64_t size);
void recorder_close_samples(recorder *r);
void recorder_close(recorder *r);
/* Runs the first `max` samples (all, if there are fewer); visit sees the outputs of each. `what`: of the progress;
 * NULL: there is none. */
int recorder_run(recorder *r, const char *what, int max, int (*visit)(recorder *r, int sample, void *ctx), void *ctx);
/* Binds the further input of the model that is open (cy_quant_has_choice), a bool for each layer: none is chosen yet. NULL
 * after a diagnostic. */
bool *recorder_choice(recorder *r);
float *recorder_corrections(recorder *r); /* the same of what is behind that (CY_QUANT_OFFER): zeros */
int recorder_output(recorder *r, uint32_t index, cyto_tensor *out);
/* Runs sample i of `samples` so often that it takes a while; milliseconds of a run, < 0 after a diagnostic. */
double recorder_time(recorder *r, int i);

/* cytoc_quantise.c: opens the samples, and finds ranges of tensors and which layers may be static. Nothing is open then. 0,
 * or -1 after a diagnostic. */
int cytoc_observe(recorder *r);

#endif
