/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* trace_step.c - what the code of a library compiled with --profile calls around its steps.
 *
 * In: the context's recorder, or NULL. Out: an event for each step, and one for each thread that had a part in it. The
 * context may be that of another library's runtime: its recorder is called through its head (cyrt.h). Nothing is shared
 * between contexts, so nothing is locked; while nothing is recorded a step costs a load and a branch.
 */
#include "runtime/cyrt.h"

static cyrt_recorder *recorder_of(const cyrt_frame *frame) {
  return ((const cyrt_context_head *)frame->context)->recorder;
}

int64_t cyrt_profile_start(cyrt_frame *frame, const cyrt_profile_row *row) {
  cyrt_recorder *r = recorder_of(frame);
  if (!r)
    return 0;
  r->open = row;
  return r->open_start = cyrt_os_now_ns();
}

void cyrt_profile_stop(cyrt_frame *frame, const cyrt_profile_row *row, int64_t start, int64_t other) {
  cyrt_recorder *r = recorder_of(frame);
  cyrt_event event = {.row = row,
                      .start = start,
                      .end = cyrt_os_now_ns(),
                      .lane = cyrt_os_thread_number(),
                      .kind = CYRT_EVENT_STEP,
                      .other = other != 0};
  r->record(r, &event);
}

/* ---- threads ---- */

typedef struct recorded_job {
  cyrt_kernel kernel;
  const cyrt_slot *args;
  cyrt_piece *pieces;
} recorded_job;

/* A worker's part of a job is done by one thread, from its first piece to its last. */
static void run_piece(const cyrt_slot *args, int64_t begin, int64_t end, int64_t worker) {
  const recorded_job *job = (const recorded_job *)(const void *)args;
  cyrt_piece *piece = &job->pieces[worker];
  if (!piece->start) {
    piece->start = cyrt_os_now_ns();
    piece->lane = cyrt_os_thread_number();
  }
  job->kernel(job->args, begin, end, worker);
  piece->end = cyrt_os_now_ns();
  piece->tasks += end - begin;
}

void cyrt_profile_parallel_for(cyrt_frame *frame, cyrt_kernel kernel, const cyrt_slot *args, int64_t n, int64_t grain,
                               const cyrt_profile_row *row) {
  cyrt_recorder *r = recorder_of(frame);
  if (!r || frame->workers <= 1 || n <= grain) {
    cyrt_parallel_for(frame, kernel, args, n, grain);
    return;
  }
  recorded_job job = {kernel, args, r->pieces};
  for (int64_t i = 0; i < frame->workers; i++)
    r->pieces[i] = (cyrt_piece){0};
  cyrt_parallel_for(frame, run_piece, (const cyrt_slot *)(const void *)&job, n, grain);
  for (int64_t i = 0; i < frame->workers; i++) {
    const cyrt_piece *piece = &r->pieces[i];
    cyrt_event event = {.row = row,
                        .start = piece->start,
                        .end = piece->end,
                        .lane = piece->lane,
                        .a = piece->tasks,
                        .kind = CYRT_EVENT_PIECE};
    if (piece->start)
      r->record(r, &event);
  }
}
