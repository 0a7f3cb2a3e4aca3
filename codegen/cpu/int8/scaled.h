/* SPDX-License-Identifier: Apache-2.0 */
/* scaled.h - products of f32 with weights in integers with scales: what their generators share (scaled.c).
 *
 * A generator (int_blocks.c, quantised_rows.c, int_few_rows.c) tells how a block of a row of a is rounded, and how rounded rows are
 * multiplied by weights of some blocks of k; the phases, the accumulators and the epilogue are here. Its plan begins
 * with a cy_scaled.
 */
#ifndef CY_CPU_SCALED_H
#define CY_CPU_SCALED_H

#include "int_gemm.h"

struct cy_scaled_frame;
typedef struct cy_scaled_ops {
  /* Rounds a block of k: `from` its floats, `row` the rounded row, `block` its number. */
  void (*round)(cy_cg *cg, const void *plan, V from, V row, V block);
  /* accumulators += the frame's rows times its panels, `count` blocks of k from `first` on, k_blocks at most. */
  void (*multiply)(cy_cg *cg, const struct cy_scaled_frame *frame, V first, V count);
  bool interleaved; /* accumulators of a panel are in the order of two rounds of unpack, see quantised_rows.c */
  bool amx;
} cy_scaled_ops;

typedef struct cy_scaled {
  const cy_scaled_ops *ops;
  const cy_gemm_desc *d;
  cy_tile tile;
  int64_t n, k, block, count;     /* count: of blocks of k */
  int64_t bytes;                  /* rows of bytes in a block */
  int64_t nr, panels, unit;       /* columns of a panel; tasks have multiples of so many panels */
  int64_t mb, nb;                 /* rows and panels of a task, at most */
  int64_t run;                    /* tasks on the same rows that are done as one */
  int64_t line;                   /* panels of a row that the epilogue gets at a time: interleaved */
  int64_t k_blocks;               /* blocks of k that are multiplied at a time */
  int64_t row_bytes, rows_behind; /* of a rounded row; rows that may be read behind the last one */
  int64_t share;                  /* blocks of k that a task of the first phase rounds */
  int64_t weight_bytes;           /* scratch for weights, in front of the accumulators */
  int64_t acc_bytes;             /* from a row of accumulators to the next */
} cy_scaled;

/* Rows times panels [q0, q1) of a matrix. */
typedef struct cy_scaled_frame {
  const cy_scaled *p;
  V weights, acc, row_table, line; /* scratch; offsets of rounded rows; a row of accumulators in order: interleaved */
  cy_matrix_rows at;
  V m, rows; /* m: the first of so many rounded rows */
  V q0, q1;
} cy_scaled_frame;

cy_scaled cy_scaled_plan(const cy_scaled_ops *ops, const cy_gemm_desc *desc, int64_t nr);
/* Where the accumulators of a panel lie, in the first row. */
V cy_scaled_acc_at(cy_cg *cg, const cy_scaled_frame *frame, V panel);
/* The column that a panel begins with: where columns do not fill it, the last one begins so early that it ends with them. */
V cy_scaled_column(cy_cg *cg, const cy_scaled *p, V panel);

/* ---- the phases; plan: begins with a cy_scaled ---- */
cy_formula cy_scaled_worker_bytes, cy_scaled_shared_bytes;
cy_task_cut cy_scaled_round_grid, cy_scaled_grid;
cy_task_body cy_scaled_round;
void cy_scaled_emit(cy_cg *cg, const void *plan, const char *name);
void cy_scaled_tasks(cy_cg *cg, const cy_scaled *p, V scratch); /* of a kernel that is open */
void cy_scaled_describe(const void *plan, char *text, size_t size);
/* A generator's phases, the second one being emitted by `emit_`. */
#define CY_SCALED_PHASES(emit_)                                                                                        \
  .phase = {{"_rows", .grid = cy_scaled_round_grid, .body = cy_scaled_round}, {"", NULL, emit_, .grid = cy_scaled_grid}}, \
  .shared_bytes = cy_scaled_shared_bytes

/* ---- rows ---- */
V cy_scaled_floats(cy_cg *cg, V from, V stride, unsigned lanes); /* stride: floats from one to the next */
/* The largest magnitude of a block, by vectors of `lanes`. */
V cy_scaled_largest(cy_cg *cg, const cy_scaled *p, V from, unsigned lanes);
unsigned cy_scaled_lanes(const cy_cg *cg, const cy_scaled *p);

/* ---- weights ---- */

/* Where those of a block, from a column on, begin. */
typedef struct cy_scaled_place {
  V codes, scales, zeros; /* zeros NULL: there are none */
} cy_scaled_place;
cy_scaled_place cy_scaled_place_of(cy_cg *cg, const cy_gemm_desc *desc, V block, V col);
/* What so many bytes of codes and columns are behind a place. */
cy_scaled_place cy_scaled_behind(cy_cg *cg, cy_scaled_place at, V bytes, V columns);
/* Rows of 4 * W bytes, interleaved into dot4 by two rounds of unpack: vectors [first, first + n), n being even or first odd. */
enum { CY_SCALED_VECTORS = 4 };
void cy_scaled_interleave(cy_cg *cg, const V line[4], unsigned first, unsigned n, V *out);
/* Of as many columns, in that order: vector i of the scales; all zero points, as bytes. */
V cy_scaled_interleaved_scales(cy_cg *cg, V scales, unsigned i);
V cy_scaled_interleaved_zeros(cy_cg *cg, V zeros);
/* The lower or higher 4 bits of each byte; mask: 0x0f in each. */
V cy_scaled_half(cy_cg *cg, V v, V mask, bool high);
/* sum + dot4 of codes and what is rounded, in 32 bits, or in 16, pairs of products by vpmaddubsw. */
V cy_scaled_add(cy_cg *cg, V sum, V codes, V rounded);
static inline bool cy_scaled_dot4(const cy_cg *cg) { return cg->vnni || cg->vnni_spelled; }
/* The greatest number up to max that divides all. */
int64_t cy_scaled_divisor(int64_t all, int64_t max);

#endif
