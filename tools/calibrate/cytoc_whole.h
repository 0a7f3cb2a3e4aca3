/* SPDX-License-Identifier: Apache-2.0 */
/* cytoc_whole.h - the outputs of the whole model, quantised beside float; see cytoc_whole.c. */
#ifndef CYTOC_WHOLE_H
#define CYTOC_WHOLE_H

#include "recorder.h"

typedef struct cytoc_whole cytoc_whole;
/* For the model that r has opened, which measures and has not run. NULL: there are no outputs to compare, or no memory. */
cytoc_whole *cytoc_whole_create(const recorder *r);
/* Keeps the outputs of the sample that r has just run. 0, or -1 after a diagnostic. */
int cytoc_whole_remember(cytoc_whole *w, recorder *r, int sample);
/* How many samples outputs were kept of, which are those that are compared: all, or as many as there is room for. */
int cytoc_whole_samples(const cytoc_whole *w);
/* Files a warning if these are not all of r's. */
void cytoc_whole_warn(const cytoc_whole *w, const recorder *r);
/* The outputs that are compared, with reasons why some are not. */
const cy_quant_output *cytoc_whole_outputs(const cytoc_whole *w, uint32_t *out_count);
/* Adds to sums[of these] how outputs differ from those that were kept of the sample which r has just run; 0 or -1. */
int cytoc_whole_add(const cytoc_whole *w, recorder *r, int sample, cy_quant_output *sums);
/* Runs the quantised model, sets r->q->output, and leaves layers in float until outputs hold r->how->min_snr. Nothing is
 * open when it is called; r->q->mode is CY_QUANT_STATIC, or _DYNAMIC with its measured layers. */
int cytoc_whole_compare(cytoc_whole *w, recorder *r);
/* The same for plain dynamic quantisation, whose r->q->mode is CY_QUANT_SINGLE_DYNAMIC: with the one library that is open,
 * which quantises any choice of layers. Runs it on up to `max` samples. Layers that by themselves cost an output more than
 * r->how->floor_snr stay in float, and others as far as that is cheap. */
int cytoc_whole_estimate(cytoc_whole *w, recorder *r, int max);
void cytoc_whole_destroy(cytoc_whole *w);
/* Files a warning for each output that does not hold the limit. */
void cytoc_whole_check(const cytoc_quantise *how, const cy_quant *q);
/* A row per output: its signal-to-noise ratio. */
void cytoc_whole_table(const cy_quant *q, FILE *out);

#endif
