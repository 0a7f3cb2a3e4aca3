/* SPDX-License-Identifier: Apache-2.0 */
/* int_pack.c - puts constant 8-bit weights into the order in which int_kernel.c reads them; the layout is described in
 * int_gemm.h.
 *
 * Comes in: a layout and where each weight lies. Goes out: panels of s8 or i16, for dot4 with the sums of the columns
 * behind them, cut where the layout says so. Columns beyond the last and k beyond the last are zero, so that no
 * micro-kernel needs a mask.
 */
#include "int_gemm.h"

#include <stdlib.h>
#include <string.h>

static int64_t panels_of(const cy_int_gemm_layout *l) { return cy_ceil(l->n, l->nr); }

static int32_t weight_at(const cy_int_gemm_source *s, int64_t at) {
  const uint8_t *p = (const uint8_t *)s->w + at * (s->bits / 8);
  int16_t wide;
  if (s->bits == 8)
    return s->is_signed ? (int8_t)*p : *p;
  memcpy(&wide, p, sizeof wide);
  return wide;
}

static void store(const cy_int_gemm_layout *l, void *panels, int64_t at, int32_t v) {
  if (l->wide)
    ((int16_t *)panels)[at] = (int16_t)v;
  else
    ((int8_t *)panels)[at] = (int8_t)v;
}

/* A column whose elements begin at `from`, of a panel of nr; returns its sum. at: where its first element goes. */
static int32_t pack_column(const cy_int_gemm_layout *l, const cy_int_gemm_source *s, const cy_int_gemm_runs *r,
                           int64_t from, int64_t nr, void *panels, int64_t at) {
  const int64_t last = l->step - 1, next = nr * l->step - last;
  int32_t sum = 0;
  for (int64_t run = 0; run < r->runs; run++) {
    int64_t tap = cy_int_gemm_run_tap(&l->order, r, run), to = at + run * r->groups * nr * l->step;
    for (int64_t t = 0, k = 0; t < r->taps; t++)
      for (int64_t c = 0; c < l->c; c++, k++) {
        int32_t v = weight_at(s, from + (tap + t) * s->ts + c * s->cs);
        store(l, panels, to, v);
        to += (k & last) == last ? next : 1; /* step is a power of two */
        sum += v;
      }
  }
  return sum;
}

static int32_t *sums_of(const cy_int_gemm_layout *l, int64_t matrix, void *out) {
  return (int32_t *)((char *)out + l->matrices * l->matrix_bytes) + matrix * l->sum_columns;
}

/* ---- split weights ---- */

/* Pairs take 1.25 times as long, measured on Zen 3; what comes again is read by way of its offsets. */
bool cy_int_gemm_split_pays(const cy_int_gemm_layout *l, int64_t again) {
  int64_t groups = cy_int_gemm_groups_before(&l->order, panels_of(l));
  return again * 6 <= groups;
}

enum { MAX_NR = 128, MAX_SUM = 32767 / 255, MAX_PART = MAX_SUM / 2 };

static int32_t nearest(int32_t v, int32_t max) { return v > max ? max : v < -max ? -max : v; }

/* Takes a part out of a pair of weights. */
static void split_pair(int32_t w[2], int8_t part[2]) {
  bool fits = abs(w[0]) + abs(w[1]) <= MAX_SUM && w[0] <= INT8_MAX && w[1] <= INT8_MAX;
  for (int i = 0; i < 2; i++) {
    part[i] = (int8_t)(fits ? w[i] : nearest(w[i], MAX_PART));
    w[i] -= part[i];
  }
}

/* The next part of a group's weights; true: something is left of them. */
static bool split_group(int32_t *left, int64_t n, int8_t *part) {
  int32_t rest = 0;
  for (int64_t i = 0; i < n; i += 2) {
    split_pair(left + i, part + i);
    rest |= left[i] | left[i + 1];
  }
  return rest != 0;
}

/* Group g of the run that begins with `tap`, of the panel that begins with column n0. */
static void load_group(const cy_int_gemm_layout *l, const cy_int_gemm_source *s, const cy_int_gemm_runs *r, int64_t tap,
                       int64_t from, int64_t n0, int64_t g, int32_t *w) {
  for (int64_t i = 0; i < (int64_t)l->nr * 4; i++) {
    int64_t n = n0 + i / 4, k = g * 4 + i % 4;
    bool there = n < l->n && k < r->taps * l->c;
    w[i] = there ? weight_at(s, from + n * s->ns + (tap + k / l->c) * s->ts + k % l->c * s->cs) : 0;
  }
}

/* A panel at `out`, if any; returns how many groups come again, whose offsets go to `again`. */
static int64_t split_panel(const cy_int_gemm_layout *l, const cy_int_gemm_source *s, int64_t matrix, int64_t panel,
                           int8_t *out, int32_t *again) {
  int32_t left[MAX_NR * 4];
  int8_t unused[MAX_NR * 4];
  cy_int_gemm_runs r = cy_int_gemm_runs_of(&l->order, panel);
  int64_t groups = r.runs * r.groups, size = (int64_t)l->nr * 4, count = 0;
  for (int64_t g = 0; g < groups; g++) {
    int64_t tap = cy_int_gemm_run_tap(&l->order, &r, g / r.groups);
    load_group(l, s, &r, tap, matrix * s->gs, panel * l->nr, g % r.groups, left);
    for (bool more = split_group(left, size, out ? out + g * size : unused); more; count++) {
      if (out)
        again[count] = (int32_t)(tap * l->c + 4 * (g % r.groups));
      more = split_group(left, size, out ? out + (groups + count) * size : unused);
    }
  }
  return count;
}

int64_t cy_int_gemm_head_bytes(int64_t panels, int64_t again) { return cy_round_up((panels + 1 + again) * 4, 64); }

int64_t cy_int_gemm_again(const cy_int_gemm_layout *l, const cy_int_gemm_source *s) {
  int64_t max = 0;
  for (int64_t m = 0; m < l->matrices; m++) {
    int64_t sum = 0;
    for (int64_t q = 0; q < panels_of(l); q++)
      sum += split_panel(l, s, m, q, NULL, NULL);
    max = sum > max ? sum : max;
  }
  return max;
}

static void pack_split(const cy_int_gemm_layout *l, const cy_int_gemm_source *s, int64_t matrix, void *out) {
  int64_t panels = panels_of(l), size = (int64_t)l->nr * 4, k = l->taps * l->c;
  char *head = (char *)out + matrix * l->matrix_bytes;
  memset(head, 0, (size_t)l->matrix_bytes);
  int32_t *first = (int32_t *)(void *)head, *again = first + panels + 1;
  int8_t *to = (int8_t *)head + cy_int_gemm_head_bytes(panels, l->again);
  for (int64_t q = 0; q < panels; q++) {
    int64_t count = split_panel(l, s, matrix, q, to, again + first[q]);
    first[q + 1] = first[q] + (int32_t)count;
    cy_int_gemm_runs r = cy_int_gemm_runs_of(&l->order, q);
    to += (r.runs * r.groups + count) * size;
  }
  int32_t *sums = l->sums ? sums_of(l, matrix, out) : NULL;
  for (int64_t n = 0; sums && n < panels * l->nr; n++) {
    sums[n] = 0;
    for (int64_t i = 0; n < l->n && i < k; i++)
      sums[n] += weight_at(s, matrix * s->gs + n * s->ns + i / l->c * s->ts + i % l->c * s->cs);
  }
}

/* ---- the other forms ---- */

static void pack_matrix(const cy_int_gemm_layout *l, const cy_int_gemm_source *s, int64_t matrix, void *out) {
  int32_t *sums = l->sums ? sums_of(l, matrix, out) : NULL;
  char *panels = (char *)out + matrix * l->matrix_bytes;
  memset(panels, 0, (size_t)l->matrix_bytes);
  if (sums)
    memset(sums, 0, (size_t)l->sum_columns * sizeof *sums);
  for (int64_t q = 0, at = 0; q < panels_of(l); q++) {
    cy_int_gemm_runs r = cy_int_gemm_runs_of(&l->order, q);
    int64_t n0 = q * l->nr, nr = q == panels_of(l) - 1 ? l->last : l->nr;
    for (int64_t n = n0; n < n0 + l->nr && n < l->n; n++) {
      int32_t sum = pack_column(l, s, &r, matrix * s->gs + n * s->ns, nr, panels, at + (n - n0) * l->step);
      if (sums)
        sums[n] = sum;
    }
    at += r.runs * r.groups * nr * l->step;
  }
}

static void pack_depthwise(const cy_int_gemm_layout *l, const cy_int_gemm_source *s, void *out) {
  memset(out, 0, (size_t)l->bytes);
  for (int64_t n = 0; n < l->n; n++)
    for (int64_t t = 0; t < l->taps; t++)
      store(l, out, (n / l->nr * l->taps + t) * l->nr + n % l->nr, weight_at(s, n * s->gs + t * s->ts));
}

static void pack_winograd(const cy_int_gemm_layout *l, const cy_int_gemm_source *s, void *out) {
  int64_t nr = l->nr, panel = l->c * l->taps * nr;
  memset(out, 0, (size_t)l->bytes);
  for (int64_t n = 0; n < l->n; n++)
    for (int64_t c = 0; c < l->c; c++) {
      int8_t *to = (int8_t *)out + n / nr * panel + c / 2 * l->taps * nr * 2 + n % nr * 2 + c % 2;
      for (int64_t t = 0; t < l->taps; t++)
        to[t * nr * 2] = (int8_t)weight_at(s, n * s->ns + t * s->ts + c * s->cs);
    }
}

int64_t cy_int_gemm_largest_sum(const cy_int_gemm_layout *l, const cy_int_gemm_source *s) {
  int64_t max = 0;
  for (int64_t i = 0; i < l->matrices * l->n; i++) {
    int64_t sum[2] = {0, 0}, from = i / l->n * s->gs + i % l->n * s->ns;
    for (int64_t k = 0; k < l->taps * l->c; k++) {
      int32_t v = weight_at(s, from + k / l->c * s->ts + k % l->c * s->cs);
      sum[v < 0] += abs(v);
    }
    max = sum[0] > max ? sum[0] : max;
    max = sum[1] > max ? sum[1] : max;
  }
  return max;
}

void cy_int_gemm_pack(const cy_int_gemm_layout *l, const cy_int_gemm_source *s, void *out) {
  if (l->depthwise)
    pack_depthwise(l, s, out);
  if (l->winograd)
    pack_winograd(l, s, out);
  for (int64_t m = 0; m < l->matrices && !l->depthwise && !l->winograd; m++)
    (l->split ? pack_split : pack_matrix)(l, s, m, out);
}
