/* pack.c - puts constant weights into the order in which the micro-kernels read them; the layout is told in contract.h.
 *
 * Comes in: a layout (cy_gemm_layout, cy_conv_layout) and where each weight lies. Goes out: floats, written by ranges
 * of units so that several threads can share the work. Columns beyond the last are zero, so that no micro-kernel needs
 * a mask.
 */
#include "contract.h"

#include <string.h>

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

static void pack_block(const cy_pack_layout *l, const cy_pack_source *s, int64_t group, int64_t panel,
                       const int64_t range[4], float *out) {
  int64_t n0 = panel * l->nr, n1 = n0 + l->nr < l->n ? n0 + l->nr : l->n;
  for (int64_t t = range[0]; t < range[1]; t++)
    for (int64_t c = range[2]; c < range[3]; c++, out += l->nr) {
      for (int64_t n = n0; n < n1; n++)
        out[n - n0] = weight_at(l, s, group, n, t, c);
      for (int64_t n = n1; n < n0 + l->nr; n++)
        out[n - n0] = 0;
    }
}

static void pack_panel(const cy_pack_layout *l, const cy_pack_source *s, int64_t group, int64_t panel, float *out) {
  int64_t panels = panels_of(l), k0 = 0;
  out += group * l->taps * l->c * panels * l->nr;
  for (int64_t t = 0; t < l->taps; t += l->tap_block)
    for (int64_t c = 0; c < l->c; c += l->c_block) {
      int64_t t1 = t + l->tap_block < l->taps ? t + l->tap_block : l->taps;
      int64_t c1 = c + l->c_block < l->c ? c + l->c_block : l->c;
      int64_t range[4] = {t, t1, c, c1}, k = (t1 - t) * (c1 - c);
      pack_block(l, s, group, panel, range, out + (k0 * panels + panel * k) * l->nr);
      k0 += k;
    }
}

/* One 3x3 filter to its 6x6 points: G g G^T, in double so that only the last rounding counts. */
static void winograd_filter(const double g[9], double out[36]) {
  static const double G[6][3] = {{1. / 4, 0, 0},
                                 {-1. / 6, -1. / 6, -1. / 6},
                                 {-1. / 6, 1. / 6, -1. / 6},
                                 {1. / 24, 1. / 12, 1. / 6},
                                 {1. / 24, -1. / 12, 1. / 6},
                                 {0, 0, 1}};
  double half[6][3];
  for (int i = 0; i < 6; i++)
    for (int x = 0; x < 3; x++)
      half[i][x] = G[i][0] * g[x] + G[i][1] * g[3 + x] + G[i][2] * g[6 + x];
  for (int i = 0; i < 6; i++)
    for (int j = 0; j < 6; j++)
      out[i * 6 + j] = G[j][0] * half[i][0] + G[j][1] * half[i][1] + G[j][2] * half[i][2];
}

/* [point][panel][c][NR]: a task takes point after point, all its panels of each. */
static void winograd_panel(const cy_pack_layout *l, const cy_pack_source *s, int64_t panel, float *out) {
  int64_t point = l->c * l->nr * panels_of(l);
  out += panel * l->c * l->nr;
  for (int e = 0; e < 36; e++)
    memset(out + e * point, 0, (size_t)(l->c * l->nr) * sizeof *out);
  for (int64_t c = 0; c < l->c; c++)
    for (int64_t j = 0; j < l->nr && panel * l->nr + j < l->n; j++) {
      double g[9], u[36];
      for (int t = 0; t < 9; t++)
        g[t] = weight_at(l, s, 0, panel * l->nr + j, t, c);
      winograd_filter(g, u);
      for (int e = 0; e < 36; e++)
        out[e * point + c * l->nr + j] = (float)u[e];
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
  for (int64_t u = begin; u < end; u++) {
    if (l->winograd)
      winograd_panel(l, s, u, out);
    else
      pack_panel(l, s, u / panels, u % panels, out);
  }
}
