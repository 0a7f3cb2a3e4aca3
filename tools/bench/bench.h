/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h - what the files of cyto-bench share.
 *
 * cyto-bench.c reads the command line and starts the processes, bench_child.c is what a measured process of ours does,
 * bench_report.c writes the results. One measurement is one process: it loads a model, runs it once, then again and
 * again for a given time, and prints one line of numbers. tools/bench_ort.py, bench_openvino.py and bench_torch.py do the
 * same with other frameworks.
 */
#ifndef CY_TOOLS_BENCH_H
#define CY_TOOLS_BENCH_H

#include <stdint.h>
#include <stdio.h>

enum { CY_BENCH_MAX_LIST = 16, CY_BENCH_MAX_PAIRS = 64, CY_BENCH_MAX_PROCESSES = 99 };

/* What one process measured; the fields stand in its line in this order. The first run, which is cold, is none of the
 * runs that the others are of.
 * peak_kb: the highest resident memory, less that of the process before it loaded the model. */
#define CY_BENCH_SAMPLE_FIELDS(X)                                                                                      \
  X(load_ms) X(first_ms) X(median_ms) X(min_ms) X(runs) X(peak_kb) X(mean_ms) X(p95_ms) X(p99_ms) X(deviation_ms)

typedef struct cy_bench_sample {
#define X(name) double name;
  CY_BENCH_SAMPLE_FIELDS(X)
#undef X
} cy_bench_sample;

typedef enum cy_bench_contender {
  CY_BENCH_COMPILED,
  CY_BENCH_EAGER,
  CY_BENCH_ORT,
  CY_BENCH_OPENVINO,
  CY_BENCH_TORCH, /* eager, */
  CY_BENCH_TORCH_COMPILED,
  CY_BENCH_TORCH_GRAPHED, /* eager, captured once as a CUDA graph */
  CY_BENCH_N_CONTENDERS
} cy_bench_contender;

/* What was measured of one contender on one model with one batch size and number of threads. */
typedef struct cy_bench_result {
  char model[128];
  int batch; /* 0: as the model says */
  int threads;
  cy_bench_contender contender;
  int n_samples; /* 0: it failed, `failure` says why */
  cy_bench_sample samples[CY_BENCH_MAX_PROCESSES];
  char shapes[512]; /* of the inputs: "image 2x1x8x8, mask 2x8" */
  double per_run;   /* samples of a run: the first dimension of the first input of rank 2 or more */
  double size_kb;   /* of the library, or of the model for ONNX Runtime; with what lies beside either */
  double compile_s;
  char failure[256];
  const char *device; /* of CUDA: its name and driver; NULL: the CPU */
} cy_bench_result;

/* NAME=VALUE options: sizes of named dims, shapes and value ranges of inputs, as given on the command line. */
typedef struct cy_bench_pairs {
  int n;
  const char *option[CY_BENCH_MAX_PAIRS]; /* "--dim", "--shape" or "--range" */
  const char *text[CY_BENCH_MAX_PAIRS];   /* "batch=1", "x=1x3x224x224", "ids=0:99" */
} cy_bench_pairs;

/* bench_child.c: measures `library` and prints the line and a second one, which says the samples of a run and the shapes
 * of inputs; returns the exit code of the process. */
int cy_bench_child(const char *library, int threads, double seconds, uint64_t seed, const cy_bench_pairs *pairs);

/* bench_size.c: kilobytes of an ONNX file and of the files that its tensors lie in, or of a library and its weights. */
double cy_bench_model_kb(const char *path);

/* bench_device.c: the CUDA device that runs use. Fills its architecture ("sm_90a") and a description; returns 0, or 1
 * with what is missing. */
int cy_bench_device(char arch[16], char text[200], char missing[1024]);

/* bench_report.c */
/* A line a model and batch size: the shapes of its inputs. */
void cy_bench_write_shapes(FILE *out, const cy_bench_result *results, int n);
void cy_bench_write_table(FILE *out, const cy_bench_result *results, int n, int as_markdown);
/* Each returns 0, or prints why the file could not be written and returns 1. */
int cy_bench_write_json(const char *path, const cy_bench_result *results, int n);
int cy_bench_write_csv(const char *path, const cy_bench_result *results, int n);
int cy_bench_append_results(const char *path, const cy_bench_result *results, int n, const char *command);

#endif
