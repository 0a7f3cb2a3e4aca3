/* SPDX-License-Identifier: Apache-2.0 */
/* shards.c - machine code for all kernels, by several processes.
 *
 * Kernels are distributed over shards by estimated work; a shard is a module and an object file. Which kernel goes where
 * depends on the program alone, so the output is the same for any number of jobs. Each shard is compiled by a forked
 * child: the IR grows its tables while it is read and belongs to one thread, a child has its own copy for free. What
 * the parent needs to know (phases, scratch sizes, error texts) comes back through shared memory.
 */
#define _GNU_SOURCE
#include "codegen/work.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_SHARDS = 32, SHARD_WEIGHT = 6000, ERROR_TEXT = 1000 };

typedef struct shard {
  cy_kernel_plan **plans;
  uint32_t n;
  uint64_t weight;
  pid_t child; /* 0: not started, -1: done */
  char path[600];
} shard;

/* What a child reports. */
typedef struct report {
  _Atomic int64_t parts[MAX_SHARDS][2]; /* cy_machine.parts */
  char error[MAX_SHARDS][ERROR_TEXT];
  cy_kernel_compiler compiled_by[MAX_SHARDS];
  cy_kernel_code code[];
} report;

/* ---- distribution ---- */

static int by_weight(const void *a, const void *b, void *build) {
  const cy_kernel_plan *plans = ((const cy_work *)build)->plans;
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  uint64_t wx = plans[x].weight, wy = plans[y].weight;
  return wx != wy ? (wx < wy ? 1 : -1) : x < y ? -1 : x > y;
}

static int distribute(cy_work *b, shard *shards) {
  uint64_t total = 0;
  uint32_t *order = malloc((b->nplans + 1) * sizeof *order);
  if (!order)
    cy_no_memory();
  for (uint32_t i = 0; i < b->nplans; i++) {
    order[i] = i;
    total += b->plans[i].weight;
  }
  uint64_t n = total / SHARD_WEIGHT + 1;
  if (cy_emit_class_of(b) == CY_EMIT_CLASS_DEVICE)
    n = 1; /* each would have a head, or a prelude, of its own */
  n = n > MAX_SHARDS ? MAX_SHARDS : n > b->nplans ? b->nplans : n;
  qsort_r(order, b->nplans, sizeof *order, by_weight, b);
  for (uint32_t i = 0; i < b->nplans; i++) {
    shard *min = &shards[0];
    for (uint64_t s = 1; s < n; s++)
      if (shards[s].weight < min->weight)
        min = &shards[s];
    if (!min->plans && !(min->plans = malloc(b->nplans * sizeof *min->plans)))
      cy_no_memory();
    min->plans[min->n++] = &b->plans[order[i]];
    min->weight += b->plans[order[i]].weight;
  }
  free(order);
  return (int)n;
}

/* ---- children ---- */

_Noreturn static void child(cy_work *b, shard *s, int index, int threads, cy_code_kind kind, report *r) {
  char *error = NULL;
  cy_machine machine = *b->machine;
  machine.threads = threads;
  machine.prefix = b->name;
  machine.fast_codegen = b->fast_codegen;
  machine.compiled_by = &r->compiled_by[index];
  machine.parts = b->o->progress ? r->parts[index] : NULL;
  int rc = machine.target->emit(&machine, s->plans, s->n, kind, s->path, &error);
  if (rc)
    snprintf(r->error[index], ERROR_TEXT, "%s", error ? error : "unknown error");
  for (uint32_t i = 0; i < s->n; i++)
    r->code[s->plans[i] - b->plans] = s->plans[i]->code;
  _exit(rc ? 1 : 0);
}

static int start(cy_work *b, shard *s, int index, int threads, cy_code_kind kind, report *r) {
  fflush(stdout); /* what waits there is printed once; other streams may be the caller's */
  s->child = cy_temps_fork();
  if (s->child == 0)
    child(b, s, index, threads, kind, r);
  if (s->child > 0)
    return 0;
  cy_diag_add(b->diag, CY_ERROR, NULL, "cannot start a process: %s", strerror(errno));
  cy_diag_blame(b->diag, CY_CAUSE_MEMORY);
  return -1;
}

/* Why a child has failed. */
static void explain(cy_work *b, const shard *s, int status, const char *error) {
  const char *kernel = cy_kernel_name(s->plans[0]->kernel);
  cy_cause cause = CY_CAUSE_MODEL;
  if (*error) {
    cy_diag_add(b->diag, CY_ERROR, NULL, "kernels cannot be compiled: %s", error);
    cause = cy_code_cause(error);
  } else if (WIFSIGNALED(status)) {
    cy_diag_add(b->diag, CY_ERROR, NULL,
                "the compilation of %u kernels, '%s' first, ended by signal %d: a bug in cytoc or not enough memory",
                s->n, kernel, WTERMSIG(status));
    cause = WTERMSIG(status) == SIGKILL ? CY_CAUSE_MEMORY : CY_CAUSE_BUG;
  } else if (WEXITSTATUS(status) == CY_EXIT_NO_MEMORY) {
    cy_diag_add(b->diag, CY_ERROR, NULL, "out of memory while %u kernels were compiled, '%s' first", s->n, kernel);
    cause = CY_CAUSE_MEMORY;
  } else { /* it has said why */
    cy_diag_add(b->diag, CY_ERROR, NULL, "the compilation of %u kernels, '%s' first, failed", s->n, kernel);
    cause = CY_CAUSE_BUG;
  }
  cy_diag_blame(b->diag, cause);
}

/* Waits for one child of ours; 0, or -1 after a diagnostic. */
static int collect(cy_work *b, shard *shards, int n, report *r) {
  pid_t running[MAX_SHARDS];
  int index[MAX_SHARDS], count = 0;
  for (int i = 0; i < n; i++)
    if (shards[i].child > 0) {
      running[count] = shards[i].child;
      index[count++] = i;
    }
  int i = index[cy_temps_ended(running, count)];
  int status = cy_temps_wait(shards[i].child);
  shards[i].child = -1;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return 0;
  explain(b, &shards[i], status, r->error[i]);
  return -1;
}

/* How many kernels are done: all of shards that are, of others by what their children say. */
static int64_t kernels_done(const shard *shards, int n, const report *r) {
  int64_t done = 0;
  for (int i = 0; i < n; i++) {
    int64_t parts = r->parts[i][0], all = r->parts[i][1];
    done += shards[i].child < 0 ? shards[i].n : all > 0 ? shards[i].n * (parts < all ? parts : all) / all : 0;
  }
  return done;
}

/* Tells how far the children are, until one of them has ended. */
static void watch(cy_work *b, const shard *shards, int n, const report *r, int64_t *told) {
  for (;;) {
    for (int i = 0; i < n; i++) {
      siginfo_t info = {0};
      if (shards[i].child > 0 &&
          (waitid(P_PID, (id_t)shards[i].child, &info, WEXITED | WNOWAIT | WNOHANG) || info.si_pid))
        return;
    }
    int64_t done = kernels_done(shards, n, r);
    if (done > *told)
      cy_work_progress(b, "kernels", *told = done, b->nplans);
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  }
}

static int run_all(cy_work *b, shard *shards, int n, cy_code_kind kind, report *r, int (*meanwhile)(cy_work *b)) {
  int jobs = b->o->jobs > 0 ? b->o->jobs : (int)sysconf(_SC_NPROCESSORS_ONLN), running = 0, rc = 0, next = 0;
  int64_t told = 0;
  int threads = n && jobs > n ? jobs / n : 1; /* what shards leave idle */
  cy_work_progress(b, "kernels", 0, b->nplans);
  for (; next < n && running < jobs && rc == 0; next++) {
    rc = start(b, &shards[next], next, threads, kind, r);
    running += rc == 0;
  }
  if (rc == 0 && meanwhile)
    rc = meanwhile(b);
  while (running > 0) {
    if (b->o->progress)
      watch(b, shards, next, r, &told);
    if (collect(b, shards, next, r))
      rc = -1;
    running--;
    int64_t done = kernels_done(shards, n, r);
    if (rc == 0 && done > told)
      cy_work_progress(b, "kernels", told = done, b->nplans);
    if (rc == 0 && next < n) {
      rc = start(b, &shards[next], next, threads, kind, r);
      next++;
      running += rc == 0;
    }
  }
  return rc;
}

int cy_shards_emit(cy_work *b, cy_code_kind kind, int (*meanwhile)(cy_work *b)) {
  static const char *const ending[] = {"o", "s", "ll", "cubin"};
  shard *shards = calloc(MAX_SHARDS, sizeof *shards);
  size_t bytes = sizeof(report) + (b->nplans + 1) * sizeof(cy_kernel_code);
  report *r = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (!shards || r == MAP_FAILED)
    cy_no_memory();
  int n = b->nplans ? distribute(b, shards) : 0;
  for (int i = 0; i < n; i++) {
    char name[32];
    snprintf(name, sizeof name, "kernels%d.%s", i, ending[kind]);
    snprintf(shards[i].path, sizeof shards[i].path, "%s", cy_temps_file(b->temps, name));
    cy_work_add_object(b, shards[i].path);
  }
  int rc = run_all(b, shards, n, kind, r, meanwhile);
  for (uint32_t i = 0; i < b->nplans; i++)
    b->plans[i].code = r->code[i];
  b->compiled_by = r->compiled_by[0];
  for (int i = 0; i < n; i++)
    free(shards[i].plans);
  free(shards);
  munmap(r, bytes);
  return rc;
}
