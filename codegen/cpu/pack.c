/* SPDX-License-Identifier: Apache-2.0 */
/* pack.c - puts constant weights into the order in which the micro-kernels read them; the layout is described in contract.h.
 *
 * Comes in: a layout and where each weight lies. Goes out: weights of the same type, floats or halves, or integers of 8 or 16
 * bits and the sums of their columns, written by ranges of panels so that several threads can share the work.
 * One loop does all of them, over the blocks of K of a panel and their k. Layouts differ in what a block is (block_of), which
 * weights a column sees (column_of), and how an element is stored (ELEMENT). What a column does not see, columns beyond n and
 * k beyond a block's are zero, so that no micro-kernel needs a mask.
 */
#include "contract.h"
#include "int8/int_gemm.h"

#include <stdlib.h>
#include <string.h>

/* ---- elements ---- */

/* Elements `at` of w, n of them, to `out`, every step-th; at -1: nothing is stored. */
typedef void element(const char *w, const int64_t *at, int64_t n, int64_t step, char *out);

#define ELEMENT(name, from, to, value)                                                                                 \
  static void name(const char *w, const int64_t *at, int64_t n, int64_t step, char *out) {                             \
    for (int64_t j = 0; j < n; j++, out += step * (int64_t)sizeof(to)) {                                               \
      from x;                                                                                                          \
      if (at[j] < 0)                                                                                                   \
        continue;                                                                                                      \
      memcpy(&x, w + at[j] * (int64_t)sizeof x, sizeof x);                                                             \
      to y = (to)(value);                                                                                              \
      memcpy(out, &y, sizeof y);                                                                                       \
    }                                                                                                                  \
  }
ELEMENT(copy_1, uint8_t, uint8_t, x)
ELEMENT(copy_2, uint16_t, uint16_t, x)
ELEMENT(copy_4, uint32_t, uint32_t, x)
/* The transforms of Winograd's algorithm leave out a factor of 36 (winograd.c); halves would be rounded by it once more, and
 * are divided when they are loaded. */
ELEMENT(filter, float, float, x / 36)
ELEMENT(signed_2, int8_t, int16_t, x)
ELEMENT(unsigned_2, uint8_t, int16_t, x)
ELEMENT(signed_4, int8_t, int32_t, x)
ELEMENT(unsigned_4, uint8_t, int32_t, x)
ELEMENT(words_4, int16_t, int32_t, x)

static int64_t source_bytes(const cy_pack_layout *l, const cy_pack_source *s) {
  return s->bits ? s->bits / 8 : cy_weight_bytes(l->weights);
}

/* bytes: of a stored element. */
static element *element_of(const cy_pack_layout *l, const cy_pack_source *s, int64_t bytes) {
  if (l->winograd && l->weights == CY_WEIGHTS_F32)
    return filter;
  if (source_bytes(l, s) == bytes)
    return bytes == 1 ? copy_1 : bytes == 2 ? copy_2 : copy_4;
  if (source_bytes(l, s) == 2)
    return words_4;
  return bytes == 2 ? (s->is_signed ? signed_2 : unsigned_2) : s->is_signed ? signed_4 : unsigned_4;
}

/* ---- what a panel has ---- */

/* Of its columns: where the weight of tap 0 and channel 0 would lie, the source's taps for its taps, its channels. */
typedef struct column {
  int64_t at;
  const int32_t *taps;
  int64_t c, c_end;
} column;

typedef struct panel {
  const cy_pack_layout *l;
  const cy_pack_source *s;
  int64_t number, nr, columns; /* columns: that there are weights for */
  column *column;
  int64_t *at; /* elements of the columns at some k */
  element *element;
  int64_t bytes;  /* of an element */
  char *out;      /* where its first block goes; .. */
  int64_t pitch;  /* .. bytes of a group of k in all panels that share a block, .. */
  int64_t before; /* .. and of those in front of it in a block */
  int32_t *sums;  /* of its columns, which are bytes; NULL: they are not wanted */
  cy_int_gemm_runs runs;
} panel;

/* With places, a column has the taps of its own place; with merged groups it sees the channels of its own group only; so does
 * a depthwise one, in which they are all the channels that there are. */
static column column_of(const cy_pack_layout *l, const cy_pack_source *s, int64_t group, int64_t n) {
  int64_t columns = l->places ? l->n / l->places : l->n, merged = l->merged > 1 ? l->merged : 1, n1 = columns / merged;
  int64_t c1 = l->c / (l->depth > 1 ? l->depth : 1) / merged, place = l->depthwise ? 0 : n / columns;
  int64_t part = l->depthwise ? n / n1 : n % columns / n1;
  group = l->depthwise ? part : group * merged + part;
  return (column){.at = group * s->gs + n % n1 * s->ns - part * c1 * s->cs * !l->depthwise,
                  .taps = s->tap_map ? s->tap_map + place * l->taps : NULL,
                  .c = l->depthwise ? 0 : part * c1,
                  .c_end = l->depthwise ? c1 : (part + 1) * c1};
}

static panel panel_begin(const cy_pack_layout *l, const cy_pack_source *s, int64_t group, int64_t number, int64_t bytes) {
  int64_t n0 = number * l->nr, left = (l->depthwise ? l->groups * l->n : l->n) - n0;
  panel p = {.l = l, .s = s, .number = number, .nr = cy_pack_panel_columns(l, number), .bytes = bytes};
  p.columns = left < l->nr ? left : l->nr;
  p.element = element_of(l, s, bytes);
  p.column = malloc((size_t)p.columns * sizeof *p.column);
  p.at = malloc((size_t)p.columns * sizeof *p.at);
  if (!p.column || !p.at)
    cy_no_memory();
  for (int64_t j = 0; j < p.columns; j++)
    p.column[j] = column_of(l, s, group, n0 + j);
  if (l->order)
    p.runs = cy_int_gemm_runs_of(l->order, number);
  return p;
}

static void panel_end(panel *p) {
  free(p->column);
  free(p->at);
}

/* ---- the loop ---- */

/* Taps [tap, tap + taps) of channels [c, c + channels), in so many groups of k. */
typedef struct block {
  int64_t tap, taps, c, channels, groups;
} block;

static int64_t block_count(const panel *p) {
  const cy_pack_layout *l = p->l;
  return l->order ? p->runs.runs : cy_ceil(l->taps, l->tap_block) * cy_ceil(l->c, l->c_block);
}

static block block_of(const panel *p, int64_t i) {
  const cy_pack_layout *l = p->l;
  if (l->order)
    return (block){cy_int_gemm_run_tap(l->order, &p->runs, i), p->runs.taps, 0, l->c, p->runs.groups};
  int64_t inner = cy_ceil(l->c, l->c_block);
  block b = {.tap = i / inner * l->tap_block, .taps = l->tap_block, .c = i % inner * l->c_block, .channels = l->c_block};
  b.taps = b.taps < l->taps - b.tap ? b.taps : l->taps - b.tap;
  b.channels = b.channels < l->c - b.c ? b.channels : l->c - b.c;
  b.groups = cy_ceil(b.taps * b.channels, cy_pack_step(l));
  return b;
}

static void place_elements(const panel *p, int64_t tap, int64_t c) {
  int64_t depth = p->l->depth > 1 ? p->l->c / p->l->depth : p->l->c;
  tap += c / depth * p->l->taps;
  c %= depth;
  for (int64_t j = 0; j < p->columns; j++) {
    const column *o = p->column + j;
    int64_t source = o->taps ? o->taps[tap] : tap;
    p->at[j] = source < 0 || c < o->c || c >= o->c_end ? -1 : o->at + source * p->s->ts + c * p->s->cs;
  }
}

static void pack_block(const panel *p, const block *b, char *out) {
  const int64_t step = cy_pack_step(p->l), group = p->nr * step * p->bytes;
  memset(out, 0, (size_t)(b->groups * group));
  for (int64_t t = 0, i = 0; t < b->taps; t++)
    for (int64_t c = 0; c < b->channels; c++) {
      place_elements(p, b->tap + t, b->c + c);
      p->element(p->s->w, p->at, p->columns, step, out + i * p->bytes);
      for (int64_t j = 0; p->sums && j < p->columns; j++)
        p->sums[j] += *(const int8_t *)(out + j * step + i);
      if (++i == step) {
        out += group;
        i = 0;
      }
    }
}

/* Returns how many groups of k there are. */
static int64_t pack_blocks(const panel *p) {
  int64_t groups = 0, blocks = block_count(p);
  for (int64_t i = 0; i < blocks; i++) {
    block b = block_of(p, i);
    pack_block(p, &b, p->out + groups * p->pitch + b.groups * p->before);
    groups += b.groups;
  }
  return groups;
}

/* ---- where panels go ---- */

/* Of k, in panels before this one, which have all of theirs together. */
static int64_t groups_before(const panel *p) {
  const cy_pack_layout *l = p->l;
  if (!l->order)
    return p->number * cy_ceil(l->taps * l->c, cy_pack_step(l));
  return cy_int_gemm_order_shuffles(l->order) ? cy_int_gemm_groups_before(l->order, p->number)
                                              : p->number * p->runs.runs * p->runs.groups;
}

static void pack_unit(const cy_pack_layout *l, const cy_pack_source *s, int64_t group, int64_t number, char *out) {
  panel p = panel_begin(l, s, group, number, cy_weight_bytes(l->weights));
  int64_t row = cy_pack_step(l) * p.bytes, all = cy_pack_columns(l) * row, wide = l->nr * row;
  int64_t first = number * l->nr, rest = l->sum_columns - first;
  out += group * (l->group_bytes ? l->group_bytes : cy_ceil(l->taps * l->c, cy_pack_step(l)) * all);
  bool together = l->winograd || l->order;
  p.out = out + (together ? groups_before(&p) * wide : 0);
  p.pitch = together ? p.nr * row : all;
  p.before = together ? 0 : number * wide;
  if (l->sum_columns) {
    p.sums = (int32_t *)(void *)(out + (l->groups - group) * l->group_bytes) + group * l->sum_columns + first;
    memset(p.sums, 0, (size_t)(number == cy_pack_panels(l) - 1 ? rest : l->nr) * sizeof *p.sums);
  }
  pack_blocks(&p);
  panel_end(&p);
}

int64_t cy_pack_units(const cy_pack_layout *l) {
  return l->split ? l->groups : cy_pack_panels(l) * (l->depthwise ? 1 : l->groups);
}

void cy_pack_run(const cy_pack_layout *l, const cy_pack_source *s, int64_t begin, int64_t end, void *out) {
  int64_t panels = cy_pack_panels(l);
  for (int64_t u = begin; u < end; u++)
    pack_unit(l, s, u / panels, u % panels, out);
}

int64_t cy_pack_panel(const cy_pack_layout *l, const cy_pack_source *s, int64_t group, int64_t number, int32_t *out) {
  panel p = panel_begin(l, s, group, number, sizeof *out);
  p.out = (char *)out;
  p.pitch = p.nr * cy_pack_step(l) * p.bytes;
  int64_t groups = pack_blocks(&p);
  panel_end(&p);
  return groups;
}

void cy_packing_single(cy_packing *out, cy_arena *arena, cy_pack_layout layout, const int32_t *tap_map) {
  cy_pack_part part = {layout, 0, tap_map};
  *out = (cy_packing){.bytes = layout.bytes, .n_parts = 1, .part = cy_arena_copy(arena, &part, sizeof part)};
}
