/* SPDX-License-Identifier: Apache-2.0 */
/* verify.h - `cytoc verify`: is what cytoc makes of a model right? What its files share.
 *
 * verify.c         the command: compiles, has both sides compute, compares, says what it found
 * verify_limits.c  which differences are allowed, by precision or as --tolerance says
 * verify_engine.c  one side that computes: a library in a process of its own, or Python with another framework
 * verify_model.c   the ONNX model itself: what its integers index, pieces of it as models of their own
 * verify_bisect.c  the first layer that leaves the reference, and the smallest model that shows it
 */
#ifndef CYTOC_VERIFY_H
#define CYTOC_VERIFY_H

#include "codegen/temps.h"
#include "tools/calibrate/inputs.h"
#include "tools/driver/options.h"
#include "tools/values/errors.h"

/* The subcommand: 0 right, 1 beyond tolerance, 2 it cannot be said, after diagnostics. */
int cytoc_verify(const cytoc_options *o);

/* ---- verify_limits.c ---- */

typedef struct verify_limits {
  const char *name; /* of the precision; "--tolerance" */
  double snr;       /* dB, at least; 0: not asked for */
  double relative;  /* largest error over the greatest magnitude, at most; 0: not asked for */
  double equal;     /* share of the elements of integers and strings, at least */
  bool step;        /* integers of 8 bits may be off by one: they were rounded */
} verify_limits;

struct verify_model;
/* By --tolerance, or by the precision that was asked for or that the model has itself. -1 with a text. */
int verify_limits_choose(const cytoc_options *o, const struct verify_model *model, verify_limits *out,
                         char error[TENSOR_ERROR_SIZE]);
/* NULL: within; or what is beyond, in a few words. */
const char *verify_limits_beyond(const verify_limits *limits, const value_errors *e, char *text, size_t room);
void verify_limits_text(const verify_limits *limits, char *text, size_t room);

/* ---- verify_engine.c ---- */

typedef enum verify_kind {
  VERIFY_OURS,      /* as the options say */
  VERIFY_EAGER,     /* -O0, every operator by itself */
  VERIFY_ORT,       /* ONNX Runtime in Python */
  VERIFY_REFERENCE, /* onnx.reference in Python */
  VERIFY_FILES      /* outputs that lie beside the inputs */
} verify_kind;

enum { VERIFY_TEXT = 4000 };

typedef struct verify_engine {
  verify_kind kind;
  const cytoc_options *o;
  const char *source;  /* the ONNX model */
  const char *library; /* of ours and eager: in temps, or given */
  cy_temps *temps;
  char error[VERIFY_TEXT];
} verify_engine;

/* What one sample gave. */
typedef struct verify_result {
  char *error; /* NULL: it ran */
  cyto_value *outputs;
  int32_t n;
} verify_result;

const char *verify_kind_name(verify_kind kind); /* "ONNX Runtime" */
/* Compiles what there is to compile. diag: of what is compiled by the options; NULL: e->error has the errors. -1 with
 * e->error; close it in any case. */
int verify_engine_open(verify_engine *e, verify_kind kind, const cytoc_options *o, const char *source,
                       cy_diag_sink *diag);
/* Runs all samples in one process. results: [n], to be freed whatever is returned. -1 with e->error when none could run. */
int verify_engine_run(verify_engine *e, const input_sample *samples, int n, verify_result *results);
void verify_engine_close(verify_engine *e);
void verify_results_free(verify_result *results, int n);
/* Expected outputs of files, of the types that the model's have. */
int verify_files_read(const input_sample *s, const cyto_model *model, verify_result *out,
                      char error[TENSOR_ERROR_SIZE]);

/* ---- verify_model.c ---- */

typedef struct verify_model verify_model;
verify_model *verify_model_open(const char *path, cy_diag_sink *diag); /* NULL after a diagnostic */
void verify_model_close(verify_model *m);
bool verify_model_is_quantised(const verify_model *m); /* has operators that round to integers */
bool verify_model_is_half(const verify_model *m);      /* has tensors of 16-bit floats */
/* Elements of an integer input are in [0, bound) because of what they index; 0: nothing says so. */
int64_t verify_model_bound(const verify_model *m, const char *input);

size_t verify_model_nodes(const verify_model *m);
const char *verify_model_node(const verify_model *m, size_t i, char *text, size_t room); /* "Conv 'conv1'" */
/* Outputs of node i that have a name: the next one from *k on, NULL behind the last. */
const char *verify_model_output_of(const verify_model *m, size_t i, size_t *k);

/* A value of the model that is known from a run of the reference. */
typedef struct verify_known {
  const char *name;
  const cyto_value *value;
} verify_known;

/* Writes the model with these values as further outputs behind its own; which they are, by their order. */
int verify_model_tap(const char *path, const char *const *taps, size_t n, const char *output, cy_diag_sink *diag);
/* Writes nodes first..last alone, as far as they lead to the outputs (`wanted`, or NULL: all that is read outside of them):
 * what they read becomes inputs, or initializers where it is known and small integers. *out_inputs: how `known` fills the
 * inputs, to be freed; their number in *out_n. -1 after a diagnostic. */
int verify_model_cut(const char *path, size_t first, size_t last, const char *wanted, const verify_known *known,
                     size_t nknown, const char *output, const verify_known ***out_inputs, size_t *out_n,
                     size_t *out_nodes, cy_diag_sink *diag);

/* ---- verify_bisect.c ---- */

/* The reproducer of what is beyond the limits on this sample, into a folder. 0; -1 after a diagnostic. */
int verify_bisect(const cytoc_options *o, const verify_model *m, verify_kind reference, const verify_limits *limits,
                  const cyto_model *model, const input_sample *sample, const char *folder, cy_diag_sink *diag);

#endif
