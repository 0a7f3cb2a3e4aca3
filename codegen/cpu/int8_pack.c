/* int8_pack.c - puts constant 8-bit weights into the order in which int8_kernel.c reads them; the layout is told in
 * int8.h.
 *
 * Comes in: a layout and where each weight lies. Goes out: panels of s8 or i16, for fours with the sums of the columns
 * behind them. Columns beyond the last and k beyond the last are zero, so that no micro-kernel needs a mask.
 */
#include "int8.h"

#include <string.h>

static int64_t panels_of(const cy_int8_layout *l) { return (l->n + l->nr - 1) / l->nr; }

static int32_t weight_at(const cy_int8_source *s, int64_t at) {
  const uint8_t *p = (const uint8_t *)s->w + at * (s->bits / 8);
  int16_t wide;
  if (s->bits == 8)
    return s->is_signed ? (int8_t)*p : *p;
  memcpy(&wide, p, sizeof wide);
  return wide;
}

static void store(const cy_int8_layout *l, void *panels, int64_t at, int32_t v) {
  if (l->wide)
    ((int16_t *)panels)[at] = (int16_t)v;
  else
    ((int8_t *)panels)[at] = (int8_t)v;
}

/* Column n of a matrix whose elements begin at `from`; returns its sum. at: where its first element goes. */
static int32_t pack_column(const cy_int8_layout *l, const cy_int8_source *s, int64_t from, void *panels, int64_t at) {
  const int64_t last = l->step - 1, next = (int64_t)l->nr * l->step - last;
  int32_t sum = 0;
  for (int64_t t = 0, k = 0; t < l->taps; t++)
    for (int64_t c = 0; c < l->c; c++, k++) {
      int32_t v = weight_at(s, from + t * s->ts + c * s->cs);
      store(l, panels, at, v);
      at += (k & last) == last ? next : 1; /* step is a power of two */
      sum += v;
    }
  return sum;
}

static void pack_matrix(const cy_int8_layout *l, const cy_int8_source *s, int64_t matrix, void *out) {
  int64_t groups = (l->taps * l->c + l->step - 1) / l->step;
  int32_t *sums = l->sums ? (int32_t *)((char *)out + l->matrices * l->matrix_bytes) + matrix * l->n : NULL;
  char *panels = (char *)out + matrix * l->matrix_bytes;
  memset(panels, 0, (size_t)l->matrix_bytes);
  for (int64_t n = 0; n < l->n; n++) {
    int64_t column = n / l->nr * groups * l->nr * l->step + n % l->nr * l->step;
    int32_t sum = pack_column(l, s, matrix * s->gs + n * s->ns, panels, column);
    if (sums)
      sums[n] = sum;
  }
}

/* [pair of taps][slot of the channel][2], channels padded to nr. */
static void pack_depthwise(const cy_int8_layout *l, const cy_int8_source *s, void *out) {
  int64_t width = panels_of(l) * l->nr, place;
  memset(out, 0, (size_t)l->bytes);
  for (int64_t t = 0; t < l->taps; t++) {
    int64_t pair = cy_int8_depthwise_pair(l->taps / l->row_taps, l->row_taps, t / l->row_taps, t % l->row_taps, &place);
    for (int64_t n = 0; n < l->n; n++)
      store(l, out, (pair * width + cy_int8_depthwise_slot(n, l->nr / 2)) * 2 + place,
            weight_at(s, n * s->gs + t * s->ts));
  }
}

void cy_int8_pack(const cy_int8_layout *l, const cy_int8_source *s, void *out) {
  if (l->depthwise)
    pack_depthwise(l, s, out);
  for (int64_t m = 0; m < l->matrices && !l->depthwise; m++)
    pack_matrix(l, s, m, out);
}
