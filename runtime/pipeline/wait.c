/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* wait.c - a pipeline's lock, and the events that its threads sleep on. Takes nothing of the pipeline but these. */
#include "pipeline_int.h"

void cyrt_pipe_lock(cyto_pipeline *p) { cyrt_lock_take(&p->lock); }

void cyrt_pipe_unlock(cyto_pipeline *p) { cyrt_lock_give(&p->lock); }

void cyrt_pipe_signal(event *e) {
  if (!e->sleepers)
    return;
  atomic_fetch_add(&e->epoch, 1);
  cyrt_os_wake(&e->epoch);
}

void cyrt_pipe_wait(cyto_pipeline *p, event *e, int64_t deadline) {
  uint32_t epoch = atomic_load(&e->epoch);
  int64_t left = deadline < 0 ? 0 : deadline - cyrt_os_now_ns();
  if (deadline >= 0 && left <= 0)
    return;
  e->sleepers++;
  cyrt_pipe_unlock(p);
  if (deadline < 0)
    cyrt_os_wait(&e->epoch, epoch);
  else
    cyrt_os_wait_for(&e->epoch, epoch, left);
  cyrt_pipe_lock(p);
  e->sleepers--;
}
