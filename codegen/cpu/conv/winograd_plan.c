/* SPDX-License-Identifier: Apache-2.0 */
/* winograd_plan.c - whether F(4x4,3x3) is possible, what it takes, and how large its blocks are.
 *
 * In: a cy_conv_desc. Out: the plan that winograd.c follows, the layout of its weights, cycles for the choice between
 * algorithms.
 */
#include "winograd_int.h"

#define POINT_BYTES (POINTS * 4)

/* With dilation D, outputs and inputs D apart form D*D feature maps of their own, fewer where there are fewer outputs,
 * each cut into tiles. Tiles along an axis of `out` outputs: */
static int64_t axis_tiles(int64_t out, int64_t dilation) {
  int64_t maps = out < dilation ? out : dilation;
  return maps * (cy_ceil(cy_ceil(out, dilation), 4));
}

/* Of so many planes each. */
static int64_t known_tiles(const cy_conv_desc *d, int64_t batch, int64_t each) {
  int y = row_axis(d);
  int64_t planes = is_deep(d) ? cy_ceil(cy_csize_known(d->out[0]), each) : 1;
  return batch * planes * axis_tiles(cy_csize_known(d->out[y]), d->dilation[y]) *
         axis_tiles(cy_csize_known(d->out[y + 1]), d->dilation[y + 1]);
}

/* What so many positions of feature maps take whose size is not known, or along one axis only; where they are small,
 * dilation leaves most tiles nearly empty. */
static double unknown_tiles(const cy_conv_desc *d, double positions) {
  static const int64_t sides[] = {12, 20, 40};
  double each = 0;
  for (int i = 0; i < 3; i++) {
    double tiles = 1;
    for (int k = row_axis(d); k < d->n_spatial; k++) {
      int64_t side = cy_csize_or(d->out[k], sides[i]);
      tiles *= (double)axis_tiles(side, d->dilation[k]) / (double)side;
    }
    each += tiles;
  }
  return positions * each / 3;
}

static double task_cost(const cy_cg *cg, const wino *w, int64_t tiles, int64_t columns) {
  static const double tail[6] = {0, 2, 2, 3, 4, 5}; /* see cy_next_rows; with 32 registers no row idles */
  double rows = cg->registers == 32 ? (double)tiles : (double)(tiles / 6 * 6) + tail[tiles % 6];
  return cy_cost_winograd_points(cg, rows, POINTS, v_channels(w), columns) +
         cy_cost_winograd_output(cg, (double)tiles, columns, w->pairs);
}

/* The same where winograd_rows.c makes M: points of filters for every few tiles. */
static double rows_cost(const cy_cg *cg, cy_weights weights, int64_t tiles, int64_t columns, int64_t c) {
  double bytes = (double)(TAPS * cg->W * cy_weight_bytes(weights));
  return cy_cost_winograd_few(cg, tiles, c, columns, bytes) +
         cy_cost_winograd_output(cg, (double)tiles, columns, false);
}

/* Tiles of a task at most: M of a panel leaves room for U in the second-level cache, V is not large either. With
 * AVX-512, what comes from the third level takes longer than the arithmetic: V stays in the second level then, if tiles
 * enough to pay for their filters leave it there, and where U is made once, V and M leave its place alone. */
static int64_t max_tiles(const cy_cg *cg, const wino *w) {
  int64_t max = cy_l2_part(cg, 9, 20) / (POINT_BYTES * w->nr), min = (int64_t)cg->model.winograd_tiles;
  int64_t fit = (cg->model.winograd_in_l2 ? cy_l2_part(cg, 6, 10) : (int64_t)cg->model.winograd_far) /
                (POINT_BYTES * v_channels(w));
  if (w->filters_once)
    return cy_l2_part(cg, 7, 20) / (POINT_BYTES * (v_channels(w) + w->nr * m_slices(w)));
  return w->shared || fit > max ? max : fit < min ? min : fit;
}

static double v_cost(const cy_cg *cg, const wino *w, int64_t tiles) {
  return cy_cost_winograd_input(cg, (double)tiles, v_channels(w), w->pairs);
}

/* The block sizes that are best on average for 1, 2, 4 and 8 workers. Returns what these take, added up. */
static double blocks_choose(const cy_cg *cg, wino *w, int64_t total) {
  double best = 1e300;
  for (int64_t tiles = 4, max = max_tiles(cg, w); tiles <= max; tiles++)
    for (int64_t split = 1; split <= 16 && split <= w->panels; split *= 2) {
      int64_t nb = cy_ceil(w->panels, split), tasks = cy_ceil(total, tiles) * cy_ceil(w->panels, nb);
      int64_t here = tiles < total ? tiles : total;
      double cost = task_cost(cg, w, here, nb * w->nr) + (w->shared ? 0 : v_cost(cg, w, here)), sum = 0;
      for (int64_t workers = 1; workers <= 8; workers *= 2)
        sum += (double)(cy_round_up(tasks, workers)) * cost;
      if (sum < best) {
        best = sum;
        w->tiles = here;
        w->nb = nb;
      }
    }
  return best + (w->shared ? 4 * v_cost(cg, w, total) : 0);
}

/* With AVX-512, several narrow panels leave V more of the second-level cache and have deeper blocks of channels, so that
 * M is read less often; the points of a single wide one are made but once (filters_once).
 * Columns that idle in the last panel take as long as others: a narrower tile where there are fewer of them then, if it
 * still has accumulators enough to hide the latency of fma. */
static cy_tile tile_choose(const cy_cg *cg, int64_t total, int64_t cout) {
  cy_tile t = cy_tile_choose(cg, total, cout);
  if (cg->model.winograd_in_l2 && (t.mr == 6 || t.mr == 8) && t.nv > 2 && cout > (int64_t)t.nv * cg->W)
    t = (cy_tile){8, 2};
  int64_t nr = (int64_t)t.nv * cg->W, min = cy_round_up(cout, nr);
  for (unsigned nv = t.nv - 1; nv * t.mr >= 8; nv--) {
    nr = (int64_t)nv * cg->W;
    if (cy_round_up(cout, nr) < min) {
      min = cy_round_up(cout, nr);
      t.nv = nv;
    }
  }
  return t;
}

/* Do so many bytes of U leave V and M enough of the second-level cache? */
static bool stays(const cy_cg *cg, int64_t bytes) {
  return bytes <= cy_l2_part(cg, 6, 10) && bytes <= (int64_t)cg->model.winograd_once;
}

/* Blocks of channels as deep as leaves U its place, a whole number for each slice, or at least whole vectors. */
static void channels_choose(const cy_cg *cg, wino *w) {
  int64_t max = cy_l2_part(cg, 3, 10) / (POINT_BYTES * w->nr), all = m_channels(w);
  int64_t blocks = w->filters_once ? 1 : cy_ceil(all, max);
  w->cb = w->rows ? CY_ROWS_CHANNELS : cy_round_up(cy_ceil(all, blocks), cg->W);
  w->slice = w->pairs ? cy_round_up(all, w->cb) : w->d->cin;
}

static wino plan_of(const cy_cg *cg, const cy_conv_desc *d, bool pairs, double *out_cost) {
  int64_t depth = is_deep(d) ? d->kernel[0] : 1;
  wino w = {.d = d, .depth = depth, .pairs = pairs, .slices = pairs ? 4 : depth, .c = depth * d->cin, .slice = d->cin};
  cy_conv_axes(d, 0, w.axis);
  int64_t total = known_tiles(d, cy_csize_known(d->batch), tile_planes(&w));
  w.rows = cy_form_on(cg, CY_FORM_WINOGRAD_ROWS) && !pairs && total && total <= (int64_t)cg->model.winograd_few;
  w.tile = w.rows ? (cy_tile){1, 1} : tile_choose(cg, total, d->cout);
  w.nr = (int64_t)w.tile.nv * cg->W;
  w.panels = cy_ceil(d->cout, w.nr);
  w.filters_once = cy_form_on(cg, CY_FORM_WINOGRAD_ONCE) && cg->model.winograd_in_l2 && !w.rows && w.panels == 1 &&
                   stays(cg, POINT_BYTES * w.slices * d->cin * w.nr);
  channels_choose(cg, &w);
  w.shared = total && !w.filters_once && POINT_BYTES * total * v_channels(&w) <= (int64_t)cg->model.winograd_shared;
  int64_t max = max_tiles(cg, &w), map = known_tiles(d, 1, tile_planes(&w));
  *out_cost = blocks_choose(cg, &w, total ? total : map ? map : 16 * max);
  w.tiles = total ? w.tiles : max;
  if (w.rows) {
    w.tiles = total;
    w.nb = 1;
  }
  w.v_tiles = w.shared ? total : w.tiles;
  w.m_tiles = w.tiles;
  w.parts = cy_ceil(w.panels, w.nb);
  w.element = 4;
  return w;
}

/* Pairs of planes take two thirds of the products, but tiles, of which there are half as many, share the work on more
 * points of filters. */
wino cy_winograd_plan(const cy_cg *cg, const cy_conv_desc *d) {
  double cost, paired_cost;
  wino w = plan_of(cg, d, false, &cost);
  if (!cy_form_on(cg, CY_FORM_WINOGRAD_PAIRS) || w.rows || !is_deep(d) || d->kernel[0] != 3 || d->dilation[0] != 1 ||
      cy_csize_known(d->out[0]) == 1)
    return w;
  wino paired = plan_of(cg, d, true, &paired_cost);
  bool known = known_tiles(d, cy_csize_known(d->batch), 1) > 0;
  return known && cost <= paired_cost ? w : paired;
}

double cy_winograd_cost(const cy_cg *cg, const cy_conv_desc *d, double unknown_positions) {
  wino w = cy_winograd_plan(cg, d);
  int64_t tiles = known_tiles(d, cy_conv_images(d), tile_planes(&w)), columns = w.panels * w.nr;
  tiles = tiles ? tiles : (int64_t)unknown_tiles(d, unknown_positions) / tile_planes(&w);
  double task = w.rows ? rows_cost(cg, d->weights, tiles, columns, w.c) : task_cost(cg, &w, tiles, columns);
  return task + v_cost(cg, &w, tiles);
}

bool cy_winograd_possible(const cy_conv_desc *d) {
  if (d->n_spatial < 2 || d->transposed || d->groups != 1 || d->cin < 16 || d->cout < 16 || d->cin % 8)
    return false;
  for (int i = row_axis(d); i < d->n_spatial; i++)
    if (d->kernel[i] != 3 || d->stride[i] != 1)
      return false;
  /* no vector of channels belongs to two taps */
  return !is_deep(d) || (d->stride[0] == 1 && d->cin % 16 == 0);
}
