/* SPDX-License-Identifier: Apache-2.0 */
/* int_gemm_int.h - what the files of a contraction by groups of k (int_gemm.c) share. */
#ifndef CY_CPU_INT_GEMM_INT_H
#define CY_CPU_INT_GEMM_INT_H

#include "int_gemm.h"

typedef struct cy_int_gemm_plan {
  const cy_int_gemm_desc *d;
  const char *name;
  int a_slot, b_slot, scratch_slot, shared_slot;
  bool packed;
  bool shifted; /* bytes of a, on their way to scratch */
  cy_int_gemm_variant variant;
  cy_tile tile;
  int64_t nr, mb, nb;
  int64_t last; /* columns that the last panel has in memory, nr at most */
  int64_t unit; /* tasks, and groups of panels in them, have multiples of so many panels */
  cy_axis axis[3];
  int64_t c, taps, groups; /* convolution: channels of a group, taps */
  int64_t n, k;            /* 0: not known */
  int64_t rows, image;     /* rows: 0 when not known; of an image, of a convolution */
  bool dense;              /* rows follow each other without gaps, as do their k */
  bool row_block;          /* see int_row_block.c; in_input: there is none, positions lie where they are wanted */
  bool in_input;
  int64_t run_groups;             /* of k, of a kernel row */
  int64_t pitch, row_block_bytes; /* from a row of the row block to the next; of all of them, at most */
  cy_int_gemm_order order;
  int64_t groups_of_k; /* of all panels of a matrix together; 0: not known */
  bool pack_b;         /* b is packed by the task that multiplies with it, the only one to do so */
} cy_int_gemm_plan;

typedef struct cy_int_gemm_frame {
  const cy_int_gemm_plan *p;
  cy_int_gemm_rows convert;
  V scratch, row_bytes, row_table, panel_bytes;
  /* of the task */
  V row0, product, matrix, a, b, column_sums, col0;
  V copied;       /* i64: which rows are in scratch */
  V offsets;      /* in a row block: where the task's positions begin */
  V stay;         /* so many rows are read where they lie; the others are copied .. */
  V rows;         /* .. behind this by as many rows as stay */
  V first, again; /* of split weights: see int_gemm.h */
  V p0, start;    /* the first panel; what accumulators begin with, from it on */
  cy_int_gemm_tables tables;
  V row_sums; /* of the task's rows, where zero points of b need them */
  cy_matrix_rows at; /* of products */
} cy_int_gemm_frame;

/* Are rows read where they lie, products being made by vpdpbusd or the like? Measured on Zen 5. */
static inline bool cy_int_gemm_rows_stay(const cy_cg *cg) {
  return cg->model.int_rows_stay && cg->vnni && !cg->amx_int8;
}

/* ---- int_plan.c ---- */

static inline int64_t cy_int_gemm_tile_k(const cy_int_gemm_plan *p) { return p->variant.step * p->variant.together; }
/* Tiles of bytes may reach into the rows behind: what they read there meets weights of 0. NaN times 0 is none. */
static inline bool cy_int_gemm_rows_reach(const cy_int_gemm_plan *p) {
  return p->variant.amx && p->variant.dot4 && p->dense;
}
/* Of k, in panels for row blocks. */
static inline int64_t cy_int_gemm_row_block_groups(const cy_int_gemm_plan *p) {
  return p->axis[0].count * p->axis[1].count * p->run_groups;
}

static inline const cy_epilogue *cy_int_gemm_epilogue(const cy_int_gemm_plan *p) {
  return p->d->conv ? &p->d->window.epilogue : &p->d->gemm.epilogue;
}

V cy_int_gemm_k_size(cy_cg *cg, const cy_int_gemm_plan *p);
V cy_int_gemm_k_groups(cy_cg *cg, const cy_int_gemm_plan *p); /* with those that fill up the last tile */
/* Do rows lie in memory as they would in scratch, all of them one run? */
bool cy_int_gemm_rows_as_wanted(const cy_int_gemm_plan *p);
/* Output position `flat` of a convolution: image, then the axes. */
void cy_int_gemm_split_position(cy_cg *cg, const cy_int_gemm_plan *p, V flat, V *image, V *o);
/* The element of a so many behind the one at `from`. */
V cy_int_gemm_elements_on(cy_cg *cg, const cy_int_gemm_plan *p, V from, V elements);

/* ---- int_order.c ---- */

/* Vectors of columns that panels should have to leave out taps, the tile being chosen for all of k; 0: they should not. */
unsigned cy_int_gemm_order_vectors(const cy_cg *cg, const cy_int_gemm_plan *p);
/* The order of k, row blocks being decided; if it is to be shuffled, whether it is. */
void cy_int_gemm_order_plan(cy_int_gemm_plan *p);
double cy_int_gemm_order_share(const cy_cg *cg, const cy_int_gemm_plan *p); /* of all taps' time */
cy_int_gemm_tables cy_int_gemm_tables_of(cy_cg *cg, const cy_int_gemm_plan *p);

/* ---- int_tile.c ---- */

/* A tile of rows of a, from row0 of the task on, where each begins behind a, and where its accumulators go; which of so many; the
 * panel behind its group. */
typedef struct cy_int_gemm_tile {
  V a, table, row0, rows, acc, ldc, number, tiles, end;
} cy_int_gemm_tile;
cy_int_gemm_depth cy_int_gemm_depth_of(cy_cg *cg, const cy_int_gemm_plan *p); /* of all panels */
V cy_int_gemm_bytes_before(cy_cg *cg, const cy_int_gemm_frame *f, V q); /* of the panels in front of panel q */
V cy_int_gemm_start(cy_cg *cg, const cy_int_gemm_frame *f, V q);        /* what the accumulators of panel q begin with */
/* Panels [q0, end). */
void cy_int_gemm_tile_emit(cy_cg *cg, const cy_int_gemm_frame *f, const cy_int_gemm_tile *t, V q0, V end);

/* ---- int_inline.c ---- */

/* Do accumulators go through the epilogue, which a plan does not know, from registers? */
bool cy_int_gemm_inline_pays(const cy_cg *cg, const cy_int_gemm_plan *p);
/* Panels [q0, end) through all of k and the epilogue; together: as many rows may go through it at once. */
void cy_int_gemm_inline_emit(cy_cg *cg, const cy_int_gemm_frame *f, const cy_int_gemm_tile *t, const cy_rows *index,
                             unsigned together, V q0, V end);

/* ---- int_lane_reduce.c ---- */

unsigned cy_int_lane_reduce_choose(const cy_cg *cg,
                                   const cy_int_gemm_plan *p); /* lanes that columns have; 1: as usual */
cy_tile cy_int_lane_reduce_tile(void);

/* ---- int_row_block.c ---- */

/* Decides whether there is a row block, tiles and blocks being known. */
void cy_int_row_block_plan(cy_int_gemm_plan *p);
/* The row block of a task of so many positions, and its offsets. */
void cy_int_row_block_copy(cy_cg *cg, const cy_int_gemm_frame *f, V count);
V cy_int_row_block_pitch(cy_cg *cg, const cy_int_gemm_plan *p); /* bytes from a kernel row to the next */

/* ---- int_copy.c ---- */

/* Rows [0, count) of a task to scratch, but for those that stay where they lie. */
void cy_int_gemm_copy_rows(cy_cg *cg, const cy_int_gemm_frame *f, V count);

#endif
