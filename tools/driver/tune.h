/* SPDX-License-Identifier: Apache-2.0 */
/* tune.h - --tune: which candidate of each layer is the fastest on this machine, by measuring. */
#ifndef CYTOC_TUNE_H
#define CYTOC_TUNE_H

#include "pipeline.h"
#include "runtime/cyto.h"

/* Fills *out with what s->o->tune's file knows and what is measured now; free it by cytoc_choices_free(), also behind an
 * error. Stops early, without an error, at the time limit and at SIGINT. 0, or -1 after diagnostics. */
int cytoc_tune(cytoc_session *s, cy_choices *out);

/* ---- tune_file.c ---- */

typedef struct tune_file {
  char *path;
  const char *cpu, *version; /* what the file is for */
} tune_file;

/* given "": the user's. 0, or -1 after a diagnostic. */
int cytoc_tune_file_open(tune_file *f, const char *given, cy_diag_sink *diag);
/* A file that is not there, or is of another version, has nothing. 0, or -1 after a diagnostic: it is no such file, or is
 * another CPU's. */
int cytoc_tune_file_read(const tune_file *f, cy_choices *out, cy_diag_sink *diag);
/* As a whole or not at all. 0, or -1 after a diagnostic. */
int cytoc_tune_file_write(const tune_file *f, const cy_choices *c, cy_diag_sink *diag);

/* ---- tune_layer.c ---- */

/* May the layer of that description be measured alone? Its type has to be one that is known, its sizes fixed. */
bool cytoc_tune_layer_known(const char *text);
/* Sets the options that make its type of f32. */
void cytoc_tune_layer_options(const char *text, cytoc_options *o);
/* Of a description; planar: its feature maps lie by planes of channels, else channels are dense. */
typedef struct tune_layer_spec {
  const char *text;
  bool planar;
} tune_layer_spec;
/* A graph of the layer alone, with random weights, a bias and an activation; ctx: a tune_layer_spec. NULL: it cannot be made. */
cy_graph *cytoc_tune_layer_graph(void *ctx, cy_diag_sink *diag);

/* ---- tune_measure.c ---- */

enum { TUNE_SAMPLES = 15 };
typedef struct tune_contender {
  const char *name;
  cyto_model *model; /* NULL: it cannot be compiled so */
  cyto_context *context;
  int n;
  double cycles[TUNE_SAMPLES];
  double median, spread; /* spread: between quartiles */
  bool out;              /* so far behind that it runs no more */
} tune_contender;

typedef struct tune_clock {
  double end_ms;    /* cy_clock_ms() when to stop; 0: never */
  double cycles_ns; /* a nanosecond has so many */
} tune_clock;

/* Has the time come, or a SIGINT, which is blocked meanwhile? */
bool cytoc_tune_over(const tune_clock *c);
/* Compiles the layer by each of n candidates and measures them in turns, on one thread. s: whose options hold. 0; -1: it was
 * over before. */
int cytoc_tune_measure(const cytoc_session *s, const tune_clock *clock, const char *layer, tune_contender *list, int n);
/* Does code for the target run here? NULL, or why not, which is to be freed. */
char *cytoc_tune_refused(const cytoc_session *s);

#endif
