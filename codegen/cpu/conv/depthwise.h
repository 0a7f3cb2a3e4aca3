/* SPDX-License-Identifier: Apache-2.0 */
/* depthwise.h - convolution of each channel with its own filter, or in groups of few channels: one generator for all kinds
 * of elements.
 *
 * Vectors run over channels. A row block is a few output rows; a tile, some neighbouring outputs of each of them, has its
 * accumulators in registers, and each input column is loaded once for all the taps of a tile that it meets. The loops, from
 * the outside: tasks of some row blocks, blocks of channels, row blocks, tiles, vectors of channels. A kind of elements says
 * how a block of channels and a row block are made ready, and what a vector's products are: depthwise_float.c,
 * int8/int_depthwise.c.
 */
#ifndef CY_CPU_DEPTHWISE_H
#define CY_CPU_DEPTHWISE_H

#include "conv_int.h"

/* A group of input rows that are loaded together, seen by an output row of the row block. */
typedef struct cy_depthwise_use {
  int output, group;
  int tap[4]; /* row of the kernel that meets each of the group's rows, -1: none does */
} cy_depthwise_use;
enum { CY_DEPTHWISE_USES = 144 };

/* A kind's plan begins with this. */
typedef struct cy_depthwise {
  const struct cy_depthwise_kind *kind;
  const cy_conv_desc *d;
  cy_depthwise_by by;
  cy_axis axis[3];
  bool transposed;       /* axes 1 and 2 have changed places */
  int64_t block;         /* channels that a task goes through its row blocks for at a time */
  int64_t rows, tile;    /* of a tile: output rows, along axis 1, and outputs of each */
  int groups, uses;      /* of the rows that a row block reads at once */
  cy_depthwise_use use[CY_DEPTHWISE_USES];
  int64_t columns;       /* inputs of a tile along axis 2 */
  int64_t per_task;      /* row blocks */
} cy_depthwise;

/* What a function has at hand; a kind's own begins with it. */
typedef struct cy_depthwise_frame {
  const cy_depthwise *p;
  V buffer;            /* accumulators of a tile and block, in the first-level cache */
  V column_bytes;      /* from an input column to the next, where they are loaded */
  V image, o[2];       /* of the row block: the image, outputs of axes 0 and 1 */
  V c0;                /* of the block: its first channel, .. */
  int64_t channels;    /* .. and how many it has */
} cy_depthwise_frame;

/* Which columns of a tile exist: all; those that are known to; those that are found to when the model runs; or all, as
 * those beside the feature map were copied, too, and those of outputs behind the last one. */
typedef enum cy_depthwise_border { CY_BORDER_NONE, CY_BORDER_KNOWN, CY_BORDER_CHECKED, CY_BORDER_COPIED } cy_depthwise_border;

typedef struct cy_depthwise_tile {
  V x0;            /* the first output */
  int64_t outputs; /* of a row */
  cy_depthwise_border border;
  V first; /* bytes from the row to the first column, which may lie outside */
} cy_depthwise_tile;

typedef struct cy_depthwise_kind {
  bool copied; /* rows are copied, in whole vectors of channels and with borders for whole tiles */
  void (*block)(cy_cg *cg, cy_depthwise_frame *f); /* a block of channels begins; may be NULL */
  void (*row_block)(cy_cg *cg, cy_depthwise_frame *f);
  /* acc[rows * outputs] = the products of so many channels from c0 + channel on. */
  void (*accumulate)(cy_cg *cg, const cy_depthwise_frame *f, const cy_depthwise_tile *t, V channel, unsigned lanes, V *acc);
  /* Column `column` of a tile, of a group of rows; acc + column * the tap of a kernel row or, of a group, of a use. vector:
   * what cy_depthwise_add was given. */
  V (*load)(cy_cg *cg, const void *vector, int group, int64_t column);
  V (*add)(cy_cg *cg, const void *vector, V acc, V column, int use, int64_t tap);
  cy_epilogue (*epilogue)(cy_cg *cg, const cy_depthwise_frame *f); /* of what is in the buffer; NULL: d->epilogue */
} cy_depthwise_kind;

/* ---- depthwise.c ---- */

/* Plans what follows from the rest: tiles of up to max_tile outputs of a row, and tasks. work: of an output, see
 * cy_cost_depthwise_task. */
void cy_depthwise_plan(const cy_cg *cg, int64_t max_tile, double work, cy_depthwise *p);
cy_task_grid cy_depthwise_grid(cy_cg *cg, const void *plan);
void cy_depthwise_describe(const void *plan, char *text, size_t size);

/* Of a kernel's function: it begins, with this worker's scratch; the kind makes the rest of its frame; its tasks, and it ends. */
V cy_depthwise_begin(cy_cg *cg, const cy_depthwise *p, const char *name, cy_formula *worker_bytes, cy_depthwise_frame *f);
void cy_depthwise_end(cy_cg *cg, cy_depthwise_frame *f);

/* acc += all products of the groups. */
void cy_depthwise_add(cy_cg *cg, const cy_depthwise *p, const cy_depthwise_tile *t, const void *vector, V *acc);

#endif
