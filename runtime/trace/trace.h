/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* trace.h - a model's recording, for the files that make (trace.c) and write it (trace_write.c). */
#ifndef CYRT_TRACE_H
#define CYRT_TRACE_H

#include "runtime/context.h"

enum { TRACE_CHUNK = 4096 };

typedef struct trace_chunk {
  struct trace_chunk *next;
  int64_t n;
  cyrt_event events[TRACE_CHUNK];
} trace_chunk;

/* A run, by number. */
typedef struct trace_run {
  uint64_t arena, bytes_in, bytes_out;
  char *failure; /* or NULL */
} trace_run;

typedef struct trace_sum { /* of a row */
  int64_t runs, ns, first_runs, first_ns;
  int32_t other;
} trace_sum;

/* What a context's runs did; it belongs to the recording and may outlive the context. */
typedef struct trace_recorder {
  cyrt_recorder head;
  struct trace_recorder *next;
  struct trace *trace;
  cyto_context *context; /* during a run */
  int64_t number, workers;
  trace_chunk *first, *last;
  trace_run *runs;
  int64_t n_runs, runs_room; /* so many have begun; so many have a place in the list */
  int64_t run_start;
  uint64_t lane;               /* of the run */
  trace_sum *sums;             /* [rows] */
  int64_t *sizes, *last_sizes; /* [buffers] */
  int64_t *alive;              /* [positions + 2] bytes of the arena */
} trace_recorder;

typedef struct trace {
  cyrt_trace head;
  const cyrt_model *code;
  cyrt_lock lock;                       /* of start, stop and write */
  atomic_uint recording, active;        /* active: runs that are being recorded */
  _Atomic(trace_recorder *) recorders;  /* the newest first */
  atomic_llong room, dropped, contexts; /* events that may still be kept; that were not */
  uint64_t generation;                  /* of the recording, from 1 */
  int64_t positions;                    /* of steps */
  int64_t began, ended;
  double cycle_ns; /* what a unit of a floor is */
} trace;

#endif
