/* SPDX-License-Identifier: Apache-2.0 */
/* winograd_int.h - what winograd.c, winograd_plan.c and int8/int_winograd.c share: a convolution by F(4x4,3x3). */
#ifndef CY_CPU_WINOGRAD_INT_H
#define CY_CPU_WINOGRAD_INT_H

#include "conv_int.h"

enum { POINTS = 36, TAPS = 9, LINE = 64 }; /* of a patch, and of its products; of a filter; bytes of a cache line */

typedef struct wino {
  const cy_conv_desc *d;
  cy_axis axis[3];
  cy_tile tile;
  int64_t nr, panels, tiles, nb;       /* tiles and panels of a task, at most */
  int64_t depth;                       /* taps of the first of three axes, or 1 */
  bool pairs;                          /* tiles are two planes deep, by F(2,3) along that axis */
  int64_t slices;                      /* of V and U: a plane for each tap, or what F(2,3) makes of four planes */
  int64_t c;                           /* channels of a filter, of all taps in depth */
  int64_t slice, cb;                   /* channels of a slice in V and U, which is whole blocks; those of a block */
  bool filters_once;                   /* U is made for all tasks of a call at once */
  bool rows;                           /* few tiles: winograd_rows.c makes M */
  bool shared;                         /* V of all tiles is made by a phase of its own */
  int64_t v_tiles, m_tiles;            /* tiles that V and M have room for */
  int64_t parts;                       /* of the panels, in tasks of their own */
  int64_t element;                     /* bytes of a channel in V, and of a channel and column in U */
  const struct cy_winograd_ints *ints; /* what integers do otherwise; NULL: floats */
  const struct cy_int_gemm_desc *of;   /* of integers */
} wino;

/* What the loops of a task hand down. */
typedef struct task {
  const wino *w;
  V count;              /* tiles */
  V v, u, m, spots;     /* V, U, M; where tiles go */
  V tab;                /* entries of rows for the micro-kernels */
  V padding;            /* i64: the address of a position outside the feature map */
  V zero;               /* of integers: <2 W x i16> */
  cy_epilogue epilogue; /* of accumulators in memory */
} task;

/* Integers: V and U are i16, 2 * W channels a vector, U [pair of channels][NR][2]; M is i32. */
typedef struct cy_winograd_ints {
  void (*begin)(cy_cg *cg, task *t);         /* sets padding, zero, epilogue */
  V (*load)(cy_cg *cg, const task *t, V at); /* inputs */
  V (*tap)(cy_cg *cg, V at);                 /* weights */
  /* M += V * U of a point: what product says. filters: whence U was made, for what comes behind them to be prefetched. */
  void (*product)(cy_cg *cg, const task *t, const cy_product *p, V point, V filters);
  void (*finish)(cy_cg *cg, const V m[6], V out[4]); /* cy_winograd_output() of the second axis, and what divides outputs */
} cy_winograd_ints;

/* Three axes, of which the first is but a sum? */
static inline bool is_deep(const cy_conv_desc *d) { return d->n_spatial == 3; }
/* The place of rows among the axes of the desc; columns follow. */
static inline int row_axis(const cy_conv_desc *d) { return d->n_spatial - 2; }

/* All channels of V and U. */
static inline int64_t v_channels(const wino *w) { return w->pairs ? w->slices * w->slice : w->c; }
/* Slices of M, of 36 points each: of every slice of V one, where tiles are pairs, else one for all. */
static inline int64_t m_slices(const wino *w) { return w->pairs ? w->slices : 1; }
/* Channels that are added up in one of them. */
static inline int64_t m_channels(const wino *w) { return w->pairs ? w->d->cin : w->c; }
/* Planes of a tile. */
static inline int64_t tile_planes(const wino *w) { return w->pairs ? 2 : 1; }

/* ---- winograd.c: a generator's row, but for the plan, packing and name ---- */
bool cy_winograd_shares(const void *plan);
cy_formula cy_winograd_input_count, cy_winograd_worker_bytes, cy_winograd_shared_bytes;
cy_task_cut cy_winograd_grid;
void cy_winograd_emit_input(cy_cg *cg, const void *plan, const char *name);
void cy_winograd_emit(cy_cg *cg, const void *plan, const char *name);
void cy_winograd_describe(const void *plan, char *text, size_t size);
#define CY_WINOGRAD_PHASES                                                                                             \
  .describe = cy_winograd_describe,                                                                                    \
  .phase = {{"_input", cy_winograd_shares, cy_winograd_emit_input, cy_winograd_input_count},                           \
            {"", NULL, cy_winograd_emit, .grid = cy_winograd_grid}},                                                   \
  .worker_bytes = cy_winograd_worker_bytes, .shared_bytes = cy_winograd_shared_bytes

/* ---- winograd_plan.c ---- */
wino cy_winograd_plan(const cy_cg *cg, const cy_conv_desc *d);

#endif
