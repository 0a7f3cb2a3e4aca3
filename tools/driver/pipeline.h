/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.h - one compilation, from a model to files; what the command line and the library have in common. */
#ifndef CYTOC_PIPELINE_H
#define CYTOC_PIPELINE_H

#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "options.h"
#include "report.h"

typedef struct cytoc_session {
  const cytoc_options *o;
  cy_diag_sink *diag;
  cytoc_report report;
  /* A model in memory, where o->input is no file but the name for it; NULL: o->input is read. */
  const void *model;
  size_t model_size;
  const char *model_dir; /* of external data; NULL: as cy_import_options */
  cy_ask_external *ask;  /* NULL: files */
  void *ask_ctx;
  const char *folder;    /* where the output goes when o->output is NULL; NULL: here */
  char *written;         /* set to its path; free() it */
  cy_choices *choices;   /* of candidates, in place of o->choice; NULL: none */
  cy_layer_visit *visit; /* called for layers with candidates; may be NULL */
  void *visit_ctx;
  bool plan_only;                                   /* nothing is written */
  cy_graph *(*make)(void *ctx, cy_diag_sink *diag); /* makes the graph, in place of a file; NULL: none does */
  void *make_ctx;
} cytoc_session;

/* session.c: runs s->o, with all of s but the report and what is private set. 0, or -1 after diagnostics: nothing is written
 * then. */
int cytoc_session_run(cytoc_session *s);

/* pipeline.c: the same by s->choices, without measuring any (--tune). */
int cytoc_session_compile(cytoc_session *s);

#endif
