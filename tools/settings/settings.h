/* SPDX-License-Identifier: Apache-2.0 */
/* settings.h - what the files of cyto-tune share: threads, contexts side by side and batch sizes of one library, measured
 * within limits of memory and latency.
 *
 * cyto-tune.c reads the command line; settings_search.c says which settings are measured next, settings_child.c is what a
 * measured process does, settings_choose.c chooses from what was measured, settings_file.c keeps it in tuned.json.
 */
#ifndef CY_TOOLS_SETTINGS_H
#define CY_TOOLS_SETTINGS_H

#include "runtime/cyto.h"
#include "tools/bench/bench.h"

#include <signal.h>

typedef struct cy_setting {
  int threads, contexts; /* threads of each context */
  int64_t batch;         /* 0: the model fixes it */
} cy_setting;

/* What its processes measured; of several the medians. The fields stand in a process's line in this order.
 * rate: samples per second of all contexts together. median_ms, p95_ms: of the time of one run.
 * peak_kb: as cy_bench_sample's; of models for a device, what weights and contexts need there. */
#define CY_SETTING_FIELDS(X) X(runs) X(rate) X(median_ms) X(p95_ms) X(peak_kb)
enum { CY_SETTING_SAMPLES = 3, CY_SETTING_WHY = 200 };

typedef struct cy_setting_sample {
#define X(name) double name;
  CY_SETTING_FIELDS(X)
#undef X
} cy_setting_sample;

typedef struct cy_setting_point {
  cy_setting s;
  int n; /* 0: it does not run, `why` says why */
  cy_setting_sample samples[CY_SETTING_SAMPLES];
  char why[CY_SETTING_WHY];
} cy_setting_point;

typedef struct cy_setting_points {
  cy_setting_point *list;
  int n;
} cy_setting_points;

cy_setting_point *cy_setting_find(const cy_setting_points *points, cy_setting s); /* NULL: was not measured */
cy_setting_point *cy_setting_put(cy_setting_points *points, cy_setting s);        /* found or made, without samples */

/* ---- settings_choose.c ---- */

typedef struct cy_setting_limits {
  double memory_kb, latency_ms; /* 0: none */
} cy_setting_limits;

cy_setting_sample cy_setting_median(const cy_setting_point *p);
bool cy_setting_fits(const cy_setting_point *p, const cy_setting_limits *limits);
/* The highest rate within the limits; of those within 2 % of it, what needs the fewest threads, then the least memory, then
 * the smallest batch. It depends on the measurements alone, not on their order. NULL: nothing fits. */
const cy_setting_point *cy_setting_choose(const cy_setting_points *points, const cy_setting_limits *limits);
/* The least latency, and the least memory, of all that run; NULL: nothing does. */
const cy_setting_point *cy_setting_quickest(const cy_setting_points *points);
const cy_setting_point *cy_setting_smallest(const cy_setting_points *points);

/* ---- settings_search.c ---- */

typedef struct cy_setting_task {
  const char *self, *library, *seed;
  double seconds;       /* of each process */
  double end_ms;        /* cy_clock_ms() when to stop; 0: never */
  const char *symbol;   /* of the batch; NULL: the model fixes it, or the command line */
  int cpus;             /* threads times contexts are at most so many */
  bool device;          /* threads do not matter */
  cy_bench_pairs pairs; /* of all processes */
  cy_setting_limits limits;
  volatile sig_atomic_t *stop;                             /* not 0: somebody wants it to end */
  int (*keep)(void *ctx, const cy_setting_points *points); /* called after each process; not 0 ends it */
  void *ctx;
  terminal_progress *progress;
} cy_setting_task;

/* Measures what `points` does not have yet. 0: all that was worth it; 1: stopped before that; -1: keep() failed. */
int cy_setting_search(const cy_setting_task *task, cy_setting_points *points);

/* ---- settings_child.c: `contexts` contexts run at once for `seconds`; prints a line. Returns the exit code. */
int cy_setting_child(const char *library, cy_setting s, double seconds, uint64_t seed, const cy_bench_pairs *pairs);

/* ---- settings_file.c ---- */

/* What measurements hold for. */
typedef struct cy_setting_about {
  char library[20]; /* a hash of its bytes, and of its weights' */
  char model[256], target[64], compiler[128], cpu[128], sizes[400], symbol[64], goal[64];
  int cpus;
  double seconds;
} cy_setting_about;

enum { CY_SETTING_ERROR = 700 };
/* 0, or -1 with a text: the library cannot be read. */
int cy_setting_hash(const char *path, char out[20], char error[CY_SETTING_ERROR]);
/* Points of an older file; of one with another goal, those that ran. 1: it holds for this; 0: there is none, or it is of something else, which `error` then says;
 * -1 with a text: it is no file of ours, or cannot be read. */
int cy_setting_file_read(const char *path, const cy_setting_about *about, cy_setting_points *out,
                         char error[CY_SETTING_ERROR]);
/* As a whole or not at all. chosen NULL: nothing fits. 0, or -1 with a text. */
int cy_setting_file_write(const char *path, const cy_setting_about *about, const cy_setting_points *points,
                          const cy_setting_point *chosen, char error[CY_SETTING_ERROR]);

#endif
