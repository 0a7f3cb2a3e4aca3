/* SPDX-License-Identifier: Apache-2.0 */
/* settings_choose.c - which of the measured settings is taken: a function of the measurements and the limits alone. */
#include "settings.h"

#include "ir/clock.h"

#include <stddef.h>
#include <stdlib.h>

/* What is ahead by less is not worth more threads or memory, and may be behind the next time. */
static const double NOISE = 0.02;

static bool same(cy_setting a, cy_setting b) {
  return a.threads == b.threads && a.contexts == b.contexts && a.batch == b.batch;
}

cy_setting_point *cy_setting_find(const cy_setting_points *points, cy_setting s) {
  for (int i = 0; i < points->n; i++)
    if (same(points->list[i].s, s))
      return &points->list[i];
  return NULL;
}

cy_setting_point *cy_setting_put(cy_setting_points *points, cy_setting s) {
  cy_setting_point *found = cy_setting_find(points, s);
  if (found)
    return found;
  cy_setting_point *list = realloc(points->list, ((size_t)points->n + 1) * sizeof *list);
  if (!list)
    abort();
  points->list = list;
  list[points->n] = (cy_setting_point){.s = s};
  return &list[points->n++];
}

cy_setting_sample cy_setting_median(const cy_setting_point *p) {
  static const size_t at[] = {
#define X(name) offsetof(cy_setting_sample, name),
      CY_SETTING_FIELDS(X)
#undef X
  };
  cy_setting_sample out = {0};
  for (size_t f = 0; f < sizeof at / sizeof *at && p->n; f++) {
    double values[CY_SETTING_SAMPLES];
    for (int i = 0; i < p->n; i++)
      values[i] = *(const double *)((const char *)&p->samples[i] + at[f]);
    cy_numbers_sort(values, (size_t)p->n);
    *(double *)((char *)&out + at[f]) = values[p->n / 2];
  }
  return out;
}

bool cy_setting_fits(const cy_setting_point *p, const cy_setting_limits *limits) {
  cy_setting_sample m = cy_setting_median(p);
  return p->n && (limits->memory_kb <= 0 || m.peak_kb <= limits->memory_kb) &&
         (limits->latency_ms <= 0 || m.p95_ms <= limits->latency_ms);
}

/* Does a need less than b? Settings that are not the same differ here, so that the order of points never matters. */
static bool is_cheaper(const cy_setting_point *a, const cy_setting_point *b) {
  int x = a->s.threads * a->s.contexts, y = b->s.threads * b->s.contexts;
  double p = cy_setting_median(a).peak_kb, q = cy_setting_median(b).peak_kb;
  return x != y                     ? x < y
         : p != q                   ? p < q
         : a->s.batch != b->s.batch ? a->s.batch < b->s.batch
                                    : a->s.contexts < b->s.contexts;
}

const cy_setting_point *cy_setting_choose(const cy_setting_points *points, const cy_setting_limits *limits) {
  const cy_setting_point *best = NULL;
  double rate = 0;
  for (int i = 0; i < points->n; i++) {
    double r = cy_setting_fits(&points->list[i], limits) ? cy_setting_median(&points->list[i]).rate : 0;
    rate = r > rate ? r : rate;
  }
  for (int i = 0; i < points->n; i++) {
    const cy_setting_point *p = &points->list[i];
    if (cy_setting_fits(p, limits) && cy_setting_median(p).rate >= rate * (1 - NOISE) && (!best || is_cheaper(p, best)))
      best = p;
  }
  return best;
}

const cy_setting_point *cy_setting_quickest(const cy_setting_points *points) {
  const cy_setting_point *best = NULL;
  for (int i = 0; i < points->n; i++)
    if (points->list[i].n && (!best || cy_setting_median(&points->list[i]).p95_ms < cy_setting_median(best).p95_ms))
      best = &points->list[i];
  return best;
}

const cy_setting_point *cy_setting_smallest(const cy_setting_points *points) {
  const cy_setting_point *best = NULL;
  for (int i = 0; i < points->n; i++)
    if (points->list[i].n && (!best || cy_setting_median(&points->list[i]).peak_kb < cy_setting_median(best).peak_kb))
      best = &points->list[i];
  return best;
}
