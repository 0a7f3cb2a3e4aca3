/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - the command line of cytoc, parsed. */
#ifndef CYTOC_OPTIONS_H
#define CYTOC_OPTIONS_H

#include "tools/options.h"

typedef struct cytoc_options {
  const char *input;
  const char *output; /* NULL: the model's name with the ending of what is emitted */
  const char *target;
  const char *emit; /* "so,h,graph": NULL: by the ending of output */
  int opt_level, jobs;
  options_list dims, shapes; /* NAME=VALUE */
  const char *dump, *dump_dir, *passes, *stop_after, *disable;
  const char *name;
  const char *last_logits; /* an output of which only the last position is wanted; NULL: none */
  const char *attention;   /* "fused", "plain"; NULL: fused where the target has a kernel for it */
  const char *stats_file;  /* "": as text on standard output; NULL: none */
  const char *save_temps;
  const char *weights; /* "int8", "int4,block=32,asymmetric" */
  bool fp16, bf16, half_io;
  const char *int8; /* "": by whether there are samples; "static", "dynamic"; NULL: float */
  const char *fp8;  /* the same in floats of 8 bits */
  const char *calibrate, *calibration, *int8_skip, *int8_max_error, *int8_min_snr, *int8_prefer, *half_max_error;
  const char *accuracy, *labels; /* budget of error over the whole; the right answers of samples */
  const char *batch; /* list of command lines to run instead */
  bool tf32, strict;
  const char *fast_algorithms; /* "auto", "off"; NULL: auto */
  const char *cudnn, *cublaslt; /* "auto", "off", "require"; NULL: auto where the target is CUDA */
  bool unchecked;              /* no check of indices at run time */
  /* of `cytoc verify` */
  bool verifies;
  const char *inputs, *against, *tolerance, *library, *json;
  const char *bisect; /* "": into a folder called after the model; NULL: not asked for */
  options_list ranges;
  int random, seed, threads; /* random 0: as many as the model's sizes call for */
  bool quantize;             /* `cytoc quantize`: write ONNX instead of a library */
  const char *explain;       /* "", "memory", "costs", "json"; NULL: nothing is */
  const char *choice;        /* file: candidates of layers; NULL: estimates choose */
  const char *tune;          /* file of measured times; "": the user's; NULL: nothing is measured */
  int tune_seconds;          /* measure no longer; 0: until all is */
  bool verify, profile, verbose;
  bool done; /* --help, --version and the like have been answered */
  options_words words;
  options_parsed parsed;
} cytoc_options;

extern const options_program cytoc_program;

/* A command line: 0, or -1 after a message on standard error. */
int cytoc_options_parse(int argc, char **argv, cytoc_options *out);
/* Words of an application: 0, or -1 with a text in out->parsed.error. The words must live as long as *out. */
int cytoc_options_read(const char *const *words, int n, cytoc_options *out);
void cytoc_options_free(cytoc_options *out); /* behind both, whatever they returned */

#endif
