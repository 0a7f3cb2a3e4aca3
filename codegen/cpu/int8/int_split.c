/* SPDX-License-Identifier: Apache-2.0 */
/* int_split.c - cuts constant 8-bit weights into parts whose products do not saturate, and measures weights.
 *
 * Comes in: a layout and where each weight lies. Goes out: panels of s8 by pack.c, split, behind each the groups of k that come
 * again with their second parts; in front of them which those are; behind all matrices the sums of columns (int_gemm.h).
 */
#include "int_gemm.h"

#include <stdlib.h>
#include <string.h>

/* Pairs take 1.25 times as long, measured on Zen 3; what comes again is read by way of its offsets. */
bool cy_int_gemm_split_pays(const cy_pack_layout *l, int64_t again) {
  return again * 6 <= cy_int_gemm_groups_before(l->order, cy_pack_panels(l));
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

/* Panels are not split narrower: `last` is NR. */
static int32_t *panel_create(const cy_pack_layout *l, int64_t panel, cy_int_gemm_runs *out_runs) {
  *out_runs = cy_int_gemm_runs_of(l->order, panel);
  int32_t *ints = malloc((size_t)(out_runs->runs * out_runs->groups * l->nr * l->step + 1) * sizeof *ints);
  if (!ints)
    cy_no_memory();
  return ints;
}

/* A panel at `out`, if any; returns how many groups come again, whose offsets go to `again`. sums: of its columns, NULL: not
 * wanted. */
static int64_t split_panel(const cy_pack_layout *l, const cy_pack_source *s, int64_t matrix, int64_t panel, int8_t *out,
                           int32_t *again, int32_t *sums) {
  cy_int_gemm_runs r;
  int32_t *left = panel_create(l, panel, &r);
  int8_t unused[MAX_NR * 4];
  int64_t groups = cy_pack_panel(l, s, matrix, panel, left), size = (int64_t)l->nr * 4, count = 0;
  for (int64_t i = 0; sums && i < groups * size; i++)
    sums[i % size / 4] += left[i];
  for (int64_t g = 0; g < groups; g++) {
    int64_t tap = cy_int_gemm_run_tap(l->order, &r, g / r.groups);
    for (bool more = split_group(left + g * size, size, out ? out + g * size : unused); more; count++) {
      if (out)
        again[count] = (int32_t)(tap * l->c + 4 * (g % r.groups));
      more = split_group(left + g * size, size, out ? out + (groups + count) * size : unused);
    }
  }
  free(left);
  return count;
}

int64_t cy_int_gemm_head_bytes(int64_t panels, int64_t again) { return cy_round_up((panels + 1 + again) * 4, 64); }

int64_t cy_int_gemm_again(const cy_pack_layout *l, const cy_pack_source *s) {
  int64_t max = 0;
  for (int64_t m = 0; m < l->groups; m++) {
    int64_t sum = 0;
    for (int64_t q = 0; q < cy_pack_panels(l); q++)
      sum += split_panel(l, s, m, q, NULL, NULL, NULL);
    max = sum > max ? sum : max;
  }
  return max;
}

static void split_matrix(const cy_pack_layout *l, const cy_pack_source *s, int64_t matrix, char *out) {
  int64_t panels = cy_pack_panels(l), size = (int64_t)l->nr * 4;
  char *head = out + matrix * l->group_bytes;
  memset(head, 0, (size_t)l->group_bytes);
  int32_t *first = (int32_t *)(void *)head, *again = first + panels + 1, *sums = NULL;
  int8_t *to = (int8_t *)head + cy_int_gemm_head_bytes(panels, l->again);
  if (l->sum_columns) {
    sums = (int32_t *)(void *)(out + l->groups * l->group_bytes) + matrix * l->sum_columns;
    memset(sums, 0, (size_t)l->sum_columns * sizeof *sums);
  }
  for (int64_t q = 0; q < panels; q++) {
    int64_t count = split_panel(l, s, matrix, q, to, again + first[q], sums ? sums + q * l->nr : NULL);
    first[q + 1] = first[q] + (int32_t)count;
    cy_int_gemm_runs r = cy_int_gemm_runs_of(l->order, q);
    to += (r.runs * r.groups + count) * size;
  }
}

void cy_int_split_run(const cy_pack_layout *l, const cy_pack_source *s, int64_t begin, int64_t end, void *out) {
  for (int64_t m = begin; m < end; m++)
    split_matrix(l, s, m, out);
}

/* ---- how large sums may become ---- */

int64_t cy_int_gemm_largest_sum(const cy_pack_layout *l, const cy_pack_source *s) {
  int64_t max = 0;
  for (int64_t u = 0; u < l->groups * cy_pack_panels(l); u++) {
    cy_int_gemm_runs r;
    int32_t *w = panel_create(l, u % cy_pack_panels(l), &r);
    int64_t panel = u % cy_pack_panels(l), sum[2 * MAX_NR] = {0};
    int64_t groups = cy_pack_panel(l, s, u / cy_pack_panels(l), panel, w), nr = cy_pack_panel_columns(l, panel);
    for (int64_t i = 0; i < groups * nr * l->step; i++)
      sum[i / l->step % nr * 2 + (w[i] < 0)] += abs(w[i]);
    for (int64_t j = 0; j < 2 * nr; j++)
      max = sum[j] > max ? sum[j] : max;
    free(w);
  }
  return max;
}
