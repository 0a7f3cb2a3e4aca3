/* SPDX-License-Identifier: Apache-2.0 */
/* winograd_int.h - what winograd.c and winograd_plan.c share: the plan of a convolution by F(4x4,3x3). */
#ifndef CY_CPU_WINOGRAD_INT_H
#define CY_CPU_WINOGRAD_INT_H

#include "conv_int.h"

enum { POINTS = 36, TAPS = 9 }; /* of a patch, and of its products; of a filter */

typedef struct wino {
  const cy_conv_desc *d;
  cy_axis axis[3];
  cy_tile tile;
  int64_t nr, panels, tiles, nb; /* tiles and panels of a task, at most */
  int64_t depth;                 /* taps of the first of three axes, or 1 */
  bool pairs;                    /* tiles are two planes deep, by F(2,3) along that axis */
  int64_t slices;                /* of V and U: a plane for each tap, or what F(2,3) makes of four planes */
  int64_t c;                     /* channels of a filter, of all taps in depth */
  int64_t slice, cb;             /* channels of a slice in V and U, which is whole blocks; those of a block */
  bool by_tap;                   /* there may be few outputs: cy_pack_layout.winograd is 2 */
  bool filters_once;             /* U is made for all tasks of a call at once */
  bool rows;                     /* few tiles: winograd_rows.c makes M */
  bool shared;                   /* V of all tiles is made by a phase of its own */
  int64_t v_tiles;               /* tiles of V */
} wino;

/* Three axes, of which the first is but a sum? */
static inline bool is_deep(const cy_conv_desc *d) { return d->n_spatial == 3; }
/* The place of rows among the axes of the desc; columns follow. */
static inline int row_axis(const cy_conv_desc *d) { return d->n_spatial - 2; }

/* All channels of V and U. */
static inline int64_t v_channels(const wino *w) { return w->pairs ? w->slices * w->slice : w->c; }
/* Matrices of sums of 36 points each: of every slice one, where tiles are pairs, else one for all. */
static inline int64_t sum_slices(const wino *w) { return w->pairs ? w->slices : 1; }
/* Channels that are added up in one of them. */
static inline int64_t sum_channels(const wino *w) { return w->pairs ? w->d->cin : w->c; }
/* Planes of a tile. */
static inline int64_t tile_planes(const wino *w) { return w->pairs ? 2 : 1; }

/* ---- winograd_plan.c ---- */
wino cy_winograd_plan(const cy_cg *cg, const cy_conv_desc *d);
/* Cycles of a tile with all that is done for it, where there are some; out_fixed: what all of them share. */
double cy_winograd_tile_cost(const cy_cg *cg, const wino *w, double *out_fixed);

#endif
