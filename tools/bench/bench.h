/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h - what the files of cyto-bench share.
 *
 * cyto-bench.c reads the command line, bench_tasks.c a table of tasks; bench_measure.c starts the processes, bench_child.c
 * is what a measured process of ours does; bench_report.c writes the results, bench_compare.c reads older ones beside them,
 * bench_search.c looks for the best batch size. One measurement is one process: it loads a model, runs it once, then again
 * and again for a given time, and prints one line of numbers. tools/bench_ort.py, bench_openvino.py and bench_torch.py do
 * the same with other frameworks.
 */
#ifndef CY_TOOLS_BENCH_H
#define CY_TOOLS_BENCH_H

#include "tools/terminal.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { CY_BENCH_MAX_LIST = 16, CY_BENCH_MAX_PAIRS = 64, CY_BENCH_MAX_PROCESSES = 99 };

/* What one process measured; the fields stand in its line in this order. The first run, which is cold, is none of the
 * runs that the others are of.
 * peak_kb: the highest resident memory, less that of the process before it loaded the model.
 * in_ms, out_ms: copying the values of a run from the application's memory to what is bound as inputs, and those of the
 * outputs back; -1: not measured. On a GPU the run itself copies between host and device. */
#define CY_BENCH_SAMPLE_FIELDS(X)                                                                                      \
  X(load_ms)                                                                                                           \
  X(first_ms)                                                                                                          \
  X(median_ms) X(min_ms) X(runs) X(peak_kb) X(mean_ms) X(p95_ms) X(p99_ms) X(deviation_ms) X(in_ms) X(out_ms)

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

/* NAME=VALUE options: sizes of named dims, shapes and value ranges of inputs, as given on the command line; a folder of
 * inputs. */
typedef struct cy_bench_pairs {
  int n;
  const char *option[CY_BENCH_MAX_PAIRS]; /* "--dim", "--shape", "--range", "--inputs", "--outputs" */
  const char *text[CY_BENCH_MAX_PAIRS];   /* "batch=1", "x=1x3x224x224", "ids=0:99", a folder */
} cy_bench_pairs;

/* What is measured: one model as it is to be compiled and run. Its texts belong to whoever made it. */
typedef struct cy_bench_task {
  char name[128];
  const char *model;
  const char *options; /* of the compiler, as they are written, and word by word */
  const char **words;
  int n_words;
  int batch; /* 0: as the model says */
  int threads[CY_BENCH_MAX_LIST], n_threads;
  cy_bench_pairs pairs;
  const char *post; /* a shell command that gets the outputs' folder as $CYTO_OUTPUTS; NULL: none */
  int line;         /* of the table that it stands in; 0: none */
} cy_bench_task;

/* How everything is measured. */
typedef struct cy_bench_setup {
  const char *target, *seed;
  double seconds;
  int processes;
  bool neighbour;
  int against[CY_BENCH_N_CONTENDERS]; /* which contenders */
  double limit_kb;                    /* of a process's data; 0: none */
  char bin[PATH_MAX], self[PATH_MAX]; /* this program's folder and path */
  char work[PATH_MAX];                /* a temporary folder for libraries */
  char arch[16], device[200];         /* of CUDA; "": the CPU is measured */
} cy_bench_setup;

/* What was measured of one contender on one task with one number of threads. */
typedef struct cy_bench_result {
  char model[128];
  const char *options; /* NULL: none */
  int batch;           /* 0: as the model says */
  int threads;
  cy_bench_contender contender;
  int n_samples; /* 0: it failed, `failure` says why */
  cy_bench_sample samples[CY_BENCH_MAX_PROCESSES];
  char shapes[512]; /* of the inputs: "image 2x1x8x8, mask 2x8" */
  double per_run;   /* samples of a run: the first dimension of the first input of rank 2 or more */
  double size_kb;   /* of the library, or of the model for ONNX Runtime; with what lies beside either */
  double compile_s;
  double post_ms; /* of the task's command; -1: it has none */
  char failure[256];
  const char *device; /* of CUDA: its name and driver; NULL: the CPU */
} cy_bench_result;

/* How a contender is called in --against, and whether it is measured where nothing is said: on a CPU, on a device. */
typedef enum cy_bench_when { CY_BENCH_NEVER, CY_BENCH_ON_REQUEST, CY_BENCH_BY_DEFAULT } cy_bench_when;
const char *cy_bench_contender_word(cy_bench_contender c);
cy_bench_when cy_bench_contender_when(cy_bench_contender c, bool on_device);
/* Another framework? */
bool cy_bench_contender_is_foreign(cy_bench_contender c);

/* bench_measure.c: all contenders of a task, for each number of threads, by turns. Returns how many results it wrote, at
 * most CY_BENCH_N_CONTENDERS for each number of threads. */
int cy_bench_measure(const cy_bench_setup *o, const cy_bench_task *task, cy_bench_result *results,
                     terminal_progress *progress);
/* The name that a model has in tables: its file's, or its folder's when the file is called model.onnx. */
void cy_bench_model_name(const char *path, char *out, size_t room);
/* False: there is no more room. */
bool cy_bench_pair_add(cy_bench_pairs *pairs, const char *option, const char *text);

/* bench_tasks.c: a CSV file (RFC 4180) of tasks with a line of column names. -1 with a text; free it in any case. */
typedef struct cy_bench_tasks {
  cy_bench_task *list;
  int n;
  char **texts; /* what the tasks point to */
  int n_texts;
} cy_bench_tasks;
enum { CY_BENCH_ERROR = 600 };
int cy_bench_tasks_read(const char *path, cy_bench_tasks *out, char error[CY_BENCH_ERROR]);
void cy_bench_tasks_free(cy_bench_tasks *tasks);
/* The columns, for --help: "model, name, .." */
void cy_bench_tasks_columns(char *text, size_t room);

/* bench_compare.c: the results of a file that --json wrote. Prints what got slower or faster by more than the noise of
 * both; returns how many got slower, or -1 after a message. */
int cy_bench_compare(const char *path, const cy_bench_result *results, int n);

/* bench_search.c: a model's samples per second by batch size, as far as memory goes (bytes). Returns how many results it
 * wrote, and which of them is best in *out_best (-1: none). */
enum { CY_BENCH_MAX_SEARCH = 40 };
int cy_bench_search(const cy_bench_setup *o, const cy_bench_task *task, double memory, cy_bench_result *results,
                    int *out_best, terminal_progress *progress);

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
/* The process in the middle, field by field. */
cy_bench_sample cy_bench_median(const cy_bench_result *result);
const char *cy_bench_contender_name(cy_bench_contender c); /* "ONNX Runtime" */
/* The processor's name and how many of it there are. */
void cy_bench_cpu(char *out, size_t room);
/* Each returns 0, or prints why the file could not be written and returns 1. JSON: {"about": .., "results": [..]}. */
int cy_bench_write_json(const char *path, const cy_bench_result *results, int n, const char *command);
int cy_bench_write_csv(const char *path, const cy_bench_result *results, int n);
int cy_bench_append_results(const char *path, const cy_bench_result *results, int n, const char *command);

#endif
