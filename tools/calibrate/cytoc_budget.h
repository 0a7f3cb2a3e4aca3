/* SPDX-License-Identifier: Apache-2.0 */
/* cytoc_budget.h - --accuracy: a precision for every layer, so that the whole is as fast as its accuracy allows; see
 * cytoc_budget.c. */
#ifndef CYTOC_BUDGET_H
#define CYTOC_BUDGET_H

#include "cytoc_quantise.h"

/* What became of a layer. */
typedef struct cytoc_budget_layer {
  const char *name, *shape;
  double macs, cycles[2]; /* on one core, in f32 and as it is; 0: not known */
  cy_precision precision;
  double noise; /* over the signal, of the output that suffers most, if this layer alone is so */
} cytoc_budget_layer;

typedef struct cytoc_budget {
  const char *text;   /* as it was given */
  double db;          /* least signal-to-noise ratio of every output; 0: top-1 counts */
  double loss;        /* share of right answers that may be lost */
  const char *labels; /* file; NULL: none */
  unsigned offered;   /* precisions, as bits */

  /* What was found; strings and layers live in the cy_quant's arena. */
  cytoc_budget_layer *layer;
  uint32_t nlayers;
  const char *output; /* the one with the least ratio, or whose classes count; NULL: nothing was compared */
  double reached;     /* dB; or share of right answers */
  double right;       /* of them, in f32 */
  int samples;        /* that this was found on */
  bool strict;        /* f32 without fast algorithms */
  cy_choices exact;   /* else layers that go without; strings and list in the arena */
  const char *timed;  /* what was timed; NULL: nothing */
} cytoc_budget;

/* "30dB", "30", "top1:0.5%". NULL, or what is expected. */
const char *cytoc_budget_parse(const char *text, cytoc_budget *out);
/* Makes q's plan, for CY_QUANT_PLAN, with q->caps and q->skip set. 0, or -1 after a diagnostic: the budget cannot be met,
 * or the model does not run. */
int cytoc_budget_find(const cytoc_quantise *how, cytoc_budget *b, cy_quant *q);
/* Notes what was chosen. */
void cytoc_budget_tell(const cytoc_budget *b, cy_diag_sink *diag);
/* A row per layer: its precision, what it gains, its error; and a sum per precision. */
void cytoc_budget_table(const cytoc_budget *b, FILE *out);

/* ---- labels.c ---- */

/* Class numbers of a file: .npy, .npz (one array), .txt (a number a line), .csv (the column "label", "labels" or "class",
 * in capitals or not, else the last).
 * out[*out_count] is malloc'ed. 0, or -1 with a text in `error`. */
int cytoc_labels_read(const char *path, int64_t **out, int64_t *out_count, char error[TENSOR_ERROR_SIZE]);

#endif
