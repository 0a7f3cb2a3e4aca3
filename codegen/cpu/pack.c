/* pack.c - puts constant weights into the order in which the micro-kernels read them; the layout is told in contract.h.
 *
 * Comes in: a layout (cy_gemm_layout, cy_conv_layout) and where each weight lies. Goes out: floats, written by ranges
 * of units so that several threads can share the work. Columns beyond the last are zero, so that no micro-kernel needs
 * a mask.
 */
#include "contract.h"

static int64_t panels_of(const cy_pack_layout *l) { return (l->n + l->nr - 1) / l->nr; }

int64_t cy_pack_units(const cy_pack_layout *l) { return l->depthwise ? 1 : l->groups * panels_of(l); }

/* With merged groups a column sees the channels of its own group only. */
static float weight_at(const cy_pack_layout *l, const cy_pack_source *s, int64_t group, int64_t n, int64_t tap,
                       int64_t c) {
  int64_t source_tap = s->tap_map ? s->tap_map[tap] : tap;
  if (l->merged > 1) {
    int64_t n1 = l->n / l->merged, c1 = l->c / l->merged;
    if (n / n1 != c / c1)
      return 0;
    group = group * l->merged + n / n1;
    n %= n1;
    c %= c1;
  }
  return s->w[group * s->gs + n * s->ns + source_tap * s->ts + c * s->cs];
}

/* One weight of a panel: its NR columns. */
static void pack_row(const cy_pack_layout *l, const cy_pack_source *s, int64_t group, int64_t panel, int64_t t,
                     int64_t c, float *out) {
  int64_t n0 = panel * l->nr;
  for (int64_t j = 0; j < l->nr; j++)
    out[j] = n0 + j < l->n ? weight_at(l, s, group, n0 + j, t, c) : 0;
}

static void pack_block(const cy_pack_layout *l, const cy_pack_source *s, int64_t group, int64_t panel,
                       const int64_t range[4], float *out) {
  for (int64_t t = range[0]; t < range[1]; t++)
    for (int64_t c = range[2]; c < range[3]; c++, out += l->nr)
      pack_row(l, s, group, panel, t, c, out);
}

/* [channel][tap][NR]: a 3x3 filter is taken whole. The kernel's transforms leave out a factor of 36 (winograd.c). */
static void pack_filters(const cy_pack_layout *l, const cy_pack_source *s, int64_t panel, float *out) {
  for (int64_t c = 0; c < l->c; c++)
    for (int64_t t = 0; t < l->taps; t++, out += l->nr) {
      pack_row(l, s, 0, panel, t, c, out);
      for (int64_t j = 0; j < l->nr; j++)
        out[j] /= 36;
    }
}

static void pack_panel(const cy_pack_layout *l, const cy_pack_source *s, int64_t group, int64_t panel, float *out) {
  int64_t panels = panels_of(l), k0 = 0;
  out += group * l->taps * l->c * panels * l->nr;
  if (l->winograd) {
    pack_filters(l, s, panel, out + panel * l->c * l->taps * l->nr);
    return;
  }
  for (int64_t t = 0; t < l->taps; t += l->tap_block)
    for (int64_t c = 0; c < l->c; c += l->c_block) {
      int64_t t1 = t + l->tap_block < l->taps ? t + l->tap_block : l->taps;
      int64_t c1 = c + l->c_block < l->c ? c + l->c_block : l->c;
      int64_t range[4] = {t, t1, c, c1}, k = (t1 - t) * (c1 - c);
      pack_block(l, s, group, panel, range, out + (k0 * panels + panel * k) * l->nr);
      k0 += k;
    }
}

static void pack_depthwise(const cy_pack_layout *l, const cy_pack_source *s, float *out) {
  int64_t width = (l->groups + l->nr - 1) / l->nr * l->nr;
  for (int64_t t = 0; t < l->taps; t++)
    for (int64_t g = 0; g < width; g++)
      out[t * width + g] = g < l->groups ? weight_at(l, s, g, 0, t, 0) : 0;
}

void cy_pack_run(const cy_pack_layout *l, const cy_pack_source *s, int64_t begin, int64_t end, float *out) {
  if (l->depthwise) {
    if (begin < end)
      pack_depthwise(l, s, out);
    return;
  }
  int64_t panels = panels_of(l);
  for (int64_t u = begin; u < end; u++)
    pack_panel(l, s, u / panels, u % panels, out);
}
