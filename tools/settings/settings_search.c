/* SPDX-License-Identifier: Apache-2.0 */
/* settings_search.c - which settings are measured, each by processes of its own.
 *
 * In:  a task with its limits, and what was measured before.
 * Out: more points; after each process they are handed to the task's keep().
 *
 *   1. every number of threads and contexts that the CPUs hold, powers of two and all of them, at batch 1
 *   2. for the best four of these, batches that double until one is beyond a limit or two bring nothing; then those half way
 *      between the best one and its neighbours
 *   3. the best three of all are measured twice more, in turns, so that luck does not decide
 */
#include "settings.h"

#include "ir/clock.h"
#include "tools/process.h"

#include <stdlib.h>
#include <string.h>

enum { FINALISTS = 3, WIDE = 4, MAX_BATCH = 65536, MAX_PLANS = 64, WITHOUT_GAIN = 2 };
static const double GAIN = 1.02; /* what brings less brings nothing */

typedef struct search {
  const cy_setting_task *task;
  cy_setting_points *points;
  int done, status; /* status: of keep() */
} search;

static bool is_over(const search *s) {
  return s->status || *s->task->stop || (s->task->end_ms > 0 && cy_clock_ms() > s->task->end_ms);
}

/* ---- one process ---- */

static int sample_read(const char *text, cy_setting_sample *out) {
  int at = 0, read = 0;
#define X(name)                                                                                                        \
  if (sscanf(text + at, "%lf%n", &out->name, &read) != 1)                                                              \
    return -1;                                                                                                         \
  at += read;
  CY_SETTING_FIELDS(X)
#undef X
  return 0;
}

static void process_args_of(const search *s, cy_setting what, process_args *a, char texts[4][32], char dim[96]) {
  const cy_setting_task *t = s->task;
  snprintf(texts[0], 32, "%d", what.threads);
  snprintf(texts[1], 32, "%d", what.contexts);
  snprintf(texts[2], 32, "%lld", (long long)what.batch);
  snprintf(texts[3], 32, "%g", t->seconds);
  const char *words[] = {t->self, "--child", t->library, texts[0], texts[1], texts[2], texts[3], t->seed};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    process_arg(a, words[i]);
  if (what.batch) {
    snprintf(dim, 96, "%s=%lld", t->symbol, (long long)what.batch);
    process_arg(a, "--dim");
    process_arg(a, dim);
  }
  for (int i = 0; i < t->pairs.n; i++) {
    process_arg(a, t->pairs.option[i]);
    process_arg(a, t->pairs.text[i]);
  }
  /* far beyond the limit the system refuses memory, so that the machine stays usable */
  if (t->limits.memory_kb > 0 && !t->device)
    a->data_kb = 2 * t->limits.memory_kb + (512 << 10);
}

/* Cut between characters, as a file of JSON has no others. */
static void failure_write(char why[CY_SETTING_WHY], int status, const char *text) {
  process_failure(why, CY_SETTING_WHY, "does not run", status, text, true);
  size_t n = strlen(why);
  if (n < CY_SETTING_WHY - 1)
    return;
  while (n && ((unsigned char)why[n - 1] & 0xc0) == 0x80)
    n--;
  if (n && (unsigned char)why[n - 1] >= 0xc0)
    why[n - 1] = 0;
}

/* Adds a sample to the point. False: it is over, and nothing was added. */
static bool measure(search *s, cy_setting what) {
  char texts[4][32], dim[96], out[2048];
  process_args a = {0};
  cy_setting_sample sample;
  if (is_over(s))
    return false;
  terminal_progress_show(s->task->progress, "setting", s->done++, 0);
  process_args_of(s, what, &a, texts, dim);
  int status = process_run(&a, out, sizeof out);
  if (*s->task->stop)
    return false; /* the signal has ended the process, too */
  cy_setting_point *p = cy_setting_put(s->points, what);
  if (!status && !sample_read(out, &sample))
    p->samples[p->n++] = sample;
  else
    failure_write(p->why, status, out);
  s->status = s->task->keep(s->task->ctx, s->points);
  return !s->status;
}

static const cy_setting_point *point_of(search *s, cy_setting what) {
  cy_setting_point *known = cy_setting_find(s->points, what);
  return known ? known : measure(s, what) ? cy_setting_find(s->points, what) : NULL;
}

static double rate_of(search *s, cy_setting what) {
  const cy_setting_point *p = point_of(s, what);
  return p && cy_setting_fits(p, &s->task->limits) ? cy_setting_median(p).rate : 0;
}

/* ---- threads and contexts ---- */

typedef struct plan {
  cy_setting s;
  double rate;
} plan;

/* 1, 2, 4 .. and `max` itself. */
static int step_from(int n, int max) { return n < max && 2 * n > max ? max : 2 * n; }

static int plans_make(const cy_setting_task *t, plan *list) {
  int n = 0, max = t->device ? 4 : t->cpus;
  for (int threads = 1; threads <= max; threads = step_from(threads, max))
    for (int contexts = 1; contexts * threads <= max && n < MAX_PLANS; contexts = step_from(contexts, max / threads))
      if (!t->device || threads == 1)
        list[n++] = (plan){{t->device ? 0 : threads, contexts, t->symbol ? 1 : 0}, 0};
  return n;
}

/* The highest rate first; of equal ones the fewest threads. */
static int by_rate(const void *x, const void *y) {
  const plan *a = x, *b = y;
  int cpus = a->s.threads * a->s.contexts - b->s.threads * b->s.contexts;
  return a->rate != b->rate ? (a->rate < b->rate ? 1 : -1) : cpus ? cpus : a->s.contexts - b->s.contexts;
}

/* ---- batches ---- */

static void batches_search(search *s, plan *p) {
  cy_setting at = p->s, best = p->s;
  double rate = p->rate;
  for (int idle = 0; at.batch < MAX_BATCH && idle < WITHOUT_GAIN && !is_over(s);) {
    at.batch *= 2;
    double r = rate_of(s, at);
    if (r <= 0)
      break; /* beyond a limit: so are larger ones */
    idle = r > rate * GAIN ? 0 : idle + 1;
    if (r > rate) {
      rate = r;
      best = at;
    }
  }
  for (int side = -1; side <= 1 && best.batch > 2; side += 2) {
    at.batch = side < 0 ? best.batch * 3 / 4 : best.batch * 3 / 2;
    rate_of(s, at);
  }
}

static int points_by_rate(const void *x, const void *y) {
  const cy_setting_point *a = *(cy_setting_point *const *)x, *b = *(cy_setting_point *const *)y;
  double p = cy_setting_median(a).rate, q = cy_setting_median(b).rate;
  return p != q ? (p < q ? 1 : -1) : 0;
}

static void finals(search *s) {
  cy_setting_point **fit = malloc(sizeof *fit * ((size_t)s->points->n + 1));
  cy_setting best[FINALISTS];
  int n = 0;
  for (int i = 0; fit && i < s->points->n; i++)
    if (cy_setting_fits(&s->points->list[i], &s->task->limits))
      fit[n++] = &s->points->list[i];
  if (n)
    qsort(fit, (size_t)n, sizeof *fit, points_by_rate);
  n = n < FINALISTS ? n : FINALISTS;
  for (int i = 0; i < n; i++)
    best[i] = fit[i]->s;
  free(fit);
  for (int round = 1; round < CY_SETTING_SAMPLES; round++)
    for (int i = 0; i < n; i++)
      if (cy_setting_find(s->points, best[i])->n == round)
        measure(s, best[i]);
}

int cy_setting_search(const cy_setting_task *task, cy_setting_points *points) {
  search s = {task, points, 0, 0};
  plan plans[MAX_PLANS];
  int n = plans_make(task, plans);
  for (int i = 0; i < n && !is_over(&s); i++)
    plans[i].rate = rate_of(&s, plans[i].s);
  qsort(plans, (size_t)n, sizeof *plans, by_rate);
  for (int i = 0; task->symbol && i < n && i < WIDE && plans[i].rate > 0; i++)
    batches_search(&s, &plans[i]);
  finals(&s);
  return s.status ? -1 : is_over(&s);
}
