/* SPDX-License-Identifier: Apache-2.0 */
/* pack.c - puts constant weights into the order in which the micro-kernels read them; the layout is described in contract.h.
 *
 * Comes in: a layout (cy_gemm_layout, cy_conv_layout) and where each weight lies. Goes out: weights of the same type,
 * floats or halves, written by ranges of units so that several threads can share the work. Columns beyond n are zero, so
 * that no micro-kernel needs a mask.
 */
#include "contract.h"

#include <string.h>

/* Is there but one unit? */
static bool is_whole(const cy_pack_layout *l) { return l->depthwise || l->lane_reduce; }

int64_t cy_pack_units(const cy_pack_layout *l) { return is_whole(l) ? 1 : l->groups * cy_pack_panels(l); }

/* With merged groups a column sees the channels of its own group only, with places the taps of its own place, and
 * `out` stays as it is elsewhere. */
static void put_weight(const cy_pack_layout *l, const cy_pack_source *s, int64_t group, int64_t n, int64_t tap,
                       int64_t c, char *out) {
  if (l->depth > 1) {
    tap += c / (l->c / l->depth) * l->taps;
    c %= l->c / l->depth;
  }
  int64_t columns = l->places ? l->n / l->places : l->n, place = n / columns;
  int64_t source_tap = s->tap_map ? s->tap_map[place * l->taps + tap] : tap;
  if (source_tap < 0)
    return;
  n %= columns;
  if (l->merged > 1) {
    int64_t n1 = l->n / l->merged, c1 = l->c / l->merged;
    if (n / n1 != c / c1)
      return;
    group = group * l->merged + n / n1;
    n %= n1;
    c %= c1;
  }
  int64_t at = group * s->gs + n * s->ns + source_tap * s->ts + c * s->cs;
  if (l->weights == CY_WEIGHTS_F32)
    memcpy(out, (const char *)s->w + at * 4, 4);
  else
    memcpy(out, (const char *)s->w + at * 2, 2);
}

static int64_t panel_columns(const cy_pack_layout *l, int64_t panel) {
  return l->last && panel == cy_pack_panels(l) - 1 ? l->last : l->nr;
}

/* One weight of a panel: its columns. */
static void pack_row(const cy_pack_layout *l, const cy_pack_source *s, int64_t group, int64_t panel, int64_t t,
                     int64_t c, char *out) {
  int64_t n0 = panel * l->nr, bytes = cy_weight_bytes(l->weights);
  memset(out, 0, (size_t)(panel_columns(l, panel) * bytes));
  for (int64_t j = 0; j < l->nr && n0 + j < l->n; j++)
    put_weight(l, s, group, n0 + j, t, c, out + j * bytes);
}

static void pack_block(const cy_pack_layout *l, const cy_pack_source *s, int64_t group, int64_t panel,
                       const int64_t range[4], char *out) {
  int64_t row = panel_columns(l, panel) * cy_weight_bytes(l->weights);
  for (int64_t t = range[0]; t < range[1]; t++)
    for (int64_t c = range[2]; c < range[3]; c++, out += row)
      pack_row(l, s, group, panel, t, c, out);
}

/* 3x3 filters. The kernel's transforms leave out a factor of 36 (winograd.c); halves would be rounded by it once more, and
 * are divided when they are loaded. */
static void pack_filters(const cy_pack_layout *l, const cy_pack_source *s, int64_t panel, char *out) {
  for (int64_t c = 0; c < l->c; c++)
    for (int64_t t = 0; t < l->taps; t++, out += l->nr * cy_weight_bytes(l->weights)) {
      pack_row(l, s, 0, panel, t, c, out);
      for (int64_t j = 0; l->weights == CY_WEIGHTS_F32 && j < l->nr; j++)
        ((float *)(void *)out)[j] /= 36;
    }
}

static void pack_panel(const cy_pack_layout *l, const cy_pack_source *s, int64_t group, int64_t panel, char *out) {
  int64_t k0 = 0, bytes = cy_weight_bytes(l->weights), row = l->nr * bytes, all = cy_pack_columns(l) * bytes;
  out += group * l->taps * l->c * all;
  if (l->winograd) {
    pack_filters(l, s, panel, out + panel * l->c * l->taps * row);
    return;
  }
  for (int64_t t = 0; t < l->taps; t += l->tap_block)
    for (int64_t c = 0; c < l->c; c += l->c_block) {
      int64_t t1 = t + l->tap_block < l->taps ? t + l->tap_block : l->taps;
      int64_t c1 = c + l->c_block < l->c ? c + l->c_block : l->c;
      int64_t range[4] = {t, t1, c, c1}, k = (t1 - t) * (c1 - c);
      pack_block(l, s, group, panel, range, out + k0 * all + panel * k * row);
      k0 += k;
    }
}

static void pack_depthwise(const cy_pack_layout *l, const cy_pack_source *s, char *out) {
  int64_t bytes = cy_weight_bytes(l->weights), width = cy_round_up(l->groups * l->n, l->nr) * bytes;
  memset(out, 0, (size_t)(l->taps * l->c * width));
  for (int64_t t = 0; t < l->taps; t++)
    for (int64_t c = 0; c < l->c; c++, out += width)
      for (int64_t i = 0; i < l->groups * l->n; i++)
        put_weight(l, s, i / l->n, i % l->n, t, c, out + i * bytes);
}

static void pack_lane_reduce(const cy_pack_layout *l, const cy_pack_source *s, char *out) {
  memset(out, 0, (size_t)l->bytes);
  for (int64_t t = 0; t < l->taps; t++)
    for (int64_t c0 = 0; c0 < l->c; c0 += l->lane_reduce)
      for (int64_t n = 0; n < l->nr; n++)
        for (int64_t c = c0; c < c0 + l->lane_reduce; c++, out += cy_weight_bytes(l->weights))
          if (n < l->n)
            put_weight(l, s, 0, n, t, c, out);
}

void cy_pack_run(const cy_pack_layout *l, const cy_pack_source *s, int64_t begin, int64_t end, void *out) {
  if (is_whole(l)) {
    if (begin < end)
      (l->lane_reduce ? pack_lane_reduce : pack_depthwise)(l, s, out);
    return;
  }
  int64_t panels = cy_pack_panels(l);
  for (int64_t u = begin; u < end; u++)
    pack_panel(l, s, u / panels, u % panels, out);
}

void cy_packing_single(cy_packing *out, cy_arena *arena, cy_pack_layout layout, const int32_t *tap_map) {
  cy_pack_part part = {layout, 0, tap_map};
  *out = (cy_packing){.bytes = layout.bytes, .n_parts = 1, .part = cy_arena_copy(arena, &part, sizeof part)};
}
