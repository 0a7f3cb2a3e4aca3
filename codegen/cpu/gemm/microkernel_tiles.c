/* SPDX-License-Identifier: Apache-2.0 */
/* microkernel_tiles.c - how rows and columns are shared out: tiles of the micro-kernel, blocks of a task, who does
 * which.
 *
 * Comes in: sizes, 0 where only running tells. Goes out: constants for the generators, and code where it takes the
 * sizes.
 */
#include "microkernel.h"

#include <math.h>

enum { MANY_ROWS = 64, NARROW = 1024 };

/* That of the table for so many rows, or for many. */
static cy_tile tile_of_rows(unsigned registers, int64_t rows) {
#define CY_FLOAT_TILE(registers, rows, mr, nv) {registers, rows, {mr, nv}},
  static const struct {
    unsigned registers;
    int64_t rows;
    cy_tile tile;
  } all[] = {
#include "codegen/cpu/microkernels.def"
  };
  cy_tile many = {1, 1};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    if (all[i].registers == registers && all[i].rows == rows)
      return all[i].tile;
    if (all[i].registers == registers && all[i].rows == 0)
      many = all[i].tile;
  }
  return many;
}

cy_tile cy_tile_choose(const cy_cg *cg, int64_t rows, int64_t n) {
  bool many = cg->registers == 32;
  int max = many ? 8 : 6;
  cy_tile t = tile_of_rows(many ? 32 : 16, rows > 0 && rows < max ? rows : 0);
  if (many && rows >= max && rows % 6 && (rows % 8 == 0 || rows % 7 == 0) && (rows < 24 || (rows < 64 && n < 512)))
    t.nv = 2; /* by eights; more rows read wider panels less often, where columns are enough to share out */
  else if (cg->model.wide_tile && (!rows || rows >= MANY_ROWS) && n && n <= NARROW && n % (3 * (int64_t)cg->W) == 0)
    t = (cy_tile){8, 3}; /* no slower, and more pairs of panels for the tasks of strassen.c */
  int64_t need = n ? cy_ceil(n, cg->W) : t.nv;
  if (need < t.nv)
    t.nv = (unsigned)need;
  if ((many ? t.nv <= 2 : t.nv == 1) && (rows == 0 || rows >= 8))
    t.mr = 8; /* narrow: more rows, to have enough accumulators in flight */
  return t;
}

/* Of a step of k: no less than the latency of fma. */
static double step_cycles(const cy_cg *cg, unsigned mr, unsigned nv) {
  const double latency = 4;
  double fmas = cy_cost_instructions(cg, mr * nv, 1);
  return fmas > latency ? fmas : latency;
}

double cy_tile_cycles(const cy_cg *cg, cy_tile t, int64_t rows, int64_t n) {
  int64_t panels = n / (t.nv * cg->W), rest = cy_ceil(n % (t.nv * cg->W), cg->W);
  double sum = 0;
  for (int last = 0; last < 2; last++) {
    unsigned nv = last ? (unsigned)rest : t.nv, left = (unsigned)(rows % t.mr);
    double column = nv ? (double)(rows / t.mr) * step_cycles(cg, t.mr, nv) : 0;
    column += nv && left ? step_cycles(cg, left, nv) : 0;
    sum += column * (last ? 1 : (double)panels);
  }
  return sum;
}

/* Where tiles of the last panel have too few accumulators to hide the latency of fma, as those of 80 columns by 64 and 16,
 * another shape has them share columns more evenly: of 100 to 400 rows, 80 columns and 184 to 672 k, six layers of efficientnet_b0 and
 * mobilenet_v3_large took 6 to 10 % less time by 8x3 (Zen 5). */
cy_tile cy_tile_choose_floats(const cy_cg *cg, int64_t rows, int64_t n) {
  const double worth = 0.95;
  cy_tile usual = cy_tile_choose(cg, rows, n), wide = {8, 3};
  bool tried = cg->registers == 32 && rows >= MANY_ROWS && n > (int64_t)(wide.nv * cg->W);
  return tried && cy_tile_cycles(cg, wide, rows, n) <= worth * cy_tile_cycles(cg, usual, rows, n) ? wide : usual;
}

int64_t cy_last_columns(int64_t n, int64_t nr) { return cy_round_up(n % nr, 4) % nr; }

int64_t cy_last_room(const cy_cg *cg, int64_t last, cy_weights weights) {
  return (cy_round_up(last, cg->W) - last) * cy_weight_bytes(weights);
}

/* Blocks of `min` to `max` such that 1, 2, 4 and 8 workers take least time. panel: multiplications of a row and
 * panel. */
static cy_blocks blocks_even(const cy_cg *cg, cy_tile tile, cy_blocks min, cy_blocks max, int64_t outer,
                             int64_t rows, int64_t panels, double panel) {
  cy_blocks best = max;
  double best_cost = 1e300;
  for (int64_t mb = max.mb; mb >= min.mb; mb -= tile.mr)
    for (int64_t nb = max.nb; nb >= min.nb; nb--) {
      int64_t blocks = cy_ceil(rows, mb), splits = cy_ceil(panels, nb), tasks = outer * blocks * splits;
      double r = (double)rows / (double)blocks, n = (double)panels / (double)splits, sum = 0;
      for (int64_t workers = 1; workers <= 8; workers *= 2)
        sum += (double)cy_round_up(tasks, workers) + (double)(workers - 1) * cg->model.task_wait;
      double cost = sum * cy_cost_task(cg, r, n, panel);
      if (cost < best_cost) {
        best_cost = cost;
        best = (cy_blocks){mb, nb};
      }
    }
  return best;
}

static cy_blocks blocks_of(const cy_cg *cg, cy_tile tile, int64_t outer, int64_t rows, int64_t panels, int64_t k) {
  const int64_t enough = 32; /* tasks that keep up to 16 workers evenly busy */
  int64_t nr = (int64_t)tile.nv * cg->W, mb = 16 * tile.mr, nb = 16;
  if (cy_cost_many_weights(cg, panels * nr * k * 4)) /* read each of them but once */
    mb = 144 / tile.mr * tile.mr;
  int64_t m = rows ? rows : 4 * mb;
  int64_t p = panels ? panels : 4 * nb;
  double panel = (double)(nr * k);
  nb = nb < p ? nb : p;
  if (rows && cg->model.task_search) {
    mb = cy_round_up(rows < mb ? rows : mb, tile.mr);
    return blocks_even(cg, tile, (cy_blocks){tile.mr, 1}, (cy_blocks){mb, nb}, outer, rows, p, panel);
  }
  if (rows)
    mb = cy_round_up(cy_ceil(rows, cy_ceil(rows, mb)), tile.mr);
  for (;;) {
    int64_t tasks = outer * cy_ceil(m, mb) * cy_ceil(p, nb), r = mb < m ? mb : m;
    if (tasks >= enough || !cy_cost_task_splits(cg, (double)r, (double)(nb * nr), (double)k) ||
        (nb == 1 && mb <= 2 * tile.mr))
      break;
    if (nb > 2 || mb <= 2 * tile.mr)
      nb = (nb + 1) / 2;
    else
      mb = (mb / tile.mr + 1) / 2 * tile.mr;
  }
  cy_blocks min = {cy_ceil(mb, 2), cy_ceil(nb, 2)}, max = {mb, nb};
  return rows ? blocks_even(cg, tile, min, max, outer, rows, p, panel) : max;
}

cy_blocks cy_blocks_choose(const cy_cg *cg, cy_tile tile, int64_t outer, int64_t rows, int64_t panels, int64_t k) {
  cy_blocks b = blocks_of(cg, tile, outer, rows, panels, k);
  int64_t tiles = (int64_t)((double)(b.mb / tile.mr) * cg->model.task_rows), max = rows ? cy_ceil(rows, tile.mr) : tiles;
  tiles = tiles < max ? tiles : max;
  return (cy_blocks){(tiles > 1 ? tiles : 1) * tile.mr, b.nb};
}

/* A long panel is half of the least second-level cache, and accumulators leave the registers less often. Halves
 * become floats panel by panel, on the stack. */
void cy_kblock_choose(const cy_cg *cg, cy_weights weights, int64_t taps, int64_t c, int64_t *out_tap_block,
                      int64_t *out_c_block) {
  const int64_t KC = weights == CY_WEIGHTS_F32 ? (int64_t)cg->model.k_block : 512;
  *out_tap_block = 1;
  *out_c_block = c;
  if (taps * c <= KC * 3 / 2) {
    *out_tap_block = taps;
  } else if (c <= KC) {
    *out_tap_block = cy_ceil(taps, cy_ceil(taps * c, KC));
  } else if (c > KC * 3 / 2) {
    *out_c_block = cy_round_up(cy_ceil(c, cy_ceil(c, KC)), 8);
  }
}

static double whole_cycles(const cy_cg *cg, unsigned mr, unsigned nv) { return ceil(step_cycles(cg, mr, nv)); }

/* When up to this many rows remain behind a full tile, both are better cut in two halves. */
static unsigned split_limit(const cy_cg *cg, cy_tile t) {
  unsigned limit = 0;
  for (unsigned rest = 1; rest < t.mr; rest++) {
    unsigned half = (t.mr + rest) / 2, other = t.mr + rest - half;
    if (whole_cycles(cg, half, t.nv) + whole_cycles(cg, other, t.nv) < whole_cycles(cg, t.mr, t.nv) + whole_cycles(cg, rest, t.nv))
      limit = rest;
  }
  return limit;
}

V cy_next_rows(cy_cg *cg, cy_tile t, V left) {
  V MR = cy_i64(cg, t.mr), mr = cy_imin(cg, MR, left);
  unsigned limit = split_limit(cg, t);
  if (!limit)
    return mr;
  V above = cy_icmp(cg, LLVMIntSGT, left, MR), below = cy_icmp(cg, LLVMIntSLE, left, cy_i64(cg, t.mr + limit));
  V half = cy_div(cg, cy_addc(cg, left, 1), cy_i64(cg, 2));
  return cy_select(cg, LLVMBuildAnd(cg->b, above, below, ""), half, mr);
}

/* Row counts of the tiles that `left` rows are cut into. */
static unsigned tails_of(const cy_cg *cg, cy_tile t, int64_t left) {
  unsigned set = 0, limit = split_limit(cg, t);
  while (left > 0) {
    int64_t mr = left < t.mr ? left : left > t.mr && left <= t.mr + limit ? (left + 1) / 2 : t.mr;
    set |= 1u << mr;
    left -= mr;
  }
  return set;
}

unsigned cy_tails(const cy_cg *cg, cy_tile t, int64_t rows, int64_t mb) {
  if (!rows)
    return (1u << t.mr) - 1;
  return tails_of(cg, t, rows >= mb ? mb : 0) | tails_of(cg, t, rows % mb);
}

unsigned cy_share_tails(const cy_cg *cg, cy_tile t, int64_t rows, int64_t mb) {
  if (!rows)
    return (1u << t.mr) - 1;
  int64_t blocks = cy_ceil(rows, mb), last = cy_ceil(rows, t.mr) * (blocks - 1) / blocks * t.mr;
  return (last ? 1u << t.mr : 0) | tails_of(cg, t, rows - last);
}
