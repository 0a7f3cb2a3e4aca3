/* options.h - the command line of cytoc, parsed. */
#ifndef CYTOC_OPTIONS_H
#define CYTOC_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { CYTOC_MAX_OVERRIDES = 64 };

typedef struct cytoc_options {
  const char *input;
  const char *output; /* NULL: the model's name with the ending of what is emitted */
  const char *target;
  const char *emit; /* "so,h,graph": NULL: by the ending of output */
  int opt_level, jobs;
  const char *dims[CYTOC_MAX_OVERRIDES], *shapes[CYTOC_MAX_OVERRIDES];
  uint32_t ndims, nshapes;
  const char *dump, *dump_dir, *passes, *stop_after, *disable;
  const char *name;
  const char *attention; /* "fused", "plain"; NULL: fused where the target has a kernel for it */
  const char *stats_file; /* "": as text on standard output; NULL: none */
  const char *save_temps;
  const char *weights;          /* "int8", "int4,block=32,asymmetric" */
  bool fp16, bf16, half_io;
  const char *int8;             /* "": by whether there are samples; "static", "dynamic"; NULL: float */
  const char *calibrate, *calibration, *int8_skip, *int8_max_error, *int8_min_snr, *int8_prefer, *half_max_error;
  const char *batch; /* list of command lines to run instead */
  bool tf32;
  const char *fast_algorithms; /* "auto", "off"; NULL: auto */
  const char *cudnn; /* "auto", "off", "require"; NULL: auto where the target is CUDA */
  bool quantize;     /* `cytoc quantize`: write ONNX instead of a library */
  bool unchecked;    /* no check of indices at run time */
  bool verify, explain, profile, verbose;
  bool done; /* --help, --version and the like have been answered */
} cytoc_options;

/* 0, or -1 after a message on standard error. */
int cytoc_options_parse(int argc, char **argv, cytoc_options *out);

#endif
